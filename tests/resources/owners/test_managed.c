/* managed: memory that host and device share, how much of it there may be, and advice. */
#include <stdio.h>
#include <string.h>

#include "core/streams/device.h"
#include "support/fixture.h"
#include "support/range.h"

enum { KIB = 1024, MIB = 1 << 20 };

static strata_runtime *make(const char *text)
{
    strata_runtime *runtime;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    return runtime;
}

static void host_and_device_find_the_same_bytes_at_the_same_address(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 64 * KIB, stream);
    unsigned long long managed = 0;
    check_cu(test_cu()->PointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, block.address));
    assert_int_equal(managed, 1);
    test_write(fixture, &block, 0x21, stream);
    test_synchronize(stream);
    unsigned char *host = (unsigned char *)(uintptr_t)block.address;
    check_bytes(host, 0x21, 64 * KIB);
    memset(host, 0x43, 64 * KIB);
    const unsigned char *seen = test_read(fixture, &block, stream);
    test_synchronize(stream);
    check_bytes(seen, 0x43, 64 * KIB);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_stream_close(fixture, stream);
}

static void it_claims_no_device_memory(test_fixture *fixture)
{
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    assert_int_equal(strata_resource_capabilities(top), STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND);
    strata_block block;
    check_status(
        strata_runtime_allocate_request(fixture->runtime, &(strata_request){.bytes = 1, .alignment = 512}, &block),
        STRATA_ERROR_UNSUPPORTED);
}

/* ---- how much ---- */

static size_t pretended_free;

static CUresult CUDAAPI pretend_free(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = pretended_free;
    *total_bytes = 64 * MIB;
    return CUDA_SUCCESS;
}

static strata_status allocate_with_free(strata_runtime *runtime, size_t device_free, size_t bytes, strata_block *block)
{
    PFN_cuMemGetInfo_v3020 real = strata_cu.MemGetInfo;
    pretended_free = device_free;
    strata_cu.MemGetInfo = pretend_free;
    strata_status status = strata_runtime_allocate(runtime, bytes, NULL, block);
    strata_cu.MemGetInfo = real;
    return status;
}

