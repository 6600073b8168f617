//! `auto` runs on what a machine has: it takes the first engine of an ordered list that is installed, runs the model's number
//! format and starts, or a GPU of another vendor if it is faster than the engine of the CPU.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};

use ocelli_engines::openvino::{OpenVino, OpenVinoDevice};
use ocelli_engines::{cpu_has_vnni, onnxruntime, openvino};
use ocelli_export::contract::{Precision, Target};

use super::{EngineFactory, EngineKind, EngineOptions, default_provider, load_onnxruntime, speed};
use crate::engine::ModelFormat;
use ocelli_error::{Error, Result};

/// The engines that `auto` tries, best first: `docs/performance.md` has the measurements. The last needs no library.
const CANDIDATES: [EngineKind; 4] =
    [EngineKind::Cuda { ordinal: 0 }, OPENVINO, EngineKind::Cpu, EngineKind::Embedded];

const OPENVINO: EngineKind = EngineKind::OpenVino { device: OpenVinoDevice::Cpu };

impl ModelFormat {
    /// `true` if the engine has the number format, as far as that depends on the engine alone.
    pub(super) fn runs_on(self, kind: EngineKind) -> bool {
        if self.exported.is_some_and(|(precision, _)| precision.is_calibrated()) {
            return kind == EngineKind::Cpu;
        }
        match kind {
            EngineKind::OpenVino { .. } => {}
            // Graphs with ONNX Runtime's fused operators are refused, and it has two number formats.
            EngineKind::WebGpu { .. } => {
                return matches!(self.exported, None | Some((Precision::Fp32, Target::TensorRt)))
                    && self.requested == Precision::Fp32;
            }
            _ => return true,
        }
        match self.exported {
            None | Some((Precision::Fp32, Target::TensorRt)) => self.requested != Precision::Fp16,
            Some((Precision::Int8, Target::TensorRt)) => true,
            // It computes 32-bit graphs in bfloat16; graphs that were exported in 16 bits are for GPUs. ONNX Runtime's fused
            // operators are refused.
            Some(_) => false,
        }
    }
}

/// Starts the best engine of this machine, with a warning for each better one that is installed and does not start.
pub(in crate::engine) fn start(options: &EngineOptions, format: ModelFormat) -> Result<EngineFactory> {
    // The caller named the library: it is used, or the error says why not.
    if options.onnxruntime.is_some() {
        load_onnxruntime(options)?;
    }
    if options.openvino.is_some() {
        OpenVino::load(options.openvino.as_deref())?;
    }
    let has_vnni = cpu_has_vnni();
    let candidates = candidates(options, format, has_vnni);
    if !has_vnni && format.is_to_be_int8() {
        tracing::info!(
            "engine auto: {} before {OPENVINO}: int8 is faster there on a CPU without VNNI",
            EngineKind::Cpu
        );
    }
    if !format.runs_on(OPENVINO) {
        tracing::info!(
            "engine auto: {OPENVINO} is left out: it runs fp32, bf16 and int8 with standard operators"
        );
    }
    let choice = choose(
        &candidates,
        |kind| is_installed(kind, options),
        |kind| EngineFactory::start(&EngineOptions { kind, ..options.clone() }),
    )?;
    let mut started = choice.started;
    if candidates.contains(&EngineKind::Cuda { ordinal: 0 }) && choice.kind != CANDIDATES[0] {
        started = speed::faster(started, options, format);
    }
    let chosen = started.description();
    for (kind, reason) in &choice.failed {
        // Its library is installed, so that it does not start is worth a warning.
        let cause = std::error::Error::source(reason).map_or_else(|| reason.to_string(), ToString::to_string);
        tracing::warn!("engine auto: using {chosen}, because {kind} does not start: {cause}");
    }
    let missing: Vec<String> = choice.missing.iter().map(ToString::to_string).collect();
    let why =
        if missing.is_empty() { String::new() } else { format!("; not installed: {}", missing.join(", ")) };
    tracing::info!("engine auto: {chosen}{why}");
    Ok(started)
}

