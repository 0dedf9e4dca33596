/* Modules and kernels: loading, launches as operations, host kernels. Uses memory/. Guarded by sim.lock. */
#ifndef STRATA_SIM_KERNELS_KERNELS_H
#define STRATA_SIM_KERNELS_KERNELS_H

#include "memory/memory.h"

typedef struct sim_ptx_entry sim_ptx_entry;
typedef struct sim_ptx_global sim_ptx_global;

/* ---- module.c, launch.c ---- */

enum { SIM_MAX_PARAMETERS = 1024 };

typedef struct sim_ptx_entry {
    struct sim_ptx_entry *next;
    char *name;
    size_t count;
    size_t *offsets; /* in a parameter buffer */
    size_t *sizes;
    size_t buffer_bytes;
} sim_ptx_entry;

typedef struct sim_ptx_global {
    struct sim_ptx_global *next;
    char *name;
    size_t bytes;
    sim_block *block;
} sim_ptx_global;

struct CUfunc_st {
    sim_handle handle;
    struct CUmod_st *module;
    struct CUfunc_st *next;
    const sim_ptx_entry *entry;
    strata_sim_kernel host_kernel;
    const char *name; /* lives as long as the simulation */
};

struct CUmod_st {
    sim_handle handle;
    sim_context *context;
    sim_ptx_entry *entries;
    sim_ptx_global *globals;
    struct CUfunc_st *functions;
};

CUresult sim_ptx_parse(const char *text, sim_ptx_entry **entries, sim_ptx_global **globals);

/* Copies the PTX in a fatbin, for the caller to free. NO_BINARY_FOR_GPU: there is none, or only compressed or newer
 * PTX. No answer of a GPU is recorded. */
CUresult sim_fatbin_copy_ptx(const void *image, char **text);
void sim_ptx_free(sim_ptx_entry *entries, sim_ptx_global *globals);
void sim_module_free(CUmodule module);
strata_sim_kernel sim_kernel_find(const char *name, const char **known_as); /* a name that stays */
CUresult sim_kernel_register(const char *name, strata_sim_kernel host_kernel);
void sim_registered_kernels_close(void);

/* Strata's own kernels, which are known from the start: ROW(name, host kernel). */
#define SIM_HOST_KERNELS(ROW)                      \
    ROW(strata_pattern_fill, sim_pattern_fill)     \
    ROW(strata_pattern_check, sim_pattern_check)   \
    ROW(strata_guard_fill, sim_guard_fill)         \
    ROW(strata_guard_check, sim_guard_check)       \
    ROW(strata_demo_bias_relu, sim_demo_bias_relu) \
    ROW(strata_demo_multiply, sim_demo_multiply)

strata_sim_kernel sim_host_kernel_find(const char *name, const char **known_as);
void sim_pattern_fill(strata_sim_launch *launch); /* host_kernels.c */
void sim_pattern_check(strata_sim_launch *launch);
void sim_guard_fill(strata_sim_launch *launch); /* guard_host_kernel.c */
void sim_guard_check(strata_sim_launch *launch);
void sim_demo_bias_relu(strata_sim_launch *launch); /* demo_host_kernels.c */
void sim_demo_multiply(strata_sim_launch *launch);

const char *sim_kernel_name(const sim_op *op);
bool sim_kernel_run(sim_op *op);                                     /* false after an illegal access */
sim_kernel_launch *sim_kernel_copy(const sim_kernel_launch *kernel); /* NULL without memory */
CUresult sim_kernel_make(const CUDA_KERNEL_NODE_PARAMS *params, sim_kernel_launch **kernel);
bool sim_kernel_same(const sim_kernel_launch *one, const sim_kernel_launch *other); /* and with the same values */
void sim_kernel_describe(const sim_kernel_launch *kernel, CUDA_KERNEL_NODE_PARAMS *params);

/* ---- launch.c ---- */

typedef struct sim_launch_shape {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared;
} sim_launch_shape;

int sim_function_attribute(CUfunction_attribute attribute);
CUresult sim_kernel_submit(CUfunction function, const sim_launch_shape *shape, CUstream stream, void **parameters,
                           void **extra);

/* ---- module.c ---- */

CUresult sim_module_get_function(CUmodule module, const char *name, CUfunction *function);
CUresult sim_module_load(sim_context *context, CUmodule *module, const void *image);

/* ---- state.c ---- */

typedef struct sim_kernels_state {
    sim_slab modules, functions;
} sim_kernels_state;

extern sim_kernels_state sim_kernels;

bool sim_kernels_open(void);
void sim_kernels_close(void);

#endif
