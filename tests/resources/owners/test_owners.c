/* An owner of memory that is written outside the library, of the public headers alone: what the functions for owners
 * refuse, and what they leave behind when they fail. Its addresses are numbers; they are not written to. */
#include "core/streams/stream_map.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/stall.h"

enum { BYTES = 4096, STEP = 1 << 20, MOST_STACKS = 1100 };

typedef struct number_owner {
    strata_resource resource;
    CUdeviceptr next;
    size_t alignment; /* that it claims its blocks to have */
    size_t live;
} number_owner;

static strata_status number_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    number_owner *self = (number_owner *)resource;
    strata_block facts = {.address = self->next += STEP,
                          .bytes = request->bytes,
                          .requested = request->bytes,
                          .alignment = self->alignment,
                          .stream = request->stream,
                          .tag = request->tag};
    strata_status status = strata_block_create(resource, &facts, out);
    self->live += status == STRATA_SUCCESS;
    return status;
}

static strata_status number_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    number_owner *self = (number_owner *)resource;
    strata_status status = strata_block_wait_uses(resource, block, stream);
    if (status == STRATA_SUCCESS)
        status = strata_block_free(resource, block);
    self->live -= status == STRATA_SUCCESS;
    return status;
}

static strata_status number_usage(strata_resource *resource, strata_usage *usage)
{
    *usage = (strata_usage){.live_blocks = ((number_owner *)resource)->live};
    return STRATA_SUCCESS;
}

static uint32_t number_capabilities(strata_resource *resource)
{
    (void)resource;
    return STRATA_CAPABILITY_USE_TRACKING;
}

static void number_destroy(strata_resource *resource)
{
    (void)resource;
}

static const strata_resource_ops number_ops = {
    .size = sizeof number_ops,
    .name = "numbers",
    .allocate = number_allocate,
    .deallocate = number_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .usage = number_usage,
    .capabilities = number_capabilities,
    .destroy = number_destroy,
};

static number_owner owner;
static strata_resource *top;
static strata_stack *stack;

static int build(void **state)
{
    (void)state;
    owner = (number_owner){.resource.ops = &number_ops, .next = STEP, .alignment = 256};
    top = &owner.resource;
    return strata_stack_build(&top, 1, 0, &stack) != STRATA_SUCCESS;
}

static int end(void **state)
{
    (void)state;
    test_fault_end();
    return strata_stack_destroy(stack) != STRATA_SUCCESS;
}

static strata_block allocate(CUstream stream)
{
    strata_block block;
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = BYTES, .stream = stream}, &block));
    return block;
}

