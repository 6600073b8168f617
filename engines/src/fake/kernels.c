/* What a GPU gives a kernel, on one thread of the host's processor: threads of a block are contexts that change places
   at barriers. They go from the first to the last and, after each barrier, the other way round, so that a barrier that
   is missing shows in the result.

   A context is made once and goes from block to block; it is left and entered by `longjmp`, as `swapcontext` asks the
   system each time. */

#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#undef _FORTIFY_SOURCE /* It takes a jump to another stack for a mistake. */
#include <math.h>
#include <setjmp.h>
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
enum State { NEW, READY, WAITING, DONE };
static jmp_buf scheduler;
static struct Thread {
    jmp_buf place;
    ucontext_t beginning;
    enum State state;
} *all_threads;
static char *stacks;
static size_t room, current;

static void (*kernel_body)(void);

/* Leaves the current thread for the scheduler, until that comes back. */
static __attribute__((noinline)) void leave(enum State state)
{
    struct Thread *self = &all_threads[current];
    self->state = state;
    if (_setjmp(self->place) == 0)
        _longjmp(scheduler, 1);
}

static __attribute__((noinline)) void enter(size_t thread)
{
    current = thread;
    if (_setjmp(scheduler) != 0)
        return;
    if (all_threads[thread].state == NEW)
        setcontext(&all_threads[thread].beginning);
    _longjmp(all_threads[thread].place, 1);
}

static __attribute__((noinline)) void __syncthreads(void)
{
    const struct Place own = threadIdx;
    leave(WAITING);
    threadIdx = own;
}

static void run_thread(void)
{
    for (;;) {
        kernel_body();
        leave(DONE);
    }
}

static int make_room(size_t threads)
{
    if (threads <= room)
        return 1;
    free(all_threads);
    free(stacks);
    all_threads = malloc(threads * sizeof *all_threads);
    stacks = malloc(threads * STACK_BYTES);
    room = all_threads && stacks ? threads : 0;
    for (size_t i = 0; i < room; i++) {
        ucontext_t *beginning = &all_threads[i].beginning;
        all_threads[i].state = NEW;
        getcontext(beginning);
        beginning->uc_stack.ss_sp = stacks + i * STACK_BYTES;
        beginning->uc_stack.ss_size = STACK_BYTES;
        beginning->uc_link = NULL;
        makecontext(beginning, run_thread, 0);
    }
    return room != 0;
}

static int run_block(size_t threads)
{
    for (size_t i = 0; i < threads; i++)
        if (all_threads[i].state != NEW)
            all_threads[i].state = READY;
    for (int backwards = 0;; backwards = !backwards) {
        size_t waiting = 0;
        for (size_t n = 0; n < threads; n++) {
            const size_t i = backwards ? threads - 1 - n : n;
            if (all_threads[i].state == DONE)
                continue;
            threadIdx.x = i % blockDim.x;
            threadIdx.y = i / blockDim.x % blockDim.y;
            threadIdx.z = i / blockDim.x / blockDim.y;
            enter(i);
            waiting += all_threads[i].state == WAITING;
        }
        if (waiting == 0)
            return 0;
        if (waiting != threads) {
            /* A barrier that some threads do not reach; those that wait there are given up. */
            room = 0;
            return 2;
        }
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
