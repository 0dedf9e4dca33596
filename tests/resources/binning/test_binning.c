/* fixed and binning: whose memory a stream gets and what it waits for, chunks that come and go, and what layers above
 * and below see of it. What holds for every layer is in test_layers, random traffic in test_model. */
#include <pthread.h>
#include <string.h>

#include "support/binning.h"
#include "support/captures.h"
#include "support/effort.h"
#include "support/faults.h"
#include "support/sweep.h"

enum { CHUNK = 4 * BYTES };

static CUstream pooled(test_fixture *fixture)
{
    return test_stream(fixture, TEST_STREAM_POOL);
}

static void close_all(test_fixture *fixture, const CUstream *streams, size_t count)
{
    for (size_t i = 0; i < count; i++)
        test_stream_close(fixture, streams[i]);
}

/* ---- whose memory, and what is waited for: chunks of four blocks ---- */

/* Whether something is so, or need not be: a place that cannot be waited for is left to others, and a chunk is taken.
 */
static bool is_or_is_swept(bool is)
{
    return is || test_is_swept();
}

static void a_stream_gets_back_what_it_freed_without_a_driver_call(test_fixture *fixture)
{
    CUstream stream = pooled(fixture);
    strata_block first = test_allocate(fixture, 1000, stream), second = test_allocate(fixture, BYTES, stream), block;
    assert_true(first.bytes == BYTES && first.requested == 1000 && first.alignment == 256);
    test_write(fixture, &second, 0x11, stream);
    test_free_on(fixture, &first, stream);
    test_free_on(fixture, &second, stream);
    test_stall *stall = test_stall_begin(stream);
    test_calls calls;
    test_calls_begin(&calls);
    for (size_t i = 0; i < 10; i++) {
        block = test_allocate(fixture, 1 + i, stream);
        assert_true(block.address == second.address); /* the one that was freed last */
        check_status(strata_runtime_deallocate(fixture->runtime, &second), STRATA_ERROR_DOUBLE_FREE);
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE));
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE));
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    }
    assert_int_equal(test_calls_total(&calls), 0);
    test_stall_end(stall);
    assert_int_equal(value(fixture, "fixed.hits"), 10);
    assert_int_equal(value(fixture, "fixed.chunks"), 1);
    assert_int_equal(value(fixture, "fixed.waits"), 0);
    test_stream_close(fixture, stream);
}

/* All but one place of the only chunk. */
static void fill_chunk(test_fixture *fixture, CUstream stream, strata_block *blocks)
{
    for (size_t i = 0; i < 3; i++)
        blocks[i] = test_allocate(fixture, BYTES, stream);
}

static void free_blocks(test_fixture *fixture, CUstream stream, const strata_block *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        test_free_on(fixture, &blocks[i], stream);
}

/* Each stream only touches the block in its own turn, so that every order but that of the turns shows. A stream that
 * comes third has nothing to do with the first, but for the memory. */
static void a_third_stream_waits_for_work_inherited_through_two_hand_overs(test_fixture *fixture)
{
    CUstream streams[4] = {pooled(fixture), pooled(fixture), pooled(fixture), pooled(fixture)};
    strata_block others[3], block, before = {0};
    const unsigned char *seen[3];
    fill_chunk(fixture, streams[3], others);
    test_stall *stall = test_stall_begin(streams[0]);
    for (size_t i = 0; i < 3; i++) {
        block = test_allocate(fixture, BYTES, streams[i]);
        assert_true(is_or_is_swept(i == 0 || block.address == before.address));
        if (i != 1) /* nothing of the second stream's own would be waited for */
            test_write(fixture, &block, (unsigned char)(i + 1), streams[i]);
        seen[i] = i != 1 ? test_read(fixture, &block, streams[i]) : NULL;
        before = block;
        test_free_on(fixture, &block, streams[i]);
    }
    assert_true(is_or_is_swept(value(fixture, "fixed.waits") == 2 && value(fixture, "fixed.chunks") == 1));
    test_stall_end(stall);
    check_bytes(seen[0], 1, BYTES);
    check_bytes(seen[2], 3, BYTES);
    free_blocks(fixture, streams[3], others, 3);
    close_all(fixture, streams, 4);
}

