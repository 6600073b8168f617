//! The header is that of the source. What the library does is tested from C and C++, by `check.sh`.

use std::path::Path;

/// Set to write the header instead of comparing it.
const WRITE: &str = "OCELLI_WRITE_HEADER";

#[test]
fn the_header_is_that_of_the_source() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config =
        cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml can be read");
    let made = cbindgen::Builder::new().with_crate(folder).with_config(config).generate();
    let mut text = Vec::new();
    made.expect("a header can be made of the source").write(&mut text);
    let text = String::from_utf8(text).expect("the source is UTF-8");
    let path = folder.join("include/ocelli.h");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &text).expect("the header can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("the header is committed");
    let differs = text.lines().zip(committed.lines()).find(|(made, committed)| made != committed);
    assert!(
        text == committed,
        "{} is not that of the source, from {differs:?} on: run {WRITE}=1 cargo test -p ocelli-c",
        path.display()
    );
}
