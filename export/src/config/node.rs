//! The keys of `config.json`, with their defaults.

use serde_json::Value;

use super::{Activation, MobileClip, Stack, TextEncoder, TrackerConfig};
use crate::contract::{TextPadding, largest};
use crate::errors::invalid;
use ocelli_error::{Error, Result};

/// A JSON object, which may be missing, and its path.
pub(super) struct Node<'a> {
    pub(super) value: Option<&'a Value>,
    pub(super) path: String,
}

impl<'a> Node<'a> {
    pub(super) fn child(&self, key: &str) -> Node<'a> {
        let value = self.value.and_then(|v| v.get(key)).filter(|v| v.is_object());
        Node { value, path: format!("{}{key}.", self.path) }
    }

    pub(super) fn key(&self, key: &str) -> Option<&'a Value> {
        self.value.and_then(|v| v.get(key)).filter(|v| !v.is_null())
    }

    pub(super) fn wrong(&self, key: &str, expected: &str, found: &Value) -> Error {
        invalid(format!("`{}{key}` is {found}: expected {expected}", self.path))
    }

    pub(super) fn usize(&self, key: &str, default: usize) -> Result<usize> {
        match self.key(key) {
            None => Ok(default),
            Some(v) => {
                let (least, most) = (u64::from(!key.ends_with("_id")), largest(key));
                match v.as_u64() {
                    Some(n) if (least..=most).contains(&n) => Ok(n as usize),
                    _ => Err(self.wrong(key, &format!("a whole number from {least} to {most}"), v)),
                }
            }
        }
    }

    pub(super) fn float(&self, key: &str, default: f64) -> Result<f64> {
        match self.key(key) {
            None => Ok(default),
            Some(v) => v
                .as_f64()
                .filter(|n| n.is_finite() && *n > 0.0)
                .ok_or_else(|| self.wrong(key, "a positive number", v)),
        }
    }

    pub(super) fn numbers(&self, key: &str, default: &[f64]) -> Result<Vec<f64>> {
        let Some(v) = self.key(key) else { return Ok(default.to_vec()) };
        let numbers = v.as_array().and_then(|list| {
            list.iter().map(|n| n.as_f64().filter(|n| n.is_finite() && *n >= 0.0)).collect::<Option<Vec<_>>>()
        });
        numbers.ok_or_else(|| self.wrong(key, "a list of numbers", v))
    }

    /// The side of a square, given as one number or as two equal ones.
    pub(super) fn side(&self, key: &str, default: usize) -> Result<usize> {
        match self.key(key) {
            Some(v @ Value::Array(list)) => match list.as_slice() {
                [a, b] if a == b && a.as_u64().is_some_and(|n| (1..=largest(key)).contains(&n)) => {
                    Ok(a.as_u64().map_or(default, |n| n as usize))
                }
                _ => Err(self.wrong(key, "one number or two equal ones", v)),
            },
            _ => self.usize(key, default),
        }
    }

    pub(super) fn mobile_clip(&self) -> Result<TextEncoder> {
        let rep_mixer = match self.key("use_repmixer_blocks") {
            None => true,
            Some(v) => v.as_bool().ok_or_else(|| self.wrong("use_repmixer_blocks", "true or false", v))?,
        };
        let kernel = self.usize("repmixer_kernel_size", 11)?;
        let positions = self.usize("max_position_embeddings", 77)?;
        Ok(TextEncoder::MobileClip(MobileClip {
            rep_mixer,
            kernel,
            positions,
            padding: TextPadding::Training,
        }))
    }

    /// The memory tracker of a detector of this width.
    pub(super) fn tracker(&self, width: usize) -> Result<TrackerConfig> {
        let (decoder, prompts) = (self.child("mask_decoder_config"), self.child("prompt_encoder_config"));
        for (node, key, expected) in [
            (self, "memory_attention_hidden_size", width),
            (self, "memory_encoder_hidden_size", width),
            (self, "memory_attention_num_attention_heads", 1),
            (&decoder, "hidden_size", width),
            (&prompts, "hidden_size", width),
        ] {
            if let Some(found) = node.key(key)
                && found.as_u64() != Some(expected as u64)
            {
                return Err(node.wrong(key, &expected.to_string(), found));
            }
        }
        let rope = self.child("rope_parameters");
        let keys = ["num_hidden_layers", "num_attention_heads", "mlp_dim"];
        Ok(TrackerConfig {
            memory_width: self.usize("memory_encoder_output_channels", 64)?,
            memory_rows: self.usize("num_maskmem", 7)?,
            slots: None,
            layers: self.usize("memory_attention_num_layers", 4)?,
            heads: 1,
            intermediate: self.usize("memory_attention_feed_forward_hidden_size", 2048)?,
            rope_theta: match rope.value {
                Some(_) => rope.float("rope_theta", 10000.0)?,
                None => self.float("memory_attention_rope_theta", 10000.0)?,
            },
            decoder: decoder.stack(keys, [2, 8, 2048], "relu")?,
            decoder_width: width / decoder.usize("attention_downsample_rate", 2)?,
            iou_hidden: decoder.usize("iou_head_hidden_dim", 256)?,
            fuser_layers: self.usize("memory_fuser_num_layers", 2)?,
            fuser_intermediate: self.usize("memory_fuser_intermediate_dim", 1024)?,
            mask_channels: prompts.usize("mask_input_channels", 16)?,
        })
    }

    pub(super) fn stack(&self, keys: [&str; 3], defaults: [usize; 3], activation: &str) -> Result<Stack> {
        Ok(Stack {
            layers: self.usize(keys[0], defaults[0])?,
            heads: self.usize(keys[1], defaults[1])?,
            intermediate: self.usize(keys[2], defaults[2])?,
            activation: self.activation(activation)?,
        })
    }

    pub(super) fn activation(&self, default: &str) -> Result<Activation> {
        let name = match self.key("hidden_act") {
            None => default,
            Some(v) => v.as_str().ok_or_else(|| self.wrong("hidden_act", "the name of an activation", v))?,
        };
        Ok(match name {
            "gelu" => Activation::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" => Activation::GeluTanh,
            "quick_gelu" => Activation::QuickGelu,
            "relu" => Activation::Relu,
            "silu" | "swish" => Activation::Silu,
            other => {
                let known = "expected gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, relu or silu";
                return Err(invalid(format!("`{}hidden_act` is \"{other}\": {known}", self.path)));
            }
        })
    }
}
