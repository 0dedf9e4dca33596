/* Findings, leaks and errors are heard of: what a program without a callback writes to standard error, and what
 * STRATA_REPORT makes of that. Each case has a process of its own, whose standard error is a file. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/child.h"

enum { NAME_ROOM = 128, MANY = 100, MOST_UNASKED = 64 };

static char folder[64];

static const char *in_folder(const char *name)
{
    static char paths[4][NAME_ROOM];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, NAME_ROOM, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/strata-reports-XXXXXX");
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* ---- in children ---- */

static void begin(void)
{
    int file = open(getenv("STRATA_TEST_STDERR"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    const char *out = getenv("STRATA_TEST_STDOUT");
    test_open_driver_quietly();
    child_check(file >= 0 && dup2(file, STDERR_FILENO) == STDERR_FILENO);
    child_check(!out || freopen(out, "a", stdout));
}

static strata_stack *volatile last_made; /* no leak of host memory */

static strata_stack *make_stack(const char *text)
{
    strata_stack *stack;
    child_ok(strata_stack_create(text, 0, &stack));
    last_made = stack;
    return stack;
}

static strata_block allocate(strata_stack *stack)
{
    strata_block block;
    child_ok(strata_resource_allocate(strata_stack_top(stack), &(strata_request){.bytes = 100}, &block));
    return block;
}

static void overrun(strata_stack *stack)
{
    strata_resource *top = strata_stack_top(stack);
    strata_block block = allocate(stack);
    child_ok(strata_resource_prepare_use(top, &block, NULL, STRATA_ACCESS_WRITE));
    child_check(test_cu()->MemsetD8Async(block.address, 1, 101, NULL) == CUDA_SUCCESS);
    child_ok(strata_resource_finish_use(top, &block, NULL, STRATA_ACCESS_WRITE));
    child_ok(strata_resource_deallocate(top, &block, NULL));
}

static void block_is_overrun(void)
{
    begin();
    strata_stack *stack = make_stack("guard, direct");
    overrun(stack);
    child_ok(strata_stack_destroy(stack));
}

static void block_with_a_hostile_tag_is_freed_twice(void)
{
    begin();
    strata_block block;
    strata_request request = {.bytes = 100};
    strata_stack *stack = make_stack("statistics(leaks=log), guard, direct");
    child_ok(strata_tag_intern("\x1b[2Jtag\nguard: forged", &request.tag));
    child_ok(strata_resource_allocate(strata_stack_top(stack), &request, &block));
    child_ok(strata_resource_deallocate(strata_stack_top(stack), &block, NULL));
    child_status(strata_resource_deallocate(strata_stack_top(stack), &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    child_ok(strata_resource_allocate(strata_stack_top(stack), &request, &block)); /* leaks */
}

static void many_blocks_are_overrun(void)
{
    begin();
    strata_stack *stack = make_stack("guard, direct");
    for (int i = 0; i < MANY; i++)
        overrun(stack);
    child_ok(strata_stack_destroy(stack));
}

static void free_twice(const char *text)
{
    begin();
    strata_stack *stack = make_stack(text);
    strata_block block = allocate(stack);
    child_ok(strata_resource_deallocate(strata_stack_top(stack), &block, NULL));
    child_status(strata_resource_deallocate(strata_stack_top(stack), &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    child_ok(strata_stack_destroy(stack));
}

static void block_is_freed_twice(void)
{
    free_twice("guard, direct");
}

static void sampled_block_is_freed_twice(void)
{
    free_twice("guard(sample=1), direct");
}

static void live_block_is_overrun_at_exit(void)
{
    begin();
    strata_stack *stack = make_stack("guard, direct");
    strata_resource *top = strata_stack_top(stack);
    strata_block block = allocate(stack);
    child_ok(strata_resource_prepare_use(top, &block, NULL, STRATA_ACCESS_WRITE));
    child_check(test_cu()->MemsetD8Async(block.address, 1, 101, NULL) == CUDA_SUCCESS);
    child_ok(strata_resource_finish_use(top, &block, NULL, STRATA_ACCESS_WRITE));
}

static _Atomic int called;

static void count_call(const strata_error *error, void *data)
{
    (void)error, (void)data;
    called++;
}

static void block_is_overrun_in_a_program_with_a_callback(void)
{
    begin();
    strata_set_log_callback(count_call, NULL);
    strata_stack *stack = make_stack("guard, direct");
    overrun(stack);
    child_ok(strata_stack_destroy(stack));
    child_check(called == 1);
}

static void count_finding(const strata_guard_finding *finding, void *data)
{
    (void)finding, (void)data;
    called++;
}

static void block_is_overrun_under_a_guard_with_a_callback(void)
{
    begin();
    strata_resource *layers[2];
    strata_stack *stack;
    child_ok(strata_guard_create(0, &(strata_guard_options){.on_finding_call = count_finding}, &layers[0]));
    child_ok(strata_direct_create(0, NULL, &layers[1]));
    child_ok(strata_stack_build(layers, 2, 0, &stack));
    overrun(stack);
    child_ok(strata_stack_destroy(stack));
    child_check(called == 1);
}

static void block_is_overrun_under_a_guard_that_ends_the_process(void)
{
    begin();
    strata_stack *stack = make_stack("guard(on_finding=exit), direct");
    overrun(stack);
    strata_stack_destroy(stack);
}

static void block_leaks_to_the_log(void)
{
    begin();
    allocate(make_stack("statistics(leaks=log), direct"));
}

static void block_leaks_to_a_callback(void)
{
    begin();
    strata_set_log_callback(count_call, NULL);
    allocate(make_stack("statistics(leaks=log), direct"));
}

static void block_leaks_unasked(void)
{
    begin();
    allocate(make_stack("statistics, direct"));
}

static void call_fails(void)
{
    begin();
    child_status(strata_stack_create("nonsense", 0, &(strata_stack *){NULL}), STRATA_ERROR_SYNTAX);
}

/* The process lives on, and no signal is left for it. */
static void block_is_overrun_when_the_reader_of_stderr_is_gone(void)
{
    int ends[2];
    sigset_t pending;
    begin();
    child_check(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    close(ends[0]);
    strata_stack *stack = make_stack("guard, direct");
    overrun(stack);
    child_ok(strata_stack_destroy(stack));
    child_check(sigpending(&pending) == 0 && !sigismember(&pending, SIGPIPE));
}

static void file_has_no_room(void)
{
    begin();
    child_check(setenv("STRATA_REPORT", "/dev/full", 1) == 0);
    strata_stack *stack = make_stack("guard, direct");
    overrun(stack);
    child_ok(strata_stack_destroy(stack));
}

/* The layer below comes second, with another limit. */
static void shared_limit_is_not_used(void)
{
    begin();
    strata_stack *stack = make_stack("budget(limit=1GiB, shared=a), budget(limit=2GiB, shared=a), direct");
    child_ok(strata_stack_destroy(stack));
}

static void shared_limit_is_not_used_in_a_program_with_a_callback(void)
{
    begin();
    strata_set_log_callback(count_call, NULL);
    strata_stack *stack = make_stack("budget(limit=1GiB, shared=a), budget(limit=2GiB, shared=a), direct");
    child_ok(strata_stack_destroy(stack));
    child_check(called == 1);
}

/* ---- in the parent ---- */

static const char *text_of(const char *name)
{
    static char texts[2][256 * 1024];
    static unsigned turn;
    char *text = texts[turn++ % 2];
    FILE *file = fopen(in_folder(name), "r");
    text[file ? fread(text, 1, sizeof texts[0] - 1, file) : 0] = '\0';
    if (file)
        fclose(file);
    return text;
}

static size_t occurrences(const char *text, const char *words)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, words)); at++)
        count++;
    return count;
}

/* Runs a scenario, and counts the words in its standard error and in the file "report". */
static int run(const char *scenario, const char *variable)
{
    char stderr_file[NAME_ROOM + 32], stdout_file[NAME_ROOM + 32], shared[NAME_ROOM + 32];
    unlink(in_folder("stderr"));
    unlink(in_folder("stdout"));
    unlink(in_folder("report"));
    snprintf(stderr_file, sizeof stderr_file, "STRATA_TEST_STDERR=%s", in_folder("stderr"));
    snprintf(shared, sizeof shared, "STRATA_SHARED_DIR=%s", folder);
    snprintf(stdout_file, sizeof stdout_file, "STRATA_TEST_STDOUT=%s", in_folder("stdout"));
    const char *const changes[] = {stderr_file, stdout_file, variable, shared, "STRATA_SIM_CHECK", NULL};
    return test_child_status(scenario, changes);
}

static const char *in_report(void)
{
    static char variable[NAME_ROOM + 32];
    snprintf(variable, sizeof variable, "STRATA_REPORT=%s", in_folder("report"));
    return variable;
}

#define check_said(scenario, variable, words, on_stderr, in_file)           \
    do {                                                                    \
        assert_int_equal(run(scenario, variable), 0);                       \
        assert_int_equal(occurrences(text_of("stderr"), words), on_stderr); \
        assert_int_equal(occurrences(text_of("report"), words), in_file);   \
    } while (0)

static void a_finding_that_nothing_else_says_is_written_to_standard_error(void **state)
{
    (void)state;
    check_said("block_is_overrun", "STRATA_REPORT", "guard: overrun: block 0x", 1, 0);
    assert_int_equal(occurrences(text_of("stderr"), "1 byte changed, the first at offset 100"), 1);
    check_said("block_is_freed_twice", "STRATA_REPORT", "guard: double free: block 0x", 1, 0);
    check_said("sampled_block_is_freed_twice", "STRATA_REPORT", "guard: double free: block 0x", 1, 0);
    check_said("live_block_is_overrun_at_exit", "STRATA_REPORT", "guard: overrun: block 0x", 1, 0);
    check_said("block_is_overrun", "STRATA_REPORT=", "guard: overrun: block 0x", 1, 0);
}

static void a_finding_that_a_callback_takes_is_not_written(void **state)
{
    (void)state;
    check_said("block_is_overrun_in_a_program_with_a_callback", "STRATA_REPORT", "guard", 0, 0);
    check_said("block_is_overrun_under_a_guard_with_a_callback", "STRATA_REPORT", "guard", 0, 0);
}

static void strata_report_says_where_findings_go_and_off_says_nowhere(void **state)
{
    (void)state;
    static const char *const scenarios[] = {
        "block_is_overrun",
        "live_block_is_overrun_at_exit",
        "block_is_overrun_in_a_program_with_a_callback",
        "block_is_overrun_under_a_guard_with_a_callback",
    };
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        check_said(scenarios[i], "STRATA_REPORT=off", "guard: overrun", 0, 0);
        check_said(scenarios[i], "STRATA_REPORT=stderr", "guard: overrun", 1, 0);
        check_said(scenarios[i], in_report(), "guard: overrun", 0, 1);
    }
    struct stat is;
    assert_int_equal(stat(in_folder("report"), &is), 0);
    assert_int_equal(is.st_mode & 07777, 0600);
}

static void strata_report_can_be_standard_output(void **state)
{
    (void)state;
    static const char *const variables[] = {"STRATA_REPORT=stdout", "STRATA_REPORT=-", "STRATA_REPORT=/dev/stdout"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        check_said("block_is_overrun", variables[i], "guard: overrun", 0, 0);
        assert_int_equal(occurrences(text_of("stdout"), "guard: overrun"), 1);
    }
}

static void a_limit_that_a_shared_budget_does_not_use_is_a_finding(void **state)
{
    (void)state;
    static const char words[] = "has the limit 1 GiB (1073741824 bytes); the limit 2 GiB (2147483648 bytes) of this "
                                "process is not used. To change it: strata budget a --limit 2147483648";
    check_said("shared_limit_is_not_used", "STRATA_REPORT", words, 1, 0);
    check_said("shared_limit_is_not_used", in_report(), words, 0, 1);
    check_said("shared_limit_is_not_used", "STRATA_REPORT=off", words, 0, 0);
    check_said("shared_limit_is_not_used_in_a_program_with_a_callback", "STRATA_REPORT", words, 0, 0);
    check_said("shared_limit_is_not_used_in_a_program_with_a_callback", "STRATA_REPORT=stderr", words, 1, 0);
}

static void a_guard_that_ends_the_process_writes_its_finding_once(void **state)
{
    (void)state;
    const char *const variables[] = {"STRATA_REPORT", "STRATA_REPORT=stderr", "STRATA_REPORT=off", in_report()};
    for (size_t i = 0; i < 4; i++) {
        const char *scenario = "block_is_overrun_under_a_guard_that_ends_the_process";
        assert_int_equal(run(scenario, variables[i]), STRATA_GUARD_EXIT_STATUS);
        assert_int_equal(occurrences(text_of("stderr"), "guard: overrun"), 1);
        assert_int_equal(occurrences(text_of("report"), "guard: overrun"), i == 3);
    }
}

static void leaks_that_no_callback_takes_are_written_to_standard_error(void **state)
{
    (void)state;
    check_said("block_leaks_to_the_log", "STRATA_REPORT", "still live", 1, 0);
    assert_int_equal(occurrences(text_of("stderr"), "live_blocks"), 1);
    check_said("block_leaks_to_the_log", "STRATA_REPORT=off", "still live", 0, 0);
    check_said("block_leaks_to_a_callback", "STRATA_REPORT", "still live", 0, 0);
    check_said("block_leaks_unasked", "STRATA_REPORT", "still live", 0, 0);
}

static void with_strata_report_every_program_says_its_leaks(void **state)
{
    (void)state;
    static const char *const scenarios[] = {"block_leaks_unasked", "block_leaks_to_the_log",
                                            "block_leaks_to_a_callback"};
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        check_said(scenarios[i], "STRATA_REPORT=stderr", "still live", 1, 0);
        check_said(scenarios[i], in_report(), "still live", 0, 1);
    }
}

static void with_strata_report_every_program_says_its_errors(void **state)
{
    (void)state;
    const char *words = "strata: STRATA_ERROR_SYNTAX: stack text, character 1 ";
    check_said("call_fails", "STRATA_REPORT", "strata", 0, 0);
    check_said("call_fails", "STRATA_REPORT=off", "strata", 0, 0);
    check_said("call_fails", "STRATA_REPORT=stderr", words, 1, 0);
    check_said("call_fails", in_report(), words, 0, 1);
}

static void the_name_of_the_file_may_have_the_process(void **state)
{
    (void)state;
    char variable[NAME_ROOM + 32];
    snprintf(variable, sizeof variable, "STRATA_REPORT=%s", in_folder("%p%%p"));
    check_said("call_fails", variable, "strata", 0, 0);
    snprintf(variable, sizeof variable, "test \"$(cat %s/[0-9]*[0-9]%%p | wc -l)\" = 1", folder);
    assert_int_equal(system(variable), 0);
}

static void what_the_file_does_not_take_is_written_to_standard_error(void **state)
{
    (void)state;
    check_said("block_is_overrun", "STRATA_REPORT=/nowhere/report", "guard: overrun: block 0x", 1, 0);
    check_said("block_is_overrun", "STRATA_REPORT=%x", "guard: overrun: block 0x", 1, 0);
    check_said("file_has_no_room", "STRATA_REPORT", "guard: overrun: block 0x", 1, 0);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0); /* without a reader */
    char variable[NAME_ROOM + 32];
    snprintf(variable, sizeof variable, "STRATA_REPORT=%s", in_folder("pipe"));
    check_said("block_is_overrun", variable, "guard: overrun: block 0x", 1, 0);
}

