//! The operators of exported files: only standard ones for TensorRT, and none of a pruned branch.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::parity::exported::{Exported, Outcome};
use crate::parity::golden::{Golden, Variant};
use ocelli::export::contract::{FREE_DIMENSIONS, FreeDimension, Precision, Prompting, Target, file};
use ocelli::export::{Checkpoint, ExportOptions, MixedPrecision, Pruning};
use ocelli_onnx::Message;
use ocelli_onnx::schema::{DimensionValue, ModelProto, ValueInfoProto};

/// The newest opset that the files may use.
const MAX_OPSET: i64 = 20;
/// Further operators for ONNX Runtime: two of its own, and one that TensorRT has in a plugin only.
const FUSED: [&str; 2] = ["com.microsoft.MultiHeadAttention", "com.microsoft.RotaryEmbedding"];

/// The committed list.
pub fn allowed() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("allowed_operators.txt");
    let text = std::fs::read_to_string(&path).expect("the list is in the repository");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// All checkpoints: the goldens, and the built-in model, which is written to `folder`.
pub fn checkpoints(folder: &Path) -> Outcome<Vec<(String, Checkpoint)>> {
    let mut checkpoints = Vec::new();
    for golden in Golden::all().into_iter().chain([Golden::of_tracker("tracker")]) {
        checkpoints.push((golden.name.to_owned(), golden.open_checkpoint()?));
    }
    ocelli::builtin::write_checkpoint(folder)?;
    checkpoints.push(("built-in".into(), Checkpoint::open(folder)?));
    Ok(checkpoints)
}

/// The graphs of an exported folder.
pub fn graphs(model: &Exported) -> Outcome<BTreeMap<String, ModelProto>> {
    let files = model.manifest.files.keys().filter(|name| name.ends_with(".onnx"));
    let read = |name: &String| Ok((name.clone(), ModelProto::decode(&*std::fs::read(model.path(name))?)?));
    files.map(read).collect()
}

