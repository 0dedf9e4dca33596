/* An allocation and its free: stack async beside a driver pool that keeps its memory too, stack direct beside
 * cuMemAlloc and cuMemFree. */
#include "bench.h"

#include <stdlib.h>

enum { OTHER_BYTES = 4096, GROUP = 16 };

typedef struct pair_side {
    strata_runtime *runtime;
    const bare_objects *objects;
    CUstream stream;
    size_t bytes;
} pair_side;

static void drain(void *state)
{
    const pair_side *side = state;
    bare_check(bare.StreamSynchronize(side->stream), "cuStreamSynchronize");
}

static CUdeviceptr bare_allocate(const pair_side *side, size_t bytes)
{
    CUdeviceptr address;
    bare_check(bare.MemAllocFromPoolAsync(&address, bytes, side->objects->pool, side->stream),
               "cuMemAllocFromPoolAsync");
    return address;
}

static void bare_free(const pair_side *side, CUdeviceptr address)
{
    bare_check(bare.MemFreeAsync(address, side->stream), "cuMemFreeAsync");
}

static strata_block strata_allocate(const pair_side *side, size_t bytes)
{
    strata_block block;
    scene_check(strata_runtime_allocate(side->runtime, bytes, side->stream, &block), "strata_runtime_allocate");
    return block;
}

static void run_bare(void *state, size_t operations)
{
    const pair_side *side = state;
    for (size_t i = 0; i < operations; i++)
        bare_free(side, bare_allocate(side, side->bytes));
}

static void run_strata(void *state, size_t operations)
{
    const pair_side *side = state;
    for (size_t i = 0; i < operations; i++) {
        strata_block block = strata_allocate(side, side->bytes);
        scene_check(strata_runtime_deallocate(side->runtime, &block), "strata_runtime_deallocate");
    }
}

static void run_strata_unknown(void *state, size_t operations)
{
    const pair_side *side = state;
    for (size_t i = 0; i < operations; i++) {
        strata_block block = strata_allocate(side, side->bytes);
        scene_check(strata_runtime_deallocate_on(side->runtime, &block, side->stream), "strata_runtime_deallocate_on");
    }
}

/* Sixteen allocations, then sixteen frees. */
static void run_bare_groups(void *state, size_t operations)
{
    const pair_side *side = state;
    for (size_t done = 0; done < operations; done += GROUP) {
        CUdeviceptr addresses[GROUP];
        for (size_t i = 0; i < GROUP; i++)
            addresses[i] = bare_allocate(side, side->bytes);
        for (size_t i = 0; i < GROUP; i++)
            bare_free(side, addresses[i]);
    }
}

static void run_strata_groups(void *state, size_t operations)
{
    const pair_side *side = state;
    for (size_t done = 0; done < operations; done += GROUP) {
        strata_block blocks[GROUP];
        for (size_t i = 0; i < GROUP; i++)
            blocks[i] = strata_allocate(side, side->bytes);
        for (size_t i = 0; i < GROUP; i++)
            scene_check(strata_runtime_deallocate(side->runtime, &blocks[i]), "strata_runtime_deallocate");
    }
}

/* ---- blocks that live meanwhile ---- */

typedef struct others {
    size_t count;
    CUdeviceptr *addresses;
    strata_block *blocks;
} others;

static others make_others(const pair_side *bare_side, const pair_side *strata_side, size_t count)
{
    others made = {count, malloc(count * sizeof *made.addresses), malloc(count * sizeof *made.blocks)};
    if (!made.addresses || !made.blocks)
        bare_failed(CUDA_ERROR_OUT_OF_MEMORY, "malloc");
    for (size_t i = 0; i < count; i++) {
        made.addresses[i] = bare_allocate(bare_side, OTHER_BYTES);
        made.blocks[i] = strata_allocate(strata_side, OTHER_BYTES);
    }
    return made;
}

static void end_others(others *made, const pair_side *bare_side, const pair_side *strata_side)
{
    for (size_t i = 0; i < made->count; i++) {
        bare_free(bare_side, made->addresses[i]);
        scene_check(strata_runtime_deallocate_on(strata_side->runtime, &made->blocks[i], strata_side->stream),
                    "strata_runtime_deallocate_on");
    }
    free(made->addresses);
    free(made->blocks);
}

/* ---- rows ---- */

typedef struct pair_size {
    size_t bytes;
    const char *name;
} pair_size;

static const pair_size sizes[] = {
    {(size_t)1 << 10, "1 KiB"}, {(size_t)64 << 10, "64 KiB"}, {(size_t)4 << 20, "4 MiB"}, {(size_t)64 << 20, "64 MiB"}};

enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void pairs_of_size(const bench *self, const scene *stage, const bare_objects *objects, const pair_size *size,
                          size_t other_count)
{
    const bench_plan plan = {.warm = 20, .batch = 200, .batches = 5};
    pair_side bare_side = {.objects = objects, .stream = objects->streams[0], .bytes = size->bytes};
    pair_side known = {.runtime = self->late, .stream = stage->streams[0], .bytes = size->bytes};
    pair_side unknown = {.runtime = self->late, .stream = stage->unknown, .bytes = size->bytes};
    bench_side bare_run = {run_bare, drain, &bare_side};
    const char *more = other_count == 1 ? "1 other live block" : "1000 other live blocks";
    char name[REPORT_NAME_SIZE];

    others live = make_others(&bare_side, &known, other_count);
    snprintf(name, sizeof name, "async pair, known stream, %s, %s", size->name, more);
    bench_row(self, name, plan, bare_run, (bench_side){run_strata, drain, &known},
              (bench_target){REPORT_ADDS_AT_MOST, 100});
    snprintf(name, sizeof name, "async pair, unknown stream, %s, %s", size->name, more);
    bench_row(self, name, plan, bare_run, (bench_side){run_strata_unknown, drain, &unknown},
              (bench_target){REPORT_NO_TARGET, 0});
    end_others(&live, &bare_side, &known);
}

static void groups(const bench *self, const scene *stage, const bare_objects *objects)
{
    pair_side bare_side = {.objects = objects, .stream = objects->streams[0], .bytes = 64 << 10};
    pair_side known = {.runtime = self->late, .stream = stage->streams[0], .bytes = 64 << 10};
    bench_row(self, "async pair, known stream, 64 KiB, 16 allocated then 16 freed",
              (bench_plan){.warm = GROUP, .batch = (size_t)10 * GROUP, .batches = 5},
              (bench_side){run_bare_groups, drain, &bare_side}, (bench_side){run_strata_groups, drain, &known},
              (bench_target){REPORT_NO_TARGET, 0});
}

/* ---- direct ---- */

static void run_bare_direct(void *state, size_t operations)
{
    const pair_side *side = state;
    for (size_t i = 0; i < operations; i++) {
        CUdeviceptr address;
        bare_check(bare.MemAlloc(&address, side->bytes), "cuMemAlloc");
        bare_check(bare.MemFree(address), "cuMemFree");
    }
}

static void direct_pairs(const bench *self, const pair_size *size)
{
    char name[REPORT_NAME_SIZE];
    snprintf(name, sizeof name, "direct pair, known stream, %s", size->name);
    if (!bench_wants(self, name))
        return;
    pair_side side = {.runtime = self->direct, .bytes = size->bytes};
    scene_check(strata_runtime_stream_acquire(self->direct, &side.stream), "strata_runtime_stream_acquire");
    bench_row(self, name, (bench_plan){.batch = 10, .batches = 3}, (bench_side){run_bare_direct, NULL, &side},
              (bench_side){run_strata, drain, &side}, (bench_target){REPORT_NO_TARGET, 0});
    scene_check(strata_runtime_stream_release(self->direct, side.stream), "strata_runtime_stream_release");
}

/* ---- memory without a stream ---- */

static void *malloc_bytes(const pair_side *side)
{
    void *memory;
    scene_check(strata_malloc(&memory, side->bytes), "strata_malloc");
    return memory;
}

static void run_malloc(void *state, size_t operations)
{
    for (size_t i = 0; i < operations; i++)
        scene_check(strata_free(malloc_bytes(state)), "strata_free");
}

static void run_malloc_on(void *state, size_t operations)
{
    const pair_side *side = state;
    for (size_t i = 0; i < operations; i++)
        scene_check(strata_free_on(malloc_bytes(side), side->stream), "strata_free_on");
}

/* Pairs of strata_malloc and strata_free, of the process's runtime. */
static void malloc_pairs(const bench *self, const pair_size *size)
{
    const bench_plan plan = {.batch = 10, .batches = 3};
    pair_side side = {.stream = CU_STREAM_LEGACY, .bytes = size->bytes};
    char name[REPORT_NAME_SIZE];
    snprintf(name, sizeof name, "strata_malloc and strata_free, %s", size->name);
    bench_row(self, name, plan, (bench_side){run_bare_direct, NULL, &side}, (bench_side){run_malloc, NULL, &side},
              (bench_target){REPORT_NO_TARGET, 0});
    snprintf(name, sizeof name, "strata_malloc and strata_free_on, %s", size->name);
    bench_row(self, name, plan, (bench_side){run_bare_direct, NULL, &side}, (bench_side){run_malloc_on, drain, &side},
              (bench_target){REPORT_NO_TARGET, 0});
}

void bench_pairs(const bench *self)
{
    report_heading(self->report, "Allocate and deallocate, beside cuMemAllocFromPoolAsync and cuMemFreeAsync", false);
    bare_objects objects;
    scene stage;
    bare_make(&objects, 0);
    scene_make(&stage, self->late);
    for (size_t i = 0; i < SIZES; i++) {
        pairs_of_size(self, &stage, &objects, &sizes[i], 1);
        pairs_of_size(self, &stage, &objects, &sizes[i], 1000);
    }
    groups(self, &stage, &objects);
    scene_destroy(&stage);
    bare_destroy(&objects);
    report_heading(self->report, "Allocate and deallocate, beside cuMemAlloc and cuMemFree", false);
    direct_pairs(self, &sizes[0]);
    direct_pairs(self, &sizes[2]);
    malloc_pairs(self, &sizes[0]);
    malloc_pairs(self, &sizes[2]);
}
