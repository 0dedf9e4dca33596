/* Captures and graphs: memory of captures, uses in them and at launches, frees of what graphs use, and their ends. */
#include <pthread.h>
#include <string.h>

#include "support/beside.h"
#include "support/captures.h"
#include "support/faults.h"
#include "support/graphs.h"
#include "support/refusals.h"
#include "support/sweep.h"

#include "runtime/captures.h"

enum { LARGE = 4 << 20 };

/* ---- what a graph does ---- */

static void a_graph_does_at_each_launch_what_was_captured(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_REGISTERED, TEST_STREAM_UNKNOWN,
                                             TEST_STREAM_PER_THREAD};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        CUstream stream = test_stream(fixture, kinds[k]), other = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, other);
        test_write(fixture, &block, 0x01, other);
        strata_capture_state state;
        begin(fixture, stream, NULL);
        check_ok(strata_capture_status(fixture->runtime, stream, &state));
        assert_int_equal(state, STRATA_CAPTURE_STATE_ACTIVE);
        assert_true(strata_is_stream_capturing(fixture->runtime, stream));
        test_write(fixture, &block, 0x22, stream);
        strata_graph *graph = end(fixture, stream);
        assert_false(strata_is_stream_capturing(fixture->runtime, stream));
        assert_int_equal(strata_graph_node_count(graph), 1);
        assert_false(strata_graph_has_pool(graph));
        check_value(fixture, &block, 0x01, stream); /* nothing ran so far */
        for (uint64_t i = 0; i < 3; i++) {
            test_write(fixture, &block, 0x33, other);
            check_ok(strata_graph_launch(graph, i % 2 ? other : stream));
            assert_int_equal(strata_graph_num_replays(graph), i + 1);
            check_value(fixture, &block, 0x22, other);
        }
        check_ok(destroy(graph));
        test_free_on(fixture, &block, other);
        test_stream_close(fixture, stream);
        test_stream_close(fixture, other);
    }
}

static void a_graph_is_uploaded_once(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x22, stream);
    strata_graph *graph = end(fixture, stream);
    assert_false(strata_graph_is_uploaded(graph));
    check_ok(strata_graph_upload(graph, stream));
    assert_true(strata_graph_is_uploaded(graph));
    check_ok(strata_graph_upload(graph, stream));
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x22, stream);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

static void a_launch_waits_for_earlier_uses_and_later_ones_wait_for_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), writer = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    copy(fixture, &to, &from, stream);
    strata_graph *graph = end(fixture, stream);
    for (unsigned char value = 1; value < 5; value++) {
        test_write(fixture, &from, value, writer);
        check_ok(strata_graph_launch(graph, stream));
        const unsigned char *seen = test_read(fixture, &to, reader);
        test_write(fixture, &from, 0x77, writer); /* after the launch has read it */
        test_synchronize(reader);
        check_bytes(seen, value, BYTES);
        fixture->seen_used = 0;
    }
    check_ok(destroy(graph));
    test_free_on(fixture, &from, writer);
    test_free_on(fixture, &to, reader);
}

static void streams_of_a_capture_are_ordered_by_their_uses(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    test_order_after(fork, stream); /* the fork comes before the write */
    test_write(fixture, &from, 0x44, stream);
    copy(fixture, &to, &from, fork);
    test_write(fixture, &from, 0x55, stream);
    test_order_after(stream, fork);
    strata_graph *graph = end(fixture, stream);
    assert_int_equal(strata_graph_node_count(graph), 3);
    for (int i = 0; i < 3; i++) {
        check_ok(strata_graph_launch(graph, stream));
        check_value(fixture, &to, 0x44, stream);
        check_value(fixture, &from, 0x55, stream);
    }
    check_ok(destroy(graph));
    test_free_on(fixture, &from, stream);
    test_free_on(fixture, &to, stream);
}

/* ---- memory of captures ---- */

