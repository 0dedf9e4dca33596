/* Memory for requests that no free piece serves. In this order: new memory, while that stays within the limit and the
 * slack; memory that lies free and complete elsewhere, which is mapped here, without a byte copied or a stream stopped;
 * new memory in spite of the slack. And giving memory back. */
#include "core/error.h"
#include "core/memory.h"
#include "resources/pool/cache.h"

#include <string.h>

enum {
    GROWTH_SHARE = 64, /* memory grows by a 64th of what is reserved, */
    GROWTH_MOST = 64,  /* at most so many granules, or by what is asked for */
    FRAMES = 512,      /* that there are to be at least, before larger ones are made */
};

/* ---- places ---- */

/* A place for a request: a void, and the free memory on its sides that is used with it. Memory is mapped from the
 * void's start on, up to its end, or both. */
typedef struct pool_place {
    uint32_t slot;   /* the void */
    bool at_end;     /* what is mapped ends where the void does */
    uint64_t needed; /* bytes that have to be mapped */
    uint64_t room;   /* bytes of the void */
} pool_place;

static uint64_t round_up(uint64_t bytes, uint64_t granule)
{
    return (bytes + granule - 1) / granule * granule;
}

/* The bytes of a neighbour that can be used with a void. */
static uint64_t usable_bytes(const pool *self, const pool_want *want, uint32_t neighbour)
{
    strata_entry *entry = neighbour ? pool_entry(&self->heap, neighbour) : NULL;
    const pool_piece *piece = entry ? pool_piece_in(&self->heap, entry) : NULL;
    if (!piece || piece->state != POOL_FREE)
        return 0;
    bool usable = self->waits || piece->home == POOL_HOME_NONE || piece->home == want->stream->timeline->number;
    return usable ? pool_bytes_of(entry) : 0;
}

/* The cheapest way to use a void; false if the request does not fit there with `extra` bytes to spare. */
static bool place_in(const pool *self, const pool_want *want, uint32_t slot, uint64_t extra, pool_place *place)
{
    const pool_piece *piece = pool_piece_at(&self->heap, slot);
    const uint64_t granule = self->pages.granule, all = pool_room_for(want);
    const uint64_t room = pool_bytes_of(pool_entry(&self->heap, slot));
    const uint64_t before = usable_bytes(self, want, piece->previous), behind = usable_bytes(self, want, piece->next);
    const uint64_t side = before > behind ? before : behind;
    const uint64_t needed = round_up(all > side ? all - side : 1, granule);
    *place = (pool_place){.slot = slot, .at_end = behind > before, .needed = needed, .room = room};
    if (needed + extra <= room)
        return true;
    place->needed = room; /* all of it, with both sides */
    return !extra && before + room + behind >= all;
}

/* The place that needs the least memory; false if there is none. */
static bool find_place(const pool *self, const pool_want *want, uint64_t extra, pool_place *place)
{
    const pool_heap *heap = &self->heap;
    bool found = false;
    for (uint32_t slot = pool_heap_first_void(heap); slot; slot = pool_heap_next_void(heap, slot)) {
        pool_place here;
        if (!place_in(self, want, slot, extra, &here) || (found && here.needed >= place->needed))
            continue;
        *place = here;
        found = true;
    }
    return found;
}

/* Gives back what is not mapped of a void that was taken for a place; what is, `bytes` of it, stays taken. 0 without
 * host memory: then all of it is void again. The lock is held. */
static uint32_t keep_of_place(pool *self, const pool_place *place, uint64_t bytes)
{
    pool_heap *heap = &self->heap;
    const uint32_t slot = place->slot;
    if (bytes == place->room)
        return slot;
    const uint32_t rest = bytes ? pool_heap_split(heap, slot, place->at_end ? place->room - bytes : bytes) : 0;
    const uint32_t kept = place->at_end ? rest : slot;
    pool_heap_give(heap, place->at_end || !rest ? slot : rest, POOL_VOID);
    return rest ? kept : 0;
}

/* Where `bytes` bytes are mapped in a place. */
static CUdeviceptr address_in(const pool *self, const pool_place *place, uint64_t bytes)
{
    const CUdeviceptr start = pool_address_of(pool_entry(&self->heap, place->slot));
    return place->at_end ? start + place->room - bytes : start;
}

/* ---- frames ---- */

/* Takes frames out of their places again, and gives them back to the device. */
static void drop_frames(pool *self, const uint32_t *frames, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (self->pages.frames[frames[i]].address)
            pool_pages_unmap(&self->pages, frames[i]);
        if (!self->pages.frames[frames[i]].address)
            pool_pages_drop(&self->pages, frames[i]);
    }
}

