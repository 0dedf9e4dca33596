/* pool: how much a thread caches for a stream. It caches all that fits, whatever came and went before, so that the next
 * requests find it; if not all fits, it keeps what was freed last, and gives back lists in turn. */
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/sweep.h"

enum { CACHE = 1 << 20, QUARTER = CACHE / 4, MOST = 64 };

static uint64_t hits(test_fixture *fixture)
{
    return value_of(fixture->runtime, "pool.hits");
}

/* Allocates that many blocks at once, writes and frees them. Returns how many came from the cache. */
static unsigned have(test_fixture *fixture, unsigned count, size_t bytes, CUstream stream)
{
    strata_block blocks[MOST];
    const uint64_t before = hits(fixture);
    for (unsigned i = 0; i < count; i++)
        blocks[i] = test_allocate(fixture, bytes, stream);
    const uint64_t found = hits(fixture) - before;
    for (unsigned i = 0; i < count; i++)
        test_write(fixture, &blocks[i], 0x22, stream);
    for (unsigned i = 0; i < count; i++)
        test_free_on(fixture, &blocks[i], stream);
    return (unsigned)found;
}

/* A smaller size that shares this one's bin, or the largest one that does not. */
static size_t smaller_size(size_t bytes, bool in_its_place)
{
    static pool_stream_cache cache;
    uint64_t granules = bytes / POOL_GRANULE - 1;
    while ((pool_bin_of(&cache, granules) == pool_bin_of(&cache, bytes / POOL_GRANULE)) != in_its_place)
        granules--;
    assert_true(granules > 0);
    return granules * POOL_GRANULE;
}

/* A call that a sweep makes fail may lead memory elsewhere. */
#define assert_found(found, count) assert_true(test_is_swept() || (found) == (count))

static void what_was_taken_is_not_counted_with_what_is_kept(test_fixture *fixture)
{
    enum { ROUNDS = 8 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    have(fixture, 3, QUARTER, stream);
    for (int i = 0; i < ROUNDS; i++)
        assert_found(have(fixture, 3, QUARTER, stream), 3);
}

static void what_made_way_for_another_size_is_not_counted_with_what_is_kept(test_fixture *fixture)
{
    const size_t small = smaller_size(QUARTER, true), other = smaller_size(QUARTER, false);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    have(fixture, 3, QUARTER, stream);
    have(fixture, 1, small, stream);
    have(fixture, 3, other, stream);
    assert_found(have(fixture, 3, other, stream), 3);
    assert_found(have(fixture, 1, small, stream), 1);
}

static void when_not_all_fits_what_was_freed_last_is_kept(test_fixture *fixture)
{
    const size_t other = smaller_size(QUARTER, false);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    have(fixture, 4, QUARTER, stream);
    have(fixture, 3, other, stream);
    assert_found(have(fixture, 3, other, stream), 3);
}

static void what_went_when_not_all_fitted_is_not_counted_with_what_is_kept(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    have(fixture, 6, QUARTER, stream);
    have(fixture, 4, QUARTER, stream);
    assert_found(have(fixture, 4, QUARTER, stream), 4);
    assert_found(have(fixture, 4, QUARTER, stream), 4);
}

/* Blocks freed by a stream other than their own come as a magazine, which replaces what is cached. */
static void a_magazine_replaces_the_cached_extents_of_its_size(test_fixture *fixture)
{
    enum { BYTES = CACHE / 2 / POOL_MAGAZINE_SIZE };
    strata_block blocks[POOL_MAGAZINE_SIZE + 1];
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL);
    for (int i = 0; i <= POOL_MAGAZINE_SIZE; i++) {
        blocks[i] = test_allocate(fixture, BYTES, writer);
        test_write(fixture, &blocks[i], 0x11, writer);
    }
    have(fixture, 4, QUARTER, stream);
    set_limit(fixture, value_of(fixture->runtime, "pool.reserved"));
    strata_block rest = test_allocate(fixture, value_of(fixture->runtime, "pool.free.largest"), other);
    test_order_after(other, writer);
    for (int i = 0; i <= POOL_MAGAZINE_SIZE; i++) {
        test_copy_back(fixture, blocks[i].address, EDGE, other); /* recorded nowhere */
        test_free_on(fixture, &blocks[i], other);
    }
    const unsigned found = have(fixture, POOL_MAGAZINE_SIZE, BYTES, stream);
    assert_found(found, POOL_MAGAZINE_SIZE - 1); /* all but the one that took the magazine */
    test_free_on(fixture, &rest, other);
}

/* A cached block may be written by unrecorded work on its own stream: a reader on another stream waits for it. */
static void work_on_its_own_stream_is_a_write_of_a_kept_block_too(test_fixture *fixture)
{
    CUstream timeline = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    have(fixture, 1, QUARTER, timeline);
    const uint64_t before = hits(fixture);
    strata_block block = test_allocate(fixture, QUARTER, timeline);
    assert_found(hits(fixture) - before, 1);
    test_stall *stall = test_stall_begin(timeline);
    test_fill(block.address, 0x77, QUARTER / 8, timeline);
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_end(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x77, QUARTER / 8);
    test_free_on(fixture, &block, timeline);
}

int main(void)
{
    static const char *const stacks[] = {"pool(cache=1MiB)"};
    static const test_case cases[] = {
        TEST_CASE(what_was_taken_is_not_counted_with_what_is_kept),
        TEST_CASE(what_made_way_for_another_size_is_not_counted_with_what_is_kept),
        TEST_CASE(when_not_all_fits_what_was_freed_last_is_kept),
        TEST_CASE(what_went_when_not_all_fitted_is_not_counted_with_what_is_kept),
        TEST_CASE(a_magazine_replaces_the_cached_extents_of_its_size),
        TEST_CASE(work_on_its_own_stream_is_a_write_of_a_kept_block_too),
    };
    test_before_clearing = lift_limit;
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
