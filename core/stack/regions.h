#ifndef STRATA_CORE_STACK_REGIONS_H
#define STRATA_CORE_STACK_REGIONS_H

#include "core/stack/stack.h"

/* For a stack whose operations are filled in, before its first block. */
void strata_stack_announce_regions(strata_stack *stack);

#endif
