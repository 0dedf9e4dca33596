/* What a library in front of a driver can do wrong (each was reported of one), and the kinds of memory that no stack
 * gives: programs under `strata exec` on the simulated driver, and on drivers that stand in front of it. */
#include "support/driver.h"
#include "support/exec.h"

/* A number of the report, by the names on the way to it. */
static json_int_t number_at(json_t *report, const char *first, const char *second, const char *third)
{
    const json_t *at = json_object_get(report, first);
    at = json_is_array(at) ? json_array_get(at, 0) : at;
    at = second ? json_object_get(at, second) : at;
    at = third ? json_object_get(at, third) : at;
    if (!json_is_integer(at))
        print_error("no %s %s %s\n", first, second ? second : "", third ? third : "");
    assert_true(json_is_integer(at));
    return json_integer_value(at);
}

static json_t *report_of(outcome *result)
{
    assert_int_equal(result->status, 0);
    json_t *report = read_report(result);
    free(result);
    return report;
}

static void check_passed(json_t *report, const char *kind, json_int_t calls, json_int_t peak, json_int_t live)
{
    assert_int_equal(number_at(report, "passed_on_to_the_driver", kind, "calls"), calls);
    assert_int_equal(number_at(report, "passed_on_to_the_driver", kind, "peak"), peak << 20);
    assert_int_equal(number_at(report, "passed_on_to_the_driver", kind, "live"), live << 20);
}

/* Of a kind, what a library asked for. */
static void check_library(json_t *report, const char *kind, const char *library, json_int_t calls, json_int_t peak,
                          json_int_t live)
{
    const json_t *row = json_object_get(json_object_get(report, "passed_on_to_the_driver"), kind);
    const json_t *of = json_object_get(json_object_get(row, "by_library"), library);
    if (!of)
        print_error("no %s of %s\n", kind, library);
    assert_non_null(of);
    assert_int_equal(json_integer_value(json_object_get(of, "calls")), calls);
    assert_int_equal(json_integer_value(json_object_get(of, "peak")), peak << 20);
    assert_int_equal(json_integer_value(json_object_get(of, "live")), live << 20);
}

/* ---- look-ups ---- */

static void each_hook_is_found_by_its_symbol_and_by_its_version(void **state)
{
    (void)state;
    check(run_under("", "lookups hooks"), 0, "many hooks, 0 wrong\nno hook: driver\n", "");
}

static void get_proc_address_asked_for_itself_gives_the_hook(void **state)
{
    (void)state;
    check(run_under("", "lookups hooks"), 0, "itself: hook and hook, and what that finds: hook\n", "");
}

static void names_like_the_drivers_stay_their_librarys(void **state)
{
    (void)state;
    const char *words = text_of("lookups names %s/liblike_names.so", folder);
    check_same("", words, words);
}

static void a_look_up_asks_for_no_host_memory(void **state)
{
    (void)state;
    if (access(text_of("%s/lookups_quiet", folder), X_OK) != 0)
        skip(); /* a sanitizer's build */
    check(run_under("", "lookups_quiet quiet"), 0, "hook hook driver hook hook driver\n", "");
}

static void a_look_up_may_interrupt_another(void **state)
{
    (void)state;
    check(run_under("", "lookups interrupted"), 0, "interrupted, and right\n", "");
}

static void a_call_that_no_hook_covers_passes_and_is_counted(void **state)
{
    (void)state;
    outcome *result = run_wider("--json", "others_memory");
    assert_non_null(strstr(result->out, "first form 17, sum 28.8 and 9.0\n"
                                        "the form of before: 3.0\nthe same by either way: yes\n"));
    json_t *report = report_of(result);
    assert_int_equal(number_at(report, "calls_not_covered", "cuNewSum", NULL), 3); /* of both forms */
    assert_int_equal(number_at(report, "calls_not_covered", "cuMemAlloc", NULL),
                     1); /* of 2000; that of 3020 is hooked */
    assert_int_equal(number_at(report, "calls_not_covered", "cuMemMapArrayAsync", NULL), 1);
    assert_int_equal(json_object_size(json_object_get(report, "calls_not_covered")), 3);
    json_decref(report);
}

