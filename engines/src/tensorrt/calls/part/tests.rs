//! Files that are not the part that is needed, compiled by the compiler that links Rust's programs.

use super::*;
use std::process::Command;

/// A library with a table of this version, whose first functions say which headers it was built with.
fn compile(folder: &Path, name: &str, table: u32, is_rtx: u8, headers: u32) -> PathBuf {
    let (source, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    let text = format!(
        "static int is_rtx(void) {{ return {is_rtx}; }}\n\
         static int headers(void) {{ return {headers}; }}\n\
         static const void *table[64] = {{ (void *)is_rtx, (void *)headers }};\n\
         const void *ocelli_tensorrt(unsigned version) {{ return version == {table} ? table : 0; }}\n"
    );
    std::fs::write(&source, text).expect("the folder is ours");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
    assert!(compiler.status().expect("Rust links with cc").success());
    library
}

#[test]
fn a_part_of_another_version_or_product_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let part = |name, table, is_rtx, headers| compile(folder.path(), name, table, is_rtx, headers);
    let text = folder.path().join("text.so");
    std::fs::write(&text, "hello").expect("the folder is ours");
    let other = folder.path().join("other.c");
    std::fs::write(&other, "int other;").expect("the folder is ours");
    let library = folder.path().join("other.so");
    let compiled = Command::new("cc").args(["-shared", "-o"]).args([&library, &other]).status();
    assert!(compiled.expect("Rust links with cc").success());

    let rtx = part("rtx", VERSION, 1, 10_701);
    let cases = [
        (
            "the part",
            rtx.clone(),
            Product::TensorRtForRtx,
            Ok("1, with the headers of TensorRT for RTX 1.7.1"),
        ),
        (
            "TensorRT's",
            part("proper", VERSION, 0, 110_400),
            Product::TensorRt,
            Ok("1, with the headers of TensorRT 11.4.0"),
        ),
        (
            "the other product's",
            rtx,
            Product::TensorRt,
            Err("it is the part for TensorRT for RTX, expected the one for TensorRT"),
        ),
        (
            "of other headers",
            part("old", VERSION, 1, 10_600),
            Product::TensorRtForRtx,
            Err("it was built with the headers of TensorRT for RTX 1.6.0, expected those of 1.7"),
        ),
        (
            "of another Ocelli",
            part("newer", VERSION + 1, 1, 10_701),
            Product::TensorRtForRtx,
            Err("it was built for another version of Ocelli: expected table 1; build it again"),
        ),
        ("another library", library, Product::TensorRt, Err("the file is no part of Ocelli for TensorRT")),
        ("text", text, Product::TensorRt, Err("file too short")),
    ];
    let mut wrong = Vec::new();
    for (name, path, product, expected) in cases {
        let found = version(&path, product);
        let fits = match (&found, expected) {
            (Ok(found), Ok(expected)) => found == expected,
            (Err(found), Err(expected)) => found.contains(expected),
            _ => false,
        };
        if !fits {
            wrong.push(format!("{name}: expected {expected:?}, got {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
