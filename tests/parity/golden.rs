//! A golden: a small checkpoint and the outputs of `transformers`. `tests/golden/parity/README.md` lists its tensors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ocelli::engines::Tensor;
use ocelli::export::{Checkpoint, ExportOptions, Pruning};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::exported::Outcome;

/// Folders of `tests/golden/parity`, listed so that a missing folder is noticed.
pub const NAMES: [&str; 6] = ["padded", "patch16", "plain", "released", "small_grid", "tiled"];

/// A checkpoint folder with `golden.safetensors`.
pub struct Golden {
    pub name: &'static str,
    /// The same folder.
    pub checkpoint: PathBuf,
    /// The pruning of `pruned.{i}.fpn_2`, by i.
    pub pruned: Vec<Variant>,
    tensors: BTreeMap<String, Tensor>,
    meta: Value,
}

/// Pruning, as the command line spells it.
pub struct Variant {
    pub skip_blocks: String,
    pub mask_blocks: String,
}

impl Variant {
    /// Adds the pruning to some options.
    pub fn apply(&self, options: ExportOptions) -> Outcome<ExportOptions> {
        let items =
            |text: &'_ str| text.split(',').filter(|s| !s.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let skip_blocks = items(&self.skip_blocks).iter().map(|s| s.parse()).collect::<Result<_, _>>()?;
        let mask_blocks = items(&self.mask_blocks).iter().map(|s| s.parse()).collect::<Result<_, _>>()?;
        Ok(ExportOptions { pruning: Pruning { skip_blocks, mask_blocks, ..Pruning::default() }, ..options })
    }
}

impl Golden {
    /// All of them.
    pub fn all() -> Vec<Self> {
        NAMES.into_iter().map(Self::open).collect()
    }

    /// Reads one.
    ///
    /// # Panics
    /// If it is missing or corrupt: goldens are part of the repository.
    pub fn open(name: &'static str) -> Self {
        let golden = Self::read(name, Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/parity").join(name));
        assert!(!golden.pruned.is_empty(), "{name} has no pruned variant");
        golden
    }

    /// Reads one of the goldens of other layouts, `tests/golden/checkpoints`.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub fn of_checkpoint(name: &'static str) -> Self {
        Self::read(name, Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/checkpoints").join(name))
    }

    /// Reads one of the goldens of the memory tracker.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub fn of_tracker(name: &'static str) -> Self {
        Self::read(name, Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/parity").join(name))
    }

    /// Reads one of the sessions of the memory tracker, `session.safetensors` beside its golden.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub fn of_session(name: &'static str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/parity").join(name);
        Self::read_file(name, folder, "session.safetensors")
    }

    /// Reads the session of SAM 3.1's tracker.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub fn of_bucket_session() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/checkpoints/multiplex");
        Self::read_file("multiplex", folder, "session.safetensors")
    }

    /// Reads the clicks on an image, `clicks.safetensors` beside a golden of the memory tracker.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub fn of_clicks(name: &'static str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/parity").join(name);
        Self::read_file(name, folder, "clicks.safetensors")
    }

    fn read(name: &'static str, folder: PathBuf) -> Self {
        Self::read_file(name, folder, "golden.safetensors")
    }

    fn read_file(name: &'static str, folder: PathBuf, file: &str) -> Self {
        let path = folder.join(file);
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("the script writes safetensors");
        let metadata = header.metadata().as_ref().expect("the script writes metadata");
        let json = |key: &str| serde_json::from_str::<Value>(&metadata[key]).expect("the script writes JSON");
        let text = |value: &Value| value.as_str().expect("blocks are text").to_owned();
        let variant = |v: &Value| Variant {
            skip_blocks: text(&v["skip_blocks"]),
            mask_blocks: text(&v["mask_blocks"]),
        };
        let pruned: Vec<_> = json("pruned").as_array().expect("a list").iter().map(variant).collect();
        let tensors = SafeTensors::deserialize(&bytes).expect("the header was read");
        let mut tensors: BTreeMap<_, _> =
            tensors.tensors().into_iter().map(|(name, view)| (name, tensor(&view))).collect();
        if let Some(aliases) = metadata.get("aliases") {
            let aliases: BTreeMap<String, String> =
                serde_json::from_str(aliases).expect("the script writes JSON");
            for (name, stored) in aliases {
                tensors.insert(name, tensors[&stored].clone());
            }
        }
        Self { name, checkpoint: folder, pruned, tensors, meta: json("meta") }
    }

    /// The checkpoint, opened.
    pub fn open_checkpoint(&self) -> Outcome<Checkpoint> {
        Ok(Checkpoint::open(&self.checkpoint)?)
    }

    /// A value of the metadata; null if there is none.
    pub fn value(&self, key: &str) -> &Value {
        &self.meta[key]
    }

    /// A number of the metadata.
    pub fn number(&self, key: &str) -> usize {
        self.meta[key].as_u64().unwrap_or_else(|| panic!("{}: no number {key}", self.name)) as usize
    }

    /// Number of blocks of the vision transformer.
    pub fn vision_blocks(&self) -> usize {
        let text =
            std::fs::read_to_string(self.checkpoint.join("config.json")).expect("a checkpoint has one");
        let config: Value = serde_json::from_str(&text).expect("the script writes JSON");
        let detector = config.get("detector_config").unwrap_or(&config);
        let blocks = &detector["vision_config"]["backbone_config"]["num_hidden_layers"];
        blocks.as_u64().expect("the configuration has it") as usize
    }

    /// A tensor.
    ///
    /// # Panics
    /// If no tensor has this name.
    pub fn tensor(&self, name: &str) -> &Tensor {
        self.find(name).unwrap_or_else(|| panic!("{}: no golden tensor {name}", self.name))
    }

    /// The tensor with this name, if any.
    pub fn find(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// The tensors whose names start with `prefix`, without it.
    pub fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().filter_map(move |(name, tensor)| Some((name.strip_prefix(prefix)?, tensor)))
    }

    /// Prompt and mask of the first `classes` phrases, with the tokens that `kind` appends: `[C, T, D]`, `[C, T]`.
    pub fn prompt(&self, kind: &str, classes: usize) -> (Tensor, Tensor) {
        let text = first(self.tensor("text.text_features"), classes);
        let mask = first(self.tensor("text.attention_mask"), classes);
        let appended = match kind {
            "text" => return (text, mask),
            "official" => self.tensor("backbone.image_prompt"),
            "exemplar" => self.tensor("exemplar.3.features"),
            other => panic!("no prompt of kind {other}"),
        };
        append_to_prompt(&text, &mask, appended)
    }
}

