//! `track_features.onnx`: what every object of a frame needs.

use super::Network;
use crate::contract::tensor;
use crate::fold;
use crate::graph::{Dim, Element, Graph, Value};
use crate::model::position::image_positions;

impl<'w> Network<'_, 'w> {
    /// The backbone's last features → the features for memories and masks.
    pub(crate) fn track_features(&self, g: &Graph<'w>) {
        let pixel = self.features(g);
        g.output(tensor::PIXEL, &pixel, &pixel.dims);
        self.memory_features(g, &pixel);
    }

    /// As [`track_features`](Self::track_features), for buckets of objects: also the frame's own part of every layer's queries.
    pub(crate) fn mux_features(&self, g: &Graph<'w>) {
        let pixel = self.features(g);
        let image = g.tokens_of(&pixel);
        g.output(tensor::IMAGE, &image, &image.dims);
        self.memory_features(g, &pixel);
        let layers = self.config().layers;
        g.scope("image_query");
        let name =
            |layer: usize| self.of(&format!("memory_attention.layers.{layer}.image_cross_attn.q_proj"));
        let queries: Vec<Value> = (0..layers).map(|layer| g.linear(&image, &name(layer))).collect();
        let queries = g.concat(&queries, 0, layers);
        g.output(tensor::IMAGE_QUERY, &queries, &queries.dims);
    }

    /// As [`mux_features`](Self::mux_features), for new, corrected and clicked objects.
    pub(crate) fn mux_interactive(&self, g: &Graph<'w>) {
        let pixel = self.features(g);
        let none = g.weight(&self.multiplex().of("no_memory_embedding"));
        let none = g.reshape(&none, &[1, self.width(), 1, 1].map(Dim::from));
        let pixel = g.add(&pixel, &none);
        g.output(tensor::PIXEL, &pixel, &pixel.dims);
    }

    /// The backbone's last features → the outputs for the detail of masks, and the features at the resolution of patches.
    fn features(&self, g: &Graph<'w>) -> Value {
        let (grid, width, hidden) = (self.grid(), self.width(), self.plan.config().vision.hidden);
        let x = g.input(tensor::HIDDEN, Element::F32, &[1, hidden, grid, grid].map(Dim::from));
        let neck = |module| self.neck(module);

        g.scope(format!("{}_neck.0", self.name));
        let fine = g.gelu(&g.convolution_transpose(&x, &neck("0.scale_layers.0")), false);
        let fine = g.upscale_and_project(&fine, &neck("0.scale_layers.2"), &neck("0.proj1"));
        let fine = g.smooth_and_project(&fine, &neck("0.proj2"), &self.of("mask_decoder.conv_s0"));
        g.output(tensor::HIGH_RES[0], &fine, &[1, width / 8, 4 * grid, 4 * grid].map(Dim::from));

        g.scope(format!("{}_neck.1", self.name));
        let middle = g.upscale_and_project(&x, &neck("1.scale_layers.0"), &neck("1.proj1"));
        let middle = g.smooth_and_project(&middle, &neck("1.proj2"), &self.of("mask_decoder.conv_s1"));
        g.output(tensor::HIGH_RES[1], &middle, &[1, width / 4, 2 * grid, 2 * grid].map(Dim::from));

        g.scope(format!("{}_neck.2", self.name));
        g.convolution(&g.convolution(&x, &neck("2.proj1"), 1, 0), &neck("2.proj2"), 1, 1)
    }

    /// The outputs for memories and for the attention to them.
    fn memory_features(&self, g: &Graph<'w>, pixel: &Value) {
        let memory_pixel = g.convolution(pixel, &self.of("memory_encoder.feature_projection"), 1, 0);
        g.output(tensor::MEMORY_PIXEL, &memory_pixel, &pixel.dims);
        let query = self.first_query(g, pixel);
        g.output(tensor::QUERY_0, &query, &query.dims);
    }

    /// The tokens after the first self-attention, which no memory has reached yet.
    fn first_query(&self, g: &Graph<'w>, pixel: &Value) -> Value {
        /// The share of the position in the tokens.
        const POSITION: f32 = 0.1;
        let (grid, width) = (self.grid(), self.width());
        let tokens = g.tokens_of(pixel);
        let positions: Vec<f32> = image_positions(grid, width).iter().map(|v| v * POSITION).collect();
        let positions = g.constant("scaled_positions", &[1, grid * grid, width], &positions);
        let x = g.add(&tokens, &positions);
        self.memory_self_attention(g, &x, 0, &self.memory_rotary(g))
    }
}

impl<'w> Graph<'w> {
    /// A doubling of the sides and the projection of each pixel after it, as one transposed convolution.
    fn upscale_and_project(&self, x: &Value, upscale: &str, project: &str) -> Value {
        let [fan_in, inner] = [0, 1].map(|axis| self.weight_dims(&format!("{upscale}.weight"))[axis]);
        let out = self.weight_dims(&format!("{project}.weight"))[0];
        let (up, to) = (upscale.to_owned(), project.to_owned());
        let weight = self.derived(&format!("{upscale}.projected"), &[fan_in, out, 2, 2], move |weights| {
            fold::project_transposed(weights, &up, &to, [fan_in, inner, out])
        });
        self.conv_transpose2(x, &weight, &self.projected_bias(upscale, project))
    }

    /// A 3 × 3 convolution and the projection of each pixel after it, as one convolution.
    fn smooth_and_project(&self, x: &Value, smooth: &str, project: &str) -> Value {
        let dims = self.weight_dims(&format!("{smooth}.weight"));
        let out = self.weight_dims(&format!("{project}.weight"))[0];
        let (inner, rest) = (dims[0], dims[1..].iter().product());
        let (from, to) = (smooth.to_owned(), project.to_owned());
        let shape = [out, dims[1], dims[2], dims[3]];
        let weight = self.derived(&format!("{smooth}.projected"), &shape, move |weights| {
            let kernel = fold::matrix(weights, &format!("{from}.weight"), rest)?;
            Ok(fold::to_f32(&fold::matrix(weights, &format!("{to}.weight"), inner)?.dot(&kernel)))
        });
        self.conv(x, &weight, Some(&self.projected_bias(smooth, project)), 1, 1)
    }

    /// The bias of a layer after the projection of the next one, with that one's.
    pub(super) fn projected_bias(&self, first: &str, second: &str) -> Value {
        let out = self.weight_dims(&format!("{second}.bias"))[0];
        let (from, to) = (first.to_owned(), second.to_owned());
        self.derived(&format!("{first}.projected_bias"), &[out], move |weights| {
            let columns = weights.shape(&format!("{from}.bias"))[0];
            let bias = fold::matrix(weights, &format!("{from}.bias"), columns)?;
            Ok(fold::to_f32(&fold::linear(weights, &to, &bias)?))
        })
    }
}
