//! Several sources as one, in fair turns.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder as ThreadBuilder, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::{Source, SourceInfo};
use crate::cancellation::{CancelHook, Cancellation};
use crate::frame::{Frame, Origin};
use crate::threads::{Stage, cannot_start_thread, guard, locked};
use ocelli_error::{Error, Result, refuse};

/// The time that a stream that is dropped waits for the threads of its sources: less than a run waits for its source.
const PATIENCE: Duration = Duration::from_millis(800);
/// The most sources of one stream.
const MAX_SOURCES: usize = 1024;

/// One of [`Several`] sources.
pub struct Feed {
    /// Its name in results; unique.
    pub name: String,
    /// Its frames.
    pub source: Box<dyn Source>,
}

/// Several sources through one pipeline, so that one model serves them all.
///
/// Each source is read on a thread of its own. Of a live source the newest frame waits for its turn and replaces an older
/// one; other sources keep every frame, and are read one frame ahead. Sources that have a frame take turns; one that has none
/// loses its turn. Recorded sources that keep every frame play side by side: of their frames
/// the one with the earliest time goes next, so that each run gives the same order. [`Frame::origin`] says which source a
/// frame is from; indices and times are those of the source. The stream ends when all sources have. A source that fails, or
/// panics, ends alone, unless all of them fail.
///
/// Dropping the stream closes the sources and joins their threads, within a second: a source that still waits for a frame
/// then is left behind, and closed when its read returns.
///
/// In a pipeline each source has a tracker and a class budget of its own.
pub struct Several {
    info: SourceInfo,
    origins: Vec<Origin>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Whose turn it is.
    turn: usize,
    cancellation: Cancellation,
    _woken: CancelHook,
}

/// The states of the sources of [`Several`]; clones show the same.
#[derive(Clone)]
pub struct SeveralStates(Arc<Shared>);

/// The state of one of several sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedState {
    /// Its name.
    pub name: String,
    /// Frames that it got a turn for.
    pub frames: u64,
    /// Frames that newer ones have replaced.
    pub dropped: u64,
    /// `true` if it has ended.
    pub ended: bool,
    /// Why it has failed.
    pub error: Option<String>,
}

struct Shared {
    slots: Mutex<Slots>,
    changed: Condvar,
}

struct Slots {
    all: Vec<Slot>,
    closed: bool,
    /// Threads whose sources are not closed yet.
    open: usize,
    first_error: Option<Error>,
}

impl Slots {
    /// The source with the earliest frame of those in the order of time; `None` while one of them may still get an earlier.
    fn earliest(&self) -> Option<usize> {
        let in_order = || self.all.iter().enumerate().filter(|(_, slot)| slot.in_order);
        if in_order().any(|(_, slot)| slot.frame.is_none() && !slot.state.ended) {
            return None;
        }
        let times = in_order().filter_map(|(number, slot)| Some((slot.frame.as_ref()?.time, number)));
        times.min().map(|(_, number)| number)
    }
}

#[derive(Default)]
struct Slot {
    /// The frame that waits for its turn.
    frame: Option<Frame>,
    /// A buffer to read into.
    spare: Option<Frame>,
    /// Set if its frames are in the order of time with those of other sources.
    in_order: bool,
    state: FeedState,
}

impl Several {
    /// Starts to read `feeds`. `newest` is whether newer frames replace older ones; by default they do in live sources.
    ///
    /// # Errors
    /// [`InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) without a source, or with two of the same name;
    /// [`Io`](ocelli_error::ErrorKind::Io) if a thread cannot be started.
    pub fn start(feeds: Vec<Feed>, newest: Option<bool>, cancellation: Cancellation) -> Result<Self> {
        if feeds.is_empty() || feeds.len() > MAX_SOURCES {
            refuse!("{} sources: expected 1 to {MAX_SOURCES}", feeds.len());
        }
        for (number, feed) in feeds.iter().enumerate() {
            if feeds[..number].iter().any(|other| other.name == feed.name) {
                refuse!("two sources are named {}: expected a name for each", feed.name);
            }
        }
        let infos = || feeds.iter().map(|feed| feed.source.info());
        let frame_count =
            infos().try_fold(0u64, |sum, info| info.frame_count.and_then(|count| sum.checked_add(count)));
        let fastest = infos().filter_map(|info| info.frame_rate).reduce(f64::max);
        let info = SourceInfo {
            name: format!("{} sources", feeds.len()),
            size: infos().find_map(|info| info.size),
            frame_rate: fastest,
            frame_count,
            live: infos().any(|info| info.live),
            keeps_newest: true,
            has_sound: infos().any(|info| info.has_sound),
            ..SourceInfo::default()
        };
        let origins: Vec<Origin> = feeds
            .iter()
            .enumerate()
            .map(|(number, feed)| Origin {
                number,
                name: Arc::from(feed.name.as_str()),
                frame_rate: feed.source.info().frame_rate.filter(|rate| rate.is_finite() && *rate > 0.0),
            })
            .collect();
        let keeps_newest = |feed: &Feed| newest.unwrap_or(feed.source.info().live);
        let slot = |feed: &Feed| Slot {
            in_order: !keeps_newest(feed) && !feed.source.info().live,
            state: FeedState { name: feed.name.clone(), ..FeedState::default() },
            ..Slot::default()
        };
        let slots =
            Slots { all: feeds.iter().map(slot).collect(), closed: false, open: 0, first_error: None };
        let shared = Arc::new(Shared { slots: Mutex::new(slots), changed: Condvar::new() });
        let waiting = shared.clone();
        let woken = cancellation.on_cancel(move || {
            drop(locked(&waiting.slots));
            waiting.changed.notify_all();
        });
        let threads = Vec::new();
        let mut several = Self { info, origins, shared, threads, turn: 0, cancellation, _woken: woken };
        for (number, feed) in feeds.into_iter().enumerate() {
            let newest = keeps_newest(&feed);
            let shared = several.shared.clone();
            let thread = ThreadBuilder::new().name(format!("ocelli-source-{number}"));
            locked(&several.shared.slots).open += 1;
            let started = thread.spawn(move || {
                shared.read(number, feed.source, newest);
                locked(&shared.slots).open -= 1;
                shared.changed.notify_all();
            });
            if started.is_err() {
                locked(&several.shared.slots).open -= 1;
            }
            several.threads.push(started.map_err(cannot_start_thread)?);
        }
        Ok(several)
    }

