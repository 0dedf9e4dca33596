/* A map from byte ranges to cells. Untouched bytes have no cell. A cell is cut where an access begins or ends inside
 * it, and coalesces with equal neighbours. */
#include "check/check.h"
#include <stdlib.h>

/* A read or an atomic update. */
typedef struct cell_use {
    sim_access_record *record;
    sim_access_kind touch;
} cell_use;

typedef struct sim_shadow_cell {
    sim_node by_begin;
    struct sim_shadow_cell *next; /* by address */
    uint64_t end;
    uint64_t first_written;   /* order; UINT64_MAX: none */
    sim_access_record *write; /* the last one; NULL: none, or settled */
    cell_use *uses;           /* since then; of one kind, none comes after another */
    uint32_t use_count;
    uint32_t use_capacity;
} sim_shadow_cell;

static sim_shadow_cell *cell_of(sim_node *node)
{
    return (sim_shadow_cell *)(void *)node;
}

static uint64_t begin_of(const sim_shadow_cell *cell)
{
    return cell->by_begin.key;
}

static sim_shadow_cell *cell_from(const sim_shadow_cells *cells, uint64_t address)
{
    return cell_of(sim_tree_ceiling(&cells->tree, address, 0));
}

static sim_shadow_cell *cell_at(const sim_shadow_cells *cells, uint64_t address)
{
    sim_shadow_cell *cell = cell_of(sim_tree_floor(&cells->tree, address));
    return cell && address < cell->end ? cell : NULL;
}

/* ---- cells ---- */

static sim_shadow_cell *make_cell(sim_shadow_cells *cells, uint64_t begin, uint64_t end)
{
    sim_shadow_cell *cell = calloc(1, sizeof *cell);
    if (!cell) {
        sim_check_give_up();
        return NULL;
    }
    cell->end = end;
    cell->first_written = UINT64_MAX;
    sim_shadow_cell *previous = begin > 0 ? cell_of(sim_tree_floor(&cells->tree, begin - 1)) : NULL;
    sim_shadow_cell **link = previous ? &previous->next : &cells->first;
    cell->next = *link;
    *link = cell;
    sim_tree_insert(&cells->tree, &cell->by_begin, begin, 0);
    sim_check.cells++;
    sim_check.other_bytes += sizeof *cell;
    return cell;
}

static void drop_uses(sim_shadow_cell *cell)
{
    for (uint32_t i = 0; i < cell->use_count; i++)
        sim_access_record_drop(cell->uses[i].record);
    cell->use_count = 0;
}

static void free_uses(sim_shadow_cell *cell)
{
    drop_uses(cell);
    sim_check.other_bytes -= cell->use_capacity * sizeof *cell->uses;
    free(cell->uses);
    cell->uses = NULL;
    cell->use_capacity = 0;
}

/* The cell behind `previous`; NULL: the first. */
static void free_next(sim_shadow_cells *cells, sim_shadow_cell *previous)
{
    sim_shadow_cell **link = previous ? &previous->next : &cells->first;
    sim_shadow_cell *cell = *link;
    *link = cell->next;
    sim_tree_remove(&cells->tree, &cell->by_begin);
    sim_access_record_drop(cell->write);
    free_uses(cell);
    free(cell);
    sim_check.cells--;
    sim_check.other_bytes -= sizeof *cell;
}

static bool room_for_uses(sim_shadow_cell *cell, uint32_t count)
{
    if (count <= cell->use_capacity)
        return true;
    uint32_t capacity = count < 2 ? 2 : 2 * count;
    cell_use *uses = realloc(cell->uses, capacity * sizeof *uses);
    if (!uses) {
        sim_check_give_up();
        return false;
    }
    sim_check.other_bytes += (capacity - cell->use_capacity) * sizeof *uses;
    cell->uses = uses;
    cell->use_capacity = capacity;
    return true;
}

static void copy_records(sim_shadow_cell *to, const sim_shadow_cell *from)
{
    to->first_written = from->first_written;
    to->write = from->write ? sim_access_record_hold(from->write) : NULL;
    if (from->use_count > 0 && room_for_uses(to, from->use_count)) {
        for (uint32_t i = 0; i < from->use_count; i++) {
            to->uses[i] = from->uses[i];
            sim_access_record_hold(to->uses[i].record);
        }
        to->use_count = from->use_count;
    }
}

