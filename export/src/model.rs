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

use crate::checkpoint::Checkpoint;
use crate::config::ModelConfig;
use crate::contract::{Prompting, Target};
use crate::exporter::ExportOptions;
use crate::graph::{Graph, LinearForm};
use crate::mixed_precision::{Block, Family};
use ocelli_error::Result;

/// The checkpoint and the options that the graphs are written for.
pub(crate) struct Plan<'w> {
    pub(crate) checkpoint: &'w Checkpoint,
    /// S.
    pub(crate) imgsz: usize,
    /// Set if the folder has the memory tracker.
    pub(crate) tracker: bool,
    /// With the pruning of the checkpoint, and prompts that it has.
    pub(crate) options: ExportOptions,
}

impl<'w> Plan<'w> {
    /// The plan of the graphs, if the options are valid for this checkpoint.
    pub(crate) fn new(options: &ExportOptions, checkpoint: &'w Checkpoint) -> Result<Self> {
        let imgsz = options.check(checkpoint)?;
        let tracker = options.has_tracker(checkpoint);
        let mut options = options.clone();
        options.pruning = options.pruning.with(checkpoint.pruning());
        // The image's token is what the encoder of exemplars gives without boxes.
        if !checkpoint.config().has_exemplars() {
            options.prompting = Prompting::Text;
        }
        Ok(Self { checkpoint, imgsz, tracker, options })
    }

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
        graph.target = self.options.target;
        graph.may_join_layers = self.joins_layers();
        graph.calibration.clone_from(&self.options.calibration);
        graph.exact_blocks = self.options.keep_fp32.iter().copied().collect();
        graph
    }

    /// `true` if linear layers with the same input are one product, which TensorRT needs for sums in 32 bits: it joins such
    /// layers itself, and the joined one then sums in half precision.
    fn joins_layers(&self) -> bool {
        self.options.precision.is_half() && self.options.target == Target::TensorRt
    }

    /// The form of the linear layers of backbone and fusion encoder.
    fn linear_form(&self) -> LinearForm {
        if self.options.observes {
            LinearForm::Observed
        } else {
            LinearForm::of(self.options.precision, self.options.target)
        }
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
