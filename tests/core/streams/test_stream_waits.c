/* The host waits for a stream, and Strata knows what is complete then. */
#include "support/captures.h"
#include "support/effort.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/stack/stack.h"
#include "core/streams/batches.h"
#include "core/streams/known_streams.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { BYTES = 4096 };

static const strata_timeline *timeline_of(test_fixture *fixture, CUstream stream)
{
    const int ordinal = strata_runtime_device(fixture->runtime);
    return strata_known_timeline(strata_device_if_open(ordinal), stream);
}

static void wait_for_each_kind(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream stream = test_stream(fixture, kind);
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_stall *stall = test_stall_begin(stream);
        test_write(fixture, &block, 0x11, stream);
        const unsigned char *seen = test_read(fixture, &block, stream);
        test_stall_release(stall);
        check_ok(strata_runtime_stream_synchronize(fixture->runtime, stream));
        check_bytes(seen, 0x11, BYTES);
        test_calls calls;
        test_calls_begin(&calls);
        CUstream other = test_stream(fixture, TEST_STREAM_POOL);
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, other, STRATA_ACCESS_WRITE));
        assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0); /* there is nothing to wait for */
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, other, STRATA_ACCESS_NONE));
        test_stall_end(stall);
        test_free_on(fixture, &block, stream);
        test_stream_close(fixture, other);
        test_stream_close(fixture, stream);
    }
}

static void what_was_submitted_is_done_and_known_to_be(test_fixture *fixture)
{
    wait_for_each_kind(fixture);
}

static void the_same_where_events_are_recorded_early(test_fixture *fixture)
{
    test_use_events(fixture, STRATA_EVENTS_EARLY);
    wait_for_each_kind(fixture);
}

static void a_known_stream_is_waited_for_itself(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind <= TEST_STREAM_REGISTERED; kind++) {
        CUstream stream = test_stream(fixture, kind);
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_write(fixture, &block, 0x22, stream);
        const unsigned char *seen = test_read(fixture, &block, stream);
        test_calls calls;
        test_calls_begin(&calls);
        check_ok(strata_runtime_stream_synchronize(fixture->runtime, stream));
        assert_int_equal(test_calls_of(&calls, "cuStreamSynchronize"), 1);
        assert_int_equal(test_calls_of(&calls, "cuThreadExchangeStreamCaptureMode"), 2);
        const uint64_t asked = test_calls_of(&calls, "cuCtxGetId"); /* whether the context is still there */
        assert_in_range(asked, 0, 1);
        assert_int_equal(test_calls_total(&calls) - asked, 3);
        check_bytes(seen, 0x22, BYTES);
        test_free_on(fixture, &block, stream);
        test_stream_close(fixture, stream);
    }
}

/* ---- work that is submitted meanwhile ---- */

typedef struct waiter {
    test_fixture *fixture;
    CUstream stream;
    _Atomic bool over;
    bool done;
} waiter;

static void *wait_for_stream(void *data)
{
    waiter *self = data;
    self->done = strata_runtime_stream_synchronize(self->fixture->runtime, self->stream) == STRATA_SUCCESS;
    atomic_store(&self->over, true);
    test_leave_thread();
    return NULL;
}

/* Waits until the thread has moved the stream's epoch on and is with the driver. */
static void await_waiter(const strata_timeline *timeline, uint64_t epoch)
{
    for (int i = 0; i < 100000 && atomic_load(&timeline->epoch) == epoch; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void what_is_submitted_while_somebody_waits_is_not_taken_for_complete(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const strata_timeline *timeline = timeline_of(fixture, stream);
    test_stall *first = test_stall_begin(stream), *second;
    waiter other = {.fixture = fixture, .stream = stream};
    pthread_t thread;
    const uint64_t epoch = atomic_load(&timeline->epoch);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_stream, &other), 0);
    await_waiter(timeline, epoch);
    assert_false(atomic_load(&other.over));                          /* the stall holds it */
    assert_false(strata_point_query(strata_timeline_now(timeline))); /* which takes the timeline's lock */
    second = test_stall_begin(stream);
    const strata_point later = strata_timeline_now(timeline);
    test_stall_release(first);
    test_stall_release(second); /* cuStreamSynchronize may wait for that, too */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(other.done && strata_point_known_complete(strata_point_make(timeline->number, epoch)));
    assert_false(strata_point_known_complete(later));
    test_stall_end(second);
    test_stall_end(first);
}

typedef struct reader {
    test_fixture *fixture;
    CUstream stream;
    CUdeviceptr address;
    unsigned char *seen; /* pinned */
    bool done;
} reader;

