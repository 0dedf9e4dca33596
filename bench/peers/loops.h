/* The timed loops, compiled for each competitor, so that its calls are direct, as in a user's program.
 *
 * A competitor's file defines NAME_allocate, NAME_release, NAME_release_elsewhere and NAME_release_unknown, then uses
 * PEER_LOOPS(NAME, type of its slots). */
#ifndef STRATA_BENCH_LOOPS_H
#define STRATA_BENCH_LOOPS_H

#include "peers.h"

#include <sched.h>
#include <stdlib.h>

#define LOOP_INLINE static inline __attribute__((always_inline))

typedef bool loop_allocate(peer *self, CUstream stream, size_t bytes, void *slot);
typedef void loop_release(peer *self, CUstream stream, void *slot);

enum { LOOP_LIVE_LIMIT = 64 };

/* Exits: these sizes always fit. */
_Noreturn void loop_no_memory(const peer *self);

/* Yields at times, since threads may outnumber cores. */
LOOP_INLINE void loop_pause(unsigned *spins)
{
    if (++*spins % 64 == 0)
        sched_yield();
}

LOOP_INLINE void loop_need(const peer *self, bool allocated)
{
    if (__builtin_expect(!allocated, 0))
        loop_no_memory(self);
}

LOOP_INLINE void loop_pairs(peer *self, CUstream stream, size_t bytes, size_t pairs, loop_allocate *allocate,
                            loop_release *release)
{
    for (size_t i = 0; i < pairs; i++) {
        alignas(16) char slot[PEER_SLOT_BYTES];
        loop_need(self, allocate(self, stream, bytes, slot));
        release(self, stream, slot);
    }
}

LOOP_INLINE void loop_groups(peer *self, CUstream stream, size_t bytes, size_t live, size_t pairs, size_t slot_bytes,
                             loop_allocate *allocate, loop_release *release)
{
    alignas(16) char slots[LOOP_LIVE_LIMIT * PEER_SLOT_BYTES];
    for (size_t done = 0; done < pairs; done += live) {
        for (size_t i = 0; i < live; i++)
            loop_need(self, allocate(self, stream, bytes, slots + i * slot_bytes));
        for (size_t i = 0; i < live; i++)
            release(self, stream, slots + i * slot_bytes);
    }
}

LOOP_INLINE size_t loop_steps(peer *self, const peer_step *steps, size_t count, char *slots, size_t slot_bytes,
                              loop_allocate *allocate, loop_release *release, loop_release *elsewhere)
{
    const CUstream *streams = self->streams;
    for (size_t i = 0; i < count; i++) {
        const peer_step *step = &steps[i];
        CUstream stream = streams[step->stream];
        char *slot = slots + step->slot * slot_bytes;
        if (step->bytes) {
            if (!allocate(self, stream, step->bytes, slot))
                return i;
        } else if (step->elsewhere) {
            elsewhere(self, stream, slot);
        } else {
            release(self, stream, slot);
        }
    }
    return count;
}

LOOP_INLINE void loop_produce(peer *self, CUstream stream, size_t bytes, size_t count, peer_queue *queue,
                              loop_allocate *allocate)
{
    size_t taken = 0; /* as last read */
    for (size_t i = 0; i < count; i++) {
        for (unsigned spins = 0; i - taken == PEER_QUEUE_BLOCKS; loop_pause(&spins))
            taken = atomic_load_explicit(&queue->taken, memory_order_acquire);
        loop_need(self, allocate(self, stream, bytes, queue->slots[i % PEER_QUEUE_BLOCKS]));
        atomic_store_explicit(&queue->made, i + 1, memory_order_release);
    }
}

LOOP_INLINE void loop_consume(peer *self, CUstream stream, size_t count, peer_queue *queue, loop_release *elsewhere)
{
    size_t made = 0; /* as last read */
    for (size_t i = 0; i < count; i++) {
        for (unsigned spins = 0; i == made; loop_pause(&spins))
            made = atomic_load_explicit(&queue->made, memory_order_acquire);
        elsewhere(self, stream, queue->slots[i % PEER_QUEUE_BLOCKS]);
        atomic_store_explicit(&queue->taken, i + 1, memory_order_release);
    }
}

#define PEER_LOOPS(name, slot)                                                                             \
    _Static_assert(sizeof(slot) <= PEER_SLOT_BYTES, "a slot has room for what the user keeps of a block"); \
    static void name##_pairs(peer *self, CUstream stream, size_t bytes, size_t pairs)                      \
    {                                                                                                      \
        loop_pairs(self, stream, bytes, pairs, name##_allocate, name##_release);                           \
    }                                                                                                      \
    static void name##_unknown_pairs(peer *self, CUstream stream, size_t bytes, size_t pairs)              \
    {                                                                                                      \
        loop_pairs(self, stream, bytes, pairs, name##_allocate, name##_release_unknown);                   \
    }                                                                                                      \
    static void name##_groups(peer *self, CUstream stream, size_t bytes, size_t live, size_t pairs)        \
    {                                                                                                      \
        loop_groups(self, stream, bytes, live, pairs, sizeof(slot), name##_allocate, name##_release);      \
    }                                                                                                      \
    static size_t name##_steps(peer *self, const peer_step *steps, size_t count, char *slots)              \
    {                                                                                                      \
        return loop_steps(self, steps, count, slots, sizeof(slot), name##_allocate, name##_release,        \
                          name##_release_elsewhere);                                                       \
    }                                                                                                      \
    static void name##_produce(peer *self, CUstream stream, size_t bytes, size_t count, peer_queue *queue) \
    {                                                                                                      \
        loop_produce(self, stream, bytes, count, queue, name##_allocate);                                  \
    }                                                                                                      \
    static void name##_consume(peer *self, CUstream stream, size_t count, peer_queue *queue)               \
    {                                                                                                      \
        loop_consume(self, stream, count, queue, name##_release_elsewhere);                                \
    }                                                                                                      \
    _Static_assert(1, "")

/* The members of a peer_kind. */
#define PEER_LOOPS_OF(name)                                                                                  \
    .allocate = name##_allocate, .release = name##_release, .release_elsewhere = name##_release_elsewhere,   \
    .release_unknown = name##_release_unknown, .pairs = name##_pairs, .unknown_pairs = name##_unknown_pairs, \
    .groups = name##_groups, .steps = name##_steps, .produce = name##_produce, .consume = name##_consume

#endif
