//! A drawn video: pictograms that move, grow, cross, occlude each other, leave and enter.

use std::f64::consts::TAU;
use std::sync::OnceLock;
use std::time::Duration;

use crate::scenes::{Color, Pixels, Random, Sprite, background, blend, check_size, pictogram, vocabulary};
use ocelli::image::Image;
use ocelli::source::{FRAME_RATES, Source, SourceInfo};
use ocelli::{Error, Frame, Result};

/// A drawn video as a [`Source`], with its ground truth.
///
/// A frame depends on the seed and its index only. Half of the pictograms move through the image for the whole video; the
/// others cross it repeatedly, with a new id each time.
#[derive(Debug)]
pub struct MovingScene {
    info: SourceInfo,
    width: u32,
    height: u32,
    frame_rate: f64,
    frames: u64,
    next: u64,
    pub(super) background: Vec<u8>,
    /// Indices into the vocabulary, by class id.
    label_indices: Vec<usize>,
    actors: Vec<Actor>,
    /// The seed of the colours, if every pictogram has its own.
    colours: Option<u64>,
    /// The pictogram of each class in decreasing sizes, made when it is first needed.
    sizes: Vec<OnceLock<Vec<Sprite>>>,
}

/// A moving pictogram.
#[derive(Debug)]
enum Actor {
    /// Moves on a closed path that never leaves the image for long.
    Wanderer {
        class_id: usize,
        mirrored: bool,
        /// Period in seconds and phase of the horizontal position, the vertical position, the size and the rotation.
        swings: [(f64, f64); 4],
    },
    /// Crosses the image repeatedly.
    Passer {
        seed: u64,
        /// The time between two entries, and the time of a crossing, in seconds.
        period: f64,
        duration: f64,
        /// The elapsed part of the period when the video starts, in seconds.
        start: f64,
        first_class: usize,
    },
}

/// The position of a pictogram in a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pose {
    pub(super) id: u64,
    pub(super) class_id: usize,
    /// In pixels.
    centre: [f64; 2],
    /// The longer side in pixels.
    side: f64,
    degrees: f64,
    mirrored: bool,
}

/// The factor between the sizes of stored pictograms.
const SHRINK: f64 = std::f64::consts::FRAC_1_SQRT_2;
const SIZE_COUNT: usize = 9;

impl MovingScene {
    /// Makes a video of `frames` frames with pictograms of these labels. The class id of a label is its index.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for a size outside 32 to 8192, no labels, a label
    /// that is not in the [`vocabulary`], or a frame rate that is not one of [`FRAME_RATES`].
    pub fn new(
        seed: u64,
        labels: &[impl AsRef<str>],
        width: u32,
        height: u32,
        frames: u64,
        frame_rate: f64,
    ) -> Result<Self> {
        check_size(width, height)?;
        let refused = |why: String| Err(Error::invalid_argument(format!("cannot draw a video: {why}")));
        if !FRAME_RATES.contains(&frame_rate) {
            let (least, most) = (FRAME_RATES.start(), FRAME_RATES.end());
            return refused(format!("frame_rate is {frame_rate}: expected {least} to {most}"));
        }
        let label_indices = pictogram::indices_of(labels)?;
        if label_indices.is_empty() {
            return refused("labels is empty: expected at least one label".into());
        }
        let mut random = Random::new(seed, u64::MAX);
        let mut pixels = Pixels::new(width, height);
        background::draw(&mut random, &mut pixels);
        let count = (label_indices.len() + 4).clamp(6, 10);
        let actors =
            (0..count).map(|slot| Actor::new(&mut random, slot, count, label_indices.len())).collect();
        let mut info = SourceInfo::default();
        info.name = "drawn scene".into();
        info.size = Some((width, height));
        info.frame_rate = Some(frame_rate);
        info.frame_count = Some(frames);
        Ok(Self {
            info,
            width,
            height,
            frame_rate,
            frames,
            next: 0,
            background: pixels.data,
            sizes: label_indices.iter().map(|_| OnceLock::new()).collect(),
            label_indices,
            actors,
            colours: None,
        })
    }

