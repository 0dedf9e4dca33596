/* Questions about mempools: creation, destruction, attributes, rounding and growth, trimming, access. */
#include "ask.h"

#include <stdint.h>

static void try_create(const char *question, CUmemPoolProps properties)
{
    CUmemoryPool pool = NULL;
    CUresult result = cu.MemPoolCreate(&pool, &properties);
    ask(result, "pool.create.%s", question);
    if (result == CUDA_SUCCESS)
        cu.MemPoolDestroy(pool);
}

static void ask_create(void)
{
    CUmemoryPool pool = NULL;
    CUmemPoolProps properties = pool_properties();
    ask(cu.MemPoolCreate(NULL, &properties), "pool.create.null_out");
    ask(cu.MemPoolCreate(&pool, NULL), "pool.create.null_properties");
    try_create("plain", properties);
    properties.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    try_create("type_invalid", properties);
    properties.allocType = (CUmemAllocationType)99;
    try_create("type_99", properties);
    properties = pool_properties();
    properties.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    try_create("location_invalid", properties);
    properties.location.type = (CUmemLocationType)99;
    try_create("location_99", properties);
    properties = pool_properties();
    properties.location.id = 99;
    try_create("device_99", properties);
    properties.location.id = -1;
    try_create("device_minus_one", properties);
    properties = pool_properties();
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    try_create("handle_posix", properties);
    properties.handleTypes = CU_MEM_HANDLE_TYPE_WIN32;
    try_create("handle_win32", properties);
    properties.handleTypes = (CUmemAllocationHandleType)0x40;
    try_create("handle_0x40", properties);
    properties = pool_properties();
    properties.reserved[0] = 1;
    try_create("reserved_not_zero", properties);
    properties = pool_properties();
    properties.usage = 0x8000;
    try_create("usage_0x8000", properties);
    properties = pool_properties();
    properties.maxSize = 1;
    try_create("max_size_1", properties);
    properties.maxSize = SIZE_MAX;
    try_create("max_size_huge", properties);
}

static void ask_maximum(CUstream stream)
{
    static const size_t maxima[] = {1, 4 * MIB, 32 * MIB, 33 * MIB, 64 * MIB};
    for (size_t i = 0; i < sizeof maxima / sizeof maxima[0]; i++) {
        CUmemoryPool pool = new_pool(maxima[i]);
        CUdeviceptr address = 0;
        CUdeviceptr second = 0;
        CUresult result = cu.MemAllocFromPoolAsync(&address, 3 * MIB, pool, stream);
        ask(result, "pool.max_%zu.alloc_3_mib", maxima[i]);
        ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), "pool.max_%zu.reserved",
                   maxima[i]);
        ask(cu.MemAllocFromPoolAsync(&second, 31 * MIB, pool, stream), "pool.max_%zu.alloc_31_mib_more", maxima[i]);
        ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), "pool.max_%zu.reserved_then",
                   maxima[i]);
        if (address != 0)
            cu.MemFreeAsync(address, stream);
        if (second != 0)
            cu.MemFreeAsync(second, stream);
        second = 0;
        cu.StreamSynchronize(stream);
        result = cu.MemAllocFromPoolAsync(&second, 65 * MIB, pool, stream);
        ask(result, "pool.max_%zu.alloc_65_mib", maxima[i]);
        if (result == CUDA_SUCCESS)
            cu.MemFreeAsync(second, stream);
        cu.StreamSynchronize(stream);
        cu.MemPoolDestroy(pool);
    }
}

static void ask_destroy(CUstream stream)
{
    CUmemoryPool pool = new_pool(0);
    CUdeviceptr address = 0;
    cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, stream);
    cu.StreamSynchronize(stream);
    ask(cu.MemPoolDestroy(NULL), "pool.destroy.null");
    ask(cu.MemPoolDestroy(pool), "pool.destroy.live_memory");
    ask(cu.MemsetD8Async(address, 1, 64 * KIB, stream), "pool.destroy.live_memory.usable");
    ask(cu.StreamSynchronize(stream), "pool.destroy.live_memory.synchronize");
    ask(cu.MemFreeAsync(address, stream), "pool.destroy.live_memory.free");
    ask(cu.StreamSynchronize(stream), "pool.destroy.live_memory.free.synchronize");
    CUmemoryPool standard = NULL;
    cu.DeviceGetDefaultMemPool(&standard, 0);
    ask(cu.MemPoolDestroy(standard), "pool.destroy.default");
}

