/* What a capture may use again: the walks of its graph, and the cutting of its memory. */
#include "support/captures.h"
#include "support/faults.h"
#include "support/graphs.h"
#include "support/sweep.h"

#include "core/streams/internal_streams.h"
#include "runtime/capture_blocks.h"
#include "runtime/captures.h"
#include "runtime/graphs.h"

#include <string.h>

static _Thread_local size_t countdown; /* of allocations of host memory to the one that fails; 0: none */
static _Thread_local size_t refused;   /* bytes of allocations that all fail; 0: none */

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);

void *__wrap_strata_host_zalloc(size_t bytes)
{
    return (countdown && --countdown == 0) || (refused && bytes == refused) ? NULL : __real_strata_host_zalloc(bytes);
}

/* ---- walks ---- */

static CUgraphNode last_node(CUstream stream)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode *nodes;
    size_t count;
    check_cu(test_cu()->StreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &count));
    assert_int_equal(count, 1);
    return nodes[0];
}

static void a_stream_that_is_set_back_does_not_know_what_came_after(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block freed[2], used[3];
    begin(fixture, stream, NULL);
    used[0] = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &used[0], 1, stream);
    CUgraphNode before = last_node(stream);
    test_order_after(fork, stream);
    for (size_t i = 0; i < 2; i++) {
        freed[i] = test_allocate(fixture, (size_t)BYTES << i, fork);
        test_write(fixture, &freed[i], 2, fork);
    }
    CUgraphNode after = last_node(fork);
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_runtime_deallocate_on(fixture->runtime, &freed[i], fork));
    test_order_after(stream, fork);
    used[1] = test_allocate(fixture, BYTES, stream);
    assert_true(test_is_swept() || used[1].address == freed[0].address); /* a walk that fails finds nothing */
    check_cu(test_cu()->StreamUpdateCaptureDependencies(stream, &before, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    used[2] = test_allocate(fixture, (size_t)BYTES << 1, stream);
    assert_true(used[2].address != freed[1].address);
    test_write(fixture, &used[2], 3, stream);
    check_cu(test_cu()->StreamUpdateCaptureDependencies(stream, &after, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    strata_block again = test_allocate(fixture, (size_t)BYTES << 1, stream);
    assert_true(test_is_swept() || again.address == freed[1].address);
    test_write(fixture, &again, 4, stream);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &used[2], 3, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &again));
    for (size_t i = 0; i < 3; i++)
        check_ok(strata_runtime_deallocate(fixture->runtime, &used[i]));
    check_ok(destroy(graph));
    test_stream_close(fixture, fork);
    test_stream_close(fixture, stream);
}

static size_t questions;
static CUresult (*get_dependencies)(CUgraphNode node, CUgraphNode *nodes, size_t *count);

static CUresult count_question(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    questions++;
    return get_dependencies(node, nodes, count);
}

/* Two streams side by side, each of which asks at each step whether it may use what the other one freed. */
static void a_capture_asks_for_each_node_once_a_stream(test_fixture *fixture)
{
    enum { STEPS = 200, NODES = 2 * STEPS + 1, CALLS_A_NODE = 1 };
    CUstream streams[] = {test_stream(fixture, TEST_STREAM_POOL), test_stream(fixture, TEST_STREAM_UNKNOWN)};
    begin(fixture, streams[0], NULL);
    strata_block first = test_allocate(fixture, BYTES, streams[0]);
    test_write(fixture, &first, 1, streams[0]);
    test_order_after(streams[1], streams[0]);
    if (strata_cu.GraphNodeGetDependencies != count_question) /* else a case that failed left it so */
        get_dependencies = strata_cu.GraphNodeGetDependencies;
    strata_cu.GraphNodeGetDependencies = count_question;
    questions = 0;
    for (size_t step = 0; step < STEPS; step++) {
        strata_block blocks[2];
        for (size_t i = 0; i < 2; i++) {
            blocks[i] = test_allocate(fixture, BYTES, streams[i]);
            test_write(fixture, &blocks[i], (unsigned char)step, streams[i]);
        }
        for (size_t i = 0; i < 2; i++)
            check_ok(strata_runtime_deallocate_on(fixture->runtime, &blocks[i], streams[(i + step) % 2]));
    }
    strata_cu.GraphNodeGetDependencies = get_dependencies;
    if (!test_is_swept())
        assert_in_range(questions, NODES, 2 * CALLS_A_NODE * NODES);
    test_order_after(streams[0], streams[1]);
    check_ok(strata_runtime_deallocate(fixture->runtime, &first));
    strata_graph *graph = end(fixture, streams[0]);
    check_ok(strata_graph_launch(graph, streams[0]));
    test_synchronize(streams[0]);
    check_ok(destroy(graph));
    test_stream_close(fixture, streams[1]);
    test_stream_close(fixture, streams[0]);
}

/* ---- forks ---- */

enum { FORKS = 200 };

static const size_t FORK_BYTES = 2 << 20; /* of the first of three blocks; each is twice as large as the last */

static void many_forks(test_fixture *fixture, bool joined, size_t *reserved)
{
    const size_t count = test_is_swept() ? FORKS / 5 : FORKS;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), forks[FORKS];
    strata_capture_pool_usage usage;
    strata_capture_pool *pool = make_pool(fixture);
    begin(fixture, stream, pool);
    for (size_t i = 0; i < count; i++) {
        forks[i] = test_stream(fixture, TEST_STREAM_UNKNOWN);
        test_order_after(forks[i], stream);
        strata_block blocks[3];
        for (size_t k = 0; k < 3; k++) {
            blocks[k] = test_allocate(fixture, FORK_BYTES << k, forks[i]);
            check_ok(strata_runtime_prepare_block_use(fixture->runtime, &blocks[k], forks[i], STRATA_ACCESS_WRITE));
            test_fill(blocks[k].address, 1, BYTES, forks[i]);
            check_ok(strata_runtime_finish_block_use(fixture->runtime, &blocks[k], forks[i], STRATA_ACCESS_WRITE));
        }
        for (size_t k = 0; k < 3; k++)
            check_ok(strata_runtime_deallocate_on(fixture->runtime, &blocks[k], forks[i]));
        if (joined)
            test_order_after(stream, forks[i]);
    }
    for (size_t i = 0; i < count && !joined; i++)
        test_order_after(stream, forks[i]);
    check_ok(strata_capture_pool_get_usage(pool, &usage));
    *reserved = usage.reserved;
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    test_synchronize(stream);
    check_ok(destroy(graph));
    check_ok(release_pool(pool));
    for (size_t i = 0; i < count; i++)
        test_stream_close(fixture, forks[i]);
}

