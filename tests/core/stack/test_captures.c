/* Strata while streams are being captured that it knows nothing of: the captures stay alive whatever is called, what is
 * freed inside one waits for its end, and what cannot be ordered there is refused before anything is asked. */
#include <pthread.h>
#include <string.h>

#include "support/captures.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

enum { BYTES = 4096 };

static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                            CU_STREAM_CAPTURE_MODE_RELAXED};

enum { MODES = sizeof modes / sizeof modes[0] };

/* ---- capturing, which the library itself never does ---- */

static PFN_cuStreamBeginCapture_v10010 begin_capture;
static PFN_cuStreamEndCapture_v10000 end_capture;
static PFN_cuGraphClone_v10000 graph_clone;
static PFN_cuGraphDestroy_v10000 graph_destroy;

static void open_captures(void)
{
    test_find_driver_call("cuStreamBeginCapture", 10010, &begin_capture);
    test_find_driver_call("cuStreamEndCapture", 10000, &end_capture);
    test_find_driver_call("cuGraphClone", 10000, &graph_clone);
    test_find_driver_call("cuGraphDestroy", 10000, &graph_destroy);
}

static CUstreamCaptureStatus capture_status(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    check_cu(test_cu()->StreamIsCapturing(stream, &status));
    return status;
}

/* Ends a capture that must have survived. A stream-ordered request or free that was tried on it would be seen, even if
 * the driver had refused that: the graph would count as one with memory, which cannot be cloned. */
static void end_alive(CUstream stream)
{
    CUgraph graph = NULL;
    CUgraph clone = NULL;
    assert_int_equal(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    check_cu(end_capture(stream, &graph));
    check_cu(graph_clone(&clone, graph));
    check_cu(graph_destroy(clone));
    check_cu(graph_destroy(graph));
}

static CUstream internal_stream(unsigned flags)
{
    CUstream stream;
    check_cu(test_cu()->StreamCreate(&stream, flags));
    return stream;
}

/* ---- every call beside a capture ---- */

typedef struct beside {
    test_fixture *fixture;
    bool with_legacy; /* the legacy stream may be used */
} beside;

static void allocate_use_and_free(const beside *with, CUstream alloc_stream, CUstream other)
{
    strata_runtime *runtime = with->fixture->runtime;
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, BYTES, alloc_stream, &block));
    check_ok(strata_runtime_prepare_block_use(runtime, &block, alloc_stream, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x11, BYTES, alloc_stream);
    check_ok(strata_runtime_finish_block_use(runtime, &block, alloc_stream, STRATA_ACCESS_WRITE));
    strata_launch launch;
    check_ok(strata_launch_begin(&launch, runtime, other, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_READ_WRITE));
    check_ok(strata_launch_preflight(&launch));
    test_fill(block.address, 0x22, BYTES, other);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    check_ok(strata_runtime_record_block_use(runtime, &block, other, STRATA_ACCESS_READ));
    check_ok(strata_runtime_deallocate_on(runtime, &block, alloc_stream));
}

static void on_streams_of_every_kind(const beside *with)
{
    for (test_stream_kind alloc_stream = 0; alloc_stream < TEST_STREAM_KINDS; alloc_stream++)
        for (test_stream_kind other = 0; other < TEST_STREAM_KINDS; other++) {
            bool legacy = alloc_stream == TEST_STREAM_ZERO || alloc_stream == TEST_STREAM_LEGACY ||
                          other == TEST_STREAM_ZERO || other == TEST_STREAM_LEGACY;
            if (legacy && !with->with_legacy)
                continue;
            CUstream streams[2] = {test_stream(with->fixture, alloc_stream), test_stream(with->fixture, other)};
            allocate_use_and_free(with, streams[0], streams[1]);
            test_stream_close(with->fixture, streams[1]);
            if (streams[0] != streams[1])
                test_stream_close(with->fixture, streams[0]);
        }
}

