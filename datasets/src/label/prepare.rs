//! Picture files to the backbone's input, on several threads.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ocelli_engines::Tensor;
use ocelli_export::contract::Manifest;

use ocelli::Result;
use ocelli::image::Image;
use ocelli::preprocess::{PreprocessConfig, Preprocessor};

/// A picture as the backbone takes it.
pub(super) struct Prepared {
    /// `[1, 3, S, S]`.
    pub pixels: Tensor,
    /// The upright picture's width and height.
    pub size: (u32, u32),
}

/// Decodes and preprocesses; what a picture needs goes round. Only the small square waits for the detector, so that
/// memory does not depend on how large pictures are.
pub(super) struct Preparer {
    config: PreprocessConfig,
    preprocessors: Mutex<Vec<Preprocessor>>,
    tensors: Mutex<Vec<Tensor>>,
}

impl Preparer {
    pub fn new(manifest: &Manifest) -> Self {
        let mut config = PreprocessConfig::new(manifest.imgsz);
        config.mean = manifest.preprocessing.mean;
        config.std = manifest.preprocessing.std;
        Self { config, preprocessors: Mutex::default(), tensors: Mutex::default() }
    }

    /// Reads a picture.
    pub fn prepare(&self, path: &Path) -> Result<Prepared> {
        let image = Image::open(path)?;
        let mut preprocessor = match take(&self.preprocessors) {
            Some(preprocessor) => preprocessor,
            None => Preprocessor::new(self.config)?,
        };
        let mut pixels = take(&self.tensors).unwrap_or_else(Tensor::empty);
        let side = self.config.imgsz;
        let size = (image.width(), image.height());
        preprocessor.run_into(image.view(), pixels.reset_f32(&[1, 3, side, side]))?;
        put(&self.preprocessors, preprocessor);
        Ok(Prepared { pixels, size })
    }

    /// Takes back what is no longer needed.
    pub fn recycle(&self, prepared: Prepared) {
        put(&self.tensors, prepared.pixels);
    }
}

fn take<T>(pool: &Mutex<Vec<T>>) -> Option<T> {
    pool.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

fn put<T>(pool: &Mutex<Vec<T>>, thing: T) {
    pool.lock().unwrap_or_else(PoisonError::into_inner).push(thing);
}
