/* strata_malloc and strata_free in processes of their own: with other stacks, devices and drivers, and behind resets.
 */
#include "support/child.h"
#include "support/faults.h"

#include <string.h>

enum { BYTES = 1 << 20, SMALL = 4096 };

static CUdeviceptr address_of(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

static void child_memory_info_is_the_budgets(void)
{
    size_t free_bytes, total, later;
    void *memory;
    test_open_driver_quietly();
    child_ok(strata_memory_info(&free_bytes, &total));
    child_check(total == (size_t)64 << 20);
    child_check(free_bytes == total);
    child_ok(strata_malloc(&memory, (size_t)16 << 20));
    child_ok(strata_memory_info(&later, NULL));
    child_check(later == free_bytes - ((size_t)16 << 20));
    child_status(strata_malloc(&memory, (size_t)64 << 20), STRATA_ERROR_OUT_OF_BUDGET);
    child_check(strata_status_to_cuda(STRATA_ERROR_OUT_OF_BUDGET) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void memory_info_is_that_of_the_budget(void **state)
{
    (void)state;
    test_child_run("child_memory_info_is_the_budgets",
                   (const char *const[]){"STRATA_STACK=budget(limit=64MiB), pool", NULL});
}

/* The driver is asked by each call, and answers that a free is complete soon after its wait. */
static void child_memory_info_counts_complete_frees(void)
{
    size_t free_bytes, total;
    void *memory;
    test_open_driver_quietly();
    child_ok(strata_malloc(&memory, (size_t)16 << 20));
    child_ok(strata_free(memory));
    int calls = 0;
    do
        child_ok(strata_memory_info(&free_bytes, &total));
    while (free_bytes < total && ++calls < 100000);
    child_check(free_bytes == total && total == (size_t)64 << 20);
}

static void memory_info_counts_complete_frees(void **state)
{
    (void)state;
    test_child_run("child_memory_info_counts_complete_frees",
                   (const char *const[]){"STRATA_STACK=budget(limit=64MiB), async", "STRATA_SIM_POLICY=early", NULL});
}

static void child_memory_comes_from_each_branch(void)
{
    void *first, *second, *none;
    test_open_driver_quietly();
    child_ok(strata_malloc(&first, (size_t)48 << 20));
    child_ok(strata_malloc(&second, (size_t)48 << 20)); /* of managed, which aligns to less than cudaMalloc */
    child_check(address_of(second) % 512 == 0);
    child_status(strata_malloc(&none, (size_t)48 << 20), STRATA_ERROR_OUT_OF_BUDGET);
    child_ok(strata_free(first));
    child_ok(strata_free(second));
}

static void memory_comes_from_each_branch_of_a_fallback(void **state)
{
    (void)state;
    test_child_run(
        "child_memory_comes_from_each_branch",
        (const char *const[]){"STRATA_STACK=budget(limit=120MiB), fallback(pool(max_size=64MiB) | managed)", NULL});
}

static strata_status take_of_process(CUdeviceptr *address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    void *memory;
    const strata_status status = strata_malloc_on(&memory, bytes, stream);
    (void)alignment, (void)data;
    *address = address_of(memory);
    return status;
}

static strata_status give_to_process(CUdeviceptr address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    (void)bytes, (void)alignment, (void)data;
    return strata_free_on((void *)(uintptr_t)address, stream);
}

static strata_runtime *runtime_over_the_process_s(bool pooled)
{
    const strata_callback_options options = {
        .allocate = take_of_process, .deallocate = give_to_process, .stream_ordered = true};
    strata_resource *layers[2];
    strata_stack *stack;
    strata_runtime *made;
    child_ok(strata_pool_create(0, NULL, &layers[0]));
    child_ok(strata_callback_create(0, &options, &layers[1]));
    child_ok(strata_stack_build(pooled ? layers : layers + 1, pooled ? 2 : 1, 0, &stack));
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &made));
    if (!pooled)
        child_ok(strata_resource_destroy(layers[0]));
    return made;
}

static size_t live_in(strata_runtime *runtime)
{
    strata_usage usage;
    child_ok(strata_runtime_usage(runtime, &usage));
    return usage.live_blocks;
}

/* The process's runtime is made inside of the first request, and so is the younger one. */
static void child_stacks_its_own_runtime_on_the_process_s(void)
{
    strata_runtime *own, *found;
    strata_block block;
    test_open_driver_quietly();
    own = runtime_over_the_process_s(false);
    child_ok(strata_runtime_allocate(own, SMALL, NULL, &block));
    child_ok(strata_runtime_of_address(block.address, &found));
    child_check(found == own);
    child_ok(strata_free((void *)(uintptr_t)block.address));
    child_check(live_in(own) == 0);
    child_ok(strata_runtime_get(0, &found));
    child_check(live_in(found) == 0);
    child_ok(strata_runtime_destroy(own));
}

/* The first block of a pool begins where its chunk does, a block of the process's runtime. */
static void child_frees_twice_in_its_own_pool(void)
{
    strata_runtime *own, *process;
    strata_block blocks[2];
    test_open_driver_quietly();
    own = runtime_over_the_process_s(true);
    for (int i = 0; i < 2; i++)
        child_ok(strata_runtime_allocate(own, SMALL, NULL, &blocks[i]));
    void *first = (void *)(uintptr_t)blocks[0].address;
    child_ok(strata_free(first));
    child_check(strata_holds(first));
    child_status(strata_free(first), STRATA_ERROR_FOREIGN_POINTER);
    child_ok(strata_runtime_get(0, &process));
    child_check(live_in(process) == 1);
    child_ok(strata_runtime_deallocate(own, &blocks[1]));
    child_ok(strata_runtime_destroy(own));
    child_check(live_in(process) == 0);
}

static void a_block_inside_of_anothers_is_the_inner_one(void **state)
{
    (void)state;
    test_child_run("child_stacks_its_own_runtime_on_the_process_s", NULL);
    test_child_run("child_frees_twice_in_its_own_pool", NULL);
}

/* The first block begins where the layer's chunk does. */
static void child_frees_twice(void)
{
    void *first, *second;
    test_open_driver_quietly();
    child_ok(strata_malloc(&first, SMALL));
    child_ok(strata_malloc(&second, SMALL));
    child_ok(strata_free(first));
    child_check(strata_holds(first));
    child_status(strata_free(first), STRATA_ERROR_FOREIGN_POINTER);
    child_check(strata_cu.MemsetD8Async(address_of(second), 1, SMALL, NULL) == CUDA_SUCCESS);
    child_ok(strata_free(second));
}

static void a_second_free_does_not_reach_the_chunk_of_a_layer(void **state)
{
    (void)state;
    static const char *const stacks[] = {"STRATA_STACK=pool, direct", "STRATA_STACK=binning, async",
                                         "STRATA_STACK=fixed(bytes=4KiB), managed"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++)
        test_child_run("child_frees_twice", (const char *const[]){stacks[i], NULL});
}

static void child_memory_that_a_branch_keeps_is_free(void)
{
    size_t free_bytes, total;
    void *memory;
    test_open_driver_quietly();
    child_ok(strata_malloc(&memory, (size_t)16 << 20));
    child_ok(strata_memory_info(&free_bytes, &total));
    child_ok(strata_free(memory));
    size_t later;
    child_ok(strata_memory_info(&later, NULL));
    child_check(later > free_bytes + ((size_t)15 << 20));
}

static void memory_that_a_branch_keeps_is_free(void **state)
{
    (void)state;
    test_child_run("child_memory_that_a_branch_keeps_is_free",
                   (const char *const[]){"STRATA_STACK=fallback(pool(max_size=16MiB) | managed)", NULL});
}

static void child_memory_info_is_no_more_than_the_device(void)
{
    size_t free_bytes, total;
    void *memory;
    test_open_driver_quietly();
    child_ok(strata_malloc(&memory, (size_t)16 << 20));
    child_ok(strata_free(memory));
    child_ok(strata_memory_info(&free_bytes, &total));
    child_check(free_bytes <= total);
}

static void memory_of_the_host_is_no_memory_of_the_device(void **state)
{
    (void)state;
    test_child_run("child_memory_info_is_no_more_than_the_device", (const char *const[]){"STRATA_STACK=pinned", NULL});
}

static void child_memory_info_without_a_budget_is_the_devices(void)
{
    size_t free_bytes, total, device_free, device_total;
    test_open_driver_quietly();
    child_ok(strata_memory_info(&free_bytes, &total));
    child_check(strata_cu.MemGetInfo(&device_free, &device_total) == CUDA_SUCCESS);
    child_check(total == device_total);
    child_check(free_bytes >= device_free && free_bytes <= total);
}

static void memory_info_without_a_budget_is_that_of_the_device(void **state)
{
    (void)state;
    test_child_run("child_memory_info_without_a_budget_is_the_devices",
                   (const char *const[]){"STRATA_STACK=pool", NULL});
}

static void child_goes_on_after_a_reset(void)
{
    void *before, *freed, *memory;
    CUcontext context;
    test_open_driver_quietly();
    child_ok(strata_malloc(&before, SMALL));
    child_ok(strata_malloc(&freed, SMALL));
    child_ok(strata_free(freed));
    child_check(strata_cu.DevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
    child_ok(strata_malloc(&memory, SMALL)); /* of a new runtime */
    child_check(strata_cu.MemsetD8Async(address_of(memory), 1, SMALL, NULL) == CUDA_SUCCESS);
    child_ok(strata_free(memory));
    child_ok(strata_free(before)); /* without effect */
    child_status(strata_free(before), STRATA_ERROR_FOREIGN_POINTER);
}

static void a_program_goes_on_after_a_reset_of_its_device(void **state)
{
    (void)state;
    test_needs_simulated_driver("a reset ends what other cases hold");
    test_child_run("child_goes_on_after_a_reset", NULL);
}

/* As cudaDeviceReset, or numba.cuda.close(): the program gives its own reference back first. */
static void reset_after_release(void)
{
    child_check(strata_cu.DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    child_check(strata_cu.DevicePrimaryCtxReset(0) == CUDA_SUCCESS);
}

static void use_context(void)
{
    CUcontext context;
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
}

/* The first call after each reset is another one: each finds out by itself. */
static void first_call_after_reset(unsigned which, strata_runtime *before)
{
    size_t free_bytes, total;
    void *memory = NULL;
    strata_runtime *runtime = NULL;
    switch (which) {
    case 0:
        child_ok(strata_malloc(&memory, SMALL));
        break;
    case 1:
        child_ok(strata_malloc_on(&memory, SMALL, NULL));
        break;
    case 2:
        child_ok(strata_memory_info(&free_bytes, &total));
        break;
    default:
        child_ok(strata_runtime_get(0, &runtime));
        child_check(runtime != before);
    }
    child_ok(strata_free(memory));
}

static void child_goes_on_after_each_reset(void)
{
    void *live[8], *freed, *memory;
    strata_runtime *before, *after;
    test_open_driver_quietly();
    for (unsigned i = 0; i < 8; i++) {
        use_context();
        child_ok(strata_malloc(&live[i], SMALL));
        child_ok(strata_malloc(&freed, SMALL)); /* left in the pool: a hit asks no driver */
        child_ok(strata_free(freed));
        child_ok(strata_runtime_get(0, &before));
        reset_after_release();
        if (i % 8 >= 4) /* else the context is begun anew by Strata, or stays ended until the program needs it */
            use_context();
        first_call_after_reset(i % 4, before);
        child_ok(strata_runtime_get(0, &after));
        child_check(after != before);
        child_ok(strata_malloc(&memory, SMALL));
        child_check(strata_cu.MemsetD8Async(address_of(memory), 1, SMALL, NULL) == CUDA_SUCCESS);
        child_ok(strata_free(memory));
        if (i >= 4)
            child_check(strata_cu.DevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    }
    for (unsigned i = 0; i < 8; i++)
        child_ok(strata_free(live[i])); /* without effect */
}

static void a_program_goes_on_after_each_reset_of_its_device(void **state)
{
    (void)state;
    test_needs_simulated_driver("a reset ends what other cases hold");
    test_child_run("child_goes_on_after_each_reset", NULL);
}

/* All memory is a busy stream's: the pool makes the internal stream wait for it. */
static void child_takes_the_last_memory(void)
{
    enum { ALL = 2 << 20 };
    static unsigned char host[ALL];
    strata_runtime *runtime;
    strata_block block;
    CUstream busy, user;
    void *memory;
    test_open_driver_quietly();
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &busy));
    child_check(strata_cu.StreamCreate(&user, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_ok(strata_runtime_allocate(runtime, ALL, busy, &block));
    child_check(strata_cu.MemsetD8Async(block.address, 7, ALL, busy) == CUDA_SUCCESS);
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_ok(strata_malloc(&memory, ALL));
    child_check(address_of(memory) == block.address);
    child_check(strata_cu.MemsetD8Async(address_of(memory), 9, ALL, user) == CUDA_SUCCESS);
    child_check(strata_cu.StreamSynchronize(user) == CUDA_SUCCESS);
    child_check(strata_cu.StreamSynchronize(busy) == CUDA_SUCCESS);
    child_check(strata_cu.MemcpyDtoHAsync(host, address_of(memory), ALL, user) == CUDA_SUCCESS);
    child_check(strata_cu.StreamSynchronize(user) == CUDA_SUCCESS);
    for (size_t i = 0; i < ALL; i++)
        child_check(host[i] == 9);
    child_ok(strata_free(memory));
}

static void memory_of_a_busy_stream_is_waited_for(void **state)
{
    (void)state;
    test_child_run("child_takes_the_last_memory",
                   (const char *const[]){"STRATA_STACK=pool(max_size=2MiB)", "STRATA_SIM_POLICY=late", NULL});
}

static void child_uses_the_second_device(void)
{
    strata_runtime *first, *second;
    strata_device_info info;
    CUcontext context;
    void *memory;
    strata_runtime *found;
    test_open_driver_quietly();
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 1) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
    child_ok(strata_malloc(&memory, SMALL));
    child_ok(strata_runtime_of_address(address_of(memory), &found));
    child_ok(strata_runtime_get(0, &first));
    child_ok(strata_runtime_get(1, &second));
    child_check(found == second && found != first);
    child_check(strata_runtime_device(found) == 1);
    test_make_current(); /* device 0: the free finds its device */
    child_ok(strata_free(memory));
    child_ok(strata_device_get_info(1, &info));
}

static void memory_comes_from_the_current_device(void **state)
{
    (void)state;
    test_needs_simulated_driver("it has a second device");
    test_child_run("child_uses_the_second_device", (const char *const[]){"STRATA_SIM_DEVICES=2", NULL});
}

/* Memory for the stream is of that device. */
static void check_device_of(CUstream stream, int device)
{
    CUcontext before, after;
    strata_runtime *found;
    void *memory;
    child_check(strata_cu.CtxGetCurrent(&before) == CUDA_SUCCESS);
    child_ok(strata_malloc_on(&memory, SMALL, stream));
    child_check(strata_cu.CtxGetCurrent(&after) == CUDA_SUCCESS && after == before);
    child_ok(strata_runtime_of_address(address_of(memory), &found));
    child_check(strata_runtime_device(found) == device);
    child_ok(strata_free_on(memory, stream));
}

static void child_names_streams_of_both_devices(void)
{
    CUstream streams[2];
    CUcontext contexts[2];
    test_open_driver_quietly();
    for (int i = 0; i < 2; i++) {
        child_check(strata_cu.DevicePrimaryCtxRetain(&contexts[i], i) == CUDA_SUCCESS);
        child_check(strata_cu.CtxSetCurrent(contexts[i]) == CUDA_SUCCESS);
        child_check(strata_cu.StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    }
    for (int current = 0; current < 2; current++) {
        child_check(strata_cu.CtxSetCurrent(contexts[current]) == CUDA_SUCCESS);
        for (int i = 1; i >= 0; i--) /* at first with the other one's runtime not made */
            check_device_of(streams[i], i);
        check_device_of(NULL, current);
        check_device_of(CU_STREAM_PER_THREAD, current);
    }
}

static void memory_for_a_stream_is_of_the_streams_device(void **state)
{
    (void)state;
    test_needs_simulated_driver("it has a second device");
    test_child_run("child_names_streams_of_both_devices", (const char *const[]){"STRATA_SIM_DEVICES=2", NULL});
}

/* Under `late` the fill runs when a host waits for it, and so would fill the next block at the address. */
static void child_frees_on_a_default_stream_of_the_other_device(void)
{
    const CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    CUcontext here, there, after;
    void *memory, *next;
    test_open_driver_quietly();
    test_make_current();
    child_check(strata_cu.CtxGetCurrent(&here) == CUDA_SUCCESS);
    child_check(strata_cu.DevicePrimaryCtxRetain(&there, 1) == CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        unsigned char byte = 0;
        child_check(strata_cu.CtxSetCurrent(here) == CUDA_SUCCESS);
        child_ok(strata_malloc_on(&memory, SMALL, streams[i]));
        child_check(strata_cu.CtxSetCurrent(there) == CUDA_SUCCESS);
        child_check(strata_cu.MemsetD8Async(address_of(memory), 1, SMALL, streams[i]) == CUDA_SUCCESS);
        child_ok(strata_free_on(memory, streams[i]));
        child_check(strata_cu.CtxGetCurrent(&after) == CUDA_SUCCESS && after == there);
        child_check(strata_cu.CtxSetCurrent(here) == CUDA_SUCCESS);
        child_ok(strata_malloc_on(&next, SMALL, streams[i]));
        child_check(next == memory);
        child_check(strata_cu.MemsetD8Async(address_of(next), 2, SMALL, streams[i]) == CUDA_SUCCESS);
        child_check(strata_cu.StreamSynchronize(streams[i]) == CUDA_SUCCESS);
        child_check(strata_cu.CtxSetCurrent(there) == CUDA_SUCCESS && strata_cu.CtxSynchronize() == CUDA_SUCCESS);
        child_check(strata_cu.CtxSetCurrent(here) == CUDA_SUCCESS);
        child_check(strata_cu.MemcpyDtoHAsync(&byte, address_of(next), 1, NULL) == CUDA_SUCCESS);
        child_check(strata_cu.StreamSynchronize(NULL) == CUDA_SUCCESS && byte == 2);
        child_ok(strata_free(next));
    }
}

static void a_free_on_a_default_stream_comes_after_the_current_contexts(void **state)
{
    (void)state;
    test_needs_simulated_driver("it has a second device");
    test_child_run(
        "child_frees_on_a_default_stream_of_the_other_device",
        (const char *const[]){"STRATA_STACK=pool(peers=all)", "STRATA_SIM_DEVICES=2", "STRATA_SIM_POLICY=late", NULL});
}

static void child_is_the_first_to_use_the_device(void)
{
    void *memory;
    CUcontext context;
    strata_runtime *runtime, *made;
    child_ok(strata_runtime_get_if_present(0, &made));
    child_check(!made && !strata_driver_is_open());
    child_ok(strata_malloc(&memory, SMALL));
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_get_if_present(0, &made));
    child_check(made == runtime);
    child_status(strata_runtime_get_if_present(-1, &made), STRATA_ERROR_INVALID_VALUE);
    child_status(strata_runtime_get_if_present(64, &made), STRATA_ERROR_INVALID_VALUE);
    child_check(!made);
    child_check(strata_cu.CtxGetCurrent(&context) == CUDA_SUCCESS && context != NULL);
    child_ok(strata_free(memory));
}

static void a_program_may_begin_with_it(void **state)
{
    (void)state;
    test_child_run("child_is_the_first_to_use_the_device", NULL);
}

static void child_frees_a_block_of_a_chunk(void)
{
    strata_runtime *runtime;
    strata_block blocks[2];
    test_open_driver_quietly();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime));
    for (int i = 0; i < 2; i++)
        child_ok(strata_runtime_allocate(runtime, SMALL, NULL, &blocks[i]));
    child_ok(strata_runtime_deallocate(runtime, &blocks[0]));
    child_check(strata_holds((void *)(uintptr_t)blocks[0].address));
    child_ok(strata_runtime_deallocate(runtime, &blocks[1]));
    child_ok(strata_runtime_destroy(runtime));
    child_check(!strata_holds((void *)(uintptr_t)blocks[0].address));
}

/* Where chunks are the driver's own allocations. */
static void a_freed_block_is_held_on_a_device_without_virtual_memory(void **state)
{
    (void)state;
    test_needs_simulated_driver("an H200 has virtual memory management");
    test_child_run("child_frees_a_block_of_a_chunk", (const char *const[]){"STRATA_SIM_LACKS=virtual-memory", NULL});
}

int main(int count, char **arguments)
{
    const test_scenario scenarios[] = {
        TEST_SCENARIO(child_memory_info_is_the_budgets),
        TEST_SCENARIO(child_memory_info_without_a_budget_is_the_devices),
        TEST_SCENARIO(child_memory_info_counts_complete_frees),
        TEST_SCENARIO(child_memory_comes_from_each_branch),
        TEST_SCENARIO(child_stacks_its_own_runtime_on_the_process_s),
        TEST_SCENARIO(child_frees_twice_in_its_own_pool),
        TEST_SCENARIO(child_frees_twice),
        TEST_SCENARIO(child_memory_that_a_branch_keeps_is_free),
        TEST_SCENARIO(child_memory_info_is_no_more_than_the_device),
        TEST_SCENARIO(child_goes_on_after_a_reset),
        TEST_SCENARIO(child_goes_on_after_each_reset),
        TEST_SCENARIO(child_takes_the_last_memory),
        TEST_SCENARIO(child_uses_the_second_device),
        TEST_SCENARIO(child_frees_on_a_default_stream_of_the_other_device),
        TEST_SCENARIO(child_names_streams_of_both_devices),
        TEST_SCENARIO(child_is_the_first_to_use_the_device),
        TEST_SCENARIO(child_frees_a_block_of_a_chunk),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_freed_block_is_held_on_a_device_without_virtual_memory),
        cmocka_unit_test(memory_info_is_that_of_the_budget),
        cmocka_unit_test(memory_info_without_a_budget_is_that_of_the_device),
        cmocka_unit_test(memory_info_counts_complete_frees),
        cmocka_unit_test(memory_comes_from_each_branch_of_a_fallback),
        cmocka_unit_test(a_block_inside_of_anothers_is_the_inner_one),
        cmocka_unit_test(a_second_free_does_not_reach_the_chunk_of_a_layer),
        cmocka_unit_test(memory_that_a_branch_keeps_is_free),
        cmocka_unit_test(memory_of_the_host_is_no_memory_of_the_device),
        cmocka_unit_test(a_program_goes_on_after_a_reset_of_its_device),
        cmocka_unit_test(a_program_goes_on_after_each_reset_of_its_device),
        cmocka_unit_test(memory_of_a_busy_stream_is_waited_for),
        cmocka_unit_test(memory_comes_from_the_current_device),
        cmocka_unit_test(memory_for_a_stream_is_of_the_streams_device),
        cmocka_unit_test(a_free_on_a_default_stream_comes_after_the_current_contexts),
        cmocka_unit_test(a_program_may_begin_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
