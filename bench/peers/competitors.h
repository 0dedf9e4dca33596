/* Competitors: stacks and libraries of the command line, or the usual ones. */
#ifndef STRATA_BENCH_COMPETITORS_H
#define STRATA_BENCH_COMPETITORS_H

#include "contest.h"
#include "options.h"

/* Adds the stacks, before the driver is open. Exits if one cannot be created. */
void competitors_add_stacks(contest *of, const options *given);

/* Adds the libraries, the driver's pool and the floor, with the driver open. Exits if one cannot be loaded. */
void competitors_add_others(contest *of, const options *given);

/* Whether the stack `pool`, which has the targets, is one of them. */
bool competitors_has_pool(const contest *of);

#endif
