/* The guard's calls among others: how much a call does while others free, what is told of findings in the middle of a
 * try, and how a process ends of one. */
#include "core/base/error.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/child.h"
#include "support/effort.h"

enum { BYTES = 5000, BLOCKS = 4 };

/* ---- a layer below the guard: while it is asked for a use, others free ---- */

enum { MOST_FREED = 200 };

typedef struct meddler {
    strata_resource resource;
    strata_runtime *runtime;
    bool meddles, busy;
    size_t freed; /* meanwhile */
} meddler;

static void free_another(meddler *self)
{
    strata_block block;
    if (self->busy || self->freed == MOST_FREED)
        return;
    self->busy = true;
    check_ok(strata_runtime_allocate(self->runtime, BYTES, NULL, &block));
    check_ok(strata_runtime_deallocate(self->runtime, &block));
    self->freed++;
    self->busy = false;
}

static strata_status meddle_with_use(strata_resource *resource, const strata_block *block, CUstream stream,
                                     strata_access access)
{
    if (((meddler *)resource)->meddles)
        free_another((meddler *)resource);
    return resource->upstream->ops->prepare_use(resource->upstream, block, stream, access);
}

static void no_end(strata_resource *resource)
{
    (void)resource;
}

static const strata_resource_ops meddler_ops = {
    .size = sizeof meddler_ops,
    .name = "meddler",
    .prepare_use = meddle_with_use,
    .destroy = no_end,
};

static void meddler_begin(meddler *self)
{
    strata_resource *layers[3] = {NULL, &self->resource, NULL};
    strata_stack *stack;
    *self = (meddler){.resource.ops = &meddler_ops};
    check_ok(strata_guard_create(0, &(strata_guard_options){.no_debuggers = 1}, &layers[0]));
    check_ok(strata_async_create(0, NULL, &layers[2]));
    check_ok(strata_stack_build(layers, 3, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &self->runtime));
}

static uint64_t value(strata_runtime *runtime, const char *name)
{
    uint64_t value;
    check_ok(strata_control(strata_runtime_stack(runtime), name, &value, NULL));
    return value;
}

static void free_some(strata_runtime *runtime)
{
    strata_block blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &blocks[i]));
    for (size_t i = 0; i < BLOCKS; i++)
        check_ok(strata_runtime_deallocate(runtime, &blocks[i]));
}

static void a_reap_gives_back_what_was_freed_before_it(void **state)
{
    meddler self;
    (void)state;
    meddler_begin(&self);
    free_some(self.runtime);
    self.meddles = true;
    check_ok(strata_runtime_reap_pending(self.runtime));
    assert_int_equal(self.freed, BLOCKS); /* one for each block that was checked */
    assert_int_equal(value(self.runtime, "guard.quarantined_blocks"), self.freed);
    self.meddles = false;
    check_ok(strata_runtime_reap_pending(self.runtime));
    assert_int_equal(value(self.runtime, "guard.quarantined_blocks"), 0);
    check_ok(strata_runtime_destroy(self.runtime));
}

static void a_check_looks_at_what_was_freed_before_it(void **state)
{
    meddler self;
    strata_resource *top;
    (void)state;
    meddler_begin(&self);
    top = strata_stack_top(strata_runtime_stack(self.runtime));
    free_some(self.runtime);
    self.meddles = true;
    check_ok(strata_guard_check(top, NULL));
    assert_int_equal(self.freed, BLOCKS);
    self.meddles = false;
    check_ok(strata_guard_check(top, NULL));
    check_ok(strata_runtime_destroy(self.runtime));
}

/* ---- wrong frees by address ---- */

static const char *const address_stacks[] = {
    "guard, async",
    "guard, pool",
    "guard(quarantine=off), direct",
    "budget, logging(format=memory), statistics, guard, async",
    "guard(sample=1), async",
    "guard(sample=1), pool",
    "guard, guard(sample=1), direct",
};

enum { ADDRESS_STACKS = sizeof address_stacks / sizeof address_stacks[0] };