static void waiting_and_giving_back(const beside *with)
{
    strata_runtime *runtime = with->fixture->runtime;
    size_t released;
    CUstream stream = test_stream(with->fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(with->fixture, BYTES, stream);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_reap_pending(runtime));
    check_ok(strata_runtime_trim(runtime, 0, &released));
    test_stream_close(with->fixture, stream);
}

static void asking(const beside *with)
{
    strata_runtime *runtime = with->fixture->runtime;
    CUstream stream = test_stream(with->fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(with->fixture, BYTES, stream), found;
    strata_usage usage;
    strata_device_info info;
    check_ok(strata_runtime_find(runtime, block.address + 1, &found));
    check_ok(strata_runtime_usage(runtime, &usage));
    check_ok(strata_device_get_info(0, &info));
    check_ok(strata_runtime_deallocate(runtime, &block));
    strata_request huge = {.bytes = (size_t)1 << 50, .stream = stream};
    check_status(strata_runtime_allocate_request(runtime, &huge, &block), STRATA_ERROR_OUT_OF_MEMORY);
    test_stream_close(with->fixture, stream);
}

static void making_and_ending(const beside *with)
{
    strata_runtime *second;
    CUstream stream;
    strata_block block;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = with->fixture->stack}, &second));
    check_ok(strata_runtime_stream_acquire(second, &stream));
    check_ok(strata_runtime_allocate(second, BYTES, stream, &block));
    check_ok(strata_runtime_deallocate(second, &block));
    check_ok(strata_runtime_stream_release(second, stream));
    check_ok(strata_runtime_destroy(second));
}

static void (*const calls[])(const beside *with) = {on_streams_of_every_kind, waiting_and_giving_back, asking,
                                                    making_and_ending};

enum { CALLS = sizeof calls / sizeof calls[0] };

static void *make_every_call(void *data)
{
    const beside *with = data;
    test_make_current();
    for (size_t i = 0; i < CALLS; i++)
        calls[i](with);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* the end of the thread is the test's own affair */
    check_cu(test_cu()->ThreadExchangeStreamCaptureMode(&mode));
    test_leave_thread();
    return NULL;
}

static void a_capture_of_somebody_elses_survives_every_call_of_its_own_thread(test_fixture *fixture)
{
    for (size_t i = 0; i < MODES; i++)
        for (unsigned flags = CU_STREAM_DEFAULT; flags <= CU_STREAM_NON_BLOCKING; flags++) {
            beside with = {fixture, flags == CU_STREAM_NON_BLOCKING};
            CUstream captured = internal_stream(flags);
            for (size_t call = 0; call < CALLS; call++) {
                check_cu(begin_capture(captured, modes[i]));
                calls[call](&with);
                end_alive(captured);
            }
            check_cu(test_cu()->StreamDestroy(captured));
        }
}

static void a_capture_of_somebody_elses_survives_every_call_of_another_thread(test_fixture *fixture)
{
    for (size_t i = 0; i < MODES; i++)
        for (unsigned flags = CU_STREAM_DEFAULT; flags <= CU_STREAM_NON_BLOCKING; flags++) {
            beside with = {fixture, flags == CU_STREAM_NON_BLOCKING};
            CUstream captured = internal_stream(flags);
            check_cu(begin_capture(captured, modes[i]));
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, make_every_call, &with), 0);
            assert_int_equal(pthread_join(thread, NULL), 0);
            end_alive(captured);
            check_cu(test_cu()->StreamDestroy(captured));
        }
}

/* ---- frees inside a capture ---- */

static void check_deferred(test_fixture *fixture, const strata_block *block)
{
    strata_usage usage = test_usage(fixture);
    assert_int_equal(usage.live_blocks, 0);
    assert_int_equal(usage.retired_bytes, BYTES);
    assert_int_equal(usage.bytes_outstanding, BYTES);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block->id), STRATA_BLOCK_RETIRED);
    check_status(strata_runtime_deallocate_on(fixture->runtime, block, NULL), STRATA_ERROR_DOUBLE_FREE);
    check_status(strata_runtime_prepare_block_use(fixture->runtime, block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_USE_AFTER_FREE);
}

