/* strata_peers: Strata's stacks beside other allocators, a column each, with the same work for all. strata_bench
 * compares with the bare driver; this program also opens libraries and replays traces. */
#include "arguments.h"
#include "bare.h"
#include "competitors.h"
#include "delay.h"
#include "machine.h"
#include "scene.h"

#include "tools/progress.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const subject *const subjects[] = {
    &subject_pairs,        &subject_unknown,       &subject_live,   &subject_own_streams, &subject_mixed_sizes,
    &subject_one_stream,   &subject_hand_over,     &subject_behind, &subject_random,      &subject_multi_stream,
    &subject_first_random, &subject_first_streams, &subject_replay, &subject_paced};

enum { SUBJECTS = sizeof subjects / sizeof subjects[0], TRACES_REASON = 4096 };

/* ---- traces ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

static int is_trace(const struct dirent *file)
{
    return ends_with(file->d_name, ".csv") || ends_with(file->d_name, ".csv.gz");
}

/* Names the traces of the folder. *why: why there are none, which matters to rows of traces alone; "" if there are. */
static void name_traces(contest *of, const options *given, char why[TRACES_REASON])
{
    const char *environment = getenv("STRATA_TRACES");
    const char *folder = given->traces ? given->traces : environment && *environment ? environment : "examples/traces";
    struct dirent **found;
    int count = scandir(folder, &found, is_trace, alphasort);
    why[0] = '\0';
    if (count < 0)
        snprintf(why, TRACES_REASON, "folder of traces %s: %s", folder, strerror(errno));
    if (count == 0)
        snprintf(why, TRACES_REASON, "folder of traces %s: it has no *.csv or *.csv.gz", folder);
    if (count == 0)
        free(found);
    if (count <= 0)
        return;
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name);
        if (of->recording_count == CONTEST_TRACES)
            arguments_fail("that is one trace too many", path);
        recording_name(&of->recordings[of->recording_count++], path);
        free(found[i]);
    }
    free(found);
}

/* ---- rows ---- */

static bool is_wanted(const contest *of, const options *given, const subject *what, size_t row,
                      char name[BOARD_NAME_SIZE])
{
    what->name(of, row, name);
    return !given->usual.filter || strstr(name, given->usual.filter);
}

static size_t count_wanted(const contest *of, const options *given, const subject *what)
{
    char name[BOARD_NAME_SIZE];
    size_t wanted = 0;
    for (size_t row = 0; row < what->count(of); row++)
        wanted += is_wanted(of, given, what, row, name);
    return wanted;
}

/* Whether a row of the trace is selected. The rows of a trace stand together. */
static bool is_trace_wanted(const contest *of, const options *given, const subject *what, size_t trace)
{
    char name[BOARD_NAME_SIZE];
    const size_t each = what->count(of) / of->recording_count;
    for (size_t row = trace * each; row < (trace + 1) * each; row++)
        if (is_wanted(of, given, what, row, name))
            return true;
    return false;
}

static void read_traces(contest *of, const options *given)
{
    char why[1200];
    for (size_t i = 0; i < of->recording_count; i++) {
        if (!is_trace_wanted(of, given, &subject_replay, i) && !is_trace_wanted(of, given, &subject_paced, i))
            continue;
        if (!recording_read(&of->recordings[i], of->quick, why, sizeof why))
            arguments_fail("a trace", why);
    }
}

static void list_rows(const contest *of, const options *given)
{
    char name[BOARD_NAME_SIZE];
    for (size_t i = 0; i < SUBJECTS; i++)
        for (size_t row = 0; row < subjects[i]->count(of); row++)
            if (is_wanted(of, given, subjects[i], row, name))
                puts(name);
}

static void run_subject(contest *of, const options *given, const subject *what, progress *bar, size_t *done,
                        size_t total)
{
    char name[BOARD_NAME_SIZE];
    if (!count_wanted(of, given, what))
        return;
    board_heading(of->board, what->heading);
    if (what->begin)
        what->begin(of);
    for (size_t row = 0; row < what->count(of); row++) {
        if (!is_wanted(of, given, what, row, name))
            continue;
        progress_show(bar, (*done)++, total, name);
        what->measure(of, row, name);
    }
    if (what->end)
        what->end(of);
}

/* Clears the progress bar before a row is printed. */
static void clear_line(void *data)
{
    progress *bar = data;
    progress_close(bar);
    progress_open(bar, true);
}

