//! Ranges of activations for number formats of 8 bits.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ocelli_engines::{Engine, EngineSpec, Tensor};
use ocelli_export::{Calibration, Checkpoint, ExportOptions, export};

use crate::atomic_file::create_folder;
use crate::detector::{Detector, TextCacheFile};
use crate::engine::EngineFactory;
use crate::image::Image;
use crate::model::Model;
use crate::prompt::Prompts;
use ocelli_error::{Error, Result};

/// The number of phrases that every image is searched for.
const PHRASES_AN_IMAGE: usize = 8;

/// Measures the ranges that [`ExportOptions::calibration`] takes: runs the model of `options` in 32 bits on images, and
/// keeps the largest magnitude of every layer's inputs.
///
/// Every image is searched for eight of the phrases: the first for the first eight, the next for the next eight, and so on
/// from the start again. A temporary folder in `scratch` holds the graphs, which take as much space as the model in 32
/// bits. One image at a time is in memory. [`Cancelled`](ocelli_error::ErrorKind::Cancelled) from `images` ends the
/// calibration.
///
/// # Errors
/// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) without images or phrases,
/// [`Execution`](ocelli_error::ErrorKind::Execution) if a range is not finite; else as
/// [`export`] and [`Detector::detect`].
pub fn calibrate(
    checkpoint: &Checkpoint,
    options: &ExportOptions,
    factory: &EngineFactory,
    scratch: &Path,
    images: impl IntoIterator<Item = Result<Image>>,
    phrases: &[impl AsRef<str>],
) -> Result<Calibration> {
    let invalid = |why: &str| Error::invalid_argument(format!("cannot calibrate: {why}"));
    if phrases.is_empty() {
        return Err(invalid("there are no phrases; expected at least one"));
    }
    create_folder(scratch)?;
    let folder = tempfile::Builder::new()
        .prefix(".ocelli-calibrate-")
        .tempdir_in(scratch)
        .map_err(|e| Error::io("cannot write into", scratch, e))?;
    let model = folder.path().join("model");
    export(checkpoint, &options.for_calibration(factory.target(None)), &model, |_| Ok(()))?;
    let found = Arc::new(Mutex::new(Calibration::default()));
    let mut detector = Detector::builder()
        .with_open_model(Model::open(&model)?)
        .with_engine_factory(observing(factory, &found))
        .with_text_cache(TextCacheFile::None)
        .build()?;
    let mut used = phrases.iter().map(AsRef::as_ref).cycle();
    let mut count = 0;
    for image in images {
        let some: Vec<&str> = used.by_ref().take(PHRASES_AN_IMAGE.min(phrases.len())).collect();
        detector.detect(&image?, &Prompts::new(some)?)?;
        count += 1;
    }
    drop(detector);
    let mut found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    if count == 0 {
        return Err(invalid("there are no images; expected at least one"));
    }
    found.images = count;
    Ok(found)
}

/// The same engines, which collect what the graphs' outputs for ranges say.
fn observing(factory: &EngineFactory, found: &Arc<Mutex<Calibration>>) -> EngineFactory {
    let (inner, found) = (factory.clone(), Arc::clone(found));
    EngineFactory::custom(factory.description(), move |graph| {
        let engine = inner.load(graph)?;
        let is_range = |name: &str| Calibration::layer_of(name).is_some();
        let EngineSpec { inputs, outputs } = engine.spec().clone();
        let (ranges, outputs) = outputs.into_iter().partition::<Vec<_>, _>(|spec| is_range(&spec.name));
        Ok(Box::new(Observing {
            engine,
            spec: EngineSpec { inputs, outputs },
            ranges: ranges.into_iter().map(|spec| (spec.name, Tensor::empty())).collect(),
            found: Arc::clone(&found),
        }))
    })
}

/// An engine whose graph has outputs for ranges, which callers do not see.
struct Observing {
    engine: Box<dyn Engine>,
    spec: EngineSpec,
    ranges: Vec<(String, Tensor)>,
    found: Arc<Mutex<Calibration>>,
}

impl Engine for Observing {
    fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    fn description(&self) -> &str {
        self.engine.description()
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        let mut all: Vec<(&str, &mut Tensor)> =
            outputs.iter_mut().map(|(name, tensor)| (*name, &mut **tensor)).collect();
        all.extend(self.ranges.iter_mut().map(|(name, tensor)| (name.as_str(), tensor)));
        self.engine.run(inputs, &mut all)?;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, tensor) in &self.ranges {
            let Some(layer) = Calibration::layer_of(name) else { continue };
            let [largest] = *tensor.as_f32()? else { continue };
            found.observe(layer, largest)?;
        }
        Ok(())
    }
}
