/* Chunks for a request: made, moved from where they are free, mapped, and returned after a failure.
 *
 * A complete chunk is unmapped before it is mapped elsewhere. One that only the request's own stream may still use is
 * mapped at both addresses for a while: the stream's earlier work goes on at the former one, later work is behind it,
 * and the host waits for neither. The driver maps memory twice, and neither maps nor gives access behind a stream's
 * work (tests/answers/h200.txt, "vmm.retain.after_release.map", "vmm.map.waits."); a device sees a write through one
 * address by another in work that begins after the writing work has ended (CUDA C++ Programming Guide, "Virtual
 * Aliasing Support"). The former place is unmapped once its work is known to be over. */
#include "resources/pool/remap.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "resources/chunks/formers.h"
#include "resources/pool/policy.h"

#include <string.h>

#define MUCH ((uint64_t)256 << 20) /* bytes; the device is asked before more */

/* ---- making and mapping ---- */

bool pool_chunk_list_drop(pool *self, const uint32_t *chunks, size_t count)
{
    bool gone = true;
    for (size_t i = 0; i < count; i++) {
        const bool contiguous = self->store.chunks[chunks[i]].contiguous;
        if (self->store.chunks[chunks[i]].address && !contiguous)
            pool_chunk_store_unmap(&self->store, &chunks[i], 1);
        if (self->store.chunks[chunks[i]].former && !self->store.chunks[chunks[i]].address)
            pool_give_range(self, pool_formers_go_back(&self->store, chunks[i]), POOL_FREE);
        else if (!self->store.chunks[chunks[i]].address || contiguous)
            pool_chunk_store_drop(&self->store, chunks[i]);
        else
            gone = false;
    }
    return gone;
}

static CUresult make_one(pool *self, uint64_t bytes, pool_chunk_list *chunks, pool_outcome *outcome)
{
    uint32_t number;
    const CUresult result = pool_chunk_store_make(&self->store, bytes, &number, &outcome->no_host_memory);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pool_chunk_list_add(chunks, &self->store, number)) {
        pool_chunk_list_drop(self, &number, 1);
        outcome->no_host_memory = true;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    atomic_fetch_add_explicit(&self->counts.chunks_made, 1, memory_order_relaxed);
    return CUDA_SUCCESS;
}

void pool_record_refusal(const pool *self, uint64_t bytes, pool_outcome *outcome)
{
    size_t left, total;
    const uint64_t most = bytes - self->store.granule;
    const bool known = strata_cu.MemGetInfo(&left, &total) == CUDA_SUCCESS;
    outcome->ceiling = self->store.reserved + (known && left < most ? left : most);
    outcome->refused = true;
}

/* Asks whether the device has the bytes, before chunks are made: else all its memory would be made and returned, and
 * other programs would get none meanwhile. If it has not, one large handle shows whether it can free them. */
static CUresult request_much(pool *self, uint64_t bytes, pool_outcome *outcome)
{
    size_t left, total;
    uint32_t number;
    if (bytes <= MUCH || strata_cu.MemGetInfo(&left, &total) != CUDA_SUCCESS || bytes <= left)
        return CUDA_SUCCESS;
    const CUresult result = pool_chunk_store_make(&self->store, bytes, &number, &outcome->no_host_memory);
    if (result == CUDA_SUCCESS)
        pool_chunk_list_drop(self, &number, 1);
    else if (result == CUDA_ERROR_OUT_OF_MEMORY && !outcome->no_host_memory)
        pool_record_refusal(self, bytes, outcome);
    return result;
}

CUresult pool_chunk_list_make(pool *self, const pool_need *need, uint64_t bytes, pool_chunk_list *chunks,
                              pool_outcome *outcome)
{
    outcome->call = "cuMemCreate";
    CUresult result = chunks->bytes < bytes ? request_much(self, bytes - chunks->bytes, outcome) : CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && chunks->bytes < bytes) {
        const uint64_t left = bytes - chunks->bytes, usual = pool_chunk_size(self, need, bytes);
        const uint64_t size = left < usual ? left : usual;
        result = make_one(self, size, chunks, outcome);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && !outcome->no_host_memory)
            pool_record_refusal(self, size, outcome);
    }
    return result;
}

