//! What a fake GPU knows: streams with what is enqueued on them, events, graphs, clocks.

use super::memory::{Accesses, Clock, FakeMemory};
use super::{FakeWork, Live, Span};
use crate::cuda::calls::{CallError, CallResult, RawContext, RawEvent, RawGraph, RawStream};
use std::alloc::Layout;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::ThreadId;

pub(super) const INVALID_VALUE: i32 = 1;
pub(super) const INVALID_HANDLE: i32 = 400;
pub(super) const ILLEGAL_ADDRESS: i32 = 700;
pub(super) const CAPTURE_UNSUPPORTED: i32 = 900;
pub(super) const CAPTURE_INVALIDATED: i32 = 901;
pub(super) const CAPTURE_ISOLATION: i32 = 905;

/// The host, among the actors of a clock.
const HOST: usize = 0;
/// Bytes that a copy moves in a unit of time.
const BYTES_A_UNIT: u64 = 1000;

pub(super) struct State {
    pub(super) devices: usize,
    pub(super) device_bytes: u64,
    pub(super) memory: FakeMemory,
    pub(super) pinned: BTreeMap<usize, Pinned>,
    pub(super) streams: HashMap<usize, Stream>,
    pub(super) events: HashMap<usize, Event>,
    pub(super) graphs: HashMap<usize, Vec<Operation>>,
    pub(super) contexts: usize,
    pub(super) modules: usize,
    /// Which context each thread has.
    pub(super) current: HashMap<ThreadId, RawContext>,
    pub(super) races: Vec<String>,
    pub(super) counts: BTreeMap<&'static str, usize>,
    pub(super) failures: Vec<Failure>,
    pub(super) timeline: Vec<Span>,
    host: Clock,
    host_time: u64,
    next_handle: usize,
    next_actor: usize,
}

/// A call that is to fail.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) call: &'static str,
    pub(super) after: usize,
    pub(super) times: usize,
    pub(super) code: i32,
}

/// Page-locked memory: the host's own.
pub(super) struct Pinned {
    pub(super) layout: Layout,
    pub(super) accesses: Accesses,
}

pub(super) struct Stream {
    actor: usize,
    clock: Clock,
    /// When what is enqueued ends.
    time: u64,
    waiting: VecDeque<Step>,
    enqueued: u64,
    done: u64,
    pub(super) capture: Option<Capture>,
}

/// What a stream does next.
enum Step {
    /// Until the stream of this handle has done so many.
    Wait {
        stream: usize,
        done: u64,
    },
    Run(Action),
}

pub(super) struct Capture {
    pub(super) thread: ThreadId,
    pub(super) operations: Vec<Operation>,
    pub(super) spoilt: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Event {
    clock: Clock,
    time: u64,
    /// The stream it was recorded on, and how much of it lies before.
    point: Option<(usize, u64)>,
}

/// Something that is enqueued, as often as its graph is launched.
#[derive(Clone)]
pub(super) struct Operation {
    label: String,
    device: Vec<(u64, usize, bool)>,
    pinned: Option<(usize, usize, bool)>,
    duration: u64,
    /// Whether the timeline shows it.
    shown: bool,
    action: Action,
}

/// What is done when its turn comes.
#[derive(Clone)]
enum Action {
    ToDevice { to: u64, from: usize, bytes: usize },
    ToHost { to: usize, from: u64, bytes: usize },
    OnDevice { to: u64, from: u64, bytes: usize },
    Fill { to: u64, value: u8, bytes: usize },
    Work(Arc<dyn Fn(&mut FakeMemory) + Send + Sync>),
}

impl Operation {
    fn copy(label: &str, device: Vec<(u64, usize, bool)>, bytes: usize, action: Action) -> Self {
        let duration = (bytes as u64).div_ceil(BYTES_A_UNIT);
        Self { label: label.to_owned(), device, pinned: None, duration, shown: false, action }
    }

    pub(super) fn to_device(to: u64, from: NonNull<u8>, bytes: usize) -> Self {
        let from = from.as_ptr().expose_provenance();
        let copy = Self::copy(
            "a copy to the device",
            vec![(to, bytes, true)],
            bytes,
            Action::ToDevice { to, from, bytes },
        );
        Self { pinned: Some((from, bytes, false)), ..copy }
    }

    pub(super) fn to_host(to: NonNull<u8>, from: u64, bytes: usize) -> Self {
        let to = to.as_ptr().expose_provenance();
        let copy = Self::copy(
            "a copy to the host",
            vec![(from, bytes, false)],
            bytes,
            Action::ToHost { to, from, bytes },
        );
        Self { pinned: Some((to, bytes, true)), ..copy }
    }