static void what_is_freed_in_a_capture_is_used_again_in_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block out = test_allocate(fixture, BYTES, stream);
    const size_t before = live_blocks(fixture);
    begin(fixture, stream, NULL);
    CUdeviceptr address = 0;
    for (int i = 0; i < 20; i++) {
        strata_block block = test_allocate(fixture, BYTES, stream);
        assert_true(address == 0 || block.address == address);
        address = block.address;
        assert_true(block.stream == stream);
        test_write(fixture, &block, (unsigned char)i, stream);
        copy(fixture, &out, &block, stream);
        check_ok(i % 2 ? strata_runtime_deallocate(fixture->runtime, &block)
                       : strata_runtime_deallocate_on(fixture->runtime, &block, stream));
        check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
    }
    assert_int_equal(live_blocks(fixture), before + 1); /* a segment */
    strata_graph *graph = end(fixture, stream);
    assert_int_equal(strata_graph_node_count(graph), 40); /* none allocates */
    assert_true(strata_graph_has_private_pool(graph));
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &out, 19, stream);
    check_ok(destroy(graph));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
    test_free_on(fixture, &out, stream);
}

static void branches_of_a_fork_share_no_memory_until_they_are_joined(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block first, second, third;
    begin(fixture, stream, NULL);
    test_order_after(fork, stream);
    first = test_allocate(fixture, BYTES, fork);
    test_write(fixture, &first, 0x10, fork);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &first, fork));
    second = test_allocate(fixture, BYTES, stream);
    assert_true(second.address != first.address); /* the fork's work may still use it */
    test_write(fixture, &second, 0x20, stream);
    test_order_after(stream, fork);
    third = test_allocate(fixture, BYTES, stream);
    assert_true(third.address == first.address);
    test_write(fixture, &third, 0x30, stream);
    strata_graph *graph = end(fixture, stream);
    for (int i = 0; i < 2; i++) {
        check_ok(strata_graph_launch(graph, fork));
        check_value(fixture, &second, 0x20, stream);
        check_value(fixture, &third, 0x30, stream);
    }
    test_free_on(fixture, &second, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &third));
    check_ok(strata_graph_launch(graph, fork)); /* without its blocks, too */
    check_ok(destroy(graph));
}

static void a_block_of_a_capture_is_found_by_address_and_its_memory_after_the_free_is_not(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block found;
    begin(fixture, stream, NULL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_graph *graph = end(fixture, stream);
    if (strata_runtime_find(fixture->runtime, block.address + 100, &found) == STRATA_SUCCESS) {
        assert_memory_equal(&found.id, &block.id, sizeof found.id);
        assert_int_equal(found.requested, BYTES);
        check_ok(strata_runtime_deallocate_address(fixture->runtime, block.address, stream));
        check_status(strata_runtime_find(fixture->runtime, block.address, &found), STRATA_ERROR_FOREIGN_POINTER);
    } else {
        test_free_on(fixture, &block, stream);
    }
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_FREED);
    check_ok(destroy(graph));
}

static void a_sealed_pool_gives_nothing(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_capture_pool *pool = make_pool(fixture);
    strata_block block;
    strata_ref *ref;
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_U8, 100, false, stream, &ref));
    refs[ref_count++] = ref;
    assert_false(strata_capture_pool_is_sealed(pool));
    check_ok(strata_capture_pool_seal(pool));
    assert_true(strata_capture_pool_is_sealed(pool));
    check_status(strata_capture_pool_record_buffer(pool, ref), STRATA_ERROR_SEALED);
    check_status(strata_capture_pool_clear_buffers(pool), STRATA_ERROR_SEALED);
    begin(fixture, stream, pool);
    check_status(strata_runtime_allocate(fixture->runtime, BYTES, stream, &block), STRATA_ERROR_SEALED);
    check_ok(strata_capture_pool_unseal(pool));
    check_ok(strata_runtime_allocate(fixture->runtime, BYTES, stream, &block));
    check_ok(strata_capture_pool_seal(pool));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    strata_graph *graph = end(fixture, stream);
    check_ok(destroy(graph));
    check_ok(release_pool(pool));
    check_ok(strata_ref_release(refs[--ref_count]));
}

static void recorded_buffers_live_as_long_as_the_pool_and_its_graphs(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_capture_pool *pool = make_pool(fixture);
    strata_ref *ref;
    const size_t before = live_blocks(fixture);
    for (size_t i = 1; i <= 20; i++) {
        check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_U8, BYTES, false, stream, &ref));
        const strata_status recorded = strata_capture_pool_record_buffer(pool, ref);
        check_ok(strata_ref_release(ref));
        check_ok(recorded);
        assert_int_equal(strata_capture_pool_buffer_count(pool), i);
    }
    assert_int_equal(live_blocks(fixture), before + 20);
    begin(fixture, stream, pool);
    strata_graph *graph = end(fixture, stream);
    assert_int_equal(strata_graph_pool_buffer_count(graph), 20);
    check_ok(release_pool(pool));
    assert_int_equal(live_blocks(fixture), before + 20);
    check_ok(destroy(graph));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
    assert_int_equal(strata_capture_pool_buffer_count(NULL), 0);
}

