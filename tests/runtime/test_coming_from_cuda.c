/* What docs/migrate/cudaMalloc.md says of cudaMalloc and cudaFree: its functions for all streams, which are included
 * from it, stream 0 alone, for streams that synchronize with it, and host memory. */
#include "support/driver.h"

#include <stdlib.h>
#include <string.h>

#define cuCtxSynchronize() test_cu()->CtxSynchronize()
#include "any_stream.inc"
#undef cuCtxSynchronize

enum { BYTES = 1 << 20 };

static const strata_sim_policy policies[] = {STRATA_SIM_EARLY, STRATA_SIM_RANDOM, STRATA_SIM_LATE};

/* ---- two ways to allocate and free ---- */

typedef struct way {
    strata_status (*allocate)(strata_runtime *runtime, size_t bytes, strata_block *out);
    strata_status (*release)(strata_runtime *runtime, const strata_block *block);
} way;

static strata_status allocate_on_zero(strata_runtime *runtime, size_t bytes, strata_block *out)
{
    return strata_runtime_allocate(runtime, bytes, 0, out);
}

static strata_status release_on_zero(strata_runtime *runtime, const strata_block *block)
{
    return strata_runtime_deallocate_on(runtime, block, 0);
}

static const way documented = {malloc_for_all_streams, free_for_all_streams};
static const way on_zero = {allocate_on_zero, release_on_zero};

/* ---- a program of cudaMalloc, cudaFree and a stream ---- */

static strata_runtime *open_runtime(const char *stack)
{
    strata_runtime *runtime;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stack}, &runtime));
    return runtime;
}

static void fill(const strata_block *block, unsigned char value, CUstream stream)
{
    check_cu(test_cu()->MemsetD8Async(block->address, value, BYTES, stream));
}

/* Once all streams have finished. */
static size_t count_wrong(const strata_block *block, unsigned char value)
{
    unsigned char *host = test_malloc(BYTES);
    size_t wrong = 0;
    check_cu(test_cu()->CtxSynchronize());
    check_cu(test_cu()->MemcpyDtoHAsync(host, block->address, BYTES, CU_STREAM_LEGACY));
    check_cu(test_cu()->CtxSynchronize());
    for (size_t i = 0; i < BYTES; i++)
        wrong += host[i] != value;
    test_free(host);
    return wrong;
}

/* The stream's work is under way when its memory is freed; the next allocation gets it. */
static size_t wrong_after_a_free(strata_runtime *runtime, const way *by, CUstream stream)
{
    strata_block first, second;
    check_ok(by->allocate(runtime, BYTES, &first));
    fill(&first, 7, stream);
    check_ok(by->release(runtime, &first));
    check_ok(by->allocate(runtime, BYTES, &second));
    fill(&second, 9, 0);
    check_cu(test_cu()->StreamSynchronize(0));
    size_t wrong = count_wrong(&second, 9);
    check_ok(by->release(runtime, &second));
    return wrong;
}

/* The memory's last user is another stream, which has not finished, when the stream begins with it. */
static size_t wrong_after_an_allocation(strata_runtime *runtime, const way *by, CUstream stream)
{
    strata_block first, second;
    CUstream other;
    check_ok(strata_runtime_stream_acquire(runtime, &other));
    check_ok(strata_runtime_allocate(runtime, BYTES, other, &first));
    fill(&first, 7, other);
    check_ok(strata_runtime_deallocate(runtime, &first));
    check_ok(by->allocate(runtime, BYTES, &second));
    fill(&second, 9, stream);
    check_cu(test_cu()->StreamSynchronize(stream));
    size_t wrong = count_wrong(&second, 9);
    check_ok(by->release(runtime, &second));
    check_ok(strata_runtime_stream_release(runtime, other));
    return wrong;
}

static size_t wrong_bytes(const char *stack, const way *by, CUstream stream)
{
    strata_runtime *runtime = open_runtime(stack);
    size_t wrong = wrong_after_an_allocation(runtime, by, stream) + wrong_after_a_free(runtime, by, stream);
    check_cu(test_cu()->CtxSynchronize());
    check_ok(strata_runtime_destroy(runtime));
    return wrong;
}

static size_t wrong_bytes_of_any_stack(const way *by, CUstream stream)
{
    static const char *const stacks[] = {"pool", "async", "direct", "budget, guard, pool"};
    size_t wrong = 0;
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++)
        wrong += wrong_bytes(stacks[i], by, stream);
    return wrong;
}

/* Under every policy of the simulated driver; on another one, once. */
static size_t wrong_bytes_of_any_order(const way *by, CUstream stream)
{
    const test_sim *sim = test_sim_control();
    size_t wrong = 0;
    for (size_t i = 0; i < (sim ? sizeof policies / sizeof policies[0] : 1); i++) {
        if (sim)
            check_cu(sim->set_policy(policies[i]));
        wrong += wrong_bytes_of_any_stack(by, stream);
    }
    return wrong;
}

