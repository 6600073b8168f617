//! `bench dart`: the tables of the DART paper (arXiv 2603.11441), measured here.

mod table;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use ocelli::atomic_file::write_atomically;
use ocelli::engine::EngineFactory;
use ocelli::export::contract::{Manifest, Prompting};
use ocelli::export::{Checkpoint, CheckpointOptions, ExportOptions, Pruning, export};
use ocelli::stages::TextCacheFile;
use ocelli::{Detector, Model, Prompts};
use ocelli_benchmarks::halves::{Features, Halves, ImageHalf, PromptHalf, TextFeatures};
use ocelli_benchmarks::machine::{Machine, cpu_ms, peak_memory_mib};
use ocelli_benchmarks::quantiles::Quantiles;
use ocelli_cli::{self as cli, LogArgs, interrupted, print, status};
use ocelli_tests::random_weights;
use serde::Serialize;

use super::halves::{drawn, drawn_image};
use super::lines::Lines;
use table::Table;

/// The tokens do not matter: text features are noise.
const TOKENIZER: &[u8] = include_bytes!("../../../../src/builtin/tokenizer.json");
/// The blocks that DART recommends to remove.
const PRUNED: [usize; 16] = [5, 10, 12, 14, 17, 18, 19, 20, 21, 22, 24, 25, 26, 27, 28, 30];
/// The most classes that are decoded at once.
const MOST_AT_ONCE: usize = 16;

/// An image backbone of the paper's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backbone {
    /// The vision transformer of SAM 3.
    Whole,
    /// The same without sixteen of its blocks.
    #[value(name = "pruned-16")]
    Pruned16,
    /// A student.
    #[value(name = "rep-vit-m2-3")]
    RepVitM23,
    /// A student.
    #[value(name = "tiny-vit-21m")]
    TinyVit21m,
    /// A student.
    #[value(name = "efficient-vit-l2")]
    EfficientVitL2,
    /// A student.
    #[value(name = "efficient-vit-l1")]
    EfficientVitL1,
}

impl Backbone {
    fn name(self) -> String {
        self.to_possible_value().expect("no backbone is skipped").get_name().to_owned()
    }

    fn is_student(self) -> bool {
        !matches!(self, Self::Whole | Self::Pruned16)
    }
}

/// Measures the image half and the prompt half of a detector with each image backbone of the DART paper, and the paper's
/// ablation, and prints both tables.
///
/// Weights are random unless --model names a checkpoint; graphs are exported for boxes alone, without the image token, as
/// DART's are, and removed afterwards. Sequential frames per second are those of both halves after each other, pipelined ones
/// are measured with both at once. The encoder-decoder is the same graph for every backbone, and is measured once for a size.
/// CPU time is that of all cores: what other work on the machine changes little. A row that would take longer than --limit, by what was
/// measured before it, is left out and listed.
#[derive(clap::Args)]
pub struct Arguments {
    /// Image backbones
    #[arg(long, value_enum, num_args = 1.., default_values = ["whole", "pruned-16", "rep-vit-m2-3", "tiny-vit-21m", "efficient-vit-l2", "efficient-vit-l1"])]
    backbones: Vec<Backbone>,
    /// Sides of the model's square input in pixels
    #[arg(long, num_args = 1.., default_values_t = [1008, 644], value_name = "PIXELS")]
    sizes: Vec<usize>,
    /// Numbers of classes, ascending
    #[arg(long, num_args = 1.., default_values_t = [1, 2, 4, 8, 16, 80], value_name = "N")]
    class_counts: Vec<usize>,
    /// Those of them with which both halves are also measured at once [default: all]
    #[arg(long, num_args = 1.., value_name = "N")]
    pipelined: Option<Vec<usize>>,
    /// Classes of the ablation, which is of the first backbone; 0 leaves it out
    #[arg(long, default_value_t = 4, value_name = "N")]
    ablation: usize,
    /// Measured runs
    #[arg(long, default_value_t = 5, value_name = "N")]
    runs: usize,
    /// Warm-up runs
    #[arg(long, default_value_t = 1, value_name = "N")]
    warm_up: usize,
    /// Leave out what would take longer
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
    limit: f64,
    /// A checkpoint with the layout of facebook/sam3 [default: random weights of its size]
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Folder for the random weights, which stay, and the graphs: 6 GB
    #[arg(long, default_value = "target/bench_dart", value_name = "DIR")]
    work: PathBuf,
    /// Append JSON lines to a file in this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Engine: auto, embedded, openvino, onnxruntime, cuda or webgpu
    #[arg(long, default_value = "auto", value_name = "NAME")]
    engine: String,
    /// CPU threads [default: one per physical core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Wall time and CPU time of the same runs, in milliseconds.
#[derive(Clone, Copy, Serialize)]
struct Timing {
    ms: Quantiles,
    cpu_ms: Quantiles,
}

/// A row of a table.
#[derive(Serialize)]
struct Line<'a> {
    program: &'static str,
    engine: &'a str,
    backbone: &'a str,
    imgsz: usize,
    /// A step of the ablation; null for the first table.
    step: Option<&'a str>,
    classes: usize,
    /// Classes decoded at once.
    at_once: usize,
    image: Timing,
    prompts: Timing,
    /// Of the mask head, in the ablation.
    masks_ms: Option<Quantiles>,
    detections: Option<usize>,
    /// Of both halves after each other.
    frame_ms: f64,
    sequential_fps: f64,
    /// Of both halves at once; null where it was left out.
    pipelined_fps: Option<f64>,
    pipelined_n: usize,
    peak_memory_mib: f64,
    /// The load of the machine, of one minute.
    load: f64,
    machine: &'a Machine,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    let ascend = args.class_counts.windows(2).all(|pair| pair[0] < pair[1]);
    if args.runs == 0 || args.class_counts.contains(&0) || !ascend {
        return Err(cli::usage(
            "--runs, --class-counts: expected at least 1, and classes in ascending order",
        ));
    }
    let limit = Duration::try_from_secs_f64(args.limit)
        .map_err(|e| cli::usage(format!("--limit is {}: expected a number of seconds: {e}", args.limit)))?;
    let options = ocelli::engine::EngineOptions {
        kind: args.engine.parse()?,
        threads: args.threads,
        ..ocelli::engine::EngineOptions::default()
    };
    let factory = EngineFactory::start(&options)?;
    status(format!("engine: {}", factory.description()));
    let mut bench = Bench {
        args,
        limit,
        engine: factory.description(),
        factory,
        lines: Lines::new("dart", args.output.as_deref())?,
        table: Table::default(),
        known: BTreeMap::new(),
    };
    let end = bench.measure_all();
    // After Ctrl-C, the rows so far.
    print(|out| bench.table.write(out))?;
    end
}

