//! From a source to sinks: the next frames are detected while this one is tracked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::thread;
use std::time::Instant;

use image::RgbImage;
use ocelli_tracking::masklets::{Candidate, suppress};
use ocelli_tracking::{BoundingBox, ByteTracker, TrackerDetection};

use super::detect::{MaskDetector, MaskFrame};
use super::given::{Given, GivenObject};
use super::network::MaskletNetwork;
use super::track::{MaskTracker, open};
use super::tracked::TrackedFrame;
use super::{MaskletOptions, VideoShape};
use crate::cancellation::Cancellation;
use crate::detector::{Detector, EmbeddedPrompts};
use crate::draw::Redaction;
use crate::frame::Frame;
use crate::image::Image;
use crate::outcome::FrameOutcome;
use crate::pipeline::{RunSummary, Stage, StatsRecorder, guard};
use crate::sink::{Pictures, Sink};
use crate::source::Source;
use crate::timing::StageTimes;
use ocelli_error::{Error, ErrorKind, Result};

type Drawing<'d> = Box<dyn FnMut(&mut RgbImage, &FrameOutcome) -> Result<()> + 'd>;
type Observer<'d> = Box<dyn FnMut(&FrameOutcome) + 'd>;

/// Follows objects through the frames of a source, and writes every frame to sinks, with a
/// [detection](FrameOutcome::detections) that has a mask, and a [track](FrameOutcome::tracks) with the identity, for each
/// object.
///
/// Detection and tracking run on two threads, with [more devices](Self::with_more_devices) detection on one for each. Sinks get a
/// frame when it leaves the tracker; until then its picture is kept if a sink needs it. Ids are counted from 1: those of
/// [`TrackedObject`](super::TrackedObject) plus 1.
pub struct MaskStream<'d> {
    /// One on each device, which take turns.
    detectors: Vec<MaskDetector>,
    /// What they look for; `None` if objects are given.
    prompts: Option<EmbeddedPrompts>,
    network: MaskletNetwork,
    labels: Arc<[Arc<str>]>,
    options: MaskletOptions,
    /// Objects in place of detections.
    given: Option<Vec<GivenObject>>,
    /// Follows the same detections, for a comparison.
    comparison: Option<ByteTracker>,
    sequential: bool,
    drawing: Option<Drawing<'d>>,
    redaction: Option<Redaction>,
    observer: Option<Observer<'d>>,
    cancellation: Cancellation,
    stats: StatsRecorder,
}

/// A frame on its way from the detector to the tracker.
#[derive(Default)]
struct Item {
    frame: Frame,
    detected: MaskFrame,
    times: StageTimes,
    entered: Option<Instant>,
}

/// A frame that the tracker holds back.
struct Held {
    outcome: FrameOutcome,
    picture: Option<Image>,
    entered: Instant,
}

impl<'d> MaskStream<'d> {
    /// Loads the tracker, and the graphs that detect.
    ///
    /// # Errors
    /// As [`MaskTracker::new`] and [`MaskDetector::new`].
    pub fn new(detector: Detector, prompts: EmbeddedPrompts, options: MaskletOptions) -> Result<Self> {
        options.validate()?;
        let network = open(&detector, &options)?;
        let labels = prompts.labels();
        let detector = MaskDetector::new(detector, prompts.clone(), &options)?;
        Ok(Self::of(detector, Some(prompts), network, labels, options, None))
    }

    /// Follows objects that are given, in place of those that a detector finds: nothing is detected, and frames leave at once.
    /// The ids are those of the objects plus 1.
    ///
    /// # Errors
    /// As [`MaskTracker::of_objects`]; [`ErrorKind::InvalidArgument`] if there are no objects, or one has no label.
    pub fn of_objects(
        detector: Detector,
        labels: impl IntoIterator<Item = Arc<str>>,
        given: Vec<GivenObject>,
        options: MaskletOptions,
    ) -> Result<Self> {
        options.validate()?;
        let labels: Arc<[Arc<str>]> = labels.into_iter().collect();
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        if given.is_empty() {
            return invalid("no objects are given: expected at least one".into());
        }
        if let Some(object) = given.iter().find(|object| object.class_id >= labels.len()) {
            let (id, class_id) = (object.id, object.class_id);
            return invalid(format!("object {id}: there is no label {class_id}"));
        }
        let network = open(&detector, &options)?;
        let (detector, _) = MaskDetector::without_prompts(detector)?;
        Ok(Self::of(detector, None, network, labels, options, Some(given)))
    }

