//! The two halves of a detector without the code around them; tensors stay on the engines' device.

use std::sync::mpsc::{channel, sync_channel};
use std::time::{Duration, Instant};

use ocelli::engines::{Device, Engine, Tensor, Transferred};
use ocelli::export::contract::{Manifest, Prompting, file, tensor};
use ocelli::{Model, engine::EngineFactory};

/// Feature buffers: one is written, one is queued, one is read.
const IN_FLIGHT: usize = 3;
/// Numbers of tokens per phrase, in turn.
const PHRASE_TOKENS: [usize; 4] = [3, 4, 5, 3];

/// Encoded text prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct TextFeatures {
    /// `[class, token, channel]`.
    pub features: Vec<f32>,
    /// `[class, token]`, 1 is a token.
    pub mask: Vec<i64>,
    /// Number of classes.
    pub classes: usize,
}

impl TextFeatures {
    /// Reproducible noise in −1..1; more classes do not change the first ones.
    pub fn noise(manifest: &Manifest, classes: usize) -> Self {
        let (tokens, width) = (manifest.context_length, manifest.model_width);
        let features = noise(classes * tokens * width).collect();
        let of_class = |class: usize| {
            let used = PHRASE_TOKENS[class % PHRASE_TOKENS.len()].min(tokens);
            (0..tokens).map(move |token| i64::from(token < used))
        };
        Self { features, mask: (0..classes).flat_map(of_class).collect(), classes }
    }
}

/// Pseudorandom numbers in −1..1.
fn noise(count: usize) -> impl Iterator<Item = f32> {
    let mut state = 0x9e37_79b9_u32;
    (0..count).map(move |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    })
}

/// Outputs of the image half; the buffers are reused.
#[derive(Debug)]
pub struct Features {
    /// `[1, D, P, P]`, on the device if both halves use it.
    pub fpn_2: Tensor,
    /// `[1, 1, D]` in host memory; empty if prompts have no image token.
    pub image_prompt: Tensor,
}

/// The backbone, as one graph or two, and its input.
pub struct ImageHalf {
    engines: Vec<Box<dyn Engine>>,
    pixels: Tensor,
    tokens: Tensor,
    official: bool,
}

impl ImageHalf {
    /// Loads the backbone.
    pub fn load(model: &Model, factory: &EngineFactory) -> anyhow::Result<Self> {
        let load = |name| model.load_graph(factory, name);
        let engines: Vec<Box<dyn Engine>> =
            model.manifest().backbone_files().into_iter().map(load).collect::<Result<_, _>>()?;
        let tokens = on(engines.first().and_then(|engine| engine.device()));
        let official = model.manifest().prompting == Prompting::Official;
        Ok(Self { engines, pixels: Tensor::empty(), tokens, official })
    }

    /// Sets the input, `[1, 3, S, S]` in host memory, and copies it to the device.
    ///
    /// # Errors
    /// If the device is out of memory or lost.
    pub fn set_pixels(&mut self, pixels: &Tensor) -> anyhow::Result<()> {
        self.pixels = on(self.engines.first().and_then(|engine| engine.device()));
        Ok(self.pixels.copy_from_host(pixels)?)
    }

    /// Runs once; the device may still compute on return, see [`Tensor::wait`].
    ///
    /// # Errors
    /// If a graph fails.
    pub fn run_into(&mut self, features: &mut Features) -> anyhow::Result<()> {
        let mut outputs = vec![(tensor::FPN[2], &mut features.fpn_2)];
        if self.official {
            outputs.push((tensor::IMAGE_PROMPT, &mut features.image_prompt));
        }
        match self.engines.as_mut_slice() {
            [whole] => whole.run(&[(tensor::PIXEL_VALUES, &self.pixels)], &mut outputs)?,
            [first, second] => {
                first.run(
                    &[(tensor::PIXEL_VALUES, &self.pixels)],
                    &mut [(tensor::TOKENS, &mut self.tokens)],
                )?;
                second.run(&[(tensor::TOKENS, &self.tokens)], &mut outputs)?;
            }
            other => anyhow::bail!("backbone, {} graphs: expected one or two", other.len()),
        }
        Ok(())
    }

