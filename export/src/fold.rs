//! Constant folding: results that depend only on the checkpoint are computed during the export.
//!
//! In f64, so that a constant is nearer to the exact value than a runtime's result.

use ndarray::{Array1, Array2, Axis, concatenate, s};

use crate::checkpoint::Weights;
use ocelli_error::Result;

/// Rows of f64.
pub(crate) type Matrix = Array2<f64>;

/// The epsilon of layer norms, except in the encoders that configure it.
pub(crate) const NORM_EPS: f64 = 1e-5;

/// The epsilon of batch norms, except in the networks that set another.
pub(crate) const BATCH_NORM_EPS: f64 = 1e-5;

/// A tensor as a matrix of `columns`.
pub(crate) fn matrix(weights: &Weights, name: &str, columns: usize) -> Result<Matrix> {
    let values = numbers(weights, name)?;
    let rows = values.len() / columns;
    Ok(Array2::from_shape_vec((rows, columns), values)
        .expect("shapes were checked against the configuration"))
}

fn vector(weights: &Weights, name: &str) -> Result<Array1<f64>> {
    Ok(numbers(weights, name)?.into())
}

fn numbers(weights: &Weights, name: &str) -> Result<Vec<f64>> {
    Ok(weights.read(name)?.into_iter().map(f64::from).collect())
}

/// x · Wᵀ + b.
pub(crate) fn linear(weights: &Weights, name: &str, x: &Matrix) -> Result<Matrix> {
    let weight = matrix(weights, &format!("{name}.weight"), x.ncols())?;
    Ok(x.dot(&weight.t()) + &vector(weights, &format!("{name}.bias"))?)
}

/// The kernel of a 2 × 2 transposed convolution `[input, inner, 2, 2]` whose pixels `project` `[out, inner]` then projects:
/// `[input, out, 2, 2]`.
pub(crate) fn project_transposed(
    weights: &Weights,
    upscale: &str,
    project: &str,
    [input, inner, out]: [usize; 3],
) -> Result<Vec<f32>> {
    let kernel = matrix(weights, &format!("{upscale}.weight"), 4)?;
    let project = matrix(weights, &format!("{project}.weight"), inner)?;
    let mut folded = Vec::with_capacity(input * out * 4);
    for of_input in kernel.axis_chunks_iter(Axis(0), inner) {
        folded.extend(project.dot(&of_input).iter().map(|&v| v as f32));
    }
    Ok(folded)
}

/// Layer norm of every row.
pub(crate) fn layer_norm(weights: &Weights, name: &str, x: &Matrix) -> Result<Matrix> {
    let (scale, bias) =
        (vector(weights, &format!("{name}.weight"))?, vector(weights, &format!("{name}.bias"))?);
    let mut out = x.clone();
    for mut row in out.rows_mut() {
        let mean = row.sum() / row.len() as f64;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / row.len() as f64;
        row.mapv_inplace(|v| (v - mean) / (variance + NORM_EPS).sqrt());
    }
    Ok(out * &scale + &bias)
}

/// Two linear layers with a ReLU between them.
pub(crate) fn perceptron2(weights: &Weights, name: &str, x: &Matrix) -> Result<Matrix> {
    let hidden = linear(weights, &format!("{name}.layer1"), x)?.mapv_into(|v| v.max(0.0));
    linear(weights, &format!("{name}.layer2"), &hidden)
}

/// Multi-head attention of the module `name`, without a mask.
pub(crate) fn attention(
    weights: &Weights,
    name: &str,
    heads: usize,
    query_key: &Matrix,
    value: &Matrix,
) -> Result<Matrix> {
    let q = linear(weights, &format!("{name}.q_proj"), query_key)?;
    let k = linear(weights, &format!("{name}.k_proj"), query_key)?;
    let v = linear(weights, &format!("{name}.v_proj"), value)?;
    let size = q.ncols() / heads;
    let mut joined = Matrix::zeros(q.raw_dim());
    for head in 0..heads {
        let columns = s![.., head * size..(head + 1) * size];
        let mut scores = q.slice(columns).dot(&k.slice(columns).t()) / (size as f64).sqrt();
        for mut row in scores.rows_mut() {
            let most = row.fold(f64::NEG_INFINITY, |a, &b| a.max(b));
            row.mapv_inplace(|v| (v - most).exp());
            let sum = row.sum();
            row.mapv_inplace(|v| v / sum);
        }
        joined.slice_mut(columns).assign(&scores.dot(&v.slice(columns)));
    }
    linear(weights, &format!("{name}.o_proj"), &joined)
}

/// A batch norm with its statistics: scale · x + shift for each channel.
pub(crate) struct BatchNorm {
    pub(crate) scale: Vec<f64>,
    pub(crate) shift: Vec<f64>,
}

impl BatchNorm {
    pub(crate) fn read(weights: &Weights, name: &str, eps: f64) -> Result<Self> {
        let read = |end: &str| numbers(weights, &format!("{name}.{end}"));
        let (weight, bias) = (read("weight")?, read("bias")?);
        let (mean, variance) = (read("running_mean")?, read("running_var")?);
        let scale: Vec<f64> =
            weight.iter().zip(&variance).map(|(w, v)| w / (v.max(0.0) + eps).sqrt()).collect();
        let shift = bias.iter().zip(&mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
        Ok(Self { scale, shift })
    }
}

/// `top` over `bottom`.
pub(crate) fn stack(top: &Matrix, bottom: &Matrix) -> Matrix {
    concatenate(Axis(0), &[top.view(), bottom.view()]).expect("both have the model's width")
}

/// The values as f32, row by row.
pub(crate) fn to_f32(x: &Matrix) -> Vec<f32> {
    x.iter().map(|&v| v as f32).collect()
}
