//! Options of a masklet session.

use crate::masklets::BitMask;
use ocelli_error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The model whose life cycle a session follows: the rules that are more than another value of an option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LifeCycle {
    /// SAM 3: every object has memories of its own, and masks overlap by intersection over union.
    #[default]
    Sam3,
    /// SAM 3.1: up to 16 objects share the memories of a bucket, and detections overlap by intersection over
    /// the smaller area. Objects that turn out to be false are left out of frames that are held back, and a
    /// group whose first objects were removed goes on with another conditioning frame.
    Multiplex,
    /// SAM 3.1 as Meta's code: it shows objects that turn out to be false until it removes them, and fails on
    /// the frame after the objects of a group's first frame were removed.
    MultiplexAsReleased,
}

impl LifeCycle {
    /// The number of objects that can share a memory.
    pub fn bucket_size(self) -> usize {
        if self.is_multiplex() { 16 } else { 1 }
    }

    pub(crate) fn is_multiplex(self) -> bool {
        self != Self::Sam3
    }

    /// The overlap of a detection with another one or an object.
    pub(crate) fn overlap(self, a: &BitMask, b: &BitMask) -> f32 {
        if self.is_multiplex() { a.intersection_over_smaller(b) } else { a.iou(b) }
    }
}

/// The options of a [`MaskletSession`](crate::masklets::MaskletSession), with the defaults of SAM 3 in brackets.
///
/// Scores and overlaps are 0 to 1. Counts of frames are frames of the video.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct MaskletOptions {
    /// The model whose rules hold (SAM 3).
    pub life_cycle: LifeCycle,
    /// The side of the grid of image patches (72). Masks of the network have 4 times this side, masks that the memory
    /// encoder sees 16 times, the image 14 times.
    pub patch_grid: usize,
    /// Detections above this score are used (0.5).
    pub detection_threshold: f32,
    /// Of detections whose masks overlap more than this, only the one with the highest score is used (0.1).
    pub detection_nms_iou: f32,
    /// A detection whose mask has its centre within this share of the frame's border is not used, unless
    /// nothing is tracked (0: all are used).
    pub border: f32,
    /// A detection matches every object with at least this overlap (0.1).
    pub match_iou: f32,
    /// An object without a detection of at least this overlap is unmatched on the frame (0.5).
    pub unmatched_iou: f32,
    /// A detection that overlaps several objects at least this much matches none of them, and an object that several detections
    /// overlap as much matches none of those (`None`: they match). Meta's SAM 3 has 0.8 since March 2026.
    pub ambiguous_iou: Option<f32>,
    /// A detection that matches no object starts one if it has at least this score (0.7).
    pub new_object_threshold: f32,
    /// The maximum number of objects at a time; the detections with the highest scores are preferred (10000).
    pub max_objects: usize,
    /// Number of frames for which results are held back, and objects can be removed as false (15; 0: not at all).
    pub hotstart_frames: usize,
    /// Holds results back during the hotstart (true). If not, frames leave at once, and an object that turns out to be false
    /// has been shown: [`FrameReport::removed`](crate::masklets::FrameReport::removed) names it.
    pub holds_back: bool,
    /// The number of frames that leave together when results are held back (1).
    pub release_frames: usize,
    /// An object is hidden until detections matched it on this many frames in a row; two frames ahead count
    /// when results are held back (0: objects are never hidden for this).
    pub confirmation_frames: usize,
    /// An object that is unmatched on this many frames during its hotstart is removed (8).
    pub hotstart_unmatched: usize,
    /// An object that shares this many detections with an elder object during its hotstart is removed (8).
    pub hotstart_duplicates: usize,
    /// Hides objects that stay unmatched within the hotstart alone (true). If not, the keep-alive counters hide objects.
    pub hide_only_within_hotstart: bool,
    /// The keep-alive counter of a new object (30).
    pub initial_keep_alive: i32,
    /// The largest keep-alive counter (30).
    pub max_keep_alive: i32,
    /// The smallest keep-alive counter (-1).
    pub min_keep_alive: i32,
    /// Decreases the keep-alive counter for an empty mask (false).
    pub empty_decreases_keep_alive: bool,
    /// Of two objects that overlap at least this much, the one that was occluded last is suppressed (0.7; 0: none).
    pub occlusion_iou: f32,
    /// Objects are prompted with their detections on frames that are multiples of this (16; 0: never).
    pub recondition_frames: usize,
    /// The least score of a detection that reconditions an object (0.8).
    pub recondition_score: f32,
    /// The least overlap of a detection that reconditions an object (0.8).
    pub recondition_iou: f32,
    /// An object is reconditioned if its object score, a logit, is above this (0.8).
    pub recondition_object_score: f32,
    /// The largest hole that is filled and speck that is cleared, in pixels of the network's masks (16; 0: none).
    pub fill_hole_area: usize,
    /// An object that keeps less than this share of its mask against the others leaves no trace in memory (0.3).
    pub shrink_ratio: f32,
    /// Chooses memories and conditioning frames for each object (false: for all objects together that were born on one frame).
    /// SAM 3 alone.
    pub chooses_for_each: bool,
    /// Makes the frame on which an object joins a bucket a conditioning frame, which is read for ever (false: its memory is
    /// read on the next `memory_frames`). SAM 3.1 alone.
    pub births_condition: bool,
    /// Memories of frames that are no conditioning frames (6).
    pub memory_frames: usize,
    /// Memories of conditioning frames, at least 2 (4).
    pub conditioning_frames: usize,
    /// Object pointers, the current frame's included: at most this many less 1 come from other than conditioning frames (16).
    pub pointer_frames: usize,
    /// Frames whose memory score is at most this are not read (0.01). `None`: the latest frames are read, without selection.
    pub memory_score_threshold: Option<f32>,
    /// A click makes the detector's conditioning frames of the object that are at most this far away ordinary frames (16).
    pub click_window: usize,
    /// The maximum number of clicks at a time, the first half and the last half of more (16).
    pub max_points: usize,
}

