//! Masks: the pixels of an instance.
//!
//! A [`Mask`] is stored in COCO's compressed run-length encoding: a few hundred bytes for an object in a 4K image, in the
//! form in which data sets store masks. [`MaskResampler`] makes masks from the logits of the mask head; [`Outline`]s are
//! their borders as polygons.

mod outline;
mod png;
mod polygon;
mod resample;
mod runs;

use std::borrow::Cow;
use std::sync::Arc;

use hotcoco::mask as codec;
use hotcoco::types::Rle;
use ocelli_tracking::BoundingBox;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use self::png::read_mask_png;
pub use outline::Outline;
pub(crate) use outline::distance_to_segment;
#[doc(hidden)]
pub use polygon::{nearest, splice};
pub use resample::MaskResampler;

use ocelli_error::{Error, Result, refuse};
use runs::RunBuilder;

/// A set of pixels of an image in COCO's run-length encoding: column by column, background first.
///
/// Serde formats have COCO's `{"size": [height, width], "counts": "…"}`, which is validated when it is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mask {
    width: u32,
    height: u32,
    /// Valid for this width and height: every constructor checks it.
    counts: String,
}

/// The pixels of a class in an image, without telling its instances apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SemanticMap {
    /// The index of the prompt.
    pub class_id: usize,
    /// The label of the prompt.
    pub label: Arc<str>,
    /// The pixels; as large as the image.
    pub mask: Mask,
}

/// A run of pixels in one column of a mask: the rows `top..bottom`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskSpan {
    /// The column.
    pub x: u32,
    /// The first row.
    pub top: u32,
    /// The row after the last.
    pub bottom: u32,
}

impl Mask {
    /// A mask from one byte for each pixel, row by row; a pixel is in the mask unless its byte is 0.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if `bitmap` does not have `width` × `height`
    /// bytes, or if that product is 0 or
    /// exceeds `u32`.
    pub fn from_bitmap(bitmap: &[u8], width: u32, height: u32) -> Result<Self> {
        let pixels = check_size(width, height)?;
        if bitmap.len() != pixels as usize {
            refuse!("mask bitmap, {width}×{height}: expected {pixels} bytes, got {}", bitmap.len());
        }
        // The runs follow the columns and the bitmap the rows: a block of columns reads each cache line once instead of
        // once for each of its pixels.
        const COLUMNS: usize = 64;
        let (width_px, height_px) = (width as usize, height as usize);
        let mut block = vec![false; COLUMNS * height_px]; // [column, row]
        let mut runs = RunBuilder::default();
        for left in (0..width_px).step_by(COLUMNS) {
            let columns = COLUMNS.min(width_px - left);
            for (y, row) in bitmap.chunks_exact(width_px).enumerate() {
                for (column, &pixel) in row[left..left + columns].iter().enumerate() {
                    block[column * height_px + y] = pixel != 0;
                }
            }
            for &inside in &block[..columns * height_px] {
                runs.push(inside, 1);
            }
        }
        Ok(Self::from_runs(runs, width, height))
    }

    /// A mask from COCO's compressed `counts` string.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if the string is malformed or does not fit the size.
    pub fn from_counts(counts: impl Into<String>, width: u32, height: u32) -> Result<Self> {
        check_size(width, height)?;
        let counts = counts.into();
        match codec::rle_from_string(&counts, height, width) {
            Ok(_) => Ok(Self { width, height, counts }),
            Err(error) => {
                Err(Error::invalid_data(format!("mask counts, {width}×{height}: {error}")).with_source(error))
            }
        }
    }

    /// The runs add up to `width` × `height`.
    fn from_runs(runs: RunBuilder, width: u32, height: u32) -> Self {
        let rle = Rle { h: height, w: width, counts: runs.finish() };
        debug_assert!(codec::check_counts(&rle.counts, height, width).is_ok());
        Self { width, height, counts: codec::rle_to_string(&rle) }
    }

    /// A mask from COCO's uncompressed run lengths: pixels outside and inside the mask in turn, column by column.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`](ocelli_error::ErrorKind::InvalidData) if the runs do not add up to `width` × `height`.
    pub fn from_run_lengths(runs: &[u32], width: u32, height: u32) -> Result<Self> {
        check_size(width, height)?;
        codec::check_counts(runs, height, width).map_err(|error| {
            Error::invalid_data(format!("mask run lengths, {width}×{height}: {error}")).with_source(error)
        })?;
        let rle = Rle { h: height, w: width, counts: runs.to_vec() };
        Ok(Self { width, height, counts: codec::rle_to_string(&rle) })
    }

    fn rle(&self) -> Rle {
        codec::rle_from_string(&self.counts, self.height, self.width)
            .expect("every constructor checks or encodes the counts")
    }

    /// Width of the image in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height of the image in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// COCO's compressed run-length string.
    pub fn counts(&self) -> &str {
        &self.counts
    }

    /// The number of pixels in the mask.
    pub fn area(&self) -> u64 {
        codec::area(&self.rle())
    }

    /// The number of pixels in both masks.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ocelli_error::ErrorKind::Mismatch) if their sizes differ.
    pub fn intersection_area(&self, other: &Self) -> Result<u64> {
        Ok(codec::area(&self.merged(other, true)?))
    }

