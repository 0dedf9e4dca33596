/* The competitors of a run: the stacks and libraries of the command line, or the usual ones. */
#ifndef STRATA_BENCH_FIELD_H
#define STRATA_BENCH_FIELD_H

#include "contest.h"
#include "options.h"

/* Adds the stacks, before the driver is open. Exits if one cannot be created. */
void field_add_stacks(contest *of, const options *given);

/* Adds the libraries, the driver's pool and the floor, with the driver open. Exits if one cannot be loaded. */
void field_add_others(contest *of, const options *given);

/* Whether the stack `pool`, which the targets are for, is one of them. */
bool field_has_pool(const contest *of);

#endif
