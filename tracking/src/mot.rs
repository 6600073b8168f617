//! The text format of the MOTChallenge benchmark.
//!
//! One box a line: `frame,id,left,top,width,height,score,class,-1,-1`. Frames count from 1; the id of a box without a track
//! is -1; coordinates are fractional pixels. The benchmark's files of detections have three world coordinates at the end,
//! -1,-1,-1, which are ignored; in its ground truth, and in the files of many detectors, the first of the three is the class.

use std::io::{BufRead, Read, Write};

use crate::{BoundingBox, Track, TrackerDetection};
use ocelli_error::{Error, ErrorKind, Result, refuse};

/// The longest line that is read.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// One line of a MOTChallenge file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MotBox {
    /// The frame, from 1.
    pub frame: u32,
    /// The id of the track, `None` for a detection without one.
    pub id: Option<u64>,
    /// The box.
    pub bbox: BoundingBox,
    /// The score, 1 if the line has none. The public detections of the benchmark have scores outside 0 to 1.
    pub score: f32,
    /// The class, if the eighth number is an integer of at least 0.
    pub class_id: Option<usize>,
}

impl MotBox {
    /// The box as input of a tracker; without a class it is of class 0.
    pub fn to_detection(&self) -> TrackerDetection {
        TrackerDetection { bbox: self.bbox, score: self.score, class_id: self.class_id.unwrap_or(0) }
    }
}

/// Reads all boxes, sorted by frame and in file order within a frame; `name` stands for the file in errors.
///
/// A line needs at least the first six numbers. The eighth is the class if it is an integer of at least 0; later columns
/// are ignored. Empty lines, spaces around numbers and Windows line ends are accepted, and so are boxes without area,
/// which a tracker ignores.
///
/// # Errors
/// [`ErrorKind::InvalidData`] with the number of the first invalid line and what is wrong with it; [`ErrorKind::Io`] if
/// reading fails.
pub fn read_mot(name: &str, mut reader: impl BufRead) -> Result<Vec<MotBox>> {
    let mut boxes = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let invalid =
            |why: String| Error::invalid_data(format!("cannot read boxes, {name}, line {number}: {why}"));
        // One byte above the limit reveals a line without an end.
        let mut limited = reader.by_ref().take(MAX_LINE_BYTES + 1);
        let read = limited.read_until(b'\n', &mut line).map_err(|error| {
            let message = format!("cannot read boxes, {name}, line {number}: {error}");
            Error::new(ErrorKind::Io, message).with_source(error)
        })?;
        if read == 0 {
            break;
        }
        if line.len() as u64 > MAX_LINE_BYTES {
            let most = MAX_LINE_BYTES >> 20;
            return Err(invalid(format!("it is longer than {most} MiB; is this a MOTChallenge file?")));
        }
        let parsed = std::str::from_utf8(&line)
            .map_err(|_| "the line is not UTF-8 text; is this a MOTChallenge file?".to_owned())
            .map(|text| text.trim_start_matches('\u{feff}').trim())
            .and_then(|text| if text.is_empty() { Ok(None) } else { parse_line(text).map(Some) });
        boxes.extend(parsed.map_err(invalid)?);
    }
    boxes.sort_by_key(|found| found.frame);
    Ok(boxes)
}

fn parse_line(text: &str) -> Result<MotBox, String> {
    const LAYOUT: &str = "frame,id,left,top,width,height,score";
    let mut fields = text.split(',').map(str::trim);
    let mut next = |field: &str| {
        fields.next().ok_or_else(|| format!("no {field}; expected {LAYOUT} separated by commas"))
    };
    // numpy writes integers as `1.0` or `1e2`.
    let frame = number("frame", next("frame")?)?;
    if frame < 1.0 || frame > f64::from(u32::MAX) || frame.fract() != 0.0 {
        return Err(format!("the frame is {frame}; expected an integer from 1"));
    }
    let id = number("id", next("id")?)?;
    if id.fract() != 0.0 || id.abs() > (1u64 << 53) as f64 {
        return Err(format!("the id is {id}; expected an integer, -1 for none"));
    }
    let mut ltwh = [0.0f32; 4];
    for (value, field) in ltwh.iter_mut().zip(["left", "top", "width", "height"]) {
        *value = single(field, next(field)?)?;
    }
    let score = fields.next().map_or(Ok(1.0), |text| single("score", text))?;
    let bbox = BoundingBox::from_ltwh(ltwh);
    if !bbox.is_finite() {
        return Err(format!("the box {ltwh:?} exceeds the range of f32"));
    }
    // A world coordinate, most often -1, is not a class.
    let class = fields.next().and_then(|text| text.parse::<f64>().ok());
    let class = class.filter(|class| *class >= 0.0 && class.fract() == 0.0 && *class <= f64::from(u32::MAX));
    let class_id = class.map(|class| class as usize);
    Ok(MotBox { frame: frame as u32, id: (id >= 0.0).then_some(id as u64), bbox, score, class_id })
}

