/* The state of a runtime's device, and the record of it that outlives it.
 *
 *     runtime --> state --holds--> record <--holds-- references to allocations
 *
 * No reference leads to the state or keeps the runtime's user from ending it. A runtime with live references is only
 * abandoned: its state is dropped, and the holder that lets go of the record last ends the rest. */
#ifndef STRATA_RUNTIME_DEVICE_STATE_H
#define STRATA_RUNTIME_DEVICE_STATE_H

#include "core/base/driver_state.h"
#include "core/streams/device.h"

#include <strata/device_state.h>
#include <strata/ref.h>

#include <stdatomic.h>

/* A record's word: the generation above two flags, neither of which is ever cleared. */
#define STRATA_RECORD_DROPPED       UINT64_C(1)
#define STRATA_RECORD_SHUTTING_DOWN UINT64_C(2)
#define STRATA_RECORD_FLAGS         UINT64_C(3)
#define STRATA_RECORD_GENERATION    2 /* lowest bit */

typedef struct strata_device_record {
    _Atomic uint64_t word;                 /* any thread; the generation changes under the watches' lock */
    strata_device *device;                 /* constant, never freed; NULL: a service's, in no runtime */
    int ordinal;                           /* constant */
    _Atomic uint64_t holders;              /* counts the state and each reference to an allocation; any thread */
    _Atomic uint64_t blocks;               /* blocks of these references; any thread */
    strata_status (*end)(void *abandoned); /* written before the state lets go, read by the last holder; or NULL */
    void *abandoned;
} strata_device_record;

strata_status strata_device_state_create(strata_device *device, strata_device_state **out);

/* Creates the state of a device that has no memory in this process. */
strata_status strata_device_state_create_for(int ordinal, strata_device_state **out);

/* Sets the first generation; called before there are references and watches. */
void strata_device_state_start_at(strata_device_state *state, uint64_t generation);

/* Ends its watches and marks the record. With `end`, the last holder calls end(abandoned), also within this call, and
 * its status is returned. */
strata_status strata_device_state_drop(strata_device_state *state, strata_status (*end)(void *abandoned),
                                       void *abandoned);

/* Frees a state that no other code has seen; takes no lock. NULL: nothing. */
void strata_device_state_discard(strata_device_state *state);

strata_device_record *strata_device_state_record(strata_device_state *state);

/* The caller holds the record or its state. */
void strata_device_record_hold(strata_device_record *record, bool block);
strata_status strata_device_record_unhold(strata_device_record *record, bool block);

/* Live references to allocations, and the blocks that they hold. */
uint64_t strata_device_state_references(const strata_device_state *state);
uint64_t strata_device_state_blocks(const strata_device_state *state);

/* Whether memory of that word can be used. One compare, and a load of the driver's state, which differs from OPEN once
 * any device was reset. */
static inline bool strata_device_record_is_current(const strata_device_record *record, uint64_t word)
{
    return atomic_load_explicit(&record->word, memory_order_acquire) == word &&
           (__builtin_expect(strata_driver_state_now() == STRATA_DRIVER_OPEN, 1) || !record->device ||
            (strata_driver_is_open() && !strata_device_is_lost(record->device)));
}

/* Why memory of that word cannot be used; STRATA_STALE_NOT if it can, as far as the record knows. */
strata_stale_reason strata_device_record_stale(const strata_device_record *record, uint64_t word);

#endif
