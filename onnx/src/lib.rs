//! The ONNX file format: its messages, and a reader that skips weights.
//!
//! [`schema`] declares the messages of `onnx.proto` that Ocelli writes and reads; they encode and decode through
//! [`Message`]. [`read_graph`] reads a file's graph without its weights, so that a model of several gigabytes takes
//! milliseconds and almost no memory.
//!
//! ```
//! use ocelli_onnx::schema::{DimensionValue, GraphProto, ModelProto, NodeProto, ValueInfoProto, data_type};
//! use ocelli_onnx::{Message, read_graph_from};
//!
//! let batch = DimensionValue::DimParam("batch".into());
//! let tensor = |name: &str| ValueInfoProto::tensor(name, data_type::FLOAT, [batch.clone(), DimensionValue::DimValue(4)]);
//! let relu = NodeProto { input: vec!["x".into()], output: vec!["y".into()], op_type: "Relu".into(), ..NodeProto::default() };
//! let graph = GraphProto { node: vec![relu], input: vec![tensor("x")], output: vec![tensor("y")], ..GraphProto::default() };
//! let file = ModelProto { ir_version: 9, graph: Some(graph), ..ModelProto::default() }.encode_to_vec();
//!
//! let graph = read_graph_from(&mut std::io::Cursor::new(file))?;
//! assert_eq!(graph.node[0].op_type, "Relu");
//! assert_eq!(graph.input[0].dims().next(), Some(Some(&batch)));
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]

mod read;
pub mod schema;

pub use prost::Message;
pub use read::{read_graph, read_graph_from};
