//! `ocelli label`.

mod shard;
mod video;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ocelli::classes::ClassMap;
use ocelli::process_memory::ProcessMemory;
use ocelli::{Detector, options::DetectorOptions};
use ocelli_datasets::label::{
    DataSetOptions, Existing, Format, ImageMode, ImageSet, LabelEvent, LabelJob, LabelSettings, LabelVideo,
    SPILL_BYTES, Shard, Summary, find_images, merge, workers,
};
use ocelli_datasets::table::{columns, row};

use self::shard::ShardArg;
use self::video::VideoArgs;
use crate::args::{DETECTION, INPUT, OUTPUT, PERFORMANCE, TileArgs, class_map_beside};
use crate::interrupt::{unless_interrupted, until_interrupted};
use crate::loading::{engines, load_devices};
use crate::output::{count, diagnostic};
use crate::{DetectorArgs, Progress, cancel_on_interrupt, detector, interrupted, print, status, usage};

/// Shown after the options of `ocelli label --help`.
const AFTER_HELP: &str = include_str!("../help/label.txt");

/// Arguments of `ocelli label`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(override_usage = "\
ocelli label --images <PATH>... --classes <PHRASE>... --model <PATH>
                    -o <DIR> [OPTIONS]
       ocelli label merge <DIR>... -o <DIR>")]
#[command(after_help = AFTER_HELP)]
pub struct LabelArgs {
    #[command(subcommand)]
    command: Option<LabelCommand>,
    /// Images: files, folders with their subfolders, tar files, patterns such as 'photos/**/*.jpg' or '{00..12}.tar', or lists (@list.txt,
    /// - is stdin)
    #[arg(
        long,
        aliases = ["source", "image"],
        required_unless_present = "video",
        num_args = 1..,
        value_name = "PATH",
        help_heading = INPUT
    )]
    images: Vec<PathBuf>,
    #[command(flatten)]
    video: VideoArgs,
    /// Classes: words or short phrases, separated by spaces or commas, or a file such as classes.txt
    #[arg(
        long,
        alias = "class",
        required_unless_present = "map",
        conflicts_with = "map",
        num_args = 1..,
        value_name = "PHRASE",
        help_heading = DETECTION
    )]
    classes: Vec<String>,
    /// YAML file of classes with several phrases, thresholds and exemplars
    #[arg(long, value_name = "FILE", help_heading = DETECTION)]
    map: Option<PathBuf>,
    /// Folder of the data set, created if missing; {shard} in it is the number of the --shard
    #[arg(long, short, required = true, value_name = "DIR", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// yolo, yolo-seg, coco, voc and masks, with --video also youtube-vis, separated by commas
    #[arg(long, default_value = "yolo", value_delimiter = ',', value_name = "FORMATS", help_heading = OUTPUT)]
    format: Vec<Format>,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    tiles: TileArgs,
    #[command(flatten)]
    detector: DetectorArgs,
}

/// The files of the data set.
#[derive(Args, Debug)]
#[command(next_help_heading = OUTPUT)]
struct FileArgs {
    /// Link images into the data set [default with YOLO and VOC]; with COCO hard links, which its loaders accept
    #[arg(long, conflicts_with_all = ["copy", "no_images"])]
    link: bool,
    /// Copy images into the data set
    #[arg(long, conflicts_with = "no_images")]
    copy: bool,
    /// Do not add images to the data set [default with coco and masks alone, without --video]
    #[arg(long, alias = "no-pictures")]
    no_images: bool,
    /// Share of images for validation, chosen by a hash of their names
    #[arg(long, id = "validation_share", default_value_t = 0.1, value_name = "SHARE")]
    val_share: f64,
    /// Write COCO masks as polygons instead of run lengths
    #[arg(long)]
    polygons: bool,
    /// Write COCO without masks
    #[arg(long)]
    no_masks: bool,
    /// Leave out instances with fewer pixels
    #[arg(long, default_value_t = 0.0, value_name = "PIXELS")]
    min_area: f64,
    /// Write review/: a list of images with uncertain instances, and pages of the N least certain and N random ones
    /// [default: 100]
    #[arg(long, num_args = 0..=1, default_missing_value = "100", value_name = "N")]
    review: Option<usize>,
    /// Instances with a lower score are uncertain
    #[arg(long, default_value_t = 0.5, value_name = "SCORE")]
    review_below: f32,
}

