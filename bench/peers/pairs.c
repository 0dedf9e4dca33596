/* An allocation and its free: several sizes, an unknown stream, several live blocks, streams behind the host. */
#include "bare.h"
#include "contest.h"
#include "delay.h"

#include <string.h>

enum { PAIR_BYTES = 4096, PAIR_TARGET = 20, UNKNOWN_ADDS = 40, PRODUCTION_TARGET = 80, FLOOR_TIMES = 1 };

static peer peers[PEERS_LIMIT];
static entry entries[PEERS_LIMIT];

static void begin_all(contest *of)
{
    contest_open(of, peers, 2, false);
}

static void end_all(contest *of)
{
    contest_close(of, peers);
}

static void drain(void *state)
{
    peer_drain(((entry *)state)->peer);
}

static void set_entries(const contest *of, const void *task)
{
    for (size_t i = 0; i < of->count; i++)
        entries[i] = (entry){.peer = &peers[i], .task = task};
}

/* ---- sizes ---- */

typedef struct pair_size {
    size_t bytes;
    const char *name;
} pair_size;

static const pair_size sizes[] = {{64, "64 B"},       {1 << 10, "1 KiB"}, {PAIR_BYTES, "4 KiB"}, {64 << 10, "64 KiB"},
                                  {1 << 20, "1 MiB"}, {4 << 20, "4 MiB"}, {64 << 20, "64 MiB"}};

static size_t count_sizes(const contest *of)
{
    (void)of;
    return sizeof sizes / sizeof sizes[0];
}

static void name_size(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    snprintf(name, BOARD_NAME_SIZE, "pairs, %s", sizes[row].name);
}

static void run_pairs(void *state, size_t operations)
{
    entry *self = state;
    const pair_size *size = self->task;
    self->peer->kind->pairs(self->peer, self->peer->streams[0], size->bytes, operations);
}

static bench_plan plan_of(const contest *of)
{
    return of->quick ? (bench_plan){.warm = 16, .batch = 64, .batches = 1}
                     : (bench_plan){.warm = 64, .batch = 256, .batches = 5, .quiet = true};
}

static size_t find_floor(const contest *of)
{
    size_t i = 0;
    while (i < of->count && of->choices[i].kind != &peer_floor)
        i++;
    return i;
}

/* Adds the targets of the row of pool hits of one thread on a known stream. */
static void add_pair_targets(const contest *of, const board_row *row)
{
    const size_t floor = find_floor(of);
    const bool jemalloc = floor < of->count && strcmp(of->choices[floor].label, "jemalloc") == 0;
    for (size_t i = 0; i < of->count; i++) {
        const double figure = row->cells[i].figure;
        if (of->choices[i].pool) {
            contest_target(of, row, i, "takes at most", figure, PAIR_TARGET);
            if (jemalloc)
                contest_target(of, row, i, "times jemalloc's pair: at most", figure / row->cells[floor].figure,
                               FLOOR_TIMES);
        } else if (of->choices[i].production) {
            contest_target(of, row, i, "takes at most", figure, PRODUCTION_TARGET);
        }
    }
}

static void measure_size(contest *of, size_t number, const char *name)
{
    board_row row = contest_row(of, name);
    set_entries(of, &sizes[number]);
    contest_measure(of, peers, entries, plan_of(of), (bench_side){run_pairs, drain, NULL}, 1, &row);
    board_add_row(of->board, &row);
    if (sizes[number].bytes == PAIR_BYTES)
        add_pair_targets(of, &row);
}

const subject subject_pairs = {"An allocation and its free on one stream, nanoseconds a pair",
                               count_sizes,
                               name_size,
                               begin_all,
                               measure_size,
                               end_all};

/* ---- a stream that Strata was never told about ---- */

static const char *const unknown_rows[] = {
    "pairs, 4 KiB, unknown stream", "pairs, 4 KiB, unknown stream: its identity, capture and record calls, barely"};

static size_t count_unknown(const contest *of)
{
    (void)of;
    return 2;
}

static void name_unknown(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    snprintf(name, BOARD_NAME_SIZE, "%s", unknown_rows[row]);
}

static void run_unknown_pairs(void *state, size_t operations)
{
    entry *self = state;
    self->peer->kind->unknown_pairs(self->peer, self->peer->unknown, PAIR_BYTES, operations);
}

enum { EVENTS = 8 };

static CUevent events[EVENTS];
static board_row measured[2]; /* both rows are measured together */
static bool have_measured;

