//! Reads the tensors of a checkpoint under their names in `transformers`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::container::{Attribute, Container, View};
use super::family::{Family, spell};
use super::nearest::nearest;
use super::shapes::{RotaryShapes, layer_count};
use super::tensors::{TENSORS, from_meta, metas_name, metas_names_like};
use super::weights::Weights;
use crate::errors::invalid;
use crate::prune::{Branch, MaskedBranch, Pruning};
use crate::read_text;
use ocelli_error::{Error, Result};

/// Prefix of the detector's tensors in the checkpoint of `transformers`.
const DETECTOR: &str = "detector_model.";
/// Prefixes of the memory trackers' models and necks.
pub(super) const TRACKERS: [&str; 3] = ["tracker_", "multiplex_", "interactive_"];
/// The name of what is left out if there is no tracker that can be exported.
pub(super) const TRACKER: &str = "the video tracker";
/// The same, if the file has a part of SAM 3.1's.
pub(super) const PARTIAL_TRACKER: &str = "the tracker of SAM 3.1, of which parts are missing";
/// The prefix that `save_pretrained` of transformers 5.23 writes twice.
const TRACKER_MODEL: &str = "tracker_model.";
/// A file has a tracker if it has one of these tensors: SAM 3's, SAM 3.1's.
const TRACKER_SIGNS: [&str; 2] = [
    "tracker_model.memory_attention.layer_norm.weight",
    "multiplex_model.memory_attention.layer_norm.weight",
];
/// One tensor in `transformers`, four in Meta's files, of which the graphs need the rows.
const POINT_EMBEDDINGS: &str = "tracker_model.prompt_encoder.point_embed.weight";
/// Tables and counters that some versions of `transformers` save although nothing needs them.
const DERIVED: [&str; 3] = [".position_ids", ".rotary_emb.inv_freq", ".num_batches_tracked"];
/// Dictionaries that training programs put around the tensors; the empty name is the file's root.
const WRAPPERS: [&str; 6] =
    ["", "model", "state_dict", "model_state_dict", "student_state_dict", "pruned_state_dict"];

/// The starts of the names of the memory trackers' necks.
const TRACKER_NECKS: [&str; 3] = ["sam2_convs.", "propagation_convs.", "interactive_convs."];
const CLASSIFIER: &str = "the classifier of the image backbone";

/// Tensors of a checkpoint that no graph needs: the start of the name, or its end after a star, and what they are.
const IGNORED: [(&str, &str); 11] = [
    ("inst_interactive_predictor.", "the interactive head of SAM 1"),
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
fn ignored(name: &str) -> Option<&'static str> {
    let fits = |pattern: &str| match pattern.strip_prefix('*') {
        Some(end) => name.ends_with(end),
        None => name.starts_with(pattern),
    };
    IGNORED.iter().find(|(pattern, _)| fits(pattern)).map(|(_, why)| *why)
}

/// The content of a checkpoint.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) family: Family,
    pub(super) weights: Weights,
    /// The parts that are left out, with the number of their tensors and bytes.
    pub(super) ignored: BTreeMap<String, (usize, u64)>,
    /// Tensors that nothing knows.
    pub(super) unknown: Vec<String>,
    /// Those of a tracker that nothing knows.
    unknown_of_tracker: Vec<(String, View)>,
    /// Set if the memory tracker is there.
    pub(super) has_tracker: bool,
    /// The first tensor whose shape no rule fits.
    pub(super) misshapen: Option<String>,
    pub(super) rotary: RotaryShapes,
    /// Blocks of the vision transformer, by the largest number.
    pub(super) blocks: usize,
    /// The blocks that a pruned file lacks, by its own lists.
    pub(super) pruning: Pruning,
    /// Set if the tensors have Meta's names in the file.
    pub(super) has_metas_names: bool,
}

impl Loaded {
    /// A name's spelling in the file.
    pub(super) fn spelled(&self, name: &str) -> String {
        let (prefix, replaced) = self.family.prefix();
        // The tracker's own tensors have no prefix of a detector.
        let rest = TRACKERS.iter().find_map(|tracker| name.strip_prefix(tracker));
        let is_of_tracker = rest.is_some_and(|rest| rest.starts_with("model."));
        let prefix = if is_of_tracker { "" } else { prefix };
        if let Some(local) = self.family.student_original(name) {
            return format!("{prefix}{local}");
        }
        match metas_name(name).filter(|_| self.has_metas_names) {
            Some(original) => format!("{prefix}{}", original.strip_prefix(replaced).unwrap_or(&original)),
            None => name.to_owned(),
        }
    }

