/* Rings of log lines, from a recording thread to the collector.
 *
 *     lines  [ collected | published | of the call in progress | free ]
 *                        tail        head                      stored
 *
 * A ring belongs to a thread number: only that thread writes lines and `head`, only the collector reads lines and
 * writes `tail`. Each reads the other's word only when it seems out of lines. Recording never allocates: a thread takes
 * a spare ring at its first record. Without one, or if the ring is full, records are dropped and counted.
 *
 * A call publishes its lines at its end. A free takes its line first, so its completion follows and stamps ascend.
 * Nested calls' lines are published with the first call that ends while no free's line is incomplete.
 *
 * A control line names the thread of the next lines and the records dropped before them: first, and after each change.
 */
#ifndef STRATA_RESOURCES_LOGGING_RING_H
#define STRATA_RESOURCES_LOGGING_RING_H

#include "core/base/per_thread.h"

#include <strata/logging.h>

#include <semaphore.h>
#include <stdatomic.h>

enum {
    LOG_KIND_CONTROL = 0, /* in place of a strata_log_kind */
    LOG_LINE_BYTES = 64,
    LOG_SPARES = 8,         /* rings made in advance */
    LOG_MOST_SPARES = 64,   /* most of them, if many threads start at once */
    LOG_DROP_RUN = 32,      /* records dropped in a run when a ring is full */
    LOG_AHEAD = 16,         /* lines to prefetch */
    LOG_DURATION_SHIFT = 4, /* units of 16 ticks */
};

typedef struct log_line {
    uint64_t stamp;     /* CONTROL: unused */
    uint64_t stream;    /* CONTROL: serial of the thread */
    uint64_t address;   /* CONTROL: records dropped before the next */
    uint64_t requested; /* CONTROL: system thread id */
    uint64_t bytes;
    uint64_t what;  /* generation << 16 | flags << 12 | kind << 8 | status */
    uint64_t where; /* tag << 32 | slot << 8 | access << 6 | log2 of the alignment */
    union {
        struct {
            uint32_t stream_id;
            uint32_t duration;
        };
        uint64_t stream_alone; /* stream_id and no duration in one store */
    };
} log_line;

_Static_assert(sizeof(log_line) == LOG_LINE_BYTES, "a line is a cache line");

enum { LOG_WHAT_STATUS = 0, LOG_WHAT_KIND = 8, LOG_WHAT_FLAGS = 12, LOG_WHAT_GENERATION = 16 };
enum { LOG_WHERE_ALIGNMENT = 0, LOG_WHERE_ACCESS = 6, LOG_WHERE_SLOT = 8, LOG_WHERE_TAG = 32 };

enum { LOG_SLOT_LIMIT = 0xffffff };

/* A ring's state: the thread is in a call; in a free whose line is incomplete. */
enum { LOG_INSIDE = 1, LOG_FREE_OPEN = 2 };

/* The innermost free in progress. */
typedef struct log_freeing {
    uint64_t generation; /* of the block; 0: no free is in progress */
    uint64_t slot;       /* | LOG_FREED once reported complete */
} log_freeing;

#define LOG_FREED (UINT64_C(1) << 32)

static inline bool log_is_freed(const log_freeing *freeing)
{
    return freeing->slot & LOG_FREED;
}

typedef struct log_ring {
    /* The thread's; the collector reads `head`. */
    _Alignas(LOG_LINE_BYTES) _Atomic uint64_t head; /* lines published */
    uint64_t stored;                                /* lines written; beyond head in a call */
    uint64_t limit;                                 /* `stored` may reach this without reading `tail` */
    uint64_t serial;                                /* of the thread that has the ring */
    uint64_t unstamped;                             /* first line without a stamp in a call */
    uint64_t changes;                               /* strata_known_changes when the next two were stored */
    const void *stream;                             /* last stream freed on */
    uint32_t stream_id;                             /* its id in the log */
    log_freeing freeing;
    uint8_t state;       /* 0: not in the layer */
    bool needs_control;  /* the thread changed */
    uint32_t drops_left; /* records to drop without reading `tail` */
    uint64_t mask;       /* lines - 1; constant */
    log_line *lines;     /* constant */
    /* Written by the thread, seldom; any thread, relaxed. */
    _Alignas(LOG_LINE_BYTES) _Atomic uint64_t dropped; /* records */
    _Atomic uint64_t controls;                         /* control lines stored */
    _Atomic uint64_t gap;  /* records dropped since the last line; at the end the collector reads it */
    struct log_ring *next; /* list of used rings; constant */
    void *memory;          /* of the lines; constant */
    /* The collector's; the thread reads `tail`. */
    _Alignas(LOG_LINE_BYTES) _Atomic uint64_t tail; /* lines collected */
    uint64_t numbered;                              /* the thread's records, dropped ones included */
    uint64_t writer_serial;                         /* thread of the lines collected now */
    uint32_t writer_id;                             /* its system id */
    uint64_t collected; /* lines collected so far; ahead of tail until they are given back */
    uint64_t end;       /* head at this collection */
} log_ring;

