/* What the ways by hand and as a graph share: a runtime whose stack has a budget, page-locked buffers, streams, and the
 * launches of a batch. */
#ifndef STRATA_TOOLS_DEMO_PIPELINE_H
#define STRATA_TOOLS_DEMO_PIPELINE_H

#include "tools/demo/demo.h"

#include "core/streams/call_scope.h"

#include <strata/blas.h>
#include <strata/fence.h>
#include <strata/pinned_pool.h>

/* The streams of a batch's work; they may be one. */
typedef struct demo_streams {
    CUstream in, compute, out;
} demo_streams;

typedef struct demo_pipeline {
    demo *of;
    strata_runtime *runtime, *host; /* memory of the device; page-locked memory */
    strata_pinned_pool *buffers;    /* of one matrix each */
    strata_blas *blas;              /* NULL: the demonstration's kernel multiplies */
    demo_streams streams;
    strata_block weights, bias; /* B */
    CUmodule module;
    CUfunction bias_relu, multiply;
    strata_call_scope scope; /* the device's context is current */
    bool in_scope;
} demo_pipeline;

/* Makes all, and runs one batch, in which libraries load their kernels. After a failure, too, the caller closes. */
strata_status demo_pipeline_open(demo_pipeline *self, demo *of);
strata_status demo_pipeline_close(demo_pipeline *self);

/* Submits a batch: A is copied from a page-locked buffer, and C to another one. */
strata_status demo_pipeline_submit(demo_pipeline *self, const demo_streams *on, const strata_pinned_view *from,
                                   const strata_pinned_view *to);

/* ---- launches.c: one launch each, with its blocks' uses ---- */

strata_status demo_copy_in(demo_pipeline *self, const strata_block *to, const void *from, size_t bytes,
                           CUstream stream);
strata_status demo_copy_out(demo_pipeline *self, void *to, const strata_block *from, CUstream stream);
strata_status demo_multiply(demo_pipeline *self, const strata_block *a, const strata_block *c, CUstream stream);
strata_status demo_bias_relu(demo_pipeline *self, const strata_block *c, CUstream stream);

/* The demonstration's kernels, as PTX; the threads of a block, and how many blocks so many numbers take. */
extern const char demo_ptx[];
#define DEMO_BIAS_RELU "strata_demo_bias_relu"
#define DEMO_MULTIPLY  "strata_demo_multiply"
enum { DEMO_THREADS = 256 };
unsigned demo_grid(size_t numbers);

#endif
