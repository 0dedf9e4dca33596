/* strata_peers: Strata's stacks beside what else there is, one program, one run, the same work for all. It is a program
 * of its own beside strata_bench: that one has two sides, the bare driver and Strata, and says what Strata adds to a
 * call; this one has as many columns as there are competitors, some of them named on the command line, and replays
 * traces. Both measure the shared library as it is installed. */
#include "bare.h"
#include "contest.h"
#include "delay.h"
#include "machine.h"
#include "scene.h"

#include "tools/progress.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] =
    "usage: strata_peers [--stack TEXT]... [--peer LIBRARY]... [--traces FOLDER] [--filter TEXT] [--rounds N]\n"
    "                    [--seconds S] [--json] [--strict] [--quick] [--list] [--driver auto|cuda|sim|PATH]\n"
    "\n"
    "Measures stacks of Strata's beside the driver's pool, other allocators and, as the floor, host memory: all do "
    "the\n"
    "same work, take turns round by round, and the median of the rounds counts.\n"
    "\n"
    "  --stack TEXT     a stack that competes; default: async, direct, null and, where there is a pool, pool and the\n"
    "                   stack for production\n"
    "  --peer LIBRARY   a competitor from a library (bench/peers/peer.h); bench/peers/build-torch makes PyTorch's\n"
    "  --traces FOLDER  where traces are, *.csv and *.csv.gz; default: STRATA_TRACES, else examples/traces\n"
    "  --filter TEXT    only rows whose name contains TEXT\n"
    "  --rounds N       1 to 1001 rounds, from 15 on for figures that count; default: 21\n"
    "  --seconds S      what the rounds of one competitor may take for a row; a slow one has fewer; default: 2\n"
    "  --json           one JSON object instead of the table\n"
    "  --strict         exit status 1 if a target is missed\n"
    "  --quick          one round of sequences that are cut short: shows that everything works, measures nothing\n"
    "  --list           the names of the rows, and nothing else\n"
    "  --driver NAME    auto, cuda, sim, or a library's path; without it STRATA_DRIVER, else auto\n"
    "  --help           this text\n"
    "\n"
    "Exit status: 0; 1 if a competitor hands out memory that is not free, or a target is missed with --strict; 2 for "
    "bad\n"
    "usage or input.\n";

static const subject *const subjects[] = {&subject_pairs,       &subject_unknown,    &subject_live,
                                          &subject_own_streams, &subject_one_stream, &subject_hand_over,
                                          &subject_behind,      &subject_random,     &subject_multi_stream,
                                          &subject_replay,      &subject_paced};

enum { SUBJECTS = sizeof subjects / sizeof subjects[0], NAMED_LIMIT = PEERS_LIMIT };

typedef struct options {
    const char *stacks[NAMED_LIMIT];
    const char *libraries[NAMED_LIMIT];
    size_t stack_count, library_count;
    const char *traces, *filter, *driver;
    size_t rounds;
    double seconds;
    bool json, strict, quick, list;
} options;

static _Noreturn void refuse(const char *why, const char *what)
{
    fprintf(stderr, "strata_peers: %s%s%s\nstrata_peers --help says what there is\n", why, what ? ": " : "",
            what ? what : "");
    exit(2);
}

static size_t parse_rounds(const char *text)
{
    char *end;
    errno = 0;
    unsigned long rounds = strtoul(text, &end, 10);
    if (errno || end == text || *end || rounds < 1 || rounds > BENCH_ROUNDS_LIMIT)
        refuse("--rounds takes a number from 1 to 1001", text);
    return rounds;
}

static double parse_seconds(const char *text)
{
    char *end;
    errno = 0;
    double seconds = strtod(text, &end);
    if (errno || end == text || *end || !(seconds > 0) || seconds > 3600)
        refuse("--seconds takes a number above 0, up to 3600", text);
    return seconds;
}

static void add_named(const char *names[], size_t *count, const char *name)
{
    if (*count == NAMED_LIMIT)
        refuse("that is one competitor too many", name);
    names[(*count)++] = name;
}

