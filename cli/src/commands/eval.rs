//! `ocelli eval`.

mod configs;
mod contender;
mod images;
mod screen;
mod video;

use std::path::{Path, PathBuf};

use clap::Args;
use ocelli::atomic_file::write_atomically;
use ocelli::process_memory::ProcessMemory;
use ocelli_datasets::eval::{EvalReport, Overlap, Protocol, Truth, difference_interval, write_report};

use contender::{Contender, Task};
use images::Images;

use crate::args::{DETECTION, INPUT, MODEL, OUTPUT, ScreenArgs};
use crate::{LogArgs, ModelArgs, Progress, check_output_file, interrupted, print, status, usage};

/// Arguments of `ocelli eval`.
#[derive(Args, Debug)]
#[command(override_usage = "\
ocelli eval --images <DIR> --annotations <FILE> [OPTIONS]
       ocelli eval --coco <DIR> [OPTIONS]
       ocelli eval --annotations <FILE> --predictions <FILE> [OPTIONS]
       ocelli eval --scenes <N> [OPTIONS]
       ocelli eval --video --truth <PATH> --predictions <PATH> [OPTIONS]
       ocelli eval --calibrate-screen <DIR> --classes <NAME>... [OPTIONS]")]
#[command(after_help = "\
Average precision is computed as by pycocotools. Every class is detected in every image. Figures of different protocols \
cannot be compared: practical keeps scores above 0.01, applies NMS at 0.7 and keeps the best 300 per image; dart keeps \
every score, without NMS, and the best 100; box-to-mask, the evaluation of EfficientSAM3, detects nothing but gives \
the box of each instance to the model's tracker and compares the masks.

--configs names a file of configurations, each a name with options of this command (`whole: {model: sam3/, engine: \
onnxruntime}`), in YAML or JSON. Each is evaluated in a process of its own, and a table compares them; one that fails is a row \
with its reason. With --json FILE, the same command continues after a stop. Options on the command line are those of all.

With --video the format of the ground truth decides the figures. MOTChallenge or MOTS text: HOTA, MOTA, IDF1. YouTube-VIS \
JSON: average precision of tracks as well, and cgF1 if it is one of SA-Co's videos. Folders of PNGs as in DAVIS: J and F. \
SA-Co's images: cgF1. They equal those of TrackEval, YouTube-VIS, DAVIS and sam3.

Examples:
  ocelli eval --scenes 500
  ocelli eval --coco coco/ --model sam3/ --protocol dart
  ocelli eval --coco coco/ --configs models.yaml --json report.json
  ocelli eval --annotations instances.json --predictions found.json
  ocelli eval --scenes 100 --compare built-in pruned/
  ocelli eval --video --truth MOT17-02/gt/gt.txt --predictions tracks.txt
  ocelli eval --video --truth DAVIS/Annotations/480p --predictions masks/
  ocelli eval --calibrate-screen frames/ --model sam3/ --classes person car dog")]
