/* A stack behind a runtime: known streams of its pool, and an unknown one. */
#include "bare.h"
#include "loops.h"
#include "scene.h"

LOOP_INLINE bool stack_allocate(peer *self, CUstream stream, size_t bytes, void *slot)
{
    strata_status status = strata_runtime_allocate(self->runtime, bytes, stream, slot);
    if (__builtin_expect(status != STRATA_SUCCESS, 0)) {
        if (status == STRATA_ERROR_OUT_OF_MEMORY || status == STRATA_ERROR_OUT_OF_BUDGET)
            return false;
        scene_failed("strata_runtime_allocate");
    }
    return true;
}

LOOP_INLINE void stack_release(peer *self, CUstream stream, void *slot)
{
    (void)stream;
    scene_check(strata_runtime_deallocate(self->runtime, slot), "strata_runtime_deallocate");
}

/* Strata orders the free after every recorded use. */
LOOP_INLINE void stack_release_elsewhere(peer *self, CUstream stream, void *slot)
{
    scene_check(strata_runtime_deallocate_on(self->runtime, slot, stream), "strata_runtime_deallocate_on");
}

#define stack_release_unknown stack_release_elsewhere

PEER_LOOPS(stack, strata_block);

static bool open_stack(peer *self, uint64_t most)
{
    char limited[PEER_TEXT_SIZE];
    const char *text = self->choice->text;
    if (most) {
        if (!peer_limit_stack(limited, sizeof limited, text, most))
            return false;
        text = limited;
    }
    const strata_runtime_config config = {.stack_text = text, .stream_capacity = (uint32_t)self->stream_count + 16};
    strata_status status = strata_runtime_create(&config, &self->runtime);
    if (most && status == STRATA_ERROR_SYNTAX)
        return false; /* an owner without a limit */
    scene_check(status, text);
    for (size_t i = 0; i < self->stream_count; i++)
        scene_check(strata_runtime_stream_acquire(self->runtime, &self->streams[i]), "strata_runtime_stream_acquire");
    strata_stack *stack = strata_runtime_stack(self->runtime);
    self->logging = strata_stack_layer(stack, "logging", 0);
    const uint32_t can = strata_resource_capabilities(strata_stack_top(stack));
    self->choice->device = (can & STRATA_CAPABILITY_DEVICE_MEMORY) != 0;
    self->choice->waits = !(can & STRATA_CAPABILITY_STREAM_ORDERED);
    return true;
}

static void close_stack(peer *self)
{
    for (size_t i = 0; i < self->stream_count; i++)
        scene_check(strata_runtime_stream_release(self->runtime, self->streams[i]), "strata_runtime_stream_release");
    scene_check(strata_runtime_destroy(self->runtime), "strata_runtime_destroy");
}

static uint64_t reserved_peak(peer *self)
{
    strata_usage usage;
    scene_check(strata_runtime_usage(self->runtime, &usage), "strata_runtime_usage");
    return usage.reserved_peak;
}

static void trim(peer *self)
{
    scene_check(strata_runtime_reap_pending(self->runtime), "strata_runtime_reap_pending");
    scene_check(strata_runtime_trim(self->runtime, 0, NULL), "strata_runtime_trim");
}

/* Empties the log's rings. */
static void collect(peer *self)
{
    if (self->logging)
        scene_check(strata_logging_flush(self->logging), "strata_logging_flush");
}

static CUdeviceptr address_of(const void *slot)
{
    return ((const strata_block *)slot)->address;
}

const peer_kind peer_stack = {
    .name = "stack",
    .slot_bytes = sizeof(strata_block),
    .streams = true,
    .open = open_stack,
    .close = close_stack,
    .address = address_of,
    .reserved_peak = reserved_peak,
    .trim = trim,
    .collect = collect,
    PEER_LOOPS_OF(stack),
};
