/* How much memory a pool holds, and in which chunks.
 *
 *     allowed = peak + min(max(peak * (share + bought), kept by threads), (limit - peak) / 2)
 *
 * A request that no free memory serves gets new memory within `allowed`. Beyond it free memory is moved to where it is
 * needed, and each chunk moved after the first ones buys a little more for later. What is still missing is made, up to
 * the limit. So memory is taken while it is plenty, and the less is held beyond what is live the closer the limit is.
 *
 * No clock: equal calls hold equal memory, except for what the device has completed and for decay. */
#ifndef STRATA_RESOURCES_POOL_POLICY_H
#define STRATA_RESOURCES_POOL_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All constants that decide about memory. Source: docs/measurements.md, "The pool's policy". Value, unit, reason. */
enum {
    POOL_SHARE = 44,            /* thousandths of the peak: a tenth held 2 % more on eight traces, no pass was faster */
    POOL_SHARE_FIXED = 250,     /* thousandths; memory that cannot be moved is given back instead */
    POOL_SHARE_MOST = 1000000,  /* thousandths; never moved while half of what is left suffices */
    POOL_BUY = 2,               /* thousandths of the peak for each chunk moved, but with prefer=memory: programs that
                                   go on moving stop soon */
    POOL_BUY_MOST = 8,          /* chunks that count of what one request moves: large requests, which move many, let
                                   copies of gnn_train hold 1.119 in the mean, not 1.097 */
    POOL_BUY_CONTIGUOUS = 100,  /* thousandths of the peak, at most, that moves buy with contiguous=SIZE: a free chunk
                                   serves one size alone, so with more, exchanges are as frequent */
    POOL_MOVES_FREE = 32,       /* chunks that are moved before the first buys: without them copies of gpt_train hold
                                   1.058 in the mean, not 1.037 */
    POOL_SHARE_POLLING = 40,    /* thousandths more, if streams are often asked: serving asks a sixth less; */
    POOL_SHARE_POLLED = 10,     /* and these each time that they are, not very often: more memory is of use there, */
    POOL_POLLING_MOST = 130,    /* up to this in all: with 30 more copies of serving held 1.21, with 10 less one of 61
                                   asked 12.1 times in 1,000 steps */
    POOL_SMALL_SPARE = 72,      /* of the reserved: as small a part of it, free for small blocks, is left to them: they
                                   asked as often as all others, for want of what large ones had moved */
    POOL_SMALL_MOST = 200,      /* thousandths of the peak, at most, are held beyond it so that small blocks get memory
                                   before they lack it: else they would hold the sum of two phases' peaks */
    POOL_AHEAD_MOST = 500,      /* thousandths of the peak, at most, instead of polls: with prefer=speed eight streams
                                   held 6.3 times what was live, not 1.8 */
    POOL_LEFT_SHARE = 2,        /* of what is left below the limit, at most this part is held: others need it too */
    POOL_CHUNK_SHARE = 512,     /* of what is left, a chunk: a cost by the chunk, a waste by its size, */
    POOL_LIMITED_SHARE = 2048,  /* and below max_size: with 512, gpt_train is refused a request at 1.03 times live */
    POOL_GROW_SHARE = 32,       /* of the reserved, least growth at the end of memory: few driver calls */
    POOL_SMALL_SHARE = 16,      /* of the small side's memory, its largest chunk and least growth */
    POOL_SMALL_BLOCK = 1 << 20, /* bytes; blocks below it live apart */
    POOL_KEPT_MOST = 64,        /* MiB that threads keep, for which the pool grows */
    POOL_KEPT_SHARE = 64,       /* of the reserved, at most such a part is kept as one block by a thread that shares its
                                   stream: a small training of two threads held 298 MiB, not 286 */
    POOL_CHUNK_MEMORY = 4,      /* MiB: largest chunk with prefer=memory */
    POOL_CHUNK_OF_MEMORY = 128, /* of the reserved, at most such a part: the same training held 292 MiB, not 284 */
    POOL_CHUNK_LARGEST = 32,    /* MiB: largest chunk, or a part of what is made at once if that is more: with up to 1
                                   GiB copies of gnn_train held up to 1.225, with these 1.143 */
    POOL_CHUNK_PARTS = 4,       /* that part: a cost by the chunk */
    POOL_FIXED_FIT = 2000,      /* thousandths of a request, at most, is a larger whole chunk that serves it */
    POOL_CHUNK_FIXED = 16,      /* MiB: largest chunk of a layer below for several requests */
};

struct pool;
struct pool_need;

typedef struct pool_policy {
    double share;                /* of the peak, from the start; constant once started, as the next */
    double buys;                 /* of the peak, for each chunk moved after the first ones */
    uint64_t polling_share;      /* thousandths, 0 until streams are often asked; guarded by map_lock, like all below */
    uint64_t peak;               /* most live bytes, by the slow calls; with decay of this window */
    uint64_t last_peak;          /* with decay: of the window before */
    _Atomic uint64_t moved;      /* chunks, some for each request; any thread, relaxed, like the next two */
    _Atomic uint64_t limit_seen; /* nearest limit when last looked at */
    _Atomic uint64_t allowed;    /* what pool_allowed said then */
} pool_policy;

/* Sets the constants, before the first request. map_lock is held for the other functions, unless said. */
void pool_policy_begin(struct pool *self);

/* Most bytes that budgets above and below the pool let it reserve; UINT64_MAX: no limit. No lock is held. */
uint64_t pool_limit_by_budgets(const struct pool *self, const struct pool_need *need);

/* Whether memory may be made instead of asking streams. False: pool_allowed might allow it. Makes no call. */
bool pool_may_grow_ahead(struct pool *self, const struct pool_need *need);

/* Bytes that may be reserved before memory is moved. */
uint64_t pool_allowed(struct pool *self, const struct pool_need *need);

/* Whether at most a `part`-th of what is reserved is free for small blocks, while streams are often asked. False where
 * nothing may be held for that: with max_size, prefer=memory or a given overhead. */
bool pool_lacks_small(struct pool *self, uint64_t part);

/* Whether new memory is taken before threads give back what they keep. No lock is held. */
bool pool_lets_threads_keep(const struct pool *self);

/* Size of the next chunk, where `bytes` are made at once. */
uint64_t pool_chunk_size(struct pool *self, const struct pool_need *need, uint64_t bytes);

/* Least bytes to make when memory grows, where the hole has room. */
uint64_t pool_least_made(struct pool *self, const struct pool_need *need);

/* Records that one step of a request moved this many chunks. */
void pool_policy_record_moves(struct pool *self, uint64_t chunks);

/* Moves that count: those after the first POOL_MOVES_FREE. No lock is held. */
uint64_t pool_policy_moves(const struct pool *self);

/* Part of the peak that moved chunks and frequent polls have added to what is allowed. */
double pool_policy_bought(const struct pool *self);

/* Most live bytes so far, with this request. */
uint64_t pool_peak_with(const struct pool *self, const struct pool_need *need);
void pool_record_peak(struct pool *self, const struct pool_need *need);

/* Lowers the peak to what is reserved, after memory was returned. */
void pool_lower_peak(struct pool *self);

/* Ends a window of decay: peaks of earlier windows than this one no longer count. */
void pool_policy_end_window(struct pool *self);

#endif