/* The only finding since the last call. */
static strata_guard_finding only_finding(strata_runtime *runtime)
{
    strata_guard_finding finding, more;
    strata_resource *top = strata_stack_top(strata_runtime_stack(runtime));
    assert_true(strata_guard_take_finding(top, &finding));
    assert_false(strata_guard_take_finding(top, &more));
    return finding;
}

static strata_runtime *runtime_over(const char *text)
{
    strata_runtime *runtime;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    return runtime;
}

static void a_double_free_by_address_makes_a_finding_with_the_first_free(void **state)
{
    (void)state;
    for (size_t i = 0; i < ADDRESS_STACKS; i++) {
        strata_runtime *runtime = runtime_over(address_stacks[i]);
        strata_block block;
        check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
        check_ok(strata_runtime_deallocate_address(runtime, block.address, NULL));
        check_status(strata_runtime_deallocate_address(runtime, block.address, NULL), STRATA_ERROR_FOREIGN_POINTER);
        strata_guard_finding finding = only_finding(runtime);
        assert_int_equal(finding.kind, STRATA_GUARD_DOUBLE_FREE);
        assert_true(finding.freed && finding.freed_at && finding.allocated_at && finding.found_at);
        assert_int_equal(finding.block.address, block.address);
        assert_int_equal(finding.block.requested, BYTES);
        assert_int_equal(finding.block.id.generation, block.id.generation);
        check_ok(strata_runtime_reap_pending(runtime)); /* the block has left the quarantine */
        check_status(strata_runtime_deallocate_address(runtime, block.address, NULL), STRATA_ERROR_FOREIGN_POINTER);
        assert_int_equal(only_finding(runtime).kind, STRATA_GUARD_DOUBLE_FREE);
        check_ok(strata_runtime_destroy(runtime));
    }
}

static void a_foreign_free_by_address_makes_a_finding(void **state)
{
    (void)state;
    for (size_t i = 0; i < ADDRESS_STACKS; i++) {
        strata_runtime *runtime = runtime_over(address_stacks[i]);
        strata_block block;
        check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
        const CUdeviceptr addresses[] = {block.address + 16, block.address + BYTES, block.address - 8};
        for (size_t k = 0; k < 3; k++) {
            check_status(strata_runtime_deallocate_address(runtime, addresses[k], NULL), STRATA_ERROR_FOREIGN_POINTER);
            strata_guard_finding finding = only_finding(runtime);
            assert_int_equal(finding.kind, STRATA_GUARD_FOREIGN_FREE);
            assert_int_equal(finding.block.address, addresses[k]);
            assert_true(finding.found_at && !finding.allocated_at && !finding.freed);
        }
        check_ok(strata_runtime_deallocate(runtime, &block));
        check_ok(strata_runtime_destroy(runtime));
    }
}

/* A search is no free, and an address that has another block now is the other's. */
static void a_search_or_a_free_of_a_reused_address_makes_no_finding(void **state)
{
    (void)state;
    strata_runtime *runtime = runtime_over("guard(quarantine=off), direct");
    strata_guard_finding finding;
    strata_block block, again = {0};
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    check_ok(strata_runtime_deallocate_address(runtime, block.address, NULL));
    check_status(strata_runtime_find(runtime, block.address, &again), STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_reap_pending(runtime));
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &again));
    check_ok(strata_runtime_deallocate_address(runtime, again.address, NULL));
    assert_false(strata_guard_take_finding(strata_stack_top(strata_runtime_stack(runtime)), &finding));
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- threads that free all the time ---- */

enum { THREADS = 2, ROUNDS = 10 };

typedef struct freer {
    strata_runtime *runtime;
    _Atomic bool *over;
    size_t failures;
} freer;

static void *free_all_the_time(void *data)
{
    freer *self = data;
    test_make_current();
    while (!atomic_load(self->over) && !self->failures) {
        strata_block block;
        self->failures += strata_runtime_allocate(self->runtime, BYTES, NULL, &block) != STRATA_SUCCESS ||
                          strata_runtime_deallocate(self->runtime, &block) != STRATA_SUCCESS;
    }
    return NULL;
}

