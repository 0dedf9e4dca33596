/* The kernels of kernels.h for a GPU. A row, a head, a position of the cache has one thread each: the example is about
 * memory and launches, not about the fastest product. */
#include "kernels.h"

static __device__ unsigned thread()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

extern "C" __global__ void decode_embed(float *x, const float *table, const unsigned *tokens, const unsigned *position)
{
    unsigned i = thread();
    if (i < WIDTH)
        x[i] = table[(size_t)tokens[*position] * WIDTH + i];
}

extern "C" __global__ void decode_normalize(float *y, const float *x, unsigned length)
{
    unsigned i = thread();
    float sum = 0;
    if (i >= length)
        return;
    for (unsigned k = 0; k < length; k++)
        sum += x[k] * x[k];
    y[i] = x[i] / sqrtf(sum / length + 1e-6f);
}

extern "C" __global__ void decode_multiply(float *y, const float *w, const float *x, unsigned rows, unsigned columns,
                                           unsigned then)
{
    unsigned row = thread();
    float sum = 0;
    if (row >= rows)
        return;
    for (unsigned k = 0; k < columns; k++)
        sum += w[(size_t)row * columns + k] * x[k];
    y[row] = then == ADD ? y[row] + sum : then == RECTIFY && sum < 0 ? 0 : sum;
}

extern "C" __global__ void decode_attend(float *out, const float *qkv, float *keys, float *values,
                                         const unsigned *position)
{
    unsigned head = thread(), here = *position;
    float scores[POSITIONS], most = -1e30f, sum = 0;
    if (head >= HEADS)
        return;
    const float *query = qkv + head * HEAD, *key = query + WIDTH, *value = key + WIDTH;
    for (unsigned k = 0; k < HEAD; k++) {
        keys[(size_t)here * WIDTH + head * HEAD + k] = key[k];
        values[(size_t)here * WIDTH + head * HEAD + k] = value[k];
    }
    for (unsigned p = 0; p <= here; p++) {
        float score = 0;
        for (unsigned k = 0; k < HEAD; k++)
            score += query[k] * keys[(size_t)p * WIDTH + head * HEAD + k];
        scores[p] = score * 0.25f; /* 1 / sqrt(HEAD) */
        most = fmaxf(most, scores[p]);
    }
    for (unsigned p = 0; p <= here; p++)
        sum += scores[p] = expf(scores[p] - most);
    for (unsigned k = 0; k < HEAD; k++) {
        float mixed = 0;
        for (unsigned p = 0; p <= here; p++)
            mixed += scores[p] * values[(size_t)p * WIDTH + head * HEAD + k];
        out[head * HEAD + k] = mixed / sum;
    }
}

extern "C" __global__ void decode_choose(unsigned *tokens, const float *scores, const unsigned *position)
{
    unsigned best = 0;
    if (thread())
        return;
    for (unsigned k = 1; k < WORDS; k++)
        best = scores[k] > scores[best] ? k : best;
    tokens[*position + 1] = best;
}
