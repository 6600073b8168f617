//! Average pooling of boxes in basic operators.

use super::{Dim, Graph, Value, ints};

impl Graph<'_> {
    /// The mean of squares of `side` × `side` cells that do not overlap; `x` [n, channels, rows, columns] has whole ones.
    pub(crate) fn average_pool(&self, x: &Value, side: usize) -> Value {
        let Some(&[batch, channels, Dim::Fixed(rows), Dim::Fixed(columns)]) = x.dims.first_chunk::<4>()
        else {
            return self.refuse(x, format!("AveragePool: {:?}", x.dims));
        };
        let dims = vec![batch, channels, (rows / side).into(), (columns / side).into()];
        let attributes = vec![ints("kernel_shape", &[side as i64; 2]), ints("strides", &[side as i64; 2])];
        self.node("AveragePool", &[x], attributes, x.element, dims)
    }

    /// Average-pools boxes to `bins` × `bins`, as torchvision's `roi_align(aligned=False)` does, in operators that every
    /// runtime has: TensorRT for RTX and the embedded engine lack `RoiAlign`.
    ///
    /// A bin is the mean of n × m samples of the map, each a bilinear interpolation of four pixels (Mask R-CNN, section 3,
    /// with torchvision's conventions: n and m follow from the box's size, no half-pixel shift, zero beyond a pixel
    /// outside). Interpolation and mean both separate into a factor in y and a factor in x, so that the whole operator is
    /// two matrix products: weights over the map's rows, and over its columns. `x` [1, channels, side, side], `boxes`
    /// [n, 4] xyxy in pixels, no larger than the map.
    pub(crate) fn roi_align(&self, x: &Value, boxes: &Value, bins: usize) -> Value {
        let Some(&[Dim::Fixed(1), Dim::Fixed(channels), Dim::Fixed(side), Dim::Fixed(width)]) =
            x.dims.first_chunk::<4>()
        else {
            return self.refuse(x, format!("RoiAlign: {:?}", x.dims));
        };
        if side != width {
            self.fail(format!("RoiAlign: {:?}", x.dims));
        }
        let count = boxes.dims[0];
        let [from_x, from_y, to_x, to_y] = [0, 1, 2, 3].map(|i| self.slice(boxes, 1, i, i + 1));
        let [lines, columns] = [(&from_y, &to_y), (&from_x, &to_x)].map(|(from, to)| {
            let weights = self.bin_weights(from, to, bins, side);
            self.reshape(&weights, &[count, bins.into(), side.into()])
        });
        let columns = self.transpose(&columns, &[0, 2, 1]);

        // Boxes are rows of the first product and batches of the second: ONNX Runtime does not broadcast zero boxes.
        let map = self.transpose(x, &[0, 2, 1, 3]);
        let map = self.reshape(&map, &[side.into(), (channels * side).into()]); // [y, channel and x]
        let pooled = self.matmul(&lines, &map);
        let pooled = self.reshape(&pooled, &[count, bins.into(), channels.into(), side.into()]);
        let pooled = self.transpose(&pooled, &[0, 2, 1, 3]);
        let pooled = self.reshape(&pooled, &[count, (channels * bins).into(), side.into()]);
        let pooled = self.matmul(&pooled, &columns);
        self.reshape(&pooled, &[count, channels.into(), bins.into(), bins.into()])
    }

    /// The weight of every pixel of an axis in every bin of a box from `from` to `to`, [n, 1] each: [n, bins, 1, side].
    fn bin_weights(&self, from: &Value, to: &Value, bins: usize, side: usize) -> Value {
        let count = from.dims[0];
        let row = |n: usize| (0..n).map(|i| i as f32).collect::<Vec<_>>();
        // A box as large as the map has this many samples in a bin, and one more by rounding.
        let most = side / bins + 1;
        let extent = self.clip(&self.sub(to, from), Some(1.0), None);
        let bin = self.scale(&extent, 1.0 / bins as f32);
        // torchvision divides the box's extent by the bins and rounds up.
        let samples = self.div(&extent, &self.scalar(bins as f32));
        let samples = self.unary("Ceil", &samples);

        let index = self.constant("sample_indices", &[1, most], &row(most));
        let counted = self.sub(&samples, &index);
        // 1 for every sample of the bin, divided by their number: the weights of a mean.
        let share = self.div(&self.clip(&counted, Some(0.0), Some(1.0)), &samples);
        let share = self.reshape(&share, &[count, 1.into(), most.into(), 1.into()]);

        let centre = self.add(&index, &self.scalar(0.5));
        let within = self.mul(&self.div(&centre, &samples), &bin);
        let within = self.reshape(&within, &[count, 1.into(), most.into(), 1.into()]);
        let start = self.mul(&bin, &self.constant("bin_indices", &[1, bins], &row(bins)));
        let start = self.add(&start, from);
        let start = self.reshape(&start, &[count, bins.into(), 1.into(), 1.into()]);
        let place = self.add(&start, &within); // [box, bin, sample, 1]

        // Samples more than a pixel outside count as zero, samples nearer than that as the edge.
        let share = self.mul(&share, &self.inside(&place, -1.0, side as f32));
        let place = self.clip(&place, Some(0.0), Some((side - 1) as f32));
        let pixels = self.constant("pixel_indices", &[1, 1, 1, side], &row(side));
        let distance = self.unary("Abs", &self.sub(&place, &pixels));
        let near = self.sub(&self.scalar(1.0), &distance);
        let near = self.unary("Relu", &near);
        let weighted = self.mul(&near, &share); // [box, bin, sample, pixel]
        self.sum(&weighted, 2)
    }

    /// 1 where `low` ≤ x ≤ `high`, else 0.
    ///
    /// Written with `Clip` of a steep line: runtimes disagree about the `Sign` of zero (rten 0.27 gives 1).
    fn inside(&self, x: &Value, low: f32, high: f32) -> Value {
        // Any difference of two numbers near a pixel's index is far above 1 / STEEP, and STEEP · side is finite.
        const STEEP: f32 = 1e30;
        let [low, high, one] = [low, high, 1.0].map(|limit| self.scalar(limit));
        let below = self.sub(&low, x);
        let above = self.sub(x, &high);
        let [below, above] = [below, above].map(|excess| {
            let outside = self.clip(&self.scale(&excess, STEEP), Some(0.0), Some(1.0));
            self.sub(&one, &outside)
        });
        self.mul(&below, &above)
    }
}