/// `text` `[C, L, D]` with `appended` `[1, A, D]` after every class, and its mask.
pub fn append_to_prompt(text: &Tensor, mask: &Tensor, appended: &Tensor) -> (Tensor, Tensor) {
    let &[classes, length, width] = text.shape() else { panic!("text features are [C, L, D]") };
    let more = appended.shape()[1];
    let extra = f32s(appended);
    let features =
        f32s(text).chunks(length * width).flat_map(|class| class.iter().chain(extra)).copied().collect();
    let ones = std::iter::repeat_n(1, more);
    let rows = mask.as_slice::<i64>().expect("masks are i64").chunks(length);
    let mask = rows.flat_map(|row| row.iter().copied().chain(ones.clone())).collect();
    let total = length + more;
    let features =
        Tensor::f32(&[classes, total, width], features).expect("each class has the same number of tokens");
    (features, Tensor::i64(&[classes, total], mask).expect("each class has the same number of tokens"))
}

/// A prompt with padding that its mask excludes; its values are far from those of the prompt.
pub fn append_padding((features, mask): &(Tensor, Tensor)) -> (Tensor, Tensor) {
    let &[_, length, width] = features.shape() else { panic!("prompts are [C, T, D]") };
    let noise = (0..2 * width).map(|i| if i % 3 == 0 { 50.0 } else { -20.0 }).collect();
    let noise = Tensor::f32(&[1, 2, width], noise).expect("two tokens");
    let (features, mut mask) = append_to_prompt(features, mask, &noise);
    for row in mask.as_mut_slice::<i64>().expect("masks are i64").chunks_mut(length + 2) {
        row[length..].fill(0);
    }
    (features, mask)
}

/// The first `count` of the outermost dimension.
pub fn first(tensor: &Tensor, count: usize) -> Tensor {
    range(tensor, 0, count)
}

/// `count` of the outermost dimension, from `from` on.
pub fn range(tensor: &Tensor, from: usize, count: usize) -> Tensor {
    let mut shape = tensor.shape().to_vec();
    let row: usize = shape[1..].iter().product();
    shape[0] = count;
    let span = from * row..(from + count) * row;
    match tensor.as_f32() {
        Ok(values) => Tensor::f32(&shape, values[span].to_vec()).expect("the number matches the shape"),
        Err(_) => {
            let values = tensor.as_slice::<i64>().expect("goldens have f32 and i64");
            Tensor::i64(&shape, values[span].to_vec()).expect("the number matches the shape")
        }
    }
}

/// The values.
pub fn f32s(tensor: &Tensor) -> &[f32] {
    tensor.as_f32().expect("only ids and masks are no f32")
}

fn tensor(view: &safetensors::tensor::TensorView<'_>) -> Tensor {
    match view.dtype() {
        Dtype::F32 => {
            let values = view.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            Tensor::f32(view.shape(), values).expect("the file says its shape")
        }
        Dtype::BF16 => {
            let halves = view.data().as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
            let values = halves.map(|half| f32::from_bits(u32::from(half) << 16)).collect();
            Tensor::f32(view.shape(), values).expect("the file says its shape")
        }
        Dtype::I64 => {
            let values = view.data().as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
            Tensor::i64(view.shape(), values).expect("the file says its shape")
        }
        Dtype::BOOL => {
            let values: Vec<bool> = view.data().iter().map(|byte| *byte != 0).collect();
            Tensor::new(view.shape(), values).expect("the file says its shape")
        }
        other => panic!("goldens have f32, bf16, i64 and bool, not {other:?}"),
    }
}