static void what_is_complete_goes_to_another_stream_without_a_wait(test_fixture *fixture)
{
    CUstream streams[3] = {pooled(fixture), pooled(fixture), test_stream(fixture, TEST_STREAM_UNKNOWN)};
    strata_block others[3], block = {0};
    fill_chunk(fixture, streams[0], others);
    strata_block first = test_allocate(fixture, BYTES, streams[0]);
    test_write(fixture, &first, 0x11, streams[0]);
    test_free_on(fixture, &first, streams[0]);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    for (size_t i = 1; i < 3; i++) {
        test_calls calls;
        test_calls_begin(&calls);
        block = test_allocate(fixture, BYTES, streams[i]);
        assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
        assert_true(block.address == first.address);
        test_write(fixture, &block, 0x22, streams[i]);
        test_free_on(fixture, &block, streams[i]);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
    }
    assert_int_equal(value(fixture, "fixed.waits"), 0);
    assert_int_equal(value(fixture, "fixed.chunks"), 1);
    free_blocks(fixture, streams[0], others, 3);
    close_all(fixture, streams, 3);
}

static void what_another_stream_still_uses_does_not_hold_up_the_stream_that_freed_it(test_fixture *fixture)
{
    CUstream streams[2] = {pooled(fixture), pooled(fixture)};
    strata_block used = test_allocate(fixture, BYTES, streams[0]), other;
    test_write(fixture, &used, 0x11, streams[0]);
    test_stall *stall = test_stall_begin(streams[1]);
    const unsigned char *seen = test_read(fixture, &used, streams[1]);
    test_free_on(fixture, &used, streams[0]);
    other = test_allocate(fixture, BYTES, streams[0]);
    assert_true(other.address != used.address);
    test_write(fixture, &other, 0x22, streams[0]);
    if (!test_is_swept()) /* there a fault may let the library wait on the host */
        test_synchronize(streams[0]);
    strata_block more[2] = {test_allocate(fixture, BYTES, streams[0]), test_allocate(fixture, BYTES, streams[0])};
    strata_block again = test_allocate(fixture, BYTES, streams[0]); /* rather than another chunk */
    assert_true(is_or_is_swept(again.address == used.address));
    test_write(fixture, &again, 0x33, streams[0]);
    test_stall_end(stall);
    check_bytes(seen, 0x11, BYTES);
    assert_true(is_or_is_swept(value(fixture, "fixed.waits") == 1));
    free_blocks(fixture, streams[0], more, 2);
    test_free_on(fixture, &other, streams[0]);
    test_free_on(fixture, &again, streams[0]);
    close_all(fixture, streams, 2);
}

/* The stream's last work on the block is noted nowhere: that it was submitted before the stream was unregistered is
 * what counts. */
static void a_block_whose_stream_is_gone_comes_after_all_that_it_was_given(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_REGISTERED), other = pooled(fixture);
    strata_block others[3], block, next;
    fill_chunk(fixture, other, others);
    block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x11, alloc_stream);
    test_read(fixture, &block, other); /* an event marks the write: what comes now is behind that */
    test_stall *stall = test_stall_begin(alloc_stream);
    const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, alloc_stream);
    test_stream_forget(fixture, alloc_stream);
    check_ok(strata_runtime_unregister_stream(fixture->runtime, alloc_stream));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    next = test_allocate(fixture, BYTES, other);
    assert_true(is_or_is_swept(next.address == block.address));
    test_write(fixture, &next, 0x22, other);
    test_stall_end(stall);
    check_bytes(seen, 0x11, BYTES);
    check_cu(test_cu()->StreamDestroy(alloc_stream));
    test_free_on(fixture, &next, other);
    free_blocks(fixture, other, others, 3);
    test_stream_close(fixture, other);
}

/* ---- chunks ---- */

static void trimming_gives_back_chunks_of_which_nothing_is_in_use(test_fixture *fixture)
{
    CUstream stream = pooled(fixture);
    strata_block blocks[12];
    size_t released;
    for (size_t i = 0; i < 12; i++)
        blocks[i] = test_allocate(fixture, BYTES, stream);
    assert_int_equal(value(fixture, "fixed.chunk_bytes"), 3 * CHUNK);
    strata_usage usage = test_usage(fixture);
    assert_true(usage.live_blocks == 12 && usage.live_bytes == 12 * BYTES && usage.retired_bytes == 0);
    test_stall *stall = test_stall_begin(stream);
    free_blocks(fixture, stream, blocks, 7); /* the first chunk and most of the second */
    usage = test_usage(fixture);
    assert_true(usage.live_blocks == 5 && usage.live_bytes == 5 * BYTES && usage.retired_bytes == 7 * BYTES);
    assert_true(usage.bytes_outstanding == 12 * BYTES);
    check_ok(strata_runtime_trim(fixture->runtime, 0, &released)); /* nothing is complete */
    assert_int_equal(value(fixture, "fixed.chunks"), 3);
    test_stall_end(stall);
    check_ok(strata_runtime_trim(fixture->runtime, SIZE_MAX, &released)); /* everything may stay */
    assert_int_equal(value(fixture, "fixed.chunks"), 3);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(value(fixture, "fixed.free_bytes"), 7 * BYTES);
    assert_int_equal(value(fixture, "fixed.retired_bytes"), 0);
    check_ok(strata_runtime_trim(fixture->runtime, 0, &released));
    assert_int_equal(value(fixture, "fixed.chunks"), 2);
    assert_int_equal(value(fixture, "fixed.given_back"), 1);
    if (strcmp(fixture->stack, "fixed(bytes=64KiB, chunk=256KiB), direct") == 0)
        assert_int_equal(released, CHUNK);
    usage = test_usage(fixture);
    assert_true(usage.live_blocks == 5 && usage.live_bytes == 5 * BYTES && usage.bytes_outstanding == 5 * BYTES);
    free_blocks(fixture, stream, blocks + 7, 5);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_ok(strata_runtime_trim(fixture->runtime, 0, &released));
    usage = test_usage(fixture);
    assert_true(value(fixture, "fixed.chunks") == 0 && usage.bytes_outstanding == 0 && usage.live_blocks == 0);
    test_stream_close(fixture, stream);
}

