/* Streams: the pool, registered ones, unknown ones, the per-thread one, and those that are destroyed and whose handles
 * come back. */
#include "support/effort.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/stack/stack.h"
#include "core/streams/stream_map.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { BYTES = 4096, POOL = 64 };

static bool is_direct(const test_fixture *fixture)
{
    return strcmp(fixture->stack, "direct") == 0;
}

static CUstream make_stream(void)
{
    CUstream stream;
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void destroy_stream(CUstream stream)
{
    check_cu(test_cu()->StreamDestroy(stream));
}

/* ---- the pool ---- */

static void the_pool_is_a_hard_limit_and_hands_out_distinct_streams(test_fixture *fixture)
{
    CUstream streams[POOL], more = CU_STREAM_LEGACY;
    for (size_t i = 0; i < POOL; i++) {
        check_ok(strata_runtime_stream_acquire(fixture->runtime, &streams[i]));
        assert_true((uintptr_t)streams[i] > (uintptr_t)CU_STREAM_PER_THREAD);
        for (size_t j = 0; j < i; j++)
            assert_ptr_not_equal(streams[i], streams[j]);
    }
    check_status(strata_runtime_stream_acquire(fixture->runtime, &more), STRATA_ERROR_STREAMS_EXHAUSTED);
    assert_null(more);
    check_ok(strata_runtime_stream_release(fixture->runtime, streams[7]));
    check_ok(strata_runtime_stream_acquire(fixture->runtime, &more));
    assert_ptr_equal(more, streams[7]);
    for (size_t i = 0; i < POOL; i++)
        check_ok(strata_runtime_stream_release(fixture->runtime, streams[i]));
}

static void the_pool_holds_sixteen_streams_unless_told_otherwise(test_fixture *fixture)
{
    strata_runtime *runtime;
    CUstream streams[16], more;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &runtime));
    for (size_t i = 0; i < 16; i++)
        check_ok(strata_runtime_stream_acquire(runtime, &streams[i]));
    check_status(strata_runtime_stream_acquire(runtime, &more), STRATA_ERROR_STREAMS_EXHAUSTED);
    check_status(strata_runtime_destroy(runtime), STRATA_ERROR_BUSY);
    for (size_t i = 0; i < 16; i++)
        check_ok(strata_runtime_stream_release(runtime, streams[i]));
    check_ok(strata_runtime_destroy(runtime));
}

static void only_what_was_acquired_can_be_released_and_once(test_fixture *fixture)
{
    CUstream pooled, own = test_stream(fixture, TEST_STREAM_REGISTERED);
    check_ok(strata_runtime_stream_acquire(fixture->runtime, &pooled));
    check_status(strata_runtime_stream_release(fixture->runtime, own), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_stream_release(fixture->runtime, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_unregister_stream(fixture->runtime, pooled), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_runtime_stream_release(fixture->runtime, pooled));
    check_status(strata_runtime_stream_release(fixture->runtime, pooled), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_stream_acquire(fixture->runtime, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_stream_acquire(NULL, &pooled), STRATA_ERROR_INVALID_VALUE);
}

static void a_stream_of_the_pool_does_not_wait_for_the_default_stream(test_fixture *fixture)
{
    CUstream pooled = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, pooled);
    test_stall *stall = test_stall_begin(CU_STREAM_LEGACY);
    test_write(fixture, &block, 0x11, pooled);
    const unsigned char *seen = test_read(fixture, &block, pooled);
    test_synchronize(pooled); /* the stall would run out */
    check_bytes(seen, 0x11, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, pooled);
}

static void a_stream_that_was_given_back_keeps_its_history(test_fixture *fixture)
{
    CUstream first, again, reader = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_stream_acquire(fixture->runtime, &first));
    strata_block block = test_allocate(fixture, BYTES, first);
    test_stall *stall = test_stall_begin(first);
    test_write(fixture, &block, 0x11, first);
    check_ok(strata_runtime_stream_release(fixture->runtime, first));
    check_ok(strata_runtime_stream_acquire(fixture->runtime, &again));
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x11, BYTES);
    test_stall_end(stall);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(strata_runtime_stream_release(fixture->runtime, again));
}

