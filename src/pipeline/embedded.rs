//! The loop inside another program.

use std::time::Duration;

use super::builder::PipelineBuilder;
use super::stats::PipelineStats;
use crate::error::{Error, ErrorKind, Result};
use crate::frame_view::FrameView;
use crate::sink::FrameOutcome;

/// A loop that frames are pushed into and results are taken out of.
///
/// It can be shared: every method takes `&self`, so one thread may push and another take (`Pipeline` is `Send` and
/// `Sync`). Several loops in one process know nothing of each other. Nothing is printed; what goes wrong in a stage is
/// returned by the next call.
///
/// With [`FramePolicy::All`](super::FramePolicy::All) nothing is lost and everything is bounded, so a caller that pushes
/// without ever taking results will wait for ever; with [`FramePolicy::Latest`](super::FramePolicy::Latest) newer frames
/// take the place of older ones, and newer results that of results nobody took.
///
/// Dropping it ends it: what is being computed is waited for, what waits is forgotten.
#[derive(Debug)]
pub struct Pipeline {}

impl Pipeline {
    pub(super) fn start(_: PipelineBuilder) -> Result<Self> {
        Err(Error::new(ErrorKind::Unavailable, "the loop is not there yet"))
    }

    /// Takes in a frame and gives its number, counted from 0. It is preprocessed on the calling thread, straight from
    /// the caller's memory; when this returns, the memory is the caller's again.
    ///
    /// With [`FramePolicy::All`](super::FramePolicy::All) it waits for room.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a frame whose bytes are too few, and after [`close`](Self::close);
    /// [`ErrorKind::Cancelled`]; the error that ended the loop.
    pub fn push(&self, _frame: FrameView<'_>) -> Result<u64> {
        todo_error()
    }

    /// As [`push`](Self::push), but never waits: none where there is no room, or while another thread pushes.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn try_push(&self, _frame: FrameView<'_>) -> Result<Option<u64>> {
        todo_error()
    }

    /// The next frame's results, in the order in which the frames were pushed, or none where there are none now.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`]; the error that ended the loop, once the results before it have been taken.
    pub fn try_recv(&self) -> Result<Option<FrameOutcome>> {
        todo_error()
    }

    /// As [`try_recv`](Self::try_recv), and waits for at most `timeout`. It comes back at once when the loop has
    /// [ended](Self::is_ended).
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn recv_timeout(&self, _timeout: Duration) -> Result<Option<FrameOutcome>> {
        todo_error()
    }

    /// As [`try_recv`](Self::try_recv), and waits; none when the loop was [closed](Self::close) and everything was
    /// taken.
    ///
    /// # Errors
    /// As [`try_recv`](Self::try_recv).
    pub fn recv(&self) -> Result<Option<FrameOutcome>> {
        todo_error()
    }

    /// There will be no more frames: those pushed so far are finished, and the loop ends when they were taken.
    pub fn close(&self) {}

    /// Whether no more results will come, and none wait.
    pub fn is_ended(&self) -> bool {
        true
    }

    /// Counts and times so far.
    pub fn stats(&self) -> PipelineStats {
        PipelineStats::default()
    }

    /// Gives an outcome's memory back, to be filled again; optional.
    pub fn recycle(&self, _outcome: FrameOutcome) {}
}

fn todo_error<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unavailable, "the loop is not there yet"))
}
