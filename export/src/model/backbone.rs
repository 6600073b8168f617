//! `backbone.onnx`: the vision transformer, the neck, and the CLS token of a prompt without boxes.

use super::Plan;
use super::layers::LinearLayer;
use super::position::{TokenOrder, rotary_row, rotary_tables, rotate};
use crate::contract::{Prompting, Target, tensor};
use crate::graph::{Dim, Element, Graph, LinearForm, Value};
use crate::mixed_precision::{Block, Family};
use crate::prune::{Branch, MaskedBranch};

/// The blocks of the backbone that a graph contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// All of it.
    Whole,
    /// The blocks before the split.
    First,
    /// The blocks from the split on.
    Second,
    /// Of a [chain](crate::export_chain): pixels → tokens.
    Embedding,
    /// Of a chain: a branch of a block, with the residual sum.
    Branch(MaskedBranch),
    /// Of a chain: tokens → features.
    Neck,
}

impl Section {
    /// `true` if it begins with pixels; others begin with tokens.
    fn has_pixels(self) -> bool {
        matches!(self, Self::Whole | Self::First | Self::Embedding)
    }

    /// `true` if it ends with features; others end with tokens.
    fn has_features(self) -> bool {
        matches!(self, Self::Whole | Self::Second | Self::Neck)
    }

    /// `true` if it has this branch of its blocks.
    fn has(self, branch: Branch) -> bool {
        match self {
            Self::Branch(only) => only.branch == branch,
            _ => true,
        }
    }
}

const VIT: &str = "vision_encoder.backbone";
const NECK: &str = "vision_encoder.neck.fpn_layers";

impl<'w> Plan<'w> {
    /// The backbone, or one part of a split one.
    pub(crate) fn backbone(&self, g: &Graph<'w>, section: Section) {
        if let Some(student) = &self.config().student {
            return self.student(g, student);
        }
        let v = &self.config().vision;
        let order = TokenOrder { grid: self.grid(), window: v.window_size };
        let tokens = order.grid * order.grid;
        let split = self.options.pruning.split_block.unwrap_or(0);

        let mut x = if section.has_pixels() {
            g.block(Block::whole(Family::Patches));
            self.patch_tokens(g, order)
        } else {
            g.input(tensor::TOKENS, Element::F32, &[tokens.into(), v.hidden.into()])
        };
        let blocks = match section {
            Section::Whole => 0..v.stack.layers,
            Section::First => 0..split,
            Section::Second => split..v.stack.layers,
            Section::Branch(branch) => branch.block..branch.block + 1,
            Section::Embedding | Section::Neck => 0..0,
        };
        let attends = !blocks.is_empty() && section.has(Branch::Attention);
        let tables = attends.then(|| RotaryTables::new(g, self, order));
        g.write_linear_as(self.linear_form());
        for block in blocks.filter(|block| !self.options.pruning.skip_blocks.contains(block)) {
            g.block(Block::layer(Family::Vit, block));
            if let Some(tables) =
                tables.as_ref().filter(|_| self.options.pruning.keeps(block, Branch::Attention))
            {
                x = self.attention_branch(g, &x, block, tables);
            }
            if section.has(Branch::Mlp) && self.options.pruning.keeps(block, Branch::Mlp) {
                x = self.mlp_branch(g, &x, block);
            }
        }
        g.write_linear_as(LinearForm::Float);
        if section.has_features() {
            self.neck(g, &x, order);
        } else {
            // In one graph, an input and an output cannot have the same name.
            let name = if section.has_pixels() { tensor::TOKENS } else { tensor::NEXT_TOKENS };
            g.output(name, &x, &[tokens.into(), v.hidden.into()]);
        }
    }

    /// Pixels → patches, with positions, in token order: `[P·P, hidden]`.
    fn patch_tokens(&self, g: &Graph<'w>, order: TokenOrder) -> Value {
        let v = &self.config().vision;
        let (grid, hidden) = (order.grid, v.hidden);
        let side: Dim = self.imgsz.into();
        let pixels = g.input(tensor::PIXEL_VALUES, Element::F32, &[1.into(), 3.into(), side, side]);
        g.scope(format!("{VIT}.embeddings"));
        let kernel = g.weight(&format!("{VIT}.embeddings.patch_embeddings.projection.weight"));
        let patches = g.conv(&pixels, &kernel, None, v.patch_size, 0);
        let tokens = if order.by_window() {
            let (n, w) = (grid / order.window, order.window);
            let windows = g.reshape(&patches, &[hidden, n, w, n, w].map(Dim::from));
            g.transpose(&windows, &[1, 3, 2, 4, 0])
        } else {
            g.transpose(&g.reshape(&patches, &[hidden, grid * grid].map(Dim::from)), &[1, 0])
        };
        let tokens = g.reshape(&tokens, &[grid * grid, hidden].map(Dim::from));

        let table_side = v.pretrain_image_size / v.patch_size;
        let name = format!("{VIT}.embeddings.position_embeddings");
        let key = name.clone();
        let positions = g.derived(&format!("{name}.tiled"), &[grid * grid, hidden], move |weights| {
            let table = weights.read(&key)?;
            let row = |&(y, x): &(usize, usize)| {
                let at = (y % table_side * table_side + x % table_side) * hidden;
                table[at..at + hidden].iter().copied()
            };
            Ok(order.places().iter().flat_map(row).collect())
        });
        let x = g.add(&tokens, &positions);
        g.scope(VIT);
        g.norm_with(&x, &format!("{VIT}.layer_norm"), v.layer_norm_eps)
    }

