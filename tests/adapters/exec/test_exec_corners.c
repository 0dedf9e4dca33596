/* What few programs do, under `strata exec`: each was once answered or ordered wrongly. */
#include "support/driver.h"
#include "support/effort.h"
#include "support/exec.h"

/* ---- order ---- */

static void new_memory_under_a_guard_can_be_written_on_any_stream(void **state)
{
    (void)state;
    setenv("STRATA_SIM_POLICY", "late", 1);
    check(run_under("--guard", "corners fresh"), 0, "0 wrong\n0 wrong\n0 wrong\n", "");
    check_same("--stack guard(kernel=off),pool", "corners fresh", "corners fresh");
    unsetenv("STRATA_SIM_POLICY");
}

static void frees_wait_for_streams_that_are_older_than_the_stack(void **state)
{
    (void)state;
    static const char *const policies[] = {"early", "random", "late"};
    for (size_t p = 0; p < 3; p++) {
        setenv("STRATA_SIM_POLICY", policies[p], 1);
        check(run_under("--report", "corners older-context"), 0, "0 wrong\n", "waits_on_the_host: 0");
    }
    unsetenv("STRATA_SIM_POLICY");
}

/* ---- frees ---- */

static void a_second_free_does_not_reach_the_chunk_of_a_layer(void **state)
{
    (void)state;
    static const char *const stacks[] = {"pool", "pool,direct", "binning,async", "fixed(bytes=4KiB),managed"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++)
        check_same(text_of("--stack %s", stacks[i]), "corners freed-twice", "corners freed-twice");
}

/* ---- memory that the driver gives ---- */

static void freed_memory_of_each_stack_is_there_for_the_driver(void **state)
{
    (void)state;
    static const char *const stacks[] = {"async",
                                         "async(release_threshold=0)",
                                         "direct",
                                         "binning,async",
                                         "binning,direct",
                                         "guard,async",
                                         "guard(poison=off),pool",
                                         "pool,budget(limit=100MiB),direct",
                                         "binning,budget(limit=100MiB),async"};
    setenv("STRATA_SIM_MEMORY", "256MiB", 1);
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        const char *options = text_of("--stack %s", stacks[i]);
        check(run_under(options, "corners room"), 0, "0\n", "");
        check(run_under(options, "corners room beside-a-stream"), 0, "0\n", "");
    }
    unsetenv("STRATA_SIM_MEMORY");
}

/* The default stack, and what is put in front of it. */
static void a_device_without_virtual_memory_has_a_budget(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--guard"};
    setenv("STRATA_SIM_LACKS", "virtual-memory", 1);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        outcome *result = run_under(text_of("--fail-closed --budget 100MiB %s", options[i]), "corners amounts");
        assert_outcome(result, 0, "total: 0 100 MiB, free: 0 6", "");
        assert_string_equal(result->err, "");
        free(result);
    }
    unsetenv("STRATA_SIM_LACKS");
}

static void a_device_that_there_is_not_is_the_drivers_to_refuse(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--budget 100MiB", "--budget 100MiB --fail-closed"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        outcome *result = run_under(options[i], "corners no-device");
        assert_outcome(result, 0, "101 101\n", "");
        assert_string_equal(result->err, "");
        free(result);
    }
}

/* ---- contexts ---- */

static void releases_are_answered_as_without(void **state)
{
    (void)state;
    check_same("", "corners releases", "corners releases");
    check_same("--budget 100MiB", "corners releases", "corners releases");
}

static void a_green_context_holds_the_primary_one(void **state)
{
    (void)state;
    check(run_wider("", "green release"), 0, "active: 1, read 7\nactive: 0, another release gave 201\n", "");
}

static void references_to_the_primary_context_go_with_the_programs_last(void **state)
{
    (void)state;
    check(run_wider("", "ends references"), 0,
          "retained twice: 3 held, 0 given back\nreleased once: 2 held, 1 given back\n"
          "released twice: 1 held, 2 given back\nwithout the green one: 0 held, 1 given back\n",
          "");
}

static void the_last_release_ends_the_context_that_another_module_begins_anew(void **state)
{
    (void)state;
    check(run_wider("", "ends begun-anew"), 0, "begun anew: 1 held, 0 given back\n", "");
    check(run_wider("--guard", "ends begun-anew"), 0, "begun anew: 1 held, 0 given back\n", "");
}

