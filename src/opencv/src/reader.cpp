// Reads videos with FFmpeg's libraries, 5.1 to 7. A frame keeps its own size, pixel format, colour matrix and range, and
// orientation: each of them can change from one frame to the next.

#include "reader.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "ffmpeg.hpp"

namespace {

using Clock = std::chrono::steady_clock;

// Failures in a row after which a demuxer or a decoder does not recover.
constexpr int ATTEMPTS = 64;
// Higher rates of frames are those of a clock, frames per second.
constexpr double MAX_VARIABLE_RATE = 120.0;
// Rows are converted in place only where they are this aligned: swscale writes whole blocks of pixels.
constexpr int BLOCK = 32;
// Frames that are kept on a GPU at a time, for which the decoder needs surfaces of its own.
constexpr int KEPT = 6;

// The number in a field of an enumeration: FFmpeg stores what the file says, which may be none of its values.
template <typename Enumeration>
int number_of(const Enumeration &field) {
  static_assert(sizeof(int) == sizeof(Enumeration), "FFmpeg's enumerations are as large as int");
  int number;
  std::memcpy(&number, &field, sizeof number);
  return number;
}

// How decoded pixels become upright: transposed first, then mirrored.
struct Turn {
  bool transpose = false, mirror_x = false, mirror_y = false;

  bool is_none() const { return !transpose && !mirror_x && !mirror_y; }
};

// Of the matrix [a b u; c d v; x y w]: x' = a x + c y, y' = b x + d y.
Turn turn_of(const std::uint8_t *bytes, std::size_t size) {
  std::int32_t m[9];
  if (bytes == nullptr || size < sizeof m) return {};
  std::memcpy(m, bytes, sizeof m);
  const auto far = [](std::int32_t value) { return std::abs(static_cast<std::int64_t>(value)); };
  if (far(m[0]) >= far(m[1])) return {false, m[0] < 0, m[4] < 0};
  return {true, m[3] < 0, m[1] < 0};
}

Turn turn_of(const AVStream *stream) {
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(60, 15, 100)
  const AVCodecParameters *par = stream->codecpar;
  const AVPacketSideData *data =
      av_packet_side_data_get(par->coded_side_data, par->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
  return data == nullptr ? Turn{} : turn_of(data->data, data->size);
#else
  std::size_t size = 0;
  const std::uint8_t *data = av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, &size);
  return turn_of(data, size);
#endif
}

// What swscale converts with. What is not said stays as it assumes it: BT.601.
const int *matrix_of(const AVFrame *frame) {
  const int space = number_of(frame->colorspace);
  const bool is_said = space != AVCOL_SPC_UNSPECIFIED && space != AVCOL_SPC_RGB;
  return sws_getCoefficients(is_said ? space : SWS_CS_DEFAULT);
}

// Converts frames to RGB, of a reader and those that are kept of it.
class Converter {
 public:
  Converter() = default;
  ~Converter() {
    sws_freeContext(scaler_);
    av_freep(&buffer_);
  }
  Converter(const Converter &) = delete;
  Converter &operator=(const Converter &) = delete;