/* ---- registering ---- */

/* What the driver answers for a stream that is gone. */
static void a_failure_that_a_destroyed_stream_may_be_the_cause_of_says_so(test_fixture *fixture)
{
    if (test_is_swept() || !test_owner_is(fixture, "pool"))
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x11, stream);
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, true, CUDA_ERROR_INVALID_HANDLE);
    const strata_status status = strata_runtime_prepare_block_use(fixture->runtime, &block, other, STRATA_ACCESS_READ);
    assert_true(test_fault_end() > 0);
    check_status(status, STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "was it destroyed? Unregister a stream");
    test_free_on(fixture, &block, stream);
}

static void a_stream_is_registered_once_and_unregistered_once(test_fixture *fixture)
{
    strata_runtime *other;
    CUstream stream = make_stream();
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &other));
    check_status(strata_runtime_unregister_stream(fixture->runtime, stream), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_runtime_register_stream(fixture->runtime, stream));
    check_status(strata_runtime_register_stream(fixture->runtime, stream), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_register_stream(other, stream), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_unregister_stream(other, stream), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    check_status(strata_runtime_unregister_stream(fixture->runtime, stream), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_runtime_register_stream(other, stream));
    check_ok(strata_runtime_unregister_stream(other, stream));
    check_ok(strata_runtime_destroy(other));
    destroy_stream(stream);
}

static void default_streams_cannot_be_registered(test_fixture *fixture)
{
    static const CUstream names[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    for (size_t i = 0; i < 3; i++) {
        check_status(strata_runtime_register_stream(fixture->runtime, names[i]), STRATA_ERROR_INVALID_VALUE);
        check_status(strata_runtime_unregister_stream(fixture->runtime, names[i]), STRATA_ERROR_INVALID_VALUE);
    }
    check_status(strata_runtime_register_stream(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
}

static void a_stream_that_was_used_before_it_was_registered_keeps_its_history(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_stall *stall = test_stall_begin(stream);
    test_write(fixture, &block, 0x11, stream);
    check_ok(strata_runtime_register_stream(fixture->runtime, stream));
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ_WRITE));
    assert_int_equal(test_calls_total(&calls), 0); /* it is the stream that the block was used on */
    test_fill(block.address, 0x22, BYTES / 2, stream);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ_WRITE));
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x22, BYTES / 2);
    check_bytes(seen + BYTES / 2, 0x11, BYTES / 2);
    test_stall_end(stall);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block)); /* its home can be named now */
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
}

static void a_stream_can_be_used_after_it_was_unregistered(test_fixture *fixture)
{
    CUstream stream = make_stream(), reader = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_register_stream(fixture->runtime, stream));
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_stall *stall = test_stall_begin(stream);
    test_write(fixture, &block, 0x11, stream);
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ_WRITE));
    test_fill(block.address, 0x22, BYTES / 2, stream);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_READ_WRITE));
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x22, BYTES / 2);
    check_bytes(seen + BYTES / 2, 0x11, BYTES / 2);
    test_stall_end(stall);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    destroy_stream(stream);
}

enum { PASSERS_BY = 100 }; /* enough that what is remembered of idle streams may be forgotten */

static void let_streams_pass_by(test_fixture *fixture)
{
    for (size_t i = 0; i < PASSERS_BY; i++) {
        CUstream stream = make_stream();
        strata_block block = test_allocate(fixture, 256, stream);
        test_free_on(fixture, &block, stream);
        test_synchronize(stream);
        destroy_stream(stream);
    }
}

/* Unregistered for a while, say to be captured, with nothing pending. Its work on its own blocks needs no note, before
 * and after. */
