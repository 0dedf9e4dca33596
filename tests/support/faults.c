/* Replaces entries of the driver's table. */
#include "support/faults.h"

static struct {
    bool active, begun;
    bool onwards;
    test_fault_call call;
    unsigned left; /* calls until the fault; 0: it has happened */
    unsigned refused, streams_kept;
    CUresult result;
    CUstream captured;
    strata_entry_table real;
} fault;

/* Whether this call must fail. */
static bool strikes(test_fault_call call)
{
    if (call != fault.call)
        return false;
    if (fault.left > 0)
        fault.left--;
    else if (!fault.onwards)
        return false;
    if (fault.left > 0)
        return false;
    fault.refused++;
    fault.streams_kept += call == TEST_FAULT_STREAM_DESTROY;
    return true;
}

static CUresult CUDAAPI event_create(CUevent *event, unsigned flags)
{
    return strikes(TEST_FAULT_EVENT_CREATE) ? fault.result : fault.real.EventCreate(event, flags);
}

static CUresult CUDAAPI event_query(CUevent event)
{
    return strikes(TEST_FAULT_EVENT_QUERY) ? fault.result : fault.real.EventQuery(event);
}

static CUresult CUDAAPI event_record(CUevent event, CUstream stream)
{
    return strikes(TEST_FAULT_EVENT_RECORD) ? fault.result : fault.real.EventRecord(event, stream);
}

static CUresult CUDAAPI event_synchronize(CUevent event)
{
    return strikes(TEST_FAULT_EVENT_SYNCHRONIZE) ? fault.result : fault.real.EventSynchronize(event);
}

static CUresult CUDAAPI stream_create(CUstream *stream, unsigned flags)
{
    return strikes(TEST_FAULT_STREAM_CREATE) ? fault.result : fault.real.StreamCreate(stream, flags);
}

static CUresult CUDAAPI stream_destroy(CUstream stream)
{
    return strikes(TEST_FAULT_STREAM_DESTROY) ? fault.result : fault.real.StreamDestroy(stream);
}

static CUresult CUDAAPI stream_synchronize(CUstream stream)
{
    return strikes(TEST_FAULT_STREAM_SYNCHRONIZE) ? fault.result : fault.real.StreamSynchronize(stream);
}

static CUresult CUDAAPI stream_wait_event(CUstream stream, CUevent event, unsigned flags)
{
    return strikes(TEST_FAULT_STREAM_WAIT_EVENT) ? fault.result : fault.real.StreamWaitEvent(stream, event, flags);
}

static CUresult CUDAAPI stream_get_id(CUstream stream, unsigned long long *id)
{
    return strikes(TEST_FAULT_STREAM_GET_ID) ? fault.result : fault.real.StreamGetId(stream, id);
}

static CUresult CUDAAPI allocate(CUdeviceptr *address, size_t bytes)
{
    return strikes(TEST_FAULT_ALLOCATE) ? fault.result : fault.real.MemAlloc(address, bytes);
}

static CUresult CUDAAPI allocate_async(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return strikes(TEST_FAULT_ALLOCATE) ? fault.result : fault.real.MemAllocFromPoolAsync(address, bytes, pool, stream);
}

static CUresult CUDAAPI free_memory(CUdeviceptr address)
{
    return strikes(TEST_FAULT_FREE) ? fault.result : fault.real.MemFree(address);
}

static CUresult CUDAAPI free_async(CUdeviceptr address, CUstream stream)
{
    return strikes(TEST_FAULT_FREE) ? fault.result : fault.real.MemFreeAsync(address, stream);
}

static CUresult CUDAAPI memset_async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    return strikes(TEST_FAULT_MEMSET) ? fault.result : fault.real.MemsetD8Async(to, value, count, stream);
}

static CUresult CUDAAPI memset_words_async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    return strikes(TEST_FAULT_MEMSET) ? fault.result : fault.real.MemsetD32Async(to, value, count, stream);
}

