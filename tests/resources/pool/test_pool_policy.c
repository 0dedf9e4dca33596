/* pool: how much memory it holds (resources/pool/policy.h). */
#include <pthread.h>
#include <stdlib.h>

#include "support/child.h"
#include "support/pool.h"
#include "support/pool_inside.h"

#define GIB (1024 * MIB)

enum { BLOCKS = 32 };

typedef struct traffic {
    strata_runtime *runtime;
    pool *self;
    CUstream stream;
    strata_block blocks[BLOCKS];
    uint32_t seed;
} traffic;

static void begin(traffic *all, const char *stack)
{
    needs_granule(2 * MIB);
    test_needs_truthful_queries();
    *all = (traffic){.seed = 7};
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stack}, &all->runtime));
    check_ok(strata_runtime_stream_acquire(all->runtime, &all->stream));
    all->self = pool_inside(all->runtime);
}

static void replace(traffic *all, strata_block *block, size_t bytes)
{
    if (block->id.generation)
        check_ok(strata_runtime_deallocate(all->runtime, block));
    *block = (strata_block){0};
    if (bytes)
        check_ok(strata_runtime_allocate(all->runtime, bytes, all->stream, block));
}

static void end(traffic *all)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        replace(all, &all->blocks[i], 0);
    check_ok(strata_runtime_stream_release(all->runtime, all->stream));
    check_ok(strata_runtime_destroy(all->runtime));
}

static uint32_t draw(traffic *all)
{
    all->seed = all->seed * 1664525 + 1013904223;
    return all->seed >> 8;
}

static uint64_t value(const traffic *all, const char *name)
{
    return value_of(all->runtime, name);
}

/* Every second of the first `freed` blocks is freed: gaps between live ones. */
static void make_gaps(traffic *all, unsigned count, unsigned freed, size_t bytes)
{
    for (unsigned i = 0; i < count; i++)
        replace(all, &all->blocks[i], bytes);
    for (unsigned i = 0; i < freed; i += 2)
        replace(all, &all->blocks[i], 0);
    test_synchronize(all->stream); /* only complete memory is moved without a wait */
}

static void make_holes(traffic *all, unsigned count, unsigned freed)
{
    make_gaps(all, count, freed, 64 * MIB);
}

/* ---- the rule ---- */

/* Beyond a peak of 1 GiB. */
static uint64_t thousandths(uint64_t share)
{
    return GIB * share / 1000;
}

