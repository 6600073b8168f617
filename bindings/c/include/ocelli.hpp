// Ocelli for C++17: the functions of ocelli.h as classes that own their handles.
//
// Functions throw ocelli::Exception. With OCELLI_NO_EXCEPTIONS defined, every function that can fail returns an
// ocelli::Expected instead, and classes are made by their function create, open or decode.
#ifndef OCELLI_HPP
#define OCELLI_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#ifndef OCELLI_NO_EXCEPTIONS
#include <exception>
#include <mutex>
#include <stdexcept>
#endif

#include "ocelli.h"

namespace ocelli {

/// What failed: a status and one line of text.
struct Error {
    ocelli_status status = OCELLI_OK;
    std::string message;

    /// The last error on this thread.
    static Error last(ocelli_status status) { return {status, ocelli_last_error()}; }
};

/// A value, or an error.
template <class T> class [[nodiscard]] Expected {
  public:
    Expected(T value) : either(std::move(value)) {}
    Expected(Error error) : either(std::move(error)) {}

    explicit operator bool() const { return std::holds_alternative<T>(either); }
    T &operator*() & { return *std::get_if<T>(&either); }
    T &&operator*() && { return std::move(*std::get_if<T>(&either)); }
    T *operator->() { return std::get_if<T>(&either); }
    /// The error; there must be one.
    const Error &error() const { return *std::get_if<Error>(&either); }

  private:
    std::variant<T, Error> either;
};

/// Nothing, or an error.
template <> class [[nodiscard]] Expected<void> {
  public:
    Expected() = default;
    Expected(Error error) : failure(std::move(error)) {}

    explicit operator bool() const { return !failure; }
    void operator*() const {}
    /// The error; there must be one.
    const Error &error() const { return *failure; }

  private:
    std::optional<Error> failure;
};

#ifdef OCELLI_NO_EXCEPTIONS
template <class T> using Returned = Expected<T>;
#else
/// Thrown by every function that fails.
class Exception : public std::runtime_error {
  public:
    explicit Exception(const Error &error) : std::runtime_error(error.message), kind(error.status) {}
    ocelli_status status() const noexcept { return kind; }

  private:
    ocelli_status kind;
};

template <class T> using Returned = T;
#endif

namespace detail {

template <class T> Returned<T> returned(Expected<T> outcome) {
#ifdef OCELLI_NO_EXCEPTIONS
    return outcome;
#else
    if (!outcome) throw Exception(outcome.error());
    return *std::move(outcome);
#endif
}

inline Returned<void> done(ocelli_status status) {
    return returned(status == OCELLI_OK ? Expected<void>() : Expected<void>(Error::last(status)));
}

template <class H, ocelli_status (*Free)(H *)> struct Freed {
    void operator()(H *handle) const { Free(handle); }
};
template <class H, ocelli_status (*Free)(H *)> using Handle = std::unique_ptr<H, Freed<H, Free>>;

/// A class from the handle that a function of the C interface makes.
template <class T, class H, class Make> Expected<T> made(Make make) {
    H *handle = nullptr;
    const ocelli_status status = make(&handle);
    if (status != OCELLI_OK) return Error::last(status);
    return T(handle);
}

/// A text of the library, empty where it has none.
inline std::string text(const char *given) { return given ? given : ""; }

inline const char *or_null(const std::string &text) { return text.empty() ? nullptr : text.c_str(); }

} // namespace detail

/// The version of the library, such as "0.1.0".
inline std::string version() { return ocelli_version(); }

/// A box in pixels.
struct Box {
    float x1 = 0, y1 = 0, x2 = 0, y2 = 0;
};

/// An image in the caller's memory. `stride` is the number of bytes from row to row; 0 without padding.
inline ocelli_frame frame(const std::uint8_t *data, std::size_t size, std::uint32_t width, std::uint32_t height,
                          ocelli_pixel_format format = OCELLI_RGB8, std::size_t stride = 0,
                          std::uint64_t timestamp_ns = 0) {
    ocelli_frame made{};
    made.struct_size = sizeof made;
    made.data = data;
    made.data_size = size;
    made.stride = stride;
    made.timestamp_ns = timestamp_ns;
    made.width = width;
    made.height = height;
    made.format = format;
    return made;
}

/// An image that was read from a file.
class Image {
  public:
#ifndef OCELLI_NO_EXCEPTIONS
    explicit Image(const std::string &path) : Image(open(path)) {}
#endif
    explicit Image(ocelli_image *owned) : handle(owned) {}

