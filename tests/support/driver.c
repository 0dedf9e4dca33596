/* Opens the tests' driver, and checks its calls and answers. Until then the table of entry points has functions that
 * end the process with a message. */
#define _GNU_SOURCE
#include "support/driver.h"

#include "support/signal_stack.h"
#include "support/sweep.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- before the driver is open ---- */

static _Noreturn void refuse_unopened(const char *name)
{
    fflush(stdout);
    fprintf(stderr, "%s was called before the driver is open: main of a test program begins with test_open_driver()\n",
            name);
    _exit(TEST_DRIVER_UNOPENED);
}

#define UNOPENED(need, name, version, parameters, arguments) \
    static CUresult CUDAAPI unopened_##name parameters       \
    {                                                        \
        refuse_unopened("cu" #name);                         \
        return strata_cu.name arguments;                     \
    }
STRATA_ENTRY_POINTS(UNOPENED)
#undef UNOPENED

/* Fills the table with functions that end the process, until the driver is opened. */
static __attribute__((constructor)) void fill_unopened(void)
{
#define FILL(need, name, version, parameters, arguments) strata_cu.name = unopened_##name;
    STRATA_ENTRY_POINTS(FILL)
#undef FILL
}

/* ---- opening ---- */

static CUcontext primary_context;
static test_sim control;

static void find(void *library, const char *name, void *pointer)
{
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "the simulated driver has no %s\n", name);
        exit(1);
    }
    memcpy(pointer, &symbol, sizeof symbol);
}

static void find_control(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    find(library, "strata_sim_set_seed", &control.set_seed);
    find(library, "strata_sim_set_policy", &control.set_policy);
    find(library, "strata_sim_get_accounts", &control.get_accounts);
    find(library, "strata_sim_add_fault", &control.add_fault);
    find(library, "strata_sim_fault_reached", &control.fault_reached);
    find(library, "strata_sim_clear_faults", &control.clear_faults);
    find(library, "strata_sim_set_check", &control.set_check);
    find(library, "strata_sim_host_read", &control.host_read);
    find(library, "strata_sim_get_check_accounts", &control.get_check_accounts);
    find(library, "strata_sim_get_report_count", &control.get_report_count);
    find(library, "strata_sim_get_report", &control.get_report);
    find(library, "strata_sim_clear_reports", &control.clear_reports);
}

/* Makes the driver load its own kernels, for which it may wait for the whole device: that must not happen behind a
 * stall. */
static void warm_up(void)
{
    CUdeviceptr memory;
    unsigned char byte;
    bool warm = test_cu()->MemAlloc(&memory, 4096) == CUDA_SUCCESS;
    warm = warm && test_cu()->MemsetD8Async(memory, 1, 4096, NULL) == CUDA_SUCCESS;
    warm = warm && test_cu()->MemcpyDtoDAsync(memory, memory + 2048, 1, NULL) == CUDA_SUCCESS;
    warm = warm && test_cu()->MemcpyDtoHAsync(&byte, memory, 1, NULL) == CUDA_SUCCESS;
    warm = warm && test_cu()->CtxSynchronize() == CUDA_SUCCESS && test_cu()->MemFree(memory) == CUDA_SUCCESS;
    if (!warm) {
        fprintf(stderr, "the driver cannot fill and copy memory\n");
        exit(1);
    }
}

static void open_driver(bool say)
{
    strata_driver_info info;
    test_print_stack_on_signal(SIGABRT);
    test_sweep_begin();
    if (strata_driver_choose("auto") != STRATA_SUCCESS || strata_driver_count_calls() != STRATA_SUCCESS ||
        strata_driver_get_info(&info) != STRATA_SUCCESS) {
        printf("skipped: %s\n", strata_last_error()->message);
        exit(77);
    }
    if (say)
        printf("driver: %s (%s), CUDA %d.%d, %d device%s\n", info.library, info.simulated ? "simulated" : "hardware",
               info.version / 1000, info.version % 1000 / 10, info.device_count, info.device_count == 1 ? "" : "s");
    fflush(stdout);
    if (info.simulated)
        find_control(info.library);
    CUdevice device;
    if (test_cu()->DeviceGet(&device, 0) != CUDA_SUCCESS ||
        test_cu()->DevicePrimaryCtxRetain(&primary_context, device) != CUDA_SUCCESS) {
        printf("skipped: no device\n");
        exit(77);
    }
    test_make_current();
    warm_up();
}

