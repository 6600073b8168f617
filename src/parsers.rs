//! Parsers of files that have no public function of their own, for the tests that feed them corrupt files.

use std::path::Path;

use crate::source::container::Container;
use crate::text_cache::{TextCache, TextCacheIdentity};
use ocelli_error::Result;

/// Inspects a video file.
///
/// # Errors
/// If the file cannot be read.
pub fn inspect_container(path: &Path) -> std::io::Result<()> {
    Container::inspect(path).map(drop)
}

/// The model of the text caches here.
fn identity() -> TextCacheIdentity {
    TextCacheIdentity {
        weights_sha256: "0".repeat(64),
        text_sha256: String::new(),
        number_format: "fp32".into(),
        context_length: 4,
        width: 3,
    }
}

/// Writes a text cache with these phrases.
///
/// # Errors
/// If it cannot be written.
pub fn write_text_cache(path: &Path, phrases: &[&str]) -> Result<()> {
    let mut cache = TextCache::new(identity());
    for phrase in phrases {
        cache.insert(phrase, &[0.5; 12], &[1, 1, 1, 0])?;
    }
    cache.save(path)
}

/// Reads a text cache of the same model.
///
/// # Errors
/// If it is corrupt, or of another model.
pub fn read_text_cache(path: &Path) -> Result<()> {
    TextCache::open_or_new(path, identity()).map(drop)
}
