/* Stacks built by hand from layers that are written here, with the public headers alone: what is forwarded, and
 * what is kept for each block. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/guard.h>

#include "support/child.h"
#include "support/fixture.h"
#include "support/sweep.h"

/* ---- an owner that notes what it is asked; its memory is addresses alone ---- */

enum { FIRST_ADDRESS = 0x10000, ROOM = 64 };

typedef struct noting_owner {
    strata_resource resource;
    CUdeviceptr next;
    char calls[256]; /* names of the operations, separated by blanks */
    strata_request request;
    strata_block block;
    CUstream stream;
    strata_access access;
    strata_reap_mode mode;
    size_t keep;
    CUdeviceptr address;
    strata_status answer; /* of everything */
} noting_owner;

static char destroyed[1024];

static void note(noting_owner *self, const char *call)
{
    strcat(self->calls, call);
    strcat(self->calls, " ");
}

static strata_status noting_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    noting_owner *self = (noting_owner *)resource;
    note(self, "allocate");
    self->request = *request;
    *out = (strata_block){0};
    if (self->answer != STRATA_SUCCESS)
        return strata_fail(self->answer, "as the test wishes");
    strata_block facts = {
        .address = self->next,
        .bytes = request->bytes,
        .requested = request->bytes,
        .alignment = 256,
        .tag = request->tag,
        .stream = request->stream,
    };
    self->next += 1 << 20;
    return strata_block_create(resource, &facts, out);
}

static strata_status noting_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    noting_owner *self = (noting_owner *)resource;
    note(self, "deallocate");
    self->block = *block;
    self->stream = stream;
    return self->answer == STRATA_SUCCESS ? strata_block_free(resource, block) : self->answer;
}

static strata_status note_use(strata_resource *resource, const char *call, const strata_block *block, CUstream stream,
                              strata_access access)
{
    noting_owner *self = (noting_owner *)resource;
    note(self, call);
    self->block = *block;
    self->stream = stream;
    self->access = access;
    return self->answer;
}

static strata_status noting_prepare(strata_resource *resource, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    return note_use(resource, "prepare", block, stream, access);
}

static strata_status noting_finish(strata_resource *resource, const strata_block *block, CUstream stream,
                                   strata_access access)
{
    return note_use(resource, "finish", block, stream, access);
}

static strata_status noting_record(strata_resource *resource, const strata_block *block, CUstream stream,
                                   strata_access access)
{
    return note_use(resource, "record", block, stream, access);
}

static strata_status noting_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    noting_owner *self = (noting_owner *)resource;
    note(self, "reap");
    self->mode = mode;
    *bytes = 11;
    return self->answer;
}

static strata_status noting_trim(strata_resource *resource, size_t keep_bytes, size_t *bytes)
{
    noting_owner *self = (noting_owner *)resource;
    note(self, "trim");
    self->keep = keep_bytes;
    *bytes = 22;
    return self->answer;
}

static strata_status noting_usage(strata_resource *resource, strata_usage *usage)
{
    noting_owner *self = (noting_owner *)resource;
    note(self, "usage");
    *usage = (strata_usage){.reserved_peak = 33};
    return self->answer;
}

static strata_status noting_charge(strata_resource *resource, const strata_request *request, size_t *bytes)
{
    noting_owner *self = (noting_owner *)resource;
    note(self, "charge");
    self->request = *request;
    *bytes = 44;
    return self->answer;
}

static strata_status noting_budget(strata_resource *resource, strata_budget_snapshot *snapshot)
{
    noting_owner *self = (noting_owner *)resource;
    note(self, "budget");
    *snapshot = (strata_budget_snapshot){.limit = 55};
    return self->answer;
}

static uint32_t noting_capabilities(strata_resource *resource)
{
    note((noting_owner *)resource, "capabilities");
    return 0x66;
}

static strata_status noting_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    noting_owner *self = (noting_owner *)resource;
    note(self, "find");
    self->address = address;
    *out = (strata_block){.requested = 77};
    return self->answer;
}

static strata_status noting_synchronize(strata_resource *resource, CUstream stream)
{
    noting_owner *self = (noting_owner *)resource;
    note(self, "synchronize");
    self->stream = stream;
    return self->answer;
}

static void note_destroy(strata_resource *resource)
{
    strcat(destroyed, resource->ops->name);
    strcat(destroyed, " ");
}

