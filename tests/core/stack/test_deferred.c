/* Frees that wait for the end of a capture: which of several threads performs them, and which threads wait for it; and
 * those that move to the legacy stream, if only that stream is in a capture's way. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>

#include "core/streams/known_streams.h"
#include "support/captures.h"
#include "support/fixture.h"
#include "support/sweep.h"

enum { BYTES = 4096, IN_VAIN_MS = 50 };

static CUstream internal_stream(unsigned flags)
{
    CUstream stream;
    check_cu(test_cu()->StreamCreate(&stream, flags));
    return stream;
}

static void destroy_stream(CUstream stream)
{
    check_cu(test_cu()->StreamDestroy(stream));
}

static bool is_retired(test_fixture *fixture, const strata_block *block)
{
    return strata_runtime_block_state(fixture->runtime, block->id) == STRATA_BLOCK_RETIRED;
}

/* Frees a block inside a capture whose end only the test knows. */
static strata_block free_inside(test_fixture *fixture, CUstream captured)
{
    strata_block block = test_allocate(fixture, BYTES, test_stream(fixture, TEST_STREAM_POOL));
    test_begin_capture(captured);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, captured));
    assert_true(is_retired(fixture, &block));
    return block;
}

static void check_settled(test_fixture *fixture, const strata_block *block)
{
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(test_usage(fixture).bytes_outstanding, 0);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block->id), STRATA_BLOCK_FREED);
}

static strata_status say_that_it_ended(test_fixture *fixture, CUstream stream)
{
    return strata_stack_captures_ended(strata_runtime_stack(fixture->runtime), stream);
}

/* ---- beside another thread ---- */

/* The first question about a stream is where the threads meet. */
static struct {
    test_fixture *fixture;
    PFN_cuStreamIsCapturing_v10000 is_capturing;
    CUstream stream, other;
    void (*asked)(void); /* once, after the answer; the capture may end there */
    strata_status (*call)(void);
    pthread_t thread;
    sem_t came_back, in_hand;
    _Atomic bool armed;
    bool began, early;
    strata_status status;
    size_t outstanding; /* bytes, as the thread comes back */
    strata_block block; /* that the other thread frees */
} meeting;

static CUresult CUDAAPI ask_and_meet(CUstream stream, CUstreamCaptureStatus *status)
{
    const CUresult result = meeting.is_capturing(stream, status);
    if (stream == meeting.stream && meeting.armed) {
        meeting.armed = false;
        meeting.asked();
    }
    return result;
}

static void meet_begin(test_fixture *fixture, CUstream stream, void (*asked)(void), strata_status (*call)(void))
{
    assert_int_equal(sem_init(&meeting.came_back, 0, 0), 0);
    assert_int_equal(sem_init(&meeting.in_hand, 0, 0), 0);
    meeting.fixture = fixture;
    meeting.stream = stream;
    meeting.asked = asked;
    meeting.call = call;
    meeting.began = meeting.early = false;
    meeting.is_capturing = strata_cu.StreamIsCapturing;
    strata_cu.StreamIsCapturing = ask_and_meet;
    meeting.armed = true;
}

static void meet_end(void)
{
    if (meeting.began)
        pthread_join(meeting.thread, NULL);
    strata_cu.StreamIsCapturing = meeting.is_capturing;
    sem_destroy(&meeting.came_back);
    sem_destroy(&meeting.in_hand);
}

/* Whether the other thread returns within a time that is long enough for a thread that does not wait. */
static bool comes_back(void)
{
    struct timespec until;
    int waited;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += IN_VAIN_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    do
        waited = sem_timedwait(&meeting.came_back, &until);
    while (waited != 0 && errno == EINTR);
    return waited == 0;
}

static void *call_and_come_back(void *data)
{
    (void)data;
    test_make_current();
    meeting.status = meeting.call();
    meeting.outstanding = strata_runtime_bytes_outstanding(meeting.fixture->runtime);
    sem_post(&meeting.came_back);
    return NULL; /* with no wait for the thread's own stream, which would end the other thread's capture */
}

static void begin_to_call(void)
{
    meeting.began = pthread_create(&meeting.thread, NULL, call_and_come_back, NULL) == 0;
}

/* The other thread has to wait until the free is done or deferred again, so it is waited for in vain. */
static void call_in_vain(void)
{
    begin_to_call();
    meeting.early = comes_back();
}

static void end_capture_and_call_in_vain(void)
{
    test_end_capture(meeting.other);
    call_in_vain();
}

static strata_status reap(void)
{
    return strata_runtime_reap_pending(meeting.fixture->runtime);
}

static strata_status say_so_too(void)
{
    return say_that_it_ended(meeting.fixture, meeting.stream);
}

static strata_status say_that_it_ended_beside(test_fixture *fixture, CUstream stream, void (*asked)(void),
                                              strata_status (*call)(void))
{
    meet_begin(fixture, stream, asked, call);
    const strata_status status = say_that_it_ended(fixture, stream);
    meet_end();
    return status;
}

