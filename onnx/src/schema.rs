//! The messages of `onnx.proto` (IR version 9) that Ocelli writes and reads.
//!
//! Field numbers and names are those of the schema, which documents them. It is a proto2 schema: repeated numbers are
//! written one by one, unless a field is marked `[packed = true]`. Strict readers refuse them packed.

#![allow(missing_docs, reason = "onnx.proto documents every field")]

use prost::Message;

/// `TensorProto.DataType`.
pub mod data_type {
    pub const FLOAT: i32 = 1;
    pub const UINT8: i32 = 2;
    pub const INT8: i32 = 3;
    pub const INT32: i32 = 6;
    pub const INT64: i32 = 7;
    pub const STRING: i32 = 8;
    pub const BOOL: i32 = 9;
    pub const FLOAT16: i32 = 10;
    pub const BFLOAT16: i32 = 16;
    pub const FLOAT8E4M3FN: i32 = 17;
}

/// `AttributeProto.AttributeType`.
pub mod attribute_type {
    pub const FLOAT: i32 = 1;
    pub const INT: i32 = 2;
    pub const STRING: i32 = 3;
    pub const INTS: i32 = 7;
}

/// `TensorProto.DataLocation`.
pub mod data_location {
    pub const EXTERNAL: i32 = 1;
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    #[prost(string, tag = "2")]
    pub producer_name: String,
    #[prost(string, tag = "3")]
    pub producer_version: String,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(int64, tag = "2")]
    pub version: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    #[prost(string, tag = "7")]
    pub domain: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(float, tag = "2")]
    pub f: f32,
    #[prost(int64, tag = "3")]
    pub i: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub s: Vec<u8>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    #[prost(int32, tag = "20")]
    pub r#type: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(string, tag = "8")]
    pub name: String,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub raw_data: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// One of [`data_location`], or 0 for data in this message.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

impl ValueInfoProto {
    /// A tensor of this [element type](data_type) and shape.
    pub fn tensor(name: &str, element: i32, dims: impl IntoIterator<Item = DimensionValue>) -> Self {
        let dim = dims.into_iter().map(|value| DimensionProto { value: Some(value) }).collect();
        let tensor_type = TensorTypeProto { elem_type: element, shape: Some(TensorShapeProto { dim }) };
        Self { name: name.to_owned(), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
    }

    /// The dimensions of a tensor, outermost first; `None` for one that has neither a size nor a name. Empty for a
    /// scalar, for a tensor without a shape, and for what is not a tensor.
    pub fn dims(&self) -> impl Iterator<Item = Option<&DimensionValue>> {
        let tensor = self.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
        let shape = tensor.and_then(|tensor| tensor.shape.as_ref());
        shape.into_iter().flat_map(|shape| &shape.dim).map(|dim| dim.value.as_ref())
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum DimensionValue {
    /// A size.
    #[prost(int64, tag = "1")]
    DimValue(i64),
    /// A name; the same name stands for the same size everywhere in a graph.
    #[prost(string, tag = "2")]
    DimParam(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number and wire type of every field of a message, in order; 0 is a number, 2 has a length.
    fn fields(message: &[u8]) -> Vec<(u8, u8)> {
        let mut fields = Vec::new();
        let mut rest = message;
        while let [key, after @ ..] = rest {
            assert!(key >> 3 < 16, "these messages have field numbers of one byte");
            fields.push((key >> 3, key & 7));
            rest = match key & 7 {
                0 => &after[1 + after.iter().position(|byte| byte & 0x80 == 0).expect("the number ends")..],
                2 => &after[1 + usize::from(after[0])..],
                5 => &after[4..],
                other => panic!("wire type {other}"),
            };
        }
        fields
    }

    #[test]
    fn repeated_numbers_are_written_one_by_one() {
        let tensor =
            TensorProto { dims: vec![2, 300, 4], data_type: data_type::FLOAT, ..TensorProto::default() };
        assert_eq!(tensor.encode_to_vec(), b"\x08\x02\x08\xac\x02\x08\x04\x10\x01");
        assert_eq!(fields(&tensor.encode_to_vec()), [(1, 0), (1, 0), (1, 0), (2, 0)]);

        let pads = AttributeProto { name: "pads".into(), ints: vec![0, 1], ..AttributeProto::default() };
        assert_eq!(fields(&pads.encode_to_vec()), [(1, 2), (8, 0), (8, 0)]);
    }

    #[test]
    fn packed_numbers_of_other_writers_are_read() {
        let tensor = TensorProto::decode(&b"\x0a\x03\x02\xac\x02\x10\x01"[..]).expect("packed dims");
        assert_eq!((tensor.dims, tensor.data_type), (vec![2, 300], data_type::FLOAT));
    }
}
