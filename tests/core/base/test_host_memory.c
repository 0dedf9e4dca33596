/* Host memory that runs out: the first, second, third, … allocation of a piece of work fails, alone or with all that
 * come after it, until the work needs no more. Each time the error says what it is, nothing is lost, and the library
 * goes on as if nothing had been. The linker puts the functions here in front of the library's own (--wrap). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/streams/stream_map.h"
#include "runtime/runtime.h"
#include "support/budget_accounts.h"
#include "support/captures.h"
#include "support/child.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

enum { MOST = 3000, READERS = 24, BLOCKS = 20, BYTES = 4096 };

/* ---- failing on purpose ---- */

static _Thread_local size_t countdown; /* how many allocations succeed before one fails, plus one; 0: all do */
static _Thread_local bool drought;     /* and all after that one fail too */
static _Thread_local size_t refused;

static bool refuse(void)
{
    if (!countdown || --countdown)
        return false;
    countdown = drought;
    refused++;
    return true;
}

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);
void *__real_strata_host_zalloc_aligned(size_t alignment, size_t bytes);
void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes);

void *__wrap_strata_host_zalloc(size_t bytes)
{
    return refuse() ? NULL : __real_strata_host_zalloc(bytes);
}

void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes)
{
    return refuse() ? NULL : __real_strata_host_zalloc_aligned(alignment, bytes);
}

static void begin_refusing(size_t which, bool from_then_on)
{
    refused = 0;
    drought = from_then_on;
    countdown = which;
}

/* Returns whether anything was refused. */
static bool end_refusing(void)
{
    countdown = 0;
    return refused > 0;
}

static void stop_refusing(void)
{
    end_refusing();
}

/* What a step may answer: success, or that there is no host memory if some was refused. Returns whether it succeeded.
 */
static bool step(strata_status status)
{
    if (status == STRATA_SUCCESS)
        return true;
    size_t kept = countdown;
    countdown = 0;
    check_status(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_not_equal(refused, 0);
    check_last_error(STRATA_ERROR_OUT_OF_HOST_MEMORY, "out of host memory");
    countdown = kept;
    return false;
}

/* Frees without refusals, whatever was going on. */
static void surely_free(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    size_t kept = countdown;
    countdown = 0;
    check_ok(strata_runtime_deallocate_on(fixture->runtime, block, stream));
    countdown = kept;
}

static void check_goes_on(test_fixture *fixture)
{
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    strata_usage usage = test_usage(fixture);
    assert_int_equal(usage.live_blocks, 0);
    assert_true(usage.bytes_outstanding == 0);
    fixture->seen_used = 0;
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_write(fixture, &block, 0x77, NULL);
    const unsigned char *seen = test_read(fixture, &block, NULL);
    test_synchronize(NULL);
    check_bytes(seen, 0x77, BYTES);
    test_free_on(fixture, &block, NULL);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
}

static void with_every_refusal(test_fixture *fixture, void (*work)(test_fixture *fixture))
{
    for (int from_then_on = 0; from_then_on < 2; from_then_on++) {
        for (size_t which = 1;; which++) {
            assert_true(which < MOST);
            begin_refusing(which, from_then_on);
            work(fixture);
            bool any = end_refusing();
            check_goes_on(fixture);
            if (!any)
                break;
        }
    }
}

/* ---- pieces of work ---- */

/* The fixture knows them, too: what could not be noted on one is covered by what it submits there later. */
static void make_streams(test_fixture *fixture, CUstream *streams, size_t count)
{
    for (size_t i = 0; i < count; i++)
        streams[i] = test_stream(fixture, TEST_STREAM_UNKNOWN);
}

static void destroy_streams(test_fixture *fixture, const CUstream *streams, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        test_synchronize(streams[i]);
        test_stream_close(fixture, streams[i]);
    }
}

static void build_and_end_a_runtime(test_fixture *fixture)
{
    strata_runtime *runtime = fixture->runtime;
    strata_runtime_config config = {.stack_text = fixture->stack};
    if (step(strata_runtime_create(&config, &runtime))) {
        while (!step(strata_runtime_destroy(runtime)))
            end_refusing();
    } else {
        assert_null(runtime);
    }
}

