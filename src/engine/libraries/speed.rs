//! A GPU can be slower than the CPU beside it: a short measurement, which is remembered, tells `auto` the faster of two engines.

use ocelli_engines::webgpu::{Adapter, AdapterKind, adapters};
use ocelli_engines::{Tensor, webgpu};
use ocelli_export::contract::{file, tensor};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{EngineFactory, EngineKind, EngineOptions};
use crate::Cancellation;
use crate::cache::{cache_folder, remembered, short_hex};
use crate::engine::ModelFormat;
use crate::model::{CACHE_REVISION, Model, ModelRequest, ModelSource};
use crate::timing::Instant;
use ocelli_error::Result;

/// The side of the image in pixels for models other than the built-in one: that of the released model. A GPU is faster the
/// larger a graph is, so that a small one would not show it.
const IMGSZ: usize = 1008;

/// The times of two engines for one image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) webgpu_ms: f64,
    pub(super) cpu_ms: f64,
}

/// The adapter that `auto` may use: a GPU, and not a driver that computes on the CPU.
fn gpu(options: &EngineOptions, format: ModelFormat) -> Option<Adapter> {
    if !format.runs_on(WEBGPU) || webgpu::LIBRARY.find(options.webgpu.as_deref()).is_none() {
        return None;
    }
    adapters().ok()?.into_iter().next().filter(|adapter| adapter.kind != AdapterKind::Software)
}

pub(super) const WEBGPU: EngineKind = EngineKind::WebGpu { ordinal: 0 };

/// The faster of the CPU's engine and WebGPU, if there is a GPU that runs the format. A GPU that cannot be used is a warning.
pub(super) fn faster(cpu: EngineFactory, options: &EngineOptions, format: ModelFormat) -> EngineFactory {
    let Some(adapter) = gpu(options, format) else { return cpu };
    let compared = EngineFactory::start(&EngineOptions { kind: WEBGPU, ..options.clone() }).and_then(|gpu| {
        let imgsz = (!format.is_builtin).then_some(IMGSZ);
        let identity = adapter.identity().unwrap_or_else(|| adapter.name.clone());
        let what =
            format!("{identity}\0{}\0{}\0{imgsz:?}\0{CACHE_REVISION}", gpu.description(), cpu.description());
        let entry = cache_folder()?.join("speeds").join(format!("{}.json", short_hex(&Sha256::digest(what))));
        let times = remembered(&entry, || {
            tracing::info!("engine auto: measuring {} and {}, once", gpu.description(), cpu.description());
            Ok(Times { webgpu_ms: milliseconds(&gpu, imgsz)?, cpu_ms: milliseconds(&cpu, imgsz)? })
        })?;
        Ok((gpu, times))
    });
    match compared {
        Ok((gpu, times)) => {
            let (webgpu_ms, cpu_ms) = (times.webgpu_ms, times.cpu_ms);
            tracing::info!(
                "engine auto: the built-in model's image backbone takes {webgpu_ms:.1} ms on {}, {cpu_ms:.1} ms on {}",
                gpu.description(),
                cpu.description()
            );
            if webgpu_ms < cpu_ms { gpu } else { cpu }
        }
        Err(reason) => {
            tracing::warn!(
                "engine auto: using {}, because {WEBGPU} cannot be used: {reason}",
                cpu.description()
            );
            cpu
        }
    }
}

/// The time of the built-in model's image backbone, in milliseconds: the shorter of two runs after a first one, in which
/// engines compile and allocate.
fn milliseconds(factory: &EngineFactory, imgsz: Option<usize>) -> Result<f64> {
    let target = factory.target(None);
    let request = ModelRequest { source: ModelSource::Builtin, target, imgsz, ..ModelRequest::default() };
    let model = Model::resolve(&request, &|_| (), &Cancellation::new())?;
    let imgsz = model.manifest().imgsz;
    let mut engine = model.load_graph(factory, file::BACKBONE)?;
    let (pixels, mut features) = (Tensor::zeros::<f32>(&[1, 3, imgsz, imgsz]), Tensor::empty());
    let mut run = || {
        let start = Instant::now();
        engine.run(&[(tensor::PIXEL_VALUES, &pixels)], &mut [(tensor::FPN[2], &mut features)])?;
        Ok(start.elapsed().as_secs_f64() * 1000.0)
    };
    run()?;
    Ok(f64::min(run()?, run()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_error::Error;

    #[test]
    fn a_measurement_is_remembered_and_a_corrupt_one_is_repeated() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let entry = folder.path().join("speeds/one.json");
        let times = |webgpu_ms| Times { webgpu_ms, cpu_ms: 20.0 };
        assert_eq!(remembered(&entry, || Ok(times(5.0))).expect("it is measured"), times(5.0));
        let again = remembered::<Times>(&entry, || Err(Error::execution("measured again")));
        assert_eq!(again.expect("it is remembered"), times(5.0));
        std::fs::write(&entry, "{").expect("the folder was made");
        assert_eq!(remembered(&entry, || Ok(times(7.0))).expect("it is measured"), times(7.0));
        let failed =
            remembered::<Times>(&folder.path().join("two.json"), || Err(Error::execution("it broke")));
        assert_eq!(failed.expect_err("it broke").to_string(), "it broke");
    }

    #[test]
    fn an_engine_is_timed() {
        let options = EngineOptions { kind: EngineKind::Embedded, ..EngineOptions::default() };
        let factory = EngineFactory::start(&options).expect("it needs no library");
        let small = milliseconds(&factory, Some(56)).expect("it runs");
        let large = milliseconds(&factory, Some(560)).expect("it runs");
        assert!(small > 0.0 && large > 3.0 * small, "a hundred times the pixels: {small} and {large} ms");
    }

    #[test]
    fn a_software_adapter_is_never_taken() {
        let options = EngineOptions { webgpu: Some("/nowhere".into()), ..EngineOptions::default() };
        assert_eq!(gpu(&options, ModelFormat::default()), None, "there is no library");
    }
}
