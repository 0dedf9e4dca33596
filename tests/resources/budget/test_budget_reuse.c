/* budget, while retired memory is reused: wrong answers of the layer below, calls back into the budget, and frees and
 * limits that come in between. */
#include "support/budget.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/faults.h"
#include "support/sweep.h"

/* Between budget and owner: forwards all calls, with the changes that a test asks for. */
typedef struct layer {
    strata_resource resource;
    size_t asked; /* calls of `reusable` */
    strata_status (*reusable)(struct layer *self, const strata_request *request, size_t *bytes, strata_block_id *of);
    void (*before_allocate)(struct layer *self); /* once */
    strata_block_id of;                          /* its answer, if a test sets it: a retired block, */
    strata_block_id ended;                       /* or a completed one */
    strata_budget_account *account;              /* the base */
    test_fixture *fixture;
    test_stall *stall;
    CUstream stream;
    strata_status answered; /* result of the call that it made itself */
    pthread_t thread;
    _Atomic bool entered, go_on;
    long patience; /* milliseconds after which the other thread goes on; 0: when it is signaled */
} layer;

static strata_status reusable_below(layer *self, const strata_request *request, size_t *bytes, strata_block_id *of)
{
    strata_resource *below = self->resource.upstream;
    return below->ops->reusable(below, request, bytes, of);
}

static strata_status layer_reusable(strata_resource *resource, const strata_request *request, size_t *bytes,
                                    strata_block_id *of)
{
    layer *self = (layer *)resource;
    self->asked++;
    return self->reusable ? self->reusable(self, request, bytes, of) : reusable_below(self, request, bytes, of);
}

static strata_status layer_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    layer *self = (layer *)resource;
    void (*before)(layer *) = self->before_allocate;
    self->before_allocate = NULL;
    if (before)
        before(self);
    return resource->upstream->ops->allocate(resource->upstream, request, out);
}

static void layer_destroy(strata_resource *resource)
{
    (void)resource;
}

static const strata_resource_ops layer_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "layer",
    .allocate = layer_allocate,
    .reusable = layer_reusable,
    .destroy = layer_destroy,
};

static layer between;

/* Gives the fixture a runtime with a budget of 1.5 GiB above that layer and `async`, and resets the layer. */
static void use_layer(test_fixture *fixture, const strata_budget_options *more)
{
    strata_budget_options options = *more;
    strata_resource *resources[] = {NULL, &between.resource, NULL};
    strata_runtime_config config = {.device = 0, .stream_capacity = 8};
    check_ok(strata_runtime_destroy(fixture->runtime));
    fixture->runtime = NULL;
    between = (layer){.resource.ops = &layer_ops, .fixture = fixture};
    options.limit.bytes = 3 * GIB / 2;
    options.wait = STRATA_BUDGET_WAIT_NONE;
    check_ok(strata_budget_create(0, &options, &resources[0]));
    check_ok(strata_async_create(0, NULL, &resources[2]));
    check_ok(strata_stack_build(resources, 3, 0, &config.stack));
    check_ok(strata_runtime_create(&config, &fixture->runtime));
    between.account = strata_budget_base(resources[0]);
    between.stream = test_stream(fixture, TEST_STREAM_POOL);
}

