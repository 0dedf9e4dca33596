/* References whose runtime ends, or whose device's context is reset, before them. */
#include "support/child.h"
#include "support/faults.h"
#include "support/stall.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strata/dlpack_types.h>
#include <string.h>

enum { LENGTH = 1024, BYTES = 4 * LENGTH };

static const char *const stacks[] = {"async", "direct", "pool", "pool, async", "budget(limit=1GiB), statistics, pool"};

enum { STACKS = sizeof stacks / sizeof stacks[0] };

static strata_runtime *make_runtime(const char *stack)
{
    strata_runtime *runtime;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stack}, &runtime));
    return runtime;
}

static strata_ref *make(strata_runtime *runtime, CUstream stream)
{
    strata_ref *ref;
    check_ok(strata_ref_allocate(runtime, STRATA_ELEMENT_F32, LENGTH, false, stream, &ref));
    return ref;
}

static void check_dropped(const strata_ref *ref)
{
    strata_ref_memory memory;
    check_status(strata_ref_access(ref, &memory), STRATA_ERROR_STALE);
    assert_int_equal(memory.stale, STRATA_STALE_STATE_DROPPED);
    assert_int_equal(strata_ref_device_id(ref), STRATA_DEVICE_NONE);
}

static void the_memory_of_an_abandoned_runtime_goes_with_the_last_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < STACKS; i++) {
        size_t before, during, after;
        check_cu(strata_cu.MemGetInfo(&before, &(size_t){0}));
        strata_runtime *runtime = make_runtime(stacks[i]);
        strata_ref *first = make(runtime, NULL), *second = make(runtime, NULL), *view;
        check_ok(strata_ref_view(second, 4, 1, STRATA_ELEMENT_F32, &view));
        check_status(strata_runtime_destroy(runtime), STRATA_ERROR_BUSY);
        check_ok(strata_runtime_abandon(runtime));
        check_dropped(first);
        check_dropped(view);
        check_ok(strata_ref_release(second));
        check_ok(strata_ref_release(first));
        check_dropped(view);
        check_cu(strata_cu.MemGetInfo(&during, &(size_t){0}));
        assert_true(during < before);
        check_ok(strata_ref_release(view));
        check_cu(strata_cu.MemGetInfo(&after, &(size_t){0}));
        assert_int_equal(after, before);
    }
}

static void a_runtime_without_references_is_destroyed_at_once(void **state)
{
    (void)state;
    strata_runtime *runtime = make_runtime("pool");
    check_ok(strata_ref_release(make(runtime, NULL)));
    check_ok(strata_runtime_abandon(runtime));
    check_ok(strata_runtime_abandon(NULL));
}

static void a_runtime_with_other_blocks_or_acquired_streams_is_not_abandoned(void **state)
{
    (void)state;
    strata_runtime *runtime = make_runtime("pool"), *of_process;
    strata_ref *ref = make(runtime, NULL);
    strata_block block;
    strata_ref_memory memory;
    CUstream stream;
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    check_status(strata_runtime_abandon(runtime), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "1 live block");
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    check_status(strata_runtime_abandon(runtime), STRATA_ERROR_BUSY);
    check_ok(strata_ref_access(ref, &memory)); /* without effect */
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_ok(strata_runtime_abandon(runtime));
    check_ok(strata_ref_release(ref));
    check_ok(strata_runtime_get(0, &of_process));
    check_status(strata_runtime_abandon(of_process), STRATA_ERROR_INVALID_VALUE);
}

