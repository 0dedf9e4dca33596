/* The driver library of tests/shim: the driver behind it, events that it reports pending, and new streams that it makes
 * wait. Each start is a process of its own, with the simulated driver behind the shim. The shim's calls for a new
 * stream are checked with a driver that only records them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/orders.h"
#include "support/child.h"
#include "support/stall.h"

enum { BYTES = 4096 };

/* ---- in children ---- */

/* Counts driver calls, and makes the primary context of device 0 current. */
static void begin(void)
{
    CUcontext context;
    child_ok(strata_driver_count_calls());
    child_ok(strata_driver_get_info(&(strata_driver_info){0}));
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
}

static CUstream make_stream(void)
{
    CUstream stream;
    child_check(strata_cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    return stream;
}

/* The answers of cuEventQuery for an event that was waited for, and of cuStreamQuery for its stream. */
static CUresult answer_for_a_complete_event(void)
{
    CUevent event;
    CUstream stream = make_stream();
    child_check(strata_cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    child_check(strata_cu.EventRecord(event, stream) == CUDA_SUCCESS);
    child_check(strata_cu.EventSynchronize(event) == CUDA_SUCCESS);
    CUresult result = strata_cu.EventQuery(event);
    child_check(strata_cu.StreamQuery(stream) == result);
    child_check(strata_cu.EventDestroy(event) == CUDA_SUCCESS);
    child_check(strata_cu.StreamDestroy(stream) == CUDA_SUCCESS);
    return result;
}

/* How many waits Strata submits for the free of a block that two streams used, both of them long done. */
static uint64_t waits_of_a_free_after_finished_uses(void)
{
    strata_runtime *runtime;
    strata_block block;
    test_calls calls;
    CUstream alloc_stream, user = make_stream();
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &alloc_stream));
    child_ok(strata_runtime_allocate(runtime, BYTES, alloc_stream, &block));
    child_ok(strata_runtime_prepare_block_use(runtime, &block, user, STRATA_ACCESS_WRITE));
    child_check(strata_cu.MemsetD8Async(block.address, 1, BYTES, user) == CUDA_SUCCESS);
    child_ok(strata_runtime_finish_block_use(runtime, &block, user, STRATA_ACCESS_WRITE));
    child_check(strata_cu.StreamSynchronize(user) == CUDA_SUCCESS);
    test_calls_begin(&calls);
    child_ok(strata_runtime_deallocate(runtime, &block));
    uint64_t waits = test_calls_of(&calls, "cuStreamWaitEvent");
    child_ok(strata_runtime_reap_pending(runtime));
    child_check(strata_runtime_bytes_outstanding(runtime) == 0);
    child_ok(strata_runtime_stream_release(runtime, alloc_stream));
    child_check(strata_cu.StreamDestroy(user) == CUDA_SUCCESS);
    return waits;
}

static void complete_events_are_called_complete(void)
{
    begin();
    child_check(answer_for_a_complete_event() == CUDA_SUCCESS);
    child_check(waits_of_a_free_after_finished_uses() == 0);
}

static void complete_events_are_called_pending(void)
{
    begin();
    child_check(answer_for_a_complete_event() == CUDA_ERROR_NOT_READY);
    child_check(waits_of_a_free_after_finished_uses() > 0);
}

static void errors_of_queries_are_the_drivers(void)
{
    begin();
    CUresult result = strata_cu.EventQuery(NULL);
    child_check(result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY);
    CUstream stream = make_stream();
    child_check(strata_cu.StreamDestroy(stream) == CUDA_SUCCESS);
    result = strata_cu.StreamQuery(stream);
    child_check(result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY);
}

/* A driver that returns numbers as handles and records the calls in order. */
static struct {
    char calls[256];
    uintptr_t handles;
    CUcontext current;
} noted;

