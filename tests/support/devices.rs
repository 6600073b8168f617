//! Simulates the pipeline on several devices from the times of its stages.
//!
//! Each stage works on one frame at a time, in order, behind a bounded queue. A stage that has finished a frame keeps it while the
//! next queue is full. The backbone and the decoder exist once for each device, which take turns; all other stages exist
//! once. Every frame takes the same time in a stage.

use std::str::FromStr;

use anyhow::{Context, bail};
use serde::Serialize;

/// Frames that are simulated, and those before the count starts.
const FRAMES: usize = 3000;
const WARM_UP: usize = 1000;

/// The time of a frame in each stage, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StageMs {
    /// Reading a frame.
    pub source: f64,
    /// Pixels to the backbone's input.
    pub preprocess: f64,
    /// The image backbone.
    pub backbone: f64,
    /// The encoder-decoder.
    pub decode: f64,
    /// The tracker.
    pub track: f64,
    /// Drawing.
    pub draw: f64,
    /// All sinks together.
    pub sinks: f64,
}

impl StageMs {
    /// The time of the stage with this name.
    pub fn stage(&mut self, name: &str) -> Option<&mut f64> {
        Some(match name {
            "source" => &mut self.source,
            "preprocess" => &mut self.preprocess,
            "backbone" => &mut self.backbone,
            "decode" => &mut self.decode,
            "track" => &mut self.track,
            "draw" => &mut self.draw,
            "sinks" => &mut self.sinks,
            _ => return None,
        })
    }
}

impl FromStr for StageMs {
    type Err = anyhow::Error;

    /// Reads `preprocess=2,backbone=15.5`; stages that are not named take no time.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut times = Self::default();
        for item in text.split(',') {
            let (name, ms) = item.split_once('=').context("expected STAGE=MS, such as backbone=15")?;
            let Some(time) = times.stage(name) else {
                bail!("{name}: expected source, preprocess, backbone, decode, track, draw or sinks");
            };
            *time = ms
                .parse()
                .ok()
                .filter(|ms: &f64| ms.is_finite() && *ms >= 0.0)
                .with_context(|| format!("{name}={ms}: expected milliseconds, such as 15.5"))?;
        }
        Ok(times)
    }
}

/// A simulated run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Simulated {
    /// Devices that take turns.
    pub devices: usize,
    /// Frames per second, once the queues are full.
    pub fps: f64,
    /// The stage that is always busy.
    pub limit: &'static str,
    /// The share of the time in which the slower stage of a device works.
    pub device_busy: f64,
}

/// A stage, and how many of it take turns.
struct Station {
    name: &'static str,
    ms: f64,
    lanes: usize,
    /// Times when each frame is taken and left.
    taken: Vec<f64>,
    left: Vec<f64>,
}

/// Simulates the pipeline of `devices` devices with queues of `depth` frames.
///
/// # Panics
/// If there is no device or no room in a queue.
pub fn simulate(times: &StageMs, devices: usize, depth: usize) -> Simulated {
    assert!(devices > 0 && depth > 0, "a pipeline has a device and queues");
    let station = |name, ms, lanes| Station { name, ms, lanes, taken: Vec::new(), left: Vec::new() };
    let mut stations = vec![
        station("source", times.source, 1),
        station("preprocess", times.preprocess, 1),
        station("backbone", times.backbone, devices),
    ];
    // The tracker of one device is on the thread of its decoder.
    if devices == 1 {
        stations.push(station("decode", times.decode + times.track, 1));
    } else {
        stations.push(station("decode", times.decode, devices));
        stations.push(station("track", times.track, 1));
    }
    if times.draw > 0.0 {
        stations.push(station("draw", times.draw, 1));
    }
    stations.push(station("sinks", times.sinks, 1));
    for frame in 0..FRAMES {
        let before = |times: &[f64], frames: usize| match frame.checked_sub(frames) {
            Some(earlier) => times[earlier],
            None => 0.0,
        };
        let mut entered = 0.0;
        for place in 0..stations.len() {
            let Station { ms, lanes, left, .. } = &stations[place];
            let taken = f64::max(entered, before(left, *lanes));
            // There is room in the next queue once the frame that was there first is taken.
            let room = stations.get(place + 1).map_or(0.0, |next| before(&next.taken, depth * next.lanes));
            entered = f64::max(taken + ms, room);
            stations[place].taken.push(taken);
            stations[place].left.push(entered);
        }
    }
    let ends = &stations[stations.len() - 1].left;
    let fps = (FRAMES - 1 - WARM_UP) as f64 / (ends[FRAMES - 1] - ends[WARM_UP]) * 1e3;
    let share = |station: &Station| station.ms / station.lanes as f64;
    let slowest = stations.iter().max_by(|a, b| share(a).total_cmp(&share(b)));
    let limit = slowest.map_or("", |station| station.name);
    let device_busy = fps * f64::max(times.backbone, times.decode) / devices as f64 / 1e3;
    Simulated { devices, fps, limit, device_busy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_stage_sets_the_rate() {
        let times: StageMs =
            "source=1,preprocess=2,backbone=20,decode=8,track=1,draw=4,sinks=3".parse().expect("valid");
        // devices, frames per second, limit
        let cases = [
            (1, 50.0, "backbone"),
            (2, 100.0, "backbone"),
            (4, 200.0, "backbone"),
            (5, 250.0, "draw"),
            (8, 250.0, "draw"),
        ];
        for (devices, fps, limit) in cases {
            let found = simulate(&times, devices, 2);
            assert!((found.fps / fps - 1.0).abs() < 0.01, "{found:?}, expected {fps}");
            // Of two stages that are as slow, either.
            assert!(found.limit == limit || devices == 5, "{found:?}, expected {limit}");
        }
        let tracked: StageMs = "backbone=10,decode=9,track=4".parse().expect("valid");
        assert_eq!(simulate(&tracked, 1, 2).limit, "decode");
        assert!((simulate(&tracked, 1, 1).fps - 1000.0 / 13.0).abs() < 0.5);
    }

    #[test]
    fn times_of_unknown_stages_are_refused() {
        for (text, words) in [
            ("backbon=1", "expected source, preprocess"),
            ("backbone", "STAGE=MS"),
            ("backbone=-1", "expected milliseconds"),
            ("backbone=1,decode=x", "decode=x"),
        ] {
            let error = text.parse::<StageMs>().expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
