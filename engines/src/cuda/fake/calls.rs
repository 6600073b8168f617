//! The calls, as the fake answers them.

use super::FakeCudaCalls;
use super::memory::Accesses;
use super::state::{
    CAPTURE_INVALIDATED, Capture, Event, INVALID_HANDLE, INVALID_VALUE, Operation, Pinned, refused,
};
use crate::cuda::calls::{
    CallError, CallResult, CudaCalls, HostAccess, Launch, RawContext, RawEvent, RawFunction, RawGraph,
    RawModule, RawStream,
};
use std::alloc::Layout;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: i32 = 801;
/// What the driver says it speaks: CUDA 13.0.
const DRIVER_VERSION: u32 = 13_000;

// SAFETY of the calls below: a handle or an address that is not there is looked up, not followed.
impl CudaCalls for FakeCudaCalls {
    fn driver_version(&self) -> CallResult<u32> {
        self.state().begin("cuDriverGetVersion")?;
        Ok(DRIVER_VERSION)
    }

    fn device_count(&self) -> CallResult<usize> {
        let mut state = self.state();
        state.begin("cuDeviceGetCount")?;
        Ok(state.devices)
    }

    fn device_name(&self, _ordinal: usize) -> CallResult<String> {
        self.state().begin("cuDeviceGetName")?;
        Ok("the fake GPU".to_owned())
    }

    fn compute_capability(&self, _ordinal: usize) -> CallResult<(u32, u32)> {
        self.state().begin("cuDeviceGetAttribute")?;
        Ok((8, 9))
    }

    fn retain_primary_context(&self, ordinal: usize) -> CallResult<RawContext> {
        let mut state = self.state();
        state.begin("cuDevicePrimaryCtxRetain")?;
        state.contexts += 1;
        Ok(RawContext(0x100 + ordinal))
    }

    unsafe fn release_primary_context(&self, _ordinal: usize) -> CallResult<()> {
        let mut state = self.state();
        state.begin("cuDevicePrimaryCtxRelease")?;
        state.contexts -= 1;
        let live = state.live();
        if live.contexts == 0 && live != super::Live::default() {
            state.races.push(format!("the context is released before {live:?}"));
        }
        Ok(())
    }

    unsafe fn set_current(&self, context: RawContext) -> CallResult<()> {
        let mut state = self.state();
        state.begin("cuCtxSetCurrent")?;
        state.current.insert(std::thread::current().id(), context);
        Ok(())
    }

    unsafe fn memory(&self) -> CallResult<(u64, u64)> {
        let mut state = self.state();
        state.begin_in_context("cuMemGetInfo")?;
        Ok((state.device_bytes - state.memory.used(), state.device_bytes))
    }

    unsafe fn allocate(&self, bytes: usize) -> CallResult<u64> {
        let mut state = self.state();
        state.begin_outside_captures("cuMemAlloc")?;
        if bytes == 0 {
            return Err(refused("cuMemAlloc", INVALID_VALUE));
        }
        if state.memory.used() + bytes as u64 > state.device_bytes {
            return Err(refused("cuMemAlloc", CallError::OUT_OF_MEMORY));
        }
        Ok(state.memory.allocate(bytes))
    }

    unsafe fn free(&self, address: u64) -> CallResult<()> {
        let mut state = self.state();
        state.begin_outside_captures("cuMemFree")?;
        state.free(address)
    }

    unsafe fn allocate_host(&self, bytes: usize) -> CallResult<NonNull<u8>> {
        let mut state = self.state();
        state.begin_outside_captures("cuMemHostAlloc")?;
        let layout = Layout::from_size_align(bytes, 4096).ok().filter(|layout| layout.size() > 0);
        let layout = layout.ok_or_else(|| refused("cuMemHostAlloc", INVALID_VALUE))?;
        // SAFETY: the layout is not of no bytes.
        let memory = NonNull::new(unsafe { std::alloc::alloc(layout) });
        let memory = memory.ok_or_else(|| refused("cuMemHostAlloc", CallError::OUT_OF_MEMORY))?;
        let pinned = Pinned { layout, accesses: Accesses::default() };
        state.pinned.insert(memory.as_ptr().expose_provenance(), pinned);
        Ok(memory)
    }

    unsafe fn free_host(&self, memory: NonNull<u8>) -> CallResult<()> {
        let mut state = self.state();
        state.begin_outside_captures("cuMemFreeHost")?;
        let address = memory.as_ptr().addr();
        state.host_touches(address, true);
        state.run_everything();
        let Some(pinned) = state.pinned.remove(&address) else {
            state.races.push("page-locked memory is given back, but is not there".to_owned());
            return Err(refused("cuMemFreeHost", INVALID_VALUE));
        };
        // SAFETY: it was allocated with this layout and is no longer known; what was enqueued on it has run.
        unsafe { std::alloc::dealloc(memory.as_ptr(), pinned.layout) };
        Ok(())
    }

    unsafe fn priorities(&self) -> CallResult<(i32, i32)> {
        self.state().begin_in_context("cuCtxGetStreamPriorityRange")?;
        Ok((0, -5))
    }

