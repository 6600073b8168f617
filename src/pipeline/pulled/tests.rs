//! Frames that stay on a GPU, of a fake one: host memory behind the same structure, in place of the kernel the CPU's preprocessing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::*;
use crate::detection::Detection;
use crate::detector::{Detector, FakeGpu};
use crate::frame::Frame;
use crate::image::Image;
use crate::pipeline::{MotionGate, Pipeline, PipelineBuilder};
use crate::preprocess::{PreprocessConfig, Preprocessor};
use crate::prompt::Prompts;
use crate::source::{Feed, Several, SourceInfo};
use ocelli_engines::{ForeignMemory, Tensor};
use ocelli_error::Error;
use ocelli_images::{DeviceFrame, Nv12Colours};

const GPU: usize = 3;
const SCENES: [&str; 3] = ["park", "kitchen", "street"];

/// Counts of the frames of a source.
#[derive(Default)]
struct Counts {
    /// Frames that stayed on the GPU, and those of which the memory was given back.
    kept: AtomicU64,
    released: AtomicU64,
    /// The most at a time.
    most: AtomicU64,
    /// Frames that were copied to the host after they had stayed, and those that were read into memory at once.
    copied: AtomicU64,
    on_host: AtomicU64,
    /// Runs on the GPU.
    runs: AtomicU64,
}

/// The memory of a frame.
struct Memory(Arc<Counts>);

impl Memory {
    fn new(counts: &Arc<Counts>) -> Self {
        let alive = counts.kept.fetch_add(1, SeqCst) + 1 - counts.released.load(SeqCst);
        counts.most.fetch_max(alive, SeqCst);
        Self(counts.clone())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.0.released.fetch_add(1, SeqCst);
    }
}

/// Decodes on the GPU, with a scene at each address.
struct Decoder {
    info: SourceInfo,
    next: u64,
    end: u64,
    scenes: Arc<[Image]>,
    counts: Arc<Counts>,
}

fn address_of(index: u64) -> u64 {
    1000 + index % SCENES.len() as u64
}

impl Source for Decoder {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        if self.next == self.end {
            return Ok(false);
        }
        (frame.index, frame.time) = (self.next, Duration::from_millis(40 * self.next));
        let scene = self.scenes[(address_of(self.next) - 1000) as usize].clone();
        self.next += 1;
        if frame.gpu != Some(GPU) {
            self.counts.on_host.fetch_add(1, SeqCst);
            frame.image = scene;
            return Ok(true);
        }
        let (memory, width, height) = (Arc::new(Memory::new(&self.counts)), scene.width(), scene.height());
        let plane = |offset| {
            let address = address_of(frame.index) + offset;
            (ForeignMemory::fake(address, GPU, memory.clone()), 2 * width as usize)
        };
        let counts = self.counts.clone();
        frame.on_gpu = Some(DeviceFrame {
            width,
            height,
            luma: plane(0),
            chroma: plane(100_000),
            colours: Nv12Colours::from_coefficients([0; 4], false),
            to_rgb: Arc::new(move |rgb| {
                let _keeps = &memory;
                counts.copied.fetch_add(1, SeqCst);
                rgb.copy_from_slice(scene.as_rgb8());
                Ok(())
            }),
        });
        Ok(true)
    }
}

fn scenes() -> Arc<[Image]> {
    let open = |name| Image::open(format!("demos/scenes/{name}.png")).expect("it is an image");
    SCENES.into_iter().map(open).collect()
}

fn decoder(frames: u64) -> (Decoder, Arc<Counts>) {
    let (info, counts) = (SourceInfo { name: "fake".into(), ..SourceInfo::default() }, Arc::default());
    (Decoder { info, next: 0, end: frames, scenes: scenes(), counts: Arc::clone(&counts) }, counts)
}

fn builder() -> PipelineBuilder {
    let detector = Detector::builder().build().expect("the built-in model runs");
    Pipeline::builder(detector, Prompts::new(["dog", "tree", "car"]).expect("three names"))
}

