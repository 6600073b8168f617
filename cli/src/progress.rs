//! Progress on a terminal: a bar, or a spinner with words. Elsewhere no more than lines.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::{LogArgs, one_line, say, tell};

/// Progress of work that takes over a second.
pub struct Progress {
    bar: ProgressBar,
    log: LogArgs,
}

impl Progress {
    /// A bar of `total` steps; hidden with `--quiet`, and where stderr is no terminal.
    pub fn new(log: &LogArgs, total: u64) -> Self {
        let bar = if log.quiet || total < 2 { ProgressBar::hidden() } else { ProgressBar::new(total) };
        Self::styled(bar, "{bar:24} {pos}/{len}  {elapsed}, {eta} left  {wide_msg}", log)
    }

    /// Words about a long step, that appear with the first [`announce`](Self::announce).
    pub fn waiting(log: &LogArgs) -> Self {
        let bar = if log.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        Self::styled(bar, "{spinner} {elapsed}  {wide_msg}", log)
    }

    fn styled(bar: ProgressBar, template: &str, log: &LogArgs) -> Self {
        let style = ProgressStyle::with_template(template).expect("the templates are constant and valid");
        Self { bar: bar.with_style(style), log: log.clone() }
    }

    /// What is under way, beside the bar.
    pub fn message(&self, message: &str) {
        self.bar.set_message(message.to_owned());
    }

    /// What is under way, in words: beside the spinner, or a line where there is no terminal.
    pub fn announce(&self, message: &str) {
        if std::io::stderr().is_terminal() {
            self.bar.enable_steady_tick(Duration::from_millis(120));
            self.bar.set_message(message.to_owned());
        } else {
            say(&self.log, message);
        }
    }

    /// How far a step in several parts is: the bar begins anew with each. Words alone where there is no terminal, once for
    /// each message.
    pub fn at(&self, message: &str, done: u64, total: u64) {
        if !std::io::stderr().is_terminal() {
            if self.bar.message() != message {
                self.bar.set_message(message.to_owned());
                say(&self.log, message);
            }
            return;
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_message(message.to_owned());
    }

    /// One step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Writes an error that ends nothing above the bar.
    pub fn error(&self, error: &dyn Display) {
        self.suspend(|| tell(&format!("error: {}", one_line(&error.to_string()))));
    }

    /// Tells something above the bar, unless `--quiet`.
    pub fn say(&self, line: &str) {
        self.suspend(|| say(&self.log, line));
    }

    /// Runs something that writes to the terminal while the bar is out of the way.
    pub fn suspend<R>(&self, action: impl FnOnce() -> R) -> R {
        self.bar.suspend(action)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
