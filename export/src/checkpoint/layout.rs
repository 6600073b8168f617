//! The tensors of a detector with a given configuration, by name and shape.

use std::collections::BTreeMap;

use crate::config::{MobileClip, ModelConfig, Stack, StudentOrigin, TextConfig, TextEncoder, TrackerConfig};
use crate::prune::{Branch, Pruning};
use crate::student;

/// A tensor that a checkpoint has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub(crate) shape: Vec<usize>,
    /// Whether a graph needs it; others may be missing.
    pub(crate) needed: bool,
}

/// Every tensor of the detector without the blocks and branches that were pruned, including tensors that no graph uses.
pub(crate) fn expected_tensors(config: &ModelConfig, pruned: &Pruning) -> BTreeMap<String, Requirement> {
    let mut list = Layout { tensors: BTreeMap::new(), needed: true };
    list.vision(config, pruned);
    list.text(config);
    list.geometry(config);
    list.fusion_encoder(config);
    list.decoder(config);
    list.mask_decoder(config);
    list.scoring(config);
    if let Some(tracker) = &config.tracker {
        list.tracker(tracker, config.width, config.vision.hidden);
    }
    list.tensors
}

struct Layout {
    tensors: BTreeMap<String, Requirement>,
    /// Whether graphs need the tensors that are added next.
    needed: bool,
}

impl Layout {
    fn tensor(&mut self, name: String, shape: &[usize]) {
        self.tensors.insert(name, Requirement { shape: shape.to_vec(), needed: self.needed });
    }

    /// Adds tensors that no graph needs.
    fn unused(&mut self, add: impl FnOnce(&mut Self)) {
        self.needed = false;
        add(self);
        self.needed = true;
    }

    /// `weight` and `bias`.
    fn affine(&mut self, name: &str, weight: &[usize], bias: usize) {
        self.tensor(format!("{name}.weight"), weight);
        self.tensor(format!("{name}.bias"), &[bias]);
    }

    fn linear(&mut self, name: &str, input: usize, output: usize) {
        self.affine(name, &[output, input], output);
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.affine(name, &[width], width);
    }

    fn attention(&mut self, name: &str, width: usize, output: &str) {
        for projection in ["q_proj", "k_proj", "v_proj", output] {
            self.linear(&format!("{name}.{projection}"), width, width);
        }
    }

    fn feed_forward(&mut self, name: &str, width: usize, stack: &Stack) {
        self.linear(&format!("{name}.fc1"), width, stack.intermediate);
        self.linear(&format!("{name}.fc2"), stack.intermediate, width);
    }

    /// `layer1 … layerN`, with ReLU between them.
    fn perceptron(&mut self, name: &str, widths: &[usize]) {
        for (i, pair) in widths.windows(2).enumerate() {
            self.linear(&format!("{name}.layer{}", i + 1), pair[0], pair[1]);
        }
    }

    fn vision(&mut self, config: &ModelConfig, pruned: &Pruning) {
        let v = &config.vision;
        let (hidden, width) = (v.hidden, config.width);
        if let Some(student) = &config.student {
            student::all_tensors(student, width, hidden, &mut |name, shape| self.tensor(name, shape));
            if student.origin == StudentOrigin::EfficientSam3 {
                self.neck("vision_encoder.neck", width, hidden);
            }
            return;
        }
        let table = v.pretrain_image_size / v.patch_size;
        let vit = "vision_encoder.backbone";
        let patch = [hidden, 3, v.patch_size, v.patch_size];
        self.tensor(format!("{vit}.embeddings.patch_embeddings.projection.weight"), &patch);
        self.tensor(format!("{vit}.embeddings.position_embeddings"), &[1, table * table, hidden]);
        self.norm(&format!("{vit}.layer_norm"), hidden);
        for i in (0..v.stack.layers).filter(|i| !pruned.skip_blocks.contains(i)) {
            let block = format!("{vit}.layers.{i}");
            if pruned.keeps(i, Branch::Attention) {
                self.norm(&format!("{block}.layer_norm1"), hidden);
                self.attention(&format!("{block}.attention"), hidden, "o_proj");
            }
            if pruned.keeps(i, Branch::Mlp) {
                self.norm(&format!("{block}.layer_norm2"), hidden);
                self.feed_forward(&format!("{block}.mlp"), hidden, &v.stack);
            }
        }
        self.neck("vision_encoder.neck", width, hidden);
    }

