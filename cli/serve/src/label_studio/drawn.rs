//! Label Studio's smart tools send key points and a rectangle that a person drew; they become a mask.

use serde::Deserialize;

use crate::http::limits::short_list;
use crate::objects::ObjectQuestion;

/// The regions that Label Studio sends with an interactive prediction.
#[derive(Deserialize)]
pub(super) struct Context {
    #[serde(default, deserialize_with = "short_list")]
    result: Vec<DrawnRegion>,
}

#[derive(Deserialize)]
struct DrawnRegion {
    #[serde(rename = "type")]
    kind: String,
    /// By default it is.
    is_positive: Option<bool>,
    /// Pixels of the upright image.
    original_width: Option<u32>,
    original_height: Option<u32>,
    value: DrawnValue,
}

/// In per cent of the image's sides.
#[derive(Deserialize)]
struct DrawnValue {
    x: Option<f32>,
    y: Option<f32>,
    width: Option<f32>,
    height: Option<f32>,
    /// The key frames of a rectangle in a video.
    #[serde(default, deserialize_with = "short_list")]
    sequence: Vec<KeyFrame>,
    keypointlabels: Option<Vec<String>>,
    rectanglelabels: Option<Vec<String>>,
    labels: Option<Vec<String>>,
}

/// A key frame, counted from 1; edges are in per cent.
#[derive(Deserialize)]
struct KeyFrame {
    frame: usize,
    x: f32,
    y: f32,
    width: f32,
    height: f32,
}

/// One object.
#[derive(Default)]
pub(super) struct Drawn {
    /// The label that was chosen; empty without one.
    pub label: String,
    /// x and y in per cent, and whether the object is there.
    pub points: Vec<([f32; 2], bool)>,
    /// Edges in per cent.
    bbox: Option<[f32; 4]>,
    /// Width and height of the upright image in pixels.
    pub size: (u32, u32),
    /// Of a video, from 0.
    pub frame: usize,
}

impl Context {
    /// The rectangles that were drawn in a video, each by its first key frame.
    pub fn drawn_in_video(self) -> Vec<Drawn> {
        let rectangle = |region: DrawnRegion| {
            let KeyFrame { frame, x, y, width, height } =
                region.value.sequence.into_iter().min_by_key(|key| key.frame)?;
            Some(Drawn {
                label: region.value.labels.and_then(|labels| labels.into_iter().next()).unwrap_or_default(),
                bbox: Some([x, y, x + width, y + height]),
                frame: frame.saturating_sub(1),
                ..Drawn::default()
            })
        };
        let of_videos = self.result.into_iter().filter(|region| region.kind == "videorectangle");
        of_videos.filter_map(rectangle).collect()
    }

    /// The object that was drawn; `None` if there is neither a point nor a rectangle. The label is that of the last region.
    pub fn drawn(self) -> Option<Drawn> {
        let mut drawn = Drawn::default();
        for DrawnRegion { kind, is_positive, original_width, original_height, value } in self.result {
            let numbers = [value.x, value.y, value.width, value.height];
            let [x, y, width, height] = numbers.map(Option::unwrap_or_default);
            match kind.as_str() {
                "keypointlabels" | "keypoint" => drawn.points.push(([x, y], is_positive.unwrap_or(true))),
                "rectanglelabels" | "rectangle" => drawn.bbox = Some([x, y, x + width, y + height]),
                _ => continue,
            }
            drawn.size = (original_width.unwrap_or_default(), original_height.unwrap_or_default());
            let labels = value.keypointlabels.or(value.rectanglelabels).or(value.labels);
            if let Some(label) = labels.and_then(|labels| labels.into_iter().next()) {
                drawn.label = label;
            }
        }
        (!drawn.points.is_empty() || drawn.bbox.is_some()).then_some(drawn)
    }
}

impl Drawn {
    /// The object in pixels of an image of this width and height.
    pub fn shown(&self, (width, height): (u32, u32)) -> ObjectQuestion {
        let inside = |share: f32, side: u32| (share / 100.0 * side as f32).clamp(0.0, side as f32);
        // The edge is not a pixel.
        let pixel = |share: f32, side: u32| inside(share, side).min(side as f32 - 0.01);
        let points =
            self.points.iter().map(|([x, y], is_on)| ([pixel(*x, width), pixel(*y, height)], *is_on));
        let edges = |[x1, y1, x2, y2]: [f32; 4]| {
            [inside(x1, width), inside(y1, height), inside(x2, width), inside(y2, height)]
        };
        ObjectQuestion::one(points.collect(), self.bbox.map(edges))
    }
}

#[cfg(test)]
mod tests {
    use ocelli::{BoundingBox, ObjectPrompt};

    use super::*;

    #[test]
    fn points_and_a_rectangle_are_one_object() {
        let context = r#"{"result": [
            {"type": "rectanglelabels", "original_width": 200, "original_height": 100,
             "value": {"x": 12.5, "y": 25, "width": 50, "height": 25, "rectanglelabels": ["Cat"]}},
            {"type": "keypointlabels", "is_positive": true, "original_width": 200, "original_height": 100,
             "value": {"x": 37.5, "y": 100, "width": 0.3, "keypointlabels": ["Dog"]}},
            {"type": "keypointlabels", "is_positive": false, "original_width": 200, "original_height": 100,
             "value": {"x": 6.25, "y": 6.25, "keypointlabels": []}},
            {"type": "brushlabels", "value": {"format": "rle", "rle": [1, 2], "brushlabels": ["Fish"]}}
        ]}"#;
        let context: Context = serde_json::from_str(context).expect("it is what Label Studio sends");
        let drawn = context.drawn().expect("it has points");
        assert_eq!(drawn.label, "Dog");
        let expected = ObjectPrompt::new("0")
            .with_point(75.0, 99.99, true)
            .with_point(12.5, 6.25, false)
            .with_box(BoundingBox::new(25.0, 25.0, 125.0, 50.0));
        assert_eq!(format!("{:?}", drawn.shown(drawn.size).objects), format!("{:?}", [expected]));
        let video = r#"{"result": [{"type": "videorectangle", "value": {"labels": ["Car"], "sequence": [
            {"frame": 9, "x": 1, "y": 1, "width": 1, "height": 1, "enabled": false},
            {"frame": 3, "x": 10, "y": 20, "width": 30, "height": 40, "enabled": true}]}},
            {"type": "videorectangle", "value": {"sequence": []}}]}"#;
        let context: Context = serde_json::from_str(video).expect("it is what Label Studio sends");
        let [drawn] = &context.drawn_in_video()[..] else { panic!("one has key frames") };
        assert_eq!((&*drawn.label, drawn.frame, drawn.bbox), ("Car", 2, Some([10.0, 20.0, 40.0, 60.0])));
        for nothing in [r#"{}"#, r#"{"result": []}"#, r#"{"result": [{"type": "choices", "value": {}}]}"#] {
            let context: Context = serde_json::from_str(nothing).expect("it is JSON");
            assert!(context.drawn().is_none(), "{nothing}");
        }
    }
}
