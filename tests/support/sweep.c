/* Sweeps: plans the runs of each case, and judges their results. */
#define _GNU_SOURCE
#include "support/sweep_board.h"
#include "support/sweep_exceptions.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PATIENCE_S = 90 };
#else
enum { PATIENCE_S = 60 }; /* a run takes a second, on a busy machine many */
#endif

enum { MOST_RUNS = 8, MOST_IN_FULL = 2000 };
enum { EXITS_IN_THREAD = 255 }; /* cmocka's exit status for an assertion that fails on another thread than the test's */

static const char *const mode_names[] = {"seeds", "faults", "edges"};

sweep_board *sweep_shared;
static bool sweep_is_full; /* of a child: the sweep's options */
bool sweep_is_child;
static int output; /* where a child's output goes */

bool test_is_swept_in_full(void)
{
    return sweep_is_full;
}

bool test_is_swept(void)
{
    return sweep_is_child;
}

typedef struct tally {
    unsigned runs, passed, skipped, refused, abandoned, noticed, unseen, untouched, bad;
} sweep_tally;

static sweep_state first_state; /* of the chosen case's first run */

bool test_is_swept_for_faults(void)
{
    return sweep_is_child && sweep_shared->mode == SWEEP_FAULTS;
}

/* Makes a process for a run, and waits for its end. True in that process. */
static bool make_child(int *status)
{
    if (ftruncate(output, 0) != 0 || lseek(output, 0, SEEK_SET) != 0)
        exit(1);
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        exit(1);
    if (child == 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        unsetenv("STRATA_TEST_SWEEP");
        sweep_is_full = getenv("STRATA_TEST_FULL") != NULL;
        unsetenv("STRATA_TEST_FULL"); /* more runs, of the same cases */
        sweep_is_child = true;
        alarm(PATIENCE_S);
        return true;
    }
    waitpid(child, status, 0);
    return false;
}

static void show_output(void)
{
    char text[4096];
    ssize_t bytes;
    lseek(output, 0, SEEK_SET);
    while ((bytes = read(output, text, sizeof text)) > 0)
        fwrite(text, 1, (size_t)bytes, stdout);
}

static void complain(sweep_tally *tally, const char *what)
{
    const sweep_outcome *outcome = &sweep_shared->outcome;
    tally->bad++;
    printf("FAILED %s, %s %llu", sweep_shared->names[sweep_shared->chosen], mode_names[sweep_shared->mode],
           (unsigned long long)(sweep_shared->mode == SWEEP_SEEDS ? sweep_shared->seed : sweep_shared->plan.nth));
    if (outcome->seen.fired)
        printf(" (%s)", outcome->seen.name);
    printf(": %s\n", what);
}

static void complain_of_objects(sweep_tally *tally)
{
    char text[200];
    const sweep_outcome *outcome = &sweep_shared->outcome;
    const test_holdings *left = &outcome->left;
    uint32_t stuck =
        outcome->seen.fired && outcome->seen.ending; /* an object whose destruction failed cannot be freed */
    uint32_t others = left->streams + left->pools + left->blocks + left->pinned + left->modules + left->mapped;
    snprintf(
        text, sizeof text,
        "left over: %u streams, %u pools, %u blocks, %u pinned, %u modules, %u mapped; %u events made and %u known; "
        "last error: ",
        left->streams, left->pools, left->blocks, left->pinned, left->modules, left->mapped, left->events,
        outcome->events_kept);
    if (others > stuck + outcome->streams_kept || left->events > outcome->events_kept + stuck) {
        complain(tally, text);
        printf("    %s\n", outcome->said);
    }
    if (left->unowned)
        complain(tally, "something was ended that was not there");
}

/* Judges a dropped edge. A case whose blocks are never touched cannot show anything. */
static void judge_edge(sweep_tally *tally)
{
    const sweep_outcome *outcome = &sweep_shared->outcome;
    const char *name = sweep_shared->names[sweep_shared->chosen];
    if (!outcome->seen.fired || !sweep_shared->touched)
        return;
    if (outcome->reports > 0 || outcome->failed) {
        tally->noticed++;
        return;
    }
    const char *reason = test_sweep_exception_reason(name);
    tally->unseen += reason != NULL;
    if (!reason) {
        complain(tally, "nobody notices that it is forgotten");
        if (getenv("STRATA_TEST_SWEEP_VERBOSE"))
            show_output();
    } else if (getenv("STRATA_TEST_SWEEP_VERBOSE"))
        printf("unseen: %s, edge %llu (%s): %s\n", name, (unsigned long long)sweep_shared->plan.nth, outcome->seen.name,
               reason);
}

