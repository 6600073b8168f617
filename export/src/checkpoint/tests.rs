mod students;
mod trackers;

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::container::{Container, Format, MappedFile, View};
use super::load::Loaded;
use super::tensors::{Change, TENSORS, Tensor, from_meta};
use super::*;

fn with_base(name: &str) -> CheckpointOptions {
    CheckpointOptions { base: Some(goldens().join(name)), ..CheckpointOptions::default() }
}

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/checkpoints")
}

/// The content that a file must have: shape and hash of each tensor in the names of `transformers`.
fn expected(golden: &str) -> BTreeMap<String, (Vec<usize>, String)> {
    let text = std::fs::read_to_string(goldens().join(golden).join("expected.json"))
        .expect("the golden is in the repository");
    serde_json::from_str(&text).expect("the script writes JSON")
}

/// The first difference between a file's tensors and the golden.
fn difference(weights: &Weights, golden: &str) -> Option<String> {
    let expected = expected(golden);
    for (name, (shape, hash)) in &expected {
        let Ok(values) = weights.read(name) else { return Some(format!("{name} is missing")) };
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        if weights.shape(name) != shape || hex(&Sha256::digest(&bytes)) != *hash {
            return Some(format!("{name} differs"));
        }
    }
    let extra = weights.views.keys().find(|name| !expected.contains_key(*name));
    extra.map(|name| format!("{name} is unknown"))
}

#[test]
fn metas_names_become_those_of_transformers() {
    let checkpoint = Checkpoint::open(&goldens().join("sam3/sam3.pt")).expect("the golden is whole");
    assert_eq!(difference(checkpoint.weights(), "sam3"), None);
    let config = checkpoint.config();
    assert_eq!((config.vision.hidden, config.vision.stack.heads, config.vision.stack.layers), (64, 2, 4));
    assert_eq!((config.vision.window_size, &config.vision.global_blocks), (4, &vec![1, 3]));
    assert_eq!((config.vision.image_size, config.vision.pretrain_image_size), (112, 56));
    assert_eq!((config.text.stack.heads, config.text.bos, config.text.eos), (2, 0, 1));
    assert_eq!(config.vision.layer_norm_eps, 1e-5);
}

/// A golden's tensors in the detector's own names, and what they become.
struct Sample {
    file: MappedFile,
    tensors: Vec<(String, View)>,
    expected: BTreeMap<String, (Vec<usize>, String)>,
}

impl Sample {
    fn open(golden: &str, file: &str) -> Self {
        let mut container = Container::open(&goldens().join(golden).join(file)).expect("the golden is whole");
        let tensors = container.groups.values_mut().flat_map(std::mem::take);
        let own = |name: String| family::spell(&name).strip_prefix("detector.").map(str::to_owned);
        let tensors = tensors.filter_map(|(name, view)| Some((own(name)?, view))).collect();
        Self { file: container.file, tensors, expected: expected(golden) }
    }

    /// `true` if this line of the table makes what the golden expects of each tensor; `None` if it has no such tensor.
    fn agrees(&self, line: &Tensor) -> Option<bool> {
        let is_right = |(name, view): &(String, View)| {
            let views = from_meta(std::slice::from_ref(line), name, view)?;
            Some(views.is_ok_and(|views| views.iter().all(|(name, view)| self.has(name, view))))
        };
        self.tensors.iter().filter_map(is_right).reduce(|a, b| a && b)
    }

    fn has(&self, name: &str, view: &View) -> bool {
        let Some((shape, hash)) = self.expected.get(name) else { return false };
        let values = || view.read(std::slice::from_ref(&self.file));
        let bytes = || values().iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        *shape == view.shape && *hash == hex(&Sha256::digest(bytes()))
    }
}

