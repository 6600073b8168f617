// Resizes an image of 8-bit pixels to a square and normalises it, in one pass over the image.
//
// The source is CUDA C++ and C: it is compiled by NVRTC when a program starts, and for the CPU in a test.
//
// A block of TILE_WIDTH x THREAD_ROWS threads computes a tile of TILE_WIDTH x TILE_HEIGHT values of the square. It walks
// the lines of the image that the tile needs, BAND at a time: the first pass stores them, TILE_WIDTH wide and rounded, in
// shared memory, and the second adds them up in registers. So the image between the passes never exists as a whole, and
// images of any size need the same memory. A line is filtered again only where tiles overlap (2 lines in 16 for
// enlarging, one in eight for shrinking). Neighbouring threads read neighbouring pixels and write neighbouring values.

#ifndef KERNEL
#define KERNEL(name, Arguments) extern "C" __global__ void name(const __grid_constant__ Arguments arguments)
#endif

#define TILE_WIDTH 32
#define TILE_HEIGHT 16
#define THREAD_ROWS 8
#define BAND 32

enum Format { INTERLEAVED, GRAY, NV12 };

// In the order in which the host fills them in.
typedef struct {
    const unsigned char *image;
    // Of NV12: blue and red in turn. Its first row is `chroma_top` rows behind.
    const unsigned char *chroma;
    // For each value along the square's side: its first pixel, the number of pixels, and their weights [tap, value].
    const int *across;
    const int *along;
    // [rgb, side, side].
    float *square;
    int width;
    int height;
    int stride;
    int side;
    // Fractional bits of the weights.
    int across_digits;
    int along_digits;
    // Whether the first pass is the vertical one.
    int down_first;
    int blue_first;
    int chroma_stride;
    int chroma_top;
    // The luma of black, and the shares of luma and chroma in RGB with 20 fractional bits.
    int black;
    int from_luma;
    int red_from_v;
    int green_from_v;
    int green_from_u;
    int blue_from_u;
    // Of red, green and blue, on the scale of levels.
    float mean[3];
    float deviation[3];
} PreprocessArguments;

static __device__ __forceinline__ int level_of(int sum)
{
    sum >>= 20;
    return sum < 0 ? 0 : sum > 255 ? 255 : sum;
}

// Red, green and blue, or blue, green and red, of one pixel.
static __device__ __forceinline__ void read_pixel(const PreprocessArguments *p, enum Format format, int x, int y, int pixel[3])
{
    const unsigned char *row = p->image + (size_t)y * p->stride;
    if (format == INTERLEAVED) {
        pixel[0] = row[3 * x];
        pixel[1] = row[3 * x + 1];
        pixel[2] = row[3 * x + 2];
    } else if (format == GRAY) {
        pixel[0] = pixel[1] = pixel[2] = row[x];
    } else {
        const unsigned char *chroma = p->chroma + ((size_t)p->chroma_top + y / 2) * p->chroma_stride + (x & ~1);
        const int u = chroma[0] - 128, v = chroma[1] - 128;
        int luma = row[x] - p->black;
        luma = (luma < 0 ? 0 : luma) * p->from_luma + (1 << 19);
        pixel[0] = level_of(luma + p->red_from_v * v);
        pixel[1] = level_of(luma + p->green_from_v * v + p->green_from_u * u);
        pixel[2] = level_of(luma + p->blue_from_u * u);
    }
}

static __device__ __forceinline__ int rounded(int sum, int digits)
{
    const int value = sum >> digits;
    return value > 255 ? 255 : value;
}

static __device__ __forceinline__ void preprocess(const PreprocessArguments *p, enum Format format)
{
    __shared__ unsigned char band[BAND][3][TILE_WIDTH];
    const int side = p->side, column = threadIdx.x;
    const int first = blockIdx.y * TILE_HEIGHT, end = first + TILE_HEIGHT < side ? first + TILE_HEIGHT : side;
    const int lines_from = p->along[first], lines_to = p->along[end - 1] + p->along[side + end - 1];

    const int x = blockIdx.x * TILE_WIDTH + column;
    const int inside = x < side;
    const int start = inside ? p->across[x] : 0, taps = inside ? p->across[side + x] : 0;
    const int *across = p->across + 2 * (size_t)side + x;
    const int across_half = 1 << (p->across_digits - 1), along_half = 1 << (p->along_digits - 1);

    int sums[TILE_HEIGHT / THREAD_ROWS][3];
    for (int part = 0; part < TILE_HEIGHT / THREAD_ROWS; part++)
        for (int c = 0; c < 3; c++)
            sums[part][c] = along_half;

    for (int top = lines_from; top < lines_to; top += BAND) {
        const int bottom = top + BAND < lines_to ? top + BAND : lines_to;
        for (int line = top + (int)threadIdx.y; inside && line < bottom; line += THREAD_ROWS) {
            int sum[3] = {across_half, across_half, across_half};
            for (int tap = 0; tap < taps; tap++) {
                const int weight = across[(size_t)tap * side], at = start + tap;
                int pixel[3];
                read_pixel(p, format, p->down_first ? line : at, p->down_first ? at : line, pixel);
                for (int c = 0; c < 3; c++)
                    sum[c] += weight * pixel[c];
            }
            for (int c = 0; c < 3; c++)
                band[line - top][c][column] = (unsigned char)rounded(sum[c], p->across_digits);
        }
        __syncthreads();
        for (int part = 0; part < TILE_HEIGHT / THREAD_ROWS; part++) {
            const int y = first + part * THREAD_ROWS + (int)threadIdx.y;
            if (y >= end)
                continue;
            const int from = p->along[y], to = from + p->along[side + y];
            const int *along = p->along + 2 * (size_t)side + y;
            for (int line = from > top ? from : top; line < (to < bottom ? to : bottom); line++) {
                const int weight = along[(size_t)(line - from) * side];
                for (int c = 0; c < 3; c++)
                    sums[part][c] += weight * band[line - top][c][column];
            }
        }
        // Before the band is filled again.
        __syncthreads();
    }

    for (int part = 0; part < TILE_HEIGHT / THREAD_ROWS; part++) {
        const int y = first + part * THREAD_ROWS + (int)threadIdx.y;
        if (!inside || y >= end)
            continue;
        for (int c = 0; c < 3; c++) {
            const int plane = p->blue_first ? 2 - c : c;
            const int level = rounded(sums[part][c], p->along_digits);
            const float value = ((float)level - p->mean[plane]) / p->deviation[plane];
            const size_t at = ((size_t)plane * side + (p->down_first ? x : y)) * side + (p->down_first ? y : x);
            p->square[at] = value;
        }
    }
}

KERNEL(preprocess_interleaved, PreprocessArguments)
{
    preprocess(&arguments, INTERLEAVED);
}

KERNEL(preprocess_gray, PreprocessArguments)
{
    preprocess(&arguments, GRAY);
}

KERNEL(preprocess_nv12, PreprocessArguments)
{
    preprocess(&arguments, NV12);
}
