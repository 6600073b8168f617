//! Follows objects through videos, and labels the frames that are images of the data set.

use std::collections::{BTreeMap, HashMap};
use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};

use ocelli::tracking::{ByteTracker, ByteTrackerOptions, TrackerDetection};
use ocelli::{
    BoundingBox, Cancellation, Detection, Detector, Error, Frame, Pipeline, Prompt, Prompts, Result, Source,
    classes::Class, pipeline::FrameOutcome, source::Selected, source::Selection,
};

use super::run::{LabelDevice, LabelStages, SizedDetections, no_device};
use super::{LabelEvent, LabelJob, OnEvent};
use crate::label::run::prefetch::{Prepared, Preparer};
use crate::label::run::turns::in_turns;
use crate::label::video::LabelVideo;
use crate::label::{ImageFile, Instance, Record, Tracking, identity};

/// A frame, with the identity of its image, or why it cannot be read.
type ReadFrame = Result<((u64, u64), Prepared)>;
/// A frame that a device has looked at: its number, what was found and the class of each prompt.
type SeenFrame = (usize, Result<((u64, u64), SizedDetections)>, Vec<usize>);

/// The images of a video that are not labelled yet, by the index of the frame.
type Pending = BTreeMap<u64, ImageFile>;

impl LabelJob {
    /// Labels the pending images, which are frames of these videos. Objects are followed through all frames of a video from
    /// the first one on, so that their numbers do not depend on which images are pending. A video without pending images is
    /// not read. Several detectors take turns, as in [`run`](Self::run).
    ///
    /// A video that cannot be read to its end is [reported](LabelEvent::Failed), and the job continues with the next one. An
    /// error of `on_event` ends the job; finished images are kept. `cancellation` ends it, too.
    ///
    /// # Errors
    /// The error of `on_event`; [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) without a detector, and
    /// for several videos with
    /// [`Tracking::Memory`]; [`ErrorKind::Io`](ocelli::ErrorKind::Io) if the output cannot be written; the error of a model
    /// that cannot be loaded.
    pub fn run_videos(
        &mut self,
        detectors: Vec<Detector>,
        videos: &[LabelVideo],
        cancellation: &Cancellation,
        on_event: &mut OnEvent<'_>,
    ) -> Result<()> {
        let mut pending: HashMap<String, Pending> = HashMap::new();
        for file in std::mem::take(&mut self.todo) {
            if let Some(frame) = &file.frame {
                pending.entry(frame.video.clone()).or_default().insert(frame.index, file);
            }
        }
        let ended = match (self.tracking, videos) {
            (Some(Tracking::Memory { confidence }), [video]) => match pending.remove(&video.name) {
                Some(pending) => {
                    self.follow_masks(detectors, video, &pending, confidence, cancellation, on_event)
                }
                None => Ok(()),
            },
            (Some(Tracking::Memory { .. }), _) => {
                let message = "tracking, memory: objects are followed through one video: expected one";
                Err(Error::invalid_argument(message).about("tracking"))
            }
            _ => self.follow_boxes(detectors, videos, pending, on_event),
        };
        ended.and(self.data.stopped())
    }

    fn follow_boxes(
        &mut self,
        detectors: Vec<Detector>,
        videos: &[LabelVideo],
        mut pending: HashMap<String, Pending>,
        on_event: &mut OnEvent<'_>,
    ) -> Result<()> {
        let (preparer, mut stages) = self.stages(detectors)?;
        let all: Vec<ImageFile> = pending.values().flat_map(BTreeMap::values).cloned().collect();
        let mut devices = LabelStages::devices(&mut stages, &self.classes, 0, &all, &preparer)?;
        for video in videos {
            let Some(pending) = pending.remove(&video.name) else { continue };
            self.follow_boxes_in(video, &pending, &mut devices, &preparer, on_event)?;
        }
        Ok(())
    }