static void a_linked_function_that_no_hook_covers_is_named(void **state)
{
    (void)state;
    outcome *result = run_behind("libnewer_driver.so", "--json", "newer_linked");
    assert_string_equal(result->out, "thing 5\n");
    json_t *report = report_of(result);
    const json_t *names = json_object_get(report, "linked_and_not_covered");
    assert_int_equal(json_array_size(names), 1);
    assert_string_equal(json_string_value(json_array_get(names, 0)), "cuNewThing");
    json_decref(report);
}

static void the_export_table_is_the_drivers(void **state)
{
    (void)state;
    check(run_wider("", "others_memory"), 0, "the export table is of libcuda.so.1\n", "");
}

static void a_driver_that_binds_its_own_names_outside_works(void **state)
{
    (void)state;
    check(run_wider("", "others_memory"), 0, "a foreign handle: 1\n", "");
}

/* ---- the library ---- */

static void the_library_needs_no_cuda_and_no_run_path(void **state)
{
    (void)state;
    const char *library = text_of("%s/../../lib/libstrata-exec.so", folder);
    assert_int_equal(access(library, R_OK), 0);
    assert_int_equal(system(text_of("readelf -d %s > /dev/null", library)), 0);
    assert_int_not_equal(system(text_of("readelf -d %s | grep -E 'NEEDED.*(cuda|nvidia)|RPATH|RUNPATH' >&2", library)),
                         0);
}

/* ---- accounting ---- */

static void memory_is_charged_to_its_own_device(void **state)
{
    (void)state;
    setenv("STRATA_SIM_DEVICES", "2", 1);
    check_same("", "kinds elsewhere", "kinds elsewhere");
    check(run_under("--budget 100MiB", "kinds elsewhere"), 0, "here: 0 MiB less free\nthere: 32 MiB less free\n", "");
    unsetenv("STRATA_SIM_DEVICES");
}

static void a_thread_without_a_context_hears_what_it_would_without(void **state)
{
    (void)state;
    check_same("", "kinds thread", "kinds thread");
    check_same("--budget 100MiB", "kinds thread", "kinds thread");
}

static void memory_is_freed_by_another_family(void **state)
{
    (void)state;
    check_same("", "kinds families", "kinds families");
    check_same("--stack async", "kinds families", "kinds families");
}

static void memory_of_the_stack_is_no_mapping_of_the_programs(void **state)
{
    (void)state;
    check_same("--ipc", "handles", "handles");
    check_same("--stack direct", "handles", "handles");
    check(run_under("", "handles"), 0,
          "inside: handle 1, unmapped 1\nfreed: handle 1, unmapped 1\nforbidden: block 1, freed 1, then written: 0\n"
          "first byte: 7\n",
          "");
}

/* As NCCL takes it; of the whole chunk, and of no other memory. */
static void a_contiguous_block_has_a_handle(void **state)
{
    (void)state;
    outcome *result = run_under("--stack pool(contiguous=2MiB)", "handles");
    assert_int_equal(result->status, 0);
    assert_non_null(strstr(result->out, "inside: handle types 1 and 1, IPC 0 and 0\n"
                                        "block: handle 0, unmapped 1\ninside: handle 0, unmapped 1\n"
                                        "freed: handle 1, unmapped 1\n"
                                        "forbidden: block 1, freed 1, then written: 0\nfirst byte: 7\n"));
    free(result);
    check(run_under("--stack pool(contiguous=8MiB)", "handles"), 0, "block: handle 1, unmapped 1\n", "");
}

static void a_handle_that_can_be_had_is_said_to_be(void **state)
{
    (void)state;
    check(run_under("", "handles"), 0, "block: handle types 0 and 0, IPC 0 and 0\n", "");
    check(run_under("--ipc", "handles"), 0, "block: handle types 0 and 0, IPC 1 and 1\n", "");
}