/* False without memory. */
static bool cut_at(sim_shadow_cells *cells, uint64_t address)
{
    sim_shadow_cell *left = cell_at(cells, address);
    if (!left || begin_of(left) == address)
        return true;
    sim_shadow_cell *right = make_cell(cells, address, left->end);
    if (!right)
        return false;
    left->end = address;
    copy_records(right, left);
    return sim.checking;
}

static bool alike(const sim_shadow_cell *one, const sim_shadow_cell *other)
{
    if (one->write != other->write || one->first_written != other->first_written || one->use_count != other->use_count)
        return false;
    for (uint32_t i = 0; i < one->use_count; i++)
        if (one->uses[i].record != other->uses[i].record || one->uses[i].touch != other->uses[i].touch)
            return false;
    return true;
}

static void coalesce(sim_shadow_cells *cells, sim_shadow_cell *cell, uint64_t end)
{
    while (cell && cell->end < end) {
        sim_shadow_cell *next = cell->next;
        if (next && begin_of(next) == cell->end && alike(cell, next)) {
            cell->end = next->end;
            free_next(cells, cell);
        } else {
            cell = next;
        }
    }
}

/* ---- records ---- */

static void displace(sim_shadow_cells *cells, const sim_shadow_cell *cell, sim_access_record *record,
                     sim_access_kind touch)
{
    sim_history_add(&cells->history, record, begin_of(cell), cell->end, touch);
}

static void remove_use(sim_shadow_cells *cells, sim_shadow_cell *cell, uint32_t index)
{
    cell_use use = cell->uses[index];
    cell->uses[index] = cell->uses[--cell->use_count];
    displace(cells, cell, use.record, use.touch);
    sim_access_record_drop(use.record);
}

static void record_written(sim_shadow_cell *cell, const sim_access_record *record)
{
    if (record->order < cell->first_written)
        cell->first_written = record->order;
}

/* Whether the record replaces the stored one: submitted later, or after it all the same. */
static bool takes_over(const sim_access_record *record, const sim_access_record *stored)
{
    return stored->order <= record->order || sim_access_record_after(record, stored);
}

/* Whether a write replaces a use. A poll races with nothing but a free, so that only a write that comes after it stands
 * for it. */
static bool replaces(const sim_access_record *record, const cell_use *use)
{
    return use->touch == SIM_AWAITS ? sim_access_record_surely_after(record, use->record)
                                    : takes_over(record, use->record);
}

/* Enters a read, update or poll into a cell. Of two uses of one kind the earlier goes if the later comes after it. */
static void enter_use(sim_shadow_cells *cells, sim_shadow_cell *cell, sim_access_record *record, sim_access_kind touch)
{
    if (touch == SIM_UPDATES_ATOMICALLY)
        record_written(cell, record);
    if (touch != SIM_AWAITS && cell->write && !takes_over(record, cell->write)) {
        displace(cells, cell, record, touch);
        return;
    }
    for (uint32_t i = cell->use_count; i-- > 0;) {
        const cell_use *use = &cell->uses[i];
        if (use->touch != touch)
            continue;
        if (use->record == record)
            return;
        if (use->record->order > record->order && sim_access_record_surely_after(use->record, record)) {
            displace(cells, cell, record, touch);
            return;
        }
        if (sim_access_record_surely_after(record, use->record))
            remove_use(cells, cell, i);
    }
    if (room_for_uses(cell, cell->use_count + 1))
        cell->uses[cell->use_count++] = (cell_use){.record = sim_access_record_hold(record), .touch = touch};
}

