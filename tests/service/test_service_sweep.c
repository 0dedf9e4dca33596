/* A service in this process, of whose driver calls each one fails in turn. Whichever it is: each request is answered
 * once, and with a reason if it fails; the same request then works, or the service has stopped; and the service can be
 * destroyed, at the latest when that is tried again, with nothing left.
 *
 * The simulated driver fails the n-th call of all threads. With STRATA_TEST_FULL each error and policy is met, which
 * takes a minute. */
#include <dirent.h>
#include <stdio.h>

#include "support/effort.h"
#include "support/service.h"
#include "support/stall.h"

#include <strata/service_blas.h>
#include <strata/service_graph.h>

enum { SIDE = 16, ELEMENTS = SIDE * SIDE, BYTES = 4 * ELEMENTS };

static const strata_service_options all_ways[] = {
    {.completion = STRATA_COMPLETION_POLLING},
    {.completion = STRATA_COMPLETION_HOST_FUNCTION, .streams = STRATA_SERVICE_STREAM_POOLED},
    {.completion = STRATA_COMPLETION_SYNCHRONIZING, .streams = STRATA_SERVICE_STREAM_PER_SENDER},
};

/* ---- one run ---- */

static strata_service *service;
static uint64_t module;
static strata_ref *refs[3];
static strata_host_buffer *locked;
static bool has_blas;
static bool lost; /* a failure that stops the service was answered */
static int asked;
static _Atomic int answered;

static void count_answer(strata_future *future, void *data)
{
    (void)future;
    (void)data;
    atomic_fetch_add(&answered, 1);
}

static const strata_send_options counted = {.callback = count_answer};

/* Waits, and takes the answer of a request that was sent. */
static strata_status finish(strata_status sent, strata_future *future, strata_answer *answer)
{
    *answer = (strata_answer){0};
    if (sent != STRATA_SUCCESS)
        return sent;
    asked++;
    const strata_status status = strata_future_wait(future);
    check_ok(strata_future_take(future, answer));
    assert_int_equal(answer->status, status);
    lost = lost || answer->failure == STRATA_FAILURE_OTHER || answer->failure == STRATA_FAILURE_UNRECOVERABLE;
    strata_host_buffer_release(answer->buffer);
    strata_future_release(future);
    return status;
}

static strata_status finish_plainly(strata_status sent, strata_future *future)
{
    strata_answer answer;
    return finish(sent, future, &answer);
}

/* ---- its requests ---- */

static strata_status load(void)
{
    strata_future *future;
    strata_answer answer;
    const strata_status sent = strata_service_load(service, test_fill_ptx, 0, &counted, &future);
    const strata_status status = finish(sent, future, &answer);
    module = answer.module;
    return status;
}

static strata_status allocate(void)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < 3 && status == STRATA_SUCCESS; i++) {
        strata_future *future;
        strata_answer answer;
        if (refs[i])
            continue;
        status = strata_service_allocate(service, STRATA_ELEMENT_F32, ELEMENTS, &counted, &future);
        status = finish(status, future, &answer);
        refs[i] = answer.ref;
    }
    return status;
}

static strata_status lock_buffer(void)
{
    return strata_service_buffer_create(service, BYTES, &locked);
}

static strata_status copy_in(void)
{
    float *values = strata_host_buffer_memory(locked);
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < 2 && status == STRATA_SUCCESS; i++) {
        strata_future *future;
        for (size_t j = 0; j < ELEMENTS; j++)
            values[j] = (float)(i + 1);
        status = strata_service_copy_from_host(service, locked, refs[i], &counted, &future);
        status = finish_plainly(status, future);
    }
    return status;
}

static strata_status launch(void)
{
    strata_argument to = {.kind = STRATA_ARGUMENT_WRITE, .ref = refs[2]};
    const strata_argument arguments[] = {to, test_value(BYTES), test_value(1)};
    const strata_kernel kernel = {
        .module = module, .entry = "strata_pattern_fill", .arguments = arguments, .argument_count = 3};
    strata_future *future;
    const strata_status sent = strata_service_launch(service, &kernel, &counted, &future);
    return finish_plainly(sent, future);
}

static strata_blas_gemm_call product(void)
{
    return (strata_blas_gemm_call){.order = STRATA_BLAS_ROWS,
                                   .m = SIDE,
                                   .n = SIDE,
                                   .k = SIDE,
                                   .alpha = 1,
                                   .a = strata_blas_of_ref(refs[0]),
                                   .b = strata_blas_of_ref(refs[1]),
                                   .c = strata_blas_of_ref(refs[2])};
}

