//! Meta's names of the detector's tensors, as rules: a name, its name in `transformers`, and how the tensor changes.
//!
//! Every change is another view of the same bytes, so no rule copies a weight.

use std::collections::HashMap;

use super::container::View;

/// The change of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Only the name.
    Rename,
    /// Rows of queries, keys and values become three tensors: `{}` in the name is q, k, v.
    Thirds,
    /// `[1, 1 + positions, width]` loses the position of the class token.
    DropFirst,
    /// Rows and columns are exchanged.
    Transpose,
}

/// One rule. `#` stands for a number, `#+` for that number and one.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) change: Change,
}

/// The start of the names of the memory tracker's neck.
pub(super) const TRACKER_NECK: &str = "backbone.vision_backbone.sam2_convs.";
/// What the tracker of SAM 3.1 is.
pub(super) const MULTIPLEX: &str = "the multiplex tracker of SAM 3.1, which is not supported";
const CLASSIFIER: &str = "the classifier of the image backbone";

/// Tensors of a checkpoint that no graph needs: the start of the name, or its end after a star, and what they are.
pub(super) const IGNORED: [(&str, &str); 14] = [
    ("tracker.model.", MULTIPLEX),
    ("inst_interactive_predictor.", "the interactive head of SAM 1"),
    ("backbone.vision_backbone.propagation_convs.", "the tracker's neck"),
    ("backbone.vision_backbone.interactive_convs.", "the interactive head's neck"),
    ("geometry_encoder.points_", "point prompts"),
    ("*.attn.freqs_cis", "rotary tables, which are computed"),
    ("*.attn.freqs_cis_real", "rotary tables, which are computed"),
    ("*.attn.freqs_cis_imag", "rotary tables, which are computed"),
    ("backbone.language_backbone.encoder.projection_layer", "a projection that the detector does not use"),
    ("*.num_batches_tracked", "counters of the training"),
    ("*.attention_bias_idxs", "indices of pairs in a window, which are computed"),
    ("backbone.vision_backbone.trunk.model.backbone.model.classifier.", CLASSIFIER),
    ("backbone.vision_backbone.trunk.model.backbone.model.norm_head.", CLASSIFIER),
    ("backbone.vision_backbone.trunk.model.backbone.model.head.", CLASSIFIER),
];

/// Why no graph needs a tensor, if so.
pub(super) fn ignored(name: &str) -> Option<&'static str> {
    let fits = |pattern: &str| match pattern.strip_prefix('*') {
        Some(end) => name.ends_with(end),
        None => name.starts_with(pattern),
    };
    IGNORED.iter().find(|(pattern, _)| fits(pattern)).map(|(_, why)| *why)
}

/// Rules by the name with `#` for all its numbers.
pub(super) struct Rules(HashMap<String, Vec<Rule>>);

impl Rules {
    pub(super) fn new(rules: Vec<Rule>) -> Self {
        let mut table: HashMap<String, Vec<Rule>> = HashMap::new();
        for rule in rules {
            table.entry(generic(&rule.from).0).or_default().push(rule);
        }
        Self(table)
    }

    /// The names and views in `transformers` of a tensor; `None` if no rule knows it, an error if its shape does not fit.
    pub(super) fn apply(&self, name: &str, view: &View) -> Option<Result<Vec<(String, View)>, String>> {
        let alike = self.0.get(&generic(name).0)?.iter();
        let (rule, numbers) = alike.filter_map(|rule| Some((rule, matches(&rule.from, name)?))).next()?;
        let to = fill(&rule.to, &numbers);
        let shape = &view.shape;
        Some(match rule.change {
            Change::Rename => Ok(vec![(to, view.clone())]),
            Change::DropFirst => {
                let size = shape.get(1).and_then(|size| size.checked_sub(1));
                match size.and_then(|size| view.narrow(1, 1, size)) {
                    Some(view) => Ok(vec![(to, view)]),
                    None => Err(format!("tensor {name} has shape {shape:?}: expected [1, positions, width]")),
                }
            }
            Change::Transpose => match view.transposed() {
                Some(view) => Ok(vec![(to, view)]),
                None => Err(format!("tensor {name} has shape {shape:?}: expected a matrix")),
            },
            Change::Thirds => thirds(name, &to, view),
        })
    }

