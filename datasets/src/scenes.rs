//! Drawn scenes, with what is in them: pictograms that the built-in model knows, on drawn backgrounds.
//!
//! [`SceneGenerator`] draws pictures, [`MovingScene`] a video. Both are made of numbers alone: the same seed gives the
//! same pixels on every machine, without a font and without a file. The distribution is that of the model's held-out
//! scenes (`demos/training/scenes.py`): backgrounds, clutter and sizes that its training never drew.
//!
//! ```
//! use ocelli_datasets::scenes::{SceneGenerator, SceneOptions};
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
pub(crate) mod random;
mod sprite;
#[cfg(test)]
mod tests;
mod truth;

use std::ops::RangeInclusive;

use ocelli_tracking::BoundingBox;

pub use moving::MovingScene;
pub use pictogram::vocabulary;
pub use truth::TruthBox;

use ocelli::Mask;
use ocelli::image::Image;
use ocelli::{Error, ErrorKind, Result};
use pixels::Pixels;
use random::Random;
use sprite::Sprite;

/// A pixel belongs to a pictogram where its opacity is above this.
const OPAQUE: f32 = 127.0 / 255.0;
/// The most that two pictograms of a picture may share, of the smaller one's box.
const LARGEST_OVERLAP: f64 = 0.1;
/// How often a place is sought for one pictogram.
const ATTEMPTS: u32 = 12;
/// Sides that make sense: the smallest a pictogram can be told on, the largest that is quick to draw.
const SIDES: RangeInclusive<u32> = 32..=8192;

/// A picture and what is in it.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The pixels.
    pub image: Image,
    /// What was drawn, in the order it was drawn: later ones hide earlier ones.
    pub objects: Vec<SceneObject>,
}

/// A pictogram of a scene.
#[derive(Clone, Debug)]
pub struct SceneObject {
    /// Its name, one of [`vocabulary`].
    pub label: &'static str,
    /// The smallest box around what is visible of it, in pixels.
    pub bbox: BoundingBox,
    /// What is visible of it; as large as the picture, never empty.
    pub mask: Mask,
}

/// What scenes look like.
#[derive(Clone, Debug, PartialEq)]
pub struct SceneOptions {
    /// Width in pixels (448).
    pub width: u32,
    /// Height in pixels (336).
    pub height: u32,
    /// How many pictograms are drawn, each number equally often (1 to 8); at most so many, as one that finds no place
    /// is left out.
    pub objects: RangeInclusive<u32>,
    /// Of how many kinds they are (1 to 5).
    pub kinds: RangeInclusive<u32>,
    /// The share of pictures that are dimmed or brightened and get noise (0.3).
    pub noisy: f64,
    /// Which pictograms come up; all of [`vocabulary`] unless named.
    pub labels: Vec<String>,
}

impl Default for SceneOptions {
    fn default() -> Self {
        Self { width: 448, height: 336, objects: 1..=8, kinds: 1..=5, noisy: 0.3, labels: Vec::new() }
    }
}

/// Draws scenes; each depends on the seed and its own number alone.
#[derive(Clone, Debug)]
pub struct SceneGenerator {
    seed: u64,
    options: SceneOptions,
    /// Places in the vocabulary of the pictograms that come up.
    pictograms: Vec<usize>,
}

impl SceneGenerator {
    /// A generator whose scenes look as `options` say.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a size outside 32 to 8192, an empty range, a share outside 0 to 1, or a
    /// label that is not in the [`vocabulary`].
    pub fn new(seed: u64, options: SceneOptions) -> Result<Self> {
        check_size(options.width, options.height)?;
        let refused =
            |what: String| Err(Error::new(ErrorKind::InvalidArgument, format!("cannot draw scenes, {what}")));
        for (name, range) in [("objects", &options.objects), ("kinds", &options.kinds)] {
            if range.is_empty() || (name == "kinds" && *range.start() == 0) {
                return refused(format!("{name}: {range:?} holds no number that makes a scene"));
            }
        }
        if !(0.0..=1.0).contains(&options.noisy) {
            return refused(format!("noisy is {}: expected a share from 0 to 1", options.noisy));
        }
        let pictograms = if options.labels.is_empty() {
            (0..vocabulary().len()).collect()
        } else {
            pictogram::places_of(&options.labels)?
        };
        Ok(Self { seed, options, pictograms })
    }

    /// What its scenes look like.
    pub fn options(&self) -> &SceneOptions {
        &self.options
    }

