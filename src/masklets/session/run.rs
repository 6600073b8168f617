//! A run of a session.

use std::collections::VecDeque;
use std::iter::FusedIterator;

use super::VideoSession;
use crate::masklets::tracked::{TrackedFrame, join};
use ocelli_error::{Error, Result};
use ocelli_tracking::masklets::ShownFrame;

/// The rest of the current run, which is still to be shown.
#[derive(Default)]
pub(super) struct Run {
    shown: VecDeque<ShownFrame>,
    error: Option<Error>,
    has_ended: bool,
}

/// The frames of a run as they leave, made by [`VideoSession::propagate`]: with a text 14 frames late, so that objects that turn
/// out to be false are never shown. After an error it ends; the frames that were held back come before it. If it is dropped
/// early, [`VideoSession::next_frame`] returns the rest.
pub struct SessionRun<'s>(pub(super) &'s mut VideoSession);

impl Iterator for SessionRun<'_> {
    type Item = Result<TrackedFrame>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(mut shown) = self.0.run.shown.pop_front() {
                // They may have been removed since the frame left.
                shown.objects.retain(|object| !self.0.removed.contains(&object.id));
                return Some(join(vec![shown]));
            }
            if self.0.run.has_ended {
                return self.0.run.error.take().map(Err);
            }
            let (session, mut network) = self.0.parts();
            match session.advance(&mut network) {
                Ok(Some(step)) => self.0.run.shown.extend(step.shown),
                Ok(None) => self.0.run.has_ended = true,
                Err(error) => {
                    // What was found before is whole.
                    let shown = session.finish().unwrap_or_default().into();
                    self.0.run = Run { shown, error: Some(error), has_ended: true };
                }
            }
        }
    }
}

impl FusedIterator for SessionRun<'_> {}
