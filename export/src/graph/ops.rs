//! The operators that the model is made of, each with its shape rule.

use std::borrow::Borrow;

use super::{AttributeProto, Dim, Element, Graph, Role, Value, float, int, ints, shape, string};

impl Graph<'_> {
    /// A two-operand operator with broadcasting.
    fn elementwise(&self, op: &str, a: &Value, b: &Value) -> Value {
        self.operator_of_two(op, a, b, a.element)
    }

    /// A two-operand operator with broadcasting, whose result has this type.
    pub(super) fn operator_of_two(&self, op: &str, a: &Value, b: &Value, element: Element) -> Value {
        let dims = shape::broadcast(&a.dims, &b.dims).unwrap_or_else(|| {
            self.fail(format!("{op}: shapes {:?} and {:?} do not broadcast", a.dims, b.dims));
            a.dims.clone()
        });
        if a.element != b.element {
            self.fail(format!("{op}: element types {:?} and {:?} differ", a.element, b.element));
        }
        self.node(op, &[a, b], vec![], element, dims)
    }

    pub(crate) fn add(&self, a: &Value, b: &Value) -> Value {
        self.elementwise("Add", a, b)
    }

    pub(crate) fn sub(&self, a: &Value, b: &Value) -> Value {
        self.elementwise("Sub", a, b)
    }

    pub(crate) fn mul(&self, a: &Value, b: &Value) -> Value {
        self.elementwise("Mul", a, b)
    }

    pub(crate) fn div(&self, a: &Value, b: &Value) -> Value {
        self.elementwise("Div", a, b)
    }

    pub(crate) fn scale(&self, a: &Value, factor: f32) -> Value {
        self.mul(a, &self.scalar(factor))
    }

    /// A one-operand operator that keeps the shape: `Relu`, `Sigmoid`, `Log`, `Sin`, `Abs`, …
    pub(crate) fn unary(&self, op: &str, x: &Value) -> Value {
        self.node(op, &[x], vec![], x.element, x.dims.clone())
    }

    /// Exact GELU, or its tanh approximation.
    pub(crate) fn gelu(&self, x: &Value, approximate: bool) -> Value {
        let attributes = if approximate { vec![string("approximate", "tanh")] } else { vec![] };
        self.node("Gelu", &[x], attributes, x.element, x.dims.clone())
    }

    pub(crate) fn clip(&self, x: &Value, low: Option<f32>, high: Option<f32>) -> Value {
        let low = low.map_or_else(Value::absent, |v| self.scalar(v));
        let high = high.map(|v| self.scalar(v));
        let inputs: Vec<&Value> = [x, &low].into_iter().chain(&high).collect();
        self.node("Clip", &inputs, vec![], x.element, x.dims.clone())
    }

    pub(crate) fn cast(&self, x: &Value, to: Element) -> Value {
        self.node("Cast", &[x], vec![int("to", i64::from(to.data_type()))], to, x.dims.clone())
    }

    /// a · b over the last two axes, the others broadcast; a rank-2 `b` serves every matrix of `a`.
    pub(crate) fn matmul(&self, a: &Value, b: &Value) -> Value {
        let (ra, rb) = (a.dims.len(), b.dims.len());
        if ra < 2 || rb < 2 || a.dims[ra - 1] != b.dims[rb - 2] {
            return self.refuse(a, format!("MatMul: shapes {:?} and {:?} do not multiply", a.dims, b.dims));
        }
        let mut dims = shape::broadcast(&a.dims[..ra - 2], &b.dims[..rb - 2]).unwrap_or_else(|| {
            self.fail(format!("MatMul: batches of {:?} and {:?} do not broadcast", a.dims, b.dims));
            vec![]
        });
        dims.extend([a.dims[ra - 2], b.dims[rb - 1]]);
        self.node("MatMul", &[a, b], vec![], a.element, dims)
    }

    /// Normalises the last axis.
    pub(crate) fn layer_norm(&self, x: &Value, scale: &Value, bias: &Value, eps: f32) -> Value {
        let last = x.dims.len() - 1;
        if scale.dims != x.dims[last..] || bias.dims != scale.dims {
            self.fail(format!("LayerNormalization: scale {:?} on {:?}", scale.dims, x.dims));
        }
        let attributes = vec![int("axis", -1), float("epsilon", eps)];
        self.node("LayerNormalization", &[x, scale, bias], attributes, x.element, x.dims.clone())
    }

    pub(crate) fn softmax(&self, x: &Value) -> Value {
        self.node("Softmax", &[x], vec![int("axis", -1)], x.element, x.dims.clone())
    }

    pub(crate) fn reshape(&self, x: &Value, dims: &[Dim]) -> Value {
        let target = shape::reshape_target(&x.dims, dims).unwrap_or_else(|| {
            self.fail(format!("Reshape: {:?} does not become {dims:?}", x.dims));
            vec![]
        });
        let target = self.integers("shape", &target);
        self.node("Reshape", &[x, &target], vec![], x.element, dims.to_vec())
    }

    pub(crate) fn transpose(&self, x: &Value, order: &[usize]) -> Value {
        if order.len() != x.dims.len() {
            return self.refuse(x, format!("Transpose: order {order:?} for shape {:?}", x.dims));
        }
        let dims = order.iter().map(|&axis| x.dims[axis]).collect();
        let perm: Vec<i64> = order.iter().map(|&axis| axis as i64).collect();
        self.node("Transpose", &[x], vec![ints("perm", &perm)], x.element, dims)
    }

    /// Joins along `axis`; `size` is the result's size there, which the builder cannot add up if it is named.
    pub(crate) fn concat(&self, values: &[impl Borrow<Value>], axis: usize, size: impl Into<Dim>) -> Value {
        let values: Vec<&Value> = values.iter().map(Borrow::borrow).collect();
        let mut dims = values[0].dims.clone();
        for value in &values {
            let fits = value.dims.len() == dims.len()
                && (0..dims.len()).all(|i| i == axis || value.dims[i] == dims[i]);
            if !fits {
                self.fail(format!("Concat: shapes {:?} and {:?} on axis {axis}", values[0].dims, value.dims));
            }
        }
        dims[axis] = size.into();
        self.node("Concat", &values, vec![int("axis", axis as i64)], values[0].element, dims)
    }

    /// Splits the last axis into equal parts.
    pub(crate) fn split_last(&self, x: &Value, parts: usize) -> Vec<Value> {
        self.split(x, x.dims.len() - 1, -1, parts)
    }

    /// `count` equal parts of an axis, which the node has as `attribute`.
    pub(super) fn split(&self, x: &Value, axis: usize, attribute: i64, count: usize) -> Vec<Value> {
        let mut dims = x.dims.clone();
        match &mut dims[axis] {
            Dim::Fixed(n) if n.is_multiple_of(count) => *n /= count,
            _ => self.fail(format!("Split: axis {axis} of {:?} in {count} parts", x.dims)),
        }
        let attributes = vec![int("axis", attribute), int("num_outputs", count as i64)];
        let name = self.push("Split", &[x], attributes, count, x.element);
        let part = |i| Value { name: format!("{name}:{i}"), element: x.element, dims: dims.clone() };
        (0..count).map(part).collect()
    }

    /// `from..to` of one axis.
    pub(crate) fn slice(&self, x: &Value, axis: usize, from: usize, to: usize) -> Value {
        let mut dims = x.dims.clone();
        match dims[axis] {
            Dim::Fixed(n) if from < to && to <= n => dims[axis] = Dim::Fixed(to - from),
            _ => self.fail(format!("Slice: {from}..{to} of axis {axis} of {:?}", x.dims)),
        }
        let [from, to, axis] = [from, to, axis].map(|n| self.integers("slice", &[n as i64]));
        self.node("Slice", &[x, &from, &to, &axis], vec![], x.element, dims)
    }

    /// Rows of a table: `table` [n, w…] by `indices` (any shape) → indices' shape followed by w….
    pub(crate) fn gather_rows(&self, table: &Value, indices: &Value) -> Value {
        let dims = indices.dims.iter().chain(&table.dims[1..]).copied().collect();
        self.node("Gather", &[table, indices], vec![int("axis", 0)], table.element, dims)
    }

    /// Positions of one axis, in the order given.
    pub(crate) fn select(&self, x: &Value, axis: usize, positions: &[usize]) -> Value {
        let positions: Vec<i64> = positions.iter().map(|&n| n as i64).collect();
        let index = self.integers("positions", &positions);
        let mut dims = x.dims.clone();
        dims[axis] = Dim::Fixed(positions.len());
        self.node("Gather", &[x, &index], vec![int("axis", axis as i64)], x.element, dims)
    }

    /// Adds zeros before and after every axis, as many as given for it.
    pub(crate) fn pad(&self, x: &Value, before: &[usize], after: &[usize]) -> Value {
        let mut dims = x.dims.clone();
        for (axis, amount) in before.iter().zip(after).map(|(a, b)| a + b).enumerate().filter(|(_, n)| *n > 0)
        {
            match &mut dims[axis] {
                Dim::Fixed(n) => *n += amount,
                Dim::Named(_) => self.fail(format!("Pad: axis {axis} of {:?} is free", x.dims)),
            }
        }
        let pads: Vec<i64> = before.iter().chain(after).map(|&n| n as i64).collect();
        self.node("Pad", &[x, &self.integers("pads", &pads)], vec![], x.element, dims)
    }

    pub(crate) fn sum(&self, x: &Value, axis: usize) -> Value {
        self.reduce("ReduceSum", x, axis)
    }

    /// Convolution over `[batch, channels, h, w]`, with the same stride and zero padding on all sides. A weight for fewer
    /// channels is one of as many groups as fit.
    pub(crate) fn conv(
        &self,
        x: &Value,
        weight: &Value,
        bias: Option<&Value>,
        stride: usize,
        pad: usize,
    ) -> Value {
        let (Some((batch, [channels, h, w])), Some([out, fan_in, kh, kw])) = (map_of(x), dims4(weight))
        else {
            return self.refuse(x, format!("Conv: {:?} with kernel {:?}", x.dims, weight.dims));
        };
        let groups = channels.checked_div(fan_in).unwrap_or(0);
        if groups * fan_in != channels || groups == 0 || out % groups != 0 {
            self.fail(format!("Conv: {:?} with kernel {:?}", x.dims, weight.dims));
        }
        let size = |side: usize, kernel: usize| (side + 2 * pad - kernel) / stride + 1;
        let dims = vec![batch, out.into(), size(h, kh).into(), size(w, kw).into()];
        let (stride, pad) = (stride as i64, pad as i64);
        let mut attributes = vec![
            ints("kernel_shape", &[kh as i64, kw as i64]),
            ints("strides", &[stride, stride]),
            ints("pads", &[pad; 4]),
        ];
        if groups > 1 {
            attributes.push(int("group", groups as i64));
        }
        let inputs: Vec<&Value> = [x, weight].into_iter().chain(bias).collect();
        self.node("Conv", &inputs, attributes, x.element, dims)
    }

    /// A convolution of each channel with its own kernel along the last axis, padded with zeros to the same length;
    /// x `[n, channels, 1, length]`, `weight` [channels, 1, 1, k] with an odd k.
    pub(crate) fn conv_rows(&self, x: &Value, weight: &Value, bias: &Value) -> Value {
        let (Some([channels, 1, 1, kernel]), &[_, Dim::Fixed(found), Dim::Fixed(1), Dim::Fixed(_)]) =
            (dims4(weight), x.dims.as_slice())
        else {
            return self.refuse(x, format!("Conv: {:?} with kernel {:?}", x.dims, weight.dims));
        };
        if channels != found || kernel % 2 == 0 {
            self.fail(format!("Conv: {:?} with kernel {:?}", x.dims, weight.dims));
        }
        let (kernel, pad) = (kernel as i64, kernel as i64 / 2);
        let attributes = vec![
            int("group", channels as i64),
            ints("kernel_shape", &[1, kernel]),
            ints("strides", &[1, 1]),
            ints("pads", &[0, pad, 0, pad]),
        ];
        self.node("Conv", &[x, weight, bias], attributes, x.element, x.dims.clone())
    }

    /// Doubles the sides of `[batch, channels, h, w]` with a 2×2 transposed convolution; `weight` [in, out, 2, 2].
    pub(crate) fn conv_transpose2(&self, x: &Value, weight: &Value, bias: &Value) -> Value {
        let (Some((batch, [channels, h, w])), Some([fan_in, out, 2, 2])) = (map_of(x), dims4(weight)) else {
            return self.refuse(x, format!("ConvTranspose: {:?} with kernel {:?}", x.dims, weight.dims));
        };
        if channels != fan_in {
            self.fail(format!("ConvTranspose: {:?} with kernel {:?}", x.dims, weight.dims));
        }
        let attributes = vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
        let dims = vec![batch, out.into(), (2 * h).into(), (2 * w).into()];
        self.node("ConvTranspose", &[x, weight, bias], attributes, x.element, dims)
    }

    /// Doubles the sides of `[1, channels, h, w]` by repeating pixels.
    pub(crate) fn upsample2(&self, x: &Value) -> Value {
        let Some([n, c, h, w]) = dims4(x) else {
            return self.refuse(x, format!("Resize: {:?}", x.dims));
        };
        let scales = self.constant("scales", &[4], &[1.0, 1.0, 2.0, 2.0]);
        let attributes = vec![
            string("mode", "nearest"),
            string("coordinate_transformation_mode", "asymmetric"),
            string("nearest_mode", "floor"),
        ];
        let dims = shape::fixed(&[n, c, 2 * h, 2 * w]);
        self.node("Resize", &[x, &Value::absent(), &scales], attributes, x.element, dims)
    }

    /// Resizes `[1, channels, h, w]` to squares of `side`, linearly between the centres of pixels.
    pub(crate) fn resize_linear(&self, x: &Value, side: usize) -> Value {
        let Some([n, c, h, w]) = dims4(x) else {
            return self.refuse(x, format!("Resize: {:?}", x.dims));
        };
        if [h, w] == [side; 2] {
            return x.clone();
        }
        let sizes = self.integers("sizes", &[n as i64, c as i64, side as i64, side as i64]);
        let (absent, dims) = (Value::absent(), shape::fixed(&[n, c, side, side]));
        self.node("Resize", &[x, &absent, &absent, &sizes], linear(), x.element, dims)
    }

    /// The mean of every channel of `[1, channels, h, w]`: `[1, channels, 1, 1]`.
    pub(crate) fn channel_means(&self, x: &Value) -> Value {
        let dims = vec![x.dims[0], x.dims[1], Dim::Fixed(1), Dim::Fixed(1)];
        self.node("GlobalAveragePool", &[x], vec![], x.element, dims)
    }

    /// Group normalisation of `[1, channels, h, w]`, written as instance normalisation over `[1, groups, …]`, which every
    /// runtime supports.
    pub(crate) fn group_norm(&self, x: &Value, groups: usize, affine: [&Value; 2], eps: f32) -> Value {
        let Some([1, c, h, w]) = dims4(x) else {
            return self.refuse(x, format!("group norm: {:?}", x.dims));
        };
        let flat = self.reshape(x, &shape::fixed(&[1, groups, c / groups * h * w]));
        let ones = self.constant("ones", &[groups], &vec![1.0; groups]);
        let zeros = self.constant("zeros", &[groups], &vec![0.0; groups]);
        let attributes = vec![float("epsilon", eps)];
        let dims = flat.dims.clone();
        let normed = self.node("InstanceNormalization", &[&flat, &ones, &zeros], attributes, x.element, dims);
        let normed = self.reshape(&normed, &x.dims);
        let [scale, bias] = affine.map(|v| self.reshape(v, &shape::fixed(&[1, c, 1, 1])));
        self.as_role(Role::Norm, |g| g.add(&g.mul(&normed, &scale), &bias))
    }

    /// ONNX Runtime's fused attention over `[batch, tokens, heads · head]`; values may have another width. `bias` [1 or batch, heads, queries, keys] is
    /// added to the scores.
    pub(crate) fn fused_attention(
        &self,
        [q, k, v]: [&Value; 3],
        heads: usize,
        scale: f32,
        bias: Option<&Value>,
    ) -> Value {
        let fits = q.dims.len() == 3 && k.dims[..2] == v.dims[..2] && q.dims[0] == k.dims[0];
        if !fits || q.dims[2] != k.dims[2] {
            self.fail(format!("MultiHeadAttention: {:?}, {:?}, {:?}", q.dims, k.dims, v.dims));
        }
        let absent = Value::absent();
        let mut inputs = vec![q, k, v];
        inputs.extend(bias.iter().flat_map(|bias| [&absent, &absent, bias]));
        let attributes = vec![int("num_heads", heads as i64), float("scale", scale)];
        let dims = vec![q.dims[0], q.dims[1], v.dims[2]];
        self.node("MultiHeadAttention", &inputs, attributes, q.element, dims)
    }

    /// ONNX Runtime's fused rotary embedding over `[batch, tokens, heads · head]`, the halves of a head rotated
    /// against each other; `cos`, `sin` [tokens, head / 2].
    pub(crate) fn fused_rotary(&self, x: &Value, cos: &Value, sin: &Value) -> Value {
        let start = self.integers("position", &[0]);
        let inputs = [x, &start, cos, sin];
        self.node("RotaryEmbedding", &inputs, vec![int("interleaved", 0)], x.element, x.dims.clone())
    }
}

/// The attributes of a resize that is linear between the centres of pixels.
pub(super) fn linear() -> Vec<AttributeProto> {
    vec![string("mode", "linear"), string("coordinate_transformation_mode", "half_pixel")]
}

fn dims4(x: &Value) -> Option<[usize; 4]> {
    let dims: Vec<usize> =
        x.dims.iter().filter_map(|d| if let Dim::Fixed(n) = d { Some(*n) } else { None }).collect();
    dims.try_into().ok()
}

/// The batch and the sizes of `[batch, channels, h, w]`.
pub(super) fn map_of(x: &Value) -> Option<(Dim, [usize; 3])> {
    let &[batch, Dim::Fixed(channels), Dim::Fixed(h), Dim::Fixed(w)] = x.dims.as_slice() else { return None };
    Some((batch, [channels, h, w]))
}
