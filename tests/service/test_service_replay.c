/* Asking a recording again: what is refused, and in which order and how the rest is asked. */
#include "service/recordings.h"

#include <time.h>

/* ---- what is read ---- */

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

/* ---- graphs ---- */

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

int main(void)
{
    test_open_driver();
    reader = test_service_make(&(strata_service_options){.libraries = ""});
    const struct CMUnitTest tests[] = {
        CASE(each_wrong_field_is_refused_with_its_line),
        CASE(the_most_arguments_are_sixty_four),
        CASE(what_is_no_recording_is_refused),
        CASE(a_last_line_that_was_cut_off_is_told_and_left_out),
        CASE(failures_are_counted_or_end_the_replay),
        CASE(memory_is_released_after_the_last_line_that_names_it),
        CASE(a_full_queue_is_waited_for),
        CASE(work_on_the_same_memory_keeps_its_order_across_priorities),
        CASE(the_times_of_the_recording_are_kept_if_that_is_wanted),
        CASE(a_graph_of_which_a_request_is_missing_is_left_out),
        CASE(a_graph_is_released_after_the_last_line_that_launches_it),
        CASE(a_recorded_requests_own_priority_hint_and_limit_are_left_out),
        CASE(launches_of_graphs_keep_their_order_across_priorities),
        CASE(a_service_that_has_shut_down_ends_the_replay),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return strata_service_destroy(reader) == STRATA_SUCCESS ? failed : 1;
}
