//! Live sources that reconnect.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use super::{Source, SourceInfo};
use crate::cancellation::Cancellation;
use crate::frame::Frame;
use ocelli_error::{Error, ErrorKind, Result};

/// The delay before the second attempt; the first one is immediate. It doubles with each attempt until a connection provides frames
/// for longer than the next delay. A delay is shortened by up to a half at random, so that many clients of a server do not return at
/// once.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// The longest delay.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// A live source that reconnects when it is lost, with exponential backoff.
///
/// A source is lost when it ends, fails or times out; losses and reconnections are logged. Frame indices continue after
/// a reconnection, and times continue by the clock. The frame size may change with it. A source that is off at the start is
/// [waited for](Self::waiting) in the same way.
pub struct Reconnecting<O> {
    open: O,
    source: Option<Box<dyn Source>>,
    info: SourceInfo,
    give_up_after: Duration,
    cancellation: Cancellation,
    clock: Clock,
    /// The time when the stream was first opened.
    began: Duration,
    /// The time when the current connection was opened, and whether it has provided a frame.
    opened: Duration,
    has_frame: bool,
    loss: Option<Loss>,
    /// Why the source could not be opened the first time, until it is open.
    unopened: Option<Error>,
    /// The delay before the next attempt.
    delay: Duration,
    /// Added to the current connection's indices and times.
    index_offset: u64,
    time_offset: Duration,
    last: Option<(u64, Duration)>,
}

/// A loss that no frame has ended yet.
struct Loss {
    why: String,
    /// The time to give up.
    deadline: Duration,
    attempts: u64,
}

/// Time and chance; tests have their own.
struct Clock {
    now: Box<dyn Fn() -> Duration + Send>,
    /// Waits, unless cancelled.
    sleep: Box<dyn FnMut(Duration, &Cancellation) + Send>,
    /// A number in 0..1.
    random: Box<dyn FnMut() -> f64 + Send>,
}

impl Clock {
    fn system() -> Self {
        let start = Instant::now();
        let chance = RandomState::new();
        let mut drawn = 0u64;
        Self {
            now: Box::new(move || start.elapsed()),
            sleep: Box::new(|time, cancellation| _ = cancellation.wait(time)),
            random: Box::new(move || {
                drawn += 1;
                (chance.hash_one(drawn) >> 11) as f64 / (1u64 << 53) as f64
            }),
        }
    }
}

impl<O> fmt::Debug for Reconnecting<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnecting").field("info", &self.info).finish_non_exhaustive()
    }
}

impl<O: FnMut() -> Result<Box<dyn Source>> + Send> Reconnecting<O> {
    /// Opens the stream with `open`, which is called again to reconnect, for `give_up_after` after a loss until the next frame arrives;
    /// zero never reconnects.
    ///
    /// # Errors
    /// The first error of `open`: a wrong URL fails immediately.
    pub fn connect(mut open: O, give_up_after: Duration, cancellation: Cancellation) -> Result<Self> {
        let source = open()?;
        let mut connected = Self::new(open, give_up_after, cancellation);
        connected.info = SourceInfo { live: true, frame_count: None, ..source.info().clone() };
        connected.source = Some(source);
        Ok(connected)
    }

    fn new(open: O, give_up_after: Duration, cancellation: Cancellation) -> Self {
        Self {
            open,
            source: None,
            info: SourceInfo { live: true, ..SourceInfo::default() },
            give_up_after,
            cancellation,
            // It starts here.
            clock: Clock::system(),
            began: Duration::ZERO,
            opened: Duration::ZERO,
            has_frame: false,
            loss: None,
            unopened: None,
            delay: Duration::ZERO,
            index_offset: 0,
            time_offset: Duration::ZERO,
            last: None,
        }
    }

    /// A source that could not be opened because of `error`, and is tried again like one that was lost: when its first frame
    /// is read, or in [`wait_until_open`](Self::wait_until_open). Until then no more than its name is known.
    ///
    /// If it turns out not to be live it is read to its end, which is no loss.
    pub fn waiting(
        name: impl Into<String>,
        error: Error,
        open: O,
        give_up_after: Duration,
        cancellation: Cancellation,
    ) -> Self {
        let mut waiting = Self::new(open, give_up_after, cancellation);
        (waiting.info.name, waiting.info.live) = (name.into(), !give_up_after.is_zero());
        if !give_up_after.is_zero() {
            tracing::warn!("{error}; trying again for {} s", give_up_after.as_secs_f64());
            waiting.delay = FIRST_DELAY;
            let deadline = waiting.began.saturating_add(give_up_after);
            waiting.loss = Some(Loss { why: "it was not there".into(), deadline, attempts: 1 });
        }
        waiting.unopened = Some(error);
        waiting
    }

