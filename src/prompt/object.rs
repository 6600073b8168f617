//! One object of an image, shown by clicks, a box or a mask.

use std::sync::Arc;

use ocelli_tracking::BoundingBox;
use ocelli_tracking::masklets::LogitMask;

use crate::mask::Mask;
use ocelli_error::{Error, Result};

/// The logits of a mask prompt whose pixels are known.
const SURE_LOGIT: f32 = 10.0;
/// The largest logit of a mask prompt.
const MAX_LOGIT: f32 = 32.0;
/// Labels of points: 1 on the object, 0 beside it, 2 and 3 the corners of a box, −1 no point.
const CORNERS: [i64; 2] = [2, 3];
const NO_POINT: i64 = -1;

/// One object in an image, for [`Detector::segment`](crate::Detector::segment): points on it and beside it, a box around it,
/// a mask, or several of these. Coordinates are in pixels of the image.
///
/// ```
/// use ocelli::ObjectPrompt;
///
/// let dog = ObjectPrompt::new("dog").with_point(310.0, 220.0, true).with_point(350.0, 80.0, false);
/// assert_eq!(&**dog.label(), "dog");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct ObjectPrompt {
    label: Arc<str>,
    points: Vec<Point>,
    bbox: Option<BoundingBox>,
    mask: Option<MaskPrompt>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: f32,
    y: f32,
    positive: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum MaskPrompt {
    Pixels(Mask),
    Logits(LogitMask),
}

/// An object as the graph of clicks reads it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EncodedObject {
    /// `[K, 2]`, x and y in pixels of the model's input.
    pub(crate) points: Vec<[f32; 2]>,
    /// `[K]`.
    pub(crate) labels: Vec<i64>,
    /// `[4P, 4P]`, logits.
    pub(crate) mask: Option<Vec<f32>>,
    /// Set if the prompt can mean a part, the object or a group of objects.
    pub(crate) is_ambiguous: bool,
}

impl ObjectPrompt {
    /// An object with this label, which appears in results and errors. Add what shows the object.
    pub fn new(label: impl Into<Arc<str>>) -> Self {
        Self { label: label.into(), points: Vec::new(), bbox: None, mask: None }
    }

    /// Adds a click: positive on the object, negative on what is not the object.
    pub fn with_point(mut self, x: f32, y: f32, positive: bool) -> Self {
        self.points.push(Point { x, y, positive });
        self
    }

    /// Sets the box around the object. It is clipped to the image.
    pub fn with_box(mut self, bbox: BoundingBox) -> Self {
        self.bbox = Some(bbox);
        self
    }

    /// Sets a rough mask of the object, as large as the image.
    pub fn with_mask(mut self, mask: Mask) -> Self {
        self.mask = Some(MaskPrompt::Pixels(mask));
        self
    }

    /// Refines an earlier answer: its [logits](crate::ObjectMask::logits). Give the earlier clicks again, and the new ones.
    pub fn with_logits(mut self, logits: LogitMask) -> Self {
        self.mask = Some(MaskPrompt::Logits(logits));
        self
    }

