/* Tests of the C interface: test IMAGE CLASSES [TURNS|one-frame|tracker MODEL]
 *
 * CLASSES are names with commas between them. The detections are printed for a comparison with the program. The loop that
 * looks for leaks goes around TURNS times. one-frame is for valgrind. */
#define _POSIX_C_SOURCE 200809L
#include <malloc.h>
#include <ocelli.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures = 0;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, ocelli_last_error());       \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)
#define OK(call) CHECK((call) == OCELLI_OK)
/* The call fails with this status and a text that has these words. */
#define FAILS(status, words, call)                                                                                     \
    do {                                                                                                               \
        CHECK((call) == (status));                                                                                     \
        CHECK(ocelli_last_status() == (status));                                                                       \
        CHECK(strstr(ocelli_last_error(), words) != NULL);                                                             \
    } while (0)
#define REFUSED(words, call) FAILS(OCELLI_INVALID_ARGUMENT, words, call)

enum { MOST_CLASSES = 32 };
static const char *classes[MOST_CLASSES];
static size_t class_count;
static ocelli_prompts *prompts;
static ocelli_image *image;
static ocelli_frame frame = {.struct_size = sizeof frame};

static ocelli_detector *new_detector(uint32_t masks) {
    ocelli_detector *detector = NULL;
    ocelli_detector_options options;
    OK(ocelli_detector_options_init(&options, sizeof options));
    CHECK(options.struct_size == sizeof options && options.confidence < 0 && options.model == NULL);
    options.engine = "embedded";
    options.threads = 1;
    options.masks = masks;
    OK(ocelli_detector_create(&options, &detector));
    return detector;
}

static ocelli_detection detection_at(const ocelli_result *result, size_t index) {
    ocelli_detection found = {.struct_size = sizeof found};
    OK(ocelli_result_get_detection(result, index, &found));
    return found;
}

static int same_detections(const ocelli_result *left, const ocelli_result *right) {
    const size_t count = ocelli_result_detection_count(left);
    if (count != ocelli_result_detection_count(right)) return 0;
    for (size_t i = 0; i < count; i++) {
        const ocelli_detection a = detection_at(left, i), b = detection_at(right, i);
        if (a.class_id != b.class_id || strcmp(a.label, b.label) != 0 || memcmp(&a.x1, &b.x1, 5 * sizeof a.x1) != 0)
            return 0;
    }
    return 1;
}

static void versions(void) {
    CHECK(ocelli_abi_version() == OCELLI_ABI_VERSION);
    CHECK(strchr(ocelli_version(), '.') != NULL);
    CHECK(strcmp(ocelli_status_name(OCELLI_UNAVAILABLE), "unavailable") == 0);
    CHECK(strcmp(ocelli_status_name(77), "unknown status") == 0);
    CHECK(strcmp(ocelli_last_error(), "") == 0 && ocelli_last_status() == OCELLI_OK);
}

/* COCO's compressed run lengths: columns, background first. */
static size_t decode_counts(const char *text, uint8_t *pixels, uint32_t width, uint32_t height) {
    long runs[3] = {0, 0, 0};
    size_t place = 0, inside = 0, number = 0;
    for (; *text; number++) {
        unsigned long value = 0;
        int shift = 0, byte;
        do {
            byte = *text++ - 48;
            value |= (unsigned long)(byte & 0x1f) << shift;
            shift += 5;
        } while (byte & 0x20);
        if (byte & 0x10) value |= ~0UL << shift;
        long run = (long)value;
        if (number > 2) run += runs[(number - 2) % 3];
        runs[number % 3] = run;
        for (; run > 0; run--, place++) {
            if (place >= (size_t)width * height) return 0;
            pixels[place % height * width + place / height] = number % 2;
            inside += number % 2;
        }
    }
    return place == (size_t)width * height ? inside : 0;
}

/* The built-in model has no tracker. */
static void objects_are_refused(ocelli_detector *detector, const ocelli_features *features, const ocelli_result *result) {
    ocelli_objects *objects = NULL;
    ocelli_result *none = NULL;
    REFUSED("objects is null", ocelli_objects_create(NULL));
    OK(ocelli_objects_create(&objects));
    REFUSED("object is 0: there are 0", ocelli_objects_add_point(objects, 0, 1, 1, 1));
    OK(ocelli_objects_add(objects, "dog"));
    REFUSED("object is 1: there are 1", ocelli_objects_set_box(objects, 1, 0, 0, 9, 9));
    REFUSED("pixels is null", ocelli_objects_set_mask(objects, 0, NULL, 4, 4));
    REFUSED("no masks of ocelli_detector_segment", ocelli_objects_refine(objects, 0, result, 0));
    OK(ocelli_objects_add_point(objects, 0, 5, 5, 1));
    REFUSED("result is null", ocelli_detector_segment(detector, features, objects, 0, NULL));
    REFUSED("features is null", ocelli_detector_segment(detector, NULL, objects, 0, &none));
    FAILS(OCELLI_MISMATCH, "has no tracker", ocelli_detector_segment(detector, features, objects, 0, &none));
    OK(ocelli_objects_free(objects));
    REFUSED("objects", ocelli_detector_segment(detector, features, objects, 0, &none));
    OK(ocelli_objects_free(NULL));
}

