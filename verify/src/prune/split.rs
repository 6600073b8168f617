//! Where to split a backbone in two, by the measured times of its blocks.

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use ocelli::export::BackboneChain;
use ocelli::preprocess::{PreprocessConfig, Preprocessor};
use ocelli::{
    Detector, Error, Image, Model, Prompts, Result, StageTimes, engine::EngineFactory, stages::TextCacheFile,
};
use ocelli_engines::Tensor;
use ocelli_export::{Checkpoint, ExportOptions, contract::tensor, export_chain};
use serde::Serialize;

use super::subject::{median, scratch_folder};
use super::{PruneProgress, ReportProgress};
use crate::scenes::{SceneGenerator, SceneOptions};

/// Every measurement has the same image.
const SEED: u64 = 1;

/// Times of the parts of a backbone on an engine, in milliseconds. Parts that are removed take none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BlockTimes {
    /// Pixels to tokens.
    pub embedding_ms: f64,
    /// Each block, front to back.
    pub blocks_ms: Vec<f64>,
    /// Tokens to features.
    pub neck_ms: f64,
}

/// A place to split a backbone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SplitPoint {
    /// The first block of the second half.
    pub split_block: usize,
    /// The time of the first half, in milliseconds.
    pub first_ms: f64,
    /// The time of the second half and of the classes, in milliseconds.
    pub second_ms: f64,
    /// The time between two frames of a pipeline whose stages are the two halves: that of the slower one.
    pub frame_ms: f64,
}

/// Every place to split a backbone of which the first half has the times `first` and the second half the times `second`, with
/// `classes_ms` behind it.
pub fn split_points(first: &BlockTimes, second: &BlockTimes, classes_ms: f64) -> Vec<SplitPoint> {
    let blocks = first.blocks_ms.len().min(second.blocks_ms.len());
    let point = |split_block: usize| {
        let first_ms = first.embedding_ms + first.blocks_ms[..split_block].iter().sum::<f64>();
        let second_ms =
            second.blocks_ms[split_block..blocks].iter().sum::<f64>() + second.neck_ms + classes_ms;
        SplitPoint { split_block, first_ms, second_ms, frame_ms: first_ms.max(second_ms) }
    };
    (1..blocks).map(point).collect()
}

/// The place with the shortest time between two frames; of equal ones the place with the shortest time of both halves, then the
/// first.
pub fn best_split(points: &[SplitPoint]) -> Option<SplitPoint> {
    let both = |point: &SplitPoint| point.first_ms + point.second_ms;
    points.iter().copied().min_by(|a, b| a.frame_ms.total_cmp(&b.frame_ms).then(both(a).total_cmp(&both(b))))
}

/// What is measured for a split.
#[derive(Clone, Copy)]
pub struct SplitInput<'i> {
    /// The checkpoint whose backbone is split.
    pub checkpoint: &'i Checkpoint,
    /// Side of the model's input; `None` is the checkpoint's.
    pub imgsz: Option<usize>,
    /// What runs the first and the second half.
    pub factories: [&'i EngineFactory; 2],
    /// The model and the prompts that the second half's engine decodes as well, if any.
    pub classes: Option<(&'i Model, &'i Prompts)>,
    /// Measured runs of each part, after one to warm up.
    pub runs: usize,
    /// A folder for the graphs, which are removed at the end. They take as much space as the backbone.
    pub scratch: &'i Path,
}

/// The places to split a backbone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitReport {
    /// The engines of the two halves.
    pub engines: [String; 2],
    /// Side of the model's input.
    pub imgsz: usize,
    /// Measured runs of each part: times are medians.
    pub runs: usize,
    /// Number of classes that are decoded behind the second half.
    pub classes: usize,
    /// Their time, in milliseconds.
    pub classes_ms: f64,
    /// The times on the two engines.
    pub times: [BlockTimes; 2],
    /// Every place.
    pub points: Vec<SplitPoint>,
    /// The best of them.
    pub best: SplitPoint,
}

