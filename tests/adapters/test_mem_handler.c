/* Memory handlers of cuTensorNet, cuStateVec and cuDSS: used as those libraries use them, by a copy of the struct. */
#include <stdint.h>
#include <string.h>

#include "support/pool.h"
#include "support/sweep.h"

static strata_mem_handler copy_of(test_fixture *fixture, const char *name)
{
    strata_mem_handler filled, copy;
    check_ok(strata_mem_handler_fill(fixture->runtime, name, &filled));
    memcpy(&copy, &filled, sizeof copy);
    memset(&filled, 0x7f, sizeof filled);
    return copy;
}

static CUdeviceptr allocate(const strata_mem_handler *handler, size_t bytes, CUstream stream)
{
    void *address = NULL;
    assert_int_equal(handler->allocate(handler->context, &address, bytes, stream), 0);
    return (CUdeviceptr)(uintptr_t)address;
}

static int deallocate(const strata_mem_handler *handler, CUdeviceptr address, size_t bytes, CUstream stream)
{
    return handler->deallocate(handler->context, (void *)(uintptr_t)address, bytes, stream);
}

static void memory_is_aligned_tagged_and_counted(test_fixture *fixture)
{
    static const size_t sizes[] = {1, 100, 4097, 300001, 5 * MIB};
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    const strata_mem_handler handler = copy_of(fixture, "tensors");
    assert_string_equal(handler.name, "tensors");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        strata_block block;
        const CUdeviceptr address = allocate(&handler, sizes[i], stream);
        assert_int_equal(address % 256, 0);
        check_ok(strata_runtime_find(fixture->runtime, address, &block));
        assert_int_equal(block.requested, sizes[i]);
        assert_string_equal(strata_tag_name(block.tag), "workspace");
        test_fill(address, 0x71, sizes[i], stream);
        assert_int_equal(deallocate(&handler, address, sizes[i], stream), 0);
    }
    assert_int_equal(test_usage(fixture).live_bytes, 0);
}

/* The library has ordered the streams: work of the first is over before the free on the second. */
static void a_free_may_name_another_stream(test_fixture *fixture)
{
    CUstream first = test_stream(fixture, TEST_STREAM_UNKNOWN), second = test_stream(fixture, TEST_STREAM_POOL);
    const strata_mem_handler handler = copy_of(fixture, NULL);
    assert_string_equal(handler.name, "strata");
    const CUdeviceptr address = allocate(&handler, MIB, first);
    test_fill(address, 0x72, MIB, first);
    test_order_after(second, first);
    test_fill(address, 0x73, MIB, second);
    assert_int_equal(deallocate(&handler, address, MIB, second), 0);
    const CUdeviceptr again = allocate(&handler, MIB, first); /* behind the second stream's work */
    test_fill(again, 0x74, MIB, first);
    const unsigned char *seen = test_copy_back(fixture, again, EDGE, first);
    test_synchronize(first);
    check_bytes(seen, 0x74, EDGE);
    assert_int_equal(deallocate(&handler, again, MIB, first), 0);
    assert_int_equal(test_usage(fixture).live_bytes, 0);
}

static void nothing_is_allocated_for_no_bytes(test_fixture *fixture)
{
    const strata_mem_handler handler = copy_of(fixture, NULL);
    void *address = &address;
    assert_int_equal(handler.allocate(handler.context, &address, 0, NULL), 0);
    assert_null(address);
    assert_int_equal(handler.deallocate(handler.context, NULL, 0, NULL), 0);
    assert_int_equal(test_usage(fixture).live_bytes, 0);
}

static void a_failure_is_a_number_and_an_error_record(test_fixture *fixture)
{
    const strata_mem_handler handler = copy_of(fixture, NULL);
    void *address = &address;
    assert_int_equal(handler.allocate(handler.context, &address, (size_t)1 << 50, NULL), STRATA_ERROR_OUT_OF_MEMORY);
    assert_null(address);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "");
    assert_int_equal(handler.allocate(handler.context, NULL, 512, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(deallocate(&handler, 0x1000, 512, NULL), STRATA_ERROR_FOREIGN_POINTER);
    const CUdeviceptr one = allocate(&handler, 4096, NULL);
    assert_int_equal(deallocate(&handler, one + 256, 512, NULL), STRATA_ERROR_FOREIGN_POINTER);
    assert_int_equal(deallocate(&handler, one, 4096, NULL), 0);
    assert_int_equal(deallocate(&handler, one, 4096, NULL), STRATA_ERROR_FOREIGN_POINTER);
}

/* The budget is the library's too. */
static void a_budget_refuses_workspaces(test_fixture *fixture)
{
    strata_runtime *runtime;
    strata_mem_handler handler;
    void *first = NULL, *second = NULL;
    (void)fixture;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "budget(limit=3MiB), pool"}, &runtime));
    check_ok(strata_mem_handler_fill(runtime, NULL, &handler));
    assert_int_equal(handler.allocate(handler.context, &first, 2 * MIB, NULL), 0);
    const int refused = handler.allocate(handler.context, &second, 2 * MIB, NULL);
    assert_int_equal(handler.deallocate(handler.context, first, 2 * MIB, NULL), 0);
    check_ok(strata_runtime_destroy(runtime));
    assert_int_equal(refused, STRATA_ERROR_OUT_OF_BUDGET);
    assert_null(second);
}

/* The host writes it at once: its last users are over. */
static void pinned_memory_is_the_hosts_too(test_fixture *fixture)
{
    strata_runtime *runtime;
    strata_mem_handler handler;
    void *address = NULL;
    (void)fixture;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pinned"}, &runtime));
    check_ok(strata_mem_handler_fill_pinned(runtime, "pinned", &handler));
    assert_int_equal(handler.allocate(handler.context, &address, 10000, NULL), 0);
    assert_int_equal((uintptr_t)address % 256, 0);
    memset(address, 0x75, 10000);
    assert_int_equal(handler.deallocate(handler.context, address, 10000, NULL), 0);
    check_ok(strata_runtime_destroy(runtime));
}

static void what_cannot_be_a_handler_is_refused(test_fixture *fixture)
{
    strata_mem_handler handler;
    memset(&handler, 0x7f, sizeof handler);
    check_status(strata_mem_handler_fill(NULL, NULL, &handler), STRATA_ERROR_INVALID_VALUE);
    assert_null(handler.context);
    check_status(strata_mem_handler_fill(fixture->runtime, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_mem_handler_fill(fixture->runtime,
                                         "a name of sixty-four bytes, which is one more than there is room for",
                                         &handler),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "at most 63 bytes");
    check_status(strata_mem_handler_fill_pinned(fixture->runtime, NULL, &handler), STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "the stack \"pinned\"");
    assert_null(handler.allocate);
    strata_runtime *mixed;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "fallback(pool | pinned)"}, &mixed));
    const strata_status status = strata_mem_handler_fill_pinned(mixed, NULL, &handler);
    check_ok(strata_runtime_destroy(mixed));
    check_status(status, STRATA_ERROR_UNSUPPORTED);
}

int main(void)
{
    static const char *const stacks[] = {"pool(decay=0)", "async", "direct"};
    static const test_case cases[] = {
        TEST_CASE(memory_is_aligned_tagged_and_counted), TEST_CASE(a_free_may_name_another_stream),
        TEST_CASE(nothing_is_allocated_for_no_bytes),    TEST_CASE(a_failure_is_a_number_and_an_error_record),
        TEST_CASE(a_budget_refuses_workspaces),          TEST_CASE(pinned_memory_is_the_hosts_too),
        TEST_CASE(what_cannot_be_a_handler_is_refused),
    };
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
