//! The kernels around the model against their twins on the host: the same source text, run thread by thread on the
//! processor of the machine that tests, and on a GPU where there is one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ocelli::engines::cuda::{CudaCompiler, CudaDevice, Nvrtc};
use ocelli::engines::fake::{FakeDevice, HostKernels};
use ocelli::engines::kernels::{KernelCompiler, KernelProgram, Launch};
use ocelli::engines::{Device, ElementType, Tensor};
use ocelli::postprocess::{
    Candidate, PostProcessOptions, PostProcessor, QuerySelector, RawOutputs, SelectedQuery,
};
use ocelli::preprocess::{DevicePreprocessor, PreprocessConfig, Preprocessor, Rounding};
use ocelli::{FrameView, PixelFormat};

const FORMATS: [PixelFormat; 4] =
    [PixelFormat::Rgb8, PixelFormat::Bgr8, PixelFormat::Gray8, PixelFormat::Nv12];

/// Numbers that look random and are the same everywhere.
struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    fn up_to(&mut self, most: u32) -> u32 {
        self.next() % (most + 1)
    }

    /// From 0 to 1.
    fn share(&mut self) -> f32 {
        self.next() as f32 / u32::MAX as f32
    }
}

/// A picture that somebody hands over.
#[derive(Clone, Copy, Debug)]
struct Case {
    side: usize,
    width: u32,
    height: u32,
    format: PixelFormat,
    /// Bytes between rows.
    padding: usize,
    rounding: Rounding,
}

/// Noise, with fields of black and white for the ends of the scale.
fn picture(case: &Case) -> (Vec<u8>, usize) {
    let row = match case.format {
        PixelFormat::Gray8 => case.width as usize,
        PixelFormat::Nv12 => (case.width as usize).next_multiple_of(2),
        _ => case.width as usize * 3,
    };
    let stride = row + case.padding;
    let rows = match case.format {
        PixelFormat::Nv12 => case.height as usize + case.height.div_ceil(2) as usize,
        _ => case.height as usize,
    };
    let mut random = Random(case.width * 31 + case.height * 17 + 1);
    let bytes = stride * (rows - 1) + row;
    let data = (0..bytes).map(|at| match (at / 97) % 4 {
        0 => 0,
        1 => 255,
        _ => random.next() as u8,
    });
    (data.collect(), stride)
}

/// Runs both on the cases and says which differ by more than `allowed`.
fn compare(
    compiler: &dyn KernelCompiler,
    cases: &[Case],
    element_type: ElementType,
    allowed: f32,
) -> Vec<String> {
    let mut failures = Vec::new();
    let (mut pixels, mut came, mut expected) = (Tensor::empty(), Tensor::empty(), Vec::new());
    let mut known: Option<(PreprocessConfig, Preprocessor, DevicePreprocessor)> = None;
    for case in cases {
        let config = PreprocessConfig {
            mean: [0.1, 0.5, 0.9],
            std: [0.3, 0.5, 0.7],
            rounding: case.rounding,
            ..PreprocessConfig::new(case.side)
        };
        if known.as_ref().is_none_or(|(of, ..)| *of != config) {
            let on_host = Preprocessor::new(config).expect("the configuration is fine");
            let on_device = DevicePreprocessor::new(compiler, config).expect("the kernels compile");
            let on_device = on_device.with_element_type(element_type).expect("both types exist");
            known = Some((config, on_host, on_device));
        }
        let (_, on_host, on_device) = known.as_mut().expect("they were made");
        let (data, stride) = picture(case);
        let (width, height, format) = (case.width, case.height, case.format);
        let frame = FrameView { data: &data, width, height, stride, format, timestamp: Duration::ZERO };
        expected.resize(on_host.output_len(), 0.0);
        on_host.run_into(frame, &mut expected).expect("the picture is whole");
        on_device.run_into(frame, &mut pixels).expect("the picture is whole");
        assert_eq!(pixels.device().map(|device| device.kind()), Some(compiler.device().kind()));
        assert_eq!(pixels.shape(), [1, 3, case.side, case.side]);
        pixels.copy_to_host_into(&mut came).expect("it is copied");
        let values: Vec<f32> = match element_type {
            ElementType::F16 => {
                expected.iter_mut().for_each(|value| *value = half::f16::from_f32(*value).to_f32());
                came.as_slice::<half::f16>().expect("it was asked for").iter().map(|v| v.to_f32()).collect()
            }
            _ => came.as_f32().expect("it is the default").to_vec(),
        };
        let differences = values.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let largest = differences.map(|d| if d.is_nan() { f32::INFINITY } else { d }).fold(0.0, f32::max);
        if largest > allowed {
            let differing = values.iter().zip(&expected).filter(|(a, b)| a != b).count();
            failures.push(format!("{case:?}, {element_type}: {differing} differ, by up to {largest}"));
        }
    }
    failures
}

