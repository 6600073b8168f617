// What reads frames. Functions throw where they fail.

#pragma once

#include <cstdint>

// What is known before the first frame; 0 stands for unknown, -1 for an unknown duration.
struct Info {
  double frame_rate;
  std::int64_t frames;
  std::int64_t duration_ns;
  std::int64_t shortest_interval_ns;
  std::int32_t width;
  std::int32_t height;
  std::int32_t counts_frames;  // Whether `frames` is counted, not estimated from the duration.
  std::int32_t has_sound;
};

// A frame that was read: its upright size, and its time since the first frame, or the smallest number if it has none.
struct Stamp {
  std::int64_t time_ns;
  std::uint64_t failures;  // How much could not be decoded until here.
  const char *hwaccel;     // The hardware that decoded it; null for the CPU.
  std::int32_t width;
  std::int32_t height;
};

// Where a frame lies in the memory of a GPU: NV12, upright.
struct Planes {
  std::uint64_t luma;    // Addresses on the GPU.
  std::uint64_t chroma;
  std::int32_t luma_stride;  // Bytes from one row to the next.
  std::int32_t chroma_stride;
  std::int32_t matrix[4];  // FFmpeg's coefficients: red, blue, and what blue and red take from green.
  std::int32_t is_full;    // Whether luma and chroma have all 256 levels.
};

// A frame that is kept there. Any thread may use it, and it may outlive its reader.
struct Kept {
  virtual ~Kept() = default;
  // As that of the reader.
  virtual void convert(std::uint8_t *rgb) = 0;
};

struct Reader {
  virtual ~Reader() = default;
  // Decodes the next frame: 1, or 0 at the end.
  virtual int next(Stamp &stamp) = 0;
  // Writes the frame as RGB, upright and without gaps, `height × width × 3` bytes.
  virtual void convert(std::uint8_t *rgb) = 0;
  // Keeps the frame where it is; null if it does not lie in the request's CUDA context as NV12, or too many are kept.
  virtual Kept *keep(Planes &planes) = 0;
};

// How a video is opened.
struct Request {
  const char *name;
  const char *device;            // FFmpeg's name of the devices that it is one of; null for a file or an address.
  const char *hwaccel;           // FFmpeg's name of the hardware that decodes, or "auto"; null for the CPU.
  void *cuda;                    // The CUDA context in which NVIDIA's hardware decodes, which outlives reader and frames; may be null.
  std::int64_t open_timeout_ms;  // 0: none
  std::int64_t read_timeout_ms;
  std::int64_t most_pixels;
  int (*is_cancelled)(const void *);  // May be null.
  const void *cancellation;
  const char *const *options;  // FFmpeg's, name and value in turn; a null pointer ends them.
  std::int32_t stream;         // Which of the video streams, from 0; -1 is the one that players choose.
  std::int32_t is_file;
  std::int32_t is_live;
};

Reader *open_video(const Request &request, Info &info);

// Loads FFmpeg's library for devices, once.
void load_devices();

// FFmpeg's version, and nothing more on stderr from it.
const char *ffmpeg_version();
void silence_ffmpeg();
