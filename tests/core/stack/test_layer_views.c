/* A layer that shows its user another address and size than the layer below gave: red zones around each block, written
 * here with the public headers alone. Identity and history stay those of the one entry. */
#include <string.h>

#include "support/fixture.h"

enum { ZONE = 512, ZONE_BYTE = 0xbd };

/* What the layer below gave, kept in the block's entry. */
typedef struct below {
    CUdeviceptr address;
    uint64_t bytes, requested;
} below;

static strata_block as_below(strata_resource *self, const strata_block *block)
{
    const below *kept = strata_block_layer_bytes(self, block->id);
    strata_block view = *block;
    if (kept && kept->address && block->address == kept->address + ZONE) {
        view.address = kept->address;
        view.bytes = (size_t)kept->bytes + (block->bytes - block->requested);
        view.requested = (size_t)kept->requested;
        if (block->requested + 2 * ZONE != kept->requested)
            view.requested = view.bytes = block->requested;
    }
    return view;
}

static strata_block as_above(const strata_block *block)
{
    strata_block view = *block;
    view.address += ZONE;
    view.requested -= 2 * ZONE;
    view.bytes = view.requested;
    return view;
}

static strata_status zoned_allocate(strata_resource *self, const strata_request *request, strata_block *out)
{
    strata_request larger = *request;
    larger.bytes += 2 * ZONE;
    strata_status status = self->upstream->ops->allocate(self->upstream, &larger, out);
    if (status != STRATA_SUCCESS)
        return status;
    below *kept = strata_block_layer_bytes(self, out->id);
    *kept = (below){.address = out->address, .bytes = out->bytes, .requested = out->requested};
    CUdeviceptr behind = out->address + out->requested - ZONE;
    if (test_cu()->MemsetD8Async(out->address, ZONE_BYTE, ZONE, request->stream) != CUDA_SUCCESS ||
        test_cu()->MemsetD8Async(behind, ZONE_BYTE, ZONE, request->stream) != CUDA_SUCCESS) {
        self->upstream->ops->deallocate(self->upstream, out, request->stream);
        *out = (strata_block){0};
        return strata_fail(STRATA_ERROR_DRIVER, "zoned: the red zones could not be filled");
    }
    *out = as_above(out);
    return STRATA_SUCCESS;
}

static strata_status zoned_deallocate(strata_resource *self, const strata_block *block, CUstream stream)
{
    strata_block view = as_below(self, block);
    return self->upstream->ops->deallocate(self->upstream, &view, stream);
}

static strata_status zoned_find(strata_resource *self, CUdeviceptr address, strata_block *out)
{
    strata_status status = self->upstream->ops->find(self->upstream, address, out);
    if (status == STRATA_SUCCESS)
        *out = as_above(out);
    return status;
}

static strata_status zoned_charge(strata_resource *self, const strata_request *request, size_t *bytes)
{
    strata_request larger = *request;
    larger.bytes += 2 * ZONE;
    return self->upstream->ops->charge(self->upstream, &larger, bytes);
}

static size_t completed_bytes;

static void zoned_completed(strata_resource *self, const strata_completion *completion)
{
    const below *kept = strata_block_layer_bytes(self, completion->id);
    completed_bytes += kept && kept->bytes == completion->bytes ? completion->bytes : 0;
}

static void zoned_destroy(strata_resource *self)
{
    *self = (strata_resource){0};
}

static const strata_resource_ops zoned_ops = {
    .size = sizeof(strata_resource_ops),
    .block_bytes = sizeof(below),
    .name = "zoned",
    .allocate = zoned_allocate,
    .deallocate = zoned_deallocate,
    .charge = zoned_charge,
    .find = zoned_find,
    .completed = zoned_completed,
    .destroy = zoned_destroy,
};

enum { AT_ONCE = 4 };

static strata_resource zoned[AT_ONCE];

static strata_status make_zoned(int device, const void *options, strata_resource **out)
{
    (void)device, (void)options;
    for (size_t i = 0; i < AT_ONCE; i++) {
        if (zoned[i].ops)
            continue;
        zoned[i] = (strata_resource){.ops = &zoned_ops};
        *out = &zoned[i];
        return STRATA_SUCCESS;
    }
    return strata_fail(STRATA_ERROR_BUSY, "all of them are in use");
}

static const strata_layer zoned_layer = {.size = sizeof(strata_layer), .name = "zoned", .create = make_zoned};

static void the_user_sees_the_inner_view_and_the_memory_around_it_is_the_layers(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 4096, stream);
    assert_true(block.bytes == 4096 && block.requested == 4096);
    test_write(fixture, &block, 0x11, stream);
    const unsigned char *all = test_copy_back(fixture, block.address - ZONE, 4096 + 2 * ZONE, stream);
    test_synchronize(stream);
    check_bytes(all, ZONE_BYTE, ZONE);
    check_bytes(all + ZONE, 0x11, 4096);
    check_bytes(all + ZONE + 4096, ZONE_BYTE, ZONE);
    assert_true(test_usage(fixture).live_bytes == 4096 + 2 * ZONE);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_stream_close(fixture, stream);
}

static void the_view_from_below_is_restored_on_the_way_down(test_fixture *fixture)
{
    static const size_t sizes[] = {1, 100, 4096, 1 << 20};
    completed_bytes = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        strata_block block = test_allocate(fixture, sizes[i], NULL);
        assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
        test_free_on(fixture, &block, NULL);
        check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
    }
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_true(strata_runtime_bytes_outstanding(fixture->runtime) == 0);
    assert_true(completed_bytes == 1 + 100 + 4096 + (1 << 20) + 4 * 2 * ZONE);
}

