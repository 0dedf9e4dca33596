/* Building batches of checks, launching them on the guard's stream, reading their findings. */
#include "resources/guard/internal.h"

#include "core/base/cancel.h"
#include "core/base/error.h"
#include "core/blocks/uses.h"
#include "core/streams/stream_map.h"
#include "core/streams/timeline.h"

#include <string.h>
#include <time.h>

enum {
    LAUNCH_AT = 24,             /* freed blocks that make a batch, while others are in flight */
    KERNEL_PIECE = 1 << 20,     /* bytes, for the kernel */
    COPY_PIECE = 128 << 10,     /* bytes, copied */
    PARTS = GUARD_BATCH_PIECES, /* most findings of a batch */
};

/* ---- pieces ---- */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

void guard_checked_ranges(const guard *self, const strata_block *shown, const strata_block *below,
                          checked_range extents[GUARD_RANGES])
{
    CUdeviceptr end = shown->address + shown->requested, outer_end = below->address + below->bytes;
    /* Also covers the padding up to the next multiple of 256. */
    size_t back = self->zone + (size_t)(-end & 255);
    extents[0] = (checked_range){
        .address = shown->address - self->zone,
        .bytes = self->zone,
        .expected = RED_ZONE_BYTE,
        .kind = STRATA_GUARD_UNDERRUN,
    };
    extents[1] = (checked_range){
        .address = end,
        .bytes = smaller(back, (size_t)(outer_end - end)),
        .expected = RED_ZONE_BYTE,
        .kind = STRATA_GUARD_OVERRUN,
    };
    extents[2] = (checked_range){
        .address = shown->address,
        .bytes = shown->requested,
        .expected = FREED_BYTE,
        .kind = STRATA_GUARD_WRITE_AFTER_FREE,
    };
}

/* How many ranges are checked when the block leaves; zone_ranges: before. */
static unsigned all_ranges(const guard *self, const guarded *block)
{
    return block->unfilled ? 0 : self->options.no_poison ? RED_ZONES : GUARD_RANGES;
}

static unsigned zone_ranges(const guarded *block)
{
    return block->unfilled ? 0 : RED_ZONES;
}

static bool has_room(const guard *self, const guard_batch *batch, size_t bytes)
{
    return batch->piece_count < GUARD_BATCH_PIECES &&
           (self->kernel.module || batch->copied + bytes <= GUARD_COPY_BYTES);
}

static void add_piece(guard_batch *batch, const checked_range *extent, uint64_t offset, size_t bytes,
                      const strata_block *shown)
{
    batch->origins[batch->piece_count] = (piece_origin){
        .subject = (uint8_t)batch->subject_count,
        .kind = extent->kind,
        .offset = (int64_t)(extent->address + offset - shown->address),
    };
    batch->pieces[batch->piece_count++] = (strata_guard_piece){
        .address = extent->address + offset,
        .bytes = bytes,
        .expected = extent->expected,
    };
    batch->copied += bytes;
}

/* Adds pieces of the first `extents` ranges from byte *taken on, which moves, while there is room. True: all was added.
 */
static bool add_pieces(const guard *self, guard_batch *batch, const guarded *block, unsigned extents, uint64_t *taken)
{
    checked_range all[GUARD_RANGES];
    guard_checked_ranges(self, &block->shown, &block->below, all);
    size_t most = self->kernel.module ? KERNEL_PIECE : COPY_PIECE;
    uint64_t start = 0;
    for (unsigned i = 0; i < extents; start += all[i++].bytes) {
        while (*taken < start + all[i].bytes) {
            uint64_t offset = *taken - start;
            size_t bytes = smaller(most, all[i].bytes - (size_t)offset);
            if (!has_room(self, batch, bytes))
                return false;
            add_piece(batch, &all[i], offset, bytes, &block->shown);
            *taken += bytes;
        }
    }
    return true;
}

