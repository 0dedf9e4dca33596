/* Competitors: which there are, and what each of them can be made to do. */
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
    PEER_SLOT_BYTES = 80, /* what any competitor's user keeps of a block */
    PEER_QUEUE_BLOCKS = 64,
    PEER_SLOW_PAIR_NS = 20000,
};

typedef struct peer_kind peer_kind;

/* The competitors. One thread. */
typedef struct peer_choice {
    const peer_kind *kind;
    char label[PEER_LABEL_SIZE];
    char text[PEER_TEXT_SIZE];    /* of a stack its text, of a library its path, else a line about it */
    char about[PEER_TEXT_SIZE];   /* for the report */
    const strata_peer *loaded;    /* of a library */
    bool pool;                    /* the stack `pool` alone, whose targets stand in docs/pool.md */
    bool production;              /* layers over `pool` */
    bool device;                  /* its blocks are device memory */
    bool waits;                   /* a free waits for its stream */
    bool slow;                    /* a pair takes so long that no sequence is run twice; verify_peer finds out */
    char corrupt[PEER_TEXT_SIZE]; /* what it was caught at: it is measured no more; "": nothing */
} peer_choice;

/* A competitor at work: streams, and whatever it keeps its memory in. */
typedef struct peer {
    peer_choice *choice;
    const peer_kind *kind;
    size_t stream_count;
    CUstream *streams;
    CUstream unknown; /* one that Strata was never told about; of all but the floor */
    CUevent event;    /* of the one thread that frees on other streams */
    CUmemoryPool pool;
    strata_runtime *runtime;
    strata_resource *logging; /* the layer of that name, whose rings are emptied between measurements; or NULL */
} peer;

/* One step of a sequence of allocations and frees. */
typedef struct peer_step {
    uint64_t bytes; /* 0: a free */
    uint32_t slot;  /* where the block is kept */
    uint16_t stream;
    uint16_t elsewhere; /* 1: a free on another stream than the block was allocated on */
} peer_step;

/* Blocks on their way from one thread to another. */
typedef struct peer_queue {
    alignas(64) _Atomic size_t made;                            /* written by the thread that allocates */
    alignas(64) _Atomic size_t taken;                           /* written by the thread that frees */
    alignas(64) char slots[PEER_QUEUE_BLOCKS][PEER_SLOT_BYTES]; /* the allocating thread's until it counts it as made */
} peer_queue;

/* A slot is `slot_bytes` of memory that is the caller's and has the alignment of a pointer. A call that fails ends the
 * program, but for an allocation that finds no memory. */
struct peer_kind {
    const char *name;
    size_t slot_bytes;
    bool streams; /* has any */

    /* With `most`, it may hold at most so many bytes of the device's. False: it cannot be held to that. */
    bool (*open)(peer *self, uint64_t most);
    void (*close)(peer *self);

    bool (*allocate)(peer *self, CUstream stream, size_t bytes, void *slot);
    void (*release)(peer *self, CUstream stream, void *slot); /* on the stream on which it was allocated */
    void (*release_elsewhere)(peer *self, CUstream stream, void *slot);
    void (*release_unknown)(peer *self, CUstream stream, void *slot); /* as release, for peer.unknown */
    CUdeviceptr (*address)(const void *slot);

    uint64_t (*reserved_peak)(peer *self); /* since it was opened; 0: not known */
    void (*trim)(peer *self);              /* gives the device back what is free; all streams are idle */
    void (*collect)(peer *self);           /* what a competitor does behind its user's back; NULL: nothing */

    /* The same calls in loops, each compiled for its competitor: loops.h. */
    void (*pairs)(peer *self, CUstream stream, size_t bytes, size_t pairs);
    void (*unknown_pairs)(peer *self, CUstream stream, size_t bytes, size_t pairs);
    void (*groups)(peer *self, CUstream stream, size_t bytes, size_t live, size_t pairs);
    size_t (*steps)(peer *self, const peer_step *steps, size_t count, char *slots); /* how many were done */
    void (*produce)(peer *self, CUstream stream, size_t bytes, size_t count, peer_queue *queue);
    void (*consume)(peer *self, CUstream stream, size_t count, peer_queue *queue);
};

extern const peer_kind peer_driver; /* cuMemAllocFromPoolAsync and cuMemFreeAsync, called barely */
extern const peer_kind peer_floor;  /* host memory of the same sizes: less than this an allocator hardly takes */
extern const peer_kind peer_stack;  /* a stack of Strata's */
extern const peer_kind peer_loaded; /* from a library of its own */

/* Which allocator the floor is: "jemalloc", or the C library's "malloc". */
const char *peer_floor_label(void);
const char *peer_floor_about(void);

/* Opens and closes a competitor with so many streams. False, with nothing to close: `most` is not 0 and it cannot be
 * held to that. The device's context must be current here and below. */
bool peer_open(peer *self, peer_choice *choice, size_t streams, uint64_t most);
void peer_close(peer *self);

/* Waits until all streams are idle, and lets the competitor do what it does behind its user's back. `self` is a peer.
 */
void peer_drain(void *self);

/* Runs steps and frees whatever they leave behind. `live` has a byte for each slot, all zero, and so it is left. False:
 * there was no memory for one of them. */
bool peer_run_steps(peer *self, const peer_step *steps, size_t count, char *slots, unsigned char *live, bool leftovers);

/* After `done` of the steps, frees what is live, each block on the stream on which it was allocated. */
void peer_free_leftovers(peer *self, const peer_step *steps, size_t done, char *slots, unsigned char *live);

/* What stands in a column where a stack of this text is; for "budget, async" async+1. */
void peer_label_stack(char label[PEER_LABEL_SIZE], const char *text);

/* Writes the text of a stack whose owner may reserve `most` bytes. False: its owner has options already, or it does not
 * fit. */
bool peer_limit_stack(char *into, size_t size, const char *text, uint64_t most);

/* Opens the library at `path` and asks it for its competitor. False, with a sentence. */
bool peer_load(peer_choice *into, const char *path, char *why, size_t size);

#endif