    static Returned<Image> open(const std::string &path) {
        return detail::returned(detail::made<Image, ocelli_image>(
            [&](ocelli_image **out) { return ocelli_image_open(path.c_str(), out); }));
    }
    /// From the bytes of a file.
    static Returned<Image> decode(const std::uint8_t *bytes, std::size_t size) {
        return detail::returned(detail::made<Image, ocelli_image>(
            [&](ocelli_image **out) { return ocelli_image_decode(bytes, size, out); }));
    }
    /// The pixels, valid as long as the image.
    ocelli_frame frame() const {
        ocelli_frame made = ocelli::frame(nullptr, 0, 0, 0);
        ocelli_image_frame(handle.get(), &made);
        return made;
    }

  private:
    detail::Handle<ocelli_image, ocelli_image_free> handle;
};

/// The classes to detect: names, example boxes, or both.
class Prompts {
  public:
#ifndef OCELLI_NO_EXCEPTIONS
    explicit Prompts(const std::vector<std::string> &names) : Prompts(create(names)) {}
#endif
    explicit Prompts(ocelli_prompts *owned) : handle(owned) {}

    static Returned<Prompts> create(const std::vector<std::string> &names) {
        std::vector<const char *> texts;
        for (const std::string &name : names) texts.push_back(name.c_str());
        return detail::returned(detail::made<Prompts, ocelli_prompts>(
            [&](ocelli_prompts **out) { return ocelli_prompts_create(texts.data(), texts.size(), out); }));
    }
    /// Adds a class: what to detect, empty for examples alone, and its name in results, empty for the same.
    Returned<void> add(const std::string &phrase, const std::string &label = {}) {
        return detail::done(ocelli_prompts_add(handle.get(), detail::or_null(phrase), detail::or_null(label)));
    }
    /// Adds an example to a class: a box in the image that is searched.
    Returned<void> add_example(std::size_t class_id, const Box &box, bool wanted = true) {
        return detail::done(
            ocelli_prompts_add_example(handle.get(), class_id, box.x1, box.y1, box.x2, box.y2, wanted ? 1 : 0));
    }
    ocelli_prompts *get() const { return handle.get(); }

  private:
    detail::Handle<ocelli_prompts, ocelli_prompts_free> handle;
};

/// An instance of a class in an image.
struct Detection {
    std::string label;
    std::size_t class_id = 0;
    float score = 0;
    Box box;
    /// The mask in COCO's compressed run-length encoding; empty without masks.
    std::string mask_counts;
};

/// An object over time.
struct Track {
    std::uint64_t id = 0;
    std::string label;
    std::size_t class_id = 0;
    float score = 0;
    Box box;
    float velocity_x = 0, velocity_y = 0;
    float age_frames = 0, frames_since_seen = 0;
    std::uint32_t hits = 0;
    ocelli_track_state state = OCELLI_TRACKED;
    /// The number of its detection in this frame.
    std::optional<std::size_t> detection;
};

/// A result that something else owns.
class ResultView {
  public:
    explicit ResultView(const ocelli_result *borrowed) : result(borrowed) {}

