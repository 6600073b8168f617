//! The results of a tracker.

use std::sync::Arc;

use ocelli_tracking::masklets::{BitMask, ShownFrame};
use ocelli_tracking::{BoundingBox, Track, TrackState};

use crate::detection::Detection;
use crate::mask::Mask;
use crate::outcome::FrameOutcome;
use ocelli_error::{Error, Result, refuse};

/// An object of a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackedObject {
    /// The identity, the same in all frames and never used again. With one class objects are counted from 0 in the order in
    /// which they appear, those that are removed as false included; with C classes the objects of class c have the ids c,
    /// c + C, c + 2·C, ….
    pub id: u64,
    /// The index of the prompt.
    pub class_id: usize,
    /// The score of the detection that started the object, 0 to 1; 1 if it was clicked.
    pub score: f32,
    /// Around the mask, before pixels were left to other objects; in pixels of the video.
    pub bbox: BoundingBox,
    /// The pixels, which no other object of the class has; as large as the video.
    pub mask: Mask,
}

/// A frame with its objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrackedFrame {
    /// The number of the frame, from 0.
    pub frame: usize,
    /// By class, then by id.
    pub objects: Vec<TrackedObject>,
    /// The ids of objects that turned out to be false and are not shown from this frame on. Where every frame is searched and frames are
    /// [held back](ocelli_tracking::masklets::MaskletOptions::holds_back), no frame has shown them.
    pub retracted: Vec<u64>,
}

impl TrackedFrame {
    /// The results as the [sinks](crate::sink) take them: a [detection](FrameOutcome::detections) with a mask for each object, and a
    /// [track](FrameOutcome::tracks) with its identity, counted from 1. `labels` are those of the classes; `size` is that of the
    /// video in pixels.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a class has no label.
    pub fn into_outcome(self, labels: Arc<[Arc<str>]>, size: (u32, u32)) -> Result<FrameOutcome> {
        let mut outcome = FrameOutcome {
            index: self.frame as u64,
            size,
            detected: true,
            labels,
            ..FrameOutcome::default()
        };
        self.add_to(&mut outcome, |_| (0, 1))?;
        Ok(outcome)
    }

    /// Adds the objects to an outcome with labels. `seen` returns the frames since an object's first one, and the number of frames
    /// that have shown it.
    pub(crate) fn add_to(
        self,
        outcome: &mut FrameOutcome,
        mut seen: impl FnMut(u64) -> (usize, u32),
    ) -> Result<()> {
        outcome.retracted = self.retracted.iter().map(|id| id + 1).collect();
        for (index, object) in self.objects.into_iter().enumerate() {
            let TrackedObject { id, class_id, score, bbox, mask } = object;
            let label = outcome.labels.get(class_id).cloned().ok_or_else(|| {
                Error::invalid_argument(format!("object {id}: class {class_id} has no label"))
            })?;
            let (age, hits) = seen(id);
            outcome.tracks.push(Track {
                id: id + 1,
                class_id,
                score,
                bbox,
                age_frames: age as f32,
                hits,
                state: TrackState::Tracked,
                detection: Some(index),
                ..Track::default()
            });
            outcome.detections.push(Detection { class_id, label, score, bbox, mask: Some(mask) });
        }
        outcome.tracks.sort_by_key(|track| track.id);
        Ok(())
    }
}

/// Joins what the sessions of all classes show of one frame.
pub(super) fn join(shown: Vec<ShownFrame>) -> Result<TrackedFrame> {
    let classes = shown.len();
    let frame = shown.first().map_or(0, |shown| shown.frame);
    let mut objects = Vec::new();
    for (class_id, shown) in shown.into_iter().enumerate() {
        if shown.frame != frame {
            let message = format!("class {class_id} shows frame {}, class 0 frame {frame}", shown.frame);
            return Err(Error::mismatch(message));
        }
        for object in shown.objects {
            let (width, height) = (object.mask.width() as f32, object.mask.height() as f32);
            let bbox = BoundingBox::from_ltwh(object.bbox).scaled(width, height);
            let id = u64::from(object.id) * classes as u64 + class_id as u64;
            let mask = to_mask(&object.mask)?;
            objects.push(TrackedObject { id, class_id, score: object.score, bbox, mask });
        }
    }
    Ok(TrackedFrame { frame, objects, retracted: Vec::new() })
}

fn to_mask(mask: &BitMask) -> Result<Mask> {
    let (width, height) = (mask.width(), mask.height());
    let (Ok(w), Ok(h), Ok(_)) = (width.try_into(), height.try_into(), u32::try_from(width * height)) else {
        refuse!("a mask of {width} × {height} pixels is too large");
    };
    Mask::from_run_lengths(&mask.column_runs(), w, h)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_tracking::masklets::ShownObject;

    fn shown(frame: usize, ids: &[u32]) -> ShownFrame {
        let object = |&id: &u32| ShownObject {
            id,
            score: 0.5,
            bbox: [0.25, 0.5, 0.5, 0.5],
            mask: BitMask::from_fn(4, 2, |x, y| y == 1 && (1..3).contains(&x)),
        };
        ShownFrame { frame, objects: ids.iter().map(object).collect() }
    }

    #[test]
    fn ids_of_several_classes_are_distinct() {
        let joined = join(vec![shown(3, &[0, 2]), shown(3, &[0]), shown(3, &[])]).expect("one frame");
        let ids: Vec<_> = joined.objects.iter().map(|object| (object.id, object.class_id)).collect();
        assert_eq!((joined.frame, ids), (3, vec![(0, 0), (6, 0), (1, 1)]));
        let object = &joined.objects[0];
        assert_eq!(object.bbox, BoundingBox::new(1.0, 1.0, 3.0, 2.0));
        assert_eq!(object.mask.to_bitmap(), [0, 0, 0, 0, 0, 1, 1, 0]);
        let alone = join(vec![shown(0, &[4])]).expect("one frame");
        assert_eq!(alone.objects[0].id, 4, "one class keeps the session's ids");
        assert!(join(vec![shown(3, &[]), shown(4, &[])]).is_err());
    }
}