static const strata_resource_ops noting_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "noting",
    .allocate = noting_allocate,
    .deallocate = noting_deallocate,
    .prepare_use = noting_prepare,
    .finish_use = noting_finish,
    .record_use = noting_record,
    .reap = noting_reap,
    .trim = noting_trim,
    .usage = noting_usage,
    .charge = noting_charge,
    .budget = noting_budget,
    .capabilities = noting_capabilities,
    .find = noting_find,
    .synchronize = noting_synchronize,
    .destroy = note_destroy,
};

static uint32_t no_capabilities(strata_resource *resource)
{
    (void)resource;
    return 0;
}

/* An owner with what is mandatory alone. */
static const strata_resource_ops least_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "least",
    .allocate = noting_allocate,
    .deallocate = noting_deallocate,
    .usage = noting_usage,
    .capabilities = no_capabilities,
    .destroy = note_destroy,
};

static const strata_resource_ops empty_ops = {
    .size = sizeof(strata_resource_ops), .name = "empty", .destroy = note_destroy};

static noting_owner owner;
static strata_resource decorators[ROOM + 2];

static int setup(void **state)
{
    (void)state;
    owner = (noting_owner){.resource.ops = &noting_ops, .next = FIRST_ADDRESS};
    memset(decorators, 0, sizeof decorators);
    for (size_t i = 0; i < ROOM + 2; i++)
        decorators[i].ops = &empty_ops;
    destroyed[0] = '\0';
    return 0;
}

static strata_stack *build(size_t decorator_count)
{
    strata_resource *resources[ROOM + 2];
    strata_stack *stack;
    for (size_t i = 0; i < decorator_count; i++)
        resources[i] = &decorators[i];
    resources[decorator_count] = &owner.resource;
    check_ok(strata_stack_build(resources, decorator_count + 1, 0, &stack));
    return stack;
}

/* ---- forwarding ---- */

static void check_all_operations(strata_resource *top, strata_status answer)
{
    static const strata_block block = {.address = 512, .bytes = 9, .id = {.table = 1, .slot = 2, .generation = 3}};
    CUstream stream = (CUstream)(uintptr_t)0x4000;
    size_t bytes = 0;
    strata_usage usage;
    strata_budget_snapshot budget;
    strata_block found;
    strata_request request = {.bytes = 123, .alignment = 64, .tag = 5};
    owner.answer = answer;
    owner.calls[0] = '\0';

    check_status(top->ops->deallocate(top, &block, stream),
                 answer == STRATA_SUCCESS ? STRATA_ERROR_FOREIGN_POINTER : answer);
    assert_memory_equal(&owner.block, &block, sizeof block);
    assert_ptr_equal(owner.stream, stream);
    check_status(top->ops->prepare_use(top, &block, stream, STRATA_ACCESS_READ), answer);
    assert_int_equal(owner.access, STRATA_ACCESS_READ);
    check_status(top->ops->finish_use(top, &block, stream, STRATA_ACCESS_WRITE), answer);
    assert_int_equal(owner.access, STRATA_ACCESS_WRITE);
    check_status(top->ops->record_use(top, &block, stream, STRATA_ACCESS_READ_WRITE), answer);
    assert_int_equal(owner.access, STRATA_ACCESS_READ_WRITE);
    check_status(top->ops->reap(top, STRATA_REAP_WAIT, &bytes), answer);
    assert_true(bytes == 11 && owner.mode == STRATA_REAP_WAIT);
    check_status(top->ops->trim(top, 4242, &bytes), answer);
    assert_true(bytes == 22 && owner.keep == 4242);
    check_status(top->ops->usage(top, &usage), answer);
    assert_true(usage.reserved_peak == 33);
    check_status(top->ops->charge(top, &request, &bytes), answer);
    assert_true(bytes == 44);
    assert_memory_equal(&owner.request, &request, sizeof request);
    check_status(top->ops->budget(top, &budget), answer);
    assert_true(budget.limit == 55);
    assert_int_equal(top->ops->capabilities(top), 0x66);
    check_status(top->ops->find(top, 0xabc, &found), answer);
    assert_true(found.requested == 77 && owner.address == 0xabc);
    owner.stream = NULL;
    check_status(top->ops->synchronize(top, stream), answer);
    assert_ptr_equal(owner.stream, stream);
    assert_string_equal(
        owner.calls, "deallocate prepare finish record reap trim usage charge budget capabilities find synchronize ");
}

