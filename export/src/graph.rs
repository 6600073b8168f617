//! A small typed builder of ONNX graphs.
//!
//! Every [`Value`] has an element type and a shape, which every operator checks when it is added: a mistake is an error
//! that names the node, and not a file that a runtime refuses. Dimensions are fixed or named; the size of a named one is
//! free in the file. The first fault is kept and reported by [`Graph::finish`], so that no operator needs a `?`.
//!
//! Weights are not held in memory: an initialiser knows how to read them and does so when the file is written.

mod choice;
mod half;
mod ops;
mod pooling;
mod quantized;
mod shape;
mod write;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::calibration::Calibration;
use crate::checkpoint::Weights;
use crate::contract::{Precision, Target};
use crate::mixed_precision::Block;
use crate::quantize::EightBits;
use ocelli_error::{Error, ErrorKind, Result};
use ocelli_onnx::schema::{AttributeProto, NodeProto, attribute_type, data_type};

pub(crate) use half::HalfRules;
pub(crate) use quantized::QuantizedRows;
pub(crate) use shape::Dim;
pub(crate) use write::WrittenFile;

/// Opset of the standard operators: the first with `Gelu`, and one that TensorRT 10 and 11 parse.
pub(crate) const OPSET: i64 = 20;

/// The domain of ONNX Runtime's own operators, and those that are in use.
const FUSED_DOMAIN: &str = "com.microsoft";
const FUSED: [&str; 3] = ["MatMulIntegerToFloat", "MultiHeadAttention", "RotaryEmbedding"];

/// Element type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Element {
    F32,
    F16,
    Bf16,
    I64,
    /// E4M3, without infinities.
    F8,
    I8,
    U8,
    Bool,
}

impl Element {
    /// The number in ONNX, the bytes of a value, and the suffix for the name of a value that is cast to it.
    fn properties(self) -> (i32, usize, &'static str) {
        match self {
            Self::F32 => (data_type::FLOAT, 4, "f32"),
            Self::F16 => (data_type::FLOAT16, 2, "f16"),
            Self::Bf16 => (data_type::BFLOAT16, 2, "bf16"),
            Self::I64 => (data_type::INT64, 8, "i64"),
            Self::F8 => (data_type::FLOAT8E4M3FN, 1, "f8"),
            Self::I8 => (data_type::INT8, 1, "i8"),
            Self::U8 => (data_type::UINT8, 1, "u8"),
            Self::Bool => (data_type::BOOL, 1, "bool"),
        }
    }

    pub(crate) fn data_type(self) -> i32 {
        self.properties().0
    }

    fn bytes(self) -> usize {
        self.properties().1
    }

    pub(crate) fn suffix(self) -> &'static str {
        self.properties().2
    }

    /// The type of these codes.
    pub(crate) fn of_codes(format: EightBits) -> Self {
        match format {
            EightBits::Float => Self::F8,
            EightBits::Integer => Self::I8,
        }
    }

    fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16)
    }

    fn is_float(self) -> bool {
        self.is_half() || self == Self::F32
    }
}

/// The purpose of a node, which decides whether it stays in 32 bits; see [`MixedPrecision`](crate::MixedPrecision).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Products with weights, and their biases.
    Product,
    /// Products of 8-bit factors with given scales, which hardware sums in 32 bits, and the steps to and from these factors.
    Quantized,
    /// Products of a class's prompt with weights: they have few rows and cost nothing in 32 bits.
    PromptProduct,
    /// Residual sums, activations, positions of features: everything without another role.
    Stream,
    /// Normalisation.
    Norm,
    /// Attention: its products and their inputs, and scaling, masking and softmax of the scores.
    Attention,
    /// Positions, boxes, and the last steps of a score: always 32 bits.
    Exact,
}

impl Role {
    /// The role of an operator by default.
    fn of(op: &str) -> Self {
        match op {
            "MatMul" | "Conv" | "ConvTranspose" => Self::Product,
            "LayerNormalization" | "InstanceNormalization" => Self::Norm,
            "MultiHeadAttention" | "RotaryEmbedding" | "Softmax" => Self::Attention,
            _ => Self::Stream,
        }
    }
}

