/* Conditional nodes in captures, for tests of graphs. */
#ifndef STRATA_TEST_CONDITIONALS_H
#define STRATA_TEST_CONDITIONALS_H

#include "support/graphs.h"

#include <stdio.h>
#include <strata/conditional.h>

static inline CUgraphConditionalHandle condition_of(test_fixture *fixture, CUstream stream, unsigned initial)
{
    CUgraphConditionalHandle condition;
    check_ok(strata_capture_condition(fixture->runtime, stream, &initial, &condition));
    return condition;
}

static inline void begin_if(test_fixture *fixture, CUstream stream, unsigned initial, CUstream body)
{
    check_ok(strata_capture_if(fixture->runtime, stream, condition_of(fixture, stream, initial), body));
}

static inline void close_body(test_fixture *fixture, CUstream body)
{
    check_ok(strata_capture_body_close(fixture->runtime, body));
}

/* For main: whether the driver has conditional nodes; else false, with a message. */
static inline bool conditionals_can_be_tested(void)
{
    if (test_cu()->GraphConditionalHandleCreate)
        return true;
    printf("skipped: the driver has no conditional nodes\n");
    return false;
}

#endif
