//! What `demo-video` is made of: where frames come from, where results go, what is said meanwhile and after.

mod progress;
mod sinks;
mod source;
mod summary;

pub use progress::LiveProgress;
pub use sinks::{SinkArgs, Sinks};
pub use source::{OpenSource, SourceArgs};
pub use summary::{Counts, RunReport, stage_table};