    fn device(&self) -> Option<Device> {
        self.engines.last().and_then(|engine| engine.device())
    }
}

/// Outputs of the decoder for all classes, in host memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    /// `[class, query]`.
    pub logits: Vec<f32>,
    /// `[class, query, xyxy]`.
    pub boxes: Vec<f32>,
    /// `[class]`.
    pub presence: Vec<f32>,
}

/// The encoder-decoder and its prompts.
pub struct PromptHalf {
    engine: Box<dyn Engine>,
    /// Features and masks of the classes decoded at once.
    chunks: Vec<(Tensor, Tensor)>,
    logits: Tensor,
    boxes: Tensor,
    presence: Tensor,
    outputs: Outputs,
}

impl PromptHalf {
    /// Loads the encoder-decoder.
    pub fn load(model: &Model, factory: &EngineFactory) -> anyhow::Result<Self> {
        let engine = model.load_graph(factory, file::ENCODER_DECODER)?;
        let (logits, boxes, presence) = (Tensor::empty(), Tensor::empty(), Tensor::empty());
        Ok(Self { engine, chunks: Vec::new(), logits, boxes, presence, outputs: Outputs::default() })
    }

    /// Sets the prompts: the first `classes` of `text`, repeated if there are fewer, `at_once` per run, with the image's
    /// token appended if prompts have one.
    ///
    /// # Errors
    /// If the device is out of memory or lost.
    pub fn set_prompts(
        &mut self,
        manifest: &Manifest,
        text: &TextFeatures,
        image_prompt: &Tensor,
        classes: usize,
        at_once: usize,
    ) -> anyhow::Result<()> {
        let (length, width) = (manifest.context_length, manifest.model_width);
        let appended = match manifest.prompting {
            Prompting::Official => image_prompt.as_f32()?,
            Prompting::Text => &[],
        };
        let tokens = length + usize::from(!appended.is_empty());
        self.chunks.clear();
        let all: Vec<usize> = (0..classes).map(|class| class % text.classes).collect();
        for chunk in all.chunks(at_once) {
            let (mut features, mut mask) = (Vec::new(), Vec::new());
            for class in chunk {
                features.extend_from_slice(&text.features[class * length * width..][..length * width]);
                features.extend_from_slice(appended);
                mask.extend_from_slice(&text.mask[class * length..][..length]);
                mask.extend((length..tokens).map(|_| 1));
            }
            let empty = || on(self.engine.device());
            let (mut on_features, mut on_mask) = (empty(), empty());
            on_features.copy_from_host(&Tensor::f32(&[chunk.len(), tokens, width], features)?)?;
            on_mask.copy_from_host(&Tensor::i64(&[chunk.len(), tokens], mask)?)?;
            self.chunks.push((on_features, on_mask));
        }
        Ok(())
    }

    /// Runs all classes and copies the outputs to host memory.
    ///
    /// # Errors
    /// If the graph fails.
    pub fn run(&mut self, fpn_2: &Tensor) -> anyhow::Result<&Outputs> {
        let out = &mut self.outputs;
        [&mut out.logits, &mut out.boxes, &mut out.presence].into_iter().for_each(Vec::clear);
        for (features, mask) in &self.chunks {
            self.engine.run(
                &[(tensor::FPN[2], fpn_2), (tensor::PROMPT_FEATURES, features), (tensor::PROMPT_MASK, mask)],
                &mut [
                    (tensor::LOGITS, &mut self.logits),
                    (tensor::BOXES, &mut self.boxes),
                    (tensor::PRESENCE, &mut self.presence),
                ],
            )?;
            out.logits.extend_from_slice(self.logits.as_f32()?);
            out.boxes.extend_from_slice(self.boxes.as_f32()?);
            out.presence.extend_from_slice(self.presence.as_f32()?);
        }
        Ok(&self.outputs)
    }
}

