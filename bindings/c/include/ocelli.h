/*
 * Ocelli: open-vocabulary object detection in images and video.
 *
 * Functions return OCELLI_OK or a status that says what failed; ocelli_last_error() has the text. Handles are freed with
 * the function of their kind; one that was freed already, or null, is an error and never a crash. Structs begin with
 * their size: set struct_size before a struct is passed, and the others to zero or by the function that ends in _init.
 * Strings are UTF-8. Every function may be called from any thread.
 *
 * Made from the source of the library by cbindgen: do not edit.
 */

#ifndef OCELLI_H
#define OCELLI_H

#include <stddef.h>
#include <stdint.h>

/**
 * The version of the interface that this header describes. `ocelli_abi_version()` returns that of the library; both are
 * equal unless the program runs with a library that is not compatible.
 */
#define OCELLI_ABI_VERSION 0

/**
 * What a function returns. Of a value other than `OCELLI_OK`, `OCELLI_NOT_READY` and `OCELLI_ENDED`, `ocelli_last_error`
 * has the text.
 */
typedef enum ocelli_status {
    /**
     * Done.
     */
    OCELLI_OK = 0,
    /**
     * The caller passed an invalid argument: a null pointer, a handle that was freed, a threshold of 7.
     */
    OCELLI_INVALID_ARGUMENT = 1,
    /**
     * A file is corrupt, unsupported, or not what its name says.
     */
    OCELLI_INVALID_DATA = 2,
    /**
     * Two inputs do not belong together: a text cache of another model.
     */
    OCELLI_MISMATCH = 3,
    /**
     * A library, driver or feature is missing or too old; the text has the remedy.
     */
    OCELLI_UNAVAILABLE = 4,
    /**
     * The operating system reported an error of a read or a write.
     */
    OCELLI_IO = 5,
    /**
     * An engine failed while it ran.
     */
    OCELLI_EXECUTION = 6,
    /**
     * The operation was cancelled: the pipeline was freed while a thread waited for it.
     */
    OCELLI_CANCELLED = 7,
    /**
     * A bug in the library.
     */
    OCELLI_INTERNAL = 8,
    /**
     * No error: there is no result yet, or no room for a frame.
     */
    OCELLI_NOT_READY = 9,
    /**
     * No error: the pipeline was closed, or the run of a session has ended, and all results were received.
     */
    OCELLI_ENDED = 10,
} ocelli_status;

/**
 * How the pixels of a frame are stored.
 */
typedef enum ocelli_pixel_format {
    /**
     * Three bytes per pixel: red, green, blue.
     */
    OCELLI_RGB8 = 0,
    /**
     * Three bytes per pixel: blue, green, red, as in OpenCV.
     */
    OCELLI_BGR8 = 1,
    /**
     * A plane of luma, one byte per pixel, followed by a plane of interleaved blue and red chroma, one pair per 2 x 2
     * pixels, with the same stride. BT.601, limited range.
     */
    OCELLI_NV12 = 2,
    /**
     * One byte per pixel: grey.
     */
    OCELLI_GRAY8 = 3,
} ocelli_pixel_format;

/**
 * The state of a track.
 */
typedef enum ocelli_track_state {
    /**
     * Detected in this frame.
     */
    OCELLI_TRACKED = 0,
    /**
     * Not detected in this frame: its box is predicted.
     */
    OCELLI_LOST = 1,
    /**
     * Not confirmed yet.
     */
    OCELLI_TENTATIVE = 2,
} ocelli_track_state;

/**
 * What happens with a frame when the pipeline is busy.
 */
typedef enum ocelli_policy {
    /**
     * `ocelli_pipeline_push` waits: no frame is lost. For files.
     */
    OCELLI_ALL = 0,
    /**
     * The frame that has waited longest is dropped. For cameras.
     */
    OCELLI_LATEST = 1,
} ocelli_policy;

/**
 * The trade between a frame's time in queues and frames per second.
 */
typedef enum ocelli_latency {
    /**
     * Queues between all stages.
     */
    OCELLI_THROUGHPUT = 0,
    /**
     * As many frames at a time as keep the slowest stage busy.
     */
    OCELLI_BALANCED = 1,
    /**
     * One frame at a time.
     */
    OCELLI_LOW = 2,
} ocelli_latency;

/**
 * Where a run goes.
 */
typedef enum ocelli_direction {
    /**
     * To the end of the video.
     */
    OCELLI_FORWARD = 0,
    /**
     * To its start, from the frame before the first one.
     */
    OCELLI_BACKWARD = 1,
    /**
     * Forward, then backward.
     */
    OCELLI_BOTH = 2,
} ocelli_direction;

/**
 * A detector. Calls from several threads are done one after the other.
 */
typedef struct ocelli_detector ocelli_detector;

/**
 * The features of an image. The detector that made them may be freed before.
 */
typedef struct ocelli_features ocelli_features;

/**
 * An image that was read from a file.
 */
typedef struct ocelli_image ocelli_image;

/**
 * Objects in an image that are shown by clicks, boxes and masks, not named. An object is known by its number, from 0.
 */
typedef struct ocelli_objects ocelli_objects;

/**
 * A detector and a tracker that work on several frames at a time, on threads of their own. Any thread may push frames, and
 * any receive results.
 */
typedef struct ocelli_pipeline ocelli_pipeline;

/**
 * The classes to detect: names, example boxes, or both. A class is known by its number, from 0.
 */
typedef struct ocelli_prompts ocelli_prompts;

/**
 * What was found in an image. Strings that it returns are valid until it is freed.
 */