static void reaps_and_checks_end_while_threads_go_on_freeing(void **state)
{
    strata_runtime *runtime;
    pthread_t threads[THREADS];
    freer freers[THREADS];
    _Atomic bool over = false;
    (void)state;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    for (size_t i = 0; i < THREADS; i++) {
        freers[i] = (freer){.runtime = runtime, .over = &over};
        assert_int_equal(pthread_create(&threads[i], NULL, free_all_the_time, &freers[i]), 0);
    }
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < test_effort(ROUNDS, 3) && status == STRATA_SUCCESS; i++) {
        status = strata_runtime_reap_pending(runtime);
        if (status == STRATA_SUCCESS)
            status = strata_guard_check(strata_stack_top(strata_runtime_stack(runtime)), NULL);
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(freers[i].failures, 0);
    check_ok(status);
    check_ok(strata_runtime_reap_pending(runtime));
    assert_true(strata_runtime_bytes_outstanding(runtime) == 0);
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- a guard above another one, which is checked ---- */

static struct {
    strata_runtime *runtime;
    strata_block blocks[BLOCKS];
    CUstream streams[BLOCKS];
    pthread_t checks;
    PFN_cuStreamWaitEvent_v3020 wait;
    PFN_cuLaunchKernel_v4000 launch;
    strata_status statuses[BLOCKS];
    size_t freed;
} meanwhile;

/* Frees the next block on its stream. */
static void *free_next(void *data)
{
    (void)data;
    test_make_current();
    const size_t next = meanwhile.freed++;
    meanwhile.statuses[next] =
        strata_runtime_deallocate_on(meanwhile.runtime, &meanwhile.blocks[next], meanwhile.streams[next]);
    return NULL;
}

static void free_in_another_thread(size_t at)
{
    pthread_t thread;
    if (pthread_equal(pthread_self(), meanwhile.checks) && meanwhile.freed == at &&
        pthread_create(&thread, NULL, free_next, NULL) == 0)
        pthread_join(thread, NULL);
}

/* A block of the batch has been waited for. */
static CUresult CUDAAPI wait_beside_frees(CUstream stream, CUevent event, unsigned flags)
{
    free_in_another_thread(0);
    return meanwhile.wait(stream, event, flags);
}

/* All have. */
static CUresult CUDAAPI launch_beside_frees(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned bx,
                                            unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                            void **parameters, void **extra)
{
    free_in_another_thread(1);
    return meanwhile.launch(function, x, y, z, bx, by, bz, shared, stream, parameters, extra);
}

static void prepare_frees(const char *text)
{
    memset(&meanwhile, 0, sizeof meanwhile);
    meanwhile.runtime = runtime_over(text);
    for (size_t i = 0; i < BLOCKS; i++) {
        check_ok(strata_runtime_stream_acquire(meanwhile.runtime, &meanwhile.streams[i]));
        check_ok(strata_runtime_allocate(meanwhile.runtime, BYTES, meanwhile.streams[i], &meanwhile.blocks[i]));
    }
    meanwhile.checks = pthread_self();
    meanwhile.wait = strata_cu.StreamWaitEvent;
    meanwhile.launch = strata_cu.LaunchKernel;
    strata_cu.StreamWaitEvent = wait_beside_frees;
    strata_cu.LaunchKernel = launch_beside_frees;
}

/* What the user frees stays in the upper guard's quarantine: it lives on below, under another identity. */
static void a_free_beside_a_check_of_the_guard_below_and_the_check_succeed(void **state)
{
    (void)state;
    prepare_frees("guard, guard, async");
    size_t findings;
    strata_resource *lower = strata_stack_layer(strata_runtime_stack(meanwhile.runtime), "guard", 1);
    const strata_status status = strata_guard_check(lower, &findings);
    strata_cu.StreamWaitEvent = meanwhile.wait;
    strata_cu.LaunchKernel = meanwhile.launch;
    check_ok(status);
    assert_true(meanwhile.freed == 2 && findings == 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        check_ok(meanwhile.statuses[i]);
        if (i >= meanwhile.freed)
            check_ok(strata_runtime_deallocate(meanwhile.runtime, &meanwhile.blocks[i]));
        check_ok(strata_runtime_stream_release(meanwhile.runtime, meanwhile.streams[i]));
    }
    check_ok(strata_runtime_reap_pending(meanwhile.runtime));
    assert_true(strata_runtime_bytes_outstanding(meanwhile.runtime) == 0);
    check_ok(strata_runtime_destroy(meanwhile.runtime));
}

/* ---- an owner that tracks uses by itself ---- */

static struct {
    strata_resource_ops ops;
    size_t prepared, finished;
} tracker;

static strata_status track_prepare(strata_resource *owner, const strata_block *block, CUstream stream,
                                   strata_access access)
{
    tracker.prepared++;
    return strata_block_prepare_use(owner, block, stream, access);
}

static strata_status track_finish(strata_resource *owner, const strata_block *block, CUstream stream,
                                  strata_access access)
{
    tracker.finished++;
    return strata_block_finish_use(owner, block, stream, access);
}

static void an_owner_that_tracks_uses_hears_of_checks_of_live_blocks(void **state)
{
    (void)state;
    strata_resource *layers[2];
    strata_stack *stack;
    strata_block blocks[BLOCKS];
    check_ok(strata_guard_create(0, &(strata_guard_options){.no_debuggers = 1}, &layers[0]));
    check_ok(strata_direct_create(0, NULL, &layers[1]));
    tracker.ops = *layers[1]->ops;
    tracker.ops.prepare_use = track_prepare;
    tracker.ops.finish_use = track_finish;
    layers[1]->ops = &tracker.ops;
    check_ok(strata_stack_build(layers, 2, 0, &stack));
    strata_resource *top = strata_stack_top(stack);
    for (size_t i = 0; i < BLOCKS; i++)
        check_ok(strata_resource_allocate(top, &(strata_request){.bytes = BYTES}, &blocks[i]));
    tracker.prepared = tracker.finished = 0;
    check_ok(strata_guard_check(top, NULL));
    assert_int_equal(tracker.prepared, BLOCKS);
    assert_int_equal(tracker.finished, BLOCKS);
    for (size_t i = 0; i < BLOCKS; i++)
        check_ok(strata_resource_deallocate(top, &blocks[i], NULL));
    check_ok(strata_stack_destroy(stack));
}

/* ---- findings in the middle of a try ---- */

static struct {
    size_t findings, others;
} heard;

static void hear(const strata_error *error, void *data)
{
    (void)data;
    if (error->status == STRATA_ERROR_CORRUPTED)
        heard.findings += strstr(error->message, "overrun") != NULL;
    else
        heard.others++;
}

static void overrun_and_free(strata_runtime *runtime, size_t bytes)
{
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, bytes, NULL, &block));
    check_ok(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE));
    check_cu(test_cu()->MemsetD8Async(block.address + bytes, 1, 1, NULL));
    check_ok(strata_runtime_finish_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_deallocate(runtime, &block));
}

