/* callback: that the program's functions are called with what was asked for, what their answers become, and when the
 * second one is called. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/fixture.h"
#include "support/sweep.h"

enum { ROOM = 64 };

typedef struct call {
    bool free;
    CUdeviceptr address;
    size_t bytes, alignment;
    CUstream stream;
} call;

/* What the program's allocator is told to do, and what it saw. */
typedef struct program {
    strata_status refuse_allocate, refuse_free; /* SUCCESS: it does it */
    CUdeviceptr instead;                        /* answered in place of memory, if not 0 */
    bool none;                                  /* answers address 0 */
    bool fails;                                 /* makes a call that fails */
    bool ends;                                  /* lets the thread be ended by pthread_cancel */
    strata_status last;                         /* error that such a call left */
    size_t count;
    call calls[ROOM];
    CUcontext context; /* current in the last call */
} program;

static void note(program *self, call made)
{
    if (self->fails) {
        strata_stack_create(NULL, 0, NULL);
        self->last = strata_last_error()->status;
    }
    if (self->ends)
        pthread_testcancel();
    assert_true(self->count < ROOM);
    self->calls[self->count++] = made;
    test_cu()->CtxGetCurrent(&self->context);
}

static strata_status allocate(CUdeviceptr *address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    program *self = data;
    if (self->refuse_allocate != STRATA_SUCCESS)
        return self->refuse_allocate;
    if (self->instead || self->none)
        *address = self->instead;
    else if (test_cu()->MemAlloc(address, bytes) != CUDA_SUCCESS)
        return STRATA_ERROR_OUT_OF_MEMORY;
    note(self, (call){false, *address, bytes, alignment, stream});
    return STRATA_SUCCESS;
}

static strata_status deallocate(CUdeviceptr address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    program *self = data;
    if (self->refuse_free != STRATA_SUCCESS)
        return self->refuse_free;
    note(self, (call){true, address, bytes, alignment, stream});
    if (!self->instead && test_cu()->MemFree(address) != CUDA_SUCCESS)
        return STRATA_ERROR_DRIVER;
    return STRATA_SUCCESS;
}

static strata_runtime *runtime_of(program *self, strata_callback_options options)
{
    strata_resource *resource;
    strata_stack *stack;
    strata_runtime *runtime;
    options.allocate = allocate;
    options.deallocate = deallocate;
    options.data = self;
    check_ok(strata_callback_create(0, &options, &resource));
    check_ok(strata_stack_build(&resource, 1, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &runtime));
    return runtime;
}

static uint32_t capabilities(strata_runtime *runtime)
{
    return strata_resource_capabilities(strata_stack_top(strata_runtime_stack(runtime)));
}

static void check_call(const call *made, bool is_free, const strata_block *block, CUstream stream)
{
    assert_int_equal(made->free, is_free);
    assert_true(made->address == block->address && made->bytes == block->bytes && made->alignment == block->alignment);
    assert_ptr_equal(made->stream, stream);
}

static void both_functions_are_called_with_what_belongs_to_the_block(test_fixture *fixture)
{
    program self = {0};
    strata_runtime *runtime = runtime_of(&self, (strata_callback_options){0});
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_UNKNOWN),
             other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block, wrong, found;
    check_ok(strata_runtime_allocate(runtime, 1000, alloc_stream, &block));
    assert_int_equal(self.count, 1);
    check_call(&self.calls[0], false, &block, alloc_stream);
    assert_true(block.bytes == 1000 && block.alignment == 256);
    assert_non_null(self.context);
    check_ok(strata_runtime_find(runtime, block.address + 999, &found));
    assert_memory_equal(&found, &block, sizeof found);
    wrong = block;
    wrong.alignment = 1; /* which a free does not look at */
    check_ok(strata_runtime_deallocate_on(runtime, &wrong, other));
    assert_int_equal(self.count, 2);
    check_call(&self.calls[1], true, &block, other);
    check_status(strata_runtime_deallocate_on(runtime, &block, other), STRATA_ERROR_DOUBLE_FREE);
    assert_int_equal(self.count, 2);
    check_ok(strata_runtime_destroy(runtime));
    test_stream_close(fixture, alloc_stream);
    test_stream_close(fixture, other);
}

static void larger_alignments_are_asked_for_and_checked(test_fixture *fixture)
{
    (void)fixture;
    program self = {.instead = 0x40000};
    strata_runtime *runtime = runtime_of(&self, (strata_callback_options){0});
    strata_block block = {.bytes = 1};
    strata_request request = {.bytes = 100, .alignment = 0x10000};
    check_ok(strata_runtime_allocate_request(runtime, &request, &block));
    assert_true(self.calls[0].alignment == 0x10000 && block.alignment == 0x10000 && block.address == 0x40000);
    check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
    self.instead = 0x48000;
    check_status(strata_runtime_allocate_request(runtime, &request, &block), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "not aligned");
    assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    assert_int_equal(self.count, 4); /* it was given back */
    assert_true(self.calls[3].free && self.calls[3].address == 0x48000 && self.calls[3].bytes == 100);
    check_ok(strata_runtime_destroy(runtime));
}

