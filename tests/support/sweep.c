/* The sweeps' two sides: the process that plans the runs and judges them, and the child that makes one. */
#define _GNU_SOURCE
#include "support/sweep.h"

#include "core/stack.h"
#include "core/timeline.h"
#include "runtime/runtime.h"
#include "support/door.h"
#include "support/faults.h"
#include "support/touch.h"
#include "support/unseen.h"

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PATIENCE_S = 90 };
#else
enum { PATIENCE_S = 10 };
#endif

enum {
    CASES = 512,
    EDGES = 1 << 16,
    NAME = 192,
    MOST_RUNS = 12,
    MOST_IN_FULL = 2000,
    SAID = 512,
    ROOM_FOR_LOCALS = 256 << 10
};
enum { EXITS_IN_THREAD = 255 }; /* what cmocka does when an assertion fails in another thread than the test's */

typedef enum mode { MODE_SEEDS, MODE_FAULTS, MODE_EDGES } sweep_mode;
static const char *const mode_names[] = {"seeds", "faults", "edges"};

/* What a case leaves must not depend on when its work ran. Streams and events may: the library makes some when it has
 * to wait. */
typedef struct final_state {
    uint64_t live_bytes, live_blocks; /* of all runtimes */
    uint32_t blocks, pinned, modules; /* of the driver */
} final_state;

/* What one run came to. The child writes it as it goes, so that it says how far a child came that was killed. */
typedef struct outcome {
    bool began, passed, failed, over;
    bool abandoned; /* the case left something that only it could have ended: what is left means nothing */
    bool unusable;
    bool unsaid; /* the case failed in the thread that met the fault, and no error was said since */
    char said[SAID];
    test_door_seen seen;
    test_holdings left;
    final_state state;
    uint32_t streams_kept; /* whose end the case prevented */
    uint32_t events_kept;  /* events that the library has for later */
    uint64_t reports;
    char report[SAID];
} run_outcome;

/* Shared by the parent and its children, one of which runs at a time. */
typedef struct board {
    size_t cases;
    char names[CASES][NAME];
    long chosen; /* the case to run; -1: note the names */
    sweep_mode mode;
    test_touch touched;
    test_plan plan;
    strata_sim_policy policy;
    uint64_t seed;
    uint64_t runs;      /* of the chosen case that passed */
    bool relied[EDGES]; /* by the first run of the case */
    run_outcome outcome;
} board;

static board *shared;
static bool is_child;
static int output; /* where a child's words go */

bool test_is_swept(void)
{
    return is_child;
}

/* ---- in a child ---- */

enum { RUNTIMES = 64 };
static strata_runtime *runtimes[RUNTIMES]; /* that live; of the testing thread */

strata_status __real_strata_runtime_create(const strata_runtime_config *config, strata_runtime **out);
strata_status __wrap_strata_runtime_create(const strata_runtime_config *config, strata_runtime **out);
strata_status __real_strata_runtime_destroy(strata_runtime *runtime);
strata_status __wrap_strata_runtime_destroy(strata_runtime *runtime);

/* Layers and stacks that a case made by itself: only it can end them. */
static bool made_by_hand;

#define BY_HAND(name, parameters, arguments) \
    strata_status __real_##name parameters;  \
    strata_status __wrap_##name parameters;  \
    strata_status __wrap_##name parameters   \
    {                                        \
        made_by_hand = true;                 \
        return __real_##name arguments;      \
    }
BY_HAND(strata_stack_create, (const char *text, int ordinal, strata_stack **out), (text, ordinal, out))
BY_HAND(strata_async_create, (int ordinal, const strata_async_options *options, strata_resource **out),
        (ordinal, options, out))
BY_HAND(strata_direct_create, (int ordinal, const strata_direct_options *options, strata_resource **out),
        (ordinal, options, out))
#undef BY_HAND

static void note_runtime(strata_runtime *old, strata_runtime *new)
{
    for (size_t i = 0; i < RUNTIMES; i++) {
        if (runtimes[i] == old) {
            runtimes[i] = new;
            return;
        }
    }
}

