/* logging: the operations. A call costs a timestamp and a line of the thread's ring.
 *
 * An allocation takes its line after the call, a free before it (ring.h). A completion comes under the owner's lock, so
 * it only writes a line; inside a call the line gets the thread's next stamp. */
#include "core/base/host_memory.h"
#include "core/stack/calls.h"
#include "core/stack/default_operations.h"
#include "core/streams/known_streams.h"
#include "resources/logging/lines.h"

/* ---- lines ---- */

static inline strata_entry *entry_of(const strata_resource *resource, strata_block_id id)
{
    return strata_table_lookup(strata_resource_table(resource), id);
}

static inline block_facts *facts_in(const strata_resource *resource, strata_entry *entry)
{
    return (block_facts *)(void *)((char *)entry + resource->block_offset);
}

/* A stream's id in the log; 0 for an unknown one, which only the driver can identify. */
static inline uint32_t stream_id(const logging *self, CUstream stream)
{
    const strata_timeline *timeline = strata_known_timeline(self->device, stream);
    return timeline
               ? log_stream_number(timeline->number, atomic_load_explicit(&timeline->incarnation, memory_order_relaxed))
               : 0;
}

/* As stream_id, for the thread's frees: keeps the last answer. */
static inline uint32_t freeing_stream_id(const logging *self, log_ring *ring, CUstream stream)
{
    const uint64_t changes = atomic_load_explicit(&strata_known_changes, memory_order_acquire);
    if (__builtin_expect(ring->stream != stream || ring->changes != changes, 0)) {
        ring->stream_id = stream_id(self, stream);
        ring->stream = stream;
        ring->changes = changes;
    }
    return ring->stream_id;
}

/* As log_where, for any slot: larger ones come from invalid ids. */
static inline uint64_t where(strata_tag tag, uint32_t slot, strata_access access, size_t alignment)
{
    return log_where(tag, slot < LOG_SLOT_LIMIT ? slot : LOG_SLOT_LIMIT, access, alignment);
}

static inline uint32_t units_of(uint64_t ticks)
{
    uint64_t units = ticks >> LOG_DURATION_SHIFT;
    return units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;
}

/* ---- calls ---- */

typedef struct recorded_call {
    log_ring *ring; /* NULL: not recorded */
    uint64_t begun; /* stamp; with durations, or of a free */
    uint8_t before; /* the ring's state; 0: not nested */
} recorded_call;

static inline bool enter(logging *self, recorded_call *call)
{
    call->ring = NULL;
    if (!atomic_load_explicit(&self->enabled, memory_order_relaxed))
        return false;
    call->ring = log_ring_self(&self->writer.rings);
    if (__builtin_expect(!call->ring, 0))
        return false;
    call->begun = self->duration ? strata_timestamp_now() : 0;
    call->before = call->ring->state;
    return true;
}

/* Begins a recorded call. Not of a free, whose line comes first. */
static inline bool begin(logging *self, recorded_call *call)
{
    if (!enter(self, call))
        return false;
    if (__builtin_expect(!call->before, 1))
        call->ring->unstamped = call->ring->stored;
    call->ring->state = call->before | LOG_INSIDE;
    return true;
}

/* Stamps the completions that have no stamp yet. */
static __attribute__((noinline)) void stamp_reports(log_ring *ring, uint64_t end, uint64_t stamp)
{
    for (uint64_t i = ring->unstamped; i != end; i++) {
        log_line *line = &ring->lines[i & ring->mask];
        if ((line->what >> LOG_WHAT_KIND & 0xf) != LOG_KIND_CONTROL)
            line->stamp = stamp;
    }
    ring->unstamped = end;
}

/* Publishes a call's lines, unless an enclosing free's line is incomplete. */
static inline void publish(const recorded_call *call)
{
    if (__builtin_expect(!(call->before & LOG_FREE_OPEN), 1))
        log_ring_publish(call->ring);
}

