//! The tensors of a checkpoint: names in `transformers` and in Meta's files, and shapes. One table, `tensors.txt`, has them.
//!
//! Where Meta's files store a tensor in another way, the difference is another view of the same bytes, so nothing is copied.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::container::View;
use crate::config::{ModelConfig, StudentOrigin, TextEncoder};
use crate::prune::{Branch, Pruning};
use crate::student;

/// The change that makes a tensor of Meta's files one of `transformers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Only the name changes.
    Rename,
    /// One of three blocks of rows: queries, keys, values.
    Third(usize),
    /// `[1, 1 + positions, width]` loses the position of the class token.
    DropFirst,
    /// Rows and columns are exchanged.
    Transpose,
}

/// A tensor of the table, or one for each number of a list.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    /// In `transformers`; `#` stands for a number.
    pub(super) name: String,
    /// In Meta's files, without the prefix `detector.`, if they have it.
    pub(super) meta: Option<String>,
    pub(super) change: Change,
    pub(super) shape: Vec<&'static str>,
    /// The numbers that `#` stands for.
    pub(super) list: &'static str,
    /// The part of a model that has it.
    pub(super) part: &'static str,
    /// Set if a graph needs it; others may be missing.
    pub(super) needed: bool,
}

/// Every tensor of the table.
pub(super) static TENSORS: LazyLock<Vec<Tensor>> = LazyLock::new(|| parse(include_str!("tensors.txt")));

fn parse(table: &'static str) -> Vec<Tensor> {
    let mut reader = Reader { tensors: Vec::new(), roots: ["", ""], part: "", list: "", needed: true };
    let (mut headers, mut is_new) = (Vec::new(), false);
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with("//")) {
        if let Some(header) = line.strip_prefix('[') {
            if !std::mem::replace(&mut is_new, true) {
                headers.clear();
            }
            let (roots, part) =
                header.trim_end_matches(']').split_once(" : ").expect("a section names its part");
            let (root, meta) = roots.split_once("= ").expect("a section has two roots");
            headers.push(([root.trim(), meta], part));
            continue;
        }
        is_new = false;
        let mut words = line.split_whitespace();
        let [name, meta, kind] = [(); 3].map(|()| words.next().expect("a line has two names and a kind"));
        let sizes: Vec<_> = words.collect();
        for (roots, part) in &headers {
            (reader.roots, reader.part) = (*roots, part);
            reader.row(name, meta, kind, &sizes);
        }
    }
    reader.tensors
}

/// Reads the table; the fields hold for the section or the line.
struct Reader {
    tensors: Vec<Tensor>,
    roots: [&'static str; 2],
    part: &'static str,
    pub(super) list: &'static str,
    pub(super) needed: bool,
}

impl Reader {
    fn row(&mut self, name: &'static str, meta: &str, kind: &str, sizes: &[&'static str]) {
        self.needed = !name.starts_with('?');
        let name = name.trim_start_matches('?');
        self.list = name.split('.').find_map(|part| part.strip_prefix('#')).unwrap_or_default();
        let name = match self.list {
            "" => name.to_owned(),
            list => name.replace(&format!("#{list}"), "#"),
        };
        let join =
            |root: &str, name: &str| if root.is_empty() { name.into() } else { format!("{root}.{name}") };
        let [root, meta_root] = self.roots;
        let meta = match meta {
            "-" => None,
            "=" => Some(join(meta_root, &name)),
            meta => Some(join(meta_root, meta)),
        };
        self.add(&join(root, &name), meta.as_deref(), kind, sizes);
    }

