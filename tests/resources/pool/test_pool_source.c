/* pool: memory from the layer below, or from cuMemAlloc on a device without virtual memory. The suites for all
 * resources test what does not depend on the source. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/captures.h"
#include "support/child.h"
#include "support/faults.h"
#include "support/pool.h"
#include "support/stall.h"
#include "support/sweep.h"

enum { CHUNK = 2 << 20, LIMIT = 64 << 20 };

static unsigned until_drought; /* the call for host memory that fails, counted from 1; 0: none */

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);

void *__wrap_strata_host_zalloc(size_t bytes)
{
    return until_drought && --until_drought == 0 ? NULL : __real_strata_host_zalloc(bytes);
}

static uint64_t in_use_below(test_fixture *fixture)
{
    return value_of(fixture->runtime, "budget.in_use");
}

static uint64_t reserved(test_fixture *fixture)
{
    return value_of(fixture->runtime, "pool.reserved");
}

static void return_all(test_fixture *fixture)
{
    empty_the_pool(fixture);
    assert_int_equal(in_use_below(fixture), 0);
}

/* ---- bytes that are counted ---- */

static void what_is_reserved_is_what_a_budget_below_counts(test_fixture *fixture)
{
    static const size_t sizes[] = {1, 100000, CHUNK, CHUNK + 1, 5 * CHUNK, 700000};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = test_allocate(fixture, sizes[i], stream);
        test_write(fixture, &blocks[i], (unsigned char)(i + 1), stream);
        assert_true(in_use_below(fixture) == reserved(fixture));
        assert_true(reserved(fixture) >= test_usage(fixture).live_bytes && reserved(fixture) % CHUNK == 0);
    }
    assert_int_equal(test_usage(fixture).live_blocks, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        test_free_on(fixture, &blocks[i], stream);
    }
    assert_true(in_use_below(fixture) == reserved(fixture) && reserved(fixture) > 0);
    return_all(fixture);
}

/* A budget above the pool counts blocks, one below it counts reserved bytes; neither hears of the other's. */
static void a_budget_above_counts_blocks_and_one_below_counts_chunks(test_fixture *fixture)
{
    strata_runtime *both;
    strata_block block;
    char text[160];
    snprintf(text, sizeof text, "budget(limit=1GiB), pool, budget(limit=1GiB), %s",
             strstr(fixture->stack, "async") ? "async" : "direct");
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &both));
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (int i = 0; i < 3; i++) {
        check_ok(strata_runtime_allocate(both, 5000, stream, &block));
        assert_int_equal(value_of(both, "budget.in_use"), 5120);
        assert_true(value_of(both, "budget[1].in_use") == value_of(both, "pool.reserved"));
        check_ok(strata_runtime_deallocate_on(both, &block, stream));
        assert_int_equal(value_of(both, "budget.in_use"), 0);
        assert_true(value_of(both, "budget[1].in_use") >= CHUNK);
        test_synchronize(stream);
        check_ok(strata_runtime_trim(both, 0, NULL));
        assert_int_equal(value_of(both, "budget[1].in_use"), 0);
        assert_int_equal(value_of(both, "budget.in_use"), 0);
    }
    check_ok(strata_runtime_destroy(both));
}

/* Counts the calls that reach a layer. */
typedef struct hearing_layer {
    strata_resource resource;
    unsigned heard; /* by one thread */
    size_t bytes;
} hearing_layer;

static void hear(strata_resource *resource, const strata_completion *completion)
{
    ((hearing_layer *)resource)->heard++;
    ((hearing_layer *)resource)->bytes += completion->bytes;
}

static void stay(strata_resource *resource)
{
    (void)resource;
}

static void layers_above_hear_of_blocks_and_those_below_of_chunks(test_fixture *fixture)
{
    enum { COUNT = 5 };
    static const strata_resource_ops ops = {.size = sizeof ops, .name = "hearing", .destroy = stay, .completed = hear};
    hearing_layer above = {.resource = {.ops = &ops}}, below = {.resource = {.ops = &ops}};
    strata_resource *layers[] = {&above.resource, NULL, &below.resource, NULL};
    strata_stack *stack;
    strata_runtime *runtime;
    strata_block blocks[COUNT];
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_pool_create(0, NULL, &layers[1]));
    check_ok(strstr(fixture->stack, "async") ? strata_async_create(0, NULL, &layers[3])
                                             : strata_direct_create(0, NULL, &layers[3]));
    check_ok(strata_stack_build(layers, 4, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &runtime));
    for (int i = 0; i < COUNT; i++)
        check_ok(strata_runtime_allocate(runtime, 3 * MIB, stream, &blocks[i]));
    for (int i = 0; i < COUNT; i++)
        check_ok(strata_runtime_deallocate_on(runtime, &blocks[i], stream));
    assert_true(above.heard == COUNT && above.bytes == COUNT * 3 * MIB && below.heard == 0);
    const uint64_t chunks = value_of(runtime, "pool.chunks.made"), held = value_of(runtime, "pool.reserved");
    test_synchronize(stream);
    check_ok(strata_runtime_trim(runtime, 0, NULL));
    assert_true(above.heard == COUNT && below.heard == chunks && below.bytes == held);
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- refusals ---- */