/* Enters a block with pieces in the batch. The lock is held. */
static void add_subject(guard *self, guard_batch *batch, guarded *block, strata_access access)
{
    const strata_table *table = strata_resource_table(&self->resource);
    bool live = block->list == GUARD_LIVE;
    if (live) /* a layer above may hold it, or have released it */
        block->below.id.generation = strata_table_living(table, block->shown.id.slot);
    batch->subjects[batch->subject_count++] = (guard_subject){
        .shown = block->shown,
        .below = block->below,
        .allocated_at = block->allocated_at,
        .freed_at = block->freed_at,
        .access = access,
        .live = live,
        .unfilled = block->unfilled,
    };
    block->batches++;
    block->busy += live;
}

/* Adds as much of a block as fits; with `whole`, all or nothing. True: all was added. Also adds blocks without pieces:
 * only blocks that were in a batch leave. */
static bool add_block(guard *self, guard_batch *batch, guarded *block, unsigned extents, uint64_t *taken, bool whole,
                      strata_access access)
{
    uint32_t pieces = batch->piece_count;
    size_t copied = batch->copied;
    uint64_t before = *taken;
    if (batch->subject_count == GUARD_BATCH_PIECES)
        return false;
    bool all = add_pieces(self, batch, block, extents, taken);
    if (!all && whole) {
        batch->piece_count = pieces;
        batch->copied = copied;
        *taken = before;
    }
    if (batch->piece_count > pieces || !extents)
        add_subject(self, batch, block, access);
    return all;
}

/* ---- building: the lock is held ---- */

static guard_batch *take_free_batch(guard *self)
{
    for (size_t i = 0; i < GUARD_BATCHES; i++) {
        guard_batch *batch = &self->batches[i];
        if (batch->state != GUARD_BATCH_FREE)
            continue;
        batch->state = GUARD_BATCH_TAKEN;
        batch->number = ++self->batch_number;
        batch->piece_count = batch->subject_count = 0;
        batch->copied = 0;
        return batch;
    }
    return NULL;
}

static void move(guard *self, guarded *block, guard_list_name list)
{
    guard_list_remove(self, block);
    guard_list_append(self, block, list);
}

static bool is_over(const guard *self)
{
    bool none = self->options.no_quarantine;
    uint64_t bytes = none ? 0 : atomic_load_explicit(&self->most_bytes, memory_order_relaxed);
    uint64_t blocks = none ? 0 : atomic_load_explicit(&self->most_blocks, memory_order_relaxed);
    return atomic_load_explicit(&self->held_bytes, memory_order_relaxed) > bytes ||
           atomic_load_explicit(&self->held_blocks, memory_order_relaxed) > blocks;
}

static uint32_t oldest_in_quarantine(const guard *self)
{
    uint32_t held = self->lists[GUARD_HELD].first;
    return held ? held : self->lists[GUARD_FREED].first;
}

/* Lets blocks over the limits leave, and those with free numbers up to `until`. */
static void move_to_leaving(guard *self, uint64_t until)
{
    for (uint32_t slot; (slot = oldest_in_quarantine(self));) {
        guarded *block = guard_bytes(self, slot);
        if (block->number > until && !is_over(self))
            return;
        move(self, block, GUARD_LEAVING);
    }
}

/* The first leaving block from `slot` on with a free number up to `until`; 0: none. The list is not sorted: blocks that
 * could not be checked were appended again. */
static uint32_t next_leaving(const guard *self, uint32_t slot, uint64_t until)
{
    while (slot && guard_bytes(self, slot)->number > until)
        slot = guard_bytes(self, slot)->next;
    return slot;
}

static void add_leaving(guard *self, guard_batch *batch, uint64_t until)
{
    uint32_t next = self->lists[GUARD_LEAVING].first;
    for (uint32_t slot; (slot = next_leaving(self, next, until));) {
        guarded *block = guard_bytes(self, slot);
        next = block->next;
        if (!add_block(self, batch, block, all_ranges(self, block), &block->taken, false, STRATA_ACCESS_WRITE))
            return;
        guard_list_remove(self, block);
        block->leaves = true;
    }
}

