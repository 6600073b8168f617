//! Arguments of the tracker.

use clap::{Args, ValueEnum};
use ocelli::{Error, ErrorKind, Result};
use ocelli_tracking::{ByteTrackerOptions, MatchClasses};

/// How objects are tracked from frame to frame.
///
/// Every overlap is a minimum IoU. `match_thresh` of other trackers is a maximum cost, 1 − IoU, so it is not an alias here.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Tracking")]
pub struct TrackerArgs {
    /// Minimum score of detections that are matched first [default: 0.5]
    #[arg(long, alias = "track-high-thresh", value_name = "SCORE", allow_negative_numbers = true)]
    pub track_thresh: Option<f32>,
    /// Minimum score of detections that continue a track [default: 0.1]
    #[arg(long, alias = "track-low-thresh", value_name = "SCORE", allow_negative_numbers = true)]
    pub low_thresh: Option<f32>,
    /// Minimum score to start a track [default: 0.05 above --track-thresh]
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    pub new_track_thresh: Option<f32>,
    /// Minimum IoU of a track and a high-score detection [default: 0.5]
    #[arg(long, value_name = "IOU", allow_negative_numbers = true)]
    pub match_thresh: Option<f32>,
    /// Minimum IoU of a track and a low-score detection [default: 0.4]
    #[arg(long, value_name = "IOU", allow_negative_numbers = true)]
    pub low_match_thresh: Option<f32>,
    /// Minimum IoU of a lost track and an unmatched high-score detection, if below --match-thresh [default: 0.5]
    #[arg(long, value_name = "IOU", allow_negative_numbers = true)]
    pub lost_match_thresh: Option<f32>,
    /// Consecutive detections that confirm a track [default: 2; 1 with a score of --sure-thresh]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub min_hits: Option<u32>,
    /// Minimum score that confirms a track at once [default: 0.8; off with --min-hits]
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    pub sure_thresh: Option<f32>,
    /// Frames after which a lost track is deleted [default: 30]
    #[arg(long, alias = "track-buffer", value_name = "FRAMES", allow_negative_numbers = true)]
    pub max_time_lost: Option<u32>,
    /// Detections that a track may match: those of the same class, or of any class [default: same]
    #[arg(long, value_name = "WHICH")]
    match_classes: Option<ClassMatching>,
    /// Frames for which a lost track is shown at its predicted place [default: 0]
    #[arg(long, value_name = "FRAMES", allow_negative_numbers = true)]
    pub coast: Option<u32>,
}

/// Which detections a track may match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClassMatching {
    // Documented variants would double the length of `--help`.
    Any,
    Same,
}

impl TrackerArgs {
    /// The flag of the first option that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--track-thresh", self.track_thresh.is_some()),
            ("--low-thresh", self.low_thresh.is_some()),
            ("--new-track-thresh", self.new_track_thresh.is_some()),
            ("--match-thresh", self.match_thresh.is_some()),
            ("--low-match-thresh", self.low_match_thresh.is_some()),
            ("--lost-match-thresh", self.lost_match_thresh.is_some()),
            ("--min-hits", self.min_hits.is_some()),
            ("--sure-thresh", self.sure_thresh.is_some()),
            ("--max-time-lost", self.max_time_lost.is_some()),
            ("--match-classes", self.match_classes.is_some()),
            ("--coast", self.coast.is_some()),
        ];
        given.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    /// A tracker's options, from the arguments.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] names the flag whose number is out of its range.
    pub fn options(&self) -> Result<ByteTrackerOptions> {
        for (flag, value) in [
            ("--track-thresh", self.track_thresh),
            ("--low-thresh", self.low_thresh),
            ("--new-track-thresh", self.new_track_thresh),
            ("--match-thresh", self.match_thresh),
            ("--low-match-thresh", self.low_match_thresh),
            ("--lost-match-thresh", self.lost_match_thresh),
            ("--sure-thresh", self.sure_thresh),
        ] {
            if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                return Err(refused(&format!("{flag} is {value}: expected a number from 0 to 1")));
            }
        }
        for (flag, value) in [("--min-hits", self.min_hits), ("--max-time-lost", self.max_time_lost)] {
            if value == Some(0) {
                return Err(refused(&format!("{flag} is 0: expected at least 1")));
            }
        }
        let mut options = ByteTrackerOptions::default();
        options.track_threshold = self.track_thresh.unwrap_or(options.track_threshold);
        if let Some(low) = self.low_thresh.filter(|&low| low > options.track_threshold) {
            let track = options.track_threshold;
            return Err(refused(&format!("--low-thresh is {low}: expected at most --track-thresh, {track}")));
        }
        options.low_threshold = self.low_thresh;
        options.new_track_threshold = self.new_track_thresh;
        options.match_iou = self.match_thresh.unwrap_or(options.match_iou);
        options.low_match_iou = self.low_match_thresh.unwrap_or(options.low_match_iou);
        options.lost_match_iou = self.lost_match_thresh.unwrap_or(options.lost_match_iou);
        options.sure_threshold = self.sure_thresh;
        options.min_hits = self.min_hits;
        options.max_time_lost = self.max_time_lost.unwrap_or(options.max_time_lost);
        options.coast_frames = self.coast.unwrap_or(options.coast_frames);
        options.match_classes = match self.match_classes {
            Some(ClassMatching::Any) => MatchClasses::Any,
            Some(ClassMatching::Same) | None => MatchClasses::Same,
        };
        options.validate()?;
        Ok(options)
    }
}

