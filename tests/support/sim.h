/* Opens the simulated driver as a program opens the real one, for its tests. Entry points are macros over a table that
 * is filled by name and version, so a test reads as a program that uses the driver. */
#ifndef STRATA_TESTS_SUPPORT_SIM_H
#define STRATA_TESTS_SUPPORT_SIM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <strata/sim.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* X(name, version) */
#define TEST_SIM_ENTRIES(X)                     \
    X(cuInit, 2000)                             \
    X(cuDriverGetVersion, 2020)                 \
    X(cuGetErrorName, 6000)                     \
    X(cuGetErrorString, 6000)                   \
    X(cuDeviceGetCount, 2000)                   \
    X(cuDeviceGet, 2000)                        \
    X(cuDeviceGetName, 2000)                    \
    X(cuDeviceGetUuid, 11040)                   \
    X(cuDeviceTotalMem, 3020)                   \
    X(cuDeviceGetAttribute, 2000)               \
    X(cuDeviceGetPCIBusId, 4010)                \
    X(cuDeviceGetDefaultMemPool, 11020)         \
    X(cuDeviceGetMemPool, 11020)                \
    X(cuDeviceSetMemPool, 11020)                \
    X(cuDevicePrimaryCtxRetain, 7000)           \
    X(cuDevicePrimaryCtxRelease, 11000)         \
    X(cuDevicePrimaryCtxReset, 11000)           \
    X(cuDevicePrimaryCtxGetState, 7000)         \
    X(cuDevicePrimaryCtxSetFlags, 11000)        \
    X(cuCtxCreate, 3020)                        \
    X(cuCtxDestroy, 4000)                       \
    X(cuCtxGetCurrent, 4000)                    \
    X(cuCtxSetCurrent, 4000)                    \
    X(cuCtxPushCurrent, 4000)                   \
    X(cuCtxPopCurrent, 4000)                    \
    X(cuCtxSynchronize, 2000)                   \
    X(cuCtxGetDevice, 2000)                     \
    X(cuCtxGetApiVersion, 3020)                 \
    X(cuCtxGetStreamPriorityRange, 5050)        \
    X(cuStreamCreate, 2000)                     \
    X(cuStreamCreateWithPriority, 5050)         \
    X(cuStreamDestroy, 4000)                    \
    X(cuStreamQuery, 2000)                      \
    X(cuStreamSynchronize, 2000)                \
    X(cuStreamWaitEvent, 3020)                  \
    X(cuStreamGetId, 12000)                     \
    X(cuStreamGetCtx, 9020)                     \
    X(cuStreamGetFlags, 5050)                   \
    X(cuStreamGetPriority, 5050)                \
    X(cuStreamIsCapturing, 10000)               \
    X(cuThreadExchangeStreamCaptureMode, 10010) \
    X(cuLaunchHostFunc, 10000)                  \
    X(cuEventCreate, 2000)                      \
    X(cuEventDestroy, 4000)                     \
    X(cuEventRecord, 2000)                      \
    X(cuEventQuery, 2000)                       \
    X(cuEventSynchronize, 2000)                 \
    X(cuEventElapsedTime, 2000)                 \
    X(cuMemGetInfo, 3020)                       \
    X(cuMemAlloc, 3020)                         \
    X(cuMemFree, 3020)                          \
    X(cuMemGetAddressRange, 3020)               \
    X(cuMemHostAlloc, 2020)                     \
    X(cuMemFreeHost, 2000)                      \
    X(cuPointerGetAttribute, 4000)              \
    X(cuPointerGetAttributes, 7000)             \
    X(cuMemAllocAsync, 11020)                   \
    X(cuMemAllocFromPoolAsync, 11020)           \
    X(cuMemFreeAsync, 11020)                    \
    X(cuMemPoolCreate, 11020)                   \
    X(cuMemPoolDestroy, 11020)                  \
    X(cuMemPoolSetAttribute, 11020)             \
    X(cuMemPoolGetAttribute, 11020)             \
    X(cuMemPoolTrimTo, 11020)                   \
    X(cuMemPoolSetAccess, 11020)                \
    X(cuMemPoolGetAccess, 11020)                \
    X(cuMemcpyHtoD, 3020)                       \
    X(cuMemcpyDtoH, 3020)                       \
    X(cuMemcpyHtoDAsync, 3020)                  \
    X(cuMemcpyDtoHAsync, 3020)                  \
    X(cuMemcpyDtoDAsync, 3020)                  \
    X(cuMemcpyAsync, 4000)                      \
    X(cuMemsetD8Async, 3020)                    \
    X(cuMemsetD16Async, 3020)                   \
    X(cuMemsetD32Async, 3020)                   \
    X(cuMemsetD8, 3020)                         \
    X(cuMemsetD2D8Async, 3020)                  \
    X(cuMemsetD2D8, 3020)                       \
    X(cuMemsetD2D16, 3020)                      \
    X(cuMemsetD2D32, 3020)                      \
    X(cuStreamAddCallback, 5000)                \
    X(cuModuleLoadData, 2000)                   \
    X(cuModuleUnload, 2000)                     \
    X(cuModuleGetFunction, 2000)                \
    X(cuModuleGetGlobal, 3020)                  \
    X(cuLaunchKernel, 4000)                     \
    X(cuMemAddressReserve, 10020)               \
    X(cuMemAddressFree, 10020)                  \
    X(cuMemCreate, 10020)                       \
    X(cuMemRelease, 10020)                      \
    X(cuMemRetainAllocationHandle, 11000)       \
    X(cuMemMap, 10020)                          \
    X(cuMemUnmap, 10020)                        \
    X(cuMemSetAccess, 10020)                    \
    X(cuMemGetAccess, 10020)                    \
    X(cuMemExportToShareableHandle, 10020)      \
    X(cuMemImportFromShareableHandle, 10020)    \
    X(cuMemcpy2D, 3020)                         \
    X(cuMemcpy2DAsync, 3020)                    \
    X(cuMemcpy3D, 3020)                         \
    X(cuMemcpyDtoD, 3020)                       \
    X(cuMemcpyPeer, 4000)                       \
    X(cuMemcpyPeerAsync, 4000)                  \
    X(cuCtxEnablePeerAccess, 4000)              \
    X(cuCtxDisablePeerAccess, 4000)             \
    X(cuMemAllocManaged, 6000)                  \
    X(cuMemPrefetchAsync, 12020)                \
    X(cuMemAdvise, 12020)                       \
    X(cuMemRangeGetAttribute, 8000)             \
    X(cuMemHostRegister, 6050)                  \
    X(cuMemHostUnregister, 4000)                \
    X(cuStreamWriteValue32, 11070)              \
    X(cuStreamWriteValue64, 11070)              \
    X(cuStreamWaitValue32, 11070)               \
    X(cuStreamWaitValue64, 11070)               \
    X(cuStreamBatchMemOp, 11070)