typedef struct ocelli_result ocelli_result;

/**
 * A video in which objects are found, followed, corrected and removed, by SAM 3's memory tracker. Calls from several threads
 * are done one after the other.
 *
 * Its results have a detection with a mask for each object, and a track whose `id` is the object's number, the same in all
 * frames; the other fields of a track say nothing. `index` of their info is the number of the frame. An object's score is
 * that of the detection that started it, 1 if it was clicked.
 */
typedef struct ocelli_session ocelli_session;

/**
 * A tracker.
 */
typedef struct ocelli_tracker ocelli_tracker;

/**
 * Options of a detector. `ocelli_detector_options_init` sets the defaults.
 */
typedef struct ocelli_detector_options {
    /**
     * sizeof(ocelli_detector_options).
     */
    size_t struct_size;
    /**
     * The folder of an exported model or of a checkpoint, or a checkpoint's file; null or "built-in" for the built-in one.
     */
    const char *model;
    /**
     * "auto", "embedded", "openvino", "onnxruntime", "cuda" and others, see docs/engines.md; null for "auto". A pipeline takes
     * several devices of one engine: "cuda:0,1".
     */
    const char *engine;
    /**
     * "fp32", "fp16", "bf16", "int8", or "auto" for the fastest that is close; null for 32 bits.
     */
    const char *precision;
    /**
     * The file that keeps encoded names between runs; null for the one in the cache folder.
     */
    const char *text_cache;
    /**
     * ONNX Runtime's library; null to search the usual places.
     */
    const char *onnxruntime;
    /**
     * OpenVINO's library or its folder; null to search the usual places.
     */
    const char *openvino;
    /**
     * TensorRT's library or its folder; null to search the usual places.
     */
    const char *tensorrt;
    /**
     * A TensorRT engine file for the backbone, or null.
     */
    const char *trt;
    /**
     * A TensorRT engine file for the encoder-decoder, or null.
     */
    const char *trt_enc_dec;
    /**
     * The side of the model's input in pixels; 0 for the model's own.
     */
    uint32_t imgsz;
    /**
     * Threads that share one operator; 0 for the number of physical cores.
     */
    uint32_t threads;
    /**
     * Classes that are decoded at once; 0 for the default.
     */
    uint32_t class_chunk;
    /**
     * The most detections of an image, those with the highest scores; 0 for no limit.
     */
    uint32_t max_detections;
    /**
     * Detections with a higher score are kept, 0 to 1; below 0 for the model's own.
     */
    float confidence;
    /**
     * Of two boxes of a class with a higher IoU, 0 to 1, the better is kept; below 0 for the model's own.
     */
    float nms;
    /**
     * As `nms`, for boxes of any classes; below 0 to switch it off.
     */
    float class_agnostic_nms;
    /**
     * 1 if detections have masks.
     */
    uint32_t masks;
    /**
     * 1 to search large images in overlapping tiles as well, whose size depends on the objects that are found.
     */
    uint32_t tile_auto;
    /**
     * The width of these tiles in pixels instead; 0 for no tiles, or with `tile_auto`.
     */
    uint32_t tile_width;
    /**
     * The height of the tiles; 0 for `tile_width`.
     */
    uint32_t tile_height;
    /**
     * The least overlap of neighbouring tiles, as a share of their side; below 0 for a fifth.
     */
    float tile_overlap;
} ocelli_detector_options;

/**
 * An image in the caller's memory, which the library reads only during the call that it is passed to.
 */
typedef struct ocelli_frame {
    /**
     * sizeof(ocelli_frame).
     */
    size_t struct_size;
    /**
     * The pixels, top row first.
     */
    const uint8_t *data;
    /**
     * Bytes at `data`.
     */
    size_t data_size;
    /**
     * Bytes from the start of one row to the next; 0 if rows follow each other without padding.
     */
    size_t stride;
    /**
     * When the image was taken, in nanoseconds of any clock that never runs backwards.
     */
    uint64_t timestamp_ns;
    /**
     * Width in pixels, at least 1.
     */
    uint32_t width;
    /**
     * Height in pixels, at least 1.
     */
    uint32_t height;
    /**
     * An ocelli_pixel_format.
     */
    uint32_t format;
    /**
     * Zero.
     */
    uint32_t reserved;
} ocelli_frame;

/**
 * Options of engines. `ocelli_engine_options_init` sets the defaults, in brackets.
 */
typedef struct ocelli_engine_options {
    /**
     * sizeof(ocelli_engine_options).
     */
    size_t struct_size;
    /**
     * The folder of a model that was exported for TensorRT, or a checkpoint, which is exported into the cache; null or
     * "built-in" for the built-in model.
     */
    const char *model;
    /**
     * "fp32", "fp16" or "bf16", for a checkpoint; null for 32 bits, or the exported model's.
     */
    const char *precision;
    /**
     * An exported model in 32 bits to compare the engines with; null for what they are built from.
     */
    const char *reference;
    /**
     * TensorRT's library or its folder; null to search the usual places.
     */
    const char *tensorrt;
    /**
     * ONNX Runtime's library, which runs the reference; null to search the usual places.
     */
    const char *onnxruntime;
    /**
     * The side of the model's input in pixels, for a checkpoint; 0 for the model's own.
     */
    uint32_t imgsz;
    /**
     * The most classes that are decoded at once; fewer take less time (4).
     */
    uint32_t max_classes;
    /**
     * The most examples of a class (8).
     */
    uint32_t max_exemplars;
    /**
     * CPU threads of the reference; 0 for the number of physical cores.
     */
    uint32_t threads;
    /**
     * 1 to export what masks need, of a checkpoint.
     */
    uint32_t masks;
    /**
     * 1 to replace engines that exist.
     */
    uint32_t force;
} ocelli_engine_options;