static void add_freed(guard *self, guard_batch *batch)
{
    for (uint32_t slot; (slot = self->lists[GUARD_FREED].first);) {
        guarded *block = guard_bytes(self, slot);
        uint64_t taken = 0;
        if (!add_block(self, batch, block, zone_ranges(block), &taken, true, STRATA_ACCESS_READ))
            return;
        move(self, block, GUARD_HELD);
    }
}

/* How far a check of everything is in the quarantine: at a block, or its successor if it has left. */
typedef struct quarantine_position {
    uint64_t number; /* of the block's free */
    uint64_t taken;
} quarantine_position;

static void add_held(guard *self, guard_batch *batch, quarantine_position *at, uint64_t until)
{
    for (uint32_t slot; (slot = self->lists[GUARD_FREED].first) && guard_bytes(self, slot)->number <= until;)
        move(self, guard_bytes(self, slot), GUARD_HELD);
    for (uint32_t slot = self->lists[GUARD_HELD].first; slot; slot = guard_bytes(self, slot)->next) {
        guarded *block = guard_bytes(self, slot);
        if (block->number < at->number)
            continue;
        if (block->number > until)
            return;
        if (block->number > at->number)
            *at = (quarantine_position){.number = block->number};
        if (!add_block(self, batch, block, all_ranges(self, block), &at->taken, false, STRATA_ACCESS_READ))
            return;
        *at = (quarantine_position){.number = block->number + 1};
    }
}

/* Adds live blocks that this round has not covered yet; they are first in the list. */
static void add_live(guard *self, guard_batch *batch, uint64_t round)
{
    for (uint32_t slot; (slot = self->lists[GUARD_LIVE].first);) {
        guarded *block = guard_bytes(self, slot);
        uint64_t taken = 0;
        if (block->round >= round || !add_block(self, batch, block, RED_ZONES, &taken, true, STRATA_ACCESS_READ))
            return;
        block->round = round;
        move(self, block, GUARD_LIVE);
    }
}

/* ---- launching ---- */

static strata_status submit(guard *self, guard_batch *batch)
{
    strata_call_scope scope;
    if (!batch->piece_count)
        return STRATA_SUCCESS;
    strata_status status =
        strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const char *call = "cuLaunchKernel";
    CUresult result = CUDA_SUCCESS;
    if (self->kernel.module) {
        result = strata_guard_kernel_check(&self->kernel, batch->pieces, batch->piece_count, batch->verdicts,
                                           self->checking);
    } else {
        call = "cuMemcpyDtoHAsync";
        unsigned char *to = batch->copies;
        for (uint32_t i = 0; i < batch->piece_count && result == CUDA_SUCCESS; to += batch->pieces[i++].bytes)
            result = strata_cu.MemcpyDtoHAsync(to, batch->pieces[i].address, batch->pieces[i].bytes, self->checking);
    }
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, call, "checking the red zones of %u blocks", batch->subject_count);
}

/* Lets the guard's stream wait for a live block's uses, as the table has them. */
static strata_status wait_for_uses(guard *self, const guard_subject *subject)
{
    strata_stream_ref stream;
    strata_status status = strata_stream_resolve(self->device, self->checking, &stream);
    return status == STRATA_SUCCESS
               ? strata_uses_wait(strata_resource_table(&self->resource), &subject->below, &stream, subject->access)
               : status;
}

/* Whether the owners below track uses in the table, as the library's do. */
static bool tracks_in_table(const guard *self)
{
    const strata_resource *from = &self->resource;
    for (const strata_resource *layer = from; layer; layer = strata_resource_next_below(from, layer))
        if (!layer->upstream && !layer->ops->branch && layer->ops->prepare_use != strata_block_prepare_use)
            return false;
    return true;
}

