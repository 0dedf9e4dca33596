/* Memory: the arena over the slabs, or a slab itself for larger and aligned requests and where there is no jemalloc.
 *
 * A slab is made by one thread at a time, and outside of the arena's calls: its hooks cut what is there. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "resources/pinned/internal.h"

enum { GROW_TRIES = 8 }; /* other threads may take a new slab's room */

/* ---- the arena's source ---- */

static pinned *of_source(strata_extent_source *source)
{
    return (pinned *)(void *)((char *)source - offsetof(pinned, source));
}

static void *take_extent(strata_extent_source *source, size_t bytes, size_t alignment)
{
    return pinned_slabs_take(&of_source(source)->slabs, bytes, alignment);
}

static void give_extent(strata_extent_source *source, void *memory, size_t bytes)
{
    pinned_slabs_give(&of_source(source)->slabs, memory, bytes);
}

static bool joins_extents(strata_extent_source *source, void *first, void *second)
{
    return pinned_slabs_joins(&of_source(source)->slabs, first, second);
}

void pinned_memory_init(pinned *self)
{
    strata_lock_init(&self->grow_lock, STRATA_RANK_PINNED_GROW);
    self->source = (strata_extent_source){.take = take_extent, .give = give_extent, .joins = joins_extents};
    if (!strata_host_allocator_reason())
        self->arena = strata_extent_arena_create(&self->source);
}

void pinned_memory_destroy(pinned *self)
{
    strata_extent_arena_destroy(self->arena);
    pinned_slabs_destroy(&self->slabs);
    strata_lock_destroy(&self->grow_lock);
}

/* ---- taking ---- */

static bool fits_arena(const pinned *self, const pinned_need *of)
{
    return self->arena && of->alignment <= PINNED_UNIT && of->room <= self->slabs.cut_most;
}

bool pinned_memory_try(pinned *self, pinned_need *of)
{
    of->in_arena = fits_arena(self, of);
    if (!of->in_arena)
        of->memory = pinned_slabs_take(&self->slabs, of->room, of->alignment);
    else if (atomic_load_explicit(&self->arena_ready, memory_order_acquire))
        of->memory = strata_extent_arena_take(self->arena, of->room);
    return of->memory != NULL;
}

/* Begins the arena, once there is a slab. grow_lock is held. */
static void begin_arena(pinned *self)
{
    if (!atomic_load_explicit(&self->arena_ready, memory_order_relaxed) && strata_extent_arena_begin(self->arena))
        atomic_store_explicit(&self->arena_ready, true, memory_order_release);
}

/* Makes a slab. Smaller slabs of earlier large requests are freed before, lest there be one for each size. */
static strata_status add_slab(pinned *self, const pinned_need *of, CUresult *result)
{
    size_t freed = 0;
    const size_t bytes = of->room + (of->alignment > PINNED_UNIT ? of->alignment : 0);
    strata_status status = STRATA_SUCCESS;
    if (bytes > self->slabs.slab_bytes)
        status = pinned_slabs_release(&self->slabs, 0, true, &freed);
    if (status == STRATA_SUCCESS)
        status = pinned_slabs_grow(&self->slabs, bytes, result);
    if (status == STRATA_SUCCESS && *result == CUDA_SUCCESS && fits_arena(self, of))
        begin_arena(self);
    return status;
}

strata_status pinned_memory_grow(pinned *self, pinned_need *of, CUresult *result)
{
    strata_status status = STRATA_SUCCESS;
    *result = CUDA_SUCCESS;
    strata_lock_take(&self->grow_lock);
    for (int i = 0; i < GROW_TRIES && !pinned_memory_try(self, of); i++)
        if ((status = add_slab(self, of, result)) != STRATA_SUCCESS || *result != CUDA_SUCCESS)
            break;
    if (status == STRATA_SUCCESS && *result == CUDA_SUCCESS && !of->memory && !pinned_memory_try(self, of))
        *result = CUDA_ERROR_OUT_OF_MEMORY;
    strata_lock_release(&self->grow_lock);
    return status;
}

/* ---- slots ---- */

static bool enter_index(pinned *self, CUdeviceptr address, uint32_t slot)
{
    strata_spin_take(&self->index_lock);
    const bool entered = strata_index_insert(&self->index, address, slot);
    strata_spin_release(&self->index_lock);
    return entered;
}

static void give_memory(pinned *self, void *memory, bool in_arena, size_t room)
{
    if (in_arena)
        strata_extent_arena_give(memory);
    else
        pinned_slabs_give(&self->slabs, memory, room);
}

/* Makes a slot of found memory. The address and bytes in the entry say later which memory it is. */
static strata_status make_slot(pinned *self, const strata_request *request, const pinned_need *of, unsigned class,
                               uint32_t *out)
{
    strata_table *table = strata_resource_table(&self->resource);
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)of->memory;
    const uint32_t slot = strata_table_take_slot(table);
    if (!slot)
        return strata_fail_host_memory("a block");
    strata_entry *entry = strata_table_entry(table, slot);
    if (!enter_index(self, address, slot)) {
        strata_entry_destroy(table, entry, slot);
        return strata_fail_host_memory("the address of a block");
    }
    atomic_store_explicit(&entry->address, address, memory_order_relaxed);
    atomic_store_explicit(&entry->bytes, request->bytes, memory_order_relaxed);
    *pinned_bytes_of(self, entry) = (pinned_bytes){.class = (uint8_t) class, .in_arena = of->in_arena};
    *out = slot;
    return STRATA_SUCCESS;
}

strata_status pinned_memory_enter(pinned *self, const strata_request *request, const pinned_need *of, unsigned class,
                                  uint32_t *slot)
{
    const strata_status status = make_slot(self, request, of, class, slot);
    if (status != STRATA_SUCCESS)
        give_memory(self, of->memory, of->in_arena, of->room);
    return status;
}

void pinned_memory_give(pinned *self, uint32_t slot)
{
    strata_entry *entry = pinned_entry(self, slot);
    const pinned_bytes bytes = *pinned_bytes_of(self, entry);
    const CUdeviceptr address = atomic_load_explicit(&entry->address, memory_order_relaxed);
    const size_t room = pinned_room((size_t)atomic_load_explicit(&entry->bytes, memory_order_relaxed), bytes.class);
    strata_spin_take(&self->index_lock);
    strata_index_remove(&self->index, address);
    strata_spin_release(&self->index_lock);
    strata_entry_destroy(strata_resource_table(&self->resource), entry, slot);
    give_memory(self, (void *)(uintptr_t)address, bytes.in_arena, room);
}
