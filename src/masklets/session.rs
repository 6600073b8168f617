//! Objects in a video whose frames can be read in any order.

use ocelli_tracking::masklets::{
    Click, DetectorPrompt, MaskletOptions, MaskletSession, ObjectId, Retention, RunDirection, ShownFrame,
    VideoShape,
};

use super::detect::MaskFrame;
use super::network::{Bank, FrameNetwork, MaskletNetwork};
use super::track::open;
use super::tracked::{TrackedFrame, join};
use crate::detector::Detector;
use ocelli_error::Result;

/// Follows the objects of one class through a video: forward and backward, with clicks and removals between runs.
///
/// `source` fills a frame by its number, mostly with a [`MaskDetector`](super::MaskDetector). It is called again for a frame
/// that was left; features are kept for the current frame alone.
pub struct MaskSession<S> {
    session: MaskletSession,
    network: MaskletNetwork,
    bank: Bank,
    frame: MaskFrame,
    source: S,
}

impl<S: FnMut(usize, &mut MaskFrame) -> Result<()>> MaskSession<S> {
    /// A session without a prompt, on the engines of `detector`.
    ///
    /// # Errors
    /// As [`MaskTracker::new`](super::MaskTracker::new).
    pub fn new(detector: &Detector, video: VideoShape, options: MaskletOptions, source: S) -> Result<Self> {
        let network = open(detector, &options)?;
        let session = MaskletSession::new(video, Retention::Video, options)?;
        let bank = network.bank();
        Ok(Self { session, network, bank, frame: MaskFrame::default(), source })
    }

    fn parts(&mut self) -> (&mut MaskletSession, FrameNetwork<'_>) {
        let Self { session, network, bank, frame, source } = self;
        (session, FrameNetwork { network, bank, class_id: 0, source, frame })
    }

    /// Starts over: finds the objects of one frame. A run passes that frame again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no such frame; errors of the source and
    /// of the graphs, after which the session has to be prompted again.
    pub fn prompt(&mut self, frame: usize) -> Result<TrackedFrame> {
        self.network.forget_frame();
        let (session, mut network) = self.parts();
        let step = session.prompt(DetectorPrompt::Text, frame, &mut network)?;
        let mut shown = joined(step.shown)?;
        Ok(shown.pop().unwrap_or(TrackedFrame { frame, objects: Vec::new() }))
    }

    /// Plans a run, in place of one that has not ended: from `start`, by default the first frame with results, over
    /// `max_frames` more frames, by default to the end of the video. A backward run begins with the frame before the start.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no prompt or no such frame.
    pub fn propagate(
        &mut self,
        direction: RunDirection,
        start: Option<usize>,
        max_frames: Option<usize>,
    ) -> Result<()> {
        self.session.propagate(direction, start, max_frames)
    }

    /// Processes the next frame of the run, and returns the frames that leave now; `None` at the end of the run.
    ///
    /// # Errors
    /// As [`prompt`](Self::prompt).
    pub fn advance(&mut self) -> Result<Option<Vec<TrackedFrame>>> {
        let (session, mut network) = self.parts();
        session.advance(&mut network)?.map(|step| joined(step.shown)).transpose()
    }

    /// Clicks on an object of a frame that was shown: one that is tracked is refined, another one is added under this id. The
    /// next run tracks clicked objects alone, and shows this mask on this frame. More clicks on the same frame refine the mask
    /// that it has by then: give earlier clicks again where they should still count.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there are no clicks or no results of that frame;
    /// errors of the source and of the graphs.
    pub fn add_points(&mut self, frame: usize, id: ObjectId, clicks: &[Click]) -> Result<TrackedFrame> {
        let (session, mut network) = self.parts();
        let shown = session.click(frame, id, clicks, &mut network)?;
        join(vec![shown])
    }

    /// Removes an object from all frames. Returns whether there was one.
    pub fn remove(&mut self, id: ObjectId) -> bool {
        self.session.remove_object(id)
    }

    /// Forgets the prompt, all objects and all results.
    pub fn reset(&mut self) {
        self.session.reset();
        self.network.forget_frame();
    }

    /// The ids of the objects that are tracked.
    pub fn objects(&self) -> Vec<ObjectId> {
        self.session.objects()
    }
}

fn joined(shown: Vec<ShownFrame>) -> Result<Vec<TrackedFrame>> {
    shown.into_iter().map(|shown| join(vec![shown])).collect()
}
