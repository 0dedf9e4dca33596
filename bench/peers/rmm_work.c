#include "rmm_work.h"

#include "bare.h"
#include "contest.h"
#include "delay.h"

#include <errno.h>
#include <stdlib.h>

/* ---- random_allocations ---- */

enum { QUICK_STEPS = 200, MOST_ALLOCATIONS = 100000 };

static uint32_t *scratch_slots;
static peer_step *scratch_live;

void sequence_open(sequence *self)
{
    *self = (sequence){.steps = contest_require(calloc((size_t)2 * MOST_ALLOCATIONS, sizeof *self->steps))};
    self->slots = contest_require(calloc(MOST_ALLOCATIONS, PEER_SLOT_BYTES));
    self->live = contest_require(calloc(MOST_ALLOCATIONS, 1));
    scratch_slots = contest_require(calloc(MOST_ALLOCATIONS, sizeof *scratch_slots));
    scratch_live = contest_require(calloc(MOST_ALLOCATIONS, sizeof *scratch_live));
}

void sequence_close(sequence *self)
{
    free(scratch_live);
    free(scratch_slots);
    free(self->live);
    free(self->slots);
    free(self->steps);
}

static void find_peak(sequence *self)
{
    size_t live = 0, most = 0;
    for (size_t i = 0; i < self->count; i++) {
        live = self->steps[i].bytes ? live + 1 : live - 1;
        if (live > most) {
            most = live;
            self->peak = i + 1;
        }
    }
}

void sequence_draw(sequence *self, const random_case *seen, bool quick)
{
    random_case came_to;
    random_make(seen->allocations, seen->max_mib, self->steps, scratch_slots, scratch_live, &came_to);
    if (!random_totals_match(&came_to, seen)) {
        fprintf(stderr, "%s: random_allocations %u %u is not RMM's sequence\n", program_invocation_short_name,
                (unsigned)seen->allocations, (unsigned)seen->max_mib);
        exit(EXIT_FAILURE);
    }
    self->count = (size_t)2 * seen->allocations;
    self->leftovers = quick;
    if (quick && self->count > QUICK_STEPS)
        self->count = QUICK_STEPS;
    find_peak(self);
}

bool sequence_run(const sequence *self, peer *with)
{
    return peer_run_steps(with, self->steps, self->count, self->slots, self->live, self->leftovers);
}

/* ---- multi_stream_allocations ---- */

enum { KERNEL_TICKS = 1000000, KERNEL_BYTES = 8 };

const stream_case stream_cases[STREAM_CASES] = {{1, false}, {2, false}, {4, false}, {1, true}, {2, true}, {4, true}};

void streams_name(const stream_case *self, char *into, size_t size)
{
    snprintf(into, size, "%d kernels on %u stream%s%s", STREAMS_KERNELS, (unsigned)self->streams,
             self->streams == 1 ? "" : "s", self->prewarmed ? ", prewarmed" : "");
}

static void allocate_8(peer *with, uint32_t stream, void *slot)
{
    if (!with->kind->allocate(with, with->streams[stream], KERNEL_BYTES, slot))
        bare_failed(CUDA_ERROR_OUT_OF_MEMORY, "8 bytes");
}

void streams_prewarm(const stream_case *self, peer *with)
{
    alignas(16) char slots[STREAMS_LIMIT][PEER_SLOT_BYTES];
    if (!self->prewarmed)
        return;
    for (uint32_t i = 0; i < self->streams; i++)
        allocate_8(with, i, slots[i]);
    for (uint32_t i = 0; i < self->streams; i++)
        with->kind->release(with, with->streams[i], slots[i]);
}

void streams_run(const stream_case *self, peer *with)
{
    alignas(16) char slot[PEER_SLOT_BYTES];
    for (uint32_t kernel = 0; kernel < STREAMS_KERNELS; kernel++) {
        const uint32_t stream = kernel % self->streams;
        allocate_8(with, stream, slot);
        delay_and_write(with->streams[stream], KERNEL_TICKS, with->kind->address(slot));
        with->kind->release(with, with->streams[stream], slot);
    }
    bare_check(bare.CtxSynchronize(), "cuCtxSynchronize");
}
