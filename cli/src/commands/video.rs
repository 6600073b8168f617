//! `ocelli video`: finds and tracks what is named in videos.

mod progress;
mod sinks;
mod source;
mod summary;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::{Args, ValueEnum};
use ocelli::atomic_file::write_atomically;
use ocelli::draw::{Annotator, Overlay, OverlayOptions};
use ocelli::{Cancellation, FramePolicy, Pipeline, PipelineBuilder, SourceInfo, StatsRecorder};

use self::progress::LiveProgress;
use self::sinks::{SinkArgs, Sinks};
use self::source::SourceArgs;
use self::summary::{Counts, RunReport, stage_table};
use crate::coco;
use crate::exemplar::{ExemplarArg, examples_in, prompts};
use crate::{
    self as cli, DetectorArgs, LogArgs, Progress, TrackerArgs, interrupted, print, say, usage, with_flags,
};

/// What `ocelli video --help` says after the arguments.
pub const AFTER_HELP: &str = "\
Without --video it draws a scene of its own. Without --model it uses the small built-in model, which knows eighty drawn \
pictograms and no photographs; for those name the folder of the facebook/sam3 checkpoint: --model sam3/

A video that is written has one rate, that of its source: where frames are missing, the one before is repeated. It has no \
sound. Ctrl-C completes what is being written.

Examples:
  ocelli video --classes dog car --track -o out.mp4
  ocelli video --video street.mp4 --classes person \"red car\" --track -o out.mp4 --jsonl out.jsonl
  ocelli video --video 0 --classes cup --display
  ocelli video --video rtsp://camera/1 --coco --class-budget 8 --track --mot tracks.txt
  ffmpeg -i in.mkv -f rawvideo -pix_fmt bgr24 - | ocelli video --video - --raw 1280x720:bgr --classes dog --jsonl -";

/// Arguments of `ocelli video` and `demo-video`.
#[derive(Args, Debug)]
pub struct VideoArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// What to look for: words or short phrases; commas separate them as well
    #[arg(long, alias = "class", num_args = 1.., value_name = "PHRASE", help_heading = "Detection")]
    classes: Vec<String>,
    /// Look for COCO's eighty classes
    #[arg(long, conflicts_with = "classes", help_heading = "Detection")]
    coco: bool,
    /// An example of what to look for, a box in pixels of --exemplar-image: x1,y1,x2,y2, then :no for an example of what
    /// is not wanted, then @class where there are several
    #[arg(long, num_args = 1.., value_name = "BOX", requires = "exemplar_image", help_heading = "Detection")]
    exemplar: Vec<ExemplarArg>,
    /// The picture that the examples are boxes in: a frame of the video, or any other; the model was not trained for
    /// that, so name the class as well
    #[arg(long, value_name = "FILE", requires = "exemplar", help_heading = "Detection")]
    exemplar_image: Option<PathBuf>,
    #[command(flatten)]
    sinks: SinkArgs,
    /// Find the pixels of each thing as well
    #[arg(long, help_heading = "Detection")]
    masks: bool,
    #[command(flatten)]
    detector: DetectorArgs,
    /// Follow things from frame to frame
    #[arg(long, help_heading = "Tracking")]
    track: bool,
    #[command(flatten)]
    tracker: TrackerArgs,
    /// Every frame, or the newest when there is more than can be done [default: latest for cameras and streams, else all]
    #[arg(long, value_name = "WHICH", help_heading = "Speed")]
    policy: Option<Policy>,
    /// Detect in every Nth frame only; tracks go on between [default: 1]
    #[arg(long, value_name = "N", help_heading = "Speed", allow_negative_numbers = true)]
    detect_every: Option<u64>,
    /// Look for at most K classes in a frame: those in sight in each, the others in turn [default: all]
    #[arg(long, value_name = "K", help_heading = "Speed", allow_negative_numbers = true)]
    class_budget: Option<usize>,
    /// One step after the other, to compare: the results are the same
    #[arg(long, help_heading = "Speed")]
    sequential: bool,
    /// Write where the time went as JSON
    #[arg(long, value_name = "FILE", help_heading = "Speed")]
    stats: Option<PathBuf>,
    /// Of DART's command line; nothing here has a fixed number of classes.
    #[arg(long, value_name = "N", hide = true)]
    trt_max_classes: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    All,

    Latest,
}