/// A node of a graph, with properties that are not written to the file.
struct Node {
    proto: NodeProto,
    /// Of its outputs.
    element: Element,
    role: Role,
    /// The part of the model that it belongs to, if any.
    block: Option<Block>,
}

/// A tensor in a graph: name, element type, shape.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) element: Element,
    pub(crate) dims: Vec<Dim>,
}

impl Value {
    /// An input that a node does without, in front of one that it has.
    fn absent() -> Self {
        Self { name: String::new(), element: Element::F32, dims: Vec::new() }
    }
}

/// Reads the values of an initialiser.
type Read<'w, T> = Rc<dyn Fn(&Weights) -> Result<Vec<T>> + 'w>;

#[derive(Clone)]
enum Source<'w> {
    Bytes(Vec<u8>),
    Weights(Read<'w, f32>),
    Codes(Read<'w, i8>),
}

struct Initializer<'w> {
    value: Value,
    source: Source<'w>,
}

/// The form in which the weight of a linear layer is written, and the operator that multiplies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinearForm {
    /// Floating point.
    #[default]
    Float,
    /// 8-bit codes, and inputs that the graph quantises: ONNX Runtime's operator.
    Integers,
    /// 8-bit codes that `DequantizeLinear` multiplies by a scale for each output: the engine decides in which format it
    /// multiplies.
    Codes,
    /// Weights and inputs that are rounded to 8 bits by scales that the graph knows, in standard operators: engines that have
    /// such products multiply in 8 bits.
    Static(EightBits),
    /// Floating point, and an output with the largest magnitude of every layer's inputs.
    Observed,
}

impl LinearForm {
    pub(crate) fn of(precision: Precision, target: Target) -> Self {
        match (precision, target) {
            (Precision::Fp8, _) => Self::Static(EightBits::Float),
            (Precision::Int8Static, _) => Self::Static(EightBits::Integer),
            (Precision::Int8, Target::OnnxRuntime) => Self::Integers,
            (Precision::Int8, Target::TensorRt) => Self::Codes,
            _ => Self::Float,
        }
    }
}

/// A graph under construction. What is added to it is in a cell, so that operators nest as expressions do.
pub(crate) struct Graph<'w> {
    name: String,
    weights: &'w Weights,
    parts: RefCell<Parts<'w>>,
    /// The operators that attention is written in.
    pub(crate) target: Target,
    /// Lets layers with the same input become one product.
    pub(crate) may_join_layers: bool,
    /// The ranges of layers' inputs.
    pub(crate) calibration: Option<Calibration>,
    /// Blocks whose linear layers are not quantised with given scales.
    pub(crate) exact_blocks: Vec<Block>,
}

/// What a graph has so far, and what holds for the nodes that are added next.
#[derive(Default)]
struct Parts<'w> {
    nodes: Vec<Node>,
    initializers: Vec<Initializer<'w>>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    scope: String,
    /// The role of the nodes that are added next, if it is not the operator's default.
    role: Option<Role>,
    /// The part of the model that the nodes added next belong to.
    block: Option<Block>,
    /// The number of uses of a name, so that names stay unique.
    names: HashMap<String, usize>,
    /// Small constants by type, shape and bytes: each is written once.
    constants: HashMap<(i32, Vec<usize>, Vec<u8>), Value>,
    /// The form of the linear layers added next.
    linear_form: LinearForm,
    /// Values whose rows are quantised, by name and lower bound.
    quantized: HashMap<(String, Option<u32>), QuantizedRows>,
    /// Values rounded to codes of 8 bits and back, by name and scale.
    rounded: HashMap<(String, u32), Value>,
    fault: Option<Error>,
}

impl<'w> Graph<'w> {
    pub(crate) fn new(name: &str, weights: &'w Weights) -> Self {
        Self {
            name: name.to_owned(),
            weights,
            parts: RefCell::default(),
            target: Target::default(),
            may_join_layers: false,
            calibration: None,
            exact_blocks: Vec::new(),
        }
    }

    /// Sets the prefix for the names of the nodes that follow: the module's name in the checkpoint.
    pub(crate) fn scope(&self, scope: impl Into<String>) {
        self.parts.borrow_mut().scope = scope.into();
    }

