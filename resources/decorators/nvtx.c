/* nvtx: names of blocks, and blocks as regions of NVTX's memory extension.
 *
 * A block that is a driver allocation of its own is known to the tool; it gets a name. compute-sanitizer 2025.3 refuses
 * regions of the whole address space: blocks inside a larger driver allocation (cuMemGetAddressRange) are regions of a
 * heap. A heap lives from its first block to its last, since the layer does not learn when the owner frees the
 * allocation, and memory outside regions is not accessible. A block's entry has its heap's index. Blocks in allocations
 * that cannot be heaps are not reported: the tool takes no names for them (docs/measurements.md, "compute-sanitizer").
 */
#include <strata/nvtx.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/lock.h"
#include "core/base/options.h"
#include "core/stack/stack.h"
#include "resources/builtin.h"

#ifdef STRATA_HAVE_NVTX
#include <stdlib.h>

/* Functions in NVTX's headers load the library that the environment names, also in a set-uid program. */
#define getenv secure_getenv
#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExtMem.h>
#undef getenv

#include <string.h>

enum { ROUNDING = 512 }; /* granularity of cuMemAlloc: a block of its own fills its allocation up to this */

typedef struct nvtx_heap {
    CUdeviceptr start; /* 0: unused element */
    size_t bytes;
    size_t regions;
    nvtxMemHeapHandle_t handle;
} nvtx_heap;

/* Held around each NVTX call: the first one loads the tool, which is not thread-safe. */
static strata_lock nvtx_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_GUARD);

typedef struct nvtx_layer {
    strata_resource resource;
    strata_device *device;
    strata_nvtx_options options; /* constant, like domain */
    nvtxDomainHandle_t domain;
    nvtx_heap *heaps; /* guarded by nvtx_lock, like the next three */
    size_t heap_room;
    size_t heap_count;
    size_t regions;
} nvtx_layer;

/* In a block's entry; zero in a new block. Guarded by `nvtx_lock`, and changed only while the entry is locked or no
 * free is in flight: after a free the entry may be another block's. */
typedef struct nvtx_region {
    CUdeviceptr address; /* 0: no region yet */
    size_t bytes;
    strata_tag tag;
    uint32_t heap;  /* index plus one; 0: none, only a name */
    uint32_t frees; /* in flight; after refused ones, the last reports the region again */
    bool told;
} nvtx_region;

/* ---- heaps ---- */

/* compute-sanitizer 2025.3 takes heaps in cuMemAlloc memory alone, as legacy IPC does (tests/answers/h200.txt,
 * "is_legacy_ipc_capable"). The context is current. */
static bool can_be_heap(CUdeviceptr start)
{
    int capable = 0; /* the driver may write its first byte alone */
    CUresult result = strata_cu.PointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, start);
    return result == CUDA_SUCCESS && capable;
}

/* A guard's kernels read the zones around blocks, which the tool would report. */
static bool is_above_guard(const nvtx_layer *self)
{
    const strata_resource *from = &self->resource;
    for (const strata_resource *below = from; below; below = strata_resource_next_below(from, below))
        if (strata_has_zones(below))
            return true;
    return false;
}

/* The driver allocation of a block. */
typedef struct nvtx_origin {
    CUdeviceptr start;
    size_t bytes;  /* 0: the block is a whole allocation, or unknown, or no heap is possible */
    bool is_known; /* to the tool, by itself or as a region */
} nvtx_origin;

/* Asks for a block's driver allocation. The context is current. */
static nvtx_origin query_origin(const nvtx_layer *self, const strata_block *block)
{
    nvtx_origin origin = {.is_known = true};
    size_t bytes = 0;
    if (!strata_cu.MemGetAddressRange ||
        strata_cu.MemGetAddressRange(&origin.start, &bytes, block->address) != CUDA_SUCCESS ||
        (origin.start == block->address && bytes < block->bytes + ROUNDING))
        return origin;
    origin.is_known = !self->options.no_heaps && !is_above_guard(self) && can_be_heap(origin.start);
    origin.bytes = origin.is_known ? bytes : 0;
    return origin;
}

