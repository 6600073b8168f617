//! `ocelli video`.

mod benchmark;
mod delivery;
mod given;
pub(crate) mod mqtt;
mod run;
mod sinks;
pub(crate) mod source;
mod summary;
pub(crate) mod zones;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ocelli::classes::ClassMap;
use ocelli::masklets::MaskletOptions;
use ocelli::{
    Detector, DetectorBuilder, Pipeline, PipelineBuilder, Prompt, Prompts,
    options::{DetectorOptions, PipelineOptions},
    pipeline::{FramePolicy, Latency, MotionGate, StatsRecorder},
};

use self::given::{GivenArgs, GivenObjects};
use self::run::VideoRun;
use self::sinks::SinkArgs;
use self::source::{OpenSource, SourceArgs};
use self::zones::{Counting, ZonesFile};
use crate::args::{
    DETECTION, DartArgs, ExemplarArg, PERFORMANCE, PrivacyArgs, ScreenArgs, TileArgs, class_map_beside,
    coco_classes, one_of, prepared, prompts, thresholds,
};
use crate::given::first_given_of;
use crate::loading::{engines, load_devices};
use crate::output::check_outputs;
use crate::{DetectorArgs, TrackerArgs, cancel_on_interrupt, detector, interrupted, status, usage};

/// The text that `ocelli video --help` prints after the options.
pub const AFTER_HELP: &str =
    concat!(include_str!("../help/built_in_model.txt"), include_str!("../help/video.txt"));

/// Arguments of `ocelli video` and `demo-video`.
#[derive(Args, Debug)]
pub struct VideoArgs {
    /// Sources, as with --video.
    #[arg(value_name = "SOURCE", hide = true)]
    named: Vec<String>,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    sinks: SinkArgs,
    #[command(flatten)]
    privacy: PrivacyArgs,
    /// Text prompts: words or short phrases, separated by spaces or commas, or a file: classes.txt, or YAML with thresholds
    #[arg(long, alias = "class", num_args = 1.., value_name = "PHRASE", help_heading = DETECTION)]
    classes: Vec<String>,
    /// Detect COCO's eighty classes
    #[arg(long, conflicts_with = "classes", help_heading = DETECTION)]
    coco: bool,
    /// Box around an example in --exemplar-image, in pixels: x1,y1,x2,y2. Append :no for a counterexample, and @class with
    /// several classes
    #[arg(long, num_args = 1.., value_name = "BOX", requires = "exemplar_image", help_heading = DETECTION)]
    exemplar: Vec<ExemplarArg>,
    /// Image that contains the exemplars; less reliable than classes, so name the class as well
    #[arg(long, value_name = "FILE", requires = "exemplar", help_heading = DETECTION)]
    exemplar_image: Option<PathBuf>,
    /// Predict a mask for each detection
    #[arg(long, help_heading = DETECTION)]
    masks: bool,
    #[command(flatten)]
    detector: DetectorArgs,
    #[command(flatten)]
    screen: ScreenArgs,
    #[command(flatten)]
    tiles: TileArgs,
    /// Track instances from frame to frame
    #[arg(long, id = "tracker", help_heading = "Tracking")]
    track: bool,
    /// Follow objects with masks by the model's memory of them; needs a model with a tracker, such as SAM 3. Objects start at a
    /// score of 0.7, or of --confidence, and results leave 14 frames late
    #[arg(long, help_heading = "Tracking")]
    memory: bool,
    /// With --memory: write each frame at once, for live use; objects that turn out to be false are named in the JSON lines of
    /// a later frame ("retracted")
    #[arg(long, requires = "memory", help_heading = "Tracking")]
    no_hotstart: bool,
    /// With --memory: follow at most N objects of a class at a time, as each costs time; those that are followed stay, and of
    /// new ones those with the highest scores start [default: that of the model: SAM 3 10000, SAM 3.1 16]
    #[arg(long, value_name = "N", requires = "memory", help_heading = "Tracking")]
    max_objects: Option<NonZeroUsize>,
    #[command(flatten)]
    given: GivenArgs,
    #[command(flatten)]
    tracker: TrackerArgs,
    /// Estimate how the camera moves, and move the tracks with it
    #[arg(long, help_heading = "Tracking")]
    camera_motion: bool,
    /// Find objects again that were hidden, by where they can be and what they look like
    #[arg(long, help_heading = "Tracking")]
    appearance: bool,
    /// Process all frames, or the latest and drop others [default: latest for cameras and streams, else all]
    #[arg(long, value_name = "FRAMES", value_parser = one_of::<FramePolicy>(&["all", "latest"]), help_heading = PERFORMANCE)]
    policy: Option<FramePolicy>,
    /// What to favour: results soon after the frame, or frames per second [default: balanced for cameras and streams, else
    /// throughput]
    #[arg(
        long,
        value_name = "GOAL",
        value_parser = one_of::<Latency>(&["low", "balanced", "throughput"]),
        conflicts_with = "sequential",
        help_heading = PERFORMANCE
    )]
    latency: Option<Latency>,
    /// With several sources: exit with status 1 if one of them failed, not only if all did
    #[arg(long, help_heading = PERFORMANCE)]
    strict: bool,
    /// Detect in every Nth frame; tracks are predicted in between [default: 1]
    #[arg(long, value_name = "N", help_heading = PERFORMANCE)]
    detect_every: Option<u64>,
    /// Detect in frames with motion only, for cameras that do not move, and at least every SECONDS
    #[arg(
        long,
        id = "motion_gate",
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10",
        help_heading = PERFORMANCE
    )]
    when_moving: Option<f64>,
    /// Detect at most K classes per frame: visible classes in every frame, the others in turn [default: all]
    #[arg(long, value_name = "K", help_heading = PERFORMANCE)]
    class_budget: Option<usize>,
    /// Run one stage at a time; slower, with the same results
    #[arg(long, help_heading = PERFORMANCE)]
    sequential: bool,
    /// Keep one half of the model in memory at a time: groups of frames pass the backbone, then the decoder; not for live use
    #[arg(long, conflicts_with_all = ["memory", "tile", "latency", "policy", "benchmark"], help_heading = PERFORMANCE)]
    low_memory: bool,
    /// Time the engine of --engine, or each that starts, one stage at a time and pipelined, and print a table
    #[arg(
        long,
        conflicts_with_all = ["tracker", "memory", "sequential", "stats", "sources"],
        help_heading = PERFORMANCE
    )]
    benchmark: bool,
    /// Write times per stage as JSON; - is stdout
    #[arg(long, value_name = "FILE", help_heading = PERFORMANCE)]
    stats: Option<PathBuf>,
    #[command(flatten)]
    dart: DartArgs,
}