    fn of(
        detector: MaskDetector,
        prompts: Option<EmbeddedPrompts>,
        network: MaskletNetwork,
        labels: Arc<[Arc<str>]>,
        options: MaskletOptions,
        given: Option<Vec<GivenObject>>,
    ) -> Self {
        Self {
            detectors: vec![detector],
            prompts,
            network,
            labels,
            options,
            given,
            comparison: None,
            sequential: false,
            drawing: None,
            redaction: None,
            observer: None,
            cancellation: Cancellation::new(),
            stats: StatsRecorder::new(),
        }
    }

    /// Detectors of the same model with the same options on other devices: frames go to the devices in turn, and each object is
    /// tracked on the device that has the fewest when it appears. Frames leave in their order.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`ErrorKind::Mismatch`] for another model.
    pub fn with_more_devices(mut self, detectors: impl IntoIterator<Item = Detector>) -> Result<Self> {
        for detector in detectors {
            self.network.add_device(detector.model(), detector.engine_factory())?;
            self.detectors.push(match &self.prompts {
                Some(prompts) => MaskDetector::new(detector, prompts.clone(), &self.options)?,
                None => MaskDetector::without_prompts(detector)?.0,
            });
        }
        Ok(self)
    }

    /// Whether one frame is detected and tracked before the next one is read; off by default. The results are the same.
    #[must_use]
    pub fn with_sequential(mut self, sequential: bool) -> Self {
        self.sequential = sequential;
        self
    }

    /// Follows the boxes around the masks of the detections with a tracker of boxes as well, whose tracks are
    /// [compared](FrameOutcome::compared).
    #[must_use]
    pub fn with_comparison(mut self, tracker: ByteTracker) -> Self {
        self.comparison = Some(tracker);
        self
    }

    /// Draws results into annotated pictures; by default nothing is drawn.
    #[must_use]
    pub fn with_drawing(
        mut self,
        drawing: impl FnMut(&mut RgbImage, &FrameOutcome) -> Result<()> + 'd,
    ) -> Self {
        self.drawing = Some(Box::new(drawing));
        self
    }

    /// Makes objects unrecognisable in all pictures.
    #[must_use]
    pub fn with_redaction(mut self, redaction: Redaction) -> Self {
        self.redaction = Some(redaction);
        self
    }