/* Ends a recorded call. Returns its stamped line; NULL if the ring is full. */
static inline log_line *end(logging *self, const recorded_call *call)
{
    log_ring *ring = call->ring;
    const uint64_t reported = ring->stored;
    ring->state = call->before;
    log_line *line = log_ring_line(&self->writer.rings, ring, true);
    if (__builtin_expect(!line && reported == ring->unstamped, 0))
        return NULL;
    uint64_t stamp = strata_timestamp_now();
    if (__builtin_expect(reported != ring->unstamped, 0))
        stamp_reports(ring, reported, stamp);
    if (__builtin_expect(!line, 0)) {
        publish(call);
        return NULL;
    }
    ring->unstamped = ring->stored;
    line->stamp = stamp;
    line->duration = self->duration ? units_of(stamp - call->begun) : 0;
    return line;
}

static inline unsigned duration_flag(const logging *self)
{
    return self->duration ? STRATA_LOG_FLAG_DURATION : 0;
}

/* ---- operations ---- */

static inline void store_facts(const logging *self, strata_entry *entry, const strata_block *block,
                               const strata_request *request)
{
    if (__builtin_expect(!self->stores_facts, 1))
        return;
    block_facts *facts = facts_in(&self->resource, entry);
    atomic_store_explicit(&facts->address, block->address, memory_order_relaxed);
    atomic_store_explicit(&facts->requested, request->bytes, memory_order_relaxed);
}

static inline void record_made(logging *self, const recorded_call *call, const strata_request *request,
                               strata_entry *entry, const strata_block *made)
{
    if (__builtin_expect(entry != NULL, 1))
        store_facts(self, entry, made, request);
    log_line *line = end(self, call);
    if (__builtin_expect(!line, 0))
        return;
    line->stream = (uint64_t)(uintptr_t)request->stream;
    line->stream_id = entry ? log_alloc_stream_id(entry) : 0;
    line->address = made->address;
    line->requested = request->bytes;
    line->bytes = made->bytes;
    line->what = log_what(STRATA_LOG_ALLOCATE, STRATA_SUCCESS, duration_flag(self), made->id.generation);
    line->where = where(request->tag, made->id.slot, STRATA_ACCESS_NONE, request->alignment);
    publish(call);
}

static __attribute__((cold)) void record_refused(logging *self, const recorded_call *call,
                                                 const strata_request *request, strata_status status)
{
    log_line *line = end(self, call);
    if (!line)
        return;
    line->stream = (uint64_t)(uintptr_t)request->stream;
    line->stream_id = stream_id(self, request->stream);
    line->address = line->bytes = 0;
    line->requested = request->bytes;
    line->what = log_what(STRATA_LOG_ALLOCATE, status, duration_flag(self), 0);
    line->where = where(request->tag, 0, STRATA_ACCESS_NONE, request->alignment);
    publish(call);
}

static void logging_request_refused(strata_resource *resource, const strata_request *request, strata_status status)
{
    logging *self = (logging *)resource;
    recorded_call call;
    if (begin(self, &call))
        record_refused(self, &call, request, status);
}

static __attribute__((noinline)) strata_made finish_allocation(logging *self, const recorded_call *call,
                                                               const strata_request *request, strata_block *out,
                                                               strata_made made)
{
    if (made.status == STRATA_SUCCESS)
        record_made(self, call, request, made.entry, out);
    else
        record_refused(self, call, request, made.status);
    return made;
}

/* Records an allocation that was not nested, without durations. */
static __attribute__((noinline)) strata_made finish_fast_allocation(logging *self, log_ring *ring,
                                                                    const strata_request *request, strata_block *out,
                                                                    strata_made made)
{
    return finish_allocation(self, &(recorded_call){.ring = ring}, request, out, made);
}

static __attribute__((noinline)) strata_made allocate_slow(logging *self, const strata_request *request,
                                                           strata_block *out)
{
    strata_resource *upstream = self->resource.upstream;
    recorded_call call;
    if (!begin(self, &call))
        return upstream->ops->allocate_own(upstream, request, out);
    return finish_allocation(self, &call, request, out, upstream->ops->allocate_own(upstream, request, out));
}