static void check_settled(test_fixture *fixture, const strata_block *block)
{
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(test_usage(fixture).bytes_outstanding, 0);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block->id), STRATA_BLOCK_FREED);
}

static strata_block free_inside(test_fixture *fixture, CUstream captured, CUstreamCaptureMode mode)
{
    strata_block block = test_allocate(fixture, BYTES, test_stream(fixture, TEST_STREAM_POOL));
    check_cu(begin_capture(captured, mode));
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, captured));
    check_deferred(fixture, &block);
    check_status(strata_runtime_reap_pending(fixture->runtime), STRATA_ERROR_STREAM_CAPTURE);
    check_last_error(STRATA_ERROR_STREAM_CAPTURE, "1 block was freed inside captures");
    check_deferred(fixture, &block);
    return block;
}

static strata_status pass_to_an_allocation(test_fixture *fixture, CUstream stream)
{
    strata_block block;
    CUstream other = test_stream(fixture, TEST_STREAM_POOL);
    strata_status status = strata_runtime_allocate(fixture->runtime, BYTES, stream, &block);
    return status == STRATA_SUCCESS ? strata_runtime_deallocate_on(fixture->runtime, &block, other) : status;
}

static strata_status pass_to_a_free(test_fixture *fixture, CUstream stream)
{
    strata_block block = test_allocate(fixture, BYTES, NULL);
    return strata_runtime_deallocate_on(fixture->runtime, &block, stream);
}

static strata_status say_that_it_ended(test_fixture *fixture, CUstream stream)
{
    return strata_stack_captures_ended(strata_runtime_stack(fixture->runtime), stream);
}

static strata_status say_that_all_ended(test_fixture *fixture, CUstream stream)
{
    check_cu(test_cu()->StreamSynchronize(stream));
    return strata_stack_captures_ended(strata_runtime_stack(fixture->runtime), STRATA_STREAM_GONE);
}

static void a_free_inside_a_capture_waits_until_its_end_is_seen(test_fixture *fixture)
{
    static strata_status (*const ends[])(test_fixture * fixture, CUstream stream) = {
        pass_to_an_allocation, pass_to_a_free, say_that_it_ended, say_that_all_ended};
    for (size_t i = 0; i < MODES * sizeof ends / sizeof ends[0]; i++) {
        CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING);
        strata_block block = free_inside(fixture, captured, modes[i % MODES]);
        check_ok(say_that_it_ended(fixture, captured)); /* it has not: nothing happens */
        check_deferred(fixture, &block);
        end_alive(captured);
        check_status(strata_runtime_reap_pending(fixture->runtime), STRATA_ERROR_STREAM_CAPTURE);
        check_ok(ends[i / MODES](fixture, captured));
        check_settled(fixture, &block);
        check_cu(test_cu()->StreamDestroy(captured));
    }
}

/* A graph may be captured with thousands of frees: each costs what the first one did, and so does a call elsewhere. */
static void frees_inside_a_capture_ask_no_more_the_more_there_are(test_fixture *fixture)
{
    enum { BLOCKS = 64, ASKED = 8 };
    strata_block blocks[BLOCKS], other;
    test_calls counted;
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING), elsewhere = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = test_allocate(fixture, BYTES, captured);
    check_cu(begin_capture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (size_t i = 0; i < BLOCKS; i++) {
        test_calls_begin(&counted);
        check_ok(strata_runtime_deallocate_on(fixture->runtime, &blocks[i], captured));
        assert_true(test_calls_of(&counted, "cuStreamIsCapturing") < ASKED);
    }
    test_calls_begin(&counted);
    other = test_allocate(fixture, BYTES, elsewhere);
    test_free_on(fixture, &other, elsewhere);
    assert_true(test_calls_of(&counted, "cuStreamIsCapturing") < 2 * ASKED);
    end_alive(captured);
    check_ok(say_that_it_ended(fixture, captured));
    for (size_t i = 0; i < BLOCKS; i++)
        check_settled(fixture, &blocks[i]);
    test_stream_close(fixture, elsewhere);
    check_cu(test_cu()->StreamDestroy(captured));
}

