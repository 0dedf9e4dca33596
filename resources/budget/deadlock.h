/* Requests that wait for each other for ever: deadlock.c. */
#ifndef STRATA_RESOURCES_BUDGET_DEADLOCK_H
#define STRATA_RESOURCES_BUDGET_DEADLOCK_H

#include "resources/budget/internal.h"

/* Called when a request of `bytes` did not fit once more. True: its wait is a deadlock, and this request is told.
 * budget_wait_leave: the request waits no more. */
bool budget_wait_is_in_vain(budget *self, budget_waiter *waiter, strata_budget_account *failing, uint64_t bytes);
void budget_wait_leave(budget *self, budget_waiter *waiter);

/* Records the thread as the block's holder, after an allocation. */
void budget_note_holder(budget *self, const strata_block *block);

/* Before a free: takes the thread that allocated the block; 0: unknown. After it: budget_freed(). */
uint64_t budget_forget_holder(budget *self, const strata_block *block);
void budget_freed(budget *self, const strata_block *block, uint64_t holder, bool freed);

#endif