static void begin_hearing(void)
{
    memset(&heard, 0, sizeof heard);
    strata_set_log_callback(hear, NULL);
}

static void a_finding_in_the_middle_of_a_try_is_told_when_that_is_over(void **state)
{
    strata_runtime *runtime;
    (void)state;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    begin_hearing();
    strata_error_suppress_begin(); /* as a layer above does that has another way, should this one fail */
    strata_error_suppress_begin();
    overrun_and_free(runtime, BYTES);
    overrun_and_free(runtime, BYTES);
    strata_fail(STRATA_ERROR_BUSY, "the try");
    check_ok(strata_runtime_reap_pending(runtime));
    strata_error_suppress_end(false);
    assert_int_equal(heard.findings + heard.others, 0);
    strata_error_suppress_end(true);
    assert_int_equal(heard.findings, 2);
    assert_int_equal(heard.others, 1);
    check_last_error(STRATA_ERROR_BUSY, "the try"); /* what was found takes no failure's place */
    strata_error_suppress_begin();
    strata_error_suppress_end(true);
    assert_int_equal(heard.findings + heard.others, 3);
    strata_set_log_callback(NULL, NULL);
    check_ok(strata_runtime_destroy(runtime));
}

static void what_is_found_while_an_allocation_looks_for_memory_is_told(void **state)
{
    strata_runtime *runtime;
    strata_block block;
    enum { LARGE = 40 << 10 };
    (void)state;
    check_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = "guard(debuggers=off), budget(limit=64KiB), direct"}, &runtime));
    begin_hearing();
    overrun_and_free(runtime, LARGE);
    check_ok(strata_runtime_allocate(runtime, LARGE, NULL, &block));
    assert_int_equal(heard.findings, 1);
    assert_int_equal(heard.others, 0);
    strata_set_log_callback(NULL, NULL);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- the end of the process ---- */

