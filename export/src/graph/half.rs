//! Converts a graph in 32 bits to half precision, strongly typed.
//!
//! Nodes that compute have the format that [`HalfRules`] gives them. Nodes that only move numbers ([`MOVES`]) have the
//! format of their input, or half if all nodes that use the result are half: so a cast is as near to the wider side as
//! possible, and no value is cast back and forth. A value that several nodes need in another format is cast once; a weight
//! is written in the format in which it is used.

use std::collections::{HashMap, HashSet};

use super::{Element, Graph, Initializer, Node, Parts, Role, Value, int};
use crate::contract::Precision;
use crate::mixed_precision::{Block, MixedPrecision};
use ocelli_onnx::schema::NodeProto;

/// Operators whose result consists of their inputs' numbers, unchanged; ReLU keeps a number or gives zero. The casts are
/// of masks, whose zeros and ones are exact in every format.
const MOVES: [&str; 10] =
    ["Cast", "Concat", "Gather", "Pad", "Relu", "Reshape", "Resize", "Slice", "Split", "Transpose"];
/// Operators that do not support bfloat16 in opset 20.
const NOT_IN_BF16: [&str; 5] = ["Conv", "ConvTranspose", "Cos", "InstanceNormalization", "Sin"];
/// Operators that ONNX Runtime's CUDA provider (1.31) does not have in bfloat16.
const NOT_ON_CUDA_IN_BF16: [&str; 4] = ["Clip", "Pad", "ReduceMax", "Resize"];

/// The rules for the formats in a half-precision graph.
#[derive(Clone, Debug)]
pub(crate) struct HalfRules {
    /// [`F16`](Element::F16): 11 bits of precision, up to 65504; or [`Bf16`](Element::Bf16): 8 bits, the range of f32.
    pub(crate) half: Element,
    pub(crate) islands: MixedPrecision,
    /// Set if sums in 32 bits need casts around a product, as in TensorRT.
    pub(crate) casts_for_sums: bool,
    /// Blocks in 32 bits.
    pub(crate) kept: Vec<Block>,
}

impl HalfRules {
    /// The 16-bit format of a precision.
    pub(crate) fn half_of(precision: Precision) -> Option<Element> {
        match precision {
            Precision::Fp16 | Precision::Fp8 | Precision::Int8Static => Some(Element::F16),
            Precision::Bf16 => Some(Element::Bf16),
            Precision::Fp32 | Precision::Int8 => None,
        }
    }

    /// The half-precision format of a node.
    fn half_in(&self, node: &Node) -> Element {
        let is_wide = self.islands == MixedPrecision::Bf16Attention && node.role == Role::Attention;
        if is_wide { Element::Bf16 } else { self.half }
    }

    /// `true` if a node that only moves numbers has no kernel in half precision.
    fn moves_in_single(&self, node: &Node) -> bool {
        self.half == Element::Bf16 && NOT_ON_CUDA_IN_BF16.contains(&node.proto.op_type.as_str())
    }

    /// The format in which a node computes.
    fn element(&self, node: &Node) -> Element {
        let island = match node.role {
            Role::Exact => true,
            Role::Product | Role::Quantized | Role::Stream => false,
            Role::PromptProduct => self.islands >= MixedPrecision::AccumulateLinear,
            Role::Norm | Role::Attention => self.islands >= MixedPrecision::Attention,
        };
        let kept = self.keeps(node);
        let half = self.half_in(node);
        let missing = half == Element::Bf16 && NOT_IN_BF16.contains(&node.proto.op_type.as_str());
        if island || kept || missing { Element::F32 } else { half }
    }

    /// `true` if a node is in a block that stays in 32 bits.
    fn keeps(&self, node: &Node) -> bool {
        node.block.is_some_and(|block| self.kept.iter().any(|kept| kept.covers(block)))
    }

    /// `true` if the weight of a product in 32 bits is stored in half precision.
    fn has_narrow_weight(&self, node: &Node) -> bool {
        node.role == Role::PromptProduct && node.proto.op_type == "MatMul" && !self.keeps(node)
    }

    /// `true` if a product is computed in 32 bits from factors in half precision. TensorRT knows these casts: it multiplies in
    /// half precision and sums in 32 bits.
    fn has_wide_sums(&self, node: &Node) -> bool {
        let level = match node.role {
            Role::Attention => MixedPrecision::Accumulate,
            Role::Product => MixedPrecision::AccumulateLinear,
            _ => return false,
        };
        let is_chosen = self.casts_for_sums && node.proto.op_type == "MatMul" && self.islands >= level;
        is_chosen && self.element(node) != Element::F32
    }
}

/// `true` if a node makes 8-bit codes of floating-point numbers.
fn makes_codes(node: &Node) -> bool {
    node.proto.op_type == "QuantizeLinear"
}

fn moves(node: &Node) -> bool {
    MOVES.contains(&node.proto.op_type.as_str())
}

