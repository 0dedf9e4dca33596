/* Resets of the primary context (cuDevicePrimaryCtxReset, cudaDeviceReset): what Strata answers from then on, how its
 * objects end, and that new ones work. Each case resets the context of a process of its own. */
#include "support/resets.h"

#include "core/streams/batches.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* A runtime with live blocks, memory to hand out again, an acquired and a registered stream; then the reset. */
static void open_and_reset(scene *of)
{
    strata_block freed;
    if (!of->opened)
        test_open_driver_quietly();
    of->opened = true;
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &of->runtime));
    child_ok(strata_runtime_stream_acquire(of->runtime, &of->pooled));
    child_check(strata_cu.StreamCreate(&of->own, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_ok(strata_runtime_register_stream(of->runtime, of->own));
    child_ok(strata_runtime_allocate(of->runtime, BYTES, of->pooled, &of->live));
    child_ok(strata_runtime_allocate(of->runtime, SMALL, of->own, &of->other));
    child_ok(strata_runtime_allocate(of->runtime, SMALL, NULL, &freed));
    child_ok(strata_runtime_deallocate(of->runtime, &freed));
    reset(of);
}

static void child_calls_answer_that_the_device_was_reset(void)
{
    scene *of = scene_of_child();
    CUstream stream;
    strata_block block;
    strata_usage usage;
    open_and_reset(of);
    child_status(strata_runtime_stream_acquire(of->runtime, &stream), STRATA_ERROR_DEVICE_RESET);
    child_check(strstr(strata_last_error()->message, "was reset") != NULL);
    child_status(strata_runtime_allocate(of->runtime, SMALL, NULL, &block), STRATA_ERROR_DEVICE_RESET);
    child_check(block.address == 0);
    child_status(strata_runtime_prepare_block_use(of->runtime, &of->live, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_DEVICE_RESET);
    child_status(strata_runtime_reap_pending(of->runtime), STRATA_ERROR_DEVICE_RESET);
    child_status(strata_runtime_trim(of->runtime, 0, NULL), STRATA_ERROR_DEVICE_RESET);
    child_status(strata_runtime_usage(of->runtime, &usage), STRATA_ERROR_DEVICE_RESET);
    child_status(strata_runtime_register_stream(of->runtime, of->own), STRATA_ERROR_DEVICE_RESET);
    child_status(strata_runtime_stream_synchronize(of->runtime, of->pooled), STRATA_ERROR_DEVICE_RESET);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
}

static void child_memory_that_is_gone_is_not_handed_out(void)
{
    scene *of = scene_of_child();
    strata_block block;
    open_and_reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    for (int i = 0; i < 3; i++)
        child_status(strata_runtime_allocate(of->runtime, SMALL, NULL, &block), STRATA_ERROR_DEVICE_RESET);
    child_check(block.address == 0);
}

static void child_blocks_can_be_freed_and_the_runtime_can_be_ended(void)
{
    scene *of = scene_of_child();
    open_and_reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_deallocate(of->runtime, &of->live));
    child_ok(strata_runtime_deallocate_on(of->runtime, &of->other, of->own));
    child_ok(strata_runtime_deallocate_address(of->runtime, of->other.address, NULL));
    child_ok(strata_runtime_destroy(of->runtime));
}

/* Nothing tells Strata of the reset. */
static void child_the_runtime_can_be_ended_at_once(void)
{
    scene *of = scene_of_child();
    open_and_reset(of);
    child_ok(strata_runtime_destroy(of->runtime));
}

static void free_all_and_end(scene *of)
{
    child_ok(strata_runtime_deallocate(of->runtime, &of->live));
    child_ok(strata_runtime_deallocate(of->runtime, &of->other));
    child_ok(strata_runtime_destroy(of->runtime));
}

static void child_a_new_runtime_works(void)
{
    scene *of = scene_of_child();
    strata_runtime *next;
    open_and_reset(of);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &next));
    test_make_current();
    use(next);
    free_all_and_end(of); /* the old one ends beside the new one */
    use(next);
    child_ok(strata_runtime_destroy(next));
    child_ok(strata_device_check(0));
}

