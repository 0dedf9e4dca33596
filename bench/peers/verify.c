/* Memory must belong to its user until the stream has reached its free. The host runs ahead of slow streams, and every
 * block is read back. */
#include "bare.h"
#include "clock.h"
#include "contest.h"
#include "delay.h"

#include <stdlib.h>
#include <string.h>

enum {
    STREAMS = 4,
    BLOCKS = 32,
    OPERATIONS = 320,
    LEAST_BYTES = 1024,
    MOST_PIECES = 8,
    SLOW_EVERY = 8,
    SLOW_NS = 200000,
    WAIT_EVERY = 6
};

/* ---- addresses ---- */

typedef struct range {
    CUdeviceptr from;
    uint64_t bytes;
} range;

static int compare_ranges(const void *a, const void *b)
{
    const range *left = a, *right = b;
    return (left->from > right->from) - (left->from < right->from);
}

static bool are_apart(range *ranges, size_t count)
{
    qsort(ranges, count, sizeof *ranges, compare_ranges);
    for (size_t i = 1; i < count; i++)
        if (ranges[i].from - ranges[i - 1].from < ranges[i - 1].bytes)
            return false;
    return true;
}

bool verify_apart(peer *self, const peer_step *steps, size_t count, const char *slots)
{
    range *ranges = contest_require(calloc(count + 1, sizeof *ranges)); /* by slot, empty if nothing is live */
    for (size_t i = 0; i < count; i++) {
        ranges[steps[i].slot] = (range){0};
        if (steps[i].bytes)
            ranges[steps[i].slot] =
                (range){self->kind->address(slots + steps[i].slot * self->kind->slot_bytes), steps[i].bytes};
    }
    size_t live = 0;
    for (size_t i = 0; i < count; i++)
        if (ranges[i].bytes)
            ranges[live++] = ranges[i];
    const bool apart = are_apart(ranges, live);
    free(ranges);
    return apart;
}

/* ---- contents ---- */

typedef struct trial {
    peer with;
    peer_step steps[BLOCKS]; /* the allocation in each slot, or zeros */
    alignas(16) char slots[BLOCKS * PEER_SLOT_BYTES];
    uint32_t values[BLOCKS];
    uint32_t *seen; /* pinned: what was read back */
    size_t seen_words;
    struct reading {
        size_t at; /* index in `seen` */
        size_t words;
        uint32_t value;
    } readings[OPERATIONS];
    size_t reading_count;
    uint32_t random_state; /* state of a random generator */
} trial;

static uint32_t draw(trial *self, uint32_t below)
{
    self->random_state = self->random_state * UINT32_C(1664525) + UINT32_C(1013904223);
    return (self->random_state >> 16) % below;
}

static void *slot_of(trial *self, uint32_t slot)
{
    return self->slots + slot * self->with.kind->slot_bytes;
}

static void report_corrupt(trial *self, const char *what)
{
    peer_choice *choice = self->with.choice;
    if (!*choice->corrupt)
        snprintf(choice->corrupt, sizeof choice->corrupt, "%s", what);
}

static void check_overlap(trial *self)
{
    range ranges[BLOCKS];
    size_t live = 0;
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (self->steps[i].bytes)
            ranges[live++] = (range){self->with.kind->address(slot_of(self, i)), self->steps[i].bytes};
    if (!are_apart(ranges, live))
        report_corrupt(self, "blocks that are live at the same time overlap");
}

static void fill(trial *self, uint32_t slot, CUdeviceptr address, size_t words, CUstream stream)
{
    self->values[slot] = draw(self, 1u << 16) << 12 | slot;
    if (self->with.choice->device) {
        bare_check(bare.MemsetD32Async(address, self->values[slot], words, stream), "cuMemsetD32Async");
        if (draw(self, SLOW_EVERY) == 0)
            delay_stream(stream, SLOW_NS);
    } else if (!self->with.kind->streams) {
        uint32_t *memory = (uint32_t *)(uintptr_t)address;
        for (size_t i = 0; i < words; i++)
            memory[i] = self->values[slot];
    }
}

