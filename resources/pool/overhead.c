/* Adaptive overhead. Remapping a chunk takes some 100 us on an H200 (docs/measurements.md), and streams may be polled
 * at every request, whereas memory is paid for once. So frequent remapping or polling raises the overhead limit. Either
 * signal is enough; both are ignored if the option is set.
 *
 * Remapping is costly if it takes a quarter of the time, and an eighth of all memory, or 100 ms worth, is remapped,
 * which no single request causes. The last 200 ms or so count, without pauses and the making of memory. The count
 * restarts at each raise, and at each new peak of live bytes: growing memory is remapped at times and then settles. A
 * deterministic pool's clock counts 5 us a request and 100 us a chunk.
 *
 * Polling is costly if streams are polled every few requests because nothing else fits. */
#include "resources/pool/overhead.h"

#include "core/base/timestamp.h"

static const double REMAPPING_STEP = 0.10; /* one raise */
static const double REMAPPING_MOST = 1.0;  /* upper bound */
static const double POLLING_OVERHEAD = 0.15;

enum {
    TIME_SHARE = 4,         /* of the time */
    MEMORY_SHARE = 8,       /* of all memory, */
    MUCH_NS = 100000000,    /* or this time */
    LEAST_NS = 20000000,    /* within at least this time */
    MOST_NS = 200000000,    /* half of a longer time is forgotten */
    PAUSE_NS = 2000000,     /* a pause counts at most this, */
    GAP_NS = 5000000,       /* and this for each miss in it */
    REQUEST_NS = 5000,      /* deterministic clock: a miss, */
    CHUNK_NS = 100000,      /* a remapped chunk */
    RISE_SHARE = 32,        /* a rise of the peak by this part restarts the count */
    BESIDE_SHARE = 2,       /* of the device beyond the peak */
    LIMIT_SHARE = 12,       /* of a limit, not used: a little more than where pool_is_tight begins */
    POLLING_REQUESTS = 8,   /* one poll in this many requests, */
    POLLING_WEIGHED = 1024, /* over this many */
};

static uint64_t requests_of(const pool *self)
{
    return atomic_load_explicit(&self->counts.misses, memory_order_relaxed);
}

/* ---- remapping ---- */

uint64_t pool_overhead_clock(const pool *self)
{
    const uint64_t remapped = atomic_load_explicit(&self->counts.chunks_remapped, memory_order_relaxed);
    return self->deterministic ? requests_of(self) * REQUEST_NS + remapped * CHUNK_NS : strata_timestamp_clock();
}

/* Counts time until now; not all of a pause. */
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

void pool_overhead_record_remapping(pool *self, uint64_t began, uint64_t bytes)
{
    pool_remap_window *remap_window = &self->adaptive.remap_window;
    const uint64_t now = pool_overhead_clock(self);
    if (!bytes)
        return;
    pass(self, began);
    for (uint64_t lasted; (lasted = began - remap_window->began) > MOST_NS;) {
        remap_window->began = began - lasted / 2;
        remap_window->remapping /= 2;
        remap_window->bytes /= 2;
    }
    remap_window->remapping += now - began;
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

/* Half of the rest of a device is for other programs; near a limit memory is kept for what cannot be remapped. */
static double most_by_remapping(const pool *self)
{
    const uint64_t limit = pool_most_reserved(self), total = self->device->info.total_bytes;
    const uint64_t peak = self->peak_live, most = limit < total ? limit - limit / LIMIT_SHARE : total;
    const double beside = most > peak ? (double)(most - peak) / (limit < total ? 1 : BESIDE_SHARE) : 0;
    return beside < REMAPPING_MOST * (double)peak ? beside / (double)peak : REMAPPING_MOST;
}

/* Bounded by what is allowed now. */
static double overhead_of(const pool *self)
{
    const double most = most_by_remapping(self), adaptive = self->adaptive.by_remapping;
    const double remapping = adaptive < most ? adaptive : most, polling = self->adaptive.by_polling;
    const double more = remapping > polling ? remapping : polling;
    return more > self->overhead ? more : self->overhead;
}

static bool remapping_is_costly(const pool *self, uint64_t now)
{
    const pool_remap_window *remap_window = &self->adaptive.remap_window;
    const uint64_t lasted = now - remap_window->began;
    return remap_window->bytes &&
           (remap_window->bytes >= self->store.reserved / MEMORY_SHARE || remap_window->remapping >= MUCH_NS) &&
           lasted >= LEAST_NS && remap_window->remapping >= lasted / TIME_SHARE;
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
        self->adaptive.by_remapping = overhead_of(self) + REMAPPING_STEP;
}

double pool_overhead_now(pool *self)
{
    if (self->given.overhead)
        return self->overhead;
    weigh_remapping(self);
    return overhead_of(self);
}

/* ---- polling ---- */

/* With more memory, each stream finds its own. */
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