static options parse(int argc, char **argv)
{
    enum { STACK = 256, PEER, TRACES, FILTER, ROUNDS, SECONDS, JSON, STRICT, QUICK, LIST, DRIVER, HELP };
    static const struct option known[] = {
        {"stack", required_argument, NULL, STACK},
        {"peer", required_argument, NULL, PEER},
        {"traces", required_argument, NULL, TRACES},
        {"filter", required_argument, NULL, FILTER},
        {"rounds", required_argument, NULL, ROUNDS},
        {"seconds", required_argument, NULL, SECONDS},
        {"json", no_argument, NULL, JSON},
        {"strict", no_argument, NULL, STRICT},
        {"quick", no_argument, NULL, QUICK},
        {"list", no_argument, NULL, LIST},
        {"driver", required_argument, NULL, DRIVER},
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    options given = {.rounds = 21, .seconds = 2};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case STACK:
            add_named(given.stacks, &given.stack_count, optarg);
            break;
        case PEER:
            add_named(given.libraries, &given.library_count, optarg);
            break;
        case TRACES:
            given.traces = optarg;
            break;
        case FILTER:
            given.filter = optarg;
            break;
        case ROUNDS:
            given.rounds = parse_rounds(optarg);
            break;
        case SECONDS:
            given.seconds = parse_seconds(optarg);
            break;
        case JSON:
            given.json = true;
            break;
        case STRICT:
            given.strict = true;
            break;
        case QUICK:
            given.quick = true;
            break;
        case LIST:
            given.list = true;
            break;
        case DRIVER:
            given.driver = optarg;
            break;
        case HELP:
            exit(fputs(usage, stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
        default:
            refuse("bad usage", NULL);
        }
    }
    if (optind < argc)
        refuse("an argument too many", argv[optind]);
    if (given.quick) {
        given.rounds = 1;
        given.seconds = 0.01;
    }
    return given;
}

/* ---- who competes ---- */

static const char production_stack[] = "budget, logging(format=null), statistics, pool";

typedef enum probed { PROBED_GOOD, PROBED_SYNTAX, PROBED_BAD } probed;

/* Whether a stack can be made of this text. In a child: the driver is opened by it, and driver calls are counted in a
 * process that has not opened it yet. */
static probed probe_stack(const char *text, bool say)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        refuse("fork", strerror(errno));
    if (child == 0) {
        strata_stack *made;
        strata_status answer = strata_stack_create(text, 0, &made);
        if (answer == STRATA_SUCCESS)
            answer = strata_stack_destroy(made);
        if (answer != STRATA_SUCCESS && say)
            fprintf(stderr, "strata_peers: --stack \"%s\": %s\n", text, strata_last_error()->message);
        exit(answer == STRATA_SUCCESS ? PROBED_GOOD : answer == STRATA_ERROR_SYNTAX ? PROBED_SYNTAX : PROBED_BAD);
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            refuse("waitpid", strerror(errno));
    return WIFEXITED(status) && WEXITSTATUS(status) <= PROBED_BAD ? (probed)WEXITSTATUS(status) : PROBED_BAD;
}

static peer_choice *add_choice(contest *of, const peer_kind *kind, const char *label, const char *about)
{
    if (of->count == PEERS_LIMIT)
        refuse("that is one competitor too many", label);
    peer_choice *made = &of->choices[of->count++];
    *made = (peer_choice){.kind = kind};
    snprintf(made->label, sizeof made->label, "%s", label);
    snprintf(made->text, sizeof made->text, "%s", about);
    snprintf(made->about, sizeof made->about, "%s", about);
    return made;
}

static bool is_taken(const contest *of, const char *label)
{
    for (size_t i = 0; i < of->count; i++)
        if (strcmp(of->choices[i].label, label) == 0)
            return true;
    return false;
}

static void add_stack(contest *of, const char *text)
{
    char label[PEER_LABEL_SIZE], numbered[PEER_LABEL_SIZE];
    if (strlen(text) >= PEER_TEXT_SIZE)
        refuse("--stack is too long", text);
    peer_label_stack(label, text);
    snprintf(numbered, sizeof numbered, "%s", label);
    for (unsigned number = 2; is_taken(of, numbered); number++)
        snprintf(numbered, sizeof numbered, "%.8s/%u", label, number % 100);
    peer_choice *made = add_choice(of, &peer_stack, numbered, text);
    snprintf(made->about, sizeof made->about, "Strata: %.400s", text);
    made->pool = strcmp(text, "pool") == 0;
    made->production = strcmp(text, production_stack) == 0;
}

static void choose_stacks(contest *of, const options *given)
{
    static const char *const usual[] = {"async", "direct", "null"};
    for (size_t i = 0; i < given->stack_count; i++) {
        if (probe_stack(given->stacks[i], true) != PROBED_GOOD)
            exit(2);
        add_stack(of, given->stacks[i]);
    }
    if (given->stack_count)
        return;
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        add_stack(of, usual[i]);
    if (probe_stack("pool", false) == PROBED_SYNTAX)
        return; /* there is no layer of that name */
    add_stack(of, "pool");
    add_stack(of, production_stack);
}

static void choose_libraries(contest *of, const options *given)
{
    for (size_t i = 0; i < given->library_count; i++) {
        char why[1024];
        peer_choice made;
        if (!peer_load(&made, given->libraries[i], why, sizeof why))
            refuse("--peer", why);
        if (is_taken(of, made.label))
            refuse("there is a competitor of that name already", made.label);
        *add_choice(of, made.kind, made.label, made.about) = made;
    }
}

static bool has_pool(const contest *of)
{
    for (size_t i = 0; i < of->count; i++)
        if (of->choices[i].pool)
            return true;
    return false;
}

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

static void name_traces(contest *of, const options *given)
{
    const char *environment = getenv("STRATA_TRACES");
    const char *folder = given->traces ? given->traces : environment && *environment ? environment : "examples/traces";
    struct dirent **found;
    int count = scandir(folder, &found, is_trace, alphasort);
    if (count < 0)
        refuse(folder, strerror(errno));
    if (count == 0)
        refuse("there is no trace (*.csv, *.csv.gz) in", folder);
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name);
        if (of->recording_count == CONTEST_TRACES)
            refuse("that is one trace too many", path);
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
    return !given->filter || strstr(name, given->filter);
}