/* The stream is the program's again, and its work is waited for. */
static void memory_of_an_abandoned_runtime_is_freed_after_work_of_a_stream_that_is_gone(void **state)
{
    (void)state;
    strata_runtime *runtime = make_runtime("async");
    CUstream stream;
    check_cu(strata_cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_ok(strata_runtime_register_stream(runtime, stream));
    strata_ref *ref = make(runtime, stream);
    strata_ref_memory memory;
    check_ok(strata_ref_access(ref, &memory));
    check_cu(strata_cu.MemsetD8Async(memory.address, 1, BYTES, stream));
    check_ok(strata_ref_record_write(ref, stream));
    check_ok(strata_runtime_abandon(runtime));
    check_cu(strata_cu.StreamDestroy(stream));
    check_ok(strata_ref_release(ref));
}

static CUresult CUDAAPI refuse_to_synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The second event, which covers frees in flight, is refused, and so is the wait for the stream: the release that comes
 * then frees nothing. */
static void release_after_refused_events(strata_runtime *runtime)
{
    CUstream stream;
    check_cu(strata_cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_ok(strata_runtime_register_stream(runtime, stream));
    strata_ref *ref = make(runtime, stream);
    check_ok(strata_ref_record_write(ref, stream));
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 2, true, CUDA_ERROR_OUT_OF_MEMORY);
    strata_cu.StreamSynchronize = refuse_to_synchronize;
    const strata_status status = strata_runtime_unregister_stream(runtime, stream);
    assert_true(test_fault_end() > 0);
    check_ok(status);
    check_cu(strata_cu.StreamDestroy(stream));
    check_status(strata_ref_release(ref), STRATA_ERROR_STREAM_MISUSE);
}

static CUresult CUDAAPI refuse_to_free(CUdeviceptr address)
{
    (void)address;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static size_t free_bytes(void)
{
    size_t bytes;
    check_cu(strata_cu.MemGetInfo(&bytes, &(size_t){0}));
    return bytes;
}

/* No later call would free it: after the end, the runtime is gone for the program. */
static void abandon_after_a_refused_wait(const char *stack)
{
    const PFN_cuMemFree_v3020 real = strata_cu.MemFree;
    strata_runtime *runtime = make_runtime(stack);
    release_after_refused_events(runtime);
    strata_cu.MemFree = refuse_to_free;
    const strata_status status = strata_runtime_abandon(runtime);
    strata_cu.MemFree = real;
    check_status(status, STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "waiting for all work of device 0");
    check_ok(strata_runtime_abandon(runtime));
}

/* Once before: a real driver keeps memory of its own for the first one. */
static void a_runtime_is_abandoned_after_a_wait_for_work_that_could_not_be_recorded(void **state)
{
    (void)state;
    for (size_t i = 0; i < STACKS; i++) {
        abandon_after_a_refused_wait(stacks[i]);
        const size_t before = free_bytes();
        abandon_after_a_refused_wait(stacks[i]);
        assert_int_equal(free_bytes(), before);
    }
}

static void a_tensor_outlives_its_runtime(void **state)
{
    (void)state;
    for (size_t i = 0; i < STACKS; i++) {
        size_t before, after;
        DLManagedTensorVersioned *tensor;
        check_cu(strata_cu.MemGetInfo(&before, &(size_t){0}));
        strata_runtime *runtime = make_runtime(stacks[i]);
        strata_ref *ref = make(runtime, NULL);
        check_ok(strata_ref_export_dlpack(ref, STRATA_DLPACK_STREAM_LEGACY, NULL, &tensor));
        check_ok(strata_runtime_abandon(runtime));
        check_ok(strata_ref_release(ref));
        check_cu(strata_cu.MemsetD8Async((CUdeviceptr)(uintptr_t)tensor->dl_tensor.data, 1, BYTES, NULL));
        tensor->deleter(tensor);
        check_cu(strata_cu.MemGetInfo(&after, &(size_t){0}));
        assert_int_equal(after, before);
    }
}

/* The block is that of its first reference, whatever became of the tensor. */
static void a_tensor_that_came_back_does_not_count_as_a_block(void **state)
{
    (void)state;
    strata_runtime *runtime = make_runtime("pool");
    strata_ref *ref = make(runtime, NULL), *back;
    strata_block block;
    DLManagedTensorVersioned *tensor;
    check_ok(strata_ref_export_dlpack(ref, STRATA_DLPACK_STREAM_LEGACY, NULL, &tensor));
    check_ok(strata_ref_import_dlpack(runtime, tensor, &back));
    check_ok(strata_ref_release(back));
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    check_status(strata_runtime_abandon(runtime), STRATA_ERROR_BUSY);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_abandon(runtime));
    check_ok(strata_ref_release(ref));
}

static void a_launch_with_references_ends_after_its_runtime_was_abandoned(void **state)
{
    (void)state;
    for (int by_ref = 0; by_ref < 2; by_ref++) {
        strata_runtime *runtime = make_runtime("pool");
        strata_ref *ref = make(runtime, NULL);
        strata_ref_memory memory;
        strata_launch launch;
        check_ok(strata_ref_access(ref, &memory));
        check_ok(strata_launch_begin(&launch, runtime, NULL, STRATA_LAUNCH_STRICT));
        check_ok(by_ref ? strata_launch_use_ref(&launch, ref, STRATA_ACCESS_WRITE)
                        : strata_launch_use(&launch, memory.block, STRATA_ACCESS_WRITE));
        check_ok(strata_launch_preflight(&launch));
        check_ok(strata_runtime_abandon(runtime));
        check_ok(strata_ref_release(ref));
        check_ok(strata_launch_commit(&launch)); /* ends the runtime */
        check_ok(strata_launch_end(&launch));
    }
}

static void a_runtime_whose_stream_is_held_as_last_writer_is_not_ended(void **state)
{
    (void)state;
    strata_runtime *runtime = make_runtime("pool");
    strata_last_write write;
    CUstream stream;
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    strata_ref *ref = make(runtime, stream);
    check_ok(strata_ref_record_write(ref, stream));
    check_ok(strata_ref_last_write_stream(ref, &write));
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_status(strata_runtime_abandon(runtime), STRATA_ERROR_BUSY);
    check_ok(strata_ref_release(ref));
    check_status(strata_runtime_destroy(runtime), STRATA_ERROR_BUSY);
    strata_last_write_release(&write);
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- threads release while the runtime is abandoned ---- */

enum { THREADS = 4, EACH = 50 };

static void *release_all(void *refs)
{
    for (size_t i = 0; i < EACH; i++)
        strata_ref_release(((strata_ref **)refs)[i]);
    return NULL;
}

static void references_may_be_released_while_their_runtime_is_abandoned(void **state)
{
    (void)state;
    strata_runtime *runtime = make_runtime("pool");
    strata_ref *refs[THREADS][EACH];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        for (size_t j = 0; j < EACH; j++)
            refs[i][j] = make(runtime, NULL);
    strata_ref *kept = make(runtime, NULL);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, release_all, refs[i]), 0);
    check_ok(strata_runtime_abandon(runtime));
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check_dropped(kept);
    check_ok(strata_ref_release(kept));
}

