/* Uses that fail half-way: what cannot be named, marked or waited for is refused, or waited for at once, and nothing is
 * left behind or forgotten. */
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/blocks/uses.h"
#include "core/streams/stream_map.h"
#include "runtime/runtime.h"

enum { BYTES = 4096 };

static strata_status prepare(test_fixture *fixture, const strata_block *block, CUstream stream, strata_access access)
{
    return strata_runtime_prepare_block_use(fixture->runtime, block, stream, access);
}

static strata_status finish(test_fixture *fixture, const strata_block *block, CUstream stream, strata_access access)
{
    return strata_runtime_finish_block_use(fixture->runtime, block, stream, access);
}

/* ---- refusals in the middle ---- */

static void a_prepare_that_fails_pins_and_notes_nothing(test_fixture *fixture)
{
    static const test_fault_call faults[] = {TEST_FAULT_EVENT_RECORD, TEST_FAULT_STREAM_WAIT_EVENT};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, a);
        test_stall *stall = test_stall_begin(a);
        test_write(fixture, &block, 0x11, a);
        test_fault_begin(faults[i], 1, false, CUDA_ERROR_UNKNOWN);
        check_status(prepare(fixture, &block, b, STRATA_ACCESS_READ), STRATA_ERROR_DRIVER);
        assert_int_equal(test_fault_end(), 1);
        assert_int_equal(strata_last_error()->driver_code, CUDA_ERROR_UNKNOWN);
        check_status(finish(fixture, &block, b, STRATA_ACCESS_READ), STRATA_ERROR_STREAM_MISUSE);
        const unsigned char *seen = test_read(fixture, &block, b); /* nothing was learned: this waits */
        test_stall_release(stall);
        test_synchronize(b);
        check_bytes(seen, 0x11, BYTES);
        test_stall_end(stall);
        test_free_on(fixture, &block, a);
        test_stream_close(fixture, a);
        test_stream_close(fixture, b);
    }
}

static void a_stream_that_cannot_be_identified_fails_the_use(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_fault_begin(TEST_FAULT_STREAM_GET_ID, 1, false, CUDA_ERROR_UNKNOWN);
    check_status(prepare(fixture, &block, stream, STRATA_ACCESS_READ), STRATA_ERROR_DRIVER);
    test_fault_end();
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void a_use_that_was_not_prepared_is_refused_also_where_its_stream_cannot_be_identified(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_fault_begin(TEST_FAULT_STREAM_GET_ID, 1, false, CUDA_ERROR_UNKNOWN);
    check_status(finish(fixture, &block, stream, STRATA_ACCESS_READ), STRATA_ERROR_STREAM_MISUSE);
    assert_int_equal(test_fault_end(), 1);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

/* The handle is good only now, so where no event can be recorded the library waits for the stream itself. */
static void a_use_on_an_unknown_stream_that_cannot_be_marked_is_waited_for_at_once(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, reader);
    check_ok(prepare(fixture, &block, stream, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x11, BYTES, stream);
    test_calls calls;
    test_calls_begin(&calls);
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, true, CUDA_ERROR_UNKNOWN);
    check_ok(finish(fixture, &block, stream, STRATA_ACCESS_WRITE));
    assert_true(test_fault_end() > 0);
    assert_int_equal(test_calls_of(&calls, "cuStreamSynchronize"), 1);
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_synchronize(reader);
    check_bytes(seen, 0x11, BYTES);
    test_stall *stall = test_stall_begin(stream); /* and what comes after that is not waited for with it */
    test_write(fixture, &block, 0x22, stream);
    seen = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x22, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, reader);
}

static void count_findings(const strata_error *error, void *data)
{
    (void)error;
    ++*(unsigned *)data;
}