static void what_does_not_fit_into_a_block_passes(test_fixture *fixture)
{
    CUstream stream = pooled(fixture);
    strata_block large = test_allocate(fixture, BYTES + 1, stream), found;
    assert_true(large.bytes < 2 * BYTES);
    test_write(fixture, &large, 0x11, stream);
    check_ok(strata_runtime_find(fixture->runtime, large.address + BYTES, &found));
    assert_memory_equal(&found, &large, sizeof found);
    assert_true(value(fixture, "fixed.passed") == 1 && value(fixture, "fixed.chunks") == 0);
    const strata_request aligned = {.bytes = 100, .alignment = 4096, .stream = stream};
    strata_status status = strata_runtime_allocate_request(fixture->runtime, &aligned, &found);
    if (status == STRATA_SUCCESS) { /* the layer below can */
        assert_true(found.address % 4096 == 0 && value(fixture, "fixed.passed") == 2);
        test_free_on(fixture, &found, stream);
    } else {
        check_status(status, STRATA_ERROR_UNSUPPORTED);
    }
    test_free_on(fixture, &large, stream);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &large, stream), STRATA_ERROR_DOUBLE_FREE);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
    test_stream_close(fixture, stream);
}

static void addresses_in_a_chunk_and_in_no_block_lead_nowhere(test_fixture *fixture)
{
    strata_block first = test_allocate(fixture, BYTES, NULL), second = test_allocate(fixture, BYTES, NULL), found;
    CUdeviceptr chunk = first.address < second.address ? first.address : second.address;
    check_ok(strata_runtime_find(fixture->runtime, second.address + BYTES - 1, &found));
    assert_memory_equal(&found, &second, sizeof found);
    test_free_on(fixture, &first, NULL);
    check_status(strata_runtime_find(fixture->runtime, first.address, &found), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_runtime_find(fixture->runtime, chunk + CHUNK - 1, &found), STRATA_ERROR_FOREIGN_POINTER);
    size_t live = 0;
    check_ok(strata_runtime_find(fixture->runtime, second.address, &found));
    test_free_on(fixture, &second, NULL);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    live = test_usage(fixture).live_blocks;
    assert_int_equal(live, 0);
}

static void count_block(const strata_block *block, void *data)
{
    (void)block;
    ++*(size_t *)data;
}

static void a_visit_of_all_blocks_meets_no_chunk(test_fixture *fixture)
{
    strata_block blocks[2] = {test_allocate(fixture, 1, NULL), test_allocate(fixture, CHUNK, NULL)};
    size_t visited = 0;
    check_ok(strata_stack_visit_blocks(strata_runtime_stack(fixture->runtime), count_block, &visited));
    assert_int_equal(visited, 2);
    free_blocks(fixture, NULL, blocks, 2);
}

/* ---- layers above and below ---- */

/* Counts what it is told of blocks that it never saw. */
typedef struct listener {
    strata_resource resource;
    size_t finished, reused, unseen, late;
    size_t bytes;
    bool ended;
} listener;

static strata_status listener_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    strata_status status = resource->upstream->ops->allocate(resource->upstream, request, out);
    if (status == STRATA_SUCCESS)
        *(uint64_t *)strata_block_layer_bytes(resource, out->id) = out->id.generation;
    return status;
}

static void listener_completed(strata_resource *resource, const strata_completion *completion)
{
    listener *self = (listener *)resource;
    const uint64_t *seen = strata_block_layer_bytes(resource, completion->id);
    assert_true(completion->last);
    self->late += self->ended;
    self->unseen += !*seen || *seen > completion->id.generation; /* what a layer holds has a later one */
    self->bytes += completion->bytes;
    self->finished += completion->kind == STRATA_COMPLETION_FINISHED;
    self->reused += completion->kind == STRATA_COMPLETION_REUSED;
}

