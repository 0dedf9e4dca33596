/* For tests of captures and graphs, besides support/sim.h: more entry points, and helpers that make nodes. */
#ifndef STRATA_TESTS_SUPPORT_SIM_GRAPH_H
#define STRATA_TESTS_SUPPORT_SIM_GRAPH_H

#include "support/sim.h"
#include <semaphore.h>

/* X(name, version) */
#define TEST_GRAPH_ENTRIES(X)                    \
    X(cuStreamBeginCapture, 10010)               \
    X(cuStreamBeginCaptureToGraph, 12030)        \
    X(cuStreamEndCapture, 10000)                 \
    X(cuStreamGetCaptureInfo, 12030)             \
    X(cuEventRecordWithFlags, 11010)             \
    X(cuGraphCreate, 10000)                      \
    X(cuGraphDestroy, 10000)                     \
    X(cuGraphClone, 10000)                       \
    X(cuGraphGetNodes, 10000)                    \
    X(cuGraphAddEmptyNode, 10000)                \
    X(cuGraphAddMemsetNode, 10000)               \
    X(cuGraphAddMemcpyNode, 10000)               \
    X(cuGraphAddHostNode, 10000)                 \
    X(cuGraphAddKernelNode, 12000)               \
    X(cuGraphAddChildGraphNode, 10000)           \
    X(cuGraphAddEventRecordNode, 11010)          \
    X(cuGraphAddEventWaitNode, 11010)            \
    X(cuGraphAddMemAllocNode, 11040)             \
    X(cuGraphAddMemFreeNode, 11040)              \
    X(cuGraphAddDependencies, 12030)             \
    X(cuGraphRemoveDependencies, 12030)          \
    X(cuGraphDestroyNode, 10000)                 \
    X(cuGraphInstantiateWithFlags, 11040)        \
    X(cuGraphLaunch, 10000)                      \
    X(cuGraphExecDestroy, 10000)                 \
    X(cuGraphExecUpdate, 12000)                  \
    X(cuGraphExecMemsetNodeSetParams, 10020)     \
    X(cuGraphExecKernelNodeSetParams, 12000)     \
    X(cuGraphExecChildGraphNodeSetParams, 11010) \
    X(cuGraphNodeSetEnabled, 11060)              \
    X(cuDeviceGetGraphMemAttribute, 11040)       \
    X(cuDeviceGraphMemTrim, 11040)               \
    X(cuUserObjectCreate, 11030)                 \
    X(cuGraphRetainUserObject, 11030)

#define TEST_GRAPH_POINTER(name, version) static PFN_##name##_v##version p_##name __attribute__((unused));
TEST_GRAPH_ENTRIES(TEST_GRAPH_POINTER)
#undef TEST_GRAPH_POINTER

static inline void test_graph_open(void)
{
    test_sim_open();
#define TEST_GRAPH_ASK(name, version) test_sim_ask(#name, version, &p_##name);
    TEST_GRAPH_ENTRIES(TEST_GRAPH_ASK)
#undef TEST_GRAPH_ASK
}

/* Runs `body` in a new primary context under each policy, and under random with some seeds. */
static inline void under_all_policies(void (*body)(void))
{
    for (size_t i = 0; i < 3; i++) {
        OK(p_set_policy(test_policies[i]));
        for (uint64_t seed = 0; seed < (test_policies[i] == STRATA_SIM_RANDOM ? 40U : 1U); seed++) {
            OK(p_set_seed(seed));
            test_sim_begin();
            body();
            OK(p_cuCtxSynchronize());
            OK(p_cuDeviceGraphMemTrim(0));
            test_sim_end();
        }
    }
}

static inline CUstream new_stream(void)
{
    CUstream stream;
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static inline CUevent new_event(void)
{
    CUevent event;
    OK(p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static inline CUdeviceptr new_memory(size_t bytes)
{
    CUdeviceptr address;
    OK(p_cuMemAlloc(&address, bytes));
    return address;
}

static inline unsigned char byte_at(CUdeviceptr address)
{
    unsigned char byte;
    OK(p_cuMemcpyDtoH(&byte, address, 1));
    return byte;
}

/* A gate in a stream: a host function that waits until the test opens it. */
struct gate {
    sem_t open;
};

static inline void wait_at(void *data)
{
    struct gate *gate = data;
    while (sem_wait(&gate->open) != 0) {
    }
}

static inline void shut(struct gate *gate, CUstream stream)
{
    assert_int_equal(sem_init(&gate->open, 0, 0), 0);
    OK(p_cuLaunchHostFunc(stream, wait_at, gate));
}

static inline void let_go(struct gate *gate)
{
    sem_post(&gate->open);
}

#endif