static void a_stream_that_is_registered_again_is_the_home_of_the_blocks_that_it_had(test_fixture *fixture)
{
    enum { OTHERS = 8 };
    for (int passers_by = 0; passers_by < 2; passers_by++) {
        CUstream stream = make_stream(), other = test_stream(fixture, TEST_STREAM_POOL);
        strata_block others[OTHERS];
        check_ok(strata_runtime_register_stream(fixture->runtime, stream));
        strata_block block = test_allocate(fixture, BYTES, stream);
        check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
        test_synchronize(stream);
        if (passers_by)
            let_streams_pass_by(fixture);
        check_ok(strata_runtime_register_stream(fixture->runtime, stream));
        test_fill(block.address, 0x11, BYTES, stream);
        test_synchronize(stream);
        test_stall *stall = is_direct(fixture) ? NULL : test_stall_begin(stream); /* direct waits on the host */
        const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, stream);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        for (size_t i = 0; i < OTHERS; i++) {
            others[i] = test_allocate(fixture, BYTES, other);
            test_write(fixture, &others[i], 0x22, other);
        }
        if (stall)
            test_stall_release(stall);
        test_synchronize(other);
        test_synchronize(stream);
        check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
        check_bytes(seen, 0x11, BYTES);
        if (stall)
            test_stall_end(stall);
        for (size_t i = 0; i < OTHERS; i++)
            test_free_on(fixture, &others[i], other);
        test_stream_close(fixture, other);
        destroy_stream(stream);
    }
}

/* ---- captures ---- */

typedef struct capture_calls {
    test_fixture *fixture;
    strata_block block;
    CUstream stream;
} capture_calls;

static strata_status allocate_captured(const capture_calls *with)
{
    strata_block block;
    return strata_runtime_allocate(with->fixture->runtime, BYTES, with->stream, &block);
}

static strata_status prepare_captured(const capture_calls *with)
{
    return strata_runtime_prepare_block_use(with->fixture->runtime, &with->block, with->stream, STRATA_ACCESS_READ);
}

static strata_status record_captured(const capture_calls *with)
{
    return strata_runtime_record_block_use(with->fixture->runtime, &with->block, with->stream, STRATA_ACCESS_READ);
}

static strata_status launch_captured(const capture_calls *with)
{
    strata_launch launch;
    check_ok(strata_launch_begin(&launch, with->fixture->runtime, with->stream, STRATA_LAUNCH_PERMISSIVE));
    check_ok(strata_launch_use(&launch, &with->block, STRATA_ACCESS_READ));
    strata_status status = strata_launch_preflight(&launch);
    check_ok(strata_launch_end(&launch));
    return status;
}

static strata_status register_captured(const capture_calls *with)
{
    return strata_runtime_register_stream(with->fixture->runtime, with->stream);
}

/* Any question but the first would kill the capture. */
static void a_stream_that_is_being_captured_is_refused_and_asked_nothing_else(test_fixture *fixture)
{
    static strata_status (*const refused[])(const capture_calls *) = {
        allocate_captured, prepare_captured, record_captured, launch_captured, register_captured,
    };
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    capture_calls with = {.fixture = fixture, .block = test_allocate(fixture, BYTES, NULL), .stream = stream};
    test_fault_pretend_capture(stream);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        test_calls calls;
        test_calls_begin(&calls);
        check_status(refused[i](&with), STRATA_ERROR_STREAM_CAPTURE);
        assert_int_equal(test_calls_of(&calls, "cuStreamIsCapturing"), 1);
        uint64_t context = test_calls_of(&calls, "cuCtxGetCurrent") + test_calls_of(&calls, "cuCtxSetCurrent");
        assert_int_equal(test_calls_total(&calls) - context, 1);
        assert_int_equal(test_usage(fixture).live_blocks, 1);
        if (i < 3)
            check_last_error(STRATA_ERROR_STREAM_CAPTURE, "Allocate before the capture or on another stream");
    }
    test_fault_end();
    check_ok(strata_runtime_deallocate(fixture->runtime, &with.block)); /* nothing was pinned or noted */
}

/* ---- streams that are gone ---- */