    ocelli_result_info info() const {
        ocelli_result_info info{};
        info.struct_size = sizeof info;
        ocelli_result_get_info(result, &info);
        return info;
    }
    /// The highest score first.
    std::vector<Detection> detections() const {
        std::vector<Detection> found(ocelli_result_detection_count(result));
        for (std::size_t index = 0; index < found.size(); ++index) {
            ocelli_detection one{};
            one.struct_size = sizeof one;
            if (ocelli_result_get_detection(result, index, &one) != OCELLI_OK) continue;
            found[index] = {one.label, one.class_id, one.score, {one.x1, one.y1, one.x2, one.y2},
                            one.mask_counts ? one.mask_counts : ""};
        }
        return found;
    }
    /// The oldest first.
    std::vector<Track> tracks() const {
        std::vector<Track> found(ocelli_result_track_count(result));
        for (std::size_t index = 0; index < found.size(); ++index) {
            ocelli_track one{};
            one.struct_size = sizeof one;
            if (ocelli_result_get_track(result, index, &one) != OCELLI_OK) continue;
            Track &track = found[index];
            track = {one.id, one.label, one.class_id, one.score, {one.x1, one.y1, one.x2, one.y2},
                     one.velocity_x, one.velocity_y, one.age_frames, one.frames_since_seen, one.hits,
                     static_cast<ocelli_track_state>(one.state), std::nullopt};
            if (one.detection != SIZE_MAX) track.detection = one.detection;
        }
        return found;
    }
    /// A detection's mask: a byte for each pixel of the image, row by row, `inside` or 0.
    Returned<std::vector<std::uint8_t>> mask(std::size_t detection, std::uint8_t inside = 255) const {
        const ocelli_result_info about = info();
        std::vector<std::uint8_t> pixels(std::size_t{about.width} * about.height);
        const ocelli_status status =
            ocelli_result_get_mask(result, detection, pixels.data(), pixels.size(), 0, inside);
        using Pixels = Expected<std::vector<std::uint8_t>>;
        return detail::returned(status == OCELLI_OK ? Pixels(std::move(pixels)) : Pixels(Error::last(status)));
    }
    /// A line of JSON, as `ocelli video --jsonl` writes it.
    std::string json() const {
        const char *text = ocelli_result_json(result);
        return text ? text : "";
    }
    const ocelli_result *get() const { return result; }

  protected:
    const ocelli_result *result;
};

/// What was found in an image.
class Result : public ResultView {
  public:
    explicit Result(ocelli_result *owned) : ResultView(owned), handle(owned) {}

  private:
    detail::Handle<ocelli_result, ocelli_result_free> handle;
};

/// Options of a detector; what is not set has the defaults.
struct DetectorOptions {
    std::string model, engine, precision, text_cache, onnxruntime, openvino, tensorrt, trt, trt_enc_dec;
    std::uint32_t imgsz = 0, threads = 0, class_chunk = 0, max_detections = 0;
    std::optional<float> confidence, nms, class_agnostic_nms;
    bool masks = false;
    bool tile_auto = false;
    std::uint32_t tile_width = 0, tile_height = 0;
    std::optional<float> tile_overlap;

    /// For C; valid as long as this.
    ocelli_detector_options c() const {
        ocelli_detector_options options{};
        ocelli_detector_options_init(&options, sizeof options);
        options.model = detail::or_null(model);
        options.engine = detail::or_null(engine);
        options.precision = detail::or_null(precision);
        options.text_cache = detail::or_null(text_cache);
        options.onnxruntime = detail::or_null(onnxruntime);
        options.openvino = detail::or_null(openvino);
        options.tensorrt = detail::or_null(tensorrt);
        options.trt = detail::or_null(trt);
        options.trt_enc_dec = detail::or_null(trt_enc_dec);
        options.imgsz = imgsz;
        options.threads = threads;
        options.class_chunk = class_chunk;
        options.max_detections = max_detections;
        options.confidence = confidence.value_or(options.confidence);
        options.nms = nms.value_or(options.nms);
        options.class_agnostic_nms = class_agnostic_nms.value_or(options.class_agnostic_nms);
        options.masks = masks ? 1 : 0;
        options.tile_auto = tile_auto ? 1 : 0;
        options.tile_width = tile_width;
        options.tile_height = tile_height;
        options.tile_overlap = tile_overlap.value_or(options.tile_overlap);
        return options;
    }
};

/// Options of TensorRT engines; what is not set has the defaults.
struct EngineOptions {
    std::string model, precision, reference, tensorrt, onnxruntime;
    std::uint32_t imgsz = 0, max_classes = 4, max_exemplars = 8, threads = 0;
    bool masks = false, force = false;

