//! Files are complete after every kind of end: Ctrl-C, kill, a full disk, a closed pipe.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::{OCELLI, VIDEO, command, draw_video, frames_of, lines_of, names, numbers, run_video, succeed};
use crate::run::{Place, outcome};

/// A scene that is longer than any test.
const ENDLESS: &str = "--classes dog --track --scene-size 160x120 --max-frames 1000000";

/// Starts a program and reads `lines` lines of its stdout.
fn start_and_read(place: &Place, arguments: &str, lines: usize) -> (Child, BufReader<ChildStdout>, String) {
    let mut command = command(place, VIDEO, arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut text = String::new();
    for _ in 0..lines {
        let read = stdout.read_line(&mut text).expect("it writes text");
        assert!(read > 0, "it ended early: {:?}", child.wait_with_output());
    }
    (child, stdout, text)
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
    assert!(kill.is_ok_and(|status| status.success()), "the signal can be sent");
}

#[cfg(unix)]
#[test]
fn ctrl_c_completes_the_video() {
    for (ending, sequential) in [("mp4", ""), ("mkv", "--sequential")] {
        let place = Place::new();
        let arguments =
            format!("{ENDLESS} {sequential} -o out.{ending} --jsonl - --mot out.txt --stats stats.json");
        let (child, mut stdout, mut text) = start_and_read(&place, &arguments, 6);
        assert!(!place.path(&format!("out.{ending}")).exists(), "it appears when it is complete");
        signal(&child, "INT");
        stdout.read_to_string(&mut text).expect("it writes text");
        let output = child.wait_with_output().expect("the program ends");
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        let lines = lines_of(text.as_bytes());
        assert_eq!(numbers(&lines), (0..lines.len() as u64).collect::<Vec<_>>());
        let (frames, rate) = frames_of(&place.path(&format!("out.{ending}")));
        assert_eq!((frames.len(), rate), (lines.len(), 25.0), "{ending}");
        assert_eq!(place.json("stats.json")["cancelled"], true);
        let left: Vec<_> = names(place.path("")).into_iter().filter(|name| name.starts_with('.')).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Waits for a program that must end soon.
fn wait(mut child: Child) -> std::process::Output {
    let began = Instant::now();
    while child.try_wait().expect("it can be waited for").is_none() {
        if began.elapsed() > Duration::from_secs(30) {
            drop(child.kill());
            panic!("it hangs: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("it has ended")
}

#[cfg(unix)]
#[test]
fn an_idle_stdin_does_not_hold_up_the_end() {
    let frames = [90u8; 3 * 160 * 120 * 3];
    for (arguments, status) in [
        ("-o out.mp4 --mot out.txt --jsonl -", 130),
        ("-o out.mp4 --mot out.txt --jsonl - --sequential", 130),
        ("-o out.mp4 --mot /dev/full", 1),
    ] {
        let place = Place::new();
        let arguments = format!("--video - --raw 160x120:bgr --classes dog --confidence 0 {arguments}");
        let mut command = command(&place, VIDEO, &arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(&frames).expect("it reads stdin");
        if status == 130 {
            let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
            for _ in 0..3 {
                assert!(stdout.read_line(&mut String::new()).expect("it writes text") > 0, "{arguments}");
            }
            signal(&child, "INT");
        }
        let output = wait(child);
        assert_eq!(output.status.code(), Some(status), "{arguments}: {output:?}");
        if status == 130 {
            assert_eq!(frames_of(&place.path("out.mp4")).0.len(), 3, "{arguments}");
        }
        drop(stdin);
    }
}

#[test]
fn earlier_results_stay_if_the_model_cannot_be_loaded() {
    let place = Place::new();
    place.write("broken/model.json", "{}");
    for name in ["out.jsonl", "out.txt", "out.mp4"] {
        place.write(name, "yesterday's results\n");
    }
    let arguments = "--classes dog --track --model broken -o out.mp4 --jsonl out.jsonl --mot out.txt";
    let refused = run_video(&place, arguments);
    refused.is_refusal(1, &["broken"]).unwrap_or_else(|e| panic!("{e}"));
    for name in ["out.jsonl", "out.txt", "out.mp4"] {
        assert_eq!(place.read(name), b"yesterday's results\n", "{name}");
    }
}

#[test]
fn a_run_without_frames_is_reported() {
    let place = Place::new();
    draw_video(&place, "in.mp4", 4);
    for (arguments, word) in
        [("--video in.mp4 --start 100f", "--start"), ("--video - --raw 16x16:bgr", "stdin")]
    {
        let arguments = format!("{arguments} --classes moon");
        let without = run_video(&place, &arguments);
        assert_eq!(without.status, Some(0), "{arguments}: {without:?}");
        for word in ["no frame was read", word] {
            assert!(without.stderr.contains(word), "{word}: {without:?}");
        }
        for output in ["-o out.avi", "--jsonl out.jsonl", "--mot out.txt", "--crops crops"] {
            let refused = run_video(&place, &format!("{arguments} {output}"));
            refused
                .is_refusal(1, &["no frame was read", word])
                .unwrap_or_else(|e| panic!("{arguments} {output}: {e}"));
        }
        assert_eq!(names(place.path("")), ["in.mp4"], "{arguments}");
    }
}

#[cfg(unix)]
#[test]
fn kill_leaves_complete_lines() {
    for seen in [1, 4, 9] {
        let place = Place::new();
        let arguments = format!("{ENDLESS} -o out.mp4 --mot - --jsonl out.jsonl");
        let (mut child, mut stdout, mut text) = start_and_read(&place, &arguments, seen);
        signal(&child, "KILL");
        stdout.read_to_string(&mut text).expect("it writes text");
        child.wait().expect("it ended");
        let whole = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        // It is created with the first frame, after the boxes of that frame.
        let bytes = std::fs::read(place.path("out.jsonl")).unwrap_or_default();
        let lines = lines_of(&bytes[..whole(&bytes)]);
        assert_eq!(numbers(&lines), (0..lines.len() as u64).collect::<Vec<_>>());
        let boxes = &text.as_bytes()[..whole(text.as_bytes())];
        let boxes = ocelli::tracking::read_mot("stdout", boxes).expect("whole lines are whole");
        // Boxes of a frame are written before its line.
        let last = boxes.last().map_or(0, |last| u64::from(last.frame));
        assert!(lines.len() as u64 + 1 >= last, "{} lines, boxes until frame {last}", lines.len());
        assert!(!place.path("out.mp4").exists(), "a partial video remained");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let place = Place::new();
    let scene = "--classes dog --track --scene-size 160x120 --max-frames 5";
    for sink in ["--jsonl", "--mot", "--stats"] {
        let full = run_video(&place, &format!("{scene} {sink} /dev/full -o kept.avi"));
        assert_eq!(full.status, Some(1), "{sink}: {full:?}");
        let last = full.stderr.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("error: ") && last.contains("/dev/full") && last.contains("No space"),
            "{sink}: {full:?}"
        );
    }
    let mut to_full = command(&place, VIDEO, &format!("{scene} -o - --raw-out bgr"));
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = to_full.stdout(full).stderr(Stdio::piped()).spawn().and_then(Child::wait_with_output);
    let output = output.expect("the program ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stdout") && said.contains("No space"), "{said}");
}

#[cfg(unix)]
#[test]
fn a_limit_on_file_sizes_is_an_error() {
    let place = Place::new();
    // The model and the text features are cached: only results are written.
    let scene = "--classes dog --track --scene-size 320x240 --detect-every 4 --max-frames 40";
    succeed(&place, &format!("{scene} --max-frames 1").replacen("--max-frames 40 ", "", 1));
    for (results, words) in [
        ("-o out.mp4", ["out.mp4", "too large"]),
        ("-o out.avi", ["out.avi", "too large"]),
        ("-o out.mkv", ["out.mkv", "too large"]),
        ("--jsonl out.jsonl", ["out.jsonl", "too large"]),
    ] {
        let mut limited = command(&place, "sh", "");
        // Eight blocks of 512 or 1024 bytes.
        limited.arg("-c").arg(format!("ulimit -f 8; exec {OCELLI} video {scene} {results}"));
        let outcome = outcome(&mut limited);
        assert_eq!(outcome.status, Some(1), "{results}: {outcome:?}");
        let last = outcome.stderr.lines().last().unwrap_or_default();
        for word in words {
            assert!(last.starts_with("error: ") && last.contains(word), "{results}: {outcome:?}");
        }
    }
    assert_eq!(names(place.path("")), ["out.jsonl"], "a partial video remained");
    let bytes = place.read("out.jsonl");
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    assert!(!lines_of(&bytes[..end]).is_empty());
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_the_program_silently() {
    for arguments in [format!("{ENDLESS} -o - --raw-out rgb"), format!("{ENDLESS} --jsonl - -o kept.mkv")] {
        let place = Place::new();
        let mut command = command(&place, VIDEO, &arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut some = [0; 10];
        child.stdout.take().expect("it is piped").read_exact(&mut some).expect("it writes something");
        let output = child.wait_with_output().expect("the program ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(141), "{arguments}: {said}");
        assert!(!said.contains("error: "), "{said}");
        if arguments.contains("kept") {
            assert!(!frames_of(&place.path("kept.mkv")).0.is_empty(), "what was done is kept");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_window_needs_a_display() {
    let place = Place::new();
    let arguments = "--classes dog --scene-size 160x120 --max-frames 3 --display";
    let mut without = command(&place, VIDEO, arguments);
    for variable in ["DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"] {
        without.env_remove(variable);
    }
    let refused = outcome(&mut without);
    refused.is_refusal(1, &["no display", "omit --display"]).unwrap_or_else(|e| panic!("{e}"));
    let outcome_without = outcome(without.env("DISPLAY", ":987"));
    outcome_without.is_refusal(1, &[":987", "does not answer"]).unwrap_or_else(|e| panic!("{e}"));
}
