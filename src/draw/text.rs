//! Text of labels.

use ab_glyph::{Font, FontRef, Glyph, PxScale, ScaleFont, point};

use ocelli_images::canvas::Canvas;
use ocelli_tracking::BoundingBox;

/// Smaller text is not readable.
const LEAST_SIZE: f32 = 7.0;
/// Dimensions of a label relative to the font size.
const TAG_HEIGHT: f32 = 1.36;
const TAG_PADDING: f32 = 0.36;
const TAG_RADIUS: f32 = 0.22;
/// Height of capital letters of DejaVu Sans relative to the font size.
const CAPITAL_HEIGHT: f32 = 0.729;

/// The font DejaVu Sans.
#[derive(Debug)]
pub(super) struct Typeface {
    font: FontRef<'static>,
}

impl Default for Typeface {
    fn default() -> Self {
        let font = FontRef::try_from_slice(dejavu::sans::regular()).expect("DejaVu Sans is a valid font");
        Self { font }
    }
}

impl Typeface {
    /// `text` and `ending` as one line for a label of at most `room` (width, height): in `size` pixels, else smaller, else
    /// with `text` truncated; `None` if nothing fits.
    pub(super) fn fit(&self, text: &str, ending: &str, size: f32, room: (f32, f32)) -> Option<Line<'_>> {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let size = size.min(room.1 / TAG_HEIGHT).floor();
        if size < LEAST_SIZE {
            return None;
        }
        let whole = self.line(&format!("{text}{ending}"), size);
        if whole.tag_size().0 <= room.0 {
            return Some(whole);
        }
        let smaller = (size * room.0 / whole.tag_size().0).floor();
        if smaller >= LEAST_SIZE.max(0.6 * size) {
            let line = self.line(&format!("{text}{ending}"), smaller);
            if line.tag_size().0 <= room.0 {
                return Some(line);
            }
        }
        let cut = |ending, size| self.cut(&text, ending, size, room.0);
        cut(ending, LEAST_SIZE.max((0.6 * size).floor()))
            .or_else(|| cut(ending, LEAST_SIZE))
            .or_else(|| cut("", LEAST_SIZE))
    }

    /// `text` and `ending` if they fit, else the longest prefix of `text` that fits, `…` and `ending`.
    fn cut(&self, text: &str, ending: &str, size: f32, room: f32) -> Option<Line<'_>> {
        let whole = self.line(&format!("{text}{ending}"), size);
        if whole.tag_size().0 <= room {
            return Some(whole);
        }
        let line = |end: usize| self.line(&format!("{}…{ending}", text[..end].trim_end()), size);
        // Every letter makes it wider, so bisection finds the longest prefix that fits; it has at least one letter.
        let ends: Vec<usize> = text.char_indices().map(|(start, letter)| start + letter.len_utf8()).collect();
        let fitting = ends.partition_point(|&end| line(end).tag_size().0 <= room);
        Some(line(ends[fitting.checked_sub(1)?]))
    }

    /// The text in the system's fonts, if it needs more than this font: other letters, or another direction.
    #[cfg(feature = "fonts")]
    fn shaped(&self, text: &str, size: f32) -> Option<super::system_fonts::Shaped> {
        // Hebrew, Arabic and their presentation forms.
        let is_from_right =
            |c: char| matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{feff}');
        let is_missing = |c: char| self.font.glyph_id(c).0 == 0;
        let has_right_to_left = text.contains(is_from_right);
        if !has_right_to_left && !text.contains(is_missing) {
            return None;
        }
        super::system_fonts::shaped(text, size, has_right_to_left)
    }

    fn line(&self, text: &str, size: f32) -> Line<'_> {
        #[cfg(feature = "fonts")]
        if let Some(shaped) = self.shaped(text, size) {
            return Line {
                font: &self.font,
                glyphs: Vec::new(),
                width: shaped.width,
                size,
                shaped: Some(shaped),
            };
        }
        // The scale of `ab_glyph` is the height from the lowest to the highest glyph, ours is the em.
        let em = self.font.units_per_em().unwrap_or(2048.0);
        let scale = PxScale::from(size * self.font.height_unscaled() / em);
        let scaled = self.font.as_scaled(scale);
        let mut glyphs: Vec<Glyph> = Vec::with_capacity(text.len());
        let mut width = 0.0;
        for letter in text.chars() {
            let id = scaled.glyph_id(letter);
            if let Some(last) = glyphs.last() {
                width += scaled.kern(last.id, id);
            }
            glyphs.push(id.with_scale_and_position(scale, point(width, 0.0)));
            width += scaled.h_advance(id);
        }
        Line {
            font: &self.font,
            glyphs,
            width,
            size,
            #[cfg(feature = "fonts")]
            shaped: None,
        }
    }
}

/// A line of text with laid-out glyphs.
pub(super) struct Line<'a> {
    font: &'a FontRef<'static>,
    /// Positions start at (0, 0) on the base line.
    glyphs: Vec<Glyph>,
    width: f32,
    size: f32,
    /// The glyphs of other fonts.
    #[cfg(feature = "fonts")]
    shaped: Option<super::system_fonts::Shaped>,
}

impl Line<'_> {
    /// Width and height of the label around the line in whole pixels.
    pub(super) fn tag_size(&self) -> (f32, f32) {
        let width = (self.width + 2.0 * TAG_PADDING * self.size).ceil();
        (width, (TAG_HEIGHT * self.size).ceil())
    }

    /// Corner radius of the label.
    pub(super) fn tag_radius(&self) -> f32 {
        TAG_RADIUS * self.size
    }

    /// Draws the text into the middle of its label.
    pub(super) fn draw(&self, canvas: &mut Canvas<'_>, tag: BoundingBox, color: [u8; 3]) {
        let left = tag.x1 + 0.5 * (tag.width() - self.width);
        // On whole pixels, which keeps horizontal strokes sharp.
        let base = (tag.y1 + 0.5 * (tag.height() + CAPITAL_HEIGHT * self.size)).round();
        #[cfg(feature = "fonts")]
        if let Some(shaped) = &self.shaped {
            shaped.draw(canvas, left, base, color);
        }
        for glyph in &self.glyphs {
            let mut glyph = glyph.clone();
            glyph.position = point(left + glyph.position.x, base);
            if let Some(outline) = self.font.outline_glyph(glyph) {
                let bounds = outline.px_bounds();
                let (x0, y0) = (bounds.min.x as i32, bounds.min.y as i32);
                outline.draw(|x, y, covered| {
                    canvas.blend(x0 + x as i32, y0 + y as i32, color, covered.clamp(0.0, 1.0));
                });
            }
        }
    }
}