/// Runs the program.
///
/// # Errors
/// What made it fail, for a person.
pub fn run(args: &VideoArgs, log: &LogArgs) -> anyhow::Result<()> {
    let classes = what_to_look_for(args, log)?;
    args.sinks.check()?;
    if let Some(path) = &args.stats {
        cli::check_output_file("--stats", path)?;
    }
    if args.sinks.trails.is_some_and(|frames| frames > 0) && !args.track {
        return Err(usage("--trails shows where tracks come from: add --track"));
    }
    if args.trt_max_classes.is_some() {
        say(log, "--trt-max-classes is not needed: any number of classes can be looked for");
    }
    let tracker = args.tracker.options()?;
    let builder = args.detector.detector()?.with_masks(args.masks);
    let cancellation = Cancellation::new();
    cli::cancel_on_interrupt(&cancellation);
    let opened = args.source.open(&classes, &cancellation)?;
    args.sinks.check_against(&opened.files, args.stats.as_deref())?;
    let info = opened.info().clone();
    let mut sinks = args.sinks.open(&info, args.track, &cancellation)?;
    if sinks.video && info.has_sound {
        say(
            log,
            &format!("{} has sound, which is not carried over: the output has pictures alone", info.name),
        );
    }

    let prompts = prompts(&classes, &args.exemplar)?;
    let loading = Progress::waiting(log);
    let mut detector = builder.build_reporting(&|line| loading.announce(line))?;
    let mut embedded = detector.prepare(&prompts)?;
    if let Some(path) = &args.exemplar_image {
        embedded = examples_in(path, &mut detector, &prompts)?;
    }
    drop(loading);
    say(log, &format!("engine: {}", detector.engine()));
    interrupted()?;

    let job = Job {
        args,
        log,
        info,
        engine: detector.engine().to_owned(),
        classes: prompts.len(),
        stats: StatsRecorder::new(),
        counts: Arc::default(),
    };
    let mut pipeline = job.options(Pipeline::builder_embedded(detector, embedded), cancellation.clone());
    if args.track {
        pipeline = pipeline.with_tracker(tracker);
    }
    let end = pipeline.run(opened.source, &mut sinks.all);
    let flags = [
        ("detect_every", "--detect-every"),
        ("class_budget", "--class-budget"),
        ("max_time_lost", "--max-time-lost"),
    ];
    let end = end.map(drop).map_err(|e| anyhow::Error::from(with_flags(e, &flags)));
    // However it ended, what was finished is said.
    let said = job.summarize(&sinks, &cancellation, end.as_ref().err());
    end.and(said)?;
    Ok(interrupted()?)
}

fn what_to_look_for(args: &VideoArgs, log: &LogArgs) -> anyhow::Result<Vec<String>> {
    if args.coco {
        return Ok(coco::CLASSES.iter().map(ToString::to_string).collect());
    }
    if args.classes.is_empty() && args.exemplar.is_empty() {
        return Err(usage(
            "nothing to look for: name it with --classes, or look for COCO's classes with --coco",
        ));
    }
    Ok(cli::class_names(&args.classes, log)?)
}

/// What is under way.
struct Job<'a> {
    args: &'a VideoArgs,
    log: &'a LogArgs,
    info: SourceInfo,
    engine: String,
    classes: usize,
    stats: StatsRecorder,
    counts: Arc<Mutex<Counts>>,
}

impl Job<'_> {
    fn options(&self, mut pipeline: PipelineBuilder, cancellation: Cancellation) -> PipelineBuilder {
        let args = self.args;
        let options = OverlayOptions { tracks: args.track, trail_frames: args.sinks.trails.unwrap_or(0) };
        let mut overlay = Overlay::new(Annotator::new(), options);
        let mut progress = LiveProgress::new(self.log, &self.info, &self.stats);
        let counts = Arc::clone(&self.counts);
        pipeline = pipeline
            .with_sequential(args.sequential)
            .with_cancellation(cancellation)
            .with_stats(self.stats.clone())
            .with_drawing(move |picture, outcome| overlay.draw(picture, outcome))
            .with_observer(move |outcome| {
                counts.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
                progress.frame();
            });
        if let Some(policy) = args.policy {
            pipeline = pipeline.with_policy(match policy {
                Policy::All => FramePolicy::All,
                Policy::Latest => FramePolicy::Latest,
            });
        }
        if let Some(frames) = args.detect_every {
            pipeline = pipeline.with_detect_every(frames);
        }
        if let Some(classes) = args.class_budget {
            pipeline = pipeline.with_class_budget(classes);
        }
        pipeline
    }

    /// Tables, and the statistics' file.
    fn summarize(
        &self,
        sinks: &Sinks<'_>,
        cancellation: &Cancellation,
        error: Option<&anyhow::Error>,
    ) -> anyhow::Result<()> {
        let stats = self.stats.snapshot();
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if stats.frames_out > 0 && !sinks.stdout {
            let hint = "hint: the built-in model knows eighty drawn pictograms; for photographs name the folder of the \
                        facebook/sam3 checkpoint with --model";
            match counts.is_empty() {
                true if self.args.detector.model.model.is_none() => say(self.log, hint),
                true => say(self.log, "nothing was found"),
                false => print(|out| out.write_all(counts.table(self.args.track).as_bytes()))?,
            }
        }
        if stats.frames_out > 0 {
            say(self.log, stage_table(&stats).trim_end());
        }
        if let Some(path) = &self.args.stats {
            let report = RunReport {
                video: &self.info.name,
                size: self.info.size,
                frame_rate: self.info.frame_rate,
                engine: &self.engine,
                classes: self.classes,
                cancelled: cancellation.is_cancelled(),
                error: error.map(ToString::to_string),
                stats: &stats,
            };
            write_atomically(path, |file| {
                serde_json::to_writer_pretty(&mut *file, &report)?;
                std::io::Write::write_all(file, b"\n")
            })?;
        }
        if error.is_none() {
            let said = |path: &Path| say(self.log, &format!("→ {}", path.display()));
            let SinkArgs { output, jsonl, mot, crops, .. } = &self.args.sinks;
            let files = [output, jsonl, mot, crops, &self.args.stats].into_iter().flatten();
            files.filter(|path| *path != Path::new("-") && path.exists()).for_each(|path| said(path));
            if self.args.sinks.is_empty() {
                say(self.log, "hint: see it with -o out.mp4, or --display");
            }
        }
        Ok(())
    }
}
