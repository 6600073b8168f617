//! The detector of a page.

use std::sync::Arc;

use js_sys::Function;
use ocelli::draw::class_color;
use ocelli::{
    BoundingBox, Detection, EngineKind, FrameView, Mask, Prompt, Prompts, StageTimes,
    engine::EngineOptions,
    options::DetectorOptions,
    stages::{EmbeddedPrompts, TextCacheFile},
};
use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::*;

use crate::files::{self, Reader};
use crate::{from_json, hex, js_error, to_json};

/// The largest distance of polygons from the border of a mask, in pixels.
const TOLERANCE: f32 = 0.75;

/// `{"masks": true, "confidence": 0.4}`; each may be missing.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    masks: bool,
    confidence: Option<f32>,
}

impl Default for Options {
    fn default() -> Self {
        Self { masks: true, confidence: None }
    }
}

/// `{"phrase": "dog", "label": "my dog", "exemplars": [{"box": [0, 0, 9, 9], "wanted": true}]}`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PromptJson {
    phrase: Option<String>,
    label: Option<String>,
    #[serde(default)]
    exemplars: Vec<ExemplarJson>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExemplarJson {
    #[serde(rename = "box")]
    corners: [f32; 4],
    wanted: bool,
}

impl PromptJson {
    fn into_prompt(self) -> Prompt {
        let prompt = match (self.phrase, self.label) {
            (Some(phrase), None) => Prompt::new(phrase),
            (Some(phrase), Some(label)) => Prompt::new(phrase).with_label(label),
            (None, label) => Prompt::visual(label.unwrap_or_else(|| "example".to_owned())),
        };
        let exemplars = self.exemplars.into_iter();
        exemplars.fold(prompt, |prompt, one| prompt.with_exemplar(one.corners.into(), one.wanted))
    }
}

/// The detections as drawn, and the times.
#[derive(Serialize)]
struct DrawnDetections {
    detections: Vec<Drawn>,
    times: StageTimes,
}

#[derive(Serialize)]
struct Drawn {
    class_id: usize,
    label: Arc<str>,
    /// With all digits, as `Tracker.update` takes them back.
    score: f32,
    #[serde(rename = "box")]
    bbox: BoundingBox,
    #[serde(skip_serializing_if = "Option::is_none")]
    mask: Option<Mask>,
    color: String,
    /// `[part][corner][x, y]`, to be filled by the even-odd rule.
    polygons: Vec<Vec<[f32; 2]>>,
}

impl From<Detection> for Drawn {
    fn from(Detection { class_id, label, score, bbox, mask }: Detection) -> Self {
        let polygons = mask.as_ref().map_or_else(Vec::new, |mask| mask.polygons(TOLERANCE));
        Self { class_id, label, score, bbox, mask, color: hex(class_color(class_id)), polygons }
    }
}

/// A model, its engine and the classes that it looks for.
#[wasm_bindgen]
pub struct Detector {
    inner: ocelli::Detector,
    prompts: Option<Prompts>,
    embedded: Option<EmbeddedPrompts>,
    rgb: Vec<u8>,
    _reader: Reader,
}

#[wasm_bindgen]
impl Detector {
    /// Opens a model through a function that returns the content of its files by name.
    #[wasm_bindgen(constructor)]
    pub fn new(read: Function, options: &str) -> Result<Self, JsError> {
        let options: Options = from_json("options", options)?;
        let (model, reader) = files::open(read).map_err(js_error)?;
        let engine =
            EngineOptions { kind: EngineKind::Embedded, threads: Some(1), ..EngineOptions::default() };
        let options = DetectorOptions {
            masks: options.masks && !model.manifest().detection_only,
            confidence: options.confidence,
            engine,
            text_cache: TextCacheFile::None,
            ..DetectorOptions::default()
        };
        let inner = ocelli::Detector::with(options).with_open_model(model).build().map_err(js_error)?;
        Ok(Self { inner, prompts: None, embedded: None, rgb: Vec::new(), _reader: reader })
    }

    /// The classes to look for, a list of prompts in JSON; loads the graphs that they need.
    #[wasm_bindgen(js_name = setPrompts)]
    pub fn set_prompts(&mut self, prompts: &str) -> Result<(), JsError> {
        let prompts: Vec<PromptJson> = from_json("prompts", prompts)?;
        let prompts = Prompts::new(prompts.into_iter().map(PromptJson::into_prompt)).map_err(js_error)?;
        self.embedded = Some(self.inner.prepare(&prompts).map_err(js_error)?);
        self.prompts = Some(prompts);
        Ok(())
    }

    /// Keeps what the exemplars show, which are boxes in this image, for other images.
    #[wasm_bindgen(js_name = keepExemplars)]
    pub fn keep_exemplars(&mut self, pixels: &[u8], width: u32, height: u32) -> Result<(), JsError> {
        let Self { inner, prompts, embedded, rgb, .. } = self;
        let prompts = prompts.as_ref().ok_or_else(no_prompts)?;
        let image = opaque(pixels, width, height, rgb)?;
        *embedded = Some(inner.exemplar_features(image, prompts).map_err(js_error)?);
        Ok(())
    }

    /// Detections with a score above this are returned, 0 to 1.
    #[wasm_bindgen(js_name = setConfidence)]
    pub fn set_confidence(&mut self, confidence: f32) -> Result<(), JsError> {
        self.inner.set_confidence(confidence).map_err(js_error)
    }

    /// Detects in an image, `width * height * 4` bytes, red, green, blue and one that is ignored. Returns JSON.
    pub fn detect(&mut self, pixels: &[u8], width: u32, height: u32) -> Result<String, JsError> {
        let Self { inner, embedded, rgb, .. } = self;
        let prompts = embedded.as_ref().ok_or_else(no_prompts)?;
        let image = opaque(pixels, width, height, rgb)?;
        let found = inner.detect_embedded(image, prompts).map_err(js_error)?;
        let detections = found.items.into_iter().map(Drawn::from).collect();
        to_json(&DrawnDetections { detections, times: found.times })
    }

    /// The `model.json` of the model.
    #[wasm_bindgen(getter)]
    pub fn manifest(&self) -> Result<String, JsError> {
        to_json(self.inner.model().manifest())
    }

    /// The engine, for display.
    #[wasm_bindgen(getter)]
    pub fn engine(&self) -> String {
        self.inner.engine().to_owned()
    }
}

fn no_prompts() -> JsError {
    JsError::new("no prompts: call setPrompts first")
}

/// The image without its fourth channel.
fn opaque<'r>(
    pixels: &[u8],
    width: u32,
    height: u32,
    rgb: &'r mut Vec<u8>,
) -> Result<FrameView<'r>, JsError> {
    let expected = width as usize * height as usize * 4;
    if pixels.len() != expected {
        let message = format!("pixels of {width}x{height}: expected {expected} bytes, got {}", pixels.len());
        return Err(JsError::new(&message));
    }
    rgb.clear();
    let (pixels, _) = pixels.as_chunks::<4>();
    rgb.extend(pixels.iter().flat_map(|&[red, green, blue, _]| [red, green, blue]));
    Ok(FrameView::rgb8(width, height, rgb))
}
