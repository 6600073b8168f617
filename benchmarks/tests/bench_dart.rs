//! Runs `bench dart` on a small model.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn both_tables_are_measured() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    let checkpoint = place.path().join("checkpoint");
    std::fs::create_dir(&checkpoint)?;
    ocelli::builtin::write_checkpoint(&checkpoint)?;
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
        let folder = |name: &str| place.path().join(name);
        command.args([
            "dart",
            "--backbones",
            "whole",
            "--sizes",
            "112",
            "--engine",
            "embedded",
            "--threads",
            "1",
        ]);
        command.args(["--class-counts", "1", "2", "20", "--runs", "1", "--warm-up", "0"]);
        command.args(more).arg("--model").arg(&checkpoint);
        command.arg("--work").arg(folder("work")).arg("--output").arg(folder("output"));
        command.output()
    };
    let output = run(&["--ablation", "3"])?;
    let text = String::from_utf8(output.stdout)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = text.lines().filter(|line| line.starts_with("| whole")).map(cells).collect();
    let classes: Vec<&str> = rows[..3].iter().map(|row| &*row[2]).collect();
    assert_eq!((rows.len(), classes), (7, vec!["1", "2", "20"]), "{text}");
    assert!(rows[..3].iter().all(|row| row[8].parse::<f64>().is_ok_and(|fps| fps > 0.0)), "{text}");
    assert_eq!(rows[3][5], "1.00", "{text}");
    assert!(rows[6][3].ends_with("masks"), "{text}");

    let lines = std::fs::read_to_string(place.path().join("output/dart.jsonl"))?;
    let lines: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let number_of = |line: &Value, pointer: &str| {
        line.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {line}"))
    };
    let number = |line: usize, pointer: &str| number_of(&lines[line], pointer);
    assert_eq!(lines.len(), 7);
    for line in &lines[..3] {
        let frame = number_of(line, "/image/ms/p50") + number_of(line, "/prompts/ms/p50");
        assert!((number_of(line, "/sequential_fps") * frame - 1e3).abs() < 1e-6, "{line}");
    }
    assert_eq!(number(2, "/at_once"), 16.0, "at most");
    // A pass for each of three prompts runs the backbone three times.
    assert!((number(3, "/image/ms/p50") - 3.0 * number(4, "/image/ms/p50")).abs() < 1e-6, "{text}");
    assert!(number(6, "/frame_ms") >= number(6, "/image/ms/p50") + number(6, "/masks_ms/p50"), "{text}");
    let left: Vec<_> = Path::new(&place.path().join("work")).read_dir()?.flatten().collect();
    assert!(left.is_empty(), "graphs are removed: {left:?}");

    // What takes too long is listed.
    let short = String::from_utf8(run(&["--limit", "0", "--ablation", "0", "--pipelined", "2"])?.stdout)?;
    assert!(short.contains("- whole, 112 px, 2 classes: about"), "{short}");
    assert!(short.contains("| whole | 112 | 1 |") && !short.contains("| whole | 112 | 2 |"), "{short}");
    Ok(())
}
