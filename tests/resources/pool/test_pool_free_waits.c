/* A free that has no host memory for the freeing stream's point waits for the stream: the call succeeds, and raises no
 * error. The linker puts the function here in front of the library's own (--wrap). */
#include "core/base/host_memory.h"
#include "support/captures.h"
#include "support/fixture.h"

enum { BYTES = 4096 };

static bool drought;

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);

void *__wrap_strata_host_zalloc(size_t bytes)
{
    return drought ? NULL : __real_strata_host_zalloc(bytes);
}

static void count_errors(const strata_error *error, void *data)
{
    (void)error;
    ++*(unsigned *)data;
}

static void a_deferred_free_without_host_memory_waits_and_raises_no_error(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    CUstream stream, captured;
    unsigned errors = 0;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    check_cu(test_cu()->StreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    check_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
    check_cu(test_cu()->StreamSynchronize(stream));
    test_begin_capture(captured);
    check_ok(strata_runtime_deallocate_on(runtime, &block, captured));
    test_end_capture(captured);
    assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_RETIRED);
    strata_set_log_callback(count_errors, &errors);
    drought = true;
    const strata_status ended = strata_stack_captures_ended(strata_runtime_stack(runtime), captured);
    drought = false;
    strata_set_log_callback(NULL, NULL);
    check_ok(ended);
    assert_int_equal(errors, 0);
    assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_FREED);
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_cu(test_cu()->StreamDestroy(captured));
    check_ok(strata_runtime_destroy(runtime));
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deferred_free_without_host_memory_waits_and_raises_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
