//! The benchmark program, run on small models.

mod bench_dart;
mod bench_precision;
mod gpu_script;
#[path = "../../tests/modules.rs"]
mod modules;

#[test]
fn every_file_is_a_module() {
    modules::are_complete(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), &["all.rs"]);
}