static void results_and_masks(void) {
    ocelli_detector *detector = new_detector(1);
    ocelli_result *result = NULL;
    CHECK(strlen(ocelli_detector_engine(detector)) > 0 && strlen(ocelli_detector_model(detector)) > 0);
    OK(ocelli_detector_prepare(detector, prompts));
    OK(ocelli_detector_detect(detector, &frame, prompts, &result));
    ocelli_result_info info = {.struct_size = sizeof info};
    OK(ocelli_result_get_info(result, &info));
    CHECK(info.width == frame.width && info.height == frame.height && info.detected == 1 && info.total_ms > 0);

    const size_t count = ocelli_result_detection_count(result), size = (size_t)info.width * info.height;
    CHECK(count > 0 && ocelli_result_track_count(result) == 0);
    const size_t stride = info.width + 5;
    uint8_t *decoded = malloc(size), *padded = malloc(stride * info.height);
    for (size_t i = 0; i < count; i++) {
        const ocelli_detection found = detection_at(result, i);
        printf("%zu\t%s\t%.9g\t%.9g\t%.9g\t%.9g\t%.9g\t%s\n", found.class_id, found.label, found.score, found.x1,
               found.y1, found.x2, found.y2, found.mask_counts);
        CHECK(found.class_id < class_count && strcmp(found.label, classes[found.class_id]) == 0);
        CHECK(found.mask_width == info.width && found.mask_height == info.height);
        CHECK(decode_counts(found.mask_counts, decoded, info.width, info.height) > 0);
        memset(padded, 7, stride * info.height);
        OK(ocelli_result_get_mask(result, i, padded, stride * info.height, stride, 1));
        for (size_t y = 0; y < info.height; y++) {
            CHECK(memcmp(padded + y * stride, decoded + y * info.width, info.width) == 0);
            CHECK(padded[y * stride + info.width] == 7 && padded[(y + 1) * stride - 1] == 7);
        }
    }
    REFUSED("there are", ocelli_result_get_mask(result, count, padded, size, 0, 1));
    REFUSED("too few", ocelli_result_get_mask(result, 0, padded, size - 1, 0, 1));
    REFUSED("too few", ocelli_result_get_mask(result, 0, padded, size, info.width - 1, 1));
    REFUSED("too few", ocelli_result_get_mask(result, 0, padded, size, SIZE_MAX, 1));
    REFUSED("pixels is null", ocelli_result_get_mask(result, 0, NULL, size, 0, 1));
    free(decoded);
    free(padded);

    /* The features of an image can be searched again. */
    ocelli_features *features = NULL;
    ocelli_result *again = NULL;
    OK(ocelli_detector_encode(detector, &frame, &features));
    for (int i = 0; i < 2; i++) {
        OK(ocelli_detector_detect_features(detector, features, prompts, &again));
        ocelli_result_info other = {.struct_size = sizeof other};
        OK(ocelli_result_get_info(again, &other));
        CHECK(ocelli_result_detection_count(again) == count && other.width == info.width && other.height == info.height);
        for (size_t k = 0; k < count; k++) {
            const ocelli_detection one = detection_at(result, k), same = detection_at(again, k);
            CHECK(one.class_id == same.class_id && one.score == same.score && one.x1 == same.x1 && one.y2 == same.y2);
            CHECK(strcmp(one.mask_counts, same.mask_counts) == 0);
        }
        OK(ocelli_result_free(again));
    }
    objects_are_refused(detector, features, result);
    OK(ocelli_features_free(features));
    REFUSED("features", ocelli_detector_detect_features(detector, features, prompts, &again));
    REFUSED("features is null", ocelli_detector_detect_features(detector, NULL, prompts, &again));

    const char *json = ocelli_result_json(result);
    CHECK(json != NULL && strstr(json, "\"detections\":[{\"class_id\":") != NULL && json == ocelli_result_json(result));
    printf("%s\n", json);
    OK(ocelli_detector_set_confidence(detector, 1));
    ocelli_result *none = NULL;
    OK(ocelli_detector_detect(detector, &frame, prompts, &none));
    CHECK(ocelli_result_detection_count(none) == 0);
    OK(ocelli_result_free(none));
    OK(ocelli_detector_free(detector));
    /* Results outlive their detector. */
    CHECK(detection_at(result, 0).score > 0);
    OK(ocelli_result_free(result));
}

/* The same pixels with padded rows, in another order, and grey ones. */
static void formats(ocelli_detector *detector) {
    const size_t stride = frame.width * 3 + 13, size = stride * frame.height;
    uint8_t *padded = calloc(size, 1);
    for (size_t y = 0; y < frame.height; y++) {
        for (size_t x = 0; x < frame.width; x++) {
            for (size_t c = 0; c < 3; c++)
                padded[y * stride + x * 3 + c] = frame.data[y * frame.stride + x * 3 + 2 - c];
        }
    }
    ocelli_frame other = frame;
    other.data = padded;
    /* The last row has no padding. */
    other.data_size = size - 13;
    other.stride = stride;
    other.format = OCELLI_BGR8;
    other.timestamp_ns = 42;
    ocelli_result *expected = NULL, *result = NULL;
    OK(ocelli_detector_detect(detector, &frame, prompts, &expected));
    OK(ocelli_detector_detect(detector, &other, prompts, &result));
    CHECK(same_detections(expected, result));
    ocelli_result_info info = {.struct_size = sizeof info};
    OK(ocelli_result_get_info(result, &info));
    CHECK(info.timestamp_ns == 42);
    CHECK(detection_at(result, 0).mask_counts == NULL);
    REFUSED("has no mask", ocelli_result_get_mask(result, 0, padded, size, 0, 1));
    OK(ocelli_result_free(result));
    OK(ocelli_result_free(expected));

    other.data_size--;
    REFUSED("too few", ocelli_detector_detect(detector, &other, prompts, &result));
    other.data_size++;
    other.stride = frame.width * 3 - 1;
    REFUSED("stride", ocelli_detector_detect(detector, &other, prompts, &result));
    other.stride = SIZE_MAX;
    REFUSED("too few", ocelli_detector_detect(detector, &other, prompts, &result));
    other.stride = 0;
    other.format = 4;
    REFUSED("format is 4", ocelli_detector_detect(detector, &other, prompts, &result));
    other.format = OCELLI_GRAY8;
    OK(ocelli_detector_detect(detector, &other, prompts, &result));
    OK(ocelli_result_free(result));
    other.format = OCELLI_NV12;
    OK(ocelli_detector_detect(detector, &other, prompts, &result));
    OK(ocelli_result_free(result));
    other.width = 0;
    REFUSED("at least one pixel", ocelli_detector_detect(detector, &other, prompts, &result));
    other.width = other.height = UINT32_MAX;
    REFUSED("frame of", ocelli_detector_detect(detector, &other, prompts, &result));
    other.data_size = SIZE_MAX;
    REFUSED("there cannot be", ocelli_detector_detect(detector, &other, prompts, &result));
    other.data = NULL;
    REFUSED("data is null", ocelli_detector_detect(detector, &other, prompts, &result));
    free(padded);
}

static void examples(ocelli_detector *detector) {
    ocelli_result *result = NULL, *like = NULL;
    OK(ocelli_detector_detect(detector, &frame, prompts, &result));
    const ocelli_detection first = detection_at(result, 0);
    ocelli_prompts *visual = NULL;
    OK(ocelli_prompts_create(NULL, 0, &visual));
    REFUSED("", ocelli_detector_detect(detector, &frame, visual, &like));
    OK(ocelli_prompts_add(visual, NULL, "like this"));
    REFUSED("there are 1", ocelli_prompts_add_example(visual, 1, 0, 0, 9, 9, 1));
    REFUSED("area", ocelli_prompts_add_example(visual, 0, 9, 9, 9, 9, 1));
    OK(ocelli_prompts_add_example(visual, 0, first.x1, first.y1, first.x2, first.y2, 1));
    OK(ocelli_detector_detect(detector, &frame, visual, &like));
    CHECK(ocelli_result_detection_count(like) > 0 && strcmp(detection_at(like, 0).label, "like this") == 0);
    OK(ocelli_result_free(like));
    /* A class that is added after a detection counts in the next one. */
    OK(ocelli_prompts_add(visual, first.label, NULL));
    OK(ocelli_detector_detect(detector, &frame, visual, &like));
    size_t added = 0;
    for (size_t i = 0; i < ocelli_result_detection_count(like); i++)
        added += detection_at(like, i).class_id == 1 && strcmp(detection_at(like, i).label, first.label) == 0;
    CHECK(added > 0);
    OK(ocelli_result_free(like));
    OK(ocelli_result_free(result));
    OK(ocelli_prompts_free(visual));
}

