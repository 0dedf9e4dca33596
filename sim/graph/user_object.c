/* User objects, destroyed with the last graph that holds them. Destructors run on the host thread, in any order. */
#include "graph/graph.h"
#include <stdlib.h>
#include <string.h>

bool sim_user_object_valid(CUuserObject object)
{
    return sim_slab_has(&sim_graph.objects, object);
}

void sim_user_object_release(CUuserObject object, uint64_t count)
{
    if (object->references > count) {
        object->references -= count;
        return;
    }
    sim_host_thread_call(object->destroy, object->data);
    sim_slab_give(&sim_graph.objects, object);
}

/* ---- references ---- */

bool sim_objects_copy(sim_object_references *to, const sim_object_references *from)
{
    if (from->count == 0)
        return true;
    to->at = malloc(from->count * sizeof(*to->at));
    if (!to->at)
        return false;
    memcpy(to->at, from->at, from->count * sizeof(*to->at));
    to->count = from->count;
    for (size_t i = 0; i < to->count; i++)
        to->at[i].object->references += to->at[i].count;
    return true;
}

void sim_objects_free(sim_object_references *references)
{
    for (size_t i = 0; i < references->count; i++)
        if (sim_user_object_valid(references->at[i].object))
            sim_user_object_release(references->at[i].object, references->at[i].count);
    free(references->at);
    *references = (sim_object_references){0};
}

static sim_object_reference *find(const sim_object_references *references, CUuserObject object)
{
    for (size_t i = 0; i < references->count; i++)
        if (references->at[i].object == object)
            return &references->at[i];
    return NULL;
}

bool sim_user_object_add(sim_object_references *references, CUuserObject object, uint64_t count)
{
    sim_object_reference *known = find(references, object);
    if (known) {
        known->count += count;
        return true;
    }
    sim_object_reference *at = realloc(references->at, (references->count + 1) * sizeof(*at));
    if (!at)
        return false;
    references->at = at;
    at[references->count++] = (sim_object_reference){.object = object, .count = count};
    return true;
}

/* Takes at most the references that the graph has. */
uint64_t sim_user_object_take(sim_object_references *references, CUuserObject object, uint64_t count)
{
    sim_object_reference *known = find(references, object);
    if (!known)
        return 0;
    if (known->count > count) {
        known->count -= count;
        return count;
    }
    uint64_t taken = known->count;
    *known = references->at[--references->count];
    return taken;
}
