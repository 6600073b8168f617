//! Replays recorded sessions of SAM 3's video predictor and compares every decision and every shown mask:
//! `cargo run -p ocelli-tracking --example replay_sessions -- FILE…`, JSON or gzipped JSON.
//!
//! Prints each difference and exits with 1 if there are any, or if a file cannot be read.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bucket_bank;
mod describe;
mod options;
mod replay;
mod script;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        eprintln!("usage: replay_sessions FILE…");
        return ExitCode::from(2);
    }
    let mut is_equal = true;
    for file in &files {
        match replay::replay_file(file) {
            Ok(result) => {
                result.differences.iter().for_each(|difference| println!("{difference}"));
                println!("{}: {result}", file.display());
                is_equal &= result.differences.is_empty();
            }
            Err(error) => {
                eprintln!("error: {}: {error}", file.display());
                is_equal = false;
            }
        }
    }
    if is_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
