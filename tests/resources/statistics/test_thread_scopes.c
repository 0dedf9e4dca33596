/* Scopes of statistics that threads enter: each counts what was allocated in it, whatever other threads do meanwhile.
 */
#include "support/statistics.h"

#include <unistd.h>

static strata_statistics_scope *open_scope(strata_statistics_scope *around, const char *name)
{
    strata_statistics_scope *scope;
    check_ok(strata_statistics_scope_open(layer, around, name, &scope));
    return scope;
}

static strata_statistics_counters read_scope(const strata_statistics_scope *scope)
{
    strata_statistics_counters counters;
    check_ok(strata_statistics_scope_read(scope, &counters));
    return counters;
}

static strata_statistics_counters close_scope(strata_statistics_scope *scope)
{
    strata_statistics_counters counters;
    check_ok(strata_statistics_scope_close(scope, &counters));
    return counters;
}

/* ---- several threads ---- */

typedef struct phase {
    pthread_t thread;
    pthread_barrier_t *both;
    strata_statistics_scope *scope;
    size_t bytes;
    strata_block block;
    bool good;
} phase;

static bool run_phase(phase *self)
{
    const strata_request request = {.bytes = self->bytes, .tag = tag_a};
    bool good = strata_statistics_scope_enter(layer, self->scope, NULL) == STRATA_SUCCESS;
    for (int i = 0; i < 100; i++) {
        good &= strata_resource_allocate(top, &request, &self->block) == STRATA_SUCCESS;
        if (i < 99)
            good &= strata_resource_deallocate(top, &self->block, NULL) == STRATA_SUCCESS;
    }
    pthread_barrier_wait(self->both);
    return good && strata_statistics_scope_enter(layer, NULL, NULL) == STRATA_SUCCESS;
}

static void *run(void *data)
{
    phase *self = data;
    test_make_current();
    self->good = run_phase(self);
    return NULL;
}

static void phases_of_two_threads_do_not_get_each_others_bytes(void **state)
{
    (void)state;
    phase phases[2];
    pthread_barrier_t both;
    pthread_barrier_init(&both, NULL, 2);
    for (size_t i = 0; i < 2; i++) {
        phases[i] = (phase){.both = &both, .scope = open_scope(NULL, i ? "two" : "one"), .bytes = i ? 5000 : 300};
        assert_int_equal(pthread_create(&phases[i].thread, NULL, run, &phases[i]), 0);
    }
    for (size_t i = 0; i < 2; i++)
        pthread_join(phases[i].thread, NULL);
    pthread_barrier_destroy(&both);
    for (size_t i = 0; i < 2; i++) {
        const int64_t bytes = (int64_t)phases[i].bytes;
        assert_true(phases[i].good);
        const strata_statistics_counters counters = read_scope(phases[i].scope);
        check_counter(counters.bytes, bytes, bytes, 100 * bytes);
        check_counter(counters.blocks, 1, 1, 100);
        assert_int_equal(counters.requested, 100 * bytes);
    }
    release(&phases[0].block); /* by a thread that is in no scope */
    check_counter(read_scope(phases[0].scope).bytes, 0, 300, 30000);
    check_counter(read_scope(phases[1].scope).bytes, 5000, 5000, 500000);
    release(&phases[1].block);
    check_counter(read_all(layer, 0).bytes, 0, read_all(layer, 0).bytes.peak, 530000);
    for (size_t i = 0; i < 2; i++)
        close_scope(phases[i].scope);
}

/* A block that keeps a closed scope, and whether a free of it was refused. */
typedef struct refused_free {
    strata_block block;
    _Atomic bool refused; /* relaxed: it orders nothing */
} refused_free;

static void *free_after_refusal(void *data)
{
    refused_free *self = data;
    test_make_current();
    while (!atomic_load_explicit(&self->refused, memory_order_relaxed))
        usleep(10);
    return strata_resource_deallocate(top, &self->block, NULL) == STRATA_SUCCESS ? NULL : data;
}

