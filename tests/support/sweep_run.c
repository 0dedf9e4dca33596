/* One run of a sweep, in a process of its own: it runs the case, examines what is left, cleans it up, and examines the
 * rest. sweep.c judges the result. */
#include "core/stack/stack.h"
#include "core/streams/known_streams.h"
#include "core/streams/timeline.h"
#include "runtime/runtime.h"
#include "support/child.h"
#include "support/faults.h"
#include "support/sweep_board.h"
#include "support/sweep_exceptions.h"

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROOM_FOR_LOCALS = 256 << 10 };

enum { RUNTIMES = 64 };
static strata_runtime *runtimes[RUNTIMES]; /* live ones; the testing thread's */

strata_status __real_strata_runtime_create(const strata_runtime_config *config, strata_runtime **out);
strata_status __wrap_strata_runtime_create(const strata_runtime_config *config, strata_runtime **out);
strata_status __real_strata_runtime_destroy(strata_runtime *runtime);
strata_status __wrap_strata_runtime_destroy(strata_runtime *runtime);

/* Set for layers and stacks that a case made itself, which only the case can destroy. Those of a runtime end with it.
 */
static _Atomic bool made_by_hand;
static _Thread_local bool making_runtime;

#define BY_HAND(name, parameters, arguments) \
    strata_status __real_##name parameters;  \
    strata_status __wrap_##name parameters;  \
    strata_status __wrap_##name parameters   \
    {                                        \
        if (!making_runtime)                 \
            made_by_hand = true;             \
        return __real_##name arguments;      \
    }
BY_HAND(strata_stack_create, (const char *text, int ordinal, strata_stack **out), (text, ordinal, out))
BY_HAND(strata_async_create, (int ordinal, const strata_async_options *options, strata_resource **out),
        (ordinal, options, out))
BY_HAND(strata_direct_create, (int ordinal, const strata_direct_options *options, strata_resource **out),
        (ordinal, options, out))
BY_HAND(strata_guard_create, (int ordinal, const strata_guard_options *options, strata_resource **out),
        (ordinal, options, out))
BY_HAND(strata_pool_create, (int ordinal, const strata_pool_options *options, strata_resource **out),
        (ordinal, options, out))
BY_HAND(strata_stack_build, (strata_resource *const *resources, size_t count, int ordinal, strata_stack **out),
        (resources, count, ordinal, out))
BY_HAND(strata_callback_create, (int ordinal, const strata_callback_options *options, strata_resource **out),
        (ordinal, options, out))
#undef BY_HAND

static void record_runtime(strata_runtime *old, strata_runtime *new)
{
    for (size_t i = 0; i < RUNTIMES; i++) {
        if (runtimes[i] == old) {
            runtimes[i] = new;
            return;
        }
    }
}

strata_status __wrap_strata_runtime_create(const strata_runtime_config *config, strata_runtime **out)
{
    making_runtime = true;
    strata_status status = __real_strata_runtime_create(config, out);
    making_runtime = false;
    if (sweep_is_child && status == STRATA_SUCCESS)
        record_runtime(NULL, *out);
    return status;
}

strata_status __wrap_strata_runtime_destroy(strata_runtime *runtime)
{
    strata_status status = __real_strata_runtime_destroy(runtime);
    if (sweep_is_child && status == STRATA_SUCCESS)
        record_runtime(runtime, NULL);
    return status;
}

/* A call that may fail once, by the fault. */
#define TWICE(call) ((call) == STRATA_SUCCESS || (call) == STRATA_SUCCESS)

static bool has_memory(const strata_runtime *runtime)
{
    const strata_stack *stack = runtime->stack;
    return strcmp(stack->layers[stack->count - 1]->ops->name, "null") != 0;
}

