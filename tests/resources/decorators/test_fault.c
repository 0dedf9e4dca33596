/* fault: which calls fail, that they never reach the layer below, and that they leave nothing. */
#include <string.h>

#include "support/fixture.h"
#include "support/sweep.h"

/* ---- a layer below that counts what reaches it ---- */

static struct {
    size_t allocate, deallocate, prepare, reap, trim;
} reached;

static strata_status count_allocate(strata_resource *self, const strata_request *request, strata_block *out)
{
    reached.allocate++;
    return self->upstream->ops->allocate(self->upstream, request, out);
}

static strata_status count_deallocate(strata_resource *self, const strata_block *block, CUstream stream)
{
    reached.deallocate++;
    return self->upstream->ops->deallocate(self->upstream, block, stream);
}

static strata_status count_prepare(strata_resource *self, const strata_block *block, CUstream stream,
                                   strata_access access)
{
    reached.prepare++;
    return self->upstream->ops->prepare_use(self->upstream, block, stream, access);
}

static strata_status count_reap(strata_resource *self, strata_reap_mode mode, size_t *bytes)
{
    reached.reap++;
    return self->upstream->ops->reap(self->upstream, mode, bytes);
}

static strata_status count_trim(strata_resource *self, size_t keep_bytes, size_t *bytes)
{
    reached.trim++;
    return self->upstream->ops->trim(self->upstream, keep_bytes, bytes);
}

static void end_counting(strata_resource *self)
{
    self->stack = NULL;
}

static const strata_resource_ops counting_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "counting",
    .allocate = count_allocate,
    .deallocate = count_deallocate,
    .prepare_use = count_prepare,
    .reap = count_reap,
    .trim = count_trim,
    .destroy = end_counting,
};

static strata_resource counting; /* one at a time */

static strata_status make_counting(int device, const void *options, strata_resource **out)
{
    (void)device, (void)options;
    counting = (strata_resource){.ops = &counting_ops};
    memset(&reached, 0, sizeof reached);
    *out = &counting;
    return STRATA_SUCCESS;
}

static const strata_layer counting_layer = {
    .size = sizeof(strata_layer), .name = "counting", .help = "counts", .create = make_counting};

/* ---- */

static strata_stack *build(const char *options)
{
    char text[160] = "fault(";
    strata_stack *stack;
    strcat(strcat(text, options), "), counting, null");
    check_ok(strata_stack_create(text, 0, &stack));
    return stack;
}

static uint64_t value(strata_stack *stack, const char *name)
{
    uint64_t got;
    check_ok(strata_control(stack, name, &got, NULL));
    return got;
}

static void set(strata_stack *stack, const char *name, uint64_t to)
{
    check_ok(strata_control(stack, name, NULL, &to));
}

/* Allocates and frees `count` times; bit i of the result: the i-th allocation failed. */
static uint64_t allocations_that_fail(strata_stack *stack, unsigned count, size_t bytes)
{
    strata_resource *top = strata_stack_top(stack);
    uint64_t failed = 0;
    for (unsigned i = 0; i < count; i++) {
        strata_block block = {.bytes = 1};
        size_t before = reached.allocate;
        strata_status status = strata_resource_allocate(top, &(strata_request){.bytes = bytes}, &block);
        assert_true(reached.allocate == before + (status == STRATA_SUCCESS));
        if (status == STRATA_SUCCESS) {
            check_ok(strata_resource_deallocate(top, &block, NULL));
            continue;
        }
        check_last_error(status, "fails on purpose");
        assert_memory_equal(&block, &(strata_block){0}, sizeof block);
        failed |= UINT64_C(1) << i;
    }
    strata_usage usage;
    check_ok(strata_resource_usage(top, &usage));
    assert_true(usage.live_blocks == 0 && usage.bytes_outstanding == 0);
    return failed;
}

static void without_a_rule_nothing_fails(void **state)
{
    (void)state;
    strata_stack *stack = build("seed=3");
    assert_true(allocations_that_fail(stack, 20, 100) == 0);
    assert_true(value(stack, "fault.calls") == 20 && value(stack, "fault.failed") == 0);
    check_ok(strata_stack_destroy(stack));
}

static void the_nth_call_fails_and_a_new_rule_counts_anew(void **state)
{
    (void)state;
    strata_stack *stack = build("nth=3");
    assert_true(allocations_that_fail(stack, 8, 100) == 1u << 2);
    assert_true(allocations_that_fail(stack, 8, 100) == 0);
    set(stack, "fault.nth", 2);
    assert_true(allocations_that_fail(stack, 8, 100) == 1u << 1);
    set(stack, "fault.nth", 0);
    assert_true(allocations_that_fail(stack, 8, 100) == 0);
    assert_true(value(stack, "fault.calls") == 32 && value(stack, "fault.failed") == 2);
    check_ok(strata_stack_destroy(stack));
}

