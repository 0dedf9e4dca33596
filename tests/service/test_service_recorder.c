/* Recordings of what a service was asked, and asking it again. */
#include "support/service.h"

#include "service/recorder.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <strata/service_blas.h>
#include <strata/service_graph.h>
#include <strata/service_replay.h>

enum { BYTES = 4096 };

static char folder[64], first[96], second[96];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/strata-recorder-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(second, sizeof second, "%s/second", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(first);
    unlink(second);
    return rmdir(folder);
}

static strata_service *recording_service(const char *path)
{
    return test_service_make(&(strata_service_options){.record = path});
}

static char *read_text(const char *path)
{
    struct stat is;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &is), 0);
    char *text = calloc(1, (size_t)is.st_size + 1);
    assert_non_null(text);
    assert_int_equal(read(file, text, (size_t)is.st_size), is.st_size);
    close(file);
    return text;
}

static void write_bytes(const char *path, const void *bytes, size_t count)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes, count), count);
    close(file);
}

#define HEAD "strata service recording 1\n"

static void write_lines(const char *path, const char *lines)
{
    char text[8192];
    const int length = snprintf(text, sizeof text, HEAD "%s", lines);
    assert_true(length > 0 && length < (int)sizeof text);
    write_bytes(path, text, (size_t)length);
}

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