static void work_of_an_ended_context_comes_before_a_free(void **state)
{
    (void)state;
    static const char *const policies[] = {"early", "random", "late"};
    for (size_t p = 0; p < 3; p++) {
        setenv("STRATA_SIM_POLICY", policies[p], 1);
        check(run_wider("--report", "green reads"), 0, "0 wrong\n", "waits_on_the_host: 0");
        check(run_wider("--report", "green last"), 0, "0 wrong\n", "waits_on_the_host: 0");
        check(run_wider("--report", "ends detach-once"), 0, "0 wrong\n", "waits_on_the_host: 0");
    }
    unsetenv("STRATA_SIM_POLICY");
}

/* Also while it is current to another thread than the one that frees. */
static void default_streams_of_green_contexts_are_ordered(void **state)
{
    (void)state;
    static const char *const policies[] = {"early", "random", "late"};
    for (size_t p = 0; p < 3; p++) {
        setenv("STRATA_SIM_POLICY", policies[p], 1);
        check(run_wider("--report", "green default"), 0, " 0 0 0 0 0 0\n 0 0 0 0 0 0\n", "waits_on_the_host: 0");
    }
    unsetenv("STRATA_SIM_POLICY");
}

static void a_green_context_that_is_made_beside_a_capture_is_ordered(void **state)
{
    (void)state;
    setenv("STRATA_SIM_POLICY", "late", 1);
    check(run_wider("", "green beside-capture"), 0, "0 wrong\n", "");
    unsetenv("STRATA_SIM_POLICY");
}

/* By barriers, and by the stack's own calls on the legacy stream. */
static void memory_spoils_no_capture_that_begins(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--stack async", "--guard"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        check(run_wider(options[i], "capturing"), 0, "no capture was spoiled\n", "");
        check(run_wider(options[i], "capturing alone"), 0, "no capture was spoiled\n", "");
    }
}

static void a_green_context_is_told_from_the_primary_one(void **state)
{
    (void)state;
    check(run_wider("--report", "green asked"), 0, "went on\n", "served: 3\n  served_stream_ordered: 0\n");
}

static void a_capture_in_a_green_context_goes_on(void **state)
{
    (void)state;
    check(run_wider("--report", "green captured"), 0, "went on\n", "waits_on_the_host: 0");
    check(run_wider("--guard --report", "green captured"), 0, "went on\n", "waits_on_the_host: 0");
}

static void streams_end_with_their_context(void **state)
{
    (void)state;
    static const char *const ways[] = {"green stream",  "ends destroy", "ends detach",
                                       "resets beside", "green reset",  "green reset-first"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) /* a stream that refuses a call is waited for */
        check(run_wider("--report", ways[i]), 0, "went on\n", "waits_on_the_host: 0");
}

/* While the call that has reset the device goes on. */
static void memory_behind_a_reset_is_not_taken_for_that_of_before(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--budget 100MiB", "--stack async", "--guard"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check(run_wider(options[i], "resets kept"), 0, "read 7, free gave 0\n", "");
}

/* What another thread makes while the call that has reset the device goes on. */
static void what_is_made_behind_a_reset_is_not_forgotten_with_the_context_before(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--stack async", "--guard"}, *const ways[] = {"stream", "green", "peer"};
    setenv("STRATA_SIM_POLICY", "late", 1);
    setenv("STRATA_SIM_DEVICES", "2", 1);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
            check(run_wider(options[i], text_of("resets %s", ways[w])), 0, "0 wrong\n", "");
        check(run_wider(text_of("%s --budget 100MiB", options[i]), "resets charge"), 0, "0 2\n", "");
    }
    unsetenv("STRATA_SIM_DEVICES");
    unsetenv("STRATA_SIM_POLICY");
}

static void work_of_a_device_that_is_reset_comes_before_a_free_on_another(void **state)
{
    (void)state;
    setenv("STRATA_SIM_POLICY", "late", 1);
    setenv("STRATA_SIM_DEVICES", "2", 1);
    check(run_wider("--report", "resets of-peer"), 0, "0 wrong\n", "waits_on_the_host: 0");
    unsetenv("STRATA_SIM_DEVICES");
    unsetenv("STRATA_SIM_POLICY");
}