/* What a layer that freed itself would leave where it was. */
static void listener_destroy(strata_resource *resource)
{
    ((listener *)resource)->ended = true;
    resource->position = 1000;
}

static const strata_resource_ops listener_ops = {
    .size = sizeof(strata_resource_ops),
    .block_bytes = sizeof(uint64_t),
    .name = "listener",
    .allocate = listener_allocate,
    .completed = listener_completed,
    .destroy = listener_destroy,
};

static void layers_above_hear_of_blocks_and_layers_below_of_chunks(test_fixture *fixture)
{
    static listener above, below;
    strata_resource *resources[4] = {&above.resource, NULL, &below.resource, NULL};
    strata_runtime_config config = {.stream_capacity = 4};
    size_t released;
    check_ok(strata_runtime_destroy(fixture->runtime));
    fixture->runtime = NULL;
    above = below = (listener){.resource.ops = &listener_ops};
    check_ok(strata_fixed_create(&(strata_fixed_options){.bytes = BYTES, .chunk = CHUNK}, &resources[1]));
    strata_status status = strata_async_create(0, NULL, &resources[3]);
    if (status == STRATA_SUCCESS)
        status = strata_stack_build(resources, 4, 0, &config.stack);
    if (status != STRATA_SUCCESS) {
        strata_resource_destroy(resources[1]);
        strata_resource_destroy(resources[3]);
    }
    check_ok(status);
    check_ok(strata_runtime_create(&config, &fixture->runtime));
    CUstream stream = pooled(fixture);
    strata_block block = test_allocate(fixture, 1, stream), large = test_allocate(fixture, CHUNK, stream);
    test_free_on(fixture, &block, stream);
    block = test_allocate(fixture, 2, stream);
    assert_true(above.reused == 1 && above.finished == 0 && above.bytes == BYTES);
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &large, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(above.reused == 1 && above.finished == 2 && above.bytes == 2 * BYTES + CHUNK);
    check_ok(strata_runtime_trim(fixture->runtime, 0, &released));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(above.finished == 2 && above.bytes == 2 * BYTES + CHUNK);
    assert_true(below.finished == 2 && below.reused == 0 && below.bytes == 2 * CHUNK);
    assert_true(above.unseen == 0 && below.unseen == 0);
    block = test_allocate(fixture, 1, stream);
    test_free_on(fixture, &block, stream);
    test_stream_close(fixture, stream);
    use_stack(fixture, "direct"); /* at the end the chunk goes back when the layer above has ended */
    assert_true(above.late == 0 && below.late == 0 && below.finished == 3);
}

static uint64_t in_use(test_fixture *fixture, const char *which)
{
    return value(fixture, which);
}

static void a_budget_above_counts_blocks_and_one_below_counts_chunks(test_fixture *fixture)
{
    CUstream streams[2] = {pooled(fixture), pooled(fixture)};
    strata_block blocks[3], refused;
    size_t released;
    for (size_t i = 0; i < 3; i++)
        blocks[i] = test_allocate(fixture, 1000 * (i + 1), streams[0]);
    assert_int_equal(in_use(fixture, "budget[0].in_use"), 3 * BYTES);
    assert_int_equal(in_use(fixture, "budget[1].in_use"), CHUNK);
    check_status(strata_runtime_allocate(fixture->runtime, 1, streams[0], &refused), STRATA_ERROR_OUT_OF_BUDGET);
    /* Retired, and surely what the next request on that stream gets. */
    test_stall *stall = test_stall_begin(streams[0]);
    test_free_on(fixture, &blocks[2], streams[0]);
    check_status(strata_runtime_allocate(fixture->runtime, 1, streams[1], &refused), STRATA_ERROR_OUT_OF_BUDGET);
    blocks[2] = test_allocate(fixture, BYTES, streams[0]);
    assert_int_equal(in_use(fixture, "budget[0].reused"), 1);
    assert_int_equal(in_use(fixture, "budget[0].in_use"), 3 * BYTES);
    test_stall_end(stall);
    free_blocks(fixture, streams[0], blocks, 3);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(in_use(fixture, "budget[0].in_use"), 0);
    assert_int_equal(in_use(fixture, "budget[1].in_use"), CHUNK);
    check_ok(strata_runtime_trim(fixture->runtime, 0, &released));
    assert_int_equal(in_use(fixture, "budget[1].in_use"), 0);
    close_all(fixture, streams, 2);
}