    /// Called for each frame that all sinks have written.
    #[must_use]
    pub fn with_observer(mut self, observer: impl FnMut(&FrameOutcome) + 'd) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Ends the run early; frames that the tracker holds back are written.
    #[must_use]
    pub fn with_cancellation(mut self, cancellation: Cancellation) -> Self {
        self.cancellation = cancellation;
        self
    }

    /// Records statistics.
    #[must_use]
    pub fn with_stats(mut self, stats: StatsRecorder) -> Self {
        self.stats = stats;
        self
    }

    /// Runs to the end of the source.
    ///
    /// # Errors
    /// Those of the source, of a graph and of a sink, and [`ErrorKind::InvalidArgument`] if the size of the frames changes, or an
    /// object is given on a frame that does not come. All sinks are finished, and frames before the error are kept.
    pub fn run(self, source: impl Source, sinks: &mut [Box<dyn Sink + '_>]) -> Result<RunSummary> {
        let Self { detectors, network, labels, options, sequential, .. } = self;
        let pictures = sinks.iter().map(Sink::pictures).fold(Pictures::default(), |all, one| all | one);
        let (cancellation, stats) = (self.cancellation, self.stats);
        stats.devices(detectors.len());
        let input = Input { source, cancellation: &cancellation, stats: &stats };
        let mut output = Output {
            network: Some(network),
            tracker: None,
            options,
            labels,
            classes: classes_of(self.given.as_deref()),
            given: self.given.map(by_frame),
            comparison: self.comparison,
            pictures,
            drawing: self.drawing,
            redaction: self.redaction,
            observer: self.observer,
            held: VecDeque::new(),
            size: None,
            seen: BTreeMap::new(),
            stats: &stats,
            sinks,
        };
        let ran = match sequential {
            true => in_turn(input, detectors, &mut output),
            false => overlapped(input, detectors, &mut output),
        };
        let ran = ran.and_then(|()| output.flush());
        let ran = ran.and_then(|()| output.check_given(cancellation.is_cancelled()));
        let finished = output.finish();
        stats.end();
        ran.and(finished)?;
        Ok(RunSummary { cancelled: cancellation.is_cancelled(), stats: stats.snapshot() })
    }
}

/// The boxes of the detections that objects are matched with.
fn boxes(frame: &MaskFrame, options: &MaskletOptions, (width, height): (u32, u32)) -> Vec<TrackerDetection> {
    let side = options.mask_side() as f32;
    let mut boxes = Vec::new();
    for (class_id, detections) in frame.detections().iter().enumerate() {
        let candidate = |(index, found): (usize, &ocelli_tracking::masklets::Detection)| Candidate {
            index,
            score: found.score,
            mask: found.mask.positive(),
        };
        let kept = suppress(detections.iter().enumerate().map(candidate).collect(), options);
        boxes.extend(kept.into_iter().filter_map(|Candidate { score, mask, .. }| {
            let [left, top, right, bottom] = mask.bounds()?.map(|edge| edge as f32);
            let bbox = BoundingBox::new(left, top, right, bottom);
            let bbox = bbox.scaled(width as f32 / side, height as f32 / side);
            Some(TrackerDetection { bbox, score, class_id })
        }));
    }
    boxes
}

/// The labels of objects that are given, by id.
fn classes_of(given: Option<&[GivenObject]>) -> BTreeMap<u64, usize> {
    let mut classes = BTreeMap::new();
    for object in given.unwrap_or_default() {
        classes.entry(u64::from(object.id)).or_insert(object.class_id);
    }
    classes
}

fn by_frame(given: Vec<GivenObject>) -> BTreeMap<u64, Vec<GivenObject>> {
    let mut frames = BTreeMap::<u64, Vec<GivenObject>>::new();
    for object in given {
        frames.entry(object.frame).or_default().push(object);
    }
    frames
}

fn in_turn(
    mut input: Input<'_, impl Source>,
    mut detectors: Vec<MaskDetector>,
    output: &mut Output<'_, '_, '_>,
) -> Result<()> {
    let mut item = Item::default();
    for turn in 0.. {
        let Some(read) = input.next(item)? else { break };
        let device = turn % detectors.len();
        item = output.push(detect(read, &mut detectors[device], input.stats)?)?;
    }
    Ok(())
}

/// Reads and detects on a thread for each device. The input goes around: the device that has it reads a frame, passes it on and
/// detects.
fn overlapped<'r, S: Source>(
    input: Input<'r, S>,
    detectors: Vec<MaskDetector>,
    output: &mut Output<'_, '_, '_>,
) -> Result<()> {
    thread::scope(|scope| {
        let turns: Vec<_> = detectors.iter().map(|_| sync_channel::<Input<'r, S>>(1)).collect();
        let (mut pass, turns): (Vec<_>, Vec<_>) = turns.into_iter().unzip();
        pass[0].send(input).expect("the channel is empty, and its end is here");
        // The next device's.
        pass.rotate_left(1);
        let mut devices = Vec::with_capacity(detectors.len());
        for ((mut detector, turn), pass) in detectors.into_iter().zip(turns).zip(pass) {
            let (send, detected) = sync_channel::<Item>(1);
            let (give_back, used) = sync_channel::<Item>(2);
            let detect = move || -> Result<()> {
                while let Ok(mut input) = turn.recv() {
                    let item = match used.try_recv() {
                        Ok(item) => item,
                        Err(TryRecvError::Empty) => Item::default(),
                        Err(TryRecvError::Disconnected) => break,
                    };
                    let Some(item) = input.next(item)? else { break };
                    let stats = input.stats;
                    // The next device may have ended.
                    drop(pass.send(input));
                    if send.send(detect(item, &mut detector, stats)?).is_err() {
                        break;
                    }
                }
                Ok(())
            };
            let thread = thread::Builder::new().name("ocelli-mask-detector".into());
            let thread = thread.spawn_scoped(scope, detect).map_err(|error| {
                Error::new(ErrorKind::Execution, format!("cannot start a thread: {error}")).with_source(error)
            })?;
            devices.push((detected, give_back, thread));
        }
        let mut tracked = Ok(());
        for turn in 0.. {
            let (detected, give_back, _) = &devices[turn % devices.len()];
            let Ok(item) = detected.recv() else { break };
            match output.push(item) {
                // A buffer that does not fit is dropped.
                Ok(used) => _ = give_back.try_send(used),
                Err(error) => {
                    tracked = Err(error);
                    break;
                }
            }
        }
        // The other threads may wait for room.
        let threads: Vec<_> = devices.into_iter().map(|(.., thread)| thread).collect();
        for thread in threads {
            tracked = tracked.and(thread.join().unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Internal, "detecting the objects of a video: the thread panicked"))
            }));
        }
        tracked
    })
}

