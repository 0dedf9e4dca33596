/* pool: several stacks of one process on one device. One that is refused memory by the device takes what others have
 * free. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "support/effort.h"
#include "support/neighbours.h"
#include "support/stall.h"

enum { STACKS = 3, ROUNDS = 16, ROUNDS_DEBUGGED = 4 };

/* A device of 4 GiB. */
static strata_runtime *stacks[STACKS];

static void begin(int count)
{
    begin_child();
    for (int i = 0; i < count; i++)
        stacks[i] = make_stack("pool");
}

static void end(int count)
{
    for (int i = 0; i < count; i++)
        end_stack(stacks[i]);
}

static void leave_free(strata_runtime *runtime, size_t bytes)
{
    const strata_block block = take(runtime, bytes);
    give(runtime, &block);
    child_check(value_of(runtime, "pool.reserved") == bytes);
}

/* ---- one request ---- */

/* Not all of it: the other stack keeps what is not needed. */
static void take_what_another_has_free(void)
{
    begin(2);
    leave_free(stacks[0], 3 * GIB);
    const strata_block block = take(stacks[1], 2 * GIB);
    child_check(value_of(stacks[0], "pool.reserved") >= GIB);
    give(stacks[1], &block);
    end(2);
}

/* The device has nothing left at all. */
static void take_a_little_of_a_full_device(void)
{
    begin(2);
    size_t left = 0, total;
    child_check(strata_cu.MemGetInfo(&left, &total) == CUDA_SUCCESS);
    leave_free(stacks[0], left / (2 * MIB) * (2 * MIB));
    const strata_block block = take(stacks[1], 4096);
    give(stacks[1], &block);
    end(2);
}

static void take_what_two_others_have_free(void)
{
    begin(3);
    leave_free(stacks[0], 3 * GIB / 2);
    leave_free(stacks[1], 3 * GIB / 2);
    const strata_block block = take(stacks[2], 7 * GIB / 2);
    child_check(value_of(stacks[0], "pool.reserved") + value_of(stacks[1], "pool.reserved") <= GIB / 2);
    give(stacks[2], &block);
    end(3);
}

/* What is live stays, whole chunks beside it go. */
static void take_beside_what_is_live(void)
{
    begin(2);
    strata_block live = take(stacks[0], 512 * MIB), freed = take(stacks[0], 2 * GIB + 512 * MIB), block;
    CUdeviceptr address = live.address;
    child_check(test_cu()->MemsetD8Async(address, 0x11, live.bytes, NULL) == CUDA_SUCCESS);
    give(stacks[0], &freed);
    block = take(stacks[1], 3 * GIB);
    child_status(strata_runtime_allocate(stacks[1], GIB, NULL, &freed), STRATA_ERROR_OUT_OF_MEMORY);
    unsigned char bytes[2] = {0};
    child_check(test_cu()->MemcpyDtoHAsync(&bytes[0], address, 1, NULL) == CUDA_SUCCESS);
    child_check(test_cu()->MemcpyDtoHAsync(&bytes[1], address + live.bytes - 1, 1, NULL) == CUDA_SUCCESS);
    child_check(test_cu()->StreamSynchronize(NULL) == CUDA_SUCCESS);
    child_check(bytes[0] == 0x11 && bytes[1] == 0x11);
    give(stacks[1], &block);
    give(stacks[0], &live);
    end(2);
}

static void *release_soon(void *stall)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    test_stall_release(stall);
    return NULL;
}

/* Of two stacks with free memory, one waits for work: a wait only for a request that would be refused. */
static void wait_for_another_before_a_refusal(void)
{
    begin(3);
    CUstream stream;
    strata_block block;
    pthread_t thread;
    child_ok(strata_runtime_stream_acquire(stacks[0], &stream));
    child_ok(strata_runtime_allocate(stacks[0], 3 * GIB / 2, stream, &block));
    test_stall *stall = test_stall_begin(stream);
    child_ok(strata_runtime_deallocate(stacks[0], &block));
    leave_free(stacks[1], 3 * GIB / 2);
    child_ok(strata_runtime_stream_synchronize(stacks[1], NULL));
    block = take(stacks[2], 2 * GIB);
    child_check(!test_stall_timed_out());
    give(stacks[2], &block);
    child_check(pthread_create(&thread, NULL, release_soon, stall) == 0);
    block = take(stacks[2], 7 * GIB / 2);
    pthread_join(thread, NULL);
    test_stall_end(stall);
    give(stacks[2], &block);
    child_ok(strata_runtime_stream_release(stacks[0], stream));
    end(3);
}

