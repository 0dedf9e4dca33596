/* Addresses of blocks of before a reset of the primary context: what of them is left at the driver, and whose they are
 * once others have the memory. Each case resets the context of a process of its own. */
#include "support/resets.h"

#include <string.h>

static size_t free_bytes_now(void)
{
    size_t free_bytes, total;
    test_make_current();
    child_check(strata_cu.MemGetInfo(&free_bytes, &total) == CUDA_SUCCESS);
    return free_bytes;
}

/* Live blocks, also one that the program has freed since, one whose free the driver has, and one that a layer holds. */
static void child_the_driver_s_pool_has_nothing_left_of_before_a_reset(void)
{
    scene *of = scene_of_child();
    strata_runtime *after;
    strata_block blocks[4];
    test_open_driver_quietly();
    const size_t before = free_bytes_now();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &of->runtime));
    for (int i = 0; i < 4; i++)
        child_ok(strata_runtime_allocate(of->runtime, 40 * (size_t)BYTES, NULL, &blocks[i]));
    child_check(strata_cu.MemsetD8Async(blocks[0].address, 1, BYTES, NULL) == CUDA_SUCCESS);
    child_ok(strata_runtime_deallocate(of->runtime, &blocks[0]));
    reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_deallocate(of->runtime, &blocks[1]));
    if (of->when == ANEW)
        child_check(free_bytes_now() <= before - 80 * (size_t)BYTES);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &after));
    child_check(free_bytes_now() == before);
    child_ok(strata_runtime_deallocate_address(of->runtime, blocks[2].address, NULL));
    child_check(strata_runtime_block_state(of->runtime, blocks[2].id) != STRATA_BLOCK_LIVE);
    child_ok(strata_runtime_destroy(of->runtime));
    child_check(free_bytes_now() == before);
    use(after);
    child_ok(strata_runtime_destroy(after));
}

enum { AS_LARGE = 40 << 20 };

/* Memory of the driver's own where the block was, of the pool unless that is NULL; 0 if it gives none. */
static CUdeviceptr memory_of_the_driver_at(CUdeviceptr address, CUmemoryPool pool)
{
    enum { TRIES = 16 };
    CUdeviceptr taken[TRIES], found = 0;
    int count = 0;
    for (; !found && count < TRIES; count++) {
        child_check((pool ? strata_cu.MemAllocFromPoolAsync(&taken[count], AS_LARGE, pool, NULL)
                          : strata_cu.MemAlloc(&taken[count], AS_LARGE)) == CUDA_SUCCESS);
        found = taken[count] == address ? address : 0;
    }
    for (int i = 0; i < count; i++)
        if (taken[i] != found)
            child_check(strata_cu.MemFree(taken[i]) == CUDA_SUCCESS);
    return found;
}

static void child_memory_that_the_driver_has_given_out_since_is_none_of_before(void)
{
    scene *of = scene_of_child();
    strata_runtime *next;
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &of->runtime));
    child_ok(strata_runtime_allocate(of->runtime, AS_LARGE, NULL, &of->live));
    void *memory = (void *)(uintptr_t)of->live.address;
    CUmemoryPool pool = strata_async_pool_handle(strata_stack_top(strata_runtime_stack(of->runtime)));
    reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    child_check(strata_holds(memory));
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &next));
    test_make_current();
    child_check(strata_holds(memory));
    const CUdeviceptr since = memory_of_the_driver_at(of->live.address, pool);
    if (!since)
        exit(77);
    child_check(!strata_holds(memory));
    child_status(strata_free(memory), STRATA_ERROR_FOREIGN_POINTER);
    child_check(strata_cu.MemFree(since) == CUDA_SUCCESS);
    child_check(strata_holds(memory));
    child_ok(strata_free(memory));
    child_check(!strata_holds(memory));
}