static void allocate_and_free(test_fixture *fixture)
{
    strata_block blocks[BLOCKS];
    CUstream streams[2];
    size_t count = 0;
    make_streams(fixture, streams, 2);
    while (count < BLOCKS) {
        CUstream stream = streams[count % 2];
        if (!step(strata_runtime_allocate(fixture->runtime, (size_t)BYTES << (count % 12), stream, &blocks[count]))) {
            assert_true(blocks[count].address == 0 && blocks[count].id.generation == 0);
            break;
        }
        count++;
    }
    assert_int_equal(test_usage(fixture).live_blocks, count);
    for (size_t i = 0; i < count; i++) {
        if (step(strata_runtime_deallocate_on(fixture->runtime, &blocks[i], streams[i % 2])))
            continue;
        assert_int_equal(strata_runtime_block_state(fixture->runtime, blocks[i].id), STRATA_BLOCK_LIVE);
        surely_free(fixture, &blocks[i], streams[i % 2]);
    }
    size_t trimmed;
    step(strata_runtime_reap_pending(fixture->runtime));
    step(strata_runtime_trim(fixture->runtime, 0, &trimmed));
    destroy_streams(fixture, streams, 2);
}

static void use_on(test_fixture *fixture, const strata_block *block, CUstream stream, strata_access access)
{
    if (step(strata_runtime_prepare_block_use(fixture->runtime, block, stream, access)))
        step(strata_runtime_finish_block_use(fixture->runtime, block, stream, access));
}

static void read_on_many_streams(test_fixture *fixture)
{
    CUstream streams[READERS];
    strata_block block;
    make_streams(fixture, streams, READERS);
    if (step(strata_runtime_allocate(fixture->runtime, BYTES, NULL, &block))) {
        for (size_t i = 0; i < READERS; i++)
            use_on(fixture, &block, streams[i], STRATA_ACCESS_READ);
        for (size_t i = 0; i < READERS; i++)
            step(strata_runtime_record_block_use(fixture->runtime, &block, streams[i], STRATA_ACCESS_READ));
        use_on(fixture, &block, streams[0], STRATA_ACCESS_WRITE);
        use_on(fixture, &block, streams[1], STRATA_ACCESS_READ_WRITE);
        if (!step(strata_runtime_deallocate(fixture->runtime, &block)))
            surely_free(fixture, &block, NULL);
    }
    destroy_streams(fixture, streams, READERS);
}

static void hold_many_uses_open(test_fixture *fixture)
{
    CUstream streams[READERS];
    strata_block block;
    bool prepared[READERS];
    make_streams(fixture, streams, READERS);
    if (step(strata_runtime_allocate(fixture->runtime, BYTES, NULL, &block))) {
        for (size_t i = 0; i < READERS; i++)
            prepared[i] = step(strata_runtime_prepare_block_use(fixture->runtime, &block, streams[i],
                                                                i % 3 ? STRATA_ACCESS_READ : STRATA_ACCESS_WRITE));
        for (size_t i = 0; i < READERS; i++)
            if (prepared[i])
                step(strata_runtime_finish_block_use(fixture->runtime, &block, streams[i],
                                                     i % 3 ? STRATA_ACCESS_READ : STRATA_ACCESS_WRITE));
        surely_free(fixture, &block, NULL);
    }
    destroy_streams(fixture, streams, READERS);
}

static void launch_with_many_blocks(test_fixture *fixture)
{
    strata_block blocks[BLOCKS];
    strata_launch launch;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    size_t count = 0;
    while (count < BLOCKS && step(strata_runtime_allocate(fixture->runtime, BYTES, NULL, &blocks[count])))
        count++;
    if (step(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT))) {
        bool all = true;
        for (size_t i = 0; i < count; i++)
            all &= step(strata_launch_use(&launch, &blocks[i], STRATA_ACCESS_WRITE));
        bool ready = step(strata_launch_preflight(&launch));
        assert_true(all || !ready);
        if (ready)
            step(strata_launch_commit(&launch));
        step(strata_launch_end(&launch));
    }
    for (size_t i = 0; i < count; i++)
        surely_free(fixture, &blocks[i], NULL);
    test_stream_close(fixture, stream);
}

