//! A selection of a stream's frames: a range, a stride, a maximum.

use std::str::FromStr;
use std::time::Duration;

use super::{Source, SourceInfo};
use crate::frame::Frame;
use ocelli_error::{Error, Result};

/// A position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Position {
    /// The frame with this index, from 0.
    Frame(u64),
    /// The first frame at or after this time.
    Time(Duration),
}

impl Position {
    fn is_reached_by(self, frame: &Frame) -> bool {
        match self {
            Self::Frame(index) => frame.index >= index,
            Self::Time(time) => frame.time >= time,
        }
    }

    /// The approximate number of frames before this position.
    fn frames_before(self, frame_rate: Option<f64>) -> Option<u64> {
        match self {
            Self::Frame(index) => Some(index),
            Self::Time(time) => frame_rate.map(|rate| (time.as_secs_f64() * rate).round() as u64),
        }
    }
}

impl FromStr for Position {
    type Err = String;

    /// Parses seconds (`12.5`, `12.5s`), minutes and seconds (`1:02.5`), or a frame index (`300f`).
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("invalid position {text}: expected seconds (12.5), minutes (1:30) or a frame (300f)");
        if let Some(frame) = text.strip_suffix('f') {
            return frame.parse().map(Self::Frame).map_err(|_| wrong());
        }
        let mut seconds = 0.0;
        for part in text.strip_suffix('s').unwrap_or(text).split(':') {
            let part = part.parse::<f64>().ok().filter(|part| *part >= 0.0);
            seconds = 60.0 * seconds + part.ok_or_else(wrong)?;
        }
        Duration::try_from_secs_f64(seconds).map(Self::Time).map_err(|_| wrong())
    }
}

/// The frames to select; all of them by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Selection {
    /// The first frame.
    pub start: Option<Position>,
    /// The end, exclusive.
    pub end: Option<Position>,
    /// Selects every `stride`th frame, counted from the first; `None` and 1 select each.
    pub stride: Option<u64>,
    /// The maximum number of frames.
    pub max_frames: Option<u64>,
    /// Frames per second of a source that does not state its own.
    pub frame_rate: Option<f64>,
}

/// A source of selected frames, which keep their indices and times.
///
/// Frames before the start are skipped one by one, which is exact in every format but costs their decoding.
#[derive(Debug)]
pub struct Selected<S> {
    source: S,
    info: SourceInfo,
    selection: Selection,
    stride: u64,
    selected: u64,
}

impl<S: Source> Selected<S> {
    /// Selects frames of `source`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the stride is 0, or the end is not after the start.
    pub fn new(source: S, selection: Selection) -> Result<Self> {
        let stride = selection.stride.unwrap_or(1);
        if stride == 0 {
            return Err(Error::argument("stride", 0, "1 for every frame, 2 for every other frame"));
        }
        let is_empty = match (selection.start, selection.end) {
            (Some(Position::Frame(start)), Some(Position::Frame(end))) => end <= start,
            (Some(Position::Time(start)), Some(Position::Time(end))) => end <= start,
            _ => false,
        };
        if is_empty {
            let message = "end is not after start: the selection is empty";
            return Err(Error::invalid_argument(message).about("end"));
        }
        let mut info = source.info().clone();
        info.frame_rate = info.frame_rate.or(selection.frame_rate);
        let before = |position: Option<Position>| position?.frames_before(info.frame_rate);
        let end = [info.frame_count, before(selection.end)].into_iter().flatten().min();
        let start = before(selection.start).unwrap_or(0);
        let in_range = end.map(|end| end.saturating_sub(start).div_ceil(stride));
        info.frame_count = in_range.into_iter().chain(selection.max_frames).min();
        info.frame_rate = info.frame_rate.map(|rate| rate / stride as f64);
        info.shortest_interval = info.shortest_interval.filter(|_| stride == 1);
        Ok(Self { source, info, selection, stride, selected: 0 })
    }
}

