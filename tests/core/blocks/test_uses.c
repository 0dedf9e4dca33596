/* Naming uses: what prepare, finish and their family take, what they refuse. Failures half-way: test_uses_refused.c. */
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/streams/batches.h"
#include "runtime/runtime.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

enum { BYTES = 4096 };

static strata_status prepare(test_fixture *fixture, const strata_block *block, CUstream stream, strata_access access)
{
    return strata_runtime_prepare_block_use(fixture->runtime, block, stream, access);
}

static strata_status finish(test_fixture *fixture, const strata_block *block, CUstream stream, strata_access access)
{
    return strata_runtime_finish_block_use(fixture->runtime, block, stream, access);
}

/* ---- what is refused ---- */

static void every_resource_says_that_it_tracks_uses(test_fixture *fixture)
{
    assert_true(strata_runtime_supports_block_use_tracking(fixture->runtime));
    assert_false(strata_runtime_supports_block_use_tracking(NULL));
}

static void a_freed_block_cannot_be_used(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_free_on(fixture, &block, stream);
    strata_block next = test_allocate(fixture, BYTES, stream); /* perhaps at the same address and in the same slot */
    check_status(prepare(fixture, &block, stream, STRATA_ACCESS_READ), STRATA_ERROR_USE_AFTER_FREE);
    check_status(finish(fixture, &block, stream, STRATA_ACCESS_READ), STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_runtime_record_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE),
                 STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_runtime_prepare_first_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE),
                 STRATA_ERROR_USE_AFTER_FREE);
    assert_int_equal(strata_last_error()->generation, block.id.generation);
    test_free_on(fixture, &next, stream);
}

static void a_block_of_another_runtime_is_foreign(test_fixture *fixture)
{
    strata_runtime *other;
    strata_block theirs;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &other));
    check_ok(strata_runtime_allocate(other, BYTES, stream, &theirs));
    strata_block made_up = theirs;
    made_up.id.slot = UINT32_MAX;
    check_status(prepare(fixture, &theirs, stream, STRATA_ACCESS_READ), STRATA_ERROR_FOREIGN_POINTER);
    check_status(finish(fixture, &theirs, stream, STRATA_ACCESS_READ), STRATA_ERROR_FOREIGN_POINTER);
    check_status(prepare(fixture, &made_up, stream, STRATA_ACCESS_READ), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_runtime_record_block_use(fixture->runtime, &theirs, stream, STRATA_ACCESS_READ),
                 STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_deallocate(other, &theirs));
    check_ok(strata_runtime_destroy(other));
}

