/* Options of the guard: texts, defaults, and the layer that is made of them. sample=N makes a sampling guard. */
#include "core/base/options.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/streams/stream_map.h"
#include "resources/builtin.h"
#include "resources/guard/internal.h"
#include "resources/sampling/sampling.h"

enum { MOST_ZONE = 64 << 10, DEFAULT_ZONE = GUARD_GRANULE, DEFAULT_QUARANTINE_BLOCKS = 4096 };

/* ---- making ---- */

static strata_status check_options(const strata_guard_options *options)
{
    const char *problem = sampling_options_problem(options);
    if (options->zone > MOST_ZONE)
        problem = "zone: a red zone has at most 64 KiB";
    else if ((unsigned)options->on_finding > STRATA_GUARD_EXIT)
        problem = "on_finding: there is no such action";
    else if ((options->no_quarantine | options->no_poison | options->no_stacks | options->no_kernel |
              options->no_debuggers) &
             ~1)
        problem = "a switch that is neither 0 nor 1";
    else if (options->no_quarantine && (options->quarantine_bytes || options->quarantine_blocks))
        problem = "limits of a quarantine that is off";
    return problem ? strata_fail(STRATA_ERROR_INVALID_VALUE, "guard: %s", problem) : STRATA_SUCCESS;
}

/* Places the batches in the pinned memory. */
static void place_batches(guard *self)
{
    char *at = self->pinned;
    for (size_t i = 0; i < GUARD_BATCHES; i++) {
        guard_batch *batch = &self->batches[i];
        batch->verdicts = (strata_guard_verdict *)(void *)at;
        at += GUARD_BATCH_PIECES * sizeof *batch->verdicts;
        batch->pieces = (strata_guard_piece *)(void *)at;
        at += GUARD_BATCH_PIECES * sizeof *batch->pieces;
        batch->copies = self->kernel.module ? NULL : (unsigned char *)at;
        at += self->kernel.module ? 0 : GUARD_COPY_BYTES;
    }
}

/* The context is current. */
static strata_status allocate_pinned(guard *self)
{
    size_t bytes = GUARD_BATCH_PIECES * (sizeof(strata_guard_verdict) + sizeof(strata_guard_piece));
    bytes += self->kernel.module ? 0 : GUARD_COPY_BYTES;
    CUresult result = strata_cu.MemHostAlloc(&self->pinned, GUARD_BATCHES * bytes, 0);
    if (result == CUDA_SUCCESS) {
        place_batches(self);
        return STRATA_SUCCESS;
    }
    self->pinned = NULL;
    return strata_fail_driver(result, "cuMemHostAlloc", "%zu bytes of pinned memory for a guard",
                              GUARD_BATCHES * bytes);
}