/* As wait_for_uses, where an owner tracks them by itself. */
static strata_status ask_for_uses(guard *self, const guard_subject *subject)
{
    strata_resource *below = self->resource.upstream;
    strata_status status = below->ops->prepare_use(below, &subject->below, self->checking, subject->access);
    if (status == STRATA_SUCCESS)
        below->ops->finish_use(below, &subject->below, self->checking, STRATA_ACCESS_NONE);
    return status;
}

/* Makes the guard's stream follow a live block's uses. The block does not leave meanwhile, but a layer above may take
 * it from its user, or give it back, which changes its identity, and which a prepared use would refuse. */
static strata_status follow_live(guard *self, guard_subject *subject)
{
    const bool in_table = tracks_in_table(self);
    strata_status status = STRATA_SUCCESS;
    for (bool again = true; again;) {
        strata_error_suppress_begin();
        status = in_table ? wait_for_uses(self, subject) : ask_for_uses(self, subject);
        const uint64_t now = strata_table_living(strata_resource_table(&self->resource), subject->below.id.slot);
        again = status != STRATA_SUCCESS && now != subject->below.id.generation;
        subject->below.id.generation = now;
        strata_error_suppress_end(status != STRATA_SUCCESS && !again);
    }
    return status;
}

static strata_status prepare_subject(guard *self, guard_subject *subject)
{
    strata_resource *below = self->resource.upstream;
    if (subject->unfilled)
        return STRATA_SUCCESS;
    return subject->live ? follow_live(self, subject)
                         : below->ops->prepare_use(below, &subject->below, self->checking, subject->access);
}

/* Records the use of a live block, which was not prepared. */
static void record_live(guard *self, const guard_subject *subject)
{
    strata_resource *below = self->resource.upstream;
    strata_block view = subject->below;
    view.id.generation = strata_table_living(strata_resource_table(&self->resource), view.id.slot);
    below->ops->record_use(below, &view, self->checking, subject->access);
}

/* Finishes the uses of a batch's blocks. They are not recorded: no block leaves before its batches were read, and
 * nothing else writes the checked bytes. A half-failed submission is recorded: no thread will wait for it. */
static void finish_subjects(guard *self, const guard_batch *batch, uint32_t first, bool half_submitted)
{
    strata_resource *below = self->resource.upstream;
    for (uint32_t i = first; i < batch->subject_count; i++) {
        const guard_subject *subject = &batch->subjects[i];
        strata_access access = half_submitted ? subject->access : STRATA_ACCESS_NONE;
        if (subject->live && half_submitted)
            record_live(self, subject);
        else if (!subject->live && !subject->unfilled)
            below->ops->finish_use(below, &subject->below, self->checking, access);
    }
}

/* Records the point at which the batch is complete, with an event. */
static void record_point(guard *self, guard_batch *batch)
{
    batch->point = strata_timeline_now(self->timeline);
    batch->covered = strata_timeline_close_epoch(batch->point) == STRATA_SUCCESS;
}

/* Prepares the blocks, the newest free first: its wait covers earlier frees on the stream. Then submits the batch. */
static strata_status prepare_and_submit(guard *self, guard_batch *batch)
{
    strata_status status = STRATA_SUCCESS;
    uint32_t first = batch->subject_count;
    while (first > 0 && status == STRATA_SUCCESS) {
        status = prepare_subject(self, &batch->subjects[first - 1]);
        first -= status == STRATA_SUCCESS;
    }
    bool ready = status == STRATA_SUCCESS;
    if (ready)
        status = submit(self, batch);
    finish_subjects(self, batch, first, ready && status != STRATA_SUCCESS);
    if (status == STRATA_SUCCESS)
        record_point(self, batch);
    return status;
}

/* Lets a leaving block be checked again; after GUARD_TRIES it leaves unchecked. The lock is held. */
static void try_again(guard *self, guarded *block)
{
    guard_list_remove(self, block);
    block->leaves = ++block->tries >= GUARD_TRIES;
    block->taken = 0;
    if (block->leaves)
        atomic_fetch_add_explicit(&self->unchecked, 1, memory_order_relaxed);
    else
        guard_list_append(self, block, GUARD_LEAVING);
}

