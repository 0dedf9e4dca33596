/* Access to private members of the layer statistics, for its tests. */
#ifndef STRATA_TESTS_SUPPORT_STATISTICS_INSIDE_H
#define STRATA_TESTS_SUPPORT_STATISTICS_INSIDE_H

#include "resources/statistics/internal.h"

/* How often a thread left its window and took the lock. */
static inline uint64_t statistics_steps(strata_resource *of)
{
    return ((strata_statistics *)of)->counters.steps;
}

#endif
