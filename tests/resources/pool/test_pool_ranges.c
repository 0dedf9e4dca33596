/* pool: the addresses with memory, and the most that was reserved since a moment. */
#include <stdlib.h>

#include "support/pool.h"

#include <strata/pool.h>

static strata_runtime *runtime;
static CUstream stream;

typedef struct seen_ranges {
    size_t count, bytes, small;
    strata_pool_range last;
    CUdeviceptr wanted;
    bool found;
} seen_ranges;

static void see(const strata_pool_range *range, void *data)
{
    seen_ranges *seen = data;
    assert_true(range->bytes > 0);
    if (seen->count) {
        const CUdeviceptr end = seen->last.address + seen->last.bytes;
        assert_true(range->address > end || (range->address == end && range->small != seen->last.small));
    }
    seen->count++;
    seen->bytes += range->bytes;
    seen->small += range->small ? range->bytes : 0;
    seen->found |= seen->wanted >= range->address && seen->wanted - range->address < range->bytes;
    seen->last = *range;
}

static seen_ranges look(CUdeviceptr wanted)
{
    seen_ranges seen = {.wanted = wanted};
    check_ok(strata_pool_visit_ranges(strata_stack_top(strata_runtime_stack(runtime)), see, &seen));
    return seen;
}

static void begin(const char *stack)
{
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stack}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
}

static void end(void)
{
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_ok(strata_runtime_destroy(runtime));
}

static void a_new_pool_has_no_range(void **state)
{
    (void)state;
    begin("pool");
    assert_int_equal(look(0).count, 0);
    end();
}

/* In ranges of its own for small blocks, through layers above, from the device or from a layer below. */
static void ranges_hold_all_blocks_and_all_that_is_reserved(void **state)
{
    (void)state;
    static const char *const stacks[] = {"pool", "statistics, pool", "pool, direct"};
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        strata_block small, large;
        begin(stacks[i]);
        check_ok(strata_runtime_allocate(runtime, 1000, stream, &small));
        check_ok(strata_runtime_allocate(runtime, 5 * MIB, stream, &large));
        const seen_ranges seen = look(large.address + 5 * MIB - 1);
        assert_true(seen.found && look(small.address).found);
        assert_int_equal(seen.bytes, value_of(runtime, "pool.reserved"));
        assert_true(seen.small >= 1000 && seen.bytes - seen.small >= 5 * MIB);
        check_ok(strata_runtime_deallocate(runtime, &small));
        check_ok(strata_runtime_deallocate(runtime, &large));
        check_ok(strata_runtime_trim(runtime, 0, NULL));
        assert_int_equal(look(0).bytes, value_of(runtime, "pool.reserved"));
        end();
    }
}

static void many_extents_are_read_in_parts(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    strata_block blocks[COUNT];
    begin("pool(cache=1)");
    for (size_t i = 0; i < COUNT; i++)
        check_ok(strata_runtime_allocate(runtime, 300000, stream, &blocks[i]));
    for (size_t i = 0; i < COUNT; i += 2)
        check_ok(strata_runtime_deallocate(runtime, &blocks[i]));
    assert_int_equal(look(0).bytes, value_of(runtime, "pool.reserved"));
    for (size_t i = 1; i < COUNT; i += 2) {
        assert_true(look(blocks[i].address).found);
        check_ok(strata_runtime_deallocate(runtime, &blocks[i]));
    }
    end();
}

static void a_stack_without_a_pool_is_refused(void **state)
{
    (void)state;
    begin("direct");
    strata_resource *top = strata_stack_top(strata_runtime_stack(runtime));
    check_status(strata_pool_visit_ranges(top, see, &(seen_ranges){0}), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_pool_visit_ranges(NULL, see, &(seen_ranges){0}), STRATA_ERROR_INVALID_VALUE);
    end();
    begin("pool");
    top = strata_stack_top(strata_runtime_stack(runtime));
    check_status(strata_pool_visit_ranges(top, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    end();
}

static void the_watermark_begins_again_when_it_is_set(void **state)
{
    (void)state;
    strata_block block;
    begin("pool");
    check_ok(strata_runtime_allocate(runtime, 64 * MIB, stream, &block));
    const uint64_t most = value_of(runtime, "pool.reserved");
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_trim(runtime, 0, NULL));
    assert_int_equal(value_of(runtime, "pool.reserved.watermark"), most);
    check_ok(strata_control_set_text(strata_runtime_stack(runtime), "pool.reserved.watermark", "0"));
    const uint64_t now = value_of(runtime, "pool.reserved");
    assert_true(now < most);
    assert_int_equal(value_of(runtime, "pool.reserved.watermark"), now);
    check_ok(strata_runtime_allocate(runtime, 8 * MIB, stream, &block));
    assert_int_equal(value_of(runtime, "pool.reserved.watermark"), value_of(runtime, "pool.reserved"));
    assert_int_equal(value_of(runtime, "pool.reserved.peak"), most);
    check_ok(strata_runtime_deallocate(runtime, &block));
    end();
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_pool_has_no_range),
        cmocka_unit_test(ranges_hold_all_blocks_and_all_that_is_reserved),
        cmocka_unit_test(many_extents_are_read_in_parts),
        cmocka_unit_test(a_stack_without_a_pool_is_refused),
        cmocka_unit_test(the_watermark_begins_again_when_it_is_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
