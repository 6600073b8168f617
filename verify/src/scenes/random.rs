//! Random numbers that are the same on every machine.

use std::ops::RangeInclusive;

/// SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", 2014).
///
/// Everything derived from it uses arithmetic that IEEE 754 defines exactly, or `libm`: sines of the system's library differ
/// between machines.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Starts stream `stream` of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(seed ^ 0x6F63_656C_6C69);
        let start = mixed.next();
        let mut random = Self(start ^ stream.wrapping_mul(0xD134_2543_DE82_EF95));
        Self(random.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A number between `low` and `high` whose logarithm is uniformly distributed.
    pub(crate) fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        libm::exp(self.uniform(libm::log(low), libm::log(high)))
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// An integer from 0 to below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// An integer from `low` to `high`, inclusive.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }

    pub(crate) fn integer(&mut self, range: RangeInclusive<u32>) -> u32 {
        self.between(i64::from(*range.start()), i64::from(*range.end())) as u32
    }

    /// `count` of `items` in random order, or all if there are fewer.
    pub(crate) fn sample(&mut self, items: &[usize], count: usize) -> Vec<usize> {
        let mut items = items.to_vec();
        let count = count.min(items.len());
        for index in 0..count {
            let other = index + self.below(items.len() - index);
            items.swap(index, other);
        }
        items.truncate(count);
        items
    }

    /// A colour with each channel between `low` and `high`.
    pub(crate) fn color(&mut self, low: u8, high: u8) -> [f64; 3] {
        [(); 3].map(|()| self.between(i64::from(low), i64::from(high)) as f64)
    }

    /// Approximately normal, with mean 0 and standard deviation 1: the sum of four uniform numbers.
    pub(crate) fn normal(&mut self) -> f64 {
        let bits = self.next();
        let sum: u64 = [0, 16, 32, 48].iter().map(|shift| (bits >> shift) & 0xFFFF).sum();
        // The sum of four uniform numbers has a mean of 2 and a variance of 4/12.
        (sum as f64 / 65535.0 - 2.0) * 1.732_050_807_568_877_2
    }
}
