/* More streams than timelines: blocks live on so many unknown streams that no number is left for another one. The
 * test answers for the driver with other stream ids, since so many real streams are costly. */
#include "core/stack/stack.h"
#include "core/streams/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "support/faults.h"
#include "support/fixture.h"

enum { BYTES = 256, KEPT_BYTES = 64 << 10 };

static struct {
    PFN_cuStreamGetId_v12000 get_id;
    unsigned long long made_up; /* answers given so far */
} who;

/* Each time another stream. */
static CUresult CUDAAPI make_id_up(CUstream stream, unsigned long long *id)
{
    (void)stream;
    *id = UINT64_C(1) << 40 | who.made_up++;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI call_it_pending(CUevent event)
{
    (void)event;
    return CUDA_ERROR_NOT_READY;
}

/* Timelines are made only when none is free, so after the one with the highest number there is none left. */
static bool has_last_timeline(test_fixture *fixture, const strata_block *block)
{
    const strata_entry *entry = strata_table_lookup(strata_runtime_stack(fixture->runtime)->head.table, block->id);
    return entry->alloc_timeline == STRATA_TIMELINE_LAST;
}

/* Allocates on streams that were never seen before until that is refused, or with `once` until all timelines are
 * taken. */
static size_t use_timelines_up(test_fixture *fixture, strata_block *blocks, bool once, strata_status *status)
{
    bool last = false;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    size_t count = 0;
    who.get_id = strata_cu.StreamGetId;
    strata_cu.StreamGetId = make_id_up;
    for (*status = STRATA_SUCCESS; *status == STRATA_SUCCESS && !last && count < STRATA_TIMELINE_LIMIT;) {
        *status = strata_runtime_allocate(fixture->runtime, BYTES, stream, &blocks[count]);
        last = once && *status == STRATA_SUCCESS && has_last_timeline(fixture, &blocks[count]);
        count += *status == STRATA_SUCCESS;
    }
    strata_cu.StreamGetId = who.get_id;
    return count;
}

static void free_all(test_fixture *fixture, const strata_block *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_ok(strata_runtime_deallocate_on(fixture->runtime, &blocks[i], NULL));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
}

static strata_block *room_for_blocks(void)
{
    strata_block *blocks = calloc(STRATA_TIMELINE_LIMIT, sizeof *blocks);
    assert_non_null(blocks);
    return blocks;
}

/* Nothing is pending on any of the streams, and that is found out when it is needed. */
static void idle_streams_whose_blocks_live_make_way_for_registered_ones(test_fixture *fixture)
{
    test_needs_truthful_queries();
    strata_block *blocks = room_for_blocks();
    strata_status status;
    CUstream streams[2];
    size_t count = use_timelines_up(fixture, blocks, true, &status);
    check_ok(status);
    assert_true(has_last_timeline(fixture, &blocks[count - 1]));
    check_cu(test_cu()->CtxSynchronize());
    for (size_t i = 0; i < 2; i++)
        streams[i] = test_stream(fixture, TEST_STREAM_REGISTERED);
    for (size_t i = 0; i < 2; i++)
        test_stream_close(fixture, streams[i]);
    free_all(fixture, blocks, count);
    free(blocks);
}

static void streams_with_work_pending_leave_no_room_and_the_error_says_so(test_fixture *fixture)
{
    test_needs_truthful_queries();
    strata_block *blocks = room_for_blocks(), block;
    strata_status status;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    PFN_cuEventQuery_v2000 query = strata_cu.EventQuery;
    strata_cu.EventQuery = call_it_pending;
    size_t count = use_timelines_up(fixture, blocks, false, &status);
    strata_status registered = strata_runtime_register_stream(fixture->runtime, stream);
    strata_error said = *strata_last_error();
    strata_status allocated = strata_runtime_allocate(fixture->runtime, BYTES, stream, &block);
    strata_cu.EventQuery = query;
    check_status(status, STRATA_ERROR_BUSY);
    check_status(registered, STRATA_ERROR_BUSY);
    check_status(allocated, STRATA_ERROR_BUSY);
    assert_non_null(strstr(said.message, "streams"));
    assert_null(strstr(said.message, "out of host memory"));
    free_all(fixture, blocks, count);
    check_cu(test_cu()->CtxSynchronize());
    check_ok(strata_runtime_register_stream(fixture->runtime, stream)); /* and now there is room again */
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    free(blocks);
}

static void count_error(const strata_error *error, void *data)
{
    (void)error;
    ++*(unsigned *)data;
}

/* The stream has no place for its point, so that it is waited for, and there is nothing to note. */
static void work_on_a_stream_beyond_the_last_timeline_is_waited_for_where_it_is_noted(test_fixture *fixture)
{
    test_needs_truthful_queries();
    strata_block *blocks = room_for_blocks();
    strata_status status;
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_write(fixture, &block, 0x11, NULL);
    test_synchronize(NULL);
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    PFN_cuEventQuery_v2000 query = strata_cu.EventQuery;
    strata_cu.EventQuery = call_it_pending;
    size_t count = use_timelines_up(fixture, blocks, false, &status);
    const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, stream);
    unsigned errors = 0;
    strata_set_log_callback(count_error, &errors);
    strata_status noted = strata_runtime_record_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ);
    strata_set_log_callback(NULL, NULL);
    strata_cu.EventQuery = query;
    check_status(status, STRATA_ERROR_BUSY);
    check_ok(noted);
    assert_int_equal(errors, 0);
    check_bytes(seen, 0x11, BYTES);
    test_free_on(fixture, &block, NULL);
    free_all(fixture, blocks, count);
    free(blocks);
}

