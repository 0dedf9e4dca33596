/* Recordings of what a service was asked. */
#include "service/recordings.h"

#include "service/recorder.h"

#include <dirent.h>
#include <inttypes.h>
#include <time.h>

#include <strata/service_blas.h>
#include <strata/service_graph.h>

enum { BYTES = 4096 };

/* ---- bytes that go to the host ---- */

static CUresult (*copy_to_host)(void *, CUdeviceptr, size_t, CUstream);
static uint64_t sum; /* of the bytes of all copies, in their order; the service's thread */

static CUresult sum_copy(void *host, CUdeviceptr address, size_t bytes, CUstream stream)
{
    const CUresult result = copy_to_host(host, address, bytes, stream);
    strata_cu.StreamSynchronize(stream);
    for (size_t i = 0; i < bytes; i++)
        sum = sum * 31 + ((const unsigned char *)host)[i];
    return result;
}

/* ---- a session ---- */

static strata_ref *allocate(strata_service *service, strata_element type, size_t length)
{
    strata_future *future;
    check_ok(strata_service_allocate(service, type, length, NULL, &future));
    return test_take(future).ref;
}

static strata_status launch_fill(strata_service *service, uint64_t module, const char *entry, strata_ref *ref,
                                 uint64_t seed, const strata_send_options *send)
{
    const strata_argument arguments[] = {
        {.kind = STRATA_ARGUMENT_WRITE, .ref = ref}, test_value(strata_ref_len(ref)), test_value(seed)};
    const strata_kernel kernel = {
        .module = module, .entry = entry, .block = {32}, .arguments = arguments, .argument_count = 3};
    strata_future *future;
    check_ok(strata_service_launch(service, &kernel, send, &future));
    return test_take(future).status;
}

static strata_status do_nothing(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    (void)stream;
    (void)data;
    return STRATA_SUCCESS;
}