#define TEST_SIM_POINTER(name, version) static PFN_##name##_v##version p_##name;
TEST_SIM_ENTRIES(TEST_SIM_POINTER)
#undef TEST_SIM_POINTER

static PFN_cuGetProcAddress_v12000 p_cuGetProcAddress;
static PFN_strata_sim_set_seed p_set_seed;
static PFN_strata_sim_set_policy p_set_policy;
static PFN_strata_sim_set_devices p_set_devices;
static PFN_strata_sim_set_memory p_set_memory;
static PFN_strata_sim_get_accounts p_get_accounts;
static PFN_strata_sim_register_kernel p_register_kernel;
static PFN_strata_sim_set_latency p_set_latency;
static PFN_strata_sim_set_check p_set_check;
static PFN_strata_sim_host_read p_host_read;
static PFN_strata_sim_host_write p_host_write;
static PFN_strata_sim_host_signals p_host_signals;
static PFN_strata_sim_host_poll p_host_poll;
static PFN_strata_sim_get_report_count p_get_report_count;
static PFN_strata_sim_get_report p_get_report;
static PFN_strata_sim_clear_reports p_clear_reports;
static PFN_strata_sim_set_report_callback p_set_report_callback;
static PFN_strata_sim_get_check_accounts p_get_check_accounts;
static PFN_strata_driver_region_begin p_region_begin;
static PFN_strata_driver_region_end p_region_end;
static PFN_strata_sim_add_fault p_add_fault;
static PFN_strata_sim_fault_reached p_fault_reached;
static PFN_strata_sim_clear_faults p_clear_faults;

static const strata_sim_policy test_policies[] = {STRATA_SIM_EARLY, STRATA_SIM_RANDOM, STRATA_SIM_LATE};

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

static inline void test_sim_find(void *library, const char *name, void *pointer)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    memcpy(pointer, &found, sizeof found);
}

