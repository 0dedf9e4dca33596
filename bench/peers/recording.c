/* Allocations and frees of a trace; uses, waits and syncs are left out. */
#include "contest.h"

#include "tools/trace/trace.h"

#include <stdlib.h>
#include <string.h>

enum { SHARED_PERCENT = 30, QUICK_STEPS = 400, QUICK_GAP_NS = 20000, STREAMS_LIMIT = 256 };

void recording_name(recording *self, const char *path)
{
    *self = (recording){.path = contest_require(strdup(path))};
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    snprintf(self->name, sizeof self->name, "%.*s", (int)strcspn(name, "."), name);
}

/* Whether a block is freed on another stream: the same blocks in every run. */
static bool is_shared(uint32_t block)
{
    return (block * UINT32_C(2654435761) >> 16) % 100 < SHARED_PERCENT;
}

typedef struct builder {
    recording *into;
    const trace *from;
    uint32_t *slot_of; /* by block */
    uint32_t *free_slots;
    uint32_t free_count;
    uint64_t live;
} builder;

static void add_allocation(builder *self, const trace_row *row)
{
    recording *into = self->into;
    const uint32_t slot = self->free_count ? self->free_slots[--self->free_count] : into->slots++;
    const uint64_t bytes = self->from->blocks[row->block].bytes;
    self->slot_of[row->block] = slot;
    into->steps[into->count] = (peer_step){.bytes = bytes, .slot = slot, .stream = (uint16_t)row->stream};
    into->shared_steps[into->count] = into->steps[into->count];
    self->live += bytes;
    if (self->live > into->peak_live)
        into->peak_live = self->live;
}

static void add_free(builder *self, const trace_row *row)
{
    recording *into = self->into;
    const trace_block *block = &self->from->blocks[row->block];
    const uint32_t slot = self->slot_of[row->block], own = self->from->rows[block->alloc_row].stream;
    peer_step step = {.slot = slot, .stream = (uint16_t)row->stream, .elsewhere = row->stream != own};
    into->steps[into->count] = step;
    if (is_shared(row->block)) {
        step.stream = (uint16_t)((own + 1 + row->block % (into->shared_streams - 1)) % into->shared_streams);
        step.elsewhere = 1;
    }
    into->shared_steps[into->count] = step;
    self->free_slots[self->free_count++] = slot;
    self->live -= block->bytes;
}

static void add_row(builder *self, const trace_row *row)
{
    if (row->op != TRACE_ALLOC && row->op != TRACE_FREE)
        return;
    if (self->from->blocks[row->block].bytes == 0)
        return; /* a request for zero bytes */
    if (row->op == TRACE_ALLOC)
        add_allocation(self, row);
    else
        add_free(self, row);
    self->into->times_ns[self->into->count++] = row->time_us * 1000;
}

static void close_gaps(recording *self)
{
    for (uint32_t i = 0; i < self->count; i++)
        self->times_ns[i] = (uint64_t)i * QUICK_GAP_NS;
}

static void build(recording *into, const trace *from, bool quick)
{
    builder self = {.into = into, .from = from};
    into->streams = from->stream_count;
    into->shared_streams = into->streams < 2 ? 2 : into->streams;
    into->steps = contest_require(calloc(from->row_count + 1, sizeof *into->steps));
    into->shared_steps = contest_require(calloc(from->row_count + 1, sizeof *into->shared_steps));
    into->times_ns = contest_require(calloc(from->row_count + 1, sizeof *into->times_ns));
    self.slot_of = contest_require(calloc(from->block_count + 1, sizeof *self.slot_of));
    self.free_slots = contest_require(calloc(from->block_count + 1, sizeof *self.free_slots));
    for (uint32_t i = 0; i < from->row_count; i++) {
        if (quick && into->count == QUICK_STEPS)
            break;
        add_row(&self, &from->rows[i]);
    }
    if (quick)
        close_gaps(into);
    into->span_ns = into->count ? into->times_ns[into->count - 1] : 0;
    free(self.free_slots);
    free(self.slot_of);
}

bool recording_read(recording *into, bool quick, char *why, size_t size)
{
    trace whole;
    trace_problem problem;
    if (!trace_read(into->path, &whole, &problem)) {
        snprintf(why, size, "%s", problem.text);
        return false;
    }
    const bool good = whole.stream_count <= STREAMS_LIMIT;
    if (good)
        build(into, &whole, quick);
    trace_free(&whole);
    if (good && into->count)
        return true;
    snprintf(why, size, "%s: no allocation, or more than %d streams", into->path, STREAMS_LIMIT);
    return false;
}

void recording_free(recording *self)
{
    free(self->path);
    free(self->steps);
    free(self->shared_steps);
    free(self->times_ns);
}
