/* Managed memory: the host and every device reach it at the same address. Its place makes no difference to work, so it
 * never moves, and takes no memory of a device. A prefetch is a mark in a stream's order; advice is kept for queries.
 */
#include "memory/memory.h"
#include <stdlib.h>
#include <string.h>

enum { ADVICE_PAGE = 4096, NOWHERE = CU_DEVICE_INVALID, ON_HOST = CU_DEVICE_CPU };

static const sim_page_place unsaid = {CU_MEM_LOCATION_TYPE_INVALID, NOWHERE};

static sim_managed_memory *managed_of(sim_block *block)
{
    return (sim_managed_memory *)(void *)block;
}

static bool make_pages(sim_managed_memory *managed, size_t bytes)
{
    managed->page_count = (size_t)(sim_round_up(bytes, ADVICE_PAGE) / ADVICE_PAGE);
    managed->pages = calloc(managed->page_count, sizeof *managed->pages);
    for (size_t i = 0; managed->pages && i < managed->page_count; i++) {
        managed->pages[i].preferred = unsaid;
        managed->pages[i].prefetched = unsaid;
    }
    return managed->pages != NULL;
}

CUresult sim_managed_allocate(sim_context *context, CUdeviceptr *address, size_t bytes, unsigned flags)
{
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    *address = 0;
    if (bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    sim_managed_memory *managed = bytes <= SIM_MOST_MEMORY ? calloc(1, sizeof *managed) : NULL;
    char *memory = managed && make_pages(managed, bytes) ? sim_backing_take(sim_round_up(bytes, SIM_PAGE)) : NULL;
    if (!memory) {
        if (managed)
            free(managed->pages);
        free(managed);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_block *block = &managed->block;
    block->kind = SIM_BLOCK_MANAGED;
    block->address = (uint64_t)(uintptr_t)memory;
    block->bytes = bytes;
    block->held = sim_round_up(bytes, SIM_PAGE);
    block->memory = memory;
    block->device = context->device;
    block->context = context;
    block->sync_memops = true;
    sim_bytes_close(memory, block->held);
    sim_bytes_born(memory, bytes, block->held);
    sim_block_publish(block);
    *address = block->address;
    return CUDA_SUCCESS;
}

void sim_managed_destroy(sim_block *block)
{
    sim_bytes_gone(block->memory, block->bytes);
    sim_backing_give(block->memory, block->held);
    free(managed_of(block)->pages);
}

/* The managed memory that holds the whole range; *first and *last are the pages touched. NULL: none. */
sim_managed_memory *sim_managed_find(uint64_t address, size_t bytes, size_t *first, size_t *last)
{
    sim_block *block = bytes > 0 ? sim_block_around(address, bytes) : NULL;
    if (!block || block->kind != SIM_BLOCK_MANAGED)
        return NULL;
    *first = (size_t)((address - block->address) / ADVICE_PAGE);
    *last = (size_t)((address + bytes - 1 - block->address) / ADVICE_PAGE);
    return managed_of(block);
}

/* ---- prefetching ---- */

/* Checks a location, and tells where it is. The host has one node, 0. */
static CUresult place(const CUmemLocation *location, sim_page_place *where)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *where = (sim_page_place){location->type, location->id};
        return sim_device_of(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
        *where = (sim_page_place){location->type, ON_HOST};
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        *where = (sim_page_place){location->type, location->id};
        return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        *where = (sim_page_place){location->type, 0};
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_managed_prefetch(uint64_t address, size_t bytes, const CUmemLocation *location, unsigned flags,
                              CUstream stream)
{
    size_t first;
    size_t last;
    sim_page_place where;
    sim_queue *queue;
    CUresult result = sim_queue_for_work(stream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    sim_managed_memory *managed = sim_managed_find(address, bytes, &first, &last);
    if (flags != 0 || !managed)
        return CUDA_ERROR_INVALID_VALUE;
    result = place(location, &where);
    if (result != CUDA_SUCCESS)
        return result;
    sim_op *op = sim_op_create(queue->context, queue, SIM_OP_MARK, 0);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = first; i <= last; i++)
        managed->pages[i].prefetched = where;
    sim_op_submit(op);
    return CUDA_SUCCESS;
}

/* The location that the older interface names by a device's number, or CU_DEVICE_CPU for the host. */
CUmemLocation sim_managed_location_of(CUdevice device)
{
    bool host = device == CU_DEVICE_CPU;
    return (CUmemLocation){.type = host ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                           .id = host ? 0 : device};
}

/* ---- advice ---- */

static bool type_known(CUmemLocationType type)
{
    return type >= CU_MEM_LOCATION_TYPE_DEVICE && type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* Whether the location suits the advice. Where the advice ignores it, it need not exist. */
bool sim_managed_location_good(CUmem_advise advice, const CUmemLocation *location)
{
    sim_page_place where;
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        return type_known(location->type);
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        return place(location, &where) == CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        return location->type == CU_MEM_LOCATION_TYPE_HOST ||
               (location->type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device_of(location->id));
    }
    return false;
}

static void set_accessed_by(sim_managed_page *page, const CUmemLocation *location, bool by)
{
    if (location->type == CU_MEM_LOCATION_TYPE_HOST) {
        page->accessed_by_host = by;
        return;
    }
    uint64_t bit = UINT64_C(1) << location->id;
    page->accessed_by = by ? page->accessed_by | bit : page->accessed_by & ~bit;
}

/* The place that advice prefers. Nodes of the host are not told apart. */
static sim_page_place preference(const CUmemLocation *location)
{
    bool device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    return device ? (sim_page_place){location->type, location->id}
                  : (sim_page_place){CU_MEM_LOCATION_TYPE_HOST, ON_HOST};
}

void sim_managed_advise(sim_managed_page *page, CUmem_advise advice, const CUmemLocation *location)
{
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        page->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        page->preferred = preference(location);
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        page->preferred = unsaid;
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        set_accessed_by(page, location, advice == CU_MEM_ADVISE_SET_ACCESSED_BY);
        break;
    }
}

static bool same(sim_page_place a, sim_page_place b)
{
    return a.type == b.type && a.id == b.id;
}

/* What the pages from first to last have in common; where they disagree, nothing is said. */
sim_managed_page sim_managed_common_of(const sim_managed_page *pages, size_t first, size_t last)
{
    sim_managed_page common = pages[first];
    for (size_t i = first + 1; i <= last; i++) {
        const sim_managed_page *page = &pages[i];
        common.read_mostly = common.read_mostly && page->read_mostly;
        common.accessed_by &= page->accessed_by;
        common.accessed_by_host = common.accessed_by_host && page->accessed_by_host;
        common.preferred = same(common.preferred, page->preferred) ? common.preferred : unsaid;
        common.prefetched = same(common.prefetched, page->prefetched) ? common.prefetched : unsaid;
    }
    return common;
}

static int number_of(sim_page_place where)
{
    bool node = where.type == CU_MEM_LOCATION_TYPE_HOST_NUMA || where.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    return node ? ON_HOST : where.id;
}

/* Lists the devices in order, then the host; fills the rest with "none". */
static void list_accessors(const sim_managed_page *page, int *numbers, size_t room)
{
    size_t used = 0;
    for (int device = 0; device < sim.settings.devices && used < room; device++)
        if (page->accessed_by >> device & 1)
            numbers[used++] = device;
    if (page->accessed_by_host && used < room)
        numbers[used++] = ON_HOST;
    while (used < room)
        numbers[used++] = NOWHERE;
}

CUresult sim_managed_describe(const sim_managed_page *page, CUmem_range_attribute attribute, void *data, size_t bytes)
{
    int number;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        if (bytes == 0 || bytes % sizeof number != 0)
            return CUDA_ERROR_INVALID_VALUE;
        list_accessors(page, data, bytes / sizeof number);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        number = page->read_mostly;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        number = number_of(page->preferred);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        number = number_of(page->prefetched);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        number = (int)page->preferred.type;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        number = page->preferred.id;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        number = (int)page->prefetched.type;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        number = page->prefetched.id;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes != sizeof number)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(data, &number, sizeof number);
    return CUDA_SUCCESS;
}