    /// The name in this spelling of a tensor of `transformers`.
    pub(super) fn original(&self, name: &str) -> Option<String> {
        self.0.values().flatten().find_map(|rule| {
            ["q", "k", "v"].iter().find_map(|part| {
                let to = rule.to.replace("{}", part);
                let numbers = matches(&to, name)?;
                Some(fill(&rule.from, &numbers))
            })
        })
    }

    /// The names that the rules know, with the numbers of `name`.
    pub(super) fn names_like(&self, name: &str) -> Vec<String> {
        let (_, numbers) = generic(name);
        let patterns = self.0.values().flatten().map(|rule| &rule.from);
        patterns
            .filter(|from| from.matches('#').count() <= numbers.len())
            .map(|from| fill(from, &numbers))
            .collect()
    }
}

fn thirds(name: &str, to: &str, view: &View) -> Result<Vec<(String, View)>, String> {
    let rows = view.shape.first().copied().unwrap_or(0);
    let wrong = || format!("tensor {name} has shape {:?}: expected three blocks of rows", view.shape);
    if rows % 3 != 0 {
        return Err(wrong());
    }
    let size = rows / 3;
    let part = |(i, letter): (usize, &str)| {
        Ok((to.replace("{}", letter), view.narrow(0, i * size, size).ok_or_else(wrong)?))
    };
    ["q", "k", "v"].into_iter().enumerate().map(part).collect()
}

/// A name with `#` for its numbers, and the numbers.
fn generic(name: &str) -> (String, Vec<usize>) {
    let mut numbers = Vec::new();
    let parts: Vec<&str> = name
        .split('.')
        .map(|part| match part.parse() {
            Ok(number) if part.len() <= 6 => {
                numbers.push(number);
                "#"
            }
            _ => part,
        })
        .collect();
    (parts.join("."), numbers)
}

/// A pattern with its numbers.
fn fill(pattern: &str, numbers: &[usize]) -> String {
    let mut numbers = numbers.iter();
    let mut filled = String::with_capacity(pattern.len() + 4);
    let mut rest = pattern;
    while let Some(at) = rest.find('#') {
        filled.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let number = numbers.next().copied().unwrap_or(0);
        match rest.strip_prefix('+') {
            Some(after) => {
                filled.push_str(&(number + 1).to_string());
                rest = after;
            }
            None => filled.push_str(&number.to_string()),
        }
    }
    filled + rest
}

/// The numbers of `name` in a pattern, with `#+` counted back.
fn matches(pattern: &str, name: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    let (mut parts, mut names) = (pattern.split('.'), name.split('.'));
    loop {
        match (parts.next(), names.next()) {
            (None, None) => return Some(numbers),
            (Some("#"), Some(part)) => numbers.push(part.parse().ok()?),
            (Some(part), Some(found)) if part.ends_with("#+") => {
                let number: usize = found.strip_prefix(part.trim_end_matches("#+"))?.parse().ok()?;
                numbers.push(number.checked_sub(1)?);
            }
            (Some(part), Some(found)) if part == found => {}
            _ => return None,
        }
    }
}

/// Builds the table.
#[derive(Default)]
struct Table(Vec<Rule>);

impl Table {
    fn rule(&mut self, from: &str, to: &str, change: Change) {
        self.0.push(Rule { from: from.into(), to: to.into(), change });
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.rule(from, to, Change::Rename);
    }

    /// `weight` and `bias`.
    fn module(&mut self, from: &str, to: &str) {
        for end in ["weight", "bias"] {
            self.rename(&format!("{from}.{end}"), &format!("{to}.{end}"));
        }
    }

    fn modules(&mut self, from: &str, to: &str, names: &[(&str, &str)]) {
        for (old, new) in names {
            self.module(&format!("{from}{old}"), &format!("{to}{new}"));
        }
    }

    /// The fused projections of `torch.nn.MultiheadAttention`.
    fn attention(&mut self, from: &str, to: &str, output: &str) {
        for end in ["weight", "bias"] {
            let to = format!("{to}.{{}}_proj.{end}");
            self.rule(&format!("{from}.in_proj_{end}"), &to, Change::Thirds);
        }
        self.module(&format!("{from}.out_proj"), &format!("{to}.{output}"));
    }

    /// `layers.0 …` becomes `layer1 …`.
    fn perceptron(&mut self, from: &str, to: &str) {
        self.module(&format!("{from}.layers.#"), &format!("{to}.layer#+"));
    }