static void a_free_inside_a_capture_comes_after_what_the_stream_was_given_before(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING), alloc_stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x11, alloc_stream);
    test_synchronize(alloc_stream);
    test_stall *stall = test_stall_begin(captured);
    const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, captured); /* noted nowhere */
    check_cu(begin_capture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, captured));
    end_alive(captured);
    bool waits = strcmp(fixture->stack, "direct") == 0; /* its frees wait on the host */
    if (waits)
        test_stall_release(stall);
    check_ok(say_that_it_ended(fixture, captured));
    strata_block next = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &next, 0x22, alloc_stream);
    if (!waits)
        test_stall_release(stall);
    test_synchronize(alloc_stream);
    test_stall_end(stall);
    check_bytes(seen, 0x11, BYTES);
    test_free_on(fixture, &next, alloc_stream);
    check_settled(fixture, &next);
    check_cu(test_cu()->StreamDestroy(captured));
}

static void a_stack_with_frees_inside_captures_cannot_be_ended(test_fixture *fixture)
{
    strata_runtime *second;
    strata_block block;
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &second));
    check_ok(strata_runtime_allocate(second, BYTES, captured, &block));
    check_cu(begin_capture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    check_ok(strata_runtime_deallocate_on(second, &block, captured));
    end_alive(captured);
    check_status(strata_runtime_destroy(second), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "strata_stack_captures_ended");
    check_ok(strata_stack_captures_ended(strata_runtime_stack(second), captured));
    check_ok(strata_runtime_destroy(second));
    check_cu(test_cu()->StreamDestroy(captured));
}

/* A thread that frees inside a capture of its own default stream, and the block. */
typedef struct own_stream {
    test_fixture *fixture;
    strata_block block;
} own_stream;

static void *free_inside_own_capture(void *data)
{
    own_stream *own = data;
    test_make_current();
    check_cu(begin_capture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    check_ok(strata_runtime_deallocate_on(own->fixture->runtime, &own->block, CU_STREAM_PER_THREAD));
    end_alive(CU_STREAM_PER_THREAD);
    test_leave_thread();
    return NULL;
}

static void *allocate_on_own_stream(void *data)
{
    own_stream *own = data;
    test_make_current();
    check_ok(strata_runtime_allocate(own->fixture->runtime, BYTES, CU_STREAM_PER_THREAD, &own->block));
    check_ok(strata_runtime_deallocate(own->fixture->runtime, &own->block));
    test_leave_thread();
    return NULL;
}

static void run_thread(void *(*run)(void *data), void *data)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, data), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_free_inside_a_capture_of_a_threads_own_stream_is_not_taken_over_by_the_next_thread(test_fixture *fixture)
{
    own_stream first = {fixture, test_allocate(fixture, BYTES, test_stream(fixture, TEST_STREAM_POOL))};
    own_stream second = {.fixture = fixture};
    run_thread(free_inside_own_capture, &first);
    run_thread(allocate_on_own_stream, &second);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, first.block.id), STRATA_BLOCK_RETIRED);
    check_status(strata_runtime_reap_pending(fixture->runtime), STRATA_ERROR_STREAM_CAPTURE);
    check_ok(strata_stack_captures_ended(strata_runtime_stack(fixture->runtime), STRATA_STREAM_GONE));
    check_settled(fixture, &first.block);
}

static void *free_inside_own_capture_and_go_on(void *data)
{
    own_stream *own = data;
    own_stream next = {.fixture = own->fixture};
    test_make_current();
    check_ok(strata_runtime_allocate(own->fixture->runtime, BYTES, CU_STREAM_PER_THREAD, &own->block));
    free_inside_own_capture(own);
    allocate_on_own_stream(&next);
    return NULL;
}

