//! The requirements of a strongly typed runtime: every type is inferred from inputs and initializers by ONNX's rules,
//! independently of the types that the conversion has chosen.

use std::collections::{HashMap, HashSet};

use super::super::{Element, Graph, Node};
use ocelli_onnx::schema::data_type;

/// The problems of a graph.
pub(super) fn check(graph: &Graph<'_>) -> Vec<String> {
    let graph = graph.parts.borrow();
    let mut checker = Checker::default();
    for value in &graph.inputs {
        checker.types.insert(&value.name, value.element);
    }
    for initializer in &graph.initializers {
        if checker.types.insert(&initializer.value.name, initializer.value.element).is_some() {
            checker.problems.push(format!("{} is defined twice", initializer.value.name));
        }
    }
    for node in
        graph.nodes.iter().filter(|node| node.proto.op_type == "MatMul" && node.element == Element::F32)
    {
        checker.products.extend(node.proto.input.iter().chain(&node.proto.output).map(String::as_str));
    }
    for node in &graph.nodes {
        checker.node(node);
    }
    for output in &graph.outputs {
        match checker.types.get(output.name.as_str()) {
            Some(Element::F32 | Element::I64) => {}
            other => checker.problems.push(format!("output {} is {other:?}", output.name)),
        }
    }
    for initializer in &graph.initializers {
        let name = &initializer.value.name;
        if !graph.nodes.iter().any(|node| node.proto.input.contains(name)) {
            checker.problems.push(format!("{name} is unused"));
        }
    }
    checker.problems
}

#[derive(Default)]
struct Checker<'g> {
    types: HashMap<&'g str, Element>,
    /// For a value that consists of another one's numbers, moved or cast: their type before the last cast.
    before_cast: HashMap<&'g str, Element>,
    /// Factors and results of products in 32 bits, and these results after a cast.
    products: HashSet<&'g str>,
    after_products: HashSet<&'g str>,
    problems: Vec<String>,
}

impl<'g> Checker<'g> {
    fn node(&mut self, node: &'g Node) {
        let (proto, op) = (&node.proto, node.proto.op_type.as_str());
        let mut inputs = Vec::new();
        for (place, name) in proto.input.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            match self.types.get(name.as_str()) {
                None => self.problems.push(format!("{}: {name} is not defined yet", proto.name)),
                // The scales of a resize are f32 in every format.
                Some(Element::F32) if op == "Resize" && place == 2 => {}
                Some(_) if op == "Resize" && place == 2 => {
                    self.problems.push(format!("{}: scales are not f32", proto.name));
                }
                Some(element) => inputs.push(*element),
            }
        }
        let floats: Vec<Element> = inputs.iter().copied().filter(|element| element.is_float()).collect();
        if op != "Cast" && floats.windows(2).any(|pair| pair[0] != pair[1]) {
            self.problems.push(format!("{}: inputs of types {floats:?}", proto.name));
        }
        let result = match op {
            "Cast" => self.cast(node, inputs.first().copied()),
            // The type of the zero point.
            "QuantizeLinear" => inputs.last().copied().unwrap_or(Element::F32),
            _ => floats.first().or(inputs.first()).copied().unwrap_or(Element::F32),
        };
        let missing = ["Conv", "ConvTranspose", "Cos", "InstanceNormalization", "Pad", "Resize", "Sin"];
        if result == Element::Bf16 && missing.contains(&op) {
            self.problems.push(format!("{}: opset 20 or CUDA has no {op} for bfloat16", proto.name));
        }
        if result != node.element {
            self.problems
                .push(format!("{}: type {result:?}, the conversion chose {:?}", proto.name, node.element));
        }
        for output in &proto.output {
            self.types.insert(output, result);
            if (matches!(op, "Reshape" | "Transpose" | "Slice" | "Split" | "Identity")
                || op == "Pad" && result != Element::F32)
                && let Some(before) = self.before_cast.get(proto.input[0].as_str()).copied()
            {
                self.before_cast.insert(output, before);
            }
        }
    }

    fn cast(&mut self, node: &'g Node, from: Option<Element>) -> Element {
        let to = node.proto.attribute.iter().find(|attribute| attribute.name == "to").map(|a| a.i as i32);
        let to = match to {
            Some(data_type::FLOAT) => Element::F32,
            Some(data_type::FLOAT16) => Element::F16,
            Some(data_type::BFLOAT16) => Element::Bf16,
            other => {
                self.problems.push(format!("{}: a cast to {other:?}", node.proto.name));
                Element::F32
            }
        };
        let name = &node.proto.name;
        if from == Some(to) {
            self.problems.push(format!("{name}: a cast from {to:?} to itself"));
        }
        // A product with sums in 32 bits has a cast before each factor and after the result, for TensorRT to recognise.
        let at_a_product = |name: &str| self.products.contains(name);
        let is_wanted = at_a_product(&node.proto.output[0]) || at_a_product(&node.proto.input[0]);
        if let Some(before) = self.before_cast.get(node.proto.input[0].as_str())
            && !is_wanted
            && !self.after_products.contains(node.proto.input[0].as_str())
        {
            self.problems.push(format!("{name}: a second cast, {before:?} to {from:?} to {to:?}"));
        }
        if at_a_product(&node.proto.input[0]) {
            self.after_products.insert(&node.proto.output[0]);
        }
        if let Some(from) = from {
            self.before_cast.insert(&node.proto.output[0], from);
        }
        to
    }
}