fn number(field: &str, text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(format!("the {field} is {text:?}; expected a finite number")),
    }
}

fn single(field: &str, text: &str) -> Result<f32, String> {
    let value = number(field, text)? as f32;
    if value.is_finite() {
        Ok(value)
    } else {
        Err(format!("the {field} is {text:?}; expected at most {:e}", f32::MAX))
    }
}

/// A length in pixels with at most two decimals, in `f64`, whose shortest decimal form then has no further digits.
fn hundredths(length: f32) -> f64 {
    (f64::from(length) * 100.0).round() / 100.0
}

/// Writes tracks frame by frame.
///
/// Each frame is one write of complete lines: an unbuffered file ends with a complete line even if the program dies.
#[derive(Debug)]
pub struct MotWriter<W> {
    writer: W,
    name: String,
    classes: bool,
    lines: Vec<u8>,
}

impl<W: Write> MotWriter<W> {
    /// Writes to `writer`; `name` stands for it in errors.
    pub fn new(name: impl Into<String>, writer: W) -> Self {
        Self { writer, name: name.into(), classes: false, lines: Vec::new() }
    }

    /// Writes the class as the eighth number; it is -1 by default.
    #[must_use]
    pub fn with_classes(mut self, classes: bool) -> Self {
        self.classes = classes;
        self
    }

    /// Writes the tracks of one frame, counted from 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for frame 0, [`ErrorKind::Io`] if writing fails.
    pub fn write(&mut self, frame: u32, tracks: &[Track]) -> Result<()> {
        if frame == 0 {
            refuse!("cannot write tracks, {}: frame 0; expected a frame from 1", self.name);
        }
        self.lines.clear();
        for Track { id, bbox, score, class_id, .. } in tracks {
            let [left, top, width, height] = bbox.to_ltwh().map(hundredths);
            write!(self.lines, "{frame},{id},{left},{top},{width},{height},{score},")
                .expect("writing to a vector does not fail");
            let class: &dyn std::fmt::Display = if self.classes { class_id } else { &-1 };
            writeln!(self.lines, "{class},-1,-1").expect("writing to a vector does not fail");
        }
        if self.lines.is_empty() {
            return Ok(());
        }
        self.writer.write_all(&self.lines).map_err(|error| self.failed(error))
    }

