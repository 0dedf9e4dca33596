/* A decode loop: a small transformer layer chooses one word after another, each from all words before it. Step by step
 * the same kernels run on the same weights, with another position: that is a graph with a scalar.
 *
 * The loop runs twice, with the kernels launched one by one and as one graph. Both take their temporaries from the
 * stack by strata_runtime_allocate; of the graph they come once, from its capture's pool. The position is a
 * strata_scalar: the host sets it before each launch and does not wait for the launches before. Both must choose the
 * same words.
 *
 * kernels.cu runs on a GPU, host_kernels.c on the simulated driver. */
#include "../cuda_calls.h"

#include "host_kernels.h"
#include "kernels.h"

#include <stdlib.h>
#include <strata/graphed.h>
#include <time.h>

enum { STEPS = POSITIONS - 2, THREADS = 128 };

static const char ptx[] = {
#include "decode_kernels_ptx.inc"
};

static cuda_calls cu;
static CUresult (*launch_kernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 CUstream, void **, void **);
static CUfunction embed, normalize, multiply, attend, choose;

/* Blocks that live as long as the loop. */
typedef struct model {
    strata_runtime *runtime;
    CUstream stream;
    strata_block table, qkv, project, expand, contract, score, keys, values, tokens;
    strata_scalar *position;
    CUdeviceptr position_address;
} model;

/* ---- launches ---- */

typedef struct use {
    const strata_block *block;
    strata_access access;
} use;

/* A launch of `threads` threads, with its blocks, and with the position if it reads that. After a failure the later
 * ones do nothing. */
