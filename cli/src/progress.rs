//! Progress on stderr: a bar or a spinner on a terminal, else lines.

use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use ocelli::locked;
use ocelli_verify::VerificationProgress;

use crate::output::{diagnostic, is_quiet, one_line};
use crate::{interrupted, status};

/// Time between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The bar that shows the stages of the first image.
static STAGES: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Names what the detector does now, if this is shown.
pub(crate) fn show_stage(stage: &dyn Display) {
    if let Some(bar) = &*locked(&STAGES) {
        bar.set_message(stage.to_string());
    }
}

/// While it lives, what the detector does is shown: its first image may take long.
pub struct FirstImage {
    bar: ProgressBar,
    /// `true` if the bar is here for this alone.
    is_own: bool,
}

impl Drop for FirstImage {
    fn drop(&mut self) {
        *locked(&STAGES) = None;
        self.bar.disable_steady_tick();
        if self.is_own {
            self.bar.finish_and_clear();
        } else {
            self.bar.set_message("");
        }
    }
}

const SPINNER: &str = "{spinner} {elapsed}  {wide_msg}";

/// Progress of work that takes more than a second. If stderr is not a terminal, a line every ten seconds.
pub struct Progress {
    bar: ProgressBar,
    lines: Option<Mutex<Lines>>,
}

/// Tells when a line is due.
struct Lines {
    last: Instant,
    done: u64,
    total: Option<u64>,
}

impl Lines {
    /// Counts a step; the line to print, if one is due.
    fn step(&mut self, now: Instant, message: &str) -> Option<String> {
        self.done += 1;
        if now.saturating_duration_since(self.last) < LINE_INTERVAL {
            return None;
        }
        self.last = now;
        let of = self.total.map(|total| format!("{} of {total}", self.done));
        let parts = of.into_iter().chain((!message.is_empty()).then(|| message.to_owned()));
        Some(format!("progress: {}", parts.collect::<Vec<_>>().join(", ")))
    }
}

impl Progress {
    /// A bar of `total` steps; hidden with `--quiet`.
    pub fn new(total: u64) -> Self {
        let bar = if is_quiet() || total < 2 { ProgressBar::hidden() } else { ProgressBar::new(total) };
        Self::styled(bar, "{bar:24} {pos}/{len}  {elapsed}, {eta} left  {wide_msg}", Some(total))
    }

    /// A spinner for steps of unknown length, shown with the first [`announce`](Self::announce).
    pub fn waiting() -> Self {
        let bar = if is_quiet() { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        Self::styled(bar, SPINNER, None)
    }

    fn styled(bar: ProgressBar, template: &str, total: Option<u64>) -> Self {
        let lines = Lines { last: Instant::now(), done: 0, total };
        let lines = (!is_quiet() && !std::io::stderr().is_terminal()).then(|| Mutex::new(lines));
        Self { bar: bar.with_style(style(template)), lines }
    }

    /// Sets the message beside the bar.
    pub fn message(&self, message: &str) {
        self.bar.set_message(message.to_owned());
    }

    /// Shows the stages of the first image beside the bar, or beside a spinner if there is no bar.
    pub fn first_image(&self) -> FirstImage {
        let is_own = self.bar.is_hidden();
        let bar = match is_own {
            // Hidden by itself where stderr is no terminal.
            true if !is_quiet() => ProgressBar::new_spinner().with_style(style(SPINNER)),
            _ => self.bar.clone(),
        };
        bar.enable_steady_tick(Duration::from_millis(120));
        *locked(&STAGES) = Some(bar.clone());
        FirstImage { bar, is_own }
    }

    /// Names the current step: beside the spinner, or as a line if stderr is not a terminal.
    pub fn announce(&self, message: &str) {
        if std::io::stderr().is_terminal() {
            self.bar.enable_steady_tick(Duration::from_millis(120));
            self.bar.set_message(message.to_owned());
        } else {
            status(message);
        }
    }

    /// Sets the position within the current step; the bar restarts with each step. If stderr is not a terminal, prints each
    /// message once.
    pub fn at(&self, message: &str, done: u64, total: u64) {
        if !std::io::stderr().is_terminal() {
            if self.bar.message() != message {
                self.bar.set_message(message.to_owned());
                status(message);
            }
            return;
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_message(message.to_owned());
    }

    /// Shows the progress of a comparison.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`](ocelli::ErrorKind::Cancelled) after Ctrl-C, to end the comparison.
    pub(crate) fn compare(&self, step: &VerificationProgress) -> ocelli::Result<()> {
        let message = if step.reference { "running the reference" } else { "running the candidate" };
        self.at(message, step.done as u64, step.total as u64);
        interrupted()
    }

    /// Advances by one step.
    pub fn step(&self) {
        self.bar.inc(1);
        let Some(lines) = &self.lines else { return };
        let message = self.bar.message();
        let due = locked(lines).step(Instant::now(), &message);
        if let Some(line) = due {
            status(&line);
        }
    }

    /// Prints an error that does not end the program, above the bar.
    pub fn error(&self, error: &dyn Display) {
        self.suspend(|| diagnostic(&format!("error: {}", one_line(&error.to_string()))));
    }

    /// Prints a line of status above the bar, unless `--quiet`.
    pub fn status(&self, line: &str) {
        self.suspend(|| status(line));
    }

    /// Removes the bar, for what is written after it.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Hides the bar while `action` writes to the terminal.
    pub fn suspend<R>(&self, action: impl FnOnce() -> R) -> R {
        self.bar.suspend(action)
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are constant and valid")
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_image_shows_its_stages() {
        let progress = Progress { bar: ProgressBar::hidden(), lines: None };
        let first = progress.first_image();
        show_stage(&"class 3 of 16");
        assert_eq!(first.bar.message(), "class 3 of 16");
        let bar = first.bar.clone();
        drop(first);
        show_stage(&"backbone");
        assert_ne!(bar.message(), "backbone", "the others are fast enough");
    }

    #[test]
    fn a_line_is_due_every_ten_seconds() {
        let start = Instant::now();
        let mut lines = Lines { last: start, done: 0, total: Some(90) };
        let mut printed = Vec::new();
        // A step every second.
        for second in 1..=25 {
            printed.extend(lines.step(start + Duration::from_secs(second), "5.0 FPS"));
        }
        assert_eq!(printed, ["progress: 10 of 90, 5.0 FPS", "progress: 20 of 90, 5.0 FPS"]);
        let mut unknown = Lines { last: start, done: 0, total: None };
        let line = unknown.step(start + LINE_INTERVAL, "frame 7");
        assert_eq!(line.as_deref(), Some("progress: frame 7"));
    }
}