static void know_and_forget_streams(test_fixture *fixture)
{
    CUstream streams[40], pooled[20];
    bool known[40];
    size_t count = 0;
    make_streams(fixture, streams, 40);
    for (size_t i = 0; i < 40; i++)
        known[i] = step(strata_runtime_register_stream(fixture->runtime, streams[i]));
    while (count < 20 && step(strata_runtime_stream_acquire(fixture->runtime, &pooled[count])))
        count++;
    if (count < 20)
        assert_null(pooled[count]);
    for (size_t i = 0; i < 40; i++) {
        if (!known[i] || step(strata_runtime_unregister_stream(fixture->runtime, streams[i])))
            continue;
        size_t kept = countdown;
        countdown = 0;
        check_ok(strata_runtime_unregister_stream(fixture->runtime, streams[i]));
        countdown = kept;
    }
    for (size_t i = 0; i < count; i++)
        check_ok(strata_runtime_stream_release(fixture->runtime, pooled[i]));
    destroy_streams(fixture, streams, 40);
}

/* ---- tests ---- */

static void building_and_ending_a_runtime(test_fixture *fixture)
{
    with_every_refusal(fixture, build_and_end_a_runtime);
}

static void allocating_and_freeing(test_fixture *fixture)
{
    with_every_refusal(fixture, allocate_and_free);
}

static void reading_on_many_streams(test_fixture *fixture)
{
    with_every_refusal(fixture, read_on_many_streams);
}

static void holding_many_uses_open(test_fixture *fixture)
{
    with_every_refusal(fixture, hold_many_uses_open);
}

static void launching_with_many_blocks(test_fixture *fixture)
{
    with_every_refusal(fixture, launch_with_many_blocks);
}

static void knowing_and_forgetting_streams(test_fixture *fixture)
{
    with_every_refusal(fixture, know_and_forget_streams);
}

static CUcontext current_context(void)
{
    CUcontext context;
    check_cu(test_cu()->CtxGetCurrent(&context));
    return context;
}

/* A runtime that has pooled, registered and waiting streams, and frees under way. */
static strata_runtime *used_runtime(test_fixture *fixture, CUstream own)
{
    strata_runtime *runtime;
    strata_block block;
    CUstream pooled[3];
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &runtime));
    check_ok(strata_runtime_register_stream(runtime, own));
    for (size_t i = 0; i < 3; i++)
        check_ok(strata_runtime_stream_acquire(runtime, &pooled[i]));
    check_ok(strata_runtime_allocate(runtime, BYTES, pooled[0], &block));
    for (size_t i = 1; i < 3; i++) {
        check_ok(strata_runtime_prepare_block_use(runtime, &block, pooled[i], STRATA_ACCESS_READ));
        check_cu(test_cu()->MemcpyDtoHAsync(fixture->seen + i * BYTES, block.address, BYTES, pooled[i]));
        check_ok(strata_runtime_finish_block_use(runtime, &block, pooled[i], STRATA_ACCESS_READ));
    }
    check_ok(strata_runtime_deallocate(runtime, &block));
    for (size_t i = 0; i < 3; i++)
        check_ok(strata_runtime_stream_release(runtime, pooled[i]));
    return runtime;
}

static void a_runtime_that_cannot_end_ends_at_the_next_try(test_fixture *fixture)
{
    CUstream own = test_stream(fixture, TEST_STREAM_UNKNOWN);
    /* Without any host memory at all a stream that a layer made for itself may stay; a sweep would count it. */
    for (int from_then_on = 0; from_then_on < 1 + !test_is_swept(); from_then_on++) {
        bool any = true;
        for (size_t which = 1; any; which++) {
            assert_true(which < MOST);
            strata_runtime *runtime = used_runtime(fixture, own);
            CUcontext before = current_context();
            check_cu(test_cu()->CtxSetCurrent(NULL));
            begin_refusing(which, from_then_on);
            bool ended = step(strata_runtime_destroy(runtime));
            any = end_refusing();
            assert_null(current_context());
            if (!ended)
                check_ok(strata_runtime_destroy(runtime));
            check_cu(test_cu()->CtxSetCurrent(before));
        }
    }
}

/* A block's entry has room for one stream's reads, and this is the second. */
static void a_use_that_cannot_be_noted_without_host_memory_is_waited_for(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), first = test_stream(fixture, TEST_STREAM_POOL);
    CUstream second = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_calls calls;
    check_ok(strata_runtime_record_block_use(fixture->runtime, &block, first, STRATA_ACCESS_READ));
    test_calls_begin(&calls);
    begin_refusing(1, true);
    strata_status status = strata_runtime_record_block_use(fixture->runtime, &block, second, STRATA_ACCESS_READ);
    assert_true(end_refusing());
    assert_int_equal(test_calls_of(&calls, "cuStreamSynchronize"), 1);
    assert_true(step(status) || test_is_swept()); /* where the wait fails, too, it is told */
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_goes_on(fixture);
}