static strata_status run(const model *self, strata_status before, CUfunction kernel, unsigned threads,
                         void **parameters, const use *uses, size_t count, bool with_position)
{
    strata_launch launch;
    if (before != STRATA_SUCCESS)
        return before;
    strata_status status = strata_launch_begin(&launch, self->runtime, self->stream, STRATA_LAUNCH_STRICT);
    if (status != STRATA_SUCCESS)
        return status;
    for (size_t i = 0; i < count && status == STRATA_SUCCESS; i++)
        status = strata_launch_use(&launch, uses[i].block, uses[i].access);
    if (status == STRATA_SUCCESS && with_position)
        status = strata_launch_use_scalar(&launch, self->position, STRATA_ACCESS_READ);
    if (status == STRATA_SUCCESS)
        status = strata_launch_preflight(&launch);
    if (status == STRATA_SUCCESS) {
        const CUresult result = launch_kernel(kernel, (threads + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0,
                                              self->stream, parameters, NULL);
        status = result == CUDA_SUCCESS ? strata_launch_commit(&launch) : strata_launch_cancel(&launch);
        if (result != CUDA_SUCCESS)
            status = STRATA_ERROR_DRIVER;
    }
    strata_launch_end(&launch);
    return status;
}

static strata_status run_normalize(const model *self, strata_status before, strata_block *y, strata_block *x,
                                   unsigned length)
{
    void *parameters[] = {&y->address, &x->address, &length};
    const use uses[] = {{y, STRATA_ACCESS_WRITE}, {x, STRATA_ACCESS_READ}};
    return run(self, before, normalize, length, parameters, uses, 2, false);
}

static strata_status run_multiply(const model *self, strata_status before, strata_block *y, const strata_block *w,
                                  strata_block *x, unsigned rows, unsigned columns, unsigned then)
{
    CUdeviceptr weights = w->address;
    void *parameters[] = {&y->address, &weights, &x->address, &rows, &columns, &then};
    const use uses[] = {{y, then == ADD ? STRATA_ACCESS_READ_WRITE : STRATA_ACCESS_WRITE},
                        {w, STRATA_ACCESS_READ},
                        {x, STRATA_ACCESS_READ}};
    return run(self, before, multiply, rows, parameters, uses, 3, false);
}

static strata_status run_embed(const model *self, strata_status before, strata_block *x)
{
    CUdeviceptr table = self->table.address, tokens = self->tokens.address, position = self->position_address;
    void *parameters[] = {&x->address, &table, &tokens, &position};
    const use uses[] = {
        {x, STRATA_ACCESS_WRITE}, {&self->table, STRATA_ACCESS_READ}, {&self->tokens, STRATA_ACCESS_READ}};
    return run(self, before, embed, WIDTH, parameters, uses, 3, true);
}

static strata_status run_attend(const model *self, strata_status before, strata_block *out, strata_block *qkv)
{
    CUdeviceptr keys = self->keys.address, values = self->values.address, position = self->position_address;
    void *parameters[] = {&out->address, &qkv->address, &keys, &values, &position};
    const use uses[] = {{out, STRATA_ACCESS_WRITE},
                        {qkv, STRATA_ACCESS_READ},
                        {&self->keys, STRATA_ACCESS_READ_WRITE},
                        {&self->values, STRATA_ACCESS_READ_WRITE}};
    return run(self, before, attend, HEADS, parameters, uses, 4, true);
}

static strata_status run_choose(const model *self, strata_status before, strata_block *scores)
{
    CUdeviceptr tokens = self->tokens.address, position = self->position_address;
    void *parameters[] = {&tokens, &scores->address, &position};
    const use uses[] = {{&self->tokens, STRATA_ACCESS_WRITE}, {scores, STRATA_ACCESS_READ}};
    return run(self, before, choose, 1, parameters, uses, 2, true);
}

/* ---- a step ---- */

static strata_status take(const model *self, strata_status before, size_t floats, strata_block *out)
{
    *out = (strata_block){0};
    return before == STRATA_SUCCESS ? strata_runtime_allocate(self->runtime, floats * sizeof(float), self->stream, out)
                                    : before;
}

/* Freed as soon as the last kernel that reads it is submitted; also after a failure. */
static strata_status give(const model *self, strata_status before, strata_block *block)
{
    const strata_status freed = strata_runtime_deallocate_on(self->runtime, block, self->stream);
    return before == STRATA_SUCCESS ? freed : before;
}

static strata_status step(strata_runtime *runtime, CUstream stream, void *data)
{
    const model *self = data;
    strata_block x, normal, wide;
    strata_status status = STRATA_SUCCESS;
    (void)runtime;
    (void)stream;
    status = take(self, status, WIDTH, &x);
    status = take(self, status, WIDTH, &normal);
    status = run_embed(self, status, &x);

    status = run_normalize(self, status, &normal, &x, WIDTH); /* attention */
    status = take(self, status, 3 * WIDTH, &wide);
    status = run_multiply(self, status, &wide, &self->qkv, &normal, 3 * WIDTH, WIDTH, STORE);
    status = run_attend(self, status, &normal, &wide);
    status = give(self, status, &wide);
    status = run_multiply(self, status, &x, &self->project, &normal, WIDTH, WIDTH, ADD);

    status = run_normalize(self, status, &normal, &x, WIDTH); /* feed forward */
    status = take(self, status, HIDDEN, &wide);
    status = run_multiply(self, status, &wide, &self->expand, &normal, HIDDEN, WIDTH, RECTIFY);
    status = run_multiply(self, status, &x, &self->contract, &wide, WIDTH, HIDDEN, ADD);
    status = give(self, status, &wide);

    status = run_normalize(self, status, &normal, &x, WIDTH); /* the next word */
    status = give(self, status, &x);
    status = take(self, status, WORDS, &wide);
    status = run_multiply(self, status, &wide, &self->score, &normal, WORDS, WIDTH, STORE);
    status = give(self, status, &normal);
    status = run_choose(self, status, &wide);
    return give(self, status, &wide);
}

/* ---- the loop ---- */

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

/* Word 0 is given. With a graph, launched, else kernel by kernel. */
static strata_status decode(model *self, strata_graph *graph, unsigned words[POSITIONS])
{
    struct timespec start;
    strata_status status = STRATA_SUCCESS;
    timespec_get(&start, TIME_UTC);
    for (unsigned position = 0; position < STEPS && status == STRATA_SUCCESS; position++) {
        status = strata_scalar_set(self->position, &position, self->stream);
        if (status == STRATA_SUCCESS)
            status = graph ? strata_graph_launch(graph, self->stream) : step(self->runtime, self->stream, self);
    }
    const double submitted = seconds_since(&start);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_prepare_block_use(self->runtime, &self->tokens, self->stream, STRATA_ACCESS_READ);
    if (status == STRATA_SUCCESS) {
        const CUresult result =
            cu.MemcpyDtoHAsync(words, self->tokens.address, POSITIONS * sizeof *words, self->stream);
        status = strata_runtime_finish_block_use(self->runtime, &self->tokens, self->stream, STRATA_ACCESS_READ);
        if (result != CUDA_SUCCESS)
            status = STRATA_ERROR_DRIVER;
    }
    if (status == STRATA_SUCCESS)
        status = strata_runtime_stream_synchronize(self->runtime, self->stream);
    printf("%-12s %d steps: %.1f us a step to submit, %.1f us in all\n", graph ? "as a graph" : "one by one", STEPS,
           submitted / STEPS * 1e6, seconds_since(&start) / STEPS * 1e6);
    return status;
}

/* ---- the model ---- */

/* A block of random numbers between -scale and scale; scale 0: of zeros. */
static bool fill(model *self, strata_block *block, size_t floats, float scale)
{
    static unsigned random = 1;
    float *numbers = malloc(floats * sizeof *numbers);
    if (!numbers ||
        strata_runtime_allocate(self->runtime, floats * sizeof *numbers, self->stream, block) != STRATA_SUCCESS) {
        free(numbers);
        return false;
    }
    for (size_t i = 0; i < floats; i++) {
        random = random * 1664525 + 1013904223;
        numbers[i] = scale > 0 ? scale * ((float)(random >> 8) / (float)(1 << 23) - 1) : 0;
    }
    bool filled =
        strata_runtime_prepare_block_use(self->runtime, block, self->stream, STRATA_ACCESS_WRITE) == STRATA_SUCCESS &&
        cu.MemcpyHtoDAsync(block->address, numbers, floats * sizeof *numbers, self->stream) == CUDA_SUCCESS;
    filled &=
        strata_runtime_finish_block_use(self->runtime, block, self->stream, STRATA_ACCESS_WRITE) == STRATA_SUCCESS;
    filled &= cu.StreamSynchronize(self->stream) == CUDA_SUCCESS; /* the copy has read the numbers */
    free(numbers);
    return filled;
}

static bool make_model(model *self)
{
    const unsigned zero = 0;
    const float scale = 0.15f;
    return strata_runtime_stream_acquire(self->runtime, &self->stream) == STRATA_SUCCESS &&
           fill(self, &self->table, (size_t)WORDS * WIDTH, 1) &&
           fill(self, &self->qkv, (size_t)3 * WIDTH * WIDTH, scale) &&
           fill(self, &self->project, (size_t)WIDTH * WIDTH, scale) &&
           fill(self, &self->expand, (size_t)HIDDEN * WIDTH, scale) &&
           fill(self, &self->contract, (size_t)WIDTH * HIDDEN, scale) &&
           fill(self, &self->score, (size_t)WORDS * WIDTH, 1) &&
           fill(self, &self->keys, (size_t)POSITIONS * WIDTH, 0) &&
           fill(self, &self->values, (size_t)POSITIONS * WIDTH, 0) && fill(self, &self->tokens, POSITIONS, 0) &&
           strata_scalar_create(self->runtime, STRATA_ELEMENT_U32, &zero, self->stream, &self->position) ==
               STRATA_SUCCESS &&
           strata_scalar_address(self->position, &self->position_address) == STRATA_SUCCESS;
}

static bool end_model(model *self)
{
    strata_block *const blocks[] = {&self->table, &self->qkv,  &self->project, &self->expand, &self->contract,
                                    &self->score, &self->keys, &self->values,  &self->tokens};
    bool ended = strata_scalar_destroy(self->position) == STRATA_SUCCESS;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        ended &= strata_runtime_deallocate(self->runtime, blocks[i]) == STRATA_SUCCESS;
    return (strata_runtime_stream_release(self->runtime, self->stream) == STRATA_SUCCESS) & ended;
}

static bool load_kernels(void)
{
    static const struct {
        const char *name;
        CUfunction *function;
    } kernels[] = {{"decode_embed", &embed},
                   {"decode_normalize", &normalize},
                   {"decode_multiply", &multiply},
                   {"decode_attend", &attend},
                   {"decode_choose", &choose}};
    CUresult (*load)(CUmodule *, const void *);
    CUresult (*get)(CUfunction *, CUmodule, const char *);
    CUmodule module;
    strata_driver_info driver;
    if (strata_driver_get_info(&driver) != STRATA_SUCCESS ||
        !register_host_kernels(dlopen(driver.library, RTLD_NOW | RTLD_NOLOAD)) ||
        !cuda_find(cu.get_proc_address, "cuModuleLoadData", 2000, &load) ||
        !cuda_find(cu.get_proc_address, "cuModuleGetFunction", 2000, &get) ||
        !cuda_find(cu.get_proc_address, "cuLaunchKernel", 4000, &launch_kernel) || load(&module, ptx) != CUDA_SUCCESS)
        return false;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (get(kernels[i].function, module, kernels[i].name) != CUDA_SUCCESS)
            return false;
    return true;
}

static void print_text(const char *text, size_t length, void *unused)
{
    (void)unused;
    fwrite(text, 1, length, stdout);
}

static bool decode_both(model *self)
{
    static unsigned words[2][POSITIONS];
    strata_graph *graph = NULL;
    bool done = decode(self, NULL, words[0]) == STRATA_SUCCESS &&
                strata_capture_into(self->runtime, self->stream, STRATA_CAPTURE_GLOBAL, NULL, NULL, step, self,
                                    &graph) == STRATA_SUCCESS &&
                decode(self, graph, words[1]) == STRATA_SUCCESS;
    strata_graph_print(graph, print_text, NULL);
    done &= strata_graph_destroy(graph) == STRATA_SUCCESS;
    printf("\nwords");
    for (int i = 0; i < 12; i++)
        printf(" %u", words[1][i]);
    printf(" ...\n");
    return done && memcmp(words[0], words[1], sizeof words[0]) == 0;
}

int main(void)
{
    model self = {0};
    if (!cuda_open(&cu) || strata_runtime_create(NULL, &self.runtime) != STRATA_SUCCESS)
        return EXIT_FAILURE;
    bool done = load_kernels() && make_model(&self) && decode_both(&self);
    done = end_model(&self) && done;
    done &= strata_runtime_destroy(self.runtime) == STRATA_SUCCESS;
    if (!done)
        fprintf(stderr, "%s\n", strata_last_error()->message);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