strata_status __wrap_strata_runtime_create(const strata_runtime_config *config, strata_runtime **out)
{
    strata_status status = __real_strata_runtime_create(config, out);
    if (is_child && status == STRATA_SUCCESS)
        note_runtime(NULL, *out);
    return status;
}

strata_status __wrap_strata_runtime_destroy(strata_runtime *runtime)
{
    strata_status status = __real_strata_runtime_destroy(runtime);
    if (is_child && status == STRATA_SUCCESS)
        note_runtime(runtime, NULL);
    return status;
}

/* A call that may fail once, if the fault met it. */
#define TWICE(call) ((call) == STRATA_SUCCESS || (call) == STRATA_SUCCESS)

static bool serves_a_block(strata_runtime *runtime, CUstream stream)
{
    enum { BYTES = 4096 };
    strata_block block;
    if (!TWICE(strata_runtime_allocate(runtime, BYTES, stream, &block)))
        return false;
    bool good = TWICE(strata_runtime_prepare_block_use(runtime, &block, stream, STRATA_ACCESS_WRITE)) &&
                test_cu()->MemsetD8Async(block.address, 1, BYTES, stream) == CUDA_SUCCESS &&
                TWICE(strata_runtime_finish_block_use(runtime, &block, stream, STRATA_ACCESS_WRITE));
    return TWICE(strata_runtime_deallocate_on(runtime, &block, stream)) && good;
}

/* Frees what a case that failed half-way left alive, uses under way included. */
static void free_blocks(strata_runtime *runtime)
{
    strata_table *table = runtime->stack->table;
    for (uint32_t slot = 1; slot < table->fresh; slot++) {
        strata_block block;
        if (!strata_entry_describe(table, slot, &block))
            continue;
        while (strata_runtime_finish_block_use(runtime, &block, CU_STREAM_LEGACY, STRATA_ACCESS_NONE) == STRATA_SUCCESS)
            ;
        (void)TWICE(strata_runtime_deallocate_on(runtime, &block, CU_STREAM_LEGACY));
    }
}

static uint32_t count_events_kept(void)
{
    uint32_t events = 0;
    for (int ordinal = 0; ordinal < STRATA_DEVICE_LIMIT; ordinal++) {
        strata_device *device = strata_device_if_open(ordinal);
        events += device ? (uint32_t)device->event_count : 0;
    }
    for (uint32_t number = 1; number < STRATA_TIMELINE_LIMIT; number++) {
        strata_timeline *timeline = strata_timeline_of(strata_point_make((uint16_t)number, 1));
        for (size_t i = 0; timeline && i < STRATA_TIMELINE_EVENTS; i++)
            events += timeline->events[i] != NULL;
        if (!timeline)
            break;
    }
    return events;
}

static int count_threads(void)
{
    char line[128];
    int threads = 1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "Threads: %d", &threads);
    if (file)
        fclose(file);
    return threads;
}

static void say_report(char text[static SAID])
{
    strata_sim_report report = {.size = sizeof report};
    text[0] = '\0';
    if (test_sim_control()->get_report(0, &report) == CUDA_SUCCESS)
        snprintf(text, SAID, "%s", report.text);
}

/* Gives back what a case that failed took of the runtime. */
static void release_streams(strata_runtime *runtime)
{
    for (size_t i = 0; i < runtime->stream_count; i++)
        if (runtime->streams[i].pooled && runtime->streams[i].taken)
            (void)TWICE(strata_runtime_stream_release(runtime, runtime->streams[i].stream));
}

static void clear_away(test_fixture *fixture, run_outcome *outcome)
{
    if (test_before_clearing)
        test_before_clearing();
    test_fault_end();
    test_stall_end_all();
    if (test_cu()->CtxSynchronize() != CUDA_SUCCESS) {
        outcome->abandoned = true;
        return;
    }
    outcome->unusable = fixture->runtime && !serves_a_block(fixture->runtime, CU_STREAM_LEGACY);
    /* This covers with an event what was submitted to the streams when none could be recorded. */
    for (size_t i = 0; i < fixture->stream_count && fixture->runtime; i++)
        outcome->unusable |= !serves_a_block(fixture->runtime, fixture->streams[i].handle);
    for (size_t i = 0; i < RUNTIMES; i++)
        if (runtimes[i]) {
            strata_stack_captures_ended(runtimes[i]->stack, STRATA_STREAM_GONE);
            free_blocks(runtimes[i]);
        }
    if (!test_fixture_close_streams(fixture))
        test_fixture_close_streams(fixture);
    for (size_t i = 0; i < RUNTIMES; i++)
        if (runtimes[i])
            release_streams(runtimes[i]);
    test_cu()->CtxSynchronize();
    for (size_t i = 0; i < RUNTIMES; i++)
        if (runtimes[i] && !TWICE(strata_runtime_destroy(runtimes[i])))
            snprintf(outcome->said, sizeof outcome->said, "%s", strata_last_error()->message);
}