static bool serves_a_block(strata_runtime *runtime, CUstream stream)
{
    enum { BYTES = 256 };
    strata_block block;
    if (!TWICE(strata_runtime_allocate(runtime, BYTES, stream, &block)))
        return false;
    bool good = TWICE(strata_runtime_prepare_block_use(runtime, &block, stream, STRATA_ACCESS_WRITE)) &&
                (!has_memory(runtime) || test_cu()->MemsetD8Async(block.address, 1, BYTES, stream) == CUDA_SUCCESS) &&
                TWICE(strata_runtime_finish_block_use(runtime, &block, stream, STRATA_ACCESS_WRITE));
    return TWICE(strata_runtime_deallocate_on(runtime, &block, stream)) && good;
}

/* Whether the runtime serves a block, or (*full) a budget is full, as it may be while the case's blocks live. */
static bool serves_or_is_full(strata_runtime *runtime, CUstream stream, bool *full)
{
    if (serves_a_block(runtime, stream))
        return true;
    *full |= strata_last_error()->status == STRATA_ERROR_OUT_OF_BUDGET;
    return *full;
}

/* Finds the user's view of a block of the owner: a layer above may return a later address. */
static bool find_block(strata_runtime *runtime, strata_block *block)
{
    enum { STEP = 256 };
    strata_block found;
    for (size_t at = 0; at < block->bytes; at += STEP) {
        if (strata_runtime_find(runtime, block->address + at, &found) != STRATA_SUCCESS)
            continue;
        *block = found;
        return true;
    }
    return false;
}

/* Frees the blocks that a failed case left live, including blocks with uses in progress. */
static void free_blocks(strata_runtime *runtime)
{
    strata_table *table = runtime->stack->head.table;
    for (uint32_t slot = 1; slot < table->fresh; slot++) {
        strata_block block;
        if (!strata_entry_describe(table, slot, &block) || !find_block(runtime, &block))
            continue;
        while (strata_runtime_finish_block_use(runtime, &block, CU_STREAM_LEGACY, STRATA_ACCESS_NONE) == STRATA_SUCCESS)
            ;
        (void)TWICE(strata_runtime_deallocate_on(runtime, &block, CU_STREAM_LEGACY));
    }
}

static uint32_t count_events_kept(void)
{
    uint32_t events = 0;
    for (int ordinal = 0; ordinal < STRATA_DEVICE_LIMIT; ordinal++) {
        strata_device *device = strata_device_if_open(ordinal);
        events += device ? (uint32_t)device->event_count : 0;
    }
    for (uint32_t number = 1; number < STRATA_TIMELINE_LIMIT; number++) {
        strata_timeline *timeline = strata_timeline_of(strata_point_make((uint16_t)number, 1));
        for (size_t i = 0; timeline && i < STRATA_TIMELINE_EVENTS; i++)
            events += timeline->events[i] != NULL;
        if (!timeline)
            break;
    }
    return events;
}

static int count_threads(void)
{
    char line[128];
    int threads = 1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "Threads: %d", &threads);
    if (file)
        fclose(file);
    return threads;
}

static void copy_report(char text[static SWEEP_SAID])
{
    strata_sim_report report = {.size = sizeof report};
    text[0] = '\0';
    if (test_sim_control()->get_report(0, &report) == CUDA_SUCCESS)
        snprintf(text, SWEEP_SAID, "%s", report.text);
}

/* Releases what a failed case acquired from the runtime. */
static void release_streams(strata_runtime *runtime)
{
    for (size_t i = 0; i < runtime->stream_count; i++)
        if (runtime->streams[i].pooled && runtime->streams[i].taken)
            (void)TWICE(strata_runtime_stream_release(runtime, runtime->streams[i].stream));
}

/* Unregisters streams that a case registered itself. */
static void unregister_streams(const test_fixture *fixture)
{
    for (size_t i = 0; i < fixture->stream_count; i++)
        for (size_t j = 0; j < RUNTIMES && fixture->streams[i].kind == TEST_STREAM_UNKNOWN; j++)
            if (runtimes[j] && strata_stream_is_known(fixture->streams[i].handle))
                (void)TWICE(strata_runtime_unregister_stream(runtimes[j], fixture->streams[i].handle));
}

