/* RMM's two benchmarks, with their arguments (rapidsai/rmm 26.08). */
#include "bare.h"
#include "contest.h"
#include "delay.h"
#include "random_allocations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static peer peers[PEERS_LIMIT];
static entry entries[PEERS_LIMIT];

/* ---- random_allocations ---- */

enum { QUICK_STEPS = 200, MOST_ALLOCATIONS = 100000 };

static const size_t ROOM = (size_t)32000 << 20;

/* RMM's program draws its numbers with the clock running; here they are drawn before. Its stream is the default one,
 * this one is known. */
typedef struct sequence {
    peer_step *steps;
    size_t count;
    size_t peak; /* the step with the most live blocks */
    uint32_t slots;
    bool leftovers;
} sequence;

static sequence drawn;
static uint32_t *scratch_slots;
static peer_step *scratch_live;
static char *slot_bytes;
static unsigned char *slot_live;

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
    drawn.steps = contest_need(calloc((size_t)2 * MOST_ALLOCATIONS, sizeof *drawn.steps));
    scratch_slots = contest_need(calloc(MOST_ALLOCATIONS, sizeof *scratch_slots));
    scratch_live = contest_need(calloc(MOST_ALLOCATIONS, sizeof *scratch_live));
    slot_bytes = contest_need(calloc(MOST_ALLOCATIONS, PEER_SLOT_BYTES));
    slot_live = contest_need(calloc(MOST_ALLOCATIONS, 1));
    contest_open(of, peers, 1, false);
}

static void end_random(contest *of)
{
    contest_close(of, peers);
    free(slot_live);
    free(slot_bytes);
    free(scratch_live);
    free(scratch_slots);
    free(drawn.steps);
}

static void draw_sequence(const random_case *seen, bool quick)
{
    random_case came_to;
    random_make(seen->allocations, seen->max_mib, drawn.steps, scratch_slots, scratch_live, &came_to);
    if (!random_is_as_seen(&came_to, seen)) {
        fprintf(stderr, "%s: random_allocations %u %u is not RMM's sequence\n", program_invocation_short_name,
                (unsigned)seen->allocations, (unsigned)seen->max_mib);
        exit(EXIT_FAILURE);
    }
    drawn.count = (size_t)2 * seen->allocations;
    drawn.slots = came_to.peak_blocks;
    drawn.leftovers = quick;
    if (quick && drawn.count > QUICK_STEPS)
        drawn.count = QUICK_STEPS;
    size_t live = 0, most = 0;
    for (size_t i = 0; i < drawn.count; i++) {
        live = drawn.steps[i].bytes ? live + 1 : live - 1;
        if (live > most) {
            most = live;
            drawn.peak = i + 1;
        }
    }
}

/* The sequence runs twice, the first as warm-up; once for a slow competitor. */
static void run_sequence(void *state, size_t operations)
{
    entry *self = state;
    bool warming = self->operations++ % 2 == 0;
    if (warming && self->peer->choice->slow)
        return;
    for (size_t i = 0; i < operations && !self->no_memory; i++)
        self->no_memory =
            !peer_run_steps(self->peer, drawn.steps, drawn.count, self->slots, self->live, drawn.leftovers);
}

/* As RMM's program, competitors keep their memory for all rounds while there is room: at most 16,000 MiB are live, and
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

static void look_at_peak(peer *self)
{
    const size_t done = self->kind->steps(self, drawn.steps, drawn.peak, slot_bytes);
    if (!verify_apart(self, drawn.steps, done, slot_bytes))
        snprintf(self->choice->corrupt, sizeof self->choice->corrupt,
                 "blocks of random_allocations that are live at the same time overlap");
    peer_free_leftovers(self, drawn.steps, done, slot_bytes, slot_live);
    peer_drain(self);
    self->kind->trim(self);
}

static void measure_random(contest *of, size_t number, const char *name)
{
    draw_sequence(&random_cases[number], of->quick);
    for (size_t i = 0; i < of->count; i++)
        if (peers[i].choice && !peers[i].choice->slow && !*peers[i].choice->corrupt)
            look_at_peak(&peers[i]);
    board_row row = contest_row(of, name);
    for (size_t i = 0; i < of->count; i++)
        entries[i] = (entry){.peer = &peers[i], .slots = slot_bytes, .live = slot_live};
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

enum { KERNELS = 4, STREAMS = 4, KERNEL_TICKS = 1000000, KERNEL_BYTES = 8 };

typedef struct stream_case {
    uint32_t streams;
    bool prewarmed;
} stream_case;

static const stream_case stream_cases[] = {{1, false}, {2, false}, {4, false}, {1, true}, {2, true}, {4, true}};

static size_t count_streams(const contest *of)
{
    (void)of;
    return sizeof stream_cases / sizeof stream_cases[0];
}

static void name_streams(const contest *of, size_t row, char name[BOARD_NAME_SIZE])
{
    (void)of;
    const stream_case *with = &stream_cases[row];
    snprintf(name, BOARD_NAME_SIZE, "multi_stream, %d kernels on %u stream%s%s", KERNELS, (unsigned)with->streams,
             with->streams == 1 ? "" : "s", with->prewarmed ? ", prewarmed" : "");
}

static void allocate_8(peer *with, uint32_t stream, void *slot)
{
    if (!with->kind->allocate(with, with->streams[stream], KERNEL_BYTES, slot))
        bare_failed(CUDA_ERROR_OUT_OF_MEMORY, "8 bytes");
}

static void prewarm(peer *with, uint32_t streams)
{
    alignas(16) char slots[STREAMS][PEER_SLOT_BYTES];
    for (uint32_t i = 0; i < streams; i++)
        allocate_8(with, i, slots[i]);
    for (uint32_t i = 0; i < streams; i++)
        with->kind->release(with, with->streams[i], slots[i]);
}

static void run_kernels(void *state, size_t operations)
{
    entry *self = state;
    peer *with = self->peer;
    const stream_case *task = self->task;
    alignas(16) char slot[PEER_SLOT_BYTES];
    for (size_t i = 0; i < operations; i++) {
        for (uint32_t kernel = 0; kernel < KERNELS; kernel++) {
            const uint32_t stream = kernel % task->streams;
            allocate_8(with, stream, slot);
            delay_and_write(with->streams[stream], KERNEL_TICKS, with->kind->address(slot));
            with->kind->release(with, with->streams[stream], slot);
        }
        bare_check(bare.CtxSynchronize(), "cuCtxSynchronize");
    }
}

static void drain(void *state)
{
    peer_drain(((entry *)state)->peer);
}

static void measure_streams(contest *of, size_t number, const char *name)
{
    const stream_case *task = &stream_cases[number];
    board_row row = contest_row(of, name);
    contest_open(of, peers, STREAMS, true);
    for (size_t i = 0; i < of->count; i++) {
        entries[i] = (entry){.peer = &peers[i], .task = task};
        if (peers[i].choice && task->prewarmed)
            prewarm(&peers[i], task->streams);
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
