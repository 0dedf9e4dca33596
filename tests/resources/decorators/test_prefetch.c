/* prefetch: what is moved, when, where to, and that nothing but managed memory is. */
#include <stdio.h>
#include <string.h>

#include "core/blocks/uses.h"
#include "core/stack/stack.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/range.h"
#include "support/sweep.h"

enum { BYTES = 64 << 10 };

static uint64_t value(const test_fixture *fixture, const char *name)
{
    uint64_t got;
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, &got, NULL));
    return got;
}

static void set(const test_fixture *fixture, const char *name, uint64_t to)
{
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, NULL, &to));
}

/* ---- the moves that the driver is asked for ---- */

static struct {
    PFN_cuMemPrefetchAsync_v12020 real;
    CUresult answer; /* SUCCESS: what the driver says */
    unsigned count;
    CUdeviceptr address;
    size_t bytes;
    CUmemLocation to;
    CUstream stream;
} moves;

static CUresult CUDAAPI see_move(CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned flags, CUstream stream)
{
    moves.count++;
    moves.address = address;
    moves.bytes = bytes;
    moves.to = to;
    moves.stream = stream;
    return moves.answer == CUDA_SUCCESS ? moves.real(address, bytes, to, flags, stream) : moves.answer;
}

static void end_watching(void)
{
    if (moves.real)
        strata_cu.MemPrefetchAsync = moves.real;
    memset(&moves, 0, sizeof moves);
}

static void watch_moves(void)
{
    memset(&moves, 0, sizeof moves);
    moves.real = strata_cu.MemPrefetchAsync;
    strata_cu.MemPrefetchAsync = see_move;
}

static bool is_touched(const test_fixture *fixture, const strata_block *block)
{
    return !strata_uses_untouched(strata_runtime_stack(fixture->runtime)->head.table, block->id);
}

/* Whether a move did not come to the driver, as one of the calls before it failed. A sweep fails the question about
 * captures, too, and then nothing is moved. */
static bool was_hindered(strata_runtime *runtime)
{
    uint64_t failed, skipped;
    check_ok(strata_control(strata_runtime_stack(runtime), "prefetch.failed_prefetches", &failed, NULL));
    check_ok(strata_control(strata_runtime_stack(runtime), "prefetch.skipped_prefetches", &skipped, NULL));
    return failed || (skipped && test_is_swept());
}

/* ---- over managed memory ---- */

static void a_block_is_moved_on_its_stream_when_it_is_allocated(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    watch_moves();
    strata_block block = test_allocate(fixture, BYTES, stream);
    if (!was_hindered(fixture->runtime)) {
        assert_int_equal(moves.count, 1);
        assert_true(moves.address == block.address && moves.bytes == block.bytes && moves.stream == stream);
        assert_true(moves.to.type == CU_MEM_LOCATION_TYPE_DEVICE && moves.to.id == 0);
        /* So that a free waits for the move. Where a sweep fails the record, the move itself was waited for. */
        assert_true(is_touched(fixture, &block) || test_is_swept());
        assert_true(value(fixture, "prefetch.prefetches") == 1);
    }
    unsigned before = moves.count;
    test_write(fixture, &block, 0x11, stream);
    assert_int_equal(moves.count, before);
    test_free_on(fixture, &block, stream);
    end_watching();
    test_stream_close(fixture, stream);
}

static void with_on_use_each_prepared_use_moves_its_block_to_where_it_was_asked(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    watch_moves();
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x22, alloc_stream);
    assert_true(moves.count == 1 || was_hindered(fixture->runtime));
    set(fixture, "prefetch.on_use", 1);
    const unsigned char *seen = test_read(fixture, &block, user);
    bool moved = moves.count == 2 && moves.stream == user && moves.address == block.address;
    assert_true(moved || was_hindered(fixture->runtime));
    test_write(fixture, &block, 0x33, user);
    assert_true(moves.count == 3 || was_hindered(fixture->runtime));
    test_synchronize(user);
    check_bytes(seen, 0x22, BYTES);
    test_free_on(fixture, &block, alloc_stream);
    end_watching();
    test_stream_close(fixture, alloc_stream);
    test_stream_close(fixture, user);
}

