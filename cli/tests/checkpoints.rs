//! Valid and corrupt checkpoint folders, made from the small goldens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::Value;

use crate::run::Place;

/// Tensors by name: type, shape, bytes.
pub type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/parity").join(name)
}

/// Copies a golden checkpoint.
pub fn copy(place: &Place, from: &str, name: &str) {
    place.copy_folder(golden(from), name);
    std::fs::remove_file(place.path(name).join("golden.safetensors")).expect("a golden has it");
}

/// Copies `plain` with a change to its tensors.
pub fn with_tensors(place: &Place, name: &str, change: impl FnOnce(&mut Tensors)) {
    copy(place, "plain", name);
    let file = format!("{name}/model.safetensors");
    let data = place.read(&file);
    let read = SafeTensors::deserialize(&data).expect("the golden is whole");
    let copy = |(name, view): (String, TensorView<'_>)| {
        (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
    };
    let mut tensors: Tensors = read.tensors().into_iter().map(copy).collect();
    change(&mut tensors);
    let view = |(dtype, shape, data)| TensorView::new(dtype, shape, data).expect("the change is consistent");
    let views =
        tensors.iter().map(|(name, (dtype, shape, data))| (name, view((*dtype, shape.clone(), data))));
    place.write(&file, safetensors::serialize(views, None).expect("the change is consistent"));
}

/// Copies `plain` with a change to its `config.json`: the value at a pointer (`/vision_config/…`).
pub fn with_config(place: &Place, name: &str, pointer: &str, value: Value) {
    copy(place, "plain", name);
    let file = format!("{name}/config.json");
    let mut config = place.json(&file);
    *config.pointer_mut(pointer).unwrap_or_else(|| panic!("the golden has {pointer}")) = value;
    place.write(&file, config.to_string());
}

/// Copies `released` with a change to its index of shards.
pub fn with_index(place: &Place, name: &str, change: impl FnOnce(&mut Value)) {
    copy(place, "released", name);
    let file = format!("{name}/model.safetensors.index.json");
    let mut index = place.json(&file);
    change(&mut index);
    place.write(&file, index.to_string());
}
