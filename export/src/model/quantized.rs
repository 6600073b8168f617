//! Linear layers in 8-bit integers.

use super::layers::{LinearLayer, transpose};
use crate::checkpoint::Weights;
use crate::graph::{Graph, Value};
use crate::quantize::QuantizedMatrix;
use ocelli_error::Result;

impl<'w> Graph<'w> {
    /// x · Wᵀ + b with the rows of W and x as 8-bit codes and sums in 32-bit integers.
    pub(super) fn quantized_linear(&mut self, x: &Value, layer: &LinearLayer) -> Value {
        let (codes, scales) = self.codes(layer);
        let columns = self.weight_dims(&format!("{}.weight", layer.name))[1];
        let quantized = self.quantize_rows(x, layer.floor);
        let product = self.integer_matmul(&quantized, &codes, &scales);

        let bias = match layer.floor {
            Some(floor) if floor < 0.0 => self.lowered_bias(layer, columns, floor),
            _ => self.linear_bias(layer),
        };
        self.add(&product, &bias)
    }

    /// x · Wᵀ + b with the rows of W as 8-bit codes, in standard operators.
    pub(super) fn linear_of_codes(&mut self, x: &Value, layer: &LinearLayer) -> Value {
        let (codes, scales) = self.codes(layer);
        let weight = self.dequantize(&codes, &scales);
        let product = self.matmul(x, &weight);
        let bias = self.linear_bias(layer);
        self.add(&product, &bias)
    }

    /// The transposed weight as codes `[K, N]`, and the scale of each output, `[N]`.
    fn codes(&mut self, layer: &LinearLayer) -> (Value, Value) {
        let weight = format!("{}.weight", layer.name);
        let dims = self.weight_dims(&weight);
        let (rows, columns) = (dims[0], dims[1]);
        let suffix = layer.suffix();
        let read = reader(layer, columns);
        let codes = self.derived_codes(&format!("{weight}.T.i8{suffix}"), &[columns, rows], move |weights| {
            Ok(transpose(&read(weights)?.codes, rows, columns))
        });
        let read = reader(layer, columns);
        let scales = self
            .derived(&format!("{weight}.scale{suffix}"), &[rows], move |weights| Ok(read(weights)?.scales));
        (codes, scales)
    }

    /// The bias plus the layer's result for inputs of `floor`, which the codes do not include.
    fn lowered_bias(&mut self, layer: &LinearLayer, columns: usize, floor: f32) -> Value {
        let name = format!("{}.bias", layer.name);
        let dims = self.weight_dims(&name);
        let (read, layer_of_bias) = (reader(layer, columns), layer.clone());
        self.derived(&format!("{name}.lowered{}", layer.suffix()), &dims, move |weights| {
            let bias = layer_of_bias.prepared(weights.read(&format!("{}.bias", layer_of_bias.name))?, 1);
            let sums = read(weights)?.row_sums();
            Ok(bias.iter().zip(sums).map(|(bias, sum)| bias + floor * sum).collect())
        })
    }
}

/// Reads and quantises a layer's weight.
fn reader(layer: &LinearLayer, columns: usize) -> impl Fn(&Weights) -> Result<QuantizedMatrix> + use<> {
    let layer = layer.clone();
    move |weights| {
        let data = weights.read(&format!("{}.weight", layer.name))?;
        Ok(QuantizedMatrix::new(&layer.prepared(data, columns), columns))
    }
}
