/* Rings of log lines: from the thread that records to the one that collects.
 *
 * A line is a cache line. A ring belongs to a thread's number: the thread with that number alone writes lines and moves
 * `head`, the collector alone reads them and moves `tail`; each looks at the other's word only when it seems to have
 * run out of lines. A thread takes its ring at its first record, out of a few that were made in advance, because
 * recording never allocates; until there is one, and while its ring is full, it counts what it drops.
 *
 * Inside of a call, lines are stored beyond `head` and published together at its end. A free takes its line before it
 * is passed down, so that what it reports to be complete comes after it, and lines of a ring ascend by their stamps.
 * Where calls are nested, by a function of the program's that a layer below calls, the lines of the inner ones are
 * published with the first call that ends while no line of a free is incomplete.
 *
 * A control line says whose lines follow and how many records were dropped before them. It comes first in a ring, and
 * wherever one of the two has changed. */
#ifndef STRATA_RESOURCES_LOGGING_RING_H
#define STRATA_RESOURCES_LOGGING_RING_H

#include "core/base/thread.h"

#include <strata/logging.h>

#include <semaphore.h>
#include <stdatomic.h>

enum {
    LOG_KIND_CONTROL = 0, /* in place of a strata_log_kind */
    LOG_LINE_BYTES = 64,
    LOG_SPARES = 8,         /* rings that are made in advance */
    LOG_MOST_SPARES = 64,   /* where more threads than that begin at once */
    LOG_DROP_RUN = 32,      /* records that are dropped at a time when a ring is full */
    LOG_AHEAD = 16,         /* lines that are asked for ahead of the one that is written */
    LOG_DURATION_SHIFT = 4, /* durations are kept in units of 16 ticks */
};

/* A record as a thread writes it. */
typedef struct log_line {
    uint64_t stamp;     /* CONTROL: not used */
    uint64_t stream;    /* the handle. CONTROL: the thread's serial */
    uint64_t address;   /* CONTROL: how many records were dropped before the next */
    uint64_t requested; /* CONTROL: the system's number of the thread */
    uint64_t bytes;
    uint64_t what;  /* generation << 16 | flags << 12 | kind << 8 | status */
    uint64_t where; /* tag << 32 | slot << 8 | access << 6 | alignment's logarithm */
    union {
        struct {
            uint32_t stream_id;
            uint32_t duration; /* in units of 16 ticks, at most UINT32_MAX */
        };
        uint64_t stream_alone; /* both written as one: the stream, and no duration */
    };
} log_line;

_Static_assert(sizeof(log_line) == LOG_LINE_BYTES, "a line is a cache line");

enum { LOG_WHAT_STATUS = 0, LOG_WHAT_KIND = 8, LOG_WHAT_FLAGS = 12, LOG_WHAT_GENERATION = 16 };
enum { LOG_WHERE_ALIGNMENT = 0, LOG_WHERE_ACCESS = 6, LOG_WHERE_SLOT = 8, LOG_WHERE_TAG = 32 };

enum { LOG_SLOT_LIMIT = 0xffffff };

/* Of a thread's calls under way in the layer: any; a free that has its line, which is not complete yet. */
enum { LOG_INSIDE = 1, LOG_FREE_OPEN = 2 };

/* The free that is under way, the innermost of several. */
typedef struct log_freeing {
    uint64_t generation; /* of the block; 0: none */
    uint64_t slot;       /* with LOG_FREED: it was reported complete */
} log_freeing;

#define LOG_FREED (UINT64_C(1) << 32)

static inline bool log_is_freed(const log_freeing *freeing)
{
    return freeing->slot & LOG_FREED;
}

