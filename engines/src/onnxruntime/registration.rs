//! How a provider is told to a session, and what to do where it cannot start.

use super::OnnxRuntime;
use super::call;
use super::graph::Graph;
use super::provider::{CoreMlOptions, CudaOptions, ExecutionProvider, OtherProvider, TensorRtOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::Dim;
use ort::ep::{
    ArbitrarilyConfigurableExecutionProvider, ArenaExtendStrategy, ExecutionProviderDispatch, coreml,
};
use ort::ep::{CPU, CUDA, CoreML, TensorRT};
use ort::session::builder::SessionBuilder;
use std::path::Path;

/// Adds the provider to the session's. `graph` is the model, for those that need its shapes.
pub(super) fn register(
    runtime: &OnnxRuntime,
    mut session: SessionBuilder,
    provider: &ExecutionProvider,
    memory_arena: bool,
    graph: &dyn Fn() -> Result<Graph>,
) -> Result<SessionBuilder> {
    let unavailable = |error: ort::Error| cannot_start(provider, runtime, error.message());
    let dispatches = match provider {
        ExecutionProvider::Cpu => Vec::new(),
        ExecutionProvider::Cuda(options) => vec![cuda(options).build()],
        ExecutionProvider::TensorRt(options) => {
            vec![tensorrt(options, graph)?.build(), cuda(&options.cuda).build()]
        }
        ExecutionProvider::CoreMl(options) => vec![coreml(options)?.build()],
        ExecutionProvider::Other(other) => {
            session = register_other(runtime, session, other).map_err(unavailable)?;
            Vec::new()
        }
    };
    let processor = CPU::default().with_arena_allocator(memory_arena).build();
    let dispatches: Vec<ExecutionProviderDispatch> =
        dispatches.into_iter().chain([processor]).map(ExecutionProviderDispatch::error_on_failure).collect();
    session.with_execution_providers(dispatches).map_err(|error| unavailable(error.into()))
}

fn cuda(options: &CudaOptions) -> CUDA {
    let cuda = CUDA::default()
        .with_arbitrary_config("device_id", options.ordinal)
        .with_tf32(options.tf32)
        // Buffers of one model have the same few sizes in every run: doubling would hold memory that nobody uses.
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        // Outputs may be given another address in every run, which a recorded graph could not follow.
        .with_cuda_graph(false);
    match options.memory_limit_bytes {
        Some(bytes) => cuda.with_memory_limit(bytes),
        None => cuda,
    }
}

fn tensorrt(options: &TensorRtOptions, graph: &dyn Fn() -> Result<Graph>) -> Result<TensorRT> {
    let mut tensorrt = TensorRT::default()
        .with_arbitrary_config("device_id", options.cuda.ordinal)
        .with_fp16(false)
        .with_bf16(false)
        .with_int8(false)
        .with_cuda_graph(false);
    if let Some(folder) = &options.engine_cache {
        let folder = cache_folder(folder)?;
        tensorrt = tensorrt
            .with_engine_cache(true)
            .with_engine_cache_path(&folder)
            .with_timing_cache(true)
            .with_timing_cache_path(&folder);
    }
    if let Some(level) = options.builder_level {
        tensorrt = tensorrt.with_builder_optimization_level(level);
    }
    if let Some(nodes) = options.least_nodes {
        tensorrt = tensorrt.with_min_subgraph_size(nodes);
    }
    if let Some(bytes) = options.workspace_bytes {
        tensorrt = tensorrt.with_max_workspace_size(bytes);
    }
    if !options.dimensions.is_empty() {
        let [min, optimal, max] = profile(options, &graph()?)?;
        tensorrt = tensorrt
            .with_profile_min_shapes(min)
            .with_profile_opt_shapes(optimal)
            .with_profile_max_shapes(max);
    }
    Ok(tensorrt)
}

/// `name:1x3x8,…` of each input that has a named dimension, for the least, the usual and the greatest sizes.
fn profile(options: &TensorRtOptions, graph: &Graph) -> Result<[String; 3]> {
    let mut texts = [const { String::new() }; 3];
    for input in graph.inputs.iter().filter(|input| input.dims.iter().any(|dim| matches!(dim, Dim::Named(_))))
    {
        let mut shapes = [const { Vec::new() }; 3];
        for dim in &input.dims {
            let sizes = match dim {
                Dim::Fixed(size) => [*size; 3],
                Dim::Named(name) => {
                    let range = options.dimensions.get(name).ok_or_else(|| {
                        let message = format!(
                            "TensorRT: no range for dimension `{name}` of input `{}`: give one to every named \
                             dimension, or to none",
                            input.name
                        );
                        Error::new(ErrorKind::InvalidArgument, message)
                    })?;
                    [range.min, range.optimal, range.max]
                }
            };
            shapes.iter_mut().zip(sizes).for_each(|(shape, size)| shape.push(size.to_string()));
        }
        for (text, shape) in texts.iter_mut().zip(shapes) {
            let comma = if text.is_empty() { "" } else { "," };
            *text += &format!("{comma}{}:{}", input.name, shape.join("x"));
        }
    }
    Ok(texts)
}

fn coreml(options: &CoreMlOptions) -> Result<CoreML> {
    let coreml = CoreML::default()
        .with_model_format(coreml::ModelFormat::MLProgram)
        .with_static_input_shapes(true)
        .with_compute_units(coreml::ComputeUnits::All);
    Ok(match &options.model_cache {
        Some(folder) => coreml.with_model_cache_dir(cache_folder(folder)?),
        None => coreml,
    })
}

fn register_other(
    runtime: &OnnxRuntime,
    mut session: SessionBuilder,
    other: &OtherProvider,
) -> ort::Result<SessionBuilder> {
    let Some(library) = &other.library else {
        call::append_provider(&mut session, &other.name, &other.options)?;
        return Ok(session);
    };
    runtime.register_provider_library(library)?;
    let devices: Vec<_> = runtime
        .environment()
        .devices()
        .filter(|device| device.ep().is_ok_and(|provider| provider == other.name))
        .collect();
    let Some(device) = devices.into_iter().next() else {
        let found =
            "the library was loaded and found no device that it can use: a GPU and its driver are needed";
        return Err(ort::Error::new(found));
    };
    let options: Vec<_> =
        other.options.iter().map(|(key, value)| (format!("{}.{key}", other.name), value.clone())).collect();
    Ok(session.with_devices([device], Some(&options))?)
}

/// The folder, made where it is missing, as providers take it.
fn cache_folder(folder: &Path) -> Result<String> {
    let unusable = |reason: &dyn std::fmt::Display| {
        let message = format!("cannot keep compiled models, {}: {reason}", folder.display());
        Error::new(ErrorKind::InvalidArgument, message)
    };
    std::fs::create_dir_all(folder).map_err(|error| unusable(&error).with_source(error))?;
    folder.to_str().map(str::to_owned).ok_or_else(|| unusable(&"its name is not Unicode"))
}

/// One line: which provider, which library, what ONNX Runtime or the loader said, and what to do about it.
pub(super) fn cannot_start(provider: &ExecutionProvider, runtime: &OnnxRuntime, reason: &str) -> Error {
    let (reason, path) = (essence(reason), runtime.path().display());
    let remedy = remedy(provider, &reason);
    let message = format!("cannot start {provider}, {path}: {reason}{remedy}");
    Error::new(ErrorKind::Unavailable, message)
}

/// Whether it is the provider that failed, not the model.
pub(super) fn is_of_provider(provider: &ExecutionProvider, error: &ort::Error) -> bool {
    let words = ["CUDA failure", "CUDA error", "CUBLAS failure", "CUBLAS error"];
    provider.cuda_ordinal().is_some() && words.iter().any(|word| error.message().contains(word))
}

/// What was said, without where in ONNX Runtime's source it was said and without the functions on the way.
fn essence(reason: &str) -> String {
    let mut reason = reason.trim();
    // "/onnxruntime_src/…/provider_bridge_ort.cc:2143 onnxruntime::Provider& onnxruntime::…::Get() [ONNXRuntimeError] …"
    if let Some((_, after)) = reason.rsplit_once("[ONNXRuntimeError] : ") {
        reason = after.splitn(3, " : ").last().unwrap_or(after).trim();
    }
    // "… CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version ; GPU=-1 ; hostname=… ; file=…"
    if let Some(start) = reason.find("CUDA failure") {
        let rest = &reason[start..];
        reason = rest.split_once(" ; ").map_or(rest, |(what, _)| what);
    }
    reason.trim_end_matches(['.', ' ', ';']).to_owned()
}

fn remedy(provider: &ExecutionProvider, reason: &str) -> &'static str {
    let nvidia = provider.cuda_ordinal().is_some();
    let missing = reason.contains("cannot open shared object file");
    if reason.contains("not enabled in this build") || reason.contains("not supported in this build") {
        match provider {
            ExecutionProvider::CoreMl(_) => "; Core ML is in ONNX Runtime's builds for macOS alone",
            _ if nvidia => "; use a library that was built with it: the one in the package `onnxruntime-gpu`",
            _ => "",
        }
    } else if missing && reason.contains("libcuda.so") {
        "; install NVIDIA's driver"
    } else if missing && nvidia && !lacks_another_library(reason) {
        "; it belongs beside ONNX Runtime's library: the package `onnxruntime-gpu` has it"
    } else if missing && reason.contains("libnvinfer") {
        "; install TensorRT 10 and put its folder into LD_LIBRARY_PATH"
    } else if missing && nvidia {
        "; install CUDA 13's libraries (the packages nvidia-cublas, nvidia-cuda-runtime and nvidia-curand have them; \
         TensorRT wants nvidia-cudnn-cu13 as well) and put their folders into LD_LIBRARY_PATH"
    } else if reason.starts_with("CUDA failure") {
        "; see that NVIDIA's driver is installed and new enough, and that nvidia-smi lists the GPU"
    } else {
        ""
    }
}

