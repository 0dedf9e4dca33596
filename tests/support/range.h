/* What the driver knows of a range of managed memory, asked by an entry point that Strata itself does not call. */
#ifndef STRATA_TEST_RANGE_H
#define STRATA_TEST_RANGE_H

#include "support/driver.h"

/* The value of an attribute that is a number; the test fails if there is none. */
int test_range_attribute(CUmem_range_attribute which, const strata_block *block);

#endif
