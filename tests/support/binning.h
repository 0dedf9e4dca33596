/* For tests of fixed and binning: their values, and other stacks than the case's. */
#ifndef STRATA_TESTS_SUPPORT_BINNING_H
#define STRATA_TESTS_SUPPORT_BINNING_H

#include "support/fixture.h"

enum { KIB = 1024, BYTES = 64 * KIB };

static inline uint64_t value(test_fixture *fixture, const char *name)
{
    uint64_t got = 0;
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, &got, NULL));
    return got;
}

/* Gives the fixture a runtime with this stack. */
static inline void use_stack(test_fixture *fixture, const char *text)
{
    check_ok(strata_runtime_destroy(fixture->runtime));
    fixture->runtime = NULL;
    const strata_runtime_config config = {.stack_text = text, .stream_capacity = 16};
    check_ok(strata_runtime_create(&config, &fixture->runtime));
}

#endif