/* Retires a gigabyte on the layer's stream, behind a stall. */
static void retire_a_block(test_fixture *fixture)
{
    strata_block block, small;
    check_ok(try_allocate(fixture, KIB, between.stream, &small));
    check_ok(try_allocate(fixture, GIB, between.stream, &block));
    test_free_on(fixture, &small, between.stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    between.ended = small.id;
    between.of = block.id;
    between.stall = test_stall_begin(between.stream);
    test_free_on(fixture, &block, between.stream);
}

static void end_stall(void)
{
    if (between.stall)
        test_stall_end(between.stall);
    between.stall = NULL;
}

static void check_nothing_in_use(test_fixture *fixture)
{
    end_stall();
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(usage_of(between.account).in_use, 0);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
}

/* ---- wrong answers ---- */

static strata_status name_the_block(layer *self, const strata_request *request, size_t *bytes, strata_block_id *of)
{
    *bytes = request->bytes;
    *of = self->of;
    return STRATA_SUCCESS;
}

/* The owner takes other memory: for a moment there are two gigabytes. */
static void an_owner_that_takes_other_memory_than_it_said_gets_it_back(test_fixture *fixture)
{
    strata_block refused = {.bytes = 1};
    use_layer(fixture, &(strata_budget_options){0});
    CUstream other = test_stream(fixture, TEST_STREAM_POOL);
    retire_a_block(fixture);
    between.reusable = name_the_block;
    strata_status status = try_allocate(fixture, GIB, other, &refused);
    if (status == STRATA_SUCCESS && test_is_swept()) { /* the driver refused to free it: see the next test */
        test_free_on(fixture, &refused, other);
        check_nothing_in_use(fixture);
        return;
    }
    check_status(status, STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "request of 1 GiB (1073741824 bytes)");
    assert_memory_equal(&refused, &(strata_block){0}, sizeof refused);
    assert_int_equal(between.asked, 2);
    assert_int_equal(usage_of(between.account).reused, 0);
    assert_int_equal(usage_of(between.account).refused, 1);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    check_nothing_in_use(fixture);
    check_ok(try_allocate(fixture, 3 * GIB / 2, other, &refused)); /* the whole limit is available */
    test_free_on(fixture, &refused, other);
    check_nothing_in_use(fixture);
}

/* Otherwise the block could not be freed. */
static void memory_that_cannot_be_given_back_is_had_beyond_the_limit(test_fixture *fixture)
{
    strata_block block = {0};
    use_layer(fixture, &(strata_budget_options){0});
    CUstream other = test_stream(fixture, TEST_STREAM_POOL);
    retire_a_block(fixture);
    between.reusable = name_the_block;
    test_fault_begin(TEST_FAULT_FREE, 1, false, CUDA_ERROR_UNKNOWN);
    strata_status status = try_allocate(fixture, GIB, other, &block);
    assert_int_equal(test_fault_end(), 1);
    check_ok(status);
    assert_int_equal(usage_of(between.account).in_use, 2 * GIB);
    assert_int_equal(usage_of(between.account).remaining, 0);
    test_free_on(fixture, &block, other);
    check_nothing_in_use(fixture);
}

static strata_status name_a_block_that_ended(layer *self, const strata_request *request, size_t *bytes,
                                             strata_block_id *of)
{
    *bytes = request->bytes;
    *of = self->ended;
    return STRATA_SUCCESS;
}

static strata_status name_no_block(layer *self, const strata_request *request, size_t *bytes, strata_block_id *of)
{
    (void)self;
    *bytes = request->bytes;
    *of = (strata_block_id){0};
    return STRATA_SUCCESS;
}

static strata_status fail_to_answer(layer *self, const strata_request *request, size_t *bytes, strata_block_id *of)
{
    (void)self, (void)request, (void)bytes, (void)of;
    return strata_fail(STRATA_ERROR_UNSUPPORTED, "not to be known");
}

/* The first answer is right, the second one is not. */
static strata_status know_of_nothing_later(layer *self, const strata_request *request, size_t *bytes,
                                           strata_block_id *of)
{
    strata_status status = reusable_below(self, request, bytes, of);
    *bytes = self->asked == 1 ? *bytes : 0;
    return status;
}

static strata_status name_another_block_later(layer *self, const strata_request *request, size_t *bytes,
                                              strata_block_id *of)
{
    strata_status status = reusable_below(self, request, bytes, of);
    of->generation += self->asked == 1 ? 0 : 1;
    return status;
}

static strata_status fail_to_answer_later(layer *self, const strata_request *request, size_t *bytes,
                                          strata_block_id *of)
{
    return self->asked == 1 ? reusable_below(self, request, bytes, of) : fail_to_answer(self, request, bytes, of);
}

static void what_is_not_surely_reused_is_counted(test_fixture *fixture)
{
    static const struct {
        strata_status (*reusable)(layer *, const strata_request *, size_t *, strata_block_id *);
        size_t asked;
    } answers[] = {{name_a_block_that_ended, 1},  {name_no_block, 1},
                   {fail_to_answer, 1},           {know_of_nothing_later, 2},
                   {name_another_block_later, 2}, {fail_to_answer_later, 2}};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        strata_block refused;
        use_layer(fixture, &(strata_budget_options){0});
        retire_a_block(fixture);
        between.reusable = answers[i].reusable;
        check_status(try_allocate(fixture, GIB, between.stream, &refused), STRATA_ERROR_OUT_OF_BUDGET);
        check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "in use 1 GiB (1073741824 bytes)");
        assert_int_equal(between.asked, answers[i].asked);
        assert_int_equal(usage_of(between.account).in_use, GIB);
        between.reusable = NULL;
        check_ok(try_allocate(fixture, GIB, between.stream, &refused)); /* the account is unlocked */
        assert_int_equal(usage_of(between.account).reused, 1);
        test_free_on(fixture, &refused, between.stream);
        check_nothing_in_use(fixture);
        test_stream_close(fixture, between.stream);
    }
}