impl Default for MaskletOptions {
    fn default() -> Self {
        Self {
            life_cycle: LifeCycle::Sam3,
            patch_grid: 72,
            detection_threshold: 0.5,
            detection_nms_iou: 0.1,
            border: 0.0,
            match_iou: 0.1,
            unmatched_iou: 0.5,
            ambiguous_iou: None,
            new_object_threshold: 0.7,
            max_objects: 10_000,
            hotstart_frames: 15,
            holds_back: true,
            release_frames: 1,
            confirmation_frames: 0,
            hotstart_unmatched: 8,
            hotstart_duplicates: 8,
            hide_only_within_hotstart: true,
            initial_keep_alive: 30,
            max_keep_alive: 30,
            min_keep_alive: -1,
            empty_decreases_keep_alive: false,
            occlusion_iou: 0.7,
            recondition_frames: 16,
            recondition_score: 0.8,
            recondition_iou: 0.8,
            recondition_object_score: 0.8,
            fill_hole_area: 16,
            shrink_ratio: 0.3,
            chooses_for_each: false,
            births_condition: false,
            memory_frames: 6,
            conditioning_frames: 4,
            pointer_frames: 16,
            memory_score_threshold: Some(0.01),
            click_window: 16,
            max_points: 16,
        }
    }
}

impl MaskletOptions {
    /// The same without hotstart, confirmation, reconditioning and memory selection: `apply_temporal_disambiguation=False` of
    /// Meta's predictors. Results leave at once, and no object is removed.
    #[must_use]
    pub fn without_temporal_disambiguation(self) -> Self {
        Self {
            hotstart_frames: 0,
            hotstart_unmatched: 0,
            hotstart_duplicates: 0,
            release_frames: 1,
            confirmation_frames: 0,
            recondition_frames: 0,
            memory_score_threshold: None,
            ..self
        }
    }

    /// The same with what users set: a score in place of both thresholds, [of detections](Self::detection_threshold) and [of new
    /// objects](Self::new_object_threshold); whether results are [held back](Self::holds_back); the most
    /// [objects](Self::max_objects).
    #[must_use]
    pub fn with_settings(
        self,
        confidence: Option<f32>,
        holds_back: bool,
        max_objects: Option<usize>,
    ) -> Self {
        Self {
            detection_threshold: confidence.unwrap_or(self.detection_threshold),
            new_object_threshold: confidence.unwrap_or(self.new_object_threshold),
            holds_back,
            max_objects: max_objects.unwrap_or(self.max_objects),
            ..self
        }
    }