static void every_call_whose_number_is_a_multiple_fails(void **state)
{
    (void)state;
    strata_stack *stack = build("every=3, nth=4");
    assert_true(allocations_that_fail(stack, 9, 100) == (1u << 2 | 1u << 3 | 1u << 5 | 1u << 8));
    set(stack, "fault.every", 1);
    assert_true(allocations_that_fail(stack, 4, 100) == 0xf);
    check_ok(strata_stack_destroy(stack));
}

static void dice_fail_as_often_as_they_should_and_the_same_for_a_seed(void **state)
{
    (void)state;
    uint64_t first[2], failed = 0;
    for (size_t i = 0; i < 2; i++) {
        strata_stack *stack = build("per_million=250000, seed=7");
        first[i] = allocations_that_fail(stack, 64, 100);
        for (size_t more = 0; more < 15; more++)
            allocations_that_fail(stack, 64, 100);
        failed = value(stack, "fault.failed");
        check_ok(strata_stack_destroy(stack));
    }
    assert_true(first[0] == first[1] && first[0] != 0);
    assert_true(failed > 1024 / 4 - 60 && failed < 1024 / 4 + 60); /* four standard deviations of 1024 such dice */
    strata_stack *other = build("per_million=250000, seed=8");
    assert_true(allocations_that_fail(other, 64, 100) != first[0]);
    check_ok(strata_stack_destroy(other));
    strata_stack *always = build("per_million=1000000");
    assert_true(allocations_that_fail(always, 64, 100) == UINT64_MAX);
    uint64_t too_many = 1000001;
    check_status(strata_control(always, "fault.per_million", NULL, &too_many), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_stack_destroy(always));
}

static void only_larger_requests_are_numbered(void **state)
{
    (void)state;
    strata_stack *stack = build("larger_than=4KiB");
    assert_true(allocations_that_fail(stack, 5, 4096) == 0);
    assert_true(allocations_that_fail(stack, 5, 4097) == 0x1f);
    set(stack, "fault.nth", 2);
    assert_true(allocations_that_fail(stack, 5, 100) == 0);
    assert_true(allocations_that_fail(stack, 5, 5000) == 1u << 1);
    assert_true(value(stack, "fault.calls") == 10);
    check_ok(strata_stack_destroy(stack));
}

static void the_answer_is_the_status_that_was_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        strata_status status;
    } answers[] = {{"every=1", STRATA_ERROR_OUT_OF_MEMORY},
                   {"every=1, status=out_of_memory", STRATA_ERROR_OUT_OF_MEMORY},
                   {"every=1, status=out_of_budget", STRATA_ERROR_OUT_OF_BUDGET},
                   {"every=1, status=driver", STRATA_ERROR_DRIVER}};
    strata_tag tag;
    strata_block block;
    check_ok(strata_tag_intern("a victim", &tag));
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        strata_stack *stack = build(answers[i].text);
        check_status(
            strata_resource_allocate(strata_stack_top(stack), &(strata_request){.bytes = 3 << 20, .tag = tag}, &block),
            answers[i].status);
        check_last_error(answers[i].status,
                         "call 1 of allocate fails on purpose: 3 MiB (3145728 bytes), tag \"a victim\"");
        assert_true(strata_last_error()->requested == 3 << 20 && strata_last_error()->tag == tag);
        check_ok(strata_stack_destroy(stack));
    }
}

/* One call of each operation; what they answer. */
typedef struct answers {
    strata_status allocate, prepare, reap, trim, deallocate;
} answers;

static answers call_everything(strata_stack *stack)
{
    strata_resource *top = strata_stack_top(stack);
    strata_block block;
    size_t bytes;
    answers got;
    got.allocate = top->ops->allocate(top, &(strata_request){.bytes = 100}, &block);
    if (got.allocate != STRATA_SUCCESS) /* by a stack without the layer in its way */
        check_ok(top->upstream->ops->allocate(top->upstream, &(strata_request){.bytes = 100}, &block));
    got.prepare = top->ops->prepare_use(top, &block, NULL, STRATA_ACCESS_READ);
    if (got.prepare == STRATA_SUCCESS)
        check_ok(top->ops->finish_use(top, &block, NULL, STRATA_ACCESS_NONE));
    got.reap = top->ops->reap(top, STRATA_REAP_WAIT, &bytes);
    got.trim = top->ops->trim(top, 0, &bytes);
    got.deallocate = top->ops->deallocate(top, &block, NULL);
    if (got.deallocate != STRATA_SUCCESS) /* the block stayed, and was not pinned */
        check_ok(top->upstream->ops->deallocate(top->upstream, &block, NULL));
    return got;
}

