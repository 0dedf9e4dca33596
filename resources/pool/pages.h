/* Where the pool's memory comes from: physical memory of the device in handles, mapped into one range of addresses.
 *
 * A handle is mapped in one place at a time, whole. The range is many times as large as the device's memory, so that a
 * place for a mapping is always found next to what it is to join. Nothing here knows what is free: the pool says what
 * is mapped and unmapped, and that nothing submitted can touch it any more. All calls but the first and the last come
 * with the pool's growth lock held. */
#ifndef STRATA_RESOURCES_POOL_PAGES_H
#define STRATA_RESOURCES_POOL_PAGES_H

#include "core/device.h"

#include <strata/async.h>

typedef struct pool_frame {
    CUmemGenericAllocationHandle handle;
    uint64_t bytes;      /* 0: no frame has this number */
    CUdeviceptr address; /* where it is mapped; 0: nowhere */
    uint32_t next;       /* of the free numbers */
    uint32_t held;       /* by how many holds (resources/pool/hold.c): while there is one, it stays where it is */
} pool_frame;

typedef struct pool_pages {
    strata_device *device;
    CUmemAllocationProp properties;
    CUdeviceptr base;
    uint64_t bytes;     /* of addresses */
    uint64_t granule;   /* what the device maps memory in */
    pool_frame *frames; /* by number, from 1 */
    uint32_t frame_count, frame_capacity, frame_free;
    uint64_t reserved; /* bytes in frames */
    uint64_t calls;    /* of the driver, for the frames */
} pool_pages;

/* Reserves addresses for a device. Errors: UNSUPPORTED (no virtual memory management), DRIVER, OUT_OF_MEMORY. */
strata_status pool_pages_open(pool_pages *pages, strata_device *device, strata_export_type export_type);

/* Gives everything back. No work can touch it any more. */
void pool_pages_close(pool_pages *pages);

/* Makes a frame, mapped nowhere; *frame is its number. The driver's answer; OUT_OF_MEMORY too without host memory, with
 * *host set. */
CUresult pool_pages_make(pool_pages *pages, uint64_t bytes, uint32_t *frame, bool *host);

/* Maps a frame that is mapped nowhere. Nothing can access it until pool_pages_open_access. */
CUresult pool_pages_map(pool_pages *pages, uint32_t frame, CUdeviceptr address);

/* Lets the device read and write what was mapped in a range. */
CUresult pool_pages_give_access(pool_pages *pages, CUdeviceptr address, uint64_t bytes);

/* Takes a frame out of its place. */
CUresult pool_pages_unmap(pool_pages *pages, uint32_t frame);

/* Gives a frame that is mapped nowhere back to the device. */
CUresult pool_pages_drop(pool_pages *pages, uint32_t frame);

/* Makes a handle of a frame that other processes can import: *out is a file descriptor, an int, or a CUmemFabricHandle,
 * as the pages' export type says. */
CUresult pool_pages_export(pool_pages *pages, uint32_t frame, void *out);

#endif
