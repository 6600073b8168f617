//! A checkpoint of the released model's size with random weights, for measurements that do not need the real weights.
//!
//! The standard deviation of a weight is 1/√inputs, so that activations stay near one: overflow and denormals would change
//! the speed. Layout and names are those of the release: the configuration has the detector under `detector_config`, names
//! have a prefix, and there are tensors of a tracker as well.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use ocelli::atomic_file::write_atomically;
use serde_json::{Map, Value, json};

/// Names and shapes of the detector's tensors.
const TENSORS: &str = include_str!("../../benchmarks/full_size/tensors.txt");
/// Names and shapes of the tensors of DART's student backbones, each list below a line `= NAME`.
const STUDENTS: &str = include_str!("../../benchmarks/full_size/students.txt");
/// Names and shapes of the memory tracker's tensors.
const TRACKER: &str = include_str!("../../benchmarks/full_size/tracker.txt");
/// Names and shapes of a checkpoint of SAM 3.1 with two layers of each transformer, in Meta's names.
const MULTIPLEX: &str = include_str!("../../benchmarks/full_size/multiplex.txt");
/// `config.json`.
const CONFIG: &str = include_str!("../../benchmarks/full_size/config.json");
/// Prefix of the names in the released checkpoint.
const PREFIX: &str = "detector_model.";
/// Stands for the tracker in checkpoints without one.
const FOREIGN: &str = "tracker_model.no_memory_embedding 1 1 8\ntracker_neck.bias 8\n";
/// Lets some queries of every class pass the default threshold, as in real use.
const PRESENCE_BIAS: f32 = 2.0;

/// A transformer: where the configuration counts its layers, and the prefix of their names.
struct Transformer {
    part: &'static str,
    count: &'static str,
    names: &'static str,
}

const IMAGE: Transformer = Transformer {
    part: "vision_config/backbone_config",
    count: "num_hidden_layers",
    names: "backbone.layers.",
};
const TEXT: Transformer =
    Transformer { part: "text_config", count: "num_hidden_layers", names: "text_model.encoder.layers." };
const ENCODER: Transformer =
    Transformer { part: "detr_encoder_config", count: "num_layers", names: "detr_encoder.layers." };
const DECODER: Transformer =
    Transformer { part: "detr_decoder_config", count: "num_layers", names: "detr_decoder.layers." };
/// All but the exemplar encoder.
const TRANSFORMERS: [Transformer; 4] = [IMAGE, TEXT, ENCODER, DECODER];

struct Tensor {
    name: String,
    shape: Vec<usize>,
}

/// Writes `config.json` and `model.safetensors` into an existing folder; returns the number of parameters.
///
/// # Errors
/// If a file cannot be written.
pub fn write(folder: &Path) -> anyhow::Result<usize> {
    write_model(folder, CONFIG, &tensors(TENSORS)?, FOREIGN)
}

/// As [`write()`], with the first `layers` layers only of every transformer but the exemplar encoder, every second one of the
/// image transformer with attention over the whole grid: what takes long at full depth is quick, at the same widths.
///
/// # Errors
/// If a file cannot be written.
pub fn write_shallow(folder: &Path, layers: usize) -> anyhow::Result<usize> {
    write_layers(folder, layers, &TRANSFORMERS, FOREIGN)
}

/// As [`write()`], with a text encoder of one layer: for measurements that never run it.
///
/// # Errors
/// If a file cannot be written.
pub fn write_without_text(folder: &Path) -> anyhow::Result<usize> {
    write_layers(folder, 1, &[TEXT], FOREIGN)
}

/// As [`write_shallow()`] with two layers, and the whole memory tracker.
///
/// # Errors
/// If a file cannot be written.
pub fn write_tracker(folder: &Path) -> anyhow::Result<usize> {
    write_layers(folder, 2, &TRANSFORMERS, TRACKER)
}

/// As [`write_tracker()`], of SAM 3.1, as Meta's file.
///
/// # Errors
/// If the file cannot be written.
pub fn write_multiplex(path: &Path) -> anyhow::Result<()> {
    write_tensors(path, &[], MULTIPLEX)
}

