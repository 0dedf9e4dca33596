/* The life of shadows. A live one hangs on its block. A freed one is in a list, in the order of frees, and in a tree by
 * address: with cells while a record is pending that was submitted before the free, then, if among the last thousand,
 * as a few words that tell a use after the free from a wild address. */
#include "check/check.h"
#include <stdlib.h>

enum { MOST_REMEMBERED = 1024 };

/* Guarded by sim.lock. */
static struct {
    sim_tree by_address;
    sim_shadow *first; /* freed, oldest first: those without cells, then those with */
    sim_shadow **last;
    sim_shadow *first_with_cells;
    size_t without_cells;
} freed = {.last = &freed.first};

static sim_shadow *shadow_of(sim_node *node)
{
    return (sim_shadow *)(void *)node;
}

static bool holds(const sim_shadow *shadow, uint64_t address)
{
    return address - shadow->address < shadow->bytes;
}

/* ---- views ---- */

static void enter_view(sim_shadow *shadow, sim_piece *piece)
{
    shadow->piece = sim_piece_hold(piece);
    shadow->next_view = piece->views;
    piece->views = shadow;
}

static void leave_view(sim_shadow *shadow)
{
    if (!shadow->piece)
        return;
    sim_shadow **link = &shadow->piece->views;
    while (*link != shadow)
        link = &(*link)->next_view;
    *link = shadow->next_view;
    sim_piece_drop(shadow->piece);
    shadow->piece = NULL;
}

/* The next other view that was not freed before that order; NULL begins and ends. */
static sim_shadow *other_view(const sim_shadow *shadow, const sim_shadow *after, uint64_t order)
{
    sim_shadow *view = after ? after->next_view : shadow->piece ? shadow->piece->views : NULL;
    while (view && (view == shadow || order > view->gone))
        view = view->next_view;
    return view;
}

static sim_shadow *make_shadow(sim_block *block)
{
    sim_check_forget(block);
    sim_shadow *shadow = calloc(1, sizeof *shadow);
    if (!shadow) {
        sim_check_give_up();
        return NULL;
    }
    shadow->block = block;
    shadow->address = block->address;
    shadow->bytes = block->bytes;
    shadow->born = sim_check.order;
    shadow->gone = UINT64_MAX;
    shadow->host = sim_block_is_host(block);
    shadow->mapped = block->kind == SIM_BLOCK_MAPPED; /* perhaps written at another address */
    shadow->written = shadow->host || shadow->mapped || block->of_module || block->kind == SIM_BLOCK_MANAGED;
    if (shadow->mapped)
        enter_view(shadow, sim_map_of(block)->physical->piece);
    block->shadow = shadow;
    sim_check.shadows++;
    return shadow;
}

static void free_shadow(sim_shadow *shadow)
{
    if (shadow->hidden)
        sim_tree_remove(&freed.by_address, &shadow->by_address);
    sim_doubts_forget_shadow(shadow);
    leave_view(shadow);
    sim_regions_forget(shadow);
    sim_shadow_cells_clear(&shadow->cells);
    sim_access_record_drop(shadow->allocated);
    sim_access_record_drop(shadow->freed);
    free(shadow);
    sim_check.shadows--;
}

/* ---- freed allocations ---- */

/* The later born come first: sim_tree_ceiling finds the last one born before some moment. */
static uint64_t tie_of(uint64_t born)
{
    return ~born;
}

static void enter_tree(sim_shadow *shadow)
{
    sim_tree_insert(&freed.by_address, &shadow->by_address, shadow->address, tie_of(shadow->born));
}

static void remember(sim_shadow *shadow)
{
    if (!shadow->hidden)
        enter_tree(shadow);
    shadow->hidden = false;
    *freed.last = shadow;
    freed.last = &shadow->next;
    if (!freed.first_with_cells)
        freed.first_with_cells = shadow;
}

static void forget_first(void)
{
    sim_shadow *shadow = freed.first;
    freed.first = shadow->next;
    if (!freed.first)
        freed.last = &freed.first;
    if (freed.first_with_cells == shadow)
        freed.first_with_cells = shadow->next;
    else
        freed.without_cells--;
    sim_tree_remove(&freed.by_address, &shadow->by_address);
    free_shadow(shadow);
}

void sim_shadows_tidy(void)
{
    uint64_t oldest_pending = sim_access_record_oldest_pending();
    if (oldest_pending == UINT64_MAX)
        sim_histories_clear();
    while (freed.first_with_cells && freed.first_with_cells->gone < oldest_pending) {
        sim_shadow *shadow = freed.first_with_cells;
        leave_view(shadow);
        sim_shadow_cells_clear(&shadow->cells);
        sim_access_record_drop(shadow->allocated);
        shadow->allocated = NULL;
        freed.first_with_cells = shadow->next;
        freed.without_cells++;
    }
    while (freed.without_cells > MOST_REMEMBERED)
        forget_first();
}

static sim_node *begun_at_or_below(uint64_t address)
{
    return sim_tree_floor(&freed.by_address, address);
}