    /// Sets the part of the model that the nodes that follow belong to.
    pub(crate) fn block(&self, block: Block) {
        self.parts.borrow_mut().block = Some(block);
    }

    /// Gives the nodes that `add` adds this role, unless an outer call has set one.
    pub(crate) fn as_role<T>(&self, role: Role, add: impl FnOnce(&Self) -> T) -> T {
        let outer = self.parts.borrow().role;
        self.parts.borrow_mut().role = outer.or(Some(role));
        let added = add(self);
        self.parts.borrow_mut().role = outer;
        added
    }

    /// Sets the form of the linear layers that follow.
    pub(crate) fn write_linear_as(&self, form: LinearForm) {
        self.parts.borrow_mut().linear_form = form;
    }

    pub(crate) fn joins_layers(&self) -> bool {
        self.may_join_layers && self.linear_form() == LinearForm::Float
    }

    /// The form of a linear layer in this place.
    pub(crate) fn linear_form(&self) -> LinearForm {
        let Parts { block, linear_form, .. } = &*self.parts.borrow();
        let exact = block.is_some_and(|block| self.exact_blocks.iter().any(|kept| kept.covers(block)));
        match *linear_form {
            LinearForm::Static(_) | LinearForm::Integers | LinearForm::Codes if exact => LinearForm::Float,
            form => form,
        }
    }

    pub(crate) fn input(&self, name: &str, element: Element, dims: &[Dim]) -> Value {
        let value = Value { name: name.to_owned(), element, dims: dims.to_vec() };
        let mut parts = self.parts.borrow_mut();
        parts.names.insert(name.to_owned(), 1);
        parts.inputs.push(value.clone());
        value
    }

    /// Makes `value` the output `name`; its shape must be `dims`.
    pub(crate) fn output(&self, name: &str, value: &Value, dims: &[Dim]) {
        if value.dims != dims {
            self.fail(format!("output {name} has shape {:?}: expected {dims:?}", value.dims));
        }
        let out = Value { name: name.to_owned(), ..value.clone() };
        let proto = NodeProto {
            input: vec![value.name.clone()],
            output: vec![name.to_owned()],
            name: format!("output/{name}"),
            op_type: "Identity".into(),
            ..NodeProto::default()
        };
        let mut parts = self.parts.borrow_mut();
        parts.nodes.push(Node { proto, element: value.element, role: Role::Exact, block: None });
        parts.outputs.push(out);
    }

    /// The checkpoint's tensor of this name.
    pub(crate) fn weight(&self, name: &str) -> Value {
        let key = name.to_owned();
        self.derived(name, self.weights.shape(name), move |weights| weights.read(&key))
    }

    /// The shape of a tensor of the checkpoint.
    pub(crate) fn weight_dims(&self, name: &str) -> Vec<usize> {
        self.weights.shape(name).to_vec()
    }

    /// An f32 initialiser computed from the checkpoint when the file is written.
    pub(crate) fn derived(
        &self,
        name: &str,
        dims: &[usize],
        read: impl Fn(&Weights) -> Result<Vec<f32>> + 'w,
    ) -> Value {
        self.initializer(name, Element::F32, dims, Source::Weights(Rc::new(read)))
    }

    /// An initialiser of 8-bit codes computed from the checkpoint when the file is written.
    pub(crate) fn derived_codes(
        &self,
        name: &str,
        element: Element,
        dims: &[usize],
        read: impl Fn(&Weights) -> Result<Vec<i8>> + 'w,
    ) -> Value {
        self.initializer(name, element, dims, Source::Codes(Rc::new(read)))
    }

    fn initializer(&self, name: &str, element: Element, dims: &[usize], source: Source<'w>) -> Value {
        let value = Value { name: self.unique(name), element, dims: shape::fixed(dims) };
        self.parts.borrow_mut().initializers.push(Initializer { value: value.clone(), source });
        value
    }

    /// An f32 constant.
    pub(crate) fn constant(&self, name: &str, dims: &[usize], data: &[f32]) -> Value {
        let bytes = data.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.bytes(name, Element::F32, dims, bytes)
    }

