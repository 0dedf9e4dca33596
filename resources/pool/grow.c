/* Memory for requests that no free piece serves. In this order: new memory, while that stays within the limit and the
 * slack; memory that lies free and complete elsewhere, which is mapped here, without a byte copied or a stream stopped;
 * new memory in spite of the slack. */
#include "core/error.h"
#include "core/memory.h"
#include "resources/pool/cache.h"

#include <string.h>

/* What may be reserved beyond what was live at most, once moving is dear, and how much more each time that it still is.
 */
static const double DEAR_SLACK = 0.10, DEAR_STEP = 0.05;

enum {
    DEAR_SHARE = 8,    /* moving more than this part of all memory is dear, */
    DEAR_REQUESTS = 2, /* if it is more than a frame for so many requests */
    GROWTH_SHARE = 64, /* memory grows by a 64th of what is reserved, */
    GROWTH_MOST = 64,  /* at most so many granules, or by what is asked for */
    FRAMES = 512,      /* that there are to be at least, before larger ones are made */
};

/* ---- places ---- */

/* A place for a request: a void, and the free memory on its sides that is used with it. Memory is mapped from the
 * void's start on, up to its end, or both. */
typedef struct pool_place {
    uint32_t slot;        /* the void */
    bool at_end;          /* what is mapped ends where the void does */
    uint64_t needed;      /* bytes that have to be mapped */
    uint64_t room;        /* bytes of the void */
    CUdeviceptr from, to; /* the void, and what is used of its sides */
} pool_place;

static uint64_t side_of(const pool_place *place)
{
    return place->to - place->from - place->room;
}

static uint64_t round_up(uint64_t bytes, uint64_t granule)
{
    return (bytes + granule - 1) / granule * granule;
}

/* The bytes right before a void, or right behind it, that can be used with it: free memory, whatever it waits for, or
 * one piece that the stream can have without a wait. */
static uint64_t usable_bytes(const pool *self, const pool_want *want, bool alone, uint32_t slot, bool before)
{
    uint64_t bytes = 0;
    for (;;) {
        const pool_piece *at = pool_piece_at(&self->heap, slot);
        slot = before ? at->previous : at->next;
        const pool_piece *piece = slot ? pool_piece_at(&self->heap, slot) : NULL;
        if (!piece || piece->state != POOL_FREE)
            return bytes;
        bool usable = !alone || piece->home == POOL_HOME_NONE || piece->home == want->stream->timeline->number;
        bytes += usable ? pool_bytes_of(pool_entry(&self->heap, slot)) : 0;
        if (alone)
            return bytes;
    }
}

/* The cheapest way to use a void; false if the request does not fit there with `extra` bytes to spare. */
static bool place_in(const pool *self, const pool_want *want, bool alone, uint32_t slot, uint64_t extra,
                     pool_place *place)
{
    const uint64_t granule = self->pages.granule, all = pool_room_for(want);
    const strata_entry *entry = pool_entry(&self->heap, slot);
    const CUdeviceptr from = pool_address_of(entry), to = from + pool_bytes_of(entry);
    const uint64_t room = to - from;
    const uint64_t before = usable_bytes(self, want, alone, slot, true);
    const uint64_t behind = usable_bytes(self, want, alone, slot, false);
    const uint64_t side = before > behind ? before : behind;
    const uint64_t needed = round_up(all > side ? all - side : 1, granule);
    const bool at_end = behind > before;
    *place = (pool_place){slot, at_end, needed, room, at_end ? from : from - before, at_end ? to + behind : to};
    if (needed + extra <= room)
        return true;
    *place = (pool_place){slot, at_end, room, room, from - before, to + behind}; /* all of it, with both sides */
    return !extra && before + room + behind >= all;
}

/* Whether less has to be mapped, or less of what is used is left over. */
static bool is_better_place(const pool_place *a, const pool_place *b)
{
    return a->needed != b->needed ? a->needed < b->needed : side_of(a) < side_of(b);
}