/// `true` if an input is in 32 bits in every format of the node.
fn is_fixed_input(node: &NodeProto, place: usize) -> bool {
    node.op_type == "Resize" && place == 2
}

impl Graph<'_> {
    /// The same graph in half precision; inputs and outputs keep their types.
    pub(crate) fn in_half(mut self, rules: &HalfRules) -> Self {
        let parts = self.parts.get_mut();
        let types = choose(parts, rules);
        let mut writer = Writer::new(parts);
        for (mut node, element) in std::mem::take(&mut parts.nodes).into_iter().zip(types) {
            match element {
                Some(element) if makes_codes(&node) => {
                    writer.convert_inputs(&mut node, element);
                    writer.nodes.push(node);
                }
                Some(element) if rules.has_wide_sums(&node) => writer.add_with_wide_sums(node, element),
                Some(element) => {
                    let narrow = rules.has_narrow_weight(&node).then_some(rules.half);
                    writer.add(node, element, narrow);
                }
                None => {
                    // Comparisons are in 32 bits.
                    if node.element == Element::Bool {
                        writer.convert_inputs(&mut node, Element::F32);
                    }
                    writer.nodes.push(node);
                }
            }
        }
        let Writer { nodes, mut initializers, .. } = writer;
        let used: HashSet<&String> = nodes.iter().flat_map(|node| &node.proto.input).collect();
        initializers.retain(|initializer| used.contains(&initializer.value.name));
        (parts.initializers, parts.nodes) = (initializers, nodes);
        self
    }
}

/// The format of every node with floating-point results.
fn choose(graph: &Parts<'_>, rules: &HalfRules) -> Vec<Option<Element>> {
    let outputs: HashSet<&str> = graph.outputs.iter().map(|value| value.name.as_str()).collect();
    let is_output = |node: &Node| node.proto.output.iter().any(|name| outputs.contains(name.as_str()));
    let graph_inputs: HashSet<&str> = graph.inputs.iter().map(|value| value.name.as_str()).collect();
    let mut producers: HashMap<&str, usize> = HashMap::new();
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    // `None` if a node's format depends on the nodes that use it.
    let mut types: Vec<Option<Element>> = Vec::with_capacity(graph.nodes.len());
    let is_float: Vec<bool> = graph.nodes.iter().map(|node| node.element == Element::F32).collect();
    for (index, node) in graph.nodes.iter().enumerate() {
        let sources = node.proto.input.iter().filter_map(|name| producers.get(name.as_str()).copied());
        let sources: Vec<usize> = sources.filter(|&source| is_float[source]).collect();
        sources.iter().for_each(|&source| users[source].push(index));
        producers.extend(node.proto.output.iter().map(|name| (name.as_str(), index)));
        types.push(if makes_codes(node) && node.role == Role::Quantized {
            // Of its inputs.
            Some(rules.element(node))
        } else if !is_float[index] {
            None
        } else if rules.moves_in_single(node) || is_output(node) {
            Some(Element::F32)
        } else if moves(node) {
            let from_input = node.proto.op_type != "Cast"
                && node.proto.input.iter().any(|name| graph_inputs.contains(name.as_str()));
            let mut known: Vec<Element> = sources.iter().filter_map(|&source| types[source]).collect();
            known.extend(from_input.then_some(Element::F32));
            if known.contains(&Element::F32) { Some(Element::F32) } else { known.first().copied() }
        } else {
            Some(rules.element(node))
        });
    }
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        if is_float[index] && moves(node) && !rules.moves_in_single(node) && !is_output(node) {
            let users = &users[index];
            let all_half = !users.is_empty() && users.iter().all(|&user| types[user] == Some(rules.half));
            types[index] = Some(if all_half { rules.half } else { types[index].unwrap_or(Element::F32) });
        }
    }
    types
}

/// The typed graph under construction.
struct Writer<'w> {
    nodes: Vec<Node>,
    initializers: Vec<Initializer<'w>>,
    /// The format of every value.
    elements: HashMap<String, Element>,
    /// The casts of values, by name and format.
    casts: HashMap<(String, Element), String>,
    /// The integers that a value was cast from.
    whole: HashMap<String, String>,
    /// The index of every initializer.
    places: HashMap<String, usize>,
    /// The names of initializers in the formats in which they are used.
    used: HashMap<(usize, Element), String>,
}

impl<'w> Writer<'w> {
    /// Takes the initializers of a graph.
    fn new(graph: &mut Parts<'w>) -> Self {
        let initializers = std::mem::take(&mut graph.initializers);
        let values = graph.inputs.iter().chain(initializers.iter().map(|initializer| &initializer.value));
        let elements = values.map(|value| (value.name.clone(), value.element)).collect();
        let places = initializers.iter().enumerate();
        let places = places.map(|(place, initializer)| (initializer.value.name.clone(), place)).collect();
        let (casts, whole, used) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { nodes: Vec::new(), initializers, elements, casts, whole, places, used }
    }