/// Every format, up, down, odd, one pixel, one line, more than one tile, more lines than one band, padding that goes
/// along and padding that does not.
fn table() -> Vec<Case> {
    let sizes =
        [(1, 1), (28, 28), (37, 23), (64, 7), (5, 300), (29, 2), (1, 700), (700, 1), (28, 90), (90, 28)];
    let mut cases = Vec::new();
    for rounding in [Rounding::EachPass, Rounding::Once] {
        for side in [28, 70] {
            for (width, height) in sizes {
                for format in FORMATS {
                    for padding in [0, 1, 1000] {
                        cases.push(Case { side, width, height, format, padding, rounding });
                    }
                }
            }
        }
    }
    cases
}

/// Sizes that nobody thought of; few sides, as a program is made for each.
fn random_cases(count: usize) -> Vec<Case> {
    let mut random = Random(20_011);
    let mut cases = Vec::new();
    for rounding in [Rounding::EachPass, Rounding::Once] {
        for side in [1, 7, 32, 33, 79] {
            cases.extend((0..count).map(|_| Case {
                side,
                width: 1 + random.up_to(400),
                height: 1 + random.up_to(400),
                format: FORMATS[random.up_to(3) as usize],
                padding: random.up_to(20) as usize,
                rounding,
            }));
        }
    }
    cases
}

