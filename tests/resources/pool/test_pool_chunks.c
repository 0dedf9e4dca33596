/* pool: the sizes of its chunks. */
#include <stdlib.h>

#include "support/pool.h"
#include "support/pool_inside.h"
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
    const uint64_t before = value_of(runtime, "pool.chunks.made");
    *block = take(bytes);
    return value_of(runtime, "pool.chunks.made") - before;
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

/* For a request of a pool that has `reserved` of the `limit`: each is a power of two, at most a 512th of what is left,
 * and 32 MiB or a quarter of the request; the last one is the rest. */
static uint64_t chunks_by_the_rule(uint64_t limit, uint64_t reserved, size_t bytes)
{
    const uint64_t part = bytes / POOL_CHUNK_PARTS, largest = POOL_CHUNK_LARGEST * MIB,
                   most = part > largest ? part : largest;
    uint64_t count = 0;
    for (uint64_t size; bytes; bytes -= size, reserved += size, count++) {
        for (size = 2 * MIB; 2 * size <= (limit - reserved) / POOL_CHUNK_SHARE && 2 * size <= most; size *= 2)
            ;
        size = size < bytes ? size : bytes;
    }
    return count;
}

static size_t device_left(void)
{
    size_t left, total;
    check_cu(test_cu()->MemGetInfo(&left, &total));
    return left;
}

static void a_large_request_gets_few_chunks(void **state)
{
    (void)state;
    static const size_t requests[] = {2, 6, 64, 66, 256, 258, 1000};
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        const size_t bytes = requests[i] * MIB;
        assert_int_equal(first_chunks("pool", bytes), chunks_by_the_rule(device_left(), 0, bytes));
    }
    const uint64_t of_eight = 1000 / 8;
    assert_true(first_chunks("pool", 1000 * MIB) <= of_eight && first_chunks("pool", 6 * MIB) == 1);
}

static void an_initial_size_gets_as_few_as_one_request_of_so_much(void **state)
{
    (void)state;
    strata_block block;
    const uint64_t requested = first_chunks("pool", DEVICE / 4);
    begin("pool(initial_size=2GiB)");
    assert_int_equal(value_of(runtime, "pool.chunks.made"), requested);
    assert_int_equal(value_of(runtime, "pool.reserved"), DEVICE / 4);
    assert_int_equal(made_for(4096, &block), 1); /* small blocks have chunks of their own */
    assert_int_equal(value_of(runtime, "pool.reserved"), DEVICE / 4 + 2 * MIB);
    strata_block large;
    assert_int_equal(made_for(DEVICE / 8, &large), 0);
    assert_int_equal(value_of(runtime, "pool.chunks.moved"), 0);
    give(&large);
    give(&block);
    end();
}

static void none_is_larger_than_the_option_says(void **state)
{
    (void)state;
    assert_int_equal(first_chunks("pool(chunk=2MiB)", 256 * MIB), 128);
    assert_int_equal(first_chunks("pool(frame=2MiB)", 256 * MIB), 128); /* the old name */
    assert_int_equal(first_chunks("pool(chunk=6MiB)", 256 * MIB), 64);  /* of 4 */
    assert_true(first_chunks("pool(chunk=1GiB)", 256 * MIB) <= first_chunks("pool", 256 * MIB));
}

/* The less is left, the less a chunk may keep. */
static void small_ones_near_a_limit(void **state)
{
    (void)state;
    strata_block first, second;
    assert_int_equal(first_chunks("pool(max_size=1000MiB)", 256 * MIB), 128);
    assert_true(first_chunks("pool(max_size=4200MiB)", 256 * MIB) >= chunks_by_the_rule(4200 * MIB, 0, 256 * MIB));
    begin("pool(max_size=2200MiB)");
    made_for(160 * MIB, &first);
    assert_int_equal(made_for(256 * MIB, &second), 128);
    give(&first);
    give(&second);
    end();
}

/* Two requests while another program has half of the device. The chunks made for each. */
static void chunks_beside_others(const char *stack, uint64_t made[2], size_t *left)
{
    strata_runtime *others;
    strata_block theirs, first, second;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &others));
    check_ok(strata_runtime_allocate(others, DEVICE / 2, NULL, &theirs));
    begin(stack);
    *left = device_left();
    made[0] = made_for(160 * MIB, &first);
    made[1] = made_for(300 * MIB, &second);
    give(&first);
    give(&second);
    end();
    check_ok(strata_runtime_deallocate(others, &theirs));
    check_ok(strata_runtime_destroy(others));
}

