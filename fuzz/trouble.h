/* Trouble: host memory that runs out, or driver calls that fail, during one call of the library.
 *
 * An operation plans it; it happens in the next call between trouble_begin and trouble_end. trouble_explains tells its
 * effects from errors of the program. */
#ifndef STRATA_FUZZ_TROUBLE_H
#define STRATA_FUZZ_TROUBLE_H

#include "fuzz/input.h"

#include <strata/status.h>

/* Called once, with the simulated driver open. */
void trouble_open(void);

/* Draws the trouble of the next call. */
void trouble_plan(fuzz_input *input);

/* Drops the plan. */
void trouble_forget(void);

void trouble_begin(void);

/* Returns its argument. */
strata_status trouble_end(strata_status status);

/* Whether anything failed during the last call. */
bool trouble_struck(void);

/* Whether anything failed on the player's thread since the last call of this function. */
bool trouble_met(unsigned player);

/* Whether the failures explain this status. */
bool trouble_explains(strata_status status);

#endif
