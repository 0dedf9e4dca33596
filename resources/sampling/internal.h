/* The inside of the sampling guard: blocks that have a mapping of their own.
 *
 * One range of addresses is reserved when the first block is sampled, and places in it are given out in a circle:
 *
 *     | unmapped | slack ... zone | block | back | unmapped | slack ... | block | unmapped | (freed: unmapped) | ...
 *                '------- one mapping -------'              '---- mapping ----'
 *
 * A block ends where its mapping ends, but for what its alignment takes; behind each mapping at least one granule of
 * the driver's, 2 MiB, stays unmapped. What is freed is unmapped once nothing can touch it, and its addresses are not
 * given out again before the circle has come round. So the device itself stops at an access past the end or after the
 * free, and whether an address is a sampled block's is one comparison.
 *
 * A sample is one place of a fixed array:
 *
 *     FREE -> TAKEN -> LIVE -> FREEING -> LEAVING -> ENDING -> FREE
 *                                 '-> DEFERRED -'
 *
 * TAKEN, FREEING and ENDING belong to one thread, which calls the driver without a lock. DEFERRED waits for the end of
 * a capture. LEAVING waits until the guard's own stream has come after every use and has copied the zones, in the order
 * of `number`. What came to nothing while it was TAKEN and is mapped is LEAVING, too, without an entry.
 *
 * sampling.c has the operations and who is sampled, samples.c the array and the mappings, suspects.c what is said when
 * the device was stopped. */
#ifndef STRATA_RESOURCES_SAMPLING_INTERNAL_H
#define STRATA_RESOURCES_SAMPLING_INTERNAL_H

#include "core/base/fault_hints.h"
#include "core/base/per_thread.h"
#include "core/stack/stack.h"
#include "core/streams/timeline.h"
#include "resources/findings/findings.h"
#include "resources/sampling/sampling.h"

enum {
    SAMPLE_ZONE = 256,        /* bytes before and behind a block that are looked at, at most */
    SAMPLES_MOST = 4096,      /* sample_blocks */
    SAMPLES_REMEMBERED = 256, /* that were unmapped */
    SAMPLE_CANDIDATES = 32,   /* that are told after an illegal access */
};

/* One allocation in so many is the least that can be asked for. */
#define SAMPLE_LEAST_OFTEN (UINT64_C(1) << 31)

/* What the options are if they are 0. */
#define SAMPLE_BLOCKS 64
#define SAMPLE_BYTES  (UINT64_C(256) << 20)
#define SAMPLE_RANGE  (UINT64_C(64) << 30)

typedef enum sample_state {
    SAMPLE_FREE = 0,
    SAMPLE_TAKEN,
    SAMPLE_LIVE,
    SAMPLE_FREEING,
    SAMPLE_DEFERRED,
    SAMPLE_LEAVING,
    SAMPLE_ENDING,
} sample_state;

/* In a list of samples: those before and after one, by their places in the array from 1; 0: none. */
typedef struct sample_link {
    uint32_t before, after;
} sample_link;

typedef struct sample_list {
    uint32_t first, last;
} sample_list;

/* Guarded by the lock, but while one thread has it. */
typedef struct sample {
    sample_state state;
    bool is_mapped;
    bool copied;                         /* the zones, to where sample_zones() says; good when the point is complete */
    CUdeviceptr start;                   /* of the mapping */
    uint64_t mapped;                     /* its bytes */
    CUmemGenericAllocationHandle handle; /* 0: released, and the mapping alone keeps the memory */
    strata_block block;                  /* as its user has it; no generation: it came to nothing */
    strata_block_id freed_id;            /* under which it was freed: a layer above may have held it back */
    strata_entry *entry;                 /* retired, from FREEING on; NULL if it came to nothing */
    strata_point point;                  /* of the guard's stream, while LEAVING */
    bool covered;                        /* an event covers the point */
    uint64_t number;                     /* the order of becoming LIVE or LEAVING, from 1 */
    uint32_t allocated_at, freed_at;
    sample_link by_address, by_number; /* guarded by the lock at all times */
} sample;

/* What a thread's allocations count down, so that they touch no word that others write. The thread's alone. */
typedef struct sampling_thread {
    uint64_t gap;    /* the allocation that makes it 0 is sampled */
    uint64_t random; /* 0: not begun */
    uint32_t turns;  /* allocations while freed blocks wait */
} sampling_thread;

