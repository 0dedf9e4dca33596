/* Looks up the entry point in the open library, and calls it. */
#include "support/range.h"

#include "support/captures.h"

int test_range_attribute(CUmem_range_attribute which, const strata_block *block)
{
    PFN_cuMemRangeGetAttribute_v8000 get;
    int value = 0;
    test_find_driver_call("cuMemRangeGetAttribute", 8000, &get);
    check_cu(get(&value, sizeof value, which, block->address, block->bytes));
    return value;
}
