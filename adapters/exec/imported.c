/* Memory of others that the program maps. External memory is another API's, as a rule made by this process, which no
 * hook saw: it is charged while it is imported. Memory of other processes is charged where it was made, and only
 * counted here. So is memory of graphics resources, whose size is known only after it was mapped. Multicast objects
 * have no memory of their own. */
#include "adapters/exec/exec.h"

/* ---- external memory ---- */

/* Buffers and arrays that are mapped of the import are the same memory, and are not charged again. After a refused
 * import the handle is still the program's, as after one that fails. */
EXEC_EXPORT CUresult CUDAAPI cuImportExternalMemory(CUexternalMemory *out,
                                                    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    const exec_here here = exec_device_to_charge();
    exec_charge charge;
    CUresult result =
        exec_charge_begin(&here, EXEC_EXTERNAL, description ? description->size : 0, EXEC_CALLER, &charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = EXEC_CALL(cuImportExternalMemory, out, description);
    return exec_charge_end(&charge, result, result == CUDA_SUCCESS ? (uintptr_t)*out : 0);
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
        exec_passed_note(EXEC_GRAPHICS, (uintptr_t)resources[i], 0, caller); /* the size is told with the address */
    return result;
}

static CUresult unmapped(CUresult result, unsigned count, const CUgraphicsResource *resources, const void *caller)
{
    (void)caller;
    for (unsigned i = 0; result == CUDA_SUCCESS && resources && i < count; i++)
        exec_passed_drop(EXEC_GRAPHICS, (uintptr_t)resources[i]); /* the resource stays, and with it its key */
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
        exec_passed_grow(EXEC_GRAPHICS, (uintptr_t)resource, *bytes);
    return result;
}

/* ---- physical memory and pools of other processes ---- */

/* Counted with 0 bytes: the size is known when the memory is mapped (mappings.c). */
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
