/* The lists of guarded blocks. The guard's lock is held. */
#include "resources/guard/internal.h"

static bool is_held(guard_list_name list)
{
    return list == GUARD_FREED || list == GUARD_HELD;
}

static void count_held(guard *self, const guarded *block, bool more)
{
    if (!is_held((guard_list_name)block->list))
        return;
    uint64_t whole = guard_whole_bytes(self, block);
    uint64_t bytes = more ? whole : -whole, one = more ? 1 : UINT64_MAX;
    atomic_fetch_add_explicit(&self->held_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->held_blocks, one, memory_order_relaxed);
}

void guard_list_append(guard *self, guarded *block, guard_list_name name)
{
    guard_list *list = &self->lists[name];
    uint32_t slot = block->shown.id.slot;
    block->list = (uint8_t)name;
    block->next = 0;
    block->previous = list->last;
    if (list->last)
        guard_bytes(self, list->last)->next = slot;
    else
        list->first = slot;
    list->last = slot;
    list->count++;
    count_held(self, block, true);
}

void guard_list_remove(guard *self, guarded *block)
{
    guard_list *list = &self->lists[block->list];
    if (block->list == GUARD_NOWHERE)
        return;
    if (block->next)
        guard_bytes(self, block->next)->previous = block->previous;
    else
        list->last = block->previous;
    if (block->previous)
        guard_bytes(self, block->previous)->next = block->next;
    else
        list->first = block->next;
    list->count--;
    count_held(self, block, false);
    block->list = GUARD_NOWHERE;
}
