//! A model of which half runs on the CPU is slower than on either device alone, and ONNX Runtime reports nothing.
//!
//! A provider takes the nodes that it has kernels for; ONNX Runtime runs the others on the CPU, with copies of tensors between the
//! two. So any of them but shape arithmetic is an error unless the caller allows it.

use super::provider::ExecutionProvider;
use ocelli_error::{Error, Result};
use ocelli_onnx::schema::GraphProto;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The most operators that an error lists; the others are counted.
const LISTED_OPERATORS: usize = 8;

/// ONNX Runtime's own operators, which few other providers support.
const FUSED_OPERATORS: [&str; 6] = [
    "Attention",
    "MultiHeadAttention",
    "RotaryEmbedding",
    "MatMulNBits",
    "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
];

/// A node and the provider that ONNX Runtime assigned it to: after constant folding, before fusion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AssignedNode {
    pub(super) provider: String,
    pub(super) name: String,
    pub(super) operator: String,
}

/// Fails if nodes other than shape arithmetic run on the CPU; with `cpu_fallback` logs a warning instead.
///
/// `graph` reads the model; it is called only if nodes run on the CPU.
pub(super) fn check(
    model: &str,
    provider: &ExecutionProvider,
    nodes: &[AssignedNode],
    cpu_fallback: bool,
    graph: &dyn Fn() -> Result<GraphProto>,
) -> Result<()> {
    let cpu = ExecutionProvider::Cpu;
    let mut on_cpu: Vec<_> = nodes.iter().filter(|node| node.provider == cpu.name()).collect();
    if !on_cpu.is_empty() {
        let graph = graph()?;
        let shapes = shape_arithmetic(&graph);
        on_cpu.retain(|node| !gives_sizes(&node.operator) && !shapes.contains(node.name.as_str()));
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    nodes.iter().for_each(|node| *counts.entry(&node.provider).or_default() += 1);
    tracing::debug!(
        model,
        ?counts,
        on_cpu = on_cpu.len(),
        "nodes by provider; on_cpu is without shape arithmetic"
    );
    if on_cpu.is_empty() {
        return Ok(());
    }
    let counted = format!("{} of {} nodes", on_cpu.len(), nodes.len());
    let list = list(&on_cpu);
    if cpu_fallback {
        tracing::warn!("{model}: {provider} does not support {counted}, which run on the CPU: {list}");
        return Ok(());
    }
    let remedy = if on_cpu.iter().any(|node| FUSED_OPERATORS.contains(&node.operator.as_str())) {
        "; export the model with standard operators (target tensorrt): some of these are ONNX Runtime's own"
    } else {
        ""
    };
    Err(Error::unavailable(format!(
        "cannot run all of {model} on {provider}: {counted} would run on the CPU, and only shape arithmetic may: \
         {list}{remedy}; with `cpu_fallback` they run there"
    )).about("cpu_fallback"))
}

fn gives_sizes(operator: &str) -> bool {
    matches!(operator, "Shape" | "Size")
}

/// The names of the nodes that compute with sizes and with no element of an input: `Shape` and `Size`, and the nodes that
/// depend on the inputs through these alone. They belong on the CPU, which knows the shapes.
///
/// A node that ONNX Runtime adds is not in the model, and so is never among them.
fn shape_arithmetic(graph: &GraphProto) -> HashSet<&str> {
    let nodes = &graph.node;
    let mut users: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        node.input.iter().for_each(|input| users.entry(input).or_default().push(index));
    }
    // The nodes that depend on some values, except through the sizes that a node gives.
    let dependents = |values: Vec<&str>| -> HashSet<usize> {
        let (mut fresh, mut found) = (values, HashSet::new());
        while let Some(value) = fresh.pop() {
            for &index in users.get(value).into_iter().flatten() {
                if !gives_sizes(&nodes[index].op_type) && found.insert(index) {
                    fresh.extend(nodes[index].output.iter().map(String::as_str));
                }
            }
        }
        found
    };
    let sizes: Vec<usize> = (0..nodes.len()).filter(|&index| gives_sizes(&nodes[index].op_type)).collect();
    let size_values = sizes.iter().flat_map(|&index| nodes[index].output.iter().map(String::as_str));
    let on_sizes = dependents(size_values.collect());
    // Old files list weights among the inputs.
    let weights: HashSet<&str> = graph.initializer.iter().map(|weight| weight.name.as_str()).collect();
    let inputs = graph.input.iter().map(|input| input.name.as_str());
    let on_elements = dependents(inputs.filter(|name| !weights.contains(name)).collect());
    // A name that several nodes share, or an empty one, identifies none of them.
    let mut count: HashMap<&str, usize> = HashMap::new();
    nodes.iter().for_each(|node| *count.entry(&node.name).or_default() += 1);
    sizes
        .into_iter()
        .chain(on_sizes.difference(&on_elements).copied())
        .map(|index| nodes[index].name.as_str())
        .filter(|name| !name.is_empty() && count[name] == 1)
        .collect()
}

/// ``Conv (2, the first `stem/conv`), Resize `up` ``: operators, the most frequent first, and the first node of each.
fn list(nodes: &[&AssignedNode]) -> String {
    let mut operators: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    nodes.iter().for_each(|node| operators.entry(&node.operator).or_default().push(&node.name));
    let mut operators: Vec<_> = operators.into_iter().collect();
    operators.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let listed =
        operators.iter().take(LISTED_OPERATORS).map(|(operator, names)| match (names.len(), names[0]) {
            (1, "") => (*operator).to_owned(),
            (1, name) => format!("{operator} `{name}`"),
            (count, "") => format!("{operator} ({count})"),
            (count, name) => format!("{operator} ({count}, the first `{name}`)"),
        });
    let mut text = listed.collect::<Vec<_>>().join(", ");
    if operators.len() > LISTED_OPERATORS {
        text += &format!(" and {} other operators", operators.len() - LISTED_OPERATORS);
    }
    text
}

#[cfg(test)]
mod tests;
