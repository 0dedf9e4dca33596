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

int main(void)
{
    static const char *const stacks[] = {"pool", "budget(limit=4GiB), pool"};
    static const test_case cases[] = {TEST_CASE(near_sizes_find_each_others_memory)};
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