CUresult pool_chunk_list_map(pool *self, const pool_chunk_list *chunks, CUdeviceptr address, const char **call)
{
    *call = "cuMemMap";
    CUdeviceptr at = address;
    CUresult result = CUDA_SUCCESS;
    size_t mapped = 0;
    for (; result == CUDA_SUCCESS && mapped < chunks->count; mapped += result == CUDA_SUCCESS) {
        result = pool_chunk_store_map(&self->store, chunks->numbers[mapped], at);
        at += pool_chunk_bytes(&self->store.chunks[chunks->numbers[mapped]]);
    }
    if (result == CUDA_SUCCESS) {
        *call = "cuMemSetAccess";
        result = self->store.source->give_access(&self->store, address, chunks->bytes);
    }
    for (size_t i = 0; result != CUDA_SUCCESS && i < mapped; i++)
        pool_chunk_store_unmap(&self->store, &chunks->numbers[i], 1);
    return result;
}

/* ---- unmapping free chunks ---- */

static void set_state(pool *self, uint32_t slot, pool_state state)
{
    strata_spin_take(&self->lock);
    pool_extent_at(&self->heap, slot)->state = (uint8_t)state;
    strata_spin_release(&self->lock);
}

/* Drops map_lock while it waits for work on a taken range. Other threads can use free memory; one that must wait or map
 * blocks on oom_lock, since the hole for this range is taken. */
static strata_status wait_for_range(pool *self, uint32_t slot)
{
    strata_entry *entry = pool_entry(&self->heap, slot);
    if (pool_is_complete(entry))
        return STRATA_SUCCESS;
    set_state(self, slot, POOL_AWAITED);
    strata_lock_release(&self->map_lock);
    strata_status status = strata_uses_visit(entry, strata_point_wait, self->device);
    strata_lock_take(&self->map_lock);
    set_state(self, slot, POOL_TAKEN);
    return status;
}

typedef struct pool_pick {
    uint32_t chunk;
    uint64_t around; /* bytes of its free extent */
    pool_work work;  /* that may still use it */
} pool_pick;

/* Complete chunks come first, then those in order; of these, chunks of small extents, which serve least; then large
 * chunks, of which fewer are needed. */
static bool is_better_pick(const pool *self, const pool_pick *a, const pool_pick *b)
{
    if (a->work != b->work)
        return a->work < b->work;
    if (a->around != b->around)
        return a->around < b->around;
    return pool_chunk_bytes(&self->store.chunks[a->chunk]) > pool_chunk_bytes(&self->store.chunks[b->chunk]);
}

/* Whether the terms let a chunk be taken, of at most `room` bytes. `lock` is held. */
static bool is_remappable(const pool *self, const pool_remap_terms *how, uint64_t room, uint32_t number,
                          pool_pick *pick)
{
    const pool_heap *heap = &self->heap;
    const pool_chunk *chunk = &self->store.chunks[number];
    const uint64_t bytes = chunk->contiguous ? UINT64_MAX : pool_chunk_bytes(chunk); /* fits no hole */
    if (!pool_chunk_bytes(chunk) || !chunk->address || chunk->held || chunk->useless || chunk->awaited ||
        bytes > room || (how->returned && chunk->former))
        return false;
    const uint32_t slot = pool_heap_free_at(heap, chunk->address, pool_chunk_bytes(chunk));
    const pool_work work = pool_heap_work_on(heap, slot, pool_behind_chunk(chunk), how->own);
    *pick = (pool_pick){number, slot ? pool_bytes_of(pool_entry(heap, slot)) : 0, work};
    const bool stays = how->leaves_small && slot && pool_extent_at(heap, slot)->side == POOL_SMALL;
    return !stays && work <= (how->others || how->may_wait ? POOL_OTHERS : POOL_IN_ORDER);
}

static bool touches(const pool_chunk *chunk, CUdeviceptr from, CUdeviceptr to)
{
    return chunk->address < to && pool_behind_chunk(chunk) > from;
}

/* Lists the chunks of at most `room` bytes that the terms let be taken. NULL without host memory. */
static pool_pick *make_picks(pool *self, const pool_remap_terms *how, uint64_t room, size_t *count)
{
    pool_pick *picks = strata_host_zalloc((self->store.chunk_count + 1) * sizeof *picks);
    *count = 0;
    if (!picks)
        return NULL;
    strata_spin_take(&self->lock);
    for (uint32_t number = 1; number < self->store.chunk_count; number++)
        *count += !touches(&self->store.chunks[number], how->from, how->to) &&
                  is_remappable(self, how, room, number, &picks[*count]);
    strata_spin_release(&self->lock);
    return picks;
}

/* Takes the best pick of at most `room` bytes off the list; 0: none. */
static uint32_t take_best(const pool *self, pool_pick *picks, size_t count, uint64_t room)
{
    pool_pick *best = NULL;
    for (size_t i = 0; i < count; i++)
        if (picks[i].chunk && pool_chunk_bytes(&self->store.chunks[picks[i].chunk]) <= room &&
            (!best || is_better_pick(self, &picks[i], best)))
            best = &picks[i];
    const uint32_t number = best ? best->chunk : 0;
    if (best)
        best->chunk = 0;
    return number;
}

