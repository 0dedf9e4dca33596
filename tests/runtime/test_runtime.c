/* The runtime: the one of each device, private ones, its pool of streams, and what a call leaves of the caller's
 * context. */
#define _GNU_SOURCE
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/streams/known_streams.h"
#include "runtime/runtime.h"

enum { THREADS = 16, BYTES = 4096, CAPACITY = 16 };
static const char usual_stack[] = "budget, logging(format=memory), statistics, pool(peers=all)";

/* ---- the singleton; these tests run first, in this order ---- */

static _Atomic size_t layers_made;

static void end_layer(strata_resource *self)
{
    free(self);
}

static const strata_resource_ops counted_ops = {
    .size = sizeof(strata_resource_ops), .name = "counted", .destroy = end_layer};

static strata_status make_counted(int device, const void *options, strata_resource **out)
{
    (void)device, (void)options;
    strata_resource *layer = calloc(1, sizeof *layer);
    if (!layer)
        return strata_fail(STRATA_ERROR_OUT_OF_HOST_MEMORY, "counted: out of host memory");
    layer->ops = &counted_ops;
    atomic_fetch_add(&layers_made, 1);
    *out = layer;
    return STRATA_SUCCESS;
}

static const strata_layer counted = {.size = sizeof(strata_layer), .name = "counted", .create = make_counted};

typedef struct cold_start {
    pthread_barrier_t *start;
    strata_runtime *runtime;
    strata_status status;
    bool told; /* the thread's own record says what happened */
} cold_start;

static void *get_at_once(void *data)
{
    cold_start *one = data;
    pthread_barrier_wait(one->start);
    one->status = strata_runtime_get(0, &one->runtime);
    one->told = strata_last_error()->status == one->status;
    return NULL;
}