impl SplitReport {
    /// Writes a table with a row for each place.
    ///
    /// # Errors
    /// Errors of `writer`.
    pub fn write_table(&self, mut writer: impl Write) -> io::Result<()> {
        let Self { engines: [first, second], imgsz, runs, .. } = self;
        writeln!(writer, "{imgsz} px   first half {first}   second half {second}   n = {runs}")?;
        let behind = match self.classes {
            0 => String::new(),
            1 => " + 1 class".into(),
            classes => format!(" + {classes} classes"),
        };
        let second = format!("second half{behind} ms");
        let width = second.len();
        writeln!(writer, "{:>11} {:>13} {second:>width$} {:>9}", "split block", "first half ms", "frame ms")?;
        for point in &self.points {
            let SplitPoint { split_block, first_ms, second_ms, frame_ms } = point;
            let mark = if point == &self.best { "  best" } else { "" };
            writeln!(
                writer,
                "{split_block:>11} {first_ms:>13.2} {second_ms:>width$.2} {frame_ms:>9.2}{mark}"
            )?;
        }
        Ok(())
    }
}

/// Measures each block alone on the engine of each half, and from that every place to split the backbone: a half takes as long
/// as its blocks together, and features are those of boxes without masks. Two halves that share a device slow each other down,
/// which this does not show.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](ocelli::ErrorKind::InvalidArgument) without runs, for a backbone that is no vision
/// transformer, and for one of fewer than two blocks; as [`search`](super::search) otherwise.
pub fn optimise_split(input: SplitInput<'_>, progress: &mut ReportProgress<'_>) -> Result<SplitReport> {
    if input.runs == 0 {
        return Err(Error::argument("runs", 0, "at least 1"));
    }
    let names = input.factories.map(EngineFactory::description);
    let (first, imgsz) = measure(&input, input.factories[0], progress)?;
    // Measured twice, the same engine would not be the same.
    let second =
        if names[0] == names[1] { first.clone() } else { measure(&input, input.factories[1], progress)?.0 };
    let (classes, classes_ms) = match input.classes {
        Some((model, prompts)) => (prompts.len(), decode_ms(model, prompts, &input)?),
        None => (0, 0.0),
    };
    let points = split_points(&first, &second, classes_ms);
    let best = best_split(&points).ok_or_else(|| {
        Error::invalid_argument("the backbone has one block: expected at least two to split it")
    })?;
    let times = [first, second];
    Ok(SplitReport { engines: names, imgsz, runs: input.runs, classes, classes_ms, times, points, best })
}

/// The times on an engine, and the side of the model's input. One graph is in memory at a time.
fn measure(
    input: &SplitInput<'_>,
    factory: &EngineFactory,
    progress: &mut ReportProgress<'_>,
) -> Result<(BlockTimes, usize)> {
    let options = ExportOptions {
        target: factory.target(None),
        detection_only: true,
        imgsz: input.imgsz,
        ..ExportOptions::default()
    };
    let folder = scratch_folder(input.scratch, ".ocelli-split-")?;
    let mut step = |stage: &str, done: usize, total: usize| {
        progress(&PruneProgress { stage: stage.to_owned(), done: done as u64, total: total as u64 })
    };
    let files: BackboneChain = export_chain(input.checkpoint, &options, folder.path(), |done, total| {
        step("exporting the blocks", done, 2 * total)
    })?;
    let parts = files.branches.len() + 2;
    let mut done = parts;
    let mut time = |path: &Path, name: &str, from: &Tensor| -> Result<(f64, Tensor)> {
        step(&format!("timing the blocks on {}", factory.description()), done, 2 * parts)?;
        done += 1;
        time_graph(factory, path, (name, from), input.runs)
    };
    let imgsz = input.imgsz.unwrap_or(input.checkpoint.config().vision.image_size);
    let mut pixels = Tensor::zeros::<f32>(&[1, 3, imgsz, imgsz]);
    Preprocessor::new(PreprocessConfig::new(imgsz))?.run_into(&image()?, pixels.as_mut_slice::<f32>()?)?;
    let (embedding_ms, mut tokens) = time(&files.embedding, tensor::PIXEL_VALUES, &pixels)?;
    let mut blocks_ms = vec![0.0; input.checkpoint.config().vision.stack.layers];
    for (branch, path) in &files.branches {
        let (ms, next) = time(path, tensor::TOKENS, &tokens)?;
        blocks_ms[branch.block] += ms;
        tokens = next;
    }
    let (neck_ms, _) = time(&files.neck, tensor::TOKENS, &tokens)?;
    Ok((BlockTimes { embedding_ms, blocks_ms, neck_ms }, imgsz))
}