    /// The defaults of SAM 3.1, whose objects share memories.
    pub fn multiplex() -> Self {
        Self {
            life_cycle: LifeCycle::Multiplex,
            detection_threshold: 0.4,
            border: 0.025,
            ambiguous_iou: Some(0.5),
            new_object_threshold: 0.65,
            max_objects: 16,
            release_frames: 16,
            confirmation_frames: 3,
            initial_keep_alive: 0,
            max_keep_alive: 8,
            min_keep_alive: -4,
            recondition_iou: 0.5,
            // A probability of 0.8.
            recondition_object_score: 2.0 * std::f32::consts::LN_2,
            fill_hole_area: 0,
            memory_score_threshold: None,
            click_window: 0,
            ..Self::default()
        }
    }

    /// Checks the range of every option.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) with the option, its value and its range.
    pub fn validate(&self) -> Result<()> {
        let shares = [
            ("detection_threshold", self.detection_threshold),
            ("detection_nms_iou", self.detection_nms_iou),
            ("border", self.border),
            ("match_iou", self.match_iou),
            ("unmatched_iou", self.unmatched_iou),
            ("ambiguous_iou", self.ambiguous_iou.unwrap_or(0.0)),
            ("new_object_threshold", self.new_object_threshold),
            ("occlusion_iou", self.occlusion_iou),
            ("recondition_score", self.recondition_score),
            ("recondition_iou", self.recondition_iou),
            ("shrink_ratio", self.shrink_ratio),
            ("memory_score_threshold", self.memory_score_threshold.unwrap_or(0.0)),
        ];
        shares.into_iter().try_for_each(|(name, value)| Error::check_share(name, value))?;
        if self.recondition_object_score.is_nan() {
            return Err(Error::argument(
                "recondition_object_score",
                self.recondition_object_score,
                "a number",
            ));
        }
        let counts = [
            ("patch_grid", self.patch_grid, 1, 1024),
            ("max_objects", self.max_objects, 1, usize::MAX),
            ("release_frames", self.release_frames, 1, usize::MAX),
            ("memory_frames", self.memory_frames, 1, usize::MAX),
            ("conditioning_frames", self.conditioning_frames, 2, usize::MAX),
            ("pointer_frames", self.pointer_frames, 1, usize::MAX),
            ("max_points", self.max_points, 2, usize::MAX),
        ];
        for (name, value, least, most) in counts {
            if !(least..=most).contains(&value) {
                let range = if most == usize::MAX {
                    format!("at least {least}")
                } else {
                    format!("{least} to {most}")
                };
                return Err(Error::argument(name, value, range));
            }
        }
        if self.min_keep_alive > self.max_keep_alive {
            return Err(Error::argument("min_keep_alive", self.min_keep_alive, "at most max_keep_alive"));
        }
        Ok(())
    }

    /// The side of the network's masks.
    pub fn mask_side(&self) -> usize {
        4 * self.patch_grid
    }

    /// The side of the masks that the memory encoder sees.
    pub fn memory_side(&self) -> usize {
        16 * self.patch_grid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_checked() {
        let cases: [(&str, fn(&mut MaskletOptions)); 9] = [
            ("release_frames is 0: expected at least 1", |options| options.release_frames = 0),
            ("match_iou is 1.5: expected a number from 0 to 1", |options| options.match_iou = 1.5),
            ("shrink_ratio is NaN: expected a number from 0 to 1", |options| options.shrink_ratio = f32::NAN),
            ("memory_score_threshold is -1: expected a number from 0 to 1", |options| {
                options.memory_score_threshold = Some(-1.0);
            }),
            ("recondition_object_score is NaN: expected a number", |options| {
                options.recondition_object_score = f32::NAN;
            }),
            ("patch_grid is 0: expected 1 to 1024", |options| options.patch_grid = 0),
            ("conditioning_frames is 1: expected at least 2", |options| options.conditioning_frames = 1),
            ("max_points is 1: expected at least 2", |options| options.max_points = 1),
            ("min_keep_alive is 31: expected at most max_keep_alive", |options| options.min_keep_alive = 31),
        ];
        for (message, change) in cases {
            let mut options = MaskletOptions::default();
            change(&mut options);
            assert_eq!(options.validate().map_err(|error| error.to_string()), Err(message.to_owned()));
        }
        let defaults = [
            MaskletOptions::default(),
            MaskletOptions::multiplex(),
            MaskletOptions::default().without_temporal_disambiguation(),
            MaskletOptions::multiplex().without_temporal_disambiguation(),
        ];
        for options in defaults {
            assert!(options.validate().is_ok());
        }
    }
}
