/* A thread's state, from its first call to its end: number, error record, and caches that keep fast paths away from
 * shared words. */
#ifndef STRATA_CORE_BASE_THREAD_H
#define STRATA_CORE_BASE_THREAD_H

#include <strata/status.h>

#include <stddef.h>
#include <stdint.h>

enum {
    STRATA_THREAD_LIMIT = 4096, /* numbers; threads beyond have none and take slow paths */
    STRATA_TABLE_LIMIT = 1024,
    STRATA_STREAM_CACHE_SIZE = 8,
    STRATA_PER_THREAD_LIMIT = 128, /* numbers of per-thread slots */
};

struct strata_timeline;

/* The unknown streams that this thread saw last. */
typedef struct strata_stream_cache_line {
    uint64_t stream_id;
    struct strata_timeline *timeline;
} strata_stream_cache_line;

/* While a launch is prepared or finished, its stream is looked up once: core/streams/batches.h. */
typedef struct strata_stream_batch {
    CUstream handle;
    struct strata_timeline *timeline; /* NULL: no batch */
    struct strata_device *device;
    uint32_t incarnation; /* with `recording`: of the timeline */
    uint64_t stream_id;
    uint64_t waited;            /* point that this batch made the stream wait for, or 0 */
    struct strata_clock *clock; /* at finish: the stream's clock at the start */
    bool known;
    bool recording;
} strata_stream_batch;

/* What waits for in-flight frees saw of this thread: core/streams/inflight_frees.c. */
typedef struct strata_inflight_frees_seen {
    uint64_t wait; /* the last wait that looked */
    uint64_t word; /* at its first look */
    uint64_t over; /* the last wait that is done with this thread */
} strata_inflight_frees_seen;

typedef struct strata_thread {
    uint32_t index;  /* 1 ... STRATA_THREAD_LIMIT - 1, unique among living threads; 0: no number left */
    uint64_t serial; /* from 1, unique for the process */
    strata_error error;
    uint32_t suppress_depth;
    strata_error suppressed;                     /* the last error raised while suppressed */
    uint32_t internal_calls;                     /* open reaps and trims that the program did not ask for */
    struct strata_notice *notices, *last_notice; /* findings queued while errors are suppressed: core/base/error.c */
    strata_stream_batch batch;
    strata_stream_cache_line streams[STRATA_STREAM_CACHE_SIZE];
    /* Free slots by table number: core/blocks/blocks.c. Used by the thread itself without a lock; freed under the
     * threads' lock, when the thread ends, or when the table ends and no call that could use them is in flight. */
    struct strata_slot_cache *slots[STRATA_TABLE_LIMIT];
    _Atomic uint64_t inflight_frees; /* core/streams/inflight_frees.h; written by the thread, read by any */
    strata_inflight_frees_seen inflight_frees_seen; /* guarded by the threads' lock */
    void *per_thread[STRATA_PER_THREAD_LIMIT]; /* slots by number, after their first use; 0: NULL; freed as `slots` */
    struct strata_thread *next, *previous;     /* guarded by the threads' lock */
} strata_thread;

extern _Thread_local strata_thread *strata_thread_current
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The state's per_thread; without a state, as many NULLs: a fast path need not ask for the state. */
extern _Thread_local void *const *strata_thread_slots __attribute__((tls_model("initial-exec"), visibility("hidden")));

strata_thread *strata_thread_start(void);

/* NULL without host memory. */
static inline strata_thread *strata_thread_self(void)
{
    strata_thread *thread = strata_thread_current;
    return __builtin_expect(thread != NULL, 1) ? thread : strata_thread_start();
}

typedef struct strata_thread_exit_hook {
    void (*run)(strata_thread *thread); /* called by the ending thread, with the threads' lock held */
    struct strata_thread_exit_hook *next;
} strata_thread_exit_hook;

/* Adds a hook for good; takes no lock. Must precede the client's first store of what the hook releases in a thread's
 * state. */
void strata_thread_add_exit_hook(strata_thread_exit_hook *hook);

/* Calls `visit` for each thread, with the threads' lock held. */
void strata_thread_visit_all(void (*visit)(strata_thread *thread, void *data), void *data);

#endif
