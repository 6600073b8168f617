//! Dimensions, fixed or named, and the rules by which operators combine them.

use std::fmt;

/// One dimension of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dim {
    /// Known when the graph is built.
    Fixed(usize),
    /// Free in the file, with this name.
    Named(&'static str),
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(n) => write!(f, "{n}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl From<usize> for Dim {
    fn from(n: usize) -> Self {
        Self::Fixed(n)
    }
}

pub(super) fn fixed(dims: &[usize]) -> Vec<Dim> {
    dims.iter().map(|&n| Dim::Fixed(n)).collect()
}

/// The shape of two operands by ONNX's (NumPy's) broadcasting, if they broadcast.
pub(super) fn broadcast(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[Dim], i: usize| (i + dims.len()).checked_sub(rank).map_or(Dim::Fixed(1), |j| dims[j]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Some(x),
            (Dim::Fixed(1), y) => Some(y),
            (x, Dim::Fixed(1)) => Some(x),
            _ => None,
        })
        .collect()
}

/// The target that ONNX's `Reshape` needs for a reshape from `from` to `to`: 0 copies a dimension, −1 (once) is inferred.
/// `None` if the two shapes have different numbers of elements, or if ONNX cannot express the reshape.
pub(super) fn reshape_target(from: &[Dim], to: &[Dim]) -> Option<Vec<i64>> {
    let fixed_product =
        |dims: &[Dim]| -> usize { dims.iter().map(|d| if let Dim::Fixed(n) = d { *n } else { 1 }).product() };
    let named = |dims: &[Dim]| {
        let mut names: Vec<_> =
            dims.iter().filter_map(|d| if let Dim::Named(name) = d { Some(*name) } else { None }).collect();
        names.sort_unstable();
        names
    };
    if fixed_product(from) != fixed_product(to) || named(from) != named(to) {
        return None;
    }
    let target: Vec<i64> = to
        .iter()
        .enumerate()
        .map(|(i, dim)| match dim {
            Dim::Fixed(n) => *n as i64,
            Dim::Named(_) if from.get(i) == Some(dim) => 0,
            Dim::Named(_) => -1,
        })
        .collect();
    (target.iter().filter(|&&n| n == -1).count() <= 1).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::Dim::{Fixed as F, Named as N};
    use super::*;

    type Case<T> = (&'static [Dim], &'static [Dim], Option<Vec<T>>);

    #[test]
    fn broadcasting() {
        let cases: [Case<Dim>; 6] = [
            (&[F(2), F(3)], &[F(3)], Some(vec![F(2), F(3)])),
            (&[N("c"), F(1)], &[F(1), F(4)], Some(vec![N("c"), F(4)])),
            (&[F(2)], &[F(3)], None),
            (&[N("a")], &[N("b")], None),
            (&[N("a")], &[F(2)], None),
            (&[], &[F(5)], Some(vec![F(5)])),
        ];
        for (a, b, expected) in cases {
            assert_eq!(broadcast(a, b), expected, "{a:?} with {b:?}");
        }
    }

    #[test]
    fn reshaping() {
        let cases: [Case<i64>; 6] = [
            (&[F(6)], &[F(2), F(3)], Some(vec![2, 3])),
            (&[N("c"), F(6)], &[N("c"), F(2), F(3)], Some(vec![0, 2, 3])),
            (&[F(2), N("c")], &[N("c"), F(2)], Some(vec![-1, 2])),
            (&[F(6)], &[F(5)], None),
            (&[N("c"), F(2)], &[F(2)], None),
            (&[F(1), N("a"), N("b")], &[N("a"), N("b"), F(1)], None),
        ];
        for (from, to, expected) in cases {
            assert_eq!(reshape_target(from, to), expected, "{from:?} to {to:?}");
        }
    }
}
