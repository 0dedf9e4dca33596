/* Bytes that an account is charged with for memory which no layer below it gives, such as the driver's own under
 * `strata exec`. Like a reservation, but without an account of its own, which would take time to open and close. */
#ifndef STRATA_RESOURCES_BUDGET_TAKE_H
#define STRATA_RESOURCES_BUDGET_TAKE_H

#include <strata/budget.h>

/* Charges at most 2^62 bytes to a budget that is part of a stack. Errors: OUT_OF_BUDGET (after all that a request
 * tries, except reuse), those of a driver that is not open. Any thread. */
strata_status budget_take(strata_budget_account *account, size_t bytes);

/* As budget_take, but waits for memory to be freed, and for the device, only while *wanted is set, as long as the
 * budget's option says. */
strata_status budget_take_while(strata_budget_account *account, size_t bytes, const _Atomic bool *wanted);

/* Gives them back. Nothing in a forked child. Any thread. */
void budget_give(strata_budget_account *account, size_t bytes);

/* Bytes that other processes have charged to a shared budget, as they were at one of the latest looks; 0 of another
 * budget. Any thread. */
uint64_t budget_of_others(strata_budget_account *account);

#endif
