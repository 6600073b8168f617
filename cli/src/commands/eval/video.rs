//! `ocelli eval --video`.

use std::path::Path;

use ocelli::atomic_file::write_atomically;
use ocelli_datasets::eval::video::{evaluate, write_video_report};

use super::EvalArgs;
use crate::{LogArgs, check_output_file, print, status};

/// Evaluates tracks or masks in videos.
pub fn run(args: &EvalArgs, log: &LogArgs) -> anyhow::Result<()> {
    let json = args.json.as_deref();
    if let Some(path) = json.filter(|path| *path != Path::new("-")) {
        check_output_file("--json", path)?;
    }
    let predictions = args.predictions.as_deref().expect("--video requires --predictions");
    let report = evaluate(&args.truth, predictions)?;
    if json == Some(Path::new("-")) {
        return print(|out| report.write_json(out));
    }
    print(|out| write_video_report(out, &report, args.per_class))?;
    if let Some(path) = json {
        write_atomically(path, |file| report.write_json(file))?;
        status(log, &format!("→ {}", path.display()));
    }
    Ok(())
}
