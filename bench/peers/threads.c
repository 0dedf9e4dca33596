/* Pairs on own streams, of one size and of mixed ones, pairs on one stream, and one thread that frees what another
 * allocates. Threads start together, awake, and run until the first has done its share. The figure is that time divided
 * by all pairs, so perfect scaling divides it by the threads. Threads that run nops show what the machine allows. */
#include "clock.h"
#include "contest.h"
#include "cores.h"

#include <unistd.h>

enum {
    PAIR_BYTES = 4096,
    COUNTS = 5,
    STEP = 50,          /* pairs between checks of `over` */
    SHARE_NS = 2000000, /* time of a share on one thread, */
    MOST_SHARES = 400,  /* but at most so many batches */
    PAIR_NOPS = 250,    /* nops for a pair, a divisor of CORES_NOPS */
    SCALES_TARGET = 12,
    ONE_STREAM_TARGET_NS = 100,
    HAND_OVER_TARGET_NS = 200,
};

/* What the threads of a subject do. */
typedef enum team_work {
    WORK_OWN,   /* each on a stream of its own */
    WORK_MIXED, /* likewise, with a size of 1 to 64 KiB for each pair */
    WORK_ONE,   /* all on one stream */
} team_work;

static const unsigned counts[COUNTS] = {1, 2, 4, 8, WORKERS_LIMIT};

typedef struct done {
    alignas(64) size_t pairs; /* written by the member, read after its end */
} done;

typedef struct team {
    peer *peer; /* NULL: nops */
    workers *threads;
    unsigned count;
    team_work work;
    size_t share;                  /* the first member's pairs for each operation */
    size_t operations;             /* of the next run */
    double spent;                  /* nanoseconds of the last run */
    alignas(64) _Atomic bool over; /* written by the first member */
    done done[WORKERS_LIMIT];
} team;

static peer peers[PEERS_LIMIT];
static team teams[COUNTS][PEERS_LIMIT + 1]; /* the last one runs nops */
static board_row measured[COUNTS];
static double nop_times[COUNTS]; /* nanoseconds of PAIR_NOPS nops, by threads */
static bool have_measured;

/* Runs pairs of mixed sizes, equal ones for every competitor. */
static void run_mixed(peer *with, CUstream stream, size_t pairs, uint64_t *random)
{
    for (size_t i = 0; i < pairs; i++) {
        *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
        with->kind->pairs(with, stream, 1024 + (*random >> 33) % (63 << 10), 1);
    }
}

/* `random`: NULL for pairs of one size. */
static void run_step(peer *with, CUstream stream, size_t pairs, uint64_t *random)
{
    if (with && random)
        run_mixed(with, stream, pairs, random);
    else if (with)
        with->kind->pairs(with, stream, PAIR_BYTES, pairs);
    else
        cores_run_nops(pairs * PAIR_NOPS / CORES_NOPS);
}

static void run_member(void *state, unsigned member)
{
    team *self = state;
    const CUstream stream = self->peer ? self->peer->streams[self->work == WORK_ONE ? 0 : member] : NULL;
    uint64_t random = member;
    const size_t share = self->operations * self->share;
    size_t pairs = 0;
    while (member ? !atomic_load_explicit(&self->over, memory_order_relaxed) : pairs < share) {
        const size_t step = !member && share - pairs < STEP ? share - pairs : STEP;
        run_step(self->peer, stream, step, self->work == WORK_MIXED ? &random : NULL);
        pairs += step;
    }
    if (!member)
        atomic_store_explicit(&self->over, true, memory_order_relaxed);
    self->done[member].pairs = pairs;
}

static void wake_team(void *state, size_t operations)
{
    team *self = state;
    self->operations = operations;
    atomic_store_explicit(&self->over, false, memory_order_relaxed);
    workers_wake(self->threads, self->count, run_member, self);
}

static void run_team(void *state, size_t operations)
{
    (void)operations;
    team *self = state;
    const uint64_t start = bench_now();
    workers_run(self->threads);
    self->spent = (double)(bench_now() - start);
}

/* The time of the last run, scaled to the operations that were asked for. */
static double spent_by_team(void *state)
{
    const team *self = state;
    size_t pairs = 0;
    for (unsigned i = 0; i < self->count; i++)
        pairs += self->done[i].pairs;
    return self->spent * (double)self->operations / (double)pairs;
}

