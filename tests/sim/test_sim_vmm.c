/* Memory that the program maps itself, in the simulated driver: bytes seen through several maps, maps that come and go,
 * and what is counted meanwhile. */
#include "support/sim_vmm.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t free_bytes(void)
{
    size_t bytes;
    size_t total;
    OK(p_cuMemGetInfo(&bytes, &total));
    return bytes;
}

static void every_map_of_a_handle_shows_the_same_bytes(void **state)
{
    (void)state;
    test_sim_begin();
    CUmemGenericAllocationHandle handle = test_sim_create(0, 2 * TEST_PAGE, CU_MEM_HANDLE_TYPE_NONE);
    CUdeviceptr first = test_sim_reserve(2 * TEST_PAGE);
    CUdeviceptr second = test_sim_reserve(8 * TEST_PAGE);
    test_sim_map(first, 2 * TEST_PAGE, handle);
    test_sim_map(second, 2 * TEST_PAGE, handle);
    test_sim_map(second + 4 * TEST_PAGE, 2 * TEST_PAGE, handle);
    OK(p_cuMemsetD8Async(first + TEST_PAGE + 5, 0x77, 1, NULL));
    assert_int_equal(test_sim_byte(second + TEST_PAGE + 5), 0x77);
    OK(p_cuMemsetD8Async(second + 4 * TEST_PAGE + TEST_PAGE + 5, 0x78, 1, NULL));
    assert_int_equal(test_sim_byte(first + TEST_PAGE + 5), 0x78);
    OK(p_cuMemUnmap(first, 2 * TEST_PAGE));
    assert_int_equal(test_sim_byte(second + TEST_PAGE + 5), 0x78);
    OK(p_cuMemUnmap(second, 8 * TEST_PAGE));
    OK(p_cuMemRelease(handle));
    OK(p_cuMemAddressFree(first, 2 * TEST_PAGE));
    OK(p_cuMemAddressFree(second, 8 * TEST_PAGE));
    test_sim_end();
}

static void a_handle_keeps_its_bytes_while_it_is_mapped_nowhere(void **state)
{
    (void)state;
    test_sim_begin();
    CUmemGenericAllocationHandle handle = test_sim_create(0, TEST_PAGE, CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle other = test_sim_create(0, TEST_PAGE, CU_MEM_HANDLE_TYPE_NONE);
    CUdeviceptr range = test_sim_reserve(TEST_PAGE);
    test_sim_map(range, TEST_PAGE, handle);
    OK(p_cuMemsetD8(range, 0x11, TEST_PAGE));
    OK(p_cuCtxSynchronize());
    OK(p_cuMemUnmap(range, TEST_PAGE));
    test_sim_map(range, TEST_PAGE, other);
    OK(p_cuMemsetD8(range, 0x22, TEST_PAGE));
    OK(p_cuCtxSynchronize());
    OK(p_cuMemUnmap(range, TEST_PAGE));
    test_sim_map(range, TEST_PAGE, handle);
    assert_int_equal(test_sim_byte(range + TEST_PAGE - 1), 0x11);
    OK(p_cuMemUnmap(range, TEST_PAGE));
    OK(p_cuMemRelease(handle));
    OK(p_cuMemRelease(other));
    OK(p_cuMemAddressFree(range, TEST_PAGE));
    test_sim_end();
}

/* Twenty pages of their own, in an order that is not the order in which they were made. */
static void neighbouring_maps_are_one_range_to_copies_and_kernels(void **state)
{
    (void)state;
    enum { PAGES = 20 };
    static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                              ".visible .entry strata_pattern_fill(.param .u64 a, .param .u64 b, .param .u64 c)\n"
                              "{\n ret;\n}\n"
                              ".visible .entry strata_pattern_check(.param .u64 a, .param .u64 b, .param .u64 c,\n"
                              "    .param .u64 d)\n{\n ret;\n}\n";
    test_sim_begin();
    CUmemGenericAllocationHandle handles[PAGES];
    CUdeviceptr range = test_sim_reserve(PAGES * TEST_PAGE);
    for (size_t i = 0; i < PAGES; i++)
        handles[i] = test_sim_create(0, TEST_PAGE, CU_MEM_HANDLE_TYPE_NONE);
    for (size_t i = 0; i < PAGES; i++)
        test_sim_map(range + i * TEST_PAGE, TEST_PAGE, handles[i * 7 % PAGES]);
    CUmodule module;
    CUfunction fill;
    CUfunction check;
    CUdeviceptr plain;
    CUdeviceptr result;
    uint64_t verdict[2] = {0, UINT64_MAX};
    uint64_t bytes = PAGES * TEST_PAGE - 10;
    uint64_t seed = 42;
    CUdeviceptr from = range + 5;
    OK(p_cuModuleLoadData(&module, ptx));
    OK(p_cuModuleGetFunction(&fill, module, "strata_pattern_fill"));
    OK(p_cuModuleGetFunction(&check, module, "strata_pattern_check"));
    OK(p_cuMemAlloc(&plain, PAGES * TEST_PAGE));
    OK(p_cuMemAlloc(&result, sizeof verdict));
    OK(p_cuMemcpyHtoD(result, verdict, sizeof verdict));
    void *fill_parameters[] = {&from, &bytes, &seed};
    OK(p_cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, fill_parameters, NULL));
    OK(p_cuMemcpyDtoDAsync(plain, from, bytes, NULL));
    void *check_parameters[] = {&plain, &bytes, &seed, &result};
    OK(p_cuLaunchKernel(check, 1, 1, 1, 1, 1, 1, 0, NULL, check_parameters, NULL));
    OK(p_cuMemcpyDtoH(verdict, result, sizeof verdict));
    assert_int_equal(verdict[0], 0);
    OK(p_cuModuleUnload(module));
    OK(p_cuMemFree(plain));
    OK(p_cuMemFree(result));
    OK(p_cuMemUnmap(range, PAGES * TEST_PAGE));
    for (size_t i = 0; i < PAGES; i++)
        OK(p_cuMemRelease(handles[i]));
    OK(p_cuMemAddressFree(range, PAGES * TEST_PAGE));
    test_sim_end();
}

