/* Pairs of programs about values that streams, kernels, copies and the host write, wait for and poll: one with a bug,
 * and its twin without. Each runs under the policies early and late and under eight seeds of random. */
#ifndef STRATA_TEST_PLANTED_FLAGS_H
#define STRATA_TEST_PLANTED_FLAGS_H

#include "planted/world.h"

/* X(name, version) */
#define FLAG_ENTRIES(X)                   \
    X(cuStreamBeginCapture, 10010)        \
    X(cuStreamEndCapture, 10000)          \
    X(cuGraphDestroy, 10000)              \
    X(cuGraphInstantiateWithFlags, 11040) \
    X(cuGraphLaunch, 10000)               \
    X(cuGraphExecDestroy, 10000)

#define FLAG_POINTER(name, version) static PFN_##name##_v##version p_##name;
FLAG_ENTRIES(FLAG_POINTER)
#undef FLAG_POINTER

enum { RANDOM_SEEDS = 8, FLAG = 64 };

struct pair {
    const char *name;
    void (*run)(struct world *world, bool bug);
    int report; /* of the bug */
    uint32_t modes;
};

/* ---- flags ---- */

static inline char *host_flag(const struct world *world)
{
    return world->pinned + FLAG;
}

/* The host clears and sets it without a declaration: values are there for that. */
static inline void host_sets(const struct world *world, uint32_t value)
{
    __atomic_store_n((uint32_t *)(void *)host_flag(world), value, __ATOMIC_RELEASE); /* streams may poll it */
}

static inline void host_sets_64(const struct world *world, uint64_t value)
{
    __atomic_store_n((uint64_t *)(void *)host_flag(world), value, __ATOMIC_RELEASE);
}

static inline CUdeviceptr flag_of(const struct world *world)
{
    return (CUdeviceptr)(uintptr_t)host_flag(world);
}

static inline void await_as(const struct world *world, CUstream stream, uint32_t value, unsigned how)
{
    OK(p_cuStreamWaitValue32(stream, flag_of(world), value, how));
}

static inline void await(const struct world *world, CUstream stream, uint32_t value)
{
    await_as(world, stream, value, CU_STREAM_WAIT_VALUE_GEQ);
}

static inline void await_exactly(const struct world *world, CUstream stream, uint32_t value)
{
    await_as(world, stream, value, CU_STREAM_WAIT_VALUE_EQ);
}

static inline void await_64(const struct world *world, CUstream stream, uint64_t value, unsigned how)
{
    OK(p_cuStreamWaitValue64(stream, flag_of(world), value, how));
}

static inline void tell(const struct world *world, CUstream stream, uint32_t value)
{
    OK(p_cuStreamWriteValue32(stream, flag_of(world), value, 0));
}

static inline void tell_64(const struct world *world, CUstream stream, uint64_t value)
{
    OK(p_cuStreamWriteValue64(stream, flag_of(world), value, 0));
}

static inline void await_upper(const struct world *world, CUstream stream, uint32_t value)
{
    OK(p_cuStreamWaitValue32(stream, flag_of(world) + 4, value, CU_STREAM_WAIT_VALUE_GEQ));
}

static inline void tell_upper(const struct world *world, CUstream stream, uint32_t value)
{
    OK(p_cuStreamWriteValue32(stream, flag_of(world) + 4, value, 0));
}

/* A flag in device memory, zero from the start. */
static inline CUdeviceptr device_flag(const struct world *world)
{
    OK(p_cuMemsetD8(world->y, 0, BYTES));
    OK(p_cuCtxSynchronize());
    return world->y;
}

static inline void await_at(CUstream stream, CUdeviceptr flag, uint32_t value)
{
    OK(p_cuStreamWaitValue32(stream, flag, value, CU_STREAM_WAIT_VALUE_GEQ));
}

static inline void tell_at(CUstream stream, CUdeviceptr flag, uint32_t value)
{
    OK(p_cuStreamWriteValue32(stream, flag, value, 0));
}

/* Work on x: what producers and consumers do. */
static inline void produce(const struct world *world, CUstream stream)
{
    fill(stream, world->x);
}

static inline void consume(const struct world *world, CUstream stream)
{
    kernel(world, stream, world->x, BYTES, READS);
}

/* In the bug, too late. */
static inline void produce_unless(const struct world *world, CUstream stream, bool late)
{
    if (!late)
        produce(world, stream);
}

static inline void produce_if(const struct world *world, CUstream stream, bool late)
{
    if (late)
        produce(world, stream);
}

/* ---- kernels that write values ---- */

static const char flags_ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                                ".visible .entry put(.param .u64 a, .param .u64 b)\n{ ret; }\n"
                                ".visible .entry add(.param .u64 a, .param .u64 b)\n{ ret; }\n";

static void put_host_kernel(strata_sim_launch *launch)
{
    uint64_t at[2];
    for (int i = 0; i < 2; i++)
        memcpy(&at[i], launch->parameters[i], sizeof at[i]);
    launch->declare_write(launch, at[0], sizeof(uint32_t));
    uint32_t *word = launch->write(launch, at[0], sizeof(uint32_t));
    *word = (uint32_t)at[1];
}

static void add_host_kernel(strata_sim_launch *launch)
{
    uint64_t at[2];
    for (int i = 0; i < 2; i++)
        memcpy(&at[i], launch->parameters[i], sizeof at[i]);
    launch->declare_atomic(launch, at[0], sizeof(uint32_t));
    uint32_t *word = launch->write(launch, at[0], sizeof(uint32_t));
    *word += (uint32_t)at[1];
}

