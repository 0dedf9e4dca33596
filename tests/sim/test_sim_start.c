/* The simulated driver's beginning and end: what its environment does, what it exports, forks, exit handlers, the end
 * of a poisoned context. Every test has a process of its own, and the parent never starts the driver. */
#include "support/sim.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../driver/entry_points.h"

/* The exit status of a child that does this. */
static int in_child(int (*child)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        exit(child());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static int init(void)
{
    return (int)p_cuInit(0);
}

static void a_meaningless_setting_makes_init_fail(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"STRATA_SIM_SEED", "x"},         {"STRATA_SIM_SEED", "-1"},
        {"STRATA_SIM_POLICY", "soon"},    {"STRATA_SIM_DEVICES", "0"},
        {"STRATA_SIM_DEVICES", "65"},     {"STRATA_SIM_DEVICES", "2x"},
        {"STRATA_SIM_MEMORY", "8"},       {"STRATA_SIM_MEMORY", "8 GiB"},
        {"STRATA_SIM_MEMORY", "8GB"},     {"STRATA_SIM_MEMORY", "1MiB"},
        {"STRATA_SIM_MEMORY", "2048TiB"}, {"STRATA_SIM_SEED", "99999999999999999999999"},
        {"STRATA_SIM_CHECK", "2"},        {"STRATA_SIM_CHECK", "1,0"},
        {"STRATA_SIM_CHECK", "0,pages"},  {"STRATA_SIM_CHECK", "1,1"},
        {"STRATA_SIM_CHECK", "pages,1"},  {"STRATA_SIM_CHECK", "frees,"},
        {"STRATA_SIM_CHECK", ",frees"},   {"STRATA_SIM_CHECK", "frees,0"},
        {"STRATA_SIM_CHECK", "free"},     {"STRATA_SIM_LACKS", "pools"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv(bad[i][0], bad[i][1], 1);
        assert_int_equal(in_child(init), CUDA_ERROR_INVALID_VALUE);
        unsetenv(bad[i][0]);
    }
}

static int init_and_ask_for_virtual_memory(void)
{
    CUdevice device;
    CUdeviceptr address;
    int has = 1;
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    OK(p_cuInit(0));
    OK(p_cuDeviceGet(&device, 0));
    OK(p_cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
    bool refused = p_cuMemCreate(&handle, 2 << 20, &properties, 0) == CUDA_ERROR_NOT_SUPPORTED &&
                   p_cuMemAddressReserve(&address, 2 << 20, 0, 0, 0) == CUDA_ERROR_NOT_SUPPORTED;
    return has == 0 && refused ? 0 : 1;
}

static void a_device_can_lack_virtual_memory(void **state)
{
    (void)state;
    setenv("STRATA_SIM_LACKS", "virtual-memory", 1);
    assert_int_equal(in_child(init_and_ask_for_virtual_memory), 0);
    unsetenv("STRATA_SIM_LACKS");
}

static int init_and_read_the_reason(void)
{
    const char *text;
    if (p_cuInit(0) != CUDA_ERROR_INVALID_VALUE)
        return 2;
    OK(p_cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text));
    bool told = strcmp(text, "STRATA_SIM_POLICY is \"soon\": expected early, random or late") == 0;
    unsetenv("STRATA_SIM_POLICY");
    OK(p_cuInit(0));
    OK(p_cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text));
    return told && strcmp(text, "invalid argument") == 0 ? 0 : 1;
}

static void a_failed_init_names_the_setting_and_what_it_takes(void **state)
{
    (void)state;
    const char *policy = getenv("STRATA_SIM_POLICY");
    char before[16];
    snprintf(before, sizeof before, "%s", policy ? policy : "");
    setenv("STRATA_SIM_POLICY", "soon", 1);
    assert_int_equal(in_child(init_and_read_the_reason), 0);
    setenv("STRATA_SIM_POLICY", before, 1);
}

