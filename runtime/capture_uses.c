/* What a capture notes: its arrays, and an index of them. */
#include "runtime/capture_uses.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "runtime/capture_pool.h"

#include <string.h>

/* ---- finding ---- */

enum { SEARCHED = 16 }; /* items that are searched one by one, without the index */

static bool is_of(const strata_capture_use *use, strata_block_id id)
{
    return use->block.id.slot == id.slot && use->block.id.generation == id.generation &&
           use->block.id.table == id.table;
}

static void add_to_index(strata_capture_uses *uses)
{
    size_t at = uses->items[uses->indexed].block.id.slot & uses->index_mask;
    while (uses->index[at])
        at = (at + 1) & uses->index_mask;
    uses->index[at] = (uint32_t)++uses->indexed;
}

/* Indexes all items, in a larger index if need be. False without host memory. */
static bool catch_up(strata_capture_uses *uses)
{
    if (!uses->index || uses->indexed > uses->count || 2 * uses->count > uses->index_mask) {
        size_t buckets = 4 * SEARCHED;
        while (buckets <= 3 * uses->count)
            buckets *= 2;
        uint32_t *index = strata_host_zalloc(buckets * sizeof *index);
        if (!index)
            return false;
        strata_host_free(uses->index);
        uses->index = index;
        uses->index_mask = buckets - 1;
        uses->indexed = 0;
    }
    while (uses->indexed < uses->count)
        add_to_index(uses);
    return true;
}

strata_capture_use *strata_capture_find_use(strata_capture_uses *uses, strata_block_id id)
{
    if (uses->count <= SEARCHED || !catch_up(uses)) {
        for (size_t i = uses->count; i-- > 0;)
            if (is_of(&uses->items[i], id))
                return &uses->items[i];
        return NULL;
    }
    for (size_t at = id.slot & uses->index_mask; uses->index[at]; at = (at + 1) & uses->index_mask)
        if (is_of(&uses->items[uses->index[at] - 1], id))
            return &uses->items[uses->index[at] - 1];
    return NULL;
}

/* ---- the arrays ---- */

/* Room for `extra` items more, at least twice what it was. False without host memory. */
static bool reserve(void **items, size_t count, size_t extra, size_t *room, size_t bytes)
{
    const size_t wanted = count + extra;
    if (wanted <= *room)
        return true;
    const size_t larger = wanted > 2 * *room ? wanted : 2 * *room;
    void *copy = strata_host_zalloc(larger * bytes);
    if (!copy)
        return false;
    if (count)
        memcpy(copy, *items, count * bytes);
    strata_host_free(*items);
    *items = copy;
    *room = larger;
    return true;
}

bool strata_capture_reserve_uses(strata_capture_uses *uses, size_t count)
{
    void *items = uses->items;
    const bool reserved = reserve(&items, uses->count, count, &uses->room, sizeof *uses->items);
    uses->items = items;
    return reserved;
}

strata_capture_use *strata_capture_add_use(strata_capture_uses *uses, const strata_block *block,
                                           strata_capture_kind kind)
{
    if (!strata_capture_reserve_uses(uses, 1))
        return NULL;
    strata_capture_use *use = &uses->items[uses->count++];
    *use = (strata_capture_use){.block = *block, .kind = kind};
    return use;
}

void strata_capture_free_uses(strata_capture_uses *uses)
{
    strata_host_free(uses->items);
    strata_host_free(uses->index);
    strata_host_free(uses->refs);
    strata_host_free(uses->parts);
    *uses = (strata_capture_uses){0};
}

bool strata_capture_took_memory(const strata_capture_uses *uses, const strata_capture_pool *pool)
{
    for (size_t i = 0; i < uses->count; i++)
        if (uses->items[i].kind == STRATA_CAPTURE_SEGMENT && uses->items[i].pool == pool)
            return true;
    return false;
}

bool strata_capture_add_part(strata_capture_uses *uses, strata_capture_pool *pool)
{
    for (size_t i = 0; i < uses->part_count; i++)
        if (uses->parts[i] == pool)
            return true;
    void *parts = uses->parts;
    const bool reserved = reserve(&parts, uses->part_count, 1, &uses->part_room, sizeof *uses->parts);
    uses->parts = parts;
    if (!reserved)
        return false;
    pool->holders++;
    uses->parts[uses->part_count++] = pool;
    return true;
}

/* ---- marks ---- */

void strata_capture_free_marks(strata_capture_use *use)
{
    strata_capture_clear_marks(use);
    strata_host_free(use->marks);
    use->marks = NULL;
    use->room = 0;
}

bool strata_capture_reserve_mark(strata_capture_use *use)
{
    void *marks = use->marks;
    const bool reserved = reserve(&marks, use->count, 1, &use->room, sizeof *use->marks);
    use->marks = marks;
    return reserved;
}

/* Drops the marks that the new one replaces, a write all that it comes after, a read only reads: what comes after the
 * new mark comes after those. */
static void drop_replaced(strata_capture_use *use, bool writes, strata_capture_place *place)
{
    size_t kept = 0;
    for (size_t i = 0; i < use->count; i++) {
        strata_capture_mark *mark = &use->marks[i];
        if ((writes || !mark->writes) && strata_capture_place_is_after_all(place, &mark->nodes))
            strata_nodes_free(&mark->nodes);
        else
            use->marks[kept++] = *mark;
    }
    use->count = kept;
}

strata_status strata_capture_mark_use_slow(strata_capture_use *use, bool writes, strata_capture_place *place)
{
    const size_t count = use->count;
    if (count == use->room && !strata_capture_reserve_mark(use))
        return strata_fail_host_memory("a use of a block in a capture");
    strata_capture_mark *mark = &use->marks[count];
    mark->writes = writes;
    mark->nodes.items = NULL; /* what was there has moved, or was freed */
    mark->nodes.count = 0;
    if (!strata_nodes_add(&mark->nodes, place->front->nodes, place->front->count)) {
        strata_nodes_free(&mark->nodes);
        return strata_fail_host_memory("a use of a block in a capture");
    }
    if (count)
        drop_replaced(use, writes, place);
    if (use->count != count)
        use->marks[use->count] = *mark;
    use->count++;
    return STRATA_SUCCESS;
}

/* ---- references ---- */

strata_status strata_capture_hold_ref(strata_capture_uses *uses, strata_ref *ref)
{
    for (size_t i = 0; i < uses->ref_count; i++)
        if (uses->refs[i] == ref)
            return STRATA_SUCCESS;
    void *refs = uses->refs;
    const bool reserved = reserve(&refs, uses->ref_count, 1, &uses->ref_room, sizeof *uses->refs);
    uses->refs = refs;
    if (!reserved)
        return strata_fail_host_memory("a reference of a capture");
    strata_reference_count_clone(&ref->count);
    uses->refs[uses->ref_count++] = ref;
    return STRATA_SUCCESS;
}