/// Writes a student backbone of DART with its adapters: `rep_vit_m2_3`, `tiny_vit_21m`, `efficient_vit_l2` or
/// `efficient_vit_l1`. Returns the number of values.
///
/// # Errors
/// If there is no such student, or the file cannot be written.
pub fn write_student(path: &Path, name: &str) -> anyhow::Result<usize> {
    let list = student(name)?;
    write_tensors(path, &[], list)?;
    Ok(tensors(list)?.iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum())
}

fn student(name: &str) -> anyhow::Result<&'static str> {
    let lists = STUDENTS.split("\n= ").skip(1).filter_map(|list| list.split_once('\n'));
    let list = lists.into_iter().find(|(heading, _)| *heading == name);
    Ok(list.with_context(|| format!("no student, {name}"))?.1)
}

fn write_layers(
    folder: &Path,
    layers: usize,
    transformers: &[Transformer],
    others: &str,
) -> anyhow::Result<usize> {
    let mut config: Value = serde_json::from_str(CONFIG)?;
    for Transformer { part, count, .. } in transformers {
        let of_part = config.pointer_mut(&format!("/detector_config/{part}")).context(*part)?;
        of_part[count] = layers.into();
        if *part == IMAGE.part {
            of_part["global_attn_indexes"] = (1..layers).step_by(2).collect();
        }
    }
    let tensors = tensors(TENSORS)?;
    let is_kept = |tensor: &Tensor| {
        let rest = transformers.iter().find_map(|one| tensor.name.split_once(one.names));
        let layer = rest.and_then(|(_, rest)| rest.split('.').next()?.parse::<usize>().ok());
        layer.is_none_or(|layer| layer < layers)
    };
    let kept: Vec<Tensor> = tensors.into_iter().filter(is_kept).collect();
    write_model(folder, &config.to_string(), &kept, others)
}

/// `others` lists tensors that are not the detector's.
fn write_model(folder: &Path, config: &str, tensors: &[Tensor], others: &str) -> anyhow::Result<usize> {
    write_tensors(&folder.join("model.safetensors"), tensors, others)?;
    write_atomically(&folder.join("config.json"), |file| file.write_all(config.as_bytes()))?;
    Ok(tensors.iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum())
}

/// Parses the list and expands each `{count}`, `{first..end}` or `{number,number}` in a name.
fn tensors(list: &str) -> anyhow::Result<Vec<Tensor>> {
    let mut tensors = Vec::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut fields = line.split(' ');
        let name = fields.next().unwrap_or_default();
        let shape: Vec<usize> =
            fields.map(str::parse).collect::<Result<_, _>>().with_context(|| line.to_owned())?;
        match name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
            None => tensors.push(Tensor { name: name.to_owned(), shape }),
            Some((before, (numbers, after))) => {
                let numbers = numbers_of(numbers).with_context(|| line.to_owned())?;
                let one = |index| Tensor { name: format!("{before}{index}{after}"), shape: shape.clone() };
                tensors.extend(numbers.into_iter().map(one));
            }
        }
    }
    Ok(tensors)
}

fn numbers_of(text: &str) -> Option<Vec<usize>> {
    let number = |text: &str| text.parse::<usize>().ok();
    match (text.split_once(".."), text.contains(',')) {
        (Some((first, end)), _) => Some((number(first)?..number(end)?).collect()),
        (None, true) => text.split(',').map(number).collect(),
        (None, false) => Some((0..number(text)?).collect()),
    }
}

