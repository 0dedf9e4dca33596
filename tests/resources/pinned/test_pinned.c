/* pinned: page-locked host memory at one address for host and device. */
#include <string.h>

#include <sys/syscall.h>
#include <unistd.h>

#include "support/fixture.h"

enum { KIB = 1024 };

static void host_and_device_find_the_same_bytes_at_the_same_address(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 64 * KIB, stream);
    CUmemorytype type = CU_MEMORYTYPE_DEVICE;
    CUdeviceptr on_device = 0;
    check_cu(test_cu()->PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block.address));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    check_cu(test_cu()->PointerGetAttribute(&on_device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, block.address));
    assert_true(on_device == block.address);
    unsigned char *host = (unsigned char *)(uintptr_t)block.address;
    memset(host, 0x21, 64 * KIB);
    const unsigned char *seen = test_read(fixture, &block, stream);
    test_synchronize(stream);
    check_bytes(seen, 0x21, 64 * KIB);
    test_write(fixture, &block, 0x43, stream);
    test_synchronize(stream);
    check_bytes(host, 0x43, 64 * KIB);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_stream_close(fixture, stream);
}

static bool is_single(const test_fixture *fixture)
{
    return strstr(fixture->stack, "single") != NULL;
}

static void a_free_comes_after_uses_on_every_stream(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, 4096, alloc_stream);
    test_write(fixture, &block, 0x11, user);
    const unsigned char *seen = test_read(fixture, &block, alloc_stream);
    test_free_on(fixture, &block, alloc_stream);
    if (is_single(fixture))
        check_bytes(seen, 0x11, 4096); /* the host waited for it */
    else
        check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_bytes(seen, 0x11, 4096);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, alloc_stream), STRATA_ERROR_DOUBLE_FREE);
    assert_true(test_usage(fixture).live_blocks == 0 && test_usage(fixture).bytes_outstanding == 0);
    test_stream_close(fixture, alloc_stream);
    test_stream_close(fixture, user);
}

static void it_claims_no_device_memory(test_fixture *fixture)
{
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    const unsigned ordered = is_single(fixture) ? 0 : STRATA_CAPABILITY_STREAM_ORDERED;
    assert_int_equal(strata_resource_capabilities(top),
                     STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND | ordered);
    strata_block block;
    const size_t too_much = is_single(fixture) ? 512 : (size_t)4 << 20;
    check_status(
        strata_runtime_allocate_request(fixture->runtime, &(strata_request){.bytes = 1, .alignment = too_much}, &block),
        STRATA_ERROR_UNSUPPORTED);
}

static void what_the_host_does_not_have_is_refused_with_what_is_in_use(test_fixture *fixture)
{
    strata_block live = test_allocate(fixture, 4096, NULL), block = {.bytes = 1};
    check_status(strata_runtime_allocate(fixture->runtime, (size_t)1 << 50, NULL, &block), STRATA_ERROR_OUT_OF_MEMORY);
    assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY,
                     "out of page-locked host memory: request of 1 PiB (1125899906842624 bytes)");
    assert_true(strata_last_error()->in_use == 4096 && strata_last_error()->requested == (size_t)1 << 50);
    assert_string_equal(strata_last_error()->driver_call, "cuMemHostAlloc");
    test_free_on(fixture, &live, NULL);
}

static unsigned seen_flags;
static PFN_cuMemHostAlloc_v2020 real_allocate;

static CUresult CUDAAPI see_flags(void **address, size_t bytes, unsigned flags)
{
    seen_flags = flags;
    return real_allocate(address, bytes, flags);
}

static void the_options_are_the_drivers_flags(test_fixture *fixture)
{
    (void)fixture;
    static const struct {
        const char *text;
        unsigned flags;
    } stacks[] = {
        {"pinned", 0},
        {"pinned(single=on, mapped=on)", CU_MEMHOSTALLOC_DEVICEMAP},
        {"pinned(portable=on)", CU_MEMHOSTALLOC_PORTABLE},
        {"pinned(mapped=on)", CU_MEMHOSTALLOC_DEVICEMAP},
        {"pinned(write_combined=on, portable=on, mapped=off)",
         CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_PORTABLE},
    };
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        strata_runtime *runtime;
        strata_block block;
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stacks[i].text}, &runtime));
        real_allocate = strata_cu.MemHostAlloc;
        strata_cu.MemHostAlloc = see_flags;
        strata_status status = strata_runtime_allocate(runtime, 100, NULL, &block);
        strata_cu.MemHostAlloc = real_allocate;
        check_ok(status);
        assert_int_equal(seen_flags, stacks[i].flags);
        check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
        check_ok(strata_runtime_destroy(runtime));
    }
}