static strata_status multiply(void)
{
    const strata_blas_gemm_call call = product();
    strata_future *future;
    if (!has_blas)
        return STRATA_SUCCESS;
    const strata_status sent = strata_service_sgemm(service, &call, &counted, &future);
    return finish_plainly(sent, future);
}

/* Every element of the reference is the value. */
static strata_status check(strata_ref *ref, float value)
{
    strata_host_buffer *buffer = test_buffer(BYTES, 0);
    const float *values = strata_host_buffer_memory(buffer);
    strata_future *future;
    const strata_status sent = strata_service_copy_to_host(service, ref, buffer, &counted, &future);
    const strata_status status = finish_plainly(sent, future);
    for (size_t i = 0; i < ELEMENTS && status == STRATA_SUCCESS; i++)
        if (values[i] != value)
            fail_msg("element %zu is %g, not %g", i, (double)values[i], (double)value);
    strata_host_buffer_release(buffer);
    return status;
}

static strata_status check_product(void)
{
    return has_blas ? check(refs[2], 2 * SIDE) : STRATA_SUCCESS;
}

static strata_status fill_and_copy(void)
{
    strata_future *future;
    strata_status sent = strata_service_fill(service, refs[0], 0x40400000, 4, &counted, &future); /* 3.0 */
    const strata_status status = finish_plainly(sent, future);
    if (status != STRATA_SUCCESS)
        return status;
    sent = strata_service_copy(service, refs[0], refs[1], &counted, &future);
    return finish_plainly(sent, future);
}

static strata_status check_copy(void)
{
    return check(refs[1], 3);
}

/* ---- graphs and functions ---- */

static strata_status record_requests(strata_service_graph *graph)
{
    const strata_send_options into = {.graph = graph};
    const strata_blas_gemm_call call = product();
    strata_status status = strata_service_fill(service, refs[0], 0x40000000, 4, &into, NULL); /* 2.0 */
    if (status == STRATA_SUCCESS && has_blas)
        status = strata_service_sgemm(service, &call, &into, NULL);
    return status;
}

static strata_status play_requests(void)
{
    strata_service_graph *graph;
    strata_future *future = NULL;
    strata_status status = strata_service_graph_begin(service, "swept", &graph);
    if (status != STRATA_SUCCESS)
        return status;
    status = record_requests(graph);
    if (status == STRATA_SUCCESS)
        status = strata_service_graph_end(graph, &counted, &future);
    status = finish_plainly(status, future);
    if (status == STRATA_SUCCESS)
        status = strata_service_graph_launch(graph, &counted, &future);
    if (status == STRATA_SUCCESS)
        status = finish_plainly(status, future);
    strata_service_graph_release(graph);
    return status;
}

static strata_status check_played(void)
{
    return check(refs[0], 2);
}

/* What a free fails with is met by a second one, as a program would. */
static strata_status use_block(strata_runtime *runtime, CUstream stream, void *data)
{
    strata_block block;
    (void)data;
    strata_status status = strata_runtime_allocate(runtime, BYTES, stream, &block);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_runtime_deallocate_on(runtime, &block, stream);
    return status == STRATA_SUCCESS ? status : strata_runtime_deallocate_on(runtime, &block, stream);
}

static const strata_service_operation using_block = {.name = "block", .function = use_block};

static strata_status run(void)
{
    strata_future *future;
    const strata_status sent = strata_service_run(service, &using_block, &counted, &future);
    return finish_plainly(sent, future);
}

static strata_status play_function(void)
{
    strata_future *future;
    strata_answer answer;
    strata_status status = strata_service_record_graph(service, &using_block, &counted, &future);
    status = finish(status, future, &answer);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_service_launch_graph(service, answer.graph, &counted, &future);
    status = finish_plainly(status, future);
    (void)strata_graph_destroy(answer.graph); /* an error of its frees leaves them to later calls */
    return status;
}

static const struct {
    const char *name;
    strata_status (*ask)(void);
} requests[] = {
    {"load", load},
    {"allocate", allocate},
    {"lock_buffer", lock_buffer},
    {"copy_in", copy_in},
    {"launch", launch},
    {"multiply", multiply},
    {"check_product", check_product},
    {"fill_and_copy", fill_and_copy},
    {"check_copy", check_copy},
    {"play_requests", play_requests},
    {"check_played", check_played},
    {"play_function", play_function},
    {"run", run},
};

/* ---- the run, and what is left of it ---- */