/* That is no failure; if the stream cannot be waited for, the error says why it cannot. */
static void a_stream_beyond_the_last_timeline_is_waited_for_without_an_error(test_fixture *fixture)
{
    test_needs_truthful_queries();
    strata_block *blocks = room_for_blocks();
    strata_status status, waited, finished, refused;
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_write(fixture, &block, 0x11, NULL);
    test_synchronize(NULL);
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    PFN_cuEventQuery_v2000 query = strata_cu.EventQuery;
    check_status(strata_runtime_stream_synchronize(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    strata_cu.EventQuery = call_it_pending;
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ));
    size_t count = use_timelines_up(fixture, blocks, false, &status);
    PFN_cuStreamGetId_v12000 get_id = strata_cu.StreamGetId;
    strata_cu.StreamGetId = make_id_up; /* this stream has a timeline */
    const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, stream);
    unsigned errors = 0;
    check_status(strata_runtime_stream_synchronize(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    strata_set_log_callback(count_error, &errors);
    waited = strata_runtime_stream_synchronize(fixture->runtime, stream);
    finished = strata_runtime_finish_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ);
    const unsigned errors_of_waits = errors;
    const strata_status last = strata_last_error()->status;
    test_fault_begin(TEST_FAULT_STREAM_SYNCHRONIZE, 1, false, CUDA_ERROR_LAUNCH_FAILED);
    refused = strata_runtime_stream_synchronize(fixture->runtime, stream);
    const unsigned failed = test_fault_end();
    strata_set_log_callback(NULL, NULL);
    strata_cu.StreamGetId = get_id;
    strata_cu.EventQuery = query;
    check_status(status, STRATA_ERROR_BUSY);
    check_ok(waited);
    check_ok(finished);
    assert_int_equal(errors_of_waits, 0);
    assert_int_equal(last, STRATA_ERROR_INVALID_VALUE);
    check_bytes(seen, 0x11, BYTES);
    assert_int_equal(failed, 1);
    check_status(refused, STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "waiting for a stream");
    assert_int_equal(errors, 1);
    test_free_on(fixture, &block, NULL);
    free_all(fixture, blocks, count);
    free(blocks);
}

static uint16_t alloc_timeline_of(strata_runtime *runtime, const strata_block *block)
{
    return strata_table_entry(strata_runtime_stack(runtime)->head.table, block->id.slot)->alloc_timeline;
}

/* The stream that was made up last, again. */
static CUresult CUDAAPI answer_last_id(CUstream stream, unsigned long long *id)
{
    (void)stream;
    *id = UINT64_C(1) << 40 | (who.made_up - 1);
    return CUDA_SUCCESS;
}

/* Makes streams up, each with a block that lives, until one has that timeline: that one it stays until who.get_id
 * answers again. The blocks are of a runtime without memory, for the streams alone. */
static strata_runtime *make_up_stream_on(uint16_t number, CUstream stream, strata_block *blocks, size_t *count)
{
    strata_runtime *runtime;
    bool found = false;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "null"}, &runtime));
    who.get_id = strata_cu.StreamGetId;
    strata_cu.StreamGetId = make_id_up;
    for (*count = 0; *count < 2 * STRATA_TIMELINE_LIMIT && !found &&
                     strata_runtime_allocate(runtime, BYTES, stream, &blocks[*count]) == STRATA_SUCCESS;
         ++*count)
        found = alloc_timeline_of(runtime, &blocks[*count]) == number;
    strata_cu.StreamGetId = found ? answer_last_id : who.get_id;
    assert_true(found);
    return runtime;
}

static strata_block allocate_of(strata_runtime *runtime, CUstream stream)
{
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, KEPT_BYTES, stream, &block));
    return block;
}

/* A thread keeps memory by its stream's timeline. When that has to go to another stream, the memory is complete, and
 * the other one has it with what the thread keeps; what that one frees then is its own work's. */
