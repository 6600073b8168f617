//! Adds a provider to a session, and explains why one cannot start.

use super::OnnxRuntime;
use super::call;
use super::provider::{CoreMlOptions, CudaOptions, ExecutionProvider, OtherProvider};
use super::webgpu;
use crate::model_file::cache_folder;
use ocelli_error::{Error, Result};
use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{
    ArbitrarilyConfigurableExecutionProvider, ArenaExtendStrategy, ExecutionProviderDispatch, coreml,
};
use ort::ep::{CPU, CUDA, CoreML};
use ort::session::builder::SessionBuilder;

/// Adds the provider to the session.
pub(super) fn register(
    runtime: &OnnxRuntime,
    mut session: SessionBuilder,
    provider: &ExecutionProvider,
    memory_arena: bool,
) -> Result<SessionBuilder> {
    let unavailable = |error: ort::Error| cannot_start(provider, runtime, error.message());
    let dispatches = match provider {
        ExecutionProvider::Cpu => Vec::new(),
        ExecutionProvider::Cuda(options) => vec![cuda(options).build()],
        ExecutionProvider::CoreMl(options) => vec![coreml(options)?.build()],
        ExecutionProvider::WebGpu(other) | ExecutionProvider::Other(other) => {
            session = register_other(runtime, session, other).map_err(unavailable)?;
            Vec::new()
        }
    };
    let cpu = CPU::default().with_arena_allocator(memory_arena).build();
    let dispatches: Vec<ExecutionProviderDispatch> =
        dispatches.into_iter().chain([cpu]).map(ExecutionProviderDispatch::error_on_failure).collect();
    session.with_execution_providers(dispatches).map_err(|error| unavailable(error.into()))
}

fn cuda(options: &CudaOptions) -> CUDA {
    // ONNX Runtime's `AttentionBackend`: its choice, or every kernel but EFFICIENT_ATTENTION.
    let attention = if options.no_efficient_attention { 255 - 2 } else { 0 };
    CUDA::default()
        .with_arbitrary_config("sdpa_kernel", attention)
        .with_arbitrary_config("device_id", options.ordinal)
        .with_tf32(options.tf32)
        // The default tries every algorithm of every convolution before the first image.
        .with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic)
        // The buffers of a model have the same few sizes in every run: doubling would reserve memory that is never used.
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        // Outputs may have another address in every run, and a recorded graph keeps the addresses.
        .with_cuda_graph(false)
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
    let environment = runtime.environment();
    let device = environment.devices().find(|device| device.ep().is_ok_and(|name| name == other.name));
    let Some(device) = device else {
        let found = "the provider's library found no device that it supports; it needs a GPU and its driver";
        return Err(ort::Error::new(found));
    };
    let options: Vec<_> =
        other.options.iter().map(|(key, value)| (format!("{}.{key}", other.name), value.clone())).collect();
    Ok(session.with_devices([device], Some(&options))?)
}

/// An error of one line: the provider, the library, the reason that ONNX Runtime or the loader gives, and the remedy.
pub(super) fn cannot_start(provider: &ExecutionProvider, runtime: &OnnxRuntime, reason: &str) -> Error {
    let (reason, path) = (short_reason(reason), runtime.path().display());
    let remedy = remedy(provider, &reason);
    Error::unavailable(format!("cannot start {provider}, {path}: {reason}{remedy}"))
}

/// `true` if an error comes from the provider and not from the model.
pub(super) fn is_provider_failure(provider: &ExecutionProvider, error: &ort::Error) -> bool {
    let failures = ["CUDA failure", "CUDA error", "CUBLAS failure", "CUBLAS error"];
    provider.cuda_ordinal().is_some() && failures.iter().any(|failure| error.message().contains(failure))
}

/// The reason, without the location in ONNX Runtime's source and the stack trace.
fn short_reason(reason: &str) -> String {
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
            ExecutionProvider::CoreMl(_) => "; only ONNX Runtime's builds for macOS have Core ML",
            _ if nvidia => {
                "; use a library that was built with it, such as that of the package `onnxruntime-gpu`"
            }
            _ => "",
        }
    } else if let ExecutionProvider::WebGpu(_) = provider {
        webgpu::remedy(reason)
    } else if missing && reason.contains("libcuda.so") {
        "; install NVIDIA's driver"
    } else if missing && nvidia && !lacks_another_library(reason) {
        "; the package `onnxruntime-gpu` has it: put it beside ONNX Runtime's library"
    } else if missing && nvidia {
        "; install CUDA 13's libraries (the packages nvidia-cublas, nvidia-cuda-runtime and nvidia-curand have them) \
         and add their folders to LD_LIBRARY_PATH"
    } else if reason.starts_with("CUDA failure") {
        "; check that NVIDIA's driver is installed and new enough, and that nvidia-smi lists the GPU"
    } else {
        ""
    }
}

/// `true` if the missing library is one that the provider needs, and not the provider's own.
fn lacks_another_library(reason: &str) -> bool {
    reason.split_whitespace().any(|word| {
        word.starts_with("lib") && word.contains(".so") && !word.contains("onnxruntime_providers")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_loader_and_driver_have_a_remedy() {
        let cuda = ExecutionProvider::Cuda(CudaOptions::default());
        let core_ml = ExecutionProvider::CoreMl(CoreMlOptions::default());
        let folder = "Failed to load library /lib/ort/libonnxruntime_providers_";
        let missing = "cannot open shared object file: No such file or directory";
        // Messages of ONNX Runtime 1.31.1 and glibc.
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
        for (provider, message, expected, expected_remedy) in cases {
            let (short, remedy) = (short_reason(&message), remedy(provider, &short_reason(&message)));
            let is_cut =
                short.len() <= message.len() && !short.contains(" ; ") && !short.ends_with(['.', ' ']);
            if !short.contains(expected)
                || !is_cut
                || !remedy.contains(expected_remedy)
                || expected_remedy.is_empty() != remedy.is_empty()
            {
                wrong.push(format!("{message}\n  {short}\n  {remedy}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