static void forks_that_are_joined_share_memory_and_forks_side_by_side_do_not(test_fixture *fixture)
{
    size_t joined, beside;
    if (test_owner_is(fixture, "fixed") || test_owner_is(fixture, "binning"))
        return;
    many_forks(fixture, true, &joined);
    assert_true(joined <= 7 * FORK_BYTES * 12 / 10);
    many_forks(fixture, false, &beside);
    assert_true(test_is_swept() || beside >= FORKS * 7 * FORK_BYTES);
}

/* ---- blocks of the program ---- */

static void a_graph_has_each_of_many_blocks_once(test_fixture *fixture)
{
    enum { BLOCKS = 100 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    for (size_t round = 0; round < 2; round++)
        for (size_t i = 0; i < BLOCKS; i++)
            test_write(fixture, &blocks[i], (unsigned char)(i + round), stream);
    strata_graph *graph = end(fixture, stream);
    assert_int_equal(graph->uses.count, BLOCKS);
    check_ok(strata_graph_launch(graph, stream));
    for (size_t i = 0; i < BLOCKS; i++)
        check_value(fixture, &blocks[i], (unsigned char)(i + 1), stream);
    check_ok(destroy(graph));
    for (size_t i = 0; i < BLOCKS; i++)
        test_free_on(fixture, &blocks[i], stream);
    test_stream_close(fixture, stream);
}

/* ---- without host memory ---- */

/* On a fork, requests that may use what was freed there. True: they could be made. */
static bool take_with_nth_allocation_failing(test_fixture *fixture, size_t nth, CUstream stream, CUstream fork)
{
    strata_block taken[2] = {{0}}, late;
    begin(fixture, stream, NULL);
    strata_block first = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &first, 1, stream);
    test_order_after(fork, stream);
    strata_block freed = test_allocate(fixture, (size_t)2 * BYTES, fork);
    test_write(fixture, &freed, 2, fork);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &freed, fork));
    strata_error_suppress_begin();
    countdown = nth;
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < 2 && status == STRATA_SUCCESS; i++)
        status = strata_runtime_allocate(fixture->runtime, BYTES, fork, &taken[i]);
    const bool failed = countdown == 0;
    countdown = 0;
    strata_error_suppress_end(false);
    assert_true(status == STRATA_SUCCESS || (failed && status == STRATA_ERROR_OUT_OF_HOST_MEMORY));
    late = test_allocate(fixture, BYTES, stream); /* not behind the fork */
    assert_true(late.address - freed.address >= freed.bytes);
    test_write(fixture, &late, 3, stream);
    test_order_after(stream, fork);
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_runtime_deallocate_on(fixture->runtime, &taken[i], fork));
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &late, 3, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &first));
    check_ok(strata_runtime_deallocate(fixture->runtime, &late));
    check_ok(destroy(graph));
    return !failed;
}