/* Reads a block back in the order of its stream, just before its free. */
static void read_back(trial *self, uint32_t slot, CUdeviceptr address, size_t words, CUstream stream)
{
    uint32_t *to = self->seen + self->seen_words;
    if (self->with.choice->device)
        bare_check(bare.MemcpyDtoHAsync(to, address, words * sizeof *to, stream), "cuMemcpyDtoHAsync");
    else if (!self->with.kind->streams)
        memcpy(to, (const void *)(uintptr_t)address, words * sizeof *to);
    else
        return; /* addresses without memory, as those of null */
    self->readings[self->reading_count++] = (struct reading){self->seen_words, words, self->values[slot]};
    self->seen_words += words;
}

static void allocate_slot(trial *self, uint32_t slot)
{
    const uint16_t stream = (uint16_t)draw(self, STREAMS);
    const size_t bytes = LEAST_BYTES * (1 + (size_t)draw(self, MOST_PIECES));
    if (!self->with.kind->allocate(&self->with, self->with.streams[stream], bytes, slot_of(self, slot)))
        bare_failed(CUDA_ERROR_OUT_OF_MEMORY, self->with.choice->label);
    self->steps[slot] = (peer_step){.bytes = bytes, .slot = slot, .stream = stream};
    check_overlap(self);
    if (!*self->with.choice->corrupt) /* else the memory may be in use elsewhere */
        fill(self, slot, self->with.kind->address(slot_of(self, slot)), bytes / 4, self->with.streams[stream]);
}

static void free_slot(trial *self, uint32_t slot)
{
    const peer_step *step = &self->steps[slot];
    CUstream stream = self->with.streams[step->stream];
    if (!*self->with.choice->corrupt)
        read_back(self, slot, self->with.kind->address(slot_of(self, slot)), step->bytes / 4, stream);
    self->with.kind->release(&self->with, stream, slot_of(self, slot));
    self->steps[slot] = (peer_step){0};
}

/* Lets one stream catch up, while the others stay behind: else memory that is handed out too early could be free by
 * chance. */
static void wait_for_one(const trial *self, uint32_t stream)
{
    if (self->with.kind->streams)
        bare_check(bare.StreamSynchronize(self->with.streams[stream]), "cuStreamSynchronize");
}

static void compare(trial *self)
{
    for (size_t i = 0; i < self->reading_count; i++) {
        const struct reading *at = &self->readings[i];
        for (size_t word = 0; word < at->words; word++)
            if (self->seen[at->at + word] != at->value) {
                report_corrupt(self, "a block was written to while it was somebody else's");
                return;
            }
    }
}

/* Whether pairs are slow, for instance since each is a driver mapping. */
static bool is_slow(peer *with)
{
    enum { PAIRS = 16 };
    const uint64_t start = bench_now();
    with->kind->pairs(with, with->streams[0], LEAST_BYTES, PAIRS);
    return bench_now() - start > (uint64_t)PAIRS * PEER_SLOW_PAIR_NS;
}

bool verify_peer(peer_choice *choice)
{
    trial *self = contest_require(aligned_alloc(16, (sizeof *self + 15) / 16 * 16));
    *self = (trial){.random_state = 1};
    peer_open(&self->with, choice, STREAMS, 0);
    const size_t most = (size_t)OPERATIONS * LEAST_BYTES * MOST_PIECES;
    bare_check(bare.MemHostAlloc((void **)&self->seen, most, 0), "cuMemHostAlloc");
    for (size_t i = 0; i < OPERATIONS && !*choice->corrupt; i++) {
        const uint32_t slot = draw(self, BLOCKS);
        if (self->steps[slot].bytes)
            free_slot(self, slot);
        else
            allocate_slot(self, slot);
        if (draw(self, WAIT_EVERY) == 0)
            wait_for_one(self, draw(self, STREAMS));
    }
    for (uint32_t slot = 0; slot < BLOCKS; slot++)
        if (self->steps[slot].bytes)
            free_slot(self, slot);
    peer_drain(&self->with);
    compare(self);
    if (!*choice->corrupt)
        choice->slow = is_slow(&self->with);
    peer_close(&self->with);
    bare_check(bare.MemFreeHost(self->seen), "cuMemFreeHost");
    free(self);
    return !*choice->corrupt;
}