/* Also where moving is switched off before the use is over. */
static void a_use_that_came_to_nothing_leaves_its_move_noted(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    watch_moves();
    for (int switched_off = 0; switched_off < 2; switched_off++) {
        moves.answer = CUDA_ERROR_UNKNOWN; /* so that nothing is noted of the allocation's */
        strata_block block = test_allocate(fixture, BYTES, alloc_stream);
        assert_false(is_touched(fixture, &block));
        moves.answer = CUDA_SUCCESS;
        set(fixture, "prefetch.on_use", 1);
        const uint64_t before = value(fixture, "prefetch.prefetches");
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, user, STRATA_ACCESS_WRITE));
        const bool moved = value(fixture, "prefetch.prefetches") > before;
        set(fixture, "prefetch.on_use", !switched_off);
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, user, STRATA_ACCESS_NONE));
        assert_true(moved || test_is_swept());
        assert_true(is_touched(fixture, &block) || !moved);
        test_free_on(fixture, &block, alloc_stream); /* and it is not pinned */
    }
    end_watching();
    test_stream_close(fixture, alloc_stream);
    test_stream_close(fixture, user);
}

static void a_move_that_the_driver_refuses_fails_nothing_and_is_counted(test_fixture *fixture)
{
    strata_error before = *strata_last_error();
    watch_moves();
    moves.answer = CUDA_ERROR_INVALID_VALUE;
    strata_block block = test_allocate(fixture, BYTES, NULL);
    set(fixture, "prefetch.on_use", 1);
    test_write(fixture, &block, 0x44, NULL);
    uint64_t failed = value(fixture, "prefetch.failed_prefetches");
    assert_true(value(fixture, "prefetch.prefetches") == 0 && failed >= 1 && failed >= moves.count);
    assert_true(failed == 2 || moves.count < 2); /* a block not known to be managed is not moved later */
    assert_memory_equal(strata_last_error(), &before, sizeof before);
    test_free_on(fixture, &block, NULL);
    end_watching();
}

static void on_a_stream_that_is_being_captured_nothing_is_moved(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    test_fault_pretend_capture(stream);
    watch_moves();
    strata_block block = test_allocate(fixture, BYTES, stream); /* a known stream is not asked about captures */
    assert_int_equal(moves.count, 0);
    end_watching();
    test_fault_end();
    assert_true(value(fixture, "prefetch.skipped_prefetches") + value(fixture, "prefetch.failed_prefetches") == 1);
    assert_true(value(fixture, "prefetch.prefetches") == 0);
    test_free_on(fixture, &block, stream);
    test_stream_close(fixture, stream);
}

static void to_the_host_is_where_it_goes_if_that_is_asked_for(test_fixture *fixture)
{
    (void)fixture;
    strata_runtime *runtime;
    strata_block block;
    static const struct {
        const char *text;
        int where;
    } stacks[] = {{"prefetch(to=host), managed", CU_DEVICE_CPU}, {"prefetch(to=device), managed", 0}};
    for (size_t i = 0; i < 2; i++) {
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stacks[i].text}, &runtime));
        check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
        int where = test_range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, &block);
        assert_true(where == stacks[i].where || was_hindered(runtime));
        check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
        check_ok(strata_runtime_destroy(runtime));
    }
}

/* ---- over other memory, and without the driver's help ---- */

static void memory_that_is_not_managed_is_asked_about_once_and_never_moved(test_fixture *fixture)
{
    (void)fixture;
    static const char *const texts[] = {"prefetch(on_use=on), async", "prefetch(on_use=on), direct",
                                        "prefetch(on_use=on), pinned"};
    for (size_t i = 0; i < 3; i++) {
        strata_runtime *runtime;
        strata_block block;
        test_calls calls;
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = texts[i]}, &runtime));
        test_calls_begin(&calls);
        check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
        for (size_t use = 0; use < 3; use++) {
            check_ok(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE));
            check_ok(strata_runtime_finish_block_use(runtime, &block, NULL, STRATA_ACCESS_NONE));
        }
        assert_true(test_calls_of(&calls, "cuMemPrefetchAsync") == 0);
        assert_true(test_calls_of(&calls, "cuPointerGetAttribute") == 1 || was_hindered(runtime));
        assert_true(strata_uses_untouched(strata_runtime_stack(runtime)->head.table, block.id));
        check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
        check_ok(strata_runtime_destroy(runtime));
    }
}

/* ---- a layer below that refuses ---- */

typedef struct refuser {
    strata_resource resource;
    unsigned notes, frees; /* that are refused from now on */
} refuser;