static void a_free_inside_a_capture_of_a_threads_own_stream_is_done_when_that_thread_goes_on(test_fixture *fixture)
{
    own_stream own = {.fixture = fixture};
    run_thread(free_inside_own_capture_and_go_on, &own);
    check_settled(fixture, &own.block);
}

/* The program says that the stream's work is complete; its handle is dead. */
static void a_free_inside_a_capture_of_a_stream_that_is_gone_is_done_when_all_have_ended(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING);
    strata_block block = free_inside(fixture, captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
    end_alive(captured);
    test_synchronize(captured);
    check_cu(test_cu()->StreamDestroy(captured));
    check_ok(strata_stack_captures_ended(strata_runtime_stack(fixture->runtime), STRATA_STREAM_GONE));
    check_settled(fixture, &block);
}

/* The call that reports the end of the capture returns the error, and the free stays for the next one. */
static void a_free_inside_a_capture_that_fails_afterwards_is_said_and_deferred_again(test_fixture *fixture)
{
    const bool asks = test_owner_is(fixture, "pool"); /* which stream it is, and frees by no call */
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING);
    strata_block block = free_inside(fixture, captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
    end_alive(captured);
    test_fault_begin(asks ? TEST_FAULT_STREAM_GET_ID : TEST_FAULT_FREE, 1, false, CUDA_ERROR_UNKNOWN);
    strata_status status = say_that_it_ended(fixture, captured);
    const unsigned refused = test_fault_end();
    assert_true(refused || !asks || test_is_swept());
    if (refused) { /* not where memory goes back to a chunk */
        check_status(status, STRATA_ERROR_DRIVER);
        check_deferred(fixture, &block);
        status = say_that_it_ended(fixture, captured);
    }
    check_ok(status);
    check_settled(fixture, &block);
    check_cu(test_cu()->StreamDestroy(captured));
}

/* The one that failed waits for the next try and stays in front of those that come later; the others are done. */
static void frees_inside_a_capture_are_done_though_one_of_them_fails_and_none_is_lost(test_fixture *fixture)
{
    enum { BLOCKS = 3 };
    if (test_owner_is(fixture, "pool") || test_is_swept())
        return; /* its frees are no calls; and the call that fails is chosen here */
    strata_block blocks[BLOCKS];
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = test_allocate(fixture, BYTES, captured);
    check_cu(begin_capture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (size_t i = 0; i + 1 < BLOCKS; i++)
        check_ok(strata_runtime_deallocate_on(fixture->runtime, &blocks[i], captured));
    end_alive(captured);
    test_fault_begin(TEST_FAULT_FREE, 1, false, CUDA_ERROR_UNKNOWN);
    strata_status status = say_that_it_ended(fixture, captured);
    if (test_fault_end()) { /* not where memory goes back to a chunk */
        check_status(status, STRATA_ERROR_DRIVER);
        check_status(strata_runtime_reap_pending(fixture->runtime), STRATA_ERROR_STREAM_CAPTURE);
        check_last_error(STRATA_ERROR_STREAM_CAPTURE, "1 block was freed inside captures");
    }
    check_cu(begin_capture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &blocks[BLOCKS - 1], captured));
    end_alive(captured);
    check_ok(say_that_it_ended(fixture, captured));
    for (size_t i = 0; i < BLOCKS; i++)
        check_settled(fixture, &blocks[i]);
    check_cu(test_cu()->StreamDestroy(captured));
}

