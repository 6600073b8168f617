//! Runs that were captured as CUDA graphs, to be launched as a whole when they come again.

use crate::cuda::CudaGraph;
use ocelli_error::Error;

/// How many runs are remembered. Callers reuse a few sets of tensors.
const MOST_REMEMBERED: usize = 8;
/// A run is captured after this many times: TensorRT finishes its work on new shapes in the first run with them, and a run
/// that never comes again is not worth capturing.
const RUNS_BEFORE: u32 = 2;

/// The runs of one context, by the addresses of its tensors. They share shapes: a graph reads what the context keeps for
/// the shapes it was captured with, so a change of shapes forgets all.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    /// The one used last is at the end.
    remembered: Vec<Remembered>,
    is_off: bool,
}

#[derive(Debug)]
struct Remembered {
    addresses: Vec<u64>,
    enqueued: u32,
    graph: Option<CudaGraph>,
}

/// What to do with a run.
#[derive(Debug)]
pub(super) enum Action<'g> {
    Enqueue,
    /// Capture it, [keep](Graphs::keep) the graph, and launch that.
    Capture,
    Launch(&'g CudaGraph),
}

impl Graphs {
    pub(super) fn new(is_on: bool) -> Self {
        Self { remembered: Vec::new(), is_off: !is_on }
    }

    /// What to do with a run with these addresses, which is remembered.
    pub(super) fn next(&mut self, addresses: &[u64]) -> Action<'_> {
        if self.is_off {
            return Action::Enqueue;
        }
        let found = self.remembered.iter().position(|run| run.addresses == addresses);
        let mut run = match found {
            Some(index) => self.remembered.remove(index),
            None => {
                if self.remembered.len() >= MOST_REMEMBERED {
                    self.remembered.remove(0);
                }
                Remembered { addresses: addresses.to_vec(), enqueued: 0, graph: None }
            }
        };
        run.enqueued = run.enqueued.saturating_add(1);
        self.remembered.push(run);
        match self.remembered.last().expect("it was pushed above") {
            Remembered { graph: Some(graph), .. } => Action::Launch(graph),
            Remembered { enqueued, .. } if *enqueued > RUNS_BEFORE => Action::Capture,
            _ => Action::Enqueue,
        }
    }

    /// Keeps the graph of the run that `next` was called for last.
    pub(super) fn keep(&mut self, graph: CudaGraph) -> &CudaGraph {
        self.remembered.last_mut().expect("`next` remembered it").graph.insert(graph)
    }

    /// To be called when the shapes change.
    pub(super) fn forget(&mut self) {
        self.remembered.clear();
    }

    /// Stops capturing, because something in the runs cannot be captured, and logs why.
    pub(super) fn turn_off(&mut self, why: Option<&Error>) {
        self.forget();
        if !std::mem::replace(&mut self.is_off, true) {
            let why = why.map_or("TensorRT says so".to_owned(), ToString::to_string);
            tracing::info!(%why, "runs cannot be captured as a CUDA graph and are enqueued one by one");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(graphs: &mut Graphs, addresses: u64, runs: usize) -> Vec<String> {
        (0..runs).map(|_| format!("{:?}", graphs.next(&[addresses]))).collect()
    }

    #[test]
    fn a_run_is_captured_when_it_comes_for_the_third_time() {
        let mut graphs = Graphs::new(true);
        assert_eq!(actions(&mut graphs, 1, 3), ["Enqueue", "Enqueue", "Capture"]);
        assert_eq!(actions(&mut graphs, 2, 2), ["Enqueue"; 2], "other addresses");
        graphs.forget();
        assert_eq!(actions(&mut graphs, 1, 3), ["Enqueue", "Enqueue", "Capture"], "other shapes");
        graphs.turn_off(None);
        assert_eq!(actions(&mut graphs, 1, 4), ["Enqueue"; 4]);
        assert_eq!(actions(&mut Graphs::new(false), 1, 4), ["Enqueue"; 4]);
    }

    #[test]
    fn the_oldest_of_nine_runs_is_forgotten() {
        let mut graphs = Graphs::new(true);
        for _ in 0..3 {
            for addresses in 0..=MOST_REMEMBERED as u64 {
                assert_eq!(actions(&mut graphs, addresses, 1), ["Enqueue"]);
            }
        }
        assert_eq!(graphs.remembered.len(), MOST_REMEMBERED);
    }
}