static void a_wrong_fact_is_still_recognised_through_the_view(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, 4096, NULL), wrong;
    wrong = block;
    wrong.address += 256;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_FOREIGN_POINTER);
    wrong = block;
    wrong.bytes = wrong.requested = 4000;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_SIZE_MISMATCH);
    wrong = block;
    wrong.id.generation++;
    check_status(strata_runtime_deallocate(fixture->runtime, &wrong), STRATA_ERROR_FOREIGN_POINTER);
    test_write(fixture, &block, 0x22, NULL);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void history_goes_by_identity_whatever_the_view(test_fixture *fixture)
{
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, 4096, writer);
    test_stall *stall = test_stall_begin(writer);
    test_write(fixture, &block, 0x33, writer);
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_end(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x33, 4096);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    test_stream_close(fixture, writer);
    test_stream_close(fixture, reader);
}

static void a_block_that_is_found_by_address_has_the_users_view(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, 4096, NULL), found;
    strata_launch launch;
    check_ok(strata_runtime_find(fixture->runtime, block.address + 4000, &found));
    assert_memory_equal(&found, &block, sizeof found);
    check_ok(strata_launch_begin(&launch, fixture->runtime, NULL, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_address(&launch, block.address + 17, STRATA_ACCESS_READ));
    check_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_WRITE));
    assert_int_equal(launch.count, 1);
    check_ok(strata_launch_preflight(&launch));
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    check_ok(strata_runtime_deallocate(fixture->runtime, &found));
}

static void a_view_of_a_view_comes_out_even(test_fixture *fixture)
{
    strata_runtime *runtime;
    char text[64] = "zoned, ";
    strcat(text, fixture->stack);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    strata_block block, found;
    size_t charge;
    check_ok(strata_runtime_allocate(runtime, 100, NULL, &block));
    assert_true(block.bytes == 100);
    strata_usage usage;
    check_ok(strata_runtime_usage(runtime, &usage));
    assert_true(usage.live_bytes == 100 + 4 * ZONE);
    strata_resource *top = strata_stack_top(strata_runtime_stack(runtime));
    check_ok(top->ops->charge(top, &(strata_request){.bytes = 512}, &charge));
    assert_true(charge == 512 + 4 * ZONE);
    check_ok(strata_runtime_find(runtime, block.address, &found));
    assert_memory_equal(&found, &block, sizeof found);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

typedef struct seen_blocks {
    size_t count;
    strata_block last;
} seen_blocks;

static void note_block(const strata_block *block, uint32_t call_stack, void *data)
{
    (void)call_stack;
    seen_blocks *seen = data;
    seen->count++;
    seen->last = *block;
}

/* What they know of a block is not what the owner's table has. */
static void logs_and_statistics_above_a_view_have_what_the_user_has(test_fixture *fixture)
{
    static strata_log_record records[64];
    strata_runtime *runtime;
    char text[96] = "logging(format=memory), statistics, ";
    strcat(text, fixture->stack);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    strata_stack *stack = strata_runtime_stack(runtime);
    strata_resource *statistics = strata_stack_layer(stack, "statistics", 0);
    CUstream stream;
    strata_block block;
    seen_blocks seen = {0};
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    check_ok(strata_runtime_allocate(runtime, 100, stream, &block));
    check_ok(strata_statistics_visit(statistics, note_block, &seen));
    assert_true(seen.count == 1 && seen.last.address == block.address && seen.last.bytes == 100);
    test_stall *stall = test_stall_begin(stream);
    const bool waits = strstr(fixture->stack, "direct") != NULL; /* then the free would wait for the stall */
    if (waits)
        test_stall_end(stall);
    const strata_block freed = block;
    check_ok(strata_runtime_deallocate(runtime, &block));
    if (!waits)
        test_stall_end(stall);
    check_ok(strata_runtime_reap_pending(runtime));
    strata_statistics_counters counters;
    check_ok(strata_statistics_read(statistics, 0, &counters));
    assert_true(counters.bytes.current == 0 && counters.bytes.total == 100);
    size_t count, completed = 0;
    check_ok(strata_logging_take(strata_stack_top(stack), records, 64, &count));
    for (size_t i = 0; i < count; i++) {
        if (records[i].kind != STRATA_LOG_COMPLETED)
            continue;
        completed++;
        assert_true(records[i].address == freed.address && records[i].requested == 100);
        assert_true(records[i].bytes >= 100 + 2 * ZONE); /* of the owner's memory */
    }
    assert_int_equal(completed, waits ? 0 : 1);
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_ok(strata_runtime_destroy(runtime));
}

int main(void)
{
    test_open_driver();
    if (strata_layer_register(&zoned_layer) != STRATA_SUCCESS)
        return 1;
    static const test_case cases[] = {
        TEST_CASE(the_user_sees_the_inner_view_and_the_memory_around_it_is_the_layers),
        TEST_CASE(the_view_from_below_is_restored_on_the_way_down),
        TEST_CASE(a_wrong_fact_is_still_recognised_through_the_view),
        TEST_CASE(history_goes_by_identity_whatever_the_view),
        TEST_CASE(a_block_that_is_found_by_address_has_the_users_view),
        TEST_CASE(a_view_of_a_view_comes_out_even),
        TEST_CASE(logs_and_statistics_above_a_view_have_what_the_user_has),
    };
    static const char *const stacks[] = {"zoned, async", "zoned, direct"};
    return test_run_on(stacks, 2, cases, sizeof cases / sizeof cases[0]);
}