static void blocks_have_no_more_bytes_than_were_free_without_them(test_fixture *fixture)
{
    strata_runtime *runtime = fixture->runtime;
    strata_block a, b, refused = {.bytes = 1};
    check_status(allocate_with_free(runtime, 10 * MIB, 10 * MIB + 1, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    assert_memory_equal(&refused, &(strata_block){0}, sizeof refused);
    check_ok(allocate_with_free(runtime, 10 * MIB, 6 * MIB, &a));
    check_status(allocate_with_free(runtime, 10 * MIB, 4 * MIB + 1, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    const strata_error *error = strata_last_error();
    assert_true(error->requested == 4 * MIB + 1 && error->in_use == 6 * MIB && error->limit == 10 * MIB &&
                error->remaining == 4 * MIB && error->device_free == 10 * MIB);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "oversubscribe=on");
    /* Where blocks have moved to the device, less is free there, and as much fits as before. */
    check_status(allocate_with_free(runtime, 3 * MIB, 3 * MIB + 1, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    check_ok(allocate_with_free(runtime, 4 * MIB, 4 * MIB, &b));
    check_status(allocate_with_free(runtime, 4 * MIB, 1, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    test_free_on(fixture, &b, NULL);
    /* More is free than was: another process has freed. */
    check_ok(allocate_with_free(runtime, 12 * MIB, 6 * MIB, &b));
    test_free_on(fixture, &a, NULL);
    test_free_on(fixture, &b, NULL);
    /* Without a block, what is free counts anew. */
    check_status(allocate_with_free(runtime, 1 * MIB, 2 * MIB, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    check_ok(allocate_with_free(runtime, 2 * MIB, 2 * MIB, &a));
    test_free_on(fixture, &a, NULL);
    assert_true(test_usage(fixture).live_bytes == 0);
}

static void oversubscribed_there_is_no_such_limit(test_fixture *fixture)
{
    (void)fixture;
    strata_runtime *runtime = make("managed(oversubscribe=on)");
    strata_block block;
    check_ok(allocate_with_free(runtime, 1 * MIB, 6 * MIB, &block));
    check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
    check_ok(strata_runtime_destroy(runtime));
}

static CUresult CUDAAPI refuse_advice(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
    (void)address, (void)bytes, (void)advice, (void)location;
    return CUDA_ERROR_UNKNOWN;
}

static void an_allocation_that_fails_gives_its_room_back(test_fixture *fixture)
{
    (void)fixture;
    strata_runtime *runtime = make("managed(read_mostly=on)");
    strata_block block = {.bytes = 1};
    PFN_cuMemAdvise_v12020 advise = strata_cu.MemAdvise;
    strata_cu.MemAdvise = refuse_advice;
    test_calls calls;
    test_calls_begin(&calls);
    for (size_t i = 0; i < 3; i++) {
        strata_status status = allocate_with_free(runtime, 4 * MIB, 3 * MIB, &block);
        if (status != STRATA_ERROR_DRIVER)
            strata_cu.MemAdvise = advise;
        check_status(status, STRATA_ERROR_DRIVER);
        assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    }
    strata_cu.MemAdvise = advise;
    assert_string_equal(strata_last_error()->driver_call, "cuMemAdvise");
    assert_true(test_calls_of(&calls, "cuMemAllocManaged") == test_calls_of(&calls, "cuMemFree"));
    check_ok(allocate_with_free(runtime, 4 * MIB, 3 * MIB, &block));
    check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- options ---- */

static void advice_is_given_for_each_block(test_fixture *fixture)
{
    (void)fixture;
    static const struct {
        const char *text;
        int preferred, read_mostly;
    } stacks[] = {
        {"managed", CU_DEVICE_INVALID, 0},
        {"managed(preferred_location=device)", 0, 0},
        {"managed(preferred_location=host, read_mostly=on)", CU_DEVICE_CPU, 1},
        {"managed(attach=host)", CU_DEVICE_INVALID, 0},
    };
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        strata_runtime *runtime = make(stacks[i].text);
        strata_block block;
        check_ok(strata_runtime_allocate(runtime, 64 * KIB, NULL, &block));
        assert_int_equal(test_range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, &block), stacks[i].preferred);
        assert_int_equal(test_range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, &block), stacks[i].read_mostly);
        check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
        check_ok(strata_runtime_destroy(runtime));
    }
}

static unsigned seen_flags;
static PFN_cuMemAllocManaged_v6000 real_allocate;

static CUresult CUDAAPI see_flags(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    seen_flags = flags;
    return real_allocate(address, bytes, flags);
}

static void the_flags_are_the_drivers(test_fixture *fixture)
{
    (void)fixture;
    static const char *const texts[] = {"managed(attach=global)", "managed(attach=host)"};
    static const unsigned flags[] = {CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST};
    for (size_t i = 0; i < 2; i++) {
        strata_runtime *runtime = make(texts[i]);
        strata_block block;
        real_allocate = strata_cu.MemAllocManaged;
        strata_cu.MemAllocManaged = see_flags;
        strata_status status = strata_runtime_allocate(runtime, 100, NULL, &block);
        strata_cu.MemAllocManaged = real_allocate;
        check_ok(status);
        assert_int_equal(seen_flags, flags[i]);
        check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
        check_ok(strata_runtime_destroy(runtime));
    }
}

static void a_device_or_driver_without_it_is_told(test_fixture *fixture)
{
    (void)fixture;
    strata_device *device;
    strata_resource *resource = NULL;
    const strata_managed_options advised = {.read_mostly = true};
    check_ok(strata_device_get(0, &device));
    device->info.managed_memory = false;
    strata_status status = strata_managed_create(0, NULL, &resource);
    device->info.managed_memory = true;
    check_status(status, STRATA_ERROR_UNSUPPORTED);
    assert_null(resource);
    PFN_cuMemAdvise_v12020 advise = strata_cu.MemAdvise;
    strata_cu.MemAdvise = NULL;
    status = strata_managed_create(0, &advised, &resource);
    strata_cu.MemAdvise = advise;
    check_status(status, STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "cuMemAdvise");
}

static void options_that_are_none_are_refused(test_fixture *fixture)
{
    (void)fixture;
    strata_resource *resource;
    check_status(strata_managed_create(0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_managed_create(0, &(strata_managed_options){.attach = (strata_managed_attach)7}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_managed_create(0, &(strata_managed_options){.preferred_location = (strata_managed_location)7},
                                       &resource),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_managed_create(1000, NULL, &resource), STRATA_ERROR_INVALID_VALUE);
    assert_null(resource);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(host_and_device_find_the_same_bytes_at_the_same_address),
        TEST_CASE(it_claims_no_device_memory),
        TEST_CASE(blocks_have_no_more_bytes_than_were_free_without_them),
        TEST_CASE(oversubscribed_there_is_no_such_limit),
        TEST_CASE(an_allocation_that_fails_gives_its_room_back),
        TEST_CASE(advice_is_given_for_each_block),
        TEST_CASE(the_flags_are_the_drivers),
        TEST_CASE(a_device_or_driver_without_it_is_told),
        TEST_CASE(options_that_are_none_are_refused),
    };
    static const char *const stacks[] = {"managed"};
    strata_device_info info;
    test_open_driver();
    if (strata_device_get_info(0, &info) != STRATA_SUCCESS || !info.managed_memory) {
        printf("skipped: the device has no managed memory that the host may use at the same time\n");
        return 77;
    }
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
