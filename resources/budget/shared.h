/* One limit for several processes: a file in shared memory with a slot for each of them.
 *
 * A slot has the process's *lease*, what of the limit it may use, and how much of that it uses. The leases of all slots
 * add up to at most the limit, and that is all there is to keep: no sum is stored, so no process that dies at whatever
 * instruction leaves a wrong one. Within its lease a process charges and gives back with one atomic operation on its
 * own slot. To get more, it takes the file's lock, adds up the leases, ends those of the dead, and takes from others
 * what they do not use.
 *
 * Both locks are record locks of the file, which the kernel releases when a process ends however it ends: byte 0 is the
 * file's, byte 1 + n is held by the process of slot n for as long as it lives. The file itself says nothing about who
 * holds them, so a damaged one cannot block anybody.
 *
 * Taking from others. The taker, with the lock, marks the slot frozen, reads what is used, lowers the lease to no less,
 * and takes the mark away. The owner first raises what is used, then looks at the mark and the lease, and takes it back
 * if it may not: in the one order of all of these, either the taker sees the use or the owner sees the taker. */
#ifndef STRATA_RESOURCES_BUDGET_SHARED_H
#define STRATA_RESOURCES_BUDGET_SHARED_H

#include <strata/block.h>

#include <stdbool.h>

typedef struct budget_shared budget_shared;

/* What is asked of shared_open. */
typedef struct shared_terms {
    const char *name;  /* letters, digits, '.', '_', '-'; at most 48 */
    const char *group; /* a group's name or number that may use the file too; NULL or "": its owner alone */
    const unsigned char *device;
    uint64_t limit; /* for a file that nobody uses */
} shared_terms;

/* Opens the file, makes it if there is none, and takes a slot; a process has each file once, and a slot in it. Errors:
 * INVALID_VALUE (name, group), IO (the file cannot be had, is not what it has to be, or belongs to somebody else), BUSY
 * (every slot is taken), OUT_OF_HOST_MEMORY. */
strata_status shared_open(const shared_terms *terms, budget_shared **out);

/* Gives the slot back, if nobody else in the process has it. */
void shared_close(budget_shared *shared);

/* Charges within the lease. */
bool shared_take(budget_shared *shared, uint64_t bytes);

/* Tries to make the lease so large that `bytes` more can be charged, of which `coming` will be given back at once.
 * Takes the file's lock; waits for nobody else. */
bool shared_make_room(budget_shared *shared, uint64_t bytes, uint64_t returning);

/* Charges beyond the lease, after shared_make_room with bytes that are coming. Whether the lease covers all now. */
void shared_take_for_reuse(budget_shared *shared, uint64_t bytes);
bool shared_is_covered(const budget_shared *shared);

void shared_give(budget_shared *shared, uint64_t bytes);

/* The figures of the whole file: what all processes use. */
uint64_t shared_limit(const budget_shared *shared);
uint64_t shared_in_use(const budget_shared *shared);

/* Sets the limit for all. Errors: IO. */
strata_status shared_set_limit(budget_shared *shared, uint64_t limit);

/* Where a tag is counted, for people to see; and counting there. The second is short and takes no lock. */
uint32_t shared_tag_index(budget_shared *shared, strata_tag tag);
void shared_count(budget_shared *shared, uint32_t index, int64_t bytes);

#endif