static void the_last_work_of_a_peer_s_stream_is_ordered(void **state)
{
    (void)state;
    setenv("STRATA_SIM_DEVICES", "2", 1);
    check(run_wider("--report", "ends peer-stream"), 0, "0 wrong\n", "waits_on_the_host: 0");
    check(run_wider("--report --budget 1GiB", "ends peer-stream"), 0, "0 wrong\n", "waits_on_the_host: 0");
    unsetenv("STRATA_SIM_DEVICES");
}

static void barriers_are_made_behind_a_reset(void **state)
{
    (void)state;
    static const char *const all_served = " 0 0 0 0 0 0 0 0 0 0 0 0\n";
    check(run_wider("--budget 100MiB --report", "resets frees"), 0, all_served, "served: 6\n");
    check(run_wider("--budget 100MiB --report", "resets frees"), 0, all_served, "waits_on_the_host: 0\n");
    setenv("STRATA_SIM_DEVICES", "2", 1);
    check(run_wider("--budget 100MiB --report", "resets peer-frees"), 0, " 0 0 0 0 0 0\n", "served: 5\n");
    unsetenv("STRATA_SIM_DEVICES");
}

static void what_is_counted_begins_anew_behind_a_reset(void **state)
{
    (void)state;
    outcome *result = run_wider("--json", "resets counts");
    assert_outcome(result, 0, "0 for a request, 0 for frees\n", "");
    json_t *report = read_report(result);
    const json_t *device = json_array_get(json_object_get(report, "devices"), 0);
    assert_true(json_integer_value(json_object_get(device, "reserved")) < 64 << 20); /* one block of 32 MiB */
    json_decref(report);
    free(result);
}

static void events_of_barriers_are_made_anew_behind_a_reset(void **state)
{
    (void)state;
    check(run_wider("--report", "resets events"), 0, "1 made\n", "waits_on_the_host: 0");
}

static void a_request_that_finds_a_reset_gives_memory_that_stays(void **state)
{
    (void)state;
    check(run_wider("", "unseen_resets finding"), 0, "free gave 0\n", "");
    check(run_wider("--stack async", "unseen_resets finding"), 0, "free gave 0\n", "");
}

static void a_request_is_made_again_for_each_reset_in_the_middle(void **state)
{
    (void)state;
    outcome *result = run_wider("--budget 64MiB --stack async --json", "unseen_resets inside");
    assert_outcome(result, 0, "went on, and gave up with 709\n", "");
    json_t *report = read_report(result);
    const json_t *device = json_array_get(json_object_get(report, "devices"), 0);
    assert_true(json_integer_value(json_object_get(json_object_get(device, "budget"), "in_use")) <= 1 << 20);
    assert_true(json_integer_value(json_object_get(device, "not_accounted_for")) <= 64 << 20); /* two pools */
    json_decref(report);
    free(result);
}

static void a_stack_is_built_again_for_each_reset_in_the_middle(void **state)
{
    (void)state;
    check(run_wider("--fail-closed --stack async --report", "unseen_resets building"), 0, "went on\n", "served: 1\n");
}

/* Its memory of the host went with the context, too. */
static void the_check_at_exit_leaves_out_a_guard_of_before_a_reset(void **state)
{
    (void)state;
    check(run_wider("--guard", "unseen_resets finding"), 0, "free gave 0\n", "");
}

static void a_context_by_the_handle_of_one_that_ends_is_counted(void **state)
{
    (void)state;
    check(run_wider("--budget 100MiB", "ends made-again"), 0, "the same handle: 0 2\n", "");
}

static void memory_is_there_after_a_reset_that_was_not_seen(void **state)
{
    (void)state;
    static const char *const stacks[] = {"async", "direct", "guard,pool"}; /* a pool's memory outlives the context */
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++)
        check(run_wider(text_of("--stack %s", stacks[i]), "unseen_resets asked-twice"), 0,
              "without a context: refused\nwithout a context: refused\nwent on, read 3\n", "");
}