/// Every line of the table matters: there is a tensor for it, and with another name or another change, a golden differs.
#[test]
fn every_line_of_the_table_is_needed() {
    let samples =
        [("sam3", "sam3.pt"), ("lite_s0", "efficient_sam3.pt")].map(|(name, file)| Sample::open(name, file));
    let agrees =
        |line: &Tensor| samples.iter().filter_map(|sample| sample.agrees(line)).reduce(|a, b| a && b);
    let lines: Vec<&Tensor> = TENSORS
        .iter()
        .filter(|line| !["tracker", "multiplex"].contains(&line.part) && line.meta.is_some())
        .collect();
    let mut wrong = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        if agrees(line) != Some(true) {
            wrong.push(format!("{line:?}: {:?}", agrees(line)));
        }
        let change = match line.change {
            Change::Rename if line.shape.len() == 2 => Change::Transpose,
            Change::Rename => Change::Third(0),
            _ => Change::Rename,
        };
        let name = |other: &Tensor| Tensor { name: other.name.clone(), ..(*line).clone() };
        // Names that take the same numbers can be exchanged.
        let others =
            lines[i + 1..].iter().filter(|other| other.name.contains('#') == line.name.contains('#'));
        let others = others.filter(|other| other.name != line.name).take(3);
        for changed in
            [Tensor { change, ..(*line).clone() }].into_iter().chain(others.map(|other| name(other)))
        {
            if agrees(&changed) == Some(true) {
                wrong.push(format!("{} as {} by {:?}", line.name, changed.name, changed.change));
            }
        }
    }
    assert!(wrong.is_empty(), "{} unnoticed:\n{}", wrong.len(), wrong.join("\n"));
    assert!(lines.len() > 200, "{} lines", lines.len());
}

/// The names, shapes and formats of a released checkpoint.
fn listed(list: &str) -> Vec<(String, Vec<usize>, Format)> {
    let text =
        std::fs::read_to_string(goldens().join("names").join(list)).expect("the list is in the repository");
    text.lines()
        .map(|line| {
            let (name, rest) = line.split_once(' ').expect("name, shape, format");
            let (shape, format) = rest.rsplit_once(' ').expect("shape, format");
            let sizes = shape.trim_matches(['(', ')']).split(',').filter_map(|size| size.trim().parse().ok());
            let format = if format == "c64" { Format::Complex64 } else { Format::F32 };
            (name.to_owned(), sizes.collect(), format)
        })
        .collect()
}

/// A released checkpoint as a loaded file without values.
fn named(list: &str) -> Loaded {
    Loaded::of_shapes(&listed(list)).expect("a known family")
}