static strata_status finish_batch(guard *self, guard_batch *batch);

/* Launches a batch. After a failure its blocks are in no batch. */
static strata_status launch(guard *self, guard_batch *batch)
{
    strata_status status = strata_check_device_now(self->device);
    if (status == STRATA_SUCCESS)
        status = prepare_and_submit(self, batch);
    uint32_t zones = 0;
    for (uint32_t i = 0; i < batch->piece_count; i++)
        zones += batch->origins[i].kind != STRATA_GUARD_WRITE_AFTER_FREE;
    strata_lock_take(&self->lock);
    for (uint32_t i = 0; i < batch->subject_count; i++) {
        guarded *block = guard_bytes(self, batch->subjects[i].shown.id.slot);
        block->busy -= batch->subjects[i].live;
        if (status != STRATA_SUCCESS && batch->subjects[i].access == STRATA_ACCESS_WRITE)
            try_again(self, block);
    }
    if (status == STRATA_SUCCESS) {
        batch->state = GUARD_BATCH_LAUNCHED;
        atomic_fetch_add_explicit(&self->launched, 1, memory_order_relaxed);
    }
    strata_lock_release(&self->lock);
    if (status != STRATA_SUCCESS) {
        batch->piece_count = 0; /* nothing to read */
        finish_batch(self, batch);
        return status;
    }
    atomic_fetch_add_explicit(&self->checks, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->zones_checked, zones, memory_order_relaxed);
    return STRATA_SUCCESS;
}

/* ---- reading ---- */

/* Checks a copied piece, as the kernel does in place. */
static void check_copy(const unsigned char *at, const strata_guard_piece *piece, strata_guard_verdict *verdict)
{
    *verdict = (strata_guard_verdict){.first = UINT64_MAX};
    for (uint64_t i = 0; i < piece->bytes; i++)
        if (at[i] != (unsigned char)piece->expected)
            verdict->first = verdict->wrong++ ? verdict->first : i;
    if (verdict->wrong)
        memcpy(verdict->found, at + verdict->first, smaller(piece->bytes - verdict->first, STRATA_GUARD_SHOWN));
}

static void check_copies(guard_batch *batch)
{
    const unsigned char *at = batch->copies;
    for (uint32_t i = 0; i < batch->piece_count; at += batch->pieces[i++].bytes)
        check_copy(at, &batch->pieces[i], &batch->verdicts[i]);
}

static strata_guard_finding make_finding(const guard_batch *batch, uint32_t piece)
{
    const piece_origin *place = &batch->origins[piece];
    const guard_subject *subject = &batch->subjects[place->subject];
    const strata_guard_verdict *verdict = &batch->verdicts[piece];
    strata_guard_finding finding = {
        .size = sizeof finding,
        .kind = (strata_guard_kind)place->kind,
        .block = subject->shown,
        .freed = !subject->live,
        .offset = place->offset + (int64_t)verdict->first,
        .changed = verdict->wrong,
        .expected = (uint8_t)batch->pieces[piece].expected,
        .shown = (uint8_t)smaller(batch->pieces[piece].bytes - verdict->first, STRATA_GUARD_SHOWN),
        .allocated_at = subject->allocated_at,
        .freed_at = subject->freed_at,
    };
    memcpy(finding.found, verdict->found, finding.shown);
    return finding;
}

/* Collects a batch's findings: one for all changes in one range of a block. */
static size_t collect(const guard_batch *batch, strata_guard_finding findings[PARTS])
{
    size_t count = 0;
    for (uint32_t i = 0; i < batch->piece_count; i++) {
        if (!batch->verdicts[i].wrong)
            continue;
        const strata_block *block = &batch->subjects[batch->origins[i].subject].shown;
        strata_guard_finding *last = count ? &findings[count - 1] : NULL;
        if (last && last->kind == (strata_guard_kind)batch->origins[i].kind && last->block.id.slot == block->id.slot)
            last->changed += batch->verdicts[i].wrong;
        else
            findings[count++] = make_finding(batch, i);
    }
    return count;
}

