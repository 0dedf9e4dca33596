/* Which streams requests go to, by sender, hint and priority, and what statistics say of work under way. */
#include <poll.h>
#include <unistd.h>

#include "support/service.h"
#include "support/stall.h"

static strata_status note_stream(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    *(CUstream *)data = stream;
    return STRATA_SUCCESS;
}

static CUstream stream_of(strata_service *service, uint64_t sender, strata_service_hint hint, strata_priority priority)
{
    CUstream stream = NULL;
    const strata_service_operation operation = {.function = note_stream, .data = &stream};
    const strata_send_options send = {.sender = sender, .hint = hint, .priority = priority};
    strata_future *future;
    check_ok(strata_service_run(service, &operation, &send, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    assert_non_null(stream);
    return stream;
}

static CUstream stream_of_sender(strata_service *service, uint64_t sender)
{
    return stream_of(service, sender, STRATA_HINT_NONE, STRATA_PRIORITY_NORMAL);
}

/* ---- senders ---- */

static void all_senders_share_one_stream(void **state)
{
    (void)state;
    strata_service *service = test_service_make(NULL);
    strata_service_snapshot snapshot;
    check_ok(strata_service_get_snapshot(service, &snapshot));
    for (uint64_t sender = 1; sender < 6; sender++)
        assert_ptr_equal(stream_of_sender(service, sender), snapshot.stream);
    check_ok(strata_service_destroy(service));
}

/* The first come each have one, and later ones share. */
static void each_sender_has_a_stream_as_long_as_there_are_some(void **state)
{
    (void)state;
    enum { COUNT = 3 };
    strata_service *service = test_service_make(
        &(strata_service_options){.streams = STRATA_SERVICE_STREAM_PER_SENDER, .stream_count = COUNT});
    CUstream streams[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        streams[i] = stream_of_sender(service, 70 * i + 7);
        for (uint64_t j = 0; j < i; j++)
            assert_ptr_not_equal(streams[i], streams[j]);
    }
    for (uint64_t i = 0; i < COUNT; i++)
        assert_ptr_equal(stream_of_sender(service, 70 * i + 7), streams[i]);
    const CUstream shared = stream_of_sender(service, 1000);
    assert_true(shared == streams[0] || shared == streams[1] || shared == streams[2]);
    check_ok(strata_service_destroy(service));
}

static void senders_share_the_streams_of_a_pool(void **state)
{
    (void)state;
    strata_service *service =
        test_service_make(&(strata_service_options){.streams = STRATA_SERVICE_STREAM_POOLED, .stream_count = 2});
    const CUstream one = stream_of_sender(service, 1), two = stream_of_sender(service, 2);
    assert_ptr_not_equal(one, two);
    assert_ptr_equal(stream_of_sender(service, 3), one);
    assert_ptr_equal(stream_of_sender(service, 4), two);
    check_ok(strata_service_destroy(service));
}

/* ---- hints and priorities ---- */

static CUresult (*real_create)(CUstream *stream, unsigned flags, int priority);
static CUstream made[16];
static int priorities[16];
static size_t made_count;

static CUresult note_priority(CUstream *stream, unsigned flags, int priority)
{
    const CUresult result = real_create(stream, flags, priority);
    if (result == CUDA_SUCCESS && made_count < 16) {
        priorities[made_count] = priority;
        made[made_count++] = *stream;
    }
    return result;
}

static int priority_of(CUstream stream)
{
    size_t i = 0;
    while (i < made_count && made[i] != stream)
        i++;
    assert_true(i < made_count);
    return priorities[i];
}

static void work_of_each_hint_and_priority_has_a_stream_of_its_own(void **state)
{
    (void)state;
    int least = 0, greatest = 0;
    CUstream streams[9];
    real_create = strata_cu.StreamCreateWithPriority;
    strata_cu.StreamCreateWithPriority = note_priority;
    strata_service *service = test_service_make(NULL);
    for (int i = 0; i < 9; i++) {
        streams[i] = stream_of(service, 1, (strata_service_hint)(i / 3), (strata_priority)(i % 3));
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(streams[i], streams[j]);
    }
    strata_cu.StreamCreateWithPriority = real_create;
    check_cu(strata_cu.CtxGetStreamPriorityRange(&least, &greatest));
    assert_true(greatest < least);
    for (int hint = 0; hint < 3; hint++) {
        assert_int_equal(priority_of(streams[3 * hint + STRATA_PRIORITY_HIGH]), greatest);
        assert_int_equal(priority_of(streams[3 * hint + STRATA_PRIORITY_LOW]), least);
        const int normal = priority_of(streams[3 * hint + STRATA_PRIORITY_NORMAL]);
        assert_true(greatest < normal && normal < least);
    }
    check_ok(strata_service_destroy(service));
}

static strata_status stall(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    *(test_stall **)data = test_stall_begin(stream);
    return STRATA_SUCCESS;
}

static strata_future *begin_stall(strata_service *service, test_stall **stalled, const strata_send_options *send)
{
    const strata_service_operation operation = {.function = stall, .data = stalled};
    strata_future *future;
    strata_service_stats stats;
    check_ok(strata_service_run(service, &operation, send, &future));
    do {
        usleep(500);
        check_ok(strata_service_get_stats(service, &stats));
    } while (!stats.active_streams);
    return future;
}

/* The driver is asked every hour. */
static void the_end_of_short_work_is_looked_for_without_sleeping(void **state)
{
    (void)state;
    strata_service *service = test_service_make(&(strata_service_options){.poll_interval = 3600ull * TEST_SECOND});
    test_stall *stalled;
    strata_future *future = begin_stall(service, &stalled, &(strata_send_options){.hint = STRATA_HINT_SHORT});
    test_stall_release(stalled);
    check_ok(strata_future_wait_for(future, 20ull * TEST_SECOND));
    strata_future_release(future);
    test_stall_end(stalled);
    check_ok(strata_service_destroy(service));
}

/* ---- statistics ---- */

static void statistics_tell_of_what_is_under_way(void **state)
{
    (void)state;
    strata_service *service = test_service_make(NULL);
    strata_service_stats stats;
    test_stall *first, *second;
    test_gate gate;
    strata_future *one = begin_stall(service, &first, NULL), *other, *queued[3];
    const strata_service_operation operation = {.function = stall, .data = &second};
    check_ok(strata_service_run(service, &operation, &(strata_send_options){.priority = STRATA_PRIORITY_LOW}, &other));
    do
        check_ok(strata_service_get_stats(service, &stats));
    while (stats.active_streams < 2);
    assert_int_equal(stats.active_streams, 2);
    assert_int_equal(stats.in_flight, 2);
    assert_int_equal(stats.queued, 0);
    strata_future *held = test_close_gate(service, &gate);
    for (int i = 0; i < 3; i++)
        check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, i == 2 ? (size_t)1 << 50 : 64, NULL, &queued[i]));
    check_ok(strata_service_get_stats(service, &stats)); /* the service's thread is busy */
    assert_int_equal(stats.queued, 3);
    assert_int_equal(stats.in_flight, 3);
    assert_int_equal(stats.done + stats.failed, 0);
    test_stall_release(first);
    test_stall_release(second);
    test_open_gate(&gate, held);
    for (int i = 0; i < 3; i++)
        strata_ref_release(test_take(queued[i]).ref);
    assert_int_equal(test_take(one).status, STRATA_SUCCESS);
    assert_int_equal(test_take(other).status, STRATA_SUCCESS);
    test_stall_end(first);
    test_stall_end(second);
    do
        check_ok(strata_service_get_stats(service, &stats));
    while (stats.active_streams || stats.in_flight);
    assert_int_equal(stats.done, 5);
    assert_int_equal(stats.failed, 1);
    check_ok(strata_service_destroy(service));
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_senders_share_one_stream),
        cmocka_unit_test(each_sender_has_a_stream_as_long_as_there_are_some),
        cmocka_unit_test(senders_share_the_streams_of_a_pool),
        cmocka_unit_test(work_of_each_hint_and_priority_has_a_stream_of_its_own),
        cmocka_unit_test(the_end_of_short_work_is_looked_for_without_sleeping),
        cmocka_unit_test(statistics_tell_of_what_is_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
