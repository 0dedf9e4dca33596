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
    PEER_LABEL_SIZE = 12,
    PEER_TEXT_SIZE = 512,
    PEER_SLOT_BYTES = 80, /* of a user */
    PEER_QUEUE_BLOCKS = 64,
    PEER_SLOW_PAIR_NS = 20000,
};

typedef struct peer_kind peer_kind;

/* peer_choice.room while several competitors are open, and while one is alone. */
#define PEER_ROOM  ((uint64_t)16 << 30)
#define PEER_ALONE STRATA_PEER_ALONE

/* One thread. */
typedef struct peer_choice {
    const peer_kind *kind;
    char label[PEER_LABEL_SIZE];
    char text[PEER_TEXT_SIZE]; /* a stack's text, a library's path, else a description */
    char about[PEER_TEXT_SIZE];
    const strata_peer *loaded;
    uint64_t room;                /* what one from a library may take from the device beforehand */
    bool pool;                    /* the stack `pool` alone; docs/benchmarks.md has its targets */
    bool production;              /* layers over `pool` */
    bool device;                  /* its blocks are device memory */
    bool waits;                   /* a free waits for its stream */
    bool slow;                    /* no sequence runs twice; set by verify_peer */
    char corrupt[PEER_TEXT_SIZE]; /* why it is excluded; "": it is not */
} peer_choice;

typedef struct peer {
    peer_choice *choice;
    const peer_kind *kind;
    size_t stream_count;
    CUstream *streams;
    CUstream unknown; /* an unknown stream; the floor has none */
    CUevent event;    /* of the thread that frees on other streams */
    CUmemoryPool pool;
    strata_runtime *runtime;
    strata_resource *logging; /* its rings are emptied between measurements; or NULL */
} peer;

typedef struct peer_step {
    uint64_t bytes; /* 0: a free */
    uint32_t slot;
    uint16_t stream;
    uint16_t elsewhere; /* 1: a free on another stream */
} peer_step;

/* From one thread to another. */
typedef struct peer_queue {
    alignas(64) _Atomic size_t made;                            /* written by the allocating thread */
    alignas(64) _Atomic size_t taken;                           /* written by the freeing thread */
    alignas(64) char slots[PEER_QUEUE_BLOCKS][PEER_SLOT_BYTES]; /* the allocating thread's until `made` counts it */
} peer_queue;

/* A slot is `slot_bytes` of the caller, aligned for a pointer. A failed call exits, except for an allocation without
 * memory. */
struct peer_kind {
    const char *name;
    size_t slot_bytes;
    bool streams;

    /* `most`: limit of device bytes; 0: none. False: it cannot be limited. */
    bool (*open)(peer *self, uint64_t most);
    void (*close)(peer *self);

    bool (*allocate)(peer *self, CUstream stream, size_t bytes, void *slot);
    void (*release)(peer *self, CUstream stream, void *slot); /* on the stream of its allocation */
    void (*release_elsewhere)(peer *self, CUstream stream, void *slot);
    void (*release_unknown)(peer *self, CUstream stream, void *slot); /* on peer.unknown */
    CUdeviceptr (*address)(const void *slot);

    uint64_t (*reserved_peak)(peer *self); /* since it was opened; 0: not known */
    void (*trim)(peer *self);              /* all streams are idle */
    void (*collect)(peer *self);           /* background work, or NULL */

    /* Timed loops: loops.h. */
    void (*pairs)(peer *self, CUstream stream, size_t bytes, size_t pairs);
    void (*unknown_pairs)(peer *self, CUstream stream, size_t bytes, size_t pairs);
    void (*groups)(peer *self, CUstream stream, size_t bytes, size_t live, size_t pairs);
    size_t (*steps)(peer *self, const peer_step *steps, size_t count, char *slots); /* returns how many were done */
    void (*produce)(peer *self, CUstream stream, size_t bytes, size_t count, peer_queue *queue);
    void (*consume)(peer *self, CUstream stream, size_t count, peer_queue *queue);
};

extern const peer_kind peer_driver; /* cuMemAllocFromPoolAsync and cuMemFreeAsync */
extern const peer_kind peer_floor;  /* host memory of the same sizes: a lower bound for an allocator */
extern const peer_kind peer_stack;
extern const peer_kind peer_loaded;

/* "jemalloc", or the C library's "malloc". */
const char *peer_floor_label(void);
const char *peer_floor_about(void);

/* False, with nothing to close: it cannot be limited to `most`. The context must be current here and below. */
bool peer_open(peer *self, peer_choice *choice, size_t streams, uint64_t most);
void peer_close(peer *self);

/* Waits for all streams, and does the background work. `self` is a peer. */
void peer_drain(void *self);

/* Runs steps and frees remaining blocks. `live` has a byte for each slot, zero before and after. False: no memory. */
bool peer_run_steps(peer *self, const peer_step *steps, size_t count, char *slots, unsigned char *live, bool leftovers);

/* Frees the blocks that are live after `done` steps. */
void peer_free_leftovers(peer *self, const peer_step *steps, size_t done, char *slots, unsigned char *live);

/* Writes a column's label: for "budget, async" that is async+1. */
void peer_label_stack(char label[PEER_LABEL_SIZE], const char *text);

/* Writes the text with `most` as its owner's limit. False: the owner has options, or `size` is too small. */
bool peer_limit_stack(char *into, size_t size, const char *text, uint64_t most);

/* Loads a competitor in a library. False: `why` has the reason. */
bool peer_load(peer_choice *into, const char *path, char *why, size_t size);

#endif
