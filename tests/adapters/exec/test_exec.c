/* Programs that know nothing of Strata, under `strata exec`: they do and hear what they would without it. */
#include "support/driver.h"
#include "support/effort.h"
#include "support/exec.h"

#include <dlfcn.h>
#include <sys/auxv.h>

/* ---- the same answers ---- */

static void a_program_hears_the_same_whichever_way_it_reaches_the_driver(void **state)
{
    (void)state;
    static const char *const ways[] = {"answers", "answers_linked", "answers_runtime", "answers_runtime_1",
                                       "answers_thread"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        check_same("", ways[i], ways[i]);
}

static void a_program_hears_the_same_on_every_stack(void **state)
{
    (void)state;
    check_same("--stack async", "behaviour refused", "behaviour refused");
    check_same("--stack direct", "behaviour refused", "behaviour refused");
    check_same("--guard", "behaviour no-context", "behaviour no-context");
    check_same("--mode sanitizer", "answers", "answers");
}

/* Of a non-blocking stream too, behind which frees wait. */
static void freed_memory_is_told_as_free_on_every_stack(void **state)
{
    (void)state;
    static const char *const options[] = {"",
                                          "--stack async",
                                          "--stack direct",
                                          "--mode sanitizer",
                                          "--stack binning,pool",
                                          "--stack binning,direct",
                                          "--stack fallback(direct|pool)",
                                          "--budget 16GiB --stack direct"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check_same(options[i], "behaviour told", "behaviour told");
}

/* Some stacks' blocks begin where memory of the driver does that has other blocks, too. */
static void a_second_free_is_refused_on_every_stack(void **state)
{
    (void)state;
    static const char *const stacks[] = {"pool",         "async",
                                         "direct",       "pool,async",
                                         "pool,direct",  "binning,direct",
                                         "guard,direct", "guard,pool,direct",
                                         "fixed,direct", "fallback(direct|pool,direct)"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++)
        check_same(text_of("--stack %s", stacks[i]), "behaviour free-twice", "behaviour free-twice");
    check_same("--mode sanitizer --guard", "behaviour free-twice", "behaviour free-twice");
    setenv("STRATA_SIM_LACKS", "virtual-memory", 1);
    check_same("--stack pool", "behaviour free-twice", "behaviour free-twice");
    unsetenv("STRATA_SIM_LACKS");
}

/* Each way of reaching the driver, beside the simulated driver's checker. What a guard holds back is not free. */
static void a_program_hears_the_same_under_a_budget_a_log_and_a_guard(void **state)
{
    (void)state;
    static const char *const ways[] = {"answers", "answers_linked", "answers_runtime", "answers_runtime_1",
                                       "answers_thread"};
    const char *const options[] = {"--budget 16GiB", "--budget 16GiB --stack async", "--log /dev/null",
                                   "--report --output /dev/null"};
    setenv("STRATA_SIM_CHECK", "1", 1);
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        for (size_t o = 0; o < sizeof options / sizeof options[0]; o++)
            check_same(options[o], ways[w], ways[w]);
        check(run_under("--guard", ways[w]), 0, "last byte: 7\naddress range: begins with the block, 67108864 bytes\n",
              "");
    }
    unsetenv("STRATA_SIM_CHECK");
}

static void captures_are_answered_as_without(void **state)
{
    (void)state;
    check_same("", "behaviour capture", "behaviour capture");
    check_same("", "behaviour_linked capture", "behaviour_linked capture");
    check_same("", "behaviour capture-free", "behaviour capture-free");
    check_same("--stack async", "behaviour capture-free", "behaviour capture-free");
    check_same("", "rarer to-graph", "rarer to-graph");
}

static void huge_requests_are_answered_as_without(void **state)
{
    (void)state;
    skip_if_sanitized(); /* a sanitizer's allocator ends the simulated driver */
    test_needs_simulated_driver("an H200's driver takes more than a minute for managed memory of 128 TiB");
    static const char *const options[] = {"", "--budget 100MiB", "--guard", "--budget 100MiB --stack async"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check_same(options[i], "behaviour huge", "behaviour huge");
}

static void memory_is_there_after_a_reset(void **state)
{
    (void)state;
    check_same("", "behaviour reset", "behaviour reset");
}

static void a_call_without_a_context_fails_as_without(void **state)
{
    (void)state;
    check_same("", "behaviour no-context", "behaviour no-context");
}

static void a_call_before_the_driver_begins_fails_as_without(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--budget 64MiB --report --output /dev/null", "--fail-closed"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check_same(options[i], "early", "early");
}

static void a_child_hears_what_it_would_without(void **state)
{
    (void)state;
    check_same("", "behaviour fork", "behaviour fork");
}

/* ---- order ---- */

static void memory_of_any_stream_is_ordered(void **state)
{
    (void)state;
    static const char *const policies[] = {"early", "random", "late"}, *const ways[] = {"order", "order_thread"};
    for (size_t p = 0; p < 3; p++)
        for (size_t w = 0; w < 2; w++) {
            setenv("STRATA_SIM_POLICY", policies[p], 1);
            const char *words = text_of("%s %zu %zu", ways[w], (size_t)test_effort(400, 60), p + 1);
            check(run_under("", words), 0, "0 of ", ""); /* a report of the checker is another status */
            check(run_under("--budget 1GiB --report", words), 0, "0 of ", "refused: 0");
        }
    unsetenv("STRATA_SIM_POLICY");
}

static void a_block_is_given_out_again_only_behind_its_last_use(void **state)
{
    (void)state;
    static const char *const policies[] = {"early", "random", "late"};
    static const char *const ways[] = {"free", "free-async", "capture", "capture-destroy"};
    for (size_t p = 0; p < 3; p++)
        for (size_t w = 0; w < 4; w++) {
            setenv("STRATA_SIM_POLICY", policies[p], 1);
            check(run_under("", text_of("reuse %s", ways[w])), 0, "0 wrong", "");
            check(run_under("--stack async", text_of("reuse_linked %s", ways[w])), 0, "0 wrong", "");
        }
    unsetenv("STRATA_SIM_POLICY");
}

static void memory_of_another_device_can_be_used(void **state)
{
    (void)state;
    setenv("STRATA_SIM_DEVICES", "2", 1);
    check_same("", "behaviour peer", "behaviour peer");
    unsetenv("STRATA_SIM_DEVICES");
}

static void a_pool_of_the_programs_own_is_used(void **state)
{
    (void)state;
    check_same("", "behaviour own-pool", "behaviour own-pool");
}

/* ---- budgets ---- */

static void a_budget_is_the_size_of_the_device(void **state)
{
    (void)state;
    check(run_under("--budget 100MiB", "answers"), 0, "device: 100 MiB\nat first: 100 of 100 MiB free\n", "");
    check(run_under("--budget 25%", "answers"), 0, "device: 4096 MiB\nat first: 4096 of 4096 MiB free\n", "");
    check(run_under("--budget 100MiB", "answers_linked"), 0, "mapped: 68 of 100 MiB free", "");
}

static void a_budget_may_have_a_blank(void **state)
{
    (void)state;
    scratch_file out = scratch_write(""), err = scratch_write("");
    char text[OUTPUT_LIMIT];
    char *arguments[] = {"strata",   "exec",    "--driver", "sim",
                         "--budget", "100 MiB", "--",       (char *)(uintptr_t)text_of("%s/answers", folder),
                         NULL};
    const int to = open(out.path, O_WRONLY | O_CLOEXEC), errors = open(err.path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(exit_status_of(start(arguments, to, errors)), 0);
    close(to);
    close(errors);
    read_whole(out.path, text);
    assert_non_null(strstr(text, "device: 100 MiB\n"));
    scratch_remove(&out);
    scratch_remove(&err);
}

static void a_request_over_the_budget_is_out_of_memory_and_the_program_goes_on(void **state)
{
    (void)state;
    check(run_under("--budget 64MiB --report", "behaviour refused"), 0, "4 blocks, then 2\nand on\n", "refused: 1");
    check(run_under("--stack budget(limit=32MiB),async", "behaviour refused"), 0, "2 blocks, then 2\nand on\n", "");
}

static void memory_in_a_context_of_the_programs_own_is_passed_on_and_charged(void **state)
{
    (void)state;
    check_same("", "behaviour context", "behaviour context");
    check(run_under("--budget 100MiB --report", "behaviour context"), 0, "32 MiB less free, byte 9\ntoo much gave 2\n",
          "linear:");
}

static void a_budget_is_given_back_with_the_context_that_used_it(void **state)
{
    (void)state;
    check(run_under("--budget 100MiB", "behaviour contexts"), 0, " 0 0 0 0 0 0 0 0\n", "");
    check(run_under("--budget 100MiB --report", "behaviour reset-handle"), 0, "memory after the reset", "served: 4");
}

static void a_shared_budget_counts_for_both_processes(void **state)
{
    (void)state;
    char shared[] = "/tmp/strata-exec-XXXXXX";
    assert_non_null(mkdtemp(shared));
    setenv("STRATA_SHARED_DIR", shared, 1);
    check(run_under("--budget 48MiB --shared exec-test", "behaviour refused"), 0, "3 blocks, then 2", "");
    check(run_under("--shared exec-test", "behaviour refused"), 0, "3 blocks, then 2", "");
    assert_int_equal(system(text_of("rm -r %s", shared)), 0);
    unsetenv("STRATA_SHARED_DIR");
}

static void without_its_stack_a_program_goes_on_or_is_refused_memory(void **state)
{
    (void)state;
    setenv("STRATA_SHARED_DIR", "/no/such/folder", 1);
    check(run_under("--budget 48MiB --shared exec-test", "behaviour refused"), 0, "64 blocks, then 0",
          "could not be built");
    check(run_under("--budget 48MiB --shared exec-test --fail-closed", "behaviour refused"), 2, "0 blocks, then 800",
          "memory is refused (--fail-closed)");
    unsetenv("STRATA_SHARED_DIR");
}

/* ---- ways past the hooks ---- */

static void a_library_bound_past_the_hooks_is_named(void **state)
{
    (void)state;
    skip_if_sanitized();
    check(run_under("--report", text_of("deep_program %s/libdeep.so", folder)), 0, "its memory: 0", "libdeep.so");
}

/* Its call for the beginning makes no memory. */
static void a_library_that_only_begins_past_the_hooks_is_not_named(void **state)
{
    (void)state;
    skip_if_sanitized();
    outcome *result = run_under("--report", text_of("deep_program %s/libdeep_begins.so", folder));
    assert_outcome(result, 0, "its memory: 0", "live: 1048576 (1 MiB)");
    assert_null(strstr(result->err, "libdeep_begins.so"));
    free(result);
}

static void a_static_program_is_said_to_be_unseen(void **state)
{
    (void)state;
    if (access(text_of("%s/static_program", folder), X_OK) != 0)
        skip();
    check(run_under("", "static_program"), 0, "static\n", "is linked statically");
    check(run_under("--fail-closed", "static_program"), 126, "", "is not run (--fail-closed)");
}

/* The loader has no interpreter, as a static program has none, and loads the library all the same. */
static void a_program_that_the_loader_is_told_to_run_is_seen(void **state)
{
    (void)state;
    Dl_info loader;
    const void *base = (const void *)getauxval(AT_BASE); /* NOLINT: an address */
    if (!base || !dladdr(base, &loader) || access(loader.dli_fname, X_OK) != 0)
        skip();
    outcome *result = run_under("--report --fail-closed", text_of("%s %s/behaviour leak", loader.dli_fname, folder));
    assert_outcome(result, 0, "", "live_blocks: 3");
    assert_null(strstr(result->err, "statically"));
    free(result);
}

static void a_program_with_other_rights_is_said_to_be_unseen(void **state)
{
    (void)state;
    skip_if_sanitized();
    char path[] = "/tmp/strata-exec-rights-XXXXXX";
    if (geteuid() != 0)
        skip();
    close(mkstemp(path));
    assert_int_equal(
        system(text_of("cp %s/without_driver %s && chown 65534 %s && chmod 4755 %s", folder, path, path, path)), 0);
    check(run_under("", path), 0, "others: found", "runs with other rights than its user");
    unlink(path);
}

static void a_newer_driver_is_passed_through(void **state)
{
    (void)state;
    char newer[] = "/tmp/strata-exec-newer-XXXXXX";
    assert_non_null(mkdtemp(newer));
    assert_int_equal(symlink(text_of("%s/libnewer_driver.so", folder), text_of("%s/libcuda.so.1", newer)), 0);
    setenv("NEWER_DRIVER_BEHIND", text_of("%s/libcuda.so.1", sim_folder), 1);
    check(run(text_of("exec --driver %s/libcuda.so.1 -- %s/newer_program", newer, folder)), 0,
          "thing 5, newer abc0001, result 0\nolder 0\nby dlsym found\n", "");
    unsetenv("NEWER_DRIVER_BEHIND");
    unlink(text_of("%s/libcuda.so.1", newer));
    rmdir(newer);
}

static void another_preloaded_library_works_beside(void **state)
{
    (void)state;
    skip_if_sanitized();
    setenv("LD_PRELOAD", text_of("%s/libbeside.so", folder), 1); /* behind Strata's */
    outcome *result = run_under("--report", "behaviour_linked leak");
    unsetenv("LD_PRELOAD");
    assert_int_equal(result->status, 0);
    assert_non_null(strstr(result->err, "live_blocks: 3"));
    free(result);
}

static void rtld_next_means_behind_the_caller(void **state)
{
    (void)state;
    skip_if_sanitized();
    check(run_under("", "order_of_libraries"), 0, "from the program: first, from the first: second\n", "");
}

static void without_a_driver_its_names_are_not_found(void **state)
{
    (void)state;
    check(run_under("", "without_driver"), 0, "dlsym: nothing\ndlvsym: nothing\nnvml: nothing\nothers: found\n", "");
    check_same("", "without_driver cuMemAlloc_v2", "without_driver cuMemAlloc_v2");
    check_same("", "without_driver nvmlDeviceGetMemoryInfo", "without_driver nvmlDeviceGetMemoryInfo");
}

static void a_sanitized_program_starts(void **state)
{
    (void)state;
    if (access(text_of("%s/hello_thread", folder), X_OK) != 0)
        skip();
    outcome *bare = run_bare("hello_thread");
    const bool works = bare->status == 0; /* not with all kernels' random addresses */
    free(bare);
    if (!works)
        skip();
    check(run_under("", "hello_thread"), 0, "hello", "");
}

static void a_program_with_the_address_sanitizer_runs_so(void **state)
{
    (void)state;
    if (access(text_of("%s/sanitized", folder), X_OK) != 0)
        skip();
    check(run_under("", "hello_address"), 0, "hello", "");
    check(run_under("", "hello_address child"), 0, "hello\nnot sanitized\n", "");
    check_same("", "answers", "sanitized");
    check(run_under("--budget 100MiB", "sanitized"), 0, "device: 100 MiB\n", "");
}

/* ---- debuggers ---- */

#define GDB "/usr/bin/gdb"

/* It stops in the hook, and names the program's function that called it. Skips where no process may be traced. */
static void check_stops(outcome *result)
{
    const bool traces = !strstr(result->err, "not permitted") && !strstr(result->out, "not permitted");
    if (traces)
        check(result, 0, " in ask_until_refused ", "");
    else
        free(result);
    if (!traces)
        skip();
}

static void a_debugger_stops_in_the_program(void **state)
{
    (void)state;
    skip_if_sanitized(); /* a check at the exit of a traced process fails */
    if (access(GDB, X_OK) != 0)
        skip();
    scratch_file commands = scratch_write("set debuginfod enabled off\nset breakpoint pending on\n"
                                          "break cuMemAlloc_v2\nrun\nbacktrace\nkill\n");
    char strata[PATH_MAX];
    strcpy(strata, program);
    strcpy(program, GDB); /* around strata exec */
    outcome *around =
        run(text_of("-q -nx -batch -x %s --args %s exec --driver sim --budget 64MiB -- %s/behaviour refused",
                    commands.path, strata, folder));
    strcpy(program, strata);
    outcome *inside =
        run_under("--children --budget 64MiB",
                  text_of("%s -q -nx -batch -x %s --args %s/behaviour refused", GDB, commands.path, folder));
    scratch_remove(&commands);
    check_stops(around);
    check_stops(inside);
}

/* ---- processes ---- */

static void exit_status_and_signals_pass_through(void **state)
{
    (void)state;
    check(run_under("--report", "/bin/false"), 1, "", "");
    char script[] = "/tmp/strata-exec-script-XXXXXX";
    const int file = mkstemp(script);
    static const char text[] = "#!/bin/sh\nkill -TERM $$\n";
    assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
    fchmod(file, 0755);
    close(file);
    outcome *result = run_under("", script);
    assert_int_equal(result->status, 1000 + SIGTERM);
    free(result);
    unlink(script);
}

static void a_command_that_is_not_there_has_the_shells_status(void **state)
{
    (void)state;
    check(run_under("", "/no/such/program"), 127, "", "/no/such/program: No such file");
    check(run_under("", "/tmp"), 126, "", "/tmp: ");
}

/* A script with the program behind it: the shell's child, which is another process. */
static scratch_file script_of(const char *words)
{
    scratch_file script = scratch_write(text_of("#!/bin/sh\n%s/%s\n/usr/bin/env\ntrue\n", folder, words));
    assert_int_equal(chmod(script.path, 0700), 0);
    return script;
}

static void children_run_so_only_if_asked(void **state)
{
    (void)state;
    scratch_file script = script_of("behaviour refused");
    outcome *plain = run_under("--budget 64MiB", script.path),
            *all = run_under("--budget 64MiB --children", script.path);
    assert_non_null(strstr(plain->out, "64 blocks, then 0"));
    assert_null(strstr(plain->out, "LD_PRELOAD"));
    assert_null(strstr(plain->out, "STRATA_EXEC"));
    assert_non_null(strstr(all->out, "4 blocks, then 2"));
    assert_non_null(strstr(all->out, "libstrata-exec.so"));
    free(plain);
    free(all);
    scratch_remove(&script);
}

static void a_child_linked_to_the_driver_hears_nothing_unasked(void **state)
{
    (void)state;
    scratch_file script = script_of("answers_linked");
    check(run_under("--budget 100MiB --report", script.path), 0, "device: 16384 MiB\nat first: 16384 of 16384 MiB", "");
    check(run_under("--budget 100MiB --children", script.path), 0, "device: 100 MiB\n", "");
    scratch_remove(&script);
}

static void what_was_preloaded_before_stays_for_children(void **state)
{
    (void)state;
    skip_if_sanitized();
    scratch_file script = script_of("without_driver");
    setenv("LD_PRELOAD", text_of("%s/libbeside.so", folder), 1);
    outcome *result = run_under("", script.path);
    unsetenv("LD_PRELOAD");
    assert_non_null(strstr(result->out, text_of("LD_PRELOAD=%s/libbeside.so\n", folder)));
    free(result);
    scratch_remove(&script);
}

/* env, and a script's interpreter, become the program: it is the same process. */
static void a_process_that_becomes_another_program_runs_so(void **state)
{
    (void)state;
    check(run_under("--budget 64MiB", text_of("/usr/bin/env %s/behaviour refused", folder)), 0, "4 blocks, then 2", "");
}

/* ---- usage ---- */

static void bad_usage_says_what_to_do(void **state)
{
    (void)state;
    check(run("exec"), 2, "", "missing COMMAND");
    check(run_under("--budget no", "/bin/true"), 2, "", "expected one such as 8GiB, or a share such as 50%");
    check(run_under("--stack nosuch", "/bin/true"), 2, "", "unknown layer \"nosuch\"");
    check(run_under("--budget 1GiB --stack budget(limit=2GiB),pool", "/bin/true"), 2, "", "say it in one place");
    check(run("exec --driver /no/such/lib.so -- /bin/true"), 2, "", "no file");
    check(run("exec --driver /bin/true -- /bin/true"), 2, "", "give /bin/true that name");
    check(run_under("--children --log x.slog", "/bin/true"), 2, "", "put %p, the process, into the name");
    check(run_under("--children --output x", "/bin/true"), 2, "", "put %p, the process, into the name");
    check(run_under("--children --output x%%p", "/bin/true"), 2, "", "put %p, the process, into the name");
    check(run_under("--children --log x%%p", "/bin/true"), 2, "", "put %p, the process, into the name");
    check(run_under("--mode fast", "/bin/true"), 2, "", "expected sanitizer or normal");
}

/* Else the program would run without its budget. */
static void an_option_that_cannot_work_runs_no_program(void **state)
{
    (void)state;
    static const struct {
        const char *options, *says;
    } cases[] = {
        {"--log /no/such/folder/x", "--log: the log could not be written to /no/such/folder/x: No such file"},
        {"--log /tmp", "--log: the log could not be written to /tmp: Is a directory"},
        {"--log /dev/fd/400", "--log: the log could not be written to /dev/fd/400: Bad file descriptor"},
        {"--log /tmp/strata-exec-%q.slog", "--log: "},
        {"--log /tmp/strata-exec-one --output /tmp/../tmp/./strata-exec-one", "are one file, /tmp/strata-exec-one"},
        {"--log /tmp/strata-exec-%p%% --output /tmp/strata-exec-%p%", "are one file, /tmp/strata-exec-"},
        {"--shared ../x", "--shared: invalid name \"../x\""},
        {"--shared .x", "--shared: invalid name \".x\""},
        {"--budget 9223372036854775808", "--budget: 9223372036854775808 is above 2^62 bytes"},
        {"--budget 4611686018427387904", "--budget: 4611686018427387904 is above 2^62 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *budget = strstr(cases[i].options, "--budget") ? "" : "--budget 64MiB ";
        check(run_under(text_of("%s%s", budget, cases[i].options), "behaviour refused"), 2, "", cases[i].says);
    }
    check(run_under("--budget 4611686018427387903", "/bin/true"), 0, "", "");
}

/* The loader would take the folder for two, and find another driver or none. */
static void a_drivers_folder_that_the_loader_cannot_be_given_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"a:b", "a;b"};
    char place[] = "/tmp/strata-exec-driver-XXXXXX";
    assert_non_null(mkdtemp(place));
    for (size_t i = 0; i < 2; i++) {
        const char *inner = text_of("%s/%s", place, names[i]), *driver = text_of("%s/libcuda.so.1", inner);
        assert_int_equal(mkdir(inner, 0700), 0);
        assert_int_equal(symlink(text_of("%s/libcuda.so.1", sim_folder), driver), 0);
        check(run(text_of("exec --driver %s -- /bin/true", driver)), 2, "",
              text_of("--driver: %s: the loader takes no folder with a colon", inner));
        unlink(driver);
        rmdir(inner);
    }
    rmdir(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_hears_the_same_whichever_way_it_reaches_the_driver),
        cmocka_unit_test(a_program_hears_the_same_on_every_stack),
        cmocka_unit_test(freed_memory_is_told_as_free_on_every_stack),
        cmocka_unit_test(a_second_free_is_refused_on_every_stack),
        cmocka_unit_test(a_program_hears_the_same_under_a_budget_a_log_and_a_guard),
        cmocka_unit_test(captures_are_answered_as_without),
        cmocka_unit_test(huge_requests_are_answered_as_without),
        cmocka_unit_test(memory_is_there_after_a_reset),
        cmocka_unit_test(a_call_without_a_context_fails_as_without),
        cmocka_unit_test(a_call_before_the_driver_begins_fails_as_without),
        cmocka_unit_test(a_child_hears_what_it_would_without),
        cmocka_unit_test(memory_of_any_stream_is_ordered),
        cmocka_unit_test(a_block_is_given_out_again_only_behind_its_last_use),
        cmocka_unit_test(memory_of_another_device_can_be_used),
        cmocka_unit_test(a_pool_of_the_programs_own_is_used),
        cmocka_unit_test(a_budget_is_the_size_of_the_device),
        cmocka_unit_test(a_budget_may_have_a_blank),
        cmocka_unit_test(a_request_over_the_budget_is_out_of_memory_and_the_program_goes_on),
        cmocka_unit_test(memory_in_a_context_of_the_programs_own_is_passed_on_and_charged),
        cmocka_unit_test(a_budget_is_given_back_with_the_context_that_used_it),
        cmocka_unit_test(a_shared_budget_counts_for_both_processes),
        cmocka_unit_test(without_its_stack_a_program_goes_on_or_is_refused_memory),
        cmocka_unit_test(a_library_bound_past_the_hooks_is_named),
        cmocka_unit_test(a_library_that_only_begins_past_the_hooks_is_not_named),
        cmocka_unit_test(a_static_program_is_said_to_be_unseen),
        cmocka_unit_test(a_program_that_the_loader_is_told_to_run_is_seen),
        cmocka_unit_test(a_program_with_other_rights_is_said_to_be_unseen),
        cmocka_unit_test(a_newer_driver_is_passed_through),
        cmocka_unit_test(another_preloaded_library_works_beside),
        cmocka_unit_test(rtld_next_means_behind_the_caller),
        cmocka_unit_test(without_a_driver_its_names_are_not_found),
        cmocka_unit_test(a_sanitized_program_starts),
        cmocka_unit_test(a_program_with_the_address_sanitizer_runs_so),
        cmocka_unit_test(a_debugger_stops_in_the_program),
        cmocka_unit_test(exit_status_and_signals_pass_through),
        cmocka_unit_test(a_command_that_is_not_there_has_the_shells_status),
        cmocka_unit_test(children_run_so_only_if_asked),
        cmocka_unit_test(a_child_linked_to_the_driver_hears_nothing_unasked),
        cmocka_unit_test(what_was_preloaded_before_stays_for_children),
        cmocka_unit_test(a_process_that_becomes_another_program_runs_so),
        cmocka_unit_test(bad_usage_says_what_to_do),
        cmocka_unit_test(an_option_that_cannot_work_runs_no_program),
        cmocka_unit_test(a_drivers_folder_that_the_loader_cannot_be_given_is_refused),
    };
    return cmocka_run_group_tests_name("exec", tests, find_folders, forget_folders);
}