/* Holds what a program prints through, and waits for ever. */
static void *hold_streams(void *data)
{
    flockfile(stdout);
    flockfile(stderr);
    pthread_barrier_wait(data);
    for (;;)
        pause();
    return NULL;
}

static void overrun_while_a_thread_holds_the_streams(void)
{
    strata_runtime *runtime;
    strata_block block;
    pthread_t thread;
    pthread_barrier_t held;
    alarm(test_timeout(15));
    test_open_driver_quietly();
    child_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = "guard(debuggers=off, on_finding=exit), async"}, &runtime));
    child_check(freopen(getenv("STRATA_TEST_REPORT"), "w", stderr) != NULL);
    child_check(pthread_barrier_init(&held, NULL, 2) == 0);
    child_check(pthread_create(&thread, NULL, hold_streams, &held) == 0);
    pthread_barrier_wait(&held);
    if (strata_runtime_allocate(runtime, 100, NULL, &block) == STRATA_SUCCESS &&
        strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE) == STRATA_SUCCESS &&
        test_cu()->MemsetD8Async(block.address, 1, 101, NULL) == CUDA_SUCCESS &&
        strata_runtime_finish_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE) == STRATA_SUCCESS &&
        strata_runtime_deallocate(runtime, &block) == STRATA_SUCCESS)
        strata_runtime_reap_pending(runtime);
    _exit(1); /* without what the other thread holds */
}

/* ---- streams of another device ---- */

/* Of a stack whose memory is open to no other device. */
static void child_frees_on_a_stream_of_another_device(void)
{
    strata_runtime *runtime;
    strata_block block;
    CUcontext other, own;
    CUstream stream, kept;
    uint64_t findings = 1;
    test_open_driver_quietly();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = getenv("STRATA_TEST_STACK"), .device = 1},
                                   &runtime));
    for (int i = 0; i < 2; i++) {
        CUcontext *context = i ? &own : &other;
        child_check(strata_cu.DevicePrimaryCtxRetain(context, i) == CUDA_SUCCESS);
        child_check(strata_cu.CtxSetCurrent(*context) == CUDA_SUCCESS);
        child_check(strata_cu.StreamCreate(i ? &kept : &stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    }
    child_ok(strata_runtime_allocate(runtime, BYTES, kept, &block));
    child_check(test_cu()->MemsetD8Async(block.address, 1, BYTES, kept) == CUDA_SUCCESS);
    child_check(strata_cu.StreamSynchronize(kept) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(other) == CUDA_SUCCESS);
    child_ok(strata_runtime_deallocate_on(runtime, &block, stream));
    child_check(strata_runtime_block_state(runtime, block.id) == STRATA_BLOCK_QUARANTINED);
    child_ok(strata_runtime_reap_pending(runtime));
    child_ok(strata_control(strata_runtime_stack(runtime), "guard.findings", &findings, NULL));
    child_check(findings == 0);
    child_ok(strata_runtime_destroy(runtime));
}

static void a_free_on_a_stream_of_another_device_is_made(void **state)
{
    (void)state;
    static const char *const stacks[] = {"guard, async", "guard(kernel=off), async", "guard, direct", "guard, pool"};
    test_needs_simulated_driver("it has a second device");
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        char stack[64];
        snprintf(stack, sizeof stack, "STRATA_TEST_STACK=%s", stacks[i]);
        test_child_run("child_frees_on_a_stream_of_another_device",
                       (const char *const[]){"STRATA_SIM_DEVICES=2", stack, NULL});
    }
}