/**
 * Gets a line about each step of a build or a comparison, which is valid until the function returns; a value other than 0 cancels
 * it. Calls come from any thread, one after the other. No exception may leave the function.
 */
typedef uint32_t (*ocelli_build_callback)(void *user_data, const char *line);

/**
 * Options of a tracker. `ocelli_tracker_options_init` sets the defaults, in brackets.
 */
typedef struct ocelli_tracker_options {
    /**
     * sizeof(ocelli_tracker_options).
     */
    size_t struct_size;
    /**
     * Detections with at least this score are matched first and can start tracks (0.5).
     */
    float track_threshold;
    /**
     * Detections with at least this score can continue tracks; below 0 for 0.1, or less if track_threshold is less (-1).
     */
    float low_threshold;
    /**
     * The least score that starts a track; below 0 for 0.05 above track_threshold (-1).
     */
    float new_track_threshold;
    /**
     * Least IoU of a track with a detection of high score (0.5).
     */
    float match_iou;
    /**
     * Least IoU of a track with a detection of low score (0.4).
     */
    float low_match_iou;
    /**
     * Least IoU of a lost track with a detection of high score (0.5).
     */
    float lost_match_iou;
    /**
     * A track that starts with at least this score is reported at once; below 0 for 0.8, or none if min_hits is set (-1).
     */
    float sure_threshold;
    /**
     * The number of consecutive detections that confirms a track; 0 for 2, or 1 with a score of sure_threshold (0).
     */
    uint32_t min_hits;
    /**
     * The most frames between two detections of a track, at least 1 (30).
     */
    uint32_t max_time_lost;
    /**
     * For how many frames a lost track is still reported, at its predicted place (0).
     */
    uint32_t coast_frames;
    /**
     * 1 if a track may take a detection of another class (0).
     */
    uint32_t match_any_class;
    /**
     * Zero.
     */
    uint32_t reserved;
} ocelli_tracker_options;

/**
 * Called with each result, in order, on a thread of the library.
 *
 * `status` is `OCELLI_OK` with a result, which belongs to the caller until the function returns: do not free it. The last
 * call has no result: its status is `OCELLI_ENDED` once the pipeline was closed and all results were passed on, or that of
 * the error that ended the pipeline, whose text `ocelli_last_error` has in this call. No exception may leave the function.
 */
typedef void (*ocelli_result_callback)(void *user_data, enum ocelli_status status, const struct ocelli_result *result);

/**
 * Options of a pipeline. `ocelli_pipeline_options_init` sets the defaults, in brackets.
 */
typedef struct ocelli_pipeline_options {
    /**
     * sizeof(ocelli_pipeline_options).
     */
    size_t struct_size;
    /**
     * Options of the tracker (null: there is none).
     */
    const struct ocelli_tracker_options *tracker;
    /**
     * Called with each result, instead of `ocelli_pipeline_receive` (null).
     */
    ocelli_result_callback callback;
    /**
     * Passed to the callback (null).
     */
    void *user_data;
    /**
     * The detector runs on every n-th frame, the tracker on all (1).
     */
    uint64_t detect_every;
    /**
     * The frame rate that the tracker expects, in frames per second; 0 takes it from the time stamps (0).
     */
    double frame_rate;
    /**
     * An ocelli_policy (OCELLI_ALL).
     */
    uint32_t policy;
    /**
     * An ocelli_latency (OCELLI_THROUGHPUT).
     */
    uint32_t latency;
    /**
     * Frames that wait between two stages; 0 for the default (0).
     */
    uint32_t queue_depth;
    /**
     * The most classes that are decoded for a frame, in turns; 0 for all (0).
     */
    uint32_t class_budget;
    /**
     * 1 to follow objects with masks by the model's memory of them, without `tracker`; the model has to have a tracker. Each object
     * is a detection with a mask and a track. Objects start at a score of 0.7, or of the detector's `confidence`, and results leave
     * 14 frames late (0).
     */
    uint32_t memory;
    /**
     * With `memory`: 1 if every result leaves at once. `ocelli_result_json` of a later frame names objects that turn out to be
     * false, `retracted` (0).
     */
    uint32_t no_hotstart;
    /**
     * With `memory`: the most objects of a class at a time; 0 for the model's own, which is 10000 of SAM 3 and 16 of SAM 3.1 (0).
     */
    uint32_t max_objects;
    /**
     * Zero.
     */
    uint32_t reserved;
} ocelli_pipeline_options;

/**
 * An image or a frame.
 */
typedef struct ocelli_result_info {
    /**
     * sizeof(ocelli_result_info).
     */
    size_t struct_size;
    /**
     * The frame's number in its pipeline, from 0.
     */
    uint64_t index;
    /**
     * The frame's own time stamp.
     */
    uint64_t timestamp_ns;
    /**
     * Milliseconds spent on the names; near zero when they are known.
     */
    double text_ms;
    /**
     * Milliseconds from pixels to the model's input.
     */
    double preprocess_ms;
    /**
     * Milliseconds in the image backbone.
     */
    double backbone_ms;
    /**
     * Milliseconds in the encoder-decoder, over all classes.
     */
    double decode_ms;
    /**
     * Milliseconds for the masks.
     */
    double masks_ms;
    /**
     * Milliseconds from start to finish, including time spent waiting between stages.
     */
    double total_ms;
    /**
     * Width of the image in pixels.
     */
    uint32_t width;
    /**
     * Height of the image in pixels.
     */
    uint32_t height;
    /**
     * 1 if the detector ran on this frame.
     */
    uint32_t detected;
    /**
     * Zero.
     */
    uint32_t reserved;
} ocelli_result_info;