static void misuse(ocelli_detector *detector) {
    ocelli_result *result = NULL;
    REFUSED("detector is null", ocelli_detector_detect(NULL, &frame, prompts, &result));
    REFUSED("ocelli_frame is null", ocelli_detector_detect(detector, NULL, prompts, &result));
    REFUSED("prompts is null", ocelli_detector_detect(detector, &frame, NULL, &result));
    REFUSED("result is null", ocelli_detector_detect(detector, &frame, prompts, NULL));
    CHECK(result == NULL);

    ocelli_frame wrong = frame;
    wrong.struct_size = 0;
    REFUSED("struct_size is 0", ocelli_detector_detect(detector, &wrong, prompts, &result));
    wrong.struct_size = sizeof wrong - 1;
    REFUSED("struct_size", ocelli_detector_detect(detector, &wrong, prompts, &result));
    wrong.struct_size = SIZE_MAX;
    REFUSED("struct_size", ocelli_detector_detect(detector, &wrong, prompts, &result));

    /* A program that was compiled with a newer header. */
    struct { ocelli_frame known; uint64_t added; } newer = {frame, 0};
    newer.known.struct_size = sizeof newer;
    OK(ocelli_detector_detect(detector, &newer.known, prompts, &result));
    OK(ocelli_result_free(result));
    newer.added = 1;
    REFUSED("newer library", ocelli_detector_detect(detector, &newer.known, prompts, &result));

    /* A handle that was freed, of another kind, and no handle at all. */
    OK(ocelli_detector_detect(detector, &frame, prompts, &result));
    ocelli_detection found = {.struct_size = sizeof found};
    OK(ocelli_result_free(result));
    REFUSED("not an open handle", ocelli_result_free(result));
    REFUSED("not an open handle", ocelli_result_get_detection(result, 0, &found));
    CHECK(ocelli_result_detection_count(result) == 0 && ocelli_result_json(result) == NULL);
    CHECK(ocelli_last_status() == OCELLI_INVALID_ARGUMENT);
    REFUSED("not an open handle", ocelli_detector_detect((ocelli_detector *)(void *)prompts, &frame, prompts, &result));
    REFUSED("not an open handle", ocelli_tracker_reset((ocelli_tracker *)(void *)&found));
    CHECK(ocelli_detector_engine(NULL) == NULL && ocelli_detector_model(NULL) == NULL);
    OK(ocelli_detector_free(NULL));
    OK(ocelli_prompts_free(NULL));
    OK(ocelli_image_free(NULL));
    OK(ocelli_result_free(NULL));
    OK(ocelli_tracker_free(NULL));
    OK(ocelli_pipeline_free(NULL));

    ocelli_prompts *none = NULL;
    const char *bad[] = {"dog", "caf\xe9"}, *blank[] = {" "}, *missing[] = {"dog", NULL};
    REFUSED("names[1]", ocelli_prompts_create(bad, 2, &none));
    REFUSED("byte 3 is not UTF-8", ocelli_prompts_create(bad, 2, &none));
    REFUSED("names[1] is null", ocelli_prompts_create(missing, 2, &none));
    REFUSED("", ocelli_prompts_create(blank, 1, &none));
    REFUSED("names is null", ocelli_prompts_create(NULL, 2, &none));
    REFUSED("there cannot be", ocelli_prompts_create(bad, SIZE_MAX, &none));
    REFUSED("UTF-8", ocelli_prompts_add(prompts, "\xff", NULL));
    CHECK(none == NULL);

    ocelli_image *no_image = NULL;
    FAILS(OCELLI_IO, "/nowhere.png", ocelli_image_open("/nowhere.png", &no_image));
    REFUSED("path is null", ocelli_image_open(NULL, &no_image));
    FAILS(OCELLI_INVALID_DATA, "", ocelli_image_decode((const uint8_t *)"text", 4, &no_image));
    REFUSED("image is null", ocelli_image_open("x", NULL));
    CHECK(no_image == NULL);

    ocelli_detector *other = NULL;
    ocelli_detector_options options;
    REFUSED("struct_size is 8", ocelli_detector_options_init(&options, 8));
    REFUSED("is null", ocelli_detector_options_init(NULL, sizeof options));
    OK(ocelli_detector_options_init(&options, sizeof options));
    options.confidence = 7;
    REFUSED("7", ocelli_detector_create(&options, &other));
    options.confidence = -1;
    options.engine = "steam";
    REFUSED("steam", ocelli_detector_create(&options, &other));
    options.engine = "embedded,embedded";
    REFUSED("list of devices", ocelli_detector_create(&options, &other));
    options.engine = "\xff";
    REFUSED("UTF-8", ocelli_detector_create(&options, &other));
    options.engine = "embedded";
    options.threads = 100000;
    REFUSED("threads", ocelli_detector_create(&options, &other));
    options.threads = 0;
    options.tile_width = 8;
    REFUSED("tile is 8", ocelli_detector_create(&options, &other));
    options.tile_auto = 1;
    REFUSED("expected one of them", ocelli_detector_create(&options, &other));
    options.tile_width = 0;
    options.tile_overlap = 2;
    REFUSED("tile_overlap is 2", ocelli_detector_create(&options, &other));
    options.tile_auto = 0;
    options.precision = "fp3";
    REFUSED("precision", ocelli_detector_create(&options, &other));
    options.precision = NULL;
    options.model = "/no/such/model";
    CHECK(ocelli_detector_create(&options, &other) != OCELLI_OK && strstr(ocelli_last_error(), "/no/such/model"));
    options.model = "built-in";
    REFUSED("detector is null", ocelli_detector_create(&options, NULL));
    REFUSED("1", ocelli_detector_set_confidence(detector, 1.5f));
    CHECK(other == NULL);
}

