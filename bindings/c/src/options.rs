//! Options of a detector.

use std::ffi::c_char;

use ocelli::engine::EngineOptions;
use ocelli::options::DetectorOptions;
use ocelli::tiles::{TileSize, Tiling};
use ocelli::{DetectorBuilder, ModelSource, Result, stages::TextCacheFile};

use ocelli_verify::tensorrt::detector;

use crate::sized;
use crate::status::{done, invalid, ocelli_status};
use crate::text::{optional_path, optional_text};

/// Options of a detector. `ocelli_detector_options_init` sets the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ocelli_detector_options {
    /// sizeof(ocelli_detector_options).
    pub struct_size: usize,
    /// The folder of an exported model or of a checkpoint, or a checkpoint's file; null or "built-in" for the built-in one.
    pub model: *const c_char,
    /// "auto", "embedded", "openvino", "onnxruntime", "cuda" and others, see docs/engines.md; null for "auto". A pipeline takes
    /// several devices of one engine: "cuda:0,1".
    pub engine: *const c_char,
    /// "fp32", "fp16", "bf16", "int8", or "auto" for the fastest that is close; null for 32 bits.
    pub precision: *const c_char,
    /// The file that keeps encoded names between runs; null for the one in the cache folder.
    pub text_cache: *const c_char,
    /// ONNX Runtime's library; null to search the usual places.
    pub onnxruntime: *const c_char,
    /// OpenVINO's library or its folder; null to search the usual places.
    pub openvino: *const c_char,
    /// TensorRT's library or its folder; null to search the usual places.
    pub tensorrt: *const c_char,
    /// A TensorRT engine file for the backbone, or null.
    pub trt: *const c_char,
    /// A TensorRT engine file for the encoder-decoder, or null.
    pub trt_enc_dec: *const c_char,
    /// The side of the model's input in pixels; 0 for the model's own.
    pub imgsz: u32,
    /// Threads that share one operator; 0 for the number of physical cores.
    pub threads: u32,
    /// Classes that are decoded at once; 0 for the default.
    pub class_chunk: u32,
    /// The most detections of an image, those with the highest scores; 0 for no limit.
    pub max_detections: u32,
    /// Detections with a higher score are kept, 0 to 1; below 0 for the model's own.
    pub confidence: f32,
    /// Of two boxes of a class with a higher IoU, 0 to 1, the better is kept; below 0 for the model's own.
    pub nms: f32,
    /// As `nms`, for boxes of any classes; below 0 to switch it off.
    pub class_agnostic_nms: f32,
    /// 1 if detections have masks.
    pub masks: u32,
    /// 1 to search large images in overlapping tiles as well, whose size depends on the objects that are found.
    pub tile_auto: u32,
    /// The width of these tiles in pixels instead; 0 for no tiles, or with `tile_auto`.
    pub tile_width: u32,
    /// The height of the tiles; 0 for `tile_width`.
    pub tile_height: u32,
    /// The least overlap of neighbouring tiles, as a share of their side; below 0 for a fifth.
    pub tile_overlap: f32,
}

sized::versioned!(ocelli_detector_options, before tile_auto);

impl ocelli_detector_options {
    const DEFAULT: Self =
        Self { confidence: -1.0, nms: -1.0, class_agnostic_nms: -1.0, tile_overlap: -1.0, ..sized::zeroed() };

    /// The tiles of large images, if there are any.
    fn tiling(&self) -> Result<Option<Tiling>> {
        let size = match (self.tile_auto != 0, self.tile_width, self.tile_height) {
            (false, 0, 0) => return Ok(None),
            (true, 0, 0) => TileSize::Auto,
            (true, ..) => {
                return Err(invalid("tile_auto and tile_width: expected one of them"));
            }
            (false, side, 0) => TileSize::square(side),
            (false, width, height) => TileSize::Pixels { width, height },
        };
        let overlap = unless_negative(self.tile_overlap).unwrap_or(Tiling::OVERLAP);
        Ok(Some(Tiling::new(size).with_overlap(overlap)))
    }
}

/// Sets the defaults: the built-in model, the engine that `auto` takes, no masks. Pass sizeof(ocelli_detector_options).
///
/// Pointers: `options` points to `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ocelli_detector_options_init(
    options: *mut ocelli_detector_options,
    struct_size: usize,
) -> ocelli_status {
    // SAFETY: the caller's promise.
    done(|| unsafe { sized::start(options, struct_size, &ocelli_detector_options::DEFAULT) })
}

/// A builder with the options; null for the defaults.
///
/// # Errors
/// `InvalidArgument` for a wrong size, a string that is not UTF-8, and for options out of range.
///
/// # Safety
/// `options` is null or points to a struct whose size is set and whose strings are strings or null.
pub(crate) unsafe fn builder(options: *const ocelli_detector_options) -> Result<DetectorBuilder> {
    // SAFETY: the caller's promise.
    let (mut form, engine) = unsafe { form(options) }?;
    form.engine.kind = engine.parse()?;
    detector(form, "engine")
}

/// A builder for each device that the options name.
///
/// # Safety
/// As [`builder`].
pub(crate) unsafe fn builders(options: *const ocelli_detector_options) -> Result<Vec<DetectorBuilder>> {
    // SAFETY: the caller's promise.
    let (form, engine) = unsafe { form(options) }?;
    form.for_devices(&engine)?.into_iter().map(|form| detector(form, "engine")).collect()
}

/// The options in the form of the library, and the engine's devices.
///
/// # Safety
/// As [`builder`].
unsafe fn form(options: *const ocelli_detector_options) -> Result<(DetectorOptions, String)> {
    // SAFETY: the caller's promise.
    let options = unsafe { sized::read_if_given(options, ocelli_detector_options::DEFAULT) }?;
    // SAFETY: the caller's promise about the strings.
    let text = |from, what| unsafe { optional_text(from, what) };
    // SAFETY: the caller's promise about the strings.
    let path = |from, what| unsafe { optional_path(from, what) };
    let engine = EngineOptions {
        threads: count(options.threads),
        onnxruntime: path(options.onnxruntime, "onnxruntime")?,
        openvino: path(options.openvino, "openvino")?,
        tensorrt: path(options.tensorrt, "tensorrt")?,
        trt_backbone: path(options.trt, "trt")?,
        trt_encoder_decoder: path(options.trt_enc_dec, "trt_enc_dec")?,
        ..EngineOptions::default()
    };
    let form = DetectorOptions {
        model: path(options.model, "model")?.map_or(ModelSource::Builtin, ModelSource::named),
        precision: text(options.precision, "precision")?.map(str::parse).transpose()?,
        text_cache: path(options.text_cache, "text_cache")?
            .map_or(TextCacheFile::Automatic, TextCacheFile::File),
        imgsz: count(options.imgsz),
        class_chunk: count(options.class_chunk),
        max_detections: count(options.max_detections),
        confidence: unless_negative(options.confidence),
        nms: unless_negative(options.nms),
        class_agnostic_nms: unless_negative(options.class_agnostic_nms),
        masks: options.masks != 0,
        tiling: options.tiling()?,
        engine,
        ..DetectorOptions::default()
    };
    Ok((form, text(options.engine, "engine")?.unwrap_or("auto").to_owned()))
}

/// A number that was set: 0 stands for the default.
pub(crate) fn count(number: u32) -> Option<usize> {
    Some(number as usize).filter(|number| *number > 0)
}

/// A number that was set: those below 0 stand for the default. NaN is passed on, and refused where it is used.
pub(crate) fn unless_negative(number: f32) -> Option<f32> {
    if number < 0.0 { None } else { Some(number) }
}
