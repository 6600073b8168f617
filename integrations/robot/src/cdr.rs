//! CDR, the serialisation of ROS 2, with the four bytes that recordings have before it.

use byteorder::{BigEndian, LittleEndian};
use ocelli::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Plain CDR, little-endian, no options.
const LITTLE_ENDIAN: [u8; 4] = [0, 1, 0, 0];

/// Serialises a message.
///
/// # Errors
/// [`ErrorKind::InvalidData`] for what CDR cannot express; the messages here have nothing of it.
pub fn to_bytes(message: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = LITTLE_ENDIAN.to_vec();
    cdr_encoding::to_writer::<_, LittleEndian, _>(&mut bytes, message)
        .map_err(|e| Error::new(ErrorKind::InvalidData, format!("cannot serialise a message: {e}")))?;
    Ok(bytes)
}

/// Reads a message. Bytes after it are ignored.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if the bytes end before the message does, or are of another kind of serialisation.
pub fn from_bytes<'de, M: Deserialize<'de>>(bytes: &'de [u8]) -> Result<M> {
    let invalid = |why: String| Error::new(ErrorKind::InvalidData, format!("not a message in CDR: {why}"));
    let Some((kind, body)) = bytes.split_at_checked(4) else {
        return Err(invalid(format!("expected 4 bytes before the message, found {}", bytes.len())));
    };
    match kind[..2] {
        [0, 0] => cdr_encoding::from_bytes::<M, BigEndian>(body),
        [0, 1] => cdr_encoding::from_bytes::<M, LittleEndian>(body),
        _ => {
            return Err(invalid(format!(
                "expected 0 and 0 or 1 as the first two bytes, found {:?}",
                &kind[..2]
            )));
        }
    }
    .map(|(message, _)| message)
    .map_err(|e| invalid(e.to_string()))
}
