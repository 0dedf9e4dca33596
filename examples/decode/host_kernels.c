/* The kernels of kernels.h in C, each with the bytes that it reads and writes: the simulated driver's checker looks for
 * work that should have been ordered and was not. */
#include "host_kernels.h"

#include "kernels.h"

#include <dlfcn.h>
#include <math.h>
#include <strata/sim/kernel.h>
#include <string.h>

static CUdeviceptr pointer(const strata_sim_launch *launch, unsigned which)
{
    CUdeviceptr address;
    memcpy(&address, launch->parameters[which], sizeof address);
    return address;
}

static unsigned number(const strata_sim_launch *launch, unsigned which)
{
    unsigned value;
    memcpy(&value, launch->parameters[which], sizeof value);
    return value;
}

/* Declared, and read at once. */
static const void *input(strata_sim_launch *launch, unsigned which, size_t bytes)
{
    const CUdeviceptr address = pointer(launch, which);
    return launch->declare_read(launch, address, bytes) ? launch->read(launch, address, bytes) : NULL;
}

static void *output(strata_sim_launch *launch, unsigned which, size_t bytes)
{
    const CUdeviceptr address = pointer(launch, which);
    return launch->declare_write(launch, address, bytes) ? launch->write(launch, address, bytes) : NULL;
}

static const unsigned *position_of(strata_sim_launch *launch, unsigned which)
{
    const unsigned *position = input(launch, which, sizeof *position);
    return position && *position < POSITIONS - 1 ? position : NULL;
}

static void embed(strata_sim_launch *launch)
{
    const unsigned *position = position_of(launch, 3), *tokens = input(launch, 2, POSITIONS * sizeof *tokens);
    const float *table = input(launch, 1, (size_t)WORDS * WIDTH * sizeof *table);
    float *x = output(launch, 0, WIDTH * sizeof *x);
    if (position && tokens && table && x && tokens[*position] < WORDS)
        memcpy(x, table + (size_t)tokens[*position] * WIDTH, WIDTH * sizeof *x);
}

static void normalize(strata_sim_launch *launch)
{
    const unsigned length = number(launch, 2);
    const float *x = input(launch, 1, length * sizeof *x);
    float *y = output(launch, 0, length * sizeof *y), sum = 0;
    if (!x || !y)
        return;
    for (unsigned k = 0; k < length; k++)
        sum += x[k] * x[k];
    for (unsigned k = 0; k < length; k++)
        y[k] = x[k] / sqrtf(sum / (float)length + 1e-6f);
}

static void multiply(strata_sim_launch *launch)
{
    const unsigned rows = number(launch, 3), columns = number(launch, 4), then = number(launch, 5);
    const float *w = input(launch, 1, (size_t)rows * columns * sizeof *w), *x = input(launch, 2, columns * sizeof *x);
    const float *before = then == ADD ? input(launch, 0, rows * sizeof *before) : NULL;
    float *y = output(launch, 0, rows * sizeof *y);
    for (unsigned row = 0; w && x && y && (then != ADD || before) && row < rows; row++) {
        float sum = 0;
        for (unsigned k = 0; k < columns; k++)
            sum += w[(size_t)row * columns + k] * x[k];
        y[row] = then == ADD ? before[row] + sum : then == RECTIFY && sum < 0 ? 0 : sum;
    }
}

static void attend_head(float *out, const float *query, const float *keys, const float *values, unsigned here)
{
    float scores[POSITIONS], most = -1e30f, sum = 0;
    for (unsigned p = 0; p <= here; p++) {
        scores[p] = 0;
        for (unsigned k = 0; k < HEAD; k++)
            scores[p] += query[k] * keys[(size_t)p * WIDTH + k];
        scores[p] *= 0.25f;
        most = fmaxf(most, scores[p]);
    }
    for (unsigned p = 0; p <= here; p++)
        sum += scores[p] = expf(scores[p] - most);
    for (unsigned k = 0; k < HEAD; k++) {
        out[k] = 0;
        for (unsigned p = 0; p <= here; p++)
            out[k] += scores[p] * values[(size_t)p * WIDTH + k];
        out[k] /= sum;
    }
}

static void attend(strata_sim_launch *launch)
{
    enum { CACHE = POSITIONS * WIDTH * sizeof(float) };
    const unsigned *position = position_of(launch, 4);
    const float *qkv = input(launch, 1, (size_t)3 * WIDTH * sizeof *qkv);
    const bool read = input(launch, 2, CACHE) && input(launch, 3, CACHE);
    float *keys = output(launch, 2, CACHE), *values = output(launch, 3, CACHE),
          *out = output(launch, 0, WIDTH * sizeof *out);
    if (!position || !qkv || !read || !keys || !values || !out)
        return;
    memcpy(keys + (size_t)*position * WIDTH, qkv + WIDTH, WIDTH * sizeof *keys);
    memcpy(values + (size_t)*position * WIDTH, qkv + (size_t)2 * WIDTH, WIDTH * sizeof *values);
    for (unsigned head = 0; head < HEADS; head++)
        attend_head(out + head * HEAD, qkv + head * HEAD, keys + head * HEAD, values + head * HEAD, *position);
}

static void choose(strata_sim_launch *launch)
{
    const unsigned *position = position_of(launch, 2);
    const float *scores = input(launch, 1, WORDS * sizeof *scores);
    unsigned best = 0;
    if (!position || !scores)
        return;
    const CUdeviceptr to = pointer(launch, 0) + (CUdeviceptr)(*position + 1) * sizeof best;
    unsigned *chosen = launch->declare_write(launch, to, sizeof best) ? launch->write(launch, to, sizeof best) : NULL;
    for (unsigned k = 1; k < WORDS; k++)
        best = scores[k] > scores[best] ? k : best;
    if (chosen)
        *chosen = best;
}

bool register_host_kernels(void *library)
{
    static const struct {
        const char *name;
        strata_sim_kernel kernel;
    } kernels[] = {{"decode_embed", embed},
                   {"decode_normalize", normalize},
                   {"decode_multiply", multiply},
                   {"decode_attend", attend},
                   {"decode_choose", choose}};
    PFN_strata_sim_register_kernel register_kernel;
    void *symbol = dlsym(library, "strata_sim_register_kernel");
    memcpy(&register_kernel, &symbol, sizeof symbol);
    for (size_t i = 0; symbol && i < sizeof kernels / sizeof kernels[0]; i++)
        if (register_kernel(kernels[i].name, kernels[i].kernel) != CUDA_SUCCESS)
            return false;
    return true; /* of a GPU's driver: there is nothing to register */
}
