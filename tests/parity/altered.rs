//! Checkpoints that differ from a golden in one property, so that one golden covers several.

use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::exported::Outcome;
use super::golden::Golden;

/// Copies a golden's checkpoint with another image size.
pub fn resize(golden: &Golden, image_size: usize, folder: &Path) -> Outcome<()> {
    copy(golden, folder)?;
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    let root = if config.get("detector_config").is_some() { "/detector_config" } else { "" };
    let vision = config.pointer_mut(&format!("{root}/vision_config")).ok_or("no vision_config")?;
    let backbone = vision.get_mut("backbone_config").ok_or("no backbone_config")?;
    backbone["image_size"] = image_size.into();
    let grid = image_size / golden.number("patch");
    vision["backbone_feature_sizes"] =
        serde_json::json!([[4 * grid, 4 * grid], [2 * grid, 2 * grid], [grid, grid]]);
    Ok(std::fs::write(&path, config.to_string())?)
}

/// Copies a golden's checkpoint, with the tensors whose names contain one of `parts` multiplied by `factor`. They must
/// be stored as f32.
pub fn strengthen(golden: &Golden, parts: &[&str], factor: f32, folder: &Path) -> Outcome<()> {
    copy(golden, folder)?;
    let mut changed = 0;
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().expect("an entry of a folder has a name").to_string_lossy();
        if !name.starts_with("model") || !name.ends_with(".safetensors") {
            continue;
        }
        let bytes = std::fs::read(&path)?;
        let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
        for (name, view) in SafeTensors::deserialize(&bytes)?.tensors() {
            let mut data = view.data().to_vec();
            if parts.iter().any(|part| name.contains(part)) {
                assert_eq!(view.dtype(), Dtype::F32, "{name}");
                let (values, _) = data.as_chunks_mut::<4>();
                values
                    .iter_mut()
                    .for_each(|value| *value = (f32::from_le_bytes(*value) * factor).to_le_bytes());
                changed += 1;
            }
            tensors.push((name, view.dtype(), view.shape().to_vec(), data));
        }
        let view = |(name, dtype, shape, data)| {
            Ok::<_, safetensors::SafeTensorError>((name, TensorView::new(dtype, shape, data)?))
        };
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, data)| view((name, *dtype, shape.clone(), data.as_slice())));
        let views = views.collect::<Result<Vec<_>, _>>()?;
        std::fs::write(&path, safetensors::serialize(views, None)?)?;
    }
    // A weight and a bias each.
    assert_eq!(changed, 2 * parts.len(), "tensors of {parts:?}");
    Ok(())
}

fn copy(golden: &Golden, folder: &Path) -> Outcome<()> {
    for entry in golden.checkpoint.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().expect("an entry of a folder has a name");
        std::fs::copy(&path, folder.join(name))?;
    }
    Ok(())
}
