//! A video with objects that are found by text, boxes, clicks or masks, and followed in both directions.

mod features;
mod run;
mod source;

use std::collections::BTreeSet;
use std::ops::Range;

use ocelli_tracking::BoundingBox;
use ocelli_tracking::masklets::{
    Click, DetectorPrompt, MaskletOptions, MaskletSession, ObjectId, Retention, RunDirection, VideoShape,
};

use super::bank::MemoryBank;
use super::given::to_bits;
use super::network::{FrameNetwork, MaskletNetwork};
use super::tracked::{TrackedFrame, join};
use crate::detector::Detector;
use crate::image::Image;
use crate::mask::Mask;
use crate::prompt::{Prompt, Prompts};
use ocelli_error::{Result, refuse};

use features::Frames;
pub use features::KeepFeatures;
use run::Run;
pub use run::SessionRun;
pub use source::SessionSource;

/// Options of a [`VideoSession`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct VideoSessionOptions {
    /// Thresholds and limits of the tracker; SAM 3's for the model by default.
    pub masklets: MaskletOptions,
    /// The memory that keeps the backbone's features of frames, so that a frame that is passed again is not computed again.
    pub keep_features: KeepFeatures,
    /// The most frames whose features are kept (32).
    pub kept_frames: usize,
    /// The latest frames of a [pushed](SessionSource::pushed) video that the session has, at least 1; earlier ones leave it with
    /// their results (`None`: all frames stay).
    pub window: Option<usize>,
}

impl VideoSessionOptions {
    /// The defaults for the model of a detector.
    pub fn new(detector: &Detector) -> Self {
        let masklets = detector.model().masklet_options();
        Self { masklets, keep_features: KeepFeatures::None, kept_frames: 32, window: None }
    }
}

/// A video in which objects are found, followed, corrected and removed, as in SAM 3's video predictor.
///
/// [`add_text`](Self::add_text), [`add_exemplars`](Self::add_exemplars) and [`add_box`](Self::add_box) start the session over and
/// find objects; [`add_points`](Self::add_points) and [`add_mask`](Self::add_mask) refine them and add others.
/// [`propagate`](Self::propagate) follows all of them: the first run after a text detects in every frame; a run after clicks
/// follows the clicked objects alone, and one after a removal shows what is left. A session that only has clicks and masks detects
/// nothing, and each run follows all objects. Dropping the session frees everything.
///
/// ```no_run
/// use ocelli::masklets::{Click, RunDirection, SessionSource, VideoSession, VideoSessionOptions};
/// use ocelli::{Detector, ModelSource};
///
/// # fn main() -> ocelli::Result<()> {
/// let model = ModelSource::Folder("sam3".into());
/// let detector = Detector::builder().with_model(model).with_masks(true).build()?;
/// let options = VideoSessionOptions::new(&detector);
/// let mut session = VideoSession::new(detector, SessionSource::open("street.mp4")?, options)?;
/// session.add_text(0, "person")?;
/// for frame in session.propagate(RunDirection::Forward, None, None)? {
///     let frame = frame?;
///     println!("frame {}: {} people", frame.frame, frame.objects.len());
/// }
/// // Person 1 lost an arm on frame 40: a click adds it there, and the next run carries it on.
/// session.add_points(1, 40, &[Click { x: 0.4, y: 0.6, is_foreground: true }])?;
/// for frame in session.propagate(RunDirection::Forward, Some(40), None)? {
///     println!("{:?}", frame?.objects);
/// }
/// # Ok(())
/// # }
/// ```
///
/// **Memory.** What is remembered of an object grows with the frames that a run has passed: a memory of P² × 64 numbers and a
/// mask of (4P)² numbers for each, 1.7 MB at 1008 pixels (P = 72), with the memories on the device of the engines if they share
/// one; in SAM 3.1 of a bucket of up to 16 objects P² × 256, and as much for the image. Features of frames are bounded by [`kept_frames`](VideoSessionOptions::kept_frames): 1024 × P² numbers each, and
/// (4P)² for each detection, 21 MB and 0.3 MB at 1008 pixels. A video file is read again from its start where a run goes back;
/// 16 images are kept for that. Pushed frames stay in memory, 3 bytes a pixel. All of that is bounded by a
/// [`window`](VideoSessionOptions::window): an object then costs 1.7 MB for each of its frames and at most 26 others. For several
/// classes in one run use a [pipeline](crate::options::PipelineOptions::memory), whose memory is bounded.
pub struct VideoSession {
    session: MaskletSession,
    pub(super) network: MaskletNetwork,
    bank: MemoryBank,
    frames: Frames,
    options: MaskletOptions,
    window: Option<usize>,
    /// Objects that the user removed.
    removed: BTreeSet<ObjectId>,
    run: Run,
}

