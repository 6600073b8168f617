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

mod braces;
mod coco;
mod correct;
#[cfg(test)]
mod corrections;
mod find;
mod folder;
mod images;
mod job;
mod journal;
mod known;
#[cfg(test)]
mod lost_work;
mod low_memory;
mod mask_files;
mod merge;
mod placer;
mod prefetch;
mod prompts;
mod record;
mod refine;
#[cfg(test)]
mod replaced;
#[cfg(test)]
mod restarts;
mod review;
mod saved;
#[cfg(test)]
mod sequences;
mod settings;
mod simplify;
mod source;
mod stop;
mod tar_file;
mod tracks;
mod turns;
mod video;
mod voc;
mod write;
mod written;
mod yolo;
mod youtube_vis;

pub(crate) use correct::{AllLabels, all_labels, is_changed, parse_labels};
pub use correct::{CorrectedSet, LabelledInstance, Labels, SetImage};
pub use find::{find_images, list_images};
pub use folder::data_set_around;
pub use images::{FoundImage, ImageFile, ImageSet, Shard};
pub use job::{Existing, LabelEvent, LabelJob};
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub use journal::check_journal;
pub use low_memory::SPILL_BYTES;
pub use merge::merge;
pub use settings::{DataSetOptions, Format, ImageMode, LabelSettings, Tracking};
pub use source::open_image;
pub use video::{LabelVideo, VideoFrame};
pub use write::{ClassCount, Summary};
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub use written::check_written;