static void what_a_budget_below_refuses_names_it_and_changes_nothing(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block first = test_allocate(fixture, 40 * MIB, stream), second;
    const uint64_t before = reserved(fixture);
    check_status(try_to_allocate(fixture, 40 * MIB, stream, &second), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "pool: no free memory for a request of 40 MiB (41943040 bytes)");
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "budget");
    assert_int_equal(strata_last_error()->requested, 40 * MIB);
    assert_int_equal(strata_last_error()->limit, LIMIT);
    assert_true(second.address == 0 && reserved(fixture) == before && in_use_below(fixture) == before);
    second = test_allocate(fixture, 20 * MIB, stream);
    assert_false(overlap(&first, &second));
    test_write(fixture, &first, 0x11, stream);
    test_write(fixture, &second, 0x22, stream);
    test_free_on(fixture, &first, stream);
    test_free_on(fixture, &second, stream);
    return_all(fixture);
}

static void the_pools_own_limit_holds_over_a_layer_too(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, 8 * MIB);
    strata_block first = test_allocate(fixture, 5 * MIB, stream), second;
    check_refused(fixture, 4 * MIB, stream);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "limit 8 MiB (8388608 bytes)");
    second = test_allocate(fixture, 2 * MIB, stream);
    assert_int_equal(reserved(fixture), 8 * MIB);
    test_free_on(fixture, &first, stream);
    test_free_on(fixture, &second, stream);
    first = test_allocate(fixture, 8 * MIB, stream); /* in neither chunk */
    assert_int_equal(reserved(fixture), 8 * MIB);
    test_free_on(fixture, &first, stream);
}

/* ---- chunks ---- */

/* Adjacent chunks are made and returned one by one, so they never form one extent. */
static void a_block_lies_in_one_chunk(test_fixture *fixture)
{
    enum { COUNT = 4 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[COUNT];
    for (int i = 0; i < COUNT; i++)
        blocks[i] = test_allocate(fixture, CHUNK, stream);
    for (int i = 0; i < COUNT; i++)
        test_free_on(fixture, &blocks[i], stream);
    assert_int_equal(reserved(fixture), COUNT * CHUNK);
    assert_int_equal(test_usage(fixture).largest_free, CHUNK);
    strata_block large = test_allocate(fixture, 2 * CHUNK, stream);
    for (int i = 0; i < COUNT; i++)
        assert_false(overlap(&blocks[i], &large));
    assert_int_equal(reserved(fixture), (COUNT + 2) * CHUNK);
    test_write(fixture, &large, 0x11, stream);
    test_free_on(fixture, &large, stream);
}

/* The rest of the last chunk serves the next request, on any stream. */
static void what_is_left_of_a_chunk_serves_the_next_request(test_fixture *fixture)
{
    CUstream first = test_stream(fixture, TEST_STREAM_POOL), second = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block a = test_allocate(fixture, MIB / 2, first), b = test_allocate(fixture, MIB / 2, second);
    assert_false(overlap(&a, &b));
    assert_true(test_is_swept() || reserved(fixture) == CHUNK); /* one that cannot be waited for is left alone */
    test_write(fixture, &a, 0x11, first);
    test_write(fixture, &b, 0x22, second);
    check_ends(fixture, &a, 0x11, first);
    check_ends(fixture, &b, 0x22, second);
    test_free_on(fixture, &a, first);
    test_free_on(fixture, &b, second);
}

static void a_trim_returns_every_chunk_without_blocks(test_fixture *fixture)
{
    enum { COUNT = 8 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[COUNT];
    size_t bytes = 77;
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = test_allocate(fixture, CHUNK, stream);
        test_write(fixture, &blocks[i], (unsigned char)i, stream);
    }
    for (int i = 0; i < COUNT; i++)
        if (i != 3)
            test_free_on(fixture, &blocks[i], stream);
    check_ok(strata_runtime_trim(fixture->runtime, 4 * CHUNK, &bytes));
    assert_true(bytes >= 4 * CHUNK && reserved(fixture) == 4 * CHUNK && in_use_below(fixture) == 4 * CHUNK);
    check_ok(strata_runtime_trim(fixture->runtime, 0, &bytes));
    assert_true(reserved(fixture) == CHUNK && in_use_below(fixture) == CHUNK);
    check_ends(fixture, &blocks[3], 3, stream);
    test_free_on(fixture, &blocks[3], stream);
    return_all(fixture);
}

/* Chunks that are free, complete or not, are returned for a request that none of them can serve. */
static void free_chunks_make_room_for_a_larger_request(test_fixture *fixture)
{
    enum { COUNT = LIMIT / CHUNK };
    CUstream streams[3];
    strata_block blocks[COUNT], large;
    for (int i = 0; i < 3; i++)
        streams[i] = test_stream(fixture, i < 2 ? TEST_STREAM_POOL : TEST_STREAM_UNKNOWN);
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = test_allocate(fixture, CHUNK, streams[i % 3]);
        test_write(fixture, &blocks[i], 0x11, streams[i % 3]);
    }
    check_status(try_to_allocate(fixture, 512, streams[0], &large), STRATA_ERROR_OUT_OF_BUDGET);
    for (int i = 1; i < COUNT; i++)
        test_free_on(fixture, &blocks[i], streams[i % 3]);
    large = test_allocate(fixture, (COUNT - 1) * CHUNK, streams[0]);
    assert_true(reserved(fixture) == LIMIT && in_use_below(fixture) == LIMIT);
    test_write(fixture, &large, 0x22, streams[0]);
    check_ends(fixture, &large, 0x22, streams[0]);
    check_ends(fixture, &blocks[0], 0x11, streams[0]);
    test_free_on(fixture, &large, streams[0]);
    test_free_on(fixture, &blocks[0], streams[0]);
    return_all(fixture);
}