static void every_operation_left_out_reaches_the_owner_unchanged(void **state)
{
    (void)state;
    strata_stack *stack = build(3);
    check_all_operations(strata_stack_top(stack), STRATA_SUCCESS);
    check_all_operations(strata_stack_top(stack), STRATA_ERROR_IO);
    owner.answer = STRATA_SUCCESS;
    check_ok(strata_stack_destroy(stack));
}

static void an_allocation_left_out_reaches_the_owner_and_its_block_comes_back(void **state)
{
    (void)state;
    strata_stack *stack = build(2);
    strata_resource *top = strata_stack_top(stack);
    strata_request request = {.bytes = 1000, .alignment = 128};
    strata_block block;
    check_ok(strata_resource_allocate(top, &request, &block));
    assert_memory_equal(&owner.request, &request, sizeof request);
    assert_true(block.address == FIRST_ADDRESS && block.bytes == 1000 && block.device == 0);
    check_ok(strata_resource_deallocate(top, &block, NULL));
    assert_memory_equal(&owner.block, &block, sizeof block);
    owner.answer = STRATA_ERROR_OUT_OF_BUDGET;
    check_status(strata_resource_allocate(top, &request, &block), STRATA_ERROR_OUT_OF_BUDGET);
    assert_true(block.address == 0 && block.id.generation == 0);
    owner.answer = STRATA_SUCCESS;
    check_ok(strata_stack_destroy(stack));
}

static void zero_bytes_and_bad_alignments_never_reach_a_layer(void **state)
{
    (void)state;
    strata_stack *stack = build(1);
    strata_resource *top = strata_stack_top(stack);
    strata_block block;
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = 0}, &block));
    check_ok(strata_resource_deallocate(top, &block, NULL));
    check_ok(strata_resource_prepare_use(top, &block, NULL, STRATA_ACCESS_READ));
    check_ok(strata_resource_finish_use(top, &block, NULL, STRATA_ACCESS_READ));
    check_status(strata_resource_allocate(top, &(strata_request){.bytes = 8, .alignment = 3}, &block),
                 STRATA_ERROR_INVALID_VALUE);
    assert_string_equal(owner.calls, "");
    check_ok(strata_stack_destroy(stack));
}

static void an_owner_answers_for_what_it_left_out(void **state)
{
    (void)state;
    owner.resource.ops = &least_ops;
    strata_stack *stack = build(1);
    strata_resource *top = strata_stack_top(stack);
    strata_request request = {.bytes = 1000};
    strata_block block, found;
    size_t bytes = 1;
    strata_budget_snapshot budget = {.limit = 1};
    check_ok(strata_resource_allocate(top, &request, &block));
    check_status(strata_resource_prepare_use(top, &block, NULL, STRATA_ACCESS_READ), STRATA_ERROR_STREAM_MISUSE);
    check_last_error(STRATA_ERROR_STREAM_MISUSE, "least");
    check_status(strata_resource_finish_use(top, &block, NULL, STRATA_ACCESS_READ), STRATA_ERROR_STREAM_MISUSE);
    check_status(top->ops->record_use(top, &block, NULL, STRATA_ACCESS_READ), STRATA_ERROR_STREAM_MISUSE);
    check_status(top->ops->find(top, block.address, &found), STRATA_ERROR_UNSUPPORTED);
    check_ok(top->ops->reap(top, STRATA_REAP_WAIT, &bytes));
    assert_true(bytes == 0);
    bytes = 1;
    check_ok(top->ops->trim(top, 0, &bytes));
    assert_true(bytes == 0);
    check_ok(top->ops->charge(top, &request, &bytes));
    assert_true(bytes == 1000);
    strata_fail(STRATA_ERROR_IO, "before the question");
    check_status(top->ops->budget(top, &budget), STRATA_ERROR_UNSUPPORTED);
    assert_true(budget.limit == 0);
    assert_int_equal(strata_last_error()->status, STRATA_ERROR_IO);
    check_ok(strata_resource_deallocate(top, &block, NULL));
    check_ok(strata_stack_destroy(stack));
}