    /// For C; valid as long as this.
    ocelli_engine_options c() const {
        ocelli_engine_options options{};
        ocelli_engine_options_init(&options, sizeof options);
        options.model = detail::or_null(model);
        options.precision = detail::or_null(precision);
        options.reference = detail::or_null(reference);
        options.tensorrt = detail::or_null(tensorrt);
        options.onnxruntime = detail::or_null(onnxruntime);
        options.imgsz = imgsz;
        options.max_classes = max_classes;
        options.max_exemplars = max_exemplars;
        options.threads = threads;
        options.masks = masks ? 1 : 0;
        options.force = force ? 1 : 0;
        return options;
    }
};

/// Builds TensorRT engines into a folder, and installs those that agree with the model. `progress` gets a line about each step,
/// and returns whether the build goes on; it must not throw.
inline Returned<void> build_engines(const EngineOptions &options, const std::string &output,
                                    const std::function<bool(const char *line)> &progress = {}) {
    const ocelli_engine_options passed = options.c();
    const ocelli_build_callback called = [](void *user_data, const char *line) -> std::uint32_t {
        return (*static_cast<const std::function<bool(const char *)> *>(user_data))(line) ? 0 : 1;
    };
    void *const user_data = const_cast<std::function<bool(const char *)> *>(&progress);
    return detail::done(ocelli_engines_build(&passed, output.c_str(), progress ? called : nullptr, user_data));
}

/// Compares two ways of running a model, as `ocelli_verify` does with the same JSON, and returns the report as JSON. `progress` as
/// for `build_engines`.
inline Returned<std::string> verify(const std::string &request,
                                    const std::function<bool(const char *line)> &progress = {}) {
    const ocelli_build_callback called = [](void *user_data, const char *line) -> std::uint32_t {
        return (*static_cast<const std::function<bool(const char *)> *>(user_data))(line) ? 0 : 1;
    };
    void *const user_data = const_cast<std::function<bool(const char *)> *>(&progress);
    const char *const report = ocelli_verify(request.c_str(), progress ? called : nullptr, user_data);
    using Report = Expected<std::string>;
    return detail::returned(report ? Report(std::string(report)) : Report(Error::last(ocelli_last_status())));
}

/// The features of an image, to search it again with other prompts.
class Features {
  public:
    explicit Features(ocelli_features *owned) : handle(owned) {}
    const ocelli_features *get() const { return handle.get(); }

  private:
    detail::Handle<ocelli_features, ocelli_features_free> handle;
};

/// Objects in an image that are shown by clicks, boxes and masks, not named. They are known by their numbers, from 0.
class Objects {
  public:
#ifndef OCELLI_NO_EXCEPTIONS
    Objects() : Objects(create()) {}
#endif
    explicit Objects(ocelli_objects *owned) : handle(owned) {}

    static Returned<Objects> create() {
        return detail::returned(detail::made<Objects, ocelli_objects>(
            [&](ocelli_objects **out) { return ocelli_objects_create(out); }));
    }
    /// Adds an object. It needs a point on it, a box or a mask.
    Returned<void> add(const std::string &label = {}) {
        return detail::done(ocelli_objects_add(handle.get(), detail::or_null(label)));
    }
    /// Adds a click, on the object or on what is not.
    Returned<void> add_point(std::size_t object, float x, float y, bool positive = true) {
        return detail::done(ocelli_objects_add_point(handle.get(), object, x, y, positive ? 1 : 0));
    }
    Returned<void> set_box(std::size_t object, const Box &box) {
        return detail::done(ocelli_objects_set_box(handle.get(), object, box.x1, box.y1, box.x2, box.y2));
    }
    /// Sets a rough mask: a byte for each pixel of the image, row by row, 0 outside.
    Returned<void> set_mask(std::size_t object, const std::uint8_t *pixels, std::uint32_t width, std::uint32_t height) {
        return detail::done(ocelli_objects_set_mask(handle.get(), object, pixels, width, height));
    }
    /// Refines detection `index` of a result of Detector::segment.
    Returned<void> refine(std::size_t object, const Result &result, std::size_t index) {
        return detail::done(ocelli_objects_refine(handle.get(), object, result.get(), index));
    }
    ocelli_objects *get() const { return handle.get(); }

  private:
    detail::Handle<ocelli_objects, ocelli_objects_free> handle;
};

/// A detector. Calls from several threads are done one after the other.
class Detector {
  public:
#ifndef OCELLI_NO_EXCEPTIONS
    explicit Detector(const DetectorOptions &options = {}) : Detector(create(options)) {}
#endif
    explicit Detector(ocelli_detector *owned) : handle(owned) {}

