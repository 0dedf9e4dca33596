/* What the model of random captures knows: blocks, graphs and pools, what keeps which, and what the stack has to have
 * for it; and driver calls that fail now and then. */
#ifndef STRATA_TEST_GRAPH_MODEL_H
#define STRATA_TEST_GRAPH_MODEL_H

#include "support/captures.h"
#include "support/graphs.h"
#include "support/refusals.h"
#include "support/sweep.h"

enum {
    OUTSIDE = 6,      /* blocks from outside at a time */
    TEMPORARIES = 12, /* in a capture */
    STREAMS = 5,      /* the first two are captured, the others forked */
    MOST_STEPS = 40,  /* of a capture: a node has a bit in 64 */
    MOST_GRAPHS = 5,  /* at a time */
    ROUND = 10,       /* captures */
    SHARED = 2,       /* pools */
    MOST_POOLS = SHARED + ROUND,
    MOST_OBJECTS = OUTSIDE * 8 + ROUND * TEMPORARIES + 1024,
    UNIT = 256, /* bytes: sizes are multiples */
    LONGEST = 24 * UNIT,
};

/* A block from outside, or what a capture left. Its memory may live on in graphs when the program has freed it. */
typedef struct object {
    strata_block block;
    unsigned char value;
    bool known; /* the value */
    bool freed;
    struct model_pool *pool; /* that it is a part of, or NULL */
    size_t bytes;            /* that the stack counts for it, if it is no part */
} object;

/* A capture pool, shared or a graph's own. */
typedef struct model_pool {
    strata_capture_pool *pool; /* NULL: private, and no graph's so far */
    bool held;                 /* by its handle, or the capture under way */
    size_t bytes, blocks;      /* that it has of the stack */
} model_pool;

/* What a capture does. Operands are the indices of objects, or those of temporaries from TEMPORARY on. */
enum { TEMPORARY = 1 << 16 };

typedef struct step {
    unsigned to, from;
    bool copies;
    unsigned char value;
    size_t bytes;
    uint64_t before; /* nodes that come before it */
} step;

typedef struct model_graph {
    strata_graph *graph;
    model_pool *pool;
    step steps[MOST_STEPS];
    size_t count;
    bool keeps[MOST_OBJECTS];
} model_graph;

typedef struct temporary {
    strata_block block;
    bool live, written;
    bool on_origin;  /* allocated on the stream that the capture began on */
    unsigned number; /* of the operand: reused memory is another temporary */
    uint64_t before; /* nodes that come before the allocation */
} temporary;

typedef struct model {
    test_fixture *fixture;
    uint64_t random;
    bool fails; /* driver calls of Strata's, now and then */
    CUstream streams[STREAMS];
    CUstream foreign; /* captured by other code */
    bool foreign_captures;
    object objects[MOST_OBJECTS];
    size_t object_count;
    unsigned char temporaries_values[4096];
    temporary temporaries[TEMPORARIES];
    unsigned temporary_count; /* numbers given so far in this round */
    model_graph all[MOST_GRAPHS];
    size_t graph_count;
    model_pool pools[MOST_POOLS]; /* the first are shared */
    size_t pool_count;
    strata_usage before; /* the round */
} model;

static inline unsigned pick(model *self, unsigned below)
{
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return (unsigned)(self->random >> 33) % below;
}

/* ---- failing calls ---- */

static uint32_t fault;
static uint64_t fault_nth; /* 0: none */

static inline void arm(model *self)
{
    fault_nth = self->fails && pick(self, 12) == 0 ? 1 + pick(self, 6) : 0;
    const strata_sim_fault planned = {
        .size = sizeof planned, .kind = STRATA_SIM_FAIL_CALL, .nth = fault_nth, .error = CUDA_ERROR_UNKNOWN};
    if (fault_nth)
        check_cu(test_sim_control()->add_fault(&planned, &fault));
}

/* The answer of a call that was made under a fault: an error only if it has struck. */
static inline strata_status disarm(strata_status status)
{
    uint64_t reached = 0;
    if (!fault_nth) {
        check_ok(status);
        return status;
    }
    check_cu(test_sim_control()->fault_reached(fault, &reached));
    check_cu(test_sim_control()->clear_faults());
    if (reached < fault_nth)
        check_ok(status);
    return status;
}

/* Makes a call of Strata, of which a driver call may fail. */
#define ATTEMPT(self, call) (arm(self), disarm(call))

/* ---- what there is ---- */

static inline bool is_kept(const model *self, size_t index)
{
    for (size_t i = 0; i < self->graph_count; i++)
        if (self->all[i].keeps[index])
            return true;
    return false;
}

static inline bool lives(const model *self, size_t index)
{
    return !self->objects[index].freed || is_kept(self, index);
}

static inline bool pool_lives(const model *self, const model_pool *pool)
{
    bool found = pool->held;
    for (size_t i = 0; i < self->graph_count && !found; i++)
        found = self->all[i].pool == pool;
    for (size_t i = 0; i < self->object_count && !found; i++)
        found = self->objects[i].pool == pool && lives(self, i);
    return found;
}

