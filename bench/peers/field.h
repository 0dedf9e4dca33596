/* The competitors of a run: the stacks and libraries that the command line names, or the usual ones. */
#ifndef STRATA_BENCH_FIELD_H
#define STRATA_BENCH_FIELD_H

#include "contest.h"
#include "options.h"

/* Adds the stacks, before the driver is open. Ends the program if one cannot be made. */
void field_add_stacks(contest *of, const options *given);

/* Adds the libraries, and after them the driver's pool and the floor, with the driver open. Ends the program if one
 * cannot be loaded. */
void field_add_others(contest *of, const options *given);

/* Whether one of them is the stack `pool`, which the targets are for. */
bool field_has_pool(const contest *of);

#endif
