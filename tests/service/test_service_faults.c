/* Failures of the device and the context, as the service treats them. Each scenario has a process of its own. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "support/child.h"
#include "support/effort.h"
#include "support/service.h"

#include <strata/info.h>
#include <strata/service_blas.h>
#include <strata/service_graph.h>

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static strata_service *make(const strata_service_options *options)
{
    strata_service *service;
    child_ok(strata_service_create(options, &service));
    child_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    return service;
}

static strata_answer take(strata_future *future)
{
    strata_answer answer;
    strata_future_wait(future);
    child_ok(strata_future_take(future, &answer));
    strata_future_release(future);
    return answer;
}

static strata_ref *allocate(strata_service *service, size_t bytes)
{
    strata_future *future;
    child_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, bytes, NULL, &future));
    const strata_answer answer = take(future);
    child_status(answer.status, STRATA_SUCCESS);
    return answer.ref;
}

/* ---- poison ---- */

enum { ANSWERED_LATE = 3 };

/* What is under way and what waits is answered at once, in each way of completion; the service then stops. */
static void meet_poison(strata_completion_mode mode)
{
    strata_service *service = make(&(strata_service_options){.completion = mode});
    strata_ref *ref = allocate(service, 64);
    strata_host_buffer *buffer;
    strata_future *load, *bad, *behind[20];
    child_ok(strata_host_buffer_create(64, &buffer));
    child_ok(strata_service_load(service, test_fill_ptx, 0, NULL, &load));
    const strata_argument arguments[] = {test_value(16), test_value(4096), test_value(1)};
    const strata_kernel kernel = {
        .module = take(load).module, .entry = "strata_pattern_fill", .arguments = arguments, .argument_count = 3};
    strata_service_snapshot snapshot;
    child_ok(strata_service_get_snapshot(service, &snapshot));
    child_ok(strata_service_launch(service, &kernel, NULL, &bad));
    for (size_t i = 0; i < 20; i++)
        if (strata_service_copy_from_host(service, buffer, ref, NULL, &behind[i]) != STRATA_SUCCESS)
            behind[i] = NULL;
    while (!strata_future_poll(bad) && (strata_cu.StreamQuery(snapshot.stream) == CUDA_SUCCESS ||
                                        strata_cu.StreamQuery(snapshot.stream) == CUDA_ERROR_NOT_READY))
        usleep(100); /* until the driver tells of the fault */
    const double told = seconds();
    const strata_answer answer = take(bad);
    child_check(answer.status != STRATA_SUCCESS);
    child_check(answer.failure == STRATA_FAILURE_UNRECOVERABLE);
    for (size_t i = 0; i < 20; i++)
        if (behind[i])
            strata_host_buffer_release(take(behind[i]).buffer);
    const bool at_once = seconds() - told < test_timeout(1) * 0.1;
    child_check(strata_service_wait_ready(service, 0) != STRATA_SUCCESS);
    child_check(strata_service_stopped(service) != STRATA_SUCCESS);
    child_check(strata_service_allocate(service, STRATA_ELEMENT_U8, 1, NULL, NULL) != STRATA_SUCCESS);
    const char *said = strata_last_error()->message;
    child_check(strstr(said, "the device service has stopped: ") && strstr(said, "use an isolated service"));
    strata_ref_memory memory;
    child_status(strata_ref_access(ref, &memory), STRATA_ERROR_STALE);
    child_check(strata_host_buffer_handles(buffer) == 1);
    strata_host_buffer_release(buffer);
    strata_ref_release(ref);
    child_ok(strata_service_destroy(service));
    if (!at_once)
        test_child_leave(ANSWERED_LATE);
}

static void poison_while_polling(void)
{
    test_open_driver_quietly();
    meet_poison(STRATA_COMPLETION_POLLING);
}

static void poison_with_host_functions(void)
{
    test_open_driver_quietly();
    meet_poison(STRATA_COMPLETION_HOST_FUNCTION);
}

static void poison_while_synchronizing(void)
{
    test_open_driver_quietly();
    meet_poison(STRATA_COMPLETION_SYNCHRONIZING);
}

