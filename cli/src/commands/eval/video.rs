//! `ocelli eval --video`.

use ocelli_datasets::eval::video::{evaluate, write_video_report};

use super::EvalArgs;
use crate::LogArgs;
use crate::output::{check_outputs, present};

/// Evaluates tracks or masks in videos.
pub fn run(args: &EvalArgs, log: &LogArgs) -> anyhow::Result<()> {
    let json = args.json.as_deref();
    check_outputs([("--json", json)])?;
    let predictions = args.predictions.as_deref().expect("--video requires --predictions");
    let report = evaluate(&args.truth, predictions)?;
    present(log, json, &report, |out| write_video_report(out, &report, args.per_class))
}