static final_state look_at_state(const test_holdings *left)
{
    final_state state = {.blocks = left->blocks, .pinned = left->pinned, .modules = left->modules};
    for (size_t i = 0; i < RUNTIMES; i++) {
        strata_usage usage;
        if (!runtimes[i] || strata_runtime_usage(runtimes[i], &usage) != STRATA_SUCCESS)
            continue;
        state.live_bytes += usage.live_bytes;
        state.live_blocks += usage.live_blocks;
    }
    return state;
}

static const test_sweep_case *running;
static int threads_before;

static void run_case(void **state)
{
    (void)state;
    if (!running->set_up(running->fixture))
        fail_msg("no runtime");
    running->run(running->fixture);
    shared->outcome.passed = true;
}

/* Whether a case failed that the library gave no reason to. A case that plans faults of its own counts them, and one
 * that stalls its device does not expect that the library waits there: both may fail over a fault that was made good.
 */
static bool says_nothing(const test_door_seen *seen)
{
    return seen->fired && seen->here && !seen->said && !test_fault_was_begun() && !test_stall_timed_out() &&
           memcmp(strata_last_error(), &seen->before, sizeof seen->before) == 0;
}

_Noreturn static void run_and_exit(const test_sweep_case *one)
{
    run_outcome *outcome = &shared->outcome;
    struct CMUnitTest test = {.name = one->name, .test_func = run_case};
    const test_sim *sim = test_sim_control();
    running = one;
    outcome->began = true;
    threads_before = count_threads();
    if (sim->set_policy(shared->policy) != CUDA_SUCCESS || sim->set_seed(shared->seed) != CUDA_SUCCESS)
        _exit(1);
    if (shared->touched)
        test_touch_begin(shared->touched);
    if (shared->mode == MODE_EDGES && !shared->plan.nth) {
        memset(shared->relied, 0, sizeof shared->relied);
        test_door_rely(shared->relied, EDGES, strstr(one->name, "[direct") != NULL);
    }
    if (shared->mode == MODE_EDGES && sim->set_check(STRATA_SIM_CHECK_FREES) != CUDA_SUCCESS)
        _exit(1);
    test_door_watch(&shared->plan);
    strata_entry_table door = strata_cu;
    outcome->failed = _cmocka_run_group_tests(one->name, &test, 1, NULL, NULL) != 0;
    strata_cu = door; /* whatever the case had put in */
    test_door_look(&outcome->seen, &outcome->left);
    if (shared->mode == MODE_SEEDS)
        outcome->state = look_at_state(&outcome->left);
    snprintf(outcome->said, sizeof outcome->said, "%s", strata_last_error()->message);
    outcome->unsaid = outcome->failed && says_nothing(&outcome->seen);
    /* A host function has a thread of the driver's, which comes with the first of them. */
    outcome->abandoned = outcome->failed && (made_by_hand || count_threads() > threads_before + 1);
    if (!outcome->abandoned) {
        /* What still points to locals of a case that failed finds them: nothing runs where they were. */
        volatile char *locals = alloca(ROOM_FOR_LOCALS);
        locals[0] = 0;
        clear_away(one->fixture, outcome);
    }
    outcome->streams_kept = test_fault_streams_kept();
    test_door_disarm();
    test_door_look(&outcome->seen, &outcome->left);
    outcome->events_kept = count_events_kept();
    sim->get_report_count(&outcome->reports);
    say_report(outcome->report);
    outcome->over = true;
    fflush(NULL);
    _exit(0);
}