/* A request is answered before the service lets go of what it names. */
static void wait_until_idle(strata_service *service)
{
    strata_service_stats stats = {.queued = 1};
    for (int i = 0; i < 5000 && stats.queued + stats.in_flight > 0; i++) {
        check_ok(strata_service_get_stats(service, &stats));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_int_equal(stats.queued + stats.in_flight, 0);
}

static void a_replay_keeps_no_memory(void **state)
{
    (void)state;
    strata_service_snapshot snapshot;
    strata_usage usage;
    strata_service *service = recording_service(first);
    ask_all(service);
    check_ok(strata_service_destroy(service));
    service = test_service_make(&(strata_service_options){.libraries = ""});
    check_ok(strata_service_replay(service, first, NULL, NULL));
    wait_until_idle(service);
    check_ok(strata_service_get_snapshot(service, &snapshot));
    check_ok(strata_runtime_usage(snapshot.runtime, &usage));
    assert_int_equal(usage.live_bytes, 0);
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

/* ---- what is read ---- */

static strata_service *reader;

static strata_status replay(const strata_service_replay_options *options, strata_service_replay_result *result)
{
    return strata_service_replay(reader, first, options, result);
}

#define START   "1 7 normal none 0 "
#define A       START "allocate 1 u8 4096 zeroed\n"
#define M       START "load 1 00\n"
#define ONE     "0000000000000000"
#define OPERAND "1:0:u8:16/0/0/0/1"

static const struct {
    const char *lines;
    unsigned line;
    const char *message;
} wrong[] = {
    {"\n", 2, "time is \"\"; it must be a number"},
    {"-1 7 normal none 0 run x\n", 2, "time is \"-1\""},
    {"18446744073709551616 7 normal none 0 run x\n", 2, "time is"},
    {"1\n", 2, "ends before its sender"},
    {"1  7 normal none 0 run x\n", 2, "sender is \"\""},
    {"1 7 urgent none 0 run x\n", 2, "one of normal, low, high"},
    {"1 7 normal soon 0 run x\n", 2, "one of none, short, long"},
    {"1 7 normal none 1e9 run x\n", 2, "time limit"},
    {START "dance\n", 2, "kind is \"dance\""},
    {"5 7 normal none 0 run x\n" START "run x\n", 3, "before that of the line above"},
    {START "run\n", 2, "ends before its name"},
    {START "run a%2\n", 2, "name is"},
    {START "run a%00b\n", 2, "name is"},
    {START "run x y\n", 2, "the end of the line is \"y\""},
    {START "launch_graph x\n", 2, "the end of the line"},
    {START "allocate 2 u8 1 raw\n", 2, "number 2; the next is 1"},
    {START "allocate 99999999999999999999 u8 1 raw\n", 2, "number is"},
    {START "allocate 1 u9 1 raw\n", 2, "type is \"u9\""},
    {START "allocate 1 f64 9223372036854775807 raw\n", 2, "length is"},
    {START "allocate 1 u8 1 dirty\n", 2, "one of zeroed, raw"},
    {A START "to_host 2:0:u8:16\n", 3, "allocation 2 is not there: 1 were made before"},
    {A START "to_host 1:0:u8:4097\n", 3, "exceeds allocation 1, which has 4096"},
    {A START "from_host 1:4096:u8:1\n", 3, "exceeds allocation 1"},
    {A START "from_host 1:18446744073709551615:u8:2\n", 3, "reference is"},
    {A START "to_host 1:0:c128:1152921504606846977\n", 3, "reference is"},
    {A START "to_host 1:0:u8:0\n", 3, "one with elements"},
    {A START "to_host 1:0:u8\n", 3, "NUMBER:OFFSET:TYPE:LENGTH"},
    {A START "to_host 1:0:u8:1:1\n", 3, "NUMBER:OFFSET:TYPE:LENGTH"},
    {START "load 2 00\n", 2, "number 2; the next is 1"},
    {START "load 1 0\n", 2, "image is"},
    {START "load 1 0G\n", 2, "image is"},
    {START "load 1 \n", 2, "image is"},
    {M START "launch 2 f 1 1 1 1 1 1 0\n", 3, "module 2 is not there"},
    {M START "launch 1 f 1 1 4294967296 1 1 1 0\n", 3, "grid is"},
    {M START "launch 1 f 1 1 1 1 x 1 0\n", 3, "block is"},
    {M START "launch 1 f 1 1 1 1 1 1\n", 3, "ends before its shared bytes"},
    {M START "launch 1 f 1 1 1 1 1 1 0 value\n", 3, "argument is \"value\""},
    {M START "launch 1 f 1 1 1 1 1 1 0 value:\n", 3, "hexadecimal digits"},
    {M START "launch 1 f 1 1 1 1 1 1 0 value:123456\n", 3, "2, 4, 8 or 16"},
    {M START "launch 1 f 1 1 1 1 1 1 0 read:7\n", 3, "NUMBER:OFFSET"},
    {M START "launch 1 f 1 1 1 1 1 1 0 read:7:0:u8:1\n", 3, "allocation 7 is not there"},
    {A START "copy 1:0:u8:16\n", 3, "ends before its second reference"},
    {A START "copy 1:0:u8:16 1:32:u8:15\n", 3, "one with as many bytes as the first"},
    {A START "copy 1:0:u8:16 1:4095:u8:16\n", 3, "exceeds allocation 1"},
    {A START "fill 1:0:u8:16 07\n", 3, "value is \"07\"; it must be value: and 2 or 8"},
    {A START "fill 1:0:u8:16 value:0701\n", 3, "2 or 8 hexadecimal digits"},
    {A START "fill 1:0:u8:16 value:0x010203\n", 3, "2 or 8 hexadecimal digits"},
    {A START "into 0 fill 1:0:u8:16 value:07\n", 3, "what is recorded is \"0 fill"},
    {A START "into 2 fill 1:0:u8:16 value:07\n", 3, "number 2; the next is 1"},
    {A START "into 1 to_host 1:0:u8:16\n", 3, "a request that it can have"},
    {A START "into 1 into 1 fill 1:0:u8:16 value:07\n", 3, "a request that it can have"},
    {A START "into 1\n", 3, "ends before its kind"},
    {START "make_graph 2 x\n", 2, "number 2; the next is 1"},
    {START "make_graph 1\n", 2, "ends before its name"},
    {START "play_graph 1\n", 2, "graph 1 is not there: 0 were made before"},
    {START "play_graph 0 x\n", 2, "the end of the line is \"x\""},
    {A START "blas sum 1\n", 3, "routine is \"sum\""},
    {A START "blas scal 1 3ff " OPERAND "\n", 3, "alpha is \"3ff\"; it must be 16 hexadecimal digits"},
    {A START "blas scal 1 " ONE " 1:0:u8:16/0/0/0\n", 3, "REFERENCE/OFFSET"},
    {A START "blas scal 1 " ONE " 1:0:u8:16/0/0/0/1/1\n", 3, "REFERENCE/OFFSET"},
    {A START "blas gemv up 0 1 1 " ONE " " ONE " " OPERAND " " OPERAND " " OPERAND "\n", 3, "order is \"up\""},
    {A START "blas gemv rows 2 1 1 " ONE " " ONE " " OPERAND " " OPERAND " " OPERAND "\n", 3, "transpose is \"2\""},
    {A START "blas gemv rows 1 1 1 " ONE " " ONE " " OPERAND " " OPERAND "\n", 3, "ends before its y"},
    {START "run \x01\n", 2, "byte 23 is 0x01"},
    {START "run \xff\n", 2, "byte 23 is 0xff"},
};

static void each_wrong_field_is_refused_with_its_line(void **state)
{
    (void)state;
    strata_service_replay_result result;
    char where[32];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        write_lines(first, wrong[i].lines);
        const strata_status status = replay(NULL, &result);
        if (status != STRATA_ERROR_SYNTAX)
            fail_msg("%s gives %d", wrong[i].lines, (int)status);
        snprintf(where, sizeof where, ", line %u: ", wrong[i].line);
        check_last_error(STRATA_ERROR_SYNTAX, where);
        check_last_error(STRATA_ERROR_SYNTAX, wrong[i].message);
        assert_int_equal(result.requests + result.skipped, 0);
    }
}

static void the_most_arguments_are_sixty_four(void **state)
{
    (void)state;
    char lines[4096] = M START "launch 1 f 1 1 1 1 1 1 0";
    for (int i = 0; i < 65; i++)
        strcat(lines, " read:0:0:u8:1");
    strcat(lines, "\n");
    write_lines(first, lines);
    check_status(replay(NULL, NULL), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "64 are the most");
    strcpy(strrchr(lines, ' '), "\n");
    write_lines(first, lines);
    check_ok(replay(NULL, NULL));
}

static void what_is_no_recording_is_refused(void **state)
{
    (void)state;
    static const char binary[] = "\x89SLOG\r\n\x1a\0\0\0\0\n\n";
    char path[128];
    check_status(strata_service_replay(reader, "/nowhere/file", NULL, NULL), STRATA_ERROR_IO);
    check_status(strata_service_replay(reader, "/dev/zero", NULL, NULL), STRATA_ERROR_IO);
    snprintf(path, sizeof path, "%s", folder);
    check_status(strata_service_replay(reader, path, NULL, NULL), STRATA_ERROR_IO);
    write_bytes(first, "", 0);
    check_status(replay(NULL, NULL), STRATA_ERROR_SYNTAX);
    write_bytes(first, binary, sizeof binary);
    check_status(replay(NULL, NULL), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "line 1: this is no recording");
    write_bytes(first, "strata service recording 2\n", 27);
    check_status(replay(NULL, NULL), STRATA_ERROR_SYNTAX);
    write_lines(first, A);
    check_status(replay(&(strata_service_replay_options){.speed = -1}, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(replay(&(strata_service_replay_options){.in_flight = 16385}, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_replay(NULL, first, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_replay(reader, NULL, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
}

static void a_last_line_that_was_cut_off_is_told_and_left_out(void **state)
{
    (void)state;
    strata_service_replay_result result;
    write_lines(first, A START "to_host 1:0:u8:4096\n" START "to_host 1:0:u8:40");
    check_ok(replay(NULL, &result));
    assert_true(result.truncated);
    assert_int_equal(result.requests, 2);
    assert_int_equal(result.bytes_copied, 4096);
}

/* ---- how it is asked ---- */

static void failures_are_counted_or_end_the_replay(void **state)
{
    (void)state;
    strata_service_replay_result result;
    write_lines(first, START "load 1 00\n" START "launch 1 f 1 1 1 1 1 1 0\n" A START "to_host 1:0:u8:4096\n" START
                             "launch 0 f 1 1 1 1 1 1 0\n" START "to_host 0:0:u8:1\n");
    check_ok(replay(NULL, &result));
    assert_int_equal(result.requests, 3);
    assert_int_equal(result.failed, 1);
    assert_int_equal(result.skipped, 3); /* without the module, of an unknown one, of unknown memory */
    assert_int_equal(result.failed_line, 2);
    assert_int_not_equal(result.failure.status, STRATA_SUCCESS);
    const strata_service_replay_options options = {.stop_at_failure = true, .in_flight = 1};
    check_status(replay(&options, &result), result.failure.status);
    assert_int_equal(result.failed, 1);
    assert_true(result.requests < 3);
}

static void memory_is_released_after_the_last_line_that_names_it(void **state)
{
    (void)state;
    strata_service_replay_result result;
    char lines[8000] = "", line[160];
    for (int i = 1; i <= 50; i++) {
        snprintf(line, sizeof line, START "allocate %d u8 1048576 raw\n" START "to_host %d:0:u8:16\n", i, i);
        strcat(lines, line);
    }
    write_lines(first, lines);
    strata_service *small = test_service_make(&(strata_service_options){.stack_text = "budget(limit=8MiB), pool"});
    check_ok(strata_service_replay(small, first, &(strata_service_replay_options){.in_flight = 2}, &result));
    assert_int_equal(result.requests, 100);
    assert_int_equal(result.failed, 0);
    check_ok(strata_service_destroy(small));
}

static void a_full_queue_is_waited_for(void **state)
{
    (void)state;
    strata_service_replay_result result;
    char lines[8000] = A;
    for (int i = 0; i < 100; i++)
        strcat(lines, START "to_host 1:0:u8:4096\n");
    write_lines(first, lines);
    strata_service *small = test_service_make(&(strata_service_options){.queue_capacity = 2});
    check_ok(strata_service_replay(small, first, NULL, &result));
    assert_int_equal(result.requests, 101);
    assert_int_equal(result.failed, 0);
    assert_int_equal(result.bytes_copied, 100 * 4096);
    check_ok(strata_service_destroy(small));
}

static void work_on_the_same_memory_keeps_its_order_across_priorities(void **state)
{
    (void)state;
    char lines[8000] = A;
    for (int i = 0; i < 60; i++)
        strcat(lines, "1 7 low none 0 from_host 1:0:u8:4096\n");
    strcat(lines, "1 7 high none 0 to_host 1:0:u8:4096\n");
    write_lines(first, lines);
    strata_service *service = recording_service(second);
    check_ok(strata_service_replay(service, first, NULL, NULL));
    check_ok(strata_service_destroy(service));
    char *text = read_text(second);
    assert_non_null(strstr(text, "high"));
    assert_null(strstr(strstr(text, "high"), "low"));
    free(text);
}

static void the_times_of_the_recording_are_kept_if_that_is_wanted(void **state)
{
    (void)state;
    struct timespec before, after;
    write_lines(first, "40000000 7 normal none 0 allocate 1 u8 64 zeroed\n");
    clock_gettime(CLOCK_MONOTONIC, &before);
    check_ok(replay(&(strata_service_replay_options){.speed = 0.5}, NULL));
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true((after.tv_sec - before.tv_sec) * TEST_SECOND + after.tv_nsec - before.tv_nsec >= 80000000);
}

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

/* What a graph lacks is not left out of it: it is not made, and its launches are not asked. */
static void a_graph_of_which_a_request_is_missing_is_left_out(void **state)
{
    (void)state;
    strata_service_replay_result result;
    write_lines(first, A START "into 1 fill 1:0:u8:64 value:07\n" START "into 1 fill 0:0:u8:64 value:07\n" START
                               "into 1 fill 1:0:u8:64 value:07\n" START "make_graph 1 x\n" START "play_graph 1\n" START
                               "play_graph 0\n" START "into 2 copy 1:0:u8:64 1:8:u8:64\n" START "make_graph 2 x\n");
    check_ok(replay(NULL, &result));
    assert_int_equal(result.requests, 3); /* the allocation, a fill, and a copy that overlaps */
    assert_int_equal(result.failed, 1);
    assert_int_equal(result.failed_line, 9);
    assert_int_equal(result.skipped, 6);
    write_lines(first, A START "into 1 fill 1:0:u8:64 value:07\n"); /* never ended */
    check_ok(replay(NULL, &result));
    assert_int_equal(result.requests, 2);
}

/* With the memory that it names. */
static void a_graph_is_released_after_the_last_line_that_launches_it(void **state)
{
    (void)state;
    strata_service_replay_result result;
    char lines[8000] = "", line[320];
    for (int i = 1; i <= 20; i++) {
        snprintf(line, sizeof line,
                 START "allocate %d u8 1048576 raw\n" START "into %d fill %d:0:u8:64 value:07\n" START
                       "make_graph %d x\n" START "play_graph %d\n",
                 i, i, i, i, i);
        strcat(lines, line);
    }
    write_lines(first, lines);
    strata_service *small = test_service_make(&(strata_service_options){.stack_text = "budget(limit=8MiB), pool"});
    check_ok(strata_service_replay(small, first, &(strata_service_replay_options){.in_flight = 2}, &result));
    assert_int_equal(result.requests, 80);
    assert_int_equal(result.failed, 0);
    check_ok(strata_service_destroy(small));
}

/* As older recordings have them, which ignored these: the launch's count. */
static void a_recorded_requests_own_priority_hint_and_limit_are_left_out(void **state)
{
    (void)state;
    strata_service_replay_result result;
    write_lines(first,
                A "1 7 high short 5 into 1 fill 1:0:u8:64 value:07\n"
                  "1 7 low long 0 into 1 fill 1:0:u8:64 value:08\n" START "make_graph 1 x\n" START "play_graph 1\n");
    strata_service *service = test_service_make(NULL);
    check_ok(strata_service_replay(service, first, NULL, &result));
    assert_int_equal(result.requests, 5);
    assert_int_equal(result.failed, 0);
    check_ok(strata_service_destroy(service));
}

static void launches_of_graphs_keep_their_order_across_priorities(void **state)
{
    (void)state;
    char lines[8000] = A START "into 1 fill 1:0:u8:64 value:07\n" START "make_graph 1 x\n";
    for (int i = 0; i < 60; i++)
        strcat(lines, "1 7 low none 0 play_graph 1\n");
    strcat(lines, "1 7 high none 0 to_host 1:0:u8:4096\n1 7 low none 0 play_graph 1\n");
    write_lines(first, lines);
    strata_service *service = recording_service(second);
    check_ok(strata_service_replay(service, first, NULL, NULL));
    check_ok(strata_service_destroy(service));
    char *text = read_text(second);
    const char *high = strstr(text, "high");
    assert_non_null(high);
    assert_non_null(strstr(high, "low"));
    assert_null(strstr(strstr(high, "low") + 1, "low"));
    free(text);
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

static void a_service_that_has_shut_down_ends_the_replay(void **state)
{
    (void)state;
    strata_service_replay_result result;
    write_lines(first, A START "to_host 1:0:u8:4096\n");
    strata_service *service = test_service_make(NULL);
    check_ok(strata_service_shut_down(service, UINT64_MAX));
    check_status(strata_service_replay(service, first, NULL, &result), STRATA_ERROR_STALE);
    assert_int_equal(result.requests, 0);
    check_ok(strata_service_destroy(service));
}

/* ---- off ---- */

static _Atomic unsigned recorder_calls;

strata_status __real_service_recorder_open(const char *path, service_recorder **out);
strata_status __wrap_service_recorder_open(const char *path, service_recorder **out);
void __real_service_recorder_begin(service_recorder *recorder, strata_future *request);
void __wrap_service_recorder_begin(service_recorder *recorder, strata_future *request);
void __real_service_recorder_answer(service_recorder *recorder, const strata_future *request,
                                    const strata_answer *answer);
void __wrap_service_recorder_answer(service_recorder *recorder, const strata_future *request,
                                    const strata_answer *answer);
void __real_service_recorder_flush(service_recorder *recorder);
void __wrap_service_recorder_flush(service_recorder *recorder);

strata_status __wrap_service_recorder_open(const char *path, service_recorder **out)
{
    atomic_fetch_add(&recorder_calls, 1);
    return __real_service_recorder_open(path, out);
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

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

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
        CASE(each_wrong_field_is_refused_with_its_line),
        CASE(the_most_arguments_are_sixty_four),
        CASE(what_is_no_recording_is_refused),
        CASE(a_last_line_that_was_cut_off_is_told_and_left_out),
        CASE(failures_are_counted_or_end_the_replay),
        CASE(memory_is_released_after_the_last_line_that_names_it),
        CASE(a_full_queue_is_waited_for),
        CASE(work_on_the_same_memory_keeps_its_order_across_priorities),
        CASE(the_times_of_the_recording_are_kept_if_that_is_wanted),
        CASE(graphs_of_requests_are_asked_again),
        CASE(a_graph_of_which_a_request_is_missing_is_left_out),
        CASE(a_graph_is_released_after_the_last_line_that_launches_it),
        CASE(a_recorded_requests_own_priority_hint_and_limit_are_left_out),
        CASE(launches_of_graphs_keep_their_order_across_priorities),
        CASE(memory_that_the_service_did_not_allocate_is_unknown),
        CASE(a_view_of_isolated_memory_is_recorded_with_its_place),
        CASE(a_service_that_has_shut_down_ends_the_replay),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return strata_service_destroy(reader) == STRATA_SUCCESS ? failed : 1;
}