static void a_runtime_over_an_owner_that_cannot_track_says_so(void **state)
{
    (void)state;
    owner.resource.ops = &least_ops;
    strata_runtime *runtime;
    strata_block block;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = build(0)}, &runtime));
    assert_false(strata_runtime_supports_block_use_tracking(runtime));
    check_ok(strata_runtime_allocate(runtime, 64, NULL, &block));
    check_status(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_STREAM_MISUSE);
    check_status(strata_runtime_record_block_use(runtime, &block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_STREAM_MISUSE);
    strata_launch launch;
    check_ok(strata_launch_begin(&launch, runtime, NULL, STRATA_LAUNCH_STRICT));
    check_status(strata_launch_use(&launch, &block, STRATA_ACCESS_READ), STRATA_ERROR_STREAM_MISUSE);
    check_ok(strata_launch_end(&launch));
    check_ok(strata_launch_begin(&launch, runtime, NULL, STRATA_LAUNCH_PERMISSIVE));
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_READ));
    assert_int_equal(launch.skipped, 1);
    check_ok(strata_launch_preflight(&launch));
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
    check_ok(strata_runtime_destroy(runtime));
    assert_string_equal(destroyed, "least ");
}

/* ---- building and ending ---- */

static void a_stack_is_ended_from_the_top_and_each_layer_once(void **state)
{
    (void)state;
    static strata_resource_ops named[3];
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = {"outer", "middle", "inner"};
        named[i] = empty_ops;
        named[i].name = names[i];
        decorators[i].ops = &named[i];
    }
    strata_stack *stack = build(3);
    assert_string_equal(strata_stack_text(stack), "outer, middle, inner, noting");
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(decorators[i].position, i);
        assert_ptr_equal(decorators[i].stack, stack);
        assert_ptr_equal(decorators[i].upstream, i < 2 ? &decorators[i + 1] : &owner.resource);
    }
    assert_null(owner.resource.upstream);
    check_ok(strata_stack_destroy(stack));
    assert_string_equal(destroyed, "outer middle inner noting ");
    check_ok(strata_stack_destroy(NULL));
}

static void check_refused_build(strata_resource *const *resources, size_t count, const char *words)
{
    strata_resource before[4];
    strata_stack *stack = (strata_stack *)&owner;
    for (size_t i = 0; i < count && i < 4; i++)
        before[i] = resources[i] ? *resources[i] : (strata_resource){0};
    check_status(strata_stack_build(resources, count, 0, &stack), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, words);
    assert_null(stack);
    assert_string_equal(destroyed, "");
    for (size_t i = 0; i < count && i < 4; i++)
        if (resources[i])
            assert_memory_equal(resources[i], &before[i], sizeof before[i]);
}

static void a_stack_that_cannot_be_leaves_its_layers_to_the_caller(void **state)
{
    (void)state;
    strata_resource *top = &decorators[0], *bottom = &owner.resource;
    static strata_resource_ops bad;
    static strata_resource wrong;
    wrong.ops = &bad;
    bad = empty_ops;
    bad.name = NULL;
    check_refused_build((strata_resource *[]){top, &wrong, bottom}, 3, "layer 2");
    bad = empty_ops;
    bad.destroy = NULL;
    check_refused_build((strata_resource *[]){&wrong, bottom}, 2, "no ops, name or destroy");
    bad = empty_ops;
    bad.size = offsetof(strata_resource_ops, destroy);
    check_refused_build((strata_resource *[]){&wrong, bottom}, 2, "wrong size");
    uint32_t *shorter = malloc(2 * sizeof *shorter); /* a table that ends before its name */
    assert_non_null(shorter);
    shorter[0] = 2 * sizeof *shorter;
    shorter[1] = 0;
    wrong.ops = (const strata_resource_ops *)(const void *)shorter;
    check_refused_build((strata_resource *[]){&wrong, bottom}, 2, "(unnamed) has an ops table of the wrong size");
    wrong.ops = &bad;
    free(shorter);
    bad = empty_ops;
    bad.block_bytes = 257;
    check_refused_build((strata_resource *[]){&wrong, bottom}, 2, "too many bytes");
    bad = empty_ops;
    bad.block_bytes = 8;
    bad.optional_block_bytes = 9;
    check_refused_build((strata_resource *[]){&wrong, bottom}, 2, "has more optional_block_bytes than block_bytes");
    bad = least_ops;
    bad.usage = NULL;
    check_refused_build((strata_resource *[]){top, &wrong}, 2, "owns no memory");
    check_refused_build((strata_resource *[]){top, NULL, bottom}, 3, "layer 2");
    check_refused_build((strata_resource *[]){top}, 1, "is the last one and owns no memory");
    check_refused_build((strata_resource *[]){top, top, bottom}, 3, "twice");
    check_refused_build((strata_resource *[]){top}, 0, "1 to 64 layers");
    check_status(strata_stack_build(NULL, 1, 0, &(strata_stack *){NULL}), STRATA_ERROR_INVALID_VALUE);
    strata_resource *many[ROOM + 1];
    for (size_t i = 0; i < ROOM + 1; i++)
        many[i] = i < ROOM ? &decorators[i] : bottom;
    check_refused_build(many, ROOM + 1, "1 to 64 layers");
    check_status(strata_stack_build(&bottom, 1, 63, &(strata_stack *){NULL}), STRATA_ERROR_INVALID_VALUE);

    strata_stack *stack = build(ROOM - 1);
    check_refused_build((strata_resource *[]){&decorators[ROOM], bottom}, 2, "already belongs to a stack");
    check_ok(strata_stack_destroy(stack));
}