void test_sweep_case_here(const test_sweep_case *one)
{
    static long number;
    if (shared->chosen < 0 && shared->cases < CASES)
        snprintf(shared->names[shared->cases++], NAME, "%s", one->name);
    else if (shared->chosen == number)
        run_and_exit(one);
    number++;
}

/* ---- the parent ---- */

typedef struct tally {
    unsigned runs, passed, skipped, refused, abandoned, noticed, unseen, untouched, bad;
} sweep_tally;

static final_state first_state; /* of the chosen case's first run */

/* Whether this process is the child. */
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
        is_child = true;
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
    const run_outcome *outcome = &shared->outcome;
    tally->bad++;
    printf("FAILED %s, %s %llu", shared->names[shared->chosen], mode_names[shared->mode],
           (unsigned long long)(shared->mode == MODE_SEEDS ? shared->seed : shared->plan.nth));
    if (outcome->seen.fired)
        printf(" (%s)", outcome->seen.name);
    printf(": %s\n", what);
}

static void complain_of_things(sweep_tally *tally)
{
    char text[200];
    const run_outcome *outcome = &shared->outcome;
    const test_holdings *left = &outcome->left;
    uint32_t stuck = outcome->seen.fired && outcome->seen.ending; /* nobody could have ended that one */
    uint32_t others = left->streams + left->pools + left->blocks + left->pinned + left->modules;
    snprintf(text, sizeof text,
             "left over: %u streams, %u pools, %u blocks, %u pinned, %u modules; %u events made and %u known; last "
             "error: ",
             left->streams, left->pools, left->blocks, left->pinned, left->modules, left->events, outcome->events_kept);
    if (others > stuck + outcome->streams_kept || left->events > outcome->events_kept + stuck) {
        complain(tally, text);
        printf("    %s\n", outcome->said);
    }
    if (left->strange)
        complain(tally, "something was ended that was not there");
}

/* In a case whose blocks nothing touches there is nothing to see. */
static void judge_edge(sweep_tally *tally)
{
    const run_outcome *outcome = &shared->outcome;
    const char *name = shared->names[shared->chosen];
    if (!outcome->seen.fired || !shared->touched)
        return;
    if (outcome->reports > 0 || outcome->failed) {
        tally->noticed++;
        return;
    }
    const char *reason = test_unseen_reason(name);
    tally->unseen++;
    if (!reason)
        complain(tally, "nobody notices that it is forgotten");
    else if (getenv("STRATA_TEST_SWEEP_VERBOSE"))
        printf("unseen: %s, edge %llu (%s): %s\n", name, (unsigned long long)shared->plan.nth, outcome->seen.name,
               reason);
}

static void judge_state(sweep_tally *tally)
{
    char text[200];
    const final_state *now = &shared->outcome.state;
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
    const run_outcome *outcome = &shared->outcome;
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
    } else if (shared->mode == MODE_EDGES) {
        judge_edge(tally);
        return;
    } else {
        tally->passed += !outcome->failed;
        tally->refused += outcome->failed;
        tally->abandoned += outcome->abandoned;
        if (outcome->failed && !outcome->seen.fired)
            complain(tally, "it fails");
        if (shared->mode == MODE_SEEDS && outcome->passed && shared->runs++ > 0)
            judge_state(tally);
        else
            first_state = outcome->state;
        if (outcome->unsaid)
            complain(tally, "it fails without an error being said");
        if (outcome->reports) {
            complain(tally, "the checker reports");
            printf("    %s\n", outcome->report);
        }
        if (outcome->unusable && !outcome->abandoned)
            complain(tally, "the runtime serves no block any more");
        if (!outcome->abandoned)
            complain_of_things(tally);
    }
    if (tally->bad > before && getenv("STRATA_TEST_SWEEP_VERBOSE"))
        show_output();
}