static void count_invalid(const strata_error *error, void *count)
{
    *(unsigned *)count += error->status == STRATA_ERROR_INVALID_VALUE;
}

/* A layer above tries, and keeps what goes wrong to itself; and so does this one, where it gives back what is of no
 * use. That has nothing to do with the calls that the two functions make. */
static void what_goes_wrong_in_the_functions_is_heard_while_others_keep_it_to_themselves(test_fixture *fixture)
{
    (void)fixture;
    program self = {.instead = 0x48000, .fails = true};
    const strata_callback_options options = {.allocate = allocate, .deallocate = deallocate, .data = &self};
    strata_resource *layers[2];
    strata_stack *stack;
    strata_block block;
    unsigned heard = 0;
    check_ok(strata_failure_callback_create(NULL, &layers[0]));
    check_ok(strata_callback_create(0, &options, &layers[1]));
    check_ok(strata_stack_build(layers, 2, 0, &stack));
    check_status(strata_stack_create("nothing", 0, &(strata_stack *){0}), STRATA_ERROR_SYNTAX);
    const strata_error before = *strata_last_error();
    strata_set_log_callback(count_invalid, &heard);
    const strata_status status =
        strata_resource_allocate(strata_stack_top(stack), &(strata_request){.bytes = 100}, &block);
    const unsigned heard_of_one = heard;
    const strata_status last_of_one = self.last;
    const strata_error after = *strata_last_error();
    self.last = STRATA_SUCCESS;
    const strata_request request = {.bytes = 100, .alignment = 0x10000};
    strata_block none;
    const strata_status refused = strata_resource_allocate(strata_stack_top(stack), &request, &none);
    strata_set_log_callback(NULL, NULL);
    check_ok(status);
    assert_int_equal(heard_of_one, 1);
    assert_int_equal(last_of_one, STRATA_ERROR_INVALID_VALUE);
    assert_memory_equal(&after, &before, sizeof before);
    check_status(refused, STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "not aligned");
    assert_int_equal(self.count, 3);
    assert_true(self.calls[2].free);
    assert_int_equal(self.last, STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(heard, 1 + 2 + 1); /* that it is not aligned, in the end */
    check_ok(strata_resource_deallocate(strata_stack_top(stack), &block, NULL));
    check_ok(strata_stack_destroy(stack));
}

static void an_address_where_a_block_lives_is_refused_and_that_block_stays(test_fixture *fixture)
{
    (void)fixture;
    program self = {.instead = 0x40000};
    strata_runtime *runtime = runtime_of(&self, (strata_callback_options){0});
    strata_block block, second, found;
    check_ok(strata_runtime_allocate(runtime, 4096, NULL, &block));
    check_status(strata_runtime_allocate(runtime, 100, NULL, &second), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "it is in a live block");
    check_ok(strata_runtime_find(runtime, 0x40000 + 4095, &found));
    assert_memory_equal(&found, &block, sizeof found);
    assert_int_equal(self.count, 2); /* nothing was given back: it is the first block's */
    check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
    check_ok(strata_runtime_allocate(runtime, 100, NULL, &second));
    check_ok(strata_runtime_deallocate_on(runtime, &second, NULL));
    check_ok(strata_runtime_destroy(runtime));
}

static void what_the_functions_refuse_is_what_the_call_answers(test_fixture *fixture)
{
    (void)fixture;
    program self = {.refuse_allocate = STRATA_ERROR_OUT_OF_BUDGET};
    strata_runtime *runtime = runtime_of(&self, (strata_callback_options){0});
    strata_block block = {.bytes = 1};
    check_status(strata_runtime_allocate(runtime, 10240, NULL, &block), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "allocate function returned");
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "for 10 KiB (10240 bytes)");
    assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    self.refuse_allocate = (strata_status)4711;
    check_status(strata_runtime_allocate(runtime, 1000, NULL, &block), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "4711, which is not a status");
    self.refuse_allocate = STRATA_SUCCESS;
    self.none = true;
    check_status(strata_runtime_allocate(runtime, 1000, NULL, &block), STRATA_ERROR_OUT_OF_MEMORY);
    self.none = false;
    check_ok(strata_runtime_allocate(runtime, 1000, NULL, &block));
    self.refuse_free = STRATA_ERROR_BUSY;
    check_status(strata_runtime_deallocate_on(runtime, &block, NULL), STRATA_ERROR_BUSY);
    assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_LIVE);
    strata_usage usage;
    check_ok(strata_runtime_usage(runtime, &usage));
    assert_true(usage.live_bytes == 1000 && usage.live_blocks == 1);
    self.refuse_free = STRATA_SUCCESS;
    check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
    check_ok(strata_runtime_destroy(runtime));
}

