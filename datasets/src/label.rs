//! Labels images with a detector and writes data sets that trainers read: YOLO, YOLO-seg and COCO.
//!
//! [`find_images`] finds images, an [`ImageSet`] names them, and a [`ClassMap`](ocelli::classes::ClassMap) says which text prompts and exemplars belong
//! to which class. A [`LabelJob`] labels the images and appends a line for each to a journal in the output folder. It can be
//! stopped at any time: opening the job again continues after the last complete line.
//!
//! [`LabelVideo`] makes images of the frames of videos, whose objects [`LabelJob::run_videos`] follows.
//!
//! Images may be members of tar files, such as WebDataset's shards: they are read in place and named after tar and member.
//!
//! [`LabelJob::finish`] writes everything else in the folder (label files, `annotations.json`, `data.yaml`, review pages) from
//! the journal. The bytes are the same however often the job was stopped, and [`merge`] joins the shards of a job that several
//! processes shared.
//!
//! The hash of each label file is on record. A file whose content is another was corrected by a person and is never
//! overwritten, moved or removed, unless [`Existing::discard_corrections`] says so. A [`CorrectedSet`] is how a program makes
//! such corrections for a person.

mod correct;
#[cfg(test)]
mod corrections;
mod disk;
#[cfg(test)]
mod edited;
mod find;
#[cfg(test)]
mod folders;
mod formats;
mod hash;
mod images;
#[cfg(test)]
mod lost_work;
#[cfg(test)]
mod mask_edits;
mod record;
#[cfg(test)]
mod replaced;
#[cfg(test)]
mod restarts;
mod review;
mod run;
#[cfg(test)]
mod sequences;
mod settings;
mod source;
mod store;
mod video;

pub(crate) use correct::{AllLabels, ImageLabels, all_labels};
pub use correct::{CorrectedSet, Labels, SetImage};
pub use find::{find_images, list_images};
pub(crate) use formats::coco::segmentation;
pub(crate) use formats::yolo_line::parse_labels;
pub use images::{FoundImage, ImageFile, ImageSet, Shard, VideoFrame};
pub use record::LabelledInstance;
use record::{Instance, Record};
pub use run::{LabelEvent, LabelJob, OnEvent, SPILL_BYTES};
pub use settings::{DataSetOptions, Format, ImageMode, LabelSettings, Tracking, workers};
pub(crate) use source::identity;
pub use source::open_image;
pub(crate) use store::images_of;
pub use store::{ClassCount, Existing, Summary, data_set_around, merge};
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub use store::{check_journal, check_state};
pub use video::LabelVideo;

/// Called again and again during long work. An error from it ends the work.
pub type CheckCancelled<'c> = dyn FnMut() -> ocelli::Result<()> + 'c;
