//! The motion gate: the detector runs on frames with motion only.

use std::time::Duration;

use ocelli_tracking::is_inside;
use serde::{Deserialize, Serialize};

use crate::frame_view::FrameView;

/// Cells of the grid in each direction, at most, and the least pixels of a cell.
const GRID: (usize, usize) = (64, 36);
const LEAST_SIDE: usize = 10;
/// A cell has changed if it differs by this many levels of luma, and by this many times its own noise.
const LEAST_CHANGE: f32 = 4.0;
const NOISES: f32 = 5.0;
/// The rate at which the estimate of the noise follows, in levels a frame.
const NOISE_STEP: f32 = 0.08;
/// A cell that differs by this many times as much has motion, without others around it.
const STRONG: f32 = 3.0;

/// Runs the detector on frames with motion only.
///
/// A frame is compared with the last one that the detector looked at, on a grid of at most 64 × 36 cells of luma. A change of the light
/// that all cells share does not count, and a cell that always changes (leaves, rain, a flickering lamp) has to change by more
/// than it usually does. A change that is slow, or too small for that, is found by the look after [`interval`](Self::interval).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct MotionGate {
    /// The detector runs on a frame without motion if this time, which is not zero, has passed since it last ran.
    pub interval: Duration,
    /// Regions where motion does not count, for each source by its number: polygons with points as shares of the frame's
    /// width and height.
    pub ignored: Vec<Vec<Vec<[f32; 2]>>>,
}

impl Default for MotionGate {
    /// At least one detection every ten seconds, and no ignored regions.
    fn default() -> Self {
        Self { interval: Duration::from_secs(10), ignored: Vec::new() }
    }
}

impl MotionGate {
    /// A gate with this interval.
    pub fn new(interval: Duration) -> Self {
        Self { interval, ..Self::default() }
    }
}

/// Watches the frames of one source.
#[derive(Debug, Default)]
pub(super) struct MotionWatch {
    interval: Duration,
    regions: Vec<Vec<[f32; 2]>>,
    /// Size of the frames, and the cells of the grid in each direction.
    size: (u32, u32),
    grid: (usize, usize),
    ignored: Vec<bool>,
    cells: Vec<f32>,
    previous: Vec<f32>,
    /// The cells of the frame that the detector looked at last, and when it was.
    looked_at: Option<(Vec<f32>, Duration)>,
    /// The usual difference of a cell from one frame to the next: its median.
    noise: Vec<f32>,
    differences: Vec<f32>,
    sorted: Vec<f32>,
}

