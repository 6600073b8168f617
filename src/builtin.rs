//! The built-in model: a small SAM3 trained on drawn scenes. It knows eighty pictograms and nothing of photographs; see
//! its model card, `src/builtin/README.md`.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use ocelli_error::{Error, Result};

/// The files of the checkpoint, each in the parts in which the program carries it.
static FILES: [(&str, &[&[u8]]); 3] = [
    ("config.json", &[include_bytes!("builtin/config.json")]),
    ("model.safetensors", &[ocelli_builtin_1::BYTES, ocelli_builtin_2::BYTES]),
    ("tokenizer.json", &[include_bytes!("builtin/tokenizer.json")]),
];

/// Writes the checkpoint of the built-in model into an existing folder.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) if writing fails.
pub fn write_checkpoint(folder: &Path) -> Result<()> {
    for (name, parts) in &FILES {
        let path = folder.join(name);
        let write = || {
            parts.iter().try_fold(File::create(&path)?, |mut file, part| file.write_all(part).map(|()| file))
        };
        write().map_err(|e| Error::io("cannot write the built-in model", &path, e))?;
    }
    Ok(())
}

/// The hash of the built-in model, lower-case hex.
pub(crate) fn identity() -> String {
    let mut hash = Sha256::new();
    for (name, parts) in &FILES {
        hash.update(name.as_bytes());
        parts.iter().for_each(|part| hash.update(part));
    }
    crate::cache::short_hex(&hash.finalize())
}

static VOCABULARY: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| include_str!("builtin/vocabulary.txt").lines().collect());

/// The eighty names that the built-in model knows.
pub fn vocabulary() -> &'static [&'static str] {
    &VOCABULARY
}

/// The SHA-256 of its weights, as `model.json` has it.
pub fn weights_sha256() -> String {
    let mut hash = Sha256::new();
    FILES.iter().filter(|(name, _)| name.ends_with(".safetensors")).for_each(|(_, parts)| {
        parts.iter().for_each(|part| hash.update(part));
    });
    ocelli_export::contract::hex(&hash.finalize())
}
