//! Cases that every engine of ONNX files has to pass, besides the conformance suite.

use crate::models::{BOOL, F16, F32, I32, I64, Model, STRING, U8};
use half::f16;
use ocelli_engines::{Engine, ErrorKind, Result, Tensor};
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

/// What an engine's error says of a file that is no model, or not one for it.
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
