//! A stream from its source to its sinks.

use super::builder::{PipelineBuilder, RunSummary};
use crate::error::{Error, ErrorKind, Result};
use crate::sink::Sink;
use crate::source::Source;

pub(super) fn run(_: PipelineBuilder, _: impl Source, _: &mut [Box<dyn Sink + '_>]) -> Result<RunSummary> {
    Err(Error::new(ErrorKind::Unavailable, "the loop is not there yet"))
}