    fn neck(&mut self, root: &str, width: usize, hidden: usize) {
        let neck = &format!("{root}.fpn_layers");
        let (half, quarter) = (hidden / 2, hidden / 4);
        self.affine(&format!("{neck}.0.scale_layers.0"), &[hidden, half, 2, 2], half);
        self.affine(&format!("{neck}.0.scale_layers.2"), &[half, quarter, 2, 2], quarter);
        self.affine(&format!("{neck}.1.scale_layers.0"), &[hidden, half, 2, 2], half);
        for (level, channels) in [quarter, half, hidden].into_iter().enumerate() {
            self.level(neck, level, width, channels);
        }
        self.unused(|list| list.level(neck, 3, width, hidden));
    }

    fn level(&mut self, neck: &str, level: usize, width: usize, channels: usize) {
        self.affine(&format!("{neck}.{level}.proj1"), &[width, channels, 1, 1], width);
        self.affine(&format!("{neck}.{level}.proj2"), &[width, width, 3, 3], width);
    }

    fn text(&mut self, config: &ModelConfig) {
        let t = &config.text;
        if let TextEncoder::MobileClip(text) = t.encoder {
            self.mobile_clip(t, text);
            self.linear("text_projection", t.hidden, config.width);
            return;
        }
        let clip = "text_encoder.text_model";
        self.tensor(format!("{clip}.embeddings.token_embedding.weight"), &[t.vocab_size, t.hidden]);
        self.tensor(format!("{clip}.embeddings.position_embedding.weight"), &[t.context_length, t.hidden]);
        for i in 0..t.stack.layers {
            let layer = format!("{clip}.encoder.layers.{i}");
            self.norm(&format!("{layer}.layer_norm1"), t.hidden);
            self.norm(&format!("{layer}.layer_norm2"), t.hidden);
            self.attention(&format!("{layer}.self_attn"), t.hidden, "out_proj");
            self.feed_forward(&format!("{layer}.mlp"), t.hidden, &t.stack);
        }
        self.norm(&format!("{clip}.final_layer_norm"), t.hidden);
        self.unused(|list| {
            list.tensor("text_encoder.text_projection.weight".into(), &[t.projection, t.hidden]);
        });
        self.linear("text_projection", t.hidden, config.width);
    }

    fn mobile_clip(&mut self, t: &TextConfig, text: MobileClip) {
        let (root, hidden) = ("text_encoder", t.hidden);
        self.tensor(format!("{root}.embeddings.token_embedding.weight"), &[t.vocab_size, hidden]);
        let table = [1, 1, text.positions, hidden];
        self.tensor(format!("{root}.embeddings.position_embedding.position_embedding"), &table);
        for i in 0..t.stack.layers {
            let layer = format!("{root}.layers.{i}");
            if text.rep_mixer && (i == 0 || i + 1 == t.stack.layers) {
                self.rep_mixer(&layer, hidden, t.stack.intermediate, text.kernel);
                continue;
            }
            self.norm(&format!("{layer}.layer_norm1"), hidden);
            self.norm(&format!("{layer}.layer_norm2"), hidden);
            self.attention(&format!("{layer}.self_attn"), hidden, "out_proj");
            self.feed_forward(&format!("{layer}.mlp"), hidden, &t.stack);
        }
        self.norm(&format!("{root}.final_layer_norm"), hidden);
        self.unused(|list| list.tensor(format!("{root}.projection.weight"), &[t.projection, hidden]));
    }

    fn rep_mixer(&mut self, layer: &str, hidden: usize, intermediate: usize, kernel: usize) {
        for scale in ["layer_scale", "token_mixer.layer_scale"] {
            self.tensor(format!("{layer}.{scale}"), &[hidden, 1, 1]);
        }
        for conv in ["token_mixer.mixer.conv", "conv_feed_forward.depthwise_conv"] {
            self.tensor(format!("{layer}.{conv}.weight"), &[hidden, 1, 1, kernel]);
        }
        for norm in [
            "token_mixer.reference_batchnorm",
            "token_mixer.mixer.batchnorm_skip",
            "token_mixer.mixer.batchnorm_conv",
            "conv_feed_forward.depthwise_batchnorm",
        ] {
            self.norm(&format!("{layer}.{norm}"), hidden);
            self.tensor(format!("{layer}.{norm}.running_mean"), &[hidden]);
            self.tensor(format!("{layer}.{norm}.running_var"), &[hidden]);
        }
        let mlp = format!("{layer}.conv_feed_forward.mlp");
        self.affine(&format!("{mlp}.fc1"), &[intermediate, hidden, 1, 1], intermediate);
        self.affine(&format!("{mlp}.fc2"), &[hidden, intermediate, 1, 1], hidden);
    }

