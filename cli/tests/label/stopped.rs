//! After any interruption, the same command continues and writes the same bytes.

use std::process::Stdio;

use super::data_set::{differences, journal_lines, write_images};
use super::{ALL_FORMATS, OCELLI, arguments};
use crate::run::{Outcome, Place, outcome};

/// Starts the program and sends it `signal` once its journal has `lines` lines.
#[cfg(unix)]
fn stop_after(place: &Place, signal: &str, lines: usize) -> Outcome {
    let more = [&ALL_FORMATS[..], &["--strict", "--review", "6"]].concat();
    let is_time = || journal_lines(&place.path("stopped")) >= lines;
    stop_when(place, &arguments("stopped", &more), signal, is_time)
}

/// Starts the program and sends it `signal` when it is time, unless it has ended by then.
#[cfg(unix)]
pub fn stop_when(place: &Place, arguments: &[&str], signal: &str, is_time: impl Fn() -> bool) -> Outcome {
    let mut child = place.start(OCELLI, arguments);
    loop {
        let ended = child.try_wait().expect("it was started");
        if ended.is_some() || is_time() {
            break;
        }
        // Polling: nothing signals a new line.
        std::thread::park_timeout(std::time::Duration::from_millis(3));
    }
    let pid = child.id().to_string();
    drop(std::process::Command::new("kill").args([signal, &pid]).stderr(Stdio::null()).status());
    let output = child.wait_with_output().expect("it ends");
    Outcome {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
#[cfg(unix)]
fn it_continues_after_being_killed_at_any_time() {
    it_continues_after_kills(24, 8);
}

#[test]
#[cfg(unix)]
#[ignore = "needs minutes; `make check-all`"]
fn long_it_continues_after_being_killed_at_any_time() {
    it_continues_after_kills(60, 18);
}

/// Kills a job of `count` images again and again, each time after up to `most` more of them.
#[cfg(unix)]
fn it_continues_after_kills(count: usize, most: usize) {
    let place = Place::new();
    write_images(&place, "images", count);
    place.write("images/bad.jpg", "hello");
    let more = [&ALL_FORMATS[..], &["--strict", "--review", "6"]].concat();
    assert_eq!(place.run(OCELLI, &arguments("whole", &more)).status, Some(1));
    let journal = place.path("stopped/.ocelli-label/journal.jsonl");
    let (mut lines, mut number, mut kills) = (0, 7u64, 0);
    // Some stops while it labels, and at the end some while it writes the files.
    while lines < count + 6 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        lines = journal_lines(&place.path("stopped")) + 1 + (number >> 33) as usize % most;
        let ended = stop_after(&place, "-KILL", lines);
        kills += usize::from(ended.status.is_none());
        // A power failure can leave an incomplete line, too.
        if let Ok(bytes) = std::fs::read(&journal)
            && number & 1 << 40 != 0
            && bytes.len() > 3000
        {
            std::fs::write(&journal, &bytes[..bytes.len() - 37]).expect("it can be written");
        }
    }
    assert!(kills >= 3, "it was killed {kills} times");
    assert_eq!(place.run(OCELLI, &arguments("stopped", &more)).status, Some(1));
    assert_eq!(differences(&place.path("stopped"), &place.path("whole")), [""; 0]);
    let left = |path: &std::path::PathBuf| path.to_string_lossy().contains(".part");
    let parts: Vec<_> = place.paths().into_iter().filter(left).collect();
    assert!(parts.len() <= kills, "more than one file a kill is half-written: {parts:?}");
}

#[test]
#[cfg(unix)]
fn ctrl_c_loses_nothing() {
    let place = Place::new();
    write_images(&place, "images", 20);
    let more = [&ALL_FORMATS[..], &["--strict", "--review", "6"]].concat();
    place.succeed(OCELLI, &arguments("whole", &more));
    let ended = stop_after(&place, "-INT", 6);
    assert_eq!(ended.status, Some(130), "{ended:?}");
    assert!(ended.stderr.contains("the same command continues from there"), "{ended:?}");
    let bytes = place.read("stopped/.ocelli-label/journal.jsonl");
    assert_eq!(bytes.last(), Some(&b'\n'));
    let done = journal_lines(&place.path("stopped")) - 1;
    assert!((5..20).contains(&done), "{done} are done");
    let again = place.run(OCELLI, &arguments("stopped", &more));
    assert!(again.status == Some(0) && again.stderr.contains(&format!("{done} done before")), "{again:?}");
    assert_eq!(differences(&place.path("stopped"), &place.path("whole")), [""; 0]);
}

#[test]
#[cfg(unix)]
fn a_full_disk_or_a_closed_stdout_loses_nothing() {
    let place = Place::new();
    write_images(&place, "images", 8);
    place.succeed(OCELLI, &arguments("whole", &ALL_FORMATS));
    if cfg!(target_os = "linux") {
        place.folder("full");
        place.folder("full/.ocelli-label");
        std::os::unix::fs::symlink("/dev/full", place.path("full/annotations.json")).expect("it can be made");
        let full = place.run(OCELLI, &arguments("full", &ALL_FORMATS));
        assert_eq!(full.status, Some(1), "{full:?}");
        let last = full.stderr.lines().last().unwrap_or_default();
        let words = ["error: cannot write, full/annotations.json", "space", "running it again continues"];
        assert!(words.iter().all(|word| last.contains(word)), "{full:?}");
        std::fs::remove_file(place.path("full/annotations.json")).expect("it is there");
        let again = place.run(OCELLI, &arguments("full", &ALL_FORMATS));
        assert!(
            again.status == Some(0) && again.stderr.contains("0 images to label, 8 done before"),
            "{again:?}"
        );
        assert_eq!(differences(&place.path("full"), &place.path("whole")), [""; 0]);
    }
    let mut child = place.start(OCELLI, &arguments("closed", &ALL_FORMATS));
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(141), "{stderr}");
    assert!(!stderr.contains("error: "), "{stderr}");
    assert_eq!(differences(&place.path("closed"), &place.path("whole")), [""; 0]);
}

/// The output is on a file system that is too small for it.
#[test]
#[ignore = "needs root, to mount a small disk"]
#[cfg(target_os = "linux")]
fn a_small_disk_loses_nothing() {
    let place = Place::new();
    write_images(&place, "images", 40);
    let more = [&ALL_FORMATS[..], &["--copy"]].concat();
    place.succeed(OCELLI, &arguments("whole", &more));
    place.folder("small");
    let disk = place.path("small");
    let mount = |arguments: &[&str]| {
        let status = std::process::Command::new("mount").args(arguments).arg(&disk).status();
        assert!(status.is_ok_and(|status| status.success()), "mounting needs root");
    };
    mount(&["-t", "tmpfs", "-o", "size=300k", "tmpfs"]);
    let mut stops = 0;
    let last = loop {
        let ended = outcome(&mut place.command(OCELLI, &arguments("small/set", &more)));
        if ended.status == Some(0) || stops > 50 {
            break ended;
        }
        let said = ended.stderr.lines().last().unwrap_or_default().to_owned();
        stops += 1;
        let kilobytes = 300 + 150 * stops;
        mount(&["-o", &format!("remount,size={kilobytes}k")]);
        assert!(ended.status == Some(1) && said.contains("space"), "{ended:?}");
    };
    let different = differences(&disk.join("set"), &place.path("whole"));
    drop(std::process::Command::new("umount").arg(&disk).status());
    assert_eq!(last.status, Some(0), "{last:?}");
    assert!(stops > 2, "it was full {stops} times");
    assert_eq!(different, [""; 0]);
}