    /// The error for the first tensor that does not belong here.
    pub(super) fn check_known(&self) -> Result<()> {
        if let Some(message) = &self.misshapen {
            return Err(invalid(message.clone()));
        }
        let Some(name) = self.unknown.first() else { return Ok(()) };
        let (prefix, replaced) = self.family.prefix();
        let local = format!("{replaced}{}", name.strip_prefix(prefix).unwrap_or(name));
        let known = if self.has_metas_names { metas_names_like(&local) } else { Vec::new() };
        let hint = nearest(&local, known.iter().map(String::as_str)).map_or_else(String::new, |near| {
            format!("; the nearest one is {prefix}{}", near.strip_prefix(replaced).unwrap_or(near))
        });
        Err(invalid(format!("unknown tensor {name}: {} has no such tensor{hint}", self.family)))
    }
}

/// The weight files of a Hugging Face folder: `model.safetensors`, or the shards that its index names.
pub(super) fn folder_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let whole = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    if whole.is_file() {
        Ok(vec![whole])
    } else if index.is_file() {
        shard_paths(folder, &index)
    } else {
        Err(invalid(format!(
            "no weights, {}: expected model.safetensors, or its shards with model.safetensors.index.json",
            folder.display()
        )))
    }
}

/// Loads the tensors of one checkpoint, which may be in several files.
pub(super) fn load(paths: &[PathBuf]) -> Result<Loaded> {
    let containers = paths.iter().map(|path| Container::open(path)).collect::<Result<Vec<_>>>()?;
    let shown = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    let (family, wrapper) = recognise(&containers).ok_or_else(|| unrecognised(&containers, &shown))?;
    let mut loaded = Loaded::new(family);
    let nested = containers
        .iter()
        .any(|container| container.groups.values().flatten().any(|(name, _)| name.starts_with(DETECTOR)));
    let mut attributes = Vec::new();
    for container in containers {
        let Container { file, mut groups, attributes: found } = container;
        let index = loaded.weights.add_file(file);
        let tensors = groups.remove(wrapper).unwrap_or_default();
        for (group, others) in groups {
            loaded.ignore(
                &format!("outside {}: {group}", if wrapper.is_empty() { "the root" } else { wrapper }),
                &others,
            );
        }
        for (name, view) in tensors {
            match family {
                Family::HuggingFace => loaded.add_transformers(&name, view, index, nested)?,
                _ => loaded.add_meta(&name, view, index)?,
            }
        }
        attributes.extend(found);
    }
    if family == Family::DartPruned {
        loaded.pruning = pruning_lists(&attributes)?;
    }
    Ok(loaded.finish())
}

/// The family of some files, and the dictionary that holds the tensors.
fn recognise(containers: &[Container]) -> Option<(Family, &'static str)> {
    WRAPPERS.into_iter().find_map(|wrapper| {
        let names: Vec<String> = containers
            .iter()
            .filter_map(|container| container.groups.get(wrapper))
            .flatten()
            .map(|(name, _)| spell(name))
            .collect();
        Family::of(names.iter().map(String::as_str)).map(|family| (family, wrapper))
    })
}

fn unrecognised(containers: &[Container], path: &str) -> Error {
    let groups = containers.iter().flat_map(|container| &container.groups);
    let largest = groups.max_by_key(|(_, tensors)| tensors.len());
    let largest =
        largest.and_then(|(group, all)| Some((group, all.iter().map(|one| &one.0).min()?, all.len())));
    let found = match largest {
        Some((group, name, count)) => {
            let place = if group.is_empty() { String::new() } else { format!(" under {group}") };
            format!("its {count} tensors{place} begin with {name}")
        }
        None => "it has no tensors".into(),
    };
    invalid(format!(
        "no known checkpoint, {path}: {found}; expected SAM3 in the names of transformers (vision_encoder.…) or of Meta \
         (detector.backbone.…), or a backbone of DART"
    ))
}

impl Loaded {
    fn new(family: Family) -> Self {
        Self { family, has_metas_names: family != Family::HuggingFace, ..Self::default() }
    }

    /// Sums up, once every tensor is added.
    fn finish(mut self) -> Self {
        self.has_tracker = self.settle_tracker();
        let names = self.weights.views.keys().map(String::as_str);
        self.blocks = layer_count(names, "vision_encoder.backbone.layers.");
        self
    }