static void child_the_devices_own_runtime_is_made_again(void)
{
    scene *of = scene_of_child();
    strata_runtime *first, *next;
    test_open_driver_quietly();
    child_ok(strata_runtime_get(0, &first));
    child_ok(strata_runtime_allocate(first, SMALL, NULL, &of->live));
    reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_get(0, &next));
    child_check(next != first);
    test_make_current();
    use(next);
    child_ok(strata_runtime_deallocate(first, &of->live));
    child_ok(strata_runtime_get(0, &first));
    child_check(next == first);
}

/* Whose memory outlives the context, and which the program cannot destroy. Blocks that were not freed go too, and are
 * found until they are. */
static void child_memory_of_the_devices_own_runtime_goes_back(void)
{
    enum { LARGE = 64 << 20, RESETS = 4 };
    scene *of = scene_of_child();
    size_t least = 0;
    of->when = ANEW;
    setenv("STRATA_STACK", of->stack, 1);
    test_open_driver_quietly();
    test_make_current();
    for (int i = 0; i < RESETS; i++) {
        size_t bytes, total;
        strata_block freed;
        strata_runtime *before = of->runtime;
        child_ok(strata_runtime_get(0, &of->runtime));
        child_check(strata_cu.MemGetInfo(&bytes, &total) == CUDA_SUCCESS);
        least = i ? least : bytes - LARGE / 2;
        child_check(bytes >= least);
        if (i) {
            child_check(strata_runtime_block_state(before, of->live.id) == STRATA_BLOCK_LIVE);
            child_ok(strata_runtime_deallocate_address(before, of->live.address, NULL));
            child_check(strata_runtime_block_state(before, of->live.id) != STRATA_BLOCK_LIVE);
        }
        child_ok(strata_runtime_allocate(of->runtime, LARGE, NULL, &of->live));
        child_ok(strata_runtime_allocate(of->runtime, LARGE, NULL, &freed));
        child_ok(strata_runtime_deallocate(of->runtime, &freed));
        reset(of);
    }
}

static void count_uses_of_streams(const char *name, uint64_t count, void *data)
{
    static const char *const uses[] = {"cuStreamIsCapturing", "cuStreamGetId",   "cuStreamSynchronize",
                                       "cuStreamQuery",       "cuMemAllocAsync", "cuMemFreeAsync"};
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++)
        *(uint64_t *)data += strcmp(name, uses[i]) == 0 ? count : 0;
}

static uint64_t uses_of_streams_so_far(void)
{
    uint64_t count = 0;
    strata_driver_visit_calls(count_uses_of_streams, &count);
    return count;
}

/* The layers of the stack of before give back what they hold free. */
static void child_the_next_stack_asks_for_no_stream_of_before(void)
{
    scene *of = scene_of_child();
    strata_runtime *next;
    child_ok(strata_driver_count_calls());
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &of->runtime));
    child_ok(strata_runtime_allocate(of->runtime, SMALL, NULL, &of->live));
    child_ok(strata_runtime_deallocate(of->runtime, &of->live));
    child_ok(strata_runtime_reap_pending(of->runtime));
    reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    const uint64_t uses = uses_of_streams_so_far();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &next));
    child_check(uses_of_streams_so_far() == uses);
    child_ok(strata_runtime_destroy(of->runtime));
    child_ok(strata_runtime_destroy(next));
}

static void count_all(const char *name, uint64_t count, void *data)
{
    (void)name;
    *(uint64_t *)data += count;
}

static uint64_t calls_of_another_stack(void)
{
    uint64_t before = 0, after = 0;
    strata_runtime *runtime;
    strata_driver_visit_calls(count_all, &before);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &runtime));
    strata_driver_visit_calls(count_all, &after);
    child_ok(strata_runtime_destroy(runtime));
    return after - before;
}