static size_t count_wanted(const contest *of, const options *given, const subject *what)
{
    char name[BOARD_NAME_SIZE];
    size_t wanted = 0;
    for (size_t row = 0; row < what->count(of); row++)
        wanted += is_wanted(of, given, what, row, name);
    return wanted;
}

/* Whether a row of this trace is asked for: each trace has as many rows as the others, and they stand together. */
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
            refuse("a trace", why);
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

/* Takes the bar off the terminal, where it may stand in the way of a row. */
static void make_way(void *data)
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
    board_before_print(of->board, make_way, &bar);
    for (size_t i = 0; i < SUBJECTS; i++)
        run_subject(of, given, subjects[i], &bar, &done, total);
    board_before_print(of->board, NULL, NULL);
    progress_close(&bar);
}

/* ---- the run ---- */

/* Says of each competitor that was caught what it was caught at. */
static size_t tell_corrupt(const contest *of)
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
    machine_describe(board_add_fact, of->board, driver, &device, given->rounds);
    if (given->quick)
        board_judge_nothing(of->board);
    if (given->quick)
        board_add_fact(of->board, "quick", "sequences are cut short: no figure counts");
    board_set_peers(of->board, of->choices, of->count);
    if (!has_pool(of))
        board_remark(of->board, "No competitor is the stack `pool`, so that no target is measured.");
}

static void open_device(contest *of)
{
    CUdevice device;
    bare_check(bare.DeviceGet(&device, 0), "cuDeviceGet");
    bare_check(bare.DevicePrimaryCtxRetain(&of->context, device), "cuDevicePrimaryCtxRetain");
    bare_check(bare.CtxSetCurrent(of->context), "cuCtxSetCurrent");
}

/* Counts what is counted in another process, if a row of it is asked for. */
static void count_calls(contest *of, const options *given)
{
    const bool unknown_pairs = count_wanted(of, given, &subject_unknown) > 0;
    const bool replays = count_wanted(of, given, &subject_replay) > 0;
    if (unknown_pairs || replays)
        calls_count(of, unknown_pairs, replays);
}

static int run(contest *of, const options *given)
{
    size_t total = 0, rows;
    for (size_t i = 0; i < SUBJECTS; i++)
        total += count_wanted(of, given, subjects[i]);
    if (!total)
        refuse("no row has a name that contains", given->filter);
    read_traces(of, given);
    choose_stacks(of, given);
    count_calls(of, given);

    strata_driver_info driver;
    scene_check(strata_driver_get_info(&driver), "strata_driver_get_info");
    bare_open(driver.library);
    of->simulated = driver.simulated;
    open_device(of);
    delay_load(driver.library, driver.simulated);
    choose_libraries(of, given);
    add_choice(of, &peer_driver, "driver", "the driver's pool, called barely: cuMemAllocFromPoolAsync, cuMemFreeAsync")
        ->device = true;
    add_choice(of, &peer_floor, peer_floor_label(), peer_floor_about());
    of->board = board_begin(stdout, given->json);
    describe(of, given, &driver);
    for (size_t i = 0; i < of->count; i++)
        verify_peer(&of->choices[i]);
    of->threads = crowd_begin(of->context);
    run_subjects(of, given, total);
    crowd_end(of->threads);

    const size_t missed = board_finish(of->board, &rows);
    const size_t caught = tell_corrupt(of);
    return caught || (given->strict && missed) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static peer_choice choices[PEERS_LIMIT];
    static recording recordings[CONTEST_TRACES];
    options given = parse(argc, argv);
    contest of = {.choices = choices,
                  .recordings = recordings,
                  .rounds = given.rounds,
                  .seconds = given.seconds,
                  .quick = given.quick};
    /* RMM's sequences have 16 GB live. What is never touched costs the host nothing. */
    setenv("STRATA_SIM_MEMORY", "64GiB", 0);
    if (given.driver && setenv("STRATA_DRIVER", given.driver, 1) != 0) /* which overrides what a program chooses */
        scene_check(STRATA_ERROR_OUT_OF_HOST_MEMORY, "setenv");
    scene_check(strata_driver_choose("auto"), "strata_driver_choose");
    name_traces(&of, &given);
    int status = EXIT_SUCCESS;
    if (given.list)
        list_rows(&of, &given);
    else
        status = run(&of, &given);
    for (size_t i = 0; i < of.recording_count; i++)
        recording_free(&recordings[i]);
    return status;
}
