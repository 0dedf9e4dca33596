/* One limit for several processes: a file in shared memory with a slot for each process.
 *
 *     limit >= lease of slot 0 + lease of slot 1 + ...        lease of a slot >= its bytes in use
 *
 * No sum is stored, so a process may be killed at any instruction. Within its lease a process charges with one atomic
 * operation on its slot. For a larger lease it takes the file's lock, frees slots of dead processes, and takes unused
 * parts of other leases.
 *
 * Locks are record locks of the file, which the kernel releases when a process ends: byte 0 is the file's lock, byte 1
 * + n belongs to the process of slot n. So a damaged file blocks no process.
 *
 * A process that takes from a lease sets `frozen`, reads `in_use`, lowers the lease, and clears `frozen`. The slot's
 * owner raises `in_use`, reads `frozen` and the lease, and undoes its charge if needed. All are sequentially
 * consistent: one of the two sees the other. */
#ifndef STRATA_RESOURCES_BUDGET_SHARED_H
#define STRATA_RESOURCES_BUDGET_SHARED_H

#include <strata/block.h>

#include <stdbool.h>

typedef struct budget_shared budget_shared;

typedef struct shared_terms {
    const char *name;  /* letters, digits, '.', '_', '-'; at most 48 */
    const char *group; /* group, by name or number; NULL or "": the user alone */
    const unsigned char *device;
    uint64_t limit; /* taken if no process uses the file */
} shared_terms;

/* Opens or makes the file and takes a slot. A process has one slot in a file; further calls share it. Errors:
 * INVALID_VALUE (name, group), IO (no access, damaged, wrong owner or permissions), BUSY (no free slot),
 * OUT_OF_HOST_MEMORY. */
strata_status shared_open(const shared_terms *terms, budget_shared **out);

/* The last close frees the slot. NULL is ignored. */
void shared_close(budget_shared *shared);

/* False: the lease is too small, see shared_make_room(). */
bool shared_take(budget_shared *shared, uint64_t bytes);

/* Grows the lease for `bytes`, of which `returning` will be given back. Takes the file's lock. */
bool shared_make_room(budget_shared *shared, uint64_t bytes, uint64_t returning);

/* Charges beyond the lease, after shared_make_room() with `returning`. */
void shared_take_for_reuse(budget_shared *shared, uint64_t bytes);
bool shared_is_covered(const budget_shared *shared);

void shared_give(budget_shared *shared, uint64_t bytes);

/* Of all processes. */
uint64_t shared_limit(const budget_shared *shared);
uint64_t shared_in_use(const budget_shared *shared);

/* For all processes. Errors: IO. */
strata_status shared_set_limit(budget_shared *shared, uint64_t limit);

/* Counters of tags are for display. shared_count takes no lock. */
uint32_t shared_tag_index(budget_shared *shared, strata_tag tag);
void shared_count(budget_shared *shared, uint32_t index, int64_t bytes);

#endif