/* The context begins anew at once, and no call of the driver's fails. */
static void a_reset_that_no_call_fails_for_is_found(void **state)
{
    (void)state;
    static const char *const options[] = {"",
                                          "--guard",
                                          "--stack async",
                                          "--stack direct",
                                          "--stack pool,direct",
                                          "--stack binning,direct",
                                          "--guard --stack direct"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        check(run_wider(text_of("%s --report", options[i]), "unseen_resets hit"), 0, "went on\n", "live_blocks: 0");
        check(run_wider(options[i], "unseen_resets freed"), 0, "went on\n", "");
        check(run_wider(text_of("%s --report", options[i]), "unseen_resets captured"), 0, "went on\n",
              "waits_on_the_host: 0");
        check(run_wider(text_of("%s --budget 100MiB", options[i]), "unseen_resets asked"), 0,
              "100 of 100 MiB free, 2 2\n", "");
    }
}

static void a_thread_that_came_after_the_reset_finds_it(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--guard", "--stack direct", "--budget 100MiB"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check(run_wider(options[i], "unseen_resets thread"), 0, "went on\n", "");
}

static void a_reset_of_the_device_that_is_charged_is_found(void **state)
{
    (void)state;
    setenv("STRATA_SIM_DEVICES", "2", 1);
    check(run_wider("--budget 100MiB", "unseen_resets device"), 0, "60 MiB there: 0\n", "");
    unsetenv("STRATA_SIM_DEVICES");
}

static void streams_and_contexts_are_made_after_a_reset_that_was_not_seen(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--stack async", "--budget 100MiB --guard"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check(run_wider(options[i], "unseen_resets made"), 0, "went on\n", "");
}

/* ---- errors of the driver ---- */

/* Of the program's calls and those that Strata makes for them each fails once. */
static void a_call_that_fails_leaves_no_use_unordered(void **state)
{
    (void)state;
    const unsigned step = getenv("STRATA_TEST_FULL") ? 1 : 9;
    unsigned calls = UINT32_MAX;
    for (unsigned n = step == 1 ? 1 : 2; n <= calls; n += step) {
        outcome *result = run_under("--budget 200MiB", text_of("faults %u", n));
        if (result->status != 0 || sscanf(result->out, "%u calls", &calls) != 1)
            print_error("call %u fails: status %d\n%s%s\n", n, result->status, result->out, result->err);
        assert_int_equal(result->status, 0);
        assert_string_equal(result->out, text_of("%u calls\n", calls));
        free(result);
    }
}

/* ---- whose memory it is ---- */

static void memory_is_of_the_streams_device_or_the_pools(void **state)
{
    (void)state;
    setenv("STRATA_SIM_DEVICES", "2", 1);
    check_same("--budget 16GiB", "corners devices", "corners devices");
    check(run_under("--budget 100MiB", "corners devices"), 0,
          "of a stream: device 1\nof a pool: device 1\nless free here: 0, there: 64\n", "");
    unsetenv("STRATA_SIM_DEVICES");
}

static void a_stream_without_a_current_context_is_charged(void **state)
{
    (void)state;
    check_same("", "corners stream-alone", "corners stream-alone");
    check(run_under("--budget 32MiB", "corners stream-alone"), 0, "in order: 2, of the default pool: 2\n", "");
    check(run_under("--report", "corners stream-alone"), 0, "in order: 0", "served_stream_ordered: 2\n");
}

static void a_destroyed_pool_gives_way_to_the_default_one(void **state)
{
    (void)state;
    check_same("", "corners pool-destroyed", "corners pool-destroyed");
    check(run_under("--report", "corners pool-destroyed"), 0, "", "served_stream_ordered: 1");
}

/* ---- addresses ---- */

static void each_block_is_a_buffer_of_its_own(void **state)
{
    (void)state;
    check_same("", "corners buffers", "corners buffers");
    check_same("--stack async", "corners buffers", "corners buffers");
}

static void the_end_of_a_block_is_outside_of_it(void **state)
{
    (void)state;
    check_same("", "corners end", "corners end");
    check_same("--stack async", "corners end", "corners end");
    check_same("--guard", "corners end", "corners end");
}

static void freed_addresses_are_unknown(void **state)
{
    (void)state;
    check_same("", "corners freed", "corners freed");
    check_same("--guard", "corners freed", "corners freed");
}

