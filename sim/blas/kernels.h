/* What the host kernels share. */
#ifndef STRATA_SIM_BLAS_KERNELS_H
#define STRATA_SIM_BLAS_KERNELS_H

#include "blas.h"

void sim_blas_gemm(strata_sim_launch *launch);
void sim_blas_gemm_batched(strata_sim_launch *launch);
void sim_blas_axpy(strata_sim_launch *launch);
void sim_blas_scal(strata_sim_launch *launch);
void sim_blas_dot(strata_sim_launch *launch);
void sim_blas_nrm2(strata_sim_launch *launch);
void sim_blas_gemv(strata_sim_launch *launch);
void sim_blas_ger(strata_sim_launch *launch);
void sim_blas_trsm(strata_sim_launch *launch);

/* The launch's parameter; declares the workspace as written. */
const sim_blas_call *sim_blas_begin(strata_sim_launch *launch);

/* Ends the launch as an illegal access: the host has no memory for it. */
void sim_blas_give_up(strata_sim_launch *launch);

/* Elements from the first to the last of a matrix in column order; 0 if it has none. */
size_t sim_blas_span(int64_t rows, int64_t columns, int64_t leading);

#endif