static void check_waited(strata_status status, size_t outstanding)
{
    assert_true(meeting.began && !meeting.early);
    assert_int_equal(meeting.status, status);
    assert_int_equal(meeting.outstanding, outstanding);
}

static void who_waits_for_all_frees_waits_for_those_that_another_thread_carries_out(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING);
    strata_block block = free_inside(fixture, captured);
    check_ok(say_that_it_ended_beside(fixture, captured, call_in_vain, reap)); /* it has not: it is deferred again */
    check_waited(STRATA_ERROR_STREAM_CAPTURE, BYTES);
    assert_true(is_retired(fixture, &block));
    test_end_capture(captured);
    check_ok(say_that_it_ended_beside(fixture, captured, call_in_vain, reap));
    check_waited(STRATA_SUCCESS, 0);
    check_settled(fixture, &block);
    destroy_stream(captured);
}

static void who_says_that_a_capture_has_ended_waits_for_who_carries_its_frees_out(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING);
    strata_block block = free_inside(fixture, captured);
    test_end_capture(captured);
    check_ok(say_that_it_ended_beside(fixture, captured, call_in_vain, say_so_too));
    assert_true(meeting.began && !meeting.early);
    check_ok(meeting.status);
    check_settled(fixture, &block);
    destroy_stream(captured);
}

/* Whether a free on the legacy stream waits for the end of a capture. */
static bool defers_on_legacy(const test_fixture *fixture)
{
    return !test_owner_is(fixture, "pool") && strncmp(fixture->stack, "fixed", 5) != 0;
}

/* The other thread had asked before the end. */
static void who_waits_for_all_frees_carries_out_what_another_thread_came_too_early_for(test_fixture *fixture)
{
    if (!defers_on_legacy(fixture))
        return;
    CUstream captured = internal_stream(CU_STREAM_DEFAULT);
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_begin_capture(captured);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, NULL));
    meeting.other = captured;
    check_ok(say_that_it_ended_beside(fixture, NULL, end_capture_and_call_in_vain, reap));
    check_waited(STRATA_SUCCESS, 0);
    check_settled(fixture, &block);
    destroy_stream(captured);
}

static void take_in_hand(void)
{
    sem_post(&meeting.in_hand);
    meeting.early = comes_back();
}

/* The other thread comes by with its stream, whose frees it takes. */
static strata_status pass_other(void)
{
    return strata_runtime_deallocate_on(meeting.fixture->runtime, &meeting.block, meeting.other);
}

static void let_other_come_by(void)
{
    meeting.stream = meeting.other;
    meeting.asked = take_in_hand;
    meeting.armed = true;
    begin_to_call();
    while (meeting.began && sem_wait(&meeting.in_hand) != 0)
        continue;
}

/* While it was busy with those that it could carry out itself. */
static void who_waits_for_all_frees_waits_for_who_came_by_in_between(test_fixture *fixture)
{
    CUstream first = internal_stream(CU_STREAM_NON_BLOCKING), second = internal_stream(CU_STREAM_NON_BLOCKING);
    meeting.block = test_allocate(fixture, BYTES, second);
    strata_block one = free_inside(fixture, first);
    test_end_capture(first);
    strata_block two = free_inside(fixture, second);
    test_end_capture(second);
    check_ok(strata_runtime_register_stream(fixture->runtime, first)); /* so that every thread can name it */
    meeting.other = second;
    meet_begin(fixture, first, let_other_come_by, pass_other);
    const strata_status status = reap();
    const bool done = !is_retired(fixture, &two);
    sem_post(&meeting.came_back);
    meet_end();
    check_ok(strata_runtime_unregister_stream(fixture->runtime, first));
    assert_true(meeting.began && !meeting.early);
    check_ok(status);
    assert_true(done);
    check_ok(meeting.status);
    check_settled(fixture, &one);
    destroy_stream(first);
    destroy_stream(second);
}

static void reap_within(void)
{
    meeting.status = reap();
}

/* As from a callback of a layer that the free goes through. */
static void who_carries_a_free_out_does_not_wait_for_itself(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING);
    strata_block block = free_inside(fixture, captured);
    test_end_capture(captured);
    check_ok(say_that_it_ended_beside(fixture, captured, reap_within, NULL));
    assert_int_equal(meeting.status, STRATA_ERROR_STREAM_CAPTURE);
    check_settled(fixture, &block);
    destroy_stream(captured);
}

static strata_status unregister(void)
{
    return strata_runtime_unregister_stream(meeting.fixture->runtime, meeting.stream);
}

static void begin_to_unregister(void)
{
    begin_to_call();
    while (meeting.began && strata_stream_is_known(meeting.stream))
        sched_yield();
}

