//! Objects from prompts: a mask (`track_init.onnx`), or points and a mask (`track_points.onnx`).

use std::f64::consts::TAU;

use super::decoder::Decoded;
use super::{Network, OBJECTS};
use crate::contract::{dim, tensor};
use crate::graph::{Dim, Element, Graph, Role, Value};

/// Pixels of the decoder's mask prompt for each patch side.
const PROMPT_PIXELS: usize = 4;
/// Pixels of a memory's mask for each patch side.
pub(super) const MEMORY_PIXELS: usize = 16;
/// A mask is stable if its area hardly changes between these logits.
const STABILITY_LOGIT: f32 = 0.05;
const STABILITY: f32 = 0.98;

impl<'w> Network<'_, 'w> {
    /// Masks → pointers of new objects.
    pub(crate) fn track_init(&self, g: &Graph<'w>) {
        let (exists, [_, seen], decoded) = self.decode_masks(g);
        let present = g.both("And", &exists, &seen);
        let pointer = self.pointer(g, &self.first_token(g, &decoded), &present);
        let [sure, none] = [10.0, -10.0].map(|score| g.scalar(score));
        let score = g.choose(&exists, &sure, &none);
        g.output(tensor::POINTER, &pointer, &[OBJECTS, self.width().into()]);
        g.output(tensor::OBJECT_SCORE, &score, &[OBJECTS]);
    }

    /// As [`track_init`](Self::track_init), with the decoder's own score; an object that the decoder does not see, and one
    /// without a mask, have their pointer projected once more, and both of them twice.
    pub(crate) fn mux_init(&self, g: &Graph<'w>) {
        let (exists, [score, seen], decoded) = self.decode_masks(g);
        let pointer = self.pointer(g, &self.first_token(g, &decoded), &seen);
        let pointer = self.pointer_if(g, &exists, &pointer);
        g.output(tensor::POINTER, &pointer, &[OBJECTS, self.width().into()]);
        g.output(tensor::DECODER_SCORE, &score, &[OBJECTS]);
    }

    /// The masks that are not empty, `[B]`; the scores of their objects and those that are seen, `[B]`; and the decoder's output.
    fn decode_masks(&self, g: &Graph<'w>) -> (Value, [Value; 2], Decoded) {
        let side = MEMORY_PIXELS * self.grid();
        let pixel = self.pixel_input(g, tensor::PIXEL);
        let masks = g.input(tensor::MASKS, Element::F32, &[OBJECTS, side.into(), side.into()]);

        g.scope(self.of("mask_downsample"));
        let map = g.reshape(&masks, &[OBJECTS, 1.into(), side.into(), side.into()]);
        let prompt = g.convolution(&map, &self.of("mask_downsample"), 4, 0);
        let dense = self.embedded_mask(g, &prompt);
        let image = g.add(&g.tokens_of(&pixel), &dense);
        let decoded = self.decode_objects(g, &image, &self.no_points(g));

        let flat = g.reshape(&masks, &[OBJECTS, (side * side).into()]);
        let largest = g.reshape(&g.reduce("ReduceMax", &flat, 1), &[OBJECTS]);
        let exists = g.is_above(&largest, 0.0);
        let score = self.object_score(g, &decoded);
        let seen = g.is_above(&score, 0.0);
        (exists, [score, seen], decoded)
    }

    /// Points, and maybe the mask so far → masks and pointers.
    pub(crate) fn track_points(&self, g: &Graph<'w>) {
        let side = Dim::from(PROMPT_PIXELS * self.grid());
        let pixel = self.pixel_input(g, tensor::PIXEL);
        let high_res = self.high_res_inputs(g);
        let count = Dim::Named(dim::POINTS);
        let points = g.input(tensor::POINTS, Element::F32, &[OBJECTS, count, 2.into()]);
        let labels = g.input(tensor::LABELS, Element::I64, &[OBJECTS, count]);
        let mask = g.input(tensor::MASK_PROMPT, Element::F32, &[OBJECTS, side, side]);
        let has_mask = g.input(tensor::HAS_MASK, Element::Bool, &[]);

        g.scope("image");
        let mut pixel_tokens = g.tokens_of(&pixel);
        if self.is_sam3() {
            let no_memory = g.weight(&self.of("no_memory_embedding"));
            pixel_tokens = g.add(&pixel_tokens, &no_memory);
        }
        let embedded = self.embedded_mask(g, &g.reshape(&mask, &[OBJECTS, 1.into(), side, side]));
        let dense = g.choose(&has_mask, &embedded, &self.no_mask(g));
        let image = g.add(&pixel_tokens, &dense);

        let decoded = self.decode_objects(g, &image, &self.point_tokens(g, &points, &labels));
        let upscaled = self.upscaled(g, &decoded, &high_res);
        let mut mask = self.best_mask(g, &decoded, &upscaled);
        let first = self.first_mask(g, &decoded, &upscaled);
        g.scope("choice");
        let one = g.integers("one", &[1]);
        let is_ambiguous = g.compare("LessOrEqual", &g.size_of(&labels, 1), &one);
        let is_unstable = self.is_unstable(g, &first.logits);
        // WebGPU has no `Or`.
        let [is_clear, is_stable] = [&is_ambiguous, &is_unstable].map(|it| g.unary("Not", it));
        let takes_best = g.unary("Not", &g.both("And", &is_clear, &is_stable));
        let of_mask = g.reshape(&takes_best, &[OBJECTS, 1.into(), 1.into()]);
        mask.logits = g.choose(&of_mask, &mask.logits, &first.logits);
        mask.iou = g.choose(&takes_best, &mask.iou, &first.iou);
        // The pointer stays with the first mask, stable or not.
        mask.token = g.choose(&is_ambiguous, &mask.token, &first.token);
        self.object_outputs(g, &decoded, &mask);
        self.all_masks(g, &decoded, &upscaled);
    }

    /// `true` where the area of `[B, 4P, 4P]` depends on the threshold: `[B]`.
    fn is_unstable(&self, g: &Graph<'w>, logits: &Value) -> Value {
        let pixels = (PROMPT_PIXELS * self.grid()).pow(2);
        let flat = g.reshape(logits, &[OBJECTS, pixels.into()]);
        g.as_role(Role::Exact, |g| {
            let [small, large] = [STABILITY_LOGIT, -STABILITY_LOGIT].map(|logit| {
                let inside = g.cast(&g.is_above(&flat, logit), Element::F32);
                g.reshape(&g.sum(&inside, 1), &[OBJECTS])
            });
            // An empty mask is stable.
            let share = g.div(&small, &g.clip(&large, Some(1.0), None));
            let changes = g.compare("Less", &share, &g.scalar(STABILITY));
            g.both("And", &changes, &g.is_above(&large, 0.0))
        })
    }

    /// A mask prompt `[B, 1, 4P, 4P]` as features of the image: `[B, P·P, D]`.
    fn embedded_mask(&self, g: &Graph<'w>, mask: &Value) -> Value {
        let name = self.of("prompt_encoder.mask_embed");
        g.scope(&name);
        let mut x = mask.clone();
        for layer in [1, 2] {
            x = g.convolution(&x, &format!("{name}.conv{layer}"), 2, 0);
            x = g.map_norm(&x, &format!("{name}.layer_norm{layer}"));
            x = g.gelu(&x, false);
        }
        g.pixel_projection(&x, &format!("{name}.conv3"))
    }

    /// The stand-in for a mask prompt, `[1, 1, D]`.
    pub(super) fn no_mask(&self, g: &Graph<'w>) -> Value {
        let row = g.weight(&self.of("prompt_encoder.no_mask_embed.weight"));
        g.reshape(&row, &[1, 1, self.width()].map(Dim::from))
    }

    /// The decoder's own tokens, and two that are no points: `[1, 8, D]`.
    pub(super) fn no_points(&self, g: &Graph<'w>) -> Value {
        let none = self.of("prompt_encoder.not_a_point_embed.weight");
        self.token_rows(g, "tokens_without_points", &[&none, &none])
    }

    /// The decoder's own tokens, and more rows of the checkpoint: `[1, tokens, D]`.
    fn token_rows(&self, g: &Graph<'w>, name: &str, more: &[&str]) -> Value {
        let own = ["obj_score_token", "iou_token", "mask_tokens"];
        let own = own.map(|token| self.of(&format!("mask_decoder.{token}.weight")));
        let names: Vec<String> = own.into_iter().chain(more.iter().map(|&name| name.to_owned())).collect();
        let count = names.iter().map(|name| g.weight_dims(name)[0]).sum();
        g.derived(name, &[1, count, self.width()], move |weights| {
            let rows = names.iter().map(|name| weights.read(name)).collect::<Result<Vec<_>, _>>()?;
            Ok(rows.concat())
        })
    }

    /// The decoder's own tokens, those of the points, and one that is no point: `[B, tokens, D]`.
    fn point_tokens(&self, g: &Graph<'w>, points: &Value, labels: &Value) -> Value {
        let width = self.width();
        let count = points.dims[1];
        g.scope(self.of("prompt_encoder"));
        let places = self.encoded_points(g, points);
        let zero = g.integers("zero", &[0]);
        let is_none = g.compare("Less", labels, &zero);
        let index = g.choose(&is_none, &zero, labels);
        let table = self.of("prompt_encoder.point_embed");
        let kinds = g.derived(&table.clone(), &[4, width], move |weights| {
            let row = |label| weights.read(&format!("{table}.{label}.weight"));
            Ok((0..4).map(row).collect::<Result<Vec<_>, _>>()?.concat())
        });
        let tokens = g.add(&places, &g.gather_rows(&kinds, &index));
        let none = g.weight(&self.of("prompt_encoder.not_a_point_embed.weight"));
        let none = g.reshape(&none, &[1, 1, width].map(Dim::from));
        let tokens = g.choose(&g.reshape(&is_none, &[OBJECTS, count, 1.into()]), &none, &tokens);
        let own = self.token_rows(g, "tokens", &[]);
        let [own, last] = [&own, &none].map(|x| g.repeat_for(x, labels));
        g.concat(&[&own, &tokens, &last], 1, Dim::Named(dim::POINT_TOKENS))
    }

    /// Points in pixels as random Fourier features: `[B, K, D]`.
    fn encoded_points(&self, g: &Graph<'w>, points: &Value) -> Value {
        let (side, width) = (self.imgsz as f32, self.width());
        g.as_role(Role::Exact, |g| {
            let centred = g.add(points, &g.scalar(0.5));
            let scaled = g.scale(&centred, 2.0 / side);
            let scaled = g.sub(&scaled, &g.scalar(1.0));
            let matrix = g.weight(&self.of("prompt_encoder.shared_embedding.positional_embedding"));
            let angles = g.scale(&g.matmul(&scaled, &matrix), TAU as f32);
            let waves = ["Sin", "Cos"].map(|wave| g.unary(wave, &angles));
            g.concat(&waves, 2, width)
        })
    }

    /// The positions of the image's tokens in the decoder, which are constants of the checkpoint: `[1, P·P, D]`.
    pub(super) fn pixel_positions(&self, g: &Graph<'w>) -> Value {
        let (grid, width) = (self.grid(), self.width());
        let own = self.of("shared_image_embedding.positional_embedding");
        // Meta's files have one matrix for points and pixels.
        let name = if g.weight_dims(&own).is_empty() {
            self.of("prompt_encoder.shared_embedding.positional_embedding")
        } else {
            own
        };
        g.derived("pixel_positions", &[1, grid * grid, width], move |weights| {
            let matrix = weights.read(&name)?;
            let (xs, ys) = matrix.split_at(width / 2);
            let centre = |i: usize| 2.0 * (i as f64 + 0.5) / grid as f64 - 1.0;
            let mut table = Vec::with_capacity(grid * grid * width);
            for (y, x) in (0..grid).flat_map(|y| (0..grid).map(move |x| (y, x))) {
                let angle =
                    |(a, b): (&f32, &f32)| TAU * (centre(x) * f64::from(*a) + centre(y) * f64::from(*b));
                let angles: Vec<f64> = xs.iter().zip(ys).map(angle).collect();
                table.extend(angles.iter().map(|angle| angle.sin() as f32));
                table.extend(angles.iter().map(|angle| angle.cos() as f32));
            }
            Ok(table)
        })
    }
}