static uint64_t in_granules(uint64_t bytes)
{
    return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

/* A block that fits no gap of 32 MiB, and that may be made beyond a peak of 1 GiB: once. */
static size_t beyond_once(void)
{
    const size_t bytes = in_granules(thousandths(POOL_SHARE)) - 2 * MIB;
    assert_in_range(bytes, 34 * MIB, 64 * MIB);
    return bytes;
}

static void a_share_of_the_peak_may_be_held_beyond_it(void **state)
{
    (void)state;
    traffic all;
    begin(&all, "pool(decay=0)");
    make_gaps(&all, 32, 32, 32 * MIB);
    assert_int_equal(value(&all, "pool.reserved"), GIB);
    replace(&all, &all.blocks[0], beyond_once());
    assert_int_equal(value(&all, "pool.allowed"), in_granules(GIB + thousandths(POOL_SHARE)) + 2 * MIB);
    assert_int_equal(value(&all, "pool.chunks.moved"), 0);
    assert_in_range(value(&all, "pool.reserved"), GIB + beyond_once(), value(&all, "pool.allowed"));
    const uint64_t reserved = value(&all, "pool.reserved");
    replace(&all, &all.blocks[2], beyond_once()); /* beyond: what is free is moved */
    assert_true(value(&all, "pool.chunks.moved") > 0);
    assert_in_range(value(&all, "pool.reserved"), reserved, value(&all, "pool.allowed"));
    end(&all);
}

/* ---- questions to streams ---- */

static uint64_t bought_with(traffic *all, uint64_t questions)
{
    weigh_questions(all->self, questions);
    return value(all, "pool.bought");
}

/* Where streams are asked at each fourth request, memory of this order spares few questions. */
static void frequent_questions_buy_each_time_and_very_frequent_ones_once(void **state)
{
    (void)state;
    traffic all;
    begin(&all, "pool(decay=0)");
    replace(&all, &all.blocks[0], 64 * MIB);
    assert_int_equal(bought_with(&all, 63), 0);
    assert_int_equal(bought_with(&all, 256), POOL_SHARE_POLLING);
    assert_int_equal(bought_with(&all, 256), POOL_SHARE_POLLING);
    assert_int_equal(bought_with(&all, 128), POOL_SHARE_POLLING);
    assert_int_equal(bought_with(&all, 127), POOL_SHARE_POLLING + POOL_SHARE_POLLED);
    assert_int_equal(bought_with(&all, 63), POOL_SHARE_POLLING + POOL_SHARE_POLLED);
    assert_int_equal(bought_with(&all, 64), POOL_SHARE_POLLING + 2 * POOL_SHARE_POLLED);
    assert_int_equal(bought_with(&all, 256), POOL_SHARE_POLLING);
    for (unsigned i = 0; i < 20; i++)
        bought_with(&all, 100);
    assert_int_equal(value(&all, "pool.bought"), POOL_POLLING_MOST);
    replace(&all, &all.blocks[0], 0);
    check_ok(strata_runtime_trim(all.runtime, 0, NULL)); /* begins anew */
    assert_int_equal(value(&all, "pool.bought"), 0);
    end(&all);
}

static void add_small(const strata_pool_range *range, void *bytes)
{
    *(uint64_t *)bytes += range->small ? range->bytes : 0;
}

static uint64_t bytes_for_small_blocks(const traffic *all)
{
    uint64_t bytes = 0;
    check_ok(strata_pool_visit_ranges(&all->self->resource, add_small, &bytes));
    return bytes;
}

/* With `count` free small blocks beside gaps, large requests move memory. Returns what small blocks have lost. */
static uint64_t small_memory_moved_of(const char *stack, unsigned count, uint64_t polling_share)
{
    traffic all;
    strata_block small[64];
    begin(&all, stack);
    earn_nothing(all.self);
    for (unsigned i = 0; i < count; i++)
        check_ok(strata_runtime_allocate(all.runtime, 512 << 10, all.stream, &small[i]));
    make_gaps(&all, 32, 32, 32 * MIB);
    for (unsigned i = 0; i < count; i++)
        check_ok(strata_runtime_deallocate(all.runtime, &small[i]));
    const uint64_t before = bytes_for_small_blocks(&all);
    assert_true(before >= count * MIB / 2);
    set_polling_share(all.self, polling_share);
    for (unsigned i = 0; i < 4; i += 2)
        replace(&all, &all.blocks[i], beyond_once());
    assert_true(value(&all, "pool.chunks.moved") > 0);
    const uint64_t after = bytes_for_small_blocks(&all);
    end(&all);
    return before - after;
}

static const char plain[] = "pool(chunk=2MiB, decay=0)", with_overhead[] = "pool(chunk=2MiB, decay=0, overhead=44)";

static void where_streams_are_often_asked_moves_leave_small_blocks_their_memory(void **state)
{
    (void)state;
    assert_true(small_memory_moved_of(plain, 8, 0) > 0);
    assert_int_equal(small_memory_moved_of(plain, 8, POOL_SHARE_POLLING), 0);
    assert_true(small_memory_moved_of(plain, 64, POOL_SHARE_POLLING) > 0); /* more than a POOL_SMALL_SPARE-th */
    assert_true(small_memory_moved_of(with_overhead, 8, POOL_SHARE_POLLING) > 0);
}

/* Chunks moved for the first small block, with 1 GiB reserved. */
static uint64_t moved_for_small_block_of(const char *stack, uint64_t peak, uint64_t polling_share, uint64_t *made)
{
    traffic all;
    strata_block small;
    begin(&all, stack);
    earn_nothing(all.self);
    make_gaps(&all, 32, 32, 32 * MIB);
    set_peak_live(all.self, peak);
    set_polling_share(all.self, polling_share);
    const uint64_t before = value(&all, "pool.reserved");
    check_ok(strata_runtime_allocate(all.runtime, 512 << 10, all.stream, &small));
    const uint64_t moved = value(&all, "pool.chunks.moved");
    *made = value(&all, "pool.reserved") - before;
    check_ok(strata_runtime_deallocate(all.runtime, &small));
    end(&all);
    return moved;
}

static void where_streams_are_often_asked_small_blocks_get_a_granule_more_than_is_held(void **state)
{
    (void)state;
    uint64_t made;
    const uint64_t peak = 900 * MIB; /* less is allowed than 1 GiB */
    assert_true(moved_for_small_block_of(plain, peak, 0, &made) > 0);
    assert_int_equal(made, 0);
    assert_int_equal(moved_for_small_block_of(plain, peak, POOL_SHARE_POLLING, &made), 0);
    assert_int_equal(made, 2 * MIB);
    assert_true(moved_for_small_block_of(with_overhead, peak, POOL_SHARE_POLLING, &made) > 0); /* which is kept */
    assert_int_equal(made, 0);
    assert_true(moved_for_small_block_of(plain, 512 * MIB, POOL_SHARE_POLLING, &made) > 0);
    assert_int_equal(made, 0);
}

/* Without a bound on what is held for them, it would be the sum of both phases' peaks. */
static void small_blocks_after_large_ones_take_their_memory_where_streams_are_often_asked_too(void **state)
{
    (void)state;
    enum { SMALL = 1024 };
    static strata_block small[SMALL];
    traffic all;
    begin(&all, plain);
    earn_nothing(all.self);
    make_gaps(&all, 32, 32, 32 * MIB);
    for (unsigned i = 0; i < 32; i++)
        replace(&all, &all.blocks[i], 0);
    set_polling_share(all.self, POOL_SHARE_POLLING);
    for (unsigned i = 0; i < SMALL; i++)
        check_ok(strata_runtime_allocate(all.runtime, 512 << 10, all.stream, &small[i]));
    assert_in_range(value(&all, "pool.reserved"), GIB, GIB + GIB / 1000 * POOL_SMALL_MOST + 4 * MIB);
    for (unsigned i = 0; i < SMALL; i++)
        check_ok(strata_runtime_deallocate(all.runtime, &small[i]));
    end(&all);
}

/* ---- moves ---- */

/* By what requests have moved, of which each counts a few chunks alone. */
static uint64_t bought_by(uint64_t counted)
{
    return counted > POOL_MOVES_FREE ? (counted - POOL_MOVES_FREE) * POOL_BUY : 0;
}

/* Until some are bought, or there are no gaps left. Returns what counts as moved. */
static uint64_t move_until_bought(traffic *all)
{
    uint64_t counted = 0, before = value(all, "pool.chunks.moved");
    make_gaps(all, 32, 32, 32 * MIB);
    for (unsigned i = 0; i < 24 && !bought_by(counted); i += 2) {
        replace(all, &all->blocks[i], beyond_once());
        const uint64_t moved = value(all, "pool.chunks.moved") - before;
        assert_true(i < 4 || moved > POOL_BUY_MOST);
        counted += moved < POOL_BUY_MOST ? moved : POOL_BUY_MOST;
        before += moved;
        assert_int_equal(value(all, "pool.bought"), bought_by(counted));
    }
    return counted;
}

static void chunks_moved_after_the_first_buy_a_share_of_the_peak_some_for_each_request(void **state)
{
    (void)state;
    traffic all;
    begin(&all, "pool(chunk=2MiB, decay=0)");
    const uint64_t counted = move_until_bought(&all);
    assert_true(counted > POOL_MOVES_FREE);
    replace(&all, &all.blocks[24], beyond_once());
    assert_int_equal(value(&all, "pool.allowed"),
                     in_granules(GIB + thousandths(POOL_SHARE + bought_by(counted))) + 2 * MIB);
    end(&all);
}

/* What is left with a block is not the last. */
static void with_the_last_memory_what_was_bought_is_forgotten(void **state)
{
    (void)state;
    traffic all;
    begin(&all, "pool(chunk=2MiB, decay=0)");
    const uint64_t bought = bought_by(move_until_bought(&all));
    assert_true(bought > 0);
    for (unsigned i = 1; i < BLOCKS; i++)
        replace(&all, &all.blocks[i], 0);
    check_ok(strata_runtime_trim(all.runtime, 0, NULL));
    assert_int_equal(value(&all, "pool.bought"), bought);
    replace(&all, &all.blocks[0], 0);
    check_ok(strata_runtime_trim(all.runtime, 0, NULL));
    assert_int_equal(value(&all, "pool.reserved"), 0);
    assert_int_equal(value(&all, "pool.bought"), 0);
    assert_int_equal(bought_by(move_until_bought(&all)), bought); /* as at first */
    end(&all);
}

/* Random large blocks: the more has been moved, the less is moved. */
static void what_goes_on_moving_comes_to_an_end(void **state)
{
    (void)state;
    test_needs_simulated_driver("chunks of a device of 8 GiB");
    test_needs_truthful_queries();
    enum { REQUESTS = 6000, AT_ONCE = 24 };
    traffic all;
    uint64_t moved[2] = {0};
    begin(&all, "pool(decay=0)");
    for (int half = 0; half < 2; half++) {
        const uint64_t before = value(&all, "pool.chunks.moved");
        for (int i = 0; i < REQUESTS; i++) {
            const uint32_t which = draw(&all) % AT_ONCE;
            replace(&all, &all.blocks[which], (1 + draw(&all) % 128) * MIB);
        }
        moved[half] = value(&all, "pool.chunks.moved") - before;
    }
    assert_true(moved[0] > POOL_MOVES_FREE && moved[1] <= moved[0] / 4);
    end(&all);
}

static void a_given_overhead_is_kept(void **state)
{
    (void)state;
    traffic all;
    begin(&all, "pool(overhead=50, decay=0)");
    make_holes(&all, 16, 16);
    for (unsigned i = 0; i < 4; i += 2)
        replace(&all, &all.blocks[i], 126 * MIB);
    assert_true(value(&all, "pool.chunks.moved") > 0);
    assert_int_equal(value(&all, "pool.bought"), 0);
    assert_true(value(&all, "pool.reserved") <= in_granules(GIB + thousandths(50)) + 2 * MIB);
    end(&all);
    begin(&all, "pool(slack=50)"); /* the old name */
    assert_true(share_of_peak(all.runtime) > 0.049 && share_of_peak(all.runtime) < 0.051);
    end(&all);
}

/* No chunk is wholly free, as blocks of 4 MiB lie in chunks of 8. */
static void what_cannot_be_moved_is_made_up_to_the_limit(void **state)
{
    (void)state;
    enum { PARTS = 64 };
    traffic all;
    strata_block parts[PARTS] = {0}, none;
    begin(&all, "pool(overhead=1, decay=0)");
    replace(&all, &all.blocks[0], 256 * MIB);
    replace(&all, &all.blocks[0], 0);
    for (unsigned i = 0; i < PARTS; i++)
        replace(&all, &parts[i], 4 * MIB);
    for (unsigned i = 0; i < PARTS; i += 2)
        replace(&all, &parts[i], 0);
    check_ok(strata_control(strata_runtime_stack(all.runtime), "pool.limit", NULL, &(uint64_t){512 * MIB}));
    replace(&all, &all.blocks[0], 256 * MIB);
    assert_true(value(&all, "pool.allowed") < 400 * MIB);
    assert_int_equal(value(&all, "pool.reserved"), 512 * MIB);
    check_status(strata_runtime_allocate(all.runtime, 6 * MIB, all.stream, &none), STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(value(&all, "pool.chunks.moved") + value(&all, "pool.bought"), 0);
    for (unsigned i = 1; i < PARTS; i += 2)
        replace(&all, &parts[i], 0);
    end(&all);
}

static void half_of_what_is_left_below_a_limit_is_held_at_most(void **state)
{
    (void)state;
    traffic all;
    begin(&all, "pool(max_size=1088MiB, prefer=speed, decay=0)");
    make_holes(&all, 16, 0);
    assert_int_equal(value(&all, "pool.allowed"), GIB + 32 * MIB + 2 * MIB);
    assert_int_equal(value(&all, "pool.limit.nearest"), 1088 * MIB);
    end(&all);
    begin(&all, "pool(max_size=1024MiB, decay=0)"); /* down to nothing at the limit */
    make_holes(&all, 16, 16);
    assert_int_equal(value(&all, "pool.reserved"), GIB);
    replace(&all, &all.blocks[0], 512 * MIB);
    assert_int_equal(value(&all, "pool.reserved"), GIB);
    end(&all);
}

/* The nearest limit before and after another program takes a GiB. */
static void look_beside_another(const char *stack, uint64_t nearest[2])
{
    traffic all;
    CUdeviceptr other;
    begin(&all, stack);
    replace(&all, &all.blocks[0], 64 * MIB);
    nearest[0] = value(&all, "pool.limit.nearest");
    check_cu(test_cu()->MemAlloc(&other, GIB));
    replace(&all, &all.blocks[1], 64 * MIB);
    nearest[1] = value(&all, "pool.limit.nearest");
    check_cu(test_cu()->MemFree(other));
    end(&all);
}

/* Above, a budget counts what is live, below what is reserved. */
static void budgets_above_and_below_count_as_limits(void **state)
{
    static const char *const stacks[] = {"budget(limit=1088MiB), pool(prefer=speed, decay=0)",
                                         "pool(prefer=speed, decay=0), budget(limit=1088MiB), async"};
    (void)state;
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        traffic all;
        begin(&all, stacks[i]);
        make_holes(&all, 16, 0);
        assert_int_equal(value(&all, "pool.limit.nearest"), 1088 * MIB);
        assert_int_equal(value(&all, "pool.allowed"), 1024 * MIB + 32 * MIB + 2 * MIB);
        end(&all);
    }
}

static void a_budget_of_another_branch_is_no_limit(void **state)
{
    (void)state;
    traffic all;
    begin(&all, "fallback(budget(limit=64MiB), pool(decay=0) | pool(decay=0))");
    make_holes(&all, 4, 0);
    assert_int_equal(value(&all, "pool.limit.nearest"), 64 * MIB);
    assert_true(value(&all, "pool[1].limit.nearest") > GIB);
    end(&all);
}

static void what_the_device_has_left_counts_as_a_limit(void **state)
{
    (void)state;
    uint64_t nearest[2];
    look_beside_another("pool(decay=0)", nearest);
    assert_in_range(nearest[1], nearest[0] - GIB - 2 * MIB, nearest[0] - GIB + 2 * MIB);
    look_beside_another("pool(deterministic=on)", nearest); /* equal calls, equal addresses, whatever others hold */
    assert_int_equal(nearest[0], nearest[1]);
}

/* ---- preferences ---- */

static uint64_t held_after_holes(const char *stack, uint64_t *moved)
{
    traffic all;
    begin(&all, stack);
    make_holes(&all, 16, 16);
    for (int i = 0; i < 8; i += 2)
        replace(&all, &all.blocks[i], 126 * MIB);
    const uint64_t reserved = value(&all, "pool.reserved");
    *moved = value(&all, "pool.chunks.moved");
    end(&all);
    return reserved;
}

static void speed_moves_nothing_while_the_limit_is_far_and_memory_holds_little(void **state)
{
    (void)state;
    uint64_t by_memory, by_default, by_balanced, by_speed;
    const uint64_t memory = held_after_holes("pool(prefer=memory, decay=0)", &by_memory);
    const uint64_t balanced = held_after_holes("pool(prefer=balanced, decay=0)", &by_balanced);
    const uint64_t speed = held_after_holes("pool(prefer=speed, decay=0)", &by_speed);
    assert_int_equal(held_after_holes("pool(decay=0)", &by_default), balanced);
    assert_int_equal(by_default, by_balanced);
    assert_true(by_speed == 0 && by_default > 0 && by_memory > by_default);
    assert_in_range(balanced, memory, speed - 1); /* on an H200 all of the first two is moved */
    assert_true(memory <= in_granules(GIB + thousandths(POOL_SHARE)) + 2 * MIB);
}

static void memory_buys_nothing(void **state)
{
    (void)state;
    traffic all;
    begin(&all, "pool(prefer=memory, decay=0)");
    make_holes(&all, 16, 16);
    for (int i = 0; i < 8; i += 2)
        replace(&all, &all.blocks[i], 126 * MIB);
    assert_true(value(&all, "pool.chunks.moved") > 0);
    assert_int_equal(value(&all, "pool.bought"), 0);
    end(&all);
}

/* Rather than refuse. */
static void speed_moves_memory_at_the_limit(void **state)
{
    (void)state;
    traffic all;
    begin(&all, "pool(max_size=1040MiB, prefer=speed, decay=0)");
    make_holes(&all, 16, 16);
    replace(&all, &all.blocks[0], 512 * MIB);
    assert_true(value(&all, "pool.chunks.moved") > 0);
    assert_true(value(&all, "pool.reserved") <= 1040 * MIB);
    end(&all);
}

/* ---- chunks and growth ---- */

static void a_request_gets_few_chunks_cut_to_its_size(void **state)
{
    (void)state;
    traffic all;
    begin(&all, "pool(decay=0)");
    replace(&all, &all.blocks[0], 10 * MIB);
    assert_int_equal(value(&all, "pool.chunks.made"), 1);
    assert_int_equal(value(&all, "pool.reserved"), 10 * MIB);
    replace(&all, &all.blocks[1], GIB); /* of 8 GiB: chunks of 8 MiB at the end */
    assert_true(value(&all, "pool.chunks.made") <= 1 + 1024 / 8);
    end(&all);
}

static uint64_t chunks_made_for(const char *stack, size_t bytes)
{
    strata_runtime *runtime;
    CUstream stream;
    strata_block block;
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stack}, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    child_ok(strata_runtime_allocate(runtime, bytes, stream, &block));
    uint64_t made;
    child_ok(strata_control(strata_runtime_stack(runtime), "pool.chunks.made", &made, NULL));
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_ok(strata_runtime_stream_release(runtime, stream));
    child_ok(strata_runtime_destroy(runtime));
    return made;
}

