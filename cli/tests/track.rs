//! Runs `ocelli track`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::run::{Place, outcome, refusal};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");

/// Two objects that walk for `frames` frames, with `line` added.
fn detections(frames: u32) -> String {
    let mut text = String::new();
    for frame in 1..=frames {
        writeln!(text, "{frame},-1,{},50,40,80,0.9,-1,-1,-1", 10 + 3 * frame).expect("a string takes it");
        writeln!(text, "{frame},-1,{},200,60,60,0.7,-1,-1,-1", 900 - 4 * (frame % 200))
            .expect("a string takes it");
    }
    text
}

/// Frame and id of each line.
fn tracks(text: &str) -> Vec<(u32, u32)> {
    let pair = |line: &str| {
        let mut fields = line.split(',');
        let mut next = || fields.next().and_then(|field| field.parse().ok()).expect("a whole number");
        (next(), next())
    };
    text.lines().map(pair).collect()
}

#[test]
fn detections_become_tracks() {
    let place = Place::new();
    place.write("det.txt", detections(30));
    let said = place.run(OCELLI, &["track", "--detections", "det.txt", "--output", "tracks.txt"]);
    assert_eq!((said.status, said.stdout.as_str()), (Some(0), ""), "{said:?}");
    assert_eq!(said.stderr, "60 boxes in 30 frames, 2 tracks\n");
    let text = String::from_utf8(place.read("tracks.txt")).expect("numbers");
    let first = text.lines().next().expect("a line");
    assert_eq!(first, "1,1,13,50,40,80,0.9,-1,-1,-1");
    // The one with the lower score is shown from its second frame on.
    let expected = (1..=30).flat_map(|frame| [(frame, 1), (frame, 2)]).filter(|one| *one != (1, 2));
    assert_eq!(tracks(&text), expected.collect::<Vec<_>>());

    // Lines may be in any order; stdin and stdout replace files.
    let mut lines: Vec<_> = detections(30).lines().map(str::to_owned).collect();
    lines.reverse();
    let mut command = place.command(OCELLI, &["track", "--detections", "-", "--quiet"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(lines.join("\n").as_bytes()).expect("it reads all");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
    let piped = String::from_utf8(output.stdout).expect("numbers");
    assert_eq!(tracks(&piped).len(), 59);
}

/// Each row: lines of frame and left edge of one box, arguments, and frames of the tracks by id.
#[test]
fn flags_and_gaps() {
    let place = Place::new();
    type Row = (&'static str, &'static [u32], f32, &'static str, &'static [(u32, u32)]);
    let rows: &[Row] = &[
        ("all frames", &[1, 2, 3], 0.6, "", &[(2, 1), (3, 1)]),
        ("a sure one", &[1, 2, 3], 0.9, "", &[(1, 1), (2, 1), (3, 1)]),
        ("hits", &[1, 2, 3], 0.9, "--min-hits 3", &[(3, 1)]),
        ("not sure", &[1, 2], 0.9, "--sure-thresh 0.95", &[(2, 1)]),
        ("too weak", &[1, 2, 3], 0.4, "", &[]),
        ("weak enough", &[1, 2, 3], 0.4, "--track-thresh 0.3", &[(2, 1), (3, 1)]),
        ("a gap", &[1, 2, 6], 0.9, "", &[(1, 1), (2, 1), (6, 1)]),
        ("a gap to coast", &[1, 2, 6], 0.9, "--coast 2", &[(1, 1), (2, 1), (3, 1), (4, 1), (6, 1)]),
        ("too long a gap", &[1, 2, 6], 0.9, "--max-time-lost 3", &[(1, 1), (2, 1), (6, 2)]),
        ("frames without a detector run", &[1, 3, 5], 0.6, "--gaps skipped", &[(3, 1), (5, 1)]),
        ("tentative ones go", &[1, 3, 5], 0.6, "", &[]),
        ("slow frames", &[1, 2, 6], 0.9, "--frame-step 8", &[(1, 1), (2, 1), (6, 2)]),
        ("a late start", &[4_000_000_000, 4_000_000_001], 0.9, "", &[(4_000_000_000, 1), (4_000_000_001, 1)]),
        ("an age between", &[1, 4_000_000_000], 0.9, "", &[(1, 1), (4_000_000_000, 2)]),
        ("nothing at all", &[], 0.9, "", &[]),
    ];
    let mut failures = Vec::new();
    for (name, frames, score, arguments, expected) in rows {
        let mut text = String::new();
        for frame in *frames {
            writeln!(text, "{frame},-1,10,10,50,50,{score}").expect("a string takes it");
        }
        place.write("det.txt", text);
        let mut all = vec!["track", "--detections", "det.txt", "--output", "out.txt", "--quiet"];
        all.extend(arguments.split_whitespace());
        place.succeed(OCELLI, &all);
        let came = tracks(&String::from_utf8(place.read("out.txt")).expect("numbers"));
        if came != *expected {
            failures.push(format!("{name}: {came:?}, expected {expected:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The number after the score is the class; whether a track may change it is a flag.
#[test]
fn tracks_keep_their_class_unless_any_is_allowed() {
    let place = Place::new();
    let line = |frame: u32| format!("{frame},-1,10,10,50,50,0.9,{},-1\n", if frame < 4 { 1 } else { 2 });
    place.write("det.txt", (1..=6).map(line).collect::<String>());
    let mut failures = Vec::new();
    for (which, expected) in [("same", [1, 1, 1, 2, 2, 2]), ("any", [1; 6])] {
        let arguments = ["track", "--detections", "det.txt", "--quiet", "--match-classes", which];
        let ids: Vec<u32> =
            tracks(&place.succeed(OCELLI, &arguments)).into_iter().map(|(_, id)| id).collect();
        if ids != expected {
            failures.push(format!("{which}: {ids:?}, expected {expected:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn invalid_input_is_refused() {
    let place = Place::new();
    place.write("det.txt", detections(3));
    place.write("bad.txt", detections(3) + "4,-1,ten,50,40,80,0.9\n");
    place.write("image.png", [0x89, b'P', b'N', b'G', 0xff, 0xfe]);
    place.folder("folder");
    place.refuses(
        OCELLI,
        &[
            refusal("track", 2, &["--detections"]),
            refusal("track|--detections|none.txt", 1, &["none.txt", "No such file"]),
            refusal("track|--detections|folder", 2, &["folder", "name a file"]),
            refusal("track|--detections|bad.txt|--output|out.txt", 1, &["bad.txt, line 7", "left", "ten"]),
            refusal(
                "track|--detections|image.png|--output|out.txt",
                1,
                &["image.png, line 1", "MOTChallenge"],
            ),
            refusal("track|--detections|det.txt|--output|folder", 1, &["--output", "name a file"]),
            refusal("track|--detections|det.txt|--output|no/out.txt", 1, &["the folder no does not exist"]),
            refusal("track|--detections|det.txt|--output|/dev/full", 1, &["/dev/full", "No space left"]),
            refusal("track|--detections|det.txt|--match-thresh|1.1", 2, &["--match-thresh is 1.1"]),
            refusal("track|--detections|det.txt|--min-hits|-1", 2, &["--min-hits"]),
            refusal("track|--detections|det.txt|--frame-step|0", 2, &["--frame-step is 0"]),
            refusal("track|--detections|det.txt|--gaps|some", 2, &["empty, skipped"]),
        ],
    );
    // Input and output may be the same file: it is read first.
    place.succeed(OCELLI, &["track", "--detections", "det.txt", "--output", "det.txt", "--min-hits", "1"]);
    assert_eq!(tracks(&String::from_utf8(place.read("det.txt")).expect("numbers")).len(), 6);
}

/// Whenever the program is killed, the file ends with a complete line.
#[cfg(unix)]
#[test]
fn a_killed_run_leaves_complete_lines() {
    let place = Place::new();
    place.write("det.txt", detections(200_000));
    let mut child = place.start(OCELLI, &["track", "--detections", "det.txt", "--output", "out.txt"]);
    while std::fs::metadata(place.path("out.txt")).map_or(0, |file| file.len()) < 20_000 {
        assert_eq!(child.try_wait().expect("the status can be read"), None, "it ended early");
        std::thread::yield_now();
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let text = String::from_utf8(place.read("out.txt")).expect("numbers");
    assert!(text.ends_with("-1,-1,-1\n"), "{:?}", &text[text.len() - 60..]);
    assert!(tracks(&text).len() < 399_000, "it was done before it was killed");
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_is_silent() {
    let place = Place::new();
    place.write("det.txt", detections(50_000));
    let mut shell = Command::new("sh");
    let script = format!("\"{OCELLI}\" track --detections det.txt --quiet; echo status $? >&2");
    let piped = format!("{{ {script}; }} | head -n 1");
    let said = outcome(shell.args(["-c", &piped]).current_dir(place.path("")));
    assert!(said.stderr.contains("status 141") && !said.stderr.contains("error: "), "{said:?}");
    assert!(!said.stderr.contains("panicked"), "{said:?}");
}