void test_open_driver(void)
{
    open_driver(true);
}

void test_open_driver_quietly(void)
{
    open_driver(false);
}

void test_make_current(void)
{
    if (test_cu()->CtxSetCurrent(primary_context) != CUDA_SUCCESS) {
        fprintf(stderr, "the primary context of device 0 cannot be made current\n");
        exit(1);
    }
}

void test_leave_thread(void)
{
    if (!test_on_simulated_driver())
        test_cu()->StreamSynchronize(CU_STREAM_PER_THREAD);
}

void test_order_after(CUstream later, CUstream earlier)
{
    CUevent event;
    check_cu(test_cu()->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    check_cu(test_cu()->EventRecord(event, earlier));
    check_cu(test_cu()->StreamWaitEvent(later, event, 0));
    check_cu(test_cu()->EventDestroy(event));
}

const test_sim *test_sim_control(void)
{
    return control.set_seed ? &control : NULL;
}

bool test_on_simulated_driver(void)
{
    strata_driver_info info;
    return strata_driver_get_info(&info) == STRATA_SUCCESS && info.simulated;
}

void test_needs_simulated_driver(const char *why)
{
    if (test_on_simulated_driver())
        return;
    print_message("needs the simulated driver: %s\n", why);
    skip();
}

void test_needs_truthful_queries(void)
{
    CUevent event;
    check_cu(test_cu()->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    check_cu(test_cu()->EventRecord(event, CU_STREAM_LEGACY));
    check_cu(test_cu()->EventSynchronize(event));
    CUresult result = test_cu()->EventQuery(event);
    check_cu(test_cu()->EventDestroy(event));
    if (result == CUDA_ERROR_NOT_READY) {
        print_message("needs a driver that says of complete events that they are: this one calls one pending that was "
                      "waited for\n");
        skip();
    }
    test_check_cu(result, CUDA_SUCCESS, "cuEventQuery", __FILE__, __LINE__);
}

/* ---- checking ---- */

void test_check_status(strata_status got, strata_status want, const char *call, const char *file, int line)
{
    if (got == want)
        return;
    print_error("%s\n  answered %s, expected %s\n  last error: %s\n", call, strata_status_name(got),
                strata_status_name(want), strata_last_error()->message);
    _fail(file, line);
}

void test_check_cu(CUresult got, CUresult want, const char *call, const char *file, int line)
{
    if (got == want)
        return;
    print_error("%s\n  answered %s, expected %s\n", call, strata_driver_error_name(got),
                strata_driver_error_name(want));
    _fail(file, line);
}

void test_check_last_error(strata_status want, const char *words, const char *file, int line)
{
    const strata_error *error = strata_last_error();
    if (error->status == want && strstr(error->message, words))
        return;
    print_error("the last error is %s, \"%s\"\n  expected %s with \"%s\"\n", strata_status_name(error->status),
                error->message, strata_status_name(want), words);
    _fail(file, line);
}

/* ---- counting ---- */

static void record_count(const char *name, uint64_t count, void *data)
{
    test_calls *calls = data;
    if (calls->names == TEST_CALLS_ROOM)
        abort();
    calls->before[calls->names].name = name;
    calls->before[calls->names++].count = count;
}

void test_calls_begin(test_calls *calls)
{
    calls->names = 0;
    strata_driver_visit_calls(record_count, calls);
}

static uint64_t count_in(const test_calls *calls, const char *name)
{
    for (size_t i = 0; i < calls->names; i++)
        if (strcmp(calls->before[i].name, name) == 0)
            return calls->before[i].count;
    return 0;
}

static bool counted;

bool test_calls_were_counted(void)
{
    return counted;
}

uint64_t test_calls_of(const test_calls *calls, const char *name)
{
    test_calls now;
    counted = true;
    test_calls_begin(&now);
    return count_in(&now, name) - count_in(calls, name);
}

uint64_t test_calls_total(const test_calls *calls)
{
    test_calls now;
    uint64_t total = 0;
    counted = true;
    test_calls_begin(&now);
    for (size_t i = 0; i < now.names; i++)
        total += now.before[i].count - count_in(calls, now.before[i].name);
    return total;
}