static void a_use_must_read_or_write(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    check_status(prepare(fixture, &block, stream, STRATA_ACCESS_NONE), STRATA_ERROR_INVALID_VALUE);
    check_status(prepare(fixture, &block, stream, (strata_access)4), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_record_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_NONE),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(prepare(fixture, NULL, stream, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(finish(fixture, NULL, stream, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_prepare_block_use(NULL, &block, stream, STRATA_ACCESS_READ),
                 STRATA_ERROR_INVALID_VALUE);
    check_ok(prepare(fixture, &block, stream, STRATA_ACCESS_READ));
    check_status(finish(fixture, &block, stream, (strata_access)4), STRATA_ERROR_INVALID_VALUE);
    check_ok(finish(fixture, &block, stream, STRATA_ACCESS_READ));
    test_free_on(fixture, &block, stream);
}

static void a_use_that_was_not_prepared_cannot_be_finished(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    check_status(finish(fixture, &block, stream, STRATA_ACCESS_WRITE), STRATA_ERROR_STREAM_MISUSE);
    check_ok(prepare(fixture, &block, stream, STRATA_ACCESS_WRITE));
    check_ok(finish(fixture, &block, stream, STRATA_ACCESS_WRITE));
    check_status(finish(fixture, &block, stream, STRATA_ACCESS_WRITE), STRATA_ERROR_STREAM_MISUSE);
    test_free_on(fixture, &block, stream);
}

static void uses_of_an_empty_block_succeed_and_call_nobody(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block empty = test_allocate(fixture, 0, stream);
    assert_int_equal(empty.address, 0);
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(prepare(fixture, &empty, stream, STRATA_ACCESS_WRITE));
    check_ok(finish(fixture, &empty, stream, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_record_block_use(fixture->runtime, &empty, stream, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_deallocate(fixture->runtime, &empty));
    check_ok(strata_runtime_deallocate(fixture->runtime, &empty));
    assert_int_equal(test_calls_total(&calls), 0);
}

/* ---- pins ---- */

typedef struct pin_attempt {
    test_fixture *fixture;
    strata_block block;
    strata_status status;
} pin_attempt;

static void *free_in_thread(void *data)
{
    pin_attempt *attempt = data;
    test_make_current();
    attempt->status = strata_runtime_deallocate(attempt->fixture->runtime, &attempt->block);
    return NULL;
}

static strata_status free_elsewhere(test_fixture *fixture, const strata_block *block)
{
    pin_attempt attempt = {.fixture = fixture, .block = *block};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_in_thread, &attempt), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return attempt.status;
}

static void a_block_that_is_prepared_cannot_be_freed_from_any_thread(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, stream), found;
    strata_usage before = test_usage(fixture);
    check_ok(prepare(fixture, &block, stream, STRATA_ACCESS_WRITE));
    check_ok(prepare(fixture, &block, other, STRATA_ACCESS_READ));
    for (int pins = 2; pins > 0; pins--) {
        check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_BLOCK_IN_USE);
        assert_int_equal(strata_last_error()->generation, block.id.generation);
        check_status(strata_runtime_deallocate_on(fixture->runtime, &block, other), STRATA_ERROR_BLOCK_IN_USE);
        check_status(free_elsewhere(fixture, &block), STRATA_ERROR_BLOCK_IN_USE);
        check_ok(finish(fixture, &block, pins == 2 ? other : stream, STRATA_ACCESS_READ));
    }
    strata_usage after = test_usage(fixture);
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_int_equal(after.live_blocks, before.live_blocks);
    assert_int_equal(after.retired_bytes, before.retired_bytes);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
    check_ok(strata_runtime_find(fixture->runtime, block.address + 1, &found));
    assert_int_equal(found.id.generation, block.id.generation);
    check_ok(free_elsewhere(fixture, &block));
}

/* A thread that prepares a use, waits until it is told to go on, and finishes it. */
typedef struct pinning_thread {
    pin_attempt attempt;
    sem_t prepared, go_on;
} pinning_thread;

static void *pin_and_wait(void *data)
{
    pinning_thread *self = data;
    pin_attempt *attempt = &self->attempt;
    test_make_current();
    attempt->status = prepare(attempt->fixture, &attempt->block, NULL, STRATA_ACCESS_READ);
    strata_status freed = strata_runtime_deallocate(attempt->fixture->runtime, &attempt->block);
    sem_post(&self->prepared);
    sem_wait(&self->go_on);
    if (attempt->status == STRATA_SUCCESS)
        attempt->status = finish(attempt->fixture, &attempt->block, NULL, STRATA_ACCESS_READ);
    if (freed != STRATA_ERROR_BLOCK_IN_USE)
        attempt->status = freed == STRATA_SUCCESS ? STRATA_ERROR_BUSY : freed;
    return NULL;
}

static void a_pin_of_another_thread_holds_the_block_too(test_fixture *fixture)
{
    pinning_thread other = {.attempt = {.fixture = fixture, .block = test_allocate(fixture, BYTES, NULL)}};
    const strata_block *block = &other.attempt.block;
    pthread_t thread;
    sem_init(&other.prepared, 0, 0);
    sem_init(&other.go_on, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, pin_and_wait, &other), 0);
    sem_wait(&other.prepared);
    strata_status freed = strata_runtime_deallocate(fixture->runtime, block);
    strata_status finished = finish(fixture, block, NULL, STRATA_ACCESS_READ);
    sem_post(&other.go_on);
    assert_int_equal(pthread_join(thread, NULL), 0);
    sem_destroy(&other.prepared);
    sem_destroy(&other.go_on);
    assert_int_equal(freed, STRATA_ERROR_BLOCK_IN_USE);
    assert_int_equal(finished, STRATA_ERROR_STREAM_MISUSE); /* this thread made the block and prepared nothing */
    check_ok(other.attempt.status);
    check_ok(strata_runtime_deallocate(fixture->runtime, block));
}

enum { MANY_PINS = 1 << 17 };

typedef struct pinner {
    test_fixture *fixture;
    strata_block block;
    size_t pins;
    strata_status refusal, again;
} pinner;

/* Prepares until that is refused, gives one use back, takes it again, and gives all back. */
static void *pin_to_the_end(void *data)
{
    pinner *self = data;
    test_make_current();
    while (self->pins < MANY_PINS && self->refusal == STRATA_SUCCESS) {
        self->refusal = prepare(self->fixture, &self->block, NULL, STRATA_ACCESS_READ);
        self->pins += self->refusal == STRATA_SUCCESS;
    }
    self->again = finish(self->fixture, &self->block, NULL, STRATA_ACCESS_NONE);
    if (self->again == STRATA_SUCCESS)
        self->again = prepare(self->fixture, &self->block, NULL, STRATA_ACCESS_READ);
    if (self->again == STRATA_SUCCESS &&
        prepare(self->fixture, &self->block, NULL, STRATA_ACCESS_READ) != self->refusal)
        self->again = STRATA_ERROR_BLOCK_IN_USE;
    if (strata_runtime_deallocate(self->fixture->runtime, &self->block) != STRATA_ERROR_BLOCK_IN_USE)
        self->again = STRATA_ERROR_BLOCK_IN_USE;
    for (size_t i = 0; i < self->pins && self->again == STRATA_SUCCESS; i++)
        self->again = finish(self->fixture, &self->block, NULL, STRATA_ACCESS_NONE);
    return NULL;
}

/* The thread that made the block first: where its pins overflow, the block is freed under it. */
static void a_block_with_too_many_uses_under_way_takes_no_more_until_one_is_finished(test_fixture *fixture)
{
    pinner pinners[2] = {{.fixture = fixture, .block = test_allocate(fixture, BYTES, NULL)}};
    pthread_t thread;
    pinners[1] = pinners[0];
    pin_to_the_end(&pinners[0]);
    check_status(pinners[0].refusal, STRATA_ERROR_BUSY);
    check_ok(pinners[0].again);
    assert_in_range(pinners[0].pins, 1000, MANY_PINS - 1);
    assert_int_equal(pthread_create(&thread, NULL, pin_to_the_end, &pinners[1]), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_status(pinners[1].refusal, STRATA_ERROR_BUSY);
    check_ok(pinners[1].again);
    assert_in_range(pinners[1].pins, 1000, MANY_PINS - 1);
    check_ok(strata_runtime_deallocate(fixture->runtime, &pinners[0].block));
}

/* A thread's number goes to the next thread that needs one when it ends. */
typedef struct heir {
    test_fixture *fixture;
    strata_block block;
    CUstream stream;
    strata_status prepared, finished;
} heir;

static void *allocate_in_thread(void *data)
{
    heir *gone = data;
    gone->prepared = strata_runtime_allocate(gone->fixture->runtime, BYTES, gone->stream, &gone->block);
    return NULL;
}

/* What needs a number comes between the prepare and the finish: a failure, which the thread keeps a record of. */
static void *use_and_fail_between(void *data)
{
    heir *self = data;
    strata_block found;
    test_make_current();
    self->prepared = prepare(self->fixture, &self->block, self->stream, STRATA_ACCESS_READ);
    check_status(strata_runtime_find(self->fixture->runtime, 1, &found), STRATA_ERROR_FOREIGN_POINTER);
    self->finished = finish(self->fixture, &self->block, self->stream, STRATA_ACCESS_READ);
    return NULL;
}

static void run_thread(void *(*run)(void *), heir *data)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, data), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_thread_that_inherits_a_number_during_a_use_can_finish_it(test_fixture *fixture)
{
    heir next = {.fixture = fixture, .stream = test_stream(fixture, TEST_STREAM_POOL)};
    run_thread(allocate_in_thread, &next);
    check_ok(next.prepared);
    run_thread(use_and_fail_between, &next);
    check_ok(next.prepared);
    check_ok(next.finished);
    test_free_on(fixture, &next.block, next.stream);
}

static void *use_like_the_owner(void *data)
{
    pin_attempt *self = data;
    test_make_current();
    self->status = prepare(self->fixture, &self->block, NULL, STRATA_ACCESS_READ);
    if (self->status == STRATA_SUCCESS)
        self->status = finish(self->fixture, &self->block, NULL, STRATA_ACCESS_READ);
    return NULL;
}

/* Both are on the block's own stream, so that there is nothing to note for either. */
static void each_thread_finishes_the_use_that_it_has_prepared(test_fixture *fixture)
{
    pin_attempt other = {.fixture = fixture, .block = test_allocate(fixture, BYTES, NULL)};
    pthread_t thread;
    check_ok(prepare(fixture, &other.block, NULL, STRATA_ACCESS_READ));
    check_ok(finish(fixture, &other.block, NULL, STRATA_ACCESS_READ));
    check_ok(prepare(fixture, &other.block, NULL, STRATA_ACCESS_READ));
    assert_int_equal(pthread_create(&thread, NULL, use_like_the_owner, &other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_ok(other.status);
    check_status(strata_runtime_deallocate(fixture->runtime, &other.block), STRATA_ERROR_BLOCK_IN_USE);
    check_ok(finish(fixture, &other.block, NULL, STRATA_ACCESS_READ));
    test_free_on(fixture, &other.block, NULL);
}

/* Each time at another point of its stream, and nothing of it is over. */
static void what_a_block_remembers_of_a_stream_does_not_grow_with_its_reads(test_fixture *fixture)
{
    enum { READERS = 3, ROUNDS = 50 };
    if (test_is_swept())
        return; /* nothing is submitted that could come too early */
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), readers[READERS];
    CUstream follower = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream),
                 other = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x11, alloc_stream);
    test_write(fixture, &other, 0x11, alloc_stream);
    test_stall *stalls[READERS];
    for (size_t i = 0; i < READERS; i++) {
        readers[i] = test_stream(fixture, TEST_STREAM_POOL);
        stalls[i] = test_stall_begin(readers[i]);
    }
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < READERS; i++) {
            check_ok(prepare(fixture, &block, readers[i], STRATA_ACCESS_READ));
            check_ok(finish(fixture, &block, readers[i], STRATA_ACCESS_READ));
            check_ok(prepare(fixture, &other, readers[i], STRATA_ACCESS_WRITE));
            check_ok(finish(fixture, &other, readers[i], STRATA_ACCESS_WRITE));
            check_ok(prepare(fixture, &other, follower, STRATA_ACCESS_WRITE)); /* which ends the reader's epoch */
            check_ok(finish(fixture, &other, follower, STRATA_ACCESS_WRITE));
        }
    const strata_entry *entry = strata_table_lookup(strata_runtime_stack(fixture->runtime)->head.table, block.id);
    const strata_more_points *more = entry->more;
    assert_true(more && more->count < READERS);
    for (size_t i = 0; i < READERS; i++)
        test_stall_release(stalls[i]);
    for (size_t i = 0; i < READERS; i++)
        test_stall_end(stalls[i]);
    test_free_on(fixture, &block, alloc_stream);
    test_free_on(fixture, &other, alloc_stream);
}

