//! TensorRT engines, built from a model, and the comparison of engines and models.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;

use ocelli::export::contract::Precision;
use ocelli::{Cancellation, ModelSource, Result};
use ocelli_verify::VerificationRequest;
use ocelli_verify::tensorrt::{BuildEvent, BuildOptions, EngineRequest};

use crate::options::count;
use crate::sized;
use crate::status::{done, invalid, ocelli_status, value};
use crate::text::{c_string, optional_path, optional_text, text};

/// Options of engines. `ocelli_engine_options_init` sets the defaults, in brackets.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ocelli_engine_options {
    /// sizeof(ocelli_engine_options).
    pub struct_size: usize,
    /// The folder of a model that was exported for TensorRT, or a checkpoint, which is exported into the cache; null or
    /// "built-in" for the built-in model.
    pub model: *const c_char,
    /// "fp32", "fp16" or "bf16", for a checkpoint; null for 32 bits, or the exported model's.
    pub precision: *const c_char,
    /// An exported model in 32 bits to compare the engines with; null for what they are built from.
    pub reference: *const c_char,
    /// TensorRT's library or its folder; null to search the usual places.
    pub tensorrt: *const c_char,
    /// ONNX Runtime's library, which runs the reference; null to search the usual places.
    pub onnxruntime: *const c_char,
    /// The side of the model's input in pixels, for a checkpoint; 0 for the model's own.
    pub imgsz: u32,
    /// The most classes that are decoded at once; fewer take less time (4).
    pub max_classes: u32,
    /// The most examples of a class (8).
    pub max_exemplars: u32,
    /// CPU threads of the reference; 0 for the number of physical cores.
    pub threads: u32,
    /// 1 to export what masks need, of a checkpoint.
    pub masks: u32,
    /// 1 to replace engines that exist.
    pub force: u32,
}

sized::versioned!(ocelli_engine_options);

impl ocelli_engine_options {
    const DEFAULT: Self = Self { max_classes: 4, max_exemplars: 8, ..sized::zeroed() };

    /// # Safety
    /// The strings are strings or null.
    unsafe fn request(&self) -> Result<EngineRequest> {
        // SAFETY: the caller's promise about the strings.
        let path = |from, what| -> Result<Option<PathBuf>> { unsafe { optional_path(from, what) } };
        // SAFETY: the caller's promise about the strings.
        let precision = unsafe { optional_text(self.precision, "precision") }?;
        let precision = precision.map(str::parse::<Precision>).transpose();
        Ok(EngineRequest {
            source: path(self.model, "model")?.map(ModelSource::named),
            imgsz: count(self.imgsz),
            precision: precision.map_err(|why| invalid(format!("precision: {why}")))?,
            masks: self.masks != 0,
            reference: path(self.reference, "reference")?,
            tensorrt: path(self.tensorrt, "tensorrt")?,
            onnxruntime: path(self.onnxruntime, "onnxruntime")?,
            threads: count(self.threads),
            build: BuildOptions {
                max_classes: self.max_classes as usize,
                max_exemplars: self.max_exemplars as usize,
                force: self.force != 0,
                ..BuildOptions::default()
            },
        })
    }
}

/// Sets the defaults: the built-in model. Pass sizeof(ocelli_engine_options).
///
/// Pointers: `options` points to `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_engine_options_init(
    options: *mut ocelli_engine_options,
    struct_size: usize,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    done(|| unsafe { sized::start(options, struct_size, &ocelli_engine_options::DEFAULT) })
}

/// Gets a line about each step of a build or a comparison, which is valid until the function returns; a value other than 0 cancels
/// it. Calls come from any thread, one after the other. No exception may leave the function.
pub type ocelli_build_callback =
    Option<unsafe extern "C" fn(user_data: *mut c_void, line: *const c_char) -> u32>;

