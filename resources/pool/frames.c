/* Frames for a request: made, taken out of where they lie free, mapped, and given back where that fails. */
#include "resources/pool/frames.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

enum { FRAMES = 512 }; /* that there are to be at least, before larger ones are made */

/* ---- making and mapping ---- */

bool pool_frames_drop(pool *self, const uint32_t *frames, size_t count)
{
    bool gone = true;
    for (size_t i = 0; i < count; i++) {
        if (self->pages.frames[frames[i]].address)
            pool_pages_unmap(&self->pages, frames[i]);
        if (!self->pages.frames[frames[i]].address)
            pool_pages_drop(&self->pages, frames[i]);
        else
            gone = false;
    }
    return gone;
}

static bool add(pool_frames *frames, uint32_t number, uint64_t bytes)
{
    if (frames->count == frames->capacity) {
        const size_t capacity = frames->capacity ? 2 * frames->capacity : 16;
        uint32_t *larger = strata_host_zalloc(capacity * sizeof *larger);
        if (!larger)
            return false;
        if (frames->count)
            memcpy(larger, frames->numbers, frames->count * sizeof *larger);
        strata_host_free(frames->numbers);
        frames->numbers = larger;
        frames->capacity = capacity;
    }
    frames->numbers[frames->count++] = number;
    frames->bytes += bytes;
    return true;
}

/* How large a frame is made: the more memory there is, the larger, so that there are some hundreds of them. */
static uint64_t frame_size(const pool *self, uint64_t left)
{
    uint64_t size = self->pages.granule;
    while (size < self->frame_bytes && size * FRAMES < self->pages.reserved)
        size *= 2;
    size = size < self->frame_bytes ? size : self->frame_bytes;
    return left < size ? left : size;
}

CUresult pool_frames_make(pool *self, uint64_t bytes, pool_frames *frames, pool_attempt *attempt)
{
    attempt->call = "cuMemCreate";
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && frames->bytes < bytes) {
        uint32_t number;
        const uint64_t size = frame_size(self, bytes - frames->bytes);
        result = pool_pages_make(&self->pages, size, &number, &attempt->host);
        if (result == CUDA_SUCCESS && !add(frames, number, size)) {
            pool_frames_drop(self, &number, 1);
            attempt->host = true;
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (result == CUDA_SUCCESS)
            atomic_fetch_add_explicit(&self->counts.grown, 1, memory_order_relaxed);
    }
    return result;
}

CUresult pool_frames_map(pool *self, const pool_frames *frames, CUdeviceptr address, const char **call)
{
    *call = "cuMemMap";
    CUdeviceptr at = address;
    CUresult result = CUDA_SUCCESS;
    size_t mapped = 0;
    for (; result == CUDA_SUCCESS && mapped < frames->count; mapped += result == CUDA_SUCCESS) {
        result = pool_pages_map(&self->pages, frames->numbers[mapped], at);
        at += self->pages.frames[frames->numbers[mapped]].bytes;
    }
    if (result == CUDA_SUCCESS) {
        *call = "cuMemSetAccess";
        result = pool_pages_give_access(&self->pages, address, frames->bytes);
    }
    for (size_t i = 0; result != CUDA_SUCCESS && i < mapped; i++)
        pool_pages_unmap(&self->pages, frames->numbers[i]);
    return result;
}

void pool_note_reserved(pool *self)
{
    atomic_store_explicit(&self->reserved, self->pages.reserved, memory_order_relaxed);
    if (self->pages.reserved > atomic_load_explicit(&self->peak_reserved, memory_order_relaxed))
        atomic_store_explicit(&self->peak_reserved, self->pages.reserved, memory_order_relaxed);
}

/* ---- moving ---- */

static strata_status synchronize(strata_point point, void *data)
{
    (void)data;
    return strata_point_synchronize(point);
}

/* Waits on the host until nothing can touch a range that was taken. Growth is held before and afterwards, not
 * meanwhile: others go on, and only those meet this thread that would have to wait, too (patience). */
static strata_status wait_for_range(pool *self, uint32_t slot)
{
    strata_entry *entry = pool_entry(&self->heap, slot);
    if (pool_is_complete(entry))
        return STRATA_SUCCESS;
    strata_lock_release(&self->growth);
    strata_status status = strata_uses_visit(entry, synchronize, NULL);
    strata_lock_take(&self->growth);
    return status;
}

