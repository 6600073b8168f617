//! Runs that are captured as CUDA graphs, which are launched when the runs repeat.

use crate::cuda::CudaGraph;
use ocelli_error::Error;

/// The number of runs that are remembered. Callers reuse a few sets of tensors.
const MOST_REMEMBERED: usize = 8;
/// Number of times that a run is enqueued before it is captured: TensorRT prepares for new shapes in the first run with them,
/// and a run that does not repeat is not worth capturing.
const RUNS_BEFORE: u32 = 2;

/// The runs of one context, by the addresses of its tensors. All have the same shapes: a graph reads state that the context
/// keeps for the shapes it was captured with, so runs are forgotten when shapes change.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    /// The most recently used run is the last.
    remembered: Vec<Remembered>,
    is_off: bool,
}

#[derive(Debug)]
struct Remembered {
    addresses: Vec<u64>,
    enqueued: u32,
    graph: Option<CudaGraph>,
}

/// The treatment of a run.
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

    /// The treatment of a run with these addresses, which is remembered.
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

    /// Forgets all runs; called when shapes change.
    pub(super) fn forget(&mut self) {
        self.remembered.clear();
    }

    /// Stops capturing because the runs contain work that cannot be captured, and logs why.
    pub(super) fn turn_off(&mut self, why: Option<&Error>) {
        self.forget();
        if !std::mem::replace(&mut self.is_off, true) {
            let why = why.map_or("reported by TensorRT".to_owned(), ToString::to_string);
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
    fn the_third_equal_run_is_captured() {
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
