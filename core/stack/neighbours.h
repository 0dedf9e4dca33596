/* Stacks of the process: one whose request the device has refused takes what others have free; one of before a reset
 * gives all back. No lock is held around these calls. */
#ifndef STRATA_CORE_STACK_NEIGHBOURS_H
#define STRATA_CORE_STACK_NEIGHBOURS_H

#include "core/stack/stack.h"

enum { STRATA_NEIGHBOURS_TEXT = 256 };

/* A stack that is built; before its layers are destroyed. Leave waits for threads that ask the stack. */
void strata_neighbours_join(strata_stack *stack);
void strata_neighbours_leave(strata_stack *stack);

/* The youngest stack that is older than `serial`, of the device (NULL: of any) and not `own`, pinned: it is not
 * destroyed until the second call, which returns its serial number. NULL: there is none. */
strata_stack *strata_neighbours_pin_next(const strata_device *device, const strata_stack *own, uint64_t serial);
uint64_t strata_neighbours_unpin(strata_stack *other);

/* A request that the device has refused. */
typedef struct strata_reclaim {
    strata_device *device;
    strata_resource *owner; /* it gives nothing; perhaps in no stack yet */
    uint64_t bytes;
    bool may_wait;  /* for work, after what is complete */
    bool others;    /* the owner's stack has no more: as `round`, written by the calls */
    unsigned round; /* calls so far */
    unsigned vain;  /* of them, those that were given nothing of what others had free */
} strata_reclaim;

/* The other layers of the owner's stack give free memory back; once they have no more, other stacks of the device,
 * until it has enough. True: the request is worth another try, since some was given back, or may have been in the hands
 * of other stacks' threads. */
bool strata_reclaim_try(strata_reclaim *self);

/* The same without waiting, and once that gives nothing, with it. */
bool strata_reclaim_try_all(strata_reclaim *self);

/* Other stacks of the device learn which of their frees are complete. Failures are ignored. */
void strata_neighbours_reap(const strata_device *device, const strata_stack *own);

/* After a reset of the device: what stacks of before have that outlives the context goes back to the driver, as soon as
 * it can be freed: at once, or when the context has begun anew. Raises nothing. */
void strata_neighbours_settle_lost(int ordinal);

/* For the message of a refusal: which stacks of the device hold memory beside `own`, which may be NULL. Empty: none. */
void strata_neighbours_describe(const strata_device *device, const strata_stack *own,
                                char text[STRATA_NEIGHBOURS_TEXT]);

#endif