typedef struct pool_pick {
    uint32_t frame;
    uint64_t around; /* bytes of the free piece that it begins in */
    bool complete;
} pool_pick;

/* Whether one is better taken than the other: what is complete first; then from small free pieces, which serve least;
 * then large frames, of which fewer are needed. */
static bool is_better_pick(const pool *self, const pool_pick *a, const pool_pick *b)
{
    if (a->complete != b->complete)
        return a->complete;
    if (a->around != b->around)
        return a->around < b->around;
    return self->pages.frames[a->frame].bytes > self->pages.frames[b->frame].bytes;
}

/* Whether a frame of at most `room` bytes can be moved: it lies free, and not where the request is to be. The lock is
 * held. */
static bool can_move(const pool *self, const pool_moving *how, uint64_t room, uint32_t number, pool_pick *pick)
{
    const pool_heap *heap = &self->heap;
    const pool_frame *frame = &self->pages.frames[number];
    if (!frame->bytes || !frame->address || frame->held || frame->bytes > room)
        return false;
    if (frame->address < how->to && frame->address + frame->bytes > how->from)
        return false;
    uint32_t slot = pool_heap_free_at(heap, frame->address, frame->bytes);
    *pick = (pool_pick){number, slot ? pool_bytes_of(pool_entry(heap, slot)) : 0, slot != 0};
    const CUdeviceptr end = frame->address + frame->bytes;
    for (; slot && pool_address_of(pool_entry(heap, slot)) < end; slot = pool_piece_at(heap, slot)->next) {
        const bool free_now = pool_piece_at(heap, slot)->home == POOL_HOME_NONE;
        pick->complete = (free_now || pool_is_complete(pool_entry(heap, slot))) && pick->complete;
    }
    return pick->around && (pick->complete || how->patient);
}

/* The next frame to move; .frame is 0 if there is none. The lock is held. */
static pool_pick pick_frame(const pool *self, const pool_moving *how, uint64_t room)
{
    pool_pick best = {0}, pick;
    for (uint32_t number = 1; number < self->pages.frame_count; number++)
        if (can_move(self, how, room, number, &pick) && (!best.frame || is_better_pick(self, &pick, &best)))
            best = pick;
    return best;
}

uint64_t pool_frames_movable(const pool *self, const pool_moving *how)
{
    uint64_t bytes = 0;
    pool_pick pick;
    for (uint32_t number = 1; number < self->pages.frame_count; number++)
        bytes += can_move(self, how, how->room, number, &pick) ? self->pages.frames[number].bytes : 0;
    return bytes;
}

strata_status pool_take_out(pool *self, uint32_t number, uint32_t slot)
{
    strata_status status = wait_for_range(self, slot);
    const CUresult result = status == STRATA_SUCCESS ? pool_pages_unmap(&self->pages, number) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        status = strata_fail_driver(result, "cuMemUnmap", "taking memory of a pool out of its place");
    strata_spin_take(&self->lock);
    pool_heap_give(&self->heap, slot, status == STRATA_SUCCESS ? POOL_VOID : POOL_FREE);
    strata_spin_release(&self->lock);
    return status;
}

void pool_frames_collect(pool *self, const pool_moving *how, pool_frames *frames, bool *host)
{
    while (frames->bytes < how->needed) {
        strata_spin_take(&self->lock);
        const pool_pick pick = pick_frame(self, how, how->room - frames->bytes);
        const uint32_t number = pick.frame;
        const pool_frame frame = number ? self->pages.frames[number] : (pool_frame){0};
        const uint32_t slot = number ? pool_heap_take_range(&self->heap, frame.address, frame.bytes) : 0;
        strata_spin_release(&self->lock);
        if (!slot)
            return;
        strata_error_hush();
        const strata_status status = pool_take_out(self, number, slot);
        strata_error_unhush(false);
        if (status != STRATA_SUCCESS)
            return;
        if (!add(frames, number, self->pages.frames[number].bytes)) {
            pool_frames_drop(self, &number, 1);
            *host = true;
            return;
        }
        atomic_fetch_add_explicit(&self->counts.moved, 1, memory_order_relaxed);
        self->moved_bytes += self->pages.frames[number].bytes;
    }
}