    fn attention_branch(&self, g: &Graph<'w>, x: &Value, block: usize, tables: &RotaryTables) -> Value {
        let v = &self.config().vision;
        let name = format!("{VIT}.layers.{block}");
        g.scope(format!("{name}.attention"));
        let normed = g.norm_with(x, &format!("{name}.layer_norm1"), v.layer_norm_eps);
        g.add(x, &self.block_attention(g, &normed, block, tables))
    }

    fn mlp_branch(&self, g: &Graph<'w>, x: &Value, block: usize) -> Value {
        let v = &self.config().vision;
        let name = format!("{VIT}.layers.{block}");
        g.scope(format!("{name}.mlp"));
        let normed = g.norm_with(x, &format!("{name}.layer_norm2"), v.layer_norm_eps);
        g.add(x, &g.feed_forward(&normed, &format!("{name}.mlp"), &v.stack))
    }

    /// Attention inside windows or over the whole grid; x `[P·P, hidden]` in token order.
    fn block_attention(&self, g: &Graph<'w>, x: &Value, block: usize, tables: &RotaryTables) -> Value {
        let v = &self.config().vision;
        let (hidden, order, global) = (v.hidden, tables.order, v.global_blocks.contains(&block));
        let name = format!("{VIT}.layers.{block}.attention");
        let windowed_by_copy = !global && !order.by_window();
        let x = if windowed_by_copy { partition(g, x, order, hidden) } else { x.clone() };
        let [q, k, value] = g.linear_layers(&x, self.rotary_projections(g, &name));

        let (batch, length) = match (global, order.window) {
            (true, _) => (1, order.grid * order.grid),
            (false, w) => ((order.padded() / w) * (order.padded() / w), w * w),
        };
        let grouped = [batch, length, hidden].map(Dim::from);
        let [q, k, value] = [&q, &k, &value].map(|t| g.reshape(t, &grouped));
        let table = if global { &tables.global } else { &tables.window };
        let mixed = match self.options.target {
            Target::OnnxRuntime => {
                let [q, k] = [&q, &k].map(|t| g.fused_rotary(t, &table[0], &table[1]));
                g.attend([&q, &k, &value], v.stack.heads, None)
            }
            Target::TensorRt => {
                let [q, k, value] = [&q, &k, &value].map(|t| g.split_heads(t, v.stack.heads));
                let [q, k] = [&q, &k].map(|t| rotate(g, t, table));
                g.explicit_attention([&q, &k, &value], None)
            }
        };
        let mixed = if windowed_by_copy {
            unpartition(g, &mixed, order, hidden)
        } else {
            g.reshape(&mixed, &[order.grid * order.grid, hidden].map(Dim::from))
        };
        g.linear(&mixed, &format!("{name}.o_proj"))
    }

    /// The projections of queries, keys and values, the first two with their channels in the order of [`rotary_row`].
    fn rotary_projections(&self, g: &Graph<'w>, name: &str) -> [LinearLayer; 3] {
        let v = &self.config().vision;
        let (hidden, heads) = (v.hidden, v.stack.heads);
        let order: Vec<usize> = (0..hidden).map(|row| rotary_row(row, hidden / heads)).collect();
        let query = LinearLayer::queries_of(g, name, heads);
        let [key, value] = ["k_proj", "v_proj"].map(|p| LinearLayer::new(&format!("{name}.{p}")));
        [LinearLayer { order: order.clone(), ..query }, LinearLayer { order, ..key }, value]
    }

