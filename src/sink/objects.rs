//! The tracks of a frame that have masks, for formats in which a pixel belongs to one object.

use ocelli_tracking::Track;

use crate::mask::Mask;
use crate::outcome::FrameOutcome;
use ocelli_error::Result;

/// The tracks of a frame with their pixels.
pub(super) struct Objects<'o> {
    /// By id, without those that have no pixel.
    pub(super) tracks: Vec<(&'o Track, Mask)>,
    /// For each pixel, row by row: the id of its track, or 0.
    pub(super) owners: Vec<u64>,
}

/// A pixel that several tracks claim, such as those of several classes, is that of the lowest id.
pub(super) fn objects(outcome: &FrameOutcome) -> Result<Objects<'_>> {
    let (width, height) = outcome.size;
    let with_mask = |track: &'_ Track| {
        let detection = outcome.detections.get(track.detection?)?;
        detection.mask.clone().filter(|mask| (mask.width(), mask.height()) == (width, height))
    };
    let mut claims: Vec<(&Track, Mask)> =
        outcome.tracks.iter().filter_map(|track| Some((track, with_mask(track)?))).collect();
    claims.sort_by_key(|(track, _)| track.id);
    let mut owners = vec![0; width as usize * height as usize];
    let mut tracks = Vec::with_capacity(claims.len());
    for (track, mask) in claims {
        let (mut owned, mut is_whole) = (0u64, true);
        for span in mask.spans() {
            for y in span.top..span.bottom {
                let owner = &mut owners[y as usize * width as usize + span.x as usize];
                if *owner == 0 {
                    *owner = track.id;
                    owned += 1;
                } else {
                    is_whole = false;
                }
            }
        }
        if owned == 0 {
            continue;
        }
        let mask = if is_whole {
            mask
        } else {
            let own: Vec<u8> = owners.iter().map(|&owner| u8::from(owner == track.id)).collect();
            Mask::from_bitmap(&own, width, height)?
        };
        tracks.push((track, mask));
    }
    Ok(Objects { tracks, owners })
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use ocelli_tracking::{BoundingBox, TrackState};

    use super::*;
    use crate::detection::Detection;
    use crate::image::Image;

    /// A frame of 6 × 4 pixels with tracks of ids, classes, and boxes that are their masks.
    pub fn frame(index: u64, tracks: &[(u64, usize, [u32; 4])]) -> FrameOutcome {
        let labels: Arc<[Arc<str>]> = Arc::from([Arc::from("dog"), Arc::from("red car")]);
        let mut outcome =
            FrameOutcome { index, size: (6, 4), labels: labels.clone(), ..FrameOutcome::default() };
        for (place, &(id, class_id, [left, top, right, bottom])) in tracks.iter().enumerate() {
            let inside = |at: u32| (left..right).contains(&(at % 6)) && (top..bottom).contains(&(at / 6));
            let bitmap: Vec<u8> = (0..24).map(|at| u8::from(inside(at))).collect();
            let bbox = BoundingBox::new(left as f32, top as f32, right as f32, bottom as f32);
            let mask = Some(Mask::from_bitmap(&bitmap, 6, 4).expect("24 pixels"));
            let label = labels[class_id].clone();
            outcome.detections.push(Detection { class_id, label, score: 0.5, bbox, mask });
            outcome.tracks.push(Track {
                id,
                class_id,
                score: 0.5,
                bbox,
                age_frames: 1.0,
                hits: 1,
                state: TrackState::Tracked,
                velocity: [0.0; 2],
                frames_since_seen: 0.0,
                detection: Some(place),
            });
        }
        let pixels = (0..72).map(|value| value as u8).collect();
        outcome.clean = Some(Image::from_rgb8(6, 4, pixels).expect("24 pixels"));
        outcome
    }

    #[test]
    fn a_pixel_belongs_to_the_lowest_id() {
        let outcome = frame(0, &[(3, 0, [0, 0, 4, 2]), (2, 1, [2, 0, 6, 2]), (9, 0, [3, 0, 4, 1])]);
        let found = objects(&outcome).expect("the masks have one size");
        let areas: Vec<_> = found.tracks.iter().map(|(track, mask)| (track.id, mask.area())).collect();
        assert_eq!(areas, [(2, 8), (3, 4)], "object 9 has no pixel left");
        assert_eq!(found.owners[..6], [3, 3, 2, 2, 2, 2]);
        let mut lost = frame(0, &[(1, 0, [0, 0, 4, 2])]);
        lost.tracks[0].detection = None;
        assert!(objects(&lost).expect("no masks").tracks.is_empty(), "a lost track has no mask");
    }
}
