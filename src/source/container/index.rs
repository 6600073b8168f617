//! When each frame of a file is shown, from the index of its container.
//!
//! Decoders that hold frames back lose the times of the last ones; the index has them all.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::{MAX_ELEMENTS, bytes_at, iso, matroska};

/// The times of the frames of a file, from its structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrameIndex<T> {
    /// The time of each frame of the first video track.
    Times(Vec<T>),
    /// There is no index that this reads.
    Unknown,
    /// The structure is damaged at this byte: frames and times behind it may be missing.
    DamagedAt(u64),
}

/// The times of the frames of the first video track in the order in which they are shown, relative to the first frame.
pub(crate) fn frame_times(path: &Path) -> io::Result<FrameIndex<Duration>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let times = match bytes_at(&mut file, 0, 12)?.as_slice() {
        [0x1a, 0x45, 0xdf, 0xa3, ..] => matroska::frame_times(&mut file, MAX_ELEMENTS)?,
        [_, _, _, _, b'f', b't', b'y', b'p', ..]
        | [_, _, _, _, b'm', b'o', b'o', b'v', ..]
        | [_, _, _, _, b'm', b'd', b'a', b't', ..]
        | [_, _, _, _, b'w', b'i', b'd', b'e', ..] => {
            iso::frame_times(&mut file, length)?.map_or(FrameIndex::Unknown, FrameIndex::Times)
        }
        _ => FrameIndex::Unknown,
    };
    Ok(match times {
        FrameIndex::Times(times) => shown(times).map_or(FrameIndex::Unknown, FrameIndex::Times),
        FrameIndex::Unknown => FrameIndex::Unknown,
        FrameIndex::DamagedAt(byte) => FrameIndex::DamagedAt(byte),
    })
}

/// Nanoseconds in the order of decoding become times in the order of showing; `None` if two frames have the same time.
fn shown(mut nanoseconds: Vec<i128>) -> Option<Vec<Duration>> {
    nanoseconds.sort_unstable();
    let first = *nanoseconds.first()?;
    let distinct = nanoseconds.windows(2).all(|pair| pair[0] < pair[1]);
    let since_first =
        nanoseconds.iter().map(|time| u64::try_from(time - first).ok().map(Duration::from_nanos));
    if distinct { since_first.collect() } else { None }
}
