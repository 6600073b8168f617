//! `ocelli detect --interactive`, with lines from a pipe.

use std::io::Write;
use std::process::Stdio;

use crate::run::{Place, refusal};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
const SCENE: &[u8] = include_bytes!("../../demos/scenes/park.png");

/// The lines of a table with this label.
fn rows(table: &str, label: &str) -> Vec<String> {
    let of_label = table.lines().filter(|line| line.trim_start().starts_with(label));
    of_label.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn lines_are_searched_one_by_one() {
    let place = Place::new();
    place.write("park.png", SCENE);
    let flags =
        ["detect", "--engine", "embedded", "--image", "park.png", "--interactive", "--output", "found.png"];
    let mut command = place.command(OCELLI, &flags);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = child.stdin.take().expect("it is piped");
    // A line that fails does not end it, and what comes after the end is not read.
    let long = "x".repeat(3_000_000);
    let text = format!("dog\ntree, dog\n{long},\ntree\nexit\nperson\n");
    lines.write_all(text.as_bytes()).expect("the program reads");
    drop(lines);
    let output = child.wait_with_output().expect("the program ends");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    let (dogs, trees) = (rows(&out, "dog"), rows(&out, "tree"));
    assert_eq!((dogs.len(), trees.len(), rows(&out, "person").len()), (4, 4, 0), "{out}\n{err}");
    assert_eq!((&dogs[..2], &trees[..2]), (&dogs[2..], &trees[2..]), "the features are the picture's");
    let alone = place.succeed(
        OCELLI,
        &["detect", "--engine", "embedded", "--image", "park.png", "--classes", "dog", "tree"],
    );
    assert_eq!((rows(&alone, "dog"), rows(&alone, "tree")), (dogs[..2].to_vec(), trees[..2].to_vec()));
    assert_eq!(err.matches("→ found.png").count(), 3, "{err}");
    assert!(err.contains("error: class 0 has 3000000 bytes") && err.len() < 2_000, "{}", err.len());
    assert!(place.path("found.png").is_file());
}

#[test]
fn what_cannot_be_interactive_is_refused() {
    let place = Place::new();
    place.write("park.png", SCENE);
    place.write("other.png", SCENE);
    place.refuses(
        OCELLI,
        &[
            refusal("detect|--interactive", 2, &["no image"]),
            refusal(
                "detect|--interactive|--image|park.png|other.png",
                2,
                &["--interactive searches one image"],
            ),
            refusal(
                "detect|--interactive|--image|park.png|--classes|dog",
                2,
                &["--interactive", "--classes", "cannot be used"],
            ),
            refusal("detect|--interactive|--image|none.png", 2, &["none.png"]),
        ],
    );
}
