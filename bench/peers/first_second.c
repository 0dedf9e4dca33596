/* RMM's two benchmarks as RMM's programs run them, under Google benchmark with --benchmark_min_time=0.2: each trial
 * begins with a fresh competitor, alone on the device, and repeats the iteration; the mean of the trial that took long
 * enough is the result. Growth is part of it, where the steady state has none.
 *
 * That is a round here; the median of the rounds counts, as in all rows. */
#include "bare.h"
#include "clock.h"
#include "contest.h"
#include "repetition.h"
#include "rmm_work.h"

#include <time.h>

static const double least_seconds = 0.2, quick_seconds = 0.0005;

typedef struct work {
    size_t streams;
    const stream_case *kernels; /* NULL: the sequence */
    double least;               /* seconds of a trial that counts */
} work;

static sequence drawn;
static entry entries[PEERS_LIMIT];

/* ---- a trial ---- */

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool run_iteration(const work *what, peer *with)
{
    if (!what->kernels)
        return sequence_run(&drawn, with);
    streams_run(what->kernels, with);
    return true;
}

/* Runs the iterations of a trial. Rings of a log are emptied while the clocks stand still. */
static bool run_iterations(const work *what, peer *with, repetition *trial)
{
    for (size_t i = 0; i < trial->iterations; i++) {
        const double cpu = cpu_seconds();
        const uint64_t start = bench_now();
        const bool done = run_iteration(what, with);
        trial->seconds += (double)(bench_now() - start) * 1e-9;
        trial->cpu_seconds += cpu_seconds() - cpu;
        if (!done)
            return false;
        if (with->kind->collect)
            with->kind->collect(with);
    }
    return true;
}

/* Runs a trial with a fresh competitor. False: no memory. */
static bool run_trial(const work *what, peer_choice *choice, repetition *trial)
{
    peer fresh;
    const uint64_t room = choice->room;
    choice->room = PEER_ALONE;
    peer_open(&fresh, choice, what->streams, 0);
    if (what->kernels)
        streams_prewarm(what->kernels, &fresh);
    const bool done = run_iterations(what, &fresh, trial);
    peer_close(&fresh);
    choice->room = room;
    return done;
}

/* ---- rounds ---- */

/* Runs trials until one suffices. 0 operations ask for a warm-up, of which there is none. */
static void run_trials(void *state, size_t operations)
{
    entry *self = state;
    const work *what = self->task;
    if (!operations || self->no_memory)
        return;
    repetition trial = {.iterations = 1};
    for (;;) {
        if (!run_trial(what, self->peer->choice, &trial)) {
            self->no_memory = true;
            return;
        }
        if (repetition_suffices(&trial, what->least))
            break;
        trial = (repetition){.iterations = repetition_next(&trial, what->least)};
    }
    self->spent = trial.seconds * 1e9 / (double)trial.iterations;
}

static double mean_of_last_trial(void *state)
{
    return ((entry *)state)->spent;
}

/* Measures a row while nothing else is open: a competitor may take what it likes. */
static void measure_work(contest *of, const work *what, double scale, bool device, const char *name)
{
    peer stand_ins[PEERS_LIMIT] = {0};
    board_row row = contest_row(of, name);
    for (size_t i = 0; i < of->count; i++) {
        entries[i] = (entry){.peer = &stand_ins[i], .task = what};
        if (contest_takes_part(&of->choices[i], device))
            stand_ins[i].choice = &of->choices[i];
    }
    const bench_plan plan = {.batch = 1, .batches = 1, .spent = mean_of_last_trial};
    contest_measure(of, stand_ins, entries, plan, (bench_side){run_trials, NULL, NULL}, scale, &row);
    board_add_row(of->board, &row);
}

/* ---- random_allocations ---- */

static size_t count_random(const contest *of)
{
    (void)of;
    return RANDOM_CASES;
}

static void name_random(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    snprintf(name, BOARD_NAME_SIZE, "first second, %u allocations of up to %u MiB",
             (unsigned)random_cases[row].allocations, (unsigned)random_cases[row].max_mib);
}

static void begin_random(contest *of)
{
    (void)of;
    sequence_open(&drawn);
}

static void measure_random(contest *of, size_t number, const char *name)
{
    const work what = {.streams = 1, .least = of->quick ? quick_seconds : least_seconds};
    sequence_draw(&drawn, &random_cases[number], of->quick);
    measure_work(of, &what, 1e-6, false, name);
}

static void end_random(contest *of)
{
    (void)of;
    sequence_close(&drawn);
}

const subject subject_first_random = {"RMM's random_allocations as RMM's program runs it, a fresh competitor and 0.2 "
                                      "s, milliseconds for all allocations and frees",
                                      count_random,
                                      name_random,
                                      begin_random,
                                      measure_random,
                                      end_random};

/* ---- multi_stream_allocations ---- */

static size_t count_streams(const contest *of)
{
    (void)of;
    return STREAM_CASES;
}

static void name_streams(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    char what[64];
    (void)of;
    streams_name(&stream_cases[row], what, sizeof what);
    snprintf(name, BOARD_NAME_SIZE, "first second, %s", what);
}

static void measure_streams(contest *of, size_t number, const char *name)
{
    const work what = {
        .streams = STREAMS_LIMIT, .kernels = &stream_cases[number], .least = of->quick ? quick_seconds : least_seconds};
    measure_work(of, &what, 1e-3, true, name);
}

const subject subject_first_streams = {"RMM's multi_stream_allocations as RMM's program runs it, a fresh competitor "
                                       "and 0.2 s, microseconds an iteration with its synchronization",
                                       count_streams,
                                       name_streams,
                                       NULL,
                                       measure_streams,
                                       NULL};