static void tracking(ocelli_detector *detector) {
    ocelli_tracker *tracker = NULL;
    ocelli_tracker_options options;
    OK(ocelli_tracker_options_init(&options, sizeof options));
    CHECK(options.track_threshold == 0.5f && options.min_hits == 0 && options.max_time_lost == 30);
    options.match_iou = 2;
    REFUSED("match_iou", ocelli_tracker_create(&options, &tracker));
    options.match_iou = 0.5f;
    options.max_time_lost = 0;
    REFUSED("max_time_lost", ocelli_tracker_create(&options, &tracker));
    options.max_time_lost = 30;
    options.coast_frames = 1;
    OK(ocelli_tracker_create(&options, &tracker));
    ocelli_result *tracks = NULL;
    ocelli_track track = {.struct_size = sizeof track};
    for (int turn = 0; turn < 4; turn++) {
        const float box[] = {8.0f * turn, 50, 60 + 8.0f * turn, 90}, score = 0.9f;
        const size_t class_id = 3;
        OK(ocelli_tracker_update(tracker, box, &score, &class_id, 1, 1, &tracks));
        CHECK(ocelli_result_track_count(tracks) == 1 && ocelli_result_detection_count(tracks) == 0);
        OK(ocelli_result_get_track(tracks, 0, &track));
        CHECK(track.id == 1 && track.class_id == 3 && track.state == OCELLI_TRACKED && track.detection == 0);
        CHECK(strcmp(track.label, "") == 0);
        CHECK(track.hits == (uint32_t)turn + 1 && track.age_frames == (float)turn);
        OK(ocelli_result_free(tracks));
    }
    CHECK(track.velocity_x > 4 && track.velocity_x < 12);
    OK(ocelli_tracker_update(tracker, NULL, NULL, NULL, 0, 1, &tracks));
    OK(ocelli_result_get_track(tracks, 0, &track));
    CHECK(track.state == OCELLI_LOST && track.detection == SIZE_MAX && track.x1 > 26 && track.x1 < 40);
    REFUSED("there are 1 tracks", ocelli_result_get_track(tracks, 1, &track));
    OK(ocelli_result_free(tracks));
    REFUSED("boxes is null", ocelli_tracker_update(tracker, NULL, NULL, NULL, 1, 1, &tracks));
    REFUSED("result is null", ocelli_tracker_update(tracker, NULL, NULL, NULL, 0, 1, NULL));

    OK(ocelli_tracker_reset(tracker));
    ocelli_result *found = NULL;
    OK(ocelli_detector_detect(detector, &frame, prompts, &found));
    for (int turn = 0; turn < 3; turn++) {
        OK(ocelli_tracker_update_with(tracker, found, 1, &tracks));
        if (turn == 2) {
            CHECK(ocelli_result_track_count(tracks) == ocelli_result_detection_count(found));
            OK(ocelli_result_get_track(tracks, 0, &track));
            CHECK(track.id == 1 && strcmp(track.label, detection_at(found, track.detection).label) == 0);
        }
        OK(ocelli_result_free(tracks));
    }
    OK(ocelli_result_free(found));
    OK(ocelli_tracker_free(tracker));
    REFUSED("not an open handle", ocelli_tracker_update(tracker, NULL, NULL, NULL, 0, 1, &tracks));
}

static ocelli_pipeline_options pipeline_options(const ocelli_tracker_options *tracker) {
    ocelli_pipeline_options options;
    OK(ocelli_pipeline_options_init(&options, sizeof options));
    options.tracker = tracker;
    return options;
}

static ocelli_pipeline *pipeline_on(const char *engine, const ocelli_pipeline_options *options) {
    ocelli_detector_options detector;
    OK(ocelli_detector_options_init(&detector, sizeof detector));
    detector.engine = engine;
    detector.threads = 1;
    ocelli_pipeline *pipeline = NULL;
    OK(ocelli_pipeline_create(&detector, prompts, options, &pipeline));
    return pipeline;
}

static ocelli_pipeline *new_pipeline(const ocelli_pipeline_options *options) {
    return pipeline_on("embedded", options);
}

enum { PUSHED = 3 };

static void *push_frames(void *pipeline) {
    ocelli_frame pushed = frame;
    for (uint64_t i = 0; i < PUSHED; i++) {
        uint64_t index = 99;
        pushed.timestamp_ns = 1000 * (i + 1);
        OK(ocelli_pipeline_push(pipeline, &pushed, &index));
        CHECK(index == i);
    }
    OK(ocelli_pipeline_close(pipeline));
    REFUSED("closed", ocelli_pipeline_push(pipeline, &pushed, NULL));
    return NULL;
}

static void *receive_for_ever(void *pipeline) {
    ocelli_result *result = NULL;
    const ocelli_status status = ocelli_pipeline_receive(pipeline, -1, &result);
    CHECK(status == OCELLI_CANCELLED || status == OCELLI_INVALID_ARGUMENT);
    return NULL;
}

static void polling(ocelli_detector *detector) {
    ocelli_tracker_options tracker;
    OK(ocelli_tracker_options_init(&tracker, sizeof tracker));
    ocelli_pipeline_options options = pipeline_options(&tracker);
    /* Frames go to the devices in turn, and results come in order. */
    ocelli_pipeline *pipeline = pipeline_on("embedded,embedded", &options);
    ocelli_result *result = NULL, *expected = NULL;
    CHECK(ocelli_pipeline_receive(pipeline, 0, &result) == OCELLI_NOT_READY);
    REFUSED("no callback", ocelli_pipeline_wait(pipeline));
    OK(ocelli_detector_detect(detector, &frame, prompts, &expected));

    pthread_t camera;
    CHECK(pthread_create(&camera, NULL, push_frames, pipeline) == 0);
    uint64_t received = 0;
    ocelli_status status;
    while ((status = ocelli_pipeline_receive(pipeline, 1000, &result)) != OCELLI_ENDED) {
        CHECK(status == OCELLI_OK || status == OCELLI_NOT_READY);
        if (status != OCELLI_OK) continue;
        ocelli_result_info info = {.struct_size = sizeof info};
        OK(ocelli_result_get_info(result, &info));
        CHECK(info.index == received && info.timestamp_ns == 1000 * (received + 1) && info.detected == 1);
        CHECK(same_detections(expected, result));
        if (received > 0) CHECK(ocelli_result_track_count(result) > 0);
        received++;
        OK(ocelli_result_free(result));
    }
    CHECK(received == PUSHED);
    CHECK(pthread_join(camera, NULL) == 0);
    char text[4096];
    size_t needed = 0;
    OK(ocelli_pipeline_stats(pipeline, text, 4, &needed));
    CHECK(strlen(text) == 3 && needed > 4 && needed <= sizeof text);
    OK(ocelli_pipeline_stats(pipeline, text, sizeof text, &needed));
    CHECK(strlen(text) + 1 == needed && text[0] == '{');
    OK(ocelli_pipeline_stats(pipeline, NULL, 0, &needed));
    REFUSED("text is null", ocelli_pipeline_stats(pipeline, NULL, 1, &needed));
    OK(ocelli_pipeline_free(pipeline));
    REFUSED("not an open handle", ocelli_pipeline_push(pipeline, &frame, NULL));
    OK(ocelli_result_free(expected));

    /* A thread that waits without end is woken. */
    pipeline = new_pipeline(NULL);
    pthread_t waiting;
    CHECK(pthread_create(&waiting, NULL, receive_for_ever, pipeline) == 0);
    uint64_t index = 0;
    ocelli_frame wrong = frame;
    wrong.stride = 1;
    REFUSED("stride", ocelli_pipeline_push(pipeline, &wrong, &index));
    /* Takes long enough for the thread to begin. */
    OK(ocelli_detector_detect(detector, &frame, prompts, &result));
    OK(ocelli_result_free(result));
    OK(ocelli_pipeline_free(pipeline));
    CHECK(pthread_join(waiting, NULL) == 0);

    /* Room is limited, and nothing is lost. */
    pipeline = new_pipeline(NULL);
    size_t pushed = 0;
    while ((status = ocelli_pipeline_try_push(pipeline, &frame, &index)) == OCELLI_OK) CHECK(index == pushed++);
    CHECK(status == OCELLI_NOT_READY && pushed > 0);
    OK(ocelli_pipeline_free(pipeline));

    options = pipeline_options(NULL);
    ocelli_pipeline *none = NULL;
    options.policy = 9;
    REFUSED("policy is 9", ocelli_pipeline_create(NULL, prompts, &options, &none));
    options.policy = OCELLI_LATEST;
    options.latency = 9;
    REFUSED("latency is 9", ocelli_pipeline_create(NULL, prompts, &options, &none));
    REFUSED("prompts is null", ocelli_pipeline_create(NULL, NULL, NULL, &none));
    REFUSED("pipeline is null", ocelli_pipeline_create(NULL, prompts, NULL, NULL));
    CHECK(none == NULL);
}

