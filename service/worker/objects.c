/* The worker's references and graphs: their owner guards the table. */
#include "core/base/host_memory.h"
#include "service/worker/worker.h"

#include <string.h>

static bool grow(worker_objects *objects)
{
    const uint32_t room = objects->room ? 2 * objects->room : 256;
    worker_entry *items = strata_host_zalloc(room * sizeof *items);
    if (!items)
        return false;
    if (objects->items)
        memcpy(items, objects->items, objects->room * sizeof *items);
    strata_host_free(objects->items);
    for (uint32_t i = objects->room; i < room; i++)
        items[i].next_free = i + 1 < room ? i + 2 : 0;
    objects->first_free = objects->room + 1;
    objects->items = items;
    objects->room = room;
    return true;
}

uint64_t worker_objects_add(worker_objects *objects, worker_object object)
{
    if (!objects->first_free && !grow(objects))
        return 0;
    const uint32_t at = objects->first_free - 1;
    worker_entry *item = &objects->items[at];
    objects->first_free = item->next_free;
    item->object = object;
    item->serial++;
    return (uint64_t)item->serial << 32 | (at + 1);
}

worker_object worker_objects_find(const worker_objects *objects, uint64_t number)
{
    const uint32_t at = (uint32_t)number - 1;
    return at < objects->room && objects->items[at].serial == (uint32_t)(number >> 32) ? objects->items[at].object
                                                                                       : (worker_object){0};
}

worker_object worker_objects_take(worker_objects *objects, uint64_t number)
{
    const uint32_t at = (uint32_t)number - 1;
    const worker_object object = worker_objects_find(objects, number);
    if (worker_object_is_none(object))
        return object;
    objects->items[at].object = (worker_object){0};
    objects->items[at].next_free = objects->first_free;
    objects->first_free = at + 1;
    return object;
}

worker_object worker_objects_take_last(worker_objects *objects)
{
    while (objects->room) {
        const worker_object object = objects->items[--objects->room].object;
        if (!worker_object_is_none(object))
            return object;
    }
    strata_host_free(objects->items);
    *objects = (worker_objects){0};
    return (worker_object){0};
}

void worker_object_release(worker_object object)
{
    strata_ref_release(object.ref);
    strata_service_graph_release(object.graph);
}
