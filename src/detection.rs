//! What the detector says: one thing, where it is, and how sure it is.

use std::sync::Arc;

use ocelli_tracking::BoundingBox;

use crate::mask::Mask;
use crate::postprocess::Candidate;

/// One thing that was found in an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Detection {
    /// Which of the prompts it belongs to, from 0 in the order they were given.
    pub class_id: usize,
    /// The prompt's words; shared, so that a thousand detections of one class hold one copy.
    pub label: Arc<str>,
    /// How sure the detector is, 0 to 1: the query's score times its class's presence in the image.
    pub score: f32,
    /// Where it is, in pixels of the original image, inside it.
    pub bbox: BoundingBox,
    /// Which pixels it covers, where masks were asked for; as large as the original image.
    pub mask: Option<Mask>,
}

impl Detection {
    /// A detection without a mask, from a kept query and its class's label.
    pub fn from_candidate(candidate: &Candidate, label: Arc<str>) -> Self {
        Self { class_id: candidate.class_id, label, score: candidate.score, bbox: candidate.bbox, mask: None }
    }
}
