//! Which nodes a provider left to the processor, and whether that is too many.
//!
//! A provider takes the nodes it has kernels for; ONNX Runtime runs the rest on the processor and says nothing. A model of
//! which half runs there is slower than either, with copies in between: so it is an error, unless it was asked for.

use super::graph::Graph;
use super::provider::ExecutionProvider;
use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;

/// Operators that an error names one by one; of more, the rest is counted.
const NAMED_OPERATORS: usize = 8;

/// A node of the model as ONNX Runtime gave it away: after constants were folded, before anything was fused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacedNode {
    pub(super) provider: String,
    pub(super) name: String,
    pub(super) operator: String,
}

impl PlacedNode {
    /// Whether the node is a computation of shapes, which belongs on the processor, where shapes are known.
    ///
    /// That is: `Shape` or `Size` itself, or a node that, in the model as it was written, sees what one of these says, and
    /// the inputs' elements in no other way. A node that ONNX Runtime put in has no such history, and is none.
    fn is_of_shapes(&self, graph: Option<&Graph>) -> bool {
        matches!(self.operator.as_str(), "Shape" | "Size")
            || graph.is_some_and(|graph| graph.from_shapes.contains(&self.name))
    }
}

/// Fails if more than computations of shapes are left to the processor; with `allow_partial` that is a warning.
///
/// `graph` reads the model, and is asked only where it matters.
pub(super) fn check(
    model: &str,
    provider: &ExecutionProvider,
    nodes: &[PlacedNode],
    allow_partial: bool,
    graph: &dyn Fn() -> Result<Graph>,
) -> Result<()> {
    let processor = ExecutionProvider::Cpu;
    let left: Vec<_> = nodes.iter().filter(|node| node.provider == processor.name()).collect();
    let graph = if left.is_empty() { None } else { Some(graph()?) };
    let (shapes, left): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|node| node.is_of_shapes(graph.as_ref()));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    nodes.iter().for_each(|node| *counts.entry(&node.provider).or_default() += 1);
    tracing::debug!(model, ?counts, of_shapes = shapes.len(), "where the nodes run");
    if left.is_empty() {
        return Ok(());
    }
    let list = list(&left);
    let (count, all) = (left.len(), nodes.len());
    if allow_partial {
        tracing::warn!(
            "{provider} runs a part of {model}: {count} of {all} nodes are the processor's: {list}"
        );
        return Ok(());
    }
    let remedy = if left.iter().any(|node| is_fused(&node.operator)) {
        "; some are operators of ONNX Runtime's own: a model exported with --target tensorrt has standard ones"
    } else {
        ""
    };
    let message = format!(
        "{provider} does not run all of the model, {model}: it leaves {count} of {all} nodes to the processor: \
         {list}{remedy}; with --allow-partial it runs as it is"
    );
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Operators of ONNX Runtime's own, which other providers seldom have.
fn is_fused(operator: &str) -> bool {
    [
        "Attention",
        "MultiHeadAttention",
        "RotaryEmbedding",
        "MatMulNBits",
        "DynamicQuantizeMatMul",
        "MatMulIntegerToFloat",
    ]
    .contains(&operator)
}

/// `Conv (2: \`stem/conv\`, …), Resize (\`up\`)`: operators, the most frequent first, and the first node of each.
fn list(nodes: &[&PlacedNode]) -> String {
    let mut operators: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    nodes.iter().for_each(|node| operators.entry(&node.operator).or_default().push(&node.name));
    let mut operators: Vec<_> = operators.into_iter().collect();
    operators.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let shown = operators.iter().take(NAMED_OPERATORS).map(|(operator, names)| {
        let name = if names[0].is_empty() { String::new() } else { format!(" `{}`", names[0]) };
        match names.len() {
            1 => format!("{operator}{name}"),
            count if name.is_empty() => format!("{operator} ({count})"),
            count => format!("{operator} ({count}, the first{name})"),
        }
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if operators.len() > NAMED_OPERATORS {
        text += &format!(" and {} other operators", operators.len() - NAMED_OPERATORS);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnxruntime::{CoreMlOptions, CudaOptions};

    fn node(provider: &str, operator: &str, name: &str) -> PlacedNode {
        let [provider, name, operator] = [provider, name, operator].map(str::to_owned);
        PlacedNode { provider, name, operator }
    }

    #[test]
    fn only_computations_of_shapes_may_stay_on_the_processor() {
        let (cpu, cuda) = ("CPUExecutionProvider", "CUDAExecutionProvider");
        let shape_nodes = ["pick", "glue"];
        let matmul = || node(cuda, "MatMul", "product");
        let cases: [(&str, Vec<PlacedNode>, Option<&str>); 7] = [
            ("nothing there", vec![], None),
            ("all on the device", vec![matmul(), node(cuda, "Add", "sum")], None),
            (
                "shapes",
                vec![
                    matmul(),
                    node(cpu, "Shape", ""),
                    node(cpu, "Size", "anything"),
                    node(cpu, "Gather", "pick"),
                    node(cpu, "Concat", "glue"),
                ],
                None,
            ),
            (
                "a gather of elements",
                vec![matmul(), node(cpu, "Gather", "rows")],
                Some("it leaves 1 of 2 nodes to the processor: Gather `rows`; with"),
            ),
            (
                "a node without a name",
                vec![matmul(), node(cpu, "Gather", ""), node(cpu, "Gather", "")],
                Some("it leaves 2 of 3 nodes to the processor: Gather (2); with"),
            ),
            (
                "several operators",
                vec![node(cpu, "Resize", "up"), node(cpu, "Conv", "a"), node(cpu, "Conv", "b"), matmul()],
                Some("it leaves 3 of 4 nodes to the processor: Conv (2, the first `a`), Resize `up`; with"),
            ),
            (
                "an operator of ONNX Runtime's own",
                vec![node(cpu, "MultiHeadAttention", "heads")],
                Some(
                    "MultiHeadAttention `heads`; some are operators of ONNX Runtime's own: a model exported with --target tensorrt has standard ones; with",
                ),
            ),
        ];
        let graph = || {
            let from_shapes = shape_nodes.iter().map(ToString::to_string).collect();
            Ok(Graph { inputs: Vec::new(), from_shapes })
        };
        let provider = ExecutionProvider::Cuda(CudaOptions::default());
        let mut wrong = Vec::new();
        for (name, nodes, expected) in cases {
            let outcome = check("m.onnx", &provider, &nodes, false, &graph);
            let text = outcome.as_ref().err().map(ToString::to_string);
            let fits = match (&text, expected) {
                (None, None) => true,
                (Some(text), Some(expected)) => {
                    text.starts_with("CUDA device 0 does not run all of the model, m.onnx: ")
                        && text.contains(expected)
                }
                _ => false,
            };
            let kind = outcome.err().map(|error| error.kind());
            if !fits || kind != expected.map(|_| ErrorKind::Unavailable) {
                wrong.push(format!("{name}: expected {expected:?}, got {text:?}"));
            }
            if let Err(error) = check("m.onnx", &provider, &nodes, true, &graph) {
                wrong.push(format!("{name}, allowed: {error}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_long_list_is_cut() {
        let operators = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J"];
        let nodes: Vec<_> = operators.map(|operator| node("CPUExecutionProvider", operator, "")).into();
        let provider = ExecutionProvider::CoreMl(CoreMlOptions::default());
        let graph = || Ok(Graph::default());
        let error = check("m.onnx", &provider, &nodes, false, &graph).expect_err("none of them is of shapes");
        assert!(error.to_string().contains("A, B, C, D, E, F, G, H and 2 other operators"), "{error}");
    }
}
