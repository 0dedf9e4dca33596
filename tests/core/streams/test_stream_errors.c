/* Errors of streams: each is raised once, and while no lock is held, since the log callback is the program's. On the
 * simulated driver, which fails calls by name. */
#include "core/base/error.h"
#include "core/streams/known_streams.h"
#include "core/streams/stream_map.h"
#include "support/refusals.h"

#include <string.h>

enum { BYTES = 4096 };

static strata_runtime *runtime;
static CUstream writer, reader;
static strata_block block;

static struct {
    unsigned count, locked;
    strata_status status;
} heard;

static const strata_timeline *watched;

static void watch(CUstream stream)
{
    watched = strata_known_timeline(strata_device_if_open(0), stream);
}

static void listen(const strata_error *error, void *data)
{
    (void)data;
    heard.count++;
    heard.status = error->status;
    heard.locked += watched && atomic_load_explicit(&watched->lock.taken, memory_order_relaxed);
}

/* A block that `writer` has used, which `reader` must wait for. */
static int begin(void **state)
{
    (void)state;
    memset(&heard, 0, sizeof heard);
    watched = NULL;
    if (strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &runtime) != STRATA_SUCCESS ||
        strata_runtime_stream_acquire(runtime, &writer) != STRATA_SUCCESS ||
        strata_runtime_stream_acquire(runtime, &reader) != STRATA_SUCCESS ||
        strata_runtime_allocate(runtime, BYTES, writer, &block) != STRATA_SUCCESS ||
        strata_runtime_record_block_use(runtime, &block, writer, STRATA_ACCESS_WRITE) != STRATA_SUCCESS)
        return -1;
    strata_set_log_callback(listen, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    strata_set_log_callback(NULL, NULL);
    test_refuse_no_more();
    return strata_runtime_deallocate(runtime, &block) != STRATA_SUCCESS ||
                   strata_runtime_stream_release(runtime, writer) != STRATA_SUCCESS ||
                   strata_runtime_stream_release(runtime, reader) != STRATA_SUCCESS ||
                   strata_runtime_destroy(runtime) != STRATA_SUCCESS
               ? -1
               : 0;
}

static strata_status prepare(void)
{
    return strata_runtime_prepare_block_use(runtime, &block, reader, STRATA_ACCESS_READ);
}

static void an_event_that_cannot_be_recorded_is_an_error_outside_of_locks(void **state)
{
    (void)state;
    watch(NULL);
    test_refuse("cuEventRecord", 1, 1, CUDA_ERROR_LAUNCH_FAILED);
    check_status(strata_runtime_stream_synchronize(runtime, NULL), STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "recording an event on a stream");
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.locked, 0);
}

/* The wait takes the event's place, and its error that of the event. */
static void a_wait_for_want_of_an_event_that_fails_says_why(void **state)
{
    (void)state;
    watch(writer);
    test_refuse("cuEventRecord", 1, 2, CUDA_ERROR_OUT_OF_MEMORY);
    test_refuse("cuStreamSynchronize", 1, 1, CUDA_ERROR_LAUNCH_FAILED);
    check_status(prepare(), STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "waiting for a stream");
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.status, STRATA_ERROR_DRIVER);
    assert_int_equal(heard.locked, 0);
}

static void a_stream_that_cannot_be_unregistered_is_an_error_outside_of_locks(void **state)
{
    (void)state;
    CUstream registered;
    check_cu(test_cu()->StreamCreate(&registered, CU_STREAM_NON_BLOCKING));
    check_ok(strata_runtime_register_stream(runtime, registered));
    watch(registered);
    test_refuse("cuEventRecord", 1, 1, CUDA_ERROR_LAUNCH_FAILED);
    test_refuse("cuStreamSynchronize", 1, 1, CUDA_ERROR_LAUNCH_FAILED);
    const strata_status refused = strata_runtime_unregister_stream(runtime, registered);
    const unsigned count = heard.count;
    test_refuse_no_more();
    check_status(refused, STRATA_ERROR_DRIVER);
    assert_int_equal(count, 1);
    assert_int_equal(heard.locked, 0);
    check_ok(strata_runtime_unregister_stream(runtime, registered));
    check_cu(test_cu()->StreamDestroy(registered));
}

static void a_use_that_is_waited_for_as_its_event_is_refused_is_no_error(void **state)
{
    (void)state;
    CUstream early;
    check_cu(test_cu()->StreamCreate(&early, CU_STREAM_NON_BLOCKING));
    check_ok(strata_stream_register(strata_device_if_open(0), early, true));
    check_ok(strata_runtime_prepare_block_use(runtime, &block, early, STRATA_ACCESS_WRITE));
    test_refuse("cuEventRecord", 1, 1, CUDA_ERROR_LAUNCH_FAILED);
    check_ok(strata_runtime_finish_block_use(runtime, &block, early, STRATA_ACCESS_WRITE));
    assert_int_equal(heard.count, 0);
    test_refuse_no_more();
    strata_stream_ref left;
    check_ok(strata_stream_unregister(strata_device_if_open(0), early, &left));
    strata_stream_await_frees(&left);
    check_cu(test_cu()->StreamDestroy(early));
}

static void a_refused_request_on_an_unknown_stream_is_an_error_outside_of_locks(void **state)
{
    (void)state;
    CUstream unknown;
    strata_runtime *other;
    strata_stream_ref identified;
    strata_block refused;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "async"}, &other));
    check_cu(test_cu()->StreamCreate(&unknown, CU_STREAM_NON_BLOCKING));
    check_ok(strata_stream_identify(strata_device_if_open(0), unknown, &identified));
    watched = identified.timeline;
    check_status(strata_runtime_allocate(other, (size_t)1 << 50, unknown, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.locked, 0);
    check_cu(test_cu()->StreamDestroy(unknown));
    check_ok(strata_runtime_destroy(other));
}

int main(void)
{
    test_open_driver();
    if (!test_on_simulated_driver())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_event_that_cannot_be_recorded_is_an_error_outside_of_locks, begin, end),
        cmocka_unit_test_setup_teardown(a_wait_for_want_of_an_event_that_fails_says_why, begin, end),
        cmocka_unit_test_setup_teardown(a_use_that_is_waited_for_as_its_event_is_refused_is_no_error, begin, end),
        cmocka_unit_test_setup_teardown(a_refused_request_on_an_unknown_stream_is_an_error_outside_of_locks, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_stream_that_cannot_be_unregistered_is_an_error_outside_of_locks, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
