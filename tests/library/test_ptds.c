/* A program that is built with per-thread default streams: stream 0 is the calling thread's own in every call. */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include <pthread.h>
#include <string.h>

#include "support/captures.h"
#include "support/fixture.h"

enum { BYTES = 4096 };

static void an_allocation_on_stream_0_is_on_the_threads_own_stream(test_fixture *fixture)
{
    strata_block block;
    check_ok(strata_runtime_allocate(fixture->runtime, BYTES, 0, &block));
    assert_ptr_equal(block.stream, CU_STREAM_PER_THREAD);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    strata_request request = {.bytes = BYTES};
    check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &block));
    assert_ptr_equal(block.stream, CU_STREAM_PER_THREAD);
    assert_null(request.stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(strata_runtime_allocate(fixture->runtime, BYTES, CU_STREAM_LEGACY, &block));
    assert_ptr_equal(block.stream, CU_STREAM_LEGACY);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void calls_through_a_stack_mean_the_same(test_fixture *fixture)
{
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    strata_request request = {.bytes = BYTES};
    strata_block block;
    test_calls calls;
    check_ok(strata_resource_allocate(top, &request, &block));
    assert_ptr_equal(block.stream, CU_STREAM_PER_THREAD);
    test_calls_begin(&calls);
    check_ok(strata_resource_prepare_use(top, &block, 0, STRATA_ACCESS_READ));
    assert_int_not_equal(test_calls_of(&calls, "cuStreamGetId"), 0);
    test_calls_begin(&calls);
    check_ok(strata_resource_finish_use(top, &block, 0, STRATA_ACCESS_READ));
    assert_int_not_equal(test_calls_of(&calls, "cuStreamGetId"), 0);
    test_calls_begin(&calls);
    check_ok(strata_resource_deallocate(top, &block, 0));
    assert_int_not_equal(test_calls_of(&calls, "cuStreamGetId"), 0);
}

/* Of the case below; what it leaves when it fails is cleared away. */
static strata_ref *ref;
static strata_last_write write;
static strata_fence *fence;
static strata_scalar *scalar;

static strata_status release_ref(void)
{
    strata_ref *last = ref;
    ref = NULL;
    return strata_ref_release(last);
}

static strata_status destroy_fence(void)
{
    strata_fence *last = fence;
    fence = NULL;
    return strata_fence_destroy(last);
}

static strata_status destroy_scalar(void)
{
    strata_scalar *last = scalar;
    scalar = NULL;
    return strata_scalar_destroy(last);
}

static void clear_away(void)
{
    (void)destroy_scalar();
    strata_last_write_release(&write);
    if (ref)
        (void)release_ref();
    if (fence)
        (void)destroy_fence();
}

/* The legacy stream is known and nothing is asked of it; the thread's own is identified at each use. */
static void every_call_on_stream_0_looks_at_the_threads_own_stream(test_fixture *fixture)
{
    strata_runtime *runtime = fixture->runtime;
    strata_block block;
    strata_launch launch;
    test_calls calls;
#define LOOKS(call)                                                      \
    do {                                                                 \
        test_calls_begin(&calls);                                        \
        check_ok(call);                                                  \
        assert_int_not_equal(test_calls_of(&calls, "cuStreamGetId"), 0); \
    } while (0)
    LOOKS(strata_runtime_allocate(runtime, BYTES, 0, &block));
    LOOKS(strata_runtime_prepare_first_use(runtime, &block, 0, STRATA_ACCESS_WRITE));
    LOOKS(strata_runtime_finish_first_use(runtime, &block, 0, STRATA_ACCESS_WRITE));
    LOOKS(strata_runtime_prepare_block_use(runtime, &block, 0, STRATA_ACCESS_READ));
    LOOKS(strata_runtime_finish_block_use(runtime, &block, 0, STRATA_ACCESS_READ));
    LOOKS(strata_runtime_record_block_use(runtime, &block, 0, STRATA_ACCESS_WRITE));
    LOOKS(strata_runtime_use_until_free(runtime, &block, 0));
    check_ok(strata_launch_begin(&launch, runtime, 0, STRATA_LAUNCH_STRICT));
    assert_ptr_equal(launch.stream, CU_STREAM_PER_THREAD);
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_READ));
    LOOKS(strata_launch_preflight(&launch));
    LOOKS(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    LOOKS(strata_runtime_deallocate_on(runtime, &block, 0));
    LOOKS(strata_runtime_allocate(runtime, BYTES, 0, &block));
    LOOKS(strata_runtime_deallocate_address(runtime, block.address, 0));
    LOOKS(strata_ref_allocate(runtime, STRATA_ELEMENT_U8, BYTES, false, 0, &ref));
    LOOKS(strata_ref_record_write(ref, 0));
    check_ok(strata_ref_last_write_stream(ref, &write));
    assert_int_equal(write.kind, STRATA_LAST_WRITE_POINT);
    LOOKS(strata_last_write_wait(runtime, &write, 0));
    strata_last_write_release(&write);
    check_ok(release_ref());
    check_ok(strata_fence_create(runtime, &fence));
    LOOKS(strata_fence_record(fence, 0));
    check_ok(destroy_fence());
    LOOKS(strata_scalar_create(runtime, STRATA_ELEMENT_U8, NULL, 0, &scalar));
    LOOKS(strata_scalar_set(scalar, "", 0));
    check_ok(destroy_scalar());
#undef LOOKS
    check_ok(strata_runtime_allocate(runtime, BYTES, CU_STREAM_LEGACY, &block));
    test_calls_begin(&calls);
    check_ok(strata_runtime_prepare_block_use(runtime, &block, CU_STREAM_LEGACY, STRATA_ACCESS_READ));
    check_ok(strata_runtime_finish_block_use(runtime, &block, CU_STREAM_LEGACY, STRATA_ACCESS_READ));
    assert_int_equal(test_calls_of(&calls, "cuStreamGetId"), 0);
    check_ok(strata_runtime_deallocate_on(runtime, &block, CU_STREAM_LEGACY));
}

