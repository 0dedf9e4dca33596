/* Attributes of a range of managed memory, by an entry point that Strata itself does not use. */
#ifndef STRATA_TEST_RANGE_H
#define STRATA_TEST_RANGE_H

#include "support/driver.h"

/* The value of a numeric attribute. The test fails if there is none. */
int test_range_attribute(CUmem_range_attribute which, const strata_block *block);

#endif