static void results_are_untouched_by_a_failure(void **state)
{
    (void)state;
    check_same("", "kinds failure", "kinds failure");
    check(run_under("--budget 64MiB", "kinds failure"), 0, "2 2 2 2: 1234 99 5678\n", "");
}

static void what_no_hook_saw_is_not_accounted_for(void **state)
{
    (void)state;
    skip_if_sanitized();
    json_t *report = report_of(run_under("--json", text_of("deep_program %s/libdeep.so", folder)));
    assert_int_equal(number_at(report, "devices", "not_accounted_for", NULL), 2 << 20); /* what backs its 1 MiB */
    json_decref(report);
    report = report_of(run_under("--json", "behaviour leak"));
    assert_int_equal(number_at(report, "devices", "not_accounted_for", NULL), 0);
    json_decref(report);
}

/* ---- kinds of memory ---- */

static void host_memory_is_counted_and_not_charged(void **state)
{
    (void)state;
    check_same("", "kinds host", "kinds host");
    json_t *report = report_of(run_under("--budget 64MiB --json", "kinds host"));
    check_passed(report, "host", 2, 3, 1);
    check_passed(report, "registered_host", 1, 4, 0);
    json_decref(report);
}

static void host_memory_ends_with_its_context(void **state)
{
    (void)state;
    check_same("", "kinds host-context", "kinds host-context");
    json_t *report = report_of(run_under("--json", "kinds host-context"));
    check_passed(report, "host", 2, 3, 1);
    check_passed(report, "registered_host", 1, 4, 0);
    json_decref(report);
}

static void what_is_passed_on_is_listed_by_library(void **state)
{
    (void)state;
    char words[TEXT];
    snprintf(words, sizeof words, "asks %s/libasks_library.so", folder); /* longer than a text is good */
    json_t *report = report_of(run_wider("--budget 64MiB --json", words));
    check_passed(report, "host", 3, 3, 2);
    check_library(report, "host", "libasks_library.so", 2, 3, 1);
    check_library(report, "host", "asks", 1, 1, 1);
    check_library(report, "managed", "libasks_library.so", 1, 4, 0);
    check_library(report, "pitched", "libasks_library.so", 1, 1, 0);
    check_library(report, "arrays", "libasks_library.so", 1, 2, 0);
    check_library(report, "pooled", "libasks_library.so", 1, 8, 0);
    check_library(report, "physical", "libasks_library.so", 1, 16, 0);
    json_decref(report);
    check(run_wider("--budget 64MiB --report", words), 0, "asked\n", "      libasks_library.so:\n");
}

static void arrays_are_charged_with_all_levels_and_channels(void **state)
{
    (void)state;
    json_t *report = report_of(run_wider("--budget 64MiB --json", "arrays"));
    check_passed(report, "arrays", 3, 8 + 5 + 9, 8 + 5 + 9);
    json_decref(report);
    report = report_of(run_wider("--budget 64MiB --json", "arrays ended"));
    check_passed(report, "arrays", 4, 8 + 5 + 9 + 8, 5); /* of the two in levels one is left */
    json_decref(report);
    check(run_wider("--budget 16MiB", "arrays"), 2, "cuMipmappedArrayCreate_found(&levels, &solid, 2) gave 2", "");
}

static void a_mapping_that_could_not_be_taken_back_counts_until_it_is(void **state)
{
    (void)state;
    check_same("", "kinds two-tries", "kinds two-tries");
    check(run_under("--budget 64MiB", "kinds two-tries"), 0, ", 0 MiB more free, and then 8\n", "");
}

