//! OpenVINO: the conformance suite, options, models, the cache, and libraries and devices that are missing.
//!
//! Needs OpenVINO in one of the places that are searched; `make setup` installs it.

use crate::every_engine::{self, Refusals, compile};
use crate::models::{F32, I64, Model};
use ocelli_engines::conformance::{self, Tolerance};
use ocelli_engines::library::Finding;
use ocelli_engines::openvino::{
    InferencePrecision, LIBRARY, OpenVino, OpenVinoBuilder, OpenVinoDevice, OpenVinoEngine,
};
use ocelli_engines::{Dim, Engine, ErrorKind, Result, Tensor};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn runtime() -> OpenVino {
    // The message says how to install the library.
    OpenVino::load(None).unwrap_or_else(|error| panic!("{error}"))
}

/// Loads a model that has no file.
trait FromMemory {
    fn build_from_memory(self, model: &[u8]) -> Result<OpenVinoEngine>;
}

impl FromMemory for OpenVinoBuilder {
    fn build_from_memory(self, model: &[u8]) -> Result<OpenVinoEngine> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("model.onnx");
        fs::write(&path, model).expect("a file");
        self.build_from_file(path)
    }
}

fn builder() -> OpenVinoBuilder {
    OpenVinoEngine::builder(&runtime()).with_threads(1)
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn passes_the_conformance_suite_with_every_option() {
    type Change = fn(OpenVinoBuilder) -> OpenVinoBuilder;
    let changes: [(&str, Change); 5] = [
        ("default", |builder| builder),
        ("two threads", |builder| builder.with_threads(2)),
        ("default threads", |builder| builder.with_threads(0)),
        ("dynamic quantisation", |builder| builder.with_dynamic_quantization(64)),
        ("the device that OpenVINO chooses", |builder| builder.with_device(OpenVinoDevice::Auto)),
    ];
    let model = crate::models::conformance();
    let mut wrong = Vec::new();
    for (name, change) in changes {
        let make = || change(builder()).build_from_memory(&model);
        if let Err(failures) = conformance::check_32_bit(make, Tolerance::F32) {
            wrong.push(format!("{name}: {failures}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn an_engine_from_the_cache_passes_the_conformance_suite() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.onnx");
    fs::write(&path, crate::models::conformance()).expect("a file");
    let cache = folder.path().join("cache");
    let load = |precision| builder().with_cache(&cache).with_precision(precision).build_from_file(&path);
    let first = load(InferencePrecision::F32).expect("it loads");
    assert!(!first.is_from_cache(), "nothing was cached");
    let make = || {
        let engine = load(InferencePrecision::F32)?;
        assert!(engine.is_from_cache(), "the first engine filled the cache");
        Ok(engine)
    };
    let outcome = conformance::check_32_bit(make, Tolerance::F32);
    outcome.unwrap_or_else(|failures| panic!("{failures}"));

    for entry in fs::read_dir(&cache).expect("a folder").flatten() {
        let content = fs::read(entry.path()).expect("an entry");
        // OpenVINO writes its entries read-only.
        fs::remove_file(entry.path()).expect("it can be replaced");
        fs::write(entry.path(), &content[..content.len() / 2]).expect("a truncated entry");
    }
    assert!(
        !load(InferencePrecision::F32).expect("it loads").is_from_cache(),
        "a truncated entry is not used"
    );
    assert!(load(InferencePrecision::F32).expect("it loads").is_from_cache(), "and was made again");

    let changed =
        Model { nodes: &[("Neg", &["x"], "y")], inputs: &[("x", F32, "n")], outputs: &[("y", F32, "n")] };
    fs::write(&path, changed.encode()).expect("a file");
    let mut engine = load(InferencePrecision::F32).expect("it loads");
    let mut y = Tensor::empty();
    engine
        .run(&[("x", &Tensor::f32(&[1], vec![2.0]).expect("fits"))], &mut [("y", &mut y)])
        .expect("it runs");
    assert_eq!(y.as_f32().expect("f32"), [-2.0], "another model has the path now");
}

/// OpenVINO itself lets a process remove the entry that another one is writing.
#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn processes_share_a_cache() {
    const FOLDER: &str = "OCELLI_TEST_SHARED_CACHE";
    const MODELS: usize = 40;
    let models =
        |folder: &Path| (0..MODELS).map(|number| folder.join(format!("{number}.onnx"))).collect::<Vec<_>>();
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        for model in models(folder) {
            let engine = builder().with_cache(folder.join("cache")).build_from_file(&model);
            engine.unwrap_or_else(|error| panic!("{error}"));
        }
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for model in models(folder.path()) {
        fs::write(&model, crate::models::conformance()).expect("a file");
    }
    let program = std::env::current_exe().expect("a test program");
    let start = |_| {
        Command::new(&program)
            .args(["--exact", "openvino::processes_share_a_cache"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts")
    };
    let running: Vec<_> = (0..4).map(start).collect();
    for process in running {
        let ended = process.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && said.contains("1 passed"), "{said}");
    }
    for model in models(folder.path()) {
        let engine =
            builder().with_cache(folder.path().join("cache")).build_from_file(&model).expect("it loads");
        assert!(engine.is_from_cache(), "every model was left in the cache, whole: {}", model.display());
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn bf16_stays_within_its_tolerance_and_other_devices_refuse_it() {
    let runtime = runtime();
    let devices = runtime.devices().expect("a list");
    let cpu = devices.iter().find(|device| device.name == "CPU").expect("OpenVINO runs on this CPU");
    assert!(cpu.computes_in(InferencePrecision::F32), "{cpu:?}");
    let model = crate::models::conformance();
    for precision in [InferencePrecision::Bf16, InferencePrecision::F16] {
        let make = || builder().with_precision(precision).build_from_memory(&model);
        if cpu.computes_in(precision) {
            // 8 bits of mantissa; the terms of a product may cancel.
            let tolerance = Tolerance { absolute: 0.5, relative: 1.0 / 128.0 };
            let outcome = conformance::check_32_bit(make, tolerance);
            outcome.unwrap_or_else(|failures| panic!("{precision}: {failures}"));
            let description = make().expect("it loads").description().to_owned();
            assert!(description.ends_with(&format!(", {precision}")), "{description}");
        } else {
            let error = make().expect_err("the CPU lacks the format");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            let text = error.to_string();
            let expected =
                format!("has no fast {precision} arithmetic, only {}", cpu.number_formats.join(", "));
            assert!(text.contains(&expected), "{text}");
        }
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn the_description_names_version_and_threads() {
    let runtime = runtime();
    let engine =
        builder().with_threads(2).build_from_memory(&crate::models::conformance()).expect("it loads");
    assert_eq!(engine.description(), format!("OpenVINO {}, CPU, 2 threads", runtime.version()));
    let chosen = LIBRARY.find(None).expect("one was loaded");
    assert_eq!(
        (chosen.path.as_path(), chosen.finding),
        (runtime.path(), Finding::Usable { version: runtime.version().to_owned() })
    );
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn a_missing_device_is_an_error_that_lists_the_devices() {
    let runtime = runtime();
    let names: Vec<_> = runtime.devices().expect("a list").into_iter().map(|device| device.name).collect();
    // More GPUs than any machine has.
    let device = OpenVinoDevice::Gpu { ordinal: 77 };
    let built = builder().with_device(device).build_from_memory(&crate::models::conformance());
    for error in [built.expect_err("no such GPU"), runtime.check_device(device).expect_err("no such GPU")] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let expected = format!(
            "OpenVINO, {}: no device GPU.77 on this machine, which has {}; a GPU needs",
            runtime.path().display(),
            names.join(", ")
        );
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn a_second_library_in_one_process_is_refused() {
    let loaded = runtime();
    let again = OpenVino::load(Some(loaded.path())).expect("the same file");
    assert_eq!(again.path(), loaded.path());

    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("libopenvino_c.so");
    fs::copy(loaded.path(), &copy).expect("a copy");
    let error = OpenVino::load(Some(&copy)).expect_err("another file");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&copy.display().to_string()), "{error}");
}

#[cfg(unix)]
#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn libraries_that_cannot_be_used_are_named_with_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let old =
        "int ov_get_openvino_version(void *version) { return 0; } void ov_version_free(void *version) {}";
    let cases = vec![
        (
            "an old version",
            compile(folder.path(), "old", old),
            "the version is too old: it has no `ov_get_last_err_msg`; 2026.4 or newer is needed",
        ),
        (
            "another library",
            compile(folder.path(), "other", "int answer(void) { return 42; }"),
            "the library is not OpenVINO: it has no `ov_get_openvino_version`",
        ),
    ];
    every_engine::refuses_unusable_libraries(|path| OpenVino::load(Some(path)), runtime().path(), cases);
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn models_that_cannot_be_loaded_are_named_with_the_reason() {
    let reasons = Refusals {
        empty: "cannot",
        text: "cannot read the model",
        truncated: "cannot",
        operator: "Frobnicate",
        strings: "input `x` has ONNX's element type 8, expected f32, f16, i64, i32, u8 or bool",
    };
    every_engine::refuses_unusable_models(|path| builder().build_from_file(path), &reasons);
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn every_element_type_can_be_an_input_and_an_output() {
    every_engine::runs_every_element_type(
        |model| builder().build_from_memory(model),
        (i32::MIN.into(), i32::MAX.into()),
    );
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn integers_beyond_32_bits_are_refused() {
    let model = Model {
        nodes: &[("Add", &["ids", "ids"], "doubled")],
        inputs: &[("ids", I64, "n")],
        outputs: &[("doubled", I64, "n")],
    };
    let mut engine = builder().build_from_memory(&model.encode()).expect("it loads");
    let mut run = |value: i64| -> Result<Vec<i64>> {
        let mut doubled = Tensor::empty();
        engine.run(&[("ids", &Tensor::i64(&[1], vec![value])?)], &mut [("doubled", &mut doubled)])?;
        Ok(doubled.as_slice::<i64>()?.to_vec())
    };
    for value in [0, 7, -1_000_000_000] {
        assert_eq!(run(value).expect("it fits"), [2 * value]);
    }
    for value in [i64::from(i32::MAX) + 1, i64::MIN] {
        let error = run(value).expect_err("it does not fit");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let expected =
            format!("input `ids`: expected integers of 32 bits, in which OpenVINO computes, got {value}");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn scalars_and_unnamed_dimensions_are_supported() {
    let model = Model {
        nodes: &[("Mul", &["x", "factor"], "y"), ("Shape", &["x"], "size")],
        inputs: &[("x", F32, "? ?"), ("factor", F32, "")],
        outputs: &[("y", F32, "? ?"), ("size", I64, "2")],
    };
    let mut engine = builder().build_from_memory(&model.encode()).expect("it loads");
    assert_eq!(engine.spec().inputs[0].shape, [Dim::named("x.0"), Dim::named("x.1")]);

    let factor = Tensor::f32(&[], vec![2.0]).expect("a scalar");
    let (mut y, mut size) = (Tensor::empty(), Tensor::empty());
    for shape in [[2, 3], [0, 4], [1, 1]] {
        let x = Tensor::f32(&shape, vec![1.5; shape[0] * shape[1]]).expect("fits");
        engine
            .run(&[("x", &x), ("factor", &factor)], &mut [("y", &mut y), ("size", &mut size)])
            .expect("it runs");
        assert_eq!(y, Tensor::f32(&shape, vec![3.0; shape[0] * shape[1]]).expect("fits"));
        assert_eq!(size.as_slice::<i64>().expect("i64"), shape.map(|size| size as i64));
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn constants_inputs_and_one_tensor_twice_can_be_outputs() {
    let model = Model {
        nodes: &[
            ("Identity", &["weights"], "constant"),
            ("Identity", &["x"], "same"),
            ("Neg", &["x"], "inner"),
            ("Identity", &["inner"], "once"),
            ("Identity", &["inner"], "twice"),
        ],
        inputs: &[("x", F32, "n"), ("unused", F32, "n")],
        outputs: &[
            ("constant", F32, "3 4"),
            ("same", F32, "n"),
            ("once", F32, "n"),
            ("inner", F32, "n"),
            ("twice", F32, "n"),
        ],
    };
    let mut engine = builder().build_from_memory(&model.encode()).expect("it loads");
    let names = ["constant", "same", "once", "inner", "twice"];
    for value in [1.0, 2.0, 3.0] {
        let x = Tensor::f32(&[2], vec![value, -value]).expect("fits");
        let mut results = vec![Tensor::f32(&[1], vec![9.0]).expect("fits"); names.len()];
        let mut outputs: Vec<_> = names.into_iter().zip(&mut results).collect();
        engine.run(&[("x", &x), ("unused", &x)], &mut outputs).expect("it runs");
        assert_eq!(results[0].as_f32().expect("f32"), conformance::WEIGHTS.as_flattened());
        let values: Vec<_> =
            results[1..].iter().map(|result| result.as_f32().expect("f32").to_vec()).collect();
        let negated = vec![-value, value];
        assert_eq!(values, [vec![value, -value], negated.clone(), negated.clone(), negated]);
    }
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs OpenVINO: make setup")]
fn outputs_that_a_later_run_does_not_request_are_not_written() {
    let mut engine = builder().build_from_memory(&crate::models::conformance()).expect("it loads");
    let (a, ids) =
        (Tensor::f32(&[1, 3], vec![1.0; 3]).expect("fits"), Tensor::i64(&[1, 1], vec![5]).expect("fits"));
    let inputs = [("a", &a), ("b", &a), ("ids", &ids)];
    let (mut sum, mut product) = (Tensor::empty(), Tensor::empty());
    engine.run(&inputs, &mut [("sum", &mut sum), ("product", &mut product)]).expect("it runs");
    product.as_mut_slice::<f32>().expect("f32").fill(42.0);
    engine.run(&inputs, &mut [("sum", &mut sum)]).expect("it runs");
    assert_eq!(product.as_f32().expect("f32"), [42.0; 4]);
}

every_engine::tests_of_runs!(builder, conformance::check_32_bit, "");
