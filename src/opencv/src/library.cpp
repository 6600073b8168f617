// libocelli_video: what Ocelli uses of OpenCV, as one table of C functions. No exception leaves them: a function that fails
// returns a negative number or a null pointer, and `error` has the message until the thread's next call.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/highgui.hpp>
#include <opencv2/videoio.hpp>
#include <opencv2/videoio/registry.hpp>

namespace {

thread_local std::string message;

// Runs the call; on an exception keeps its message and returns the other value.
template <typename R, typename F>
R guarded(R otherwise, F call) noexcept {
  try {
    return call();
  } catch (const cv::Exception &error) {
    try { message = error.err.empty() ? error.what() : error.err; } catch (...) {}
  } catch (const std::exception &error) {
    try { message = error.what(); } catch (...) {}
  } catch (...) {
    try { message = "unknown error"; } catch (...) {}
  }
  return otherwise;
}

struct Capture {
  cv::VideoCapture from;
  cv::Mat decoded;
  cv::Mat turned;
};

Capture *opened(Capture *capture, bool is_open) {
  if (is_open) return capture;
  delete capture;
  message = "it cannot be opened";
  return nullptr;
}


const char *error() { return message.c_str(); }

const char *version() { return CV_VERSION; }

void quiet() {
  guarded(0, [] {
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    return 0;
  });
}

int has_stream_backend(int backend) {
  return guarded(0, [&] {
    for (auto one : cv::videoio_registry::getStreamBackends())
      if (one == backend) return 1;
    return 0;
  });
}

// The names of the backends for files and streams, separated by commas, written to a buffer.
int backends(char *text, std::size_t bytes) {
  return guarded(-1, [&] {
    std::string names;
    for (auto one : cv::videoio_registry::getStreamBackends()) {
      if (!names.empty()) names += ", ";
      names += cv::videoio_registry::getBackendName(one);
    }
    const std::size_t length = names.copy(text, bytes);
    return static_cast<int>(length);
  });
}

Capture *open_file(const char *path, int backend, const int *parameters, std::size_t count) {
  return guarded<Capture *>(nullptr, [&] {
    auto *capture = new Capture;
    const std::vector<int> all(parameters, parameters + count);
    return opened(capture, count == 0 ? capture->from.open(path, backend) : capture->from.open(path, backend, all));
  });
}

Capture *open_camera(int index) {
  return guarded<Capture *>(nullptr, [&] {
    auto *capture = new Capture;
    return opened(capture, capture->from.open(index, cv::CAP_ANY));
  });
}

void capture_free(Capture *capture) {
  guarded(0, [&] {
    delete capture;
    return 0;
  });
}

double get(const Capture *capture, int property) {
  return guarded(0.0, [&] { return capture->from.get(property); });
}

int set(Capture *capture, int property, double value) {
  return guarded(-1, [&] { return capture->from.set(property, value) ? 1 : 0; });
}

// 1 for a frame, 0 at the end.
int grab(Capture *capture) {
  return guarded(-1, [&] { return capture->from.grab() ? 1 : 0; });
}

// The grabbed frame as BGR, turned clockwise by quarters. 1 for a frame, 0 if it is not one of 8-bit colours. The pixels
// belong to the capture and stay until its next call.
int retrieve(Capture *capture, int quarter_turns, const std::uint8_t **pixels, int *width, int *height) {
  return guarded(-1, [&] {
    if (!capture->from.retrieve(capture->decoded)) return 0;
    cv::Mat *frame = &capture->decoded;
    if (quarter_turns != 0) {
      const int how = quarter_turns == 1   ? cv::ROTATE_90_CLOCKWISE
                      : quarter_turns == 2 ? cv::ROTATE_180
                                           : cv::ROTATE_90_COUNTERCLOCKWISE;
      cv::rotate(capture->decoded, capture->turned, how);
      frame = &capture->turned;
    }
    if (frame->type() != CV_8UC3) return 0;
    if (!frame->isContinuous()) {
      capture->turned = frame->clone();
      frame = &capture->turned;
    }
    *pixels = frame->data;
    *width = frame->cols;
    *height = frame->rows;
    return 1;
  });
}

cv::VideoWriter *writer(const char *path, int codec, double frame_rate, int width, int height) {
  return guarded<cv::VideoWriter *>(nullptr, [&]() -> cv::VideoWriter * {
    auto *writer = new cv::VideoWriter;
    if (writer->open(path, codec, frame_rate, cv::Size(width, height), true)) return writer;
    delete writer;
    message = "it cannot be opened";
    return nullptr;
  });
}

// The pixels are BGR, as many as the writer's size, without gaps; OpenCV does not write to them.
int write(cv::VideoWriter *writer, const std::uint8_t *pixels, int width, int height) {
  return guarded(-1, [&] {
    writer->write(cv::Mat(height, width, CV_8UC3, const_cast<std::uint8_t *>(pixels)));
    return 1;
  });
}

int writer_finish(cv::VideoWriter *writer) {
  return guarded(-1, [&] {
    writer->release();
    return 1;
  });
}

void writer_free(cv::VideoWriter *writer) {
  guarded(0, [&] {
    delete writer;
    return 0;
  });
}

int window(const char *title, int width, int height) {
  return guarded(-1, [&] {
    cv::namedWindow(title, cv::WINDOW_NORMAL | cv::WINDOW_KEEPRATIO);
    cv::resizeWindow(title, width, height);
    return 1;
  });
}

int show(const char *title, const std::uint8_t *pixels, int width, int height) {
  return guarded(-1, [&] {
    cv::imshow(title, cv::Mat(height, width, CV_8UC3, const_cast<std::uint8_t *>(pixels)));
    return 1;
  });
}

// Handles the events of all windows for some milliseconds: the code of a key, -1 for none, -2 for an error.
int wait_key(int milliseconds) {
  return guarded(-2, [&] { return cv::waitKey(milliseconds); });
}

int is_visible(const char *title) {
  return guarded(-1, [&] { return cv::getWindowProperty(title, cv::WND_PROP_VISIBLE) < 1.0 ? 0 : 1; });
}

void close(const char *title) {
  guarded(0, [&] {
    cv::destroyWindow(title);
    return 0;
  });
}

// The order and the types are those of `Table` in calls.rs; VERSION there and here change with them.
constexpr std::uint32_t VERSION = 1;

struct Table {
  decltype(&error) error_;
  decltype(&version) version_;
  decltype(&quiet) quiet_;
  decltype(&has_stream_backend) has_stream_backend_;
  decltype(&backends) backends_;
  decltype(&open_file) open_file_;
  decltype(&open_camera) open_camera_;
  decltype(&capture_free) capture_free_;
  decltype(&get) get_;
  decltype(&set) set_;
  decltype(&grab) grab_;
  decltype(&retrieve) retrieve_;
  decltype(&writer) writer_;
  decltype(&write) write_;
  decltype(&writer_finish) writer_finish_;
  decltype(&writer_free) writer_free_;
  decltype(&window) window_;
  decltype(&show) show_;
  decltype(&wait_key) wait_key_;
  decltype(&is_visible) is_visible_;
  decltype(&close) close_;
};

constexpr Table TABLE = {
    &error, &version, &quiet, &has_stream_backend, &backends, &open_file, &open_camera,
    &capture_free, &get, &set, &grab, &retrieve, &writer, &write,
    &writer_finish, &writer_free, &window, &show, &wait_key, &is_visible, &close,
};

}  // namespace

// The table, or null for a program that expects another version of it.
extern "C" __attribute__((visibility("default"))) const void *ocelli_video(std::uint32_t version) {
  return version == VERSION ? &TABLE : nullptr;
}