/* The handle may be dead once the free that has found it is over. */
static void a_stream_that_ends_while_its_frees_are_carried_out_is_named_for_none_of_the_others(test_fixture *fixture)
{
    CUstream captured = internal_stream(CU_STREAM_NON_BLOCKING);
    strata_block first = test_allocate(fixture, BYTES, captured), second = free_inside(fixture, captured);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &first, captured));
    test_end_capture(captured);
    check_ok(strata_runtime_register_stream(fixture->runtime, captured));
    meet_begin(fixture, captured, begin_to_unregister, unregister);
    const strata_status status = reap();
    meet_end();
    assert_true(meeting.began);
    check_ok(meeting.status);
    check_status(status, STRATA_ERROR_STREAM_CAPTURE);
    check_last_error(STRATA_ERROR_STREAM_CAPTURE, "1 block was freed inside captures");
    assert_true(is_retired(fixture, &first) && !is_retired(fixture, &second));
    check_ok(say_that_it_ended(fixture, captured));
    check_settled(fixture, &first);
    destroy_stream(captured);
}

/* ---- in the legacy stream's place ---- */

/* A block whose free on another stream has to wait for the legacy one's work, which a capture has part in. */
static strata_block write_on_legacy(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_write(fixture, &block, 0x11, NULL); /* its point has no event yet */
    return block;
}

static struct {
    CUresult(CUDAAPI *record)(CUevent, CUstream);
    CUresult(CUDAAPI *synchronize)(CUstream);
    PFN_cuStreamIsCapturing_v10000 is_capturing;
    CUstream stream;
    unsigned asked;
} unmarkable;

/* The first query is the free's, the second one that of its deferral. */
static bool is_unmarkable(CUstream stream)
{
    return stream == unmarkable.stream && unmarkable.asked >= 2;
}

static CUresult CUDAAPI count_questions(CUstream stream, CUstreamCaptureStatus *status)
{
    unmarkable.asked += stream == unmarkable.stream;
    return unmarkable.is_capturing(stream, status);
}

static CUresult CUDAAPI refuse_to_record(CUevent event, CUstream stream)
{
    return is_unmarkable(stream) ? CUDA_ERROR_UNKNOWN : unmarkable.record(event, stream);
}

static CUresult CUDAAPI refuse_to_synchronize(CUstream stream)
{
    return is_unmarkable(stream) ? CUDA_ERROR_UNKNOWN : unmarkable.synchronize(stream);
}

static strata_status free_on_unmarkable(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    unmarkable.record = strata_cu.EventRecord;
    unmarkable.synchronize = strata_cu.StreamSynchronize;
    unmarkable.is_capturing = strata_cu.StreamIsCapturing;
    unmarkable.stream = stream;
    unmarkable.asked = 0;
    strata_cu.StreamIsCapturing = count_questions;
    strata_cu.EventRecord = refuse_to_record;
    strata_cu.StreamSynchronize = refuse_to_synchronize;
    const strata_status status = strata_runtime_deallocate_on(fixture->runtime, block, stream);
    strata_cu.EventRecord = unmarkable.record;
    strata_cu.StreamSynchronize = unmarkable.synchronize;
    strata_cu.StreamIsCapturing = unmarkable.is_capturing;
    return status;
}

/* The stream's work can be neither marked nor waited for. */
static void a_free_whose_stream_could_not_be_marked_waits_until_that_is_named_again(test_fixture *fixture)
{
    if (!defers_on_legacy(fixture))
        return;
    CUstream captured = internal_stream(CU_STREAM_DEFAULT), other = internal_stream(CU_STREAM_NON_BLOCKING);
    strata_block block = write_on_legacy(fixture);
    test_begin_capture(captured);
    const strata_status status = free_on_unmarkable(fixture, &block, other);
    test_end_capture(captured);
    check_ok(status);
    check_status(strata_runtime_reap_pending(fixture->runtime), STRATA_ERROR_STREAM_CAPTURE);
    assert_true(is_retired(fixture, &block));
    check_ok(say_that_it_ended(fixture, other));
    check_settled(fixture, &block);
    destroy_stream(other);
    destroy_stream(captured);
}

int main(void)
{
    static const test_case threads[] = {
        TEST_CASE(who_waits_for_all_frees_waits_for_those_that_another_thread_carries_out),
        TEST_CASE(who_says_that_a_capture_has_ended_waits_for_who_carries_its_frees_out),
        TEST_CASE(who_waits_for_all_frees_carries_out_what_another_thread_came_too_early_for),
        TEST_CASE(who_waits_for_all_frees_waits_for_who_came_by_in_between),
        TEST_CASE(a_stream_that_ends_while_its_frees_are_carried_out_is_named_for_none_of_the_others),
    };
    static const test_case cases[] = {
        TEST_CASE(who_carries_a_free_out_does_not_wait_for_itself),
        TEST_CASE(a_free_whose_stream_could_not_be_marked_waits_until_that_is_named_again),
    };
    static const char *const stacks[] = {
        "async", "direct", "pool", "async(pool=default)", "fixed(bytes=4KiB, chunk=16KiB), async", "pool, async"};
    test_open_driver();
    const size_t swept = test_is_swept() ? 1 : 0; /* over a layer a pool waits for frames, which these are not about */
    const int failed =
        test_run_on(stacks, sizeof stacks / sizeof stacks[0] - swept, cases, sizeof cases / sizeof cases[0]);
    if (swept) /* no two runs of the others are the same */
        return failed;
    return failed + test_run_on(stacks, sizeof stacks / sizeof stacks[0], threads, sizeof threads / sizeof threads[0]);
}
