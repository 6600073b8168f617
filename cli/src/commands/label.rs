//! `ocelli label`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::{DetectorArgs, LogArgs, Progress, class_names, interrupted, print, say, usage};
use clap::{Args, Subcommand};
use ocelli::{Error, ErrorKind};
use ocelli_datasets::label::{
    ClassMap, DataSetOptions, Format, ImageMode, ImageSet, LabelEvent, LabelJob, LabelSettings, SPILL_BYTES,
    Shard, Summary, find_images, merge,
};

/// Arguments of `ocelli label`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    override_usage = "ocelli label --images <PATH>... --classes <PHRASE>... --output <DIR> [OPTIONS]\n       \
                            ocelli label merge <DIR>... --output <DIR>"
)]
#[command(after_help = "\
Stop it when you like, with Ctrl-C or by pulling the plug: the same command goes on where it stopped. Pictures that come \
into the folder later are labelled by the same command as well, and label files corrected by hand since stay as they are.

Pictures are linked below DIR/images (--copy to move the data set to another machine), labels lie in DIR/labels, and \
DIR/data.yaml is what a trainer is given.

Examples:
  ocelli label --images photos/ --classes person \"red car\" -o set --model sam3/
  ocelli label --images photos/ --map classes.yaml --format yolo-seg,coco -o set --review
  ocelli label --images photos/ --classes dog -o part-1 --shard 1/2
  ocelli label merge part-1 part-2 -o set")]
pub struct LabelArgs {
    #[command(subcommand)]
    command: Option<LabelCommand>,
    /// Pictures: folders with all below them, files, patterns such as 'photos/**/*.jpg', lists (@list.txt, or - for
    /// stdin)
    #[arg(long, aliases = ["source", "image"], required = true, num_args = 1.., value_name = "PATH")]
    images: Vec<PathBuf>,
    /// What to look for: words or short phrases, each a class; commas separate them as well
    #[arg(
        long,
        alias = "class",
        required_unless_present = "map",
        conflicts_with = "map",
        num_args = 1..,
        value_name = "PHRASE"
    )]
    classes: Vec<String>,
    /// A YAML file of classes with several phrases, thresholds and examples
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// yolo, yolo-seg, coco, or several with commas between
    #[arg(long, default_value = "yolo", value_delimiter = ',', value_name = "FORMATS")]
    format: Vec<Format>,
    /// The folder of the data set; made where missing
    #[arg(long, short, required = true, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    detector: DetectorArgs,
}

/// What the files look like.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data set")]
struct FileArgs {
    /// Link the pictures into the data set [default, where a YOLO format is asked for]
    #[arg(long, conflicts_with_all = ["copy", "no_pictures"])]
    link: bool,
    /// Copy the pictures into the data set
    #[arg(long, conflicts_with = "no_pictures")]
    copy: bool,
    /// Leave the pictures where they are [default for coco alone]
    #[arg(long)]
    no_pictures: bool,
    /// Share of the pictures that are for validation; a hash of the name chooses them
    #[arg(long, default_value_t = 0.1, allow_negative_numbers = true, value_name = "SHARE")]
    val_share: f64,
    /// COCO's segmentation as polygons, not run lengths
    #[arg(long)]
    polygons: bool,
    /// Boxes alone in coco as well
    #[arg(long)]
    no_masks: bool,
    /// Leave out things of fewer pixels
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true, value_name = "PIXELS")]
    min_area: f64,
    /// Write review/: a list of pictures with unsure things, and pages with this many of the least sure and of a random
    /// sample [default: 100]
    #[arg(long, num_args = 0..=1, default_missing_value = "100", value_name = "PICTURES")]
    review: Option<usize>,
    /// What counts as unsure: a score below this
    #[arg(long, default_value_t = 0.5, allow_negative_numbers = true, value_name = "SCORE")]
    review_below: f32,
}

/// How the work is done.
#[derive(Args, Debug)]
#[command(next_help_heading = "Work")]
struct WorkArgs {
    /// Label part I of N, from 1; `ocelli label merge` joins the parts
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Begin anew, where the folder holds a data set of other settings
    #[arg(long)]
    restart: bool,
    /// Have one part of the model in memory at a time; features wait on the disk in between
    #[arg(long)]
    low_memory: bool,
    /// Gigabytes of disk for features, with --low-memory [default: 4]
    #[arg(long, requires = "low_memory", allow_negative_numbers = true, value_name = "GB")]
    spill: Option<f64>,
    /// Threads that decode pictures ahead of the detector [default: up to 4]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    workers: Option<usize>,
}