struct calls {
    int results, ends;
    ocelli_status last;
    ocelli_pipeline *free_in_callback;
};

static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static void called(void *user_data, ocelli_status status, const ocelli_result *result) {
    struct calls *calls = user_data;
    if (result == NULL) {
        pthread_mutex_lock(&ending);
        calls->ends++;
        calls->last = status;
        pthread_cond_signal(&ended);
        pthread_mutex_unlock(&ending);
        return;
    }
    CHECK(status == OCELLI_OK && calls->ends == 0 && ocelli_result_detection_count(result) > 0);
    calls->results++;
    if (calls->free_in_callback) OK(ocelli_pipeline_free(calls->free_in_callback));
}

static void callbacks(void) {
    struct calls calls = {0, 0, OCELLI_OK, NULL};
    ocelli_pipeline_options options = pipeline_options(NULL);
    options.callback = called;
    options.user_data = &calls;
    ocelli_pipeline *pipeline = new_pipeline(&options);
    ocelli_result *result = NULL;
    REFUSED("callback", ocelli_pipeline_receive(pipeline, 0, &result));
    push_frames(pipeline);
    OK(ocelli_pipeline_wait(pipeline));
    CHECK(calls.results == PUSHED && calls.ends == 1 && calls.last == OCELLI_ENDED);
    OK(ocelli_pipeline_wait(pipeline));
    OK(ocelli_pipeline_free(pipeline));

    /* Freed early: the callback has been called for the last time when the function returns. */
    struct calls early = {0, 0, OCELLI_OK, NULL};
    options.user_data = &early;
    pipeline = new_pipeline(&options);
    OK(ocelli_pipeline_push(pipeline, &frame, NULL));
    OK(ocelli_pipeline_free(pipeline));
    CHECK(early.ends == 1);

    /* Freed by its own callback, which is called once more. */
    struct calls freeing = {0, 0, OCELLI_OK, NULL};
    options.user_data = &freeing;
    pipeline = freeing.free_in_callback = new_pipeline(&options);
    OK(ocelli_pipeline_push(pipeline, &frame, NULL));
    pthread_mutex_lock(&ending);
    while (freeing.ends == 0) pthread_cond_wait(&ended, &ending);
    CHECK(freeing.results == 1 && freeing.last == OCELLI_CANCELLED);
    pthread_mutex_unlock(&ending);
    REFUSED("not an open handle", ocelli_pipeline_wait(pipeline));
}

enum { THREADS = 4 };

static void *detect_in_thread(void *detector) {
    ocelli_result *own = NULL;
    for (int turn = 0; turn < 2; turn++) {
        OK(ocelli_detector_detect(detector, &frame, prompts, &own));
        CHECK(ocelli_result_detection_count(own) > 0);
        OK(ocelli_result_free(own));
    }
    /* Each thread has its own last error. */
    CHECK(strcmp(ocelli_last_error(), "") == 0);
    REFUSED("prompts is null", ocelli_detector_detect(detector, &frame, NULL, &own));
    return NULL;
}

/* One detector for several threads, and a detector that is freed while another thread uses it. */
static void threads(ocelli_detector *detector) {
    pthread_t each[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&each[i], NULL, detect_in_thread, detector) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(each[i], NULL) == 0);
}

/* Bytes that are allocated on this thread's heap; 0 under a sanitizer. */
static size_t allocated(void) {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static long resident_pages(void) {
    long size = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm != NULL && fscanf(statm, "%ld %ld", &size, &resident) == 2);
    if (statm) fclose(statm);
    return resident;
}

/* Memory does not grow once it has reached its size. */
static void leaks(ocelli_detector *detector, int turns) {
    long before = 0;
    size_t allocated_before = 0;
    for (int turn = 0; turn < turns; turn++) {
        if (turn == turns / 2) {
            before = resident_pages();
            allocated_before = allocated();
        }
        ocelli_result *result = NULL, *tracks = NULL;
        ocelli_prompts *own = NULL;
        ocelli_tracker *tracker = NULL;
        OK(ocelli_prompts_create(classes, class_count, &own));
        OK(ocelli_tracker_create(NULL, &tracker));
        OK(ocelli_detector_detect(detector, &frame, own, &result));
        OK(ocelli_tracker_update_with(tracker, result, 1, &tracks));
        CHECK(ocelli_result_json(result) != NULL);
        OK(ocelli_result_free(tracks));
        OK(ocelli_result_free(result));
        OK(ocelli_tracker_free(tracker));
        OK(ocelli_prompts_free(own));
    }
    const size_t now = allocated(), more = now > allocated_before ? now - allocated_before : 0;
    const long grown = (resident_pages() - before) * (sysconf(_SC_PAGESIZE) / 1024);
    fprintf(stderr, "%d frames, second half: %zu bytes more allocated, %ld KiB more resident\n", turns, more, grown);
    if (turns >= 100) CHECK(more < (size_t)turns * 8 && grown < turns);
}

/* What can be done under valgrind, where a frame takes minutes: one frame with a small input, and everything around it. */
static void one_frame(void) {
    ocelli_detector_options options;
    OK(ocelli_detector_options_init(&options, sizeof options));
    options.engine = "embedded";
    options.threads = 1;
    options.imgsz = 112;
    options.masks = 1;
    ocelli_detector *detector = NULL;
    ocelli_result *result = NULL, *tracks = NULL;
    OK(ocelli_detector_create(&options, &detector));
    OK(ocelli_detector_detect(detector, &frame, prompts, &result));
    const size_t size = (size_t)frame.width * frame.height;
    uint8_t *pixels = malloc(size), *decoded = malloc(size);
    CHECK(ocelli_result_detection_count(result) > 0);
    for (size_t i = 0; i < ocelli_result_detection_count(result); i++) {
        const ocelli_detection found = detection_at(result, i);
        CHECK(strcmp(found.label, classes[found.class_id]) == 0);
        OK(ocelli_result_get_mask(result, i, pixels, size, 0, 1));
        CHECK(decode_counts(found.mask_counts, decoded, frame.width, frame.height) > 0);
        CHECK(memcmp(pixels, decoded, size) == 0);
    }
    free(pixels);
    free(decoded);
    CHECK(strlen(ocelli_result_json(result)) > 0);

    ocelli_tracker *tracker = NULL;
    OK(ocelli_tracker_create(NULL, &tracker));
    OK(ocelli_tracker_update_with(tracker, result, 1, &tracks));
    OK(ocelli_tracker_free(tracker));
    OK(ocelli_result_free(tracks));
    OK(ocelli_result_free(result));
    REFUSED("not an open handle", ocelli_result_free(result));
    ocelli_frame wrong = frame;
    wrong.stride = 7;
    REFUSED("stride", ocelli_detector_detect(detector, &wrong, prompts, &result));
    ocelli_prompts *none = NULL;
    const char *bad[] = {"\xff"};
    REFUSED("UTF-8", ocelli_prompts_create(bad, 1, &none));
    OK(ocelli_detector_free(detector));

    struct calls calls = {0, 0, OCELLI_OK, NULL};
    ocelli_pipeline_options with_callback = pipeline_options(NULL);
    with_callback.callback = called;
    with_callback.user_data = &calls;
    ocelli_pipeline *pipeline = new_pipeline(&with_callback);
    OK(ocelli_pipeline_close(pipeline));
    OK(ocelli_pipeline_wait(pipeline));
    CHECK(calls.ends == 1);
    OK(ocelli_pipeline_free(pipeline));
}

