/* failure_callback: when it asks, how often, what is tried again, and what its user hears of it. */
#include <string.h>

#include "support/fixture.h"
#include "support/sweep.h"

enum { MIB = 1 << 20 };

/* ---- a program's callback ---- */

typedef struct program {
    strata_stack *stack;
    strata_stack *other; /* it allocates a MiB from this one, if there is one */
    strata_block spare;  /* freed when it is asked, if there is one */
    bool again;
    bool allocates; /* tries to allocate through the stack itself */
    bool fails;     /* makes a call that fails */
    unsigned asked;
    strata_request request; /* of the last time */
    strata_error error;
    strata_status inner;
    strata_block of_other;
} program;

static bool answer(const strata_request *request, const strata_error *error, void *data)
{
    program *self = data;
    strata_block block;
    self->asked++;
    self->request = *request;
    self->error = *error;
    strata_resource *top = strata_stack_top(self->stack);
    if (self->spare.address)
        check_ok(strata_resource_deallocate(top, &self->spare, request->stream));
    self->spare = (strata_block){0};
    if (self->allocates)
        self->inner = strata_resource_allocate(top, request, &block);
    if (self->other)
        self->inner =
            strata_resource_allocate(strata_stack_top(self->other), &(strata_request){.bytes = MIB}, &self->of_other);
    if (self->fails)
        strata_stack_create(NULL, 0, NULL);
    return self->again;
}

/* The layer with that callback above another one, if there is one, and an owner. */
static void build(program *self, uint32_t retries, uint64_t statuses, strata_resource *middle, strata_resource *owner)
{
    const strata_failure_callback_options options = {
        .retries = retries, .callback = answer, .data = self, .statuses = statuses};
    strata_resource *layers[3];
    size_t count = 0;
    check_ok(strata_failure_callback_create(&options, &layers[count++]));
    if (middle)
        layers[count++] = middle;
    layers[count++] = owner;
    check_ok(strata_stack_build(layers, count, 0, &self->stack));
}

static strata_resource *failing(strata_fault_options options)
{
    strata_resource *resource;
    check_ok(strata_fault_create(&options, &resource));
    return resource;
}

static strata_resource *nothing(void)
{
    strata_resource *resource;
    check_ok(strata_null_create(0, NULL, &resource));
    return resource;
}

static uint64_t value(strata_stack *stack, const char *name)
{
    uint64_t got;
    check_ok(strata_control(stack, name, &got, NULL));
    return got;
}

static unsigned heard; /* by the log callback */
static char words[sizeof((strata_error *)NULL)->message];

static void hear(const strata_error *error, void *data)
{
    (void)data;
    heard++;
    memcpy(words, error->message, sizeof words);
}

static void a_request_is_tried_again_once_and_nothing_is_heard_of_its_failure(void **state)
{
    (void)state;
    program self = {.again = true};
    build(&self, 0, 0, failing((strata_fault_options){.nth = 1}), nothing());
    strata_block block;
    strata_tag tag;
    check_ok(strata_tag_intern("retried", &tag));
    strata_stack_create(NULL, 0, NULL); /* a last error */
    strata_error before = *strata_last_error();
    heard = 0;
    strata_set_log_callback(hear, NULL);
    strata_status status =
        strata_resource_allocate(strata_stack_top(self.stack), &(strata_request){.bytes = 77, .tag = tag}, &block);
    strata_set_log_callback(NULL, NULL);
    check_ok(status);
    assert_int_equal(heard, 0);
    assert_memory_equal(strata_last_error(), &before, sizeof before);
    assert_int_equal(self.asked, 1);
    assert_true(self.request.bytes == 77 && self.request.tag == tag);
    assert_int_equal(self.error.status, STRATA_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(self.error.message, "on purpose"));
    assert_true(value(self.stack, "failure_callback.caught") == 1);
    assert_true(value(self.stack, "failure_callback.retried") == 1);
    assert_true(value(self.stack, "failure_callback.recovered") == 1);
    check_ok(strata_resource_deallocate(strata_stack_top(self.stack), &block, NULL));
    check_ok(strata_stack_destroy(self.stack));
}

