//! `ocelli eval`.

mod contender;
mod pictures;

use std::path::{Path, PathBuf};

use crate::{LogArgs, ModelArgs, Progress, check_output_file, interrupted, print, say, usage};
use clap::Args;
use ocelli::atomic_file::write_atomically;
use ocelli_datasets::eval::{EvalReport, Protocol, write_report};

use contender::{Contender, Question};
use pictures::Pictures;

/// Arguments of `ocelli eval`.
#[derive(Args, Debug)]
#[command(after_help = "\
Average precision is COCO's, as pycocotools computes it. Every picture is asked for every class. Protocols: practical \
(scores above 0.01, suppression 0.7 within a class, the best 300 of a picture) and dart (every score, no suppression, \
the best 100). Figures of different protocols cannot be compared.

Examples:
  ocelli eval --scenes 500
  ocelli eval --images val2017/ --annotations instances_val2017.json --model sam3/ --protocol dart
  ocelli eval --annotations instances.json --predictions found.json
  ocelli eval --scenes 100 --compare built-in pruned/")]
pub struct EvalArgs {
    /// The folder of the pictures that the annotations name
    #[arg(long, value_name = "DIR", requires = "annotations")]
    images: Option<PathBuf>,
    /// What is in the pictures: COCO annotations
    #[arg(long, value_name = "FILE", conflicts_with = "scenes")]
    annotations: Option<PathBuf>,
    /// Draw so many scenes and find what was drawn; they are the same everywhere
    #[arg(long, value_name = "N", conflicts_with = "images")]
    scenes: Option<u32>,
    /// Evaluate saved answers, a COCO results file, in place of a model
    #[arg(long, value_name = "FILE", conflicts_with_all = ["images", "compare"])]
    predictions: Option<PathBuf>,
    /// Two models on the same pictures, turn by turn: folders as for --model, `built-in`, or COCO results files
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "model")]
    compare: Vec<PathBuf>,
    /// Which answers count: practical or dart
    #[arg(long, default_value = "practical", value_name = "NAME")]
    protocol: Protocol,
    /// Evaluate these categories alone; with PHRASE=CATEGORY it is asked for by another phrase
    #[arg(long, alias = "class", num_args = 1.., value_name = "CATEGORY")]
    classes: Vec<String>,
    /// Evaluate masks as well
    #[arg(long)]
    masks: bool,
    /// Give each thing's box as an example in place of its name, and measure the masks that come back
    #[arg(long)]
    exemplars_from_truth: bool,
    /// The threshold that precision and recall are told at, 0 to 1
    #[arg(long, alias = "conf", default_value_t = 0.3, value_name = "SCORE", allow_negative_numbers = true)]
    confidence: f32,
    /// No more than the first N pictures
    #[arg(long, alias = "max-frames", value_name = "N")]
    max_images: Option<usize>,
    /// Also print a row for each class
    #[arg(long)]
    per_class: bool,
    /// Write all figures as JSON, 0 to 1; - is stdout, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write what was detected as a COCO results file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "predictions", "exemplars_from_truth"])]
    save_predictions: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Side of the model's square input in pixels [default: the model's own]
    #[arg(long, alias = "img-size", value_name = "PIXELS", help_heading = "Model and engine")]
    imgsz: Option<usize>,
    /// Classes decoded at once: more are quicker and need more memory [default: 4]
    #[arg(long, value_name = "N", help_heading = "Model and engine")]
    class_chunk: Option<usize>,
}