/// The arguments, read and checked before a camera is waited for.
struct Plan {
    /// Objects to follow in place of classes.
    given: Option<GivenObjects>,
    classes: ClassMap,
    zones: Option<ZonesFile>,
    options: PipelineOptions,
    builders: Vec<DetectorBuilder>,
    source: SourceArgs,
}

impl Plan {
    fn new(args: &VideoArgs) -> anyhow::Result<Self> {
        let given = args.given.read()?;
        let classes = match &given {
            Some(given) => given_classes(args, given)?,
            None => requested_classes(args)?,
        };
        args.sinks.check()?;
        check_outputs([("--stats", args.stats.as_deref())])?;
        let zones = args.sinks.zones.as_deref().map(ZonesFile::read).transpose()?;
        args.check(zones.as_ref())?;
        let options = args.pipeline()?;
        let devices = devices(args, &classes)?;
        options.check(&devices[0], devices.len(), given.is_none())?;
        if args.memory {
            args.detector.model.check_tracker("--memory")?;
        }
        let builders = devices.into_iter().map(detector).collect::<ocelli::Result<Vec<_>>>()?;
        builders.iter().try_for_each(DetectorBuilder::check_files)?;
        args.dart.announce(args.benchmark);
        let mut source = args.source.clone();
        source.video.splice(0..0, args.named.iter().cloned());
        if source.max_frames == Some(0) {
            status("--max-frames 0 reads all frames, as without it");
            source.max_frames = None;
        }
        if source.sources.is_some() && !source.video.is_empty() {
            refuse!("--sources: the file lists all sources; do not name others");
        }
        Ok(Self { given, classes, zones, options, builders, source })
    }

    fn prompts(&self, args: &VideoArgs) -> ocelli::Result<Prompts> {
        match &self.given {
            Some(given) => Prompts::new(given.labels.iter().map(|label| Prompt::visual(label.clone()))),
            None => prompts(&self.classes, &args.exemplar),
        }
    }
}