/* Records findings; drops those that were reported before, and returns how many are left. */
static size_t record_new(guard *self, strata_guard_finding *findings, size_t count)
{
    size_t kept = 0;
    strata_lock_take(&self->lock);
    for (size_t i = 0; i < count; i++) {
        guarded *block = guard_bytes(self, findings[i].block.id.slot);
        uint8_t bit = (uint8_t)(1u << findings[i].kind);
        if (!(block->reported & bit))
            findings[kept++] = findings[i];
        block->reported |= bit;
    }
    strata_lock_release(&self->lock);
    findings_record(&self->log, findings, kept);
    return kept;
}

/* Frees a block below, or returns it to the quarantine. Its uses are complete: the stream waits for nothing. */
static strata_status give_back(guard *self, guarded *block)
{
    strata_resource *below = self->resource.upstream;
    const strata_block view = block->below;
    size_t bytes = guard_whole_bytes(self, block);
    strata_status status = below->ops->deallocate(below, &view, self->leaving);
    strata_lock_take(&self->lock);
    if (status == STRATA_SUCCESS) {
        atomic_fetch_sub_explicit(&self->quarantined_bytes, bytes, memory_order_relaxed);
        atomic_fetch_sub_explicit(&self->quarantined_blocks, 1, memory_order_relaxed);
    } else {
        block->leaves = false;
        block->taken = 0;
        block->tries = 0;
        block->number = ++self->free_number; /* keeps the list sorted */
        guard_list_append(self, block, GUARD_FREED);
    }
    strata_lock_release(&self->lock);
    return status;
}

/* Reads a complete batch, owned by the calling thread: reports findings, frees leaving blocks. */
static strata_status finish_batch(guard *self, guard_batch *batch)
{
    strata_guard_finding findings[PARTS];
    uint32_t leaving[GUARD_BATCH_PIECES], leaving_count = 0;
    if (!self->kernel.module)
        check_copies(batch);
    size_t count = collect(batch, findings);
    if (count)
        count = record_new(self, findings, count);
    strata_lock_take(&self->lock);
    for (uint32_t i = 0; i < batch->subject_count; i++) {
        guarded *block = guard_bytes(self, batch->subjects[i].shown.id.slot);
        if (--block->batches == 0 && block->leaves)
            leaving[leaving_count++] = batch->subjects[i].shown.id.slot;
    }
    batch->state = GUARD_BATCH_FREE;
    strata_lock_release(&self->lock);
    findings_report(&self->log, findings, count);
    strata_status status = STRATA_SUCCESS;
    for (uint32_t i = 0; i < leaving_count; i++) {
        strata_status given = give_back(self, guard_bytes(self, leaving[i]));
        status = status == STRATA_SUCCESS ? given : status;
    }
    return status;
}

/* The oldest batch in flight up to `number`; NULL: none. *others: threads work on some. The lock is held. */
static guard_batch *oldest_launched(guard *self, uint64_t number, bool *others)
{
    guard_batch *oldest = NULL;
    *others = false;
    for (size_t i = 0; i < GUARD_BATCHES; i++) {
        guard_batch *batch = &self->batches[i];
        if (batch->state == GUARD_BATCH_FREE || batch->number > number)
            continue;
        if (batch->state == GUARD_BATCH_TAKEN)
            *others = true;
        else if (!oldest || batch->number < oldest->number)
            oldest = batch;
    }
    return oldest;
}

static guard_batch *take_launched(guard *self)
{
    bool others;
    strata_lock_take(&self->lock);
    guard_batch *batch = oldest_launched(self, UINT64_MAX, &others);
    if (batch) {
        batch->state = GUARD_BATCH_TAKEN;
        atomic_fetch_sub_explicit(&self->launched, 1, memory_order_relaxed);
    }
    strata_lock_release(&self->lock);
    return batch;
}

