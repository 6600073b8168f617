//! Recordings that robots' tools read.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::Sink;
use super::lines::Lines;
use crate::outcome::FrameOutcome;
use ocelli_error::Result;

const MAGIC: &[u8] = b"\x89MCAP0\r\n";
const HEADER: u8 = 0x01;
const FOOTER: u8 = 0x02;
const SCHEMA: u8 = 0x03;
const CHANNEL: u8 = 0x04;
const MESSAGE: u8 = 0x05;
const STATISTICS: u8 = 0x0b;
const DATA_END: u8 = 0x0f;

/// The one schema and the one channel.
const ID: u16 = 1;
const TOPIC: &str = "/detections";
const TYPE: &str = "vision_msgs/msg/Detection2DArray";
/// The definition of the message and of those in it: `vision_msgs` 4.
const DEFINITIONS: &str = include_str!("detection_2d_array.msg");

/// Writes detections as messages of ROS 2, `vision_msgs/Detection2DArray`, in an [MCAP](https://mcap.dev) file, which Foxglove
/// and `ros2 bag` open.
///
/// The topic is `/detections`. The stamp of a message is when its frame was taken, or for recorded frames their time since the
/// start; the frame id is the name of the source if there are several. `class_id` is the label and `id` the track, empty without
/// one. The file has neither chunks nor an index, so that each message reaches it before the next frame is written.
pub struct McapFile {
    lines: Lines,
    /// Bytes written.
    position: u64,
    messages: u64,
    /// The times of the first and the last message in nanoseconds.
    span: (u64, u64),
}

impl McapFile {
    /// A file, or stdout for `-`. The file is created, or emptied, with the first frame.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if it cannot be written.
    pub fn create(path: &Path) -> Result<Self> {
        Ok(Self { lines: Lines::create(path)?, position: 0, messages: 0, span: (u64::MAX, 0) })
    }
}

impl Sink for McapFile {
    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let captured = outcome.captured.and_then(|captured| captured.duration_since(UNIX_EPOCH).ok());
        let stamp = captured.unwrap_or(outcome.time);
        let log_time = u64::try_from(stamp.as_nanos()).unwrap_or(u64::MAX);
        self.span = (self.span.0.min(log_time), self.span.1.max(log_time));
        let Self { lines, position, messages, .. } = self;
        lines.write(|bytes| {
            if *messages == 0 {
                bytes.extend_from_slice(MAGIC);
                record(bytes, HEADER, |content| {
                    content.text("ros2");
                    content.text(concat!("ocelli ", env!("CARGO_PKG_VERSION")));
                });
                describe(bytes);
            }
            record(bytes, MESSAGE, |content| {
                content.bytes(&ID.to_le_bytes());
                content.bytes(&(*messages as u32).to_le_bytes());
                content.bytes(&log_time.to_le_bytes());
                content.bytes(&log_time.to_le_bytes());
                content.bytes(&message(outcome, stamp));
            });
            *messages += 1;
            *position += bytes.len() as u64;
            Ok(())
        })
    }

    fn finish(&mut self) -> Result<()> {
        let Self { lines, position, messages, span } = self;
        if *messages == 0 {
            return Ok(());
        }
        lines.write(|bytes| {
            record(bytes, DATA_END, |content| content.bytes(&[0; 4]));
            let summary = *position + bytes.len() as u64;
            describe(bytes);
            record(bytes, STATISTICS, |content| {
                content.bytes(&messages.to_le_bytes());
                content.bytes(&1u16.to_le_bytes());
                for count in [1u32, 0, 0, 0] {
                    content.bytes(&count.to_le_bytes());
                }
                content.bytes(&span.0.to_le_bytes());
                content.bytes(&span.1.to_le_bytes());
                // Messages by channel: the bytes of the map, a key, a value.
                content.bytes(&10u32.to_le_bytes());
                content.bytes(&ID.to_le_bytes());
                content.bytes(&messages.to_le_bytes());
            });
            record(bytes, FOOTER, |content| {
                content.bytes(&summary.to_le_bytes());
                content.bytes(&[0; 12]);
            });
            bytes.extend_from_slice(MAGIC);
            Ok(())
        })
    }
}

/// The schema and the channel, which stand before the messages and in the summary.
fn describe(bytes: &mut Vec<u8>) {
    record(bytes, SCHEMA, |content| {
        content.bytes(&ID.to_le_bytes());
        content.text(TYPE);
        content.text("ros2msg");
        content.text(DEFINITIONS);
    });
    record(bytes, CHANNEL, |content| {
        content.bytes(&ID.to_le_bytes());
        content.bytes(&ID.to_le_bytes());
        content.text(TOPIC);
        content.text("cdr");
        // No metadata.
        content.bytes(&[0; 4]);
    });
}

/// A record of MCAP: its kind, its length, its content.
fn record(bytes: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Content<'_>)) {
    bytes.push(kind);
    let start = bytes.len() + 8;
    bytes.extend_from_slice(&[0; 8]);
    fill(&mut Content(bytes));
    let length = (bytes.len() - start) as u64;
    bytes[start - 8..start].copy_from_slice(&length.to_le_bytes());
}

struct Content<'b>(&'b mut Vec<u8>);

impl Content<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(&(text.len() as u32).to_le_bytes());
        self.bytes(text.as_bytes());
    }
}

