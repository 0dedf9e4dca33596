/* The state of this room. */
#include "kernels/kernels.h"

sim_kernels_state sim_kernels;