static void put_back(guard *self, guard_batch *batch)
{
    strata_lock_take(&self->lock);
    batch->state = GUARD_BATCH_LAUNCHED;
    atomic_fetch_add_explicit(&self->launched, 1, memory_order_relaxed);
    strata_lock_release(&self->lock);
}

/* Reads complete batches, the oldest first, at most GUARD_BATCHES: other threads may launch new ones for ever. Never
 * waits. A reset of the context has ended the pinned memory that would be read. */
static strata_status read_done(guard *self)
{
    strata_status status = strata_check_device_now(self->device);
    guard_batch *batch;
    for (unsigned i = 0; status != STRATA_ERROR_DEVICE_RESET && i < GUARD_BATCHES && (batch = take_launched(self));
         i++) {
        if (!batch->covered)
            batch->covered = strata_timeline_close_epoch(batch->point) == STRATA_SUCCESS;
        strata_point_query(batch->point); /* updates what is known to be complete */
        if (!strata_point_seen_complete(batch->point)) {
            put_back(self, batch);
            break;
        }
        strata_status one = finish_batch(self, batch);
        status = status == STRATA_SUCCESS ? one : status;
    }
    return status;
}

/* Waits for batches up to `number` and reads them. */
static strata_status wait_up_to(guard *self, uint64_t number)
{
    strata_status status = STRATA_SUCCESS;
    unsigned spins = 0;
    for (;;) {
        bool others;
        strata_lock_take(&self->lock);
        const guard_batch *batch = oldest_launched(self, number, &others);
        strata_point point = batch ? batch->point : 0;
        strata_lock_release(&self->lock);
        if (!batch && !others)
            return status;
        if (!batch) {
            strata_backoff(&spins);
            continue;
        }
        strata_status waited = strata_point_synchronize_for(self->device, point);
        if (waited != STRATA_SUCCESS)
            return waited;
        waited = read_done(self);
        if (waited == STRATA_ERROR_DEVICE_RESET)
            return waited;
        status = status == STRATA_SUCCESS ? waited : status;
    }
}

static uint64_t last_batch(guard *self)
{
    strata_lock_take(&self->lock);
    uint64_t number = self->batch_number;
    strata_lock_release(&self->lock);
    return number;
}

static uint64_t last_free(guard *self)
{
    strata_lock_take(&self->lock);
    uint64_t number = self->free_number;
    strata_lock_release(&self->lock);
    return number;
}

strata_status guard_wait_for_batches(guard *self, const guarded *block)
{
    strata_lock_take(&self->lock);
    bool any = block->batches != 0;
    uint64_t number = self->batch_number;
    strata_lock_release(&self->lock);
    return any ? wait_up_to(self, number) : STRATA_SUCCESS;
}

/* ---- calls ---- */

/* Builds a batch of what is due; NULL: nothing is, or no batch is free. */
static guard_batch *build(guard *self)
{
    guard_batch *batch = NULL;
    strata_lock_take(&self->lock);
    move_to_leaving(self, 0);
    uint32_t freed = self->lists[GUARD_FREED].count;
    bool idle = atomic_load_explicit(&self->launched, memory_order_relaxed) == 0;
    bool due = self->lists[GUARD_LEAVING].count || freed >= LAUNCH_AT || (freed && idle);
    if (due && (batch = take_free_batch(self))) {
        add_leaving(self, batch, UINT64_MAX);
        add_freed(self, batch);
    }
    strata_lock_release(&self->lock);
    return batch;
}

void guard_poll(guard *self)
{
    if (atomic_load_explicit(&self->launched, memory_order_relaxed) && read_done(self) == STRATA_ERROR_DEVICE_RESET)
        return;
    if (!atomic_load_explicit(&self->quarantined_blocks, memory_order_relaxed))
        return;
    guard_batch *batch;
    for (unsigned i = 0; i < GUARD_BATCHES && (batch = build(self)); i++)
        if (launch(self, batch) != STRATA_SUCCESS)
            return; /* the error was raised; the next call tries again */
}

