// A test: frames that a reader keeps, without a GPU. The planes are host memory in frames that say they are CUDA's.

#include "reader.cpp"

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

int released = 0;

#define EXPECT(condition)                                              \
  do {                                                                 \
    if (!(condition)) {                                                \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);     \
      std::exit(1);                                                    \
    }                                                                  \
  } while (false)

// A frame of a pool of CUDA's with this format.
AVFrame *frame_of(AVPixelFormat format, std::uint8_t *memory) {
  AVBufferRef *device = allocated(av_hwdevice_ctx_alloc(AV_HWDEVICE_TYPE_CUDA));
  AVFrame *frame = allocated(av_frame_alloc());
  frame->hw_frames_ctx = allocated(av_hwframe_ctx_alloc(device));
  av_buffer_unref(&device);
  reinterpret_cast<AVHWFramesContext *>(frame->hw_frames_ctx->data)->sw_format = format;
  frame->format = AV_PIX_FMT_CUDA;
  frame->width = 64;
  frame->height = 32;
  frame->buf[0] = allocated(av_buffer_create(memory, 1, [](void *, std::uint8_t *) { ++released; }, nullptr, 0));
  frame->data[0] = memory;
  frame->data[1] = memory + 4096;
  frame->linesize[0] = 128;
  frame->linesize[1] = 256;
  return frame;
}

}  // namespace

int main() {
  std::vector<std::uint8_t> memory(1 << 16);
  Planes planes = {};
  AVFrame *frame = frame_of(AV_PIX_FMT_NV12, memory.data());
  EXPECT(planes_of(frame, planes));
  EXPECT(planes.luma == reinterpret_cast<std::uintptr_t>(memory.data()) && planes.chroma == planes.luma + 4096);
  EXPECT(planes.luma_stride == 128 && planes.chroma_stride == 256);

  // What is not said is BT.601 in limited range, as swscale has it.
  struct {
    AVColorSpace space;
    AVColorRange range;
    int red;
  } cases[] = {
      {AVCOL_SPC_UNSPECIFIED, AVCOL_RANGE_UNSPECIFIED, 104597}, {AVCOL_SPC_SMPTE170M, AVCOL_RANGE_MPEG, 104597},
      {AVCOL_SPC_BT709, AVCOL_RANGE_MPEG, 117489},              {AVCOL_SPC_BT709, AVCOL_RANGE_JPEG, 117489},
      {AVCOL_SPC_BT2020_NCL, AVCOL_RANGE_JPEG, 110013},         {AVCOL_SPC_FCC, AVCOL_RANGE_MPEG, 104448},
  };
  for (const auto &one : cases) {
    frame->colorspace = one.space;
    frame->color_range = one.range;
    EXPECT(planes_of(frame, planes) && planes.matrix[0] == one.red);
    EXPECT((planes.is_full == 1) == (one.range == AVCOL_RANGE_JPEG));
  }

  // The memory goes back once, when neither the reader nor who keeps it has it.
  const auto converter = std::make_shared<Converter>();
  auto *kept = new KeptFrame(frame, converter);
  EXPECT(converter.use_count() == 2);
  av_frame_free(&frame);
  EXPECT(released == 0);
  delete kept;
  EXPECT(released == 1 && converter.use_count() == 1);

  // Ten bits, and frames in memory, are converted as ever.
  frame = frame_of(AV_PIX_FMT_P010, memory.data());
  EXPECT(!planes_of(frame, planes));
  reinterpret_cast<AVHWFramesContext *>(frame->hw_frames_ctx->data)->sw_format = AV_PIX_FMT_NV12;
  EXPECT(planes_of(frame, planes));
  frame->format = AV_PIX_FMT_NV12;
  EXPECT(!planes_of(frame, planes));
  av_frame_free(&frame);
  EXPECT(released == 2);
  return 0;
}