static void waiting_for_stream_0_is_waiting_for_the_threads_own(test_fixture *fixture)
{
    strata_block block;
    test_calls calls;
    check_ok(strata_runtime_allocate(fixture->runtime, BYTES, 0, &block));
    test_write(fixture, &block, 0x44, CU_STREAM_PER_THREAD);
    const unsigned char *seen = test_read(fixture, &block, CU_STREAM_PER_THREAD);
    test_calls_begin(&calls);
    check_ok(strata_runtime_stream_synchronize(fixture->runtime, 0));
    assert_int_not_equal(test_calls_of(&calls, "cuStreamGetId"), 0);
    check_bytes(seen, 0x44, BYTES);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, 0));
}

static void captures_that_ended_on_stream_0_are_those_of_the_threads_own(test_fixture *fixture)
{
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    strata_block block;
    check_ok(strata_runtime_allocate(fixture->runtime, BYTES, 0, &block));
    test_begin_capture(CU_STREAM_PER_THREAD);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, 0));
    test_end_capture(CU_STREAM_PER_THREAD);
    check_ok(strata_stack_captures_ended(stack, 0));
    check_ok(strata_runtime_reap_pending(fixture->runtime)); /* nothing of it is left */
}

typedef struct passage {
    test_fixture *fixture;
    strata_block block;
    unsigned char value;
    bool fine;
} passage;

/* Writes the block on the thread's own stream, without waiting; but driver 580 does not come back from the end of a
 * thread whose own stream has work pending (docs/measurements.md), so there the stream is waited for last of all. */
static void *write_on_own_stream(void *data)
{
    passage *one = data;
    strata_runtime *runtime = one->fixture->runtime;
    test_make_current();
    one->fine = strata_runtime_prepare_block_use(runtime, &one->block, 0, STRATA_ACCESS_WRITE) == STRATA_SUCCESS &&
                test_cu()->MemsetD8Async(one->block.address, one->value, BYTES, CU_STREAM_PER_THREAD) == CUDA_SUCCESS &&
                strata_runtime_finish_block_use(runtime, &one->block, 0, STRATA_ACCESS_WRITE) == STRATA_SUCCESS;
    if (!test_on_simulated_driver())
        test_synchronize(CU_STREAM_PER_THREAD);
    return NULL;
}

static void run_thread(void *(*body)(void *), void *data)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, data), 0);
    pthread_join(thread, NULL);
}

static void stream_0_of_one_thread_comes_after_stream_0_of_another(test_fixture *fixture)
{
    passage one = {.fixture = fixture};
    check_ok(strata_runtime_allocate(fixture->runtime, BYTES, 0, &one.block));
    for (unsigned round = 1; round < 60; round++) {
        one.value = (unsigned char)round;
        run_thread(write_on_own_stream, &one);
        assert_true(one.fine);
        fixture->seen_used = 0;
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &one.block, 0, STRATA_ACCESS_READ));
        const unsigned char *seen = test_copy_back(fixture, one.block.address, BYTES, CU_STREAM_PER_THREAD);
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &one.block, 0, STRATA_ACCESS_READ));
        test_synchronize(CU_STREAM_PER_THREAD);
        check_bytes(seen, one.value, BYTES);
    }
    check_ok(strata_runtime_deallocate(fixture->runtime, &one.block));
}

static void *free_on_alloc_stream(void *data)
{
    passage *one = data;
    test_make_current();
    one->fine = strata_runtime_deallocate(one->fixture->runtime, &one->block) == STRATA_ERROR_STREAM_MISUSE &&
                strata_runtime_block_state(one->fixture->runtime, one->block.id) == STRATA_BLOCK_LIVE;
    return NULL;
}

static void *free_on_own_stream(void *data)
{
    passage *one = data;
    test_make_current();
    one->fine = strata_runtime_deallocate_on(one->fixture->runtime, &one->block, 0) == STRATA_SUCCESS;
    return NULL;
}

static void only_the_allocating_thread_can_name_the_stream_of_its_block(test_fixture *fixture)
{
    passage one = {.fixture = fixture};
    check_ok(strata_runtime_allocate(fixture->runtime, BYTES, 0, &one.block));
    run_thread(free_on_alloc_stream, &one);
    assert_true(one.fine);
    run_thread(free_on_own_stream, &one);
    assert_true(one.fine);
    check_status(strata_runtime_deallocate(fixture->runtime, &one.block), STRATA_ERROR_DOUBLE_FREE);
}

int main(void)
{
    test_before_clearing = clear_away;
    test_open_driver();
    static const test_case cases[] = {
        TEST_CASE(an_allocation_on_stream_0_is_on_the_threads_own_stream),
        TEST_CASE(calls_through_a_stack_mean_the_same),
        TEST_CASE(every_call_on_stream_0_looks_at_the_threads_own_stream),
        TEST_CASE(stream_0_of_one_thread_comes_after_stream_0_of_another),
        TEST_CASE(only_the_allocating_thread_can_name_the_stream_of_its_block),
        TEST_CASE(waiting_for_stream_0_is_waiting_for_the_threads_own),
        TEST_CASE(captures_that_ended_on_stream_0_are_those_of_the_threads_own),
    };
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
