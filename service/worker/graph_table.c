/* The worker's graphs, by the client's numbers. These ascend, so that the table is sorted as it grows; entries that
 * were taken go when they are most of it. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "service/worker/worker.h"

#include <string.h>

static void close_gaps(worker_graphs *graphs)
{
    size_t kept = 0;
    for (size_t i = 0; i < graphs->count; i++)
        if (graphs->items[i].graph)
            graphs->items[kept++] = graphs->items[i];
    graphs->count = kept;
    graphs->taken = 0;
}

static bool make_room(worker_graphs *graphs)
{
    if (graphs->count < graphs->room)
        return true;
    if (graphs->taken > graphs->room / 2) {
        close_gaps(graphs);
        return true;
    }
    const size_t room = graphs->room ? 2 * graphs->room : 64;
    worker_graph *items = strata_host_zalloc(room * sizeof *items);
    if (!items)
        return false;
    if (graphs->items)
        memcpy(items, graphs->items, graphs->count * sizeof *items);
    strata_host_free(graphs->items);
    graphs->items = items;
    graphs->room = room;
    return true;
}

strata_status worker_graphs_add(worker_graphs *graphs, uint64_t number, strata_service_graph *graph)
{
    if (number <= graphs->last)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a graph has the number %llu; there were graphs up to %llu",
                           (unsigned long long)number, (unsigned long long)graphs->last);
    if (!make_room(graphs))
        return strata_fail_host_memory("a graph of the worker");
    graphs->items[graphs->count++] = (worker_graph){.number = number, .graph = graph};
    graphs->last = number;
    return STRATA_SUCCESS;
}

/* The entry of a number; NULL if there is none. */
static worker_graph *search(const worker_graphs *graphs, uint64_t number)
{
    size_t low = 0, high = graphs->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (graphs->items[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < graphs->count && graphs->items[low].number == number ? &graphs->items[low] : NULL;
}

strata_service_graph *worker_graphs_find(const worker_graphs *graphs, uint64_t number)
{
    const worker_graph *item = search(graphs, number);
    return item ? item->graph : NULL;
}

strata_service_graph *worker_graphs_take(worker_graphs *graphs, uint64_t number)
{
    worker_graph *item = search(graphs, number);
    if (!item || !item->graph)
        return NULL;
    strata_service_graph *graph = item->graph;
    item->graph = NULL;
    graphs->taken++;
    return graph;
}

void worker_graphs_close(worker_graphs *graphs)
{
    for (size_t i = 0; i < graphs->count; i++)
        strata_service_graph_release(graphs->items[i].graph);
    strata_host_free(graphs->items);
    *graphs = (worker_graphs){0};
}