/* Records an allocation that was not nested, reported nothing and has room for its line. */
static inline __attribute__((always_inline)) strata_made record_fast(log_ring *ring, uint64_t stored, size_t requested,
                                                                     CUstream stream, strata_tag tag, size_t alignment,
                                                                     const strata_block *block, strata_entry *entry)
{
    const uint64_t stamp = strata_timestamp_simple();
    ring->state = 0;
    log_line *line = &ring->lines[stored & ring->mask];
    log_fill_made(line, stamp, block, requested, stream, tag, alignment, log_alloc_stream_id(entry));
    ring->stored = stored + 1;
    log_ring_publish_line(ring, line);
    return (strata_made){STRATA_SUCCESS, entry};
}

/* Fast path: a fifth fewer instructions. */
static inline __attribute__((always_inline)) strata_made allocate(logging *self, const strata_request *request,
                                                                  strata_block *out)
{
    strata_resource *upstream = self->resource.upstream;
    log_ring *ring = logging_fast_ring(self);
    if (__builtin_expect(!ring, 0))
        return allocate_slow(self, request, out);
    ring->unstamped = ring->stored;
    ring->state = LOG_INSIDE;
    const strata_made made = upstream->ops->allocate_own(upstream, request, out);
    const uint64_t stored = ring->stored;
    const bool plain =
        made.status == STRATA_SUCCESS && made.entry && stored == ring->unstamped && stored != ring->limit;
    if (__builtin_expect(!plain, 0))
        return finish_fast_allocation(self, ring, request, out, made);
    store_facts(self, made.entry, out, request);
    return record_fast(ring, stored, request->bytes, request->stream, request->tag, request->alignment, out,
                       made.entry);
}

/* As finish_fast_allocation, of a plain request. */
static __attribute__((noinline)) strata_made finish_plain_allocation(logging *self, log_ring *ring, size_t bytes,
                                                                     CUstream stream, strata_block *out,
                                                                     strata_made made)
{
    const strata_request request = {.bytes = bytes, .stream = stream};
    return finish_allocation(self, &(recorded_call){.ring = ring}, &request, out, made);
}

static __attribute__((noinline)) strata_made allocate_plain_slow(logging *self, size_t bytes, CUstream stream,
                                                                 strata_block *out)
{
    strata_resource *upstream = self->resource.upstream;
    recorded_call call;
    if (!begin(self, &call))
        return upstream->ops->allocate_plain(upstream, bytes, stream, out);
    const strata_request request = {.bytes = bytes, .stream = stream};
    return finish_allocation(self, &call, &request, out, upstream->ops->allocate_plain(upstream, bytes, stream, out));
}

static strata_made logging_allocate_plain(strata_resource *resource, size_t bytes, CUstream stream, strata_block *out)
{
    logging *self = (logging *)resource;
    strata_resource *upstream = resource->upstream;
    log_ring *ring = logging_fast_ring(self);
    if (__builtin_expect(!ring, 0))
        return allocate_plain_slow(self, bytes, stream, out);
    ring->unstamped = ring->stored;
    ring->state = LOG_INSIDE;
    const strata_made made = upstream->ops->allocate_plain(upstream, bytes, stream, out);
    const uint64_t stored = ring->stored;
    if (__builtin_expect(!made.entry || stored != ring->unstamped || stored == ring->limit || self->stores_facts, 0))
        return finish_plain_allocation(self, ring, bytes, stream, out, made);
    return record_fast(ring, stored, bytes, stream, 0, 0, out, made.entry);
}

static strata_status logging_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    return allocate((logging *)resource, request, out).status;
}

static strata_made logging_allocate_own(strata_resource *resource, const strata_request *request, strata_block *out)
{
    return allocate((logging *)resource, request, out);
}

/* A block's place, with its allocation's tag. After a failed call the entry may be another block's: use the caller's
 * tag. */
static inline uint64_t where_is(const logging *self, const strata_block *block, strata_access access)
{
    const strata_entry *entry = entry_of(&self->resource, block->id);
    if (__builtin_expect(!entry, 0))
        return where(block->tag, block->id.slot, access, 0);
    return log_where(atomic_load_explicit(&entry->tag, memory_order_relaxed), block->id.slot, access, 0);
}

