//! Detections as the regions of a prediction.

use ocelli::{Cancellation, Detection, Mask, Prompts};
use serde::Serialize;
use serde_json::{Value, json};

use super::labels::{Control, LabelConfig, Shape};
use crate::engine::EngineAnswer;
use crate::http::problem::Problem;
use crate::objects::ObjectRecord;

/// The largest distance of a polygon from the mask's border, in pixels.
const TOLERANCE: f32 = 1.0;
/// Parts of a mask that are smaller than this share of it get no polygon.
const MIN_PART: f64 = 0.02;

/// A region of a prediction.
#[derive(Serialize)]
pub(super) struct Region {
    id: String,
    from_name: String,
    to_name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    original_width: u32,
    original_height: u32,
    image_rotation: u32,
    score: f32,
    value: Outline,
}

/// Place and label of a region.
#[derive(Default, Serialize)]
struct Outline {
    #[serde(flatten)]
    fields: Value,
    /// As bytes: as values in `fields` they would take thirty times the memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rle: Vec<u8>,
}

/// The regions of an image: one for each detection and tag that has its label, and the lowest score.
pub(super) fn regions(
    config: &LabelConfig,
    prompts: &Prompts,
    found: &EngineAnswer<Vec<Detection>>,
    withdrawn: &Cancellation,
) -> Result<(Vec<Region>, f32), Problem> {
    let mut regions = Vec::new();
    for (number, detection) in found.items.iter().enumerate() {
        let phrase = prompts[detection.class_id].phrase();
        let labelled =
            config.controls.iter().filter_map(|control| Some((control, control.label_of(phrase)?)));
        add(&mut regions, labelled, number, detection, (found.width, found.height), withdrawn)?;
    }
    Ok((regions, lowest(found.items.iter().map(|one| one.score))))
}

/// The lowest score; 0 if there is none.
pub(super) fn lowest(scores: impl Iterator<Item = f32>) -> f32 {
    scores.min_by(f32::total_cmp).unwrap_or(0.0)
}

/// The regions of an object that was drawn, in the tags for masks that have its label, and its predicted IoU.
pub(super) fn drawn_regions(
    config: &LabelConfig,
    label: &str,
    found: EngineAnswer<Vec<ObjectRecord>>,
    withdrawn: &Cancellation,
) -> Result<(Vec<Region>, f32), Problem> {
    let mut regions = Vec::new();
    let (size, mut score) = ((found.width, found.height), 0.0);
    for (number, object) in found.items.into_iter().enumerate() {
        let Some(bbox) = object.bbox.map(Into::into) else { continue };
        score = object.predicted_iou as f32;
        let detection = Detection { class_id: 0, label: label.into(), score, bbox, mask: Some(object.mask) };
        let with_masks = config.controls.iter().filter(|control| control.shape != Shape::Rectangle);
        let labelled = with_masks.filter_map(|control| Some((control, control.drawn_label(label)?)));
        add(&mut regions, labelled, number, &detection, size, withdrawn)?;
    }
    if regions.is_empty() && score > 0.0 {
        let message = format!("a smart tool needs BrushLabels or PolygonLabels with the label \"{label}\"");
        return Err(Problem::bad(message));
    }
    Ok((regions, score))
}

/// Adds the regions of an instance for tags, each with its label there.
fn add<'c>(
    regions: &mut Vec<Region>,
    labelled: impl Iterator<Item = (&'c Control, &'c str)>,
    number: usize,
    detection: &Detection,
    (width, height): (u32, u32),
    withdrawn: &Cancellation,
) -> Result<(), Problem> {
    for (control, label) in labelled {
        if withdrawn.is_cancelled() {
            return Err(Problem::stopping());
        }
        let kind = control.shape.kind();
        let outlines = outlines(control.shape, detection, (width, height));
        for (part, mut value) in outlines.into_iter().enumerate() {
            value.fields[kind] = json!([label]);
            regions.push(Region {
                id: format!("{}-{number}-{part}", control.from_name),
                from_name: control.from_name.clone(),
                to_name: control.to_name.clone(),
                kind,
                original_width: width,
                original_height: height,
                image_rotation: 0,
                score: detection.score,
                value,
            });
        }
    }
    Ok(())
}