static void judge_state(sweep_tally *tally)
{
    char text[200];
    const sweep_state *now = &sweep_shared->outcome.state;
    if (sweep_shared->runs++ == 0)
        first_state = *now;
    if (memcmp(now, &first_state, sizeof *now) == 0)
        return;
    snprintf(
        text, sizeof text,
        "another final state: %llu bytes in %llu blocks live, not %llu in %llu; the driver has %u blocks, %u pinned, "
        "%u modules, not %u, %u, %u",
        (unsigned long long)now->live_bytes, (unsigned long long)now->live_blocks,
        (unsigned long long)first_state.live_bytes, (unsigned long long)first_state.live_blocks, now->blocks,
        now->pinned, now->modules, first_state.blocks, first_state.pinned, first_state.modules);
    complain(tally, text);
}

static void judge(int status, sweep_tally *tally)
{
    const sweep_outcome *outcome = &sweep_shared->outcome;
    unsigned before = tally->bad;
    tally->runs++;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXITS_IN_THREAD) {
        tally->refused++;
        tally->abandoned++;
    } else if (WIFSIGNALED(status)) {
        complain(tally, WTERMSIG(status) == SIGALRM ? "it hangs" : strsignal(WTERMSIG(status)));
    } else if (!outcome->over) {
        complain(tally, "it exited in the middle");
    } else if (!outcome->passed && !outcome->failed) {
        tally->skipped++;
    } else if (sweep_shared->mode == SWEEP_OF_EDGES) {
        judge_edge(tally);
        return;
    } else {
        tally->passed += !outcome->failed;
        tally->refused += outcome->failed;
        tally->abandoned += outcome->abandoned;
        if (outcome->failed && !outcome->seen.fired && !outcome->slow)
            complain(tally, "it fails");
        if (sweep_shared->mode == SWEEP_SEEDS && outcome->passed)
            judge_state(tally);
        if (outcome->unreported && !test_sweep_recovers(sweep_shared->names[sweep_shared->chosen]))
            complain(tally, "it fails without an error being said");
        if (outcome->reports) {
            complain(tally, "the checker reports");
            printf("    %s\n", outcome->report);
        }
        if (outcome->unusable && !outcome->abandoned)
            complain(tally, "the runtime serves no block any more");
        if (!outcome->abandoned)
            complain_of_objects(tally);
    }
    if (tally->bad > before && getenv("STRATA_TEST_SWEEP_VERBOSE"))
        show_output();
}

/* Runs the chosen case once as planned; true in the child. */
static bool run_once(sweep_tally *tally)
{
    int status;
    sweep_shared->outcome = (sweep_outcome){0};
    if (make_child(&status))
        return true;
    judge(status, tally);
    return false;
}

static uint64_t most_runs(void)
{
    const char *full = getenv("STRATA_TEST_FULL"), *most = getenv("STRATA_TEST_SWEEP_MOST");
    uint64_t number = most ? strtoull(most, NULL, 10) : full && strcmp(full, "1") == 0 ? MOST_IN_FULL : MOST_RUNS;
    return number ? number : UINT64_MAX;
}

/* A hash that does not differ between builds. */
static uint64_t hash_of(const char *name, uint64_t i)
{
    uint64_t hash = UINT64_C(14695981039346656037) + i; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(1099511628211);
    return hash >> 16;
}

/* The i-th of `runs` numbers from 1 to `count`: one from each of `runs` parts of equal size. Which one depends on the
 * case's name, so that a test's cases on different stacks fail at different calls. */
static uint64_t pick(uint64_t i, uint64_t runs, uint64_t count)
{
    uint64_t begin = i * count / runs, end = (i + 1) * count / runs;
    return begin + 1 + hash_of(sweep_shared->names[sweep_shared->chosen], i) % (end - begin);
}

static uint64_t edges[SWEEP_EDGES]; /* those that the first run of the case relied on, in order */

static uint64_t gather_edges(void)
{
    uint64_t count = 0;
    for (uint64_t edge = 1; edge < SWEEP_EDGES; edge++)
        if (sweep_shared->relied[edge])
            edges[count++] = edge;
    return count;
}

/* The number of different runs after the first. */
static uint64_t count_runs(uint64_t most)
{
    switch (sweep_shared->mode) {
    case SWEEP_FAULTS:
        return sweep_shared->outcome.seen.calls;
    case SWEEP_OF_EDGES:
        return gather_edges();
    case SWEEP_SEEDS:
        break;
    }
    return most < MOST_RUNS ? most : 4 * MOST_RUNS;
}

/* Plans the n-th of them, from 1. Call numbers are valid only for the same run, so faults and edges keep the first
 * run's seed. */