/* Sixteen threads ask at the same moment. */
static void ask_at_once(cold_start *all)
{
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        all[i] = (cold_start){.start = &start, .runtime = (strata_runtime *)all};
        assert_int_equal(pthread_create(&threads[i], NULL, get_at_once, &all[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
}

static void a_first_start_that_fails_leaves_nothing_and_is_tried_again(void **state)
{
    (void)state;
    cold_start all[THREADS];
    static const char *const blank[] = {"", " ", "\t \n"};
    for (size_t i = 0; i < sizeof blank / sizeof blank[0]; i++) {
        setenv("STRATA_STACK", blank[i], 1);
        assert_string_equal(strata_runtime_default_stack(), usual_stack);
    }
    setenv("STRATA_STACK", "counted, nonsense", 1);
    assert_string_equal(strata_runtime_default_stack(), "counted, nonsense");
    for (int round = 0; round < 3; round++) {
        ask_at_once(all);
        for (size_t i = 0; i < THREADS; i++) {
            check_status(all[i].status, STRATA_ERROR_SYNTAX);
            assert_true(all[i].told);
            assert_null(all[i].runtime);
        }
    }
    assert_int_equal(layers_made, 0);
    strata_runtime *runtime;
    check_status(strata_runtime_get(0, &runtime), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "STRATA_STACK: stack text, character 10 (\"nonsense\")");
    setenv("STRATA_STACK", "counted, async(initial_size=1000TiB)", 1);
    check_status(strata_runtime_get(0, &runtime), STRATA_ERROR_OUT_OF_MEMORY);
    assert_null(runtime);
}

static void *get_beside(void *data)
{
    strata_runtime *runtime;
    (void)data;
    return strata_runtime_get(0, &runtime) == STRATA_ERROR_SYNTAX ? &layers_made : NULL;
}

static int errors_told;

/* Another thread asks for the same runtime meanwhile, and is waited for. */
static void ask_beside(const strata_error *error, void *data)
{
    pthread_t thread;
    void *result = NULL;
    (void)data;
    if (errors_told++)
        return; /* that thread's own */
    assert_int_equal(error->status, STRATA_ERROR_SYNTAX);
    assert_int_equal(pthread_create(&thread, NULL, get_beside, NULL), 0);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    assert_int_equal(pthread_timedjoin_np(thread, &result, &until), 0);
    assert_non_null(result);
}

static void a_first_start_that_fails_is_told_while_no_lock_is_held(void **state)
{
    strata_runtime *runtime;
    (void)state;
    setenv("STRATA_STACK", "counted, nonsense", 1);
    strata_set_log_callback(ask_beside, NULL);
    check_status(strata_runtime_get(0, &runtime), STRATA_ERROR_SYNTAX);
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(errors_told, 2);
}

static void sixteen_threads_start_one_runtime_and_build_it_once(void **state)
{
    (void)state;
    cold_start all[THREADS];
    setenv("STRATA_STACK", "counted, async", 1);
    layers_made = 0;
    ask_at_once(all);
    for (size_t i = 0; i < THREADS; i++) {
        check_status(all[i].status, STRATA_SUCCESS);
        assert_non_null(all[i].runtime);
        assert_ptr_equal(all[i].runtime, all[0].runtime);
    }
    assert_int_equal(layers_made, 1);
    setenv("STRATA_STACK", "direct", 1);
    strata_runtime *again;
    check_ok(strata_runtime_get(0, &again));
    assert_ptr_equal(again, all[0].runtime);
    assert_string_equal(strata_stack_text(strata_runtime_stack(again)), "counted, async");
    unsetenv("STRATA_STACK");
    assert_string_equal(strata_runtime_default_stack(), usual_stack);
}

static void the_singleton_is_not_ended(void **state)
{
    (void)state;
    strata_runtime *runtime;
    check_ok(strata_runtime_get(0, &runtime));
    check_status(strata_runtime_destroy(runtime), STRATA_ERROR_INVALID_VALUE);
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    check_ok(strata_runtime_deallocate(runtime, &block));
}

static void a_device_that_there_is_not_has_no_runtime(void **state)
{
    (void)state;
    strata_driver_info info;
    check_ok(strata_driver_get_info(&info));
    const int ordinals[] = {-1, info.device_count, 63, 64, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof ordinals / sizeof ordinals[0]; i++) {
        strata_runtime *runtime = (strata_runtime *)&info;
        strata_device_info device;
        check_status(strata_runtime_get(ordinals[i], &runtime), STRATA_ERROR_INVALID_VALUE);
        assert_null(runtime);
        check_last_error(STRATA_ERROR_INVALID_VALUE, "invalid device");
        check_status(strata_runtime_create(&(strata_runtime_config){.device = ordinals[i]}, &runtime),
                     STRATA_ERROR_INVALID_VALUE);
        check_status(strata_device_get_info(ordinals[i], &device), STRATA_ERROR_INVALID_VALUE);
    }
    check_status(strata_runtime_get(0, NULL), STRATA_ERROR_INVALID_VALUE);
}

/* ---- private runtimes ---- */

static void a_runtime_is_refused_for_a_configuration_that_contradicts_itself(test_fixture *fixture)
{
    strata_stack *stack;
    strata_runtime *runtime;
    strata_runtime_config config = {.stack_text = fixture->stack};
    check_ok(strata_stack_create(fixture->stack, 0, &stack));
    config.stack = stack;
    check_status(strata_runtime_create(&config, &runtime), STRATA_ERROR_INVALID_VALUE);
    assert_null(runtime);
    config = (strata_runtime_config){.events = (strata_event_mode)7};
    check_status(strata_runtime_create(&config, &runtime), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_create(&config, NULL), STRATA_ERROR_INVALID_VALUE);
    static const uint32_t no_sizes[] = {1, 3, sizeof config - 1, sizeof config + 1, 4096, UINT32_MAX};
    for (size_t i = 0; i < sizeof no_sizes / sizeof no_sizes[0]; i++) {
        config = (strata_runtime_config){.size = no_sizes[i]};
        check_status(strata_runtime_create(&config, &runtime), STRATA_ERROR_INVALID_VALUE);
        check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_runtime_config.size");
    }
    memset(&config, 0xa5, sizeof config);
    check_status(strata_runtime_create(&config, &runtime), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "Zero the struct before");
    config = (strata_runtime_config){.size = sizeof config, .stack = stack};
    check_ok(strata_runtime_create(&config, &runtime));
    assert_ptr_equal(strata_runtime_stack(runtime), stack);
    assert_int_equal(strata_runtime_device(runtime), 0);
    check_ok(strata_runtime_destroy(runtime));
    check_ok(strata_runtime_destroy(NULL));
}

static void a_stack_belongs_to_one_runtime_which_alone_ends_it(test_fixture *fixture)
{
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    check_status(strata_stack_destroy(stack), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "belongs to a runtime");
    check_ok(strata_stack_create(fixture->stack, 0, &stack));
    strata_runtime *first, *second;
    const strata_runtime_config config = {.stack = stack};
    check_ok(strata_runtime_create(&config, &first));
    check_status(strata_runtime_create(&config, &second), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "another runtime");
    assert_null(second);
    check_status(strata_stack_destroy(stack), STRATA_ERROR_INVALID_VALUE);
    strata_block block;
    check_ok(strata_runtime_allocate(first, BYTES, NULL, &block));
    check_ok(strata_runtime_deallocate(first, &block));
    check_ok(strata_runtime_destroy(first));
}

static void runtimes_stand_side_by_side_and_keep_their_own_accounts(test_fixture *fixture)
{
    strata_runtime *other;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &other));
    strata_block ours = test_allocate(fixture, BYTES, NULL), theirs;
    check_ok(strata_runtime_allocate(other, 3 * BYTES, NULL, &theirs));
    strata_usage usage;
    check_ok(strata_runtime_usage(other, &usage));
    assert_true(test_usage(fixture).live_bytes == BYTES);
    assert_true(usage.live_bytes == 3 * BYTES && usage.live_blocks == 1);
    check_status(strata_runtime_deallocate(other, &ours), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_runtime_deallocate(fixture->runtime, &theirs), STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_deallocate(other, &theirs));
    check_ok(strata_runtime_destroy(other));
    check_ok(strata_runtime_deallocate(fixture->runtime, &ours));
}

static void a_runtime_with_live_blocks_is_busy_and_stays_whole(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_REGISTERED);
    strata_block block = test_allocate(fixture, BYTES, stream);
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "1 live block, 4 KiB (4096 bytes)");
    strata_block another = test_allocate(fixture, 2 * BYTES, stream);
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "2 live blocks, 12 KiB (12288 bytes) in all");
    check_ok(strata_runtime_deallocate(fixture->runtime, &another));
    check_status(strata_runtime_register_stream(fixture->runtime, stream), STRATA_ERROR_INVALID_VALUE);
    test_write(fixture, &block, 1, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_stream_close(fixture, stream);
}