static void an_address_is_told_by_what_is_there_now(void **state)
{
    (void)state;
    check_same("", "corners one-address", "corners one-address");
    check_same("--guard", "corners one-address", "corners one-address");
    check_same("--stack direct", "corners one-address", "corners one-address");
}

static void one_amount_of_memory_can_be_asked_for(void **state)
{
    (void)state;
    check_same("--stack direct", "corners amounts", "corners amounts");
    check(run_under("--budget 100MiB", "corners amounts"), 0, "total: 0 100 MiB, free: 0 68 MiB, none: 0\n", "");
}

static void a_request_that_fits_only_behind_waiting_frees_is_served(void **state)
{
    (void)state;
    check(run_under("--budget 64MiB", "corners waiting"), 0, "linear: 0, passed on: 0, 8 of 64 MiB free\n", "");
}

static void captures_that_fail_to_begin_or_end_are_known(void **state)
{
    (void)state;
    check_same("", "corners captures", "corners captures");
    check_same("", "corners two-captures", "corners two-captures");
    check(run_under("--report", "corners captures"), 0, "", "served: 2\n");
}

/* What ends with a failing call, or with its stream's context, is no capture any more; what does not end still is. */
static void ends_of_captures_are_seen(void **state)
{
    (void)state;
    check(run_under("", "captures failing"), 0,
          "before: 0, the stack\nby another thread: 908, the stack\ninvalidated: 901, the stack\n"
          "not begun: 401, the stack\n",
          "");
    check(run_under("", "captures default-streams"), 0,
          "another thread's: 401, the driver\nof no context: 201, the driver\nits own: 0, the stack\n", "");
    check(run_wider("", "captures green"), 0, "before: 0, the stack\nin it: 0, the driver\nbehind it: 0, the stack\n",
          "");
}

/* ---- handles that are given out again ---- */

static void a_pool_with_the_handle_of_one_that_has_ended_is_used(void **state)
{
    (void)state;
    check(run_wider("", "races pools"), 0, "the pool\nits handle, the pool\n900, the pool\nthe stack\n", "");
}

/* ---- processes and libraries ---- */

/* With what the loader holds while a library is loaded. */
static void a_report_is_written_while_a_library_is_loaded(void **state)
{
    (void)state;
    check(run_under("--report", text_of("corners report-loading %s/libat_load.so", folder)), 0, "loaded\n",
          "live_blocks: 1");
}

static void a_graph_is_launched_while_a_library_is_loaded(void **state)
{
    (void)state;
    check(run_under("--budget 32MiB --report", text_of("corners launch-loading %s/libat_load.so", folder)), 0,
          "launched\n", "graphs:");
}

static void a_child_forked_beside_other_threads_is_not_stuck(void **state)
{
    (void)state;
    const char *words = text_of("corners fork %zu", (size_t)test_effort(40, 10));
    check_same("", words, words);
}

/* Each call that looks at what was passed on. */
static void a_child_forked_in_the_middle_of_a_call_is_not_stuck(void **state)
{
    (void)state;
    skip_if_sanitized(); /* its own locks are held, too */
#if !defined NDEBUG      /* the check of their order ends a process that forks inside of one */
    skip();
#endif
    check(run_wider("", "forked"), 0, "30 children ended\n", "");
    check(run_wider("--budget 1GiB", "forked"), 0, "30 children ended\n", ""); /* all that is passed on is entered */
}

static void no_file_of_stratas_has_a_standard_descriptor(void **state)
{
    (void)state;
    char path[64];
    const char *set = getenv("STRATA_SIM_CHECK");
    char *checks = set ? strdup(set) : NULL;
    snprintf(path, sizeof path, "/tmp/strata-standard-%d.slog", (int)getpid());
    setenv("STRATA_SIM_CHECK", "no-stacks", 1); /* libunwind has a pipe of its own */
    check(run_under(text_of("--ipc --log %s", path), "corners standard"), 0, "-1-1-1\n", "");
    check(run_under(text_of("--report --output %s.txt", path), "corners standard"), 0, "-1-1-1\n", "");
    unlink(path);
    unlink(text_of("%s.txt", path));
    if (checks)
        setenv("STRATA_SIM_CHECK", checks, 1);
    else
        unsetenv("STRATA_SIM_CHECK");
    free(checks);
}