static __attribute__((noinline)) strata_status deallocate_slow(logging *self, const strata_block *block,
                                                               CUstream stream)
{
    strata_resource *upstream = self->resource.upstream;
    recorded_call call;
    if (!enter(self, &call))
        return upstream->ops->deallocate(upstream, block, stream);
    log_ring *ring = call.ring;
    log_freeing around = {0};
    if (__builtin_expect(call.before, 0))
        around = ring->freeing;
    const uint64_t reported = ring->stored;
    log_line *line = log_ring_line(&self->writer.rings, ring, true);
    if (__builtin_expect(line != NULL, 1))
        log_fill_free(line, self->duration ? call.begun : strata_timestamp_now(), block, stream,
                      where_is(self, block, STRATA_ACCESS_NONE), freeing_stream_id(self, ring, stream));
    if (__builtin_expect(call.before && line, 0))
        stamp_reports(ring, reported, line->stamp);
    if (__builtin_expect(!call.before || line, 1))
        ring->unstamped = ring->stored;
    ring->state = call.before | LOG_INSIDE | (line ? LOG_FREE_OPEN : 0);
    const uint64_t generation = block->id.generation;
    ring->freeing.generation = generation;
    ring->freeing.slot = block->id.slot;
    const strata_status status = upstream->ops->deallocate(upstream, block, stream);
    const bool freed = log_is_freed(&ring->freeing);
    ring->freeing.generation = 0;
    if (__builtin_expect(call.before, 0))
        ring->freeing = around;
    ring->state = call.before;
    const bool reports = ring->stored != ring->unstamped;
    uint64_t after = self->duration || reports ? strata_timestamp_now() : 0;
    if (__builtin_expect(reports, 0))
        stamp_reports(ring, ring->stored, after);
    if (__builtin_expect(line != NULL, 1)) {
        const bool good = status == STRATA_SUCCESS;
        if (__builtin_expect(!good, 0)) /* the entry may be another block's */
            line->where = where(block->tag, block->id.slot, STRATA_ACCESS_NONE, 0);
        const unsigned flags = duration_flag(self) | (good && freed ? STRATA_LOG_FLAG_COMPLETE : 0);
        line->what = log_what(STRATA_LOG_DEALLOCATE, status, flags, generation);
        if (self->duration)
            line->duration = units_of(after - line->stamp);
    }
    publish(&call);
    return status;
}

static __attribute__((noinline)) strata_status finish_free(log_ring *ring, log_line *line, const strata_block *block,
                                                           strata_status status, bool complete)
{
    const strata_status result = status == STRATA_FREE_COMPLETE ? STRATA_SUCCESS : status;
    if (result != STRATA_SUCCESS) /* the entry may be another block's */
        line->where = where(block->tag, block->id.slot, STRATA_ACCESS_NONE, 0);
    if (ring->stored != ring->unstamped)
        stamp_reports(ring, ring->stored, strata_timestamp_now());
    const unsigned flags = result == STRATA_SUCCESS && complete ? STRATA_LOG_FLAG_COMPLETE : 0;
    line->what = log_what(STRATA_LOG_DEALLOCATE, result, flags, block->id.generation);
    log_ring_publish(ring);
    return status;
}

/* Writes a free's line, but for its result, before the call: stamps ascend. */
static inline log_line *begin_free(log_ring *ring, const strata_block *block, CUstream stream, uint64_t place,
                                   uint32_t stream_number)
{
    log_line *line = &ring->lines[ring->stored & ring->mask];
    ring->unstamped = ++ring->stored;
    log_fill_free(line, strata_timestamp_simple(), block, stream, place, stream_number);
    ring->state = LOG_INSIDE | LOG_FREE_OPEN;
    ring->freeing = (log_freeing){block->id.generation, block->id.slot};
    return line;
}

