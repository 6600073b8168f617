//! Page-locked memory that goes round: what copies between the host's memory and a device pass through.

use super::calls::CallResult;
use super::context::Context;
use super::event::Mark;
use super::pinned::PinnedBuffer;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What one piece holds at most, in bytes; larger copies take several.
pub(super) const MOST_BYTES: usize = 16 << 20;
/// What one piece holds at least, in bytes.
const LEAST_BYTES: usize = 64 << 10;
/// So many pieces are kept when they are idle.
const MOST_IDLE: usize = 16;

/// A piece of page-locked memory on loan.
///
/// Dropped without being [given back](StagingPool::give_back) it waits for what is enqueued on it, and goes.
#[derive(Debug)]
pub(super) struct Staging {
    memory: PinnedBuffer,
    /// What is enqueued on it.
    busy: Option<Mark>,
}

impl Staging {
    pub(super) fn memory(&mut self) -> &mut PinnedBuffer {
        &mut self.memory
    }

    /// The device uses the memory until then.
    pub(super) fn is_busy_until(&mut self, mark: Mark) {
        self.busy = Some(mark);
    }

    /// Waits until the device does not use the memory.
    pub(super) fn wait(&mut self) -> CallResult<()> {
        match self.busy.take() {
            Some(mark) => mark.wait(),
            None => Ok(()),
        }
    }

    /// Someone has waited for something that comes later than what is enqueued on it.
    pub(super) fn is_done(&mut self) {
        self.busy = None;
    }

    fn has_finished(&self) -> bool {
        // A device that is lost is found out by whoever uses it next.
        self.busy.as_ref().is_none_or(|mark| mark.is_done().unwrap_or(true))
    }

    fn len(&self) -> usize {
        self.memory.len()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            tracing::debug!(%error, "the last copy through page-locked memory failed");
        }
    }
}

/// The pieces that nobody has on loan.
#[derive(Debug, Default)]
pub(super) struct StagingPool {
    /// The one that was given back first comes first.
    idle: Mutex<Vec<Staging>>,
}

impl StagingPool {
    /// A piece of at least this many bytes, at most [`MOST_BYTES`], that the device does not use.
    pub(super) fn take(&self, context: &Arc<Context>, bytes: usize) -> CallResult<Staging> {
        let mut idle = self.idle();
        let fits = |piece: &Staging| piece.len() >= bytes;
        let finished = idle
            .iter()
            .enumerate()
            .filter(|(_, piece)| fits(piece) && piece.has_finished())
            .min_by_key(|(_, piece)| piece.len())
            .map(|(index, _)| index);
        if let Some(index) = finished {
            let mut piece = idle.remove(index);
            piece.is_done();
            return Ok(piece);
        }
        // As many as there should be: rather wait for the oldest than make another.
        let oldest = if idle.len() < MOST_IDLE / 2 { None } else { idle.iter().position(fits) };
        if let Some(index) = oldest {
            let mut piece = idle.remove(index);
            drop(idle);
            piece.wait()?;
            return Ok(piece);
        }
        drop(idle);
        let bytes = bytes.next_power_of_two().max(LEAST_BYTES);
        Ok(Staging { memory: PinnedBuffer::lock(context, bytes)?, busy: None })
    }

    /// Takes a piece back, which the device may still use.
    pub(super) fn give_back(&self, piece: Staging) {
        let mut idle = self.idle();
        idle.push(piece);
        let leaving = (idle.len() > MOST_IDLE).then(|| idle.remove(0));
        drop(idle);
        drop(leaving);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Staging>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