/* Where what has to be remembered of a use has its place is seen to when it is prepared: what was submitted since
 * cannot be taken back, and is not waited for. */
static void uses_that_were_prepared_are_noted_without_host_memory(test_fixture *fixture)
{
    static const strata_access kinds[] = {STRATA_ACCESS_READ, STRATA_ACCESS_WRITE};
    CUstream streams[READERS];
    test_calls calls;
    for (size_t i = 0; i < READERS; i++)
        streams[i] = test_stream(fixture, TEST_STREAM_POOL);
    test_calls_begin(&calls);
    for (size_t way = 0; way < 4; way++) { /* all at a time, or one after the other */
        const size_t at_once = way < 2 ? READERS : 1;
        strata_block block = test_allocate(fixture, BYTES, test_stream(fixture, TEST_STREAM_POOL));
        for (size_t i = 0; i < READERS; i += at_once) {
            for (size_t each = i; each < i + at_once; each++)
                check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, streams[each], kinds[way % 2]));
            begin_refusing(1, true);
            for (size_t each = i; each < i + at_once; each++)
                check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, streams[each], kinds[way % 2]));
            end_refusing();
        }
        assert_int_equal(test_calls_of(&calls, "cuStreamSynchronize"), 0);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        test_calls_begin(&calls);
    }
    check_goes_on(fixture);
}

/* The stream's last write is noted as one that comes as late as the read: that covers both. */
static void a_read_on_the_stream_that_wrote_last_is_noted_without_host_memory(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_calls calls;
    use_on(fixture, &block, alloc_stream, STRATA_ACCESS_WRITE);
    use_on(fixture, &block, reader, STRATA_ACCESS_READ);
    test_calls_begin(&calls);
    begin_refusing(1, true);
    check_ok(strata_runtime_record_block_use(fixture->runtime, &block, alloc_stream, STRATA_ACCESS_READ));
    end_refusing();
    assert_int_equal(test_calls_of(&calls, "cuStreamSynchronize"), 0);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_goes_on(fixture);
}

/* Where the owner asks the driver nothing to free a block, there is nothing to fail either, and the memory is there for
 * the next one. */
static void free_without_host_memory(test_fixture *fixture, CUstream stream)
{
    strata_block block = test_allocate(fixture, BYTES, stream);
    const size_t reserved = test_usage(fixture).reserved_bytes;
    begin_refusing(1, true);
    strata_status status = strata_runtime_deallocate(fixture->runtime, &block);
    end_refusing();
    check_ok(status);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_FREED);
    strata_usage usage = test_usage(fixture);
    assert_true(usage.live_bytes == 0 && usage.reserved_free == reserved);
    strata_block again = test_allocate(fixture, reserved / 4, stream); /* still a small block */
    assert_true(test_usage(fixture).reserved_bytes == reserved);
    check_ok(strata_runtime_deallocate(fixture->runtime, &again));
}

/* The driver refuses the free too: the block is as it was, and found by its address. */
static void a_free_that_fails_without_host_memory_loses_nothing(test_fixture *fixture)
{
    if (test_owner_is(fixture, "pool")) {
        free_without_host_memory(fixture, test_stream(fixture, TEST_STREAM_REGISTERED));
        check_goes_on(fixture);
        return;
    }
    CUstream stream = test_stream(fixture, TEST_STREAM_REGISTERED);
    for (int neighbours = 0; neighbours < 2; neighbours++) {
        strata_block found, block = test_allocate(fixture, BYTES, stream), other = {0};
        if (neighbours)
            other = test_allocate(fixture, BYTES, stream);
        test_fault_begin(TEST_FAULT_FREE, 1, false, CUDA_ERROR_UNKNOWN);
        begin_refusing(1, true);
        strata_status status = strata_runtime_deallocate(fixture->runtime, &block);
        end_refusing();
        assert_int_equal(test_fault_end(), 1);
        assert_int_equal(status, STRATA_ERROR_DRIVER);
        assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
        check_ok(strata_runtime_find(fixture->runtime, block.address + 1, &found));
        assert_memory_equal(&found.id, &block.id, sizeof found.id);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        check_ok(strata_runtime_deallocate(fixture->runtime, &other));
    }
    check_goes_on(fixture);
}

