//! Parsers of files and messages on mutated seeds: no panic, no allocation and no time beyond a bound.
//!
//! A separate test program, because it counts all allocations of the process. Each target runs a fixed number of cases;
//! `OCELLI_FUZZ_SECONDS=60` runs each target for a minute instead, from another seed each time. What fails is written to
//! the temporary folder of the build and belongs, as a test, beside the parser.

#![allow(unsafe_code, reason = "a global allocator needs it")]
#![allow(clippy::print_stdout, reason = "the counts are of interest when the test passes")]

mod limits;
mod mutate;
mod targets;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flate2::{Compression, Crc, write::ZlibEncoder};
use ocelli::Image;

use limits::{Counting, exceeded};
use mutate::{Random, mutated};
use targets::{TARGETS, Target};

/// The folder with the goldens and seeds.
const TESTS: &str = env!("CARGO_MANIFEST_DIR");
/// Cases of each target in an ordinary run.
const CASES: usize = 400;
/// The time of a case; a busy machine takes a hundredth of it.
const MOST_TIME: Duration = Duration::from_secs(5);

#[global_allocator]
static COUNTING: Counting = Counting;

/// Held by the test that runs: the counts are the process's.
static ALONE: Mutex<()> = Mutex::new(());

/// The failure of a case, if any.
fn wrong(target: &Target, folder: &Path, bytes: &[u8]) -> Option<String> {
    let start = Instant::now();
    let parsed = catch_unwind(AssertUnwindSafe(|| exceeded(bytes.len(), || (target.parse)(folder, bytes))));
    let time = start.elapsed();
    match parsed {
        Ok(Some(why)) => return Some(why),
        Ok(None) => {}
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            return Some(format!("panicked: {text}"));
        }
    }
    (time > MOST_TIME).then(|| format!("took {time:?}"))
}

#[test]
fn mutated_inputs_are_parsed_within_bounds() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds: Option<u64> =
        std::env::var("OCELLI_FUZZ_SECONDS").ok().map(|text| text.parse().expect("a number"));
    let only = std::env::var("OCELLI_FUZZ_TARGET").ok();
    let seed = match seconds {
        None => 1,
        Some(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64),
    };
    // The panics are the result.
    std::panic::set_hook(Box::new(|_| {}));
    let mut failures = Vec::new();
    for target in TARGETS.iter().filter(|target| only.as_ref().is_none_or(|only| only == target.name)) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (seeds, mut random, start) = ((target.seeds)(), Random::new(seed), Instant::now());
        let whole = seeds.iter().map(|seed| wrong(target, folder.path(), seed)).collect::<Vec<_>>();
        failures.extend(whole.into_iter().flatten().map(|why| format!("{}: a seed {why}", target.name)));
        let (mut cases, mut found) = (0, 0);
        while match seconds {
            None => cases < CASES,
            Some(seconds) => start.elapsed() < Duration::from_secs(seconds),
        } {
            cases += 1;
            let bytes = mutated(&mut random, &seeds);
            if let Some(why) = wrong(target, folder.path(), &bytes) {
                let name = format!("fuzz-{}-{cases}", target.name);
                let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
                std::fs::write(&kept, &bytes).expect("the folder of the build can be written to");
                failures.push(format!("{}: {why}: {}", target.name, kept.display()));
                found += 1;
                if found == 5 {
                    break;
                }
            }
        }
        println!("{}: {cases} cases in {:.1} s", target.name, start.elapsed().as_secs_f64());
    }
    drop(std::panic::take_hook());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A chunk of a PNG file.
fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("a chunk has a length of 32 bits");
    let mut crc = Crc::new();
    crc.update(kind);
    crc.update(data);
    [&length.to_be_bytes()[..], kind, data, &crc.sum().to_be_bytes()].concat()
}

fn deflated(parts: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    parts.into_iter().for_each(|part| encoder.write_all(&part).expect("memory can be written to"));
    encoder.finish().expect("memory can be written to")
}

/// A TIFF of 74 bytes whose directory declares values of 208 MiB, which fuzzing has found.
#[test]
fn a_directory_of_an_image_takes_little_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = [258u16.to_le_bytes(), 1u16.to_le_bytes()].concat();
    let file = [
        b"II\x2a\0\x08\0\0\0".as_slice(),
        &2u16.to_le_bytes(),
        b"\0\x01\x04\0\x01\0\0\0\x07\0\0\0",
        &entry,
        &218_104_064u32.to_le_bytes(),
        &[0; 60],
    ]
    .concat();
    let size = exceeded(0, || assert!(Image::declared_size(&file, "image").is_err()));
    let decoded = exceeded(0, || assert!(Image::decode(&file, "image").is_err()));
    assert_eq!((size, decoded), (None, None));
}

/// Compressed metadata of ten pixels that inflates to a gigabyte costs neither memory nor the image's size.
#[test]
fn metadata_of_an_image_takes_little_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let large = deflated((0..64).map(|_| vec![0; 16 << 20]));
    let header = [10u32.to_be_bytes(), 10u32.to_be_bytes()].concat();
    let header = chunk(b"IHDR", &[&header[..], &[8, 2, 0, 0, 0]].concat());
    let pixels = chunk(b"IDAT", &deflated([vec![0; 10 * 31]]));
    let end = chunk(b"IEND", b"");
    for (kind, start) in [(b"iCCP", &b"x\0\0"[..]), (b"zTXt", b"x\0\0"), (b"iTXt", b"x\0\x01\0\0\0")] {
        let metadata = chunk(kind, &[start, &large].concat());
        let file = [b"\x89PNG\r\n\x1a\n", &header[..], &metadata, &pixels, &end].concat();
        let name = String::from_utf8_lossy(kind).into_owned();
        let size = exceeded(0, || match Image::declared_size(&file, &name) {
            Ok(size) => assert_eq!(size, (10, 10), "{name}"),
            Err(error) => assert!(error.to_string().contains(&name), "{error}"),
        });
        let decoded = exceeded(0, || drop(Image::decode(&file, &name)));
        assert_eq!((size, decoded), (None, None), "{name}");
    }
}
