//! `tracker/`: SAM 3's memory tracker, which follows objects through a video by their memories.
//!
//! [`features`] is computed once for a frame, everything else for several objects together. Three savings are exact: the
//! neck's projections are folded into the neighbouring convolutions; what does not depend on the object is computed once
//! for all; attention mixes the narrow memories themselves, and projects the mixture.

mod attention;
mod decoder;
mod features;
mod masks;
mod memory;
mod prompts;

use super::Plan;
use crate::config::TrackerConfig;
use crate::contract::{dim, tensor};
use crate::graph::{Dim, Element, Graph, Value};
use crate::mixed_precision::{Block, Family};

const ROOT: &str = "tracker_model";
/// The epsilon of norms over the channels of a map.
const MAP_EPS: f32 = 1e-6;
/// B.
const OBJECTS: Dim = Dim::Named(dim::OBJECTS);

impl<'w> Plan<'w> {
    fn tracker_config(&self) -> &'w TrackerConfig {
        self.config().tracker.as_ref().expect("tracker graphs are built for checkpoints that have one")
    }

    fn tracker_graph(&self, name: &str) -> Graph<'w> {
        let mut graph = self.graph(name);
        graph.block(Block::whole(Family::Tracker));
        graph
    }

    /// The features of the frame: `[1, D, P, P]`.
    fn pixel_input(&self, g: &mut Graph<'w>, name: &str) -> Value {
        let (width, side) = (self.config().width, self.grid());
        g.input(name, Element::F32, &[1, width, side, side].map(Dim::from))
    }

    /// The finer features of the frame: `[1, D/8, 4P, 4P]` and `[1, D/4, 2P, 2P]`.
    fn high_res_inputs(&self, g: &mut Graph<'w>) -> [Value; 2] {
        let (width, side) = (self.config().width, self.grid());
        [(tensor::HIGH_RES[0], 8, 4), (tensor::HIGH_RES[1], 4, 2)].map(|(name, narrow, fine)| {
            g.input(name, Element::F32, &[1, width / narrow, fine * side, fine * side].map(Dim::from))
        })
    }

    /// `[batch, P·P, D]` → `[batch, D, P, P]`.
    pub(super) fn map_of(&self, g: &mut Graph<'w>, tokens: &Value) -> Value {
        let side = Dim::from(self.grid());
        let flat = g.transpose(tokens, &[0, 2, 1]);
        g.reshape(&flat, &[tokens.dims[0], flat.dims[1], side, side])
    }
}

impl Graph<'_> {
    /// `proj_in`, `layers.0` and `proj_out` with ReLU between them.
    fn three_layers(&mut self, x: &Value, name: &str) -> Value {
        self.layers_in_turn(x, ["proj_in", "layers.0", "proj_out"].map(|layer| format!("{name}.{layer}")))
    }

    /// A convolution of single pixels of `[batch, channels, h, w]`, as tokens: `[batch, h·w, D]`.
    ///
    /// Written as a product: OpenVINO 2026.4 adds one map to the results of a convolution for several objects in place, which
    /// fails.
    fn pixel_projection(&mut self, x: &Value, name: &str) -> Value {
        let tokens = self.tokens_of(x);
        self.linear(&tokens, name)
    }

    /// A norm over the channels of a map, of the checkpoint.
    fn map_norm(&mut self, x: &Value, name: &str) -> Value {
        let [scale, bias] = self.weight_and_bias(name);
        self.channel_norm(x, &scale, &bias, MAP_EPS)
    }
}