    /// `true` if the file has the memory tracker; what there is of another one is ignored.
    fn settle_tracker(&mut self) -> bool {
        let strays = std::mem::take(&mut self.unknown_of_tracker);
        if TRACKER_SIGNS.iter().any(|sign| self.weights.views.contains_key(*sign)) {
            if self.has_buckets() {
                self.ignore("unknown parts of SAM 3.1's tracker", &strays);
            } else {
                self.unknown.extend(strays.into_iter().map(|(name, _)| name));
            }
            return true;
        }
        self.ignore(TRACKER, &strays);
        self.leave_out_tracker(TRACKER);
        false
    }

    /// Removes what there is of a tracker that is not exported.
    pub(super) fn leave_out_tracker(&mut self, why: &str) {
        for prefix in TRACKERS {
            let removed = self.weights.remove(prefix);
            self.ignore(why, &removed);
        }
    }

    /// `true` if the file has SAM 3.1's tracker, or most of it.
    pub(super) fn has_buckets(&self) -> bool {
        self.weights.views.contains_key(TRACKER_SIGNS[1])
    }

    /// The tracker of which the file has a part.
    pub(super) fn left_out(&self) -> Option<&'static str> {
        self.ignored.contains_key(PARTIAL_TRACKER).then_some(PARTIAL_TRACKER)
    }

    /// A file of such tensors, without values.
    #[cfg(test)]
    pub(super) fn of_shapes(tensors: &[(String, Vec<usize>, super::container::Format)]) -> Option<Self> {
        let family = Family::of(tensors.iter().map(|(name, ..)| name.as_str()))?;
        let mut loaded = Self::new(family);
        for (name, shape, format) in tensors {
            let view = View::of_shape(*format, shape);
            let added = match family {
                Family::HuggingFace => loaded.add_transformers(name, view, 0, false),
                _ => loaded.add_meta(name, view, 0),
            };
            added.ok()?;
        }
        Some(loaded.finish())
    }

    fn ignore(&mut self, why: &str, tensors: &[(String, View)]) {
        if tensors.is_empty() {
            return;
        }
        let tally = self.ignored.entry(why.to_owned()).or_default();
        for (_, view) in tensors {
            *tally = (tally.0 + 1, tally.1.saturating_add(view.bytes()));
        }
    }

    fn add_transformers(&mut self, name: &str, view: View, file: usize, nested: bool) -> Result<()> {
        if DERIVED.iter().any(|suffix| name.ends_with(suffix)) {
            self.ignore("tables and counters that nothing needs", &[(name.to_owned(), view)]);
            return Ok(());
        }
        let name = if nested { name.strip_prefix(DETECTOR).unwrap_or(name) } else { name };
        let name =
            name.strip_prefix(TRACKER_MODEL).filter(|rest| rest.starts_with(TRACKER_MODEL)).unwrap_or(name);
        if name == POINT_EMBEDDINGS {
            return self.add_point_embeddings(name, &view, file);
        }
        self.weights.insert(name.to_owned(), file, view)
    }

    fn add_point_embeddings(&mut self, name: &str, table: &View, file: usize) -> Result<()> {
        for row in 0..table.shape.first().copied().unwrap_or(0) {
            let view =
                table.narrow(0, row, 1).ok_or_else(|| invalid(format!("tensor {name} has no rows")))?;
            self.weights.insert(name.replace(".weight", &format!(".{row}.weight")), file, view)?;
        }
        Ok(())
    }

    fn add_meta(&mut self, name: &str, view: View, file: usize) -> Result<()> {
        let spelled = spell(name);
        let (prefix, replaced) = self.family.prefix();
        let local = match spelled.strip_prefix(prefix) {
            Some(local) => format!("{replaced}{local}"),
            None => spelled.clone(),
        };
        if let Some(block) = local.strip_suffix(".attn.freqs_cis").and_then(|rest| rest.rsplit('.').next())
            && let (Ok(block), [rows, columns]) = (block.parse(), view.shape.as_slice())
        {
            self.rotary.insert(block, [*rows, *columns]);
        }
        if let Some(why) = ignored(&local) {
            self.ignore(why, &[(name.to_owned(), view)]);
            return Ok(());
        }
        // Outside the prefix there is no detector, but the tracker; its neck is among the detector's.
        let neck = local.strip_prefix("backbone.vision_backbone.").unwrap_or_default();
        let of_tracker =
            spelled.starts_with("tracker.") || TRACKER_NECKS.iter().any(|start| neck.starts_with(start));
        let inside = spelled.starts_with(prefix) || of_tracker;
        if let Some(name) = self.family.student_name(&local).filter(|_| inside) {
            return self.weights.insert_adapted(name, file, view);
        }
        match inside.then(|| from_meta(&TENSORS, &local, &view)).flatten() {
            Some(Ok(views)) => {
                for (name, view) in views {
                    self.weights.insert(name, file, view)?;
                }
            }
            Some(Err(why)) => drop(self.misshapen.get_or_insert(why)),
            None if of_tracker => self.unknown_of_tracker.push((spelled, view)),
            None => self.unknown.push(spelled),
        }
        Ok(())
    }
}