/// Builds TensorRT engines for the GPU of this machine into the folder `output`: `backbone.engine` and
/// `encoder_decoder.engine`, for `trt` and `trt_enc_dec` of a detector. Each is compared with its ONNX graph, and written only
/// if they agree. Minutes pass for a large model.
///
/// `options` may be null for the defaults, `progress` for none.
///
/// Pointers: `options` is null or points to a struct whose size is set; `output` points to a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_engines_build(
    options: *const ocelli_engine_options,
    output: *const c_char,
    progress: ocelli_build_callback,
    user_data: *mut c_void,
) -> ocelli_status {
    done(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { sized::read_if_given(options, ocelli_engine_options::DEFAULT) }?;
        // SAFETY: the caller's promise about the strings.
        let request = unsafe { options.request() }?;
        // SAFETY: the caller's promise about the strings.
        let Some(output) = unsafe { optional_path(output, "output") }? else {
            return Err(invalid("output is null: expected a folder"));
        };
        let cancellation = Cancellation::new();
        let lines = Lines { function: progress, user_data, cancellation: &cancellation };
        let announce = |line: &str| lines.pass(line);
        request.build(&output, &cancellation, &announce, &mut |event| lines.pass(&line_of(event))).map(drop)
    })
}

thread_local! {
    static REPORT: RefCell<CString> = RefCell::default();
}

/// Compares two ways of running a model, as `ocelli verify`: another engine, precision or export. Returns the report of
/// `ocelli verify --json`, which is valid until the next comparison on this thread; null after an error. That they differ is no
/// error: `accepted` in the report says whether they agree.
///
/// `request` is JSON, such as {"model": "sam3", "candidate": "sam3-int8", "engine": {"kind": "openvino"}, "options": {"scenes": 8}};
/// all of it may be left out: the model is then the built-in one, the candidate the model, and the engine "auto". `options` may
/// also have `graphs`, `random_inputs`, `seed`, `max_classes`, `confidence` and `limits`. `progress` may be null.
///
/// Pointers: `request` points to a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_verify(
    request: *const c_char,
    progress: ocelli_build_callback,
    user_data: *mut c_void,
) -> *const c_char {
    value(std::ptr::null(), || {
        // SAFETY: the caller passes a string.
        let request = serde_json::from_str::<VerificationRequest>(unsafe { text(request, "request") }?);
        let request = request.map_err(|why| invalid(format!("request: {why}")))?;
        let cancellation = Cancellation::new();
        let lines = Lines { function: progress, user_data, cancellation: &cancellation };
        let report = request.run(&cancellation, &|line| lines.pass(line), &mut |step| {
            let side = if step.reference { "reference" } else { "candidate" };
            lines.pass(&format!("{side}: {} of {}", step.done, step.total));
            cancellation.check_for("verify")
        })?;
        let json = c_string(&report.to_json().to_string());
        Ok(REPORT.with(|kept| {
            kept.replace(json);
            kept.borrow().as_ptr()
        }))
    })
}

/// A line about a step of a build, as short as a callback that only asks to cancel needs it.
fn line_of(event: &BuildEvent<'_>) -> String {
    match event {
        BuildEvent::Building { graph, step } => format!("building {graph}: {}", step.phase),
        BuildEvent::Built { graph, seconds, .. } => format!("{graph}: built in {seconds:.1} s"),
        BuildEvent::Verifying { graph: Some(graph), .. } => format!("comparing {graph}"),
        BuildEvent::Verified { graph, report } => format!("{graph}: {}", report.verdict()),
        _ => "running the model on the CPU".into(),
    }
}

/// The callback, and what a value other than 0 cancels.
struct Lines<'c> {
    function: ocelli_build_callback,
    user_data: *mut c_void,
    cancellation: &'c Cancellation,
}

// SAFETY: that the function may be called with this pointer on any thread is the caller's promise to `ocelli_engines_build`.
unsafe impl Sync for Lines<'_> {}

impl Lines<'_> {
    fn pass(&self, line: &str) {
        let Some(function) = self.function else { return };
        // SAFETY: the caller's promise to `ocelli_engines_build`.
        if unsafe { function(self.user_data, c_string(line).as_ptr()) } != 0 {
            self.cancellation.cancel();
        }
    }
}