static void *copy_and_read(void *data)
{
    reader *self = data;
    test_make_current();
    self->done = true;
    for (size_t i = 0; i < test_effort(50, 10) && self->done; i++) {
        self->seen[0] = 0;
        self->done = test_cu()->MemcpyDtoHAsync(self->seen, self->address, BYTES, self->stream) == CUDA_SUCCESS &&
                     strata_runtime_stream_synchronize(self->fixture->runtime, self->stream) == STRATA_SUCCESS &&
                     self->seen[0] == 0x55 && self->seen[BYTES - 1] == 0x55;
    }
    test_leave_thread();
    return NULL;
}

typedef struct worker {
    test_fixture *fixture;
    CUstream stream;
    _Atomic bool *over;
    bool done;
} worker;

static void *write_and_wait(void *data)
{
    worker *self = data;
    self->done = true;
    while (!atomic_load(self->over) && self->done) {
        strata_block block;
        self->done = strata_runtime_allocate(self->fixture->runtime, BYTES, self->stream, &block) == STRATA_SUCCESS &&
                     strata_runtime_stream_synchronize(self->fixture->runtime, self->stream) == STRATA_SUCCESS &&
                     strata_runtime_deallocate(self->fixture->runtime, &block) == STRATA_SUCCESS &&
                     strata_runtime_stream_synchronize(self->fixture->runtime, self->stream) == STRATA_SUCCESS &&
                     self->done;
    }
    test_leave_thread();
    return NULL;
}

static void threads_wait_for_one_stream_and_their_own_at_once(test_fixture *fixture)
{
    enum { THREADS = 4 };
    if (test_is_swept())
        return;
    _Atomic bool over = false;
    worker workers[THREADS];
    pthread_t threads[THREADS];
    CUstream shared = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){fixture, i % 2 ? shared : test_stream(fixture, TEST_STREAM_REGISTERED), &over, false};
        assert_int_equal(pthread_create(&threads[i], NULL, write_and_wait, &workers[i]), 0);
    }
    for (size_t i = 0; i < test_effort(100, 10); i++) {
        strata_block block = test_allocate(fixture, BYTES, shared);
        test_write(fixture, &block, (unsigned char)i, shared);
        const unsigned char *seen = test_read(fixture, &block, shared);
        check_ok(strata_runtime_stream_synchronize(fixture->runtime, shared));
        check_bytes(seen, (unsigned char)i, BYTES);
        test_free_on(fixture, &block, shared);
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(workers[i].done);
    }
}

/* Each thread that has waited may read what the work wrote to host memory, whichever thread waited first. */
static void threads_that_wait_for_one_stream_read_what_it_wrote(test_fixture *fixture)
{
    enum { THREADS = 4 };
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_UNKNOWN, TEST_STREAM_ZERO};
    if (test_is_swept())
        return;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        CUstream stream = test_stream(fixture, kinds[i]);
        strata_block block = test_allocate(fixture, BYTES, stream);
        reader readers[THREADS];
        pthread_t threads[THREADS];
        test_write(fixture, &block, 0x55, stream);
        for (size_t j = 0; j < THREADS; j++) {
            readers[j] = (reader){fixture, stream, block.address, fixture->seen + j * BYTES, false};
            assert_int_equal(pthread_create(&threads[j], NULL, copy_and_read, &readers[j]), 0);
        }
        for (size_t j = 0; j < THREADS; j++)
            assert_int_equal(pthread_join(threads[j], NULL), 0);
        for (size_t j = 0; j < THREADS; j++)
            assert_true(readers[j].done);
        test_free_on(fixture, &block, stream);
        test_stream_close(fixture, stream);
    }
}

typedef struct point_waiter {
    strata_point point;
    const unsigned char *seen; /* pinned; NULL: the thread that waits first */
    bool done;
} point_waiter;

static void *wait_for_point(void *data)
{
    point_waiter *self = data;
    const strata_timeline *timeline = strata_timeline_of(self->point);
    test_make_current();
    while (self->seen && atomic_load_explicit(&timeline->completed, memory_order_relaxed) <
                             strata_point_epoch(self->point)) /* which orders nothing */
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    self->done = strata_point_synchronize(self->point) == STRATA_SUCCESS;
    self->done = self->done && (!self->seen || (self->seen[0] == 0x77 && self->seen[BYTES - 1] == 0x77));
    test_leave_thread();
    return NULL;
}

/* There is nothing left to wait for, and what the driver told the other thread counts here too: the thread sanitizer
 * checks it. To DRD an atomic orders nothing. */
