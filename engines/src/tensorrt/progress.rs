//! From TensorRT's phases and steps to [`BuildProgress`], and back from the caller's wish to stop.

use super::calls::Monitor;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

/// How far a build is.
///
/// Phases lie within each other: while a phase runs, others may start and end that name it as their parent. Of one
/// phase the first report has step 0 and the last one step [`steps`](Self::steps).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildProgress<'p> {
    /// What is being done, in TensorRT's words.
    pub phase: &'p str,
    /// The phase that this one is a part of.
    pub parent: Option<&'p str>,
    /// How many phases this one lies within.
    pub depth: usize,
    /// How many steps of the phase are done.
    pub step: usize,
    /// How many steps the phase has.
    pub steps: usize,
}

/// What is called as a build proceeds.
pub(super) type Progress<'b> = Box<dyn FnMut(&BuildProgress<'_>) -> ControlFlow<()> + Send + 'b>;

/// Keeps the phases that run, calls the caller, and remembers whether it wants to stop.
pub(super) struct Reporter<'b> {
    state: Mutex<State<'b>>,
}

struct State<'b> {
    progress: Option<Progress<'b>>,
    /// Outermost first; TensorRT's threads may run several at one depth.
    running: Vec<Phase>,
    stopped: bool,
}

struct Phase {
    name: String,
    parent: Option<String>,
    depth: usize,
    done: usize,
    steps: usize,
}

impl<'b> Reporter<'b> {
    pub(super) fn new(progress: Option<Progress<'b>>) -> Self {
        Self { state: Mutex::new(State { progress, running: Vec::new(), stopped: false }) }
    }

    /// Whether the caller wanted the work to stop.
    pub(super) fn stopped(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stopped
    }

    fn with<T>(&self, change: impl FnOnce(&mut State<'b>) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State<'_> {
    /// The phase of this name that began last.
    fn position(&self, name: &str) -> Option<usize> {
        self.running.iter().rposition(|phase| phase.name == name)
    }

    fn report(&mut self, position: usize) {
        let phase = &self.running[position];
        let report = BuildProgress {
            phase: &phase.name,
            parent: phase.parent.as_deref(),
            depth: phase.depth,
            step: phase.done,
            steps: phase.steps,
        };
        if let Some(progress) = &mut self.progress
            && !self.stopped
        {
            self.stopped = progress(&report).is_break();
        }
    }
}

impl Monitor for Reporter<'_> {
    fn phase_start(&self, phase: &str, parent: Option<&str>, steps: i32) {
        self.with(|state| {
            let above = parent.and_then(|parent| state.position(parent));
            let depth = above.map_or(0, |above| state.running[above].depth + 1);
            let steps = usize::try_from(steps).unwrap_or(0);
            let parent = parent.map(str::to_owned);
            state.running.push(Phase { name: phase.to_owned(), parent, depth, done: 0, steps });
            state.report(state.running.len() - 1);
        });
    }

    fn step_complete(&self, phase: &str, step: i32) -> bool {
        self.with(|state| {
            if let Some(position) = state.position(phase) {
                let phase = &mut state.running[position];
                let done = usize::try_from(step).unwrap_or(0) + 1;
                // The last step is reported when the phase ends, which it may do earlier.
                if done > phase.done && done < phase.steps {
                    phase.done = done;
                    state.report(position);
                }
            }
            !state.stopped
        })
    }

    fn phase_finish(&self, phase: &str) {
        self.with(|state| {
            if let Some(position) = state.position(phase) {
                state.running[position].done = state.running[position].steps;
                state.report(position);
                state.running.remove(position);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the caller was told, as `depth phase step/steps`.
    fn told(stop_after: usize, drive: impl FnOnce(&Reporter<'_>)) -> (Vec<String>, bool) {
        let mut lines = Vec::new();
        let stopped = {
            let lines = &mut lines;
            let reporter = Reporter::new(Some(Box::new(move |progress: &BuildProgress<'_>| {
                let BuildProgress { phase, depth, step, steps, .. } = progress;
                lines.push(format!("{depth} {phase} {step}/{steps}"));
                if lines.len() == stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })));
            drive(&reporter);
            reporter.stopped()
        };
        (lines, stopped)
    }

    #[test]
    fn phases_lie_within_each_other_and_end_whole() {
        let (lines, stopped) = told(usize::MAX, |reporter| {
            reporter.phase_start("build", None, 2);
            reporter.phase_start("tactics", Some("build"), 3);
            assert!(reporter.step_complete("tactics", 0));
            assert!(reporter.step_complete("tactics", 0), "the same step again");
            reporter.phase_finish("tactics");
            assert!(reporter.step_complete("build", 0));
            assert!(reporter.step_complete("build", 1));
            assert!(reporter.step_complete("nobody", 1), "a phase that never began");
            reporter.phase_finish("build");
            reporter.phase_finish("build");
        });
        let expected =
            ["0 build 0/2", "1 tactics 0/3", "1 tactics 1/3", "1 tactics 3/3", "0 build 1/2", "0 build 2/2"];
        assert_eq!((lines, stopped), (expected.map(str::to_owned).to_vec(), false));
    }

    #[test]
    fn who_wants_to_stop_is_not_asked_again() {
        let (lines, stopped) = told(2, |reporter| {
            reporter.phase_start("build", None, 2);
            reporter.phase_start("tactics", Some("build"), 3);
            assert!(!reporter.step_complete("tactics", 0), "TensorRT learns of it at the next step");
            reporter.phase_finish("tactics");
            reporter.phase_finish("build");
        });
        assert_eq!((lines.len(), stopped), (2, true));
    }
}
