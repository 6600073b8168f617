// libocelli_window: OpenCV's windows, as one table of C functions.

#include "guarded.hpp"

#include <cstdint>
#include <stdexcept>

#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/highgui.hpp>

namespace {

// Runs the call; of an exception of OpenCV the message is that without its place in OpenCV.
template <typename F>
auto shown(F call) {
  return [call] {
    try {
      return call();
    } catch (const cv::Exception &error) {
      throw std::runtime_error(error.err.empty() ? error.what() : error.err);
    }
  };
}

const char *error() { return message().c_str(); }

const char *version() { return "OpenCV " CV_VERSION; }

void quiet() { cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT); }

int window(const char *title, int width, int height) {
  return done(shown([&] {
    cv::namedWindow(title, cv::WINDOW_NORMAL | cv::WINDOW_KEEPRATIO);
    cv::resizeWindow(title, width, height);
  }));
}

int show(const char *title, const std::uint8_t *pixels, int width, int height) {
  return done(shown([&] { cv::imshow(title, cv::Mat(height, width, CV_8UC3, const_cast<std::uint8_t *>(pixels))); }));
}

// Handles the events of all windows for some milliseconds: the code of a key, -1 for none, -2 for an error.
int wait_key(int milliseconds) {
  return guarded(-2, shown([&] { return cv::waitKey(milliseconds); }));
}

int is_visible(const char *title) {
  return guarded(-1, shown([&] { return cv::getWindowProperty(title, cv::WND_PROP_VISIBLE) < 1.0 ? 0 : 1; }));
}

void close(const char *title) {
  done([&] { cv::destroyWindow(title); });
}

// The order and the types are those of `WindowTable` in calls.rs; WINDOW_VERSION there and VERSION here change with them.
constexpr std::uint32_t VERSION = 1;

struct Table {
  decltype(&error) error_;
  decltype(&version) version_;
  decltype(&quiet) quiet_;
  decltype(&window) window_;
  decltype(&show) show_;
  decltype(&wait_key) wait_key_;
  decltype(&is_visible) is_visible_;
  decltype(&close) close_;
};

constexpr Table TABLE = {&error, &version, &quiet, &window, &show, &wait_key, &is_visible, &close};

}  // namespace

// The table, or null for a program that expects another version of it.
extern "C" __attribute__((visibility("default"))) const void *ocelli_window(std::uint32_t version) {
  return version == VERSION ? &TABLE : nullptr;
}
