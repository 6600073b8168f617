//! The built-in model: a small SAM3 of our own, trained on drawn scenes. It knows eighty pictograms and nothing of
//! photographs; its card is `src/builtin/README.md`.

use std::path::Path;
use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// The checkpoint's files, as [`Checkpoint`](ocelli_export::Checkpoint) reads them from a folder.
const FILES: [(&str, &[u8]); 3] = [
    ("config.json", include_bytes!("builtin/config.json")),
    ("model.safetensors", include_bytes!("builtin/model.safetensors")),
    ("tokenizer.json", include_bytes!("builtin/tokenizer.json")),
];

/// Writes the built-in model's checkpoint into `folder`, which exists.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) when writing fails.
pub fn write_checkpoint(folder: &Path) -> Result<()> {
    for (name, data) in FILES {
        let path = folder.join(name);
        std::fs::write(&path, data).map_err(|e| Error::io("cannot write the built-in model", &path, e))?;
    }
    Ok(())
}

/// The identity of the built-in model as this program carries it, lower-case hex.
pub(crate) fn identity() -> String {
    let mut hash = Sha256::new();
    for (name, data) in FILES {
        hash.update(name.as_bytes());
        hash.update(data);
    }
    crate::cache::short_hex(&hash.finalize())
}

/// What the built-in model is good at finding, for those who have named nothing yet.
pub const EXAMPLE_CLASSES: [&str; 12] = [
    "person", "dog", "cat", "car", "bus", "bicycle", "umbrella", "pizza", "apple", "elephant", "tree",
    "clock",
];

static VOCABULARY: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| include_str!("builtin/vocabulary.txt").lines().collect());

/// The names that the built-in model knows, each of which has a pictogram.
pub fn vocabulary() -> &'static [&'static str] {
    &VOCABULARY
}
