// Tests of the C++ classes: test IMAGE MODEL, which has a tracker. Compiled with exceptions, and without (OCELLI_NO_EXCEPTIONS).
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <ocelli.hpp>
#include <thread>

static std::atomic<int> failures{0};

// The engine that needs no library: sanitizers refuse some of those that others load.
static ocelli::DetectorOptions embedded() {
    ocelli::DetectorOptions options;
    options.engine = "embedded";
    return options;
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::cerr << __FILE__ << ':' << __LINE__ << ": " #condition "; last error: " << ocelli_last_error() << '\n'; \
            ++failures;                                                                                                \
        }                                                                                                              \
    } while (0)

#ifdef OCELLI_NO_EXCEPTIONS

template <class T> static T take(ocelli::Expected<T> outcome) {
    if (!outcome) {
        std::cerr << "error: " << outcome.error().message << '\n';
        std::exit(1);
    }
    return *std::move(outcome);
}

template <class Call> static void fails(ocelli_status status, const std::string &words, Call call) {
    const auto outcome = call();
    CHECK(!outcome);
    if (outcome) return;
    CHECK(outcome.error().status == status);
    CHECK(outcome.error().message.find(words) != std::string::npos);
}

#else

template <class T> static T take(T value) { return value; }

template <class Call> static void fails(ocelli_status status, const std::string &words, Call call) {
    try {
        call();
        CHECK(!"an exception was expected");
    } catch (const ocelli::Exception &exception) {
        CHECK(exception.status() == status);
        CHECK(std::string(exception.what()).find(words) != std::string::npos);
    }
}

static void constructors(const std::string &image) {
    const ocelli::Prompts prompts({"dog"});
    ocelli::Detector detector(embedded());
    CHECK(!detector.detect(ocelli::Image(image), prompts).detections().empty());
    const ocelli::Tracker tracker;
    fails(OCELLI_IO, "/nowhere", [] { return ocelli::Image("/nowhere"); });
}

static void a_callback_throws(const ocelli::Prompts &prompts, const ocelli_frame &frame) {
    ocelli::PipelineOptions options;
    int results = 0;
    options.on_result = [&](const ocelli::ResultView &) {
        if (++results == 1) throw std::runtime_error("from the callback");
    };
    ocelli::Pipeline pipeline(embedded(), prompts, options);
    pipeline.push(frame);
    pipeline.push(frame);
    pipeline.close();
    std::string thrown;
    try {
        pipeline.wait();
    } catch (const std::runtime_error &error) {
        thrown = error.what();
    }
    CHECK(thrown == "from the callback");
    CHECK(results == 2);
    pipeline.wait();
}

#endif

static void detecting(const ocelli::Prompts &prompts, const ocelli::Image &image) {
    ocelli::DetectorOptions options = embedded();
    options.masks = true;
    options.confidence = 0.5f;
    ocelli::Detector moved = take(ocelli::Detector::create(options));
    ocelli::Detector detector = std::move(moved);
    CHECK(detector.engine().find("mbedded") != std::string::npos && !detector.model().empty());
    take(ocelli::Returned<ocelli::Result>(detector.detect(image, prompts)));
    const ocelli::Result result = take(detector.detect(image, prompts));
    const ocelli::Features features = take(detector.encode(image));
    CHECK(take(detector.detect(features, prompts)).detections().size() == result.detections().size());
    ocelli::Objects objects = take(ocelli::Objects::create());
#ifdef OCELLI_NO_EXCEPTIONS
    CHECK(objects.add("dog") && objects.add_point(0, 5, 5) && objects.set_box(0, {1, 1, 9, 9}));
#else
    objects.add("dog");
    objects.add_point(0, 5, 5);
    objects.set_box(0, {1, 1, 9, 9});
#endif
    fails(OCELLI_INVALID_ARGUMENT, "there are 1 objects", [&] { return objects.add_point(1, 5, 5, false); });
    fails(OCELLI_INVALID_ARGUMENT, "ocelli_detector_segment", [&] { return objects.refine(0, result, 0); });
    fails(OCELLI_MISMATCH, "has no tracker", [&] { return detector.segment(features, objects); });
    const std::vector<ocelli::Detection> found = result.detections();
    CHECK(!found.empty() && found[0].label == "tree" && found[0].score > 0.5f && !found[0].mask_counts.empty());
    CHECK(result.tracks().empty() && result.json().find("\"label\":\"dog\"") != std::string::npos);
    const std::vector<std::uint8_t> mask = take(result.mask(0));
    std::size_t inside = 0;
    for (const std::uint8_t pixel : mask) inside += pixel == 255;
    CHECK(mask.size() == std::size_t{result.info().width} * result.info().height && inside > 0);
    fails(OCELLI_INVALID_ARGUMENT, "there are", [&] { return result.mask(found.size()); });
    fails(OCELLI_INVALID_ARGUMENT, "detector is null", [&] { return moved.detect(image, prompts); });
    CHECK(moved.engine().empty() && moved.model().empty());
    options.engine = "steam";
    fails(OCELLI_INVALID_ARGUMENT, "steam", [&] { return ocelli::Detector::create(options); });
    fails(OCELLI_INVALID_ARGUMENT, "1.5", [&] { return detector.set_confidence(1.5f); });
    fails(OCELLI_INVALID_ARGUMENT, "UTF-8", [] { return ocelli::Prompts::create({"\xff"}); });
    const ocelli_frame wrong = ocelli::frame(image.frame().data, 5, 4, 4);
    fails(OCELLI_INVALID_ARGUMENT, "too few", [&] { return detector.detect(wrong, prompts); });

    ocelli::Prompts examples = take(ocelli::Prompts::create({}));
#ifdef OCELLI_NO_EXCEPTIONS
    CHECK(examples.add("", "like this") && examples.add_example(0, found[0].box));
#else
    examples.add("", "like this");
    examples.add_example(0, found[0].box);
#endif
    const auto like = take(detector.detect(image, examples)).detections();
    CHECK(!like.empty() && like[0].label == "like this");
}