static void where_no_chunk_fits_a_block_may(test_fixture *fixture)
{
    use_stack(fixture, "fixed(bytes=64KiB, chunk=256KiB), budget(limit=448KiB, wait=none), async");
    strata_block blocks[7], refused, large;
    for (size_t i = 0; i < 7; i++)
        blocks[i] = test_allocate(fixture, BYTES, NULL);
    assert_int_equal(value(fixture, "fixed.chunks"), 4); /* of four blocks, and three of one */
    assert_int_equal(value(fixture, "budget.in_use"), 7 * BYTES);
    check_status(strata_runtime_allocate_request(fixture->runtime,
                                                 &(strata_request){.bytes = 5000, .stream = NULL, .tag = 0}, &refused),
                 STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "fixed: no free block of 64 KiB (65536 bytes)");
    assert_true(strata_last_error()->requested == 5000 && strata_last_error()->limit == 448 * KIB);
    assert_memory_equal(&refused, &(strata_block){0}, sizeof refused);
    /* A request that passes has room made for it. */
    check_status(strata_runtime_allocate(fixture->runtime, BYTES + 1, NULL, &large), STRATA_ERROR_OUT_OF_BUDGET);
    free_blocks(fixture, NULL, blocks, 7);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(value(fixture, "budget.in_use"), 7 * BYTES);
    large = test_allocate(fixture, 6 * BYTES, NULL);
    assert_int_equal(value(fixture, "fixed.chunks"), 0);
    test_free_on(fixture, &large, NULL);
}

/* No stream was polled since the blocks were freed, one of them after a use on another stream. */
static void what_was_freed_and_is_complete_makes_room_unasked(test_fixture *fixture)
{
    if (test_is_swept()) /* where queries do not tell */
        return;
    use_stack(fixture, "binning(bins=64KiB;128KiB, chunk=256KiB), budget(limit=448KiB, wait=none), async");
    CUstream streams[2] = {pooled(fixture), pooled(fixture)};
    strata_block blocks[4], other, large;
    test_needs_truthful_queries();
    for (size_t i = 0; i < 4; i++)
        blocks[i] = test_allocate(fixture, BYTES, streams[0]);
    test_write(fixture, &blocks[3], 0x11, streams[1]);
    free_blocks(fixture, streams[0], blocks, 4);
    test_synchronize(streams[0]);
    test_synchronize(streams[1]);
    other = test_allocate(fixture, 2 * BYTES, streams[1]); /* of another bin, in a chunk of its own */
    assert_true(value(fixture, "binning.chunks") == 1 && value(fixture, "binning.given_back") == 1);
    test_free_on(fixture, &other, streams[1]);
    test_synchronize(streams[1]);
    large = test_allocate(fixture, 7 * BYTES, streams[0]); /* of no bin */
    assert_true(value(fixture, "binning.chunks") == 0 && value(fixture, "binning.given_back") == 2);
    test_free_on(fixture, &large, streams[0]);
    close_all(fixture, streams, 2);
}

/* What lies in chunks that are in use serves requests first, so that of others nothing is begun. */
static void requests_leave_chunks_alone_of_which_nothing_is_in_use(test_fixture *fixture)
{
    enum { PLACES = CHUNK / BYTES };
    CUstream stream = pooled(fixture);
    strata_block blocks[2 * PLACES];
    for (size_t i = 0; i < 2 * PLACES; i++)
        blocks[i] = test_allocate(fixture, BYTES, stream);
    test_free_on(fixture, &blocks[0], stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    free_blocks(fixture, stream, &blocks[PLACES], PLACES);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    strata_block again = test_allocate(fixture, BYTES, stream);
    assert_true(is_or_is_swept(again.address == blocks[0].address));
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    assert_true(is_or_is_swept(value(fixture, "fixed.chunks") == 1));
    test_free_on(fixture, &again, stream);
    free_blocks(fixture, stream, &blocks[1], PLACES - 1);
    test_stream_close(fixture, stream);
}

/* However many blocks were freed before that are not complete. */
static void what_is_complete_makes_room_behind_what_is_not(test_fixture *fixture)
{
    enum { ALL = 24, PENDING = 12 };
    if (test_is_swept())
        return;
    use_stack(fixture, "binning(bins=64KiB, chunk=64KiB), budget(limit=1536KiB, wait=none), async");
    CUstream streams[3] = {pooled(fixture), pooled(fixture), pooled(fixture)};
    strata_block blocks[ALL], large;
    test_needs_truthful_queries();
    for (size_t i = 0; i < ALL; i++)
        blocks[i] = test_allocate(fixture, BYTES, streams[0]);
    test_stall *stall = test_stall_begin(streams[1]);
    for (size_t i = 0; i < ALL; i++)
        test_write(fixture, &blocks[i], 0x11, streams[i < PENDING ? 1 : 2]);
    free_blocks(fixture, streams[0], blocks, ALL);
    test_synchronize(streams[2]);
    test_synchronize(streams[0]);
    const strata_request request = {.bytes = (ALL - PENDING) * BYTES, .stream = streams[0]};
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    const strata_status status = strata_resource_allocate(top, &request, &large);
    test_stall_end(stall);
    check_ok(status);
    assert_int_equal(value(fixture, "binning.chunks"), PENDING);
    test_free_on(fixture, &large, streams[0]);
    close_all(fixture, streams, 3);
}

static void *release_soon(void *stall)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    test_stall_release(stall);
    return NULL;
}