/// Evaluates a model, saved answers, or two of them.
pub fn run(args: &EvalArgs, log: &LogArgs) -> anyhow::Result<()> {
    check(args)?;
    let mut pictures = Pictures::open(args, log)?;
    let question = Question::new(args, &pictures.truth)?;
    let progress = Progress::waiting(log);
    let mut contenders = contender::open(args, &pictures.truth, &question, &|line| progress.announce(line))?;
    drop(progress);
    for contender in &contenders {
        if let Some(engine) = contender.engine() {
            say(log, &format!("engine: {engine} ({})", contender.name()));
        }
    }
    if contenders.iter().any(Contender::is_model) {
        every_picture(args, log, &mut pictures, &question, &mut contenders)?;
    }
    if let Some(path) = &args.save_predictions {
        contenders[0].predictions().write(path)?;
        say(log, &format!("→ {}", path.display()));
    }
    let report = report(args, &pictures, &question, contenders)?;
    match args.json.as_deref() {
        Some(path) if path == Path::new("-") => print(|out| report.write_json(out))?,
        json => {
            print(|out| write_report(out, &report, args.per_class))?;
            if let Some(path) = json {
                write_atomically(path, |file| report.write_json(file))?;
                say(log, &format!("→ {}", path.display()));
            }
        }
    }
    match pictures.failed.len() {
        0 => Ok(()),
        failed => {
            let all = failed + pictures.ids.len();
            anyhow::bail!("{failed} of {all} pictures failed: see above; the figures are of the others")
        }
    }
}

fn check(args: &EvalArgs) -> anyhow::Result<()> {
    if args.annotations.is_none() && args.scenes.is_none() {
        let what =
            "nothing to evaluate on: name pictures with --images and --annotations, or say --scenes 100";
        return Err(usage(what));
    }
    if args.scenes == Some(0) || args.max_images == Some(0) {
        return Err(usage("no picture to evaluate on: --scenes and --max-images are at least 1"));
    }
    if !(0.0..=1.0).contains(&args.confidence) {
        return Err(usage(format!("--confidence is {}: expected a number from 0 to 1", args.confidence)));
    }
    for (flag, path) in [("--json", &args.json), ("--save-predictions", &args.save_predictions)] {
        if let Some(path) = path.as_deref().filter(|path| *path != Path::new("-")) {
            check_output_file(flag, path)?;
        }
    }
    Ok(())
}

/// Of several pictures, one that cannot be read is reported and the others go on.
fn every_picture(
    args: &EvalArgs,
    log: &LogArgs,
    pictures: &mut Pictures,
    question: &Question,
    contenders: &mut [Contender],
) -> anyhow::Result<()> {
    let all = std::mem::take(&mut pictures.ids);
    let progress = Progress::new(log, all.len() as u64);
    for (number, &id) in all.iter().enumerate() {
        if let Err(e) = interrupted() {
            progress.say(&format!(
                "interrupted: {number} of {} pictures are done, nothing was written",
                all.len()
            ));
            return Err(e.into());
        }
        progress.message(pictures.name(id));
        match pictures.read(id) {
            Ok(image) => {
                let boxed = args.exemplars_from_truth;
                let things = if boxed { pictures.truth.instances(id) } else { Vec::new() };
                // Turn by turn, so that what slows the machine down for a while slows both.
                let turns = (0..contenders.len()).map(|turn| (turn + number) % contenders.len());
                for turn in turns.collect::<Vec<_>>() {
                    contenders[turn].ask(id, &image, &things, question, boxed)?;
                }
                pictures.ids.push(id);
            }
            Err(e) => {
                progress.error(&e);
                pictures.failed.push(pictures.name(id).to_owned());
            }
        }
        progress.step();
    }
    if pictures.ids.is_empty() {
        anyhow::bail!("none of {} pictures could be read", all.len());
    }
    Ok(())
}

fn report(
    args: &EvalArgs,
    pictures: &Pictures,
    question: &Question,
    contenders: Vec<Contender>,
) -> anyhow::Result<EvalReport> {
    let protocol = contenders.iter().any(Contender::is_model).then_some(args.protocol);
    let truth = question.truth_of(&pictures.truth)?;
    let models = contenders
        .into_iter()
        .map(|contender| contender.judge(args, &truth, &pictures.ids))
        .collect::<anyhow::Result<_>>()?;
    let report = EvalReport {
        truth: pictures.description.clone(),
        protocol,
        images: pictures.ids.len(),
        instances: truth.count_instances(&pictures.ids),
        classes: truth.categories().len(),
        failed: pictures.failed.clone(),
        models,
        difference: None,
    };
    Ok(report.with_difference())
}