static strata_status make_driver_objects(guard *self)
{
    strata_scope scope;
    strata_status status = strata_internal_stream_create(self->device, false, "a stream for checks", &self->checking);
    if (status == STRATA_SUCCESS)
        status = strata_internal_stream_create(self->device, false, "a stream for frees", &self->leaving);
    if (status == STRATA_SUCCESS)
        status = strata_scope_enter(&scope, self->device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    self->timeline = strata_known_timeline(self->device, self->checking);
    if (!self->options.no_kernel)
        strata_guard_kernel_load(&self->kernel); /* after a failure, checks copy */
    status = allocate_pinned(self);
    strata_scope_leave(&scope);
    return status;
}

static void take_options(guard *self)
{
    const strata_guard_options *options = &self->options;
    uint64_t zone = options->zone ? options->zone : DEFAULT_ZONE;
    self->zone = (size_t)((zone + GUARD_GRANULE - 1) & ~(uint64_t)(GUARD_GRANULE - 1));
    self->most_bytes = options->quarantine_bytes ? options->quarantine_bytes : GUARD_QUARANTINE_BYTES;
    self->most_blocks = options->quarantine_blocks ? options->quarantine_blocks : DEFAULT_QUARANTINE_BLOCKS;
}

static strata_status create(strata_device *device, const strata_guard_options *options, strata_resource **out)
{
    guard *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a guard");
    self->resource.ops = &guard_ops;
    self->device = device;
    self->options = *options;
    findings_init(&self->log, &self->options);
    take_options(self);
    strata_lock_init(&self->lock, STRATA_RANK_GUARD);
    self->remembered = strata_host_zalloc(GUARD_REMEMBERED * sizeof *self->remembered);
    strata_status status = self->remembered ? make_driver_objects(self) : strata_fail_host_memory("a guard");
    if (status == STRATA_SUCCESS) {
        *out = &self->resource;
        return STRATA_SUCCESS;
    }
    strata_error_suppress_begin();
    guard_ops.destroy(&self->resource);
    strata_error_suppress_end(false);
    return status;
}

strata_status strata_guard_create(int ordinal, const strata_guard_options *given, strata_resource **out)
{
    strata_guard_options options;
    strata_device *device;
    strata_status status = strata_options_begin("guard", out, &options, sizeof options, given);
    if (status == STRATA_SUCCESS)
        status = check_options(&options);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    return options.sample ? sampling_create(device, &options, out) : create(device, &options, out);
}

/* ---- stack texts: a text fills the options struct ---- */

#define SWITCH "on|off"

static const strata_option guard_text_options[] = {
    {"zone", STRATA_OPTION_SIZE, offsetof(strata_guard_options, zone), NULL, "bytes of each red zone"},
    {"poison", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_poison), SWITCH, "fill fresh and freed blocks"},
    {"quarantine", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_quarantine), SWITCH,
     "hold freed blocks back"},
    {"quarantine_bytes", STRATA_OPTION_SIZE, offsetof(strata_guard_options, quarantine_bytes), NULL,
     "most bytes that are held back"},
    {"quarantine_blocks", STRATA_OPTION_UINT, offsetof(strata_guard_options, quarantine_blocks), NULL,
     "most blocks that are held back"},
    {"stacks", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_stacks), SWITCH,
     "call stacks of allocations and frees"},
    {"kernel", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_kernel), SWITCH, "check with a kernel"},
    {"debuggers", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_debuggers), SWITCH,
     "tell Valgrind of zones and freed blocks, on the simulated driver"},
    {"on_finding", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, on_finding), "report|fail|exit",
     "what follows when something was found"},
    {"sample", STRATA_OPTION_UINT, offsetof(strata_guard_options, sample), NULL,
     "one allocation in so many gets a mapping of its own, the others are left alone"},
    {"sample_blocks", STRATA_OPTION_UINT, offsetof(strata_guard_options, sample_blocks), NULL,
     "most sampled blocks at a time"},
    {"sample_bytes", STRATA_OPTION_SIZE, offsetof(strata_guard_options, sample_bytes), NULL,
     "most bytes of their mappings"},
    {"sample_range", STRATA_OPTION_SIZE, offsetof(strata_guard_options, sample_range), NULL,
     "bytes of addresses that are reserved for them"},
    {"sample_alignment", STRATA_OPTION_SIZE, offsetof(strata_guard_options, sample_alignment), NULL,
     "what their addresses are a multiple of"},
    {"sample_seed", STRATA_OPTION_UINT, offsetof(strata_guard_options, sample_seed), NULL,
     "the same choice of allocations each time"},
};

static strata_status make_guard(int device, const void *options, strata_resource **out)
{
    strata_status status = strata_guard_create(device, options, out);
    if (status == STRATA_SUCCESS)
        guard_check_at_exit(*out);
    return status;
}

const strata_layer strata_guard_layer = {
    .size = sizeof(strata_layer),
    .name = "guard",
    .help = "finds writes around blocks and to freed ones, and frees that should not be",
    .options = guard_text_options,
    .option_count = sizeof guard_text_options / sizeof guard_text_options[0],
    .options_size = sizeof(strata_guard_options),
    .create = make_guard,
};
