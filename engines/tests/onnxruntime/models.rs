//! Small ONNX models, written out message by message: the part of `onnx.proto` (IR version 8) that they need.

use ocelli_engines::conformance::WEIGHTS;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(int64, tag = "1")]
    ir_version: i64,
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    opset_import: Vec<OperatorSetIdProto>,
}

#[derive(Clone, PartialEq, Message)]
struct OperatorSetIdProto {
    #[prost(int64, tag = "2")]
    version: i64,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    node: Vec<NodeProto>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    output: Vec<ValueInfoProto>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    output: Vec<String>,
    #[prost(string, tag = "4")]
    op_type: String,
}

#[derive(Clone, PartialEq, Message)]
struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "vec", tag = "9")]
    raw_data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ValueInfoProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    r#type: Option<TypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeProto {
    #[prost(message, optional, tag = "1")]
    tensor_type: Option<TensorTypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorTypeProto {
    #[prost(int32, tag = "1")]
    elem_type: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<TensorShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorShapeProto {
    #[prost(message, repeated, tag = "1")]
    dim: Vec<DimensionProto>,
}

#[derive(Clone, PartialEq, Message)]
struct DimensionProto {
    #[prost(int64, optional, tag = "1")]
    dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    dim_param: Option<String>,
}

/// ONNX's numbers for element types.
pub const F32: i32 = 1;
pub const U8: i32 = 2;
pub const I32: i32 = 6;
pub const I64: i32 = 7;
pub const STRING: i32 = 8;
pub const BOOL: i32 = 9;
pub const F16: i32 = 10;

/// A model: nodes `(operator, inputs, output)`, inputs and outputs `(name, element type, shape)`, where a shape is
/// written `rows 3`, a word for a named dimension and `?` for a nameless one.
pub struct Model<'m> {
    pub nodes: &'m [(&'m str, &'m [&'m str], &'m str)],
    pub inputs: &'m [(&'m str, i32, &'m str)],
    pub outputs: &'m [(&'m str, i32, &'m str)],
}

impl Model<'_> {
    /// The bytes of an `.onnx` file. The constant `weights` is the suite's.
    pub fn encode(&self) -> Vec<u8> {
        let values = |list: &[(&str, i32, &str)]| list.iter().map(value).collect();
        let node = |(op_type, input, output): &(&str, &[&str], &str)| NodeProto {
            input: input.iter().map(ToString::to_string).collect(),
            output: vec![output.to_string()],
            op_type: op_type.to_string(),
        };
        let weights = TensorProto {
            dims: vec![3, 4],
            data_type: F32,
            name: "weights".to_owned(),
            raw_data: WEIGHTS.as_flattened().iter().flat_map(|weight| weight.to_le_bytes()).collect(),
        };
        let graph = GraphProto {
            node: self.nodes.iter().map(node).collect(),
            name: "test".to_owned(),
            initializer: vec![weights],
            input: values(self.inputs),
            output: values(self.outputs),
        };
        let opset_import = vec![OperatorSetIdProto { version: 17 }];
        ModelProto { ir_version: 8, graph: Some(graph), opset_import }.encode_to_vec()
    }
}

fn value((name, elem_type, shape): &(&str, i32, &str)) -> ValueInfoProto {
    let dim = |word: &str| match word.parse() {
        Ok(size) => DimensionProto { dim_value: Some(size), dim_param: None },
        Err(_) if word == "?" => DimensionProto::default(),
        Err(_) => DimensionProto { dim_value: None, dim_param: Some(word.to_owned()) },
    };
    let shape = TensorShapeProto { dim: shape.split_whitespace().map(dim).collect() };
    let tensor_type = TensorTypeProto { elem_type: *elem_type, shape: Some(shape) };
    ValueInfoProto { name: name.to_string(), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}

/// The network of the conformance suite.
pub fn conformance() -> Vec<u8> {
    let model = Model {
        nodes: &[
            ("Add", &["a", "b"], "sum"),
            ("MatMul", &["a", "weights"], "product"),
            ("Add", &["ids", "ids"], "doubled"),
            ("NonZero", &["ids"], "positions"),
        ],
        inputs: &[("a", F32, "rows 3"), ("b", F32, "rows 3"), ("ids", I64, "rows tokens")],
        outputs: &[
            ("sum", F32, "rows 3"),
            ("product", F32, "rows 4"),
            ("doubled", I64, "rows tokens"),
            ("positions", I64, "2 found"),
        ],
    };
    model.encode()
}
