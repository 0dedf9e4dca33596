/* cuMemAddressReserve: addresses that something can be mapped to, and for each such range the window in the process
 * where the bytes of what is mapped appear. Nobody can read or write the addresses, nor those places of a window that
 * nothing is mapped to. */
#include "memory/vmm.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { UNIT = 32 << 20 };

static const uint64_t most_range = UINT64_C(1) << 46;

static sim_range *range_of(sim_node *node)
{
    return node ? (sim_range *)(void *)((char *)node - offsetof(sim_range, by_address)) : NULL;
}

sim_range *sim_range_at(uint64_t address)
{
    sim_range *range = range_of(sim_tree_floor(&sim.ranges, address));
    return range && address - range->address < range->bytes ? range : NULL;
}

static char *open_window(uint64_t bytes)
{
    void *window = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return window == MAP_FAILED ? NULL : window;
}

/* The driver takes addresses in units. Small ranges share one, and where they lie in it is not to be wished for. */
static CUresult reserve(CUdeviceptr *address, uint64_t bytes, uint64_t alignment, uint64_t wish)
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
    sim_tree_insert(&sim.ranges, &range->by_address, range->address, 0);
    sim.reserved_ranges++;
    *address = range->address;
    return CUDA_SUCCESS;

no_addresses:
    munmap(range->window, (size_t)bytes);
no_window:
    free(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_enter_virtual_memory_as(const char *entry)
{
    CUresult result = sim_enter_as(entry);
    return result == CUDA_SUCCESS && sim.settings.lacks_virtual_memory ? sim_leave(CUDA_ERROR_NOT_SUPPORTED) : result;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    CUresult result = sim_enter_virtual_memory();
    if (result != CUDA_SUCCESS)
        return result;
    bool aligned = (alignment & (alignment - 1)) == 0 && alignment <= most_range;
    if (!ptr || size == 0 || size % SIM_PAGE != 0 || !aligned || addr % SIM_PAGE != 0 || flags != 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    return sim_leave(size > most_range ? CUDA_ERROR_OUT_OF_MEMORY : reserve(ptr, size, alignment, addr));
}

static void end(sim_range *range)
{
    sim_tree_remove(&sim.ranges, &range->by_address);
    sim.reserved_ranges--;
    munmap(range->window, (size_t)range->bytes);
    sim_address_give(range->address, range->bytes);
    free(range);
}

/* Only a whole reservation can go, and only when nothing is mapped to it. */
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    sim_range *range = sim_range_at(ptr);
    if (!range || range->address != ptr || range->bytes != size || range->maps > 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    end(range);
    return sim_leave(CUDA_SUCCESS);
}

void sim_ranges_close(void)
{
    sim_node *node;
    while ((node = sim_tree_first(&sim.ranges)))
        end(range_of(node));
}