/// Keeps detections and images by the index of the frame.
struct Collect<'c> {
    images: Images,
    found: &'c mut BTreeMap<u64, (Vec<Detection>, Option<Image>)>,
}

impl Sink for Collect<'_> {
    fn images(&self) -> Images {
        self.images
    }

    fn write(&mut self, outcome: &FrameOutcome) -> Result<()> {
        let found = (outcome.detections.clone(), outcome.clean.clone());
        assert!(self.found.insert(outcome.index, found).is_none(), "each frame comes once");
        Ok(())
    }
}

/// Frames of several sources stay where they are, but for the first ones: the sources do not know the pipeline's GPU yet.
#[test]
fn frames_of_several_sources_stay_on_the_gpu() {
    let (sources, counts): (Vec<_>, Vec<_>) = (0..2).map(|_| decoder(8)).unzip();
    let feed = |(name, source)| Feed { name: format!("{name}"), source: Box::new(source) };
    let feeds = sources.into_iter().enumerate().map(feed).collect();
    let several = Several::start(feeds, Some(false), Cancellation::new()).expect("two sources");
    let (how, mut loaded, side) = builder().loaded().expect("the engines load");
    let runs = Arc::new(AtomicU64::new(0));
    let count = runs.clone();
    let kernel = move |_: &DeviceFrame, pixels: &mut Tensor| {
        count.fetch_add(1, SeqCst);
        pixels.reset_f32(&[1, 3, side, side]).fill(0.0);
        Ok(())
    };
    loaded.devices[0].encoder.preprocessor.fake_gpu = Some(FakeGpu(GPU, Box::new(kernel)));
    let summary = run(how, loaded, several, &mut []).expect("it runs");
    let [kept, released, copied, on_host, _] = counts
        .iter()
        .map(|counts| happened(counts))
        .fold([0; 5], |all, one| std::array::from_fn(|i| all[i] + one[i]));
    assert_eq!((summary.stats.frames_out, kept + on_host, copied), (16, 16, 0));
    assert!(kept >= 8, "{kept} of 16 frames stayed");
    assert_eq!((released, runs.load(SeqCst)), (kept, kept), "each is given back once, and read by the GPU");
}

type Found = BTreeMap<u64, (Vec<Detection>, Option<Image>)>;

/// Runs six frames. `gpu`: what the GPU that preprocesses does before it does; without, the CPU preprocesses.
fn run_on(
    builder: PipelineBuilder,
    gpu: Option<(usize, fn(u64) -> Result<()>)>,
    images: Images,
) -> (Result<RunSummary>, Found, Arc<Counts>) {
    let (source, counts) = decoder(6);
    let (how, mut loaded, side) = builder.loaded().expect("the engines load");
    if let Some((ordinal, before)) = gpu {
        let (scenes, counts) = (scenes(), counts.clone());
        let mut cpu = Preprocessor::new(PreprocessConfig::new(side)).expect("the side of the built-in model");
        let kernel = move |frame: &DeviceFrame, pixels: &mut Tensor| {
            let [luma, chroma] = [&frame.luma, &frame.chroma].map(|(memory, _)| memory.address());
            assert_eq!(luma + 100_000, chroma, "both planes are those of one frame");
            assert!(counts.kept.load(SeqCst) > counts.released.load(SeqCst), "the memory is still there");
            before(counts.runs.fetch_add(1, SeqCst))?;
            let scene = &scenes[(luma - 1000) as usize];
            cpu.run_into(scene, pixels.reset_f32(&[1, 3, side, side]))
        };
        loaded.devices[0].encoder.preprocessor.fake_gpu = Some(FakeGpu(ordinal, Box::new(kernel)));
    }
    let mut found = BTreeMap::new();
    let mut sinks: Vec<Box<dyn Sink + '_>> = vec![Box::new(Collect { images, found: &mut found })];
    let summary = run(how, loaded, source, &mut sinks);
    drop(sinks);
    (summary, found, counts)
}

/// The counts: frames kept, released, copied, read into memory at once, runs on the GPU.
fn happened(counts: &Counts) -> [u64; 5] {
    let Counts { kept, released, copied, on_host, runs, .. } = counts;
    [kept, released, copied, on_host, runs].map(|count| count.load(SeqCst))
}