/// Runs the pipeline over a source.
pub fn run(args: &VideoArgs) -> anyhow::Result<()> {
    let mut plan = Plan::new(args)?;
    let cancellation = cancel_on_interrupt();
    if args.benchmark {
        let prompts = prompts(&plan.classes, &args.exemplar)?;
        return benchmark::run(args, &plan.classes, &prompts, &plan.source, &cancellation);
    }
    let prompts = plan.prompts(args)?;
    let names: Vec<&str> = plan.classes.names().collect();
    let newest = args.policy.map(|policy| policy == FramePolicy::Latest);
    let opened = plan.source.open(&names, newest, &cancellation)?;
    args.check_source(&opened, plan.given.is_some())?;
    let (info, source_names) = (opened.source.info().clone(), opened.names());
    if let Some(zones) = &plan.zones {
        let ignored = zones.ignored(&source_names)?;
        plan.options.motion_gate.iter_mut().for_each(|gate| gate.ignored.clone_from(&ignored));
    }
    let counting = plan.zones.take().map(|zones| Counting::new(zones, &source_names)).transpose()?;
    let mut sinks = args.sinks.open(&info, source_names.len(), args.has_tracks(), &cancellation)?;
    if let Some(counting) = &counting {
        sinks.all.push(Box::new(args.sinks.zone_sink(counting)?));
    }
    if sinks.is_silent {
        status(format!("{} has sound, which is not copied to the output", info.name));
    }
    let labels: Vec<&str> = prompts.iter().map(|prompt| &**prompt.label()).collect();
    let redaction = args.privacy.redaction(&labels)?;
    if !plan.source.is_drawn() {
        args.detector.model.announce_built_in(&prompts);
    }
    let (mut detectors, loading) = load_devices(plan.builders)?;
    let engine = engines(&detectors);
    let masklets = args.masklets(&detectors[0]);
    plan.options.memory = args.memory.then_some(masklets);
    let pipeline = pipeline(args, detectors.remove(0), plan.given, &prompts, info.size)?;
    drop(loading);
    status(format!("engine: {engine}"));
    interrupted()?;

    let run = VideoRun {
        args,
        info,
        engine,
        classes: prompts.len(),
        stats: StatsRecorder::new(),
        counts: Arc::default(),
        states: opened.states,
        counting,
    };
    if run.states.is_some() {
        plan.options.policy = None;
    }
    let mut pipeline = pipeline
        .with_options(|all| *all = plan.options)
        .with_more_devices(detectors)
        .with_cancellation(cancellation.clone())
        .with_stats(run.stats.clone())
        .with_drawing(run.drawing())
        .with_observer(run.observer());
    if let Some(redaction) = redaction {
        pipeline = pipeline.with_redaction(redaction);
    }
    let end = pipeline.run(opened.source, &mut sinks.all);
    run.conclude(end.map_err(anyhow::Error::from), &sinks, &cancellation)
}

/// The pipeline of the first device, for frames of a known size if there is one.
fn pipeline(
    args: &VideoArgs,
    mut detector: Detector,
    given: Option<GivenObjects>,
    prompts: &Prompts,
    size: Option<(u32, u32)>,
) -> anyhow::Result<PipelineBuilder> {
    let masklets = args.masklets(&detector);
    if let Some(given) = given {
        let labels = given.labels.clone();
        return Ok(Pipeline::builder_of_objects(detector, labels, given.objects(size)?, masklets));
    }
    let embedded = prepared(&mut detector, prompts, args.exemplar_image.as_deref())?;
    Ok(Pipeline::builder_embedded(detector, embedded))
}

/// The options of the detector on each device, from the arguments.
fn devices(args: &VideoArgs, classes: &ClassMap) -> anyhow::Result<Vec<DetectorOptions>> {
    let devices = args.detector.devices()?;
    if args.benchmark && devices.len() > 1 {
        refuse!("--benchmark runs on one device: name one with --engine");
    }
    devices.into_iter().map(|device| options(args, device, classes)).collect()
}

/// A detector's options: those of the engine and what to detect.
fn options(args: &VideoArgs, common: DetectorOptions, classes: &ClassMap) -> anyhow::Result<DetectorOptions> {
    Ok(DetectorOptions {
        masks: args.masks || args.memory,
        low_memory: args.low_memory,
        class_confidence: thresholds(classes),
        screening: args.screen.screen,
        tiling: args.tiles.tiling(),
        pruning: args.dart.pruning(&args.detector.model)?,
        ..common
    })
}