/**
 * An instance of a class in an image.
 */
typedef struct ocelli_detection {
    /**
     * sizeof(ocelli_detection).
     */
    size_t struct_size;
    /**
     * The name of the class.
     */
    const char *label;
    /**
     * The pixels of the instance in COCO's compressed run-length encoding; null without masks.
     */
    const char *mask_counts;
    /**
     * The number of the class in the prompts, from 0.
     */
    size_t class_id;
    /**
     * Left edge in pixels of the image.
     */
    float x1;
    /**
     * Top edge.
     */
    float y1;
    /**
     * Right edge.
     */
    float x2;
    /**
     * Bottom edge.
     */
    float y2;
    /**
     * Confidence, 0 to 1.
     */
    float score;
    /**
     * Width of the mask in pixels, which is that of the image; 0 without one.
     */
    uint32_t mask_width;
    /**
     * Height of the mask in pixels.
     */
    uint32_t mask_height;
    /**
     * Zero.
     */
    uint32_t reserved;
} ocelli_detection;

/**
 * An object over time.
 */
typedef struct ocelli_track {
    /**
     * sizeof(ocelli_track).
     */
    size_t struct_size;
    /**
     * The name of the class; empty if the tracker does not know it.
     */
    const char *label;
    /**
     * The number of the class, by majority of its detections.
     */
    size_t class_id;
    /**
     * The number of its detection in this frame; SIZE_MAX if it was not detected.
     */
    size_t detection;
    /**
     * The number of the track, from 1, the same in all frames; of an object of a session its number, from 0.
     */
    uint64_t id;
    /**
     * Left edge in pixels; the box may extend beyond the image.
     */
    float x1;
    /**
     * Top edge.
     */
    float y1;
    /**
     * Right edge.
     */
    float x2;
    /**
     * Bottom edge.
     */
    float y2;
    /**
     * Confidence, 0 to 1, smoothed.
     */
    float score;
    /**
     * Pixels per frame to the right.
     */
    float velocity_x;
    /**
     * Pixels per frame downwards.
     */
    float velocity_y;
    /**
     * Frames since its first detection.
     */
    float age_frames;
    /**
     * Frames since its last detection.
     */
    float frames_since_seen;
    /**
     * In how many frames it was detected.
     */
    uint32_t hits;
    /**
     * An ocelli_track_state.
     */
    uint32_t state;
    /**
     * Zero.
     */
    uint32_t reserved;
} ocelli_track;

/**
 * How a video file is opened. Zero all but the size and `stream`.
 */
typedef struct ocelli_input_options {
    /**
     * sizeof(ocelli_input_options).
     */
    size_t struct_size;
    /**
     * Options of FFmpeg's protocols, containers and decoders, each a string KEY=VALUE.
     */
    const char *const *ffmpeg_options;
    /**
     * How many `ffmpeg_options` there are.
     */
    size_t ffmpeg_option_count;
    /**
     * FFmpeg's name of the hardware that decodes, such as "cuda", or "auto" for the first that works; null for the CPU.
     */
    const char *hwaccel;
    /**
     * The number of the stream among the video streams, from 0; below 0 for the one that players choose.
     */
    int64_t stream;
} ocelli_input_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates a detector: opens the model, which exports a checkpoint once, and loads the engine's library.
 *
 * `options` may be null for the defaults. Free the detector with `ocelli_detector_free`.
 *
 * Pointers: `options` is null or points to a struct whose size is set; `detector` points to a handle to write.
 */
enum ocelli_status ocelli_detector_create(const struct ocelli_detector_options *options,
                                          struct ocelli_detector **detector);

/**
 * Detects in an image.
 *
 * The highest score comes first, in pixels of the image. Free the result with `ocelli_result_free`.
 *
 * Pointers: `frame` points to a struct whose size is set and whose `data` has `data_size` bytes that nobody writes to meanwhile;
 * `result` points to a handle to write.
 */
enum ocelli_status ocelli_detector_detect(struct ocelli_detector *detector,
                                          const struct ocelli_frame *frame,
                                          const struct ocelli_prompts *prompts,
                                          struct ocelli_result **result);

/**
 * Loads the engines and encodes the names, so that the first image does not wait for it.
 */
enum ocelli_status ocelli_detector_prepare(struct ocelli_detector *detector, const struct ocelli_prompts *prompts);

/**
 * Changes the score above which detections are kept, 0 to 1.
 */
enum ocelli_status ocelli_detector_set_confidence(struct ocelli_detector *detector, float confidence);

/**
 * A description of the engine, valid until the detector is freed; null after an error.
 */
const char *ocelli_detector_engine(const struct ocelli_detector *detector);

/**
 * The folder of the exported model, valid until the detector is freed; null after an error.
 */
const char *ocelli_detector_model(const struct ocelli_detector *detector);

/**
 * Frees a detector; does nothing with a null pointer. A detection that runs on another thread is finished.
 */
enum ocelli_status ocelli_detector_free(struct ocelli_detector *detector);

/**
 * Sets the defaults: the built-in model. Pass sizeof(ocelli_engine_options).
 *
 * Pointers: `options` points to `struct_size` bytes.
 */
enum ocelli_status ocelli_engine_options_init(struct ocelli_engine_options *options, size_t struct_size);

