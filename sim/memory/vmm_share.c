/* Memory that goes between processes as a file descriptor. Behind its bytes a trailer describes them, and tells such a
 * file from others. */
#include "memory/memory.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct file_trailer {
    char magic[16];
    uint64_t bytes;
    CUmemAllocationProp properties;
} file_trailer;

static const char magic[16] = "strata-sim share";

int sim_share_open(const sim_physical *physical)
{
    file_trailer trailer;
    memset(&trailer, 0, sizeof trailer);
    memcpy(trailer.magic, magic, sizeof magic);
    trailer.bytes = physical->bytes;
    trailer.properties = physical->properties;
    int file = memfd_create("strata-sim-share", MFD_CLOEXEC);
    if (file >= 0 && (!sim_file_resize(file, physical->bytes + sizeof trailer) ||
                      pwrite(file, &trailer, sizeof trailer, (off_t)physical->bytes) != (ssize_t)sizeof trailer)) {
        close(file);
        file = -1;
    }
    return file;
}

static bool same_file(const sim_file *a, const sim_file *b)
{
    return a->device == b->device && a->inode == b->inode;
}

sim_physical *sim_share_other(const sim_physical *physical)
{
    for (sim_physical *other = NULL; (other = sim_slab_next(&sim_memory.physicals, other));)
        if (other != physical && other->own_file && same_file(&other->file, &physical->file))
            return other;
    return NULL;
}

CUresult sim_share_export(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                          unsigned long long flags)
{
    const sim_physical *physical = sim_physical_of(handle);
    if (!out || !physical || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        physical->properties.requestedHandleTypes != type)
        return CUDA_ERROR_INVALID_VALUE;
    int file = sim_file_is_open(&physical->file) ? fcntl(physical->file.descriptor, F_DUPFD_CLOEXEC, 0) : -1;
    if (file < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(out, &file, sizeof file);
    return CUDA_SUCCESS;
}

static bool read_trailer(int file, file_trailer *trailer)
{
    struct stat status;
    if (fstat(file, &status) != 0 || status.st_size < (off_t)sizeof *trailer)
        return false;
    off_t at = status.st_size - (off_t)sizeof *trailer;
    return pread(file, trailer, sizeof *trailer, at) == (ssize_t)sizeof *trailer &&
           memcmp(trailer->magic, magic, sizeof magic) == 0 && trailer->bytes == (uint64_t)at;
}

/* An import has a handle of its own, which cannot be exported. Bytes of this process are counted once; those of another
 * process, there. */
CUresult sim_share_import(CUmemGenericAllocationHandle *handle, int file)
{
    file_trailer trailer;
    if (!read_trailer(file, &trailer))
        return CUDA_ERROR_UNKNOWN;
    sim_device *device = NULL;
    if (trailer.properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        device = sim_device_of(trailer.properties.location.id);
        if (!device)
            return CUDA_ERROR_INVALID_DEVICE;
    }
    trailer.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    sim_file own;
    if (!sim_file_take(&own, fcntl(file, F_DUPFD_CLOEXEC, 0)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_physical *made = sim_physical_make(device, trailer.bytes, &trailer.properties);
    if (!made) {
        sim_file_close(&own);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->file = own;
    made->own_file = true;
    const sim_physical *other = sim_share_other(made);
    if (other) {
        sim_piece_drop(made->piece);
        made->piece = sim_piece_hold(other->piece);
    }
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)made;
    return CUDA_SUCCESS;
}
