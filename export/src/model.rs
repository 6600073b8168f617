//! The parts of SAM3 as ONNX graphs.
//!
//! The parts compute what `transformers` 5.23 `models/sam3` computes; each file here is named after the module that it
//! writes. Results that depend only on the checkpoint are folded; results that depend only on the image are computed once
//! for all classes.

mod backbone;
mod decoder;
mod encoder_decoder;
mod fusion;
mod geometry;
mod joined;
mod layers;
mod masks;
mod mobile_clip;
mod position;
mod quantized;
mod scoring;
mod student;
mod text;
mod tracker;

use std::collections::BTreeSet;

use crate::calibration::Calibration;
use crate::checkpoint::Checkpoint;
use crate::config::ModelConfig;
use crate::contract::{Precision, Prompting, Target};
use crate::graph::{Graph, LinearForm};
use crate::mixed_precision::{Block, Family};
use crate::prune::Pruning;

/// The checkpoint and the options that the graphs are written for.
pub(crate) struct Plan<'w> {
    pub(crate) checkpoint: &'w Checkpoint,
    /// S.
    pub(crate) imgsz: usize,
    pub(crate) target: Target,
    pub(crate) precision: Precision,
    pub(crate) prompting: Prompting,
    pub(crate) detection_only: bool,
    pub(crate) screen: bool,
    /// Set if the folder has the memory tracker.
    pub(crate) tracker: bool,
    pub(crate) pruning: Pruning,
    /// Gives graphs an output with the range of every layer to be quantised.
    pub(crate) observes: bool,
    pub(crate) calibration: Option<&'w Calibration>,
    /// The blocks that stay in 32 bits.
    pub(crate) kept: &'w BTreeSet<Block>,
}

impl<'w> Plan<'w> {
    fn config(&self) -> &'w ModelConfig {
        self.checkpoint.config()
    }

    /// An empty graph for these options, with the name of its file; that of each half of a backbone is `backbone`.
    pub(crate) fn graph(&self, file: &str) -> Graph<'w> {
        let (folder, file) = file.rsplit_once('/').unwrap_or(("", file));
        let name = if file.starts_with("backbone") { "backbone" } else { file.trim_end_matches(".onnx") };
        let mut graph = Graph::new(name, self.checkpoint.weights());
        if !folder.is_empty() {
            graph.block(Block::whole(Family::Tracker));
        }
        graph.target = self.target;
        graph.may_join_layers = self.joins_layers();
        graph.calibration = self.calibration;
        graph.exact_blocks = self.kept.iter().copied().collect();
        graph
    }

    /// `true` if linear layers with the same input are one product, which TensorRT needs for sums in 32 bits: it joins such
    /// layers itself, and the joined one then sums in half precision.
    fn joins_layers(&self) -> bool {
        self.precision.is_half() && self.target == Target::TensorRt
    }

    /// The form of the linear layers of backbone and fusion encoder.
    fn linear_form(&self) -> LinearForm {
        if self.observes { LinearForm::Observed } else { LinearForm::of(self.precision, self.target) }
    }

    /// `true` if the tracker is SAM 3.1's, whose objects share memories.
    pub(crate) fn has_buckets(&self) -> bool {
        self.config().tracker.as_ref().is_some_and(|tracker| tracker.slots.is_some())
    }

    /// P.
    pub(crate) fn grid(&self) -> usize {
        self.imgsz / self.config().vision.patch_size
    }
}

pub(crate) use backbone::Section;