typedef struct log_thread_slot {
    _Atomic(log_ring *) ring; /* written once, by that thread; any thread */
    uint64_t lost_serial;     /* thread that lost records; that thread only */
    uint64_t lost;            /* records without a ring */
} log_thread_slot;

typedef struct log_rings {
    strata_per_thread found;                     /* each thread's ring, in its state; there are no slots */
    log_thread_slot slots[STRATA_THREAD_LIMIT];  /* by thread number; 0 is unused */
    _Atomic(log_ring *) used;                    /* pushed at the front; any thread */
    _Atomic(log_ring *) spares[LOG_MOST_SPARES]; /* collector fills, threads take */
    _Atomic uint64_t unassigned;                 /* records dropped without a ring; any thread, relaxed */
    _Atomic uint32_t wanted;                     /* missing rings; any thread */
    _Atomic bool asleep;                         /* waiting on `wake`; any thread */
    sem_t wake;
    uint64_t lines;         /* per ring; constant */
    log_ring **heap;        /* for merging, with room for all rings: no collection allocates; the collector's */
    size_t made, heap_room; /* rings; the collector's */
} log_rings;

/* Begins the rings of a log. `lines`: of each ring, a power of two. False without host memory. */
bool log_rings_init(log_rings *rings, uint64_t lines);

/* Requires that no thread records. */
void log_rings_destroy(log_rings *rings);

/* Makes missing spare rings; between collections, not on recording threads. False without host memory. */
bool log_rings_refill(log_rings *rings);

/* Wakes the collector if it sleeps. Never blocks. */
void log_rings_wake(log_rings *rings);

/* Gives the thread a ring, or its number's previous one. NULL without a spare; the record is dropped. */
__attribute__((cold)) log_ring *log_ring_attach(log_rings *rings);

/* Makes room for one more line. False if the ring is full; the record is dropped. If `may_wake`, wakes the collector at
 * three quarters (a system call of some microseconds). */
__attribute__((cold)) bool log_ring_make_room(log_rings *rings, log_ring *ring, bool may_wake);

/* Records dropped so far. Any thread. */
uint64_t log_rings_dropped(const log_rings *rings);

/* Records made so far, without dropped ones. Any thread. */
uint64_t log_rings_recorded(const log_rings *rings);

/* The calling thread's ring. NULL without one, and if the layer got no number for them. */
static inline log_ring *log_ring_fast(const log_rings *rings)
{
    return strata_per_thread_if_present(&rings->found);
}

/* A thread's ring; NULL: it has none. */
static inline log_ring *log_ring_of(const log_rings *rings, const strata_thread *thread)
{
    if (__builtin_expect(!thread, 0))
        return NULL;
    log_ring *ring = atomic_load_explicit(&rings->slots[thread->index].ring, memory_order_relaxed);
    return __builtin_expect(ring && ring->serial == thread->serial, 1) ? ring : NULL;
}

static inline log_ring *log_ring_self(log_rings *rings)
{
    log_ring *ring = log_ring_of(rings, strata_thread_current);
    return __builtin_expect(ring != NULL, 1) ? ring : log_ring_attach(rings);
}

/* The thread's next line; NULL if the ring is full: the record is dropped. */
static inline log_line *log_ring_line(log_rings *rings, log_ring *ring, bool may_wake)
{
    if (__builtin_expect(ring->stored == ring->limit, 0) && !log_ring_make_room(rings, ring, may_wake))
        return NULL;
    return &ring->lines[ring->stored++ & ring->mask];
}

/* Fetches the line that comes LOG_AHEAD lines later for writing: the collector's core has read it. Unless the target
 * has prefetchw, compilers emit a prefetch that fetches it shared; the write would fetch it again. Behind the ring's
 * end it does nothing. */
static inline void log_ring_own_ahead(log_line *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(line[LOG_AHEAD]));
#else
    __builtin_prefetch((const char *)line + LOG_AHEAD * sizeof *line, 1);
#endif
}

/* Publishes the thread's lines, of which `line` is the last. */
static inline void log_ring_publish_line(log_ring *ring, log_line *line)
{
    atomic_store_explicit(&ring->head, ring->stored, memory_order_release);
    log_ring_own_ahead(line);
}

static inline void log_ring_publish(log_ring *ring)
{
    log_ring_publish_line(ring, &ring->lines[(ring->stored - 1) & ring->mask]);
}

#endif
