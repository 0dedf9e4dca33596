/* Options of the guard. sample=N makes a sampling guard. */
#include "core/base/options.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/streams/internal_streams.h"
#include "core/streams/known_streams.h"
#include "resources/builtin.h"
#include "resources/guard/internal.h"
#include "resources/sampling/sampling.h"

enum { MOST_ZONE = 64 << 10, DEFAULT_ZONE = GUARD_GRANULE, DEFAULT_QUARANTINE_BLOCKS = 4096 };

/* ---- making ---- */

static strata_status check_options(const strata_guard_options *options)
{
    const char *problem = sampling_options_problem(options);
    if (options->zone > MOST_ZONE)
        problem = "zone: at most 64 KiB";
    else if ((unsigned)options->on_finding > STRATA_GUARD_EXIT)
        problem = "on_finding: invalid action";
    else if ((options->no_quarantine | options->no_poison | options->no_stacks | options->no_kernel |
              options->no_debuggers) &
             ~1)
        problem = "invalid switch: expected 0 or 1";
    else if (options->no_quarantine && (options->quarantine_bytes || options->quarantine_blocks))
        problem = "quarantine limits need quarantine=on";
    return problem ? strata_fail(STRATA_ERROR_INVALID_VALUE, "guard: %s", problem) : STRATA_SUCCESS;
}

/* Divides the pinned memory among the batches. */
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

/* Allocates the batches' pinned memory. The context is current. */
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
    return strata_fail_driver(result, "cuMemHostAlloc", "%s of pinned memory for a guard",
                              strata_size_text(GUARD_BATCHES * bytes).text);
}

static strata_status make_driver_objects(guard *self)
{
    strata_call_scope scope;
    strata_status status = strata_internal_stream_create(self->device, false, "a stream for checks", &self->checking);
    if (status == STRATA_SUCCESS)
        status = strata_internal_stream_create(self->device, false, "a stream for frees", &self->leaving);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    self->timeline = strata_known_timeline(self->device, self->checking);
    if (!self->options.no_kernel)
        self->kernel_result = strata_guard_kernel_load(&self->kernel, &self->kernel_call); /* else checks copy */
    status = allocate_pinned(self);
    strata_call_scope_leave(&scope);
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

/* ---- stack texts ---- */

#define SWITCH "on|off"

static const strata_option guard_text_options[] = {
    {"zone", STRATA_OPTION_SIZE, offsetof(strata_guard_options, zone), NULL, "bytes of each red zone"},
    {"poison", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_poison), SWITCH, "fill fresh and freed blocks"},
    {"quarantine", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_quarantine), SWITCH,
     "quarantine freed blocks"},
    {"quarantine_bytes", STRATA_OPTION_SIZE, offsetof(strata_guard_options, quarantine_bytes), NULL,
     "most bytes in quarantine"},
    {"quarantine_blocks", STRATA_OPTION_UINT, offsetof(strata_guard_options, quarantine_blocks), NULL,
     "most blocks in quarantine"},
    {"stacks", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_stacks), SWITCH,
     "record call stacks of allocations and frees"},
    {"kernel", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_kernel), SWITCH,
     "check with a kernel, else with copies"},
    {"debuggers", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_debuggers), SWITCH,
     "announce zones and freed blocks to Valgrind, on the simulated driver"},
    {"on_finding", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, on_finding), "report|fail|exit",
     "action on a finding"},
    {"sample", STRATA_OPTION_UINT, offsetof(strata_guard_options, sample), NULL,
     "one allocation in so many gets a guarded mapping, the others none"},
    {"sample_blocks", STRATA_OPTION_UINT, offsetof(strata_guard_options, sample_blocks), NULL,
     "most sampled blocks at a time"},
    {"sample_bytes", STRATA_OPTION_SIZE, offsetof(strata_guard_options, sample_bytes), NULL,
     "most bytes of their mappings"},
    {"sample_range", STRATA_OPTION_SIZE, offsetof(strata_guard_options, sample_range), NULL,
     "bytes of addresses reserved for them"},
    {"sample_alignment", STRATA_OPTION_SIZE, offsetof(strata_guard_options, sample_alignment), NULL, "their alignment"},
    {"sample_seed", STRATA_OPTION_UINT, offsetof(strata_guard_options, sample_seed), NULL,
     "seed of the choice of allocations"},
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
    .help = "detects overruns, use after free and invalid frees",
    .options = guard_text_options,
    .option_count = sizeof guard_text_options / sizeof guard_text_options[0],
    .options_size = sizeof(strata_guard_options),
    .create = make_guard,
};