/**
 * Builds TensorRT engines for the GPU of this machine into the folder `output`: `backbone.engine` and
 * `encoder_decoder.engine`, for `trt` and `trt_enc_dec` of a detector. Each is compared with its ONNX graph, and written only
 * if they agree. Minutes pass for a large model.
 *
 * `options` may be null for the defaults, `progress` for none.
 *
 * Pointers: `options` is null or points to a struct whose size is set; `output` points to a string.
 */
enum ocelli_status ocelli_engines_build(const struct ocelli_engine_options *options,
                                        const char *output,
                                        ocelli_build_callback progress,
                                        void *user_data);

/**
 * Compares two ways of running a model, as `ocelli verify`: another engine, precision or export. Returns the report of
 * `ocelli verify --json`, which is valid until the next comparison on this thread; null after an error. That they differ is no
 * error: `accepted` in the report says whether they agree.
 *
 * `request` is JSON, such as {"model": "sam3", "candidate": "sam3-int8", "engine": {"kind": "openvino"}, "options": {"scenes": 8}};
 * all of it may be left out: the model is then the built-in one, the candidate the model, and the engine "auto". `options` may
 * also have `graphs`, `random_inputs`, `seed`, `max_classes`, `confidence` and `limits`. `progress` may be null.
 *
 * Pointers: `request` points to a string.
 */
const char *ocelli_verify(const char *request,
                          ocelli_build_callback progress,
                          void *user_data);

/**
 * Computes the features of an image: the costly part, which does not depend on the prompts.
 *
 * Free them with `ocelli_features_free`.
 *
 * Pointers: as those of `ocelli_detector_detect`; `features` points to a handle to write.
 */
enum ocelli_status ocelli_detector_encode(struct ocelli_detector *detector,
                                          const struct ocelli_frame *frame,
                                          struct ocelli_features **features);

/**
 * As `ocelli_detector_detect`, in an image whose features this detector has computed.
 *
 * Pointers: `result` points to a handle to write.
 */
enum ocelli_status ocelli_detector_detect_features(struct ocelli_detector *detector,
                                                   const struct ocelli_features *features,
                                                   const struct ocelli_prompts *prompts,
                                                   struct ocelli_result **result);

/**
 * Frees features; does nothing with a null pointer.
 */
enum ocelli_status ocelli_features_free(struct ocelli_features *features);

/**
 * Reads an image file: JPEG, PNG, WebP, TIFF, BMP, GIF, PNM; turned as its EXIF data says.
 *
 * Free the image with `ocelli_image_free`.
 *
 * Pointers: `path` is a string; `image` points to a handle to write.
 */
enum ocelli_status ocelli_image_open(const char *path, struct ocelli_image **image);

/**
 * As `ocelli_image_open`, from the bytes of a file in memory.
 *
 * Pointers: `bytes` points to `size` bytes; `image` points to a handle to write.
 */
enum ocelli_status ocelli_image_decode(const uint8_t *bytes, size_t size, struct ocelli_image **image);

/**
 * Fills in a frame with the pixels of an image, which are valid until the image is freed. Set `frame->struct_size` before.
 *
 * Pointers: `frame` points to a struct whose size is set.
 */
enum ocelli_status ocelli_image_frame(const struct ocelli_image *image,
                                      struct ocelli_frame *frame);

/**
 * Frees an image; does nothing with a null pointer.
 */
enum ocelli_status ocelli_image_free(struct ocelli_image *image);

/**
 * Creates an empty list of objects. Free it with `ocelli_objects_free`.
 *
 * Pointers: `objects` points to a handle to write.
 */
enum ocelli_status ocelli_objects_create(struct ocelli_objects **objects);

/**
 * Adds an object, which the functions below describe: it needs a point on it, a box or a mask. `label` is its name in results;
 * null for "object".
 *
 * Pointers: `label` is a string or null.
 */
enum ocelli_status ocelli_objects_add(struct ocelli_objects *objects,
                                      const char *label);

/**
 * Adds a click to an object, in pixels of the image. `positive` is 1 for a point on the object, 0 for one that is not.
 */
enum ocelli_status ocelli_objects_add_point(struct ocelli_objects *objects,
                                            size_t object,
                                            float x,
                                            float y,
                                            int positive);

/**
 * Sets the box around an object, in pixels of the image.
 */
enum ocelli_status ocelli_objects_set_box(struct ocelli_objects *objects,
                                          size_t object,
                                          float x1,
                                          float y1,
                                          float x2,
                                          float y2);

/**
 * Sets a rough mask of an object: a byte for each pixel of the image, row by row, 0 outside.
 *
 * Pointers: `pixels` points to `width` times `height` bytes.
 */
enum ocelli_status ocelli_objects_set_mask(struct ocelli_objects *objects,
                                           size_t object,
                                           const uint8_t *pixels,
                                           uint32_t width,
                                           uint32_t height);

/**
 * Refines the answer of `ocelli_detector_segment` that is detection `index` of `result`: the clicks of the object are the
 * earlier ones and new ones.
 */
enum ocelli_status ocelli_objects_refine(struct ocelli_objects *objects,
                                         size_t object,
                                         const struct ocelli_result *result,
                                         size_t index);

/**
 * Finds the masks of objects in an image whose features this detector has computed.
 *
 * The model needs a tracker, as Meta's sam3.pt and facebook/sam3 have; set `masks` in the options if the detector exports a
 * checkpoint. The result has a detection for each object, in order: `class_id` is the object's number, `score` how well the
 * mask is expected to fit. Objects whose mask has no pixels are left out. With `multimask` 1, it has three for each object.
 *
 * Pointers: `result` points to a handle to write.
 */