static inline strata_status end_free(log_ring *ring, log_line *line, const strata_block *block, strata_status status)
{
    const bool complete = status == STRATA_FREE_COMPLETE || log_is_freed(&ring->freeing);
    const bool good = status == STRATA_FREE_COMPLETE || status == STRATA_SUCCESS;
    ring->freeing.generation = 0;
    ring->state = 0;
    if (__builtin_expect(!good || ring->stored != ring->unstamped, 0))
        return finish_free(ring, line, block, status, complete);
    line->what =
        log_what(STRATA_LOG_DEALLOCATE, STRATA_SUCCESS, complete ? STRATA_LOG_FLAG_COMPLETE : 0, block->id.generation);
    log_ring_publish_line(ring, line);
    return status;
}

static strata_status logging_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    logging *self = (logging *)resource;
    log_ring *ring = logging_freeing_ring(self);
    if (__builtin_expect(!ring, 0))
        return deallocate_slow(self, block, stream);
    log_line *line = begin_free(ring, block, stream, where_is(self, block, STRATA_ACCESS_NONE),
                                freeing_stream_id(self, ring, stream));
    return end_free(ring, line, block, resource->upstream->ops->deallocate(resource->upstream, block, stream));
}

static strata_status logging_deallocate_own(strata_resource *resource, const strata_block *block, strata_entry *entry,
                                            strata_timeline *timeline)
{
    logging *self = (logging *)resource;
    log_ring *ring = logging_freeing_ring(self);
    if (__builtin_expect(!ring, 0))
        return atomic_load_explicit(&self->enabled, memory_order_relaxed)
                   ? strata_deallocate_plainly(resource, block, entry, timeline)
                   : resource->upstream->ops->deallocate_own(resource->upstream, block, entry, timeline);
    const strata_tag tag = atomic_load_explicit(&entry->tag, memory_order_relaxed);
    const uint32_t incarnation = atomic_load_explicit(&timeline->incarnation, memory_order_relaxed);
    log_line *line = begin_free(ring, block, block->stream, log_where(tag, block->id.slot, STRATA_ACCESS_NONE, 0),
                                log_stream_number(timeline->number, incarnation));
    return end_free(ring, line, block,
                    resource->upstream->ops->deallocate_own(resource->upstream, block, entry, timeline));
}

static inline void record_use(logging *self, const recorded_call *call, strata_log_kind kind, const strata_block *block,
                              CUstream stream, strata_access access, strata_status status)
{
    const uint64_t place =
        status == STRATA_SUCCESS ? where_is(self, block, access) : where(block->tag, block->id.slot, access, 0);
    log_line *line = end(self, call);
    if (!line)
        return;
    line->stream = (uint64_t)(uintptr_t)stream;
    line->stream_id = stream_id(self, stream);
    line->address = block->address;
    line->requested = block->requested;
    line->bytes = block->bytes;
    line->what = log_what(kind, status, duration_flag(self), block->id.generation);
    line->where = place;
    publish(call);
}

static strata_status logging_prepare(strata_resource *resource, const strata_block *block, CUstream stream,
                                     strata_access access)
{
    logging *self = (logging *)resource;
    strata_resource *upstream = resource->upstream;
    recorded_call call;
    if (!begin(self, &call))
        return upstream->ops->prepare_use(upstream, block, stream, access);
    strata_status status = upstream->ops->prepare_use(upstream, block, stream, access);
    record_use(self, &call, STRATA_LOG_PREPARE_USE, block, stream, access, status);
    return status;
}

static strata_status logging_finish(strata_resource *resource, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    logging *self = (logging *)resource;
    strata_resource *upstream = resource->upstream;
    recorded_call call;
    if (!begin(self, &call))
        return upstream->ops->finish_use(upstream, block, stream, access);
    strata_status status = upstream->ops->finish_use(upstream, block, stream, access);
    record_use(self, &call, STRATA_LOG_FINISH_USE, block, stream, access, status);
    return status;
}

static strata_status logging_record(strata_resource *resource, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    logging *self = (logging *)resource;
    strata_resource *upstream = resource->upstream;
    recorded_call call;
    if (!begin(self, &call))
        return upstream->ops->record_use(upstream, block, stream, access);
    strata_status status = upstream->ops->record_use(upstream, block, stream, access);
    record_use(self, &call, STRATA_LOG_RECORD_USE, block, stream, access, status);
    return status;
}

