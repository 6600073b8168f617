/* Runs the kernels of preprocess.cu on the CPU, for a test. What CUDA provides is defined here, before the kernels, and
   `main` after them; see tests.rs.

   The threads of a block are contexts that switch at barriers. They run in ascending order and, after each barrier, in
   the opposite order, so that a missing barrier changes the result. */

#ifndef KERNEL
#define _XOPEN_SOURCE 700
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define KERNEL(name, Arguments) static void name(const Arguments arguments)
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__ static

static struct {
    unsigned x, y;
} threadIdx, blockIdx;
static void __syncthreads(void);

#else

enum { THREADS = TILE_WIDTH * THREAD_ROWS, STACK_BYTES = 64 * 1024 };
enum State { READY, WAITING, FINISHED };
static ucontext_t scheduler, contexts[THREADS];
static enum State states[THREADS];
static char stacks[THREADS][STACK_BYTES];
static unsigned current;

static void (*kernel)(const PreprocessArguments);
static PreprocessArguments arguments;

static void __syncthreads(void)
{
    states[current] = WAITING;
    swapcontext(&contexts[current], &scheduler);
}

static void run_thread(void)
{
    kernel(arguments);
    states[current] = FINISHED;
}

static void run_block(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = STACK_BYTES;
        contexts[i].uc_link = &scheduler;
        makecontext(&contexts[i], run_thread, 0);
        states[i] = READY;
    }
    for (int descending = 0;; descending = !descending) {
        unsigned waiting = 0;
        for (unsigned n = 0; n < THREADS; n++) {
            current = descending ? THREADS - 1 - n : n;
            if (states[current] == FINISHED)
                continue;
            threadIdx.x = current % TILE_WIDTH;
            threadIdx.y = current / TILE_WIDTH;
            swapcontext(&scheduler, &contexts[current]);
            waiting += states[current] == WAITING;
        }
        if (waiting == 0)
            return;
        if (waiting != THREADS) {
            fputs("a barrier is not reached by all threads of a block\n", stderr);
            exit(1);
        }
    }
}

static void *read_bytes(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory || fread(memory, 1, bytes, stdin) != bytes) {
        fputs("the input is truncated\n", stderr);
        exit(1);
    }
    return memory;
}

/* Reads one case after the other: the kernel's number, the bytes of image, tables, square and chroma, and the arguments with
   empty addresses, then image, tables and chroma. Without bytes of its own, chroma is at the image's address. Writes the square. */
int main(void)
{
    void (*const kernels[])(const PreprocessArguments) = {preprocess_interleaved, preprocess_gray, preprocess_nv12};
    unsigned header[6];
    while (fread(header, sizeof header, 1, stdin) == 1) {
        kernel = kernels[header[0]];
        PreprocessArguments *given = read_bytes(sizeof arguments);
        arguments = *given;
        unsigned char *image = read_bytes(header[1]);
        int *across = read_bytes(header[2]), *along = read_bytes(header[3]);
        unsigned char *chroma = header[5] ? read_bytes(header[5]) : NULL;
        void *square = calloc(header[4], 1);
        arguments.image = image;
        arguments.chroma = chroma ? chroma : image;
        arguments.across = across;
        arguments.along = along;
        arguments.square = square;
        for (blockIdx.y = 0; blockIdx.y * TILE_HEIGHT < (unsigned)arguments.side; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x * TILE_WIDTH < (unsigned)arguments.side; blockIdx.x++)
                run_block();
        fwrite(square, 1, header[4], stdout);
        fflush(stdout);
        free(given);
        free(image);
        free(chroma);
        free(across);
        free(along);
        free(square);
    }
    return 0;
}
#endif
