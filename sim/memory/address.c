/* Where device memory is. Addresses are reservations without access rights: a host access faults. The bytes lie
 * elsewhere in the process, committed when first touched. */
#include "memory/memory.h"
#include <stdlib.h>
#include <sys/mman.h>

typedef struct address_region {
    struct address_region *next;
    void *base;
    size_t bytes;
} address_region;

/* Free addresses, in best-fit order and by address. */
typedef struct address_gap {
    sim_node by_bytes;
    sim_node by_address;
    uint64_t address;
    uint64_t bytes;
} address_gap;

/* Guarded by sim.lock. */
static address_region *regions;
static sim_tree gaps_by_bytes;
static sim_tree gaps_by_address;

#define CONTAINER(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static void add_gap(address_gap *gap)
{
    sim_tree_insert(&gaps_by_bytes, &gap->by_bytes, gap->bytes, gap->address);
    sim_tree_insert(&gaps_by_address, &gap->by_address, gap->address, 0);
}

static void remove_gap(address_gap *gap)
{
    sim_tree_remove(&gaps_by_bytes, &gap->by_bytes);
    sim_tree_remove(&gaps_by_address, &gap->by_address);
}

/* Without memory to record them, the addresses are not used again. */
void sim_address_give(uint64_t address, uint64_t bytes)
{
    address_gap *gap = NULL;
    sim_node *node = sim_tree_floor(&gaps_by_address, address);
    if (node) {
        address_gap *before = CONTAINER(node, address_gap, by_address);
        if (before->address + before->bytes == address) {
            remove_gap(before);
            address = before->address;
            bytes += before->bytes;
            gap = before;
        }
    }
    node = sim_tree_ceiling(&gaps_by_address, address + bytes, 0);
    if (node) {
        address_gap *after = CONTAINER(node, address_gap, by_address);
        if (address + bytes == after->address) {
            remove_gap(after);
            bytes += after->bytes;
            free(gap);
            gap = after;
        }
    }
    if (!gap)
        gap = malloc(sizeof *gap);
    if (gap) {
        gap->address = address;
        gap->bytes = bytes;
        add_gap(gap);
    }
}

static bool reserve_region(uint64_t least)
{
    uint64_t usual = sim_debugger_is_valgrind() ? SIM_SMALL_RANGE : UINT64_C(64) << 30;
    uint64_t bytes = least + SIM_PAGE > usual ? least + SIM_PAGE : usual;
    address_region *region = malloc(sizeof *region);
    if (!region)
        return false;
    region->base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region->base == MAP_FAILED) {
        free(region);
        return false;
    }
    region->bytes = bytes;
    region->next = regions;
    regions = region;
    uint64_t first = sim_round_up((uint64_t)(uintptr_t)region->base, SIM_PAGE);
    uint64_t last = ((uint64_t)(uintptr_t)region->base + bytes) / SIM_PAGE * SIM_PAGE;
    sim_address_give(first, last - first);
    return true;
}

bool sim_address_take(uint64_t bytes, uint64_t *address)
{
    sim_node *node = sim_tree_ceiling(&gaps_by_bytes, bytes, 0);
    if (!node && reserve_region(bytes))
        node = sim_tree_ceiling(&gaps_by_bytes, bytes, 0);
    if (!node)
        return false;
    address_gap *gap = CONTAINER(node, address_gap, by_bytes);
    *address = gap->address;
    remove_gap(gap);
    gap->address += bytes;
    gap->bytes -= bytes;
    if (gap->bytes > 0)
        add_gap(gap);
    else
        free(gap);
    return true;
}

static bool take_at(uint64_t address, uint64_t bytes)
{
    sim_node *node = sim_tree_floor(&gaps_by_address, address);
    address_gap *gap = node ? CONTAINER(node, address_gap, by_address) : NULL;
    if (!gap || address - gap->address > gap->bytes || bytes > gap->bytes - (address - gap->address))
        return false;
    uint64_t first = gap->address;
    uint64_t end = gap->address + gap->bytes;
    remove_gap(gap);
    free(gap);
    if (address > first)
        sim_address_give(first, address - first);
    if (end > address + bytes)
        sim_address_give(address + bytes, end - (address + bytes));
    return true;
}

bool sim_address_take_aligned(uint64_t bytes, uint64_t alignment, uint64_t wish, uint64_t *address)
{
    if (wish != 0 && wish % alignment == 0 && take_at(wish, bytes)) {
        *address = wish;
        return true;
    }
    uint64_t whole = bytes + alignment - SIM_PAGE;
    uint64_t taken;
    if (!sim_address_take(whole, &taken))
        return false;
    *address = sim_round_up(taken, alignment);
    if (*address > taken)
        sim_address_give(taken, *address - taken);
    uint64_t behind = taken + whole - (*address + bytes);
    if (behind > 0)
        sim_address_give(*address + bytes, behind);
    return true;
}

void sim_address_close(void)
{
    sim_node *node;
    while ((node = sim_tree_first(&gaps_by_address))) {
        address_gap *gap = CONTAINER(node, address_gap, by_address);
        remove_gap(gap);
        free(gap);
    }
    while (regions) {
        address_region *next = regions->next;
        munmap(regions->base, regions->bytes);
        free(regions);
        regions = next;
    }
}

/* Aligned to device pages, for huge pages (sim_backing_expect). */
char *sim_backing_take(uint64_t bytes)
{
    size_t mapped = (size_t)bytes + SIM_PAGE;
    char *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    size_t before = (size_t)(sim_round_up((uint64_t)(uintptr_t)base, SIM_PAGE) - (uint64_t)(uintptr_t)base);
    if (before > 0)
        munmap(base, before);
    munmap(base + before + bytes, SIM_PAGE - before);
    return base + before;
}

/* Huge pages make a write of whole ones faster by a sixth; where few bytes are touched, each costs two mebibytes of
 * zeros. So only whole ones about to be written ask for them. */
void sim_backing_expect(char *memory, uint64_t bytes)
{
    uint64_t begin = sim_round_up((uint64_t)(uintptr_t)memory, SIM_PAGE);
    uint64_t end = ((uint64_t)(uintptr_t)memory + bytes) & ~(uint64_t)(SIM_PAGE - 1);
    if (begin < end)
        madvise((void *)(uintptr_t)begin, (size_t)(end - begin), MADV_HUGEPAGE);
}

void sim_backing_empty(char *memory, uint64_t bytes)
{
    madvise(memory, (size_t)bytes, MADV_DONTNEED);
}

void sim_backing_give(char *memory, uint64_t bytes)
{
    sim_bytes_forget_range(memory, bytes);
    munmap(memory, (size_t)bytes);
}