static void only_the_chosen_operation_fails_and_never_reaches_the_layer_below(void **state)
{
    (void)state;
    static const char *const texts[] = {"operation=allocate, every=1",   "operation=prepare, every=1",
                                        "operation=reap, every=1",       "operation=trim, every=1",
                                        "operation=deallocate, every=1", "operation=all, every=1"};
    for (size_t i = 0; i < 6; i++) {
        strata_stack *stack = build(texts[i]);
        answers got = call_everything(stack);
        const strata_status status[] = {got.allocate, got.prepare, got.reap, got.trim, got.deallocate};
        const size_t calls[] = {reached.allocate - (got.allocate != STRATA_SUCCESS), reached.prepare, reached.reap,
                                reached.trim, reached.deallocate - (got.deallocate != STRATA_SUCCESS)};
        for (size_t j = 0; j < 5; j++) {
            bool fails = i == j || i == 5;
            assert_int_equal(status[j], fails ? STRATA_ERROR_OUT_OF_MEMORY : STRATA_SUCCESS);
            assert_int_equal(calls[j], fails ? 0 : 1);
        }
        assert_true(value(stack, "fault.failed") == (i == 5 ? 5 : 1));
        if (i == 2 || i == 5) /* a stack reaps before it ends */
            check_status(strata_stack_destroy(stack), STRATA_ERROR_OUT_OF_MEMORY);
        set(stack, "fault.every", 0);
        check_ok(strata_stack_destroy(stack));
    }
}

static void a_free_is_about_what_was_allocated_whatever_its_copy_says(void **state)
{
    (void)state;
    strata_stack *stack = build("operation=deallocate, larger_than=1000, every=1");
    strata_resource *top = strata_stack_top(stack);
    strata_block block, copy;
    strata_tag tag;
    check_ok(strata_tag_intern("the true one", &tag));
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = 2000, .tag = tag}, &block));
    copy = block;
    copy.tag = 0;
    copy.requested = copy.bytes = 10;
    check_status(strata_resource_deallocate(top, &copy, NULL), STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, ": 1.95 KiB (2000 bytes), tag \"the true one\"");
    assert_true(strata_last_error()->generation == block.id.generation);
    set(stack, "fault.every", 0);
    set(stack, "fault.larger_than", 0);
    check_status(strata_resource_deallocate(top, &copy, NULL), STRATA_ERROR_SIZE_MISMATCH);
    check_ok(strata_resource_deallocate(top, &block, NULL));
    check_ok(strata_stack_destroy(stack));
}

static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    strata_resource *resource;
    strata_stack *stack;
    check_status(strata_fault_create(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_fault_create(&(strata_fault_options){.operation = (strata_fault_operation)9}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_fault_create(&(strata_fault_options){.status = (strata_status)4711}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "invalid status 4711");
    check_status(strata_fault_create(&(strata_fault_options){.per_million = 1000001}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    assert_null(resource);
    check_status(strata_stack_create("fault(operation=find), null", 0, &stack), STRATA_ERROR_SYNTAX);
    check_status(strata_stack_create("fault(status=busy), null", 0, &stack), STRATA_ERROR_SYNTAX);
    check_last_error(STRATA_ERROR_SYNTAX, "expected one of out_of_memory|out_of_budget|driver");
}

/* ---- under a runtime ---- */

static void a_launch_that_fails_at_its_nth_block_notes_no_use(test_fixture *fixture)
{
    enum { BLOCKS = 4 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = test_allocate(fixture, 4096, stream);
    for (uint64_t nth = 1; nth <= BLOCKS + 1; nth++) {
        strata_launch launch;
        set(strata_runtime_stack(fixture->runtime), "fault.nth", nth);
        check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
        for (size_t i = 0; i < BLOCKS; i++)
            check_ok(strata_launch_use(&launch, &blocks[i], STRATA_ACCESS_WRITE));
        if (nth <= BLOCKS) {
            check_status(strata_launch_preflight(&launch), STRATA_ERROR_OUT_OF_MEMORY);
            check_ok(strata_launch_end(&launch));
            continue;
        }
        check_ok(strata_launch_preflight(&launch));
        check_ok(strata_launch_cancel(&launch));
        check_ok(strata_launch_end(&launch));
    }
    for (size_t i = 0; i < BLOCKS; i++) /* none is pinned */
        test_free_on(fixture, &blocks[i], stream);
    test_stream_close(fixture, stream);
}

int main(void)
{
    test_open_driver();
    if (strata_layer_register(&counting_layer) != STRATA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_rule_nothing_fails),
        cmocka_unit_test(the_nth_call_fails_and_a_new_rule_counts_anew),
        cmocka_unit_test(every_call_whose_number_is_a_multiple_fails),
        cmocka_unit_test(dice_fail_as_often_as_they_should_and_the_same_for_a_seed),
        cmocka_unit_test(only_larger_requests_are_numbered),
        cmocka_unit_test(the_answer_is_the_status_that_was_asked_for),
        cmocka_unit_test(only_the_chosen_operation_fails_and_never_reaches_the_layer_below),
        cmocka_unit_test(a_free_is_about_what_was_allocated_whatever_its_copy_says),
        cmocka_unit_test(what_is_not_there_is_refused),
    };
    static const test_case cases[] = {TEST_CASE(a_launch_that_fails_at_its_nth_block_notes_no_use)};
    static const char *const stacks[] = {"fault(operation=prepare), async"};
    int failed = test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
    return failed + test_run_on(stacks, 1, cases, 1);
}
