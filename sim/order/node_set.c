/* Short sets of graph nodes in order of insertion. */
#include "order/order.h"
#include <stdlib.h>
#include <string.h>

bool sim_nodes_reserve(sim_nodes *nodes, size_t count)
{
    if (count <= nodes->capacity)
        return true;
    size_t capacity = count < 4 ? 4 : 2 * count;
    CUgraphNode *at = realloc(nodes->at, capacity * sizeof(*at));
    if (!at)
        return false;
    nodes->at = at;
    nodes->capacity = capacity;
    return true;
}

void sim_nodes_add(sim_nodes *nodes, CUgraphNode node)
{
    nodes->at[nodes->count++] = node;
}

bool sim_nodes_copy(sim_nodes *to, const sim_nodes *from)
{
    if (!sim_nodes_reserve(to, from->count))
        return false;
    if (from->count > 0)
        memcpy(to->at, from->at, from->count * sizeof(*to->at));
    to->count = from->count;
    return true;
}

bool sim_nodes_have(const sim_nodes *nodes, CUgraphNode node)
{
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->at[i] == node)
            return true;
    return false;
}

void sim_nodes_remove(sim_nodes *nodes, CUgraphNode node)
{
    size_t kept = 0;
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->at[i] != node)
            nodes->at[kept++] = nodes->at[i];
    nodes->count = kept;
}

void sim_nodes_free(sim_nodes *nodes)
{
    free(nodes->at);
    *nodes = (sim_nodes){0};
}