/* The place that needs the least memory; false if there is none. */
static bool find_place(const pool *self, const pool_want *want, bool alone, uint64_t extra, pool_place *place)
{
    const pool_heap *heap = &self->heap;
    bool found = false;
    for (uint32_t slot = pool_heap_first_void(heap); slot; slot = pool_heap_next_void(heap, slot)) {
        pool_place here;
        if (!place_in(self, want, alone, slot, extra, &here) || (found && !is_better_place(&here, place)))
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

/* ---- frames ---- */

/* Takes frames out of their places again, and gives them back to the device. False if one of them is where it was. */
static bool drop_frames(pool *self, const uint32_t *frames, size_t count)
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

static CUresult make_frames(pool *self, uint64_t bytes, pool_frames *frames, pool_attempt *attempt)
{
    attempt->call = "cuMemCreate";
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && frames->bytes < bytes) {
        uint32_t number;
        const uint64_t size = frame_size(self, bytes - frames->bytes);
        result = pool_pages_make(&self->pages, size, &number, &attempt->host);
        if (result == CUDA_SUCCESS && !add_frame(frames, number, size)) {
            drop_frames(self, &number, 1);
            attempt->host = true;
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (result == CUDA_SUCCESS)
            atomic_fetch_add_explicit(&self->counts.grown, 1, memory_order_relaxed);
    }
    return result;
}

/* Maps frames from an address on, and lets the device use them. On failure none of them is mapped. */
static CUresult map_frames(pool *self, const pool_frames *frames, CUdeviceptr address, const char **call)
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

/* Cuts the request out of what was mapped and the free memory around it. */
static pool_look finish_place(pool *self, const pool_want *want, uint32_t mapped, pool_attempt *attempt, uint32_t *slot)
{
    strata_spin_take(&self->lock);
    pool_heap *heap = &self->heap;
    const CUdeviceptr address = pool_address_of(pool_entry(heap, mapped));
    const uint16_t timeline = want->stream->timeline->number;
    pool_heap_give(heap, mapped, POOL_FREE);
    pool_heap_join_around(heap, pool_heap_around(heap, address), timeline);
    pool_look look = pool_take_fit(self, want, pool_heap_find(heap, timeline, pool_room_for(want)), slot);
    if (look == POOL_NOTHING && !attempt->alone)
        look = pool_take_others(self, want, slot);
    strata_spin_release(&self->lock);
    if (look == POOL_FOUND && !pool_wait_for_piece(self, want, *slot, attempt))
        look = POOL_NOTHING;
    return look;
}

/* Maps frames in a place whose void was taken, and cuts the request out; what cannot be mapped goes back to the device.
 * Addresses that something is left at, because it could not be unmapped, are nobody's from then on. */
static pool_look use_frames(pool *self, const pool_want *want, const pool_place *place, const pool_frames *frames,
                            pool_attempt *attempt, uint32_t *slot)
{
    const bool made = attempt->result == CUDA_SUCCESS;
    strata_spin_take(&self->lock);
    const uint32_t kept = keep_of_place(self, place, made ? frames->bytes : 0);
    strata_spin_release(&self->lock);
    attempt->host |= made && !kept;
    if (kept)
        attempt->result = map_frames(self, frames, pool_address_of(pool_entry(&self->heap, kept)), &attempt->call);
    const bool mapped = kept && attempt->result == CUDA_SUCCESS;
    if (mapped)
        pool_decay_note(self, kept);
    const bool gone = mapped || drop_frames(self, frames->numbers, frames->count);
    pool_note_reserved(self);
    if (mapped)
        return finish_place(self, want, kept, attempt, slot);
    if (kept && gone) {
        strata_spin_take(&self->lock);
        pool_heap_give(&self->heap, kept, POOL_VOID);
        strata_spin_release(&self->lock);
    }
    return POOL_NOTHING;
}

/* ---- new memory ---- */

static void forget_moves(pool *self)
{
    self->moved_bytes = 0;
    self->misses_before = atomic_load_explicit(&self->counts.misses, memory_order_relaxed);
    self->moved_before = atomic_load_explicit(&self->counts.moved, memory_order_relaxed);
}

/* Moving is paid again and again, and growing once. When much was moved of what there is, and a frame for every other
 * request that no cache served, growing is the cheaper of the two. */
static bool is_moving_dear(const pool *self)
{
    const uint64_t requests = atomic_load_explicit(&self->counts.misses, memory_order_relaxed) - self->misses_before;
    const uint64_t moves = atomic_load_explicit(&self->counts.moved, memory_order_relaxed) - self->moved_before;
    return self->moved_bytes >= self->pages.reserved / DEAR_SHARE && DEAR_REQUESTS * moves >= requests;
}

/* How many bytes to grow by for a request that needs so many: some more, if that is within what may be had. */
static uint64_t growth_for(const pool *self, const pool_place *place, uint64_t most)
{
    const uint64_t granule = self->pages.granule;
    const bool dear = is_moving_dear(self);
    uint64_t share = round_up(self->pages.reserved / (dear ? DEAR_SHARE : GROWTH_SHARE), granule);
    if (!dear && share > GROWTH_MOST * granule)
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
    bool found = find_place(self, want, attempt->alone, 0, &place) && self->pages.reserved + place.needed <= most;
    if (found)
        pool_heap_take(&self->heap, place.slot);
    strata_spin_release(&self->lock);
    if (!found)
        return POOL_NOTHING;
    pool_frames frames = {0};
    attempt->result = make_frames(self, growth_for(self, &place, most), &frames, attempt);
    pool_look look = use_frames(self, want, &place, &frames, attempt, slot);
    strata_host_free(frames.numbers);
    return look;
}

/* ---- moving memory ---- */

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

/* How memory is moved. */
typedef struct pool_moving {
    pool_place place;
    uint64_t spare; /* bytes that are made before others are moved */
    uint64_t most;  /* that may be reserved, with what is made because it is missing */
    bool patient;   /* what is not complete may be waited for */
} pool_moving;

/* Whether a frame of at most `room` bytes can be moved: it lies free, and not where the request is to be. The lock is
 * held. */
static bool can_move(const pool *self, const pool_moving *how, uint64_t room, uint32_t number, pool_pick *pick)
{
    const pool_heap *heap = &self->heap;
    const pool_frame *frame = &self->pages.frames[number];
    if (!frame->bytes || !frame->address || frame->held || frame->bytes > room)
        return false;
    if (frame->address < how->place.to && frame->address + frame->bytes > how->place.from)
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

/* Whether enough could be moved and made: otherwise nobody is to be waited for, and nothing to be moved. */
static bool could_move(pool *self, const pool_moving *how)
{
    uint64_t bytes = 0;
    strata_spin_take(&self->lock);
    for (uint32_t number = 1; number < self->pages.frame_count && bytes < how->place.needed; number++) {
        pool_pick pick;
        if (can_move(self, how, how->place.room, number, &pick))
            bytes += self->pages.frames[number].bytes;
    }
    strata_spin_release(&self->lock);
    return bytes >= how->place.needed || self->pages.reserved + how->place.needed - bytes <= how->most;
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

/* Takes frames that lie free out of their places, until there are as many bytes as are needed beside what is made, or
 * no more frames. */
static void collect_frames(pool *self, const pool_moving *how, pool_frames *frames, bool *host)
{
    while (frames->bytes < how->place.needed) {
        strata_spin_take(&self->lock);
        const pool_pick pick = pick_frame(self, how, how->place.room - frames->bytes);
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
        if (!add_frame(frames, number, self->pages.frames[number].bytes)) {
            drop_frames(self, &number, 1);
            *host = true;
            return;
        }
        atomic_fetch_add_explicit(&self->counts.moved, 1, memory_order_relaxed);
        self->moved_bytes += self->pages.frames[number].bytes;
    }
}

/* Memory that lies free elsewhere, for a request, and new memory for what is missing. Growth is held; with
 * how->patient, patience, too. */
static pool_look move(pool *self, const pool_want *want, uint64_t extra, pool_moving *how, pool_attempt *attempt,
                      uint32_t *slot)
{
    const pool_place *place = &how->place;
    strata_spin_take(&self->lock);
    bool found = find_place(self, want, attempt->alone, extra, &how->place);
    if (found)
        pool_heap_take(&self->heap, place->slot);
    strata_spin_release(&self->lock);
    if (!found)
        return POOL_NOTHING;
    pool_frames frames = {0};
    attempt->result = could_move(self, how) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (attempt->result == CUDA_SUCCESS && how->spare) /* where there is none, more is moved */
        make_frames(self, how->spare < place->needed ? how->spare : place->needed, &frames, attempt);
    if (attempt->result == CUDA_SUCCESS && !attempt->host)
        collect_frames(self, how, &frames, &attempt->host);
    const uint64_t missing = frames.bytes < place->needed ? place->needed - frames.bytes : 0;
    if (attempt->host || (missing && self->pages.reserved + missing > how->most))
        attempt->result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (missing && attempt->result == CUDA_SUCCESS)
        attempt->result = make_frames(self, place->needed, &frames, attempt);
    pool_look look = use_frames(self, want, place, &frames, attempt, slot);
    strata_host_free(frames.numbers);
    return look;
}

/* ---- what is tried ---- */

/* The slack; where moving is dear, some more each time that all memory has been moved. */
static double slack_now(pool *self)
{
    if (is_moving_dear(self) && self->moved_bytes >= self->pages.reserved) {
        self->dear_slack += self->dear_slack > 0 ? DEAR_STEP : DEAR_SLACK;
        forget_moves(self);
    }
    return self->dear_slack > self->slack ? self->dear_slack : self->slack;
}

/* What may be reserved while memory can be moved instead. */
static uint64_t within_slack(pool *self, const pool_want *want)
{
    const uint64_t live = pool_live_bytes(self) + want->bytes;
    if (live > self->peak_live)
        self->peak_live = live;
    const uint64_t most = (uint64_t)((double)self->peak_live * (1 + slack_now(self))) + self->pages.granule;
    return most > self->initial_bytes ? most : self->initial_bytes;
}

uint64_t pool_most_reserved(const pool *self)
{
    const uint64_t limit = atomic_load_explicit(&self->limit, memory_order_relaxed);
    return limit ? limit : UINT64_MAX;
}

pool_look pool_grow_or_move(pool *self, const pool_want *want, bool patient, pool_attempt *attempt, uint32_t *slot)
{
    const uint64_t most = pool_most_reserved(self), slack = within_slack(self, want);
    const uint64_t reserved = self->pages.reserved, cheap = slack < most ? slack : most;
    /* What is left of the slack is used at once, so that the same need not be moved again and again. Below a limit it
     * is kept for what cannot be moved. */
    const uint64_t granule = self->pages.granule;
    const uint64_t spare = most == UINT64_MAX && slack > reserved ? (slack - reserved) / granule * granule : 0;
    pool_moving how = {.spare = spare, .most = most, .patient = patient};
    pool_look look = grow(self, want, cheap, attempt, slot);
    if (self->pages.reserved > reserved)
        forget_moves(self);
    if (look == POOL_NOTHING && !attempt->host)
        look = move(self, want, 0, &how, attempt, slot);
    if (look == POOL_NOTHING && !attempt->host)
        look = move(self, want, self->frame_bytes, &how, attempt, slot);
    return look == POOL_NOTHING && attempt->host ? POOL_FAILED : look;
}