/* A share of what the device has left; for a deterministic pool, of all that it has. */
static void small_ones_where_the_device_has_little(void **state)
{
    (void)state;
    size_t total, left;
    uint64_t made[2];
    check_cu(test_cu()->DeviceTotalMem(&total, 0));
    if (total != DEVICE)
        skip(); /* a real device has too much for this */
    chunks_beside_others("pool", made, &left);
    assert_int_equal(made[0], chunks_by_the_rule(left, 0, 160 * MIB));
    assert_int_equal(made[1], chunks_by_the_rule(left, 160 * MIB, 300 * MIB));
    assert_true(made[0] >= 39 && made[1] >= 75); /* nearly all of 4 MiB */
    chunks_beside_others("pool(deterministic=on)", made, &left);
    assert_int_equal(made[0], chunks_by_the_rule(DEVICE, 0, 160 * MIB));
    assert_int_equal(made[1], chunks_by_the_rule(DEVICE, 160 * MIB, 300 * MIB));
    assert_true(made[0] <= 20 && made[1] <= 38);
}

/* The device's refusals show then what is left. */
static void where_the_free_memory_is_unknown_all_of_the_device_counts(void **state)
{
    (void)state;
    test_needs_simulated_driver("it refuses a call");
    test_refuse("cuMemGetInfo", 1, 16, CUDA_ERROR_UNKNOWN);
    const uint64_t chunks = first_chunks("pool", 256 * MIB);
    test_refuse_no_more();
    assert_int_equal(chunks, chunks_by_the_rule(DEVICE, 0, 256 * MIB));
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
    assert_in_range(value_of(runtime, "pool.chunks.moved"), 1, 32);
    assert_true(test_calls_of(&calls, "cuMemMap") <= 40 && test_calls_of(&calls, "cuMemCreate") <= 8);
    assert_true(value_of(runtime, "pool.reserved") <= 318 * MIB);
    give(&high);
    give(&wall);
    end();
}

/* No chunk of the first block is wholly free: what the second needs beyond the overhead is made, too. */
static void memory_that_cannot_be_remapped_is_made_in_few_chunks(void **state)
{
    (void)state;
    enum { PARTS = 64 };
    strata_block parts[PARTS], low, high;
    begin("pool");
    assert_true(made_for(256 * MIB, &low) <= 32);
    give(&low);
    for (size_t i = 0; i < PARTS; i++)
        parts[i] = take(256 * MIB / PARTS);
    for (size_t i = 0; i < PARTS; i += 2)
        give(&parts[i]);
    test_synchronize(stream);
    assert_true(made_for(256 * MIB, &high) <= 34);
    assert_int_equal(value_of(runtime, "pool.chunks.moved"), 0);
    assert_int_equal(value_of(runtime, "pool.reserved"), 512 * MIB);
    give(&high);
    for (size_t i = 1; i < PARTS; i += 2)
        give(&parts[i]);
    end();
}

static void the_old_names_of_values_are_still_found(void **state)
{
    (void)state;
    begin("pool(chunk=2MiB)");
    strata_block block = take(256 * MIB);
    test_synchronize(stream);
    give(&block);
    assert_int_equal(value_of(runtime, "pool.chunks.made"), 128);
    assert_int_equal(value_of(runtime, "pool.frames.made"), 128);
    assert_int_equal(value_of(runtime, "pool.frames.moved"), value_of(runtime, "pool.chunks.moved"));
    assert_int_equal(value_of(runtime, "pool.asked"), value_of(runtime, "pool.polls"));
    end();
}

int main(void)
{
    setenv("STRATA_SIM_MEMORY", "8GiB", 1);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_request_gets_few_chunks),
        cmocka_unit_test(an_initial_size_gets_as_few_as_one_request_of_so_much),
        cmocka_unit_test(none_is_larger_than_the_option_says),
        cmocka_unit_test(small_ones_near_a_limit),
        cmocka_unit_test(small_ones_where_the_device_has_little),
        cmocka_unit_test(where_the_free_memory_is_unknown_all_of_the_device_counts),
        cmocka_unit_test(large_blocks_are_remapped_in_few_chunks),
        cmocka_unit_test(memory_that_cannot_be_remapped_is_made_in_few_chunks),
        cmocka_unit_test(the_old_names_of_values_are_still_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
