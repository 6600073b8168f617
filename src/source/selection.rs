//! Some of a stream's frames: from here to there, every so many.

use std::str::FromStr;
use std::time::Duration;

use super::{Source, SourceInfo};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;

/// A place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The frame of this number, from 0.
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

    /// About how many frames come before it.
    fn frames_before(self, frame_rate: Option<f64>) -> Option<u64> {
        match self {
            Self::Frame(index) => Some(index),
            Self::Time(time) => frame_rate.map(|rate| (time.as_secs_f64() * rate).round() as u64),
        }
    }
}

impl FromStr for Position {
    type Err = String;

    /// `12.5` and `12.5s` are seconds, `1:02.5` minutes and seconds, `300f` is a frame.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("no place in a video, {text}: expected seconds (12.5), minutes (1:30) or a frame (300f)")
        };
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

/// Which frames of a stream are given; all of them by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// From here on.
    pub start: Option<Position>,
    /// Up to here, this one left out.
    pub end: Option<Position>,
    /// Every so many, from the first on; `None` and 1 mean each.
    pub stride: Option<u64>,
    /// At most so many.
    pub max_frames: Option<u64>,
}

/// Some of a source's frames, with the numbers and times that they have there.
///
/// Frames before the start are passed over one by one, which is exact in every format and costs their decoding.
#[derive(Debug)]
pub struct Selected<S> {
    source: S,
    info: SourceInfo,
    selection: Selection,
    given: u64,
}

impl<S: Source> Selected<S> {
    /// Wraps a source.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a stride of 0, or an end that is not after the start.
    pub fn new(source: S, selection: Selection) -> Result<Self> {
        let refuse = |message: &str| Err(Error::new(ErrorKind::InvalidArgument, message));
        let stride = match selection.stride {
            Some(0) => return refuse("--vid-stride is 0: 1 takes every frame, 2 every other"),
            stride => stride.unwrap_or(1),
        };
        let is_empty = match (selection.start, selection.end) {
            (Some(Position::Frame(start)), Some(Position::Frame(end))) => end <= start,
            (Some(Position::Time(start)), Some(Position::Time(end))) => end <= start,
            _ => false,
        };
        if is_empty {
            return refuse("--end is not after --start: no frame lies between");
        }
        let mut info = source.info().clone();
        let before = |place: Option<Position>| place.and_then(|place| place.frames_before(info.frame_rate));
        let end = [info.frame_count, before(selection.end)].into_iter().flatten().min();
        let start = before(selection.start).unwrap_or(0);
        info.frame_count = end
            .map(|end| end.saturating_sub(start).div_ceil(stride))
            .into_iter()
            .chain(selection.max_frames)
            .min();
        info.frame_rate = info.frame_rate.map(|rate| rate / stride as f64);
        Ok(Self { source, info, selection: Selection { stride: Some(stride), ..selection }, given: 0 })
    }

    /// Passes over what comes before the next frame that is wanted.
    fn approach(&mut self, frame: &mut Frame) -> Result<bool> {
        let stride = self.selection.stride.unwrap_or(1);
        if self.given > 0 {
            for _ in 1..stride {
                if !self.source.skip(frame)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

impl<S: Source> Source for Selected<S> {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        if self.selection.max_frames.is_some_and(|most| self.given >= most) || !self.approach(frame)? {
            return Ok(false);
        }
        match self.selection.start {
            Some(start @ Position::Frame(index)) if self.given == 0 => {
                for _ in 0..index {
                    if !self.source.skip(frame)? {
                        return Ok(false);
                    }
                }
                // A stream whose numbers have gaps.
                while self.source.read_into(frame)? {
                    if start.is_reached_by(frame) {
                        return Ok(self.take(frame));
                    }
                }
                Ok(false)
            }
            // When a frame was taken is known once it is there.
            Some(start @ Position::Time(_)) if self.given == 0 => {
                while self.source.read_into(frame)? {
                    if start.is_reached_by(frame) {
                        return Ok(self.take(frame));
                    }
                }
                Ok(false)
            }
            _ => Ok(self.source.read_into(frame)? && self.take(frame)),
        }
    }
}

impl<S> Selected<S> {
    fn take(&mut self, frame: &Frame) -> bool {
        self.given += 1;
        !self.selection.end.is_some_and(|end| end.is_reached_by(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames numbered from 0, 10 a second.
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
    fn places() {
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
    fn what_is_selected_keeps_its_number() {
        let select = |start: &str, end: &str, stride, max_frames| Selection {
            start: start.parse().ok(),
            end: end.parse().ok(),
            stride,
            max_frames,
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
            let mut source = Selected::new(numbers(10), selection).expect("it is a selection");
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
    fn what_selects_nothing_is_refused() {
        for (selection, word) in [
            (Selection { stride: Some(0), ..Selection::default() }, "--vid-stride"),
            (
                Selection {
                    start: Some(Position::Frame(5)),
                    end: Some(Position::Frame(5)),
                    ..Selection::default()
                },
                "--end",
            ),
        ] {
            let error = Selected::new(numbers(10), selection).expect_err("it selects nothing");
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