    /// A feature pyramid.
    fn neck(&mut self, from: &str, to: &str) {
        let names = [
            ("dconv_2x2_0", "scale_layers.0"),
            ("dconv_2x2", "scale_layers.0"),
            ("dconv_2x2_1", "scale_layers.2"),
            ("conv_1x1", "proj1"),
            ("conv_3x3", "proj2"),
        ];
        let (from, to) = (format!("backbone.vision_backbone.{from}.#."), format!("{to}.fpn_layers.#."));
        self.modules(&from, &to, &names);
    }

    /// Three layers, of which `transformers` names the first and the last by their place.
    fn three_layers(&mut self, from: &str, to: &str) {
        let names = [("0", "proj_in"), ("1", "layers.0"), ("2", "proj_out")];
        self.modules(&format!("{from}.layers."), &format!("{to}."), &names);
    }

    /// Attention with separate projections.
    fn projections(&mut self, from: &str, to: &str) {
        let names =
            [("q_proj", "q_proj"), ("k_proj", "k_proj"), ("v_proj", "v_proj"), ("out_proj", "o_proj")];
        self.modules(&format!("{from}."), &format!("{to}."), &names);
    }

    /// A layer with attention to itself and to the image.
    fn image_layer(&mut self, from: &str, to: &str) {
        self.attention(&format!("{from}.self_attn"), &format!("{to}.self_attn"), "o_proj");
        self.attention(&format!("{from}.cross_attn_image"), &format!("{to}.cross_attn"), "o_proj");
        let names = [
            ("linear1", "mlp.fc1"),
            ("linear2", "mlp.fc2"),
            ("norm1", "layer_norm1"),
            ("norm2", "layer_norm2"),
            ("norm3", "layer_norm3"),
        ];
        self.modules(&format!("{from}."), &format!("{to}."), &names);
    }
}

/// The rules for Meta's detector, without the prefix `detector.`.
pub(super) fn detector_rules() -> Vec<Rule> {
    let mut table = Table::default();
    vision(&mut table);
    text(&mut table);
    mobile_clip(&mut table);
    geometry(&mut table);
    table.image_layer("transformer.encoder.layers.#", "detr_encoder.layers.#");
    decoder(&mut table);
    masks_and_scores(&mut table);
    table.0
}

fn vision(table: &mut Table) {
    let (from, to) = ("backbone.vision_backbone.trunk", "vision_encoder.backbone");
    table.rule(
        &format!("{from}.pos_embed"),
        &format!("{to}.embeddings.position_embeddings"),
        Change::DropFirst,
    );
    table.rename(
        &format!("{from}.patch_embed.proj.weight"),
        &format!("{to}.embeddings.patch_embeddings.projection.weight"),
    );
    table.module(&format!("{from}.ln_pre"), &format!("{to}.layer_norm"));
    for end in ["weight", "bias"] {
        let to = format!("{to}.layers.#.attention.{{}}_proj.{end}");
        table.rule(&format!("{from}.blocks.#.attn.qkv.{end}"), &to, Change::Thirds);
    }
    let names = [
        ("norm1", "layer_norm1"),
        ("norm2", "layer_norm2"),
        ("attn.proj", "attention.o_proj"),
        ("mlp.fc1", "mlp.fc1"),
        ("mlp.fc2", "mlp.fc2"),
    ];
    table.modules(&format!("{from}.blocks.#."), &format!("{to}.layers.#."), &names);
    table.neck("convs", "vision_encoder.neck");
}

fn text(table: &mut Table) {
    let (from, to) = ("backbone.language_backbone.encoder", "text_encoder.text_model");
    table.rename(
        &format!("{from}.token_embedding.weight"),
        &format!("{to}.embeddings.token_embedding.weight"),
    );
    table.rename(
        &format!("{from}.positional_embedding"),
        &format!("{to}.embeddings.position_embedding.weight"),
    );
    let (layer, new) = (format!("{from}.transformer.resblocks.#"), format!("{to}.encoder.layers.#"));
    table.attention(&format!("{layer}.attn"), &format!("{new}.self_attn"), "out_proj");
    let names = [
        ("ln_1", "layer_norm1"),
        ("ln_2", "layer_norm2"),
        ("mlp.c_fc", "mlp.fc1"),
        ("mlp.c_proj", "mlp.fc2"),
    ];
    table.modules(&format!("{layer}."), &format!("{new}."), &names);
    table.module(&format!("{from}.ln_final"), &format!("{to}.final_layer_norm"));
    table.rule(&format!("{from}.text_projection"), "text_encoder.text_projection.weight", Change::Transpose);
    table.module("backbone.language_backbone.resizer", "text_projection");
}