    pub(super) fn on_device(to: u64, from: u64, bytes: usize) -> Self {
        let touched = vec![(from, bytes, false), (to, bytes, true)];
        Self::copy("a copy on the device", touched, bytes, Action::OnDevice { to, from, bytes })
    }

    pub(super) fn fill(to: u64, value: u8, bytes: usize) -> Self {
        Self::copy("a fill", vec![(to, bytes, true)], bytes, Action::Fill { to, value, bytes })
    }

    pub(super) fn work(work: FakeWork) -> Self {
        let reads = work.reads.iter().map(|&(address, bytes)| (address, bytes, false));
        let writes = work.writes.iter().map(|&(address, bytes)| (address, bytes, true));
        Self {
            label: work.label,
            device: reads.chain(writes).collect(),
            pinned: None,
            duration: work.duration,
            shown: true,
            action: Action::Work(work.run),
        }
    }
}

impl State {
    pub(super) fn new(devices: usize, device_bytes: u64) -> Self {
        let mut host = Clock::default();
        host.step(HOST);
        Self {
            devices,
            device_bytes,
            memory: FakeMemory::default(),
            pinned: BTreeMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            graphs: HashMap::new(),
            contexts: 0,
            modules: 0,
            current: HashMap::new(),
            races: Vec::new(),
            counts: BTreeMap::new(),
            failures: Vec::new(),
            timeline: Vec::new(),
            host,
            host_time: 0,
            next_handle: 0x1000,
            next_actor: HOST + 1,
        }
    }

    /// Counts a call, and fails it where it is to fail.
    pub(super) fn begin(&mut self, call: &'static str) -> CallResult<()> {
        *self.counts.entry(call).or_default() += 1;
        for failure in self.failures.iter_mut().filter(|failure| failure.call == call) {
            if failure.after > 0 {
                failure.after -= 1;
            } else if failure.times > 0 {
                failure.times -= 1;
                return Err(refused(call, failure.code));
            }
        }
        Ok(())
    }

    /// [`begin`](Self::begin) for calls that need the thread to have a context.
    pub(super) fn begin_in_context(&mut self, call: &'static str) -> CallResult<()> {
        if !self.current.contains_key(&std::thread::current().id()) {
            self.races.push(format!("{call} without a context"));
        }
        self.begin(call)
    }

    /// [`begin_in_context`](Self::begin_in_context) for calls that spoil a capture of the same thread.
    pub(super) fn begin_outside_captures(&mut self, call: &'static str) -> CallResult<()> {
        self.begin_in_context(call)?;
        let thread = std::thread::current().id();
        let captures = self.streams.values_mut().filter_map(|stream| stream.capture.as_mut());
        let mut spoilt = false;
        for capture in captures.filter(|capture| capture.thread == thread) {
            capture.spoilt = true;
            spoilt = true;
        }
        if spoilt { Err(refused(call, CAPTURE_UNSUPPORTED)) } else { Ok(()) }
    }

    pub(super) fn handle(&mut self) -> usize {
        self.next_handle += 8;
        self.next_handle
    }

    pub(super) fn create_stream(&mut self) -> RawStream {
        let handle = self.handle();
        let stream = Stream {
            actor: self.next_actor,
            clock: Clock::default(),
            time: 0,
            waiting: VecDeque::new(),
            enqueued: 0,
            done: 0,
            capture: None,
        };
        self.next_actor += 1;
        self.streams.insert(handle, stream);
        RawStream(handle)
    }

    pub(super) fn stream(&mut self, call: &'static str, stream: RawStream) -> CallResult<&mut Stream> {
        if !self.streams.contains_key(&stream.0) {
            self.races.push(format!("{call}: there is no such stream"));
        }
        self.streams.get_mut(&stream.0).ok_or_else(|| refused(call, INVALID_HANDLE))
    }

    fn event(&mut self, call: &'static str, event: RawEvent) -> CallResult<Event> {
        if !self.events.contains_key(&event.0) {
            self.races.push(format!("{call}: there is no such event"));
        }
        self.events.get(&event.0).cloned().ok_or_else(|| refused(call, INVALID_HANDLE))
    }

