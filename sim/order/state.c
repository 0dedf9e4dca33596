/* The state of the order's room. */
#include "order/order.h"

sim_order_state sim_order;
sim_op_type sim_op_types[SIM_OP_KINDS];
