/* Rings: the slow paths. */
#include "resources/logging/ring.h"

#include "core/base/host_memory.h"

#include <unistd.h>

/* Separate memory for lines: zeroed pages are mapped at first touch, so a ring costs what was written. */
static log_ring *make_ring(uint64_t lines)
{
    log_ring *ring = strata_host_zalloc_aligned(LOG_LINE_BYTES, sizeof *ring);
    char *memory = ring ? strata_host_zalloc(lines * sizeof(log_line) + LOG_LINE_BYTES) : NULL;
    if (!memory) {
        strata_host_free(ring);
        return NULL;
    }
    ring->memory = memory;
    ring->lines = (log_line *)(((uintptr_t)memory + LOG_LINE_BYTES - 1) & ~(uintptr_t)(LOG_LINE_BYTES - 1));
    ring->mask = lines - 1;
    return ring;
}

/* Makes room for one more ring in the heap, whose content is not kept. False without host memory. */
static bool make_heap_room(log_rings *rings)
{
    enum { STEP = 64 };
    if (rings->made < rings->heap_room)
        return true;
    log_ring **larger = strata_host_zalloc((rings->heap_room + STEP) * sizeof *larger);
    if (!larger)
        return false;
    strata_host_free(rings->heap);
    rings->heap = larger;
    rings->heap_room += STEP;
    return true;
}

bool log_rings_refill(log_rings *rings)
{
    size_t wanted = LOG_SPARES + atomic_exchange_explicit(&rings->wanted, 0, memory_order_relaxed);
    for (size_t i = 0; i < LOG_MOST_SPARES && i < wanted; i++) {
        if (atomic_load_explicit(&rings->spares[i], memory_order_relaxed))
            continue;
        log_ring *ring = make_heap_room(rings) ? make_ring(rings->lines) : NULL;
        if (!ring)
            return false;
        rings->made++;
        atomic_store_explicit(&rings->spares[i], ring, memory_order_release);
    }
    return true;
}

bool log_rings_init(log_rings *rings, uint64_t lines)
{
    rings->lines = lines;
    strata_per_thread_take_number(&rings->found);
    if (sem_init(&rings->wake, 0, 0) != 0) {
        strata_per_thread_destroy(&rings->found);
        return false;
    }
    if (log_rings_refill(rings))
        return true;
    log_rings_destroy(rings);
    return false;
}

static void destroy_ring(log_ring *ring)
{
    if (ring)
        strata_host_free(ring->memory);
    strata_host_free(ring);
}

void log_rings_destroy(log_rings *rings)
{
    strata_per_thread_destroy(&rings->found);
    for (size_t i = 0; i < LOG_MOST_SPARES; i++)
        destroy_ring(atomic_load_explicit(&rings->spares[i], memory_order_relaxed));
    log_ring *next, *ring = atomic_load_explicit(&rings->used, memory_order_relaxed);
    for (; ring; ring = next) {
        next = ring->next;
        destroy_ring(ring);
    }
    strata_host_free(rings->heap);
    sem_destroy(&rings->wake);
}

void log_rings_wake(log_rings *rings)
{
    if (atomic_load_explicit(&rings->asleep, memory_order_relaxed) &&
        atomic_exchange_explicit(&rings->asleep, false, memory_order_relaxed))
        sem_post(&rings->wake);
}

/* ---- the thread's side ---- */

static inline void add(_Atomic uint64_t *to, uint64_t count)
{
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + count, memory_order_relaxed);
}

static log_ring *take_spare(log_rings *rings)
{
    for (size_t i = 0; i < LOG_MOST_SPARES; i++) {
        log_ring *ring = atomic_exchange_explicit(&rings->spares[i], NULL, memory_order_acquire);
        if (ring)
            return ring;
    }
    return NULL;
}

static void enter_ring(log_rings *rings, log_ring *ring)
{
    log_ring *first = atomic_load_explicit(&rings->used, memory_order_relaxed);
    do
        ring->next = first;
    while (
        !atomic_compare_exchange_weak_explicit(&rings->used, &first, ring, memory_order_release, memory_order_relaxed));
}

static void drop_record(log_ring *ring)
{
    add(&ring->dropped, 1);
    add(&ring->gap, 1);
}

