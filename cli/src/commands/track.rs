//! `ocelli track`.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use crate::{self as cli, LogArgs, Progress, TrackerArgs, check_output_file, interrupted, say};
use anyhow::Context;
use clap::{Args, ValueEnum};
use ocelli::tracking::{ByteTracker, MotBox, MotWriter, TrackerDetection, read_mot};

/// Arguments of `ocelli track`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  ocelli track --detections det.txt --output tracks.txt\n\nBoth files are \
                        MOTChallenge text, one box a line: frame,id,left,top,width,height,score,… with frames from 1."
)]
pub struct TrackArgs {
    /// What a detector found, as MOTChallenge text; - is stdin
    #[arg(long, alias = "source", value_name = "FILE")]
    detections: PathBuf,
    /// Where the tracks go, as MOTChallenge text; - is stdout
    #[arg(long, short, default_value = "-", value_name = "FILE")]
    output: PathBuf,
    /// What frames without a line mean
    #[arg(long, default_value = "empty", value_name = "WHICH")]
    gaps: Gaps,
    /// Tracker frames from one frame number to the next: at 10 frames a second, 3 makes ages and velocities what they
    /// are at 30
    #[arg(long, alias = "dt", default_value_t = 1.0, value_name = "FRAMES", allow_negative_numbers = true)]
    frame_step: f32,
    #[command(flatten)]
    tracker: TrackerArgs,
}

/// What frames without a line mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Gaps {
    /// The detector looked and found nothing
    Empty,
    /// Nobody looked: time goes on, and no track is the worse for it
    Skipped,
}

/// Replays detections through the tracker.
pub fn run(args: &TrackArgs, log: &LogArgs) -> anyhow::Result<()> {
    let options = args.tracker.options()?;
    if !(args.frame_step.is_finite() && args.frame_step > 0.0) {
        return Err(cli::usage(format!("--frame-step is {}: expected a number above 0", args.frame_step)));
    }
    let to_file = args.output != Path::new("-");
    if to_file {
        check_output_file("--output", &args.output)?;
    }
    // All is read before anything is written: a bad line leaves no half of a file, and the order of lines is free.
    let boxes = read(&args.detections)?;
    let tracker = ByteTracker::builder().options(options).build()?;
    let (name, writer) = if to_file { open(&args.output)? } else { ("stdout".into(), stdout()) };
    let mut writer = MotWriter::new(name, writer);
    let summary = replay(&boxes, tracker, args, log, &mut writer);
    // What was finished is kept, however it ended.
    writer.finish()?;
    let Summary { frames, ids } = summary?;
    say(log, &format!("{} boxes in {frames} frames, {ids} tracks", boxes.len()));
    Ok(())
}

struct Summary {
    frames: u32,
    ids: usize,
}

fn replay(
    boxes: &[MotBox],
    mut tracker: ByteTracker,
    args: &TrackArgs,
    log: &LogArgs,
    writer: &mut MotWriter<Box<dyn Write>>,
) -> anyhow::Result<Summary> {
    let progress = Progress::new(log, boxes.len() as u64);
    let mut ids = std::collections::HashSet::new();
    let mut detections: Vec<TrackerDetection> = Vec::new();
    let mut now = boxes.first().map_or(1, |first| first.frame);
    let frames = boxes.last().map_or(0, |last| last.frame - now + 1);
    for of_frame in boxes.chunk_by(|a, b| a.frame == b.frame) {
        let frame = of_frame[0].frame;
        // The frames in between; once nobody is followed any more, they change nothing.
        while args.gaps == Gaps::Empty && now + 1 < frame && tracker.tracks().len() > 0 {
            now += 1;
            interrupted()?;
            writer.write(now, tracker.update(&[], args.frame_step))?;
        }
        interrupted()?;
        detections.clear();
        detections.extend(of_frame.iter().map(MotBox::to_detection));
        let tracks = tracker.update(&detections, (frame - now) as f32 * args.frame_step);
        ids.extend(tracks.iter().map(|track| track.id));
        writer.write(frame, tracks)?;
        now = frame;
        of_frame.iter().for_each(|_| progress.step());
    }
    Ok(Summary { frames, ids: ids.len() })
}

fn read(path: &Path) -> anyhow::Result<Vec<MotBox>> {
    if path == Path::new("-") {
        return Ok(read_mot("stdin", io::stdin().lock())?);
    }
    let name = path.display().to_string();
    if path.is_dir() {
        return Err(cli::usage(format!("--detections, {name}: it is a folder; name a file")));
    }
    let file =
        File::open(path).with_context(|| format!("cannot read the detections, {name}")).map_err(flat)?;
    Ok(read_mot(&name, BufReader::new(file))?)
}

/// A stream: each frame's lines reach the file at once, without a buffer in between.
fn open(path: &Path) -> anyhow::Result<(String, Box<dyn Write>)> {
    let name = path.display().to_string();
    let file =
        File::create(path).with_context(|| format!("cannot write the tracks, {name}")).map_err(flat)?;
    Ok((name, Box::new(file)))
}

fn stdout() -> Box<dyn Write> {
    Box::new(io::stdout().lock())
}

/// The error with its cause in one line.
fn flat(error: anyhow::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:#}")
}
