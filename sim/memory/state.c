/* The state of this room. */
#include "memory/memory.h"

sim_memory_state sim_memory;