static CUresult note(const char *call, const void *first, const void *second)
{
    size_t used = strlen(noted.calls);
    snprintf(noted.calls + used, sizeof noted.calls - used, "%s(%zu,%zu) ", call, (size_t)(uintptr_t)first,
             (size_t)(uintptr_t)second);
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI note_context(CUcontext *context)
{
    *context = noted.current;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI note_event_create(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = (CUevent)++noted.handles;
    return note("event", *event, NULL);
}

static CUresult CUDAAPI note_event_record(CUevent event, CUstream stream)
{
    return note("record", event, stream);
}

static CUresult CUDAAPI note_stream_create(CUstream *stream, unsigned flags)
{
    *stream = (CUstream)++noted.handles;
    return note("stream", *stream, (const void *)(uintptr_t)flags);
}

static CUresult CUDAAPI note_stream_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    return note("wait", stream, event);
}

static void *find_noting(const char *name)
{
    PFN_cuCtxGetCurrent_v4000 context = note_context;
    PFN_cuEventCreate_v2000 event = note_event_create;
    PFN_cuEventRecord_v2000 record = note_event_record;
    PFN_cuStreamCreate_v2000 stream = note_stream_create;
    PFN_cuStreamWaitEvent_v3020 wait = note_stream_wait;
    const struct {
        const char *name;
        const void *function;
    } entries[] = {{"cuCtxGetCurrent", &context},
                   {"cuEventCreate", &event},
                   {"cuEventRecord", &record},
                   {"cuStreamCreate", &stream},
                   {"cuStreamWaitEvent", &wait}};
    void *symbol = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (strcmp(entries[i].name, name) == 0)
            memcpy(&symbol, entries[i].function, sizeof symbol);
    return symbol;
}

static void new_stream_noted(PFN_cuStreamCreate_v2000 create, CUcontext current, const char *calls)
{
    CUstream stream;
    noted.current = current;
    noted.calls[0] = '\0';
    child_check(create(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    if (strcmp(noted.calls, calls) != 0)
        printf("called %s, expected %s\n", noted.calls, calls);
    child_check(strcmp(noted.calls, calls) == 0);
}

/* Event 1 and stream 2 are the shim's own. */
static void new_streams_wait_for_a_stream_without_work(void)
{
    static int one, other;
    PFN_cuStreamCreate_v2000 create;
    shim_orders_open(find_noting);
    void *symbol = shim_orders_choose("cuStreamCreate", NULL);
    child_check(symbol != NULL);
    memcpy(&create, &symbol, sizeof create);
    new_stream_noted(create, (CUcontext)&one, "event(1,0) stream(2,1) stream(3,0) record(1,2) wait(3,1) ");
    new_stream_noted(create, (CUcontext)&one, "stream(4,0) record(1,2) wait(4,1) ");
    new_stream_noted(create, (CUcontext)&other, "stream(5,0) ");
    new_stream_noted(create, NULL, "stream(6,0) ");
}

/* A new stream waits for no work in progress. */
static void new_streams_are_held_back_by_none(void)
{
    begin();
    CUstream held = make_stream(), free_one;
    CUdeviceptr memory;
    child_check(strata_cu.MemAlloc(&memory, BYTES) == CUDA_SUCCESS);
    test_stall *stall = test_stall_begin(held);
    free_one = make_stream();
    child_check(strata_cu.MemsetD8Async(memory, 1, BYTES, free_one) == CUDA_SUCCESS);
    child_check(strata_cu.StreamSynchronize(free_one) == CUDA_SUCCESS); /* the stall would time out */
    child_check(strata_cu.StreamQuery(held) == CUDA_ERROR_NOT_READY);
    test_stall_end(stall);
    child_check(strata_cu.StreamDestroy(held) == CUDA_SUCCESS);
    child_check(strata_cu.StreamDestroy(free_one) == CUDA_SUCCESS);
    child_check(strata_cu.MemFree(memory) == CUDA_SUCCESS);
}

static void no_driver_is_behind(void)
{
    strata_driver_info info;
    child_check(strata_driver_get_info(&info) != STRATA_SUCCESS);
}

/* ---- in the parent ---- */

/* An environment variable that names a library; skips where it is not set. */
static const char *library(const char *name)
{
    const char *path = getenv(name);
    if (!path || access(path, R_OK) != 0) {
        print_message("%s names no library\n", name);
        skip();
    }
    return path;
}

/* Runs a scenario on the shim, with `driver` behind it, STRATA_SIM_LIBRARY as it is or naming nothing, and
 * STRATA_SHIM_EVENTS_PENDING. */
static void run(const char *scenario, const char *driver, bool sim_named, const char *pending)
{
    char choice[4200], behind[4200], sim[4200], events[64];
    snprintf(choice, sizeof choice, "STRATA_DRIVER=%s", library("STRATA_SHIM_LIBRARY"));
    snprintf(behind, sizeof behind, "STRATA_SHIM_DRIVER=%s", driver);
    snprintf(sim, sizeof sim, "STRATA_SIM_LIBRARY=%s", sim_named ? library("STRATA_SIM_LIBRARY") : "/nowhere/sim.so");
    snprintf(events, sizeof events, "STRATA_SHIM_EVENTS_PENDING=%s", pending);
    const char *const changes[] = {
        choice, behind, sim, events, "STRATA_SHIM_STREAMS_FOLLOW=1", "STRATA_SHIM_HIDES", "STRATA_STACK=async", NULL};
    test_child_run(scenario, changes);
}

static void the_simulated_driver_is_behind_unless_another_is_named(void **state)
{
    (void)state;
    run("complete_events_are_called_complete", "", true, "");
    run("complete_events_are_called_complete", library("STRATA_SIM_LIBRARY"), false, "");
    run("no_driver_is_behind", "", false, "");
    run("no_driver_is_behind", "/nowhere/libcuda.so", true, "");
}

static void an_event_that_was_waited_for_stays_pending_and_strata_waits_instead(void **state)
{
    (void)state;
    run("complete_events_are_called_pending", "", true, "1");
    run("complete_events_are_called_pending", library("STRATA_SIM_LIBRARY"), false, "1");
}

static void a_query_that_fails_fails_also_where_events_stay_pending(void **state)
{
    (void)state;
    run("errors_of_queries_are_the_drivers", "", true, "");
    run("errors_of_queries_are_the_drivers", "", true, "1");
}

static void a_new_stream_waits_for_a_stream_that_never_has_work(void **state)
{
    (void)state;
    const char *const changes[] = {"STRATA_SHIM_STREAMS_FOLLOW=1", NULL};
    test_child_run("new_streams_wait_for_a_stream_without_work", changes);
    run("new_streams_are_held_back_by_none", "", true, "");
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(complete_events_are_called_complete), TEST_SCENARIO(complete_events_are_called_pending),
        TEST_SCENARIO(errors_of_queries_are_the_drivers),   TEST_SCENARIO(new_streams_wait_for_a_stream_without_work),
        TEST_SCENARIO(new_streams_are_held_back_by_none),   TEST_SCENARIO(no_driver_is_behind),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_simulated_driver_is_behind_unless_another_is_named),
        cmocka_unit_test(an_event_that_was_waited_for_stays_pending_and_strata_waits_instead),
        cmocka_unit_test(a_query_that_fails_fails_also_where_events_stay_pending),
        cmocka_unit_test(a_new_stream_waits_for_a_stream_that_never_has_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
