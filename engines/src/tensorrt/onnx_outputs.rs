//! The names of the outputs' dimensions in an ONNX file: TensorRT's parser keeps only those of the inputs.

use ocelli_onnx::schema::DimensionValue;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The name of each dimension, by output; `None` for a dimension without a name.
pub(super) type DimensionNames = BTreeMap<String, Vec<Option<String>>>;

/// Reads the names from a file that TensorRT has parsed.
pub(super) fn read(path: &Path) -> io::Result<DimensionNames> {
    let outputs = ocelli_onnx::read_graph(path)?.output.into_iter().map(|output| {
        let name = |dim: Option<&DimensionValue>| match dim {
            Some(DimensionValue::DimParam(name)) if !name.is_empty() => Some(name.clone()),
            _ => None,
        };
        let names = output.dims().map(name).collect();
        (output.name, names)
    });
    Ok(outputs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_onnx::Message;
    use ocelli_onnx::schema::{GraphProto, ModelProto, ValueInfoProto, data_type};

    #[test]
    fn named_dimensions_of_every_output_are_read() {
        let dims = [DimensionValue::DimParam("classes".into()), DimensionValue::DimValue(4)];
        let logits = ValueInfoProto::tensor("logits", data_type::FLOAT, dims);
        let scalar = ValueInfoProto::tensor("scalar", data_type::FLOAT, []);
        let graph = GraphProto { output: vec![logits, scalar], ..GraphProto::default() };
        let model = ModelProto { ir_version: 8, graph: Some(graph), ..ModelProto::default() };
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), model.encode_to_vec()).expect("the file is ours");
        let expected = DimensionNames::from([
            ("logits".to_owned(), vec![Some("classes".to_owned()), None]),
            ("scalar".to_owned(), vec![]),
        ]);
        assert_eq!(read(file.path()).expect("it is a model"), expected);
    }
}
