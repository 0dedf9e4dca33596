/* Opening and closing of kernels/. */
#include "kernels/kernels.h"
#include <stdlib.h>

static void discard(sim_op *op)
{
    free(op->work.kernel);
}

bool sim_kernels_open(void)
{
    sim_op_types[SIM_OP_KERNEL] = (sim_op_type){.run = sim_kernel_run, .discard = discard};
    return sim_slab_open(&sim_kernels.modules, sizeof(struct CUmod_st)) &&
           sim_slab_open(&sim_kernels.functions, sizeof(struct CUfunc_st));
}

void sim_kernels_close(void)
{
    sim_slab_close(&sim_kernels.modules);
    sim_slab_close(&sim_kernels.functions);
}
