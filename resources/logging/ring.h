/* Rings of log lines, from a recording thread to the collector.
 *
 *     lines  [ collected | published | stored by the call in progress | free ]
 *                        tail        head                             stored
 *
 * A line is a cache line. A ring belongs to a thread number: only the thread with that number writes lines and `head`;
 * only the collector reads lines and writes `tail`. Each reads the other's word only when it seems to have run out of
 * lines. A thread takes its ring at its first record from a few that exist, because recording never allocates. Without
 * a ring, or while it is full, records are dropped and counted.
 *
 * A call stores its lines beyond `head` and publishes them together at its end. A free takes its line before it is
 * passed down, so its completion comes after it and the stamps of a ring ascend. Lines of nested calls are published
 * with the first call that ends while no free's line is incomplete.
 *
 * A control line names the thread whose lines follow, and the number of records dropped before them. It is first in a
 * ring, and comes again whenever one of the two changes. */
#ifndef STRATA_RESOURCES_LOGGING_RING_H
#define STRATA_RESOURCES_LOGGING_RING_H

#include "core/base/thread.h"

#include <strata/logging.h>

#include <semaphore.h>
#include <stdatomic.h>

enum {
    LOG_KIND_CONTROL = 0, /* in place of a strata_log_kind */
    LOG_LINE_BYTES = 64,
    LOG_SPARES = 8,         /* rings made in advance */
    LOG_MOST_SPARES = 64,   /* at most, if many threads start at once */
    LOG_DROP_RUN = 32,      /* records dropped in a run when a ring is full */
    LOG_AHEAD = 16,         /* lines prefetched ahead of the one written */
    LOG_DURATION_SHIFT = 4, /* durations in units of 16 ticks */
};

typedef struct log_line {
    uint64_t stamp;     /* CONTROL: unused */
    uint64_t stream;    /* handle. CONTROL: serial of the thread */
    uint64_t address;   /* CONTROL: records dropped before the next */
    uint64_t requested; /* CONTROL: the system's thread id */
    uint64_t bytes;
    uint64_t what;  /* generation << 16 | flags << 12 | kind << 8 | status */
    uint64_t where; /* tag << 32 | slot << 8 | access << 6 | log2 of the alignment */
    union {
        struct {
            uint32_t stream_id;
            uint32_t duration; /* units of 16 ticks, at most UINT32_MAX */
        };
        uint64_t stream_alone; /* both in one store: stream_id and no duration */
    };
} log_line;

_Static_assert(sizeof(log_line) == LOG_LINE_BYTES, "a line is a cache line");

enum { LOG_WHAT_STATUS = 0, LOG_WHAT_KIND = 8, LOG_WHAT_FLAGS = 12, LOG_WHAT_GENERATION = 16 };
enum { LOG_WHERE_ALIGNMENT = 0, LOG_WHERE_ACCESS = 6, LOG_WHERE_SLOT = 8, LOG_WHERE_TAG = 32 };

enum { LOG_SLOT_LIMIT = 0xffffff };

/* State of a thread in the layer: in a call; in a free with an incomplete line. */
enum { LOG_INSIDE = 1, LOG_FREE_OPEN = 2 };

/* The innermost free in progress. */
typedef struct log_freeing {
    uint64_t generation; /* of the block; 0: none */
    uint64_t slot;       /* | LOG_FREED once it is reported complete */
} log_freeing;

#define LOG_FREED (UINT64_C(1) << 32)

static inline bool log_is_freed(const log_freeing *freeing)
{
    return freeing->slot & LOG_FREED;
}

typedef struct log_ring {
    /* Written by the thread; the collector reads `head`. */
    _Alignas(LOG_LINE_BYTES) _Atomic uint64_t head; /* lines published */
    uint64_t stored;                                /* lines written; beyond head inside a call */
    uint64_t limit;                                 /* `stored` may grow to here without a check of the tail */
    uint64_t serial;                                /* of the owning thread */
    uint64_t unstamped;                             /* inside a call: lines from here on have no stamp */
    uint64_t changes;                               /* strata_known_changes when the next two were stored */
    const void *stream;                             /* of the thread's last free */
    uint32_t stream_id;                             /* its id in the log */
    log_freeing freeing;
    uint8_t state;       /* LOG_INSIDE, LOG_FREE_OPEN; 0: no call in the layer */
    bool needs_control;  /* the owner has changed */
    uint32_t drops_left; /* records to drop without reading the tail, a shared line */
    uint64_t mask;       /* lines - 1; constant */
    log_line *lines;     /* constant */
    /* Seldom written, by the thread; any thread, relaxed. */
    _Alignas(LOG_LINE_BYTES) _Atomic uint64_t dropped; /* records */
    _Atomic uint64_t controls;                         /* control lines stored */
    _Atomic uint64_t gap;  /* records dropped since the last line; the collector reads it at the end */
    struct log_ring *next; /* in the list of used rings; set before publication */
    void *memory;          /* allocation of the lines; constant */
    /* The collector's; the thread reads `tail`. */
    _Alignas(LOG_LINE_BYTES) _Atomic uint64_t tail; /* lines collected */
    uint64_t numbered;                              /* records of the thread, dropped ones included */
    uint64_t writer_serial;                         /* thread of the lines collected now */
    uint32_t writer_id;                             /* its system id */
    uint64_t collected;                             /* lines; ahead of tail until given back */
    uint64_t end;                                   /* head, as read by this collection */
} log_ring;

