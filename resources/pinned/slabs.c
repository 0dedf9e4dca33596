/* Slabs: page-locked memory that is cut into multiples of 256 bytes.
 *
 * A slab has a bit for each 256 bytes; the first gap that is large enough is taken. Neighbouring gaps are one without
 * further work, and giving memory back needs none. Cutting is rare below jemalloc, which asks for extents; where it is
 * missing, every block outside the caches is cut here. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "resources/pinned/internal.h"

#include <string.h>

enum { WORD = 64 };

/* ---- bits ---- */

/* The first bit from `at` on and before `end` that is `set`; else `end`. */
static size_t next_bit(const uint64_t *bits, size_t at, size_t end, bool set)
{
    while (at < end) {
        const uint64_t word = (set ? bits[at / WORD] : ~bits[at / WORD]) >> at % WORD;
        if (word) {
            at += (size_t)__builtin_ctzll(word);
            return at < end ? at : end;
        }
        at = (at / WORD + 1) * WORD;
    }
    return end;
}

static void change_bits(uint64_t *bits, size_t at, size_t count, bool set)
{
    while (count) {
        const size_t here = WORD - at % WORD < count ? WORD - at % WORD : count;
        const uint64_t mask = (here == WORD ? UINT64_MAX : (UINT64_C(1) << here) - 1) << at % WORD;
        bits[at / WORD] = set ? bits[at / WORD] | mask : bits[at / WORD] & ~mask;
        at += here;
        count -= here;
    }
}

/* ---- cutting; the lock is held ---- */

static size_t align_unit(const pinned_slab *slab, size_t unit, size_t alignment)
{
    const CUdeviceptr address = slab->address + unit * PINNED_UNIT;
    return (size_t)(((address + alignment - 1) & ~(CUdeviceptr)(alignment - 1)) - slab->address) / PINNED_UNIT;
}

/* The first gap that is large enough; slab->units: none. */
static size_t find_gap(const pinned_slab *slab, size_t units, size_t alignment)
{
    size_t at = slab->low_unit;
    while (slab->units - slab->used_units >= units) {
        at = align_unit(slab, next_bit(slab->taken, at, slab->units, false), alignment);
        if (at > slab->units || units > slab->units - at)
            break;
        const size_t stop = next_bit(slab->taken, at, at + units, true);
        if (stop == at + units)
            return at;
        at = stop;
    }
    return slab->units;
}

static void *cut(pinned_slab *slab, size_t units, size_t alignment)
{
    const size_t at = find_gap(slab, units, alignment);
    if (at == slab->units)
        return NULL;
    change_bits(slab->taken, at, units, true);
    slab->used_units += units;
    if (at == slab->low_unit)
        slab->low_unit += units;
    return (void *)(uintptr_t)(slab->address + at * PINNED_UNIT);
}

static pinned_slab *slab_of(const pinned_slabs *self, const void *memory)
{
    pinned_slab *slab = self->list;
    while (slab && (CUdeviceptr)(uintptr_t)memory - slab->address >= slab->units * PINNED_UNIT)
        slab = slab->next;
    return slab;
}

/* ---- memory ---- */

static size_t units_of(size_t bytes)
{
    return bytes / PINNED_UNIT + (bytes % PINNED_UNIT != 0);
}

void *pinned_slabs_take(pinned_slabs *self, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    if (alignment < PINNED_UNIT)
        alignment = PINNED_UNIT;
    strata_spin_take(&self->lock);
    for (pinned_slab *slab = self->list; slab && !memory; slab = slab->next)
        memory = cut(slab, units_of(bytes), alignment);
    strata_spin_release(&self->lock);
    return memory;
}

void pinned_slabs_give(pinned_slabs *self, void *memory, size_t bytes)
{
    strata_spin_take(&self->lock);
    pinned_slab *slab = slab_of(self, memory);
    const size_t at = (size_t)((CUdeviceptr)(uintptr_t)memory - slab->address) / PINNED_UNIT;
    change_bits(slab->taken, at, units_of(bytes), false);
    slab->used_units -= units_of(bytes);
    if (at < slab->low_unit)
        slab->low_unit = at;
    strata_spin_release(&self->lock);
}

bool pinned_slabs_joins(pinned_slabs *self, const void *first, const void *second)
{
    strata_spin_take(&self->lock);
    const bool joins = slab_of(self, first) == slab_of(self, second);
    strata_spin_release(&self->lock);
    return joins;
}

/* ---- slabs ---- */

