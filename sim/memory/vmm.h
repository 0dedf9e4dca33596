/* Memory that the program maps itself: what cuMemCreate makes, the addresses that cuMemAddressReserve takes, and the
 * maps between them.
 *
 * The bytes of all such memory lie in files that exist in memory only, so that one piece can be seen at several
 * addresses at once, and by other processes. A reservation has a window of the same size elsewhere in the process,
 * where what is mapped to its addresses appears in the same places: work over neighbouring maps finds its bytes side by
 * side, as on a device. */
#ifndef STRATA_SIM_VMM_H
#define STRATA_SIM_VMM_H

#include "sim.h"

/* Bytes that may be seen at several addresses, as the checker knows them. Several physicals have one if they share a
 * file. */
typedef struct sim_piece {
    uint32_t references; /* physicals, and shadows among the views */
    sim_shadow *views;   /* by their next_view */
} sim_piece;

sim_piece *sim_piece_hold(sim_piece *piece);
void sim_piece_drop(sim_piece *piece);

/* What a handle stands for. It lives while there are handles out or maps of it. */
typedef struct sim_physical {
    sim_handle handle;
    sim_device *device; /* NULL: the host's memory */
    uint64_t bytes;
    uint64_t handles; /* given out and not released */
    uint64_t maps;
    int file; /* its own, if it can be shared, or the common one */
    bool own_file;
    bool counted;     /* in the device's used bytes; of several that share a file, one is */
    uint64_t offset;  /* in the file */
    sim_piece *piece; /* held */
    CUmemAllocationProp properties;
} sim_physical;

/* Reserved addresses. */
typedef struct sim_range {
    sim_node by_address; /* in sim.ranges */
    uint64_t address;
    uint64_t bytes;
    char *window;
    uint64_t maps;
} sim_range;

/* A physical piece at addresses of a reservation. */
typedef struct sim_map {
    sim_block block; /* first; of kind SIM_BLOCK_MAPPED */
    sim_physical *physical;
    sim_range *range;
    bool host_access;                      /* the host sees the bytes at these addresses, too */
    unsigned char access[SIM_MAX_DEVICES]; /* CUmemAccess_flags of each device */
} sim_map;

/* sim_enter, where the devices have virtual memory management; else NOT_SUPPORTED. */
#define sim_enter_virtual_memory() sim_enter_virtual_memory_as(__func__)
CUresult sim_enter_virtual_memory_as(const char *entry);

sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle); /* NULL: no handle */
sim_physical *sim_physical_make(sim_device *device, uint64_t bytes,
                                const CUmemAllocationProp *properties); /* one handle, no file yet */
void sim_physical_gone(sim_physical *physical);   /* gives the object back; its bytes are gone, or never were */
void sim_physical_unused(sim_physical *physical); /* ends it if nothing refers to it */
void sim_physicals_close(void);

int sim_share_open(const sim_physical *physical);            /* vmm_share.c: a file of its own, or -1 */
sim_physical *sim_share_other(const sim_physical *physical); /* another one with the same file, or NULL */

sim_range *sim_range_at(uint64_t address); /* NULL: not reserved */
void sim_ranges_close(void);

static inline sim_map *sim_map_of(sim_block *block)
{
    return (sim_map *)(void *)block; /* the block is the map's first member */
}

sim_map *sim_map_at(uint64_t address);
sim_map *sim_map_after(const sim_map *map); /* the one that begins where this one ends, or NULL */
void sim_map_destroy(sim_map *map);

#endif
