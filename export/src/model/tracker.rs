//! The memory trackers, which follow objects through a video by their memories: `tracker/` of SAM 3, and `multiplex/` of
//! SAM 3.1, where sixteen objects share the memories of a bucket.
//!
//! [`features`] is computed once for a frame, everything else for several objects together. Three savings are exact: the
//! neck's projections are folded into the neighbouring convolutions; what does not depend on the object is computed once
//! for all; attention mixes SAM 3's narrow memories themselves, and projects the mixture.

mod attention;
mod buckets;
mod decoder;
mod features;
mod masks;
mod memory;
mod planes;
mod prompts;

use std::ops::Deref;

use super::Plan;
use crate::config::TrackerConfig;
use crate::contract::{dim, tensor};
use crate::graph::{Dim, Element, Graph, Value};

/// The epsilon of norms over the channels of a map.
const MAP_EPS: f32 = 1e-6;
/// B, objects.
const OBJECTS: Dim = Dim::Named(dim::OBJECTS);
/// B, buckets of objects.
const BUCKETS: Dim = Dim::Named(dim::BUCKETS);

/// A tracker's network: its tensors are named `NAME_model.…` and `NAME_neck.…`.
#[derive(Clone, Copy)]
pub(crate) struct Network<'p, 'w> {
    plan: &'p Plan<'w>,
    name: &'static str,
}

impl<'w> Deref for Network<'_, 'w> {
    type Target = Plan<'w>;

    fn deref(&self) -> &Plan<'w> {
        self.plan
    }
}

impl<'w> Plan<'w> {
    /// SAM 3's tracker.
    pub(crate) fn tracker(&self) -> Network<'_, 'w> {
        Network { plan: self, name: "tracker" }
    }

    /// SAM 3.1's tracker of buckets of objects.
    pub(crate) fn multiplex(&self) -> Network<'_, 'w> {
        Network { plan: self, name: "multiplex" }
    }

    /// The head of SAM 3.1 for new, corrected and clicked objects, one by one.
    pub(crate) fn interactive(&self) -> Network<'_, 'w> {
        Network { plan: self, name: "interactive" }
    }

    /// `[batch, P·P, D]` → `[batch, D, P, P]`.
    pub(super) fn map_of(&self, g: &Graph<'w>, tokens: &Value) -> Value {
        let side = Dim::from(self.grid());
        let flat = g.transpose(tokens, &[0, 2, 1]);
        g.reshape(&flat, &[tokens.dims[0], flat.dims[1], side, side])
    }
}

impl<'w> Network<'_, 'w> {
    /// The name of a tensor or a module of the model.
    fn of(&self, module: &str) -> String {
        format!("{}_model.{module}", self.name)
    }

    /// The name of a module of the neck.
    fn neck(&self, module: &str) -> String {
        format!("{}_neck.fpn_layers.{module}", self.name)
    }

    /// `true` if it is SAM 3's; SAM 3.1's differ in details.
    fn is_sam3(&self) -> bool {
        self.config().slots.is_none()
    }

    fn config(&self) -> &'w TrackerConfig {
        self.plan.config().tracker.as_ref().expect("tracker graphs are built for checkpoints that have one")
    }

    /// D.
    fn width(&self) -> usize {
        self.plan.config().width
    }

    /// A head, `proj_in`, `layers.0` and `proj_out` with ReLU between them, in a scope that its input is made in, too.
    fn head_of(&self, g: &Graph<'w>, module: &str, input: impl FnOnce() -> Value) -> Value {
        let name = self.of(module);
        g.scope(&name);
        g.layers_in_turn(&input(), ["proj_in", "layers.0", "proj_out"].map(|layer| format!("{name}.{layer}")))
    }

    /// The features of the frame: `[1, D, P, P]`.
    fn pixel_input(&self, g: &Graph<'w>, name: &str) -> Value {
        let (width, side) = (self.width(), self.grid());
        g.input(name, Element::F32, &[1, width, side, side].map(Dim::from))
    }

    /// The finer features of the frame: `[1, D/8, 4P, 4P]` and `[1, D/4, 2P, 2P]`.
    fn high_res_inputs(&self, g: &Graph<'w>) -> [Value; 2] {
        let (width, side) = (self.width(), self.grid());
        [(tensor::HIGH_RES[0], 8, 4), (tensor::HIGH_RES[1], 4, 2)].map(|(name, narrow, fine)| {
            g.input(name, Element::F32, &[1, width / narrow, fine * side, fine * side].map(Dim::from))
        })
    }
}

impl Graph<'_> {
    /// A convolution of single pixels of `[batch, channels, h, w]`, as tokens: `[batch, h·w, D]`.
    ///
    /// Written as a product: OpenVINO 2026.4 adds one map to the results of a convolution for several objects in place, which
    /// fails.
    fn pixel_projection(&self, x: &Value, name: &str) -> Value {
        self.linear(&self.tokens_of(x), name)
    }

    /// A norm over the channels of a map, of the checkpoint.
    fn map_norm(&self, x: &Value, name: &str) -> Value {
        let [scale, bias] = self.weight_and_bias(name);
        self.channel_norm(x, &scale, &bias, MAP_EPS)
    }
}