/* A block whose own stream was registered, and is not any more: its free names no stream. */
static void free_without_a_stream(test_fixture *fixture)
{
    CUstream alloc_stream = internal_stream(CU_STREAM_NON_BLOCKING);
    check_ok(strata_runtime_register_stream(fixture->runtime, alloc_stream));
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    check_ok(strata_runtime_unregister_stream(fixture->runtime, alloc_stream));
    check_cu(test_cu()->StreamDestroy(alloc_stream));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void a_free_without_a_stream_does_not_carry_out_what_was_freed_inside_a_capture(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING);
    strata_block block = free_inside(fixture, captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    free_without_a_stream(fixture);
    check_status(strata_runtime_reap_pending(fixture->runtime), STRATA_ERROR_STREAM_CAPTURE);
    check_deferred(fixture, &block);
    end_alive(captured);
    check_ok(say_that_it_ended(fixture, captured));
    check_settled(fixture, &block);
    check_cu(test_cu()->StreamDestroy(captured));
}

/* ---- the legacy stream beside a blocking stream that is captured ---- */

/* Whether an allocation calls the driver on the stream that it is for. */
static bool asks_the_stream(const test_fixture *fixture)
{
    return strncmp(fixture->stack, "async", 5) == 0;
}

/* What of it waits for a stream that cannot be waited for now: a free block is free already where its owner asks the
 * driver nothing to free it. */
static void check_freed_or_deferred(test_fixture *fixture, const strata_block *block)
{
    if (!test_owner_is(fixture, "pool")) {
        check_deferred(fixture, block);
        return;
    }
    assert_int_equal(test_usage(fixture).bytes_outstanding, 0);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block->id), STRATA_BLOCK_FREED);
}

/* Nor can the memory be had on a stream that does not come after the legacy one, until the capture is over. */
static void check_not_handed_over(test_fixture *fixture, const strata_block *freed, CUstream stream)
{
    if (!test_owner_is(fixture, "pool"))
        return;
    const size_t all = test_usage(fixture).reserved_bytes;
    strata_block block = test_allocate(fixture, all, stream); /* which it would be in */
    assert_true(freed->address < block.address || freed->address >= block.address + all);
    test_write(fixture, &block, 0x33, stream);
    test_free_on(fixture, &block, stream);
}