static void finishing_without_an_access_unpins_and_notes_nothing(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), stalled = test_stream(fixture, TEST_STREAM_POOL);
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x11, alloc_stream);
    test_stall *stall = test_stall_begin(stalled);
    check_ok(prepare(fixture, &block, stalled, STRATA_ACCESS_WRITE));
    check_ok(finish(fixture, &block, stalled, STRATA_ACCESS_NONE));
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_synchronize(reader); /* the stall would run out if the write had been noted */
    check_bytes(seen, 0x11, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, alloc_stream);
}

/* ---- first uses, and uses without a prepare ---- */

static void a_first_use_waits_for_the_allocation_and_counts_as_a_write(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    test_stall *stall = test_stall_begin(alloc_stream);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    check_ok(strata_runtime_prepare_first_use(fixture->runtime, &block, user, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x44, BYTES, user);
    check_ok(strata_runtime_finish_first_use(fixture->runtime, &block, user, STRATA_ACCESS_WRITE));
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x44, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, alloc_stream);
}

/* Later reads do not wait for it, a later write does. */
static void a_first_use_that_reads_is_recorded_as_a_read(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_calls calls;
    check_ok(strata_runtime_prepare_first_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
    check_ok(strata_runtime_finish_first_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
    test_calls_begin(&calls);
    check_ok(prepare(fixture, &block, alloc_stream, STRATA_ACCESS_READ));
    check_ok(finish(fixture, &block, alloc_stream, STRATA_ACCESS_READ));
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
    check_ok(prepare(fixture, &block, alloc_stream, STRATA_ACCESS_WRITE));
    check_ok(finish(fixture, &block, alloc_stream, STRATA_ACCESS_WRITE));
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 1);
    test_free_on(fixture, &block, alloc_stream);
}

static void a_block_that_was_used_has_no_first_use(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    check_ok(prepare(fixture, &block, alloc_stream, STRATA_ACCESS_READ));
    check_ok(finish(fixture, &block, alloc_stream, STRATA_ACCESS_READ));
    check_status(strata_runtime_prepare_first_use(fixture->runtime, &block, alloc_stream, STRATA_ACCESS_WRITE),
                 STRATA_ERROR_STREAM_MISUSE);
    test_free_on(fixture, &block, alloc_stream);
    block = test_allocate(fixture, BYTES, alloc_stream);
    check_ok(strata_runtime_prepare_first_use(fixture->runtime, &block, alloc_stream, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_finish_first_use(fixture->runtime, &block, alloc_stream, STRATA_ACCESS_WRITE));
    check_status(strata_runtime_prepare_first_use(fixture->runtime, &block, alloc_stream, STRATA_ACCESS_WRITE),
                 STRATA_ERROR_STREAM_MISUSE);
    test_free_on(fixture, &block, alloc_stream);
    check_status(strata_runtime_prepare_first_use(fixture->runtime, NULL, alloc_stream, STRATA_ACCESS_WRITE),
                 STRATA_ERROR_INVALID_VALUE);
}

static void a_use_recorded_afterwards_is_waited_for(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, kind);
        strata_block block = test_allocate(fixture, BYTES, alloc_stream);
        test_write(fixture, &block, 0x11, alloc_stream);
        check_ok(prepare(fixture, &block, user, STRATA_ACCESS_READ)); /* only to be ordered after the write */
        check_ok(finish(fixture, &block, user, STRATA_ACCESS_NONE));
        test_stall *stall = test_stall_begin(user);
        const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, user);
        check_ok(strata_runtime_record_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
        test_write(fixture, &block, 0x22, alloc_stream);
        test_stall_end(stall);
        check_bytes(seen, 0x11, BYTES);
        test_free_on(fixture, &block, alloc_stream);
        test_stream_close(fixture, user);
        test_stream_close(fixture, alloc_stream);
    }
}

