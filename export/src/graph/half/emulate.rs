//! A graph that computes in 32 bits and rounds as half precision would.

use std::collections::{HashMap, HashSet};

use super::super::{Dim, Element, Graph, Initializer, Node, Role, Source, Value, int};
use super::{choose, is_fixed_input, makes_codes, moves};
use crate::mixed_precision::{Block, HalfRules};
use ocelli_onnx::schema::{AttributeProto, NodeProto};

/// The terms that a GPU's matrix unit adds in one instruction (`mma.m16n8k16`), before the sum is stored in half precision.
/// The unit may round within an instruction as well.
const CHUNK: usize = 16;
/// The name of the initializer with the number of the last axis.
const LAST_AXIS: &str = "emulation.last_axis";

impl Graph<'_> {
    /// The result of [`in_half`](Graph::in_half), computed in 32 bits: the outputs of every node in half precision are
    /// rounded to its format and back, and so are its inputs. Where TensorRT sums a product in half precision, the sum is
    /// rounded after every [`CHUNK`] terms; all other sums are in 32 bits. The values of an attention are summed with
    /// weights up to 1 and then divided by the sum of the weights, as in a kernel that reads the keys in tiles. Engines
    /// without half precision show its errors and infinities this way.
    pub(crate) fn in_emulated_half(mut self, rules: &HalfRules) -> Self {
        let types = choose(&self, rules);
        let mut initializers = std::mem::take(&mut self.initializers);
        let places = initializers.iter().enumerate();
        let places = places.map(|(place, one)| (one.value.name.clone(), place)).collect();
        let inputs = self.inputs.iter().filter(|input| input.element == Element::F32);
        let formats = inputs.map(|input| (input.name.clone(), Element::F32)).collect();
        let (rounded, softmaxes) = (HashMap::new(), HashSet::new());
        let mut emulator = Emulator { nodes: Vec::new(), formats, rounded, places, softmaxes };
        let last_axis = Value { name: LAST_AXIS.into(), element: Element::I64, dims: vec![Dim::Fixed(1)] };
        let source = Source::Bytes((-1_i64).to_le_bytes().to_vec());
        initializers.push(Initializer { value: last_axis, source, rounded: None });
        let half = rules.half();
        for (mut node, format) in std::mem::take(&mut self.nodes).into_iter().zip(types) {
            let Some(format) = format else {
                emulator.nodes.push(node);
                continue;
            };
            let chunks = node.terms.filter(|_| rules.has_half_sums(&node)).map(|terms| terms.div_ceil(CHUNK));
            let chunks = chunks.filter(|chunks| *chunks > 1);
            let divided = chunks.and_then(|_| emulator.divide_weights(&mut node, half));
            let narrow = rules.has_narrow_weight(&node);
            emulator.add(node, format, half, narrow, &mut initializers);
            if let Some(chunks) = chunks {
                emulator.sum_in_chunks(chunks, half);
            }
            if let Some(divided) = divided {
                emulator.divide_sums(divided, half);
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
    rounded: HashMap<(String, Element), String>,
    /// The index of every initializer.
    places: HashMap<String, usize>,
    /// The results of softmax in half precision.
    softmaxes: HashSet<String>,
}

/// An attention whose weights were divided by the largest of each row.
struct Divided {
    output: String,
    largest: String,
    place: (Role, Option<Block>),
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
            let format = if is_narrow { half } else { format };
            if format != Element::F32 && (is_narrow || !is_fixed_input(&node.proto, place)) {
                let name = std::mem::take(&mut node.proto.input[place]);
                node.proto.input[place] = self.rounded(name, format, initializers);
            }
        }
        // Hardware multiplies the codes and rounds the sum.
        if makes_codes(&node) || node.proto.op_type == "DequantizeLinear" {
            self.nodes.push(node);
            return;
        }
        let outputs = node.proto.output.clone();
        self.formats.extend(outputs.iter().map(|name| (name.clone(), format)));
        if format == Element::F32 || moves(&node) {
            self.nodes.push(node);
            return;
        }
        if node.proto.op_type == "Softmax" {
            self.softmaxes.extend(outputs.iter().cloned());
        }
        let exact: Vec<String> = outputs.iter().map(|name| format!("{name}.exact")).collect();
        node.proto.output.clone_from(&exact);
        self.nodes.push(node);
        for (exact, output) in exact.iter().zip(&outputs) {
            self.round(exact, output, format);
        }
    }

    /// Replaces the last node, a product with its rounding, by products of a few terms that are added and rounded in turn.
    fn sum_in_chunks(&mut self, chunks: usize, half: Element) {
        let [_, _, product] = [(); 3].map(|()| self.nodes.pop().expect("a product and two casts"));
        let (name, result) = (product.proto.name.clone(), product.proto.output[0].clone());
        let output = result.strip_suffix(".exact").expect("the name that `add` gives").to_owned();
        let place = (product.role, product.block);
        let parts = |side: &str| (0..chunks).map(|i| format!("{name}.{side}{i}")).collect::<Vec<_>>();
        let sides = [("left", -1), ("right", -2)].map(|(side, axis)| (parts(side), axis));
        for (input, (parts, axis)) in product.proto.input.iter().zip(&sides) {
            let attributes = vec![int("axis", *axis), int("num_outputs", chunks as i64)];
            self.push("Split", &[input], parts.clone(), attributes, place);
        }
        let mut sum: Option<String> = None;
        for i in 0..chunks {
            let part = format!("{name}.part{i}");
            let factors = sides.each_ref().map(|(parts, _)| parts[i].as_str());
            self.push("MatMul", &factors, vec![part.clone()], vec![], place);
            let exact = match sum {
                Some(before) => {
                    let exact = format!("{name}.exact{i}");
                    self.push("Add", &[&before, &part], vec![exact.clone()], vec![], place);
                    exact
                }
                None => part,
            };
            let rounded = if i + 1 == chunks { output.clone() } else { format!("{name}.sum{i}") };
            self.round(&exact, &rounded, half);
            sum = Some(rounded);
        }
    }

    /// If a product is of an attention's weights and values: divides the weights by the largest of each row, so that their
    /// sum is not 1 but up to the number of keys.
    fn divide_weights(&mut self, node: &mut Node, half: Element) -> Option<Divided> {
        let weights = node.proto.input[0].clone();
        if !self.softmaxes.contains(&weights) {
            return None;
        }
        let place = (node.role, node.block);
        let (exact, largest) = (format!("{weights}.exact"), format!("{weights}.largest"));
        let (quotient, divided) = (format!("{weights}.quotient"), format!("{weights}.divided"));
        self.push("ReduceMax", &[&exact, LAST_AXIS], vec![largest.clone()], vec![int("keepdims", 1)], place);
        self.push("Div", &[&exact, &largest], vec![quotient.clone()], vec![], place);
        self.round(&quotient, &divided, half);
        self.formats.insert(divided.clone(), half);
        node.proto.input[0] = divided;
        let output = node.proto.output[0].clone();
        node.proto.output[0] = format!("{output}.tiles");
        Some(Divided { output, largest, place })
    }

    /// Divides the sums of values, which the last node computes, by the sum of the weights.
    fn divide_sums(&mut self, Divided { output, largest, place }: Divided, half: Element) {
        let (sums, exact) = (format!("{output}.tiles"), format!("{output}.exact"));
        // The largest weight is 1 / sum.
        self.push("Mul", &[&sums, &largest], vec![exact.clone()], vec![], place);
        self.round(&exact, &output, half);
        self.formats.insert(output, half);
    }

    fn push(
        &mut self,
        op: &str,
        input: &[&str],
        output: Vec<String>,
        attribute: Vec<AttributeProto>,
        (role, block): (Role, Option<Block>),
    ) {
        let proto = NodeProto {
            name: output[0].clone(),
            input: input.iter().map(|&name| name.to_owned()).collect(),
            output,
            op_type: op.into(),
            attribute,
            ..NodeProto::default()
        };
        self.nodes.push(Node { proto, element: Element::F32, role, block, terms: None });
    }

    /// The name of a value, rounded as an input of a node in half precision.
    fn rounded(&mut self, name: String, half: Element, initializers: &mut Vec<Initializer<'_>>) -> String {
        let key = (name, half);
        if let Some(known) = self.rounded.get(&key) {
            return known.clone();
        }
        let (name, _) = &key;
        let new = format!("{name}.{}", half.suffix());
        if let Some(&place) = self.places.get(name) {
            let Initializer { value, source, .. } = &initializers[place];
            if value.element != Element::F32 {
                return key.0;
            }
            let value = Value { name: new.clone(), ..value.clone() };
            let copy = Initializer { value, source: source.clone(), rounded: Some(half) };
            initializers.push(copy);
        } else if self.formats.get(name).is_some_and(|format| *format != half) {
            self.round(name, &new, half);
        } else {
            return key.0;
        }
        self.rounded.insert(key, new.clone());
        new
    }

    /// Adds two casts, to half precision and back.
    fn round(&mut self, from: &str, to: &str, half: Element) {
        let narrow = format!("{to}.narrow");
        for (from, to, element) in [(from, narrow.as_str(), half), (&narrow, to, Element::F32)] {
            self.nodes.push(Node {
                proto: super::cast(from, to, element),
                element,
                role: Role::Stream,
                block: None,
                terms: None,
            });
        }
    }
}