static void a_request_without_host_memory_gives_back_what_it_took_in_order(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN);
    size_t nth = 1;
    if (test_is_swept())
        return;
    while (!take_with_nth_allocation_failing(fixture, nth, stream, fork))
        nth++;
    assert_true(nth > 2);
    test_stream_close(fixture, fork);
}

/* And whose free fails, too. */
static void a_segment_for_which_host_memory_lacks_is_freed_later(test_fixture *fixture)
{
    if (!test_owner_is(fixture, "async") && !test_owner_is(fixture, "direct"))
        return; /* others free nothing of the driver then */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block;
    if (test_is_swept())
        return;
    begin(fixture, stream, NULL);
    const size_t before = live_blocks(fixture);
    test_fault_begin(TEST_FAULT_FREE, 1, false, CUDA_ERROR_UNKNOWN);
    refused = sizeof(strata_capture_segment);
    const strata_status status = strata_runtime_allocate(fixture->runtime, BYTES, stream, &block);
    refused = 0;
    assert_int_equal(test_fault_end(), 1);
    check_status(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
}

/* ---- the stream of a pool ---- */

/* For which another thread makes a stream while this one does; NULL: none does. */
static strata_capture_pool *raced;
static bool surplus_fails; /* the end of the next stream */
static strata_status faster;
static const strata_request one_segment = {.bytes = BYTES};

strata_status __real_strata_internal_stream_create(strata_device *device, bool early, const char *what, CUstream *out);
strata_status __wrap_strata_internal_stream_create(strata_device *device, bool early, const char *what, CUstream *out);

strata_status __wrap_strata_internal_stream_create(strata_device *device, bool early, const char *what, CUstream *out)
{
    strata_capture_pool *pool = raced;
    const strata_status status = __real_strata_internal_stream_create(device, early, what, out);
    raced = NULL;
    if (pool)
        faster = strata_capture_pool_grow(pool, &one_segment);
    return status;
}

strata_status __real_strata_internal_stream_destroy(strata_device *device, CUstream stream, bool *gone);
strata_status __wrap_strata_internal_stream_destroy(strata_device *device, CUstream stream, bool *gone);

strata_status __wrap_strata_internal_stream_destroy(strata_device *device, CUstream stream, bool *gone)
{
    const bool fails = surplus_fails;
    const strata_status status = __real_strata_internal_stream_destroy(device, stream, gone);
    surplus_fails = false;
    return fails ? strata_fail(STRATA_ERROR_DRIVER, "a stream that was ended all the same") : status;
}

static void a_request_does_not_fail_with_the_end_of_a_stream_that_it_does_not_need(test_fixture *fixture)
{
    strata_capture_pool *pool = make_pool(fixture);
    faster = STRATA_SUCCESS;
    raced = pool;
    surplus_fails = true;
    const strata_status slower = strata_capture_pool_grow(pool, &one_segment);
    const bool ended = !surplus_fails;
    raced = NULL;
    surplus_fails = false;
    check_ok(faster);
    check_ok(slower);
    assert_true(ended);
    check_ok(release_pool(pool));
}

/* ---- identities ---- */

/* A pool's spare blocks keep their slots for its next blocks, and give them back at its end. */
static void slots_come_back_with_the_pool(test_fixture *fixture)
{
    enum { POOLS = 40, BLOCKS = 300 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    static strata_block blocks[BLOCKS];
    uint32_t most = 0;
    if (test_is_swept())
        return;
    for (size_t pool = 0; pool < POOLS; pool++) {
        begin(fixture, stream, NULL);
        for (size_t i = 0; i < BLOCKS; i++)
            blocks[i] = test_allocate(fixture, 1, stream);
        for (size_t i = 0; i < BLOCKS; i++)
            check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
        check_ok(strata_capture_discard(fixture->runtime, stream));
        forget_capture(stream);
        const uint32_t limit = strata_table_slot_limit(fixture->runtime->table);
        if (pool == 0)
            most = limit + BLOCKS; /* what threads keep of free slots may vary */
        assert_true(limit <= most);
    }
    test_stream_close(fixture, stream);
}

/* The identity of a freed block is stale while its slot is spare, and when the slot's next block lives. */
static void a_spare_block_is_not_found(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block found;
    begin(fixture, stream, NULL);
    strata_block first = test_allocate(fixture, BYTES, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &first));
    assert_int_equal(strata_runtime_deallocate(fixture->runtime, &first), STRATA_ERROR_DOUBLE_FREE);
    assert_int_equal(strata_runtime_find(fixture->runtime, first.address, &found), STRATA_ERROR_FOREIGN_POINTER);
    assert_int_equal(strata_runtime_prepare_block_use(fixture->runtime, &first, stream, STRATA_ACCESS_READ),
                     STRATA_ERROR_USE_AFTER_FREE);
    strata_block second = test_allocate(fixture, BYTES, stream);
    assert_true(second.id.slot == first.id.slot && second.id.generation > first.id.generation);
    assert_int_equal(strata_runtime_deallocate(fixture->runtime, &first), STRATA_ERROR_DOUBLE_FREE);
    assert_int_equal(strata_runtime_prepare_block_use(fixture->runtime, &first, stream, STRATA_ACCESS_READ),
                     STRATA_ERROR_USE_AFTER_FREE);
    check_ok(strata_runtime_find(fixture->runtime, second.address, &found));
    assert_true(found.id.generation == second.id.generation);
    check_ok(strata_runtime_deallocate(fixture->runtime, &second));
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    test_stream_close(fixture, stream);
}

static void a_used_up_slot_is_not_used_again(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    begin(fixture, stream, NULL);
    strata_block first = test_allocate(fixture, BYTES, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &first));
    strata_entry *entry = strata_table_entry(fixture->runtime->table, first.id.slot);
    atomic_store(&entry->word, STRATA_GENERATION_LAST << STRATA_WORD_GENERATION | STRATA_BLOCK_FREED);
    strata_block second = test_allocate(fixture, BYTES, stream);
    assert_true(second.id.slot != first.id.slot);
    check_ok(strata_runtime_deallocate(fixture->runtime, &second));
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    test_stream_close(fixture, stream);
}

