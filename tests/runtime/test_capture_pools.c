/* Memory of captures: what is used again in a capture, and the pools that it belongs to. */
#include "support/graphs.h"
#include "support/sweep.h"

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

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(what_is_freed_in_a_capture_is_used_again_in_it),
        TEST_CASE(branches_of_a_fork_share_no_memory_until_they_are_joined),
        TEST_CASE(a_block_of_a_capture_is_found_by_address_and_its_memory_after_the_free_is_not),
        TEST_CASE(a_sealed_pool_gives_nothing),
        TEST_CASE(recorded_buffers_live_as_long_as_the_pool_and_its_graphs),
        TEST_CASE(a_pool_is_found_by_its_number_until_its_handles_are_given_back),
        TEST_CASE(a_shared_pool_ends_with_its_last_user_in_whatever_order),
        TEST_CASE(launches_wait_for_uses_of_the_blocks_that_live_in_the_pool),
        TEST_CASE(a_block_of_a_capture_outlives_its_graph_and_its_pool),
    };
    return run_graph_cases(cases, sizeof cases / sizeof cases[0]);
}