static strata_status refuse_note(strata_resource *resource, const strata_block *block, CUstream stream,
                                 strata_access access)
{
    refuser *self = (refuser *)resource;
    if (self->notes && self->notes--)
        return strata_fail(STRATA_ERROR_DRIVER, "the note is refused");
    return resource->upstream->ops->record_use(resource->upstream, block, stream, access);
}

static strata_status refuse_free(strata_resource *resource, const strata_block *block, CUstream stream)
{
    refuser *self = (refuser *)resource;
    if (self->frees && self->frees--)
        return strata_fail(STRATA_ERROR_DRIVER, "the free is refused");
    return resource->upstream->ops->deallocate(resource->upstream, block, stream);
}

static void no_end(strata_resource *resource)
{
    (void)resource;
}

static const strata_resource_ops refuser_ops = {
    .size = sizeof refuser_ops,
    .name = "refuser",
    .deallocate = refuse_free,
    .record_use = refuse_note,
    .destroy = no_end,
};

static void refuser_begin(refuser *self, strata_runtime **runtime)
{
    strata_resource *layers[3] = {NULL, &self->resource, NULL};
    strata_stack *stack;
    *self = (refuser){.resource.ops = &refuser_ops};
    check_ok(strata_prefetch_create(0, NULL, &layers[0]));
    check_ok(strata_managed_create(0, NULL, &layers[2]));
    check_ok(strata_stack_build(layers, 3, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, runtime));
}

static size_t live_blocks(strata_runtime *runtime)
{
    strata_usage usage;
    check_ok(strata_runtime_usage(runtime, &usage));
    return usage.live_blocks;
}

static void a_block_whose_move_cannot_be_noted_is_given_back_or_its_users(test_fixture *fixture)
{
    refuser self;
    strata_runtime *runtime;
    strata_block block;
    test_calls calls;
    (void)fixture;
    if (test_is_swept())
        return; /* it refuses what it is about */
    refuser_begin(&self, &runtime);
    self.notes = 1;
    check_status(strata_runtime_allocate(runtime, BYTES, NULL, &block), STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "the note is refused");
    assert_true(block.address == 0 && live_blocks(runtime) == 0);
    self.notes = self.frees = 1;
    test_calls_begin(&calls);
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    assert_true(test_calls_of(&calls, "cuStreamSynchronize") == 1); /* for the move */
    assert_int_equal(live_blocks(runtime), 1);
    check_ok(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE));
    test_fill(block.address, 1, BYTES, NULL);
    check_ok(strata_runtime_finish_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_deallocate(runtime, &block));
    assert_int_equal(live_blocks(runtime), 0);
    check_ok(strata_runtime_destroy(runtime));
}

static void a_driver_without_it_is_told(test_fixture *fixture)
{
    (void)fixture;
    strata_resource *resource = NULL;
    PFN_cuMemPrefetchAsync_v12020 real = strata_cu.MemPrefetchAsync;
    strata_cu.MemPrefetchAsync = NULL;
    strata_status status = strata_prefetch_create(0, NULL, &resource);
    strata_cu.MemPrefetchAsync = real;
    check_status(status, STRATA_ERROR_UNSUPPORTED);
    check_status(strata_prefetch_create(0, &(strata_prefetch_options){.to = (strata_prefetch_to)7}, &resource),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_prefetch_create(0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_null(resource);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_block_is_moved_on_its_stream_when_it_is_allocated),
        TEST_CASE(with_on_use_each_prepared_use_moves_its_block_to_where_it_was_asked),
        TEST_CASE(a_use_that_came_to_nothing_leaves_its_move_noted),
        TEST_CASE(a_move_that_the_driver_refuses_fails_nothing_and_is_counted),
        TEST_CASE(on_a_stream_that_is_being_captured_nothing_is_moved),
        TEST_CASE(to_the_host_is_where_it_goes_if_that_is_asked_for),
        TEST_CASE(memory_that_is_not_managed_is_asked_about_once_and_never_moved),
        TEST_CASE(a_block_whose_move_cannot_be_noted_is_given_back_or_its_users),
        TEST_CASE(a_driver_without_it_is_told),
    };
    static const char *const stacks[] = {"prefetch, managed"};
    strata_device_info info;
    test_open_driver();
    if (strata_device_get_info(0, &info) != STRATA_SUCCESS || !info.managed_memory || !strata_cu.MemPrefetchAsync) {
        printf("skipped: the device has no managed memory that the host may use at the same time\n");
        return 77;
    }
    test_before_clearing = end_watching;
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