static void a_free_waits_on_the_host_unless_the_function_is_stream_ordered(test_fixture *fixture)
{
    program self = {0};
    strata_runtime *runtime = runtime_of(&self, (strata_callback_options){0});
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_UNKNOWN), user = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block;
    test_calls calls;
    check_ok(strata_runtime_allocate(runtime, 1000, alloc_stream, &block));
    check_ok(strata_runtime_prepare_block_use(runtime, &block, user, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x11, 1000, user);
    check_ok(strata_runtime_finish_block_use(runtime, &block, user, STRATA_ACCESS_WRITE));
    test_calls_begin(&calls);
    check_ok(strata_runtime_deallocate_on(runtime, &block, alloc_stream));
    if (!test_is_swept())
        assert_int_equal(test_calls_of(&calls, "cuEventSynchronize") + test_calls_of(&calls, "cuStreamSynchronize"), 2);
    check_ok(strata_runtime_destroy(runtime));
    test_stream_close(fixture, alloc_stream);
    test_stream_close(fixture, user);
}

/* Memory of the driver's own pool: its free may be called while the block is used, if its stream comes after that. */
static strata_status pool_allocate(CUdeviceptr *address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    (void)alignment;
    return test_cu()->MemAllocFromPoolAsync(address, bytes, *(CUmemoryPool *)data, stream) == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : STRATA_ERROR_OUT_OF_MEMORY;
}

static strata_status pool_free(CUdeviceptr address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    (void)bytes, (void)alignment, (void)data;
    return test_cu()->MemFreeAsync(address, stream) == CUDA_SUCCESS ? STRATA_SUCCESS : STRATA_ERROR_DRIVER;
}

static void a_stream_ordered_free_comes_after_uses_on_other_streams_and_does_not_wait(test_fixture *fixture)
{
    CUmemoryPool pool;
    check_cu(test_cu()->DeviceGetDefaultMemPool(&pool, 0));
    strata_callback_options options = {
        .allocate = pool_allocate, .deallocate = pool_free, .data = &pool, .stream_ordered = true};
    strata_resource *resource;
    strata_stack *stack;
    strata_runtime *runtime;
    check_ok(strata_callback_create(0, &options, &resource));
    check_ok(strata_stack_build(&resource, 1, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &runtime));
    assert_true(capabilities(runtime) & STRATA_CAPABILITY_STREAM_ORDERED);
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_UNKNOWN), user = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block, next;
    check_ok(strata_runtime_allocate(runtime, 4096, alloc_stream, &block));
    test_stall *stall = test_stall_begin(user);
    check_ok(strata_runtime_prepare_block_use(runtime, &block, user, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x11, 4096, user);
    check_ok(strata_runtime_finish_block_use(runtime, &block, user, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_deallocate_on(runtime, &block, alloc_stream)); /* the stall goes on: no wait for it here */
    check_ok(strata_runtime_allocate(runtime, 4096, alloc_stream, &next));
    test_fill(next.address, 0x22, 4096, alloc_stream);
    const unsigned char *seen = test_copy_back(fixture, next.address, 4096, alloc_stream);
    test_stall_release(stall);
    test_stall_end(stall);
    test_synchronize(alloc_stream);
    check_bytes(seen, 0x22, 4096);
    check_ok(strata_runtime_deallocate_on(runtime, &next, alloc_stream));
    check_ok(strata_runtime_destroy(runtime));
    test_stream_close(fixture, alloc_stream);
    test_stream_close(fixture, user);
}

static void it_says_what_its_memory_is(test_fixture *fixture)
{
    (void)fixture;
    program self = {0};
    strata_runtime *device = runtime_of(&self, (strata_callback_options){0});
    strata_runtime *host = runtime_of(&self, (strata_callback_options){.host_memory = true});
    assert_int_equal(capabilities(device),
                     STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND | STRATA_CAPABILITY_DEVICE_MEMORY);
    assert_int_equal(capabilities(host), STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND);
    check_ok(strata_runtime_destroy(device));
    check_ok(strata_runtime_destroy(host));
}

static void hear_the_end(void *data)
{
    program *self = data;
    note(self, (call){.bytes = SIZE_MAX});
}

static void the_end_of_the_layer_is_heard_once_after_all_else(test_fixture *fixture)
{
    (void)fixture;
    program self = {.fails = true};
    strata_runtime *runtime = runtime_of(&self, (strata_callback_options){.destroyed = hear_the_end});
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, 1000, NULL, &block));
    check_status(strata_runtime_destroy(runtime), STRATA_ERROR_BUSY);
    check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
    assert_int_equal(self.count, 2);
    const CUcontext context = self.context;
    self.context = NULL;
    test_cu()->CtxSetCurrent(NULL);
    check_ok(strata_runtime_destroy(runtime));
    test_cu()->CtxSetCurrent(context);
    assert_int_equal(self.count, 3);
    assert_true(self.calls[2].bytes == SIZE_MAX && self.context == context);
    strata_resource *resource; /* of no stack */
    const strata_callback_options options = {
        .allocate = allocate, .deallocate = deallocate, .data = &self, .destroyed = hear_the_end};
    check_ok(strata_callback_create(0, &options, &resource));
    check_ok(strata_resource_destroy(resource));
    assert_int_equal(self.count, 4);
    check_status(strata_callback_create(1000, &options, &resource), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(self.count, 4);
}