uint64_t pool_remappable_bytes(const pool *self, const pool_remap_terms *how, CUdeviceptr from, CUdeviceptr to,
                               uint64_t room)
{
    uint64_t bytes = 0;
    pool_pick pick;
    for (uint32_t number = 1; number < self->store.chunk_count; number++)
        if (touches(&self->store.chunks[number], from, to) && is_remappable(self, how, room, number, &pick))
            bytes += pool_chunk_bytes(&self->store.chunks[number]);
    return bytes;
}

/* Takes a contiguous chunk out of the heap; it is unmapped when it is returned. */
static void leave_range(pool *self, uint32_t number, uint32_t slot)
{
    strata_spin_take(&self->lock);
    pool_heap_leave(&self->heap, slot);
    self->store.chunks[number].useless = true;
    strata_spin_release(&self->lock);
}

strata_status pool_take_out(pool *self, uint32_t number, uint32_t slot)
{
    strata_status status = wait_for_range(self, slot);
    if (status == STRATA_SUCCESS && self->store.chunks[number].contiguous) {
        leave_range(self, number, slot);
        return status;
    }
    const CUresult result = status == STRATA_SUCCESS ? pool_chunk_store_unmap(&self->store, &number, 1) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        status = strata_fail_driver(result, "cuMemUnmap", "taking memory of a pool out of its place");
    pool_give_range(self, slot, status == STRATA_SUCCESS ? POOL_HOLE : POOL_FREE);
    return status;
}

/* Takes a chunk's range, and waits for its work if the terms do not let that go on. False: not remappable, or the wait
 * failed. */
static bool take_chunk(pool *self, const pool_remap_terms *how, uint32_t number, uint32_t *slot)
{
    pool_pick pick;
    strata_spin_take(&self->lock);
    const pool_chunk *chunk = &self->store.chunks[number];
    const bool can = !touches(chunk, how->from, how->to) && is_remappable(self, how, UINT64_MAX, number, &pick);
    *slot = can ? pool_heap_take_range(&self->heap, chunk->address, pool_chunk_bytes(chunk)) : 0;
    strata_spin_release(&self->lock);
    if (!*slot || pick.work == POOL_IN_ORDER || (pick.work == POOL_OTHERS && how->others))
        return *slot != 0;
    strata_error_suppress_begin();
    const strata_status status = wait_for_range(self, *slot);
    strata_error_suppress_end(false);
    if (status != STRATA_SUCCESS)
        pool_give_range(self, *slot, POOL_FREE);
    return status == STRATA_SUCCESS;
}

/* Unmaps adjacent taken chunks, given highest first, by one call. After a failure they are free memory. */
static bool unmap_run(pool *self, const uint32_t *numbers, size_t count)
{
    const CUdeviceptr from = self->store.chunks[numbers[count - 1]].address;
    const CUdeviceptr to = pool_behind_chunk(&self->store.chunks[numbers[0]]);
    const bool gone = pool_chunk_store_unmap(&self->store, numbers, count) == CUDA_SUCCESS;
    strata_spin_take(&self->lock);
    for (CUdeviceptr at = to; at > from;) {
        const uint32_t slot = pool_heap_around(&self->heap, at - 1);
        at = pool_address_of(pool_entry(&self->heap, slot));
        pool_heap_give(&self->heap, slot, gone ? POOL_HOLE : POOL_FREE);
    }
    strata_spin_release(&self->lock);
    return gone;
}

typedef enum pool_leaving {
    POOL_STAYS, /* without host memory */
    POOL_LEFT,
    POOL_UNMAPPABLE, /* no work is left */
} pool_leaving;

/* Makes a taken chunk's place a former one, if work is left there. */
static pool_leaving leave_place(pool *self, uint32_t number)
{
    const CUdeviceptr address = self->store.chunks[number].address;
    strata_spin_take(&self->lock);
    const uint32_t slot = pool_heap_around(&self->heap, address);
    const strata_point point = pool_points_pending(pool_entry(&self->heap, slot));
    strata_spin_release(&self->lock);
    if (!point)
        return POOL_UNMAPPABLE;
    if (!pool_formers_leave(&self->store, number, slot, point)) {
        pool_give_range(self, slot, POOL_FREE);
        return POOL_STAYS;
    }
    strata_spin_take(&self->lock);
    pool_heap_put_away(&self->heap, slot);
    strata_spin_release(&self->lock);
    return POOL_LEFT;
}

/* Leaves the places of the list's chunks from `first` on, and moves those with work left to the front: returns how
 * many. Those that stay are dropped from the list. */