static void memory_of_graphs_is_charged(void **state)
{
    (void)state;
    check_same("", "kinds graph", "kinds graph");
    check_same("", "kinds captured", "kinds captured");
    check(run_under("--budget 100MiB", "kinds graph"), 0, "launched: 32 MiB less free\ntrimmed: 0 MiB less free\n", "");
    json_t *report = report_of(run_under("--budget 100MiB --json", "kinds graph"));
    check_passed(report, "graphs", 1, 32, 0);
    check_library(report, "graphs", "kinds", 1, 0, 0);
    json_decref(report);
    static const char *const forms[] = {"rarer node", "rarer node-2"};
    for (size_t i = 0; i < 2; i++) {
        check_same("", forms[i], forms[i]);
        check_same("--budget 200MiB", forms[i], forms[i]);
        report = report_of(run_under("--json", forms[i]));
        check_passed(report, "graphs", 1, i ? 64 : 32, 0);
        json_decref(report);
    }
    report = report_of(run_under("--json", "kinds captured"));
    check_passed(report, "graphs", 1, 32, 32); /* whole pieces */
    assert_int_equal(number_at(report, "devices", "not_accounted_for", NULL), 0);
    json_decref(report);
}

/* The driver keeps it behind a reset. */
static void memory_of_graphs_alone_is_charged(void **state)
{
    (void)state;
    check_same("", "kinds graph-reset", "kinds graph-reset");
    json_t *report = report_of(run_under("--budget 100MiB --json", "kinds graph-reset"));
    check_passed(report, "graphs", 1, 32, 32);
    json_decref(report);
}

static void memory_of_a_graph_above_the_budget_is_counted(void **state)
{
    (void)state;
    json_t *report = report_of(run_under("--budget 16MiB --json", "kinds graph"));
    check_passed(report, "graphs", 1, 32, 0);
    assert_int_equal(number_at(report, "calls", "refused", NULL), 1);
    json_decref(report);
}

static void the_default_pool_says_what_the_stack_holds(void **state)
{
    (void)state;
    check_same("", "kinds pool", "kinds pool");
    check_same("--stack async", "kinds pool", "kinds pool");
    check_same("", "kinds peaks", "kinds peaks");
}

static void memory_of_the_default_pool_by_name_is_the_stacks(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--stack async", "--guard", "--budget 100MiB"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        check_same(options[i], "kinds pool-by-name", "kinds pool-by-name");
    json_t *report = report_of(run_under("--budget 100MiB --json", "kinds pool-by-name"));
    assert_int_equal(number_at(report, "calls", "served_stream_ordered", NULL), 1);
    assert_int_equal(number_at(report, "devices", "peak", NULL), 64 << 20);
    assert_null(json_object_get(json_object_get(report, "passed_on_to_the_driver"), "pooled"));
    json_decref(report);
}

static void a_pool_that_was_set_by_its_location_is_used(void **state)
{
    (void)state;
    check(run_wider("", "rarer set-pool"), 0,
          "at first: not of the program's pool\nset: of the program's pool\ntaken back: not of the program's pool\n",
          "");
}

static void imported_memory_is_counted_and_not_charged(void **state)
{
    (void)state;
    check_same("", "kinds imported", "kinds imported");
    json_t *report = report_of(run_under("--budget 64MiB --json", "kinds imported"));
    check_passed(report, "imported_physical", 1, 8, 0);
    json_decref(report);
    report = report_of(run_wider("--budget 64MiB --json", "others_memory"));
    check_passed(report, "imported", 2, 6, 2);
    check_passed(report, "graphics", 1, 16, 0);
    check_passed(report, "multicast", 1, 64, 0);
    check_library(report, "imported", "others_memory", 2, 6, 2);
    check_library(report, "graphics", "others_memory", 1, 16, 0);
    json_decref(report);
    check(run_wider("--budget 2MiB", "others_memory"), 2, "cuImportExternalMemory", ""); /* behind 6 MiB imported */
}

/* ---- external memory ---- */

static void external_memory_is_charged_while_it_is_imported(void **state)
{
    (void)state;
    check(run_wider("--budget 100MiB", "external import"), 0,
          "imported: 36 MiB free, destroyed: 100, again: 400, 100\n", "");
    json_t *report = report_of(run_wider("--budget 100MiB --json", "external import"));
    check_passed(report, "external", 1, 64, 0);
    check_library(report, "external", "external", 1, 64, 0);
    assert_int_equal(number_at(report, "devices", "budget", "peak"), 64 << 20);
    assert_int_equal(number_at(report, "devices", "budget", "in_use"), 0);
    json_decref(report);
}