    fn geometry(&mut self, config: &ModelConfig) {
        if !config.has_exemplars() {
            return;
        }
        let (width, roi) = (config.width, config.roi_size);
        let root = "geometry_encoder";
        self.tensor(format!("{root}.label_embed.weight"), &[2, width]);
        self.tensor(format!("{root}.cls_embed.weight"), &[1, width]);
        self.linear(&format!("{root}.boxes_direct_project"), 4, width);
        self.affine(&format!("{root}.boxes_pool_project"), &[width, width, roi, roi], width);
        self.linear(&format!("{root}.boxes_pos_enc_project"), width + 2, width);
        self.norm(&format!("{root}.vision_layer_norm"), width);
        self.linear(&format!("{root}.final_proj"), width, width);
        self.norm(&format!("{root}.prompt_layer_norm"), width);
        for i in 0..config.geometry.layers {
            self.pre_norm_layer(&format!("{root}.layers.{i}"), width, &config.geometry);
        }
        self.norm(&format!("{root}.output_layer_norm"), width);
    }

    fn fusion_encoder(&mut self, config: &ModelConfig) {
        for i in 0..config.encoder.layers {
            self.pre_norm_layer(&format!("detr_encoder.layers.{i}"), config.width, &config.encoder);
        }
    }

    fn pre_norm_layer(&mut self, layer: &str, width: usize, stack: &Stack) {
        for norm in 1..=3 {
            self.norm(&format!("{layer}.layer_norm{norm}"), width);
        }
        self.attention(&format!("{layer}.self_attn"), width, "o_proj");
        self.attention(&format!("{layer}.cross_attn"), width, "o_proj");
        self.feed_forward(&format!("{layer}.mlp"), width, stack);
    }

    fn decoder(&mut self, config: &ModelConfig) {
        let width = config.width;
        let root = "detr_decoder";
        for i in 0..config.decoder.layers {
            let layer = format!("{root}.layers.{i}");
            for attention in ["self_attn", "text_cross_attn", "vision_cross_attn"] {
                self.attention(&format!("{layer}.{attention}"), width, "o_proj");
                self.norm(&format!("{layer}.{attention}_layer_norm"), width);
            }
            self.feed_forward(&format!("{layer}.mlp"), width, &config.decoder);
            self.norm(&format!("{layer}.mlp_layer_norm"), width);
        }
        self.norm(&format!("{root}.output_layer_norm"), width);
        self.norm(&format!("{root}.presence_layer_norm"), width);
        self.perceptron(&format!("{root}.box_head"), &[width, width, width, 4]);
        self.perceptron(&format!("{root}.presence_head"), &[width, width, width, 1]);
        self.perceptron(&format!("{root}.ref_point_head"), &[2 * width, width, width]);
        self.perceptron(&format!("{root}.box_rpb_embed_x"), &[2, width, config.decoder.heads]);
        self.perceptron(&format!("{root}.box_rpb_embed_y"), &[2, width, config.decoder.heads]);
        self.tensor(format!("{root}.query_embed.weight"), &[config.num_queries, width]);
        self.tensor(format!("{root}.reference_points.weight"), &[config.num_queries, 4]);
        self.tensor(format!("{root}.presence_token.weight"), &[1, width]);
    }

    fn mask_decoder(&mut self, config: &ModelConfig) {
        let width = config.width;
        let root = "mask_decoder";
        for i in 0..config.mask_stages {
            // Two stages reach the finest feature map.
            self.needed = i < 2;
            self.affine(&format!("{root}.pixel_decoder.conv_layers.{i}"), &[width, width, 3, 3], width);
            self.norm(&format!("{root}.pixel_decoder.norms.{i}"), width);
        }
        self.needed = true;
        for i in 0..3 {
            self.linear(&format!("{root}.mask_embedder.layers.{i}"), width, width);
        }
        self.affine(&format!("{root}.instance_projection"), &[width, width, 1, 1], width);
        self.affine(&format!("{root}.semantic_projection"), &[1, width, 1, 1], 1);
        self.attention(&format!("{root}.prompt_cross_attn"), width, "o_proj");
        self.norm(&format!("{root}.prompt_cross_attn_norm"), width);
    }