/* Such a free is kept until the capture has ended. */
static void a_free_inside_a_capture_without_host_memory_is_refused_and_the_block_lives(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, test_stream(fixture, TEST_STREAM_POOL));
    const size_t before = test_usage(fixture).live_blocks;
    test_begin_capture(stream);
    begin_refusing(1, true);
    strata_status status = strata_runtime_deallocate_on(fixture->runtime, &block, stream);
    const bool any = end_refusing();
    assert_int_equal(test_end_capture(stream), 0);
    assert_true(any);
    assert_int_equal(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
    assert_int_equal(test_usage(fixture).live_blocks, before);
    assert_int_equal(test_usage(fixture).retired_bytes, 0);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_goes_on(fixture);
}

typedef struct thread_try {
    test_fixture *fixture;
    size_t which;
    bool any, honest;
} thread_try;

static void *first_call_of_a_thread(void *data)
{
    thread_try *try = data;
    strata_block block = {.address = 1};
    test_make_current();
    begin_refusing(try->which, false);
    strata_status status = strata_runtime_allocate(try->fixture->runtime, BYTES, CU_STREAM_PER_THREAD, &block);
    try->any = end_refusing();
    try->honest =
        status == STRATA_SUCCESS || (try->any && status == STRATA_ERROR_OUT_OF_HOST_MEMORY && block.address == 0 &&
                                     strata_last_error()->status == STRATA_ERROR_OUT_OF_HOST_MEMORY);
    if (status == STRATA_SUCCESS)
        try->honest &= strata_runtime_deallocate_on(try->fixture->runtime, &block, CU_STREAM_PER_THREAD) == 0;
    try->honest &= strata_runtime_allocate(try->fixture->runtime, BYTES, CU_STREAM_PER_THREAD, &block) == 0;
    try->honest &= strata_runtime_deallocate_on(try->fixture->runtime, &block, CU_STREAM_PER_THREAD) == 0;
    return NULL;
}

static void a_thread_whose_own_state_cannot_be_had_is_told_so(test_fixture *fixture)
{
    thread_try try = {.fixture = fixture, .any = true};
    while (try.any) {
        pthread_t thread;
        try.which++;
        assert_true(try.which < MOST);
        assert_int_equal(pthread_create(&thread, NULL, first_call_of_a_thread, &try), 0);
        pthread_join(thread, NULL);
        assert_true(try.honest);
    }
    check_goes_on(fixture);
}

/* What is tried in silence. Whichever of its thread's first allocations is refused, the thread's errors are heard
 * afterwards. */
static void *first_silence_of_a_thread(void *data)
{
    thread_try *try = data;
    strata_block block = {0}, wrong;
    strata_runtime *runtime = try->fixture->runtime;
    test_make_current();
    begin_refusing(try->which, false);
    strata_error_suppress_begin();
    strata_fail(STRATA_ERROR_BUSY, "said in silence"); /* asks for the thread's state again */
    strata_error_suppress_end(false);
    try->any = end_refusing();
    try->honest = strata_runtime_allocate(runtime, BYTES, CU_STREAM_PER_THREAD, &block) == STRATA_SUCCESS;
    wrong = block;
    wrong.device++;
    try->honest &= strata_runtime_deallocate_on(runtime, &wrong, CU_STREAM_PER_THREAD) == STRATA_ERROR_WRONG_DEVICE &&
                   strata_last_error()->status == STRATA_ERROR_WRONG_DEVICE;
    try->honest &= strata_runtime_deallocate_on(runtime, &block, CU_STREAM_PER_THREAD) == STRATA_SUCCESS;
    return NULL;
}

static void a_thread_that_could_not_be_hushed_is_heard_afterwards(test_fixture *fixture)
{
    thread_try try = {.fixture = fixture, .any = true};
    while (try.any) {
        pthread_t thread;
        try.which++;
        assert_true(try.which < MOST);
        assert_int_equal(pthread_create(&thread, NULL, first_silence_of_a_thread, &try), 0);
        pthread_join(thread, NULL);
        assert_true(try.honest);
    }
    check_goes_on(fixture);
}

static void a_tag_that_could_not_be_interned_is_interned_later(test_fixture *fixture)
{
    (void)fixture;
    static size_t number;
    bool any = true;
    for (size_t i = 0; i < 600; i++) {
        char name[32];
        snprintf(name, sizeof name, "tag %zu", number++);
        any = true;
        for (size_t which = 1; any; which++) {
            strata_tag tag = 1;
            begin_refusing(which, false);
            bool interned = step(strata_tag_intern(name, &tag));
            any = end_refusing() && !interned;
            if (!interned)
                assert_int_equal(tag, 0);
            else
                assert_string_equal(strata_tag_name(tag), name);
        }
    }
}

