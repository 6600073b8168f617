//! The backbone as a chain of graphs, and the tokens that are kept between them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use ocelli::export::{BackboneChain, NEXT_TOKENS};
use ocelli::{Result, engine::EngineFactory};
use ocelli_engines::{Engine, Tensor};
use ocelli_export::{MaskedBranch, contract::tensor};

/// The tokens of an image after some of the branches.
#[derive(Clone, Default)]
struct Prefix {
    /// The branches that they were computed without, by position.
    removed: BTreeSet<usize>,
    /// The tokens that branch 0, 1, … reads.
    tokens: BTreeMap<usize, Arc<Tensor>>,
}

/// The engines of the embedding and the branches.
pub(super) struct Chain {
    embedding: Box<dyn Engine>,
    engines: Vec<Box<dyn Engine>>,
    pub branches: Vec<MaskedBranch>,
    /// Of each image.
    prefixes: Vec<Prefix>,
    /// Tokens are kept where every so many branches begin; `None` keeps nothing.
    stride: Option<usize>,
    /// The beginning of the last question, which is often just before that of the next one: image, position, tokens.
    cursor: Option<(usize, usize, Arc<Tensor>)>,
    pub embedding_ms: Vec<f64>,
    /// The branch and the time of each run.
    pub runs: Vec<(usize, f64)>,
}

impl Chain {
    pub fn load(
        files: &BackboneChain,
        factory: &EngineFactory,
        images: usize,
        memory_bytes: u64,
    ) -> Result<Self> {
        let engines =
            files.branches.iter().map(|(_, path)| factory.load(path)).collect::<Result<Vec<_>>>()?;
        let kept = memory_bytes / files.token_bytes.max(1) / images as u64;
        Ok(Self {
            embedding: factory.load(&files.embedding)?,
            branches: files.branches.iter().map(|(branch, _)| *branch).collect(),
            prefixes: vec![Prefix::default(); images],
            // The last branch has an end, too.
            stride: (kept > 0).then(|| (engines.len() + 1).div_ceil(kept as usize)),
            cursor: None,
            engines,
            embedding_ms: Vec::new(),
            runs: Vec::new(),
        })
    }

    /// The positions of branches.
    pub fn positions(&self, branches: impl IntoIterator<Item = MaskedBranch>) -> BTreeSet<usize> {
        let at = |branch| self.branches.iter().position(|known| *known == branch);
        branches.into_iter().filter_map(at).collect()
    }

    /// The tokens that the branch at `position` reads, or that the neck reads after the last one, without the branches in
    /// `removed`. `pixels` are asked for if nothing of the image is kept.
    pub fn tokens_at(
        &mut self,
        image: usize,
        position: usize,
        removed: &BTreeSet<usize>,
        pixels: impl FnOnce() -> Result<Tensor>,
    ) -> Result<Arc<Tensor>> {
        let prefix = &mut self.prefixes[image];
        if let Some(&first) = prefix.removed.symmetric_difference(removed).min() {
            prefix.tokens.retain(|&at, _| at <= first);
            prefix.removed.clone_from(removed);
            self.cursor = self.cursor.take().filter(|(of, at, _)| *of != image || *at <= first);
        }
        let kept = prefix.tokens.range(..=position).next_back().map(|(&at, kept)| (at, Arc::clone(kept)));
        let cursor = self.cursor.as_ref().filter(|(of, at, _)| *of == image && *at <= position);
        let cursor = cursor.map(|(_, at, tokens)| (*at, Arc::clone(tokens)));
        let nearest = [kept, cursor].into_iter().flatten().max_by_key(|(at, _)| *at);
        let (start, mut tokens) = match nearest {
            Some(nearest) => nearest,
            None => {
                let tokens = Arc::new(self.embed(&pixels()?)?);
                self.keep(image, 0, &tokens);
                (0, tokens)
            }
        };
        for at in start..position {
            if !removed.contains(&at) {
                tokens = Arc::new(self.run(at, &tokens)?);
            }
            self.keep(image, at + 1, &tokens);
        }
        self.cursor = Some((image, position, Arc::clone(&tokens)));
        Ok(tokens)
    }

    /// Runs the branches at `positions` that are not in `removed`.
    pub fn walk(
        &mut self,
        mut tokens: Arc<Tensor>,
        positions: Range<usize>,
        removed: &BTreeSet<usize>,
    ) -> Result<Arc<Tensor>> {
        for at in positions.filter(|at| !removed.contains(at)) {
            tokens = Arc::new(self.run(at, &tokens)?);
        }
        Ok(tokens)
    }

    pub fn embed(&mut self, pixels: &Tensor) -> Result<Tensor> {
        let (start, mut tokens) = (Instant::now(), Tensor::empty());
        self.embedding.run(&[(tensor::PIXEL_VALUES, pixels)], &mut [(tensor::TOKENS, &mut tokens)])?;
        self.embedding_ms.push(start.elapsed().as_secs_f64() * 1e3);
        Ok(tokens)
    }

    fn run(&mut self, at: usize, tokens: &Tensor) -> Result<Tensor> {
        let (start, mut next) = (Instant::now(), Tensor::empty());
        self.engines[at].run(&[(tensor::TOKENS, tokens)], &mut [(NEXT_TOKENS, &mut next)])?;
        self.runs.push((at, start.elapsed().as_secs_f64() * 1e3));
        Ok(next)
    }

    fn keep(&mut self, image: usize, position: usize, tokens: &Arc<Tensor>) {
        if self.stride.is_some_and(|stride| position.is_multiple_of(stride)) {
            self.prefixes[image].tokens.insert(position, Arc::clone(tokens));
        }
    }
}
