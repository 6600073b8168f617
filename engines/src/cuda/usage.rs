//! Who wrote and who reads a piece of memory: what the next one has to wait for.

use super::calls::{CallResult, RawStream};
use super::event::Mark;

/// What is enqueued on a piece of memory.
///
/// Whoever reads waits for the last write; whoever writes waits for the last write and for the reads since. A wait for a
/// point of the own stream is none.
#[derive(Debug, Default)]
pub(super) struct Usage {
    last_write: Option<Mark>,
    /// Since the last write, the latest of each stream.
    reads: Vec<Mark>,
    /// Between the beginning and the end of an enqueued write, which two must not do at once.
    pub(super) being_written: bool,
}

impl Usage {
    /// Has a stream wait until the memory can be read.
    pub(super) fn hold_reader(&self, raw: RawStream, stream: u64) -> CallResult<()> {
        match &self.last_write {
            Some(mark) if !mark.is_on(stream) => mark.hold(raw),
            _ => Ok(()),
        }
    }

    /// Has a stream wait until the memory can be written.
    pub(super) fn hold_writer(&self, raw: RawStream, stream: u64) -> CallResult<()> {
        self.hold_reader(raw, stream)?;
        self.reads.iter().filter(|mark| !mark.is_on(stream)).try_for_each(|mark| mark.hold(raw))
    }

    /// From here on the memory has been read.
    pub(super) fn read(&mut self, mark: Mark) {
        self.reads.retain(|earlier| earlier.stream() != mark.stream());
        self.reads.push(mark);
    }

    /// From here on the memory has been written, after everything that was enqueued on it.
    pub(super) fn written(&mut self, mark: Mark) {
        self.reads.clear();
        self.last_write = Some(mark);
    }

    /// Waits for the last write; the mark is to be waited for without holding what guards this.
    pub(super) fn last_write(&self) -> Option<Mark> {
        self.last_write.clone()
    }

    /// Everything enqueued that uses the memory, to be waited for without holding what guards this.
    pub(super) fn marks(&self) -> Vec<Mark> {
        self.last_write.iter().chain(&self.reads).cloned().collect()
    }

    /// Waits until nothing that is enqueued uses the memory.
    pub(super) fn wait(&self) -> CallResult<()> {
        self.last_write.iter().chain(&self.reads).try_for_each(Mark::wait)
    }
}