static void threads_of_a_process_without_descriptors_are_idle(void **state)
{
    (void)state;
    check(run_under("--report", "corners descriptors"), 0, "idle\n", "");
    check(run_wider("--ipc", "ipc descriptors"), 0, "idle\n", "");
}

/* By itself, also where only threads of Strata are left, which take no signal. */
static void a_process_ends_with_the_last_thread_of_its_own(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--report --output /dev/null", "--log /dev/null"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check(run_under(options[i], "corners main-first"), 0, "the last thread\n", "");
    check(run_under("--report", "corners main-first"), 0, "the last thread\n", "peak: 4096");
    check(run_wider("--ipc", "ipc main-first"), 0, "the main thread ends\n", "");
}

/* The driver may never let it go. */
static void a_thread_that_the_last_wait_left_behind_keeps_no_process_alive(void **state)
{
    (void)state;
    check(run_wider("--guard --report", "ends main-first"), 0, "the main thread ends\n",
          "made no last check before its context ended");
}

static void a_request_that_would_wait_for_ever_is_out_of_memory(void **state)
{
    (void)state;
    check(run_under("--stack budget(limit=100MiB,wait=live),direct", "corners deadlock"), 0, "refused: 2\n", "");
}

/* It says why there is no stack, with a lock that all requests need. */
static void a_thread_that_is_cancelled_in_the_first_request_holds_up_no_other(void **state)
{
    (void)state;
    setenv("STRATA_SHARED_DIR", "/nowhere/at/all", 1);
    check(run_under("--budget 48MiB --shared exec-cancelled", "corners cancelled"), 0, "then: 0\n",
          "the program goes on without it");
    unsetenv("STRATA_SHARED_DIR");
}

/* Where the stack's memory is given back, and in the driver's own reset. */
static void a_thread_that_is_cancelled_in_a_reset_holds_up_no_other(void **state)
{
    (void)state;
    check(run_under("", "corners cancelled-reset"), 0, "then: 0, another reset: 0\n", "");
    check(run_wider("", "corners cancelled-reset"), 0, "then: 0, another reset: 0\n", "");
}

static void a_log_that_a_full_disk_cuts_is_said(void **state)
{
    (void)state;
    char path[64], options[80];
    snprintf(path, sizeof path, "/tmp/strata-full-%d.slog", (int)getpid());
    snprintf(options, sizeof options, "--log %s", path);
    check(run_under(options, "corners full-log"), 0, "as without\n",
          "the log of device 0 is incomplete: File too large; ");
    unlink(path);
}

static void exit_handlers_of_after_cuinit_free_as_without(void **state)
{
    (void)state;
    check(run_under("", "corners exit-handler"), 0, "free: 0, again: 1\n", "");
    check(run_under("--report", "corners exit-handler"), 0, "free: 0, again: 1\n", "live_blocks: 0");
    check(run_under("--guard", "corners exit-handler"), 0, "free: 0, again: 1\n", "");
}