/* Each request is larger than the one before, so no chunk serves the next. */
static void no_more_than_the_overhead_is_held_beyond_the_peak(test_fixture *fixture)
{
    strata_runtime *roomy;
    strata_block block;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = strstr(fixture->stack, "async") ? "pool, async" : "pool, direct"},
        &roomy));
    for (size_t bytes = 8 * MIB; bytes <= 40 * MIB; bytes += 4 * MIB) {
        check_ok(strata_runtime_allocate(roomy, bytes, stream, &block));
        const uint64_t held = value_of(roomy, "pool.reserved");
        assert_true(test_is_swept() || held <= bytes + bytes / 4 + 2 * CHUNK); /* unless another call fails */
        check_ok(strata_runtime_deallocate_on(roomy, &block, stream));
        check_ok(strata_runtime_reap_pending(roomy));
    }
    check_ok(strata_runtime_destroy(roomy));
}

/* Not even to keep within the overhead limit. */
static void memory_in_use_is_not_waited_for_while_there_is_more(test_fixture *fixture)
{
    CUstream busy = test_stream(fixture, TEST_STREAM_POOL), stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block old = test_allocate(fixture, 16 * MIB, busy);
    test_stall *stall = test_stall_begin(busy);
    test_write(fixture, &old, 0x11, busy);
    test_free_on(fixture, &old, busy);
    strata_block block = test_allocate(fixture, 20 * MIB, stream); /* a wait would never end */
    assert_false(overlap(&old, &block));
    test_write(fixture, &block, 0x22, stream);
    test_stall_end(stall);
    check_ends(fixture, &block, 0x22, stream);
    test_free_on(fixture, &block, stream);
}

/* A guard keeps freed blocks for a while; a budget that does not wait counts freed bytes until they are complete. */
static void chunks_that_layers_below_do_not_let_go_at_once_make_room_too(test_fixture *fixture)
{
    static const char *const below[] = {"guard, budget(limit=64MiB)", "budget(limit=64MiB, wait=none)"};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
        strata_runtime *held;
        strata_block block;
        char text[160];
        snprintf(text, sizeof text, "pool, %s, %s", below[i], strstr(fixture->stack, "async") ? "async" : "direct");
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &held));
        for (size_t bytes = 40 * MIB; bytes <= 60 * MIB; bytes += 10 * MIB) {
            check_ok(strata_runtime_allocate(held, bytes, stream, &block));
            check_ok(strata_runtime_deallocate_on(held, &block, stream));
        }
        check_ok(strata_runtime_destroy(held));
    }
}

/* A chunk is allocated outside of every capture; blocks in it can be used inside. */
static void a_stream_that_is_captured_gets_memory_of_a_new_chunk(test_fixture *fixture)
{
    CUstream captured = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block first = test_allocate(fixture, CHUNK, captured), block;
    test_begin_capture(captured);
    strata_status status = try_to_allocate(fixture, CHUNK, other, &block);
    assert_true(test_end_capture(captured) < SIZE_MAX);
    check_ok(status);
    test_write(fixture, &block, 0x11, other);
    check_ends(fixture, &block, 0x11, other);
    test_free_on(fixture, &block, other);
    test_free_on(fixture, &first, captured);
}

/* A full reap returns memory above the threshold, but no held chunk. */
static void a_threshold_and_holds_are_for_chunks_that_stay_too(test_fixture *fixture)
{
    enum { COUNT = 6 };
    const uint64_t keep = 3 * CHUNK;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[COUNT];
    strata_pool_hold *hold;
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = test_allocate(fixture, CHUNK, stream);
        test_write(fixture, &blocks[i], 0x11, stream);
    }
    check_ok(strata_pool_hold_begin(strata_stack_top(strata_runtime_stack(fixture->runtime)), &blocks[5], &hold));
    for (int i = 0; i < COUNT; i++)
        test_free_on(fixture, &blocks[i], stream);
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), "pool.release_threshold", NULL, &keep));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(reserved(fixture) == keep && in_use_below(fixture) == keep);
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    assert_true(reserved(fixture) == CHUNK && value_of(fixture->runtime, "pool.held") == CHUNK);
    strata_block again = test_allocate(fixture, CHUNK, stream);
    assert_true(again.address == blocks[5].address);
    test_free_on(fixture, &again, stream);
    strata_pool_hold_end(hold);
    return_all(fixture);
}

