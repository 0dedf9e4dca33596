/* nvtx: names of blocks, and blocks as regions of NVTX's memory extension.
 *
 * A block that is an allocation of the driver's by itself is known to the tool: it gets its name, and no more, since
 * compute-sanitizer 2025.3 refuses regions of the whole address space. What the driver calls one allocation
 * (cuMemGetAddressRange) and what is larger than the block in it is a heap, from the first block in it to the last: the
 * layer does not know when the owner gives such a piece back, and memory without a region in it is nobody's. Heaps are
 * few and kept in an array; a block's entry knows which one it is in. Of blocks in larger allocations that can be no
 * heaps the tool is told nothing: it takes no name for them (docs/measurements.md, "compute-sanitizer"). */
#include <strata/nvtx.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/lock.h"
#include "core/base/options.h"
#include "core/stack/stack.h"
#include "resources/builtin.h"

#ifdef STRATA_HAVE_NVTX
#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExtMem.h>

#include <string.h>

enum { ROUNDING = 512 }; /* what cuMemAlloc rounds to: a block that it made fills its allocation but for that */

typedef struct nvtx_heap {
    CUdeviceptr start; /* 0: the place is free */
    size_t bytes;
    size_t regions;
    nvtxMemHeapHandle_t handle;
} nvtx_heap;

/* Held around each call of NVTX: loading the tool, which the first one does, is not made for several threads. */
static strata_lock telling = STRATA_LOCK_INITIALIZER(STRATA_RANK_GUARD);

typedef struct nvtx_layer {
    strata_resource resource;
    strata_device *device;
    strata_nvtx_options options; /* constant, like the domain */
    nvtxDomainHandle_t domain;
    nvtx_heap *heaps; /* guarded by telling, like the three below */
    size_t heap_room;
    size_t heap_count;
    size_t regions;
} nvtx_layer;

/* In a block's entry: its region. All zero in a new block. Guarded by `telling`, and changed only while the entry is
 * locked, or no free is under way: behind one the entry may be another block's. */
typedef struct nvtx_mark {
    CUdeviceptr address; /* 0: what the region is was not noted yet */
    size_t bytes;
    strata_tag tag;
    uint32_t heap;  /* its place, from 1; 0: none, and the block has only its name */
    uint32_t frees; /* under way: of those that are refused, the last one tells of the region again */
    bool told;
} nvtx_mark;

/* ---- heaps ---- */

/* compute-sanitizer 2025.3 takes heaps in memory of cuMemAlloc alone, which is what the older calls for sharing memory
 * take, too (tests/answers/h200.txt, "is_legacy_ipc_capable"). The context is current. */
static bool can_be_heap(CUdeviceptr start)
{
    int capable = 0; /* of which the driver may write the first byte alone */
    CUresult result = strata_cu.PointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, start);
    return result == CUDA_SUCCESS && capable;
}

/* A guard's kernels look at the zones around its blocks, which the tool would report. */
static bool is_above_guard(const nvtx_layer *self)
{
    for (const strata_resource *below = self->resource.upstream; below; below = below->upstream)
        if (strata_has_zones(below))
            return true;
    return false;
}

/* The allocation of the driver's that the block is a part of. */
typedef struct nvtx_origin {
    CUdeviceptr start;
    size_t bytes;  /* 0: it is the whole of one, or nobody knows, or it can be no heap */
    bool is_known; /* to the tool, by itself or as a region */
} nvtx_origin;

/* The context is current. */
static nvtx_origin ask_origin(const nvtx_layer *self, const strata_block *block)
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

/* Around what is asked and told: compute-sanitizer takes no heap from a thread without a context. False if that cannot
 * be had: then the tool is told of nothing new. Errors are nobody's. */