    static Returned<Detector> create(const DetectorOptions &options = {}) {
        const ocelli_detector_options given = options.c();
        return detail::returned(detail::made<Detector, ocelli_detector>(
            [&](ocelli_detector **out) { return ocelli_detector_create(&given, out); }));
    }
    Returned<Result> detect(const ocelli_frame &frame, const Prompts &prompts) {
        return detail::returned(detail::made<Result, ocelli_result>([&](ocelli_result **out) {
            return ocelli_detector_detect(handle.get(), &frame, prompts.get(), out);
        }));
    }
    Returned<Result> detect(const Image &image, const Prompts &prompts) { return detect(image.frame(), prompts); }
    /// The features of an image: the costly part, which does not depend on the prompts.
    Returned<Features> encode(const ocelli_frame &frame) {
        return detail::returned(detail::made<Features, ocelli_features>(
            [&](ocelli_features **out) { return ocelli_detector_encode(handle.get(), &frame, out); }));
    }
    Returned<Features> encode(const Image &image) { return encode(image.frame()); }
    Returned<Result> detect(const Features &features, const Prompts &prompts) {
        return detail::returned(detail::made<Result, ocelli_result>([&](ocelli_result **out) {
            return ocelli_detector_detect_features(handle.get(), features.get(), prompts.get(), out);
        }));
    }
    /// The masks of objects that are shown: one for each object, or three.
    Returned<Result> segment(const Features &features, const Objects &objects, bool multimask = false) {
        return detail::returned(detail::made<Result, ocelli_result>([&](ocelli_result **out) {
            return ocelli_detector_segment(handle.get(), features.get(), objects.get(), multimask ? 1 : 0, out);
        }));
    }
    /// Loads the engines and encodes the names, so that the first image does not wait for it.
    Returned<void> prepare(const Prompts &prompts) {
        return detail::done(ocelli_detector_prepare(handle.get(), prompts.get()));
    }
    Returned<void> set_confidence(float confidence) {
        return detail::done(ocelli_detector_set_confidence(handle.get(), confidence));
    }
    /// A description of the engine.
    std::string engine() const { return detail::text(ocelli_detector_engine(handle.get())); }
    /// The folder of the exported model.
    std::string model() const { return detail::text(ocelli_detector_model(handle.get())); }

  private:
    detail::Handle<ocelli_detector, ocelli_detector_free> handle;
};

/// The default options of a tracker.
inline ocelli_tracker_options tracker_options() {
    ocelli_tracker_options options{};
    ocelli_tracker_options_init(&options, sizeof options);
    return options;
}

/// A tracker for the boxes of any detector.
class Tracker {
  public:
#ifndef OCELLI_NO_EXCEPTIONS
    explicit Tracker(const ocelli_tracker_options &options = tracker_options()) : Tracker(create(options)) {}
#endif
    explicit Tracker(ocelli_tracker *owned) : handle(owned) {}

    static Returned<Tracker> create(const ocelli_tracker_options &options = tracker_options()) {
        return detail::returned(detail::made<Tracker, ocelli_tracker>(
            [&](ocelli_tracker **out) { return ocelli_tracker_create(&options, out); }));
    }
    /// The tracks after a frame; `frames` is the time since the last call.
    Returned<Result> update(const std::vector<Box> &boxes, const std::vector<float> &scores,
                            const std::vector<std::size_t> &class_ids, float frames = 1) {
        if (scores.size() != boxes.size() || class_ids.size() != boxes.size()) {
            return detail::returned(Expected<Result>(
                Error{OCELLI_INVALID_ARGUMENT, "boxes, scores and class_ids: expected the same number of each"}));
        }
        std::vector<float> edges;
        for (const Box &box : boxes) edges.insert(edges.end(), {box.x1, box.y1, box.x2, box.y2});
        return detail::returned(detail::made<Result, ocelli_result>([&](ocelli_result **out) {
            return ocelli_tracker_update(handle.get(), edges.data(), scores.data(), class_ids.data(), boxes.size(),
                                         frames, out);
        }));
    }
    Returned<Result> update(const ResultView &detections, float frames = 1) {
        return detail::returned(detail::made<Result, ocelli_result>([&](ocelli_result **out) {
            return ocelli_tracker_update_with(handle.get(), detections.get(), frames, out);
        }));
    }
    /// Forgets all tracks; their numbers start at 1 again.
    Returned<void> reset() { return detail::done(ocelli_tracker_reset(handle.get())); }

