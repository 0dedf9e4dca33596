/* `give_back`: a layer of the program's own in a stack that has memory free, while another stack is refused memory by
 * the device. tests/resources/owners/test_neighbours.c has the library's layers. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/neighbours.h"

#include <strata/pool.h>

/* It stands over a pool, and observes when it is asked. */
typedef struct witness {
    strata_resource resource;
    strata_runtime *nested; /* if not NULL, its give_back asks there for more than there is */
    atomic_bool slow, inside, ended;
    bool ended_inside;
    unsigned calls;
    uint64_t bytes;
} witness;

static uint64_t witness_give_back(strata_resource *resource, uint64_t bytes, bool may_wait)
{
    witness *self = (witness *)resource;
    strata_block refused;
    (void)may_wait;
    self->calls++;
    self->bytes = bytes;
    self->inside = true;
    if (self->nested)
        child_status(strata_runtime_allocate(self->nested, 2 * GIB, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    if (self->slow)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    self->ended_inside |= self->ended;
    return 0;
}

static void witness_destroy(strata_resource *resource)
{
    ((witness *)resource)->ended = true;
}

static const strata_resource_ops witness_ops = {
    .size = sizeof(strata_resource_ops),
    .transparent = true,
    .name = "witness",
    .destroy = witness_destroy,
    .give_back = witness_give_back,
};

/* Has 3 GiB free. */
static strata_stack *stack_with(witness *self)
{
    strata_resource *layers[2] = {&self->resource};
    strata_stack *stack;
    self->resource.ops = &witness_ops;
    child_ok(strata_pool_create(0, NULL, &layers[1]));
    child_ok(strata_stack_build(layers, 2, 0, &stack));
    strata_resource *top = strata_stack_top(stack);
    strata_block block;
    child_ok(strata_resource_allocate(top, &(strata_request){.bytes = 3 * GIB}, &block));
    child_ok(strata_resource_deallocate(top, &block, NULL));
    return stack;
}

static void ask_once_and_for_what_is_missing(void)
{
    begin_child();
    witness seen = {0};
    strata_stack *stack = stack_with(&seen);
    strata_runtime *second = make_stack("direct");
    size_t left = 0, total;
    child_check(test_cu()->MemGetInfo(&left, &total) == CUDA_SUCCESS);
    strata_block block = take(second, GIB / 2);
    give(second, &block);
    child_check(seen.calls == 0);
    block = take(second, 2 * GIB);
    child_check(seen.calls == 1 && seen.bytes <= 2 * GIB - left + 2 * MIB);
    give(second, &block);
    end_stack(second);
    child_ok(strata_stack_destroy(stack));
}

/* What a layer requests while it gives memory back does not make it, or another one, give more back. */
static void ask_no_other_meanwhile(void)
{
    begin_child();
    witness seen = {.nested = make_stack("direct")};
    strata_stack *stack = stack_with(&seen);
    strata_runtime *second = make_stack("direct");
    const strata_block block = take(second, 2 * GIB);
    child_check(seen.calls == 1);
    give(second, &block);
    end_stack(second);
    end_stack(seen.nested);
    child_ok(strata_stack_destroy(stack));
}

static void *destroy_stack(void *stack)
{
    child_ok(strata_stack_destroy(stack));
    return NULL;
}

static void *take_and_give(void *runtime)
{
    test_make_current();
    const strata_block block = take(runtime, 2 * GIB);
    give(runtime, &block);
    return NULL;
}

/* Its end waits until it has given back. */
static void stay_while_asked(void)
{
    begin_child();
    witness seen = {.slow = true};
    strata_stack *stack = stack_with(&seen);
    strata_runtime *second = make_stack("direct");
    pthread_t asking, ending;
    child_check(pthread_create(&asking, NULL, take_and_give, second) == 0);
    while (!seen.inside)
        sched_yield();
    child_check(pthread_create(&ending, NULL, destroy_stack, stack) == 0);
    pthread_join(asking, NULL);
    pthread_join(ending, NULL);
    child_check(seen.calls >= 1 && !seen.ended_inside);
    end_stack(second);
}

static void count_requests(const char *name, uint64_t times, void *data)
{
    *(uint64_t *)data += strcmp(name, "cuMemAllocFromPoolAsync") == 0 ? times : 0;
}

static uint64_t requests_so_far(void)
{
    uint64_t times = 0;
    strata_driver_visit_calls(count_requests, &times);
    return times;
}

/* Its free memory is in parts, and no other stack has any in hand. */
static void refuse_soon_what_no_other_has(void)
{
    enum { BLOCKS = 16 };
    strata_block blocks[BLOCKS], large;
    unsigned made = 0;
    child_ok(strata_driver_count_calls());
    begin_child();
    strata_runtime *alone = make_stack("async"), *empty = make_stack("pool");
    while (made < BLOCKS && strata_runtime_allocate(alone, 250 * MIB, NULL, &blocks[made]) == STRATA_SUCCESS)
        made++;
    for (unsigned i = 0; i < made; i += 2)
        give(alone, &blocks[i]);
    child_ok(strata_runtime_stream_synchronize(alone, NULL));
    const uint64_t before = requests_so_far();
    child_status(strata_runtime_allocate(alone, 2 * GIB, NULL, &large), STRATA_ERROR_OUT_OF_MEMORY);
    child_check(requests_so_far() - before <= 2);
    for (unsigned i = 1; i < made; i += 2)
        give(alone, &blocks[i]);
    end_stack(empty);
    end_stack(alone);
}

/* ---- the tests ---- */

static void a_layer_is_asked_once_for_what_is_missing(void **state)
{
    (void)state;
    run_on_small_device("ask_once_and_for_what_is_missing");
}

static void a_layer_that_gives_back_makes_no_other_give_back(void **state)
{
    (void)state;
    run_on_small_device("ask_no_other_meanwhile");
}

static void a_stack_does_not_end_while_it_gives_back(void **state)
{
    (void)state;
    run_on_small_device("stay_while_asked");
}

static void a_request_that_no_other_stack_can_help_is_refused_soon(void **state)
{
    (void)state;
    run_on_small_device("refuse_soon_what_no_other_has");
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(ask_once_and_for_what_is_missing),
        TEST_SCENARIO(ask_no_other_meanwhile),
        TEST_SCENARIO(stay_while_asked),
        TEST_SCENARIO(refuse_soon_what_no_other_has),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_is_asked_once_for_what_is_missing),
        cmocka_unit_test(a_layer_that_gives_back_makes_no_other_give_back),
        cmocka_unit_test(a_stack_does_not_end_while_it_gives_back),
        cmocka_unit_test(a_request_that_no_other_stack_can_help_is_refused_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