static strata_status check_reason(strata_status status, const char *what)
{
    const strata_error *error = strata_last_error();
    if (status != STRATA_SUCCESS && (error->status != status || !error->message[0]))
        fail_msg("%s: %s without a reason", what, strata_status_name(status));
    return status;
}

/* Returns how many failed. */
static unsigned ask_all(void)
{
    unsigned failed = 0;
    for (size_t i = 0; i < sizeof requests / sizeof requests[0] && !lost; i++) {
        if (check_reason(requests[i].ask(), requests[i].name) == STRATA_SUCCESS)
            continue;
        if (failed++)
            fail_msg("%s fails, too: %s", requests[i].name, strata_last_error()->message);
        if (!lost && requests[i].ask() != STRATA_SUCCESS)
            fail_msg("%s fails again: %s", requests[i].name, strata_last_error()->message);
    }
    return failed;
}

static void release_all(void)
{
    for (size_t i = 0; i < 3; i++)
        (void)check_reason(strata_ref_release(refs[i]), "strata_ref_release");
    memset(refs, 0, sizeof refs);
    strata_host_buffer_release(locked);
    locked = NULL;
}

static void destroy_service(void)
{
    if (check_reason(strata_service_destroy(service), "strata_service_destroy") == STRATA_SUCCESS)
        return;
    if (strata_last_error()->status == STRATA_ERROR_BUSY)
        fail_msg("the service is busy: %s", strata_last_error()->message);
    check_ok(strata_service_destroy(service));
}

/* The service stops just after it has answered what was under way. */
static void check_stopped(void)
{
    for (unsigned i = 0; i < 20000 && strata_service_stopped(service) == STRATA_SUCCESS; i++)
        usleep(500);
    assert_int_not_equal(check_reason(strata_service_stopped(service), "strata_service_stopped"), STRATA_SUCCESS);
    assert_int_not_equal(strata_service_allocate(service, STRATA_ELEMENT_U8, 1, NULL, NULL), STRATA_SUCCESS);
}

/* Returns how many requests failed, a context that could not be made included. */
static unsigned run_service(const strata_service_options *options)
{
    lost = false;
    asked = 0;
    atomic_store(&answered, 0);
    check_ok(strata_service_create(options, &service));
    const bool ready = check_reason(strata_service_wait_ready(service, 20ull * TEST_SECOND), "ready") == STRATA_SUCCESS;
    const unsigned failed = ready ? ask_all() : 1;
    if (!ready || lost)
        check_stopped();
    release_all();
    destroy_service();
    assert_int_equal(atomic_load(&answered), asked);
    return failed;
}

static size_t count_entries(const char *folder)
{
    size_t entries = 0;
    DIR *open = opendir(folder);
    assert_non_null(open);
    while (readdir(open))
        entries++;
    closedir(open);
    return entries;
}

static size_t threads_before, descriptors_before; /* of all runs */

static strata_sim_accounts look(void)
{
    strata_sim_accounts now;
    check_cu(test_sim_control()->get_accounts(&now));
    return now;
}

/* Objects whose end the driver may refuse for good. */
static uint64_t refusable(const strata_sim_accounts *accounts)
{
    return accounts->streams + accounts->modules + accounts->graphs + accounts->graph_execs;
}

/* A thread that was joined is listed for a moment, and the simulated driver opens a file now and then. */
static void check_entries(const char *folder, size_t most)
{
    for (unsigned i = 0; i < 20000; i++) {
        if (count_entries(folder) <= most)
            return;
        usleep(100);
    }
    fail_msg("%s has more entries than the %zu before", folder, most);
}

/* Events stay with their timelines, for later streams. */
static void check_nothing_left(const strata_sim_accounts *was)
{
    const strata_sim_accounts now = look(), *is = &now;
    check_entries("/proc/self/task", threads_before);
    check_entries("/proc/self/fd", descriptors_before);
    assert_in_range(refusable(is), refusable(was), refusable(was) + 1);
    assert_int_equal(is->contexts, was->contexts);
    assert_int_equal(is->pools, was->pools);
    assert_int_equal(is->device_blocks, was->device_blocks);
    assert_int_equal(is->pinned_blocks, was->pinned_blocks);
    assert_int_equal(is->registered_blocks, was->registered_blocks);
    assert_int_equal(is->reserved_bytes, was->reserved_bytes);
    assert_int_equal(is->memory_handles, was->memory_handles);
    assert_int_equal(is->memory_maps, was->memory_maps);
    assert_int_equal(is->address_ranges, was->address_ranges);
}

