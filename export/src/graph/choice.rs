//! Comparisons and choices between values, and maps of several objects.

use super::ops::{self, map_of};
use super::{Dim, Element, Graph, Role, Value, int, shape};

impl Graph<'_> {
    /// `Greater`, `Less`, `LessOrEqual` or `Equal`, element by element.
    pub(crate) fn compare(&self, op: &str, a: &Value, b: &Value) -> Value {
        self.operator_of_two(op, a, b, Element::Bool)
    }

    /// `true` for each number above `limit`.
    pub(crate) fn is_above(&self, x: &Value, limit: f32) -> Value {
        self.compare("Greater", x, &self.scalar(limit))
    }

    /// `And` or `Or`.
    pub(crate) fn both(&self, op: &str, a: &Value, b: &Value) -> Value {
        if a.element != Element::Bool || b.element != Element::Bool {
            self.fail(format!("{op}: expected two conditions"));
        }
        self.operator_of_two(op, a, b, Element::Bool)
    }

    /// `a` where the condition holds, else `b`.
    pub(crate) fn choose(&self, condition: &Value, a: &Value, b: &Value) -> Value {
        let dims = shape::broadcast(&a.dims, &b.dims).and_then(|d| shape::broadcast(&condition.dims, &d));
        let dims = dims.unwrap_or_else(|| {
            let shapes = [condition, a, b].map(|value| value.dims.clone());
            self.fail(format!("Where: shapes {shapes:?} do not broadcast"));
            a.dims.clone()
        });
        if condition.element != Element::Bool || a.element != b.element {
            let types = [condition, a, b].map(|value| value.element);
            self.fail(format!("Where: element types {types:?}"));
        }
        self.node("Where", &[condition, a, b], vec![], a.element, dims)
    }

    /// `true` for each number that is the largest along an axis, the first of equals; `index` counts that axis from 0 in f32.
    ///
    /// Not `ArgMax`: runtimes disagree about equal numbers (rten 0.27 takes the last).
    pub(crate) fn is_first_largest(&self, x: &Value, axis: usize, index: &Value) -> Value {
        const AFTER_ALL: f32 = 1e9;
        let equals = self.compare("Equal", x, &self.reduce("ReduceMax", x, axis));
        let place = self.choose(&equals, index, &self.scalar(AFTER_ALL));
        let is_first = self.compare("Equal", &place, &self.reduce("ReduceMin", &place, axis));
        self.both("And", &equals, &is_first)
    }

    /// 1 for the largest of each row `[batch, n]`, the first of equals, and 0 for the others: `[batch, 1, n]`.
    pub(crate) fn one_hot_of_largest(&self, rows: &Value) -> Value {
        let &[batch, Dim::Fixed(n)] = rows.dims.as_slice() else {
            return self.refuse(rows, format!("one hot: {:?}", rows.dims));
        };
        let index: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let found = self.is_first_largest(rows, 1, &self.constant("indices", &[1, n], &index));
        self.reshape(&self.cast(&found, Element::F32), &[batch, 1.into(), n.into()])
    }

    /// The size of an axis as an i64 vector of one.
    pub(crate) fn size_of(&self, x: &Value, axis: usize) -> Value {
        let attributes = vec![int("start", axis as i64), int("end", axis as i64 + 1)];
        self.node("Shape", &[x], attributes, Element::I64, shape::fixed(&[1]))
    }

    /// 0, 1, … below a size, i64 `[count]`; `size` as by [`size_of`](Self::size_of).
    pub(crate) fn range(&self, size: &Value, count: Dim) -> Value {
        let scalar = self.integers("shape", &[]);
        let size = self.node("Reshape", &[size, &scalar], vec![], Element::I64, vec![]);
        let [zero, one] =
            [0, 1].map(|n: i64| self.bytes("scalar", Element::I64, &[], n.to_le_bytes().to_vec()));
        self.node("Range", &[&zero, &size, &one], vec![], Element::I64, vec![count])
    }

    /// Joins two neighbouring axes, of which some are named; the result's axis has the name or size `joined`.
    pub(crate) fn join_axes(&self, x: &Value, axis: usize, joined: Dim) -> Value {
        let mut dims = x.dims.clone();
        dims.splice(axis..axis + 2, [joined]);
        let target: Vec<i64> = dims
            .iter()
            .enumerate()
            .map(|(i, dim)| match dim {
                _ if i == axis => -1,
                Dim::Fixed(n) => *n as i64,
                Dim::Named(_) => 0,
            })
            .collect();
        if dims[axis + 1..].iter().any(|dim| matches!(dim, Dim::Named(_))) {
            self.fail(format!("Reshape: a named axis after axis {axis} of {:?}", x.dims));
        }
        let target = self.integers("shape", &target);
        self.node("Reshape", &[x, &target], vec![], x.element, dims)
    }

    /// The first axis, which is named, becomes two of which the second is fixed; the others stay.
    pub(crate) fn separate_axis(&self, x: &Value, dims: [Dim; 3]) -> Value {
        let sizes = dims.map(|dim| if let Dim::Fixed(n) = dim { n as i64 } else { -1 });
        let target = self.integers("shape", &sizes);
        self.node("Reshape", &[x, &target], vec![], x.element, dims.to_vec())
    }

    /// `count` equal parts of an axis.
    pub(crate) fn split_axis(&self, x: &Value, axis: usize, count: usize) -> Vec<Value> {
        self.split(x, axis, axis as i64, count)
    }

    /// `ReduceMax`, `ReduceMin` or `ReduceMean` of an axis, which becomes 1.
    pub(crate) fn reduce(&self, op: &str, x: &Value, axis: usize) -> Value {
        self.reduce_axis(op, x, axis, axis as i64)
    }

    /// As [`reduce`](Self::reduce), of the last axis: of every row.
    pub(super) fn reduce_rows(&self, op: &str, x: &Value) -> Value {
        self.reduce_axis(op, x, x.dims.len() - 1, -1)
    }

    /// Reduces an axis, which the node has as `attribute`.
    fn reduce_axis(&self, op: &str, x: &Value, axis: usize, attribute: i64) -> Value {
        let mut dims = x.dims.clone();
        dims[axis] = Dim::Fixed(1);
        let axes = self.integers("axes", &[attribute]);
        self.node(op, &[x, &axes], vec![int("keepdims", 1)], x.element, dims)
    }

    /// Layer norm over the channels of `[batch, channels, h, w]`; `scale` and `bias` [channels].
    pub(crate) fn channel_norm(&self, x: &Value, scale: &Value, bias: &Value, eps: f32) -> Value {
        let Some((_, [channels, _, _])) = map_of(x) else {
            return self.refuse(x, format!("channel norm: {:?}", x.dims));
        };
        let [scale, bias] = [scale, bias].map(|v| self.reshape(v, &shape::fixed(&[1, channels, 1, 1])));
        self.as_role(Role::Norm, |g| {
            let centred = g.sub(x, &g.reduce("ReduceMean", x, 1));
            let variance = g.reduce("ReduceMean", &g.mul(&centred, &centred), 1);
            let variance = g.add(&variance, &g.scalar(eps));
            let normed = g.div(&centred, &g.unary("Sqrt", &variance));
            g.add(&g.mul(&normed, &scale), &bias)
        })
    }

    /// Enlarges `[batch, channels, h, w]` to squares of `side`, linearly between the centres of pixels.
    pub(crate) fn enlarge(&self, x: &Value, side: usize) -> Value {
        let Some((batch, [channels, h, _])) = map_of(x).filter(|(_, [_, h, w])| h == w && *h <= side) else {
            return self.refuse(x, format!("Resize: {:?} to {side}", x.dims));
        };
        if h == side {
            return x.clone();
        }
        // A size for each axis would fix the batch. Engines round h · factor down, so the factor is not below side / h.
        let nearest = side as f32 / h as f32;
        let factor = if f64::from(nearest) * h as f64 >= side as f64 { nearest } else { nearest.next_up() };
        let scales = self.constant("scales", &[4], &[1.0, 1.0, factor, factor]);
        let dims = vec![batch, channels.into(), side.into(), side.into()];
        self.node("Resize", &[x, &Value::absent(), &scales], ops::linear(), x.element, dims)
    }

    /// One value for all → the same for each of a batch `[batch, …]`; x `[1, …]` of fixed sizes, `count` as by
    /// [`size_of`](Self::size_of).
    pub(crate) fn repeat(&self, x: &Value, count: &Value, batch: Dim) -> Value {
        let sizes: Vec<i64> =
            x.dims[1..].iter().map(|dim| if let Dim::Fixed(n) = dim { *n as i64 } else { -1 }).collect();
        if sizes.contains(&-1) {
            self.fail(format!("Expand: {:?}", x.dims));
        }
        let rest = self.integers("sizes", &sizes);
        let shape = self.concat(&[count, &rest], 0, x.dims.len());
        let dims = std::iter::once(batch).chain(x.dims[1..].iter().copied()).collect();
        self.node("Expand", &[x, &shape], vec![], x.element, dims)
    }
}
