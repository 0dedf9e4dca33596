/* Built as a library with NCCL's SONAME, which a test loads as frameworks load NCCL: with RTLD_LOCAL. */
#include "adapters/fake_nccl.h"

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { SUCCESS, UNHANDLED_CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, IN_PROGRESS = 7 };

static const fake_nccl_driver *driver;

void fake_nccl_use(const fake_nccl_driver *given);
void fake_nccl_use(const fake_nccl_driver *given)
{
    driver = given;
}

static bool can_export(CUmemGenericAllocationHandle handle)
{
    int file = -1;
    const bool can = driver->export_handle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS;
    if (can)
        close(file);
    return can;
}

static void look(fake_nccl_entry *entry)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)entry->address;
    const CUdeviceptr end = at + entry->bytes;
    while (at < end) {
        CUdeviceptr base;
        size_t bytes;
        CUmemGenericAllocationHandle handle;
        if (driver->address_range(&base, &bytes, at) != CUDA_SUCCESS ||
            driver->retain(&handle, (void *)(uintptr_t)at) != CUDA_SUCCESS)
            return;
        entry->multicast = entry->window && !entry->segments && base == at && base + bytes >= end;
        entry->segments++;
        entry->exportable += can_export(handle);
        driver->release(handle);
        at = base + bytes;
    }
}

static int enter(fake_nccl_comm *comm, fake_nccl_entry entry, void **handle)
{
    const int answer = comm->answer;
    *handle = NULL;
    comm->answer = 0;
    if (answer || comm->skips)
        return answer;
    look(&entry);
    if (entry.window && !entry.segments)
        return INVALID_ARGUMENT;
    fake_nccl_entry *kept = malloc(sizeof *kept);
    if (!kept)
        return SYSTEM_ERROR;
    *kept = comm->last = entry;
    comm->registered++;
    if (entry.window && comm->in_group) {
        comm->pending = handle;
        comm->pending_as = kept;
        return IN_PROGRESS;
    }
    *handle = kept;
    return SUCCESS;
}

static int leave(fake_nccl_comm *comm, void *handle)
{
    const int answer = comm->answer;
    comm->answer = 0;
    if (answer)
        return answer;
    if (!handle)
        return INVALID_ARGUMENT;
    free(handle);
    comm->registered--;
    return SUCCESS;
}

void fake_nccl_group_end(fake_nccl_comm *comm);
void fake_nccl_group_end(fake_nccl_comm *comm)
{
    *comm->pending = comm->pending_as;
    comm->pending = NULL;
}

int ncclCommRegister(fake_nccl_comm *comm, void *address, size_t bytes, void **handle);
int ncclCommRegister(fake_nccl_comm *comm, void *address, size_t bytes, void **handle)
{
    return enter(comm, (fake_nccl_entry){.address = address, .bytes = bytes}, handle);
}

int ncclCommDeregister(fake_nccl_comm *comm, void *handle);
int ncclCommDeregister(fake_nccl_comm *comm, void *handle)
{
    return leave(comm, handle);
}

int ncclCommWindowRegister(fake_nccl_comm *comm, void *address, size_t bytes, void **window, int flags);
int ncclCommWindowRegister(fake_nccl_comm *comm, void *address, size_t bytes, void **window, int flags)
{
    return enter(comm, (fake_nccl_entry){.address = address, .bytes = bytes, .flags = flags, .window = true}, window);
}

int ncclCommWindowDeregister(fake_nccl_comm *comm, void *window);
int ncclCommWindowDeregister(fake_nccl_comm *comm, void *window)
{
    return leave(comm, window);
}

const char *ncclGetErrorString(int result);
const char *ncclGetErrorString(int result)
{
    return result == UNHANDLED_CUDA_ERROR ? "unhandled cuda error" : "unknown result";
}

const char *ncclGetLastError(const fake_nccl_comm *comm);
const char *ncclGetLastError(const fake_nccl_comm *comm)
{
    (void)comm;
    return "said by the stand-in";
}
