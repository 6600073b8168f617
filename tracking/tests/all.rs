//! Masklet sessions: recordings of the reference, and random scenes.

#[path = "../examples/replay_sessions/bucket_bank.rs"]
mod bucket_bank;
#[path = "../examples/replay_sessions/describe.rs"]
mod describe;
#[path = "../../tests/modules.rs"]
mod modules;
#[path = "../examples/replay_sessions/options.rs"]
mod options;
mod random_scenes;
#[path = "../examples/replay_sessions/replay.rs"]
mod replay;
mod scene;
#[path = "../examples/replay_sessions/script.rs"]
mod script;
mod sessions;
#[path = "../src/test_random.rs"]
mod test_random;
mod use_of_sessions;

#[test]
fn every_file_is_a_module() {
    modules::are_complete(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"), &["all.rs"]);
}