/* Writes a control line, for which there is room. */
static void store_control(log_ring *ring)
{
    ring->lines[ring->stored++ & ring->mask] = (log_line){
        .stream = ring->serial,
        .requested = (uint64_t)gettid(),
        .address = atomic_load_explicit(&ring->gap, memory_order_relaxed),
        .what = LOG_KIND_CONTROL << LOG_WHAT_KIND,
    };
    atomic_store_explicit(&ring->gap, 0, memory_order_relaxed);
    add(&ring->controls, 1);
}

/* Gives a ring to a thread. `limit` makes the next line check for room and write a control line first. */
static void hand_over(log_ring *ring, uint64_t serial)
{
    ring->serial = serial;
    ring->limit = ring->stored;
    ring->state = 0;
    ring->freeing = (log_freeing){0};
    ring->drops_left = 0;
    ring->changes = UINT64_MAX;
    ring->needs_control = true;
}

static log_ring *refuse_ring(log_rings *rings)
{
    atomic_fetch_add_explicit(&rings->unassigned, 1, memory_order_relaxed);
    log_rings_wake(rings);
    return NULL;
}

log_ring *log_ring_attach(log_rings *rings)
{
    strata_thread *thread = strata_thread_self();
    if (!thread || !thread->index)
        return refuse_ring(rings);
    log_thread_slot *slot = &rings->slots[thread->index];
    log_ring *ring = atomic_load_explicit(&slot->ring, memory_order_relaxed);
    bool fresh = !ring;
    uint64_t lost = slot->lost_serial == thread->serial ? slot->lost : 0;
    if (fresh && !(ring = take_spare(rings))) {
        if (!lost)
            atomic_fetch_add_explicit(&rings->wanted, 1, memory_order_relaxed);
        slot->lost = lost + 1;
        slot->lost_serial = thread->serial;
        return refuse_ring(rings);
    }
    hand_over(ring, thread->serial);
    strata_per_thread_keep(&rings->found, thread, ring);
    atomic_store_explicit(&ring->gap, fresh ? lost : 0, memory_order_relaxed);
    if (fresh) {
        atomic_store_explicit(&slot->ring, ring, memory_order_release);
        enter_ring(rings, ring);
        log_rings_wake(rings); /* makes another spare */
    }
    return ring;
}

bool log_ring_make_room(log_rings *rings, log_ring *ring, bool may_wake)
{
    const uint64_t size = ring->mask + 1;
    if (ring->drops_left) {
        ring->drops_left--;
        drop_record(ring);
        return false;
    }
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    bool needs_control = ring->needs_control || atomic_load_explicit(&ring->gap, memory_order_relaxed);
    if (size - (ring->stored - tail) < (needs_control ? 2u : 1u)) {
        drop_record(ring);
        ring->drops_left = size > 16 * LOG_DROP_RUN ? LOG_DROP_RUN : 0;
        if (may_wake)
            log_rings_wake(rings);
        return false;
    }
    if (needs_control)
        store_control(ring);
    ring->needs_control = false;
    bool pressed = ring->stored - tail >= size - size / 4;
    if (pressed && may_wake)
        log_rings_wake(rings);
    uint64_t next_look = ring->stored + (pressed && !may_wake ? 1 : size / 4);
    ring->limit = next_look < tail + size ? next_look : tail + size;
    return true;
}

/* ---- statistics ---- */

uint64_t log_rings_dropped(const log_rings *rings)
{
    uint64_t sum = atomic_load_explicit(&rings->unassigned, memory_order_relaxed);
    for (const log_ring *ring = atomic_load_explicit(&rings->used, memory_order_acquire); ring; ring = ring->next)
        sum += atomic_load_explicit(&ring->dropped, memory_order_relaxed);
    return sum;
}

uint64_t log_rings_recorded(const log_rings *rings)
{
    uint64_t sum = 0;
    for (const log_ring *ring = atomic_load_explicit(&rings->used, memory_order_acquire); ring; ring = ring->next) {
        uint64_t controls = atomic_load_explicit(&ring->controls, memory_order_relaxed);
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        sum += head > controls ? head - controls : 0;
    }
    return sum;
}
