/* The report of `strata exec`: call stacks, with lines of Python code, what is left, refusals, wrong frees, caches. */
#include "support/driver.h"
#include "support/exec.h"

#include <dirent.h>
#include <stdio.h>

#define PROGRAMS "tests/adapters/exec/programs"

static const long long mib = 1 << 20;

/* ---- reading reports ---- */

/* Of a program that ends well; to be released by json_decref. */
static json_t *report_of(const char *options, const char *words)
{
    scratch_file file = scratch_write("");
    outcome *result = run_under(text_of("--json --output %s %s", file.path, options), words);
    if (result->status != 0)
        print_error("%s\n%s\n", result->out, result->err);
    assert_int_equal(result->status, 0);
    free(result);
    json_error_t error;
    json_t *report = json_load_file(file.path, 0, &error);
    if (!report)
        print_error("%s\n", error.text);
    assert_non_null(report);
    scratch_remove(&file);
    return report;
}

static const json_t *first_device(const json_t *report)
{
    return json_array_get(json_object_get(report, "devices"), 0);
}

static long long number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value))
        print_error("no number %s\n", name);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static bool has_frame(const json_t *object, const char *function)
{
    const json_t *frames = json_object_get(object, "call_stack");
    for (size_t i = 0; i < json_array_size(frames); i++)
        if (strstr(json_string_value(json_array_get(frames, i)), function))
            return true;
    return false;
}

static void assert_has_text(const json_t *object, const char *name, const char *text)
{
    const char *found = json_string_value(json_object_get(object, name));
    if (!found || !strstr(found, text))
        print_error("%s is %s, without %s\n", name, found ? found : "missing", text);
    assert_true(found && strstr(found, text));
}

/* ---- processes ---- */

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;
    for (; (text = strstr(text, word)); text++)
        count++;
    return count;
}

/* A child that was forked before the first call has the driver for itself, and its own report. One file for both has
 * the report of the process that began. */
static void a_forked_child_with_a_driver_reports(void **state)
{
    (void)state;
    char folder_of_reports[] = "/tmp/strata-exec-report-XXXXXX";
    assert_non_null(mkdtemp(folder_of_reports));
    outcome *result = run_under("--report --budget 64MiB", "fork_first exits");
    assert_outcome(result, 0, "child: 4 blocks, then 2\nparent: 4 blocks, then 2\n", "");
    assert_int_equal(count_of(result->err, "program: fork_first"), 2);
    free(result);
    const char *const names[] = {"%p", "one"};
    for (size_t i = 0; i < 2; i++) {
        check(run_under(text_of("--budget 64MiB --output %s/%s", folder_of_reports, names[i]), "fork_first exits"), 0,
              "child: 4 blocks, then 2\nparent: 4 blocks, then 2\n", "");
        size_t files = 0;
        DIR *open = opendir(folder_of_reports);
        for (const struct dirent *entry; (entry = readdir(open));)
            files += unlink(text_of("%s/%s", folder_of_reports, entry->d_name)) == 0;
        closedir(open);
        assert_int_equal(files, 2 - i);
    }
    assert_int_equal(rmdir(folder_of_reports), 0);
}

/* ---- call stacks ---- */

static void call_stacks_come_with_the_highest_peak_first(void **state)
{
    (void)state;
    json_t *report = report_of("--stacks", "stacks");
    const json_t *stacks = json_object_get(first_device(report), "by_call_stack");
    assert_int_equal(json_array_size(stacks), 2);
    const json_t *large = json_array_get(stacks, 0), *small = json_array_get(stacks, 1);
    assert_true(has_frame(large, "take_large") && has_frame(small, "take_small"));
    assert_true(has_frame(large, "stacks.c:") || has_frame(large, "/stacks)")); /* lines only where libdw is */
    assert_has_text(large, "library", "stacks");
    assert_int_equal(number(large, "peak"), 8 * mib);
    assert_int_equal(number(large, "live"), 8 * mib);
    assert_int_equal(number(small, "peak"), 3 * mib);
    assert_int_equal(number(small, "live"), 0);
    assert_int_equal(number(small, "allocations"), 3);
    json_decref(report);
}