static void memory_that_a_pool_kept_goes_with_its_timeline_when_it_is_complete(test_fixture *fixture)
{
    test_needs_truthful_queries();
    strata_runtime *pool;
    strata_block *blocks = calloc(2 * STRATA_TIMELINE_LIMIT, sizeof *blocks);
    assert_non_null(blocks);
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream third = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool(max_size=2MiB)"}, &pool));
    const strata_block wall = allocate_of(pool, third), kept = allocate_of(pool, stream);
    const uint16_t number = alloc_timeline_of(pool, &kept);
    test_fill(kept.address, 0x11, KEPT_BYTES, stream);
    check_ok(strata_runtime_deallocate_on(pool, &kept, stream));
    check_cu(test_cu()->CtxSynchronize());
    size_t count;
    strata_runtime *others = make_up_stream_on(number, other, blocks, &count);
    const strata_block block = allocate_of(pool, other);
    test_stall *stall = test_stall_begin(other);
    test_fill(block.address, 0x22, KEPT_BYTES, other);
    const strata_status status = strata_runtime_deallocate_on(pool, &block, other);
    strata_cu.StreamGetId = who.get_id;
    check_ok(status);
    assert_int_equal(block.address, kept.address);
    strata_block all;
    check_ok(strata_runtime_allocate(pool, (2 << 20) - KEPT_BYTES, third, &all));
    test_fill(all.address, 0x33, all.bytes, third);
    test_stall_end(stall);
    test_synchronize(third);
    const unsigned char *seen = test_copy_back(fixture, kept.address, KEPT_BYTES, third);
    test_synchronize(third);
    check_bytes(seen, 0x33, KEPT_BYTES);
    check_ok(strata_runtime_deallocate(pool, &all));
    check_ok(strata_runtime_deallocate(pool, &wall));
    check_ok(strata_runtime_destroy(pool));
    for (size_t i = 0; i < count; i++)
        check_ok(strata_runtime_deallocate_on(others, &blocks[i], NULL));
    check_ok(strata_runtime_destroy(others));
    free(blocks);
}

/* Memory of two streams, side by side, has to be waited for also by the one whose timeline has the highest number. */
static void memory_of_others_is_waited_for_by_the_stream_with_the_last_timeline(test_fixture *fixture)
{
    enum { HALF = 1 << 20 };
    test_needs_truthful_queries();
    strata_runtime *pool;
    strata_block *blocks = calloc(2 * STRATA_TIMELINE_LIMIT, sizeof *blocks), left, right, all;
    assert_non_null(blocks);
    CUstream last = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream one = test_stream(fixture, TEST_STREAM_POOL), two = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool(max_size=2MiB)"}, &pool));
    check_ok(strata_runtime_allocate(pool, HALF, one, &left));
    check_ok(strata_runtime_allocate(pool, HALF, two, &right));
    size_t count;
    strata_runtime *others = make_up_stream_on(STRATA_TIMELINE_LAST, last, blocks, &count);
    test_stall *stall = test_stall_begin(one);
    test_fill(left.address, 0x11, HALF, one);
    check_ok(strata_runtime_deallocate_on(pool, &left, one));
    check_ok(strata_runtime_deallocate_on(pool, &right, two));
    const strata_status status = strata_runtime_allocate(pool, 2 * HALF, last, &all);
    if (status == STRATA_SUCCESS)
        test_fill(all.address, 0x22, 2 * HALF, last);
    test_stall_end(stall);
    test_synchronize(one);
    test_synchronize(last);
    const strata_status freed = status == STRATA_SUCCESS ? strata_runtime_deallocate_on(pool, &all, last) : status;
    strata_cu.StreamGetId = who.get_id;
    check_ok(status);
    check_ok(freed);
    const unsigned char *seen = test_copy_back(fixture, left.address, HALF, one);
    test_synchronize(one);
    check_bytes(seen, 0x22, HALF);
    check_ok(strata_runtime_destroy(pool));
    for (size_t i = 0; i < count; i++)
        check_ok(strata_runtime_deallocate_on(others, &blocks[i], NULL));
    check_ok(strata_runtime_destroy(others));
    free(blocks);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(memory_of_others_is_waited_for_by_the_stream_with_the_last_timeline),
        TEST_CASE(idle_streams_whose_blocks_live_make_way_for_registered_ones),
        TEST_CASE(streams_with_work_pending_leave_no_room_and_the_error_says_so),
        TEST_CASE(work_on_a_stream_beyond_the_last_timeline_is_waited_for_where_it_is_noted),
        TEST_CASE(a_stream_beyond_the_last_timeline_is_waited_for_without_an_error),
        TEST_CASE(memory_that_a_pool_kept_goes_with_its_timeline_when_it_is_complete),
    };
    static const char *const stacks[] = {"async"};
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