static inline void test_sim_ask(const char *name, int version, void *pointer)
{
    CUdriverProcAddressQueryResult status;
    if (p_cuGetProcAddress(name, pointer, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS ||
        status != CU_GET_PROC_ADDRESS_SUCCESS) {
        fprintf(stderr, "no %s of version %d\n", name, version);
        exit(1);
    }
}

#ifndef STRATA_SIM_LIBRARY
#define STRATA_SIM_LIBRARY "libstrata-sim.so.0"
#endif

static inline void test_sim_open(void)
{
    const char *path = getenv("STRATA_SIM_LIBRARY");
    void *library = dlopen(path ? path : STRATA_SIM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    test_sim_find(library, "cuGetProcAddress_v2", &p_cuGetProcAddress);
#define TEST_SIM_ASK(name, version) test_sim_ask(#name, version, &p_##name);
    TEST_SIM_ENTRIES(TEST_SIM_ASK)
#undef TEST_SIM_ASK
    test_sim_find(library, "strata_sim_set_seed", &p_set_seed);
    test_sim_find(library, "strata_sim_set_policy", &p_set_policy);
    test_sim_find(library, "strata_sim_set_devices", &p_set_devices);
    test_sim_find(library, "strata_sim_set_memory", &p_set_memory);
    test_sim_find(library, "strata_sim_get_accounts", &p_get_accounts);
    test_sim_find(library, "strata_sim_register_kernel", &p_register_kernel);
    test_sim_find(library, "strata_sim_set_latency", &p_set_latency);
    test_sim_find(library, "strata_sim_set_check", &p_set_check);
    test_sim_find(library, "strata_sim_host_read", &p_host_read);
    test_sim_find(library, "strata_sim_host_write", &p_host_write);
    test_sim_find(library, "strata_sim_host_signals", &p_host_signals);
    test_sim_find(library, "strata_sim_host_poll", &p_host_poll);
    test_sim_find(library, "strata_sim_get_report_count", &p_get_report_count);
    test_sim_find(library, "strata_sim_get_report", &p_get_report);
    test_sim_find(library, "strata_sim_clear_reports", &p_clear_reports);
    test_sim_find(library, "strata_sim_set_report_callback", &p_set_report_callback);
    test_sim_find(library, "strata_sim_get_check_accounts", &p_get_check_accounts);
    test_sim_find(library, "strata_driver_region_begin", &p_region_begin);
    test_sim_find(library, "strata_driver_region_end", &p_region_end);
    test_sim_find(library, "strata_sim_add_fault", &p_add_fault);
    test_sim_find(library, "strata_sim_fault_reached", &p_fault_reached);
    test_sim_find(library, "strata_sim_clear_faults", &p_clear_faults);
}

/* A byte that the host must not read yet, because work will write it. The kernel reads it, unseen by memory debuggers.
 */
static inline char test_sim_peek(const char *address)
{
    char byte = 0;
    struct iovec here = {&byte, sizeof byte};
    struct iovec there = {(void *)(uintptr_t)address, sizeof byte};
    assert_int_equal(process_vm_readv(getpid(), &here, 1, &there, 1, 0), sizeof byte);
    return byte;
}

static inline CUcontext test_sim_begin(void)
{
    CUcontext context;
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    return context;
}

/* For a test with an intended race: the checker's reports so far are no failure. */
static inline void test_sim_forget_reports(void)
{
    OK(p_cuCtxSynchronize());
    OK(p_clear_reports());
}

/* Ends what test_sim_begin began, and asserts that nothing is left. */
static inline void test_sim_end(void)
{
    strata_sim_accounts accounts;
    OK(p_cuCtxSynchronize());
    OK(p_get_accounts(&accounts));
    assert_int_equal(accounts.streams, 0);
    assert_int_equal(accounts.events, 0);
    assert_int_equal(accounts.modules, 0);
    assert_int_equal(accounts.pools, 0);
    assert_int_equal(accounts.device_blocks, 0);
    assert_int_equal(accounts.pinned_blocks, 0);
    assert_int_equal(accounts.unfinished_work, 0);
    assert_int_equal(accounts.reserved_bytes, 0);
    assert_int_equal(accounts.registered_blocks, 0);
    assert_int_equal(accounts.memory_handles, 0);
    assert_int_equal(accounts.memory_maps, 0);
    assert_int_equal(accounts.address_ranges, 0);
    assert_int_equal(accounts.graphs, 0);
    assert_int_equal(accounts.graph_execs, 0);
    OK(p_cuCtxSetCurrent(NULL));
    OK(p_cuDevicePrimaryCtxRelease(0));
}

#endif
