// Decodes a video to RGB with the reader of the video library, and with OpenCV, in turns. Usage: decode FILE ROUNDS: a line of JSON for each
// of a round, and the last with the medians of the quotients.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <opencv2/imgproc.hpp>
#include <opencv2/videoio.hpp>
#include <vector>

#include "reader.hpp"

namespace {

struct Measured {
  int frames = 0;
  double wall_s = 0, cpu_s = 0;
  unsigned long long sum = 0;  // Of a few pixels: both read the same.
};

double cpu_now() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

double wall_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void look(Measured &found, const std::uint8_t *rgb, std::size_t bytes) {
  ++found.frames;
  for (std::size_t at = 0; at < bytes; at += 99991) found.sum += rgb[at];
}

void ours(const char *file, Measured &found) {
  Request request{};
  request.name = file;
  request.most_pixels = 1 << 24;
  request.stream = -1;
  request.is_file = 1;
  Info info{};
  const std::unique_ptr<Reader> reader(open_video(request, info));
  std::vector<std::uint8_t> rgb;
  Stamp stamp{};
  while (reader->next(stamp) == 1) {
    rgb.resize(3ULL * stamp.width * stamp.height);
    reader->convert(rgb.data());
    look(found, rgb.data(), rgb.size());
  }
}

void opencv(const char *file, Measured &found) {
  cv::VideoCapture capture(file, cv::CAP_FFMPEG);
  cv::Mat bgr, rgb;
  while (capture.read(bgr)) {
    cv::cvtColor(bgr, rgb, cv::COLOR_BGR2RGB);
    look(found, rgb.data, rgb.total() * rgb.elemSize());
  }
}

Measured measure(const char *name, void (*read)(const char *, Measured &), const char *file) {
  Measured found;
  const double wall = wall_now(), cpu = cpu_now();
  read(file, found);
  found.wall_s = wall_now() - wall;
  found.cpu_s = cpu_now() - cpu;
  std::printf("{\"reader\": \"%s\", \"frames\": %d, \"wall_s\": %.3f, \"cpu_s\": %.3f, \"frames_per_s\": %.1f, \"cpu_ms_per_frame\": %.2f, \"sum\": %llu}\n",
              name, found.frames, found.wall_s, found.cpu_s, found.frames / found.wall_s, 1000 * found.cpu_s / found.frames, found.sum);
  std::fflush(stdout);
  return found;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int count, char **arguments) {
  if (count != 3) return 2;
  silence_ffmpeg();
  std::vector<double> wall, cpu;
  for (int round = 0; round < std::atoi(arguments[2]); ++round) {
    // Either is first in every second round.
    const Measured first = measure(round % 2 ? "opencv" : "ocelli", round % 2 ? opencv : ours, arguments[1]);
    const Measured second = measure(round % 2 ? "ocelli" : "opencv", round % 2 ? ours : opencv, arguments[1]);
    const Measured &own = round % 2 ? second : first, &other = round % 2 ? first : second;
    if (own.frames != other.frames || own.frames == 0) return 1;
    wall.push_back(other.wall_s / own.wall_s);
    cpu.push_back(other.cpu_s / own.cpu_s);
  }
  std::printf("{\"times_as_fast\": %.3f, \"cpu_of_opencv_by_ours\": %.3f, \"least\": %.3f, \"most\": %.3f}\n", median(wall), median(cpu),
              *std::min_element(wall.begin(), wall.end()), *std::max_element(wall.begin(), wall.end()));
}