static CUstream new_stream(unsigned flags)
{
    CUstream stream;
    check_cu(test_cu()->StreamCreate(&stream, flags));
    return stream;
}

/* ---- tests ---- */

static void the_documented_functions_serve_a_non_blocking_stream(void **state)
{
    (void)state;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    assert_int_equal(wrong_bytes_of_any_order(&documented, stream), 0);
    check_cu(test_cu()->StreamDestroy(stream));
}

static void the_documented_functions_serve_a_blocking_stream_and_the_default_streams(void **state)
{
    (void)state;
    CUstream stream = new_stream(CU_STREAM_DEFAULT);
    assert_int_equal(wrong_bytes_of_any_order(&documented, stream), 0);
    check_cu(test_cu()->StreamDestroy(stream));
    assert_int_equal(wrong_bytes_of_any_order(&documented, CU_STREAM_LEGACY), 0);
    assert_int_equal(wrong_bytes_of_any_order(&documented, CU_STREAM_PER_THREAD), 0);
}

static void stream_0_alone_serves_streams_that_synchronize_with_it(void **state)
{
    (void)state;
    CUstream stream = new_stream(CU_STREAM_DEFAULT);
    assert_int_equal(wrong_bytes_of_any_order(&on_zero, stream), 0);
    check_cu(test_cu()->StreamDestroy(stream));
    assert_int_equal(wrong_bytes_of_any_order(&on_zero, CU_STREAM_LEGACY), 0);
    assert_int_equal(wrong_bytes_of_any_order(&on_zero, CU_STREAM_PER_THREAD), 0);
}

static void stream_0_alone_gives_a_non_blocking_stream_wrong_bytes(void **state)
{
    (void)state;
    test_needs_simulated_driver("its policy `late` runs work as late as it may");
    const test_sim *sim = test_sim_control();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    check_cu(sim->set_policy(STRATA_SIM_LATE));
    check_cu(sim->set_check(STRATA_SIM_CHECK_OFF)); /* it would report them; last of all tests */
    strata_runtime *runtime = open_runtime("pool");
    size_t wrong = wrong_after_a_free(runtime, &on_zero, stream);
    print_message("%d bytes, wrong: %zu\n", BYTES, wrong);
    assert_int_equal(wrong, BYTES);
    assert_int_equal(wrong_after_a_free(runtime, &documented, stream), 0);
    check_ok(strata_runtime_destroy(runtime));
    check_cu(test_cu()->StreamDestroy(stream));
}

/* ---- host memory ---- */

/* Copies to the first block are under way when it is freed; the host writes to the second. */
static size_t wrong_in_pinned(const char *stack, bool wait)
{
    strata_runtime *runtime = open_runtime(stack), *device = open_runtime("pool");
    strata_block source, first, second;
    CUstream stream;
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    check_ok(strata_runtime_allocate(device, BYTES, stream, &source));
    fill(&source, 7, stream);
    check_ok(strata_runtime_allocate(runtime, BYTES, stream, &first));
    check_cu(test_cu()->MemcpyDtoHAsync((void *)(uintptr_t)first.address, source.address, BYTES, stream));
    check_ok(strata_runtime_deallocate(runtime, &first));
    check_ok(strata_runtime_allocate(runtime, BYTES, stream, &second));
    if (wait)
        check_ok(strata_runtime_stream_synchronize(runtime, stream));
    unsigned char *host = (unsigned char *)(uintptr_t)second.address;
    memset(host, 9, BYTES);
    check_cu(test_cu()->CtxSynchronize());
    size_t wrong = 0;
    for (size_t i = 0; i < BYTES; i++)
        wrong += host[i] != 9;
    check_ok(strata_runtime_deallocate(runtime, &second));
    check_ok(strata_runtime_deallocate(device, &source));
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_ok(strata_runtime_destroy(runtime));
    check_ok(strata_runtime_destroy(device));
    return wrong;
}

static void the_host_uses_pinned_memory_at_once_and_that_of_a_pool_after_a_wait(void **state)
{
    (void)state;
    const test_sim *sim = test_sim_control();
    if (sim)
        check_cu(sim->set_policy(STRATA_SIM_LATE));
    assert_int_equal(wrong_in_pinned("pinned", false), 0);
    assert_int_equal(wrong_in_pinned("pool, pinned", true), 0);
}

static int restore(void **state)
{
    (void)state;
    const test_sim *sim = test_sim_control();
    if (!sim)
        return 0;
    return sim->set_policy(STRATA_SIM_EARLY) != CUDA_SUCCESS;
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_documented_functions_serve_a_non_blocking_stream),
        cmocka_unit_test(the_documented_functions_serve_a_blocking_stream_and_the_default_streams),
        cmocka_unit_test(stream_0_alone_serves_streams_that_synchronize_with_it),
        cmocka_unit_test_teardown(the_host_uses_pinned_memory_at_once_and_that_of_a_pool_after_a_wait, restore),
        cmocka_unit_test_teardown(stream_0_alone_gives_a_non_blocking_stream_wrong_bytes, restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