/// How the images are processed.
#[derive(Args, Debug)]
#[command(next_help_heading = PERFORMANCE)]
struct WorkArgs {
    /// Label part I of N, from 1, or the one that Slurm, AWS Batch or Kubernetes says; `ocelli label merge` joins the parts
    #[arg(long, value_name = "I/N|auto", help_heading = INPUT)]
    shard: Option<ShardArg>,
    /// Start over if the folder has a data set with other settings
    #[arg(long, help_heading = OUTPUT)]
    restart: bool,
    /// Overwrite label files that were corrected by hand
    #[arg(long, help_heading = OUTPUT)]
    discard_corrections: bool,
    /// Load one part of the model at a time and keep features on disk in between
    #[arg(long, conflicts_with = "tile")]
    low_memory: bool,
    /// Disk space for features, with --low-memory [default: 4]
    #[arg(long, id = "spill_bytes", requires = "low_memory", value_name = "GB")]
    spill: Option<f64>,
    /// Fail if an image could not be read, instead of listing it in failed.csv
    #[arg(long, help_heading = OUTPUT)]
    strict: bool,
    /// Threads that decode images ahead of the detector [default: up to 4 for each device]
    #[arg(long, value_name = "N")]
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
    #[arg(required = true, value_name = "DIR", help_heading = INPUT)]
    shards: Vec<PathBuf>,
    /// Folder of the data set, created if missing
    #[arg(long, short, value_name = "DIR", help_heading = OUTPUT)]
    output: PathBuf,
}

/// With more classes, those without instances are not listed.
const LISTED: usize = 50;
/// Images that a line names.
const NAMED: usize = 5;

/// Labels images, or joins shards.
pub fn run(args: &LabelArgs) -> anyhow::Result<()> {
    match &args.command {
        Some(LabelCommand::Merge(args)) => {
            let merged = merge(&args.shards, &args.output, &mut interrupted);
            let merged = unless_interrupted(merged)?;
            report_changes(&merged, "--images");
            report(&args.output, &merged, false)
        }
        None => label(args),
    }
}

fn label(args: &LabelArgs) -> anyhow::Result<()> {
    let output = args.output.as_deref().ok_or_else(|| usage("--output is missing: expected a folder"))?;
    let (shard, scheduler) = args.work.shard.map(ShardArg::resolve).transpose()?.unzip();
    let output = &shard::output_of(output, shard)?;
    let options = data_set_options(args)?;
    let settings = settings(args, &options)?;
    settings.check(&options)?;
    let spill_bytes = spill_bytes(args)?;
    LabelJob::check_output(output)?;
    let videos = args.video.find(output)?;
    video::check_images(&args.images)?;
    if args.video.memory {
        args.detector.model.check_tracker("--memory")?;
    }
    let devices = args.detector.devices()?;
    if args.work.low_memory && devices.len() > 1 {
        refuse!("--low-memory runs on one device: name one with --engine");
    }
    let workers = workers(args.work.workers, devices.len())?;
    let with_settings = |mut options: DetectorOptions| {
        options.masks = settings.masks || args.video.memory;
        options.tiling = args.tiles.tiling();
        options.set_post_processing(settings.post_processing_for(output));
        detector(options)
    };
    let builders = devices.into_iter().map(with_settings).collect::<ocelli::Result<_>>()?;
    let mut images = Vec::new();
    if args.video.video.is_empty() {
        let (inputs, output) = (args.images.clone(), output.to_owned());
        images = until_interrupted(move || find_images(&inputs, &output))?;
    }
    if args.detector.model.model.is_none() {
        refuse!(
            "--model is missing: name the folder of a checkpoint or an exported model; the built-in model, which knows \
             drawn pictograms and finds nothing in photographs, runs with --model built-in"
        );
    }
    let classes = settings.classes.classes.iter().filter(|class| class.exemplars.is_empty());
    args.detector.model.announce_unknown(classes.flat_map(|class| &class.phrases).map(String::as_str));

    let (detectors, loading) = load_devices(builders)?;
    let (engines, model) = (engines(&detectors), detectors[0].model().clone());
    settings.check_tracking(&model)?;
    let videos = unless_interrupted(args.video.read(videos, output))?;
    let images = ImageSet::new(videos.iter().flat_map(LabelVideo::images).cloned().chain(images));
    let WorkArgs { restart, discard_corrections, .. } = args.work;
    let existing = Existing { restart, discard_corrections };
    let mut job = LabelJob::open(output, &model, &settings, &options, images, shard, existing)?;
    drop(loading);
    let todo = job.pending();
    if todo > 0 {
        status(format!("engine: {engines}"));
    }
    announce(&job, shard.map(|shard| (shard, scheduler.flatten())));
    let broken = label_images(args, &videos, workers, spill_bytes, &mut job, detectors)?;
    let summary = job.finish(&mut interrupted);
    interrupted()?;
    if let Some(memory) = ProcessMemory::now() {
        status(format!("peak memory: {:.0} MB", memory.peak as f64 / 1e6));
    }
    let summary = summary?;
    report_changes(&summary, if videos.is_empty() { "--images" } else { "--video" });
    let review = output.join("review");
    if args.files.review.is_none() && (todo > 0 || restart) && review.is_dir() {
        let review = review.display();
        status(format!("{review} shows an earlier run: write it again with --review, or remove it"));
    }
    if !summary.added.is_empty() {
        let files = count(summary.added.len(), "corrected label file");
        let added = output.join("added");
        status(format!(
            "{files} without instances of classes that were added: {} has these; save the images in the browser \
                 (ocelli serve --gallery), or append them and remove it",
            added.display()
        ));
    }
    report(output, &summary, args.work.strict)?;
    check_videos(&broken, videos.len())
}