static void child_an_owner_that_has_given_all_up_is_asked_without_a_call(void)
{
    enum { RESETS = 4 };
    scene *of = scene_of_child();
    strata_runtime *before[RESETS];
    child_ok(strata_driver_count_calls());
    test_open_driver_quietly();
    test_make_current();
    for (int i = 0; i < RESETS; i++) {
        child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &before[i]));
        child_ok(strata_runtime_allocate(before[i], SMALL, NULL, &of->other));
        child_ok(strata_runtime_allocate(before[i], SMALL, NULL, &of->live));
        child_ok(strata_runtime_deallocate(before[i], &of->live));
        reset(of);
        child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    }
    calls_of_another_stack(); /* the last one gives its memory back */
    const uint64_t beside = calls_of_another_stack();
    for (int i = 0; i < RESETS; i++)
        child_ok(strata_runtime_destroy(before[i]));
    child_check(beside == calls_of_another_stack());
}

/* Another stream may have its timeline by then, and another object its handle. */
static void child_a_batch_of_a_stream_of_before_records_nothing(void)
{
    scene *of = scene_of_child();
    strata_runtime *next;
    strata_device *device;
    uint64_t before = 0, after = 0;
    child_ok(strata_driver_count_calls());
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &of->runtime));
    child_ok(strata_device_get(0, &device));
    child_check(strata_cu.StreamCreate(&of->own, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_ok(strata_batch_begin(device, of->own, true));
    reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &next));
    strata_driver_visit_calls(count_all, &before);
    child_status(strata_batch_end(), STRATA_ERROR_DEVICE_RESET);
    strata_driver_visit_calls(count_all, &after);
    child_check(after == before);
    test_make_current();
    use(next);
    child_ok(strata_runtime_destroy(next));
    child_ok(strata_runtime_destroy(of->runtime));
}

/* A reset later on is a reset again. */
static void child_resets_can_follow_each_other(void)
{
    scene *of = scene_of_child();
    for (int i = 0; i < 3; i++) {
        open_and_reset(of);
        child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
        free_all_and_end(of);
    }
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &of->runtime));
    test_make_current();
    use(of->runtime);
}

/* A thread whose calls nothing orders with those of the thread that opens the device again. */
typedef struct user_beside {
    scene *of;
    _Atomic bool used, opened; /* relaxed: they order nothing */
} user_beside;

static void wait_for(const _Atomic bool *flag)
{
    while (!atomic_load_explicit(flag, memory_order_relaxed))
        usleep(100);
}

static void *use_beside(void *data)
{
    user_beside *self = data;
    strata_runtime *runtime = self->of->runtime;
    strata_block block;
    test_make_current();
    child_ok(strata_runtime_allocate(runtime, SMALL, self->of->pooled, &block));
    child_ok(strata_runtime_prepare_block_use(runtime, &block, self->of->pooled, STRATA_ACCESS_WRITE));
    child_ok(strata_runtime_finish_block_use(runtime, &block, self->of->pooled, STRATA_ACCESS_WRITE));
    atomic_store_explicit(&self->used, true, memory_order_relaxed);
    wait_for(&self->opened);
    child_ok(strata_runtime_deallocate(runtime, &block));
    return NULL;
}

/* The timelines of the streams of before are the next ones'. */
static void child_the_device_is_opened_again_beside_a_use(void)
{
    enum { STREAMS = 4 };
    scene *of = scene_of_child();
    user_beside self = {.of = of};
    strata_runtime *next;
    CUstream streams[STREAMS];
    pthread_t thread;
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &of->runtime));
    child_ok(strata_runtime_stream_acquire(of->runtime, &of->pooled));
    child_check(pthread_create(&thread, NULL, use_beside, &self) == 0);
    wait_for(&self.used);
    reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &next));
    for (int i = 0; i < STREAMS; i++)
        child_ok(strata_runtime_stream_acquire(next, &streams[i]));
    atomic_store_explicit(&self.opened, true, memory_order_relaxed);
    child_check(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < STREAMS; i++)
        child_ok(strata_runtime_stream_release(next, streams[i]));
    child_ok(strata_runtime_destroy(next));
    child_ok(strata_runtime_destroy(of->runtime));
}

