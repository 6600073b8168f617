//! A line of a YOLO file: `class cx cy w h`, or `class x1 y1 x2 y2 …`, with a score after either if the tool wrote one.

use ocelli::{BoundingBox, Mask};

use crate::label::formats::yolo::{self, box_line, polygon_line};
use crate::label::{Format, LabelledInstance};

/// A box is the same if no edge moved by more pixels: the page rounds.
const SAME: f32 = 0.02;
/// Two instances in two files are the same if their boxes overlap by more than this IoU.
pub(crate) const MATCH: f32 = 0.5;

/// `true` if a box is as it was.
pub(crate) fn is_same(before: &BoundingBox, after: &BoundingBox) -> bool {
    before.to_xyxy().iter().zip(after.to_xyxy()).all(|(before, after)| (before - after).abs() <= SAME)
}

/// A coordinate on an axis, x or y, where it is when the box `from` becomes the box `to`.
pub(crate) fn moved(value: f32, axis: usize, from: [f32; 4], to: [f32; 4]) -> f32 {
    let share = (value - from[axis]) / (from[axis + 2] - from[axis]).max(1e-6);
    to[axis] + share * (to[axis + 2] - to[axis])
}

/// One line, as it is in the file and in pixels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub text: String,
    pub class: usize,
    pub bbox: BoundingBox,
    pub polygon: Option<Vec<[f32; 2]>>,
    /// The mask of an annotation of COCO's.
    pub mask: Option<Mask>,
    /// The score that a tool wrote after the coordinates.
    pub score: Option<f32>,
    /// In a frame of a video, the number of the object, if the file has it.
    pub track: Option<u64>,
}

impl Line {
    /// The lines of a file.
    ///
    /// # Errors
    /// The number of a line that is none, and why.
    pub fn parse_all(text: &str, size: (u32, u32)) -> Result<Vec<Self>, String> {
        Self::parse_each(text, size).map(|(_, line)| line).collect()
    }

    /// Each line of a file, or its number and why it is none.
    pub fn parse_each(text: &str, size: (u32, u32)) -> impl Iterator<Item = (usize, Result<Self, String>)> {
        let text = text.trim_start_matches('\u{feff}');
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines.map(move |(number, line)| {
            let found = Self::parse(line, size).ok_or_else(|| {
                let why = if line.contains(',') {
                    "numbers with a decimal point and no comma, as in `0 0.5 0.5 0.2 0.1`"
                } else {
                    "`class cx cy w h` or `class x1 y1 x2 y2 x3 y3 …`"
                };
                format!("line {}: expected {why}", number + 1)
            });
            (number + 1, found)
        })
    }

    fn parse(line: &str, (width, height): (u32, u32)) -> Option<Self> {
        let mut words = line.split_whitespace();
        // Some tools write the id as a float.
        let class: f64 = words.next()?.parse().ok()?;
        let mut numbers: Vec<f64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let is_id = class.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&class);
        if !is_id || !numbers.iter().all(|number| number.is_finite()) {
            return None;
        }
        let class = class as usize;
        // Coordinates come in pairs: what follows them is the score.
        let score = if numbers.len() % 2 == 1 { numbers.pop() } else { None };
        if score.is_some_and(|score| !(0.0..=1.0).contains(&score)) {
            return None;
        }
        let score = score.map(|score| score as f32);
        let (width, height) = (f64::from(width), f64::from(height));
        let text = line.trim().to_owned();
        if let [cx, cy, w, h] = numbers[..] {
            let [x1, x2] = [cx - w / 2.0, cx + w / 2.0].map(|x| (x * width) as f32);
            let [y1, y2] = [cy - h / 2.0, cy + h / 2.0].map(|y| (y * height) as f32);
            return Some(Self {
                text,
                class,
                bbox: BoundingBox::new(x1, y1, x2, y2),
                score,
                ..Self::default()
            });
        }
        let (pairs, _) = numbers.as_chunks::<2>();
        if pairs.len() < 3 {
            return None;
        }
        let points: Vec<[f32; 2]> =
            pairs.iter().map(|[x, y]| [(x * width) as f32, (y * height) as f32]).collect();
        let least = |axis: usize| points.iter().map(|point| point[axis]).fold(f32::INFINITY, f32::min);
        let most = |axis: usize| points.iter().map(|point| point[axis]).fold(f32::NEG_INFINITY, f32::max);
        let bbox = BoundingBox::new(least(0), least(1), most(0), most(1));
        Some(Self { text, class, bbox, polygon: Some(points), score, ..Self::default() })
    }

    /// The line after the instance was changed; what was not changed keeps its digits.
    fn changed(&self, instance: &LabelledInstance, size: (u32, u32)) -> String {
        if is_same(&self.bbox, &instance.bbox) {
            let rest = self.text.split_once(char::is_whitespace).map_or("", |(_, rest)| rest);
            return if instance.class == self.class {
                self.text.clone()
            } else {
                format!("{} {rest}", instance.class)
            };
        }
        match &self.polygon {
            None => box_line(instance.class, clipped(&instance.bbox, size).to_xyxy(), size),
            Some(points) => {
                let (from, to) = (self.bbox.to_xyxy(), clipped(&instance.bbox, size).to_xyxy());
                let moved = |&[x, y]: &[f32; 2]| [moved(x, 0, from, to), moved(y, 1, from, to)];
                polygon_line(instance.class, points.iter().map(moved), size)
            }
        }
    }
}