    /// Gives every pictogram a colour of its own, so that those of one class can be told apart.
    #[must_use]
    pub fn with_colours(mut self, seed: u64) -> Self {
        self.colours = Some(seed);
        self
    }

    /// Width and height in pixels.
    pub fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// The label of a class.
    pub(super) fn label(&self, class_id: usize) -> &'static str {
        vocabulary()[self.label_indices[class_id]]
    }

    /// Draws the frame with this index, from 0.
    pub fn image(&self, index: u64) -> Image {
        let mut data = Vec::new();
        self.draw_into(index, &mut data);
        Image::from_rgb8(self.width, self.height, data)
            .expect("the background has three bytes for each pixel")
    }

    fn draw_into(&self, index: u64, data: &mut Vec<u8>) {
        data.clear();
        data.extend_from_slice(&self.background);
        let width = i64::from(self.width);
        let image = [0, 0, width, i64::from(self.height)];
        for pose in self.poses(index) {
            let gains = self.gains(pose.id);
            self.rasterize(&pose, image, |x, y, [red, green, blue, opacity]| {
                let at = (y * width + x) as usize * 3;
                let color = [red * gains[0], green * gains[1], blue * gains[2], opacity];
                blend(&mut data[at..at + 3], color);
            });
        }
    }

    /// The factors of a pictogram's colours.
    fn gains(&self, id: u64) -> [f32; 3] {
        let Some(seed) = self.colours else { return [1.0; 3] };
        let mut random = Random::new(seed, id);
        std::array::from_fn(|_| random.uniform(0.75, 1.0) as f32)
    }

    /// The positions in a frame, the farthest pictogram first.
    pub(super) fn poses(&self, index: u64) -> impl Iterator<Item = Pose> {
        let seconds = index as f64 / self.frame_rate;
        let (width, height) = (f64::from(self.width), f64::from(self.height));
        self.actors.iter().zip(0u64..).filter_map(move |(actor, slot)| {
            let (round, mut pose) = actor.pose(seconds, width, height, self.label_indices.len())?;
            pose.id = 1 + slot + self.actors.len() as u64 * round;
            Some(pose)
        })
    }

    /// Calls `pixel` for every pixel inside `area` [left, top, right, bottom] that a pictogram covers, with its colour.
    pub(super) fn rasterize(&self, pose: &Pose, area: [i64; 4], mut pixel: impl FnMut(i64, i64, Color)) {
        let sprite = self.sprite(pose);
        let scale = sprite.width.max(sprite.height) as f64 / pose.side;
        let (sin, cos) = libm::sincos(pose.degrees.to_radians());
        let [half_width, half_height] = [sprite.width, sprite.height].map(|s| 0.5 * s as f64 / scale);
        let reach = [
            (half_width * cos).abs() + (half_height * sin).abs() + 1.0,
            (half_width * sin).abs() + (half_height * cos).abs() + 1.0,
        ];
        let [cx, cy] = pose.centre;
        let left = ((cx - reach[0]).floor() as i64).max(area[0]);
        let right = ((cx + reach[0]).ceil() as i64).min(area[2]);
        let top = ((cy - reach[1]).floor() as i64).max(area[1]);
        let bottom = ((cy + reach[1]).ceil() as i64).min(area[3]);
        let flip = if pose.mirrored { -1.0 } else { 1.0 };
        let across = [(flip * cos * scale) as f32, (sin * scale) as f32];
        let down = [(-flip * sin * scale) as f32, (cos * scale) as f32];
        let middle = [0.5 * sprite.width as f32, 0.5 * sprite.height as f32];
        for y in top..bottom {
            let dy = (y as f64 + 0.5 - cy) as f32;
            let (u, v) = (middle[0] + down[0] * dy, middle[1] + down[1] * dy);
            for x in left..right {
                let dx = (x as f64 + 0.5 - cx) as f32;
                let color = sprite.sample(u + across[0] * dx, v + across[1] * dx);
                if color[3] > 0.0 {
                    pixel(x, y, color);
                }
            }
        }
    }

    /// The smallest stored size that is not smaller than the drawn size.
    fn sprite(&self, pose: &Pose) -> &Sprite {
        let sizes = self.sizes[pose.class_id].get_or_init(|| {
            let original = pictogram::sprite(self.label_indices[pose.class_id]);
            let mut shrink = 1.0;
            let sizes = (0..SIZE_COUNT).map(|_| {
                let scaled = |side: usize| ((side as f64 * shrink).round() as usize).max(1);
                let sprite = original.resized(scaled(original.width), scaled(original.height));
                shrink *= SHRINK;
                sprite
            });
            sizes.collect()
        });
        let fits = |sprite: &&Sprite| sprite.width.max(sprite.height) as f64 >= pose.side;
        sizes.iter().rev().find(fits).unwrap_or(&sizes[0])
    }
}

