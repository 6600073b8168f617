//! Arguments of the tracker.

use clap::Args;
use ocelli::Result;
use ocelli_tracking::{ByteTrackerOptions, MatchClasses};

use super::one_of;

/// How objects are tracked from frame to frame.
///
/// Every overlap is a minimum IoU. `match_thresh` of other trackers is a maximum cost, 1 − IoU, so it is not an alias here.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Tracking")]
pub struct TrackerArgs {
    /// Minimum score of detections that are matched first [default: 0.5]
    #[arg(long = "track-thresh", alias = "track-high-thresh", value_name = "SCORE")]
    pub track_threshold: Option<f32>,
    /// Minimum score of detections that continue a track [default: 0.1]
    #[arg(long = "low-thresh", alias = "track-low-thresh", value_name = "SCORE")]
    pub low_threshold: Option<f32>,
    /// Minimum score to start a track [default: 0.05 above --track-thresh]
    #[arg(long = "new-track-thresh", value_name = "SCORE")]
    pub new_track_threshold: Option<f32>,
    /// Minimum IoU of a track and a high-score detection [default: 0.5]
    #[arg(long = "match-thresh", value_name = "IOU")]
    pub match_iou: Option<f32>,
    /// Minimum IoU of a track and a low-score detection [default: 0.4]
    #[arg(long = "low-match-thresh", value_name = "IOU")]
    pub low_match_iou: Option<f32>,
    /// Minimum IoU of a lost track and an unmatched high-score detection, if below --match-thresh [default: 0.5]
    #[arg(long = "lost-match-thresh", value_name = "IOU")]
    pub lost_match_iou: Option<f32>,
    /// Consecutive detections that confirm a track [default: 2; 1 with a score of --sure-thresh]
    #[arg(long, value_name = "N")]
    pub min_hits: Option<u32>,
    /// Minimum score that confirms a track at once [default: 0.8; off with --min-hits]
    #[arg(long = "sure-thresh", value_name = "SCORE")]
    pub sure_threshold: Option<f32>,
    /// Frames after which a lost track is deleted [default: 30]
    #[arg(long, alias = "track-buffer", value_name = "FRAMES")]
    pub max_time_lost: Option<u32>,
    /// Detections that a track may match: those of the same class, or of any class [default: same]
    #[arg(long, value_name = "WHICH", value_parser = one_of::<MatchClasses>(&["any", "same"]))]
    match_classes: Option<MatchClasses>,
    /// Frames for which a lost track is shown at its predicted place [default: 0]
    #[arg(long = "coast", value_name = "FRAMES")]
    pub coast_frames: Option<u32>,
}

impl TrackerArgs {
    /// A tracker's options, from the arguments.
    pub fn options(&self) -> Result<ByteTrackerOptions> {
        let mut options = ByteTrackerOptions::default();
        options.track_threshold = self.track_threshold.unwrap_or(options.track_threshold);
        options.low_threshold = self.low_threshold;
        options.new_track_threshold = self.new_track_threshold;
        options.match_iou = self.match_iou.unwrap_or(options.match_iou);
        options.low_match_iou = self.low_match_iou.unwrap_or(options.low_match_iou);
        options.lost_match_iou = self.lost_match_iou.unwrap_or(options.lost_match_iou);
        options.sure_threshold = self.sure_threshold;
        options.min_hits = self.min_hits;
        options.max_time_lost = self.max_time_lost.unwrap_or(options.max_time_lost);
        options.coast_frames = self.coast_frames.unwrap_or(options.coast_frames);
        options.match_classes = self.match_classes.unwrap_or_default();
        options.validate()?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches, Parser};
    use ocelli::Error;

    use super::*;
    use crate::flags::with_flag;
    use crate::matches::matches_of;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        tracker: TrackerArgs,
    }

    fn options(arguments: &str) -> Result<ByteTrackerOptions, String> {
        let arguments = std::iter::once("program").chain(arguments.split_whitespace());
        let command = Arguments::command();
        let parsed = matches_of(command.clone(), arguments.map(Into::into).collect())
            .and_then(|matches| Arguments::from_arg_matches(&matches))
            .map_err(|error| error.to_string())?;
        let spelled = |error: Error| with_flag(&error.to_string(), error.parameter(), &command, &command);
        parsed.tracker.options().map_err(spelled)
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
            ("--low-thresh 0.6", "--low-thresh is 0.6: expected at most track_threshold, which is 0.5"),
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