    fn scoring(&mut self, config: &ModelConfig) {
        let width = config.width;
        let root = "dot_product_scoring";
        self.perceptron(&format!("{root}.text_mlp"), &[width, config.scoring_hidden, width]);
        self.norm(&format!("{root}.text_mlp_out_norm"), width);
        self.linear(&format!("{root}.text_proj"), width, width);
        self.linear(&format!("{root}.query_proj"), width, width);
    }

    fn tracker(&mut self, tracker: &TrackerConfig, width: usize, hidden: usize) {
        let root = "tracker_model";
        self.neck("tracker_neck", width, hidden);
        let memory = tracker.memory_width;
        self.tensor(
            format!("{root}.memory_temporal_positional_encoding"),
            &[tracker.memory_rows, 1, 1, memory],
        );
        self.tensor(format!("{root}.occlusion_spatial_embedding_parameter"), &[1, memory]);
        self.tensor(format!("{root}.no_object_pointer"), &[1, width]);
        self.tensor(format!("{root}.no_memory_embedding"), &[1, 1, width]);
        self.unused(|list| {
            list.tensor(format!("{root}.no_memory_positional_encoding"), &[1, 1, width]);
            // Meta's files have one table for points and pixels.
            list.tensor(format!("{root}.shared_image_embedding.positional_embedding"), &[2, width / 2]);
        });
        self.linear(&format!("{root}.temporal_positional_encoding_projection_layer"), width, memory);
        self.three_layers(&format!("{root}.object_pointer_proj"), [width; 4]);
        self.affine(&format!("{root}.mask_downsample"), &[1, 1, 4, 4], 1);
        self.memory_attention(tracker, width);
        self.memory_encoder(tracker, width);
        self.click_encoder(tracker, width);
        self.tracker_decoder(tracker, width);
    }

    fn memory_attention(&mut self, tracker: &TrackerConfig, width: usize) {
        let root = "tracker_model.memory_attention";
        for i in 0..tracker.layers {
            let layer = format!("{root}.layers.{i}");
            for norm in 1..=3 {
                self.norm(&format!("{layer}.layer_norm{norm}"), width);
            }
            self.attention(&format!("{layer}.self_attn"), width, "o_proj");
            for (projection, input) in [
                ("q_proj", width),
                ("k_proj", tracker.memory_width),
                ("v_proj", tracker.memory_width),
                ("o_proj", width),
            ] {
                self.linear(&format!("{layer}.cross_attn_image.{projection}"), input, width);
            }
            self.linear(&format!("{layer}.linear1"), width, tracker.intermediate);
            self.linear(&format!("{layer}.linear2"), tracker.intermediate, width);
        }
        self.norm(&format!("{root}.layer_norm"), width);
    }

    fn memory_encoder(&mut self, tracker: &TrackerConfig, width: usize) {
        let root = "tracker_model.memory_encoder";
        let mut channels = 1;
        for i in 0..4 {
            let layer = format!("{root}.mask_downsampler.layers.{i}");
            self.affine(&format!("{layer}.conv"), &[4 * channels, channels, 3, 3], 4 * channels);
            channels *= 4;
            self.norm(&format!("{layer}.layer_norm"), channels);
        }
        self.affine(&format!("{root}.mask_downsampler.final_conv"), &[width, channels, 1, 1], width);
        self.affine(&format!("{root}.feature_projection"), &[width, width, 1, 1], width);
        for i in 0..tracker.fuser_layers {
            let layer = format!("{root}.memory_fuser.layers.{i}");
            self.affine(&format!("{layer}.depthwise_conv"), &[width, 1, 7, 7], width);
            self.norm(&format!("{layer}.layer_norm"), width);
            self.linear(&format!("{layer}.pointwise_conv1"), width, tracker.fuser_intermediate);
            self.linear(&format!("{layer}.pointwise_conv2"), tracker.fuser_intermediate, width);
            self.tensor(format!("{layer}.scale"), &[width]);
        }
        let memory = tracker.memory_width;
        self.affine(&format!("{root}.projection"), &[memory, width, 1, 1], memory);
    }