static void a_program_that_did_not_ask_is_not_flooded(void **state)
{
    (void)state;
    check_said("many_blocks_are_overrun", "STRATA_REPORT", "guard: overrun", MOST_UNASKED, 0);
    assert_int_equal(occurrences(text_of("stderr"), "STRATA_REPORT=stderr writes all"), 1);
    check_said("many_blocks_are_overrun", "STRATA_REPORT=stderr", "guard: overrun", MANY, 0);
}

static void control_characters_of_a_tag_are_escaped(void **state)
{
    (void)state;
    check_said("block_with_a_hostile_tag_is_freed_twice", "STRATA_REPORT", "\x1b", 0, 0);
    assert_int_equal(occurrences(text_of("stderr"), "\\x1b[2Jtag\\nguard: forged"), 1);
    check_said("block_with_a_hostile_tag_is_freed_twice", in_report(), "\x1b", 0, 0);
}

static void a_broken_pipe_does_not_end_the_program(void **state)
{
    (void)state;
    test_child_run("block_is_overrun_when_the_reader_of_stderr_is_gone",
                   (const char *const[]){"STRATA_TEST_STDERR=/dev/null", "STRATA_REPORT", NULL});
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(block_is_overrun),
        TEST_SCENARIO(block_with_a_hostile_tag_is_freed_twice),
        TEST_SCENARIO(many_blocks_are_overrun),
        TEST_SCENARIO(block_is_freed_twice),
        TEST_SCENARIO(sampled_block_is_freed_twice),
        TEST_SCENARIO(live_block_is_overrun_at_exit),
        TEST_SCENARIO(block_is_overrun_in_a_program_with_a_callback),
        TEST_SCENARIO(block_is_overrun_under_a_guard_with_a_callback),
        TEST_SCENARIO(block_is_overrun_under_a_guard_that_ends_the_process),
        TEST_SCENARIO(block_leaks_to_the_log),
        TEST_SCENARIO(block_leaks_to_a_callback),
        TEST_SCENARIO(block_leaks_unasked),
        TEST_SCENARIO(call_fails),
        TEST_SCENARIO(block_is_overrun_when_the_reader_of_stderr_is_gone),
        TEST_SCENARIO(file_has_no_room),
        TEST_SCENARIO(shared_limit_is_not_used),
        TEST_SCENARIO(shared_limit_is_not_used_in_a_program_with_a_callback),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_finding_that_nothing_else_says_is_written_to_standard_error),
        IN_FOLDER(a_finding_that_a_callback_takes_is_not_written),
        IN_FOLDER(strata_report_says_where_findings_go_and_off_says_nowhere),
        IN_FOLDER(strata_report_can_be_standard_output),
        IN_FOLDER(a_limit_that_a_shared_budget_does_not_use_is_a_finding),
        IN_FOLDER(a_guard_that_ends_the_process_writes_its_finding_once),
        IN_FOLDER(leaks_that_no_callback_takes_are_written_to_standard_error),
        IN_FOLDER(with_strata_report_every_program_says_its_leaks),
        IN_FOLDER(with_strata_report_every_program_says_its_errors),
        IN_FOLDER(the_name_of_the_file_may_have_the_process),
        IN_FOLDER(what_the_file_does_not_take_is_written_to_standard_error),
        IN_FOLDER(a_program_that_did_not_ask_is_not_flooded),
        IN_FOLDER(control_characters_of_a_tag_are_escaped),
        IN_FOLDER(a_broken_pipe_does_not_end_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