static void ask_device_pools(CUstream stream)
{
    CUresult result;
    CUmemoryPool standard = NULL;
    CUmemoryPool current = NULL;
    CUmemoryPool own = new_pool(0);
    CUdeviceptr address = 0;
    ask(cu.DeviceGetDefaultMemPool(&standard, 0), "pool.default");
    result = cu.DeviceGetMemPool(&current, 0);
    ask_fact(result, current == standard, "pool.current.is_default");
    ask(cu.DeviceGetDefaultMemPool(NULL, 0), "pool.default.null");
    ask(cu.DeviceGetDefaultMemPool(&current, 99), "pool.default.device_99");
    ask(cu.DeviceGetMemPool(NULL, 0), "pool.current.null");
    ask(cu.DeviceGetMemPool(&current, 99), "pool.current.device_99");
    ask(cu.DeviceSetMemPool(0, NULL), "pool.set_current.null");
    ask(cu.DeviceSetMemPool(99, own), "pool.set_current.device_99");
    ask(cu.DeviceSetMemPool(0, own), "pool.set_current");
    result = cu.DeviceGetMemPool(&current, 0);
    ask_fact(result, current == own, "pool.set_current.got");
    cu.MemAllocAsync(&address, 64 * KIB, stream);
    ask_number((long long)pool_number(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "pool.set_current.alloc_async_uses_it");
    cu.MemFreeAsync(address, stream);
    cu.StreamSynchronize(stream);
    ask(cu.MemPoolDestroy(own), "pool.set_current.destroy");
    result = cu.DeviceGetMemPool(&current, 0);
    ask_fact(result, current == standard, "pool.set_current.destroy.default_is_back");
    int descriptor = -1;
    own = new_pool(0);
    if (cu.MemPoolExportToShareableHandle != NULL)
        ask(cu.MemPoolExportToShareableHandle(&descriptor, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            "pool.export.without_handle_type");
    cu.MemPoolDestroy(own);
}

static CUresult set_access(CUmemoryPool pool, CUmemLocationType type, int id, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {.type = type, .id = id}, .flags = flags};
    return cu.MemPoolSetAccess(pool, &access, 1);
}

static void ask_access(void)
{
    CUmemoryPool pool = new_pool(0);
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemLocation wrong = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99};
    CUmemAccess_flags flags = (CUmemAccess_flags)77;
    const CUmemLocationType device = CU_MEM_LOCATION_TYPE_DEVICE;
    CUresult result = cu.MemPoolGetAccess(&flags, pool, &here);
    ask_value(result, flags, "pool.access.own_device");
    ask(cu.MemPoolGetAccess(&flags, pool, &wrong), "pool.access.device_99");
    wrong.type = CU_MEM_LOCATION_TYPE_INVALID;
    ask(cu.MemPoolGetAccess(&flags, pool, &wrong), "pool.access.location_invalid");
    ask(cu.MemPoolGetAccess(NULL, pool, &here), "pool.access.null_out");
    ask(cu.MemPoolGetAccess(&flags, pool, NULL), "pool.access.null_location");
    ask(cu.MemPoolGetAccess(&flags, NULL, &here), "pool.access.null_pool");
    ask(set_access(pool, device, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "pool.set_access.read_write");
    ask(set_access(pool, device, 0, CU_MEM_ACCESS_FLAGS_PROT_READ), "pool.set_access.read");
    ask(set_access(pool, device, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE), "pool.set_access.none");
    ask(set_access(pool, device, 0, (CUmemAccess_flags)99), "pool.set_access.flags_99");
    ask(set_access(pool, device, 99, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "pool.set_access.device_99");
    ask(set_access(pool, device, -1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "pool.set_access.device_minus_one");
    ask(set_access(pool, CU_MEM_LOCATION_TYPE_INVALID, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        "pool.set_access.location_invalid");
    ask(set_access(NULL, device, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "pool.set_access.null_pool");
    CUmemAccessDesc access = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ask(cu.MemPoolSetAccess(pool, &access, 0), "pool.set_access.count_0");
    ask(cu.MemPoolSetAccess(pool, NULL, 1), "pool.set_access.null");
    ask(cu.MemPoolSetAccess(pool, NULL, 0), "pool.set_access.null_count_0");
    result = cu.MemPoolGetAccess(&flags, pool, &here);
    ask_value(result, flags, "pool.access.own_device_after");
    cu.MemPoolDestroy(pool);
}

void ask_pools(void)
{
    start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    ask_create();
    ask_maximum(stream);
    ask_device_pools(stream);
    ask_access();
    ask_destroy(stream);
}

struct attribute {
    CUmemPool_attribute attribute;
    const char *name;
    bool is_int;
};

static const struct attribute attributes[] = {
    {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, "follow_event_dependencies", true},
    {CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, "allow_opportunistic", true},
    {CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, "allow_internal_dependencies", true},
    {CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, "release_threshold", false},
    {CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, "reserved_current", false},
    {CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, "reserved_high", false},
    {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, "used_current", false},
    {CU_MEMPOOL_ATTR_USED_MEM_HIGH, "used_high", false},
};

static void ask_get(CUmemoryPool pool, const struct attribute *attribute, const char *moment)
{
    cuuint64_t wide = 0;
    int narrow = -77;
    CUresult result =
        cu.MemPoolGetAttribute(pool, attribute->attribute, attribute->is_int ? (void *)&narrow : (void *)&wide);
    ask_value(result, attribute->is_int ? narrow : (long long)wide, "pool_attribute.%s.%s", attribute->name, moment);
}

static void ask_sets(CUmemoryPool pool, const struct attribute *attribute)
{
    static const long long values[] = {0, 1, 2, -1, 4096, INT64_MAX};
    ask_get(pool, attribute, "default");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        cuuint64_t wide = (cuuint64_t)values[i];
        int narrow = (int)values[i];
        CUresult result =
            cu.MemPoolSetAttribute(pool, attribute->attribute, attribute->is_int ? (void *)&narrow : (void *)&wide);
        ask(result, "pool_attribute.%s.set_%lld", attribute->name, values[i]);
        cuuint64_t got = 0;
        int got_narrow = -77;
        result =
            cu.MemPoolGetAttribute(pool, attribute->attribute, attribute->is_int ? (void *)&got_narrow : (void *)&got);
        ask_value(result, attribute->is_int ? got_narrow : (long long)got, "pool_attribute.%s.set_%lld.got",
                  attribute->name, values[i]);
    }
    cuuint64_t number = 0;
    ask(cu.MemPoolGetAttribute(NULL, attribute->attribute, &number), "pool_attribute.%s.get_null_pool",
        attribute->name);
    ask(cu.MemPoolSetAttribute(NULL, attribute->attribute, &number), "pool_attribute.%s.set_null_pool",
        attribute->name);
}

void ask_pool_attributes(void)
{
    start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool standard = NULL;
    enum { COUNT = sizeof attributes / sizeof attributes[0] };
    warm_up(stream);
    cu.DeviceGetDefaultMemPool(&standard, 0);
    for (int i = 0; i < COUNT; i++)
        ask_get(standard, &attributes[i], "of_default_pool");
    for (int i = 0; i < COUNT; i++) {
        CUmemoryPool pool = new_pool(0);
        ask_sets(pool, &attributes[i]);
        cu.MemPoolDestroy(pool);
    }
    static const int unknown[] = {0, -1, 9, 10, 11, 12, 99};
    CUmemoryPool pool = new_pool(0);
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        cuuint64_t number[4] = {0};
        ask(cu.MemPoolGetAttribute(pool, (CUmemPool_attribute)unknown[i], number), "pool_attribute.unknown_%d.get",
            unknown[i]);
        ask(cu.MemPoolSetAttribute(pool, (CUmemPool_attribute)unknown[i], number), "pool_attribute.unknown_%d.set",
            unknown[i]);
    }
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    cuuint64_t keep = UINT64_MAX;
    cuuint64_t zero = 0;
    cuuint64_t five = 5;
    cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    cu.MemAllocFromPoolAsync(&first, 64 * KIB, pool, stream);
    cu.MemAllocFromPoolAsync(&second, 64 * KIB, pool, stream);
    cu.MemFreeAsync(first, stream);
    cu.StreamSynchronize(stream);
    for (int i = 4; i < COUNT; i++)
        ask_get(pool, &attributes[i], "one_of_two_freed");
    ask(cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &five), "pool_attribute.used_high.set_5_in_use");
    ask_get(pool, &attributes[7], "set_5_in_use.got");
    ask(cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero), "pool_attribute.used_high.reset_in_use");
    ask_get(pool, &attributes[7], "reset_in_use.got");
    cu.MemFreeAsync(second, stream);
    cu.StreamSynchronize(stream);
    cu.MemPoolTrimTo(pool, 0);
    ask_get(pool, &attributes[4], "trimmed");
    ask_get(pool, &attributes[5], "trimmed");
    ask(cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero),
        "pool_attribute.reserved_high.reset_trimmed");
    ask_get(pool, &attributes[5], "reset_trimmed.got");
    cu.MemPoolDestroy(pool);
}