pub struct EvalArgs {
    /// Folder of the annotated images
    #[arg(long, value_name = "DIR", requires = "annotations", help_heading = INPUT)]
    images: Option<PathBuf>,
    /// Ground truth: COCO annotations
    #[arg(long, value_name = "FILE", conflicts_with = "scenes", help_heading = INPUT)]
    annotations: Option<PathBuf>,
    /// COCO's folder as it unpacks: the images in val2017/ and annotations/instances_val2017.json
    #[arg(long, value_name = "DIR", conflicts_with_all = ["images", "annotations", "scenes", "video"], help_heading = INPUT)]
    coco: Option<PathBuf>,
    /// Evaluate each configuration of a file and print a table; it is YAML or JSON, with options of this command below each name
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["compare", "video", "calibrate_screen", "per_class", "save_predictions"],
        help_heading = INPUT
    )]
    configs: Option<PathBuf>,
    /// Evaluate on N drawn scenes, the same on every machine
    #[arg(long, value_name = "N", conflicts_with = "images", help_heading = INPUT)]
    scenes: Option<u32>,
    /// Evaluate a COCO results file instead of a model; with --video, tracks or masks in the form of the ground truth
    #[arg(long, value_name = "PATH", conflicts_with_all = ["images", "compare"], help_heading = INPUT)]
    predictions: Option<PathBuf>,
    /// Evaluate tracks or masks in videos: --truth and --predictions
    #[arg(
        long,
        requires_all = ["truth", "predictions"],
        conflicts_with_all = [
            "annotations", "coco", "scenes", "protocol", "classes", "masks", "exemplars_from_truth", "screen", "calibrate_screen",
            "confidence", "max_images", "model", "engine", "imgsz", "class_chunk",
        ],
        help_heading = INPUT
    )]
    video: bool,
    /// Ground truth of --video: MOTChallenge or MOTS text, or a folder of it for each sequence; YouTube-VIS JSON; a folder of
    /// PNGs as in DAVIS; SA-Co JSON, of one or several annotators
    #[arg(long, num_args = 1.., value_name = "PATH", requires = "video", help_heading = INPUT)]
    truth: Vec<PathBuf>,
    /// Compare two models (folders as for --model, or built-in) or COCO results files
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "model", help_heading = INPUT)]
    compare: Vec<PathBuf>,
    /// Which detections count: practical or dart; or box-to-mask: the mask of each annotated box, by a model with a tracker
    #[arg(long, default_value = "practical", value_name = "NAME", help_heading = DETECTION)]
    protocol: Protocol,
    /// Evaluate only these categories; PHRASE=CATEGORY sets the text prompt of one
    #[arg(long, alias = "class", num_args = 1.., value_name = "CATEGORY", help_heading = DETECTION)]
    classes: Vec<String>,
    /// Evaluate masks as well
    #[arg(long, help_heading = DETECTION)]
    masks: bool,
    /// Prompt with each instance's annotated box instead of its category, and evaluate the masks
    #[arg(long, help_heading = DETECTION)]
    exemplars_from_truth: bool,
    #[command(flatten)]
    screen: ScreenArgs,
    /// Find the threshold of --screen for a model on the images of a folder, or on --scenes, and keep it beside the model
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        conflicts_with_all = ["images", "annotations", "coco", "predictions", "compare", "masks", "screen"],
        help_heading = DETECTION
    )]
    calibrate_screen: Option<Option<PathBuf>>,
    /// The share of the detections that the calibrated threshold keeps
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = screen::KEEP,
        requires = "calibrate_screen",
        allow_negative_numbers = true,
        help_heading = DETECTION
    )]
    screen_keep: f64,
    /// Score threshold for precision and recall, 0 to 1
    #[arg(
        long,
        alias = "conf",
        default_value_t = 0.3,
        value_name = "SCORE",
        allow_negative_numbers = true,
        help_heading = DETECTION
    )]
    confidence: f32,
    /// Evaluate only the first N images
    #[arg(long, alias = "max-frames", value_name = "N", help_heading = INPUT)]
    max_images: Option<usize>,
    /// Print a row per class as well
    #[arg(long, help_heading = OUTPUT)]
    per_class: bool,
    /// All figures as JSON, 0 to 1; - is stdout and replaces the table
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    json: Option<PathBuf>,
    /// All detections as a COCO results file
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["compare", "predictions", "exemplars_from_truth"],
        help_heading = OUTPUT
    )]
    save_predictions: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Side of the model's square input in pixels [default: the model's]
    #[arg(long, alias = "img-size", value_name = "PIXELS", help_heading = MODEL)]
    imgsz: Option<usize>,
    /// Classes decoded at once: more is faster and takes more memory [default: 4]
    #[arg(long, value_name = "N", help_heading = MODEL)]
    class_chunk: Option<usize>,
}

/// Evaluates a model or a results file, or compares two.
pub fn run(args: &EvalArgs, log: &LogArgs) -> anyhow::Result<()> {
    if let Some(folder) = &args.calibrate_screen {
        return screen::calibrate(args, folder.as_deref(), log);
    }
    if args.video {
        return video::run(args, log);
    }
    if let Some(path) = &args.configs {
        return configs::run(args, path, log);
    }
    check(args)?;
    let mut images = Images::open(args, log)?;
    let task = Task::new(args, &images.truth)?;
    let mut contenders = contender::open(args, &images.truth, &task, log)?;
    for contender in &contenders {
        if let Some(engine) = contender.engine() {
            status(log, &format!("engine: {engine} ({})", contender.name()));
        }
    }
    if contenders.iter().any(Contender::is_model) {
        detect_all(args, log, &mut images, &task, &mut contenders)?;
    }
    if let Some(path) = &args.save_predictions {
        contenders[0].predictions().write(path)?;
        status(log, &format!("→ {}", path.display()));
    }
    let is_model = contenders.iter().any(Contender::is_model);
    let mut report = report(args, &images, &task, contenders)?;
    let memory = ProcessMemory::now().filter(|_| is_model);
    report.peak_memory_mib = memory.map(|memory| memory.peak as f64 / f64::from(1 << 20));
    match args.json.as_deref() {
        Some(path) if path == Path::new("-") => print(|out| report.write_json(out))?,
        json => {
            print(|out| write_report(out, &report, args.per_class))?;
            if let Some(path) = json {
                write_atomically(path, |file| report.write_json(file))?;
                status(log, &format!("→ {}", path.display()));
            }
        }
    }
    match images.failed.len() {
        0 => Ok(()),
        failed => {
            let all = failed + images.ids.len();
            anyhow::bail!("{failed} of {all} images failed: see above; the figures cover the others")
        }
    }
}

impl EvalArgs {
    /// The file of the annotations, if images are evaluated.
    fn annotations(&self) -> Option<PathBuf> {
        let of_coco = |folder: &PathBuf| folder.join("annotations").join("instances_val2017.json");
        self.coco.as_ref().map(of_coco).or_else(|| self.annotations.clone())
    }

