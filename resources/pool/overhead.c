/* Moving a frame takes some 100 us on an H200 (docs/measurements.md), and asking other streams for their memory may
 * come back with every request; memory is paid for once. So what is done again and again buys slack, and pays for it
 * first. Two signs, each on its own; where somebody has said how much slack there is, neither.
 *
 * Moving is costly: it takes a quarter of the time, and an eighth of all memory is moved meanwhile, or what takes 100
 * ms, so that it is no single request's. What counts is the last 200 ms or so, more and more of what was before is
 * forgotten: a program that works on its data between its requests may move as much and buys none, for its time goes
 * elsewhere. Where it makes no request that comes to the heap time stands still, so that those after a pause are judged
 * by themselves. A few frames right after more was bought tell nothing, therefore the 20 ms. Memory that grows is moved
 * at times, and not again once all has its place: it begins anew when more is live than ever. Real time is chance: a
 * deterministic pool takes 5 us for each request and 100 for each frame.
 *
 * Asking is costly: others are asked for every few requests, because nothing fits otherwise. */
#include "resources/pool/overhead.h"

#include "core/base/timestamp.h"

static const double MOVING_STEP = 0.10; /* so much at a time, */
static const double MOVING_MOST = 1.0;  /* up to here */
static const double POLLING_OVERHEAD = 0.15;

enum {
    TIME_SHARE = 4,         /* of the time, that moving takes, */
    MEMORY_SHARE = 8,       /* and of all memory, that is moved, */
    MUCH_NS = 100000000,    /* if that does not take so long by itself, */
    LEAST_NS = 20000000,    /* in this time at least, */
    MOST_NS = 200000000,    /* beyond which half is forgotten */
    PAUSE_NS = 2000000,     /* and in which a pause is no longer than that, */
    GAP_NS = 5000000,       /* and so much more for each request that no cache served meanwhile */
    REQUEST_NS = 5000,      /* such a request, */
    CHUNK_NS = 100000,      /* and a frame that is moved, in a deterministic pool */
    RISE_SHARE = 32,        /* of what was live at most: a rise with which it begins anew */
    BESIDE_SHARE = 2,       /* of what the device has beside what was live at most, that moving may buy; */
    LIMIT_SHARE = 12,       /* of a limit, that it may not: a little more than where pool_is_tight begins */
    POLLING_REQUESTS = 8,   /* asking is costly if a stream is asked for every so many requests, */
    POLLING_WEIGHED = 1024, /* of so many */
};

static uint64_t requests_of(const pool *self)
{
    return atomic_load_explicit(&self->counts.misses, memory_order_relaxed);
}

/* ---- moving ---- */

uint64_t pool_overhead_clock(const pool *self)
{
    const uint64_t moved = atomic_load_explicit(&self->counts.moved, memory_order_relaxed);
    return self->deterministic ? requests_of(self) * REQUEST_NS + moved * CHUNK_NS : strata_timestamp_clock();
}

/* Counts the time until now, and leaves out by how much a pause was too long. */
static void pass(pool *self, uint64_t now)
{
    pool_remap_window *remap_window = &self->adaptive.remap_window;
    const uint64_t requests = requests_of(self), gap = now > remap_window->seen ? now - remap_window->seen : 0;
    const uint64_t most = PAUSE_NS + (requests - remap_window->misses_seen) * GAP_NS;
    remap_window->began += gap > most ? gap - most : 0;
    remap_window->seen = now;
    remap_window->misses_seen = requests;
}

static void restart(pool *self, uint64_t now)
{
    self->adaptive.remap_window = (pool_remap_window){.began = now, .seen = now, .misses_seen = requests_of(self)};
}

void pool_overhead_record_moves(pool *self, uint64_t began, uint64_t bytes)
{
    pool_remap_window *remap_window = &self->adaptive.remap_window;
    const uint64_t now = pool_overhead_clock(self);
    if (!bytes)
        return;
    pass(self, began);
    for (uint64_t lasted; (lasted = began - remap_window->began) > MOST_NS;) {
        remap_window->began = began - lasted / 2;
        remap_window->moving /= 2;
        remap_window->bytes /= 2;
    }
    remap_window->moving += now - began;
    remap_window->bytes += bytes;
    remap_window->seen = now;
}

uint64_t pool_overhead_exclude(pool *self, uint64_t began)
{
    const uint64_t took = pool_overhead_clock(self) - began;
    self->adaptive.remap_window.began += took;
    self->adaptive.remap_window.seen += took;
    return took;
}

/* What moving may buy: half of the rest of a device is for others; near a limit memory is kept for what cannot be
 * moved. */
static double most_by_remapping(const pool *self)
{
    const uint64_t limit = pool_most_reserved(self), total = self->device->info.total_bytes;
    const uint64_t peak = self->peak_live, most = limit < total ? limit - limit / LIMIT_SHARE : total;
    const double beside = most > peak ? (double)(most - peak) / (limit < total ? 1 : BESIDE_SHARE) : 0;
    return beside < MOVING_MOST * (double)peak ? beside / (double)peak : MOVING_MOST;
}

/* What was bought while less was live, or more allowed, counts as far as it may be bought now. */
static double overhead_of(const pool *self)
{
    const double most = most_by_remapping(self), adaptive = self->adaptive.by_remapping;
    const double moving = adaptive < most ? adaptive : most, polling = self->adaptive.by_polling;
    const double more = moving > polling ? moving : polling;
    return more > self->overhead ? more : self->overhead;
}

static bool remapping_is_costly(const pool *self, uint64_t now)
{
    const pool_remap_window *remap_window = &self->adaptive.remap_window;
    const uint64_t lasted = now - remap_window->began;
    return remap_window->bytes &&
           (remap_window->bytes >= self->store.reserved / MEMORY_SHARE || remap_window->moving >= MUCH_NS) &&
           lasted >= LEAST_NS && remap_window->moving >= lasted / TIME_SHARE;
}

static void weigh_remapping(pool *self)
{
    const uint64_t most = self->adaptive.risen_to, now = pool_overhead_clock(self);
    if (self->peak_live > most && self->peak_live - most > most / RISE_SHARE) {
        self->adaptive.risen_to = self->peak_live;
        restart(self, now);
    }
    pass(self, now);
    if (!remapping_is_costly(self, now))
        return;
    restart(self, now);
    if (overhead_of(self) < most_by_remapping(self))
        self->adaptive.by_remapping = overhead_of(self) + MOVING_STEP;
}

double pool_overhead_now(pool *self)
{
    if (self->given.overhead)
        return self->overhead;
    weigh_remapping(self);
    return overhead_of(self);
}

/* ---- asking ---- */

/* Streams that keep taking each other's memory keep asking how far the others are, and moving what they get. With more
 * memory each finds its own. */
void pool_overhead_weigh_polling(pool *self)
{
    const uint64_t misses = requests_of(self);
    const uint64_t requests = misses - self->adaptive.misses_weighed;
    if (self->given.overhead || requests < POLLING_WEIGHED)
        return;
    if (POLLING_REQUESTS * self->adaptive.polls_in_need >= requests) {
        atomic_store_explicit(&self->polling_is_costly, true, memory_order_relaxed);
        self->adaptive.by_polling = POLLING_OVERHEAD;
    }
    self->adaptive.misses_weighed = misses;
    self->adaptive.polls_in_need = 0;
}
