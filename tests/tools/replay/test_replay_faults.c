/* Replays on stacks with a planted fault: each must be told. Always on the simulated driver, which runs work as late as
 * it may, so that memory which is handed out too early shows.
 *
 * The broken owner of memory hands out pieces of one range. Sound, it waits for a block's uses before it hands its
 * bytes out again; the faults leave that out, or let pieces share a byte, or lose or refuse a free. */
#include "support/replay.h"

#include "core/streams/device.h"
#include "driver/driver.h"
#include "tools/replay/replay_engine.h"

#include <strata/strata.h>

#include <pthread.h>

typedef enum planted {
    SOUND,
    SHARES_A_BYTE,    /* every fourth block begins on the last byte of the block before it */
    REUSES_TOO_EARLY, /* freed memory is handed out before other streams have finished with it */
    FORGETS_A_FREE,   /* every tenth free succeeds and does nothing */
    REFUSES_A_FREE,   /* every tenth free fails */
    REFUSES_A_USE,    /* every tenth prepare fails */
} planted;

enum { RANGE = 64 << 20, SPARE_LIMIT = 4096, GRANULE = 256 };

typedef struct broken {
    strata_resource base;
    planted fault;
    strata_device *device;
    CUdeviceptr range;
    pthread_mutex_t lock; /* guards the rest */
    size_t used;
    uint64_t allocations, frees, uses;
    size_t live_blocks, live_bytes;
    struct {
        CUdeviceptr address;
        size_t bytes;
    } spare[SPARE_LIMIT]; /* freed pieces */
    size_t spare_count;
} broken;

static broken *self_of(strata_resource *resource)
{
    return (broken *)resource;
}

/* A freed piece of that size, or the next of the range; 0 if there is none. */
static CUdeviceptr take(broken *self, size_t bytes)
{
    for (size_t i = 0; i < self->spare_count; i++) {
        if (self->spare[i].bytes == bytes) {
            CUdeviceptr address = self->spare[i].address;
            self->spare[i] = self->spare[--self->spare_count];
            return address;
        }
    }
    if (self->used + bytes > RANGE)
        return 0;
    CUdeviceptr address = self->range + self->used;
    self->used += bytes;
    if (self->fault == SHARES_A_BYTE && self->allocations % 4 == 3)
        address--;
    return address;
}

static strata_status broken_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    broken *self = self_of(resource);
    *out = (strata_block){0};
    if (request->bytes == 0)
        return STRATA_SUCCESS;
    if (request->bytes > RANGE)
        return strata_fail(STRATA_ERROR_OUT_OF_MEMORY, "the range has %d bytes", RANGE);
    size_t bytes = self->fault == SHARES_A_BYTE ? request->bytes : (request->bytes + GRANULE - 1) / GRANULE * GRANULE;
    pthread_mutex_lock(&self->lock);
    CUdeviceptr address = take(self, bytes);
    self->allocations++;
    if (address) {
        self->live_blocks++;
        self->live_bytes += bytes;
    }
    pthread_mutex_unlock(&self->lock);
    if (!address)
        return strata_fail(STRATA_ERROR_OUT_OF_MEMORY, "the range is used up");
    const strata_block facts = {
        .address = address, .bytes = bytes, .requested = request->bytes, .alignment = 1, .stream = request->stream};
    return strata_block_create(resource, &facts, out);
}

static strata_status broken_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    broken *self = self_of(resource);
    if (block->bytes == 0)
        return STRATA_SUCCESS;
    pthread_mutex_lock(&self->lock);
    bool tenth = self->frees++ % 10 == 9;
    pthread_mutex_unlock(&self->lock);
    if (tenth && self->fault == FORGETS_A_FREE)
        return STRATA_SUCCESS;
    if (tenth && self->fault == REFUSES_A_FREE)
        return strata_fail(STRATA_ERROR_DRIVER, "a free that was planted to fail");
    strata_status status =
        self->fault == REUSES_TOO_EARLY ? STRATA_SUCCESS : strata_block_wait_uses(resource, block, stream);
    if (status == STRATA_SUCCESS)
        status = strata_block_free(resource, block);
    if (status != STRATA_SUCCESS)
        return status;
    pthread_mutex_lock(&self->lock);
    self->live_blocks--;
    self->live_bytes -= block->bytes;
    if (self->fault != SHARES_A_BYTE && self->spare_count < SPARE_LIMIT) {
        self->spare[self->spare_count].address = block->address;
        self->spare[self->spare_count++].bytes = block->bytes;
    }
    pthread_mutex_unlock(&self->lock);
    return STRATA_SUCCESS;
}

