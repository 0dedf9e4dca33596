/* Records of retired bytes: shared_retired.h explains them. */
#include "resources/budget/shared_retired.h"

#include "resources/budget/shared_internal.h"

enum {
    STATE_BITS = 3,
    LIMIT_SHARE = 512,
    LARGEST_BATCH = 4 << 20,
    PLENTY = 256,  /* records in use, beyond which batches have no largest size */
    NEIGHBOURS = 8 /* batches where a stream's may be */
};

typedef enum shared_record_state {
    RECORD_FREE,
    RECORD_PREPARED,
    RECORD_PENDING,
    RECORD_CLAIMED,
    RECORD_RETURNED,
} shared_record_state;

static uint64_t state_of(uint64_t ticket, shared_record_state state)
{
    return ticket << STATE_BITS | (uint64_t)state;
}

static shared_record_state kind_of(uint64_t state)
{
    return (shared_record_state)(state & ((1u << STATE_BITS) - 1));
}

static bool change(shared_record *record, uint64_t ticket, shared_record_state from, shared_record_state to)
{
    uint64_t expected = state_of(ticket, from);
    return atomic_compare_exchange_strong_explicit(&record->state, &expected, state_of(ticket, to),
                                                   memory_order_seq_cst, memory_order_seq_cst);
}

static shared_retired_page *page_of(const shared_file *file, const shared_slot *slot)
{
    return (shared_retired_page *)&file->retired[slot - file->slots];
}

static shared_retired_page *own_page(const budget_shared *shared)
{
    return page_of(shared->file, shared_slot_of(shared));
}

/* A ticket names its record. */
static shared_record *record_of(const budget_shared *shared, uint64_t ticket)
{
    return &own_page(shared)->records[ticket % SHARED_RETIRED];
}

static uint32_t used_records(const shared_retired_page *page)
{
    uint32_t used = atomic_load_explicit(&page->used, memory_order_acquire);
    return used < SHARED_RETIRED ? used : SHARED_RETIRED;
}

/* ---- the process that frees ---- */

_Static_assert(SHARED_RETIRED >= PLENTY + LIMIT_SHARE + PLENTY / 2, "enough for all of the limit, and open batches");

/* How many bytes are worth a write. */
static uint64_t batch_bytes(const budget_shared *shared, uint32_t records_in_use)
{
    const uint64_t share = atomic_load_explicit(shared->limit, memory_order_relaxed) / LIMIT_SHARE;
    return share < LARGEST_BATCH || records_in_use >= PLENTY ? share : LARGEST_BATCH;
}

/* Finds a free record. Returns its index; SHARED_RETIRED: none is free. Under retired_lock. */
static uint32_t find_record(const shared_retired_page *page)
{
    uint32_t i = 0;
    while (i < SHARED_RETIRED &&
           kind_of(atomic_load_explicit(&page->records[i].state, memory_order_acquire)) != RECORD_FREE)
        i++;
    return i;
}

/* Takes a free record, and returns its new ticket. Under retired_lock. */
static uint64_t take_record(budget_shared *shared, uint32_t i)
{
    shared_retired_page *page = own_page(shared);
    uint64_t ticket = shared->last_ticket + 1;
    ticket += (i + SHARED_RETIRED - ticket % SHARED_RETIRED) % SHARED_RETIRED;
    shared->last_ticket = ticket;
    atomic_store_explicit(&page->records[i].state, state_of(ticket, RECORD_PREPARED), memory_order_release);
    if (i >= used_records(page))
        atomic_store_explicit(&page->used, i + 1, memory_order_release);
    return ticket;
}

/* Whether frees can still be added to a batch: a completion may have ended its record. */
static bool is_open(const budget_shared *shared, const shared_batch *batch)
{
    return batch->ticket && atomic_load_explicit(&record_of(shared, batch->ticket)->state, memory_order_relaxed) ==
                                state_of(batch->ticket, RECORD_PREPARED);
}

/* The batch of a stream, else the one nearby that is missed least. Under retired_lock. */
static shared_batch *batch_for(budget_shared *shared, uint64_t stream)
{
    const uint64_t at = (stream ^ stream >> 32) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    shared_batch *least = NULL;
    for (uint64_t i = 0; i < NEIGHBOURS; i++) {
        shared_batch *batch = &shared->batches[(at + i) % SHARED_BATCHES];
        if (!is_open(shared, batch))
            *batch = (shared_batch){.ticket = 0};
        if (batch->ticket && batch->stream == stream)
            return batch;
        if (!least || batch->bytes < least->bytes)
            least = batch;
    }
    return least;
}

/* The open batch of a stream. NULL: the free stays unrecorded, as no record is free or other streams have more. Under
 * retired_lock. */
static shared_batch *open_batch(budget_shared *shared, uint64_t stream, uint64_t bytes)
{
    shared_batch *batch = batch_for(shared, stream);
    if (batch->ticket && batch->stream == stream)
        return batch;
    if (batch->bytes > bytes)
        return NULL;
    if (batch->ticket) /* its few bytes stay unrecorded */
        change(record_of(shared, batch->ticket), batch->ticket, RECORD_PREPARED, RECORD_FREE);
    batch->ticket = 0;
    const uint32_t record = find_record(own_page(shared));
    if (record == SHARED_RETIRED)
        return NULL;
    *batch =
        (shared_batch){.stream = stream, .ticket = take_record(shared, record), .enough = batch_bytes(shared, record)};
    return batch;
}

