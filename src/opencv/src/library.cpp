// libocelli_video: what Ocelli uses of FFmpeg, as one table of C functions.

#include "guarded.hpp"
#include "reader.hpp"
#include "writer.hpp"

#include <cstdint>
#include <string>

namespace {

const char *error() { return message().c_str(); }

const char *version() {
  static const std::string text = std::string("FFmpeg ") + ffmpeg_version();
  return text.c_str();
}

void quiet() { silence_ffmpeg(); }

// Whether cameras can be opened: 1, or a negative number.
int devices() { return done(load_devices); }

Reader *open(const Request *request, Info *info) {
  return guarded<Reader *>(nullptr, [&] { return open_video(*request, *info); });
}

void reader_free(Reader *reader) { delete reader; }

// 1 for a frame, 0 at the end.
int next(Reader *reader, Stamp *stamp) {
  return guarded(-1, [&] { return reader->next(*stamp); });
}

// The frame that was read as RGB, `height × width × 3` bytes.
int convert(Reader *reader, std::uint8_t *rgb) { return done([&] { reader->convert(rgb); }); }

// 1 if the frame that was read is kept where it is, or 0.
int keep(Reader *reader, Planes *planes, Kept **kept) {
  return guarded(-1, [&] {
    *kept = reader->keep(*planes);
    return *kept != nullptr ? 1 : 0;
  });
}

int kept_convert(Kept *kept, std::uint8_t *rgb) { return done([&] { kept->convert(rgb); }); }

void kept_free(Kept *kept) { delete kept; }

Writer *writer(const Recording *recording, Copied *copied) {
  return guarded<Writer *>(nullptr, [&] { return create_video(*recording, *copied); });
}

// The frame as RGB, as many bytes as the recording's size says, and its time.
int write(Writer *writer, const std::uint8_t *rgb, std::int64_t time_ns) {
  return done([&] { writer->write(rgb, time_ns); });
}

int writer_finish(Writer *writer) { return done([&] { writer->finish(); }); }

void writer_free(Writer *writer) { delete writer; }

int remux(const char *from, const char *to, const char *muxer) { return done([&] { remux_video(from, to, muxer); }); }

// The order and the types are those of `Table` in calls.rs; VERSION there and here change with them.
constexpr std::uint32_t VERSION = 6;

struct Table {
  decltype(&error) error_;
  decltype(&version) version_;
  decltype(&quiet) quiet_;
  decltype(&devices) devices_;
  decltype(&open) open_;
  decltype(&reader_free) reader_free_;
  decltype(&next) next_;
  decltype(&convert) convert_;
  decltype(&keep) keep_;
  decltype(&kept_convert) kept_convert_;
  decltype(&kept_free) kept_free_;
  decltype(&writer) writer_;
  decltype(&write) write_;
  decltype(&writer_finish) writer_finish_;
  decltype(&writer_free) writer_free_;
  decltype(&remux) remux_;
};

constexpr Table TABLE = {
    &error,   &version,      &quiet,     &devices, &open,  &reader_free,   &next,        &convert,
    &keep,    &kept_convert, &kept_free, &writer,  &write, &writer_finish, &writer_free, &remux,
};

}  // namespace

// The table, or null for a program that expects another version of it.
extern "C" __attribute__((visibility("default"))) const void *ocelli_video(std::uint32_t version) {
  return version == VERSION ? &TABLE : nullptr;
}
