/* Streams that become known, or cease to be, in the midst of another call. */
#include "support/effort.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/stack/default_operations.h"
#include "core/stack/stack.h"
#include "core/streams/inflight_frees.h"
#include "core/streams/stream_map.h"
#include "core/streams/use_records.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum { BYTES = 4096 };

static CUstream make_stream(void)
{
    CUstream stream;
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void destroy_stream(CUstream stream)
{
    check_cu(test_cu()->StreamDestroy(stream));
}

/* ---- registering and unregistering ---- */

static struct {
    CUresult(CUDAAPI *get_id)(CUstream, unsigned long long *);
    CUresult(CUDAAPI *record)(CUevent, CUstream);
    test_fixture *fixture; /* NULL: nothing happens */
    CUstream stream;
    strata_block *block;
    pthread_t thread;
    bool begun;
    _Atomic bool used;
    bool early; /* it was used before the stream was unregistered */
} midst;

static CUresult CUDAAPI get_id_and_register(CUstream stream, unsigned long long *id)
{
    const CUresult result = midst.get_id(stream, id);
    test_fixture *fixture = stream == midst.stream ? midst.fixture : NULL;
    if (fixture) {
        midst.fixture = NULL;
        for (int attempt = 0; attempt < 2 && !midst.begun; attempt++) /* a sweep fails one call */
            midst.begun = strata_runtime_register_stream(fixture->runtime, stream) == STRATA_SUCCESS;
    }
    return result;
}

/* The block's allocation stream is found, whether it was registered or the allocation was recorded first. */
static void a_stream_that_is_registered_while_it_is_looked_up_is_known(test_fixture *fixture)
{
    CUstream stream = make_stream();
    strata_block block;
    midst.get_id = strata_cu.StreamGetId;
    midst.begun = false;
    midst.stream = stream;
    midst.fixture = fixture;
    strata_cu.StreamGetId = get_id_and_register;
    const strata_status status = strata_runtime_allocate(fixture->runtime, BYTES, stream, &block);
    strata_cu.StreamGetId = midst.get_id;
    check_ok(status);
    assert_true(midst.begun);
    test_write(fixture, &block, 0x11, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    check_ok(strata_runtime_register_stream(fixture->runtime, stream));
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    destroy_stream(stream);
}

static void *use_in_the_midst(void *data)
{
    test_fixture *fixture = data;
    test_make_current();
    test_write(fixture, midst.block, 0x22, midst.stream);
    midst.used = true;
    return NULL;
}

static CUresult CUDAAPI record_and_wait_for_use(CUevent event, CUstream stream)
{
    const CUresult result = midst.record(event, stream);
    test_fixture *fixture = stream == midst.stream ? midst.fixture : NULL;
    if (fixture) {
        const struct timespec meanwhile = {.tv_nsec = 20000000};
        midst.fixture = NULL;
        midst.begun = pthread_create(&midst.thread, NULL, use_in_the_midst, fixture) == 0;
        nanosleep(&meanwhile, NULL);
        midst.early = midst.used;
    }
    return result;
}

/* What is submitted after the stream's last event was recorded is not what that event says. */
static void a_use_that_comes_while_its_stream_is_unregistered_is_noted_afterwards(test_fixture *fixture)
{
    CUstream stream = make_stream();
    check_ok(strata_runtime_register_stream(fixture->runtime, stream));
    strata_block block = test_allocate(fixture, BYTES, stream);
    midst.record = strata_cu.EventRecord;
    midst.stream = stream;
    midst.block = &block;
    midst.used = midst.begun = false;
    midst.fixture = fixture;
    strata_cu.EventRecord = record_and_wait_for_use;
    const strata_status status = strata_runtime_unregister_stream(fixture->runtime, stream);
    if (midst.begun)
        pthread_join(midst.thread, NULL);
    strata_cu.EventRecord = midst.record;
    check_ok(status);
    assert_true(midst.begun && midst.used);
    assert_false(midst.early);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, stream));
    test_synchronize(stream);
    destroy_stream(stream);
}

/* ---- a free that finds its stream by itself, while another thread ends that stream ---- */

/* The free stops once it has found the stream, until the stream is being ended; what it did then came in time, unless
 * the end was over before. */
static struct {
    const strata_resource_ops *ops; /* the top layer's own */
    CUresult(CUDAAPI *free)(CUdeviceptr, CUstream);
    CUresult(CUDAAPI *record)(CUevent, CUstream);
    test_fixture *fixture;
    CUstream stream;
    strata_block block;
    strata_status status;
    bool crowded; /* so many streams come by meanwhile that those with nothing to do are forgotten */
    _Atomic bool inside, ending, ended, early, late, freed, marked;
} meeting;

static void meet(void)
{
    const struct timespec meanwhile = {.tv_nsec = test_is_swept() ? 1000000 : 10000000};
    meeting.inside = true;
    while (!meeting.ending)
        sched_yield();
    nanosleep(&meanwhile, NULL);
    meeting.late = meeting.ended;
}

