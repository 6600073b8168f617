mod chain;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ocelli::builtin::write_checkpoint;
use ocelli::export::{Branch, Checkpoint, ExportOptions, MaskedBranch, Pruning, export, export_chain};
use ocelli::{
    BoundingBox, Detection, Detector, EngineKind, Error, ErrorKind, Image, Model, Prompts, Result,
    StageTimes,
    engine::{EngineFactory, EngineOptions},
    stages::{ImageEncoder, ImageFeatures, Stages, TextCacheFile, Wanted},
};
use ocelli_engines::Tensor;
use ocelli_export::contract::{Target, file, tensor};
use tempfile::TempDir;

use super::chain::Chain;
use super::{DetectionEffect, Effect, Measurement, *};
use crate::scenes::Random;
use crate::scenes::{SceneGenerator, SceneOptions};

fn embedded() -> EngineFactory {
    let options = EngineOptions { kind: EngineKind::Embedded, threads: Some(1), ..EngineOptions::default() };
    EngineFactory::start(&options).expect("it needs no library")
}

fn golden(name: &str) -> Checkpoint {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/parity").join(name);
    Checkpoint::open(&folder).expect("the golden is whole")
}

/// `fpn_2` and `image_prompt` of a backbone.
fn features_of(engine: &mut dyn ocelli_engines::Engine, input: &str, from: &Tensor) -> Vec<f32> {
    let (mut coarse, mut cls) = (Tensor::empty(), Tensor::empty());
    let mut outputs = [(tensor::FPN[2], &mut coarse), (tensor::IMAGE_PROMPT, &mut cls)];
    engine.run(&[(input, from)], &mut outputs).expect("the graph runs");
    [coarse, cls].iter().flat_map(|it| it.as_f32().expect("floats").to_vec()).collect()
}

/// The built-in model and drawn scenes.
struct Place {
    folder: TempDir,
    checkpoint: Checkpoint,
    model: Model,
    factory: EngineFactory,
    images: Vec<PathBuf>,
    prompts: Prompts,
}

impl Place {
    fn new(images: u64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let weights = folder.path().join("checkpoint");
        std::fs::create_dir(&weights)
            .and_then(|()| std::fs::create_dir(folder.path().join("images")))
            .expect("new");
        write_checkpoint(&weights).expect("it is in the program");
        let checkpoint = Checkpoint::open(&weights).expect("it is whole");
        let exported = folder.path().join("model");
        let options = ExportOptions { detection_only: true, ..ExportOptions::default() };
        export(&checkpoint, &options, &exported, |_| Ok(())).expect("it exports");
        let labels = ["dog", "car", "tree"];
        let options = SceneOptions { labels: labels.map(String::from).to_vec(), ..SceneOptions::default() };
        let scenes = SceneGenerator::new(11, options).expect("labels of the vocabulary");
        let draw = |index: u64| {
            let path = folder.path().join(format!("images/{index}.png"));
            scenes.scene(index).image.into_rgb_image().save(&path).expect("the folder exists");
            path
        };
        let images = (0..images).map(draw).collect();
        let model = Model::open(&exported).expect("it was exported");
        let prompts = Prompts::new(labels).expect("they are valid");
        Self { folder, checkpoint, model, factory: embedded(), images, prompts }
    }