/* What `request` gets while `stream` is busy for a while yet. */
static strata_block allocate_beside_work(test_fixture *fixture, size_t bytes, CUstream stream, test_stall *stall)
{
    strata_block block;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release_soon, stall), 0);
    const strata_status status = strata_runtime_allocate(fixture->runtime, bytes, stream, &block);
    pthread_join(thread, NULL);
    check_ok(status);
    test_stall_end(stall);
    return block;
}

static void what_was_freed_makes_room_once_it_is_complete(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    use_stack(fixture, "binning(bins=64KiB;128KiB, chunk=256KiB), budget(limit=448KiB, wait=none), async");
    CUstream streams[2] = {pooled(fixture), pooled(fixture)};
    strata_block blocks[4], other, large;
    for (size_t i = 0; i < 4; i++)
        blocks[i] = test_allocate(fixture, BYTES, streams[0]);
    test_stall *stall = test_stall_begin(streams[0]);
    free_blocks(fixture, streams[0], blocks, 4);
    other = test_allocate(fixture, 2 * BYTES, streams[1]); /* one place, without a wait */
    test_stall_end(stall);
    assert_int_equal(value(fixture, "binning.chunks"), 2);
    stall = test_stall_begin(streams[1]);
    test_free_on(fixture, &other, streams[1]);
    large = allocate_beside_work(fixture, 7 * BYTES, streams[0], stall);
    assert_true(value(fixture, "binning.chunks") == 0 && value(fixture, "binning.given_back") == 2);
    test_free_on(fixture, &large, streams[0]);
    close_all(fixture, streams, 2);
}

/* During a capture a stream cannot be made to wait: the request waits for a slot of a used chunk. */
static void what_was_freed_serves_a_request_once_it_is_complete(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    use_stack(fixture, "fixed(bytes=64KiB, chunk=256KiB), budget(limit=256KiB, wait=none), async");
    CUstream capturing, stream = pooled(fixture);
    strata_block blocks[4], block;
    pthread_t thread;
    for (size_t i = 0; i < 4; i++)
        blocks[i] = test_allocate(fixture, BYTES, stream);
    check_cu(test_cu()->StreamCreate(&capturing, CU_STREAM_DEFAULT));
    test_stall *stall = test_stall_begin(stream);
    test_free_on(fixture, &blocks[0], stream);
    test_begin_capture(capturing);
    const bool made = pthread_create(&thread, NULL, release_soon, stall) == 0;
    const strata_status status = strata_runtime_allocate(fixture->runtime, BYTES, NULL, &block);
    if (made)
        pthread_join(thread, NULL);
    test_end_capture(capturing);
    test_stall_end(stall);
    check_ok(status);
    assert_true(made && block.address == blocks[0].address);
    test_free_on(fixture, &block, stream);
    free_blocks(fixture, stream, &blocks[1], 3);
    check_cu(test_cu()->StreamDestroy(capturing));
    test_stream_close(fixture, stream);
}

/* However much is freed. */
static void what_is_beyond_the_limit_below_waits_for_nothing(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    use_stack(fixture, "binning(bins=64KiB;1MiB, chunk=256KiB), budget(limit=448KiB, wait=none), async");
    CUstream streams[2] = {pooled(fixture), pooled(fixture)};
    strata_block block = test_allocate(fixture, BYTES, streams[0]), large;
    test_stall *stall = test_stall_begin(streams[0]);
    test_free_on(fixture, &block, streams[0]);
    const strata_status of_a_bin = strata_runtime_allocate(fixture->runtime, 16 * BYTES, streams[1], &large);
    const strata_status of_none = strata_runtime_allocate(fixture->runtime, 17 * BYTES, streams[1], &large);
    assert_int_equal(value(fixture, "binning.given_back"), 0);
    const bool waited = test_stall_timed_out();
    test_stall_end(stall);
    check_status(of_a_bin, STRATA_ERROR_OUT_OF_BUDGET);
    check_status(of_none, STRATA_ERROR_OUT_OF_BUDGET);
    assert_false(waited);
    close_all(fixture, streams, 2);
}