static strata_status meet_and_free(strata_resource *top, const strata_block *block, CUstream stream)
{
    meet();
    return meeting.ops->deallocate(top, block, stream);
}

/* A table whose frees all pass through meet_and_free. */
static strata_resource_ops meeting_ops(const strata_resource *top)
{
    strata_resource_ops ops = *top->ops;
    ops.deallocate = meet_and_free;
    ops.deallocate_own = strata_deallocate_plainly;
    ops.top_deallocate = strata_top_deallocate_plainly;
    return ops;
}

static void come_by(void)
{
    enum { CROWD = 100 };
    strata_device *device;
    check_ok(strata_device_get(0, &device));
    for (int i = 0; i < CROWD; i++) {
        strata_stream_ref ref;
        CUstream stream = make_stream();
        check_ok(strata_stream_identify(device, stream, &ref));
        destroy_stream(stream);
    }
}

static CUresult CUDAAPI free_and_meet(CUdeviceptr address, CUstream stream)
{
    meet();
    if (meeting.crowded)
        come_by();
    for (unsigned i = 1; i < STRATA_TIMELINE_LIMIT; i++) /* polls all streams */
        if (strata_timeline_numbered((uint16_t)i))
            strata_timeline_poll(strata_timeline_numbered((uint16_t)i));
    const CUresult result = meeting.free(address, stream);
    meeting.freed = true;
    return result;
}

static CUresult CUDAAPI record_and_tell(CUevent event, CUstream stream)
{
    meeting.marked |= stream == meeting.stream && meeting.freed;
    return meeting.record(event, stream);
}

static void *free_on_alloc_stream(void *data)
{
    test_make_current();
    meeting.status = strata_runtime_deallocate(meeting.fixture->runtime, &meeting.block);
    test_leave_thread();
    return data;
}

/* Frees a block on another thread, and ends its stream meanwhile. */
static strata_status free_and_end(test_fixture *fixture, CUstream stream)
{
    pthread_t thread;
    meeting.fixture = fixture;
    meeting.stream = stream;
    meeting.inside = meeting.ending = meeting.ended = meeting.late = meeting.freed = meeting.marked = false;
    assert_int_equal(pthread_create(&thread, NULL, free_on_alloc_stream, NULL), 0);
    while (!meeting.inside)
        sched_yield();
    meeting.ending = true;
    const strata_status status = strata_runtime_unregister_stream(fixture->runtime, stream);
    meeting.ended = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    return status;
}

static void a_stream_ends_after_the_frees_that_have_found_it(test_fixture *fixture)
{
    CUstream stream = make_stream();
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    const strata_resource_ops meet_first = meeting_ops(top);
    check_ok(strata_runtime_register_stream(fixture->runtime, stream));
    meeting.block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &meeting.block, 0x11, stream);
    meeting.ops = top->ops;
    top->ops = &meet_first;
    const strata_status status = free_and_end(fixture, stream);
    top->ops = meeting.ops;
    check_ok(status);
    destroy_stream(stream);
    check_ok(meeting.status);
    assert_false(meeting.late);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
}

static void note_what_was_seen(strata_thread *thread, void *wait)
{
    if (thread == strata_thread_current)
        *(uint64_t *)wait = thread->inflight_frees_seen.wait;
}

/* The last one that has looked at the calling thread. */
static uint64_t last_wait_for_me(void)
{
    uint64_t wait = 0;
    strata_thread_visit_all(note_what_was_seen, &wait);
    return wait;
}

/* Is in one free until that is waited for, with another one inside of it, and at once in the next one, until the wait
 * is over or that took too long. */
static void *free_one_after_another(void *data)
{
    enum { TOO_LONG_MS = 10000, IN_VAIN_MS = 10 };
    const struct timespec a_while = {.tv_nsec = 1000000};
    strata_thread *self = strata_thread_self();
    strata_inflight_free_begin(self);
    const uint64_t before = last_wait_for_me();
    meeting.inside = true;
    while (last_wait_for_me() == before)
        sched_yield();
    strata_inflight_free_begin(self);
    for (int i = 0; i < IN_VAIN_MS && !meeting.ended; i++)
        nanosleep(&a_while, NULL);
    strata_inflight_free_end(self);
    meeting.early = meeting.ended;
    strata_inflight_free_end(self);
    strata_inflight_free_begin(self);
    for (int i = 0; i < TOO_LONG_MS && !meeting.ended; i++)
        nanosleep(&a_while, NULL);
    meeting.late = !meeting.ended;
    strata_inflight_free_end(self);
    return data;
}

