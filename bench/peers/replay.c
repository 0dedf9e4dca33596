/* Traces replayed by one thread, as fast as possible and at the recorded pace. */
#include "clock.h"
#include "contest.h"
#include "delay.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static peer peers[PEERS_LIMIT];

/* A target for traces whose names begin so. */
typedef struct trace_target {
    const char *begins;
    double reserved;   /* times peak live */
    bool only_paced;   /* no target for the fast replay */
    double over_paced; /* percent over the trace's span; 0: no target */
} trace_target;

static const trace_target trace_targets[] = {
    {"gpt", 1.05, false, 0},     {"resnet", 1.05, false, 0}, {"llm", 1.05, false, 0},
    {"serving", 1.20, false, 0}, {"gnn", 1.30, true, 10},
};

enum { LIMITED_OVER_PERCENT = 25, CALLS_TARGET = 1 };

static const trace_target *target_of(const recording *of)
{
    for (size_t i = 0; i < sizeof trace_targets / sizeof trace_targets[0]; i++)
        if (strncmp(of->name, trace_targets[i].begins, strlen(trace_targets[i].begins)) == 0)
            return &trace_targets[i];
    return NULL;
}

static char *make_slots(const recording *of)
{
    return contest_require(calloc(of->slots + 1, PEER_SLOT_BYTES));
}

/* ---- as fast as it goes ---- */

enum { FAST_TIME, FAST_MEMORY, FAST_CALLS, FAST_ROWS };

typedef struct pass {
    const recording *of;
} pass;

static board_row measured[FAST_ROWS];
static const recording *measured_of;

static size_t count_fast(const contest *of)
{
    return of->recording_count * FAST_ROWS;
}

static void name_fast(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    static const char *const what[FAST_ROWS] = {"nanoseconds a step", "reserved / peak live",
                                                "driver calls in 1,000 steps, second pass"};
    snprintf(name, BOARD_NAME_SIZE, "replay %s, fast: %s", of->recordings[row / FAST_ROWS].name, what[row % FAST_ROWS]);
}

/* A round is two passes, as of a job that repeats its work. The second counts. */
static void run_pass(void *state, size_t operations)
{
    entry *self = state;
    const recording *trace = self->task;
    bool warming = self->operations++ % 2 == 0;
    if (warming && self->peer->choice->slow)
        return;
    for (size_t i = 0; i < operations && !self->no_memory; i++)
        self->no_memory = !peer_run_steps(self->peer, trace->steps, trace->count, self->slots, self->live, true);
}

/* Trims, too: one device may not hold several competitors' memory. */
static void drain_and_trim(void *state)
{
    peer *with = ((entry *)state)->peer;
    peer_drain(with);
    with->kind->trim(with);
}

static void add_reserved(const contest *of, const recording *trace, board_row *row, const board_row *times)
{
    for (size_t i = 0; i < of->count; i++) {
        row->cells[i].state = times->cells[i].state;
        if (times->cells[i].state != BOARD_FIGURE)
            continue;
        const uint64_t reserved = peers[i].kind->reserved_peak(&peers[i]);
        row->cells[i] = (board_cell){(double)reserved / (double)trace->peak_live, times->cells[i].rounds,
                                     reserved ? BOARD_FIGURE : BOARD_NOTHING};
    }
}

/* What a competitor may take beforehand, which is compared with what the trace needs. */
static uint64_t room_of(const recording *trace)
{
    return 2 * trace->peak_live;
}

static void measure_trace(contest *of, const recording *trace)
{
    entry entries[PEERS_LIMIT];
    char *slots = make_slots(trace);
    unsigned char *live = contest_require(calloc(trace->slots + 1, 1));
    for (size_t row = 0; row < FAST_ROWS; row++)
        measured[row] = contest_row(of, "");
    contest_give_room(of, room_of(trace));
    contest_open(of, peers, trace->streams, false);
    for (size_t i = 0; i < of->count; i++)
        entries[i] = (entry){.peer = &peers[i], .task = trace, .slots = slots, .live = live};
    contest_measure(of, peers, entries, (bench_plan){.warm = 1, .batch = 1, .batches = 1},
                    (bench_side){run_pass, drain_and_trim, NULL}, 1.0 / trace->count, &measured[FAST_TIME]);
    add_reserved(of, trace, &measured[FAST_MEMORY], &measured[FAST_TIME]);
    for (size_t i = 0; i < of->count; i++) {
        double calls = of->calls.per_thousand[i][trace - of->recordings];
        if (of->calls.counted[i] && calls >= 0 && !*of->choices[i].corrupt)
            measured[FAST_CALLS].cells[i] = (board_cell){calls, 1, BOARD_FIGURE};
    }
    contest_close(of, peers);
    contest_give_room(of, PEER_ROOM);
    free(live);
    free(slots);
    measured_of = trace;
}

static void begin_fast(contest *of)
{
    (void)of;
    measured_of = NULL;
}