static void a_chunk_of_another_bin_makes_room_once_it_is_complete(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    use_stack(fixture, "binning(bins=64KiB;128KiB, chunk=256KiB), budget(limit=320KiB, wait=none), async");
    CUstream streams[2] = {pooled(fixture), pooled(fixture)};
    strata_block blocks[4], other;
    for (size_t i = 0; i < 4; i++)
        blocks[i] = test_allocate(fixture, BYTES, streams[0]);
    test_stall *stall = test_stall_begin(streams[0]);
    free_blocks(fixture, streams[0], blocks, 4);
    other = allocate_beside_work(fixture, 2 * BYTES, streams[1], stall);
    assert_true(value(fixture, "binning.chunks") == 1 && value(fixture, "binning.given_back") == 1);
    test_free_on(fixture, &other, streams[1]);
    close_all(fixture, streams, 2);
}

/* ---- captures ---- */

/* While a blocking stream is captured, nothing can be given to the legacy stream that waits for anything, and no event
 * recorded there. */
static void the_legacy_stream_beside_a_capture_is_given_only_what_needs_no_wait(test_fixture *fixture)
{
    CUstream other = pooled(fixture), captured;
    strata_block others[3], block, fresh, taken, again;
    check_cu(test_cu()->StreamCreate(&captured, CU_STREAM_DEFAULT));
    fill_chunk(fixture, other, others);
    block = test_allocate(fixture, BYTES, other);
    test_stall *stall = test_stall_begin(other);
    test_write(fixture, &block, 0x11, other);
    test_free_on(fixture, &block, other);
    test_begin_capture(captured);
    test_calls calls;
    test_calls_begin(&calls);
    fresh = test_allocate(fixture, BYTES, NULL); /* of another chunk */
    taken = test_allocate(fixture, BYTES, NULL);
    assert_true(fresh.address != block.address && taken.address != block.address);
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
    test_free_on(fixture, &taken, NULL);
    again = test_allocate(fixture, BYTES, NULL);
    assert_true(again.address == taken.address);
    test_free_on(fixture, &again, NULL);
    check_status(strata_runtime_reap_pending(fixture->runtime), STRATA_ERROR_STREAM_CAPTURE);
    assert_int_equal(test_end_capture(captured), 0);
    test_stall_end(stall);
    check_cu(test_cu()->StreamDestroy(captured));
    test_free_on(fixture, &fresh, NULL);
    free_blocks(fixture, other, others, 3);
    test_stream_close(fixture, other);
}

/* ---- threads ---- */

enum { HANDED = 16 };

typedef struct belt {
    test_fixture *fixture;
    CUstream stream;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    strata_block blocks[HANDED];
    size_t put, taken, turns;
    size_t failures;
} belt;

static void *free_what_comes(void *data)
{
    belt *self = data;
    test_make_current();
    for (size_t i = 0; i < self->turns; i++) {
        pthread_mutex_lock(&self->lock);
        while (self->put == self->taken)
            pthread_cond_wait(&self->changed, &self->lock);
        strata_block block = self->blocks[self->taken++ % HANDED];
        pthread_cond_signal(&self->changed);
        pthread_mutex_unlock(&self->lock);
        strata_runtime *runtime = self->fixture->runtime;
        self->failures += strata_runtime_prepare_block_use(runtime, &block, self->stream, STRATA_ACCESS_READ_WRITE) ||
                          test_cu()->MemsetD8Async(block.address, (unsigned char)i, 256, self->stream) ||
                          strata_runtime_finish_block_use(runtime, &block, self->stream, STRATA_ACCESS_READ_WRITE) ||
                          strata_runtime_deallocate_on(runtime, &block, self->stream);
    }
    test_leave_thread();
    return NULL;
}

/* What the one allocates the other frees: every place changes its stream each time. */
static void blocks_go_from_a_thread_that_allocates_to_one_that_frees(test_fixture *fixture)
{
    static belt one;
    CUstream alloc_stream = pooled(fixture);
    one = (belt){.fixture = fixture, .stream = pooled(fixture), .turns = test_effort(1000, 100)};
    pthread_mutex_init(&one.lock, NULL);
    pthread_cond_init(&one.changed, NULL);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_what_comes, &one), 0);
    size_t failures = 0;
    for (size_t i = 0; i < one.turns; i++) {
        strata_block block;
        failures += strata_runtime_allocate(fixture->runtime, 1 + i % BYTES, alloc_stream, &block) ||
                    strata_runtime_prepare_block_use(fixture->runtime, &block, alloc_stream, STRATA_ACCESS_WRITE) ||
                    test_cu()->MemsetD8Async(block.address, 1, 256, alloc_stream) ||
                    strata_runtime_finish_block_use(fixture->runtime, &block, alloc_stream, STRATA_ACCESS_WRITE);
        pthread_mutex_lock(&one.lock);
        while (one.put - one.taken == HANDED)
            pthread_cond_wait(&one.changed, &one.lock);
        one.blocks[one.put++ % HANDED] = block;
        pthread_cond_signal(&one.changed);
        pthread_mutex_unlock(&one.lock);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_cond_destroy(&one.changed);
    pthread_mutex_destroy(&one.lock);
    assert_int_equal(failures + one.failures, 0);
    assert_true(value(fixture, "fixed.chunks") <= (HANDED + 2 + 3) / 4 + 1);
    size_t released;
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_ok(strata_runtime_trim(fixture->runtime, 0, &released));
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
    test_stream_close(fixture, alloc_stream);
    test_stream_close(fixture, one.stream);
}

