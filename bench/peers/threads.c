/* Several threads at a time: pairs on own streams, pairs on one stream, and one thread that allocates what another one
 * frees. Threads begin together, awake. A figure is wall time shared out among all pairs, so that perfect scaling
 * divides it by the threads. */
#include "contest.h"

#include <unistd.h>

enum { PAIR_BYTES = 4096, COUNTS = 5, SCALES_TARGET = 12, ONE_STREAM_TARGET_NS = 100, HAND_OVER_TARGET_NS = 200 };

static const unsigned counts[COUNTS] = {1, 2, 4, 8, CROWD_LIMIT};

/* What the members of one side do. */
typedef struct team {
    entry *of;
    unsigned count;
    bool own_streams;
} team;

static peer peers[PEERS_LIMIT];
static entry entries[COUNTS][PEERS_LIMIT];
static team teams[COUNTS][PEERS_LIMIT];
static board_row measured[COUNTS];
static bool have_measured;

static void run_member(void *state, unsigned member)
{
    const team *self = state;
    peer *with = self->of->peer;
    with->kind->pairs(with, with->streams[self->own_streams ? member : 0], PAIR_BYTES, self->of->operations);
}

static void wake(void *state, size_t operations)
{
    entry *self = state;
    const team *all = self->task;
    self->operations = operations;
    crowd_wake(self->threads, all->count, run_member, (void *)all);
}

static void run(void *state, size_t operations)
{
    (void)operations;
    crowd_run(((entry *)state)->threads);
}

static void settle(void *state)
{
    peer_settle(((entry *)state)->peer);
}

static bench_plan plan_of(const contest *of)
{
    bench_plan plan = of->quick ? (bench_plan){.warm = 16, .batch = 64, .batches = 1}
                                : (bench_plan){.warm = 100, .batch = 1000, .batches = 3};
    plan.limit = of->seconds * 1e9;
    plan.ready = wake;
    return plan;
}

/* All numbers of threads take turns: what they scale by is a ratio of two of them. */
static void measure_all(contest *of, bool own_streams)
{
    bench_side sides[COUNTS * PEERS_LIMIT];
    board_cell *cells[COUNTS * PEERS_LIMIT];
    unsigned threads[COUNTS * PEERS_LIMIT];
    double figures[COUNTS * PEERS_LIMIT];
    size_t rounds[COUNTS * PEERS_LIMIT], count = 0;
    for (size_t n = 0; n < COUNTS; n++)
        for (size_t i = 0; i < of->count; i++) {
            if (!peers[i].choice || *peers[i].choice->corrupt)
                continue;
            teams[n][i] = (team){&entries[n][i], counts[n], own_streams};
            entries[n][i] = (entry){.peer = &peers[i], .task = &teams[n][i], .threads = of->threads};
            cells[count] = &measured[n].cells[i];
            threads[count] = counts[n];
            sides[count++] = (bench_side){run, settle, &entries[n][i]};
        }
    bench_measure_counting(of->rounds, plan_of(of), sides, count, figures, rounds);
    for (size_t side = 0; side < count; side++)
        *cells[side] = (board_cell){figures[side] / threads[side], rounds[side], BOARD_FIGURE};
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
    contest_open(of, peers, CROWD_LIMIT, false);
    have_measured = false;
}

static void end(contest *of)
{
    contest_close(of, peers);
}

static const board_row *measure(contest *of, bool own_streams, size_t row, const char *name)
{
    for (size_t n = 0; n < COUNTS && !have_measured; n++)
        measured[n] = contest_row(of, name);
    if (!have_measured)
        measure_all(of, own_streams);
    have_measured = true;
    snprintf(measured[row].name, sizeof measured[row].name, "%s", name);
    board_add_row(of->board, &measured[row]);
    return &measured[row];
}

/* What holds where each thread has a core. */
static bool has_cores(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN) >= CROWD_LIMIT;
}

/* ---- own streams ---- */

static void name_own(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    name_row(row, "own streams", name);
}

static void measure_own(contest *of, size_t number, const char *name)
{
    const board_row *row = measure(of, true, number, name);
    for (size_t i = 0; i < of->count && counts[number] == CROWD_LIMIT && has_cores(); i++) {
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

/* ---- one stream ---- */

static void name_one(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    name_row(row, "one stream", name);
}

static void measure_one(contest *of, size_t number, const char *name)
{
    const board_row *row = measure(of, false, number, name);
    for (size_t i = 0; i < of->count && counts[number] == CROWD_LIMIT && has_cores(); i++)
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

static void wake_two(void *state, size_t operations)
{
    entry *self = state;
    self->operations = operations;
    atomic_store_explicit(&self->queue->made, 0, memory_order_relaxed);
    atomic_store_explicit(&self->queue->taken, 0, memory_order_relaxed);
    crowd_wake(self->threads, 2, hand_over, self);
}

static void measure_hand_over(contest *of, size_t number, const char *name)
{
    static peer_queue queue; /* one side runs at a time */
    (void)number;
    board_row row = contest_row(of, name);
    for (size_t i = 0; i < of->count; i++)
        entries[0][i] = (entry){.peer = &peers[i], .threads = of->threads, .queue = &queue};
    bench_plan plan = plan_of(of);
    plan.ready = wake_two;
    contest_measure(of, peers, entries[0], plan, (bench_side){run, settle, NULL}, 1, &row);
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
