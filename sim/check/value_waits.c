/* Waits for values: what comes before the end of one.
 *
 * What a wait comes after is known when it is over, not when it is submitted: then it comes after the write that let it
 * go on, and all that this write comes after. A *release* says so, for the place of the wait in its component; whatever
 * comes after that place, by the clocks, comes after what the release knows. Clocks are made at submission and learn
 * nothing later, so releases are looked up when two records are compared (sim_access_record_after): of each component
 * the last release that the record comes after, which knows what those before it know. All that comes before a write
 * has run when the write runs; so what a release knows is complete when it is made.
 *
 * A wait looks at memory, and any time after its turn in the stream has come may be the time when it does. So it counts
 * from the first write of a stream that satisfies it then, whether or not the scheduler let it see that one. If the
 * value in memory is not the one that a stream wrote last, or that write had run when the value was not there, a
 * kernel, a copy or the host wrote it: then the wait comes after what the host knows, and after whatever was submitted
 * between it and its end, for all that is known. */
#include "check/check.h"
#include <stdlib.h>

typedef struct value_release {
    uint64_t position; /* of the wait, in its component */
    sim_known known;
    uint64_t over; /* the order when the host was first seen to know it all; 0: not yet */
} value_release;

/* The releases of one component, by position. */
typedef struct released_component {
    struct released_component *next;
    sim_component *component; /* held */
    value_release *at;
    size_t count;
    size_t capacity;
} released_component;

/* Waits that are not over, with what released them, once that is known. */
typedef struct awaited_word {
    sim_op *op;
    uint64_t since;   /* its order */
    uint64_t written; /* so many writes had run when the value was last known not to be there */
    bool released;
    sim_known by;
} awaited_word;

enum { LEAST_RELEASES = 64 }; /* that are not worth forgetting */

/* Guarded by sim.lock. */
static struct {
    released_component *components;
    size_t releases;
    size_t limit;
    awaited_word *waits;
    size_t wait_count;
    size_t wait_capacity;
} values;

/* ---- what is known ---- */

void sim_known_drop(sim_known *known)
{
    sim_clock_drop(known->clock);
    *known = (sim_known){0};
}

