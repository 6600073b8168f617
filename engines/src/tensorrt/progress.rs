//! Reports TensorRT's phases and steps as [`BuildProgress`], and passes cancellation back.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The progress of a build.
///
/// Phases are nested: while a phase runs, others that name it as their parent may start and end. The first report of a
/// phase has step 0 and the last one step [`steps`](Self::steps).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildProgress<'p> {
    /// TensorRT's name for the phase.
    pub phase: &'p str,
    /// The number of phases that contain this one.
    pub depth: usize,
    /// The number of completed steps.
    pub step: usize,
    /// The number of steps.
    pub steps: usize,
}

/// Called as a build proceeds.
pub(super) type Progress<'b> = Box<dyn FnMut(&BuildProgress<'_>) -> ControlFlow<()> + Send + 'b>;

/// Tracks the running phases and calls the caller's function from any of TensorRT's threads. It stores a cancellation, and
/// a panic, which must not unwind through C++.
pub(super) struct Reporter<'b> {
    state: Mutex<State<'b>>,
}

struct State<'b> {
    progress: Option<Progress<'b>>,
    /// Outermost first; TensorRT's threads may run several at one depth.
    running: Vec<Phase>,
    is_cancelled: bool,
    panic: Option<Box<dyn Any + Send>>,
}

struct Phase {
    name: String,
    depth: usize,
    done: usize,
    steps: usize,
}

impl<'b> Reporter<'b> {
    pub(super) fn new(progress: Option<Progress<'b>>) -> Self {
        let state = State { progress, running: Vec::new(), is_cancelled: false, panic: None };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State<'b>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.state().is_cancelled
    }

    /// Resumes a panic of the caller's function on the caller's thread.
    pub(super) fn resume_panic(&self) {
        let panic = self.state().panic.take();
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    pub(super) fn phase_start(&self, phase: &str, parent: Option<&str>, steps: i32) {
        let mut state = self.state();
        let above = parent.and_then(|parent| state.position(parent));
        let depth = above.map_or(0, |above| state.running[above].depth + 1);
        let steps = usize::try_from(steps).unwrap_or(0);
        state.running.push(Phase { name: phase.to_owned(), depth, done: 0, steps });
        let position = state.running.len() - 1;
        state.report(position);
    }

    /// Returns whether to continue.
    pub(super) fn step_complete(&self, phase: &str, step: i32) -> bool {
        let mut state = self.state();
        if let Some(position) = state.position(phase) {
            let phase = &mut state.running[position];
            let done = usize::try_from(step).unwrap_or(0) + 1;
            // The last step is reported when the phase ends, which may happen before all steps are done.
            if done > phase.done && done < phase.steps {
                phase.done = done;
                state.report(position);
            }
        }
        !state.is_cancelled
    }

    pub(super) fn phase_finish(&self, phase: &str) {
        let mut state = self.state();
        if let Some(position) = state.position(phase) {
            state.running[position].done = state.running[position].steps;
            state.report(position);
            state.running.remove(position);
        }
    }
}

impl State<'_> {
    /// The phase of this name that started last.
    fn position(&self, name: &str) -> Option<usize> {
        self.running.iter().rposition(|phase| phase.name == name)
    }

    fn report(&mut self, position: usize) {
        let phase = &self.running[position];
        let report =
            BuildProgress { phase: &phase.name, depth: phase.depth, step: phase.done, steps: phase.steps };
        if let Some(progress) = self.progress.as_mut().filter(|_| !self.is_cancelled) {
            let outcome = catch_unwind(AssertUnwindSafe(|| progress(&report).is_break()));
            self.is_cancelled = outcome.unwrap_or_else(|payload| {
                self.panic = Some(payload);
                true
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reports that the caller gets, as `depth phase step/steps`.
    fn reports(cancel_after: usize, drive: impl FnOnce(&Reporter<'_>)) -> (Vec<String>, bool) {
        let mut lines = Vec::new();
        let is_cancelled = {
            let lines = &mut lines;
            let reporter = Reporter::new(Some(Box::new(move |progress: &BuildProgress<'_>| {
                let BuildProgress { phase, depth, step, steps, .. } = progress;
                lines.push(format!("{depth} {phase} {step}/{steps}"));
                if lines.len() == cancel_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })));
            drive(&reporter);
            reporter.is_cancelled()
        };
        (lines, is_cancelled)
    }

    #[test]
    fn phases_are_nested_and_finish_at_their_last_step() {
        let (lines, is_cancelled) = reports(usize::MAX, |reporter| {
            reporter.phase_start("build", None, 2);
            reporter.phase_start("tactics", Some("build"), 3);
            assert!(reporter.step_complete("tactics", 0));
            assert!(reporter.step_complete("tactics", 0), "the same step again");
            reporter.phase_finish("tactics");
            assert!(reporter.step_complete("build", 0));
            assert!(reporter.step_complete("build", 1));
            assert!(reporter.step_complete("unknown", 1), "a phase that never started");
            reporter.phase_finish("build");
            reporter.phase_finish("build");
        });
        let expected =
            ["0 build 0/2", "1 tactics 0/3", "1 tactics 1/3", "1 tactics 3/3", "0 build 1/2", "0 build 2/2"];
        assert_eq!((lines, is_cancelled), (expected.map(str::to_owned).to_vec(), false));
    }

    #[test]
    fn after_a_cancellation_nothing_is_reported() {
        let (lines, is_cancelled) = reports(2, |reporter| {
            reporter.phase_start("build", None, 2);
            reporter.phase_start("tactics", Some("build"), 3);
            assert!(!reporter.step_complete("tactics", 0), "TensorRT learns of it at the next step");
            reporter.phase_finish("tactics");
            reporter.phase_finish("build");
        });
        assert_eq!((lines.len(), is_cancelled), (2, true));
    }

    #[test]
    fn a_panic_of_the_caller_cancels_and_is_resumed() {
        let reporter = Reporter::new(Some(Box::new(|_: &BuildProgress<'_>| panic!("the caller's"))));
        reporter.phase_start("build", None, 1);
        assert!(reporter.is_cancelled());
        let payload = catch_unwind(AssertUnwindSafe(|| reporter.resume_panic())).expect_err("a panic");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"the caller's"));
    }
}