static void work_of_a_destroyed_stream_is_still_waited_for(test_fixture *fixture)
{
    test_needs_destroying_without_waiting();
    for (int registered = 0; registered < 2; registered++) {
        CUstream stream = make_stream(), reader = test_stream(fixture, TEST_STREAM_POOL);
        if (registered)
            check_ok(strata_runtime_register_stream(fixture->runtime, stream));
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_stall *stall = test_stall_begin(stream);
        test_write(fixture, &block, 0x11, stream);
        if (registered)
            check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
        destroy_stream(stream);
        const unsigned char *seen = test_read(fixture, &block, reader);
        test_stall_release(stall);
        test_synchronize(reader);
        check_bytes(seen, 0x11, BYTES);
        test_stall_end(stall);
        test_free_on(fixture, &block, reader);
        test_stream_close(fixture, reader);
    }
}

/* What the stream had been given until then counts, noted or not: this copy is not. */
static void a_block_is_freed_in_the_order_of_its_stream_after_that_was_unregistered_and_destroyed(test_fixture *fixture)
{
    enum { OTHERS = 8 };
    test_needs_destroying_without_waiting();
    CUstream stream = make_stream(), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block others[OTHERS];
    check_ok(strata_runtime_register_stream(fixture->runtime, stream));
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x11, stream);
    test_read(fixture, &block, other); /* an event covers what was noted, and not what comes now */
    test_synchronize(other);
    test_stall *stall = is_direct(fixture) ? NULL : test_stall_begin(stream); /* direct waits on the host */
    const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, stream);
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    destroy_stream(stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    for (size_t i = 0; i < OTHERS; i++) {
        others[i] = test_allocate(fixture, BYTES, other);
        test_write(fixture, &others[i], 0x22, other);
    }
    if (stall)
        test_stall_end(stall);
    check_cu(test_cu()->CtxSynchronize());
    check_bytes(seen, 0x11, BYTES);
    for (size_t i = 0; i < OTHERS; i++)
        test_free_on(fixture, &others[i], other);
}

/* The work of a known stream has no event yet, so nothing would wait for this copy. */
static void a_block_whose_stream_is_still_known_cannot_be_freed_as_if_that_were_gone(test_fixture *fixture)
{
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_REGISTERED, TEST_STREAM_ZERO,
                                             TEST_STREAM_LEGACY};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        CUstream stream = test_stream(fixture, kinds[i]);
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_write(fixture, &block, 0x11, stream);
        test_synchronize(stream);
        test_stall *stall = test_stall_begin(stream);
        const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, stream);
        strata_usage before = test_usage(fixture);
        check_status(strata_resource_deallocate(top, &block, STRATA_STREAM_GONE), STRATA_ERROR_INVALID_VALUE);
        check_last_error(STRATA_ERROR_INVALID_VALUE, "still known");
        assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
        assert_true(test_usage(fixture).live_bytes == before.live_bytes);
        test_stall_end(stall);
        check_bytes(seen, 0x11, BYTES);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        test_stream_close(fixture, stream);
    }
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, stream);
    check_ok(strata_runtime_register_stream(fixture->runtime, stream)); /* known by now */
    check_status(strata_resource_deallocate(top, &block, STRATA_STREAM_GONE), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    check_ok(strata_resource_deallocate(top, &block, STRATA_STREAM_GONE));
}

static void a_block_from_an_unknown_stream_is_freed_on_a_named_one_only(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_usage before = test_usage(fixture);
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_STREAM_MISUSE);
    assert_int_equal(strata_last_error()->generation, block.id.generation);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
    assert_int_equal(test_usage(fixture).live_bytes, before.live_bytes);
    test_write(fixture, &block, 0x11, stream);
    test_free_on(fixture, &block, stream);
    assert_int_not_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
}

/* A stream with the handle that `gone` had. Skips the test where the driver does not give it again. */
static CUstream handle_come_back(CUstream gone)
{
    enum { TRIES = 64 };
    CUstream tried[TRIES], found = NULL;
    size_t count = 0;
    while (!found && count < TRIES) {
        tried[count] = make_stream();
        if (tried[count] == gone)
            found = gone;
        else
            count++;
    }
    for (size_t i = 0; i < count; i++)
        destroy_stream(tried[i]);
    if (!found) {
        print_message("the driver did not give the handle of a destroyed stream again\n");
        skip();
    }
    return found;
}

