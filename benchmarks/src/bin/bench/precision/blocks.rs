//! The blocks of a model: the error of each, and which have to stay in 32 bits.

use std::collections::BTreeMap;

use ocelli::export::contract::{Precision, Target};
use ocelli::export::{Block, ErrorKind, ExportOptions, MixedPrecision};
use ocelli_benchmarks::bisect::least_needed;
use ocelli_benchmarks::machine::Machine;
use ocelli_benchmarks::precision::{Least, detect};
use ocelli_cli::{interrupted, status};
use serde::Serialize;

use super::{Bench, options};

/// The error of one block.
#[derive(Serialize)]
struct BlockLine<'a> {
    program: &'static str,
    precision: Precision,
    /// The block that is in this precision, alone.
    block: String,
    target: Target,
    engine: String,
    least_cosine: Least,
    cosines: BTreeMap<String, f64>,
    machine: &'a Machine,
}

/// The result of a bisection.
#[derive(Serialize)]
struct Verdict<'a> {
    program: &'static str,
    precision: Precision,
    mixed_precision: MixedPrecision,
    target: Target,
    engine: String,
    least_cosine: f64,
    most_ap_loss: Option<f64>,
    trials: usize,
    /// A minimal set; null if not even all blocks are enough.
    keep_fp32: Option<Vec<String>>,
    machine: &'a Machine,
}

impl Bench<'_> {
    /// The options of a precision.
    fn judged(&self, precision: Precision) -> anyhow::Result<ExportOptions> {
        let options = ExportOptions { precision, ..options(self.args, self.target) };
        let options = match precision.is_half() {
            true => ExportOptions { mixed_precision: Some(self.args.mixed_precision), ..options },
            false => options,
        };
        Ok(match precision.is_calibrated() {
            true => ExportOptions { calibration: Some(self.calibration(&options)?), ..options },
            false => options,
        })
    }

    /// Prints the error of each block if it alone is in a precision.
    pub(super) fn per_block(&self, precision: Precision) -> anyhow::Result<()> {
        let options = self.judged(precision)?;
        let blocks = options.blocks(&self.checkpoint);
        let shown = blocks.iter().filter(|block| !precision.is_calibrated() || block.has_8_bits());
        let mut lines = Vec::new();
        for block in shown {
            interrupted()?;
            let others = blocks.iter().copied().filter(|other| other != block).collect();
            let folder = self.export("trial", &ExportOptions { keep_fp32: others, ..options.clone() })?;
            let cosines = self.reference.cosines(&self.factory, &folder)?;
            let Some(least_cosine) = Least::of(&cosines) else { anyhow::bail!("no output to compare") };
            let line = BlockLine {
                program: "bench precision",
                precision,
                block: block.to_string(),
                target: self.target,
                engine: self.factory.description(),
                least_cosine,
                cosines,
                machine: &self.lines.machine,
            };
            self.lines.write(&line)?;
            lines.push(line);
        }
        lines.sort_by(|one, other| one.least_cosine.cosine.total_cmp(&other.least_cosine.cosine));
        status(format!("{:<12} {:>11}  least in", precision.to_string(), "least cos"));
        for BlockLine { block, least_cosine: Least { cosine, output }, .. } in lines {
            status(format!("{block:<12} {cosine:>11.7}  {output}"));
        }
        Ok(())
    }

    /// Finds the fewest blocks that have to stay in 32 bits.
    pub(super) fn bisect(&self, precision: Precision) -> anyhow::Result<()> {
        let half = self.judged(precision)?;
        let whole_ap = self.args.most_ap_loss.and(self.expected.accuracy.ap);
        let mut trials = 0;
        let found = least_needed(&half.blocks(&self.checkpoint), |kept| {
            interrupted()?;
            trials += 1;
            let (passes, why) = self.trial(&half, kept, whole_ap)?;
            let what = names(kept).join(",");
            let what = if what.is_empty() { "nothing" } else { &what };
            let verdict = if passes { "enough" } else { "not enough" };
            status(format!("trial {trials}: keeping {what}: {verdict}, {why}"));
            Ok::<_, anyhow::Error>(passes)
        })?;
        let verdict = Verdict {
            program: "bench precision",
            precision,
            mixed_precision: self.args.mixed_precision,
            target: self.target,
            engine: self.factory.description(),
            least_cosine: self.args.least_cosine,
            most_ap_loss: self.args.most_ap_loss,
            trials,
            keep_fp32: found.as_deref().map(names),
            machine: &self.lines.machine,
        };
        self.lines.write(&verdict)?;
        let Some(kept) = verdict.keep_fp32 else {
            anyhow::bail!(
                "no bisection, {precision}: the target is missed even with every block in 32 bits; lower --least-cosine"
            );
        };
        let keep = if kept.is_empty() { String::new() } else { format!(" --keep-fp32 {}", kept.join(",")) };
        let islands = self.args.mixed_precision;
        let islands =
            if precision.is_half() { format!(" --mixed-precision {islands}") } else { String::new() };
        let command = format!("ocelli export --precision {precision}{islands}{keep} …");
        status(&command);
        Ok(())
    }

    /// Whether the target is reached with `kept` in 32 bits, and the measurements.
    fn trial(
        &self,
        half: &ExportOptions,
        kept: &[Block],
        whole_ap: Option<f64>,
    ) -> anyhow::Result<(bool, String)> {
        let options = ExportOptions { keep_fp32: kept.iter().copied().collect(), ..half.clone() };
        let folder = match self.export("trial", &options) {
            Ok(folder) => folder,
            // A weight exceeds the range of the format.
            Err(e) if e.kind() == ErrorKind::InvalidArgument => return Ok((false, e.to_string())),
            Err(e) => return Err(e.into()),
        };
        let cosines = self.reference.cosines(&self.factory, &folder)?;
        let Some(least) = Least::of(&cosines) else { anyhow::bail!("no output to compare") };
        let why = format!("least cosine {:.8} in {}", least.cosine, least.output);
        if least.cosine < self.args.least_cosine {
            return Ok((false, why));
        }
        let (Some(loss), Some(whole)) = (self.args.most_ap_loss, whole_ap) else { return Ok((true, why)) };
        let ap = detect(&self.factory, &folder, &self.scenes)?.accuracy.ap.unwrap_or(0.0);
        Ok((whole - ap <= loss, format!("{why}, AP {ap:.3} of {whole:.3}")))
    }
}

fn names(blocks: &[Block]) -> Vec<String> {
    blocks.iter().map(ToString::to_string).collect()
}
