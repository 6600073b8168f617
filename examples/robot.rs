//! A robot that keeps a dog in the middle of its camera, in a world that the program draws.
//!
//! ```sh
//! cargo run --example robot
//! ```
//!
//! The camera takes 20 frames per second, three for each time that the controller runs. The pipeline drops those that it cannot
//! take ([`FramePolicy::Latest`]), results have the time stamp of their frame, and while the dog is behind the wall, its track is
//! lost and the camera goes on at the dog's last speed.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Duration;

use ocelli::tracking::{ByteTrackerOptions, Track, TrackState};
use ocelli::{
    Detector, FrameView, Image, Pipeline, PixelFormat, Prompts, Result,
    pipeline::{FramePolicy, StatsRecorder},
};

const FRAME_RATE: f64 = 20.0;
const FRAMES: u32 = 180;
/// The camera's view of the world, which is as high and goes on to the right.
const VIEW: (u32, u32) = (480, 360);
const FRAMES_PER_TURN: u32 = 3;

/// Pixels per second.
const DOG_SPEED: f64 = 60.0;
const DOG_START: f64 = 330.0;
/// Left edge and width.
const WALL: (f64, f64) = (540.0, 150.0);

fn main() -> Result<()> {
    let park = Image::open(concat!(env!("CARGO_MANIFEST_DIR"), "/demos/scenes/park.png"))?;
    // A lost track is reported for a second and a half, where it is predicted to be.
    let tracker = ByteTrackerOptions { coast_frames: 30, ..ByteTrackerOptions::default() };
    let stats = StatsRecorder::new();
    let pipeline = Pipeline::builder(Detector::builder().build()?, Prompts::new(["dog"])?)
        .with_tracker(tracker)
        .with_policy(FramePolicy::Latest)
        .with_frame_rate(FRAME_RATE)
        .with_stats(stats.clone())
        .build()?;

    let mut controller = Controller::default();
    let (mut camera, mut last_distance) = (0.0, f64::NAN);
    let mut pixels = vec![0; 3 * (VIEW.0 * VIEW.1) as usize];
    for frame in 1..=FRAMES {
        let now = f64::from(frame) / FRAME_RATE;
        camera += controller.speed / FRAME_RATE;
        let dog = DOG_START + DOG_SPEED * now;
        draw(&park, camera, dog, &mut pixels);
        pipeline.push(FrameView {
            data: &pixels,
            width: VIEW.0,
            height: VIEW.1,
            stride: 3 * VIEW.0 as usize,
            format: PixelFormat::Rgb8,
            timestamp: Duration::from_secs_f64(now),
        })?;
        if frame % FRAMES_PER_TURN == 0
            && let Some(outcome) = pipeline.recv()?
        {
            let age = now - outcome.time.as_secs_f64();
            let seen = controller.act(&outcome.tracks, age);
            last_distance = dog - camera - f64::from(VIEW.0) / 2.0;
            println!("{now:5.2} s, result of {age:.2} s ago: {seen}, the dog is {last_distance:4.0} px off");
        }
    }
    let seen = stats.snapshot();
    println!(
        "{} frames, {} dropped, lost in {} results",
        seen.frames_in, seen.frames_dropped, controller.lost
    );
    assert!(last_distance.abs() < 60.0, "the dog is {last_distance:.0} px from the middle");
    assert!(controller.lost > 0, "the dog was behind the wall");
    Ok(())
}

/// Turns the camera towards the dog: proportional and integral.
#[derive(Default)]
struct Controller {
    /// Pixels per second to the right.
    speed: f64,
    integral: f64,
    followed: Option<u64>,
    lost: u32,
}

impl Controller {
    fn act(&mut self, tracks: &[Track], age: f64) -> String {
        let followed = tracks.iter().find(|track| Some(track.id) == self.followed).or(tracks.first());
        let Some(track) = followed else {
            // Nothing to follow: the robot goes on as the dog did.
            self.speed = self.integral;
            self.lost += 1;
            return "no track".into();
        };
        self.followed = Some(track.id);
        // Where it is now: the frame is old.
        let velocity = f64::from(track.velocity[0]) * FRAME_RATE;
        let x = f64::from(track.bbox.x1 + track.bbox.x2) / 2.0 + velocity * age;
        let error = x - f64::from(VIEW.0) / 2.0;
        if track.state == TrackState::Lost {
            self.lost += 1;
            self.speed = self.integral;
        } else {
            self.integral += 0.15 * error;
            self.speed = self.integral + 1.5 * error;
        }
        format!("track {} {:?}", track.id, track.state)
    }
}

/// What the camera sees: a meadow, the dog of a drawn scene, and a wall in front of it.
fn draw(park: &Image, camera: f64, dog: f64, pixels: &mut [u8]) {
    // The dog's place in the scene.
    let (left, top, width, height) = (275, 385, 117, 130);
    let row = 3 * park.width() as usize;
    let (dog_x, dog_y) = ((dog - camera) as i64 - width / 2, 180);
    let wall = WALL.0 - camera..WALL.0 + WALL.1 - camera;
    for (at, pixel) in pixels.chunks_exact_mut(3).enumerate() {
        let (x, y) = ((at % VIEW.0 as usize) as i64, (at / VIEW.0 as usize) as i64);
        let (in_x, in_y) = (x - dog_x, y - dog_y);
        if wall.contains(&(x as f64)) && y > 100 {
            pixel.copy_from_slice(&[120, 110, 110]);
        } else if (0..width).contains(&in_x) && (0..height).contains(&in_y) {
            let from = (top + in_y) as usize * row + 3 * (left + in_x) as usize;
            pixel.copy_from_slice(&park.as_rgb8()[from..from + 3]);
        } else {
            pixel.copy_from_slice(if y < 150 { &[170, 170, 240] } else { &[110, 205, 60] });
        }
    }
}