/// MobileCLIP's text encoder, as EfficientSAM3 names it.
fn mobile_clip(table: &mut Table) {
    let (from, to) = ("backbone.language_backbone.encoder", "text_encoder");
    table.rename(
        &format!("{from}.embedding_layer.weight"),
        &format!("{to}.embeddings.token_embedding.weight"),
    );
    table.rename(
        &format!("{from}.positional_embedding.pos_embed.pos_embed"),
        &format!("{to}.embeddings.position_embedding.position_embedding"),
    );
    let (layer, new) = (format!("{from}.transformer.#"), format!("{to}.layers.#"));
    for end in ["weight", "bias"] {
        let to = format!("{new}.self_attn.{{}}_proj.{end}");
        table.rule(&format!("{layer}.pre_norm_mha.1.qkv_proj.{end}"), &to, Change::Thirds);
    }
    let names = [
        ("pre_norm_mha.1.out_proj", "self_attn.out_proj"),
        ("pre_norm_mha.0", "layer_norm1"),
        ("pre_norm_ffn.0", "layer_norm2"),
        ("pre_norm_ffn.1", "mlp.fc1"),
        ("pre_norm_ffn.4", "mlp.fc2"),
        ("convffn.fc1", "conv_feed_forward.mlp.fc1"),
        ("convffn.fc2", "conv_feed_forward.mlp.fc2"),
    ];
    table.modules(&format!("{layer}."), &format!("{new}."), &names);
    for scale in ["layer_scale", "token_mixer.layer_scale"] {
        table.rename(&format!("{layer}.{scale}"), &format!("{new}.{scale}"));
    }
    for (old, name) in [
        ("token_mixer.mixer.rbr_conv.0.conv", "token_mixer.mixer.conv"),
        ("convffn.conv.conv", "conv_feed_forward.depthwise_conv"),
    ] {
        table.rename(&format!("{layer}.{old}.weight"), &format!("{new}.{name}.weight"));
    }
    for (old, name) in [
        ("token_mixer.norm.rbr_skip", "token_mixer.reference_batchnorm"),
        ("token_mixer.mixer.rbr_skip", "token_mixer.mixer.batchnorm_skip"),
        ("token_mixer.mixer.rbr_conv.0.bn", "token_mixer.mixer.batchnorm_conv"),
        ("convffn.conv.bn", "conv_feed_forward.depthwise_batchnorm"),
    ] {
        for end in ["weight", "bias", "running_mean", "running_var"] {
            table.rename(&format!("{layer}.{old}.{end}"), &format!("{new}.{name}.{end}"));
        }
    }
    table.module(&format!("{from}.final_layer_norm"), &format!("{to}.final_layer_norm"));
    table.module("backbone.language_backbone.projector", "text_projection");
}

fn geometry(table: &mut Table) {
    let root = "geometry_encoder";
    table.image_layer(&format!("{root}.encode.#"), &format!("{root}.layers.#"));
    for name in ["boxes_direct_project", "boxes_pool_project", "boxes_pos_enc_project", "final_proj"] {
        table.module(&format!("{root}.{name}"), &format!("{root}.{name}"));
    }
    for name in ["label_embed.weight", "cls_embed.weight"] {
        table.rename(&format!("{root}.{name}"), &format!("{root}.{name}"));
    }
    let names = [
        ("img_pre_norm", "vision_layer_norm"),
        ("norm", "prompt_layer_norm"),
        ("encode_norm", "output_layer_norm"),
    ];
    table.modules(&format!("{root}."), &format!("{root}."), &names);
}

