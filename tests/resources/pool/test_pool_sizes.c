/* Blocks of mixed sizes come from a thread's cache. */
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/sweep.h"

static uint64_t hits(test_fixture *fixture)
{
    return value_of(fixture->runtime, "pool.hits");
}

/* Sixteen live blocks of any size up to 64 KiB: after a while nearly all come from the cache. */
static void near_sizes_find_each_others_memory(test_fixture *fixture)
{
    enum { LIVE = 16, WARM = 500, COUNTED = 2000, LARGEST = 64 << 10 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block live[LIVE] = {{0}};
    uint64_t random = 1, before = 0;
    if (test_is_swept())
        return;
    for (size_t i = 0; i < WARM + COUNTED; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        strata_block *one = &live[(random >> 40) % LIVE];
        if (one->address)
            test_free_on(fixture, one, stream);
        const size_t bytes = 1 + (random >> 20) % LARGEST;
        *one = test_allocate(fixture, bytes, stream);
        assert_true(one->bytes <= bytes + POOL_GRANULE + bytes / 8);
        before = i == WARM ? hits(fixture) : before;
    }
    assert_true(hits(fixture) - before >= COUNTED * 95 / 100);
    assert_true(test_usage(fixture).reserved_peak <= 8U << 20);
    for (size_t i = 0; i < LIVE; i++)
        test_free_on(fixture, &live[i], stream);
}

/* None, those around the ends of classes, and those that would wrap around if they were rounded up. */
static void every_size_has_a_bin(void **state)
{
    (void)state;
    pool_stream_cache cache = {0};
    for (unsigned bit = 0; bit < 64; bit++)
        for (int64_t near = -(int64_t)POOL_GRANULE; near <= POOL_GRANULE; near += POOL_GRANULE / 2)
            for (int64_t step = -1; step <= 1; step++) {
                const uint64_t bytes = (UINT64_C(1) << bit) + (uint64_t)near + (uint64_t)step;
                const uint64_t granules = pool_granules_for(bytes);
                const pool_bin *bin = pool_bin_of(&cache, granules);
                assert_true(bin >= cache.bins && bin < cache.bins + POOL_BINS);
                assert_true(bytes ? granules > (bytes - 1) / POOL_GRANULE : granules > UINT32_MAX);
            }
}

/* The smallest multiple of a power of two that wastes less than an eighth, as the tables of classes have it. */
static uint64_t class_of(uint64_t granules)
{
    uint64_t step = 1;
    while (granules > 16 * step)
        step *= 2;
    return (granules + step - 1) / step * step;
}

static void each_class_has_a_bin_of_its_own(void **state)
{
    (void)state;
    pool_stream_cache cache = {0};
    const pool_bin *last = NULL;
    for (uint64_t granules = 1, before = 0; granules <= POOL_CLASSED; granules++) {
        const pool_bin *bin = pool_bin_of(&cache, granules);
        const uint64_t class = pool_granules_for(granules * POOL_GRANULE);
        assert_int_equal(class, class_of(granules));
        assert_int_equal(bin == last, class == before);
        assert_true(bin < cache.bins + POOL_CLASS_BINS);
        last = bin;
        before = class;
    }
}

/* A size between two classes, which a bin can only have from memory that was not rounded. */
static void a_bin_serves_what_its_extents_suffice_for(void **state)
{
    (void)state;
    enum { HAS = 17, CLASS = 18 };
    uint32_t slot;
    static struct {
        strata_entry entry;
        pool_extent extent;
    } memory;
    strata_entry *entry = &memory.entry;
    const pool_heap heap = {.offset = sizeof *entry};
    pool_stream_cache cache = {.granules = HAS};
    pool_bin *bin = pool_bin_of(&cache, CLASS);
    *bin = (pool_bin){.granules = HAS, .last = entry};
    assert_null(pool_bin_for(&cache, CLASS * POOL_GRANULE));
    assert_null(pool_bin_for(&cache, HAS * POOL_GRANULE + 1));
    assert_ptr_equal(pool_bin_for(&cache, HAS * POOL_GRANULE), bin);
    assert_ptr_equal(pool_bin_pop(&heap, &cache, bin, &slot), entry);
    assert_int_equal(cache.granules, 0);
    assert_null(pool_bin_for(&cache, HAS * POOL_GRANULE));
}

static void a_layer_that_asks_for_nothing_gets_nothing(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 512, stream);
    test_free_on(fixture, &block, stream);
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    block.address = 1;
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = 0, .stream = stream}, &block));
    assert_true(strata_block_is_empty(&block));
}

int main(void)
{
    static const char *const stacks[] = {"pool", "budget(limit=4GiB), pool"};
    static const test_case cases[] = {TEST_CASE(near_sizes_find_each_others_memory),
                                      TEST_CASE(a_layer_that_asks_for_nothing_gets_nothing)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_size_has_a_bin),
                                       cmocka_unit_test(each_class_has_a_bin_of_its_own),
                                       cmocka_unit_test(a_bin_serves_what_its_extents_suffice_for)};
    test_open_driver();
    const int failed = test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
    return failed ? failed
                  : test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