    fn journal(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn measurements(&self, journal: &str) -> usize {
        std::fs::read_to_string(self.journal(journal)).expect("it was written").lines().count()
    }

    fn search_with(
        &self,
        options: &PruneOptions,
        journal: &str,
        progress: &mut ReportProgress<'_>,
    ) -> Result<PruneReport> {
        let input = PruneInput {
            checkpoint: &self.checkpoint,
            model: &self.model,
            factory: &self.factory,
            images: &self.images,
            prompts: &self.prompts,
            journal: &self.journal(journal),
            scratch: self.folder.path(),
        };
        search(input, options, progress)
    }

    fn search(&self, options: &PruneOptions, journal: &str) -> PruneReport {
        self.search_with(options, journal, &mut |_| Ok(())).expect("the search ends")
    }

    /// Features and detections without some branches, from graphs that the exporter writes.
    fn detect(&self, removed: &BTreeSet<MaskedBranch>) -> Vec<(Vec<f32>, Vec<Detection>)> {
        let pruning = Pruning::of_branches(removed.iter().copied());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = ExportOptions { detection_only: true, pruning, ..ExportOptions::default() };
        export(&self.checkpoint, &options, &folder.path().join("model"), |_| Ok(())).expect("it exports");
        let mut detector = Detector::builder()
            .with_open_model(Model::open(&folder.path().join("model")).expect("it was exported"))
            .with_engine_factory(self.factory.clone())
            .with_text_cache(TextCacheFile::None)
            .build()
            .expect("it loads");
        let prompts = detector.prepare(&self.prompts).expect("it loads");
        let Stages { encoder, mut decoder, .. } = detector.into_stages();
        let ImageEncoder { mut preprocessor, mut backbone, .. } = encoder;
        let mut found = Vec::new();
        for path in &self.images {
            let image = Image::open(path).expect("it was drawn");
            let (mut pixels, mut features) = (Tensor::empty(), ImageFeatures::default());
            let times = &mut StageTimes::default();
            preprocessor.run_into(&image, &mut pixels, times).expect("it runs");
            let size = (image.width(), image.height());
            backbone.run_into(&pixels, size, Wanted::default(), &mut features, times).expect("it runs");
            let detections = decoder.decode(&features, &prompts, times).expect("it runs");
            let (_, coarse) =
                features.tensors().find(|(name, _)| *name == tensor::FPN[2]).expect("it has the output");
            found.push((coarse.as_f32().expect("floats").to_vec(), detections));
        }
        found
    }
}

/// The steps of a report without times: what was removed, and what it changed.
fn choices(report: &PruneReport) -> Vec<(String, String)> {
    let alone = report.importance.iter().map(|row| (row.unit.to_string(), format!("{:?}", row.effect)));
    let steps = report.steps.iter().map(|step| {
        let unit = step.removed.map_or(String::new(), |unit| unit.to_string());
        (unit, format!("{:?} {:?} {:?}", step.skip_blocks, step.mask_blocks, step.effect))
    });
    alone.chain(steps).collect()
}

/// Every candidate exported and run in full, against the search: its choices, its counts, its features.
#[test]
fn the_search_removes_what_an_exhaustive_one_removes() {
    let place = Place::new(2);
    let known = RefCell::new(BTreeMap::new());
    let measure = |removed: &BTreeSet<MaskedBranch>| -> Vec<(f64, DetectionEffect)> {
        let mut known = known.borrow_mut();
        let whole = known.entry(BTreeSet::new()).or_insert_with(|| place.detect(&BTreeSet::new())).clone();
        let found = known.entry(removed.clone()).or_insert_with(|| place.detect(removed)).clone();
        let pairs = whole.iter().zip(&found);
        let compared = pairs.map(|((features, detections), (pruned, kept))| {
            let distance = pruned.iter().zip(features).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
            let length = features.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>();
            ((distance / length).sqrt(), DetectionEffect::between(detections, kept))
        });
        compared.collect()
    };
    for (whole_blocks, num_prune) in [(false, 3), (true, 2)] {
        let options = PruneOptions { whole_blocks, num_prune, ..PruneOptions::default() };
        let journal = format!("{whole_blocks}.jsonl");
        let report = place.search(&options, &journal);
        let mut remaining = units::of(&place.checkpoint, &options).expect("it fits").removable;
        let mut removed = BTreeSet::new();
        for step in &report.steps[1..] {
            let cost = |unit: &Unit| {
                let found = measure(&removed.iter().copied().chain(unit.branches()).collect());
                found.iter().map(|(distance, _)| distance).sum::<f64>()
            };
            let order = |a: &(f64, Unit), b: &(f64, Unit)| a.0.partial_cmp(&b.0).expect("finite");
            let costs = remaining.iter().map(|unit| (cost(unit), *unit));
            let (_, best) = costs.min_by(order).expect("something is left");
            assert_eq!(step.removed, Some(best), "whole blocks: {whole_blocks}, {:?}", report.steps);
            remaining.retain(|unit| *unit != best);
            removed.extend(best.branches());
            let expected = measure(&removed);
            let mean = expected.iter().map(|(distance, _)| distance).sum::<f64>() / expected.len() as f64;
            let counted = step.effect.detections.expect("steps count detections");
            assert!((step.effect.relative_l2 - mean).abs() < 1e-5 * mean, "{mean}: {step:?}");
            let sum =
                |of: fn(&DetectionEffect) -> u32| expected.iter().map(|(_, found)| of(found)).sum::<u32>();
            let expected =
                [sum(|f| f.whole), sum(|f| f.kept), sum(|f| f.lost), sum(|f| f.new), sum(|f| f.moved)];
            let found = [counted.whole, counted.kept, counted.lost, counted.new, counted.moved];
            assert_eq!(found, expected, "{step:?}");
            assert!(counted.whole > 0 && counted.kept + counted.lost == counted.whole, "{step:?}");
        }
        assert_eq!(report.steps[0].effect.kept_share, Some(1.0));
        assert_eq!(report.importance.len(), 12);
        let all = PruneOptions { exhaustive: true, ..options };
        let all = (choices(&place.search(&all, "all.jsonl")), place.measurements("all.jsonl"));
        assert_eq!(choices(&report), all.0, "the rule of experience");
        assert!(place.measurements(&journal) <= all.1);
        std::fs::remove_file(place.journal("all.jsonl")).expect("it was written");
        // Faster with each removal: the time is the sum of the parts that are left.
        assert!(report.steps.windows(2).all(|pair| pair[1].backbone_ms < pair[0].backbone_ms));
    }
}

/// A search that was stopped anywhere, or that has less memory, gives the same report.
#[test]
fn a_search_continues_where_it_was_stopped() {
    let place = Place::new(1);
    let options = PruneOptions { num_prune: 2, ..PruneOptions::default() };
    let whole = place.search(&options, "whole.jsonl");
    let lines = std::fs::read(place.journal("whole.jsonl")).expect("it was written");
    let ends: Vec<usize> = (0..lines.len()).filter(|&at| lines[at] == b'\n').map(|at| at + 1).collect();
    assert_eq!(place.search(&options, "whole.jsonl"), whole);
    assert_eq!(place.measurements("whole.jsonl"), ends.len(), "nothing is measured again");
    // Bytes that are left: nothing, half a first line, the first line, the times, half of a measurement, half of them.
    let middle = ends[ends.len() / 2];
    for (left, has_times) in [
        (0, false),
        (ends[0] / 2, false),
        (ends[0], false),
        (ends[1], true),
        (ends[5] + 7, true),
        (middle, true),
    ] {
        std::fs::write(place.journal("cut.jsonl"), &lines[..left]).expect("it can be written");
        let again = place.search(&options, "cut.jsonl");
        assert_eq!(choices(&again), choices(&whole), "{left} bytes");
        if has_times {
            assert_eq!(again, whole, "{left} bytes");
        }
        assert_eq!(place.measurements("cut.jsonl"), ends.len(), "{left} bytes");
    }
    // Stopped by the caller again and again, each time a few measurements later.
    let (mut stops, steps) = (0, RefCell::new(0));
    let stopped = loop {
        *steps.borrow_mut() = 0;
        let mut stop = |_: &PruneProgress| {
            *steps.borrow_mut() += 1;
            let limit = 8 + 6 * stops;
            if *steps.borrow() > limit { Err(Error::cancelled("stopped")) } else { Ok(()) }
        };
        match place.search_with(&options, "stopped.jsonl", &mut stop) {
            Ok(report) => break report,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}"),
        }
        stops += 1;
    };
    assert!(stops > 2, "{stops} stops");
    assert_eq!(choices(&stopped), choices(&whole));