    /// Adds a node that computes in a format. Weights are stored in `narrow`, if one is named, and cast.
    fn add(&mut self, mut node: Node, element: Element, narrow: Option<Element>) {
        let op = node.proto.op_type.as_str();
        let leaves =
            op == "Identity" && self.elements.get(&node.proto.input[0]).is_some_and(|e| *e != element);
        if op == "Cast" || leaves {
            // A cast from integers, or an output: the node becomes the cast.
            if op == "Cast" {
                self.whole.insert(node.proto.output[0].clone(), node.proto.input[0].clone());
            }
            node.proto.op_type = "Cast".into();
            node.proto.attribute = vec![int("to", i64::from(element.data_type()))];
        } else {
            for place in 0..node.proto.input.len() {
                let name = std::mem::take(&mut node.proto.input[place]);
                let stored = narrow.filter(|narrow| *narrow != element && self.places.contains_key(&name));
                node.proto.input[place] = match stored {
                    Some(narrow) => self.cast_as(&node, name, narrow, element),
                    None if is_fixed_input(&node.proto, place) => self.in_format(&node, name, Element::F32),
                    None => self.in_format(&node, name, element),
                };
            }
        }
        self.add_as(node, element);
    }

    /// Adds a product in 32 bits of factors that are rounded to half precision, as is its result.
    fn add_with_wide_sums(&mut self, mut node: Node, half: Element) {
        for place in 0..node.proto.input.len() {
            let name = std::mem::take(&mut node.proto.input[place]);
            node.proto.input[place] = self.cast_as(&node, name, half, Element::F32);
        }
        let result = node.proto.output[0].clone();
        node.proto.output[0] = format!("{result}.sum");
        let back = cast(&node, &node.proto.output[0], &result, half);
        self.add_as(node, Element::F32);
        self.add_as(back, half);
    }

    fn add_as(&mut self, mut node: Node, element: Element) {
        self.elements.extend(node.proto.output.iter().map(|name| (name.clone(), element)));
        node.element = element;
        self.nodes.push(node);
    }

    /// Gives a node its inputs in a format.
    fn convert_inputs(&mut self, node: &mut Node, wanted: Element) {
        for place in 0..node.proto.input.len() {
            let name = std::mem::take(&mut node.proto.input[place]);
            node.proto.input[place] = self.in_format(node, name, wanted);
        }
    }

    /// The name of a value that is rounded to `narrow` and then cast to `wanted`.
    fn cast_as(&mut self, user: &Node, name: String, narrow: Element, wanted: Element) -> String {
        let narrowed = self.in_format(user, name, narrow);
        self.cast(user, narrowed, wanted)
    }

    /// The name of a value in the format that `user` needs.
    fn in_format(&mut self, user: &Node, name: String, wanted: Element) -> String {
        match self.elements.get(&name) {
            Some(found) if found.is_float() => match self.places.get(&name) {
                Some(&place) => self.initializer_in(place, wanted),
                None if *found == wanted => name,
                None => self.cast(user, name, wanted),
            },
            _ => name,
        }
    }

    /// The name of a value after a cast, which is added if the graph does not have it.
    fn cast(&mut self, user: &Node, name: String, wanted: Element) -> String {
        let key = (name, wanted);
        if let Some(known) = self.casts.get(&key) {
            return known.clone();
        }
        let name = format!("{}.{}", key.0, wanted.suffix());
        let from = self.whole.get(&key.0).unwrap_or(&key.0);
        self.nodes.push(cast(user, from, &name, wanted));
        self.casts.insert(key, name.clone());
        name
    }

    /// The name of an initializer in a format; one that is used in two formats is written twice.
    fn initializer_in(&mut self, place: usize, wanted: Element) -> String {
        if let Some(known) = self.used.get(&(place, wanted)) {
            return known.clone();
        }
        let is_used = self.used.keys().any(|(other, _)| *other == place);
        let Initializer { value, source } = &mut self.initializers[place];
        let name = if is_used {
            // Not the name of a cast: one user may store the other format, and another cast to it.
            let name = format!("{}.stored.{}", value.name, wanted.suffix());
            let value = Value { name: name.clone(), element: wanted, dims: value.dims.clone() };
            let copy = Initializer { value, source: source.clone() };
            self.initializers.push(copy);
            name
        } else {
            value.element = wanted;
            value.name.clone()
        };
        self.used.insert((place, wanted), name.clone());
        name
    }
}

/// A cast that belongs to the node `user`.
fn cast(user: &Node, from: &str, to: &str, element: Element) -> Node {
    let proto = NodeProto {
        input: vec![from.to_owned()],
        output: vec![to.to_owned()],
        name: to.to_owned(),
        op_type: "Cast".into(),
        attribute: vec![int("to", i64::from(element.data_type()))],
        ..NodeProto::default()
    };
    Node { proto, element, role: user.role, block: user.block }
}

#[cfg(test)]
mod checker;
#[cfg(test)]
mod tests;