/* The device has less memory left than a pool takes at a time. */
static void ask_scarce(CUstream stream)
{
    enum { MOST = 128 };
    CUdeviceptr taken[MOST];
    int count = 0;
    CUdeviceptr small = new_memory(8 * MIB);
    for (size_t bytes = 1024 * GIB; bytes >= 2 * MIB;) {
        CUresult result = count < MOST ? cu.MemAlloc(&taken[count], bytes) : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS)
            count++;
        else
            bytes /= 2;
    }
    cu.MemFree(small);
    CUmemoryPool pool = new_pool(0);
    CUdeviceptr address = 0;
    ask(cu.MemAllocFromPoolAsync(&address, MIB, pool, stream), "pool_size.scarce.1_mib");
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), "pool_size.scarce.reserved");
    ask(cu.MemAlloc(&small, 3 * MIB), "pool_size.scarce.plain_3_mib");
    while (count > 0)
        cu.MemFree(taken[--count]);
}

void ask_pool_sizes(void)
{
    static const size_t sizes[] = {1,           256,      257,          511,      512,           513,      4096,
                                   4097,        65536,    65537,        MIB,      MIB + 1,       2 * MIB,  2 * MIB + 1,
                                   3 * MIB + 1, 31 * MIB, 32 * MIB - 1, 32 * MIB, 32 * MIB + 1,  33 * MIB, 34 * MIB,
                                   63 * MIB,    64 * MIB, 64 * MIB + 1, 65 * MIB, 100 * MIB + 1, GIB,      GIB + 1};
    start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CUmemoryPool pool = new_pool(0);
        CUdeviceptr address = 0;
        ask(cu.MemAllocFromPoolAsync(&address, sizes[i], pool, stream), "pool_size.%zu", sizes[i]);
        ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "pool_size.%zu.used", sizes[i]);
        ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), "pool_size.%zu.reserved",
                   sizes[i]);
        cu.MemFreeAsync(address, stream);
        cu.StreamSynchronize(stream);
        cu.MemPoolDestroy(pool);
    }
    CUmemoryPool pool = new_pool(0);
    static const size_t steps[] = {MIB, 30 * MIB, 2 * MIB, 40 * MIB, 20 * MIB, 20 * MIB, 100 * MIB, 64 * KIB};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        CUdeviceptr address = 0;
        cu.MemAllocFromPoolAsync(&address, steps[i], pool, stream);
        ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "pool_size.step_%zu.used", i);
        ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), "pool_size.step_%zu.reserved",
                   i);
    }
    ask_scarce(stream);
}

