/* Questions about virtual memory: properties, address ranges, creation of physical memory. */
#include "vmm.h"

#include <stdint.h>
#include <stdio.h>

struct variant {
    const char *name;
    CUmemAllocationProp properties;
};

#define PINNED .type = CU_MEM_ALLOCATION_TYPE_PINNED
#define HERE   PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}

static const struct variant variants[] = {
    {"plain", {HERE}},
    {"type_0", {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}}},
    {"type_managed", {.type = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}}},
    {"type_99", {.type = (CUmemAllocationType)99, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}}},
    {"device_99", {PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99}}},
    {"device_minus_one", {PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = -1}}},
    {"location_0", {PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_INVALID}}},
    {"location_host", {PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_HOST}}},
    {"location_host_numa", {PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}}},
    {"location_host_numa_99", {PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 99}}},
    {"location_host_numa_current", {PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT}}},
    {"location_99", {PINNED, .location = {.type = (CUmemLocationType)99}}},
    {"handle_posix", {HERE, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}},
    {"handle_win32", {HERE, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32}},
    {"handle_win32_kmt", {HERE, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32_KMT}},
    {"handle_unknown", {HERE, .requestedHandleTypes = (CUmemAllocationHandleType)0x10}},
    {"handle_posix_and_win32", {HERE, .requestedHandleTypes = (CUmemAllocationHandleType)3}},
    {"compression_1", {HERE, .allocFlags = {.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC}}},
    {"compression_9", {HERE, .allocFlags = {.compressionType = 9}}},
    {"rdma", {HERE, .allocFlags = {.gpuDirectRDMACapable = 1}}},
    {"usage_tile_pool", {HERE, .allocFlags = {.usage = CU_MEM_CREATE_USAGE_TILE_POOL}}},
    {"usage_unknown", {HERE, .allocFlags = {.usage = 0x80}}},
    {"reserved_set", {HERE, .allocFlags = {.reserved = {1}}}},
};

