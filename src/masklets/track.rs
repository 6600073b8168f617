//! Following the objects of a stream.

use ocelli_tracking::masklets::{
    DetectorPrompt, MaskletOptions, MaskletSession, Retention, RunDirection, ShownFrame, StreamObject,
    VideoShape,
};

use super::bank::MemoryBank;
use super::detect::MaskFrame;
use super::network::{FrameNetwork, MaskFrames, MaskletNetwork};
use super::tracked::{TrackedFrame, join};
use crate::model::Model;
use ocelli_error::{Error, ErrorKind, Result, refuse};

/// Follows the objects of all classes through a stream of frames, forward. Several streams share a network.
///
/// Frames leave [hotstart_frames](MaskletOptions::hotstart_frames) − 1 frames late, so that objects that turn out to be false
/// are never shown. Without [holds_back](MaskletOptions::holds_back) they leave at once, and
/// [retracted](TrackedFrame::retracted) names the shown objects that turned out to be false. Memory is bounded for each object,
/// however long the stream is.
#[doc(hidden)]
pub struct Sessions {
    classes: Vec<Class>,
    /// The number of frames so far.
    count: usize,
    /// The frames that the video has, if it is known.
    frames: Option<usize>,
    /// Set if detections start objects; if not, objects are given.
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

impl Model {
    /// The defaults of the memory tracker, for this model.
    pub fn masklet_options(&self) -> MaskletOptions {
        let has_buckets = self.manifest().multiplex.is_some();
        let mut options = if has_buckets { MaskletOptions::multiplex() } else { MaskletOptions::default() };
        options.patch_grid = self.manifest().grid();
        // Meta's predictor of SAM 3.1 shows sixteen frames at a time, which decides nothing.
        options.release_frames = 1;
        options
    }
}

impl Sessions {
    /// Sessions for so many classes; without them, for objects that are given.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options out of range.
    pub fn new(
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
        Ok(Self { classes, count: 0, frames: video.frames, detects })
    }

    /// Tracks the next frame, with clicks and masks of objects on it if objects are given. Returns the frames that leave now.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for more frames than the video has, or a frame of another detector; if objects are given
    /// beside detections, there are no clicks, a mask has another size than the video or is that of an object that is tracked
    /// already; [`ErrorKind::Execution`] if a graph fails. After an error the sessions cannot go on.
    pub fn push(
        &mut self,
        network: &mut MaskletNetwork,
        frame: &MaskFrame,
        objects: &[StreamObject],
    ) -> Result<Vec<TrackedFrame>> {
        let number = self.count;
        if self.frames.is_some_and(|frames| number >= frames) {
            refuse!("frame {number} is not in the video, which was announced with {number} frames");
        }
        network.set_frame(number, frame)?;
        self.count += 1;
        let Self { classes, detects, .. } = self;
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
            let removed = step.report.into_iter().flat_map(|report| report.removed);
            retracted.extend(removed.map(|id| u64::from(id) * count + class_id as u64));
        }
        let mut frames = join_classes(shown)?;
        if let Some(frame) = frames.first_mut() {
            frame.retracted = retracted;
        }
        Ok(frames)
    }

    /// A further frame on which nothing has moved: it shows what the one before shows. Returns the frames that leave now.
    ///
    /// # Errors
    /// None are expected.
    pub fn repeat(&mut self) -> Result<Vec<TrackedFrame>> {
        let shown = self.classes.iter_mut().map(|class| class.session.repeat()).collect::<Result<_>>()?;
        join_classes(shown)
    }

    /// Ends the stream: the frames that are held back.
    ///
    /// # Errors
    /// None are expected.
    pub fn finish(&mut self) -> Result<Vec<TrackedFrame>> {
        let shown = self.classes.iter_mut().map(|class| class.session.finish()).collect::<Result<_>>()?;
        join_classes(shown)
    }
}

/// From frames by class to classes by frame.
fn join_classes(shown: Vec<Vec<ShownFrame>>) -> Result<Vec<TrackedFrame>> {
    let count = shown.first().map_or(0, Vec::len);
    let mut classes: Vec<_> = shown.into_iter().map(Vec::into_iter).collect();
    (0..count).map(|_| join(classes.iter_mut().filter_map(Iterator::next).collect())).collect()
}
