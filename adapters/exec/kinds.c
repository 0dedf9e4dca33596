/* The kinds of memory that the driver gives. */
#include "adapters/exec/exec.h"

/* Host memory may end with its context, which is not asked for at each call: such calls are too many. Memory of pools
 * may end with the context of its stream. */
const exec_kind_row exec_kind_rows[EXEC_KINDS] = {
    [EXEC_LINEAR] = {"linear", EXEC_ADDRESSES, EXEC_ENDS_WITH_CONTEXT, true},
    [EXEC_PITCHED] = {"pitched", EXEC_ADDRESSES, EXEC_ENDS_WITH_CONTEXT, true},
    [EXEC_MANAGED] = {"managed", EXEC_ADDRESSES, EXEC_ENDS_WITH_CONTEXT, true},
    [EXEC_POOLED] = {"pooled", EXEC_ADDRESSES, EXEC_MAY_END_WITH_CONTEXT, true},
    [EXEC_ARRAY] = {"arrays", EXEC_OBJECTS, EXEC_ENDS_WITH_CONTEXT, false},
    [EXEC_PHYSICAL] = {"physical", EXEC_HANDLES, EXEC_OUTLIVES_CONTEXT, true},
    [EXEC_GRAPH] = {"graphs", EXEC_DEVICE_NUMBERS, EXEC_OUTLIVES_CONTEXT, false},
    [EXEC_EXTERNAL] = {"external", EXEC_OBJECTS, EXEC_ENDS_WITH_CONTEXT, false},
    [EXEC_HOST] = {"host", EXEC_ADDRESSES, EXEC_MAY_END_WITH_CONTEXT, false},
    [EXEC_REGISTERED] = {"registered_host", EXEC_ADDRESSES, EXEC_MAY_END_WITH_CONTEXT, false},
    [EXEC_IMPORTED] = {"imported", EXEC_ADDRESSES, EXEC_ENDS_WITH_CONTEXT, true},
    [EXEC_IMPORTED_PHYSICAL] = {"imported_physical", EXEC_HANDLES, EXEC_OUTLIVES_CONTEXT, true},
    [EXEC_GRAPHICS] = {"graphics", EXEC_OBJECTS, EXEC_ENDS_WITH_CONTEXT, false},
    [EXEC_MULTICAST] = {"multicast", EXEC_HANDLES, EXEC_OUTLIVES_CONTEXT, true},
};