/* ---- failures below ---- */

/* The chunk is memory again, and is returned by the next trim. */
static void a_chunk_that_is_not_taken_back_serves_on(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, CHUNK, stream);
    test_write(fixture, &block, 0x11, stream);
    test_free_on(fixture, &block, stream);
    test_synchronize(stream);
    test_fault_begin(TEST_FAULT_FREE, 1, false, CUDA_ERROR_UNKNOWN);
    strata_status status = strata_runtime_trim(fixture->runtime, 0, NULL);
    assert_int_equal(test_fault_end(), 1);
    check_status(status, STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "cuMemFree");
    assert_true(reserved(fixture) == CHUNK && in_use_below(fixture) == CHUNK);
    strata_block again = test_allocate(fixture, CHUNK, stream);
    assert_true(again.address == block.address);
    test_write(fixture, &again, 0x22, stream);
    check_ends(fixture, &again, 0x22, stream);
    test_free_on(fixture, &again, stream);
    return_all(fixture);
}

/* The trim fails, and the memory's next user still waits for its work. */
static void a_chunk_that_cannot_be_waited_for_is_still_waited_for_later(test_fixture *fixture)
{
    CUstream first = test_stream(fixture, TEST_STREAM_POOL), second = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, CHUNK);
    strata_block block = test_allocate(fixture, CHUNK, first);
    test_stall *stall = test_stall_begin(first);
    test_write(fixture, &block, 0x11, first);
    test_free_on(fixture, &block, first);
    test_fault_begin(TEST_FAULT_EVENT_SYNCHRONIZE, 1, true, CUDA_ERROR_UNKNOWN);
    strata_status status = strata_runtime_trim(fixture->runtime, 0, NULL);
    assert_in_range(test_fault_end(), 1, 100);
    check_status(status, STRATA_ERROR_DRIVER);
    strata_block again = test_allocate(fixture, CHUNK, second);
    assert_true(again.address == block.address);
    test_write(fixture, &again, 0x22, second);
    test_stall_end(stall);
    check_ends(fixture, &again, 0x22, second);
    test_free_on(fixture, &again, second);
    return_all(fixture);
}

/* A stream that inserts no waits gets a chunk once it is complete: the layer below allocates it on another stream. */
static void a_new_chunk_serves_a_stream_that_may_not_wait(void **state)
{
    (void)state;
    strata_runtime *runtime;
    CUstream stream;
    strata_block block;
    check_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = "pool(chunk=2MiB, internal_dependencies=off), async"}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(strata_runtime_allocate(runtime, CHUNK, stream, &block));
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
    assert_in_range(test_calls_of(&calls, "cuEventSynchronize") + test_calls_of(&calls, "cuStreamSynchronize"), 1, 2);
    test_fill(block.address, 0x11, block.bytes, stream);
    check_ok(strata_runtime_deallocate(runtime, &block));
    test_synchronize(stream);
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_ok(strata_runtime_destroy(runtime));
}

static void an_allocation_below_that_fails_says_why(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block;
    test_fault_begin(TEST_FAULT_ALLOCATE, 1, true, CUDA_ERROR_UNKNOWN);
    strata_status status = try_to_allocate(fixture, CHUNK, stream, &block);
    assert_int_equal(test_fault_end(), 1);
    check_status(status, STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "cuMemAlloc");
    assert_true(reserved(fixture) == 0 && in_use_below(fixture) == 0);
    test_fault_begin(TEST_FAULT_ALLOCATE, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    status = try_to_allocate(fixture, CHUNK, stream, &block);
    assert_true(test_fault_end() >= 1);
    check_status(status, STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "pool: out of memory: request of 2 MiB (2097152 bytes)");
    block = test_allocate(fixture, CHUNK, stream);
    test_free_on(fixture, &block, stream);
}

/* ---- layers below that call into the stack ---- */

static struct {
    strata_runtime *runtime;
    strata_block held;
    CUstream stream;
    unsigned calls;
} helper;

/* Frees the block that keeps the chunks, and returns them, from within the refused request. */
static bool make_room(const strata_request *request, const strata_error *error, void *data)
{
    (void)data;
    strata_block small;
    helper.calls++;
    if (request->bytes < CHUNK || error->status != STRATA_ERROR_OUT_OF_BUDGET || !helper.held.address)
        return false;
    if (strata_runtime_deallocate_on(helper.runtime, &helper.held, helper.stream) != STRATA_SUCCESS ||
        strata_runtime_trim(helper.runtime, 0, NULL) != STRATA_SUCCESS ||
        strata_runtime_allocate(helper.runtime, 1000, helper.stream, &small) != STRATA_SUCCESS ||
        strata_runtime_deallocate_on(helper.runtime, &small, helper.stream) != STRATA_SUCCESS)
        return false;
    helper.held = (strata_block){0};
    return true;
}

static void a_layer_below_may_call_into_the_stack(test_fixture *fixture)
{
    strata_resource *layers[4];
    strata_stack *stack;
    strata_block block;
    const strata_failure_callback_options poll = {.callback = make_room};
    const strata_budget_options limit = {.limit = {.bytes = LIMIT}};
    check_ok(strata_pool_create(0, NULL, &layers[0]));
    check_ok(strata_failure_callback_create(&poll, &layers[1]));
    check_ok(strata_budget_create(0, &limit, &layers[2]));
    check_ok(strstr(fixture->stack, "async") ? strata_async_create(0, NULL, &layers[3])
                                             : strata_direct_create(0, NULL, &layers[3]));
    check_ok(strata_stack_build(layers, 4, 0, &stack));
    helper.calls = 0;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &helper.runtime));
    helper.stream = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_allocate(helper.runtime, 40 * MIB, helper.stream, &helper.held));
    check_ok(strata_runtime_allocate(helper.runtime, 50 * MIB, helper.stream, &block));
    assert_true(helper.calls > 0 && !helper.held.address);
    check_ok(strata_runtime_deallocate_on(helper.runtime, &block, helper.stream));
    check_ok(strata_runtime_destroy(helper.runtime));
}