/* The freed or hidden shadow that held the address at that order; NULL: none. */
static sim_shadow *apart_around(uint64_t address, uint64_t order)
{
    sim_node *node = begun_at_or_below(address);
    while (node) {
        uint64_t begin = node->key;
        sim_shadow *shadow = shadow_of(sim_tree_ceiling(&freed.by_address, begin, tie_of(order - 1)));
        if (shadow && shadow->address == begin && holds(shadow, address) && order < shadow->gone)
            return shadow;
        node = begin > 0 ? begun_at_or_below(begin - 1) : NULL;
    }
    return NULL;
}

/* The last shadow at the address that was freed before that order; NULL: none. */
static const sim_shadow *freed_before(uint64_t address, uint64_t order)
{
    const sim_shadow *best = NULL;
    for (const sim_shadow *shadow = freed.first; shadow && shadow->gone < order; shadow = shadow->next)
        best = holds(shadow, address) ? shadow : best;
    return best;
}

/* ---- uses ---- */

static void report_stray(const sim_access_record *record, uint64_t address, uint64_t bytes)
{
    sim_finding finding = {.kind = STRATA_SIM_REPORT_OUTSIDE, .address = address, .bytes = bytes, .second = record};
    const sim_shadow *before = freed_before(address, record->order);
    const sim_block *now = sim_block_at(address);
    if (before) {
        finding.kind = STRATA_SIM_REPORT_USE_AFTER_FREE;
        finding.first = before->freed;
        finding.shadow = before;
    } else if (now && now->shadow) {
        finding.kind = STRATA_SIM_REPORT_USE_BEFORE_ALLOCATION;
        finding.first = record;
        finding.second = now->shadow->allocated;
        finding.shadow = now->shadow;
    }
    sim_report(&finding);
}

static sim_shadow *shadow_around(const sim_access_record *record, uint64_t address)
{
    const sim_block *block = sim_block_at(address);
    if (block && block->shadow && block->shadow->born < record->order)
        return block->shadow;
    return apart_around(address, record->order);
}

static void judge_life(const sim_shadow *shadow, const sim_access_record *record, uint64_t address, uint64_t bytes)
{
    sim_finding finding = {.address = address, .bytes = bytes, .shadow = shadow};
    if (shadow->allocated && !shadow->settled) {
        finding.kind = STRATA_SIM_REPORT_USE_BEFORE_ALLOCATION;
        finding.first = shadow->allocated;
        finding.second = record;
        sim_judge_order(&finding);
    }
    bool judges_itself = shadow->freed && shadow->freed->late && shadow->freed->pending;
    if (shadow->freed && !judges_itself) {
        finding.kind = STRATA_SIM_REPORT_FREE_IN_USE;
        finding.first = record;
        finding.second = shadow->freed;
        finding.directed = true;
        sim_judge_order(&finding);
    }
}

static void report_rest(const sim_shadow *shadow, const sim_access_record *record, uint64_t address, uint64_t bytes)
{
    sim_finding finding = {
        .kind = STRATA_SIM_REPORT_OUTSIDE,
        .address = address,
        .bytes = bytes,
        .second = record,
        .shadow = shadow,
    };
    sim_report(&finding);
}

/* A map is of a whole physical: the same bytes have the same offset in each view. */
static void judge_views(const sim_shadow *shadow, const sim_access_record *record, uint64_t address, uint64_t bytes,
                        sim_access_kind touch)
{
    const sim_shadow *view = NULL;
    while ((view = other_view(shadow, view, record->order))) {
        uint64_t apart = view->address - shadow->address;
        sim_judged_access access = {
            .shadow = shadow,
            .record = record,
            .begin = address + apart,
            .end = address + apart + bytes,
            .touch = touch,
            .apart = apart,
        };
        sim_shadow_cells_judge(&view->cells, &access);
    }
}

static void access_shadow(sim_shadow *shadow, sim_access_record *record, uint64_t address, uint64_t bytes,
                          sim_access_kind touch)
{
    judge_life(shadow, record, address, bytes);
    judge_views(shadow, record, address, bytes, touch);
    sim_shadow_cells_access(&shadow->cells, shadow, address, address + bytes, record, touch);
}

/* Adjacent maps are used as one. */
void sim_shadows_access(sim_access_record *record, uint64_t address, uint64_t bytes, sim_access_kind touch)
{
    sim_shadow *shadow = shadow_around(record, address);
    if (!shadow) {
        report_stray(record, address, bytes);
        return;
    }
    uint64_t room = shadow->address + shadow->bytes - address;
    while (bytes > room) {
        sim_shadow *next = shadow->mapped ? shadow_around(record, address + room) : NULL;
        if (!next || !next->mapped) {
            report_rest(shadow, record, address + room, bytes - room);
            bytes = room;
            break;
        }
        access_shadow(shadow, record, address, room, touch);
        address += room;
        bytes -= room;
        shadow = next;
        room = shadow->bytes;
    }
    access_shadow(shadow, record, address, bytes, touch);
}