/// The median time of a graph, in milliseconds, and its first output.
fn time_graph(
    factory: &EngineFactory,
    path: &Path,
    input: (&str, &Tensor),
    runs: usize,
) -> Result<(f64, Tensor)> {
    let mut engine = factory.load(path)?;
    let names: Vec<String> = engine.spec().outputs.iter().map(|output| output.name.clone()).collect();
    let on_device = || engine.device().map_or_else(Tensor::empty, Tensor::on);
    let mut outputs: Vec<Tensor> = names.iter().map(|_| on_device()).collect();
    let ms = median_of(runs, || {
        let start = Instant::now();
        let mut named: Vec<_> = names.iter().map(String::as_str).zip(&mut outputs).collect();
        engine.run(&[input], &mut named)?;
        outputs.iter().try_for_each(Tensor::wait)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    })?;
    Ok((ms, outputs.swap_remove(0)))
}

/// The median time of the classes on the second half's engine, in milliseconds.
fn decode_ms(model: &Model, prompts: &Prompts, input: &SplitInput<'_>) -> Result<f64> {
    let mut detector = Detector::builder()
        .with_open_model(model.clone())
        .with_engine_factory(input.factories[1].clone())
        .with_text_cache(TextCacheFile::None)
        .build()?;
    let prompts = detector.prepare(prompts)?;
    let features = detector.encode(&image()?)?;
    let mut decoder = detector.into_stages().decoder;
    median_of(input.runs, || {
        let mut stages = StageTimes::default();
        decoder.decode(&features, &prompts, &mut stages)?;
        Ok(stages.decode)
    })
}

/// The median of some runs, after one that warms up.
fn median_of(runs: usize, mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    run()?;
    (0..runs).map(|_| run()).collect::<Result<_>>().map(median)
}

fn image() -> Result<Image> {
    Ok(SceneGenerator::new(SEED, SceneOptions::default())?.scene(0).image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(embedding_ms: f64, blocks_ms: &[f64], neck_ms: f64) -> BlockTimes {
        BlockTimes { embedding_ms, blocks_ms: blocks_ms.to_vec(), neck_ms }
    }

    #[test]
    fn the_slower_half_is_made_as_fast_as_it_can_be() {
        let even = times(1.0, &[2.0; 8], 3.0);
        let half_as_fast = times(2.0, &[4.0; 8], 6.0);
        let cases = [
            // One device: 1 + 2·4 and 2·4 + 3, or 1 + 2·5 and 2·3 + 3.
            (&even, &even, 0.0, (4, 11.0)),
            // Classes behind the second half move the split back: 1 + 2·6 and 2·2 + 3 + 5.
            (&even, &even, 5.0, (6, 13.0)),
            // More than the whole backbone: the first half has all it can.
            (&even, &even, 90.0, (7, 95.0)),
            // A slow second device gets fewer blocks: 1 + 2·6, 4·2 + 6.
            (&even, &half_as_fast, 0.0, (6, 14.0)),
            (&half_as_fast, &even, 0.0, (3, 14.0)),
            // A block that is removed takes no time: the first of the equal places.
            (&times(0.0, &[2.0, 2.0, 0.0, 4.0], 0.0), &times(0.0, &[2.0, 2.0, 0.0, 4.0], 0.0), 0.0, (2, 4.0)),
        ];
        let mut wrong = Vec::new();
        for (first, second, classes_ms, expected) in cases {
            let points = split_points(first, second, classes_ms);
            let found = best_split(&points).map(|best| (best.split_block, best.frame_ms));
            if points.len() + 1 != first.blocks_ms.len() || found != Some(expected) {
                wrong.push(format!(
                    "{first:?} {second:?} {classes_ms}: {found:?}, expected {expected:?}: {points:?}"
                ));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert_eq!(best_split(&split_points(&times(1.0, &[2.0], 1.0), &times(1.0, &[2.0], 1.0), 0.0)), None);
    }

    #[test]
    fn equal_frames_are_decided_by_the_time_of_both_halves() {
        let point = |split_block, first_ms: f64, second_ms: f64| SplitPoint {
            split_block,
            first_ms,
            second_ms,
            frame_ms: first_ms.max(second_ms),
        };
        let points = [point(1, 9.0, 8.0), point(2, 9.0, 4.0), point(3, 4.0, 9.0)];
        assert_eq!(best_split(&points), Some(points[1]));
    }
}
