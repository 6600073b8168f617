//! `mask_iou.onnx`: the overlap of masks.

use super::Plan;
use super::prompts::MEMORY_PIXELS;
use crate::contract::{dim, tensor};
use crate::graph::{Dim, Element, Graph, Role, Value};

impl<'w> Plan<'w> {
    /// The IoU of each mask of `a` with each of `b`, and the areas of `a` before and after every pixel is given to one mask.
    pub(crate) fn mask_iou(&self) -> Graph<'w> {
        let mut graph = self.tracker_graph("mask_iou");
        graph.as_role(Role::Exact, |g| self.add_mask_iou(g));
        graph
    }

    fn add_mask_iou(&self, g: &mut Graph<'w>) {
        let side = 4 * self.grid();
        let [first, second] = [dim::FIRST, dim::SECOND].map(Dim::Named);
        let [a, b] = [(tensor::A, first), (tensor::B, second)]
            .map(|(name, count)| g.input(name, Element::F32, &[count, side.into(), side.into()]));
        let [inside_a, inside_b] = [&a, &b].map(|masks| {
            let inside = g.is_above(masks, 0.0);
            let inside = g.cast(&inside, Element::F32);
            g.reshape(&inside, &[masks.dims[0], (side * side).into()])
        });
        let other = g.transpose(&inside_b, &[1, 0]);
        let shared = g.matmul(&inside_a, &other);
        let [area, area_b] = [&inside_a, &inside_b].map(|inside| g.sum(inside, 1));
        let area_b = g.reshape(&area_b, &[1.into(), second]);
        let joined = g.add(&area, &area_b);
        let joined = g.sub(&joined, &shared);
        let joined = g.clip(&joined, Some(1.0), None);
        let iou = g.div(&shared, &joined);
        let area = g.reshape(&area, &[first]);
        g.output(tensor::IOU, &iou, &[first, second]);
        g.output(tensor::AREA, &area, &[first]);
        self.exclusive_areas(g, &a);
    }

    /// The areas in the detail of memories, whose pixels decide whether an object keeps its mask; the first of equal logits
    /// wins a pixel.
    fn exclusive_areas(&self, g: &mut Graph<'w>, masks: &Value) {
        let (count, side, fine) = (masks.dims[0], 4 * self.grid(), MEMORY_PIXELS * self.grid());
        let map = g.reshape(masks, &[count, 1.into(), side.into(), side.into()]);
        let map = g.enlarge(&map, fine);
        let flat = g.reshape(&map, &[count, (fine * fine).into()]);
        let inside = g.is_above(&flat, 0.0);
        let size = g.size_of(masks, 0);
        let index = g.range(&size, count);
        let index = g.cast(&index, Element::F32);
        let index = g.reshape(&index, &[count, 1.into()]);
        let wins = g.is_first_largest(&flat, 0, &index);
        let kept = g.both("And", &inside, &wins);
        for (name, pixels) in [(tensor::AREA_BEFORE, inside), (tensor::AREA_AFTER, kept)] {
            let pixels = g.cast(&pixels, Element::F32);
            let area = g.sum(&pixels, 1);
            let area = g.reshape(&area, &[count]);
            g.output(name, &area, &[count]);
        }
    }
}