impl<S: Source> Source for Selected<S> {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        if self.selection.max_frames.is_some_and(|max| self.selected >= max) {
            return Ok(false);
        }
        let start = self.selection.start.filter(|_| self.selected == 0);
        let skipped = match start {
            Some(Position::Frame(index)) => index,
            _ if self.selected == 0 => 0,
            _ => self.stride - 1,
        };
        for _ in 0..skipped {
            if !self.source.skip(frame)? {
                return Ok(false);
            }
        }
        // A frame's time, and its index in a stream with gaps, is only known once it is read.
        loop {
            if !self.source.read_into(frame)? {
                return Ok(false);
            }
            if start.is_none_or(|start| start.is_reached_by(frame)) {
                break;
            }
        }
        self.selected += 1;
        Ok(!self.selection.end.is_some_and(|end| end.is_reached_by(frame)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames with indices from 0, 10 per second.
    #[derive(Debug)]
    struct Numbers {
        info: SourceInfo,
        next: u64,
    }

    impl Source for Numbers {
        fn info(&self) -> &SourceInfo {
            &self.info
        }

        fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
            frame.index = self.next;
            frame.time = Duration::from_millis(100 * self.next);
            self.next += 1;
            Ok(Some(frame.index) < self.info.frame_count)
        }
    }

    fn numbers(frame_count: u64) -> Numbers {
        let info =
            SourceInfo { frame_rate: Some(10.0), frame_count: Some(frame_count), ..SourceInfo::default() };
        Numbers { info, next: 0 }
    }

    #[test]
    fn positions_are_parsed() {
        let time = |ms| Ok(Position::Time(Duration::from_millis(ms)));
        for (text, expected) in [
            ("0", time(0)),
            ("12.5", time(12_500)),
            ("3s", time(3_000)),
            ("1:02.5", time(62_500)),
            ("1:0:0", time(3_600_000)),
            ("300f", Ok(Position::Frame(300))),
            ("", Err(())),
            ("-1", Err(())),
            ("x", Err(())),
            ("1.5f", Err(())),
            ("nan", Err(())),
            ("1e300", Err(())),
        ] {
            assert_eq!(text.parse::<Position>().map_err(drop), expected, "{text}");
        }
    }

    #[test]
    fn selected_frames_keep_their_indices() {
        let select = |start: &str, end: &str, stride, max_frames| Selection {
            start: start.parse().ok(),
            end: end.parse().ok(),
            stride,
            max_frames,
            frame_rate: None,
        };
        let cases: [(Selection, &[u64]); 11] = [
            (Selection::default(), &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (select("", "", Some(3), None), &[0, 3, 6, 9]),
            (select("", "", Some(1), Some(2)), &[0, 1]),
            (select("4f", "", Some(2), None), &[4, 6, 8]),
            (select("0.45", "0.8", None, None), &[5, 6, 7]),
            (select("2f", "0.5", None, None), &[2, 3, 4]),
            (select("0.3", "7f", Some(2), None), &[3, 5]),
            (select("", "0f", None, None), &[]),
            (select("50f", "", None, None), &[]),
            (select("9", "", None, None), &[]),
            (select("", "", None, Some(0)), &[]),
        ];
        let mut failures = Vec::new();
        for (selection, expected) in cases {
            let mut source = Selected::new(numbers(10), selection).expect("the selection is valid");
            let announced = source.info().frame_count;
            let (mut frame, mut found) = (Frame::default(), Vec::new());
            while source.read_into(&mut frame).expect("numbers never fail") {
                found.push(frame.index);
            }
            if found != expected || announced != Some(expected.len() as u64) {
                failures.push(format!("{selection:?}: {found:?}, announced {announced:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn empty_selections_are_rejected() {
        for (selection, word) in [
            (Selection { stride: Some(0), ..Selection::default() }, "stride is 0"),
            (
                Selection {
                    start: Some(Position::Frame(5)),
                    end: Some(Position::Frame(5)),
                    ..Selection::default()
                },
                "end is not after start",
            ),
        ] {
            let error = Selected::new(numbers(10), selection).expect_err("the selection is empty");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
