/* Graphs that are parts of other ones. */
#include <pthread.h>

#include "support/beside.h"
#include "support/graphs.h"
#include "support/sweep.h"

static CUDA_MEMSET_NODE_PARAMS fill_of(const strata_block *block, unsigned char value)
{
    return (CUDA_MEMSET_NODE_PARAMS){
        .dst = block->address, .value = value, .elementSize = 1, .width = BYTES, .height = 1};
}

/* ---- without memory of pools ---- */

static void a_graph_that_is_launched_in_a_capture_is_a_node_of_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), beside = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    copy(fixture, &to, &from, stream);
    strata_graph *child = end(fixture, stream);
    begin(fixture, stream, NULL);
    test_write(fixture, &from, 0x33, stream);
    check_ok(strata_graph_launch(child, stream));
    test_write(fixture, &from, 0x44, stream); /* after the child has read it */
    strata_graph *parent = end(fixture, stream);
    assert_int_equal(strata_graph_node_count(parent), 3);
    assert_int_equal(strata_graph_num_replays(child), 0);
    check_ok(destroy(child)); /* the parent has its own */
    const size_t before = live_blocks(fixture);
    for (int i = 0; i < 2; i++) {
        test_write(fixture, &to, 0x01, beside);
        check_ok(strata_graph_launch(parent, stream));
        check_value(fixture, &to, 0x33, beside);
    }
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &to, beside));
    assert_int_equal(live_blocks(fixture), before); /* the parent uses it through the child */
    check_ok(destroy(parent));
    assert_int_equal(live_blocks(fixture), before - 1);
    test_free_on(fixture, &from, stream);
}

static void a_child_orders_its_uses_among_the_captures_streams(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    copy(fixture, &to, &from, stream);
    strata_graph *child = end(fixture, stream);
    begin(fixture, stream, NULL);
    test_order_after(fork, stream); /* the fork comes before the write */
    test_write(fixture, &from, 0x55, stream);
    check_ok(strata_graph_launch(child, fork));
    test_write(fixture, &from, 0x66, stream);
    test_order_after(stream, fork);
    strata_graph *parent = end(fixture, stream);
    for (int i = 0; i < 3; i++) {
        check_ok(strata_graph_launch(parent, stream));
        check_value(fixture, &to, 0x55, stream);
    }
    check_ok(destroy(parent));
    check_ok(destroy(child));
    test_free_on(fixture, &from, stream);
    test_free_on(fixture, &to, stream);
}

static void a_child_is_what_the_graph_is_after_its_last_update(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    CUgraphNode node;
    strata_graph *child = NULL;
    for (unsigned char value = 1; value <= 2; value++) {
        begin(fixture, stream, NULL);
        test_write(fixture, &block, value, stream);
        if (!child) {
            check_ok(strata_capture_last_node(fixture->runtime, stream, &node));
            child = end(fixture, stream);
        } else {
            check_ok(strata_graph_update(child, stream, NULL, NULL));
            forget_capture(stream);
        }
    }
    begin(fixture, stream, NULL);
    check_ok(strata_graph_launch(child, stream));
    strata_graph *parent = end(fixture, stream);
    check_ok(strata_graph_launch(parent, stream));
    check_value(fixture, &block, 2, stream);
    const CUDA_MEMSET_NODE_PARAMS filling = fill_of(&block, 3);
    check_ok(strata_graph_set_fill(child, node, &filling, NULL, 0));
    begin(fixture, stream, NULL);
    check_status(strata_graph_launch(child, stream), STRATA_ERROR_UNSUPPORTED);
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    check_ok(destroy(parent));
    check_ok(destroy(child));
    test_free_on(fixture, &block, stream);
}

/* ---- with memory of pools ---- */

/* A graph that copies one block to another by way of memory of its pool. */
static strata_graph *capture_relay(test_fixture *fixture, const strata_block *to, const strata_block *from,
                                   strata_capture_pool *pool, CUstream stream)
{
    begin(fixture, stream, pool);
    strata_block scratch = test_allocate(fixture, BYTES, stream);
    copy(fixture, &scratch, from, stream);
    copy(fixture, to, &scratch, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &scratch));
    return end(fixture, stream);
}

