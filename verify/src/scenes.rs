//! Annotated scenes: pictograms that the built-in model knows, drawn on generated backgrounds.
//!
//! [`SceneGenerator`] draws images, [`MovingScene`] draws a video. Both need neither fonts nor files, and a seed gives the same
//! pixels on every machine. The distribution is that of the model's held-out scenes (`training/builtin/scenes.py`), whose
//! backgrounds, clutter and sizes are not in the training data.
//!
//! ```
//! use ocelli_verify::scenes::{SceneGenerator, SceneOptions};
//!
//! let generator = SceneGenerator::new(7, SceneOptions::default())?;
//! let scene = generator.scene(0);
//! assert_eq!((scene.image.width(), scene.image.height()), (448, 336));
//! for object in &scene.objects {
//!     assert_eq!(object.mask.bounding_box(), Some(object.bbox));
//! }
//! # Ok::<(), ocelli::Error>(())
//! ```

mod background;
mod clutter;
mod moving;
mod pictogram;
mod pixels;
mod random;
mod sprite;
#[cfg(test)]
mod tests;
mod truth;

use std::ops::RangeInclusive;

use ocelli_tracking::BoundingBox;

pub use moving::MovingScene;
pub(crate) use pictogram::indices_of;
pub use pictogram::vocabulary;
pub use truth::TruthBox;

use ocelli::{Error, Mask, Result, image::Image};
use pixels::{Pixels, blend};
pub(crate) use random::Random;
use sprite::{Color, Sprite, VISIBLE};

/// A pixel belongs to a pictogram if its opacity is above this.
const OPAQUE: f32 = 127.0 / 255.0;
/// The largest overlap of two pictograms, as a share of the smaller box.
const LARGEST_OVERLAP: f64 = 0.1;
/// Attempts to find a position for a pictogram.
const ATTEMPTS: u32 = 12;
/// The range of sides in pixels, from the smallest that shows a recognisable pictogram to the largest that is fast to draw.
const SIDES: RangeInclusive<u32> = 32..=8192;

/// An image and the objects in it.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The pixels.
    pub image: Image,
    /// The objects in drawing order: later ones cover earlier ones.
    pub objects: Vec<SceneObject>,
}

/// A pictogram of a scene.
#[derive(Clone, Debug)]
pub struct SceneObject {
    /// Its label, one of [`vocabulary`].
    pub label: &'static str,
    /// The bounding box of its visible part, in pixels.
    pub bbox: BoundingBox,
    /// The mask of its visible part, as large as the image and never empty.
    pub mask: Mask,
}

/// Options of scenes.
#[derive(Clone, Debug, PartialEq)]
pub struct SceneOptions {
    /// Width in pixels (448).
    pub width: u32,
    /// Height in pixels (336).
    pub height: u32,
    /// Number of pictograms, uniformly distributed (1 to 8). A scene may have fewer, because pictograms without a free
    /// position are left out.
    pub objects: RangeInclusive<u32>,
    /// Number of different labels (1 to 5).
    pub kinds: RangeInclusive<u32>,
    /// The share of images with changed brightness and noise (0.3).
    pub noisy: f64,
    /// The labels of the pictograms; all of [`vocabulary`] if empty.
    pub labels: Vec<String>,
    /// The longer sides of the pictograms in pixels, log-uniformly distributed; `None` for 0.14 to 0.5 of the scene's shorter side.
    pub sizes: Option<RangeInclusive<u32>>,
}

impl Default for SceneOptions {
    fn default() -> Self {
        Self {
            width: 448,
            height: 336,
            objects: 1..=8,
            kinds: 1..=5,
            noisy: 0.3,
            labels: Vec::new(),
            sizes: None,
        }
    }
}

/// Draws scenes. A scene depends on the seed and its index only.
#[derive(Clone, Debug)]
pub struct SceneGenerator {
    seed: u64,
    options: SceneOptions,
    /// Indices into the vocabulary.
    pictograms: Vec<usize>,
}

impl SceneGenerator {
    /// Makes a generator with these options.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) for a size outside 32 to 8192, an empty range, a
    /// share outside 0 to 1, or a label that is not in the [`vocabulary`].
    pub fn new(seed: u64, options: SceneOptions) -> Result<Self> {
        check_size(options.width, options.height)?;
        let refused = |what: String| Err(Error::invalid_argument(format!("cannot draw scenes, {what}")));
        for (name, range) in [("objects", &options.objects), ("kinds", &options.kinds)] {
            if range.is_empty() || (name == "kinds" && *range.start() == 0) {
                let expected = "a range that is not empty, with at least one kind";
                return refused(format!("{name} is {range:?}: expected {expected}"));
            }
        }
        if options.sizes.as_ref().is_some_and(|sizes| sizes.is_empty() || *sizes.start() == 0) {
            return refused(format!("sizes is {:?}: expected a range of at least 1 pixel", options.sizes));
        }
        if !(0.0..=1.0).contains(&options.noisy) {
            return refused(format!("noisy is {}: expected a share from 0 to 1", options.noisy));
        }
        let pictograms = if options.labels.is_empty() {
            (0..vocabulary().len()).collect()
        } else {
            indices_of(&options.labels)?
        };
        Ok(Self { seed, options, pictograms })
    }

