/* Walks of captured graphs. */
#include "runtime/graph_ancestors.h"

#include "core/base/host_memory.h"

/* ---- the set ---- */

static size_t bucket_of(const strata_ancestors *ancestors, CUgraphNode node)
{
    size_t at = (uintptr_t)node * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    while (ancestors->table[at & ancestors->mask] && ancestors->table[at & ancestors->mask] != node)
        at++;
    return at & ancestors->mask;
}

static bool grow(strata_ancestors *ancestors)
{
    const size_t buckets = ancestors->table ? 2 * (ancestors->mask + 1) : 64;
    strata_ancestors larger = *ancestors;
    larger.table = strata_host_zalloc(buckets * sizeof *larger.table);
    larger.mask = buckets - 1;
    if (!larger.table)
        return false;
    for (size_t i = 0; ancestors->table && i <= ancestors->mask; i++)
        if (ancestors->table[i])
            larger.table[bucket_of(&larger, ancestors->table[i])] = ancestors->table[i];
    strata_host_free(ancestors->table);
    *ancestors = larger;
    return true;
}

/* Adds a node to the set. *fresh: it was not in it. False without host memory. */
static bool insert(strata_ancestors *ancestors, CUgraphNode node, bool *fresh)
{
    if ((!ancestors->table || 2 * ancestors->count > ancestors->mask) && !grow(ancestors))
        return false;
    CUgraphNode *bucket = &ancestors->table[bucket_of(ancestors, node)];
    *fresh = !*bucket;
    ancestors->count += *fresh;
    *bucket = node;
    return true;
}

static void clear(strata_ancestors *ancestors)
{
    strata_host_free(ancestors->table);
    ancestors->table = NULL;
    ancestors->mask = ancestors->count = 0;
    strata_nodes_free(&ancestors->front);
}

/* ---- walks ---- */

typedef struct walk {
    strata_ancestors *ancestors;
    strata_nodes next; /* new nodes whose dependencies are not visited yet */
    strata_nodes met;  /* nodes of the earlier front */
} walk;

static bool visit(walk *self, const CUgraphNode *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool fresh;
        if (!insert(self->ancestors, nodes[i], &fresh))
            return false;
        if (fresh ? !strata_nodes_push(&self->next, nodes[i])
                  : strata_nodes_has(&self->ancestors->front, nodes[i]) && !strata_nodes_add(&self->met, &nodes[i], 1))
            return false;
    }
    return true;
}

/* Visits the nodes that a node depends on, mostly by one call: the driver fills what there is room for, and says how
 * many it filled. */
static bool visit_dependencies(walk *self, CUgraphNode node)
{
    enum { FEW = 16 };
    CUgraphNode few[FEW], *nodes = few;
    size_t count = FEW;
    CUresult result = strata_cu.GraphNodeGetDependencies(node, few, &count);
    if (result == CUDA_SUCCESS && count >= FEW) {
        result = strata_cu.GraphNodeGetDependencies(node, NULL, &count);
        nodes = result == CUDA_SUCCESS ? strata_host_zalloc(count * sizeof *nodes) : NULL;
        if (!nodes)
            return false;
        result = strata_cu.GraphNodeGetDependencies(node, nodes, &count);
    }
    const bool visited = result == CUDA_SUCCESS && visit(self, nodes, count);
    if (nodes != few)
        strata_host_free(nodes);
    return visited;
}

/* Adds all nodes that come before a front. *all_met: each node of the earlier front is before this one, or in it. */
static bool walk_from(strata_ancestors *ancestors, const strata_capture_front *front, bool *all_met)
{
    walk self = {.ancestors = ancestors};
    bool known = visit(&self, front->nodes, front->count);
    while (known && self.next.count)
        known = visit_dependencies(&self, strata_nodes_items(&self.next)[--self.next.count]);
    *all_met = self.met.count == ancestors->front.count;
    strata_nodes_free(&self.next);
    strata_nodes_free(&self.met);
    return known;
}

bool strata_ancestors_reach(strata_ancestors *ancestors, const strata_capture_front *front)
{
    bool all_met = false;
    bool known = strata_cu.GraphNodeGetDependencies != NULL && walk_from(ancestors, front, &all_met);
    if (known && !all_met) {
        clear(ancestors);
        known = walk_from(ancestors, front, &all_met);
    }
    if (known) {
        strata_nodes_free(&ancestors->front);
        known = strata_nodes_add(&ancestors->front, front->nodes, front->count);
    }
    if (!known)
        clear(ancestors);
    return known;
}

bool strata_ancestors_have(const strata_ancestors *ancestors, CUgraphNode node)
{
    return ancestors->table && ancestors->table[bucket_of(ancestors, node)] == node;
}

/* ---- streams ---- */

strata_ancestors *strata_ancestors_of(strata_ancestors **list, CUstream stream)
{
    strata_ancestors *one = *list;
    while (one && one->stream != stream)
        one = one->next;
    if (one || !(one = strata_host_zalloc(sizeof *one)))
        return one;
    one->stream = stream;
    one->next = *list;
    *list = one;
    return one;
}

void strata_ancestors_free(strata_ancestors **list)
{
    for (strata_ancestors *one = *list, *next; one; one = next) {
        next = one->next;
        clear(one);
        strata_host_free(one);
    }
    *list = NULL;
}

/* ---- places ---- */

static const strata_ancestors *ancestors_at(strata_capture_place *place)
{
    if (place->asked)
        return place->ancestors;
    place->asked = true;
    place->ancestors = strata_ancestors_of(place->known, place->stream);
    if (place->ancestors && !strata_ancestors_reach(place->ancestors, place->front))
        place->ancestors = NULL;
    return place->ancestors;
}

bool strata_capture_place_is_after_slow(strata_capture_place *place, CUgraphNode node)
{
    const strata_capture_front *front = place->front;
    for (size_t i = 0; i < front->count; i++)
        if (front->nodes[i] == node)
            return true;
    const strata_ancestors *ancestors = front->count ? ancestors_at(place) : NULL;
    return ancestors && strata_ancestors_have(ancestors, node);
}
