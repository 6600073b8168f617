//! The state of a data set: what is known about its images and files, and who owns them. Whatever changes the data set goes
//! through here.
//!
//! Two logs are on disk. The [journal] has what was found, a line for each image: it is large, and a restart makes it again.
//! The [state] has what must not be lost: which files are ours, which images there are, and what a person saved. Both are
//! instances of one [log], and whatever is written goes through the [disk](super::disk). Programs that correct labels for a
//! person look them up in a [Book](book::Book).

mod book;
#[cfg(feature = "test-support")]
mod check;
mod data_set;
pub(in crate::label) mod files;
mod folder;
mod images;
pub(in crate::label) mod journal;
pub(in crate::label) mod layout;
mod log;
mod merge;
mod placer;
pub(in crate::label) mod state;
mod write;

pub(in crate::label) use book::{Book, LabelFile};
#[cfg(feature = "test-support")]
pub use check::{check_journal, check_state};
pub use data_set::Existing;
pub(in crate::label) use data_set::{DataSet, Opening};
pub(in crate::label) use files::{Owner, part_path};
pub use folder::data_set_around;
pub(in crate::label) use folder::{Contents, OutputFolder, STATE_FOLDER, journal_path};

pub(in crate::label) use journal::{Entry, Journal, classes_of, is_growing};
pub(in crate::label) use layout::{COCO_FILE, ClassHashes, Meaning, WHOLE_FILES, WholeFile, label_files};
use log::{Kind, Log, Span};
pub use merge::merge;
use placer::Placer;
pub(crate) use placer::images_of;
pub(in crate::label) use placer::is_time_of;
use state::SavedLabels;
pub(in crate::label) use state::{Event, State};
pub use write::{ClassCount, Summary};