static void tries_are_bounded_and_the_last_failure_is_said_once(void **state)
{
    (void)state;
    program self = {.again = true};
    build(&self, 3, 0, failing((strata_fault_options){.every = 1}), nothing());
    strata_block block = {.bytes = 1};
    heard = 0;
    strata_set_log_callback(hear, NULL);
    strata_status status =
        strata_resource_allocate(strata_stack_top(self.stack), &(strata_request){.bytes = 77}, &block);
    strata_set_log_callback(NULL, NULL);
    check_status(status, STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "call 4 of allocate fails on purpose");
    assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    assert_int_equal(self.asked, 3);
    assert_int_equal(heard, 1);
    assert_non_null(strstr(words, "call 4 of allocate"));
    assert_true(value(self.stack, "fault.failed") == 4);
    assert_true(value(self.stack, "failure_callback.recovered") == 0);
    uint64_t none = 0;
    check_ok(strata_control(self.stack, "failure_callback.retries", NULL, &none));
    check_status(strata_resource_allocate(strata_stack_top(self.stack), &(strata_request){.bytes = 77}, &block),
                 STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(self.asked, 3);
    none = UINT64_MAX;
    check_status(strata_control(self.stack, "failure_callback.retries", NULL, &none), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_stack_destroy(self.stack));
}

static void count_invalid(const strata_error *error, void *count)
{
    *(unsigned *)count += error->status == STRATA_ERROR_INVALID_VALUE;
}

/* A layer above that tries, and keeps what goes wrong to itself, has nothing to do with the callback's own calls. */
static void what_goes_wrong_in_a_callback_is_heard_under_a_layer_that_tries(void **state)
{
    (void)state;
    program self = {.fails = true};
    const strata_failure_callback_options options = {.retries = 1, .callback = answer, .data = &self};
    strata_resource *layers[4];
    strata_block block;
    check_ok(strata_fixed_create(&(strata_fixed_options){.bytes = 4096, .chunk = MIB}, &layers[0]));
    check_ok(strata_failure_callback_create(&options, &layers[1]));
    layers[2] = failing((strata_fault_options){.every = 1});
    layers[3] = nothing();
    check_ok(strata_stack_build(layers, 4, 0, &self.stack));
    unsigned invalid = 0;
    strata_set_log_callback(count_invalid, &invalid);
    const strata_status status =
        strata_resource_allocate(strata_stack_top(self.stack), &(strata_request){.bytes = 4096}, &block);
    strata_set_log_callback(NULL, NULL);
    assert_int_not_equal(status, STRATA_SUCCESS);
    assert_true(self.asked > 0);
    assert_int_equal(invalid, self.asked);
    check_ok(strata_stack_destroy(self.stack));
}

static void a_callback_that_declines_leaves_the_failure_as_it_was(void **state)
{
    (void)state;
    program self = {.again = false, .fails = true};
    build(&self, 5, 0, failing((strata_fault_options){.every = 1, .status = STRATA_ERROR_OUT_OF_BUDGET}), nothing());
    strata_block block;
    check_status(strata_resource_allocate(strata_stack_top(self.stack), &(strata_request){.bytes = 77}, &block),
                 STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "call 1 of allocate fails on purpose");
    assert_true(strata_last_error()->requested == 77);
    assert_int_equal(self.asked, 1);
    check_ok(strata_stack_destroy(self.stack));
}

static void failures_of_another_kind_are_not_caught(void **state)
{
    (void)state;
    strata_block block;
    program self = {.again = true};
    build(&self, 0, 0, failing((strata_fault_options){.every = 1, .status = STRATA_ERROR_DRIVER}), nothing());
    check_status(strata_resource_allocate(strata_stack_top(self.stack), &(strata_request){.bytes = 77}, &block),
                 STRATA_ERROR_DRIVER);
    assert_int_equal(self.asked, 0);
    check_ok(strata_stack_destroy(self.stack));
    self = (program){.again = true};
    build(&self, 0, STRATA_FAILURE_BIT(STRATA_ERROR_DRIVER), failing((strata_fault_options){.every = 1}), nothing());
    check_status(strata_resource_allocate(strata_stack_top(self.stack), &(strata_request){.bytes = 77}, &block),
                 STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(self.asked, 0);
    check_ok(strata_stack_destroy(self.stack));
}

static void what_a_callback_allocates_itself_is_tried_once(void **state)
{
    (void)state;
    strata_block block;
    program self = {.again = true, .allocates = true};
    build(&self, 2, 0, failing((strata_fault_options){.every = 1}), nothing());
    check_status(strata_resource_allocate(strata_stack_top(self.stack), &(strata_request){.bytes = 77}, &block),
                 STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(self.asked, 2);
    assert_int_equal(self.inner, STRATA_ERROR_OUT_OF_MEMORY);
    assert_true(value(self.stack, "fault.failed") == 3 + 2);
    check_ok(strata_stack_destroy(self.stack));
}

static void the_request_reaches_the_layer_below_unchanged(void **state)
{
    (void)state;
    program self = {.again = true};
    build(&self, 0, 0, failing((strata_fault_options){.nth = 1}), nothing());
    strata_block block;
    check_ok(strata_resource_allocate(strata_stack_top(self.stack), &(strata_request){.bytes = 77, .alignment = 512},
                                      &block));
    assert_true(block.alignment == 512 && block.requested == 77);
    check_ok(strata_resource_deallocate(strata_stack_top(self.stack), &block, NULL));
    check_ok(strata_stack_destroy(self.stack));
}

/* A layer below that notes how room is made. */
static char calls[64];
static bool reap_fails;

static strata_status note_reap(strata_resource *self, strata_reap_mode mode, size_t *bytes)
{
    (void)self;
    strcat(calls, mode == STRATA_REAP_WAIT ? "wait " : "reap ");
    *bytes = 0;
    return reap_fails ? strata_fail(STRATA_ERROR_DRIVER, "nothing can be reaped now") : STRATA_SUCCESS;
}

static strata_status note_trim(strata_resource *self, size_t keep_bytes, size_t *bytes)
{
    (void)self;
    strcat(calls, keep_bytes ? "keep " : "trim ");
    *bytes = 0;
    return STRATA_SUCCESS;
}

static strata_status note_allocate(strata_resource *self, const strata_request *request, strata_block *out)
{
    strcat(calls, "allocate ");
    return self->upstream->ops->allocate(self->upstream, request, out);
}

static void end_noting(strata_resource *self)
{
    (void)self;
}

static const strata_resource_ops noting_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "noting",
    .allocate = note_allocate,
    .reap = note_reap,
    .trim = note_trim,
    .destroy = end_noting,
};

static void room_is_made_by_waiting_for_frees_and_then_trimming(void **state)
{
    (void)state;
    static strata_resource noting;
    noting = (strata_resource){.ops = &noting_ops};
    strata_resource *layers[4] = {NULL, &noting, failing((strata_fault_options){.nth = 1}), nothing()};
    strata_stack *stack;
    strata_block block;
    check_ok(strata_failure_callback_create(NULL, &layers[0]));
    check_ok(strata_stack_build(layers, 4, 0, &stack));
    calls[0] = '\0';
    reap_fails = true; /* which hinders nothing */
    check_ok(strata_resource_allocate(strata_stack_top(stack), &(strata_request){.bytes = 77}, &block));
    assert_string_equal(calls, "allocate wait trim allocate ");
    check_ok(strata_resource_deallocate(strata_stack_top(stack), &block, NULL));
    reap_fails = false; /* a stack reaps before it ends */
    check_ok(strata_stack_destroy(stack));
}

static void what_cannot_be_caught_is_refused(void **state)
{
    (void)state;
    strata_resource *resource;
    strata_failure_callback_options options = {.statuses = STRATA_FAILURE_BIT(STRATA_SUCCESS)};
    check_status(strata_failure_callback_create(&options, &resource), STRATA_ERROR_INVALID_VALUE);
    options.statuses = UINT64_C(1) << 63;
    check_status(strata_failure_callback_create(&options, &resource), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "invalid bits in statuses");
    assert_null(resource);
    check_status(strata_failure_callback_create(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    strata_stack *stack;
    check_status(strata_stack_create("failure_callback(retries=5000000000), null", 0, &stack),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_stack_create("failure_callback(callback=f), null", 0, &stack), STRATA_ERROR_SYNTAX);
    check_ok(strata_stack_create("failure_callback(retries=2, catch=out_of_budget), fault(every=1), null", 0, &stack));
    strata_block block;
    check_status(strata_resource_allocate(strata_stack_top(stack), &(strata_request){.bytes = 1}, &block),
                 STRATA_ERROR_OUT_OF_MEMORY);
    assert_true(value(stack, "failure_callback.caught") == 0 && value(stack, "failure_callback.retries") == 2);
    check_ok(strata_stack_destroy(stack));
}

/* ---- with real memory ---- */

static void a_callback_frees_a_block_of_the_stack_and_the_request_fits(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_resource *owner;
    program self = {.again = true};
    check_ok(strata_async_create(0, &(strata_async_options){.max_size = 64 * MIB}, &owner));
    build(&self, 0, 0, NULL, owner);
    strata_resource *top = strata_stack_top(self.stack);
    strata_request request = {.bytes = 40 * MIB, .stream = stream};
    strata_block block;
    check_ok(strata_resource_allocate(top, &request, &self.spare));
    check_ok(strata_resource_allocate(top, &request, &block));
    assert_int_equal(self.asked, 1);
    assert_true(self.error.requested == 40 * MIB);
    test_fill(block.address, 0x11, 40 * MIB, stream);
    check_ok(strata_resource_deallocate(top, &block, stream));
    check_ok(strata_stack_destroy(self.stack));
    test_stream_close(fixture, stream);
}

#define STUBBORN "async(max_size=64MiB, follow_event_dependencies=off, opportunistic=off, internal_dependencies=off)"

/* A pool that hands nothing from one stream to another keeps what was freed until it is trimmed. */
static strata_status allocate_after_a_free_elsewhere(test_fixture *fixture, const char *text, uint64_t *recovered)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    strata_runtime *runtime;
    strata_block block;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    check_ok(strata_runtime_allocate(runtime, 40 * MIB, a, &block));
    check_ok(strata_runtime_deallocate_on(runtime, &block, a));
    strata_status status = strata_runtime_allocate(runtime, 40 * MIB, b, &block);
    if (status == STRATA_SUCCESS)
        check_ok(strata_runtime_deallocate_on(runtime, &block, b));
    if (recovered)
        *recovered = value(strata_runtime_stack(runtime), "failure_callback.recovered");
    check_ok(strata_runtime_destroy(runtime));
    test_stream_close(fixture, a);
    test_stream_close(fixture, b);
    return status;
}

static void without_a_callback_it_waits_for_frees_trims_and_tries_again(test_fixture *fixture)
{
    uint64_t recovered;
    strata_status status = allocate_after_a_free_elsewhere(fixture, STUBBORN, NULL);
    if (status == STRATA_SUCCESS && !test_on_simulated_driver()) {
        print_message("skipped: this driver makes such room by itself\n");
        skip();
    }
    check_status(status, STRATA_ERROR_OUT_OF_MEMORY);
    check_ok(allocate_after_a_free_elsewhere(fixture, "failure_callback, " STUBBORN, &recovered));
    assert_true(recovered == 1);
}

static strata_resource *full_budget(void)
{
    strata_resource *resource;
    check_ok(strata_budget_create(0, &(strata_budget_options){.limit.bytes = MIB}, &resource));
    return resource;
}

static strata_resource *null_owner(void)
{
    strata_resource *resource;
    check_ok(strata_null_create(0, NULL, &resource));
    return resource;
}

/* The first one's callback allocates from the second stack, which is full; the second one's makes room. */
static void a_callback_that_allocates_from_another_stack_calls_that_ones_callback(void **state)
{
    (void)state;
    program second = {.again = true}, first = {.again = true};
    build(&second, 1, 0, full_budget(), null_owner());
    build(&first, 1, 0, full_budget(), null_owner());
    first.other = second.stack;
    strata_block block;
    const strata_request request = {.bytes = MIB};
    check_ok(strata_resource_allocate(strata_stack_top(first.stack), &request, &first.spare));
    check_ok(strata_resource_allocate(strata_stack_top(second.stack), &request, &second.spare));
    check_ok(strata_resource_allocate(strata_stack_top(first.stack), &request, &block));
    check_status(first.inner, STRATA_SUCCESS);
    assert_int_equal(first.asked, 1);
    assert_int_equal(second.asked, 1);
    check_ok(strata_resource_deallocate(strata_stack_top(first.stack), &block, NULL));
    check_ok(strata_resource_deallocate(strata_stack_top(second.stack), &first.of_other, NULL));
    check_ok(strata_stack_destroy(first.stack));
    check_ok(strata_stack_destroy(second.stack));
}

/* Each allocates from the other's full stack: the third call would be of the first layer, which is in its callback. */
static void callbacks_that_allocate_from_each_others_stacks_come_to_an_end(void **state)
{
    (void)state;
    program first = {.again = false}, second = {.again = false};
    build(&first, 1, 0, full_budget(), null_owner());
    build(&second, 1, 0, full_budget(), null_owner());
    first.other = second.stack;
    second.other = first.stack;
    strata_block of_first, of_second, block;
    const strata_request request = {.bytes = MIB};
    check_ok(strata_resource_allocate(strata_stack_top(first.stack), &request, &of_first));
    check_ok(strata_resource_allocate(strata_stack_top(second.stack), &request, &of_second));
    check_status(strata_resource_allocate(strata_stack_top(first.stack), &request, &block), STRATA_ERROR_OUT_OF_BUDGET);
    assert_int_equal(first.asked, 1);
    assert_int_equal(second.asked, 1);
    check_status(second.inner, STRATA_ERROR_OUT_OF_BUDGET);
    check_status(strata_resource_allocate(strata_stack_top(first.stack), &request, &block), STRATA_ERROR_OUT_OF_BUDGET);
    assert_int_equal(first.asked, 2); /* and it is called again afterwards */
    check_ok(strata_resource_deallocate(strata_stack_top(first.stack), &of_first, NULL));
    check_ok(strata_resource_deallocate(strata_stack_top(second.stack), &of_second, NULL));
    check_ok(strata_stack_destroy(first.stack));
    check_ok(strata_stack_destroy(second.stack));
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_tried_again_once_and_nothing_is_heard_of_its_failure),
        cmocka_unit_test(tries_are_bounded_and_the_last_failure_is_said_once),
        cmocka_unit_test(what_goes_wrong_in_a_callback_is_heard_under_a_layer_that_tries),
        cmocka_unit_test(a_callback_that_declines_leaves_the_failure_as_it_was),
        cmocka_unit_test(failures_of_another_kind_are_not_caught),
        cmocka_unit_test(what_a_callback_allocates_itself_is_tried_once),
        cmocka_unit_test(a_callback_that_allocates_from_another_stack_calls_that_ones_callback),
        cmocka_unit_test(callbacks_that_allocate_from_each_others_stacks_come_to_an_end),
        cmocka_unit_test(the_request_reaches_the_layer_below_unchanged),
        cmocka_unit_test(room_is_made_by_waiting_for_frees_and_then_trimming),
        cmocka_unit_test(what_cannot_be_caught_is_refused),
    };
    static const test_case cases[] = {
        TEST_CASE(a_callback_frees_a_block_of_the_stack_and_the_request_fits),
        TEST_CASE(without_a_callback_it_waits_for_frees_trims_and_tries_again),
    };
    static const char *const stacks[] = {"async"}; /* the fixture's own runtime, for its streams */
    int failed = test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
    return failed + test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