static int device_zero(strata_resource *resource)
{
    (void)resource;
    return 0;
}

static int device_one(strata_resource *resource)
{
    (void)resource;
    return 1;
}

static void an_owner_stands_last_in_a_stack_of_its_own_device(void **state)
{
    (void)state;
    static strata_resource_ops owning;
    static strata_resource another;
    owning = noting_ops;
    another.ops = &owning;
    owning.device = device_zero;
    check_refused_build((strata_resource *[]){&decorators[0], &another, &owner.resource}, 3, "must be the last one");
    strata_stack *stack;
    owning.device = device_one;
    owner.resource.ops = &owning;
    check_status(strata_stack_build((strata_resource *[]){&decorators[0], &owner.resource}, 2, 0, &stack),
                 STRATA_ERROR_WRONG_DEVICE);
    check_last_error(STRATA_ERROR_WRONG_DEVICE, "is for device 1");
    assert_null(stack);
    owning.device = device_zero;
    stack = build(1);
    strata_resource *top = strata_stack_top(stack);
    assert_int_equal(top->ops->device(top), 0);
    check_ok(strata_stack_destroy(stack));
}

/* Before `device` there was none to write. */
static void an_owner_of_the_first_version_stands_in_any_stack(void **state)
{
    (void)state;
    static strata_resource_ops first;
    first = noting_ops;
    first.size = offsetof(strata_resource_ops, device);
    first.device = device_one; /* beyond its end */
    owner.resource.ops = &first;
    strata_stack *stack = build(1);
    strata_resource *top = strata_stack_top(stack);
    assert_int_equal(top->ops->device(top), 0);
    check_ok(strata_stack_destroy(stack));
}

static void a_resource_that_was_never_built_into_a_stack_is_ended_by_itself(void **state)
{
    (void)state;
    check_ok(strata_resource_destroy(&owner.resource));
    assert_string_equal(destroyed, "noting ");
    check_ok(strata_resource_destroy(NULL));
    check_status(strata_resource_destroy(&(strata_resource){0}), STRATA_ERROR_INVALID_VALUE);
    strata_resource *made;
    check_ok(strata_direct_create(0, NULL, &made));
    check_ok(strata_resource_destroy(made));
    check_ok(strata_async_create(0, NULL, &made));
    check_ok(strata_resource_destroy(made));
    strata_stack *stack = build(1);
    check_status(strata_resource_destroy(&owner.resource), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "belongs to a stack");
    assert_string_equal(destroyed, "noting ");
    check_ok(strata_stack_destroy(stack));
}

static void a_layer_of_a_later_version_with_a_longer_table_works(void **state)
{
    (void)state;
    static struct {
        strata_resource_ops ops;
        void *later[3];
    } longer;
    longer.ops = empty_ops;
    longer.ops.size = sizeof longer;
    memset(longer.later, 0x5a, sizeof longer.later);
    decorators[0].ops = &longer.ops;
    strata_stack *stack = build(1);
    check_all_operations(strata_stack_top(stack), STRATA_SUCCESS);
    check_ok(strata_stack_destroy(stack));
    assert_string_equal(destroyed, "empty noting ");
}