static void requests_behind_the_end_of_the_driver_are_its_own_to_refuse(void **state)
{
    (void)state;
    check_same("", "corners at-the-end", "corners at-the-end");
    check_same("--fail-closed --budget 100MiB", "corners at-the-end", "corners at-the-end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_memory_under_a_guard_can_be_written_on_any_stream),
        cmocka_unit_test(frees_wait_for_streams_that_are_older_than_the_stack),
        cmocka_unit_test(a_second_free_does_not_reach_the_chunk_of_a_layer),
        cmocka_unit_test(freed_memory_of_each_stack_is_there_for_the_driver),
        cmocka_unit_test(a_device_without_virtual_memory_has_a_budget),
        cmocka_unit_test(a_device_that_there_is_not_is_the_drivers_to_refuse),
        cmocka_unit_test(releases_are_answered_as_without),
        cmocka_unit_test(a_green_context_holds_the_primary_one),
        cmocka_unit_test(references_to_the_primary_context_go_with_the_programs_last),
        cmocka_unit_test(the_last_release_ends_the_context_that_another_module_begins_anew),
        cmocka_unit_test(work_of_an_ended_context_comes_before_a_free),
        cmocka_unit_test(default_streams_of_green_contexts_are_ordered),
        cmocka_unit_test(a_green_context_that_is_made_beside_a_capture_is_ordered),
        cmocka_unit_test(a_green_context_is_told_from_the_primary_one),
        cmocka_unit_test(memory_spoils_no_capture_that_begins),
        cmocka_unit_test(a_capture_in_a_green_context_goes_on),
        cmocka_unit_test(streams_end_with_their_context),
        cmocka_unit_test(memory_behind_a_reset_is_not_taken_for_that_of_before),
        cmocka_unit_test(what_is_made_behind_a_reset_is_not_forgotten_with_the_context_before),
        cmocka_unit_test(work_of_a_device_that_is_reset_comes_before_a_free_on_another),
        cmocka_unit_test(the_last_work_of_a_peer_s_stream_is_ordered),
        cmocka_unit_test(barriers_are_made_behind_a_reset),
        cmocka_unit_test(what_is_counted_begins_anew_behind_a_reset),
        cmocka_unit_test(events_of_barriers_are_made_anew_behind_a_reset),
        cmocka_unit_test(a_request_that_finds_a_reset_gives_memory_that_stays),
        cmocka_unit_test(a_request_is_made_again_for_each_reset_in_the_middle),
        cmocka_unit_test(a_stack_is_built_again_for_each_reset_in_the_middle),
        cmocka_unit_test(the_check_at_exit_leaves_out_a_guard_of_before_a_reset),
        cmocka_unit_test(a_context_by_the_handle_of_one_that_ends_is_counted),
        cmocka_unit_test(memory_is_there_after_a_reset_that_was_not_seen),
        cmocka_unit_test(a_reset_that_no_call_fails_for_is_found),
        cmocka_unit_test(a_thread_that_came_after_the_reset_finds_it),
        cmocka_unit_test(a_reset_of_the_device_that_is_charged_is_found),
        cmocka_unit_test(streams_and_contexts_are_made_after_a_reset_that_was_not_seen),
        cmocka_unit_test(a_call_that_fails_leaves_no_use_unordered),
        cmocka_unit_test(memory_is_of_the_streams_device_or_the_pools),
        cmocka_unit_test(a_stream_without_a_current_context_is_charged),
        cmocka_unit_test(a_destroyed_pool_gives_way_to_the_default_one),
        cmocka_unit_test(each_block_is_a_buffer_of_its_own),
        cmocka_unit_test(the_end_of_a_block_is_outside_of_it),
        cmocka_unit_test(freed_addresses_are_unknown),
        cmocka_unit_test(an_address_is_told_by_what_is_there_now),
        cmocka_unit_test(one_amount_of_memory_can_be_asked_for),
        cmocka_unit_test(a_request_that_fits_only_behind_waiting_frees_is_served),
        cmocka_unit_test(captures_that_fail_to_begin_or_end_are_known),
        cmocka_unit_test(ends_of_captures_are_seen),
        cmocka_unit_test(a_pool_with_the_handle_of_one_that_has_ended_is_used),
        cmocka_unit_test(a_report_is_written_while_a_library_is_loaded),
        cmocka_unit_test(a_graph_is_launched_while_a_library_is_loaded),
        cmocka_unit_test(a_child_forked_beside_other_threads_is_not_stuck),
        cmocka_unit_test(a_child_forked_in_the_middle_of_a_call_is_not_stuck),
        cmocka_unit_test(no_file_of_stratas_has_a_standard_descriptor),
        cmocka_unit_test(threads_of_a_process_without_descriptors_are_idle),
        cmocka_unit_test(a_process_ends_with_the_last_thread_of_its_own),
        cmocka_unit_test(a_thread_that_the_last_wait_left_behind_keeps_no_process_alive),
        cmocka_unit_test(a_request_that_would_wait_for_ever_is_out_of_memory),
        cmocka_unit_test(a_thread_that_is_cancelled_in_the_first_request_holds_up_no_other),
        cmocka_unit_test(a_thread_that_is_cancelled_in_a_reset_holds_up_no_other),
        cmocka_unit_test(a_log_that_a_full_disk_cuts_is_said),
        cmocka_unit_test(exit_handlers_of_after_cuinit_free_as_without),
        cmocka_unit_test(requests_behind_the_end_of_the_driver_are_its_own_to_refuse),
    };
    return cmocka_run_group_tests_name("exec_corners", tests, find_folders, forget_folders);
}