#[derive(Subcommand, Debug)]
enum LabelCommand {
    /// Join the folders of all shards into one data set
    Merge(MergeArgs),
}

/// Arguments of `ocelli label merge`.
#[derive(Args, Debug)]
struct MergeArgs {
    /// The folders of the shards
    #[arg(required = true, value_name = "DIR")]
    shards: Vec<PathBuf>,
    /// The folder of the data set; made where missing
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
}

/// More decoders than this only wait for the disk.
const MOST_WORKERS: usize = 64;
/// Decoders unless told otherwise: one engine is rarely quicker than four of them.
const WORKERS: usize = 4;

/// Labels pictures, or joins shards.
pub fn run(args: &LabelArgs, log: &LogArgs) -> anyhow::Result<()> {
    match &args.command {
        Some(LabelCommand::Merge(args)) => {
            let merged = merge(&args.shards, &args.output, &mut stop_if_interrupted);
            interrupted()?;
            report(&args.output, &merged?)
        }
        None => label(args, log),
    }
}

/// Ctrl-C as an error of the library's.
fn stop_if_interrupted() -> ocelli::Result<()> {
    interrupted().map_err(|stop| Error::new(ErrorKind::Cancelled, stop.to_string()))
}

fn label(args: &LabelArgs, log: &LogArgs) -> anyhow::Result<()> {
    let output = args.output.as_deref().ok_or_else(|| usage("--output is missing: name a folder"))?;
    let options = data_set_options(args)?;
    let settings = settings(args, &options, log)?;
    let workers = workers(args)?;
    let spill_bytes = spill_bytes(args)?;
    LabelJob::check_output(output)?;
    let builder = args.detector.detector()?.with_masks(settings.masks);
    let builder = builder.with_post_processing(settings.post_processing());
    let pictures = ImageSet::new(find_images(&args.images, output)?);

    let loading = Progress::waiting(log);
    let detector = builder.build_reporting(&|line| loading.announce(line))?;
    let (shard, restart) = (args.work.shard, args.work.restart);
    let job = LabelJob::open(output, detector.model(), &settings, &options, pictures, shard, restart);
    let mut job = job.map_err(with_restart_flag)?;
    drop(loading);
    let (all, todo) = (job.images(), job.pending());
    if todo > 0 {
        say(log, &format!("engine: {}", detector.engine()));
    }
    let mut say_of = format!("{} to label", count(todo, "picture"));
    if todo < all {
        write!(say_of, ", {} done before", all - todo).expect("texts take everything");
    }
    if let Some(shard) = shard {
        let whole = job.images_of_all_shards();
        write!(say_of, "; shard {}/{} of {whole}", shard.index(), shard.count())
            .expect("texts take everything");
    }
    say(log, &say_of);

    let progress = Progress::new(log, todo as u64);
    let mut done = 0;
    let mut on_event = |event: LabelEvent<'_>| {
        match event {
            LabelEvent::Done { name, .. } => {
                done += 1;
                progress.message(name);
                progress.step();
            }
            LabelEvent::Failed { path, error } => {
                progress.error(&named(path, error));
                progress.step();
            }
            _ => {}
        }
        stop_if_interrupted()
    };
    let ended = match args.work.low_memory {
        _ if todo == 0 => Ok(()),
        true => job.run_in_low_memory(detector, spill_bytes, &mut on_event),
        false => job.run(detector, workers, &mut on_event),
    };
    drop(progress);
    if interrupted().is_err() {
        let before = all - todo;
        say(
            log,
            &format!(
                "interrupted: {} of {all} pictures are done; the same command goes on from there",
                before + done
            ),
        );
    }
    interrupted()?;
    ended?;
    let summary = job.finish(&mut stop_if_interrupted);
    interrupted()?;
    if let Some(bytes) = peak_memory() {
        say(log, &format!("peak memory: {:.0} MB", bytes as f64 / 1e6));
    }
    report(output, &summary?)
}

/// The error of a data set that was started with other settings or cannot be continued, with the flag that restarts it.
fn with_restart_flag(error: Error) -> Error {
    if !matches!(error.kind(), ErrorKind::Mismatch | ErrorKind::InvalidData) {
        return error;
    }
    Error::new(error.kind(), format!("{error} (--restart)")).with_source(error)
}

/// An error that says which file it is about.
fn named(path: &Path, error: &Error) -> String {
    let (path, error) = (path.to_string_lossy(), error.to_string());
    if error.contains(&*path) { error } else { format!("{path}: {error}") }
}