static int init_and_try_every_word(void)
{
    const char *text;
    char words[256];
    if (p_cuInit(0) != CUDA_ERROR_INVALID_VALUE)
        return 2;
    OK(p_cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text));
    const char *list = strstr(text, "some of ");
    if (!list)
        return 3;
    snprintf(words, sizeof words, "%s", list + strlen("some of "));
    size_t count = 0;
    char *rest = words;
    for (char *word; (word = strtok_r(rest, " ,", &rest)) && strcmp(word, "with") != 0;) {
        if (strcmp(word, "and") == 0)
            continue;
        count++;
        setenv("STRATA_SIM_CHECK", word, 1);
        if (in_child(init) != CUDA_SUCCESS)
            return 4;
    }
    setenv("STRATA_SIM_CHECK", "frees,unwritten,frees", 1);
    return count == 6 && in_child(init) == CUDA_SUCCESS ? 0 : 1;
}

static void the_words_that_the_error_names_are_those_of_the_checker(void **state)
{
    (void)state;
    setenv("STRATA_SIM_CHECK", "all", 1);
    assert_int_equal(in_child(init_and_try_every_word), 0);
    unsetenv("STRATA_SIM_CHECK");
}

static void an_empty_setting_is_none(void **state)
{
    (void)state;
    static const char *const names[] = {"STRATA_SIM_SEED", "STRATA_SIM_DEVICES", "STRATA_SIM_MEMORY"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        setenv(names[i], "", 1);
        assert_int_equal(in_child(init), CUDA_SUCCESS);
        unsetenv(names[i]);
    }
}

static int two_devices_of_one_gib(void)
{
    int count;
    size_t bytes;
    OK(p_cuInit(0));
    OK(p_cuDeviceGetCount(&count));
    OK(p_cuDeviceTotalMem(&bytes, 1));
    return count == 2 && bytes == (size_t)1 << 30 ? 0 : 1;
}

static void devices_and_memory_are_as_the_environment_says(void **state)
{
    (void)state;
    setenv("STRATA_SIM_DEVICES", "2", 1);
    setenv("STRATA_SIM_MEMORY", "1GiB", 1);
    assert_int_equal(in_child(two_devices_of_one_gib), 0);
    unsetenv("STRATA_SIM_DEVICES");
    unsetenv("STRATA_SIM_MEMORY");
}

static int settings_by_function(void)
{
    int count;
    size_t bytes;
    OK(p_set_devices(3));
    OK(p_set_memory((uint64_t)128 << 20));
    OK(p_cuInit(0));
    OK(p_cuDeviceGetCount(&count));
    OK(p_cuDeviceTotalMem(&bytes, 2));
    return count == 3 && bytes == (size_t)128 << 20 && p_set_devices(2) == CUDA_ERROR_NOT_PERMITTED ? 0 : 1;
}