static void clear_away(test_fixture *fixture, sweep_outcome *outcome)
{
    if (test_before_clearing)
        test_before_clearing();
    test_fault_end();
    test_stall_end_all();
    test_make_current(); /* the case may have made another context current */
    if (test_cu()->CtxSynchronize() != CUDA_SUCCESS) {
        outcome->abandoned = true;
        return;
    }
    bool full = false;
    outcome->unusable = fixture->runtime && !serves_or_is_full(fixture->runtime, CU_STREAM_LEGACY, &full);
    /* Covers with an event the work that was submitted when no event could be recorded. */
    for (size_t i = 0; i < fixture->stream_count && fixture->runtime; i++)
        outcome->unusable |= !serves_or_is_full(fixture->runtime, fixture->streams[i].handle, &full);
    for (size_t i = 0; i < RUNTIMES; i++)
        if (runtimes[i]) {
            strata_stack_captures_ended(runtimes[i]->stack, STRATA_STREAM_GONE);
            (void)TWICE(strata_runtime_reap_pending(runtimes[i])); /* such work of streams that are gone */
            free_blocks(runtimes[i]);
            (void)TWICE(strata_runtime_reap_pending(runtimes[i]));
        }
    outcome->unusable |= full && !serves_a_block(fixture->runtime, CU_STREAM_LEGACY);
    unregister_streams(fixture);
    if (!test_fixture_close_streams(fixture))
        test_fixture_close_streams(fixture);
    for (size_t i = 0; i < RUNTIMES; i++)
        if (runtimes[i])
            release_streams(runtimes[i]);
    test_cu()->CtxSynchronize();
    for (size_t i = 0; i < RUNTIMES; i++)
        if (runtimes[i] && !TWICE(strata_runtime_destroy(runtimes[i])))
            snprintf(outcome->said, sizeof outcome->said, "%s", strata_last_error()->message);
}

static sweep_state look_at_state(const test_holdings *left)
{
    sweep_state state = {.blocks = left->blocks, .pinned = left->pinned, .modules = left->modules};
    for (size_t i = 0; i < RUNTIMES; i++) {
        strata_usage usage;
        if (!runtimes[i] || strata_runtime_usage(runtimes[i], &usage) != STRATA_SUCCESS)
            continue;
        state.live_bytes += usage.live_bytes;
        state.live_blocks += usage.live_blocks;
    }
    return state;
}

static const test_sweep_case *running;
static int threads_before;

static void run_case(void **state)
{
    (void)state;
    if (!running->set_up(running->fixture))
        fail_msg("no runtime");
    running->run(running->fixture);
    sweep_shared->outcome.passed = true;
}

/* Whether a case failed without an error of the library. Not for cases that plan faults, count calls, or stall the
 * device: a fault that the library recovered from may fail them too, by its extra calls and waits. */
static bool reports_no_error(const test_driver_hook_seen *seen)
{
    /* A failed query means "not finished", which is always correct. Only the saving is lost. */
    if (seen->fired && strcmp(seen->name, "cuEventQuery") == 0)
        return false;
    return seen->fired && seen->here && !seen->said && !test_fault_was_begun() && !test_calls_were_counted() &&
           !test_stall_timed_out() && memcmp(strata_last_error(), &seen->before, sizeof seen->before) == 0;
}

/* Whether the owner in a case's stack returns memory itself after the host has waited. */
static bool waits_on_host(const char *name)
{
    static const char *const owners[] = {"[direct", "[managed", ", managed", "[pinned(single"};
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++)
        if (strstr(name, owners[i]))
            return true;
    return false;
}

static void CUDA_CB do_nothing(void *data)
{
    (void)data;
}

