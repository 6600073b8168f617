//! The formats of data sets and of inputs: what a file says, and nothing about which files there are or whose they are.

pub(in crate::label) mod braces;
pub(in crate::label) mod changed;
pub(in crate::label) mod coco;
pub(in crate::label) mod mask_files;
pub(in crate::label) mod simplify;
pub(in crate::label) mod tar_file;
pub(in crate::label) mod tracks;
pub(in crate::label) mod voc;
pub(in crate::label) mod yolo;
pub(in crate::label) mod yolo_line;
pub(in crate::label) mod youtube_vis;