/* A stream is destroyed behind a stall, another one gets its handle: the new one must wait like any other, and is not
 * the home of the old one's block. */
static void replace_stream(test_fixture *fixture, bool old_registered, bool new_registered)
{
    CUstream gone = make_stream();
    if (old_registered)
        check_ok(strata_runtime_register_stream(fixture->runtime, gone));
    strata_block block = test_allocate(fixture, BYTES, gone);
    test_stall *stall = test_stall_begin(gone);
    test_write(fixture, &block, 0x11, gone);
    if (old_registered)
        check_ok(strata_runtime_unregister_stream(fixture->runtime, gone));
    destroy_stream(gone);
    CUstream fresh = handle_come_back(gone);
    if (new_registered)
        check_ok(strata_runtime_register_stream(fixture->runtime, fresh));
    test_calls calls;
    test_calls_begin(&calls);
    const unsigned char *seen = test_read(fixture, &block, fresh);
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 1);
    test_stall_release(stall);
    test_synchronize(fresh);
    check_bytes(seen, 0x11, BYTES);
    test_stall_end(stall);
    strata_status status = strata_runtime_deallocate(fixture->runtime, &block);
    assert_int_equal(status, old_registered ? STRATA_SUCCESS : STRATA_ERROR_STREAM_MISUSE);
    if (!old_registered)
        test_free_on(fixture, &block, fresh);
    if (new_registered)
        check_ok(strata_runtime_unregister_stream(fixture->runtime, fresh));
    destroy_stream(fresh);
}

static void a_destroyed_streams_handle_that_comes_back_inherits_nothing(test_fixture *fixture)
{
    test_needs_destroying_without_waiting();
    for (int i = 0; i < 4; i++)
        replace_stream(fixture, i & 1, i & 2);
}

/* The old stream has nothing pending, so that what is remembered of it may be forgotten, and used again, while its
 * block lives. When that happens is the library's affair; in so many turns it does. */
static void a_later_stream_is_never_taken_for_the_one_that_a_block_was_allocated_on(test_fixture *fixture)
{
    for (int i = 0; i < 400; i++) {
        CUstream gone = make_stream();
        strata_block block = test_allocate(fixture, 256, gone);
        test_synchronize(gone);
        destroy_stream(gone);
        CUstream fresh = make_stream();
        strata_block other = test_allocate(fixture, 256, fresh);
        check_ok(strata_runtime_register_stream(fixture->runtime, fresh));
        check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_STREAM_MISUSE);
        test_free_on(fixture, &block, fresh);
        check_ok(strata_runtime_deallocate(fixture->runtime, &other)); /* of this one, it is */
        check_ok(strata_runtime_unregister_stream(fixture->runtime, fresh));
        test_synchronize(fresh);
        destroy_stream(fresh);
    }
}

/* ---- the per-thread stream ---- */

typedef struct per_thread_work {
    test_fixture *fixture;
    strata_block block;
    strata_status allocated, used, freed;
    bool free_own;
} per_thread_work;

static void *work_on_own_stream(void *data)
{
    per_thread_work *work = data;
    strata_runtime *runtime = work->fixture->runtime;
    test_make_current();
    work->allocated = strata_runtime_allocate(runtime, BYTES, CU_STREAM_PER_THREAD, &work->block);
    work->used = strata_runtime_prepare_block_use(runtime, &work->block, CU_STREAM_PER_THREAD, STRATA_ACCESS_WRITE);
    test_cu()->MemsetD8Async(work->block.address, 0x66, BYTES, CU_STREAM_PER_THREAD);
    if (work->used == STRATA_SUCCESS)
        work->used = strata_runtime_finish_block_use(runtime, &work->block, CU_STREAM_PER_THREAD, STRATA_ACCESS_WRITE);
    if (work->free_own)
        work->freed = strata_runtime_deallocate(runtime, &work->block);
    test_leave_thread();
    return NULL;
}

