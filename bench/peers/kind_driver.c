/* The driver's pool, called directly. It keeps its memory, as Strata's stacks do. */
#include "bare.h"
#include "loops.h"

typedef struct driver_slot {
    CUdeviceptr address;
    CUstream stream;
} driver_slot;

LOOP_INLINE bool driver_allocate(peer *self, CUstream stream, size_t bytes, void *slot)
{
    driver_slot *block = slot;
    CUresult result = bare.MemAllocFromPoolAsync(&block->address, bytes, self->pool, stream);
    block->stream = stream;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return false;
    bare_check(result, "cuMemAllocFromPoolAsync");
    return true;
}

LOOP_INLINE void driver_release(peer *self, CUstream stream, void *slot)
{
    (void)self;
    bare_check(bare.MemFreeAsync(((driver_slot *)slot)->address, stream), "cuMemFreeAsync");
}

/* The program orders the two streams: the free must come after the work. */
LOOP_INLINE void driver_release_elsewhere(peer *self, CUstream stream, void *slot)
{
    const driver_slot *block = slot;
    bare_check(bare.EventRecord(self->event, block->stream), "cuEventRecord");
    bare_check(bare.StreamWaitEvent(stream, self->event, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
    bare_check(bare.MemFreeAsync(block->address, stream), "cuMemFreeAsync");
}

#define driver_release_unknown driver_release

PEER_LOOPS(driver, driver_slot);

static bool open_pool(peer *self, uint64_t most)
{
    const CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
        .maxSize = (size_t)most,
    };
    bare_check(bare.MemPoolCreate(&self->pool, &properties), "cuMemPoolCreate");
    cuuint64_t keep_all = UINT64_MAX;
    bare_check(bare.MemPoolSetAttribute(self->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep_all),
               "cuMemPoolSetAttribute");
    for (size_t i = 0; i < self->stream_count; i++)
        bare_check(bare.StreamCreate(&self->streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return true;
}

static void close_pool(peer *self)
{
    for (size_t i = 0; i < self->stream_count; i++)
        bare_check(bare.StreamDestroy(self->streams[i]), "cuStreamDestroy");
    bare_check(bare.MemPoolDestroy(self->pool), "cuMemPoolDestroy");
}

static uint64_t reserved_peak(peer *self)
{
    cuuint64_t bytes = 0;
    bare_check(bare.MemPoolGetAttribute(self->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &bytes),
               "cuMemPoolGetAttribute");
    return bytes;
}

static void trim(peer *self)
{
    bare_check(bare.MemPoolTrimTo(self->pool, 0), "cuMemPoolTrimTo");
}

static CUdeviceptr address_of(const void *slot)
{
    return ((const driver_slot *)slot)->address;
}

const peer_kind peer_driver = {
    .name = "driver",
    .slot_bytes = sizeof(driver_slot),
    .streams = true,
    .open = open_pool,
    .close = close_pool,
    .address = address_of,
    .reserved_peak = reserved_peak,
    .trim = trim,
    PEER_LOOPS_OF(driver),
};
