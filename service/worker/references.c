/* The worker's references: their owner guards the table. */
#include "core/base/host_memory.h"
#include "service/worker/worker.h"

#include <string.h>

static bool grow(worker_refs *refs)
{
    const uint32_t room = refs->room ? 2 * refs->room : 256;
    worker_ref *items = strata_host_zalloc(room * sizeof *items);
    if (!items)
        return false;
    if (refs->items)
        memcpy(items, refs->items, refs->room * sizeof *items);
    strata_host_free(refs->items);
    for (uint32_t i = refs->room; i < room; i++)
        items[i].next_free = i + 1 < room ? i + 2 : 0;
    refs->first_free = refs->room + 1;
    refs->items = items;
    refs->room = room;
    return true;
}

uint64_t worker_refs_add(worker_refs *refs, strata_ref *ref)
{
    if (!refs->first_free && !grow(refs))
        return 0;
    const uint32_t at = refs->first_free - 1;
    worker_ref *item = &refs->items[at];
    refs->first_free = item->next_free;
    item->ref = ref;
    item->serial++;
    return (uint64_t)item->serial << 32 | (at + 1);
}

strata_ref *worker_refs_find(const worker_refs *refs, uint64_t number)
{
    const uint32_t at = (uint32_t)number - 1;
    return at < refs->room && refs->items[at].serial == (uint32_t)(number >> 32) ? refs->items[at].ref : NULL;
}

strata_ref *worker_refs_take(worker_refs *refs, uint64_t number)
{
    const uint32_t at = (uint32_t)number - 1;
    strata_ref *ref = worker_refs_find(refs, number);
    if (!ref)
        return NULL;
    refs->items[at].ref = NULL;
    refs->items[at].next_free = refs->first_free;
    refs->first_free = at + 1;
    return ref;
}

/* What is added between two calls comes into new entries, behind those that are left. */
strata_ref *worker_refs_take_last(worker_refs *refs)
{
    refs->first_free = 0;
    while (refs->room) {
        strata_ref *ref = refs->items[--refs->room].ref;
        if (ref)
            return ref;
    }
    strata_host_free(refs->items);
    *refs = (worker_refs){0};
    return NULL;
}