static void a_part_brings_the_memory_of_its_pool(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), beside = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    const size_t before = live_blocks(fixture);
    strata_graph *part = capture_relay(fixture, &to, &from, NULL, stream);
    begin(fixture, stream, NULL);
    strata_block own = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &own, 0x51, stream);
    check_ok(strata_graph_launch(part, stream));
    copy(fixture, &from, &own, stream); /* what lay there through the part */
    check_ok(strata_runtime_deallocate(fixture->runtime, &own));
    strata_graph *whole = end(fixture, stream);
    assert_true(strata_graph_has_private_pool(whole));
    check_ok(destroy(part)); /* its pool lives on */
    assert_int_equal(live_blocks(fixture), before + 2);
    for (int i = 0; i < 2; i++) {
        test_write(fixture, &from, 0x52, beside);
        check_ok(strata_graph_launch(whole, stream));
        check_value(fixture, &to, 0x52, beside);
        check_value(fixture, &from, 0x51, beside);
    }
    check_ok(destroy(whole));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
    test_free_on(fixture, &from, stream);
    test_free_on(fixture, &to, stream);
}

/* A pool of which the part took no memory, but that keeps a buffer which its work uses. */
static void a_whole_keeps_what_was_recorded_with_its_parts_pool(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    for (int updates = 0; updates < 2; updates++) {
        strata_capture_pool *pool = make_pool(fixture);
        strata_graph *whole = NULL;
        strata_ref *ref;
        if (updates) {
            begin(fixture, stream, NULL);
            test_write(fixture, &block, 1, stream);
            whole = end(fixture, stream);
        }
        check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_U8, BYTES, false, stream, &ref));
        refs[ref_count++] = ref;
        check_ok(strata_capture_pool_record_buffer(pool, ref));
        const size_t before = live_blocks(fixture);
        begin(fixture, stream, pool);
        test_write(fixture, &block, 2, stream);
        if (updates) {
            check_ok(strata_graph_update(whole, stream, NULL, NULL));
            forget_capture(stream);
        } else {
            strata_graph *part = end(fixture, stream);
            begin(fixture, stream, NULL);
            check_ok(strata_graph_launch(part, stream));
            whole = end(fixture, stream);
            check_ok(destroy(part));
        }
        check_ok(release_pool(pool));
        ref_count--;
        check_ok(strata_ref_release(ref));
        assert_int_equal(live_blocks(fixture), before);
        check_ok(strata_graph_launch(whole, stream));
        check_value(fixture, &block, 2, stream);
        check_ok(destroy(whole));
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(live_blocks(fixture), before - 1);
    }
    test_free_on(fixture, &block, stream);
}

static void a_block_that_was_freed_stays_for_the_part_and_for_the_whole(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    const size_t before = live_blocks(fixture);
    test_write(fixture, &from, 0x54, stream);
    begin(fixture, stream, NULL);
    copy(fixture, &to, &from, stream);
    strata_graph *part = end(fixture, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &from));
    begin(fixture, stream, NULL);
    check_ok(strata_graph_launch(part, stream));
    strata_graph *whole = end(fixture, stream);
    check_ok(destroy(part));
    assert_int_equal(live_blocks(fixture), before);
    check_ok(strata_graph_launch(whole, stream));
    check_value(fixture, &to, 0x54, stream);
    check_ok(destroy(whole));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before - 1);
    test_free_on(fixture, &to, stream);
}