static void what_is_left_is_listed_by_library_and_by_call_stack(void **state)
{
    (void)state;
    json_t *report = report_of("--stacks", "stacks");
    const json_t *leaks = json_object_get(first_device(report), "leaks");
    const json_t *library = json_object_get(json_object_get(leaks, "by_library"), "stacks");
    const json_t *stacks = json_object_get(leaks, "by_call_stack");
    assert_int_equal(number(library, "live"), 8 * mib);
    assert_int_equal(json_array_size(stacks), 1);
    assert_true(has_frame(json_array_get(stacks, 0), "take_large"));
    assert_int_equal(number(json_array_get(stacks, 0), "live_blocks"), 1);
    json_decref(report);
}

static void as_many_call_stacks_are_listed_as_were_asked_for(void **state)
{
    (void)state;
    json_t *report = report_of("--stacks=1", "stacks");
    const json_t *device = first_device(report);
    assert_int_equal(json_array_size(json_object_get(device, "by_call_stack")), 1);
    assert_int_equal(number(device, "more_call_stacks"), 1);
    json_decref(report);
    report = report_of("", "stacks");
    assert_null(json_object_get(first_device(report), "by_call_stack"));
    assert_int_equal(
        number(json_object_get(json_object_get(json_object_get(first_device(report), "leaks"), "by_library"), "stacks"),
               "live"),
        8 * mib);
    json_decref(report);
}

static void a_number_of_call_stacks_must_be_one(void **state)
{
    (void)state;
    check(run_under("--stacks=0", "/bin/true"), 2, "", "expected how many call stacks are listed");
    check(run_under("--stacks=-1", "/bin/true"), 2, "", "expected how many call stacks are listed");
    check(run_under("--stacks=few", "/bin/true"), 2, "", "expected how many call stacks are listed");
    check(run_under("--stacks --stack statistics,pool", "/bin/true"), 2, "", "say it in one place");
}

/* ---- programs that run ---- */

typedef struct held_program {
    pid_t process;
    FILE *input; /* its end ends the program */
    int output;
} held_program;