static void link_slab(pinned_slabs *self, pinned_slab *slab)
{
    strata_spin_take(&self->lock);
    slab->next = self->list;
    self->list = slab;
    const size_t bytes = atomic_load_explicit(&self->bytes, memory_order_relaxed) + slab->bytes;
    atomic_store_explicit(&self->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->count, 1, memory_order_relaxed);
    if (bytes > atomic_load_explicit(&self->peak, memory_order_relaxed))
        atomic_store_explicit(&self->peak, bytes, memory_order_relaxed);
    strata_spin_release(&self->lock);
}

static pinned_slab *unlink_free_slab(pinned_slabs *self, size_t keep, bool own_only)
{
    strata_spin_take(&self->lock);
    pinned_slab **link = &self->list, *slab;
    while ((slab = *link) && (slab->used_units || (own_only && slab->bytes == self->slab_bytes)))
        link = &slab->next;
    if (atomic_load_explicit(&self->bytes, memory_order_relaxed) <= keep)
        slab = NULL;
    if (slab) {
        *link = slab->next;
        atomic_fetch_sub_explicit(&self->bytes, slab->bytes, memory_order_relaxed);
        atomic_fetch_sub_explicit(&self->count, 1, memory_order_relaxed);
    }
    strata_spin_release(&self->lock);
    return slab;
}

static strata_status alloc_memory(const pinned_slabs *self, size_t bytes, void **memory, CUresult *result)
{
    strata_call_scope scope;
    strata_status status = strata_check_device_now(self->device);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    *result = pinned_host_alloc(memory, bytes, self->flags, self->numa);
    strata_call_scope_leave(&scope);
    return STRATA_SUCCESS;
}

static strata_status free_memory(const pinned_slabs *self, void *memory, size_t bytes)
{
    strata_call_scope scope;
    const strata_status status =
        strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.MemFreeHost(memory);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuMemFreeHost", "giving %s of pinned memory back",
                                                       strata_size_text(bytes).text);
}

static strata_status free_slab(const pinned_slabs *self, const pinned_slab *slab)
{
    return free_memory(self, (void *)(uintptr_t)slab->address, slab->bytes);
}

/* Frees memory, in several tries: there is no later opportunity. */
static void free_at_last(const pinned_slabs *self, void *memory, size_t bytes)
{
    enum { TRIES = 3 };
    strata_error_suppress_begin();
    for (int i = 0; i < TRIES && free_memory(self, memory, bytes) != STRATA_SUCCESS; i++)
        ;
    strata_error_suppress_end(false);
}

/* The driver refuses sizes for whose bits there would be no host memory. */
strata_status pinned_slabs_grow(pinned_slabs *self, size_t bytes, CUresult *result)
{
    void *memory;
    const size_t wanted = bytes > self->slab_bytes ? units_of(bytes) * PINNED_UNIT : self->slab_bytes;
    const size_t units = wanted / PINNED_UNIT;
    const strata_status status = alloc_memory(self, wanted, &memory, result);
    if (status != STRATA_SUCCESS || *result != CUDA_SUCCESS)
        return status;
    pinned_slab *slab = strata_host_zalloc(sizeof *slab + (units + WORD - 1) / WORD * sizeof slab->taken[0]);
    if (!slab) {
        free_at_last(self, memory, wanted);
        return strata_fail_host_memory("a slab of pinned memory");
    }
    slab->address = (CUdeviceptr)(uintptr_t)memory;
    slab->bytes = wanted;
    slab->units = units;
    atomic_fetch_add_explicit(&self->made, 1, memory_order_relaxed);
    link_slab(self, slab);
    return STRATA_SUCCESS;
}

strata_status pinned_slabs_release(pinned_slabs *self, size_t keep, bool own_only, size_t *freed)
{
    pinned_slab *slab;
    while ((slab = unlink_free_slab(self, keep, own_only))) {
        const strata_status status = free_slab(self, slab);
        if (status != STRATA_SUCCESS) {
            link_slab(self, slab);
            return status;
        }
        *freed += slab->bytes;
        strata_host_free(slab);
    }
    return STRATA_SUCCESS;
}

void pinned_slabs_destroy(pinned_slabs *self)
{
    for (pinned_slab *slab = self->list, *next; slab; slab = next) {
        next = slab->next;
        if (strata_device_is_usable(self->device))
            free_at_last(self, (void *)(uintptr_t)slab->address, slab->bytes);
        strata_host_free(slab);
    }
    self->list = NULL;
}

void pinned_slabs_init(pinned_slabs *self, strata_device *device, const strata_pinned_options *options)
{
    self->device = device;
    self->flags = pinned_flags(options);
    self->numa = options->numa;
    self->slab_bytes = (size_t)options->slab;
    self->cut_most = self->slab_bytes / 2;
    strata_spin_init(&self->lock, STRATA_RANK_INDEX);
}