    /// The pixels in both masks, or in one of them or both.
    fn merged(&self, other: &Self, in_both: bool) -> Result<Rle> {
        if (self.width, self.height) == (other.width, other.height) {
            let merged = codec::merge(&[self.rle(), other.rle()], in_both);
            return Ok(merged.expect("masks of the same size can be merged"));
        }
        let sizes = [self, other].map(|mask| format!("{}×{}", mask.width, mask.height));
        let message = format!("masks of {} and {}: expected masks of the same size", sizes[0], sizes[1]);
        Err(Error::mismatch(message))
    }

    /// Intersection over union, 0 to 1; 0 if both are empty.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ocelli_error::ErrorKind::Mismatch) if their sizes differ.
    pub fn iou(&self, other: &Self) -> Result<f64> {
        let common = self.intersection_area(other)?;
        let union = self.area() + other.area() - common;
        Ok(common as f64 / union.max(1) as f64)
    }

    /// The number of pixels of the mask in a box, whose edges are rounded to pixels.
    #[doc(hidden)]
    pub fn area_in(&self, bbox: &BoundingBox) -> u64 {
        let [left, top, right, bottom] = bbox.to_xyxy().map(|edge| edge.round().max(0.0) as u32);
        let columns = self.spans().skip_while(|span| span.x < left).take_while(|span| span.x < right);
        columns.map(|span| u64::from(span.bottom.min(bottom).saturating_sub(span.top.max(top)))).sum()
    }

    /// The mask of a part of an image of `size` (width, height) as a mask of the image; `at` is the part's left and top edge.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the part is not inside the image.
    pub fn placed(&self, at: (u32, u32), size: (u32, u32)) -> Result<Self> {
        let (width, height) = size;
        let pixels = check_size(width, height)?;
        let fits = |at: u32, length: u32, all: u32| at.checked_add(length).is_some_and(|end| end <= all);
        if !fits(at.0, self.width, width) || !fits(at.1, self.height, height) {
            let ((own_width, own_height), (x, y)) = ((self.width, self.height), at);
            refuse!(
                "mask of {own_width}×{own_height} at {x},{y}: it is outside the image of {width}×{height} pixels"
            );
        }
        let (mut runs, mut end) = (RunBuilder::default(), 0);
        for span in self.spans() {
            let start = (span.x + at.0) * height + span.top + at.1;
            runs.push(false, start - end);
            runs.push(true, span.bottom - span.top);
            end = start + span.bottom - span.top;
        }
        runs.push(false, pixels - end);
        Ok(Self::from_runs(runs, width, height))
    }

    /// The pixels in one of two masks or in both.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`](ocelli_error::ErrorKind::Mismatch) if their sizes differ.
    pub fn union(&self, other: &Self) -> Result<Self> {
        Ok(Self { counts: codec::rle_to_string(&self.merged(other, false)?), ..*self })
    }

    /// The smallest box around the mask, `None` if it is empty.
    pub fn bounding_box(&self) -> Option<BoundingBox> {
        let [left, top, width, height] = codec::to_bbox(&self.rle()).map(|value| value as f32);
        let bbox = BoundingBox::from_ltwh([left, top, width, height]);
        bbox.has_area().then_some(bbox)
    }

    /// The pixels of the mask, column by column from the left, each column from the top.
    pub fn spans(&self) -> impl Iterator<Item = MaskSpan> {
        runs::column_spans(self.rle().counts, self.height)
    }

    /// One byte for each pixel, row by row: 1 in the mask and 0 outside.
    pub fn to_bitmap(&self) -> Vec<u8> {
        let width = self.width as usize;
        let mut bitmap = vec![0; width * self.height as usize];
        for span in self.spans() {
            for y in span.top..span.bottom {
                bitmap[y as usize * width + span.x as usize] = 1;
            }
        }
        bitmap
    }

    /// The borders of the mask along pixel edges: one outline around each connected part and each hole, from top to
    /// bottom.
    ///
    /// Parts that touch at a corner only are separate. [`Outline::simplified`] reduces the points.
    pub fn outlines(&self) -> Vec<Outline> {
        outline::trace(self)
    }

    /// The mask as polygons for COCO and YOLO files, one for each connected part.
    ///
    /// These formats have no holes: a hole is joined to the border around it by a cut of zero width, so that filling by
    /// the even-odd rule, as COCO's tools do, leaves it empty. Points are pixel corners `[x, y]`; points are removed while
    /// the border moves by at most `tolerance` pixels, none at 0.
    pub fn polygons(&self, tolerance: f32) -> Vec<Vec<[f32; 2]>> {
        polygon::join_holes(self.outlines(), tolerance)
    }
}

/// The number of pixels, if it fits in a run length of 32 bits.
fn check_size(width: u32, height: u32) -> Result<u32> {
    match width.checked_mul(height) {
        Some(pixels) if pixels > 0 => Ok(pixels),
        _ => {
            refuse!("mask size, {width}×{height}: expected 1 to {} pixels", u32::MAX)
        }
    }
}

/// COCO's JSON form.
#[derive(Serialize, Deserialize)]
struct MaskRecord<'a> {
    /// Height, then width.
    size: [u32; 2],
    counts: Cow<'a, str>,
}

impl Serialize for Mask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let counts = Cow::Borrowed(self.counts.as_str());
        MaskRecord { size: [self.height, self.width], counts }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Mask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let MaskRecord { size: [height, width], counts } = MaskRecord::deserialize(deserializer)?;
        Self::from_counts(counts, width, height).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