static void take_for_an_initial_size(void)
{
    begin(1);
    leave_free(stacks[0], 3 * GIB);
    stacks[1] = make_stack("pool(initial_size=3GiB)");
    const strata_block block = take(stacks[1], MIB);
    child_check(value_of(stacks[1], "pool.reserved") == 3 * GIB);
    give(stacks[1], &block);
    end(2);
}

static void leave_an_initial_size(void)
{
    begin(0);
    stacks[0] = make_stack("pool(initial_size=3GiB)");
    stacks[1] = make_stack("pool");
    strata_block block = take(stacks[0], MIB);
    give(stacks[0], &block);
    child_status(strata_runtime_allocate(stacks[1], 2 * GIB, NULL, &block), STRATA_ERROR_OUT_OF_MEMORY);
    child_check(value_of(stacks[0], "pool.reserved") == 3 * GIB);
    end(2);
}

/* ---- refusals ---- */

/* The other stack has 3 GiB in use. */
static strata_block begin_beside_live(strata_block *refused)
{
    begin(3);
    const strata_block live = take(stacks[0], 3 * GIB);
    child_status(strata_runtime_allocate(stacks[1], 2 * GIB, NULL, refused), STRATA_ERROR_OUT_OF_MEMORY);
    return live;
}

static void name_the_stacks_that_hold_the_device(void)
{
    strata_block refused;
    const strata_block live = begin_beside_live(&refused);
    child_check_words("of which other stacks hold 3 GiB (3221225472 bytes), 3 GiB (3221225472 bytes) of it live");
    give(stacks[0], &live);
    end(3);
}

static void serve_what_is_left_beside_another(void)
{
    strata_block refused;
    const strata_block live = begin_beside_live(&refused), block = take(stacks[2], GIB / 2);
    give(stacks[2], &block);
    give(stacks[0], &live);
    end(3);
}

/* ---- threads ---- */

static unsigned rounds(void)
{
    return (unsigned)test_effort(ROUNDS, ROUNDS_DEBUGGED);
}

/* The device has enough for both in each step, if the first stack returns what it has free: a block of up to 1 GiB
 * keeps at most three chunks, each a quarter of 2 GiB. */
static void take_from_one_that_allocates(void)
{
    begin(2);
    CUstream stream;
    worker other = {.runtime = stacks[0], .most = GIB};
    child_ok(strata_runtime_stream_acquire(stacks[0], &stream));
    begin_worker(&other, come_and_go);
    for (unsigned i = 0; i < rounds(); i++) {
        strata_block block;
        child_ok(strata_runtime_allocate(stacks[0], 2 * GIB, stream, &block));
        give(stacks[0], &block);
        child_ok(strata_runtime_stream_synchronize(stacks[0], stream)); /* complete, as the pool knows */
        block = take(stacks[1], 2 * GIB);
        give(stacks[1], &block);
        child_ok(strata_runtime_trim(stacks[1], 0, NULL));
    }
    child_ok(strata_runtime_stream_release(stacks[0], stream));
    over = true;
    pthread_join(other.thread, NULL);
    child_check(value_of(stacks[0], "pool.released") >= GIB);
    child_check(other.served && !other.refused);
    end(2);
}

/* Each takes from the other, and both may be refused. */
static void take_from_each_other(void)
{
    begin(2);
    worker workers[2] = {0};
    for (int i = 0; i < 2; i++) {
        workers[i].runtime = stacks[i];
        workers[i].most = 3 * GIB;
        workers[i].rounds = rounds();
        begin_worker(&workers[i], come_and_go);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(workers[i].thread, NULL);
        child_check(workers[i].served);
    }
    for (int i = 0; i < 2; i++) {
        const strata_block block = take(stacks[i], 3 * GIB);
        give(stacks[i], &block);
    }
    end(2);
}

/* A stack comes, has memory free, and goes. */
static void *build_and_destroy(void *data)
{
    worker *self = data;
    test_make_current();
    while (!over) {
        strata_runtime *runtime = make_stack("pool");
        strata_block block;
        const strata_status status = strata_runtime_allocate(runtime, 2 * GIB, NULL, &block);
        if (status == STRATA_SUCCESS)
            child_ok(strata_runtime_deallocate(runtime, &block));
        self->served += status == STRATA_SUCCESS;
        child_ok(strata_runtime_destroy(runtime));
    }
    return NULL;
}