static size_t leave_places(pool *self, pool_chunk_list *chunks, size_t first)
{
    size_t left = first, kept = first;
    for (size_t i = first; i < chunks->count; i++) {
        const uint32_t number = chunks->numbers[i];
        const pool_leaving how = leave_place(self, number);
        if (how == POOL_STAYS) {
            chunks->bytes -= pool_chunk_bytes(&self->store.chunks[number]);
            continue;
        }
        chunks->numbers[kept++] = number;
        if (how == POOL_LEFT) {
            chunks->numbers[kept - 1] = chunks->numbers[left];
            chunks->numbers[left++] = number;
        }
    }
    chunks->count = kept;
    return left - first;
}

static void record_moved(pool *self, pool_chunk_list *chunks, size_t count)
{
    atomic_fetch_add_explicit(&self->counts.chunks_moved, count, memory_order_relaxed);
    chunks->moved += count;
}

/* Unmaps the list's taken chunks from `first` on, adjacent ones by one call. Those that stay mapped are dropped from
 * the list. */
static void unmap_taken(pool *self, pool_chunk_list *chunks, size_t first)
{
    const size_t left = leave_places(self, chunks, first), count = chunks->count - first - left;
    uint32_t *numbers = chunks->numbers + first + left, *kept = numbers;
    record_moved(self, chunks, left);
    pool_chunks_sort(&self->store, numbers, count);
    for (size_t i = 0, length; i < count; i += length) {
        uint64_t bytes;
        length = pool_chunks_run(&self->store, numbers + i, count - i, &bytes);
        if (unmap_run(self, numbers + i, length)) {
            memmove(kept, numbers + i, length * sizeof *kept);
            kept += length;
            record_moved(self, chunks, length);
        } else {
            chunks->bytes -= bytes;
        }
    }
    chunks->count = (size_t)(kept - chunks->numbers);
}

/* Takes free chunks until the list has enough. Picks are listed once: a look at a chunk costs more than a comparison.
 * False: none was added. */
static bool take_chunks(pool *self, const pool_remap_terms *how, pool_chunk_list *chunks, bool *no_host_memory)
{
    const size_t before = chunks->count;
    size_t count;
    pool_pick *picks = make_picks(self, how, how->room - chunks->bytes, &count);
    *no_host_memory = !picks;
    while (chunks->bytes < how->needed && !*no_host_memory) {
        uint32_t slot;
        const uint32_t number = take_best(self, picks, count, how->room - chunks->bytes);
        if (!number)
            break;
        if (!take_chunk(self, how, number, &slot))
            continue;
        *no_host_memory = !pool_chunk_list_add(chunks, &self->store, number);
        if (*no_host_memory)
            pool_give_range(self, slot, POOL_FREE);
    }
    strata_host_free(picks);
    return chunks->count > before && !*no_host_memory;
}

void pool_chunk_list_collect(pool *self, const pool_remap_terms *how, pool_chunk_list *chunks, bool *no_host_memory)
{
    const size_t first = chunks->count;
    while (chunks->bytes < how->needed && take_chunks(self, how, chunks, no_host_memory))
        continue;
    if (chunks->count > first)
        unmap_taken(self, chunks, first);
}

bool pool_chunk_list_inherit(pool *self, const pool_chunk_list *chunks, uint32_t slot)
{
    bool all = true;
    for (size_t i = 0; i < chunks->count && all; i++) {
        const uint32_t former = self->store.chunks[chunks->numbers[i]].former;
        all = !former || pool_points_add_all(pool_entry(&self->heap, slot),
                                             pool_entry(&self->heap, pool_former_at(&self->store, former)->extent));
    }
    return all;
}

bool pool_chunk_list_give_back(pool *self, const pool_remap_terms *how, pool_chunk_list *chunks)
{
    uint32_t slot;
    size_t count;
    const pool_remap_terms gone = pool_terms_without_order(how);
    pool_pick *picks = make_picks(self, &gone, UINT64_MAX, &count);
    const uint32_t number = take_best(self, picks, count, UINT64_MAX);
    strata_host_free(picks);
    const uint64_t bytes = number ? pool_chunk_bytes(&self->store.chunks[number]) : 0;
    if (!number || !take_chunk(self, &gone, number, &slot))
        return false;
    if (self->store.chunks[number].contiguous)
        leave_range(self, number, slot);
    else if (!unmap_run(self, &number, 1))
        return false;
    chunks->moved++;
    if (!pool_chunk_list_drop(self, &number, 1) || pool_chunk_bytes(&self->store.chunks[number]))
        return false;
    atomic_fetch_add_explicit(&self->counts.released, bytes, memory_order_relaxed);
    return true;
}
