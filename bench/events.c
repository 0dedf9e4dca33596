/* When to record events on known streams: late, when another stream needs one, or early, one a launch. An early event
 * may not be needed; a late one makes its waiter wait for later work too. */
#include "bench.h"

/* ---- what ordering costs the host ---- */

static void record(bare_objects *objects, size_t event, size_t stream)
{
    bare_check(bare.EventRecord(objects->events[event], objects->streams[stream]), "cuEventRecord");
}

static void wait_for(bare_objects *objects, size_t stream, size_t event)
{
    bare_check(bare.StreamWaitEvent(objects->streams[stream], objects->events[event], CU_EVENT_WAIT_DEFAULT),
               "cuStreamWaitEvent");
}

/* Events 0 and 1: the buffer was written. Events 2 and 3: it was read. */
static void pipeline_by_hand(void *state, size_t operations)
{
    bare_objects *objects = state;
    for (size_t i = 0; i < operations; i++) {
        size_t buffer = objects->rotation++ % 2;
        wait_for(objects, 0, 2 + buffer);
        record(objects, buffer, 0);
        wait_for(objects, 1, buffer);
        record(objects, 2 + buffer, 1);
    }
}

/* Event 0: the block was written. Event i: reader i has read it. */
static void fan_out_by_hand(void *state, size_t operations)
{
    bare_objects *objects = state;
    for (size_t i = 0; i < operations; i++) {
        for (size_t reader = 1; reader < BARE_STREAMS; reader++)
            wait_for(objects, 0, reader);
        record(objects, 0, 0);
        for (size_t reader = 1; reader < BARE_STREAMS; reader++) {
            wait_for(objects, reader, 0);
            record(objects, reader, reader);
        }
    }
}

typedef struct pattern {
    const char *name;
    void (*by_hand)(void *objects, size_t operations); /* NULL: nothing to order */
    void (*run)(void *stage, size_t operations);
    bench_plan plan;
} pattern;

static const pattern patterns[] = {
    {"two streams, handing over at each launch",
     pipeline_by_hand,
     scene_pipeline,
     {.warm = 10, .batch = 100, .batches = 5}},
    {"one stream", NULL, scene_launch_1, {.warm = 20, .batch = 200, .batches = 5}},
    {"one writer, eight readers", fan_out_by_hand, scene_fan_out, {.warm = 2, .batch = 20, .batches = 5}},
};

/* Two rows of one measurement. The filter is compared with `what`. */
static void add_rows(const bench *self, const char *what, double by_hand, double late, double early)
{
    report_times row = {.bare = by_hand, .strata = late};
    snprintf(row.name, sizeof row.name, "%.80s, late", what);
    report_add_times(self->report, &row);
    row.strata = early;
    snprintf(row.name, sizeof row.name, "%.80s, early", what);
    report_add_times(self->report, &row);
}

static void host_cost(const bench *self, const pattern *order, bare_objects *objects, scene *late, scene *early)
{
    char name[REPORT_NAME_SIZE];
    double figures[3];
    snprintf(name, sizeof name, "events, host: %s", order->name);
    if (!bench_wants(self, name))
        return;
    const bench_side sides[] = {
        {order->run, scene_drain, late},
        {order->run, scene_drain, early},
        {order->by_hand, bare_drain, objects},
    };
    bench_measure(self->rounds, order->plan, sides, order->by_hand ? 3 : 2, figures);
    double by_hand = order->by_hand ? figures[2] : -1;
    add_rows(self, name, by_hand, figures[0], figures[1]);
}

/* ---- how long a waiter waits ---- */

enum { LATER_BYTES = 256 << 20, LATER_FILLS = 8 };

typedef struct wait_timing {
    CUevent start, end; /* with timing */
    CUdeviceptr later;  /* filled by the producer's later work */
} wait_timing;

static void fill_little(CUstream stream, void *data)
{
    const strata_block *block = data;
    bare_check(bare.MemsetD8Async(block->address, 1, block->bytes, stream), "cuMemsetD8Async");
}