/* Each block was used on a stream of its own, which its free does not come after. The first trim asks all of these, by
 * events that it records; the second one hears that they are over. */
static void a_trim_gives_back_chunks_whose_frees_are_complete_on_many_streams(test_fixture *fixture)
{
    enum { COUNT = 40 };
    CUstream stream = pooled(fixture), users[COUNT];
    strata_block blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        users[i] = test_stream(fixture, TEST_STREAM_REGISTERED);
        blocks[i] = test_allocate(fixture, BYTES, stream);
        test_write(fixture, &blocks[i], 0x11, users[i]);
    }
    for (size_t i = 0; i < COUNT; i++)
        test_free_on(fixture, &blocks[i], stream);
    for (int i = 0; i < 2; i++) {
        check_cu(test_cu()->CtxSynchronize());
        check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    }
    assert_true(is_or_is_swept(test_usage(fixture).retired_bytes == 0 && value(fixture, "fixed.chunks") == 0));
}

int main(void)
{
    static const test_case ordering[] = {
        TEST_CASE(a_stream_gets_back_what_it_freed_without_a_driver_call),
        TEST_CASE(a_third_stream_waits_for_work_inherited_through_two_hand_overs),
        TEST_CASE(what_is_complete_goes_to_another_stream_without_a_wait),
        TEST_CASE(what_another_stream_still_uses_does_not_hold_up_the_stream_that_freed_it),
        TEST_CASE(a_block_whose_stream_is_gone_comes_after_all_that_it_was_given),
        TEST_CASE(trimming_gives_back_chunks_of_which_nothing_is_in_use),
        TEST_CASE(requests_leave_chunks_alone_of_which_nothing_is_in_use),
        TEST_CASE(what_does_not_fit_into_a_block_passes),
        TEST_CASE(addresses_in_a_chunk_and_in_no_block_lead_nowhere),
        TEST_CASE(a_visit_of_all_blocks_meets_no_chunk),
        TEST_CASE(blocks_go_from_a_thread_that_allocates_to_one_that_frees),
    };
    static const test_case others[] = {
        TEST_CASE(the_legacy_stream_beside_a_capture_is_given_only_what_needs_no_wait),
        TEST_CASE(layers_above_hear_of_blocks_and_layers_below_of_chunks),
        TEST_CASE(a_trim_gives_back_chunks_whose_frees_are_complete_on_many_streams),
        TEST_CASE(where_no_chunk_fits_a_block_may),
        TEST_CASE(what_was_freed_and_is_complete_makes_room_unasked),
        TEST_CASE(what_is_complete_makes_room_behind_what_is_not),
        TEST_CASE(what_was_freed_makes_room_once_it_is_complete),
        TEST_CASE(a_chunk_of_another_bin_makes_room_once_it_is_complete),
        TEST_CASE(what_was_freed_serves_a_request_once_it_is_complete),
        TEST_CASE(what_is_beyond_the_limit_below_waits_for_nothing),
    };
    static const test_case counting[] = {TEST_CASE(a_budget_above_counts_blocks_and_one_below_counts_chunks)};
    static const char *const stacks[] = {"fixed(bytes=64KiB, chunk=256KiB), async",
                                         "fixed(bytes=64KiB, chunk=256KiB), direct",
                                         "fixed(bytes=64KiB, chunk=256KiB), pool"};
    static const char *const budgets[] = {
        "budget(limit=192KiB, wait=none), fixed(bytes=64KiB, chunk=256KiB), budget(limit=1MiB), async"};
    test_open_driver();
    int failed = test_run_on(stacks, 3, ordering, sizeof ordering / sizeof ordering[0]);
    failed |= test_run_on(stacks, 1, others, sizeof others / sizeof others[0]);
    return test_run_on(budgets, 1, counting, 1) | failed;
}