static void ask_functions(strata_service *service)
{
    const strata_service_operation operation = {.name = "two words", .function = do_nothing};
    strata_future *future;
    check_ok(strata_service_run(service, &operation, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    check_ok(strata_service_record_graph(service, &operation, NULL, &future));
    strata_answer answer = test_take(future);
    check_ok(strata_service_launch_graph(service, answer.graph, NULL, &future));
    test_take(future);
    check_ok(strata_graph_destroy(answer.graph));
}

/* Returns whether there is a library; its requests are recorded either way. */
static bool ask_library(strata_service *service)
{
    strata_ref *x = allocate(service, STRATA_ELEMENT_F32, 16), *result = allocate(service, STRATA_ELEMENT_F32, 1);
    strata_blas_operand every_other = strata_blas_of_ref(x);
    every_other.step = 2;
    const strata_service_blas_call norm = {
        .routine = STRATA_BLAS_NRM2, .call.vectors = {.n = 8, .x = every_other, .result = strata_blas_of_ref(result)}};
    const strata_service_blas_call product = {.routine = STRATA_BLAS_GEMM,
                                              .call.gemm = {.order = STRATA_BLAS_ROWS,
                                                            .transpose_b = true,
                                                            .m = 2,
                                                            .n = 2,
                                                            .k = 2,
                                                            .alpha = 0.1,
                                                            .beta = -1,
                                                            .a = strata_blas_of_ref(x),
                                                            .b = strata_blas_of_ref(x),
                                                            .c = {.ref = x, .offset = 8, .leading = 4}}};
    strata_future *future;
    check_ok(strata_service_blas(service, &norm, NULL, &future));
    const bool there = test_take(future).status == STRATA_SUCCESS;
    check_ok(strata_service_blas(service, &product, NULL, &future));
    assert_int_equal(test_take(future).status == STRATA_SUCCESS, there);
    assert_true(strata_ref_release(x) == STRATA_SUCCESS && strata_ref_release(result) == STRATA_SUCCESS);
    return there;
}

/* Fourteen requests that can be asked again, one of which fails, and three that cannot. */
enum { ASKED = 14, NOT_ASKED = 3 };

static bool ask_all(strata_service *service)
{
    const strata_send_options send = {
        .priority = STRATA_PRIORITY_HIGH, .hint = STRATA_HINT_SHORT, .sender = 77, .timeout = 60ull * TEST_SECOND};
    strata_ref *whole = test_service_allocate(service, BYTES), *part,
               *other = allocate(service, STRATA_ELEMENT_F64, 512);
    strata_host_buffer *buffer = test_buffer(BYTES, 0), *half = test_buffer(BYTES / 2, 0);
    check_ok(strata_ref_view(whole, BYTES / 4, BYTES / 2, STRATA_ELEMENT_U8, &part));
    const uint64_t module = test_load_fill(service);
    assert_int_equal(launch_fill(service, module, "strata_pattern_fill", whole, 5, NULL), STRATA_SUCCESS);
    assert_int_equal(launch_fill(service, module, "strata_pattern_fill", part, 6, &send), STRATA_SUCCESS);
    assert_int_not_equal(launch_fill(service, module, "no such kernel", whole, 7, NULL), STRATA_SUCCESS);
    check_ok(test_copy(service, whole, buffer, true));
    memset(strata_host_buffer_memory(buffer), 0, BYTES);
    check_ok(test_copy(service, other, buffer, false));
    check_ok(test_copy(service, other, buffer, true));
    check_ok(test_copy(service, part, half, true));
    ask_functions(service);
    const bool library = ask_library(service);
    strata_host_buffer_release(buffer);
    strata_host_buffer_release(half);
    assert_true(strata_ref_release(part) == STRATA_SUCCESS && strata_ref_release(whole) == STRATA_SUCCESS &&
                strata_ref_release(other) == STRATA_SUCCESS);
    return library;
}

/* A line without its time, as the replay's recording is to have it; NULL: it is not asked again. */
static const char *asked_again(const char *line)
{
    static const char *const functions[] = {" run ", " record_graph ", " launch_graph"};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strstr(line, functions[i]))
            return NULL;
    return strchr(line, ' ');
}

static void check_same_requests(char *recorded, char *again)
{
    char *rest, *rest_again;
    const char *line_again = strtok_r(again, "\n", &rest_again);
    size_t count = 0;
    for (char *line = strtok_r(recorded, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *expected = asked_again(line);
        if (!expected)
            continue;
        assert_non_null(line_again);
        assert_string_equal(strchr(line_again, ' '), expected);
        line_again = strtok_r(NULL, "\n", &rest_again);
        count++;
    }
    assert_null(line_again);
    assert_int_equal(count, 1 + ASKED);
}

static void a_session_is_asked_again_in_its_order_and_computes_the_same(void **state)
{
    (void)state;
    strata_service_stats stats, again;
    strata_service_replay_result result;
    copy_to_host = strata_cu.MemcpyDtoHAsync;
    strata_cu.MemcpyDtoHAsync = sum_copy;
    sum = 0;
    strata_service *service = recording_service(first);
    const bool library = ask_all(service);
    check_ok(strata_service_get_stats(service, &stats));
    check_ok(strata_service_destroy(service));
    assert_int_equal(stats.recorded, ASKED + NOT_ASKED);
    assert_false(stats.record_failed);

    const uint64_t expected = sum;
    sum = 0;
    service = recording_service(second);
    check_ok(strata_service_replay(service, first, &(strata_service_replay_options){.in_flight = 1}, &result));
    check_ok(strata_service_get_stats(service, &again));
    check_ok(strata_service_destroy(service));
    strata_cu.MemcpyDtoHAsync = copy_to_host;

    assert_int_equal(result.requests, ASKED);
    assert_int_equal(result.skipped, NOT_ASKED);
    assert_int_equal(result.failed, library ? 1 : 3);
    assert_int_equal(again.done, stats.done - NOT_ASKED);
    assert_int_equal(again.failed, stats.failed);
    assert_int_equal(again.bytes_to_host, stats.bytes_to_host);
    assert_int_equal(again.bytes_from_host, stats.bytes_from_host);
    assert_int_equal(result.bytes_copied, stats.bytes_to_host + stats.bytes_from_host);
    assert_true(sum == expected && sum != 0);
    char *recorded = read_text(first), *repeated = read_text(second);
    check_same_requests(recorded, repeated);
    free(recorded);
    free(repeated);
}

/* A request is answered before it is no longer in flight. */
static void wait_until_idle(strata_service *service)
{
    strata_service_stats stats = {.queued = 1};
    for (int i = 0; i < 5000 && stats.queued + stats.in_flight > 0; i++) {
        check_ok(strata_service_get_stats(service, &stats));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_int_equal(stats.queued + stats.in_flight, 0);
}

/* A request is no longer in flight before the service lets go of what it names. */
static size_t live_bytes_in_the_end(strata_runtime *runtime)
{
    strata_usage usage = {.live_bytes = 1};
    for (int i = 0; i < 5000 && usage.live_bytes; i++) {
        check_ok(strata_runtime_usage(runtime, &usage));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return usage.live_bytes;
}

static void a_replay_keeps_no_memory(void **state)
{
    (void)state;
    strata_service_snapshot snapshot;
    strata_service *service = recording_service(first);
    ask_all(service);
    check_ok(strata_service_destroy(service));
    service = test_service_make(&(strata_service_options){.libraries = ""});
    check_ok(strata_service_replay(service, first, NULL, NULL));
    check_ok(strata_service_get_snapshot(service, &snapshot));
    assert_int_equal(live_bytes_in_the_end(snapshot.runtime), 0);
    check_ok(strata_service_destroy(service));
}

/* ---- files ---- */

static void a_recording_is_for_its_user_alone_and_is_whole_at_the_end(void **state)
{
    (void)state;
    struct stat is;
    strata_service *service = recording_service(first);
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
    check_ok(strata_service_destroy(service));
    assert_int_equal(stat(first, &is), 0);
    assert_int_equal(is.st_mode & 0777, 0600);
    char *text = read_text(first);
    assert_non_null(strstr(text, " normal none 0 allocate 1 u8 64 zeroed\n"));
    assert_int_equal(text[strlen(text) - 1], '\n');
    free(text);
}

static void what_an_idle_service_began_is_in_the_file(void **state)
{
    (void)state;
    strata_service *service = recording_service(first);
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
    bool found = false;
    for (int i = 0; i < 2000 && !found; i++) {
        char *text = read_text(first);
        found = strstr(text, " allocate 1 u8 64 zeroed\n") != NULL;
        free(text);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_true(found);
    check_ok(strata_service_destroy(service));
}

static void a_file_that_exists_is_a_link_or_has_no_folder_is_refused(void **state)
{
    (void)state;
    strata_service *service;
    char path[128];
    write_lines(first, "");
    assert_int_equal(symlink("elsewhere", second), 0);
    check_status(strata_service_create(&(strata_service_options){.record = first}, &service), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "exists; remove it");
    check_status(strata_service_create(&(strata_service_options){.record = second}, &service), STRATA_ERROR_IO);
    assert_null(service);
    snprintf(path, sizeof path, "%s/none/file", folder);
    check_status(strata_service_create(&(strata_service_options){.record = path}, &service), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "No such file or directory");
    check_status(strata_service_create(&(strata_service_options){.record = folder}, &service), STRATA_ERROR_IO);
    check_status(strata_service_create(&(strata_service_options){.record = ""}, &service), STRATA_ERROR_INVALID_VALUE);
    char *text = read_text(first);
    assert_string_equal(text, HEAD);
    free(text);
}

static _Atomic int told;

static void count_told(const strata_error *error, void *data)
{
    (void)data;
    if (error->status == STRATA_ERROR_IO && strstr(error->message, "No space left on device"))
        told++;
}

static void a_full_disk_is_told_once_and_fails_no_request(void **state)
{
    (void)state;
    strata_service_stats stats = {0};
    told = 0;
    strata_set_log_callback(count_told, NULL);
    strata_service *service = recording_service("/dev/full");
    for (int i = 0; i < 2000 && !stats.record_failed; i++) {
        check_ok(strata_ref_release(test_service_allocate(service, 64)));
        check_ok(strata_service_get_stats(service, &stats));
    }
    assert_true(stats.record_failed);
    const uint64_t recorded = stats.recorded;
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
    check_ok(strata_service_get_stats(service, &stats));
    assert_int_equal(stats.failed, 0);
    assert_int_equal(stats.recorded, recorded);
    check_ok(strata_service_destroy(service));
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(told, 1);
}

/* ---- graphs and other memory ---- */

/* Fills `from`, copies it, and launches a kernel, twice, in a graph of that name. */
static void ask_graph(strata_service *service, const char *name, strata_ref *from, strata_ref *to, uint64_t module)
{
    strata_service_graph *graph;
    strata_future *future;
    check_ok(strata_service_graph_begin(service, name, &graph));
    const strata_send_options into = {.graph = graph, .sender = 5};
    const strata_argument arguments[] = {{.kind = STRATA_ARGUMENT_WRITE, .ref = from}, test_value(512), test_value(9)};
    const strata_kernel kernel = {
        .module = module, .entry = "strata_pattern_fill", .arguments = arguments, .argument_count = 3};
    check_ok(strata_service_fill(service, from, 0x04030201, 4, &into, NULL));
    check_ok(strata_service_copy(service, from, to, &into, NULL));
    check_ok(strata_service_launch(service, &kernel, &into, NULL));
    check_ok(strata_service_graph_end(graph, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        check_ok(strata_service_graph_launch(graph, NULL, &future));
        assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    }
    strata_service_graph_release(graph);
}

static void ask_with_graphs(strata_service *service)
{
    strata_ref *whole = test_service_allocate(service, BYTES), *half,
               *other = test_service_allocate(service, BYTES / 2);
    strata_host_buffer *buffer = test_buffer(BYTES, 0), *small = test_buffer(BYTES / 2, 0);
    strata_future *future;
    check_ok(strata_ref_view(whole, BYTES / 2, BYTES / 2, STRATA_ELEMENT_U8, &half));
    const uint64_t module = test_load_fill(service);
    check_ok(strata_service_fill(service, whole, 0x17, 1, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    ask_graph(service, "a b", half, other, module);
    ask_graph(service, NULL, half, other, module);
    check_ok(test_copy(service, whole, buffer, true));
    check_ok(test_copy(service, other, small, true));
    strata_host_buffer_release(buffer);
    strata_host_buffer_release(small);
    assert_true(strata_ref_release(half) == STRATA_SUCCESS && strata_ref_release(whole) == STRATA_SUCCESS &&
                strata_ref_release(other) == STRATA_SUCCESS);
}

static void graphs_of_requests_are_asked_again(void **state)
{
    (void)state;
    strata_service_replay_result result;
    strata_service_stats stats;
    copy_to_host = strata_cu.MemcpyDtoHAsync;
    strata_cu.MemcpyDtoHAsync = sum_copy;
    sum = 0;
    strata_service *service = recording_service(first);
    ask_with_graphs(service);
    check_ok(strata_service_get_stats(service, &stats));
    check_ok(strata_service_destroy(service));
    const uint64_t expected = sum;
    sum = 0;
    service = recording_service(second);
    check_ok(strata_service_replay(service, first, &(strata_service_replay_options){.in_flight = 1}, &result));
    wait_until_idle(service);
    check_ok(strata_service_destroy(service)); /* no graph is left */
    strata_cu.MemcpyDtoHAsync = copy_to_host;
    assert_int_equal(result.failed + result.skipped, 0);
    assert_int_equal(result.requests, stats.recorded);
    assert_int_equal(result.requests, 6 + 2 * (3 + 1 + 2));
    assert_true(sum == expected && sum != 0);
    char *text = read_text(first), *again = read_text(second);
    assert_non_null(strstr(text, " 5 normal none 0 into 1 fill 1:2048:u8:2048 value:01020304\n"));
    assert_non_null(strstr(text, " into 2 copy 1:2048:u8:2048 2:0:u8:2048\n"));
    assert_non_null(strstr(text, " into 2 launch 1 strata_pattern_fill 1 1 1 1 1 1 0 write:1:2048:u8:2048 value:"));
    assert_non_null(strstr(text, " make_graph 1 a%20b\n"));
    assert_non_null(strstr(text, " play_graph 2\n"));
    assert_non_null(strstr(again, " play_graph 2\n"));
    free(text);
    free(again);
}

static void memory_that_the_service_did_not_allocate_is_unknown(void **state)
{
    (void)state;
    strata_service_snapshot snapshot;
    strata_service_replay_result result;
    strata_ref *ref;
    strata_host_buffer *buffer = test_buffer(64, 1);
    strata_service *service = recording_service(first);
    check_ok(strata_service_get_snapshot(service, &snapshot));
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
    check_ok(strata_ref_allocate(snapshot.runtime, STRATA_ELEMENT_U8, 64, false, snapshot.stream, &ref));
    check_ok(test_copy(service, ref, buffer, false));
    check_ok(strata_ref_release(ref));
    strata_host_buffer_release(buffer);
    check_ok(strata_service_destroy(service));
    char *text = read_text(first);
    assert_non_null(strstr(text, " from_host 0:0:u8:64\n"));
    free(text);
    check_ok(replay(NULL, &result));
    assert_int_equal(result.skipped, 1);
}

static void a_view_of_isolated_memory_is_recorded_with_its_place(void **state)
{
    (void)state;
    strata_ref *view, *inner;
    strata_service *service =
        test_service_make(&(strata_service_options){.form = STRATA_SERVICE_ISOLATED, .record = first});
    strata_ref *before = test_service_allocate(service, 64), *whole = test_service_allocate(service, BYTES);
    strata_host_buffer *buffer = test_buffer(16, 0x5a);
    check_ok(strata_ref_view(whole, 256, 512, STRATA_ELEMENT_U8, &view));
    check_ok(strata_ref_view(view, 32, 16, STRATA_ELEMENT_U8, &inner));
    check_ok(test_copy(service, inner, buffer, false));
    strata_host_buffer_release(buffer);
    assert_true(strata_ref_release(inner) == STRATA_SUCCESS && strata_ref_release(view) == STRATA_SUCCESS &&
                strata_ref_release(whole) == STRATA_SUCCESS && strata_ref_release(before) == STRATA_SUCCESS);
    check_ok(strata_service_destroy(service));
    char *text = read_text(first);
    assert_non_null(strstr(text, " from_host 2:288:u8:16\n"));
    free(text);
}

/* ---- off ---- */

static _Atomic unsigned recorder_calls;

__typeof__(service_recorder_open) __real_service_recorder_open, __wrap_service_recorder_open;
__typeof__(service_recorder_begin) __real_service_recorder_begin, __wrap_service_recorder_begin;
__typeof__(service_recorder_answer) __real_service_recorder_answer, __wrap_service_recorder_answer;
__typeof__(service_recorder_flush) __real_service_recorder_flush, __wrap_service_recorder_flush;

strata_status __wrap_service_recorder_open(const char *path, int device, service_recorder **out)
{
    atomic_fetch_add(&recorder_calls, 1);
    return __real_service_recorder_open(path, device, out);
}

void __wrap_service_recorder_begin(service_recorder *recorder, strata_future *request)
{
    atomic_fetch_add(&recorder_calls, 1);
    __real_service_recorder_begin(recorder, request);
}

void __wrap_service_recorder_answer(service_recorder *recorder, const strata_future *request,
                                    const strata_answer *answer)
{
    atomic_fetch_add(&recorder_calls, 1);
    __real_service_recorder_answer(recorder, request, answer);
}

void __wrap_service_recorder_flush(service_recorder *recorder)
{
    atomic_fetch_add(&recorder_calls, 1);
    __real_service_recorder_flush(recorder);
}

static size_t count_files(const char *path)
{
    size_t count = 0;
    DIR *open = opendir(path);
    assert_non_null(open);
    for (const struct dirent *entry; (entry = readdir(open));)
        count++;
    closedir(open);
    return count;
}

/* Made and asked in the test's folder, where a file would be made by a relative path. Returns the number
 * of files that it adds there. */
static size_t files_of_a_service_that_records(const char *path)
{
    char start[4096];
    assert_non_null(getcwd(start, sizeof start));
    assert_int_equal(chdir(folder), 0);
    const size_t before = count_files(".");
    strata_service *service = test_service_make(&(strata_service_options){.record = path});
    const uint64_t module = test_load_fill(service);
    strata_ref *ref = allocate(service, STRATA_ELEMENT_U8, BYTES);
    assert_int_equal(launch_fill(service, module, "strata_pattern_fill", ref, 1, NULL), STRATA_SUCCESS);
    wait_until_idle(service);
    strata_service_stats stats;
    check_ok(strata_service_get_stats(service, &stats));
    assert_int_equal(stats.recorded, path ? 3 : 0);
    assert_false(stats.record_failed);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(service));
    const size_t made = count_files(".") - before;
    assert_int_equal(chdir(start), 0);
    return made;
}

static void a_recorder_that_is_off_makes_no_file_and_is_never_called(void **state)
{
    (void)state;
    atomic_store(&recorder_calls, 0);
    assert_int_equal(files_of_a_service_that_records(NULL), 0);
    assert_int_equal(atomic_load(&recorder_calls), 0);
    assert_int_equal(files_of_a_service_that_records("first"), 1);
    assert_true(atomic_load(&recorder_calls) >= 8); /* opened; three requests begun and answered; written */
}

int main(void)
{
    test_open_driver();
    reader = test_service_make(&(strata_service_options){.libraries = ""});
    const struct CMUnitTest tests[] = {
        CASE(a_recorder_that_is_off_makes_no_file_and_is_never_called),
        CASE(a_session_is_asked_again_in_its_order_and_computes_the_same),
        CASE(a_replay_keeps_no_memory),
        CASE(a_recording_is_for_its_user_alone_and_is_whole_at_the_end),
        CASE(what_an_idle_service_began_is_in_the_file),
        CASE(a_file_that_exists_is_a_link_or_has_no_folder_is_refused),
        CASE(a_full_disk_is_told_once_and_fails_no_request),
        CASE(graphs_of_requests_are_asked_again),
        CASE(memory_that_the_service_did_not_allocate_is_unknown),
        CASE(a_view_of_isolated_memory_is_recorded_with_its_place),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return strata_service_destroy(reader) == STRATA_SUCCESS ? failed : 1;
}
