/* The life of allocations, as the checker follows it. A live one hangs on its block. A freed one stays in a list, in
 * the order of frees, and in a tree by address: with its cells while a record is pending that was submitted before the
 * free, then as a few words that tell a use after the free from a wild address, among the last thousand. */
#include "check/check.h"
#include <stdlib.h>

enum { MOST_REMEMBERED = 1024 };

/* Guarded by sim.lock. */
static struct {
    sim_tree by_address;
    sim_shadow *first; /* freed, the oldest first: those without cells, then those with */
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

/* A word that streams write values to, and what comes before those writes. */
typedef struct sim_value_word {
    struct sim_value_word *next;
    uint64_t address;
    sim_clock *written;
    sim_known last;      /* what comes before the write that ran last */
    uint64_t last_order; /* its order; 0: none ran */
    uint64_t value;      /* that it wrote */
    unsigned width;
} sim_value_word;

static void free_words(sim_shadow *shadow)
{
    while (shadow->words) {
        sim_value_word *next = shadow->words->next;
        sim_clock_drop(shadow->words->written);
        sim_known_drop(&shadow->words->last);
        free(shadow->words);
        shadow->words = next;
    }
}

/* ---- views of the same bytes ---- */

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

/* The next view beside this one that was there when the record of that order number was submitted, or came later; NULL
 * begins and ends. */
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
    shadow->mapped = block->kind == SIM_BLOCK_MAPPED; /* perhaps elsewhere, too, and written there */
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
    leave_view(shadow);
    sim_shadow_cells_clear(&shadow->cells);
    free_words(shadow);
    sim_access_record_drop(shadow->allocated);
    sim_access_record_drop(shadow->freed);
    free(shadow);
    sim_check.shadows--;
}

/* ---- freed allocations ---- */

/* The later born come first, so that sim_tree_ceiling finds the last one that was born before some moment. */
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

/* The next lower address at which a freed allocation began, starting at `address` itself. */
static sim_node *begun_at_or_below(uint64_t address)
{
    return sim_tree_floor(&freed.by_address, address);
}

/* The allocation, freed since or hidden, that held the address when the record of that order number was submitted. */
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

/* The last allocation that held the address and was freed before that. */
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

/* The allocation that held the address when the record was submitted. */
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
    if (shadow->allocated && sim_access_record_unordered(shadow->allocated, record)) {
        finding.kind = STRATA_SIM_REPORT_USE_BEFORE_ALLOCATION;
        finding.first = shadow->allocated;
        finding.second = record;
        sim_report(&finding);
    }
    if (shadow->freed && !sim_access_record_after(shadow->freed, record)) {
        finding.kind = STRATA_SIM_REPORT_FREE_IN_USE;
        finding.first = record;
        finding.second = shadow->freed;
        sim_report(&finding);
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

/* A map is of a whole piece: the same bytes are as far from the beginning in each view. */
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

/* What is mapped side by side is used as one. */
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

/* ---- values ---- */

static sim_value_word *word_at(const sim_shadow *shadow, uint64_t address)
{
    sim_value_word *word = shadow->words;
    while (word && word->address != address)
        word = word->next;
    return word;
}

static sim_shadow *shadow_of_value(const sim_op *op)
{
    const sim_block *block = sim_block_at(op->work.value.address);
    return block ? block->shadow : NULL;
}

/* Made if there is none. */
static sim_value_word *word_of(const sim_op *op)
{
    sim_shadow *shadow = shadow_of_value(op);
    sim_value_word *word = shadow ? word_at(shadow, op->work.value.address) : NULL;
    if (shadow && !word) {
        word = calloc(1, sizeof *word);
        if (!word) {
            sim_check_give_up();
            return NULL;
        }
        word->address = op->work.value.address;
        word->next = shadow->words;
        shadow->words = word;
    }
    return word;
}

void sim_shadows_value_written(const sim_op *op)
{
    sim_value_word *word = word_of(op);
    if (word)
        sim_clock_join(&word->written, 0, &op->at);
}

void sim_shadows_value_runs(const sim_op *op, sim_known *known)
{
    sim_value_word *word = word_of(op);
    if (!word) {
        sim_known_drop(known);
        return;
    }
    sim_known_drop(&word->last);
    word->last = *known;
    word->last_order = ++sim_check.values_written;
    word->value = op->work.value.value;
    word->width = op->work.value.width;
}

static const sim_value_word *later_written(const sim_value_word *one, const sim_value_word *other)
{
    return one && (!other || one->last_order > other->last_order) ? one : other;
}

const sim_known *sim_shadows_value_last(const sim_op *wait, uint64_t after)
{
    const sim_shadow *shadow = shadow_of_value(wait);
    uint64_t address = wait->work.value.address;
    const sim_value_word *last = shadow ? word_at(shadow, address) : NULL;
    const sim_shadow *view = NULL;
    while (shadow && (view = other_view(shadow, view, 0)))
        last = later_written(word_at(view, address + (view->address - shadow->address)), last);
    bool written = last && last->last_order > after && sim_value_is(wait, last->value, last->width);
    return written ? &last->last : NULL;
}

static void join_written(sim_op *op, const sim_shadow *shadow, uint64_t address)
{
    const sim_value_word *word = word_at(shadow, address);
    if (word) {
        sim_point written = {.knows = word->written};
        sim_op_join(op, &written);
    }
}

void sim_shadows_value_awaited(sim_op *op)
{
    const sim_shadow *shadow = shadow_of_value(op);
    if (!shadow)
        return;
    uint64_t address = op->work.value.address;
    join_written(op, shadow, address);
    const sim_shadow *view = NULL;
    while ((view = other_view(shadow, view, 0)))
        join_written(op, view, address + (view->address - shadow->address));
}

/* ---- from allocation to free ---- */

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
            asked->order = ++sim_check.order; /* the free is now: only what the host knew is from before */
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
        if (shadow->allocated && sim_access_record_settled(shadow->allocated)) {
            sim_access_record_drop(shadow->allocated);
            shadow->allocated = NULL;
        }
    }
}

/* What is there already counts as written. */
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
}