    /// Tokens → the feature pyramid and the CLS token.
    fn neck(&self, g: &Graph<'w>, x: &Value, order: TokenOrder) {
        let hidden = self.config().vision.hidden;
        let grid = order.grid;
        g.scope("vision_encoder.neck");
        g.block(Block::whole(Family::Neck));
        let map = if order.by_window() {
            let (n, w) = (grid / order.window, order.window);
            g.transpose(&g.reshape(x, &[n, n, w, w, hidden].map(Dim::from)), &[4, 0, 2, 1, 3])
        } else {
            g.transpose(x, &[1, 0])
        };
        let shape = [1, hidden, grid, grid].map(Dim::from);
        let map = g.reshape(&map, &shape);
        self.pyramid(g, &map);
        if self.tracker {
            g.output(tensor::HIDDEN, &map, &shape);
        }
    }

    /// Features of the grid, `[1, hidden, P, P]` → the feature pyramid and the CLS token.
    pub(super) fn pyramid(&self, g: &Graph<'w>, map: &Value) {
        if !self.options.detection_only {
            let fine = g.convolution_transpose(map, &format!("{NECK}.0.scale_layers.0"));
            let fine = g.gelu(&fine, false);
            let fine = g.convolution_transpose(&fine, &format!("{NECK}.0.scale_layers.2"));
            self.level_output(g, &self.project(g, &fine, 0), 0);
            let middle = g.convolution_transpose(map, &format!("{NECK}.1.scale_layers.0"));
            self.level_output(g, &self.project(g, &middle, 1), 1);
        }
        self.level_output(g, &self.project(g, map, 2), 2);
    }

    /// A level of the pyramid as an output; the last with the CLS token.
    pub(super) fn level_output(&self, g: &Graph<'w>, x: &Value, level: usize) {
        let (width, side) = (self.config().width, self.grid() << (2 - level));
        g.output(tensor::FPN[level], x, &[1, width, side, side].map(Dim::from));
        if level == 2 && self.options.prompting == Prompting::Official {
            g.output(tensor::IMAGE_PROMPT, &self.image_prompt(g, x), &[1, 1, width].map(Dim::from));
        }
    }

    fn project(&self, g: &Graph<'w>, x: &Value, level: usize) -> Value {
        let x = g.convolution(x, &format!("{NECK}.{level}.proj1"), 1, 0);
        g.convolution(&x, &format!("{NECK}.{level}.proj2"), 1, 1)
    }
}

/// Cosines and sines for window blocks and for whole-grid blocks of tokens in this order.
struct RotaryTables {
    order: TokenOrder,
    window: [Value; 2],
    global: [Value; 2],
}

impl RotaryTables {
    fn new<'w>(g: &Graph<'w>, plan: &Plan<'w>, order: TokenOrder) -> Self {
        let v = &plan.config().vision;
        let head = v.hidden / v.stack.heads;
        g.scope("rotary");
        let tables = |name: &str, places: &[(usize, usize)], scale: f64| {
            let [cos, sin] = rotary_tables(places, scale, head, v.rope_theta);
            let dims = [places.len(), head / 2];
            [("cos", cos), ("sin", sin)]
                .map(|(wave, table)| g.constant(&format!("rotary.{name}.{wave}"), &dims, &table))
        };
        let window = TokenOrder { grid: order.window, window: order.window };
        Self {
            order,
            window: tables("window", &window.places(), 1.0),
            global: tables("global", &order.places(), order.window as f64 / order.grid as f64),
        }
    }
}

/// Raster tokens → windows, with the grid padded with zeros. The zeros are attended to, as in the reference.
pub(super) fn partition(g: &Graph<'_>, x: &Value, order: TokenOrder, hidden: usize) -> Value {
    let (grid, w, padded) = (order.grid, order.window, order.padded());
    let n = padded / w;
    let mut x = g.reshape(x, &[grid, grid, hidden].map(Dim::from));
    if padded > grid {
        x = g.pad(&x, &[0; 3], &[padded - grid, padded - grid, 0]);
    }
    let x = g.transpose(&g.reshape(&x, &[n, w, n, w, hidden].map(Dim::from)), &[0, 2, 1, 3, 4]);
    g.reshape(&x, &[padded * padded, hidden].map(Dim::from))
}

/// Windows → raster tokens, without the padding.
pub(super) fn unpartition(g: &Graph<'_>, x: &Value, order: TokenOrder, hidden: usize) -> Value {
    let (grid, w, padded) = (order.grid, order.window, order.padded());
    let n = padded / w;
    let x = g.transpose(&g.reshape(x, &[n, n, w, w, hidden].map(Dim::from)), &[0, 2, 1, 3, 4]);
    let mut x = g.reshape(&x, &[padded, padded, hidden].map(Dim::from));
    if padded > grid {
        x = g.slice(&x, 0, 0, grid);
        x = g.slice(&x, 1, 0, grid);
    }
    g.reshape(&x, &[grid * grid, hidden].map(Dim::from))
}