static inline void check_stack(const model *self)
{
    const strata_usage usage = test_usage(self->fixture);
    size_t bytes = self->before.live_bytes, blocks = self->before.live_blocks;
    for (size_t i = 0; i < self->object_count; i++)
        if (!self->objects[i].pool && lives(self, i)) {
            bytes += self->objects[i].bytes;
            blocks++;
        }
    for (size_t i = 0; i < self->pool_count; i++)
        if (pool_lives(self, &self->pools[i])) {
            bytes += self->pools[i].bytes;
            blocks += self->pools[i].blocks;
        }
    assert_int_equal(usage.live_blocks, blocks);
    assert_int_equal(usage.live_bytes, bytes);
}

static inline void check_pool(const model *self, const model_pool *pool)
{
    size_t bytes = 0, blocks = 0;
    strata_capture_pool_usage usage;
    for (size_t i = 0; i < self->object_count; i++)
        if (self->objects[i].pool == pool && lives(self, i)) {
            bytes += self->objects[i].block.bytes;
            blocks++;
        }
    check_ok(strata_capture_pool_get_usage(pool->pool, &usage));
    assert_int_equal(usage.live_blocks, blocks);
    assert_int_equal(usage.in_use, bytes);
    assert_true(usage.in_use <= usage.reserved && usage.reserved <= pool->bytes);
}

/* Checks what the stack has; called outside of captures. */
static inline void check_memory(const model *self)
{
    check_stack(self);
    for (size_t i = 0; i < self->graph_count; i++)
        check_pool(self, self->all[i].pool);
    for (size_t i = 0; i < SHARED; i++)
        if (self->pools[i].held)
            check_pool(self, &self->pools[i]);
}

static inline void count_taken(model *self, model_pool *pool, const strata_usage *before)
{
    const strata_usage now = test_usage(self->fixture);
    pool->bytes += now.live_bytes - before->live_bytes;
    pool->blocks += now.live_blocks - before->live_blocks;
}

/* ---- blocks ---- */

static inline void check_apart(const strata_block *a, const strata_block *b)
{
    assert_true(a->address + a->bytes <= b->address || b->address + b->bytes <= a->address);
}

static inline void check_new(const model *self, const strata_block *block)
{
    for (size_t i = 0; i < self->object_count; i++)
        if (!self->objects[i].freed)
            check_apart(block, &self->objects[i].block);
    for (size_t i = 0; i < TEMPORARIES; i++)
        if (self->temporaries[i].live)
            check_apart(block, &self->temporaries[i].block);
}

static inline size_t any_bytes(model *self)
{
    return UNIT * (1 + pick(self, LONGEST / UNIT));
}

static inline CUstream any_stream(model *self)
{
    return self->streams[pick(self, STREAMS)];
}

static inline void add_object(model *self, CUstream stream)
{
    const size_t before = test_usage(self->fixture).live_bytes;
    object *made = &self->objects[self->object_count];
    *made = (object){.block = test_allocate(self->fixture, any_bytes(self), stream), .known = true};
    made->bytes = test_usage(self->fixture).live_bytes - before;
    check_new(self, &made->block);
    self->object_count++;
    made->value = (unsigned char)pick(self, 256);
    test_write(self->fixture, &made->block, made->value, stream);
}

static inline size_t live_objects(const model *self)
{
    size_t live = 0;
    for (size_t i = 0; i < self->object_count; i++)
        live += !self->objects[i].freed;
    return live;
}

/* Picks an object that lives; NULL: none does. */
static inline object *any_object(model *self, bool known)
{
    if (!self->object_count)
        return NULL;
    const size_t first = pick(self, (unsigned)self->object_count);
    for (size_t i = 0; i < self->object_count; i++) {
        object *one = &self->objects[(first + i) % self->object_count];
        if (!one->freed && (one->known || !known))
            return one;
    }
    return NULL;
}

static inline void free_object(model *self, object *one, CUstream stream)
{
    test_free_on(self->fixture, &one->block, stream);
    one->freed = true;
}

static inline void foreign_capture(model *self)
{
    if (self->foreign_captures)
        assert_int_equal(test_end_capture(self->foreign), 0); /* Strata has put nothing there, and not spoiled it */
    else
        test_begin_capture(self->foreign);
    self->foreign_captures = !self->foreign_captures;
}

/* Checks an object's contents. Ends a capture of other code first, which the wait would spoil. */
static inline void check_object(model *self, const object *one, CUstream stream)
{
    if (self->foreign_captures)
        foreign_capture(self);
    const unsigned char *seen = test_read(self->fixture, &one->block, stream);
    test_synchronize(stream);
    if (one->known)
        check_bytes(seen, one->value, one->block.requested);
    self->fixture->seen_used = 0;
}

#endif