typedef struct log_ring {
    /* The thread's own; `head` is read by the collector. */
    _Alignas(LOG_LINE_BYTES) _Atomic uint64_t head; /* lines published */
    uint64_t stored;                                /* lines written: beyond head inside of a call */
    uint64_t limit;                                 /* up to here without a look at anything else */
    uint64_t serial;                                /* of the thread that writes */
    uint64_t unstamped;                             /* inside of a call: lines from here on have no stamp yet */
    uint64_t changes;                               /* of known streams, when the next two were found */
    const void *stream;                             /* on which the thread freed last */
    uint32_t stream_id;                             /* what the log calls that one */
    log_freeing freeing;
    uint8_t state;       /* LOG_INSIDE, LOG_FREE_OPEN; 0: no call of this thread is under way in the layer */
    bool needs_control;  /* whose the lines are */
    uint32_t drops_left; /* records to drop without a look at the tail, which another thread writes */
    uint64_t mask;       /* lines - 1; constant */
    log_line *lines;     /* constant */
    /* Seldom written, by the thread; read by any, relaxed: statistics. */
    _Alignas(LOG_LINE_BYTES) _Atomic uint64_t dropped; /* records */
    _Atomic uint64_t controls;                         /* control lines published or stored */
    _Atomic uint64_t gap;  /* records dropped since the last line; also read by the collector at the end */
    struct log_ring *next; /* rings in use: set before publication */
    void *memory;          /* what the lines lie in; constant */
    /* The collector's; `tail` is read by the thread. */
    _Alignas(LOG_LINE_BYTES) _Atomic uint64_t tail; /* lines collected */
    uint64_t numbered;                              /* records of the thread so far, dropped ones included */
    uint64_t writer_serial;                         /* of the thread whose lines are collected */
    uint32_t writer_id;                             /* the system's number of it */
    uint64_t collected;                             /* lines: ahead of tail until they are given back */
    uint64_t end;                                   /* lines up to here are collected now */
} log_ring;

/* What a thread has without a ring. */
typedef struct log_thread_slot {
    _Atomic(log_ring *) ring; /* written once, by the thread with that number; read by any */
    uint64_t lost_serial;     /* of the thread that dropped records for want of a ring; its own, like lost */
    uint64_t lost;            /* how many: a gap in its numbers once it has a ring */
} log_thread_slot;

typedef struct log_rings {
    log_thread_slot slots[STRATA_THREAD_LIMIT];  /* by thread number; 0 is not used */
    _Atomic(log_ring *) used;                    /* through next: grows at the front, shrinks never; any thread */
    _Atomic(log_ring *) spares[LOG_MOST_SPARES]; /* taken by threads, put there by the collector */
    _Atomic uint64_t unassigned; /* records dropped for want of a ring; any thread, relaxed: statistics */
    _Atomic uint32_t wanted;     /* rings that threads have asked for and not got; any thread */
    _Atomic bool asleep;         /* the collector waits on `wake`; any thread */
    sem_t wake;
    uint64_t lines; /* of a ring; constant */
} log_rings;

/* Makes the rings with their first spares. `lines` is a power of two. False without host memory. */
bool log_rings_init(log_rings *rings, uint64_t lines);

/* No thread records any more. */
void log_rings_destroy(log_rings *rings);

/* Makes rings until there are as many spares as there should be. Not for threads that record. False without host
 * memory. */
bool log_rings_refill(log_rings *rings);

/* Wakes the collector, if it sleeps. Never blocks. */
void log_rings_wake(log_rings *rings);

/* The calling thread's ring at its first record, or after another thread had its number; NULL, with one record
 * dropped, if there is none. */
__attribute__((cold)) log_ring *log_ring_attach(log_rings *rings);

/* Makes room for a line if there is some; false, with one record dropped, if not. Wakes the collector when the ring is
 * three quarters full, unless the caller may not take that long: it is a system call, of some microseconds. */
__attribute__((cold)) bool log_ring_make_room(log_rings *rings, log_ring *ring, bool may_wake);

/* The records that no ring and no place took. Any thread. */
uint64_t log_rings_dropped(const log_rings *rings);

/* The records that were put into rings. Any thread. */
uint64_t log_rings_recorded(const log_rings *rings);

/* The ring that the calling thread, which is `thread`, has; NULL if it has none yet. */
static inline log_ring *log_ring_of(log_rings *rings, const strata_thread *thread)
{
    if (__builtin_expect(!thread, 0))
        return NULL;
    log_ring *ring = atomic_load_explicit(&rings->slots[thread->index].ring, memory_order_relaxed);
    return __builtin_expect(ring && ring->serial == thread->serial, 1) ? ring : NULL;
}

/* The same, and takes one. */
static inline log_ring *log_ring_self(log_rings *rings)
{
    log_ring *ring = log_ring_of(rings, strata_thread_current);
    return __builtin_expect(ring != NULL, 1) ? ring : log_ring_attach(rings);
}

/* The next line, to be filled; NULL, with a record dropped, if the ring is full. */
static inline log_line *log_ring_line(log_rings *rings, log_ring *ring, bool may_wake)
{
    if (__builtin_expect(ring->stored == ring->limit, 0) && !log_ring_make_room(rings, ring, may_wake))
        return NULL;
    return &ring->lines[ring->stored++ & ring->mask];
}

/* Has a line brought into this core's cache for writing. The collector's core has read it since it was written last, so
 * that the plain prefetch, which is what the compiler makes of one "for writing" unless the processor is named to it,
 * would leave the line where it must be fetched from again by the write. */
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