/* ---- a pool ---- */

/* The free finds no place for its own point beside those of two uses: then it waits itself. The copy is known to the
 * library by the free alone. */
static void memory_whose_free_could_not_be_noted_is_free_when_that_is_over(test_fixture *fixture)
{
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    CUstream last = test_stream(fixture, TEST_STREAM_POOL), next = test_stream(fixture, TEST_STREAM_POOL);
    bool any = true;
    for (size_t which = 1; any; which++) {
        uint64_t reserved, free_bytes;
        strata_block block = test_allocate(fixture, BYTES, alloc_stream), rest, again;
        test_write(fixture, &block, 0x11, alloc_stream);
        test_read(fixture, &block, reader);
        check_ok(strata_control(stack, "pool.reserved", &reserved, NULL));
        check_ok(strata_control(stack, "pool.limit", NULL, &reserved));
        check_ok(strata_control(stack, "pool.free.largest", &free_bytes, NULL));
        check_ok(strata_runtime_allocate(fixture->runtime, free_bytes, next, &rest));
        test_synchronize(alloc_stream);
        test_synchronize(reader);
        const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, last);
        begin_refusing(which, false);
        const strata_status status = strata_runtime_deallocate_on(fixture->runtime, &block, last);
        any = end_refusing();
        check_ok(status);
        check_ok(strata_runtime_allocate(fixture->runtime, BYTES, next, &again));
        assert_true(again.address == block.address);
        test_write(fixture, &again, 0x22, next);
        check_cu(test_cu()->CtxSynchronize());
        check_bytes(seen, 0x11, BYTES);
        check_ok(strata_control(stack, "pool.limit", NULL, &(uint64_t){0}));
        test_free_on(fixture, &again, next);
        test_free_on(fixture, &rest, next);
        check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
        fixture->seen_used = 0;
    }
}

/* ---- budgets ---- */

static strata_runtime *make_budget(const char *text, strata_budget_account **base)
{
    strata_runtime *runtime;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    *base = strata_budget_base(strata_stack_top(strata_runtime_stack(runtime)));
    return runtime;
}

static size_t in_use(strata_budget_account *account)
{
    strata_budget_usage usage;
    check_ok(strata_budget_account_usage(account, &usage));
    return usage.in_use;
}

static void a_thread_without_a_quota_slot_is_charged_too(test_fixture *fixture)
{
    bool any = true;
    (void)fixture;
    for (size_t which = 1; any; which++) {
        strata_budget_account *base;
        strata_block block, all;
        strata_runtime *runtime = make_budget("budget(limit=1MiB, wait=none), null", &base);
        begin_refusing(which, false);
        bool made = step(strata_runtime_allocate(runtime, BYTES, NULL, &block));
        any = end_refusing();
        check_no_flight(base);
        assert_int_equal(in_use(base), made ? BYTES : 0);
        check_status(strata_runtime_allocate(runtime, (1 << 20) + 1 - (made ? BYTES : 0), NULL, &all),
                     STRATA_ERROR_OUT_OF_BUDGET);
        if (made)
            check_ok(strata_runtime_deallocate(runtime, &block));
        check_ok(strata_runtime_allocate(runtime, 1 << 20, NULL, &all));
        check_ok(strata_runtime_deallocate(runtime, &all));
        assert_int_equal(in_use(base), 0);
        check_ok(strata_runtime_destroy(runtime));
    }
}

/* A promise is not half made, and a thread is in the account or where it was. */
static void accounts_are_opened_and_entered_or_not(test_fixture *fixture)
{
    bool any = true;
    (void)fixture;
    for (size_t which = 1; any; which++) {
        strata_budget_account *base, *account = NULL, *promise = NULL, *before;
        strata_block block;
        strata_runtime *runtime = make_budget("budget(limit=1MiB, wait=none), null", &base);
        begin_refusing(which, false);
        bool opened = step(strata_budget_account_open(base, NULL, &account));
        bool promised = step(strata_budget_reserve(base, 3 * BYTES, "promise", &promise));
        bool entered = promised && step(strata_budget_enter(promise, NULL));
        any = end_refusing();
        assert_true(opened == (account != NULL) && promised == (promise != NULL));
        check_no_flight(base);
        assert_int_equal(in_use(base), promised ? 3 * BYTES : 0);
        check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
        assert_int_equal(in_use(entered ? promise : base), entered || !promised ? BYTES : 4 * BYTES);
        check_ok(strata_budget_enter(base, &before));
        assert_ptr_equal(before, entered ? promise : base);
        check_ok(strata_runtime_deallocate(runtime, &block));
        check_ok(strata_budget_account_close(promise));
        check_ok(strata_budget_account_close(account));
        assert_int_equal(in_use(base), 0);
        check_ok(strata_runtime_destroy(runtime));
    }
}