static void enter_write(sim_shadow_cells *cells, sim_shadow_cell *cell, sim_access_record *record)
{
    record_written(cell, record);
    if (cell->write == record)
        return;
    if (cell->write && !takes_over(record, cell->write)) {
        displace(cells, cell, record, SIM_WRITES);
        return;
    }
    for (uint32_t i = cell->use_count; i-- > 0;)
        if (replaces(record, &cell->uses[i]))
            remove_use(cells, cell, i);
    sim_access_record *before = cell->write;
    cell->write = sim_access_record_hold(record);
    if (before) {
        displace(cells, cell, before, SIM_WRITES);
        sim_access_record_drop(before);
    }
}

/* ---- judging ---- */

static strata_sim_report_kind kind_of_race(sim_access_kind first, sim_access_kind second)
{
    if (first == SIM_READS)
        return STRATA_SIM_REPORT_READ_WRITE;
    return second == SIM_READS ? STRATA_SIM_REPORT_WRITE_READ : STRATA_SIM_REPORT_WRITE_WRITE;
}

static bool harmless(sim_access_kind one, sim_access_kind other)
{
    return (one == other && one != SIM_WRITES) || one == SIM_AWAITS || other == SIM_AWAITS;
}

void sim_judge_pair(const sim_judged_access *access, const sim_access_record *stored, sim_access_kind stored_touch,
                    uint64_t begin, uint64_t end)
{
    const sim_access_record *record = access->record;
    if (stored == record || harmless(stored_touch, access->touch))
        return;
    bool stored_first = stored->order <= record->order; /* equal: parts of one operation, which ran in this order */
    sim_finding finding = {
        .address = begin - access->apart,
        .bytes = end - begin,
        .first = stored_first ? stored : record,
        .second = stored_first ? record : stored,
        .kind = stored_first ? kind_of_race(stored_touch, access->touch) : kind_of_race(access->touch, stored_touch),
        .shadow = access->shadow,
        .elsewhere = access->apart ? stored : NULL,
        .there = begin,
    };
    sim_judge_order(&finding);
}

static void judge(const sim_shadow_cell *cell, const sim_judged_access *access)
{
    uint64_t begin = begin_of(cell) > access->begin ? begin_of(cell) : access->begin;
    uint64_t end = cell->end < access->end ? cell->end : access->end;
    if (cell->write)
        sim_judge_pair(access, cell->write, SIM_WRITES, begin, end);
    for (uint32_t i = 0; i < cell->use_count; i++)
        sim_judge_pair(access, cell->uses[i].record, cell->uses[i].touch, begin, end);
}

/* The newest record need not meet the history: newer records in the cells stand for older ones. */
static void judge_history(const sim_shadow_cells *cells, const sim_judged_access *access)
{
    if (access->record->order < sim_check.order)
        sim_history_judge(&cells->history, access);
}

void sim_shadow_cells_judge(const sim_shadow_cells *cells, const sim_judged_access *access)
{
    const sim_shadow_cell *cell = cell_at(cells, access->begin);
    judge_history(cells, access);
    for (cell = cell ? cell : cell_from(cells, access->begin); cell && begin_of(cell) < access->end; cell = cell->next)
        judge(cell, access);
}

/* Returns the cell that begins at `begin`, made if absent, and cut at `end`. `next`: the first cell from there on, or
 * NULL. NULL without memory. */
static sim_shadow_cell *claim(sim_shadow_cells *cells, sim_shadow_cell *next, uint64_t begin, uint64_t end)
{
    if (!next || begin_of(next) > begin)
        return make_cell(cells, begin, next && begin_of(next) < end ? begin_of(next) : end);
    return next->end <= end || cut_at(cells, end) ? next : NULL;
}

void sim_shadow_cells_access(sim_shadow_cells *cells, const sim_shadow *shadow, uint64_t begin, uint64_t end,
                             sim_access_record *record, sim_access_kind touch)
{
    sim_judged_access access = {.shadow = shadow, .record = record, .begin = begin, .end = end, .touch = touch};
    judge_history(cells, &access);
    if (!cut_at(cells, begin))
        return;
    sim_shadow_cell *first = NULL;
    sim_shadow_cell *next = cell_from(cells, begin);
    for (uint64_t at = begin; at < end;) {
        sim_shadow_cell *cell = claim(cells, next, at, end);
        if (!cell)
            return;
        judge(cell, &access);
        if (touch == SIM_WRITES)
            enter_write(cells, cell, record);
        else
            enter_use(cells, cell, record, touch);
        first = first ? first : cell;
        at = cell->end;
        next = cell->next;
    }
    coalesce(cells, first, end);
}