static void begin_unknown(contest *of)
{
    begin_all(of);
    have_measured = false;
    for (size_t i = 0; i < EVENTS; i++)
        bare_check(bare.EventCreate(&events[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

static void end_unknown(contest *of)
{
    for (size_t i = 0; i < EVENTS; i++)
        bare_check(bare.EventDestroy(events[i]), "cuEventDestroy");
    end_all(of);
}

/* The driver calls by which a pair identifies an unknown stream. */
typedef struct questions {
    unsigned identities, captures, records; /* a pair */
} questions;

static void run_questions(void *state, size_t operations)
{
    const entry *self = state;
    const questions *ask = self->task;
    CUstream stream = self->peer->unknown;
    for (size_t i = 0; i < operations; i++) {
        for (unsigned n = 0; n < ask->captures; n++) {
            CUstreamCaptureStatus capture;
            bare_check(bare.StreamIsCapturing(stream, &capture), "cuStreamIsCapturing");
        }
        for (unsigned n = 0; n < ask->identities; n++) {
            unsigned long long id;
            bare_check(bare.StreamGetId(stream, &id), "cuStreamGetId");
        }
        for (unsigned n = 0; n < ask->records; n++)
            bare_check(bare.EventRecord(events[(i + n) % EVENTS], stream), "cuEventRecord");
    }
}

static void measure_both(contest *of)
{
    static entry asked[PEERS_LIMIT];
    static questions ask[PEERS_LIMIT];
    bench_side sides[2 * PEERS_LIMIT];
    board_cell *cells[2 * PEERS_LIMIT];
    double figures[2 * PEERS_LIMIT];
    size_t rounds[2 * PEERS_LIMIT], count = 0;
    bench_plan plan = plan_of(of);
    plan.limit = of->seconds * 1e9;
    set_entries(of, NULL);
    for (size_t row = 0; row < 2; row++)
        measured[row] = contest_row(of, unknown_rows[row]);
    for (size_t i = 0; i < of->count; i++) {
        if (!peers[i].choice || !peers[i].kind->streams || *peers[i].choice->corrupt)
            continue;
        cells[count] = &measured[0].cells[i];
        sides[count++] = (bench_side){run_unknown_pairs, drain, &entries[i]};
        if (!of->calls.counted[i])
            continue;
        ask[i] = (questions){(of->calls.identities[i] + 50) / 100, (of->calls.captures[i] + 50) / 100,
                             (of->calls.records[i] + 50) / 100};
        asked[i] = (entry){.peer = &peers[i], .task = &ask[i]};
        cells[count] = &measured[1].cells[i];
        sides[count++] = (bench_side){run_questions, drain, &asked[i]};
    }
    bench_measure_counting(of->rounds, plan, sides, count, figures, rounds);
    for (size_t n = 0; n < count; n++)
        *cells[n] = (board_cell){figures[n], rounds[n], BOARD_FIGURE};
}

static void measure_unknown(contest *of, size_t number, const char *name)
{
    (void)name;
    if (!have_measured)
        measure_both(of);
    have_measured = true;
    board_add_row(of->board, &measured[number]);
    for (size_t i = 0; i < of->count && number == 0; i++)
        if (of->choices[i].pool)
            contest_target(of, &measured[0], i, "over its bare calls: at most",
                           measured[0].cells[i].figure - measured[1].cells[i].figure, UNKNOWN_ADDS);
}

const subject subject_unknown = {"The same on a stream that Strata was never told about, nanoseconds a pair",
                                 count_unknown,
                                 name_unknown,
                                 begin_unknown,
                                 measure_unknown,
                                 end_unknown};

/* ---- several live blocks ---- */

static const size_t lives[] = {1, 2, 4, 8, 16, 32, 64};

static size_t count_live(const contest *of)
{
    (void)of;
    return sizeof lives / sizeof lives[0];
}

static void name_live(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    snprintf(name, BOARD_NAME_SIZE, "live, 4 KiB, %zu allocated, then %zu freed", lives[row], lives[row]);
}

static void run_groups(void *state, size_t operations)
{
    entry *self = state;
    self->peer->kind->groups(self->peer, self->peer->streams[0], PAIR_BYTES, *(const size_t *)self->task, operations);
}

static void measure_live(contest *of, size_t number, const char *name)
{
    board_row row = contest_row(of, name);
    set_entries(of, &lives[number]);
    bench_plan plan = plan_of(of);
    plan.warm = 64;
    contest_measure(of, peers, entries, plan, (bench_side){run_groups, drain, NULL}, 1, &row);
    board_add_row(of->board, &row);
}

const subject subject_live = {
    "Blocks that live at the same time, nanoseconds a pair", count_live, name_live, begin_all, measure_live, end_all};

/* ---- streams behind the host ---- */

enum { BEHIND_NS = 1000000, BEHIND_GROUP = 16 };

static const char *const behind_rows[] = {"behind, pairs of 4 KiB on a stream 1 ms behind",
                                          "behind, 16 of 4 KiB at a time on two streams in turn, both 1 ms behind"};

static size_t count_behind(const contest *of)
{
    (void)of;
    return 2;
}

static void name_behind(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    snprintf(name, BOARD_NAME_SIZE, "%s", behind_rows[row]);
}

static void put_behind(void *state, size_t operations)
{
    const entry *self = state;
    (void)operations;
    for (size_t i = 0; i < self->peer->stream_count; i++)
        delay_stream(self->peer->streams[i], BEHIND_NS);
}

static void run_behind(void *state, size_t operations)
{
    entry *self = state;
    self->peer->kind->pairs(self->peer, self->peer->streams[0], PAIR_BYTES, operations);
}

static void run_in_turn(void *state, size_t operations)
{
    entry *self = state;
    for (size_t done = 0; done < operations; done += BEHIND_GROUP)
        self->peer->kind->groups(self->peer, self->peer->streams[done / BEHIND_GROUP % 2], PAIR_BYTES, BEHIND_GROUP,
                                 BEHIND_GROUP);
}

static void begin_behind(contest *of)
{
    contest_open(of, peers, 2, true);
    for (size_t i = 0; i < of->count; i++) {
        if (peers[i].choice && peers[i].choice->waits) {
            peer_close(&peers[i]);
            peers[i] = (peer){0};
        }
    }
}

static void measure_behind(contest *of, size_t number, const char *name)
{
    board_row row = contest_row(of, name);
    set_entries(of, NULL);
    bench_plan plan = plan_of(of);
    plan.ready = put_behind;
    contest_measure(of, peers, entries, plan, (bench_side){number ? run_in_turn : run_behind, drain, NULL}, 1, &row);
    board_add_row(of->board, &row);
}

const subject subject_behind = {"Streams that are 1 ms behind the host, nanoseconds a pair",
                                count_behind,
                                name_behind,
                                begin_behind,
                                measure_behind,
                                end_all};