static void record_whole(logging *self, const recorded_call *call, strata_log_kind kind, CUstream stream,
                         uint64_t asked, uint64_t bytes, strata_status status)
{
    log_line *line = end(self, call);
    if (!line)
        return;
    line->stream = (uint64_t)(uintptr_t)stream;
    line->stream_id = kind == STRATA_LOG_SYNCHRONIZE ? stream_id(self, stream) : 0;
    line->address = 0;
    line->requested = asked;
    line->bytes = bytes;
    line->what = log_what(kind, status, duration_flag(self), 0);
    line->where = 0;
    publish(call);
}

/* Begins a recorded reap or trim. */
static bool begin_whole(logging *self, recorded_call *call)
{
    return (self->internal || !strata_call_is_internal()) && begin(self, call);
}

static strata_status logging_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    logging *self = (logging *)resource;
    strata_resource *upstream = resource->upstream;
    recorded_call call;
    if (!begin_whole(self, &call))
        return upstream->ops->reap(upstream, mode, bytes);
    strata_status status = upstream->ops->reap(upstream, mode, bytes);
    record_whole(self, &call, STRATA_LOG_REAP, NULL, (uint64_t)mode, *bytes, status);
    return status;
}

static strata_status logging_trim(strata_resource *resource, size_t keep_bytes, size_t *bytes)
{
    logging *self = (logging *)resource;
    strata_resource *upstream = resource->upstream;
    recorded_call call;
    if (!begin_whole(self, &call))
        return upstream->ops->trim(upstream, keep_bytes, bytes);
    strata_status status = upstream->ops->trim(upstream, keep_bytes, bytes);
    record_whole(self, &call, STRATA_LOG_TRIM, NULL, keep_bytes, *bytes, status);
    return status;
}

static strata_status logging_synchronize(strata_resource *resource, CUstream stream)
{
    logging *self = (logging *)resource;
    strata_resource *upstream = resource->upstream;
    recorded_call call;
    if (!begin(self, &call))
        return upstream->ops->synchronize(upstream, stream);
    strata_status status = upstream->ops->synchronize(upstream, stream);
    record_whole(self, &call, STRATA_LOG_SYNCHRONIZE, stream, 0, 0, status);
    return status;
}

static void logging_graph_event(strata_resource *resource, const strata_graph_event *event)
{
    static const strata_log_kind kinds[STRATA_GRAPH_EVENT_KINDS] = {
        [STRATA_GRAPH_EVENT_CAPTURE] = STRATA_LOG_CAPTURE,
        [STRATA_GRAPH_EVENT_LAUNCH] = STRATA_LOG_LAUNCH,
        [STRATA_GRAPH_EVENT_UPLOAD] = STRATA_LOG_UPLOAD,
        [STRATA_GRAPH_EVENT_UPDATE] = STRATA_LOG_UPDATE,
    };
    logging *self = (logging *)resource;
    recorded_call call;
    log_line *line = begin(self, &call) ? end(self, &call) : NULL;
    if (!line)
        return;
    line->stream = (uint64_t)(uintptr_t)event->stream;
    line->stream_id = stream_id(self, event->stream);
    line->duration = 0;
    line->address = 0;
    line->requested = event->nodes;
    line->bytes = event->bytes;
    line->what = log_what(kinds[event->kind], event->status, 0, 0);
    line->where = log_where(event->name, 0, STRATA_ACCESS_NONE, 0);
    publish(&call);
}

typedef struct reported_block {
    uint64_t address, requested;
} reported_block;

static reported_block about(const logging *self, strata_entry *entry)
{
    if (!entry)
        return (reported_block){0};
    if (!self->stores_facts)
        return (reported_block){atomic_load_explicit(&entry->address, memory_order_acquire),
                                atomic_load_explicit(&entry->requested, memory_order_acquire)};
    const block_facts *facts = facts_in(&self->resource, entry);
    return (reported_block){atomic_load_explicit(&facts->address, memory_order_relaxed),
                            atomic_load_explicit(&facts->requested, memory_order_relaxed)};
}