/* Refused at most while the other's block is live. The longer the other gets nothing, the longer it leaves its own
 * memory free. */
static void take_from_one_that_ends(void)
{
    enum { LEAST_NS = 100000, MOST_NS = 100000000 };
    begin(1);
    worker other = {0};
    unsigned served = 0, seen = 0;
    long pause = LEAST_NS;
    begin_worker(&other, build_and_destroy);
    while (served < rounds() / 4 || other.served < rounds() / 4) {
        strata_block block;
        const strata_status status = strata_runtime_allocate(stacks[0], 3 * GIB, NULL, &block);
        if (status == STRATA_SUCCESS)
            give(stacks[0], &block);
        else
            child_check(status == STRATA_ERROR_OUT_OF_MEMORY);
        served += status == STRATA_SUCCESS;
        pause = other.served != seen ? LEAST_NS : pause < MOST_NS ? 2 * pause : pause;
        seen = other.served;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    }
    over = true;
    pthread_join(other.thread, NULL);
    const strata_block block = take(stacks[0], 7 * GIB / 2);
    give(stacks[0], &block);
    end(1);
}

/* ---- the tests ---- */

static void another_stacks_free_memory_serves(void **state)
{
    (void)state;
    run_on_small_device("take_what_another_has_free");
}

static void a_full_device_serves_a_small_request(void **state)
{
    (void)state;
    run_on_small_device("take_a_little_of_a_full_device");
}

static void free_memory_of_several_stacks_serves_together(void **state)
{
    (void)state;
    run_on_small_device("take_what_two_others_have_free");
}

static void live_memory_of_another_stack_stays(void **state)
{
    (void)state;
    run_on_small_device("take_beside_what_is_live");
}

static void work_of_another_stack_is_waited_for_before_a_refusal(void **state)
{
    (void)state;
    run_on_small_device("wait_for_another_before_a_refusal");
}

static void an_initial_size_is_taken_from_another_stack(void **state)
{
    (void)state;
    run_on_small_device("take_for_an_initial_size");
}

static void another_stack_keeps_its_initial_size(void **state)
{
    (void)state;
    run_on_small_device("leave_an_initial_size");
}

static void a_refusal_names_other_stacks(void **state)
{
    (void)state;
    run_on_small_device("name_the_stacks_that_hold_the_device");
}

static void what_is_left_is_served(void **state)
{
    (void)state;
    run_on_small_device("serve_what_is_left_beside_another");
}

static void memory_is_taken_from_a_stack_whose_threads_allocate(void **state)
{
    (void)state;
    run_on_small_device("take_from_one_that_allocates");
}

static void two_stacks_take_from_each_other(void **state)
{
    (void)state;
    run_on_small_device("take_from_each_other");
}

static void memory_is_taken_from_a_stack_that_is_being_destroyed(void **state)
{
    (void)state;
    run_on_small_device("take_from_one_that_ends");
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(take_what_another_has_free),
        TEST_SCENARIO(take_a_little_of_a_full_device),
        TEST_SCENARIO(take_what_two_others_have_free),
        TEST_SCENARIO(take_beside_what_is_live),
        TEST_SCENARIO(wait_for_another_before_a_refusal),
        TEST_SCENARIO(take_for_an_initial_size),
        TEST_SCENARIO(leave_an_initial_size),
        TEST_SCENARIO(name_the_stacks_that_hold_the_device),
        TEST_SCENARIO(serve_what_is_left_beside_another),
        TEST_SCENARIO(take_from_one_that_allocates),
        TEST_SCENARIO(take_from_each_other),
        TEST_SCENARIO(take_from_one_that_ends),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_stacks_free_memory_serves),
        cmocka_unit_test(a_full_device_serves_a_small_request),
        cmocka_unit_test(free_memory_of_several_stacks_serves_together),
        cmocka_unit_test(live_memory_of_another_stack_stays),
        cmocka_unit_test(work_of_another_stack_is_waited_for_before_a_refusal),
        cmocka_unit_test(an_initial_size_is_taken_from_another_stack),
        cmocka_unit_test(another_stack_keeps_its_initial_size),
        cmocka_unit_test(a_refusal_names_other_stacks),
        cmocka_unit_test(what_is_left_is_served),
        cmocka_unit_test(memory_is_taken_from_a_stack_whose_threads_allocate),
        cmocka_unit_test(two_stacks_take_from_each_other),
        cmocka_unit_test(memory_is_taken_from_a_stack_that_is_being_destroyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
