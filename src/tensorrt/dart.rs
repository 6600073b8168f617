//! Engines made by DART's scripts, which have other names and layouts and a fixed number of classes.
//!
//! Its encoder-decoder takes `img_feat` and `img_pos` `[M, D, P, P]`, `text_feats` `[L, M, D]`, `text_mask` `[M, L]` with
//! 1 = padding, and returns `scores` `[M, Q, 1]` (logits), `boxes` `[M, Q, 4]` as cxcywh and, depending on the export,
//! `presence` `[M, 1]`. Its prompts are text only, without a CLS token. Without `presence` a score is just the sigmoid of the
//! logit, which is on another scale than the scores of other models and needs its own threshold.
//!
//! Its backbone takes pixels and returns up to three levels, under any names: levels are identified by their size.

use std::borrow::Cow;
use std::f64::consts::TAU;

use half::f16;
use ocelli_engines::spec::{Bindings, check_run};
use ocelli_engines::{Device, Dim, ElementType, Engine, EngineSpec, Error, Result, Tensor, TensorSpec};
use ocelli_export::contract::{Manifest, dim, tensor};

/// Tensor names of DART's encoder-decoder.
pub mod name {
    /// `[M, D, P, P]`, the coarse features, once for each class.
    pub const IMAGE: &str = "img_feat";
    /// `[M, D, P, P]`, the image's position encoding.
    pub const POSITIONS: &str = "img_pos";
    /// `[L, M, D]`
    pub const TEXT: &str = "text_feats";
    /// `[M, L]`, 1 = padding.
    pub const TEXT_MASK: &str = "text_mask";
    /// `[M, Q, 1]`, logits.
    pub const SCORES: &str = "scores";
    /// `[M, Q, 4]`, cxcywh.
    pub const BOXES: &str = "boxes";
    /// `[M, 1]`, logits.
    pub const PRESENCE: &str = "presence";
}

/// The presence logit that stands in for a missing one: its sigmoid is 1.
const CERTAIN: f32 = 100.0;

/// The base of the position encoding's wavelengths.
const TEMPERATURE: f64 = 10000.0;

/// The image's position encoding as DART's engines take it, `[D, P, P]`: the first half of the channels is y's, the
/// second x's; sine and cosine alternate (`transformers`, `Sam3SinePositionEmbedding`).
pub fn image_positions(grid: usize, width: usize) -> Vec<f32> {
    let axis = width / 2;
    let mut table = vec![0.0; width * grid * grid];
    for (channel, plane) in table.chunks_exact_mut(grid * grid).enumerate() {
        let (of_y, within) = (channel < axis, channel % axis);
        let frequency = TEMPERATURE.powf(-((within / 2 * 2) as f64) / axis as f64);
        for (place, value) in plane.iter_mut().enumerate() {
            let index = if of_y { place / grid } else { place % grid };
            let angle = (index + 1) as f64 / (grid as f64 + 1e-6) * TAU * frequency;
            *value = if within % 2 == 0 { angle.sin() } else { angle.cos() } as f32;
        }
    }
    table
}

/// Fills a tensor with numbers, converted to an engine's element type.
fn fill(
    tensor: &mut Tensor,
    element_type: ElementType,
    shape: &[usize],
    values: impl Iterator<Item = f32>,
) -> Result<()> {
    fn all<T>(to: &mut [T], values: impl Iterator<Item = f32>, convert: impl Fn(f32) -> T) {
        to.iter_mut().zip(values).for_each(|(to, value)| *to = convert(value));
    }
    match element_type {
        ElementType::F32 => all(tensor.reset::<f32>(shape), values, |value| value),
        ElementType::F16 => all(tensor.reset::<f16>(shape), values, f16::from_f32),
        ElementType::I64 => all(tensor.reset::<i64>(shape), values, |value| value as i64),
        ElementType::I32 => all(tensor.reset::<i32>(shape), values, |value| value as i32),
        ElementType::U8 => all(tensor.reset::<u8>(shape), values, |value| value as u8),
        ElementType::Bool => all(tensor.reset::<bool>(shape), values, |value| value != 0.0),
        other => return Err(Error::invalid_data(format!("DART's engines do not take {other}"))),
    }
    Ok(())
}