fn outlines(shape: Shape, detection: &Detection, (width, height): (u32, u32)) -> Vec<Outline> {
    let x = |pixels: f32| f64::from(pixels) / f64::from(width) * 100.0;
    let y = |pixels: f32| f64::from(pixels) / f64::from(height) * 100.0;
    let with = |fields: Value| Outline { fields, ..Outline::default() };
    match (shape, &detection.mask) {
        (Shape::Rectangle, _) => {
            let [x1, y1, x2, y2] = detection.bbox.to_xyxy();
            let sides = (x(x2) - x(x1), y(y2) - y(y1));
            vec![with(json!({"x": x(x1), "y": y(y1), "width": sides.0, "height": sides.1, "rotation": 0}))]
        }
        (Shape::Polygon, Some(mask)) => {
            let least = mask.area() as f64 * MIN_PART;
            let rings = mask.polygons(TOLERANCE).into_iter();
            let rings = rings.map(|points| ocelli::mask::Outline { points, is_hole: false });
            let parts = rings.filter(|ring| ring.points.len() > 2 && ring.area() >= least);
            let points = |ring: ocelli::mask::Outline| -> Vec<[f64; 2]> {
                ring.points.into_iter().map(|[px, py]| [x(px), y(py)]).collect()
            };
            parts.map(|ring| with(json!({"points": points(ring), "closed": true}))).collect()
        }
        (Shape::Brush, Some(mask)) => {
            vec![Outline { rle: brush_rle(mask), ..with(json!({"format": "rle"})) }]
        }
        (Shape::VideoRectangle, _) | (_, None) => Vec::new(),
    }
}

/// Bits of the lengths of runs, for the four kinds of runs.
const LENGTHS: [u32; 4] = [3, 4, 8, 16];
/// Bits of a value.
const WORD: u32 = 8;
/// Red, green, blue and alpha have the same values.
const CHANNELS: u32 = 4;

/// A mask in Label Studio's run-length encoding of an RGBA image (`label_studio_sdk.converter.brush`): a header of 32 bits for
/// the number of values, 5 for the bits of a value and four times 4 for those of lengths, and runs of a bit 1, two bits for
/// the kind of the length, the length and the value.
fn brush_rle(mask: &Mask) -> Vec<u8> {
    let bitmap = mask.to_bitmap();
    let mut bits = Vec::new();
    // The lowest `count` bits, the highest first.
    let mut push = |value: u32, count: u32| bits.extend((0..count).rev().map(|at| value >> at & 1 == 1));
    push(bitmap.len() as u32 * CHANNELS, 32);
    push(WORD - 1, 5);
    LENGTHS.iter().for_each(|length| push(length - 1, 4));
    for run in bitmap.chunk_by(|a, b| a == b) {
        let value = if run[0] == 0 { 0 } else { 255 };
        let mut left = run.len() as u64 * u64::from(CHANNELS);
        while left > 0 {
            let kind = LENGTHS.iter().position(|bits| left <= 1 << bits).unwrap_or(LENGTHS.len() - 1);
            let length = left.min(1 << LENGTHS[kind]);
            push(1, 1);
            push(kind as u32, 2);
            push((length - 1) as u32, LENGTHS[kind]);
            push(value, WORD);
            left -= length;
        }
    }
    let byte = |bits: &[bool]| (0..8).fold(0, |byte, at| byte << 1 | u8::from(bits.get(at) == Some(&true)));
    bits.chunks(8).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `label_studio_sdk.converter.brush.decode_rle`.
    fn decoded(rle: &[u8]) -> Vec<u8> {
        let mut at = 0;
        let mut read = |count: u32| {
            let mut value = 0u32;
            for _ in 0..count {
                value = value << 1 | u32::from(rle[at / 8] >> (7 - at % 8) & 1);
                at += 1;
            }
            value
        };
        let number = read(32) as usize;
        let word = read(5) + 1;
        let sizes: Vec<u32> = (0..4).map(|_| read(4) + 1).collect();
        let mut values = Vec::new();
        while values.len() < number {
            let is_run = read(1) == 1;
            let kind = read(2) as usize;
            let length = read(sizes[kind]) as usize + 1;
            if is_run {
                let value = read(word) as u8;
                values.extend(std::iter::repeat_n(value, length));
            } else {
                values.extend((0..length).map(|_| read(word) as u8));
            }
        }
        values
    }

    #[test]
    fn brushes_are_read_back() {
        for (width, height, inside) in [(3, 2, 0..3), (300, 200, 1_000..40_000), (5, 1, 0..0), (1, 1, 0..1)] {
            let mut bitmap = vec![0; width * height];
            bitmap[inside].fill(1);
            let mask = Mask::from_bitmap(&bitmap, width as u32, height as u32).expect("the size is right");
            let expected: Vec<u8> = bitmap.iter().flat_map(|pixel| [pixel * 255; 4]).collect();
            assert_eq!(decoded(&brush_rle(&mask)), expected, "{width}x{height}");
        }
    }
}