static void look(const strata_shared_budget *shared, void *data)
{
    size_t *processes = data;
    if (shared->problem)
        assert_non_null(strstr(shared->problem, "out of host memory"));
    *processes = shared->process_count;
}

static void a_shared_budget_that_is_not_made_has_no_slot(test_fixture *fixture)
{
    char directory[] = "/tmp/strata-memory-XXXXXX", command[64];
    const char *before = getenv("STRATA_SHARED_DIR");
    (void)fixture;
    assert_non_null(mkdtemp(directory));
    char *kept = before ? strdup(before) : NULL;
    setenv("STRATA_SHARED_DIR", directory, 1);
    bool any = true;
    for (size_t which = 1; any; which++) {
        strata_stack *stack = NULL;
        size_t processes = 0;
        begin_refusing(which, false);
        bool made = step(strata_stack_create("budget(limit=1GiB, shared=memory), null", 0, &stack));
        any = end_refusing();
        check_ok(strata_shared_budget_visit(look, &processes));
        assert_int_equal(processes, made);
        assert_true(made == (stack != NULL));
        if (made)
            check_ok(strata_stack_destroy(stack));
        check_ok(strata_shared_budget_visit(look, &processes));
        assert_int_equal(processes, 0);
    }
    any = true;
    for (size_t which = 1; any; which++) {
        size_t processes = 0;
        begin_refusing(which, false);
        step(strata_shared_budget_visit(look, &processes));
        any = end_refusing();
    }
    if (kept)
        setenv("STRATA_SHARED_DIR", kept, 1);
    else
        unsetenv("STRATA_SHARED_DIR");
    free(kept);
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    assert_int_equal(system(command), 0);
}

/* ---- a process's first use ---- */

static void first_use(void)
{
    const char *text = getenv("STRATA_TEST_REFUSED");
    strata_runtime *runtime;
    strata_block block;
    begin_refusing((size_t)atoi(text ? text : "1"), false);
    strata_status status = strata_runtime_get(0, &runtime);
    bool any = end_refusing();
    if (status == STRATA_SUCCESS && !any)
        exit(2);
    child_check(status == STRATA_SUCCESS || (status == STRATA_ERROR_OUT_OF_HOST_MEMORY && !runtime));
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_ok(strata_runtime_reap_pending(runtime));
    child_ok(strata_runtime_trim(runtime, 0, NULL));
}

static void a_first_use_without_host_memory_leaves_nothing_in_the_way_of_the_second(void **state)
{
    (void)state;
    const int step = test_on_simulated_driver() ? 1 : 7; /* libcuda takes a second to start */
    for (int which = 1;; which += step) {
        char refusal[48];
        assert_true(which < 500);
        snprintf(refusal, sizeof refusal, "STRATA_TEST_REFUSED=%d", which);
        const char *const changes[] = {refusal, NULL};
        if (test_child_status("first_use", changes) == 2)
            break;
    }
}

/* ---- a stream that ceases to be known ---- */