/* A layer below the pool that allocates from the stack while a chunk is requested of it, and records the chunk. */
typedef struct reentrant_layer {
    strata_resource resource;
    strata_runtime *runtime;
    CUstream stream;
    size_t sizes[2]; /* requests, one after another; 0: none */
    strata_status statuses[2];
    strata_block blocks[2];
    strata_block chunk; /* the last one */
} reentrant_layer;

static strata_status ask_meanwhile(strata_resource *resource, const strata_request *request, strata_block *out)
{
    reentrant_layer *self = (reentrant_layer *)resource;
    for (size_t i = 0; i < 2; i++) {
        const size_t bytes = self->sizes[i];
        self->sizes[i] = 0;
        if (bytes)
            self->statuses[i] = strata_runtime_allocate(self->runtime, bytes, self->stream, &self->blocks[i]);
    }
    const strata_status status = resource->upstream->ops->allocate(resource->upstream, request, out);
    self->chunk = *out;
    return status;
}

static const strata_resource_ops reentrant_ops = {
    .size = sizeof reentrant_ops, .name = "asking", .allocate = ask_meanwhile, .destroy = stay};

static void reentrant_begin(reentrant_layer *self, test_fixture *fixture)
{
    strata_resource *layers[3] = {NULL, &self->resource, NULL};
    strata_stack *stack;
    *self = (reentrant_layer){.resource.ops = &reentrant_ops};
    check_ok(strata_pool_create(0, NULL, &layers[0]));
    check_ok(strstr(fixture->stack, "async") ? strata_async_create(0, NULL, &layers[2])
                                             : strata_direct_create(0, NULL, &layers[2]));
    check_ok(strata_stack_build(layers, 3, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &self->runtime));
    self->stream = test_stream(fixture, TEST_STREAM_POOL);
}

/* During the first request, of 6 MiB, there is room for 2 more, and not for 4. */
static void a_chunk_being_requested_counts_towards_the_limit(test_fixture *fixture)
{
    reentrant_layer below;
    strata_block block;
    reentrant_begin(&below, fixture);
    check_ok(strata_control(strata_runtime_stack(below.runtime), "pool.limit", NULL, &(uint64_t){8 * MIB}));
    below.sizes[0] = 4 * MIB;
    below.sizes[1] = 2 * MIB;
    check_ok(strata_runtime_allocate(below.runtime, 6 * MIB, below.stream, &block));
    check_status(below.statuses[0], STRATA_ERROR_OUT_OF_MEMORY);
    check_ok(below.statuses[1]);
    assert_int_equal(value_of(below.runtime, "pool.reserved.peak"), 8 * MIB);
    check_ok(strata_runtime_deallocate_on(below.runtime, &block, below.stream));
    check_ok(strata_runtime_deallocate_on(below.runtime, &below.blocks[1], below.stream));
    check_ok(strata_runtime_destroy(below.runtime));
}

typedef struct visit {
    CUdeviceptr expected;
    unsigned blocks, others;
} visit;

static void visit_block(const strata_block *block, void *data)
{
    visit *seen = data;
    seen->blocks++;
    seen->others += block->address != seen->expected || block->bytes != 512;
}