static const test_scenario scenarios[] = {TEST_SCENARIO(overrun_while_a_thread_holds_the_streams),
                                          TEST_SCENARIO(child_frees_on_a_stream_of_another_device)};

static void with_on_finding_exit_the_process_ends_whoever_is_printing(void **state)
{
    char path[] = "/tmp/strata-guard-XXXXXX", setting[64], report[16384];
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("skipped: the thread sanitizer flushes the streams itself when the process ends\n");
    skip();
#endif
    int file = mkstemp(path);
    assert_true(file >= 0);
    snprintf(setting, sizeof setting, "STRATA_TEST_REPORT=%s", path);
    int status = test_child_status("overrun_while_a_thread_holds_the_streams", (const char *const[]){setting, NULL});
    ssize_t length = read(file, report, sizeof report - 1);
    close(file);
    unlink(path);
    assert_int_equal(status, STRATA_GUARD_EXIT_STATUS);
    assert_true(length > 0);
    report[length] = '\0';
    assert_non_null(strstr(report, "guard: overrun: block 0x"));
    assert_non_null(strstr(report, "1 byte changed, the first at offset 100, 0 past the end"));
    assert_non_null(strstr(report, "allocated at\n"));
    assert_non_null(strstr(report, "freed at\n"));
    assert_int_equal(report[length - 1], '\n');
}

/* A fill of blocks without memory would stop the device. */
static void a_guard_is_not_built_over_blocks_without_memory(void **state)
{
    (void)state;
    static const char *const texts[] = {"guard, null", "guard, fixed, null", "guard, fallback(direct | pool, null)"};
    strata_stack *stack;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        check_status(strata_stack_create(texts[i], 0, &stack), STRATA_ERROR_UNSUPPORTED);
        check_last_error(STRATA_ERROR_UNSUPPORTED, "guard cannot stand over null");
        assert_null(stack);
    }
    check_ok(strata_stack_create("guard(sample=1), null", 0, &stack));
    check_ok(strata_stack_destroy(stack));
}

int main(int count, char **arguments)
{
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reap_gives_back_what_was_freed_before_it),
        cmocka_unit_test(a_check_looks_at_what_was_freed_before_it),
        cmocka_unit_test(a_double_free_by_address_makes_a_finding_with_the_first_free),
        cmocka_unit_test(a_foreign_free_by_address_makes_a_finding),
        cmocka_unit_test(a_search_or_a_free_of_a_reused_address_makes_no_finding),
        cmocka_unit_test(reaps_and_checks_end_while_threads_go_on_freeing),
        cmocka_unit_test(a_free_beside_a_check_of_the_guard_below_and_the_check_succeed),
        cmocka_unit_test(an_owner_that_tracks_uses_hears_of_checks_of_live_blocks),
        cmocka_unit_test(a_finding_in_the_middle_of_a_try_is_told_when_that_is_over),
        cmocka_unit_test(what_is_found_while_an_allocation_looks_for_memory_is_told),
        cmocka_unit_test(a_free_on_a_stream_of_another_device_is_made),
        cmocka_unit_test(with_on_finding_exit_the_process_ends_whoever_is_printing),
        cmocka_unit_test(a_guard_is_not_built_over_blocks_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