/// Both halves.
pub struct Halves {
    /// Pixels to features.
    pub image: ImageHalf,
    /// Features and prompts to boxes.
    pub prompt: PromptHalf,
}

/// Measurements of both halves running at once.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// Frames per second.
    pub fps: f64,
    /// Number of measured frames.
    pub n: usize,
    /// Bytes copied between host and device per frame; zero without a device.
    pub transferred: Transferred,
}

impl Halves {
    /// Buffers for features, on the device if both halves share it.
    pub fn features(&self) -> Features {
        let (from, to) = (self.image.device(), self.prompt.engine.device());
        let shared = from.filter(|from| to.as_ref() == Some(from));
        Features { fpn_2: on(shared), image_prompt: Tensor::empty() }
    }

    /// Runs the image half of a frame beside the prompt half of the previous one, as a pipeline does. Ends after `frames` or
    /// `limit`, whichever is first.
    ///
    /// # Errors
    /// If a graph fails, or `check`, which is called between frames.
    pub fn together(
        &mut self,
        warm_up: usize,
        frames: usize,
        limit: Duration,
        mut check: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Together> {
        // The first measured frame begins when the last warm-up frame ends.
        let warm_up = warm_up.max(1);
        let (to_prompt, at_prompt) = sync_channel::<Features>(1);
        let (to_image, at_image) = channel::<Features>();
        for _ in 0..IN_FLIGHT {
            to_image.send(self.features()).expect("the receiver lives until the end of the function");
        }
        let (mut started, mut before) = (Instant::now(), Transferred::default());
        let mut n = 0;
        let mut elapsed = Duration::ZERO;
        let devices = [self.image.device(), self.prompt.engine.device()];
        let so_far = || transferred(&devices);
        let (image, prompt) = (&mut self.image, &mut self.prompt);
        std::thread::scope(|scope| {
            let producer = scope.spawn(move || -> anyhow::Result<()> {
                while let Ok(mut features) = at_image.recv() {
                    image.run_into(&mut features)?;
                    if to_prompt.send(features).is_err() {
                        break;
                    }
                }
                Ok(())
            });
            let mut consume = || -> anyhow::Result<()> {
                for frame in 0..warm_up + frames {
                    check()?;
                    // The other thread's error is the one to report.
                    let Ok(features) = at_prompt.recv() else { return Ok(()) };
                    prompt.run(&features.fpn_2)?;
                    drop(to_image.send(features));
                    if frame + 1 == warm_up {
                        (started, before) = (Instant::now(), so_far());
                    } else if frame + 1 > warm_up {
                        n += 1;
                        elapsed = started.elapsed();
                        if elapsed > limit && n >= 3 {
                            break;
                        }
                    }
                }
                Ok(())
            };
            let consumed = consume();
            drop((at_prompt, to_image));
            let produced = producer.join().map_err(|_| anyhow::anyhow!("the backbone's thread panicked"))?;
            produced.and(consumed)
        })?;
        let after = so_far();
        let per_frame = |after: u64, before: u64| (after - before) / n.max(1) as u64;
        Ok(Together {
            fps: n as f64 / elapsed.as_secs_f64(),
            n,
            transferred: Transferred {
                to_device: per_frame(after.to_device, before.to_device),
                to_host: per_frame(after.to_host, before.to_host),
            },
        })
    }
}

/// The bytes copied so far. A device that both use counts once.
fn transferred([first, second]: &[Option<Device>; 2]) -> Transferred {
    let devices = first.iter().chain(second.iter().filter(|_| first != second));
    devices.fold(Transferred::default(), |sum, device| {
        let one = device.transferred();
        Transferred { to_device: sum.to_device + one.to_device, to_host: sum.to_host + one.to_host }
    })
}

/// An empty tensor on a device, or in host memory.
fn on(device: Option<Device>) -> Tensor {
    device.map_or_else(Tensor::empty, Tensor::on)
}