static void a_pool_is_found_by_its_number_until_its_handles_are_given_back(test_fixture *fixture)
{
    strata_capture_pool *pool = make_pool(fixture), *found;
    const uint64_t handle = strata_graph_pool_handle(pool);
    check_ok(strata_capture_pool_for_handle(fixture->runtime, handle, &found));
    assert_ptr_equal(found, pool);
    check_ok(strata_release_graph_pool_handle(fixture->runtime, handle));
    check_ok(release_pool(pool));
    check_status(strata_capture_pool_for_handle(fixture->runtime, handle, &found), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_release_graph_pool_handle(fixture->runtime, handle), STRATA_ERROR_INVALID_VALUE);
    assert_null(found);
    assert_int_equal(strata_graph_pool_handle(NULL), 0);
}

/* Two graphs of one pool, and the pool's handle, ended in the order that `order` says. */
static void share_a_pool(test_fixture *fixture, const int order[3])
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    const size_t before = live_blocks(fixture);
    strata_block out[2] = {test_allocate(fixture, BYTES, stream), test_allocate(fixture, BYTES, other)};
    strata_capture_pool *pool = make_pool(fixture);
    strata_graph *made[2];
    for (int i = 0; i < 2; i++) {
        begin(fixture, stream, pool);
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_write(fixture, &block, (unsigned char)(i + 1), stream);
        copy(fixture, &out[i], &block, stream);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        made[i] = end(fixture, stream);
        assert_ptr_equal(strata_graph_pool(made[i]), pool);
        assert_false(strata_graph_has_private_pool(made[i]));
    }
    for (int i = 0; i < 4; i++) /* the same memory, on two streams: never at a time */
        check_ok(strata_graph_launch(made[i % 2], i % 2 ? other : stream));
    for (int i = 0; i < 3; i++)
        check_ok(order[i] == 2 ? release_pool(pool) : destroy(made[order[i]]));
    for (int i = 0; i < 2; i++) {
        check_value(fixture, &out[i], (unsigned char)(i + 1), stream);
        test_free_on(fixture, &out[i], stream);
    }
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
    test_stream_close(fixture, stream);
    test_stream_close(fixture, other);
}

static void a_shared_pool_ends_with_its_last_user_in_whatever_order(test_fixture *fixture)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < 6; i++)
        share_a_pool(fixture, orders[i]);
}

/* The checker sees a launch that does not wait for a use of them. */
static void launches_wait_for_uses_of_the_blocks_that_live_in_the_pool(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_capture_pool *pool = make_pool(fixture);
    begin(fixture, stream, pool);
    strata_block lives = test_allocate(fixture, BYTES, stream), freed = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &lives, 0x11, stream);
    test_write(fixture, &freed, 0x22, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &freed));
    strata_graph *first = end(fixture, stream);
    for (int i = 0; i < 3; i++) {
        check_ok(strata_graph_launch(first, stream));
        check_value(fixture, &lives, 0x11, reader);
        test_read(fixture, &lives, reader); /* the next launch comes after it */
    }
    test_synchronize(reader);
    fixture->seen_used = 0;
    begin(fixture, stream, pool);
    strata_block later = test_allocate(fixture, BYTES, stream); /* where the first graph has written */
    test_write(fixture, &later, 0x33, stream);
    strata_graph *second = end(fixture, stream);
    assert_true(later.address == freed.address);
    check_ok(strata_graph_launch(second, stream));
    const unsigned char *seen = test_read(fixture, &later, reader);
    check_ok(strata_graph_launch(first, stream));
    test_synchronize(reader);
    check_bytes(seen, 0x33, BYTES);
    fixture->seen_used = 0;
    check_ok(destroy(first));
    check_ok(destroy(second));
    test_free_on(fixture, &lives, reader);
    test_free_on(fixture, &later, reader);
    check_ok(release_pool(pool));
}

static void a_block_of_a_capture_outlives_its_graph_and_its_pool(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    const size_t before = live_blocks(fixture);
    begin(fixture, stream, NULL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x66, stream);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_ok(destroy(graph));
    check_value(fixture, &block, 0x66, other);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
}

