//! A drawn video that costs nothing to read, and how much of what is in it was found.

use ocelli::{Frame, FrameOutcome, Image, Result, Source, SourceInfo};
use ocelli_datasets::scenes::{MovingScene, TruthBox};

/// What counts as found: this much overlap, and the class.
const LEAST_IOU: f32 = 0.5;
/// What has to be found: what is visible to this share.
const LEAST_VISIBLE: f32 = 0.25;

/// The frames of a [`MovingScene`], drawn before anything is measured.
pub struct DrawnVideo {
    info: SourceInfo,
    images: Vec<Image>,
    truth: Vec<Vec<TruthBox>>,
}

impl DrawnVideo {
    /// Draws `frames` frames with pictograms of these names.
    ///
    /// # Errors
    /// As [`MovingScene::new`].
    pub fn new(labels: &[&str], (width, height): (u32, u32), frames: u64, frame_rate: f64) -> Result<Self> {
        let scene = MovingScene::new(1, labels, width, height, frames, frame_rate)?;
        let images = (0..frames).map(|index| scene.image(index)).collect();
        let truth = (0..frames).map(|index| scene.truth(index)).collect();
        Ok(Self { info: scene.info().clone(), images, truth })
    }

    /// The video from its beginning.
    pub fn play(&self) -> impl Source + '_ {
        Player { video: self, next: 0 }
    }

    /// How many of the things visible in a frame there are, of classes below `classes`, and how many of them were
    /// detected, and are being tracked.
    pub fn compare(&self, outcome: &FrameOutcome, classes: usize) -> Found {
        let truth = self.truth.get(outcome.index as usize).into_iter().flatten();
        let mut found = Found::default();
        for thing in truth.filter(|thing| thing.class_id < classes && thing.visible >= LEAST_VISIBLE) {
            let is_it = |class_id: usize, bbox: &ocelli::BoundingBox| {
                class_id == thing.class_id && bbox.iou(&thing.bbox) >= LEAST_IOU
            };
            found.visible += 1;
            found.detected += usize::from(outcome.detections.iter().any(|d| is_it(d.class_id, &d.bbox)));
            found.tracked += usize::from(outcome.tracks.iter().any(|t| is_it(t.class_id, &t.bbox)));
        }
        found
    }
}

/// Counts of things.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Those that are to be found.
    pub visible: usize,
    /// Those that a detection of the frame has.
    pub detected: usize,
    /// Those that a track shown in the frame has.
    pub tracked: usize,
}

impl Found {
    /// Adds another frame's.
    pub fn add(&mut self, other: Self) {
        self.visible += other.visible;
        self.detected += other.detected;
        self.tracked += other.tracked;
    }
}

struct Player<'v> {
    video: &'v DrawnVideo,
    next: usize,
}

impl Source for Player<'_> {
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