/* Bytes of freed blocks that left the quarantine for their last check. */
static uint64_t unread_bytes(const guard *self)
{
    uint64_t all = atomic_load_explicit(&self->quarantined_bytes, memory_order_relaxed);
    uint64_t held = atomic_load_explicit(&self->held_bytes, memory_order_relaxed);
    return all > held ? all - held : 0;
}

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static __attribute__((noinline)) void let_checks_come_back(guard *self, uint64_t most)
{
    enum { PATIENCE_NS = 50000000, NAP_NS = 100000 };
    uint64_t unread = unread_bytes(self);
    int64_t until = now_ns() + PATIENCE_NS;
    while (unread > most && now_ns() < until) {
        const int cancel = strata_cancel_forbid(); /* layers above have begun the request */
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        strata_cancel_restore(cancel);
        guard_poll(self);
        uint64_t now = unread_bytes(self);
        if (now < unread)
            until = now_ns() + PATIENCE_NS;
        unread = now;
    }
}

void guard_keep_unread_few(guard *self, uint64_t least)
{
    uint64_t most = atomic_load_explicit(&self->most_bytes, memory_order_relaxed);
    if (most < least)
        most = least;
    if (__builtin_expect(unread_bytes(self) > most, 0))
        let_checks_come_back(self, most);
}

/* Builds a batch of leaving blocks freed up to `until`; NULL: none is left (*due: or no batch is free). */
static guard_batch *build_flush(guard *self, uint64_t until, bool *due)
{
    guard_batch *batch = NULL;
    strata_lock_take(&self->lock);
    move_to_leaving(self, until);
    *due = next_leaving(self, self->lists[GUARD_LEAVING].first, until) != 0;
    if (*due && (batch = take_free_batch(self)))
        add_leaving(self, batch, until);
    strata_lock_release(&self->lock);
    return batch;
}

strata_status guard_flush(guard *self)
{
    strata_status status = strata_check_device_now(self->device); /* a batch is built in pinned memory */
    uint64_t until = last_free(self);
    for (bool due = true; due && status == STRATA_SUCCESS;) {
        guard_batch *batch = build_flush(self, until, &due);
        if (batch)
            status = launch(self, batch);
        else if (due)
            status = wait_up_to(self, last_batch(self));
    }
    strata_status waited = wait_up_to(self, last_batch(self));
    return status == STRATA_SUCCESS ? waited : status;
}

/* Builds a batch of what a check of everything has not covered; NULL: all is covered (*more: or no batch is free). */
static guard_batch *build_check(guard *self, quarantine_position *at, uint64_t until, uint64_t round, bool *more)
{
    strata_lock_take(&self->lock);
    guard_batch *batch = take_free_batch(self);
    *more = true;
    if (batch) {
        add_leaving(self, batch, until); /* freed, and in no batch yet if all were taken */
        add_held(self, batch, at, until);
        add_live(self, batch, round);
        *more = batch->subject_count != 0;
    }
    if (!*more) {
        batch->state = GUARD_BATCH_FREE;
        batch = NULL;
    }
    strata_lock_release(&self->lock);
    return batch;
}

strata_status guard_check_everything(guard *self)
{
    quarantine_position at = {0};
    strata_status status = strata_check_device_now(self->device); /* a batch is built in pinned memory */
    strata_lock_take(&self->lock);
    uint64_t round = ++self->round, until = self->free_number;
    strata_lock_release(&self->lock);
    for (bool more = true; more && status == STRATA_SUCCESS;) {
        guard_batch *batch = build_check(self, &at, until, round, &more);
        if (batch)
            status = launch(self, batch);
        else if (more)
            status = wait_up_to(self, last_batch(self));
    }
    strata_status waited = wait_up_to(self, last_batch(self));
    return status == STRATA_SUCCESS ? waited : status;
}
