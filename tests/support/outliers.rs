//! Outlier channels, as trained transformers have them, in a checkpoint that computes the same.
//!
//! A few channels get a constant that is a multiple of the spread of the others, and the next bias takes it back. In exact
//! arithmetic nothing changes. In half precision the constant is a large term of every sum. Channels that are only scaled,
//! with weights scaled back, would not show anything: a floating-point format rounds them as before.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, anyhow, bail};
use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// Channels of a layer that become outliers.
const CHANNELS: usize = 4;

/// The place of the outliers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The results of the norms before a linear layer, whose biases take the constant back.
    Norms,
    /// The keys of attentions without rotary embedding: softmax takes the constant back.
    Keys,
    /// The values of every attention: the weights add up to 1, and the output's bias takes the constant back.
    Values,
}

/// Outliers in one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outliers {
    /// Their place.
    pub place: Place,
    /// The constant, as a multiple of the standard deviation that the other channels have for inputs near 1.
    pub factor: f32,
}

impl fmt::Display for Outliers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Norms => "norms",
            Place::Keys => "keys",
            Place::Values => "values",
        };
        write!(f, "{place}:{}", self.factor)
    }
}

impl FromStr for Outliers {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || anyhow!("outliers {text}: expected norms, keys or values, and a factor, as in keys:100");
        let (place, factor) = text.split_once(':').ok_or_else(wrong)?;
        let place = match place {
            "norms" => Place::Norms,
            "keys" => Place::Keys,
            "values" => Place::Values,
            _ => return Err(wrong()),
        };
        let factor: f32 = factor.parse().map_err(|_| wrong())?;
        if !factor.is_finite() {
            return Err(wrong());
        }
        Ok(Self { place, factor })
    }
}

/// Copies a checkpoint, a folder with `model.safetensors`, with outliers; returns how many layers have some.
///
/// # Errors
/// If a file cannot be read or written, or if no layer has the place.
pub fn copy_with(from: &Path, outliers: &[Outliers], to: &Path) -> anyhow::Result<usize> {
    for entry in from.read_dir().with_context(|| format!("cannot read the checkpoint, {}", from.display()))? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|e| e == "json")) {
            std::fs::copy(&path, to.join(name))?;
        }
    }
    let path = from.join("model.safetensors");
    let bytes =
        std::fs::read(&path).with_context(|| format!("cannot read the weights, {}", path.display()))?;
    let mut weights = Weights(BTreeMap::new());
    for (name, view) in SafeTensors::deserialize(&bytes)?.tensors() {
        let values = floats(&view).with_context(|| format!("cannot read {name}, {}", path.display()))?;
        weights.0.insert(name, (view.shape().to_vec(), values));
    }
    let mut changed = 0;
    for one in outliers {
        let layers = weights.add(*one)?;
        if layers == 0 {
            bail!("outliers {one}: no layer of {} has this place", path.display());
        }
        changed += layers;
    }
    let stored = weights.0.into_iter().map(|(name, (shape, values))| {
        (name, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    });
    let stored: Vec<_> = stored.collect();
    let views = stored.iter().map(|(name, shape, bytes)| {
        Ok::<_, safetensors::SafeTensorError>((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?))
    });
    let views = views.collect::<Result<Vec<_>, _>>()?;
    std::fs::write(to.join("model.safetensors"), safetensors::serialize(views, None)?)?;
    Ok(changed)
}

fn floats(view: &TensorView<'_>) -> anyhow::Result<Vec<f32>> {
    let halves =
        |convert: fn([u8; 2]) -> f32| view.data().as_chunks().0.iter().map(|b| convert(*b)).collect();
    Ok(match view.dtype() {
        Dtype::F32 => view.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Dtype::F16 => halves(|bytes| f16::from_le_bytes(bytes).to_f32()),
        Dtype::BF16 => halves(|bytes| bf16::from_le_bytes(bytes).to_f32()),
        other => bail!("its type is {other:?}: expected F32, F16 or BF16"),
    })
}

/// Shapes and values by name.
struct Weights(BTreeMap<String, (Vec<usize>, Vec<f32>)>);

impl Weights {
    fn add(&mut self, outliers: Outliers) -> anyhow::Result<usize> {
        let suffixes: &[&str] = match outliers.place {
            Place::Norms => &[".layer_norm1.bias", ".layer_norm2.bias", ".layer_norm3.bias"],
            Place::Keys => &[".k_proj.bias"],
            Place::Values => &[".v_proj.bias"],
        };
        let is_one = |name: &&String| suffixes.iter().any(|suffix| name.ends_with(suffix));
        let names: Vec<String> = self.0.keys().filter(is_one).cloned().collect();
        let mut changed = 0;
        for name in names {
            let layer = name.trim_end_matches(".bias");
            let readers = match outliers.place {
                Place::Norms => readers(layer),
                // Positions rotate them, and softmax takes back only what all keys share.
                Place::Keys if name.contains("vision_encoder.backbone") => continue,
                Place::Keys => Vec::new(),
                Place::Values => {
                    let attention = layer.trim_end_matches(".v_proj");
                    let outputs = ["o_proj", "out_proj"].map(|output| format!("{attention}.{output}"));
                    let is_there = |output: &String| self.0.contains_key(&format!("{output}.weight"));
                    outputs.into_iter().filter(is_there).collect()
                }
            };
            if readers.is_empty() && outliers.place != Place::Keys {
                continue;
            }
            self.add_to(layer, outliers, &readers)?;
            changed += 1;
        }
        Ok(changed)
    }

