/* Moving a frame takes some 100 us on an H200 (docs/measurements.md), and asking other streams for their memory may
 * come back with every request; memory is paid for once. So what is done again and again buys slack, and pays for it
 * first. Two signs, each on its own; where somebody has said how much slack there is, neither.
 *
 * Moving is costly: it takes a quarter of the time of a spell, and an eighth of all memory is moved in it. A spell is
 * 20 ms at least, for the few frames that begin a step of the program's tell nothing; what was more than 200 ms ago
 * counts half, and half again. A program that works on its data meanwhile may move as much and buys none, for its time
 * goes elsewhere. Making memory, and giving it back, is done once and takes no time of a spell. Memory that still grows
 * is moved at times, and not again once all has its place: a spell ends when more is live than ever. Time is chance,
 * which a deterministic pool does not go by.
 *
 * Asking is costly: others are asked for every few requests, because nothing fits otherwise. */
#include "resources/pool/slack.h"

#include "core/stamp.h"

static const double MOVING_STEP = 0.10; /* so much at a time, */
static const double MOVING_MOST = 1.0;  /* up to here */
static const double ASKING_SLACK = 0.15;

enum {
    SPELL_LEAST_NS = 20000000,
    SPELL_MOST_NS = 200000000,
    TIME_SHARE = 4,        /* of a spell, that moving takes, */
    MEMORY_SHARE = 8,      /* and of all memory, that is moved in it */
    RISE_SHARE = 32,       /* of what was live at most: a rise that ends a spell */
    BESIDE_SHARE = 2,      /* of what there is beside what was live at most, that moving may buy */
    ASKING_REQUESTS = 8,   /* asking is costly if a stream is asked for every so many requests, */
    ASKING_WEIGHED = 1024, /* of so many */
};

/* ---- moving ---- */

void pool_slack_note_moves(pool *self, uint64_t began, uint64_t bytes)
{
    pool_spell *spell = &self->bought.spell;
    if (!bytes)
        return;
    if (!spell->bytes)
        *spell = (pool_spell){.began = began};
    const uint64_t lasted = began - spell->began;
    if (lasted > SPELL_MOST_NS)
        *spell = (pool_spell){began - lasted / 2, spell->moving / 2, spell->bytes / 2};
    spell->moving += strata_stamp_clock() - began;
    spell->bytes += bytes;
}

void pool_slack_leave_out(pool *self, uint64_t began)
{
    if (self->bought.spell.bytes)
        self->bought.spell.began += strata_stamp_clock() - began;
}

static double slack_of(const pool *self)
{
    return self->bought.slack > self->slack ? self->bought.slack : self->slack;
}

/* What moving may buy: the rest of the device is for others, and under a limit some is kept for what cannot be moved.
 */
static double most_slack(const pool *self)
{
    const uint64_t limit = pool_most_reserved(self), total = self->device->info.total_bytes;
    const uint64_t most = limit < total ? limit : total, peak = self->peak_live;
    const double share = peak && most > peak ? (double)(most - peak) / BESIDE_SHARE / (double)peak : 0;
    return share < MOVING_MOST ? share : MOVING_MOST;
}

static bool moving_is_costly(const pool *self, const pool_spell *spell)
{
    if (!spell->bytes || spell->bytes < self->pages.reserved / MEMORY_SHARE)
        return false;
    const uint64_t lasted = strata_stamp_clock() - spell->began;
    return lasted >= SPELL_LEAST_NS && spell->moving >= lasted / TIME_SHARE;
}

static void weigh_moving(pool *self)
{
    pool_spell *spell = &self->bought.spell;
    const uint64_t most = self->bought.risen_to;
    if (self->peak_live > most && self->peak_live - most > most / RISE_SHARE) {
        self->bought.risen_to = self->peak_live;
        *spell = (pool_spell){0};
    }
    if (self->deterministic || !moving_is_costly(self, spell))
        return;
    *spell = (pool_spell){0};
    const double more = slack_of(self) + MOVING_STEP, allowed = most_slack(self);
    const double slack = more < allowed ? more : allowed;
    if (slack > slack_of(self))
        self->bought.slack = slack;
}

double pool_slack_now(pool *self)
{
    if (self->given.slack)
        return self->slack;
    weigh_moving(self);
    return slack_of(self);
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
        self->bought.slack = self->bought.slack > ASKING_SLACK ? self->bought.slack : ASKING_SLACK;
    }
    self->bought.misses_weighed = misses;
    self->bought.asked_in_need = 0;
}