    /// A scalar f32 constant.
    pub(crate) fn scalar(&self, value: f32) -> Value {
        self.constant("scalar", &[], &[value])
    }

    /// A one-dimensional i64 constant.
    pub(crate) fn integers(&self, name: &str, data: &[i64]) -> Value {
        let bytes = data.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.bytes(name, Element::I64, &[data.len()], bytes)
    }

    /// A scalar u8 constant.
    fn scalar_u8(&self, value: u8) -> Value {
        self.bytes("scalar", Element::U8, &[], vec![value])
    }

    fn bytes(&self, name: &str, element: Element, dims: &[usize], bytes: Vec<u8>) -> Value {
        let count: usize = dims.iter().product();
        if bytes.len() != count * element.bytes() {
            self.fail(format!("constant {name} has {} bytes for shape {dims:?}", bytes.len()));
        }
        let key = (element.data_type(), dims.to_vec(), bytes);
        if let Some(known) = self.parts.borrow().constants.get(&key) {
            return known.clone();
        }
        let value = self.initializer(name, element, dims, Source::Bytes(key.2.clone()));
        if key.2.len() <= 1024 {
            self.parts.borrow_mut().constants.insert(key, value.clone());
        }
        value
    }

    /// Adds a node with one output.
    fn node(
        &self,
        op: &str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
        element: Element,
        dims: Vec<Dim>,
    ) -> Value {
        let name = self.push(op, inputs, attributes, 1, element);
        Value { name: format!("{name}:0"), element, dims }
    }

    /// Adds a node with outputs of type `element`, named `name:0`, `name:1`, …
    fn push(
        &self,
        op: &str,
        inputs: &[&Value],
        attribute: Vec<AttributeProto>,
        outputs: usize,
        element: Element,
    ) -> String {
        let scope = self.parts.borrow().scope.clone();
        let name = if scope.is_empty() { op.to_owned() } else { format!("{scope}/{op}") };
        let name = self.unique(&name);
        let proto = NodeProto {
            input: inputs.iter().map(|value| value.name.clone()).collect(),
            output: (0..outputs).map(|i| format!("{name}:{i}")).collect(),
            name: name.clone(),
            op_type: op.to_owned(),
            attribute,
            domain: if FUSED.contains(&op) { FUSED_DOMAIN } else { "" }.to_owned(),
        };
        let mut parts = self.parts.borrow_mut();
        let (role, block) = (parts.role.unwrap_or(Role::of(op)), parts.block);
        parts.nodes.push(Node { proto, element, role, block });
        name
    }

    fn unique(&self, name: &str) -> String {
        let mut parts = self.parts.borrow_mut();
        let count = parts.names.entry(name.to_owned()).or_insert(0);
        *count += 1;
        if *count == 1 { name.to_owned() } else { format!("{name}#{count}") }
    }

    /// Keeps the first fault.
    fn fail(&self, message: String) {
        self.fail_as(ErrorKind::Internal, message);
    }

    /// Keeps the first fault; `x` stands for the result of the node that cannot be added.
    fn refuse(&self, x: &Value, message: String) -> Value {
        self.fail(message);
        x.clone()
    }

    /// Keeps the first fault, of this kind.
    pub(crate) fn fail_as(&self, kind: ErrorKind, message: String) {
        let Parts { scope, fault, .. } = &mut *self.parts.borrow_mut();
        let module = if scope.is_empty() { &self.name } else { scope };
        let message = format!("cannot build graph {}, {module}: {message}", self.name);
        fault.get_or_insert_with(|| Error::new(kind, message));
    }
}

fn attribute(name: &str, r#type: i32) -> AttributeProto {
    AttributeProto { name: name.into(), r#type, ..AttributeProto::default() }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i, ..attribute(name, attribute_type::INT) }
}

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name, attribute_type::INTS) }
}

fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { f, ..attribute(name, attribute_type::FLOAT) }
}

fn string(name: &str, s: &str) -> AttributeProto {
    AttributeProto { s: s.into(), ..attribute(name, attribute_type::STRING) }
}
