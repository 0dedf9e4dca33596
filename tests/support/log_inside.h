/* Access to private members of the logging layer for its tests. */
#ifndef STRATA_TESTS_SUPPORT_LOG_INSIDE_H
#define STRATA_TESTS_SUPPORT_LOG_INSIDE_H

#include "resources/logging/internal.h"

static inline const log_writer *writer_inside(const strata_resource *resource)
{
    return &((const logging *)resource)->writer;
}

#endif