/* ---- a reset ---- */

static int ready, lost;

static void count_notices(strata_service *service, strata_service_event event, uint64_t generation, void *data)
{
    (void)service;
    (void)generation;
    (void)data;
    ready += event == STRATA_SERVICE_READY;
    lost += event == STRATA_SERVICE_LOST;
}

static strata_service_graph *make_graph(strata_service *service, strata_ref *ref)
{
    strata_service_graph *graph;
    strata_future *future;
    child_ok(strata_service_graph_begin(service, "reset", &graph));
    child_ok(strata_service_fill(service, ref, 3, 1, &(strata_send_options){.graph = graph}, NULL));
    child_ok(strata_service_graph_end(graph, NULL, &future));
    child_status(take(future).status, STRATA_SUCCESS);
    return graph;
}

/* Graphs of requests go with their context, and are made again in the next one. */
static void reset_with_graphs(void)
{
    test_open_driver_quietly();
    strata_service *service = make(NULL);
    strata_ref *ref = allocate(service, 64);
    strata_service_graph *graph = make_graph(service, ref), *begun;
    strata_future *future;
    child_ok(strata_service_graph_begin(service, NULL, &begun));
    child_ok(strata_service_fill(service, ref, 3, 1, &(strata_send_options){.graph = begun}, NULL));
    if (strata_cu.DevicePrimaryCtxReset(0) != CUDA_SUCCESS)
        exit(77);
    strata_device_check(0);
    child_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
    child_check(take(future).failure == STRATA_FAILURE_POISONED);
    child_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    child_status(strata_service_graph_launch(graph, NULL, NULL), STRATA_ERROR_STALE);
    child_ok(strata_service_graph_end(begun, NULL, &future));
    child_status(take(future).status, STRATA_ERROR_STALE);
    strata_ref *anew = allocate(service, 64);
    strata_service_graph *again = make_graph(service, anew);
    child_ok(strata_service_graph_launch(again, NULL, &future));
    child_status(take(future).status, STRATA_SUCCESS);
    child_status(strata_service_destroy(service), STRATA_ERROR_BUSY);
    strata_service_graph_release(graph);
    strata_service_graph_release(begun);
    strata_service_graph_release(again);
    child_ok(strata_ref_release(ref));
    child_ok(strata_ref_release(anew));
    child_ok(strata_service_destroy(service));
}

/* The primary context is made anew: references are stale, the generation has moved on, requests go on. */
static void reset(void)
{
    test_open_driver_quietly();
    strata_service *service = make(&(strata_service_options){.notice = count_notices});
    strata_ref *ref = allocate(service, 64);
    strata_device_state *state = strata_service_device_state(service);
    strata_generation_watch *watch;
    strata_ref_memory memory;
    strata_future *future;
    uint64_t changes;
    child_ok(strata_generation_watch_create(state, NULL, NULL, &watch));
    strata_host_buffer *buffer;
    child_check(strata_ref_generation(ref) == 0);
    child_ok(strata_service_buffer_create(service, 64, &buffer));
    memset(strata_host_buffer_memory(buffer), 5, 64);
    if (strata_cu.DevicePrimaryCtxReset(0) != CUDA_SUCCESS)
        exit(77);
    strata_device_check(0);
    child_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
    child_check(take(future).failure == STRATA_FAILURE_POISONED);
    child_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    strata_ref *anew = allocate(service, 64);
    child_check(strata_ref_generation(anew) == 1);
    child_check(test_buffer_has(buffer, 5));
    child_ok(strata_service_copy_from_host(service, buffer, anew, NULL, &future));
    strata_host_buffer_release(take(future).buffer);
    strata_host_buffer_release(buffer);
    child_ok(strata_ref_access(anew, &memory));
    child_status(strata_ref_access(ref, &memory), STRATA_ERROR_STALE);
    child_check(memory.stale == STRATA_STALE_CONTEXT_REBUILT);
    child_check(strata_device_state_generation(state) == 1);
    child_ok(strata_generation_watch_take(watch, &changes));
    child_check(changes == 1);
    strata_service_stats stats;
    child_ok(strata_service_get_stats(service, &stats));
    child_check(stats.rebuilds == 1 && stats.generation == 1);
    child_check(ready == 2 && lost == 1);
    child_ok(strata_generation_watch_destroy(watch));
    child_ok(strata_ref_release(ref));
    child_ok(strata_ref_release(anew));
    child_ok(strata_service_destroy(service));
}

