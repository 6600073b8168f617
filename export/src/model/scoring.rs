//! The score of each query: a dot product with the mean of the prompt.

use super::Plan;
use super::layers::Prompt;
use crate::graph::{Dim, Graph, Role, Value};
use crate::mixed_precision::{Block, Family};

const ROOT: &str = "dot_product_scoring";
/// Logits are clamped to ± this.
const MAX_LOGIT: f32 = 12.0;

impl<'w> Plan<'w> {
    /// Queries `[C, Q, D]` → logits `[C, Q]`.
    pub(super) fn score(&self, g: &Graph<'w>, queries: &Value, prompt: &Prompt) -> Value {
        let width = self.config().width;
        g.scope(ROOT);
        g.block(Block::whole(Family::Scoring));
        let hidden = g
            .as_role(Role::PromptProduct, |g| g.perceptron(&prompt.features, &format!("{ROOT}.text_mlp"), 2));
        let hidden = g.add(&hidden, &prompt.features);
        let hidden = g.norm(&hidden, &format!("{ROOT}.text_mlp_out_norm"));

        let [classes, tokens] = [prompt.valid.dims[0], prompt.valid.dims[1]];
        let valid = g.reshape(&prompt.valid, &[classes, 1.into(), tokens]);
        let mean = g.as_role(Role::Exact, |g| {
            let total = g.matmul(&valid, &hidden);
            let count = g.clip(&g.sum(&valid, 2), Some(1.0), None);
            g.div(&total, &count)
        });

        let mean = g.linear(&mean, &format!("{ROOT}.text_proj"));
        let queries = g.linear(queries, &format!("{ROOT}.query_proj"));
        let mean = g.transpose(&mean, &[0, 2, 1]);
        let logits = g.as_role(Role::Exact, |g| {
            let logits = g.scale(&g.matmul(&queries, &mean), 1.0 / (width as f32).sqrt());
            g.clip(&logits, Some(-MAX_LOGIT), Some(MAX_LOGIT))
        });
        let dims: [Dim; 2] = [logits.dims[0], logits.dims[1]];
        g.reshape(&logits, &dims)
    }
}