static void a_runtime_with_taken_streams_is_busy_and_stays_whole(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "still in use");
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 1, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_stream_close(fixture, stream);
}

static void ending_a_runtime_waits_for_its_frees(test_fixture *fixture)
{
    strata_runtime *other;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &other));
    check_ok(strata_runtime_allocate(other, BYTES, stream, &block));
    test_fill(block.address, 7, BYTES, stream);
    check_ok(strata_runtime_deallocate_on(other, &block, stream));
    check_ok(strata_runtime_destroy(other));
    test_stream_close(fixture, stream);
}

static strata_runtime *watched;
static unsigned locked_errors;

static void try_lock(const strata_error *error, void *data)
{
    (void)error;
    const bool is_free = strata_lock_try(&watched->streams_lock);
    if (is_free)
        strata_lock_release(&watched->streams_lock);
    *(unsigned *)data += !is_free;
}

/* The log callback may wait for a thread that calls Strata. */
static void errors_of_streams_are_raised_without_their_lock(void **state)
{
    (void)state;
    CUstream taken, more;
    strata_runtime_config config = {.stack_text = "direct", .stream_capacity = 1};
    check_ok(strata_runtime_create(&config, &watched));
    check_ok(strata_runtime_stream_acquire(watched, &taken));
    locked_errors = 0;
    strata_set_log_callback(try_lock, &locked_errors);
    const strata_status statuses[] = {
        strata_runtime_stream_acquire(watched, &more),   strata_runtime_stream_release(watched, NULL),
        strata_runtime_register_stream(watched, taken),  strata_runtime_register_stream(watched, NULL),
        strata_runtime_unregister_stream(watched, NULL), strata_runtime_destroy(watched)};
    strata_set_log_callback(NULL, NULL);
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        assert_int_not_equal(statuses[i], STRATA_SUCCESS);
    assert_int_equal(locked_errors, 0);
    check_last_error(STRATA_ERROR_BUSY, "still in use");
    check_ok(strata_runtime_stream_release(watched, taken));
    check_ok(strata_runtime_destroy(watched));
}

