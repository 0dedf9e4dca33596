/* Mapped memory of the simulated driver where a device fails, and where two processes share it. Every test has
 * processes of its own; the parent never starts the driver. */
#include "support/sim_vmm.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const char fill_ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                               ".visible .entry strata_pattern_fill(.param .u64 a, .param .u64 b, .param .u64 c)\n"
                               "{\n ret;\n}\n";

/* The exit status of a process that does this and nothing else. */
static int in_child(int (*body)(void))
{
    pid_t child = fork();
    if (child == 0)
        _exit(body());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void begin(strata_sim_policy policy)
{
    CUcontext context;
    p_set_policy(policy);
    if (p_cuInit(0) != CUDA_SUCCESS || p_cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        p_cuCtxSetCurrent(context) != CUDA_SUCCESS)
        _exit(99);
}

static CUresult launch_fill(CUdeviceptr address, uint64_t bytes)
{
    CUmodule module;
    CUfunction fill;
    uint64_t seed = 1;
    void *parameters[] = {&address, &bytes, &seed};
    if (p_cuModuleLoadData(&module, fill_ptx) != CUDA_SUCCESS ||
        p_cuModuleGetFunction(&fill, module, "strata_pattern_fill") != CUDA_SUCCESS)
        _exit(98);
    return p_cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

/* The map alone keeps the memory. */
static CUdeviceptr map_new(CUmemAccess_flags flags)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc access = {.location = properties.location, .flags = flags};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range;
    if (p_cuMemCreate(&handle, TEST_PAGE, &properties, 0) != CUDA_SUCCESS ||
        p_cuMemAddressReserve(&range, TEST_PAGE, 0, 0, 0) != CUDA_SUCCESS ||
        p_cuMemMap(range, TEST_PAGE, 0, handle, 0) != CUDA_SUCCESS || p_cuMemRelease(handle) != CUDA_SUCCESS ||
        p_cuMemSetAccess(range, TEST_PAGE, &access, 1) != CUDA_SUCCESS)
        _exit(97);
    return range;
}

static int fill_without_access(void)
{
    begin(STRATA_SIM_LATE);
    CUdeviceptr range = map_new(CU_MEM_ACCESS_FLAGS_PROT_READ);
    if (launch_fill(range, 8) != CUDA_SUCCESS)
        return 1;
    return p_cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 2;
}

static void a_kernel_that_writes_what_it_may_only_read_poisons_the_device(void **state)
{
    (void)state;
    assert_int_equal(in_child(fill_without_access), 0);
}

/* Unmapping waits for nothing: work that has not run by then finds nothing. */
static int unmap_under_work(void)
{
    begin(STRATA_SIM_LATE);
    CUdeviceptr range = map_new(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (p_cuMemsetD8Async(range, 1, 8, NULL) != CUDA_SUCCESS || p_cuMemUnmap(range, TEST_PAGE) != CUDA_SUCCESS)
        return 1;
    return p_cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 2;
}

static int unmap_after_work(void)
{
    begin(STRATA_SIM_LATE);
    CUdeviceptr range = map_new(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (p_cuMemsetD8Async(range, 1, 8, NULL) != CUDA_SUCCESS || p_cuCtxSynchronize() != CUDA_SUCCESS ||
        p_cuMemUnmap(range, TEST_PAGE) != CUDA_SUCCESS)
        return 1;
    return p_cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 2;
}

static void memory_that_is_unmapped_under_work_fails_it(void **state)
{
    (void)state;
    assert_int_equal(in_child(unmap_under_work), 0);
    assert_int_equal(in_child(unmap_after_work), 0);
}

/* Access that is taken back before the work runs counts, too. */
static int take_access_back(void)
{
    begin(STRATA_SIM_LATE);
    CUdeviceptr range = map_new(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemAccessDesc none = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    if (p_cuMemsetD8Async(range, 1, 8, NULL) != CUDA_SUCCESS ||
        p_cuMemSetAccess(range, TEST_PAGE, &none, 1) != CUDA_SUCCESS)
        return 1;
    return p_cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 2;
}

static void access_that_is_taken_back_under_work_fails_it(void **state)
{
    (void)state;
    assert_int_equal(in_child(take_access_back), 0);
}

/* ---- two processes ---- */

static int ends[2];   /* of a pipe: the number of the exporter's file */
static int answer[2]; /* and of another: the importer is done */

static CUdeviceptr map_imported(CUmemGenericAllocationHandle handle)
{
    CUdeviceptr range;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (p_cuMemAddressReserve(&range, TEST_PAGE, 0, 0, 0) != CUDA_SUCCESS ||
        p_cuMemMap(range, TEST_PAGE, 0, handle, 0) != CUDA_SUCCESS ||
        p_cuMemSetAccess(range, TEST_PAGE, &access, 1) != CUDA_SUCCESS)
        _exit(96);
    return range;
}

/* Gets the exporter's file through /proc, which stands for any way of sending a descriptor. */
static int import_and_change(void)
{
    char path[64];
    int number = -1;
    CUmemGenericAllocationHandle handle;
    unsigned char byte = 0;
    if (read(ends[0], &number, sizeof number) != (ssize_t)sizeof number)
        return 1;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getppid(), number);
    int file = open(path, O_RDWR);
    begin(STRATA_SIM_LATE);
    if (file < 0 || p_cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)file,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS)
        return 2;
    close(file);
    CUdeviceptr range = map_imported(handle);
    if (p_cuMemcpyDtoH(&byte, range + 100, 1) != CUDA_SUCCESS || byte != 0x61)
        return 3;
    if (p_cuMemsetD8(range + 100, 0x62, 1) != CUDA_SUCCESS || p_cuCtxSynchronize() != CUDA_SUCCESS)
        return 4;
    return write(answer[1], &number, sizeof number) == (ssize_t)sizeof number ? 0 : 5;
}

static int export_and_look(void)
{
    int file = -1;
    int number;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    unsigned char byte = 0;
    int status = 0;
    pid_t importer = fork();
    if (importer == 0)
        _exit(import_and_change());
    begin(STRATA_SIM_LATE);
    if (p_cuMemCreate(&handle, TEST_PAGE, &properties, 0) != CUDA_SUCCESS)
        return 11;
    CUdeviceptr range = map_imported(handle);
    p_cuMemsetD8(range, 0x61, TEST_PAGE);
    p_cuCtxSynchronize();
    if (p_cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS ||
        write(ends[1], &file, sizeof file) != (ssize_t)sizeof file)
        return 12;
    if (waitpid(importer, &status, 0) != importer || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return 20 + WEXITSTATUS(status);
    if (read(answer[0], &number, sizeof number) != (ssize_t)sizeof number)
        return 13;
    return p_cuMemcpyDtoH(&byte, range + 100, 1) == CUDA_SUCCESS && byte == 0x62 ? 0 : 14;
}

static void another_process_sees_and_changes_the_bytes_of_an_exported_handle(void **state)
{
    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(answer), 0);
    assert_int_equal(in_child(export_and_look), 0);
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        close(answer[i]);
    }
}

/* A forked child has no driver; its end must not take the bytes from its parent. */
static int fork_with_maps(void)
{
    unsigned char byte = 0;
    begin(STRATA_SIM_EARLY);
    CUdeviceptr range = map_new(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    p_cuMemsetD8(range, 0x2d, TEST_PAGE);
    p_cuCtxSynchronize();
    pid_t child = fork();
    if (child == 0)
        exit(0);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    return p_cuMemcpyDtoH(&byte, range, 1) == CUDA_SUCCESS && byte == 0x2d ? 0 : 2;
}

static void the_end_of_a_forked_child_leaves_its_parents_memory_alone(void **state)
{
    (void)state;
    assert_int_equal(in_child(fork_with_maps), 0);
}

/* Closes the driver's descriptors, as a daemon closes what it does not know. Returns the first one's number, or -1. */
static int close_the_drivers(void)
{
    int first = -1;
    char link[64], target[64];
    for (int i = 3; i < 64; i++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", i);
        const ssize_t length = readlink(link, target, sizeof target - 1);
        if (length < 0)
            continue;
        target[length] = '\0';
        if (strstr(target, "memfd:strata-sim") && close(i) == 0 && first < 0)
            first = i;
    }
    return first;
}

/* The program has a file of its own under the number of the driver's. */
static int close_and_go_on(void)
{
    static const char text[] = "the program's";
    const CUmemAllocationProp of_host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
    const CUmemAccessDesc by_host = {.location = {.type = CU_MEM_LOCATION_TYPE_HOST},
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle hosts;
    char seen[64] = "";
    begin(STRATA_SIM_EARLY);
    OK(p_cuMemCreate(&hosts, TEST_PAGE, &of_host, 0));
    const CUmemGenericAllocationHandle before = test_sim_create(0, TEST_PAGE, CU_MEM_HANDLE_TYPE_NONE);
    const CUmemGenericAllocationHandle shared = test_sim_create(0, TEST_PAGE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    const CUdeviceptr range = test_sim_reserve(3 * TEST_PAGE), hosts_range = test_sim_reserve(TEST_PAGE);
    test_sim_map(range, TEST_PAGE, before);
    OK(p_cuMemMap(hosts_range, TEST_PAGE, 0, hosts, 0));
    const int number = close_the_drivers();
    const int own = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    if (number < 0 || own < 0 || dup2(own, number) != number || write(number, text, sizeof text) != sizeof text)
        return 1;

    const CUmemGenericAllocationHandle after = test_sim_create(0, TEST_PAGE, CU_MEM_HANDLE_TYPE_NONE);
    int exported;
    test_sim_map(range + TEST_PAGE, TEST_PAGE, after);
    p_cuMemsetD8(range, 0x2d, 2 * TEST_PAGE);
    if (test_sim_byte(range) != 0x2d || test_sim_byte(range + 2 * TEST_PAGE - 1) != 0x2d)
        return 2;
    if (p_cuMemMap(range + 2 * TEST_PAGE, TEST_PAGE, 0, before, 0) != CUDA_ERROR_OPERATING_SYSTEM ||
        p_cuMemMap(range + 2 * TEST_PAGE, TEST_PAGE, 0, shared, 0) != CUDA_ERROR_OPERATING_SYSTEM ||
        p_cuMemExportToShareableHandle(&exported, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
            CUDA_ERROR_OPERATING_SYSTEM)
        return 3;
    if (p_cuMemSetAccess(hosts_range, TEST_PAGE, &by_host, 1) != CUDA_ERROR_OPERATING_SYSTEM)
        return 5;
    OK(p_cuMemUnmap(hosts_range, TEST_PAGE));
    OK(p_cuMemRelease(hosts));
    OK(p_cuMemUnmap(range, 2 * TEST_PAGE));
    OK(p_cuMemRelease(before));
    OK(p_cuMemRelease(shared));
    OK(p_cuMemRelease(after));
    return pread(number, seen, sizeof seen, 0) == sizeof text && strcmp(seen, text) == 0 ? 0 : 4;
}

static void a_program_that_closes_the_drivers_descriptors_keeps_its_own_files(void **state)
{
    (void)state;
    assert_int_equal(in_child(close_and_go_on), 0);
}

static void *release_cancelled(void *handle)
{
    pthread_cancel(pthread_self());
    p_cuMemRelease(*(CUmemGenericAllocationHandle *)handle);
    pthread_testcancel();
    return handle;
}

static int go_on_behind_a_cancelled_thread(void)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    pthread_t thread;
    begin(STRATA_SIM_EARLY);
    if (p_cuMemCreate(&handle, TEST_PAGE, &properties, 0) != CUDA_SUCCESS)
        return 1;
    if (pthread_create(&thread, NULL, release_cancelled, &handle) != 0 || pthread_join(thread, NULL) != 0)
        return 2;
    alarm(30); /* a lock that stays taken */
    return p_cuMemCreate(&handle, TEST_PAGE, &properties, 0) == CUDA_SUCCESS ? 0 : 3;
}

static void a_cancelled_thread_is_not_ended_with_the_drivers_lock(void **state)
{
    (void)state;
    assert_int_equal(in_child(go_on_behind_a_cancelled_thread), 0);
}

int main(void)
{
    test_sim_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_that_writes_what_it_may_only_read_poisons_the_device),
        cmocka_unit_test(memory_that_is_unmapped_under_work_fails_it),
        cmocka_unit_test(access_that_is_taken_back_under_work_fails_it),
        cmocka_unit_test(another_process_sees_and_changes_the_bytes_of_an_exported_handle),
        cmocka_unit_test(the_end_of_a_forked_child_leaves_its_parents_memory_alone),
        cmocka_unit_test(a_program_that_closes_the_drivers_descriptors_keeps_its_own_files),
        cmocka_unit_test(a_cancelled_thread_is_not_ended_with_the_drivers_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
