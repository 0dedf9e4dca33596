/* cuMemAddressReserve: addresses to map to, and a window of the same size in the process, where mapped bytes appear at
 * the same places. Neither addresses nor unmapped places are accessible. */
#include "memory/memory.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { UNIT = 32 << 20 };

static sim_range *range_of(sim_node *node)
{
    return node ? (sim_range *)(void *)((char *)node - offsetof(sim_range, by_address)) : NULL;
}

sim_range *sim_range_at(uint64_t address)
{
    sim_range *range = range_of(sim_tree_floor(&sim_memory.ranges, address));
    return range && address - range->address < range->bytes ? range : NULL;
}

static char *open_window(uint64_t bytes)
{
    void *window = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return window == MAP_FAILED ? NULL : window;
}

/* The driver takes addresses in units. Small ranges share one, so that their wish for an address is ignored. */
CUresult sim_range_reserve(CUdeviceptr *address, uint64_t bytes, uint64_t alignment, uint64_t wish)
{
    uint64_t least = bytes < UNIT ? SIM_PAGE : UNIT;
    uint64_t granted = bytes < UNIT || wish % UNIT != 0 ? 0 : wish;
    sim_range *range = calloc(1, sizeof *range);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->bytes = bytes;
    range->window = open_window(bytes);
    if (!range->window)
        goto no_window;
    if (!sim_address_take_aligned(bytes, alignment < least ? least : alignment, granted, &range->address))
        goto no_addresses;
    sim_tree_insert(&sim_memory.ranges, &range->by_address, range->address, 0);
    sim_memory.reserved_ranges++;
    *address = range->address;
    return CUDA_SUCCESS;

no_addresses:
    munmap(range->window, (size_t)bytes);
no_window:
    free(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_range_destroy(sim_range *range)
{
    sim_tree_remove(&sim_memory.ranges, &range->by_address);
    sim_memory.reserved_ranges--;
    munmap(range->window, (size_t)range->bytes);
    sim_address_give(range->address, range->bytes);
    free(range);
}

void sim_ranges_close(void)
{
    sim_node *node;
    while ((node = sim_tree_first(&sim_memory.ranges)))
        sim_range_destroy(range_of(node));
}
