/* Retired bytes of a shared budget that other processes may take without their owner's help.
 *
 * A process learns that a free is complete when it polls its streams. A process that sleeps polls none, and its retired
 * bytes would count for ever. So a stream writes a word of the file behind the frees that it orders, and a process that
 * needs room reads it.
 *
 *     PREPARED --submitted--> PENDING --claimed by a process that needs room--> CLAIMED
 *         \                      |                                                 |
 *          `------- completed by the owner first: FREE <--settle, with the lock-- RETURNED <--completed by the owner
 *
 * Claiming changes one word, so a process may be killed at any instruction. Claimed bytes stay in the owner's `in_use`
 * and lease until it completes the frees itself; what its slot takes of the limit is less by them. Once it has
 * completed them they count in `settling`, so that it cannot use them again, until it lowers its lease.
 *
 * Small frees on one stream share a record: a stream writes once for each 1 / 512 of the limit, at most 4 MiB while few
 * records wait. So records last for all of the limit, also if a process frees it in small blocks and never looks. */
#ifndef STRATA_RESOURCES_BUDGET_SHARED_RETIRED_H
#define STRATA_RESOURCES_BUDGET_SHARED_RETIRED_H

#include "core/streams/timeline.h"
#include "resources/budget/shared.h"

#define SHARED_WAITING (UINT64_C(1) << 63) /* marks a stand-in for a ticket, until the free is recorded */

/* A free that was submitted to a stream. */
typedef struct shared_free {
    uint64_t stream; /* names one stream in the process's life */
    uint64_t bytes;
    _Atomic uint64_t *ticket; /* the block's; its completion takes what is there */
    uint64_t waiting;         /* value of *ticket until the completion; no ticket, and no other free's */
} shared_free;

/* Replaces `waiting` by the ticket of a record, if the free is not complete yet. Returns the ticket if the stream is to
 * write it to the record's word now, else 0. */
uint64_t shared_retire(budget_shared *shared, const shared_free *of);

/* Ends the record of a block that is complete or was reused. `ticket`: the block's, or its stand-in. Call before its
 * bytes are given back. */
void shared_retire_completed(budget_shared *shared, uint64_t ticket);

/* ---- shared_words.c ---- */

/* Whether the device can write the words. Asks the driver once: after a reset not until the file is opened anew. */
bool shared_words_usable(budget_shared *shared, strata_device *device);

/* Lets the stream write the ticket to its record's word. Failures are ignored: the owner completes the frees. */
void shared_words_write(const budget_shared *shared, const strata_stream_ref *stream, uint64_t ticket);

#endif
