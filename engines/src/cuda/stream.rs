//! Streams, and the order that what is enqueued on them keeps.

use super::buffer::CudaBuffer;
use super::calls::{CudaCalls, RawStream};
use super::device::CudaDevice;
use super::event::{Events, Mark};
use super::graph::CudaGraph;
use super::staging::{self, Staging};
use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which of two streams goes first where both have work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum StreamPriority {
    /// After those of high priority.
    #[default]
    Normal,
    /// First.
    High,
}

/// A queue of a GPU's: what is enqueued runs in order, beside what other streams have.
///
/// Between streams, order follows from the buffers: see [`enqueue`](Self::enqueue).
pub struct CudaStream {
    raw: RawStream,
    /// Tells streams apart for as long as the process lives, which the driver's handles do not.
    number: u64,
    events: Arc<Events>,
}

impl CudaStream {
    /// A stream of a device.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where the device is lost or full.
    pub fn new(device: &CudaDevice, priority: StreamPriority) -> Result<Self> {
        Self::on(device.core().events(), priority).map_err(|error| match error.kind() {
            ErrorKind::Execution => {
                Error::new(ErrorKind::Execution, format!("{}: {error}", device.core().name()))
            }
            _ => error,
        })
    }

    pub(super) fn on(events: &Arc<Events>, priority: StreamPriority) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let made = events.context().bound().and_then(|calls| {
            // SAFETY: the context is bound.
            let (least, greatest) = unsafe { calls.priorities() }?;
            let priority = match priority {
                StreamPriority::Normal => least,
                StreamPriority::High => greatest,
            };
            // SAFETY: as above.
            unsafe { calls.create_stream(priority) }
        });
        let raw = made.map_err(|error| error.during("cannot make a CUDA stream"))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { raw, number, events: Arc::clone(events) })
    }

    /// The driver's handle, for calls that enqueue on it; its device's context is the primary one.
    pub fn raw(&self) -> RawStream {
        self.raw
    }

    /// Enqueues work that reads some buffers and writes others, in order with all other work on them.
    ///
    /// Before it, on the device, the stream is made to wait for the last writes of what is read, and for the last writes
    /// and reads of what is written; after it, what others enqueue on those buffers waits for it. A buffer may be both.
    /// `work` is called at once, with the context of the device bound to the thread, and enqueues on this stream alone;
    /// what it enqueues must read and write nothing but these buffers and what no one else touches.
    ///
    /// # Errors
    /// Those of `work`; [`ErrorKind::InvalidArgument`] if a buffer lies on another device or another thread is just
    /// enqueueing a write of it; [`ErrorKind::Execution`] where the device is lost.
    pub fn enqueue<'b, T>(
        &self,
        reads: impl Iterator<Item = &'b CudaBuffer> + Clone,
        writes: impl Iterator<Item = &'b CudaBuffer> + Clone,
        work: impl FnOnce(RawStream) -> Result<T>,
    ) -> Result<T> {
        self.enqueue_marked(reads, writes, work).map(|(outcome, _)| outcome)
    }

    /// [`enqueue`](Self::enqueue) that also says where the work ends.
    pub(super) fn enqueue_marked<'b, T>(
        &self,
        reads: impl Iterator<Item = &'b CudaBuffer> + Clone,
        writes: impl Iterator<Item = &'b CudaBuffer> + Clone,
        work: impl FnOnce(RawStream) -> Result<T>,
    ) -> Result<(T, Mark)> {
        let mut begun = 0;
        let prepared = self.hold(reads.clone(), writes.clone(), &mut begun);
        let outcome = prepared.and_then(|()| {
            self.bound()?;
            // Part of it may be enqueued even when it fails, so what follows happens in any case.
            let outcome = work(self.raw);
            let mark = self.mark_or_wait()?;
            reads.for_each(|buffer| buffer.usage().read(mark.clone()));
            writes.clone().for_each(|buffer| buffer.usage().written(mark.clone()));
            outcome.map(|outcome| (outcome, mark))
        });
        writes.take(begun).for_each(|buffer| buffer.usage().being_written = false);
        outcome
    }

    /// Has the stream wait for those before it, and notes that writes begin.
    fn hold<'b>(
        &self,
        reads: impl Iterator<Item = &'b CudaBuffer>,
        writes: impl Iterator<Item = &'b CudaBuffer>,
        begun: &mut usize,
    ) -> Result<()> {
        for buffer in writes {
            self.is_of_this_device(buffer)?;
            let mut usage = buffer.usage();
            if usage.being_written {
                let message = format!("{buffer:?}: two writes of it are being enqueued at once");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            usage.being_written = true;
            *begun += 1;
            usage.hold_writer(self.raw, self.number).map_err(|error| error.during(self.place()))?;
        }
        for buffer in reads {
            self.is_of_this_device(buffer)?;
            let usage = buffer.usage();
            usage.hold_reader(self.raw, self.number).map_err(|error| error.during(self.place()))?;
        }
        Ok(())
    }

    fn is_of_this_device(&self, buffer: &CudaBuffer) -> Result<()> {
        let (own, other) = (self.events.context().ordinal(), buffer.core().context().ordinal());
        if own == other {
            return Ok(());
        }
        let message = format!("{buffer:?}: it cannot be used by a stream of CUDA device {own}");
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }

    /// The end of the stream.
    pub(super) fn mark(&self) -> Result<Mark> {
        self.events.mark(self.raw, self.number).map_err(|error| error.during(self.place()))
    }

    /// The end of the stream; where that cannot be marked, nothing is left on it that anybody would have to wait for.
    fn mark_or_wait(&self) -> Result<Mark> {
        self.mark().inspect_err(|_| {
            if let Err(error) = self.wait() {
                tracing::debug!(%error, "a CUDA stream could be neither marked nor waited for");
            }
        })
    }

    /// Waits until everything enqueued is done.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where it failed.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the stream is ours, and the context is bound.
        let waited = unsafe { self.bound()?.synchronize_stream(self.raw) };
        waited.map_err(|error| error.during(self.place()))
    }

    /// The calls, with the context bound to this thread.
    pub(crate) fn bound(&self) -> Result<&dyn CudaCalls> {
        self.events.context().bound().map_err(|error| error.during(self.place()))
    }

    fn place(&self) -> &super::context::Context {
        self.events.context()
    }

    /// Copies bytes to a buffer, through page-locked memory; when it returns, `bytes` may be used for something else.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if they do not fit; [`ErrorKind::Execution`] where the device is lost.
    pub fn copy_to_device(&self, buffer: &CudaBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let core = buffer.core();
        let mut address = buffer.range(offset, bytes.len())?;
        for piece in bytes.chunks(staging::MOST_BYTES) {
            let mut through = core.staging(piece.len())?;
            through.memory().as_mut_slice()[..piece.len()].copy_from_slice(piece);
            let from = through.memory().address();
            let copied = self.enqueue_marked(std::iter::empty(), std::iter::once(buffer), |stream| {
                // SAFETY: both places are of this size, what is enqueued on the buffer is waited for, and nobody else
                // touches the page-locked piece before the mark.
                let copied = unsafe { self.bound()?.copy_to_device(address, from, piece.len(), stream) };
                copied.map_err(|error| error.during(core.name()))
            });
            through.is_busy_until(copied?.1);
            core.give_back(through);
            core.count_to_device(piece.len());
            address += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies bytes of a buffer to the host, and waits for them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there are not as many; [`ErrorKind::Execution`] where what was to write them
    /// failed, or the device is lost.
    pub fn copy_to_host(&self, buffer: &CudaBuffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let mut download = Download::default();
        self.download(buffer, offset, bytes.len(), &mut download)?;
        download.finish_into(bytes)
    }

    /// Enqueues a copy of bytes of a buffer to page-locked memory, where `into` finds them.
    ///
    /// # Errors
    /// As [`copy_to_host`](Self::copy_to_host).
    pub fn download(
        &self,
        buffer: &CudaBuffer,
        offset: usize,
        bytes: usize,
        into: &mut Download,
    ) -> Result<()> {
        into.abandon();
        let core = buffer.core();
        let address = buffer.range(offset, bytes)?;
        into.core = Some(Arc::clone(core));
        for begin in (0..bytes).step_by(staging::MOST_BYTES) {
            let piece = staging::MOST_BYTES.min(bytes - begin);
            let mut through = core.staging(piece)?;
            let to = through.memory().address();
            let copied = self.enqueue_marked(std::iter::once(buffer), std::iter::empty(), |stream| {
                // SAFETY: both places are of this size, the last write of the buffer is waited for, and nobody else
                // touches the page-locked piece before the mark.
                let copied = unsafe { self.bound()?.copy_to_host(to, address + begin as u64, piece, stream) };
                copied.map_err(|error| error.during(core.name()))
            });
            through.is_busy_until(copied?.1);
            into.pieces.push(through);
            core.count_to_host(piece);
        }
        Ok(())
    }

    /// Captures what `work` enqueues on this stream, without running it.
    ///
    /// # Errors
    /// Those of `work`; [`ErrorKind::Execution`] where something of it cannot be captured. The stream can be used again.
    pub fn capture(&self, work: impl FnOnce(RawStream) -> Result<()>) -> Result<CudaGraph> {
        let context = self.events.context();
        let calls = self.bound()?;
        // SAFETY: the stream is ours, and the context is bound.
        unsafe { calls.begin_capture(self.raw) }.map_err(|error| error.during(context))?;
        let outcome = work(self.raw);
        // What `work` calls may have bound another context.
        let calls = self.bound()?;
        // SAFETY: the capture was begun above, on this thread.
        let ended = unsafe { calls.end_capture(self.raw) };
        let graph = ended.map(|raw| CudaGraph::new(context, raw)).map_err(|error| error.during(context));
        outcome.and(graph)
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        let destroyed = self.events.context().bound().and_then(|calls| {
            // SAFETY: the stream is ours; what is enqueued on it still runs, and its buffers wait for their marks.
            unsafe { calls.destroy_stream(self.raw) }
        });
        if let Err(error) = destroyed {
            tracing::debug!(%error, "a CUDA stream was not destroyed");
        }
    }
}

impl fmt::Debug for CudaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaStream({} of {:?})", self.number, self.events.context())
    }
}