static CUmemoryPool pool_with_freed(CUstream stream, cuuint64_t threshold, CUdeviceptr *kept)
{
    CUmemoryPool pool = new_pool(0);
    CUdeviceptr address = 0;
    cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    if (kept != NULL)
        cu.MemAllocFromPoolAsync(kept, 64 * MIB, pool, stream);
    cu.MemAllocFromPoolAsync(&address, 64 * MIB, pool, stream);
    cu.MemFreeAsync(address, stream);
    return pool;
}

static void ask_reserved_of(CUmemoryPool pool, const char *moment)
{
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), "pool_release.%s.reserved", moment);
}

static void ask_reserved(CUmemoryPool pool, const char *moment)
{
    ask_reserved_of(pool, moment);
    cu.MemPoolDestroy(pool);
}

static void ask_release(CUstream stream)
{
    CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    CUdeviceptr memory = new_memory(4 * KIB);
    CUmemoryPool pool = pool_with_freed(stream, 0, NULL);
    cu.StreamSynchronize(stream);
    ask_reserved(pool, "stream_synchronize");
    pool = pool_with_freed(stream, 0, NULL);
    cu.CtxSynchronize();
    ask_reserved(pool, "ctx_synchronize");
    pool = pool_with_freed(stream, 0, NULL);
    cu.EventRecord(event, stream);
    cu.EventSynchronize(event);
    ask_reserved(pool, "event_synchronize");
    pool = pool_with_freed(stream, 0, NULL);
    await_stream(stream);
    ask_reserved(pool, "stream_query");
    pool = pool_with_freed(stream, 0, NULL);
    await_stream(stream);
    cu.StreamSynchronize(other);
    ask_reserved_of(pool, "synchronize_of_other_stream");
    cu.MemsetD8Async(memory, 1, 16, other);
    cu.StreamSynchronize(other);
    ask_reserved_of(pool, "synchronize_of_other_busy_stream");
    cu.EventRecord(event, other);
    cu.EventSynchronize(event);
    ask_reserved_of(pool, "event_synchronize_of_other_stream");
    cu.StreamSynchronize(stream);
    ask_reserved(pool, "synchronize_of_settled_stream");
    pool = pool_with_freed(stream, 0, NULL);
    await_stream(stream);
    cu.CtxSynchronize();
    ask_reserved(pool, "ctx_synchronize_when_settled");
    cu.EventRecord(event, stream);
    pool = pool_with_freed(stream, 0, NULL);
    await_stream(stream);
    cu.EventSynchronize(event);
    ask_reserved_of(pool, "event_synchronize_of_earlier_work");
    cu.EventRecord(event, stream);
    cu.StreamWaitEvent(other, event, 0);
    cu.StreamSynchronize(other);
    ask_reserved(pool, "synchronize_of_waiting_stream");
    cu.MemFree(memory);
    pool = pool_with_freed(stream, UINT64_MAX, NULL);
    cu.StreamSynchronize(stream);
    ask_reserved(pool, "threshold_unlimited");
    pool = pool_with_freed(stream, 32 * MIB, NULL);
    cu.StreamSynchronize(stream);
    ask_reserved(pool, "threshold_32_mib");
    CUdeviceptr kept = 0;
    pool = pool_with_freed(stream, 0, &kept);
    cu.StreamSynchronize(stream);
    ask_reserved_of(pool, "one_kept");
    cu.MemFreeAsync(kept, stream);
    cu.StreamSynchronize(stream);
    ask_reserved(pool, "one_kept.freed");
}