  private:
    detail::Handle<ocelli_tracker, ocelli_tracker_free> handle;
};

/// Options of a pipeline.
struct PipelineOptions {
    /// Not set: there is no tracker.
    std::optional<ocelli_tracker_options> tracker;
    ocelli_policy policy = OCELLI_ALL;
    ocelli_latency latency = OCELLI_THROUGHPUT;
    std::uint64_t detect_every = 1;
    double frame_rate = 0;
    std::uint32_t queue_depth = 0, class_budget = 0;
    /// To follow objects with masks by the model's memory of them, without `tracker`; the model has to have a tracker.
    bool memory = false;
    /// With `memory`: whether every result leaves at once, and the most objects of a class at a time; 0 for the model's own.
    bool no_hotstart = false;
    std::uint32_t max_objects = 0;
    /// Called with each result, on a thread of the library, instead of `Pipeline::receive`.
    std::function<void(const ResultView &)> on_result;
    /// Called once after the last result; with the error that ended the pipeline, if there was one.
    std::function<void(const std::optional<Error> &)> on_end;
};

/// What `Pipeline::receive` and `Session::next` return: a result, or why there is none.
struct Received {
    std::optional<Result> result;
    /// The pipeline was closed, or the run of the session has ended, and all results were received.
    bool ended = false;

    explicit operator bool() const { return result.has_value(); }
    const Result &operator*() const { return *result; }
    const Result *operator->() const { return &*result; }
};

/// A detector and a tracker that work on several frames at a time, on threads of their own. Any thread may push frames, and
/// any receive results.
class Pipeline {
  public:
#ifndef OCELLI_NO_EXCEPTIONS
    Pipeline(const DetectorOptions &detector, const Prompts &prompts, PipelineOptions options = {})
        : Pipeline(create(detector, prompts, std::move(options))) {}
#endif
    explicit Pipeline(ocelli_pipeline *owned) : handle(owned) {}

    static Returned<Pipeline> create(const DetectorOptions &detector, const Prompts &prompts,
                                     PipelineOptions options = {}) {
        const ocelli_detector_options given = detector.c();
        ocelli_pipeline_options passed{};
        ocelli_pipeline_options_init(&passed, sizeof passed);
        if (options.tracker) passed.tracker = &*options.tracker;
        passed.policy = options.policy;
        passed.latency = options.latency;
        passed.detect_every = options.detect_every;
        passed.frame_rate = options.frame_rate;
        passed.queue_depth = options.queue_depth;
        passed.class_budget = options.class_budget;
        passed.memory = options.memory;
        passed.no_hotstart = options.no_hotstart;
        passed.max_objects = options.max_objects;
        std::unique_ptr<Calls> calls;
        if (options.on_result || options.on_end) {
            calls = std::make_unique<Calls>();
            calls->on_result = std::move(options.on_result);
            calls->on_end = std::move(options.on_end);
            passed.callback = call;
            passed.user_data = calls.get();
        }
        auto made = detail::made<Pipeline, ocelli_pipeline>([&](ocelli_pipeline **out) {
            return ocelli_pipeline_create(&given, prompts.get(), &passed, out);
        });
        if (made) made->calls = std::move(calls);
        return detail::returned(std::move(made));
    }
    /// Pushes a frame, which is read during this call alone, and returns its number. With OCELLI_ALL it waits for room.
    Returned<std::uint64_t> push(const ocelli_frame &frame) {
        std::uint64_t index = 0;
        const ocelli_status status = ocelli_pipeline_push(handle.get(), &frame, &index);
        using Index = Expected<std::uint64_t>;
        return detail::returned(status == OCELLI_OK ? Index(index) : Index(Error::last(status)));
    }
    /// As `push`, but never waits: nothing if there is no room.
    Returned<std::optional<std::uint64_t>> try_push(const ocelli_frame &frame) {
        std::uint64_t index = 0;
        const ocelli_status status = ocelli_pipeline_try_push(handle.get(), &frame, &index);
        using Index = Expected<std::optional<std::uint64_t>>;
        if (status == OCELLI_NOT_READY) return detail::returned(Index(std::nullopt));
        return detail::returned(status == OCELLI_OK ? Index(index) : Index(Error::last(status)));
    }
    /// Waits for the next result, in the order of the frames: `timeout_ms` milliseconds, below 0 without end.
    Returned<Received> receive(int timeout_ms = -1) {
        ocelli_result *result = nullptr;
        const ocelli_status status = ocelli_pipeline_receive(handle.get(), timeout_ms, &result);
        Received received;
        received.ended = status == OCELLI_ENDED;
        if (status == OCELLI_OK) received.result.emplace(result);
        const bool failed = status != OCELLI_OK && status != OCELLI_NOT_READY && status != OCELLI_ENDED;
        using Outcome = Expected<Received>;
        return detail::returned(failed ? Outcome(Error::last(status)) : Outcome(std::move(received)));
    }
    /// Marks the end of the stream.
    Returned<void> close() { return detail::done(ocelli_pipeline_close(handle.get())); }
    /// Waits until the callbacks were called for the last time. Throws what the first of them has thrown.
    Returned<void> wait() {
        const ocelli_status status = ocelli_pipeline_wait(handle.get());
#ifndef OCELLI_NO_EXCEPTIONS
        if (calls) {
            const std::lock_guard<std::mutex> locked(calls->lock);
            if (calls->thrown) std::rethrow_exception(std::exchange(calls->thrown, nullptr));
        }
#endif
        return detail::done(status);
    }
    /// Statistics so far as JSON, as `ocelli video --stats` writes them.
    std::string stats() const {
        std::string text(512, '\0');
        std::size_t needed = 0;
        // They may grow between two calls.
        while (ocelli_pipeline_stats(handle.get(), text.data(), text.size(), &needed) == OCELLI_OK) {
            const bool fits = needed <= text.size();
            text.resize(fits ? needed - 1 : needed + 64);
            if (fits) return text;
        }
        return {};
    }