/// Bytes on their way to the host; the way can be used again and again.
#[derive(Debug, Default)]
pub struct Download {
    pieces: Vec<Staging>,
    core: Option<Arc<super::device::Core>>,
}

impl Download {
    /// Waits for the bytes and copies them, as many as there are.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`] where what was to write them failed.
    ///
    /// # Panics
    /// If `bytes` is longer or shorter than what was asked for.
    pub fn finish_into(&mut self, bytes: &mut [u8]) -> Result<()> {
        let Some(core) = self.core.take() else { return Ok(()) };
        let mut rest = bytes;
        let mut outcome = Ok(());
        for mut piece in self.pieces.drain(..) {
            let (own, others) = rest.split_at_mut(staging::MOST_BYTES.min(rest.len()));
            rest = others;
            outcome = outcome.and(piece.wait().map_err(|error| error.during(core.name())));
            if outcome.is_ok() {
                own.copy_from_slice(&piece.memory().as_slice()[..own.len()]);
            }
            core.give_back(piece);
        }
        outcome
    }

    /// Whoever calls this has waited for something that was enqueued later on the same stream.
    pub fn is_done(&mut self) {
        self.pieces.iter_mut().for_each(Staging::is_done);
    }

    fn abandon(&mut self) {
        if let Some(core) = self.core.take() {
            self.pieces.drain(..).for_each(|piece| core.give_back(piece));
        }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        self.abandon();
    }
}
