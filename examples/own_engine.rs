//! Runs the detector on your own engine, which here measures every run of ONNX Runtime.
//!
//! ```sh
//! cargo run --example own_engine
//! ```
//!
//! An [`Engine`] implements three methods. The file name of a graph identifies it; [`ocelli::export::contract`] lists the
//! inputs and outputs of all graphs.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Instant;

use ocelli::engines::{Engine, EngineSpec, Tensor};
use ocelli::{
    Detector, EngineKind, Image, Prompts,
    engine::{EngineFactory, EngineOptions},
};

/// Prints how long each run of another engine takes.
struct Timed {
    graph: String,
    inner: Box<dyn Engine>,
}

impl Engine for Timed {
    fn spec(&self) -> &EngineSpec {
        self.inner.spec()
    }

    fn description(&self) -> &str {
        self.inner.description()
    }

    fn run(
        &mut self,
        inputs: &[(&str, &Tensor)],
        outputs: &mut [(&str, &mut Tensor)],
    ) -> ocelli::engines::Result<()> {
        let start = Instant::now();
        let result = self.inner.run(inputs, outputs);
        println!("{:<24} {:6.1} ms", self.graph, start.elapsed().as_secs_f64() * 1e3);
        result
    }
}

fn main() -> ocelli::Result<()> {
    let onnxruntime =
        EngineFactory::start(&EngineOptions { kind: EngineKind::Cpu, ..EngineOptions::default() })?;
    let factory = EngineFactory::custom("ONNX Runtime, measured", move |path| {
        let graph = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Box::new(Timed { graph, inner: onnxruntime.load(path)? }))
    });

    let mut detector = Detector::builder().with_engine_factory(factory).build()?;
    let image = Image::open(concat!(env!("CARGO_MANIFEST_DIR"), "/demos/scenes/park.png"))?;
    let found = detector.detect(&image, &Prompts::new(["dog", "tree"])?)?;
    println!("{} detections with {}", found.items.len(), detector.engine());
    Ok(())
}