/* ---- the sweep ---- */

static char under_way[80]; /* what to look at if it fails */

static int tell_where(void **state)
{
    (void)state;
    if (under_way[0])
        print_message("the sweep ended at %s\n", under_way);
    under_way[0] = '\0';
    return 0;
}

/* Of a run in which the n-th call fails. Returns whether there was such a call. */
static bool run_with_fault(const strata_service_options *options, CUresult error, uint64_t nth)
{
    const test_sim *sim = test_sim_control();
    const strata_sim_fault fault = {.size = sizeof fault, .kind = STRATA_SIM_FAIL_CALL, .nth = nth, .error = error};
    const strata_sim_accounts before = look();
    uint32_t id;
    uint64_t reached;
    snprintf(under_way, sizeof under_way, "completion %d, error %d, call %llu", (int)options->completion, (int)error,
             (unsigned long long)nth);
    check_cu(sim->add_fault(&fault, &id));
    const unsigned failed = run_service(options);
    check_cu(sim->fault_reached(id, &reached));
    check_cu(sim->clear_faults());
    assert_true(failed == 0 || reached >= nth);
    check_nothing_left(&before);
    under_way[0] = '\0';
    return reached >= nth;
}

static void sweep(const strata_service_options *way, CUresult error)
{
    strata_service_options options = *way;
    const uint64_t step = 1000 / test_effort(1000, 30);
    options.stack_text = "budget(limit=256MiB), pool";
    options.stream_count = 2;
    uint64_t nth = 1;
    while (run_with_fault(&options, error, nth))
        nth += step;
    assert_true(nth > 100);
}

static void the_service_goes_on_whichever_call_runs_out_of_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_ways / sizeof all_ways[0]; i++)
        sweep(&all_ways[i], CUDA_ERROR_OUT_OF_MEMORY);
}

static void the_service_ends_well_whichever_call_fails(void **state)
{
    (void)state;
    sweep(&all_ways[0], CUDA_ERROR_UNKNOWN);
}

/* The simulated driver does work during calls, of which waiting for host functions makes few: unless it does all work
 * early that would take hours. */
static void so_it_does_with_each_error_and_order_of_work(void **state)
{
    static const CUresult errors[] = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_OUT_OF_MEMORY,
                                      CUDA_ERROR_UNKNOWN};
    static const strata_sim_policy policies[] = {STRATA_SIM_EARLY, STRATA_SIM_LATE, STRATA_SIM_RANDOM};
    (void)state;
    if (!getenv("STRATA_TEST_FULL"))
        skip();
    for (size_t i = 0; i < 3 * 4 * 3; i++) {
        const strata_service_options *way = &all_ways[i % 3];
        const strata_sim_policy policy = policies[i / 3 % 3];
        if (policy != STRATA_SIM_EARLY && way->completion == STRATA_COMPLETION_HOST_FUNCTION)
            continue;
        check_cu(test_sim_control()->set_policy(policy));
        sweep(way, errors[i / 9]);
        print_message("completion %d, policy %d, error %d\n", (int)way->completion, (int)policy, (int)errors[i / 9]);
    }
}

/* ---- single faults ---- */

static void fail_nth(uint64_t nth, const char *entry, CUresult error)
{
    const strata_sim_fault fault = {
        .size = sizeof fault, .kind = STRATA_SIM_FAIL_CALL, .nth = nth, .error = error, .entry = entry};
    check_cu(test_sim_control()->add_fault(&fault, NULL));
}

static void fail_next(const char *entry, CUresult error)
{
    fail_nth(1, entry, error);
}

