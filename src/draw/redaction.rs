//! Makes instances unrecognisable, for privacy.

use std::collections::HashSet;

use image::RgbImage;
use image::imageops::{self, FilterType};
use ocelli_tracking::BoundingBox;

use crate::outcome::FrameOutcome;

/// Boxes are enlarged by this share of their sides, on each side.
const MARGIN: f32 = 0.08;
/// The samples across the longer side of a blurred box. Nothing else of it remains.
const SAMPLES: f32 = 8.0;
/// The smallest distance of two samples in pixels.
const LEAST_BLOCK: u32 = 8;
/// For how many frames that the detector searched for its class a box stays redacted after its instance was last found.
const HOLD: u32 = 5;
/// A box that overlaps with one of the current frame by this IoU is the same instance.
const SAME: f32 = 0.3;

/// The remains of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedactionStyle {
    /// The mean colours of at most eight by eight areas, blended into each other. What is between them cannot be restored.
    Blur,
    /// Black.
    Fill,
}

/// Makes the instances of some classes unrecognisable in the frames of a video: detections and tracks, those that are only
/// predicted included. A box stays redacted for some frames after its instance was last found, and as long as the detector
/// does not search for its class.
#[derive(Clone, Debug)]
pub struct Redaction {
    classes: HashSet<usize>,
    style: RedactionStyle,
    /// For each source, the boxes of earlier frames.
    held: Vec<Vec<RecentBox>>,
}

/// A box of an earlier frame.
#[derive(Clone, Copy, Debug)]
struct RecentBox {
    class: usize,
    bbox: BoundingBox,
    /// The number of frames since it was found, of those that were searched for its class.
    age: u32,
}

impl Redaction {
    /// Redacts the classes with these ids.
    pub fn new(style: RedactionStyle, classes: impl IntoIterator<Item = usize>) -> Self {
        Self { classes: classes.into_iter().collect(), style, held: Vec::new() }
    }

    /// Redacts the instances of a frame in its image.
    pub fn apply(&mut self, image: &mut RgbImage, outcome: &FrameOutcome) {
        let detections = outcome.detections.iter().map(|detection| (detection.class_id, detection.bbox));
        let tracks = outcome.tracks.iter().map(|track| (track.class_id, track.bbox));
        let found: Vec<(usize, BoundingBox)> =
            detections.chain(tracks).filter(|(class, _)| self.classes.contains(class)).collect();
        let number = outcome.source_number();
        if self.held.len() <= number {
            self.held.resize_with(number + 1, Vec::new);
        }
        let held = &mut self.held[number];
        held.iter_mut().for_each(|one| one.age += u32::from(outcome.was_searched_for(one.class)));
        held.retain(|one| one.age <= HOLD && found.iter().all(|(_, new)| new.iou(&one.bbox) < SAME));
        held.extend(found.into_iter().map(|(class, bbox)| RecentBox { class, bbox, age: 0 }));
        for one in &self.held[number] {
            self.redact(image, one.bbox);
        }
    }

    /// Redacts the instances of a single image.
    pub fn apply_to_detections(&self, image: &mut RgbImage, detections: &[crate::Detection]) {
        let wanted = detections.iter().filter(|detection| self.classes.contains(&detection.class_id));
        wanted.for_each(|detection| self.redact(image, detection.bbox));
    }

    fn redact(&self, image: &mut RgbImage, bbox: BoundingBox) {
        let [x1, y1, x2, y2] = bbox.to_xyxy();
        let (across, down) = (MARGIN * (x2 - x1), MARGIN * (y2 - y1));
        let area = BoundingBox::new(
            (x1 - across).floor(),
            (y1 - down).floor(),
            (x2 + across).ceil(),
            (y2 + down).ceil(),
        );
        let area = area.clip_to(image.width() as f32, image.height() as f32);
        let [left, top, right, bottom] = area.to_xyxy().map(|edge| edge as u32);
        if left >= right || top >= bottom {
            return;
        }
        match self.style {
            RedactionStyle::Blur => blur(image, [left, top, right, bottom]),
            RedactionStyle::Fill => {
                for y in top..bottom {
                    (left..right).for_each(|x| image.put_pixel(x, y, image::Rgb([0; 3])));
                }
            }
        }
    }
}

