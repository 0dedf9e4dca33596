/* Competitors and what they can do. */
#ifndef STRATA_BENCH_PEERS_H
#define STRATA_BENCH_PEERS_H

#include "peer.h"

#include <strata/strata.h>

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    PEERS_LIMIT = 12,
    PEER_LABEL_SIZE = 12, /* a column's width */
    PEER_TEXT_SIZE = 512,
    PEER_SLOT_BYTES = 80, /* what any competitor's user stores of a block */
    PEER_QUEUE_BLOCKS = 64,
    PEER_SLOW_PAIR_NS = 20000,
};

typedef struct peer_kind peer_kind;

/* A competitor, as it was chosen. One thread. */
typedef struct peer_choice {
    const peer_kind *kind;
    char label[PEER_LABEL_SIZE];
    char text[PEER_TEXT_SIZE];    /* a stack's text, a library's path, else a description */
    char about[PEER_TEXT_SIZE];   /* for the report */
    const strata_peer *loaded;    /* for a library */
    bool pool;                    /* the stack `pool` alone; docs/measurements.md has its targets */
    bool production;              /* layers over `pool` */
    bool device;                  /* its blocks are device memory */
    bool waits;                   /* a free waits for its stream */
    bool slow;                    /* a pair takes so long that no sequence runs twice; set by verify_peer */
    char corrupt[PEER_TEXT_SIZE]; /* why it is excluded; "": it is not */
} peer_choice;

/* An open competitor with its streams and state. */
typedef struct peer {
    peer_choice *choice;
    const peer_kind *kind;
    size_t stream_count;
    CUstream *streams;
    CUstream unknown; /* an unknown stream; the floor has none */
    CUevent event;    /* for the one thread that frees on other streams */
    CUmemoryPool pool;
    strata_runtime *runtime;
    strata_resource *logging; /* the logging layer, whose rings are emptied between measurements; or NULL */
} peer;

/* One allocation or free of a sequence. */
typedef struct peer_step {
    uint64_t bytes; /* 0: a free */
    uint32_t slot;  /* where the block is stored */
    uint16_t stream;
    uint16_t elsewhere; /* 1: a free on another stream than the block was allocated on */
} peer_step;

/* Blocks on their way from one thread to another. */
typedef struct peer_queue {
    alignas(64) _Atomic size_t made;                            /* written by the allocating thread */
    alignas(64) _Atomic size_t taken;                           /* written by the freeing thread */
    alignas(64) char slots[PEER_QUEUE_BLOCKS][PEER_SLOT_BYTES]; /* the allocating thread's until it adds it to `made` */
} peer_queue;

/* A slot is `slot_bytes` of the caller's memory, aligned for a pointer. A failed call exits, except for an allocation
 * that finds no memory. */
struct peer_kind {
    const char *name;
    size_t slot_bytes;
    bool streams; /* whether it has any */

    /* It may hold at most `most` bytes of the device; 0: no limit. False: it cannot be limited so. */
    bool (*open)(peer *self, uint64_t most);
    void (*close)(peer *self);

    bool (*allocate)(peer *self, CUstream stream, size_t bytes, void *slot);
    void (*release)(peer *self, CUstream stream, void *slot); /* on the stream of its allocation */
    void (*release_elsewhere)(peer *self, CUstream stream, void *slot);
    void (*release_unknown)(peer *self, CUstream stream, void *slot); /* on peer.unknown */
    CUdeviceptr (*address)(const void *slot);

    uint64_t (*reserved_peak)(peer *self); /* since it was opened; 0: not known */
    void (*trim)(peer *self);              /* returns free memory to the device; all streams are idle */
    void (*collect)(peer *self);           /* its background work; may be NULL */

    /* The same calls in loops, compiled for each competitor: loops.h. */
    void (*pairs)(peer *self, CUstream stream, size_t bytes, size_t pairs);
    void (*unknown_pairs)(peer *self, CUstream stream, size_t bytes, size_t pairs);
    void (*groups)(peer *self, CUstream stream, size_t bytes, size_t live, size_t pairs);
    size_t (*steps)(peer *self, const peer_step *steps, size_t count, char *slots); /* returns how many were done */
    void (*produce)(peer *self, CUstream stream, size_t bytes, size_t count, peer_queue *queue);
    void (*consume)(peer *self, CUstream stream, size_t count, peer_queue *queue);
};

extern const peer_kind peer_driver; /* cuMemAllocFromPoolAsync and cuMemFreeAsync, called directly */
extern const peer_kind peer_floor;  /* host memory of the same sizes: a lower bound for an allocator */
extern const peer_kind peer_stack;  /* a stack of Strata's */
extern const peer_kind peer_loaded; /* from a library */

/* The allocator of the floor: "jemalloc", or the C library's "malloc". */
const char *peer_floor_label(void);
const char *peer_floor_about(void);

/* Open and close a competitor with `streams` streams. False, with nothing to close: it cannot be limited to `most`. The
 * device's context must be current here and below. */
bool peer_open(peer *self, peer_choice *choice, size_t streams, uint64_t most);
void peer_close(peer *self);

/* Waits until all streams are idle, and does the competitor's background work. `self` is a peer. */
void peer_drain(void *self);

/* Runs steps and frees the blocks that they leave. `live` has a byte for each slot, zero before and after. False: an
 * allocation found no memory. */
bool peer_run_steps(peer *self, const peer_step *steps, size_t count, char *slots, unsigned char *live, bool leftovers);

/* After `done` steps, frees the live blocks, each on the stream of its allocation. */
void peer_free_leftovers(peer *self, const peer_step *steps, size_t done, char *slots, unsigned char *live);

/* The column label of a stack's text; "budget, async" is async+1. */
void peer_label_stack(char label[PEER_LABEL_SIZE], const char *text);

/* Writes the text of a stack whose owner may reserve `most` bytes. False: the owner has options already, or `size` is
 * too small. */
bool peer_limit_stack(char *into, size_t size, const char *text, uint64_t most);

/* Opens the library at `path` and gets its competitor. False: `why` has the reason. */
bool peer_load(peer_choice *into, const char *path, char *why, size_t size);

#endif
