//! A live stream that comes back.

use std::fmt;
use std::time::{Duration, Instant};

use super::{Source, SourceInfo};
use crate::cancellation::Cancellation;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;

/// Between two looks at whether someone wants an end.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long and how often a lost stream is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconnectingOptions {
    /// Before the second attempt; the first is made at once. It doubles with each attempt.
    pub first_delay: Duration,
    /// No delay is longer.
    pub longest_delay: Duration,
    /// For how long after it was lost a stream is asked for; zero: not at all.
    pub give_up_after: Duration,
}

impl Default for ReconnectingOptions {
    fn default() -> Self {
        Self {
            first_delay: Duration::from_millis(500),
            longest_delay: Duration::from_secs(10),
            give_up_after: Duration::from_secs(60),
        }
    }
}

/// What time it is, and waiting; a test has a clock of its own.
pub trait Clock: Send {
    /// Since any moment that stays the same.
    fn now(&self) -> Duration;

    /// Lets time pass.
    fn wait(&mut self, time: Duration);
}

/// The system's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A live source that is opened again when it is lost: with a delay that doubles, and for so long.
///
/// A source is lost when it ends, fails, or says that nothing came in time; which of them is in the log, as is its
/// return. Frames are numbered on, and their time goes on with the clock. It can be taken for lost that a stream's
/// size changes: the frames then have another size.
pub struct Reconnecting<O, C = SystemClock> {
    open: O,
    source: Option<Box<dyn Source>>,
    info: SourceInfo,
    options: ReconnectingOptions,
    cancellation: Cancellation,
    clock: C,
    began: Duration,
    /// What is added to the present connection's numbers and times.
    index_offset: u64,
    time_offset: Duration,
    last: Option<(u64, Duration)>,
    losses: u64,
}

impl<O, C> fmt::Debug for Reconnecting<O, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnecting")
            .field("info", &self.info)
            .field("losses", &self.losses)
            .finish_non_exhaustive()
    }
}

impl<O: FnMut() -> Result<Box<dyn Source>> + Send> Reconnecting<O> {
    /// Opens the stream with `open`, which is also what opens it again.
    ///
    /// # Errors
    /// What `open` says the first time: an address that is wrong is known at once.
    pub fn connect(open: O, options: ReconnectingOptions, cancellation: Cancellation) -> Result<Self> {
        Self::connect_with_clock(open, options, cancellation, SystemClock::default())
    }
}

impl<O: FnMut() -> Result<Box<dyn Source>> + Send, C: Clock> Reconnecting<O, C> {
    /// As [`connect`](Reconnecting::connect), by another clock.
    ///
    /// # Errors
    /// As [`connect`](Reconnecting::connect).
    pub fn connect_with_clock(
        mut open: O,
        options: ReconnectingOptions,
        cancellation: Cancellation,
        clock: C,
    ) -> Result<Self> {
        let source = open()?;
        let info = SourceInfo { live: true, frame_count: None, ..source.info().clone() };
        let began = clock.now();
        Ok(Self {
            open,
            source: Some(source),
            info,
            options,
            cancellation,
            clock,
            began,
            index_offset: 0,
            time_offset: Duration::ZERO,
            last: None,
            losses: 0,
        })
    }

    /// How often the stream was lost so far.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// Opens the stream again. `false`: someone wants an end.
    fn reconnect(&mut self, why: &str) -> Result<bool> {
        self.losses += 1;
        let name = self.info.name.clone();
        let Some(deadline) =
            Some(self.options.give_up_after).filter(|t| !t.is_zero()).map(|t| self.clock.now() + t)
        else {
            return Err(Error::new(ErrorKind::Io, format!("the stream is gone, {name}: {why}")));
        };
        tracing::warn!("{name}: {why}; connecting again");
        let mut delay = self.options.first_delay;
        for attempt in 1u64.. {
            if self.cancellation.is_cancelled() {
                return Ok(false);
            }
            let error = match (self.open)() {
                Ok(source) => {
                    tracing::warn!("{name}: it is back, attempt {attempt}");
                    let (index, time) =
                        self.last.map_or((0, Duration::ZERO), |(index, time)| (index + 1, time));
                    self.index_offset = index;
                    self.time_offset = time.max(self.clock.now().saturating_sub(self.began));
                    self.source = Some(source);
                    return Ok(true);
                }
                Err(error) => error,
            };
            tracing::info!("{name}: attempt {attempt}: {error}");
            let left = deadline.saturating_sub(self.clock.now());
            if left.is_zero() {
                let seconds = self.options.give_up_after.as_secs_f64();
                let tries = if attempt == 1 { "1 attempt".into() } else { format!("{attempt} attempts") };
                let message = format!(
                    "the stream is gone, {name}: {why}, and {tries} in {seconds} s did not bring it back: {error}"
                );
                return Err(Error::new(ErrorKind::Io, message).with_source(error));
            }
            // The last attempt is made when the time is up.
            if !self.wait(delay.min(left)) {
                return Ok(false);
            }
            delay = (2 * delay).min(self.options.longest_delay);
        }
        Ok(false)
    }

    /// Waits, unless someone wants an end.
    fn wait(&mut self, mut delay: Duration) -> bool {
        while !delay.is_zero() && !self.cancellation.is_cancelled() {
            let piece = delay.min(PATIENCE);
            self.clock.wait(piece);
            delay -= piece;
        }
        !self.cancellation.is_cancelled()
    }
}

impl<O: FnMut() -> Result<Box<dyn Source>> + Send, C: Clock> Source for Reconnecting<O, C> {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        loop {
            if self.cancellation.is_cancelled() {
                return Ok(false);
            }
            let why = match self.source.as_mut().map(|source| source.read_into(frame)) {
                Some(Ok(true)) => {
                    frame.index += self.index_offset;
                    frame.time += self.time_offset;
                    self.last = Some((frame.index, frame.time));
                    return Ok(true);
                }
                Some(Ok(false)) | None => "it ended".to_owned(),
                Some(Err(error)) if error.kind() == ErrorKind::Cancelled => return Err(error),
                Some(Err(error)) => {
                    let message = error.to_string();
                    message.strip_prefix(&format!("{}: ", self.info.name)).unwrap_or(&message).to_owned()
                }
            };
            // A device has to be let go before it can be opened again.
            self.source = None;
            if !self.reconnect(&why)? {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests;
