//! A detector whose settings change while frames arrive.

use std::sync::Arc;
use std::time::Duration;

use ocelli::tracking::{ByteTracker, ByteTrackerOptions, Track, TrackerDetection, frames_between};
use ocelli::{Detector, FrameView, Prompts, Result, pipeline::FrameOutcome, stages::EmbeddedPrompts};

use crate::settings::Settings;

/// A detector and a tracker whose [`Settings`] change while frames arrive.
///
/// The results are those of [`Pipeline`](ocelli::Pipeline) with the same options. Changing classes or the confidence keeps
/// the engines.
pub struct LiveDetector {
    settings: Settings,
    detector: Detector,
    prompts: EmbeddedPrompts,
    labels: Arc<[Arc<str>]>,
    tracker: Option<ByteTracker>,
    /// The detections as the tracker takes them.
    tracked: Vec<TrackerDetection>,
    /// The last id of trackers that a change has ended; ids are never used twice.
    ids_before: u64,
    last_id: u64,
    next_index: u64,
    previous: Option<Duration>,
}

impl LiveDetector {
    /// Loads a model.
    ///
    /// # Errors
    /// As [`Settings::check`], [`DetectorBuilder::build`](ocelli::DetectorBuilder::build) and [`Detector::prepare`].
    pub fn new(settings: Settings) -> Result<Self> {
        settings.check()?;
        let (detector, prompts, labels) = load(&settings)?;
        let tracker = settings.track.then(new_tracker).transpose()?;
        Ok(Self {
            settings,
            detector,
            prompts,
            labels,
            tracker,
            tracked: Vec::new(),
            ids_before: 0,
            last_id: 0,
            next_index: 0,
            previous: None,
        })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The least score of a detection: that of the settings, or the model's own.
    pub fn confidence(&self) -> f32 {
        self.settings.confidence.unwrap_or(self.detector.model().manifest().thresholds.confidence)
    }

    /// The classes as they are reported.
    pub fn labels(&self) -> &[Arc<str>] {
        &self.labels
    }

    /// The engine, for users.
    pub fn engine(&self) -> &str {
        self.detector.engine()
    }

    /// Changes the settings for the frames that follow. Tracks end when the classes change or tracking is switched.
    ///
    /// # Errors
    /// As [`new`](Self::new); the settings stay as they were.
    pub fn change(&mut self, settings: Settings) -> Result<()> {
        settings.check()?;
        let old = &self.settings;
        let kept = Settings {
            classes: old.classes.clone(),
            confidence: old.confidence,
            track: old.track,
            frame_rate: old.frame_rate,
            ..settings.clone()
        };
        if kept != *old {
            (self.detector, self.prompts, self.labels) = load(&settings)?;
        } else if settings.classes != old.classes {
            let prompts = Prompts::new(settings.classes.iter().map(String::as_str))?;
            self.prompts = self.detector.prepare(&prompts)?;
            self.labels = prompts.labels().into();
        }
        if settings.classes != self.settings.classes || settings.track != self.settings.track {
            self.tracker = settings.track.then(new_tracker).transpose()?;
            self.ids_before = self.last_id;
        }
        self.settings = settings;
        let confidence = self.confidence();
        self.detector.set_confidence(confidence)
    }

    /// Detects and tracks in a frame.
    pub fn detect(&mut self, frame: FrameView<'_>) -> Result<FrameOutcome> {
        frame.check()?;
        let found = self.detector.detect_embedded(frame, &self.prompts)?;
        let mut outcome = FrameOutcome::default();
        outcome.index = self.next_index;
        outcome.time = frame.timestamp;
        outcome.size = (frame.width, frame.height);
        outcome.detected = true;
        outcome.detections = found.items;
        outcome.labels = self.labels.clone();
        outcome.times = found.times;
        self.next_index += 1;
        let frames = self.frames_since_previous(frame.timestamp);
        if let Some(tracker) = &mut self.tracker {
            self.tracked.clear();
            self.tracked.extend(outcome.detections.iter().map(TrackerDetection::from));
            let tracks = tracker.update(&self.tracked, frames);
            let before = self.ids_before;
            outcome.tracks = tracks.iter().map(|track| Track { id: track.id + before, ..*track }).collect();
            self.last_id = outcome.tracks.iter().map(|track| track.id).fold(self.last_id, u64::max);
        }
        Ok(outcome)
    }

    /// The time since the previous frame, in the tracker's frames.
    fn frames_since_previous(&mut self, now: Duration) -> f32 {
        let Some(last) = self.previous.replace(now) else { return 1.0 };
        self.settings.frame_rate.map_or(1.0, |rate| frames_between(last, now, rate))
    }
}

fn load(settings: &Settings) -> Result<(Detector, EmbeddedPrompts, Arc<[Arc<str>]>)> {
    let prompts = Prompts::new(settings.classes.iter().map(String::as_str))?;
    let mut detector = Detector::with(settings.detector()).build()?;
    let embedded = detector.prepare(&prompts)?;
    Ok((detector, embedded, prompts.labels().into()))
}

fn new_tracker() -> Result<ByteTracker> {
    ByteTracker::new(ByteTrackerOptions::default())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ocelli::{ErrorKind, Image, Pipeline};

    use super::*;

    fn scene() -> Image {
        Image::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demos/scenes/park.png"))
            .expect("a scene")
    }

    /// Views that move over the scene, each with its time.
    fn frames(scene: &Image) -> impl Iterator<Item = FrameView<'_>> {
        (0..6u32).map(|index| FrameView {
            data: &scene.as_rgb8()[24 * index as usize..],
            width: 480,
            height: 360,
            stride: 3 * scene.width() as usize,
            format: ocelli::PixelFormat::Rgb8,
            timestamp: Duration::from_millis(if index < 4 { 100 } else { 130 }) * index,
        })
    }

