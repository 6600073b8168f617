//! Linear layers in 8-bit integers.

use super::layers::{LinearLayer, transpose};
use crate::calibration::Calibration;
use crate::checkpoint::Weights;
use crate::graph::{Element, Graph, LinearForm, Role, Value};
use crate::quantize::{EightBits, QuantizedMatrix};
use ocelli_error::{ErrorKind, Result};

impl<'w> Graph<'w> {
    /// x · Wᵀ + b with the rows of W and x as 8-bit codes and sums in 32-bit integers.
    pub(super) fn quantized_linear(&self, x: &Value, layer: &LinearLayer) -> Value {
        let (codes, scales) = self.codes(layer, None);
        let columns = self.weight_dims(&format!("{}.weight", layer.name))[1];
        let product = self.integer_matmul(&self.quantize_rows(x, layer.floor), &codes, &scales);

        let bias = match layer.floor {
            Some(floor) if floor < 0.0 => self.lowered_bias(layer, columns, floor),
            _ => self.linear_bias(layer),
        };
        self.add(&product, &bias)
    }

    /// x · Wᵀ + b with the rows of W as 8-bit codes, in standard operators.
    pub(super) fn linear_of_codes(&self, x: &Value, layer: &LinearLayer) -> Value {
        let (codes, scales) = self.codes(layer, None);
        let product = self.matmul(x, &self.dequantize(&codes, &scales));
        self.add(&product, &self.linear_bias(layer))
    }

    /// The transposed weight as codes `[K, N]`, and the scale of each output, `[N]`: those of a format with scales of its own,
    /// or integers.
    fn codes(&self, layer: &LinearLayer, format: Option<EightBits>) -> (Value, Value) {
        let weight = format!("{}.weight", layer.name);
        let dims = self.weight_dims(&weight);
        let (rows, columns) = (dims[0], dims[1..].iter().product());
        let element = format.map_or(Element::I8, Element::of_codes);
        let name = format!("{weight}.{}{}", element.suffix(), layer.suffix());
        let matrix = reader(layer, columns, format);
        let codes = self.derived_codes(&format!("{name}.T"), element, &[columns, rows], move |weights| {
            Ok(transpose(&matrix(weights)?.codes, rows, columns))
        });
        let matrix = reader(layer, columns, format);
        let scales =
            self.derived(&format!("{name}.scale"), &[rows], move |weights| Ok(matrix(weights)?.scales));
        (codes, scales)
    }

    /// The bias plus the layer's result for inputs of `floor`, which the codes do not include.
    fn lowered_bias(&self, layer: &LinearLayer, columns: usize, floor: f32) -> Value {
        let name = format!("{}.bias", layer.name);
        let dims = self.weight_dims(&name);
        let (read, layer_of_bias) = (reader(layer, columns, None), layer.clone());
        self.derived(&format!("{name}.lowered{}", layer.suffix()), &dims, move |weights| {
            let bias = layer_of_bias.prepared(weights.read(&format!("{}.bias", layer_of_bias.name))?, 1);
            let sums = read(weights)?.row_sums();
            Ok(bias.iter().zip(sums).map(|(bias, sum)| bias + floor * sum).collect())
        })
    }

    /// x · Wᵀ + b with W and x in 8 bits by given scales: one for x, and one for each row of W.
    pub(super) fn static_linear(&self, x: &Value, layer: &LinearLayer, format: EightBits) -> Value {
        let (codes, scales) = self.codes(layer, Some(format));
        let bias = self.linear_bias(layer);
        let Some(range) = self.range_of(&layer.name) else { return x.clone() };
        let product = self.as_role(Role::Quantized, |g| {
            let x = g.round_to_codes(x, format.scale_of(range), format);
            g.matmul(&x, &g.dequantize(&codes, &scales))
        });
        self.as_role(Role::Product, |g| g.add(&product, &bias))
    }

    /// A layer's range; if it is missing, the graph fails.
    fn range_of(&self, layer: &str) -> Option<f32> {
        let range = self.calibration.as_ref().and_then(|calibration| calibration.ranges.get(layer)).copied();
        if range.is_none() {
            self.fail_as(
                ErrorKind::InvalidArgument,
                format!("the calibration has no range for {layer}; calibrate this checkpoint with the same options"),
            );
        }
        range
    }

    /// In a graph for calibration, adds an output with the largest magnitude of x.
    pub(super) fn observe_input(&self, x: &Value, layer: &LinearLayer) {
        if self.linear_form() == LinearForm::Observed && !layer.exact {
            self.largest_output(&Calibration::output_of(&layer.name), x);
        }
    }
}

/// Reads and quantises a layer's weight.
fn reader(
    layer: &LinearLayer,
    columns: usize,
    format: Option<EightBits>,
) -> impl Fn(&Weights) -> Result<QuantizedMatrix> + use<> {
    let layer = layer.clone();
    move |weights| {
        let data = layer.prepared(weights.read(&format!("{}.weight", layer.name))?, columns);
        Ok(match format {
            Some(format) => QuantizedMatrix::with_half_scales(&data, columns, format),
            None => QuantizedMatrix::new(&data, columns),
        })
    }
}
