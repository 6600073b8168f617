//! `ocelli export --calibrate`.

use std::path::{Path, PathBuf};

use clap::Args;
use ocelli::export::{Calibration, Checkpoint, ExportOptions};
use ocelli::{
    Image,
    calibration::calibrate,
    engine::{EngineFactory, EngineOptions},
};

use crate::args::{coco_classes, folder_of};
use crate::interrupt::unless_interrupted;
use crate::{Progress, class_names, expand_images, interrupted, status};

/// Heading of these options.
const PRECISION: &str = "Number format";

/// What scales of activations are measured on.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// Images, or folders of them, like those to be searched: a few dozen. The scales of fp8, and of int8 with --target
    /// tensorrt, are measured on them
    #[arg(long, num_args = 1.., value_name = "PATH", help_heading = PRECISION)]
    calibrate: Vec<PathBuf>,
    /// What is searched for in these images, eight in each in turn [default: COCO's eighty classes]
    #[arg(long, num_args = 1.., value_name = "PHRASE", requires = "calibrate", help_heading = PRECISION)]
    calibrate_classes: Vec<String>,
}

impl CalibrateArgs {
    /// `true` if images are named.
    pub fn is_wanted(&self) -> bool {
        !self.calibrate.is_empty()
    }

    /// Measures the scales, with graphs in a temporary folder beside `output`.
    pub fn measure(
        &self,
        checkpoint: &Checkpoint,
        options: &ExportOptions,
        output: &Path,
    ) -> anyhow::Result<Calibration> {
        let files = expand_images(&self.calibrate)?;
        let classes = if self.calibrate_classes.is_empty() {
            coco_classes().names().map(str::to_owned).collect()
        } else {
            class_names(&self.calibrate_classes)?
        };
        let factory = EngineFactory::start(&EngineOptions::default())?;
        status(format!("calibrating on {} images with {}", files.len(), factory.description()));
        let progress = Progress::waiting();
        let images = files.iter().enumerate().map(|(at, file)| {
            progress.announce(&format!("calibrating, image {} of {}", at + 1, files.len()));
            interrupted()?;
            Image::open(file)
        });
        let found = calibrate(checkpoint, options, &factory, folder_of(output), images, &classes);
        drop(progress);
        unless_interrupted(found)
    }
}