/// Says what is to be done.
fn announce(job: &LabelJob, shard: Option<(Shard, Option<&str>)>) {
    let (all, todo) = (job.images(), job.pending());
    let mut plan = format!("{} to label", count(todo, "image"));
    if todo < all {
        plan += &format!(", {} done before", all - todo);
    }
    if let Some((shard, scheduler)) = shard {
        let by = scheduler.map(|scheduler| format!(", by {scheduler}")).unwrap_or_default();
        let whole = job.images_of_all_shards();
        plan += &format!("; shard {}/{} of {whole}{by}", shard.index(), shard.count());
    }
    status(&plan);
    let renamed = job.renamed();
    if let Some((path, name)) = renamed.first() {
        let (images, path) = (count(renamed.len(), "image"), path.display());
        status(format!("{images} with another name in the data set, such as {path} as {name}"));
    }
}

/// Labels the images that are left. Returns why videos end early.
fn label_images(
    args: &LabelArgs,
    videos: &[LabelVideo],
    workers: usize,
    spill_bytes: u64,
    job: &mut LabelJob,
    mut detectors: Vec<Detector>,
) -> anyhow::Result<Vec<String>> {
    let (all, todo) = (job.images(), job.pending());
    let progress = Progress::new(todo as u64);
    let mut done = 0;
    let damage = |video: &LabelVideo| Some((video.path().to_owned(), video.damage()?.to_string()));
    let mut broken: Vec<(PathBuf, String)> = videos.iter().filter_map(damage).collect();
    let mut on_event = |event: LabelEvent<'_>| {
        match event {
            LabelEvent::Done { name, .. } => {
                done += 1;
                progress.message(name);
                progress.step();
            }
            LabelEvent::Failed { path, error } if videos.iter().any(|video| video.path() == path) => {
                broken.push((path.to_owned(), error.to_string()));
            }
            LabelEvent::Failed { path, error } => {
                progress.error(&named(path, error));
                progress.step();
            }
            _ => {}
        }
        interrupted()
    };
    let ended = if todo == 0 {
        Ok(())
    } else if !videos.is_empty() {
        let cancellation = cancel_on_interrupt();
        job.run_videos(detectors, videos, &cancellation, &mut on_event)
    } else if args.work.low_memory {
        job.run_in_low_memory(detectors.remove(0), spill_bytes, &mut on_event)
    } else {
        job.run(detectors, workers, &mut on_event)
    };
    drop(progress);
    if let Err(stop) = interrupted() {
        let finished = all - todo + done;
        let line = format!(
            "interrupted: {finished} of {all} images are done; the same command continues from there"
        );
        status(&line);
        return Err(stop.into());
    }
    ended?;
    broken.iter().for_each(|(video, why)| job.list_broken(video, why.clone()));
    Ok(broken.iter().map(|(video, why)| named(video, why)).collect())
}

/// The error about videos that end early.
fn check_videos(broken: &[String], all: usize) -> anyhow::Result<()> {
    match broken {
        [] => Ok(()),
        [one] => anyhow::bail!("{one}; the frames before are labelled"),
        [first, others @ ..] => {
            others.iter().for_each(|other| diagnostic(&format!("error: {other}")));
            let broken = broken.len();
            anyhow::bail!(
                "{broken} of {all} videos end early; the frames before are labelled; the first: {first}"
            )
        }
    }
}

