//! Live sources that reconnect.

use std::fmt;
use std::time::{Duration, Instant};

use super::{Source, SourceInfo};
use crate::cancellation::Cancellation;
use crate::frame::Frame;
use ocelli_error::{Error, ErrorKind, Result};

/// How often a wait checks for cancellation.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// When to try to reconnect, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReconnectingOptions {
    /// The delay before the second attempt; the first one is immediate. It doubles with each attempt.
    pub first_delay: Duration,
    /// The longest delay.
    pub longest_delay: Duration,
    /// How long to keep trying after a loss; zero never reconnects.
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

/// A live source that reconnects when it is lost, with exponential backoff.
///
/// A source is lost when it ends, fails or times out; losses and reconnections are logged. Frame indices continue after
/// a reconnection, and times continue by the clock. The frame size may change with it.
pub struct Reconnecting<O> {
    open: O,
    source: Option<Box<dyn Source>>,
    info: SourceInfo,
    options: ReconnectingOptions,
    cancellation: Cancellation,
    now: Box<dyn Fn() -> Duration + Send>,
    sleep: Box<dyn FnMut(Duration) + Send>,
    /// When the stream was first opened.
    began: Duration,
    /// Added to the current connection's indices and times.
    index_offset: u64,
    time_offset: Duration,
    last: Option<(u64, Duration)>,
}

impl<O> fmt::Debug for Reconnecting<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnecting").field("info", &self.info).finish_non_exhaustive()
    }
}

impl<O: FnMut() -> Result<Box<dyn Source>> + Send> Reconnecting<O> {
    /// Opens the stream with `open`, which is called again to reconnect.
    ///
    /// # Errors
    /// The first error of `open`: a wrong URL fails immediately.
    pub fn connect(open: O, options: ReconnectingOptions, cancellation: Cancellation) -> Result<Self> {
        let start = Instant::now();
        Self::connect_with(
            open,
            options,
            cancellation,
            Box::new(move || start.elapsed()),
            Box::new(std::thread::sleep),
        )
    }

    fn connect_with(
        mut open: O,
        options: ReconnectingOptions,
        cancellation: Cancellation,
        now: Box<dyn Fn() -> Duration + Send>,
        sleep: Box<dyn FnMut(Duration) + Send>,
    ) -> Result<Self> {
        let source = open()?;
        let info = SourceInfo { live: true, frame_count: None, ..source.info().clone() };
        Ok(Self {
            open,
            source: Some(source),
            info,
            options,
            cancellation,
            began: now(),
            now,
            sleep,
            index_offset: 0,
            time_offset: Duration::ZERO,
            last: None,
        })
    }

    /// Opens the stream again; `false` if cancelled.
    fn reconnect(&mut self, why: &str) -> Result<bool> {
        let (name, give_up_after) = (self.info.name.clone(), self.options.give_up_after);
        if give_up_after.is_zero() {
            return Err(Error::new(ErrorKind::Io, format!("the stream was lost, {name}: {why}")));
        }
        tracing::warn!("{name}: {why}; reconnecting");
        let deadline = (self.now)() + give_up_after;
        let (mut attempt, mut delay) = (0u64, self.options.first_delay);
        while !self.cancellation.is_cancelled() {
            attempt += 1;
            let error = match (self.open)() {
                Ok(source) => {
                    tracing::warn!("{name}: reconnected, attempt {attempt}");
                    let (index, time) =
                        self.last.map_or((0, Duration::ZERO), |(index, time)| (index + 1, time));
                    self.index_offset = index;
                    self.time_offset = time.max((self.now)().saturating_sub(self.began));
                    self.source = Some(source);
                    return Ok(true);
                }
                Err(error) => error,
            };
            tracing::info!("{name}: attempt {attempt}: {error}");
            let left = deadline.saturating_sub((self.now)());
            if left.is_zero() {
                let (seconds, s) = (give_up_after.as_secs_f64(), if attempt == 1 { "" } else { "s" });
                let message = format!(
                    "the stream was lost, {name}: {why}; reconnecting failed after {attempt} attempt{s} in {seconds} s: \
                     {error}"
                );
                return Err(Error::new(ErrorKind::Io, message).with_source(error));
            }
            // The last attempt is made at the deadline.
            self.wait(delay.min(left));
            delay = (2 * delay).min(self.options.longest_delay);
        }
        Ok(false)
    }

    /// Waits, unless cancelled.
    fn wait(&mut self, mut delay: Duration) {
        while !delay.is_zero() && !self.cancellation.is_cancelled() {
            let piece = delay.min(CHECK_INTERVAL);
            (self.sleep)(piece);
            delay -= piece;
        }
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
            // A camera has to be closed before it can be opened again.
            self.source = None;
            if !self.reconnect(&why)? {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests;
