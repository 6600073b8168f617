//! `ocelli doctor`.

mod nvidia;
mod openvino;
mod video;
mod webgpu;

use std::env::consts::{ARCH, OS};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use ocelli::engines::library::{Candidate, Finding, Place};
use ocelli::engines::onnxruntime::{self, OnnxRuntime, default_threads};
use ocelli::{
    Detector, EngineKind, Image, Prompts,
    cache::cache_folder,
    engine::{EngineFactory, EngineOptions},
    options::DetectorOptions,
    stages::TextCacheFile,
};

use super::cache::bytes_in;
use crate::args::MODEL;
use crate::print;

/// Arguments of `ocelli doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// ONNX Runtime library [default: searched]
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    onnxruntime: Option<PathBuf>,
    /// OpenVINO library or its folder [default: searched]
    #[arg(long, value_name = "PATH", help_heading = MODEL)]
    openvino: Option<PathBuf>,
    /// Library of ONNX Runtime's WebGPU provider or its folder [default: searched]
    #[arg(long, value_name = "PATH", help_heading = MODEL)]
    webgpu: Option<PathBuf>,
    /// TensorRT library or its folder [default: searched]
    #[arg(long, value_name = "PATH", help_heading = MODEL)]
    tensorrt: Option<PathBuf>,
}

/// Prints which engines and libraries work. Fails if ONNX Runtime is installed and does not work, or the built-in model does
/// not.
pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let start = |kind| {
        let onnxruntime = args.onnxruntime.clone();
        EngineFactory::start(&EngineOptions { kind, onnxruntime, ..EngineOptions::default() })
    };
    let is_installed = onnxruntime::LIBRARY.find(args.onnxruntime.as_deref()).is_some();
    let embedded = start(EngineKind::Embedded)?;
    let engine = is_installed.then(|| start(EngineKind::Cpu)).transpose();
    let providers = match &engine {
        Ok(Some(_)) => built_in_providers(args.onnxruntime.as_deref()),
        _ => Vec::new(),
    };
    let model = engine.as_ref().ok().map(|_| try_model(args));
    print(|out| {
        writeln!(out, "ocelli {} on {OS} {ARCH}", env!("CARGO_PKG_VERSION"))?;
        writeln!(out, "\nengines")?;
        writeln!(out, "  embedded        works: {}", embedded.description())?;
        match &engine {
            Ok(Some(engine)) => writeln!(out, "  onnxruntime     works: {}", engine.description())?,
            Ok(None) => writeln!(out, "  onnxruntime     not installed: {ONNXRUNTIME_GAIN}")?,
            Err(_) => writeln!(out, "  onnxruntime     does not work, see the error below")?,
        }
        openvino::write_engine(out, args.openvino.as_deref())?;
        for (name, provider, remedy) in PROVIDERS {
            let state = if !matches!(engine, Ok(Some(_))) {
                "needs ONNX Runtime".to_owned()
            } else if !providers.iter().any(|built_in| built_in == provider) {
                format!("not in this ONNX Runtime: {remedy}")
            } else {
                match name.parse().and_then(&start) {
                    Ok(engine) => format!("works: {}", engine.description()),
                    Err(e) => format!("does not start: {e}"),
                }
            };
            writeln!(out, "  {name:<15} {state}")?;
        }
        webgpu::write_engine(out, args.webgpu.as_deref())?;
        writeln!(out, "\nONNX Runtime")?;
        write_places(out, &onnxruntime::LIBRARY.candidates(args.onnxruntime.as_deref()))?;
        webgpu::write_library(out, args.webgpu.as_deref())?;
        openvino::write_library(out, args.openvino.as_deref())?;
        nvidia::write(out, args.tensorrt.as_deref())?;
        video::write(out)?;
        writeln!(out)?;
        match &model {
            Some(Ok((ms, engine))) => {
                writeln!(
                    out,
                    "built-in model    works: {ms:.0} ms per image with {engine}, which auto uses"
                )?;
            }
            Some(Err(_)) => writeln!(out, "built-in model    does not work, see the error below")?,
            None => writeln!(out, "built-in model    not tried")?,
        }
        writeln!(out, "threads           {} (default)", default_threads())?;
        match cache_folder() {
            Ok(folder) => {
                let (path, size) = (folder.display(), bytes_in(&folder) as f64 / 1e6);
                writeln!(
                    out,
                    "cache             {path}, {size:.1} MB; `ocelli cache` lists and removes what is in it"
                )
            }
            Err(e) => writeln!(out, "cache             {e}"),
        }
    })?;
    engine?;
    model.transpose()?;
    Ok(())
}

/// What ONNX Runtime's library would change, and where to get it.
const ONNXRUNTIME_GAIN: &str = "it is somewhat faster than embedded; run `make setup` in the source tree, or \
                                `pip install onnxruntime==1.31.1`";

/// Engines that are providers of ONNX Runtime: our name, ONNX Runtime's name, and the library to install.
const PROVIDERS: [(&str, &str, &str); 3] = [
    ("cuda", "CUDAExecutionProvider", "install the package onnxruntime-gpu"),
    ("onnxruntime-tensorrt", "TensorrtExecutionProvider", "install the package onnxruntime-gpu"),
    ("coreml", "CoreMLExecutionProvider", "macOS only"),
];

/// The providers that the library was built with; empty if they cannot be read.
fn built_in_providers(library: Option<&Path>) -> Vec<String> {
    let providers = OnnxRuntime::load(library).and_then(|runtime| runtime.providers());
    providers.unwrap_or_else(|e| {
        tracing::warn!("{e}");
        Vec::new()
    })
}

/// What was found, in words.
fn described(finding: &Finding) -> String {
    match finding {
        Finding::Usable { version } => format!("version {version}"),
        Finding::Unusable { reason } => format!("cannot be used: {reason}"),
        other => format!("{other:?}"),
    }
}

/// Writes which libraries were found and where; system folders without one are only counted.
fn write_places(out: &mut dyn Write, candidates: &[Candidate]) -> std::io::Result<()> {
    let mut used = false;
    for Candidate { place, path, finding } in candidates {
        if *finding == Finding::Missing {
            continue;
        }
        // The first library found is used, whether it works or not.
        let label = if used { "not used" } else { "used" };
        used = true;
        writeln!(out, "  {label:<15} {} ({place}), {}", path.display(), described(finding))?;
    }
    let missing = |system: bool| {
        let places = candidates.iter().filter(move |c| (c.place == Place::System) == system);
        places.filter(|c| c.finding == Finding::Missing)
    };
    for candidate in missing(false) {
        writeln!(out, "  not found in    {} ({})", candidate.path.display(), candidate.place)?;
    }
    match missing(true).count() {
        0 => Ok(()),
        count => writeln!(out, "  not found in    {count} system folders"),
    }
}

/// Detects in a grey image with the built-in model; returns the milliseconds of the second run, and the engine.
fn try_model(args: &DoctorArgs) -> ocelli::Result<(f64, String)> {
    let engine = EngineOptions { onnxruntime: args.onnxruntime.clone(), ..EngineOptions::default() };
    let options = DetectorOptions { engine, text_cache: TextCacheFile::None, ..DetectorOptions::default() };
    let mut detector = Detector::with(options).build()?;
    let image = Image::from_rgb8(64, 64, vec![128; 64 * 64 * 3])?;
    let prompts = Prompts::new(["dog"])?;
    detector.detect(&image, &prompts)?;
    let ms = detector.detect(&image, &prompts)?.times.total;
    Ok((ms, detector.engine().to_owned()))
}