static void a_stack_with_live_blocks_is_not_ended(test_fixture *fixture)
{
    strata_stack *stack;
    strata_block block;
    check_ok(strata_stack_create(fixture->stack, 0, &stack));
    strata_resource *top = strata_stack_top(stack);
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = 4096}, &block));
    check_status(strata_stack_destroy(stack), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "1 live block, 4 KiB (4096 bytes)");
    check_ok(strata_resource_prepare_use(top, &block, NULL, STRATA_ACCESS_READ));
    check_ok(strata_resource_finish_use(top, &block, NULL, STRATA_ACCESS_READ));
    check_ok(strata_resource_deallocate(top, &block, NULL));
    check_ok(strata_stack_destroy(stack));
}

/* ---- bytes of each block ---- */

typedef struct keeping_layer {
    strata_resource resource;
    unsigned char mark;
    size_t bytes;
    size_t made, unclean, damaged, lost; /* blocks; bytes that were not zero; not ours when read again; NULL */
} keeping_layer;

static strata_status keeping_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    keeping_layer *self = (keeping_layer *)resource;
    strata_status status = resource->upstream->ops->allocate(resource->upstream, request, out);
    if (status != STRATA_SUCCESS)
        return status;
    unsigned char *own = strata_block_layer_bytes(resource, out->id);
    self->made++;
    self->lost += !own || (uintptr_t)own % 8;
    for (size_t i = 0; own && i < self->bytes; i++) {
        self->unclean += own[i] != 0;
        own[i] = (unsigned char)(self->mark + out->id.slot);
    }
    return STRATA_SUCCESS;
}

static void keeping_completed(strata_resource *resource, const strata_completion *completion)
{
    keeping_layer *self = (keeping_layer *)resource;
    const unsigned char *own = strata_block_layer_bytes(resource, completion->id);
    self->lost += !own;
    for (size_t i = 0; own && i < self->bytes; i++)
        self->damaged += own[i] != (unsigned char)(self->mark + completion->id.slot);
}

static void keep_memory(strata_resource *resource)
{
    (void)resource;
}

static void each_layer_keeps_its_own_bytes_of_each_block(test_fixture *fixture)
{
    enum { LAYERS = 5, BLOCKS = 300, ROUNDS = 4 };
    static const uint32_t sizes[LAYERS] = {1, 24, 0, 40, 256}, spared[LAYERS] = {1, 16, 0, 32, 100};
    enum { SEES_TABLE = 2 }; /* from here on, as the layer at this place does not pass facts on, and those below do */
    static strata_resource_ops ops[LAYERS];
    keeping_layer layers[LAYERS];
    strata_resource *resources[LAYERS + 1];
    strata_stack *stack;
    strata_block blocks[BLOCKS];
    for (size_t i = 0; i < LAYERS; i++) {
        ops[i] = (strata_resource_ops){.size = sizeof ops[i],
                                       .block_bytes = sizes[i],
                                       .transparent = i != 0 && i != SEES_TABLE,
                                       .optional_block_bytes = spared[i],
                                       .name = "keeping",
                                       .allocate = keeping_allocate,
                                       .completed = keeping_completed,
                                       .destroy = keep_memory};
        layers[i] = (keeping_layer){.resource.ops = &ops[i],
                                    .mark = (unsigned char)(17 * i + 1),
                                    .bytes = sizes[i] - (i >= SEES_TABLE ? spared[i] : 0)};
        resources[i] = &layers[i].resource;
    }
    check_ok(test_owner_create(fixture, &resources[LAYERS]));
    check_ok(strata_stack_build(resources, LAYERS + 1, 0, &stack));
    for (size_t i = 0; i + 1 < LAYERS; i++)
        assert_int_equal(resources[i + 1]->block_offset - resources[i]->block_offset, (layers[i].bytes + 7) & ~7u);
    strata_resource *top = strata_stack_top(stack);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < BLOCKS; i++)
            check_ok(strata_resource_allocate(top, &(strata_request){.bytes = 512}, &blocks[i]));
        for (size_t i = 0; i < BLOCKS; i++)
            check_ok(strata_resource_deallocate(top, &blocks[i], NULL));
        size_t bytes;
        check_ok(top->ops->reap(top, STRATA_REAP_WAIT, &bytes));
    }
    assert_null(strata_block_layer_bytes(top, (strata_block_id){.table = 1u << 31, .slot = 1, .generation = 1}));
    assert_null(strata_block_layer_bytes(top, (strata_block_id){0}));
    check_ok(strata_stack_destroy(stack));
    for (size_t i = 0; i < LAYERS; i++) {
        assert_int_equal(layers[i].made, BLOCKS * ROUNDS);
        assert_int_equal(layers[i].unclean, 0);
        assert_int_equal(layers[i].damaged, 0);
        assert_int_equal(layers[i].lost, 0);
    }
}

