/* Waits for values: what comes before the end of one.
 *
 * A wait ends when it finds a value that satisfies it, at any moment from its turn on. It comes after the writes of the
 * bytes that it found, and after all that comes before these, as an acquire does after a release. Which writes these
 * are differs between runs. So all that a wait may have found count, its *alternatives*: writes of its bytes that
 * together satisfy it, none of which comes after the wait, and none of which is overwritten by a write that comes after
 * it and before the wait. One alternative is what was there before all writes. The program may rely on what is before
 * all alternatives, and on nothing else. A write that does not satisfy the wait orders nothing.
 *
 * A *release* stores the alternatives for the wait's place in its component; whatever comes after that place, by the
 * clocks, comes after what the release knows. Clocks do not change after submission, so releases are looked up when two
 * records are compared (sim_access_record_after): of each component the last release that the record comes after, which
 * knows what those before it know. A write that runs after the end of the wait may be one more alternative: then the
 * release, and all that rests on it, knows less, and pairs that it ordered are judged again (value_doubts.c).
 *
 * A release is final when the host knows the wait to be over, and all has run that was submitted before the host knew:
 * later writes come after the wait. */
#include "check/check.h"
#include <stdlib.h>
#include <string.h>

enum { WORD = 8, LEAST_RELEASES = 64, MOST_ALTERNATIVES = 8, MOST_TRIES = 4096, MOST_OPEN = 256, MOST_RELEASES = 4096 };

/* Writes that together make a value. */
typedef struct alternative {
    sim_word_write *by[WORD]; /* held */
    unsigned count;
    sim_known known;
} alternative;

typedef struct value_wait {
    sim_value_word *word; /* held; NULL: its writes are not looked at any more */
    unsigned mask;        /* its bytes in the word */
    uint64_t address;
    uint64_t value;
    unsigned width;
    unsigned flags;
    sim_word_write as_write; /* its place, as sim_known_has reads it */
    sim_known asked;         /* what comes before it by edges */
} value_wait;

typedef struct sim_value_release {
    uint64_t position; /* of the wait */
    struct sim_value_release *next_of_word;
    value_wait wait;
    alternative at[MOST_ALTERNATIVES];
    unsigned count;
    sim_known own;   /* common to the alternatives */
    sim_known known; /* with what the releases before it know */
    uint64_t seen;   /* order when the host was first seen to know the wait to be over; 0: not yet */
    uint64_t over;   /* order when it was final */
} sim_value_release;

typedef struct released_component {
    struct released_component *next;
    sim_component *component; /* held */
    sim_known forgotten;      /* what the releases knew that are gone */
    sim_value_release **at;
    size_t count;
    size_t capacity;
} released_component;

/* Unfinished waits. */
typedef struct awaited_word {
    sim_op *op;
    sim_value_word *word; /* held */
} awaited_word;

/* Guarded by sim.lock. */
static struct {
    released_component *components;
    size_t releases;
    size_t limit;
    awaited_word *waits;
    size_t wait_count;
    size_t wait_capacity;
} values;