static void count_lookups(const char *name, uint64_t times, void *data)
{
    *(uint64_t *)data += strcmp(name, "cuModuleGetFunction") == 0 ? times : 0;
}

static uint64_t lookups_so_far(void)
{
    uint64_t times = 0;
    strata_driver_visit_calls(count_lookups, &times);
    return times;
}

/* No call has failed for it, and another module has begun the context anew: the driver may crash on a module or a
 * stream of before. */
static void reset_unseen(void)
{
    CUcontext context;
    strata_future *future;
    child_ok(strata_driver_count_calls());
    test_open_driver_quietly();
    strata_service *service = make(NULL);
    child_ok(strata_service_load(service, test_fill_ptx, 0, NULL, &future));
    const strata_kernel kernel = {.module = take(future).module, .entry = "strata_pattern_fill"};
    if (strata_cu.DevicePrimaryCtxReset(0) != CUDA_SUCCESS)
        exit(77);
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    const uint64_t before = lookups_so_far();
    child_ok(strata_service_launch(service, &kernel, NULL, &future));
    child_check(take(future).failure == STRATA_FAILURE_POISONED);
    child_check(lookups_so_far() == before);
    child_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    child_ok(strata_ref_release(allocate(service, 64)));
    child_ok(strata_service_destroy(service));
}

/* As above, with no request but the end. */
static void reset_unseen_at_the_end(void)
{
    test_open_driver_quietly();
    strata_service *service = make(NULL);
    CUcontext context;
    child_ok(strata_ref_release(allocate(service, 64)));
    if (strata_cu.DevicePrimaryCtxReset(0) != CUDA_SUCCESS)
        exit(77);
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_ok(strata_service_destroy(service));
}

static CUstream dead; /* the service's stream of before the reset, until the service has noticed that */
static CUresult (*real_is_capturing)(CUstream stream, CUstreamCaptureStatus *state);
static CUresult (*real_launch_host)(CUstream stream, CUhostFn function, void *data);

static CUresult ask_about_capture(CUstream stream, CUstreamCaptureStatus *state)
{
    child_check(!dead || stream != dead);
    return real_is_capturing(stream, state);
}

static CUresult launch_host(CUstream stream, CUhostFn function, void *data)
{
    child_check(!dead || stream != dead);
    return real_launch_host(stream, function, data);
}

static strata_status reset_the_device(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime, (void)data;
    if (strata_cu.DevicePrimaryCtxReset(0) != CUDA_SUCCESS)
        _exit(77);
    dead = stream;
    return STRATA_SUCCESS;
}

static void forget_dead_stream(strata_service *service, strata_service_event event, uint64_t generation, void *data)
{
    (void)service, (void)generation, (void)data;
    if (event == STRATA_SERVICE_LOST)
        dead = NULL;
}

/* By a request's own function. The driver may crash on the stream that it was given. */
static void meet_reset_by_function(strata_completion_mode mode)
{
    test_open_driver_quietly();
    real_is_capturing = strata_cu.StreamIsCapturing;
    real_launch_host = strata_cu.LaunchHostFunc;
    strata_cu.StreamIsCapturing = ask_about_capture;
    strata_cu.LaunchHostFunc = launch_host;
    strata_service *service =
        make(&(strata_service_options){.completion = mode, .notice = forget_dead_stream, .libraries = ""});
    const strata_service_operation operation = {.function = reset_the_device};
    for (int i = 0; i < 2; i++) {
        strata_future *future;
        child_ok(i ? strata_service_record_graph(service, &operation, NULL, &future)
                   : strata_service_run(service, &operation, NULL, &future));
        child_check(take(future).failure == STRATA_FAILURE_POISONED);
        child_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
        child_ok(strata_ref_release(allocate(service, 64)));
    }
    child_ok(strata_service_destroy(service));
}

