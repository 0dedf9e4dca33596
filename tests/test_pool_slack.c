/* pool: memory that has to be moved again and again becomes more, and such that is moved for a while does not. */
#include <stdlib.h>

#include "core/stack.h"
#include "pool_support.h"
#include "resources/pool/slack.h"
#include "support/refusals.h"

enum { BLOCKS = 24, ROUND = 250 };

/* One stream, with large blocks that come and go, and between them small ones that no cache serves either. */
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
    *all = (traffic){.seed = 7};
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stack}, &all->runtime));
    check_ok(strata_runtime_stream_acquire(all->runtime, &all->stream));
    all->self = (pool *)strata_stack_layer(strata_runtime_stack(all->runtime), "pool", 0);
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

static uint32_t draw(traffic *all, uint32_t below)
{
    all->seed = all->seed * 1664525 + 1013904223;
    return (uint32_t)(((uint64_t)all->seed >> 8) * below >> 24);
}

static uint64_t moved(const traffic *all)
{
    return value_of(all->runtime, "pool.frames.moved");
}

static void take_small_ones(traffic *all, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        strata_block block = {0};
        replace(all, &block, (size_t)512 << i % 2);
        replace(all, &block, 0);
    }
}

/* Rounds of ROUND large requests each, with so many small ones for each of them; the frames moved for the last half. */
static uint64_t work(traffic *all, unsigned rounds, unsigned small)
{
    uint64_t before = 0;
    for (unsigned done = 0; done < rounds * ROUND; done++) {
        before = done == rounds * ROUND / 2 ? moved(all) : before;
        strata_block *block = &all->blocks[draw(all, BLOCKS)];
        replace(all, block, (1 + draw(all, 128)) * MIB);
        take_small_ones(all, small);
    }
    return moved(all) - before;
}

/* ---- a frame for every few requests ---- */

static void memory_that_is_moved_all_the_time_becomes_more(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    traffic kept, more;
    begin(&kept, "pool(slack=44)");
    begin(&more, "pool");
    const uint64_t kept_moves = work(&kept, 12, 0), moves = work(&more, 12, 0);
    print_message("%llu frames moved, %llu with slack %.3f\n", (unsigned long long)kept_moves,
                  (unsigned long long)moves, more.self->bought.slack);
    assert_true(kept.self->bought.slack == 0 && more.self->bought.slack >= 0.10 && more.self->bought.slack <= 0.3);
    assert_true(moves < kept_moves / 2);
    end(&more);
    end(&kept);
}

/* ---- fewer, without an end ---- */

static void moving_that_does_not_end_buys_memory(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    traffic kept, more;
    begin(&kept, "pool(cache=1, slack=44)");
    begin(&more, "pool(cache=1)");
    const uint64_t kept_moves = work(&kept, 16, 20), moves = work(&more, 16, 20);
    print_message("%llu frames moved, %llu with slack %.3f\n", (unsigned long long)kept_moves,
                  (unsigned long long)moves, more.self->bought.slack);
    assert_true(kept.self->bought.slack == 0 && more.self->bought.slack > 0.09 && more.self->bought.slack <= 0.25);
    assert_true(moves < kept_moves * 3 / 4);
    end(&more);
    end(&kept);
}

static void seldom_moving_buys_none(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    traffic all;
    begin(&all, "pool(cache=1)");
    work(&all, 5, 300);
    assert_true(moved(&all) * 2 * MIB > all.self->pages.reserved && all.self->bought.slack == 0);
    end(&all);
}

