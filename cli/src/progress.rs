//! Progress on stderr: a bar or a spinner on a terminal, else lines.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{diagnostic, one_line};
use crate::{LogArgs, status};

/// Progress of work that takes more than a second.
pub struct Progress {
    bar: ProgressBar,
    log: LogArgs,
}

impl Progress {
    /// A bar of `total` steps; hidden with `--quiet` and if stderr is not a terminal.
    pub fn new(log: &LogArgs, total: u64) -> Self {
        let bar = if log.quiet || total < 2 { ProgressBar::hidden() } else { ProgressBar::new(total) };
        Self::styled(bar, "{bar:24} {pos}/{len}  {elapsed}, {eta} left  {wide_msg}", log)
    }

    /// A spinner for steps of unknown length, shown with the first [`announce`](Self::announce).
    pub fn waiting(log: &LogArgs) -> Self {
        let bar = if log.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        Self::styled(bar, "{spinner} {elapsed}  {wide_msg}", log)
    }

    fn styled(bar: ProgressBar, template: &str, log: &LogArgs) -> Self {
        let style = ProgressStyle::with_template(template).expect("the templates are constant and valid");
        Self { bar: bar.with_style(style), log: log.clone() }
    }

    /// Sets the message beside the bar.
    pub fn message(&self, message: &str) {
        self.bar.set_message(message.to_owned());
    }

    /// Names the current step: beside the spinner, or as a line if stderr is not a terminal.
    pub fn announce(&self, message: &str) {
        if std::io::stderr().is_terminal() {
            self.bar.enable_steady_tick(Duration::from_millis(120));
            self.bar.set_message(message.to_owned());
        } else {
            status(&self.log, message);
        }
    }

    /// Sets the position within the current step; the bar restarts with each step. If stderr is not a terminal, prints each
    /// message once.
    pub fn at(&self, message: &str, done: u64, total: u64) {
        if !std::io::stderr().is_terminal() {
            if self.bar.message() != message {
                self.bar.set_message(message.to_owned());
                status(&self.log, message);
            }
            return;
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_message(message.to_owned());
    }

    /// Advances by one step.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Prints an error that does not end the program, above the bar.
    pub fn error(&self, error: &dyn Display) {
        self.suspend(|| diagnostic(&format!("error: {}", one_line(&error.to_string()))));
    }

    /// Prints a line of status above the bar, unless `--quiet`.
    pub fn status(&self, line: &str) {
        self.suspend(|| status(&self.log, line));
    }

    /// Hides the bar while `action` writes to the terminal.
    pub fn suspend<R>(&self, action: impl FnOnce() -> R) -> R {
        self.bar.suspend(action)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
