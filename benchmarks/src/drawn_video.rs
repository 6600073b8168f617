//! A drawn video in memory, and the recall of detections and tracks in it.

use std::sync::Arc;

use ocelli::{Frame, Image, Result, Sink, Source, pipeline::FrameOutcome, sink::Images, source::SourceInfo};
use ocelli_verify::scenes::{MovingScene, TruthBox};

/// Minimum IoU of a match; the class has to be the same.
const MIN_IOU: f32 = 0.5;
/// Minimum visible share of an instance that counts.
const MIN_VISIBLE: f32 = 0.25;

/// The frames of a [`MovingScene`], drawn in advance.
pub struct DrawnVideo {
    info: SourceInfo,
    images: Vec<Image>,
    truth: Vec<Vec<TruthBox>>,
}

impl DrawnVideo {
    /// Draws `frames` frames with the pictograms `labels`.
    pub fn new(labels: &[&str], (width, height): (u32, u32), frames: u64, frame_rate: f64) -> Result<Self> {
        let scene = MovingScene::new(1, labels, width, height, frames, frame_rate)?;
        let images = (0..frames).map(|index| scene.image(index)).collect();
        let truth = (0..frames).map(|index| scene.truth(index)).collect();
        Ok(Self { info: scene.info().clone(), images, truth })
    }

    /// The video as a source.
    pub fn play(self: &Arc<Self>) -> impl Source + use<> {
        Player { video: self.clone(), next: 0 }
    }

    /// Counts the visible instances of a frame with class ids below `classes`, and how many of them were detected and
    /// tracked.
    pub fn compare(&self, outcome: &FrameOutcome, classes: usize) -> Found {
        let truth = self.truth.get(outcome.index as usize).into_iter().flatten();
        let mut found = Found::default();
        for instance in truth.filter(|one| one.class_id < classes && one.visible >= MIN_VISIBLE) {
            let matches = |class_id: usize, bbox: &ocelli::BoundingBox| {
                class_id == instance.class_id && bbox.iou(&instance.bbox) >= MIN_IOU
            };
            found.visible += 1;
            found.detected += usize::from(outcome.detections.iter().any(|d| matches(d.class_id, &d.bbox)));
            found.tracked += usize::from(outcome.tracks.iter().any(|t| matches(t.class_id, &t.bbox)));
        }
        found
    }
}

/// A sink that discards annotated frames, so that they are drawn.
pub struct Discard;

impl Sink for Discard {
    fn images(&self) -> Images {
        Images::ANNOTATED
    }

    fn write(&mut self, _: &FrameOutcome) -> Result<()> {
        Ok(())
    }
}

/// Counts of instances.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Visible instances.
    pub visible: usize,
    /// Detected instances.
    pub detected: usize,
    /// Tracked instances.
    pub tracked: usize,
}

impl Found {
    /// Adds the counts of another frame.
    pub fn add(&mut self, other: Self) {
        self.visible += other.visible;
        self.detected += other.detected;
        self.tracked += other.tracked;
    }
}

struct Player {
    video: Arc<DrawnVideo>,
    next: usize,
}

impl Source for Player {
    fn info(&self) -> &SourceInfo {
        &self.video.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        let Some(image) = self.video.images.get(self.next) else { return Ok(false) };
        frame.image.reset_rgb8(image.width(), image.height())?.copy_from_slice(image.as_rgb8());
        frame.index = self.next as u64;
        let rate = self.video.info.frame_rate.unwrap_or(30.0);
        frame.time = std::time::Duration::from_secs_f64(self.next as f64 / rate);
        self.next += 1;
        Ok(true)
    }
}