static void a_part_with_memory_of_the_captures_pool_is_refused(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    strata_capture_pool *pool = make_pool(fixture);
    strata_graph *part = capture_relay(fixture, &to, &from, pool, stream);
    begin(fixture, stream, pool);
    check_status(strata_graph_launch(part, stream), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    check_ok(destroy(part));
    check_ok(release_pool(pool));
    test_free_on(fixture, &from, stream);
    test_free_on(fixture, &to, stream);
}

static void a_refused_part_is_logged_while_other_threads_launch_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    test_beside beside;
    if (test_is_swept())
        return;
    strata_capture_pool *pool = make_pool(fixture);
    test_launch part = {capture_relay(fixture, &to, &from, pool, stream), other};
    begin(fixture, stream, pool);
    test_beside_begin(&beside, test_launch_beside, &part);
    const strata_status status = strata_graph_launch(part.graph, stream);
    assert_true(test_beside_end(&beside));
    check_status(status, STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    check_ok(destroy(part.graph));
    check_ok(release_pool(pool));
    test_free_on(fixture, &from, stream);
    test_free_on(fixture, &to, stream);
}

/* Launches of a part and of its whole, on streams side by side, never overlap: each writes the same memory. */
static void a_whole_and_its_part_are_launched_one_after_another(test_fixture *fixture)
{
    CUstream streams[2] = {test_stream(fixture, TEST_STREAM_POOL), test_stream(fixture, TEST_STREAM_UNKNOWN)};
    strata_block blocks[4];
    for (size_t i = 0; i < 4; i++)
        blocks[i] = test_allocate(fixture, BYTES, streams[0]);
    strata_graph *part = capture_relay(fixture, &blocks[1], &blocks[0], NULL, streams[0]);
    begin(fixture, streams[0], NULL);
    check_ok(strata_graph_launch(part, streams[0]));
    copy(fixture, &blocks[3], &blocks[2], streams[0]);
    strata_graph *whole = end(fixture, streams[0]);
    assert_true(!strata_graph_has_pool(whole));
    for (unsigned char i = 1; i <= 5; i++) {
        test_write(fixture, &blocks[0], i, streams[0]);
        check_ok(strata_graph_launch(whole, streams[0]));
        check_ok(strata_graph_launch(part, streams[1])); /* the checker finds an overlap */
        check_value(fixture, &blocks[1], i, streams[1]);
    }
    check_ok(destroy(whole));
    check_ok(destroy(part));
    for (size_t i = 0; i < 4; i++)
        test_free_on(fixture, &blocks[i], streams[0]);
}

/* On branches of one capture, the parts are ordered by their memory alone. */
static void parts_of_one_pool_are_ordered_in_the_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block blocks[4];
    strata_graph *parts[2];
    strata_capture_pool *pool = make_pool(fixture);
    for (size_t i = 0; i < 4; i++)
        blocks[i] = test_allocate(fixture, BYTES, stream);
    for (size_t i = 0; i < 2; i++)
        parts[i] = capture_relay(fixture, &blocks[2 * i + 1], &blocks[2 * i], pool, stream);
    begin(fixture, stream, NULL);
    test_order_after(fork, stream);
    check_ok(strata_graph_launch(parts[0], stream));
    check_ok(strata_graph_launch(parts[1], fork));
    test_order_after(stream, fork);
    strata_graph *whole = end(fixture, stream);
    check_ok(release_pool(pool));
    for (size_t i = 0; i < 2; i++)
        check_ok(destroy(parts[i]));
    for (unsigned char value = 1; value <= 3; value++) {
        test_write(fixture, &blocks[0], value, stream);
        test_write(fixture, &blocks[2], (unsigned char)(value + 0x10), stream);
        check_ok(strata_graph_launch(whole, stream));
        check_value(fixture, &blocks[1], value, stream);
        check_value(fixture, &blocks[3], (unsigned char)(value + 0x10), stream);
    }
    check_ok(destroy(whole));
    for (size_t i = 0; i < 4; i++)
        test_free_on(fixture, &blocks[i], stream);
}

/* A block that lives on from the part's capture is ordered with the part, also where the capture names it by itself. */
static void a_block_of_a_parts_pool_is_ordered_with_the_part(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block out = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    strata_block result = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &result, 0x61, stream);
    strata_graph *part = end(fixture, stream);
    begin(fixture, stream, NULL);
    test_order_after(fork, stream);
    check_ok(strata_graph_launch(part, stream));
    copy(fixture, &out, &result, fork); /* after the part */
    test_write(fixture, &result, 0x62, fork);
    check_ok(strata_graph_launch(part, stream)); /* after the copy and the write */
    test_order_after(stream, fork);
    strata_graph *whole = end(fixture, stream);
    for (int i = 0; i < 2; i++) {
        check_ok(strata_graph_launch(whole, stream));
        check_value(fixture, &out, 0x61, stream);
        check_value(fixture, &result, 0x61, stream);
    }
    check_ok(destroy(whole));
    check_ok(destroy(part));
    check_ok(strata_runtime_deallocate(fixture->runtime, &result));
    test_free_on(fixture, &out, stream);
}

static void an_update_changes_the_parts(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    const size_t before = live_blocks(fixture);
    strata_graph *whole = NULL;
    for (int i = 0; i < 3; i++) {
        strata_graph *part = capture_relay(fixture, &to, &from, NULL, stream);
        begin(fixture, stream, NULL);
        check_ok(strata_graph_launch(part, stream));
        if (whole) {
            check_ok(strata_graph_update(whole, stream, NULL, NULL));
            forget_capture(stream);
        } else {
            whole = end(fixture, stream);
        }
        check_ok(destroy(part));
        test_write(fixture, &from, (unsigned char)(i + 1), stream);
        check_ok(strata_graph_launch(whole, stream));
        check_value(fixture, &to, (unsigned char)(i + 1), stream);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(live_blocks(fixture), before + 1); /* the last part's segment */
    }
    check_ok(destroy(whole));
    test_free_on(fixture, &from, stream);
    test_free_on(fixture, &to, stream);
}