/* For the thread sanitizer: the free that is refused leaves the scope alone once another one can take the block. */
static void a_refused_free_leaves_the_scope_to_the_one_that_frees_the_block(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        refused_free self = {0};
        const strata_request request = {.bytes = 300, .tag = tag_a};
        strata_statistics_scope *scope = open_scope(NULL, "closed");
        check_ok(strata_statistics_scope_enter(layer, scope, NULL));
        check_ok(strata_resource_allocate(top, &request, &self.block));
        check_ok(strata_statistics_scope_enter(layer, NULL, NULL));
        close_scope(scope);
        strata_block wrong = self.block;
        wrong.address += 256;
        assert_int_equal(pthread_create(&thread, NULL, free_after_refusal, &self), 0);
        const strata_status status = strata_resource_deallocate(top, &wrong, NULL);
        atomic_store_explicit(&self.refused, true, memory_order_relaxed);
        void *failed;
        pthread_join(thread, &failed);
        assert_int_not_equal(status, STRATA_SUCCESS);
        assert_null(failed);
    }
}

static void threads_that_share_a_scope_have_an_exact_peak(void **state)
{
    (void)state;
    enum { SHARING = 8 };
    phase phases[SHARING];
    pthread_barrier_t all;
    strata_statistics_scope *scope = open_scope(NULL, "task");
    pthread_barrier_init(&all, NULL, SHARING);
    for (size_t i = 0; i < SHARING; i++) {
        phases[i] = (phase){.both = &all, .scope = scope, .bytes = 10 * MIB};
        assert_int_equal(pthread_create(&phases[i].thread, NULL, run, &phases[i]), 0);
    }
    for (size_t i = 0; i < SHARING; i++) {
        pthread_join(phases[i].thread, NULL);
        assert_true(phases[i].good);
    }
    pthread_barrier_destroy(&all);
    check_counter(read_scope(scope).bytes, 80 * (int64_t)MIB, 80 * (int64_t)MIB, 8000 * (int64_t)MIB);
    check_counter(read_scope(scope).blocks, 8, 8, 800);
    for (size_t i = 0; i < SHARING; i++)
        release(&phases[i].block);
    close_scope(scope);
}

/* ---- one thread ---- */

static void a_task_is_in_its_scope_on_whichever_thread_it_runs(void **state)
{
    (void)state;
    strata_statistics_scope *tasks[2] = {open_scope(NULL, "one"), open_scope(NULL, "two")}, *before;
    strata_block blocks[4];
    for (size_t i = 0; i < 4; i++) {
        check_ok(strata_statistics_scope_enter(layer, tasks[i % 2], &before));
        assert_ptr_equal(before, i ? tasks[(i + 1) % 2] : NULL);
        blocks[i] = allocate(i % 2 ? 1000 : 10, tag_b);
    }
    check_ok(strata_statistics_scope_enter(layer, NULL, NULL));
    strata_block outside = allocate(77, tag_b);
    check_counter(read_scope(tasks[0]).bytes, 20, 20, 20);
    check_counter(read_scope(tasks[1]).bytes, 2000, 2000, 2000);
    check_counter(read_all(layer, 0).bytes, 2097, 2097, 2097);
    for (size_t i = 0; i < 4; i++)
        release(&blocks[i]);
    release(&outside);
    check_counter(close_scope(tasks[0]).bytes, 0, 20, 20);
    check_counter(close_scope(tasks[1]).bytes, 0, 2000, 2000);
}

static void scopes_around_one_count_its_blocks(void **state)
{
    (void)state;
    strata_statistics_scope *request = open_scope(NULL, "request"), *steps[2];
    steps[0] = open_scope(request, "step");
    steps[1] = open_scope(request, "step");
    check_ok(strata_statistics_scope_enter(layer, steps[0], NULL));
    strata_block first = allocate(100, tag_a);
    check_ok(strata_statistics_scope_enter(layer, steps[1], NULL));
    strata_block second = allocate(200, tag_a);
    release(&first);
    check_ok(strata_statistics_scope_enter(layer, request, NULL));
    strata_block third = allocate(1000, tag_a);
    check_counter(read_scope(steps[0]).bytes, 0, 100, 100);
    check_counter(read_scope(steps[1]).bytes, 200, 200, 200);
    check_counter(read_scope(request).bytes, 1200, 1200, 1300);
    check_ok(strata_statistics_scope_enter(layer, NULL, NULL));
    check_status(strata_statistics_scope_close(request, NULL), STRATA_ERROR_BUSY);
    close_scope(steps[0]);
    close_scope(steps[1]);
    close_scope(request); /* its blocks are live */
    release(&second);
    release(&third);
    assert_int_equal(read_all(layer, 0).bytes.current, 0);
}

