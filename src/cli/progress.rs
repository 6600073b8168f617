//! A progress bar on a terminal, nothing elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::LogArgs;

/// Progress of work that takes over a second.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of `total` steps; hidden with `--quiet`, and where stderr is no terminal.
    pub fn new(log: &LogArgs, total: u64) -> Self {
        if log.quiet || total < 2 {
            return Self(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}  {elapsed} eta {eta}");
        let style = style.expect("the template is constant and valid");
        Self(ProgressBar::new(total).with_style(style))
    }

    /// A spinner for one long step.
    pub fn spinner(log: &LogArgs, message: &str) -> Self {
        if log.quiet {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner().with_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }

    /// What is under way.
    pub fn message(&self, message: &str) {
        self.0.set_message(message.to_owned());
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Writes a line above the bar.
    pub fn line(&self, line: &str) {
        if self.0.is_hidden() {
            drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n")));
        } else {
            self.0.println(line);
        }
    }

    /// Runs something that writes to the terminal while the bar is out of the way.
    pub fn suspend<R>(&self, action: impl FnOnce() -> R) -> R {
        self.0.suspend(action)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