fn write_tensors(path: &Path, own: &[Tensor], others: &str) -> anyhow::Result<()> {
    let others = tensors(others)?;
    let mut header = Map::new();
    let mut offset = 0_usize;
    let names = own.iter().map(|tensor| (format!("{PREFIX}{}", tensor.name), &tensor.shape));
    for (name, shape) in names.chain(others.iter().map(|tensor| (tensor.name.clone(), &tensor.shape))) {
        let end = offset + 4 * shape.iter().product::<usize>();
        header.insert(name, json!({"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}));
        offset = end;
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    write_atomically(path, |file| {
        file.write_all(&(text.len() as u64).to_le_bytes())?;
        file.write_all(&text)?;
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut bytes = Vec::new();
        for Tensor { name, shape } in own.iter().chain(&others) {
            let (mean, spread) = distribution(name, shape);
            let count: usize = shape.iter().product();
            bytes.clear();
            bytes.extend((0..count).flat_map(|_| (mean + spread * random.normal()).to_le_bytes()));
            file.write_all(&bytes)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Mean and standard deviation of a tensor's values.
fn distribution(name: &str, shape: &[usize]) -> (f32, f32) {
    let has = |word: &str| name.contains(word);
    if name == "detr_decoder.presence_head.layer3.bias" {
        (PRESENCE_BIAS, 0.0)
    } else if name.ends_with("running_var") {
        (1.0, 0.0)
    } else if name.ends_with("bias") || name.ends_with("running_mean") || name.ends_with("attention_biases") {
        (0.0, 0.02)
    } else if has("norm") || shape.len() == 1 {
        (1.0, 0.05)
    } else if has("embed") && !has("projection") && !has("rpb") && !has("mask_embedder") {
        (0.0, 0.02)
    } else if name == "detr_decoder.reference_points.weight" {
        (0.0, 1.0)
    } else {
        let inputs: usize = shape.iter().skip(1).product();
        (0.0, 1.0 / (inputs as f32).sqrt())
    }
}

/// Xorshift (Marsaglia 2003) with a fixed seed.
struct Random(u64);

impl Random {
    /// Approximately normal, with mean 0 and standard deviation 1: the sum of four uniform numbers.
    fn normal(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let sum: u64 = (0..4).map(|part| (self.0 >> (16 * part)) & 0xffff).sum();
        // A uniform number of 0..65535 has a variance of 65536²/12.
        (sum as f32 - 2.0 * 65_535.0) / (65_536.0 / 3.0_f32.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_the_size_of_the_released_model() {
        let all = tensors(TENSORS).expect("it is a list of tensors");
        let parameters: usize = all.iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum();
        assert_eq!((all.len(), parameters / 100_000), (1468, 8403));
        let tracker = tensors(TRACKER).expect("it is a list of tensors");
        let parameters: usize = tracker.iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum();
        assert_eq!((tracker.len(), parameters / 1000), (329, 19_545));
        let multiplex = tensors(MULTIPLEX).expect("it is a list of tensors");
        let names = multiplex.iter().map(|tensor| tensor.name.as_str());
        assert_eq!(names.filter(|name| name.starts_with("tracker.model.")).count(), 457);
        let config: Value = serde_json::from_str(CONFIG).expect("it is JSON");
        assert_eq!(config["detector_config"]["vision_config"]["backbone_config"]["num_hidden_layers"], 32);
    }

    #[test]
    fn students_have_the_sizes_of_the_released_ones() {
        // Parameters as timm 1.0.31 and DART's adapters have them, without the statistics of batch norms.
        let sizes = [
            ("rep_vit_m2_3", 18_541_160),
            ("tiny_vit_21m", 14_009_820),
            ("efficient_vit_l2", 9_549_984),
            ("efficient_vit_l1", 7_656_736),
        ];
        for (name, expected) in sizes {
            let all = tensors(student(name).expect("it is listed")).expect("it is a list of tensors");
            let parameters = all.iter().filter(|tensor| !tensor.name.contains("running_"));
            let parameters: usize = parameters.map(|tensor| tensor.shape.iter().product::<usize>()).sum();
            assert_eq!(parameters / 10, expected / 10, "{name}");
        }
        assert!(student("rep_vit").is_err());
    }

    #[test]
    fn random_numbers_have_mean_0_and_deviation_1() {
        let mut random = Random(1);
        let values: Vec<f64> = (0..100_000).map(|_| f64::from(random.normal())).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let spread = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
        assert!(mean.abs() < 0.02 && (spread - 1.0).abs() < 0.02, "mean {mean}, spread {spread}");
    }

    #[test]
    fn a_written_file_has_every_tensor_of_the_list() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.safetensors");
        let few = tensors("# a comment\na.{2}.weight 3 4\nb.bias 5\n").expect("it is a list");
        write_tensors(&path, &few, FOREIGN).expect("the folder can be written to");
        let bytes = std::fs::read(&path).expect("it was written");
        let file = safetensors::SafeTensors::deserialize(&bytes).expect("it is such a file");
        let expected = ["a.0.weight", "a.1.weight", "b.bias"].map(|name| format!("{PREFIX}{name}"));
        let missing: Vec<_> = expected.iter().filter(|name| file.tensor(name).is_err()).collect();
        assert!(missing.is_empty() && file.len() == 5, "{missing:?} of {:?}", file.names());
    }
}
