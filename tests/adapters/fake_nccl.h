/* A stand-in for NCCL's registration calls: looks at the memory as NCCL does (NCCL 2.30, src/register and
 * src/allocator.cc: cuMemRetainAllocationHandle and cuMemExportToShareableHandle of every segment), and keeps a list.
 */
#ifndef STRATA_TESTS_ADAPTERS_FAKE_NCCL_H
#define STRATA_TESTS_ADAPTERS_FAKE_NCCL_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* What the program gives it of the driver. */
typedef struct fake_nccl_driver {
    CUresult (*retain)(CUmemGenericAllocationHandle *handle, void *address);
    CUresult (*release)(CUmemGenericAllocationHandle handle);
    CUresult (*export_handle)(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                              unsigned long long flags);
    CUresult (*address_range)(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
} fake_nccl_driver;

/* A registration; the handle that NCCL gives. */
typedef struct fake_nccl_entry {
    void *address;
    size_t bytes;
    int flags;
    bool window;
    size_t segments;   /* physical allocations under the buffer; 0: not of cuMemCreate */
    size_t exportable; /* of these, that other processes could import */
    bool multicast;    /* a window in one segment, at whose start it begins */
} fake_nccl_entry;

/* An ncclComm_t. */
typedef struct fake_nccl_comm {
    int answer;       /* of the next call, if not 0 */
    bool skips;       /* as with NCCL_LOCAL_REGISTER=0 */
    bool in_group;    /* a window's handle comes with fake_nccl_group_end */
    void **pending;   /* then: where */
    void *pending_as; /* and which */
    size_t registered;
    fake_nccl_entry last;
} fake_nccl_comm;

typedef void (*fake_nccl_use_call)(const fake_nccl_driver *driver);
typedef void (*fake_nccl_group_end_call)(fake_nccl_comm *comm);

#endif
