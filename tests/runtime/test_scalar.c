/* Scalars: values of each type, their order with launches in flight, what makes them stale, and failures. */
#include "support/captures.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/base/error.h"

#include <string.h>

enum { LONGEST = 16, TYPES = STRATA_ELEMENT_C128 };

/* What a case that fails leaves to be cleared away. */
static strata_scalar *scalar;
static strata_launch launch;

static void destroy(void)
{
    strata_scalar *gone = scalar;
    scalar = NULL;
    check_ok(strata_scalar_destroy(gone));
}

static void clear_away(void)
{
    strata_error_suppress_begin();
    if (launch.runtime)
        strata_launch_end(&launch);
    strata_scalar_destroy(scalar);
    scalar = NULL;
    strata_error_suppress_end(false);
}

static void make(test_fixture *fixture, double value, CUstream stream)
{
    check_ok(strata_scalar_create(fixture->runtime, STRATA_ELEMENT_F64, &value, stream, &scalar));
}

static void set(double value, CUstream stream)
{
    check_ok(strata_scalar_set(scalar, &value, stream));
}

static CUdeviceptr address_of(void)
{
    CUdeviceptr address;
    check_ok(strata_scalar_address(scalar, &address));
    assert_int_not_equal(address, 0);
    return address;
}

/* Submits a launch that copies the value. */
static const void *launch_read(test_fixture *fixture, CUstream stream)
{
    const size_t bytes = strata_element_bytes(strata_scalar_type(scalar));
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_scalar(&launch, scalar, STRATA_ACCESS_READ));
    check_ok(strata_launch_preflight(&launch));
    const void *seen = test_copy_back(fixture, address_of(), bytes, stream);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    return seen;
}

#define check_value(seen, value) check_double((seen), (value), __LINE__)
static void check_double(const void *seen, double value, int line)
{
    double is;
    memcpy(&is, seen, sizeof is);
    if (is != value)
        fail_msg("line %d: %g instead of %g", line, is, value);
}

/* ---- values ---- */

/* One after the other: different bytes, equal words, equal bytes, different words. */
static void fill_value(unsigned char *value, unsigned pattern)
{
    for (unsigned i = 0; i < LONGEST; i++)
        value[i] = (unsigned char)(pattern == 0   ? 0x11 + 7 * i
                                   : pattern == 1 ? 0x80 + i % 4
                                   : pattern == 2 ? 0xa5
                                                  : i / 4);
}

static void a_scalar_of_each_element_type_has_the_value_that_was_set_last(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (int type = 1; type <= TYPES; type++) {
        const size_t bytes = strata_element_bytes((strata_element)type);
        unsigned char value[LONGEST];
        const void *seen[4];
        fill_value(value, 0);
        check_ok(strata_scalar_create(fixture->runtime, (strata_element)type, value, stream, &scalar));
        assert_int_equal(strata_scalar_type(scalar), type);
        assert_int_equal(address_of() % bytes, 0);
        for (unsigned i = 0; i < 4; i++) {
            fill_value(value, i);
            check_ok(strata_scalar_set(scalar, value, stream));
            seen[i] = launch_read(fixture, stream);
        }
        test_synchronize(stream);
        for (unsigned i = 0; i < 4; i++) {
            fill_value(value, i);
            assert_memory_equal(seen[i], value, bytes);
        }
        destroy();
    }
}

static void a_scalar_without_a_value_is_zero(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    check_ok(strata_scalar_create(fixture->runtime, STRATA_ELEMENT_F64, NULL, stream, &scalar));
    const void *seen = launch_read(fixture, stream);
    test_synchronize(stream);
    check_value(seen, 0);
    destroy();
}

static void the_host_may_change_its_value_at_once(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    double value = 1.25;
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_scalar_create(fixture->runtime, STRATA_ELEMENT_F64, &value, stream, &scalar));
    value = 7;
    const void *seen = launch_read(fixture, stream);
    test_stall_release(stall);
    test_synchronize(stream);
    check_value(seen, 1.25);
    test_stall_end(stall);
    destroy();
}

static void its_address_never_changes(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    make(fixture, 1, stream);
    const CUdeviceptr address = address_of();
    for (int i = 0; i < 10; i++) {
        set(i, stream);
        assert_int_equal(address_of(), address);
    }
    destroy();
}

/* ---- order ---- */

/* Every launch and set is submitted while the first is held back: no call waited. */
static void launches_in_flight_keep_the_value_they_were_submitted_with(test_fixture *fixture)
{
    enum { SETS = 50 };
    const void *seen[SETS];
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream stream = test_stream(fixture, kind);
        make(fixture, -1, stream);
        test_stall *stall = test_stall_begin(stream);
        for (int i = 0; i < SETS; i++) {
            set(i + 0.1, stream);
            seen[i] = launch_read(fixture, stream);
        }
        test_stall_release(stall);
        test_synchronize(stream);
        for (int i = 0; i < SETS; i++)
            check_value(seen[i], i + 0.1);
        test_stall_end(stall);
        destroy();
        test_stream_close(fixture, stream);
        fixture->seen_used = 0;
    }
}

