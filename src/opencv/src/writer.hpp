// What encodes frames into a file or a stream. Functions throw where they fail.

#pragma once

#include <cstdint>

// What is written, and how. Strings may be null where they say so.
struct Recording {
  const char *name;     // A path or an address.
  const char *muxer;    // FFmpeg's name of the container.
  const char *encoder;  // FFmpeg's name.
  const char *sound;    // The file whose sound and subtitles are copied; may be null.
  double frame_rate;    // About; containers of a constant rate have this one.
  std::int32_t width;   // Even.
  std::int32_t height;
  std::int32_t quality;  // As the encoder counts it, lower is better; -1: its default.
  std::int32_t is_stream;
};

// Streams besides the video: copied, and those that the container does not take.
struct Copied {
  std::int32_t copied;
  std::int32_t left_out;
};

struct Writer {
  virtual ~Writer() = default;
  // Appends a frame of `height × width × 3` bytes, RGB, that was taken at this time. Times grow.
  virtual void write(const std::uint8_t *rgb, std::int64_t time_ns) = 0;
  // Completes the file.
  virtual void finish() = 0;
};

Writer *create_video(const Recording &recording, Copied &copied);

// Writes a complete file again, with its index in front.
void remux_video(const char *from, const char *to, const char *muxer);