static per_thread_work in_another_thread(test_fixture *fixture, bool free_own)
{
    per_thread_work work = {.fixture = fixture, .free_own = free_own};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, work_on_own_stream, &work), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_ok(work.allocated);
    check_ok(work.used);
    return work;
}

static void the_per_thread_stream_works_in_its_thread(test_fixture *fixture)
{
    check_ok(in_another_thread(fixture, true).freed);
    strata_block block = test_allocate(fixture, BYTES, CU_STREAM_PER_THREAD);
    test_write(fixture, &block, 0x11, CU_STREAM_PER_THREAD);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void the_per_thread_stream_of_another_thread_cannot_be_meant(test_fixture *fixture)
{
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    per_thread_work work = in_another_thread(fixture, false);
    check_status(strata_runtime_deallocate(fixture->runtime, &work.block), STRATA_ERROR_STREAM_MISUSE);
    check_last_error(STRATA_ERROR_STREAM_MISUSE, "the per-thread default stream of another thread");
    assert_null(strstr(strata_last_error()->message, "register"));
    const unsigned char *seen = test_read(fixture, &work.block, reader); /* its work is known all the same */
    test_synchronize(reader);
    check_bytes(seen, 0x66, BYTES);
    test_calls calls;
    test_calls_begin(&calls);
    test_read(fixture, &work.block, CU_STREAM_PER_THREAD); /* another stream than the one that wrote */
    assert_int_equal(test_calls_of(&calls, "cuStreamGetId"), 2);
    test_free_on(fixture, &work.block, CU_STREAM_PER_THREAD);
}

/* ---- many short-lived streams ---- */

static uint64_t events_alive(const test_calls *since)
{
    return test_calls_of(since, "cuEventCreate") - test_calls_of(since, "cuEventDestroy");
}

static uint16_t timeline_number(CUstream stream)
{
    strata_device *device;
    strata_stream_ref ref;
    check_ok(strata_device_get(0, &device));
    check_ok(strata_stream_resolve(device, stream, &ref));
    return ref.timeline->number;
}

/* The stream is gone and its number another registered one's: the block is freed like any whose stream is gone. A pool
 * may keep numbers for itself. */
static void a_block_whose_streams_number_is_another_ones_is_freed_all_the_same(test_fixture *fixture)
{
    enum { TRIES = 400 };
    if (strncmp(fixture->stack, "pool", 4) == 0)
        return;
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    CUstream gone = make_stream(), others[TRIES];
    size_t count = 0;
    test_needs_truthful_queries();
    check_ok(strata_runtime_register_stream(fixture->runtime, gone));
    strata_block block = test_allocate(fixture, BYTES, gone);
    const uint16_t number = timeline_number(gone);
    test_write(fixture, &block, 0x11, gone);
    check_ok(strata_runtime_unregister_stream(fixture->runtime, gone));
    test_synchronize(gone);
    destroy_stream(gone);
    do {
        if (count % 50 == 0)
            let_streams_pass_by(fixture);
        others[count] = make_stream();
        check_ok(strata_runtime_register_stream(fixture->runtime, others[count]));
    } while (timeline_number(others[count++]) != number && count < TRIES);
    assert_true(timeline_number(others[count - 1]) == number);
    check_ok(strata_resource_deallocate(top, &block, STRATA_STREAM_GONE));
    while (count--) {
        check_ok(strata_runtime_unregister_stream(fixture->runtime, others[count]));
        destroy_stream(others[count]);
    }
}

typedef enum short_life {
    LIFE_UNKNOWN,
    LIFE_REGISTERED,
    LIFE_OF_FOREIGN_BLOCKS, /* unknown, and frees what was allocated on streams of both kinds and written here */
    LIVES,
} short_life;

static void use_and_free(test_fixture *fixture, CUstream alloc_stream, CUstream stream)
{
    strata_block block = test_allocate(fixture, 256, alloc_stream);
    test_write(fixture, &block, 0x11, stream);
    test_free_on(fixture, &block, stream);
}

static void use_and_destroy(test_fixture *fixture, short_life life, uint16_t *highest)
{
    CUstream stream = make_stream();
    const bool registered = life == LIFE_REGISTERED;
    if (registered)
        check_ok(strata_runtime_register_stream(fixture->runtime, stream));
    use_and_free(fixture, stream, stream);
    for (int alloc_registered = 0; alloc_registered < 2 && life == LIFE_OF_FOREIGN_BLOCKS; alloc_registered++) {
        CUstream alloc_stream = make_stream();
        if (alloc_registered)
            check_ok(strata_runtime_register_stream(fixture->runtime, alloc_stream));
        use_and_free(fixture, alloc_stream, stream);
        if (alloc_registered)
            check_ok(strata_runtime_unregister_stream(fixture->runtime, alloc_stream));
        test_synchronize(alloc_stream);
        destroy_stream(alloc_stream);
    }
    uint16_t number = timeline_number(stream);
    *highest = number > *highest ? number : *highest;
    if (registered)
        check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    test_synchronize(stream);
    destroy_stream(stream);
}

static void thousands_of_short_lived_streams_leave_few_timelines_and_events(test_fixture *fixture)
{
    enum { WARM = 300, STREAMS = 1200 }; /* for each of three lives */
    test_needs_truthful_queries();
    for (short_life life = 0; life < LIVES; life++) {
        uint16_t highest = 0;
        test_calls calls;
        for (int i = 0; i < WARM; i++)
            use_and_destroy(fixture, life, &highest);
        test_calls_begin(&calls);
        for (int i = 0; i < STREAMS; i++)
            use_and_destroy(fixture, life, &highest);
        assert_true(events_alive(&calls) < 100);
        assert_true(highest < 1000);
    }
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 60 };

typedef struct stream_user {
    test_fixture *fixture;
    strata_block shared;
    unsigned failures;
} stream_user;

/* A write is ordered after the uses that were finished before it was prepared. Threads that write one block take turns
 * from the one to the other, as they would with memory of any kind. */
static bool use_shared(stream_user *self, CUstream stream)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    strata_runtime *runtime = self->fixture->runtime;
    pthread_mutex_lock(&turn);
    bool used =
        strata_runtime_prepare_block_use(runtime, &self->shared, stream, STRATA_ACCESS_READ_WRITE) == STRATA_SUCCESS &&
        test_cu()->MemsetD8Async(self->shared.address, 1, 16, stream) == CUDA_SUCCESS &&
        strata_runtime_finish_block_use(runtime, &self->shared, stream, STRATA_ACCESS_READ_WRITE) == STRATA_SUCCESS;
    pthread_mutex_unlock(&turn);
    return used;
}