static int by_address(const void *a, const void *b)
{
    const strata_block *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

/* Every other block is replaced by a larger one, which fits nowhere: what the old ones had is moved. */
static void moving_while_memory_grows_buys_none(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    traffic all;
    begin(&all, "pool(cache=1)");
    size_t bytes = 16 * MIB;
    for (unsigned i = 0; i < BLOCKS; i++)
        replace(&all, &all.blocks[i], bytes);
    for (unsigned phase = 0; phase < 16; phase++) {
        bytes += bytes / 8 / (2 * MIB) * (2 * MIB);
        qsort(all.blocks, BLOCKS, sizeof *all.blocks, by_address);
        for (unsigned i = 0; i < BLOCKS; i += 2)
            replace(&all, &all.blocks[i], 0);
        for (unsigned i = 0; i < BLOCKS; i += 2) {
            replace(&all, &all.blocks[i], bytes);
            take_small_ones(&all, 50);
        }
    }
    assert_true(all.self->bought.slack == 0);
    assert_true(moved(&all) > 700);
    end(&all);
}

/* ---- the rule ---- */

enum { FRAMES = 64 }; /* that there are in a pool of one block */

static void begin_rule(traffic *all, strata_block *block)
{
    begin(all, "pool");
    *block = (strata_block){0};
    replace(all, block, FRAMES * 2 * MIB);
    assert_int_equal(all->self->pages.reserved, FRAMES * 2 * MIB);
    assert_true(pool_slack_now(all->self) == 0.044);
}

static void end_rule(traffic *all, strata_block *block)
{
    replace(all, block, 0);
    end(all);
}

/* So many frames are moved, and so many requests come for each. */
static double slack_after(pool *self, uint64_t frames, uint64_t requests)
{
    atomic_fetch_add(&self->counts.misses, frames * requests);
    pool_slack_note_moves(self, frames, frames * 2 * MIB);
    return pool_slack_now(self);
}

static bool is_about(double value, double expected)
{
    return value > expected - 1e-9 && value < expected + 1e-9;
}

static void what_does_not_end_buys_a_quarter_at_most(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, &block);
    assert_true(is_about(slack_after(all.self, FRAMES - 1, 200), 0.044));
    assert_true(is_about(slack_after(all.self, 1, 200), 0.094));
    for (double slack = 0.144; slack < 0.25; slack += 0.05)
        assert_true(is_about(slack_after(all.self, FRAMES, 200), slack));
    for (int i = 0; i < 3; i++)
        assert_true(is_about(slack_after(all.self, FRAMES, 200), 0.25));
    assert_true(is_about(slack_after(all.self, FRAMES * 200, 1), 0.30)); /* but a frame for every few */
    end_rule(&all, &block);
}

static void it_counts_since_what_was_live_at_most_changed(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, &block);
    pool *self = all.self;
    const uint64_t peak = self->peak_live;
    assert_true(is_about(slack_after(self, FRAMES - 1, 200), 0.044));
    self->peak_live = peak + peak / 32; /* a little more is as much as before */
    assert_true(is_about(slack_after(self, 1, 200), 0.094));
    assert_true(is_about(slack_after(self, FRAMES - 1, 200), 0.094));
    self->peak_live += peak / 32;
    assert_true(is_about(slack_after(self, FRAMES - 1, 200), 0.094)); /* from here on */
    assert_true(is_about(slack_after(self, FRAMES - 1, 200), 0.094));
    assert_true(is_about(slack_after(self, 1, 200), 0.144));
    assert_true(is_about(slack_after(self, FRAMES - 1, 200), 0.144));
    self->peak_live = peak / 2; /* what lay unused was given back */
    assert_true(is_about(slack_after(self, FRAMES, 200), 0.144));
    assert_true(is_about(slack_after(self, FRAMES, 200), 0.194));
    end_rule(&all, &block);
}

static void a_frame_for_every_300_requests_buys_none(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, &block);
    assert_true(is_about(slack_after(all.self, 10 * FRAMES, 300), 0.044));
    end_rule(&all, &block);
}

int main(void)
{
    setenv("STRATA_SIM_MEMORY", "8GiB", 1);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_moved_all_the_time_becomes_more),
        cmocka_unit_test(moving_that_does_not_end_buys_memory),
        cmocka_unit_test(seldom_moving_buys_none),
        cmocka_unit_test(moving_while_memory_grows_buys_none),
        cmocka_unit_test(what_does_not_end_buys_a_quarter_at_most),
        cmocka_unit_test(it_counts_since_what_was_live_at_most_changed),
        cmocka_unit_test(a_frame_for_every_300_requests_buys_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