/// The text of a file after the instances were changed.
pub(crate) fn changed(
    lines: &[Line],
    instances: &[LabelledInstance],
    format: Format,
    size: (u32, u32),
) -> String {
    let line = |instance: &LabelledInstance| match instance.line.and_then(|line| lines.get(line)) {
        Some(line) if instance.mask.is_none() || format != Format::YoloSeg => line.changed(instance, size),
        _ => new_line(instance, format, size),
    };
    instances.iter().map(|instance| line(instance) + "\n").collect()
}

/// The text of the file of polygons beside the file of boxes in which the instances were changed: the polygon of each box
/// follows it. Polygons that belong to no box stay.
pub(crate) fn followed(
    boxes: &[Line],
    polygons: &[Line],
    instances: &[LabelledInstance],
    size: (u32, u32),
) -> String {
    let mut free: Vec<bool> = vec![true; polygons.len()];
    let mut polygon_of = Vec::new();
    for line in boxes {
        let candidates =
            polygons.iter().enumerate().filter(|(at, other)| free[*at] && other.class == line.class);
        let best =
            candidates.map(|(at, other)| (at, other.bbox.iou(&line.bbox))).max_by(|a, b| a.1.total_cmp(&b.1));
        let best = best.filter(|(_, iou)| *iou > MATCH).map(|(at, _)| at);
        if let Some(at) = best {
            free[at] = false;
        }
        polygon_of.push(best);
    }
    let stay = polygons.iter().zip(&free).filter(|(_, free)| **free);
    let mut lines: Vec<String> = stay.map(|(line, _)| line.text.clone()).collect();
    for instance in instances {
        let known = instance.line.filter(|_| instance.mask.is_none());
        match known.and_then(|line| Some((boxes.get(line)?, *polygon_of.get(line)?))) {
            None => lines.push(new_line(instance, Format::YoloSeg, size)),
            Some((_, None)) => {}
            Some((before, Some(at))) => {
                // The polygon moves as the box does.
                let (from, to) = (before.bbox.to_xyxy(), instance.bbox.to_xyxy());
                let mut bbox = polygons[at].bbox;
                if !is_same(&before.bbox, &instance.bbox) {
                    let own = bbox.to_xyxy();
                    bbox = std::array::from_fn(|edge| moved(own[edge], edge % 2, from, to)).into();
                }
                lines.push(polygons[at].changed(&LabelledInstance { bbox, ..instance.clone() }, size));
            }
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// The instances in the text of a label file of YOLO, in pixels of an image of this size.
///
/// # Errors
/// The number of a line that is none, and why.
pub(crate) fn parse_labels(text: &str, size: (u32, u32)) -> Result<Vec<LabelledInstance>, String> {
    let instance = |(number, Line { class, bbox, polygon, .. })| LabelledInstance {
        line: Some(number),
        class,
        bbox,
        polygon,
        mask: None,
    };
    Ok(Line::parse_all(text, size)?.into_iter().enumerate().map(instance).collect())
}

fn new_line(instance: &LabelledInstance, format: Format, size: (u32, u32)) -> String {
    let bbox @ [x1, y1, x2, y2] = clipped(&instance.bbox, size).to_xyxy();
    if format != Format::YoloSeg {
        return box_line(instance.class, bbox, size);
    }
    let polygon = instance.mask.as_ref().and_then(yolo::polygon);
    let polygon = polygon.unwrap_or_else(|| vec![[x1, y1], [x2, y1], [x2, y2], [x1, y2]]);
    polygon_line(instance.class, polygon, size)
}

pub(crate) fn clipped(bbox: &BoundingBox, (width, height): (u32, u32)) -> BoundingBox {
    bbox.clip_to(width as f32, height as f32)
}
