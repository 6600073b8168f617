//! `--optimise-split`: where to split the backbone in two.

use ocelli::atomic_file::write_atomically;
use ocelli::export::Checkpoint;
use ocelli::{ModelSource, Prompts, engine::EngineFactory};
use ocelli_verify::prune::{SplitInput, optimise_split, write_json};

use super::{Bar, PruneArgs, checkpoint_path, engine_options, resolved};
use crate::args::folder_of;
use crate::{LogArgs, check_output_file, class_names, interrupted, print, status};

/// Measured runs of each block.
const RUNS: usize = 5;

/// Times the blocks, prints every place to split the backbone, and last the flag of the best one.
pub fn run(args: &PruneArgs, log: &LogArgs) -> anyhow::Result<()> {
    let runs = args.runs.unwrap_or(RUNS);
    if runs == 0 {
        refuse!("--runs is 0: expected at least 1");
    }
    check_output_file("--output", &args.output)?;
    let builtin = tempfile::tempdir()?;
    let source = ModelSource::named(&args.model);
    let path = checkpoint_path(args, &source, builtin.path())?;
    let checkpoint = Checkpoint::open(path)?;
    let first = EngineFactory::start_for_model(&engine_options(args, &args.engine)?, &source)?;
    let second = match &args.second_engine {
        Some(name) => EngineFactory::start_for_model(&engine_options(args, name)?, &source)?,
        None => first.clone(),
    };
    for (half, factory) in [("first half", &first), ("second half", &second)] {
        status(log, &format!("engine: {} ({half})", factory.description()));
    }
    let prompts =
        if args.classes.is_empty() { None } else { Some(Prompts::new(class_names(&args.classes, log)?)?) };
    let model = prompts.as_ref().map(|_| resolved(args, source, &second, log)).transpose()?;
    let input = SplitInput {
        checkpoint: &checkpoint,
        imgsz: args.imgsz,
        factories: [&first, &second],
        classes: model.as_ref().zip(prompts.as_ref()),
        runs,
        scratch: folder_of(&args.output),
    };
    let mut bar = Bar::new(log);
    let report = optimise_split(input, &mut |step| bar.show(step));
    drop(bar);
    interrupted()?;
    let report = report?;
    write_atomically(&args.output, |file| write_json(file, &report))?;
    print(|out| {
        report.write_table(&mut *out)?;
        writeln!(out, "\n--split-block {}", report.best.split_block)
    })?;
    status(log, &format!("→ {}", args.output.display()));
    Ok(())
}
