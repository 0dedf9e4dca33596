/* Finding the entry point by its name in the library that is open, and asking it. */
#include "support/range.h"

#include <dlfcn.h>
#include <string.h>

int test_range_attribute(CUmem_range_attribute which, const strata_block *block)
{
    strata_driver_info info;
    PFN_cuMemRangeGetAttribute_v8000 get;
    int value = 0;
    check_ok(strata_driver_get_info(&info));
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    void *found = dlsym(library, "cuMemRangeGetAttribute");
    assert_non_null(found);
    memcpy(&get, &found, sizeof get);
    check_cu(get(&value, sizeof value, which, block->address, block->bytes));
    dlclose(library);
    return value;
}