/* ---- frees of what a graph uses ---- */

static void the_free_of_a_block_that_a_graph_uses_waits_for_the_graphs_end(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    const size_t before = live_blocks(fixture);
    for (int own = 0; own < 2; own++) {
        strata_block block = test_allocate(fixture, BYTES, stream);
        strata_graph *made[2];
        for (int i = 0; i < 2; i++) {
            begin(fixture, stream, NULL);
            test_write(fixture, &block, 0x21, stream);
            made[i] = end(fixture, stream);
        }
        check_ok(own ? strata_runtime_deallocate(fixture->runtime, &block)
                     : strata_runtime_deallocate_on(fixture->runtime, &block, other));
        check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
        assert_int_equal(live_blocks(fixture), before + 1);
        check_ok(strata_graph_launch(made[0], stream));
        check_ok(destroy(made[0]));
        check_ok(strata_graph_launch(made[1], other));
        assert_int_equal(live_blocks(fixture), before + 1);
        check_ok(destroy(made[1]));
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(live_blocks(fixture), before);
    }
}

static void the_free_of_a_block_that_a_graph_uses_is_refused_if_the_graph_says_so(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x21, stream);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_refuse_frees(graph, true));
    check_ok(strata_graph_refuse_frees(graph, true));
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_BLOCK_IN_USE);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, stream), STRATA_ERROR_BLOCK_IN_USE);
    check_ok(strata_graph_launch(graph, stream));
    check_ok(destroy(graph));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void a_graph_is_destroyed_while_a_launch_is_in_flight(test_fixture *fixture)
{
    if (strncmp(fixture->stack, "guard", 5) == 0)
        test_needs_truthful_queries(); /* guard waits on the host for what is not known to be complete */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block out = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x5a, stream);
    copy(fixture, &out, &block, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    strata_graph *graph = end(fixture, stream);
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_graph_launch(graph, stream));
    if (!test_owner_is(fixture, "direct")) /* whose frees wait */
        check_ok(destroy(graph));
    strata_block next = {0};
    if (!test_owner_is(fixture, "direct")) {
        next = test_allocate(fixture, 2 << 20, other); /* perhaps the segment's memory */
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &next, other, STRATA_ACCESS_WRITE));
        test_fill(next.address, 0x99, 2 << 20, other);
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &next, other, STRATA_ACCESS_WRITE));
    }
    test_stall_release(stall);
    check_value(fixture, &out, 0x5a, stream);
    test_stall_end(stall);
    if (test_owner_is(fixture, "direct"))
        check_ok(destroy(graph));
    else
        test_free_on(fixture, &next, other);
    test_free_on(fixture, &out, stream);
}

static void a_launch_in_a_capture_names_references_and_the_graph_holds_them(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const size_t before = live_blocks(fixture);
    strata_launch launch;
    strata_ref_memory memory;
    strata_ref *ref;
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_U8, BYTES, false, stream, &ref));
    refs[ref_count++] = ref;
    check_ok(strata_ref_access(ref, &memory));
    begin(fixture, stream, NULL);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    strata_status status = strata_launch_use_ref(&launch, ref, STRATA_ACCESS_WRITE);
    if (status == STRATA_SUCCESS)
        status = strata_launch_preflight(&launch);
    if (status == STRATA_SUCCESS) {
        test_fill(memory.address, 0x31, BYTES, stream);
        status = strata_launch_commit(&launch);
    }
    check_ok(strata_launch_end(&launch));
    check_ok(status);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_ref_release(refs[--ref_count]));
    assert_int_equal(live_blocks(fixture), before + 1);
    check_ok(strata_graph_launch(graph, stream));
    test_synchronize(stream);
    check_ok(destroy(graph));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
}

/* ---- ends ---- */

static void a_capture_that_is_discarded_leaves_stream_and_memory_usable(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const size_t before = live_blocks(fixture);
    strata_block outside = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    strata_block freed = test_allocate(fixture, BYTES, stream), kept = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &freed, 1, stream);
    test_write(fixture, &outside, 1, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &freed));
    check_ok(strata_runtime_deallocate(fixture->runtime, &outside));
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    check_status(strata_capture_discard(fixture->runtime, stream), STRATA_ERROR_INVALID_VALUE);
    test_write(fixture, &kept, 2, stream);
    check_value(fixture, &kept, 2, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &kept));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
}