static uint64_t larger(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

static uint64_t smaller(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* ---- what is known ---- */

/* The last release of the component at that position or before. */
static sim_value_release *release_at(const released_component *of_component, uint64_t position)
{
    size_t low = 0;
    size_t high = of_component->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (of_component->at[middle]->position <= position)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? of_component->at[low - 1] : NULL;
}

/* One pass suffices: what a release knows is closed. */
sim_known sim_values_fold(const sim_known *asked)
{
    sim_known known = {.clock = sim_clock_hold(asked->clock), .host_order = asked->host_order};
    for (const released_component *of_component = values.components; of_component; of_component = of_component->next) {
        const sim_component *component = of_component->component;
        const sim_value_release *release =
            release_at(of_component, sim_clock_position(known.clock, component->slot, component->uid));
        if (release)
            sim_known_join(&known, &release->known);
    }
    return known;
}

static bool contains(const sim_known *known, const sim_known *less)
{
    if (less->host_order > known->host_order)
        return false;
    for (uint32_t slot = 0; less->clock && slot < less->clock->slots; slot++) {
        const sim_clock_entry *entry = &less->clock->at[slot];
        if (entry->component != 0 && entry->position > sim_clock_position(known->clock, slot, entry->component))
            return false;
    }
    return true;
}

static sim_known common(const sim_known *one, const sim_known *other)
{
    sim_known known = {.host_order = smaller(one->host_order, other->host_order)};
    for (uint32_t slot = 0; one->clock && slot < one->clock->slots; slot++) {
        const sim_clock_entry *entry = &one->clock->at[slot];
        uint64_t position = entry->component != 0 ? sim_clock_position(other->clock, slot, entry->component) : 0;
        sim_point point = {.slot = slot, .component = entry->component, .position = smaller(position, entry->position)};
        if (point.position > 0)
            sim_clock_join(&known.clock, 0, &point);
    }
    return known;
}

static void replace(sim_known *known, sim_known by)
{
    sim_known_drop(known);
    *known = by;
}

/* ---- what records come after ---- */

bool sim_values_released(void)
{
    return values.components != NULL;
}

bool sim_values_after(const sim_access_record *later, const sim_access_record *earlier)
{
    const sim_point *at = &earlier->at;
    for (const released_component *of_component = values.components; of_component; of_component = of_component->next) {
        const sim_value_release *release =
            release_at(of_component, sim_access_record_asked(later, of_component->component));
        if (!release)
            continue;
        const sim_known *known = &release->known;
        if (earlier->component ? at->position <= sim_clock_position(known->clock, at->slot, at->component)
                               : earlier->order <= known->host_order)
            return true;
    }
    return false;
}

uint64_t sim_values_known(const sim_access_record *record, const sim_component *component)
{
    uint64_t most = 0;
    for (const released_component *of_component = values.components; of_component; of_component = of_component->next) {
        const sim_value_release *release =
            release_at(of_component, sim_access_record_asked(record, of_component->component));
        most = larger(most, release ? sim_clock_position(release->known.clock, component->slot, component->uid) : 0);
    }
    return most;
}

uint64_t sim_values_until(const sim_access_record *record)
{
    uint64_t until = record->order;
    for (const released_component *of_component = values.components; of_component; of_component = of_component->next) {
        const sim_value_release *release =
            release_at(of_component, sim_access_record_asked(record, of_component->component));
        until = larger(until, release ? release->known.host_order : 0);
    }
    return until;
}

/* ---- alternatives ---- */

static void drop_alternative(alternative *one)
{
    for (unsigned i = 0; i < one->count; i++)
        sim_word_write_drop(one->by[i]);
    sim_known_drop(&one->known);
}

static sim_known known_to(const alternative *one)
{
    sim_known known = {0};
    for (unsigned i = 0; i < one->count; i++)
        sim_known_join(&known, &one->by[i]->known);
    return known;
}

/* Looks again what the alternative knows. It only ever becomes less, since one may stand for several that are not kept.
 */
static void know_again(alternative *one)
{
    sim_known known = known_to(one);
    replace(&one->known, common(&one->known, &known));
    sim_known_drop(&known);
}

/* Takes over the alternative. One that comes after another adds nothing. False: it added nothing. */
static bool add_alternative(sim_value_release *release, alternative *one)
{
    for (unsigned i = 0; i < release->count; i++) {
        if (contains(&one->known, &release->at[i].known)) {
            drop_alternative(one);
            return false;
        }
    }
    for (unsigned i = release->count; i-- > 0;) {
        if (contains(&release->at[i].known, &one->known)) {
            drop_alternative(&release->at[i]);
            release->at[i] = release->at[--release->count];
        }
    }
    if (release->count == MOST_ALTERNATIVES) { /* what is common to the last one and this one */
        alternative *last = &release->at[MOST_ALTERNATIVES - 1];
        replace(&last->known, common(&last->known, &one->known));
        drop_alternative(one);
        return true;
    }
    release->at[release->count++] = *one;
    return true;
}

/* One choice of a write for each byte of the wait. */
typedef struct value_choice {
    sim_value_release *release;
    const sim_known *before;      /* all that comes before the wait */
    const sim_word_write *needed; /* must be among them; NULL: none must */
    sim_word_write *by[WORD];     /* by byte of the word */
    unsigned tries;
    bool changed;
} value_choice;

static bool comes_after(const sim_word_write *write, const value_wait *wait)
{
    return wait->as_write.component && sim_known_has(&write->known, &wait->as_write);
}

/* Whether a write of that byte after this one comes before the wait. */
static bool is_overwritten(const value_choice *choice, const sim_word_write *write, unsigned byte)
{
    const sim_value_word *word = choice->release->wait.word;
    for (size_t i = 0; i < word->count; i++) {
        const sim_word_write *other = word->writes[i];
        if (other != write && (other->mask >> byte & 1) != 0 && sim_known_has(&other->known, write) &&
            sim_known_has(choice->before, other))
            return true;
    }
    return false;
}

static bool may_supply(const value_choice *choice, const sim_word_write *write, unsigned byte)
{
    return (write->mask >> byte & 1) != 0 && !comes_after(write, &choice->release->wait) &&
           !is_overwritten(choice, write, byte);
}

/* Whether none of the chosen writes overwrites bytes for which another one, known to come before it, is chosen. */
static bool is_consistent(const value_choice *choice)
{
    unsigned mask = choice->release->wait.mask;
    for (unsigned i = 0; i < WORD; i++) {
        for (unsigned j = 0; j < WORD && (mask >> i & 1) != 0; j++) {
            const sim_word_write *other = choice->by[j];
            if ((mask >> j & 1) != 0 && other != choice->by[i] && (other->mask >> i & 1) != 0 &&
                sim_known_has(&other->known, choice->by[i]))
                return false;
        }
    }
    return true;
}

static bool satisfies(const value_choice *choice)
{
    const value_wait *wait = &choice->release->wait;
    unsigned char bytes[WORD] = {0};
    for (unsigned i = 0; i < WORD; i++)
        if ((wait->mask >> i & 1) != 0)
            bytes[i] = choice->by[i]->bytes[i];
    uint64_t found = 0;
    memcpy(&found, bytes + wait->address % WORD, wait->width);
    return sim_value_satisfies(found, wait->value, wait->width, wait->flags);
}

static void try_choice(value_choice *choice)
{
    unsigned mask = choice->release->wait.mask;
    bool has_needed = !choice->needed;
    alternative one = {.count = 0};
    if (!satisfies(choice) || !is_consistent(choice))
        return;
    for (unsigned i = 0; i < WORD; i++) {
        bool known = (mask >> i & 1) == 0;
        has_needed = has_needed || (!known && choice->by[i] == choice->needed);
        for (unsigned j = 0; j < one.count; j++)
            known = known || one.by[j] == choice->by[i];
        if (!known)
            one.by[one.count++] = sim_word_write_hold(choice->by[i]);
    }
    one.known = known_to(&one);
    if (!has_needed)
        drop_alternative(&one);
    else if (add_alternative(choice->release, &one))
        choice->changed = true;
}

/* Sets *end behind the bytes from this one on that each write of the word covers all or none of. */
static void find_part(const value_wait *wait, unsigned byte, unsigned *end)
{
    const sim_value_word *word = wait->word;
    for (*end = byte + 1; *end < WORD && (wait->mask >> *end & 1) != 0; ++*end)
        for (size_t i = 0; i < word->count; i++)
            if ((word->writes[i]->mask >> byte & 1) != (word->writes[i]->mask >> *end & 1))
                return;
}

static void choose_from(value_choice *choice, unsigned byte)
{
    const value_wait *wait = &choice->release->wait;
    while (byte < WORD && (wait->mask >> byte & 1) == 0)
        byte++;
    if (byte == WORD) {
        try_choice(choice);
        return;
    }
    unsigned end;
    find_part(wait, byte, &end);
    bool whole = end - byte == wait->width;
    for (size_t i = 0; i < wait->word->count && choice->tries < MOST_TRIES; i++) {
        if (whole && choice->needed && choice->needed != wait->word->writes[i])
            continue;
        if (!may_supply(choice, wait->word->writes[i], byte))
            continue;
        choice->tries++;
        for (unsigned at = byte; at < end; at++)
            choice->by[at] = wait->word->writes[i];
        choose_from(choice, end);
    }
}

/* Enters all alternatives, or those with that write. True: there are more. */
static bool find_alternatives(sim_value_release *release, const sim_word_write *needed)
{
    sim_known before = sim_values_fold(&release->wait.asked);
    value_choice choice = {.release = release, .before = &before, .needed = needed};
    choose_from(&choice, 0);
    sim_known_drop(&before);
    return choice.changed;
}

/* Takes what wrote the bytes last as the alternative, for a value that came in a way that is not known. */
static void take_last(sim_value_release *release)
{
    const sim_value_word *word = release->wait.word;
    alternative one = {.count = 0};
    unsigned mask = release->wait.mask;
    for (size_t i = word->count; i-- > 0 && mask != 0; mask &= ~word->writes[i]->mask)
        if ((word->writes[i]->mask & mask) != 0)
            one.by[one.count++] = sim_word_write_hold(word->writes[i]);
    one.known = known_to(&one);
    add_alternative(release, &one);
}

/* Sets what the release knows by its alternatives: what is common to all. */
static void know_own(sim_value_release *release)
{
    sim_known known = {0};
    for (unsigned i = 0; i < release->count; i++) {
        if (i == 0)
            sim_known_join(&known, &release->at[i].known);
        else
            replace(&known, common(&known, &release->at[i].known));
    }
    replace(&release->own, known);
}

/* ---- keeping releases ---- */

static void close_wait(value_wait *wait)
{
    if (!wait->word)
        return;
    sim_value_release **link = &wait->word->releases;
    while (&(*link)->wait != wait)
        link = &(*link)->next_of_word;
    *link = (*link)->next_of_word;
    wait->word->release_count--;
    sim_value_word_drop(wait->word);
    wait->word = NULL;
}

static void open_wait(sim_value_release *release, sim_value_word *word)
{
    sim_value_release *last = word->releases;
    while (last && last->next_of_word)
        last = last->next_of_word;
    if (word->release_count == MOST_OPEN)
        close_wait(&last->wait);
    release->wait.word = sim_value_word_hold(word);
    release->next_of_word = word->releases;
    word->releases = release;
    word->release_count++;
}

static void free_release(sim_value_release *release)
{
    for (unsigned i = 0; i < release->count; i++)
        drop_alternative(&release->at[i]);
    close_wait(&release->wait);
    sim_known_drop(&release->wait.asked);
    sim_component_drop(release->wait.as_write.component);
    sim_known_drop(&release->own);
    sim_known_drop(&release->known);
    free(release);
    sim_check.other_bytes -= sizeof *release;
}

/* Adds to `asked` what it comes after by the first `count` releases, which are about to go. */
static void bake_in(const released_component *of_component, size_t count, sim_known *asked)
{
    const sim_component *component = of_component->component;
    released_component going = *of_component;
    going.count = count;
    const sim_value_release *release =
        release_at(&going, sim_clock_position(asked->clock, component->slot, component->uid));
    if (release)
        sim_known_join(asked, &release->known);
}

static void bake_all(const released_component *of_component, size_t count)
{
    for (sim_word_write *write = sim_word_writes_first(); write && count > 0; write = write->next)
        bake_in(of_component, count, &write->asked);
    for (released_component *other = values.components; other && count > 0; other = other->next)
        for (size_t i = 0; i < other->count; i++)
            bake_in(of_component, count, &other->at[i]->wait.asked);
}

static void drop_first(released_component *of_component, size_t count)
{
    if (count > 0)
        sim_known_join(&of_component->forgotten, &of_component->at[count - 1]->known);
    for (size_t i = 0; i < count; i++)
        free_release(of_component->at[i]);
    values.releases -= count;
    of_component->count -= count;
    for (size_t i = 0; i < of_component->count; i++)
        of_component->at[i] = of_component->at[i + count];
}

static bool is_known_to_host(const released_component *of_component, const sim_value_release *release)
{
    const sim_component *component = of_component->component;
    return release->position <= sim_clock_position(sim_order.host_knows, component->slot, component->uid);
}

/* A final release known to the host, with no older record pending, adds nothing: every later operation comes after it
 * all by what the host knows. */
static size_t settle_component(released_component *of_component, bool *progress)
{
    uint64_t oldest = sim_access_record_oldest_pending();
    size_t needless = 0;
    for (size_t i = 0; i < of_component->count && is_known_to_host(of_component, of_component->at[i]); i++) {
        sim_value_release *release = of_component->at[i];
        *progress = *progress || release->over == 0;
        if (release->seen == 0)
            release->seen = sim_check.order;
        if (release->over == 0 && release->seen < oldest) {
            sim_point point = {.knows = release->known.clock};
            sim_clock_join(&sim_order.host_knows, 0, &point);
            close_wait(&release->wait);
            release->over = sim_check.order;
        }
        needless += needless == i && release->over != 0 && release->over < oldest;
    }
    return needless;
}

static void free_component(released_component **link)
{
    released_component *of_component = *link;
    *link = of_component->next;
    drop_first(of_component, of_component->count);
    sim_component_drop(of_component->component);
    sim_known_drop(&of_component->forgotten);
    free(of_component->at);
    free(of_component);
}

static void forget_needless(void)
{
    bool progress = false;
    if (values.releases < values.limit)
        return;
    for (released_component **link = &values.components; *link;) {
        size_t needless = settle_component(*link, &progress);
        bake_all(*link, needless);
        drop_first(*link, needless);
        if ((*link)->count == 0)
            free_component(link);
        else
            link = &(*link)->next;
    }
    sim_doubts_settle();
    values.limit = LEAST_RELEASES + (progress ? 1 : 2) * values.releases;
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
    sim_value_release **at = realloc(of_component->at, capacity * sizeof(*at));
    if (!at)
        return false;
    of_component->at = at;
    of_component->capacity = capacity;
    return true;
}

static void know_all(const released_component *of_component, size_t index)
{
    sim_value_release *release = of_component->at[index];
    sim_known known = {0};
    sim_known_join(&known, &release->own);
    sim_known_join(&known, index > 0 ? &of_component->at[index - 1]->known : &of_component->forgotten);
    replace(&release->known, known);
}

/* Drops half of the releases if there are too many, since the host has not settled any. Later ones know what they know.
 */
static void forget_oldest(released_component *of_component)
{
    if (of_component->count < MOST_RELEASES)
        return;
    bake_all(of_component, MOST_RELEASES / 2);
    drop_first(of_component, MOST_RELEASES / 2);
    sim_doubts_settle();
}

/* Takes over the release. The waits of a component end in its order. */
static void enter_release(sim_value_release *release, sim_component *component)
{
    forget_needless();
    released_component *of_component = released_of(component);
    if (!of_component || !room_for_one(of_component)) {
        free_release(release);
        sim_check_give_up();
        return;
    }
    forget_oldest(of_component);
    of_component->at[of_component->count++] = release;
    values.releases++;
    know_all(of_component, of_component->count - 1);
    sim_check.pending_changes++; /* invalidates `open` */
}

/* ---- less is known ---- */

static bool refold_writes(void)
{
    bool changed = false;
    for (sim_word_write *write = sim_word_writes_first(); write; write = write->next) {
        sim_known known = sim_values_fold(&write->asked);
        changed = changed || !contains(&known, &write->known);
        replace(&write->known, known);
    }
    return changed;
}

static void refold_releases(void)
{
    for (released_component *of_component = values.components; of_component; of_component = of_component->next) {
        for (size_t i = 0; i < of_component->count; i++) {
            sim_value_release *release = of_component->at[i];
            for (unsigned j = 0; j < release->count; j++)
                know_again(&release->at[j]);
            know_own(release);
            know_all(of_component, i);
        }
    }
}

static void know_less(void)
{
    refold_releases();
    while (refold_writes())
        refold_releases();
    sim_check.pending_changes++;
    sim_doubts_judge();
}

/* Whether a write can be no alternative: it comes after all of some alternative, or after the wait. */
static bool adds_nothing(const sim_value_release *release, const sim_word_write *write)
{
    for (unsigned i = 0; i < release->count; i++) {
        bool all = true;
        for (unsigned j = 0; j < release->at[i].count; j++)
            all = all && sim_known_has(&write->known, release->at[i].by[j]);
        if (all)
            return true;
    }
    return comes_after(write, &release->wait);
}

void sim_values_written(sim_value_word *word, const sim_word_write *write)
{
    bool less = false;
    for (sim_value_release *release = word->releases; release; release = release->next_of_word)
        if ((write->mask & release->wait.mask) != 0 && !adds_nothing(release, write))
            less = find_alternatives(release, write) || less;
    if (less)
        know_less();
}

void sim_values_word_gone(sim_value_word *word)
{
    while (word->releases)
        close_wait(&word->releases->wait);
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
    sim_value_word *word = sim_value_word_at(op->work.value.address, op->work.value.width);
    if (!word)
        return;
    if (!room_for_wait()) {
        sim_check_give_up();
        return;
    }
    word->waits++;
    values.waits[values.wait_count++] = (awaited_word){.op = op, .word = sim_value_word_hold(word)};
}

static void forget_wait(awaited_word *wait)
{
    wait->word->waits--;
    sim_value_word_drop(wait->word);
    *wait = values.waits[--values.wait_count];
}

void sim_values_ended(const sim_op *op)
{
    awaited_word *wait = awaiting_of(op);
    if (wait)
        forget_wait(wait);
}

/* What comes before a wait, without the wait itself, whose own release would be found at its place. */
static sim_known before_wait(const sim_access_record *record)
{
    sim_access_record before = *record;
    before.at.position--;
    return sim_known_asked(&before);
}

static sim_value_release *make_release(const sim_op *op, sim_value_word *word)
{
    sim_value_release *release = calloc(1, sizeof *release);
    if (!release) {
        sim_check_give_up();
        return NULL;
    }
    release->position = op->at.position;
    release->wait = (value_wait){
        .mask = sim_value_mask(op->work.value.address, op->work.value.width),
        .address = op->work.value.address,
        .value = op->work.value.value,
        .width = op->work.value.width,
        .flags = op->work.value.flags,
        .asked = before_wait(op->record),
    };
    release->wait.as_write.component = sim_component_hold(op->record->component);
    release->wait.as_write.position = op->at.position;
    sim_check.other_bytes += sizeof *release;
    open_wait(release, word);
    return release;
}

static void end_wait(sim_op *op)
{
    const awaited_word *wait = awaiting_of(op);
    if (!wait || !wait->word->linked || op->at.component == 0 || !op->record)
        return;
    sim_value_word_look(wait->word);
    sim_value_release *release = make_release(op, wait->word);
    if (!release)
        return;
    find_alternatives(release, NULL);
    if (release->count == 0)
        take_last(release);
    know_own(release);
    if (contains(&release->wait.asked, &release->own))
        free_release(release); /* nothing new, and never more */
    else
        enter_release(release, op->record->component);
}

void sim_values_running(sim_op *op)
{
    if (sim_value_words_any())
        sim_value_words_look();
    if (op->kind == SIM_OP_WAIT_VALUE)
        end_wait(op);
}

/* ---- polls by the host ---- */

/* Adds a pending write as an alternative: in another run it may have been what the host found. */
static void add_pending(void *data, const sim_access_record *record)
{
    sim_value_release *release = data;
    const sim_op *op = record->op;
    const value_wait *wait = &release->wait;
    if (!op || op->kind != SIM_OP_WRITE_VALUE)
        return;
    uint64_t offset = wait->address - op->work.value.address;
    if (offset >= op->work.value.width || offset + wait->width > op->work.value.width)
        return;
    uint64_t value = op->work.value.value >> (8 * offset);
    value = wait->width == sizeof(uint32_t) ? (uint32_t)value : value;
    if (!sim_value_satisfies(value, wait->value, wait->width, wait->flags))
        return;
    sim_known asked = sim_known_asked(record);
    alternative one = {.known = sim_values_fold(&asked)};
    sim_known_drop(&asked);
    add_alternative(release, &one);
}

void sim_values_polled(const sim_value_request *value)
{
    sim_value_word *word = sim_value_word_at(value->address, value->width);
    if (!word)
        return;
    sim_value_word_look(word);
    sim_value_release release = {0};
    release.wait = (value_wait){
        .word = word,
        .mask = sim_value_mask(value->address, value->width),
        .address = value->address,
        .value = value->value,
        .width = value->width,
        .flags = value->flags,
        .asked = {.clock = sim_clock_hold(sim_order.host_knows), .host_order = sim_check.order},
    };
    find_alternatives(&release, NULL);
    if (release.count == 0)
        take_last(&release);
    sim_access_records_pending(add_pending, &release);
    know_own(&release);
    sim_point point = {.knows = release.own.clock};
    sim_order.joined = false;
    sim_host_join(&point);
    sim_edge_counted(!sim_order.joined);
    for (unsigned i = 0; i < release.count; i++)
        drop_alternative(&release.at[i]);
    sim_known_drop(&release.own);
    sim_known_drop(&release.wait.asked);
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
    sim_doubts_close();
    sim_value_words_close();
}
