//! Drawing into the frames of a video: tracks with their ids and trails.

use std::collections::{BTreeMap, VecDeque};

use image::RgbImage;
use ocelli_tracking::TrackState;

use super::palette::DARK;
use super::{Annotator, Mark, Sizes, track_color};
use crate::outcome::FrameOutcome;
use ocelli_error::Result;
use ocelli_images::canvas::Canvas;

/// Options of an [`Overlay`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverlayOptions {
    /// Draws tracks instead of detections, each in its own colour.
    pub tracks: bool,
    /// Length of the trail behind each track in frames; 0 for none.
    pub trail_frames: u64,
}

/// Draws results into the frames of a video and remembers the trails of tracks.
///
/// The colour of a track depends on its id; its mask is that of its detection. Lost tracks, whose place is predicted, are
/// drawn faintly.
#[derive(Debug)]
pub struct Overlay {
    annotator: Annotator,
    options: OverlayOptions,
    /// By source and track id: frames and centres in pixels.
    trails: BTreeMap<(usize, u64), VecDeque<(u64, [f32; 2])>>,
}

impl Overlay {
    /// An overlay with the style of an annotator.
    pub fn new(annotator: Annotator, options: OverlayOptions) -> Self {
        Self { annotator, options, trails: BTreeMap::new() }
    }

    /// Draws the results of a frame into its image. Frames have to be passed in order.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if a mask does not have the size of the image.
    pub fn draw(&mut self, image: &mut RgbImage, outcome: &FrameOutcome) -> Result<()> {
        if !self.options.tracks {
            return self.annotator.annotate(image, &outcome.detections);
        }
        self.extend_trails(outcome);
        self.draw_trails(image, outcome.source_number());
        let marks = outcome.tracks.iter().map(|track| {
            let label = outcome.labels.get(track.class_id).map_or("", |label| label);
            let detection = track.detection.and_then(|index| outcome.detections.get(index));
            Mark {
                bbox: track.bbox,
                score: track.score,
                label: format!("{} {label}", track.id).into(),
                color: track_color(track.id),
                mask: detection.and_then(|detection| detection.mask.as_ref()),
                opacity: if track.state == TrackState::Lost { 0.45 } else { 1.0 },
            }
        });
        self.annotator.draw_marks(image, marks.collect())
    }

    fn extend_trails(&mut self, outcome: &FrameOutcome) {
        if self.options.trail_frames == 0 {
            return;
        }
        let source = outcome.source_number();
        for track in &outcome.tracks {
            let [x1, y1, x2, y2] = track.bbox.to_xyxy();
            let centre = [0.5 * (x1 + x2), 0.5 * (y1 + y2)];
            self.trails.entry((source, track.id)).or_default().push_back((outcome.index, centre));
        }
        let oldest = outcome.index.saturating_sub(self.options.trail_frames);
        self.trails.retain(|(of, _), trail| {
            if *of != source {
                return true;
            }
            while trail.front().is_some_and(|(frame, _)| *frame < oldest) {
                trail.pop_front();
            }
            !trail.is_empty()
        });
    }

    fn draw_trails(&self, image: &mut RgbImage, source: usize) {
        let (width, height) = image.dimensions();
        let sizes = Sizes::of(&self.annotator.style, width, height);
        let mut canvas = Canvas::new(image);
        let of_source = self.trails.range((source, 0)..=(source, u64::MAX));
        for ((_, id), trail) in of_source.filter(|(_, trail)| trail.len() > 1) {
            let points: Vec<[f32; 2]> = trail.iter().map(|(_, centre)| *centre).collect();
            canvas.stroke_line(&points, sizes.line + 2.0 * sizes.casing, DARK, 0.35);
            canvas.stroke_line(&points, sizes.line, track_color(*id), 0.9);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ocelli_tracking::{BoundingBox, Track};

    use super::*;

    fn outcome(index: u64, ids: &[u64]) -> FrameOutcome {
        let track = |id: u64| {
            let (x, y) = (10.0 * index as f32, 60.0 * id as f32);
            Track {
                id,
                class_id: 0,
                score: 0.9,
                bbox: BoundingBox::new(x, y, x + 30.0, y + 30.0),
                age_frames: index as f32,
                hits: 1,
                state: TrackState::Tracked,
                velocity: [10.0, 0.0],
                frames_since_seen: 0.0,
                detection: None,
            }
        };
        let tracks = ids.iter().map(|id| track(*id)).collect();
        FrameOutcome { index, tracks, labels: Arc::from([Arc::from("dog")]), ..FrameOutcome::default() }
    }

    #[test]
    fn a_track_has_one_colour_and_a_trail_of_limited_length() {
        let options = OverlayOptions { tracks: true, trail_frames: 3 };
        let mut overlay = Overlay::new(Annotator::new(), options);
        let mut last = RgbImage::new(1, 1);
        for index in 0..20 {
            last = RgbImage::from_pixel(400, 300, image::Rgb([90; 3]));
            let ids: &[u64] = if index < 10 { &[1, 3] } else { &[1] };
            overlay.draw(&mut last, &outcome(index, ids)).expect("there is no mask");
        }
        assert_eq!(overlay.trails.keys().collect::<Vec<_>>(), [&(0, 1)], "the other was not seen for long");
        assert_eq!(overlay.trails[&(0, 1)].len(), 4);
        // The box's lower edge, the trail behind it, and nothing where it was before that.
        assert_eq!(last.get_pixel(205, 90).0, track_color(1));
        assert_ne!(last.get_pixel(180, 75).0, [90; 3]);
        assert_eq!(last.get_pixel(150, 75).0, [90; 3]);
    }

    #[test]
    fn the_colour_of_an_id_never_changes() {
        assert_eq!(track_color(1), track_color(1));
        assert!((1..200).all(|id| track_color(id) != track_color(id + 1)));
        track_color(u64::MAX);
    }
}