/// Reads frames.
struct Input<'r, S> {
    source: S,
    cancellation: &'r Cancellation,
    stats: &'r StatsRecorder,
}

impl<S: Source> Input<'_, S> {
    /// The next frame, in the buffers of another one; `None` at the end.
    fn next(&mut self, mut item: Item) -> Result<Option<Item>> {
        if self.cancellation.is_cancelled() {
            return Ok(None);
        }
        let start = Instant::now();
        let found = guard(Stage::Source, || self.source.read_into(&mut item.frame));
        if self.cancellation.is_cancelled() || !found? {
            return Ok(None);
        }
        let read = Instant::now();
        self.stats.frame_in(read);
        self.stats.stage(Stage::Source, read.duration_since(start));
        item.entered = Some(read);
        Ok(Some(item))
    }
}

/// Detects in a frame that was read.
fn detect(mut item: Item, detector: &mut MaskDetector, stats: &StatsRecorder) -> Result<Item> {
    item.times = StageTimes::default();
    detector.detect_into(&item.frame.image, &mut item.detected, &mut item.times)?;
    let times = item.times;
    for (stage, ms) in [
        (Stage::Preprocess, times.preprocess),
        (Stage::Backbone, times.backbone),
        (Stage::Decode, times.decode + times.masks),
    ] {
        stats.stage(stage, std::time::Duration::from_secs_f64(ms.max(0.0) / 1e3));
    }
    Ok(item)
}

/// Tracks, draws and writes.
struct Output<'r, 's, 'd> {
    /// Until the size of the video is known.
    network: Option<MaskletNetwork>,
    tracker: Option<MaskTracker>,
    options: MaskletOptions,
    labels: Arc<[Arc<str>]>,
    /// The labels of objects that are given.
    classes: BTreeMap<u64, usize>,
    /// Objects that are given, by frame; those of frames that have come are taken out.
    given: Option<BTreeMap<u64, Vec<GivenObject>>>,
    comparison: Option<ByteTracker>,
    pictures: Pictures,
    drawing: Option<Drawing<'d>>,
    redaction: Option<Redaction>,
    observer: Option<Observer<'d>>,
    held: VecDeque<Held>,
    /// Width and height of the frames.
    size: Option<(u32, u32)>,
    /// The first frame of each object, and how many it was in.
    seen: BTreeMap<u64, (usize, u32)>,
    stats: &'r StatsRecorder,
    sinks: &'r mut [Box<dyn Sink + 's>],
}