static void the_release_of_a_stream_discards_its_capture(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_REGISTERED};
    for (size_t k = 0; k < 2; k++) {
        CUstream stream = test_stream(fixture, kinds[k]);
        begin(fixture, stream, NULL);
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_write(fixture, &block, 1, stream);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        test_stream_close(fixture, stream);
        forget_capture(stream);
    }
    CUstream again = test_stream(fixture, TEST_STREAM_POOL);
    assert_false(strata_is_stream_capturing(fixture->runtime, again));
}

typedef struct leaver {
    test_fixture *fixture;
    CUstream stream;
    strata_status status;
} leaver;

static void *begin_and_leave(void *data)
{
    leaver *self = data;
    test_make_current();
    self->status = strata_capture_begin(self->fixture->runtime, self->stream, STRATA_CAPTURE_THREAD_LOCAL, NULL);
    return NULL;
}

static void the_end_of_a_thread_discards_its_captures(test_fixture *fixture)
{
    leaver self = {.fixture = fixture, .stream = test_stream(fixture, TEST_STREAM_POOL)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, begin_and_leave, &self), 0);
    pthread_join(thread, NULL);
    check_ok(self.status);
    assert_false(strata_is_stream_capturing(fixture->runtime, self.stream));
    strata_block block = test_allocate(fixture, BYTES, self.stream);
    test_write(fixture, &block, 7, self.stream);
    check_value(fixture, &block, 7, self.stream);
    test_free_on(fixture, &block, self.stream);
}

static void a_capture_that_was_spoiled_gives_no_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_capture_state state;
    strata_graph *graph = (strata_graph *)fixture;
    begin(fixture, stream, NULL);
    assert_int_not_equal(test_cu()->StreamSynchronize(stream), CUDA_SUCCESS);
    check_ok(strata_capture_status(fixture->runtime, stream, &state));
    assert_int_equal(state, STRATA_CAPTURE_STATE_INVALIDATED);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_STREAM_CAPTURE);
    forget_capture(stream);
    assert_null(graph);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_INVALID_VALUE);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 7, stream);
    check_value(fixture, &block, 7, stream);
    test_free_on(fixture, &block, stream);
}

static void a_capture_with_a_branch_that_was_not_joined_gives_no_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_graph *graph;
    begin(fixture, stream, NULL);
    test_order_after(fork, stream);
    strata_block block = test_allocate(fixture, BYTES, fork);
    test_write(fixture, &block, 7, fork);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_STREAM_CAPTURE);
    check_last_error(STRATA_ERROR_STREAM_CAPTURE, "not joined");
    forget_capture(stream);
    test_write(fixture, &block, 8, stream);
    check_value(fixture, &block, 8, stream);
    test_free_on(fixture, &block, stream);
}

static void a_block_that_is_freed_on_a_forked_stream_goes_with_the_graph(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_REGISTERED, TEST_STREAM_UNKNOWN};
    const size_t before = live_blocks(fixture);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, kinds[k]);
        strata_block block = test_allocate(fixture, BYTES, stream);
        begin(fixture, stream, NULL);
        test_order_after(fork, stream);
        check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, fork));
        test_order_after(stream, fork);
        strata_graph *graph = end(fixture, stream);
        assert_int_equal(live_blocks(fixture), before + 1);
        test_stream_close(fixture, fork); /* the free needs it no more */
        check_ok(destroy(graph));
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(live_blocks(fixture), before);
    }
}

static CUresult CUDAAPI refuse_to_say(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream, (void)status;
    return CUDA_ERROR_UNKNOWN;
}

/* A free at once would be a call on a forked stream, and spoil the capture. */
static void a_free_on_a_stream_that_may_be_forked_waits_for_the_end_of_the_capture(test_fixture *fixture)
{
    const size_t before = live_blocks(fixture);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_REGISTERED);
    strata_block block = test_allocate(fixture, BYTES, stream);
    CUresult(CUDAAPI *const real)(CUstream, CUstreamCaptureStatus *) = strata_cu.StreamIsCapturing;
    begin(fixture, stream, NULL);
    test_order_after(fork, stream);
    strata_cu.StreamIsCapturing = refuse_to_say;
    const strata_status status = strata_runtime_deallocate_on(fixture->runtime, &block, fork);
    strata_cu.StreamIsCapturing = real;
    test_order_after(stream, fork);
    strata_graph *graph = end(fixture, stream);
    check_ok(status);
    assert_int_equal(live_blocks(fixture), before + 1);
    check_ok(destroy(graph));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
}