static void run_subjects(contest *of, const options *given, size_t total)
{
    progress bar;
    size_t done = 0;
    progress_open(&bar, true);
    board_before_print(of->board, clear_line, &bar);
    for (size_t i = 0; i < SUBJECTS; i++)
        run_subject(of, given, subjects[i], &bar, &done, total);
    board_before_print(of->board, NULL, NULL);
    progress_close(&bar);
}

/* ---- the run ---- */

/* Prints what each corrupt competitor did. */
static size_t print_corrupt(const contest *of)
{
    size_t caught = 0;
    for (size_t i = 0; i < of->count; i++)
        if (*of->choices[i].corrupt) {
            fprintf(stderr, "strata_peers: %s (%s): %s\n", of->choices[i].label, of->choices[i].text,
                    of->choices[i].corrupt);
            caught++;
        }
    return caught;
}

static void describe(contest *of, const options *given, const strata_driver_info *driver)
{
    strata_device_info device;
    scene_check(strata_device_get_info(0, &device), "strata_device_get_info");
    machine_describe(board_add_fact, of->board, driver, &device, given->usual.rounds);
    if (given->quick)
        board_judge_nothing(of->board);
    if (given->quick)
        board_add_fact(of->board, "quick", "sequences are cut short: no figure counts");
    board_set_peers(of->board, of->choices, of->count);
    if (!competitors_has_pool(of))
        board_remark(of->board, "No competitor is the stack `pool`, so that no target is measured.");
}

static void open_device(contest *of)
{
    CUdevice device;
    bare_check(bare.DeviceGet(&device, 0), "cuDeviceGet");
    bare_check(bare.DevicePrimaryCtxRetain(&of->context, device), "cuDevicePrimaryCtxRetain");
    bare_check(bare.CtxSetCurrent(of->context), "cuCtxSetCurrent");
}

static void count_calls(contest *of, const options *given)
{
    const bool unknown_pairs = count_wanted(of, given, &subject_unknown) > 0;
    const bool replays = count_wanted(of, given, &subject_replay) > 0;
    if (unknown_pairs || replays)
        calls_count(of, unknown_pairs, replays);
}

static size_t count_all_wanted(const contest *of, const options *given)
{
    size_t total = 0;
    for (size_t i = 0; i < SUBJECTS; i++)
        total += count_wanted(of, given, subjects[i]);
    return total;
}

/* Exits if rows that were asked for need the traces that are missing: all rows, or those of a filter that selects none
 * of the others. */
static void require_rows(const contest *of, const options *given, const char *no_traces)
{
    if (*no_traces && (given->traces || !given->usual.filter))
        arguments_fail(no_traces, "--traces names another, --filter selects rows that need none");
    if (count_all_wanted(of, given))
        return;
    if (*no_traces)
        fprintf(stderr, "strata_peers: %s\n", no_traces);
    arguments_fail("no row has a name that contains", given->usual.filter);
}

static int run(contest *of, const options *given)
{
    size_t rows;
    const size_t total = count_all_wanted(of, given);
    read_traces(of, given);
    competitors_add_stacks(of, given);
    count_calls(of, given);

    strata_driver_info driver;
    scene_check(strata_driver_get_info(&driver), "strata_driver_get_info");
    bare_open(driver.library);
    of->simulated = driver.simulated;
    open_device(of);
    delay_load(driver.library, driver.simulated);
    competitors_add_others(of, given);
    of->board = board_begin(stdout, given->usual.json);
    describe(of, given, &driver);
    for (size_t i = 0; i < of->count; i++)
        verify_peer(&of->choices[i]);
    of->threads = workers_create(of->context);
    run_subjects(of, given, total);
    workers_destroy(of->threads);

    const size_t missed = board_finish(of->board, &rows);
    const size_t caught = print_corrupt(of);
    return caught || (given->usual.strict && missed) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static peer_choice choices[PEERS_LIMIT];
    static recording recordings[CONTEST_TRACES];
    const options given = options_read(argc, argv);
    contest of = {.choices = choices,
                  .recordings = recordings,
                  .rounds = given.usual.rounds,
                  .seconds = given.seconds,
                  .quick = given.quick};
    /* RMM's sequences have 16 GB live. Untouched memory costs the host nothing. */
    setenv("STRATA_SIM_MEMORY", "64GiB", 0);
    arguments_choose_driver(given.usual.driver);
    char no_traces[TRACES_REASON];
    name_traces(&of, &given, no_traces);
    require_rows(&of, &given, no_traces);
    int status = EXIT_SUCCESS;
    if (given.list)
        list_rows(&of, &given);
    else
        status = run(&of, &given);
    for (size_t i = 0; i < of.recording_count; i++)
        recording_free(&recordings[i]);
    return status;
}