static void drain_team(void *state)
{
    peer *with = ((team *)state)->peer;
    if (with)
        peer_drain(with);
}

static bench_plan plan_of(const contest *of)
{
    bench_plan plan = of->quick ? (bench_plan){.warm = 16, .batch = 64, .batches = 1}
                                : (bench_plan){.warm = 100, .batch = 1000, .batches = 3};
    plan.limit = of->seconds * 1e9;
    return plan;
}

/* Batches in a share: enough to make starting and ending negligible; with logging one, since a ring would fill up. */
static size_t share_for(const contest *of, size_t batch, peer *with, team_work work)
{
    uint64_t took = 0, random = 0;
    if (of->quick || (with && with->logging))
        return 1;
    for (int i = 0; i < 2; i++) { /* the second time counts */
        const uint64_t start = bench_now();
        run_step(with, with ? with->streams[0] : NULL, batch, work == WORK_MIXED ? &random : NULL);
        took = bench_now() - start;
    }
    const size_t share = SHARE_NS / (size_t)(took + 1);
    return share < 1 ? 1 : share < MOST_SHARES ? share : MOST_SHARES;
}

/* Measures all numbers of threads alternately, since scaling is a ratio of two of them. */
static void measure_all(contest *of, team_work work)
{
    bench_side sides[COUNTS * (PEERS_LIMIT + 1)];
    double *into[COUNTS * (PEERS_LIMIT + 1)], figures[COUNTS * (PEERS_LIMIT + 1)];
    board_cell *cells[COUNTS * (PEERS_LIMIT + 1)];
    size_t rounds[COUNTS * (PEERS_LIMIT + 1)], count = 0;
    bench_plan plan = plan_of(of);
    plan.ready = wake_team;
    plan.spent = spent_by_team;
    for (size_t i = 0; i <= of->count; i++) {
        peer *with = i < of->count ? &peers[i] : NULL;
        if (with && (!with->choice || *with->choice->corrupt))
            continue;
        const size_t share = share_for(of, plan.batch, with, work);
        for (size_t n = 0; n < COUNTS; n++) {
            teams[n][i] = (team){with, of->threads, counts[n], work, .share = share};
            cells[count] = with ? &measured[n].cells[i] : NULL;
            into[count] = &nop_times[n];
            sides[count++] = (bench_side){run_team, drain_team, &teams[n][i]};
        }
    }
    bench_measure_counting(of->rounds, plan, sides, count, figures, rounds);
    for (size_t side = 0; side < count; side++) {
        if (cells[side])
            *cells[side] = (board_cell){figures[side], rounds[side], BOARD_FIGURE};
        else
            *into[side] = figures[side];
    }
}

static size_t count_rows(const contest *of)
{
    (void)of;
    return COUNTS;
}

static void name_row(size_t row, const char *streams, char name[BOARD_NAME_SIZE])
{
    snprintf(name, BOARD_NAME_SIZE, "threads, %s, %u thread%s", streams, counts[row], counts[row] == 1 ? "" : "s");
}

static void begin(contest *of)
{
    contest_open(of, peers, WORKERS_LIMIT, false);
    have_measured = false;
}

static void end(contest *of)
{
    contest_close(of, peers);
}

static const board_row *measure(contest *of, team_work work, size_t row, const char *name)
{
    for (size_t n = 0; n < COUNTS && !have_measured; n++)
        measured[n] = contest_row(of, name);
    if (!have_measured)
        measure_all(of, work);
    have_measured = true;
    snprintf(measured[row].name, sizeof measured[row].name, "%s", name);
    board_add_row(of->board, &measured[row]);
    return &measured[row];
}

/* Whether each thread has a core: else targets do not hold. */
static bool has_cores(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN) >= WORKERS_LIMIT;
}

/* ---- own streams ---- */

static void name_own(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    name_row(row, "own streams", name);
}

static void remark_on_cores(const contest *of)
{
    static char text[200];
    snprintf(text, sizeof text,
             "Meanwhile %d threads ran %.1f times as many instructions that do nothing as one: no more is to be had of "
             "these cores.",
             WORKERS_LIMIT, nop_times[0] / nop_times[COUNTS - 1]);
    board_remark(of->board, text);
}

