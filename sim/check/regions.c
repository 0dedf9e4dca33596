/* Parts of the driver's allocations that a pool of the program hands out (strata/sim/regions.h), in a tree by address.
 * They do not overlap: a new one ends those that it meets. One that has come back stays, for reports of late uses,
 * until its bytes are handed out again or the driver's allocation is forgotten. Guarded by sim.lock. */
#include "check/check.h"
#include <stdlib.h>

static sim_tree regions;
static uint64_t count;

static sim_region *region_of_node(sim_node *node)
{
    return (sim_region *)(void *)node;
}

/* The last region that begins before `end`, if it reaches beyond `begin`. */
static sim_region *last_within(uint64_t begin, uint64_t end)
{
    sim_region *region = region_of_node(sim_tree_floor(&regions, end - 1));
    bool meets = region && (region->by_address.key >= begin || begin - region->by_address.key < region->bytes);
    return meets ? region : NULL;
}

static void drop(sim_region *region)
{
    sim_tree_remove(&regions, &region->by_address);
    free(region);
    count--;
}

bool sim_region_begin(uint64_t address, const sim_region *facts)
{
    sim_region *region;
    while ((region = last_within(address, address + facts->bytes)))
        drop(region);
    region = malloc(sizeof *region);
    if (!region)
        return false;
    *region = *facts;
    sim_tree_insert(&regions, &region->by_address, address, 0);
    count++;
    return true;
}

uint64_t sim_regions_bytes(void)
{
    return count * sizeof(sim_region);
}

void sim_region_end(uint64_t address, uint64_t id)
{
    sim_region *region = region_of_node(sim_tree_floor(&regions, address));
    if (region && region->by_address.key == address && region->id == id)
        region->ended = true;
}

const sim_region *sim_region_around(const sim_shadow *shadow, uint64_t address, uint64_t order)
{
    const sim_region *region = region_of_node(sim_tree_floor(&regions, address));
    bool holds = region && address - region->by_address.key < region->bytes;
    return holds && region->born >= shadow->born && region->born < order ? region : NULL;
}

const sim_region *sim_region_from(uint64_t address)
{
    return region_of_node(sim_tree_ceiling(&regions, address, 0));
}

void sim_regions_forget(const sim_shadow *shadow)
{
    uint64_t begin = shadow->address;
    uint64_t end = begin + shadow->bytes;
    sim_region *region;
    while (begin < end && (region = last_within(begin, end))) {
        end = region->by_address.key;
        if (region->born < shadow->gone)
            drop(region);
    }
}

void sim_regions_close(void)
{
    for (sim_node *node; (node = sim_tree_first(&regions));)
        drop(region_of_node(node));
}