/* Two streams write to a block at the same time, each to a part of it: neither use comes after the other, so the next
 * use comes after both. */
static void writes_of_two_streams_that_nothing_orders_are_both_waited_for(test_fixture *fixture)
{
    CUstream first = test_stream(fixture, TEST_STREAM_POOL), second = test_stream(fixture, TEST_STREAM_POOL);
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, first);
    check_ok(prepare(fixture, &block, second, STRATA_ACCESS_WRITE));
    check_ok(finish(fixture, &block, second, STRATA_ACCESS_NONE));
    test_stall *stall = test_stall_begin(first);
    test_fill(block.address, 0x11, BYTES / 2, first);
    check_ok(strata_runtime_record_block_use(fixture->runtime, &block, first, STRATA_ACCESS_WRITE));
    test_fill(block.address + BYTES / 2, 0x11, BYTES / 2, second);
    check_ok(strata_runtime_record_block_use(fixture->runtime, &block, second, STRATA_ACCESS_WRITE));
    check_ok(prepare(fixture, &block, reader, STRATA_ACCESS_READ));
    const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, reader);
    check_ok(finish(fixture, &block, reader, STRATA_ACCESS_READ));
    test_stall_end(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x11, BYTES);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 200 };

typedef struct user {
    test_fixture *fixture;
    strata_block block;
    CUstream stream;
    unsigned char *seen; /* pinned, the thread's own */
    unsigned failures;
} user;