static void a_driver_that_refuses_memory_for_reuse_is_believed(test_fixture *fixture)
{
    strata_block refused = {.bytes = 1}, block;
    use_layer(fixture, &(strata_budget_options){0});
    retire_a_block(fixture);
    test_fault_begin(TEST_FAULT_ALLOCATE, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    strata_status status = try_allocate(fixture, GIB, between.stream, &refused);
    assert_true(test_fault_end() > 0);
    check_status(status, STRATA_ERROR_OUT_OF_MEMORY);
    assert_memory_equal(&refused, &(strata_block){0}, sizeof refused);
    assert_int_equal(usage_of(between.account).reused, 0);
    assert_int_equal(usage_of(between.account).in_use, GIB);
    check_ok(try_allocate(fixture, GIB, between.stream, &block));
    assert_int_equal(usage_of(between.account).reused, 1);
    test_free_on(fixture, &block, between.stream);
    check_nothing_in_use(fixture);
}

/* ---- what comes in between ---- */

/* The named block is gone when the budget looks at it. */
static strata_status end_the_block_after_naming_it(layer *self, const strata_request *request, size_t *bytes,
                                                   strata_block_id *of)
{
    strata_resource *below = self->resource.upstream;
    size_t reaped;
    if (self->asked == 1)
        return reusable_below(self, request, bytes, of);
    end_stall();
    test_synchronize(self->stream);
    self->answered = below->ops->reap(below, STRATA_REAP_WAIT, &reaped);
    return name_the_block(self, request, bytes, of);
}

static void a_free_may_finish_while_its_memory_is_about_to_be_reused(test_fixture *fixture)
{
    strata_block block;
    use_layer(fixture, &(strata_budget_options){0});
    retire_a_block(fixture);
    between.reusable = end_the_block_after_naming_it;
    check_ok(try_allocate(fixture, GIB, between.stream, &block)); /* it fits now */
    check_ok(between.answered);
    assert_int_equal(between.asked, 2);
    assert_int_equal(usage_of(between.account).in_use, GIB);
    assert_int_equal(usage_of(between.account).reused, 0);
    test_free_on(fixture, &block, between.stream);
    check_nothing_in_use(fixture);
}

static void lower_the_limit(layer *self)
{
    self->answered = strata_budget_set_limit(self->account, MIB);
}

static void a_limit_that_falls_while_memory_is_reused_holds(test_fixture *fixture)
{
    strata_block refused = {.bytes = 1};
    use_layer(fixture, &(strata_budget_options){0});
    retire_a_block(fixture);
    between.before_allocate = lower_the_limit;
    strata_status status = try_allocate(fixture, GIB, between.stream, &refused);
    if (status == STRATA_SUCCESS && test_is_swept()) { /* the driver refused to free it, as above */
        test_free_on(fixture, &refused, between.stream);
        check_nothing_in_use(fixture);
        return;
    }
    check_status(status, STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(between.answered);
    assert_null(between.before_allocate);
    assert_memory_equal(&refused, &(strata_block){0}, sizeof refused);
    assert_int_equal(usage_of(between.account).limit, MIB);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    check_nothing_in_use(fixture);
    check_ok(try_allocate(fixture, MIB, between.stream, &refused));
    test_free_on(fixture, &refused, between.stream);
    check_nothing_in_use(fixture);
}

/* ---- a request of another thread ---- */

static void hold_back(layer *self)
{
    atomic_store(&self->entered, true);
    for (long waited = 0; !atomic_load(&self->go_on) && (!self->patience || waited < self->patience); waited++)
        nap(1);
}

static void *allocate_a_little(void *data)
{
    layer *self = data;
    strata_block block;
    test_make_current();
    self->answered = strata_runtime_allocate(self->fixture->runtime, KIB, NULL, &block);
    if (self->answered == STRATA_SUCCESS)
        self->answered = strata_runtime_deallocate_on(self->fixture->runtime, &block, NULL);
    return NULL;
}

/* After the budget asked for reusable memory and before it takes it, another thread begins a request. */
static strata_status let_another_begin(layer *self, const strata_request *request, size_t *bytes, strata_block_id *of)
{
    if (self->asked == 1) {
        self->before_allocate = hold_back;
        assert_int_equal(pthread_create(&self->thread, NULL, allocate_a_little, self), 0);
        while (!atomic_load(&self->entered))
            nap(1);
    }
    return reusable_below(self, request, bytes, of);
}

/* Its charge in flight could take the memory. */
static void a_request_that_is_not_decided_is_waited_for_before_memory_is_reused(test_fixture *fixture)
{
    strata_block block;
    use_layer(fixture, &(strata_budget_options){0});
    retire_a_block(fixture);
    between.reusable = let_another_begin;
    between.patience = 20;
    strata_status status = try_allocate(fixture, GIB, between.stream, &block);
    atomic_store(&between.go_on, true);
    pthread_join(between.thread, NULL);
    check_ok(between.answered);
    check_ok(status);
    assert_int_equal(usage_of(between.account).reused, 1);
    test_free_on(fixture, &block, between.stream);
    check_nothing_in_use(fixture);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The request is charged again and again. */
static void it_is_waited_for_two_seconds_at_most(test_fixture *fixture)
{
    if (test_is_swept()) /* takes too long */
        return;
    strata_block refused = {.bytes = 1}, block;
    use_layer(fixture, &(strata_budget_options){0});
    retire_a_block(fixture);
    between.reusable = let_another_begin;
    double before = seconds_now();
    strata_status status = try_allocate(fixture, GIB, between.stream, &refused);
    double taken = seconds_now() - before;
    atomic_store(&between.go_on, true);
    pthread_join(between.thread, NULL);
    check_ok(between.answered);
    check_status(status, STRATA_ERROR_OUT_OF_BUDGET);
    assert_memory_equal(&refused, &(strata_block){0}, sizeof refused);
    assert_true(taken > 1.9);
    if (taken > 3.5)
        fail_msg("a refusal took %g seconds", taken);
    check_ok(try_allocate(fixture, GIB, between.stream, &block)); /* now it is reused */
    assert_int_equal(usage_of(between.account).reused, 1);
    test_free_on(fixture, &block, between.stream);
    check_nothing_in_use(fixture);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(an_owner_that_takes_other_memory_than_it_said_gets_it_back),
        TEST_CASE(memory_that_cannot_be_given_back_is_had_beyond_the_limit),
        TEST_CASE(what_is_not_surely_reused_is_counted),
        TEST_CASE(a_driver_that_refuses_memory_for_reuse_is_believed),
        TEST_CASE(a_free_may_finish_while_its_memory_is_about_to_be_reused),
        TEST_CASE(a_limit_that_falls_while_memory_is_reused_holds),
        TEST_CASE(a_request_that_is_not_decided_is_waited_for_before_memory_is_reused),
        TEST_CASE(it_is_waited_for_two_seconds_at_most),
    };
    static const char *const stacks[] = {"async"};
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