static void what_another_thread_has_waited_for_is_there_to_be_read(test_fixture *fixture)
{
    if (test_is_swept() || test_under_valgrind())
        return;
    for (int i = 0; i < 5; i++) {
        CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_stall *stall = test_stall_begin(stream);
        test_write(fixture, &block, 0x77, stream);
        const unsigned char *seen = test_read(fixture, &block, stream);
        const strata_point point = strata_timeline_now(timeline_of(fixture, stream));
        point_waiter waiters[2] = {{.point = point}, {.point = point, .seen = seen}};
        pthread_t threads[2];
        for (size_t j = 0; j < 2; j++)
            assert_int_equal(pthread_create(&threads[j], NULL, wait_for_point, &waiters[j]), 0);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* the first one waits, mostly */
        test_stall_release(stall);
        for (size_t j = 0; j < 2; j++)
            assert_int_equal(pthread_join(threads[j], NULL), 0);
        test_stall_end(stall);
        assert_true(waiters[0].done && waiters[1].done);
        test_free_on(fixture, &block, stream);
        test_stream_close(fixture, stream);
    }
}

/* ---- what cannot be waited for ---- */

static void a_refused_wait_says_why_and_tells_nothing(test_fixture *fixture)
{
    static const struct {
        test_stream_kind kind;
        test_fault_call refused;
    } rows[] = {
        {TEST_STREAM_POOL, TEST_FAULT_STREAM_SYNCHRONIZE},      {TEST_STREAM_UNKNOWN, TEST_FAULT_STREAM_SYNCHRONIZE},
        {TEST_STREAM_PER_THREAD, TEST_FAULT_EVENT_SYNCHRONIZE}, {TEST_STREAM_PER_THREAD, TEST_FAULT_EVENT_RECORD},
        {TEST_STREAM_ZERO, TEST_FAULT_EVENT_SYNCHRONIZE},       {TEST_STREAM_ZERO, TEST_FAULT_EVENT_RECORD},
    };
    check_status(strata_runtime_stream_synchronize(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_stream_synchronize(fixture->runtime, STRATA_STREAM_GONE), STRATA_ERROR_INVALID_VALUE);
    if (test_is_swept())
        return;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CUstream stream = test_stream(fixture, rows[i].kind), other = test_stream(fixture, TEST_STREAM_POOL);
        const bool known = rows[i].kind == TEST_STREAM_POOL || rows[i].kind == TEST_STREAM_ZERO;
        const strata_timeline *timeline = known ? timeline_of(fixture, stream) : NULL;
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_stall *stall = test_stall_begin(stream);
        test_write(fixture, &block, 0x66, stream);
        const uint64_t before = known ? atomic_load(&timeline->completed) : 0;
        test_fault_begin(rows[i].refused, 1, false, CUDA_ERROR_LAUNCH_FAILED);
        check_status(strata_runtime_stream_synchronize(fixture->runtime, stream), STRATA_ERROR_DRIVER);
        assert_int_equal(test_fault_end(), 1);
        assert_true(!known || atomic_load(&timeline->completed) == before);
        const unsigned char *seen = test_read(fixture, &block, other); /* behind the write, whose mark is still there */
        test_stall_release(stall);
        check_ok(strata_runtime_stream_synchronize(fixture->runtime, stream));
        assert_true(!known || atomic_load(&timeline->completed) > before);
        check_ok(strata_runtime_stream_synchronize(fixture->runtime, other));
        check_bytes(seen, 0x66, BYTES);
        test_stall_end(stall);
        test_free_on(fixture, &block, stream);
        test_stream_close(fixture, other);
        test_stream_close(fixture, stream);
    }
}

static void count_error(const strata_error *error, void *data)
{
    (void)error;
    ++*(unsigned *)data;
}

static void a_capture_is_refused_and_lives_on(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    CUstream captured = test_stream(fixture, TEST_STREAM_UNKNOWN), other = test_stream(fixture, TEST_STREAM_POOL);
    test_begin_capture(captured);
    unsigned errors = 0;
    strata_set_log_callback(count_error, &errors);
    const strata_status status = strata_runtime_stream_synchronize(fixture->runtime, captured);
    strata_set_log_callback(NULL, NULL);
    check_status(status, STRATA_ERROR_STREAM_CAPTURE);
    assert_int_equal(errors, 1);
    check_last_error(STRATA_ERROR_STREAM_CAPTURE, "while it is being captured");
    check_ok(strata_runtime_stream_synchronize(fixture->runtime, other));
    test_end_capture(captured);
    check_ok(strata_runtime_stream_synchronize(fixture->runtime, captured));
}