static void reset_by_function_while_polling(void)
{
    meet_reset_by_function(STRATA_COMPLETION_POLLING);
}

static void reset_by_function_with_host_functions(void)
{
    meet_reset_by_function(STRATA_COMPLETION_HOST_FUNCTION);
}

static void reset_by_function_while_synchronizing(void)
{
    meet_reset_by_function(STRATA_COMPLETION_SYNCHRONIZING);
}

static void a_service_that_is_reset_too_often_stops(void)
{
    test_open_driver_quietly();
    strata_service *service = make(&(strata_service_options){.rebuild_limit = 2});
    strata_future *future;
    for (int i = 0; i < 3; i++) {
        if (strata_cu.DevicePrimaryCtxReset(0) != CUDA_SUCCESS)
            exit(77);
        strata_device_check(0);
        child_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
        child_check(take(future).status != STRATA_SUCCESS);
        if (i < 2)
            child_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    }
    child_status(strata_service_wait_ready(service, 20ull * TEST_SECOND), STRATA_ERROR_DEVICE_RESET);
    child_check(strstr(strata_last_error()->message, "rebuilt 2 times within 60 s") != NULL);
    child_ok(strata_service_destroy(service));
}

static sem_t context_may_begin;
static CUresult (*real_stream_create)(CUstream *stream, unsigned flags, int priority);

static CUresult create_stream_later(CUstream *stream, unsigned flags, int priority)
{
    sem_wait(&context_may_begin);
    sem_post(&context_may_begin);
    return real_stream_create(stream, flags, priority);
}

enum { PENDING = 6 };

static int order[PENDING];
static _Atomic int answered;

/* On the service's thread alone. */
static void note_order(strata_future *future, void *data)
{
    (void)future;
    order[answered] = (int)(intptr_t)data; /* one thread calls back */
    answered++;
}

/* Requests that come while the context is made again wait in order, up to pending_queue_capacity. */
static void requests_during_a_rebuild(void)
{
    test_open_driver_quietly();
    strata_service *service = make(&(strata_service_options){.pending_queue_capacity = PENDING, .libraries = ""});
    strata_service_stats stats;
    strata_service_snapshot snapshot;
    strata_library library = {.name = "left"};
    strata_future *future;
    sem_init(&context_may_begin, 0, 0);
    real_stream_create = strata_cu.StreamCreateWithPriority;
    strata_cu.StreamCreateWithPriority = create_stream_later;
    if (strata_cu.DevicePrimaryCtxReset(0) != CUDA_SUCCESS)
        exit(77);
    strata_device_check(0);
    child_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
    child_check(take(future).failure == STRATA_FAILURE_POISONED);
    do
        child_ok(strata_service_get_stats(service, &stats));
    while (stats.ready || stats.queued || stats.in_flight);
    for (int i = 0; i < PENDING; i++) {
        const strata_send_options send = {.callback = note_order, .data = (void *)(intptr_t)i};
        child_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, &send, NULL));
    }
    child_status(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, NULL), STRATA_ERROR_QUEUE_FULL);
    child_ok(strata_service_get_stats(service, &stats));
    child_check(!stats.ready && stats.queued == PENDING && stats.in_flight == 0);
    child_ok(strata_service_get_snapshot(service, &snapshot));
    child_check(!snapshot.ready && !snapshot.context && !snapshot.stream && !snapshot.runtime);
    child_ok(strata_service_find_library(service, "blas", &library));
    child_check(!library.name && !library.handle);
    child_status(strata_service_wait_ready(service, 1000), STRATA_ERROR_TIMEOUT);
    child_check(answered == 0);
    sem_post(&context_may_begin);
    child_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    for (int i = 0; i < 20000 && answered < PENDING; i++)
        usleep(500);
    for (int i = 0; i < PENDING; i++)
        child_check(order[i] == i);
    child_ok(strata_service_get_stats(service, &stats));
    child_check(stats.done == PENDING && stats.rebuilds == 1);
    child_ok(strata_service_destroy(service));
}

/* ---- several devices ---- */