  void convert(const AVFrame *frame, Turn turn, std::uint8_t *rgb) {
    const std::lock_guard<std::mutex> alone(one_);
    const int width = frame->width, height = frame->height;
    prepare(frame);
    const bool is_upright = turn.is_none();
    const bool is_direct = is_upright && width % BLOCK == 0;
    const int stride = is_direct ? 3 * width : (3 * width + 63) / 64 * 64 + 64;
    std::uint8_t *to = rgb;
    if (!is_direct) {
      av_fast_malloc(&buffer_, &capacity_, static_cast<std::size_t>(stride) * height + 64);
      to = allocated(buffer_);
    }
    if (sws_scale(scaler_, frame->data, frame->linesize, 0, height, &to, &stride) != height)
      throw std::runtime_error("the pixels cannot be converted");
    if (is_direct) return;
    const std::size_t row = 3 * static_cast<std::size_t>(turn.transpose ? height : width);
    if (is_upright) {
      for (int y = 0; y < height; ++y) std::memcpy(rgb + y * row, buffer_ + static_cast<std::size_t>(y) * stride, row);
      return;
    }
    const int columns = turn.transpose ? height : width, rows = turn.transpose ? width : height;
    // In squares, so that the rows that are written and those that are read stay in the cache.
    for (int top = 0; top < rows; top += BLOCK)
      for (int left = 0; left < columns; left += BLOCK)
        for (int y = top; y < std::min(top + BLOCK, rows); ++y)
          for (int x = left; x < std::min(left + BLOCK, columns); ++x) {
            const int across = turn.mirror_x ? columns - 1 - x : x, down = turn.mirror_y ? rows - 1 - y : y;
            const int from_x = turn.transpose ? down : across, from_y = turn.transpose ? across : down;
            std::memcpy(rgb + y * row + 3 * static_cast<std::size_t>(x),
                        buffer_ + static_cast<std::size_t>(from_y) * stride + 3 * static_cast<std::size_t>(from_x), 3);
          }
  }

 private:
  // Makes the conversion of this frame ready, anew where the frame before was of another kind.
  void prepare(const AVFrame *frame) {
    const int space = number_of(frame->colorspace), range = number_of(frame->color_range);
    const auto kind = std::make_tuple(frame->width, frame->height, frame->format, space, range);
    if (scaler_ != nullptr && kind == kind_) return;
    sws_freeContext(scaler_);
    scaler_ = sws_getContext(frame->width, frame->height, static_cast<AVPixelFormat>(frame->format), frame->width,
                             frame->height, AV_PIX_FMT_RGB24, SWS_BICUBIC, nullptr, nullptr, nullptr);
    if (scaler_ == nullptr) throw std::runtime_error("its pixel format cannot be converted");
    kind_ = kind;
    int *from_table, *to_table, from_range, to_range, brightness, contrast, saturation;
    if (sws_getColorspaceDetails(scaler_, &from_table, &from_range, &to_table, &to_range, &brightness, &contrast,
                                 &saturation) < 0)
      return;
    // What is not said stays as swscale assumes it: the range of the pixel format.
    if (range == AVCOL_RANGE_JPEG) from_range = 1;
    if (range == AVCOL_RANGE_MPEG) from_range = 0;
    sws_setColorspaceDetails(scaler_, matrix_of(frame), from_range, sws_getCoefficients(SWS_CS_DEFAULT), to_range, brightness,
                             contrast, saturation);
  }

  std::mutex one_;
  SwsContext *scaler_ = nullptr;
  std::tuple<int, int, int, int, int> kind_;
  std::uint8_t *buffer_ = nullptr;
  unsigned capacity_ = 0;
};

// A copy in memory of a frame of the hardware.
AVFrame *downloaded(const AVFrame *frame) {
  AVFrame *copy = allocated(av_frame_alloc());
  int code = av_hwframe_transfer_data(copy, frame, 0);
  if (code >= 0) code = av_frame_copy_props(copy, frame);
  if (code < 0) av_frame_free(&copy);
  checked(code);
  return copy;
}

// Where a frame lies on a GPU; false if it is not NV12 there.
bool planes_of(const AVFrame *frame, Planes &planes) {
  if (frame->format != AV_PIX_FMT_CUDA || frame->hw_frames_ctx == nullptr) return false;
  if (reinterpret_cast<const AVHWFramesContext *>(frame->hw_frames_ctx->data)->sw_format != AV_PIX_FMT_NV12) return false;
  planes.luma = reinterpret_cast<std::uintptr_t>(frame->data[0]);
  planes.chroma = reinterpret_cast<std::uintptr_t>(frame->data[1]);
  planes.luma_stride = frame->linesize[0];
  planes.chroma_stride = frame->linesize[1];
  std::copy_n(matrix_of(frame), 4, planes.matrix);
  planes.is_full = number_of(frame->color_range) == AVCOL_RANGE_JPEG;
  return true;
}

class KeptFrame final : public Kept {
 public:
  KeptFrame(const AVFrame *frame, std::shared_ptr<Converter> converter)
      : frame_(allocated(av_frame_clone(frame))), converter_(std::move(converter)) {}
  ~KeptFrame() override { av_frame_free(&frame_); }
  KeptFrame(const KeptFrame &) = delete;
  KeptFrame &operator=(const KeptFrame &) = delete;

