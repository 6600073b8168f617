//! `bench track`: the time of a tracker update, for increasing numbers of objects.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use ocelli::BoundingBox;
use ocelli::tracking::{ByteTracker, TrackerDetection};
use ocelli_benchmarks::machine::Machine;
use ocelli_benchmarks::quantiles::Quantiles;
use ocelli_cli::{self as cli, LogArgs, TrackerArgs, interrupted};
use serde::{Deserialize, Serialize};

use super::lines::Lines;

const PEER: &str = include_str!("../../../tracking/peer.py");

/// Measures the time of a tracker update and writes JSON lines, one per number of objects.
///
/// The area grows with the number of objects, so that their density is constant. One detection in twenty is missed, and as
/// many false positives are added.
#[derive(clap::Args)]
pub struct Arguments {
    /// Numbers of objects
    #[arg(long, num_args = 1.., default_values_t = [10, 50, 500], value_name = "N")]
    objects: Vec<usize>,
    /// Measured frames per number of objects
    #[arg(long, default_value_t = 1000, value_name = "N")]
    frames: usize,
    /// Warm-up frames
    #[arg(long, default_value_t = 50, value_name = "N")]
    warm_up: usize,
    /// Python with the package `trackers` from PyPI, whose ByteTrack is measured on the same frames
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// Append the lines to a file in this folder as well
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    tracker: TrackerArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Serialize)]
struct Line<'a> {
    program: &'static str,
    objects: usize,
    update_us: Quantiles,
    tracks_per_frame: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<Peer>,
    machine: &'a Machine,
}

#[derive(Serialize)]
struct Peer {
    name: String,
    update_us: Quantiles,
    tracks_per_frame: f64,
    /// Its median divided by ours.
    ratio: f64,
}

/// The output of the peer's script.
#[derive(Deserialize)]
struct PeerReport {
    name: String,
    times_us: Vec<f64>,
    tracks: usize,
}

pub fn run(args: &Arguments) -> anyhow::Result<()> {
    if args.frames == 0 {
        return Err(cli::usage("--frames is 0: expected at least 1"));
    }
    let options = args.tracker.options()?;
    let lines = Lines::new("track", args.output.as_deref())?;
    for &objects in &args.objects {
        let frames = walk(objects, args.warm_up + args.frames);
        let mut tracker = ByteTracker::new(options)?;
        let mut times = Vec::with_capacity(args.frames);
        let mut tracks = 0;
        for (number, detections) in frames.iter().enumerate() {
            interrupted()?;
            let start = Instant::now();
            let shown = tracker.update(detections, 1.0).len();
            let elapsed = start.elapsed();
            if number >= args.warm_up {
                times.push(elapsed.as_secs_f64() * 1e6);
                tracks += shown;
            }
        }
        let update_us = Quantiles::of(times);
        let peer = match &args.peer {
            Some(python) => Some(measure_peer(python, &frames, args, update_us.p50)?),
            None => None,
        };
        let tracks_per_frame = tracks as f64 / args.frames as f64;
        let line = Line {
            program: "bench track",
            objects,
            update_us,
            tracks_per_frame,
            peer,
            machine: &lines.machine,
        };
        lines.write(&line)?;
    }
    Ok(())
}

fn measure_peer(
    python: &PathBuf,
    frames: &[Vec<TrackerDetection>],
    args: &Arguments,
    our_median_us: f64,
) -> anyhow::Result<Peer> {
    let mut child = Command::new(python)
        .args(["-c", PEER, &args.warm_up.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run the peer, {}", python.display()))?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    for frame in frames {
        let row = |one: &TrackerDetection| {
            let [x1, y1, x2, y2] = one.bbox.to_xyxy();
            [x1, y1, x2, y2, one.score]
        };
        let rows: Vec<_> = frame.iter().map(row).collect();
        writeln!(stdin, "{}", serde_json::to_string(&rows)?)?;
    }
    drop(stdin);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "the peer failed, {}: {}; expected a Python with the package trackers",
            python.display(),
            output.status
        );
    }
    let report: PeerReport = serde_json::from_slice(&output.stdout)?;
    let tracks_per_frame = report.tracks as f64 / report.times_us.len().max(1) as f64;
    let update_us = Quantiles::of(report.times_us);
    let ratio = update_us.p50 / our_median_us;
    Ok(Peer { name: report.name, update_us, tracks_per_frame, ratio })
}

/// Frames of objects that move back and forth.
fn walk(objects: usize, frames: usize) -> Vec<Vec<TrackerDetection>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut unit = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    // Fifty objects in a full-HD frame.
    let scale = (objects as f32 / 50.0).sqrt();
    let (width, height) = (1920.0 * scale, 1080.0 * scale);
    let mut walkers: Vec<[f32; 6]> = (0..objects)
        .map(|_| {
            let side = 50.0 + 100.0 * unit();
            let centre = [unit() * width, unit() * height];
            [centre[0], centre[1], 6.0 * unit() - 3.0, 4.0 * unit() - 2.0, side, 0.6 + 0.35 * unit()]
        })
        .collect();
    let mut frame = || {
        let mut detections = Vec::with_capacity(objects + 8);
        let mut add = |x: f32, y: f32, side: f32, score: f32| {
            let bbox = BoundingBox::from_cxcywh([x, y, 0.6 * side, side]);
            detections.push(TrackerDetection { bbox, score, class_id: 0 });
        };
        for [x, y, dx, dy, side, score] in &mut walkers {
            (*x, *y) = (*x + *dx, *y + *dy);
            if !(0.0..width).contains(x) {
                *dx = -*dx;
            }
            if !(0.0..height).contains(y) {
                *dy = -*dy;
            }
            let mut jitter = || 0.04 * *side * (unit() - 0.5);
            let (sx, sy, ss) = (jitter(), jitter(), jitter());
            if unit() > 0.05 {
                add(*x + sx, *y + sy, *side + ss, *score - 0.3 * unit() * unit());
            }
            if unit() < 0.05 {
                add(unit() * width, unit() * height, 50.0 + 100.0 * unit(), 0.1 + 0.6 * unit());
            }
        }
        detections
    };
    (0..frames).map(|_| frame()).collect()
}