static CUresult CUDAAPI copy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return strikes(TEST_FAULT_COPY) ? fault.result : fault.real.MemcpyDtoDAsync(to, from, bytes, stream);
}

static CUresult CUDAAPI host_allocate(void **address, size_t bytes, unsigned flags)
{
    return strikes(TEST_FAULT_HOST_ALLOCATE) ? fault.result : fault.real.MemHostAlloc(address, bytes, flags);
}

static CUresult CUDAAPI host_free(void *address)
{
    return strikes(TEST_FAULT_HOST_FREE) ? fault.result : fault.real.MemFreeHost(address);
}

static CUresult CUDAAPI mem_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                                   const CUmemAllocationProp *properties, unsigned long long flags)
{
    return strikes(TEST_FAULT_MEM_CREATE) ? fault.result : fault.real.MemCreate(handle, bytes, properties, flags);
}

static CUresult CUDAAPI mem_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                                unsigned long long flags)
{
    return strikes(TEST_FAULT_MEM_MAP) ? fault.result : fault.real.MemMap(address, bytes, offset, handle, flags);
}

static CUresult CUDAAPI mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    return strikes(TEST_FAULT_MEM_SET_ACCESS) ? fault.result : fault.real.MemSetAccess(address, bytes, access, count);
}

static CUresult CUDAAPI mem_unmap(CUdeviceptr address, size_t bytes)
{
    return strikes(TEST_FAULT_MEM_UNMAP) ? fault.result : fault.real.MemUnmap(address, bytes);
}

static CUresult CUDAAPI mem_release(CUmemGenericAllocationHandle handle)
{
    return strikes(TEST_FAULT_MEM_RELEASE) ? fault.result : fault.real.MemRelease(handle);
}

void test_fault_begin(test_fault_call call, unsigned nth, bool onwards, CUresult result)
{
    assert_false(fault.active);
    fault.real = strata_cu;
    fault.active = fault.begun = true;
    fault.call = call;
    fault.left = nth;
    fault.onwards = onwards;
    fault.refused = 0;
    fault.result = result;
    strata_cu.EventCreate = event_create;
    strata_cu.EventQuery = event_query;
    strata_cu.EventRecord = event_record;
    strata_cu.EventSynchronize = event_synchronize;
    strata_cu.StreamCreate = stream_create;
    strata_cu.StreamDestroy = stream_destroy;
    strata_cu.StreamSynchronize = stream_synchronize;
    strata_cu.StreamWaitEvent = stream_wait_event;
    strata_cu.StreamGetId = stream_get_id;
    strata_cu.MemAlloc = allocate;
    strata_cu.MemAllocFromPoolAsync = allocate_async;
    strata_cu.MemFree = free_memory;
    strata_cu.MemFreeAsync = free_async;
    strata_cu.MemsetD8Async = memset_async;
    strata_cu.MemsetD32Async = memset_words_async;
    strata_cu.MemcpyDtoDAsync = copy_async;
    strata_cu.MemHostAlloc = host_allocate;
    strata_cu.MemFreeHost = host_free;
    strata_cu.MemCreate = mem_create;
    strata_cu.MemMap = mem_map;
    strata_cu.MemSetAccess = mem_set_access;
    strata_cu.MemUnmap = mem_unmap;
    strata_cu.MemRelease = mem_release;
}

static CUresult CUDAAPI is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    CUresult result = fault.real.StreamIsCapturing(stream, status);
    if (result == CUDA_SUCCESS && stream == fault.captured)
        *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return result;
}

void test_fault_pretend_capture(CUstream stream)
{
    assert_false(fault.active);
    fault.real = strata_cu;
    fault.active = true;
    fault.captured = stream;
    strata_cu.StreamIsCapturing = is_capturing;
}

bool test_fault_was_begun(void)
{
    return fault.begun;
}

unsigned test_fault_streams_kept(void)
{
    return fault.streams_kept;
}

unsigned test_fault_end(void)
{
    if (!fault.active)
        return 0;
    strata_cu = fault.real;
    fault.active = false;
    return fault.refused;
}
