/* Moving a frame takes some 100 us on an H200 (docs/measurements.md), and asking other streams for their memory may
 * come back with every request; memory is paid for once. So what is done again and again buys slack, and pays for it
 * first: as much as there is has been moved before there is more. Three signs, each on its own; where somebody has said
 * how much slack there is, none of them.
 *
 * Moving is costly: a frame for every few requests. Memory that still grows is moved as much at times, and not again
 * once all has its place, so that this takes many moves.
 *
 * Moving does not end: fewer of them, but since the most that was live rose, so that all should have had its place by
 * now. This one stops at a quarter: some programs go on moving, whatever they have.
 *
 * Asking is costly: others are asked for every few requests, because nothing fits otherwise. */
#include "resources/pool/slack.h"

static const double MOVING_SLACK = 0.10; /* once moving is costly, */
static const double SLACK_STEP = 0.05;   /* and so much more each further time, or while it does not end, */
static const double LASTING_MOST = 0.25; /* up to here in that case */
static const double ASKING_SLACK = 0.15;

enum {
    MOVING_SHARE = 8,       /* moving more than this part of all memory is costly, */
    MOVING_REQUESTS = 4,    /* if it is a frame for so many requests or fewer */
    LASTING_REQUESTS = 256, /* does not end, if it is a frame for so many: 0.4 us each */
    LASTING_RISE = 32,      /* since what was live at most rose by such a part of it */
    ASKING_REQUESTS = 8,    /* asking is costly if a stream is asked for every so many requests, */
    ASKING_WEIGHED = 1024,  /* of so many */
};

/* ---- moves ---- */

static uint64_t requests_of(const pool *self)
{
    return atomic_load_explicit(&self->counts.misses, memory_order_relaxed);
}

static void count_anew(const pool *self, pool_moves *moves)
{
    *moves = (pool_moves){0, 0, requests_of(self)};
}

/* Frames for each request that no cache served. */
static double moves_a_request(const pool *self, const pool_moves *moves)
{
    const uint64_t requests = requests_of(self) - moves->requests_before;
    return (double)moves->frames / (double)(requests ? requests : 1);
}

void pool_slack_forget_moves(pool *self)
{
    count_anew(self, &self->bought.since_growth);
}

void pool_slack_note_moves(pool *self, size_t frames, uint64_t bytes)
{
    self->bought.since_growth.frames += frames;
    self->bought.since_growth.bytes += bytes;
    self->bought.since_rise.frames += frames;
    self->bought.since_rise.bytes += bytes;
}

bool pool_slack_moving_is_costly(const pool *self)
{
    const pool_moves *moves = &self->bought.since_growth;
    return moves->bytes >= self->pages.reserved / MOVING_SHARE && MOVING_REQUESTS * moves_a_request(self, moves) >= 1;
}

/* ---- what it buys ---- */

static double slack_of(const pool *self)
{
    return self->bought.slack > self->slack ? self->bought.slack : self->slack;
}

/* Some more once all memory has been moved, or a part of it that is the smaller the more is moved for each request; and
 * some more each further time that all has been. */
static void weigh_much(pool *self)
{
    const bool first = !(self->bought.slack > 0);
    const pool_moves *moves = &self->bought.since_growth;
    const double each = moves_a_request(self, moves), weight = first && each > 1 ? each : 1;
    if (!pool_slack_moving_is_costly(self) || (double)moves->bytes * weight < (double)self->pages.reserved)
        return;
    self->bought.slack += first ? MOVING_SLACK : SLACK_STEP;
    pool_slack_forget_moves(self);
}

static void weigh_lasting(pool *self)
{
    pool_moves *moves = &self->bought.since_rise;
    const uint64_t peak = self->bought.risen_to;
    if (self->peak_live < peak || self->peak_live - peak > peak / LASTING_RISE) {
        self->bought.risen_to = self->peak_live;
        count_anew(self, moves);
    }
    if (!moves->bytes || moves->bytes < self->pages.reserved || LASTING_REQUESTS * moves_a_request(self, moves) < 1)
        return;
    count_anew(self, moves);
    if (slack_of(self) >= LASTING_MOST)
        return;
    const double more = slack_of(self) + SLACK_STEP;
    self->bought.slack = more < LASTING_MOST ? more : LASTING_MOST;
    pool_slack_forget_moves(self);
}

double pool_slack_now(pool *self)
{
    if (self->given.slack)
        return self->slack;
    weigh_much(self);
    weigh_lasting(self);
    return slack_of(self);
}

/* ---- asking ---- */

/* Streams that keep taking each other's memory keep asking how far the others are, and moving what they get. With more
 * memory each finds its own. */
void pool_slack_weigh_asking(pool *self)
{
    const uint64_t misses = requests_of(self);
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