enum ocelli_status ocelli_detector_segment(struct ocelli_detector *detector,
                                           const struct ocelli_features *features,
                                           const struct ocelli_objects *objects,
                                           int multimask,
                                           struct ocelli_result **result);

/**
 * Frees objects; does nothing with a null pointer.
 */
enum ocelli_status ocelli_objects_free(struct ocelli_objects *objects);

/**
 * Sets the defaults: the built-in model, the engine that `auto` takes, no masks. Pass sizeof(ocelli_detector_options).
 *
 * Pointers: `options` points to `struct_size` bytes.
 */
enum ocelli_status ocelli_detector_options_init(struct ocelli_detector_options *options, size_t struct_size);

/**
 * Sets the defaults. Pass sizeof(ocelli_pipeline_options).
 *
 * Pointers: `options` points to `struct_size` bytes.
 */
enum ocelli_status ocelli_pipeline_options_init(struct ocelli_pipeline_options *options, size_t struct_size);

/**
 * Creates a detector, one on each device that the options name, and starts a pipeline: frames go to the devices in turn, and
 * results come in order.
 *
 * `detector` and `options` may be null for the defaults. Free the pipeline with `ocelli_pipeline_free`.
 *
 * Pointers: `detector` and `options` are null or point to structs whose sizes are set; `pipeline` points to a handle to write. The
 * callback may be called, with `user_data`, on another thread, once the handle is written and until the pipeline is freed.
 */
enum ocelli_status ocelli_pipeline_create(const struct ocelli_detector_options *detector,
                                          const struct ocelli_prompts *prompts,
                                          const struct ocelli_pipeline_options *options,
                                          struct ocelli_pipeline **pipeline);

/**
 * Pushes a frame, which is read during this call alone. With `OCELLI_ALL` it waits for room.
 *
 * `index` receives the number of the frame, from 0; it may be null.
 *
 * Pointers: As for `ocelli_detector_detect`; `index` is null or points to a number to write.
 */
enum ocelli_status ocelli_pipeline_push(struct ocelli_pipeline *pipeline,
                                        const struct ocelli_frame *frame,
                                        uint64_t *index);

/**
 * As `ocelli_pipeline_push`, but never waits: `OCELLI_NOT_READY` if there is no room.
 *
 * Pointers: As for `ocelli_pipeline_push`.
 */
enum ocelli_status ocelli_pipeline_try_push(struct ocelli_pipeline *pipeline,
                                            const struct ocelli_frame *frame,
                                            uint64_t *index);

/**
 * Receives the next result, in the order of the frames.
 *
 * It waits for `timeout_ms` milliseconds: 0 not at all, below 0 without end. `OCELLI_NOT_READY` if there was no result in
 * this time, `OCELLI_ENDED` once the pipeline was closed and all results were received. Free the result with
 * `ocelli_result_free`.
 *
 * Pointers: `result` points to a handle to write.
 */
enum ocelli_status ocelli_pipeline_receive(struct ocelli_pipeline *pipeline,
                                           int timeout_ms,
                                           struct ocelli_result **result);

/**
 * Marks the end of the stream: frames that were pushed are finished, no more are accepted.
 */
enum ocelli_status ocelli_pipeline_close(struct ocelli_pipeline *pipeline);

/**
 * Waits until the callback was called for the last time. Close the pipeline before.
 */
enum ocelli_status ocelli_pipeline_wait(struct ocelli_pipeline *pipeline);

/**
 * Statistics so far as JSON, in the form of `ocelli video --stats`: frames, time spent in each stage, queues.
 *
 * `text` receives as much as fits into `text_size` bytes, with a NUL at its end. `needed` receives how many bytes all of it
 * needs, with the NUL; it may be null.
 *
 * Pointers: `text` points to `text_size` bytes, and may be null if there are none; `needed` is null or points to a number to write.
 */
enum ocelli_status ocelli_pipeline_stats(const struct ocelli_pipeline *pipeline,
                                         char *text,
                                         size_t text_size,
                                         size_t *needed);

/**
 * Stops a pipeline and frees it; does nothing with a null pointer. Frames and results that wait are dropped, and calls that
 * wait on other threads return `OCELLI_CANCELLED`. The callback is not called again once this returns, unless it is the
 * callback that frees the pipeline.
 */
enum ocelli_status ocelli_pipeline_free(struct ocelli_pipeline *pipeline);

/**
 * Creates prompts from names such as "dog" and "red apple", in UTF-8. There may be none, if classes are added afterwards.
 *
 * Free the prompts with `ocelli_prompts_free`.
 *
 * Pointers: `names` points to `count` strings; `prompts` points to a handle to write.
 */
enum ocelli_status ocelli_prompts_create(const char *const *names,
                                         size_t count,
                                         struct ocelli_prompts **prompts);

/**
 * Adds a class.
 *
 * `phrase` is what to detect; null for example boxes alone, which `ocelli_prompts_add_example` adds. `label` is the name in
 * results; null for the phrase, or "visual" without one.
 *
 * Pointers: `phrase` and `label` are strings or null.
 */
enum ocelli_status ocelli_prompts_add(struct ocelli_prompts *prompts,
                                      const char *phrase,
                                      const char *label);

/**
 * Adds an example to a class: a box around an instance in the image that is searched, in its pixels. `wanted` is 1, or 0
 * for what the class is not.
 */
