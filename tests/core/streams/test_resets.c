/* Resets of the primary context (cuDevicePrimaryCtxReset, cudaDeviceReset): what Strata answers from then on, how its
 * objects end, and that new ones work. Each case resets the context of a process of its own. */
#include "support/child.h"
#include "support/driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 1 << 20, SMALL = 4096 };

/* How the context is when Strata is called again. */
typedef enum moment {
    ENDED, /* nothing has used the device since the reset */
    ANEW,  /* another module has begun the context again, under the same handle */
} moment;

typedef struct scene {
    const char *stack;
    moment when;
    bool opened; /* the driver */
    strata_runtime *runtime;
    CUstream pooled, own;
    strata_block live, other;
} scene;

static scene *scene_of_child(void)
{
    static scene of_child;
    of_child = (scene){.stack = getenv("TEST_STACK"), .when = getenv("TEST_ANEW") ? ANEW : ENDED};
    return &of_child;
}

static void reset(const scene *of)
{
    CUcontext context;
    child_check(strata_cu.DevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    if (of->when != ANEW)
        return;
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
}

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

static void use(strata_runtime *runtime)
{
    CUstream stream, own;
    strata_block block;
    unsigned char bytes[SMALL] = {0};
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    child_check(strata_cu.StreamCreate(&own, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_ok(strata_runtime_register_stream(runtime, own));
    child_ok(strata_runtime_allocate(runtime, SMALL, stream, &block));
    child_check(strata_cu.MemsetD8Async(block.address, 0x5a, SMALL, stream) == CUDA_SUCCESS);
    child_ok(strata_runtime_prepare_block_use(runtime, &block, own, STRATA_ACCESS_READ));
    child_check(strata_cu.MemcpyDtoHAsync(bytes, block.address, SMALL, own) == CUDA_SUCCESS);
    child_ok(strata_runtime_finish_block_use(runtime, &block, own, STRATA_ACCESS_READ));
    child_check(strata_cu.StreamSynchronize(own) == CUDA_SUCCESS);
    child_check(bytes[0] == 0x5a && bytes[SMALL - 1] == 0x5a);
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_ok(strata_runtime_unregister_stream(runtime, own));
    child_check(strata_cu.StreamDestroy(own) == CUDA_SUCCESS);
    child_ok(strata_runtime_stream_release(runtime, stream));
    child_ok(strata_runtime_reap_pending(runtime));
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
static void run_on(const char *scenario, const char *const *stacks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (moment when = ENDED; when <= ANEW; when++) {
            char stack[80];
            snprintf(stack, sizeof stack, "TEST_STACK=%s", stacks[i]);
            const char *const changes[] = {stack, when == ANEW ? "TEST_ANEW=1" : "TEST_ANEW", NULL};
            printf("%s, %s\n", stacks[i], when == ANEW ? "begun anew" : "ended");
            test_child_run(scenario, changes);
        }
}

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

/* ---- a shared budget, which the process keeps open ---- */

static void count_writes(const char *name, uint64_t count, void *data)
{
    if (strcmp(name, "cuStreamWriteValue64") == 0)
        *(uint64_t *)data += count;
}

static uint64_t writes_so_far(void)
{
    uint64_t count = 0;
    strata_driver_visit_calls(count_writes, &count);
    return count;
}

/* Frees that the streams report to other processes. */
static void free_often(strata_runtime *runtime)
{
    CUstream stream;
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    for (int i = 0; i < 8; i++) {
        strata_block block;
        child_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
        child_ok(strata_runtime_deallocate(runtime, &block));
    }
    child_ok(strata_runtime_stream_release(runtime, stream));
    child_ok(strata_runtime_reap_pending(runtime));
}

static void child_a_shared_budget_writes_nowhere_after_a_reset(void)
{
    scene *of = scene_of_child();
    strata_runtime *before, *after;
    child_ok(strata_driver_count_calls());
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &before));
    free_often(before);
    const uint64_t writes = writes_so_far();
    if (!writes)
        exit(77); /* the driver does not map the words */
    reset(of);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &after));
    free_often(after);
    child_check(writes_so_far() == writes);
    child_ok(strata_runtime_destroy(after));
    child_ok(strata_runtime_destroy(before));
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &after));
    free_often(after);
    child_check(writes_so_far() > writes); /* the file was opened anew */
    child_ok(strata_runtime_destroy(after));
}

static strata_budget_account *base_of(strata_runtime *runtime)
{
    return strata_budget_base(strata_stack_layer(strata_runtime_stack(runtime), "budget", 0));
}

static uint64_t shared_use(strata_runtime *runtime)
{
    strata_budget_usage usage;
    child_ok(strata_budget_account_usage(base_of(runtime), &usage));
    return usage.in_use;
}

