//! The built-in model: pipelined, sequential, pulled and pushed runs and the detector alone give bit-identical results. Needs ONNX
//! Runtime, which `make setup` installs.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ocelli::tracking::ByteTrackerOptions;
use ocelli::{
    Detector, Frame, FrameView, Image, Pipeline, PipelineBuilder, Prompts, Result, Sink, Source,
    source::SourceInfo,
};

use ocelli_verify::scenes::MovingScene;

use super::fakes::{Keep, facts};

const FRAMES: u64 = 12;
/// The size of the moving crop.
const SIZE: (u32, u32) = (480, 320);

/// A crop that moves across an image, a few pixels per frame.
struct Pan {
    info: SourceInfo,
    image: Image,
    /// The corner of the crop of a frame.
    corner: fn(u64) -> (usize, usize),
    next: u64,
}

impl Pan {
    fn new() -> Self {
        Self::over("park.png")
    }

    fn over(scene: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demos/scenes").join(scene);
        let image = Image::open(path).expect("it is in the repository");
        let mut info = SourceInfo::default();
        (info.size, info.frame_rate) = (Some(SIZE), Some(30.0));
        Self { info, image, corner: |index| (7 * index as usize, 3 * index as usize), next: 0 }
    }

    /// A camera that is shaken, by up to half the width of the larger objects from frame to frame.
    fn shaken(image: &str) -> Self {
        let corner = |index| {
            let number = (index as usize).wrapping_mul(2_654_435_761) >> 7;
            (number % 64, number / 64 % 48)
        };
        Self { corner, ..Self::over(image) }
    }

    fn crop(&self, index: u64) -> FrameView<'_> {
        let (x, y) = (self.corner)(index);
        let stride = self.image.width() as usize * 3;
        FrameView {
            data: &self.image.as_rgb8()[y * stride + x * 3..],
            width: SIZE.0,
            height: SIZE.1,
            stride,
            format: ocelli::PixelFormat::Rgb8,
            timestamp: Duration::from_secs_f64(index as f64 / 30.0),
        }
    }
}

impl Source for Pan {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        if self.next == FRAMES {
            return Ok(false);
        }
        let view = self.crop(self.next);
        let row = SIZE.0 as usize * 3;
        let rows = frame.image.reset_rgb8(SIZE.0, SIZE.1)?.chunks_exact_mut(row);
        rows.zip(view.data.chunks(view.stride)).for_each(|(to, from)| to.copy_from_slice(&from[..row]));
        (frame.index, frame.time) = (self.next, view.timestamp);
        self.next += 1;
        Ok(true)
    }
}

fn prompts() -> Prompts {
    Prompts::new(["dog", "bicycle", "person", "tree", "car", "umbrella"]).expect("they have names")
}

fn builder() -> PipelineBuilder {
    builder_for(prompts())
}

fn builder_for(prompts: Prompts) -> PipelineBuilder {
    let detector = Detector::builder().build().expect("the built-in model loads");
    Pipeline::builder(detector, prompts).with_tracker(ByteTrackerOptions::default()).with_frame_rate(30.0)
}

fn run(builder: PipelineBuilder) -> Vec<String> {
    let sink = Keep::default();
    let kept = sink.kept.clone();
    builder.run(Pan::new(), &mut [Box::new(sink) as Box<dyn Sink>]).expect("it runs");
    let kept = kept.lock().expect("no sink panics");
    let found: usize = kept.outcomes.iter().map(|outcome| outcome.detections.len()).sum();
    assert!(found >= FRAMES as usize, "expected detections in every frame, found {found} in total");
    kept.outcomes.iter().map(facts).collect()
}

fn pushed(builder: PipelineBuilder) -> Vec<String> {
    let (pan, pipeline) = (Pan::new(), builder.build().expect("it starts"));
    let mut found = Vec::new();
    for index in 0..FRAMES {
        pipeline.push(pan.crop(index)).expect("the pipeline is open");
        found.extend(pipeline.recv().expect("the pipeline works").as_ref().map(facts));
    }
    found
}

#[test]
fn pipelined_sequential_and_pushed_runs_are_bit_identical() {
    let expected = run(builder().with_sequential(true));
    assert_eq!(run(builder()), expected, "pipelined");
    assert_eq!(pushed(builder()), expected, "pushed from memory with padded rows");
    let budget = |sequential| {
        builder().with_options(|options| options.class_budget = Some(3)).with_sequential(sequential)
    };
    assert_eq!(run(budget(false)), run(budget(true)), "with a class budget");
}

