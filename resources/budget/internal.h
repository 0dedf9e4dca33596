/* The layer itself, as its parts know it: charging and freeing in budget.c, what it tells in report.c. */
#ifndef STRATA_RESOURCES_BUDGET_INTERNAL_H
#define STRATA_RESOURCES_BUDGET_INTERNAL_H

#include "core/base/lock.h"
#include "core/streams/device.h"
#include "resources/budget/account.h"

/* A thread's account in a layer. A cell outlives its thread: it counts for the one with that serial alone, and for
 * others it means the base. Written and read by the thread. */
typedef struct budget_place {
    strata_budget_account *account;
    uint64_t serial;
} budget_place;

typedef struct budget {
    strata_resource resource;
    strata_device *device;
    strata_budget_wait wait;             /* constant */
    uint64_t timeout;                    /* nanoseconds; constant */
    _Atomic(strata_resource *) charging; /* who answers what a request is charged; found at the first one */
    _Atomic bool marks;                  /* some account has a soft mark; set, never cleared */
    _Atomic bool entered;                /* some thread has entered an account; the same */
    strata_per_thread places;            /* budget_place */
    strata_lock lock;                    /* guards the list, and how many children its accounts have */
    strata_budget_account *accounts;     /* opened and reserved ones, closed ones too until they are over */
    strata_budget_account base;
} budget;

enum {
    VALUE_LIMIT,
    VALUE_IN_USE,
    VALUE_REMAINING,
    VALUE_PEAK,
    VALUE_SOFT,
    VALUE_REFUSED,
    VALUE_WAITED,
    VALUE_REUSED,
    VALUE_RECALLS,
    BUDGET_VALUES
};

/* The layer's values, and what reads, sets and describes. */
extern const strata_value budget_values[BUDGET_VALUES];
strata_status budget_get_value(strata_resource *resource, size_t which, uint64_t *value);
strata_status budget_set_value(strata_resource *resource, size_t which, uint64_t value);
void budget_describe(strata_resource *resource, strata_emitter *to);

#endif
