//! Masks that compete for pixels: each pixel belongs to the mask with the highest logit, the first one on ties.

use crate::masklets::logit_mask::BilinearRows;
use crate::masklets::{BitMask, LogitMask};

/// The foreground of a mask with and without competition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExclusiveArea {
    /// Foreground pixels.
    pub area: usize,
    /// Foreground pixels where no other mask has a higher logit.
    pub exclusive: usize,
}

/// The areas of masks of one size, resized to `side` × `side`.
pub fn exclusive_areas(masks: &[&LogitMask], side: usize) -> Vec<ExclusiveArea> {
    let mut areas = vec![ExclusiveArea { area: 0, exclusive: 0 }; masks.len()];
    for_each_foreground(masks, side, |index, _, _, is_winner| {
        areas[index].area += 1;
        areas[index].exclusive += usize::from(is_winner);
    });
    areas
}

/// The foreground of masks of one size, resized to `side` × `side`, without overlaps.
pub fn exclusive_foreground(masks: &[&LogitMask], side: usize) -> Vec<BitMask> {
    let mut foreground = vec![BitMask::empty(side, side); masks.len()];
    for_each_foreground(masks, side, |index, x, y, is_winner| {
        if is_winner {
            foreground[index].insert(x, y);
        }
    });
    foreground
}

/// The logit of a pixel of a mask prompt in a memory, where it is foreground.
const PROMPT_LOGIT: f32 = 10.0;

/// Masks of prompts as memories are made of them ([`MemoryKind::Prompted`](crate::masklets::MemoryKind)): resized to
/// `image` × `image`, without overlaps, ±10, resized to `side` × `side`.
///
/// Many logits of a resized mask prompt are 0 but for rounding, so that its foreground depends on who computes it.
pub fn prompted_masks(masks: &[&LogitMask], image: usize, side: usize) -> Vec<LogitMask> {
    let foreground = exclusive_foreground(masks, image);
    let signed = |mask: &BitMask| LogitMask::of_foreground(mask, [-PROMPT_LOGIT, PROMPT_LOGIT]);
    foreground.iter().map(|mask| signed(mask).resized(side, side)).collect()
}

/// Calls `visit(mask, x, y, is_winner)` for the foreground of every mask.
fn for_each_foreground(masks: &[&LogitMask], side: usize, mut visit: impl FnMut(usize, usize, usize, bool)) {
    let Some(first) = masks.first() else { return };
    let rows = BilinearRows::new([first.width(), first.height()], [side, side]);
    let spans: Vec<_> = masks.iter().map(|mask| rows.foreground_span(mask)).collect();
    // Beyond its span a mask has no foreground, and does not compete.
    let mut lines = vec![vec![f32::NEG_INFINITY; side]; masks.len()];
    for y in 0..side {
        let span = |index: usize| spans[index].as_ref().filter(|[_, span_y]| span_y.contains(&y));
        let active: Vec<_> =
            (0..masks.len()).filter_map(|index| Some((index, span(index)?[0].clone()))).collect();
        for (index, span_x) in &active {
            rows.row_into(masks[*index], y, span_x.clone(), &mut lines[*index]);
        }
        for (index, span_x) in &active {
            for x in span_x.clone().filter(|&x| lines[*index][x] > 0.0) {
                let own = lines[*index][x];
                let yields = |other: usize| lines[other][x] > own || lines[other][x] == own && other < *index;
                visit(*index, x, y, !active.iter().any(|&(other, _)| yields(other)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(values: [f32; 4]) -> LogitMask {
        LogitMask::new(4, 4, values.repeat(4)).expect("16 logits")
    }

    #[test]
    fn the_highest_logit_takes_a_pixel_and_the_first_mask_takes_ties() {
        let (a, b, c) = (columns([3.0, 3.0, 1.0, -1.0]), columns([3.0, 4.0, 2.0, -2.0]), columns([-1.0; 4]));
        let areas = exclusive_areas(&[&a, &b, &c], 4);
        let pairs: Vec<_> = areas.iter().map(|area| (area.area, area.exclusive)).collect();
        assert_eq!(pairs, [(12, 4), (12, 8), (0, 0)]);
        let masks = exclusive_foreground(&[&a, &b, &c], 4);
        assert_eq!(masks[0], BitMask::from_fn(4, 4, |x, _| x == 0));
        assert_eq!(masks[1], BitMask::from_fn(4, 4, |x, _| x == 1 || x == 2));
        assert!(masks[2].is_empty());
    }

    #[test]
    fn prompts_in_memories_have_two_logits_and_a_border() {
        let (a, b) = (columns([3.0, 3.0, -3.0, -3.0]), columns([-5.0, 4.0, 2.0, -9.0]));
        let alone = prompted_masks(&[&a], 4, 8);
        let row = [10.0, 10.0, 10.0, 5.0, -5.0, -10.0, -10.0, -10.0];
        assert_eq!(alone[0].values(), row.repeat(8));
        let both = prompted_masks(&[&a, &b], 4, 4);
        assert_eq!(both[0].values()[..4], [10.0, -10.0, -10.0, -10.0]);
        assert_eq!(both[1].values()[..4], [-10.0, 10.0, 10.0, -10.0]);
        // The resized logits are 3, 0 and −3: 0 is background.
        let tie = LogitMask::new(2, 2, vec![3.0, -3.0, 3.0, -3.0]).expect("4 logits");
        assert_eq!(prompted_masks(&[&tie], 3, 3)[0].values()[..3], [10.0, -10.0, -10.0]);
    }

    #[test]
    fn one_mask_has_no_competitor() {
        let areas = exclusive_areas(&[&columns([1.0, 1.0, -1.0, -1.0])], 8);
        assert_eq!(areas, [ExclusiveArea { area: 32, exclusive: 32 }]);
        assert!(exclusive_areas(&[], 8).is_empty());
    }
}