/* The call succeeds, so it has nothing to report. */
static void a_use_that_is_waited_for_instead_of_marked_is_no_error(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, NULL);
    unsigned findings = 0;
    check_status(prepare(fixture, NULL, stream, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    strata_error before = *strata_last_error();
    check_ok(prepare(fixture, &block, stream, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x11, BYTES, stream);
    strata_set_log_callback(count_findings, &findings);
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, true, CUDA_ERROR_UNKNOWN);
    strata_status status = finish(fixture, &block, stream, STRATA_ACCESS_WRITE);
    unsigned refused = test_fault_end();
    strata_set_log_callback(NULL, NULL);
    check_ok(status);
    assert_true(refused > 0);
    assert_int_equal(findings, 0);
    assert_memory_equal(strata_last_error(), &before, sizeof before);
    test_free_on(fixture, &block, NULL);
}

static void a_use_whose_stream_cannot_be_identified_at_its_finish_is_waited_for_at_once(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    for (int i = 0; i < 4; i++) {
        const bool prepared = i & 1;
        strata_block block = test_allocate(fixture, BYTES, reader);
        test_calls calls;
        check_ok(prepare(fixture, &block, stream, STRATA_ACCESS_WRITE));
        if (!prepared)
            check_ok(finish(fixture, &block, stream, STRATA_ACCESS_NONE));
        test_fill(block.address, 0x11, BYTES, stream);
        test_calls_begin(&calls);
        test_fault_begin(TEST_FAULT_STREAM_GET_ID, 1, false, i & 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN);
        strata_status status =
            prepared ? finish(fixture, &block, stream, STRATA_ACCESS_WRITE)
                     : strata_runtime_record_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE);
        assert_int_equal(test_fault_end(), 1);
        check_ok(status);
        assert_int_equal(test_calls_of(&calls, "cuStreamSynchronize"), 1);
        const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, reader); /* ordered by nothing else */
        test_synchronize(reader);
        check_bytes(seen, 0x11, BYTES);
        test_free_on(fixture, &block, reader);
    }
}

static CUresult CUDAAPI refuse_to_synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The stream's event is there from the use before. When it can neither be recorded again nor the stream be waited for,
 * it must not cover the later work: a use that needs that work is refused until an event covers it. */
static void work_that_can_neither_be_marked_nor_waited_for_is_not_covered_by_an_older_event(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x11, stream);
    test_synchronize(stream);
    test_stall *stall = test_stall_begin(stream);
    check_ok(prepare(fixture, &block, stream, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x33, BYTES, stream);
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    strata_cu.StreamSynchronize = refuse_to_synchronize;
    strata_status status = finish(fixture, &block, stream, STRATA_ACCESS_WRITE);
    assert_true(test_fault_end() > 0);
    assert_int_not_equal(status, STRATA_SUCCESS);
    check_status(prepare(fixture, &block, reader, STRATA_ACCESS_READ), STRATA_ERROR_STREAM_MISUSE);
    strata_block other = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &other, 0x44, stream); /* marks everything before it too */
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x33, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &other, stream);
}

/* So many that what is remembered of idle streams is forgotten. */
static void let_streams_pass_by(test_fixture *fixture)
{
    enum { STREAMS = 100 };
    for (size_t i = 0; i < STREAMS; i++) {
        CUstream stream;
        strata_stream_ref ref;
        check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        const strata_status status = strata_stream_resolve(fixture->runtime->device, stream, &ref);
        check_cu(test_cu()->StreamDestroy(stream));
        check_ok(status);
    }
}

/* Now that all is marked and over. */
static void check_forgotten(test_fixture *fixture, CUstream stream)
{
    strata_stream_ref ref;
    test_needs_truthful_queries();
    check_ok(strata_stream_resolve(fixture->runtime->device, stream, &ref));
    let_streams_pass_by(fixture);
    assert_true(ref.timeline->stream_id != ref.stream_id);
}

/* All of its events are complete, and no block was allocated on it; but it has that work. The memory of a block that is
 * freed now could never be reused. */