#[test]
fn the_released_names_and_shapes_fit() {
    let transformers = named("transformers.txt");
    let expected: BTreeMap<&String, &Vec<usize>> =
        transformers.weights.views.iter().map(|(name, view)| (name, &view.shape)).collect();
    assert_eq!(expected.len(), 1468);
    let released = ModelConfig::parse(r#"{"vision_config":{"backbone_config":{}}}"#).expect("the defaults");
    for (list, tensors, levels) in [("sam3.txt", 1465, 4), ("sam3.1.txt", 1623, 3)] {
        let loaded = named(list);
        loaded.check_known().expect("every name is known");
        let ignored: usize = loaded.ignored.values().map(|(tensors, _)| tensors).sum();
        let of_detector = |name: &str| !load::TRACKERS.iter().any(|tracker| name.starts_with(tracker));
        let views = loaded.weights.views.iter().filter(|(name, _)| levels == 4 || of_detector(name));
        let found: BTreeMap<&String, &Vec<usize>> = views.map(|(name, view)| (name, &view.shape)).collect();
        let mut wanted = expected.clone();
        wanted.retain(|name, _| levels == 4 || !name.contains("fpn_layers.3."));
        assert_eq!(found, wanted, "{list}");
        assert_eq!(listed(list).len(), tensors, "{list}");
        assert!(ignored > if levels == 4 { 300 } else { 0 }, "{list}: {ignored} ignored");
        let config = sizes::sizes(&loaded).expect("the sizes fit");
        loaded
            .weights
            .check(&tensors::expected_tensors(&config, &loaded.pruning), str::to_owned)
            .expect("complete");
        let mut same = released.clone();
        same.vision.layer_norm_eps = 1e-5;
        // SAM 3.1's has a test of its own.
        same.tracker.clone_from(&config.tracker);
        assert_eq!(config, same, "{list}");
        // Mirrors in safetensors lack the rotary tables.
        let mut loaded = loaded;
        loaded.rotary.clear();
        assert_eq!(sizes::sizes(&loaded).expect("the sizes are known"), same, "{list}");
    }
}

#[test]
fn a_wrong_file_names_the_tensor() {
    let path = goldens().join("sam3/sam3.pt");
    let spoil = |from: &str, to: &str| {
        let mut bytes = std::fs::read(&path).expect("the golden");
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).expect(from);
        assert_eq!(from.len(), to.len());
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::copy(goldens().join("sam3/tokenizer.json"), folder.path().join("tokenizer.json"))
            .expect("a copy");
        let spoiled = folder.path().join("spoiled.pt");
        std::fs::write(&spoiled, bytes).expect("it can be written");
        let error = Checkpoint::open(&spoiled).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.starts_with(&spoiled.display().to_string()) && error.lines().count() == 1, "{error}");
        error
    };
    for (from, to, words) in [
        (
            "detector.transformer.decoder.layers.1.catext_norm.weight",
            "detector.transformer.decoder.layers.1.cattxt_norm.weight",
            ["cattxt_norm", "nearest one is detector.transformer.decoder.layers.1.catext_norm.weight"],
        ),
        (
            "detector.backbone.vision_backbone.trunk.ln_pre.weight",
            "tracker..backbone.vision_backbone.trunk.ln_pre.weight",
            ["detector.backbone.vision_backbone.trunk.ln_pre.weight is missing", "[64]"],
        ),
    ] {
        let error = spoil(from, to);
        for word in words {
            assert!(error.contains(word), "expected {word:?} in {error}");
        }
    }
}

#[test]
fn a_tokeniser_is_found_or_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("any.name");
    std::fs::copy(goldens().join("sam3/sam3.pt"), &path).expect("a copy");
    let error = Checkpoint::open(&path).err().map(|e| e.to_string()).unwrap_or_default();
    for word in ["tokenizer.json is missing", "bpe_simple_vocab_16e6.txt.gz"] {
        assert!(error.contains(word), "{error}");
    }
    let own = goldens().join("sam3/tokenizer.json");
    let with_tokenizer =
        |path: &Path| CheckpointOptions { tokenizer: Some(path.into()), ..CheckpointOptions::default() };
    assert!(with_tokenizer(&own).open(&path).is_ok());
    let mut json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&own).expect("the golden")).expect("JSON");
    json["model"]["vocab"]["something"] = 497.into();
    let other = folder.path().join("other.json");
    std::fs::write(&other, json.to_string()).expect("it can be written");
    let error = with_tokenizer(&other).open(&path).err().expect("another vocabulary");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    assert!(error.to_string().contains("498") && error.to_string().contains("497"), "{error}");
}