/* Pools and mapped memory outlive the context, and would stay with the process. */
static void child_a_runtime_that_ends_gives_back_what_it_held_free(void)
{
    scene *of = scene_of_child();
    size_t free_before, free_after, total;
    CUcontext context;
    test_open_driver_quietly();
    child_check(strata_cu.MemGetInfo(&free_before, &total) == CUDA_SUCCESS);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &of->runtime));
    child_ok(strata_runtime_allocate(of->runtime, BYTES, NULL, &of->live));
    child_ok(strata_runtime_deallocate(of->runtime, &of->live));
    reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_destroy(of->runtime));
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
    child_check(strata_cu.MemGetInfo(&free_after, &total) == CUDA_SUCCESS);
    child_check(free_after >= free_before);
}

/* A runtime that has handed out nothing by events, then a reset that no call fails for. */
static void reset_unseen(scene *of)
{
    strata_block block;
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &of->runtime));
    for (int i = 0; i < 3; i++) {
        child_ok(strata_runtime_allocate(of->runtime, SMALL, NULL, &block));
        child_ok(strata_runtime_deallocate(of->runtime, &block));
    }
    of->when = ANEW;
    reset(of);
}

/* A guard would find what is in the memory that had its checks' results. */
static void expect_no_finding(strata_runtime *runtime)
{
    strata_guard_finding finding;
    child_check(!strata_guard_take_finding(strata_stack_top(strata_runtime_stack(runtime)), &finding));
}

