//! Parsers of the files that arguments name, for the tests that feed them corrupt files. Each says whether the file is valid.

use std::path::Path;

use clap::CommandFactory;

use crate::program::Ocelli;

pub use crate::args::parse_exemplar;
pub use crate::commands::video::{parse_event_address, parse_sources, parse_zones};

/// A file of `--classes`.
pub fn parse_classes(path: &Path) -> bool {
    let mut log = crate::LogArgs::default();
    log.quiet = true;
    crate::args::class_map(&[path.to_string_lossy().into_owned()], &log).is_ok()
}

/// The file of `--config`, for `ocelli video`.
pub fn parse_options(path: &Path) -> bool {
    let arguments = ["ocelli".into(), "video".into(), "--config".into(), path.into()];
    crate::config::with_config(&Ocelli::command(), arguments.into()).is_ok()
}
