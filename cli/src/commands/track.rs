//! `ocelli track`.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use ocelli::tracking::{ByteTracker, MotBox, MotWriter, TrackerDetection, read_mot};

use crate::args::{INPUT, OUTPUT};
use crate::output::{check_outputs, is_stdout};
use crate::{Progress, TrackerArgs, interrupted, status};

/// Arguments of `ocelli track`.
#[derive(Args, Debug)]
#[command(after_help = include_str!("../help/track.txt"))]
pub struct TrackArgs {
    /// Detections as MOTChallenge text; - is stdin
    #[arg(long, alias = "source", value_name = "FILE", help_heading = INPUT)]
    detections: PathBuf,
    /// Tracks as MOTChallenge text; - is stdout
    #[arg(long, short, default_value = "-", value_name = "FILE", help_heading = OUTPUT)]
    output: PathBuf,
    /// Frames without a line are empty (nothing was detected) or skipped (the detector did not run)
    #[arg(long, default_value = "empty", value_name = "MEANING", help_heading = INPUT)]
    gaps: Gaps,
    /// Tracker frames per frame of the file: 3 for a 10 FPS file with a tracker tuned for 30 FPS
    #[arg(long, alias = "dt", default_value_t = 1.0, value_name = "FRAMES", help_heading = INPUT)]
    frame_step: f32,
    #[command(flatten)]
    tracker: TrackerArgs,
}

/// Meaning of frames without a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Gaps {
    Empty,
    Skipped,
}

/// Replays detections through the tracker.
pub fn run(args: &TrackArgs) -> anyhow::Result<()> {
    let options = args.tracker.options()?;
    if !(args.frame_step.is_finite() && args.frame_step > 0.0) {
        refuse!("--frame-step is {}: expected a number above 0", args.frame_step);
    }
    check_outputs([("--output", Some(args.output.as_path()))])?;
    // Reads everything before writing anything: a bad line leaves no partial file, and lines may be in any order.
    let boxes = read(&args.detections)?;
    let tracker = ByteTracker::new(options)?;
    let (name, writer): (String, Box<dyn Write>) = if is_stdout(&args.output) {
        ("stdout".into(), Box::new(io::stdout().lock()))
    } else {
        let name = args.output.display().to_string();
        // Unbuffered, so that each frame's lines are written at once.
        let file = File::create(&args.output).with_context(|| format!("cannot write the tracks, {name}"))?;
        (name, Box::new(file))
    };
    let mut writer =
        MotWriter::new(name, writer).with_classes(boxes.iter().any(|one| one.class_id.is_some()));
    let summary = replay(&boxes, tracker, args, &mut writer);
    // Finished frames are kept even after an error.
    writer.finish()?;
    let (frames, ids) = summary?;
    status(format!("{} boxes in {frames} frames, {ids} tracks", boxes.len()));
    Ok(())
}

/// Returns the numbers of frames and tracks.
fn replay(
    boxes: &[MotBox],
    mut tracker: ByteTracker,
    args: &TrackArgs,
    writer: &mut MotWriter<Box<dyn Write>>,
) -> anyhow::Result<(u32, usize)> {
    let progress = Progress::new(boxes.len() as u64);
    let mut ids = std::collections::HashSet::new();
    let mut detections: Vec<TrackerDetection> = Vec::new();
    let mut now = boxes.first().map_or(1, |first| first.frame);
    let frames = boxes.last().map_or(0, |last| last.frame - now + 1);
    for of_frame in boxes.chunk_by(|a, b| a.frame == b.frame) {
        let frame = of_frame[0].frame;
        // Frames without detections; without tracks they change nothing.
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
    Ok((frames, ids.len()))
}

fn read(path: &Path) -> anyhow::Result<Vec<MotBox>> {
    if is_stdout(path) {
        return Ok(read_mot("stdin", io::stdin().lock())?);
    }
    let name = path.display().to_string();
    if path.is_dir() {
        refuse!("--detections, {name}: it is a folder; name a file");
    }
    let file = File::open(path).with_context(|| format!("cannot read the detections, {name}"))?;
    Ok(read_mot(&name, BufReader::new(file))?)
}