  void convert(std::uint8_t *rgb) override {
    const auto free = [](AVFrame *frame) { av_frame_free(&frame); };
    const std::unique_ptr<AVFrame, decltype(free)> copy(downloaded(frame_), free);
    converter_->convert(copy.get(), Turn{}, rgb);
  }

 private:
  AVFrame *frame_;
  const std::shared_ptr<Converter> converter_;
};

class Ffmpeg final : public Reader {
 public:
  Ffmpeg(const Request &request, Info &info)
      : request_(request), hwaccel_(request.hwaccel == nullptr ? "" : request.hwaccel) {
    try {
      open(info);
    } catch (...) {
      close();
      throw;
    }
  }
  ~Ffmpeg() override { close(); }
  Ffmpeg(const Ffmpeg &) = delete;
  Ffmpeg &operator=(const Ffmpeg &) = delete;

  int next(Stamp &stamp) override {
    begin(request_.read_timeout_ms);
    for (int bad = 0;;) {
      av_frame_unref(frame_);
      int code = avcodec_receive_frame(codec_, frame_);
      if (code == 0 && !is_small(frame_->width, frame_->height)) code = AVERROR_INVALIDDATA;
      if (code == 0) break;
      if (is_refused_) refuse_hardware("it does not take this video");
      if (code == AVERROR_EOF || must_stop()) return end(stamp);
      if (code != AVERROR(EAGAIN)) {
        ++failures_;
        if (drained_ && ++bad > ATTEMPTS) return end(stamp);
        continue;
      }
      code = av_read_frame(format_, packet_);
      if (code == AVERROR(EAGAIN)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      if (code < 0) {
        if (code == AVERROR_EXIT) return end(stamp);
        if (code == AVERROR_INVALIDDATA && ++bad <= ATTEMPTS) {
          ++failures_;
          continue;
        }
        drained_ = true;
        avcodec_send_packet(codec_, nullptr);
        continue;
      }
      // The rest of a frame at the end of a file is no frame.
      const bool is_cut = (packet_->flags & AV_PKT_FLAG_CORRUPT) != 0 && format_->pb != nullptr && avio_feof(format_->pb);
      if (packet_->stream_index == stream_->index) {
        code = is_cut ? AVERROR_INVALIDDATA : avcodec_send_packet(codec_, packet_);
        if (code < 0 && code != AVERROR(EAGAIN)) ++failures_;
      }
      av_packet_unref(packet_);
    }
    const AVFrameSideData *matrix = av_frame_get_side_data(frame_, AV_FRAME_DATA_DISPLAYMATRIX);
    turn_ = matrix == nullptr ? turn_of(stream_) : turn_of(matrix->data, matrix->size);
    stamp.width = turn_.transpose ? frame_->height : frame_->width;
    stamp.height = turn_.transpose ? frame_->width : frame_->height;
    stamp.time_ns = time();
    stamp.failures = failures_;
    const bool is_hardware = hardware_ != nullptr && frame_->format == hardware_->pix_fmt;
    stamp.hwaccel = is_hardware ? av_hwdevice_get_type_name(hardware_->device_type) : nullptr;
    return 1;
  }

  void convert(std::uint8_t *rgb) override {
    if (hardware_ != nullptr && frame_->format == hardware_->pix_fmt) {
      AVFrame *copy = downloaded(frame_);
      std::swap(copy, frame_);
      av_frame_free(&copy);
    }
    converter_->convert(frame_, turn_, rgb);
  }

  Kept *keep(Planes &planes) override {
    const bool is_there = keeps_ && turn_.is_none() && planes_of(frame_, planes) && converter_.use_count() <= KEPT;
    return is_there ? new KeptFrame(frame_, converter_) : nullptr;
  }

 private:
  void open(Info &info) {
    begin(request_.open_timeout_ms);
    format_ = allocated(avformat_alloc_context());
    format_->interrupt_callback = {[](void *self) { return static_cast<Ffmpeg *>(self)->must_stop() ? 1 : 0; }, this};
    std::string name = request_.name;
    if (request_.is_file) {
      // Not a protocol, whatever the name is.
      name.insert(0, "file:");
      if (name.find_first_of("%*?[{") != std::string::npos) {
        // Nor a pattern of images: of the name only the extension is shown to those who guess the format.
        checked(avio_open2(&file_, name.c_str(), AVIO_FLAG_READ, &format_->interrupt_callback, nullptr));
        format_->pb = file_;
        const std::size_t dot = name.find_last_of("./");
        const std::string ending = dot == std::string::npos || name[dot] == '/' ? "" : name.substr(dot);
        name = ending.find_first_of("%*?[{") == std::string::npos ? "video" + ending : "video";
      }
    }
    // Servers that know UDP only are asked a second time.
    if (name.compare(0, 4, "rtsp") == 0) av_dict_set(&options_, "rtsp_flags", "prefer_tcp", 0);
    for (const char *const *option = request_.options; option != nullptr && *option != nullptr; option += 2)
      av_dict_set(&options_, option[0], option[1], 0);
    const AVInputFormat *format = nullptr;
    if (request_.device != nullptr) {
      load_devices();
      format = av_find_input_format(request_.device);
      if (format == nullptr) throw std::runtime_error(std::string("no devices ") + request_.device + " in this FFmpeg");
      // A camera that stops would block for ever where no deadline is looked at.
      format_->flags |= AVFMT_FLAG_NONBLOCK;
    }
    checked(avformat_open_input(&format_, name.c_str(), format, &options_));
    checked(probe());
    choose();
    // What the container's reader did not take was the decoder's to take.
    for (const char *const *option = request_.options; option != nullptr && *option != nullptr; option += 2)
      if (av_dict_get(options_, option[0], nullptr, 0) != nullptr)
        throw std::runtime_error(std::string("no option ") + option[0] + " of FFmpeg is for this video");
    describe(info);
  }

  // Decodes first frames where the header does not say enough.
  int probe() {
    const unsigned count = format_->nb_streams;
    std::unique_ptr<AVDictionary *[]> limits(new AVDictionary *[count + 1]());
    for (unsigned i = 0; i < count; ++i) av_dict_set_int(&limits[i], "max_pixels", request_.most_pixels, 0);
    const int code = avformat_find_stream_info(format_, limits.get());
    for (unsigned i = 0; i < count; ++i) av_dict_free(&limits[i]);
    return code;
  }

  // The index of the video stream with the number of the request.
  int numbered() const {
    int found = 0;
    for (unsigned i = 0; i < format_->nb_streams; ++i)
      if (format_->streams[i]->codecpar->codec_type == AVMEDIA_TYPE_VIDEO && found++ == request_.stream) return static_cast<int>(i);
    throw std::runtime_error("no video stream " + std::to_string(request_.stream) + ": it has " + std::to_string(found) +
                             ", and the first is 0");
  }

  // The index of the video stream that players choose.
  int usual() const {
    int index = av_find_best_stream(format_, AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
    // The cover of a song is no video.
    const auto is_cover = [&](int i) { return (format_->streams[i]->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0; };
    if (index >= 0 && is_cover(index)) {
      index = static_cast<int>(format_->nb_streams) - 1;
      while (index >= 0 && (is_cover(index) || format_->streams[index]->codecpar->codec_type != AVMEDIA_TYPE_VIDEO)) --index;
    }
    if (index < 0) throw std::runtime_error("it has no video");
    return index;
  }

  void choose() {
    const int index = request_.stream < 0 ? usual() : numbered();
    stream_ = format_->streams[index];
    const AVCodecParameters *par = stream_->codecpar;
    for (unsigned i = 0; i < format_->nb_streams; ++i)
      if (static_cast<int>(i) != index) format_->streams[i]->discard = AVDISCARD_ALL;
    if (par->width > 0 && par->height > 0 && !is_small(par->width, par->height))
      throw std::runtime_error(std::to_string(par->width) + "x" + std::to_string(par->height) + ": expected at most " +
                               std::to_string(request_.most_pixels / 1000000) + " megapixels");
    const bool is_qsv = hwaccel_ == "qsv";
    const AVCodec *decoder = is_qsv ? avcodec_find_decoder_by_name((std::string(avcodec_get_name(par->codec_id)) + "_qsv").c_str())
                                    : avcodec_find_decoder(par->codec_id);
    if (decoder == nullptr && is_qsv) refuse_hardware("this FFmpeg has no decoder for it");
    if (decoder == nullptr) throw std::runtime_error(std::string("no decoder for ") + avcodec_get_name(par->codec_id));
    codec_ = allocated(avcodec_alloc_context3(decoder));
    checked(avcodec_parameters_to_context(codec_, par));
    codec_->pkt_timebase = stream_->time_base;
    codec_->max_pixels = request_.most_pixels;
    codec_->thread_count = static_cast<int>(std::min(16U, std::max(1U, std::thread::hardware_concurrency())));
    // A frame on each thread delays the image of a camera by as many frames.
    codec_->thread_type = request_.is_live ? FF_THREAD_SLICE : FF_THREAD_FRAME | FF_THREAD_SLICE;
    if (!hwaccel_.empty()) accelerate(decoder);
    checked(avcodec_open2(codec_, decoder, &options_));
    packet_ = allocated(av_packet_alloc());
    frame_ = allocated(av_frame_alloc());
  }

  // Lets the hardware decode that is named, or the first that opens.
  void accelerate(const AVCodec *decoder) {
    const AVHWDeviceType named = av_hwdevice_find_type_by_name(hwaccel_.c_str());
    int code = AVERROR_DECODER_NOT_FOUND;
    for (int i = 0; const AVCodecHWConfig *config = avcodec_get_hw_config(decoder, i); ++i) {
      if ((config->methods & AV_CODEC_HW_CONFIG_METHOD_HW_DEVICE_CTX) == 0) continue;
      if (!is_any_hardware() && config->device_type != named) continue;
      keeps_ = config->device_type == AV_HWDEVICE_TYPE_CUDA && request_.cuda != nullptr;
      code = keeps_ ? use_cuda() : av_hwdevice_ctx_create(&codec_->hw_device_ctx, config->device_type, nullptr, nullptr, 0);
      if (code < 0) continue;
      hardware_ = config;
      // NVIDIA's hardware has 32 surfaces at most, and each thread takes one.
      if (keeps_) {
        codec_->extra_hw_frames = KEPT;
        codec_->thread_count = std::min(codec_->thread_count, 4);
      }
      // Each thread with a frame of its own would take one more of the hardware's surfaces, which are few.
      if (!is_any_hardware()) codec_->thread_count = 1;
      codec_->opaque = this;
      codec_->get_format = [](AVCodecContext *codec, const AVPixelFormat *formats) {
        return static_cast<Ffmpeg *>(codec->opaque)->format_of(formats);
      };
      return;
    }
    if (is_any_hardware()) return;
    char why[AV_ERROR_MAX_STRING_SIZE] = {};
    av_strerror(code, why, sizeof why);
    refuse_hardware(why);
  }

  // Opens the device of the request's context. FFmpeg itself refuses a primary context that another library has set up.
  int use_cuda() {
    AVBufferRef *device = av_hwdevice_ctx_alloc(AV_HWDEVICE_TYPE_CUDA);
    if (device == nullptr) return AVERROR(ENOMEM);
    void *hardware = reinterpret_cast<AVHWDeviceContext *>(device->data)->hwctx;
    static_cast<AVCUDADeviceContext *>(hardware)->cuda_ctx = request_.cuda;
    const int code = av_hwdevice_ctx_init(device);
    if (code < 0) av_buffer_unref(&device);
    codec_->hw_device_ctx = device;
    return code;
  }

  bool is_any_hardware() const { return hwaccel_ == "auto"; }

  [[noreturn]] void refuse_hardware(const char *why) const {
    throw std::runtime_error("hwaccel " + hwaccel_ + ": " + avcodec_get_name(stream_->codecpar->codec_id) +
                             " cannot be decoded with it: " + why);
  }

  // Of the formats that the decoder offers for this video, that of the hardware; its own where any hardware will do.
  AVPixelFormat format_of(const AVPixelFormat *formats) {
    for (const AVPixelFormat *at = formats; *at != AV_PIX_FMT_NONE; ++at) {
      const bool is_own = (av_pix_fmt_desc_get(*at)->flags & AV_PIX_FMT_FLAG_HWACCEL) == 0;
      if (*at == hardware_->pix_fmt || (is_own && is_any_hardware())) return *at;
    }
    is_refused_ = true;
    return AV_PIX_FMT_NONE;
  }

  void describe(Info &info) {
    const AVRational rate = av_guess_frame_rate(format_, stream_, nullptr);
    const AVRational base = stream_->time_base, ns = {1, 1000000000};
    info.frame_rate = rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 0.0;
    const bool has_duration = stream_->duration != AV_NOPTS_VALUE && stream_->duration > 0;
    info.duration_ns = has_duration ? av_rescale_q(stream_->duration, base, ns) : -1;
    info.frames = std::max<std::int64_t>(stream_->nb_frames, 0);
    info.counts_frames = info.frames > 0;
    const int entries = avformat_index_get_entries_count(stream_);
    if (info.counts_frames && entries == info.frames) {
      // Every frame is in the index: those that an edit list leaves out are known, and how fast frames come.
      std::int64_t before = AV_NOPTS_VALUE, least = INT64_MAX;
      for (int i = 0; i < entries; ++i) {
        const AVIndexEntry *entry = avformat_index_get_entry(stream_, i);
        if (entry->flags & AVINDEX_DISCARD_FRAME) {
          --info.frames;
          continue;
        }
        if (before != AV_NOPTS_VALUE && entry->timestamp > before) least = std::min(least, entry->timestamp - before);
        before = entry->timestamp;
      }
      info.shortest_interval_ns = least == INT64_MAX ? 0 : std::max<std::int64_t>(av_rescale_q(least, base, ns), 0);
    } else if (!request_.is_live && stream_->codecpar->field_order <= AV_FIELD_PROGRESSIVE &&
               stream_->r_frame_rate.num > 0 && stream_->r_frame_rate.den > 0 &&
               av_q2d(stream_->r_frame_rate) <= MAX_VARIABLE_RATE) {
      // The rate at which all frames that were looked at have a place; that of fields, or of the clock, is none of frames.
      info.shortest_interval_ns = av_rescale(1000000000, stream_->r_frame_rate.den, stream_->r_frame_rate.num);
    }
    if (!info.counts_frames) {
      const double seconds = format_->duration > 0 ? static_cast<double>(format_->duration) / AV_TIME_BASE
                             : has_duration        ? static_cast<double>(stream_->duration) * av_q2d(base)
                                                   : 0.0;
      const double estimate = seconds * info.frame_rate + 0.5;
      info.frames = estimate < 1e15 ? static_cast<std::int64_t>(estimate) : 0;
    }
    const Turn turn = turn_of(stream_);
    info.width = turn.transpose ? stream_->codecpar->height : stream_->codecpar->width;
    info.height = turn.transpose ? stream_->codecpar->width : stream_->codecpar->height;
    info.has_sound = 0;
    for (unsigned i = 0; i < format_->nb_streams; ++i)
      if (format_->streams[i]->codecpar->codec_type == AVMEDIA_TYPE_AUDIO) info.has_sound = 1;
  }

  std::int64_t time() {
    const std::int64_t at = frame_->best_effort_timestamp;
    if (at == AV_NOPTS_VALUE) return INT64_MIN;
    if (first_ == AV_NOPTS_VALUE) first_ = at;
    std::int64_t since = 0;
    if (__builtin_sub_overflow(at, first_, &since)) return INT64_MIN;
    return av_rescale_q(since, stream_->time_base, AVRational{1, 1000000000});
  }

  int end(Stamp &stamp) {
    stamp.failures = failures_;
    return 0;
  }

  bool is_small(int width, int height) const {
    return static_cast<std::int64_t>(width) * height <= request_.most_pixels && std::max(width, height) <= USHRT_MAX;
  }

  void begin(std::int64_t timeout_ms) {
    has_deadline_ = timeout_ms > 0;
    deadline_ = Clock::now() + std::chrono::milliseconds(timeout_ms);
  }

  bool must_stop() const {
    if (request_.is_cancelled != nullptr && request_.is_cancelled(request_.cancellation)) return true;
    return has_deadline_ && Clock::now() >= deadline_;
  }

  void close() {
    av_frame_free(&frame_);
    av_packet_free(&packet_);
    avcodec_free_context(&codec_);
    avformat_close_input(&format_);
    avio_closep(&file_);
    av_dict_free(&options_);
  }

  const Request request_;  // Its texts are the caller's, and gone once the video is open.
  const std::string hwaccel_;
  AVFormatContext *format_ = nullptr;
  AVIOContext *file_ = nullptr;
  AVDictionary *options_ = nullptr;
  AVStream *stream_ = nullptr;
  AVCodecContext *codec_ = nullptr;
  AVPacket *packet_ = nullptr;
  AVFrame *frame_ = nullptr;
  const std::shared_ptr<Converter> converter_ = std::make_shared<Converter>();
  Turn turn_;
  std::int64_t first_ = AV_NOPTS_VALUE;
  std::uint64_t failures_ = 0;
  const AVCodecHWConfig *hardware_ = nullptr;
  bool keeps_ = false;  // Whether it decodes in the context of the request.
  std::atomic<bool> is_refused_{false};  // Set on the decoder's threads.
  bool drained_ = false;
  bool has_deadline_ = false;
  Clock::time_point deadline_;
};

}  // namespace

Reader *open_video(const Request &request, Info &info) { return new Ffmpeg(request, info); }

void load_devices() {
#ifdef __APPLE__
  const std::string name = "libavdevice." AV_STRINGIFY(LIBAVFORMAT_VERSION_MAJOR) ".dylib";
#else
  const std::string name = "libavdevice.so." AV_STRINGIFY(LIBAVFORMAT_VERSION_MAJOR);
#endif
  // Not linked: it needs a desktop's libraries, and only cameras need it.
  static void *library = nullptr;
  static std::mutex one;
  const std::lock_guard<std::mutex> alone(one);
  if (library != nullptr) return;
  void *opened = dlopen(name.c_str(), RTLD_NOW);
  void *add = opened == nullptr ? nullptr : dlsym(opened, "avdevice_register_all");
  if (add == nullptr) throw std::runtime_error("cameras need FFmpeg's library " + name + " (Debian: apt-get install libavdevice-dev)");
  reinterpret_cast<void (*)()>(add)();
  library = opened;
}

const char *ffmpeg_version() { return av_version_info(); }

void silence_ffmpeg() {
  av_log_set_callback([](void *, int, const char *, va_list) {});
}