/// The candidates for a model. A library that is named alone is the caller's choice of an engine.
///
/// OpenVINO multiplies 8-bit weights by 8-bit inputs on CPUs with VNNI; on others its int8 was no faster than its fp32, and
/// ONNX Runtime's was 1.4 times as fast (benchmarks/runs/2026-11-23-full-size-cpu).
fn candidates(options: &EngineOptions, format: ModelFormat, has_vnni: bool) -> Vec<EngineKind> {
    let is_preferred = |kind: &EngineKind| match (&options.onnxruntime, &options.openvino) {
        (Some(_), None) => *kind != OPENVINO,
        (None, Some(_)) => matches!(kind, EngineKind::OpenVino { .. } | EngineKind::Embedded),
        _ => true,
    };
    let mut runs: Vec<EngineKind> = CANDIDATES.into_iter().filter(|kind| format.runs_on(*kind)).collect();
    if !has_vnni && format.is_to_be_int8() {
        let place = |kind: EngineKind| CANDIDATES.iter().position(|known| *known == kind);
        runs.sort_by_key(
            |kind| if *kind == OPENVINO { (place(EngineKind::Cpu), 1) } else { (place(*kind), 0) },
        );
    }
    match runs.iter().copied().filter(is_preferred).collect::<Vec<_>>() {
        // OpenVINO is named, and does not run this model.
        preferred if !preferred.iter().any(|kind| *kind != EngineKind::Embedded) => runs,
        preferred => preferred,
    }
}

/// `true` if the library of an engine is on this machine, usable or not.
fn is_installed(kind: EngineKind, options: &EngineOptions) -> bool {
    match kind {
        EngineKind::OpenVino { .. } => openvino::LIBRARY.find(options.openvino.as_deref()).is_some(),
        EngineKind::Cpu => onnxruntime::LIBRARY.find(options.onnxruntime.as_deref()).is_some(),
        // A library that does not load is reported once, as `onnxruntime`. Without the provider's own file it is not loaded.
        EngineKind::Cuda { .. } => {
            let found = onnxruntime::LIBRARY.find(options.onnxruntime.as_deref());
            let provider = format!("{DLL_PREFIX}onnxruntime_providers_cuda{DLL_SUFFIX}");
            found.is_some_and(|found| found.path.with_file_name(provider).exists())
                && load_onnxruntime(options)
                    .and_then(|runtime| runtime.providers())
                    .is_ok_and(|built_in| built_in.iter().any(|name| name == default_provider(kind).name()))
        }
        _ => true,
    }
}

/// The first candidate that started, and those before it.
#[derive(Debug)]
struct Choice<T> {
    kind: EngineKind,
    started: T,
    missing: Vec<EngineKind>,
    failed: Vec<(EngineKind, Error)>,
}

