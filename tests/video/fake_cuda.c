/* NVIDIA's driver and its video decoder as far as FFmpeg and Ocelli use them, in host memory: each image that is decoded is bright on
   its left half. What is copied to the host, and what the decoder still has mapped at its end, is written to stderr.

   Compiled twice, as libcuda.so.1 and with DECODER as libnvcuvid.so.1, each with stubs for the rest of what FFmpeg looks up. */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef DECODER
#define CONTEXT ((void *)0x1234)

typedef struct {
    size_t from_x, from_y;
    int from_kind;
    const char *from_host;
    uint64_t from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_kind;
    char *to_host;
    uint64_t to_device;
    void *to_array;
    size_t to_pitch, width, height;
} Copy;

static _Thread_local void *current;

int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "fake %d", device); return 0; }
/* The alignment of textures, and none of the rest. */
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 14 ? 512 : 0; return device; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = CONTEXT; return device; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device; }
/* Flags with which FFmpeg does not take the context by itself. */
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { *flags = 0; *active = 1; return device; }
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxSetCurrent(void *context) { current = context; return 0; }
int cuCtxGetStreamPriorityRange(int *least, int *most) { *least = 0; *most = -1; return 0; }
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { *stream = (void *)8; return 0 * (flags + priority); }
int cuStreamCreate(void **stream, unsigned flags) { *stream = (void *)8; return 0 * flags; }
int cuEventCreate(void **event, unsigned flags) { *event = (void *)16; return 0 * flags; }
int cuGetErrorName(int error, const char **text) { *text = "FAKE"; return 0 * error; }
int cuGetErrorString(int error, const char **text) { *text = "fake"; return 0 * error; }
int cuMemAlloc_v2(uint64_t *address, size_t bytes) { *address = (uint64_t)malloc(bytes); return 0; }
int cuMemFree_v2(uint64_t address) { free((void *)address); return 0; }

int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    fprintf(stderr, "a context of its own\n");
    *context = (void *)0x99;
    return 0 * (flags + device);
}

int cuCtxPushCurrent_v2(void *context)
{
    if (context != CONTEXT)
        fprintf(stderr, "another context\n");
    current = context;
    return 0;
}

int cuMemcpy2DAsync_v2(const Copy *copy, void *stream)
{
    const char *from = copy->from_kind == 1 ? copy->from_host : (const char *)copy->from_device;
    char *to = copy->to_kind == 1 ? copy->to_host : (char *)copy->to_device;
    if (copy->to_kind == 1)
        fprintf(stderr, "a plane to the host, stream %p\n", stream);
    for (size_t y = 0; y < copy->height; y++)
        memcpy(to + (copy->to_y + y) * copy->to_pitch + copy->to_x, from + (copy->from_y + y) * copy->from_pitch + copy->from_x,
               copy->width);
    return 0;
}
#else
enum { PITCH = 1024 };

typedef struct {
    int codec, chroma;
    unsigned depth, reserved[3];
    unsigned char is_supported, engines;
    unsigned short formats;
    unsigned widest, highest, most_blocks;
    unsigned short narrowest, lowest;
} Abilities;

static unsigned long width, height;
static int mapped;

int cuvidGetDecoderCaps(Abilities *it)
{
    it->is_supported = it->engines = 1;
    it->formats = 3;
    it->widest = it->highest = 8192;
    it->most_blocks = 1 << 20;
    it->narrowest = it->lowest = 16;
    return 0;
}

int cuvidCreateDecoder(void **decoder, const unsigned long *size)
{
    width = size[0];
    height = size[1];
    *decoder = (void *)24;
    return 0;
}

int cuvidDestroyDecoder(void *decoder)
{
    fprintf(stderr, "the decoder ends with %d mapped\n", mapped);
    return decoder == NULL;
}

int cuvidMapVideoFrame64(void *decoder, int picture, uint64_t *address, unsigned *pitch, void *how)
{
    unsigned char *frame = malloc(PITCH * (height + height / 2));
    for (unsigned long y = 0; y < height; y++)
        for (unsigned long x = 0; x < PITCH; x++)
            frame[y * PITCH + x] = x < width / 2 ? 200 : 30;
    memset(frame + PITCH * height, 128, PITCH * (height / 2));
    *address = (uint64_t)frame;
    *pitch = PITCH;
    mapped++;
    return decoder == NULL || how == NULL || picture < 0;
}

int cuvidUnmapVideoFrame64(void *decoder, uint64_t address)
{
    free((void *)address);
    mapped--;
    return decoder == NULL;
}
#endif
