/* More streams than timelines: blocks live on so many unknown streams that no number is left for another one. The
 * driver's answer to who a stream is stands in for as many streams, since those of a program are dear. */
#include "core/stack.h"
#include "core/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "support/fixture.h"

enum { BYTES = 256 };

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
    const strata_entry *entry = strata_table_lookup(strata_runtime_stack(fixture->runtime)->table, block->id);
    return entry->home == STRATA_TIMELINE_LIMIT - 1;
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
    assert_null(strstr(said.message, "host has no memory"));
    free_all(fixture, blocks, count);
    check_cu(test_cu()->CtxSynchronize());
    check_ok(strata_runtime_register_stream(fixture->runtime, stream)); /* and now there is room again */
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    free(blocks);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(idle_streams_whose_blocks_live_make_way_for_registered_ones),
        TEST_CASE(streams_with_work_pending_leave_no_room_and_the_error_says_so),
    };
    static const char *const stacks[] = {"async"};
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
