//! Backbones that need the rest of a model: students and pruned ones.

use super::*;

fn student(path: &Path) -> Result<Checkpoint> {
    with_base("sam3/sam3.pt").open(path)
}

/// Copies a student with some bytes replaced by as many others, and opens it.
fn spoiled_student(name: &str, from: &str, to: &str) -> String {
    let mut bytes = std::fs::read(goldens().join("students").join(name)).expect("the golden");
    assert_eq!(from.len(), to.len());
    let mut at = 0;
    let mut found = 0;
    while let Some(next) = bytes[at..].windows(from.len()).position(|window| window == from.as_bytes()) {
        at += next;
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        found += 1;
    }
    assert!(found > 0, "{from} is not in {name}");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spoiled.pt");
    std::fs::write(&path, bytes).expect("it can be written");
    let message = student(&path).err().map(|e| e.to_string()).unwrap_or_default();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn students_have_their_sizes() {
    use crate::config::{StudentFamily, StudentOrigin};
    let stages = |config: &ModelConfig| -> Vec<[usize; 4]> {
        let student = config.student.as_ref().expect("a student");
        student.stages.iter().map(|s| [s.width, s.blocks, s.heads, s.window]).collect()
    };
    let open = |name: &str| student(&goldens().join("students").join(name)).expect("the golden is whole");
    let rep_vit = open("rep_vit.pt");
    assert_eq!(stages(rep_vit.config()), [[8, 2, 0, 0], [16, 1, 0, 0], [24, 3, 0, 0]]);
    assert_eq!(rep_vit.config().vision.image_size, 112, "of the base");
    assert_eq!(stages(open("efficient_vit.pt").config()), [[8, 2, 0, 0], [8, 2, 0, 0], [16, 3, 0, 0]]);
    assert_eq!(stages(open("tiny_vit.pt").config()), [[8, 1, 0, 0], [12, 2, 2, 3], [24, 2, 3, 5]]);
    let whole = |name: &str| {
        Checkpoint::open(&goldens().join(name).join(format!("{name}.pt"))).expect("the golden is whole")
    };
    for (name, family, expected) in [
        (
            "efficient_rep_vit",
            StudentFamily::RepVit,
            [[8, 2, 0, 0], [16, 2, 0, 0], [24, 3, 0, 0], [16, 1, 0, 0]],
        ),
        (
            "efficient_vit",
            StudentFamily::EfficientVitB,
            [[8, 2, 0, 0], [16, 2, 0, 0], [16, 2, 2, 0], [32, 3, 4, 0]],
        ),
        (
            "efficient_tiny_vit",
            StudentFamily::TinyVit,
            [[8, 1, 0, 0], [12, 2, 2, 3], [24, 1, 3, 5], [16, 2, 2, 7]],
        ),
    ] {
        let checkpoint = whole(name);
        let config = checkpoint.config();
        assert_eq!(stages(config), expected, "{name}");
        let student = config.student.as_ref().expect("a student");
        assert_eq!((student.family, student.origin), (family, StudentOrigin::EfficientSam3), "{name}");
        assert_eq!((config.vision.image_size, config.vision.patch_size), (1008, 14), "{name}");
        assert_eq!(config.has_exemplars(), name != "efficient_rep_vit", "{name}");
    }
}

#[test]
fn a_student_with_wrong_tensors_names_them() {
    for (name, from, to, words) in [
        (
            "rep_vit.pt",
            "backbone.stages_1.downsample.ffn.conv2.c.weight",
            "backbone.stages_1.downsample.ffm.conv2.c.weight",
            ["tensor backbone.stages_1.downsample.ffn.conv2.c.weight is missing", "ffm.conv2.c.weight"],
        ),
        (
            "tiny_vit.pt",
            "adapters.2.refine.weight",
            "adapters.7.refine.weight",
            ["adapters.2.refine.weight is missing", "adapters.7.refine.weight"],
        ),
        // A network that is none of these, such as a vision transformer.
        ("rep_vit.pt", "backbone.stem.conv1.", "backbone.mode.conv1.", ["unknown image backbone", "RepViT"]),
        (
            "rep_vit_low_rank.pt",
            "conv1.c.lora_B",
            "conv1.c.lora_C",
            ["low rank that do not fit", "channel_mixer.conv1.c"],
        ),
        (
            "tiny_vit_low_rank.pt",
            "backbone.stages_1.blocks.0.attn.qkv.lora_A",
            "backbone.stages_1.blocks.1.attn.qkv.lora_A",
            ["qkv.lora_A", "there twice"],
        ),
    ] {
        let message = spoiled_student(name, from, to);
        for word in words {
            assert!(
                !message.is_empty() && message.contains(word),
                "{name}: expected {word:?} in {message:?}"
            );
        }
    }
}

#[test]
fn students_are_not_pruned() {
    let path = goldens().join("students/rep_vit.pt");
    let message = CheckpointOptions::default().open(&path).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(message.contains("base is missing"), "{message}");
    let checkpoint = student(&path).expect("the golden is whole");
    let folder = tempfile::tempdir().expect("a folder");
    for (options, word) in [
        (
            crate::ExportOptions {
                pruning: Pruning { skip_blocks: [1].into(), ..Pruning::default() },
                ..crate::ExportOptions::default()
            },
            "skip_blocks",
        ),
        (
            crate::ExportOptions {
                pruning: Pruning {
                    mask_blocks: ["1:mlp".parse().expect("a branch")].into(),
                    ..Pruning::default()
                },
                ..crate::ExportOptions::default()
            },
            "mask_blocks",
        ),
        (
            crate::ExportOptions {
                pruning: Pruning { split_block: Some(1), ..Pruning::default() },
                ..crate::ExportOptions::default()
            },
            "split_block",
        ),
    ] {
        let error = crate::export(&checkpoint, &options, &folder.path().join("out"), |_| Ok(()));
        let error = error.expect_err("it has no such blocks");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        for word in [word, "RepViT"] {
            assert!(error.to_string().contains(word), "expected {word} in {error}");
        }
    }
}

#[test]
fn an_inspection_describes_students() {
    let options = with_base("sam3/sam3.pt");
    let found = options.inspect(&goldens().join("students/tiny_vit.pt")).expect("a checkpoint");
    assert_eq!((found.problem.as_deref(), found.family.as_str()), (None, "a student backbone of DART"));
    let parts: Vec<&str> = found.parts.iter().map(|part| part.name).collect();
    assert_eq!(parts, ["image backbone", "head or adapters"]);
    let whole =
        CheckpointOptions::default().inspect(&goldens().join("efficient_rep_vit/efficient_rep_vit.pt"));
    let whole = whole.expect("a checkpoint");
    assert_eq!(whole.problem, None);
    assert!(whole.family.starts_with("EfficientSAM3"), "{}", whole.family);
}
