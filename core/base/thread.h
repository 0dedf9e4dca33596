/* What Strata keeps for each thread: a small number that is the thread's own while it lives, its error record, and
 * caches that save the fast paths from shared words. Made at a thread's first call, given back when the thread ends. */
#ifndef STRATA_CORE_BASE_THREAD_H
#define STRATA_CORE_BASE_THREAD_H

#include <strata/status.h>

#include <stdint.h>

enum {
    STRATA_THREAD_LIMIT = 4096,  /* numbers; threads beyond that have none, and go the slow ways */
    STRATA_TABLE_LIMIT = 1024,   /* tables of blocks at a time */
    STRATA_SLOT_CACHE_SIZE = 64, /* free slots that a thread keeps of one table */
    STRATA_STREAM_CACHE_SIZE = 8,
    STRATA_PER_THREAD_LIMIT = 128, /* numbers of cells, see core/base/per_thread.h */
};

struct strata_table;
struct strata_timeline;
struct strata_device;

/* Free slots of one table that only this thread hands out. */
typedef struct strata_slot_cache {
    struct strata_table *table;
    void (*give_back)(struct strata_slot_cache *cache); /* returns all slots; the threads' lock is held */
    uint32_t count;
    uint32_t slots[STRATA_SLOT_CACHE_SIZE];
} strata_slot_cache;

/* The unknown streams that this thread saw last. */
typedef struct strata_stream_cache_line {
    uint64_t stream_id;
    struct strata_timeline *timeline;
} strata_stream_cache_line;

/* While a launch is checked or committed, its stream is identified once: see core/streams/stream_map.h. */
typedef struct strata_stream_batch {
    CUstream handle;
    struct strata_timeline *timeline; /* NULL: no batch */
    uint64_t stream_id;
    uint64_t waited;            /* a point that the stream was made to wait for in this batch, or 0 */
    struct strata_clock *clock; /* while noting: what the stream had waited for at the begin */
    bool known;
    bool recording;
} strata_stream_batch;

/* What the log callback is to hear when the thread is hushed no more: core/base/error.h. */
typedef struct strata_notice {
    struct strata_notice *next;
    strata_error error;
} strata_notice;

/* What those who wait for a thread's frees have seen of it: core/streams/inflight_frees.c. */
typedef struct strata_inflight_frees_seen {
    uint64_t wait; /* the last one that looked */
    uint64_t word; /* at its first look */
    uint64_t over; /* the last one that need not wait any more */
} strata_inflight_frees_seen;

typedef struct strata_thread {
    uint32_t index;  /* 1 ... STRATA_THREAD_LIMIT - 1, of no other living thread; 0: numbers ran out */
    uint64_t serial; /* from 1, of no other thread ever */
    strata_error error;
    uint32_t suppress_depth; /* how many strata_error_suppress_begin are open */
    strata_error suppressed; /* the last one raised since then */
    strata_notice *notices, *last_notice;
    strata_stream_batch batch;
    strata_stream_cache_line streams[STRATA_STREAM_CACHE_SIZE];
    strata_slot_cache *slots[STRATA_TABLE_LIMIT]; /* by table number: made and used by the thread itself, without a
                                                     lock; dropped under the threads' lock, when it ends or no call that
                                                     could use them is in flight any more, as the table ends */
    uint32_t host_calls;             /* for host memory, until they are many: core/base/arena.c. The thread's own */
    uint32_t host_cache;             /* the thread's cache of host memory, plus one; 0: it has none. The thread's own */
    _Atomic uint64_t inflight_frees; /* see core/streams/inflight_frees.h. Written by the thread, read by any */
    strata_inflight_frees_seen inflight_frees_seen; /* guarded by the threads' lock */
    void *cells[STRATA_PER_THREAD_LIMIT];  /* by number of the cells: this thread's, once it was looked for; NULL
                                         for 0. The same rule */
    struct strata_thread *next, *previous; /* all threads; guarded by the threads' lock */
} strata_thread;

extern _Thread_local strata_thread *strata_thread_current
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

strata_thread *strata_thread_start(void);

/* The calling thread's state; NULL if there is no host memory for it. */
static inline strata_thread *strata_thread_self(void)
{
    strata_thread *thread = strata_thread_current;
    return __builtin_expect(thread != NULL, 1) ? thread : strata_thread_start();
}

/* Calls visit(thread, data) for each thread's state, with the threads' lock held. */
void strata_thread_visit_all(void (*visit)(strata_thread *thread, void *data), void *data);

#endif