/* One use in seven writes. A thread that writes has its turn alone, from the one to the other, since only uses that
 * were finished come before it. */
static pthread_rwlock_t turns = PTHREAD_RWLOCK_INITIALIZER;

static bool use_once(user *self, unsigned char value, bool write)
{
    strata_access access = write ? STRATA_ACCESS_WRITE : STRATA_ACCESS_READ;
    if (prepare(self->fixture, &self->block, self->stream, access) != STRATA_SUCCESS)
        return false;
    CUresult used = write ? test_cu()->MemsetD8Async(self->block.address, value, 16, self->stream)
                          : test_cu()->MemcpyDtoHAsync(self->seen, self->block.address, 16, self->stream);
    return finish(self->fixture, &self->block, self->stream, access) == STRATA_SUCCESS && used == CUDA_SUCCESS;
}

static void *use_many_times(void *data)
{
    user *self = data;
    test_make_current();
    for (int i = 0; i < ROUNDS; i++) {
        bool write = i % 7 == 0;
        write ? pthread_rwlock_wrlock(&turns) : pthread_rwlock_rdlock(&turns);
        self->failures += !use_once(self, (unsigned char)i, write);
        pthread_rwlock_unlock(&turns);
    }
    test_leave_thread();
    return NULL;
}

/* A commit puts the stream's point into blocks before it records the event that covers them. A thread that meets the
 * point in between waits for that event, and does not take an older one for it. */
