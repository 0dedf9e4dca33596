/* Entry points: user objects. */
#include "driver/enter.h"

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
    CUuserObject made = result == CUDA_SUCCESS ? sim_slab_take(&sim_graph.objects) : NULL;
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
    bool good = sim_user_object_valid(object) && count > 0 && count <= INT32_MAX;
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
    sim_user_object_release(object, count);
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    CUresult result = enter(__func__, object, count);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_graph_valid(graph) || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) != 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (!sim_user_object_add(&graph->objects, object, count))
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (flags != CU_GRAPH_USER_OBJECT_MOVE)
        object->references += count;
    return sim_leave(CUDA_SUCCESS);
}

/* The real driver also takes references of other holders if the graph has too few; this one does not. */
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    CUresult result = enter(__func__, object, count);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_graph_valid(graph))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t taken = sim_user_object_take(&graph->objects, object, count);
    if (taken > 0)
        sim_user_object_release(object, taken);
    return sim_leave(CUDA_SUCCESS);
}
