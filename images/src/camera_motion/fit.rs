//! The similarity that most pairs of points agree on.

/// A pair of points, where it was and where it is.
pub(super) type Pair = ([f64; 2], [f64; 2]);

/// Pixels by which a point that agrees may be off.
const TOLERANCE: f64 = 0.75;
/// Pairs of pairs that are tried.
const TRIALS: u64 = 200;

/// A turn and a scale, then a shift: (x, y) → (cos·x − sin·y + shift, sin·x + cos·y + shift), with the scale in `cos` and `sin`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Similarity {
    pub cos: f64,
    pub sin: f64,
    pub shift: [f64; 2],
}

impl Similarity {
    pub(super) fn point(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        [self.cos * x - self.sin * y + self.shift[0], self.sin * x + self.cos * y + self.shift[1]]
    }

    fn agrees(&self, (from, to): &Pair) -> bool {
        let [x, y] = self.point(*from);
        (x - to[0]).hypot(y - to[1]) < TOLERANCE
    }

    /// The similarity that most pairs agree on, fitted to them, and their number; `None` of fewer than two pairs.
    ///
    /// The pairs that are tried are the same for the same number of pairs: equal frames give equal motion.
    pub(super) fn of_most(pairs: &[Pair]) -> Option<(Self, usize)> {
        let count = pairs.len() as u64;
        if count < 2 {
            return None;
        }
        let agreeing = |candidate: &Self| pairs.iter().filter(|pair| candidate.agrees(pair)).count();
        let mut best = None;
        for trial in 0..TRIALS {
            let first = scramble(2 * trial) % count;
            let second = (first + 1 + scramble(2 * trial + 1) % (count - 1)) % count;
            let Some(candidate) = Self::fitted([pairs[first as usize], pairs[second as usize]].into_iter())
            else {
                continue;
            };
            let agreeing = agreeing(&candidate);
            if best.is_none_or(|(_, most)| agreeing > most) {
                best = Some((candidate, agreeing));
            }
        }
        let (mut motion, _) = best?;
        for _ in 0..3 {
            motion = Self::fitted(pairs.iter().copied().filter(|pair| motion.agrees(pair))).unwrap_or(motion);
        }
        Some((motion, agreeing(&motion)))
    }

    /// The least-squares fit; `None` if the points coincide, or the scale is not that of a camera.
    fn fitted(pairs: impl Iterator<Item = Pair> + Clone) -> Option<Self> {
        let count = pairs.clone().count() as f64;
        let mean = |of: fn(&Pair) -> [f64; 2]| {
            let sum = pairs.clone().fold([0.0; 2], |[x, y], pair| [x + of(&pair)[0], y + of(&pair)[1]]);
            sum.map(|sum| sum / count)
        };
        let (from_mean, to_mean) = (mean(|pair| pair.0), mean(|pair| pair.1));
        let (mut dot, mut cross, mut square) = (0.0, 0.0, 0.0);
        for (from, to) in pairs {
            let (a, b) =
                ([from[0] - from_mean[0], from[1] - from_mean[1]], [to[0] - to_mean[0], to[1] - to_mean[1]]);
            dot += a[0] * b[0] + a[1] * b[1];
            cross += a[0] * b[1] - a[1] * b[0];
            square += a[0] * a[0] + a[1] * a[1];
        }
        let (cos, sin) = (dot / square, cross / square);
        let scale = cos.hypot(sin);
        let fitted = Self { cos, sin, shift: [0.0; 2] };
        let [x, y] = fitted.point(from_mean);
        (0.7..1.4).contains(&scale).then_some(Self { shift: [to_mean[0] - x, to_mean[1] - y], ..fitted })
    }
}

/// Numbers without a pattern (SplitMix64).
fn scramble(number: u64) -> u64 {
    let mut value = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
