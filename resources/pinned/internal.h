/* pinned: page-locked host memory.
 *
 *     request -> lane's cache -> jemalloc arena -> slabs -> cuMemHostAlloc
 *                   ^                  ^             ^
 *     free -> lane's pending frees ----+   larger ---+   (slabs alone where there is no jemalloc)
 *
 * A freed block waits in a lane until its stream and all its uses are complete, since the host may write a block as
 * soon as it has it: only then it goes to the lane's cache, to the arena or to its slab. Polls find that out, in later
 * calls; no free waits.
 *
 *     operations.c  the ops table, allocation and free    take.c   what a request tries
 *     lanes.c       pending frees and caches              memory.c the arena, slots, growth
 *     slabs.c       cutting slabs                         host_alloc.c  their memory
 *     single.c      single=on: a driver allocation a block */
#ifndef STRATA_RESOURCES_PINNED_INTERNAL_H
#define STRATA_RESOURCES_PINNED_INTERNAL_H

#include "core/base/counters.h"
#include "core/base/extent_arena.h"
#include "core/blocks/address_index.h"
#include "core/blocks/blocks.h"
#include "core/stack/stack.h"

#include <strata/pinned.h>

enum {
    PINNED_UNIT = 256, /* of addresses and sizes in slabs; every block's least alignment */
    PINNED_MOST_ALIGNMENT = 2 << 20,
    PINNED_LANES = 16, /* threads share them by their number */
    PINNED_CLASSES = 48,
    PINNED_NO_CLASS = PINNED_CLASSES, /* larger than a megabyte, or aligned: not cached */
    PINNED_VALUES = 6,
};

/* ---- slabs.c, host_alloc.c ---- */

typedef struct pinned_slab {
    struct pinned_slab *next;    /* guarded by the lock, as the rest but the constants */
    CUdeviceptr address;         /* constant */
    size_t bytes, units;         /* constant */
    size_t used_units, low_unit; /* no free unit is below low_unit */
    uint64_t taken[];            /* a bit a unit */
} pinned_slab;

typedef struct pinned_slabs {
    strata_device *device; /* constant, as the next four */
    unsigned flags;        /* of cuMemHostAlloc */
    int numa;              /* node plus 1; 0: any */
    size_t slab_bytes;     /* bytes of an ordinary slab */
    size_t cut_most;       /* larger requests get a slab of their own size */
    strata_spin lock;      /* held while jemalloc has locks: nothing is called under it */
    pinned_slab *list;     /* guarded by lock */
    _Atomic size_t count;  /* written under lock, read by any thread, as the next two */
    _Atomic size_t bytes;
    _Atomic size_t peak;
    _Atomic uint64_t made; /* slabs so far; any thread, relaxed */
} pinned_slabs;

void pinned_slabs_init(pinned_slabs *self, strata_device *device, const strata_pinned_options *options);

/* Cuts `bytes` at a multiple of `alignment`, a power of two; NULL: no slab has room. */
void *pinned_slabs_take(pinned_slabs *self, size_t bytes, size_t alignment);
void pinned_slabs_give(pinned_slabs *self, void *memory, size_t bytes);
bool pinned_slabs_joins(pinned_slabs *self, const void *first, const void *second);

/* Makes a slab with room for `bytes`. After SUCCESS *result is the driver's answer. */
strata_status pinned_slabs_grow(pinned_slabs *self, size_t bytes, CUresult *result);

/* Frees slabs without blocks until at most `keep` bytes are left; with `own_only`, those of larger requests alone. The
 * driver waits for the device. *freed: bytes, also after an error. */
strata_status pinned_slabs_release(pinned_slabs *self, size_t keep, bool own_only, size_t *freed);

/* Frees every slab, or drops them if the driver cannot be called. */
void pinned_slabs_destroy(pinned_slabs *self);

/* INVALID_VALUE or UNSUPPORTED if the kernel refuses the NUMA node `numa` - 1. */
strata_status pinned_check_numa(int numa);

/* The flags of cuMemHostAlloc for these options. */
unsigned pinned_flags(const strata_pinned_options *options);

/* Calls cuMemHostAlloc, on the NUMA node `numa` - 1; the device's context is current. */
CUresult pinned_host_alloc(void **memory, size_t bytes, unsigned flags, int numa);

/* ---- lanes.c ---- */

/* The layer's bytes in an entry; guarded by the lane's lock from the free to the next block. */
typedef struct pinned_bytes {
    strata_point point; /* of the freeing stream */
    uint32_t next;      /* slot in a list; 0: the last */
    uint8_t class;
    bool in_arena; /* the memory is jemalloc's, not a slab's alone */
} pinned_bytes;

typedef struct pinned_lane {
    _Alignas(64) strata_spin lock;
    uint32_t first, last;            /* pending frees, oldest first; guarded by lock, as the rest */
    uint32_t pending;                /* their number */
    uint32_t since_poll;             /* frees since the last poll */
    bool of_one;                     /* all pending ones wait for one stream alone */
    strata_point newest;             /* the latest point of that stream that they wait for */
    uint64_t bytes_since;            /* bytes of the frees since the last poll, by weight: lanes.c */
    uint64_t cached_bytes;           /* bytes in `cached` */
    uint64_t wanted;                 /* classes that were asked for since the last sweep; a bit each */
    uint32_t cached[PINNED_CLASSES]; /* complete blocks, ended, each with its memory and index entry */
} pinned_lane;

/* ---- the layer ---- */