/// The lists of a pruned file: `skip_blocks`, numbers, and `mask_blocks`, texts as `25:attn`.
fn pruning_lists(attributes: &[(String, Attribute)]) -> Result<Pruning> {
    let find = |name: &str| attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let wrong = |name: &str| invalid(format!("{name} in the file is no list of blocks"));
    let list = |name| match find(name) {
        None | Some(Attribute::Other) => Ok(&[][..]),
        Some(Attribute::List(items)) => Ok(items.as_slice()),
        Some(_) => Err(wrong(name)),
    };
    let mut pruning = Pruning::default();
    for item in list("skip_blocks")? {
        let Attribute::Integer(block) = item else { return Err(wrong("skip_blocks")) };
        pruning.skip_blocks.insert(usize::try_from(*block).map_err(|_| wrong("skip_blocks"))?);
    }
    let items: Vec<&str> = match find("mask_blocks") {
        Some(Attribute::Text(text)) => text.split(',').filter(|part| !part.trim().is_empty()).collect(),
        _ => {
            let texts = list("mask_blocks")?.iter().map(|item| match item {
                Attribute::Text(text) => Some(text.as_str()),
                _ => None,
            });
            texts.collect::<Option<_>>().ok_or_else(|| wrong("mask_blocks"))?
        }
    };
    for item in items {
        pruning.mask_blocks.insert(item.parse::<MaskedBranch>().map_err(|_| wrong("mask_blocks"))?);
    }
    Ok(pruning)
}

/// Compares the lists of a pruned file with the tensors that it lacks, of `blocks` blocks.
pub(super) fn check_pruning(weights: &Weights, pruning: &Pruning, blocks: usize) -> Result<()> {
    let mut present = BTreeSet::new();
    for name in weights.views.keys() {
        let Some(rest) = name.strip_prefix("vision_encoder.backbone.layers.") else { continue };
        let Some((block, rest)) = rest.split_once('.') else { continue };
        let branch = if rest.starts_with("attention.") || rest.starts_with("layer_norm1.") {
            Branch::Attention
        } else {
            Branch::Mlp
        };
        if let Ok(block) = block.parse::<usize>() {
            present.insert(MaskedBranch { block, branch });
        }
    }
    for block in 0..blocks {
        for branch in [Branch::Attention, Branch::Mlp] {
            let masked = MaskedBranch { block, branch };
            let removed = pruning.skip_blocks.contains(&block) || pruning.mask_blocks.contains(&masked);
            if removed == present.contains(&masked) {
                let has = if removed { "has" } else { "lacks" };
                let lists = if removed { "lists it as removed" } else { "does not list it as removed" };
                return Err(invalid(format!(
                    "the pruned file {has} the tensors of {masked}, but {lists} (skip_blocks, mask_blocks)"
                )));
            }
        }
    }
    Ok(())
}

fn shard_paths(folder: &Path, index: &Path) -> Result<Vec<PathBuf>> {
    let text = read_text(index, "the index of shards")?;
    let damaged = |why: String| invalid(format!("corrupt index of shards, {}: {why}", index.display()));
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
    let map = json
        .get("weight_map")
        .and_then(serde_json::Value::as_object)
        .ok_or_else(|| damaged("expected a `weight_map` object".into()))?;
    let mut names = BTreeSet::new();
    for (tensor, shard) in map {
        let shard =
            shard.as_str().ok_or_else(|| damaged(format!("`weight_map.{tensor}` is not a file name")))?;
        if Path::new(shard).components().count() != 1 {
            return Err(damaged(format!(
                "`weight_map.{tensor}` is \"{shard}\": expected a name inside the folder"
            )));
        }
        names.insert(shard.to_owned());
    }
    if names.is_empty() {
        return Err(damaged("`weight_map` is empty".into()));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}