/// Whether the loader missed a library that the provider needs, not the provider itself.
fn lacks_another_library(reason: &str) -> bool {
    reason.split_whitespace().any(|word| {
        word.starts_with("lib") && word.contains(".so") && !word.contains("onnxruntime_providers")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loader_and_the_driver_say_has_a_remedy() {
        let cuda = ExecutionProvider::Cuda(CudaOptions::default());
        let tensorrt = ExecutionProvider::TensorRt(TensorRtOptions::default());
        let core_ml = ExecutionProvider::CoreMl(CoreMlOptions::default());
        let folder = "Failed to load library /lib/ort/libonnxruntime_providers_";
        let missing = "cannot open shared object file: No such file or directory";
        // As ONNX Runtime 1.31.1 and glibc say it.
        let cases = [
            (
                &cuda,
                "CUDA execution provider is not enabled in this build. ".to_owned(),
                "CUDA execution provider is not enabled in this build",
                "`onnxruntime-gpu`",
            ),
            (
                &cuda,
                format!("{folder}shared.so with error: /lib/ort/libonnxruntime_providers_shared.so: {missing}"),
                "Failed to load library /lib/ort/libonnxruntime_providers_shared.so with error",
                "beside ONNX Runtime's library",
            ),
            (
                &cuda,
                format!("{folder}cuda.so with error: libcublasLt.so.13: {missing}"),
                "libcublasLt.so.13: cannot open shared object file: No such file or directory",
                "nvidia-cublas",
            ),
            (
                &cuda,
                format!("{folder}cuda.so with error: libcuda.so.1: {missing}"),
                "libcuda.so.1",
                "install NVIDIA's driver",
            ),
            (
                &tensorrt,
                format!("{folder}tensorrt.so with error: libnvinfer.so.10: {missing}"),
                "libnvinfer.so.10",
                "install TensorRT 10",
            ),
            (
                &cuda,
                "provider_options_utils.h:187 Parse Failed to parse provider option \"device_id\": CUDA failure 35: \
                 CUDA driver version is insufficient for CUDA runtime version ; GPU=-1 ; hostname=vm ; \
                 file=/onnxruntime_src/x.cc ; line=70 ; expr=cudaGetDeviceCount(&num_devices);"
                    .to_owned(),
                "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
                "nvidia-smi lists the GPU",
            ),
            (
                &core_ml,
                "CoreML execution provider is not supported in this build. ".to_owned(),
                "CoreML execution provider is not supported in this build",
                "macOS",
            ),
            (
                &cuda,
                "/src/provider_bridge_ort.cc:2143 onnxruntime::Provider& Get() [ONNXRuntimeError] : 1 : FAIL : it broke"
                    .to_owned(),
                "it broke",
                "",
            ),
        ];
        let mut wrong = Vec::new();
        for (provider, said, expected, cure) in cases {
            let (short, remedy) = (essence(&said), remedy(provider, &essence(&said)));
            let is_cut = short.len() <= said.len() && !short.contains(" ; ") && !short.ends_with(['.', ' ']);
            if !short.contains(expected)
                || !is_cut
                || !remedy.contains(cure)
                || cure.is_empty() != remedy.is_empty()
            {
                wrong.push(format!("{said}\n  {short}\n  {remedy}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