/* ---- two devices, which a process of its own has ---- */

static void check_device(strata_status made, strata_resource *resource)
{
    strata_stack *stack;
    child_ok(made);
    child_status(strata_stack_build(&resource, 1, 0, &stack), STRATA_ERROR_WRONG_DEVICE);
    child_check(stack == NULL);
    child_ok(strata_stack_build(&resource, 1, 1, &stack));
    child_ok(strata_stack_destroy(stack));
}

static strata_status no_memory(CUdeviceptr *address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    (void)address, (void)bytes, (void)alignment, (void)stream, (void)data;
    return STRATA_ERROR_OUT_OF_MEMORY;
}

static strata_status no_return(CUdeviceptr address, size_t bytes, size_t alignment, CUstream stream, void *data)
{
    (void)address, (void)bytes, (void)alignment, (void)stream, (void)data;
    return STRATA_SUCCESS;
}

static void owners_know_their_device(void)
{
    strata_resource *resource;
    strata_status made = strata_async_create(1, NULL, &resource);
    check_device(made, resource);
    made = strata_direct_create(1, NULL, &resource);
    check_device(made, resource);
    made = strata_pool_create(1, NULL, &resource);
    check_device(made, resource);
    made = strata_null_create(1, NULL, &resource);
    check_device(made, resource);
    made = strata_managed_create(1, NULL, &resource);
    check_device(made, resource);
    made = strata_pinned_create(1, NULL, &resource);
    check_device(made, resource);
    const strata_callback_options functions = {.allocate = no_memory, .deallocate = no_return};
    made = strata_callback_create(1, &functions, &resource);
    check_device(made, resource);
}

static void an_owner_of_another_device_is_refused(void **state)
{
    (void)state;
    static const char *const two_devices[] = {"STRATA_DRIVER=sim", "STRATA_SIM_DEVICES=2", NULL};
    test_child_run("owners_know_their_device", two_devices);
}

/* ---- layers that begin ---- */

static char begun[64];

typedef struct beginning_layer {
    strata_resource resource;
    strata_status answer;
} beginning_layer;

/* Where a layer stands is known by then. */
static strata_status begin(strata_resource *resource)
{
    assert_true(resource->stack && (resource->upstream != NULL) == (resource->position < 2));
    snprintf(begun + strlen(begun), sizeof begun - strlen(begun), "%u ", resource->position);
    const strata_status answer = ((beginning_layer *)resource)->answer;
    return answer == STRATA_SUCCESS ? answer : strata_fail(answer, "as the test wishes");
}

static void stay(strata_resource *resource)
{
    (void)resource;
}

static void layers_begin_from_below_and_one_that_cannot_ends_the_build(void **state)
{
    (void)state;
    static const strata_resource_ops ops = {.size = sizeof ops, .name = "beginner", .destroy = stay, .begin = begin};
    beginning_layer layers[2] = {{.resource = {.ops = &ops}}, {.resource = {.ops = &ops}}};
    strata_resource *resources[3] = {&layers[0].resource, &layers[1].resource};
    strata_stack *stack;
    check_ok(strata_null_create(0, NULL, &resources[2]));
    const strata_resource_ops *const null_ops = resources[2]->ops;
    layers[0].answer = STRATA_ERROR_IO;
    check_status(strata_stack_build(resources, 3, 0, &stack), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "as the test wishes");
    assert_null(stack);
    assert_string_equal(begun, "1 0 ");
    for (int i = 0; i < 3; i++) {
        assert_true(resources[i]->ops == (i < 2 ? &ops : null_ops));
        assert_true(!resources[i]->stack && !resources[i]->upstream);
    }
    begun[0] = '\0';
    layers[1].answer = STRATA_ERROR_BUSY;
    check_status(strata_stack_build(resources, 3, 0, &stack), STRATA_ERROR_BUSY);
    assert_string_equal(begun, "1 ");
    begun[0] = '\0';
    layers[0].answer = layers[1].answer = STRATA_SUCCESS;
    check_ok(strata_stack_build(resources, 3, 0, &stack));
    assert_string_equal(begun, "1 0 ");
    check_ok(strata_stack_destroy(stack));
}