impl VideoSession {
    /// A session without objects. The detector has to be built with masks for texts, exemplars and boxes.
    ///
    /// # Errors
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if the model has no tracker;
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for options out of range; errors of the source and of
    /// loading the graphs.
    pub fn new(detector: Detector, source: SessionSource, options: VideoSessionOptions) -> Result<Self> {
        if options.window == Some(0) {
            refuse!("a window of 0 frames: expected at least 1");
        }
        let network = MaskletNetwork::of(&detector, &options.masklets)?;
        let session = MaskletSession::new(source.shape(), Retention::Video, options.masklets)?;
        let bank = network.bank();
        let frames = Frames::new(detector, source, &options)?;
        let (removed, run) = (BTreeSet::new(), Run::default());
        let (window, options) = (options.window, options.masklets);
        let mut video = Self { session, network, bank, frames, options, window, removed, run };
        video.forget_beyond_window(video.frame_count());
        Ok(video)
    }

    /// Follows objects on the device of another detector of the same model as well, of which the tracker alone is loaded. An object,
    /// or with SAM 3.1 a bucket of them, is followed on the device that has the fewest when it appears; frames and what is found in
    /// them stay on the first.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the session has had objects;
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) for a model of other sizes; errors of loading the graphs.
    pub fn add_device(&mut self, detector: &Detector) -> Result<()> {
        if self.next_object() > 0 {
            refuse!("devices: the session has had objects: add devices before the first");
        }
        self.network.add_device(detector.model(), detector.engine_factory())?;
        self.network.current = None;
        self.bank = self.network.bank();
        Ok(())
    }

    /// Goes on to another video, without objects. The engines stay loaded; everything else of the video before is freed.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the video has no pixels or no frames; the session then
    /// has the video before.
    pub fn open(&mut self, source: SessionSource) -> Result<()> {
        let session = MaskletSession::new(source.shape(), Retention::Video, self.options)?;
        self.frames.set_source(source);
        self.bank = self.network.bank();
        self.start(session);
        self.frames.set_prompts(None, 0)?;
        self.forget_beyond_window(self.frame_count());
        Ok(())
    }

    /// Replaces all objects and results.
    fn start(&mut self, mut session: MaskletSession) {
        session.forget_before(self.frames.source.first());
        (self.session, self.removed, self.run) = (session, BTreeSet::new(), Run::default());
        // The next frame may have the number of the current one.
        self.network.current = None;
    }

    /// The number of frames, those that left included.
    pub fn frame_count(&self) -> usize {
        self.shape().frames.unwrap_or(0)
    }

    /// The frames that can be prompted, clicked and passed: all, or the latest of a video with a
    /// [`window`](VideoSessionOptions::window).
    pub fn frames(&self) -> Range<usize> {
        self.frames.source.first()..self.frame_count()
    }

    /// Width and height of the frames in pixels.
    pub fn size(&self) -> (usize, usize) {
        (self.shape().width, self.shape().height)
    }

    /// The objects that are tracked.
    pub fn objects(&self) -> Vec<ObjectId> {
        self.session.objects()
    }

    /// An id that no object of this session ever had.
    pub fn next_object(&self) -> ObjectId {
        let after = self.removed.last().map_or(0, |last| last + 1);
        self.session.next_object().max(after)
    }

    /// Appends a frame to a [pushed](SessionSource::pushed) video, and returns its number. `propagate(Forward, number, 0)`
    /// then follows the objects to it, and with a text finds those that appear there. With a
    /// [`window`](VideoSessionOptions::window) the frames before [`frames`](Self::frames) leave the session; what was seen in
    /// them is remembered as far as the tracker reads it, and the results in the window are those of a session without one.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the frame has another size, or the video is not pushed.
    pub fn push(&mut self, image: Image) -> Result<usize> {
        let number = self.frames.source.push(image)?;
        self.session.set_frame_count(number + 1);
        self.forget_beyond_window(number + 1);
        Ok(number)
    }

    /// Forgets the frames before the window's, of this many.
    fn forget_beyond_window(&mut self, frames: usize) {
        if let Some(first) = self.window.and_then(|window| frames.checked_sub(window)) {
            self.frames.forget_before(first);
            self.session.forget_before(self.frames.source.first());
        }
    }

    /// The image of a frame, of the size of the video.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there is no such frame; as [`SessionSource::image`].
    pub fn image(&mut self, frame: usize) -> Result<Image> {
        self.check_frame(frame)?;
        self.frames.source.image(frame)
    }

    /// Starts over: finds the objects that a text describes on a frame. Runs look for them in every frame.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there is no such frame or the text is blank;
    /// [`Mismatch`](ocelli_error::ErrorKind::Mismatch) if the detector was built without masks; errors of the source and of the
    /// graphs, after which the session has to be started over.
    pub fn add_text(&mut self, frame: usize, text: impl AsRef<str>) -> Result<TrackedFrame> {
        self.start_over(frame, Prompt::new(text), DetectorPrompt::Text)
    }

    /// Starts over: finds objects like those in the boxes of a prompt, which are in this frame, in pixels. Runs look for
    /// them in every frame. A prompt with a text as well is more reliable.
    ///
    /// # Errors
    /// As [`add_text`](Self::add_text); [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the prompt has no boxes,
    /// or one is outside the frame.
    pub fn add_exemplars(&mut self, frame: usize, prompt: Prompt) -> Result<TrackedFrame> {
        if prompt.exemplars().is_empty() {
            refuse!("the prompt has no exemplars: expected at least one box");
        }
        self.start_over(frame, prompt, DetectorPrompt::Text)
    }

    /// Starts over: finds what is in a box of this frame, in pixels, and objects like it. Runs follow them without looking for
    /// others, and hold no frames back: nothing can show that an object is false.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there is no such frame or the box is outside of it;
    /// errors of the source and of the graphs, after which the session has to be started over.
    pub fn add_box(&mut self, frame: usize, bbox: BoundingBox) -> Result<TrackedFrame> {
        self.start_over(frame, Prompt::visual("object").with_exemplar(bbox, true), DetectorPrompt::Box)
    }

    fn start_over(&mut self, frame: usize, prompt: Prompt, kind: DetectorPrompt) -> Result<TrackedFrame> {
        self.check_frame(frame)?;
        let prompts = Prompts::new([prompt])?;
        let mut options = self.options;
        if kind == DetectorPrompt::Box {
            // The reference removes these objects after 8 frames, because no detection matches them.
            options.hotstart_frames = 0;
            (options.release_frames, options.confirmation_frames) = (1, 0);
        }
        let session = MaskletSession::new(self.shape(), Retention::Video, options)?;
        self.frames.set_prompts(Some((&prompts, kind)), frame)?;
        self.start(session);
        let (session, mut network) = self.parts();
        let step = session.prompt(kind, frame, &mut network)?;
        let shown = step.shown.into_iter().next();
        shown.map_or(Ok(TrackedFrame { frame, ..TrackedFrame::default() }), |shown| join(vec![shown]))
    }

    /// Clicks on an object of a frame: one that is tracked is refined, another one is added under this id. With a text,
    /// exemplars or a box, the frame has to have been shown. The next run shows this mask on this frame. More clicks on the
    /// same frame refine the mask that it has by then: give earlier clicks again where they should still count.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there are no clicks, no such frame or no results of it,
    /// or if the object was removed; errors of the source and of the graphs.
    pub fn add_points(&mut self, object: ObjectId, frame: usize, clicks: &[Click]) -> Result<TrackedFrame> {
        self.check_frame(frame)?;
        self.check_object(object)?;
        let (session, mut network) = self.parts();
        let shown = session.click(frame, object, clicks, &mut network)?;
        join(vec![shown])
    }

    /// Adds an object by its mask on a frame, where the next run shows this mask. With a text, exemplars or a box, the frame
    /// has to have been shown.
    ///
    /// # Errors
    /// As [`add_points`](Self::add_points); [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the object is
    /// tracked already, or the mask is not as large as the video or has too few pixels.
    pub fn add_mask(&mut self, object: ObjectId, frame: usize, mask: &Mask) -> Result<TrackedFrame> {
        self.check_frame(frame)?;
        self.check_object(object)?;
        let mask = to_bits(mask);
        let (session, mut network) = self.parts();
        let shown = session.add_mask(frame, object, &mask, &mut network)?;
        join(vec![shown])
    }

    /// Follows the objects, in place of a run that has not ended: from `start`, by default the first frame with results, over
    /// `max_frames` more frames, by default to the end of the video. A backward run begins with the frame before the start.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there is nothing to follow or no such frame.
    pub fn propagate(
        &mut self,
        direction: RunDirection,
        start: Option<usize>,
        max_frames: Option<usize>,
    ) -> Result<SessionRun<'_>> {
        start.map_or(Ok(()), |start| self.check_frame(start))?;
        self.session.propagate(direction, start, max_frames)?;
        self.run = Run::default();
        Ok(SessionRun(self))
    }

    /// The next frame of the run, as [`SessionRun`] returns it, for callers that cannot hold the iterator; `None` at its end,
    /// and if there is none.
    ///
    /// # Errors
    /// Errors of the source and of the graphs, after which the run has ended.
    pub fn next_frame(&mut self) -> Option<Result<TrackedFrame>> {
        SessionRun(self).next()
    }

    /// Removes an object from all frames; its id is not used again.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if there is no such object, or not any more.
    pub fn remove(&mut self, object: ObjectId) -> Result<()> {
        self.check_object(object)?;
        if !self.session.remove_object(object) {
            let tracked = self.objects();
            refuse!("there is no object {object}: expected one of {tracked:?}");
        }
        self.removed.insert(object);
        Ok(())
    }

    /// Forgets what was asked for, all objects and all results. Features that are kept stay.
    ///
    /// # Errors
    /// None are expected.
    pub fn reset(&mut self) -> Result<()> {
        let session = MaskletSession::new(self.shape(), Retention::Video, self.options)?;
        self.start(session);
        self.frames.set_prompts(None, 0)
    }

    fn parts(&mut self) -> (&mut MaskletSession, FrameNetwork<'_>) {
        let Self { session, network, bank, frames, .. } = self;
        (session, FrameNetwork { network, bank, class_id: 0, source: frames })
    }

    fn shape(&self) -> VideoShape {
        self.frames.source.shape()
    }

    fn check_frame(&self, frame: usize) -> Result<()> {
        let frames = self.frames();
        if frames.contains(&frame) {
            return Ok(());
        }
        let why = if frame < frames.start { "has left the window" } else { "is not in the video" };
        let (first, last) = (frames.start, frames.end.saturating_sub(1));
        refuse!("frame {frame} {why}: expected {first} to {last}")
    }

    fn check_object(&self, object: ObjectId) -> Result<()> {
        if self.removed.contains(&object) || self.session.removed().contains(&object) {
            let next = self.next_object();
            refuse!("object {object} was removed: expected one that is tracked, or a new one, {next}");
        }
        Ok(())
    }
}
