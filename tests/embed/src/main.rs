//! A robot node: a camera delivers frames in its own memory, the pipeline detects and tracks, and a planner acts on the
//! newest results.
//!
//! The camera is a thread that pans over a drawn park. The program checks its results, so running it is a test: its exit
//! status is 0 if everything is as expected.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use ocelli::tracking::{ByteTrackerOptions, MatchClasses};
use ocelli::{
    Cancellation, Detector, FrameView, Image, Pipeline, PixelFormat, Prompts,
    pipeline::{FrameOutcome, FramePolicy, StatsRecorder},
};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const FRAMES: u64 = 40;
/// The frame interval: 20 frames per second.
const PERIOD: Duration = Duration::from_millis(50);
const SIZE: (u32, u32) = (640, 480);
/// The camera's rows are padded to a multiple of 64 bytes.
const STRIDE: usize = (SIZE.0 as usize * 3).next_multiple_of(64);

fn main() -> Result<()> {
    let scene = Image::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demos/scenes/park.png"))?;
    let prompts = Prompts::new(["dog", "bicycle", "person"])?;
    let (stats, cancellation) = (StatsRecorder::new(), Cancellation::new());
    let mut tracking = ByteTrackerOptions::default();
    tracking.match_classes = MatchClasses::Same;
    let pipeline = Pipeline::builder(Detector::builder().with_threads(1).build()?, prompts)
        .with_tracker(tracking)
        .with_policy(FramePolicy::Latest)
        .with_frame_rate(1.0 / PERIOD.as_secs_f64())
        .with_stats(stats.clone())
        .with_cancellation(cancellation.clone())
        .build()?;

    let mut planner = Planner::default();
    std::thread::scope(|scope| -> Result<()> {
        let camera = scope.spawn(|| camera(&scene, &pipeline));
        while !pipeline.is_ended() {
            // A planner has other work to do, so it polls.
            if let Some(outcome) = pipeline.recv_timeout(Duration::from_millis(20))? {
                planner.act(&outcome)?;
                pipeline.recycle(outcome);
            }
        }
        camera.join().map_err(|_| "the camera panicked")?
    })?;
    planner.check()?;

    let seen = stats.snapshot();
    expect(seen.frames_in == FRAMES, "every frame of the camera entered")?;
    expect(seen.frames_out + seen.frames_dropped == FRAMES, "every frame leaves or is dropped")?;
    expect(seen.latency_ms.n == seen.frames_out, "every frame's latency is measured")?;
    expect(pipeline.try_recv()?.is_none(), "nothing is left")?;

    // An emergency stop: pushing fails from now on.
    cancellation.cancel();
    let error =
        push(&pipeline, &[0; STRIDE * SIZE.1 as usize], Duration::ZERO).expect_err("it was cancelled");
    expect(error.kind() == ocelli::ErrorKind::Cancelled, "the error says why")?;
    println!(
        "{} of {FRAMES} frames, p50 of the latency {:.0} ms, {} detections, {} dogs tracked",
        seen.frames_out,
        seen.latency_ms.p50,
        seen.detections,
        planner.dogs.len()
    );
    Ok(())
}

/// Delivers frames at its own pace, whether or not they are processed in time.
fn camera(scene: &Image, pipeline: &Pipeline) -> Result<()> {
    // The driver's memory, which is reused for the next frame when `push` returns.
    let mut memory = vec![0; STRIDE * SIZE.1 as usize];
    let start = Instant::now();
    for index in 0..FRAMES {
        expose(scene, index, &mut memory);
        push(pipeline, &memory, stamp(index))?;
        std::thread::sleep((start + PERIOD * (index as u32 + 1)).saturating_duration_since(Instant::now()));
    }
    pipeline.close();
    Ok(())
}

fn push(pipeline: &Pipeline, memory: &[u8], timestamp: Duration) -> ocelli::Result<u64> {
    let (width, height) = SIZE;
    pipeline.push(FrameView {
        data: memory,
        width,
        height,
        stride: STRIDE,
        format: PixelFormat::Bgr8,
        timestamp,
    })
}

/// The robot's clock does not start at zero.
fn stamp(index: u64) -> Duration {
    Duration::from_secs(1_000) + PERIOD * index as u32
}

/// A frame of the camera: a crop of the scene in BGR, two pixels further right in each frame.
fn expose(scene: &Image, index: u64, memory: &mut [u8]) {
    let (width, left) = (scene.width() as usize, 2 * index as usize);
    let rows = memory.chunks_mut(STRIDE).zip(scene.as_rgb8().chunks_exact(width * 3));
    for (row, from) in rows {
        let pixels = row[..SIZE.0 as usize * 3].chunks_exact_mut(3);
        for (to, from) in pixels.zip(from[left * 3..].chunks_exact(3)) {
            to.copy_from_slice(&[from[2], from[1], from[0]]);
        }
    }
}

/// Acts on results; here it only records how the dogs move.
#[derive(Default)]
struct Planner {
    last: Option<(u64, Duration)>,
    frames: u64,
    /// Each dog's track id, and the number of frames in which it was tracked.
    dogs: Vec<(u64, u64)>,
    /// The sum of the dogs' horizontal speeds in pixels per frame, from the tenth frame on, and their count.
    speed: (f32, u32),
}

impl Planner {
    fn act(&mut self, outcome: &FrameOutcome) -> Result<()> {
        expect(outcome.time == stamp(outcome.index), "a result has its frame's time stamp")?;
        expect(self.last < Some((outcome.index, outcome.time)), "results arrive in order")?;
        self.last = Some((outcome.index, outcome.time));
        self.frames += 1;
        for track in outcome.tracks.iter().filter(|track| &*outcome.labels[track.class_id] == "dog") {
            match self.dogs.iter_mut().find(|(id, _)| *id == track.id) {
                Some((_, frames)) => *frames += 1,
                None => self.dogs.push((track.id, 1)),
            }
            if outcome.index >= 10 {
                self.speed = (self.speed.0 + track.velocity[0], self.speed.1 + 1);
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        expect(self.frames >= 3, "some frames are processed")?;
        expect(self.last.is_some_and(|(index, _)| index == FRAMES - 1), "the newest frame is never dropped")?;
        let steady = self.dogs.iter().filter(|(_, frames)| 2 * frames >= self.frames).count();
        expect(steady >= 1, "a dog keeps its track id while the camera moves")?;
        let speed = self.speed.0 / self.speed.1.max(1) as f32;
        // Two pixels per frame to the left; time stamps account for dropped frames.
        expect(
            (-3.0..=-1.0).contains(&speed),
            &format!("the dogs move by about -2 pixels per frame, found {speed}"),
        )
    }
}

fn expect(holds: bool, what: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(format!("expected: {what}").into()) }
}