static void what_is_mapped_of_external_memory_is_charged_once(void **state)
{
    (void)state;
    check(run_wider("--budget 100MiB", "external map"), 0, "mapped: 36 MiB free, freed: 36, destroyed: 100\n", "");
}

static void external_memory_above_the_budget_is_refused(void **state)
{
    (void)state;
    check(run_wider("", "external too-much"), 0, "a second one: 0, its file is closed", "");
    outcome *result = run_wider("--budget 100MiB --json", "external too-much");
    assert_outcome(result, 0,
                   "a second one: 2, its file is open, 64 MiB of cuMemAlloc: 2, behind the first one's end: 0\n", "");
    json_t *report = report_of(result);
    const json_t *refusals = json_object_get(report, "refusals"), *one = json_array_get(refusals, 0);
    assert_int_equal(json_array_size(refusals), 2); /* the other one is of the stack's memory */
    assert_string_equal(json_string_value(json_object_get(one, "kind")), "external");
#if !defined __SANITIZE_ADDRESS__ /* of which the walk finds the sanitizer's library */
    assert_string_equal(json_string_value(json_object_get(one, "library")), "external");
#endif
    assert_int_equal(json_integer_value(json_object_get(one, "requested")), 64 << 20);
    assert_int_equal(json_integer_value(json_object_get(one, "passed_on_to_the_driver")), 64 << 20);
    assert_null(json_object_get(json_array_get(refusals, 1), "kind"));
    json_decref(report);
}

static void an_import_that_fails_is_not_charged(void **state)
{
    (void)state;
    check(run_wider("--budget 100MiB", "external no-file"), 0, "no file: 400, no size: 1, 0 MiB less free\n", "");
}

static void external_memory_ends_with_its_context(void **state)
{
    (void)state;
    check(run_wider("--budget 100MiB", "external context"), 0, "destroyed: 100 MiB free, reset: 100, imported: 36\n",
          "");
}

/* ---- what no call asks for ---- */

/* The budget cannot refuse it, and the device has room. */
static void hidden_memory_is_reported_and_not_charged(void **state)
{
    (void)state;
    outcome *result = run_wider("--budget 1GiB --json", "external hidden");
    assert_outcome(result, 0, "1024 MiB free, 1000 MiB: 0\n", "");
    json_t *report = read_report(result);
    free(result);
    assert_int_equal(number_at(report, "devices", "not_accounted_for", NULL), 500 << 20);
    assert_int_equal(number_at(report, "devices", "budget", "in_use"), 1000 << 20);
    json_decref(report);
    setenv("STRATA_SIM_MEMORY", "1GiB", 1); /* a device of that size */
    check(run_wider("--budget 1GiB", "external hidden"), 0, "524 MiB free, 1000 MiB: 2\n", "");
    unsetenv("STRATA_SIM_MEMORY");
}

/* ---- other processes ---- */

static const char given[] =
    "a handle: 0\ntwice the same: yes, opened here: 201\none mapping, read 7 and 7\nthen here: 9\n"
    "opening gave 400\n";

static void memory_of_a_pool_goes_to_another_process(void **state)
{
    (void)state;
    outcome *result = run_wider("--ipc --children", "ipc");
    assert_int_equal(result->status, 0);
    assert_string_equal(result->err, "");
    assert_memory_equal(result->out, given, strlen(given));  /* of 1 MiB */
    assert_string_equal(result->out + strlen(given), given); /* of 100 MiB */
    free(result);
    check(run_wider("--children --guard --stack pool(export=fd)", "ipc"), 0, given, "");
}

static void memory_of_another_process_is_every_devices(void **state)
{
    (void)state;
    setenv("STRATA_SIM_DEVICES", "2", 1);
    setenv("IPC_OTHER_DEVICE", "1", 1);
    check(run_wider("--ipc --children", "ipc"), 0, "read from another device: 7\none mapping, read 7 and 7\n", "");
    unsetenv("IPC_OTHER_DEVICE");
    unsetenv("STRATA_SIM_DEVICES");
}

