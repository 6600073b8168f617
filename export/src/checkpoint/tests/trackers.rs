//! The memory trackers of SAM 3 and SAM 3.1.

use super::*;

/// A released checkpoint with the tracker: the names of the interactive head are the tracker's own.
fn with_tracker() -> Loaded {
    let mut tensors = listed("sam3.txt");
    for (name, ..) in &mut tensors {
        *name = match name.strip_prefix("inst_interactive_predictor.model.") {
            Some(rest) => format!("tracker.{rest}"),
            None => format!("detector.{name}"),
        };
    }
    Loaded::of_shapes(&tensors).expect("a known family")
}

#[test]
fn the_released_tracker_fits() {
    let loaded = with_tracker();
    loaded.check_known().expect("every name is known");
    assert!(loaded.has_tracker);
    let config = sizes::sizes(&loaded).expect("the sizes fit");
    let layout = tensors::expected_tensors(&config, &loaded.pruning);
    loaded.weights.check(&layout, |name| loaded.spelled(name)).expect("complete");
    let nested = r#"{"detector_config":{"vision_config":{"backbone_config":{}}}}"#;
    let defaults = ModelConfig::parse(nested).expect("the defaults");
    assert_eq!(config.tracker, defaults.tracker);
}

/// The pairs of names were found by loading the weights of `transformers` into Meta's classes, which then computed the same.
#[test]
fn metas_names_of_the_tracker_become_those_of_transformers() {
    let text =
        std::fs::read_to_string(goldens().join("names/tracker.txt")).expect("the list is in the repository");
    let view = View::of_shape(Format::F32, &[1]);
    let pairs: Vec<(&str, &str)> =
        text.lines().map(|line| line.split_once(' ').expect("two names")).collect();
    let wrong: Vec<&str> = pairs
        .iter()
        .filter(|(meta, transformers)| {
            let local = meta.strip_prefix("detector.").unwrap_or(meta);
            let found = from_meta(&TENSORS, local, &view).and_then(Result::ok).unwrap_or_default();
            !found.keys().eq([transformers])
        })
        .map(|(meta, _)| *meta)
        .collect();
    assert_eq!(wrong, Vec::<&str>::new());
    let loaded = with_tracker();
    let found: Vec<&String> =
        loaded.weights.views.keys().filter(|name| name.starts_with("tracker_")).collect();
    let mut listed: Vec<&str> = pairs.iter().map(|(_, transformers)| *transformers).collect();
    listed.sort_unstable();
    assert_eq!(found, listed);
}

/// A tracker that lacks a tensor, or has another one, is an error that names it in the file's spelling.
#[test]
fn an_incomplete_tracker_names_the_tensor() {
    let folder = goldens().join("../parity/tracker");
    let open = |from: &str, to: &str| {
        let place = tempfile::tempdir().expect("a folder");
        for file in ["config.json", "tokenizer.json", "model.safetensors"] {
            let mut bytes = std::fs::read(folder.join(file)).expect("the golden");
            if file == "model.safetensors" {
                let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).expect(from);
                bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            }
            std::fs::write(place.path().join(file), bytes).expect("it can be written");
        }
        Checkpoint::open(place.path()).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(open("mask_downsample.weight", "mask_downsample.weight"), "");
    let error = open("mask_downsample.weight", "mask_downsampla.weight");
    assert!(error.contains("mask_downsample.weight is missing"), "{error}");
    // Without its sign, the rest is the tracker of another model.
    assert_eq!(open("memory_attention.layer_norm.weight", "memory_attention.layer_narm.weight"), "");
}

/// Every tensor of the released tracker of SAM 3.1 is known, and has the shape that follows from the others.
#[test]
fn the_released_tracker_of_buckets_fits() {
    let loaded = named("sam3.1.txt");
    loaded.check_known().expect("every name is known");
    assert!(loaded.has_tracker);
    let config = sizes::sizes(&loaded).expect("the sizes fit");
    let layout = tensors::expected_tensors(&config, &loaded.pruning);
    loaded.weights.check(&layout, |name| loaded.spelled(name)).expect("complete");
    let tracker = config.tracker.expect("there is one");
    assert_eq!((tracker.slots, tracker.heads, tracker.layers, tracker.memory_rows), (Some(16), 8, 4, 7));
    assert_eq!(loaded.spelled("multiplex_model.output_valid_embed"), "tracker.model.output_valid_embed");
    let neck = loaded.spelled("interactive_neck.fpn_layers.2.proj1.weight");
    assert_eq!(neck, "detector.backbone.vision_backbone.interactive_convs.2.conv_1x1.weight");
}

/// The detector of such a file runs, and what is left out is said.
#[test]
fn an_incomplete_tracker_of_buckets_is_left_out_with_a_word() {
    let golden = goldens().join("multiplex");
    let bytes = std::fs::read(golden.join("sam3.1.safetensors")).expect("the golden");
    let spoiled = |from: &str, to: &str| {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("sam3.1.safetensors");
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).expect(from);
        let mut bytes = bytes.clone();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&path, bytes).expect("it can be written");
        std::fs::copy(golden.join("tokenizer.json"), place.path().join("tokenizer.json"))
            .expect("it is there");
        Checkpoint::open(&path).expect("it has a detector")
    };
    // A tensor of the shapes, one without which a size is unknown, and none.
    for (from, to, is_left_out) in [
        ("output_valid_embed", "output_valid_embad", true),
        ("maskmem_tpos_enc", "maskmem_tpos_anc", true),
        ("output_valid_embed", "output_valid_embed", false),
    ] {
        let checkpoint = spoiled(from, to);
        assert_eq!(checkpoint.config().tracker.is_none(), is_left_out, "{to}");
        let said = checkpoint.left_out().is_some_and(|part| part.contains("of which parts are missing"));
        assert_eq!(said, is_left_out, "{to}");
    }
}