    /// Waits until the source is open, if it is not; `false` if cancelled. From then on its size and rate are known.
    ///
    /// # Errors
    /// Why it could not be opened the last time, if it was tried for long enough.
    pub fn wait_until_open(&mut self) -> Result<bool> {
        Ok(self.source.is_some() || self.reconnect("it is not open")?)
    }

    /// Takes over a source that was opened for the first time.
    fn begin(&mut self, source: Box<dyn Source>) {
        let found = source.info();
        let frame_count = found.frame_count.filter(|_| !found.live);
        self.info = SourceInfo { name: self.info.name.clone(), frame_count, ..found.clone() };
        self.began = self.opened;
        (self.unopened, self.loss, self.source) = (None, None, Some(source));
    }

    /// Opens the stream again; `false` if cancelled.
    fn reconnect(&mut self, why: &str) -> Result<bool> {
        let (name, give_up_after) = (self.info.name.clone(), self.give_up_after);
        if give_up_after.is_zero() {
            let lost = || Error::new(ErrorKind::Io, format!("the stream was lost, {name}: {why}"));
            return Err(self.unopened.take().unwrap_or_else(lost));
        }
        let now = (self.clock.now)();
        if self.has_frame && now.saturating_sub(self.opened) >= self.delay {
            // The connection was worth its wait.
            self.delay = Duration::ZERO;
        }
        if self.loss.is_none() {
            tracing::warn!("{name}: {why}; reconnecting");
            let deadline = now.saturating_add(give_up_after);
            self.loss = Some(Loss { why: why.to_owned(), deadline, attempts: 0 });
        }
        let mut latest = Error::new(ErrorKind::Io, why);
        while !self.cancellation.is_cancelled() {
            let Some(loss) = &mut self.loss else { return Ok(false) };
            let left = loss.deadline.saturating_sub((self.clock.now)());
            // The last attempt is made at the deadline.
            if left.is_zero() && loss.attempts > 0 {
                let Loss { why, attempts, .. } = loss;
                let (seconds, s) = (give_up_after.as_secs_f64(), if *attempts == 1 { "" } else { "s" });
                if self.unopened.is_some() {
                    let message = format!("{latest}; given up after {attempts} attempt{s} in {seconds} s");
                    return Err(Error::new(latest.kind(), message).with_source(latest));
                }
                return Err(Error::new(ErrorKind::Io, format!(
                    "the stream was lost, {name}: {why}; reconnecting failed after {attempts} attempt{s} in {seconds} s: \
                     {latest}"
                )).with_source(latest));
            }
            loss.attempts += 1;
            let attempt = loss.attempts;
            let delay = self.delay.mul_f64(1.0 - 0.5 * (self.clock.random)());
            (self.clock.sleep)(delay.min(left), &self.cancellation);
            if self.cancellation.is_cancelled() {
                break;
            }
            self.delay = match self.delay {
                Duration::ZERO => FIRST_DELAY,
                delay => delay.saturating_mul(2).min(LONGEST_DELAY),
            };
            match (self.open)() {
                Ok(source) if self.unopened.is_some() => {
                    tracing::warn!("{name}: connected, attempt {attempt}");
                    self.opened = (self.clock.now)();
                    self.begin(source);
                    return Ok(true);
                }
                Ok(source) => {
                    tracing::warn!("{name}: reconnected, attempt {attempt}");
                    let (index, time) =
                        self.last.map_or((0, Duration::ZERO), |(index, time)| (index + 1, time));
                    self.opened = (self.clock.now)();
                    self.index_offset = index;
                    self.time_offset = time.max(self.opened.saturating_sub(self.began));
                    self.has_frame = false;
                    self.source = Some(source);
                    return Ok(true);
                }
                Err(error) => {
                    tracing::info!("{name}: attempt {attempt}: {error}");
                    latest = error;
                }
            }
        }
        Ok(false)
    }
}

impl<O: FnMut() -> Result<Box<dyn Source>> + Send> Source for Reconnecting<O> {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        loop {
            if self.cancellation.is_cancelled() {
                return Ok(false);
            }
            // A file that was waited for, which has an end.
            let is_file = !self.info.live;
            let why = match self.source.as_mut().map(|source| source.read_into(frame)) {
                Some(read) if is_file => return read,
                Some(Ok(true)) => {
                    frame.index += self.index_offset;
                    frame.time = frame.time.saturating_add(self.time_offset);
                    self.last = Some((frame.index, frame.time));
                    self.has_frame = true;
                    self.loss = None;
                    return Ok(true);
                }
                Some(Ok(false)) | None => "it ended".to_owned(),
                Some(Err(error)) if error.kind() == ErrorKind::Cancelled => return Err(error),
                Some(Err(error)) => {
                    let message = error.to_string();
                    message.strip_prefix(&format!("{}: ", self.info.name)).unwrap_or(&message).to_owned()
                }
            };
            // A camera has to be closed before it can be opened again.
            self.source = None;
            if self.cancellation.is_cancelled() || !self.reconnect(&why)? {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests;