    for memory_bytes in [0, 1 << 20] {
        let less =
            place.search(&PruneOptions { memory_bytes, ..options.clone() }, &format!("{memory_bytes}.jsonl"));
        assert_eq!(choices(&less), choices(&whole), "{memory_bytes} bytes");
    }

    // What belongs to another search, and what belongs to none.
    let other = PruneOptions { confidence: Some(0.7), ..options.clone() };
    let refused = place.search_with(&other, "whole.jsonl", &mut |_| Ok(())).expect_err("another threshold");
    assert!(refused.kind() == ErrorKind::Mismatch && refused.to_string().contains("confidence"), "{refused}");
    std::fs::write(place.journal("text.jsonl"), "hello\n").expect("it can be written");
    let refused = place.search_with(&options, "text.jsonl", &mut |_| Ok(())).expect_err("it is text");
    assert!(refused.kind() == ErrorKind::InvalidData && refused.to_string().contains("line 1"), "{refused}");
    assert_eq!(std::fs::read(place.journal("text.jsonl")).ok().as_deref(), Some(&b"hello\n"[..]));
}

#[test]
fn progress_reaches_its_end() {
    let place = Place::new(2);
    let options = PruneOptions { num_prune: 2, whole_blocks: true, ..PruneOptions::default() };
    let mut seen: Vec<PruneProgress> = Vec::new();
    let report = place
        .search_with(&options, "journal.jsonl", &mut |step| {
            seen.push(step.clone());
            Ok(())
        })
        .expect("the search ends");
    assert!(seen.windows(2).all(|pair| pair[0].done <= pair[1].done), "{seen:?}");
    let last = seen.last().expect("it was called");
    assert!(last.done < last.total && last.total - last.done == 1, "{last:?}");
    assert_eq!(report.steps.len(), 3);
    let left = std::fs::read_dir(place.folder.path()).expect("it is a folder").flatten();
    assert!(left.map(|entry| entry.file_name()).all(|name| !name.to_string_lossy().starts_with(".ocelli")));

    let mut table = Vec::new();
    report.write_table(&mut table).expect("a vector grows");
    let table = String::from_utf8(table).expect("it is text");
    assert_eq!(table.lines().count(), 2 + 12 + 1 + 2 + 3, "{table}");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let checkpoint = golden("plain");
    let units = |text: &str| text.split_whitespace().filter_map(|t| t.parse().ok()).collect::<Vec<Unit>>();
    let defaults = PruneOptions { num_prune: 1, ..PruneOptions::default() };
    let cases = [
        (PruneOptions { num_prune: 0, ..defaults.clone() }, "num_prune is 0: expected 1 to 6"),
        (PruneOptions { num_prune: 7, ..defaults.clone() }, "num_prune is 7: expected 1 to 6"),
        (
            PruneOptions { num_prune: 4, whole_blocks: true, ..defaults.clone() },
            "expected 1 to 3, the number of blocks",
        ),
        (
            PruneOptions { protect: units("9"), ..defaults.clone() },
            "protect has block 9: the model has blocks 0 to 3",
        ),
        (PruneOptions { protect: units("0 7:mlp"), ..defaults.clone() }, "protect has block 7"),
        (PruneOptions { protect: units("0 1 2"), ..defaults.clone() }, "leaves no branches of blocks"),
        (
            PruneOptions { protect: units("0:attn 1:mlp 2"), whole_blocks: true, ..defaults.clone() },
            "leaves no blocks",
        ),
    ];
    let mut wrong = Vec::new();
    for (options, words) in cases {
        match options.check(&checkpoint) {
            Err(error) if error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(words) => {
            }
            other => wrong.push(format!("{words}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (options, expected) in [
        (defaults.clone(), "0:attn 0:mlp 1:attn 1:mlp 2:attn 2:mlp"),
        (PruneOptions { protect: units("0:attn 1"), ..defaults.clone() }, "0:mlp 2:attn 2:mlp"),
        (PruneOptions { whole_blocks: true, protect: units("0:attn"), ..defaults }, "1 2"),
    ] {
        let found = units::of(&checkpoint, &options).expect("it fits").removable;
        assert_eq!(found, units(expected), "{options:?}");
    }
    let student = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden/checkpoints/efficient_vit/efficient_vit.pt");
    let student = Checkpoint::open(&student).expect("the golden is whole");
    let error = PruneOptions::default().check(&student).expect_err("it has no blocks");
    assert!(error.to_string().contains("no blocks of a vision transformer"), "{error}");
}

#[test]
fn detections_are_kept_lost_new_or_moved() {
    let found = |class_id, left: f32| Detection {
        class_id,
        label: "dog".into(),
        score: 0.9,
        bbox: BoundingBox::new(left, 0.0, left + 100.0, 100.0),
        mask: None,
    };
    let effect = |whole: &[Detection], pruned: &[Detection]| {
        let DetectionEffect { whole, kept, lost, new, moved } = DetectionEffect::between(whole, pruned);
        [whole, kept, lost, new, moved]
    };
    let one = [found(0, 0.0)];
    for (pruned, expected) in [
        (vec![found(0, 0.0)], [1, 1, 0, 0, 0]),
        (vec![found(0, 4.0)], [1, 1, 0, 0, 0]),
        // IoU 0.82, 0.48.
        (vec![found(0, 10.0)], [1, 1, 0, 0, 1]),
        (vec![found(0, 35.0)], [1, 0, 1, 1, 0]),
        (vec![found(1, 0.0)], [1, 0, 1, 1, 0]),
        (vec![found(0, 10.0), found(0, 0.0)], [1, 1, 0, 1, 0]),
        (vec![], [1, 0, 1, 0, 0]),
    ] {
        assert_eq!(effect(&one, &pruned), expected, "{pruned:?}");
    }
    assert_eq!(effect(&[], &one), [0, 0, 0, 1, 0]);
}

#[test]
fn effects_are_means_of_images() {
    let none = Measurement { relative_l2: 0.5, cosine: 0.25, detections: None };
    let effect = Effect::of(&[none, Measurement { relative_l2: 0.25, ..none }]);
    assert_eq!((effect.relative_l2, effect.worst_relative_l2, effect.cosine), (0.375, 0.5, 0.25));
    assert_eq!((effect.detections, effect.kept_share), (None, None));
}

#[test]
fn branches_take_the_time_of_their_kinds() {
    let branches = "0:attn 0:mlp 3:attn".split(' ').filter_map(|text| text.parse().ok()).collect::<Vec<_>>();
    let times = PartTimes {
        embedding_ms: 1.0,
        windowed_attention_ms: 3.0,
        global_attention_ms: 40.0,
        mlp_ms: 2.0,
        neck_ms: 1.0,
    };
    assert_eq!(times.of(&branches, &[3]), 45.0);
}
