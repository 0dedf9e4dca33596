/* Chunks: allocated below, given back, searched by address.
 *
 * The chunk stream is internal and never waits for users' work: a user's stream may be gone when a chunk is freed. The
 * first user of a new chunk waits for it once. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/blocks/uses.h"
#include "core/stack/calls.h"
#include "core/streams/internal_streams.h"
#include "core/streams/known_streams.h"
#include "resources/binning/internal.h"

#include <string.h>

static strata_resource *below(const binning *self)
{
    return self->resource.upstream;
}

static strata_device *device_of(const binning *self)
{
    return self->resource.stack->device;
}

static strata_status make_stream(binning *self)
{
    CUstream stream;
    strata_status status = strata_internal_stream_create(device_of(self), false, "a stream for chunks", &stream);
    if (status != STRATA_SUCCESS)
        return status;
    self->timeline = strata_known_timeline(device_of(self), stream);
    atomic_store_explicit(&self->stream, stream, memory_order_release);
    return STRATA_SUCCESS;
}

static strata_status chunk_stream(binning *self, CUstream *out)
{
    strata_status status = STRATA_SUCCESS;
    *out = atomic_load_explicit(&self->stream, memory_order_acquire);
    if (*out)
        return STRATA_SUCCESS;
    strata_lock_take(&self->making);
    if (!atomic_load_explicit(&self->stream, memory_order_relaxed))
        status = make_stream(self);
    *out = atomic_load_explicit(&self->stream, memory_order_relaxed);
    strata_lock_release(&self->making);
    return status;
}

/* ---- the index ---- */

