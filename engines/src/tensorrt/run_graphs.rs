//! Runs that were captured, to be launched as a whole when they come again.

use crate::cuda::CudaGraph;
use crate::error::Error;

/// So many runs are remembered. Tensors that go round have a few sets of addresses.
const MOST_REMEMBERED: usize = 8;
/// A run is captured when it has been enqueued so often: TensorRT finishes its work on new shapes in the first run after
/// them, and what never comes again is not worth it.
const RUNS_BEFORE: u32 = 2;

/// The runs of one context, by the addresses of its tensors. They share shapes: a capture made before a change of shapes
/// reads what the context keeps for them, so a change forgets all.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    /// The one that was used last comes last.
    remembered: Vec<Remembered>,
    given_up: bool,
}

#[derive(Debug)]
struct Remembered {
    addresses: Vec<u64>,
    enqueued: u32,
    graph: Option<CudaGraph>,
}

/// How a run is to be done.
#[derive(Debug)]
pub(super) enum Way<'g> {
    /// Enqueue it.
    Plain,
    /// Capture it, [keep](Graphs::keep) that, and launch it.
    Capture,
    /// Launch what was captured.
    Launch(&'g CudaGraph),
}

impl Graphs {
    /// Graphs that are never made.
    pub(super) fn never() -> Self {
        Self { remembered: Vec::new(), given_up: true }
    }

    /// How a run with these addresses is to be done; it is remembered.
    pub(super) fn way(&mut self, addresses: &[u64]) -> Way<'_> {
        if self.given_up {
            return Way::Plain;
        }
        let found = self.remembered.iter().position(|run| run.addresses == addresses);
        let mut run = match found {
            Some(index) => self.remembered.remove(index),
            None => {
                let room = self.remembered.len() >= MOST_REMEMBERED;
                let mut oldest = room.then(|| self.remembered.remove(0));
                let mut kept =
                    oldest.as_mut().map(|run| std::mem::take(&mut run.addresses)).unwrap_or_default();
                kept.clear();
                kept.extend_from_slice(addresses);
                Remembered { addresses: kept, enqueued: 0, graph: None }
            }
        };
        run.enqueued = run.enqueued.saturating_add(1);
        self.remembered.push(run);
        match self.remembered.last().expect("it was pushed above") {
            Remembered { graph: Some(graph), .. } => Way::Launch(graph),
            Remembered { enqueued, .. } if *enqueued > RUNS_BEFORE => Way::Capture,
            _ => Way::Plain,
        }
    }

    /// Keeps what was captured of the run that `way` was asked for last.
    pub(super) fn keep(&mut self, graph: CudaGraph) -> &CudaGraph {
        self.remembered.last_mut().expect("`way` remembered it").graph.insert(graph)
    }

    /// The shapes have changed.
    pub(super) fn forget(&mut self) {
        self.remembered.clear();
    }

    /// Some of what runs cannot be captured: not to be tried again, and said once.
    pub(super) fn give_up(&mut self, why: Option<&Error>) {
        self.forget();
        if !std::mem::replace(&mut self.given_up, true) {
            let why = why.map_or("TensorRT says that it cannot be".to_owned(), ToString::to_string);
            tracing::info!(%why, "runs are enqueued one by one: they cannot be captured as a CUDA graph");
        }
    }
}