impl Output<'_, '_, '_> {
    /// Tracks a frame and writes those that leave. Returns its buffers.
    fn push(&mut self, mut item: Item) -> Result<Item> {
        let start = Instant::now();
        let size = (item.frame.image.width(), item.frame.image.height());
        if let Some(network) = self.network.take() {
            let video = VideoShape { frames: None, width: size.0 as usize, height: size.1 as usize };
            self.tracker = Some(match self.given {
                None => MaskTracker::on(network, self.labels.len(), video, self.options)?,
                Some(_) => MaskTracker::on(network, 1, video, self.options)?.without_detections(),
            });
        }
        let (was, now) = (*self.size.get_or_insert(size), size);
        if was != now {
            let message = format!(
                "frame {}: it has {}×{} pixels, the frames before {}×{}; a tracker needs frames of one size",
                item.frame.index, now.0, now.1, was.0, was.1
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let tracker = self.tracker.as_mut().expect("it was made with the first frame");
        let given = self.given.as_mut().and_then(|given| given.remove(&item.frame.index));
        let given = Given::new(given.iter().flatten());
        let shown =
            tracker.push_with(&item.detected, &given.prompts()).map_err(|error| match given.is_empty() {
                true => error,
                false => Error::new(error.kind(), format!("frame {}: {error}", item.frame.index)),
            })?;
        self.stats.stage(Stage::Track, start.elapsed());
        let mut outcome = FrameOutcome {
            index: item.frame.index,
            time: item.frame.time,
            captured: item.frame.captured,
            file: item.frame.file.clone(),
            origin: item.frame.origin.clone(),
            size,
            detected: true,
            labels: self.labels.clone(),
            ..FrameOutcome::default()
        };
        outcome.times = item.times;
        if let Some(tracker) = &mut self.comparison {
            let boxes = boxes(&item.detected, &self.options, size);
            outcome.compared = tracker.update(&boxes, 1.0).to_vec();
        }
        let is_needed = self.pictures != Pictures::default();
        let picture = is_needed.then(|| std::mem::replace(&mut item.frame.image, Frame::default().image));
        self.held.push_back(Held { outcome, picture, entered: item.entered.unwrap_or(start) });
        self.write_all(shown)?;
        Ok(item)
    }

    /// Checks that each object was given on a frame that came.
    fn check_given(&self, was_cancelled: bool) -> Result<()> {
        let late = self.given.as_ref().and_then(|given| given.first_key_value());
        let Some((frame, objects)) = late.filter(|_| !was_cancelled) else { return Ok(()) };
        let id = objects.first().map_or(0, |object| u64::from(object.id) + 1);
        let message =
            format!("frame {frame}, where object {id} is given, is not among the frames that were read");
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }

    /// Writes the frames that are held back.
    fn flush(&mut self) -> Result<()> {
        let shown = self.tracker.as_mut().map(MaskTracker::finish).transpose()?;
        self.write_all(shown.unwrap_or_default())
    }

    fn write_all(&mut self, shown: Vec<TrackedFrame>) -> Result<()> {
        for shown in shown {
            let Some(held) = self.held.pop_front() else { break };
            self.write(held, shown)?;
        }
        Ok(())
    }

    fn write(&mut self, held: Held, mut shown: TrackedFrame) -> Result<()> {
        let Held { mut outcome, picture, entered } = held;
        let (frame, seen) = (shown.frame, &mut self.seen);
        for object in &mut shown.objects {
            if let Some(&class_id) = self.classes.get(&object.id) {
                object.class_id = class_id;
            }
        }
        shown.add_to(&mut outcome, |id| {
            let (first, hits) = seen.entry(id).or_insert((frame, 0));
            *hits += 1;
            (frame - *first, *hits)
        })?;
        if let Some(picture) = picture {
            let start = Instant::now();
            self.draw(picture, &mut outcome)?;
            self.stats.stage(Stage::Draw, start.elapsed());
        }
        let start = Instant::now();
        outcome.times.total = start.duration_since(entered).as_secs_f64() * 1e3;
        for sink in self.sinks.iter_mut() {
            guard(Stage::Sinks, || sink.write(&outcome))?;
        }
        self.stats.stage(Stage::Sinks, start.elapsed());
        let waited = std::time::Duration::ZERO;
        self.stats.frame_out(entered, waited, true, outcome.detections.len());
        if let Some(observer) = &mut self.observer {
            observer(&outcome);
        }
        Ok(())
    }

    /// Makes the pictures that the sinks ask for.
    fn draw(&mut self, picture: Image, outcome: &mut FrameOutcome) -> Result<()> {
        let mut pixels = picture.into_rgb_image();
        if let Some(redaction) = &mut self.redaction {
            redaction.apply(&mut pixels, outcome);
        }
        if self.pictures.clean {
            outcome.clean = Some(pixels.clone().into());
        }
        if self.pictures.annotated {
            if let Some(drawing) = &mut self.drawing {
                drawing(&mut pixels, outcome)?;
            }
            outcome.annotated = Some(pixels.into());
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let finished = self.sinks.iter_mut().map(|sink| guard(Stage::Sinks, || sink.finish()));
        finished.collect::<Vec<_>>().into_iter().collect()
    }
}
