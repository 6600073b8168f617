//! The state of a data set: what is known about its images and files, and who owns them. Whatever changes the data set goes
//! through here.

pub(in crate::label) mod conflicts;
pub(in crate::label) mod disk;
pub(in crate::label) mod folder;
pub(in crate::label) mod journal;
pub(in crate::label) mod known;
mod merge;
pub(in crate::label) mod placer;
pub(in crate::label) mod saved;
pub(in crate::label) mod write;
pub(in crate::label) mod written;

pub use folder::data_set_around;
#[cfg(feature = "test-support")]
pub use journal::check_journal;
pub use merge::merge;
pub use write::{ClassCount, Summary};
#[cfg(feature = "test-support")]
pub use written::check_written;
