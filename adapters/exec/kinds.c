/* The kinds of memory that the driver gives. */
#include "adapters/exec/exec.h"

const exec_kind_row exec_kind_rows[EXEC_KINDS] = {
    [EXEC_LINEAR] = {"linear", EXEC_ADDRESSES, EXEC_ENDS_WITH_CONTEXT, true},
    [EXEC_PITCHED] = {"pitched", EXEC_ADDRESSES, EXEC_ENDS_WITH_CONTEXT, true},
    [EXEC_MANAGED] = {"managed", EXEC_ADDRESSES, EXEC_ENDS_WITH_CONTEXT, true},
    [EXEC_POOLED] = {"pooled", EXEC_ADDRESSES, EXEC_MAY_END_WITH_CONTEXT, true}, /* that of its stream */
    [EXEC_ARRAY] = {"arrays", EXEC_OBJECTS, EXEC_ENDS_WITH_CONTEXT},
    [EXEC_PHYSICAL] = {"physical", EXEC_HANDLES, EXEC_OUTLIVES_CONTEXT, true},
    [EXEC_GRAPH] = {"graphs", EXEC_DEVICE_NUMBERS, EXEC_OUTLIVES_CONTEXT},
    [EXEC_EXTERNAL] = {"external", EXEC_OBJECTS, EXEC_ENDS_WITH_CONTEXT},
    [EXEC_HOST] = {"host", EXEC_ADDRESSES, EXEC_MAY_END_WITH_CONTEXT}, /* made too often to ask for its context */
    [EXEC_REGISTERED] = {"registered_host", EXEC_ADDRESSES, EXEC_MAY_END_WITH_CONTEXT},
    [EXEC_IMPORTED] = {"imported", EXEC_ADDRESSES, EXEC_ENDS_WITH_CONTEXT, true},
    [EXEC_IMPORTED_PHYSICAL] = {"imported_physical", EXEC_HANDLES, EXEC_OUTLIVES_CONTEXT, true},
    [EXEC_GRAPHICS] = {"graphics", EXEC_OBJECTS, EXEC_ENDS_WITH_CONTEXT},
    [EXEC_MULTICAST] = {"multicast", EXEC_HANDLES, EXEC_OUTLIVES_CONTEXT, true},
};
