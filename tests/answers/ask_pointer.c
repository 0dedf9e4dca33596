/* Questions about pointer attributes: every attribute of every kind of address. */
#include "ask.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum form { NUMBER, ADDRESS, SIZE, CONTEXT, POOL, SIGNIFICANT_ONLY };

struct attribute {
    CUpointer_attribute attribute;
    const char *name;
    enum form form;
    size_t bytes;
};

static const struct attribute attributes[] = {
    {CU_POINTER_ATTRIBUTE_CONTEXT, "context", CONTEXT, sizeof(CUcontext)},
    {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "memory_type", NUMBER, 4},
    {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, "device_pointer", ADDRESS, 8},
    {CU_POINTER_ATTRIBUTE_HOST_POINTER, "host_pointer", ADDRESS, 8},
    {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, "sync_memops", NUMBER, 1},
    {CU_POINTER_ATTRIBUTE_BUFFER_ID, "buffer_id", SIGNIFICANT_ONLY, 8},
    {CU_POINTER_ATTRIBUTE_IS_MANAGED, "is_managed", NUMBER, 1},
    {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "device_ordinal", NUMBER, 4},
    {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "is_legacy_ipc_capable", NUMBER, 1},
    {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "range_start", ADDRESS, 8},
    {CU_POINTER_ATTRIBUTE_RANGE_SIZE, "range_size", SIZE, 8},
    {CU_POINTER_ATTRIBUTE_MAPPED, "mapped", NUMBER, 1},
    {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, "allowed_handle_types", SIGNIFICANT_ONLY, 8},
    {CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, "access_flags", NUMBER, 4},
    {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, "mempool_handle", POOL, 8},
    {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, "mapping_size", SIZE, 8},
    {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, "mapping_base", SIGNIFICANT_ONLY, 8},
};

struct address {
    const char *name;
    CUdeviceptr address;
    CUdeviceptr base;
};

static long long signed_number(const unsigned char *bytes, size_t count)
{
    int number = 0;
    if (count == 1)
        return bytes[0];
    memcpy(&number, bytes, sizeof number);
    return number;
}

static void ask_attribute(const struct attribute *attribute, const struct address *address, CUcontext context,
                          CUmemoryPool pool)
{
    union {
        unsigned char bytes[16];
        unsigned long long number;
        CUcontext context;
        CUmemoryPool pool;
    } value;
    memset(&value, 0, sizeof value);
    CUresult result = cu.PointerGetAttribute(&value, attribute->attribute, address->address);
    const char *text = NULL;
    if (result == CUDA_SUCCESS && attribute->form == ADDRESS)
        text = value.number == 0                  ? "null"
               : value.number == address->address ? "the address"
               : value.number == address->base    ? "the base"
                                                  : "another address";
    if (result == CUDA_SUCCESS && attribute->form == CONTEXT)
        text = value.context == context ? "current" : value.context == NULL ? "null" : "another";
    if (result == CUDA_SUCCESS && attribute->form == POOL)
        text = value.pool == pool ? "its pool" : value.pool == NULL ? "null" : "another";
    if (text != NULL)
        ask_text(text, "pointer.%s.%s", address->name, attribute->name);
    else if (attribute->form == NUMBER)
        ask_value(result, signed_number(value.bytes, attribute->bytes), "pointer.%s.%s", address->name,
                  attribute->name);
    else if (attribute->form == SIZE)
        ask_value(result, (long long)value.number, "pointer.%s.%s", address->name, attribute->name);
    else
        ask(result, "pointer.%s.%s", address->name, attribute->name);
}

void ask_pointer_attributes(const char *name, CUdeviceptr address, CUdeviceptr base, CUcontext context,
                            CUmemoryPool pool)
{
    struct address asked = {name, address, base};
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++)
        ask_attribute(&attributes[i], &asked, context, pool);
}

void ask_pointers(void)
{
    CUcontext context = start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool pool = new_pool(0);
    CUdeviceptr device = new_memory(64 * KIB);
    CUdeviceptr freed = new_memory(64 * MIB);
    CUdeviceptr pooled = 0;
    CUdeviceptr large = 0;
    void *host = NULL;
    void *portable = NULL;
    cu.MemAllocFromPoolAsync(&pooled, 1000, pool, stream);
    cu.MemAllocFromPoolAsync(&large, 100 * MIB, pool, stream);
    cu.MemHostAlloc(&host, 64 * KIB, 0);
    cu.MemHostAlloc(&portable, 64 * KIB, CU_MEMHOSTALLOC_PORTABLE);
    cu.StreamSynchronize(stream);
    cu.MemFree(freed);
    char *pageable = malloc(64 * KIB);
    CUdeviceptr pinned = (CUdeviceptr)(uintptr_t)host;
    const struct address addresses[] = {
        {"device", device, device},
        {"device_interior", device + 4096, device},
        {"freed", freed, freed},
        {"pool", pooled, pooled},
        {"pool_interior", pooled + 100, pooled},
        {"pool_large", large, large},
        {"pinned", pinned, pinned},
        {"pinned_interior", pinned + 100, pinned},
        {"pinned_portable", (CUdeviceptr)(uintptr_t)portable, (CUdeviceptr)(uintptr_t)portable},
        {"pageable", (CUdeviceptr)(uintptr_t)pageable, (CUdeviceptr)(uintptr_t)pageable},
        {"foreign", 0x1000, 0x1000},
        {"null", 0, 0},
    };
    for (size_t a = 0; a < sizeof addresses / sizeof addresses[0]; a++)
        ask_pointer_attributes(addresses[a].name, addresses[a].address, addresses[a].base, context, pool);
    unsigned long long number = 0;
    ask(cu.PointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device), "pointer.null_out");
    ask(cu.PointerGetAttribute(&number, (CUpointer_attribute)0, device), "pointer.attribute_0");
    ask(cu.PointerGetAttribute(&number, (CUpointer_attribute)9999, device), "pointer.attribute_unknown");
    free(pageable);
}
