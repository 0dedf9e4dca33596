/* Strata's state of each thread: its number, its error record, and caches that keep the fast paths away from shared
 * words. Created at a thread's first call, freed when the thread ends. */
#ifndef STRATA_CORE_BASE_THREAD_H
#define STRATA_CORE_BASE_THREAD_H

#include <strata/status.h>

#include <stdint.h>

enum {
    STRATA_THREAD_LIMIT = 4096, /* numbers; threads beyond have none and take slow paths */
    STRATA_TABLE_LIMIT = 1024,  /* tables of blocks at a time */
    STRATA_STREAM_CACHE_SIZE = 8,
    STRATA_PER_THREAD_LIMIT = 128, /* numbers of per-thread slots, see core/base/per_thread.h */
};

struct strata_timeline;

/* The unknown streams that this thread saw last. */
typedef struct strata_stream_cache_line {
    uint64_t stream_id;
    struct strata_timeline *timeline;
} strata_stream_cache_line;

/* While a launch is prepared or finished, its stream is looked up once: core/streams/stream_map.h. */
typedef struct strata_stream_batch {
    CUstream handle;
    struct strata_timeline *timeline; /* NULL: no batch */
    uint64_t stream_id;
    uint64_t waited;            /* a point that this batch made the stream wait for, or 0 */
    struct strata_clock *clock; /* at finish: the stream's clock at the start */
    bool known;
    bool recording;
} strata_stream_batch;

/* What waits for this thread's in-flight frees saw of it: core/streams/inflight_frees.c. */
typedef struct strata_inflight_frees_seen {
    uint64_t wait; /* the last wait that looked */
    uint64_t word; /* at its first look */
    uint64_t over; /* the last wait that is done with this thread */
} strata_inflight_frees_seen;

typedef struct strata_thread {
    uint32_t index;  /* 1 ... STRATA_THREAD_LIMIT - 1, unique among living threads; 0: no number left */
    uint64_t serial; /* from 1, unique for the process */
    strata_error error;
    uint32_t suppress_depth;                     /* open strata_error_suppress_begin calls */
    strata_error suppressed;                     /* the last error raised since */
    struct strata_notice *notices, *last_notice; /* findings that wait for the end of suppression: core/base/error.c */
    strata_stream_batch batch;
    strata_stream_cache_line streams[STRATA_STREAM_CACHE_SIZE];
    /* Free slots by table number: core/blocks/blocks.c. Used by the thread itself without a lock; freed under the
     * threads' lock, when the thread ends, or as the table ends and no call that could use them is in flight. */
    struct strata_slot_cache *slots[STRATA_TABLE_LIMIT];
    _Atomic uint64_t inflight_frees; /* core/streams/inflight_frees.h; written by the thread, read by any */
    strata_inflight_frees_seen inflight_frees_seen; /* guarded by the threads' lock */
    void *per_thread[STRATA_PER_THREAD_LIMIT]; /* this thread's slots by number, after their first use; 0: NULL; freed
                                                  as `slots` */
    struct strata_thread *next, *previous;     /* all threads; guarded by the threads' lock */
} strata_thread;

extern _Thread_local strata_thread *strata_thread_current
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

strata_thread *strata_thread_start(void);

/* NULL if there is no host memory for it. */
static inline strata_thread *strata_thread_self(void)
{
    strata_thread *thread = strata_thread_current;
    return __builtin_expect(thread != NULL, 1) ? thread : strata_thread_start();
}

/* What a client of the thread state does when a thread ends. */
typedef struct strata_thread_exit_hook {
    void (*run)(strata_thread *thread); /* called by the ending thread, with the threads' lock held */
    struct strata_thread_exit_hook *next;
} strata_thread_exit_hook;

/* Adds a hook for good. A client adds it before it first stores in a thread's state what the hook releases, so such a
 * thread ends after its hook was added. Takes no lock. */
void strata_thread_add_exit_hook(strata_thread_exit_hook *hook);

/* Calls visit(thread, data) for each thread, with the threads' lock held. */
void strata_thread_visit_all(void (*visit)(strata_thread *thread, void *data), void *data);

#endif