/* Host functions run on a thread of the driver, which starts with the first of them. Started here, so that every thread
 * left at the end is the case's. */
static void start_host_functions(void)
{
    if (test_cu()->LaunchHostFunc(CU_STREAM_LEGACY, do_nothing, NULL) != CUDA_SUCCESS ||
        test_cu()->CtxSynchronize() != CUDA_SUCCESS)
        _exit(1);
}

/* Nearly every run has a report, which is counted and not read: resolving the frames of two call stacks takes longer
 * than the run. */
static unsigned how_edges_are_checked(const char *name)
{
    return (test_sweep_waits_by_frees(name) ? 0U : STRATA_SIM_CHECK_FREES) |
           (getenv("STRATA_TEST_SWEEP_VERBOSE") ? 0U : STRATA_SIM_CHECK_NO_STACKS);
}

_Noreturn static void run_and_exit(const test_sweep_case *one)
{
    sweep_outcome *outcome = &sweep_shared->outcome;
    struct CMUnitTest test = {.name = one->name, .test_func = run_case};
    const test_sim *sim = test_sim_control();
    running = one;
    outcome->began = true;
    start_host_functions();
    threads_before = count_threads();
    if (sweep_shared->touched)
        test_touch_begin(sweep_shared->touched);
    if (sim->set_policy(sweep_shared->policy) != CUDA_SUCCESS || sim->set_seed(sweep_shared->seed) != CUDA_SUCCESS)
        _exit(1);
    if (sweep_shared->mode == SWEEP_OF_EDGES && !sweep_shared->plan.nth) {
        memset(sweep_shared->relied, 0, sizeof sweep_shared->relied);
        test_driver_hook_rely(sweep_shared->relied, SWEEP_EDGES, waits_on_host(one->name));
    }
    if (sweep_shared->mode == SWEEP_OF_EDGES && sim->set_check(how_edges_are_checked(one->name)) != CUDA_SUCCESS)
        _exit(1);
    test_driver_hook_install(&sweep_shared->plan);
    strata_entry_table door = strata_cu;
    outcome->failed = _cmocka_run_group_tests(one->name, &test, 1, NULL, NULL) != 0;
    strata_cu = door; /* removes what the case had installed */
    test_driver_hook_look(&outcome->seen, &outcome->left);
    if (sweep_shared->mode == SWEEP_SEEDS)
        outcome->state = look_at_state(&outcome->left);
    snprintf(outcome->said, sizeof outcome->said, "%s", strata_last_error()->message);
    outcome->unreported = outcome->failed && reports_no_error(&outcome->seen);
    outcome->slow = test_stall_timed_out();
    outcome->abandoned = outcome->failed && (made_by_hand || count_threads() > threads_before);
    if (!outcome->abandoned) {
        /* Reserves the failed case's stack frames, so that pointers to its locals stay valid. */
        volatile char *locals = alloca(ROOM_FOR_LOCALS);
        locals[0] = 0;
        clear_away(one->fixture, outcome);
    }
    outcome->streams_kept = test_fault_streams_kept();
    test_driver_hook_disarm();
    test_driver_hook_look(&outcome->seen, &outcome->left);
    outcome->events_kept = count_events_kept();
    sim->get_report_count(&outcome->reports);
    copy_report(outcome->report);
    outcome->over = true;
    fflush(NULL);
    test_child_leave(0);
}

void test_sweep_case_here(const test_sweep_case *one)
{
    static long number;
    if (!test_sim_control()) {
        printf("skipped: sweeps are for the simulated driver\n");
        fflush(NULL);
        _exit(77);
    }
    if (sweep_shared->chosen < 0 && sweep_shared->cases < SWEEP_CASES)
        snprintf(sweep_shared->names[sweep_shared->cases++], SWEEP_NAME, "%s", one->name);
    else if (sweep_shared->chosen == number)
        run_and_exit(one);
    number++;
}