static void a_stream_whose_work_can_be_neither_marked_nor_waited_for_is_not_forgotten(test_fixture *fixture)
{
    for (int used_before = 0; used_before < 2; used_before++) {
        CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, reader);
        if (used_before)
            test_write(fixture, &block, 0x11, stream);
        test_synchronize(stream);
        check_ok(prepare(fixture, &block, stream, STRATA_ACCESS_WRITE));
        test_stall *stall = test_stall_begin(stream);
        test_fill(block.address, 0x33, BYTES, stream);
        test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
        strata_cu.StreamSynchronize = refuse_to_synchronize;
        strata_status status = finish(fixture, &block, stream, STRATA_ACCESS_WRITE);
        assert_true(test_fault_end() > 0);
        assert_int_not_equal(status, STRATA_SUCCESS);
        let_streams_pass_by(fixture);
        check_status(prepare(fixture, &block, reader, STRATA_ACCESS_READ), STRATA_ERROR_STREAM_MISUSE);
        check_last_error(STRATA_ERROR_STREAM_MISUSE, "recording its event had failed");
        check_status(strata_runtime_deallocate_on(fixture->runtime, &block, reader), STRATA_ERROR_STREAM_MISUSE);
        assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
        check_ok(prepare(fixture, &block, stream, STRATA_ACCESS_READ));
        check_ok(finish(fixture, &block, stream, STRATA_ACCESS_READ)); /* which marks everything before it too */
        const unsigned char *seen = test_read(fixture, &block, reader);
        test_stall_release(stall);
        test_synchronize(reader);
        check_bytes(seen, 0x33, BYTES);
        test_stall_end(stall);
        test_free_on(fixture, &block, reader);
        check_forgotten(fixture, stream);
        test_stream_close(fixture, stream);
        test_stream_close(fixture, reader);
    }
}

/* From now on no event is recorded, after `good` more, and no stream is waited for. */
static void refuse_to_mark(unsigned good)
{
    test_fault_begin(TEST_FAULT_EVENT_RECORD, good + 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    strata_cu.StreamSynchronize = refuse_to_synchronize;
}

static void check_left_unmarked(strata_status status)
{
    assert_true(test_fault_end() > 0);
    assert_int_not_equal(status, STRATA_SUCCESS);
}

static void write_unmarked(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    check_ok(prepare(fixture, block, stream, STRATA_ACCESS_WRITE));
    test_fill(block->address, 0x33, BYTES, stream);
    refuse_to_mark(0);
    check_left_unmarked(finish(fixture, block, stream, STRATA_ACCESS_WRITE));
}

static void record_unmarked(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    refuse_to_mark(0);
    check_left_unmarked(strata_runtime_record_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE));
}

static void destroy_stream(test_fixture *fixture, CUstream stream)
{
    test_stream_forget(fixture, stream);
    check_cu(test_cu()->StreamDestroy(stream));
}

static void check_refused(test_fixture *fixture, const strata_block *block, CUstream reader)
{
    check_status(prepare(fixture, block, reader, STRATA_ACCESS_READ), STRATA_ERROR_STREAM_MISUSE);
    check_status(strata_runtime_deallocate_on(fixture->runtime, block, reader), STRATA_ERROR_STREAM_MISUSE);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block->id), STRATA_BLOCK_LIVE);
}

/* An event is recorded on the stream, which tells its device. Twice: in a sweep one use may be waited for instead. */
static void write_with_event(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    test_write(fixture, block, 0x10, stream);
    test_write(fixture, block, 0x11, stream);
}

/* The stream is gone, so no later use covers its work. A free or a use must not wait for the device; a call that waits
 * for all that is pending does, and learns it. */
