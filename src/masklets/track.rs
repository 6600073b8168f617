//! Following the objects of a stream.

use ocelli_tracking::masklets::{
    DetectorPrompt, MaskletOptions, MaskletSession, ObjectPrompt, Retention, RunDirection, ShownFrame,
    VideoShape,
};

use super::bank::MemoryBank;
use super::detect::MaskFrame;
use super::network::{FrameNetwork, MaskFrames, MaskletNetwork};
use super::tracked::{TrackedFrame, join};
use crate::detector::Detector;
use crate::model::Model;
use ocelli_error::{Error, ErrorKind, Result};

/// Follows the objects of all classes through a stream of frames, forward.
///
/// Frames leave [hotstart_frames](MaskletOptions::hotstart_frames) − 1 frames late, so that objects that turn out to be false
/// are never shown. Without [holds_back](MaskletOptions::holds_back) they leave at once, and
/// [retracted](TrackedFrame::retracted) names the objects that turned out to be false. Memory is bounded for each object,
/// however long the stream is.
pub struct MaskTracker {
    network: MaskletNetwork,
    sessions: Sessions,
}

/// The sessions of all classes of a stream. Several streams share a network.
pub(crate) struct Sessions {
    classes: Vec<Class>,
    options: MaskletOptions,
    /// The number of frames so far.
    count: usize,
    /// The frames that the video has, if it is known.
    frames: Option<usize>,
    /// Whether detections start objects; if not, objects are given.
    detects: bool,
}

/// Frames are pushed: none is asked for.
struct Pushed;

impl MaskFrames for Pushed {
    fn frame(&mut self, number: usize) -> Result<&MaskFrame> {
        Err(Error::new(ErrorKind::Internal, format!("frame {number} of a stream is asked for again")))
    }
}

struct Class {
    session: MaskletSession,
    bank: MemoryBank,
}

impl MaskTracker {
    /// SAM 3's options for a model.
    pub fn options(model: &Model) -> MaskletOptions {
        let mut options = MaskletOptions::default();
        options.patch_grid = model.manifest().grid();
        options
    }

    /// A tracker for so many classes, on the engines of `detector`.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if the model has no tracker or the options have another `patch_grid`;
    /// [`ErrorKind::InvalidArgument`] for options out of range; errors of loading the graphs.
    pub fn new(
        detector: &Detector,
        classes: usize,
        video: VideoShape,
        options: MaskletOptions,
    ) -> Result<Self> {
        let network = open(detector, &options)?;
        let sessions = Sessions::new(&network, Some(classes), video, options)?;
        Ok(Self { network, sessions })
    }

    /// A tracker for objects that are given, with [`push_with`](Self::push_with), in place of detections. Frames leave at once.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_objects(detector: &Detector, video: VideoShape, options: MaskletOptions) -> Result<Self> {
        let network = open(detector, &options)?;
        let sessions = Sessions::new(&network, None, video, options)?;
        Ok(Self { network, sessions })
    }

    /// The options of the sessions.
    pub fn session_options(&self) -> &MaskletOptions {
        &self.sessions.options
    }

    /// The engine that tracks, for display.
    pub fn engine(&self) -> &str {
        self.network.description()
    }

    /// Tracks the next frame. Returns the frames that leave now.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for more frames than the video has, or a frame of another detector;
    /// [`ErrorKind::Execution`] if a graph fails. After an error the tracker cannot go on.
    pub fn push(&mut self, frame: &MaskFrame) -> Result<Vec<TrackedFrame>> {
        self.push_with(frame, &[])
    }

    /// As [`push`](Self::push), with clicks and masks of objects on this frame, for a tracker [of
    /// objects](Self::of_objects).
    ///
    /// # Errors
    /// As [`push`](Self::push); [`ErrorKind::InvalidArgument`] if the tracker is one of detections, there are no clicks, a mask
    /// has another size than the video or is that of an object that is tracked already.
    pub fn push_with(
        &mut self,
        frame: &MaskFrame,
        objects: &[ObjectPrompt<'_>],
    ) -> Result<Vec<TrackedFrame>> {
        self.sessions.push(&mut self.network, frame, objects)
    }

    /// Ends the stream: the frames that are held back.
    ///
    /// # Errors
    /// None are expected.
    pub fn finish(&mut self) -> Result<Vec<TrackedFrame>> {
        self.sessions.finish()
    }

    /// The ids of the objects of a class that were removed as false.
    pub fn removed(&self, class_id: usize) -> impl Iterator<Item = u64> {
        let classes = self.sessions.classes.len() as u64;
        let class = self.sessions.classes.get(class_id);
        let removed = class.into_iter().flat_map(|class| class.session.removed());
        removed.map(move |&id| u64::from(id) * classes + class_id as u64)
    }
}