enum ocelli_status ocelli_prompts_add_example(struct ocelli_prompts *prompts,
                                              size_t class_id,
                                              float x1,
                                              float y1,
                                              float x2,
                                              float y2,
                                              int wanted);

/**
 * Frees prompts; does nothing with a null pointer. What uses them keeps what it needs.
 */
enum ocelli_status ocelli_prompts_free(struct ocelli_prompts *prompts);

/**
 * Describes the frame. Set `info->struct_size` before.
 *
 * Pointers: `info` points to a struct whose size is set.
 */
enum ocelli_status ocelli_result_get_info(const struct ocelli_result *result, struct ocelli_result_info *info);

/**
 * How many detections there are; 0 after an error.
 */
size_t ocelli_result_detection_count(const struct ocelli_result *result);

/**
 * A detection; the highest score comes first. Set `detection->struct_size` before.
 *
 * Pointers: `detection` points to a struct whose size is set.
 */
enum ocelli_status ocelli_result_get_detection(const struct ocelli_result *result,
                                               size_t index,
                                               struct ocelli_detection *detection);

/**
 * Writes a detection's mask: one byte for each pixel of the image, row by row, `inside` in the mask and 0 elsewhere.
 *
 * `stride` is the number of bytes from the start of one row to the next; 0 if rows follow each other. Bytes between rows
 * are left as they are.
 *
 * Pointers: `pixels` points to `pixels_size` bytes that nobody else uses meanwhile.
 */
enum ocelli_status ocelli_result_get_mask(const struct ocelli_result *result,
                                          size_t index,
                                          uint8_t *pixels,
                                          size_t pixels_size,
                                          size_t stride,
                                          uint8_t inside);

/**
 * How many tracks there are; 0 after an error.
 */
size_t ocelli_result_track_count(const struct ocelli_result *result);

/**
 * A track; the oldest comes first. Set `track->struct_size` before.
 *
 * Pointers: `track` points to a struct whose size is set.
 */
enum ocelli_status ocelli_result_get_track(const struct ocelli_result *result,
                                           size_t index,
                                           struct ocelli_track *track);

/**
 * The result as a line of JSON, in the form of `ocelli video --jsonl`; null after an error.
 */
const char *ocelli_result_json(const struct ocelli_result *result);

/**
 * Frees a result; does nothing with a null pointer.
 */
enum ocelli_status ocelli_result_free(struct ocelli_result *result);

/**
 * Creates a session on a video file, or on a folder of images of one size. Free it with `ocelli_session_free`.
 *
 * `options` are those of a detector; its model has to have a tracker. `masks` has no effect, and `confidence` replaces both
 * thresholds: of detections that start objects, 0.7, and of those that keep them, 0.5.
 *
 * Pointers: `options` points to a struct whose size is set; `path` is a string; `session` points to a handle to write.
 */
enum ocelli_status ocelli_session_create(const struct ocelli_detector_options *options,
                                         const char *path,
                                         struct ocelli_session **session);

/**
 * As `ocelli_session_create`, on another video stream of a file, or with options of FFmpeg; a folder has none.
 *
 * Pointers: as for `ocelli_session_create`; `input` is null, or points to a struct whose size is set and whose `ffmpeg_options` are as
 * many strings as `ffmpeg_option_count` says, and `hwaccel` is null or a string.
 */
enum ocelli_status ocelli_session_create_with(const struct ocelli_detector_options *options,
                                              const char *path,
                                              const struct ocelli_input_options *input,
                                              struct ocelli_session **session);

/**
 * Creates a session on a video that begins with this frame; `ocelli_session_push` appends others, which stay in memory.
 *
 * `options` as for `ocelli_session_create`.
 *
 * Pointers: `options` points to a struct whose size is set; `first` as for `ocelli_detector_detect`; `session` points to a handle to
 * write.
 */
enum ocelli_status ocelli_session_create_pushed(const struct ocelli_detector_options *options,
                                                const struct ocelli_frame *first,
                                                struct ocelli_session **session);

/**
 * Appends a frame to a video of `ocelli_session_create_pushed`. A run goes on over it when it is asked for again.
 *
 * `index` receives the number of the frame; it may be null.
 *
 * Pointers: `frame` as for `ocelli_detector_detect`; `index` is null or points to a number to write.
 */
enum ocelli_status ocelli_session_push(struct ocelli_session *session, const struct ocelli_frame *frame, size_t *index);

/**
 * The number of frames; 0 after an error.
 */
size_t ocelli_session_frame_count(const struct ocelli_session *session);

/**
 * A number that no object of this session ever had; 0 after an error.
 */
uint32_t ocelli_session_next_object(const struct ocelli_session *session);

/**
 * Starts over: finds the objects that a text describes on a frame. Runs look for them in every frame.
 *
 * Free the result with `ocelli_result_free`.
 *
 * Pointers: `text` is a string; `result` points to a handle to write.
 */
enum ocelli_status ocelli_session_add_text(struct ocelli_session *session,
                                           size_t frame,
                                           const char *text,
                                           struct ocelli_result **result);

/**
 * Starts over: finds what is in a box of this frame, in pixels, and objects like it. Runs follow them without looking for others.
 *
 * Free the result with `ocelli_result_free`.
 *
 * Pointers: `result` points to a handle to write.
 */
enum ocelli_status ocelli_session_add_box(struct ocelli_session *session,
                                          size_t frame,
                                          float x1,
                                          float y1,
                                          float x2,
                                          float y2,
                                          struct ocelli_result **result);