fn data_set_options(args: &LabelArgs) -> anyhow::Result<DataSetOptions> {
    let mut formats: Vec<Format> = args.format.clone();
    formats.sort_unstable();
    formats.dedup();
    let is_coco_alone = formats == [Format::Coco];
    let files = &args.files;
    let pictures = match (files.link, files.copy, files.no_pictures) {
        (true, ..) => ImageMode::Link,
        (_, true, _) => ImageMode::Copy,
        (_, _, true) => ImageMode::None,
        _ if is_coco_alone => ImageMode::None,
        _ => ImageMode::Link,
    };
    if !(0.0..1.0).contains(&files.val_share) {
        return Err(usage(format!(
            "--val-share is {}: expected a number from 0 to below 1",
            files.val_share
        )));
    }
    if !(0.0..=1.0).contains(&files.review_below) {
        return Err(usage(format!(
            "--review-below is {}: expected a number from 0 to 1",
            files.review_below
        )));
    }
    if files.no_pictures && !is_coco_alone {
        return Err(usage(
            "--no-pictures: YOLO trainers find labels beside images/ only; use --link or --copy",
        ));
    }
    let options = DataSetOptions {
        formats,
        polygons: files.polygons,
        images: pictures,
        validation_share: files.val_share,
        review: files.review,
        review_below: files.review_below,
    };
    options.check()?;
    if options.formats.contains(&Format::YoloSeg) && files.no_masks {
        return Err(usage("--format yolo-seg needs masks: leave --no-masks out"));
    }
    if files.min_area.is_nan() || files.min_area < 0.0 {
        return Err(usage(format!("--min-area is {}: expected a number of pixels", files.min_area)));
    }
    Ok(options)
}

fn settings(args: &LabelArgs, options: &DataSetOptions, log: &LogArgs) -> anyhow::Result<LabelSettings> {
    let classes = match &args.map {
        Some(path) => ClassMap::open(path)?,
        None => {
            let names = class_names(&args.classes, log)?;
            let is_picture = |name: &&String| {
                ocelli::image::has_image_extension(Path::new(name)) && Path::new(name).is_file()
            };
            if let Some(name) = names.iter().find(is_picture) {
                return Err(usage(format!("--classes, {name}: this is a picture; name it with --images")));
            }
            ClassMap::from_names(names)
        }
    };
    let defaults = LabelSettings::new(classes);
    Ok(LabelSettings {
        confidence: args.detector.confidence.unwrap_or(defaults.confidence),
        nms: args.detector.nms.unwrap_or(defaults.nms),
        class_agnostic_nms: args.detector.class_agnostic_nms,
        min_area: args.files.min_area,
        masks: !args.files.no_masks && options.formats.iter().any(|format| format.needs_masks()),
        ..defaults
    })
}

fn workers(args: &LabelArgs) -> anyhow::Result<usize> {
    match args.work.workers {
        Some(workers) if (1..=MOST_WORKERS).contains(&workers) => Ok(workers),
        Some(workers) => Err(usage(format!("--workers is {workers}: expected 1 to {MOST_WORKERS}"))),
        None => Ok(std::thread::available_parallelism().map_or(1, |cores| cores.get().min(WORKERS))),
    }
}

fn spill_bytes(args: &LabelArgs) -> anyhow::Result<u64> {
    match args.work.spill {
        None => Ok(SPILL_BYTES),
        Some(gigabytes) if gigabytes.is_finite() && gigabytes >= 0.0 => Ok((gigabytes * 1e9) as u64),
        Some(gigabytes) => Err(usage(format!("--spill is {gigabytes}: expected a number of gigabytes"))),
    }
}

/// What the process had in memory at most; known on Linux alone.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Says what the data set holds; pictures that failed are an error then.
fn report(output: &Path, summary: &Summary) -> anyhow::Result<()> {
    print(|out| {
        let widest = summary.classes.iter().map(|class| class.name.chars().count()).max().unwrap_or(0).max(5);
        writeln!(out, "{:<widest$}  {:>9}  {:>9}", "class", "things", "pictures")?;
        for class in &summary.classes {
            writeln!(out, "{:<widest$}  {:>9}  {:>9}", class.name, class.instances, class.images)?;
        }
        let things: u64 = summary.classes.iter().map(|class| class.instances).sum();
        writeln!(out, "{:<widest$}  {things:>9}  {:>9}", "all", summary.images)?;
        writeln!(out)?;
        summary.files.iter().try_for_each(|file| writeln!(out, "{}", file.display()))
    })?;
    match summary.failed {
        0 => Ok(()),
        failed => anyhow::bail!(
            "{failed} of {} failed, {}: the list says why; the same command tries them again",
            count((summary.images + failed) as usize, "picture"),
            output.join("failed.csv").display()
        ),
    }
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