static void chunks_of_a_large_device(void)
{
    child_check(chunks_made_for("pool", 32 * MIB) == 1);
    child_check(chunks_made_for("pool", 128 * MIB) == 4);
    child_check(chunks_made_for("pool", 256 * MIB) == 4);
    child_check(chunks_made_for("pool(chunk=16MiB)", 256 * MIB) == 16);
    child_check(chunks_made_for("pool(prefer=memory)", 512 * MIB) == 128);
    child_check(chunks_made_for("pool(prefer=memory)", 256 * MIB) == 128);
    child_check(chunks_made_for("pool(initial_size=32GiB)", MIB) <= 32 * 1024 / 128);
}

static void what_is_made_in_large_steps_is_made_of_few_chunks(void **state)
{
    (void)state;
    static const char *const large_device[] = {"STRATA_SIM_MEMORY=140GiB", NULL};
    test_child_run("chunks_of_a_large_device", large_device);
}

/* So that small requests come to the driver seldom. */
static void memory_grows_by_a_share_of_it_as_far_as_is_allowed(void **state)
{
    (void)state;
    traffic all;
    begin(&all, "pool(decay=0)");
    make_holes(&all, 16, 0);
    replace(&all, &all.blocks[16], 2 * MIB);
    assert_int_equal(value(&all, "pool.reserved"), GIB + GIB / POOL_GROW_SHARE);
    end(&all);
    begin(&all, "pool(max_size=1040MiB, decay=0)"); /* of 16 MiB that are left, half */
    make_holes(&all, 16, 0);
    replace(&all, &all.blocks[16], 2 * MIB);
    assert_in_range(value(&all, "pool.reserved"), GIB + 2 * MIB, value(&all, "pool.allowed"));
    assert_true(value(&all, "pool.allowed") <= GIB + 12 * MIB);
    end(&all);
}