/// Replaces a rectangle by the mean colours of its blocks, blended.
fn blur(image: &mut RgbImage, [left, top, right, bottom]: [u32; 4]) {
    let (width, height) = (right - left, bottom - top);
    let block = ((width.max(height) as f32 / SAMPLES).ceil() as u32).max(LEAST_BLOCK);
    let (columns, rows) = (width.div_ceil(block), height.div_ceil(block));
    let part = imageops::crop_imm(image, left, top, width, height).to_image();
    let reduced = imageops::resize(&part, columns, rows, FilterType::Triangle);
    let blurred = imageops::resize(&reduced, width, height, FilterType::Triangle);
    imageops::replace(image, &blurred, left.into(), top.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detection::Detection;

    fn outcome(boxes: &[(usize, [f32; 4])], detected: bool) -> FrameOutcome {
        let detection = |(class_id, edges): &(usize, [f32; 4])| Detection {
            class_id: *class_id,
            label: "x".into(),
            score: 0.9,
            bbox: BoundingBox::from(*edges),
            mask: None,
        };
        FrameOutcome {
            detections: boxes.iter().map(detection).collect(),
            detected,
            ..FrameOutcome::default()
        }
    }

    /// Stripes of one pixel.
    fn stripes() -> RgbImage {
        RgbImage::from_fn(200, 100, |x, _| image::Rgb([if x % 2 == 0 { 255 } else { 40 }; 3]))
    }

    #[test]
    fn pixels_inside_change_and_others_stay() {
        for style in [RedactionStyle::Blur, RedactionStyle::Fill] {
            let mut redaction = Redaction::new(style, [1]);
            let mut image = stripes();
            redaction.apply(
                &mut image,
                &outcome(&[(1, [50.0, 20.0, 100.0, 70.0]), (0, [150.0, 20.0, 180.0, 70.0])], true),
            );
            let original = stripes();
            for (x, y, pixel) in image.enumerate_pixels() {
                let is_inside = (46..104).contains(&x) && (16..74).contains(&y);
                let is_original = pixel == original.get_pixel(x, y);
                assert_eq!(is_inside, !is_original, "{style:?}: {x}, {y}: {pixel:?}");
            }
            // No stripe remains.
            let levels = (50..100).map(|x| image.get_pixel(x, 40).0[0]);
            let (least, most) = (levels.clone().min().unwrap_or(0), levels.max().unwrap_or(255));
            assert!(most - least < 20, "{style:?}: {least} to {most}");
        }
    }

    #[test]
    fn boxes_stay_redacted_while_nobody_looks_and_for_some_frames() {
        let mut redaction = Redaction::new(RedactionStyle::Fill, [0]);
        let is_redacted = |redaction: &mut Redaction, outcome: &FrameOutcome| {
            let mut image = RgbImage::from_pixel(200, 100, image::Rgb([200; 3]));
            redaction.apply(&mut image, outcome);
            image.get_pixel(60, 40).0 == [0; 3]
        };
        assert!(is_redacted(&mut redaction, &outcome(&[(0, [50.0, 20.0, 100.0, 70.0])], true)));
        for _ in 0..100 {
            assert!(is_redacted(&mut redaction, &outcome(&[], false)));
        }
        // Others were searched for, as with a class budget; or nothing moves.
        let elsewhere = FrameOutcome { searched: vec![false, true], ..outcome(&[], true) };
        let still = FrameOutcome { still: true, ..outcome(&[], false) };
        for (what, outcome) in [("elsewhere", elsewhere), ("still", still)] {
            for frame in 0..20 {
                assert!(is_redacted(&mut redaction, &outcome), "{what}, {frame}");
            }
        }
        for frame in 0..10 {
            assert_eq!(is_redacted(&mut redaction, &outcome(&[], true)), frame < HOLD, "{frame}");
        }
    }
}