static void measure_own(contest *of, size_t number, const char *name)
{
    const board_row *row = measure(of, WORK_OWN, number, name);
    if (counts[number] == WORKERS_LIMIT)
        remark_on_cores(of);
    for (size_t i = 0; i < of->count && counts[number] == WORKERS_LIMIT && has_cores(); i++) {
        if (!of->choices[i].pool)
            continue;
        board_add_target(of->board, &(board_target){.row = row->name,
                                                    .label = of->choices[i].label,
                                                    .what = "times one thread's pairs a second: at least",
                                                    .figure = measured[0].cells[i].figure / row->cells[i].figure,
                                                    .limit = SCALES_TARGET,
                                                    .at_least = true,
                                                    .missing = row->cells[i].state != BOARD_FIGURE});
    }
}

const subject subject_own_streams = {"Threads, each on a stream of its own, 4 KiB, wall nanoseconds a pair of them all",
                                     count_rows,
                                     name_own,
                                     begin,
                                     measure_own,
                                     end};

/* ---- mixed sizes ---- */

static void name_mixed(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    name_row(row, "mixed sizes", name);
}

static void measure_mixed(contest *of, size_t number, const char *name)
{
    measure(of, WORK_MIXED, number, name);
}

const subject subject_mixed_sizes = {"Threads, each on a stream of its own, 1 to 64 KiB, another size for each pair, "
                                     "wall nanoseconds a pair of them all",
                                     count_rows,
                                     name_mixed,
                                     begin,
                                     measure_mixed,
                                     end};

/* ---- one stream ---- */

static void name_one(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    name_row(row, "one stream", name);
}

static void measure_one(contest *of, size_t number, const char *name)
{
    const board_row *row = measure(of, WORK_ONE, number, name);
    for (size_t i = 0; i < of->count && counts[number] == WORKERS_LIMIT && has_cores(); i++)
        if (of->choices[i].pool)
            contest_target(of, row, i, "takes at most", row->cells[i].figure, ONE_STREAM_TARGET_NS);
}

const subject subject_one_stream = {"Threads, all on one stream, 4 KiB, wall nanoseconds a pair of them all",
                                    count_rows,
                                    name_one,
                                    begin,
                                    measure_one,
                                    end};

/* ---- one allocates, another frees ---- */

static size_t count_hand_over(const contest *of)
{
    (void)of;
    return 1;
}

static void name_hand_over(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    (void)row;
    snprintf(name, BOARD_NAME_SIZE, "one thread allocates, another frees, at most %d between", PEER_QUEUE_BLOCKS);
}

static void hand_over(void *state, unsigned member)
{
    entry *self = state;
    peer *with = self->peer;
    if (member == 0)
        with->kind->produce(with, with->streams[0], PAIR_BYTES, self->operations, self->queue);
    else
        with->kind->consume(with, with->streams[1], self->operations, self->queue);
}

static void run_two(void *state, size_t operations)
{
    (void)operations;
    workers_run(((entry *)state)->threads);
}

static void drain_two(void *state)
{
    peer_drain(((entry *)state)->peer);
}

static void wake_two(void *state, size_t operations)
{
    entry *self = state;
    self->operations = operations;
    atomic_store_explicit(&self->queue->made, 0, memory_order_relaxed);
    atomic_store_explicit(&self->queue->taken, 0, memory_order_relaxed);
    workers_wake(self->threads, 2, hand_over, self);
}

static void measure_hand_over(contest *of, size_t number, const char *name)
{
    static peer_queue queue; /* one side runs at a time */
    entry entries[PEERS_LIMIT];
    (void)number;
    board_row row = contest_row(of, name);
    for (size_t i = 0; i < of->count; i++)
        entries[i] = (entry){.peer = &peers[i], .threads = of->threads, .queue = &queue};
    bench_plan plan = plan_of(of);
    plan.ready = wake_two;
    contest_measure(of, peers, entries, plan, (bench_side){run_two, drain_two, NULL}, 1, &row);
    board_add_row(of->board, &row);
    for (size_t i = 0; i < of->count; i++)
        if (of->choices[i].pool)
            contest_target(of, &row, i, "takes at most", row.cells[i].figure, HAND_OVER_TARGET_NS);
}

const subject subject_hand_over = {
    "A thread allocates on its stream, another frees on its own, 4 KiB, wall nanoseconds a pair",
    count_hand_over,
    name_hand_over,
    begin,
    measure_hand_over,
    end};
