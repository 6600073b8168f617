//! A run of a session.

use std::collections::VecDeque;
use std::iter::FusedIterator;

use super::VideoSession;
use crate::masklets::tracked::{TrackedFrame, join};
use ocelli_error::{Error, Result};
use ocelli_tracking::masklets::ShownFrame;

/// The frames of a run as they leave, made by [`VideoSession::propagate`]: with a text 14 frames late, so that objects that turn
/// out to be false are never shown. After an error it ends; the frames that were held back come before it. Dropping it ends
/// the run.
pub struct SessionRun<'s> {
    session: &'s mut VideoSession,
    shown: VecDeque<ShownFrame>,
    error: Option<Error>,
    has_ended: bool,
}

impl<'s> SessionRun<'s> {
    pub(super) fn new(session: &'s mut VideoSession) -> Self {
        Self { session, shown: VecDeque::new(), error: None, has_ended: false }
    }
}

impl Iterator for SessionRun<'_> {
    type Item = Result<TrackedFrame>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(shown) = self.shown.pop_front() {
                return Some(join(vec![shown]));
            }
            if self.has_ended {
                return self.error.take().map(Err);
            }
            let (session, mut network) = self.session.parts();
            match session.advance(&mut network) {
                Ok(Some(step)) => self.shown.extend(step.shown),
                Ok(None) => self.has_ended = true,
                Err(error) => {
                    (self.has_ended, self.error) = (true, Some(error));
                    // What was found before is whole.
                    self.shown.extend(session.finish().unwrap_or_default());
                }
            }
        }
    }
}

impl FusedIterator for SessionRun<'_> {}