#[test]
fn frames_stay_on_the_gpu_of_the_backbone() {
    let works = |_| Ok(());
    let (_, expected, counts) = run_on(builder(), None, Images::CLEAN);
    assert_eq!(happened(&counts), [0, 0, 0, 6, 0], "the CPU preprocesses");
    assert!(expected.values().any(|(detections, _)| !detections.is_empty()), "something is found");
    let same = |found: &Found, with_images: bool, name: &str| {
        assert_eq!(found.len(), 6, "{name}");
        for (index, (detections, image)) in found {
            assert!(*detections == expected[index].0, "{name}: other detections in frame {index}");
            let expected = expected[index].1.as_ref().filter(|_| with_images);
            assert!(image.as_ref() == expected, "{name}: another image of frame {index}");
        }
    };
    for sequential in [false, true] {
        let case = || builder().with_sequential(sequential);
        let (summary, found, counts) = run_on(case(), Some((GPU, works)), Images::default());
        summary.expect("it runs");
        same(&found, false, "nobody draws");
        assert_eq!(happened(&counts), [6, 6, 0, 0, 6], "nothing comes to the host");
        assert!(counts.most.load(SeqCst) <= 6, "no more than a decoder has surfaces for");

        let (summary, found, counts) = run_on(case(), Some((GPU, works)), Images::CLEAN);
        summary.expect("it runs");
        same(&found, true, "a sink takes images");
        assert_eq!(happened(&counts), [6, 6, 6, 0, 6], "each frame is copied once, for its image");
    }
}

/// Stages that look at pixels on the host, and a GPU that is not the decoder's, have frames in memory as without a GPU.
#[test]
fn other_frames_come_through_memory() {
    let cases: [(&str, usize, fn(PipelineBuilder) -> PipelineBuilder); 3] = [
        ("another GPU", GPU + 1, |it| it),
        ("a gate for motion", GPU, |it| it.with_options(|it| it.motion_gate = Some(MotionGate::default()))),
        ("the camera's motion", GPU, |it| {
            it.with_tracker(Default::default()).with_options(|it| it.camera_motion = true)
        }),
    ];
    for (name, ordinal, set) in cases {
        let (_, _, counts) = run_on(set(builder()), Some((ordinal, |_| Ok(()))), Images::default());
        assert_eq!(happened(&counts)[..4], [0, 0, 0, 6], "{name}");
    }
}

/// Only every third frame is searched: the others are given back unread.
#[test]
fn frames_that_nobody_reads_are_given_back() {
    let every_third = builder().with_options(|it| it.detect_every = Some(3));
    let (summary, found, counts) = run_on(every_third, Some((GPU, |_| Ok(()))), Images::default());
    summary.expect("it runs");
    assert_eq!((found.len(), happened(&counts)), (6, [6, 6, 0, 0, 2]));
}

#[test]
fn errors_and_cancellation_give_frames_back() {
    let fails = |run| if run == 2 { Err(Error::execution("the fake GPU fails")) } else { Ok(()) };
    for sequential in [false, true] {
        let (summary, _, counts) =
            run_on(builder().with_sequential(sequential), Some((GPU, fails)), Images::default());
        assert_eq!(summary.expect_err("the third frame fails").to_string(), "the fake GPU fails");
        let [kept, released, copied, _, runs] = happened(&counts);
        assert!(kept >= 3 && runs == 3 && copied == 0, "{kept} kept, {runs} runs");
        assert_eq!(kept, released, "each frame is given back once");
    }
    let cancellation = Cancellation::new();
    let stops =
        builder().with_cancellation(cancellation.clone()).with_observer(move |_| cancellation.cancel());
    let (summary, _, counts) = run_on(stops, Some((GPU, |_| Ok(()))), Images::default());
    assert!(summary.expect("cancellation is no error").cancelled);
    let [kept, released, ..] = happened(&counts);
    assert_eq!(kept, released, "each frame is given back once");
}