    /// The state of each source, also after the stream has ended.
    pub fn states(&self) -> SeveralStates {
        SeveralStates(self.shared.clone())
    }
}

impl SeveralStates {
    /// The state of each source, in their order.
    pub fn snapshot(&self) -> Vec<FeedState> {
        locked(&self.0.slots).all.iter().map(|slot| slot.state.clone()).collect()
    }
}

impl Shared {
    /// Reads a source to its end.
    fn read(&self, number: usize, mut source: Box<dyn Source>, newest: bool) {
        let is_live = source.info().live;
        let mut frame = Frame::default();
        loop {
            let read = guard(Stage::Source, || source.read_into(&mut frame));
            if is_live && frame.captured.is_none() {
                frame.captured = Some(SystemTime::now());
            }
            let mut slots = locked(&self.slots);
            if let Err(error) = &read
                && !slots.closed
            {
                tracing::warn!("source {} failed: {error}", slots.all[number].state.name);
            }
            while !newest && !slots.closed && slots.all[number].frame.is_some() && matches!(read, Ok(true)) {
                slots = self.changed.wait(slots).unwrap_or_else(PoisonError::into_inner);
            }
            if slots.closed {
                return;
            }
            let slot = &mut slots.all[number];
            match read {
                Ok(true) => {
                    let replaced = slot.frame.take();
                    slot.state.dropped += u64::from(replaced.is_some());
                    slot.frame = Some(frame);
                    frame = replaced.or_else(|| slot.spare.take()).unwrap_or_default();
                    // What the next frame does not have must not be that of an earlier one.
                    (frame.captured, frame.file, frame.origin, frame.on_gpu) = (None, None, None, None);
                }
                Ok(false) => slot.state.ended = true,
                Err(error) => {
                    slot.state.ended = true;
                    slot.state.error = Some(error.to_string());
                    slots.first_error.get_or_insert(error);
                }
            }
            let ended = slots.all[number].state.ended;
            drop(slots);
            self.changed.notify_all();
            if ended {
                return;
            }
        }
    }
}

impl Source for Several {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        let mut slots = locked(&self.shared.slots);
        loop {
            if self.cancellation.is_cancelled() {
                return Ok(false);
            }
            let next = {
                let (earliest, count) = (slots.earliest(), slots.all.len());
                (self.turn..self.turn + count).map(|turn| turn % count).find(|&number| {
                    let slot = &slots.all[number];
                    slot.frame.is_some() && (!slot.in_order || earliest == Some(number))
                })
            };
            if let Some((number, mut waiting)) =
                next.and_then(|number| slots.all[number].frame.take().map(|frame| (number, frame)))
            {
                self.turn = number + 1;
                std::mem::swap(frame, &mut waiting);
                frame.origin = Some(self.origins[number].clone());
                slots.all[number].spare = Some(waiting);
                slots.all[number].state.frames += 1;
                drop(slots);
                self.shared.changed.notify_all();
                return Ok(true);
            }
            if slots.all.iter().all(|slot| slot.state.ended) {
                let all_failed = slots.all.iter().all(|slot| slot.state.error.is_some());
                return match slots.first_error.take().filter(|_| all_failed) {
                    Some(error) if slots.all.len() == 1 => Err(error),
                    Some(error) => {
                        let message = format!("all {} sources failed; the first: {error}", slots.all.len());
                        Err(Error::new(error.kind(), message).with_source(error))
                    }
                    None => Ok(false),
                };
            }
            slots = self.shared.changed.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let mut slots = locked(&self.shared.slots);
        slots.closed = true;
        self.shared.changed.notify_all();
        while slots.open > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let count = slots.open;
                tracing::debug!("{count} sources still wait for a frame and are left behind");
                break;
            }
            let changed = &self.shared.changed;
            slots = changed.wait_timeout(slots, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let all = slots.open == 0;
        drop(slots);
        for thread in self.threads.drain(..).filter(|thread| all || thread.is_finished()) {
            // Panics of the source were caught where they happened.
            drop(thread.join());
        }
    }
}

debug_as!(Several, it => "Several {{ info: {:?}, .. }}", it.info);