/* Runs the chosen case once as planned; true in the child. */
static bool run_once(sweep_tally *tally)
{
    int status;
    shared->outcome = (run_outcome){0};
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

/* The i-th of `runs` numbers from 1 to `count`: half of them from the beginning, the others evenly from the rest. */
static uint64_t pick(uint64_t i, uint64_t runs, uint64_t count)
{
    uint64_t head = runs / 2;
    if (runs == count || i < head)
        return i + 1;
    return head + 1 + (i - head) * (count - head - 1) / (runs - head > 1 ? runs - head - 1 : 1);
}

static uint64_t edges[EDGES]; /* those that the first run of the case relied on, in their order */

static uint64_t gather_edges(void)
{
    uint64_t count = 0;
    for (uint64_t edge = 1; edge < EDGES; edge++)
        if (shared->relied[edge])
            edges[count++] = edge;
    return count;
}

/* How many different runs there are, after the first. */
static uint64_t count_runs(uint64_t most)
{
    switch (shared->mode) {
    case MODE_FAULTS:
        return shared->outcome.seen.calls;
    case MODE_EDGES:
        return gather_edges();
    case MODE_SEEDS:
        break;
    }
    return most < MOST_RUNS ? most : 4 * MOST_RUNS;
}

/* The n-th of them, from 1. A call is the same one only in the same run: faults and edges keep the first one's seed. */
static void plan_run(uint64_t n)
{
    switch (shared->mode) {
    case MODE_SEEDS:
        shared->seed = n;
        shared->policy = n == 1 ? STRATA_SIM_EARLY : n == 2 ? STRATA_SIM_LATE : STRATA_SIM_RANDOM;
        break;
    case MODE_FAULTS:
        shared->plan = (test_plan){.kind = TEST_PLAN_FAIL, .nth = n, .error = CUDA_ERROR_UNKNOWN};
        break;
    case MODE_EDGES:
        shared->plan = (test_plan){.kind = TEST_PLAN_DROP, .nth = edges[n - 1]};
        break;
    }
}

/* True in a child. */
static bool sweep_case(sweep_tally *tally)
{
    shared->plan = (test_plan){0};
    shared->seed = 1;
    shared->policy = STRATA_SIM_RANDOM;
    shared->runs = 0;
    shared->touched = shared->mode == MODE_EDGES ? TEST_TOUCH_ALL : TEST_TOUCH_NOTHING;
    if (run_once(tally))
        return true;
    /* A case that prepares uses and makes none of them, say, or counts calls: its blocks may not be touched. */
    while (shared->touched && (shared->outcome.reports || !shared->outcome.passed)) {
        shared->touched--;
        if (run_once(tally))
            return true;
    }
    tally->untouched += shared->mode == MODE_EDGES && !shared->touched;
    if (!shared->outcome.passed || (shared->mode == MODE_EDGES && shared->outcome.reports))
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
            shared->mode = (sweep_mode)i;
            return true;
        }
    }
    return false;
}

void test_sweep_begin(void)
{
    const char *wanted = getenv("STRATA_TEST_SWEEP"), *only = getenv("STRATA_TEST_SWEEP_CASE");
    int status;
    sweep_tally tally = {0};
    if (!wanted || is_child)
        return;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    output = memfd_create("output", MFD_CLOEXEC);
    if (shared == MAP_FAILED || output < 0 || !read_mode(wanted)) {
        fprintf(stderr, "STRATA_TEST_SWEEP=%s: seeds, faults or edges\n", wanted);
        exit(2);
    }
    shared->chosen = -1;
    if (make_child(&status))
        return;
    if (status != 0 || !shared->cases) {
        show_output();
        exit(WIFEXITED(status) && WEXITSTATUS(status) == 77 ? 77 : 1);
    }
    for (shared->chosen = 0; (size_t)shared->chosen < shared->cases; shared->chosen++) {
        if (only && !strstr(shared->names[shared->chosen], only))
            continue;
        if (sweep_case(&tally))
            return;
        fflush(stdout);
    }
    printf("%zu cases, %u runs: %u passed, %u refused (%u with something abandoned), %u skipped", shared->cases,
           tally.runs, tally.passed, tally.refused, tally.abandoned, tally.skipped);
    if (shared->mode == MODE_EDGES)
        printf(", %u noticed, %u unseen as expected, %u cases untouched", tally.noticed, tally.unseen - tally.bad,
               tally.untouched);
    printf(", %u bad\n", tally.bad);
    exit(tally.bad ? 1 : 0);
}