static void measure_fast(contest *of, size_t number, const char *name)
{
    const recording *trace = &of->recordings[number / FAST_ROWS];
    const trace_target *target = target_of(trace);
    board_row *row = &measured[number % FAST_ROWS];
    if (measured_of != trace)
        measure_trace(of, trace);
    snprintf(row->name, sizeof row->name, "%s", name);
    board_add_row(of->board, row);
    for (size_t i = 0; i < of->count; i++) {
        if (!of->choices[i].pool || !target || target->only_paced)
            continue;
        if (number % FAST_ROWS == FAST_MEMORY)
            contest_target(of, row, i, "times peak live: at most", row->cells[i].figure, target->reserved);
        else if (number % FAST_ROWS == FAST_CALLS)
            contest_target(of, row, i, "calls: at most", row->cells[i].figure, CALLS_TARGET);
    }
}

const subject subject_replay = {"Traces, as fast as they go", count_fast, name_fast, begin_fast, measure_fast, NULL};

/* ---- at the recorded pace ---- */

enum { PACED_PLAIN, PACED_LIMITED, PACED_SHARED, PACED_BEHIND, PACED_KINDS };
enum { PACED_MEMORY, PACED_TIME, PACED_ROWS };
enum { BEHIND_NS = 1000000, SPIN_NS = 80000, LEAST_ROOM = 64 << 20 };

static const char *const paced_kinds[PACED_KINDS] = {"paced", "paced, at most 1.03 x peak live",
                                                     "paced, 30 % freed elsewhere", "paced, 1 ms behind"};

static board_row paced[PACED_ROWS];
static size_t paced_of; /* trace and kind of `paced`, from 1 */

static size_t count_paced(const contest *of)
{
    return of->recording_count * PACED_KINDS * PACED_ROWS;
}

static void name_paced(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    const size_t which = row / PACED_ROWS, kind = which % PACED_KINDS;
    const char *what = row % PACED_ROWS == PACED_TIME ? "percent over its span"
                       : kind < PACED_SHARED          ? "reserved / peak live"
                                                      : "reserved / live and in flight";
    snprintf(name, BOARD_NAME_SIZE, "replay %s, %s: %s", of->recordings[which / PACED_KINDS].name, paced_kinds[kind],
             what);
}

/* Frees that their stream has not reached, by the host's estimate, oldest first. */
typedef struct flight {
    uint64_t *until;
    uint64_t *bytes;
    size_t head, tail;
    uint64_t sum;
} flight;

typedef struct pacing {
    peer *with;
    const recording *of;
    const peer_step *steps;
    size_t streams;
    char *slots;
    unsigned char *live;
    uint64_t *sizes;        /* by slot */
    delay_backlog *backlog; /* NULL: streams may catch up */
    flight freed;
    uint64_t live_bytes, needed; /* now; the peak of live and in-flight bytes */
} pacing;

