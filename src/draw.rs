//! Drawing of detections and tracks: boxes, labels, masks, trails.

mod label_layout;
mod overlay;
mod palette;
mod redaction;
#[cfg(feature = "fonts")]
mod system_fonts;
mod text;

use std::borrow::Cow;

use image::RgbImage;

pub use overlay::{Overlay, OverlayOptions};
pub use palette::{class_color, track_color};
pub use redaction::{Redaction, RedactionStyle};

use crate::detection::Detection;
use crate::mask::Mask;
use label_layout::LabelLayout;
use ocelli_error::{Error, Result};
use ocelli_images::canvas::{Canvas, grown};
use ocelli_tracking::BoundingBox;
use palette::{CHOSEN_COLORS, DARK, text_color_on};
use text::{Line, Typeface};

/// Options of drawing detections. Sizes that are not set are proportional to the image, so that a thumbnail and an 8K image
/// look alike when shown at the same size.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AnnotationStyle {
    /// Width of the box lines in pixels; by default 1 plus 1/420 of the image's side.
    pub line_width: Option<f32>,
    /// Font size of the labels in pixels (em); by default 1/52 of the image's side, at least 10. A label that is too wide
    /// for the image is drawn smaller and then truncated.
    pub font_size: Option<f32>,
    /// Shows the score in labels.
    pub show_scores: bool,
    /// Opacity of masks, 0 (outlines only) to 1.
    pub mask_opacity: f32,
}

impl Default for AnnotationStyle {
    fn default() -> Self {
        Self { line_width: None, font_size: None, show_scores: true, mask_opacity: 0.4 }
    }
}

/// A line through points or a polygon, with a label at the first point.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// In pixels.
    pub points: Vec<[f32; 2]>,
    /// `true` for a polygon.
    pub is_closed: bool,
    /// Its text.
    pub label: String,
}

/// Draws detections into images.
///
/// Each class has its own colour, the same in every image ([`class_color`]). Labels are placed above their boxes or, if
/// there is no room, inside or below, always inside the image and without overlap if possible. The font is DejaVu Sans. With the feature `fonts`,
/// letters that it lacks are drawn with the fonts of the system: other scripts, emoji, text from right to left. Letters that no
/// font has appear as empty boxes.
#[derive(Debug, Default)]
pub struct Annotator {
    style: AnnotationStyle,
    typeface: Typeface,
}

impl Annotator {
    /// An annotator with the default style.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the style.
    #[must_use]
    pub fn with_style(self, style: AnnotationStyle) -> Self {
        Self { style, ..self }
    }

    /// Draws the detections of an image into it, the highest score on top.
    ///
    /// Boxes are clipped to the image; boxes outside of it or without area are skipped.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if a mask does not have the size of the image; nothing is
    /// drawn then.
    pub fn annotate(&self, image: &mut RgbImage, detections: &[Detection]) -> Result<()> {
        let marks = detections.iter().map(|detection| Mark {
            bbox: detection.bbox,
            score: detection.score,
            label: (&*detection.label).into(),
            color: class_color(detection.class_id),
            mask: detection.mask.as_ref(),
            opacity: 1.0,
        });
        self.draw_marks(image, marks.collect())
    }

    /// Draws lines and polygons, each with a label at its first point that covers no other label if possible. Their colours
    /// are none of those of the first twenty classes.
    pub fn draw_shapes(&self, image: &mut RgbImage, shapes: &[Shape]) {
        let (width, height) = image.dimensions();
        let sizes = Sizes::of(&self.style, width, height);
        let mut canvas = Canvas::new(image);
        let casing = sizes.line + 2.0 * sizes.casing;
        let room = (canvas.width(), canvas.height());
        let mut layout = LabelLayout::new(room.0, room.1);
        for (number, Shape { points, is_closed, label }) in shapes.iter().enumerate() {
            let Some(&[x, y]) = points.first() else { continue };
            let color = class_color(CHOSEN_COLORS + number);
            for (width, color, opacity) in [(casing, DARK, 0.35), (sizes.line, color, 0.9)] {
                if *is_closed {
                    canvas.stroke_rings(&[points.as_slice()], width, color, opacity);
                } else {
                    canvas.stroke_line(points, width, color, opacity);
                }
            }
            let Some(line) = self.typeface.fit(label, "", sizes.font, room) else { continue };
            let at = BoundingBox::new(x, y, x + 1.0, y + 1.0);
            let tag = layout.place(at, sizes.line, line.tag_size());
            draw_tag(&mut canvas, tag, &line, color, &sizes);
        }
    }

    /// Draws a line of text into the middle of a rectangle `[left, top, width, height]` in pixels, smaller or truncated if it
    /// does not fit.
    pub fn draw_caption(&self, image: &mut RgbImage, text: &str, rectangle: [f32; 4], color: [u8; 3]) {
        let [.., width, height] = rectangle;
        let mut canvas = Canvas::new(image);
        if let Some(line) = self.typeface.fit(text, "", 0.7 * height, (width, height)) {
            line.draw(&mut canvas, BoundingBox::from_ltwh(rectangle), color);
        }
    }

