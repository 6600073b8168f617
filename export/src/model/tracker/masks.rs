//! `mask_iou.onnx`: the overlap of masks.

use super::Network;
use super::prompts::MEMORY_PIXELS;
use crate::contract::{dim, tensor};
use crate::graph::{Dim, Element, Graph, Role, Value};

impl<'w> Network<'_, 'w> {
    /// The IoU of each mask of `a` with each of `b`, and the areas of `a` before and after every pixel is given to one mask.
    pub(crate) fn mask_iou(&self, g: &Graph<'w>) {
        g.as_role(Role::Exact, |g| {
            let side = 4 * self.grid();
            let [first, second] = [dim::FIRST, dim::SECOND].map(Dim::Named);
            let [a, b] = [(tensor::A, first), (tensor::B, second)]
                .map(|(name, count)| g.input(name, Element::F32, &[count, side.into(), side.into()]));
            let [inside_a, inside_b] = [&a, &b].map(|masks| {
                let inside = g.cast(&g.is_above(masks, 0.0), Element::F32);
                g.reshape(&inside, &[masks.dims[0], (side * side).into()])
            });
            let shared = g.matmul(&inside_a, &g.transpose(&inside_b, &[1, 0]));
            let [area, area_b] = [&inside_a, &inside_b].map(|inside| g.sum(inside, 1));
            let area_b = g.reshape(&area_b, &[1.into(), second]);
            let joined = g.sub(&g.add(&area, &area_b), &shared);
            let iou = g.div(&shared, &g.clip(&joined, Some(1.0), None));
            let area = g.reshape(&area, &[first]);
            g.output(tensor::IOU, &iou, &[first, second]);
            g.output(tensor::AREA, &area, &[first]);
            if !self.is_sam3() {
                // SAM 3.1 associates by the share of the smaller mask.
                let area_b = g.reshape(&area_b, &[second]);
                g.output(tensor::SHARED, &shared, &[first, second]);
                g.output(tensor::AREA_B, &area_b, &[second]);
            }
            let (_, pixels) = self.exclusive_pixels(g, &a);
            for (name, pixels) in [tensor::AREA_BEFORE, tensor::AREA_AFTER].into_iter().zip(pixels) {
                let area = area_of(g, &pixels);
                g.output(name, &area, &[first]);
            }
        });
    }

    /// Masks in the detail of memories `[n, 1, 16P, 16P]`, and which of its pixels each has before and after every pixel is
    /// left to one mask `[n, 16P·16P]`, the first of equal logits: they decide whether an object keeps its mask.
    pub(super) fn exclusive_pixels(&self, g: &Graph<'w>, masks: &Value) -> (Value, [Value; 2]) {
        let (count, side, fine) = (masks.dims[0], 4 * self.grid(), MEMORY_PIXELS * self.grid());
        let map = g.enlarge(&g.reshape(masks, &[count, 1.into(), side.into(), side.into()]), fine);
        let flat = g.reshape(&map, &[count, (fine * fine).into()]);
        let inside = g.is_above(&flat, 0.0);
        let wins = wins_pixels(g, &flat);
        let kept = g.both("And", &inside, &wins);
        (map, [inside, kept])
    }
}

/// `true` where a mask of `[n, pixels]` has a pixel's largest logit, the first of equals.
pub(super) fn wins_pixels(g: &Graph<'_>, flat: &Value) -> Value {
    let index = g.range(&g.size_of(flat, 0), flat.dims[0]);
    let index = g.reshape(&g.cast(&index, Element::F32), &[flat.dims[0], 1.into()]);
    g.is_first_largest(flat, 0, &index)
}

/// The number of pixels of each mask: `[n]`.
pub(super) fn area_of(g: &Graph<'_>, pixels: &Value) -> Value {
    let pixels = g.cast(pixels, Element::F32);
    g.reshape(&g.sum(&pixels, 1), &[pixels.dims[0]])
}