static void memory_is_counted_until_its_last_handle_and_its_last_map_are_gone(void **state)
{
    (void)state;
    test_sim_begin();
    size_t before = free_bytes();
    CUdeviceptr range = test_sim_reserve(8 * TEST_PAGE);
    CUmemGenericAllocationHandle handle = test_sim_create(0, 4 * TEST_PAGE, CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle again;
    assert_int_equal(before - free_bytes(), 4 * TEST_PAGE);
    test_sim_map(range, 4 * TEST_PAGE, handle);
    test_sim_map(range + 4 * TEST_PAGE, 4 * TEST_PAGE, handle);
    OK(p_cuMemRelease(handle));
    OK(p_cuMemUnmap(range, 4 * TEST_PAGE));
    assert_int_equal(before - free_bytes(), 4 * TEST_PAGE);
    OK(p_cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(range + 5 * TEST_PAGE)));
    OK(p_cuMemUnmap(range + 4 * TEST_PAGE, 4 * TEST_PAGE));
    assert_int_equal(before - free_bytes(), 4 * TEST_PAGE);
    OK(p_cuMemRelease(again));
    assert_int_equal(before - free_bytes(), 0);
    assert_int_equal(p_cuMemRelease(again), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuMemAddressFree(range, 8 * TEST_PAGE));
    test_sim_end();
}