/* ---- what threads keep ---- */

static void *use_the_stream(void *data)
{
    traffic *all = data;
    strata_block block = {0};
    test_make_current();
    replace(all, &block, 4096);
    replace(all, &block, 0);
    return NULL;
}

/* Of 64 MiB 8 MiB are a large part. */
static void a_thread_keeps_a_large_part_of_all_only_from_no_other_of_its_stream(void **state)
{
    (void)state;
    traffic all;
    pthread_t other;
    begin(&all, "pool(decay=0)");
    for (int i = 0; i < 8; i++)
        replace(&all, &all.blocks[i], 8 * MIB);
    replace(&all, &all.blocks[0], 0);
    assert_true(pool_heap_largest(&all.self->heap) < 8 * MIB);
    replace(&all, &all.blocks[0], 8 * MIB);
    assert_int_equal(pthread_create(&other, NULL, use_the_stream, &all), 0);
    pthread_join(other, NULL);
    replace(&all, &all.blocks[0], 0);
    assert_true(pool_heap_largest(&all.self->heap) >= 8 * MIB);
    end(&all);
}

/* ---- small blocks ---- */

static void a_small_block_that_stays_keeps_no_large_chunk(void **state)
{
    (void)state;
    enum { PAIRS = 64 };
    traffic all;
    strata_block large[PAIRS] = {0}, small[PAIRS] = {0};
    begin(&all, "pool(cache=1, decay=0)");
    for (int i = 0; i < PAIRS; i++) {
        replace(&all, &large[i], 12 * MIB);
        replace(&all, &small[i], 24 << 10);
    }
    for (int i = 0; i < PAIRS; i++)
        replace(&all, &large[i], 0);
    size_t bytes;
    check_ok(strata_runtime_trim(all.runtime, 0, &bytes));
    assert_true(value(&all, "pool.reserved") <= 4 * MIB);
    for (int i = 0; i < PAIRS; i++)
        replace(&all, &small[i], 0);
    end(&all);
}