static void the_legacy_stream_is_left_alone_while_a_blocking_stream_is_captured(test_fixture *fixture)
{
    strata_runtime *runtime = fixture->runtime;
    CUstream captured = internal_stream(CU_STREAM_DEFAULT), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block old = test_allocate(fixture, BYTES, NULL), block = old;
    test_write(fixture, &old, 0x11, NULL); /* its point has no event yet */
    check_cu(begin_capture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (asks_the_stream(fixture)) {
        check_status(strata_runtime_allocate(runtime, BYTES, NULL, &block), STRATA_ERROR_STREAM_CAPTURE);
        check_last_error(STRATA_ERROR_STREAM_CAPTURE, "legacy default stream");
    }
    check_status(strata_runtime_prepare_block_use(runtime, &old, other, STRATA_ACCESS_READ),
                 STRATA_ERROR_STREAM_CAPTURE);
    check_ok(strata_runtime_deallocate(runtime, &old));
    check_freed_or_deferred(fixture, &old);
    check_not_handed_over(fixture, &old, other);
    check_status(strata_runtime_reap_pending(runtime), STRATA_ERROR_STREAM_CAPTURE);
    end_alive(captured);
    check_settled(fixture, &old);
    check_cu(test_cu()->StreamDestroy(captured));
}

static struct {
    PFN_cuStreamIsCapturing_v10000 is_capturing;
    CUstream stream; /* of which a capture begins behind the first question about the legacy stream */
    bool armed;
    CUresult began;
} meanwhile;

static CUresult CUDAAPI ask_before_a_capture(CUstream stream, CUstreamCaptureStatus *status)
{
    const CUresult result = meanwhile.is_capturing(stream, status);
    if (meanwhile.armed && stream == CU_STREAM_LEGACY) {
        meanwhile.armed = false;
        meanwhile.began = begin_capture(meanwhile.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
    return result;
}

/* The wait for the legacy stream's work needs an event there, which a capture that began a moment ago does not let in:
 * that is what is said, and not that the driver failed. */
static void
a_capture_that_begins_in_the_middle_of_a_wait_for_the_legacy_stream_is_what_refuses_it(test_fixture *fixture)
{
    CUstream blocking = internal_stream(CU_STREAM_DEFAULT), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_write(fixture, &block, 0x11, NULL);
    meanwhile.stream = blocking;
    meanwhile.armed = true;
    meanwhile.is_capturing = strata_cu.StreamIsCapturing;
    strata_cu.StreamIsCapturing = ask_before_a_capture;
    strata_status status = strata_runtime_prepare_block_use(fixture->runtime, &block, other, STRATA_ACCESS_READ);
    strata_cu.StreamIsCapturing = meanwhile.is_capturing;
    assert_false(meanwhile.armed);
    check_cu(meanwhile.began);
    end_alive(blocking);
    check_status(status, STRATA_ERROR_STREAM_CAPTURE);
    const unsigned char *seen = test_read(fixture, &block, other);
    test_synchronize(other);
    check_bytes(seen, 0x11, BYTES);
    test_free_on(fixture, &block, other);
    check_cu(test_cu()->StreamDestroy(blocking));
}

/* Nothing is waited for before the capture is met: neither by the host, nor by a stream that frees of others wait on.
 */
static void a_free_that_meets_a_capture_waits_for_no_use_before(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_DEFAULT), user = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_stall *stall = test_stall_begin(user);
    test_write(fixture, &block, 0x11, user);
    check_cu(begin_capture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    test_calls made;
    test_calls_begin(&made);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    assert_int_equal(test_calls_of(&made, "cuEventSynchronize"), 0);
    assert_int_equal(test_calls_of(&made, "cuStreamSynchronize"), 0);
    assert_int_equal(test_calls_of(&made, "cuStreamWaitEvent"), 0);
    if (test_owner_is(fixture, "pool"))
        assert_int_equal(test_calls_total(&made), 0);
    check_freed_or_deferred(fixture, &block);
    end_alive(captured);
    test_stall_end(stall);
    check_settled(fixture, &block);
    check_cu(test_cu()->StreamDestroy(captured));
}

static void a_free_without_a_stream_that_met_a_capture_is_done_by_the_next_reap(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_DEFAULT), alloc_stream = internal_stream(CU_STREAM_NON_BLOCKING);
    check_ok(strata_runtime_register_stream(fixture->runtime, alloc_stream));
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x11, NULL); /* its point has no event yet */
    check_ok(strata_runtime_unregister_stream(fixture->runtime, alloc_stream));
    check_cu(test_cu()->StreamDestroy(alloc_stream));
    check_cu(begin_capture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_freed_or_deferred(fixture, &block);
    check_not_handed_over(fixture, &block, test_stream(fixture, TEST_STREAM_POOL));
    check_status(strata_runtime_reap_pending(fixture->runtime), STRATA_ERROR_STREAM_CAPTURE);
    end_alive(captured);
    check_settled(fixture, &block);
    check_cu(test_cu()->StreamDestroy(captured));
}

/* The stream of the free is not captured, and need not be named again. */
static void a_free_on_a_stream_that_is_not_captured_is_done_by_the_next_reap(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_DEFAULT), other = internal_stream(CU_STREAM_NON_BLOCKING);
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_write(fixture, &block, 0x11, NULL); /* its point has no event yet */
    check_cu(begin_capture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, other));
    check_freed_or_deferred(fixture, &block);
    check_status(strata_runtime_reap_pending(fixture->runtime), STRATA_ERROR_STREAM_CAPTURE);
    end_alive(captured);
    check_settled(fixture, &block); /* `other` is unknown, and was not named again */
    check_cu(test_cu()->StreamDestroy(other));
    check_cu(test_cu()->StreamDestroy(captured));
}