/* Even for a caller that knows it from a layer below: it is no block of the stack's user. */
static void a_chunks_block_is_hidden_from_layers_above_the_pool(test_fixture *fixture)
{
    reentrant_layer below;
    strata_block block, found;
    reentrant_begin(&below, fixture);
    check_ok(strata_runtime_allocate(below.runtime, 512, below.stream, &block));
    const strata_block chunk = below.chunk;
    assert_true(chunk.address && overlap(&chunk, &block) && chunk.bytes > block.bytes);
    visit seen = {.expected = block.address};
    check_ok(strata_stack_visit_blocks(strata_runtime_stack(below.runtime), visit_block, &seen));
    assert_true(seen.blocks == 1 && seen.others == 0);
    assert_int_equal(strata_runtime_block_state(below.runtime, chunk.id), STRATA_BLOCK_QUARANTINED);
    check_status(strata_runtime_prepare_block_use(below.runtime, &chunk, below.stream, STRATA_ACCESS_READ),
                 STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_runtime_deallocate_on(below.runtime, &chunk, below.stream), STRATA_ERROR_DOUBLE_FREE);
    check_ok(strata_runtime_find(below.runtime, block.address, &found));
    assert_memory_equal(&found, &block, sizeof block);
    check_status(strata_runtime_find(below.runtime, block.address + block.bytes, &found), STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_deallocate_on(below.runtime, &block, below.stream));
    assert_int_equal(value_of(below.runtime, "pool.reserved"), chunk.bytes);
    test_synchronize(below.stream);
    check_ok(strata_runtime_trim(below.runtime, 0, NULL));
    assert_int_equal(value_of(below.runtime, "pool.reserved"), 0);
    check_ok(strata_runtime_destroy(below.runtime));
}

/* A guard's red zones put its blocks between two granules. */
static void blocks_that_begin_anywhere_are_chunks(test_fixture *fixture)
{
    static const char *const texts[] = {"pool, guard, direct", "pool, guard, async",
                                        "pool, aligned(alignment=64KiB), direct", "pool, pool(chunk=2MiB)"};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        strata_runtime *over;
        strata_block blocks[3];
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = texts[i]}, &over));
        for (int each = 0; each < 3; each++) {
            check_ok(strata_runtime_allocate(over, CHUNK, stream, &blocks[each]));
            assert_true(blocks[each].address % 512 == 0 && blocks[each].bytes == CHUNK);
            check_ok(strata_runtime_prepare_block_use(over, &blocks[each], stream, STRATA_ACCESS_WRITE));
            test_fill(blocks[each].address, 0x11, CHUNK, stream);
            check_ok(strata_runtime_finish_block_use(over, &blocks[each], stream, STRATA_ACCESS_WRITE));
        }
        for (int each = 0; each < 3; each++)
            check_ok(strata_runtime_deallocate_on(over, &blocks[each], stream));
        check_ok(strata_runtime_destroy(over));
    }
}

/* ---- stacks that can be built ---- */

static void an_export_type_over_another_layer_is_refused(void **state)
{
    (void)state;
    strata_stack *stack;
    check_status(strata_stack_create("pool(export=fd), direct", 0, &stack), STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "export");
    assert_null(stack);
}

static void layers_that_could_not_be_built_can_stand_elsewhere(void **state)
{
    (void)state;
    strata_resource *layers[2] = {NULL};
    strata_stack *stack;
    check_ok(strata_pool_create(0, &(strata_pool_options){.export_type = STRATA_EXPORT_POSIX_FD}, &layers[0]));
    check_ok(strata_direct_create(0, NULL, &layers[1]));
    check_status(strata_stack_build(layers, 2, 0, &stack), STRATA_ERROR_UNSUPPORTED);
    assert_null(layers[0]->stack); /* the caller can use the layers elsewhere */
    assert_null(layers[0]->upstream);
    check_ok(strata_stack_build(&layers[0], 1, 0, &stack));
    check_ok(strata_stack_destroy(stack));
    check_ok(strata_stack_build(&layers[1], 1, 0, &stack));
    check_ok(strata_stack_destroy(stack));
}

/* ---- a device without virtual memory ---- */

static void allocate_without_virtual_memory(void)
{
    strata_runtime *runtime;
    strata_stack *stack;
    strata_block blocks[2];
    CUstream stream;
    strata_usage usage;
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    for (int ticket = 0; ticket < 3; ticket++) {
        child_ok(strata_runtime_allocate(runtime, 3 << 20, stream, &blocks[0]));
        child_ok(strata_runtime_allocate(runtime, 5000, stream, &blocks[1]));
        for (int i = 0; i < 2; i++)
            child_ok(strata_runtime_deallocate_on(runtime, &blocks[i], stream));
        child_ok(strata_runtime_usage(runtime, &usage));
        child_check(usage.reserved_bytes == 6 << 20 && usage.live_bytes == 0); /* small blocks apart */
        child_ok(strata_runtime_trim(runtime, 0, NULL));
        child_ok(strata_runtime_usage(runtime, &usage));
        child_check(usage.reserved_bytes == 0);
    }
    child_status(strata_runtime_allocate(runtime, (size_t)1 << 50, stream, &blocks[0]), STRATA_ERROR_OUT_OF_MEMORY);
    child_check_words("The request exceeds the device's memory");
    child_ok(strata_runtime_stream_release(runtime, stream));
    child_ok(strata_runtime_destroy(runtime));
    child_status(strata_stack_create("pool(export=fd)", 0, &stack), STRATA_ERROR_UNSUPPORTED);
    child_check_words("no virtual memory management");
    child_status(strata_stack_create("pool(peers=0;1)", 0, &stack), STRATA_ERROR_UNSUPPORTED);
    child_check_words("no virtual memory management");
    child_ok(strata_stack_create("pool(peers=all)", 0, &stack)); /* whose memory cuCtxEnablePeerAccess opens */
    child_ok(strata_stack_destroy(stack));
    child_ok(strata_runtime_create(&(strata_runtime_config){0}, &runtime)); /* the default stack */
    child_ok(strata_runtime_destroy(runtime));
}

