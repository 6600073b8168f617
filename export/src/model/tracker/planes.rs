//! SAM 3.1's memories are made of planes of the objects' masks (`mux_planes.onnx`, `mux_planes_stored.onnx`), which the memory
//! encoder reads slot by slot (`mux_memory.onnx`).

use super::masks::{area_of, wins_pixels};
use super::prompts::MEMORY_PIXELS;
use super::{BUCKETS, Network, OBJECTS};
use crate::contract::tensor;
use crate::graph::{Dim, Element, Graph, Role, Value};

/// The logit of suppressed pixels.
const SUPPRESSED: f32 = -10.0;
/// An object keeps its mask if it keeps this share of its pixels.
const KEPT_SHARE: f32 = 0.3;

impl<'w> Network<'_, 'w> {
    /// Masks of all objects of a frame → their planes, and which of them are left.
    pub(crate) fn mux_planes(&self, g: &Graph<'w>) {
        g.as_role(Role::Exact, |g| {
            let masks = self.masks_input(g);
            let (map, [inside, kept]) = self.exclusive_pixels(g, &masks);
            let [area, after] = [&inside, &kept].map(|pixels| area_of(g, pixels));
            let share = g.div(&after, &g.clip(&area, Some(1.0), None));
            let shrinks = g.compare("Less", &share, &g.scalar(KEPT_SHARE));
            // A single object keeps its mask.
            let (one, count) = (g.integers("one", &[1]), g.size_of(&masks, 0));
            let has_rivals = g.unary("Not", &g.compare("LessOrEqual", &count, &one));
            let shrinks = g.both("And", &shrinks, &has_rivals);
            // Read by nothing else: what is, ONNX Runtime copies into an output, and WebGPU copies no booleans.
            let keep = g.unary("Not", &shrinks);
            let exists = g.is_above(&area, 0.0);
            let is_left = g.unary("Not", &g.both("And", &shrinks, &exists));
            let present = g.both("And", &is_left, &exists);
            let of_map = g.reshape(&shrinks, &[OBJECTS, 1.into(), 1.into(), 1.into()]);
            let map = g.choose(&of_map, &g.clip(&map, None, Some(SUPPRESSED)), &map);
            self.planes_output(g, &map);
            g.output(tensor::KEEP, &keep, &[OBJECTS]);
            g.output(tensor::PRESENT, &present, &[OBJECTS]);
            for (name, area) in [(tensor::AREA, area), (tensor::AREA_AFTER, after)] {
                g.output(name, &g.cast(&area, Element::I64), &[OBJECTS]);
            }
        });
    }

    /// Masks of one state's objects that were given → their planes; each pixel is left to one object, at the side of the image.
    pub(crate) fn mux_planes_stored(&self, g: &Graph<'w>) {
        g.as_role(Role::Exact, |g| {
            let (side, pixels) = (self.imgsz, Dim::from(self.imgsz * self.imgsz));
            let masks = self.masks_input(g);
            let map = g.reshape(&masks, &[OBJECTS, 1.into(), masks.dims[1], masks.dims[2]]);
            let flat = g.reshape(&g.enlarge(&map, side), &[OBJECTS, pixels]);
            let wins = wins_pixels(g, &flat);
            let flat = g.choose(&wins, &flat, &g.clip(&flat, None, Some(SUPPRESSED)));
            let map = g.reshape(&flat, &[OBJECTS, 1.into(), side.into(), side.into()]);
            self.planes_output(g, &map);
        });
    }

    fn masks_input(&self, g: &Graph<'w>) -> Value {
        let side = Dim::from(4 * self.grid());
        g.input(tensor::MASKS, Element::F32, &[OBJECTS, side, side])
    }

    /// Logits `[n, 1, h, w]` → probabilities between −1 and 1, `[n, 16P, 16P]`.
    fn planes_output(&self, g: &Graph<'w>, map: &Value) {
        let fine = MEMORY_PIXELS * self.grid();
        let doubled = g.scale(&g.unary("Sigmoid", map), 2.0);
        let planes = g.sub(&doubled, &g.scalar(1.0));
        let planes = g.enlarge(&planes, fine);
        let dims = [OBJECTS, fine.into(), fine.into()];
        g.output(tensor::PLANES, &g.reshape(&planes, &dims), &dims);
    }

    /// The frame's features and planes → a memory of each bucket.
    pub(crate) fn mux_memory(&self, g: &Graph<'w>) {
        let (slots, width, fine) = (self.slots(), self.width(), MEMORY_PIXELS * self.grid());
        let tokens = self.grid() * self.grid();
        let pixel = self.pixel_input(g, tensor::MEMORY_PIXEL);
        let planes = g.input(tensor::PLANES, Element::F32, &[OBJECTS, fine.into(), fine.into()]);
        let order = g.input(tensor::ORDER, Element::I64, &[BUCKETS, slots.into()]);
        let valid = g.input(tensor::VALID, Element::Bool, &[BUCKETS, slots.into()]);
        let [present, conditional] =
            [tensor::PRESENT, tensor::CONDITIONAL].map(|name| g.input(name, Element::Bool, &[OBJECTS]));

        g.scope("slots");
        let valid = g.cast(&valid, Element::F32);
        let [present, conditional] = [&present, &conditional].map(|condition| {
            let of_slots = g.gather_rows(&g.cast(condition, Element::F32), &order);
            g.mul(&of_slots, &valid)
        });
        let planes = g.gather_rows(&planes, &order);
        let of_planes = g.reshape(&valid, &[BUCKETS, slots.into(), 1.into(), 1.into()]);
        let masks = self.first_convolution(g, &g.mul(&planes, &of_planes), &conditional);
        let x = self.mixed_with_image(g, &masks, &pixel);

        g.scope("absent");
        let x = g.tokens_of(&x);
        let absent = g.sub(&g.scalar(1.0), &present);
        let embedding = g.weight(&self.of("occlusion_spatial_embedding_parameter"));
        let absent = g.reshape(&g.matmul(&absent, &embedding), &[BUCKETS, 1.into(), width.into()]);
        g.output(tensor::MEMORY, &g.add(&x, &absent), &[BUCKETS, tokens.into(), width.into()]);
    }

    /// The first convolution over planes `[B, slots, 16P, 16P]` and as many constant ones `[B, slots]`, which say whether an
    /// object was given: `[B, channels, 8P, 8P]`. A constant plane gives one number at each of four kinds of places: the
    /// corner, the first row, the first column and everywhere else.
    fn first_convolution(&self, g: &Graph<'w>, planes: &Value, given: &Value) -> Value {
        let (slots, half) = (self.slots(), MEMORY_PIXELS / 2 * self.grid());
        let name = self.of("memory_encoder.mask_downsampler.layers.0.conv");
        g.scope(&name);
        let dims = g.weight_dims(&format!("{name}.weight"));
        let [of_planes, of_given] = [("planes", 0), ("given", 1)].map(|(half, at)| {
            let (weight, shape) = (format!("{name}.weight"), [dims[0], slots, dims[2], dims[3]]);
            let size = slots * dims[2] * dims[3];
            g.derived(&format!("{weight}.{half}"), &shape, move |weights| {
                Ok(weights.read(&weight)?.chunks(size).skip(at).step_by(2).flatten().copied().collect())
            })
        });
        let x = g.conv(planes, &of_planes, Some(&g.weight(&format!("{name}.bias"))), 2, 1);
        let given = g.reshape(given, &[BUCKETS, slots.into(), 1.into(), 1.into()]);
        let given = g.mul(&given, &g.constant("ones", &[1, 1, 4, 4], &[1.0; 16]));
        let kinds = g.conv(&given, &of_given, None, 2, 1);
        let kind: Vec<usize> = (0..half).map(|at| at.min(1)).collect();
        let everywhere = g.select(&g.select(&kinds, 2, &kind), 3, &kind);
        g.add(&x, &everywhere)
    }
}
