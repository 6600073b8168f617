//! `ocelli eval --calibrate-screen`.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use ocelli::builtin::vocabulary;
use ocelli::{
    Image, ModelSource, Prompts, Result, StageTimes,
    options::DetectorOptions,
    stages::{DecodeRequest, ImageFeatures, ScreenCalibration, Screening, Stages, Wanted},
};
use ocelli_verify::scenes::{SceneGenerator, SceneOptions};

use super::EvalArgs;
use crate::args::expand_images;
use crate::{Progress, detector, interrupted, load, print, status};

/// The scenes are none of those on which `--scenes` evaluates.
const SEED: u64 = 77;

/// The share of the detections that is kept by default.
pub const KEEP: f64 = 0.995;

/// An image of the calibration: its name, and what reads or draws it.
type NamedImage = (String, Box<dyn Fn() -> Result<Image>>);

/// The images of the folder, or the scenes.
fn images(args: &EvalArgs, folder: Option<&Path>) -> anyhow::Result<Vec<NamedImage>> {
    let most = args.max_images.unwrap_or(usize::MAX);
    match (folder, args.scenes) {
        (Some(folder), None) => {
            let files = expand_images(&[folder.to_owned()])?.into_iter().take(most);
            let of_file = |file: PathBuf| -> NamedImage {
                (file.display().to_string(), Box::new(move || Image::open(&file)))
            };
            Ok(files.map(of_file).collect())
        }
        (None, Some(count)) => {
            let generator = Rc::new(SceneGenerator::new(SEED, SceneOptions::default())?);
            let scene = |number: u64| -> NamedImage {
                let generator = generator.clone();
                (format!("scene {number}"), Box::new(move || Ok(generator.scene(number).image)))
            };
            Ok((0..u64::from(count)).take(most).map(scene).collect())
        }
        _ => refuse!("--calibrate-screen needs a folder of images, or --scenes for the built-in model"),
    }
}

/// Finds the threshold of the first pass on images and writes it beside the model.
pub fn calibrate(args: &EvalArgs, folder: Option<&Path>) -> anyhow::Result<()> {
    let is_built_in = args.model.source() == ModelSource::Builtin;
    let names: Vec<String> = match (&*args.classes, is_built_in) {
        ([], true) => vocabulary().iter().map(|name| (*name).to_owned()).collect(),
        ([], false) => {
            refuse!("--calibrate-screen needs --classes: the names that you search for");
        }
        (names, _) => names.to_vec(),
    };
    if !(args.screen_keep > 0.0 && args.screen_keep <= 1.0) {
        refuse!("--screen-keep is {}: expected above 0 and at most 1", args.screen_keep);
    }
    let images = images(args, folder)?;
    let prompts = Prompts::new(names.iter().map(String::as_str))?;
    let options = DetectorOptions {
        imgsz: args.imgsz,
        class_chunk: args.class_chunk,
        screening: Some(Screening::At(0.0)),
        confidence: Some(args.confidence),
        ..args.model.options()?
    };
    let (mut detector, loading) = load(detector(options)?)?;
    let prompts = detector.prepare(&prompts)?;
    drop(loading);
    status(format!("engine: {}", detector.engine()));
    let model = detector.model().clone();
    let Stages { mut encoder, mut decoder, .. } = detector.into_stages();
    let (mut features, times) = (ImageFeatures::default(), &mut StageTimes::default());

    let all: Vec<usize> = (0..names.len()).collect();
    let (mut detected, mut scores, mut failed) = (Vec::new(), Vec::new(), 0);
    let progress = Progress::new(images.len() as u64);
    for (name, read) in &images {
        interrupted()?;
        progress.message(name);
        match read() {
            Ok(image) => {
                encoder.encode_into(&image, Wanted::default(), &mut features, times)?;
                let screened = decoder.screen_scores(&features, &prompts, times)?;
                let screened: Vec<f32> = screened.into_iter().flatten().collect();
                let mut found = Vec::new();
                let request = DecodeRequest { classes: Some(&all), ..(&prompts).into() };
                decoder.decode_into(&features, request, times, &mut found)?;
                detected.extend(found.iter().map(|detection| screened[detection.class_id]));
                scores.extend(screened);
            }
            Err(error) => {
                progress.error(&error);
                failed += 1;
            }
        }
        progress.step();
    }
    let read = images.len() - failed;
    if read == 0 {
        refuse!("--calibrate-screen: none of the images could be read");
    }
    let size = (read, names.len());
    let found = ScreenCalibration::new(detected, &scores, size, args.confidence, args.screen_keep)?;
    drop(progress);
    found.save(&model)?;
    print(|out| {
        writeln!(out, "threshold            {:.5}", found.threshold)?;
        writeln!(
            out,
            "detections kept      {:.2} %, at a score of at least {}",
            100.0 * found.kept,
            found.confidence
        )?;
        writeln!(out, "decoded in full      {:.1} of {} classes an image", found.passed, found.classes)
    })?;
    status(format!("→ {}", ScreenCalibration::path(&model).display()));
    match failed {
        0 => Ok(()),
        failed => anyhow::bail!("{failed} of {} images failed: see above", images.len()),
    }
}