/* Of the 110 MiB that the two may have together, 100 are one block, which both map. */
static void memory_of_another_process_is_charged_where_it_was_made(void **state)
{
    (void)state;
    char shared[] = "/tmp/strata-exec-XXXXXX";
    assert_non_null(mkdtemp(shared));
    setenv("STRATA_SHARED_DIR", shared, 1);
    outcome *result = run_wider("--ipc --children --budget 110MiB --shared exec-ipc", "ipc");
    assert_int_equal(result->status, 0);
    assert_string_equal(result->err, "");
    assert_memory_equal(result->out, given, strlen(given));
    assert_string_equal(result->out + strlen(given), given);
    free(result);
    unsetenv("STRATA_SHARED_DIR");
    assert_int_equal(system(text_of("rm -r %s", shared)), 0);
}

static void a_failed_free_leaves_the_handle_good(void **state)
{
    (void)state;
    check(run_wider("--ipc --children", "ipc failed-free"), 0, "gave 400\none mapping, read 7 and 7\n", "");
}

static void an_offer_without_a_socket_is_taken_back(void **state)
{
    (void)state;
    check(run_wider("--ipc", "ipc no-socket"), 0, "a handle: refused, descriptors left: 1\n", "");
}

static void a_thread_that_is_cancelled_holds_up_no_other_that_gives_or_takes_memory(void **state)
{
    (void)state;
    check(run_wider("--ipc --children", "ipc cancelled"), 0, "calls that came back: 2\none mapping, read 7 and 7\n",
          "");
}

static void memory_is_given_on_a_new_socket_when_the_program_has_closed_the_first(void **state)
{
    (void)state;
    check(run_wider("--ipc --children", "ipc closed"), 0,
          "one mapping, read 7 and 7\none mapping, read 7 and 7\nthe first one, opened here: 201\n", "");
}

static void files_of_the_program_in_place_of_the_memorys_are_left_alone(void **state)
{
    (void)state;
    check(run_wider("--ipc --children", "ipc reused"), 0,
          "replaced: some\nopening gave 400\none mapping, read 7 and 7\nthe same: yes, left alone: all\n", "");
}

static void a_handle_that_no_stack_can_make_is_refused_with_a_way_out(void **state)
{
    (void)state;
    outcome *result = run_wider("", "ipc");
    assert_string_equal(result->out, "a handle: 1\na handle: 1\n");
    assert_non_null(strstr(result->err, "start both processes with --ipc"));
    assert_null(strstr(strstr(result->err, "--ipc") + 1, "--ipc")); /* said once */
    free(result);
    check(run_under("--ipc --stack pool", "/bin/true"), 2, "", "write pool(export=fd) into --stack");
}

/* A process without Strata gets an error of its driver. */
static void a_handle_is_nothing_to_a_process_without_strata(void **state)
{
    (void)state;
    outcome *result = run_wider("--ipc", "ipc");
    assert_non_null(strstr(result->out, "opened here: 201\nopening gave 1\n"));
    free(result);
}

/* ---- NVML ---- */

static outcome *run_with_nvml(const char *options, const char *words)
{
    const char *path = folder_with("libfake_nvml.so", "libnvidia-ml.so.1");
    setenv("LD_LIBRARY_PATH", path, 1);
    outcome *result = run_under(options, words);
    unsetenv("LD_LIBRARY_PATH");
    remove_folder(path, "libnvidia-ml.so.1");
    return result;
}

