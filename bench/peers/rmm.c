/* RMM's two benchmarks, with their arguments, in the steady state: competitors keep what they have. first_second.c has
 * them as RMM's programs run them. */
#include "bare.h"
#include "contest.h"
#include "rmm_work.h"

#include <string.h>

static peer peers[PEERS_LIMIT];
static entry entries[PEERS_LIMIT];

/* ---- random_allocations ---- */

static const size_t ROOM = (size_t)32000 << 20;

static sequence drawn;

static size_t count_random(const contest *of)
{
    (void)of;
    return RANDOM_CASES;
}

static void name_random(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    snprintf(name, BOARD_NAME_SIZE, "random, %u allocations of up to %u MiB", (unsigned)random_cases[row].allocations,
             (unsigned)random_cases[row].max_mib);
}

static void begin_random(contest *of)
{
    sequence_open(&drawn);
    contest_give_room(of, ROOM);
    contest_open(of, peers, 1, false);
}

static void end_random(contest *of)
{
    contest_close(of, peers);
    contest_give_room(of, PEER_ROOM);
    sequence_close(&drawn);
}

/* The sequence runs twice, the first as warm-up; once for a slow competitor. */
static void run_sequence(void *state, size_t operations)
{
    entry *self = state;
    bool warming = self->operations++ % 2 == 0;
    if (warming && self->peer->choice->slow)
        return;
    for (size_t i = 0; i < operations && !self->no_memory; i++)
        self->no_memory = !sequence_run(&drawn, self->peer);
}

/* As RMM's program, competitors keep their memory for all rows while there is room: at most 16,000 MiB are live, and
 * twice as much must be free for the next competitor. */
static void drain_and_make_room(void *state)
{
    peer *with = ((entry *)state)->peer;
    size_t left, total;
    peer_drain(with);
    bare_check(bare.MemGetInfo(&left, &total), "cuMemGetInfo");
    if (left < ROOM)
        with->kind->trim(with);
}

static void check_peak(peer *self)
{
    const size_t done = self->kind->steps(self, drawn.steps, drawn.peak, drawn.slots);
    if (!verify_apart(self, drawn.steps, done, drawn.slots))
        snprintf(self->choice->corrupt, sizeof self->choice->corrupt,
                 "blocks of random_allocations that are live at the same time overlap");
    peer_free_leftovers(self, drawn.steps, done, drawn.slots, drawn.live);
    peer_drain(self);
    self->kind->trim(self);
}

static void measure_random(contest *of, size_t number, const char *name)
{
    sequence_draw(&drawn, &random_cases[number], of->quick);
    for (size_t i = 0; i < of->count; i++)
        if (peers[i].choice && !peers[i].choice->slow && !*peers[i].choice->corrupt)
            check_peak(&peers[i]);
    board_row row = contest_row(of, name);
    for (size_t i = 0; i < of->count; i++)
        entries[i] = (entry){.peer = &peers[i]};
    const bench_plan plan = {.warm = 1, .batch = 1, .batches = 1};
    contest_measure(of, peers, entries, plan, (bench_side){run_sequence, drain_and_make_room, NULL},
                    2.0 / (double)drawn.count, &row);
    for (size_t i = 0; i < of->count; i++)
        if (peers[i].choice)
            peers[i].kind->trim(&peers[i]);
    board_add_row(of->board, &row);
}

const subject subject_random = {"RMM's random_allocations, the same sequence for all, nanoseconds a pair",
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
    snprintf(name, BOARD_NAME_SIZE, "multi_stream, %s", what);
}

static void run_kernels(void *state, size_t operations)
{
    entry *self = state;
    for (size_t i = 0; i < operations; i++)
        streams_run(self->task, self->peer);
}

static void drain(void *state)
{
    peer_drain(((entry *)state)->peer);
}

static void measure_streams(contest *of, size_t number, const char *name)
{
    const stream_case *task = &stream_cases[number];
    board_row row = contest_row(of, name);
    contest_open(of, peers, STREAMS_LIMIT, true);
    for (size_t i = 0; i < of->count; i++) {
        entries[i] = (entry){.peer = &peers[i], .task = task};
        if (peers[i].choice)
            streams_prewarm(task, &peers[i]);
    }
    contest_measure(of, peers, entries, (bench_plan){.batch = of->quick ? 1 : 5, .batches = 1},
                    (bench_side){run_kernels, drain, NULL}, 1e-3, &row);
    contest_close(of, peers);
    board_add_row(of->board, &row);
}

const subject subject_multi_stream = {
    "RMM's multi_stream_allocations, kernels of a million ticks, microseconds an iteration with its synchronization",
    count_streams,
    name_streams,
    NULL,
    measure_streams,
    NULL};
