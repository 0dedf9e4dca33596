/* Words that streams wait for or write values to: what wrote their bytes.
 *
 * A *word* is eight aligned bytes, known from the first value written to it or awaited in it, so that a wait of 32 bits
 * and a write of 64 meet. It has the *writes* to its bytes, in the order in which they ran: values, copies, fills and
 * kernels after they ran, changes by the host when they are first seen. The first write, the *base*, stands for what
 * was there before; what finished operations wrote last is taken from the cells.
 *
 * A write that another covers, and that no wait can see any more, is dropped. */
#include "check/check.h"
#include <stdlib.h>
#include <string.h>

enum { WORD = 8, HALF = 4, MOST_WRITES = 64 };

/* Guarded by sim.lock. */
static struct {
    sim_tree by_place;
    sim_value_word *of_host; /* by next_of_host: in memory that the host writes */
    sim_word_write *first;   /* all writes, by next */
    size_t count;
    sim_clock *functions; /* host functions that have begun */
} words;

static sim_value_word *word_of(sim_node *node)
{
    return (sim_value_word *)(void *)node;
}

static uint64_t larger(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* ---- what is known ---- */

void sim_known_drop(sim_known *known)
{
    sim_clock_drop(known->clock);
    *known = (sim_known){0};
}

void sim_known_join(sim_known *known, const sim_known *more)
{
    sim_point point = {.knows = more->clock};
    sim_clock_join(&known->clock, 0, &point);
    known->host_order = larger(known->host_order, more->host_order);
}

bool sim_known_has(const sim_known *known, const sim_word_write *write)
{
    if (!write->component)
        return write->order <= known->host_order;
    return write->position <= sim_clock_position(known->clock, write->component->slot, write->component->uid);
}

/* A host function before it may have heard from the host until it returned. */
sim_known sim_known_asked(const sim_access_record *record)
{
    uint64_t told = sim_check.modes & STRATA_SIM_CHECK_HOST_FUNCTIONS ? 0 : record->told;
    sim_known known = {.host_order = larger(record->order, told)};
    sim_point host = {.knows = record->host_knew};
    sim_clock_join(&known.clock, 0, &record->at);
    sim_clock_join(&known.clock, 0, &host);
    return known;
}

/* ---- writes ---- */

sim_word_write *sim_word_write_hold(sim_word_write *write)
{
    write->references++;
    return write;
}

void sim_word_write_drop(sim_word_write *write)
{
    if (--write->references > 0)
        return;
    *write->link = write->next;
    if (write->next)
        write->next->link = write->link;
    sim_known_drop(&write->asked);
    sim_known_drop(&write->known);
    sim_component_drop(write->component);
    sim_check.other_bytes -= sizeof *write;
    free(write);
}

sim_word_write *sim_word_writes_first(void)
{
    return words.first;
}

/* Makes a write by the record, or by the host, and takes over `asked`. NULL without memory. */
static sim_word_write *make_write(const sim_access_record *record, uint64_t order, unsigned mask, sim_known *asked)
{
    sim_word_write *write = calloc(1, sizeof *write);
    if (!write) {
        sim_known_drop(asked);
        return NULL;
    }
    write->references = 1;
    write->mask = mask;
    write->order = order;
    write->asked = *asked;
    if (record && record->component) {
        write->component = sim_component_hold(record->component);
        write->position = record->at.position;
    }
    write->next = words.first;
    write->link = &words.first;
    if (write->next)
        write->next->link = &write->next;
    words.first = write;
    sim_check.other_bytes += sizeof *write;
    return write;
}

static void remove_write(sim_value_word *word, size_t index)
{
    sim_word_write_drop(word->writes[index]);
    memmove(&word->writes[index], &word->writes[index + 1], (--word->count - index) * sizeof(*word->writes));
}

/* Every later wait comes after another write of the same bytes, which comes after this one. */
static bool is_over(const sim_value_word *word, size_t index)
{
    const sim_word_write *write = word->writes[index];
    sim_known host = {.clock = sim_order.host_knows, .host_order = sim_check.order};
    for (size_t i = index + 1; i < word->count; i++) {
        const sim_word_write *other = word->writes[i];
        if ((write->mask & ~other->mask) == 0 && sim_known_has(&other->known, write) && sim_known_has(&host, other))
            return true;
    }
    return false;
}

static bool make_room(sim_value_word *word)
{
    for (size_t i = word->waits == 0 ? word->count : 0; i-- > 0;)
        if (is_over(word, i))
            remove_write(word, i);
    if (word->count == MOST_WRITES)
        remove_write(word, 0);
    if (word->count < word->capacity)
        return true;
    size_t capacity = word->capacity ? 2 * word->capacity : 4;
    sim_word_write **writes = realloc(word->writes, capacity * sizeof(*writes));
    if (!writes)
        return false;
    word->writes = writes;
    word->capacity = capacity;
    return true;
}

/* Adds a write to the word, and takes it over. NULL: it could not be made, and the checker stops. */
static void add_write(sim_value_word *word, sim_word_write *write)
{
    if (!write || !make_room(word)) {
        if (write)
            sim_word_write_drop(write);
        sim_check_give_up();
        return;
    }
    memcpy(write->bytes, word->bytes, WORD);
    write->known = sim_values_fold(&write->asked);
    word->writes[word->count++] = write;
    sim_values_written(word, write);
}

/* Adds what the last writes of the bytes come after: an atomic update rests on what was there. */
static void join_last(const sim_value_word *word, unsigned mask, sim_known *known)
{
    for (size_t i = word->count; i-- > 0 && mask != 0; mask &= ~word->writes[i]->mask)
        if ((word->writes[i]->mask & mask) != 0)
            sim_known_join(known, &word->writes[i]->asked);
}

/* ---- bytes ---- */

/* Only the halves that are part of a value are read: the host may write the rest without atomics. */
static void read_bytes(const sim_value_word *word, unsigned char *bytes)
{
    const sim_block *block = sim_block_at(word->address);
    memcpy(bytes, word->bytes, WORD);
    bool closed = block && block->in_flight && sim_debugger_is_there();
    if (block && block->memory && !closed)
        sim_value_bytes(block->memory + (word->address - block->address), word->used, bytes);
}

static unsigned half_mask(unsigned half)
{
    return 0xfU << (half * HALF);
}

static void add_by_host(sim_value_word *word, unsigned mask)
{
    sim_known asked = {.clock = sim_clock_hold(sim_order.host_knows), .host_order = sim_check.order};
    sim_point functions = {.knows = words.functions};
    sim_clock_join(&asked.clock, 0, &functions);
    add_write(word, make_write(NULL, sim_check.order, mask, &asked));
}

/* What changed without an operation that wrote it, the host wrote. */
void sim_value_word_look(sim_value_word *word)
{
    unsigned char bytes[WORD];
    unsigned mask = 0;
    read_bytes(word, bytes);
    for (unsigned half = 0; half < WORD / HALF; half++)
        if (memcmp(bytes + half * HALF, word->bytes + half * HALF, HALF) != 0)
            mask |= half_mask(half);
    if (mask == 0)
        return;
    memcpy(word->bytes, bytes, WORD);
    add_by_host(word, mask);
}

void sim_value_words_look(void)
{
    for (sim_value_word *word = words.of_host; word; word = word->next_of_host)
        sim_value_word_look(word);
}

void sim_value_words_function(const sim_op *op)
{
    sim_clock_join(&words.functions, 0, &op->at);
}

/* ---- words ---- */

static unsigned mask_between(const sim_value_word *word, uint64_t begin, uint64_t end)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < WORD; i++)
        if (word->address + i >= begin && word->address + i < end)
            mask |= 1U << i;
    return mask;
}