    /// Reads a video up to the last pending image, or reports why it cannot be read any further.
    fn follow_boxes_in(
        &mut self,
        video: &LabelVideo,
        pending: &Pending,
        devices: &mut [LabelDevice<'_>],
        preparer: &Preparer,
        on_event: &mut OnEvent<'_>,
    ) -> Result<()> {
        let Some((&last, _)) = pending.last_key_value() else { return Ok(()) };
        let mut tracker = self.tracker()?;
        // No frame has this name: exemplars of an image are not for it.
        let between = ImageFile { path: Default::default(), name: String::new(), frame: None };
        let opened = match (video.open)() {
            Ok(source) => Mutex::new((source, Frame::default())),
            Err(error) => return on_event(LabelEvent::Failed { path: video.path(), error: &error }),
        };
        let read = |number: usize| {
            let file = pending.get(&(number as u64));
            let identity = file.map_or((0, 0), |file| identity(&file.path));
            let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
            let (source, frame) = &mut *opened;
            if source.read_into(frame)? {
                Ok((identity, preparer.prepare_frame(&frame.image)?))
            } else {
                Err(video.ends_early(number as u64))
            }
        };
        let look = |device: &mut LabelDevice<'_>, (number, frame): (usize, ReadFrame)| -> SeenFrame {
            let LabelDevice { stages, prompts, .. } = device;
            let file = pending.get(&(number as u64));
            let found = frame.and_then(|(identity, prepared)| {
                let masks = file.is_some();
                let found = stages.look(prompts, file.unwrap_or(&between), prepared, preparer, masks)?;
                Ok((identity, found))
            });
            (number, found, prompts.classes.clone())
        };
        let mut broken = None;
        let mut end_early = |error| {
            broken = Some(error);
            Err(Error::cancelled("the video cannot be read any further"))
        };
        let finish = |(number, found, classes): SeenFrame, on_event: &mut OnEvent<'_>| {
            let (identity, (size, detections)) = match found {
                Ok(found) => found,
                Err(error) => return end_early(error),
            };
            let mut instances = self.refiner.instances(&classes, detections);
            follow(&mut tracker, &mut instances);
            let Some(file) = pending.get(&(number as u64)) else { return Ok(()) };
            if let Err(error) = video.check_unchanged(&file.path) {
                return end_early(error);
            }
            self.finish_frame(file, identity, size, instances, on_event)
        };
        // One thread: frames are read in order.
        let ended = in_turns(devices, (last as usize + 1, 1), read, look, on_event, finish);
        match broken {
            Some(error) => on_event(LabelEvent::Failed { path: video.path(), error: &error }),
            None => ended,
        }
    }

    /// Every instance that is labelled can start a track, at once: labels are of objects that are sure enough already.
    fn tracker(&self) -> Result<ByteTracker> {
        let least = self.refiner.limits.iter().map(|limits| limits.threshold).fold(1.0, f32::min);
        ByteTracker::new(ByteTrackerOptions {
            track_threshold: least,
            new_track_threshold: Some(least),
            min_hits: Some(1),
            ..Default::default()
        })
    }

    fn follow_masks(
        &mut self,
        detectors: Vec<Detector>,
        video: &LabelVideo,
        pending: &Pending,
        confidence: Option<f32>,
        cancellation: &Cancellation,
        on_event: &mut OnEvent<'_>,
    ) -> Result<()> {
        let prompt = |class: &Class| {
            let phrase = class.phrases.first().unwrap_or(&class.name);
            Prompt::new(phrase.as_str()).with_label(class.name.as_str())
        };
        let mut detectors = detectors.into_iter();
        let mut detector = detectors.next().ok_or_else(no_device)?;
        let prompts = detector.prepare(&Prompts::new(self.classes.classes.iter().map(prompt))?)?;
        let options = detector.model().masklet_options().with_settings(confidence, true, None);
        let (send, outcomes) = sync_channel(1);
        let pipeline = Pipeline::builder_embedded(detector, prompts)
            .with_more_devices(detectors)
            .with_options(|all| all.memory = Some(options))
            .with_cancellation(cancellation.clone())
            // The thread that labels receives until the pipeline has ended.
            .with_observer(move |outcome: &FrameOutcome| drop(send.send(outcome.clone())));
        let mut selection = Selection::default();
        selection.max_frames = Some(video.frames());
        let source = match (video.open)().and_then(|source| Selected::new(source, selection)) {
            Ok(source) => source,
            Err(error) => return on_event(LabelEvent::Failed { path: video.path(), error: &error }),
        };
        // What ends the job in place of the video.
        let (mut ended, mut number) = (Ok(()), 0);
        let mut finish = |outcome: &FrameOutcome| -> Result<()> {
            on_event(LabelEvent::Waiting)?;
            let file = pending.get(&number);
            number += 1;
            let Some(file) = file else { return Ok(()) };
            video.check_unchanged(&file.path)?;
            let instances = self.instances_of(outcome);
            self.finish_frame(file, identity(&file.path), outcome.size, instances, on_event)
        };
        let ran = std::thread::scope(|scope| {
            let run = scope.spawn(move || pipeline.run(source, &mut []));
            for outcome in outcomes {
                // What is held back when a run is stopped is not what the whole run would show.
                if ended.is_ok() && !cancellation.is_cancelled() {
                    ended = finish(&outcome);
                    if ended.is_err() {
                        cancellation.cancel();
                    }
                }
            }
            run.join().unwrap_or_else(|panic| resume_unwind(panic))
        });
        ended?;
        on_event(LabelEvent::Waiting)?;
        match ran {
            Ok(run) if run.cancelled => Err(Error::cancelled("cancelled").at(video.path())),
            Ok(_) => Ok(()),
            Err(error) => on_event(LabelEvent::Failed { path: video.path(), error: &error }),
        }
    }

    /// The objects of a frame, the highest score first.
    fn instances_of(&self, outcome: &FrameOutcome) -> Vec<Instance> {
        let instance = |(track, found): (u64, &Detection)| {
            let area = found.mask.as_ref().map_or(0, ocelli::Mask::area);
            // Its pixels may be those of other objects.
            let is_kept = area > 0 && area as f64 >= self.refiner.limits[found.class_id].min_area;
            let mask = found.mask.as_ref().filter(|_| self.masks).map(|mask| mask.counts().to_owned());
            let bbox = found.bbox.to_xyxy();
            let (class, score) = (found.class_id, found.score);
            is_kept.then_some(Instance { class, score, bbox, mask, track: Some(track) })
        };
        let tracks = outcome.tracks.iter();
        let found = tracks.filter_map(|track| Some((track.id, outcome.detections.get(track.detection?)?)));
        let mut instances: Vec<Instance> = found.filter_map(instance).collect();
        instances.sort_by(|a, b| b.score.total_cmp(&a.score));
        instances
    }

    fn finish_frame(
        &mut self,
        file: &ImageFile,
        identity: (u64, u64),
        (width, height): (u32, u32),
        instances: Vec<Instance>,
        on_event: &mut OnEvent<'_>,
    ) -> Result<()> {
        let record = self.data.new_record(file, identity)?;
        let record = Record { width, height, instances, ..record };
        self.finish_record(record, on_event)
    }
}

/// Gives the instances of the next frame their tracks. One that is in the place of another one has none.
fn follow(tracker: &mut ByteTracker, instances: &mut [Instance]) {
    let detections: Vec<TrackerDetection> = instances
        .iter()
        .map(|instance| {
            let bbox = BoundingBox::from(instance.bbox);
            TrackerDetection { bbox, score: instance.score, class_id: instance.class }
        })
        .collect();
    for track in tracker.update(&detections, 1.0) {
        if let Some(instance) = track.detection.and_then(|at| instances.get_mut(at)) {
            instance.track = Some(track.id);
        }
    }
}
