/* Blocks of a stack, told to the driver library: strata_region_calls in driver/driver.h. */
#ifndef STRATA_CORE_STACK_REGIONS_H
#define STRATA_CORE_STACK_REGIONS_H

#include "core/stack/stack.h"

/* Makes the stack tell the driver library of its blocks, if the driver asks for that. The stack's operations are filled
 * in, and it has no block yet. */
void strata_stack_announce_regions(strata_stack *stack);

#endif