/* `strata exec --driver sim OPTION -- WORDS`, until the program says that it holds memory. */
static held_program start_holding(const char *option, const char *words)
{
    int in[2], out[2];
    char line[TEXT], letter = 0;
    char *arguments[16] = {"strata", "exec", "--driver", "sim", (char *)(uintptr_t)option, "--"};
    size_t count = 6;
    strcpy(line, words);
    for (char *next = strtok(line, " "); next && count < 15; next = strtok(NULL, " "))
        arguments[count++] = next;
    assert_true(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    held_program held = {.input = fdopen(in[1], "w"), .output = out[0]};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    assert_int_equal(posix_spawn(&held.process, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    while (letter != '\n')
        assert_int_equal(read(held.output, &letter, 1), 1);
    return held;
}

static void end_holding(held_program *held)
{
    fclose(held->input);
    assert_int_equal(exit_status_of(held->process), 0);
    close(held->output);
}

static void a_running_program_shows_its_call_stacks(void **state)
{
    (void)state;
    held_program held = start_holding("--stacks", text_of("%s/behaviour hold", folder));
    outcome *result = run(text_of("top --once %d", (int)held.process));
    assert_outcome(result, 0, "by_call_stack", "");
    assert_non_null(strstr(result->out, "hold_memory"));
    assert_null(strstr(result->out, "leaks")); /* it may free what it holds */
    free(result);
    end_holding(&held);
}

/* A report that was asked for by a signal is under way when the program ends: the last one comes behind it. */
static void the_last_report_is_whole_and_the_last(void **state)
{
    (void)state;
    skip_if_sanitized(); /* a sanitizer's library has its own functions in front of the slow ones */
    scratch_file file = scratch_write("before");
    struct stat is = {.st_size = 1};
    char text[OUTPUT_LIMIT];
    setenv("LD_PRELOAD", text_of("%s/libslow_files.so", folder), 1);
    held_program held =
        start_holding(text_of("--output=%s", file.path), text_of("%s/behaviour hold-and-leave", folder));
    unsetenv("LD_PRELOAD");
    assert_int_equal(kill(held.process, SIGUSR1), 0);
    for (int i = 0; i < 1000 && is.st_size; i++) {
        assert_int_equal(stat(file.path, &is), 0);
        poll(NULL, 0, 10);
    }
    assert_int_equal(is.st_size, 0);
    end_holding(&held);
    read_whole(file.path, text);
    const char *leaks = strstr(text, "leaks:"), *last = strstr(text, "calls_of_these_were_not_seen:");
    assert_non_null(leaks);
    assert_non_null(last);
    assert_null(strstr(last + 1, "calls_of_these_were_not_seen:"));
    scratch_remove(&file);
}

/* ---- Python ---- */

static char python[PATH_MAX];

/* Skips the test without a CPython whose frames can be read. */
static void find_python(void)
{
    static const char command[] =
        "python3 -c 'import sys; print(sys.executable if sys.implementation.name == \"cpython\" and "
        "(3, 10) <= sys.version_info < (3, 14) and not hasattr(sys, \"gettotalrefcount\") else \"\")' 2>/dev/null";
    FILE *found = python[0] ? NULL : popen(command, "r");
    if (found && !fgets(python, sizeof python, found))
        python[0] = '\0';
    if (found)
        pclose(found);
    python[strcspn(python, "\n")] = '\0';
    if (python[0] != '/') {
        print_message("There is no CPython 3.10 to 3.13.\n");
        skip();
    }
}

/* The frames of Python code, innermost first, with a | between them. */
static void join_lines(const json_t *stack, char *to, size_t room)
{
    const json_t *frames = json_object_get(stack, "call_stack");
    to[0] = '\0';
    for (size_t i = 0, used = 0; i < json_array_size(frames) && used < room; i++) {
        const char *frame = json_string_value(json_array_get(frames, i));
        if (strstr(frame, ".py:") || strstr(frame, " (<"))
            used += (size_t)snprintf(to + used, room - used, "%s%s", used ? "|" : "", frame);
    }
}

/* Of a longer stack the innermost frames are kept. */
static bool is_listed(const json_t *stacks, const char *lines)
{
    char joined[8192];
    for (size_t i = 0; i < json_array_size(stacks); i++) {
        join_lines(json_array_get(stacks, i), joined, sizeof joined);
        const size_t length = strlen(joined);
        if (length && strncmp(lines, joined, length) == 0 && (!lines[length] || lines[length] == '|'))
            return true;
    }
    return false;
}

static void call_stacks_have_the_lines_of_python_code(void **state)
{
    (void)state;
    find_python();
    scratch_file file = scratch_write("");
    outcome *result = run(
        text_of("exec --driver sim --stacks=100 --json --output %s -- %s " PROGRAMS "/lines.py", file.path, python));
    assert_outcome(result, 0, "lines.py", "");
    json_t *report = json_load_file(file.path, 0, NULL);
    const json_t *stacks = json_object_get(first_device(report), "by_call_stack");
    size_t count = 0;
    for (char *lines = strtok(result->out, "\n"); lines; lines = strtok(NULL, "\n"), count++) {
        if (!is_listed(stacks, lines))
            print_error("missing: %s\n", lines);
        assert_true(is_listed(stacks, lines));
    }
    assert_true(count >= 15);
    json_decref(report);
    scratch_remove(&file);
    free(result);
}

static void a_guard_names_the_line_of_python_code(void **state)
{
    (void)state;
    find_python();
    outcome *result = run_under("--guard", text_of("%s " PROGRAMS "/overrun.py", python));
    const char *found = strstr(result->err, "guard: overrun: ");
    const char *allocated = found ? strstr(found, "allocated at") : NULL;
    const char *line = allocated ? strstr(allocated, PROGRAMS "/overrun.py:13)") : NULL;
    const char *freed = line ? strstr(line, "freed at") : NULL;
    const bool named = freed && strstr(freed, PROGRAMS "/overrun.py:18)") && strstr(result->err, " make (");
    if (!named)
        print_error("%s\n", result->err);
    assert_true(named);
    assert_null(strstr(result->err, "libstrata-exec"));
    free(result);
}

/* ---- refusals ---- */

static void a_refusal_is_reported_with_what_stood_against_it(void **state)
{
    (void)state;
    json_t *report = report_of("--budget 64MiB --stacks", "behaviour refused");
    const json_t *refusals = json_object_get(report, "refusals");
    assert_int_equal(json_array_size(refusals), 1);
    const json_t *one = json_array_get(refusals, 0);
    assert_has_text(one, "library", "behaviour");
    assert_has_text(one, "because", "in use 64 MiB");
    assert_int_equal(number(one, "times"), 1);
    assert_int_equal(number(one, "requested"), 16 * mib);
    assert_int_equal(number(one, "limit"), 64 * mib);
    assert_int_equal(number(one, "in_use"), 64 * mib);
    assert_int_equal(number(json_object_get(one, "held_by"), "behaviour"), 64 * mib);
    assert_true(has_frame(one, "ask_until_refused"));
    json_decref(report);
}

static void a_refusal_of_memory_of_the_driver_is_reported_too(void **state)
{
    (void)state;
    json_t *report = report_of("--budget 64MiB", "behaviour context");
    const json_t *one = json_array_get(json_object_get(report, "refusals"), 0);
    assert_has_text(one, "library", "behaviour");
    assert_int_equal(number(one, "requested"), 96 * mib);
    assert_int_equal(number(one, "in_use"), 32 * mib);
    assert_int_equal(number(one, "passed_on_to_the_driver"), 32 * mib);
    assert_null(json_object_get(one, "call_stack"));
    json_decref(report);
}

static void a_refusal_s_reason_is_reported_to_its_end(void **state)
{
    (void)state;
    char shared[] = "/tmp/strata-exec-XXXXXX";
    assert_non_null(mkdtemp(shared));
    setenv("STRATA_SHARED_DIR", shared, 1);
    json_t *report = report_of("--budget 65001000 --shared a-budget-with-a-long-name", "tidy held exit");
    const json_t *one = json_array_get(json_object_get(report, "refusals"), 0);
    assert_has_text(one, "because", "request of 80 MiB");
    assert_has_text(one, "because", "`strata budget a-budget-with-a-long-name` lists the processes");
    json_decref(report);
    assert_int_equal(system(text_of("rm -r %s", shared)), 0);
    unsetenv("STRATA_SHARED_DIR");
}

/* ---- stacks whose context has ended ---- */

static void check_ended(const json_t *device, long long peak, long long left, long long refused)
{
    const json_t *budget = json_object_get(device, "budget"), *leaks = json_object_get(device, "leaks");
    const json_t *library = json_object_get(json_object_get(device, "by_library"), "tidy");
    assert_true(json_is_true(json_object_get(device, "ended_with_its_context")));
    assert_null(json_object_get(device, "live"));
    assert_int_equal(number(device, "peak"), peak * mib);
    assert_int_equal(number(library, "peak"), peak * mib);
    assert_int_equal(number(json_object_get(json_object_get(leaks, "by_library"), "tidy"), "live"), left * mib);
    assert_int_equal(json_array_size(json_object_get(leaks, "by_call_stack")), 1);
    assert_int_equal(number(json_array_get(json_object_get(leaks, "by_call_stack"), 0), "live"), left * mib);
    assert_int_equal(number(json_array_get(json_object_get(device, "by_call_stack"), 0), "peak"), left * mib);
    assert_int_equal(number(budget, "limit"), 64 * mib);
    assert_int_equal(number(budget, "peak"), peak * mib);
    assert_int_equal(number(budget, "refused"), refused);
}

static void what_ended_with_its_context_is_reported(void **state)
{
    (void)state;
    static const char *const ends[] = {"release", "reset"};
    for (size_t i = 0; i < 2; i++) {
        json_t *report = report_of("--stacks --budget 64MiB", text_of("tidy held %s", ends[i]));
        assert_int_equal(json_array_size(json_object_get(report, "devices")), 1);
        check_ended(first_device(report), 10, 8, 1);
        assert_int_equal(json_array_size(json_object_get(report, "refusals")), 1);
        json_decref(report);
        outcome *result = run_under("--report --budget 64MiB", text_of("tidy held %s", ends[i]));
        assert_outcome(result, 0, "", "ended_with_its_context: yes\n    peak: 10485760 (10 MiB)");
        assert_outcome(result, 0, "", "    leaks:\n      by_library:\n        tidy:\n          live: 8388608 (8 MiB)");
        free(result);
    }
}

/* The newest first, and behind the stack that there is. */
static void each_stack_that_ended_is_reported(void **state)
{
    (void)state;
    json_t *report = report_of("--stacks --budget 64MiB", "tidy held reset-twice");
    const json_t *devices = json_object_get(report, "devices");
    assert_int_equal(json_array_size(devices), 2);
    check_ended(json_array_get(devices, 0), 4, 4, 0);
    check_ended(json_array_get(devices, 1), 10, 8, 1);
    json_decref(report);
    report = report_of("", "tidy held reset-often");
    devices = json_object_get(report, "devices");
    const json_t *earlier = json_object_get(report, "earlier_devices");
    assert_int_equal(json_array_size(devices), 17);
    assert_int_equal(number(json_array_get(devices, 0), "live"), 2 * mib);
    assert_int_equal(number(json_array_get(devices, 1), "peak"), 1 * mib);
    assert_int_equal(number(earlier, "ended_with_their_contexts"), 5);
    assert_int_equal(number(earlier, "highest_peak"), 88 * mib);
    json_decref(report);
}

/* A free that waits for its order, or for a capture, has been made by then. */
static void a_free_that_waits_as_its_context_ends_is_no_leak(void **state)
{
    (void)state;
    static const char *const ends[] = {"release", "reset"};
    for (size_t i = 0; i < 2; i++) {
        json_t *report = report_of("", text_of("tidy captured %s", ends[i]));
        assert_true(json_is_true(json_object_get(first_device(report), "ended_with_its_context")));
        assert_int_equal(number(first_device(report), "peak"), 3 * mib);
        assert_null(json_object_get(first_device(report), "leaks"));
        json_decref(report);
    }
}

/* ---- wrong frees ---- */

static const json_t *wrong_free_of(const json_t *report, const char *function)
{
    const json_t *list = json_object_get(report, "wrong_frees");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (has_frame(json_array_get(list, i), function))
            return json_array_get(list, i);
    print_error("no wrong free of %s\n", function);
    return NULL;
}

static void wrong_frees_are_listed_with_their_callers(void **state)
{
    (void)state;
    json_t *report = report_of("--stacks", "stacks");
    assert_int_equal(json_array_size(json_object_get(report, "wrong_frees")), 4);
    assert_int_equal(number(json_object_get(report, "calls"), "frees_refused"), 4);
    assert_has_text(wrong_free_of(report, "free_again"), "address_is", "no live block");
    assert_has_text(wrong_free_of(report, "free_again"), "library", "stacks");
    assert_has_text(wrong_free_of(report, "free_inside"), "address_is", "inside a live block");
    assert_has_text(wrong_free_of(report, "free_foreign"), "address_is", "neither Strata nor the driver");
    assert_has_text(wrong_free_of(report, "free_foreign"), "address", "0x123456789000");
    json_decref(report);
    report = report_of("", "stacks"); /* without call stacks by library and kind */
    const json_t *list = json_object_get(report, "wrong_frees");
    assert_int_equal(json_array_size(list), 3);
    assert_int_equal(number(json_array_get(list, 0), "times"), 2);
    json_decref(report);
}

/* ---- caches ---- */

static const json_t *cache_of(const json_t *report, const char *library, long long device)
{
    const json_t *list = json_object_get(json_object_get(report, "caches"), "libraries");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *cache = json_array_get(list, i), *number_of_device = json_object_get(cache, "device");
        if (strcmp(json_string_value(json_object_get(cache, "library")), library) == 0 &&
            (number_of_device ? json_integer_value(number_of_device) : -1) == device)
            return cache;
    }
    print_error("no cache of %s, device %lld\n", library, device);
    return NULL;
}

static void check_cache(const json_t *cache, long long held, long long used, long long held_peak, long long used_peak)
{
    assert_int_equal(number(cache, "held"), held * mib);
    assert_int_equal(number(cache, "used"), used * mib);
    assert_int_equal(number(cache, "unused"), (held - used) * mib);
    assert_int_equal(number(cache, "held_peak"), held_peak * mib);
    assert_int_equal(number(cache, "used_peak"), used_peak * mib);
}

static void caches_of_libraries_are_reported_at_the_end(void **state)
{
    (void)state;
    find_python();
    json_t *report = report_of("--report", text_of("%s " PROGRAMS "/caches.py end", python));
    check_cache(cache_of(report, "PyTorch", 0), 50, 5, 60, 35);
    check_cache(cache_of(report, "CuPy", -1), 30, 10, 40, 10); /* the last answer, and the largest */
    assert_int_equal(number(cache_of(report, "CuPy", -1), "unused_peak_seen"), 30 * mib);
    check_cache(cache_of(report, "JAX", 0), 20, 3, 21, 7);
    assert_int_equal(number(cache_of(report, "JAX", 1), "used"), 4 * mib);
    assert_has_text(cache_of(report, "JAX", 1), "held", "unknown");
    assert_int_equal(json_array_size(json_object_get(json_object_get(report, "caches"), "libraries")), 4);
    json_decref(report);
}

/* Of a program that has just begun. NULL: its main thread did not come to Python code in time. */
static json_t *look_at_caches(void)
{
    held_program held = start_holding("--report", text_of("%s " PROGRAMS "/caches.py hold", python));
    outcome *result = run(text_of("top --json %d", (int)held.process));
    json_t *report = json_loads(result->out, 0, NULL);
    assert_non_null(report);
    free(result);
    end_holding(&held);
    const json_t *cache = cache_of(report, "PyTorch", 0);
    if (cache && number(cache, "used") == 6 * mib)
        return report;
    json_decref(report);
    return NULL;
}

/* On a busy machine the answer may come later than the report waits. */
static void caches_of_a_running_program_can_be_looked_at(void **state)
{
    (void)state;
    find_python();
    json_t *report = NULL;
    for (int tries = 0; tries < 5 && !report; tries++)
        report = look_at_caches();
    assert_non_null(report);
    check_cache(cache_of(report, "PyTorch", 0), 50, 6, 60, 35);
    assert_int_equal(number(json_object_get(report, "caches"), "seconds_ago"), 0);
    json_decref(report);
}

/* Whatever traces, measures or compiles what runs meets none of it. Without its site, atexit is not imported yet. */
static void no_python_code_runs_that_is_not_the_programs(void **state)
{
    (void)state;
    find_python();
    outcome *result = run_under("--report", text_of("%s -I -S " PROGRAMS "/caches.py trace", python));
    assert_int_equal(result->status, 0);
    for (char *next = strtok(result->out, "[], \n"); next; next = strtok(NULL, "[], \n"))
        assert_true(strstr(next, "caches.py") || strstr(next, "/ctypes/"));
    free(result);
}

static void a_program_without_python_has_no_caches(void **state)
{
    (void)state;
    json_t *report = report_of("", "stacks");
    assert_null(json_object_get(report, "caches"));
    json_decref(report);
}

static void an_unloaded_library_is_not_taken_for_the_next_one(void **state)
{
    (void)state;
    outcome *result = run_under("--json", text_of("unloaded %s", folder));
    assert_outcome(result, 0, "", "");
    json_t *report = read_report(result);
    const json_t *device = json_array_get(json_object_get(report, "devices"), 0);
    const json_t *libraries = json_object_get(device, "by_library");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(libraries, "libunloaded_first.so"), "live")),
                     4 << 20);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(libraries, "libunloaded_second.so"), "live")),
                     8 << 20);
    json_decref(report);
    free(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_with_a_driver_reports),
        cmocka_unit_test(an_unloaded_library_is_not_taken_for_the_next_one),
        cmocka_unit_test(call_stacks_come_with_the_highest_peak_first),
        cmocka_unit_test(what_is_left_is_listed_by_library_and_by_call_stack),
        cmocka_unit_test(as_many_call_stacks_are_listed_as_were_asked_for),
        cmocka_unit_test(a_number_of_call_stacks_must_be_one),
        cmocka_unit_test(a_running_program_shows_its_call_stacks),
        cmocka_unit_test(the_last_report_is_whole_and_the_last),
        cmocka_unit_test(call_stacks_have_the_lines_of_python_code),
        cmocka_unit_test(a_guard_names_the_line_of_python_code),
        cmocka_unit_test(a_refusal_is_reported_with_what_stood_against_it),
        cmocka_unit_test(a_refusal_of_memory_of_the_driver_is_reported_too),
        cmocka_unit_test(a_refusal_s_reason_is_reported_to_its_end),
        cmocka_unit_test(what_ended_with_its_context_is_reported),
        cmocka_unit_test(each_stack_that_ended_is_reported),
        cmocka_unit_test(a_free_that_waits_as_its_context_ends_is_no_leak),
        cmocka_unit_test(wrong_frees_are_listed_with_their_callers),
        cmocka_unit_test(caches_of_libraries_are_reported_at_the_end),
        cmocka_unit_test(caches_of_a_running_program_can_be_looked_at),
        cmocka_unit_test(no_python_code_runs_that_is_not_the_programs),
        cmocka_unit_test(a_program_without_python_has_no_caches),
    };
    return cmocka_run_group_tests_name("exec_report", tests, find_folders, forget_folders);
}
