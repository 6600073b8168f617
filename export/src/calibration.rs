//! The range of what linear layers multiply, measured on images.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use ocelli_error::{Error, Result};

/// The largest magnitude of every linear layer's input, over images that the model was run on: the scale of its 8-bit
/// numbers in [`Precision::Fp8`](crate::contract::Precision::Fp8) and
/// [`Precision::Int8Static`](crate::contract::Precision::Int8Static).
///
/// [`ExportOptions::for_calibration`](crate::ExportOptions::for_calibration) writes graphs with an output for each range.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The number of images.
    pub images: usize,
    /// By the layer's name in the checkpoint; of several layers with the same input, the first.
    pub ranges: BTreeMap<String, f32>,
}

// No range is NaN: `observe` refuses them.
impl Eq for Calibration {}

/// The start of the names of outputs that hold a range.
const OUTPUT: &str = "range/";

impl Calibration {
    /// The output that holds a layer's range in a graph for calibration: f32 `[1]`.
    pub fn output_of(layer: &str) -> String {
        format!("{OUTPUT}{layer}")
    }

    /// The layer whose range an output holds; `None` for other outputs.
    pub fn layer_of(output: &str) -> Option<&str> {
        output.strip_prefix(OUTPUT)
    }

    /// Widens a layer's range to `largest`, a magnitude.
    ///
    /// # Errors
    /// [`ErrorKind::Execution`](ocelli_error::ErrorKind::Execution) if it is not finite.
    pub fn observe(&mut self, layer: &str, largest: f32) -> Result<()> {
        if !largest.is_finite() {
            let message =
                format!("cannot calibrate {layer}: the largest input is {largest}, expected a number");
            return Err(Error::execution(message));
        }
        let range = self.ranges.entry(layer.to_owned()).or_insert(0.0);
        *range = range.max(largest.abs());
        Ok(())
    }

    /// A short text that differs if a range does.
    pub(crate) fn fingerprint(&self) -> String {
        self.ranges.iter().map(|(layer, range)| format!("{layer}={:08x},", range.to_bits())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_the_largest_magnitude() {
        let mut calibration = Calibration::default();
        for largest in [1.5, -4.0, 2.0] {
            assert!(calibration.observe("a", largest).is_ok());
        }
        assert_eq!(calibration.ranges.get("a"), Some(&4.0));
        for largest in [f32::NAN, f32::INFINITY] {
            let error = calibration.observe("a", largest).expect_err("not a number");
            assert!(error.to_string().starts_with("cannot calibrate a:"), "{error}");
        }
    }

    #[test]
    fn outputs_name_their_layer() {
        assert_eq!(Calibration::layer_of(&Calibration::output_of("vit.fc1")), Some("vit.fc1"));
        assert_eq!(Calibration::layer_of("fpn_2"), None);
    }
}
