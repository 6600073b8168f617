//! Runs `demo-image` and `demo-video`: that they start, under their own names. What they do is that of `ocelli detect` and
//! `ocelli video`, whose tests are those of `ocelli-cli`.

#[path = "../../tests/modules.rs"]
mod modules;
mod programs;
#[path = "../../cli/tests/run.rs"]
mod run;
mod tensorrt;

#[test]
fn every_file_is_a_module() {
    modules::are_complete(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), &["all.rs"]);
}