static void nvml_and_the_driver_tell_one_story(void **state)
{
    (void)state;
    check(run_with_nvml("--budget 100MiB", "nvml"), 0,
          "memory: 0, 8 of 100 MiB used, 92 free\nversion 2: 8 of 100 MiB used\n"
          "attributes: 132 processors, 100 MiB\n"
          "Compute: 8 and 1024; not known and 1024; 8 and 1024\n"
          "Graphics: 8 and 1024; not known and 1024; 8 and 1024\n"
          "MPSCompute: 8 and 1024; not known and 1024; 8 and 1024\n"
          "details: 8 and 1024\nthe driver: 92 of 100 MiB free\n",
          "");
    check(run_with_nvml("", "nvml"), 0,
          "memory: 0, 6144 of 16384 MiB used, 10240 free\nversion 2: 6144 of 16384 MiB used\n"
          "attributes: 132 processors, 16384 MiB\n"
          "Compute: 5120 and 1024; not known and 1024; 5120 and 1024\n"
          "Graphics: 5120 and 1024; not known and 1024; 5120 and 1024\n"
          "MPSCompute: 5120 and 1024; not known and 1024; 5120 and 1024\n"
          "details: 5120 and 1024\n",
          "");
}

static void nvml_counts_what_is_set_aside_as_used(void **state)
{
    (void)state;
    check(run_with_nvml("--budget 100MiB --set-aside 20MiB", "nvml"), 0,
          "memory: 0, 28 of 100 MiB used, 72 free\nversion 2: 28 of 100 MiB used\n", "");
}

/* NVML's first handle is no device that CUDA knows; the second one is CUDA's first. */
static void nvml_devices_are_told_apart_by_uuid(void **state)
{
    (void)state;
    check(run_with_nvml("--budget 100MiB", "nvml 1"), 0, "memory: 0, 0 of 100 MiB used, 100 free\n", "");
}

static void what_nvml_does_not_support_stays_so(void **state)
{
    (void)state;
    setenv("FAKE_NVML_UNSUPPORTED", "1", 1);
    check(run_with_nvml("--budget 100MiB", "nvml"), 0, "memory: 3, 1 of 1 MiB used, 1 free\nattributes:", "");
    unsetenv("FAKE_NVML_UNSUPPORTED");
}

/* ---- processes, and ways past the hooks ---- */

static void a_child_forked_before_the_first_call_works(void **state)
{
    (void)state;
    check(run_under("--budget 64MiB", "fork_first"), 0, "child: 4 blocks, then 2\nparent: 4 blocks, then 2\n", "");
}

/* The program has begun the driver, and Strata has not: the driver refuses the child, and nothing is said. */
static void a_child_forked_behind_the_driver_s_start_hears_the_driver(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--fail-closed --budget 2GiB", "--children"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        check_same(options[i], "fork_first begun", "fork_first begun");
        outcome *result = run_under(options[i], "fork_first begun");
        assert_string_equal(result->err, "");
        free(result);
    }
}

static void a_driver_in_another_namespace_is_passed_on(void **state)
{
    (void)state;
    skip_if_sanitized();
    check(run_under("", "namespace"), 0, "memory in another namespace\n", "the program's driver cannot be used");
    check(run_under("--fail-closed", "namespace"), 2, "gave 800", "memory is refused (--fail-closed)");
}

static void a_private_driver_by_run_path_is_seen(void **state)
{
    (void)state;
    check(run(text_of("exec --driver cuda --budget 100MiB -- %s/private_driver", folder)), 0, "100 MiB\n", "");
}

