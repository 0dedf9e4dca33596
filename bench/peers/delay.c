#include "delay.h"

#include "bare.h"

#include <strata/sim.h>

#include <dlfcn.h>
#include <string.h>

/* The kernels as a compiler writes them: the special register is read in each iteration. */
static const char delay_ptx[] = ".version 6.0\n"
                                ".target sm_52\n"
                                ".address_size 64\n"
                                ".visible .entry strata_peers_spin(\n"
                                "	.param .u64 strata_peers_spin_param_0\n"
                                ")\n"
                                "{\n"
                                "	.reg .pred %p<2>;\n"
                                "	.reg .b64 %rd<5>;\n"
                                "	ld.param.u64 %rd1, [strata_peers_spin_param_0];\n"
                                "	mov.u64 %rd2, %globaltimer;\n"
                                "$SPIN:\n"
                                "	mov.u64 %rd3, %globaltimer;\n"
                                "	sub.s64 %rd4, %rd3, %rd2;\n"
                                "	setp.lt.u64 %p1, %rd4, %rd1;\n"
                                "	@%p1 bra $SPIN;\n"
                                "	ret;\n"
                                "}\n"
                                ".visible .entry strata_peers_compute(\n"
                                "	.param .u64 strata_peers_compute_param_0,\n"
                                "	.param .u64 strata_peers_compute_param_1\n"
                                ")\n"
                                "{\n"
                                "	.reg .pred %p<3>;\n"
                                "	.reg .b64 %rd<7>;\n"
                                "	ld.param.u64 %rd1, [strata_peers_compute_param_0];\n"
                                "	ld.param.u64 %rd2, [strata_peers_compute_param_1];\n"
                                "	mov.u64 %rd3, %clock64;\n"
                                "$COMPUTE:\n"
                                "	mov.u64 %rd4, %clock64;\n"
                                "	sub.s64 %rd5, %rd4, %rd3;\n"
                                "	setp.lt.u64 %p1, %rd5, %rd1;\n"
                                "	@%p1 bra $COMPUTE;\n"
                                "	setp.eq.s64 %p2, %rd2, 0;\n"
                                "	@%p2 bra $DONE;\n"
                                "	cvta.to.global.u64 %rd6, %rd2;\n"
                                "	st.global.u64 [%rd6], %rd4;\n"
                                "$DONE:\n"
                                "	ret;\n"
                                "}\n";

static CUfunction spin, compute; /* written once by delay_load */

static void spin_twin(strata_sim_launch *launch)
{
    (void)launch;
}

static void compute_twin(strata_sim_launch *launch)
{
    CUdeviceptr to;
    memcpy(&to, launch->parameters[1], sizeof to);
    if (!to || !launch->declare_write(launch, to, sizeof(uint64_t)))
        return;
    void *bytes = launch->write(launch, to, sizeof(uint64_t));
    if (bytes)
        memset(bytes, 1, sizeof(uint64_t));
}

static void register_twins(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "strata_sim_register_kernel") : NULL;
    PFN_strata_sim_register_kernel add;
    memcpy(&add, &symbol, sizeof symbol);
    if (!add)
        bare_failed(CUDA_ERROR_NOT_FOUND, "strata_sim_register_kernel");
    bare_check(add("strata_peers_spin", spin_twin), "strata_sim_register_kernel");
    bare_check(add("strata_peers_compute", compute_twin), "strata_sim_register_kernel");
}

void delay_load(const char *library, bool simulated)
{
    CUmodule module;
    if (simulated)
        register_twins(library);
    bare_check(bare.ModuleLoadData(&module, delay_ptx), "cuModuleLoadData");
    bare_check(bare.ModuleGetFunction(&spin, module, "strata_peers_spin"), "cuModuleGetFunction");
    bare_check(bare.ModuleGetFunction(&compute, module, "strata_peers_compute"), "cuModuleGetFunction");
}

static void launch_one_thread(CUfunction function, CUstream stream, void **parameters)
{
    bare_check(bare.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL), "cuLaunchKernel");
}

void delay_stream(CUstream stream, uint64_t nanoseconds)
{
    launch_one_thread(spin, stream, (void *[]){&nanoseconds});
}

void delay_and_write(CUstream stream, uint64_t ticks, CUdeviceptr to)
{
    launch_one_thread(compute, stream, (void *[]){&ticks, &to});
}

void delay_extend(delay_backlog *self, size_t index, CUstream stream, uint64_t now)
{
    uint64_t *until = &self->busy_until[index];
    if (*until >= now + self->behind_ns)
        return;
    if (*until < now)
        *until = now;
    delay_stream(stream, self->behind_ns);
    *until += self->behind_ns;
}
