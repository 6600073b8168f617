//! `ocelli doctor`.

use std::env::consts::{ARCH, OS};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use ocelli::engines::cuda::{CudaDevice, Nvrtc};
use ocelli::engines::library::{Candidate, Finding, Place};
use ocelli::engines::onnxruntime::{self, OnnxRuntime, default_threads};
use ocelli::engines::openvino::{self, OpenVino};
use ocelli::engines::tensorrt::{self, Product};
use ocelli::engines::webgpu::{self, ALLOW_SOFTWARE, AdapterKind, WebGpu, adapters};
use ocelli::{
    Detector, EngineKind, Image, Prompts,
    cache::{cache_folder, visit_files},
    engine::{AdapterVerdict, EngineFactory, EngineOptions},
    options::DetectorOptions,
    sink::{video_formats, window_library},
    source::{check_cameras, video_library},
    stages::TextCacheFile,
};

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
        let openvino = OpenVino::load(args.openvino.as_deref());
        let openvino = openvino.map(|runtime| format!("works: OpenVINO {}", runtime.version()));
        let openvino = openvino.unwrap_or_else(|e| format!("does not work: {e}"));
        writeln!(out, "  openvino        {openvino}")?;
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
        writeln!(out, "  webgpu          {}", webgpu_adapter(args.webgpu.as_deref()))?;
        writeln!(out, "\nONNX Runtime")?;
        write_places(out, &onnxruntime::LIBRARY.candidates(args.onnxruntime.as_deref()))?;
        write_webgpu(out, args.webgpu.as_deref())?;
        write_openvino(out, args.openvino.as_deref())?;
        write_nvidia(out, args.tensorrt.as_deref())?;
        write_video(out)?;
        writeln!(out)?;
        let tried = match &model {
            Some(Ok((ms, engine))) => format!("works: {ms:.0} ms per image with {engine}, which auto uses"),
            Some(Err(_)) => "does not work, see the error below".to_owned(),
            None => "not tried".to_owned(),
        };
        writeln!(out, "built-in model    {tried}")?;
        writeln!(out, "threads           {} (default)", default_threads())?;
        writeln!(out, "cache             {}", cache().unwrap_or_else(|e| e.to_string()))
    })?;
    engine?;
    model.transpose()?;
    Ok(())
}

/// What the cache takes.
fn cache() -> ocelli::Result<String> {
    let (folder, mut bytes) = (cache_folder()?, 0);
    visit_files(&folder, &mut |meta| bytes += meta.len());
    let (path, size) = (folder.display(), bytes as f64 / 1e6);
    Ok(format!("{path}, {size:.1} MB; `ocelli cache` lists and removes what is in it"))
}

/// The gain of ONNX Runtime's library, and where to get it.
const ONNXRUNTIME_GAIN: &str = "it is somewhat faster than embedded; run `make setup` in the source tree, or \
                                `pip install onnxruntime==1.31.1`";