/* Totals, counted and read as in resources/owners/pending_frees.c. */
enum { PINNED_ALLOCATED_BYTES, PINNED_ALLOCATED_BLOCKS, PINNED_FREED_BYTES, PINNED_FREED_BLOCKS, PINNED_ENDED_BYTES };

typedef struct pinned {
    strata_resource resource;
    strata_device *device;      /* constant */
    strata_extent_arena *arena; /* constant; NULL: blocks are cut from slabs */
    strata_extent_source source;
    _Atomic bool arena_ready; /* the arena has begun; written under grow_lock, read by any thread */
    strata_lock grow_lock;    /* held by the thread that makes a slab, or begins the arena */
    pinned_slabs slabs;
    strata_counters counters;
    strata_spin index_lock;
    strata_address_index index; /* live, pending and cached blocks; guarded by index_lock */
    _Atomic uint64_t polls;     /* any thread, relaxed */
    pinned_lane lanes[PINNED_LANES];
} pinned;

static inline pinned_bytes *pinned_bytes_of(const pinned *self, strata_entry *entry)
{
    return (pinned_bytes *)(void *)((char *)entry + self->resource.block_offset);
}

static inline strata_entry *pinned_entry(const pinned *self, uint32_t slot)
{
    return strata_table_entry(strata_resource_table(&self->resource), slot);
}

static inline pinned_lane *pinned_lane_self(pinned *self)
{
    const strata_thread *thread = strata_thread_self();
    return &self->lanes[thread ? thread->index % PINNED_LANES : 0];
}

/* Sizes: multiples of 256 up to 4096, then four for each doubling up to a megabyte, as jemalloc's. */
static inline unsigned pinned_class(size_t bytes)
{
    if (bytes <= 4096)
        return (unsigned)((bytes + PINNED_UNIT - 1) / PINNED_UNIT) - 1;
    if (bytes > (size_t)1 << 20)
        return PINNED_NO_CLASS;
    const unsigned log2 = 63 - (unsigned)__builtin_clzll((bytes - 1) | 1);
    return 16 + (log2 - 12) * 4 + (unsigned)((bytes - 1) >> (log2 - 2) & 3);
}

static inline size_t pinned_class_bytes(unsigned class)
{
    if (class < 16)
        return (size_t)(class + 1) * PINNED_UNIT;
    const unsigned log2 = 12 + (class - 16) / 4;
    return ((size_t)1 << log2) + ((size_t)((class - 16) % 4 + 1) << (log2 - 2));
}

/* Memory that a block of `bytes` takes. */
static inline size_t pinned_room(size_t bytes, unsigned class)
{
    return class == PINNED_NO_CLASS ? (bytes + PINNED_UNIT - 1) & ~(size_t)(PINNED_UNIT - 1)
                                    : pinned_class_bytes(class);
}

/* A cached slot of the class, which is then the caller's; 0: none. */
uint32_t pinned_lane_take(pinned *self, unsigned class);

/* Adds a retired entry, which waits for `point` and its uses. Polls if it is time. */
void pinned_lane_add(pinned *self, strata_entry *entry, uint32_t slot, strata_point point);

/* Ends complete frees of all lanes. WAIT: first waits for those pending at the call. Returns the first error. */
strata_status pinned_lanes_reap(pinned *self, strata_reap_mode mode, size_t *bytes);

/* Empties the caches of all lanes; counts their bytes; adds the points of all pending frees. */
void pinned_lanes_flush(pinned *self);
size_t pinned_lanes_cached(pinned *self);
void pinned_lanes_sum(pinned *self, struct strata_stream_sums *sums);

/* ---- memory.c, take.c ---- */

typedef struct pinned_need {
    size_t room, alignment;
    void *memory; /* what was found; NULL: nothing yet */
    bool in_arena;
} pinned_need;

void pinned_memory_init(pinned *self);
void pinned_memory_destroy(pinned *self);

/* Takes memory of the arena or a slab. False: neither has room. */
bool pinned_memory_try(pinned *self, pinned_need *of);

/* Makes a slab if there is still no room. After SUCCESS without memory, *result is the driver's answer. */
strata_status pinned_memory_grow(pinned *self, pinned_need *of, CUresult *result);

/* Makes a slot of found memory, in the index; after an error the memory is free. Errors: OUT_OF_HOST_MEMORY. */
strata_status pinned_memory_enter(pinned *self, const strata_request *request, const pinned_need *of, unsigned class,
                                  uint32_t *slot);

/* Ends a slot, of which perhaps no block was made: its memory goes to the arena or its slab. */
void pinned_memory_give(pinned *self, uint32_t slot);

/* A slot for a request, with its address and index entry. Errors: OUT_OF_MEMORY, OUT_OF_HOST_MEMORY, DRIVER. */
strata_status pinned_take(pinned *self, const strata_request *request, unsigned class, uint32_t *slot);

/* Frees caches, free extents and slabs until at most `keep` bytes are reserved. */
strata_status pinned_trim_memory(pinned *self, size_t keep, size_t *freed);

/* ---- the rest ---- */

strata_status pinned_usage(strata_resource *resource, strata_usage *usage);
strata_status pinned_get_value(strata_resource *resource, size_t which, uint64_t *value);
extern const strata_value pinned_values[PINNED_VALUES];

extern const strata_resource_ops pinned_ops;
strata_status pinned_single_create(strata_device *device, const strata_pinned_options *options, strata_resource **out);

/* Raises the driver's answer; OUT_OF_MEMORY with what is in use. */
strata_status pinned_refuse(strata_resource *resource, const strata_request *request, CUresult result);

#endif
