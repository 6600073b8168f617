// Writes videos with FFmpeg's libraries, 5.1 to 7. A frame has the time that it is given; sound and subtitles of a file are
// copied beside it without being decoded.
//
// An MP4 or MOV file is written in fragments of a second, so that whatever ends the program leaves what can be played;
// `remux_video` makes the usual file of it.

#include "writer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ffmpeg.hpp"

namespace {

using Clock = std::chrono::steady_clock;

// Ticks of a second: those of MPEG-4's encoder have at most 16 bits, and usual frame rates are whole numbers of them.
constexpr AVRational TICKS = {1, 60000};
constexpr AVRational NANOSECONDS = {1, 1000000000};
// Containers keep milliseconds, or finer: two frames are at least this far apart.
constexpr std::int64_t LEAST_TICKS = 60;
// How long a server may take for a packet.
constexpr std::chrono::seconds PATIENCE(10);

// The longest latency that an address of SRT asks for, which is in microseconds there; 120 ms unless it does.
std::chrono::microseconds latency_of(const std::string &address) {
  long most = 120'000;
  for (std::size_t at = 0; (at = address.find("latency=", at)) != std::string::npos; at += 8)
    most = std::max(most, std::atol(address.c_str() + at + 8));
  return std::min(std::chrono::microseconds(most), std::chrono::microseconds(PATIENCE));
}

bool is_one_of(const char *name, std::initializer_list<const char *> names) {
  return std::any_of(names.begin(), names.end(), [&](const char *one) { return std::strcmp(name, one) == 0; });
}

// What the encoder takes that keeps most of RGB: players expect 4:2:0; of lossless encoders the pixels are kept.
AVPixelFormat pixel_format(const AVCodec *encoder) {
  if (encoder->id == AV_CODEC_ID_FFV1) return AV_PIX_FMT_BGR0;
  if (encoder->id == AV_CODEC_ID_MJPEG) return AV_PIX_FMT_YUVJ420P;  // JPEG has the whole range.
  const AVPixelFormat *formats = encoder->pix_fmts;
  const auto takes = [&](AVPixelFormat wanted) {
    for (const AVPixelFormat *at = formats; at != nullptr && *at != AV_PIX_FMT_NONE; ++at)
      if (*at == wanted) return true;
    return formats == nullptr;
  };
  for (const AVPixelFormat format : {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUVJ420P, AV_PIX_FMT_NV12})
    if (takes(format)) return format;
  return formats[0];
}

struct Options {
  AVDictionary *all = nullptr;
  Options() = default;
  Options(const Options &) = delete;
  Options &operator=(const Options &) = delete;
  ~Options() { av_dict_free(&all); }
  void set(const char *key, const char *value) { checked(av_dict_set(&all, key, value, 0)); }
};

// The sound and the subtitles of a file, to be copied.
class Sound {
 public:
  Sound(const char *path, AVFormatContext *to, Copied &copied) : to_(to) {
    try {
      checked(avformat_open_input(&from_, (std::string("file:") + path).c_str(), nullptr, nullptr));
      checked(avformat_find_stream_info(from_, nullptr));
      packet_ = allocated(av_packet_alloc());
      const int video = av_find_best_stream(from_, AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
      const AVStream *shown = video < 0 ? nullptr : from_->streams[video];
      if (shown != nullptr && shown->start_time != AV_NOPTS_VALUE)
        start_ = av_rescale_q(shown->start_time, shown->time_base, NANOSECONDS);
      streams_.assign(from_->nb_streams, -1);
      for (unsigned i = 0; i < from_->nb_streams; ++i) {
        AVStream *stream = from_->streams[i];
        const AVMediaType type = stream->codecpar->codec_type;
        stream->discard = AVDISCARD_ALL;
        if (type != AVMEDIA_TYPE_AUDIO && type != AVMEDIA_TYPE_SUBTITLE) continue;
        const AVCodecID codec = stream->codecpar->codec_id;
        const int takes = avformat_query_codec(to->oformat, codec, FF_COMPLIANCE_NORMAL);
        // Muxers of streams do not say what they take.
        if (takes != 1 && !(takes == AVERROR_PATCHWELCOME && codec == AV_CODEC_ID_AAC)) {
          ++copied.left_out;
          continue;
        }
        AVStream *made = allocated(avformat_new_stream(to, nullptr));
        checked(avcodec_parameters_copy(made->codecpar, stream->codecpar));
        made->codecpar->codec_tag = 0;
        made->time_base = stream->time_base;
        made->disposition = stream->disposition;
        checked(av_dict_copy(&made->metadata, stream->metadata, 0));
        stream->discard = AVDISCARD_DEFAULT;
        streams_[i] = made->index;
        ++copied.copied;
      }
      is_over_ = copied.copied == 0;
    } catch (...) {
      close();
      throw;
    }
  }
  ~Sound() { close(); }
  Sound(const Sound &) = delete;
  Sound &operator=(const Sound &) = delete;

  // The first frame that is written was taken at this time since the first one of the file.
  void begin(std::int64_t time_ns) {
    is_cut_ = time_ns > 0;
    start_ += time_ns;
    if (is_cut_ && !is_over_) av_seek_frame(from_, -1, start_ / 1000, AVSEEK_FLAG_BACKWARD);
  }

  // Copies what is heard until a time since the first frame that is written. A file that cannot be read further is over.
  void copy(std::int64_t until_ns) {
    while (!is_over_) {
      if (!is_pending_) {
        if (av_read_frame(from_, packet_) < 0) {
          is_over_ = true;
          return;
        }
        is_pending_ = true;
      }
      const AVStream *stream = from_->streams[packet_->stream_index];
      const int target = static_cast<std::size_t>(packet_->stream_index) < streams_.size() ? streams_[packet_->stream_index] : -1;
      const std::int64_t at = packet_->pts == AV_NOPTS_VALUE ? packet_->dts : packet_->pts;
      if (target < 0 || at == AV_NOPTS_VALUE) {
        drop();
        continue;
      }
      const std::int64_t time = av_rescale_q(at, stream->time_base, NANOSECONDS) - start_;
      if (time > until_ns) return;
      // What is heard before the first frame belongs to what was cut off.
      if (is_cut_ && time < 0) {
        drop();
        continue;
      }
      const std::int64_t shift = av_rescale_q(start_, NANOSECONDS, stream->time_base);
      if (packet_->pts != AV_NOPTS_VALUE) packet_->pts -= shift;
      if (packet_->dts != AV_NOPTS_VALUE) packet_->dts -= shift;
      av_packet_rescale_ts(packet_, stream->time_base, to_->streams[target]->time_base);
      packet_->stream_index = target;
      packet_->pos = -1;
      is_pending_ = false;
      checked(av_interleaved_write_frame(to_, packet_));
    }
  }

 private:
  void drop() {
    av_packet_unref(packet_);
    is_pending_ = false;
  }
  void close() {
    av_packet_free(&packet_);
    avformat_close_input(&from_);
  }

  AVFormatContext *to_;
  AVFormatContext *from_ = nullptr;
  AVPacket *packet_ = nullptr;
  std::vector<int> streams_;
  std::int64_t start_ = 0;
  bool is_cut_ = false, is_pending_ = false, is_over_ = false;
};

class Ffmpeg final : public Writer {
 public:
  Ffmpeg(const Recording &recording, Copied &copied) : has_patience_(recording.is_stream != 0) {
    try {
      create(recording, copied);
    } catch (...) {
      close();
      throw;
    }
  }
  ~Ffmpeg() override { close(); }
  Ffmpeg(const Ffmpeg &) = delete;
  Ffmpeg &operator=(const Ffmpeg &) = delete;