/* ---- threads ---- */

typedef struct launcher {
    strata_graph *graph;
    CUstream stream;
    strata_status status;
} launcher;

static void *launch_often(void *data)
{
    launcher *self = data;
    test_make_current();
    for (int i = 0; i < 100 && self->status == STRATA_SUCCESS; i++)
        self->status = strata_graph_launch(self->graph, self->stream);
    return NULL;
}

/* Two graphs, each with the other one's pool as its part's: neither waits for a lock that the other one holds. */
static void graphs_with_each_others_pools_are_launched_by_threads(test_fixture *fixture)
{
    enum { THREADS = 4 };
    strata_block blocks[THREADS];
    strata_capture_pool *both[2];
    strata_graph *parts[2], *wholes[2];
    launcher launchers[THREADS];
    pthread_t threads[THREADS];
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    if (test_is_swept())
        return; /* the threads' failures would be another thread's */
    for (size_t i = 0; i < THREADS; i++)
        blocks[i] = test_allocate(fixture, BYTES, stream);
    for (size_t i = 0; i < 2; i++) {
        both[i] = make_pool(fixture);
        parts[i] = capture_relay(fixture, &blocks[2 * i + 1], &blocks[2 * i], both[i], stream);
    }
    for (size_t i = 0; i < 2; i++) {
        begin(fixture, stream, both[i]);
        strata_block own = test_allocate(fixture, BYTES, stream);
        test_write(fixture, &own, 0x71, stream);
        check_ok(strata_graph_launch(parts[!i], stream));
        check_ok(strata_runtime_deallocate(fixture->runtime, &own));
        wholes[i] = end(fixture, stream);
    }
    for (size_t i = 0; i < THREADS; i++) {
        launchers[i] = (launcher){.graph = i < 2 ? wholes[i] : parts[i - 2],
                                  .stream = test_stream(fixture, i % 2 ? TEST_STREAM_POOL : TEST_STREAM_UNKNOWN)};
        assert_int_equal(pthread_create(&threads[i], NULL, launch_often, &launchers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        check_ok(launchers[i].status);
    }
    for (size_t i = 0; i < 2; i++) {
        check_ok(destroy(wholes[i]));
        check_ok(destroy(parts[i]));
        check_ok(release_pool(both[i]));
    }
    for (size_t i = 0; i < THREADS; i++)
        test_free_on(fixture, &blocks[i], stream);
}

int main(void)
{
    enum { RESOURCES = 3 }; /* swept; the others are decorated */
    static const char *const stacks[] = {
        "async", "direct", "pool", "budget(limit=4GiB), logging(format=memory), statistics, pool", "aligned, async"};
    static const test_case cases[] = {
        TEST_CASE(a_graph_that_is_launched_in_a_capture_is_a_node_of_it),
        TEST_CASE(a_child_orders_its_uses_among_the_captures_streams),
        TEST_CASE(a_child_is_what_the_graph_is_after_its_last_update),
        TEST_CASE(a_part_brings_the_memory_of_its_pool),
        TEST_CASE(a_whole_keeps_what_was_recorded_with_its_parts_pool),
        TEST_CASE(a_block_that_was_freed_stays_for_the_part_and_for_the_whole),
        TEST_CASE(a_part_with_memory_of_the_captures_pool_is_refused),
        TEST_CASE(a_refused_part_is_logged_while_other_threads_launch_it),
        TEST_CASE(a_whole_and_its_part_are_launched_one_after_another),
        TEST_CASE(parts_of_one_pool_are_ordered_in_the_graph),
        TEST_CASE(a_block_of_a_parts_pool_is_ordered_with_the_part),
        TEST_CASE(an_update_changes_the_parts),
        TEST_CASE(graphs_with_each_others_pools_are_launched_by_threads),
    };
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on(stacks, test_is_swept() ? RESOURCES : sizeof stacks / sizeof stacks[0], cases,
                       sizeof cases / sizeof cases[0]);
}
