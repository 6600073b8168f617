//! Streams, the order that their work keeps, and captured work.

use super::buffer::CudaBuffer;
use super::context::{Context, Mark, next_stream_number};
use super::driver::failed;
use super::staging::{LARGEST_PIECE, Staging};
use cudarc::driver::{self, CudaEvent, DriverError, result, sys};
use ocelli_error::{Error, Result, refuse};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The priority of a stream: of two that have work, the higher one is scheduled first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum StreamPriority {
    /// The lowest priority of the device.
    #[default]
    Normal,
    /// The highest priority of the device.
    High,
}

/// A queue of work on a GPU. Work on one stream runs in order, and concurrently with other streams.
///
/// The order between streams follows from the buffers; see [`enqueue`](Self::enqueue).
pub struct CudaStream {
    pub(super) stream: Arc<driver::CudaStream>,
    number: u64,
    context: Arc<Context>,
}

impl CudaStream {
    pub(super) fn on(context: &Arc<Context>, priority: StreamPriority) -> Result<Self> {
        let make = || {
            context.cuda.bind_to_thread()?;
            let (lowest, highest) = result::stream::get_priority_range()?;
            context.cuda.new_stream_with_priority(match priority {
                StreamPriority::Normal => lowest,
                StreamPriority::High => highest,
            })
        };
        let stream = make().map_err(|error| failed(format_args!("{}, new stream", context.name), error))?;
        Ok(Self { stream, number: next_stream_number(), context: Arc::clone(context) })
    }

    /// The driver's handle, a `CUstream`, for libraries that enqueue work on it.
    pub(crate) fn raw(&self) -> *mut c_void {
        self.stream.cu_stream().cast()
    }

