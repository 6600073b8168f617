// libocelli_video: what Ocelli uses of FFmpeg and OpenCV, as one table of C functions. No exception leaves them: a function
// that fails returns a negative number or a null pointer, and `error` has the message until the thread's next call.

#include "reader.hpp"
#include "writer.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/highgui.hpp>
#include <opencv2/videoio.hpp>

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

// A camera, which OpenCV opens: FFmpeg's libraries for devices are not needed.
struct Camera final : Reader {
  cv::VideoCapture from;
  cv::Mat decoded;

  explicit Camera(int index, Info &info) {
    if (!from.open(index, cv::CAP_ANY)) throw std::runtime_error("it cannot be opened");
    info.frame_rate = from.get(cv::CAP_PROP_FPS);
    info.width = static_cast<int>(from.get(cv::CAP_PROP_FRAME_WIDTH));
    info.height = static_cast<int>(from.get(cv::CAP_PROP_FRAME_HEIGHT));
  }

  int next(Stamp &stamp) override {
    if (!from.grab()) return 0;
    if (!from.retrieve(decoded) || decoded.type() != CV_8UC3) throw std::runtime_error("expected 8-bit colours");
    stamp = {static_cast<std::int64_t>(from.get(cv::CAP_PROP_POS_MSEC) * 1e6), 0, decoded.cols, decoded.rows};
    return 1;
  }

  void convert(std::uint8_t *rgb) override {
    cv::Mat to(decoded.rows, decoded.cols, CV_8UC3, rgb);
    const int swapped[] = {0, 2, 1, 1, 2, 0};
    cv::mixChannels(&decoded, 1, &to, 1, swapped, 3);
  }
};

const char *error() { return message.c_str(); }

const char *version() {
  static const std::string text = std::string("FFmpeg ") + ffmpeg_version() + ", OpenCV " CV_VERSION;
  return text.c_str();
}

void quiet() {
  guarded(0, [] {
    silence_ffmpeg();
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    return 0;
  });
}

Reader *open(const Request *request, Info *info) {
  return guarded<Reader *>(nullptr, [&] { return open_video(*request, *info); });
}

Reader *open_camera(int index, Info *info) {
  return guarded<Reader *>(nullptr, [&] { return new Camera(index, *info); });
}

void reader_free(Reader *reader) {
  guarded(0, [&] {
    delete reader;
    return 0;
  });
}

// 1 for a frame, 0 at the end.
int next(Reader *reader, Stamp *stamp) {
  return guarded(-1, [&] { return reader->next(*stamp); });
}

// The frame that was read as RGB, `height × width × 3` bytes.
int convert(Reader *reader, std::uint8_t *rgb) {
  return guarded(-1, [&] {
    reader->convert(rgb);
    return 1;
  });
}

Writer *writer(const Recording *recording, Copied *copied) {
  return guarded<Writer *>(nullptr, [&] { return create_video(*recording, *copied); });
}

// The frame as RGB, as many bytes as the recording's size says, and its time.
int write(Writer *writer, const std::uint8_t *rgb, std::int64_t time_ns) {
  return guarded(-1, [&] {
    writer->write(rgb, time_ns);
    return 1;
  });
}

int writer_finish(Writer *writer) {
  return guarded(-1, [&] {
    writer->finish();
    return 1;
  });
}

void writer_free(Writer *writer) {
  guarded(0, [&] {
    delete writer;
    return 0;
  });
}

int remux(const char *from, const char *to, const char *muxer) {
  return guarded(-1, [&] {
    remux_video(from, to, muxer);
    return 1;
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
constexpr std::uint32_t VERSION = 4;

struct Table {
  decltype(&error) error_;
  decltype(&version) version_;
  decltype(&quiet) quiet_;
  decltype(&open) open_;
  decltype(&open_camera) open_camera_;
  decltype(&reader_free) reader_free_;
  decltype(&next) next_;
  decltype(&convert) convert_;
  decltype(&writer) writer_;
  decltype(&write) write_;
  decltype(&writer_finish) writer_finish_;
  decltype(&writer_free) writer_free_;
  decltype(&remux) remux_;
  decltype(&window) window_;
  decltype(&show) show_;
  decltype(&wait_key) wait_key_;
  decltype(&is_visible) is_visible_;
  decltype(&close) close_;
};

constexpr Table TABLE = {
    &error, &version, &quiet, &open, &open_camera, &reader_free, &next, &convert, &writer, &write,
    &writer_finish, &writer_free, &remux, &window, &show, &wait_key, &is_visible, &close,
};

}  // namespace

// The table, or null for a program that expects another version of it.
extern "C" __attribute__((visibility("default"))) const void *ocelli_video(std::uint32_t version) {
  return version == VERSION ? &TABLE : nullptr;
}