static void work_of_a_stream_that_is_gone_is_learnt_by_a_wait_for_all_that_is_pending(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, reader);
    write_with_event(fixture, &block, stream);
    write_unmarked(fixture, &block, stream);
    destroy_stream(fixture, stream);
    check_refused(fixture, &block, reader);
    check_last_error(STRATA_ERROR_STREAM_MISUSE, "strata_runtime_reap_pending");
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_synchronize(reader);
    check_bytes(seen, 0x33, BYTES);
    test_free_on(fixture, &block, reader);
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(strata_runtime_reap_pending(fixture->runtime)); /* there is nothing left to learn */
    assert_int_equal(test_calls_of(&calls, "cuMemAlloc"), 0);
}

/* The use is noted all the same, as one of which only a wait for the device tells that it is complete. */
static void
work_whose_stream_can_be_neither_identified_nor_waited_for_is_learnt_by_a_wait_for_the_device(test_fixture *fixture)
{
    if (test_is_swept())
        return; /* which makes other calls fail, or forgets them: these fail already */
    for (int prepared = 0; prepared < 2; prepared++) {
        CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, reader);
        if (prepared)
            check_ok(prepare(fixture, &block, stream, STRATA_ACCESS_WRITE));
        else
            test_order_after(stream, reader);
        test_stall *stall = test_stall_begin(stream);
        test_fill(block.address, 0x33, BYTES, stream);
        test_fault_begin(TEST_FAULT_STREAM_GET_ID, 1, true, CUDA_ERROR_UNKNOWN);
        strata_cu.StreamSynchronize = refuse_to_synchronize;
        const strata_status status =
            prepared ? finish(fixture, &block, stream, STRATA_ACCESS_WRITE)
                     : strata_runtime_record_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE);
        test_fault_end();
        check_status(status, STRATA_ERROR_DRIVER);
        let_streams_pass_by(fixture);
        check_refused(fixture, &block, reader);
        check_last_error(STRATA_ERROR_STREAM_MISUSE, "strata_runtime_reap_pending");
        const strata_point write = strata_uses_last_write(fixture->runtime->table, block.id);
        assert_false(strata_point_known_complete(write));
        test_stall_release(stall);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_true(strata_point_known_complete(write));
        const unsigned char *seen = test_read(fixture, &block, reader);
        test_synchronize(reader);
        check_bytes(seen, 0x33, BYTES);
        test_stall_end(stall);
        test_free_on(fixture, &block, reader);
        test_stream_close(fixture, stream);
        test_stream_close(fixture, reader);
    }
}

static CUresult(CUDAAPI *real_synchronize)(CUstream stream);

static CUresult CUDAAPI refuse_to_synchronize_once(CUstream stream)
{
    strata_cu.StreamSynchronize = real_synchronize;
    return refuse_to_synchronize(stream);
}

/* The call succeeds, since a second wait does: nothing later is refused for that work, nor waits for the device. */
static void work_that_a_second_wait_completes_is_not_left_behind(test_fixture *fixture)
{
    if (test_is_swept())
        return; /* which makes other calls fail, or forgets them: these fail already */
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, reader);
    check_ok(prepare(fixture, &block, stream, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x33, BYTES, stream);
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    real_synchronize = strata_cu.StreamSynchronize;
    strata_cu.StreamSynchronize = refuse_to_synchronize_once;
    const strata_status status = finish(fixture, &block, stream, STRATA_ACCESS_WRITE);
    test_fault_end();
    check_ok(status);
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_synchronize(reader);
    check_bytes(seen, 0x33, BYTES);
    test_free_on(fixture, &block, reader);
    check_forgotten(fixture, stream);
}

/* A wait for the stream that comes later completes it, too. */
static void work_without_an_event_is_over_after_a_wait_for_its_stream(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, reader);
    test_calls calls;
    write_with_event(fixture, &block, stream);
    write_unmarked(fixture, &block, stream);
    check_refused(fixture, &block, reader);
    check_ok(strata_runtime_stream_synchronize(fixture->runtime, stream));
    test_calls_begin(&calls);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(test_calls_of(&calls, "cuMemAlloc"), 0);
    test_free_on(fixture, &block, reader);
    check_forgotten(fixture, stream);
}

