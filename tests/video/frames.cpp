// Reads a video with the reader of the video library. Usage: frames FILE PIXELS: a line for each frame, its time in nanoseconds, width
// and height; PIXELS gets all frames as RGB, one after the other. The last line has the number of failures.

#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <vector>

#include "reader.hpp"

int main(int count, char **arguments) {
  if (count != 3) return 2;
  silence_ffmpeg();
  Request request{};
  request.name = arguments[1];
  request.most_pixels = 1 << 24;
  request.stream = -1;
  request.is_file = 1;
  Info info{};
  std::ofstream pixels(arguments[2], std::ios::binary);
  try {
    const std::unique_ptr<Reader> reader(open_video(request, info));
    Stamp stamp{};
    while (reader->next(stamp) == 1) {
      std::vector<std::uint8_t> rgb(3ULL * stamp.width * stamp.height);
      reader->convert(rgb.data());
      pixels.write(reinterpret_cast<const char *>(rgb.data()), static_cast<std::streamsize>(rgb.size()));
      std::printf("%lld %d %d\n", static_cast<long long>(stamp.time_ns), stamp.width, stamp.height);
    }
    std::printf("failures %llu\n", static_cast<unsigned long long>(stamp.failures));
  } catch (const std::exception &error) {
    std::printf("error %s\n", error.what());
    return 1;
  }
}