static void a_free_that_fails_leaves_the_block_in_its_scope(void **state)
{
    (void)state;
    check_ok(strata_stack_destroy(stack));
    assert_int_equal(build_text("statistics, fault(operation=deallocate, nth=1), null"), 0);
    strata_statistics_scope *scope = open_scope(NULL, "scope");
    check_ok(strata_statistics_scope_enter(layer, scope, NULL));
    strata_block block = allocate(100, tag_a);
    check_status(strata_resource_deallocate(top, &block, NULL), STRATA_ERROR_OUT_OF_MEMORY);
    check_counter(read_scope(scope).bytes, 100, 100, 100);
    check_counter(read_tag(layer, 0, tag_a).bytes, 100, 100, 100);
    release(&block);
    check_counter(read_scope(scope).bytes, 0, 100, 100);
    check_status(strata_resource_deallocate(top, &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    check_counter(read_scope(scope).bytes, 0, 100, 100);
    check_counter(read_scope(scope).blocks, 0, 1, 1);
    close_scope(scope);
}

/* ---- a block that is freed twice at once ---- */

static struct {
    strata_resource resource;
    strata_block block; /* freed again while its free is on the way down */
    size_t then;        /* bytes of a block that takes its entry; 0: none */
    strata_block next;
    strata_status status; /* of the second free */
    bool armed;
} between;

/* As another thread's free would. */
static strata_status free_beside_another(strata_resource *resource, const strata_block *block, CUstream stream)
{
    if (between.armed) {
        between.armed = false;
        between.status = strata_resource_deallocate(top, &between.block, NULL);
        if (between.then)
            between.next = allocate(between.then, tag_b);
    }
    return resource->upstream->ops->deallocate(resource->upstream, block, stream);
}

static void end_between(strata_resource *resource)
{
    (void)resource;
}

static const strata_resource_ops between_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "between",
    .deallocate = free_beside_another,
    .destroy = end_between,
};

static void build_between(void)
{
    check_ok(strata_stack_destroy(stack));
    stack = NULL;
    memset(&between, 0, sizeof between);
    between.resource.ops = &between_ops;
    strata_resource *resources[] = {NULL, &between.resource, NULL};
    check_ok(strata_statistics_create(NULL, &resources[0]));
    check_ok(strata_null_create(0, NULL, &resources[2]));
    check_ok(strata_stack_build(resources, 3, 0, &stack));
    top = layer = resources[0];
}

/* The first free has taken the scope from the block, the second one ends it, and the first one is refused. */
static void a_block_that_two_threads_free_at_once_leaves_its_scope_once(void **state)
{
    (void)state;
    build_between();
    for (size_t then = 0; then <= 40; then += 40) { /* alone, and with a later block in its entry */
        strata_statistics_scope *scope = open_scope(NULL, "scope");
        check_ok(strata_statistics_scope_enter(layer, scope, NULL));
        between.block = allocate(100, tag_a);
        check_ok(strata_statistics_scope_enter(layer, NULL, NULL));
        between.then = then;
        between.armed = true;
        check_status(strata_resource_deallocate(top, &between.block, NULL), STRATA_ERROR_DOUBLE_FREE);
        check_ok(between.status);
        check_counter(read_scope(scope).bytes, 0, 100, 100);
        check_counter(read_scope(scope).blocks, 0, 1, 1);
        assert_int_equal(read_tag(layer, 0, tag_a).bytes.current, 0);
        assert_int_equal(read_tag(layer, 0, tag_b).bytes.current, then);
        close_scope(scope);
        assert_null(((strata_statistics *)layer)->scopes[1]); /* no block is in it any more */
        if (then)
            release(&between.next);
        assert_int_equal(read_tag(layer, 0, tag_b).bytes.current, 0);
    }
}

/* The call stack's number and the scope share a word. */
static void a_block_in_a_scope_has_its_call_stack(void **state)
{
    (void)state;
    check_ok(strata_stack_destroy(stack));
    assert_int_equal(build_text("statistics(stacks=on), null"), 0);
    strata_statistics_scope *scope = open_scope(NULL, "scope");
    strata_block outside = allocate(10, tag_a);
    check_ok(strata_statistics_scope_enter(layer, scope, NULL));
    strata_block inside = allocate(20, tag_b);
    assert_int_equal(value_of(stack, "statistics.stacks"), 1);
    const uint64_t off = 0;
    check_ok(strata_control(stack, "statistics.stacks", NULL, &off));
    strata_block without = allocate(30, tag_b);
    const strata_statistics_facts *facts[3] = {
        strata_block_layer_bytes(layer, outside.id),
        strata_block_layer_bytes(layer, inside.id),
        strata_block_layer_bytes(layer, without.id),
    };
    assert_true(strata_statistics_origin_stack(facts[0]->origin) && strata_statistics_origin_stack(facts[1]->origin));
    assert_int_equal(strata_statistics_origin_stack(facts[2]->origin), 0);
    assert_int_equal(strata_statistics_origin_tag(facts[1]->origin), tag_b);
    assert_int_equal(strata_statistics_origin_scope(facts[0]->origin), 0);
    assert_true(strata_statistics_origin_scope(facts[1]->origin) == strata_statistics_origin_scope(facts[2]->origin));
    release(&outside);
    release(&inside);
    release(&without);
    check_counter(close_scope(scope).bytes, 0, 50, 50);
}

static void a_slot_is_used_again_once_its_scope_is_closed_and_its_blocks_are_free(void **state)
{
    (void)state;
    enum { MOST = STRATA_STATISTICS_SCOPE_SLOTS - 1 };
    static strata_statistics_scope *scopes[MOST];
    strata_statistics_scope *refused;
    for (size_t i = 0; i < MOST; i++)
        scopes[i] = open_scope(NULL, NULL);
    check_status(strata_statistics_scope_open(layer, NULL, NULL, &refused), STRATA_ERROR_BUSY);
    assert_null(refused);
    check_ok(strata_statistics_scope_enter(layer, scopes[MOST - 1], NULL));
    strata_block block = allocate(10, tag_a);
    check_ok(strata_statistics_scope_enter(layer, NULL, NULL));
    close_scope(scopes[MOST - 1]);
    check_status(strata_statistics_scope_open(layer, NULL, NULL, &refused), STRATA_ERROR_BUSY);
    release(&block);
    scopes[MOST - 1] = open_scope(NULL, "again");
    for (size_t i = 0; i < MOST; i++)
        close_scope(scopes[i]);
}

static void what_is_no_scope_of_the_layer_is_refused(void **state)
{
    (void)state;
    strata_stack *other;
    strata_statistics_scope *scope = open_scope(NULL, NULL), *refused;
    strata_statistics_counters counters;
    check_ok(strata_stack_create("statistics, null", 0, &other));
    strata_resource *foreign = strata_stack_top(other);
    check_status(strata_statistics_scope_enter(foreign, scope, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_scope_open(foreign, scope, NULL, &refused), STRATA_ERROR_INVALID_VALUE);
    assert_null(refused);
    check_status(strata_statistics_scope_open(strata_stack_layer(other, "null", 0), NULL, NULL, &refused),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_scope_open(layer, NULL, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_scope_open(
                     layer, NULL, "0123456789012345678901234567890123456789012345678901234567890123", &refused),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_scope_read(NULL, &counters), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_statistics_scope_read(scope, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_statistics_scope_close(NULL, NULL));
    check_ok(strata_stack_destroy(other));
    close_scope(scope);
}

int main(void)
{
    test_open_driver();
    if (!make_tags())
        return 1;
#define HERE(test) cmocka_unit_test_setup_teardown(test, build, end)
    const struct CMUnitTest tests[] = {
        HERE(phases_of_two_threads_do_not_get_each_others_bytes),
        HERE(a_refused_free_leaves_the_scope_to_the_one_that_frees_the_block),
        HERE(threads_that_share_a_scope_have_an_exact_peak),
        HERE(a_task_is_in_its_scope_on_whichever_thread_it_runs),
        HERE(scopes_around_one_count_its_blocks),
        HERE(a_free_that_fails_leaves_the_block_in_its_scope),
        HERE(a_block_that_two_threads_free_at_once_leaves_its_scope_once),
        HERE(a_block_in_a_scope_has_its_call_stack),
        HERE(a_slot_is_used_again_once_its_scope_is_closed_and_its_blocks_are_free),
        HERE(what_is_no_scope_of_the_layer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