static void a_stream_ends_after_a_free_with_others_inside_and_not_after_later_ones(test_fixture *fixture)
{
    (void)fixture;
    pthread_t thread;
    if (test_is_swept())
        return; /* no driver call is made */
    meeting.inside = meeting.ended = meeting.early = meeting.late = false;
    assert_int_equal(pthread_create(&thread, NULL, free_one_after_another, NULL), 0);
    while (!meeting.inside)
        sched_yield();
    strata_inflight_frees_await();
    meeting.ended = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(meeting.early);
    assert_false(meeting.late);
}

/* The block's stream is gone when the free begins, and there again when the layers look. */
static void a_block_is_freed_while_its_stream_is_registered_again(test_fixture *fixture)
{
    CUstream stream = make_stream();
    pthread_t thread;
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    const strata_resource_ops meet_first = meeting_ops(top);
    check_ok(strata_runtime_register_stream(fixture->runtime, stream));
    meeting.block = test_allocate(fixture, BYTES, stream);
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    meeting.fixture = fixture;
    meeting.inside = meeting.ending = false;
    meeting.ops = top->ops;
    top->ops = &meet_first;
    const int started = pthread_create(&thread, NULL, free_on_alloc_stream, NULL);
    while (!started && !meeting.inside)
        sched_yield();
    const strata_status status = strata_runtime_register_stream(fixture->runtime, stream);
    meeting.ending = true;
    if (!started)
        pthread_join(thread, NULL);
    top->ops = meeting.ops;
    assert_int_equal(started, 0);
    check_ok(status);
    check_ok(meeting.status);
    check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
    destroy_stream(stream);
}

/* The stream's last event comes after the free, although an earlier event had been looked at. */
static void what_is_freed_while_its_stream_ends_is_waited_for(test_fixture *fixture)
{
    if (strncmp(fixture->stack, "async", 5) != 0) /* the others do not name the stream between finding and noting it */
        return;
    for (int crowded = 0; crowded < (test_is_swept() ? 1 : 2); crowded++) {
        CUstream stream = make_stream();
        check_ok(strata_runtime_register_stream(fixture->runtime, stream));
        meeting.block = test_allocate(fixture, BYTES, stream);
        meeting.crowded = crowded;
        test_stall *stall = crowded ? NULL : test_stall_begin(stream);
        meeting.free = strata_cu.MemFreeAsync;
        meeting.record = strata_cu.EventRecord;
        strata_cu.MemFreeAsync = free_and_meet;
        strata_cu.EventRecord = record_and_tell;
        const strata_status status = free_and_end(fixture, stream);
        strata_cu.MemFreeAsync = meeting.free;
        strata_cu.EventRecord = meeting.record;
        if (stall)
            test_stall_end(stall);
        check_ok(status);
        destroy_stream(stream);
        check_ok(meeting.status);
        assert_false(meeting.late);
        assert_true(meeting.marked);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
    }
}

/* A use that another thread finishes while its stream ends may be recorded after the stream's last event was looked at.
 * Its work was submitted before that event. Later work of the stream was not. */
static void a_point_that_is_later_than_its_streams_last_event_is_complete_with_it(test_fixture *fixture)
{
    (void)fixture;
    for (int asked = 0; asked < 2; asked++) {
        if (asked)
            test_needs_truthful_queries();
        strata_device *device;
        CUstream stream = make_stream();
        strata_stream_ref known, left;
        strata_use_record note;
        check_ok(strata_device_get(0, &device));
        check_ok(strata_stream_register(device, stream, false));
        check_ok(strata_stream_resolve(device, stream, &known));
        test_stall *stall = test_stall_begin(stream);
        check_ok(strata_stream_unregister(device, stream, &left));
        strata_stream_await_frees(&left);
        strata_timeline_poll(left.timeline);
        const strata_point late = strata_timeline_now(known.timeline);
        assert_false(strata_point_query(late));
        test_stall_end(stall);
        if (asked) {
            test_synchronize(stream);
            assert_true(strata_point_query(late));
        } else {
            check_ok(strata_point_synchronize(late));
            assert_true(strata_point_known_complete(late));
        }
        stall = test_stall_begin(stream);
        check_ok(strata_use_record_begin(&note, device, stream));
        const strata_point later = strata_timeline_now(note.stream.timeline);
        check_ok(strata_use_record_end(&note));
        assert_false(strata_point_query(later));
        test_stall_end(stall);
        check_ok(strata_point_synchronize(later));
        destroy_stream(stream);
    }
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_stream_that_is_registered_while_it_is_looked_up_is_known),
        TEST_CASE(a_use_that_comes_while_its_stream_is_unregistered_is_noted_afterwards),
        TEST_CASE(a_stream_ends_after_the_frees_that_have_found_it),
        TEST_CASE(a_stream_ends_after_a_free_with_others_inside_and_not_after_later_ones),
        TEST_CASE(a_block_is_freed_while_its_stream_is_registered_again),
        TEST_CASE(what_is_freed_while_its_stream_ends_is_waited_for),
        TEST_CASE(a_point_that_is_later_than_its_streams_last_event_is_complete_with_it),
    };
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