/* Enters the scope of a report. False without a context: compute-sanitizer then takes no heap. Errors are ignored. */
static bool report_begin(const nvtx_layer *self, strata_call_scope *scope)
{
    strata_error_suppress_begin();
    strata_status status =
        strata_call_scope_enter(scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS;
}

/* A heap's index plus one; 0: there is none at `start`. The lock is held. */
static uint32_t find_heap(const nvtx_layer *self, CUdeviceptr start)
{
    for (size_t i = 0; i < self->heap_room; i++)
        if (self->heaps[i].start == start)
            return (uint32_t)i + 1;
    return 0;
}

/* An unused element's index plus one; 0 without host memory. The lock is held. */
static uint32_t find_unused_heap(nvtx_layer *self)
{
    uint32_t heap_index = find_heap(self, 0);
    if (heap_index)
        return heap_index;
    size_t room = self->heap_room ? 2 * self->heap_room : 16;
    nvtx_heap *heaps = strata_host_zalloc(room * sizeof *heaps);
    if (!heaps)
        return 0;
    if (self->heap_room)
        memcpy(heaps, self->heaps, self->heap_room * sizeof *heaps);
    strata_host_free(self->heaps);
    self->heaps = heaps;
    self->heap_room = room;
    return find_heap(self, 0);
}

static nvtxMemHeapHandle_t tell_heap(const nvtx_layer *self, CUdeviceptr start, size_t bytes)
{
    const nvtxMemVirtualRangeDesc_t range = {.size = bytes, .ptr = (const void *)(uintptr_t)start};
    const nvtxMemHeapDesc_t heap = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof heap,
        .usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
        .type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
        .typeSpecificDescSize = sizeof range,
        .typeSpecificDesc = &range,
        .messageType = NVTX_MESSAGE_TYPE_ASCII,
        .message = {.ascii = self->resource.stack->text},
    };
    return nvtxMemHeapRegister(self->domain, &heap);
}

/* Adds a region to the heap there; reports a new heap. Returns its index plus one, or 0. The lock is held. */
static uint32_t enter_heap(nvtx_layer *self, CUdeviceptr start, size_t bytes)
{
    uint32_t heap_index = find_heap(self, start);
    if (heap_index) {
        self->heaps[heap_index - 1].regions++;
        return heap_index;
    }
    if (!(heap_index = find_unused_heap(self)))
        return 0;
    nvtxMemHeapHandle_t handle = tell_heap(self, start, bytes);
    if (!handle) /* no tool, or the tool refused it */
        return 0;
    self->heaps[heap_index - 1] = (nvtx_heap){.start = start, .bytes = bytes, .regions = 1, .handle = handle};
    self->heap_count++;
    return heap_index;
}

/* Takes a region out of its heap; the last one ends the heap. The lock is held. */
static void leave_heap(nvtx_layer *self, uint32_t heap_index)
{
    nvtx_heap *heap = &self->heaps[heap_index - 1];
    if (--heap->regions)
        return;
    nvtxMemHeapUnregister(self->domain, heap->handle);
    *heap = (nvtx_heap){0};
    self->heap_count--;
}

/* ---- regions: the lock is held ---- */

static void name_region(const nvtx_layer *self, const nvtx_region *region)
{
    const char *name = strata_tag_name(region->tag);
    const nvtxMemRegionNameDesc_t named = {
        .regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER,
        .nameType = NVTX_MESSAGE_TYPE_ASCII,
        .region = {.pointer = (const void *)(uintptr_t)region->address},
        .name = {.ascii = name},
    };
    const nvtxMemRegionsNameBatch_t batch = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof batch,
        .regionCount = 1,
        .regionElementSize = sizeof named,
        .regionElements = &named,
    };
    if (!self->options.no_names && *name)
        nvtxMemRegionsName(self->domain, &batch);
}

static void report_region_begin(const nvtx_layer *self, const nvtx_region *region, bool is_known)
{
    const nvtxMemVirtualRangeDesc_t range = {.size = region->bytes, .ptr = (const void *)(uintptr_t)region->address};
    const nvtxMemRegionsRegisterBatch_t batch = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof batch,
        .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
        .heap = region->heap ? self->heaps[region->heap - 1].handle : NULL,
        .regionCount = 1,
        .regionDescElementSize = sizeof range,
        .regionDescElements = &range,
    };
    if (region->heap)
        nvtxMemRegionsRegister(self->domain, &batch);
    if (is_known)
        name_region(self, region);
}