    /// Enqueues, or captures where the stream is being captured.
    pub(super) fn enqueue(&mut self, on: RawStream, operation: Operation) -> CallResult<()> {
        let stream = self.stream("enqueue", on)?;
        if let Some(capture) = &mut stream.capture {
            capture.operations.push(operation);
            return Ok(());
        }
        self.host.step(HOST);
        let (host, host_time) = (self.host.clone(), self.host_time);
        let stream = self.stream("enqueue", on)?;
        stream.clock.follow(&host);
        let moment = stream.clock.step(stream.actor);
        let clock = stream.clock.clone();
        let start = stream.time.max(host_time);
        let end = start + operation.duration;
        stream.time = end;
        let who = format!("{} on stream {:#x}", operation.label, on.0);
        for &(address, bytes, writes) in operation.device.iter().filter(|(_, bytes, _)| *bytes > 0) {
            let Some(accesses) = self.memory.accesses(address, bytes) else {
                self.races.push(format!("{who}: there are no {bytes} bytes at {address:#x}, or no more"));
                return Err(refused("enqueue", ILLEGAL_ADDRESS));
            };
            let race = accesses.note(&clock, moment, &who, writes);
            self.races.extend(race.map(|race| format!("{address:#x}: {race}")));
        }
        if let Some((address, bytes, writes)) = operation.pinned.filter(|(_, bytes, _)| *bytes > 0) {
            let found = self.pinned.range_mut(..=address).next_back();
            let Some((_, pinned)) =
                found.filter(|(begin, pinned)| address - **begin + bytes <= pinned.layout.size())
            else {
                self.races.push(format!("{who}: {bytes} bytes at {address:#x} are not page-locked"));
                return Err(refused("enqueue", INVALID_VALUE));
            };
            let race = pinned.accesses.note(&clock, moment, &who, writes);
            self.races.extend(race.map(|race| format!("page-locked {address:#x}: {race}")));
        }
        if operation.shown {
            self.timeline.push(Span { label: operation.label, stream: on, start, end });
        }
        let stream = self.stream("enqueue", on)?;
        stream.waiting.push_back(Step::Run(operation.action));
        stream.enqueued += 1;
        Ok(())
    }

    pub(super) fn record(&mut self, event: RawEvent, on: RawStream) -> CallResult<()> {
        self.event("cuEventRecord", event)?;
        let stream = self.stream("cuEventRecord", on)?;
        if let Some(capture) = &mut stream.capture {
            // Allowed in principle; then the event belongs to the capture, which no owner here is made for.
            capture.spoilt = true;
            return Err(refused("cuEventRecord", CAPTURE_UNSUPPORTED));
        }
        let point =
            Event { clock: stream.clock.clone(), time: stream.time, point: Some((on.0, stream.enqueued)) };
        self.events.insert(event.0, point);
        Ok(())
    }

    pub(super) fn hold(&mut self, on: RawStream, event: RawEvent) -> CallResult<()> {
        let event = self.event("cuStreamWaitEvent", event)?;
        let stream = self.stream("cuStreamWaitEvent", on)?;
        if let Some(capture) = &mut stream.capture {
            capture.spoilt = true;
            return Err(refused("cuStreamWaitEvent", CAPTURE_ISOLATION));
        }
        if let Some((other, done)) = event.point {
            stream.clock.follow(&event.clock);
            stream.time = stream.time.max(event.time);
            stream.waiting.push_back(Step::Wait { stream: other, done });
            stream.enqueued += 1;
        }
        Ok(())
    }

    pub(super) fn wait_for_event(&mut self, event: RawEvent) -> CallResult<()> {
        let event = self.event("cuEventSynchronize", event)?;
        if let Some((stream, done)) = event.point {
            self.run(stream, done);
            self.host.follow(&event.clock);
            self.host_time = self.host_time.max(event.time);
        }
        Ok(())
    }

    pub(super) fn event_is_done(&mut self, event: RawEvent) -> CallResult<bool> {
        let event = self.event("cuEventQuery", event)?;
        let Some((stream, done)) = event.point else { return Ok(true) };
        let is_done = self.streams.get(&stream).is_none_or(|stream| stream.done >= done);
        if is_done {
            self.host.follow(&event.clock);
        }
        Ok(is_done)
    }

    pub(super) fn wait_for_stream(&mut self, stream: RawStream) -> CallResult<()> {
        let waited = self.stream("cuStreamSynchronize", stream)?;
        if let Some(capture) = &mut waited.capture {
            capture.spoilt = true;
            return Err(refused("cuStreamSynchronize", CAPTURE_UNSUPPORTED));
        }
        let (clock, time, enqueued) = (waited.clock.clone(), waited.time, waited.enqueued);
        self.run(stream.0, enqueued);
        self.host.follow(&clock);
        self.host_time = self.host_time.max(time);
        Ok(())
    }