static uint64_t larger(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

static void join(sim_known *known, const sim_known *more)
{
    sim_point point = {.knows = more->clock};
    sim_clock_join(&known->clock, 0, &point);
    known->host_order = larger(known->host_order, more->host_order);
    known->until = larger(known->until, more->until);
}

/* The last release of the component at that position or before. */
static value_release *release_at(const released_component *of_component, uint64_t position)
{
    size_t low = 0;
    size_t high = of_component->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (of_component->at[middle].position <= position)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &of_component->at[low - 1] : NULL;
}

/* What is known comes after releases, too. Each knows all that those before it know. */
static void join_releases(sim_known *known)
{
    for (const released_component *of_component = values.components; of_component; of_component = of_component->next) {
        const sim_component *component = of_component->component;
        const value_release *release =
            release_at(of_component, sim_clock_position(known->clock, component->slot, component->uid));
        if (release)
            join(known, &release->known);
    }
}

/* ---- what records come after ---- */

bool sim_values_released(void)
{
    return values.components != NULL;
}

uint64_t sim_values_known(const sim_access_record *record, const sim_component *component)
{
    uint64_t most = 0;
    for (const released_component *of_component = values.components; of_component; of_component = of_component->next) {
        const value_release *release =
            release_at(of_component, sim_access_record_asked(record, of_component->component));
        most = larger(most, release ? sim_clock_position(release->known.clock, component->slot, component->uid) : 0);
    }
    return most;
}

bool sim_values_after(const sim_access_record *later, const sim_access_record *earlier)
{
    const sim_point *at = &earlier->at;
    for (const released_component *of_component = values.components; of_component; of_component = of_component->next) {
        const value_release *release =
            release_at(of_component, sim_access_record_asked(later, of_component->component));
        if (!release)
            continue;
        const sim_known *known = &release->known;
        bool done = earlier->component ? at->position <= sim_clock_position(known->clock, at->slot, at->component)
                                       : earlier->order <= known->host_order;
        if (done || (later->order < earlier->order && earlier->order <= known->until))
            return true;
    }
    return false;
}

uint64_t sim_values_until(const sim_access_record *record)
{
    uint64_t until = record->order;
    for (const released_component *of_component = values.components; of_component; of_component = of_component->next) {
        const value_release *release =
            release_at(of_component, sim_access_record_asked(record, of_component->component));
        until = larger(until, release ? larger(release->known.host_order, release->known.until) : 0);
    }
    return until;
}

/* ---- keeping releases ---- */

static void drop_first(released_component *of_component, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sim_known_drop(&of_component->at[i].known);
    of_component->count -= count;
    values.releases -= count;
    sim_check.other_bytes -= count * sizeof *of_component->at;
    for (size_t i = 0; i < of_component->count; i++)
        of_component->at[i] = of_component->at[i + count];
}

/* A release that the host knows, and no pending record is older than that, adds nothing: every later operation
 * comes after it all by what the host knows. */
static void forget_known(released_component *of_component)
{
    uint64_t oldest = sim_access_record_oldest_pending();
    size_t needless = 0;
    for (size_t i = 0; i < of_component->count; i++) {
        value_release *release = &of_component->at[i];
        const sim_component *component = of_component->component;
        if (release->position > sim_clock_position(sim_order.host_knows, component->slot, component->uid))
            break;
        if (release->over == 0) {
            sim_point point = {.knows = release->known.clock};
            sim_clock_join(&sim_order.host_knows, 0, &point);
            release->over = sim_check.order;
        }
        needless += needless == i && release->over < oldest;
    }
    drop_first(of_component, needless);
}

static void free_component(released_component **link)
{
    released_component *of_component = *link;
    *link = of_component->next;
    drop_first(of_component, of_component->count);
    sim_component_drop(of_component->component);
    free(of_component->at);
    free(of_component);
}

static void forget_needless(void)
{
    if (values.releases < values.limit)
        return;
    for (released_component **link = &values.components; *link;) {
        forget_known(*link);
        if ((*link)->count == 0)
            free_component(link);
        else
            link = &(*link)->next;
    }
    values.limit = larger(LEAST_RELEASES, 2 * values.releases);
}

static released_component *released_of(sim_component *component)
{
    released_component *of_component = values.components;
    while (of_component && of_component->component != component)
        of_component = of_component->next;
    if (of_component)
        return of_component;
    of_component = calloc(1, sizeof *of_component);
    if (of_component) {
        of_component->component = sim_component_hold(component);
        of_component->next = values.components;
        values.components = of_component;
    }
    return of_component;
}

static bool room_for_one(released_component *of_component)
{
    if (of_component->count < of_component->capacity)
        return true;
    size_t capacity = of_component->capacity ? 2 * of_component->capacity : 8;
    value_release *at = realloc(of_component->at, capacity * sizeof(*at));
    if (!at)
        return false;
    of_component->at = at;
    of_component->capacity = capacity;
    return true;
}

/* The waits of a component are over in its order. Takes over what is known. */
static void enter_release(const sim_op *wait, sim_known *known)
{
    forget_needless();
    released_component *of_component = released_of(wait->queue ? wait->queue->component : wait->chain);
    if (!of_component || !room_for_one(of_component)) {
        sim_known_drop(known);
        sim_check_give_up();
        return;
    }
    if (of_component->count > 0)
        join(known, &of_component->at[of_component->count - 1].known);
    of_component->at[of_component->count++] = (value_release){.position = wait->at.position, .known = *known};
    values.releases++;
    sim_check.other_bytes += sizeof *of_component->at;
    sim_check.pending_changes++; /* what was open may not be any more */
}

/* ---- waits ---- */

static awaited_word *awaiting_of(const sim_op *op)
{
    for (size_t i = 0; i < values.wait_count; i++)
        if (values.waits[i].op == op)
            return &values.waits[i];
    return NULL;
}

static bool room_for_wait(void)
{
    if (values.wait_count < values.wait_capacity)
        return true;
    size_t capacity = values.wait_capacity ? 2 * values.wait_capacity : 8;
    awaited_word *waits = realloc(values.waits, capacity * sizeof(*waits));
    if (!waits)
        return false;
    values.waits = waits;
    values.wait_capacity = capacity;
    return true;
}

void sim_values_awaited(sim_op *op)
{
    if (!room_for_wait()) {
        sim_check_give_up();
        return;
    }
    bool there = sim_value_there(op);
    values.waits[values.wait_count++] = (awaited_word){
        .op = op,
        .since = sim_check.order,
        .written = there ? 0 : sim_check.values_written,
        .released = there && op->blockers == 0, /* it comes after what was submitted, and needs no more */
    };
}

static void forget_wait(awaited_word *wait)
{
    sim_known_drop(&wait->by);
    *wait = values.waits[--values.wait_count];
}

void sim_values_ended(const sim_op *op)
{
    awaited_word *wait = awaiting_of(op);
    if (wait)
        forget_wait(wait);
}

/* Records what let the wait go on: the stream that wrote its word last, or an unknown writer. */
static void record_release(awaited_word *wait)
{
    const sim_known *last = sim_shadows_value_last(wait->op, wait->written);
    wait->released = true;
    if (last) {
        join(&wait->by, last);
        return;
    }
    sim_known known = {
        .clock = sim_clock_hold(sim_order.host_knows), .host_order = sim_check.order, .until = sim_check.order};
    join_releases(&known);
    wait->by = known;
}

/* A write begins to run: the waits that what is there lets go on do not come after it. */
static void look_before(void)
{
    for (size_t i = 0; i < values.wait_count; i++) {
        awaited_word *wait = &values.waits[i];
        if (!wait->released && wait->op->blockers == 0 && sim_value_there(wait->op))
            record_release(wait);
    }
}

/* What comes before the write: all of it has run. A host function that ran among it may have heard from the host. */
static sim_known before(const sim_op *op)
{
    uint64_t told = sim_check.modes & STRATA_SIM_CHECK_HOST_FUNCTIONS ? 0 : op->told;
    sim_known known = {.host_order = larger(op->record->order, told)};
    sim_point host = {.knows = op->record->host_knew};
    sim_clock_join(&known.clock, 0, &op->at);
    sim_clock_join(&known.clock, 0, &host);
    join_releases(&known);
    return known;
}

static void end_wait(sim_op *op)
{
    awaited_word unseen = {.op = op}; /* submitted before the checker was turned on */
    awaited_word *found = awaiting_of(op);
    awaited_word wait = found ? *found : unseen;
    if (found)
        *found = values.waits[--values.wait_count];
    if (!wait.released)
        record_release(&wait);
    bool known = wait.by.host_order <= wait.since && wait.by.until <= wait.since; /* by the wait since its submission */
    if (known || op->at.component == 0)
        sim_known_drop(&wait.by);
    else
        enter_release(op, &wait.by);
}

void sim_values_running(sim_op *op)
{
    if (op->kind == SIM_OP_WAIT_VALUE) {
        end_wait(op);
    } else if (op->kind == SIM_OP_WRITE_VALUE && op->record) {
        look_before();
        sim_known known = before(op);
        sim_shadows_value_runs(op, &known);
    }
}

void sim_values_close(void)
{
    while (values.wait_count > 0)
        forget_wait(&values.waits[0]);
    while (values.components)
        free_component(&values.components);
    free(values.waits);
    values.waits = NULL;
    values.wait_capacity = 0;
    values.limit = 0;
}