static void fill_later(CUstream stream, void *data)
{
    const wait_timing *self = data;
    for (size_t i = 0; i < LATER_FILLS; i++)
        bare_check(bare.MemsetD8Async(self->later, 2, LATER_BYTES, stream), "cuMemsetD8Async");
}

static void record_end_event(CUstream stream, void *data)
{
    bare_check(bare.EventRecord(((const wait_timing *)data)->end, stream), "cuEventRecord");
}

/* The producer writes a block and submits long work on another; then a consumer reads the first. */
static void produce_and_consume(wait_timing *self, scene *stage)
{
    CUstream producer = stage->streams[0], consumer = stage->streams[1];
    bare_check(bare.EventRecord(self->start, producer), "cuEventRecord");
    scene_launch(stage, producer, &stage->blocks[0], 1, STRATA_ACCESS_WRITE, fill_little, &stage->blocks[0]);
    scene_launch(stage, producer, &stage->blocks[1], 1, STRATA_ACCESS_WRITE, fill_later, self);
    scene_launch(stage, consumer, &stage->blocks[0], 1, STRATA_ACCESS_READ, record_end_event, self);
}

static void produce_and_consume_by_hand(wait_timing *self, bare_objects *objects, strata_block *block)
{
    CUstream producer = objects->streams[0], consumer = objects->streams[1];
    bare_check(bare.EventRecord(self->start, producer), "cuEventRecord");
    fill_little(producer, block);
    record(objects, 0, 0);
    fill_later(producer, self);
    wait_for(objects, 1, 0);
    record_end_event(consumer, self);
}

static double device_time(const wait_timing *self)
{
    float milliseconds;
    bare_check(bare.EventElapsedTime(&milliseconds, self->start, self->end), "cuEventElapsedTime");
    return 1e6 * (double)milliseconds;
}

static const char waiting_name[] = "events, device: a reader starts, its writer having gone on";

static void waiting_time(const bench *self, bare_objects *objects, scene *late, scene *early)
{
    static double samples[3][BENCH_ROUNDS_LIMIT];
    wait_timing run;
    bare_check(bare.EventCreate(&run.start, CU_EVENT_DEFAULT), "cuEventCreate");
    bare_check(bare.EventCreate(&run.end, CU_EVENT_DEFAULT), "cuEventCreate");
    bare_check(bare.MemAlloc(&run.later, LATER_BYTES), "cuMemAlloc");
    for (size_t round = 0; round < self->rounds; round++) {
        produce_and_consume(&run, late);
        scene_drain(late);
        samples[0][round] = device_time(&run);
        produce_and_consume(&run, early);
        scene_drain(early);
        samples[1][round] = device_time(&run);
        produce_and_consume_by_hand(&run, objects, &late->blocks[0]);
        bare_drain(objects);
        samples[2][round] = device_time(&run);
    }
    double by_hand = bench_median(samples[2], self->rounds);
    add_rows(self, waiting_name, by_hand, bench_median(samples[0], self->rounds),
             bench_median(samples[1], self->rounds));
    bare_check(bare.MemFree(run.later), "cuMemFree");
    bare_check(bare.EventDestroy(run.start), "cuEventDestroy");
    bare_check(bare.EventDestroy(run.end), "cuEventDestroy");
}

void bench_events(const bench *self)
{
    bare_objects objects;
    scene late, early;
    bare_make(&objects, 0);
    scene_make(&late, self->late);
    scene_make(&early, self->early);
    report_heading(self->report, "Events recorded late or early, beside streams ordered by hand", false);
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        host_cost(self, &patterns[i], &objects, &late, &early);
    if (bench_wants(self, waiting_name) && self->simulated)
        report_remark(self->report, "How long a reader waits on the device is not measured on the simulated driver.");
    else if (bench_wants(self, waiting_name))
        waiting_time(self, &objects, &late, &early);
    scene_destroy(&early);
    scene_destroy(&late);
    bare_destroy(&objects);
}
