//! Writes a graph as an ONNX file, with large weights in a file beside it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use half::vec::HalfFloatVecExt;
use half::{bf16, f16};
use ocelli_onnx::Message;
use ocelli_onnx::schema::{
    DimensionValue, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    ValueInfoProto, data_location,
};
use sha2::{Digest, Sha256};

use super::{Dim, Element, FUSED_DOMAIN, Graph, Initializer, OPSET, Parts, Source, Value};
use crate::contract::{FileEntry, hex};
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

/// The least number that is rounded to infinity in 16-bit floating point.
const INFINITE_IN_F16: f32 = 65_520.0;

/// A file that was written.
pub(crate) struct WrittenFile {
    pub(crate) name: String,
    pub(crate) entry: FileEntry,
}

impl WrittenFile {
    pub(crate) fn write(folder: &Path, name: &str, data: &[u8]) -> Result<Self> {
        let mut file = HashedFile::create(&folder.join(name))?;
        file.append(data)?;
        Ok(Self { name: name.to_owned(), entry: file.close()? })
    }
}

impl Graph<'_> {
    /// Writes the graph to `folder/name`, and its weights to `folder/name.data` if they are large.
    ///
    /// # Errors
    /// The first fault of the builder, a weight that cannot be written, or an error of the file system.
    pub(crate) fn finish(self, folder: &Path, name: &str) -> Result<Vec<WrittenFile>> {
        let Parts { nodes, initializers, inputs, outputs, fault, .. } = self.parts.into_inner();
        if let Some(fault) = fault {
            return Err(fault);
        }
        let bytes = |v: &Value| v.element.bytes() * v.dims.iter().map(known).product::<usize>();
        let total: usize = initializers.iter().map(|one| bytes(&one.value)).sum();
        let external_name = format!("{name}.data");
        let mut external = if total > MAX_INLINE_BYTES {
            Some(HashedFile::create(&folder.join(&external_name))?)
        } else {
            None
        };
        let mut initializer = Vec::with_capacity(initializers.len());
        for source in &initializers {
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
        let uses_contrib = nodes.iter().any(|node| !node.proto.domain.is_empty());
        let mut opset_import = vec![OperatorSetIdProto { domain: String::new(), version: OPSET }];
        if uses_contrib {
            opset_import.push(OperatorSetIdProto { domain: FUSED_DOMAIN.into(), version: 1 });
        }
        let model = ModelProto {
            ir_version: IR_VERSION,
            producer_name: "ocelli".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            graph: Some(GraphProto {
                node: nodes.into_iter().map(|node| node.proto).collect(),
                name: self.name,
                initializer,
                input: inputs.iter().map(value_info).collect(),
                output: outputs.iter().map(value_info).collect(),
            }),
            opset_import,
        };
        let mut written = vec![WrittenFile::write(folder, name, &model.encode_to_vec())?];
        if let Some(file) = external {
            written.push(WrittenFile { name: external_name, entry: file.close()? });
        }
        Ok(written)
    }
}

/// The bytes of an initializer, in its format.
fn floats(initializer: &Initializer<'_>, values: &[f32]) -> Result<Vec<u8>> {
    let value = &initializer.value;
    let outside = |v: &f32| value.element == Element::F16 && (v.is_nan() || v.abs() >= INFINITE_IN_F16);
    if let Some(at) = values.iter().position(outside) {
        return Err(refused(format!(
            "tensor {} does not fit 16-bit floating point, value {at} is {}: export with precision bf16, or list its \
             block in keep_fp32",
            value.name, values[at]
        )));
    }
    Ok(match value.element {
        Element::F16 => bytes_of(&Vec::<f16>::from_f32_slice(values), f16::to_le_bytes),
        Element::Bf16 => bytes_of(&Vec::<bf16>::from_f32_slice(values), bf16::to_le_bytes),
        _ => bytes_of(values, f32::to_le_bytes),
    })
}

fn bytes_of<T: Copy, const N: usize>(values: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    let mut bytes = vec![0; N * values.len()];
    for (to, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *to = to_bytes(*value);
    }
    bytes
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
struct HashedFile {
    path: std::path::PathBuf,
    writer: BufWriter<File>,
    hash: Sha256,
    bytes: u64,
}

impl HashedFile {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|e| Error::io("cannot write", path, e))?;
        let writer = BufWriter::with_capacity(1 << 20, file);
        Ok(Self { path: path.to_owned(), writer, hash: Sha256::new(), bytes: 0 })
    }

    fn append(&mut self, data: &[u8]) -> Result<()> {
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

    fn close(mut self) -> Result<FileEntry> {
        self.writer.flush().map_err(|e| Error::io("cannot write", &self.path, e))?;
        Ok(FileEntry { sha256: hex(&self.hash.finalize()), bytes: self.bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_half_precision_is_where_rounding_gives_infinity() {
        for value in [0.0, 65_504.0, INFINITE_IN_F16.next_down(), INFINITE_IN_F16, 1e9, f32::INFINITY] {
            for value in [value, -value] {
                assert_eq!(f16::from_f32(value).is_finite(), value.abs() < INFINITE_IN_F16, "{value}");
            }
        }
    }
}