fn decoder(table: &mut Table) {
    let (from, to) = ("transformer.decoder", "detr_decoder");
    let (layer, new) = (format!("{from}.layers.#"), format!("{to}.layers.#"));
    for (old, name) in
        [("self_attn", "self_attn"), ("ca_text", "text_cross_attn"), ("cross_attn", "vision_cross_attn")]
    {
        table.attention(&format!("{layer}.{old}"), &format!("{new}.{name}"), "o_proj");
    }
    let names = [
        ("linear1", "mlp.fc1"),
        ("linear2", "mlp.fc2"),
        ("norm1", "vision_cross_attn_layer_norm"),
        ("catext_norm", "text_cross_attn_layer_norm"),
        ("norm2", "self_attn_layer_norm"),
        ("norm3", "mlp_layer_norm"),
    ];
    table.modules(&format!("{layer}."), &format!("{new}."), &names);
    table.module(&format!("{from}.norm"), &format!("{to}.output_layer_norm"));
    table.module(&format!("{from}.presence_token_out_norm"), &format!("{to}.presence_layer_norm"));
    for (old, name) in [
        ("bbox_embed", "box_head"),
        ("presence_token_head", "presence_head"),
        ("ref_point_head", "ref_point_head"),
        ("boxRPB_embed_x", "box_rpb_embed_x"),
        ("boxRPB_embed_y", "box_rpb_embed_y"),
    ] {
        table.perceptron(&format!("{from}.{old}"), &format!("{to}.{name}"));
    }
    for name in ["query_embed", "reference_points", "presence_token"] {
        table.rename(&format!("{from}.{name}.weight"), &format!("{to}.{name}.weight"));
    }
}

fn masks_and_scores(table: &mut Table) {
    let (from, to) = ("dot_prod_scoring", "dot_product_scoring");
    table.perceptron(&format!("{from}.prompt_mlp"), &format!("{to}.text_mlp"));
    let names = [
        ("prompt_mlp.out_norm", "text_mlp_out_norm"),
        ("prompt_proj", "text_proj"),
        ("hs_proj", "query_proj"),
    ];
    table.modules(&format!("{from}."), &format!("{to}."), &names);
    let (from, to) = ("segmentation_head", "mask_decoder");
    table.attention(&format!("{from}.cross_attend_prompt"), &format!("{to}.prompt_cross_attn"), "o_proj");
    let names = [
        ("mask_predictor.mask_embed.layers.#", "mask_embedder.layers.#"),
        ("instance_seg_head", "instance_projection"),
        ("semantic_seg_head", "semantic_projection"),
        ("cross_attn_norm", "prompt_cross_attn_norm"),
        ("pixel_decoder.conv_layers.#", "pixel_decoder.conv_layers.#"),
        ("pixel_decoder.norms.#", "pixel_decoder.norms.#"),
    ];
    table.modules(&format!("{from}."), &format!("{to}."), &names);
}

/// The rules for SAM 3's memory tracker, whose names begin with `tracker.`, and its neck.
pub(super) fn tracker_rules() -> Vec<Rule> {
    let mut table = Table::default();
    table.neck("sam2_convs", "tracker_neck");
    let (from, to) = ("tracker", "tracker_model");
    for (old, new) in [
        ("maskmem_tpos_enc", "memory_temporal_positional_encoding"),
        ("no_mem_embed", "no_memory_embedding"),
        ("no_mem_pos_enc", "no_memory_positional_encoding"),
        ("no_obj_ptr", "no_object_pointer"),
        ("no_obj_embed_spatial", "occlusion_spatial_embedding_parameter"),
    ] {
        table.rename(&format!("{from}.{old}"), &format!("{to}.{new}"));
    }
    table.module(&format!("{from}.mask_downsample"), &format!("{to}.mask_downsample"));
    let offsets = "temporal_positional_encoding_projection_layer";
    table.module(&format!("{from}.obj_ptr_tpos_proj"), &format!("{to}.{offsets}"));
    table.three_layers(&format!("{from}.obj_ptr_proj"), &format!("{to}.object_pointer_proj"));
    memory_attention(&mut table);
    memory_encoder(&mut table);
    click_encoder(&mut table);
    tracker_decoder(&mut table);
    table.0
}

fn memory_attention(table: &mut Table) {
    let (from, to) = ("tracker.transformer.encoder", "tracker_model.memory_attention");
    let (layer, new) = (format!("{from}.layers.#"), format!("{to}.layers.#"));
    for attention in ["self_attn", "cross_attn_image"] {
        table.projections(&format!("{layer}.{attention}"), &format!("{new}.{attention}"));
    }
    let names = [
        ("linear1", "linear1"),
        ("linear2", "linear2"),
        ("norm1", "layer_norm1"),
        ("norm2", "layer_norm2"),
        ("norm3", "layer_norm3"),
    ];
    table.modules(&format!("{layer}."), &format!("{new}."), &names);
    table.module(&format!("{from}.norm"), &format!("{to}.layer_norm"));
}