/**
 * Clicks on an object of a frame: one that is tracked is refined, another one is added under this number.
 *
 * `points` has x and y of each click, in pixels; `positive` has 1 for a click on the object and 0 for one beside it, or is null
 * if all are on it. With a text or a box, the frame has to have been shown. More clicks on the same frame refine the mask that it
 * has by then. Free the result with `ocelli_result_free`.
 *
 * Pointers: `points` points to 2 x `count` numbers; `positive` is null or points to `count` numbers; `result` points to a handle to
 * write.
 */
enum ocelli_status ocelli_session_add_points(struct ocelli_session *session,
                                             uint32_t object,
                                             size_t frame,
                                             const float *points,
                                             const int *positive,
                                             size_t count,
                                             struct ocelli_result **result);

/**
 * Adds an object by its mask on a frame, where the next run shows this mask: a byte for each pixel of the video, row by row, 0
 * outside. With a text or a box, the frame has to have been shown.
 *
 * Free the result with `ocelli_result_free`.
 *
 * Pointers: `pixels` points to `width` times `height` bytes; `result` points to a handle to write.
 */
enum ocelli_status ocelli_session_add_mask(struct ocelli_session *session,
                                           uint32_t object,
                                           size_t frame,
                                           const uint8_t *pixels,
                                           uint32_t width,
                                           uint32_t height,
                                           struct ocelli_result **result);

/**
 * Plans a run over the frames, in place of a run that has not ended: `ocelli_session_next` returns them.
 *
 * `direction` is an ocelli_direction. The run begins at frame `start`, below 0 at the first one with results, and passes over at
 * most `max_frames` more frames each way, below 0 to the end of the video.
 */
enum ocelli_status ocelli_session_propagate(struct ocelli_session *session,
                                            uint32_t direction,
                                            int64_t start,
                                            int64_t max_frames);

/**
 * The next frame of the run: with a text 14 frames late, so that objects that turn out to be false are never shown.
 *
 * `OCELLI_ENDED` at the end of the run, and if there is none. After an error the run has ended; the frames that were held back
 * come before it. Free the result with `ocelli_result_free`.
 *
 * Pointers: `result` points to a handle to write.
 */
enum ocelli_status ocelli_session_next(struct ocelli_session *session,
                                       struct ocelli_result **result);

/**
 * Removes an object from all frames; its number is not used again.
 */
enum ocelli_status ocelli_session_remove(struct ocelli_session *session, uint32_t object);

/**
 * Forgets what was asked for, all objects and all results.
 */
enum ocelli_status ocelli_session_reset(struct ocelli_session *session);

/**
 * Frees a session; does nothing with a null pointer.
 */
enum ocelli_status ocelli_session_free(struct ocelli_session *session);

/**
 * The text of the last error on this thread: one line that says what failed, on which input, and what to do. Empty if
 * there was none. Valid until another function fails on this thread.
 */
const char *ocelli_last_error(void);

/**
 * The status of the last error on this thread, `OCELLI_OK` if there was none: for functions that return a value.
 */
enum ocelli_status ocelli_last_status(void);

/**
 * The name of a status, such as "invalid argument"; "unknown status" for another number.
 */
const char *ocelli_status_name(uint32_t status);

/**
 * Sets the defaults. Pass sizeof(ocelli_tracker_options).
 *
 * Pointers: `options` points to `struct_size` bytes.
 */
enum ocelli_status ocelli_tracker_options_init(struct ocelli_tracker_options *options, size_t struct_size);

/**
 * Creates a tracker. `options` may be null for the defaults. Free the tracker with `ocelli_tracker_free`.
 *
 * Pointers: `options` is null or points to a struct whose size is set; `tracker` points to a handle to write.
 */
enum ocelli_status ocelli_tracker_create(const struct ocelli_tracker_options *options, struct ocelli_tracker **tracker);

/**
 * Updates the tracks with the boxes of a frame, and returns those that are reported: `ocelli_result_track_count` and
 * `ocelli_result_get_track` of the result, which has no detections. Free it with `ocelli_result_free`.
 *
 * `boxes` has four numbers for each detection: left, top, right, bottom. `frames` is the time since the last call: 1 for the
 * next frame of a video, else the elapsed time times the frame rate. Call it for every frame, even without detections.
 *
 * Pointers: `boxes` points to 4 x `count` numbers, `scores` and `class_ids` to `count`; `result` points to a handle to write.
 */
enum ocelli_status ocelli_tracker_update(struct ocelli_tracker *tracker,
                                         const float *boxes,
                                         const float *scores,
                                         const size_t *class_ids,
                                         size_t count,
                                         float frames,
                                         struct ocelli_result **result);

/**
 * As `ocelli_tracker_update`, with the detections of a result. The tracks have the labels of its classes.
 *
 * Pointers: `tracks` points to a handle to write.
 */
enum ocelli_status ocelli_tracker_update_with(struct ocelli_tracker *tracker,
                                              const struct ocelli_result *detections,
                                              float frames,
                                              struct ocelli_result **tracks);

/**
 * Forgets all tracks; their numbers start at 1 again.
 */
enum ocelli_status ocelli_tracker_reset(struct ocelli_tracker *tracker);

/**
 * Frees a tracker; does nothing with a null pointer.
 */
enum ocelli_status ocelli_tracker_free(struct ocelli_tracker *tracker);

/**
 * The version of the library's interface. It is also the number in the library's name, `libocelli.so.0`, and rises when
 * programs have to be compiled again.
 */
uint32_t ocelli_abi_version(void);

/**
 * The version of the library, such as "0.1.0".
 */
const char *ocelli_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* OCELLI_H */
