/* A function that uses the driver, and its test. The test checks the result; then it lets each driver call fail and
 * checks that the function reports the error and leaks nothing.
 *
 * The function uses CUDA's driver API alone. Only the simulated driver can make a call fail, so on a GPU the test
 * checks the result alone. The simulated driver runs a C function in place of the kernel. The test looks its functions
 * up by name, so one program works with both drivers. docs/testing-your-code.md says how to run it. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <strata/sim.h>
#include <string.h>

/* ---- the function ---- */

static const char ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                          ".visible .entry add_one(.param .u64 numbers, .param .u32 count)\n"
                          "{\n"
                          "    .reg .pred %skip;\n"
                          "    .reg .b32 %r<6>;\n"
                          "    .reg .b64 %a<3>;\n"
                          "    ld.param.u32 %r1, [count];\n"
                          "    mov.u32 %r2, %ctaid.x;\n"
                          "    mov.u32 %r3, %ntid.x;\n"
                          "    mov.u32 %r4, %tid.x;\n"
                          "    mad.lo.u32 %r5, %r2, %r3, %r4;\n"
                          "    setp.ge.u32 %skip, %r5, %r1;\n"
                          "    @%skip bra done;\n"
                          "    ld.param.u64 %a1, [numbers];\n"
                          "    mad.wide.u32 %a2, %r5, 4, %a1;\n"
                          "    ld.global.u32 %r1, [%a2];\n"
                          "    add.u32 %r1, %r1, 1;\n"
                          "    st.global.u32 [%a2], %r1;\n"
                          "done:\n"
                          "    ret;\n"
                          "}\n";

static CUresult run(CUfunction function, CUdeviceptr memory, uint32_t *numbers, uint32_t count)
{
    void *parameters[] = {&memory, &count};
    CUresult result = cuMemcpyHtoD(memory, numbers, count * sizeof *numbers);
    if (result == CUDA_SUCCESS)
        result = cuLaunchKernel(function, (count + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
    if (result == CUDA_SUCCESS)
        result = cuMemcpyDtoH(numbers, memory, count * sizeof *numbers);
    return result;
}

static CUresult add_one(uint32_t *numbers, uint32_t count)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory = 0;
    CUresult result = cuModuleLoadData(&module, ptx);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuModuleGetFunction(&function, module, "add_one");
    if (result == CUDA_SUCCESS)
        result = cuMemAlloc(&memory, count * sizeof *numbers);
    if (result == CUDA_SUCCESS)
        result = run(function, memory, numbers, count);
    if (memory)
        cuMemFree(memory);
    cuModuleUnload(module);
    return result;
}

/* ---- its test ---- */

enum { COUNT = 1000 };

/* Runs in place of the kernel. */
static void add_one_on_the_cpu(strata_sim_launch *launch)
{
    CUdeviceptr address;
    uint32_t count;
    memcpy(&address, launch->parameters[0], sizeof address);
    memcpy(&count, launch->parameters[1], sizeof count);
    launch->declare_read(launch, address, count * sizeof count);
    launch->declare_write(launch, address, count * sizeof count);
    uint32_t *numbers = launch->write(launch, address, count * sizeof count);
    for (uint32_t i = 0; numbers && i < count; i++)
        numbers[i]++;
}

static struct {
    PFN_strata_sim_register_kernel register_kernel; /* NULL: not the simulated driver */
    PFN_strata_sim_get_accounts get_accounts;
    PFN_strata_sim_add_fault add_fault;
    PFN_strata_sim_fault_reached fault_reached;
    PFN_strata_sim_clear_faults clear_faults;
} sim;

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    exit(EXIT_FAILURE);
}

static void find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
}

/* Searches the libraries that the program was started with. */
static void find_simulation(void)
{
    void *all = dlopen(NULL, RTLD_NOW);
    find(all, "strata_sim_register_kernel", &sim.register_kernel);
    find(all, "strata_sim_get_accounts", &sim.get_accounts);
    find(all, "strata_sim_add_fault", &sim.add_fault);
    find(all, "strata_sim_fault_reached", &sim.fault_reached);
    find(all, "strata_sim_clear_faults", &sim.clear_faults);
}

static CUresult try_it(void)
{
    static uint32_t numbers[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        numbers[i] = i;
    CUresult result = add_one(numbers, COUNT);
    for (uint32_t i = 0; i < COUNT && result == CUDA_SUCCESS; i++)
        expect(numbers[i] == i + 1, "a number is not one more than it was");
    return result;
}

static bool nothing_left(void)
{
    strata_sim_accounts accounts;
    expect(sim.get_accounts(&accounts) == CUDA_SUCCESS, "there are no accounts");
    return accounts.modules == 0 && accounts.device_blocks == 0;
}

/* Fails the first call of the entry point, then the second, and so on, until the function makes fewer calls than that.
 */
static void fail_each_call_of(const char *entry)
{
    uint64_t nth = 0, reached;
    uint32_t id;
    do {
        nth++;
        strata_sim_fault fault = {.size = sizeof fault,
                                  .kind = STRATA_SIM_FAIL_CALL,
                                  .nth = nth,
                                  .error = CUDA_ERROR_OUT_OF_MEMORY,
                                  .entry = entry};
        expect(sim.add_fault(&fault, &id) == CUDA_SUCCESS, "the fault was not understood");
        CUresult result = try_it();
        expect(sim.fault_reached(id, &reached) == CUDA_SUCCESS, "the fault is gone");
        sim.clear_faults();
        expect((result == CUDA_SUCCESS) == (reached < nth), "a failed call was not reported");
        expect(nothing_left(), "a failed call left something behind");
    } while (reached >= nth);
    printf("%s: failed %d times, each was reported and left nothing\n", entry, (int)nth - 1);
}

int main(void)
{
    static const char *const entries[] = {"cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc",
                                          "cuMemcpyHtoD",     "cuLaunchKernel",      "cuMemcpyDtoH"};
    CUcontext context;
    find_simulation();
    if (sim.register_kernel)
        sim.register_kernel("add_one", add_one_on_the_cpu);
    expect(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
               cuCtxSetCurrent(context) == CUDA_SUCCESS,
           "invalid device");
    expect(try_it() == CUDA_SUCCESS, "the driver refused");
    for (size_t i = 0; i < sizeof entries / sizeof entries[0] && sim.add_fault; i++)
        fail_each_call_of(entries[i]);
    expect(try_it() == CUDA_SUCCESS, "the driver refused after the faults");
    return cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS ? EXIT_SUCCESS : EXIT_FAILURE;
}