  void write(const std::uint8_t *rgb, std::int64_t time_ns) override {
    deadline_ = Clock::now() + PATIENCE;
    if (first_ns_ < 0) {
      first_ns_ = time_ns;
      if (sound_ != nullptr) sound_->begin(time_ns);
    }
    const std::int64_t since = std::max<std::int64_t>(time_ns - first_ns_, 0);
    std::int64_t at = av_rescale_q(since, NANOSECONDS, codec_->time_base);
    if (at < next_) {
      // A container of a constant rate has no place for it.
      if (is_constant_) return;
      at = next_;
    }
    checked(av_frame_make_writable(frame_));
    const int stride = 3 * frame_->width;
    if (sws_scale(scaler_, &rgb, &stride, 0, frame_->height, frame_->data, frame_->linesize) != frame_->height)
      throw std::runtime_error("the pixels cannot be converted");
    frame_->pts = at;
    if (times_.size() < FIRST) times_.push_back(at);
    next_ = at + (is_constant_ ? 1 : LEAST_TICKS);
    last_ns_ = since;
    encode(frame_);
    if (sound_ != nullptr) sound_->copy(since);
    // Some muxers keep the failure of a write for themselves.
    if (format_->pb != nullptr) checked(format_->pb->error);
  }

  void finish() override {
    deadline_ = Clock::now() + PATIENCE;
    encode(nullptr);
    if (sound_ != nullptr) sound_->copy(last_ns_ + static_cast<std::int64_t>(1e9 / rate_));
    checked(av_write_trailer(format_));
    if ((format_->oformat->flags & AVFMT_NOFILE) != 0) return;
    avio_flush(format_->pb);
    checked(format_->pb->error);
    std::this_thread::sleep_for(linger_);
    checked(avio_closep(&format_->pb));
  }