/* The simulated driver fails on purpose. */
static bool has_refusals(void)
{
    return test_sim_control() && !test_is_swept();
}

static void a_capture_that_the_driver_did_not_end_can_be_ended_again(test_fixture *fixture)
{
    if (!has_refusals())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_graph *graph;
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x22, stream);
    test_refuse("cuStreamEndCapture", 1, 1, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_capture_end(fixture->runtime, stream, &graph);
    test_refuse_no_more();
    check_status(status, STRATA_ERROR_DRIVER);
    assert_null(graph);
    assert_true(strata_is_stream_capturing(fixture->runtime, stream));
    graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x22, stream);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

static void a_refused_launch_is_logged_while_other_threads_launch_the_graph(test_fixture *fixture)
{
    if (!has_refusals())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_beside beside;
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x22, stream);
    test_launch other = {end(fixture, stream), stream};
    test_beside_begin(&beside, test_launch_beside, &other);
    test_refuse("cuGraphLaunch", 1, 1, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_graph_launch(other.graph, stream);
    test_refuse_no_more();
    assert_true(test_beside_end(&beside));
    check_status(status, STRATA_ERROR_DRIVER);
    check_value(fixture, &block, 0x22, stream);
    check_ok(destroy(other.graph));
    test_free_on(fixture, &block, stream);
}

static void work_of_which_the_driver_does_not_tell_the_capture_gives_no_graph(test_fixture *fixture)
{
    if (!has_refusals())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block outside = test_allocate(fixture, BYTES, stream);
    for (int own = 0; own < 2; own++) {
        strata_graph *graph;
        begin(fixture, stream, NULL);
        strata_block inside = test_allocate(fixture, BYTES, stream), *block = own ? &inside : &outside;
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE));
        test_fill(block->address, 1, BYTES, stream);
        test_refuse("cuStreamGetCaptureInfo", 1, 1, CUDA_ERROR_UNKNOWN);
        const strata_status status =
            strata_runtime_finish_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE);
        test_refuse_no_more();
        check_status(status, STRATA_ERROR_DRIVER);
        check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_DRIVER);
        assert_null(graph);
        assert_false(strata_is_stream_capturing(fixture->runtime, stream));
        forget_capture(stream);
        check_ok(strata_runtime_deallocate(fixture->runtime, &inside));
    }
    test_free_on(fixture, &outside, stream);
}

static void what_cannot_be_captured_is_refused(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_graph *graph;
    check_status(strata_capture_begin(fixture->runtime, NULL, STRATA_CAPTURE_GLOBAL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_capture_begin(fixture->runtime, stream, (strata_capture_mode)3, NULL),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_capture_begin(NULL, stream, STRATA_CAPTURE_GLOBAL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_INVALID_VALUE);
    begin(fixture, stream, NULL);
    check_status(strata_capture_begin(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, NULL),
                 STRATA_ERROR_STREAM_CAPTURE);
    strata_block block = test_allocate(fixture, BYTES, stream);
    check_status(strata_runtime_finish_block_use(fixture->runtime, &(strata_block){.address = 77}, stream, 1),
                 STRATA_ERROR_STREAM_MISUSE);
    graph = end(fixture, stream);
    CUstream foreign = test_stream(fixture, TEST_STREAM_UNKNOWN); /* captured by other code */
    test_begin_capture(foreign);
    const strata_status refused = strata_graph_launch(graph, foreign);
    assert_int_equal(test_end_capture(foreign), 0);
    check_status(refused, STRATA_ERROR_STREAM_CAPTURE);
    check_status(strata_graph_launch(NULL, stream), STRATA_ERROR_INVALID_VALUE);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
    check_ok(strata_graph_destroy(NULL));
    check_ok(strata_capture_pool_release(NULL));
}

static void a_graph_of_an_earlier_generation_is_stale(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_capture_pool *pool = make_pool(fixture);
    begin(fixture, stream, pool);
    test_write(fixture, &block, 7, stream);
    strata_graph *graph = end(fixture, stream);
    assert_int_equal(strata_graph_generation(graph), 0);
    check_ok(strata_device_state_bump_generation(strata_runtime_device_state(fixture->runtime), NULL));
    check_status(strata_graph_launch(graph, stream), STRATA_ERROR_STALE);
    check_status(strata_graph_upload(graph, stream), STRATA_ERROR_STALE);
    check_status(strata_capture_begin(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, pool), STRATA_ERROR_STALE);
    assert_int_equal(strata_graph_num_replays(graph), 0);
    check_ok(destroy(graph));
    check_ok(release_pool(pool));
    test_free_on(fixture, &block, stream);
}

static void a_runtime_with_graphs_is_not_destroyed(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    begin(fixture, stream, NULL);
    strata_graph *graph = end(fixture, stream);
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "1 graph;");
    check_ok(destroy(graph));
    strata_capture_pool *pool = make_pool(fixture);
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    check_ok(release_pool(pool));
}

static uint64_t count(test_fixture *fixture, const char *name)
{
    uint64_t value;
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, &value, NULL));
    return value;
}