impl Actor {
    fn new(random: &mut Random, slot: usize, count: usize, classes: usize) -> Self {
        if slot.is_multiple_of(2) {
            let mut swing = |low: f64, high: f64| (random.uniform(low, high), random.uniform(0.0, TAU));
            let swings = [swing(8.0, 20.0), swing(8.0, 20.0), swing(5.0, 12.0), swing(2.0, 6.0)];
            Self::Wanderer { class_id: slot / 2 % classes, mirrored: random.chance(0.5), swings }
        } else {
            let duration = random.uniform(4.0, 8.0);
            let period = duration + random.uniform(0.5, 2.0);
            let start = random.uniform(0.0, period);
            let first_class = count.div_ceil(2) + slot / 2;
            Self::Passer { seed: random.next(), period, duration, start, first_class }
        }
    }

    /// The index of the crossing, and the position; `None` between two crossings.
    fn pose(&self, seconds: f64, width: f64, height: f64, classes: usize) -> Option<(u64, Pose)> {
        match *self {
            Self::Wanderer { class_id, mirrored, swings } => {
                let swing = |(period, phase)| libm::sin(TAU * seconds / period + phase);
                let [x, y, size, turn] = swings.map(swing);
                let centre = [width * (0.5 + 0.43 * x), height * (0.5 + 0.38 * y)];
                let side = width.min(height) * (0.28 + 0.1 * size);
                Some((0, Pose { id: 0, class_id, centre, side, degrees: 8.0 * turn, mirrored }))
            }
            Self::Passer { seed, period, duration, start, first_class } => {
                let clock = seconds + start;
                let round = (clock / period).floor();
                let progress = (clock - round * period) / duration;
                if progress >= 1.0 {
                    return None;
                }
                let round = round as u64;
                let mut random = Random::new(seed, round);
                let shorter = width.min(height);
                let (from, to) = (random.log_uniform(0.16, 0.4), random.log_uniform(0.16, 0.4));
                let side = shorter * from * libm::exp(progress * libm::log(to / from));
                let largest = shorter * from.max(to);
                let upright = random.chance(0.25);
                let backwards = random.chance(0.5);
                let along = if backwards { 1.0 - progress } else { progress };
                let (phase, waves) = (random.uniform(0.0, TAU), random.uniform(0.5, 1.5));
                let wave = libm::sin(TAU * progress * waves + phase);
                let lane = random.uniform(0.2, 0.8) + 0.06 * wave;
                // It is fully outside the image at both ends.
                let way = |length: f64| -0.6 * largest + along * (length + 1.2 * largest);
                let centre = if upright { [width * lane, way(height)] } else { [way(width), height * lane] };
                let class_id = (first_class + round as usize) % classes;
                let mirrored = random.chance(0.5);
                Some((round, Pose { id: 0, class_id, centre, side, degrees: 6.0 * wave, mirrored }))
            }
        }
    }
}

impl Source for MovingScene {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        if self.next >= self.frames {
            return Ok(false);
        }
        let mut data = std::mem::take(frame).image.into_rgb8();
        self.draw_into(self.next, &mut data);
        frame.image = Image::from_rgb8(self.width, self.height, data)?;
        frame.index = self.next;
        frame.time = Duration::try_from_secs_f64(self.next as f64 / self.frame_rate).unwrap_or(Duration::MAX);
        self.next += 1;
        Ok(true)
    }
}