 private:
  void create(const Recording &to, Copied &copied) {
    rate_ = to.frame_rate;
    deadline_ = Clock::now() + PATIENCE;
    const std::string name = to.is_stream != 0 ? std::string(to.name) : std::string("file:") + to.name;
    checked(avformat_alloc_output_context2(&format_, nullptr, to.muxer, name.c_str()));
    format_->interrupt_callback = {
        [](void *self) { return static_cast<Ffmpeg *>(self)->is_out_of_patience() ? 1 : 0; }, this};
    // What is written must not wait in a buffer for the end.
    format_->flags |= AVFMT_FLAG_FLUSH_PACKETS;
    is_constant_ = is_one_of(to.muxer, {"avi"});
    if (name.compare(0, 4, "srt:") == 0) linger_ = latency_of(name) + std::chrono::milliseconds(400);
    open_encoder(to);
    stream_ = allocated(avformat_new_stream(format_, nullptr));
    checked(avcodec_parameters_from_context(stream_->codecpar, codec_));
    if (codec_->codec_id == AV_CODEC_ID_HEVC && is_one_of(to.muxer, {"mp4", "mov"}))
      stream_->codecpar->codec_tag = MKTAG('h', 'v', 'c', '1');  // The name that Apple's players know.
    stream_->time_base = codec_->time_base;
    stream_->avg_frame_rate = stream_->r_frame_rate = codec_->framerate;
    if (to.sound != nullptr) sound_.reset(new Sound(to.sound, format_, copied));
    Options options;
    if (is_one_of(to.muxer, {"mp4", "mov"})) {
      options.set("movflags", "empty_moov+delay_moov+default_base_moof");
      options.set("frag_duration", "1000000");
    }
    if (is_one_of(to.muxer, {"matroska", "webm"})) options.set("cluster_time_limit", "1000");
    if (is_one_of(to.muxer, {"rtsp"})) options.set("rtsp_transport", "tcp");
    // Reports relate times to the clock of the day, and a file is not sent at its own pace: receivers would move sound and images.
    if (is_one_of(to.muxer, {"rtsp"}) && copied.copied > 0) options.set("rtpflags", "skip_rtcp");
    if ((format_->oformat->flags & AVFMT_NOFILE) == 0)
      checked(avio_open2(&format_->pb, name.c_str(), AVIO_FLAG_WRITE, &format_->interrupt_callback, nullptr));
    checked(avformat_write_header(format_, &options.all));
  }