  private:
    struct Calls {
        std::function<void(const ResultView &)> on_result;
        std::function<void(const std::optional<Error> &)> on_end;
#ifndef OCELLI_NO_EXCEPTIONS
        std::mutex lock;
        std::exception_ptr thrown;
#endif
        void pass(ocelli_status status, const ocelli_result *result) {
            if (result) {
                if (on_result) on_result(ResultView(result));
            } else if (on_end) {
                on_end(status == OCELLI_ENDED ? std::nullopt : std::optional<Error>(Error::last(status)));
            }
        }
    };

    static void call(void *user_data, ocelli_status status, const ocelli_result *result) {
        Calls &calls = *static_cast<Calls *>(user_data);
#ifdef OCELLI_NO_EXCEPTIONS
        calls.pass(status, result);
#else
        try {
            calls.pass(status, result);
        } catch (...) {
            const std::lock_guard<std::mutex> locked(calls.lock);
            if (!calls.thrown) calls.thrown = std::current_exception();
        }
#endif
    }

    // Freed after the handle, whose thread uses them.
    std::unique_ptr<Calls> calls;
    detail::Handle<ocelli_pipeline, ocelli_pipeline_free> handle;
};

/// A click on an object, or beside it, in pixels.
struct Click {
    float x = 0, y = 0;
    bool positive = true;
};

/// How a video file is opened.
struct InputOptions {
    /// The number of the stream among the video streams, from 0; below 0 for the one that players choose.
    std::int64_t stream = -1;
    /// Options of FFmpeg, each KEY=VALUE.
    std::vector<std::string> ffmpeg_options;
    /// FFmpeg's name of the hardware that decodes, or "auto" for the first that works; empty for the CPU.
    std::string hwaccel;
};

/// A video in which objects are found, followed, corrected and removed, by SAM 3's memory tracker. Its results have a detection
/// with a mask for each object, and a track whose `id` is the object's number.
class Session {
  public:
#ifndef OCELLI_NO_EXCEPTIONS
    Session(const DetectorOptions &options, const std::string &path, const InputOptions &input = {})
        : Session(create(options, path, input)) {}
    Session(const DetectorOptions &options, const ocelli_frame &first) : Session(create(options, first)) {}
#endif
    explicit Session(ocelli_session *owned) : handle(owned) {}

