/* cuMemCreate: memory without an address, known by handles. It lies in memory-only files, so that it can have several
 * addresses: mostly in a common one, whose offsets are never reused, since files are sparse and a hole costs nothing.
 * What other processes may share has its own file. */
#include "memory/memory.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Guarded by sim.lock. */
static struct {
    sim_file file; /* valid if end > 0 */
    uint64_t end;
} common;

sim_piece *sim_piece_hold(sim_piece *piece)
{
    piece->references++;
    return piece;
}

void sim_piece_drop(sim_piece *piece)
{
    if (piece && --piece->references == 0)
        free(piece);
}

sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle)
{
    sim_physical *physical = (sim_physical *)(uintptr_t)handle;
    return sim_slab_has(&sim_memory.physicals, physical) && physical->handles > 0 ? physical : NULL;
}

/* Begins another file if the program has closed the one before, whose memory then keeps the addresses that it has. */
static bool room_in_common(uint64_t bytes, uint64_t *offset)
{
    if (common.end > 0 && !sim_file_is_open(&common.file))
        common.end = 0;
    if (common.end == 0 && !sim_file_take(&common.file, memfd_create("strata-sim", MFD_CLOEXEC)))
        return false;
    if (!sim_file_resize(common.file.descriptor, common.end + bytes)) {
        if (common.end == 0)
            sim_file_close(&common.file);
        return false;
    }
    *offset = common.end;
    common.end += bytes;
    return true;
}

static bool find_bytes(sim_physical *physical)
{
    if (physical->properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        physical->own_file = true;
        return sim_file_take(&physical->file, sim_share_open(physical));
    }
    bool room = room_in_common(physical->bytes, &physical->offset);
    physical->file = common.file;
    return room;
}

/* Drops the bytes of memory that is gone. In the common file, which a forked child shares, only the parent does. A
 * thread that is to be ended by pthread_cancel is not ended here, with the lock. */
static void lose_bytes(const sim_physical *physical)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    if (physical->own_file) {
        sim_file_close(&physical->file);
    } else if (sim.phase == SIM_RUNNING && sim_file_is_open(&physical->file)) {
        fallocate(physical->file.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)physical->offset,
                  (off_t)physical->bytes);
    }
    pthread_setcancelstate(before, &before);
}

/* Takes memory out of the device's used bytes; another physical with the same file counts for it from then on. */
static void uncount(const sim_physical *physical)
{
    sim_physical *other = physical->own_file ? sim_share_other(physical) : NULL;
    if (other)
        other->counted = true;
    else if (physical->device)
        physical->device->memory->used -= physical->bytes;
}

void sim_physical_unused(sim_physical *physical)
{
    if (physical->handles > 0 || physical->maps > 0)
        return;
    if (physical->counted)
        uncount(physical);
    lose_bytes(physical);
    sim_physical_gone(physical);
}

void sim_physical_gone(sim_physical *physical)
{
    sim_piece_drop(physical->piece);
    sim_slab_give(&sim_memory.physicals, physical);
}

void sim_physicals_close(void)
{
    for (sim_physical *physical = NULL; (physical = sim_slab_next(&sim_memory.physicals, physical));) {
        if (physical->own_file)
            sim_file_close(&physical->file);
        sim_piece_drop(physical->piece);
        physical->piece = NULL;
    }
    if (common.end > 0)
        sim_file_close(&common.file);
    common.end = 0;
}

/* ---- creating ---- */

/* Finds the device of a location. NULL and success: it is on the host. */
static CUresult locate(const CUmemLocation *location, sim_device **device)
{
    *device = NULL;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *device = sim_device_of(location->id);
        return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool is_zero(const unsigned char *bytes, size_t count)
{
    while (count > 0 && bytes[count - 1] == 0)
        count--;
    return count == 0;
}

/* What the driver keeps of the properties: the host is its first node; unknown bits are dropped. */
static bool adopt(const CUmemAllocationProp *asked, const sim_device *device, CUmemAllocationProp *kept)
{
    const unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const unsigned refused = CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT | CU_MEM_HANDLE_TYPE_FABRIC;
    unsigned types = (unsigned)asked->requestedHandleTypes;
    unsigned char compression = asked->allocFlags.compressionType;
    bool good = asked->type == CU_MEM_ALLOCATION_TYPE_PINNED && (types & refused) == 0 &&
                (compression == CU_MEM_ALLOCATION_COMP_NONE || compression == CU_MEM_ALLOCATION_COMP_GENERIC) &&
                is_zero(asked->allocFlags.reserved, sizeof asked->allocFlags.reserved);
    *kept = (CUmemAllocationProp){
        .type = asked->type,
        .requestedHandleTypes = (CUmemAllocationHandleType)(types & known),
        .location = {.type = device ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA,
                     .id = device ? device->ordinal : 0},
        .allocFlags = {.compressionType = compression, .gpuDirectRDMACapable = asked->allocFlags.gpuDirectRDMACapable},
    };
    return good;
}

sim_physical *sim_physical_make(sim_device *device, uint64_t bytes, const CUmemAllocationProp *properties)
{
    sim_piece *piece = calloc(1, sizeof *piece);
    sim_physical *made = piece ? sim_slab_take(&sim_memory.physicals) : NULL;
    if (!made) {
        free(piece);
        return NULL;
    }
    made->device = device;
    made->bytes = bytes;
    made->handles = 1;
    made->properties = *properties;
    made->piece = sim_piece_hold(piece);
    return made;
}

CUresult sim_physical_create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *asked,
                             unsigned long long flags)
{
    sim_device *device;
    CUmemAllocationProp properties;
    if (!handle || !asked || flags != 0 || bytes == 0 || bytes % SIM_PAGE != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = locate(&asked->location, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!adopt(asked, device, &properties))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > SIM_MOST_MEMORY || (device && !sim_device_make_room(device, bytes)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_physical *made = sim_physical_make(device, bytes, &properties);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!find_bytes(made)) {
        sim_physical_gone(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (device) {
        device->memory->used += bytes;
        made->counted = true;
    }
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)made;
    return CUDA_SUCCESS;
}