/// The lists of a pruned file must say what its tensors say.
#[test]
fn pruning_lists_fit_the_tensors() {
    let loaded = load::load(&[goldens().join("sam3/pruned.pt")]).expect("the golden is whole");
    assert_eq!(loaded.family, Family::DartPruned);
    let with = |skip: &[usize], mask: &[&str]| Pruning {
        skip_blocks: skip.iter().copied().collect(),
        mask_blocks: mask.iter().map(|text| text.parse().expect("a branch")).collect(),
        split_block: None,
    };
    assert_eq!(loaded.pruning, with(&[0], &["2:attn"]));
    let check = |pruning: &Pruning, blocks| {
        load::check_pruning(&loaded.weights, pruning, blocks).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(check(&loaded.pruning, 4), "");
    assert_eq!(check(&with(&[], &["0:attn", "0:mlp", "2:attn"]), 4), "", "both branches are the block");
    for (pruning, blocks, words) in [
        (with(&[], &["2:attn"]), 4, ["lacks the tensors of 0:attn", "does not list"]),
        (with(&[0], &[]), 4, ["lacks the tensors of 2:attn", "does not list"]),
        (with(&[0], &["2:mlp"]), 4, ["lacks the tensors of 2:attn", "does not list"]),
        (with(&[0], &["2:attn", "3:mlp"]), 4, ["has the tensors of 3:mlp", "as removed"]),
        (with(&[0, 1], &["2:attn"]), 4, ["has the tensors of 1:attn", "as removed"]),
        (with(&[0], &["2:attn"]), 5, ["lacks the tensors of 4:attn", "does not list"]),
    ] {
        let message = check(&pruning, blocks);
        for word in words {
            assert!(message.contains(word), "expected {word:?} in {message:?}");
        }
    }
}

#[test]
fn a_pruned_file_needs_its_base() {
    let open = |base: Option<&str>| {
        let options = match base {
            Some(base) => with_base(base),
            None => CheckpointOptions::default(),
        };
        options.open(&goldens().join("sam3/pruned.pt")).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(open(Some("sam3/sam3.pt")), "");
    for (base, word) in [
        (None, "base is missing"),
        (Some("sam3/pruned.pt"), "expected a whole model"),
        (Some("sam31/sam3.1.safetensors"), "does not list"),
        (Some("lite_s1"), "expected ["),
    ] {
        let message = open(base);
        assert!(message.contains(word), "{base:?}: expected {word:?} in {message:?}");
    }
    let whole = with_base("sam31/sam3.1.safetensors");
    let error = whole.open(&goldens().join("sam3/sam3.pt")).err().expect("a whole model");
    assert!(error.to_string().contains("needs no base"), "{error}");
}

#[test]
fn an_inspection_describes_what_cannot_be_exported_too() {
    let options = CheckpointOptions::default();
    let whole = options.inspect(&goldens().join("sam3/sam3.pt")).expect("a checkpoint");
    assert_eq!(whole.problem, None);
    assert_eq!(whole.parts.len(), 7);
    for word in ["the video tracker", "point prompts", "rotary tables, which are computed"] {
        assert!(whole.ignored.contains_key(word), "{:?}", whole.ignored);
    }
    let pruned = options.inspect(&goldens().join("sam3/pruned.pt")).expect("a checkpoint");
    assert!(pruned.problem.is_some_and(|why| why.contains("base is missing")));
    assert!(options.inspect(&goldens().join("containers/views.pt")).is_err(), "no checkpoint at all");
    let original = CheckpointOptions { norm_eps: NormEps::Original, ..options };
    let original = original.open(&goldens().join("../parity/plain"));
    assert_eq!(original.expect("the golden is whole").config().vision.layer_norm_eps, 1e-5);
}

/// Detectors with fewer layers, queries and a narrower feed-forward network, as structural pruning leaves them.
#[test]
fn smaller_detectors_fit_by_their_shapes() {
    let gone =
        ["transformer.encoder.layers.4.", "transformer.encoder.layers.5.", "transformer.decoder.layers.5."];
    let mut tensors = listed("sam3.txt");
    tensors.retain(|(name, ..)| !gone.iter().any(|prefix| name.starts_with(prefix)));
    for (name, shape, _) in &mut tensors {
        if name.starts_with("transformer.") && name.contains(".linear") {
            shape.iter_mut().filter(|size| **size == 2048).for_each(|size| *size = 1024);
        }
        if name.ends_with("query_embed.weight") || name.ends_with("reference_points.weight") {
            shape[0] = 100;
        }
    }
    let loaded = Loaded::of_shapes(&tensors).expect("a known family");
    let config = sizes::sizes(&loaded).expect("the sizes fit");
    loaded
        .weights
        .check(&tensors::expected_tensors(&config, &loaded.pruning), str::to_owned)
        .expect("complete");
    assert_eq!((config.encoder.layers, config.encoder.intermediate), (4, 1024));
    assert_eq!((config.decoder.layers, config.decoder.intermediate), (5, 1024));
    assert_eq!((config.num_queries, config.scoring_hidden, config.geometry.intermediate), (100, 2048, 2048));
}