static CUfunction put_function, add_function; /* of the only world that exists at a time */

static inline void launch(CUfunction function, CUstream stream, CUdeviceptr address, uint64_t value)
{
    void *parameters[] = {&address, &value};
    OK(p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static inline void put(CUstream stream, CUdeviceptr address, uint32_t value)
{
    launch(put_function, stream, address, value);
}

static inline void add(CUstream stream, CUdeviceptr address, uint32_t value)
{
    launch(add_function, stream, address, value);
}

/* ---- graphs ---- */

static inline void begin_graph(CUstream stream)
{
    OK(p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static inline CUgraphExec end_graph(CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    OK(p_cuStreamEndCapture(stream, &graph));
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(p_cuGraphDestroy(graph));
    return exec;
}

/* ---- the host polls ---- */

static inline void poll_for(const struct world *world, uint32_t value, unsigned how)
{
    CUresult result;
    while ((result = p_host_poll(host_flag(world), sizeof(uint32_t), value, how)) == CUDA_ERROR_NOT_READY) {
    }
    OK(result);
}

static inline void poll_flag(const struct world *world, uint32_t value)
{
    poll_for(world, value, CU_STREAM_WAIT_VALUE_GEQ);
}

/* The host's part of the pinned memory, without the flag. */
static inline void host_reads_data(const struct world *world)
{
    OK(p_host_read(world->pinned, FLAG));
}

static inline void host_writes_data(const struct world *world)
{
    OK(p_host_write(world->pinned, FLAG));
}

static inline void download_data(const struct world *world, CUstream stream)
{
    OK(p_cuMemcpyDtoHAsync(world->pinned, world->x, FLAG, stream));
}

static inline void upload_data(const struct world *world, CUstream stream)
{
    OK(p_cuMemcpyHtoDAsync(world->x, world->pinned, FLAG, stream));
}

/* ---- running pairs ---- */

struct pair_run {
    const struct pair *pair;
    bool bug;
    char name[128];
};

/* A bug may be found in several ways; one of them is the pair's. */
static inline bool reports_are_good(const struct pair_run *run)
{
    strata_sim_report report;
    bool found = false;
    uint64_t count = 0;
    for (; p_get_report(count, &report) == CUDA_SUCCESS; count++)
        found = found || (int)report.kind == run->pair->report;
    return run->bug ? found : count == 0;
}

static inline void run_pair_once(const struct pair_run *run, strata_sim_policy policy, uint64_t seed)
{
    const struct pair *pair = run->pair;
    struct program program = {.name = run->name};
    CUmodule module;
    OK(p_set_policy(policy));
    OK(p_set_seed(seed));
    OK(p_clear_reports());
    struct world world = world_begin(pair->modes);
    OK(p_cuModuleLoadData(&module, flags_ptx));
    OK(p_cuModuleGetFunction(&put_function, module, "put"));
    OK(p_cuModuleGetFunction(&add_function, module, "add"));
    memset(world.pinned, 0, BYTES);
    pair->run(&world, run->bug);
    OK(p_cuCtxSynchronize());
    OK(p_cuModuleUnload(module));
    world_end(&world);
    if (reports_are_good(run))
        return;
    show_reports(&program);
    fail_msg("%s: policy %d, seed %llu: %s", run->name, (int)policy, (unsigned long long)seed,
             run->bug ? "no such report" : "a report");
}

static inline void run_pair(void **state)
{
    const struct pair_run *run = *state;
    run_pair_once(run, STRATA_SIM_EARLY, 0);
    run_pair_once(run, STRATA_SIM_LATE, 0);
    for (uint64_t seed = 0; seed < RANDOM_SEEDS; seed++)
        run_pair_once(run, STRATA_SIM_RANDOM, seed);
}

static inline bool open_pairs(void)
{
    test_sim_open();
#define FLAG_ASK(name, version) test_sim_ask(#name, version, &p_##name);
    FLAG_ENTRIES(FLAG_ASK)
#undef FLAG_ASK
    return p_register_kernel("touch", touch_host_kernel) == CUDA_SUCCESS &&
           p_register_kernel("put", put_host_kernel) == CUDA_SUCCESS &&
           p_register_kernel("add", add_host_kernel) == CUDA_SUCCESS && p_cuInit(0) == CUDA_SUCCESS;
}

/* Each bug and each twin is a test. Returns main's exit status. */
static inline int run_pairs(const struct pair *pairs, size_t count)
{
    enum { MOST = 256 };
    static struct CMUnitTest tests[MOST];
    static struct pair_run runs[MOST];
    if (2 * count > MOST || !open_pairs())
        return 1;
    for (size_t i = 0; i < 2 * count; i++) {
        runs[i] = (struct pair_run){.pair = &pairs[i / 2], .bug = i % 2 == 0};
        snprintf(runs[i].name, sizeof runs[i].name, "%s%s", runs[i].pair->name, runs[i].bug ? "" : " (correct)");
        tests[i] = (struct CMUnitTest){runs[i].name, run_pair, NULL, NULL, &runs[i]};
    }
    return _cmocka_run_group_tests("pairs", tests, 2 * count, NULL, NULL);
}

#define PAIR(function, kind)                             \
    {                                                    \
#function, function, STRATA_SIM_REPORT_##kind, 0 \
    }
#define PAIR_IN(function, kind, modes)                       \
    {                                                        \
#function, function, STRATA_SIM_REPORT_##kind, modes \
    }

#endif