/// A tensor's elements as f32.
fn numbers(tensor: &Tensor) -> Result<Cow<'_, [f32]>> {
    match tensor.element_type() {
        ElementType::F16 => {
            Ok(tensor.as_slice::<f16>()?.iter().map(|value| value.to_f32()).collect::<Vec<_>>().into())
        }
        _ => Ok(tensor.as_f32()?.into()),
    }
}

fn sizes(spec: &TensorSpec) -> Option<Vec<usize>> {
    Bindings::default().shape_of(spec)
}

/// DART's encoder-decoder with the names and shapes of an exported model's.
pub struct DartEncoderDecoder {
    inner: Box<dyn Engine>,
    spec: EngineSpec,
    description: String,
    max_classes: usize,
    length: usize,
    width: usize,
    queries: usize,
    image_shape: Vec<usize>,
    image: Tensor,
    positions: Tensor,
    text: Tensor,
    text_mask: Tensor,
    scores: Tensor,
    boxes: Tensor,
    presence: Option<Tensor>,
}

impl DartEncoderDecoder {
    /// `true` if an engine has the inputs of DART's encoder-decoder.
    pub fn fits(spec: &EngineSpec) -> bool {
        [name::IMAGE, name::TEXT].iter().all(|name| spec.input(name).is_some())
    }

    /// Adapts an engine to a model's sizes.
    ///
    /// # Errors
    /// [`InvalidData`](ocelli_engines::ErrorKind::InvalidData) if a tensor is missing or has another shape than the model needs;
    /// the message names it.
    pub fn new(inner: Box<dyn Engine>, manifest: &Manifest) -> Result<Self> {
        let (grid, width, length, queries) =
            (manifest.grid(), manifest.model_width, manifest.context_length, manifest.num_queries);
        let spec = inner.spec();
        let image = spec.input(name::IMAGE).and_then(sizes);
        let Some([max_classes, ..]) = image.as_deref().filter(|shape| shape.len() == 4) else {
            let found = spec.input(name::IMAGE).map_or("none".into(), ToString::to_string);
            let message =
                format!("input `{}`: expected [M, {width}, {grid}, {grid}], got {found}", name::IMAGE);
            return Err(Error::invalid_data(message));
        };
        let max_classes = *max_classes;
        let expected = [
            (true, name::IMAGE, vec![max_classes, width, grid, grid]),
            (true, name::POSITIONS, vec![max_classes, width, grid, grid]),
            (true, name::TEXT, vec![length, max_classes, width]),
            (true, name::TEXT_MASK, vec![max_classes, length]),
            (false, name::SCORES, vec![max_classes, queries, 1]),
            (false, name::BOXES, vec![max_classes, queries, 4]),
            (false, name::PRESENCE, vec![max_classes, 1]),
        ];
        for (is_input, name, shape) in &expected {
            let found = if *is_input { spec.input(name) } else { spec.output(name) };
            match found {
                None if *name == name::PRESENCE => {}
                Some(found) if sizes(found).as_ref() == Some(shape) => {}
                found => {
                    let side = if *is_input { "input" } else { "output" };
                    let found = found.map_or("none".into(), ToString::to_string);
                    let message =
                        format!("{side} `{name}`: the model needs {shape:?}, the engine has {found}");
                    return Err(Error::invalid_data(message));
                }
            }
        }
        if max_classes == 0 {
            return Err(Error::invalid_data(format!("input `{}`: it takes no classes", name::IMAGE)));
        }
        let positions_type = spec.input(name::POSITIONS).expect("it was found above").element_type;
        let (table, image_shape) = (image_positions(grid, width), vec![max_classes, width, grid, grid]);
        let mut positions = Tensor::empty();
        let repeated = (0..max_classes).flat_map(|_| table.iter().copied());
        fill(&mut positions, positions_type, &image_shape, repeated)?;
        let fixed = Dim::Fixed;
        let classes = || Dim::named(dim::CLASSES);
        let image = [fixed(1), fixed(width), fixed(grid), fixed(grid)];
        let words = [classes(), fixed(length), fixed(width)];
        let own = EngineSpec {
            inputs: vec![
                TensorSpec::new(tensor::FPN[2], ElementType::F32, image),
                TensorSpec::new(tensor::PROMPT_FEATURES, ElementType::F32, words),
                TensorSpec::new(tensor::PROMPT_MASK, ElementType::I64, [classes(), fixed(length)]),
            ],
            outputs: vec![
                TensorSpec::new(tensor::LOGITS, ElementType::F32, [classes(), fixed(queries)]),
                TensorSpec::new(tensor::BOXES, ElementType::F32, [classes(), fixed(queries), fixed(4)]),
                TensorSpec::new(tensor::PRESENCE, ElementType::F32, [classes(), fixed(1)]),
            ],
        };
        let empty = Tensor::empty;
        Ok(Self {
            description: format!("{}, as DART exports", inner.description()),
            spec: own,
            max_classes,
            length,
            width,
            queries,
            presence: spec.output(name::PRESENCE).map(|_| empty()),
            image_shape,
            image: empty(),
            positions,
            text: empty(),
            text_mask: empty(),
            scores: empty(),
            boxes: empty(),
            inner,
        })
    }