/* Engines want TensorRT's library: what is missing is said before a model is exported. */
static void engines_without_a_library(void) {
    ocelli_engine_options options;
    OK(ocelli_engine_options_init(&options, sizeof options));
    CHECK(options.struct_size == sizeof options && options.max_classes == 4 && options.max_exemplars == 8);
    REFUSED("output is null", ocelli_engines_build(&options, NULL, NULL, NULL));
    options.precision = "fp7";
    REFUSED("precision", ocelli_engines_build(&options, "/tmp/ocelli-engines", NULL, NULL));
    options.precision = NULL;
    options.tensorrt = "/nowhere/libnvinfer.so";
    FAILS(OCELLI_UNAVAILABLE, "cannot build engines", ocelli_engines_build(&options, "/tmp/ocelli-engines", NULL, NULL));
    CHECK(access("/tmp/ocelli-engines", F_OK) != 0);
    options.struct_size = 0;
    REFUSED("struct_size is 0", ocelli_engines_build(&options, "/tmp/ocelli-engines", NULL, NULL));
}

/* Counts lines, and cancels after some. */
static uint32_t count_line(void *user_data, const char *line) {
    CHECK(strlen(line) > 3);
    return --*(int *)user_data == 0;
}

static void comparisons(void) {
    int lines = 99;
    const char *report = ocelli_verify(
        "{\"engine\": {\"kind\": \"embedded\"}, \"options\": {\"scenes\": 1, \"random_inputs\": 0}}", count_line, &lines);
    CHECK(report != NULL && strstr(report, "\"accepted\":true") != NULL && lines <= 99 - 4);
    lines = 1;
    CHECK(ocelli_verify("{\"engine\": {\"kind\": \"embedded\"}}", count_line, &lines) == NULL);
    CHECK(ocelli_last_status() == OCELLI_CANCELLED);
    CHECK(ocelli_verify("{\"engine\": {\"kind\": \"onnxruntime\"}}", NULL, NULL) == NULL);
    CHECK(strstr(ocelli_last_error(), "candidate is the reference") != NULL);
    CHECK(ocelli_verify("{\"modle\": \"sam3\"}", NULL, NULL) == NULL);
    CHECK(strstr(ocelli_last_error(), "request: unknown field `modle`") != NULL);
    CHECK(ocelli_verify(NULL, NULL, NULL) == NULL && ocelli_last_status() == OCELLI_INVALID_ARGUMENT);
}

static void all(int turns) {
    results_and_masks();
    engines_without_a_library();
    comparisons();
    ocelli_detector *detector = new_detector(0);
    formats(detector);
    examples(detector);
    misuse(detector);
    tracking(detector);
    polling(detector);
    callbacks();
    threads(detector);
    leaks(detector, turns);
    OK(ocelli_detector_free(detector));
    REFUSED("not an open handle", ocelli_detector_free(detector));
}

/* Clicks with a model that has a tracker: one mask, three, and one that is refined. */
static void clicks(const char *model) {
    ocelli_detector *detector = NULL;
    ocelli_detector_options options;
    OK(ocelli_detector_options_init(&options, sizeof options));
    options.engine = "embedded";
    options.model = model;
    OK(ocelli_detector_create(&options, &detector));
    ocelli_features *features = NULL;
    OK(ocelli_detector_encode(detector, &frame, &features));
    ocelli_objects *objects = NULL;
    OK(ocelli_objects_create(&objects));
    OK(ocelli_objects_add(objects, "dog"));
    OK(ocelli_objects_add(objects, NULL));
    OK(ocelli_objects_add_point(objects, 0, frame.width / 2.0f, frame.height / 2.0f, 1));
    OK(ocelli_objects_set_box(objects, 1, 10, 10, frame.width / 2.0f, frame.height / 2.0f));
    ocelli_result *one = NULL, *three = NULL, *refined = NULL;
    OK(ocelli_detector_segment(detector, features, objects, 0, &one));
    OK(ocelli_detector_segment(detector, features, objects, 1, &three));
    CHECK(ocelli_result_detection_count(one) == 2 && ocelli_result_detection_count(three) == 6);
    const ocelli_detection dog = detection_at(one, 0), other = detection_at(one, 1);
    CHECK(strcmp(dog.label, "dog") == 0 && dog.class_id == 0 && dog.mask_width == frame.width && dog.score > 0);
    CHECK(strcmp(other.label, "object") == 0 && other.class_id == 1 && other.mask_counts != NULL);
    int best = 0;
    for (size_t i = 0; i < 3; i++) best |= strcmp(detection_at(three, i).mask_counts, dog.mask_counts) == 0;
    CHECK(best);

    OK(ocelli_objects_add_point(objects, 0, 5, 5, 0));
    OK(ocelli_objects_refine(objects, 0, one, 0));
    REFUSED("there are 2 detections", ocelli_objects_refine(objects, 0, one, 2));
    OK(ocelli_detector_segment(detector, features, objects, 0, &refined));
    CHECK(strcmp(detection_at(refined, 0).mask_counts, dog.mask_counts) != 0);
    CHECK(strcmp(detection_at(refined, 1).mask_counts, other.mask_counts) == 0);

    /* A mask of the image in place of everything else. */
    const size_t size = (size_t)frame.width * frame.height;
    uint8_t *pixels = calloc(size, 1);
    ocelli_objects *masked = NULL;
    OK(ocelli_objects_create(&masked));
    OK(ocelli_objects_add(masked, NULL));
    REFUSED("nothing shows where it is", ocelli_detector_segment(detector, features, masked, 0, &refined));
    memset(pixels, 1, size / 2);
    OK(ocelli_objects_set_mask(masked, 0, pixels, frame.width, frame.height));
    ocelli_result *of_mask = NULL;
    OK(ocelli_detector_segment(detector, features, masked, 0, &of_mask));
    OK(ocelli_objects_add_point(masked, 0, (float)frame.width, 5, 1));
    REFUSED("is outside the image", ocelli_detector_segment(detector, features, masked, 0, &of_mask));
    free(pixels);
    OK(ocelli_result_free(of_mask));
    OK(ocelli_result_free(refined));
    OK(ocelli_result_free(three));
    OK(ocelli_result_free(one));
    OK(ocelli_objects_free(masked));
    OK(ocelli_objects_free(objects));
    OK(ocelli_features_free(features));
    OK(ocelli_detector_free(detector));
}