/* A live block, one of an account, and one whose free waits for a stream; a reservation stays until it is closed. */
static void child_a_shared_budget_forgets_what_a_reset_has_ended(void)
{
    scene *of = scene_of_child();
    strata_runtime *before, *after;
    strata_budget_account *tenant, *reservation;
    strata_block freed;
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &before));
    child_ok(strata_budget_account_open(base_of(before), &(strata_budget_account_options){.name = "tenant"}, &tenant));
    child_ok(strata_budget_reserve(base_of(before), SMALL, "reservation", &reservation));
    child_ok(strata_runtime_allocate(before, BYTES, NULL, &of->live));
    child_ok(strata_runtime_allocate_request(before, &(strata_request){.bytes = BYTES, .account = tenant}, &of->other));
    child_ok(strata_runtime_allocate(before, BYTES, NULL, &freed));
    child_check(strata_cu.MemsetD8Async(freed.address, 1, BYTES, NULL) == CUDA_SUCCESS);
    child_ok(strata_runtime_deallocate(before, &freed));
    reset(of);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &after));
    child_check(shared_use(after) == SMALL);
    child_ok(strata_runtime_deallocate(before, &of->live));
    child_ok(strata_budget_account_close(reservation));
    child_check(shared_use(after) == 0);
    child_ok(strata_budget_account_close(tenant));
    child_ok(strata_runtime_deallocate(before, &of->other));
    child_ok(strata_runtime_destroy(before));
    child_check(shared_use(after) == 0);
    child_ok(strata_runtime_allocate(after, BYTES, NULL, &of->live));
    child_check(shared_use(after) == BYTES);
}

/* The driver's pool keeps the memory, which can be freed once the context has begun anew: the next stack does that. */
static void child_a_shared_budget_keeps_what_outlives_a_reset(void)
{
    scene *of = scene_of_child();
    strata_runtime *before, *beside, *after;
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &before));
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &beside)); /* keeps the file */
    child_ok(strata_runtime_allocate(before, BYTES, NULL, &of->live));
    reset(of);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    if (of->when == ENDED)
        child_ok(strata_runtime_destroy(before));
    child_check(shared_use(beside) >= BYTES);
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = of->stack}, &after));
    child_check(shared_use(after) == (of->when == ENDED ? BYTES : 0)); /* the stack that has ended cannot give it */
    if (of->when == ENDED)
        return;
    child_ok(strata_runtime_deallocate(before, &of->live));
    child_ok(strata_runtime_destroy(before));
    child_check(shared_use(after) == 0);
}

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
    child_check(!strata_holds(memory));
    child_ok(strata_runtime_allocate(next, AS_LARGE, NULL, &block));
    child_check(strata_cu.MemsetD8Async(block.address, 1, AS_LARGE, NULL) == CUDA_SUCCESS);
    child_ok(strata_runtime_deallocate(next, &block));
}

static void with_shared_budgets(const char *scenario, const char *const *stacks, size_t count)
{
    char directory[] = "/tmp/strata-resets-XXXXXX", command[64];
    assert_non_null(mkdtemp(directory));
    setenv("STRATA_SHARED_DIR", directory, 1);
    run_on(scenario, stacks, count);
    unsetenv("STRATA_SHARED_DIR");
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

static void a_shared_budget_writes_nowhere_after_a_reset(void **state)
{
    (void)state;
    static const char *const stacks[] = {"budget(limit=64MiB, shared=reset), async"};
    with_shared_budgets("child_a_shared_budget_writes_nowhere_after_a_reset", stacks, 1);
}

static void a_shared_budget_forgets_what_a_reset_has_ended(void **state)
{
    (void)state;
    static const char *const stacks[] = {"budget(limit=64MiB, shared=reset), pool",
                                         "budget(limit=64MiB, shared=reset), direct"};
    with_shared_budgets("child_a_shared_budget_forgets_what_a_reset_has_ended", stacks, 2);
}

static void a_shared_budget_keeps_what_outlives_a_reset(void **state)
{
    (void)state;
    static const char *const stacks[] = {"budget(limit=64MiB, shared=reset), async"};
    with_shared_budgets("child_a_shared_budget_keeps_what_outlives_a_reset", stacks, 1);
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
        TEST_SCENARIO(child_a_shared_budget_writes_nowhere_after_a_reset),
        TEST_SCENARIO(child_a_shared_budget_forgets_what_a_reset_has_ended),
        TEST_SCENARIO(child_a_shared_budget_keeps_what_outlives_a_reset),
        TEST_SCENARIO(child_the_driver_s_pool_has_nothing_left_of_before_a_reset),
        TEST_SCENARIO(child_memory_that_the_driver_has_given_out_since_is_none_of_before),
        TEST_SCENARIO(child_memory_inside_a_block_of_before_is_the_driver_s),
        TEST_SCENARIO(child_memory_that_a_pool_has_again_is_not_the_driver_s),
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
        cmocka_unit_test(resets_can_follow_each_other),
        cmocka_unit_test(the_device_is_opened_again_beside_a_use),
        cmocka_unit_test(a_runtime_that_ends_gives_back_what_it_held_free),
        cmocka_unit_test(a_new_stream_finds_a_reset),
        cmocka_unit_test(a_guard_finds_a_reset),
        cmocka_unit_test(a_registration_finds_a_reset),
        cmocka_unit_test(a_request_that_needs_new_memory_finds_a_reset),
        cmocka_unit_test(a_program_that_resets_no_device_is_told_so),
        cmocka_unit_test(a_shared_budget_writes_nowhere_after_a_reset),
        cmocka_unit_test(a_shared_budget_forgets_what_a_reset_has_ended),
        cmocka_unit_test(a_shared_budget_keeps_what_outlives_a_reset),
        cmocka_unit_test(the_driver_s_pool_has_nothing_left_of_before_a_reset),
        cmocka_unit_test(memory_that_the_driver_has_given_out_since_is_none_of_before),
        cmocka_unit_test(memory_inside_a_block_of_before_is_the_driver_s),
        cmocka_unit_test(memory_that_a_pool_has_again_is_not_the_driver_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