static void a_program_that_knows_no_such_end_is_served_as_before(test_fixture *fixture)
{
    (void)fixture;
    program self = {0};
    strata_resource *resource;
    const strata_callback_options options = {.size = offsetof(strata_callback_options, destroyed),
                                             .allocate = allocate,
                                             .deallocate = deallocate,
                                             .data = &self,
                                             .destroyed = hear_the_end};
    check_ok(strata_callback_create(0, &options, &resource));
    check_ok(strata_resource_destroy(resource));
    assert_int_equal(self.count, 0);
}

static void it_is_refused_without_both_functions(test_fixture *fixture)
{
    (void)fixture;
    strata_resource *resource;
    check_status(strata_callback_create(0, NULL, &resource), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "callback: allocate is NULL");
    check_status(strata_callback_create(0, &(strata_callback_options){.allocate = allocate}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "callback: deallocate is NULL");
    assert_null(resource);
    check_status(strata_callback_create(0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_callback_create(
                     1000, &(strata_callback_options){.allocate = allocate, .deallocate = deallocate}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    strata_stack *stack;
    check_status(strata_stack_create("callback", 0, &stack), STRATA_ERROR_SYNTAX);
}

typedef struct ended_thread {
    strata_runtime *runtime;
    strata_status allocated, freed; /* -1: the call has not returned */
} ended_thread;

static __attribute__((noinline)) void allocate_and_free(ended_thread *self)
{
    strata_block block;
    self->allocated = strata_runtime_allocate(self->runtime, 4096, NULL, &block);
    if (self->allocated == STRATA_SUCCESS)
        self->freed = strata_runtime_deallocate(self->runtime, &block);
}

/* Without a variable whose address is taken: of a frame that is left by the thread's end an address sanitizer keeps its
 * marks, which the thread's own end then runs into. */
static void *use_while_cancelled(void *data)
{
    pthread_cancel(pthread_self());
    allocate_and_free(data);
    pthread_testcancel();
    return NULL;
}

static void a_thread_is_not_ended_in_a_function_of_the_program(test_fixture *fixture)
{
    (void)fixture;
    program self = {.ends = true};
    ended_thread ended = {runtime_of(&self, (strata_callback_options){0}), (strata_status)-1, (strata_status)-1};
    pthread_t thread;
    void *end;
    assert_int_equal(pthread_create(&thread, NULL, use_while_cancelled, &ended), 0);
    pthread_join(thread, &end);
    assert_ptr_equal(end, PTHREAD_CANCELED);
    check_ok(ended.allocated);
    check_ok(ended.freed);
    assert_int_equal(self.count, 2);
    check_ok(strata_runtime_destroy(ended.runtime));
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(both_functions_are_called_with_what_belongs_to_the_block),
        TEST_CASE(a_thread_is_not_ended_in_a_function_of_the_program),
        TEST_CASE(larger_alignments_are_asked_for_and_checked),
        TEST_CASE(what_goes_wrong_in_the_functions_is_heard_while_others_keep_it_to_themselves),
        TEST_CASE(an_address_where_a_block_lives_is_refused_and_that_block_stays),
        TEST_CASE(what_the_functions_refuse_is_what_the_call_answers),
        TEST_CASE(a_free_waits_on_the_host_unless_the_function_is_stream_ordered),
        TEST_CASE(a_stream_ordered_free_comes_after_uses_on_other_streams_and_does_not_wait),
        TEST_CASE(it_says_what_its_memory_is),
        TEST_CASE(the_end_of_the_layer_is_heard_once_after_all_else),
        TEST_CASE(a_program_that_knows_no_such_end_is_served_as_before),
        TEST_CASE(it_is_refused_without_both_functions),
    };
    static const char *const stacks[] = {"async"}; /* the fixture's own runtime, for its streams */
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