    /// The label.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// Checks the prompt for an image of `size` (width, height), as [`Detector::segment`](crate::Detector::segment) does.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a point, the box or the mask does not fit the
    /// image, or if nothing shows what the
    /// object is: no positive point, no box and no mask.
    pub fn check(&self, size: (u32, u32)) -> Result<()> {
        let (width, height) = (size.0 as f32, size.1 as f32);
        let of_image = format!("the image of {width} × {height} pixels");
        // Not a number is outside.
        let is_outside =
            |point: &&Point| !((0.0..width).contains(&point.x) && (0.0..height).contains(&point.y));
        if let Some(Point { x, y, .. }) = self.points.iter().find(is_outside) {
            return Err(self.invalid(format!("point {x},{y} is outside {of_image}")));
        }
        if let Some(b) = self.bbox.filter(|b| !b.is_finite() || !b.clip_to(width, height).has_area()) {
            let b = format!("box {},{},{},{}", b.x1, b.y1, b.x2, b.y2);
            return Err(self.invalid(format!("{b} has no pixel of {of_image}; expected x1,y1,x2,y2")));
        }
        match &self.mask {
            Some(MaskPrompt::Pixels(mask)) if (mask.width(), mask.height()) != size => {
                let mask = format!("the mask prompt has {} × {} pixels", mask.width(), mask.height());
                return Err(self.invalid(format!("{mask}: expected those of {of_image}")));
            }
            Some(MaskPrompt::Pixels(mask)) if mask.area() == 0 => {
                return Err(self.invalid("the mask prompt is empty".into()));
            }
            _ => {}
        }
        if self.bbox.is_none() && self.mask.is_none() && !self.points.iter().any(|point| point.positive) {
            return Err(
                self.invalid("nothing shows where it is; add a positive point, a box or a mask".into())
            );
        }
        Ok(())
    }

    /// The prompt for a model with an input of `image` pixels and masks of `side` pixels.
    ///
    /// # Errors
    /// As [`check`](Self::check), and if the logits have another size.
    pub(crate) fn encode(&self, size: (u32, u32), image: usize, side: usize) -> Result<EncodedObject> {
        self.check(size)?;
        let scale = [image as f32 / size.0 as f32, image as f32 / size.1 as f32];
        let mut points: Vec<[f32; 2]> =
            self.points.iter().map(|point| [point.x * scale[0], point.y * scale[1]]).collect();
        let mut labels: Vec<i64> = self.points.iter().map(|point| i64::from(point.positive)).collect();
        if let Some(bbox) = self.bbox {
            let b = bbox.clip_to(size.0 as f32, size.1 as f32).scaled(scale[0], scale[1]);
            points.extend([[b.x1, b.y1], [b.x2, b.y2]]);
            labels.extend(CORNERS);
        }
        if points.is_empty() {
            points.push([0.0; 2]);
            labels.push(NO_POINT);
        }
        let mask = match &self.mask {
            None => None,
            Some(MaskPrompt::Pixels(mask)) => {
                let pixels = mask.to_bitmap();
                let logit = |&pixel: &u8| if pixel == 0 { -SURE_LOGIT } else { SURE_LOGIT };
                let (width, height) = (size.0 as usize, size.1 as usize);
                let logits = LogitMask::new(width, height, pixels.iter().map(logit).collect())?;
                Some(logits.resized_antialiased(side, side).values().to_vec())
            }
            Some(MaskPrompt::Logits(logits)) if (logits.width(), logits.height()) != (side, side) => {
                let found = format!("the logits have {} × {} pixels", logits.width(), logits.height());
                return Err(self.invalid(format!("{found}: expected {side} × {side}, as this model returns")));
            }
            Some(MaskPrompt::Logits(logits)) if logits.values().iter().any(|logit| logit.is_nan()) => {
                return Err(self.invalid("the logits are not numbers".into()));
            }
            Some(MaskPrompt::Logits(logits)) => {
                Some(logits.values().iter().map(|logit| logit.clamp(-MAX_LOGIT, MAX_LOGIT)).collect())
            }
        };
        let is_ambiguous = self.points.len() == 1 && self.bbox.is_none() && mask.is_none();
        Ok(EncodedObject { points, labels, mask, is_ambiguous })
    }

    fn invalid(&self, why: String) -> Error {
        Error::invalid_argument(format!("object \"{}\": {why}", self.label))
    }
}

#[cfg(test)]
mod tests {
    use ocelli_error::ErrorKind;

    use super::*;

    const SIZE: (u32, u32) = (200, 50);

    fn object() -> ObjectPrompt {
        ObjectPrompt::new("dog")
    }

