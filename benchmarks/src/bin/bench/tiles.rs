//! `bench tiles`: small objects in large images, without and with tiles, beside sahi with the same graphs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Context;
use ocelli::export::contract::Target;
use ocelli::export::{Checkpoint, ExportOptions, export};
use ocelli::stages::{EmbeddedPrompts, TextCacheFile};
use ocelli::tiles::{TileSize, Tiling};
use ocelli::{BoundingBox, Detector, EngineKind, Image, Model, Prompts};
use ocelli_benchmarks::EXAMPLE_CLASSES;
use ocelli_benchmarks::machine::{Machine, peak_memory_mib};
use ocelli_cli::{self as cli, LogArgs, interrupted, status};
use ocelli_datasets::eval::{Overlap, Predictions, Truth, TruthBuilder, average_precision};
use ocelli_verify::scenes::{SceneGenerator, SceneOptions};
use serde::{Deserialize, Serialize};

use super::lines::Lines;

const PEER: &str = include_str!("../../../tiles/peer.py");
/// Scores above this count for average precision. Below 0.1, sahi merges in another way than by default.
const LEAST_SCORE: f32 = 0.1;
const SEED: u64 = 8;

/// Measures small objects in large drawn images, without and with tiles, and writes JSON lines, one for each way.
///
/// The built-in model runs on ONNX Runtime. With --peer, sahi cuts the same images into slices of the same sizes and runs the same
/// graphs on ONNX Runtime. Average precision is COCO's; small objects have less than 32 × 32 pixels.
#[derive(clap::Args)]
pub struct Arguments {
    /// Images
    #[arg(long, default_value_t = 3, value_name = "N")]
    scenes: u64,
    /// Width and height of the images
    #[arg(long, num_args = 2, default_values_t = [8192, 4608], value_name = "PIXELS")]
    size: Vec<u32>,
    /// Objects in an image
    #[arg(long, default_value_t = 150, value_name = "N")]
    objects: u32,
    /// Smallest and largest object, in pixels
    #[arg(long, num_args = 2, default_values_t = [16, 200], value_name = "PIXELS")]
    object_sizes: Vec<u32>,
    /// Sizes of tiles
    #[arg(long, num_args = 1.., default_values = ["auto", "224", "448"], value_name = "SIZE")]
    tiles: Vec<TileSize>,
    /// Threads of each engine
    #[arg(long, default_value_t = 2, value_name = "N")]
    threads: usize,
    /// Python with the packages of benchmarks/tiles/requirements.txt
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// Folder for the images and the graphs
    #[arg(long, default_value = "target/bench_tiles", value_name = "DIR")]
    work: PathBuf,
    /// Append the lines to a file in this folder as well
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Serialize)]
struct Line<'a> {
    program: &'static str,
    /// `none`, or the size of the tiles.
    tiles: String,
    images: usize,
    objects: usize,
    detections: usize,
    ap: Option<f64>,
    ap50: Option<f64>,
    ap_small: Option<f64>,
    ap_medium: Option<f64>,
    ap_large: Option<f64>,
    /// Of an image, after it was decoded.
    seconds: Vec<f64>,
    peak_memory_mib: f64,
    threads: usize,
    machine: &'a Machine,
}

/// The detections of one way.
#[derive(Default, Deserialize)]
struct Found {
    /// The image, the class, x1, y1, x2, y2 and the score.
    detections: Vec<(usize, usize, [f32; 4], f32)>,
    seconds: Vec<f64>,
    peak_memory_mib: f64,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    if args.scenes == 0 || args.threads == 0 {
        return Err(cli::usage("--scenes, --threads: expected at least 1"));
    }
    let graphs = graphs(&args.work)?;
    let (truth, files) = draw(args)?;
    let lines = Lines::new("tiles", args.output.as_deref())?;
    let prompts = Prompts::new(EXAMPLE_CLASSES)?;
    let sizes = || [None].into_iter().chain(args.tiles.iter().copied().map(Some));
    for size in sizes() {
        let name = size.map_or("none".to_owned(), |size| size.to_string());
        status(format!("ocelli, tiles {name}"));
        let builder = Detector::builder()
            .with_open_model(Model::open(&graphs)?)
            .with_engine(EngineKind::Cpu)
            .with_threads(args.threads)
            .with_confidence(LEAST_SCORE)
            .with_text_cache(TextCacheFile::None)
            .with_options(|options| options.tiling = size.map(Tiling::new));
        let mut detector = builder.build()?;
        let embedded = detector.prepare(&prompts)?;
        write_text_features(&args.work, &embedded, detector.model())?;
        let mut found = Found::default();
        for (number, file) in files.iter().enumerate() {
            interrupted()?;
            let image = Image::open(file)?;
            let start = Instant::now();
            let items = detector.detect_embedded(&image, &embedded)?.items;
            found.seconds.push(start.elapsed().as_secs_f64());
            let edges = items.iter().map(|one| (number, one.class_id, one.bbox.to_xyxy(), one.score));
            found.detections.extend(edges);
        }
        found.peak_memory_mib = peak_memory_mib();
        write(&lines, args, "ocelli", name, &truth, &found)?;
    }
    let Some(python) = &args.peer else { return Ok(()) };
    for size in sizes() {
        interrupted()?;
        let slice = match size {
            None => [0, 0],
            Some(TileSize::Pixels { width, height }) => [width, height],
            // It has no such choice.
            Some(TileSize::Auto) => continue,
        };
        let name = size.map_or("none".to_owned(), |size| size.to_string());
        status(format!("sahi, tiles {name}"));
        let mut command = Command::new(python);
        command.args(["-c", PEER]).arg(&graphs).arg(&args.work).arg(args.threads.to_string());
        command.args(slice.map(|side| side.to_string())).args(&files);
        let output = command.output().with_context(|| format!("cannot run {}", python.display()))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            anyhow::bail!("peer, {}: {}", python.display(), reason.lines().last().unwrap_or_default());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let found: Found = serde_json::from_str(text.lines().last().unwrap_or_default())
            .context("the peer's last line is not its result")?;
        write(&lines, args, "sahi", name, &truth, &found)?;
    }
    Ok(())
}