static void judge_free_of(const sim_shadow_cell *cell, const sim_shadow *shadow, const sim_access_record *use,
                          sim_access_record *freeing)
{
    sim_finding finding = {
        .kind = STRATA_SIM_REPORT_FREE_IN_USE,
        .address = begin_of(cell),
        .bytes = cell->end - begin_of(cell),
        .first = use,
        .second = freeing,
        .shadow = shadow,
    };
    sim_judge_order(&finding);
}

void sim_shadow_cells_judge_free(const sim_shadow_cells *cells, const sim_shadow *shadow, sim_access_record *record)
{
    for (sim_shadow_cell *cell = cells->first; cell; cell = cell->next) {
        if (cell->write)
            judge_free_of(cell, shadow, cell->write, record);
        for (uint32_t i = 0; i < cell->use_count; i++)
            judge_free_of(cell, shadow, cell->uses[i].record, record);
    }
}

/* Reports only the first such bytes. */
void sim_shadow_cells_judge_unwritten(const sim_shadow_cells *cells, const sim_shadow *shadow, uint64_t begin,
                                      uint64_t end, sim_access_record *record)
{
    uint64_t at = begin;
    uint64_t until = sim_values_until(record);
    while (at < end) {
        const sim_shadow_cell *cell = cell_at(cells, at);
        if (!cell || (cell->first_written >= record->order && cell->first_written > until)) {
            const sim_shadow_cell *next = cell_from(cells, at + 1);
            uint64_t stop = cell ? cell->end : next ? begin_of(next) : end;
            sim_finding finding = {
                .kind = STRATA_SIM_REPORT_UNWRITTEN,
                .address = at,
                .bytes = (stop < end ? stop : end) - at,
                .second = record,
                .shadow = shadow,
            };
            sim_report(&finding);
            return;
        }
        at = cell->end;
    }
}

/* ---- authors ---- */

void sim_shadow_cells_authors(const sim_shadow_cells *cells, uint64_t begin, uint64_t end, uint64_t apart,
                              sim_author_visit *visit, void *data)
{
    const sim_shadow_cell *cell = cell_at(cells, begin);
    for (cell = cell ? cell : cell_from(cells, begin); cell && begin_of(cell) < end; cell = cell->next) {
        uint64_t from = (begin_of(cell) > begin ? begin_of(cell) : begin) - apart;
        uint64_t to = (cell->end < end ? cell->end : end) - apart;
        if (cell->write)
            visit(data, cell->write, from, to, false);
        for (uint32_t i = 0; i < cell->use_count; i++)
            if (cell->uses[i].touch == SIM_UPDATES_ATOMICALLY)
                visit(data, cell->uses[i].record, from, to, true);
    }
}

/* ---- forgetting ---- */

static void settle(sim_shadow_cell *cell, uint64_t oldest_pending)
{
    if (cell->first_written < oldest_pending)
        cell->first_written = 0;
    if (cell->write && sim_access_record_settled(cell->write)) {
        sim_access_record_drop(cell->write);
        cell->write = NULL;
    }
    for (uint32_t i = cell->use_count; i-- > 0;) {
        if (sim_access_record_settled(cell->uses[i].record)) {
            sim_access_record_drop(cell->uses[i].record);
            cell->uses[i] = cell->uses[--cell->use_count];
        }
    }
    if (cell->use_count == 0)
        free_uses(cell);
}

void sim_shadow_cells_settle(sim_shadow_cells *cells)
{
    uint64_t oldest_pending = sim_access_record_oldest_pending();
    for (sim_shadow_cell *cell = cells->first; cell; cell = cell->next)
        settle(cell, oldest_pending);
    coalesce(cells, cells->first, UINT64_MAX);
}

void sim_shadow_cells_clear(sim_shadow_cells *cells)
{
    while (cells->first)
        free_next(cells, NULL);
    sim_history_clear(&cells->history);
}