static void ask_granularity(const struct variant *variant)
{
    size_t bytes = 0;
    CUresult result = cu.MemGetAllocationGranularity(&bytes, &variant->properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    ask_value(result, (long long)bytes, "vmm.granularity.minimum.%s", variant->name);
    bytes = 0;
    result = cu.MemGetAllocationGranularity(&bytes, &variant->properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    ask_value(result, (long long)bytes, "vmm.granularity.recommended.%s", variant->name);
}

static void ask_creation(const struct variant *variant)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp got = {.type = (CUmemAllocationType)77};
    CUresult result = cu.MemCreate(&handle, PAGE, &variant->properties, 0);
    ask(result, "vmm.create.%s", variant->name);
    if (result != CUDA_SUCCESS)
        return;
    ask(cu.MemGetAllocationPropertiesFromHandle(&got, handle), "vmm.properties.%s", variant->name);
    ask_number(got.type, "vmm.properties.%s.type", variant->name);
    ask_number(got.requestedHandleTypes, "vmm.properties.%s.handle_types", variant->name);
    ask_number(got.location.type, "vmm.properties.%s.location_type", variant->name);
    ask_number(got.location.id, "vmm.properties.%s.location_id", variant->name);
    ask_number(got.allocFlags.compressionType, "vmm.properties.%s.compression", variant->name);
    ask_number(got.allocFlags.gpuDirectRDMACapable, "vmm.properties.%s.rdma", variant->name);
    ask_number(got.allocFlags.usage, "vmm.properties.%s.usage", variant->name);
    ask(cu.MemRelease(handle), "vmm.release.%s", variant->name);
}

void ask_vmm_properties(void)
{
    size_t bytes = 0;
    CUmemAllocationProp properties = vmm_properties(0);
    cu.Init(0);
    ask(cu.MemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "vmm.granularity.without_context");
    start();
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        ask_granularity(&variants[i]);
        ask_creation(&variants[i]);
    }
    ask(cu.MemGetAllocationGranularity(&bytes, &properties, (CUmemAllocationGranularity_flags)2),
        "vmm.granularity.option_2");
    ask(cu.MemGetAllocationGranularity(NULL, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "vmm.granularity.null_out");
    ask(cu.MemGetAllocationGranularity(&bytes, NULL, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "vmm.granularity.null_properties");
    CUmemGenericAllocationHandle handle = vmm_create(PAGE);
    ask(cu.MemGetAllocationPropertiesFromHandle(NULL, handle), "vmm.properties.null_out");
    ask(cu.MemGetAllocationPropertiesFromHandle(&properties, 0), "vmm.properties.handle_0");
    cu.MemRelease(handle);
    ask(cu.CtxSynchronize(), "vmm.properties.context_is_usable");
}

/* ---- reserving ---- */

static void ask_reserve_sizes(void)
{
    static const struct {
        const char *name;
        size_t bytes;
    } sizes[] = {
        {"0", 0},
        {"1", 1},
        {"4_kib", 4096},
        {"64_kib", 65536},
        {"2_mib_less_1", PAGE - 1},
        {"2_mib", PAGE},
        {"2_mib_and_1", PAGE + 1},
        {"3_mib", 3 * MIB},
        {"1_gib", GIB},
        {"1_tib", 1024 * GIB},
        {"1_pib", PIB},
        {"most_pages", SIZE_MAX / PAGE * PAGE},
        {"size_max", SIZE_MAX},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CUdeviceptr address = 0x1234;
        CUresult result = cu.MemAddressReserve(&address, sizes[i].bytes, 0, 0, 0);
        ask(result, "vmm.reserve.%s", sizes[i].name);
        if (result != CUDA_SUCCESS) {
            ask_text(address == 0x1234 ? "untouched"
                     : address == 0    ? "null"
                                       : "set",
                     "vmm.reserve.%s.address", sizes[i].name);
            continue;
        }
        ask_number((long long)(address % PAGE), "vmm.reserve.%s.modulo_2_mib", sizes[i].name);
        ask(cu.MemAddressFree(address, sizes[i].bytes), "vmm.reserve.%s.free", sizes[i].name);
    }
}

static void ask_reserve_alignments(void)
{
    static const size_t alignments[] = {1, 2, 3, 4096, 65536, PAGE, 3 * MIB, 4 * MIB, 64 * MIB, GIB, 16 * GIB};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        CUdeviceptr address = 0;
        CUresult result = cu.MemAddressReserve(&address, PAGE, alignments[i], 0, 0);
        ask_fact(result, address % alignments[i] == 0, "vmm.reserve.aligned_%zu", alignments[i]);
        if (result == CUDA_SUCCESS)
            cu.MemAddressFree(address, PAGE);
    }
    CUdeviceptr address = 0;
    ask(cu.MemAddressReserve(&address, PAGE, SIZE_MAX, 0, 0), "vmm.reserve.aligned_size_max");
    ask(cu.MemAddressReserve(&address, PAGE, SIZE_MAX / 2 + 1, 0, 0), "vmm.reserve.aligned_2_to_63");
}

static void ask_hint(CUdeviceptr hint, size_t bytes, const char *name)
{
    CUdeviceptr address = 0;
    CUresult result = cu.MemAddressReserve(&address, bytes, 0, hint, 0);
    ask_fact(result, address == hint, "vmm.reserve.hint.%s", name);
    if (result == CUDA_SUCCESS)
        cu.MemAddressFree(address, bytes);
}

static void ask_reserve_hints(void)
{
    CUdeviceptr range = vmm_reserve(64 * MIB);
    ask_hint(range, PAGE, "in_use");
    cu.MemAddressFree(range, 64 * MIB);
    ask_hint(range, 64 * MIB, "freed");
    ask_hint(range + 4 * MIB, PAGE, "freed_interior");
    ask_hint(range + 1, PAGE, "misaligned_1");
    ask_hint(range + 4096, PAGE, "misaligned_4_kib");
    ask_hint(0x1000, PAGE, "low");
    ask_hint(PAGE, PAGE, "low_page");
    static const size_t places[] = {2, 8, 16, 32, 64, 96, 128, 256, 512, 1024, 2048};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char name[64];
        CUdeviceptr large = vmm_reserve(4 * GIB);
        cu.MemAddressFree(large, 4 * GIB);
        snprintf(name, sizeof name, "freed_4_gib_at_%zu_mib", places[i]);
        ask_hint(large + places[i] * MIB, PAGE, name);
        snprintf(name, sizeof name, "freed_4_gib_at_%zu_mib_1_gib", places[i]);
        ask_hint(large + places[i] * MIB, GIB, name);
    }
    CUdeviceptr address = 0;
    ask(cu.MemAddressReserve(&address, PAGE, 0, 0, 1), "vmm.reserve.flags_1");
    ask(cu.MemAddressReserve(&address, PAGE, 0, 0, 1ULL << 40), "vmm.reserve.flags_high");
    ask(cu.MemAddressReserve(NULL, PAGE, 0, 0, 0), "vmm.reserve.null");
}

