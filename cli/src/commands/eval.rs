//! `ocelli eval`.

mod configs;
mod contender;
mod screen;

use std::path::PathBuf;

use clap::Args;
use ocelli::process_memory::ProcessMemory;
use ocelli_datasets::eval::{
    Contender, EvalIdentity, EvalImages, EvalJournal, EvalOptions, EvalStep, EvalTask, Protocol, Truth,
    video, write_report,
};
use ocelli_verify::scenes::{SceneGenerator, SceneOptions, vocabulary};

use crate::args::{DETECTION, INPUT, MODEL, OUTPUT, ScreenArgs, class_names};
use crate::given::{first_given, given_arguments};
use crate::output::{check_outputs, diagnostic, is_stdout, one_line, present};
use crate::{ModelArgs, Progress, interrupted, status};

/// Every run draws the same scenes.
const SEED: u64 = 1;

/// Arguments of `ocelli eval`.
#[derive(Args, Debug)]
#[command(override_usage = "\
ocelli eval --images <DIR> --annotations <PATH> [OPTIONS]
       ocelli eval --coco <DIR> [OPTIONS]
       ocelli eval --annotations <PATH> --predictions <FILE> [OPTIONS]
       ocelli eval --scenes <N> [OPTIONS]
       ocelli eval --video --truth <PATH> --predictions <PATH> [OPTIONS]
       ocelli eval --calibrate-screen <DIR> --classes <NAME>... [OPTIONS]")]
#[command(after_help = include_str!("../help/eval.txt"))]
pub struct EvalArgs {
    /// Folder of the annotated images
    #[arg(long, value_name = "DIR", requires = "annotations", help_heading = INPUT)]
    images: Option<PathBuf>,
    /// Ground truth: COCO annotations; the folder or the data.yaml of a YOLO data set; the folder of a Pascal VOC data set
    #[arg(long, value_name = "PATH", conflicts_with = "scenes", help_heading = INPUT)]
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
    /// Ground truth of --video: MOTChallenge text, or a folder of it for each sequence; YouTube-VIS JSON; a folder of
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
        help_heading = DETECTION
    )]
    screen_keep: f64,
    /// Score threshold for precision and recall, 0 to 1
    #[arg(long, alias = "conf", default_value_t = 0.3, value_name = "SCORE", help_heading = DETECTION)]
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
pub fn run(args: &EvalArgs) -> anyhow::Result<()> {
    if let Some(folder) = &args.calibrate_screen {
        return screen::calibrate(args, folder.as_deref());
    }
    if args.video {
        return run_videos(args);
    }
    if let Some(path) = &args.configs {
        return configs::run(args, path);
    }
    check(args)?;
    let mut images = open_images(args)?;
    images.truth.notes().iter().for_each(status);
    let task = args.task(&images.truth)?;
    let mut contenders = contender::open(args, &images.truth, &task)?;
    for contender in &contenders {
        if let Some(engine) = contender.engine() {
            status(format!("engine: {engine} ({})", contender.name));
        }
    }
    let (mut journal, mut stop) = (None, None);
    let is_model = contenders.iter().any(Contender::is_model);
    if is_model {
        journal = open_journal(args, &images, &task, &contenders)?;
        stop = detect_all(&mut images, &task, &mut contenders, journal.as_mut())?;
        if let Some(stop) = stop.take_if(|_| journal.is_some() || images.ids.is_empty()) {
            return Err(stop.into());
        }
    }
    if let Some(path) = &args.save_predictions {
        contenders[0].predictions.write(path)?;
        status(format!("→ {}", path.display()));
    }
    let mut report = task.report(&images, contenders)?;
    let memory = ProcessMemory::now().filter(|_| is_model);
    report.peak_memory_mib = memory.map(|memory| memory.peak as f64 / f64::from(1 << 20));
    for model in report.models.iter().filter(|model| !model.without_detections.is_empty()) {
        let (count, first) = (model.without_detections.len(), &model.without_detections[0]);
        let all = images.ids.len();
        diagnostic(&format!(
            "warning: {}: no detections in {count} of {all} images, {first} among them",
            model.name
        ));
    }
    present(args.json.as_deref(), &report, |out| write_report(out, &report, args.per_class))?;
    if let Some(stop) = stop {
        return Err(stop.into());
    }
    match images.failed.len() {
        0 => Ok(journal.map_or(Ok(()), EvalJournal::remove)?),
        failed => {
            let all = failed + images.ids.len();
            anyhow::bail!("{failed} of {all} images failed: see above; the figures cover the others")
        }
    }
}

/// Evaluates tracks or masks in videos.
fn run_videos(args: &EvalArgs) -> anyhow::Result<()> {
    let json = args.json.as_deref();
    check_outputs([("--json", json)])?;
    let predictions = args.predictions.as_deref().expect("--video requires --predictions");
    let report = video::evaluate(&args.truth, predictions)?;
    present(json, &report, |out| video::write_video_report(out, &report, args.per_class))
}

impl EvalArgs {
    /// The file of the annotations, if images are evaluated.
    fn annotations(&self) -> Option<PathBuf> {
        let of_coco = |folder: &PathBuf| folder.join("annotations").join("instances_val2017.json");
        self.coco.as_ref().map(of_coco).or_else(|| self.annotations.clone())
    }

    /// The folder of the images, if any is named; a results file needs none.
    fn images(&self) -> Option<PathBuf> {
        let of_coco = self.coco.as_ref().filter(|_| self.predictions.is_none());
        of_coco.map(|folder| folder.join("val2017")).or_else(|| self.images.clone())
    }