/// All options that change the nodes.
fn variants(target: Target) -> [(&'static str, ExportOptions); 7] {
    let options = || ExportOptions { target, ..ExportOptions::default() };
    let half = |precision, islands| ExportOptions { precision, mixed_precision: Some(islands), ..options() };
    [
        ("whole", options()),
        (
            "split",
            ExportOptions { pruning: Pruning { split_block: Some(1), ..Pruning::default() }, ..options() },
        ),
        ("detection only", ExportOptions { detection_only: true, ..options() }),
        ("text prompts only", ExportOptions { prompting: Prompting::Text, ..options() }),
        ("fp16", half(Precision::Fp16, MixedPrecision::None)),
        ("fp16 with mixed precision", half(Precision::Fp16, MixedPrecision::Attention)),
        ("bf16", half(Precision::Bf16, MixedPrecision::AccumulateLinear)),
    ]
}

/// Operators by name, standard ones without their domain, with the first node that uses each.
fn operators(target: Target, problems: &mut Vec<String>) -> Outcome<BTreeMap<String, String>> {
    let folder = tempfile::tempdir()?;
    let mut found = BTreeMap::new();
    for (name, checkpoint) in checkpoints(folder.path())? {
        for (variant, options) in variants(target) {
            for (file, model) in graphs(&Exported::new(&checkpoint, &options)?)? {
                let place = format!("{name}, {variant}, {file}");
                let standard = model.opset_import.iter().find(|set| set.domain.is_empty());
                match standard.map(|set| set.version) {
                    Some(version) if version <= MAX_OPSET => {}
                    other => {
                        problems.push(format!("{place}: opset {other:?}, expected {MAX_OPSET} or older"));
                    }
                }
                let nodes = model.graph.map(|graph| graph.node).unwrap_or_default();
                if nodes.is_empty() {
                    problems.push(format!("{place}: no nodes"));
                }
                for node in nodes {
                    let dot = if node.domain.is_empty() { "" } else { "." };
                    let operator = format!("{}{dot}{}", node.domain, node.op_type);
                    found.entry(operator).or_insert_with(|| format!("{place}, node {}", node.name));
                }
            }
        }
    }
    Ok(found)
}

#[test]
fn files_for_tensorrt_use_allowed_operators_only() -> Outcome<()> {
    let mut problems = Vec::new();
    let found = operators(Target::TensorRt, &mut problems)?;
    let allowed = allowed();
    let unknown = found.iter().filter(|(operator, _)| !allowed.contains(*operator));
    problems.extend(unknown.map(|(operator, place)| format!("{operator} is not allowed: {place}")));
    let unused = allowed.iter().filter(|operator| !found.contains_key(*operator));
    problems
        .extend(unused.map(|operator| format!("{operator} is allowed but unused: remove it from the list")));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[test]
fn files_for_onnx_runtime_add_two_fused_operators() -> Outcome<()> {
    let mut problems = Vec::new();
    let found = operators(Target::OnnxRuntime, &mut problems)?;
    let allowed = allowed();
    let added: Vec<&str> =
        found.keys().filter(|operator| !allowed.contains(*operator)).map(String::as_str).collect();
    if added != FUSED {
        problems.push(format!("operators beyond the allowed ones: {added:?}, expected {FUSED:?}"));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Tensor, axis and name of every named dimension.
fn named_dimensions(tensor: &ValueInfoProto) -> Vec<(String, usize, String)> {
    let named = tensor.dims().enumerate().filter_map(|(axis, dim)| match dim {
        Some(DimensionValue::DimParam(name)) => Some((tensor.name.clone(), axis, name.clone())),
        _ => None,
    });
    named.collect()
}

/// `FREE_DIMENSIONS` has the dynamic dimensions of the detector's files, and no others.
#[test]
fn free_dimensions_are_those_of_the_files() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let (mut problems, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (name, checkpoint) in checkpoints(folder.path())? {
        for (variant, options) in variants(Target::TensorRt) {
            for (file, model) in graphs(&Exported::new(&checkpoint, &options)?)? {
                if file.starts_with(file::TRACKER) {
                    continue;
                }
                let graph = model.graph.unwrap_or_default();
                for (tensor, axis, dim) in graph.input.iter().chain(&graph.output).flat_map(named_dimensions)
                {
                    let same = |free: &&FreeDimension| {
                        free.tensor == tensor && free.axis == axis && free.name == dim
                    };
                    match FREE_DIMENSIONS.iter().find(same) {
                        Some(free) => drop(seen.insert(*free)),
                        None => drop(
                            problems
                                .insert(format!("{name}, {variant}, {file}: {tensor}, axis {axis}: {dim}")),
                        ),
                    }
                }
            }
        }
    }
    problems.extend(
        FREE_DIMENSIONS
            .iter()
            .filter(|free| !seen.contains(free))
            .map(|free| format!("no file has {free:?}")),
    );
    assert!(problems.is_empty(), "{problems:#?}");
    Ok(())
}

/// Skipped blocks and masked branches leave no weights or nodes in the file; the others remain.
#[test]
fn pruned_branches_are_removed() -> Outcome<()> {
    let mut problems = Vec::new();
    for golden in Golden::all() {
        for variant in &golden.pruned {
            for target in [Target::OnnxRuntime, Target::TensorRt] {
                let options = variant.apply(ExportOptions { target, ..ExportOptions::default() })?;
                let model = Exported::new(&golden.open_checkpoint()?, &options)?;
                let graph =
                    graphs(&model)?.remove(file::BACKBONE).and_then(|model| model.graph).ok_or("no graph")?;
                let weights = graph.initializer.iter().map(|weight| weight.name.as_str());
                let names: Vec<&str> =
                    weights.chain(graph.node.iter().map(|node| node.name.as_str())).collect();
                let skipped: Vec<&str> = variant.skip_blocks.split(',').collect();
                let masked: Vec<&str> = variant.mask_blocks.split(',').collect();
                for block in 0..golden.vision_blocks() {
                    for (branch, norm, flag) in
                        [("attention", "layer_norm1", "attn"), ("mlp", "layer_norm2", "mlp")]
                    {
                        let pruned = skipped.contains(&block.to_string().as_str())
                            || masked.contains(&format!("{block}:{flag}").as_str());
                        for part in [branch, norm] {
                            let part = format!("backbone.layers.{block}.{part}");
                            if names.iter().any(|name| name.contains(&part)) == pruned {
                                let is = if pruned { "remains" } else { "is missing" };
                                let Variant { skip_blocks, mask_blocks } = variant;
                                problems.push(format!(
                                    "{}, {target:?}, skip {skip_blocks:?}, mask {mask_blocks:?}: {part} {is}",
                                    golden.name
                                ));
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// A frame costs what its graphs compute: the nodes of the built-in model's graphs are those of a committed list, so
/// that a change that adds some is seen.
#[test]
fn the_graphs_have_the_nodes_of_the_list() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    ocelli::builtin::write_checkpoint(folder.path())?;
    let checkpoint = Checkpoint::open(folder.path())?;
    let mut list = String::new();
    for (target, precision) in [
        (Target::OnnxRuntime, Precision::Fp32),
        (Target::OnnxRuntime, Precision::Int8),
        (Target::TensorRt, Precision::Fp32),
        (Target::TensorRt, Precision::Fp16),
        (Target::TensorRt, Precision::Int8),
    ] {
        let options = ExportOptions { target, precision, ..ExportOptions::default() };
        for (file, model) in graphs(&Exported::new(&checkpoint, &ExportOptions { screen: true, ..options })?)?
        {
            let mut counts = BTreeMap::<String, usize>::new();
            for node in model.graph.map(|graph| graph.node).unwrap_or_default() {
                *counts.entry(node.op_type).or_default() += 1;
            }
            let counts: Vec<_> =
                counts.iter().map(|(operator, count)| format!("{operator} {count}")).collect();
            writeln!(list, "{target:?} {precision} {file}: {}", counts.join(", "))?;
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/nodes.txt");
    let expected = std::fs::read_to_string(&path)?;
    let lines = list.lines().filter(|line| !expected.lines().any(|known| known == *line));
    let changed: Vec<_> = lines.collect();
    assert!(
        list == expected,
        "these differ from {}; if they should, replace it:\n{}",
        path.display(),
        changed.join("\n")
    );
    Ok(())
}