static void report_region_end(const nvtx_layer *self, const nvtx_region *region)
{
    const nvtxMemRegionRef_t ref = {.pointer = (const void *)(uintptr_t)region->address};
    const nvtxMemRegionsUnregisterBatch_t batch = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof batch,
        .refType = NVTX_MEM_REGION_REF_TYPE_POINTER,
        .refCount = 1,
        .refElementSize = sizeof ref,
        .refElements = &ref,
    };
    if (region->heap)
        nvtxMemRegionsUnregister(self->domain, &batch);
}

/* ---- regions ---- */

/* A block's region, with its entry locked; NULL if the block is gone. `nvtx_lock` is held. */
static nvtx_region *lock_region(const nvtx_layer *self, const strata_block *block, strata_entry **entry)
{
    *entry = strata_table_lookup(strata_resource_table(&self->resource), block->id);
    if (!*entry || !strata_entry_lock(*entry, block->id.generation))
        return NULL;
    return (nvtx_region *)(void *)((char *)*entry + self->resource.block_offset);
}

/* Reports a region of which no free is in flight; a new one waits for `nvtx_lock`, which is held. */
static void report_region(nvtx_layer *self, nvtx_region *region, const nvtx_origin *origin)
{
    region->heap = origin->bytes ? enter_heap(self, origin->start, origin->bytes) : 0;
    region->told = true;
    report_region_begin(self, region, origin->is_known && (region->heap || !origin->bytes));
    self->regions += region->heap != 0;
}

/* Records and reports a new block, which a thread that finds it by address may free at once. */
static void begin_region(nvtx_layer *self, const strata_block *block)
{
    strata_call_scope scope;
    strata_entry *entry;
    nvtx_origin origin = {0};
    bool can_tell = report_begin(self, &scope);
    if (can_tell)
        origin = query_origin(self, block);
    strata_lock_take(&nvtx_lock);
    nvtx_region *region = lock_region(self, block, &entry);
    bool tells = region && !region->frees && can_tell;
    if (region) {
        region->address = block->address;
        region->bytes = block->requested;
        region->tag = block->tag;
        strata_entry_unlock(entry);
    }
    if (tells)
        report_region(self, region, &origin);
    strata_lock_release(&nvtx_lock);
    if (can_tell)
        strata_call_scope_leave(&scope);
}

/* Ends a block's region before its free. False: the block is not live, the free will be refused. */
static bool begin_free(nvtx_layer *self, const strata_block *block)
{
    strata_call_scope scope;
    strata_entry *entry;
    nvtx_region ended = {0};
    bool can_tell = report_begin(self, &scope);
    strata_lock_take(&nvtx_lock);
    nvtx_region *region = lock_region(self, block, &entry);
    if (region) {
        ended = *region;
        region->frees++;
        region->told = false;
        strata_entry_unlock(entry);
    }
    if (ended.told)
        report_region_end(self, &ended);
    if (ended.told && ended.heap) {
        self->regions--;
        leave_heap(self, ended.heap);
    }
    strata_lock_release(&nvtx_lock);
    if (can_tell)
        strata_call_scope_leave(&scope);
    return region != NULL;
}

/* What the region of a live block says; zeros: it is gone. */
static strata_block recorded_block(nvtx_layer *self, const strata_block *block)
{
    strata_entry *entry;
    strata_block noted = {0};
    strata_lock_take(&nvtx_lock);
    const nvtx_region *region = lock_region(self, block, &entry);
    if (region) {
        noted = (strata_block){.address = region->address, .bytes = region->bytes, .id = block->id};
        strata_entry_unlock(entry);
    }
    strata_lock_release(&nvtx_lock);
    return noted;
}

/* Reports the region again after a refused free, whatever facts that had. Another free may be in flight or done. */
static void end_free(nvtx_layer *self, const strata_block *block)
{
    const strata_block noted = recorded_block(self, block);
    strata_call_scope scope;
    strata_entry *entry;
    nvtx_origin origin = {0};
    bool can_tell = report_begin(self, &scope);
    if (can_tell && noted.address)
        origin = query_origin(self, &noted);
    strata_lock_take(&nvtx_lock);
    nvtx_region *region = lock_region(self, block, &entry);
    bool tells = region && --region->frees == 0 && region->address && can_tell;
    if (region)
        strata_entry_unlock(entry);
    if (tells)
        report_region(self, region, &origin);
    strata_lock_release(&nvtx_lock);
    if (can_tell)
        strata_call_scope_leave(&scope);
}

/* ---- operations ---- */