    fn settings() -> Settings {
        let classes = ["dog", "tree", "bicycle"].map(String::from).into();
        Settings { classes, threads: Some(1), frame_rate: Some(10.0), ..Settings::default() }
    }

    #[test]
    fn results_are_those_of_the_pipeline() {
        let scene = scene();
        let mut live = LiveDetector::new(settings()).expect("the built-in model");
        let prompts = Prompts::new(settings().classes).expect("three classes");
        let detector = Detector::builder().with_threads(1).build().expect("the built-in model");
        let pipeline = Pipeline::builder(detector, prompts)
            .with_tracker(ByteTrackerOptions::default())
            .with_frame_rate(10.0)
            .with_sequential(true)
            .build()
            .expect("valid options");
        let mut tracks = 0;
        for frame in frames(&scene) {
            pipeline.push(frame).expect("a valid frame");
            let expected = pipeline.recv().expect("it runs").expect("a result");
            let found = live.detect(frame).expect("it runs");
            assert_eq!((found.index, found.time, found.size), (expected.index, expected.time, expected.size));
            assert_eq!(found.detections, expected.detections, "frame {}", found.index);
            assert_eq!(found.tracks, expected.tracks, "frame {}", found.index);
            assert_eq!(found.labels, expected.labels);
            tracks += found.tracks.len();
        }
        assert!(tracks > 6, "{tracks} tracks");
    }

    #[test]
    fn settings_change_between_frames_and_ids_are_never_used_twice() {
        let scene = scene();
        let image = FrameView::from(&scene);
        let mut live = LiveDetector::new(settings()).expect("the built-in model");
        let ids = |live: &mut LiveDetector| -> Vec<(String, u64)> {
            let found = live.detect(image).expect("it runs");
            found.tracks.iter().map(|track| (found.labels[track.class_id].to_string(), track.id)).collect()
        };
        let before = ids(&mut live);
        assert!(before.iter().any(|(label, _)| label == "dog"), "{before:?}");
        let highest = before.iter().map(|(_, id)| *id).max().expect("tracks");

        let trees = Settings { classes: vec!["tree".into()], ..settings() };
        live.change(trees.clone()).expect("a class");
        let after = ids(&mut live);
        assert!(!after.is_empty(), "trees are found");
        assert!(
            after.iter().all(|(label, id)| label == "tree" && *id > highest),
            "{before:?}, then {after:?}"
        );

        let refused = live.change(Settings { classes: Vec::new(), ..trees.clone() }).expect_err("no class");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert_eq!(live.settings(), &trees);
        assert_eq!(ids(&mut live), after, "a change that was refused has changed nothing");

        live.change(Settings { confidence: Some(1.0), ..trees.clone() }).expect("a confidence");
        assert!(live.detect(image).expect("it runs").detections.is_empty());
        live.change(Settings { track: false, ..trees.clone() }).expect("no tracks");
        let found = live.detect(image).expect("it runs");
        assert!(found.tracks.is_empty() && found.detections.len() == after.len(), "{found:?}");
        live.change(Settings { masks: true, ..trees }).expect("masks");
        let found = live.detect(image).expect("it runs");
        assert!(found.detections.iter().all(|detection| detection.mask.is_some()), "{found:?}");
    }
}