static strata_ref *allocate_raw(strata_service *service, size_t bytes)
{
    strata_future *future;
    child_ok(strata_service_allocate_raw(service, STRATA_ELEMENT_U8, bytes, NULL, &future));
    return take(future).ref;
}

/* Each service of two records to a file of its own. */
static void record_each(strata_service *services[2])
{
    char folder[] = "/tmp/strata-services-XXXXXX", name[64];
    size_t count = 2;
    child_check(mkdtemp(folder) != NULL);
    snprintf(name, sizeof name, "%s/one", folder);
    child_status(strata_services_create(&(strata_service_options){.record = name}, services, 2, &count),
                 STRATA_ERROR_INVALID_VALUE);
    child_check_words("put %d, the device, into its name");
    child_check(access(name, F_OK) != 0);
    snprintf(name, sizeof name, "%s/%%%%d", folder); /* a % and a d */
    child_status(strata_services_create(&(strata_service_options){.record = name}, services, 2, &count),
                 STRATA_ERROR_INVALID_VALUE);
    child_check_words("put %d, the device, into its name");
    snprintf(name, sizeof name, "%s/%%x", folder);
    child_status(strata_service_create(&(strata_service_options){.record = name}, services),
                 STRATA_ERROR_INVALID_VALUE);
    child_check_words("expected %p (process), %d (the device) or %%");
    snprintf(name, sizeof name, "%s/%%d", folder);
    child_ok(strata_services_create(&(strata_service_options){.record = name}, services, 2, &count));
    for (int device = 0; device < 2; device++) {
        child_ok(strata_service_destroy(services[device]));
        snprintf(name, sizeof name, "%s/%d", folder, device);
        child_check(unlink(name) == 0);
    }
    child_check(rmdir(folder) == 0);
}

/* Each has a service, and the choice among them follows what they have. */
static void a_service_for_each_device(void)
{
    test_open_driver_quietly();
    enum { ROOM = 16 };
    strata_service *services[ROOM], *chosen, *seen[ROOM];
    strata_driver_info driver;
    size_t count = 0;
    child_ok(strata_driver_get_info(&driver));
    if (driver.device_count < 2 || driver.device_count > ROOM)
        exit(77);
    const size_t devices = (size_t)driver.device_count;
    child_status(strata_services_create(NULL, services, devices - 1, &count), STRATA_ERROR_INVALID_VALUE);
    child_check_words("and room for");
    count = 0;
    child_ok(strata_services_create(&(strata_service_options){.device = 55}, services, ROOM, &count));
    child_check(count == devices);
    for (size_t i = 0; i < count; i++) {
        strata_service_snapshot snapshot;
        CUdevice device = -1;
        child_ok(strata_service_wait_ready(services[i], 60ull * TEST_SECOND));
        child_ok(strata_service_get_snapshot(services[i], &snapshot));
        child_check(strata_cu.CtxSetCurrent(snapshot.context) == CUDA_SUCCESS &&
                    strata_cu.CtxGetDevice(&device) == CUDA_SUCCESS && device == (CUdevice)i);
    }
    for (size_t i = 0; i < count; i++) { /* one after the other */
        child_ok(strata_services_place(services, count, STRATA_PLACEMENT_ROUND_ROBIN, NULL, &seen[i]));
        for (size_t j = 0; j < i; j++)
            child_check(seen[i] != seen[j]);
    }
    strata_service_stats stats;
    child_ok(strata_service_get_stats(services[0], &stats));
    strata_ref *large = allocate_raw(services[0], stats.free_bytes / 2); /* to zero it would take long */
    child_ok(strata_services_place(services, count, STRATA_PLACEMENT_LEAST_LOADED, NULL, &chosen));
    child_check(chosen != services[0]); /* as many requests, and more free bytes */
    const strata_placement_conditions conditions = {.free_bytes = stats.free_bytes / 4 * 3, .ready = true};
    child_ok(strata_services_place(services, 2, STRATA_PLACEMENT_ROUND_ROBIN, &conditions, &chosen));
    child_check(chosen == services[1]);
    child_ok(strata_services_place(services, 2, STRATA_PLACEMENT_ROUND_ROBIN, &conditions, &chosen));
    child_check(chosen == services[1]);
    child_ok(strata_ref_release(large));
    for (size_t i = 0; i < count; i++)
        child_ok(strata_service_destroy(services[i]));
    count = 1;
    child_ok(strata_services_create(NULL, services, ROOM, &count));
    child_check(count == 1);
    child_ok(strata_service_destroy(services[0]));
    record_each(services);
}

