/* Strata's state of each thread: its number, its error record, and caches that keep the fast paths away from shared
 * words. Created at a thread's first call, freed when the thread ends. */
#ifndef STRATA_CORE_BASE_THREAD_H
#define STRATA_CORE_BASE_THREAD_H

#include <strata/status.h>

#include <stdint.h>

enum {
    STRATA_THREAD_LIMIT = 4096,  /* numbers; threads beyond have none and take slow paths */
    STRATA_TABLE_LIMIT = 1024,   /* tables of blocks at a time */
    STRATA_SLOT_CACHE_SIZE = 64, /* free slots of one table that a thread caches */
    STRATA_STREAM_CACHE_SIZE = 8,
    STRATA_PER_THREAD_LIMIT = 128, /* numbers of cells, see core/base/per_thread.h */
};

struct strata_table;
struct strata_timeline;
struct strata_device;

/* Free slots of one table, handed out by this thread only. */
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

/* During prepare and finish of a launch its stream is looked up once: core/streams/stream_map.h. */
typedef struct strata_stream_batch {
    CUstream handle;
    struct strata_timeline *timeline; /* NULL: no batch */
    uint64_t stream_id;
    uint64_t waited;            /* a point that this batch made the stream wait for, or 0 */
    struct strata_clock *clock; /* at finish: the stream's clock at the start */
    bool known;
    bool recording;
} strata_stream_batch;

/* A finding that the log callback gets when suppression ends: core/base/error.h. */
typedef struct strata_notice {
    struct strata_notice *next;
    strata_error error;
} strata_notice;

/* What a waiter for this thread's in-flight frees saw of it: core/streams/inflight_frees.c. */
typedef struct strata_inflight_frees_seen {
    uint64_t wait; /* the last wait that looked */
    uint64_t word; /* at its first look */
    uint64_t over; /* the last wait that is done with this thread */
} strata_inflight_frees_seen;

typedef struct strata_thread {
    uint32_t index;  /* 1 ... STRATA_THREAD_LIMIT - 1, unique among living threads; 0: no number left */
    uint64_t serial; /* from 1, unique for the process */
    strata_error error;
    uint32_t suppress_depth; /* open strata_error_suppress_begin calls */
    strata_error suppressed; /* the last error raised since */
    strata_notice *notices, *last_notice;
    strata_stream_batch batch;
    strata_stream_cache_line streams[STRATA_STREAM_CACHE_SIZE];
    strata_slot_cache *slots[STRATA_TABLE_LIMIT]; /* by table number; created and used by the thread itself without a
                                                     lock; freed under the threads' lock, at the thread's end or, with
                                                     no call in flight that could use them, at the table's */
    uint32_t host_calls;                          /* until it has many: core/base/arena.c; the thread's own */
    uint32_t host_cache;             /* the thread's host memory cache plus one; 0: none; the thread's own */
    _Atomic uint64_t inflight_frees; /* see core/streams/inflight_frees.h; written by the thread, read by any */
    strata_inflight_frees_seen inflight_frees_seen; /* guarded by the threads' lock */
    void *cells[STRATA_PER_THREAD_LIMIT];  /* by number of the cells: this thread's, after its first use; NULL for 0;
                                              freed as `slots` */
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

/* Calls visit(thread, data) for each thread, with the threads' lock held. */
void strata_thread_visit_all(void (*visit)(strata_thread *thread, void *data), void *data);

#endif