typedef struct impatient_reader {
    test_fixture *fixture;
    strata_block block;
    CUstream stream;
    sem_t started;
    strata_status status;
} impatient_reader;

static void *read_at_once(void *data)
{
    impatient_reader *self = data;
    test_make_current();
    sem_post(&self->started);
    self->status = prepare(self->fixture, &self->block, self->stream, STRATA_ACCESS_READ);
    if (self->status != STRATA_SUCCESS)
        return NULL;
    test_cu()->MemcpyDtoHAsync(self->fixture->seen, self->block.address, BYTES, self->stream);
    self->status = finish(self->fixture, &self->block, self->stream, STRATA_ACCESS_READ);
    return NULL;
}

static void a_use_that_meets_a_commit_half_way_waits_for_its_event(test_fixture *fixture)
{
    CUstream unknown = test_stream(fixture, TEST_STREAM_UNKNOWN), alloc_stream = test_stream(fixture, TEST_STREAM_POOL);
    impatient_reader reader = {.fixture = fixture, .stream = test_stream(fixture, TEST_STREAM_POOL)};
    strata_block before = test_allocate(fixture, BYTES, alloc_stream);
    strata_device *device;
    pthread_t thread;
    reader.block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &before, 0x11, unknown);
    test_stall *stall = test_stall_begin(unknown);
    check_ok(prepare(fixture, &reader.block, unknown, STRATA_ACCESS_WRITE));
    test_fill(reader.block.address, 0x22, BYTES, unknown);
    check_ok(strata_device_get(0, &device));
    check_ok(strata_batch_begin(device, unknown, true));
    strata_status noted = finish(fixture, &reader.block, unknown, STRATA_ACCESS_WRITE);
    sem_init(&reader.started, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, read_at_once, &reader), 0);
    sem_wait(&reader.started);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    strata_status recorded = strata_batch_end();
    assert_int_equal(pthread_join(thread, NULL), 0);
    sem_destroy(&reader.started);
    check_ok(noted);
    check_ok(recorded);
    check_ok(reader.status);
    test_stall_release(stall);
    test_synchronize(reader.stream);
    check_bytes(fixture->seen, 0x22, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &before, alloc_stream);
    test_free_on(fixture, &reader.block, alloc_stream);
}