/* Where a chunk at `address` is or would be. The index is locked. */
static size_t position_in_index(const binning *self, CUdeviceptr address)
{
    size_t low = 0, high = self->indexed;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->index[middle]->block.address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The index is locked. */
static bool make_room_in_index(binning *self)
{
    if (self->indexed < self->index_room)
        return true;
    size_t room = self->index_room ? 2 * self->index_room : 16;
    bin_chunk **larger = strata_host_zalloc(room * sizeof *larger);
    if (!larger)
        return false;
    if (self->indexed)
        memcpy(larger, self->index, self->indexed * sizeof *larger);
    strata_host_free(self->index);
    self->index = larger;
    self->index_room = room;
    return true;
}

static bool enter_index(binning *self, bin_chunk *chunk)
{
    strata_spin_take(&self->index_lock);
    bool room = make_room_in_index(self);
    if (room) {
        size_t at = position_in_index(self, chunk->block.address);
        memmove(&self->index[at + 1], &self->index[at], (self->indexed++ - at) * sizeof *self->index);
        self->index[at] = chunk;
    }
    strata_spin_release(&self->index_lock);
    return room;
}

static void leave_index(binning *self, const bin_chunk *chunk)
{
    strata_spin_take(&self->index_lock);
    size_t at = position_in_index(self, chunk->block.address);
    if (at < self->indexed && self->index[at] == chunk)
        memmove(&self->index[at], &self->index[at + 1], (--self->indexed - at) * sizeof *self->index);
    strata_spin_release(&self->index_lock);
}

/* The index is locked. */
static const bin_chunk *chunk_at(const binning *self, CUdeviceptr address)
{
    size_t at = position_in_index(self, address);
    if (at < self->indexed && self->index[at]->block.address == address)
        return self->index[at];
    const bin_chunk *chunk = at ? self->index[at - 1] : NULL;
    return chunk && address - chunk->block.address < chunk->block.bytes ? chunk : NULL;
}

/* Describes a slot's live block, which may end meanwhile. */
static bool describe(const binning *self, const bin_slot *slot, strata_block *out)
{
    strata_table *table = strata_resource_table(&self->resource);
    uint32_t entry_slot = atomic_load_explicit(&slot->entry_slot, memory_order_acquire);
    return entry_slot && strata_entry_describe(table, entry_slot, out) &&
           strata_table_state(table, out->id) == STRATA_BLOCK_LIVE && out->address == bin_address(slot);
}

bool bins_find(binning *self, CUdeviceptr address, bool *of_chunk, strata_block *out)
{
    bool found = false;
    strata_spin_take(&self->index_lock);
    const bin_chunk *chunk = chunk_at(self, address);
    if (chunk) {
        size_t which = (size_t)(address - chunk->block.address) / chunk->bin->size;
        found =
            which < chunk->count && describe(self, &chunk->slots[which], out) && address - out->address < out->bytes;
    }
    strata_spin_release(&self->index_lock);
    *of_chunk = chunk != NULL;
    if (!found)
        *out = (strata_block){0};
    return found;
}

/* ---- giving back ---- */

static void count_chunk(binning *self, const bin_chunk *chunk, bool comes)
{
    uint64_t slots = (uint64_t)chunk->count * chunk->bin->size;
    atomic_fetch_add_explicit(&self->taken_bytes, comes ? chunk->taken : -chunk->taken, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->slot_bytes, comes ? slots : -slots, memory_order_relaxed);
    atomic_fetch_add_explicit(&chunk->bin->chunks, comes ? 1 : -1u, memory_order_relaxed);
}

/* Frees an unused chunk that is in no list; after a failure it is in its bin's. */
static strata_status give_back(binning *self, bin_chunk *chunk)
{
    CUstream stream = atomic_load_explicit(&self->stream, memory_order_acquire);
    leave_index(self, chunk);
    strata_status status = below(self)->ops->deallocate(below(self), &chunk->block, stream);
    if (status == STRATA_SUCCESS) {
        count_chunk(self, chunk, false);
        strata_host_free(chunk);
        return STRATA_SUCCESS;
    }
    if (!chunk->orphan && !enter_index(self, chunk)) { /* its blocks could not be found */
        chunk->orphan = true;
        chunk->clean = NULL;
        chunk->clean_count = 0;
    }
    bin_enter_chunk(chunk->bin, chunk);
    return status;
}

/* Waits for the chunk stream and reaps below: layers there may hold freed blocks back until REAP_WAIT. */
static strata_status wait_for_chunk_stream(binning *self, strata_reap_mode mode)
{
    size_t bytes;
    strata_status status = strata_point_synchronize(strata_timeline_now(self->timeline));
    return status == STRATA_SUCCESS ? strata_reap_internally(below(self), mode, &bytes) : status;
}

strata_status bins_give_back(binning *self, size_t enough, size_t *given)
{
    strata_status status = STRATA_SUCCESS;
    *given = 0;
    for (size_t i = 0; i < self->bin_count && status == STRATA_SUCCESS; i++) {
        bin_chunk *chunk;
        while (*given < enough && status == STRATA_SUCCESS && (chunk = bin_take_empty_chunk(self->bins[i]))) {
            size_t bytes = chunk->block.bytes;
            status = give_back(self, chunk);
            if (status != STRATA_SUCCESS)
                break;
            *given += bytes;
            atomic_fetch_add_explicit(&self->given_back, 1, memory_order_relaxed);
        }
    }
    return *given && status == STRATA_SUCCESS ? wait_for_chunk_stream(self, STRATA_REAP_FINISHED) : status;
}

void bins_make_room(binning *self, bin_effort effort, size_t enough, size_t *given)
{
    for (size_t i = 0, bytes = 0; i < self->bin_count; i++) {
        if (effort == BIN_WAIT)
            bin_wait(self, self->bins[i], &bytes);
        else
            bin_poll(self, self->bins[i]);
    }
    bins_give_back(self, enough, given);
}

/* Polls, then waits. After a reset the chunks are the owner's below to give, and their stream has ended. */
uint64_t binning_give_back(strata_resource *resource, uint64_t bytes, bool may_wait)
{
    binning *self = (binning *)resource;
    size_t given, more = 0;
    if (strata_device_is_lost(device_of(self)))
        return 0;
    bins_make_room(self, BIN_POLL, bytes, &given);
    if (given < bytes && may_wait)
        bins_make_room(self, BIN_WAIT, bytes - given, &more);
    return given + more;
}

static void destroy_stream(binning *self)
{
    CUstream stream = atomic_load_explicit(&self->stream, memory_order_relaxed);
    bool gone = !stream;
    for (int i = 0; i < BIN_TRIES_TO_GIVE_BACK && !gone; i++)
        strata_internal_stream_destroy(device_of(self), stream, &gone);
}

void bins_close(binning *self)
{
    size_t bytes = 0;
    strata_status status = STRATA_ERROR_BUSY;
    strata_error_suppress_begin();
    for (int i = 0; i < BIN_TRIES_TO_GIVE_BACK && status != STRATA_SUCCESS; i++) {
        status = bins_give_back(self, SIZE_MAX, &bytes);
        if (status == STRATA_SUCCESS && atomic_load_explicit(&self->stream, memory_order_relaxed))
            status =
                wait_for_chunk_stream(self, STRATA_REAP_WAIT); /* layers below complete before they are destroyed */
    }
    destroy_stream(self);
    strata_error_suppress_end(status != STRATA_SUCCESS);
}

/* ---- growing ---- */

static bin_chunk *make_chunk(bin *self, uint32_t slots)
{
    bin_chunk *chunk = strata_host_zalloc(sizeof *chunk + slots * sizeof chunk->slots[0]);
    if (!chunk)
        return NULL;
    chunk->bin = self;
    chunk->count = slots;
    for (uint32_t i = 0; i < slots; i++)
        chunk->slots[i].chunk = chunk;
    return chunk;
}

/* Makes a block the chunk's memory, in quarantine under another id: no other layer sees it. */
static strata_status hold(binning *self, bin_chunk *chunk, const strata_block *block)
{
    strata_table *table = strata_resource_table(&self->resource);
    strata_entry *entry = strata_table_lookup(table, block->id);
    strata_block_id held;
    strata_status status = strata_block_quarantine(&self->resource, block, block, &held);
    if (status == STRATA_ERROR_UNSUPPORTED) { /* the entry's last generation */
        held = block->id;
        status = STRATA_SUCCESS;
    }
    if (status != STRATA_SUCCESS)
        return status;
    chunk->block = *block;
    chunk->block.id = held;
    chunk->taken = atomic_load_explicit(&entry->bytes, memory_order_relaxed);
    bin_bytes *bytes = bin_bytes_in(&self->resource, entry);
    atomic_store_explicit(&bytes->where, chunk, memory_order_release);
    return STRATA_SUCCESS;
}

/* Makes all slots clean but the first, which the caller gets. */
static void chain_slots(bin_chunk *chunk)
{
    for (uint32_t i = chunk->count; --i > 0;) {
        chunk->slots[i].older = chunk->clean;
        chunk->clean = &chunk->slots[i];
    }
    chunk->clean_count = chunk->count - 1;
}

/* Frees a chunk that cannot be used; after a failure it is an orphan. */
static void drop_chunk(binning *self, bin_chunk *chunk)
{
    strata_error_suppress_begin();
    chunk->orphan = true;
    give_back(self, chunk);
    strata_error_suppress_end(false);
}

/* Frees a block that cannot be a chunk: it was found by address, and used or freed. */
static __attribute__((cold)) void give_block_back(binning *self, const strata_block *block)
{
    strata_error_suppress_begin();
    below(self)->ops->deallocate(below(self), block, block->stream);
    strata_error_suppress_end(false);
}

static strata_status take_chunk(binning *self, bin *of, size_t bytes, uint32_t slots, bin_slot **out)
{
    strata_request request = {.bytes = bytes, .alignment = BIN_GRANULE, .tag = self->tag};
    strata_block block;
    strata_status status = chunk_stream(self, &request.stream);
    if (status != STRATA_SUCCESS)
        return status;
    bin_chunk *chunk = make_chunk(of, slots);
    if (!chunk)
        return strata_fail_host_memory("a chunk");
    status = below(self)->ops->allocate(below(self), &request, &block);
    if (status == STRATA_SUCCESS && (status = hold(self, chunk, &block)) != STRATA_SUCCESS)
        give_block_back(self, &block);
    if (status != STRATA_SUCCESS) {
        strata_host_free(chunk);
        return status;
    }
    count_chunk(self, chunk, true);
    atomic_store_explicit(&chunk->point, strata_timeline_now(self->timeline), memory_order_relaxed);
    if (!enter_index(self, chunk)) {
        drop_chunk(self, chunk);
        return strata_fail_host_memory("the address of a chunk");
    }
    atomic_fetch_add_explicit(&self->grown, 1, memory_order_relaxed);
    chain_slots(chunk);
    *out = &chunk->slots[0];
    bin_enter_chunk(of, chunk);
    return STRATA_SUCCESS;
}

bool bin_wants_room(const binning *self, strata_status status, const strata_error *why, size_t bytes)
{
    if (status != STRATA_ERROR_OUT_OF_MEMORY && status != STRATA_ERROR_OUT_OF_BUDGET)
        return false;
    const bool limited = why->status == status && why->limit;
    return bytes <= (limited ? why->limit : self->resource.stack->device->info.total_bytes);
}

/* Takes a chunk. Without room below, gives chunks back and tries again, then for a single slot, unless a slot is clean
 * by then. */
static strata_status try_to_take(binning *self, bin *of, bin_slot **out)
{
    strata_status status = take_chunk(self, of, of->chunk_bytes, of->slots, out);
    for (bin_effort effort = BIN_POLL; effort < BIN_EFFORTS; effort++) {
        const strata_error why = *strata_error_suppressed();
        size_t given;
        if (!bin_wants_room(self, status, &why, of->size))
            break;
        bins_make_room(self, effort, SIZE_MAX, &given);
        if ((*out = bin_take_clean(of)))
            return STRATA_SUCCESS;
        if (given)
            status = take_chunk(self, of, of->chunk_bytes, of->slots, out);
        else if (why.status == status)
            strata_error_raise_again(&why); /* over later errors */
        if (of->slots > 1 && (given || effort == BIN_POLL) &&
            bin_wants_room(self, status, strata_error_suppressed(), of->size))
            status = take_chunk(self, of, of->size, 1, out);
    }
    return status;
}

static __attribute__((cold)) strata_status refuse(const binning *self, const bin *of, const strata_request *request,
                                                  strata_status status, const strata_error *why)
{
    const strata_error kept = *why;
    if (kept.status != status) /* no message */
        return status;
    if (status != STRATA_ERROR_OUT_OF_MEMORY && status != STRATA_ERROR_OUT_OF_BUDGET)
        return strata_error_raise_again(&kept);
    strata_error *error = strata_error_begin(kept.status);
    *error = kept;
    error->requested = request->bytes;
    error->tag = request->tag;
    return strata_error_raise(error, "%s: no free block of %s (tag \"%.60s\"), and no new chunk: %.400s",
                              self->resource.ops->name, strata_size_text(of->size).text, strata_tag_name(request->tag),
                              kept.message);
}

strata_status bin_grow(binning *self, bin *of, const strata_request *request, bin_slot **out)
{
    strata_error_suppress_begin();
    strata_status status = try_to_take(self, of, out);
    const strata_error why = *strata_error_suppressed();
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS ? status : refuse(self, of, request, status, &why);
}