#[test]
fn tracks_survive_a_shaken_camera() {
    let tracks = |image: &str, builder: PipelineBuilder| {
        let sink = Keep::default();
        let kept = sink.kept.clone();
        builder.run(Pan::shaken(image), &mut [Box::new(sink) as Box<dyn Sink>]).expect("it runs");
        let kept = kept.lock().expect("no sink panics");
        let tracks = kept.outcomes.iter().flat_map(|outcome| &outcome.tracks);
        let ids: Vec<u64> = tracks.map(|track| track.id).collect();
        let different: BTreeSet<_> = ids.iter().copied().collect();
        (different.len(), ids.len(), kept.outcomes.iter().map(facts).collect::<Vec<_>>())
    };
    let builder = || {
        let names = [
            "dog", "tree", "kite", "clock", "cake", "cup", "apple", "banana", "tv", "couch", "cat", "book",
            "star", "moon",
        ];
        builder_for(Prompts::new(names).expect("they have names"))
    };
    let (mut without, mut with) = ([0, 0], [0, 0]);
    for image in ["park.png", "kitchen.png", "living-room.png", "night.png"] {
        let (ids, places, _) = tracks(image, builder());
        without = [without[0] + ids, without[1] + places];
        let (ids, places, facts) =
            tracks(image, builder().with_options(|options| options.camera_motion = true));
        with = [with[0] + ids, with[1] + places];
        if image == "park.png" {
            let sequential =
                builder().with_options(|options| options.camera_motion = true).with_sequential(true);
            assert_eq!(tracks(image, sequential).2, facts, "sequential");
        }
    }
    assert!(with[0] * 3 < without[0] * 2 && with[1] > without[1], "{without:?} {with:?}");
}

/// A scene with two pillars in front of everything, as wide as a large pictogram.
struct BehindPillars(MovingScene);

impl Source for BehindPillars {
    fn info(&self) -> &SourceInfo {
        self.0.info()
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        let is_read = self.0.read_into(frame)?;
        let (width, height) = self.0.size();
        let half = 0.15 * f64::from(width.min(height));
        let mut pixels = std::mem::take(&mut frame.image).into_rgb8();
        for row in pixels.chunks_exact_mut(3 * width as usize) {
            for place in 1..=2 {
                let middle = f64::from(width * place) / 3.0;
                row[3 * (middle - half) as usize..3 * (middle + half) as usize].fill(96);
            }
        }
        if is_read {
            frame.image = Image::from_rgb8(width, height, pixels)?;
        }
        Ok(is_read)
    }
}

#[test]
fn tracks_survive_pillars_by_what_they_look_like() {
    let tracks = |builder: PipelineBuilder| {
        let scene = MovingScene::new(100, &["dog"], 640, 360, 120, 15.0).expect("it can be drawn");
        let sink = Keep::default();
        let kept = sink.kept.clone();
        let scene = BehindPillars(scene.with_colours(100));
        builder.run(scene, &mut [Box::new(sink) as Box<dyn Sink>]).expect("it runs");
        let kept = kept.lock().expect("no sink panics");
        let tracks = kept.outcomes.iter().flat_map(|outcome| &outcome.tracks);
        let ids: Vec<u64> = tracks.map(|track| track.id).collect();
        let different: BTreeSet<_> = ids.iter().copied().collect();
        (different.len(), ids.len(), kept.outcomes.iter().map(facts).collect::<Vec<_>>())
    };
    let builder = || builder_for(Prompts::new(["dog"]).expect("it has a name")).with_frame_rate(15.0);
    let (ids, places, _) = tracks(builder());
    let (fewer, more, facts) = tracks(builder().with_options(|options| options.appearance = true));
    assert!(2 * fewer <= ids && more >= places, "{fewer} ids of {more} boxes, {ids} of {places} without");
    let sequential = builder().with_options(|options| options.appearance = true).with_sequential(true);
    assert_eq!(tracks(sequential).2, facts, "sequential");
}

#[test]
fn the_pipeline_gives_the_detections_of_the_detector() {
    let mut detector = Detector::builder().build().expect("the built-in model loads");
    let (mut pan, mut frame) = (Pan::new(), Frame::default());
    let sink = Keep::default();
    let kept = sink.kept.clone();
    builder().run(Pan::new(), &mut [Box::new(sink) as Box<dyn Sink>]).expect("it runs");
    let kept = kept.lock().expect("no sink panics");
    for outcome in &kept.outcomes {
        assert!(pan.read_into(&mut frame).expect("it reads"));
        let alone = detector.detect(&frame.image, &prompts()).expect("it runs");
        assert_eq!(outcome.detections, alone.items, "frame {}", outcome.index);
    }
    assert_eq!(kept.outcomes.len() as u64, FRAMES);
}