    /// Enqueues work that reads some buffers and writes others, in order with all other work on them.
    ///
    /// On the device, the stream first waits for the last writes of the buffers that are read, and for the last writes
    /// and reads of those that are written; later work on the buffers waits for this work. A buffer may be both read and
    /// written. `work` is called once, before this returns, with the device's context bound to the thread. It may enqueue
    /// on this stream only, and what it enqueues may use only these buffers and memory that nothing else uses.
    ///
    /// # Errors
    /// Those of `work`; [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a buffer is on another
    /// device, or another thread is enqueueing a write of it at the same time;
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the driver fails.
    pub fn enqueue<'b, T>(
        &self,
        reads: impl Iterator<Item = &'b CudaBuffer> + Clone,
        writes: impl Iterator<Item = &'b CudaBuffer> + Clone,
        work: impl FnOnce(*mut c_void) -> Result<T>,
    ) -> Result<T> {
        self.enqueue_marked(reads, writes, work).map(|(outcome, _)| outcome)
    }

    /// As [`enqueue`](Self::enqueue); also returns the event that is reached at the end of the work.
    fn enqueue_marked<'b, T>(
        &self,
        reads: impl Iterator<Item = &'b CudaBuffer> + Clone,
        writes: impl Iterator<Item = &'b CudaBuffer> + Clone,
        work: impl FnOnce(*mut c_void) -> Result<T>,
    ) -> Result<(T, Arc<CudaEvent>)> {
        let mut begun = 0;
        let prepared = self.wait_for_buffers(reads.clone(), writes.clone(), &mut begun);
        let outcome = prepared.and_then(|()| {
            let outcome = work(self.raw());
            // A part of the work may be enqueued even if `work` has failed.
            let event = self.record()?;
            let mark = || Mark { stream: self.number, event: Arc::clone(&event) };
            reads.for_each(|buffer| buffer.usage().read(mark()));
            writes.clone().for_each(|buffer| buffer.usage().written(mark()));
            outcome.map(|outcome| (outcome, event))
        });
        writes.take(begun).for_each(|buffer| buffer.usage().being_written = false);
        outcome
    }

    /// Makes the stream wait for earlier uses of the buffers. `begun` counts the writes that were marked as begun.
    fn wait_for_buffers<'b>(
        &self,
        reads: impl Iterator<Item = &'b CudaBuffer>,
        writes: impl Iterator<Item = &'b CudaBuffer>,
        begun: &mut usize,
    ) -> Result<()> {
        self.bind()?;
        for buffer in writes {
            self.check_device(buffer)?;
            let mut usage = buffer.usage();
            if usage.being_written {
                refuse!("{buffer:?}: two threads are enqueueing a write of it at the same time");
            }
            usage.being_written = true;
            *begun += 1;
            let mut events = usage.before_writing(self.number);
            events.try_for_each(|event| self.stream.wait(event)).map_err(|error| self.failed(error))?;
        }
        for buffer in reads {
            self.check_device(buffer)?;
            let usage = buffer.usage();
            let mut events = usage.before_reading(self.number);
            events.try_for_each(|event| self.stream.wait(event)).map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    fn check_device(&self, buffer: &CudaBuffer) -> Result<()> {
        if buffer.context.cuda == self.context.cuda {
            return Ok(());
        }
        Err(Error::invalid_argument(format!("{buffer:?}: a stream of {} cannot use it", self.context.name)))
    }

    /// Records an event at the end of the stream. If that fails, waits for everything on the stream.
    fn record(&self) -> Result<Arc<CudaEvent>> {
        self.stream.record_event(None).map(Arc::new).map_err(|error| {
            if let Err(error) = self.wait() {
                tracing::debug!(%error, "a CUDA stream could be neither marked nor waited for");
            }
            self.failed(error)
        })
    }

    fn bind(&self) -> Result<()> {
        self.context.cuda.bind_to_thread().map_err(|error| self.failed(error))
    }

    /// Makes the stream wait for what is enqueued on the context's default stream, which other libraries use: no stream of
    /// this module waits for it by itself.
    pub(super) fn wait_for_default_stream(&self) -> Result<()> {
        self.bind()?;
        let event = self.context.cuda.default_stream().record_event(None);
        event.and_then(|event| self.stream.wait(&event)).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: DriverError) -> Error {
        failed(&self.context.name, error)
    }

    /// Waits until everything enqueued on the stream has finished.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if some of it failed.
    pub fn wait(&self) -> Result<()> {
        self.stream.synchronize().map_err(|error| self.failed(error))
    }

    /// Enqueues a copy of host memory into a buffer. When this returns, `bytes` can be reused.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if the range is out of bounds;
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the driver fails.
    pub fn copy_to_device(&self, buffer: &CudaBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let mut address = buffer.range(offset, bytes.len())?;
        for part in bytes.chunks(LARGEST_PIECE) {
            let mut staging = self.staging(part.len())?;
            let source = &mut staging.bytes().map_err(|error| self.failed(error))?[..part.len()];
            source.copy_from_slice(part);
            let copied = self.enqueue_marked(std::iter::empty(), std::iter::once(buffer), |stream| {
                // SAFETY: `range` checked the destination, whose uses are ordered by `enqueue`. The source is ours until
                // `copied`'s event, which `set_busy_until` makes its next user wait for.
                unsafe { result::memcpy_htod_async(address, source, stream.cast()) }
                    .map_err(|error| self.failed(error))
            });
            staging.set_busy_until(copied?.1);
            self.context.staging.put_back(staging);
            self.context.counts.to_device.fetch_add(part.len() as u64, Ordering::Relaxed);
            address += part.len() as u64;
        }
        Ok(())
    }

    /// Enqueues a copy from a buffer to host memory; [`Download::finish_into`] waits for it.
    pub(crate) fn download(
        &self,
        buffer: &CudaBuffer,
        offset: usize,
        bytes: usize,
        into: &mut Download,
    ) -> Result<()> {
        into.pieces.clear();
        let address = buffer.range(offset, bytes)?;
        for begin in (0..bytes).step_by(LARGEST_PIECE) {
            let part = LARGEST_PIECE.min(bytes - begin);
            let mut staging = self.staging(part)?;
            let target = &mut staging.bytes().map_err(|error| self.failed(error))?[..part];
            let copied = self.enqueue_marked(std::iter::once(buffer), std::iter::empty(), |stream| {
                // SAFETY: `range` checked the source, whose uses are ordered by `enqueue`. The destination is ours until
                // `copied`'s event, which `set_busy_until` makes every reader wait for.
                unsafe { result::memcpy_dtoh_async(target, address + begin as u64, stream.cast()) }
                    .map_err(|error| self.failed(error))
            });
            staging.set_busy_until(copied?.1);
            into.pieces.push((staging, Arc::clone(&self.context)));
            self.context.counts.to_host.fetch_add(part as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies from a buffer to host memory, and waits for the copy.
    ///
    /// # Errors
    /// As [`copy_to_device`](Self::copy_to_device), and [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the
    /// work that wrote the buffer failed.
    pub fn copy_to_host(&self, buffer: &CudaBuffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let mut download = Download::default();
        self.download(buffer, offset, bytes.len(), &mut download)?;
        download.finish_into(bytes)
    }

    /// Enqueues a copy from one buffer to another, or within one buffer between ranges that do not overlap.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) if a range is out of bounds;
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the driver fails.
    pub fn copy_on_device(
        &self,
        (target, target_offset): (&CudaBuffer, usize),
        (source, source_offset): (&CudaBuffer, usize),
        bytes: usize,
    ) -> Result<()> {
        let to = target.range(target_offset, bytes)?;
        let from = source.range(source_offset, bytes)?;
        self.enqueue(std::iter::once(source), std::iter::once(target), |stream| {
            // SAFETY: `range` checked both ends, and `enqueue` orders their uses.
            unsafe { result::memcpy_dtod_async(to, from, bytes, stream.cast()) }
                .map_err(|error| self.failed(error))
        })
    }

    fn staging(&self, bytes: usize) -> Result<Staging> {
        self.context.staging.take(&self.context.cuda, bytes).map_err(|error| {
            let name = &self.context.name;
            failed(format_args!("cannot lock {bytes} bytes of host memory for {name}"), error)
        })
    }

    /// Captures the work that `work` enqueues on this stream, without running it.
    ///
    /// # Errors
    /// Those of `work`; [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if some of it cannot be captured. The
    /// stream stays usable.
    pub fn capture(&self, work: impl FnOnce(*mut c_void) -> Result<()>) -> Result<CudaGraph> {
        // Other threads may call the driver during the capture.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(|error| self.failed(error))?;
        let outcome = work(self.raw());
        let ended = self.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        outcome?;
        match ended.map_err(|error| self.failed(error))? {
            Some(graph) => Ok(CudaGraph(graph)),
            None => {
                let message = format!("{}: the capture was invalidated by the work in it", self.context.name);
                Err(Error::execution(message))
            }
        }
    }
}

debug_as!(CudaStream, it => "CudaStream({} of {})", it.number, it.context.name);

/// Work that was captured once, with the addresses it used then, and is launched as a whole.
pub struct CudaGraph(driver::CudaGraph);

// SAFETY: a graph belongs to no thread. Only two threads at once must not use it, and it is not `Sync`.
unsafe impl Send for CudaGraph {}

impl CudaGraph {
    /// Enqueues the captured work on `stream`.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the driver fails.
    ///
    /// # Safety
    /// The memory that the captured work uses still exists, and its uses are in order; see [`CudaStream::enqueue`].
    pub unsafe fn launch(&self, stream: &CudaStream) -> Result<()> {
        stream.bind()?;
        // SAFETY: the graph and the stream exist, and the caller guarantees the memory.
        let launched = unsafe { result::graph::launch(self.0.cu_graph_exec(), stream.stream.cu_stream()) };
        launched.map_err(|error| stream.failed(error))
    }
}

debug_as!(CudaGraph, _it => "CudaGraph");

/// A copy to host memory that has been enqueued. It can be used for one copy after another.
#[derive(Default)]
pub(crate) struct Download {
    pieces: Vec<(Staging, Arc<Context>)>,
}

impl Download {
    /// Waits for the copy and stores the bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if the work that wrote the buffer failed.
    ///
    /// # Panics
    /// If `bytes` has another length than the copy.
    pub(crate) fn finish_into(&mut self, mut bytes: &mut [u8]) -> Result<()> {
        for (mut piece, context) in self.pieces.drain(..) {
            let part;
            (part, bytes) = bytes.split_at_mut(LARGEST_PIECE.min(bytes.len()));
            let source = piece.bytes().map_err(|error| failed(&context.name, error))?;
            part.copy_from_slice(&source[..part.len()]);
            context.staging.put_back(piece);
        }
        Ok(())
    }

    /// Marks the copy as finished, after the caller has waited for something later on the same stream.
    pub(crate) fn set_finished(&mut self) {
        self.pieces.iter_mut().for_each(|(piece, _)| piece.set_idle());
    }
}

debug_as!(Download, it => "Download in {} pieces", it.pieces.len());
