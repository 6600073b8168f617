//! Shared by the benchmark programs: quantiles, drawn videos, processes that take turns, number formats, the halves of a detector and their agreement
//! between engines, the report of a run on a GPU, and the description of the machine.

#![forbid(unsafe_code)]

pub mod agreement;
pub mod bisect;
pub mod contestant;
pub mod drawn_video;
pub mod gpu_report;
pub mod halves;
pub mod machine;
pub mod nvidia;
pub mod precision;
pub mod quantiles;

/// Names that the built-in model finds reliably.
pub const EXAMPLE_CLASSES: [&str; 12] = [
    "person", "dog", "cat", "car", "bus", "bicycle", "umbrella", "pizza", "apple", "elephant", "tree",
    "clock",
];