static void a_program_that_was_patched_is_named(void **state)
{
    (void)state;
    outcome *result = run_under("--json", "patched");
    assert_string_equal(result->out, "patched, 1 call, memory: 0\n");
    json_t *report = report_of(result);
    const json_t *unseen = json_object_get(report, "calls_of_these_were_not_seen");
    assert_int_equal(json_array_size(unseen), 1);
    assert_string_equal(json_string_value(json_array_get(unseen, 0)), "the program");
    json_decref(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_hook_is_found_by_its_symbol_and_by_its_version),
        cmocka_unit_test(get_proc_address_asked_for_itself_gives_the_hook),
        cmocka_unit_test(names_like_the_drivers_stay_their_librarys),
        cmocka_unit_test(a_look_up_asks_for_no_host_memory),
        cmocka_unit_test(a_look_up_may_interrupt_another),
        cmocka_unit_test(a_call_that_no_hook_covers_passes_and_is_counted),
        cmocka_unit_test(a_linked_function_that_no_hook_covers_is_named),
        cmocka_unit_test(the_export_table_is_the_drivers),
        cmocka_unit_test(a_driver_that_binds_its_own_names_outside_works),
        cmocka_unit_test(the_library_needs_no_cuda_and_no_run_path),
        cmocka_unit_test(memory_is_charged_to_its_own_device),
        cmocka_unit_test(a_thread_without_a_context_hears_what_it_would_without),
        cmocka_unit_test(memory_is_freed_by_another_family),
        cmocka_unit_test(memory_of_the_stack_is_no_mapping_of_the_programs),
        cmocka_unit_test(a_contiguous_block_has_a_handle),
        cmocka_unit_test(a_handle_that_can_be_had_is_said_to_be),
        cmocka_unit_test(results_are_untouched_by_a_failure),
        cmocka_unit_test(what_no_hook_saw_is_not_accounted_for),
        cmocka_unit_test(host_memory_is_counted_and_not_charged),
        cmocka_unit_test(host_memory_ends_with_its_context),
        cmocka_unit_test(what_is_passed_on_is_listed_by_library),
        cmocka_unit_test(arrays_are_charged_with_all_levels_and_channels),
        cmocka_unit_test(a_mapping_that_could_not_be_taken_back_counts_until_it_is),
        cmocka_unit_test(memory_of_graphs_is_charged),
        cmocka_unit_test(memory_of_graphs_alone_is_charged),
        cmocka_unit_test(memory_of_a_graph_above_the_budget_is_counted),
        cmocka_unit_test(the_default_pool_says_what_the_stack_holds),
        cmocka_unit_test(memory_of_the_default_pool_by_name_is_the_stacks),
        cmocka_unit_test(a_pool_that_was_set_by_its_location_is_used),
        cmocka_unit_test(imported_memory_is_counted_and_not_charged),
        cmocka_unit_test(external_memory_is_charged_while_it_is_imported),
        cmocka_unit_test(what_is_mapped_of_external_memory_is_charged_once),
        cmocka_unit_test(external_memory_above_the_budget_is_refused),
        cmocka_unit_test(an_import_that_fails_is_not_charged),
        cmocka_unit_test(external_memory_ends_with_its_context),
        cmocka_unit_test(hidden_memory_is_reported_and_not_charged),
        cmocka_unit_test(memory_of_a_pool_goes_to_another_process),
        cmocka_unit_test(memory_of_another_process_is_every_devices),
        cmocka_unit_test(memory_of_another_process_is_charged_where_it_was_made),
        cmocka_unit_test(a_failed_free_leaves_the_handle_good),
        cmocka_unit_test(an_offer_without_a_socket_is_taken_back),
        cmocka_unit_test(files_of_the_program_in_place_of_the_memorys_are_left_alone),
        cmocka_unit_test(a_thread_that_is_cancelled_holds_up_no_other_that_gives_or_takes_memory),
        cmocka_unit_test(memory_is_given_on_a_new_socket_when_the_program_has_closed_the_first),
        cmocka_unit_test(a_handle_that_no_stack_can_make_is_refused_with_a_way_out),
        cmocka_unit_test(a_handle_is_nothing_to_a_process_without_strata),
        cmocka_unit_test(nvml_and_the_driver_tell_one_story),
        cmocka_unit_test(nvml_counts_what_is_set_aside_as_used),
        cmocka_unit_test(nvml_devices_are_told_apart_by_uuid),
        cmocka_unit_test(what_nvml_does_not_support_stays_so),
        cmocka_unit_test(a_child_forked_before_the_first_call_works),
        cmocka_unit_test(a_child_forked_behind_the_driver_s_start_hears_the_driver),
        cmocka_unit_test(a_driver_in_another_namespace_is_passed_on),
        cmocka_unit_test(a_private_driver_by_run_path_is_seen),
        cmocka_unit_test(a_program_that_was_patched_is_named),
    };
    return cmocka_run_group_tests_name("exec_hooks", tests, find_folders, forget_folders);
}
