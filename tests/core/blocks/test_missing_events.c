/* Driver and host have no memory for events: what must be ordered is waited for on the host. Each case runs on every
 * owner and on the layers that free on streams of their own. */
#include "support/faults.h"
#include "support/fixture.h"

#include "core/streams/device.h"
#include "core/streams/events.h"

enum { BYTES = 1 << 20, SEEN = 1 << 16, EVENTS_ROOM = 4096 };

/* Calls that make, record or wait for an event, and the one that makes a stream for waiting. */
static const test_fault_call lacking[] = {TEST_FAULT_EVENT_CREATE, TEST_FAULT_EVENT_RECORD,
                                          TEST_FAULT_STREAM_WAIT_EVENT, TEST_FAULT_STREAM_CREATE};
enum { LACKING = sizeof lacking / sizeof lacking[0] };

static const strata_event_mode modes[] = {STRATA_EVENTS_LATE, STRATA_EVENTS_EARLY};

static CUevent drained[EVENTS_ROOM];

/* Takes all free events of the device, so that the next one has to be made. Returns how many. */
static size_t drain_events(void)
{
    strata_device *device = strata_device_if_open(0);
    size_t count = 0;
    while (count < EVENTS_ROOM && device->event_count)
        check_ok(strata_device_take_event(device, &drained[count++]));
    return count;
}

static void give_events_back(size_t count)
{
    while (count)
        strata_device_give_event(strata_device_if_open(0), drained[--count]);
}

/* Frees a block that `user` still writes, on `freeing`, while the call fails for want of memory. */
static void free_used_block(test_fixture *fixture, test_fault_call call, CUstream alloc_stream, CUstream user,
                            CUstream freeing)
{
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x5a, user);
    const size_t events = drain_events();
    test_fault_begin(call, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    strata_status status = strata_runtime_deallocate_on(fixture->runtime, &block, freeing);
    test_fault_end();
    give_events_back(events);
    test_check_status(status, STRATA_SUCCESS, "a free", __FILE__, __LINE__);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
}

static void a_free_does_not_fail_for_want_of_an_event(test_fixture *fixture)
{
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        test_use_events(fixture, modes[m]);
        for (size_t f = 0; f < LACKING; f++)
            for (test_stream_kind used = 0; used <= TEST_STREAM_ZERO; used++)
                for (test_stream_kind freed = 0; freed <= TEST_STREAM_ZERO; freed++) {
                    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL);
                    CUstream user = test_stream(fixture, used), freeing = test_stream(fixture, freed);
                    free_used_block(fixture, lacking[f], alloc_stream, user, freeing);
                    test_stream_close(fixture, freeing);
                    test_stream_close(fixture, user);
                    test_stream_close(fixture, alloc_stream);
                }
    }
}

static void a_free_after_its_stream_has_gone_does_not_fail_for_want_of_an_event(test_fixture *fixture)
{
    for (size_t f = 0; f < LACKING; f++) {
        CUstream alloc_stream = test_stream(fixture, TEST_STREAM_REGISTERED),
                 user = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, alloc_stream);
        test_write(fixture, &block, 0x5a, user);
        test_write(fixture, &block, 0x3c, alloc_stream); /* the free comes after this */
        test_stream_close(fixture, alloc_stream);
        const size_t events = drain_events();
        test_fault_begin(lacking[f], 1, true, CUDA_ERROR_OUT_OF_MEMORY);
        const strata_status status = strata_runtime_deallocate(fixture->runtime, &block);
        test_fault_end();
        give_events_back(events);
        test_check_status(status, STRATA_SUCCESS, "a free", __FILE__, __LINE__);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
        test_stream_close(fixture, user);
    }
}

/* The prepared stream comes after the work of the other one, and so reads what it wrote. */
static void a_use_does_not_fail_for_want_of_an_event(test_fixture *fixture)
{
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        test_use_events(fixture, modes[m]);
        for (size_t f = 0; f < LACKING - 1; f++) {
            CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
            strata_block block = test_allocate(fixture, BYTES, writer);
            test_write(fixture, &block, 0x5a, writer);
            const size_t events = drain_events();
            test_fault_begin(lacking[f], 1, true, CUDA_ERROR_OUT_OF_MEMORY);
            const strata_status status =
                strata_runtime_prepare_block_use(fixture->runtime, &block, reader, STRATA_ACCESS_READ);
            const unsigned failed = test_fault_end();
            give_events_back(events);
            test_check_status(status, STRATA_SUCCESS, "a prepared use", __FILE__, __LINE__);
            assert_true(failed > 0 || modes[m] == STRATA_EVENTS_EARLY);
            const unsigned char *seen = test_copy_back(fixture, block.address, SEEN, reader);
            check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, reader, STRATA_ACCESS_READ));
            test_synchronize(reader);
            check_bytes(seen, 0x5a, SEEN);
            test_free_on(fixture, &block, reader);
            test_stream_close(fixture, writer);
            test_stream_close(fixture, reader);
        }
    }
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_free_does_not_fail_for_want_of_an_event),
        TEST_CASE(a_free_after_its_stream_has_gone_does_not_fail_for_want_of_an_event),
        TEST_CASE(a_use_does_not_fail_for_want_of_an_event),
    };
    static const char *const stacks[] = {"async",
                                         "direct",
                                         "pool",
                                         "pool, async",
                                         "pool, direct",
                                         "pinned",
                                         "managed",
                                         "async(pool=default)",
                                         "binning, direct",
                                         "binning, async",
                                         "guard, async",
                                         "guard, direct",
                                         "guard(sample=1), async"};
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