    /// Runs what is enqueued on a stream until it has done so many, and what that waits for.
    pub(super) fn run(&mut self, handle: usize, until: u64) {
        loop {
            let Some(stream) = self.streams.get_mut(&handle) else { return };
            if stream.done >= until {
                return;
            }
            let Some(step) = stream.waiting.pop_front() else { return };
            stream.done += 1;
            match step {
                Step::Wait { stream, done } => self.run(stream, done),
                Step::Run(action) => self.act(&action),
            }
        }
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::ToDevice { to, from, bytes } => {
                let from: *const u8 = std::ptr::with_exposed_provenance(from);
                // SAFETY: the range was checked when the copy was enqueued, and page-locked memory with something
                // enqueued on it is not given back (`free_pinned` runs that first).
                let source = unsafe { std::slice::from_raw_parts(from, bytes) };
                self.memory.bytes_mut(to, bytes).copy_from_slice(source);
            }
            Action::ToHost { to, from, bytes } => {
                let to: *mut u8 = std::ptr::with_exposed_provenance_mut(to);
                let source = self.memory.bytes(from, bytes);
                // SAFETY: as above; that the host does not look at it in the meantime is what `races` reports on.
                unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), to, bytes) };
            }
            Action::OnDevice { to, from, bytes } => {
                let source = self.memory.bytes(from, bytes).to_vec();
                self.memory.bytes_mut(to, bytes).copy_from_slice(&source);
            }
            Action::Fill { to, value, bytes } => self.memory.bytes_mut(to, bytes).fill(value),
            Action::Work(ref run) => run(&mut self.memory),
        }
    }

    /// An access of the host to page-locked memory.
    pub(super) fn host_touches(&mut self, address: usize, writes: bool) {
        let moment = self.host.step(HOST);
        if let Some(pinned) = self.pinned.get_mut(&address) {
            let race = pinned.accesses.note(&self.host, moment, "the host", writes);
            self.races.extend(race.map(|race| format!("page-locked {address:#x}: {race}")));
        }
    }

    /// Gives device memory back, which must be ordered after everything that uses it.
    pub(super) fn free(&mut self, address: u64) -> CallResult<()> {
        let moment = self.host.step(HOST);
        let race = self
            .memory
            .accesses(address, 1)
            .and_then(|accesses| accesses.note(&self.host, moment, "giving it back", true));
        self.races.extend(race.map(|race| format!("{address:#x}: {race}")));
        self.run_everything();
        if self.memory.free(address) {
            return Ok(());
        }
        self.races.push(format!("{address:#x} is given back, but is not there"));
        Err(refused("cuMemFree", INVALID_VALUE))
    }

    /// As the driver does before it gives memory back.
    pub(super) fn run_everything(&mut self) {
        let streams: Vec<_> =
            self.streams.iter().map(|(handle, stream)| (*handle, stream.enqueued)).collect();
        streams.into_iter().for_each(|(handle, enqueued)| self.run(handle, enqueued));
    }

    pub(super) fn live(&self) -> Live {
        Live {
            contexts: self.contexts,
            blocks: self.memory.len(),
            pinned: self.pinned.len(),
            streams: self.streams.len(),
            events: self.events.len(),
            graphs: self.graphs.len(),
            modules: self.modules,
        }
    }

    pub(super) fn graph(&self, graph: RawGraph) -> CallResult<Vec<Operation>> {
        self.graphs.get(&graph.0).cloned().ok_or_else(|| refused("cuGraphLaunch", INVALID_HANDLE))
    }
}

pub(super) fn refused(call: &'static str, code: i32) -> CallError {
    let reason = match code {
        CallError::OUT_OF_MEMORY => "out of memory",
        INVALID_VALUE => "invalid argument",
        INVALID_HANDLE => "invalid resource handle",
        ILLEGAL_ADDRESS => "an illegal memory access was encountered",
        CAPTURE_UNSUPPORTED => "operation not permitted when stream is capturing",
        CAPTURE_INVALIDATED => "operation failed due to a previous error during capture",
        CAPTURE_ISOLATION => "dependency created on uncaptured work in another stream",
        _ => "it was told to fail",
    };
    CallError { call, code, reason: format!("{reason} (error {code} of the fake)") }
}