    /// The most classes that it decodes at once, which is also the number that it always computes.
    pub fn max_classes(&self) -> usize {
        self.max_classes
    }

    /// Fills the inputs; if there are fewer classes, the last one is repeated.
    fn fill_inputs(&mut self, inputs: &[(&str, &Tensor)], classes: usize) -> Result<()> {
        let input = |name: &str| inputs.iter().find(|(known, _)| *known == name).expect("it was checked").1;
        let (m, length, width) = (self.max_classes, self.length, self.width);
        let spec = self.inner.spec();
        let element_type = |name: &str| spec.input(name).expect("it was found when made").element_type;
        let features = input(tensor::FPN[2]).as_f32()?;
        let image = (0..m).flat_map(|_| features.iter().copied());
        fill(&mut self.image, element_type(name::IMAGE), &self.image_shape, image)?;
        let words = input(tensor::PROMPT_FEATURES).as_f32()?;
        let row = |class: usize| class.min(classes - 1);
        let text = (0..length)
            .flat_map(|token| (0..m).map(move |class| (row(class) * length + token) * width))
            .flat_map(|start| words[start..][..width].iter().copied());
        fill(&mut self.text, element_type(name::TEXT), &[length, m, width], text)?;
        let mask = input(tensor::PROMPT_MASK).as_slice::<i64>()?;
        let padding = (0..m)
            .flat_map(|class| mask[row(class) * length..][..length].iter())
            .map(|&token| if token == 0 { 1.0 } else { 0.0 });
        fill(&mut self.text_mask, element_type(name::TEXT_MASK), &[m, length], padding)
    }
}

impl Engine for DartEncoderDecoder {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let classes = check_run(&self.spec, inputs, outputs)?.size(dim::CLASSES).unwrap_or(0);
        if classes == 0 || classes > self.max_classes {
            ocelli_error::refuse!(
                "input `{}`: {classes} classes at once; this engine was built for 1 to {}",
                tensor::PROMPT_FEATURES,
                self.max_classes
            );
        }
        self.fill_inputs(inputs, classes)?;
        let mut wanted = vec![(name::SCORES, &mut self.scores), (name::BOXES, &mut self.boxes)];
        wanted.extend(self.presence.as_mut().map(|presence| (name::PRESENCE, presence)));
        self.inner.run(
            &[
                (name::IMAGE, &self.image),
                (name::POSITIONS, &self.positions),
                (name::TEXT, &self.text),
                (name::TEXT_MASK, &self.text_mask),
            ],
            &mut wanted,
        )?;
        for (wanted, out) in outputs {
            match *wanted {
                tensor::LOGITS => {
                    let count = classes * self.queries;
                    let scores = numbers(&self.scores)?;
                    out.reset_f32(&[classes, self.queries]).copy_from_slice(&scores[..count]);
                }
                tensor::BOXES => {
                    let boxes = numbers(&self.boxes)?;
                    let to = out.reset_f32(&[classes, self.queries, 4]);
                    for (to, from) in to.chunks_exact_mut(4).zip(boxes.chunks_exact(4)) {
                        let [cx, cy, w, h] = [from[0], from[1], from[2], from[3]];
                        to.copy_from_slice(&[cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0]);
                    }
                }
                _ => {
                    let to = out.reset_f32(&[classes, 1]);
                    match &self.presence {
                        Some(presence) => to.copy_from_slice(&numbers(presence)?[..classes]),
                        None => to.fill(CERTAIN),
                    }
                }
            }
        }
        Ok(())
    }
}

/// DART's backbone with the names of an exported model's.
pub struct DartBackbone {
    inner: Box<dyn Engine>,
    spec: EngineSpec,
    description: String,
    input: String,
    input_type: ElementType,
    /// The engine's name and element type of each output, in the order of `spec`.
    levels: Vec<(String, ElementType)>,
    pixels: Tensor,
    halves: Vec<Tensor>,
}