static CUstream make_stream(void)
{
    CUstream stream;
    check_cu(strata_cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static strata_status unregister(strata_device *device, CUstream stream)
{
    strata_stream_ref left;
    return strata_stream_unregister(device, stream, &left);
}

static void blocks_are_made_and_ended_only_with_all_that_it_takes(void **state)
{
    (void)state;
    number_owner unbuilt = {.resource.ops = &number_ops};
    const strata_block facts = {.address = STEP, .bytes = BYTES, .requested = BYTES, .alignment = 256};
    strata_block block = allocate(NULL), out;
    check_status(strata_block_create(NULL, &facts, &out), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_block_create(&unbuilt.resource, &facts, &out), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_block_create(top, NULL, &out), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_block_create(top, &facts, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "out is NULL");
    check_status(strata_block_free(NULL, &block), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_block_free(&unbuilt.resource, &block), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_block_free(top, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_block_wait_uses(&unbuilt.resource, &block, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_block_record_use(&unbuilt.resource, &block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_INVALID_VALUE);
    assert_null(strata_block_layer_bytes(&unbuilt.resource, block.id));
    check_ok(strata_resource_deallocate(top, &block, NULL));
}

static void an_alignment_that_is_no_power_of_two_makes_no_block(void **state)
{
    (void)state;
    static const size_t wrong[] = {0, 3, 384};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        strata_block block = {.address = 1};
        owner.alignment = wrong[i];
        check_status(strata_resource_allocate(top, &(strata_request){.bytes = BYTES}, &block),
                     STRATA_ERROR_INVALID_VALUE);
        check_last_error(STRATA_ERROR_INVALID_VALUE, "is not a power of two");
        assert_true(block.address == 0 && block.id.generation == 0);
    }
}

static void a_block_whose_stream_cannot_be_identified_is_not_made(void **state)
{
    (void)state;
    CUstream stream = make_stream();
    strata_block block = {.address = 1};
    test_fault_begin(TEST_FAULT_STREAM_GET_ID, 1, true, CUDA_ERROR_UNKNOWN);
    strata_status status = strata_resource_allocate(top, &(strata_request){.bytes = BYTES, .stream = stream}, &block);
    assert_true(test_fault_end() > 0);
    assert_int_equal(status, STRATA_ERROR_DRIVER);
    assert_true(block.address == 0 && block.id.generation == 0);
    assert_int_equal(owner.live, 0);
    block = allocate(stream);
    check_ok(strata_resource_deallocate(top, &block, stream));
    check_cu(strata_cu.StreamDestroy(stream));
}

static void a_block_that_ended_is_stale_for_every_call(void **state)
{
    (void)state;
    strata_block block = allocate(NULL);
    check_ok(strata_resource_deallocate(top, &block, NULL));
    check_status(strata_block_free(top, &block), STRATA_ERROR_DOUBLE_FREE);
    check_status(strata_block_wait_uses(top, &block, NULL), STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_block_record_use(top, &block, NULL, STRATA_ACCESS_READ), STRATA_ERROR_USE_AFTER_FREE);
    check_status(strata_block_prepare_use(top, &block, NULL, STRATA_ACCESS_READ), STRATA_ERROR_USE_AFTER_FREE);
}

static void a_block_whose_stream_was_unregistered_is_freed_after_what_that_was_given(void **state)
{
    (void)state;
    strata_device *device;
    test_calls calls;
    CUstream stream = make_stream();
    check_ok(strata_device_get(0, &device));
    check_ok(strata_stream_register(device, stream, false));
    strata_block block = allocate(stream);
    check_status(strata_resource_deallocate(top, &block, STRATA_STREAM_GONE), STRATA_ERROR_INVALID_VALUE);
    check_ok(unregister(device, stream));
    check_cu(strata_cu.StreamDestroy(stream));
    test_calls_begin(&calls);
    check_ok(strata_resource_deallocate(top, &block, STRATA_STREAM_GONE));
    assert_int_equal(test_calls_of(&calls, "cuStreamIsCapturing"), 0); /* there is no handle to ask about */
    assert_true(test_calls_of(&calls, "cuEventQuery") + test_calls_of(&calls, "cuEventSynchronize") > 0);
    check_status(strata_block_wait_uses(top, &block, STRATA_STREAM_GONE), STRATA_ERROR_USE_AFTER_FREE);
    assert_int_equal(owner.live, 0);
}

static CUresult CUDAAPI refuse_stream(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_INVALID_HANDLE;
}

/* As on a stream that the program has destroyed: the free does nothing. */
static void a_block_whose_free_names_no_stream_can_be_freed_on_another(void **state)
{
    (void)state;
    CUstream stream = make_stream();
    strata_block block = allocate(NULL);
    test_fault_begin(TEST_FAULT_STREAM_GET_ID, 1, true, CUDA_ERROR_INVALID_HANDLE);
    strata_cu.StreamSynchronize = refuse_stream;
    const strata_status status = strata_resource_deallocate(top, &block, stream);
    assert_true(test_fault_end() > 0);
    assert_int_equal(status, STRATA_ERROR_DRIVER);
    check_ok(strata_resource_deallocate(top, &block, NULL));
    check_cu(strata_cu.StreamDestroy(stream));
}

static struct {
    PFN_cuEventSynchronize_v2000 real;
    test_stall *stall;
} waiting;

/* A wait lets the stream go on first. */
static CUresult CUDAAPI release_and_synchronize(CUevent event)
{
    test_stall_release(waiting.stall);
    return waiting.real(event);
}

/* Frees a block, for which all that `stream` was given has to be over, behind a stall there. */
static void check_waits(const strata_block *block, CUstream freed_on, CUstream stream)
{
    waiting.real = strata_cu.EventSynchronize;
    strata_cu.EventSynchronize = release_and_synchronize;
    const strata_status status = strata_resource_deallocate(top, block, freed_on);
    strata_cu.EventSynchronize = waiting.real;
    const CUresult is_over = strata_cu.StreamQuery(stream);
    test_stall_end(waiting.stall);
    check_ok(status);
    assert_int_equal(is_over, CUDA_SUCCESS);
}

/* The readers of a block, what its stream was given after all that was noted, and the same where that is gone. */
static void a_block_is_freed_when_all_that_may_use_it_is_over(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    enum { BY_READER, ON_ALLOC_STREAM, ON_GONE_STREAM, WAYS };
    strata_device *device;
    check_ok(strata_device_get(0, &device));
    for (int way = 0; way < WAYS; way++) {
        CUstream alloc_stream = make_stream(), reader = make_stream();
        check_ok(strata_stream_register(device, alloc_stream, false));
        check_ok(strata_stream_register(device, reader, false));
        strata_block block = allocate(alloc_stream);
        check_ok(strata_block_prepare_use(top, &block, reader, STRATA_ACCESS_READ));
        test_synchronize(alloc_stream);
        if (way == BY_READER)
            waiting.stall = test_stall_begin(reader);
        check_ok(strata_block_finish_use(top, &block, reader, STRATA_ACCESS_READ));
        test_synchronize(way == BY_READER ? alloc_stream : reader);
        if (way != BY_READER)
            waiting.stall = test_stall_begin(alloc_stream);
        if (way == ON_GONE_STREAM)
            check_ok(unregister(device, alloc_stream));
        check_waits(&block, way == ON_GONE_STREAM ? STRATA_STREAM_GONE : alloc_stream,
                    way == BY_READER ? reader : alloc_stream);
        if (way != ON_GONE_STREAM)
            check_ok(unregister(device, alloc_stream));
        check_ok(unregister(device, reader));
        check_cu(strata_cu.StreamDestroy(alloc_stream));
        check_cu(strata_cu.StreamDestroy(reader));
    }
}

/* An entry for each, in places that are counted: what is not made leaves its place to the next one. */
static void blocks_that_are_not_made_take_no_place(void **state)
{
    (void)state;
    enum { TIMES = 500 };
    strata_device *device;
    strata_block block, none;
    CUstream unknown = make_stream(), early = make_stream();
    check_ok(strata_device_get(0, &device));
    check_ok(strata_stream_register(device, early, true));
    block = allocate(NULL);
    const uint32_t before = block.id.slot;
    check_ok(strata_resource_deallocate(top, &block, NULL));
    for (int i = 0; i < 2 * TIMES; i++) {
        const bool identified = i & 1;
        test_fault_begin(identified ? TEST_FAULT_EVENT_RECORD : TEST_FAULT_STREAM_GET_ID, 1, true, CUDA_ERROR_UNKNOWN);
        const strata_status status = strata_resource_allocate(
            top, &(strata_request){.bytes = BYTES, .stream = identified ? early : unknown}, &none);
        assert_true(test_fault_end() > 0);
        assert_int_equal(status, STRATA_ERROR_DRIVER);
    }
    block = allocate(NULL);
    assert_true(block.id.slot < before + TIMES / 2);
    check_ok(strata_resource_deallocate(top, &block, NULL));
    check_ok(unregister(device, early));
    check_cu(strata_cu.StreamDestroy(early));
    check_cu(strata_cu.StreamDestroy(unknown));
}

static void the_end_of_a_block_is_told_to_the_layers_above(void **state)
{
    (void)state;
    number_owner below = {.resource.ops = &number_ops, .next = STEP, .alignment = 256};
    strata_resource *layers[2] = {NULL, &below.resource};
    strata_stack *both;
    strata_budget_usage usage;
    strata_block block;
    check_ok(strata_budget_create(0, NULL, &layers[0]));
    check_ok(strata_stack_build(layers, 2, 0, &both));
    strata_resource *above = strata_stack_top(both);
    check_ok(strata_resource_allocate(above, &(strata_request){.bytes = BYTES}, &block));
    check_ok(strata_budget_account_usage(strata_budget_base(above), &usage));
    assert_int_equal(usage.in_use, BYTES);
    check_ok(strata_resource_deallocate(above, &block, NULL));
    check_ok(strata_budget_account_usage(strata_budget_base(above), &usage));
    assert_int_equal(usage.in_use, 0);
    check_ok(strata_stack_destroy(both));
}

static void calls_through_a_stack_need_a_resource_and_a_block(void **state)
{
    (void)state;
    strata_block block = {.address = 1};
    strata_usage usage;
    const strata_request request = {.bytes = BYTES};
    check_status(strata_resource_allocate(NULL, &request, &block), STRATA_ERROR_INVALID_VALUE);
    assert_true(block.address == 0);
    check_status(strata_resource_allocate(top, NULL, &block), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_resource_allocate(top, &request, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_resource_allocate_ptsz(top, NULL, &block), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_resource_deallocate(NULL, &block, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_resource_deallocate(top, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_resource_prepare_use(NULL, &block, NULL, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_resource_prepare_use(top, NULL, NULL, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_resource_prepare_use(top, &block, NULL, STRATA_ACCESS_NONE), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_resource_prepare_use(top, &block, NULL, (strata_access)9), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_resource_finish_use(NULL, &block, NULL, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_resource_usage(NULL, &usage), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_resource_usage(top, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(strata_resource_capabilities(NULL), 0);
    assert_int_equal(strata_resource_capabilities(top), STRATA_CAPABILITY_USE_TRACKING);
    check_status(strata_stack_build(&top, 1, 0, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_stack_captures_ended(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_stack_captures_ended(stack, NULL));
    check_ok(strata_stack_destroy(NULL));
    check_ok(strata_resource_destroy(NULL));
    check_status(strata_resource_destroy(&(strata_resource){0}), STRATA_ERROR_INVALID_VALUE);
}

static void a_launch_needs_a_recorder_that_was_begun(void **state)
{
    (void)state;
    strata_block block = allocate(NULL);
    strata_launch launch = {0};
    check_status(strata_launch_use(NULL, &block, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_use_address(NULL, block.address, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_use_address(&launch, block.address, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_preflight(NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_commit(NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_cancel(NULL), STRATA_ERROR_INVALID_VALUE);
    launch.state = 99;
    check_status(strata_launch_end(&launch), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_resource_deallocate(top, &block, NULL));
}

static void more_stacks_than_there_can_be_are_refused_and_leave_their_layers(void **state)
{
    (void)state;
    static number_owner owners[MOST_STACKS];
    static strata_stack *stacks[MOST_STACKS];
    size_t count = 0;
    strata_status status = STRATA_SUCCESS;
    while (count < MOST_STACKS && status == STRATA_SUCCESS) {
        owners[count].resource.ops = &number_ops;
        status = strata_stack_build(&(strata_resource *){&owners[count].resource}, 1, 0, &stacks[count]);
        count += status == STRATA_SUCCESS;
    }
    check_status(status, STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "a process can have 1023 at a time");
    assert_null(stacks[count]);
    check_ok(strata_stack_destroy(stacks[0]));
    check_ok(strata_stack_build(&(strata_resource *){&owners[count].resource}, 1, 0, &stacks[0]));
    for (size_t i = 0; i < count; i++)
        check_ok(strata_stack_destroy(stacks[i]));
}

static void a_driver_and_a_device_are_described_to_somebody(void **state)
{
    (void)state;
    strata_device_info info;
    check_status(strata_driver_get_info(NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_device_get_info(0, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_device_get_info(-1, &info), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_device_get_info(4000, &info), STRATA_ERROR_INVALID_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_are_made_and_ended_only_with_all_that_it_takes, build, end),
        cmocka_unit_test_setup_teardown(an_alignment_that_is_no_power_of_two_makes_no_block, build, end),
        cmocka_unit_test_setup_teardown(a_block_whose_stream_cannot_be_identified_is_not_made, build, end),
        cmocka_unit_test_setup_teardown(a_block_that_ended_is_stale_for_every_call, build, end),
        cmocka_unit_test_setup_teardown(a_block_whose_stream_was_unregistered_is_freed_after_what_that_was_given, build,
                                        end),
        cmocka_unit_test_setup_teardown(a_block_whose_free_names_no_stream_can_be_freed_on_another, build, end),
        cmocka_unit_test_setup_teardown(a_block_is_freed_when_all_that_may_use_it_is_over, build, end),
        cmocka_unit_test_setup_teardown(blocks_that_are_not_made_take_no_place, build, end),
        cmocka_unit_test(the_end_of_a_block_is_told_to_the_layers_above),
        cmocka_unit_test_setup_teardown(calls_through_a_stack_need_a_resource_and_a_block, build, end),
        cmocka_unit_test_setup_teardown(a_launch_needs_a_recorder_that_was_begun, build, end),
        cmocka_unit_test(more_stacks_than_there_can_be_are_refused_and_leave_their_layers),
        cmocka_unit_test(a_driver_and_a_device_are_described_to_somebody),
    };
    test_open_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