/* More blocks than the map of blocks has buckets, while it cannot grow, and then as many again. */
static void blocks_are_found_in_a_map_that_is_too_full(test_fixture *fixture)
{
    enum { BLOCKS = 1000 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    static strata_block blocks[BLOCKS];
    strata_block found;
    if (test_is_swept())
        return;
    begin(fixture, stream, NULL);
    const strata_pool_block_map *map = &fixture->runtime->captures.pool_blocks;
    const size_t buckets = (size_t)map->mask + 1, count = 3 * buckets;
    assert_true(count <= BLOCKS);
    refused = 2 * buckets * sizeof(struct strata_pool_block *);
    for (size_t i = 0; i < count; i++) {
        if (i == 2 * buckets) {
            assert_true(map->mask + 1 == buckets);
            refused = 0;
        }
        blocks[i] = test_allocate(fixture, 1, stream);
    }
    assert_true(map->mask + 1 > buckets && map->count == count);
    for (size_t i = 0; i < count; i++) {
        check_ok(strata_runtime_find(fixture->runtime, blocks[i].address, &found));
        assert_true(found.id.slot == blocks[i].id.slot && found.id.generation == blocks[i].id.generation);
    }
    for (size_t i = 0; i < count; i += 2)
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(strata_runtime_find(fixture->runtime, blocks[i].address, &found),
                         i % 2 ? STRATA_SUCCESS : STRATA_ERROR_FOREIGN_POINTER);
    for (size_t i = 1; i < count; i += 2)
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    assert_int_equal(map->count, 0);
    test_stream_close(fixture, stream);
}

/* ---- ranges ---- */

enum { SEGMENTS = 3, SEGMENT = 64 * STRATA_CAPTURE_GRAIN, LIVE = 64, ROUNDS = 20000 };

static const CUdeviceptr base = (CUdeviceptr)1 << 40;

static size_t next_random(uint64_t *state, size_t most)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(*state >> 33) % most;
}