impl DartBackbone {
    /// `true` if an image is an engine's only input.
    pub fn fits(spec: &EngineSpec, manifest: &Manifest) -> bool {
        let side = manifest.imgsz;
        matches!(spec.inputs.as_slice(), [pixels] if sizes(pixels) == Some(vec![1, 3, side, side]))
    }

    /// Adapts an engine to a model's sizes.
    ///
    /// # Errors
    /// [`InvalidData`](ocelli_engines::ErrorKind::InvalidData) if the coarse features are missing, or two outputs could be the
    /// same level.
    pub fn new(inner: Box<dyn Engine>, manifest: &Manifest) -> Result<Self> {
        let (grid, width) = (manifest.grid(), manifest.model_width);
        let spec = inner.spec();
        let [pixels] = spec.inputs.as_slice() else {
            let count = spec.inputs.len();
            return Err(Error::invalid_data(format!("it has {count} inputs, expected one, the pixels")));
        };
        let (input, input_type) = (pixels.name.clone(), pixels.element_type);
        let mut levels = Vec::new();
        let mut own = EngineSpec {
            inputs: vec![TensorSpec::new(tensor::PIXEL_VALUES, ElementType::F32, pixels.shape.clone())],
            outputs: Vec::new(),
        };
        for (contract, times) in tensor::FPN.into_iter().zip([4, 2, 1]) {
            let side = times * grid;
            let is_it = |output: &&TensorSpec| sizes(output) == Some(vec![1, width, side, side]);
            let found: Vec<&TensorSpec> = spec.outputs.iter().filter(is_it).collect();
            match found.as_slice() {
                [] if times == 1 => {
                    let outputs: Vec<_> = spec.outputs.iter().map(ToString::to_string).collect();
                    return Err(Error::invalid_data(format!(
                        "output `{contract}`: the model needs [1, {width}, {side}, {side}], the engine has {}",
                        outputs.join(", ")
                    )));
                }
                [] => {}
                [one] => {
                    own.outputs.push(TensorSpec::new(contract, ElementType::F32, one.shape.clone()));
                    levels.push((one.name.clone(), one.element_type));
                }
                [one, other, ..] => {
                    return Err(Error::invalid_data(format!(
                        "output `{contract}`: it could be `{}` or `{}`, which have the same size",
                        one.name, other.name
                    )));
                }
            }
        }
        let description = format!("{}, as DART exports", inner.description());
        let halves = vec![Tensor::empty(); levels.len()];
        Ok(Self { spec: own, description, input, input_type, levels, pixels: Tensor::empty(), halves, inner })
    }

    /// `true` if nothing is converted, so that tensors may be on a device.
    fn only_renames(&self) -> bool {
        self.levels.iter().map(|level| level.1).chain([self.input_type]).all(|one| one == ElementType::F32)
    }
}

impl Engine for DartBackbone {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn device(&self) -> Option<Device> {
        if self.only_renames() { self.inner.device() } else { None }
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        check_run(&self.spec, inputs, outputs)?;
        let own = &self.spec.outputs;
        let place = |name: &str| own.iter().position(|output| output.name == name).expect("it was checked");
        let places: Vec<usize> = outputs.iter().map(|(name, _)| place(name)).collect();
        let pixels = inputs[0].1;
        if self.only_renames() {
            let renamed = places.iter().zip(outputs);
            let renamed = renamed.map(|(&place, (_, tensor))| (&*self.levels[place].0, &mut **tensor));
            return self.inner.run(&[(&self.input, pixels)], &mut renamed.collect::<Vec<_>>());
        }
        fill(&mut self.pixels, self.input_type, pixels.shape(), pixels.as_f32()?.iter().copied())?;
        let halves = self.levels.iter().zip(&mut self.halves).enumerate();
        let wanted = halves.filter(|(place, _)| places.contains(place));
        let wanted = wanted.map(|(_, ((name, _), half))| (&**name, half));
        self.inner.run(&[(&self.input, &self.pixels)], &mut wanted.collect::<Vec<_>>())?;
        for ((_, out), place) in outputs.iter_mut().zip(places) {
            let from = &self.halves[place];
            out.reset_f32(from.shape()).copy_from_slice(&numbers(from)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
