/* Trouble: host memory that runs out, or driver calls that fail, during one call of the library.
 *
 * An operation plans it; the next call that is wrapped in trouble_begin and trouble_end meets it, and is told apart
 * from what the program did wrong by trouble_explains. */
#ifndef STRATA_FUZZ_TROUBLE_H
#define STRATA_FUZZ_TROUBLE_H

#include "fuzz/input.h"

#include <strata/status.h>

/* Once, with the simulated driver open. */
void trouble_open(void);

/* Draws the trouble that the next call meets. */
void trouble_plan(fuzz_input *input);

/* Forgets what was planned. */
void trouble_forget(void);

void trouble_begin(void);

/* Returns the status that it is given. */
strata_status trouble_end(strata_status status);

/* Whether anything was refused during the call that ended last. */
bool trouble_struck(void);

/* Whether anything was refused on the thread of this player since this was last asked. */
bool trouble_met(unsigned player);

/* Whether a call may answer this because of what was refused during it. */
bool trouble_explains(strata_status status);

#endif