static void wait_until(uint64_t due)
{
    uint64_t now = bench_now();
    if (now + SPIN_NS < due) {
        const uint64_t to = due - SPIN_NS;
        const struct timespec at = {(time_t)(to / 1000000000), (long)(to % 1000000000)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
            continue;
    }
    while (bench_now() < due)
        continue;
}

static void extend_backlogs(pacing *self)
{
    const uint64_t now = bench_now();
    for (size_t i = 0; i < self->streams; i++)
        delay_extend(self->backlog, i, self->with->streams[i], now);
}

static void record_free(pacing *self, const peer_step *step)
{
    flight *freed = &self->freed;
    const uint64_t bytes = self->sizes[step->slot];
    self->live_bytes -= bytes;
    if (!self->backlog)
        return;
    freed->until[freed->tail] = self->backlog->busy_until[step->stream];
    freed->bytes[freed->tail++] = bytes;
    freed->sum += bytes;
}

static void record_allocation(pacing *self, const peer_step *step)
{
    flight *freed = &self->freed;
    const uint64_t now = self->backlog ? bench_now() : 0;
    self->sizes[step->slot] = step->bytes;
    self->live_bytes += step->bytes;
    for (; freed->head < freed->tail && freed->until[freed->head] <= now; freed->head++)
        freed->sum -= freed->bytes[freed->head];
    if (self->live_bytes + freed->sum > self->needed)
        self->needed = self->live_bytes + freed->sum;
}

/* Does a step of the trace at its time. False: no memory. */
static bool pace_step(pacing *self, size_t number)
{
    const peer_step *step = &self->steps[number];
    if (self->backlog)
        extend_backlogs(self);
    if (!step->bytes)
        record_free(self, step);
    if (self->with->kind->steps(self->with, step, 1, self->slots) == 0)
        return false;
    if (step->bytes)
        record_allocation(self, step);
    return true;
}

/* Does all steps at their times. False: no memory; all blocks are free again. */
static bool pace_pass(pacing *self, uint64_t *spent)
{
    const uint64_t start = bench_now();
    self->freed.head = self->freed.tail = 0;
    self->freed.sum = self->live_bytes = 0;
    size_t done = 0;
    while (done < self->of->count) {
        wait_until(start + self->of->times_ns[done]);
        if (!pace_step(self, done))
            break;
        done++;
    }
    *spent = bench_now() - start;
    peer_free_leftovers(self->with, self->steps, done, self->slots, self->live);
    peer_drain(self->with);
    return done == self->of->count;
}

static uint64_t limit_of(const recording *of)
{
    const uint64_t part = of->peak_live / 100 * 3;
    return of->peak_live + (part > LEAST_ROOM ? part : LEAST_ROOM);
}

/* Where time counts, makes two passes, of which the second is measured; else one. */
static void pace_peer(contest *of, const recording *trace, size_t kind, size_t i)
{
    peer *with = &peers[0];
    const size_t streams = kind == PACED_SHARED ? trace->shared_streams : trace->streams;
    of->choices[i].room = room_of(trace);
    const bool opened = peer_open(with, &of->choices[i], streams, kind == PACED_LIMITED ? limit_of(trace) : 0);
    of->choices[i].room = PEER_ROOM;
    if (!opened)
        return;
    delay_backlog backlog = {.behind_ns = BEHIND_NS, .busy_until = contest_require(calloc(streams, sizeof(uint64_t)))};
    pacing self = {
        .with = with,
        .of = trace,
        .steps = kind == PACED_SHARED ? trace->shared_steps : trace->steps,
        .streams = streams,
        .slots = make_slots(trace),
        .live = contest_require(calloc(trace->slots + 1, 1)),
        .sizes = contest_require(calloc(trace->slots + 1, sizeof(uint64_t))),
        .backlog = kind == PACED_BEHIND ? &backlog : NULL,
        .freed = {.until = contest_require(calloc(trace->count, sizeof(uint64_t))),
                  .bytes = contest_require(calloc(trace->count, sizeof(uint64_t)))},
    };
    uint64_t spent = 0;
    bool good = pace_pass(&self, &spent);
    if (good && kind <= PACED_LIMITED)
        good = pace_pass(&self, &spent);
    const uint64_t reserved = with->kind->reserved_peak(with);
    const double over = ((double)spent / (double)(trace->span_ns ? trace->span_ns : 1) - 1) * 100;
    const board_state state = good ? BOARD_FIGURE : BOARD_NO_MEMORY;
    paced[PACED_TIME].cells[i] = (board_cell){over, 1, state};
    paced[PACED_MEMORY].cells[i] =
        (board_cell){(double)reserved / (double)self.needed, 1, good && !reserved ? BOARD_NOTHING : state};
    peer_close(with);
    free(self.freed.bytes);
    free(self.freed.until);
    free(self.sizes);
    free(self.live);
    free(self.slots);
    free(backlog.busy_until);
}

static void begin_paced(contest *of)
{
    (void)of;
    paced_of = 0;
}

static void add_paced_targets(contest *of, const recording *trace, size_t kind, size_t what, const board_row *row)
{
    const trace_target *target = target_of(trace);
    for (size_t i = 0; i < of->count; i++) {
        if (!of->choices[i].pool)
            continue;
        const double figure = row->cells[i].figure;
        if (what == PACED_TIME && kind == PACED_LIMITED)
            contest_target(of, row, i, "percent over: at most", figure, LIMITED_OVER_PERCENT);
        else if (what == PACED_TIME && kind == PACED_PLAIN && target && target->over_paced > 0)
            contest_target(of, row, i, "percent over: at most", figure, target->over_paced);
        else if (what == PACED_MEMORY && kind != PACED_LIMITED && target && (kind || target->only_paced))
            contest_target(of, row, i, kind ? "times live and in flight: at most" : "times peak live: at most", figure,
                           target->reserved);
    }
}

static void measure_paced(contest *of, size_t number, const char *name)
{
    const size_t which = number / PACED_ROWS, kind = which % PACED_KINDS, what = number % PACED_ROWS;
    const recording *trace = &of->recordings[which / PACED_KINDS];
    if (paced_of != which + 1) {
        for (size_t row = 0; row < PACED_ROWS; row++)
            paced[row] = contest_row(of, "");
        for (size_t i = 0; i < of->count; i++)
            if (contest_takes_part(&of->choices[i], true) && !(kind == PACED_BEHIND && of->choices[i].waits))
                pace_peer(of, trace, kind, i);
        paced_of = which + 1;
    }
    snprintf(paced[what].name, sizeof paced[what].name, "%s", name);
    board_add_row(of->board, &paced[what]);
    add_paced_targets(of, trace, kind, what, &paced[what]);
}

const subject subject_paced = {
    "Traces at the pace at which they were recorded", count_paced, name_paced, begin_paced, measure_paced, NULL};