/* Records a completion whose free has returned, or completes in parts. */
static __attribute__((noinline)) void report(logging *self, const strata_completion *completion)
{
    log_ring *ring = log_ring_self(&self->writer.rings);
    if (!ring)
        return;
    strata_entry *entry = entry_of(&self->resource, completion->id);
    const reported_block block = about(self, entry);
    log_line *line = log_ring_line(&self->writer.rings, ring, false);
    if (!line)
        return;
    bool reused = completion->kind == STRATA_COMPLETION_REUSED;
    *line = (log_line){
        .stamp = ring->state ? 0 : strata_timestamp_now(),
        .address = block.address,
        .requested = block.requested,
        .bytes = completion->bytes,
        .what = log_what(reused ? STRATA_LOG_REUSED : STRATA_LOG_COMPLETED, STRATA_SUCCESS,
                         completion->last ? STRATA_LOG_FLAG_LAST : 0, completion->id.generation),
        .where = where(entry ? atomic_load_explicit(&entry->tag, memory_order_relaxed) : 0, completion->id.slot,
                       STRATA_ACCESS_NONE, 0),
    };
    if (!ring->state)
        log_ring_publish(ring);
}

/* Records a completion; one before the free returns only sets the free's flag. */
static inline void note_completion(logging *self, log_ring *ring, const strata_completion *completion)
{
    if (__builtin_expect(ring && ring->freeing.generation == completion->id.generation &&
                             ring->freeing.slot == completion->id.slot,
                         1)) {
        if (__builtin_expect(completion->last, 1)) {
            ring->freeing.slot |= LOG_FREED;
            return;
        }
        ring->freeing.generation = 0;
    }
    report(self, completion);
}

/* As note_completion, where the thread has no ring yet, or the layer no number for them. */
static __attribute__((noinline)) void completed_slow(logging *self, const strata_completion *completion)
{
    note_completion(self, log_ring_of(&self->writer.rings, strata_thread_current), completion);
}

/* The owner's lock may be held. */
static void logging_completed(strata_resource *resource, const strata_completion *completion)
{
    logging *self = (logging *)resource;
    if (!atomic_load_explicit(&self->enabled, memory_order_relaxed))
        return;
    log_ring *ring = log_ring_fast(&self->writer.rings);
    if (__builtin_expect(!ring, 0))
        completed_slow(self, completion);
    else
        note_completion(self, ring, completion);
}

/* ---- making and ending ---- */

static strata_status logging_begin(strata_resource *resource)
{
    ((logging *)resource)->stores_facts = !strata_resource_sees_table(resource);
    return STRATA_SUCCESS;
}

void logging_destroy(strata_resource *resource)
{
    logging *self = (logging *)resource;
    log_writer_stop(&self->writer);
    strata_host_free(self);
}

#define LOGGING_OPS                                                                                                  \
    .size = sizeof(strata_resource_ops), .block_bytes = sizeof(block_facts),                                         \
    .optional_block_bytes = sizeof(block_facts), .transparent = true, .name = "logging", .begin = logging_begin,     \
    .allocate = logging_allocate, .allocate_own = logging_allocate_own, .allocate_plain = logging_allocate_plain,    \
    .deallocate = logging_deallocate, .deallocate_own = logging_deallocate_own, .reap = logging_reap,                \
    .trim = logging_trim, .completed = logging_completed, .destroy = logging_destroy, .values = logging_values,      \
    .value_count = LOGGING_VALUES, .get_value = logging_get, .set_value = logging_set, .describe = logging_describe, \
    .synchronize = logging_synchronize, .request_refused = logging_request_refused, .graph_event = logging_graph_event

const strata_resource_ops logging_ops_without_uses = {LOGGING_OPS};

const strata_resource_ops logging_ops_with_uses = {
    LOGGING_OPS,
    .prepare_use = logging_prepare,
    .finish_use = logging_finish,
    .record_use = logging_record,
};
