/* pool: the sizes of its chunks. */
#include <stdlib.h>

#include "support/pool.h"
#include "support/refusals.h"

#define DEVICE (8 * 1024 * MIB)

static strata_runtime *runtime;
static CUstream stream;

static void begin(const char *stack)
{
    needs_granule(2 * MIB);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stack}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
}

static void end(void)
{
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_ok(strata_runtime_destroy(runtime));
}

static strata_block take(size_t bytes)
{
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, bytes, stream, &block));
    return block;
}

static void give(strata_block *block)
{
    check_ok(strata_runtime_deallocate(runtime, block));
}

/* Allocates a block. Returns the number of chunks made for it. */
static uint64_t made_for(size_t bytes, strata_block *block)
{
    const uint64_t before = value_of(runtime, "pool.frames.made");
    *block = take(bytes);
    return value_of(runtime, "pool.frames.made") - before;
}

/* The chunks that a new pool makes for a request, without a byte more than needed. */
static uint64_t first_chunks(const char *stack, size_t bytes)
{
    strata_block block;
    begin(stack);
    const uint64_t chunks = made_for(bytes, &block);
    assert_int_equal(value_of(runtime, "pool.reserved"), (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
    give(&block);
    end();
    return chunks;
}

static void a_large_request_gets_few_chunks(void **state)
{
    (void)state;
    assert_int_equal(first_chunks("pool", 64 * MIB), 32);   /* of 2 MiB */
    assert_int_equal(first_chunks("pool", 66 * MIB), 17);   /* of 4, the last one of 2 */
    assert_int_equal(first_chunks("pool", 256 * MIB), 32);  /* of 8 */
    assert_int_equal(first_chunks("pool", 258 * MIB), 17);  /* of 16, the last one of 2 */
    assert_int_equal(first_chunks("pool", 1000 * MIB), 63); /* none is larger */
}

static void none_is_larger_than_the_option_says(void **state)
{
    (void)state;
    assert_int_equal(first_chunks("pool(frame=2MiB)", 256 * MIB), 128);
    assert_int_equal(first_chunks("pool(frame=6MiB)", 256 * MIB), 43);
    assert_int_equal(first_chunks("pool(frame=1GiB)", 256 * MIB), 32);
}

/* An eighth of the limit is made in large ones. */
static void few_of_them_below_a_limit(void **state)
{
    (void)state;
    assert_int_equal(first_chunks("pool(max_size=1000MiB)", 256 * MIB), 15 + (256 - 120) / 2);
    assert_int_equal(first_chunks("pool(max_size=300MiB)", 256 * MIB), 4 + (256 - 32) / 2);
}

/* Two requests while another program has most of the device. The chunks made for each. */
static void chunks_beside_others(const char *stack, uint64_t made[2], size_t *left)
{
    size_t total;
    strata_runtime *others;
    strata_block theirs, first, second;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &others));
    check_ok(strata_runtime_allocate(others, 6 * 1024 * MIB, NULL, &theirs));
    begin(stack);
    check_cu(test_cu()->MemGetInfo(left, &total));
    made[0] = made_for(160 * MIB, &first);
    made[1] = made_for(300 * MIB, &second);
    give(&first);
    give(&second);
    end();
    check_ok(strata_runtime_deallocate(others, &theirs));
    check_ok(strata_runtime_destroy(others));
}

/* An eighth of what the device has left; for a deterministic pool, of all that it has. */
static void few_of_them_where_the_device_has_little(void **state)
{
    (void)state;
    size_t total, left;
    uint64_t made[2];
    check_cu(test_cu()->DeviceTotalMem(&total, 0));
    if (total != DEVICE)
        skip(); /* a real device has too much for this */
    chunks_beside_others("pool", made, &left);
    const uint64_t large = (left / 8 - 160 * MIB) / (16 * MIB);
    assert_in_range(large, 2, 6);
    assert_int_equal(made[0], 20); /* of 8 */
    assert_int_equal(made[1], large + (300 - 16 * large) / 2);
    chunks_beside_others("pool(deterministic=on)", made, &left);
    assert_int_equal(made[0], 20);
    assert_int_equal(made[1], 19); /* of 16 */
}

static void small_ones_where_the_free_memory_is_unknown(void **state)
{
    (void)state;
    test_needs_simulated_driver("it refuses a call");
    test_refuse("cuMemGetInfo", 1, 1, CUDA_ERROR_UNKNOWN);
    const uint64_t chunks = first_chunks("pool", 256 * MIB);
    test_refuse_no_more();
    assert_int_equal(chunks, 128);
}

/* Two large blocks by turns, each too large for the other's place: memory is remapped in few chunks. */
static void large_blocks_are_remapped_in_few_chunks(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    begin("pool");
    strata_block low = take(256 * MIB), wall = take(MIB);
    give(&low);
    test_synchronize(stream);
    test_calls calls;
    test_calls_begin(&calls);
    strata_block high = take(300 * MIB);
    assert_in_range(value_of(runtime, "pool.frames.moved"), 30, 32);
    assert_true(test_calls_of(&calls, "cuMemMap") <= 40 && test_calls_of(&calls, "cuMemCreate") <= 8);
    assert_true(value_of(runtime, "pool.reserved") <= 318 * MIB);
    give(&high);
    give(&wall);
    end();
}

/* No chunk of the first block is wholly free: what the second needs beyond the overhead limit is made, too. */
static void memory_that_cannot_be_remapped_is_made_in_few_chunks(void **state)
{
    (void)state;
    enum { PARTS = 64 };
    strata_block parts[PARTS], low, high;
    begin("pool");
    assert_int_equal(made_for(256 * MIB, &low), 32);
    give(&low);
    for (size_t i = 0; i < PARTS; i++)
        parts[i] = take(256 * MIB / PARTS);
    for (size_t i = 0; i < PARTS; i += 2)
        give(&parts[i]);
    assert_in_range(made_for(256 * MIB, &high), 32, 34);
    assert_int_equal(value_of(runtime, "pool.frames.moved"), 0);
    assert_int_equal(value_of(runtime, "pool.reserved"), 512 * MIB);
    give(&high);
    for (size_t i = 1; i < PARTS; i += 2)
        give(&parts[i]);
    end();
}

int main(void)
{
    setenv("STRATA_SIM_MEMORY", "8GiB", 1);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_request_gets_few_chunks),
        cmocka_unit_test(none_is_larger_than_the_option_says),
        cmocka_unit_test(few_of_them_below_a_limit),
        cmocka_unit_test(few_of_them_where_the_device_has_little),
        cmocka_unit_test(small_ones_where_the_free_memory_is_unknown),
        cmocka_unit_test(large_blocks_are_remapped_in_few_chunks),
        cmocka_unit_test(memory_that_cannot_be_remapped_is_made_in_few_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