static bool begin_telling(const nvtx_layer *self, strata_scope *scope)
{
    strata_error_suppress_begin();
    strata_status status = strata_scope_enter(scope, self->device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS;
}

/* The lock is held. */
static uint32_t find_heap(const nvtx_layer *self, CUdeviceptr start)
{
    for (size_t i = 0; i < self->heap_room; i++)
        if (self->heaps[i].start == start)
            return (uint32_t)i + 1;
    return 0;
}

/* A free place; 0 without host memory. The lock is held. */
static uint32_t free_place(nvtx_layer *self)
{
    uint32_t place = find_heap(self, 0);
    if (place)
        return place;
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

/* One more region of the heap there, which is told if it is the first. The place, 0 without one. The lock is held. */
static uint32_t enter_heap(nvtx_layer *self, CUdeviceptr start, size_t bytes)
{
    uint32_t place = find_heap(self, start);
    if (place) {
        self->heaps[place - 1].regions++;
        return place;
    }
    if (!(place = free_place(self)))
        return 0;
    nvtxMemHeapHandle_t handle = tell_heap(self, start, bytes);
    if (!handle) /* no tool, or one that does not take it */
        return 0;
    self->heaps[place - 1] = (nvtx_heap){.start = start, .bytes = bytes, .regions = 1, .handle = handle};
    self->heap_count++;
    return place;
}

/* One less. The lock is held. */
static void leave_heap(nvtx_layer *self, uint32_t place)
{
    nvtx_heap *heap = &self->heaps[place - 1];
    if (--heap->regions)
        return;
    nvtxMemHeapUnregister(self->domain, heap->handle);
    *heap = (nvtx_heap){0};
    self->heap_count--;
}

/* ---- regions: the lock is held ---- */

static void name_region(const nvtx_layer *self, const nvtx_mark *mark)
{
    const char *name = strata_tag_name(mark->tag);
    const nvtxMemRegionNameDesc_t region = {
        .regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER,
        .nameType = NVTX_MESSAGE_TYPE_ASCII,
        .region = {.pointer = (const void *)(uintptr_t)mark->address},
        .name = {.ascii = name},
    };
    const nvtxMemRegionsNameBatch_t batch = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof batch,
        .regionCount = 1,
        .regionElementSize = sizeof region,
        .regionElements = &region,
    };
    if (!self->options.no_names && *name)
        nvtxMemRegionsName(self->domain, &batch);
}

static void tell_region(const nvtx_layer *self, const nvtx_mark *mark, bool is_known)
{
    const nvtxMemVirtualRangeDesc_t range = {.size = mark->bytes, .ptr = (const void *)(uintptr_t)mark->address};
    const nvtxMemRegionsRegisterBatch_t batch = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof batch,
        .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
        .heap = mark->heap ? self->heaps[mark->heap - 1].handle : NULL,
        .regionCount = 1,
        .regionDescElementSize = sizeof range,
        .regionDescElements = &range,
    };
    if (mark->heap)
        nvtxMemRegionsRegister(self->domain, &batch);
    if (is_known)
        name_region(self, mark);
}

static void tell_end(const nvtx_layer *self, const nvtx_mark *mark)
{
    const nvtxMemRegionRef_t region = {.pointer = (const void *)(uintptr_t)mark->address};
    const nvtxMemRegionsUnregisterBatch_t batch = {
        .extCompatID = NVTX_EXT_COMPATID_MEM,
        .structSize = sizeof batch,
        .refType = NVTX_MEM_REGION_REF_TYPE_POINTER,
        .refCount = 1,
        .refElementSize = sizeof region,
        .refElements = &region,
    };
    if (mark->heap)
        nvtxMemRegionsUnregister(self->domain, &batch);
}

/* ---- regions ---- */

/* The block's mark, its entry locked; NULL if the block is gone. `telling` is held. */
static nvtx_mark *hold_mark(const nvtx_layer *self, const strata_block *block, strata_entry **entry)
{
    *entry = strata_table_lookup(strata_resource_table(&self->resource), block->id);
    if (!*entry || !strata_entry_lock(*entry, block->id.generation))
        return NULL;
    return (nvtx_mark *)(void *)((char *)*entry + self->resource.block_offset);
}

/* The region is told from here on. No free is under way, and one that comes waits for `telling`, which is held. */
static void tell_begin(nvtx_layer *self, nvtx_mark *mark, const nvtx_origin *origin)
{
    mark->heap = origin->bytes ? enter_heap(self, origin->start, origin->bytes) : 0;
    mark->told = true;
    tell_region(self, mark, origin->is_known && (mark->heap || !origin->bytes));
    self->regions += mark->heap != 0;
}

/* Who finds the block by its address may free it at once. */
static void begin_region(nvtx_layer *self, const strata_block *block)
{
    strata_scope scope;
    strata_entry *entry;
    nvtx_origin origin = {0};
    bool can_tell = begin_telling(self, &scope);
    if (can_tell)
        origin = ask_origin(self, block);
    strata_lock_take(&telling);
    nvtx_mark *mark = hold_mark(self, block, &entry);
    bool tells = mark && !mark->frees && can_tell;
    if (mark) {
        mark->address = block->address;
        mark->bytes = block->requested;
        mark->tag = block->tag;
        strata_entry_unlock(entry);
    }
    if (tells)
        tell_begin(self, mark, &origin);
    strata_lock_release(&telling);
    if (can_tell)
        strata_scope_leave(&scope);
}

