//! A graph that computes in 32 bits and rounds as half precision would.

use std::collections::{HashMap, HashSet};

use super::super::{Element, Graph, Initializer, Node, Value, int};
use super::{choose, is_fixed_input, moves};
use crate::mixed_precision::HalfRules;
use ocelli_onnx::schema::NodeProto;

impl Graph<'_> {
    /// The result of [`in_half`](Graph::in_half), computed in 32 bits: the outputs of every node in half precision are
    /// rounded to its format and back, and so are its inputs. Products are summed in 32 bits, as in the matrix units of a
    /// GPU. Engines without half precision show its errors and infinities this way.
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
                Some(format) => emulator.add(node, format, rules.half(), &mut initializers),
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
        initializers: &mut Vec<Initializer<'_>>,
    ) {
        for place in 0..node.proto.input.len() {
            if format == half && !is_fixed_input(&node.proto, place) {
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
            let proto = NodeProto {
                input: vec![from.to_owned()],
                output: vec![to.to_owned()],
                name: to.to_owned(),
                op_type: "Cast".into(),
                attribute: vec![int("to", i64::from(element.data_type()))],
                ..NodeProto::default()
            };
            self.nodes.push(Node { proto, element, role: super::super::Role::Stream, block: None });
        }
    }
}