/* The answer gives the host buffer back, which the device writes to. */
static void a_copy_whose_end_could_not_be_seen_is_answered_after_it(void **state)
{
    (void)state;
    check_cu(test_sim_control()->set_policy(STRATA_SIM_LATE));
    check_cu(test_cu()->CtxSynchronize());
    for (size_t i = 0; i < 2; i++) {
        strata_host_buffer *buffer = test_buffer(BYTES, 1);
        service = test_service_make(&all_ways[2 * i]); /* those that ask fences */
        strata_ref *ref = test_service_allocate(service, BYTES);
        fail_next("cuEventQuery", CUDA_ERROR_OUT_OF_MEMORY);
        check_status(test_copy(service, ref, buffer, true), STRATA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(look().unfinished_work, 0);
        check_cu(test_sim_control()->clear_faults());
        check_ok(strata_ref_release(ref));
        strata_host_buffer_release(buffer);
        check_ok(strata_service_destroy(service));
    }
    check_cu(test_sim_control()->set_policy(STRATA_SIM_EARLY));
}

/* The first failure is told; the next call ends what is left. */
static void an_end_that_the_driver_refuses_is_tried_again(void **state)
{
    static const char *const entries[] = {"cuStreamDestroy", "cuModuleUnload"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const strata_sim_accounts before = look();
        service = test_service_make(NULL);
        test_load_fill(service);
        fail_next(entries[i], CUDA_ERROR_UNKNOWN);
        check_status(strata_service_destroy(service), STRATA_ERROR_DRIVER);
        check_last_error(STRATA_ERROR_DRIVER, entries[i]);
        check_ok(strata_service_destroy(service));
        check_cu(test_sim_control()->clear_faults());
        const strata_sim_accounts after = look();
        assert_int_equal(refusable(&after), refusable(&before));
    }
}

static strata_status stall(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    *(test_stall **)data = test_stall_begin(stream);
    return STRATA_SUCCESS;
}

/* A driver that fails does not say whether it still calls the host function behind the work. */
static void a_host_function_may_come_when_its_service_is_gone(void **state)
{
    test_stall *stalled;
    const strata_service_operation operation = {.function = stall, .data = &stalled};
    strata_future *future;
    (void)state;
    service = test_service_make(&all_ways[1]);
    for (uint64_t nth = 1; nth <= 8; nth++) {
        fail_nth(nth, "cuStreamSynchronize", CUDA_ERROR_UNKNOWN);
        fail_nth(nth, "cuEventSynchronize", CUDA_ERROR_UNKNOWN);
    }
    fail_next("cuStreamQuery", CUDA_ERROR_UNKNOWN);
    check_ok(strata_service_run(service, &operation, NULL, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_DRIVER);
    strata_future_release(future);
    while (strata_service_stopped(service) == STRATA_SUCCESS)
        usleep(100); /* its streams have been closed by then */
    check_cu(test_sim_control()->clear_faults());
    test_stall_end(stalled);
    check_ok(strata_service_destroy(service));
}

static strata_status leave_capture_open(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)data;
    return strata_capture_begin(runtime, stream, STRATA_CAPTURE_RELAXED, NULL);
}

/* Also one that the runtime knows, whose stream it has left to the capture. */
static void a_function_that_leaves_a_capture_open_is_told_and_the_next_works(void **state)
{
    const strata_service_operation operation = {.function = leave_capture_open};
    strata_future *future;
    (void)state;
    lost = false;
    service = test_service_make(NULL);
    check_ok(strata_service_run(service, &operation, NULL, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_STREAM_CAPTURE);
    check_last_error(STRATA_ERROR_STREAM_CAPTURE, "left a capture open");
    strata_future_release(future);
    check_ok(run());
    check_ok(play_function());
    check_ok(strata_service_destroy(service));
}

static void look_for_blas(void)
{
    service = test_service_make(NULL);
    has_blas = true;
    check_ok(allocate());
    const strata_status status = multiply();
    has_blas = status == STRATA_SUCCESS;
    if (!has_blas)
        print_message("without products: %s\n", strata_last_error()->message);
    release_all();
    check_ok(strata_service_destroy(service));
}

static int prepare(void **state)
{
    (void)state;
    look_for_blas();
    for (size_t i = 0; i < sizeof all_ways / sizeof all_ways[0]; i++)
        run_service(&all_ways[i]); /* starts the driver's threads */
    usleep(100000);                /* of threads that were joined none is listed by now */
    threads_before = count_entries("/proc/self/task");
    descriptors_before = count_entries("/proc/self/fd");
    return 0;
}

/* Exits with 77 without the simulated driver. */
int main(void)
{
    test_open_driver();
    if (!test_on_simulated_driver()) {
        print_message("skipped: only the simulated driver can be made to fail\n");
        return 77;
    }
#define SWEEP(test) cmocka_unit_test_teardown(test, tell_where)
    const struct CMUnitTest tests[] = {
        SWEEP(the_service_goes_on_whichever_call_runs_out_of_memory),
        SWEEP(the_service_ends_well_whichever_call_fails),
        SWEEP(so_it_does_with_each_error_and_order_of_work),
        SWEEP(a_copy_whose_end_could_not_be_seen_is_answered_after_it),
        SWEEP(an_end_that_the_driver_refuses_is_tried_again),
        SWEEP(a_host_function_may_come_when_its_service_is_gone),
        SWEEP(a_function_that_leaves_a_capture_open_is_told_and_the_next_works),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