/* Memory of the driver that lies in a block of before, but begins elsewhere. */
static void child_memory_inside_a_block_of_before_is_the_driver_s(void)
{
    enum { TRIES = 64, HALF = AS_LARGE / 2 };
    scene *of = scene_of_child();
    strata_runtime *next;
    CUdeviceptr taken[TRIES], inside = 0;
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &of->runtime));
    child_ok(strata_runtime_allocate(of->runtime, AS_LARGE, NULL, &of->live));
    reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &next));
    test_make_current();
    for (int i = 0; i < TRIES; i++) {
        child_check(strata_cu.MemAlloc(&taken[i], HALF) == CUDA_SUCCESS);
        if (taken[i] > of->live.address && taken[i] < of->live.address + AS_LARGE)
            inside = taken[i];
    }
    for (int i = 0; i < TRIES; i++)
        if (taken[i] != inside)
            child_check(strata_cu.MemFree(taken[i]) == CUDA_SUCCESS);
    if (!inside)
        exit(77);
    void *memory = (void *)(uintptr_t)inside;
    child_check(!strata_holds(memory));
    child_status(strata_free(memory), STRATA_ERROR_FOREIGN_POINTER);
    child_check(strata_cu.MemFree(inside) == CUDA_SUCCESS);
    child_check(strata_holds(memory));
}

/* Not the program's, which would free it: a free of the block of before has no effect. */
static void child_memory_that_a_pool_has_again_is_not_the_driver_s(void)
{
    scene *of = scene_of_child();
    strata_runtime *next;
    strata_block block;
    test_open_driver_quietly();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &of->runtime));
    child_ok(strata_runtime_allocate(of->runtime, AS_LARGE, NULL, &of->live));
    void *memory = (void *)(uintptr_t)of->live.address;
    reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &next));
    child_ok(strata_runtime_allocate(next, AS_LARGE, NULL, &block));
    const bool there = block.address == of->live.address;
    child_ok(strata_runtime_deallocate(next, &block));
    if (!there)
        exit(77);
    child_check(strata_holds(memory));
    child_ok(strata_free(memory));
    child_status(strata_free(memory), STRATA_ERROR_FOREIGN_POINTER);
    child_check(strata_holds(memory) == (strstr(of->stack, "pool") != NULL)); /* in a chunk of now */
    child_ok(strata_runtime_allocate(next, AS_LARGE, NULL, &block));
    child_check(strata_cu.MemsetD8Async(block.address, 1, AS_LARGE, NULL) == CUDA_SUCCESS);
    child_ok(strata_runtime_deallocate(next, &block));
}

static void the_driver_s_pool_has_nothing_left_of_before_a_reset(void **state)
{
    (void)state;
    static const char *const stacks[] = {"async", "pool, async", "guard, async", "statistics, async"};
    run_on("child_the_driver_s_pool_has_nothing_left_of_before_a_reset", stacks, sizeof stacks / sizeof stacks[0]);
}

static void memory_that_the_driver_has_given_out_since_is_none_of_before(void **state)
{
    (void)state;
    static const char *const stacks[] = {"direct", "pool, direct", "async(pool=default)"};
    run_on("child_memory_that_the_driver_has_given_out_since_is_none_of_before", stacks,
           sizeof stacks / sizeof stacks[0]);
}

static void memory_inside_a_block_of_before_is_the_driver_s(void **state)
{
    (void)state;
    static const char *const stacks[] = {"direct", "pool, direct"};
    run_on("child_memory_inside_a_block_of_before_is_the_driver_s", stacks, sizeof stacks / sizeof stacks[0]);
}

static void memory_that_a_pool_has_again_is_not_the_driver_s(void **state)
{
    (void)state;
    static const char *const stacks[] = {"pool, direct", "guard, direct"};
    run_on("child_memory_that_a_pool_has_again_is_not_the_driver_s", stacks, sizeof stacks / sizeof stacks[0]);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(child_the_driver_s_pool_has_nothing_left_of_before_a_reset),
        TEST_SCENARIO(child_memory_that_the_driver_has_given_out_since_is_none_of_before),
        TEST_SCENARIO(child_memory_inside_a_block_of_before_is_the_driver_s),
        TEST_SCENARIO(child_memory_that_a_pool_has_again_is_not_the_driver_s),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_driver_s_pool_has_nothing_left_of_before_a_reset),
        cmocka_unit_test(memory_that_the_driver_has_given_out_since_is_none_of_before),
        cmocka_unit_test(memory_inside_a_block_of_before_is_the_driver_s),
        cmocka_unit_test(memory_that_a_pool_has_again_is_not_the_driver_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