static const char *const without_virtual_memory[] = {"STRATA_DRIVER=sim", "STRATA_SIM_LACKS=virtual-memory", NULL};

static void a_device_without_virtual_memory_has_a_pool_of_other_memory(void **state)
{
    (void)state;
    test_child_run("allocate_without_virtual_memory", without_virtual_memory);
}

/* Wraps the driver's calls for chunks. */
static struct {
    CUresult(CUDAAPI *allocate)(CUdeviceptr *, size_t);
    CUresult(CUDAAPI *free)(CUdeviceptr);
    int out; /* allocated and not freed */
} chunks;

static CUresult CUDAAPI count_allocation(CUdeviceptr *address, size_t bytes)
{
    const CUresult result = chunks.allocate(address, bytes);
    chunks.out += result == CUDA_SUCCESS;
    return result;
}

static CUresult CUDAAPI count_free(CUdeviceptr address)
{
    const CUresult result = chunks.free(address);
    chunks.out -= result == CUDA_SUCCESS && address;
    return result;
}

/* One request, whose n-th call for host memory fails; false if there is no n-th call. */
static bool allocate_with_drought(unsigned n)
{
    strata_runtime *runtime;
    strata_block block;
    CUstream stream;
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    chunks.allocate = strata_cu.MemAlloc;
    chunks.free = strata_cu.MemFree;
    strata_cu.MemAlloc = count_allocation;
    strata_cu.MemFree = count_free;
    until_drought = n;
    const int before = chunks.out;
    const strata_status status = strata_runtime_allocate(runtime, 3 << 20, stream, &block);
    const bool reached = !until_drought;
    until_drought = 0;
    if (status == STRATA_SUCCESS)
        child_ok(strata_runtime_deallocate_on(runtime, &block, stream));
    else
        child_check(status == STRATA_ERROR_OUT_OF_HOST_MEMORY);
    child_ok(strata_runtime_trim(runtime, 0, NULL));
    child_check(value_of(runtime, "pool.reserved") == 0);
    child_check(chunks.out == before);
    strata_cu.MemAlloc = chunks.allocate;
    strata_cu.MemFree = chunks.free;
    child_ok(strata_runtime_stream_release(runtime, stream));
    child_ok(strata_runtime_destroy(runtime));
    return reached;
}

static void get_chunks_without_host_memory(void)
{
    unsigned n = 1;
    while (allocate_with_drought(n))
        n++;
    child_check(n > 3); /* a chunk was reached too */
}

static void what_cannot_be_entered_without_host_memory_goes_back_to_the_driver(void **state)
{
    (void)state;
    test_child_run("get_chunks_without_host_memory", without_virtual_memory);
}

/* A thread that allocates and holds a block after the driver has freed a chunk, and before the pool knows. */
static struct {
    strata_runtime *runtime;
    CUstream stream;
    strata_block block;
    strata_pool_hold *hold;
    CUdeviceptr freed; /* once */
    unsigned chunks;   /* in the report before the hold */
} other;

static char report[1 << 16];

static void collect(const char *text, size_t length, void *data)
{
    size_t *used = data;
    child_check(*used + length < sizeof report);
    memcpy(report + *used, text, length);
    report[ *used += length] = '\0';
}

static void *allocate_and_hold(void *data)
{
    (void)data;
    child_ok(strata_runtime_allocate(other.runtime, 4 * MIB, other.stream, &other.block));
    size_t used = 0;
    child_ok(strata_stats_print(strata_runtime_stack(other.runtime), STRATA_FORMAT_JSON, collect, &used));
    for (const char *at = report; (at = strstr(at, "\"held\": false")); at++)
        other.chunks++;
    child_ok(strata_pool_hold_begin(strata_stack_top(strata_runtime_stack(other.runtime)), &other.block, &other.hold));
    return NULL;
}

static CUresult CUDAAPI free_and_be_slow(CUdeviceptr address)
{
    const CUresult result = chunks.free(address);
    pthread_t thread;
    if (!other.freed) {
        other.freed = address;
        child_check(pthread_create(&thread, NULL, allocate_and_hold, NULL) == 0);
        pthread_join(thread, NULL);
    }
    return result;
}