/// Starts the first candidate that is installed and starts; the error of the last is the caller's.
fn choose<T>(
    candidates: &[EngineKind],
    is_installed: impl Fn(EngineKind) -> bool,
    start: impl Fn(EngineKind) -> Result<T>,
) -> Result<Choice<T>> {
    let (&last, better) = candidates.split_last().expect("there is always an engine that needs no library");
    let (mut missing, mut failed) = (Vec::new(), Vec::new());
    for &kind in better {
        if !is_installed(kind) {
            missing.push(kind);
            continue;
        }
        match start(kind) {
            Ok(started) => return Ok(Choice { kind, started, missing, failed }),
            Err(reason) => failed.push((kind, reason)),
        }
    }
    Ok(Choice { kind: last, started: start(last)?, missing, failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: EngineKind = EngineKind::Cuda { ordinal: 0 };

    fn broken(kind: EngineKind) -> Error {
        Error::unavailable(format!("engine {kind}: it is broken"))
    }

    #[test]
    fn the_first_that_is_installed_and_starts_is_taken() {
        type Kinds<'k> = &'k [EngineKind];
        use EngineKind::{Cpu, Embedded};
        // Installed, starting → chosen, not installed, failed.
        let cases: [(Kinds<'_>, Kinds<'_>, EngineKind, Kinds<'_>, Kinds<'_>); 7] = [
            (&CANDIDATES, &CANDIDATES, GPU, &[], &[]),
            (&CANDIDATES, &[OPENVINO, Cpu, Embedded], OPENVINO, &[], &[GPU]),
            (&[GPU, Cpu, Embedded], &[Cpu, Embedded], Cpu, &[OPENVINO], &[GPU]),
            (&[OPENVINO, Cpu, Embedded], &[Cpu, Embedded], Cpu, &[GPU], &[OPENVINO]),
            (&[Embedded], &[Embedded], Embedded, &[GPU, OPENVINO, Cpu], &[]),
            (&[Cpu, Embedded], &[Embedded], Embedded, &[GPU, OPENVINO], &[Cpu]),
            (&CANDIDATES, &[Embedded], Embedded, &[], &[GPU, OPENVINO, Cpu]),
        ];
        let mut wrong = Vec::new();
        for (installed, starting, expected, missing, failed) in cases {
            let start = |kind| if starting.contains(&kind) { Ok(kind) } else { Err(broken(kind)) };
            let choice = choose(&CANDIDATES, |kind| installed.contains(&kind), start).expect("one starts");
            let failures: Vec<_> = choice.failed.iter().map(|(kind, _)| *kind).collect();
            if (choice.started, &*choice.missing, &*failures) != (expected, missing, failed) {
                wrong.push(format!("{installed:?}, {starting:?}: {choice:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn openvino_is_tried_for_the_formats_that_it_runs() {
        use Precision::{Bf16, Fp16, Fp32, Int8};
        let (standard, fused) = (Target::TensorRt, Target::OnnxRuntime);
        let cases = [
            (Fp32, None, true),
            (Int8, None, true),
            (Bf16, None, true),
            (Fp16, None, false),
            (Fp32, Some((Fp32, standard)), true),
            (Bf16, Some((Fp32, standard)), true),
            (Fp32, Some((Fp32, fused)), false),
            (Int8, Some((Int8, standard)), true),
            (Int8, Some((Int8, fused)), false),
            (Fp32, Some((Bf16, standard)), false),
            (Fp32, Some((Fp16, standard)), false),
        ];
        for (requested, exported, expected) in cases {
            let format = ModelFormat { requested, exported, is_builtin: false };
            assert_eq!(format.runs_on(OPENVINO), expected, "{format:?}");
            assert!(format.runs_on(EngineKind::Cpu), "{format:?}");
        }
    }

    #[test]
    fn a_named_library_is_preferred() {
        use EngineKind::{Cpu, Embedded};
        let path = || Some("library".into());
        let plain = ModelFormat::default();
        let fused = ModelFormat { exported: Some((Precision::Fp32, Target::OnnxRuntime)), ..plain };
        let none = EngineOptions::default();
        let onnxruntime = EngineOptions { onnxruntime: path(), ..EngineOptions::default() };
        let openvino = EngineOptions { openvino: path(), ..EngineOptions::default() };
        let both = EngineOptions { openvino: path(), ..onnxruntime.clone() };
        for has_vnni in [true, false] {
            let candidates = |options, format| candidates(options, format, has_vnni);
            assert_eq!(candidates(&none, plain), CANDIDATES);
            assert_eq!(candidates(&both, plain), CANDIDATES);
            assert_eq!(candidates(&onnxruntime, plain), [GPU, Cpu, Embedded]);
            assert_eq!(candidates(&openvino, plain), [OPENVINO, Embedded]);
            assert_eq!(candidates(&openvino, fused), [GPU, Cpu, Embedded], "OpenVINO does not run it");
        }
    }

    #[test]
    fn int8_runs_where_it_is_fastest() {
        use EngineKind::{Cpu, Embedded};
        let none = EngineOptions::default();
        let openvino = EngineOptions { openvino: Some("library".into()), ..EngineOptions::default() };
        let int8 = ModelFormat { requested: Precision::Int8, ..ModelFormat::default() };
        let exported = ModelFormat { exported: Some((Precision::Int8, Target::TensorRt)), ..int8 };
        assert_eq!(candidates(&none, int8, true), CANDIDATES);
        assert_eq!(candidates(&none, int8, false), [GPU, Cpu, OPENVINO, Embedded]);
        assert_eq!(candidates(&openvino, int8, false), [OPENVINO, Embedded], "it is named");
        assert_eq!(candidates(&none, exported, false), CANDIDATES, "these operators are OpenVINO's");
    }

    #[test]
    fn if_none_starts_the_last_says_why() {
        let error = choose(&CANDIDATES, |_| true, |kind| Err::<EngineKind, _>(broken(kind)));
        assert_eq!(error.expect_err("none starts").to_string(), "engine embedded: it is broken");
    }
}
