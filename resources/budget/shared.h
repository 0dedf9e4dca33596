/* One limit for several processes: a file in shared memory with a slot for each process.
 *
 *     limit >= lease of slot 0 + lease of slot 1 + ...        lease of a slot >= its bytes in use (but for reuse)
 *              + quotas of threads (shared_quota.h)
 *
 * If the limit falls below the bytes in use, all leases are closed: a slot without a lease counts with its bytes in
 * use, and gets a lease again when the sum allows it.
 *
 * No sum is stored, so a process may be killed at any instruction. Within its lease a process charges its slot
 * without a lock. For a larger lease it takes the file's lock, frees slots of dead processes, and takes unused
 * parts of other leases.
 *
 * Locks are record locks, which the kernel releases when a process ends: byte 0 is the file's, byte 1 + n belongs to
 * the process of slot n.
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
    const char *group; /* name or number; NULL or "": the user alone */
    const unsigned char *device;
    uint64_t limit; /* becomes the file's limit if no process uses it */
} shared_terms;

/* Opens or makes the file and takes a slot; a process's calls share one. Errors: INVALID_VALUE (name, group), IO (no
 * access, damaged, wrong owner or permissions), BUSY (no free slot), OUT_OF_HOST_MEMORY. */
strata_status shared_open(const shared_terms *terms, budget_shared **out);

/* Writes the name that processes give the budget, from its path: the file may be damaged. */
enum { SHARED_NAME = 49 };
void shared_write_name(const budget_shared *shared, char name[SHARED_NAME]);

/* The last close frees the slot. NULL is ignored. */
void shared_close(budget_shared *shared);

/* Charges bytes within the lease. False: it is too small. */
bool shared_take(budget_shared *shared, uint64_t bytes);

/* Grows the lease for `bytes`, of which `returning` will be given back. Takes the file's lock. */
bool shared_make_room(budget_shared *shared, uint64_t bytes, uint64_t returning);

/* Charges bytes for reuse, which may exceed the lease, after shared_make_room() with `returning`; and whether the lease
 * covers what is in use. */
void shared_take_for_reuse(budget_shared *shared, uint64_t bytes);
bool shared_is_covered(const budget_shared *shared);

void shared_give(budget_shared *shared, uint64_t bytes);

/* Whether the file is not that of new processes any more, so that the lease cannot grow. Found by shared_make_room().
 */
bool shared_is_lost(const budget_shared *shared);

/* Raises IO, with the reason and what to do. */
strata_status shared_fail_lost(const budget_shared *shared);

/* The limit of all processes, and the bytes that they use. */
uint64_t shared_limit(const budget_shared *shared);
uint64_t shared_in_use(const budget_shared *shared);

/* Adds to this process's bytes whose charges have succeeded, and returns them. Their free counts before it gives. */
int64_t shared_count(budget_shared *shared, int64_t bytes);

/* Bytes of these that other processes claimed and that are not given back yet. */
uint64_t shared_own_claimed(const budget_shared *shared);

/* Bytes in use by the other processes at one moment. False: they changed while they were read. */
bool shared_others_at_once(const budget_shared *shared, uint64_t *bytes);

/* Sets the limit for all processes. Errors: IO. */
strata_status shared_set_limit(budget_shared *shared, uint64_t limit);

/* Bytes by tag, for display. shared_count_tag takes no lock. */
uint32_t shared_tag_index(budget_shared *shared, strata_tag tag);
void shared_count_tag(budget_shared *shared, uint32_t index, int64_t bytes);

#endif