  void open_encoder(const Recording &to) {
    const AVCodec *encoder = avcodec_find_encoder_by_name(to.encoder);
    if (encoder == nullptr) throw std::runtime_error(std::string("this FFmpeg has no encoder ") + to.encoder);
    codec_ = allocated(avcodec_alloc_context3(encoder));
    codec_->width = to.width;
    codec_->height = to.height;
    codec_->pix_fmt = pixel_format(encoder);
    codec_->framerate = av_d2q(to.frame_rate, 1001000);
    codec_->time_base = is_constant_ ? av_inv_q(codec_->framerate) : TICKS;
    codec_->gop_size = std::max(1, static_cast<int>(std::lround(2.0 * to.frame_rate)));
    if (to.is_stream != 0) codec_->max_b_frames = 0;
    codec_->thread_count = static_cast<int>(std::min(16U, std::max(1U, std::thread::hardware_concurrency())));
    if ((format_->oformat->flags & AVFMT_GLOBALHEADER) != 0) codec_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    // Encoders without a constant quality: a tenth of a bit a pixel.
    codec_->bit_rate = static_cast<std::int64_t>(0.1 * to.width * to.height * std::min(to.frame_rate, 120.0)) + 100000;
    Options options;
    tune(to, encoder, options);
    const bool is_yuv = codec_->pix_fmt == AV_PIX_FMT_YUV420P || codec_->pix_fmt == AV_PIX_FMT_NV12;
    const bool is_said = is_yuv && !is_constant_ && encoder->id != AV_CODEC_ID_VP8;
    codec_->color_range = is_yuv ? AVCOL_RANGE_MPEG : AVCOL_RANGE_JPEG;
    if (is_said) {
      codec_->colorspace = AVCOL_SPC_BT709;
      codec_->color_primaries = AVCOL_PRI_BT709;
      codec_->color_trc = AVCOL_TRC_BT709;
    }
    checked(avcodec_open2(codec_, encoder, &options.all));
    packet_ = allocated(av_packet_alloc());
    frame_ = allocated(av_frame_alloc());
    frame_->width = to.width;
    frame_->height = to.height;
    frame_->format = codec_->pix_fmt;
    frame_->color_range = codec_->color_range;
    frame_->colorspace = codec_->colorspace;
    checked(av_frame_get_buffer(frame_, 0));
    scaler_ = sws_getContext(to.width, to.height, AV_PIX_FMT_RGB24, to.width, to.height, codec_->pix_fmt,
                             SWS_BICUBIC | SWS_ACCURATE_RND, nullptr, nullptr, nullptr);
    if (scaler_ == nullptr) throw std::runtime_error("the pixels cannot be converted");
    // Where the file does not say, players take BT.601.
    const int *table = sws_getCoefficients(is_said ? SWS_CS_ITU709 : SWS_CS_ITU601);
    const int is_full = codec_->color_range == AVCOL_RANGE_JPEG ? 1 : 0;
    sws_setColorspaceDetails(scaler_, sws_getCoefficients(SWS_CS_DEFAULT), 1, table, is_full, 0, 1 << 16, 1 << 16);
  }

  // Fast presets, and the quality.
  void tune(const Recording &to, const AVCodec *encoder, Options &options) {
    const std::string name = encoder->name;
    if (name == "libx264" || name == "libx265") {
      options.set("preset", "veryfast");
      if (to.is_stream != 0) options.set("tune", "zerolatency");
    }
    if (name == "libx265") options.set("x265-params", "log-level=none");
    if (name == "libsvtav1") {
      options.set("preset", "10");
      // It has lines of its own on stderr, and this alone turns them off: errors are those of FFmpeg.
      setenv("SVT_LOG", "0", 0);
    }
    if (name == "libaom-av1") {
      options.set("usage", "realtime");
      options.set("cpu-used", "8");
      options.set("crf", "32");
      codec_->bit_rate = 0;
    }
    if (name == "libvpx" || name == "libvpx-vp9") {
      options.set("deadline", "realtime");
      options.set("cpu-used", "5");
      options.set("crf", name == "libvpx" ? "10" : "32");
      // VP8's quality is a limit within a rate.
      codec_->bit_rate = name == "libvpx" ? 10 * codec_->bit_rate : 0;
    }
    const bool has_crf = av_opt_find(codec_->priv_data, "crf", nullptr, 0, 0) != nullptr;
    if (has_crf && encoder->id != AV_CODEC_ID_VP8) codec_->bit_rate = 0;
    if (has_crf && to.quality >= 0) options.set("crf", std::to_string(to.quality).c_str());
    const bool has_scale = encoder->id == AV_CODEC_ID_MPEG4 || encoder->id == AV_CODEC_ID_MJPEG;
    if (has_scale || (!has_crf && to.quality >= 0)) {
      codec_->flags |= AV_CODEC_FLAG_QSCALE;
      codec_->global_quality = FF_QP2LAMBDA * (to.quality >= 0 ? std::max(to.quality, 1) : 3);
    }
  }

  void encode(const AVFrame *frame) {
    checked(avcodec_send_frame(codec_, frame));
    for (;;) {
      const int code = avcodec_receive_packet(codec_, packet_);
      if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return;
      checked(code);
      set_dts();
      av_packet_rescale_ts(packet_, codec_->time_base, stream_->time_base);
      if (packet_->duration <= 0)
        packet_->duration = av_rescale_q(1, av_inv_q(codec_->framerate), stream_->time_base);
      packet_->stream_index = stream_->index;
      checked(av_interleaved_write_frame(format_, packet_));
    }
  }