/* Each byte is in one range; lists and sums are those of the free ranges. */
static void check_ranges(const strata_capture_ranges *ranges)
{
    size_t in_use = 0, free_ranges = 0, listed = 0;
    for (const strata_capture_segment *segment = ranges->segments; segment; segment = segment->next) {
        CUdeviceptr at = segment->block.address;
        size_t live = 0, free_bytes = 0;
        for (const strata_capture_range *range = segment->first; range; range = range->next) {
            assert_true(range->address == at && range->segment == segment && range->bytes);
            assert_true(!range->next || range->next->previous == range);
            const bool whole =
                range->live || range->capture || !range->next || range->next->live || range->next->capture;
            assert_true(whole); /* free neighbours that wait for nothing are one */
            at += range->bytes;
            live += range->live;
            in_use += range->live ? range->bytes : 0;
            free_bytes += range->live ? 0 : range->bytes;
            free_ranges += !range->live;
        }
        assert_true(at == segment->block.address + segment->block.bytes);
        assert_true(live == segment->live && free_bytes == segment->free_bytes);
    }
    for (size_t size = 0; size < STRATA_CAPTURE_SIZES; size++) {
        assert_true(!ranges->free_by_size[size] == !(ranges->sizes[size / 64] >> size % 64 & 1));
        for (const strata_capture_range *range = ranges->free_by_size[size]; range; range = range->same_next) {
            assert_true(!range->live && (!range->same_next || range->same_next->same_previous == range));
            listed++;
        }
    }
    assert_true(listed == free_ranges && in_use == ranges->in_use);
}

/* Whether memory that the place may use is free in one piece. */
static bool has_room(const strata_capture_ranges *ranges, size_t bytes, size_t alignment,
                     const strata_capture_front *front)
{
    for (const strata_capture_segment *segment = ranges->segments; segment; segment = segment->next) {
        CUdeviceptr start = 0, end = 0;
        for (const strata_capture_range *range = segment->first; range; range = range->next) {
            bool usable = !range->live && !range->barred && (!range->capture || range->capture == front->id);
            for (size_t i = 0; i < range->after.count; i++)
                usable &= strata_nodes_items(&range->after)[i] == front->nodes[0];
            if (!usable) {
                start = end = 0;
                continue;
            }
            start = end ? start : range->address;
            end = range->address + range->bytes;
            if (((start + alignment - 1) & ~(CUdeviceptr)(alignment - 1)) + bytes <= end)
                return true;
        }
    }
    return false;
}

static CUresult have_no_dependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    (void)node;
    (void)nodes;
    *count = 0;
    return CUDA_SUCCESS;
}