/* It has no upstream and no table, and what it leaves out is not filled in. */
static void calls_of_a_layer_that_is_in_no_stack_are_refused(void **state)
{
    (void)state;
    static const strata_resource_ops ops = {.size = sizeof ops, .name = "alone", .destroy = stay};
    strata_resource alone = {.ops = &ops}, *made[2], *resources[] = {&alone, NULL, NULL};
    strata_stack *stack;
    check_ok(strata_null_create(0, NULL, &made[0]));
    check_ok(strata_pool_create(0, NULL, &made[1]));
    resources[1] = made[0], resources[2] = made[1];
    for (int built = 0; built < 2; built++) {
        for (size_t i = 0; i < 3; i++) {
            strata_block block = {.address = 4096, .bytes = 4096};
            strata_usage usage;
            strata_resource *each = resources[i];
            check_status(strata_resource_deallocate(each, &block, NULL), STRATA_ERROR_INVALID_VALUE);
            check_status(strata_resource_prepare_use(each, &block, NULL, STRATA_ACCESS_READ),
                         STRATA_ERROR_INVALID_VALUE);
            check_status(strata_resource_finish_use(each, &block, NULL, STRATA_ACCESS_NONE),
                         STRATA_ERROR_INVALID_VALUE);
            check_status(strata_resource_allocate(each, &(strata_request){.bytes = 100}, &block),
                         STRATA_ERROR_INVALID_VALUE);
            check_last_error(STRATA_ERROR_INVALID_VALUE, "belongs to no stack");
            check_status(strata_resource_usage(each, &usage), STRATA_ERROR_INVALID_VALUE);
            assert_int_equal(strata_resource_capabilities(each), 0);
        }
        check_status(strata_stack_build(resources, 3, 0, &stack), STRATA_ERROR_INVALID_VALUE); /* null is not last */
    }
    check_ok(strata_resource_destroy(made[0]));
    check_ok(strata_resource_destroy(made[1]));
}

static bool owns_none(strata_resource *self, strata_block_id id)
{
    (void)self;
    (void)id;
    return false;
}

static void deprecated_names_set_what_the_present_ones_do(void **state)
{
    (void)state;
    const strata_resource_ops ops = {.keeps = owns_none, .passes_facts = true, .spared_bytes = 8};
    assert_true(ops.owns_internally == owns_none);
    assert_true(ops.transparent);
    assert_int_equal(ops.optional_block_bytes, 8);
    assert_true(strata_guard_suspects_print == strata_guard_fault_candidates_print);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(owners_know_their_device)};
    test_child_begin(count, arguments, scenarios, 1);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_operation_left_out_reaches_the_owner_unchanged, setup),
        cmocka_unit_test_setup(an_allocation_left_out_reaches_the_owner_and_its_block_comes_back, setup),
        cmocka_unit_test_setup(zero_bytes_and_bad_alignments_never_reach_a_layer, setup),
        cmocka_unit_test_setup(an_owner_answers_for_what_it_left_out, setup),
        cmocka_unit_test_setup(a_runtime_over_an_owner_that_cannot_track_says_so, setup),
        cmocka_unit_test_setup(a_stack_is_ended_from_the_top_and_each_layer_once, setup),
        cmocka_unit_test_setup(a_stack_that_cannot_be_leaves_its_layers_to_the_caller, setup),
        cmocka_unit_test_setup(an_owner_stands_last_in_a_stack_of_its_own_device, setup),
        cmocka_unit_test_setup(an_owner_of_the_first_version_stands_in_any_stack, setup),
        cmocka_unit_test_setup(a_resource_that_was_never_built_into_a_stack_is_ended_by_itself, setup),
        cmocka_unit_test(an_owner_of_another_device_is_refused),
        cmocka_unit_test(calls_of_a_layer_that_is_in_no_stack_are_refused),
        cmocka_unit_test(deprecated_names_set_what_the_present_ones_do),
        cmocka_unit_test(layers_begin_from_below_and_one_that_cannot_ends_the_build),
        cmocka_unit_test_setup(a_layer_of_a_later_version_with_a_longer_table_works, setup),
    };
    static const test_case cases[] = {
        TEST_CASE(a_stack_with_live_blocks_is_not_ended),
        TEST_CASE(each_layer_keeps_its_own_bytes_of_each_block),
    };
    int failed = test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
    return failed + test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
