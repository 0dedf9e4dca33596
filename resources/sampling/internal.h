/* The sampling guard: blocks with a mapping of their own.
 *
 * The first sampled block reserves a range of addresses, in which mappings are placed in a circle:
 *
 *     | unmapped | slack ... zone | block | back | unmapped | slack ... | block | unmapped | (freed: unmapped) | ...
 *                '------- one mapping -------'              '---- mapping ----'
 *
 * A block ends where its mapping ends, except for padding of its alignment; at least one granule (2 MiB) behind each
 * mapping stays unmapped. A freed block is unmapped when no work can touch it; its addresses are reused after the
 * circle has come round. So the device stops at an access past the end or after the free, and one comparison recognises
 * a sampled address.
 *
 * A sample is an element of a fixed array:
 *
 *     FREE -> TAKEN -> LIVE -> FREEING -> LEAVING -> ENDING -> FREE
 *                                 '-> DEFERRED -'
 *
 * TAKEN, FREEING and ENDING belong to one thread, which calls the driver without a lock. DEFERRED waits for a capture's
 * end. LEAVING waits, in the order of `number`, until the guard's stream has passed every use and copied the zones; so
 * does, without an entry, a mapped sample whose allocation failed. */
#ifndef STRATA_RESOURCES_SAMPLING_INTERNAL_H
#define STRATA_RESOURCES_SAMPLING_INTERNAL_H

#include "core/base/fault_hints.h"
#include "core/base/per_thread.h"
#include "core/stack/stack.h"
#include "core/streams/timeline.h"
#include "resources/findings/findings.h"
#include "resources/sampling/sampling.h"

enum {
    SAMPLE_ALIGNMENT = 256,   /* if neither the request nor an option asks for another */
    SAMPLE_ZONE = 512,        /* most checked bytes on each side, and most alignment: that of strata_malloc */
    SAMPLES_MOST = 4096,      /* upper bound of sample_blocks */
    SAMPLES_REMEMBERED = 256, /* unmapped samples that are remembered */
    SAMPLE_CANDIDATES = 32,   /* most fault candidates after an illegal access */
};

/* Upper bound of `sample`. */
#define SAMPLE_LEAST_OFTEN (UINT64_C(1) << 31)

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

/* Neighbours in a list, as array indices from 1; 0: none. */
typedef struct sample_link {
    uint32_t before, after;
} sample_link;

typedef struct sample_list {
    uint32_t first, last;
} sample_list;

/* A sampled block and its mapping. Guarded by the lock, except while one thread owns the sample. */
typedef struct sample {
    sample_state state;
    bool is_mapped;
    bool copied;                         /* the zones were copied, valid when the point is complete */
    CUdeviceptr start;                   /* of the mapping */
    uint64_t mapped;                     /* bytes */
    CUmemGenericAllocationHandle handle; /* 0: released; the mapping alone keeps the memory */
    strata_block block;                  /* the user's view; generation 0: the allocation failed */
    strata_block_id freed_id;            /* the block's identity at its free: a layer above may have quarantined it */
    strata_entry *entry;                 /* retired, from FREEING on; NULL: the allocation failed */
    strata_point point;                  /* of the guard's stream, behind all uses; valid while LEAVING */
    bool covered;                        /* an event covers the point */
    uint64_t number;                     /* order of becoming LIVE or LEAVING, from 1 */
    uint32_t allocated_at, freed_at;
    sample_link by_address, by_number; /* always guarded by the lock */
} sample;

/* Countdown of allocations, accessed by its thread alone. */
typedef struct sampling_thread {
    uint64_t gap;    /* the allocation that makes it 0 is sampled */
    uint64_t random; /* 0: not initialised */
    uint32_t turns;  /* allocations while freed blocks wait */
} sampling_thread;

