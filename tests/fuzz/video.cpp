// Feeds damaged videos to the reader of the video library, each in a process of its own: cut, changed and joined at random.
// Usage: video FOLDER CASES SEED FILE…

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "reader.hpp"

static void read_all(const std::string &path) {
  Request request{};
  request.name = path.c_str();
  request.most_pixels = 1 << 24;
  request.stream = -1;
  request.is_file = 1;
  Info info{};
  const std::unique_ptr<Reader> reader(open_video(request, info));
  Stamp stamp{};
  for (int frames = 0; frames < 1000 && reader->next(stamp) == 1; ++frames) {
    std::vector<std::uint8_t> rgb(3ULL * stamp.width * stamp.height);
    reader->convert(rgb.data());
  }
}

int main(int count, char **arguments) {
  if (count < 5) return 2;
  const std::string folder = arguments[1];
  std::mt19937 random(static_cast<unsigned>(std::atoi(arguments[3])));
  const auto below = [&](std::size_t most) { return random() % most; };
  std::vector<std::vector<char>> seeds;
  for (int i = 4; i < count; ++i) {
    std::ifstream file(arguments[i], std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (seeds.back().empty()) return 2;
  }
  silence_ffmpeg();
  int failures = 0;
  const int cases = std::atoi(arguments[2]);
  for (int i = 0; i < cases; ++i) {
    std::vector<char> bytes = seeds[below(seeds.size())];
    const std::size_t at = below(bytes.size());
    switch (below(3)) {
      case 0: bytes.resize(at + 1); break;
      case 1: for (std::size_t n = below(30) + 1; n > 0; --n) bytes[below(bytes.size())] = static_cast<char>(random()); break;
      default: {
        const std::vector<char> &other = seeds[below(seeds.size())];
        bytes.resize(at);
        bytes.insert(bytes.end(), other.begin() + static_cast<long>(below(other.size())), other.end());
      }
    }
    const std::string path = folder + "/case-" + std::to_string(i);
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      try { read_all(path); } catch (const std::exception &) {}
      std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status == 0) {
      std::remove(path.c_str());
    } else {
      ++failures;
      std::printf("%s: status %d\n", path.c_str(), status);
    }
  }
  std::printf("%d damaged videos, %d failures\n", cases, failures);
  return failures == 0 ? 0 : 1;
}