fn refused(message: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        tracker: TrackerArgs,
    }

    fn options(arguments: &str) -> Result<ByteTrackerOptions, String> {
        let arguments = std::iter::once("program").chain(arguments.split_whitespace());
        let parsed = Arguments::try_parse_from(arguments).map_err(|error| error.to_string())?;
        parsed.tracker.options().map_err(|error| error.to_string())
    }

    #[test]
    fn without_flags_the_defaults_apply() {
        assert_eq!(options(""), Ok(ByteTrackerOptions::default()));
    }

    #[test]
    fn flags_set_options_and_dependent_defaults() {
        type Check = fn(&ByteTrackerOptions) -> bool;
        let cases: &[(&str, Check)] = &[
            ("--track-thresh 0.3", |o| {
                o.track_threshold == 0.3 && (o.new_track_threshold() - 0.35).abs() < 1e-6
            }),
            ("--track-thresh 0.05", |o| o.low_threshold() == 0.05),
            ("--track-high-thresh 0.4 --track-low-thresh 0.2", |o| o.low_threshold() == 0.2),
            ("--new-track-thresh 0.7", |o| o.new_track_threshold() == 0.7 && o.track_threshold == 0.5),
            ("--match-thresh 0.2 --low-match-thresh 0.1", |o| o.match_iou == 0.2 && o.low_match_iou == 0.1),
            ("--lost-match-thresh 0", |o| o.lost_match_iou == 0.0),
            ("--min-hits 4", |o| o.min_hits() == 4 && o.sure_threshold().is_none()),
            ("--min-hits 4 --sure-thresh 0.9", |o| o.sure_threshold() == Some(0.9)),
            ("--track-buffer 60 --coast 5", |o| o.max_time_lost == 60 && o.coast_frames == 5),
            ("--match-classes any", |o| o.match_classes == MatchClasses::Any),
        ];
        let mut failures = Vec::new();
        for (arguments, check) in cases {
            match options(arguments) {
                Ok(options) if check(&options) => {}
                other => failures.push(format!("{arguments}: {other:?}")),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn numbers_out_of_range_name_their_flag() {
        let cases = [
            ("--track-thresh 1.5", "--track-thresh is 1.5: expected a number from 0 to 1"),
            ("--match-thresh -1", "--match-thresh is -1"),
            ("--sure-thresh nan", "--sure-thresh is NaN"),
            ("--low-thresh 0.6", "--low-thresh is 0.6: expected at most --track-thresh, 0.5"),
            ("--min-hits 0", "--min-hits is 0: expected at least 1"),
            ("--max-time-lost 0", "--max-time-lost is 0"),
            ("--match-classes some", "possible values: any, same"),
        ];
        let mut failures = Vec::new();
        for (arguments, expected) in cases {
            match options(arguments) {
                Err(message) if message.contains(expected) => {}
                other => failures.push(format!("{arguments}: {other:?}, expected {expected:?}")),
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