/* Frames that are to be mapped one behind the other. */
typedef struct pool_frames {
    uint32_t *numbers;
    size_t count, capacity;
    uint64_t bytes;
} pool_frames;

static bool add_frame(pool_frames *frames, uint32_t number, uint64_t bytes)
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

static CUresult make_frames(pool *self, uint64_t bytes, pool_frames *frames, bool *host)
{
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && frames->bytes < bytes) {
        uint32_t number;
        const uint64_t size = frame_size(self, bytes - frames->bytes);
        result = pool_pages_make(&self->pages, size, &number, host);
        if (result == CUDA_SUCCESS && !add_frame(frames, number, size)) {
            drop_frames(self, &number, 1);
            *host = true;
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (result == CUDA_SUCCESS)
            atomic_fetch_add_explicit(&self->counts.grown, 1, memory_order_relaxed);
    }
    return result;
}

/* Maps frames from an address on, and lets the device use them. On failure none of them is mapped. */
static CUresult map_frames(pool *self, const pool_frames *frames, CUdeviceptr address)
{
    CUdeviceptr at = address;
    CUresult result = CUDA_SUCCESS;
    size_t mapped = 0;
    for (; result == CUDA_SUCCESS && mapped < frames->count; mapped += result == CUDA_SUCCESS) {
        result = pool_pages_map(&self->pages, frames->numbers[mapped], at);
        at += self->pages.frames[frames->numbers[mapped]].bytes;
    }
    if (result == CUDA_SUCCESS)
        result = pool_pages_give_access(&self->pages, address, frames->bytes);
    for (size_t i = 0; result != CUDA_SUCCESS && i < mapped; i++)
        pool_pages_unmap(&self->pages, frames->numbers[i]);
    return result;
}

static void note_reserved(pool *self)
{
    atomic_store_explicit(&self->reserved, self->pages.reserved, memory_order_relaxed);
    if (self->pages.reserved > atomic_load_explicit(&self->peak_reserved, memory_order_relaxed))
        atomic_store_explicit(&self->peak_reserved, self->pages.reserved, memory_order_relaxed);
}

/* Joins what was mapped with the free memory around it, and cuts the request out of it. */
static pool_look finish_place(pool *self, const pool_want *want, uint32_t mapped, uint32_t *slot)
{
    strata_spin_take(&self->lock);
    pool_heap *heap = &self->heap;
    const CUdeviceptr address = pool_address_of(pool_entry(heap, mapped));
    const uint16_t timeline = self->waits ? POOL_HOME_SEVERAL : want->stream->timeline->number;
    pool_heap_give(heap, mapped, POOL_FREE);
    pool_heap_join_around(heap, pool_heap_around(heap, address), timeline);
    uint32_t fit = pool_heap_find(heap, want->stream->timeline->number, pool_room_for(want));
    if (!fit)
        fit = pool_heap_find_elsewhere(heap, pool_room_for(want));
    pool_look look = pool_take_fit(self, want, fit, slot);
    strata_spin_release(&self->lock);
    if (look == POOL_FOUND && !pool_wait_for_piece(self, want, *slot))
        look = POOL_NOTHING;
    return look;
}

/* Maps frames in a place whose void was taken, and cuts the request out; what cannot be mapped goes back to the device.
 */
static pool_look use_frames(pool *self, const pool_want *want, const pool_place *place, const pool_frames *frames,
                            pool_attempt *attempt, uint32_t *slot)
{
    if (attempt->result == CUDA_SUCCESS)
        attempt->result = map_frames(self, frames, address_in(self, place, frames->bytes));
    bool mapped = attempt->result == CUDA_SUCCESS;
    if (!mapped)
        drop_frames(self, frames->numbers, frames->count);
    note_reserved(self);
    strata_spin_take(&self->lock);
    const uint32_t kept = keep_of_place(self, place, mapped ? frames->bytes : 0);
    strata_spin_release(&self->lock);
    if (mapped && !kept) { /* the place is void again, and has to be */
        drop_frames(self, frames->numbers, frames->count);
        note_reserved(self);
        attempt->host = true;
    }
    return kept ? finish_place(self, want, kept, slot) : POOL_NOTHING;
}

/* ---- new memory ---- */

/* How many bytes to grow by for a request that needs so many: some more, if that is within what may be had. */
static uint64_t growth_for(const pool *self, const pool_place *place, uint64_t most)
{
    const uint64_t granule = self->pages.granule;
    uint64_t share = round_up(self->pages.reserved / GROWTH_SHARE, granule);
    if (share > GROWTH_MOST * granule)
        share = GROWTH_MOST * granule;
    uint64_t bytes = place->needed > share ? place->needed : share;
    const uint64_t initial = round_up(self->initial_bytes, granule);
    if (self->pages.reserved + bytes < initial)
        bytes = initial - self->pages.reserved;
    return bytes <= place->room && self->pages.reserved + bytes <= most ? bytes : place->needed;
}