/// Says which images are not as the person might expect. `flag` names images.
fn report_changes(summary: &Summary, flag: &str) {
    let kept = format!("labelled earlier, not named by {flag} now: labels and copies stay");
    let left_out = format!(
        "left out, with their labels, as the classes are others now: not named by {flag}, or not readable"
    );
    let cases = [
        (&summary.kept, kept.as_str()),
        (&summary.removed, "removed from the data set with their labels, because the files are gone"),
        (&summary.left_out, &left_out),
        (&summary.corrected, "with labels that a person corrected: these stay"),
        (&summary.outdated, "with labels for an earlier file, which was replaced since: check these"),
        (&summary.edited, "whose file was edited in the data set: file and labels stay"),
        (&summary.changed, "whose file was replaced after it was labelled: run the same label command again"),
    ];
    for (names, what) in cases.iter().filter(|(names, _)| !names.is_empty()) {
        let named = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if names.len() > NAMED { ", …" } else { "" };
        status(format!("{} {what} ({named}{more})", count(names.len(), "image")));
    }
    if let Some(first) = summary.dropped.first() {
        let files = count(summary.dropped.len(), "file");
        status(format!("{files} of formats that --format no longer names were removed, such as {first}"));
    }
    for line in summary.unclear.iter().take(NAMED) {
        diagnostic(&format!("{line}; tables and other formats do not follow it there"));
    }
    if summary.unclear.len() > NAMED {
        diagnostic(&format!("and {} more that nothing follows", summary.unclear.len() - NAMED));
    }
}

/// An error that names its file.
fn named(path: &Path, error: &dyn std::fmt::Display) -> String {
    let (name, error) = (path.file_name().unwrap_or_default().to_string_lossy(), error.to_string());
    if error.contains(&*name) { error } else { format!("{}: {error}", path.display()) }
}

fn data_set_options(args: &LabelArgs) -> anyhow::Result<DataSetOptions> {
    let (files, has_videos) = (&args.files, !args.video.video.is_empty());
    if args.format.contains(&Format::YoutubeVis) && !has_videos {
        refuse!("--format youtube-vis follows objects through videos: name one with --video");
    }
    let modes =
        [(files.link, ImageMode::Link), (files.copy, ImageMode::Copy), (files.no_images, ImageMode::None)];
    let images = modes.into_iter().find(|(is_asked, _)| *is_asked).map(|(_, mode)| mode);
    Ok(DataSetOptions {
        polygons: files.polygons,
        validation_share: files.val_share,
        review: files.review,
        review_below: files.review_below,
        ..DataSetOptions::new(args.format.clone(), images, has_videos)
    })
}

fn settings(args: &LabelArgs, options: &DataSetOptions) -> anyhow::Result<LabelSettings> {
    let classes = match &args.map {
        Some(path) => ClassMap::open(path)?,
        None => class_map_beside(&args.classes, "with --images")?,
    };
    let defaults = LabelSettings::new(classes);
    Ok(LabelSettings {
        confidence: args.detector.confidence.unwrap_or(defaults.confidence),
        nms: args.detector.nms.unwrap_or(defaults.nms),
        class_agnostic_nms: args.detector.class_agnostic_nms,
        min_area: args.files.min_area,
        masks: !args.files.no_masks && options.formats.iter().any(|format| format.needs_masks()),
        tracking: args.video.tracking(args.detector.confidence),
        input: args.video.input(),
        tiling: args.tiles.tiling(),
        ..defaults
    })
}

fn spill_bytes(args: &LabelArgs) -> anyhow::Result<u64> {
    match args.work.spill {
        None => Ok(SPILL_BYTES),
        Some(gigabytes) if gigabytes.is_finite() && gigabytes >= 0.0 => Ok((gigabytes * 1e9) as u64),
        Some(gigabytes) => Err(usage(format!("--spill is {gigabytes}: expected a number of gigabytes"))),
    }
}

/// Prints the contents of the data set. Images that failed are reported; they are an error with `strict`, and if no image
/// was labelled.
fn report(output: &Path, summary: &Summary, strict: bool) -> anyhow::Result<()> {
    print(|out| {
        let is_long = summary.classes.len() > LISTED;
        let shown = summary.classes.iter().filter(|class| !is_long || class.instances > 0);
        let counts = |instances: u64, images: u64| [instances, images].map(|count| count.to_string());
        let mut rows = vec![row("class", ["instances", "images"])];
        rows.extend(shown.map(|class| row(&class.name, counts(class.instances, class.images))));
        let instances = summary.classes.iter().map(|class| class.instances).sum();
        rows.push(row("all", counts(instances, summary.images)));
        out.write_all(columns(&rows, 1).as_bytes())?;
        let empty = summary.classes.iter().filter(|class| class.instances == 0).count();
        if is_long && empty > 0 {
            writeln!(out, "{empty} of {} classes have no instances", summary.classes.len())?;
        }
        writeln!(out)?;
        summary.files.iter().try_for_each(|file| writeln!(out, "{}", file.display()))
    })?;
    if summary.failed == 0 {
        return Ok(());
    }
    let message = format!(
        "{} of {} failed: see {}; the same command tries them again",
        summary.failed,
        count(summary.images + summary.failed, "image"),
        output.join("failed.csv").display()
    );
    if strict || summary.images == 0 {
        anyhow::bail!(message);
    }
    diagnostic(&message);
    Ok(())
}
