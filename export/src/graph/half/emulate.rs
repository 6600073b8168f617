//! A graph that computes in 32 bits and rounds as half precision would.

use std::collections::{HashMap, HashSet};

use super::super::{Element, Graph, Initializer, Node, Value, int};
use super::{choose, is_fixed_input, moves};
use crate::mixed_precision::HalfRules;
use ocelli_onnx::schema::NodeProto;

/// The terms that a GPU's matrix unit adds in one instruction (`mma.m16n8k16`), before the sum is stored in half precision.
/// The unit may round within an instruction as well.
const CHUNK: usize = 16;

impl Graph<'_> {
    /// The result of [`in_half`](Graph::in_half), computed in 32 bits: the outputs of every node in half precision are
    /// rounded to its format and back, and so are its inputs. Where TensorRT sums a product in half precision, the sum is
    /// rounded after every [`CHUNK`] terms; all other sums are in 32 bits. Engines without half precision show its errors
    /// and infinities this way.
    pub(crate) fn in_emulated_half(mut self, rules: &HalfRules) -> Self {
        let types = choose(&self, rules);
        let mut initializers = std::mem::take(&mut self.initializers);
        let places = initializers.iter().enumerate();
        let places = places.map(|(place, one)| (one.value.name.clone(), place)).collect();
        let inputs = self.inputs.iter().filter(|input| input.element == Element::F32);
        let formats = inputs.map(|input| (input.name.clone(), Element::F32)).collect();
        let mut emulator = Emulator { nodes: Vec::new(), formats, rounded: HashMap::new(), places };
        for (node, format) in std::mem::take(&mut self.nodes).into_iter().zip(types) {
            match format {
                Some(format) => {
                    let chunks =
                        node.terms.filter(|_| rules.has_half_sums(&node)).map(|terms| terms.div_ceil(CHUNK));
                    let narrow = rules.has_narrow_weight(&node);
                    emulator.add(node, format, rules.half(), narrow, &mut initializers);
                    if let Some(chunks) = chunks.filter(|chunks| *chunks > 1) {
                        emulator.sum_in_chunks(chunks, rules.half());
                    }
                }
                None => emulator.nodes.push(node),
            }
        }
        let used: HashSet<&String> = emulator.nodes.iter().flat_map(|node| &node.proto.input).collect();
        initializers.retain(|initializer| used.contains(&initializer.value.name));
        self.initializers = initializers;
        self.nodes = emulator.nodes;
        self
    }
}

struct Emulator {
    nodes: Vec<Node>,
    /// The format of every value in half precision.
    formats: HashMap<String, Element>,
    /// The names of rounded values.
    rounded: HashMap<String, String>,
    /// The index of every initializer.
    places: HashMap<String, usize>,
}

impl Emulator {
    fn add(
        &mut self,
        mut node: Node,
        format: Element,
        half: Element,
        has_narrow_weight: bool,
        initializers: &mut Vec<Initializer<'_>>,
    ) {
        for place in 0..node.proto.input.len() {
            let is_narrow = has_narrow_weight && self.places.contains_key(&node.proto.input[place]);
            if is_narrow || format == half && !is_fixed_input(&node.proto, place) {
                let name = std::mem::take(&mut node.proto.input[place]);
                node.proto.input[place] = self.rounded(name, half, initializers);
            }
        }
        let outputs = node.proto.output.clone();
        self.formats.extend(outputs.iter().map(|name| (name.clone(), format)));
        if format != half || moves(&node) {
            self.nodes.push(node);
            return;
        }
        let exact: Vec<String> = outputs.iter().map(|name| format!("{name}.exact")).collect();
        node.proto.output.clone_from(&exact);
        self.nodes.push(node);
        for (exact, output) in exact.iter().zip(&outputs) {
            self.round(exact, output, half);
        }
    }

    /// Replaces the last node, a product with its rounding, by products of a few terms that are added and rounded in turn.
    fn sum_in_chunks(&mut self, chunks: usize, half: Element) {
        let [_, _, product] = [(); 3].map(|()| self.nodes.pop().expect("a product and two casts"));
        let (name, result) = (product.proto.name.clone(), product.proto.output[0].clone());
        let output = result.strip_suffix(".exact").expect("the name that `add` gives").to_owned();
        let add =
            |nodes: &mut Vec<Node>, op: &str, input: Vec<String>, output: Vec<String>, axis: Option<i64>| {
                let attribute =
                    axis.map_or(vec![], |axis| vec![int("axis", axis), int("num_outputs", chunks as i64)]);
                let proto = NodeProto {
                    name: output[0].clone(),
                    input,
                    output,
                    op_type: op.into(),
                    attribute,
                    ..NodeProto::default()
                };
                nodes.push(Node {
                    proto,
                    element: Element::F32,
                    role: product.role,
                    block: product.block,
                    terms: None,
                });
            };
        let parts = |side: &str| (0..chunks).map(|i| format!("{name}.{side}{i}")).collect::<Vec<_>>();
        let sides = [("left", -1), ("right", -2)].map(|(side, axis)| (parts(side), axis));
        for (input, (parts, axis)) in product.proto.input.iter().zip(&sides) {
            add(&mut self.nodes, "Split", vec![input.clone()], parts.clone(), Some(*axis));
        }
        let mut sum: Option<String> = None;
        for i in 0..chunks {
            let part = format!("{name}.part{i}");
            let factors = sides.each_ref().map(|(parts, _)| parts[i].clone());
            add(&mut self.nodes, "MatMul", factors.to_vec(), vec![part.clone()], None);
            let exact = match sum {
                Some(before) => {
                    let exact = format!("{name}.exact{i}");
                    add(&mut self.nodes, "Add", vec![before, part], vec![exact.clone()], None);
                    exact
                }
                None => part,
            };
            let rounded = if i + 1 == chunks { output.clone() } else { format!("{name}.sum{i}") };
            self.round(&exact, &rounded, half);
            sum = Some(rounded);
        }
    }

    /// The name of a value, rounded as an input of a node in half precision.
    fn rounded(&mut self, name: String, half: Element, initializers: &mut Vec<Initializer<'_>>) -> String {
        if let Some(known) = self.rounded.get(&name) {
            return known.clone();
        }
        let new = format!("{name}.{}", half.suffix());
        if let Some(&place) = self.places.get(&name) {
            let Initializer { value, source, .. } = &initializers[place];
            if value.element != Element::F32 {
                return name;
            }
            let value = Value { name: new.clone(), ..value.clone() };
            let copy = Initializer { value, source: source.clone(), rounded: Some(half) };
            initializers.push(copy);
        } else if self.formats.get(&name) == Some(&Element::F32) {
            self.round(&name, &new, half);
        } else {
            return name;
        }
        self.rounded.insert(name, new.clone());
        new
    }

    /// Adds two casts, to half precision and back.
    fn round(&mut self, from: &str, to: &str, half: Element) {
        let narrow = format!("{to}.narrow");
        for (from, to, element) in [(from, narrow.as_str(), half), (&narrow, to, Element::F32)] {
            self.nodes.push(Node {
                proto: super::cast(from, to, element),
                element,
                role: super::super::Role::Stream,
                block: None,
                terms: None,
            });
        }
    }
}