/* New memory for a request; `most` bytes may be reserved then. Growth is held. */
static pool_look grow(pool *self, const pool_want *want, uint64_t most, pool_attempt *attempt, uint32_t *slot)
{
    pool_place place;
    strata_spin_take(&self->lock);
    bool found = find_place(self, want, 0, &place) && self->pages.reserved + place.needed <= most;
    if (found)
        pool_heap_take(&self->heap, place.slot);
    strata_spin_release(&self->lock);
    if (!found)
        return POOL_NOTHING;
    pool_frames frames = {0};
    attempt->result = make_frames(self, growth_for(self, &place, most), &frames, &attempt->host);
    pool_look look = use_frames(self, want, &place, &frames, attempt, slot);
    strata_host_free(frames.numbers);
    return look;
}

/* ---- moving memory ---- */

/* The free piece that a frame lies in whole; 0: something else is there too. The lock is held. */
static uint32_t free_around(const pool *self, const pool_frame *frame)
{
    CUdeviceptr start;
    if (!frame->bytes || !frame->address)
        return 0;
    const uint32_t slot = strata_index_floor(&self->heap.index, frame->address, &start);
    strata_entry *entry = slot ? pool_entry(&self->heap, slot) : NULL;
    bool free = entry && pool_piece_in(&self->heap, entry)->state == POOL_FREE &&
                start + pool_bytes_of(entry) >= frame->address + frame->bytes;
    return free ? slot : 0;
}

static bool is_complete(const strata_entry *entry)
{
    strata_entry *own = (strata_entry *)entry;
    pool_points_forget_complete(own);
    return pool_points_home(own) == POOL_HOME_NONE;
}

/* Takes a frame's range out of the free piece around it; its number, 0 without host memory. The lock is held. */
static uint32_t take_frame_range(pool *self, uint32_t around, const pool_frame *frame)
{
    pool_heap *heap = &self->heap;
    pool_heap_take(heap, around);
    uint32_t slot = around;
    const uint64_t before = frame->address - pool_address_of(pool_entry(heap, around));
    if (before) {
        slot = pool_heap_split(heap, around, before);
        pool_heap_give(heap, around, POOL_FREE);
        if (!slot)
            return 0;
    }
    if (pool_bytes_of(pool_entry(heap, slot)) == frame->bytes)
        return slot;
    const uint32_t rest = pool_heap_split(heap, slot, frame->bytes);
    pool_heap_give(heap, rest ? rest : slot, POOL_FREE);
    return rest ? slot : 0;
}

static strata_status synchronize(strata_point point, void *data)
{
    (void)data;
    return strata_point_synchronize(point);
}

/* Waits on the host until nothing can touch a range that was taken. */
static bool wait_for_range(pool *self, uint32_t slot)
{
    strata_error_hush();
    strata_status status = strata_uses_visit(pool_entry(&self->heap, slot), synchronize, NULL);
    strata_error_unhush(false);
    return status == STRATA_SUCCESS;
}