static strata_status broken_prepare(strata_resource *resource, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    broken *self = self_of(resource);
    pthread_mutex_lock(&self->lock);
    bool tenth = self->uses++ % 10 == 9;
    pthread_mutex_unlock(&self->lock);
    if (tenth && self->fault == REFUSES_A_USE)
        return strata_fail(STRATA_ERROR_DRIVER, "a use that was planted to fail");
    return strata_block_prepare_use(resource, block, stream, access);
}

static strata_status broken_usage(strata_resource *resource, strata_usage *usage)
{
    broken *self = self_of(resource);
    pthread_mutex_lock(&self->lock);
    *usage = (strata_usage){.live_blocks = self->live_blocks,
                            .live_bytes = self->live_bytes,
                            .bytes_outstanding = self->live_bytes,
                            .reserved_bytes = RANGE,
                            .reserved_peak = RANGE};
    pthread_mutex_unlock(&self->lock);
    return STRATA_SUCCESS;
}

static uint32_t broken_capabilities(strata_resource *resource)
{
    (void)resource;
    return STRATA_CAPABILITY_STREAM_ORDERED | STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_DEVICE_MEMORY;
}

static void broken_destroy(strata_resource *resource)
{
    broken *self = self_of(resource);
    strata_call_scope scope;
    if (strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT) == STRATA_SUCCESS) {
        strata_cu.MemFree(self->range);
        strata_call_scope_leave(&scope);
    }
    pthread_mutex_destroy(&self->lock);
    free(self);
}

static const strata_resource_ops broken_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "broken",
    .allocate = broken_allocate,
    .deallocate = broken_deallocate,
    .prepare_use = broken_prepare,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .usage = broken_usage,
    .capabilities = broken_capabilities,
    .destroy = broken_destroy,
};

static strata_stack *broken_stack(planted fault)
{
    broken *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->base.ops = &broken_ops;
    self->fault = fault;
    pthread_mutex_init(&self->lock, NULL);
    assert_int_equal(strata_device_get(0, &self->device), STRATA_SUCCESS);
    strata_call_scope scope;
    assert_int_equal(strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT), STRATA_SUCCESS);
    assert_int_equal(strata_cu.MemAlloc(&self->range, RANGE), CUDA_SUCCESS);
    strata_call_scope_leave(&scope);
    strata_stack *stack;
    strata_resource *layers[] = {&self->base};
    assert_int_equal(strata_stack_build(layers, 1, 0, &stack), STRATA_SUCCESS);
    return stack;
}

/* ---- traces ---- */

/* Blocks of a few sizes come and go on two streams. With uses, all come and go on one stream, and another one, for
 * which the first never waits by itself, reads each. */
static trace traffic(uint32_t rounds, bool with_uses)
{
    text_builder text;
    text_begin(&text);
    fputs(TRACE_HEADER, text.stream);
    for (uint32_t i = 0; i < rounds; i++) {
        uint32_t bytes = 1000 + i % 3 * 5000;
        uint32_t stream = with_uses ? 0 : i % 2;
        fprintf(text.stream, "alloc,%u,%u,%u,0\n", i, bytes, stream);
        if (with_uses)
            fprintf(text.stream, "use,%u,%u,1,0\n", i, bytes);
        if (i >= 5)
            fprintf(text.stream, "free,%u,%u,%u,0\n", i - 5, 1000 + (i - 5) % 3 * 5000, with_uses ? 0 : (i - 5) % 2);
    }
    scratch_file file = text_end_as_file(&text);
    trace out;
    trace_problem problem = {.text = ""};
    bool read = trace_read(file.path, &out, &problem);
    scratch_remove(&file);
    assert_true(read);
    return out;
}

/* Runtimes that cannot be ended, since blocks are left over in them. Volatile, so that they are really kept there, for
 * leak checkers to find. */
static strata_runtime *volatile left_behind[8];
static size_t left_behind_count;

/* Replays on a broken stack; the result is the caller's to free. */
static replay_result *replay(planted fault, const trace *of, replay_options options)
{
    replay_result *result = malloc(sizeof *result);
    replay_failure problem = {""};
    strata_runtime *runtime;
    strata_runtime_config config = {.stack = broken_stack(fault),
                                    .stream_capacity = replay_streams_needed(of, 1, &options)};
    assert_non_null(result);
    assert_int_equal(strata_runtime_create(&config, &runtime), STRATA_SUCCESS);
    bool ran = replay_run(runtime, of, 1, &options, result, &problem);
    if (!ran)
        print_error("%s\n", problem.text);
    assert_true(ran);
    if (strata_runtime_destroy(runtime) != STRATA_SUCCESS) {
        assert_true(result->leaked_blocks > 0 && left_behind_count < 8);
        left_behind[left_behind_count++] = runtime;
    }
    return result;
}

/* ---- what must be told ---- */