static size_t pool_size(strata_runtime *runtime)
{
    CUstream streams[CAPACITY], more;
    size_t count = 0;
    while (count < CAPACITY && strata_runtime_stream_acquire(runtime, &streams[count]) == STRATA_SUCCESS)
        assert_true(strata_stream_is_known(streams[count++]));
    check_status(strata_runtime_stream_acquire(runtime, &more), STRATA_ERROR_STREAMS_EXHAUSTED);
    for (size_t i = 0; i < count; i++)
        check_ok(strata_runtime_stream_release(runtime, streams[i]));
    return count;
}

/* The driver refuses to destroy each of the pool's streams in turn, which is left to the context. What is left to the
 * runtime after that is whole. */
static void a_stream_that_the_driver_does_not_destroy_is_reported_once_and_given_to_nobody(test_fixture *fixture)
{
    for (unsigned nth = 1; nth <= 3; nth++) {
        strata_runtime *other;
        CUstream streams[3];
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &other));
        for (size_t i = 0; i < 3; i++)
            check_ok(strata_runtime_stream_acquire(other, &streams[i]));
        for (size_t i = 0; i < 3; i++)
            check_ok(strata_runtime_stream_release(other, streams[i]));
        test_fault_begin(TEST_FAULT_STREAM_DESTROY, nth, false, CUDA_ERROR_UNKNOWN);
        check_status(strata_runtime_destroy(other), STRATA_ERROR_DRIVER);
        assert_int_equal(test_fault_end(), 1);
        check_last_error(STRATA_ERROR_DRIVER, "cuStreamDestroy");
        assert_int_equal(pool_size(other), CAPACITY);
        check_ok(strata_runtime_destroy(other));
    }
}

static void a_runtime_that_cannot_wait_for_its_frees_stays_whole(test_fixture *fixture)
{
    strata_runtime *other;
    CUstream own = test_stream(fixture, TEST_STREAM_UNKNOWN), pooled;
    strata_block block;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &other));
    check_ok(strata_runtime_register_stream(other, own));
    check_ok(strata_runtime_stream_acquire(other, &pooled));
    check_ok(strata_runtime_allocate(other, BYTES, own, &block));
    check_ok(strata_runtime_deallocate(other, &block));
    check_ok(strata_runtime_stream_release(other, pooled));
    test_fault_begin(TEST_FAULT_EVENT_SYNCHRONIZE, 1, false, CUDA_ERROR_UNKNOWN);
    strata_status status = strata_runtime_destroy(other);
    unsigned waits = test_fault_end();
    if (waits) { /* a free may be over when it returns */
        check_status(status, STRATA_ERROR_DRIVER);
        assert_true(strata_stream_is_known(own) && strata_stream_is_known(pooled));
        check_ok(strata_runtime_destroy(other));
    }
    assert_true(waits || strcmp(fixture->stack, "direct") == 0);
    assert_false(strata_stream_is_known(own));
}

/* ---- the stream pool ---- */

