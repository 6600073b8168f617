//! Writes a graph as an ONNX file, with large weights in a file beside it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use half::{bf16, f16};
use ocelli_onnx::Message;
use ocelli_onnx::schema::{
    DimensionValue, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    ValueInfoProto, data_location,
};
use sha2::{Digest, Sha256};

use super::{Dim, Element, Graph, Initializer, OPSET, Source, Value};
use crate::checkpoint::hex;
use crate::contract::FileEntry;
use crate::errors::refused;
use ocelli_error::{Error, Result};

/// The IR version that came with opset 20; older runtimes read it as well.
const IR_VERSION: i64 = 9;
/// Above this size the weights are in a file beside the graph: a protobuf message is at most 2 GB, and a runtime maps
/// such a file instead of copying it.
const MAX_INLINE_BYTES: usize = 256 << 20;
/// Smaller tensors stay in the graph, where shape inference reads them.
const MIN_EXTERNAL_BYTES: usize = 1 << 10;
/// The alignment of tensors in the file, so that they can be mapped.
const ALIGNMENT: u64 = 4096;

/// A file that was written.
pub(crate) struct WrittenFile {
    pub(crate) name: String,
    pub(crate) entry: FileEntry,
}

impl Graph<'_> {
    /// The size of its weights in a file.
    pub(crate) fn weight_bytes(&self) -> usize {
        let bytes = |v: &Value| v.element.bytes() * v.dims.iter().map(known).product::<usize>();
        self.initializers.iter().map(|one| bytes(&one.value)).sum()
    }

    /// Writes the graph to `folder/name`, and its weights to `folder/name.data` if they are large.
    ///
    /// # Errors
    /// The first fault of the builder, a weight that cannot be written, or an error of the file system.
    pub(crate) fn finish(self, folder: &Path, name: &str) -> Result<Vec<WrittenFile>> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let total = self.weight_bytes();
        let external_name = format!("{name}.data");
        let mut external = if total > MAX_INLINE_BYTES {
            Some(HashedFile::create(&folder.join(&external_name))?)
        } else {
            None
        };
        let mut initializer = Vec::with_capacity(self.initializers.len());
        for source in &self.initializers {
            let data = match &source.source {
                Source::Bytes(bytes) if source.value.element.is_half() => {
                    let values = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
                    floats(source, &values.collect::<Vec<_>>())?
                }
                Source::Bytes(bytes) => bytes.clone(),
                Source::Weights(read) => floats(source, &read(self.weights)?)?,
                Source::Codes(read) => read(self.weights)?.iter().map(|v| v.cast_unsigned()).collect(),
            };
            let mut tensor = TensorProto {
                dims: source.value.dims.iter().map(|d| known(d) as i64).collect(),
                data_type: source.value.element.data_type(),
                name: source.value.name.clone(),
                ..TensorProto::default()
            };
            match &mut external {
                Some(file) if data.len() >= MIN_EXTERNAL_BYTES => {
                    let offset = file.append_aligned(&data)?;
                    let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
                    tensor.data_location = data_location::EXTERNAL;
                    tensor.external_data = vec![
                        entry("location", external_name.clone()),
                        entry("offset", offset.to_string()),
                        entry("length", data.len().to_string()),
                    ];
                }
                _ => tensor.raw_data = Some(data),
            }
            initializer.push(tensor);
        }
        let uses_contrib = self.nodes.iter().any(|node| !node.proto.domain.is_empty());
        let mut opset_import = vec![OperatorSetIdProto { domain: String::new(), version: OPSET }];
        if uses_contrib {
            opset_import.push(OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 });
        }
        let model = ModelProto {
            ir_version: IR_VERSION,
            producer_name: "ocelli".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            graph: Some(GraphProto {
                node: self.nodes.into_iter().map(|node| node.proto).collect(),
                name: self.name,
                initializer,
                input: self.inputs.iter().map(value_info).collect(),
                output: self.outputs.iter().map(value_info).collect(),
            }),
            opset_import,
        };
        let mut file = HashedFile::create(&folder.join(name))?;
        file.append(&model.encode_to_vec())?;
        let mut written = vec![WrittenFile { name: name.to_owned(), entry: file.close()? }];
        if let Some(file) = external {
            written.push(WrittenFile { name: external_name, entry: file.close()? });
        }
        Ok(written)
    }
}

/// The bytes of an initializer, in its format.
fn floats(initializer: &Initializer<'_>, values: &[f32]) -> Result<Vec<u8>> {
    let value = &initializer.value;
    let outside = |v: &f32| value.element == Element::F16 && !f16::from_f32(*v).is_finite();
    if let Some(at) = values.iter().position(outside) {
        return Err(refused(format!(
            "tensor {} does not fit 16-bit floating point, value {at} is {}: export with precision bf16, or list its \
             block in keep_fp32",
            value.name, values[at]
        )));
    }
    Ok(match value.element {
        Element::F16 => values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
        Element::Bf16 => values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    })
}

fn known(dim: &Dim) -> usize {
    match dim {
        Dim::Fixed(n) => *n,
        Dim::Named(_) => 0,
    }
}

fn value_info(value: &Value) -> ValueInfoProto {
    let dims = value.dims.iter().map(|dim| match dim {
        Dim::Fixed(n) => DimensionValue::DimValue(*n as i64),
        Dim::Named(name) => DimensionValue::DimParam((*name).to_owned()),
    });
    ValueInfoProto::tensor(&value.name, value.element.data_type(), dims)
}

/// A file that is being written, and the hash of its bytes.
pub(crate) struct HashedFile {
    path: std::path::PathBuf,
    writer: BufWriter<File>,
    hash: Sha256,
    bytes: u64,
}

impl HashedFile {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|e| Error::io("cannot write", path, e))?;
        let writer = BufWriter::with_capacity(1 << 20, file);
        Ok(Self { path: path.to_owned(), writer, hash: Sha256::new(), bytes: 0 })
    }

    pub(crate) fn append(&mut self, data: &[u8]) -> Result<()> {
        self.writer.write_all(data).map_err(|e| Error::io("cannot write", &self.path, e))?;
        self.hash.update(data);
        self.bytes += data.len() as u64;
        Ok(())
    }

    /// Appends at the next aligned offset, and returns it.
    fn append_aligned(&mut self, data: &[u8]) -> Result<u64> {
        let gap = self.bytes.next_multiple_of(ALIGNMENT) - self.bytes;
        self.append(&vec![0; gap as usize])?;
        let offset = self.bytes;
        self.append(data)?;
        Ok(offset)
    }

    pub(crate) fn close(mut self) -> Result<FileEntry> {
        self.writer.flush().map_err(|e| Error::io("cannot write", &self.path, e))?;
        Ok(FileEntry { sha256: hex(&self.hash.finalize()), bytes: self.bytes })
    }
}
