/* Memory that was never freed, found when its context or the process ends. Allocations from one place of the program
 * are one report. Where a pool of the program has handed out blocks (regions.c), its live blocks are what is left, not
 * the allocation that it keeps. Guarded by sim.lock. */
#include "check/check.h"
#include <stdlib.h>

/* One allocation, or one block of a pool. */
typedef struct leak {
    const sim_shadow *shadow;
    const sim_region *region; /* NULL: the whole allocation */
    uint64_t order;
    uint32_t stack;
    uint64_t bytes;
} leak;

typedef struct leaks {
    leak *at;
    size_t count;
    size_t capacity;
} leaks;

static bool note(leaks *found, leak one)
{
    if (found->count == found->capacity) {
        size_t capacity = found->capacity ? 2 * found->capacity : 64;
        leak *at = realloc(found->at, capacity * sizeof *at);
        if (!at)
            return false;
        found->at = at;
        found->capacity = capacity;
    }
    found->at[found->count++] = one;
    return true;
}

static bool note_regions(leaks *found, const sim_shadow *shadow, bool *any)
{
    uint64_t end = shadow->address + shadow->bytes;
    const sim_region *region = sim_region_from(shadow->address);
    *any = sim_region_around(shadow, shadow->address, UINT64_MAX) != NULL; /* perhaps begun in the allocation before */
    while (region && region->by_address.key < end) {
        leak one = {shadow, region, region->born, region->stack, region->bytes};
        *any = *any || region->born >= shadow->born;
        if (region->born >= shadow->born && !region->ended && !note(found, one))
            return false;
        region = sim_region_from(region->by_address.key + 1);
    }
    return true;
}

/* Notes a block, or its regions. Not one from before the checker was turned on, nor one that goes with its module. */
static bool note_block(leaks *found, const sim_block *block)
{
    const sim_shadow *shadow = block->shadow;
    bool has_regions;
    if (!shadow || !shadow->allocated || block->of_module)
        return true;
    if (!note_regions(found, shadow, &has_regions))
        return false;
    leak one = {shadow, NULL, shadow->allocated->order, shadow->allocated->stack, shadow->bytes};
    return has_regions || note(found, one);
}

/* Orders by place, and at each place by age. A leak without a call stack is a place of its own (same_place). */
static int by_place(const void *one, const void *other)
{
    const leak *a = one;
    const leak *b = other;
    if (a->stack != b->stack)
        return a->stack < b->stack ? -1 : 1;
    if (!a->region != !b->region)
        return a->region ? 1 : -1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static bool same_place(const leak *one, const leak *other)
{
    return one->stack != 0 && one->stack == other->stack && !one->region == !other->region &&
           one->shadow->host == other->shadow->host;
}

static void report_from(const leak *first, size_t count)
{
    sim_finding finding = {
        .kind = STRATA_SIM_REPORT_LEAK,
        .address = first->region ? first->region->by_address.key : first->shadow->address,
        .shadow = first->shadow,
        .region = first->region,
        .first = first->region ? NULL : first->shadow->allocated,
        .count = count,
        .first_bytes = first->bytes,
    };
    for (size_t i = 0; i < count; i++)
        finding.bytes += first[i].bytes;
    sim_report(&finding);
}

void sim_leaks_report(const sim_context *context)
{
    leaks found = {0};
    bool good = true;
    if (!sim.checking || sim.phase != SIM_RUNNING || !(sim_check.modes & STRATA_SIM_CHECK_LEAKS))
        return;
    for (const sim_block *block = sim_memory.blocks; block && good; block = block->next)
        good = (context && block->context != context) || note_block(&found, block);
    if (!good)
        sim_check_give_up();
    if (found.count > 0)
        qsort(found.at, found.count, sizeof *found.at, by_place);
    for (size_t i = 0, behind; good && i < found.count; i = behind) {
        behind = i + 1;
        while (behind < found.count && same_place(&found.at[i], &found.at[behind]))
            behind++;
        report_from(&found.at[i], behind - i);
    }
    free(found.at);
}

/* ---- what is no memory ---- */

static void print_count(uint64_t count, const char *what, bool *any, FILE *out)
{
    if (count == 0)
        return;
    fprintf(out, "%s%llu %s%s", *any ? ", " : "strata-sim: not destroyed: ", (unsigned long long)count, what,
            count > 1 ? "s" : "");
    *any = true;
}

static uint64_t made_contexts(void)
{
    uint64_t count = 0;
    for (sim_context *context = NULL; (context = sim_slab_next(&sim_order.contexts, context));)
        count += !context->primary;
    return count;
}

void sim_leaks_print_objects(FILE *out)
{
    bool any = false;
    if (!sim.checking || !(sim_check.modes & STRATA_SIM_CHECK_LEAKS))
        return;
    print_count(made_contexts(), "context", &any, out);
    print_count(sim_order.streams.alive, "stream", &any, out);
    print_count(sim_order.events.alive, "event", &any, out);
    print_count(sim_kernels.modules.alive, "module", &any, out);
    print_count(sim_memory.pools.alive - (uint64_t)sim.settings.devices, "pool", &any, out);
    print_count(sim_memory.physicals.alive, "memory handle", &any, out);
    print_count(sim_memory.reserved_ranges, "address range", &any, out);
    if (any)
        fputc('\n', out);
}