static void check_device(strata_service *service, int device)
{
    strata_ref *ref = allocate(service, 64);
    strata_ref_memory memory;
    int found = -1;
    child_ok(strata_ref_access(ref, &memory));
    child_check(memory.block->device == device);
    child_check(strata_cu.PointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory.address) ==
                CUDA_SUCCESS);
    child_check(found == device);
    child_ok(strata_ref_release(ref));
}

/* By the service's options, or by the service that the caller takes of those for all devices. A worker is asked for
 * each device that there is, and one more. */
static void the_callers_word(void)
{
    test_open_driver_quietly();
    strata_service *service, *all[2];
    size_t count = 2;
    for (int device = 1; device >= 0; device--) {
        service = make(&(strata_service_options){.device = device});
        check_device(service, device);
        child_ok(strata_service_destroy(service));
    }
    child_ok(strata_services_create(NULL, all, 2, &count));
    for (int device = 1; device >= 0; device--) {
        child_ok(strata_service_wait_ready(all[device], 60ull * TEST_SECOND));
        check_device(all[device], device);
    }
    for (int device = 0; device < 2; device++)
        child_ok(strata_service_destroy(all[device]));
    service = make(&(strata_service_options){.device = 1, .form = STRATA_SERVICE_ISOLATED});
    child_ok(strata_ref_release(allocate(service, 64)));
    child_ok(strata_service_destroy(service));
    child_ok(strata_service_create(&(strata_service_options){.device = 2, .form = STRATA_SERVICE_ISOLATED}, &service));
    child_status(strata_service_wait_ready(service, 60ull * TEST_SECOND), STRATA_ERROR_INVALID_VALUE);
    child_check_words("2");
    child_ok(strata_service_destroy(service));
}

/* ---- the handler ---- */

static int asked;

static strata_escalation go_on(strata_service *service, const strata_error *error, void *data)
{
    (void)service;
    asked++;
    child_check(error->status == STRATA_ERROR_CORRUPTED);
    return *(strata_escalation *)data;
}

static strata_status corrupt(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    (void)stream;
    (void)data;
    return STRATA_ERROR_CORRUPTED;
}

static void other_failures_ask_the_handler(void)
{
    test_open_driver_quietly();
    strata_escalation answer = STRATA_ESCALATION_GO_ON;
    strata_service *service = make(&(strata_service_options){.escalate = go_on, .escalate_data = &answer});
    const strata_service_operation operation = {.function = corrupt};
    strata_future *future;
    child_ok(strata_service_run(service, &operation, NULL, &future));
    child_check(take(future).failure == STRATA_FAILURE_OTHER);
    child_check(asked == 1);
    strata_ref *ref = allocate(service, 64);

    answer = STRATA_ESCALATION_REBUILD;
    child_ok(strata_service_run(service, &operation, NULL, &future));
    child_check(take(future).status == STRATA_ERROR_CORRUPTED);
    child_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    strata_ref *anew = allocate(service, 64);
    child_check(strata_ref_generation(anew) == 1);
    child_ok(strata_ref_release(anew));
    child_ok(strata_ref_release(ref));

    answer = STRATA_ESCALATION_STOP;
    child_ok(strata_service_run(service, &operation, NULL, &future));
    take(future);
    while (strata_service_stopped(service) == STRATA_SUCCESS)
        ;
    child_status(strata_service_stopped(service), STRATA_ERROR_CORRUPTED);
    child_ok(strata_service_destroy(service));
}

/* ---- tests ---- */

