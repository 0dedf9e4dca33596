/* Memory of others that the program maps: other processes, graphics, other interfaces. It is counted, and not charged:
 * its bytes are charged where it was made, or are no program's under Strata. Multicast objects have no memory of their
 * own. */
#include "adapters/exec/exec.h"

/* ---- external memory ---- */

EXEC_EXPORT CUresult CUDAAPI cuImportExternalMemory(CUexternalMemory *out,
                                                    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    const CUresult result = EXEC_CALL(cuImportExternalMemory, out, description);
    if (result == CUDA_SUCCESS && out && description)
        exec_passed_note(EXEC_EXTERNAL, (uintptr_t)*out, description->size, EXEC_CALLER);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuDestroyExternalMemory(CUexternalMemory memory)
{
    exec_release release;
    exec_release_begin(EXEC_EXTERNAL, (uintptr_t)memory, &release);
    return exec_release_end(&release, EXEC_CALL(cuDestroyExternalMemory, memory));
}

/* ---- graphics ---- */

static CUresult mapped(CUresult result, unsigned count, const CUgraphicsResource *resources, const void *caller)
{
    for (unsigned i = 0; result == CUDA_SUCCESS && resources && i < count; i++)
        exec_passed_note(EXEC_EXTERNAL, (uintptr_t)resources[i], 0, caller); /* the size is told with the address */
    return result;
}

static CUresult unmapped(CUresult result, unsigned count, const CUgraphicsResource *resources, const void *caller)
{
    (void)caller;
    for (unsigned i = 0; result == CUDA_SUCCESS && resources && i < count; i++)
        exec_passed_drop(EXEC_EXTERNAL, (uintptr_t)resources[i]); /* the resource stays, and with it its key */
    return result;
}

#define GRAPHICS_HOOK(name, done)                                                                     \
    EXEC_EXPORT CUresult CUDAAPI name(unsigned count, CUgraphicsResource *resources, CUstream stream) \
    {                                                                                                 \
        return done(EXEC_CALL(name, count, resources, stream), count, resources, EXEC_CALLER);        \
    }

GRAPHICS_HOOK(cuGraphicsMapResources, mapped)
GRAPHICS_HOOK(cuGraphicsMapResources_ptsz, mapped)
GRAPHICS_HOOK(cuGraphicsUnmapResources, unmapped)
GRAPHICS_HOOK(cuGraphicsUnmapResources_ptsz, unmapped)

EXEC_EXPORT CUresult CUDAAPI cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr *address, size_t *bytes,
                                                                   CUgraphicsResource resource)
{
    const CUresult result = EXEC_CALL(cuGraphicsResourceGetMappedPointer_v2, address, bytes, resource);
    if (result == CUDA_SUCCESS && bytes)
        exec_passed_grow(EXEC_EXTERNAL, (uintptr_t)resource, *bytes);
    return result;
}

/* ---- physical memory and pools of other processes ---- */

/* Its size is known when it is mapped. */
EXEC_EXPORT CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *shareable,
                                                            CUmemAllocationHandleType type)
{
    const CUresult result = EXEC_CALL(cuMemImportFromShareableHandle, out, shareable, type);
    if (result == CUDA_SUCCESS && out)
        exec_passed_note(EXEC_IMPORTED_PHYSICAL, *out, 0, EXEC_CALLER);
    return result;
}

static size_t bytes_at(CUdeviceptr address)
{
    size_t bytes = 0;
    return EXEC_CALL(cuMemGetAddressRange_v2, NULL, &bytes, address) == CUDA_SUCCESS ? bytes : 0;
}

EXEC_EXPORT CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    const CUresult result = EXEC_CALL(cuMemPoolImportPointer, out, pool, data);
    if (result == CUDA_SUCCESS && out)
        exec_passed_note(EXEC_IMPORTED, *out, bytes_at(*out), EXEC_CALLER);
    return result;
}

/* ---- multicast ---- */

EXEC_EXPORT CUresult CUDAAPI cuMulticastCreate(CUmemGenericAllocationHandle *out,
                                               const CUmulticastObjectProp *properties)
{
    const CUresult result = EXEC_CALL(cuMulticastCreate, out, properties);
    if (result == CUDA_SUCCESS && out && properties)
        exec_passed_note(EXEC_MULTICAST, *out, properties->size, EXEC_CALLER);
    return result;
}