/* ---- in the midst of a launch ---- */

typedef struct noter {
    test_fixture *fixture;
    CUstream stream;
    strata_block block;
    bool done;
} noter;

static void *note_a_use(void *data)
{
    noter *self = data;
    test_make_current();
    self->done = strata_runtime_record_block_use(self->fixture->runtime, &self->block, self->stream,
                                                 STRATA_ACCESS_READ) == STRATA_SUCCESS;
    test_leave_thread();
    return NULL;
}

static void *release_later(void *stall)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    test_stall_release(stall);
    return NULL;
}

/* A batch has not marked yet what it notes, and what another thread marks meanwhile was submitted before. */
static void within_a_batch_all_that_was_submitted_is_waited_for(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    strata_device *device = strata_device_if_open(strata_runtime_device(fixture->runtime));
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream stream = test_stream(fixture, kind), other = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, stream);
        noter another = {.fixture = fixture, .stream = stream, .block = block};
        check_ok(strata_batch_begin(device, stream, true));
        if (kind != TEST_STREAM_PER_THREAD) {
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, note_a_use, &another), 0);
            assert_int_equal(pthread_join(thread, NULL), 0);
            assert_true(another.done);
        }
        test_stall *stall = test_stall_begin(stream);
        test_write(fixture, &block, 0x33, stream);
        const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, stream);
        pthread_t releases;
        assert_int_equal(pthread_create(&releases, NULL, release_later, stall), 0);
        const strata_status status = strata_runtime_stream_synchronize(fixture->runtime, stream);
        const bool right = seen[0] == 0x33 && seen[BYTES - 1] == 0x33;
        assert_int_equal(pthread_join(releases, NULL), 0);
        check_ok(status);
        assert_true(right);
        check_ok(strata_batch_end());
        seen = test_read(fixture, &block, other);
        check_ok(strata_runtime_stream_synchronize(fixture->runtime, other));
        check_bytes(seen, 0x33, BYTES);
        test_stall_end(stall);
        test_free_on(fixture, &block, stream);
        test_stream_close(fixture, other);
        test_stream_close(fixture, stream);
    }
}

/* ---- memory ---- */

/* Memory that one stream has freed is another's without a question, where the host has waited for the first. */
static void what_a_stream_has_freed_is_had_without_a_question(test_fixture *fixture)
{
    enum { PIECES = 4, PIECE = 16 << 20 };
    if (!test_owner_is(fixture, "pool") || test_is_swept())
        return;
    CUstream first = test_stream(fixture, TEST_STREAM_POOL), second = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    for (int round = 0; round < 10; round++) {
        CUstream from = round % 2 ? first : second, to = round % 2 ? second : first;
        strata_block blocks[PIECES];
        for (size_t i = 0; i < PIECES; i++) {
            blocks[i] = test_allocate(fixture, PIECE, from);
            test_write(fixture, &blocks[i], (unsigned char)(round + 1), from);
        }
        for (size_t i = 0; i < PIECES; i++)
            test_free_on(fixture, &blocks[i], from);
        check_ok(strata_runtime_stream_synchronize(fixture->runtime, from));
        test_calls calls;
        test_calls_begin(&calls);
        for (size_t i = 0; i < PIECES; i++)
            blocks[i] = test_allocate(fixture, PIECE, to);
        assert_int_equal(test_calls_total(&calls), 0);
        for (size_t i = 0; i < PIECES; i++)
            test_free_on(fixture, &blocks[i], to);
        check_ok(strata_runtime_stream_synchronize(fixture->runtime, to));
    }
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(what_was_submitted_is_done_and_known_to_be),
        TEST_CASE(the_same_where_events_are_recorded_early),
        TEST_CASE(a_known_stream_is_waited_for_itself),
        TEST_CASE(what_is_submitted_while_somebody_waits_is_not_taken_for_complete),
        TEST_CASE(threads_wait_for_one_stream_and_their_own_at_once),
        TEST_CASE(threads_that_wait_for_one_stream_read_what_it_wrote),
        TEST_CASE(what_another_thread_has_waited_for_is_there_to_be_read),
        TEST_CASE(a_refused_wait_says_why_and_tells_nothing),
        TEST_CASE(a_capture_is_refused_and_lives_on),
        TEST_CASE(within_a_batch_all_that_was_submitted_is_waited_for),
        TEST_CASE(what_a_stream_has_freed_is_had_without_a_question),
    };
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