    fn mask(width: u32, height: u32, pixel: u8) -> Mask {
        let pixels = vec![pixel; (width * height) as usize];
        Mask::from_bitmap(&pixels, width, height).expect("as many bytes as pixels")
    }

    #[test]
    fn wrong_prompts_are_refused() {
        let logits = |values: Vec<f32>| LogitMask::new(2, 2, values).expect("four logits");
        let cases = [
            (object(), "add a positive point, a box or a mask"),
            (object().with_point(5.0, 5.0, false), "add a positive point, a box or a mask"),
            (object().with_point(200.0, 5.0, true), "point 200,5 is outside the image of 200 × 50 pixels"),
            (object().with_point(5.0, 5.0, true).with_point(5.0, -1.0, false), "point 5,-1 is outside"),
            (object().with_point(f32::NAN, 5.0, true), "point NaN,5 is outside"),
            (object().with_box(BoundingBox::new(200.0, 0.0, 210.0, 9.0)), "box 200,0,210,9 has no pixel"),
            (object().with_box(BoundingBox::new(9.0, 0.0, 3.0, 9.0)), "expected x1,y1,x2,y2"),
            (object().with_box(BoundingBox::new(0.0, 0.0, f32::INFINITY, 9.0)), "box 0,0,inf,9"),
            (object().with_mask(mask(50, 200, 1)), "has 50 × 200 pixels: expected those of the image"),
            (object().with_mask(mask(200, 50, 0)), "the mask prompt is empty"),
            (
                object().with_logits(LogitMask::new(3, 2, vec![1.0; 6]).expect("six")),
                "3 × 2 pixels: expected 2 × 2",
            ),
            (object().with_logits(logits(vec![0.0, 1.0, f32::NAN, 1.0])), "not numbers"),
        ];
        for (prompt, expected) in cases {
            let error = prompt.encode(SIZE, 100, 2).expect_err(expected);
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
            assert!(text.starts_with("object \"dog\": ") && text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn prompts_are_scaled_to_the_input_of_the_model() {
        let encode = |prompt: ObjectPrompt| prompt.encode(SIZE, 100, 2).expect("it fits the image");
        let points = encode(object().with_point(20.0, 5.0, true).with_point(199.0, 0.0, false));
        assert_eq!(points.points, [[10.0, 10.0], [99.5, 0.0]]);
        assert_eq!((points.labels, points.is_ambiguous, points.mask), (vec![1, 0], false, None));
        assert!(encode(object().with_point(20.0, 5.0, true)).is_ambiguous);

        let boxed =
            encode(object().with_point(20.0, 5.0, false).with_box(BoundingBox::new(-9.0, 10.0, 40.0, 99.0)));
        assert_eq!(boxed.points, [[10.0, 10.0], [0.0, 20.0], [20.0, 100.0]]);
        assert_eq!((boxed.labels, boxed.is_ambiguous), (vec![0, 2, 3], false));

        let left: Vec<u8> = (0..200 * 50).map(|index| u8::from(index % 200 < 100)).collect();
        let masked = encode(object().with_mask(Mask::from_bitmap(&left, 200, 50).expect("10 000 pixels")));
        assert_eq!((masked.points, masked.labels), (vec![[0.0, 0.0]], vec![-1]));
        let logits = masked.mask.expect("it was given");
        // The filter is as wide as two pixels of the small mask, so that it sees a little of the other half.
        assert!([0, 2].iter().all(|&left| logits[left] > 5.0 && logits[left + 1] < -5.0), "{logits:?}");
        assert!(!masked.is_ambiguous);

        let logits = LogitMask::new(2, 2, vec![99.0, -99.0, 1.5, -1.5]).expect("four logits");
        let refined = encode(object().with_point(1.0, 1.0, true).with_logits(logits));
        assert_eq!(refined.mask, Some(vec![32.0, -32.0, 1.5, -1.5]));
        assert!(!refined.is_ambiguous, "a mask says what is meant");
    }
}