/// Engines that are providers of ONNX Runtime: our name, ONNX Runtime's name, and the library to install.
const PROVIDERS: [(&str, &str, &str); 2] = [
    ("cuda", "CUDAExecutionProvider", "install the package onnxruntime-gpu"),
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

/// A finding, in words.
fn described(finding: &Finding) -> String {
    match finding {
        Finding::Usable { version } => format!("version {version}"),
        Finding::Unusable { reason } => format!("cannot be used: {reason}"),
        other => format!("{other:?}"),
    }
}

/// Writes which libraries were found and where; system folders without one are only counted.
fn write_places(out: &mut dyn Write, candidates: &[Candidate]) -> io::Result<()> {
    let found = candidates.iter().filter(|candidate| candidate.finding != Finding::Missing);
    for (number, Candidate { place, path, finding }) in found.enumerate() {
        // The first library found is used, whether it works or not.
        let label = if number == 0 { "used" } else { "not used" };
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

/// Writes where the library is, and the devices with the number formats in which they are fast.
fn write_openvino(out: &mut dyn Write, path: Option<&Path>) -> io::Result<()> {
    writeln!(out, "\nOpenVINO")?;
    write_places(out, &openvino::LIBRARY.candidates(path))?;
    // Why there are none is in the list of engines.
    for device in OpenVino::load(path).and_then(|runtime| runtime.devices()).unwrap_or_default() {
        let formats = device.number_formats.join(", ");
        writeln!(out, "  {:<15} {}; number formats: {formats}", device.name, device.product)?;
    }
    Ok(())
}

/// A line that says if an adapter can be used. No model runs: the adapter is compared with the CPU when it is first used.
fn webgpu_adapter(path: Option<&Path>) -> String {
    let found = WebGpu::load(path).and_then(|webgpu| {
        let (_, adapter) = webgpu.provider_and_adapter(0)?;
        Ok(format!("can be used: WebGPU {}, {}", webgpu.version(), adapter.name))
    });
    found.unwrap_or_else(|e| format!("cannot be used: {e}"))
}

/// Writes where the library is, the adapters, and which adapters were compared with the CPU.
fn write_webgpu(out: &mut dyn Write, path: Option<&Path>) -> io::Result<()> {
    writeln!(out, "\nWebGPU")?;
    write_places(out, &webgpu::LIBRARY.candidates(path))?;
    // `write_webgpu_engine` has said why there is none.
    let adapters = adapters().unwrap_or_default();
    let verdicts = AdapterVerdict::remembered();
    for (ordinal, adapter) in adapters.iter().enumerate() {
        let is_software = adapter.kind == AdapterKind::Software;
        let software =
            if is_software { format!(", used only with {ALLOW_SOFTWARE}=1") } else { String::new() };
        let label = format!("adapter {ordinal}");
        writeln!(out, "  {label:<15} {} ({}{software})", adapter.name, adapter.kind)?;
        let identity = adapter.identity();
        let mut of_this =
            verdicts.iter().filter(|verdict| Some(&verdict.adapter) == identity.as_ref()).peekable();
        if of_this.peek().is_none() {
            writeln!(out, "  {:<15} not yet compared with the CPU, which its first use does", "")?;
        }
        of_this.try_for_each(|verdict| writeln!(out, "  {:<15} {}", "", verdict_line(verdict)))?;
    }
    Ok(())
}

fn verdict_line(verdict: &AdapterVerdict) -> String {
    let what = if verdict.is_accepted() { "right" } else { "WRONG" };
    let worst = verdict
        .worst()
        .map_or_else(String::new, |(output, error)| format!(", largest error {error:.1e} in {output}"));
    format!(
        "{what}{worst} (built-in model of {} px, provider {}, ONNX Runtime {})",
        verdict.imgsz, verdict.provider, verdict.onnxruntime
    )
}

/// Writes what `--trt` and `ocelli build-engine` need and which parts are installed.
fn write_nvidia(out: &mut dyn Write, library: Option<&Path>) -> io::Result<()> {
    writeln!(out, "\nNVIDIA")?;
    write_gpus(out)?;
    writeln!(out, "\nTensorRT")?;
    write_places(out, &tensorrt::LIBRARY.candidates(library))?;
    for product in Product::ALL {
        let what = match product.part() {
            None => "not found; `make tensorrt` in the source tree builds it".to_owned(),
            Some(Candidate { place, path, finding }) => {
                format!("{} ({place}), {}", path.display(), described(&finding))
            }
        };
        writeln!(out, "  Ocelli's part for {product}: {what}")?;
    }
    Ok(())
}

fn write_gpus(out: &mut dyn Write) -> io::Result<()> {
    let count = match CudaDevice::count() {
        Ok(count) => count,
        Err(reason) => return writeln!(out, "  driver          {reason}"),
    };
    for ordinal in 0..count {
        let device = match CudaDevice::open(ordinal) {
            Ok(device) => device,
            Err(reason) => {
                writeln!(out, "  GPU {ordinal:<11} {reason}")?;
                continue;
            }
        };
        if ordinal == 0 {
            writeln!(out, "  driver          supports CUDA {}", device.driver_version())?;
        }
        let (major, minor) = device.compute_capability();
        let memory = match device.memory() {
            Ok(memory) => {
                format!("{:.1} of {:.1} GB free", memory.free as f64 / 1e9, memory.total as f64 / 1e9)
            }
            Err(reason) => reason.to_string(),
        };
        let name = device.name().split(" (CUDA device").next().unwrap_or_default();
        writeln!(out, "  GPU {ordinal:<11} {name}, compute capability {major}.{minor}, {memory}")?;
    }
    if count == 0 {
        writeln!(out, "  GPU             none visible; see CUDA_VISIBLE_DEVICES")?;
    }
    match Nvrtc::open().map(|nvrtc| nvrtc.version()) {
        Ok((major, minor)) => writeln!(out, "  kernel compiler NVRTC {major}.{minor}"),
        Err(why) => writeln!(out, "  kernel compiler {why}; images are preprocessed on the CPU"),
    }
}

/// Writes what reads and writes videos, and which cameras there are.
fn write_video(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nvideo")?;
    if let Some(videos) = ocelli::videos::replacement() {
        return match videos.library() {
            Some(library) => writeln!(out, "  reads, writes   {library}"),
            None => writeln!(
                out,
                "  not installed: `pip install \"ocelli-vision[video]\"`; folders of images and raw frames work"
            ),
        };
    }
    let library = match video_library() {
        Ok(library) => library,
        Err(e) => return writeln!(out, "  not usable: {e}"),
    };
    writeln!(out, "  reads           {library}")?;
    match video_formats().join(", ") {
        none if none.is_empty() => writeln!(out, "  writes          no video: this FFmpeg has no encoders")?,
        formats => writeln!(out, "  writes          {formats}")?,
    }
    match (check_cameras(), cameras()) {
        (Err(e), _) => writeln!(out, "  cameras         not usable: {e}; files and streams work without")?,
        (Ok(()), None) => {}
        (Ok(()), Some(cameras)) if cameras.is_empty() => writeln!(out, "  cameras         none")?,
        (Ok(()), Some(cameras)) => writeln!(out, "  cameras         {}", cameras.join(", "))?,
    }
    match window_library() {
        Ok(library) => writeln!(out, "  windows         {library}"),
        Err(e) => writeln!(out, "  windows         not usable: {e}"),
    }
}

/// The cameras that Linux lists: number and name. `None` on other systems.
fn cameras() -> Option<Vec<String>> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let entries = std::fs::read_dir("/sys/class/video4linux").into_iter().flatten().flatten();
    let mut found: Vec<(u32, String)> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("video")?.parse().ok()?;
            let name = std::fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            Some((number, name.trim().to_owned()))
        })
        .collect();
    found.sort();
    Some(found.into_iter().map(|(number, name)| format!("{number} ({name})")).collect())
}
