//! Runs `bench-preprocess`.

use std::process::Command;

use serde_json::Value;

fn run(arguments: &[&str]) -> std::process::Output {
    let program = env!("CARGO_BIN_EXE_bench-preprocess");
    Command::new(program).args(arguments).output().expect("the program is built")
}

#[test]
fn each_line_has_a_measurement_or_a_reason() {
    let output = run(&["--sizes", "64x48", "30x31", "--imgsz", "28", "--runs", "3", "--warm-up", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let mut failures = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let measured = line["total_ms"]["n"] == 3 && line["total_ms"]["p50"].as_f64() > Some(0.0);
        let fits = match line["place"].as_str() {
            Some("cpu") => measured,
            Some("cuda") => measured || (line["total_ms"].is_null() && line["not_measured"].is_string()),
            _ => false,
        };
        if !fits || line["program"] != "bench-preprocess" {
            failures.push(format!("line {index}: {line}"));
        }
    }
    assert_eq!(lines.len(), 2 * 2 * 2, "two devices, sizes and formats");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn invalid_arguments_are_errors() {
    let cases: [(&[&str], i32, &str); 4] = [
        (&["--runs", "0"], 2, "--runs is 0"),
        (&["--sizes", "64"], 2, "expected WIDTHxHEIGHT"),
        (&["--sizes", "0x5"], 2, "expected sides from 1 to 16384"),
        (&["--imgsz", "0"], 2, "imgsz is 0"),
    ];
    let mut failures = Vec::new();
    for (arguments, code, message) in cases {
        let output = run(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(code) || !text.contains(message) || !text.starts_with("error: ") {
            failures.push(format!("{arguments:?}: {:?}, {text}", output.status.code()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
