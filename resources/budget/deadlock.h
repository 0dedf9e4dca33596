/* Requests that wait for each other for ever: deadlock.c. */
#ifndef STRATA_RESOURCES_BUDGET_DEADLOCK_H
#define STRATA_RESOURCES_BUDGET_DEADLOCK_H

#include "resources/budget/internal.h"

/* For a request of `bytes` that did not fit once more. True: its wait is a deadlock, and this request is told. */
bool budget_wait_is_in_vain(budget *self, budget_waiter *waiter, strata_budget_account *failing, uint64_t bytes);
void budget_wait_leave(budget *self, budget_waiter *waiter);

/* After an allocation. */
void budget_note_holder(budget *self, const strata_block *block);

/* Before a free: the thread that allocated the block, 0: unknown. After it: budget_freed(). */
uint64_t budget_forget_holder(budget *self, const strata_block *block);
void budget_freed(budget *self, const strata_block *block, uint64_t holder, bool freed);

#endif
