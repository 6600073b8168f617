//! Models and engines with known errors.

use std::path::Path;

use half::f16;
use ocelli::export::{Checkpoint, ExportOptions, export};
use ocelli::{
    EngineKind, Model,
    engine::{EngineFactory, EngineOptions},
};
use ocelli_engines::{Engine, EngineSpec, Result, Tensor};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use tempfile::TempDir;

/// ONNX Runtime on the CPU.
pub fn engine() -> EngineFactory {
    EngineFactory::start(&EngineOptions { kind: EngineKind::Cpu, ..EngineOptions::default() })
        .expect("`make setup` installs ONNX Runtime")
}

/// The built-in model, exported into a temporary folder instead of the user's cache.
pub fn builtin(options: &ExportOptions) -> (TempDir, Model) {
    exported(options, |_| ())
}

/// The built-in model with multiplicative noise in the tensors whose names contain `part`: each value changes by at most
/// `amplitude` of itself.
pub fn disturbed_weights(part: &str, amplitude: f32) -> (TempDir, Model) {
    exported(&ExportOptions { detection_only: true, ..ExportOptions::default() }, |checkpoint| {
        let path = checkpoint.join("model.safetensors");
        let data = std::fs::read(&path).expect("it was just written");
        let read = SafeTensors::deserialize(&data).expect("the built-in model is complete");
        let mut random = 1u64;
        let mut noise = || {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            1.0 + amplitude * ((random >> 40) as f32 / (1u32 << 23) as f32 - 1.0)
        };
        // In a fixed order, so that the noise is the same every time.
        let mut tensors = read.tensors();
        tensors.sort_by(|one, other| one.0.cmp(&other.0));
        let disturbed: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = tensors
            .into_iter()
            .map(|(name, view)| {
                let mut bytes = view.data().to_vec();
                if name.contains(part) {
                    match view.dtype() {
                        Dtype::F16 => bytes.chunks_exact_mut(2).for_each(|two| {
                            let value = f16::from_le_bytes([two[0], two[1]]).to_f32() * noise();
                            two.copy_from_slice(&f16::from_f32(value).to_le_bytes());
                        }),
                        Dtype::F32 => bytes.chunks_exact_mut(4).for_each(|four| {
                            let value = f32::from_le_bytes([four[0], four[1], four[2], four[3]]) * noise();
                            four.copy_from_slice(&value.to_le_bytes());
                        }),
                        other => panic!("{name}: the built-in model has no {other:?}"),
                    }
                }
                (name, view.dtype(), view.shape().to_vec(), bytes)
            })
            .collect();
        let views = disturbed.iter().map(|(name, dtype, shape, bytes)| {
            (name, TensorView::new(*dtype, shape.clone(), bytes).expect("only the values changed"))
        });
        let data = safetensors::serialize(views, None).expect("the tensors are consistent");
        std::fs::write(&path, data).expect("the temporary folder is writable");
    })
}

fn exported(options: &ExportOptions, change: impl FnOnce(&Path)) -> (TempDir, Model) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (checkpoint, exported) = (folder.path().join("checkpoint"), folder.path().join("exported"));
    std::fs::create_dir(&checkpoint).expect("the folder is new");
    ocelli::builtin::write_checkpoint(&checkpoint).expect("it writes");
    change(&checkpoint);
    let checkpoint = Checkpoint::open(&checkpoint).expect("the built-in model is a checkpoint");
    export(&checkpoint, options, &exported, |_| Ok(())).expect("it exports");
    let model = Model::open(&exported).expect("it was just exported");
    (folder, model)
}

/// ONNX Runtime with changed outputs.
pub fn disturbed_engines(change: fn(&str, &mut Tensor)) -> EngineFactory {
    let inner = engine();
    EngineFactory::custom("disturbed", move |graph| {
        Ok(Box::new(Disturbed { inner: inner.load(graph)?, change }) as Box<dyn Engine>)
    })
}

struct Disturbed {
    inner: Box<dyn Engine>,
    change: fn(&str, &mut Tensor),
}

impl Engine for Disturbed {
    fn spec(&self) -> &EngineSpec {
        self.inner.spec()
    }

    fn description(&self) -> &str {
        "disturbed"
    }

    fn run(&mut self, inputs: &[(&str, &Tensor)], outputs: &mut [(&str, &mut Tensor)]) -> Result<()> {
        self.inner.run(inputs, outputs)?;
        outputs.iter_mut().for_each(|(name, tensor)| (self.change)(name, tensor));
        Ok(())
    }
}