fn memory_encoder(table: &mut Table) {
    let (from, to) = ("tracker.maskmem_backbone", "tracker_model.memory_encoder");
    // The sequence is four times convolution, norm and activation, then the last convolution.
    let (sequence, new) = (format!("{from}.mask_downsampler.encoder."), format!("{to}.mask_downsampler."));
    for layer in 0..4 {
        table.module(&format!("{sequence}{}", 3 * layer), &format!("{new}layers.{layer}.conv"));
        table.module(&format!("{sequence}{}", 3 * layer + 1), &format!("{new}layers.{layer}.layer_norm"));
    }
    table.module(&format!("{sequence}12"), &format!("{new}final_conv"));
    let names = [("pix_feat_proj", "feature_projection"), ("out_proj", "projection")];
    table.modules(&format!("{from}."), &format!("{to}."), &names);
    let (layer, new) = (format!("{from}.fuser.layers.#."), format!("{to}.memory_fuser.layers.#."));
    let names = [
        ("dwconv", "depthwise_conv"),
        ("norm", "layer_norm"),
        ("pwconv1", "pointwise_conv1"),
        ("pwconv2", "pointwise_conv2"),
    ];
    table.modules(&layer, &new, &names);
    table.rename(&format!("{layer}gamma"), &format!("{new}scale"));
}

fn click_encoder(table: &mut Table) {
    let (from, to) = ("tracker.sam_prompt_encoder.", "tracker_model.prompt_encoder.");
    for (old, new) in [
        ("pe_layer.positional_encoding_gaussian_matrix", "shared_embedding.positional_embedding"),
        ("point_embeddings.#.weight", "point_embed.#.weight"),
        ("not_a_point_embed.weight", "not_a_point_embed.weight"),
        ("no_mask_embed.weight", "no_mask_embed.weight"),
    ] {
        table.rename(&format!("{from}{old}"), &format!("{to}{new}"));
    }
    let names = [("0", "conv1"), ("1", "layer_norm1"), ("3", "conv2"), ("4", "layer_norm2"), ("6", "conv3")];
    table.modules(&format!("{from}mask_downscaling."), &format!("{to}mask_embed."), &names);
}

fn tracker_decoder(table: &mut Table) {
    let (from, to) = ("tracker.sam_mask_decoder", "tracker_model.mask_decoder");
    let (layer, new) = (format!("{from}.transformer.layers.#"), format!("{to}.transformer.layers.#"));
    for attention in ["self_attn", "cross_attn_token_to_image", "cross_attn_image_to_token"] {
        table.projections(&format!("{layer}.{attention}"), &format!("{new}.{attention}"));
    }
    let names = [
        ("norm1", "layer_norm1"),
        ("norm2", "layer_norm2"),
        ("norm3", "layer_norm3"),
        ("norm4", "layer_norm4"),
        ("mlp.lin1", "mlp.proj_in"),
        ("mlp.lin2", "mlp.proj_out"),
    ];
    table.modules(&format!("{layer}."), &format!("{new}."), &names);
    let last = "transformer.final_attn_token_to_image";
    table.projections(&format!("{from}.{last}"), &format!("{to}.{last}"));
    let names = [
        ("transformer.norm_final_attn", "transformer.layer_norm_final_attn"),
        ("output_upscaling.0", "upscale_conv1"),
        ("output_upscaling.1", "upscale_layer_norm"),
        ("output_upscaling.3", "upscale_conv2"),
        ("conv_s0", "conv_s0"),
        ("conv_s1", "conv_s1"),
    ];
    table.modules(&format!("{from}."), &format!("{to}."), &names);
    for token in ["iou_token", "mask_tokens", "obj_score_token"] {
        table.rename(&format!("{from}.{token}.weight"), &format!("{to}.{token}.weight"));
    }
    for head in ["iou_prediction_head", "pred_obj_score_head", "output_hypernetworks_mlps.#"] {
        table.three_layers(&format!("{from}.{head}"), &format!("{to}.{head}"));
    }
}
