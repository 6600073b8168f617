//! Parsers of the files that arguments name, for the tests that feed them corrupt files. Each says whether the file is valid.

use std::path::Path;

use clap::CommandFactory;

use crate::args::ExemplarArg;
use crate::commands::video::{mqtt, source, zones};
use crate::program::Ocelli;

/// A value of `--exemplar`.
pub fn parse_exemplar(text: &str) -> bool {
    text.parse::<ExemplarArg>().is_ok()
}

/// The address of `--mqtt`.
pub fn parse_event_address(text: &str) -> bool {
    mqtt::address(text).is_ok()
}

/// The file of `--sources`.
pub fn parse_sources(path: &Path) -> bool {
    source::named_sources(path).is_ok()
}

/// The file of `--zones`.
pub fn parse_zones(path: &Path) -> bool {
    zones::ZonesFile::read(path).is_ok()
}

/// A file of `--classes`.
pub fn parse_classes(path: &Path) -> bool {
    crate::output::set_quiet(true);
    crate::args::class_names(&[path.to_string_lossy().into_owned()]).is_ok()
}

/// The file of `--config`, for `ocelli video`.
pub fn parse_options(path: &Path) -> bool {
    let arguments = ["ocelli".into(), "video".into(), "--config".into(), path.into()];
    crate::config::with_config(&Ocelli::command(), arguments.into()).is_ok()
}