/* Closes a batch. Returns whether the stream is to write its ticket. Under retired_lock. */
static bool close_batch(budget_shared *shared, shared_batch *batch)
{
    shared_record *record = record_of(shared, batch->ticket);
    atomic_store_explicit(&record->bytes, batch->bytes, memory_order_relaxed);
    return change(record, batch->ticket, RECORD_PREPARED, RECORD_PENDING);
}

uint64_t shared_retire(budget_shared *shared, const shared_free *of)
{
    uint64_t waiting = of->waiting, ticket = 0;
    strata_spin_take(&shared->retired_lock);
    shared_batch *batch = open_batch(shared, of->stream, of->bytes);
    if (batch && atomic_compare_exchange_strong_explicit(of->ticket, &waiting, batch->ticket, memory_order_acq_rel,
                                                         memory_order_relaxed)) {
        batch->bytes += of->bytes;
        if (batch->bytes >= batch->enough) {
            ticket = close_batch(shared, batch) ? batch->ticket : 0;
            batch->ticket = 0;
        }
    }
    strata_spin_release(&shared->retired_lock);
    return ticket;
}

/* The first completion of a record's blocks ends the record for all of them. */
void shared_retire_completed(budget_shared *shared, uint64_t ticket)
{
    if (ticket & SHARED_WAITING)
        return;
    shared_record *record = record_of(shared, ticket);
    if (change(record, ticket, RECORD_PREPARED, RECORD_FREE) || change(record, ticket, RECORD_PENDING, RECORD_FREE) ||
        atomic_load_explicit(&record->state, memory_order_seq_cst) != state_of(ticket, RECORD_CLAIMED))
        return;
    shared_slot *own = shared_slot_of(shared);
    uint64_t bytes = atomic_load_explicit(&record->bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&own->settling, bytes, memory_order_seq_cst); /* before the bytes are given back */
    if (!change(record, ticket, RECORD_CLAIMED, RECORD_RETURNED))           /* another thread did */
        atomic_fetch_sub_explicit(&own->settling, bytes, memory_order_seq_cst);
}

/* The lease falls before `settling`, so that what the slot takes of the limit never seems less: only this process reads
 * it with the lock. */
void shared_settle(budget_shared *shared)
{
    shared_slot *own = shared_slot_of(shared);
    shared_retired_page *page = own_page(shared);
    for (uint32_t i = 0; i < used_records(page); i++) {
        shared_record *record = &page->records[i];
        if (kind_of(atomic_load_explicit(&record->state, memory_order_seq_cst)) != RECORD_RETURNED)
            continue;
        uint64_t bytes = atomic_load_explicit(&record->bytes, memory_order_relaxed);
        int64_t lease = atomic_load_explicit(&own->lease, memory_order_relaxed);
        if (lease != SHARED_CLOSED && !__builtin_sub_overflow(lease, bytes, &lease))
            atomic_store_explicit(&own->lease, lease, memory_order_seq_cst);
        atomic_fetch_sub_explicit(&own->settling, bytes, memory_order_seq_cst);
        atomic_store_explicit(&record->state, RECORD_FREE, memory_order_release);
    }
}

/* ---- processes that need room ---- */

uint64_t shared_claimed(const budget_shared *shared, const shared_slot *slot)
{
    const shared_retired_page *page = page_of(shared->file, slot);
    uint64_t all = 0;
    for (uint32_t i = 0; i < used_records(page); i++) {
        const shared_record *record = &page->records[i];
        shared_record_state state = kind_of(atomic_load_explicit(&record->state, memory_order_seq_cst));
        if (state == RECORD_CLAIMED || state == RECORD_RETURNED)
            all += atomic_load_explicit(&record->bytes, memory_order_relaxed);
    }
    return all;
}

void shared_claim_complete(const budget_shared *shared, const shared_slot *slot)
{
    shared_retired_page *page = page_of(shared->file, slot);
    for (uint32_t i = 0; i < used_records(page); i++) {
        shared_record *record = &page->records[i];
        uint64_t state = atomic_load_explicit(&record->state, memory_order_acquire);
        uint64_t ticket = state >> STATE_BITS;
        if (kind_of(state) == RECORD_PENDING && atomic_load_explicit(&record->word, memory_order_acquire) == ticket)
            change(record, ticket, RECORD_PENDING, RECORD_CLAIMED);
    }
}

void shared_retired_clear(const shared_file *file, const shared_slot *slot)
{
    shared_retired_page *page = page_of(file, slot);
    for (uint32_t i = 0; i < used_records(page); i++) {
        atomic_store_explicit(&page->records[i].state, RECORD_FREE, memory_order_relaxed);
        atomic_store_explicit(&page->records[i].word, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&page->used, 0, memory_order_release);
}