    /// Adds constants to a layer's results, and takes them back in the biases of the layers that read them.
    fn add_to(&mut self, layer: &str, outliers: Outliers, readers: &[String]) -> anyhow::Result<()> {
        let width = self.values(&format!("{layer}.bias"))?.len();
        let weight = self.values(&format!("{layer}.weight"))?;
        let rows = weight.chunks(weight.len() / width);
        let norm = |row: &[f32]| row.iter().map(|value| value * value).sum::<f32>().sqrt();
        let spreads: Vec<f32> = rows.map(norm).collect();
        let spread = norm(&spreads) / (width as f32).sqrt();
        let place = |channel: usize| width * (2 * channel + 1) / (2 * CHANNELS);
        let sign = |channel: usize| if channel.is_multiple_of(2) { 1.0 } else { -1.0 };
        for channel in 0..CHANNELS {
            let (at, constant) = (place(channel), sign(channel) * outliers.factor * spread);
            self.values(&format!("{layer}.bias"))?[at] += constant;
            for reader in readers {
                let weight = std::mem::take(self.values(&format!("{reader}.weight"))?);
                let bias = self.values(&format!("{reader}.bias"))?;
                for (value, row) in bias.iter_mut().zip(weight.chunks(width)) {
                    *value -= row[at] * constant;
                }
                *self.values(&format!("{reader}.weight"))? = weight;
            }
        }
        Ok(())
    }

    /// A tensor's values.
    fn values(&mut self, name: &str) -> anyhow::Result<&mut Vec<f32>> {
        self.0.get_mut(name).map(|(_, values)| values).ok_or_else(|| anyhow!("the checkpoint has no {name}"))
    }
}

/// The linear layers that read a norm's results, and nothing else does; empty for other norms.
fn readers(norm: &str) -> Vec<String> {
    let Some((block, number)) = norm.rsplit_once(".layer_norm") else { return Vec::new() };
    let attention = if block.contains("vision_encoder.backbone.layers.") { "attention" } else { "self_attn" };
    let has_cross =
        ["detr_encoder.layers.", "geometry_encoder.layers."].iter().any(|part| block.contains(part));
    let is_known = has_cross || attention == "attention" || block.contains("text_model.encoder.layers.");
    let names: &[&str] = match (number, has_cross) {
        _ if !is_known => &[],
        ("1", _) => &["q_proj", "k_proj", "v_proj"],
        ("2", true) => return vec![format!("{block}.cross_attn.q_proj")],
        ("2", false) | ("3", true) => return vec![format!("{block}.mlp.fc1")],
        _ => &[],
    };
    names.iter().map(|name| format!("{block}.{attention}.{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_parse_and_print() {
        for text in ["norms:100", "keys:50", "values:0.5"] {
            assert_eq!(text.parse::<Outliers>().expect(text).to_string(), text);
        }
        for text in ["", "keys", "keys:", "keys:x", "keys:inf", "queries:1"] {
            let error = text.parse::<Outliers>().expect_err(text).to_string();
            assert!(
                error.starts_with(&format!("outliers {text}: expected norms, keys or values")),
                "{error}"
            );
        }
    }

    #[test]
    fn norms_have_the_layers_that_read_them() {
        let vit = "detector_model.vision_encoder.backbone.layers.3";
        let cases = [
            (format!("{vit}.layer_norm1"), 3, "attention.q_proj"),
            (format!("{vit}.layer_norm2"), 1, "mlp.fc1"),
            ("text_encoder.text_model.encoder.layers.0.layer_norm1".into(), 3, "self_attn.q_proj"),
            ("detr_encoder.layers.0.layer_norm2".into(), 1, "cross_attn.q_proj"),
            ("geometry_encoder.layers.0.layer_norm3".into(), 1, "mlp.fc1"),
            ("detr_decoder.layers.0.layer_norm1".into(), 0, ""),
            ("geometry_encoder.vision_layer_norm".into(), 0, ""),
        ];
        for (norm, count, first) in cases {
            let found = readers(&norm);
            let begins = found.first().is_none_or(|name| name.ends_with(first));
            assert!(found.len() == count && begins, "{norm}: {found:?}");
        }
    }
}