/// The message in CDR, the serialisation of ROS 2.
fn message(outcome: &FrameOutcome, stamp: Duration) -> Vec<u8> {
    // Plain CDR, little-endian.
    let mut cdr = Cdr(vec![0, 1, 0, 0]);
    let frame_id: Arc<str> = outcome.origin.as_ref().map_or_else(|| "".into(), |origin| origin.name.clone());
    let header = |cdr: &mut Cdr| {
        cdr.u32(stamp.as_secs() as u32);
        cdr.u32(stamp.subsec_nanos());
        cdr.text(&frame_id);
    };
    let ids: HashMap<usize, u64> =
        outcome.tracks.iter().filter_map(|track| Some((track.detection?, track.id))).collect();
    header(&mut cdr);
    cdr.u32(outcome.detections.len() as u32);
    for (place, detection) in outcome.detections.iter().enumerate() {
        header(&mut cdr);
        cdr.u32(1);
        cdr.text(&detection.label);
        cdr.f64s([f64::from(detection.score)]);
        // A pose at the origin, without rotation, and its covariance.
        cdr.f64s([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
        cdr.f64s([0.0; 36]);
        let [x1, y1, x2, y2] =
            [detection.bbox.x1, detection.bbox.y1, detection.bbox.x2, detection.bbox.y2].map(f64::from);
        cdr.f64s([(x1 + x2) / 2.0, (y1 + y2) / 2.0, 0.0, x2 - x1, y2 - y1]);
        cdr.text(&ids.get(&place).map_or_else(String::new, u64::to_string));
    }
    cdr.0
}

/// Values are aligned to their size, counted from after the first four bytes.
struct Cdr(Vec<u8>);

impl Cdr {
    fn align(&mut self, to: usize) {
        self.0.resize((self.0.len() - 4).next_multiple_of(to) + 4, 0);
    }

    fn u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn f64s<const N: usize>(&mut self, values: [f64; N]) {
        self.align(8);
        values.iter().for_each(|value| self.0.extend_from_slice(&value.to_le_bytes()));
    }

    /// With a zero at its end, which counts.
    fn text(&mut self, text: &str) {
        self.u32(text.len() as u32 + 1);
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }
}

#[cfg(test)]
mod tests {
    use ocelli_tracking::{BoundingBox, ByteTracker, ByteTrackerOptions, TrackerDetection};

    use super::*;
    use crate::detection::Detection;
    use crate::frame::Origin;

    /// The message `detections` of `integrations/robot/tests/golden/cdr.txt`, written by rosbags: the boxes are 9, 18, 12, 22.5 and
    /// −0.5, −0.875, 0.5, 1.125.
    fn outcome() -> FrameOutcome {
        let detection = |label: &str, score, [x1, y1, x2, y2]: [f32; 4]| Detection {
            class_id: 0,
            label: label.into(),
            score,
            bbox: BoundingBox::new(x1, y1, x2, y2),
            mask: None,
        };
        let mut tracker = ByteTracker::new(ByteTrackerOptions::default()).expect("the defaults");
        let mut outcome = FrameOutcome {
            time: Duration::new(1_700_000_000, 999_999_999),
            origin: Some(Origin { number: 0, name: "camera/ü".into(), frame_rate: None }),
            detections: vec![
                detection("red apple", 0.875, [9.0, 18.0, 12.0, 22.5]),
                detection("犬", 0.5, [-0.5, -0.875, 0.5, 1.125]),
            ],
            ..FrameOutcome::default()
        };
        let first = &outcome.detections[0];
        let found = TrackerDetection { bbox: first.bbox, score: first.score, class_id: 0 };
        outcome.tracks = tracker.update(&[found], 1.0).to_vec();
        outcome.tracks[0].id = 17;
        outcome
    }

    #[test]
    fn messages_are_those_of_rosbags() {
        let goldens = include_str!("../../integrations/robot/tests/golden/cdr.txt");
        let expected =
            goldens.lines().find_map(|line| line.strip_prefix("detections ")).expect("it is there");
        let outcome = outcome();
        let found: String =
            message(&outcome, outcome.time).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn records_follow_each_other_to_the_end_of_the_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("out.mcap");
        let mut sink = McapFile::create(&file).expect("it can be written");
        assert!(!file.exists(), "nothing is written before the first frame");
        for _ in 0..2 {
            sink.write(&outcome()).expect("it can be written");
        }
        sink.finish().expect("it can be written");
        let bytes = std::fs::read(&file).expect("it was written");
        let mut rest =
            bytes.strip_prefix(MAGIC).and_then(|rest| rest.strip_suffix(MAGIC)).expect("both ends");
        let mut kinds = Vec::new();
        let mut summary = 0;
        while let [kind, more @ ..] = rest {
            let (length, more) = more.split_at(8);
            let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
            if kinds.last() == Some(&DATA_END) {
                summary = bytes.len() - MAGIC.len() - rest.len();
            }
            if *kind == FOOTER {
                assert_eq!(more[..8], (summary as u64).to_le_bytes(), "the footer points to the summary");
            }
            kinds.push(*kind);
            rest = &more[length..];
        }
        let expected =
            [HEADER, SCHEMA, CHANNEL, MESSAGE, MESSAGE, DATA_END, SCHEMA, CHANNEL, STATISTICS, FOOTER];
        assert_eq!(kinds, expected);
    }
}