/* Although the large side may hold much more than is live. */
static void small_blocks_get_memory_in_proportion_to_them(void **state)
{
    (void)state;
    enum { SMALL = 256, HALF_MIB = 1 << 19 };
    traffic all;
    strata_block small[SMALL] = {0};
    begin(&all, "pool(decay=0)");
    make_holes(&all, 16, 0);
    for (unsigned i = 0; i < SMALL; i++) {
        replace(&all, &small[i], HALF_MIB);
        const uint64_t live = (i + 1) * (uint64_t)HALF_MIB, held = value(&all, "pool.reserved") - GIB;
        assert_in_range(held, live, live + live / POOL_SMALL_SHARE + 4 * MIB);
    }
    assert_true(value(&all, "pool.chunks.made") <= GIB / (8 * MIB) + 56); /* one for each 2 MiB would be 64 */
    for (unsigned i = 0; i < SMALL; i++)
        replace(&all, &small[i], 0);
    end(&all);
}

static void memory_of_small_blocks_serves_large_ones_and_the_reverse(void **state)
{
    (void)state;
    enum { SMALL = 256, HALF_MIB = 1 << 19 };
    traffic all;
    strata_block small[SMALL] = {0};
    begin(&all, "pool(max_size=130MiB, decay=0)");
    for (int round = 0; round < 2; round++) {
        replace(&all, &all.blocks[0], 128 * MIB);
        replace(&all, &all.blocks[0], 0);
        for (unsigned i = 0; i < SMALL; i++)
            replace(&all, &small[i], HALF_MIB);
        for (unsigned i = 0; i < SMALL; i++)
            replace(&all, &small[i], 0);
    }
    end(&all);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(chunks_of_a_large_device)};
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_SIM_MEMORY", "8GiB", 1);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequent_questions_buy_each_time_and_very_frequent_ones_once),
        cmocka_unit_test(where_streams_are_often_asked_moves_leave_small_blocks_their_memory),
        cmocka_unit_test(where_streams_are_often_asked_small_blocks_get_a_granule_more_than_is_held),
        cmocka_unit_test(small_blocks_after_large_ones_take_their_memory_where_streams_are_often_asked_too),
        cmocka_unit_test(a_share_of_the_peak_may_be_held_beyond_it),
        cmocka_unit_test(chunks_moved_after_the_first_buy_a_share_of_the_peak_some_for_each_request),
        cmocka_unit_test(with_the_last_memory_what_was_bought_is_forgotten),
        cmocka_unit_test(what_goes_on_moving_comes_to_an_end),
        cmocka_unit_test(a_given_overhead_is_kept),
        cmocka_unit_test(what_cannot_be_moved_is_made_up_to_the_limit),
        cmocka_unit_test(half_of_what_is_left_below_a_limit_is_held_at_most),
        cmocka_unit_test(budgets_above_and_below_count_as_limits),
        cmocka_unit_test(a_budget_of_another_branch_is_no_limit),
        cmocka_unit_test(what_the_device_has_left_counts_as_a_limit),
        cmocka_unit_test(speed_moves_nothing_while_the_limit_is_far_and_memory_holds_little),
        cmocka_unit_test(memory_buys_nothing),
        cmocka_unit_test(speed_moves_memory_at_the_limit),
        cmocka_unit_test(a_request_gets_few_chunks_cut_to_its_size),
        cmocka_unit_test(what_is_made_in_large_steps_is_made_of_few_chunks),
        cmocka_unit_test(memory_grows_by_a_share_of_it_as_far_as_is_allowed),
        cmocka_unit_test(a_thread_keeps_a_large_part_of_all_only_from_no_other_of_its_stream),
        cmocka_unit_test(a_small_block_that_stays_keeps_no_large_chunk),
        cmocka_unit_test(small_blocks_get_memory_in_proportion_to_them),
        cmocka_unit_test(memory_of_small_blocks_serves_large_ones_and_the_reverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
