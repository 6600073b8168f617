//! Small ONNX models.

use ocelli_engines::conformance::WEIGHTS;
use ocelli_onnx::Message;
use ocelli_onnx::schema::{
    DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, data_type,
};

pub const F32: i32 = data_type::FLOAT;
pub const U8: i32 = data_type::UINT8;
pub const I32: i32 = data_type::INT32;
pub const I64: i32 = data_type::INT64;
pub const STRING: i32 = data_type::STRING;
pub const BOOL: i32 = data_type::BOOL;
pub const F16: i32 = data_type::FLOAT16;

/// A model: nodes `(operator, inputs, output)`, inputs and outputs `(name, element type, shape)`. A shape is written
/// `rows 3`: a word for a named dimension, `?` for one without a name.
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
            ..NodeProto::default()
        };
        let weights = TensorProto {
            dims: vec![3, 4],
            data_type: F32,
            name: "weights".to_owned(),
            raw_data: Some(WEIGHTS.as_flattened().iter().flat_map(|weight| weight.to_le_bytes()).collect()),
            ..TensorProto::default()
        };
        let graph = GraphProto {
            node: self.nodes.iter().map(node).collect(),
            name: "test".to_owned(),
            initializer: vec![weights],
            input: values(self.inputs),
            output: values(self.outputs),
        };
        let opset_import = vec![OperatorSetIdProto { version: 17, ..OperatorSetIdProto::default() }];
        ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..ModelProto::default() }
            .encode_to_vec()
    }
}

fn value((name, elem_type, shape): &(&str, i32, &str)) -> ValueInfoProto {
    let dim = |word: &str| DimensionProto {
        value: match word.parse() {
            Ok(size) => Some(DimensionValue::DimValue(size)),
            Err(_) if word == "?" => None,
            Err(_) => Some(DimensionValue::DimParam(word.to_owned())),
        },
    };
    let shape = TensorShapeProto { dim: shape.split_whitespace().map(dim).collect() };
    let tensor_type = TensorTypeProto { elem_type: *elem_type, shape: Some(shape) };
    ValueInfoProto { name: name.to_string(), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}

/// The model of the conformance suite.
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