void sim_shadows_judge_unwritten(sim_access_record *record, uint64_t address, uint64_t bytes)
{
    const sim_shadow *shadow = shadow_around(record, address);
    if (shadow && !shadow->written) {
        uint64_t room = shadow->address + shadow->bytes - address;
        sim_shadow_cells_judge_unwritten(&shadow->cells, shadow, address, address + (bytes < room ? bytes : room),
                                         record);
    }
}

/* ---- words ---- */

sim_value_place sim_shadows_place(uint64_t address)
{
    const sim_block *block = sim_block_at(address);
    sim_value_place place = {.block = block && block->shadow ? block : NULL, .key = address};
    if (place.block && block->shadow->piece) {
        place.key = address - block->shadow->address;
        place.tie = (uint64_t)(uintptr_t)block->shadow->piece;
    }
    return place;
}

void sim_shadows_authors(uint64_t address, uint64_t bytes, sim_author_visit *visit, void *data)
{
    const sim_block *block = sim_block_at(address);
    const sim_shadow *shadow = block ? block->shadow : NULL;
    if (!shadow)
        return;
    sim_shadow_cells_authors(&shadow->cells, address, address + bytes, 0, visit, data);
    const sim_shadow *view = NULL;
    while ((view = other_view(shadow, view, sim_check.order))) {
        uint64_t apart = view->address - shadow->address;
        sim_shadow_cells_authors(&view->cells, address + apart, address + apart + bytes, apart, visit, data);
    }
}

/* ---- life ---- */

void sim_check_allocated(sim_block *block)
{
    if (!sim.checking)
        return;
    sim_shadow *shadow = make_shadow(block);
    if (shadow && !block->allocation)
        shadow->allocated = sim_access_record_of_host(SIM_RECORD_HOST_ALLOCATE);
}

void sim_check_hidden(sim_block *block)
{
    sim_shadow *shadow = sim.checking ? make_shadow(block) : NULL;
    if (shadow) {
        shadow->hidden = true;
        enter_tree(shadow);
    }
}

void sim_check_written(sim_block *block)
{
    if (block->shadow)
        block->shadow->written = true;
}

void sim_shadow_allocation(sim_block *block, sim_access_record *record)
{
    if (block->shadow && !block->shadow->allocated)
        block->shadow->allocated = sim_access_record_hold(record);
}

static void judge_free(const sim_shadow *shadow, sim_access_record *record)
{
    if (record->component) {
        judge_life(shadow, record, shadow->address, shadow->bytes);
    } /* else the driver itself waited for the allocation */
    sim_shadow_cells_judge_free(&shadow->cells, shadow, record);
}

void sim_shadow_judge_free(sim_access_record *record)
{
    const sim_shadow *shadow = freed.first_with_cells;
    while (shadow && shadow->freed != record)
        shadow = shadow->next;
    if (shadow)
        judge_free(shadow, record);
}

void sim_shadow_free(sim_block *block, sim_access_record *record)
{
    sim_shadow *shadow = block->shadow;
    sim_value_words_gone(block);
    block->shadow = NULL;
    if (!shadow)
        return;
    shadow->block = NULL;
    if (!record->late)
        judge_free(shadow, record);
    shadow->freed = sim_access_record_hold(record);
    shadow->gone = record->order;
    remember(shadow);
    sim_shadows_tidy();
}

void sim_check_freed_after(sim_block *block, sim_access_record *asked)
{
    if (sim.checking && block->shadow) {
        if (asked)
            asked->order = ++sim_check.order; /* the free is now; what the host knew is from before */
        else
            asked = sim_access_record_of_host(SIM_RECORD_HOST_FREE);
        if (asked)
            sim_shadow_free(block, asked);
    }
    sim_access_record_drop(asked);
}

void sim_check_freed_now(sim_block *block)
{
    sim_check_freed_after(block, NULL);
}

void sim_check_forget(sim_block *block)
{
    if (block->shadow) {
        sim_value_words_gone(block);
        free_shadow(block->shadow);
        block->shadow = NULL;
    }
}

/* ---- all of them ---- */

void sim_shadows_settle(void)
{
    for (sim_block *block = sim_memory.blocks; block; block = block->next) {
        sim_shadow *shadow = block->shadow;
        if (!shadow)
            continue;
        sim_shadow_cells_settle(&shadow->cells);
        if (shadow->allocated && !shadow->settled && sim_access_record_settled(shadow->allocated)) {
            sim_access_record_strip(shadow->allocated);
            shadow->settled = true;
        }
    }
}

/* Makes shadows of the blocks that exist, which count as written. */
CUresult sim_shadows_open(void)
{
    for (sim_block *block = sim_memory.blocks; block; block = block->next) {
        sim_shadow *shadow = make_shadow(block);
        if (!shadow)
            return CUDA_ERROR_OUT_OF_MEMORY;
        shadow->written = true;
    }
    return CUDA_SUCCESS;
}

void sim_shadows_close(void)
{
    for (sim_block *block = sim_memory.blocks; block; block = block->next)
        sim_check_forget(block);
    while (freed.first)
        forget_first();
    for (sim_node *hidden; (hidden = sim_tree_first(&freed.by_address));)
        sim_check_forget(shadow_of(hidden)->block);
    sim_regions_close();
}