static void child_a_new_stream_finds_a_reset(void)
{
    scene *of = scene_of_child();
    strata_block block;
    CUevent event;
    reset_unseen(of);
    for (int i = 0; i < 8; i++) { /* some have handles of streams and events that Strata had */
        child_check(strata_cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
        child_check(strata_cu.StreamCreate(&of->own, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    }
    child_status(strata_runtime_allocate(of->runtime, SMALL, of->own, &block), STRATA_ERROR_DEVICE_RESET);
    child_check(block.address == 0);
    expect_no_finding(of->runtime);
    child_ok(strata_runtime_destroy(of->runtime));
}

/* What a guard would write and read for its checks is pinned memory of before. */
static void guard_finds_a_reset(strata_status (*call)(strata_resource *top))
{
    scene *of = scene_of_child();
    reset_unseen(of);
    child_status(call(strata_stack_top(strata_runtime_stack(of->runtime))), STRATA_ERROR_DEVICE_RESET);
    expect_no_finding(of->runtime);
    child_ok(strata_runtime_destroy(of->runtime));
}

static strata_status check_all(strata_resource *top)
{
    return strata_guard_check(top, NULL);
}

static strata_status reap_finished(strata_resource *top)
{
    size_t bytes;
    return top->ops->reap(top, STRATA_REAP_FINISHED, &bytes);
}

static strata_status reap_all(strata_resource *top)
{
    size_t bytes;
    return top->ops->reap(top, STRATA_REAP_WAIT, &bytes);
}

static void child_a_check_finds_a_reset(void)
{
    guard_finds_a_reset(check_all);
}

static void child_a_guard_that_polls_finds_a_reset(void)
{
    guard_finds_a_reset(reap_finished);
}

static void child_a_guard_that_waits_finds_a_reset(void)
{
    guard_finds_a_reset(reap_all);
}

static void child_a_registration_finds_a_reset(void)
{
    scene *of = scene_of_child();
    reset_unseen(of);
    child_check(strata_cu.StreamCreate(&of->own, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_status(strata_runtime_register_stream(of->runtime, of->own), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_destroy(of->runtime));
}

static void child_a_request_that_needs_new_memory_finds_a_reset(void)
{
    scene *of = scene_of_child();
    strata_block block;
    reset_unseen(of);
    child_status(strata_runtime_allocate(of->runtime, 128 * (size_t)BYTES, NULL, &block), STRATA_ERROR_DEVICE_RESET);
    child_check(block.address == 0);
    child_ok(strata_runtime_destroy(of->runtime));
}

static void child_a_program_that_resets_no_device_is_told_so(void)
{
    test_open_driver_quietly();
    child_ok(strata_device_check(0)); /* not used yet */
    strata_runtime *runtime;
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_device_check(0));
    child_status(strata_device_check(-1), STRATA_ERROR_INVALID_VALUE);
}

/* On every owner, and on layers with streams, kernels or maps of their own, at both moments. */
static void run_everywhere(const char *scenario)
{
    static const char *const stacks[] = {"async",
                                         "direct",
                                         "pool",
                                         "pool, async",
                                         "pool, direct",
                                         "pinned",
                                         "managed",
                                         "binning, direct",
                                         "guard, async",
                                         "guard(sample=1), direct",
                                         "budget(limit=1GiB), statistics, pool"};
    run_on(scenario, stacks, sizeof stacks / sizeof stacks[0]);
}

static void calls_answer_that_the_device_was_reset(void **state)
{
    (void)state;
    run_everywhere("child_calls_answer_that_the_device_was_reset");
}

static void memory_that_is_gone_is_not_handed_out(void **state)
{
    (void)state;
    run_everywhere("child_memory_that_is_gone_is_not_handed_out");
}

static void blocks_can_be_freed_and_the_runtime_can_be_ended(void **state)
{
    (void)state;
    run_everywhere("child_blocks_can_be_freed_and_the_runtime_can_be_ended");
}

static void the_runtime_can_be_ended_at_once(void **state)
{
    (void)state;
    run_everywhere("child_the_runtime_can_be_ended_at_once");
}

static void a_new_runtime_works(void **state)
{
    (void)state;
    run_everywhere("child_a_new_runtime_works");
}

static void the_devices_own_runtime_is_made_again(void **state)
{
    (void)state;
    test_child_run("child_the_devices_own_runtime_is_made_again", NULL);
}

static void memory_of_the_devices_own_runtime_goes_back(void **state)
{
    (void)state;
    static const char *const stacks[] = {"pool",
                                         "async",
                                         "pool, async",
                                         "pool, direct",
                                         "guard, pool",
                                         "direct",
                                         "binning, direct",
                                         "guard(sample=1), direct",
                                         "budget(limit=1GiB), statistics, pool"};
    run_on("child_memory_of_the_devices_own_runtime_goes_back", stacks, sizeof stacks / sizeof stacks[0]);
}

static void an_owner_that_has_given_all_up_is_asked_without_a_call(void **state)
{
    (void)state;
    static const char *const stacks[] = {"pool", "async", "async(pool=default)", "pool, async"};
    run_on("child_an_owner_that_has_given_all_up_is_asked_without_a_call", stacks, sizeof stacks / sizeof stacks[0]);
}

static void the_next_stack_asks_for_no_stream_of_before(void **state)
{
    (void)state;
    static const char *const more[] = {"binning, async"};
    run_everywhere("child_the_next_stack_asks_for_no_stream_of_before");
    run_on("child_the_next_stack_asks_for_no_stream_of_before", more, 1);
}

static void a_batch_of_a_stream_of_before_records_nothing(void **state)
{
    (void)state;
    static const char *const stacks[] = {"async", "direct", "pool"};
    run_on("child_a_batch_of_a_stream_of_before_records_nothing", stacks, sizeof stacks / sizeof stacks[0]);
}

static void resets_can_follow_each_other(void **state)
{
    (void)state;
    run_everywhere("child_resets_can_follow_each_other");
}

static void the_device_is_opened_again_beside_a_use(void **state)
{
    (void)state;
    run_everywhere("child_the_device_is_opened_again_beside_a_use");
}

static void a_runtime_that_ends_gives_back_what_it_held_free(void **state)
{
    (void)state;
    static const char *const stacks[] = {"async", "pool"};
    run_on("child_a_runtime_that_ends_gives_back_what_it_held_free", stacks, sizeof stacks / sizeof stacks[0]);
}

static void a_new_stream_finds_a_reset(void **state)
{
    (void)state;
    run_everywhere("child_a_new_stream_finds_a_reset");
}

static void a_guard_finds_a_reset(void **state)
{
    (void)state;
    static const char *const stacks[] = {"guard, async", "guard(kernel=off), pool"};
    run_on("child_a_check_finds_a_reset", stacks, 2);
    run_on("child_a_guard_that_polls_finds_a_reset", stacks, 2);
    run_on("child_a_guard_that_waits_finds_a_reset", stacks, 2);
}

static void a_registration_finds_a_reset(void **state)
{
    (void)state;
    run_everywhere("child_a_registration_finds_a_reset");
}

static void a_request_that_needs_new_memory_finds_a_reset(void **state)
{
    (void)state;
    static const char *const stacks[] = {
        "direct", "pool",    "pool, async",     "pool, direct",
        "pinned", "managed", "binning, direct", "budget(limit=1GiB), statistics, pool"};
    run_on("child_a_request_that_needs_new_memory_finds_a_reset", stacks, sizeof stacks / sizeof stacks[0]);
}

static void a_program_that_resets_no_device_is_told_so(void **state)
{
    (void)state;
    test_child_run("child_a_program_that_resets_no_device_is_told_so", NULL);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(child_calls_answer_that_the_device_was_reset),
        TEST_SCENARIO(child_memory_that_is_gone_is_not_handed_out),
        TEST_SCENARIO(child_blocks_can_be_freed_and_the_runtime_can_be_ended),
        TEST_SCENARIO(child_the_runtime_can_be_ended_at_once),
        TEST_SCENARIO(child_a_new_runtime_works),
        TEST_SCENARIO(child_the_devices_own_runtime_is_made_again),
        TEST_SCENARIO(child_memory_of_the_devices_own_runtime_goes_back),
        TEST_SCENARIO(child_the_next_stack_asks_for_no_stream_of_before),
        TEST_SCENARIO(child_an_owner_that_has_given_all_up_is_asked_without_a_call),
        TEST_SCENARIO(child_a_batch_of_a_stream_of_before_records_nothing),
        TEST_SCENARIO(child_resets_can_follow_each_other),
        TEST_SCENARIO(child_the_device_is_opened_again_beside_a_use),
        TEST_SCENARIO(child_a_runtime_that_ends_gives_back_what_it_held_free),
        TEST_SCENARIO(child_a_new_stream_finds_a_reset),
        TEST_SCENARIO(child_a_check_finds_a_reset),
        TEST_SCENARIO(child_a_guard_that_polls_finds_a_reset),
        TEST_SCENARIO(child_a_guard_that_waits_finds_a_reset),
        TEST_SCENARIO(child_a_registration_finds_a_reset),
        TEST_SCENARIO(child_a_request_that_needs_new_memory_finds_a_reset),
        TEST_SCENARIO(child_a_program_that_resets_no_device_is_told_so),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_answer_that_the_device_was_reset),
        cmocka_unit_test(memory_that_is_gone_is_not_handed_out),
        cmocka_unit_test(blocks_can_be_freed_and_the_runtime_can_be_ended),
        cmocka_unit_test(the_runtime_can_be_ended_at_once),
        cmocka_unit_test(a_new_runtime_works),
        cmocka_unit_test(the_devices_own_runtime_is_made_again),
        cmocka_unit_test(memory_of_the_devices_own_runtime_goes_back),
        cmocka_unit_test(the_next_stack_asks_for_no_stream_of_before),
        cmocka_unit_test(an_owner_that_has_given_all_up_is_asked_without_a_call),
        cmocka_unit_test(a_batch_of_a_stream_of_before_records_nothing),
        cmocka_unit_test(resets_can_follow_each_other),
        cmocka_unit_test(the_device_is_opened_again_beside_a_use),
        cmocka_unit_test(a_runtime_that_ends_gives_back_what_it_held_free),
        cmocka_unit_test(a_new_stream_finds_a_reset),
        cmocka_unit_test(a_guard_finds_a_reset),
        cmocka_unit_test(a_registration_finds_a_reset),
        cmocka_unit_test(a_request_that_needs_new_memory_finds_a_reset),
        cmocka_unit_test(a_program_that_resets_no_device_is_told_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
