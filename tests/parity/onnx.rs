//! As much of the ONNX schema as reading operators and weights' names takes; field numbers are those of `onnx.proto3`.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Model {
    #[prost(message, optional, tag = "7")]
    pub graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub operator_sets: Vec<OperatorSet>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OperatorSet {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(int64, tag = "2")]
    pub version: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<Node>,
    #[prost(message, repeated, tag = "5")]
    pub initializers: Vec<Initializer>,
    #[prost(message, repeated, tag = "11")]
    pub inputs: Vec<Tensor>,
    #[prost(message, repeated, tag = "12")]
    pub outputs: Vec<Tensor>,
}

/// `ValueInfoProto`.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub kind: Option<Kind>,
}

/// `TypeProto`.
#[derive(Clone, PartialEq, Message)]
pub struct Kind {
    #[prost(message, optional, tag = "1")]
    pub tensor: Option<TensorKind>,
}

/// `TypeProto.Tensor`.
#[derive(Clone, PartialEq, Message)]
pub struct TensorKind {
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
}

/// `TensorShapeProto`.
#[derive(Clone, PartialEq, Message)]
pub struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub dimensions: Vec<Dimension>,
}

/// `TensorShapeProto.Dimension`.
#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    #[prost(string, tag = "2")]
    pub name: String,
}

impl Tensor {
    /// The tensor, the axis and the name of every dimension that has one.
    pub fn named_dimensions(&self) -> Vec<(String, usize, String)> {
        let shape = self.kind.as_ref().and_then(|kind| kind.tensor.as_ref()?.shape.as_ref());
        let dimensions = shape.map(|shape| shape.dimensions.as_slice()).unwrap_or_default();
        let named = dimensions.iter().enumerate().filter(|(_, dimension)| !dimension.name.is_empty());
        named.map(|(axis, dimension)| (self.name.clone(), axis, dimension.name.clone())).collect()
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub operator: String,
    #[prost(string, tag = "7")]
    pub domain: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Initializer {
    #[prost(string, tag = "8")]
    pub name: String,
}
