/* User objects: what a user has destroyed when the last graph that needs it is gone. The destructor runs on the thread
 * of host functions, in nobody's order. */
#include "graph/graph.h"
#include <stdlib.h>
#include <string.h>

static bool valid(CUuserObject object)
{
    return sim_slab_has(&sim.objects, object);
}

static void release(CUuserObject object, uint64_t count)
{
    if (object->references > count) {
        object->references -= count;
        return;
    }
    sim_host_thread_call(object->destroy, object->data);
    sim_slab_give(&sim.objects, object);
}

/* ---- the references of graphs ---- */

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
        if (valid(references->at[i].object))
            release(references->at[i].object, references->at[i].count);
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

static bool add(sim_object_references *references, CUuserObject object, uint64_t count)
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

/* Takes away so many references, and none that the graph does not have. */
static uint64_t take(sim_object_references *references, CUuserObject object, uint64_t count)
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

/* ---- the driver's interface ---- */

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount,
                            unsigned int flags)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!object_out || !destroy || initialRefcount == 0 || initialRefcount > INT32_MAX ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    result = sim_host_thread_start();
    CUuserObject made = result == CUDA_SUCCESS ? sim_slab_take(&sim.objects) : NULL;
    if (!made)
        return sim_leave(result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result);
    made->references = initialRefcount;
    made->destroy = destroy;
    made->data = ptr;
    *object_out = made;
    return sim_leave(CUDA_SUCCESS);
}

static CUresult enter(const char *entry, CUuserObject object, unsigned count)
{
    CUresult result = sim_enter_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    bool good = valid(object) && count > 0 && count <= INT32_MAX;
    return good ? CUDA_SUCCESS : sim_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    CUresult result = enter(__func__, object, count);
    if (result != CUDA_SUCCESS)
        return result;
    object->references += count;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    CUresult result = enter(__func__, object, count);
    if (result != CUDA_SUCCESS)
        return result;
    release(object, count);
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    CUresult result = enter(__func__, object, count);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_graph_valid(graph) || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) != 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (!add(&graph->objects, object, count))
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (flags != CU_GRAPH_USER_OBJECT_MOVE)
        object->references += count;
    return sim_leave(CUDA_SUCCESS);
}

/* The real driver takes references that the graph does not have from somebody else; this one leaves them alone. */
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    CUresult result = enter(__func__, object, count);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_graph_valid(graph))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t taken = take(&graph->objects, object, count);
    if (taken > 0)
        release(object, taken);
    return sim_leave(CUDA_SUCCESS);
}