    fn draw_marks(&self, image: &mut RgbImage, mut marks: Vec<Mark<'_>>) -> Result<()> {
        let (width, height) = image.dimensions();
        for mark in &marks {
            if let Some(mask) = mark.mask.filter(|m| (m.width(), m.height()) != (width, height)) {
                return Err(Error::mismatch(format!(
                    "cannot draw the mask of \"{}\": expected {width}×{height} as the image, got {}×{}",
                    mark.label,
                    mask.width(),
                    mask.height()
                )));
            }
        }
        marks.sort_by(|a, b| a.score.total_cmp(&b.score));
        let sizes = Sizes::of(&self.style, width, height);
        let mut canvas = Canvas::new(image);

        for mark in &marks {
            self.draw_mask(&mut canvas, mark, &sizes);
        }
        let frames: Vec<Option<BoundingBox>> =
            marks.iter().map(|m| sizes.frame_of(&m.bbox, &canvas)).collect();
        for (mark, frame) in marks.iter().zip(&frames) {
            if let Some(frame) = frame {
                let casing = sizes.line + 2.0 * sizes.casing;
                canvas.stroke_frame(*frame, casing, -sizes.casing, DARK, 0.45 * mark.opacity);
                canvas.stroke_frame(*frame, sizes.line, 0.0, mark.color, mark.opacity);
            }
        }
        self.draw_labels(&mut canvas, &marks, &frames, &sizes);
        Ok(())
    }

    fn draw_mask(&self, canvas: &mut Canvas<'_>, mark: &Mark<'_>, sizes: &Sizes) {
        let Some(mask) = mark.mask else { return };
        let opacity = self.style.mask_opacity.clamp(0.0, 1.0);
        for span in mask.spans() {
            for y in span.top..span.bottom {
                canvas.blend(span.x as i32, y as i32, mark.color, opacity);
            }
        }
        let outlines: Vec<_> =
            mask.outlines().iter().map(|outline| outline.simplified(0.5f32.max(0.35 * sizes.line))).collect();
        let rings: Vec<&[[f32; 2]]> = outlines.iter().map(|outline| outline.points.as_slice()).collect();
        canvas.stroke_rings(&rings, 1.0f32.max(0.75 * sizes.line), mark.color, 1.0);
    }

    /// Labels with a higher score are placed first and drawn last.
    fn draw_labels(
        &self,
        canvas: &mut Canvas<'_>,
        by_rising_score: &[Mark<'_>],
        frames: &[Option<BoundingBox>],
        sizes: &Sizes,
    ) {
        let mut layout = LabelLayout::new(canvas.width(), canvas.height());
        let mut tags = Vec::new();
        for (mark, frame) in by_rising_score.iter().zip(frames).rev() {
            let Some(frame) = frame else { continue };
            let score = self.style.show_scores.then(|| format!(" {:.2}", mark.score));
            let room = (canvas.width(), canvas.height());
            let line = self.typeface.fit(&mark.label, score.as_deref().unwrap_or(""), sizes.font, room);
            if let Some(line) = line {
                let tag = layout.place(*frame, sizes.line, line.tag_size());
                tags.push((tag, line, mark.color));
            }
        }
        for (tag, line, color) in tags.iter().rev() {
            draw_tag(canvas, *tag, line, *color, sizes);
        }
    }
}

fn draw_tag(canvas: &mut Canvas<'_>, tag: BoundingBox, line: &Line<'_>, color: [u8; 3], sizes: &Sizes) {
    let radius = line.tag_radius();
    canvas.fill_rounded(grown(tag, sizes.casing), radius + sizes.casing, DARK, 0.35);
    canvas.fill_rounded(tag, radius, color, 1.0);
    line.draw(canvas, tag, text_color_on(color));
}

/// A box with its label and mask, to be drawn.
struct Mark<'a> {
    bbox: BoundingBox,
    score: f32,
    label: Cow<'a, str>,
    color: [u8; 3],
    mask: Option<&'a Mask>,
    /// Opacity of the box.
    opacity: f32,
}

/// The sizes of a style in an image, in pixels.
struct Sizes {
    line: f32,
    /// Width of the dark rim that separates a line from a background of its colour.
    casing: f32,
    font: f32,
}

impl Sizes {
    fn of(style: &AnnotationStyle, width: u32, height: u32) -> Self {
        let side = (width as f32 * height as f32).sqrt();
        let given = |size: Option<f32>, least: f32| size.filter(|size| size.is_finite() && *size >= least);
        let line = given(style.line_width, 1.0).unwrap_or(1.0 + side / 420.0).min(1024.0).round();
        let font = given(style.font_size, 1.0).unwrap_or((side / 52.0).max(10.0)).min(2048.0);
        Self { line, casing: (line / 3.0).clamp(0.5, 8.0), font }
    }

    /// The outer edge of a box's frame in whole pixels: the lines are centred on the edges of the box and move inside at
    /// the border of the image.
    fn frame_of(&self, bbox: &BoundingBox, canvas: &Canvas<'_>) -> Option<BoundingBox> {
        let (width, height) = (canvas.width(), canvas.height());
        let visible = bbox.clip_to(width, height);
        if !visible.has_area() {
            return None;
        }
        let [x1, y1, x2, y2] = visible.to_xyxy();
        // Halves are rounded inwards on all sides: a line of one pixel is the outermost pixel of the box.
        let out = 0.5 * self.line;
        let (left, top) = ((x1 - out).round().max(0.0), (y1 - out).round().max(0.0));
        let right = (x2 + out - 0.5).ceil().clamp(left.min(width - 1.0) + 1.0, width);
        let bottom = (y2 + out - 0.5).ceil().clamp(top.min(height - 1.0) + 1.0, height);
        Some(BoundingBox::new(left.min(right - 1.0), top.min(bottom - 1.0), right, bottom))
    }
}

#[cfg(test)]
mod tests;
