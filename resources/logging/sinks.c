/* Sinks without a file. */
#include "core/base/host_memory.h"
#include "core/base/lock.h"
#include "resources/logging/sink.h"

typedef struct memory_sink {
    log_sink sink;
    strata_lock lock;
    uint64_t capacity;
    uint64_t first, end;         /* records removed, and added; guarded by lock */
    strata_log_record records[]; /* guarded by lock */
} memory_sink;

static size_t memory_write(log_sink *sink, const strata_log_record *records, size_t count)
{
    memory_sink *self = (memory_sink *)sink;
    uint64_t overwritten = 0;
    strata_lock_take(&self->lock);
    for (size_t i = 0; i < count; i++)
        self->records[self->end++ % self->capacity] = records[i];
    if (self->end - self->first > self->capacity) {
        overwritten = self->end - self->first - self->capacity;
        self->first += overwritten;
    }
    strata_lock_release(&self->lock);
    atomic_fetch_add_explicit(&sink->lost, overwritten, memory_order_relaxed);
    return count;
}

static void memory_close(log_sink *sink, bool built)
{
    (void)built;
    strata_lock_destroy(&((memory_sink *)sink)->lock);
    strata_host_free(sink);
}

static const log_sink_ops memory_ops = {.write = memory_write, .close = memory_close};

log_sink *log_sink_memory(uint64_t capacity)
{
    memory_sink *self = strata_host_zalloc(sizeof *self + capacity * sizeof(strata_log_record));
    if (!self)
        return NULL;
    self->sink.ops = &memory_ops;
    self->capacity = capacity;
    strata_lock_init(&self->lock, STRATA_RANK_LOG);
    return &self->sink;
}

bool log_sink_is_memory(const log_sink *sink)
{
    return sink->ops == &memory_ops;
}

size_t log_sink_take(log_sink *sink, strata_log_record *records, size_t capacity)
{
    memory_sink *self = (memory_sink *)sink;
    size_t count = 0;
    strata_lock_take(&self->lock);
    while (count < capacity && self->first != self->end)
        records[count++] = self->records[self->first++ % self->capacity];
    strata_lock_release(&self->lock);
    return count;
}

/* ---- callbacks ---- */

typedef struct call_sink {
    log_sink sink;
    strata_log_sink_callback callback; /* NULL: nowhere */
    void *data;
} call_sink;

static size_t call_write(log_sink *sink, const strata_log_record *records, size_t count)
{
    const call_sink *self = (const call_sink *)sink;
    if (self->callback)
        self->callback(records, count, self->data);
    return count;
}

static void call_close(log_sink *sink, bool built)
{
    (void)built;
    strata_host_free(sink);
}

static const log_sink_ops call_ops = {.write = call_write, .close = call_close};

log_sink *log_sink_call(strata_log_sink_callback callback, void *data)
{
    call_sink *self = strata_host_zalloc(sizeof *self);
    if (!self)
        return NULL;
    self->sink.ops = &call_ops;
    self->callback = callback;
    self->data = data;
    return &self->sink;
}