static void a_device_gives_no_more_than_it_has_however_it_is_asked(void **state)
{
    (void)state;
    test_sim_begin();
    size_t all = free_bytes() / TEST_PAGE * TEST_PAGE;
    CUmemGenericAllocationHandle handle = test_sim_create(0, all, CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle more = 7;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUdeviceptr address;
    assert_int_equal(p_cuMemCreate(&more, TEST_PAGE, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(more, 7);
    assert_int_equal(p_cuMemAlloc(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(p_cuMemAllocAsync(&address, 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(p_cuMemRelease(handle));
    OK(p_cuMemAlloc(&address, 1));
    OK(p_cuMemFree(address));
    test_sim_end();
}

/* Once the host has waited for the free: measured on an H200, docs/measurements.md. */
static void a_pool_gives_up_what_it_does_not_use_for_a_new_handle(void **state)
{
    (void)state;
    test_sim_begin();
    CUmemoryPool pool;
    CUmemPoolProps pool_properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    cuuint64_t keep = UINT64_MAX;
    CUdeviceptr address;
    size_t before = free_bytes();
    OK(p_cuMemPoolCreate(&pool, &pool_properties));
    OK(p_cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(p_cuMemAllocFromPoolAsync(&address, before / 2, pool, NULL));
    OK(p_cuMemFreeAsync(address, NULL));
    const size_t bytes = before / 4 * 3 / TEST_PAGE * TEST_PAGE;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    (void)p_cuStreamQuery(NULL);
    OK(p_cuMemPoolTrimTo(pool, 0));
    assert_int_equal(p_cuMemCreate(&handle, bytes, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    OK(p_cuStreamSynchronize(NULL));
    handle = test_sim_create(0, bytes, CU_MEM_HANDLE_TYPE_NONE);
    OK(p_cuMemRelease(handle));
    OK(p_cuMemPoolDestroy(pool));
    test_sim_end();
}

/* The number that the next file gets: it comes back if none was left open. */
static int next_file(void)
{
    int file = open("/dev/null", O_RDONLY);
    assert_true(file >= 0);
    close(file);
    return file;
}

static CUmemGenericAllocationHandle import_of(CUmemGenericAllocationHandle handle)
{
    const CUmemAllocationHandleType posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle imported;
    int file;
    OK(p_cuMemExportToShareableHandle(&file, handle, posix, 0));
    OK(p_cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)file, posix));
    assert_int_equal(close(file), 0);
    assert_int_equal(p_cuMemExportToShareableHandle(&file, imported, posix, 0), CUDA_ERROR_INVALID_VALUE);
    return imported;
}

static void what_is_exported_and_imported_is_counted_once_and_lives_until_both_are_gone(void **state)
{
    (void)state;
    test_sim_begin();
    size_t before = free_bytes();
    int file_before = next_file();
    CUdeviceptr range = test_sim_reserve(TEST_PAGE);
    CUmemGenericAllocationHandle handle = test_sim_create(0, TEST_PAGE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle imported = import_of(handle);
    test_sim_map(range, TEST_PAGE, handle);
    OK(p_cuMemsetD8(range, 0x67, TEST_PAGE));
    OK(p_cuCtxSynchronize());
    OK(p_cuMemRelease(imported));
    assert_int_equal(test_sim_byte(range), 0x67);
    imported = import_of(handle);
    OK(p_cuMemUnmap(range, TEST_PAGE));
    OK(p_cuMemRelease(handle));
    assert_int_equal(before - free_bytes(), TEST_PAGE);
    test_sim_map(range, TEST_PAGE, imported);
    assert_int_equal(test_sim_byte(range + TEST_PAGE - 1), 0x67);
    OK(p_cuMemUnmap(range, TEST_PAGE));
    OK(p_cuMemRelease(imported));
    assert_int_equal(before - free_bytes(), 0);
    assert_int_equal(next_file(), file_before);
    OK(p_cuMemAddressFree(range, TEST_PAGE));
    test_sim_end();
}

/* Addresses, handles and maps are the process's, not a context's. */
static void maps_outlive_the_context_that_used_them(void **state)
{
    (void)state;
    CUcontext context;
    test_sim_begin();
    CUmemGenericAllocationHandle handle = test_sim_create(0, TEST_PAGE, CU_MEM_HANDLE_TYPE_NONE);
    CUdeviceptr range = test_sim_reserve(TEST_PAGE);
    test_sim_map(range, TEST_PAGE, handle);
    OK(p_cuCtxCreate(&context, 0, 0));
    OK(p_cuMemsetD8(range, 0x5c, TEST_PAGE));
    OK(p_cuCtxDestroy(context));
    assert_int_equal(test_sim_byte(range), 0x5c);
    OK(p_cuMemUnmap(range, TEST_PAGE));
    OK(p_cuMemRelease(handle));
    OK(p_cuMemAddressFree(range, TEST_PAGE));
    test_sim_end();
}

static void reserved_addresses_are_as_asked_for_and_come_back(void **state)
{
    (void)state;
    enum { RANGES = 50 };
    test_sim_begin();
    CUdeviceptr ranges[RANGES];
    size_t alignment = (size_t)1 << 30;
    for (size_t i = 0; i < RANGES; i++) {
        size_t bytes = (i % 7 + 1) * TEST_PAGE;
        OK(p_cuMemAddressReserve(&ranges[i], bytes, i % 3 == 0 ? alignment : 0, 0, 0));
        assert_int_equal(ranges[i] % (i % 3 == 0 ? alignment : TEST_PAGE), 0);
        for (size_t j = 0; j < i; j++) {
            size_t other = (j % 7 + 1) * TEST_PAGE;
            assert_true(ranges[i] + bytes <= ranges[j] || ranges[j] + other <= ranges[i]);
        }
    }
    for (size_t i = 0; i < RANGES; i++)
        OK(p_cuMemAddressFree(ranges[i], (i % 7 + 1) * TEST_PAGE));
    CUdeviceptr large = test_sim_reserve((size_t)1 << 30);
    OK(p_cuMemAddressFree(large, (size_t)1 << 30));
    CUdeviceptr wished;
    OK(p_cuMemAddressReserve(&wished, (size_t)64 << 20, 0, large + ((size_t)64 << 20), 0));
    assert_int_equal(wished, large + ((size_t)64 << 20));
    CUdeviceptr elsewhere;
    OK(p_cuMemAddressReserve(&elsewhere, (size_t)64 << 20, 0, wished, 0));
    assert_true(elsewhere != wished);
    OK(p_cuMemAddressFree(wished, (size_t)64 << 20));
    OK(p_cuMemAddressFree(elsewhere, (size_t)64 << 20));
    test_sim_end();
}

static void the_host_reaches_mapped_memory_of_its_own_once_it_may(void **state)
{
    (void)state;
    test_sim_begin();
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
    CUmemAccessDesc both[2] = {
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = {.type = CU_MEM_LOCATION_TYPE_HOST}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    OK(p_cuMemCreate(&handle, TEST_PAGE, &properties, 0));
    CUdeviceptr range = test_sim_reserve(TEST_PAGE);
    OK(p_cuMemMap(range, TEST_PAGE, 0, handle, 0));
    OK(p_cuMemSetAccess(range, TEST_PAGE, both, 2));
    volatile unsigned char *host = (volatile unsigned char *)(uintptr_t)range;
    OK(p_cuMemsetD8(range, 0x3a, TEST_PAGE));
    OK(p_cuCtxSynchronize());
    assert_int_equal(host[TEST_PAGE - 1], 0x3a);
    host[1] = 0x3b;
    assert_int_equal(test_sim_byte(range + 1), 0x3b);
    OK(p_cuMemUnmap(range, TEST_PAGE));
    OK(p_cuMemRelease(handle));
    OK(p_cuMemAddressFree(range, TEST_PAGE));
    test_sim_end();
}

/* RLIMIT_FSIZE: without a check the kernel ends the process with SIGXFSZ. */
static void a_limit_of_file_sizes_is_a_lack_of_memory(void **state)
{
    (void)state;
    test_sim_begin();
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {TEST_PAGE, before.rlim_max};
    static const CUmemAllocationHandleType types[] = {CU_MEM_HANDLE_TYPE_NONE,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                          .requestedHandleTypes = types[i]};
        CUmemGenericAllocationHandle handle;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        CUresult result = p_cuMemCreate(&handle, 64 * TEST_PAGE, &properties, 0);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(result, CUDA_ERROR_OUT_OF_MEMORY);
        OK(p_cuMemCreate(&handle, 64 * TEST_PAGE, &properties, 0));
        OK(p_cuMemRelease(handle));
    }
    test_sim_end();
}

int main(void)
{
    test_sim_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_map_of_a_handle_shows_the_same_bytes),
        cmocka_unit_test(a_limit_of_file_sizes_is_a_lack_of_memory),
        cmocka_unit_test(a_handle_keeps_its_bytes_while_it_is_mapped_nowhere),
        cmocka_unit_test(neighbouring_maps_are_one_range_to_copies_and_kernels),
        cmocka_unit_test(memory_is_counted_until_its_last_handle_and_its_last_map_are_gone),
        cmocka_unit_test(a_device_gives_no_more_than_it_has_however_it_is_asked),
        cmocka_unit_test(a_pool_gives_up_what_it_does_not_use_for_a_new_handle),
        cmocka_unit_test(what_is_exported_and_imported_is_counted_once_and_lives_until_both_are_gone),
        cmocka_unit_test(maps_outlive_the_context_that_used_them),
        cmocka_unit_test(reserved_addresses_are_as_asked_for_and_come_back),
        cmocka_unit_test(the_host_reaches_mapped_memory_of_its_own_once_it_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