static void the_pool_ends_at_its_capacity_and_never_hands_out_a_default_stream(test_fixture *fixture)
{
    static const uint32_t capacities[] = {0, 1, 5, 40};
    for (size_t i = 0; i < sizeof capacities / sizeof capacities[0]; i++) {
        CUstream streams[40], more = (CUstream)fixture;
        uint32_t capacity = capacities[i] ? capacities[i] : CAPACITY;
        strata_runtime *runtime;
        check_ok(strata_runtime_create(
            &(strata_runtime_config){.stack_text = fixture->stack, .stream_capacity = capacities[i]}, &runtime));
        for (uint32_t j = 0; j < capacity; j++) {
            check_ok(strata_runtime_stream_acquire(runtime, &streams[j]));
            assert_true((uintptr_t)streams[j] > (uintptr_t)CU_STREAM_PER_THREAD);
            for (uint32_t k = 0; k < j; k++)
                assert_ptr_not_equal(streams[j], streams[k]);
        }
        for (int again = 0; again < 3; again++) {
            check_status(strata_runtime_stream_acquire(runtime, &more), STRATA_ERROR_STREAMS_EXHAUSTED);
            assert_null(more);
        }
        check_last_error(STRATA_ERROR_STREAMS_EXHAUSTED, "stream_capacity");
        check_ok(strata_runtime_stream_release(runtime, streams[capacity / 2]));
        check_status(strata_runtime_stream_release(runtime, streams[capacity / 2]), STRATA_ERROR_INVALID_VALUE);
        check_ok(strata_runtime_stream_acquire(runtime, &more));
        assert_ptr_equal(more, streams[capacity / 2]);
        for (uint32_t j = 0; j < capacity; j++)
            check_ok(strata_runtime_stream_release(runtime, streams[j]));
        check_ok(strata_runtime_destroy(runtime));
    }
}

