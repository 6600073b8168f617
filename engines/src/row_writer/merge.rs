//! Rows of one tensor put between those of another by a graph: WebGPU copies whole buffers alone.

use crate::engine::Engine;
use crate::onnxruntime::{OnnxRuntimeEngine, WebGpuDevice};
use crate::tensor::{ElementType, Tensor};
use ocelli_error::{Result, refuse};
use ocelli_onnx::Message;
use ocelli_onnx::schema::{
    DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
    data_type,
};
use std::sync::Arc;

/// `merged[row] = is_new[row] ? source[from[row]] : target[row]`, of f32 `[rows, ·, ·]`; what is new may be rounded to bfloat16.
pub(super) struct RowMerge {
    engine: OnnxRuntimeEngine,
    from: Tensor,
    is_new: Tensor,
    /// The buffer that is written next.
    spare: Tensor,
}

impl RowMerge {
    pub(super) fn new(device: &Arc<WebGpuDevice>, rounds: bool) -> Result<Self> {
        let builder = OnnxRuntimeEngine::builder(&device.runtime).with_provider(device.provider.clone());
        let engine =
            builder.with_device(Arc::clone(device)).with_threads(1).build_from_memory(&graph(rounds))?;
        let spare = Tensor::on(Arc::clone(device));
        Ok(Self { engine, from: Tensor::empty(), is_new: Tensor::empty(), spare })
    }

    pub(super) fn write(
        &mut self,
        target: &mut Tensor,
        source: &Tensor,
        rows: &[(usize, usize)],
    ) -> Result<()> {
        let fits = |tensor: &Tensor| tensor.shape().len() == 3 && tensor.element_type() == ElementType::F32;
        let count = |tensor: &Tensor| tensor.shape().first().copied().unwrap_or(0);
        let (targets, sources) = (count(target), count(source));
        if !fits(target)
            || !fits(source)
            || target.shape()[1..] != source.shape()[1..]
            || rows.iter().any(|&(to, from)| to >= targets || from >= sources)
        {
            refuse!("cannot write the rows {rows:?} (to, from) of {source:?} to {target:?}");
        }
        let from = self.from.reset::<i64>(&[targets]);
        from.fill(0);
        rows.iter().for_each(|&(to, row)| from[to] = row as i64);
        let is_new = self.is_new.reset::<bool>(&[targets, 1, 1]);
        is_new.fill(false);
        rows.iter().for_each(|&(to, _)| is_new[to] = true);
        self.engine.run(
            &[("target", &*target), ("source", source), ("from", &self.from), ("is_new", &self.is_new)],
            &mut [("merged", &mut self.spare)],
        )?;
        std::mem::swap(target, &mut self.spare);
        Ok(())
    }
}

impl Drop for RowMerge {
    /// Waits for what was written last: a driver that computes on the CPU crashes if the process ends before.
    fn drop(&mut self) {
        let mut first = Tensor::zeros::<f32>(&[1]);
        if let Err(error) = first.copy_elements(0, &self.spare, 0, self.spare.len().min(1)) {
            tracing::debug!("cannot wait for the last rows: {error}");
        }
    }
}

fn graph(rounds: bool) -> Vec<u8> {
    let node = |op_type: &str, input: [&str; 2], more: &[&str], output: &str| NodeProto {
        input: input.iter().chain(more).map(ToString::to_string).collect(),
        output: vec![output.to_owned()],
        op_type: op_type.to_owned(),
        ..NodeProto::default()
    };
    let value = |name: &str, element: i32, dims: &[&str]| {
        let dims = dims.iter().map(|dim| match dim.parse() {
            Ok(size) => DimensionValue::DimValue(size),
            Err(_) => DimensionValue::DimParam((*dim).to_owned()),
        });
        ValueInfoProto::tensor(name, element, dims)
    };
    // `Gather` is along axis 0 by default.
    let mut nodes = vec![node("Gather", ["source", "from"], &[], "new")];
    if rounds {
        // WebGPU has no bfloat16. Dekker's splitting keeps 24 − 16 bits: c = (2^16 + 1)·x, c − (c − x).
        nodes.push(node("Mul", ["new", "split"], &[], "large"));
        nodes.push(node("Sub", ["large", "new"], &[], "rest"));
        nodes.push(node("Sub", ["large", "rest"], &[], "rounded"));
    }
    let new = if rounds { "rounded" } else { "new" };
    nodes.push(node("Where", ["is_new", new], &["target"], "merged"));
    let split = TensorProto {
        data_type: data_type::FLOAT,
        name: "split".to_owned(),
        raw_data: Some(65_537.0_f32.to_le_bytes().to_vec()),
        ..TensorProto::default()
    };
    let graph = GraphProto {
        node: nodes,
        name: "rows".to_owned(),
        initializer: if rounds { vec![split] } else { Vec::new() },
        input: vec![
            value("target", data_type::FLOAT, &["rows", "a", "b"]),
            value("source", data_type::FLOAT, &["sources", "a", "b"]),
            value("from", data_type::INT64, &["rows"]),
            value("is_new", data_type::BOOL, &["rows", "1", "1"]),
        ],
        output: vec![value("merged", data_type::FLOAT, &["rows", "a", "b"])],
    };
    let opset_import = vec![OperatorSetIdProto { version: 17, ..OperatorSetIdProto::default() }];
    ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..ModelProto::default() }.encode_to_vec()
}