/* The pool is destroyed when none of its memory is live. Trimmed and destroyed earlier, it has crashed the driver with
 * a division by zero. */
static void ask_trim_one_kept(CUstream stream)
{
    CUdeviceptr kept = 0;
    CUmemoryPool pool = pool_with_freed(stream, UINT64_MAX, &kept);
    cu.StreamSynchronize(stream);
    ask(cu.MemPoolTrimTo(NULL, 0), "pool_release.trim.null");
    ask(cu.MemPoolTrimTo(pool, SIZE_MAX), "pool_release.trim.huge");
    ask_reserved_of(pool, "trim.huge");
    ask(cu.MemPoolTrimTo(pool, 0), "pool_release.trim.one_kept");
    ask_reserved_of(pool, "trim.one_kept");
    cu.MemFreeAsync(kept, stream);
    cu.StreamSynchronize(stream);
    ask_reserved_of(pool, "trim.one_kept.freed");
    ask(cu.MemPoolTrimTo(pool, 64 * MIB), "pool_release.trim.to_64_mib");
    ask_reserved_of(pool, "trim.to_64_mib");
    ask(cu.MemPoolTrimTo(pool, 1), "pool_release.trim.to_1");
    ask_reserved(pool, "trim.to_1");
}

static void ask_trim(CUstream stream)
{
    CUmemoryPool pool = pool_with_freed(stream, UINT64_MAX, NULL);
    cu.StreamSynchronize(stream);
    ask(cu.MemPoolTrimTo(pool, 0), "pool_release.trim.all_free");
    ask_reserved(pool, "trim.all_free");
    struct gate *gate = gate_hold(stream, GATE_SHORT_MS);
    pool = pool_with_freed(stream, UINT64_MAX, NULL);
    ask(cu.MemPoolTrimTo(pool, 0), "pool_release.trim.free_pending");
    ask_yes(!gate_release(gate), "pool_release.trim.free_pending.waits");
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "pool_release.trim.free_pending.used");
    cu.StreamSynchronize(stream);
    cu.MemPoolDestroy(pool);
}

static void ask_destroy_pending(CUstream stream)
{
    struct gate *gate = gate_hold(stream, GATE_SHORT_MS);
    CUmemoryPool pool = pool_with_freed(stream, UINT64_MAX, NULL);
    ask(cu.MemPoolDestroy(pool), "pool_release.destroy.free_pending");
    ask_yes(!gate_release(gate), "pool_release.destroy.free_pending.waits");
    ask(cu.StreamSynchronize(stream), "pool_release.destroy.free_pending.synchronize");
}

void ask_pool_release(void)
{
    start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    ask_release(stream);
    ask_trim_one_kept(stream);
    ask_trim(stream);
    ask_destroy_pending(stream);
}
