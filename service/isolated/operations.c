/* Operations under way, by the numbers that the worker answers with. */
#include "core/base/host_memory.h"
#include "service/isolated/isolated.h"

#include <string.h>

static bool grow(isolated_operations *operations)
{
    const uint32_t room = operations->room ? 2 * operations->room : 256;
    isolated_operation *items = strata_host_zalloc(room * sizeof *items);
    if (!items)
        return false;
    if (operations->items)
        memcpy(items, operations->items, operations->room * sizeof *items);
    strata_host_free(operations->items);
    for (uint32_t i = operations->room; i < room; i++)
        items[i].next_free = i + 1 < room ? i + 2 : operations->first_free;
    operations->first_free = operations->room + 1;
    operations->items = items;
    operations->room = room;
    return true;
}

uint64_t isolated_operation_add(isolated_operations *operations, const isolated_operation *operation)
{
    if (!operations->first_free && !grow(operations))
        return 0;
    const uint32_t at = operations->first_free - 1;
    isolated_operation *item = &operations->items[at];
    const uint32_t serial = item->serial + 1;
    operations->first_free = item->next_free;
    operations->count++;
    *item = *operation;
    item->serial = serial;
    return (uint64_t)serial << 32 | (at + 1);
}

static void take_out(isolated_operations *operations, uint32_t at, isolated_operation *out)
{
    isolated_operation *item = &operations->items[at];
    *out = *item;
    item->request = NULL;
    item->next_free = operations->first_free;
    operations->first_free = at + 1;
    operations->count--;
}

bool isolated_operation_take(isolated_operations *operations, uint64_t number, isolated_operation *out)
{
    const uint32_t at = (uint32_t)number - 1;
    if (at >= operations->room || !operations->items[at].request ||
        operations->items[at].serial != (uint32_t)(number >> 32))
        return false;
    take_out(operations, at, out);
    return true;
}

bool isolated_operation_take_next(isolated_operations *operations, uint32_t *from, isolated_operation *out)
{
    while (operations->count && *from < operations->room) {
        const uint32_t at = (*from)++;
        if (!operations->items[at].request)
            continue;
        take_out(operations, at, out);
        return true;
    }
    return false;
}

void isolated_operations_close(isolated_operations *operations)
{
    strata_host_free(operations->items);
    *operations = (isolated_operations){0};
}
