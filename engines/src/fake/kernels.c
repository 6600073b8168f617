/* What a GPU gives a kernel, on one thread of the host's processor: threads of a block are contexts that change places
   at barriers. They go from the first to the last and, after each barrier, the other way round, so that a barrier that
   is missing shows in the result. */

#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__ static

struct Place {
    unsigned x, y, z;
};
static struct Place threadIdx, blockIdx, blockDim, gridDim;

enum { STACK_BYTES = 64 * 1024 };
enum State { READY, WAITING, DONE };
static ucontext_t scheduler, *contexts;
static enum State *states;
static char *stacks;
static size_t room, current;

static void __syncthreads(void)
{
    const size_t self = current;
    const struct Place own = threadIdx;
    states[self] = WAITING;
    swapcontext(&contexts[self], &scheduler);
    threadIdx = own;
}

static void (*kernel_body)(void);

static void run_thread(void)
{
    kernel_body();
    states[current] = DONE;
}

static int make_room(size_t threads)
{
    if (threads <= room)
        return 1;
    free(contexts);
    free(states);
    free(stacks);
    contexts = malloc(threads * sizeof *contexts);
    states = malloc(threads * sizeof *states);
    stacks = malloc(threads * STACK_BYTES);
    room = contexts && states && stacks ? threads : 0;
    return room != 0;
}

static int run_block(size_t threads)
{
    for (size_t i = 0; i < threads; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks + i * STACK_BYTES;
        contexts[i].uc_stack.ss_size = STACK_BYTES;
        contexts[i].uc_link = &scheduler;
        makecontext(&contexts[i], run_thread, 0);
        states[i] = READY;
    }
    for (int backwards = 0;; backwards = !backwards) {
        size_t waiting = 0;
        for (size_t n = 0; n < threads; n++) {
            const size_t i = backwards ? threads - 1 - n : n;
            if (states[i] == DONE)
                continue;
            current = i;
            threadIdx.x = i % blockDim.x;
            threadIdx.y = i / blockDim.x % blockDim.y;
            threadIdx.z = i / blockDim.x / blockDim.y;
            swapcontext(&scheduler, &contexts[i]);
            waiting += states[i] == WAITING;
        }
        if (waiting == 0)
            return 0;
        if (waiting != threads)
            return 2; /* A barrier that some threads do not reach. */
    }
}

static int run_grid(void (*body)(void), const unsigned *blocks, const unsigned *threads)
{
    const size_t all = (size_t)threads[0] * threads[1] * threads[2];
    if (!make_room(all))
        return 1;
    kernel_body = body;
    gridDim = (struct Place){blocks[0], blocks[1], blocks[2]};
    blockDim = (struct Place){threads[0], threads[1], threads[2]};
    for (blockIdx.z = 0; blockIdx.z < blocks[2]; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < blocks[1]; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < blocks[0]; blockIdx.x++) {
                const int failure = run_block(all);
                if (failure)
                    return failure;
            }
    return 0;
}

/* A kernel, and beside it `run_NAME(structure, its bytes, blocks, threads)`: 0, or why not. */
#define KERNEL(name, Arguments)                                                                                        \
    static void name(const Arguments arguments);                                                                       \
    static Arguments arguments_of_##name;                                                                              \
    static void body_of_##name(void)                                                                                   \
    {                                                                                                                  \
        name(arguments_of_##name);                                                                                     \
    }                                                                                                                  \
    int run_##name(const void *bytes, size_t count, const unsigned *blocks, const unsigned *threads)                   \
    {                                                                                                                  \
        /* The last field may be followed by room that the host does not fill. */                                      \
        if (count > sizeof(Arguments) || count + 8 <= sizeof(Arguments))                                               \
            return 3;                                                                                                  \
        memcpy(&arguments_of_##name, bytes, count);                                                                    \
        return run_grid(body_of_##name, blocks, threads);                                                              \
    }                                                                                                                  \
    static void name(const Arguments arguments)