static void a_launch_in_flight_on_another_stream_keeps_the_old_value(test_fixture *fixture)
{
    CUstream setter = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_UNKNOWN);
    make(fixture, 1.5, setter);
    test_stall *stall = test_stall_begin(reader);
    const void *old = launch_read(fixture, reader);
    set(2.5, setter);
    const void *young = launch_read(fixture, setter);
    test_stall_release(stall);
    test_synchronize(reader);
    test_synchronize(setter);
    check_value(old, 1.5);
    check_value(young, 2.5);
    test_stall_end(stall);
    destroy();
}

static void a_launch_on_another_stream_gets_the_value_that_was_set_last(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream maker = test_stream(fixture, TEST_STREAM_POOL);
        CUstream setter = test_stream(fixture, kind), reader = test_stream(fixture, TEST_STREAM_POOL);
        make(fixture, 1.5, maker); /* whose events cover nothing of the setter */
        test_stall *stall = test_stall_begin(setter);
        set(2.5, setter);
        const void *seen = launch_read(fixture, reader);
        test_stall_release(stall);
        test_synchronize(reader);
        check_value(seen, 2.5);
        test_stall_end(stall);
        destroy();
        test_stream_close(fixture, maker);
        test_stream_close(fixture, setter);
        test_stream_close(fixture, reader);
    }
}

static void sets_on_different_streams_follow_each_other(test_fixture *fixture)
{
    CUstream first = test_stream(fixture, TEST_STREAM_POOL), second = test_stream(fixture, TEST_STREAM_POOL);
    make(fixture, 0, first);
    test_stall *stall = test_stall_begin(first);
    set(1.1, first);
    set(2.2, second);
    const void *seen = launch_read(fixture, second);
    test_stall_release(stall);
    test_synchronize(second);
    check_value(seen, 2.2);
    test_stall_end(stall);
    destroy();
}

/* ---- stale, captured, failed ---- */

static void after_a_rebuild_a_set_answers_stale(test_fixture *fixture)
{
    const double value = 3;
    CUdeviceptr address = 1;
    make(fixture, 1, NULL);
    check_ok(strata_device_state_bump_generation(strata_runtime_device_state(fixture->runtime), NULL));
    check_status(strata_scalar_set(scalar, &value, NULL), STRATA_ERROR_STALE);
    check_last_error(STRATA_ERROR_STALE, "the context was rebuilt");
    check_status(strata_scalar_address(scalar, &address), STRATA_ERROR_STALE);
    assert_int_equal(address, 0);
    check_ok(strata_launch_begin(&launch, fixture->runtime, NULL, STRATA_LAUNCH_PERMISSIVE));
    check_status(strata_launch_use_scalar(&launch, scalar, STRATA_ACCESS_READ), STRATA_ERROR_STALE);
    check_ok(strata_launch_end(&launch));
    destroy();
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    make(fixture, 1, NULL); /* a new one serves */
    set(2, NULL);
    check_ok(strata_device_state_begin_shutdown(strata_runtime_device_state(fixture->runtime)));
    check_status(strata_scalar_set(scalar, &value, NULL), STRATA_ERROR_STALE);
    destroy();
}

static CUresult(CUDAAPI *say)(CUstream, CUstreamCaptureStatus *);

static CUresult CUDAAPI refuse_to_say_once(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream, (void)status;
    strata_cu.StreamIsCapturing = say;
    return CUDA_ERROR_UNKNOWN;
}

static void check_set_in_capture(test_fixture *fixture, test_stream_kind kind, bool said_at_first)
{
    const double value = 3;
    CUstream stream = test_stream(fixture, kind);
    make(fixture, 1.5, stream);
    test_begin_capture(stream);
    say = strata_cu.StreamIsCapturing;
    if (!said_at_first)
        strata_cu.StreamIsCapturing = refuse_to_say_once;
    const strata_status status = strata_scalar_set(scalar, &value, stream);
    strata_cu.StreamIsCapturing = say;
    const size_t nodes = test_end_capture(stream);
    check_status(status, STRATA_ERROR_STREAM_CAPTURE);
    assert_int_equal(nodes, 0);
    const void *seen = launch_read(fixture, stream);
    test_synchronize(stream);
    check_value(seen, 1.5);
    destroy();
    test_stream_close(fixture, stream);
}