struct Bench<'a> {
    args: &'a Arguments,
    limit: Duration,
    engine: String,
    factory: EngineFactory,
    lines: Lines,
    table: Table,
    /// Times of the prompt half, by size, classes, and classes decoded at once.
    known: BTreeMap<[usize; 3], Timing>,
}

impl Bench<'_> {
    fn measure_all(&mut self) -> anyhow::Result<()> {
        let base = self.checkpoint()?;
        for &imgsz in &self.args.sizes {
            for (number, &backbone) in self.args.backbones.iter().enumerate() {
                self.measure(&base, backbone, imgsz, number == 0)?;
            }
        }
        Ok(())
    }

    /// The checkpoint; random weights are written if they are not there.
    fn checkpoint(&self) -> anyhow::Result<PathBuf> {
        if let Some(folder) = &self.args.model {
            return Ok(folder.clone());
        }
        let folder = self.args.work.join("checkpoint");
        create(&folder)?;
        if !folder.join("config.json").exists() {
            status("random weights");
            write_atomically(&folder.join("tokenizer.json"), |file| file.write_all(TOKENIZER))?;
            random_weights::write_without_text(&folder)?;
        }
        Ok(folder)
    }

    /// Exports a model into a temporary folder.
    fn export(
        &self,
        base: &Path,
        backbone: Backbone,
        imgsz: usize,
        masks: bool,
    ) -> anyhow::Result<(tempfile::TempDir, Model)> {
        status(format!("export, {}, {imgsz} px", backbone.name()));
        create(&self.args.work)?;
        let folder = tempfile::tempdir_in(&self.args.work)?;
        let checkpoint = match backbone.is_student() {
            false => Checkpoint::open(base)?,
            true => {
                let path = folder.path().join("student.safetensors");
                random_weights::write_student(&path, &backbone.name().replace('-', "_"))?;
                CheckpointOptions { base: Some(base.to_owned()), ..Default::default() }.open(&path)?
            }
        };
        let skipped = if backbone == Backbone::Pruned16 { &PRUNED[..] } else { &[] };
        let options = ExportOptions {
            imgsz: Some(imgsz),
            target: self.factory.target(None),
            prompting: Prompting::Text,
            detection_only: !masks,
            no_tracker: true,
            pruning: Pruning { skip_blocks: skipped.iter().copied().collect(), ..Pruning::default() },
            ..ExportOptions::default()
        };
        let graphs = folder.path().join("graphs");
        export(&checkpoint, &options, &graphs, |_| Ok(()))?;
        let model = Model::open(&graphs)?;
        Ok((folder, model))
    }

    /// The rows of a backbone at a size, and with `ablation` the steps of the ablation.
    fn measure(
        &mut self,
        base: &Path,
        backbone: Backbone,
        imgsz: usize,
        ablation: bool,
    ) -> anyhow::Result<()> {
        let most = *self.args.class_counts.last().expect("it has a default");
        let (folder, model) = self.export(base, backbone, imgsz, false)?;
        let manifest = model.manifest().clone();
        let text = TextFeatures::noise(&manifest, most.max(self.args.ablation));
        let (image, prompt) =
            (ImageHalf::load(&model, &self.factory)?, PromptHalf::load(&model, &self.factory)?);
        let mut halves = Halves { image, prompt };
        // The engines have what they need of the files.
        drop(folder);
        halves.image.set_pixels(&drawn(&manifest)?)?;
        let mut features = halves.features();
        let image = self.time(|| {
            halves.image.run_into(&mut features)?;
            Ok(features.fpn_2.wait()?)
        })?;
        let mut of_a_class = 0.0;
        for &classes in &self.args.class_counts {
            let name = format!("{}, {imgsz} px, {classes} classes", backbone.name());
            let rounds = (self.args.warm_up + self.args.runs) as f64;
            if self.leaves_out(&name, rounds * of_a_class * classes as f64) {
                break;
            }
            let at_once = classes.min(MOST_AT_ONCE);
            let prompts = self.prompts(&mut halves, &manifest, &text, &features, [classes, at_once])?;
            of_a_class = prompts.ms.p50 / classes as f64;
            let rounds = (self.args.warm_up.max(1) + self.args.runs) as f64;
            let is_wanted = self.args.pipelined.as_ref().is_none_or(|wanted| wanted.contains(&classes));
            let ms = rounds * (image.ms.p50 + prompts.ms.p50);
            let together = match is_wanted && !self.leaves_out(&format!("{name}, pipelined"), ms) {
                true => {
                    let check = || Ok(interrupted()?);
                    Some(halves.together(self.args.warm_up, self.args.runs, self.limit, check)?)
                }
                false => None,
            };
            let pipelined = together.map(|together| (together.fps, together.n));
            self.row(&backbone.name(), imgsz, None, [classes, at_once], [image, prompts], pipelined)?;
        }
        if !ablation || self.args.ablation == 0 {
            return Ok(());
        }
        let classes = self.args.ablation;
        let one = self.prompts(&mut halves, &manifest, &text, &features, [1, 1])?;
        let times = |timing: Timing, factor: usize| {
            let of = |all: Quantiles| {
                let by = factor as f64;
                Quantiles {
                    n: all.n,
                    p50: by * all.p50,
                    p90: by * all.p90,
                    p99: by * all.p99,
                    min: by * all.min,
                }
            };
            Timing { ms: of(timing.ms), cpu_ms: of(timing.cpu_ms) }
        };
        // Every pass is the same, so its time is measured once.
        let passes = [times(image, classes), times(one, classes)];
        let name = backbone.name();
        self.row(&name, imgsz, Some("a pass for each prompt"), [classes, 1], passes, None)?;
        let serial = self.prompts(&mut halves, &manifest, &text, &features, [classes, 1])?;
        self.row(&name, imgsz, Some("shared backbone, one by one"), [classes, 1], [image, serial], None)?;
        let batched = self.prompts(&mut halves, &manifest, &text, &features, [classes, classes])?;
        self.row(
            &name,
            imgsz,
            Some("shared backbone, batched, boxes only"),
            [classes, classes],
            [image, batched],
            None,
        )?;
        drop(halves);
        self.masks(base, backbone, imgsz, classes)
    }

    /// The last step of the ablation: masks of all detections, with the graphs for them.
    fn masks(&mut self, base: &Path, backbone: Backbone, imgsz: usize, classes: usize) -> anyhow::Result<()> {
        let (folder, model) = self.export(base, backbone, imgsz, true)?;
        let mut detector = Detector::builder()
            .with_open_model(model)
            .with_engine_factory(self.factory.clone())
            .with_text_cache(TextCacheFile::None)
            .with_class_chunk(classes)
            .with_masks(true)
            .build()?;
        let prompts = Prompts::new((0..classes).map(|class| format!("thing number {class}")))?;
        detector.prepare(&prompts)?;
        drop(folder);
        let drawn = drawn_image()?;
        let mut found = Vec::with_capacity(self.args.runs);
        for run in 0..self.args.warm_up + self.args.runs {
            interrupted()?;
            let start = cpu_ms();
            let one = detector.detect(&drawn, &prompts)?;
            if run >= self.args.warm_up {
                found.push((one.times, cpu_ms() - start, one.items.len()));
            }
        }
        let of = |stage: fn(&ocelli::StageTimes) -> f64| {
            Quantiles::of(found.iter().map(|(times, ..)| stage(times)).collect())
        };
        let (image, decode, masks) = (of(|t| t.backbone), of(|t| t.decode), of(|t| t.masks));
        let all_cpu = Quantiles::of(found.iter().map(|(_, cpu, _)| *cpu).collect());
        // CPU time is that of whole images.
        let [image, prompts] =
            [(image, all_cpu), (decode, Quantiles::of(Vec::new()))].map(|(ms, cpu_ms)| Timing { ms, cpu_ms });
        let name = backbone.name();
        let line = self.line(&name, imgsz, Some("the same with masks"), [classes, classes], [image, prompts]);
        let frame_ms = line.frame_ms + masks.p50;
        let line = Line {
            masks_ms: Some(masks),
            detections: found.last().map(|(.., detections)| *detections),
            frame_ms,
            sequential_fps: 1e3 / frame_ms,
            ..line
        };
        self.lines.keep(&line)?;
        let detections = line.detections.unwrap_or_default();
        self.table.add_step(&name, imgsz, classes, &format!("the same with {detections} masks"), frame_ms);
        Ok(())
    }

    /// Measures the prompt half with a number of classes, so many at once.
    fn prompts(
        &mut self,
        halves: &mut Halves,
        manifest: &Manifest,
        text: &TextFeatures,
        features: &Features,
        [classes, at_once]: [usize; 2],
    ) -> anyhow::Result<Timing> {
        halves.prompt.set_prompts(manifest, text, &features.image_prompt, classes, at_once)?;
        let key = [manifest.imgsz, classes, at_once];
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let timing = self.time(|| halves.prompt.run(&features.fpn_2).map(|_| ()))?;
        self.known.insert(key, timing);
        Ok(timing)
    }

    /// Runs `once` to warm up and to measure, at most for the limit after the first measured run.
    fn time(&self, mut once: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Timing> {
        for _ in 0..self.args.warm_up {
            interrupted()?;
            once()?;
        }
        let (started, mut ms, mut cpu) = (Instant::now(), Vec::new(), Vec::new());
        while ms.is_empty() || ms.len() < self.args.runs && started.elapsed() < self.limit {
            interrupted()?;
            let (start, cpu_start) = (Instant::now(), cpu_ms());
            once()?;
            ms.push(start.elapsed().as_secs_f64() * 1e3);
            cpu.push(cpu_ms() - cpu_start);
        }
        Ok(Timing { ms: Quantiles::of(ms), cpu_ms: Quantiles::of(cpu) })
    }

    /// Whether a measurement would take longer than the limit; it is listed then.
    fn leaves_out(&mut self, name: &str, ms: f64) -> bool {
        let leaves_out = ms > self.limit.as_secs_f64() * 1e3;
        if leaves_out {
            self.table.leave_out(format!("{name}: about {:.0} s", ms / 1e3));
        }
        leaves_out
    }

    fn line<'l>(
        &'l self,
        backbone: &'l str,
        imgsz: usize,
        step: Option<&'l str>,
        [classes, at_once]: [usize; 2],
        [image, prompts]: [Timing; 2],
    ) -> Line<'l> {
        let frame_ms = image.ms.p50 + prompts.ms.p50;
        Line {
            program: "bench dart",
            engine: &self.engine,
            backbone,
            imgsz,
            step,
            classes,
            at_once,
            image,
            prompts,
            masks_ms: None,
            detections: None,
            frame_ms,
            sequential_fps: 1e3 / frame_ms,
            pipelined_fps: None,
            pipelined_n: 0,
            peak_memory_mib: peak_memory_mib(),
            load: load(),
            machine: &self.lines.machine,
        }
    }

    fn row(
        &mut self,
        backbone: &str,
        imgsz: usize,
        step: Option<&str>,
        counts: [usize; 2],
        halves: [Timing; 2],
        pipelined: Option<(f64, usize)>,
    ) -> anyhow::Result<()> {
        let line = self.line(backbone, imgsz, step, counts, halves);
        let (pipelined_fps, pipelined_n) = (pipelined.map(|one| one.0), pipelined.map_or(0, |one| one.1));
        let line = Line { pipelined_fps, pipelined_n, ..line };
        self.lines.keep(&line)?;
        let frame_ms = line.frame_ms;
        match step {
            Some(step) => self.table.add_step(backbone, imgsz, counts[0], step, frame_ms),
            None => {
                let of = |timing: Timing| [timing.ms.p50, timing.cpu_ms.p50];
                self.table.add_row(backbone, imgsz, counts[0], halves.map(of), pipelined_fps);
            }
        }
        Ok(())
    }
}

fn create(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder, {}", folder.display()))
}

/// The load of the machine over a minute; 0 if unknown.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}