static void hold_where_a_chunk_was(void)
{
    strata_block block;
    size_t count;
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &other.runtime));
    child_ok(strata_runtime_stream_acquire(other.runtime, &other.stream));
    child_ok(strata_runtime_allocate(other.runtime, 4 * MIB, other.stream, &block));
    child_ok(strata_runtime_deallocate_on(other.runtime, &block, other.stream));
    chunks.free = strata_cu.MemFree;
    strata_cu.MemFree = free_and_be_slow;
    child_ok(strata_runtime_trim(other.runtime, 0, NULL));
    strata_cu.MemFree = chunks.free;
    child_check(other.block.address == other.freed); /* otherwise the test proves nothing */
    child_check(other.chunks == 1);
    const strata_pool_part *parts = strata_pool_hold_parts(other.hold, &count);
    child_check(count == 1 && parts[0].address == other.block.address && parts[0].bytes == 4 * MIB);
    child_check(value_of(other.runtime, "pool.held") == 4 * MIB);
    strata_pool_hold_end(other.hold);
    child_check(value_of(other.runtime, "pool.held") == 0);
    child_ok(strata_runtime_deallocate_on(other.runtime, &other.block, other.stream));
    child_ok(strata_runtime_trim(other.runtime, 0, NULL));
    child_check(value_of(other.runtime, "pool.reserved") == 0);
    child_ok(strata_runtime_stream_release(other.runtime, other.stream));
    child_ok(strata_runtime_destroy(other.runtime));
}

static void a_hold_is_of_the_chunk_that_took_a_returned_ones_addresses(void **state)
{
    (void)state;
    test_child_run("hold_where_a_chunk_was", without_virtual_memory);
}

/* cuMemFree waits for the device, also where a request returns chunks before it takes another. */
static void a_pool_is_stream_ordered_if_its_chunks_are(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ordered;
    } stacks[] = {{"pool, async", true}, {"pool, direct", false}, {"pool, budget(limit=1GiB), direct", false}};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        strata_stack *stack;
        check_ok(strata_stack_create(stacks[i].text, 0, &stack));
        const uint32_t can = strata_resource_capabilities(strata_stack_top(stack));
        assert_int_equal((can & STRATA_CAPABILITY_STREAM_ORDERED) != 0, stacks[i].ordered);
        check_ok(strata_stack_destroy(stack));
    }
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(allocate_without_virtual_memory),
        TEST_SCENARIO(get_chunks_without_host_memory),
        TEST_SCENARIO(hold_where_a_chunk_was),
    };
    static const char *const stacks[] = {"pool(chunk=2MiB), budget(limit=64MiB), async",
                                         "pool(chunk=2MiB), budget(limit=64MiB), direct"};
    static const test_case cases[] = {
        TEST_CASE(what_is_reserved_is_what_a_budget_below_counts),
        TEST_CASE(a_budget_above_counts_blocks_and_one_below_counts_chunks),
        TEST_CASE(layers_above_hear_of_blocks_and_those_below_of_chunks),
        TEST_CASE(what_a_budget_below_refuses_names_it_and_changes_nothing),
        TEST_CASE(the_pools_own_limit_holds_over_a_layer_too),
        TEST_CASE(a_block_lies_in_one_chunk),
        TEST_CASE(what_is_left_of_a_chunk_serves_the_next_request),
        TEST_CASE(a_trim_returns_every_chunk_without_blocks),
        TEST_CASE(free_chunks_make_room_for_a_larger_request),
        TEST_CASE(no_more_than_the_overhead_is_held_beyond_the_peak),
        TEST_CASE(memory_in_use_is_not_waited_for_while_there_is_more),
        TEST_CASE(chunks_that_layers_below_do_not_let_go_at_once_make_room_too),
        TEST_CASE(a_stream_that_is_captured_gets_memory_of_a_new_chunk),
        TEST_CASE(a_threshold_and_holds_are_for_chunks_that_stay_too),
        TEST_CASE(a_chunk_that_is_not_taken_back_serves_on),
        TEST_CASE(a_chunk_that_cannot_be_waited_for_is_still_waited_for_later),
        TEST_CASE(an_allocation_below_that_fails_says_why),
        TEST_CASE(a_layer_below_may_call_into_the_stack),
        TEST_CASE(a_chunk_being_requested_counts_towards_the_limit),
        TEST_CASE(a_chunks_block_is_hidden_from_layers_above_the_pool),
        TEST_CASE(blocks_that_begin_anywhere_are_chunks),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_is_stream_ordered_if_its_chunks_are),
        cmocka_unit_test(an_export_type_over_another_layer_is_refused),
        cmocka_unit_test(a_new_chunk_serves_a_stream_that_may_not_wait),
        cmocka_unit_test(layers_that_could_not_be_built_can_stand_elsewhere),
        cmocka_unit_test(a_device_without_virtual_memory_has_a_pool_of_other_memory),
        cmocka_unit_test(what_cannot_be_entered_without_host_memory_goes_back_to_the_driver),
        cmocka_unit_test(a_hold_is_of_the_chunk_that_took_a_returned_ones_addresses),
    };
    setenv("STRATA_DRIVER", "auto", 0);
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_before_clearing = lift_limit;
    test_open_driver();
    int failed =
        test_run_on(stacks, test_is_swept() && !test_is_swept_in_full() ? 1 : 2, cases, sizeof cases / sizeof cases[0]);
    return failed + (test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL));
}