typedef struct sampling {
    strata_resource resource;
    strata_device *device;
    strata_guard_options options; /* constant, but for the limits, which are below */
    uint64_t alignment;           /* constant, like the next two */
    uint64_t range, least_range;  /* bytes of addresses to reserve, and how few may do */
    strata_per_thread threads;
    findings_log log;
    strata_fault_candidates candidates;

    /* Written once, when the first block is sampled, under `making`: the span last, whose release publishes the rest.
     */
    strata_lock open_lock;
    CUstream stream; /* the guard's own: comes after the uses of what is freed */
    strata_timeline *timeline;
    unsigned char *zones; /* pinned, two zones for each sample */
    uint64_t granule;
    bool rdma;
    bool named; /* entered among the suspects */
    _Atomic CUdeviceptr base;
    _Atomic uint64_t span; /* 0: not yet */

    strata_lock lock;
    sample *samples; /* guarded by lock, like all to the next empty line */
    size_t capacity; /* constant */
    uint64_t next;   /* offset in the range, where the next place is looked for */
    uint64_t number; /* the last that was given */
    uint64_t in_use;
    sample_list by_address;  /* all that are in use, by address */
    uint32_t ahead;          /* the first of them at `next` or behind it; 0: none */
    sample_list by_number;   /* those that have a number, by it */
    freed_block *remembered; /* a ring of what was unmapped */
    uint64_t remembered_count;

    /* Written under the lock, read by any thread. */
    _Atomic uint64_t mapped_bytes;
    _Atomic uint32_t leaving; /* LEAVING or ENDING */

    /* Any thread, relaxed: limits and statistics. */
    _Atomic uint64_t every, most_blocks, most_bytes;
    _Atomic uint64_t sampled, missed, unchecked;
    _Atomic bool fault_reported;
} sampling;

/* Whether an address lies where sampled blocks do. */
static inline bool sampling_has(sampling *self, CUdeviceptr address)
{
    uint64_t span = atomic_load_explicit(&self->span, memory_order_acquire);
    return __builtin_expect(address - atomic_load_explicit(&self->base, memory_order_relaxed) < span, 0);
}

/* ---- samples.c ---- */

/* Makes what all samples share, if it is not there. */
strata_status samples_open(sampling *self);

/* Ends it, and what is still mapped. */
void samples_close(sampling *self);

/* Takes a place for a block of so many bytes, within the limits; NULL if there is none. */
sample *sample_take(sampling *self, size_t bytes);

/* Where the block begins whose sample was taken, and how many bytes of zone there are. */
CUdeviceptr sample_address(const sample *one, size_t bytes, uint64_t alignment);
void sample_zones(const sampling *self, const sample *one, checked_range zones[RED_ZONES], unsigned char **copies);

/* Maps memory to a place that was taken. */
strata_status sample_map(sampling *self, sample *one);

/* Gives a place back that came to nothing, and that no work touches. */
void sample_abandon(sampling *self, sample *one);

/* Fills the zones of one that was mapped. *filling: something was submitted to the stream, whatever the status is. */
strata_status sample_fill_zones(sampling *self, const sample *one, CUstream stream, bool *filling);

/* Has the zones copied on the guard's stream, which comes after every use, and lets the sample leave. */
void sample_leave(sampling *self, sample *one);

/* The live sample of a block whose entry the calling thread has retired becomes that thread's, and live again. */
sample *sample_begin_free(sampling *self, const strata_block *block, strata_entry *entry, uint32_t freed_at);
void sample_revive(sampling *self, sample *one);

/* The deferred sample whose block begins at `address` becomes the calling thread's. */
sample *sample_claim_deferred(sampling *self, CUdeviceptr address);

/* Ends the thread's turn. */
void sample_set(sampling *self, sample *one, sample_state state);

/* Unmaps what has left, as far as the device is; never waits. *bytes of blocks become free. What goes wrong is said,
 * and tried again later. */
strata_status samples_poll(sampling *self, size_t *bytes);

/* The same for all that was freed before this call, and waits. */
strata_status samples_wait(sampling *self, size_t *bytes);

/* The live block that contains `address`. */
bool samples_find(sampling *self, CUdeviceptr address, strata_block *out);

/* Adds what is sampled. */
void samples_add_usage(sampling *self, strata_usage *usage);

/* Newest first: blocks that were freed and live ones, by turns, as findings of illegal accesses. At most `room`; *all
 * is how many there are. */
size_t samples_candidates(sampling *self, strata_guard_finding *candidates, size_t room, size_t *all);

/* What is known of the free of a block; all zero: nothing. */
freed_block samples_remembered(sampling *self, const strata_block *block);

/* ---- suspects.c ---- */

/* For strata_fault_candidates. */
size_t sampling_name_candidates(strata_fault_candidates *candidates, char *text, size_t room);

/* Looks at what an operation answers, and tells of the suspects when the device was stopped, once. Returns `status`. */
strata_status sampling_notice(sampling *self, strata_status status);

/* ---- operations.c ---- */

extern const strata_resource_ops sampling_ops;

/* ---- report.c ---- */

enum { SAMPLING_VALUES = 9 };
extern const strata_value sampling_values[SAMPLING_VALUES];
strata_status sampling_get_value(strata_resource *resource, size_t which, uint64_t *value);
strata_status sampling_set_value(strata_resource *resource, size_t which, uint64_t value);
void sampling_describe(strata_resource *resource, strata_emitter *to);

#endif
