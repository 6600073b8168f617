// FFmpeg's headers, and its errors as exceptions.

#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/avutil.h>
#include <libavutil/display.h>
#include <libavutil/hwcontext.h>
// The types that FFmpeg's header for CUDA needs of cuda.h, which nothing else does.
#define CUDA_VERSION 0
typedef void *CUcontext;
typedef void *CUstream;
#include <libavutil/hwcontext_cuda.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

#include <new>
#include <stdexcept>

inline int checked(int code) {
  if (code >= 0) return code;
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(code, text, sizeof text);
  throw std::runtime_error(text);
}

template <typename T>
T *allocated(T *pointer) {
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}
