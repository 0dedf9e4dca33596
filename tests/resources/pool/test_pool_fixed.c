/* pool: fixed chunks, over another layer, when one can be neither used nor returned at the moment. test_pool_source.c
 * has the usual cases. */
#include <string.h>

#include "support/captures.h"
#include "support/pool.h"

enum { CHUNK = 2 << 20 };

static uint64_t reserved(test_fixture *fixture)
{
    return value_of(fixture->runtime, "pool.reserved");
}

static uint64_t in_use_below(test_fixture *fixture)
{
    return value_of(fixture->runtime, "budget.in_use");
}

static void return_all(test_fixture *fixture)
{
    empty_the_pool(fixture);
    assert_int_equal(in_use_below(fixture), 0);
}

/* ---- a chunk that can be neither used nor returned ---- */

static CUresult CUDAAPI refuse_event_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)stream;
    (void)event;
    (void)flags;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult CUDAAPI refuse_event(CUevent event)
{
    (void)event;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult CUDAAPI refuse_stream(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult CUDAAPI refuse_free(CUdeviceptr address, CUstream stream)
{
    (void)address;
    (void)stream;
    return CUDA_ERROR_UNKNOWN;
}

/* The new chunk can be neither waited for nor returned. */
static strata_status allocate_in_vain(test_fixture *fixture, CUstream stream)
{
    const strata_entry_table real = strata_cu;
    strata_block block;
    strata_cu.StreamWaitEvent = refuse_event_wait;
    strata_cu.EventSynchronize = refuse_event;
    strata_cu.StreamSynchronize = refuse_stream;
    strata_cu.MemFreeAsync = refuse_free;
    const strata_status status = try_to_allocate(fixture, CHUNK, stream, &block);
    strata_cu.StreamWaitEvent = real.StreamWaitEvent;
    strata_cu.EventSynchronize = real.EventSynchronize;
    strata_cu.StreamSynchronize = real.StreamSynchronize;
    strata_cu.MemFreeAsync = real.MemFreeAsync;
    return status;
}

/* Its completion is unknown. It counts as reserved until it is returned. */
static void a_chunk_that_cannot_be_waited_for_serves_no_request(test_fixture *fixture)
{
    if (!strstr(fixture->stack, "async"))
        return; /* a chunk is complete at once */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    check_status(allocate_in_vain(fixture, stream), STRATA_ERROR_DRIVER);
    assert_true(reserved(fixture) == CHUNK && in_use_below(fixture) == CHUNK);
    strata_block block = test_allocate(fixture, CHUNK, stream);
    assert_int_equal(value_of(fixture->runtime, "pool.chunks.made"), 1);
    test_write(fixture, &block, 0x11, stream);
    check_ends(fixture, &block, 0x11, stream);
    test_free_on(fixture, &block, stream);
    return_all(fixture);
}

/* ---- a chunk that a capture holds ---- */

/* It cannot be waited for now; the chunks behind it can. */
static void a_trim_beside_a_capture_returns_chunks_that_do_not_wait_for_it(test_fixture *fixture)
{
    enum { COUNT = 3 };
    CUstream captured, stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[COUNT];
    check_cu(test_cu()->StreamCreate(&captured, CU_STREAM_DEFAULT));
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = test_allocate(fixture, CHUNK, i + 1 < COUNT ? stream : NULL);
        test_write(fixture, &blocks[i], 0x11, i + 1 < COUNT ? stream : NULL);
    }
    for (int i = 0; i < COUNT; i++)
        test_free_on(fixture, &blocks[i], i + 1 < COUNT ? stream : NULL);
    const uint64_t before = reserved(fixture);
    test_begin_capture(captured);
    const strata_status status = strata_runtime_trim(fixture->runtime, 0, NULL);
    assert_int_equal(test_end_capture(captured), 0);
    check_cu(test_cu()->StreamDestroy(captured));
    check_ok(status);
    assert_true(before == COUNT * CHUNK && reserved(fixture) == CHUNK && in_use_below(fixture) == CHUNK);
    return_all(fixture);
}

int main(void)
{
    static const char *const stacks[] = {"pool(chunk=2MiB), budget(limit=64MiB), async",
                                         "pool(chunk=2MiB), budget(limit=64MiB), direct"};
    static const test_case cases[] = {
        TEST_CASE(a_chunk_that_cannot_be_waited_for_serves_no_request),
        TEST_CASE(a_trim_beside_a_capture_returns_chunks_that_do_not_wait_for_it),
    };
    test_open_driver();
    return test_run_on(stacks, 2, cases, sizeof cases / sizeof cases[0]);
}