/* The policy of the calling thread during the driver's call decides where the pages are. */
static int policy_in_call;
static unsigned long nodes_in_call[16];

static CUresult CUDAAPI see_policy(void **address, size_t bytes, unsigned flags)
{
    if (syscall(SYS_get_mempolicy, &policy_in_call, nodes_in_call, 1024ul, NULL, 0ul) != 0)
        policy_in_call = -1;
    return real_allocate(address, bytes, flags);
}

static void the_driver_allocates_on_the_node_that_was_chosen(test_fixture *fixture)
{
    static const char *const texts[] = {"pinned(numa_node=0)", "pinned(numa_node=0, single=on)"};
    (void)fixture;
    for (size_t i = 0; i < 2; i++) {
        strata_runtime *runtime;
        strata_block block;
        const strata_status made = strata_runtime_create(&(strata_runtime_config){.stack_text = texts[i]}, &runtime);
        if (made == STRATA_ERROR_UNSUPPORTED) {
            print_message("the kernel lets no program place memory here\n");
            return;
        }
        check_ok(made);
        real_allocate = strata_cu.MemHostAlloc;
        strata_cu.MemHostAlloc = see_policy;
        const strata_status status = strata_runtime_allocate(runtime, 100, NULL, &block);
        strata_cu.MemHostAlloc = real_allocate;
        check_ok(status);
        assert_true(policy_in_call == 2 && nodes_in_call[0] == 1); /* MPOL_BIND */
        int after = -1;
        assert_int_equal(syscall(SYS_get_mempolicy, &after, NULL, 0ul, NULL, 0ul), 0);
        assert_int_equal(after, 0);
        check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
        check_ok(strata_runtime_destroy(runtime));
    }
}

static void in_sanitizer_mode_each_block_is_an_allocation_of_the_driver(test_fixture *fixture)
{
    (void)fixture;
    strata_runtime *runtime;
    check_ok(strata_set_mode(STRATA_MODE_SANITIZER));
    const strata_status status =
        strata_runtime_create(&(strata_runtime_config){.stack_text = "pinned(slab=8MiB)"}, &runtime);
    check_ok(strata_set_mode(STRATA_MODE_NORMAL));
    check_ok(status);
    assert_false(strata_resource_capabilities(strata_stack_top(strata_runtime_stack(runtime))) &
                 STRATA_CAPABILITY_STREAM_ORDERED);
    check_ok(strata_runtime_destroy(runtime));
}

static void it_is_refused_without_a_place_or_a_device(test_fixture *fixture)
{
    (void)fixture;
    strata_resource *resource;
    check_status(strata_pinned_create(0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_pinned_create(0, &(strata_pinned_options){.size = 77}, &resource), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_pinned_create(1000, NULL, &resource), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_pinned_create(0, &(strata_pinned_options){.slab = 4095 * KIB}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "give 4 MiB to 1 TiB");
    check_status(strata_pinned_create(0, &(strata_pinned_options){.slab = 8 << 20, .single = true}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_pinned_create(0, &(strata_pinned_options){.numa = 1000}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "the kernel refuses memory on NUMA node 999");
    check_status(strata_pinned_create(0, &(strata_pinned_options){.numa = -1}, &resource), STRATA_ERROR_INVALID_VALUE);
    assert_null(resource);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(host_and_device_find_the_same_bytes_at_the_same_address),
        TEST_CASE(a_free_comes_after_uses_on_every_stream),
        TEST_CASE(it_claims_no_device_memory),
        TEST_CASE(what_the_host_does_not_have_is_refused_with_what_is_in_use),
        TEST_CASE(the_options_are_the_drivers_flags),
        TEST_CASE(the_driver_allocates_on_the_node_that_was_chosen),
        TEST_CASE(in_sanitizer_mode_each_block_is_an_allocation_of_the_driver),
        TEST_CASE(it_is_refused_without_a_place_or_a_device),
    };
    static const char *const stacks[] = {"pinned", "pinned(single=on)"};
    test_open_driver();
    return test_run_on(stacks, 2, cases, sizeof cases / sizeof cases[0]);
}