    unsafe fn create_stream(&self, _priority: i32) -> CallResult<RawStream> {
        let mut state = self.state();
        state.begin_outside_captures("cuStreamCreate")?;
        Ok(state.create_stream())
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuStreamDestroy")?;
        state.stream("cuStreamDestroy", stream)?;
        state.run(stream.0, u64::MAX);
        state.streams.remove(&stream.0);
        Ok(())
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuStreamSynchronize")?;
        state.wait_for_stream(stream)
    }

    unsafe fn create_event(&self) -> CallResult<RawEvent> {
        let mut state = self.state();
        state.begin_in_context("cuEventCreate")?;
        let handle = state.handle();
        state.events.insert(handle, Event::default());
        Ok(RawEvent(handle))
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuEventDestroy")?;
        if state.events.remove(&event.0).is_none() {
            state.races.push("an event is destroyed twice".to_owned());
        }
        Ok(())
    }

    unsafe fn record_event(&self, event: RawEvent, stream: RawStream) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuEventRecord")?;
        state.record(event, stream)
    }

    unsafe fn wait_event(&self, stream: RawStream, event: RawEvent) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuStreamWaitEvent")?;
        state.hold(stream, event)
    }

    unsafe fn synchronize_event(&self, event: RawEvent) -> CallResult<()> {
        let mut state = self.state();
        state.begin_outside_captures("cuEventSynchronize")?;
        state.wait_for_event(event)
    }

    unsafe fn event_is_done(&self, event: RawEvent) -> CallResult<bool> {
        let mut state = self.state();
        state.begin_outside_captures("cuEventQuery")?;
        state.event_is_done(event)
    }

    unsafe fn copy_to_device(
        &self,
        to: u64,
        from: NonNull<u8>,
        bytes: usize,
        stream: RawStream,
    ) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuMemcpyHtoDAsync")?;
        state.enqueue(stream, Operation::to_device(to, from, bytes))
    }

    unsafe fn copy_to_host(
        &self,
        to: NonNull<u8>,
        from: u64,
        bytes: usize,
        stream: RawStream,
    ) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuMemcpyDtoHAsync")?;
        state.enqueue(stream, Operation::to_host(to, from, bytes))
    }

    unsafe fn copy_on_device(&self, to: u64, from: u64, bytes: usize, stream: RawStream) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuMemcpyDtoDAsync")?;
        state.enqueue(stream, Operation::on_device(to, from, bytes))
    }

    unsafe fn fill(&self, to: u64, value: u8, bytes: usize, stream: RawStream) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuMemsetD8Async")?;
        state.enqueue(stream, Operation::fill(to, value, bytes))
    }

    unsafe fn begin_capture(&self, stream: RawStream) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuStreamBeginCapture")?;
        let thread = std::thread::current().id();
        state.stream("cuStreamBeginCapture", stream)?.capture =
            Some(Capture { thread, operations: Vec::new(), spoilt: false });
        Ok(())
    }

    unsafe fn end_capture(&self, stream: RawStream) -> CallResult<RawGraph> {
        let mut state = self.state();
        let failing = state.begin_in_context("cuStreamEndCapture");
        let capture = state.stream("cuStreamEndCapture", stream)?.capture.take();
        failing?;
        match capture {
            None => Err(refused("cuStreamEndCapture", INVALID_HANDLE)),
            Some(capture) if capture.spoilt => Err(refused("cuStreamEndCapture", CAPTURE_INVALIDATED)),
            Some(capture) => {
                let handle = state.handle();
                state.graphs.insert(handle, capture.operations);
                Ok(RawGraph(handle))
            }
        }
    }

    unsafe fn launch_graph(&self, graph: RawGraph, stream: RawStream) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuGraphLaunch")?;
        let operations = state.graph(graph)?;
        operations.into_iter().try_for_each(|operation| state.enqueue(stream, operation))
    }

    unsafe fn destroy_graph(&self, graph: RawGraph) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuGraphExecDestroy")?;
        if state.graphs.remove(&graph.0).is_none() {
            state.races.push("a graph is destroyed twice".to_owned());
        }
        Ok(())
    }

    unsafe fn load_module(&self, _image: &[u8]) -> CallResult<RawModule> {
        let mut state = self.state();
        state.begin_in_context("cuModuleLoadData")?;
        state.modules += 1;
        Ok(RawModule(state.handle()))
    }

    unsafe fn unload_module(&self, _module: RawModule) -> CallResult<()> {
        let mut state = self.state();
        state.begin_in_context("cuModuleUnload")?;
        state.modules -= 1;
        Ok(())
    }

    unsafe fn function(&self, _module: RawModule, _name: &CStr) -> CallResult<RawFunction> {
        let mut state = self.state();
        state.begin_in_context("cuModuleGetFunction")?;
        Ok(RawFunction(state.handle()))
    }

    /// A kernel is the device's own language: the fake runs [`FakeWork`](super::FakeWork) alone.
    unsafe fn launch_kernel(
        &self,
        _function: RawFunction,
        _launch: Launch,
        _parameters: &mut [*mut c_void],
        _stream: RawStream,
    ) -> CallResult<()> {
        self.state().begin_in_context("cuLaunchKernel")?;
        Err(refused("cuLaunchKernel", NOT_SUPPORTED))
    }

    fn host_accesses(&self, memory: NonNull<u8>, access: HostAccess) {
        self.state().host_touches(memory.as_ptr().addr(), access == HostAccess::Write);
    }
}