    /// The task for every image.
    fn task(&self, truth: &Truth) -> anyhow::Result<EvalTask> {
        let classes = class_names(&self.classes)?;
        let Self { protocol, masks, exemplars_from_truth, confidence, .. } = *self;
        let options = EvalOptions { protocol, masks, exemplars_from_truth, confidence, classes };
        Ok(EvalTask::new(options, truth)?)
    }
}

fn check(args: &EvalArgs) -> anyhow::Result<()> {
    if args.protocol == Protocol::BoxToMask {
        let others = ["predictions", "exemplars_from_truth", "save_predictions", "screen"];
        if let Some(flag) = first_given(others) {
            refuse!("--protocol box-to-mask detects nothing: remove {flag}");
        }
    }
    if args.annotations().is_none() && args.scenes.is_none() {
        refuse!(
            "nothing to evaluate: name --images and --annotations, or COCO's folder with --coco, use --scenes 100, or \
                    --video for tracks"
        );
    }
    if let Some(folder) = &args.coco {
        let mut needed = args.annotations().into_iter().chain(args.images());
        if let Some(missing) = needed.find(|path| !path.exists()) {
            refuse!(
                "--coco, {}: {} does not exist; expected COCO's folder as it unpacks, val2017/ and \
                 annotations/instances_val2017.json",
                folder.display(),
                missing.display()
            );
        }
    }
    if args.max_images == Some(0) {
        refuse!("no image to evaluate: expected --max-images of at least 1");
    }
    let save_predictions = args.save_predictions.as_deref();
    Ok(check_outputs([("--json", args.json.as_deref()), ("--save-predictions", save_predictions)])?)
}

/// The file with the results of finished images, beside the output, if there is one.
fn open_journal(
    args: &EvalArgs,
    images: &EvalImages,
    task: &EvalTask,
    contenders: &[Contender],
) -> anyhow::Result<Option<EvalJournal>> {
    let outputs = [&args.json, &args.save_predictions].into_iter().flatten();
    let Some(output) =
        outputs.into_iter().find(|path| !is_stdout(path) && (!path.exists() || path.is_file()))
    else {
        return Ok(None);
    };
    let mut options = task.described();
    options.extend(given_arguments(&NO_RESULTS).into_iter().map(|one| one.to_string_lossy().into_owned()));
    let identity = EvalIdentity {
        models: contenders.iter().filter_map(Contender::identity).collect(),
        options,
        images: images.truth.hash(&images.ids, task.options.gives_boxes()),
    };
    let journal = EvalJournal::open(&output.with_extension("images.jsonl"), &identity)?;
    if journal.known() > 0 {
        let path = journal.path().display();
        status(format!("{} of {} images were evaluated before: {path}", journal.known(), images.ids.len()));
    }
    Ok(Some(journal))
}

/// Options that change no result of an image, or that the [identity](EvalIdentity) has in another form.
const NO_RESULTS: [&str; 14] = [
    "json",
    "save-predictions",
    "per-class",
    "quiet",
    "verbose",
    "confidence",
    "images",
    "annotations",
    "coco",
    "model",
    "compare",
    "engine",
    "threads",
    "classes",
];

/// Detects in all images that the journal does not have. Returns the interruption, if there was one: what was finished counts.
fn detect_all(
    images: &mut EvalImages,
    task: &EvalTask,
    contenders: &mut [Contender],
    mut journal: Option<&mut EvalJournal>,
) -> anyhow::Result<Option<ocelli::Error>> {
    let all = images.ids.len();
    let progress = Progress::new(all as u64);
    let mut step = |name: &str, step: EvalStep<'_>| {
        match step {
            EvalStep::Next => {
                interrupted()?;
                progress.message(name);
            }
            EvalStep::Failed(error) => progress.error(error),
            EvalStep::Done => progress.step(),
        }
        Ok(())
    };
    let stop = images.detect_all(task, contenders, journal.as_deref_mut(), &mut step)?;
    if stop.is_some() {
        let kept = match &journal {
            Some(journal) => format!("are in {}: the same command continues", journal.path().display()),
            None => "count; with --json or --save-predictions the same command continues".into(),
        };
        progress.status(&format!("interrupted: {} of {all} images {kept}", images.ids.len()));
    }
    Ok(stop)
}

/// Reads the annotations, or draws the scenes.
fn open_images(args: &EvalArgs) -> anyhow::Result<EvalImages> {
    let has_model = args.compare.is_empty() || args.compare.iter().any(|path| !path.is_file());
    let needed = has_model && args.predictions.is_none();
    let mut images = match (args.scenes, args.annotations()) {
        (Some(count), _) => {
            let progress = Progress::new(u64::from(count));
            progress.message("drawing");
            let generator = SceneGenerator::new(SEED, SceneOptions::default())?;
            let draw = move |number| {
                let scene = generator.scene(number);
                (scene.image, scene.objects.into_iter().map(|one| (one.label, one.bbox, one.mask)).collect())
            };
            let description = format!("{count} drawn scenes, seed {SEED}");
            EvalImages::drawn(vocabulary(), count, description, draw, || {
                progress.step();
                interrupted()
            })?
        }
        (None, Some(path)) => EvalImages::open(&path, args.images().as_deref(), needed)?,
        (None, None) => unreachable!("`check` requires one of them"),
    };
    images.ids.truncate(args.max_images.unwrap_or(usize::MAX));
    if let Some(missing) = images.leave_out_missing()? {
        diagnostic(&format!("error: {}", one_line(&missing.to_string())));
    }
    Ok(images)
}