static void the_process_counts_captures_graphs_and_launches(test_fixture *fixture)
{
    static const char *const names[] = {"captures.made", "captures.ended", "graphs.made", "graphs.ended",
                                        "graphs.launches"};
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    const uint64_t zero = 0, one = 1, live = count(fixture, "graphs.live");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        check_status(strata_control(stack, names[i], NULL, &one), STRATA_ERROR_INVALID_VALUE);
        check_ok(strata_control(stack, names[i], NULL, &zero));
        assert_int_equal(count(fixture, names[i]), 0);
    }
    check_status(strata_control(stack, "graphs.live", NULL, &zero), STRATA_ERROR_INVALID_VALUE);
    begin(fixture, stream, NULL);
    assert_int_equal(count(fixture, "captures.live"), 1);
    test_write(fixture, &block, 0x22, stream);
    strata_graph *graph = end(fixture, stream);
    begin(fixture, stream, NULL);
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    for (int i = 0; i < 3; i++)
        check_ok(strata_graph_launch(graph, stream));
    assert_int_equal(count(fixture, "captures.made"), 2);
    assert_int_equal(count(fixture, "captures.ended"), 2);
    assert_int_equal(count(fixture, "captures.live"), 0);
    assert_int_equal(count(fixture, "graphs.made"), 1);
    assert_int_equal(count(fixture, "graphs.live"), live + 1);
    assert_int_equal(count(fixture, "graphs.launches"), 3);
    check_ok(destroy(graph));
    assert_int_equal(count(fixture, "graphs.ended"), 1);
    assert_int_equal(count(fixture, "graphs.live"), live);
    assert_true(count(fixture, "events.live") == count(fixture, "events.made") - count(fixture, "events.ended"));
    test_free_on(fixture, &block, stream);
}

static void write_text(const char *text, size_t length, void *data)
{
    assert_true(length < 256);
    memcpy(data, text, length);
    ((char *)data)[length] = '\0';
}

static void print_says_what_a_graph_has(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    char text[256];
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 7, stream);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    strata_graph_print(graph, write_text, text);
    assert_string_equal(text,
                        "graph \"capture\" of 1 nodes, generation 0: 1 blocks from outside, pool \"capture\" of 0 "
                        "bytes, 1 launches");
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

/* ---- threads ---- */

typedef struct launcher {
    strata_graph *graph;
    CUstream stream;
    bool destroyed;
    strata_status status;
} launcher;

static void *launch_often(void *data)
{
    launcher *self = data;
    test_make_current();
    for (int i = 0; i < 20 && self->status == STRATA_SUCCESS; i++)
        self->status = strata_graph_launch(self->graph, self->stream);
    self->destroyed = self->status == STRATA_SUCCESS;
    if (self->destroyed)
        self->status = strata_graph_destroy(self->graph);
    return NULL;
}