/* What that stream had been given is done before the memory is another block's. */
static void a_free_behind_a_capture_elsewhere_comes_after_its_own_streams_work(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_DEFAULT), other = internal_stream(CU_STREAM_NON_BLOCKING);
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_write(fixture, &block, 0x11, NULL);
    test_order_after(other, NULL);
    test_stall *stall =
        test_owner_is(fixture, "direct") ? NULL : test_stall_begin(other); /* direct waits on the host */
    test_fill(block.address, 0x22, BYTES, other);
    check_cu(begin_capture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, other));
    end_alive(captured);
    check_ok(strata_stack_captures_ended(strata_runtime_stack(fixture->runtime), NULL));
    strata_block next = test_allocate(fixture, BYTES, NULL);
    test_write(fixture, &next, 0x33, NULL);
    if (stall)
        test_stall_end(stall);
    check_cu(test_cu()->CtxSynchronize());
    const unsigned char *seen = test_copy_back(fixture, next.address, BYTES, NULL);
    test_synchronize(NULL);
    check_bytes(seen, 0x33, BYTES);
    test_free_on(fixture, &next, NULL);
    check_settled(fixture, &block);
    check_cu(test_cu()->StreamDestroy(other));
    check_cu(test_cu()->StreamDestroy(captured));
}

/* Whatever layer the free comes through first. */
static void a_free_on_a_stream_sees_the_end_of_its_capture(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING);
    strata_block block = test_allocate(fixture, BYTES, captured), other = test_allocate(fixture, BYTES, captured);
    test_synchronize(captured);
    check_cu(begin_capture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, captured));
    check_status(strata_runtime_reap_pending(fixture->runtime), STRATA_ERROR_STREAM_CAPTURE);
    end_alive(captured);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &other, captured));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    check_cu(test_cu()->StreamDestroy(captured));
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_capture_of_somebody_elses_survives_every_call_of_its_own_thread),
        TEST_CASE(a_capture_of_somebody_elses_survives_every_call_of_another_thread),
        TEST_CASE(a_free_inside_a_capture_waits_until_its_end_is_seen),
        TEST_CASE(frees_inside_a_capture_ask_no_more_the_more_there_are),
        TEST_CASE(a_free_inside_a_capture_comes_after_what_the_stream_was_given_before),
        TEST_CASE(a_free_inside_a_capture_of_a_threads_own_stream_is_not_taken_over_by_the_next_thread),
        TEST_CASE(a_free_inside_a_capture_of_a_threads_own_stream_is_done_when_that_thread_goes_on),
        TEST_CASE(a_free_inside_a_capture_of_a_stream_that_is_gone_is_done_when_all_have_ended),
        TEST_CASE(a_free_inside_a_capture_that_fails_afterwards_is_said_and_deferred_again),
        TEST_CASE(frees_inside_a_capture_are_done_though_one_of_them_fails_and_none_is_lost),
        TEST_CASE(a_free_without_a_stream_does_not_carry_out_what_was_freed_inside_a_capture),
        TEST_CASE(a_stack_with_frees_inside_captures_cannot_be_ended),
        TEST_CASE(a_free_without_a_stream_that_met_a_capture_is_done_by_the_next_reap),
        TEST_CASE(a_free_on_a_stream_that_is_not_captured_is_done_by_the_next_reap),
        TEST_CASE(a_free_behind_a_capture_elsewhere_comes_after_its_own_streams_work),
        TEST_CASE(a_free_that_meets_a_capture_waits_for_no_use_before),
        TEST_CASE(the_legacy_stream_is_left_alone_while_a_blocking_stream_is_captured),
        TEST_CASE(a_capture_that_begins_in_the_middle_of_a_wait_for_the_legacy_stream_is_what_refuses_it),
    };
    static const char *const layers[] = {"guard, pool", "guard, async", "guard(sample=1), pool",
                                         "pool",        "direct",       "binning, async"};
    static const test_case through_layers[] = {TEST_CASE(a_free_on_a_stream_sees_the_end_of_its_capture)};
    test_open_driver();
    open_captures();
    /* What a pool waits for when it gets a frame is nothing to these cases, and test_pool_source's in a sweep. */
    static const char *const stacks[] = {
        "async", "direct", "pool", "async(pool=default)", "fixed(bytes=4KiB, chunk=16KiB), async", "pool, async"};
    const size_t swept = test_is_swept() ? 1 : 0;
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0] - swept, cases, sizeof cases / sizeof cases[0]) +
           test_run_on(layers, sizeof layers / sizeof layers[0], through_layers, 1);
}
