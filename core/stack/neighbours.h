/* The process's stacks. If the device refuses a request of one stack, the others give free memory back for it; after a
 * reset, stacks of the lost device give theirs back. No lock is held around these calls. */
#ifndef STRATA_CORE_STACK_NEIGHBOURS_H
#define STRATA_CORE_STACK_NEIGHBOURS_H

#include "core/stack/stack.h"

enum { STRATA_NEIGHBOURS_TEXT = 256 };

/* Join adds a stack that is built to the list. Leave removes it before its layers are destroyed, and waits for threads
 * that have it pinned. */
void strata_neighbours_join(strata_stack *stack);
void strata_neighbours_leave(strata_stack *stack);

/* A walk over the stacks, youngest first. The first call pins the youngest stack that is older than `serial`
 * (UINT64_MAX at the start), of the device (NULL: of any) and not `own`; NULL if there is none. A pinned stack is not
 * destroyed before the second call, which returns its serial number for the next step. */
strata_stack *strata_neighbours_pin_next(const strata_device *device, const strata_stack *own, uint64_t serial);
uint64_t strata_neighbours_unpin(strata_stack *other);

/* Whether there are stacks with memory of the program's. */
bool strata_neighbours_any_of_program(void);

/* A request that the device has refused. */
typedef struct strata_reclaim {
    strata_device *device;
    strata_resource *owner; /* makes the request and is not asked; perhaps in no stack yet */
    uint64_t bytes;
    bool may_wait;  /* layers may wait for work, after giving back complete memory */
    bool others;    /* the owner's stack has no more; written by the calls, like the next two */
    unsigned round; /* calls so far */
    unsigned vain;  /* calls that were given nothing although others had some free */
} strata_reclaim;

/* Makes the other layers of the owner's stack give free memory back, and once they have no more, the device's other
 * stacks, until the device has enough. True: the request is worth another try, since some was given back, or may have
 * been in the hands of other stacks' threads. */
bool strata_reclaim_try(strata_reclaim *self);

/* As strata_reclaim_try: first without waiting, and once that gives nothing, with waiting. */
bool strata_reclaim_try_all(strata_reclaim *self);

/* Makes the device's other stacks find out which of their frees are complete. Failures are ignored. */
void strata_neighbours_reap(const strata_device *device, const strata_stack *own);

/* After a reset of the device: makes stacks of the lost device give back what outlives its context, as soon as it can
 * be freed: at once, or when the context has begun anew. Raises nothing. */
void strata_neighbours_settle_lost(int ordinal);

/* Writes, for the message of a refused request, which stacks of the device besides `own` (or NULL) hold memory. Empty
 * if there are none. */
void strata_neighbours_describe(const strata_device *device, const strata_stack *own,
                                char text[STRATA_NEIGHBOURS_TEXT]);

#endif