static ocelli_track track_at(const ocelli_result *result, size_t index) {
    ocelli_track found = {.struct_size = sizeof found};
    OK(ocelli_result_get_track(result, index, &found));
    return found;
}

static uint64_t number_of(const ocelli_result *result) {
    ocelli_result_info info = {.struct_size = sizeof info};
    OK(ocelli_result_get_info(result, &info));
    CHECK(info.width == frame.width && info.height == frame.height && info.detected == 1);
    return info.index;
}

/* Whether a frame has an object; its detection is that of its track. */
static int has_object(const ocelli_result *result, uint64_t id) {
    const size_t count = ocelli_result_track_count(result);
    CHECK(ocelli_result_detection_count(result) == count);
    for (size_t i = 0; i < count; i++) {
        const ocelli_track track = track_at(result, i);
        CHECK(track.detection == i && detection_at(result, i).mask_counts != NULL);
        if (track.id == id) return 1;
    }
    return 0;
}

/* The frames of a run are these; returns in how many an object is. */
static int run_over(ocelli_session *session, const uint64_t *frames, size_t count, uint64_t object) {
    int with_object = 0;
    for (size_t i = 0; i < count; i++) {
        ocelli_result *shown = NULL;
        OK(ocelli_session_next(session, &shown));
        CHECK(number_of(shown) == frames[i]);
        with_object += has_object(shown, object);
        OK(ocelli_result_free(shown));
    }
    return with_object;
}

/* Sessions with a model that has a tracker: frames that are pushed, a folder of images, and what is refused. */
static void sessions(const char *model, const char *image) {
    ocelli_detector_options options;
    OK(ocelli_detector_options_init(&options, sizeof options));
    options.engine = "embedded";
    ocelli_session *session = NULL;
    ocelli_result *first = NULL, *clicked = NULL, *masked = NULL, *of_box = NULL, *of_folder = NULL, *none = NULL;
    FAILS(OCELLI_MISMATCH, "has no tracker", ocelli_session_create_pushed(&options, &frame, &session));
    options.model = model;
    /* It finds something in any image. */
    options.confidence = 0;
    REFUSED("session is null", ocelli_session_create_pushed(&options, &frame, NULL));
    REFUSED("ocelli_frame is null", ocelli_session_create_pushed(&options, NULL, &session));
    REFUSED("path is null", ocelli_session_create(&options, NULL, &session));
    OK(ocelli_session_create_pushed(&options, &frame, &session));
    CHECK(ocelli_session_next(session, &none) == OCELLI_ENDED && none == NULL);
    REFUSED("the session has no prompt", ocelli_session_propagate(session, OCELLI_BOTH, -1, -1));
    size_t pushed = 0;
    OK(ocelli_session_push(session, &frame, &pushed));
    OK(ocelli_session_push(session, &frame, NULL));
    CHECK(pushed == 1 && ocelli_session_frame_count(session) == 3 && ocelli_session_next_object(session) == 0);

    OK(ocelli_session_add_text(session, 1, "red apple", &first));
    CHECK(number_of(first) == 1 && has_object(first, 0) && strcmp(detection_at(first, 0).label, "red apple") == 0);
    OK(ocelli_session_propagate(session, OCELLI_BOTH, -1, -1));
    CHECK(run_over(session, (const uint64_t[]){1, 2, 0}, 3, 0) == 3);
    CHECK(ocelli_session_next(session, &none) == OCELLI_ENDED && none == NULL);
    const float points[] = {frame.width / 2.0f, frame.height / 2.0f, 5, 5};
    const int positive[] = {1, 0};
    OK(ocelli_session_add_points(session, 7, 1, points, positive, 2, &clicked));
    CHECK(has_object(clicked, 7) && has_object(clicked, 0) && ocelli_session_next_object(session) == 8);
    OK(ocelli_session_propagate(session, OCELLI_FORWARD, 1, 0));
    CHECK(run_over(session, (const uint64_t[]){1}, 1, 7) == 1);
    CHECK(ocelli_session_next(session, &none) == OCELLI_ENDED);
    OK(ocelli_session_remove(session, 7));
    OK(ocelli_session_propagate(session, OCELLI_BACKWARD, 2, -1));
    CHECK(run_over(session, (const uint64_t[]){1, 0}, 2, 7) == 0);
    OK(ocelli_session_add_box(session, 0, 10, 10, frame.width / 2.0f, frame.height / 2.0f, &of_box));

    OK(ocelli_session_reset(session));
    const size_t size = (size_t)frame.width * frame.height;
    uint8_t *pixels = calloc(size, 1);
    memset(pixels, 1, size / 2);
    OK(ocelli_session_add_mask(session, 3, 0, pixels, frame.width, frame.height, &masked));
    CHECK(has_object(masked, 3) && strcmp(detection_at(masked, 0).label, "object") == 0);
    uint8_t *found = calloc(size, 1);
    OK(ocelli_result_get_mask(masked, 0, found, size, 0, 1));
    CHECK(memcmp(found, pixels, size) == 0);
    OK(ocelli_session_remove(session, 3));

    REFUSED("object 3 was removed", ocelli_session_remove(session, 3));
    REFUSED("object 3 was removed", ocelli_session_add_points(session, 3, 0, points, NULL, 2, &none));
    REFUSED("there is no object 9", ocelli_session_remove(session, 9));
    REFUSED("frame 3 is not in the video: expected 0 to 2", ocelli_session_add_text(session, 3, "dog", &none));
    REFUSED("frame 3 is not in the video", ocelli_session_add_points(session, 1, 3, points, NULL, 2, &none));
    REFUSED("frame 3 is not in the video", ocelli_session_propagate(session, OCELLI_BOTH, 3, -1));
    REFUSED("direction is 3", ocelli_session_propagate(session, 3, -1, -1));
    REFUSED("points is null", ocelli_session_add_points(session, 1, 0, NULL, NULL, 2, &none));
    REFUSED("text is null", ocelli_session_add_text(session, 0, NULL, &none));
    REFUSED("result is null", ocelli_session_add_text(session, 0, "dog", NULL));
    REFUSED("pixels is null", ocelli_session_add_mask(session, 1, 0, NULL, 4, 4, &none));
    REFUSED("4 × 4 pixels", ocelli_session_add_mask(session, 1, 0, pixels, 4, 4, &none));
    ocelli_frame small = frame;
    small.width /= 2;
    REFUSED("frames of one size", ocelli_session_push(session, &small, NULL));
    CHECK(none == NULL);
    OK(ocelli_session_free(session));
    REFUSED("not an open handle", ocelli_session_free(session));
    REFUSED("not an open handle", ocelli_session_add_text(session, 0, "dog", &none));
    CHECK(ocelli_session_frame_count(session) == 0 && ocelli_last_status() == OCELLI_INVALID_ARGUMENT);

    /* The same from a folder, whose last image vanishes. */
    char folder[] = "/tmp/ocelli-test-XXXXXX", paths[3][64];
    CHECK(mkdtemp(folder) != NULL);
    REFUSED("the folder has no images", ocelli_session_create(&options, folder, &session));
    const char *texts[] = {"threads=1", "threads"};
    ocelli_input_options input = {.struct_size = sizeof input, .ffmpeg_options = texts, .ffmpeg_option_count = 1, .stream = -1};
    REFUSED("are for video files", ocelli_session_create_with(&options, folder, &input, &session));
    input.ffmpeg_option_count = 2;
    REFUSED("ffmpeg_options, threads: expected KEY=VALUE", ocelli_session_create_with(&options, folder, &input, &session));
    input.ffmpeg_option_count = 0;
    REFUSED("the folder has no images", ocelli_session_create_with(&options, folder, &input, &session));
    input.stream = 0;
    REFUSED("are for video files", ocelli_session_create_with(&options, folder, &input, &session));
    input.stream = INT64_MAX;
    REFUSED("are for video files", ocelli_session_create_with(&options, folder, &input, &session));
    input.struct_size = 8;
    REFUSED("struct_size is 8", ocelli_session_create_with(&options, folder, &input, &session));
    for (int i = 0; i < 3; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%d.png", folder, i);
        CHECK(symlink(image, paths[i]) == 0);
    }
    OK(ocelli_session_create(&options, folder, &session));
    OK(ocelli_session_add_text(session, 1, "red apple", &of_folder));
    CHECK(same_detections(of_folder, first) && strcmp(ocelli_result_json(of_folder), ocelli_result_json(first)) == 0);
    REFUSED("frames can be pushed to", ocelli_session_push(session, &frame, NULL));
    CHECK(unlink(paths[2]) == 0);
    OK(ocelli_session_propagate(session, OCELLI_FORWARD, 0, -1));
    CHECK(run_over(session, (const uint64_t[]){0, 1}, 2, 0) == 2);
    FAILS(OCELLI_IO, "2.png", ocelli_session_next(session, &none));
    CHECK(ocelli_session_next(session, &none) == OCELLI_ENDED && none == NULL);
    OK(ocelli_session_free(session));
    OK(ocelli_session_free(NULL));
    CHECK(unlink(paths[0]) == 0 && unlink(paths[1]) == 0 && rmdir(folder) == 0);
    free(found);
    free(pixels);
    OK(ocelli_result_free(of_folder));
    OK(ocelli_result_free(of_box));
    OK(ocelli_result_free(masked));
    OK(ocelli_result_free(clicked));
    OK(ocelli_result_free(first));
}