    /// Flushes and returns the writer.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the flush fails.
    pub fn finish(mut self) -> Result<W> {
        self.writer.flush().map_err(|error| self.failed(error))?;
        Ok(self.writer)
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::new(ErrorKind::Io, format!("cannot write tracks, {}: {error}", self.name)).with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use super::{MotBox, MotWriter, read_mot};
    use crate::{BoundingBox, ByteTracker, ByteTrackerOptions, TrackerDetection};
    use ocelli_error::ErrorKind;

    fn found(frame: u32, id: Option<u64>, ltwh: [f32; 4], score: f32) -> MotBox {
        MotBox { frame, id, bbox: BoundingBox::from_ltwh(ltwh), score, class_id: None }
    }

    #[test]
    fn lines_of_the_benchmark_are_read() {
        let cases: &[(&str, &[MotBox])] = &[
            ("", &[]),
            ("\n \r\n", &[]),
            ("1,-1,10,20,30,40,0.9,-1,-1,-1\n", &[found(1, None, [10.0, 20.0, 30.0, 40.0], 0.9)]),
            ("\u{feff}1,-1,-10.5,20,30,40,-3.5\r\n", &[found(1, None, [-10.5, 20.0, 30.0, 40.0], -3.5)]),
            ("3, 7, 1, 2, 3, 4", &[found(3, Some(7), [1.0, 2.0, 3.0, 4.0], 1.0)]),
            (
                "1.0,2e0,1,2,3,4,1,7,0.25",
                &[MotBox { class_id: Some(7), ..found(1, Some(2), [1.0, 2.0, 3.0, 4.0], 1.0) }],
            ),
            ("1,2,1,2,3,4,1,3.5,-1,0", &[found(1, Some(2), [1.0, 2.0, 3.0, 4.0], 1.0)]),
            ("1,2,1,2,3,4,1,x", &[found(1, Some(2), [1.0, 2.0, 3.0, 4.0], 1.0)]),
            (
                "2,1,0,0,1,1,1\n1,2,0,0,1,1,1\n2,0,0,0,1,1,1\n",
                &[
                    found(1, Some(2), [0.0, 0.0, 1.0, 1.0], 1.0),
                    found(2, Some(1), [0.0, 0.0, 1.0, 1.0], 1.0),
                    found(2, Some(0), [0.0, 0.0, 1.0, 1.0], 1.0),
                ],
            ),
            ("1,1,5,5,0,-2,1", &[found(1, Some(1), [5.0, 5.0, 0.0, -2.0], 1.0)]),
        ];
        let mut failures = Vec::new();
        for &(text, expected) in cases {
            match read_mot("t.txt", text.as_bytes()) {
                Ok(came) if came == expected => {}
                came => failures.push(format!("{text:?}: {came:?}, expected {expected:?}")),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn errors_name_the_line() {
        let cases: &[(&[u8], &str)] = &[
            (b"1,1,1,1,1,1\nframe,id,left\n", "line 2: the frame is \"frame\"; expected a finite number"),
            (b"\n\n0,1,1,1,1,1,1", "line 3: the frame is 0; expected an integer from 1"),
            (b"1.5,1,1,1,1,1,1", "line 1: the frame is 1.5;"),
            (b"-1,1,1,1,1,1,1", "line 1: the frame is -1;"),
            (b"5000000000,1,1,1,1,1,1", "line 1: the frame is 5000000000;"),
            (b"1,0.5,1,1,1,1,1", "line 1: the id is 0.5;"),
            (b"1,1,1,1,1", "line 1: no height;"),
            (b"1 1 1 1 1 1", "line 1: the frame is \"1 1 1 1 1 1\";"),
            (b"1,1,nan,1,1,1,1", "line 1: the left is \"nan\";"),
            (b"1,1,1,1,inf,1,1", "line 1: the width is \"inf\";"),
            (b"1,1,1,1,1e39,1,1", "line 1: the width is \"1e39\"; expected at most"),
            (b"1,1,3e38,1,3e38,1,1", "line 1: the box"),
            (b"1,1,1,1,1,1,", "line 1: the score is \"\";"),
            (b"1,1,1,1,1,1,1\n\xff\xd8\n", "line 2: the line is not UTF-8 text"),
        ];
        let mut failures = Vec::new();
        for &(text, expected) in cases {
            let text_shown = String::from_utf8_lossy(text);
            match read_mot("t.txt", text) {
                Err(error)
                    if error.kind() == ErrorKind::InvalidData
                        && error
                            .to_string()
                            .starts_with(&format!("cannot read boxes, t.txt, {expected}")) => {}
                came => failures.push(format!("{text_shown:?}: {came:?}, expected {expected}")),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let endless = vec![b'1'; super::MAX_LINE_BYTES as usize + 2];
        let error = read_mot("t.txt", endless.as_slice()).expect_err("it has no end");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("t.txt, line 1: it is longer than 64 MiB"), "{error}");
    }

    #[test]
    fn tracks_round_trip() {
        let mut tracker = ByteTracker::new(ByteTrackerOptions { min_hits: Some(1), ..Default::default() })
            .expect("1 is the least");
        let mut writer = MotWriter::new("memory", Vec::new());
        let mut expected = Vec::new();
        for frame in 1..=20u32 {
            let seen =
                [[0.25, 3.0, 40.0, 50.0], [300.0, 1.5, 17.0, 99.0]].map(|[x, y, w, h]| TrackerDetection {
                    bbox: BoundingBox::from_ltwh([x + frame as f32, y, w, h]),
                    score: 0.75,
                    class_id: 0,
                });
            // Frame 5 is empty: no line says so.
            let tracks = tracker.update(if frame == 5 { &[] } else { &seen }, 1.0);
            writer.write(frame, tracks).expect("memory takes it");
            expected.extend(tracks.iter().map(|track| (frame, track.id, track.bbox, track.score)));
        }
        let text = writer.finish().expect("memory needs no flush");
        assert!(text.starts_with(b"1,1,1.25,3,40,50,0.75,-1,-1,-1\n1,2,301,1.5,17,99,0.75,-1,-1,-1\n2,1,"));
        let read = read_mot("memory", text.as_slice()).expect("what was written");
        assert_eq!((read.len(), expected.len()), (38, 38));
        for (came, (frame, id, bbox, score)) in read.iter().zip(expected) {
            assert_eq!((came.frame, came.id, came.score), (frame, Some(id), score));
            let off = came.bbox.to_xyxy().into_iter().zip(bbox.to_xyxy()).map(|(a, b)| (a - b).abs());
            assert!(off.fold(0.0, f32::max) < 0.0102, "{came:?} is not {bbox:?}");
        }
    }

    #[test]
    fn a_failed_write_is_an_error_that_names_the_file() {
        let mut tracker = ByteTracker::new(ByteTrackerOptions { min_hits: Some(1), ..Default::default() })
            .expect("1 is the least");
        let bbox = BoundingBox::new(0.0, 0.0, 9.0, 9.0);
        let tracks = tracker.update(&[TrackerDetection { bbox, score: 0.9, class_id: 0 }], 1.0);
        let mut room = [0u8; 10];
        let mut writer = MotWriter::new("out.txt", room.as_mut_slice());
        let error = writer.write(1, tracks).expect_err("a line is longer than 10 bytes");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().starts_with("cannot write tracks, out.txt: "), "{error}");
        let error = writer.write(0, tracks).expect_err("there is no frame 0");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}