static void *make_and_destroy_streams(void *data)
{
    stream_user *self = data;
    test_make_current();
    for (int i = 0; i < ROUNDS; i++) {
        CUstream stream;
        bool good =
            test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS && use_shared(self, stream);
        good = good && strata_runtime_register_stream(self->fixture->runtime, stream) == STRATA_SUCCESS;
        good = good && use_shared(self, stream);
        good = good && strata_runtime_unregister_stream(self->fixture->runtime, stream) == STRATA_SUCCESS;
        good = good && use_shared(self, stream) && test_cu()->StreamDestroy(stream) == CUDA_SUCCESS;
        good = good && use_shared(self, CU_STREAM_PER_THREAD) && use_shared(self, NULL);
        self->failures += !good;
    }
    test_leave_thread();
    return NULL;
}

static void many_threads_make_register_and_destroy_streams_at_the_same_time(test_fixture *fixture)
{
    strata_block shared = test_allocate(fixture, BYTES, NULL);
    pthread_t threads[THREADS];
    stream_user users[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        users[i] = (stream_user){.fixture = fixture, .shared = shared};
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_destroy_streams, &users[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(users[i].failures, 0);
    check_ok(strata_runtime_deallocate(fixture->runtime, &shared));
}

typedef struct come_and_go {
    test_fixture *fixture;
    CUstream stream;
    _Atomic bool over;
    bool failed;
} come_and_go;

static void *register_and_unregister(void *data)
{
    come_and_go *self = data;
    while (!atomic_load(&self->over) && !self->failed)
        self->failed = strata_runtime_register_stream(self->fixture->runtime, self->stream) != STRATA_SUCCESS ||
                       strata_runtime_unregister_stream(self->fixture->runtime, self->stream) != STRATA_SUCCESS;
    test_leave_thread();
    return NULL;
}

/* What the stream has freed is asked about by another thread: both may be done at any time. */
static void what_a_stream_freed_is_reaped_while_it_is_registered_and_unregistered(test_fixture *fixture)
{
    if (strcmp(fixture->stack, "direct") == 0) /* its frees wait for the stream themselves */
        return;
    const size_t times = test_effort(2000, 200);
    come_and_go other = {.fixture = fixture, .stream = test_stream(fixture, TEST_STREAM_UNKNOWN)};
    pthread_t thread;
    strata_block block = test_allocate(fixture, BYTES, other.stream);
    test_stall *stall = test_stall_begin(other.stream);
    test_free_on(fixture, &block, other.stream);
    assert_int_equal(pthread_create(&thread, NULL, register_and_unregister, &other), 0);
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    bool reaped = true;
    for (size_t i = 0; i < times; i++) {
        size_t count;
        reaped = top->ops->reap(top, STRATA_REAP_FINISHED, &count) == STRATA_SUCCESS && reaped;
    }
    atomic_store(&other.over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    test_stall_end(stall);
    assert_true(reaped && !other.failed);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(the_pool_is_a_hard_limit_and_hands_out_distinct_streams),
        TEST_CASE(the_pool_holds_sixteen_streams_unless_told_otherwise),
        TEST_CASE(only_what_was_acquired_can_be_released_and_once),
        TEST_CASE(a_stream_of_the_pool_does_not_wait_for_the_default_stream),
        TEST_CASE(a_stream_that_was_given_back_keeps_its_history),
        TEST_CASE(a_failure_that_a_destroyed_stream_may_be_the_cause_of_says_so),
        TEST_CASE(a_stream_is_registered_once_and_unregistered_once),
        TEST_CASE(default_streams_cannot_be_registered),
        TEST_CASE(a_stream_that_was_used_before_it_was_registered_keeps_its_history),
        TEST_CASE(a_stream_can_be_used_after_it_was_unregistered),
        TEST_CASE(a_stream_that_is_registered_again_is_the_home_of_the_blocks_that_it_had),
        TEST_CASE(a_stream_that_is_being_captured_is_refused_and_asked_nothing_else),
        TEST_CASE(work_of_a_destroyed_stream_is_still_waited_for),
        TEST_CASE(a_block_is_freed_in_the_order_of_its_stream_after_that_was_unregistered_and_destroyed),
        TEST_CASE(a_block_whose_stream_is_still_known_cannot_be_freed_as_if_that_were_gone),
        TEST_CASE(a_block_from_an_unknown_stream_is_freed_on_a_named_one_only),
        TEST_CASE(a_destroyed_streams_handle_that_comes_back_inherits_nothing),
        TEST_CASE(a_later_stream_is_never_taken_for_the_one_that_a_block_was_allocated_on),
        TEST_CASE(the_per_thread_stream_works_in_its_thread),
        TEST_CASE(the_per_thread_stream_of_another_thread_cannot_be_meant),
        TEST_CASE(a_block_whose_streams_number_is_another_ones_is_freed_all_the_same),
        TEST_CASE(thousands_of_short_lived_streams_leave_few_timelines_and_events),
        TEST_CASE(many_threads_make_register_and_destroy_streams_at_the_same_time),
        TEST_CASE(what_a_stream_freed_is_reaped_while_it_is_registered_and_unregistered),
    };
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