    fn click_encoder(&mut self, tracker: &TrackerConfig, width: usize) {
        let root = "tracker_model.prompt_encoder";
        self.tensor(format!("{root}.shared_embedding.positional_embedding"), &[2, width / 2]);
        for label in 0..4 {
            self.tensor(format!("{root}.point_embed.{label}.weight"), &[1, width]);
        }
        self.tensor(format!("{root}.not_a_point_embed.weight"), &[1, width]);
        self.tensor(format!("{root}.no_mask_embed.weight"), &[1, width]);
        let (few, channels) = (tracker.mask_channels / 4, tracker.mask_channels);
        self.affine(&format!("{root}.mask_embed.conv1"), &[few, 1, 2, 2], few);
        self.norm(&format!("{root}.mask_embed.layer_norm1"), few);
        self.affine(&format!("{root}.mask_embed.conv2"), &[channels, few, 2, 2], channels);
        self.norm(&format!("{root}.mask_embed.layer_norm2"), channels);
        self.affine(&format!("{root}.mask_embed.conv3"), &[width, channels, 1, 1], width);
    }

    fn tracker_decoder(&mut self, tracker: &TrackerConfig, width: usize) {
        let root = "tracker_model.mask_decoder";
        for i in 0..tracker.decoder.layers {
            let layer = format!("{root}.transformer.layers.{i}");
            for norm in 1..=4 {
                self.norm(&format!("{layer}.layer_norm{norm}"), width);
            }
            self.attention(&format!("{layer}.self_attn"), width, "o_proj");
            for attention in ["cross_attn_token_to_image", "cross_attn_image_to_token"] {
                self.narrow_attention(&format!("{layer}.{attention}"), width, tracker.decoder_width);
            }
            self.linear(&format!("{layer}.mlp.proj_in"), width, tracker.decoder.intermediate);
            self.linear(&format!("{layer}.mlp.proj_out"), tracker.decoder.intermediate, width);
        }
        let last = format!("{root}.transformer.final_attn_token_to_image");
        self.narrow_attention(&last, width, tracker.decoder_width);
        self.norm(&format!("{root}.transformer.layer_norm_final_attn"), width);
        for (token, rows) in [("iou_token", 1), ("mask_tokens", 4), ("obj_score_token", 1)] {
            self.tensor(format!("{root}.{token}.weight"), &[rows, width]);
        }
        let (quarter, eighth) = (width / 4, width / 8);
        self.affine(&format!("{root}.upscale_conv1"), &[width, quarter, 2, 2], quarter);
        self.norm(&format!("{root}.upscale_layer_norm"), quarter);
        self.affine(&format!("{root}.upscale_conv2"), &[quarter, eighth, 2, 2], eighth);
        self.affine(&format!("{root}.conv_s0"), &[eighth, width, 1, 1], eighth);
        self.affine(&format!("{root}.conv_s1"), &[quarter, width, 1, 1], quarter);
        for i in 0..4 {
            self.three_layers(
                &format!("{root}.output_hypernetworks_mlps.{i}"),
                [width, width, width, eighth],
            );
        }
        let hidden = tracker.iou_hidden;
        self.three_layers(&format!("{root}.iou_prediction_head"), [width, hidden, hidden, 4]);
        self.three_layers(&format!("{root}.pred_obj_score_head"), [width, width, width, 1]);
    }

    /// Attention whose heads together are narrower than the model.
    fn narrow_attention(&mut self, name: &str, width: usize, inner: usize) {
        for projection in ["q_proj", "k_proj", "v_proj"] {
            self.linear(&format!("{name}.{projection}"), width, inner);
        }
        self.linear(&format!("{name}.o_proj"), inner, width);
    }

    /// `proj_in`, `layers.0` and `proj_out`.
    fn three_layers(&mut self, name: &str, widths: [usize; 4]) {
        for (i, layer) in ["proj_in", "layers.0", "proj_out"].into_iter().enumerate() {
            self.linear(&format!("{name}.{layer}"), widths[i], widths[i + 1]);
        }
    }
}