    /// The folder of the images, if any is named.
    fn images(&self) -> Option<PathBuf> {
        self.coco.as_ref().map(|folder| folder.join("val2017")).or_else(|| self.images.clone())
    }

    /// Whether annotated boxes are given, and masks are what is compared.
    fn gives_boxes(&self) -> bool {
        self.exemplars_from_truth || self.protocol == Protocol::BoxToMask
    }
}

fn check(args: &EvalArgs) -> anyhow::Result<()> {
    if args.protocol == Protocol::BoxToMask {
        let others = [
            ("--predictions", args.predictions.is_some()),
            ("--exemplars-from-truth", args.exemplars_from_truth),
            ("--save-predictions", args.save_predictions.is_some()),
            ("--screen", args.screen.screen.is_some()),
        ];
        if let Some((flag, _)) = others.into_iter().find(|(_, given)| *given) {
            return Err(usage(format!("--protocol box-to-mask detects nothing: remove {flag}")));
        }
    }
    if args.annotations().is_none() && args.scenes.is_none() {
        let what = "nothing to evaluate: name --images and --annotations, or COCO's folder with --coco, use --scenes 100, or \
                    --video for tracks";
        return Err(usage(what));
    }
    if let Some(folder) = &args.coco {
        let missing = |path: &Option<PathBuf>| path.clone().filter(|path| !path.exists());
        let images = args.images().filter(|_| args.predictions.is_none());
        if let Some(missing) = missing(&args.annotations()).or_else(|| missing(&images)) {
            return Err(usage(format!(
                "--coco, {}: {} does not exist; expected COCO's folder as it unpacks, val2017/ and \
                 annotations/instances_val2017.json",
                folder.display(),
                missing.display()
            )));
        }
    }
    if args.scenes == Some(0) || args.max_images == Some(0) {
        return Err(usage("no image to evaluate: expected --scenes and --max-images of at least 1"));
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

/// Detects in all images. One that cannot be read is reported and the others are processed.
fn detect_all(
    args: &EvalArgs,
    log: &LogArgs,
    images: &mut Images,
    task: &Task,
    contenders: &mut [Contender],
) -> anyhow::Result<()> {
    let all = std::mem::take(&mut images.ids);
    let progress = Progress::new(log, all.len() as u64);
    for (number, &id) in all.iter().enumerate() {
        if let Err(e) = interrupted() {
            progress.status(&format!(
                "interrupted: {number} of {} images are done, nothing was written",
                all.len()
            ));
            return Err(e.into());
        }
        progress.message(images.name(id));
        match images.read(id) {
            Ok(image) => {
                let instances = if args.gives_boxes() { images.truth.instances(id) } else { Vec::new() };
                // The models alternate, so that a slow period of the machine affects both.
                let turns = (0..contenders.len()).map(|turn| (turn + number) % contenders.len());
                for turn in turns.collect::<Vec<_>>() {
                    contenders[turn].detect(id, &image, &instances, task, args)?;
                }
                images.ids.push(id);
            }
            Err(e) => {
                progress.error(&e);
                images.failed.push(images.name(id).to_owned());
            }
        }
        progress.step();
    }
    if images.ids.is_empty() {
        anyhow::bail!("none of {} images could be read", all.len());
    }
    Ok(())
}

fn report(
    args: &EvalArgs,
    images: &Images,
    task: &Task,
    contenders: Vec<Contender>,
) -> anyhow::Result<EvalReport> {
    let protocol = contenders.iter().any(Contender::is_model).then_some(args.protocol);
    let truth = task.truth_of(&images.truth)?;
    let intervals = intervals(args, images, &truth, &contenders)?;
    let models = contenders
        .into_iter()
        .map(|contender| contender.evaluate(args, &truth, &images.ids))
        .collect::<anyhow::Result<_>>()?;
    let report = EvalReport {
        truth: images.description.clone(),
        protocol,
        images: images.ids.len(),
        instances: truth.count_instances(&images.ids),
        classes: truth.categories().len(),
        failed: images.failed.clone(),
        models,
        difference: None,
        peak_memory_mib: None,
    };
    let mut report = report.with_difference();
    if let Some(difference) = &mut report.difference {
        [difference.ap_interval, difference.segm_ap_interval] = intervals;
    }
    Ok(report)
}

/// The confidence intervals of the differences in box and mask AP of two models.
fn intervals(
    args: &EvalArgs,
    images: &Images,
    truth: &Truth,
    contenders: &[Contender],
) -> anyhow::Result<[Option<[f64; 2]>; 2]> {
    let [first, second] = contenders else { return Ok([None; 2]) };
    if args.gives_boxes() {
        return Ok([None; 2]);
    }
    let predictions = [first.predictions(), second.predictions()];
    let boxes = difference_interval(truth, predictions, &images.ids, Overlap::Boxes)?;
    let masks = args.masks.then(|| difference_interval(truth, predictions, &images.ids, Overlap::Masks));
    Ok([boxes, masks.transpose()?.flatten()])
}