static void tracking() {
    ocelli::Tracker tracker = take(ocelli::Tracker::create());
    for (int turn = 0; turn < 3; ++turn) {
        const float x = 5.0f * static_cast<float>(turn);
        const ocelli::Result result = take(tracker.update({{x, 0, x + 50, 40}}, {0.9f}, {2}));
        const std::vector<ocelli::Track> tracks = result.tracks();
        CHECK(tracks.size() == 1 && tracks[0].id == 1 && tracks[0].class_id == 2 && tracks[0].detection == 0);
    }
    fails(OCELLI_INVALID_ARGUMENT, "same number", [&] { return tracker.update({{0, 0, 1, 1}}, {}, {}); });
    ocelli_tracker_options options = ocelli::tracker_options();
    options.max_time_lost = 0;
    fails(OCELLI_INVALID_ARGUMENT, "max_time_lost", [&] { return ocelli::Tracker::create(options); });
}

static void streaming(const ocelli::Prompts &prompts, const ocelli::Image &image) {
    ocelli::PipelineOptions options;
    options.tracker = ocelli::tracker_options();
    ocelli::Pipeline pipeline = take(ocelli::Pipeline::create(embedded(), prompts, options));
    CHECK(!take(pipeline.receive(0)) && !take(pipeline.receive(0)).ended);
    std::thread camera([&] {
        for (std::uint64_t number = 0; number < 3; ++number) {
            ocelli_frame frame = image.frame();
            frame.timestamp_ns = number * 33'000'000;
            CHECK(take(pipeline.push(frame)) == number);
        }
#ifdef OCELLI_NO_EXCEPTIONS
        CHECK(pipeline.close());
#else
        pipeline.close();
#endif
    });
    std::uint64_t next = 0;
    while (true) {
        const ocelli::Received received = take(pipeline.receive());
        if (received.ended) break;
        CHECK(received && received->info().index == next++ && !received->detections().empty());
    }
    CHECK(next == 3);
    camera.join();
    CHECK(pipeline.stats().front() == '{' && pipeline.stats().back() == '}');
    fails(OCELLI_INVALID_ARGUMENT, "closed", [&] { return pipeline.push(image.frame()); });

    int results = 0, ends = 0;
    ocelli::PipelineOptions calling;
    calling.on_result = [&](const ocelli::ResultView &result) { results += !result.detections().empty(); };
    calling.on_end = [&](const std::optional<ocelli::Error> &error) { ends += !error; };
    ocelli::Pipeline called = take(ocelli::Pipeline::create(embedded(), prompts, calling));
    take(called.push(image.frame()));
    CHECK(take(called.try_push(image.frame())).value_or(1) == 1);
#ifdef OCELLI_NO_EXCEPTIONS
    CHECK(called.close() && called.wait());
#else
    called.close();
    called.wait();
#endif
    CHECK(results >= 1 && ends == 1);
}