typedef struct log_thread_slot {
    _Atomic(log_ring *) ring; /* written once, by the thread with that number; read by any */
    uint64_t lost_serial;     /* of the thread that dropped `lost` records for lack of a ring; that thread only */
    uint64_t lost;            /* a gap in its numbers once it has a ring */
} log_thread_slot;

typedef struct log_rings {
    log_thread_slot slots[STRATA_THREAD_LIMIT];  /* by thread number; 0 is unused */
    _Atomic(log_ring *) used;                    /* list that only grows, at its front; any thread */
    _Atomic(log_ring *) spares[LOG_MOST_SPARES]; /* filled by the collector, taken by threads */
    _Atomic uint64_t unassigned;                 /* records dropped for lack of a ring; any thread, relaxed */
    _Atomic uint32_t wanted;                     /* rings that threads lacked; any thread */
    _Atomic bool asleep;                         /* the collector waits on `wake`; any thread */
    sem_t wake;
    uint64_t lines; /* per ring; constant */
} log_rings;

/* `lines` is a power of two. False without host memory. */
bool log_rings_init(log_rings *rings, uint64_t lines);

/* No thread may record any more. */
void log_rings_destroy(log_rings *rings);

/* Makes the missing spares; recording threads must not call it. False without host memory. */
bool log_rings_refill(log_rings *rings);

/* Wakes a sleeping collector. Never blocks. */
void log_rings_wake(log_rings *rings);

/* Gives the calling thread a ring at its first record, or takes over the one of its number's last thread. NULL without
 * a spare: one record is dropped. */
__attribute__((cold)) log_ring *log_ring_attach(log_rings *rings);

/* Makes room for a line; false, with one record dropped, if the ring is full. Wakes the collector if the ring is three
 * quarters full and `may_wake`: a system call of some microseconds. */
__attribute__((cold)) bool log_ring_make_room(log_rings *rings, log_ring *ring, bool may_wake);

/* Records that no ring took. Any thread. */
uint64_t log_rings_dropped(const log_rings *rings);

/* Records in rings so far. Any thread. */
uint64_t log_rings_recorded(const log_rings *rings);

/* The ring of the calling thread `thread`; NULL if it has none yet. */
static inline log_ring *log_ring_of(log_rings *rings, const strata_thread *thread)
{
    if (__builtin_expect(!thread, 0))
        return NULL;
    log_ring *ring = atomic_load_explicit(&rings->slots[thread->index].ring, memory_order_relaxed);
    return __builtin_expect(ring && ring->serial == thread->serial, 1) ? ring : NULL;
}

/* As log_ring_of, and attaches one. */
static inline log_ring *log_ring_self(log_rings *rings)
{
    log_ring *ring = log_ring_of(rings, strata_thread_current);
    return __builtin_expect(ring != NULL, 1) ? ring : log_ring_attach(rings);
}

/* The next line to fill; NULL, with a record dropped, if the ring is full. */
static inline log_line *log_ring_line(log_rings *rings, log_ring *ring, bool may_wake)
{
    if (__builtin_expect(ring->stored == ring->limit, 0) && !log_ring_make_room(rings, ring, may_wake))
        return NULL;
    return &ring->lines[ring->stored++ & ring->mask];
}

/* Prefetches a line for writing. The collector's core has read it since the last write. Compilers emit the plain
 * prefetch unless the target has prefetchw; a plain one would fetch the line shared, and the write would fetch it
 * again. */
static inline void log_ring_own(log_line *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
}

static inline void log_ring_publish(log_ring *ring)
{
    const uint64_t stored = ring->stored;
    atomic_store_explicit(&ring->head, stored, memory_order_release);
    log_ring_own(&ring->lines[(stored + LOG_AHEAD) & ring->mask]);
}

#endif
