/* Memory of the simulated driver that the host reaches too: managed memory, and the program's own memory, registered.
 */
#include "support/sim.h"

enum { BYTES = 100000 };

static CUstream new_stream(void)
{
    CUstream stream;
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void host_and_device_see_one_managed_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        OK(p_set_policy(test_policies[i]));
        test_sim_begin();
        CUstream stream = new_stream();
        CUdeviceptr address;
        CUdeviceptr plain;
        CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
        OK(p_cuMemAllocManaged(&address, BYTES, CU_MEM_ATTACH_GLOBAL));
        OK(p_cuMemAlloc(&plain, BYTES));
        unsigned char *host = (unsigned char *)(uintptr_t)address;
        memset(host, 0x15, BYTES);
        OK(p_cuMemPrefetchAsync(address, BYTES, here, 0, stream));
        OK(p_cuMemcpyDtoDAsync(plain, address, BYTES, stream));
        OK(p_cuMemsetD8Async(address, 0x16, BYTES, stream));
        OK(p_cuMemcpyDtoDAsync(address, plain, 10, stream));
        OK(p_cuStreamSynchronize(stream));
        assert_int_equal(host[9], 0x15);
        assert_int_equal(host[10], 0x16);
        assert_int_equal(host[BYTES - 1], 0x16);
        OK(p_cuMemFree(address));
        OK(p_cuMemFree(plain));
        OK(p_cuStreamDestroy(stream));
        test_sim_end();
    }
}

static void managed_memory_goes_with_its_context(void **state)
{
    (void)state;
    CUcontext context;
    CUdeviceptr address;
    strata_sim_accounts accounts;
    test_sim_begin();
    OK(p_cuCtxCreate(&context, 0, 0));
    OK(p_cuMemAllocManaged(&address, BYTES, CU_MEM_ATTACH_GLOBAL));
    OK(p_get_accounts(&accounts));
    assert_int_equal(accounts.device_blocks, 1);
    OK(p_cuCtxDestroy(context));
    assert_int_equal(p_cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    test_sim_end();
}

static int preferred(CUdeviceptr address, size_t bytes)
{
    int value = 77;
    OK(p_cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, bytes));
    return value;
}

static void advice_holds_for_the_pages_it_was_given_for(void **state)
{
    (void)state;
    CUdeviceptr address;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    test_sim_begin();
    OK(p_cuMemAllocManaged(&address, BYTES, CU_MEM_ATTACH_GLOBAL));
    OK(p_cuMemAdvise(address + 5000, 10, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    assert_int_equal(preferred(address, 4096), CU_DEVICE_INVALID);
    assert_int_equal(preferred(address + 4096, 4096), 0);
    assert_int_equal(preferred(address + 8191, 1), 0);
    assert_int_equal(preferred(address, BYTES), CU_DEVICE_INVALID);
    OK(p_cuMemAdvise(address, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    assert_int_equal(preferred(address, BYTES), 0);
    assert_int_equal(preferred(address + BYTES - 1, 1), 0);
    OK(p_cuMemFree(address));
    test_sim_end();
}

/* Once registered, memory is read and written when the work runs; before, when the copy is called for. */
static void registered_memory_is_read_when_the_copy_runs(void **state)
{
    (void)state;
    static char text[64];
    char back[8];
    CUdeviceptr address;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUstream stream = new_stream();
    OK(p_cuMemAlloc(&address, sizeof text));
    strcpy(text, "plain");
    OK(p_cuMemcpyHtoDAsync(address, text, 8, stream));
    strcpy(text, "later");
    OK(p_cuMemcpyDtoHAsync(back, address, 8, stream));
    assert_string_equal(back, "plain");
    OK(p_cuMemHostRegister(text, sizeof text, 0));
    OK(p_cuMemcpyHtoDAsync(address, text, 8, stream));
    strcpy(text, "last");
    OK(p_cuMemcpyDtoHAsync(text + 16, address, 8, stream));
    assert_int_equal(test_sim_peek(text + 16), 0);
    OK(p_cuStreamSynchronize(stream));
    assert_string_equal(text + 16, "last");
    OK(p_cuMemHostUnregister(text));
    OK(p_cuMemFree(address));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

static void unregistering_waits_for_the_work_of_its_context(void **state)
{
    (void)state;
    static char text[64];
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUstream stream = new_stream();
    OK(p_cuMemHostRegister(text, sizeof text, 0));
    OK(p_cuMemsetD8Async((CUdeviceptr)(uintptr_t)text, 'x', 3, stream));
    assert_int_equal(test_sim_peek(text), 0);
    OK(p_cuMemHostUnregister(text));
    assert_string_equal(text, "xxx");
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

static void registered_ranges_are_exact_to_the_byte(void **state)
{
    (void)state;
    static char text[64];
    test_sim_begin();
    OK(p_cuMemHostRegister(text, 10, 0));
    OK(p_cuMemHostRegister(text + 10, 10, 0));
    assert_int_equal(p_cuMemHostRegister(text + 19, 2, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(p_cuMemHostRegister(text + 20, 10, 0));
    OK(p_cuMemHostUnregister(text + 10));
    assert_int_equal(p_cuMemHostRegister(text + 9, 5, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_int_equal(p_cuMemHostRegister(text + 15, 6, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(p_cuMemHostRegister(text + 12, 5, 0));
    assert_int_equal(p_cuMemHostUnregister(text + 13), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemHostUnregister(text + 30), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(p_cuMemHostUnregister(text));
    OK(p_cuMemHostUnregister(text + 12));
    OK(p_cuMemHostUnregister(text + 20));
    test_sim_end();
}

int main(void)
{
    test_sim_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_and_device_see_one_managed_memory),
        cmocka_unit_test(managed_memory_goes_with_its_context),
        cmocka_unit_test(advice_holds_for_the_pages_it_was_given_for),
        cmocka_unit_test(registered_memory_is_read_when_the_copy_runs),
        cmocka_unit_test(unregistering_waits_for_the_work_of_its_context),
        cmocka_unit_test(registered_ranges_are_exact_to_the_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
