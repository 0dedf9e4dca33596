/* Moving a frame takes some 100 us on an H200 (docs/measurements.md), and asking other streams for their memory may
 * come back with every request; memory is paid for once. So what is done again and again buys slack, and pays for it
 * first. Two signs, each on its own; where somebody has said how much slack there is, neither.
 *
 * Moving is costly: it takes a quarter of the time, and an eighth of all memory is moved meanwhile, so that it is no
 * single request's. What counts is the last 200 ms or so, more and more of what was before is forgotten: a program that
 * works on its data meanwhile may move as much and buys none, for its time goes elsewhere. A few frames right after
 * more was bought tell nothing, therefore the 20 ms. Memory that grows is moved at times, and not again once all has
 * its place: it begins anew when more is live than ever. Time is chance, which a deterministic pool does not go by.
 *
 * Asking is costly: others are asked for every few requests, because nothing fits otherwise. */
#include "resources/pool/slack.h"

#include "core/stamp.h"

static const double MOVING_STEP = 0.10; /* so much at a time, */
static const double MOVING_MOST = 1.0;  /* up to here */
static const double ASKING_SLACK = 0.15;

enum {
    TIME_SHARE = 4,        /* of the time, that moving takes, */
    MEMORY_SHARE = 8,      /* and of all memory, that is moved */
    LEAST_NS = 20000000,   /* in this time at least, */
    MOST_NS = 200000000,   /* beyond which half is forgotten */
    RISE_SHARE = 32,       /* of what was live at most: a rise with which it begins anew */
    BESIDE_SHARE = 2,      /* of what there is beside what was live at most, that moving may buy */
    ASKING_REQUESTS = 8,   /* asking is costly if a stream is asked for every so many requests, */
    ASKING_WEIGHED = 1024, /* of so many */
};

/* Nobody buys where the slack was given, nor by a clock where the same calls are to give the same addresses. */
static bool moving_buys(const pool *self)
{
    return !self->given.slack && !self->deterministic;
}

/* ---- moving ---- */

void pool_slack_note_moves(pool *self, uint64_t began, uint64_t bytes)
{
    pool_spell *spell = &self->bought.spell;
    if (!bytes || !moving_buys(self))
        return;
    for (uint64_t lasted; (lasted = began - spell->began) > MOST_NS;)
        *spell = (pool_spell){began - lasted / 2, spell->moving / 2, spell->bytes / 2};
    spell->moving += strata_stamp_clock() - began;
    spell->bytes += bytes;
}

uint64_t pool_slack_leave_out(pool *self, uint64_t began)
{
    const uint64_t took = strata_stamp_clock() - began;
    self->bought.spell.began += took;
    return took;
}

/* What moving may buy: the rest of the device is for others, and under a limit some is kept for what cannot be moved.
 */
static double most_by_moving(const pool *self)
{
    const uint64_t limit = pool_most_reserved(self), total = self->device->info.total_bytes;
    const uint64_t most = limit < total ? limit : total, peak = self->peak_live;
    const double share = peak && most > peak ? (double)(most - peak) / BESIDE_SHARE / (double)peak : 0;
    return share < MOVING_MOST ? share : MOVING_MOST;
}

/* What was bought while less was live, or more allowed, counts as far as it may be bought now. */
static double slack_of(const pool *self)
{
    const double most = most_by_moving(self), bought = self->bought.by_moving;
    const double moving = bought < most ? bought : most, asking = self->bought.by_asking;
    const double more = moving > asking ? moving : asking;
    return more > self->slack ? more : self->slack;
}

static bool moving_is_costly(const pool *self, uint64_t now)
{
    const pool_spell *spell = &self->bought.spell;
    const uint64_t lasted = now - spell->began;
    return spell->bytes && spell->bytes >= self->pages.reserved / MEMORY_SHARE && lasted >= LEAST_NS &&
           spell->moving >= lasted / TIME_SHARE;
}

static void weigh_moving(pool *self)
{
    const uint64_t most = self->bought.risen_to, now = strata_stamp_clock();
    if (self->peak_live > most && self->peak_live - most > most / RISE_SHARE) {
        self->bought.risen_to = self->peak_live;
        self->bought.spell = (pool_spell){.began = now};
    }
    if (!moving_is_costly(self, now))
        return;
    self->bought.spell = (pool_spell){.began = now};
    if (slack_of(self) < most_by_moving(self))
        self->bought.by_moving = slack_of(self) + MOVING_STEP;
}

double pool_slack_now(pool *self)
{
    if (moving_buys(self))
        weigh_moving(self);
    return self->given.slack ? self->slack : slack_of(self);
}

/* ---- asking ---- */

/* Streams that keep taking each other's memory keep asking how far the others are, and moving what they get. With more
 * memory each finds its own. */
void pool_slack_weigh_asking(pool *self)
{
    const uint64_t misses = atomic_load_explicit(&self->counts.misses, memory_order_relaxed);
    const uint64_t requests = misses - self->bought.misses_weighed;
    if (self->given.slack || requests < ASKING_WEIGHED)
        return;
    if (ASKING_REQUESTS * self->bought.asked_in_need >= requests) {
        atomic_store_explicit(&self->asking_is_costly, true, memory_order_relaxed);
        self->bought.by_asking = ASKING_SLACK;
    }
    self->bought.misses_weighed = misses;
    self->bought.asked_in_need = 0;
}