static void graphs_that_share_memory_are_launched_and_destroyed_by_several_threads(test_fixture *fixture)
{
    enum { THREADS = 4 };
    strata_capture_pool *pool = make_pool(fixture);
    strata_block out[THREADS];
    launcher all[THREADS];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        all[i] = (launcher){.stream = test_stream(fixture, TEST_STREAM_POOL)};
        out[i] = test_allocate(fixture, BYTES, all[i].stream);
        begin(fixture, all[i].stream, pool);
        strata_block block = test_allocate(fixture, BYTES, all[i].stream);
        test_write(fixture, &block, (unsigned char)(i + 1), all[i].stream);
        copy(fixture, &out[i], &block, all[i].stream);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        all[i].graph = end(fixture, all[i].stream);
    }
    check_ok(release_pool(pool));
    graph_count -= THREADS; /* the threads destroy them */
    size_t started = 0;
    while (started < THREADS && pthread_create(&threads[started], NULL, launch_often, &all[started]) == 0)
        started++;
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL); /* all of them, before a check can leave */
    assert_int_equal(started, THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        if (!all[i].destroyed)
            graphs[graph_count++] = all[i].graph;
    }
    for (size_t i = 0; i < THREADS; i++) {
        check_ok(all[i].status);
        check_value(fixture, &out[i], (unsigned char)(i + 1), all[i].stream);
        test_free_on(fixture, &out[i], all[i].stream);
    }
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_graph_does_at_each_launch_what_was_captured),
        TEST_CASE(a_graph_is_uploaded_once),
        TEST_CASE(a_launch_waits_for_earlier_uses_and_later_ones_wait_for_it),
        TEST_CASE(streams_of_a_capture_are_ordered_by_their_uses),
        TEST_CASE(what_is_freed_in_a_capture_is_used_again_in_it),
        TEST_CASE(branches_of_a_fork_share_no_memory_until_they_are_joined),
        TEST_CASE(a_block_of_a_capture_is_found_by_address_and_its_memory_after_the_free_is_not),
        TEST_CASE(a_sealed_pool_gives_nothing),
        TEST_CASE(recorded_buffers_live_as_long_as_the_pool_and_its_graphs),
        TEST_CASE(a_pool_is_found_by_its_number_until_its_handles_are_given_back),
        TEST_CASE(a_shared_pool_ends_with_its_last_user_in_whatever_order),
        TEST_CASE(launches_wait_for_uses_of_the_blocks_that_live_in_the_pool),
        TEST_CASE(a_block_of_a_capture_outlives_its_graph_and_its_pool),
        TEST_CASE(the_free_of_a_block_that_a_graph_uses_waits_for_the_graphs_end),
        TEST_CASE(the_free_of_a_block_that_a_graph_uses_is_refused_if_the_graph_says_so),
        TEST_CASE(a_graph_is_destroyed_while_a_launch_is_in_flight),
        TEST_CASE(a_launch_in_a_capture_names_references_and_the_graph_holds_them),
        TEST_CASE(a_capture_that_is_discarded_leaves_stream_and_memory_usable),
        TEST_CASE(the_release_of_a_stream_discards_its_capture),
        TEST_CASE(the_end_of_a_thread_discards_its_captures),
        TEST_CASE(a_capture_that_was_spoiled_gives_no_graph),
        TEST_CASE(a_capture_with_a_branch_that_was_not_joined_gives_no_graph),
        TEST_CASE(a_block_that_is_freed_on_a_forked_stream_goes_with_the_graph),
        TEST_CASE(a_free_on_a_stream_that_may_be_forked_waits_for_the_end_of_the_capture),
        TEST_CASE(a_capture_that_the_driver_did_not_end_can_be_ended_again),
        TEST_CASE(a_refused_launch_is_logged_while_other_threads_launch_the_graph),
        TEST_CASE(work_of_which_the_driver_does_not_tell_the_capture_gives_no_graph),
        TEST_CASE(what_cannot_be_captured_is_refused),
        TEST_CASE(a_graph_of_an_earlier_generation_is_stale),
        TEST_CASE(a_runtime_with_graphs_is_not_destroyed),
        TEST_CASE(the_process_counts_captures_graphs_and_launches),
        TEST_CASE(print_says_what_a_graph_has),
        TEST_CASE(graphs_that_share_memory_are_launched_and_destroyed_by_several_threads),
    };
    enum { RESOURCES = 4 }; /* swept; the others are decorated */
    static const char *const stacks[] = {
        "async",
        "direct",
        "pool",
        "pool, direct",
        "budget(limit=4GiB), logging(format=memory), statistics, pool",
        "guard, pool",
        "aligned, async",
        "fallback(pool(max_size=1GiB) | direct)",
        "binning, pool",
    };
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on(stacks, test_is_swept() ? RESOURCES : sizeof stacks / sizeof stacks[0], cases,
                       sizeof cases / sizeof cases[0]);
}