/* Takes these bytes from the writes that are there, and adds to `known` what they come after. */
static void displace(sim_value_word *word, unsigned mask, sim_known *known)
{
    for (size_t i = word->count; i-- > 0;) {
        sim_word_write *write = word->writes[i];
        if ((write->mask & mask) == 0)
            continue;
        sim_known_join(known, &write->asked);
        write->mask &= ~mask;
        if (write->mask == 0)
            remove_write(word, i);
    }
}

/* An operation that has not run displaced what wrote the bytes, and comes after it: what comes before the operation
 * stands for that. */
static void add_author(void *data, const sim_access_record *record, uint64_t begin, uint64_t end, bool atomic)
{
    sim_value_word *word = data;
    unsigned mask = mask_between(word, begin, end);
    sim_known asked = {0};
    bool ran = !record->op;
    if (ran) {
        asked = sim_known_asked(record);
    } else {
        sim_access_record before = *record;
        before.at.position--;
        asked = sim_known_asked(&before);
    }
    sim_known displaced = {0};
    displace(word, mask, &displaced);
    if (atomic)
        sim_known_join(&asked, &displaced);
    sim_known_drop(&displaced);
    add_write(word, make_write(ran ? record : NULL, ran ? record->order : 0, mask, &asked));
}

static sim_value_word *make_word(const sim_value_place *place, uint64_t address)
{
    sim_value_word *word = calloc(1, sizeof *word);
    if (!word) {
        sim_check_give_up();
        return NULL;
    }
    word->references = 1;
    word->address = address;
    sim_tree_insert(&words.by_place, &word->by_place, place->key, place->tie);
    words.count++;
    word->linked = true;
    if (sim_block_is_host(place->block)) {
        word->host = true;
        word->next_of_host = words.of_host;
        words.of_host = word;
    }
    sim_check.other_bytes += sizeof *word;
    return word;
}

