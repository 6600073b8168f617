//! Cases that every engine of ONNX files has to pass, besides the conformance suite.

use crate::models::{BOOL, F16, F32, I32, I64, Model, STRING, U8};
use half::f16;
use ocelli_engines::{Engine, ErrorKind, Result, Tensor};
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

/// The parts of an engine's errors about files that are no model, or not one for it.
pub(crate) struct Refusals {
    pub(crate) empty: &'static str,
    pub(crate) text: &'static str,
    pub(crate) truncated: &'static str,
    pub(crate) operator: &'static str,
    pub(crate) strings: &'static str,
}

/// Builds an engine from files that cannot be loaded: each is one line that names the file and the reason.
pub(crate) fn refuses_unusable_models<E: Debug>(build: impl Fn(&Path) -> Result<E>, reasons: &Refusals) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("a file");
        path
    };
    let good = crate::models::conformance();
    let with = |op: &str, element_type: i32| {
        let (nodes, x, y) = ([(op, &["x"][..], "y")], ("x", element_type, "n"), ("y", element_type, "n"));
        Model { nodes: &nodes, inputs: &[x], outputs: &[y] }.encode()
    };
    let cases = [
        ("missing", folder.path().join("missing.onnx"), "no such file"),
        ("a folder", folder.path().to_path_buf(), "not a file"),
        ("empty", file("empty.onnx", b""), reasons.empty),
        ("a text file", file("text.onnx", b"not a model, but a text of some length"), reasons.text),
        ("a truncated file", file("cut.onnx", &good[..good.len() / 2]), reasons.truncated),
        ("an unknown operator", file("operator.onnx", &with("Frobnicate", F32)), reasons.operator),
        ("strings", file("strings.onnx", &with("Identity", STRING)), reasons.strings),
    ];
    let mut wrong = Vec::new();
    for (name, path, expected) in cases {
        match build(&path) {
            Err(error)
                if error.kind() == ErrorKind::InvalidData
                    && error.to_string().contains(expected)
                    && error.to_string().contains(&path.display().to_string())
                    && !error.to_string().contains("Exception from")
                    && error.to_string().lines().count() == 1 => {}
            other => wrong.push(format!("{name}: expected {expected:?}, got {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs a model with an input and an output of each element type; `integers` are the least and the largest `i64`.
pub(crate) fn runs_every_element_type<E: Engine>(
    build: impl FnOnce(&[u8]) -> Result<E>,
    integers: (i64, i64),
) {
    let nodes: &[(&str, &[&str], &str)] = &[
        ("Identity", &["floats"], "same_floats"),
        ("Identity", &["halves"], "same_halves"),
        ("Identity", &["longs"], "same_longs"),
        ("Identity", &["ints"], "same_ints"),
        ("Identity", &["bytes"], "same_bytes"),
        ("Not", &["flags"], "other_flags"),
    ];
    let types = [F32, F16, I64, I32, U8, BOOL];
    let inputs = ["floats", "halves", "longs", "ints", "bytes", "flags"];
    let outputs = ["same_floats", "same_halves", "same_longs", "same_ints", "same_bytes", "other_flags"];
    let typed = |names: [&'static str; 6]| -> Vec<_> {
        names.into_iter().zip(types).map(|(name, of_type)| (name, of_type, "n")).collect()
    };
    let model = Model { nodes, inputs: &typed(inputs), outputs: &typed(outputs) }.encode();
    let mut engine = build(&model).expect("it loads");
    // The number of elements changes from run to run.
    for count in [3_usize, 0, 2] {
        let floats = Tensor::f32(&[count], [1.5, -0.0, 3e30][..count].to_vec()).expect("fits");
        let halves = [1.5, 2.5, -4.0][..count].iter().map(|&value| f16::from_f32(value));
        let halves = Tensor::new(&[count], halves.collect()).expect("fits");
        let longs = Tensor::i64(&[count], [integers.0, 7, integers.1][..count].to_vec()).expect("fits");
        let ints = Tensor::new(&[count], [i32::MIN, 7, i32::MAX][..count].to_vec()).expect("fits");
        let bytes = Tensor::new(&[count], [0_u8, 7, 255][..count].to_vec()).expect("fits");
        let flags = Tensor::new(&[count], [true, false, true][..count].to_vec()).expect("fits");
        let inverse = Tensor::new(&[count], [false, true, false][..count].to_vec()).expect("fits");
        let given = [&floats, &halves, &longs, &ints, &bytes, &flags];
        let given: Vec<_> = inputs.into_iter().zip(given).collect();
        let mut results = vec![Tensor::empty(); 6];
        let mut filled: Vec<_> = outputs.into_iter().zip(&mut results).collect();
        engine.run(&given, &mut filled).expect("it runs");
        let expected = [floats, halves, longs, ints, bytes, inverse];
        let wrong: Vec<_> =
            outputs.iter().zip(results).zip(expected).filter(|((_, got), want)| got != want).collect();
        assert!(wrong.is_empty(), "{count} elements: {wrong:?}");
    }
}

/// The tests of runs that fail, and of threads, of one engine: a function that returns its builder, the conformance suite that it
/// passes, and a part of the error of a run that fails.
macro_rules! tests_of_runs {
    ($builder:path, $check:path, $part:literal) => {
        #[test]
        #[cfg_attr(without_libraries, ignore = "needs the libraries of `make setup`")]
        fn a_run_that_fails_names_the_model_and_leaves_the_engine_usable() {
            every_engine::survives_a_run_that_fails(
                |path| $builder().build_from_file(path),
                $part,
                "Exception from",
            );
        }

        #[test]
        #[cfg_attr(without_libraries, ignore = "needs the libraries of `make setup`")]
        fn an_output_that_contradicts_the_model_is_an_error() {
            every_engine::refuses_an_output_that_contradicts_the_model(|model| {
                $builder().build_from_memory(model)
            });
        }

        #[test]
        #[cfg_attr(without_libraries, ignore = "needs the libraries of `make setup`")]
        fn two_engines_run_in_two_threads() {
            let model = crate::models::conformance();
            every_engine::runs_in_two_threads(|| {
                $check(|| $builder().build_from_memory(&model), Tolerance::F32)
            });
        }

        #[test]
        #[cfg_attr(without_libraries, ignore = "needs the libraries of `make setup`")]
        fn an_engine_can_move_to_another_thread() {
            every_engine::moves_to_another_thread(|model| $builder().build_from_memory(model));
        }
    };
}
pub(crate) use tests_of_runs;

/// Runs a model that fails for some inputs: the error is one line that names the file, with `part` in it and without
/// `absent`, and the engine can be used afterwards.
pub(crate) fn survives_a_run_that_fails<E: Engine>(
    build: impl FnOnce(&Path) -> Result<E>,
    part: &str,
    absent: &str,
) {
    let model = Model {
        nodes: &[("Reshape", &["x", "shape"], "y")],
        inputs: &[("x", F32, "n"), ("shape", I64, "2")],
        outputs: &[("y", F32, "? ?")],
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("reshape.onnx");
    fs::write(&path, model.encode()).expect("a file");
    let mut engine = build(&path).expect("it loads");
    let x = Tensor::zeros::<f32>(&[6]);
    let mut y = Tensor::empty();
    let mut run = |rows: i64, columns: i64| -> Result<Vec<usize>> {
        let shape = Tensor::i64(&[2], vec![rows, columns])?;
        engine.run(&[("x", &x), ("shape", &shape)], &mut [("y", &mut y)])?;
        Ok(y.shape().to_vec())
    };
    assert_eq!(run(2, 3).expect("six"), [2, 3]);
    let error = run(4, 4).expect_err("six are not sixteen");
    assert_eq!(error.kind(), ErrorKind::Execution);
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot run the model, {}: ", path.display())), "{text}");
    assert!(text.contains(part) && !text.contains(absent) && text.lines().count() == 1, "{text}");
    assert_eq!(run(3, 2).expect("six"), [3, 2]);
}

/// Runs a model whose output is not always as long as the input, as it declares.
pub(crate) fn refuses_an_output_that_contradicts_the_model<E: Engine>(
    build: impl FnOnce(&[u8]) -> Result<E>,
) {
    let model = Model {
        nodes: &[("NonZero", &["x"], "found")],
        inputs: &[("x", I64, "n")],
        outputs: &[("found", I64, "1 n")],
    };
    let mut engine = build(&model.encode()).expect("it loads");
    let mut found = Tensor::empty();
    let x = Tensor::i64(&[3], vec![1, 1, 1]).expect("fits");
    engine.run(&[("x", &x)], &mut [("found", &mut found)]).expect("three of three");
    let x = Tensor::i64(&[3], vec![0, 1, 0]).expect("fits");
    let error = engine.run(&[("x", &x)], &mut [("found", &mut found)]).expect_err("one of three");
    assert_eq!(error.kind(), ErrorKind::Execution);
}

/// Runs the conformance suite, `check`, in two threads at once.
pub(crate) fn runs_in_two_threads<F: PartialEq + Debug + Send>(
    check: impl Fn() -> std::result::Result<(), F> + Sync,
) {
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(&check)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(outcomes, [Ok(()), Ok(())]);
}

/// Runs an engine in another thread than the one that has built it.
pub(crate) fn moves_to_another_thread<E: Engine + 'static>(build: impl FnOnce(&[u8]) -> Result<E>) {
    let mut engine: Box<dyn Engine> = Box::new(build(&crate::models::conformance()).expect("it loads"));
    let run = move || {
        let (a, ids) = (Tensor::zeros::<f32>(&[1, 3]), Tensor::zeros::<i64>(&[1, 2]));
        let mut sum = Tensor::empty();
        engine.run(&[("a", &a), ("b", &a), ("ids", &ids)], &mut [("sum", &mut sum)]).map(|()| sum)
    };
    let sum = std::thread::spawn(run).join().expect("no panic").expect("it runs");
    assert_eq!(sum, Tensor::zeros::<f32>(&[1, 3]));
}

/// Loads libraries that cannot be used, `cases` and a truncated copy of `usable` among them: each error names the file
/// and the reason.
#[cfg(unix)]
pub(crate) fn refuses_unusable_libraries<T: Debug>(
    load: impl Fn(&Path) -> Result<T>,
    usable: &Path,
    cases: Vec<(&str, PathBuf, &str)>,
) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (text, cut) = (folder.path().join("text.so"), folder.path().join("cut.so"));
    fs::write(&text, "not a library").expect("a file");
    fs::write(&cut, &fs::read(usable).expect("the library")[..100_000]).expect("a file");
    let always = [
        ("a text file", text, "cannot use "),
        ("a truncated library", cut, "the file is truncated: it has 100000 bytes of at least "),
        ("no file", folder.path().join("none.so"), "no such file"),
        ("an empty folder", folder.path().join("empty"), "the folder holds no "),
    ];
    fs::create_dir(folder.path().join("empty")).expect("a folder");
    let mut wrong = Vec::new();
    for (name, path, expected) in always.into_iter().chain(cases) {
        match load(&path) {
            Err(error)
                if error.kind() == ErrorKind::Unavailable
                    && error.to_string().contains(expected)
                    && error.to_string().contains(&path.display().to_string())
                    && error
                        .to_string()
                        .ends_with("; give another path, or none to search for the library") => {}
            other => wrong.push(format!("{name}: expected {expected:?}, got {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Compiles a shared library from C.
#[cfg(unix)]
pub(crate) fn compile(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (code, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    fs::write(&code, source).expect("a file");
    let status =
        std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&code).status();
    assert!(status.expect("a C compiler").success());
    library
}