typedef struct sampling {
    strata_resource resource;
    strata_device *device;
    strata_guard_options options; /* constant, except the limits below */
    uint64_t alignment;           /* constant, like range and least_range */
    uint64_t range, least_range;  /* bytes to reserve, and the minimum */
    strata_per_thread threads;
    findings_log log;
    strata_fault_candidates candidates;

    /* Written once, under open_lock; published by the release store of span. */
    strata_lock open_lock;
    CUstream stream; /* internal, ordered after the uses of freed blocks */
    strata_timeline *timeline;
    unsigned char *zones; /* pinned: two zones a sample */
    uint64_t granule;
    bool rdma;
    bool named; /* this layer is among the process's fault candidates */
    _Atomic CUdeviceptr base;
    _Atomic uint64_t span; /* 0: not reserved yet */

    strata_lock lock;
    sample *samples; /* guarded by lock, up to the next empty line */
    size_t capacity; /* constant */
    uint64_t next;   /* where the search for addresses continues */
    uint64_t number; /* the last number given */
    uint64_t in_use;
    sample_list by_address;  /* samples in use */
    uint32_t ahead;          /* the first sample at or behind `next`; 0: none */
    sample_list by_number;   /* samples with a number */
    freed_block *remembered; /* a ring of unmapped samples */
    uint64_t remembered_count;

    /* Written under the lock, read by any thread. */
    _Atomic uint64_t mapped_bytes;
    _Atomic uint32_t leaving; /* samples LEAVING or ENDING */

    /* Any thread, relaxed: limits and statistics. */
    _Atomic uint64_t every, most_blocks, most_bytes;
    _Atomic uint64_t sampled, missed, unchecked;
    _Atomic bool fault_reported;
} sampling;

static inline bool sampling_has(sampling *self, CUdeviceptr address)
{
    uint64_t span = atomic_load_explicit(&self->span, memory_order_acquire);
    return __builtin_expect(address - atomic_load_explicit(&self->base, memory_order_relaxed) < span, 0);
}

/* ---- samples.c ---- */

/* Makes what all samples share, if missing. */
strata_status samples_open(sampling *self);

/* Destroys what samples_open made, and unmaps all samples. */
void samples_close(sampling *self);

/* Takes a free sample for a block of `bytes`, within the limits; NULL: none. */
sample *sample_take(sampling *self, size_t bytes);

/* The block's address in a taken sample, and its zones. */
CUdeviceptr sample_address(const sample *one, size_t bytes, uint64_t alignment);
void sample_zones(const sampling *self, const sample *one, checked_range zones[RED_ZONES], unsigned char **copies);

/* Maps a taken sample. */
strata_status sample_map(sampling *self, sample *one);

/* Gives up a sample whose allocation failed and that no work touches. */
void sample_abandon(sampling *self, sample *one);

/* Fills the zones on the block's stream. *filling: work was submitted, whatever the status. */
strata_status sample_fill_zones(sampling *self, const sample *one, CUstream stream, bool *filling);

/* Copies the zones on the guard's stream, after every use, and lets the sample leave. */
void sample_leave(sampling *self, sample *one);

/* Gives the calling thread the live sample of a block whose entry it retired. The second undoes that. */
sample *sample_begin_free(sampling *self, const strata_block *block, strata_entry *entry, uint32_t freed_at);
void sample_revive(sampling *self, sample *one);

/* Gives the calling thread the deferred sample at `address`. */
sample *sample_claim_deferred(sampling *self, CUdeviceptr address);

/* Ends the thread's ownership. */
void sample_set(sampling *self, sample *one, sample_state state);

/* After a reset of the device, gives back the memory of all samples, also of blocks that were not freed, which then
 * stay without. Returns the bytes. */
uint64_t samples_give_back_lost(sampling *self);

/* Unmaps complete leaving samples; never waits. *bytes: freed. Errors are raised, the work is retried later. */
strata_status samples_poll(sampling *self, size_t *bytes);

/* As samples_poll, but waits for everything freed before the call. */
strata_status samples_wait(sampling *self, size_t *bytes);

/* The live block containing `address`. */
bool samples_find(sampling *self, CUdeviceptr address, strata_block *out);

/* Adds the sampled blocks to the usage of the layers below. */
void samples_add_usage(sampling *self, strata_usage *usage);

/* Sampled blocks as findings of an illegal access: newest first, freed and live alternating, at most `room` of *all. */
size_t samples_candidates(sampling *self, strata_guard_finding *candidates, size_t room, size_t *all);

/* The remembered free of a block; zero: none. */
freed_block samples_remembered(sampling *self, const strata_block *block);

/* The latest remembered free of a block that began at the address; zero: none. */
freed_block samples_remembered_at(sampling *self, CUdeviceptr address);

/* ---- candidates.c ---- */

/* Writes the layer's candidates, for strata_fault_candidates. */
size_t sampling_name_candidates(strata_fault_candidates *candidates, char *text, size_t room);

/* Reports the candidates, once, if `status` shows a stopped device. Returns `status`. */
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