static void remembering(const std::string &model, const ocelli::Prompts &prompts, const ocelli::Image &image) {
    ocelli::DetectorOptions detector = embedded();
    detector.model = model;
    detector.confidence = 0.0f;
    ocelli::PipelineOptions options;
    options.memory = options.no_hotstart = true;
    options.max_objects = 3;
    ocelli::Pipeline pipeline = take(ocelli::Pipeline::create(detector, prompts, options));
    take(pipeline.push(image.frame()));
    const ocelli::Received received = take(pipeline.receive());
    CHECK(received && !received->tracks().empty() && received->tracks().size() == received->detections().size());
    options.memory = false;
    fails(OCELLI_INVALID_ARGUMENT, "set memory", [&] { return ocelli::Pipeline::create(detector, prompts, options); });
    fails(OCELLI_INVALID_ARGUMENT, "request", [&] { return ocelli::verify("{]"); });
}

static void following(const std::string &model, const ocelli::Image &image) {
    ocelli::DetectorOptions options = embedded();
    fails(OCELLI_MISMATCH, "has no tracker", [&] { return ocelli::Session::create(options, image.frame()); });
    options.model = model;
    options.confidence = 0.0f;
    fails(OCELLI_IO, "/nowhere", [&] { return ocelli::Session::create(options, "/nowhere"); });
    const ocelli_frame frame = image.frame();
    ocelli::Session moved = take(ocelli::Session::create(options, frame));
    ocelli::Session session = std::move(moved);
    CHECK(take(session.push(frame)) == 1 && session.frame_count() == 2 && session.next_object() == 0);
    const ocelli::Result first = take(session.add_text(0, "red apple"));
    CHECK(first.detections().size() == 1 && first.detections()[0].label == "red apple");
    CHECK(first.tracks().size() == 1 && first.tracks()[0].id == 0 && first.tracks()[0].detection == 0);
    const float width = static_cast<float>(frame.width), height = static_cast<float>(frame.height);
    CHECK(take(session.add_points(4, 0, {{width / 2, height / 2}, {5, 5, false}})).tracks().back().id == 4);
    CHECK(session.next_object() == 5);
    take(session.add_box(0, {10, 10, width / 2, height / 2}));
    std::vector<std::uint8_t> mask(std::size_t{frame.width} * frame.height);
    std::fill(mask.begin(), mask.begin() + static_cast<std::ptrdiff_t>(mask.size() / 2), std::uint8_t{1});
#ifdef OCELLI_NO_EXCEPTIONS
    CHECK(session.reset());
#else
    session.reset();
#endif
    const ocelli::Result given = take(session.add_mask(2, 0, mask.data(), frame.width, frame.height));
    CHECK(take(given.mask(0, 1)) == mask);
#ifdef OCELLI_NO_EXCEPTIONS
    CHECK(session.propagate(OCELLI_FORWARD, 0, 1));
#else
    session.propagate(OCELLI_FORWARD, 0, 1);
#endif
    for (std::uint64_t number = 0; number < 2; ++number) {
        const ocelli::Received shown = take(session.next());
        CHECK(shown && shown->info().index == number);
    }
    CHECK(take(session.next()).ended);
#ifdef OCELLI_NO_EXCEPTIONS
    CHECK(session.remove(2));
#else
    session.remove(2);
#endif
    fails(OCELLI_INVALID_ARGUMENT, "object 2 was removed", [&] { return session.remove(2); });
    fails(OCELLI_INVALID_ARGUMENT, "frame 2 is not in the video", [&] { return session.add_text(2, "dog"); });
    fails(OCELLI_INVALID_ARGUMENT, "session is null", [&] { return moved.next(); });
}

static void engines_without_a_library() {
    ocelli::EngineOptions options;
    options.tensorrt = "/nowhere/libnvinfer.so";
    fails(OCELLI_UNAVAILABLE, "cannot build engines", [&] { return ocelli::build_engines(options, "/tmp/ocelli-engines"); });
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const ocelli::Image image = take(ocelli::Image::open(argv[1]));
    const ocelli::Prompts prompts = take(ocelli::Prompts::create({"dog", "tree"}));
    CHECK(!ocelli::version().empty());
    detecting(prompts, image);
    tracking();
    streaming(prompts, image);
    following(argv[2], image);
    remembering(argv[2], prompts, image);
    engines_without_a_library();
#ifndef OCELLI_NO_EXCEPTIONS
    constructors(argv[1]);
    a_callback_throws(prompts, image.frame());
#endif
    std::cerr << (failures ? "failed\n" : "passed\n");
    return failures != 0;
}
