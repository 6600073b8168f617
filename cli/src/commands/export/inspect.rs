//! `ocelli export --inspect`.

use std::path::Path;

use ocelli::export::CheckpointOptions;

use crate::print;

/// Prints what a checkpoint is, and why it cannot be exported, if so.
pub fn run(path: &Path, options: &CheckpointOptions) -> anyhow::Result<()> {
    let inspection = options.inspect(path)?;
    print(|out| {
        writeln!(out, "{}: {}\n", path.display(), inspection.family)?;
        writeln!(out, "{:<20} {:>8} {:>14}", "part", "tensors", "parameters")?;
        for part in &inspection.parts {
            writeln!(out, "{:<20} {:>8} {:>14}", part.name, part.tensors, part.parameters)?;
        }
        for (why, (tensors, bytes)) in &inspection.ignored {
            writeln!(out, "ignored: {why}: {tensors} tensors, {}", super::size(*bytes))?;
        }
        inspection.problem.iter().try_for_each(|why| writeln!(out, "\ncannot be exported: {why}"))
    })
}