/* Two captures at a time, with two streams each: the node of a stream's front is no ancestor of another place's. */
static void memory_is_found_if_there_is_any(void **state)
{
    (void)state;
    enum { PLACES = 4 };
    static strata_capture_ranges ranges;
    strata_capture_range *live[LIVE] = {NULL};
    const CUgraphNode nodes[PLACES] = {(CUgraphNode)0x30, (CUgraphNode)0x40, (CUgraphNode)0x50, (CUgraphNode)0x60};
    strata_capture_front fronts[PLACES];
    uint64_t random = 1;
    size_t taken = 0, none = 0;
    get_dependencies = strata_cu.GraphNodeGetDependencies;
    strata_cu.GraphNodeGetDependencies = have_no_dependencies; /* the nodes are made up */
    for (size_t i = 0; i < PLACES; i++)
        fronts[i] = (strata_capture_front){
            .status = CU_STREAM_CAPTURE_STATUS_ACTIVE, .id = 7 + i / 2, .nodes = &nodes[i], .count = 1};
    for (size_t i = 0; i < SEGMENTS; i++)
        assert_true(strata_capture_ranges_add(
            &ranges, &(strata_block){.address = base + 2 * i * SEGMENT, .bytes = SEGMENT >> i}, NULL));
    for (size_t round = 0; round < ROUNDS; round++) {
        const size_t which = next_random(&random, LIVE), at = next_random(&random, PLACES);
        const strata_capture_front *front = &fronts[at];
        strata_ancestors *known = NULL;
        strata_capture_place place = {.stream = (CUstream)(0x10 + at), .front = front, .known = &known};
        if (live[which]) {
            const size_t how = next_random(&random, 40);
            if (how == 0)
                strata_capture_ranges_give_barred(&ranges, live[which], front->id);
            else if (how % 2)
                strata_capture_ranges_give(&ranges, live[which]);
            else if (strata_nodes_add(&live[which]->after, front->nodes, 1))
                strata_capture_ranges_give_within(&ranges, live[which], front->id, &place);
            live[which] = NULL;
        } else {
            const size_t bytes = STRATA_CAPTURE_GRAIN * (1 + next_random(&random, next_random(&random, 4) ? 8 : 40));
            const size_t alignment = (size_t)STRATA_CAPTURE_GRAIN << next_random(&random, 4);
            const bool room = has_room(&ranges, bytes, alignment, front);
            bool failed;
            live[which] = strata_capture_ranges_take(&ranges, bytes, alignment, &place, &failed);
            assert_false(failed);
            assert_true(room == (live[which] != NULL));
            if (live[which])
                assert_true(live[which]->bytes == bytes && !(live[which]->address & (alignment - 1)));
            taken += room;
            none += !room;
        }
        strata_ancestors_free(&known);
        check_ranges(&ranges);
        if (next_random(&random, 250) == 0)
            strata_capture_ranges_capture_ended(&ranges, front->id);
    }
    strata_cu.GraphNodeGetDependencies = get_dependencies;
    assert_true(taken > ROUNDS / 5 && none > ROUNDS / 50); /* both were seen */
    for (size_t i = 0; i < LIVE; i++)
        if (live[i])
            strata_capture_ranges_give(&ranges, live[i]);
    for (size_t i = 0; i < PLACES; i += 2)
        strata_capture_ranges_capture_ended(&ranges, fronts[i].id);
    check_ranges(&ranges);
    for (const strata_capture_segment *segment = ranges.segments; segment; segment = segment->next)
        assert_null(segment->first->next);
    strata_capture_ranges_free(&ranges);
}

int main(void)
{
    enum { RESOURCES = 3 }; /* swept; the others are decorated */
    static const char *const stacks[] = {
        "async",          "direct",       "pool", "budget(limit=4GiB), logging(format=memory), statistics, pool",
        "aligned, async", "binning, pool"};
    static const test_case cases[] = {TEST_CASE(a_stream_that_is_set_back_does_not_know_what_came_after),
                                      TEST_CASE(a_capture_asks_for_each_node_once_a_stream),
                                      TEST_CASE(a_graph_has_each_of_many_blocks_once),
                                      TEST_CASE(a_request_without_host_memory_gives_back_what_it_took_in_order),
                                      TEST_CASE(a_segment_for_which_host_memory_lacks_is_freed_later),
                                      TEST_CASE(blocks_are_found_in_a_map_that_is_too_full),
                                      TEST_CASE(a_request_does_not_fail_with_the_end_of_a_stream_that_it_does_not_need),
                                      TEST_CASE(a_spare_block_is_not_found),
                                      TEST_CASE(a_used_up_slot_is_not_used_again),
                                      TEST_CASE(slots_come_back_with_the_pool),
                                      TEST_CASE(forks_that_are_joined_share_memory_and_forks_side_by_side_do_not)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_is_found_if_there_is_any)};
    test_before_clearing = clear_away;
    test_open_driver();
    const int failed = test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
    return failed ? failed
                  : test_run_on(stacks, test_is_swept() ? RESOURCES : sizeof stacks / sizeof stacks[0], cases,
                                sizeof cases / sizeof cases[0]);
}
