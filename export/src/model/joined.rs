//! Several linear layers of one input as a single product.
//!
//! TensorRT joins such layers itself, but then loses the request for sums in 32 bits. It joins layers in 8 bits itself as well;
//! written as one product, they would be split, joined again and computed in half precision.

use super::layers::{LinearLayer, transpose};
use crate::checkpoint::Weights;
use crate::graph::{Graph, Role, Value};

impl<'w> Graph<'w> {
    /// The projections of an attention's queries, keys and values.
    pub(super) fn projections(&self, name: &str, [q, k, v]: [&Value; 3], heads: usize) -> [Value; 3] {
        let [key, value] = ["k_proj", "v_proj"].map(|part| LinearLayer::new(&format!("{name}.{part}")));
        let query = LinearLayer::queries_of(self, name, heads);
        if q.name == k.name && k.name == v.name {
            return self.linear_layers(q, [query, key, value]);
        }
        let [q, k] = if q.name == k.name {
            self.linear_layers(q, [query, key])
        } else {
            [self.linear_layer(q, &query), self.linear_layer(k, &key)]
        };
        [q, k, self.linear_layer(v, &value)]
    }

    /// Attention of tokens to each other in basic operators for every target, before its output projection.
    pub(super) fn explicit_self_attention(
        &self,
        attention: &str,
        x: &Value,
        heads: usize,
        bias: Option<&Value>,
    ) -> Value {
        let [query, key, value] =
            ["q_proj", "k_proj", "v_proj"].map(|part| LinearLayer::new(&format!("{attention}.{part}")));
        let layers = [query.scaled_for(self, heads), key, value];
        let [q, k, v] = self.linear_layers(x, layers).map(|x| self.split_heads(&x, heads));
        self.explicit_attention([&q, &k, &v], bias)
    }

    /// Layers of equal width with the same input.
    pub(super) fn linear_layers<const N: usize>(&self, x: &Value, layers: [LinearLayer; N]) -> [Value; N] {
        if self.joins_layers() {
            self.joined_layers(x, &layers).try_into().expect("a value for each layer")
        } else {
            layers.map(|layer| self.linear_layer(x, &layer))
        }
    }

    fn joined_layers(&self, x: &Value, layers: &[LinearLayer]) -> Vec<Value> {
        let first = layers[0].name.clone();
        let dims = self.weight_dims(&format!("{first}.weight"));
        let (rows, columns) = (layers.len() * dims[0], dims[1]);
        let read = |part: &'static str, columns: usize| {
            let layers = layers.to_vec();
            move |weights: &Weights| {
                let mut joined = Vec::new();
                for layer in &layers {
                    let data = weights.read(&format!("{}.{part}", layer.name))?;
                    joined.extend(layer.prepared(data, columns));
                }
                Ok(joined)
            }
        };
        let rows_of = read("weight", columns);
        let weight = self.derived(&format!("{first}.joined.weight.T"), &[columns, rows], move |weights| {
            Ok(transpose(&rows_of(weights)?, rows, columns))
        });
        let bias = self.derived(&format!("{first}.joined.bias"), &[rows], read("bias", 1));
        let product = self.matmul(x, &weight);
        let sum = self.as_role(Role::Product, |g| g.add(&product, &bias));
        self.split_last(&sum, layers.len())
    }

    /// Attention to tokens that several attentions share, with its output projection; `at` is its place among them.
    pub(super) fn shared_attention(
        &self,
        (name, at): (&str, usize),
        q: &Value,
        shared: &SharedTokens,
        heads: usize,
        bias: Option<&Value>,
    ) -> Value {
        let query = LinearLayer::queries_of(self, name, heads);
        let q = self.linear_layer(q, &query);
        let [k, v] = match shared.projected.get(at) {
            Some(projected) => projected.clone(),
            None => [(&shared.keys, "k_proj"), (&shared.values, "v_proj")]
                .map(|(x, part)| self.linear(x, &format!("{name}.{part}"))),
        };
        self.linear(&self.attend([&q, &k, &v], heads, bias), &format!("{name}.o_proj"))
    }
}

/// Tokens that several attentions attend to.
pub(super) struct SharedTokens {
    /// The tokens that become keys, and those that become values: `[batch, tokens, width]`.
    keys: Value,
    values: Value,
    /// Keys and values of every attention, where the graph joins layers.
    projected: Vec<[Value; 2]>,
}

impl SharedTokens {
    /// Tokens for the attentions of these names.
    pub(super) fn new<'w>(g: &Graph<'w>, keys: Value, values: Value, attentions: &[String]) -> Self {
        let mut projected = Vec::new();
        if g.joins_layers() {
            let [k, v] = [(&keys, "k_proj"), (&values, "v_proj")].map(|(x, part)| {
                let layers: Vec<LinearLayer> =
                    attentions.iter().map(|name| LinearLayer::new(&format!("{name}.{part}"))).collect();
                g.joined_layers(x, &layers)
            });
            projected = k.into_iter().zip(v).map(|(k, v)| [k, v]).collect();
        }
        Self { keys, values, projected }
    }
}