static strata_status nvtx_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    strata_resource *below = resource->upstream;
    strata_status status = below->ops->allocate(below, request, out);
    if (status == STRATA_SUCCESS && out->requested)
        begin_region((nvtx_layer *)resource, out);
    return status;
}

/* The region ends first: after the free the memory may be another block's. */
static strata_status nvtx_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    nvtx_layer *self = (nvtx_layer *)resource;
    strata_resource *below = resource->upstream;
    bool begun = begin_free(self, block);
    strata_status status = below->ops->deallocate(below, block, stream);
    if (status != STRATA_SUCCESS && begun)
        end_free(self, block);
    return status;
}

enum { VALUE_REGIONS, VALUE_HEAPS };

static const strata_value nvtx_values[] = {
    [VALUE_REGIONS] = {"regions", STRATA_VALUE_COUNT, false, "blocks announced as parts of heaps"},
    [VALUE_HEAPS] = {"heaps", STRATA_VALUE_COUNT, false, "heaps announced"},
};

static strata_status nvtx_get_value(strata_resource *resource, size_t which, uint64_t *value)
{
    nvtx_layer *self = (nvtx_layer *)resource;
    strata_lock_take(&nvtx_lock);
    *value = which == VALUE_HEAPS ? self->heap_count : self->regions;
    strata_lock_release(&nvtx_lock);
    return STRATA_SUCCESS;
}

static void nvtx_destroy(strata_resource *resource)
{
    nvtx_layer *self = (nvtx_layer *)resource;
    strata_lock_take(&nvtx_lock);
    nvtxDomainDestroy(self->domain);
    strata_lock_release(&nvtx_lock);
    strata_host_free(self->heaps);
    strata_host_free(self);
}

static const strata_resource_ops nvtx_ops = {
    .size = sizeof(strata_resource_ops),
    .transparent = true,
    .block_bytes = sizeof(nvtx_region),
    .name = "nvtx",
    .allocate = nvtx_allocate,
    .deallocate = nvtx_deallocate,
    .destroy = nvtx_destroy,
    .values = nvtx_values,
    .value_count = sizeof nvtx_values / sizeof nvtx_values[0],
    .get_value = nvtx_get_value,
};

static strata_status make_layer(strata_device *device, const strata_nvtx_options *options, strata_resource **out)
{
    nvtx_layer *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a layer for NVTX");
    self->resource.ops = &nvtx_ops;
    self->device = device;
    self->options = *options;
    strata_lock_take(&nvtx_lock);
    self->domain = nvtxDomainCreateA("strata");
    strata_lock_release(&nvtx_lock);
    *out = &self->resource;
    return STRATA_SUCCESS;
}
#else
static strata_status make_layer(strata_device *device, const strata_nvtx_options *options, strata_resource **out)
{
    (void)device, (void)options, (void)out;
    return strata_fail(STRATA_ERROR_UNSUPPORTED, "nvtx: Strata was built without NVTX's headers (nvtx3/nvToolsExtMem.h "
                                                 "beside cuda.h)");
}
#endif

strata_status strata_nvtx_create(int ordinal, const strata_nvtx_options *given, strata_resource **out)
{
    strata_nvtx_options options;
    strata_device *device;
    strata_status status = strata_options_begin("nvtx", out, &options, sizeof options, given);
    if (status == STRATA_SUCCESS && ((options.no_names | options.no_heaps) & ~1))
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "nvtx: invalid switch: expected 0 or 1");
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    return status == STRATA_SUCCESS ? make_layer(device, &options, out) : status;
}

/* ---- in stack texts ---- */

static const strata_option nvtx_text_options[] = {
    {"names", STRATA_OPTION_CHOICE, offsetof(strata_nvtx_options, no_names), "on|off", "name blocks by their tags"},
    {"heaps", STRATA_OPTION_CHOICE, offsetof(strata_nvtx_options, no_heaps), "on|off",
     "announce the larger pieces that blocks are cut from"},
};

static strata_status make_nvtx(int device, const void *options, strata_resource **out)
{
    return strata_nvtx_create(device, options, out);
}

const strata_layer strata_nvtx_layer = {
    .size = sizeof(strata_layer),
    .name = "nvtx",
    .help = "announces every block to tools such as compute-sanitizer",
    .options = nvtx_text_options,
    .option_count = sizeof nvtx_text_options / sizeof nvtx_text_options[0],
    .options_size = sizeof(strata_nvtx_options),
    .create = make_nvtx,
};