static void the_sound_owner_passes(void **state)
{
    (void)state;
    for (int with_uses = 0; with_uses < 2; with_uses++) {
        for (unsigned share = 0; share <= 100; share += 50) {
            trace of = traffic(200, with_uses);
            replay_result *result = replay(SOUND, &of, (replay_options){.touch = true, .share = share});
            assert_true(replay_is_clean(result));
            free(result);
            trace_free(&of);
        }
    }
}

static void two_live_blocks_that_share_a_byte_are_found(void **state)
{
    (void)state;
    trace of = traffic(200, false);
    replay_result *result = replay(SHARES_A_BYTE, &of, (replay_options){.touch = true});
    assert_false(replay_is_clean(result));
    assert_int_equal(result->failures, 0);
    /* Fifty pairs share one; a pattern agrees with another one in one byte of 256. */
    assert_in_range(result->corrupted_blocks, 40, 100);
    assert_int_equal(result->corrupted_count, REPLAY_FINDINGS);
    for (uint32_t i = 0; i < result->corrupted_count; i++) {
        const replay_corruption *at = &result->corrupted[i];
        assert_string_equal(at->trace, of.path);
        assert_int_equal(at->wrong, 1);
        bool before = at->id % 4 == 2 && at->first == at->bytes - 1;
        bool after = at->id % 4 == 3 && at->first == 0;
        assert_true(before || after);
    }
    free(result);
    trace_free(&of);
}

static void memory_that_is_reused_too_early_after_a_free_on_another_stream_is_found(void **state)
{
    (void)state;
    trace of = traffic(200, false);
    replay_result *result = replay(REUSES_TOO_EARLY, &of, (replay_options){.touch = true, .share = 50});
    assert_true(result->corrupted_blocks > 0);
    assert_int_equal(result->failures, 0);
    assert_false(replay_is_clean(result));
    free(result);
    trace_free(&of);
}

static void memory_that_is_reused_while_another_stream_reads_it_is_found(void **state)
{
    (void)state;
    trace of = traffic(200, true);
    replay_result *result = replay(REUSES_TOO_EARLY, &of, (replay_options){.touch = true});
    assert_true(result->corrupted_blocks > 0);
    assert_int_equal(result->failures, 0);
    free(result);
    trace_free(&of);
}

static void without_touch_nothing_is_looked_at(void **state)
{
    (void)state;
    trace of = traffic(200, false);
    replay_result *result = replay(SHARES_A_BYTE, &of, (replay_options){0});
    assert_int_equal(result->corrupted_blocks, 0);
    free(result);
    trace_free(&of);
}

static void a_free_that_does_nothing_leaves_blocks_over(void **state)
{
    (void)state;
    trace of = traffic(100, false);
    replay_result *result = replay(FORGETS_A_FREE, &of, (replay_options){.touch = true});
    assert_int_equal(result->failures, 0);
    assert_int_equal(result->leaked_blocks, 10);
    assert_true(result->leaked_bytes > 0);
    assert_false(replay_is_clean(result));
    free(result);
    trace_free(&of);
}

static void a_free_that_fails_is_a_failure_and_leaves_its_block_over(void **state)
{
    (void)state;
    trace of = traffic(100, false);
    replay_result *result = replay(REFUSES_A_FREE, &of, (replay_options){.touch = true});
    assert_int_equal(result->failures, 10);
    assert_int_equal(result->leaked_blocks, 10);
    assert_int_equal(result->failed_count, REPLAY_FINDINGS);
    assert_non_null(strstr(result->failed[0].text, "deallocate of id 9"));
    assert_non_null(strstr(result->failed[0].text, "planted to fail"));
    free(result);
    trace_free(&of);
}

static void a_use_that_fails_is_a_failure(void **state)
{
    (void)state;
    trace of = traffic(100, false);
    replay_result *result = replay(REFUSES_A_USE, &of, (replay_options){.share = 100});
    assert_int_equal(result->failures, 10);
    assert_int_equal(result->leaked_blocks, 0);
    assert_false(replay_is_clean(result));
    free(result);
    trace_free(&of);
}

int main(void)
{
    setenv("STRATA_DRIVER", "sim", 1);
    setenv("STRATA_SIM_POLICY", "late", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sound_owner_passes),
        cmocka_unit_test(two_live_blocks_that_share_a_byte_are_found),
        cmocka_unit_test(memory_that_is_reused_too_early_after_a_free_on_another_stream_is_found),
        cmocka_unit_test(memory_that_is_reused_while_another_stream_reads_it_is_found),
        cmocka_unit_test(without_touch_nothing_is_looked_at),
        cmocka_unit_test(a_free_that_does_nothing_leaves_blocks_over),
        cmocka_unit_test(a_free_that_fails_is_a_failure_and_leaves_its_block_over),
        cmocka_unit_test(a_use_that_fails_is_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