impl Sessions {
    /// Sessions for so many classes; without them, for objects that are given.
    pub(crate) fn new(
        network: &MaskletNetwork,
        classes: Option<usize>,
        video: VideoShape,
        options: MaskletOptions,
    ) -> Result<Self> {
        let class = |_| {
            let session = MaskletSession::new(video, Retention::Window, options)?;
            Ok(Class { session, bank: network.bank() })
        };
        let detects = classes.is_some();
        let classes = (0..classes.unwrap_or(1)).map(class).collect::<Result<_>>()?;
        Ok(Self { classes, options, count: 0, frames: video.frames, detects })
    }

    /// As [`MaskTracker::push_with`].
    pub(crate) fn push(
        &mut self,
        network: &mut MaskletNetwork,
        frame: &MaskFrame,
        objects: &[ObjectPrompt<'_>],
    ) -> Result<Vec<TrackedFrame>> {
        let number = self.count;
        if self.frames.is_some_and(|frames| number >= frames) {
            let message =
                format!("frame {number} is not in the video, which was announced with {number} frames");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        network.set_frame(number, frame)?;
        self.count += 1;
        let Self { classes, detects, options, .. } = self;
        let (mut shown, mut retracted) = (Vec::with_capacity(classes.len()), Vec::new());
        let count = classes.len() as u64;
        for (class_id, Class { session, bank }) in classes.iter_mut().enumerate() {
            let mut network = FrameNetwork { network: &mut *network, bank, class_id, source: &mut Pushed };
            if number == 0 {
                if *detects {
                    // The frame of the prompt is the first of the run, too.
                    session.prompt(DetectorPrompt::Text, 0, &mut network)?;
                }
                session.propagate(RunDirection::Forward, None, None)?;
            }
            let Some(step) = session.advance_with(objects, &mut network)? else {
                shown.push(Vec::new());
                continue;
            };
            shown.push(step.shown);
            let removed = step.report.map(|report| report.removed).filter(|_| !options.holds_back);
            let removed = removed.into_iter().flatten();
            retracted.extend(removed.map(|id| u64::from(id) * count + class_id as u64));
        }
        let mut frames = join_classes(shown)?;
        if let Some(frame) = frames.first_mut() {
            frame.retracted = retracted;
        }
        Ok(frames)
    }

    pub(crate) fn finish(&mut self) -> Result<Vec<TrackedFrame>> {
        let shown = self.classes.iter_mut().map(|class| class.session.finish()).collect::<Result<_>>()?;
        join_classes(shown)
    }
}

/// Loads the tracker of a detector's model.
pub(crate) fn open(detector: &Detector, options: &MaskletOptions) -> Result<MaskletNetwork> {
    let (model, grid) = (detector.model(), options.patch_grid);
    let network = MaskletNetwork::load(model, detector.engine_factory())?;
    if grid != model.manifest().grid() {
        let expected = model.manifest().grid();
        let message = format!("patch_grid is {grid}: expected {expected}, as the model has");
        return Err(Error::new(ErrorKind::Mismatch, message));
    }
    Ok(network)
}

/// From frames by class to classes by frame.
fn join_classes(shown: Vec<Vec<ShownFrame>>) -> Result<Vec<TrackedFrame>> {
    let count = shown.first().map_or(0, Vec::len);
    let mut classes: Vec<_> = shown.into_iter().map(Vec::into_iter).collect();
    (0..count).map(|_| join(classes.iter_mut().filter_map(Iterator::next).collect())).collect()
}