static void a_function_wins_over_the_environment_and_only_before_init(void **state)
{
    (void)state;
    setenv("STRATA_SIM_DEVICES", "2", 1);
    assert_int_equal(in_child(settings_by_function), 0);
    unsetenv("STRATA_SIM_DEVICES");
    assert_int_equal(p_set_devices(0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_set_memory(1), CUDA_ERROR_INVALID_VALUE);
}

static void before_init_calls_say_so(void **state)
{
    (void)state;
    int count;
    CUcontext context;
    CUdeviceptr address;
    strata_sim_accounts accounts;
    assert_int_equal(p_cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(p_cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(p_cuMemAlloc(&address, 1), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(p_get_accounts(&accounts), CUDA_ERROR_NOT_INITIALIZED);
    OK(p_cuDriverGetVersion(&count));
    assert_int_equal(count, 13000);
    assert_int_equal(p_cuInit(1), CUDA_ERROR_INVALID_VALUE);
}

static void every_entry_point_that_strata_asks_for_is_there(void **state)
{
    (void)state;
    void *found;
    CUdriverProcAddressQueryResult status;
#define ASK(need, name, version, parameters, arguments)                                              \
    OK(p_cuGetProcAddress("cu" #name, &found, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status)); \
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);                                           \
    assert_non_null(found);
    STRATA_ENTRY_POINTS(ASK)
#undef ASK
}

static void an_unknown_name_is_a_success_that_found_nothing(void **state)
{
    (void)state;
    void *found = &found;
    CUdriverProcAddressQueryResult status;
    OK(p_cuGetProcAddress("cuNoSuchThing", &found, 13000, 0, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    assert_null(found);
    OK(p_cuGetProcAddress("cuMemAllocAsync", &found, 11010, 0, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    assert_null(found);
    assert_int_equal(p_cuGetProcAddress(NULL, &found, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuGetProcAddress("cuInit", NULL, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
}

static void every_version_and_default_stream_has_its_own_function(void **state)
{
    (void)state;
    void *old;
    void *new;
    void *per_thread;
    CUdriverProcAddressQueryResult status;
    OK(p_cuGetProcAddress("cuCtxCreate", &old, 3020, 0, &status));
    OK(p_cuGetProcAddress("cuCtxCreate", &new, 13000, 0, &status));
    assert_ptr_not_equal(old, new);
    OK(p_cuGetProcAddress("cuStreamQuery", &old, 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status));
    OK(p_cuGetProcAddress("cuStreamQuery", &per_thread, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    assert_ptr_not_equal(old, per_thread);
}

static void every_result_has_its_name(void **state)
{
    (void)state;
    const char *text;
    OK(p_cuGetErrorName(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, &text));
    assert_string_equal(text, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION");
    OK(p_cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text));
    assert_string_equal(text, "invalid argument");
    assert_int_equal(p_cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    assert_null(text);
}

static CUresult exit_answer;

static void use_at_exit(void)
{
    CUdeviceptr address;
    exit_answer = p_cuMemAlloc(&address, 1);
    if (exit_answer != CUDA_ERROR_DEINITIALIZED)
        _exit(1);
    _exit(0);
}

static int end_with_work_pending(void)
{
    CUstream stream;
    CUdeviceptr address;
    atexit(use_at_exit);
    OK(p_set_policy(STRATA_SIM_LATE));
    OK(p_cuInit(0));
    test_sim_begin();
    OK(p_cuStreamCreate(&stream, 0));
    OK(p_cuMemAllocAsync(&address, 4096, stream));
    OK(p_cuMemsetD8Async(address, 1, 4096, stream));
    OK(p_cuMemFreeAsync(address, stream));
    OK(p_cuMemAllocAsync(&address, 4096, stream));
    return 2;
}

static void an_exit_handler_after_the_driver_is_told_that_it_is_gone(void **state)
{
    (void)state;
    assert_int_equal(in_child(end_with_work_pending), 0);
}

static int leave_everything_behind(void)
{
    OK(p_set_policy(STRATA_SIM_LATE));
    OK(p_cuInit(0));
    test_sim_begin();
    for (int i = 0; i < 10; i++) {
        CUstream stream;
        CUevent event;
        CUdeviceptr address;
        char host[100] = {0};
        OK(p_cuStreamCreate(&stream, 0));
        OK(p_cuEventCreate(&event, 0));
        OK(p_cuMemAllocAsync(&address, 4096, stream));
        OK(p_cuMemcpyHtoDAsync(address, host, sizeof host, stream));
        OK(p_cuEventRecord(event, stream));
        OK(p_cuMemFreeAsync(address, stream));
        OK(p_cuMemAlloc(&address, 4096));
        OK(p_cuMemHostAlloc((void **)&address, 4096, 0));
    }
    return 0;
}

static void a_program_may_end_with_everything_left_behind(void **state)
{
    (void)state;
    assert_int_equal(in_child(leave_everything_behind), 0);
}

/* Closes the library as often as it was opened, here and in test_sim_open. */
static int close_after_init(void)
{
    Dl_info info;
    void *address = NULL;
    int count;
    memcpy(&address, &p_cuInit, sizeof address);
    OK(p_cuInit(0));
    if (dladdr(address, &info) == 0)
        return 1;
    void *library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (!library || dlclose(library) != 0 || dlclose(library) != 0)
        return 2;
    OK(p_cuDeviceGetCount(&count));
    return 0;
}

static void a_driver_that_is_closed_stays_until_the_process_ends(void **state)
{
    (void)state;
    assert_int_equal(in_child(close_after_init), 0);
}

static int use_in_fork(void)
{
    int count;
    CUdeviceptr address;
    bool right = p_cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                 p_cuMemAlloc(&address, 1) == CUDA_ERROR_NOT_INITIALIZED && p_cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
    return right ? 0 : 1;
}

static int fork_after_init(void)
{
    CUdeviceptr address;
    OK(p_cuInit(0));
    test_sim_begin();
    OK(p_cuMemAlloc(&address, 4096));
    int status = in_child(use_in_fork);
    OK(p_cuMemFree(address));
    test_sim_end();
    return status;
}

static void a_forked_child_has_no_driver_and_its_parent_keeps_it(void **state)
{
    (void)state;
    assert_int_equal(in_child(fork_after_init), 0);
}

static void stray(strata_sim_launch *launch)
{
    uint64_t address;
    memcpy(&address, launch->parameters[0], sizeof address);
    launch->declare_write(launch, address, 4096);
    if (launch->write(launch, address, 4096))
        exit(3);
}

static const char stray_ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                                ".visible .entry stray(.param .u64 p0)\n{\nret;\n}\n";

static int poison(void)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr address;
    CUstream stream;
    CUcontext context;
    OK(p_register_kernel("stray", stray));
    OK(p_cuInit(0));
    test_sim_begin();
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuMemAlloc(&address, 1024));
    OK(p_cuModuleLoadData(&module, stray_ptx));
    OK(p_cuModuleGetFunction(&function, module, "stray"));
    void *parameters[] = {&address};
    OK(p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    CUresult expected = CUDA_ERROR_ILLEGAL_ADDRESS;
    bool right = p_cuStreamSynchronize(stream) == expected && p_cuStreamQuery(stream) == expected &&
                 p_cuMemAlloc(&address, 1) == expected && p_cuMemFree(address) == expected &&
                 p_cuStreamDestroy(stream) == expected && p_cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS &&
                 p_cuDevicePrimaryCtxRetain(&context, 0) == expected && p_cuCtxCreate(&context, 0, 0) == expected;
    return right ? 0 : 1;
}

static void an_illegal_access_poisons_the_device_for_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = {"early", "random", "late"};
        setenv("STRATA_SIM_POLICY", names[i], 1);
        assert_int_equal(in_child(poison), 0);
    }
    unsetenv("STRATA_SIM_POLICY");
}

static int follow_a_device_address(void)
{
    CUdeviceptr address;
    OK(p_cuInit(0));
    test_sim_begin();
    OK(p_cuMemAlloc(&address, 4096));
    signal(SIGSEGV, SIG_DFL);
    return *(volatile char *)(uintptr_t)address;
}

static void a_host_that_follows_a_device_address_faults(void **state)
{
    (void)state;
    assert_int_not_equal(in_child(follow_a_device_address), 0);
}

/* ---- signal handlers that interrupt a call ---- */

static CUresult inner;

static void call_inside(int signal)
{
    CUdeviceptr address;
    (void)signal;
    inner = p_cuMemAlloc(&address, 1);
}

/* What begins the driver, looks a name up that it lacks, or is the simulation's own. */
static void call_others_inside(int signal)
{
    void *found;
    CUdriverProcAddressQueryResult status;
    strata_sim_accounts accounts;
    (void)signal;
    inner = p_cuInit(0);
    if (inner == CUDA_ERROR_NOT_PERMITTED)
        inner = p_get_accounts(&accounts);
    if (p_cuGetProcAddress("cuNoSuchCall", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS)
        inner = CUDA_ERROR_UNKNOWN;
}

static void fork_inside(int signal)
{
    (void)signal;
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    int status = 1;
    inner = waitpid(child, &status, 0) == child && status == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static void exit_inside(int signal)
{
    (void)signal;
    exit(21);
}

static pthread_t beside;
static _Atomic bool has_called; /* `beside` */

static void *call_beside(void *unused)
{
    int count;
    (void)unused;
    (void)p_cuDeviceGetCount(&count);
    atomic_store(&has_called, true);
    return NULL;
}

/* Behind the handler the call still keeps other threads' calls out. */
static void raise_signal(strata_sim_launch *launch)
{
    (void)launch;
    raise(SIGUSR1);
    if (pthread_create(&beside, NULL, call_beside, NULL) != 0)
        _exit(3);
    usleep(50000);
    if (atomic_load(&has_called))
        _exit(4);
}

/* A launch in whose middle the handler runs. */
static void launch_with(void (*handler)(int))
{
    static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry raise()\n{\n ret;\n}\n";
    CUcontext context;
    CUmodule module;
    CUfunction function;
    signal(SIGUSR1, handler);
    alarm(60);
    OK(p_register_kernel("raise", raise_signal));
    OK(p_cuInit(0));
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuModuleLoadData(&module, ptx));
    OK(p_cuModuleGetFunction(&function, module, "raise"));
    OK(p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(p_cuCtxSynchronize());
    pthread_join(beside, NULL);
}

static int exit_in_a_call(void)
{
    launch_with(exit_inside);
    return 1;
}

static int call_in_a_call(void)
{
    launch_with(call_inside);
    return inner == CUDA_ERROR_NOT_PERMITTED ? 0 : 1;
}

static int call_others_in_a_call(void)
{
    launch_with(call_others_inside);
    return inner == CUDA_ERROR_NOT_PERMITTED ? 0 : 1;
}

static int fork_in_a_call(void)
{
    launch_with(fork_inside);
    return inner == CUDA_SUCCESS ? 0 : 1;
}

static void a_signal_handler_in_the_middle_of_a_call_waits_for_nothing(void **state)
{
    (void)state;
    assert_int_equal(in_child(exit_in_a_call), 21);
    assert_int_equal(in_child(call_in_a_call), 0);
    assert_int_equal(in_child(call_others_in_a_call), 0);
    assert_int_equal(in_child(fork_in_a_call), 0);
}

int main(void)
{
    static const char *const variables[] = {"STRATA_SIM_SEED", "STRATA_SIM_POLICY", "STRATA_SIM_DEVICES",
                                            "STRATA_SIM_MEMORY"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    test_sim_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_meaningless_setting_makes_init_fail),
        cmocka_unit_test(a_device_can_lack_virtual_memory),
        cmocka_unit_test(a_failed_init_names_the_setting_and_what_it_takes),
        cmocka_unit_test(the_words_that_the_error_names_are_those_of_the_checker),
        cmocka_unit_test(an_empty_setting_is_none),
        cmocka_unit_test(devices_and_memory_are_as_the_environment_says),
        cmocka_unit_test(a_function_wins_over_the_environment_and_only_before_init),
        cmocka_unit_test(before_init_calls_say_so),
        cmocka_unit_test(every_entry_point_that_strata_asks_for_is_there),
        cmocka_unit_test(an_unknown_name_is_a_success_that_found_nothing),
        cmocka_unit_test(every_version_and_default_stream_has_its_own_function),
        cmocka_unit_test(every_result_has_its_name),
        cmocka_unit_test(an_exit_handler_after_the_driver_is_told_that_it_is_gone),
        cmocka_unit_test(a_program_may_end_with_everything_left_behind),
        cmocka_unit_test(a_driver_that_is_closed_stays_until_the_process_ends),
        cmocka_unit_test(a_forked_child_has_no_driver_and_its_parent_keeps_it),
        cmocka_unit_test(an_illegal_access_poisons_the_device_for_good),
        cmocka_unit_test(a_host_that_follows_a_device_address_faults),
        cmocka_unit_test(a_signal_handler_in_the_middle_of_a_call_waits_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