    /// Adds the tensors of a kind.
    fn add(&mut self, name: &str, meta: Option<&str>, kind: &str, sizes: &[&'static str]) {
        let with = |end: &str| meta.map(|meta| format!("{meta}{end}"));
        let mut layers = |parts: &[(&str, &str, &[&'static str])]| {
            for (end, meta_end, sizes) in parts {
                self.add(&format!("{name}.{end}"), with(&format!(".{meta_end}")).as_deref(), "affine", sizes);
            }
        };
        match (kind, sizes) {
            ("tensor", _) => self.tensor(name.into(), with(""), Change::Rename, sizes),
            ("positions", _) => self.tensor(name.into(), with(""), Change::DropFirst, sizes),
            ("transposed", _) => self.tensor(name.into(), with(""), Change::Transpose, sizes),
            ("thirds", [width]) => {
                for (end, shape) in [("weight", &[*width, *width][..]), ("bias", sizes)] {
                    for (third, letter) in ["q", "k", "v"].into_iter().enumerate() {
                        let name = format!("{name}.{letter}_proj.{end}");
                        self.tensor(name, with(end), Change::Third(third), shape);
                    }
                }
            }
            ("fused", [width]) => {
                layers(&[("o_proj", "out_proj", &[*width, *width])]);
                self.add(name, with(".in_proj_").as_deref(), "thirds", sizes);
            }
            ("attention", [inner, outer]) => layers(&[
                ("q_proj", "q_proj", sizes),
                ("k_proj", "k_proj", sizes),
                ("v_proj", "v_proj", sizes),
                ("o_proj", "out_proj", &[*outer, *inner]),
            ]),
            ("perceptron", _) => {
                for (i, pair) in sizes.windows(2).enumerate() {
                    layers(&[(&format!("layer{}", i + 1), &format!("layers.{i}"), &[pair[1], pair[0]])]);
                }
            }
            ("three", [a, b, c, d]) => layers(&[
                ("proj_in", "layers.0", &[*b, *a]),
                ("layers.0", "layers.1", &[*c, *b]),
                ("proj_out", "layers.2", &[*d, *c]),
            ]),
            _ => {
                let (ends, bias): (&[&str], _) = match (kind, sizes) {
                    ("weight", _) => (&[".weight"], sizes),
                    ("affine", [output, ..]) | ("up", [_, output, ..]) => {
                        (&[".weight", ".bias"], std::slice::from_ref(output))
                    }
                    ("batchnorm", [_]) => (&[".weight", ".bias", ".running_mean", ".running_var"], sizes),
                    _ => unreachable!("{name} in tensors.txt is {kind} {sizes:?}"),
                };
                for end in ends {
                    let shape = if *end == ".bias" { bias } else { sizes };
                    self.tensor(format!("{name}{end}"), with(end), Change::Rename, shape);
                }
            }
        }
    }

    fn tensor(&mut self, name: String, meta: Option<String>, change: Change, shape: &[&'static str]) {
        let Self { list, part, needed, .. } = *self;
        self.tensors.push(Tensor { name, meta, change, shape: shape.to_vec(), list, part, needed });
    }
}

/// The number that `#` stands for in a name, 0 without one; `None` if the name does not fit the pattern.
pub(super) fn number_in(pattern: &str, name: &str) -> Option<usize> {
    match pattern.split_once('#') {
        None => (pattern == name).then_some(0),
        Some((start, end)) => name.strip_prefix(start)?.strip_suffix(end)?.parse().ok(),
    }
}

fn fill(pattern: &str, number: usize) -> String {
    pattern.replace('#', &number.to_string())
}

/// The names and views in `transformers` of a tensor in Meta's files; `None` if the table does not have it, an error if its
/// shape does not fit.
pub(super) fn from_meta(
    tensors: &[Tensor],
    name: &str,
    view: &View,
) -> Option<Result<BTreeMap<String, View>, String>> {
    let fitting =
        tensors.iter().filter_map(|tensor| Some((tensor, number_in(tensor.meta.as_deref()?, name)?)));
    let views =
        fitting.map(|(tensor, number)| Ok((fill(&tensor.name, number), tensor.change.of(name, view)?)));
    let views: Result<BTreeMap<_, _>, _> = views.collect();
    (!views.as_ref().is_ok_and(BTreeMap::is_empty)).then_some(views)
}

/// The name in Meta's files of a tensor of `transformers`.
pub(super) fn metas_name(name: &str) -> Option<String> {
    let found = |tensor: &Tensor| Some(fill(tensor.meta.as_deref()?, number_in(&tensor.name, name)?));
    TENSORS.iter().find_map(found)
}

/// Meta's names with the number that `name` has.
pub(super) fn metas_names_like(name: &str) -> Vec<String> {
    let number = name.split('.').find_map(|part| part.parse().ok()).unwrap_or(0);
    TENSORS.iter().filter_map(|tensor| Some(fill(tensor.meta.as_deref()?, number))).collect()
}

impl Change {
    fn of(self, name: &str, view: &View) -> Result<View, String> {
        let rows = |axis: usize| view.shape.get(axis).copied().unwrap_or(0);
        let (changed, expected) = match self {
            Self::Rename => (Some(view.clone()), ""),
            Self::DropFirst => {
                (rows(1).checked_sub(1).and_then(|rows| view.narrow(1, 1, rows)), "[1, positions, width]")
            }
            Self::Transpose => (view.transposed(), "a matrix"),
            Self::Third(third) => {
                let size = rows(0) / 3;
                let part = (rows(0) % 3 == 0).then(|| view.narrow(0, third * size, size));
                (part.flatten(), "three blocks of rows")
            }
        };
        changed.ok_or_else(|| format!("tensor {name} has shape {:?}: expected {expected}", view.shape))
    }
}

/// A tensor that a checkpoint has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub(crate) shape: Vec<usize>,
    /// Set if a graph needs it; others may be missing.
    pub(crate) needed: bool,
}

/// Every tensor of the detector without the blocks and branches that were pruned, including tensors that no graph uses.
pub(crate) fn expected_tensors(config: &ModelConfig, pruned: &Pruning) -> BTreeMap<String, Requirement> {
    let mut expected = BTreeMap::new();
    for Tensor { name, shape, list, needed, .. } in
        TENSORS.iter().filter(|tensor| has_part(config, tensor.part))
    {
        let shape = shape.iter().map(|size| size_of(config, size).expect("the model has the part")).collect();
        let requirement = Requirement { shape, needed: *needed };
        for number in numbers(config, pruned, list) {
            expected.insert(fill(name, number), requirement.clone());
        }
    }
    if let Some(student) = &config.student {
        let mut add = |name, shape: &[usize]| {
            expected.insert(name, Requirement { shape: shape.to_vec(), needed: true });
        };
        student::all_tensors(student, [config.width, config.vision.hidden], &mut add);
    }
    expected
}

/// `true` if a model has a part of the table.
fn has_part(config: &ModelConfig, part: &str) -> bool {
    let student = config.student.as_ref();
    match part {
        "vit" => student.is_none(),
        "neck" => student.is_none_or(|student| student.origin == StudentOrigin::EfficientSam3),
        "clip" => config.text.encoder == TextEncoder::Clip,
        "mobile-clip" => config.text.encoder != TextEncoder::Clip,
        "exemplars" => config.has_exemplars(),
        "tracker" => config.tracker.as_ref().is_some_and(|tracker| tracker.slots.is_none()),
        "multiplex" => config.tracker.as_ref().is_some_and(|tracker| tracker.slots.is_some()),
        _ => true,
    }
}

/// The numbers of a list of the table.
fn numbers(config: &ModelConfig, pruned: &Pruning, list: &str) -> Vec<usize> {
    let first = |count: usize| (0..count).collect();
    let text = config.text.stack.layers;
    let is_mixer = |layer: usize| match config.text.encoder {
        TextEncoder::MobileClip(text_encoder) => text_encoder.rep_mixer && (layer == 0 || layer + 1 == text),
        TextEncoder::Clip => false,
    };
    let kept = |branch| {
        let blocks = (0..config.vision.stack.layers).filter(|block| !pruned.skip_blocks.contains(block));
        blocks.filter(|block| pruned.keeps(*block, branch)).collect()
    };
    let tracker = config.tracker.as_ref();
    match list {
        "" => vec![0],
        "vit-attention" => kept(Branch::Attention),
        "vit-mlp" => kept(Branch::Mlp),
        "text" => first(text),
        "text-attention" => (0..text).filter(|layer| !is_mixer(*layer)).collect(),
        "text-mixer" => (0..text).filter(|layer| is_mixer(*layer)).collect(),
        "geometry" => first(config.geometry.layers),
        "encoder" => first(config.encoder.layers),
        "decoder" => first(config.decoder.layers),
        // Two stages reach the finest feature map.
        "stages" => first(config.mask_stages.min(2)),
        "unused-stages" => (2..config.mask_stages).collect(),
        "tracker" => first(tracker.map_or(0, |tracker| tracker.layers)),
        "fuser" => first(tracker.map_or(0, |tracker| tracker.fuser_layers)),
        "tracker-decoder" => first(tracker.map_or(0, |tracker| tracker.decoder.layers)),
        count => first(count.parse().expect("a list of the table")),
    }
}

/// A size of the table; `None` if the model lacks the part that has it.
fn size_of(config: &ModelConfig, size: &str) -> Option<usize> {
    for (operator, compute) in
        [("/", (|a, b| a / b) as fn(usize, usize) -> usize), ("*", |a, b| a * b), ("+", |a, b| a + b)]
    {
        if let Some((a, b)) = size.split_once(operator) {
            return Some(compute(size_of(config, a)?, size_of(config, b)?));
        }
    }
    let (vision, text, tracker) = (&config.vision, &config.text, config.tracker.as_ref());
    let mobile_clip = match &text.encoder {
        TextEncoder::MobileClip(mobile_clip) => Some(mobile_clip),
        TextEncoder::Clip => None,
    };
    Some(match size {
        "hidden" => vision.hidden,
        "patch" => vision.patch_size,
        "table" => vision.pretrain_image_size / vision.patch_size,
        "vit-intermediate" => vision.stack.intermediate,
        "text" => text.hidden,
        "text-intermediate" => text.stack.intermediate,
        "text-projection" => text.projection,
        "vocabulary" => text.vocab_size,
        "context" => text.context_length,
        "positions" => mobile_clip?.positions,
        "kernel" => mobile_clip?.kernel,
        "width" => config.width,
        "roi" => config.roi_size,
        "geometry-intermediate" => config.geometry.intermediate,
        "encoder-intermediate" => config.encoder.intermediate,
        "decoder-intermediate" => config.decoder.intermediate,
        "decoder-heads" => config.decoder.heads,
        "queries" => config.num_queries,
        "scoring" => config.scoring_hidden,
        "times" => tracker?.memory_rows,
        "slots" => tracker?.slots?,
        "memory" => tracker?.memory_width,
        "tracker-intermediate" => tracker?.intermediate,
        "fuser-intermediate" => tracker?.fuser_intermediate,
        "channels" => tracker?.mask_channels,
        "inner" => tracker?.decoder_width,
        "decoder-mlp" => tracker?.decoder.intermediate,
        "iou" => tracker?.iou_hidden,
        number => number.parse().expect("a size of the table"),
    })
}