  // libx265 leaves the DTS of the first frames uninitialised where a video ends after a few. By its own rule they lag two frames
  // behind, in the order of the times; without B-frames they do not.
  void set_dts() {
    const std::size_t number = packets_++;
    if (number >= FIRST || std::string(codec_->codec->name) != "libx265") return;
    if (packet_->dts <= packet_->pts && packet_->dts >= packet_->pts - MANY_TICKS) return;
    const std::int64_t lag = codec_->max_b_frames == 0 ? 0 : 2;
    const std::int64_t at = static_cast<std::int64_t>(number) - lag;
    packet_->dts = at < 0 ? times_[0] + at : times_[static_cast<std::size_t>(at)];
  }

  bool is_out_of_patience() const { return has_patience_ && Clock::now() >= deadline_; }

  void close() {
    sound_.reset();
    sws_freeContext(scaler_);
    av_frame_free(&frame_);
    av_packet_free(&packet_);
    avcodec_free_context(&codec_);
    if (format_ != nullptr && (format_->oformat->flags & AVFMT_NOFILE) == 0) avio_closep(&format_->pb);
    avformat_free_context(format_);
  }

  // The times of the first frames, and the number of packets.
  static constexpr std::size_t FIRST = 8;
  static constexpr std::int64_t MANY_TICKS = std::int64_t{1} << 40;
  std::vector<std::int64_t> times_;
  std::size_t packets_ = 0;
  const bool has_patience_;
  Clock::time_point deadline_;
  double rate_ = 0.0;
  bool is_constant_ = false;
  // How long an SRT receiver needs after the end: it shows what it has after its latency, and drops at once what is left.
  std::chrono::microseconds linger_{0};
  AVFormatContext *format_ = nullptr;
  AVStream *stream_ = nullptr;
  AVCodecContext *codec_ = nullptr;
  AVPacket *packet_ = nullptr;
  AVFrame *frame_ = nullptr;
  SwsContext *scaler_ = nullptr;
  std::unique_ptr<Sound> sound_;
  std::int64_t first_ns_ = -1, last_ns_ = 0;
  std::int64_t next_ = 0;
};

// All packets of a file in another one.
class Copy {
 public:
  Copy() = default;
  ~Copy() {
    av_packet_free(&packet_);
    avformat_close_input(&from_);
    if (to_ != nullptr) avio_closep(&to_->pb);
    avformat_free_context(to_);
  }
  Copy(const Copy &) = delete;
  Copy &operator=(const Copy &) = delete;

  void run(const char *from, const char *to, const char *muxer) {
    checked(avformat_open_input(&from_, (std::string("file:") + from).c_str(), nullptr, nullptr));
    checked(avformat_find_stream_info(from_, nullptr));
    const std::string name = std::string("file:") + to;
    checked(avformat_alloc_output_context2(&to_, nullptr, muxer, name.c_str()));
    for (unsigned i = 0; i < from_->nb_streams; ++i) {
      const AVStream *stream = from_->streams[i];
      AVStream *made = allocated(avformat_new_stream(to_, nullptr));
      checked(avcodec_parameters_copy(made->codecpar, stream->codecpar));
      made->time_base = stream->time_base;
      made->avg_frame_rate = stream->avg_frame_rate;
      made->disposition = stream->disposition;
      checked(av_dict_copy(&made->metadata, stream->metadata, 0));
    }
    checked(avio_open(&to_->pb, name.c_str(), AVIO_FLAG_WRITE));
    Options options;
    options.set("movflags", "faststart");
    checked(avformat_write_header(to_, &options.all));
    packet_ = allocated(av_packet_alloc());
    for (;;) {
      const int code = av_read_frame(from_, packet_);
      if (code == AVERROR_EOF) break;
      checked(code);
      const int index = packet_->stream_index;
      av_packet_rescale_ts(packet_, from_->streams[index]->time_base, to_->streams[index]->time_base);
      packet_->pos = -1;
      checked(av_interleaved_write_frame(to_, packet_));
    }
    checked(av_write_trailer(to_));
    avio_flush(to_->pb);
    checked(to_->pb->error);
    checked(avio_closep(&to_->pb));
  }

 private:
  AVFormatContext *from_ = nullptr, *to_ = nullptr;
  AVPacket *packet_ = nullptr;
};

}  // namespace

Writer *create_video(const Recording &recording, Copied &copied) { return new Ffmpeg(recording, copied); }

void remux_video(const char *from, const char *to, const char *muxer) {
  Copy copy;
  copy.run(from, to, muxer);
}