static void push_twice(ocelli_pipeline *pipeline) {
    OK(ocelli_pipeline_push(pipeline, &frame, NULL));
    OK(ocelli_pipeline_push(pipeline, &frame, NULL));
}

/* Pipelines that follow objects by memory: at once, or some frames late. */
static void memory(const char *model) {
    ocelli_detector_options detector;
    OK(ocelli_detector_options_init(&detector, sizeof detector));
    detector.engine = "embedded";
    ocelli_tracker_options tracker;
    OK(ocelli_tracker_options_init(&tracker, sizeof tracker));
    ocelli_pipeline_options options = pipeline_options(&tracker);
    ocelli_pipeline *pipeline = NULL;
    ocelli_result *result = NULL;
    ocelli_prompts *dog = NULL;
    OK(ocelli_prompts_create((const char *const[]){"dog"}, 1, &dog));
    options.max_objects = 2;
    REFUSED("set memory as well", ocelli_pipeline_create(&detector, dog, &options, &pipeline));
    options.memory = options.no_hotstart = 1;
    REFUSED("tracker beside memory", ocelli_pipeline_create(&detector, dog, &options, &pipeline));
    options.tracker = NULL;
    FAILS(OCELLI_MISMATCH, "has no tracker", ocelli_pipeline_create(&detector, dog, &options, &pipeline));
    detector.model = model;
    detector.confidence = 0;
    detector.tile_auto = 1;
    REFUSED("tile beside memory", ocelli_pipeline_create(&detector, dog, &options, &pipeline));
    detector.tile_auto = 0;
    options.latency = OCELLI_LOW;
    REFUSED("need threads", ocelli_pipeline_create(&detector, dog, &options, &pipeline));
    options.latency = OCELLI_THROUGHPUT;
    CHECK(pipeline == NULL);

    OK(ocelli_pipeline_create(&detector, dog, &options, &pipeline));
    push_twice(pipeline);
    for (uint64_t number = 0; number < 2; number++) {
        OK(ocelli_pipeline_receive(pipeline, -1, &result));
        const size_t count = ocelli_result_detection_count(result);
        CHECK(number_of(result) == number && has_object(result, 1) && count <= 2);
        OK(ocelli_result_free(result));
    }
    OK(ocelli_pipeline_free(pipeline));

    options.no_hotstart = options.max_objects = 0;
    OK(ocelli_pipeline_create(&detector, dog, &options, &pipeline));
    push_twice(pipeline);
    CHECK(ocelli_pipeline_receive(pipeline, 300, &result) == OCELLI_NOT_READY);
    OK(ocelli_pipeline_close(pipeline));
    for (uint64_t number = 0; number < 2; number++) {
        OK(ocelli_pipeline_receive(pipeline, -1, &result));
        CHECK(number_of(result) == number && has_object(result, 1));
        OK(ocelli_result_free(result));
    }
    CHECK(ocelli_pipeline_receive(pipeline, -1, &result) == OCELLI_ENDED);
    OK(ocelli_pipeline_free(pipeline));
    OK(ocelli_prompts_free(dog));
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: test IMAGE CLASSES [TURNS|one-frame|tracker MODEL]\n");
        return 2;
    }
    versions();
    for (char *name = strtok(argv[2], ","); name && class_count < MOST_CLASSES; name = strtok(NULL, ","))
        classes[class_count++] = name;
    OK(ocelli_image_open(argv[1], &image));
    OK(ocelli_image_frame(image, &frame));
    OK(ocelli_prompts_create(classes, class_count, &prompts));
    if (failures) return 1;

    if (argc > 3 && strcmp(argv[3], "one-frame") == 0)
        one_frame();
    else if (argc > 4 && strcmp(argv[3], "tracker") == 0) {
        clicks(argv[4]);
        sessions(argv[4], argv[1]);
        memory(argv[4]);
    } else
        all(argc > 3 ? atoi(argv[3]) : 2);
    OK(ocelli_prompts_free(prompts));
    OK(ocelli_image_free(image));
    fprintf(stderr, "%s\n", failures ? "failed" : "passed");
    return failures != 0;
}