static void ask_address_free(void)
{
    CUdeviceptr range = vmm_reserve(8 * MIB);
    CUdeviceptr plain = new_memory(PAGE);
    ask(cu.MemAddressFree(range, 0), "vmm.address_free.0_bytes");
    ask(cu.MemAddressFree(range, 4 * MIB), "vmm.address_free.half");
    ask(cu.MemAddressFree(range, 16 * MIB), "vmm.address_free.twice_the_size");
    ask(cu.MemAddressFree(range, 8 * MIB - 1), "vmm.address_free.1_less");
    ask(cu.MemAddressFree(range + PAGE, 6 * MIB), "vmm.address_free.interior");
    ask(cu.MemAddressFree(range + 1, 8 * MIB), "vmm.address_free.misaligned");
    ask(cu.MemAddressFree(0, 8 * MIB), "vmm.address_free.address_0");
    ask(cu.MemAddressFree(0, 0), "vmm.address_free.nothing");
    ask(cu.MemAddressFree(0x1000, 8 * MIB), "vmm.address_free.foreign");
    ask(cu.MemAddressFree(plain, PAGE), "vmm.address_free.plain_memory");
    ask(cu.MemAddressFree(range, 8 * MIB), "vmm.address_free");
    ask(cu.MemAddressFree(range, 8 * MIB), "vmm.address_free.twice");
    cu.MemFree(plain);
}