static const test_scenario scenarios[] = {
    TEST_SCENARIO(poison_while_polling),
    TEST_SCENARIO(poison_with_host_functions),
    TEST_SCENARIO(poison_while_synchronizing),
    TEST_SCENARIO(reset),
    TEST_SCENARIO(reset_unseen),
    TEST_SCENARIO(reset_unseen_at_the_end),
    TEST_SCENARIO(reset_with_graphs),
    TEST_SCENARIO(reset_by_function_while_polling),
    TEST_SCENARIO(reset_by_function_with_host_functions),
    TEST_SCENARIO(reset_by_function_while_synchronizing),
    TEST_SCENARIO(a_service_that_is_reset_too_often_stops),
    TEST_SCENARIO(other_failures_ask_the_handler),
    TEST_SCENARIO(requests_during_a_rebuild),
    TEST_SCENARIO(a_service_for_each_device),
    TEST_SCENARIO(the_callers_word),
};

/* On a busy machine a thread may not run for longer than "at once" is; what waits for something else than the fault
 * takes longer each time. */
static void a_poisoned_context_answers_all_that_is_pending(void **state)
{
    (void)state;
    static const char *const planted[] = {"STRATA_SIM_CHECK", NULL}; /* else the checker reports it */
    static const char *const poisoned[] = {"poison_while_polling", "poison_with_host_functions",
                                           "poison_while_synchronizing"};
    for (size_t i = 0; i < sizeof poisoned / sizeof poisoned[0]; i++) {
        int status = ANSWERED_LATE;
        for (int tries = 0; tries < 5 && status == ANSWERED_LATE; tries++)
            status = test_child_status(poisoned[i], planted);
        assert_int_equal(status, 0);
    }
}

static void a_reset_context_is_rebuilt(void **state)
{
    (void)state;
    test_child_run("reset", NULL);
}

static void a_request_and_the_end_find_a_reset(void **state)
{
    (void)state;
    test_child_run("reset_unseen", NULL);
    test_child_run("reset_unseen_at_the_end", NULL);
}

static void graphs_of_requests_are_stale_after_a_reset_and_are_made_again(void **state)
{
    (void)state;
    test_child_run("reset_with_graphs", NULL);
}

static void rebuilds_are_limited(void **state)
{
    (void)state;
    test_child_run("a_service_that_is_reset_too_often_stops", NULL);
}

static void the_handler_decides_about_other_failures(void **state)
{
    (void)state;
    test_child_run("other_failures_ask_the_handler", NULL);
}

static void requests_that_come_during_a_rebuild_wait_in_order(void **state)
{
    (void)state;
    test_child_run("requests_during_a_rebuild", NULL);
}

static void each_device_has_a_service_and_the_choice_follows_what_they_have(void **state)
{
    (void)state;
    static const char *const two[] = {"STRATA_SIM_DEVICES=2", "STRATA_SIM_MEMORY=256MiB", NULL};
    test_child_run("a_service_for_each_device", two);
}

static void work_goes_to_the_device_that_the_caller_names(void **state)
{
    (void)state;
    static const char *const two[] = {"STRATA_DRIVER=sim", "STRATA_SIM_DEVICES=2", NULL};
    test_child_run("the_callers_word", two);
}

static void a_function_may_reset_the_device(void **state)
{
    (void)state;
    test_child_run("reset_by_function_while_polling", NULL);
    test_child_run("reset_by_function_with_host_functions", NULL);
    test_child_run("reset_by_function_while_synchronizing", NULL);
}

int main(int count, char **arguments)
{
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_poisoned_context_answers_all_that_is_pending),
        cmocka_unit_test(a_reset_context_is_rebuilt),
        cmocka_unit_test(a_request_and_the_end_find_a_reset),
        cmocka_unit_test(a_function_may_reset_the_device),
        cmocka_unit_test(graphs_of_requests_are_stale_after_a_reset_and_are_made_again),
        cmocka_unit_test(rebuilds_are_limited),
        cmocka_unit_test(the_handler_decides_about_other_failures),
        cmocka_unit_test(requests_that_come_during_a_rebuild_wait_in_order),
        cmocka_unit_test(each_device_has_a_service_and_the_choice_follows_what_they_have),
        cmocka_unit_test(work_goes_to_the_device_that_the_caller_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
