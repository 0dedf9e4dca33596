/* The statistics layer where host memory runs out: threads without counters of their own count all the same, and what
 * cannot be counted is not allocated. The linker puts the functions here in front of the library's own (--wrap). */
#include "support/statistics.h"

#include "core/base/thread.h"

static _Thread_local size_t countdown; /* how many allocations succeed before all fail, plus one; 0: none fails */
static _Thread_local size_t refused;

static const strata_statistics *watched; /* NULL: none */
static size_t locked;                    /* allocations while its counters were locked */

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);
void *__real_strata_host_zalloc_aligned(size_t alignment, size_t bytes);
void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes);

static bool refuse(void)
{
    locked += watched && atomic_load_explicit(&watched->counters.lock.taken, memory_order_relaxed);
    if (!countdown || countdown-- > 1)
        return false;
    countdown = 1;
    refused++;
    return true;
}

void *__wrap_strata_host_zalloc(size_t bytes)
{
    return refuse() ? NULL : __real_strata_host_zalloc(bytes);
}

void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes)
{
    return refuse() ? NULL : __real_strata_host_zalloc_aligned(alignment, bytes);
}

typedef struct needy {
    strata_tag tag;
    size_t countdown;
    strata_status allocated, freed;
    strata_block given, made; /* freed, if it is one; allocated */
    bool refused;
} needy;

static void *need(void *data)
{
    needy *self = data;
    test_make_current();
    strata_thread_self(); /* the thread's own state is another test's matter */
    strata_block warm;
    strata_resource *owner = strata_stack_layer(stack, "null", 0);
    if (owner->ops->allocate(owner, &(strata_request){.bytes = 1}, &warm) == STRATA_SUCCESS)
        owner->ops->deallocate(owner, &warm, NULL);
    refused = 0;
    countdown = self->countdown;
    if (self->given.id.generation)
        self->freed = strata_resource_deallocate(top, &self->given, NULL);
    self->made.address = 1; /* the layer itself zeroes what it refuses */
    self->allocated = top->ops->allocate(top, &(strata_request){.bytes = 10, .tag = self->tag}, &self->made);
    countdown = 0;
    self->refused = refused > 0;
    return NULL;
}

static needy need_on_a_fresh_thread(strata_tag tag, size_t countdown_from, const strata_block *given)
{
    pthread_t thread;
    needy one = {.tag = tag, .countdown = countdown_from, .given = given ? *given : (strata_block){0}};
    assert_int_equal(pthread_create(&thread, NULL, need, &one), 0);
    pthread_join(thread, NULL);
    return one;
}

static void without_host_memory_a_thread_counts_all_the_same(void **state)
{
    (void)state;
    bool any = true;
    int64_t total = 0;
    for (size_t from = 1; any; from++) {
        strata_block block = allocate(100, tag_a); /* so there is a record of the tag */
        total += 100;
        needy one = need_on_a_fresh_thread(tag_a, from, &block);
        any = one.refused;
        assert_int_equal(one.freed, STRATA_SUCCESS);
        assert_int_equal(one.allocated, STRATA_SUCCESS);
        total += 10;
        strata_statistics_counters counters = read_tag(layer, 0, tag_a);
        assert_true(counters.bytes.current == 10 && counters.bytes.total == total && counters.blocks.current == 1);
        release(&one.made);
        assert_true(read_all(layer, 0).bytes.current == 0);
    }
}

static void an_allocation_that_could_not_be_counted_is_refused_and_nothing_is_left(void **state)
{
    (void)state;
    bool any = true;
    strata_tag fresh = 5000;
    for (size_t from = 1; any; from++, fresh++) {
        needy one = need_on_a_fresh_thread(fresh, from, NULL);
        any = one.refused;
        strata_usage usage;
        check_ok(strata_resource_usage(top, &usage));
        if (one.allocated != STRATA_SUCCESS) {
            assert_true(any && one.allocated == STRATA_ERROR_OUT_OF_HOST_MEMORY);
            assert_true(one.made.address == 0 && one.made.id.generation == 0);
        }
        assert_int_equal(usage.live_blocks, one.allocated == STRATA_SUCCESS);
        assert_true(read_tag(layer, 0, fresh).blocks.total == (one.allocated == STRATA_SUCCESS));
        if (one.allocated == STRATA_SUCCESS)
            release(&one.made);
        assert_true(from > 1 || one.allocated != STRATA_SUCCESS);
    }
    assert_true(strata_statistics_failures(layer, STRATA_ERROR_OUT_OF_HOST_MEMORY) > 0);
}

static void a_layer_or_a_scope_without_host_memory_is_not_made(void **state)
{
    (void)state;
    strata_resource *made;
    for (size_t from = 1;; from++) {
        countdown = from;
        refused = 0;
        strata_status status = strata_statistics_create(&(strata_statistics_options){.stacks = true}, &made);
        countdown = 0;
        if (!refused) {
            check_ok(status);
            check_ok(strata_resource_destroy(made));
            break;
        }
        check_status(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
        assert_null(made);
    }
    strata_block a = allocate(100, tag_a), b = allocate(100, tag_b);
    for (int i = 0; i < 4; i++)
        check_ok(strata_statistics_push(layer));
    for (size_t from = 1; from <= 3; from++) { /* one more scope needs room in three records */
        countdown = from;
        strata_status status = strata_statistics_push(layer);
        countdown = 0;
        check_status(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
        assert_int_equal(value_of(stack, "statistics.scopes"), 4);
    }
    for (int i = 0; i < 4; i++)
        check_ok(strata_statistics_pop(layer, NULL));
    release(&a);
    release(&b);
}

/* The lock spins, and allocating may take long. */
static void no_memory_is_allocated_while_counters_are_locked(void **state)
{
    (void)state;
    enum { SCOPES = 20, TAGS = 40, FIRST_TAG = 7000 };
    locked = 0;
    watched = (const strata_statistics *)layer;
    for (strata_tag tag = FIRST_TAG; tag < FIRST_TAG + TAGS; tag++) {
        needy one = need_on_a_fresh_thread(tag, 0, NULL);
        assert_int_equal(one.allocated, STRATA_SUCCESS);
        release(&one.made);
        strata_block block = allocate(100, tag);
        release(&block);
    }
    for (int i = 0; i < SCOPES; i++)
        check_ok(strata_statistics_push(layer));
    for (int i = 0; i < SCOPES; i++)
        check_ok(strata_statistics_pop(layer, NULL));
    watched = NULL;
    assert_int_equal(locked, 0);
}

int main(void)
{
    test_open_driver();
    if (!make_tags())
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_host_memory_a_thread_counts_all_the_same, build, end),
        cmocka_unit_test_setup_teardown(an_allocation_that_could_not_be_counted_is_refused_and_nothing_is_left, build,
                                        end),
        cmocka_unit_test_setup_teardown(no_memory_is_allocated_while_counters_are_locked, build, end),
        cmocka_unit_test_setup_teardown(a_layer_or_a_scope_without_host_memory_is_not_made, build, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