    /// Draws scene number `index`.
    pub fn scene(&self, index: u64) -> Scene {
        let mut random = Random::new(self.seed, index);
        let SceneOptions { width, height, .. } = self.options;
        let mut pixels = Pixels::new(width, height);
        background::draw(&mut random, &mut pixels);
        let mut drawing = Drawing { pixels, owners: vec![0; (width * height) as usize], placed: Vec::new() };
        let kind_count = random.whole(self.options.kinds.clone()) as usize;
        let kinds = random.sample(&self.pictograms, kind_count);
        let side = f64::from(width.min(height));
        for _ in 0..random.whole(self.options.objects.clone()) {
            let kind = kinds[random.below(kinds.len())];
            let size = random.log_uniform(side * 0.14, side * 0.5) as u32;
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

/// A picture's sides as they can be drawn.
fn check_size(width: u32, height: u32) -> Result<()> {
    if SIDES.contains(&width) && SIDES.contains(&height) {
        return Ok(());
    }
    let message =
        format!("cannot draw a scene of {width}x{height}: sides are {} to {}", SIDES.start(), SIDES.end());
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

/// A pictogram scaled to `size`, perhaps mirrored and turned, cropped to what is clearly visible.
fn prepare(random: &mut Random, pictogram: &Sprite, size: u32) -> Option<Sprite> {
    let ratio = f64::from(size) / pictogram.width().max(pictogram.height()) as f64;
    let scaled = |side: usize| ((side as f64 * ratio) as usize).max(6);
    let mut sprite = pictogram.resized(scaled(pictogram.width()), scaled(pictogram.height()));
    if random.chance(0.5) {
        sprite = sprite.mirrored();
    }
    if random.chance(0.5) {
        sprite = sprite.turned(random.uniform(-20.0, 20.0));
    }
    sprite.cropped()
}

/// A picture that remembers what was drawn on it.
struct Drawing {
    pixels: Pixels,
    /// For each pixel, which of `placed` it shows, counted from 1; 0 is the background.
    owners: Vec<u32>,
    placed: Vec<Placed>,
}

struct Placed {
    kind: usize,
    /// Left, top, right, bottom, inside the picture.
    area: [i64; 4],
}

impl Drawing {
    /// Draws a pictogram where it covers little of the others; up to an eighth of it may leave the picture.
    fn place(&mut self, random: &mut Random, sprite: &Sprite, kind: usize) {
        let [width, height] = [self.pixels.width(), self.pixels.height()].map(i64::from);
        let [w, h] = [sprite.width(), sprite.height()].map(|side| side as i64);
        // Rounded down on the left and on the right, as the reference does.
        let range = |side: i64, whole: i64| ((-side).div_euclid(8), whole - side + side.div_euclid(8));
        let ((left, right), (above, below)) = (range(w, width), range(h, height));
        if left > right || above > below {
            return;
        }
        for _ in 0..ATTEMPTS {
            let (x, y) = (random.between(left, right), random.between(above, below));
            let area = [x.max(0), y.max(0), (x + w).min(width), (y + h).min(height)];
            if self.placed.iter().all(|other| shared(&area, &other.area) <= LARGEST_OVERLAP) {
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
                let at = (y * i64::from(self.pixels.width()) + x) as usize;
                self.pixels.blend(at, color);
                if color[3] > OPAQUE {
                    self.owners[at] = owner;
                }
            }
        }
    }

    fn finish(self) -> Scene {
        let (width, height) = (self.pixels.width(), self.pixels.height());
        let mut bitmap = vec![0; self.owners.len()];
        let objects = self.placed.iter().zip(1u32..).filter_map(|(placed, owner)| {
            for (pixel, &shown) in bitmap.iter_mut().zip(&self.owners) {
                *pixel = u8::from(shown == owner);
            }
            let mask = Mask::from_bitmap(&bitmap, width, height).expect("one byte for each pixel");
            let bbox = mask.bounding_box()?;
            Some(SceneObject { label: vocabulary()[placed.kind], bbox, mask })
        });
        let objects = objects.collect();
        Scene { image: self.pixels.into_image(), objects }
    }
}

/// What two boxes share, as a share of the smaller one.
fn shared(a: &[i64; 4], b: &[i64; 4]) -> f64 {
    let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0);
    let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0);
    let area = |one: &[i64; 4]| (one[2] - one[0]) * (one[3] - one[1]);
    (width * height) as f64 / area(a).min(area(b)).max(1) as f64
}