/* The device of a stream is certain once an event of it was recorded there. */
static void work_of_a_stream_of_an_unknown_context_is_not_learnt_by_a_wait_for_a_device(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, reader);
    write_unmarked(fixture, &block, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_refused(fixture, &block, reader);
    check_last_error(STRATA_ERROR_STREAM_MISUSE, "known once a later use of that stream is recorded; its device is");
    test_write(fixture, &block, 0x44, stream);
    test_free_on(fixture, &block, reader);
}

/* What the wait covered is over; the same stream's next work is not. */
static void work_after_a_wait_for_the_device_is_waited_for_again(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, reader);
    write_with_event(fixture, &block, stream);
    record_unmarked(fixture, &block, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    test_stall *stall = test_stall_begin(stream);
    test_fill(block.address, 0x22, BYTES, stream);
    check_ok(strata_runtime_record_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE));
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x22, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, reader);
}

static CUresult CUDAAPI refuse_to_allocate(CUdeviceptr *address, size_t bytes)
{
    (void)address;
    (void)bytes;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult CUDAAPI refuse_to_allocate_on_the_host(void **address, size_t bytes, unsigned flags)
{
    (void)address;
    (void)bytes;
    (void)flags;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static strata_entry_table usual;

/* Until wait_again, no wait for a device can be had. */
static void refuse_to_wait(void)
{
    usual = strata_cu;
    strata_cu.MemAlloc = refuse_to_allocate;
    strata_cu.MemHostAlloc = refuse_to_allocate_on_the_host;
}

static void wait_again(void)
{
    strata_cu = usual;
}

static void check_wait_failed(strata_status status)
{
    check_status(status, STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "waiting for all work of device 0");
    assert_string_equal(strata_last_error()->driver_call, "cuMemHostAlloc");
}

/* It says so itself: the next free would only name the call that had just been made. */
static void a_call_that_waits_for_all_that_is_pending_fails_if_the_device_cannot_be_waited_for(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, reader);
    write_with_event(fixture, &block, stream);
    record_unmarked(fixture, &block, stream);
    destroy_stream(fixture, stream);
    unsigned findings = 0;
    refuse_to_wait();
    strata_set_log_callback(count_findings, &findings);
    const strata_status status = strata_runtime_reap_pending(fixture->runtime);
    strata_set_log_callback(NULL, NULL);
    wait_again();
    check_wait_failed(status);
    assert_int_equal(findings, 1);
    check_refused(fixture, &block, reader);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    test_free_on(fixture, &block, reader);
}

/* What fails after a wait has begun is not learnt by it. */
static void work_that_is_left_unmarked_during_a_wait_for_the_device_is_not_learnt_by_it(test_fixture *fixture)
{
    strata_device *device = fixture->runtime->device;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, reader);
    write_with_event(fixture, &block, stream);
    const uint64_t before = strata_timelines_failures();
    test_stall *stall = test_stall_begin(stream);
    write_unmarked(fixture, &block, stream);
    strata_timelines_note_device_wait(device, before);
    check_refused(fixture, &block, reader);
    assert_true(strata_timelines_need_device_wait(device));
    test_stall_end(stall);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_false(strata_timelines_need_device_wait(device));
    test_free_on(fixture, &block, reader);
}

/* The second event, which covers frees in flight, is the one that is refused. */
static void end_registered_stream(test_fixture *fixture, strata_runtime *runtime, CUstream stream, strata_ref *released)
{
    refuse_to_mark(1);
    const strata_status status = strata_runtime_unregister_stream(runtime, stream);
    const unsigned refused = test_fault_end();
    if (status == STRATA_SUCCESS)
        destroy_stream(fixture, stream);
    strata_ref_release(released); /* put aside */
    check_ok(status);
    assert_true(refused > 0);
}

