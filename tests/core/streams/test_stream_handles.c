/* Handles of streams that are gone, while other threads make streams that get them. */
#include "support/effort.h"
#include "support/fixture.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BLOCKS = 60 };

typedef struct passers_by {
    test_fixture *fixture;
    _Atomic bool over;
    bool failed;
} passers_by;

static void *make_and_register_streams(void *data)
{
    passers_by *self = data;
    test_make_current();
    while (!atomic_load(&self->over) && !self->failed) {
        CUstream stream;
        self->failed = test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
                       strata_runtime_register_stream(self->fixture->runtime, stream) != STRATA_SUCCESS ||
                       strata_runtime_unregister_stream(self->fixture->runtime, stream) != STRATA_SUCCESS ||
                       test_cu()->StreamDestroy(stream) != CUDA_SUCCESS;
    }
    test_leave_thread();
    return NULL;
}

/* The blocks' own stream was unregistered and destroyed. Another thread's streams get its handle and are destroyed as
 * well, which is no affair of the blocks' owner: the driver is not called with that handle. */
static void a_block_is_freed_while_streams_with_the_handle_of_its_own_come_and_go(test_fixture *fixture)
{
    static strata_block blocks[BLOCKS];
    const size_t times = test_effort(60, 10);
    passers_by others = {.fixture = fixture};
    pthread_t thread;
    size_t refused = 0;
    assert_int_equal(pthread_create(&thread, NULL, make_and_register_streams, &others), 0);
    for (size_t i = 0; i < times; i++) {
        CUstream stream;
        check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        check_ok(strata_runtime_register_stream(fixture->runtime, stream));
        for (size_t j = 0; j < BLOCKS; j++)
            blocks[j] = test_allocate(fixture, 256, stream);
        check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
        check_cu(test_cu()->StreamDestroy(stream));
        for (size_t j = 0; j < BLOCKS; j++)
            refused += strata_runtime_deallocate(fixture->runtime, &blocks[j]) != STRATA_SUCCESS;
    }
    atomic_store(&others.over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(refused, 0);
    assert_false(others.failed);
}

typedef struct freer {
    test_fixture *fixture;
    strata_block blocks[BLOCKS];
    pthread_barrier_t turn;
    _Atomic bool over;
    size_t refused;
} freer;

static void *free_blocks(void *data)
{
    freer *self = data;
    test_make_current();
    for (pthread_barrier_wait(&self->turn); !self->over; pthread_barrier_wait(&self->turn)) {
        for (size_t i = 0; i < BLOCKS; i++)
            self->refused += strata_runtime_deallocate(self->fixture->runtime, &self->blocks[i]) != STRATA_SUCCESS;
        pthread_barrier_wait(&self->turn);
    }
    test_leave_thread();
    return NULL;
}

/* The freeing thread need not know whether their stream still exists or is being destroyed. */
static void blocks_are_freed_while_their_own_stream_ends(test_fixture *fixture)
{
    static freer other;
    const size_t times = test_effort(60, 10);
    pthread_t thread;
    other = (freer){.fixture = fixture};
    pthread_barrier_init(&other.turn, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, free_blocks, &other), 0);
    for (size_t i = 0; i < times; i++) {
        CUstream stream;
        check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        check_ok(strata_runtime_register_stream(fixture->runtime, stream));
        for (size_t j = 0; j < BLOCKS; j++)
            other.blocks[j] = test_allocate(fixture, 256, stream);
        pthread_barrier_wait(&other.turn);
        for (size_t pause = 0; pause < i; pause++) /* a little later each time */
            atomic_signal_fence(memory_order_seq_cst);
        check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
        check_cu(test_cu()->StreamDestroy(stream));
        pthread_barrier_wait(&other.turn);
    }
    other.over = true;
    pthread_barrier_wait(&other.turn);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&other.turn);
    assert_int_equal(other.refused, 0);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_block_is_freed_while_streams_with_the_handle_of_its_own_come_and_go),
        TEST_CASE(blocks_are_freed_while_their_own_stream_ends),
    };
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