static void many_threads_use_one_block_at_the_same_time(test_fixture *fixture)
{
    static const test_stream_kind kinds[THREADS] = {TEST_STREAM_POOL, TEST_STREAM_REGISTERED, TEST_STREAM_UNKNOWN,
                                                    TEST_STREAM_PER_THREAD};
    strata_block block = test_allocate(fixture, BYTES, NULL);
    pthread_t threads[THREADS];
    user users[THREADS];
    for (size_t i = 0; i < THREADS; i++) /* what can fail comes before the threads */
        users[i] = (user){.fixture = fixture,
                          .block = block,
                          .stream = test_stream(fixture, kinds[i]),
                          .seen = fixture->seen + i * BYTES};
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_many_times, &users[i]), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(users[i].failures, 0);
    test_write(fixture, &block, 0x77, NULL);
    const unsigned char *seen = test_read(fixture, &block, NULL);
    check_cu(test_cu()->CtxSynchronize());
    check_bytes(seen, 0x77, BYTES);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(every_resource_says_that_it_tracks_uses),
        TEST_CASE(a_freed_block_cannot_be_used),
        TEST_CASE(a_block_of_another_runtime_is_foreign),
        TEST_CASE(a_use_must_read_or_write),
        TEST_CASE(a_use_that_was_not_prepared_cannot_be_finished),
        TEST_CASE(uses_of_an_empty_block_succeed_and_call_nobody),
        TEST_CASE(a_block_that_is_prepared_cannot_be_freed_from_any_thread),
        TEST_CASE(a_pin_of_another_thread_holds_the_block_too),
        TEST_CASE(a_block_with_too_many_uses_under_way_takes_no_more_until_one_is_finished),
        TEST_CASE(a_thread_that_inherits_a_number_during_a_use_can_finish_it),
        TEST_CASE(each_thread_finishes_the_use_that_it_has_prepared),
        TEST_CASE(what_a_block_remembers_of_a_stream_does_not_grow_with_its_reads),
        TEST_CASE(finishing_without_an_access_unpins_and_notes_nothing),
        TEST_CASE(a_first_use_waits_for_the_allocation_and_counts_as_a_write),
        TEST_CASE(a_first_use_that_reads_is_recorded_as_a_read),
        TEST_CASE(a_block_that_was_used_has_no_first_use),
        TEST_CASE(a_use_recorded_afterwards_is_waited_for),
        TEST_CASE(writes_of_two_streams_that_nothing_orders_are_both_waited_for),
        TEST_CASE(a_use_that_meets_a_commit_half_way_waits_for_its_event),
        TEST_CASE(many_threads_use_one_block_at_the_same_time),
    };
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