/* Takes these bytes of the word into use, with a write for what was there before. */
static void use(sim_value_word *word, unsigned mask)
{
    if ((mask & ~word->used) == 0)
        return;
    unsigned fresh = mask & ~word->used;
    word->used |= mask;
    read_bytes(word, word->bytes);
    sim_known nothing = {0};
    add_write(word, make_write(NULL, 0, fresh, &nothing));
    for (unsigned half = 0; half < WORD / HALF; half++)
        if ((fresh & half_mask(half)) != 0)
            sim_shadows_authors(word->address + half * HALF, HALF, add_author, word);
}

sim_value_word *sim_value_word_at(uint64_t address, unsigned width)
{
    uint64_t aligned = address / WORD * WORD;
    sim_value_place place = sim_shadows_place(aligned);
    if (!place.block)
        return NULL;
    sim_node *node = sim_tree_ceiling(&words.by_place, place.key, place.tie);
    bool found = node && node->key == place.key && node->tie == place.tie;
    sim_value_word *word = found ? word_of(node) : make_word(&place, aligned);
    if (word)
        use(word, sim_value_mask(address, width));
    return word;
}

unsigned sim_value_mask(uint64_t address, unsigned width)
{
    return ((1U << width) - 1) << (address % WORD);
}

sim_value_word *sim_value_word_hold(sim_value_word *word)
{
    word->references++;
    return word;
}

void sim_value_word_drop(sim_value_word *word)
{
    if (--word->references > 0)
        return;
    while (word->count > 0)
        remove_write(word, word->count - 1);
    free(word->writes);
    free(word);
    sim_check.other_bytes -= sizeof *word;
}

static void unlink_word(sim_value_word *word)
{
    sim_tree_remove(&words.by_place, &word->by_place);
    words.count--;
    word->linked = false;
    if (word->host) {
        sim_value_word **link = &words.of_host;
        while (*link != word)
            link = &(*link)->next_of_host;
        *link = word->next_of_host;
    }
    sim_value_word_drop(word);
}

/* The word of that block, or the next one, by place. */
static sim_value_word *word_from(const sim_value_place *place, uint64_t key)
{
    sim_node *node = sim_tree_ceiling(&words.by_place, key, place->tie);
    while (node && node->tie != place->tie)
        node = sim_tree_ceiling(&words.by_place, node->key + (node->tie > place->tie), place->tie);
    return node ? word_of(node) : NULL;
}