static void blocks_of_a_registered_stream_whose_end_is_refused_are_freed(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_register_stream(fixture->runtime, stream));
    strata_block block = test_allocate(fixture, BYTES, reader), freed = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x33, stream);
    test_write(fixture, &freed, 0x44, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &freed));
    end_registered_stream(fixture, fixture->runtime, stream, NULL);
    check_refused(fixture, &block, reader);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    test_free_on(fixture, &block, reader);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
}

static void a_runtime_ends_after_a_registered_stream_whose_end_is_refused(test_fixture *fixture)
{
    for (int by_reference = 0; by_reference < 2; by_reference++) {
        strata_runtime *runtime;
        strata_block block;
        strata_ref *ref = NULL;
        CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &runtime));
        check_ok(strata_runtime_register_stream(runtime, stream));
        check_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
        check_ok(strata_runtime_record_block_use(runtime, &block, stream, STRATA_ACCESS_WRITE));
        if (by_reference)
            check_ok(strata_ref_adopt(runtime, &block, STRATA_ELEMENT_U8, BYTES, &ref));
        else
            check_ok(strata_runtime_deallocate(runtime, &block));
        end_registered_stream(fixture, runtime, stream, ref);
        check_ok(strata_runtime_destroy(runtime));
    }
}

static void an_end_that_fails_since_the_device_cannot_be_waited_for_says_so_and_the_next_one_ends(test_fixture *fixture)
{
    strata_runtime *runtime;
    strata_block block;
    strata_ref *ref;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &runtime));
    check_ok(strata_runtime_register_stream(runtime, stream));
    check_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
    check_ok(strata_runtime_record_block_use(runtime, &block, stream, STRATA_ACCESS_WRITE));
    check_ok(strata_ref_adopt(runtime, &block, STRATA_ELEMENT_U8, BYTES, &ref));
    end_registered_stream(fixture, runtime, stream, ref);
    refuse_to_wait();
    const strata_status status = strata_runtime_destroy(runtime);
    wait_again();
    check_wait_failed(status);
    check_ok(strata_runtime_destroy(runtime));
}

/* Streams are known to stacks without a runtime, too. */
static void a_stack_ends_after_a_registered_stream_whose_end_is_refused(test_fixture *fixture)
{
    for (int refused = 0; refused < 2; refused++) {
        strata_stack *stack;
        strata_block block;
        CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
        check_ok(strata_runtime_register_stream(fixture->runtime, stream));
        check_ok(strata_stack_create(fixture->stack, 0, &stack));
        strata_resource *top = strata_stack_top(stack);
        check_ok(strata_resource_allocate(top, &(strata_request){.bytes = BYTES, .stream = stream}, &block));
        check_ok(strata_resource_prepare_use(top, &block, stream, STRATA_ACCESS_WRITE));
        check_ok(strata_resource_finish_use(top, &block, stream, STRATA_ACCESS_WRITE));
        check_ok(strata_resource_deallocate(top, &block, stream));
        end_registered_stream(fixture, fixture->runtime, stream, NULL);
        strata_status status = STRATA_ERROR_OUT_OF_MEMORY;
        if (refused) {
            refuse_to_wait();
            status = strata_stack_destroy(stack);
            wait_again();
        }
        if (status != STRATA_SUCCESS) {
            if (refused)
                check_wait_failed(status);
            check_ok(strata_stack_destroy(stack));
        }
        check_ok(strata_runtime_reap_pending(fixture->runtime));
    }
}

static struct {
    PFN_cuEventSynchronize_v2000 real;
    strata_runtime *runtime;
    CUstream stream;
    strata_block block;
    bool armed;
    unsigned failures;
} unmarked;

