//! One parser of the list in `targets.rs` under libFuzzer: `OCELLI_FUZZ_TARGET` names it. With `OCELLI_FUZZ_SEEDS` it writes
//! the seeds of all targets into folders of their names instead.

#![no_main]
#![allow(unsafe_code, reason = "a global allocator needs it")]

#[path = "../limits.rs"]
mod limits;
#[path = "../targets.rs"]
mod targets;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use limits::{Counting, exceeded};
use targets::{TARGETS, Target};

/// The folder with the goldens and seeds.
const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[global_allocator]
static COUNTING: Counting = Counting;

static CHOSEN: OnceLock<(&Target, tempfile::TempDir)> = OnceLock::new();

fn write_seeds(folder: &Path) {
    for target in TARGETS {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder).expect("the folder can be written to");
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed)
                .expect("the folder can be written to");
        }
    }
}

fn start() {
    if let Some(folder) = std::env::var_os("OCELLI_FUZZ_SEEDS").map(PathBuf::from) {
        write_seeds(&folder);
        std::process::exit(0);
    }
    let name = std::env::var("OCELLI_FUZZ_TARGET").expect("OCELLI_FUZZ_TARGET names a target");
    let target = TARGETS.iter().find(|target| target.name == name).expect("it is one of TARGETS");
    // A panic that the parser catches is no failure; libFuzzer's own hook would end the program.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    // In memory where that exists: each case writes its file.
    let shared = Path::new("/dev/shm");
    let builder = tempfile::Builder::new();
    let folder = if shared.is_dir() { builder.tempdir_in(shared) } else { builder.tempdir() };
    drop(CHOSEN.set((target, folder.expect("a temporary folder"))));
}

libfuzzer_sys::fuzz_target!(init: start(), |bytes: &[u8]| {
    let (target, folder) = CHOSEN.get().expect("`start` has set it");
    // libFuzzer stops at a panic that is not caught and measures the time itself.
    if let Some(why) = exceeded(bytes.len(), || (target.parse)(folder.path(), bytes)) {
        panic!("{why}");
    }
});