static void streams_that_are_not_of_the_pool_are_not_taken_back(test_fixture *fixture)
{
    CUstream registered = test_stream(fixture, TEST_STREAM_REGISTERED), pooled = test_stream(fixture, TEST_STREAM_POOL);
    CUstream unknown = test_stream(fixture, TEST_STREAM_UNKNOWN);
    check_status(strata_runtime_stream_release(fixture->runtime, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_stream_release(fixture->runtime, registered), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_stream_release(fixture->runtime, unknown), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_unregister_stream(fixture->runtime, pooled), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_unregister_stream(fixture->runtime, unknown), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_register_stream(fixture->runtime, pooled), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_stream_acquire(fixture->runtime, NULL), STRATA_ERROR_INVALID_VALUE);
    static const CUstream defaults[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    for (size_t i = 0; i < 3; i++)
        check_status(strata_runtime_register_stream(fixture->runtime, defaults[i]), STRATA_ERROR_INVALID_VALUE);
    test_stream_close(fixture, registered);
    test_stream_close(fixture, pooled);
    test_stream_close(fixture, unknown);
}

typedef struct acquirer {
    strata_runtime *runtime;
    _Atomic int *out;
    bool fine;
} acquirer;

static void *acquire_and_release(void *data)
{
    acquirer *one = data;
    one->fine = true;
    for (int i = 0; i < 500; i++) {
        CUstream stream;
        strata_status status = strata_runtime_stream_acquire(one->runtime, &stream);
        if (status == STRATA_SUCCESS) {
            one->fine &= stream != NULL && atomic_fetch_add(one->out, 1) < 4;
            atomic_fetch_sub(one->out, 1);
            one->fine &= strata_runtime_stream_release(one->runtime, stream) == STRATA_SUCCESS;
        } else {
            one->fine &= status == STRATA_ERROR_STREAMS_EXHAUSTED && !stream;
        }
    }
    return NULL;
}

static void threads_never_hold_more_streams_than_the_pool_has(test_fixture *fixture)
{
    pthread_t threads[THREADS];
    acquirer all[THREADS];
    _Atomic int out = 0;
    strata_runtime *runtime;
    check_ok(
        strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack, .stream_capacity = 4}, &runtime));
    for (size_t i = 0; i < THREADS; i++) {
        all[i] = (acquirer){.runtime = runtime, .out = &out};
        assert_int_equal(pthread_create(&threads[i], NULL, acquire_and_release, &all[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++)
        assert_true(all[i].fine);
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- accounts ---- */

static void usage_follows_what_is_allocated_and_freed(test_fixture *fixture)
{
    strata_block blocks[10];
    size_t live = 0;
    for (size_t i = 0; i < 10; i++) {
        blocks[i] = test_allocate(fixture, (i + 1) * 1000, NULL);
        live += blocks[i].bytes;
        strata_usage usage = test_usage(fixture);
        assert_true(usage.live_bytes == live && usage.live_blocks == i + 1);
        assert_true(usage.bytes_outstanding == live + usage.retired_bytes);
        assert_true(usage.reserved_bytes >= live);
        assert_true(usage.reserved_peak == 0 || usage.reserved_peak >= usage.reserved_bytes);
    }
    for (size_t i = 0; i < 10; i++) {
        live -= blocks[i].bytes;
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
        assert_true(test_usage(fixture).live_bytes == live);
        assert_true(strata_runtime_bytes_outstanding(fixture->runtime) >= live);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == live);
    }
}

static void trim_gives_back_what_is_free_and_no_more(test_fixture *fixture)
{
    strata_block kept = test_allocate(fixture, BYTES, NULL), large = test_allocate(fixture, 256 << 20, NULL);
    test_write(fixture, &kept, 0x3c, NULL);
    check_ok(strata_runtime_deallocate(fixture->runtime, &large));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    size_t before = test_usage(fixture).reserved_bytes, released = 1;
    check_ok(strata_runtime_trim(fixture->runtime, SIZE_MAX / 2, &released));
    assert_true(released == 0);
    check_ok(strata_runtime_trim(fixture->runtime, 0, &released));
    size_t after = test_usage(fixture).reserved_bytes;
    bool told = released || !test_is_swept(); /* a driver that does not tell the size: test_async has that */
    assert_true(!told || before - after == released);
    if (told && (strcmp(fixture->stack, "async") == 0 || test_owner_is(fixture, "pool")))
        assert_true(released >= 256 << 20);
    assert_true(after >= BYTES);
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    const unsigned char *seen = test_read(fixture, &kept, NULL);
    test_synchronize(NULL);
    check_bytes(seen, 0x3c, BYTES);
    check_ok(strata_runtime_deallocate(fixture->runtime, &kept));
}

static void calls_without_a_runtime_or_a_block_are_refused(test_fixture *fixture)
{
    strata_runtime *runtime = fixture->runtime;
    strata_block block = {0};
    strata_usage usage;
    check_status(strata_runtime_allocate(NULL, BYTES, NULL, &block), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_allocate(runtime, BYTES, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_allocate_request(runtime, NULL, &block), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_deallocate(NULL, &block), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_deallocate(runtime, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_deallocate_on(NULL, &block, NULL), STRATA_ERROR_INVALID_VALUE);
    strata_block live = test_allocate(fixture, BYTES, NULL);
    check_status(strata_runtime_deallocate_on(runtime, &live, STRATA_STREAM_GONE), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "stream is STRATA_STREAM_GONE, which is for layers");
    test_free_on(fixture, &live, NULL);
    check_status(strata_runtime_usage(NULL, &usage), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_usage(runtime, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_reap_pending(NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_trim(NULL, 0, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_find(NULL, 1, &block), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_find(runtime, 1, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_prepare_block_use(runtime, NULL, NULL, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_NONE),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_finish_block_use(runtime, &block, NULL, (strata_access)4), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_record_block_use(runtime, &block, NULL, STRATA_ACCESS_NONE),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_register_stream(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_false(strata_runtime_supports_block_use_tracking(NULL));
    assert_true(strata_runtime_supports_block_use_tracking(runtime));
    assert_true(strata_runtime_bytes_outstanding(NULL) == 0);
    assert_int_equal(strata_runtime_block_state(NULL, block.id), STRATA_BLOCK_FREED);
    assert_int_equal(strata_runtime_device(NULL), -1);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_runtime_device");
    assert_null(strata_runtime_stack(NULL));
    check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_runtime_stack");
}

static void calls_without_a_stack_or_a_resource_are_refused(test_fixture *fixture)
{
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    const strata_block block = {0};
    assert_null(strata_stack_top(NULL));
    check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_stack_top");
    assert_int_equal(strata_stack_device(NULL), -1);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_stack_device");
    assert_string_equal(strata_stack_text(NULL), "");
    check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_stack_text");
    assert_null(strata_block_layer_bytes(NULL, block.id));
    assert_null(strata_block_layer_bytes(&(strata_resource){0}, block.id));
    check_status(strata_block_record_use(NULL, &block, NULL, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_block_record_use(top, NULL, NULL, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_block_wait_uses(NULL, &block, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_block_wait_uses(top, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
}

/* ---- the caller's context ---- */

/* An entry point that the door's table does not have, got as the table's are: a library before the driver may export
 * nothing but the way to them. */
static void *entry_point(const char *name, int version)
{
    strata_driver_info info;
    check_ok(strata_driver_get_info(&info));
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    PFN_cuGetProcAddress_v12000 get;
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    assert_non_null(symbol);
    memcpy(&get, &symbol, sizeof get);
    check_cu(get(name, &symbol, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL));
    assert_non_null(symbol);
    dlclose(library);
    return symbol;
}

static CUcontext other_context(void)
{
    PFN_cuCtxCreate_v3020 create;
    void *symbol = entry_point("cuCtxCreate", 3020);
    memcpy(&create, &symbol, sizeof create);
    CUcontext context;
    check_cu(create(&context, 0, 0));
    check_cu(test_cu()->CtxPopCurrent(&context));
    return context;
}

static void end_context(CUcontext context)
{
    PFN_cuCtxDestroy_v4000 destroy;
    void *symbol = entry_point("cuCtxDestroy", 4000);
    memcpy(&destroy, &symbol, sizeof destroy);
    check_cu(destroy(context));
}

static CUcontext expected;

#define keeps(call) check_keeps((call), #call, __LINE__)

static void check_keeps(strata_status status, const char *call, int line)
{
    CUcontext now;
    check_cu(test_cu()->CtxGetCurrent(&now));
    if (now != expected || status != STRATA_SUCCESS)
        print_error("line %d: %s answered %s\n", line, call, strata_status_name(status));
    check_ok(status);
    assert_ptr_equal(now, expected);
}

static void use_everything(test_fixture *fixture, CUstream stream, CUstream unknown)
{
    strata_runtime *runtime;
    strata_block block, large;
    strata_launch launch;
    CUstream pooled, other;
    size_t released;
    strata_device_info device;
    keeps(strata_device_get_info(0, &device));
    strata_runtime_config config = {.stack_text = fixture->stack, .events = STRATA_EVENTS_EARLY};
    keeps(strata_runtime_create(&config, &runtime));
    keeps(strata_runtime_stream_acquire(runtime, &pooled));
    keeps(strata_runtime_stream_acquire(runtime, &other));
    keeps(strata_runtime_register_stream(runtime, stream));
    const CUstream all[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, pooled, stream, unknown};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        keeps(strata_runtime_allocate(runtime, BYTES, all[i], &block));
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++) {
            strata_access access = j % 2 ? STRATA_ACCESS_READ : STRATA_ACCESS_WRITE;
            keeps(strata_runtime_prepare_block_use(runtime, &block, all[j], access));
            keeps(strata_runtime_finish_block_use(runtime, &block, all[j], access));
            keeps(strata_runtime_record_block_use(runtime, &block, all[j], access));
            keeps(strata_launch_begin(&launch, runtime, all[j], STRATA_LAUNCH_STRICT));
            keeps(strata_launch_use(&launch, &block, access));
            keeps(strata_launch_preflight(&launch));
            keeps(strata_launch_commit(&launch));
            keeps(strata_launch_end(&launch));
        }
        strata_status status = strata_runtime_allocate(runtime, (size_t)1 << 50, all[i], &large);
        keeps(status == STRATA_ERROR_OUT_OF_MEMORY ? STRATA_SUCCESS : STRATA_ERROR_IO);
        keeps(strata_runtime_deallocate_on(runtime, &block, all[5 - i]));
    }
    keeps(strata_runtime_allocate(runtime, BYTES, pooled, &block));
    keeps(strata_runtime_prepare_first_use(runtime, &block, other, STRATA_ACCESS_WRITE));
    keeps(strata_runtime_finish_first_use(runtime, &block, other, STRATA_ACCESS_WRITE));
    keeps(strata_runtime_deallocate(runtime, &block));
    keeps(strata_runtime_allocate(runtime, BYTES, stream, &block));
    keeps(strata_runtime_unregister_stream(runtime, stream));
    keeps(strata_runtime_deallocate(runtime, &block));
    keeps(strata_runtime_reap_pending(runtime));
    keeps(strata_runtime_trim(runtime, 0, &released));
    keeps(strata_runtime_usage(runtime, &(strata_usage){0}));
    keeps(strata_runtime_stream_release(runtime, pooled));
    keeps(strata_runtime_stream_release(runtime, other));
    keeps(strata_runtime_destroy(runtime));
}

static void every_call_leaves_the_callers_context_as_it_was(test_fixture *fixture)
{
    CUcontext primary, foreign = other_context();
    CUstream stream, unknown;
    test_make_current();
    check_cu(test_cu()->CtxGetCurrent(&primary));
    const CUcontext contexts[] = {primary, NULL, foreign};
    for (size_t i = 0; i < 3; i++) {
        test_make_current();
        stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
        unknown = test_stream(fixture, TEST_STREAM_UNKNOWN);
        expected = contexts[i];
        check_cu(test_cu()->CtxSetCurrent(expected));
        use_everything(fixture, stream, unknown);
        test_make_current();
        test_stream_close(fixture, stream);
        test_stream_close(fixture, unknown);
    }
    end_context(foreign);
    test_make_current();
}

int main(void)
{
    unsetenv("STRATA_STACK");
    test_open_driver();
    if (strata_layer_register(&counted) != STRATA_SUCCESS)
        return 1;
    const struct CMUnitTest singleton[] = {
        cmocka_unit_test(a_first_start_that_fails_leaves_nothing_and_is_tried_again),
        cmocka_unit_test(a_first_start_that_fails_is_told_while_no_lock_is_held),
        cmocka_unit_test(sixteen_threads_start_one_runtime_and_build_it_once),
        cmocka_unit_test(the_singleton_is_not_ended),
        cmocka_unit_test(a_device_that_there_is_not_has_no_runtime),
        cmocka_unit_test(errors_of_streams_are_raised_without_their_lock),
    };
    static const test_case cases[] = {
        TEST_CASE(a_runtime_is_refused_for_a_configuration_that_contradicts_itself),
        TEST_CASE(a_stack_belongs_to_one_runtime_which_alone_ends_it),
        TEST_CASE(runtimes_stand_side_by_side_and_keep_their_own_accounts),
        TEST_CASE(a_runtime_with_live_blocks_is_busy_and_stays_whole),
        TEST_CASE(a_runtime_with_taken_streams_is_busy_and_stays_whole),
        TEST_CASE(ending_a_runtime_waits_for_its_frees),
        TEST_CASE(a_stream_that_the_driver_does_not_destroy_is_reported_once_and_given_to_nobody),
        TEST_CASE(a_runtime_that_cannot_wait_for_its_frees_stays_whole),
        TEST_CASE(the_pool_ends_at_its_capacity_and_never_hands_out_a_default_stream),
        TEST_CASE(streams_that_are_not_of_the_pool_are_not_taken_back),
        TEST_CASE(threads_never_hold_more_streams_than_the_pool_has),
        TEST_CASE(usage_follows_what_is_allocated_and_freed),
        TEST_CASE(trim_gives_back_what_is_free_and_no_more),
        TEST_CASE(calls_without_a_runtime_or_a_block_are_refused),
        TEST_CASE(calls_without_a_stack_or_a_resource_are_refused),
        TEST_CASE(every_call_leaves_the_callers_context_as_it_was),
    };
    int failed = test_is_swept() ? 0 : cmocka_run_group_tests(singleton, NULL, NULL);
    return failed + test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