static void a_set_inside_a_capture_is_refused_and_the_capture_lives_on(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind <= TEST_STREAM_UNKNOWN; kind++)
        check_set_in_capture(fixture, kind, true);
}

static void a_set_is_refused_if_the_driver_does_not_say_at_first_that_the_stream_is_captured(test_fixture *fixture)
{
    check_set_in_capture(fixture, TEST_STREAM_POOL, false);
}

static void a_set_that_fails_half_way_leaves_the_old_value(test_fixture *fixture)
{
    const double value = 2.2;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    make(fixture, 1.1, stream);
    for (unsigned nth = 1; nth <= 3; nth++) {
        test_fault_begin(nth == 3 ? TEST_FAULT_COPY : TEST_FAULT_MEMSET, nth == 3 ? 1 : nth, false, CUDA_ERROR_UNKNOWN);
        const strata_status status = strata_scalar_set(scalar, &value, stream);
        assert_int_equal(test_fault_end(), 1);
        check_status(status, STRATA_ERROR_DRIVER);
        check_last_error(STRATA_ERROR_DRIVER, "setting a scalar of type f64");
        const void *seen = launch_read(fixture, stream);
        test_synchronize(stream);
        check_value(seen, 1.1);
    }
    set(value, stream);
    const void *seen = launch_read(fixture, stream);
    test_synchronize(stream);
    check_value(seen, value);
    destroy();
}

static void a_scalar_that_cannot_be_made_leaves_nothing(test_fixture *fixture)
{
    const double value = 1;
    strata_scalar *made = (strata_scalar *)fixture;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    test_fault_begin(TEST_FAULT_MEMSET, 1, false, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_scalar_create(fixture->runtime, STRATA_ELEMENT_F64, &value, stream, &made);
    assert_int_equal(test_fault_end(), 1);
    check_status(status, STRATA_ERROR_DRIVER);
    assert_null(made);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    made = (strata_scalar *)fixture;
    check_status(strata_scalar_create(fixture->runtime, STRATA_ELEMENT_NONE, &value, stream, &made),
                 STRATA_ERROR_INVALID_VALUE);
    assert_null(made);
    check_status(strata_scalar_create(NULL, STRATA_ELEMENT_F64, &value, stream, &made), STRATA_ERROR_INVALID_VALUE);
}

static void wrong_arguments_are_refused(test_fixture *fixture)
{
    const double value = 1;
    CUdeviceptr address;
    check_status(strata_scalar_create(fixture->runtime, STRATA_ELEMENT_F64, &value, NULL, NULL),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_scalar_set(NULL, &value, NULL), STRATA_ERROR_INVALID_VALUE);
    make(fixture, 1, NULL);
    check_status(strata_scalar_set(scalar, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_scalar_address(scalar, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_scalar_address(NULL, &address), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(strata_scalar_type(NULL), STRATA_ELEMENT_NONE);
    check_ok(strata_scalar_destroy(NULL));
    destroy();
}

static void its_memory_goes_after_the_launches_that_read_it(test_fixture *fixture)
{
    if (test_owner_is(fixture, "direct"))
        return; /* its frees wait on the host */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    make(fixture, 1.5, stream);
    test_stall *stall = test_stall_begin(reader);
    const void *seen = launch_read(fixture, reader);
    destroy();
    make(fixture, 2.5, stream); /* perhaps in that memory */
    test_stall_release(stall);
    test_synchronize(reader);
    check_value(seen, 1.5);
    test_stall_end(stall);
    destroy();
    assert_int_equal(test_usage(fixture).live_blocks, 0);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_scalar_of_each_element_type_has_the_value_that_was_set_last),
        TEST_CASE(a_scalar_without_a_value_is_zero),
        TEST_CASE(the_host_may_change_its_value_at_once),
        TEST_CASE(its_address_never_changes),
        TEST_CASE(launches_in_flight_keep_the_value_they_were_submitted_with),
        TEST_CASE(a_launch_in_flight_on_another_stream_keeps_the_old_value),
        TEST_CASE(a_launch_on_another_stream_gets_the_value_that_was_set_last),
        TEST_CASE(sets_on_different_streams_follow_each_other),
        TEST_CASE(after_a_rebuild_a_set_answers_stale),
        TEST_CASE(a_set_inside_a_capture_is_refused_and_the_capture_lives_on),
        TEST_CASE(a_set_is_refused_if_the_driver_does_not_say_at_first_that_the_stream_is_captured),
        TEST_CASE(a_set_that_fails_half_way_leaves_the_old_value),
        TEST_CASE(a_scalar_that_cannot_be_made_leaves_nothing),
        TEST_CASE(wrong_arguments_are_refused),
        TEST_CASE(its_memory_goes_after_the_launches_that_read_it),
    };
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