/* Its memory goes, or one view of it. */
void sim_value_words_gone(const sim_block *block)
{
    if (words.count == 0)
        return;
    sim_value_place place = {.block = block, .key = block->address};
    if (block->shadow && block->shadow->piece) {
        place.key = 0;
        place.tie = (uint64_t)(uintptr_t)block->shadow->piece;
    }
    uint64_t end = place.key + block->bytes;
    for (sim_value_word *word = word_from(&place, place.key); word && word->by_place.key < end;) {
        sim_value_word *next = word_from(&place, word->by_place.key + 1);
        if (word->address - block->address < block->bytes) {
            sim_values_word_gone(word);
            unlink_word(word);
        }
        word = next;
    }
}

/* ---- what operations write ---- */

static sim_value_word *touched; /* by next_touched, while an operation runs */

void sim_value_words_touched(uint64_t address, uint64_t bytes, bool atomically)
{
    while (words.count > 0 && bytes > 0) {
        sim_value_place place = sim_shadows_place(address);
        if (!place.block)
            return;
        uint64_t room = place.block->address + place.block->bytes - address;
        uint64_t here = bytes < room ? bytes : room; /* maps lie side by side */
        uint64_t end = place.key + here;
        for (sim_value_word *word = word_from(&place, place.key / WORD * WORD); word && word->by_place.key < end;
             word = word_from(&place, word->by_place.key + 1)) {
            uint64_t begin = word->address + place.key - word->by_place.key;
            unsigned mask = mask_between(word, begin, begin + here) & word->used;
            if (mask != 0 && word->touched == 0) {
                word->next_touched = touched;
                touched = word;
                word->atomically = true;
            }
            word->touched |= mask;
            word->atomically = word->atomically && atomically;
        }
        address += here;
        bytes -= here;
    }
}

void sim_value_words_ran(const sim_access_record *record)
{
    while (touched) {
        sim_value_word *word = touched;
        unsigned mask = word->touched;
        touched = word->next_touched;
        word->touched = 0;
        sim_known asked = sim_known_asked(record);
        if (word->atomically)
            join_last(word, mask, &asked);
        read_bytes(word, word->bytes);
        add_write(word, make_write(record, record->order, mask, &asked));
    }
}

/* Enters what a host function has changed. */
void sim_value_words_function_ran(const sim_access_record *record)
{
    for (sim_value_word *word = words.of_host; word; word = word->next_of_host) {
        unsigned char bytes[WORD];
        read_bytes(word, bytes);
        if (memcmp(bytes, word->bytes, WORD) != 0) {
            word->touched = word->used;
            word->atomically = false;
            word->next_touched = touched;
            touched = word;
        }
    }
    sim_value_words_ran(record);
}

bool sim_value_words_any(void)
{
    return words.count > 0;
}

static bool in_use(const sim_value_word *word, uint64_t address)
{
    return (word->used >> (address % WORD) & 1) != 0;
}

uint64_t sim_value_words_next(uint64_t begin, uint64_t end, uint64_t *until)
{
    sim_value_place place = words.count > 0 ? sim_shadows_place(begin) : (sim_value_place){0};
    *until = end;
    if (!place.block)
        return end;
    for (sim_value_word *word = word_from(&place, place.key / WORD * WORD);
         word && word->by_place.key < place.key + (end - begin); word = word_from(&place, word->by_place.key + 1)) {
        for (unsigned i = 0; i < WORD; i++) {
            uint64_t at = begin + word->by_place.key + i - place.key; /* wraps below the first */
            if (word->by_place.key + i < place.key || at >= end || !in_use(word, i))
                continue;
            for (*until = at + 1; *until < end && ++i < WORD && in_use(word, i);)
                ++*until;
            return at;
        }
    }
    return end;
}

void sim_value_words_close(void)
{
    for (sim_node *node; (node = sim_tree_first(&words.by_place));)
        unlink_word(word_of(node));
    sim_clock_drop(words.functions);
    words.functions = NULL;
}