/* ---- resets: in processes of their own ---- */

static strata_runtime *child_runtime(void)
{
    strata_runtime *runtime;
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = getenv("TEST_STACK")}, &runtime));
    return runtime;
}

static void reset(void)
{
    CUcontext context;
    child_check(strata_cu.DevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    if (!getenv("TEST_ANEW"))
        return;
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
}

static unsigned deleted;

static void count_deletion(DLManagedTensorVersioned *tensor)
{
    (void)tensor;
    deleted++;
}

/* A reference to memory of another library, and a tensor of this one's. */
static void make_tensors(strata_runtime *runtime, strata_ref *ref, strata_ref **foreign,
                         DLManagedTensorVersioned **exported)
{
    static int64_t one[] = {1};
    static DLManagedTensorVersioned tensor = {
        .version = {1, 3},
        .deleter = count_deletion,
        .dl_tensor = {.device = {kDLCUDA, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = one, .strides = one}};
    CUdeviceptr address;
    child_check(strata_cu.MemAlloc(&address, 4) == CUDA_SUCCESS);
    tensor.dl_tensor.data = (void *)(uintptr_t)address;
    child_ok(strata_ref_import_dlpack(runtime, &tensor, foreign));
    child_ok(strata_ref_export_dlpack(ref, STRATA_DLPACK_STREAM_LEGACY, NULL, exported));
}

static void child_after_a_reset_references_are_stale_and_end_without_the_driver(void)
{
    strata_runtime *runtime = child_runtime();
    strata_ref *ref, *other;
    strata_ref_memory memory;
    child_ok(strata_ref_allocate(runtime, STRATA_ELEMENT_F32, LENGTH, false, NULL, &ref));
    child_ok(strata_ref_allocate(runtime, STRATA_ELEMENT_F32, LENGTH, true, NULL, &other));
    strata_ref *foreign;
    DLManagedTensorVersioned *exported;
    make_tensors(runtime, other, &foreign, &exported);
    reset();
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    child_status(strata_ref_access(ref, &memory), STRATA_ERROR_STALE);
    child_check(memory.stale == STRATA_STALE_CONTEXT_REBUILT);
    test_calls calls;
    test_calls_begin(&calls);
    child_ok(strata_ref_release(ref));
    child_ok(strata_ref_release(other));
    exported->deleter(exported);
    child_ok(strata_ref_release(foreign));
    child_check(deleted == 1);
    child_check(test_calls_total(&calls) == 0);
    child_ok(strata_runtime_destroy(runtime));
}

/* The program knows of the reset and bumps; Strata finds out at the release, by a question about the context. */
static void child_a_bump_after_a_reset_is_enough(void)
{
    strata_runtime *runtime = child_runtime();
    strata_ref *ref;
    strata_ref_memory memory;
    child_ok(strata_ref_allocate(runtime, STRATA_ELEMENT_F32, LENGTH, false, NULL, &ref));
    strata_ref *foreign;
    DLManagedTensorVersioned *exported;
    make_tensors(runtime, ref, &foreign, &exported);
    reset();
    child_ok(strata_device_state_bump_generation(strata_runtime_device_state(runtime), NULL));
    child_status(strata_ref_access(ref, &memory), STRATA_ERROR_STALE);
    test_calls calls;
    test_calls_begin(&calls);
    child_ok(strata_ref_release(foreign));
    child_check(deleted == 1);
    child_ok(strata_ref_release(ref));
    exported->deleter(exported);
    child_check(test_calls_total(&calls) == test_calls_of(&calls, "cuCtxGetId"));
    child_ok(strata_runtime_destroy(runtime));
}

static void child_an_abandoned_runtime_ends_after_a_reset(void)
{
    strata_runtime *runtime = child_runtime();
    strata_ref *ref;
    child_ok(strata_ref_allocate(runtime, STRATA_ELEMENT_F32, LENGTH, false, NULL, &ref));
    child_ok(strata_runtime_abandon(runtime));
    reset();
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_ref_release(ref));
}

static void run_after_reset(const char *scenario)
{
    for (size_t i = 0; i < STACKS; i++)
        for (int anew = 0; anew < 2; anew++) {
            char stack[80];
            snprintf(stack, sizeof stack, "TEST_STACK=%s", stacks[i]);
            test_child_run(scenario, (const char *const[]){stack, anew ? "TEST_ANEW=1" : "TEST_ANEW", NULL});
        }
}

static void after_a_reset_references_are_stale_and_end_without_the_driver(void **state)
{
    (void)state;
    run_after_reset("child_after_a_reset_references_are_stale_and_end_without_the_driver");
}

static void a_bump_after_a_reset_is_enough(void **state)
{
    (void)state;
    run_after_reset("child_a_bump_after_a_reset_is_enough");
}

static void an_abandoned_runtime_ends_after_a_reset(void **state)
{
    (void)state;
    run_after_reset("child_an_abandoned_runtime_ends_after_a_reset");
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(child_after_a_reset_references_are_stale_and_end_without_the_driver),
        TEST_SCENARIO(child_a_bump_after_a_reset_is_enough),
        TEST_SCENARIO(child_an_abandoned_runtime_ends_after_a_reset),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_memory_of_an_abandoned_runtime_goes_with_the_last_reference),
        cmocka_unit_test(a_runtime_without_references_is_destroyed_at_once),
        cmocka_unit_test(a_runtime_with_other_blocks_or_acquired_streams_is_not_abandoned),
        cmocka_unit_test(memory_of_an_abandoned_runtime_is_freed_after_work_of_a_stream_that_is_gone),
        cmocka_unit_test(a_runtime_is_abandoned_after_a_wait_for_work_that_could_not_be_recorded),
        cmocka_unit_test(a_tensor_outlives_its_runtime),
        cmocka_unit_test(a_tensor_that_came_back_does_not_count_as_a_block),
        cmocka_unit_test(a_launch_with_references_ends_after_its_runtime_was_abandoned),
        cmocka_unit_test(a_runtime_whose_stream_is_held_as_last_writer_is_not_ended),
        cmocka_unit_test(references_may_be_released_while_their_runtime_is_abandoned),
        cmocka_unit_test(after_a_reset_references_are_stale_and_end_without_the_driver),
        cmocka_unit_test(a_bump_after_a_reset_is_enough),
        cmocka_unit_test(an_abandoned_runtime_ends_after_a_reset),
    };
    test_open_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