impl MotionWatch {
    pub(super) fn new(gate: &MotionGate, source: usize) -> Self {
        Self {
            interval: gate.interval,
            regions: gate.ignored.get(source).cloned().unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Starts anew with frames of another size.
    fn resize(&mut self, (width, height): (u32, u32)) {
        let cells = |side: u32, most: usize| (side as usize / LEAST_SIDE).clamp(1, most);
        let (columns, rows) = (cells(width, GRID.0), cells(height, GRID.1));
        let centre = |cell: usize| {
            let (x, y) = ((cell % columns) as f32, (cell / columns) as f32);
            [(x + 0.5) / columns as f32, (y + 0.5) / rows as f32]
        };
        let is_ignored = |cell| self.regions.iter().any(|region| is_inside(region, centre(cell)));
        self.ignored = (0..columns * rows).map(is_ignored).collect();
        self.noise = vec![0.0; columns * rows];
        (self.size, self.grid, self.looked_at) = ((width, height), (columns, rows), None);
        self.cells.clear();
        self.previous.clear();
    }

    /// The detector did not look at the frame after all.
    pub(super) fn forget(&mut self) {
        self.looked_at = None;
    }

    /// `true` if the detector has to look at this frame; `is_due` if it would look at a frame with motion.
    pub(super) fn look(&mut self, view: &FrameView<'_>, time: Duration, is_due: bool) -> bool {
        if self.size != (view.width, view.height) {
            self.resize((view.width, view.height));
        }
        std::mem::swap(&mut self.cells, &mut self.previous);
        view.mean_lumas(self.grid, &mut self.cells);
        if self.previous.len() == self.cells.len() {
            differences(&self.cells, &self.previous, &mut self.differences, &mut self.sorted);
            for (noise, difference) in self.noise.iter_mut().zip(&self.differences) {
                // A median: motion that is there for less than half of the time does not change it.
                *noise =
                    if *difference > *noise { *noise + NOISE_STEP } else { (*noise - NOISE_STEP).max(0.0) };
            }
        }
        let must = match &self.looked_at {
            Some((cells, at)) => {
                differences(&self.cells, cells, &mut self.differences, &mut self.sorted);
                time.saturating_sub(*at) >= self.interval || self.has_motion()
            }
            None => true,
        };
        if must && is_due {
            let (cells, at) = self.looked_at.get_or_insert_default();
            cells.clone_from(&self.cells);
            *at = time;
        }
        must
    }

    /// A cell and two around it have changed, or one has by more. Rain changes single cells.
    fn has_motion(&self) -> bool {
        let least = |cell: usize| LEAST_CHANGE.max(NOISES * self.noise[cell]);
        let share = |cell: usize| if self.ignored[cell] { 0.0 } else { self.differences[cell] / least(cell) };
        let (columns, rows) = self.grid;
        let changed_around = |cell: usize| {
            let (x, y) = (cell % columns, cell / columns);
            let near = |at: usize, count: usize| at.saturating_sub(1)..(at + 2).min(count);
            let around = near(y, rows).flat_map(|y| near(x, columns).map(move |x| y * columns + x));
            around.filter(|other| *other != cell && share(*other) > 1.0).count()
        };
        (0..columns * rows).any(|cell| {
            let own = share(cell);
            own > STRONG || (own > 1.0 && changed_around(cell) >= 2)
        })
    }
}

/// Computes how much each cell differs, without the change that half of the cells exceed.
fn differences(now: &[f32], before: &[f32], differences: &mut Vec<f32>, sorted: &mut Vec<f32>) {
    // Light scales the luma, so the shared change is a ratio.
    sorted.clear();
    sorted.extend(now.iter().zip(before).map(|(now, before)| (now + 8.0) / (before + 8.0)));
    let middle = sorted.len() / 2;
    let (_, ratio, _) = sorted.select_nth_unstable_by(middle, f32::total_cmp);
    let ratio = *ratio;
    differences.clear();
    differences
        .extend(now.iter().zip(before).map(|(now, before)| (now + 8.0 - ratio * (before + 8.0)).abs()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame_view::PixelFormat;

    const SIZE: (usize, usize) = (320, 180);

    /// Numbers from -1 to 1 that look random.
    fn random(seed: u64) -> f32 {
        let mut value = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x5851_f42d_4c95_7f2d);
        value ^= value >> 31;
        value = value.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (value >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    fn view(data: &[u8]) -> FrameView<'_> {
        let (width, height) = (SIZE.0 as u32, SIZE.1 as u32);
        FrameView {
            data,
            width,
            height,
            stride: SIZE.0,
            format: PixelFormat::Gray8,
            timestamp: Duration::ZERO,
        }
    }

    /// The share of frames that are looked at, and the frames between the first frame with a box and the first look since.
    fn looks(frames: usize, interval: u64, pixel: impl Fn(usize, usize, usize) -> f32) -> (f64, Vec<usize>) {
        let gate = MotionGate::new(Duration::from_secs(interval));
        let mut watch = MotionWatch::new(&gate, 0);
        let mut looked = Vec::new();
        for frame in 0..frames {
            let noise = |i: usize| 3.0 * random((frame * 57_600 + i) as u64);
            let data: Vec<u8> = (0..SIZE.0 * SIZE.1)
                .map(|i| (pixel(frame, i % SIZE.0, i / SIZE.0) + noise(i)).clamp(0.0, 255.0) as u8)
                .collect();
            let view = view(&data);
            if watch.look(&view, Duration::from_millis(40 * frame as u64), true) {
                looked.push(frame);
            }
        }
        (looked.len() as f64 / frames as f64, looked)
    }

    fn scene(x: usize, y: usize) -> f32 {
        80.0 + 60.0 * ((x / 20 + y / 15) % 2) as f32
    }

    #[test]
    fn still_scenes_are_skipped_and_motion_is_not() {
        let rain = |frame: usize, x: usize, y: usize| {
            let drop = random((frame * 640 + x) as u64) > 0.97 && (y + 31 * frame) % 60 < 12;
            scene(x, y) + if drop { 50.0 } else { 0.0 }
        };
        let flicker = |frame: usize, x: usize, y: usize| scene(x, y) * (1.0 + 0.06 * (frame % 3) as f32);
        let lamp = |frame: usize, x: usize, y: usize| {
            scene(x, y) + if x < 40 && y < 40 && frame.is_multiple_of(2) { 40.0 } else { 0.0 }
        };
        let dusk = |frame: usize, x: usize, y: usize| scene(x, y) * (1.0 - 0.0015 * frame as f32);
        let moving = |frame: usize, x: usize, y: usize| {
            let left = 3 * (frame % 90);
            if (left..left + 24).contains(&x) && (60..100).contains(&y) { 200.0 } else { scene(x, y) }
        };
        let mut failures = Vec::new();
        for (name, pixel, least, most) in [
            ("still", &(|_: usize, x, y| scene(x, y)) as &dyn Fn(usize, usize, usize) -> f32, 0.0, 0.02),
            ("flicker", &flicker, 0.0, 0.02),
            ("a lamp", &lamp, 0.0, 0.6),
            ("rain", &rain, 0.0, 0.7),
            ("dusk", &dusk, 0.0, 0.05),
            ("moving", &moving, 0.9, 1.0),
        ] {
            let (share, _) = looks(250, 10, pixel);
            if share < least || share > most {
                failures.push(format!("{name}: {share} of the frames are looked at"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn a_slow_entrant_is_seen() {
        // Half a pixel a frame, over the edge of the image, at dusk.
        let entrant = |frame: usize, x: usize, y: usize| {
            let right = frame.saturating_sub(100) / 2;
            let light = 1.0 - 0.0005 * frame as f32;
            light * if x < right && (60..110).contains(&y) { 210.0 } else { scene(x, y) }
        };
        let (share, looked) = looks(250, 60, entrant);
        let first = looked.iter().find(|frame| **frame > 100).copied().unwrap_or(usize::MAX);
        assert!(first < 120 && share < 0.7, "first look at {first}, {share} of all");
    }

    #[test]
    fn regions_and_the_interval_count() {
        let half = vec![[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]];
        let gate = MotionGate { ignored: vec![vec![half]], ..MotionGate::new(Duration::from_secs(2)) };
        for (left, expected) in [(20, 2..=2), (200, 81..=100)] {
            let mut watch = MotionWatch::new(&gate, 0);
            let mut count = 0;
            for frame in 0..100usize {
                let inside =
                    |i: usize| (left + frame % 8 * 10..left + frame % 8 * 10 + 10).contains(&(i % SIZE.0));
                let data: Vec<u8> = (0..SIZE.0 * SIZE.1).map(|i| if inside(i) { 220 } else { 40 }).collect();
                let view = view(&data);
                let time = Duration::from_millis(40 * frame as u64);
                count += usize::from(watch.look(&view, time, true));
            }
            assert!(expected.contains(&count), "{left}: {count} looks");
        }
    }
}