    /// Draws the scene with this index.
    pub fn scene(&self, index: u64) -> Scene {
        let mut random = Random::new(self.seed, index);
        let SceneOptions { width, height, .. } = self.options;
        let mut pixels = Pixels::new(width, height);
        background::draw(&mut random, &mut pixels);
        let mut drawing = Drawing { pixels, owners: vec![0; (width * height) as usize], placed: Vec::new() };
        let kind_count = random.integer(self.options.kinds.clone()) as usize;
        let kinds = random.sample(&self.pictograms, kind_count);
        let side = f64::from(width.min(height));
        let (smallest, largest) = match &self.options.sizes {
            Some(sizes) => (f64::from(*sizes.start()), f64::from(*sizes.end())),
            None => (side * 0.14, side * 0.5),
        };
        for _ in 0..random.integer(self.options.objects.clone()) {
            let kind = kinds[random.below(kinds.len())];
            let size = random.log_uniform(smallest, largest) as u32;
            if let Some(sprite) = prepare(&mut random, pictogram::sprite(kind), size) {
                drawing.place(&mut random, &sprite, kind);
            }
        }
        if random.chance(self.options.noisy) {
            let (gain, spread) = (random.uniform(0.7, 1.15), random.uniform(0.0, 6.0));
            drawing.pixels.disturb(&mut random, gain as f32, spread as f32);
        }
        drawing.finish()
    }
}

/// Checks that the sides of an image are in range.
fn check_size(width: u32, height: u32) -> Result<()> {
    if SIDES.contains(&width) && SIDES.contains(&height) {
        return Ok(());
    }
    let (least, most) = (SIDES.start(), SIDES.end());
    ocelli_error::refuse!("cannot draw a scene of {width}x{height}: expected sides of {least} to {most}")
}

/// Scales a pictogram to `size`, mirrors and rotates it at random, and crops it to its clearly visible part.
fn prepare(random: &mut Random, pictogram: &Sprite, size: u32) -> Option<Sprite> {
    let ratio = f64::from(size) / pictogram.width.max(pictogram.height) as f64;
    let scaled = |side: usize| ((side as f64 * ratio) as usize).max(6);
    let mut sprite = pictogram.resized(scaled(pictogram.width), scaled(pictogram.height));
    if random.chance(0.5) {
        sprite = sprite.mirrored();
    }
    if random.chance(0.5) {
        sprite = sprite.turned(random.uniform(-20.0, 20.0));
    }
    sprite.trimmed(VISIBLE)
}

/// An image with the pictograms that were drawn on it.
struct Drawing {
    pixels: Pixels,
    /// For each pixel, the pictogram that it shows: an index into `placed` plus 1, or 0 for the background.
    owners: Vec<u32>,
    placed: Vec<Placed>,
}

struct Placed {
    kind: usize,
    /// Left, top, right, bottom, clipped to the image.
    area: [i64; 4],
}

impl Drawing {
    /// Draws a pictogram at a position where it covers little of the others. Up to an eighth of it may be outside the image.
    fn place(&mut self, random: &mut Random, sprite: &Sprite, kind: usize) {
        let [width, height] = [self.pixels.width, self.pixels.height].map(i64::from);
        let [w, h] = [sprite.width, sprite.height].map(|side| side as i64);
        // Both limits are rounded down, as in the reference.
        let range = |side: i64, whole: i64| ((-side).div_euclid(8), whole - side + side.div_euclid(8));
        let ((left, right), (above, below)) = (range(w, width), range(h, height));
        if left > right || above > below {
            return;
        }
        for _ in 0..ATTEMPTS {
            let (x, y) = (random.between(left, right), random.between(above, below));
            let area = [x.max(0), y.max(0), (x + w).min(width), (y + h).min(height)];
            if self.placed.iter().all(|other| overlap(&area, &other.area) <= LARGEST_OVERLAP) {
                self.placed.push(Placed { kind, area });
                self.paste(sprite, x, y);
                return;
            }
        }
    }

    fn paste(&mut self, sprite: &Sprite, left: i64, top: i64) {
        let owner = self.placed.len() as u32;
        let [x1, y1, x2, y2] = self.placed[owner as usize - 1].area;
        for y in y1..y2 {
            for x in x1..x2 {
                let color = sprite.pixel((x - left) as usize, (y - top) as usize);
                let at = (y * i64::from(self.pixels.width) + x) as usize;
                blend(&mut self.pixels.data[at * 3..at * 3 + 3], color);
                if color[3] > OPAQUE {
                    self.owners[at] = owner;
                }
            }
        }
    }

    fn finish(self) -> Scene {
        let (width, height) = (self.pixels.width, self.pixels.height);
        let objects = self.placed.iter().zip(1u32..).filter_map(|(placed, owner)| {
            let [left, top, right, bottom] = placed.area.map(|edge| edge as u32);
            let rows = self.owners.chunks_exact(width as usize);
            let rows = rows.skip(top as usize).take((bottom - top) as usize);
            let shown = rows.flat_map(|row| &row[left as usize..right as usize]);
            let bitmap: Vec<u8> = shown.map(|&shown| u8::from(shown == owner)).collect();
            let mask = Mask::from_bitmap(&bitmap, right - left, bottom - top).ok()?;
            let mask = mask.placed((left, top), (width, height)).expect("it is drawn inside the scene");
            let bbox = mask.bounding_box()?;
            Some(SceneObject { label: vocabulary()[placed.kind], bbox, mask })
        });
        let objects = objects.collect();
        Scene { image: self.pixels.into_image(), objects }
    }
}

/// The intersection of two boxes as a share of the smaller one.
fn overlap(a: &[i64; 4], b: &[i64; 4]) -> f64 {
    let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0);
    let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0);
    let area = |one: &[i64; 4]| (one[2] - one[0]) * (one[3] - one[1]);
    (width * height) as f64 / area(a).min(area(b)).max(1) as f64
}
