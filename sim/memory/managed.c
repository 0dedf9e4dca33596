/* Managed memory: memory that the host and every device reach at the same address. Where it is at a moment makes no
 * difference to what work finds in it, so that here it never moves; prefetching is a place in a stream's order, and
 * advice is kept for whoever asks. It takes no memory of a device until it is there, which here it never is. */
#include "check/debugger.h"
#include "sim.h"
#include <stdlib.h>
#include <string.h>

enum { ADVICE_PAGE = 4096, NOWHERE = CU_DEVICE_INVALID, ON_HOST = CU_DEVICE_CPU };

typedef struct page_place {
    CUmemLocationType type;
    int id;
} page_place;

/* What was said of a page. */
typedef struct managed_page {
    uint64_t accessed_by; /* a bit for each device */
    page_place preferred;
    page_place prefetched;
    bool accessed_by_host;
    bool read_mostly;
} managed_page;

typedef struct managed_memory {
    sim_block block; /* first */
    size_t page_count;
    managed_page *pages;
} managed_memory;

static const page_place unsaid = {CU_MEM_LOCATION_TYPE_INVALID, NOWHERE};

static managed_memory *managed_of(sim_block *block)
{
    return (managed_memory *)(void *)block; /* the block is its first member */
}

static bool make_pages(managed_memory *managed, size_t bytes)
{
    managed->page_count = (size_t)(sim_round_up(bytes, ADVICE_PAGE) / ADVICE_PAGE);
    managed->pages = calloc(managed->page_count, sizeof *managed->pages);
    for (size_t i = 0; managed->pages && i < managed->page_count; i++) {
        managed->pages[i].preferred = unsaid;
        managed->pages[i].prefetched = unsaid;
    }
    return managed->pages != NULL;
}

static CUresult allocate(sim_context *context, CUdeviceptr *address, size_t bytes, unsigned flags)
{
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    *address = 0;
    if (bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    managed_memory *managed = bytes <= SIM_MOST_MEMORY ? calloc(1, sizeof *managed) : NULL;
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

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    sim_context *context;
    CUresult result = sim_enter_context_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(allocate(context, dptr, bytesize, flags));
}

void sim_managed_destroy(sim_block *block)
{
    sim_bytes_gone(block->memory, block->bytes);
    sim_backing_give(block->memory, block->held);
    free(managed_of(block)->pages);
}

/* Managed memory that holds the whole range, and the pages that the range touches; NULL if there is none. */
static managed_memory *find(uint64_t address, size_t bytes, size_t *first, size_t *last)
{
    sim_block *block = bytes > 0 ? sim_block_around(address, bytes) : NULL;
    if (!block || block->kind != SIM_BLOCK_MANAGED)
        return NULL;
    *first = (size_t)((address - block->address) / ADVICE_PAGE);
    *last = (size_t)((address + bytes - 1 - block->address) / ADVICE_PAGE);
    return managed_of(block);
}

/* ---- prefetching ---- */

/* Where a call's location is. The host has one node, number 0. */
static CUresult place(const CUmemLocation *location, page_place *where)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *where = (page_place){location->type, location->id};
        return sim_device_of(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
        *where = (page_place){location->type, ON_HOST};
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        *where = (page_place){location->type, location->id};
        return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        *where = (page_place){location->type, 0};
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult prefetch(uint64_t address, size_t bytes, const CUmemLocation *location, unsigned flags, CUstream stream)
{
    size_t first;
    size_t last;
    page_place where;
    sim_queue *queue;
    CUresult result = sim_queue_for_work(stream, &queue);
    if (result != CUDA_SUCCESS)
        return result;
    managed_memory *managed = find(address, bytes, &first, &last);
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

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream)
{
    CUresult result = sim_enter_handle();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(prefetch(devPtr, count, &location, flags, hStream));
}

/* Before there were locations, a device's number was one, and CU_DEVICE_CPU the host's. */
static CUmemLocation location_of(CUdevice device)
{
    bool host = device == CU_DEVICE_CPU;
    return (CUmemLocation){.type = host ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                           .id = host ? 0 : device};
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    return cuMemPrefetchAsync_v2(devPtr, count, location_of(dstDevice), 0, hStream);
}

/* ---- advice ---- */

static bool type_known(CUmemLocationType type)
{
    return type >= CU_MEM_LOCATION_TYPE_DEVICE && type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* Whether this advice can be given about this location. Where the location means nothing, it need not exist. */
static bool location_good(CUmem_advise advice, const CUmemLocation *location)
{
    page_place where;
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

static void set_accessed_by(managed_page *page, const CUmemLocation *location, bool by)
{
    if (location->type == CU_MEM_LOCATION_TYPE_HOST) {
        page->accessed_by_host = by;
        return;
    }
    uint64_t bit = UINT64_C(1) << location->id;
    page->accessed_by = by ? page->accessed_by | bit : page->accessed_by & ~bit;
}

/* A node of the host is as good as any other. */
static page_place preference(const CUmemLocation *location)
{
    bool device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    return device ? (page_place){location->type, location->id} : (page_place){CU_MEM_LOCATION_TYPE_HOST, ON_HOST};
}

static void advise_page(managed_page *page, CUmem_advise advice, const CUmemLocation *location)
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

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
    size_t first;
    size_t last;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    managed_memory *managed = find(devPtr, count, &first, &last);
    if (!managed || !location_good(advice, &location))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = first; i <= last; i++)
        advise_page(&managed->pages[i], advice, &location);
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    return cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

/* ---- what was said of a range: what holds for all of its pages ---- */

static bool same(page_place a, page_place b)
{
    return a.type == b.type && a.id == b.id;
}

/* What all pages agree on; what they do not is unsaid. */
static managed_page common_of(const managed_page *pages, size_t first, size_t last)
{
    managed_page common = pages[first];
    for (size_t i = first + 1; i <= last; i++) {
        const managed_page *page = &pages[i];
        common.read_mostly = common.read_mostly && page->read_mostly;
        common.accessed_by &= page->accessed_by;
        common.accessed_by_host = common.accessed_by_host && page->accessed_by_host;
        common.preferred = same(common.preferred, page->preferred) ? common.preferred : unsaid;
        common.prefetched = same(common.prefetched, page->prefetched) ? common.prefetched : unsaid;
    }
    return common;
}

/* As one number: a device's, the host's, or none. */
static int number_of(page_place where)
{
    bool node = where.type == CU_MEM_LOCATION_TYPE_HOST_NUMA || where.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    return node ? ON_HOST : where.id;
}

/* The devices, one after the other, and the host; places that are left over say that there are no more. */
static void list_accessors(const managed_page *page, int *numbers, size_t room)
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

static CUresult describe(const managed_page *page, CUmem_range_attribute attribute, void *data, size_t bytes)
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

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                size_t count)
{
    size_t first;
    size_t last;
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    const managed_memory *managed = find(devPtr, count, &first, &last);
    if (!data || !managed)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    managed_page common = common_of(managed->pages, first, last);
    return sim_leave(describe(&common, attribute, data, dataSize));
}
