//! An instance that a person changed: what is as it was found keeps score, mask and track.

use ocelli::{BoundingBox, Mask};

use crate::label::formats::yolo_line::{self, clipped, is_same};
use crate::label::{Instance, LabelledInstance, Record};

/// An instance as the person wants it: what was not changed keeps its digits, its mask and its score. A mask moves with its
/// box, that of a new box is a rectangle, and what a person drew is certain.
pub(crate) fn changed(record: &Record, wanted: &LabelledInstance, has_masks: bool) -> Instance {
    let size = (record.width, record.height);
    let bbox = clipped(&wanted.bbox, size).to_xyxy();
    let mask_of = |bitmap: Vec<u8>| Mask::from_bitmap(&bitmap, size.0, size.1).ok();
    let before = wanted.line.and_then(|line| record.instances.get(line));
    if let (Some(before), None) = (before, &wanted.mask)
        && is_same(&BoundingBox::from(before.bbox), &wanted.bbox)
    {
        let score = if before.class == wanted.class { before.score } else { 1.0 };
        return Instance { class: wanted.class, score, ..before.clone() };
    }
    let known = before.and_then(|before| Some((record.mask(before)?, before.bbox)));
    let mask = match (&wanted.mask, known) {
        (Some(mask), _) => Some(mask.clone()),
        (None, Some((mask, from))) => mask_of(moved(&mask.to_bitmap(), size, from, bbox)),
        (None, None) => has_masks.then(|| mask_of(moved(&[], size, bbox, bbox))).flatten(),
    };
    let (mask, track) = (mask.map(|mask| mask.counts().to_owned()), before.and_then(|before| before.track));
    Instance { class: wanted.class, score: 1.0, bbox, mask, track }
}

/// The pixels whose middle is in a box; at least one.
fn pixels_in(start: f32, end: f32, side: u32) -> std::ops::Range<u32> {
    let first = ((start - 0.5).ceil().max(0.0) as u32).min(side - 1);
    first..((end - 0.5).ceil().max(0.0) as u32).clamp(first + 1, side)
}

/// A bitmap [y, x] whose part in the box `from` is scaled into the box `to`; without a bitmap, the whole box.
fn moved(bitmap: &[u8], (width, height): (u32, u32), from: [f32; 4], to: [f32; 4]) -> Vec<u8> {
    let mut out = vec![0; width as usize * height as usize];
    let source = |at: u32, axis: usize, side: u32| {
        let place = yolo_line::moved(at as f32 + 0.5, axis, to, from);
        (place.max(0.0) as u32).min(side - 1) as usize
    };
    for y in pixels_in(to[1], to[3], height) {
        let row = source(y, 1, height) * width as usize;
        for x in pixels_in(to[0], to[2], width) {
            let value = bitmap.get(row + source(x, 0, width)).copied().unwrap_or(1);
            out[y as usize * width as usize + x as usize] = value;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_move_with_their_boxes() {
        let size = (6, 4);
        let shape = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let right = moved(&shape, size, [1.0, 1.0, 3.0, 3.0], [3.0, 1.0, 5.0, 3.0]);
        assert_eq!(right, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
        let twice = moved(&shape, size, [1.0, 1.0, 3.0, 3.0], [0.0, 0.0, 4.0, 4.0]);
        assert_eq!(twice, [1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0]);
        let corner = [5.9, 3.9, 6.0, 4.0];
        let tiny = moved(&[], size, corner, corner);
        assert_eq!((tiny.iter().sum::<u8>(), tiny[23]), (1, 1));
    }
}