/* While the event is waited for, as many uses as a timeline has events can be neither marked nor waited for. */
static CUresult CUDAAPI synchronize_beside_failures(CUevent event)
{
    if (!unmarked.armed)
        return unmarked.real(event);
    unmarked.armed = false;
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    strata_cu.StreamSynchronize = refuse_to_synchronize;
    for (size_t i = 0; i < STRATA_TIMELINE_EVENTS; i++)
        unmarked.failures += strata_runtime_record_block_use(unmarked.runtime, &unmarked.block, unmarked.stream,
                                                             STRATA_ACCESS_READ) != STRATA_SUCCESS;
    test_fault_end();
    return CUDA_ERROR_UNKNOWN;
}

static void an_event_that_is_waited_for_stays_while_others_cannot_be_recorded(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_stream_ref ref;
    unmarked.runtime = fixture->runtime;
    unmarked.stream = stream;
    unmarked.block = test_allocate(fixture, BYTES, stream);
    unmarked.failures = 0;
    test_stall *stall = test_stall_begin(stream);
    test_write(fixture, &block, 0x33, stream);
    check_ok(strata_stream_resolve(fixture->runtime->device, stream, &ref));
    unmarked.armed = true;
    unmarked.real = strata_cu.EventSynchronize;
    strata_cu.EventSynchronize = synchronize_beside_failures;
    strata_status status = strata_point_synchronize(strata_timeline_last_closed(ref.timeline->number));
    strata_cu.EventSynchronize = unmarked.real;
    assert_int_equal(status, STRATA_ERROR_DRIVER);
    assert_true(!unmarked.armed && unmarked.failures == STRATA_TIMELINE_EVENTS);
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x33, BYTES);
    test_stall_end(stall);
    test_write(fixture, &unmarked.block, 0x44, stream); /* marks everything before it too */
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &unmarked.block, stream);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_prepare_that_fails_pins_and_notes_nothing),
        TEST_CASE(a_stream_that_cannot_be_identified_fails_the_use),
        TEST_CASE(a_use_that_was_not_prepared_is_refused_also_where_its_stream_cannot_be_identified),
        TEST_CASE(a_use_on_an_unknown_stream_that_cannot_be_marked_is_waited_for_at_once),
        TEST_CASE(a_use_that_is_waited_for_instead_of_marked_is_no_error),
        TEST_CASE(a_use_whose_stream_cannot_be_identified_at_its_finish_is_waited_for_at_once),
        TEST_CASE(work_that_can_neither_be_marked_nor_waited_for_is_not_covered_by_an_older_event),
        TEST_CASE(a_stream_whose_work_can_be_neither_marked_nor_waited_for_is_not_forgotten),
        TEST_CASE(work_of_a_stream_that_is_gone_is_learnt_by_a_wait_for_all_that_is_pending),
        TEST_CASE(work_whose_stream_can_be_neither_identified_nor_waited_for_is_learnt_by_a_wait_for_the_device),
        TEST_CASE(work_that_a_second_wait_completes_is_not_left_behind),
        TEST_CASE(work_without_an_event_is_over_after_a_wait_for_its_stream),
        TEST_CASE(work_of_a_stream_of_an_unknown_context_is_not_learnt_by_a_wait_for_a_device),
        TEST_CASE(work_after_a_wait_for_the_device_is_waited_for_again),
        TEST_CASE(a_call_that_waits_for_all_that_is_pending_fails_if_the_device_cannot_be_waited_for),
        TEST_CASE(work_that_is_left_unmarked_during_a_wait_for_the_device_is_not_learnt_by_it),
        TEST_CASE(blocks_of_a_registered_stream_whose_end_is_refused_are_freed),
        TEST_CASE(a_runtime_ends_after_a_registered_stream_whose_end_is_refused),
        TEST_CASE(an_end_that_fails_since_the_device_cannot_be_waited_for_says_so_and_the_next_one_ends),
        TEST_CASE(a_stack_ends_after_a_registered_stream_whose_end_is_refused),
        TEST_CASE(an_event_that_is_waited_for_stays_while_others_cannot_be_recorded),
    };
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