static void plan_run(uint64_t n)
{
    switch (sweep_shared->mode) {
    case SWEEP_SEEDS:
        sweep_shared->seed = n;
        sweep_shared->policy = n == 1 ? STRATA_SIM_EARLY : n == 2 ? STRATA_SIM_LATE : STRATA_SIM_RANDOM;
        break;
    case SWEEP_FAULTS:
        sweep_shared->plan = (test_plan){.kind = TEST_PLAN_FAIL, .nth = n, .error = CUDA_ERROR_UNKNOWN};
        break;
    case SWEEP_OF_EDGES:
        sweep_shared->plan = (test_plan){.kind = TEST_PLAN_DROP, .nth = edges[n - 1]};
        break;
    }
}

/* Makes all runs of a case. True in a child. */
static bool sweep_case(sweep_tally *tally)
{
    sweep_shared->plan = (test_plan){0};
    sweep_shared->seed = 1;
    sweep_shared->policy = STRATA_SIM_RANDOM;
    sweep_shared->runs = 0;
    sweep_shared->touched = sweep_shared->mode == SWEEP_OF_EDGES ? TEST_TOUCH_ALL_PAST : TEST_TOUCH_NOTHING;
    if (run_once(tally))
        return true;
    /* Touching may break a case, for instance one that prepares uses and makes none of them, or counts calls. Then its
     * blocks are touched less. */
    while (sweep_shared->touched && (sweep_shared->outcome.reports || !sweep_shared->outcome.passed)) {
        sweep_shared->touched--;
        if (run_once(tally))
            return true;
    }
    bool edges_unseen = sweep_shared->mode == SWEEP_OF_EDGES && !sweep_shared->touched;
    if (edges_unseen && (sweep_shared->outcome.failed || sweep_shared->outcome.reports))
        complain(tally, "it fails, or the checker reports, before anything is forgotten");
    tally->untouched += edges_unseen;
    if (!sweep_shared->outcome.passed || edges_unseen)
        return false;
    uint64_t most = most_runs();
    uint64_t count = count_runs(most);
    uint64_t runs = count < most ? count : most;
    for (uint64_t i = 0; i < runs; i++) {
        plan_run(pick(i, runs, count));
        if (run_once(tally))
            return true;
    }
    return false;
}

static bool read_mode(const char *text)
{
    for (size_t i = 0; i < sizeof mode_names / sizeof mode_names[0]; i++) {
        if (strcmp(text, mode_names[i]) == 0) {
            sweep_shared->mode = (sweep_mode)i;
            return true;
        }
    }
    return false;
}

/* Children find the libraries that every run opens in their parent's memory: loading them took a tenth of a run. */
static void load_shared_libraries(void)
{
    const char *driver = getenv("STRATA_SIM_LIBRARY");
    if (driver)
        (void)dlopen(driver, RTLD_NOW | RTLD_LOCAL);
    void *unwinder = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    int (*walk)(void **, int) = NULL;
    if (unwinder)
        *(void **)&walk = dlsym(unwinder, "unw_backtrace");
    void *frames[1];
    if (walk)
        (void)walk(frames, 1); /* its first call fills tables */
}

void test_sweep_begin(void)
{
    const char *wanted = getenv("STRATA_TEST_SWEEP"), *only = getenv("STRATA_TEST_SWEEP_CASE");
    int status;
    sweep_tally tally = {0};
    if (!wanted || sweep_is_child)
        return;
    sweep_shared = mmap(NULL, sizeof *sweep_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    output = memfd_create("output", MFD_CLOEXEC);
    if (sweep_shared == MAP_FAILED || output < 0 || !read_mode(wanted)) {
        fprintf(stderr, "STRATA_TEST_SWEEP=%s: seeds, faults or edges\n", wanted);
        exit(2);
    }
    load_shared_libraries();
    sweep_shared->chosen = -1;
    if (make_child(&status))
        return;
    if (status != 0 || !sweep_shared->cases) {
        show_output();
        exit(WIFEXITED(status) && WEXITSTATUS(status) == 77 ? 77 : 1);
    }
    bool any = false;
    for (sweep_shared->chosen = 0; (size_t)sweep_shared->chosen < sweep_shared->cases; sweep_shared->chosen++) {
        if (only && !strstr(sweep_shared->names[sweep_shared->chosen], only))
            continue;
        any = true;
        if (sweep_case(&tally))
            return;
        fflush(stdout);
    }
    if (!any) {
        fprintf(stderr, "STRATA_TEST_SWEEP_CASE=%s: no case has that in its name\n", only);
        exit(2);
    }
    printf("%zu cases, %u runs: ", sweep_shared->cases, tally.runs);
    if (sweep_shared->mode != SWEEP_OF_EDGES)
        printf("%u passed, %u refused (%u with something abandoned), %u skipped", tally.passed, tally.refused,
               tally.abandoned, tally.skipped);
    else
        printf("%u noticed, %u unseen as expected, %u cases untouched", tally.noticed, tally.unseen, tally.untouched);
    printf(", %u bad\n", tally.bad);
    exit(tally.bad ? 1 : 0);
}