/* Operations on addresses without a mapping. */
static void ask_reserved_only(CUcontext context)
{
    char host[16] = "";
    size_t bytes = 0;
    CUdeviceptr base = 0;
    unsigned long long flags = 77;
    CUmemGenericAllocationHandle handle = 0;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUdeviceptr range = vmm_reserve(8 * MIB);
    CUdeviceptr plain = new_memory(PAGE);
    ask_pointer_attributes("vmm_reserved", range + 4096, range, context, NULL);
    CUresult result = cu.MemGetAddressRange(&base, &bytes, range + 4096);
    ask_value(result, (long long)bytes, "vmm.reserved.address_range");
    ask(cu.MemGetAccess(&flags, &here, range), "vmm.reserved.get_access");
    ask(vmm_allow(range, PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "vmm.reserved.set_access");
    ask(cu.MemRetainAllocationHandle(&handle, (void *)(uintptr_t)range), "vmm.reserved.retain");
    ask(cu.MemUnmap(range, PAGE), "vmm.reserved.unmap");
    ask(cu.MemFree(range), "vmm.reserved.mem_free");
    ask(cu.MemFreeAsync(range, NULL), "vmm.reserved.mem_free_async");
    ask(cu.MemcpyHtoD(range, host, sizeof host), "vmm.reserved.htod");
    ask(cu.MemcpyDtoH(host, range, sizeof host), "vmm.reserved.dtoh");
    ask(cu.MemcpyDtoD(plain, range, sizeof host), "vmm.reserved.dtod");
    ask(cu.MemsetD8(range, 1, 16), "vmm.reserved.memset");
    ask(cu.CtxSynchronize(), "vmm.reserved.context_is_usable");
    cu.MemAddressFree(range, 8 * MIB);
    cu.MemFree(plain);
}

void ask_vmm_reserve(void)
{
    CUdeviceptr address = 0;
    cu.Init(0);
    CUresult result = cu.MemAddressReserve(&address, PAGE, 0, 0, 0);
    ask(result, "vmm.reserve.without_context");
    if (result == CUDA_SUCCESS)
        ask(cu.MemAddressFree(address, PAGE), "vmm.address_free.without_context");
    CUcontext context = start();
    ask_reserve_sizes();
    ask_reserve_alignments();
    ask_reserve_hints();
    ask_address_free();
    ask_reserved_only(context);
}

/* ---- creating ---- */

static void ask_create_sizes(void)
{
    static const struct {
        const char *name;
        size_t bytes;
    } sizes[] = {
        {"0", 0},
        {"1", 1},
        {"4_kib", 4096},
        {"64_kib", 65536},
        {"2_mib_less_1", PAGE - 1},
        {"2_mib", PAGE},
        {"3_mib", 3 * MIB},
        {"64_mib", 64 * MIB},
        {"1_tib", 1024 * GIB},
        {"1_pib", PIB},
        {"most_pages", SIZE_MAX / PAGE * PAGE},
        {"size_max", SIZE_MAX},
    };
    CUmemAllocationProp properties = vmm_properties(0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CUmemGenericAllocationHandle handle = 0x1234;
        CUresult result = cu.MemCreate(&handle, sizes[i].bytes, &properties, 0);
        ask(result, "vmm.create.%s", sizes[i].name);
        if (result == CUDA_SUCCESS)
            cu.MemRelease(handle);
        else
            ask_text(handle == 0x1234 ? "untouched"
                     : handle == 0    ? "null"
                                      : "set",
                     "vmm.create.%s.handle", sizes[i].name);
    }
}

/* A pool's unused memory is returned when another allocation needs it. */
static void ask_create_from_pool(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool pool = new_pool(0);
    CUdeviceptr address = 0;
    cuuint64_t keep = UINT64_MAX;
    size_t left = 0;
    size_t total = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = vmm_properties(0);
    cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    cu.MemGetInfo(&left, &total);
    cu.MemAllocFromPoolAsync(&address, left / 2, pool, stream);
    cu.MemFreeAsync(address, stream);
    cu.StreamSynchronize(stream);
    ask(cu.MemCreate(&handle, left / 4 * 3 / PAGE * PAGE, &properties, 0), "vmm.create.what_a_pool_holds");
    cu.MemRelease(handle);
    cu.MemPoolDestroy(pool);
    cu.StreamDestroy(stream);
}

void ask_vmm_create(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = vmm_properties(0);
    cu.Init(0);
    CUresult result = cu.MemCreate(&handle, PAGE, &properties, 0);
    ask(result, "vmm.create.without_context");
    if (result == CUDA_SUCCESS)
        ask(cu.MemRelease(handle), "vmm.release.without_context");
    start();
    ask_create_sizes();
    ask(cu.MemCreate(&handle, PAGE, &properties, 1), "vmm.create.flags_1");
    ask(cu.MemCreate(NULL, PAGE, &properties, 0), "vmm.create.null_out");
    ask(cu.MemCreate(&handle, PAGE, NULL, 0), "vmm.create.null_properties");
    ask_create_from_pool();
    ask(cu.CtxSynchronize(), "vmm.create.context_is_usable");
    ask(cu.MemRelease(0), "vmm.release.handle_0");
}
