/* cuMemMap, cuMemUnmap and access to maps. A map is of a whole physical, and comes and goes at once, whatever work is
 * under way: the program must know that its memory is unused. */
#include "memory/memory.h"
#include <stdlib.h>
#include <sys/mman.h>

static char *place_in_window(const sim_range *range, uint64_t address)
{
    return range->window + (address - range->address);
}

/* Never a file of the program that has the number of the memory's closed descriptor. */
static CUresult show(char *place, const sim_physical *physical, int protection)
{
    if (!sim_file_is_open(&physical->file))
        return CUDA_ERROR_OPERATING_SYSTEM;
    void *shown = mmap(place, (size_t)physical->bytes, protection, MAP_SHARED | MAP_FIXED, physical->file.descriptor,
                       (off_t)physical->offset);
    return shown != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void hide(char *place, uint64_t bytes)
{
    mmap(place, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* The first map in a part of a reservation, which has no blocks but maps. NULL: none. */
static sim_map *first_map(uint64_t address, uint64_t end)
{
    sim_map *map = sim_map_at(address);
    sim_node *node = map ? NULL : sim_tree_ceiling(&sim_memory.apart, address, 0);
    if (node && node->key < end) {
        sim_block *block = (sim_block *)(void *)((char *)node - offsetof(sim_block, by_address));
        map = sim_map_of(block);
    }
    return map;
}

static CUresult map_whole(sim_physical *physical, sim_range *range, uint64_t address)
{
    sim_map *map = calloc(1, sizeof *map);
    if (!map)
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *place = place_in_window(range, address);
    const CUresult result = show(place, physical, PROT_READ | PROT_WRITE);
    if (result != CUDA_SUCCESS) {
        free(map);
        return result;
    }
    map->block.kind = SIM_BLOCK_MAPPED;
    map->block.address = address;
    map->block.bytes = physical->bytes;
    map->block.held = physical->bytes;
    map->block.memory = place;
    map->block.device = physical->device;
    map->physical = physical;
    map->range = range;
    physical->maps++;
    range->maps++;
    sim_block_publish(&map->block);
    return CUDA_SUCCESS;
}

void sim_map_destroy(sim_map *map)
{
    hide(map->block.memory, map->block.bytes);
    if (map->host_access)
        hide((char *)(uintptr_t)map->block.address, map->block.bytes);
    map->range->maps--;
    map->physical->maps--;
    sim_physical_unused(map->physical);
}

CUresult sim_map_memory(uint64_t address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                        unsigned long long flags)
{
    sim_physical *physical = sim_physical_of(handle);
    if (flags != 0 || !physical || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_range *range = sim_range_at(address);
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes != physical->bytes || offset != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    bool fits = address % SIM_PAGE == 0 && bytes <= range->bytes - (address - range->address);
    if (!fits || first_map(address, address + bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return map_whole(physical, range, address);
}

static bool only_whole_maps(uint64_t address, uint64_t end)
{
    const sim_map *first = sim_map_at(address);
    const sim_map *last = sim_map_at(end - 1);
    return (!first || first->block.address == address) && (!last || last->block.address + last->block.bytes == end);
}

/* Parts of the range that are not mapped, or not even reserved, are no error. */
CUresult sim_map_unmap(uint64_t address, uint64_t bytes)
{
    const sim_range *range = sim_range_at(address);
    if (!range || bytes == 0 || address % SIM_PAGE != 0 || bytes % SIM_PAGE != 0)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t room = range->bytes - (address - range->address);
    uint64_t end = address + (bytes < room ? bytes : room);
    if (!only_whole_maps(address, end))
        return CUDA_ERROR_INVALID_VALUE;
    for (sim_map *map = first_map(address, end); map; map = first_map(address, end)) {
        sim_hooks.check->freed_now(&map->block);
        sim_block_free_now(&map->block);
    }
    return CUDA_SUCCESS;
}

/* ---- access ---- */

static bool made_of_maps(uint64_t address, uint64_t bytes)
{
    const sim_map *map = sim_map_at(address);
    if (!map || map->block.address != address)
        return false;
    uint64_t end = map->block.bytes;
    while (end < bytes && (map = sim_map_after(map)))
        end += map->block.bytes;
    return end == bytes;
}

static bool names_host(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static bool flags_known(CUmemAccess_flags flags)
{
    return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
           flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* Checks a wish for access. The host can be given access to its own memory only. */
static CUresult check_access(const sim_map *map, const CUmemAccessDesc *access)
{
    if (names_host(&access->location))
        return map->physical->device ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    bool device = access->location.type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device_of(access->location.id);
    return device && flags_known(access->flags) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult give_host(sim_map *map, CUmemAccess_flags flags)
{
    int protection = flags == CU_MEM_ACCESS_FLAGS_PROT_NONE   ? PROT_NONE
                     : flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ
                                                              : PROT_READ | PROT_WRITE;
    const CUresult result = show((char *)(uintptr_t)map->block.address, map->physical, protection);
    map->host_access |= result == CUDA_SUCCESS;
    return result;
}

static CUresult give_access(sim_map *map, const CUmemAccessDesc *access)
{
    if (names_host(&access->location))
        return give_host(map, access->flags);
    map->access[access->location.id] = (unsigned char)access->flags;
    return CUDA_SUCCESS;
}

/* All is checked before anything changes. */
CUresult sim_map_set_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc *access, size_t count)
{
    if (!access || count == 0 || !made_of_maps(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    sim_map *first = sim_map_at(address);
    for (sim_map *map = first; map && map->block.address - address < bytes; map = sim_map_after(map)) {
        for (size_t i = 0; i < count; i++) {
            CUresult result = check_access(map, &access[i]);
            if (result != CUDA_SUCCESS)
                return result;
        }
    }
    for (sim_map *map = first; map && map->block.address - address < bytes; map = sim_map_after(map)) {
        for (size_t i = 0; i < count; i++) {
            const CUresult result = give_access(map, &access[i]);
            if (result != CUDA_SUCCESS)
                return result;
        }
    }
    return CUDA_SUCCESS;
}

/* Memory that the program did not map has no access, which is no error. Asked about the host, the driver answers for
 * the first device. */
CUresult sim_map_get_access(unsigned long long *flags, const CUmemLocation *location, uint64_t address)
{
    sim_block *block = sim_block_at(address);
    if (!flags || !location || !block)
        return CUDA_ERROR_INVALID_VALUE;
    bool host = names_host(location);
    if (!host && (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_of(location->id)))
        return CUDA_ERROR_INVALID_DEVICE;
    int device = host ? 0 : location->id;
    *flags = block->kind == SIM_BLOCK_MAPPED ? sim_map_of(block)->access[device] : 0;
    return CUDA_SUCCESS;
}
