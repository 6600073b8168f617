// The queries that may be worth a detection, so that nothing else has to leave the device.
//
// C that is CUDA C++ as well. One block does it all: scores are few (classes x queries), and a prefix sum within a block
// keeps them in the order of classes and queries without another launch. What is put before it says how many THREADS the
// block has.

// In the order in which the host sets them.
typedef struct {
    const float *logits; // [class, query]
    const float *boxes; // [class, query, xyxy]
    const float *presence; // [class], or null
    const float *thresholds; // [class]
    unsigned *selected; // a head of 8 words, the first is how many follow; then 8 words for each
    int classes;
    int queries;
} SelectArguments;

// Whether a score is above its class's threshold. What is no number is passed on too: whoever reads it says so.
static __device__ __forceinline__ int is_selected(const SelectArguments *s, int at)
{
    const int row = at / s->queries;
    float score = 1.0f / (1.0f + expf(-s->logits[at]));
    if (s->presence)
        score *= 1.0f / (1.0f + expf(-s->presence[row]));
    return !(score <= s->thresholds[row]);
}

KERNEL(select_queries, SelectArguments)
{
    __shared__ int counts[THREADS];
    const SelectArguments *s = &arguments;
    const int thread = threadIdx.x, all = s->classes * s->queries;
    const int share = (all + THREADS - 1) / THREADS;
    const int from = thread * share < all ? thread * share : all;
    const int to = from + share < all ? from + share : all;

    int own = 0;
    for (int at = from; at < to; at++)
        own += is_selected(s, at);
    counts[thread] = own;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {
        const int before = thread >= step ? counts[thread - step] : 0;
        __syncthreads();
        counts[thread] += before;
        __syncthreads();
    }

    int place = counts[thread] - own;
    for (int at = from; at < to; at++) {
        if (!is_selected(s, at))
            continue;
        const int row = at / s->queries;
        unsigned *record = s->selected + 8 * ((size_t)place + 1);
        float *values = (float *)record;
        record[0] = (unsigned)row;
        record[1] = (unsigned)(at - row * s->queries);
        values[2] = s->logits[at];
        values[3] = s->presence ? s->presence[row] : 0.0f;
        for (int edge = 0; edge < 4; edge++)
            values[4 + edge] = s->boxes[4 * (size_t)at + edge];
        place++;
    }
    if (thread == THREADS - 1)
        s->selected[0] = (unsigned)counts[thread];
}