/* In a process without unknown streams, so that their map has to be made, too. */
static void unregister(void)
{
    strata_runtime *runtime;
    strata_stream_ref ref;
    CUcontext context;
    CUstream stream;
    child_ok(strata_runtime_create(NULL, &runtime));
    child_check(test_cu()->DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(test_cu()->CtxSetCurrent(context) == CUDA_SUCCESS);
    child_check(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_ok(strata_runtime_register_stream(runtime, stream));
    child_ok(strata_stream_resolve(runtime->device, stream, &ref));
    strata_timeline *timeline = ref.timeline;
    bool any = true;
    size_t failures = 0;
    for (size_t which = 1; any; which++) {
        begin_refusing(which, false);
        strata_status status = strata_runtime_unregister_stream(runtime, stream);
        any = end_refusing();
        const bool done = status == STRATA_SUCCESS; /* also where the stream could be waited for instead of marked */
        child_check(done || (any && status == STRATA_ERROR_OUT_OF_HOST_MEMORY));
        child_ok(strata_stream_resolve(runtime->device, stream, &ref));
        child_check(ref.known == !done && ref.timeline == timeline);
        failures += !done;
        if (done && any)
            child_ok(strata_runtime_register_stream(runtime, stream));
    }
    child_check(failures >= 3); /* an entry, the map, and its buckets */
    child_check(test_cu()->StreamDestroy(stream) == CUDA_SUCCESS);
    child_ok(strata_runtime_destroy(runtime));
}

static void a_stream_that_cannot_be_unregistered_for_want_of_host_memory_stays_known(void **state)
{
    (void)state;
    test_child_run("unregister", NULL);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(first_use), TEST_SCENARIO(unregister)};
    setenv("STRATA_DRIVER", "auto", 0);
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_open_driver();
    enum { LAYER_CASES = 2 }; /* of these the first, which are about layers */
    static const test_case cases[] = {
        TEST_CASE(building_and_ending_a_runtime),
        TEST_CASE(allocating_and_freeing),
        TEST_CASE(reading_on_many_streams),
        TEST_CASE(holding_many_uses_open),
        TEST_CASE(launching_with_many_blocks),
        TEST_CASE(knowing_and_forgetting_streams),
        TEST_CASE(a_runtime_that_cannot_end_ends_at_the_next_try),
        TEST_CASE(a_use_that_cannot_be_noted_without_host_memory_is_waited_for),
        TEST_CASE(uses_that_were_prepared_are_noted_without_host_memory),
        TEST_CASE(a_read_on_the_stream_that_wrote_last_is_noted_without_host_memory),
        TEST_CASE(a_free_that_fails_without_host_memory_loses_nothing),
        TEST_CASE(a_free_inside_a_capture_without_host_memory_is_refused_and_the_block_lives),
        TEST_CASE(a_thread_whose_own_state_cannot_be_had_is_told_so),
        TEST_CASE(a_thread_that_could_not_be_hushed_is_heard_afterwards),
        TEST_CASE(a_tag_that_could_not_be_interned_is_interned_later),
    };
    static const test_case budget_cases[] = {
        TEST_CASE(a_thread_without_a_quota_slot_is_charged_too),
        TEST_CASE(accounts_are_opened_and_entered_or_not),
        TEST_CASE(a_shared_budget_that_is_not_made_has_no_slot),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_use_without_host_memory_leaves_nothing_in_the_way_of_the_second),
        cmocka_unit_test(a_stream_that_cannot_be_unregistered_for_want_of_host_memory_stays_known),
    };
    test_before_clearing = stop_refusing;
    int failed = test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
    static const char *const recorded[] = {"logging(format=memory, memory=16), async"};
    failed += test_run_on(recorded, 1, cases, LAYER_CASES);
    if (test_is_swept())
        return failed;
    static const char *const owner[] = {"async"};
    failed += test_run_on(owner, 1, budget_cases, sizeof budget_cases / sizeof budget_cases[0]);
    static const test_case pool_cases[] = {TEST_CASE(memory_whose_free_could_not_be_noted_is_free_when_that_is_over)};
    static const char *const pool[] = {"pool"};
    failed += test_run_on(pool, 1, pool_cases, 1);
    static const char *const layers[] = {"aligned(alignment=4KiB), failure_callback, fault, prefetch, managed",
                                         "pinned",
                                         "budget(limit=1GiB), statistics(stacks=on), async",
                                         "budget(limit=1GiB, soft=512MiB), guard, nvtx, direct",
                                         "guard(kernel=off, stacks=off), async",
                                         "guard(sample=1, sample_seed=1), async",
                                         "binning(min=4KiB, max=1MiB, chunk=256KiB), async",
                                         "budget(limit=1GiB), fixed(bytes=8KiB), direct"};
#ifdef __SANITIZE_THREAD__ /* takes a minute for those with a guard, all on one thread */
    enum { LAYERS = 3 };
#else
    enum { LAYERS = sizeof layers / sizeof layers[0] };
#endif
    failed += test_run_on(layers, LAYERS, cases, LAYER_CASES);
    strata_set_mode(STRATA_MODE_SANITIZER);
    static const char *const pooled[] = {"statistics, async"}; /* built over direct */
    failed += test_run_on(pooled, 1, cases, 1);
    strata_set_mode(STRATA_MODE_NORMAL);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
