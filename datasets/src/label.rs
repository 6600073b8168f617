//! Data sets from pictures: what the detector finds, as YOLO, YOLO-seg and COCO files that trainers read.
//!
//! A [`PictureSet`] says which pictures and what they are called, a [`ClassMap`] which phrases belong to which class.
//! [`LabelJob`] labels the pictures one after the other, and each goes as one line into a journal in the output folder,
//! which is what makes the work safe to stop: whatever ends the program, the same job goes on after the last whole line.
//! Everything else in the folder — label files, `annotations.json`, `data.yaml`, review pages — is written from the
//! journal, so that a run that was stopped a hundred times ends with the same bytes as one that was not, and so that
//! [`merge`] can join the shards of a job array.

mod ahead;
mod class_map;
mod coco;
mod folder;
mod journal;
mod low_memory;
mod merge;
mod pictures;
mod placement;
mod prepare;
mod record;
mod refine;
mod review;
mod run;
mod search;
mod settings;
mod write;
mod yolo;

mod inputs;

pub use class_map::{Class, ClassExemplar, ClassMap, ExamplePicture, MergeGroup};
pub use inputs::find_pictures;
pub use low_memory::SPILL_BYTES;
pub use merge::merge;
pub use pictures::{FoundPicture, PictureFile, PictureSet, Shard};
pub use record::{Record, Thing};
pub use run::{LabelEvent, LabelJob};
pub use settings::{DataSetOptions, Format, LabelSettings, PictureMode};
pub use write::{ClassCount, Summary};