typedef struct pool_pick {
    uint32_t frame;
    uint64_t around; /* bytes of the free piece it lies in */
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

/* The next frame to move: one that lies free, not beside the place, whose free sides are the request's. 0: none. */
static uint32_t pick_frame(pool *self, const pool_place *place, uint64_t most, uint32_t *around)
{
    const pool_piece *at = pool_piece_at(&self->heap, place->slot);
    pool_pick best = {0};
    for (uint32_t number = 1; number < self->pages.frame_count; number++) {
        const pool_frame *frame = &self->pages.frames[number];
        const uint32_t slot = frame->bytes <= most ? free_around(self, frame) : 0;
        if (!slot || slot == at->previous || slot == at->next)
            continue;
        const strata_entry *entry = pool_entry(&self->heap, slot);
        const pool_pick pick = {number, pool_bytes_of(entry),
                                pool_piece_at(&self->heap, slot)->home == POOL_HOME_NONE || is_complete(entry)};
        if (best.frame && !is_better_pick(self, &pick, &best))
            continue;
        best = pick;
        *around = slot;
    }
    return best.frame;
}

/* Takes a frame out of its place, once nothing can touch it any more. False if that cannot be had. */
static bool take_out(pool *self, uint32_t number, uint32_t slot)
{
    bool out = wait_for_range(self, slot) && pool_pages_unmap(&self->pages, number) == CUDA_SUCCESS;
    strata_spin_take(&self->lock);
    pool_heap_give(&self->heap, slot, out ? POOL_VOID : POOL_FREE);
    strata_spin_release(&self->lock);
    return out;
}

/* Takes frames that lie free out of their places, until there are as many bytes as are needed, or no more frames. */
static void collect_frames(pool *self, const pool_place *place, pool_frames *frames, bool *host)
{
    while (frames->bytes < place->needed) {
        uint32_t around = 0;
        strata_spin_take(&self->lock);
        const uint32_t number = pick_frame(self, place, place->room - frames->bytes, &around);
        const uint32_t slot = number ? take_frame_range(self, around, &self->pages.frames[number]) : 0;
        strata_spin_release(&self->lock);
        if (!slot || !take_out(self, number, slot))
            return;
        if (!add_frame(frames, number, self->pages.frames[number].bytes)) {
            drop_frames(self, &number, 1);
            *host = true;
            return;
        }
        atomic_fetch_add_explicit(&self->counts.moved, 1, memory_order_relaxed);
    }
}

/* Memory that lies free elsewhere, for a request, and new memory for what is missing, of which `most` bytes may be
 * reserved then. Growth is held. */
static pool_look move(pool *self, const pool_want *want, uint64_t extra, uint64_t most, pool_attempt *attempt,
                      uint32_t *slot)
{
    pool_place place;
    strata_spin_take(&self->lock);
    bool found = find_place(self, want, extra, &place);
    if (found)
        pool_heap_take(&self->heap, place.slot);
    strata_spin_release(&self->lock);
    if (!found)
        return POOL_NOTHING;
    pool_frames frames = {0};
    attempt->result = CUDA_SUCCESS;
    collect_frames(self, &place, &frames, &attempt->host);
    const uint64_t missing = frames.bytes < place.needed ? place.needed - frames.bytes : 0;
    if (attempt->host || self->pages.reserved + missing > most)
        attempt->result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (missing)
        attempt->result = make_frames(self, place.needed, &frames, &attempt->host);
    pool_look look = use_frames(self, want, &place, &frames, attempt, slot);
    strata_host_free(frames.numbers);
    return look;
}

/* ---- what is tried ---- */

/* What may be reserved while memory can be moved instead. */
static uint64_t within_slack(pool *self, const pool_want *want)
{
    const uint64_t live = pool_live_bytes(self) + want->bytes;
    if (live > self->peak_live)
        self->peak_live = live;
    const uint64_t most = (uint64_t)((double)self->peak_live * (1 + self->slack)) + self->pages.granule;
    return most > self->initial_bytes ? most : self->initial_bytes;
}

static uint64_t most_reserved(const pool *self)
{
    const uint64_t limit = atomic_load_explicit(&self->limit, memory_order_relaxed);
    return limit ? limit : UINT64_MAX;
}

pool_look pool_grow_or_move(pool *self, const pool_want *want, pool_attempt *attempt, uint32_t *slot)
{
    const uint64_t most = most_reserved(self), slack = within_slack(self, want);
    pool_look look = grow(self, want, slack < most ? slack : most, attempt, slot);
    if (look == POOL_NOTHING && !attempt->host)
        look = move(self, want, 0, most, attempt, slot);
    if (look == POOL_NOTHING && !attempt->host)
        look = move(self, want, self->frame_bytes, most, attempt, slot);
    return look == POOL_NOTHING && attempt->host ? POOL_FAILED : look;
}

/* Frames that lie free and complete go back to the device. */
strata_status pool_trim(pool *self, uint64_t keep, uint64_t *bytes)
{
    *bytes = 0;
    strata_scope scope;
    strata_status status = strata_scope_enter(&scope, self->device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&self->growth);
    pool_caches_flush(self);
    const uint64_t before = self->pages.reserved;
    strata_spin_take(&self->lock);
    if (self->begun) {
        pool_heap_settle(&self->heap);
        pool_heap_join_all(&self->heap);
    }
    strata_spin_release(&self->lock);
    for (uint32_t number = self->pages.frame_count; number-- > 1 && self->pages.reserved > keep;) {
        const pool_frame *frame = &self->pages.frames[number];
        strata_spin_take(&self->lock);
        const uint32_t around = free_around(self, frame);
        const uint32_t slot = around ? take_frame_range(self, around, frame) : 0;
        strata_spin_release(&self->lock);
        if (!slot)
            continue;
        bool unmapped = wait_for_range(self, slot) && pool_pages_unmap(&self->pages, number) == CUDA_SUCCESS;
        strata_spin_take(&self->lock);
        pool_heap_give(&self->heap, slot, unmapped ? POOL_VOID : POOL_FREE);
        strata_spin_release(&self->lock);
        if (unmapped)
            pool_pages_drop(&self->pages, number);
    }
    note_reserved(self);
    *bytes = before - self->pages.reserved;
    strata_lock_release(&self->growth);
    strata_scope_leave(&scope);
    return STRATA_SUCCESS;
}