/// Pictures as cameras give them, at the side that a model of full size takes.
fn full_size() -> Vec<Case> {
    let sizes = [(640, 480), (1920, 1080), (3840, 2160), (1008, 1008)];
    let formats = [PixelFormat::Bgr8, PixelFormat::Nv12];
    let case = |(width, height), format| Case {
        side: 1008,
        width,
        height,
        format,
        padding: 0,
        rounding: Rounding::EachPass,
    };
    sizes.into_iter().flat_map(|size| formats.map(|format| case(size, format))).collect()
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

struct OnHost {
    device: Arc<FakeDevice>,
    compiler: HostKernels,
    _folder: tempfile::TempDir,
}

fn on_host() -> OnHost {
    let (device, folder) = (FakeDevice::new(), tempfile::tempdir().expect("a folder"));
    OnHost { compiler: HostKernels::new(device.clone(), folder.path()), device, _folder: folder }
}

#[test]
fn preprocessing_equals_the_hosts_to_the_bit() {
    report(&compare(&on_host().compiler, &table(), ElementType::F32, 0.0));
}

#[test]
fn preprocessing_to_16_bits_is_the_nearest_to_the_hosts() {
    let few: Vec<Case> = table().into_iter().filter(|case| case.side == 28 && case.padding == 1).collect();
    report(&compare(&on_host().compiler, &few, ElementType::F16, 0.0));
}

#[test]
fn preprocessing_of_random_sizes_equals_the_hosts() {
    report(&compare(&on_host().compiler, &random_cases(12), ElementType::F32, 0.0));
}

#[test]
fn preprocessing_of_full_size_equals_the_hosts() {
    report(&compare(&on_host().compiler, &full_size()[1..4], ElementType::F32, 0.0));
}

/// As tall as makes the host resize down the picture first, in a square that a test can pay for.
#[test]
fn very_tall_pictures_are_taken_in_the_same_order() {
    let format = PixelFormat::Rgb8;
    let tall =
        |width| Case { side: 1100, width, height: 65_000, format, padding: 0, rounding: Rounding::EachPass };
    report(&compare(&on_host().compiler, &[tall(3)], ElementType::F32, 0.0));
}

#[test]
fn what_crosses_is_the_picture() {
    let host = on_host();
    let config = PreprocessConfig::new(28);
    let mut preprocessor = DevicePreprocessor::new(&host.compiler, config).expect("the kernels compile");
    let mut pixels = Tensor::empty();
    let (width, height, stride) = (64, 48, 64);
    let data = vec![99; stride * 72];
    let format = PixelFormat::Nv12;
    let frame = FrameView { data: &data, width, height, stride, format, timestamp: Duration::ZERO };
    preprocessor.run_into(frame, &mut pixels).expect("the picture is whole");
    let (before, allocations) = (host.device.transferred(), host.device.allocations());
    preprocessor.run_into(frame, &mut pixels).expect("the picture is whole");
    let after = host.device.transferred();
    assert_eq!((after.to_device - before.to_device, after.to_host), (64 * 72, 0));
    assert_eq!(host.device.allocations(), allocations, "buffers go round");
    let error = preprocessor.run_into(FrameView { data: &data[1..], ..frame }, &mut pixels);
    assert!(error.expect_err("a byte is missing").to_string().contains("too few"));
}

/// Outputs of an encoder-decoder: [class, query] and what goes with it.
struct Outputs {
    classes: usize,
    logits: Vec<f32>,
    boxes: Vec<f32>,
    presence: Option<Vec<f32>>,
}

impl Outputs {
    fn random(random: &mut Random, classes: usize, queries: usize, level: f32) -> Self {
        let logits = (0..classes * queries).map(|_| random.share() * 8.0 - 4.0 + level).collect();
        let mut boxes = Vec::new();
        for _ in 0..classes * queries {
            let (x, y, w, h) = (random.share(), random.share(), random.share(), random.share());
            boxes.extend([x - 0.1, y - 0.1, x + w * 0.4, y + h * 0.4]);
        }
        let presence =
            random.up_to(1).eq(&0).then(|| (0..classes).map(|_| random.share() * 6.0 - 1.0).collect());
        Self { classes, logits, boxes, presence }
    }

    fn queries(&self) -> usize {
        self.logits.len() / self.classes
    }

    /// What the host makes of all of it.
    fn on_host(&self, processor: &mut PostProcessor) -> Result<Vec<Candidate>, String> {
        let labels: Vec<Arc<str>> = (0..self.classes).map(label).collect();
        let mut found = Vec::new();
        processor.begin(640, 480);
        for row in 0..self.classes {
            let queries = self.queries();
            let raw = RawOutputs {
                first_class_id: 3 * row,
                labels: &labels[row..=row],
                logits: &self.logits[row * queries..][..queries],
                boxes: &self.boxes[row * queries * 4..][..queries * 4],
                presence: self.presence.as_ref().map(|presence| &presence[row..=row]),
            };
            processor.push_chunk(&raw).map_err(|error| error.to_string())?;
        }
        processor.finish_into(&mut found);
        Ok(found)
    }

    /// The same through the device.
    fn on_device(
        &self,
        selector: &mut QuerySelector,
        processor: &mut PostProcessor,
    ) -> Result<(Vec<Candidate>, Vec<SelectedQuery>), String> {
        let copy = |shape: &[usize], values: &[f32]| {
            let mut tensor = Tensor::on(selector.device().clone());
            let host = Tensor::f32(shape, values.to_vec()).expect("the shape fits");
            tensor.copy_from_host(&host).expect("it is copied");
            tensor
        };
        // One row more than there are classes, as engines of a fixed number of classes give.
        let (classes, queries) = (self.classes, self.queries());
        let more = |values: &[f32], of_row: usize| [values, &vec![f32::NAN; of_row]].concat();
        let logits = copy(&[classes + 1, queries], &more(&self.logits, queries));
        let boxes = copy(&[classes + 1, queries, 4], &more(&self.boxes, 4 * queries));
        let presence = self.presence.as_ref().map(|presence| copy(&[classes + 1, 1], &more(presence, 1)));
        let ids: Vec<usize> = (0..classes).map(|row| 3 * row).collect();
        let (mut found, mut selected) = (Vec::new(), Vec::new());
        let options = processor.options().clone();
        selector
            .run_into(&logits, &boxes, presence.as_ref(), &ids, &options, &mut selected)
            .map_err(|error| error.to_string())?;
        processor.begin(640, 480);
        let by_row = SelectedQuery::by_row(&selected, classes);
        for ((row, &id), queries) in ids.iter().enumerate().zip(by_row) {
            processor.push_selected(id, &label(row), queries).map_err(|error| error.to_string())?;
        }
        processor.finish_into(&mut found);
        Ok((found, selected))
    }
}

fn label(row: usize) -> Arc<str> {
    Arc::from(format!("thing {row}"))
}

/// Options and outputs of many kinds: which of them do not come to the same.
fn compare_selections(compiler: &dyn KernelCompiler) -> Vec<String> {
    let mut selector = QuerySelector::new(compiler).expect("the kernel compiles");
    let mut random = Random(77);
    let mut failures = Vec::new();
    // The last ones leave more than the first copy brings.
    let sizes = [(1, 1), (1, 200), (4, 200), (3, 17), (80, 200), (16, 300), (5, 255), (1, 257), (9, 200)];
    for (case, (classes, queries)) in sizes.into_iter().enumerate() {
        for threshold in [0.0, 0.3, 0.9, 1.0] {
            for broken in [None, Some("logit"), Some("presence"), Some("box")] {
                let options = PostProcessOptions {
                    score_threshold: threshold,
                    class_score_thresholds: [(0, 0.5), (6, 0.05)].into(),
                    class_agnostic_nms_iou: (case % 2 == 0).then_some(0.8),
                    ..PostProcessOptions::default()
                };
                let mut processor = PostProcessor::new(options).expect("the options are valid");
                let mut outputs = Outputs::random(&mut random, classes, queries, (case % 3) as f32 - 1.0);
                let at = random.up_to((classes * queries - 1) as u32) as usize;
                match (broken, &mut outputs.presence) {
                    (Some("logit"), _) => outputs.logits[at] = f32::NAN,
                    (Some("box"), _) => outputs.boxes[at * 4 + at % 4] = f32::INFINITY,
                    (Some("presence"), Some(presence)) => presence[at / queries] = f32::NAN,
                    _ => {}
                }
                // Scores at the threshold itself, where a last bit decides.
                if threshold == 0.3 && outputs.presence.is_none() {
                    let edge = (threshold / (1.0 - threshold)).ln();
                    let near = outputs.logits.iter_mut().step_by(7).enumerate();
                    near.for_each(|(n, logit)| {
                        *logit = f32::from_bits((edge.to_bits() as i32 + n as i32 % 9 - 4) as u32);
                    });
                }
                let expected = outputs.on_host(&mut processor);
                let came = outputs.on_device(&mut selector, &mut processor);
                let same = match (&expected, &came) {
                    (Ok(expected), Ok((came, _))) => expected == came,
                    (Err(expected), Err(came)) => expected == came,
                    _ => false,
                };
                if !same {
                    failures
                        .push(format!("{classes}x{queries}, {threshold}, {broken:?}: {expected:?} {came:?}"));
                }
                if let Ok((_, selected)) = came
                    && !selected.is_sorted_by_key(|query| (query.row, query.query))
                {
                    failures.push(format!("{classes}x{queries}, {threshold}: out of order"));
                }
            }
        }
    }
    failures
}

#[test]
fn selecting_on_the_device_changes_no_detection() {
    report(&compare_selections(&on_host().compiler));
}

#[test]
fn what_comes_back_is_small() {
    let host = on_host();
    let mut selector = QuerySelector::new(&host.compiler).expect("the kernel compiles");
    // Classes, queries above the threshold in each, bytes that come back.
    let cases = [(4, 0, 8192), (4, 3, 8192), (1, 3, 32 * 201), (4, 64, 8192 + 32), (4, 200, 32 * 801)];
    let mut failures = Vec::new();
    for (classes, above, expected) in cases {
        let mut processor = PostProcessor::new(PostProcessOptions::default()).expect("defaults are valid");
        let one = |query: usize| if query < above { 3.0 } else { -3.0 };
        let logits = (0..classes).flat_map(|_| (0..200).map(one)).collect();
        let boxes = [0.1, 0.1, 0.4, 0.4].repeat(classes * 200);
        let outputs = Outputs { classes, logits, boxes, presence: None };
        let before = host.device.transferred().to_host;
        let (_, selected) = outputs.on_device(&mut selector, &mut processor).expect("the outputs are whole");
        let bytes = host.device.transferred().to_host - before;
        if (bytes, selected.len()) != (expected, classes * above) {
            failures
                .push(format!("{classes} classes, {above} above: {bytes} bytes, {} queries", selected.len()));
        }
    }
    report(&failures);
}

#[test]
fn outputs_that_do_not_belong_together_are_refused() {
    let host = on_host();
    let mut selector = QuerySelector::new(&host.compiler).expect("the kernel compiles");
    let tensor = |shape: &[usize]| {
        let mut tensor = Tensor::on(host.device.clone());
        tensor.reset_to(ElementType::F32, shape).expect("there is memory");
        tensor
    };
    let cases: [(&[usize], &[usize], &[usize], &str); 5] = [
        (&[1, 5], &[1, 5, 4], &[1, 1], "logits"),
        (&[3, 5], &[2, 5, 4], &[3, 1], "boxes"),
        (&[10], &[2, 5, 4], &[2, 1], "logits"),
        (&[2, 5], &[2, 4, 4], &[2, 1], "boxes"),
        (&[2, 5], &[2, 5, 4], &[1, 1], "presence"),
    ];
    let mut failures = Vec::new();
    for (logits, boxes, presence, name) in cases {
        let options = PostProcessOptions::default();
        let (logits, boxes, presence) = (tensor(logits), tensor(boxes), tensor(presence));
        let mut selected = Vec::new();
        match selector.run_into(&logits, &boxes, Some(&presence), &[0, 1], &options, &mut selected) {
            Err(error) if error.to_string().starts_with(&format!("encoder-decoder output, {name}: ")) => {}
            other => failures.push(format!("{name}: {other:?}")),
        }
    }
    report(&failures);
}

/// Compiles for GPUs that are not here and notes what the compiler says.
#[derive(Debug)]
struct ForOtherGpus {
    device: Arc<dyn Device>,
    nvrtc: Arc<Nvrtc>,
    compute_capability: (u32, u32),
    said: Mutex<Vec<String>>,
}

/// What nobody runs.
#[derive(Debug)]
struct Compiled;

impl KernelProgram for Compiled {
    fn launch(&self, launch: &Launch<'_>) -> ocelli::engines::Result<()> {
        panic!("`{}` was compiled for a GPU that is not here", launch.kernel)
    }
}

impl KernelCompiler for ForOtherGpus {
    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn compile(&self, name: &str, source: &str) -> ocelli::engines::Result<Arc<dyn KernelProgram>> {
        let compiled = self.nvrtc.compile(name, source, self.compute_capability)?;
        let is_image = compiled.cubin.starts_with(b"\x7fELF");
        if !is_image || !compiled.log.is_empty() {
            let mut said = self.said.lock().expect("nobody panics with it");
            said.push(format!("{name}, {:?}, image {is_image}: {}", self.compute_capability, compiled.log));
        }
        Ok(Arc::new(Compiled))
    }
}

#[test]
#[ignore = "needs NVRTC (OCELLI_NVRTC)"]
fn the_kernels_compile_for_every_gpu() {
    let nvrtc = Nvrtc::open(None).expect("OCELLI_NVRTC names it, or the system has it");
    let known = nvrtc.architectures().expect("the compiler says");
    let mut failures = Vec::new();
    for compute_capability in [(7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0)] {
        assert!(known.contains(&(compute_capability.0 * 10 + compute_capability.1)), "{known:?}");
        let compiler = ForOtherGpus {
            device: FakeDevice::new(),
            nvrtc: nvrtc.clone(),
            compute_capability,
            said: Mutex::default(),
        };
        for rounding in [Rounding::EachPass, Rounding::Once] {
            let config = PreprocessConfig { rounding, ..PreprocessConfig::new(1008) };
            if let Err(error) = DevicePreprocessor::new(&compiler, config) {
                failures.push(format!("{rounding:?}, {compute_capability:?}: {error}"));
            }
        }
        if let Err(error) = QuerySelector::new(&compiler) {
            failures.push(format!("{compute_capability:?}: {error}"));
        }
        failures.extend(compiler.said.into_inner().expect("nobody panics with it"));
    }
    report(&failures);
}

#[test]
#[ignore = "needs NVRTC (OCELLI_NVRTC)"]
fn what_the_compiler_refuses_has_its_words() {
    let nvrtc = Nvrtc::open(None).expect("OCELLI_NVRTC names it, or the system has it");
    let cases = [
        ("KERNEL(k, int) { nonsense; }", (9, 0), "kernels k: k.cu(1): error: "),
        ("", (3, 5), "does not know GPUs of compute capability 3.5"),
        ("\0", (9, 0), "kernels k: the source holds a null character"),
    ];
    let mut failures = Vec::new();
    for (source, compute_capability, expected) in cases {
        match nvrtc.compile("k", source, compute_capability) {
            Err(error) if error.to_string().contains(expected) => {}
            other => failures.push(format!("{source:?}: expected {expected:?}, came {other:?}")),
        }
    }
    report(&failures);
}

fn on_gpu() -> CudaCompiler {
    let device = CudaDevice::open(0).expect("there is a GPU");
    CudaCompiler::new(&device).expect("it has room for a stream")
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gpu_preprocessing_equals_the_hosts() {
    report(&compare(&on_gpu(), &table(), ElementType::F32, 0.0));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gpu_preprocessing_to_16_bits_is_the_nearest_to_the_hosts() {
    report(&compare(&on_gpu(), &table(), ElementType::F16, 0.0));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gpu_preprocessing_of_random_and_full_sizes_equals_the_hosts() {
    let mut cases = random_cases(40);
    cases.extend(full_size());
    report(&compare(&on_gpu(), &cases, ElementType::F32, 0.0));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gpu_selecting_changes_no_detection() {
    report(&compare_selections(&on_gpu()));
}

/// Pictures one after the other into one tensor, each read back only when the next are under way.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gpu_pictures_do_not_run_into_each_other() {
    let compiler = on_gpu();
    let config = PreprocessConfig::new(1008);
    let mut on_device = DevicePreprocessor::new(&compiler, config).expect("the kernels compile");
    let mut on_host = Preprocessor::new(config).expect("the configuration is fine");
    let (width, height, stride, format) = (1920, 1080, 1920 * 3, PixelFormat::Bgr8);
    let pictures: Vec<Vec<u8>> = (0..24u32)
        .map(|seed| {
            let mut random = Random(seed + 1);
            (0..stride * 1080).map(|_| random.next() as u8).collect()
        })
        .collect();
    let frame = |data| FrameView { data, width, height, stride, format, timestamp: Duration::ZERO };
    let mut tensors = [Tensor::empty(), Tensor::empty(), Tensor::empty()];
    let (mut came, mut expected) = (Tensor::empty(), vec![0.0; on_host.output_len()]);
    let mut failures = Vec::new();
    for (number, data) in pictures.iter().enumerate() {
        on_device.run_into(frame(data), &mut tensors[number % 3]).expect("the picture is whole");
        if let Some(earlier) = number.checked_sub(2) {
            tensors[earlier % 3].copy_to_host_into(&mut came).expect("it is copied");
            on_host.run_into(frame(&pictures[earlier]), &mut expected).expect("the picture is whole");
            if came.as_f32().expect("it is the default") != expected {
                failures.push(format!("picture {earlier}"));
            }
        }
    }
    report(&failures);
}
