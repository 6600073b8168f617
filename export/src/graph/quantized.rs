//! Weights of 8-bit integers, and products of such weights with ONNX Runtime's operator.

use super::{Element, Graph, Value, int};
use crate::quantize::EightBits;

/// The least magnitude of a row's peak, so that a row of zeros has a scale.
const LEAST_PEAK: f32 = 1e-12;

/// A value whose rows (last axis) are u8 codes: `peak / levels · (code − zero)`, plus `floor` if the rows have a lower
/// bound.
#[derive(Clone, Debug)]
pub(crate) struct QuantizedRows {
    /// u8 `[…, K]`.
    codes: Value,
    /// f32 `[…, 1]`: the value of a row's largest code.
    peak: Value,
    levels: f32,
    zero: u8,
}

impl Graph<'_> {
    /// Quantises every row of x by its own largest value when the model runs: the magnitudes of tokens differ by more
    /// than 8 bits can represent.
    ///
    /// Without a `floor` the codes are symmetric about zero. `floor` is a lower bound of x, at most 0: with it all 256
    /// codes are between `floor` and the row's largest value, and stand for the difference to `floor`. A value that is
    /// quantised twice is computed once.
    pub(crate) fn quantize_rows(&self, x: &Value, floor: Option<f32>) -> QuantizedRows {
        let key = (x.name.clone(), floor.map(f32::to_bits));
        if let Some(known) = self.parts.borrow().quantized.get(&key) {
            return known.clone();
        }
        let (levels, zero) = if floor.is_some() { (255.0, 0) } else { (127.0, 128) };
        let shifted = match floor {
            Some(floor) if floor < 0.0 => self.add(x, &self.scalar(-floor)),
            _ => x.clone(),
        };
        let mut bounds = vec![self.reduce_rows("ReduceMax", &shifted), self.scalar(LEAST_PEAK)];
        if floor.is_none() {
            bounds.push(self.unary("Neg", &self.reduce_rows("ReduceMin", &shifted)));
        }
        let dims = bounds[0].dims.clone();
        let bounds: Vec<&Value> = bounds.iter().collect();
        let peak = self.node("Max", &bounds, vec![], Element::F32, dims);
        let factor = self.div(&self.scalar(levels), &peak);
        let scaled = self.mul(&shifted, &factor);
        let (one, zero_point) = (self.scalar(1.0), self.scalar_u8(zero));
        let inputs = [&scaled, &one, &zero_point];
        let codes = self.node("QuantizeLinear", &inputs, vec![], Element::U8, x.dims.clone());
        let rows = QuantizedRows { codes, peak, levels, zero };
        self.parts.borrow_mut().quantized.insert(key, rows.clone());
        rows
    }

    /// The weight of the codes i8 `[K, N]` and the scales f32 `[N]`.
    pub(crate) fn dequantize(&self, codes: &Value, scales: &Value) -> Value {
        let dims = codes.dims.clone();
        self.node("DequantizeLinear", &[codes, scales], vec![int("axis", 1)], Element::F32, dims)
    }

    /// x rounded to the codes of a format times `scale`, and back: engines compute what follows in this format. A graph has one
    /// such format. A value that is rounded twice is computed once.
    pub(crate) fn round_to_codes(&self, x: &Value, scale: f32, format: EightBits) -> Value {
        let key = (x.name.clone(), scale.to_bits());
        if let Some(known) = self.parts.borrow().rounded.get(&key) {
            return known.clone();
        }
        let scale = self.scalar(scale);
        let element = Element::of_codes(format);
        let zero = self.bytes("scalar", element, &[], vec![0]);
        let codes = self.node("QuantizeLinear", &[x, &scale, &zero], vec![], element, x.dims.clone());
        let rounded =
            self.node("DequantizeLinear", &[&codes, &scale, &zero], vec![], Element::F32, x.dims.clone());
        self.parts.borrow_mut().rounded.insert(key, rounded.clone());
        rounded
    }

    /// Adds the output `name`, f32 `[1]`: the largest magnitude of x.
    pub(crate) fn largest_output(&self, name: &str, x: &Value) {
        let magnitudes = self.unary("Abs", x);
        let largest = self.node("ReduceMax", &[&magnitudes], vec![int("keepdims", 0)], Element::F32, vec![]);
        self.output(name, &self.reshape(&largest, &[1.into()]), &[1.into()]);
    }

    /// rows · weight; `codes` i8 `[K, N]` and `scales` f32 `[N]` are the weight's.
    pub(crate) fn integer_matmul(&self, rows: &QuantizedRows, codes: &Value, scales: &Value) -> Value {
        let last = rows.codes.dims.len() - 1;
        if codes.dims.len() != 2 || codes.dims[0] != rows.codes.dims[last] || scales.dims != codes.dims[1..] {
            let shapes = [&rows.codes, codes, scales].map(|value| &value.dims);
            return self.refuse(&rows.codes, format!("MatMulIntegerToFloat: shapes {shapes:?}"));
        }
        let mut dims = rows.codes.dims.clone();
        dims[last] = codes.dims[1];
        let (step, zero) = (self.scalar(1.0 / rows.levels), self.scalar_u8(rows.zero));
        let inputs = [&rows.codes, codes, &step, scales, &zero];
        let product = self.node("MatMulIntegerToFloat", &inputs, vec![], Element::F32, dims);
        self.mul(&product, &rows.peak)
    }
}