    /// On a video file or a folder of images.
    static Returned<Session> create(const DetectorOptions &options, const std::string &path, const InputOptions &input = {}) {
        const ocelli_detector_options given = options.c();
        std::vector<const char *> texts;
        for (const std::string &option : input.ffmpeg_options) texts.push_back(option.c_str());
        const ocelli_input_options opened = {sizeof opened, texts.data(), texts.size(), detail::or_null(input.hwaccel), input.stream};
        return detail::returned(detail::made<Session, ocelli_session>([&](ocelli_session **out) {
            return ocelli_session_create_with(&given, path.c_str(), &opened, out);
        }));
    }
    /// On a video that begins with this frame; `push` appends others.
    static Returned<Session> create(const DetectorOptions &options, const ocelli_frame &first) {
        const ocelli_detector_options given = options.c();
        return detail::returned(detail::made<Session, ocelli_session>(
            [&](ocelli_session **out) { return ocelli_session_create_pushed(&given, &first, out); }));
    }
    /// Appends a frame, and returns its number.
    Returned<std::size_t> push(const ocelli_frame &frame) {
        std::size_t index = 0;
        const ocelli_status status = ocelli_session_push(handle.get(), &frame, &index);
        using Index = Expected<std::size_t>;
        return detail::returned(status == OCELLI_OK ? Index(index) : Index(Error::last(status)));
    }
    std::size_t frame_count() const { return ocelli_session_frame_count(handle.get()); }
    /// A number that no object of this session ever had.
    std::uint32_t next_object() const { return ocelli_session_next_object(handle.get()); }

    /// Starts over: finds the objects that a text describes on a frame. Runs look for them in every frame.
    Returned<Result> add_text(std::size_t frame, const std::string &text) {
        return found([&](ocelli_result **out) {
            return ocelli_session_add_text(handle.get(), frame, text.c_str(), out);
        });
    }
    /// Starts over: finds what is in a box of this frame, and objects like it. Runs follow them without looking for others.
    Returned<Result> add_box(std::size_t frame, const Box &box) {
        return found([&](ocelli_result **out) {
            return ocelli_session_add_box(handle.get(), frame, box.x1, box.y1, box.x2, box.y2, out);
        });
    }
    /// Clicks on an object of a frame: one that is tracked is refined, another one is added under this number.
    Returned<Result> add_points(std::uint32_t object, std::size_t frame, const std::vector<Click> &clicks) {
        std::vector<float> points;
        std::vector<int> positive;
        for (const Click &click : clicks) {
            points.insert(points.end(), {click.x, click.y});
            positive.push_back(click.positive ? 1 : 0);
        }
        return found([&](ocelli_result **out) {
            return ocelli_session_add_points(handle.get(), object, frame, points.data(), positive.data(), clicks.size(),
                                             out);
        });
    }
    /// Adds an object by its mask on a frame: a byte for each pixel of the video, row by row, 0 outside.
    Returned<Result> add_mask(std::uint32_t object, std::size_t frame, const std::uint8_t *pixels, std::uint32_t width,
                              std::uint32_t height) {
        return found([&](ocelli_result **out) {
            return ocelli_session_add_mask(handle.get(), object, frame, pixels, width, height, out);
        });
    }
    /// Plans a run, in place of one that has not ended: from `start`, by default the first frame with results, over
    /// `max_frames` more frames each way, by default to the ends of the video.
    Returned<void> propagate(ocelli_direction direction = OCELLI_BOTH, std::int64_t start = -1,
                             std::int64_t max_frames = -1) {
        return detail::done(ocelli_session_propagate(handle.get(), direction, start, max_frames));
    }
    /// The next frame of the run, or that it has ended.
    Returned<Received> next() {
        ocelli_result *result = nullptr;
        const ocelli_status status = ocelli_session_next(handle.get(), &result);
        Received received;
        received.ended = status == OCELLI_ENDED;
        if (status == OCELLI_OK) received.result.emplace(result);
        using Outcome = Expected<Received>;
        const bool failed = status != OCELLI_OK && status != OCELLI_ENDED;
        return detail::returned(failed ? Outcome(Error::last(status)) : Outcome(std::move(received)));
    }
    /// Removes an object from all frames; its number is not used again.
    Returned<void> remove(std::uint32_t object) { return detail::done(ocelli_session_remove(handle.get(), object)); }
    /// Forgets what was asked for, all objects and all results.
    Returned<void> reset() { return detail::done(ocelli_session_reset(handle.get())); }

  private:
    template <class Make> static Returned<Result> found(Make make) {
        return detail::returned(detail::made<Result, ocelli_result>(make));
    }

    detail::Handle<ocelli_session, ocelli_session_free> handle;
};

} // namespace ocelli

#endif