/// The built-in model's graphs.
fn graphs(work: &Path) -> anyhow::Result<PathBuf> {
    let graphs = work.join("graphs");
    if !graphs.exists() {
        let checkpoint = work.join("checkpoint");
        std::fs::create_dir_all(&checkpoint)
            .with_context(|| format!("cannot create the folder, {}", checkpoint.display()))?;
        ocelli::builtin::write_checkpoint(&checkpoint)?;
        let options = ExportOptions { target: Target::OnnxRuntime, ..ExportOptions::default() };
        export(&Checkpoint::open(&checkpoint)?, &options, &graphs, |_| Ok(()))?;
    }
    Ok(graphs)
}

/// The text features of all classes, for the peer, which has no tokeniser.
fn write_text_features(work: &Path, prompts: &EmbeddedPrompts, model: &Model) -> anyhow::Result<()> {
    let features = prompts.text_features().flatten().flat_map(|value| value.to_le_bytes());
    let tokenizer = model.tokenizer()?;
    let mut masks = Vec::new();
    for class in EXAMPLE_CLASSES {
        masks.extend(tokenizer.encode(class)?.mask.into_iter().flat_map(i64::to_le_bytes));
    }
    for (name, bytes) in [("text_features.f32", features.collect()), ("text_masks.i64", masks)] {
        let path = work.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Draws the images, and writes them for the peer.
fn draw(args: &Arguments) -> anyhow::Result<(Truth, Vec<PathBuf>)> {
    let options = SceneOptions {
        width: args.size[0],
        height: args.size[1],
        objects: args.objects..=args.objects,
        kinds: EXAMPLE_CLASSES.len() as u32..=EXAMPLE_CLASSES.len() as u32,
        noisy: 0.0,
        labels: EXAMPLE_CLASSES.map(str::to_owned).into(),
        sizes: Some(args.object_sizes[0]..=args.object_sizes[1]),
    };
    let generator = SceneGenerator::new(SEED, options)?;
    let (mut truth, mut files) = (TruthBuilder::new(EXAMPLE_CLASSES), Vec::new());
    for number in 0..args.scenes {
        interrupted()?;
        status(format!("drawing image {} of {}", number + 1, args.scenes));
        let scene = generator.scene(number);
        let image = truth.add_image(format!("{number}.png"), scene.image.width(), scene.image.height());
        for object in scene.objects {
            let class = EXAMPLE_CLASSES.iter().position(|name| *name == object.label);
            truth.add_instance(image, class.context("a label of the scenes")?, object.bbox, None);
        }
        let file = args.work.join(format!("{number}.png"));
        ocelli::sink::write_image(&file, scene.image.view())?;
        files.push(file);
    }
    Ok((truth.build()?, files))
}

fn write(
    lines: &Lines,
    args: &Arguments,
    program: &'static str,
    tiles: String,
    truth: &Truth,
    found: &Found,
) -> anyhow::Result<()> {
    let (ids, mut predictions) = (truth.image_ids(), Predictions::default());
    for &(image, class, edges, score) in &found.detections {
        let category = truth.categories()[class].id;
        predictions.push(ids[image], category, BoundingBox::from(edges), score, None);
    }
    let accuracy = average_precision(truth, &predictions, &ids, Overlap::Boxes)?;
    lines.write(&Line {
        program,
        tiles,
        images: ids.len(),
        objects: ids.iter().map(|&id| truth.instances(id).len()).sum(),
        detections: found.detections.len(),
        ap: accuracy.ap,
        ap50: accuracy.ap50,
        ap_small: accuracy.ap_small,
        ap_medium: accuracy.ap_medium,
        ap_large: accuracy.ap_large,
        seconds: found.seconds.clone(),
        peak_memory_mib: found.peak_memory_mib,
        threads: args.threads,
        machine: &lines.machine,
    })
}