/* Before a free: the region is told of no more. False if the block does not live, and the free will be refused. */
static bool begin_free(nvtx_layer *self, const strata_block *block)
{
    strata_scope scope;
    strata_entry *entry;
    nvtx_mark ended = {0};
    bool can_tell = begin_telling(self, &scope);
    strata_lock_take(&telling);
    nvtx_mark *mark = hold_mark(self, block, &entry);
    if (mark) {
        ended = *mark;
        mark->frees++;
        mark->told = false;
        strata_entry_unlock(entry);
    }
    if (ended.told)
        tell_end(self, &ended);
    if (ended.told && ended.heap) {
        self->regions--;
        leave_heap(self, ended.heap);
    }
    strata_lock_release(&telling);
    if (can_tell)
        strata_scope_leave(&scope);
    return mark != NULL;
}

/* What is remembered of the block, if it still lives. */
static strata_block noted_block(nvtx_layer *self, const strata_block *block)
{
    strata_entry *entry;
    strata_block noted = {0};
    strata_lock_take(&telling);
    const nvtx_mark *mark = hold_mark(self, block, &entry);
    if (mark) {
        noted = (strata_block){.address = mark->address, .bytes = mark->bytes, .id = block->id};
        strata_entry_unlock(entry);
    }
    strata_lock_release(&telling);
    return noted;
}

/* After a free that was refused, whatever was given with it. Another may be under way, or have been carried out. */
static void end_free(nvtx_layer *self, const strata_block *block)
{
    const strata_block noted = noted_block(self, block);
    strata_scope scope;
    strata_entry *entry;
    nvtx_origin origin = {0};
    bool can_tell = begin_telling(self, &scope);
    if (can_tell && noted.address)
        origin = ask_origin(self, &noted);
    strata_lock_take(&telling);
    nvtx_mark *mark = hold_mark(self, block, &entry);
    bool tells = mark && --mark->frees == 0 && mark->address && can_tell;
    if (mark)
        strata_entry_unlock(entry);
    if (tells)
        tell_begin(self, mark, &origin);
    strata_lock_release(&telling);
    if (can_tell)
        strata_scope_leave(&scope);
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

/* The region ends first: behind the free the memory may be another block's. */
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
    [VALUE_REGIONS] = {"regions", STRATA_VALUE_COUNT, false, "blocks that a tool was told of as parts of heaps"},
    [VALUE_HEAPS] = {"heaps", STRATA_VALUE_COUNT, false, "the larger pieces of memory that these are"},
};

static strata_status nvtx_get_value(strata_resource *resource, size_t which, uint64_t *value)
{
    nvtx_layer *self = (nvtx_layer *)resource;
    strata_lock_take(&telling);
    *value = which == VALUE_HEAPS ? self->heap_count : self->regions;
    strata_lock_release(&telling);
    return STRATA_SUCCESS;
}

static void nvtx_destroy(strata_resource *resource)
{
    nvtx_layer *self = (nvtx_layer *)resource;
    strata_lock_take(&telling);
    nvtxDomainDestroy(self->domain);
    strata_lock_release(&telling);
    strata_host_free(self->heaps);
    strata_host_free(self);
}

static const strata_resource_ops nvtx_ops = {
    .size = sizeof(strata_resource_ops),
    .passes_facts = true,
    .block_bytes = sizeof(nvtx_mark),
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
    strata_lock_take(&telling);
    self->domain = nvtxDomainCreateA("strata");
    strata_lock_release(&telling);
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
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "nvtx: a switch that is neither 0 nor 1");
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    return status == STRATA_SUCCESS ? make_layer(device, &options, out) : status;
}

/* ---- in stack texts ---- */

static const strata_option nvtx_text_options[] = {
    {"names", STRATA_OPTION_CHOICE, offsetof(strata_nvtx_options, no_names), "on|off", "name blocks by their tags"},
    {"heaps", STRATA_OPTION_CHOICE, offsetof(strata_nvtx_options, no_heaps), "on|off",
     "tell of the pieces that blocks are cut from"},
};

static strata_status make_nvtx(int device, const void *options, strata_resource **out)
{
    return strata_nvtx_create(device, options, out);
}

const strata_layer strata_nvtx_layer = {
    .size = sizeof(strata_layer),
    .name = "nvtx",
    .help = "tells compute-sanitizer and its like of every block",
    .options = nvtx_text_options,
    .option_count = sizeof nvtx_text_options / sizeof nvtx_text_options[0],
    .options_size = sizeof(strata_nvtx_options),
    .create = make_nvtx,
};
