//! A number format with what stays in 32 bits, as text.

use std::fmt;
use std::str::FromStr;

use ocelli::export::contract::Precision;
use ocelli::export::{Error as ExportError, MixedPrecision};

/// A number format, and what stays in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// The format.
    pub precision: Precision,
    /// What stays in 32 bits.
    pub islands: MixedPrecision,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.precision.is_half() {
            true => write!(f, "{}:{}", self.precision, self.islands),
            false => write!(f, "{}", self.precision),
        }
    }
}

impl FromStr for Strategy {
    type Err = ExportError;

    fn from_str(text: &str) -> Result<Self, ExportError> {
        let (precision, islands) = text.split_once(':').map_or((text, None), |(p, i)| (p, Some(i)));
        let precision: Precision = precision.parse()?;
        let islands = match islands {
            Some(islands) => islands.parse()?,
            // The two have no other products that could be summed in half precision than those of attention.
            None if precision.is_calibrated() => MixedPrecision::Accumulate,
            None => MixedPrecision::None,
        };
        Ok(Self { precision, islands })
    }
}

impl Strategy {
    /// All formats.
    pub fn every() -> Vec<Self> {
        let plain = |precision| Self { precision, islands: MixedPrecision::None };
        let fp16 = MixedPrecision::ALL.map(|islands| Self { precision: Precision::Fp16, islands });
        let mut all = vec![plain(Precision::Fp32)];
        all.extend(fp16);
        all.extend([plain(Precision::Bf16), plain(Precision::Int8)]);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_parse_and_print() {
        for strategy in Strategy::every() {
            assert_eq!(strategy.to_string().parse::<Strategy>().ok(), Some(strategy));
        }
        for text in ["fp4", "fp16:some", "", ":all"] {
            assert!(text.parse::<Strategy>().is_err(), "{text}");
        }
        let fp8 = Strategy { precision: Precision::Fp8, islands: MixedPrecision::Accumulate };
        assert_eq!("fp8".parse::<Strategy>().ok(), Some(fp8));
        let short = "fp16".parse::<Strategy>().ok();
        assert_eq!(short, Some(Strategy { precision: Precision::Fp16, islands: MixedPrecision::None }));
    }
}
