//! Results as messages of ROS 2.

use ocelli::{Detection, pipeline::FrameOutcome};

use crate::messages::{
    BoundingBox2D, Detection2D, Detection2DArray, Header, Image, LabelInfo, ObjectHypothesis,
    ObjectHypothesisWithPose, Pose2D, VisionClass,
};

/// The detections of a frame. `header` is that of the image; it is copied as it is, into each detection as well.
pub fn detection_array(outcome: &FrameOutcome, header: &Header) -> Detection2DArray {
    let detections = outcome.detections.iter().enumerate().map(|(place, detection)| {
        let track = outcome.tracks.iter().find(|track| track.detection == Some(place));
        let bbox = &detection.bbox;
        let [x1, y1, x2, y2] = [bbox.x1, bbox.y1, bbox.x2, bbox.y2].map(f64::from);
        Detection2D {
            header: header.clone(),
            results: vec![ObjectHypothesisWithPose {
                hypothesis: ObjectHypothesis {
                    class_id: detection.label.to_string(),
                    score: f64::from(detection.score),
                },
                ..Default::default()
            }],
            bbox: BoundingBox2D {
                center: Pose2D { position: [(x1 + x2) / 2.0, (y1 + y2) / 2.0], theta: 0.0 },
                size_x: x2 - x1,
                size_y: y2 - y1,
            },
            id: track.map_or_else(String::new, |track| track.id.to_string()),
        }
    });
    Detection2DArray { header: header.clone(), detections: detections.collect() }
}

/// The masks of a frame as one image of the encoding `mono16`: a pixel is 1 plus the place of its detection in the array, the
/// highest score on top, and 0 where there is none.
pub fn instance_image(outcome: &FrameOutcome, header: &Header) -> Image {
    let (width, height) = outcome.size;
    let row = 2 * width as usize;
    let mut data = vec![0; row * height as usize];
    let masks = outcome.detections.iter().enumerate().rev();
    for (place, mask) in masks.filter_map(|(place, Detection { mask, .. })| Some((place, mask.as_ref()?))) {
        let value = u16::try_from(place + 1).unwrap_or(u16::MAX).to_le_bytes();
        for span in mask.spans() {
            for y in span.top..span.bottom {
                let at = y as usize * row + 2 * span.x as usize;
                data[at..at + 2].copy_from_slice(&value);
            }
        }
    }
    Image {
        header: header.clone(),
        height,
        width,
        encoding: "mono16".into(),
        is_bigendian: 0,
        step: 2 * width,
        data,
    }
}

/// The classes and the least score.
pub fn label_info(labels: &[impl AsRef<str>], threshold: f32, header: Header) -> LabelInfo {
    let class_map = labels
        .iter()
        .zip(0..)
        .map(|(label, class_id)| VisionClass { class_id, class_name: label.as_ref().to_owned() });
    LabelInfo { header, class_map: class_map.collect(), threshold }
}

#[cfg(test)]
mod tests {
    use ocelli::tracking::{ByteTracker, ByteTrackerOptions, TrackerDetection};
    use ocelli::{BoundingBox, Mask};

    use super::*;
    use crate::messages::Time;

    fn outcome() -> FrameOutcome {
        let detection = |score, bbox: [f32; 4], pixels: [u8; 8]| Detection {
            class_id: 0,
            label: "red apple".into(),
            score,
            bbox: BoundingBox::new(bbox[0], bbox[1], bbox[2], bbox[3]),
            mask: Some(Mask::from_bitmap(&pixels, 4, 2).expect("eight pixels")),
        };
        let mut outcome = FrameOutcome::default();
        outcome.size = (4, 2);
        outcome.detections = vec![
            detection(0.9, [0.0, 0.0, 2.0, 2.0], [1, 1, 0, 0, 1, 1, 0, 0]),
            detection(0.4, [1.0, 0.0, 4.0, 1.0], [0, 1, 1, 1, 0, 0, 0, 0]),
        ];
        let mut tracker = ByteTracker::new(ByteTrackerOptions::default()).expect("the defaults");
        let first = &outcome.detections[0];
        let found = TrackerDetection { bbox: first.bbox, score: first.score, class_id: 0 };
        outcome.tracks = tracker.update(&[found], 1.0).to_vec();
        outcome
    }

    #[test]
    fn detections_have_the_header_of_the_image_the_phrase_and_the_track() {
        let header = Header { stamp: Time { sec: -3, nanosec: 999_999_999 }, frame_id: "camera/ü".into() };
        let array = detection_array(&outcome(), &header);
        assert_eq!(array.header, header);
        let found: Vec<_> = array
            .detections
            .iter()
            .map(|d| {
                assert_eq!(d.header, header);
                let result = &d.results[0].hypothesis;
                (
                    &*result.class_id,
                    result.score as f32,
                    d.bbox.center.position,
                    d.bbox.size_x,
                    d.bbox.size_y,
                    &*d.id,
                )
            })
            .collect();
        let expected =
            [("red apple", 0.9, [1.0, 1.0], 2.0, 2.0, "1"), ("red apple", 0.4, [2.5, 0.5], 3.0, 1.0, "")];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_highest_score_is_on_top_of_the_instances() {
        let image = instance_image(&outcome(), &Header::default());
        let values: Vec<u16> = image.data.chunks_exact(2).map(|v| u16::from_le_bytes([v[0], v[1]])).collect();
        assert_eq!(values, [1, 1, 2, 2, 1, 1, 0, 0]);
        assert_eq!((image.width, image.height, image.step, &*image.encoding), (4, 2, 8, "mono16"));
    }
}