impl VideoArgs {
    /// `true` if objects have identities.
    fn has_tracks(&self) -> bool {
        self.track || self.memory
    }

    /// The options of the pipeline; those of the tracker by memory are known with the model.
    fn pipeline(&self) -> anyhow::Result<PipelineOptions> {
        let tracker = self.tracker.options()?;
        Ok(PipelineOptions {
            tracker: self.track.then_some(tracker),
            memory: self.memory.then(MaskletOptions::default),
            camera_motion: self.camera_motion,
            appearance: self.appearance,
            policy: self.policy,
            latency: self.latency,
            detect_every: self.detect_every,
            motion_gate: motion_gate(self)?,
            class_budget: self.class_budget,
            sequential: self.sequential,
            ..PipelineOptions::default()
        })
    }

    /// Refuses options of the program that do not fit each other; [`PipelineOptions::check`] knows those of the pipeline.
    fn check(&self, zones: Option<&ZonesFile>) -> anyhow::Result<()> {
        let has_tracks = self.has_tracks();
        let has_masks = self.memory || self.track && self.masks;
        let of_tracker = first_given_of::<TrackerArgs>().filter(|_| !self.track);
        let tracker = if self.memory { "use --track in place of --memory" } else { "add --track" };
        let of_masks = self.sinks.of_masks().filter(|_| !has_masks);
        let alone = [
            (
                self.sinks.trails.is_some_and(|frames| frames > 0) && !has_tracks,
                "--trails draws the paths of tracks: add --track",
            ),
            (zones.is_some_and(ZonesFile::counts) && !has_tracks, "--zones counts tracks: add --track"),
            (
                zones.is_some_and(|zones| !zones.counts()) && self.when_moving.is_none(),
                "--zones has regions to ignore only, which are for --when-moving",
            ),
        ];
        let why = [
            of_tracker.map(|flag| format!("{flag} is an option of the tracker: {tracker}")),
            of_masks
                .map(|flag| format!("{flag} writes masks of tracks: add --memory, or --track and --masks")),
            alone.into_iter().find(|(is_wrong, _)| *is_wrong).map(|(_, why)| why.to_owned()),
        ];
        why.into_iter().flatten().next().map_or(Ok(()), |why| Err(usage(why)))
    }

    /// Refuses options that do not fit the source. `given`: whether objects of the user are followed.
    fn check_source(&self, opened: &OpenSource, given: bool) -> anyhow::Result<()> {
        if opened.states.is_some() {
            if given {
                refuse!("--points and --init-masks have the objects of one source: name one");
            }
            self.sinks.check_several()?;
        }
        let read = [&opened.files[..], &self.given.files()].concat();
        self.sinks.check_against(&read, self.stats.as_deref())
    }

    /// The options of the tracker by memory.
    fn masklets(&self, detector: &Detector) -> MaskletOptions {
        let (confidence, most) = (self.detector.confidence, self.max_objects.map(NonZeroUsize::get));
        detector.model().masklet_options().with_settings(confidence, !self.no_hotstart, most)
    }
}

/// The gate that `--when-moving` asks for.
fn motion_gate(args: &VideoArgs) -> anyhow::Result<Option<MotionGate>> {
    let Some(seconds) = args.when_moving else { return Ok(None) };
    let interval = Duration::try_from_secs_f64(seconds).ok().filter(|interval| !interval.is_zero());
    let interval = interval.ok_or_else(|| {
        usage(format!("--when-moving={seconds}: expected the longest time between two detections in seconds"))
    })?;
    Ok(Some(MotionGate::new(interval)))
}

/// The classes of objects that are given in place of classes.
fn given_classes(args: &VideoArgs, given: &GivenObjects) -> anyhow::Result<ClassMap> {
    if args.coco || !args.classes.is_empty() || !args.exemplar.is_empty() {
        let why = "they follow objects of yours, and nothing is detected: leave out --classes, --coco and --exemplar";
        refuse!("--points, --init-masks: {why}");
    }
    Ok(ClassMap::from_names(given.labels.iter().map(|label| &**label)))
}

fn requested_classes(args: &VideoArgs) -> anyhow::Result<ClassMap> {
    if args.coco {
        return Ok(coco_classes());
    }
    if args.classes.is_empty() && args.exemplar.is_empty() {
        refuse!("nothing to detect: name classes with --classes, or use those of COCO with --coco");
    }
    Ok(class_map_beside(&args.classes, "with --video, or before --classes")?)
}
