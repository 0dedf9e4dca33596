/* pool: memory grows if remapping takes much of the time, and not if it is remapped for a while. */
#include <stdlib.h>

#include "core/base/timestamp.h"
#include "core/stack/stack.h"
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/refusals.h"

enum { BLOCKS = 24, ROUND = 250 };

#define MILLISECOND UINT64_C(1000000)

/* One stream, with large blocks that come and go. */
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

static uint32_t draw(traffic *all, uint32_t below)
{
    all->seed = all->seed * 1664525 + 1013904223;
    return (uint32_t)(((uint64_t)all->seed >> 8) * below >> 24);
}

static uint64_t remapped(const traffic *all)
{
    return value_of(all->runtime, "pool.frames.moved");
}

/* Rounds of ROUND large requests each. Returns the chunks remapped for them. */
static uint64_t work(traffic *all, unsigned rounds)
{
    const uint64_t before = remapped(all);
    for (unsigned done = 0; done < rounds * ROUND; done++) {
        strata_block *block = &all->blocks[draw(all, BLOCKS)];
        replace(all, block, (1 + draw(all, 128)) * MIB);
    }
    return remapped(all) - before;
}

/* ---- remapping that takes the time ---- */

static void memory_grows_if_it_is_remapped_all_the_time(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    traffic kept, more;
    begin(&kept, "pool(slack=44)");
    begin(&more, "pool");
    unsigned rounds = 0;
    while (earned_by_remapping(more.self) < 0.20 && rounds++ < 1000)
        work(&more, 1);
    work(&kept, 12);
    const uint64_t remapped_kept = work(&kept, 12), remapped_more = work(&more, 12);
    print_message("%llu frames moved, %llu with slack %.3f after %u rounds\n", (unsigned long long)remapped_kept,
                  (unsigned long long)remapped_more, earned_by_remapping(more.self), rounds);
    assert_true(earned_by_remapping(kept.self) == 0 && earned_by_remapping(more.self) >= 0.20);
    assert_true(remapped_more < remapped_kept / 4);
    end(&more);
    end(&kept);
}

/* A program that works on its data 20 times as long as a request takes. On a busy machine, remapping a chunk may take
 * as long as 20 ms: such requests do not count. */
static void remapping_that_is_a_small_part_of_the_time_adds_none(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    traffic all;
    unsigned forgotten = 0;
    begin(&all, "pool(cache=1)");
    for (unsigned done = 0; done < 4 * ROUND; done++) {
        const uint64_t before = strata_timestamp_clock();
        replace(&all, &all.blocks[draw(&all, BLOCKS)], (1 + draw(&all, 128)) * MIB);
        const uint64_t took = strata_timestamp_clock() - before;
        if (took > 4 * MILLISECOND) {
            forget_remapping(all.runtime);
            forgotten++;
        }
        while (strata_timestamp_clock() - before < 21 * took)
            continue;
    }
    print_message("%llu frames moved of %llu, %u requests took too long\n", (unsigned long long)remapped(&all),
                  (unsigned long long)reserved_inside(all.self) / (2 * MIB), forgotten);
    assert_true(remapped(&all) * 2 * MIB > reserved_inside(all.self) / 2 && earned_by_remapping(all.self) == 0);
    end(&all);
}

/* ---- the rule ---- */

enum { CHUNKS = 64, EIGHTH = CHUNKS / 8 }; /* chunks of a pool with one block */

static void begin_rule(traffic *all, const char *stack, strata_block *block)
{
    begin(all, stack);
    *block = (strata_block){0};
    replace(all, block, CHUNKS * 2 * MIB);
    assert_int_equal(reserved_inside(all->self), CHUNKS * 2 * MIB);
    pool_overhead_now(all->self); /* records the peak of live bytes */
}

static void end_rule(traffic *all, strata_block *block)
{
    replace(all, block, 0);
    end(all);
}

/* A pause of so many milliseconds, */
static void pause_for(pool *self, uint64_t milliseconds)
{
    shift_window(self, milliseconds * MILLISECOND);
}

/* or work, with a request each millisecond, */
static void work_for(pool *self, uint64_t milliseconds)
{
    count_misses(self, milliseconds);
    pause_for(self, milliseconds);
}

/* and then remapping for so long. */
static void remap(pool *self, uint64_t chunks, uint64_t milliseconds)
{
    pause_for(self, milliseconds);
    pool_overhead_record_remapping(self, pool_overhead_clock(self) - milliseconds * MILLISECOND, chunks * 2 * MIB);
}

static double overhead_after(pool *self, uint64_t else_ms, uint64_t chunks, uint64_t moving_ms)
{
    restart_window(self);
    work_for(self, else_ms);
    remap(self, chunks, moving_ms);
    return pool_overhead_now(self);
}

static bool is_about(double value, double expected)
{
    return value > expected - 1e-6 && value < expected + 1e-6;
}

static void an_eighth_of_memory_remapped_in_a_quarter_of_the_time_adds_a_tenth(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool", &block);
    pool *self = all.self;
    assert_true(is_about(overhead_after(self, 0, EIGHTH - 1, 40), 0.044)); /* too little memory */
    assert_true(is_about(overhead_after(self, 140, EIGHTH, 40), 0.044));   /* in too much time, */
    assert_true(is_about(overhead_after(self, 0, EIGHTH, 1), 0.044));      /* or in too little to tell */
    assert_true(is_about(overhead_after(self, 60, EIGHTH, 40), 0.144));
    assert_true(is_about(pool_overhead_now(self), 0.144)); /* once */
    assert_true(is_about(overhead_after(self, 0, EIGHTH, 30), 0.244));
    end_rule(&all, &block);
}

static void many_small_remappings_count_together(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool", &block);
    pool *self = all.self;
    restart_window(self);
    for (int i = 0; i < EIGHTH - 1; i++) {
        work_for(self, 5);
        remap(self, 1, 10);
    }
    assert_true(is_about(pool_overhead_now(self), 0.044));
    remap(self, 1, 10);
    assert_true(is_about(pool_overhead_now(self), 0.144));
    end_rule(&all, &block);
}

static void what_was_long_ago_is_forgotten_and_so_is_the_time(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool", &block);
    pool *self = all.self;
    restart_window(self);
    remap(self, EIGHTH - 1, 40);
    work_for(self, 2000);
    for (int i = 0; i < EIGHTH - 1; i++)
        remap(self, 1, 10);
    assert_true(is_about(pool_overhead_now(self), 0.044));
    remap(self, 1, 10);
    assert_true(is_about(pool_overhead_now(self), 0.144));
    work_for(self, 3600 * 1000);
    assert_true(is_about(pool_overhead_now(self), 0.144));
    remap(self, EIGHTH, 100);
    assert_true(is_about(pool_overhead_now(self), 0.244));
    end_rule(&all, &block);
}

static void it_adds_at_most_the_peak_of_live_bytes(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool", &block);
    for (int i = 0; i < 20; i++)
        overhead_after(all.self, 0, EIGHTH, 30);
    assert_true(is_about(pool_overhead_now(all.self), 1.0));
    end_rule(&all, &block);
}

static void it_adds_what_a_limit_leaves_and_half_of_what_a_device_leaves(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool(max_size=144MiB)", &block); /* all but a twelfth of it: 4 of 128 MiB */
    assert_true(is_about(overhead_after(all.self, 0, EIGHTH, 30), 0.044));
    end_rule(&all, &block);
    begin_rule(&all, "pool(max_size=168MiB)", &block); /* 26 */
    assert_true(is_about(overhead_after(all.self, 0, EIGHTH, 30), 0.144));
    assert_true(is_about(overhead_after(all.self, 0, EIGHTH, 30), 26.0 / 128));
    end_rule(&all, &block);
    begin_rule(&all, "pool", &block); /* an eighth of the device */
    const uint64_t total = device_total(all.self);
    set_peak_live(all.self, total / 8 * 7);
    pool_overhead_now(all.self);
    assert_true(is_about(overhead_after(all.self, 0, EIGHTH, 30), 1.0 / 14));
    set_peak_live(all.self, total);
    assert_true(is_about(overhead_after(all.self, 0, EIGHTH, 30), 0.044));
    end_rule(&all, &block);
}

static void what_was_bought_counts_as_far_as_it_may_be_bought_now(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool", &block);
    for (int i = 0; i < 5; i++)
        overhead_after(all.self, 0, EIGHTH, 30);
    assert_true(is_about(pool_overhead_now(all.self), 0.544));
    const uint64_t limit = 168 * MIB, none = 0;
    check_ok(strata_control(strata_runtime_stack(all.runtime), "pool.limit", NULL, &limit));
    assert_true(is_about(pool_overhead_now(all.self), 26.0 / 128));
    check_ok(strata_control(strata_runtime_stack(all.runtime), "pool.limit", NULL, &none));
    assert_true(is_about(pool_overhead_now(all.self), 0.544));
    set_earned_by_polling(all.self, 0.15); /* not taken back by a limit */
    set_peak_live(all.self, device_total(all.self));
    assert_true(is_about(pool_overhead_now(all.self), 0.15));
    end_rule(&all, &block);
}

static void remapping_before_a_new_peak_does_not_count(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool", &block);
    pool *self = all.self;
    const uint64_t peak = peak_live(self);
    restart_window(self);
    remap(self, EIGHTH - 1, 30);
    set_peak_live(self, peak + peak / 32 + 1);
    assert_true(is_about(pool_overhead_now(self), 0.044));
    remap(self, 1, 30);
    assert_true(is_about(pool_overhead_now(self), 0.044));
    remap(self, EIGHTH - 1, 30);
    set_peak_live(self, peak_live(self) + peak_live(self) / 32); /* a small rise does not restart */
    assert_true(is_about(pool_overhead_now(self), 0.144));
    end_rule(&all, &block);
}

static void remapping_before_memory_was_returned_counts(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool", &block);
    pool *self = all.self;
    const uint64_t peak = peak_live(self);
    restart_window(self);
    remap(self, EIGHTH - 1, 30);
    set_peak_live(self, peak / 2);
    assert_true(is_about(pool_overhead_now(self), 0.044));
    set_peak_live(self, peak); /* nor does the old peak */
    assert_true(is_about(pool_overhead_now(self), 0.044));
    remap(self, 1, 1);
    assert_true(is_about(pool_overhead_now(self), 0.144));
    end_rule(&all, &block);
}

static void making_memory_takes_no_time_here(void **state)
{
    (void)state;
    traffic all;
    strata_block block, more = {0};
    begin_rule(&all, "pool", &block);
    pool *self = all.self;
    assert_true(is_about(overhead_after(self, 140, EIGHTH, 40), 0.044));
    assert_true(pool_overhead_exclude(self, strata_timestamp_clock() - 100 * MILLISECOND) >= 100 * MILLISECOND);
    assert_true(is_about(pool_overhead_now(self), 0.144));
    never_restart(self); /* a rise does not restart */
    const uint64_t began = window_began(self);
    replace(&all, &more, CHUNKS * 2 * MIB);
    assert_true(window_began(self) > began);
    replace(&all, &more, 0);
    end_rule(&all, &block);
}

static void what_takes_long_counts_whatever_part_of_memory_it_is(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool", &block);
    assert_true(is_about(overhead_after(all.self, 0, 1, 80), 0.044));
    assert_true(is_about(overhead_after(all.self, 0, 1, 100), 0.144));
    end_rule(&all, &block);
}

/* Some chunks are unmapped, then the missing ones are made, then all are mapped. */
static void making_memory_while_remapping_does_not_count(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool", &block);
    pool *self = all.self;
    restart_window(self);
    const uint64_t now = pool_overhead_clock(self), began = now - 140 * MILLISECOND;
    pause_for(self, 140);
    const uint64_t making = pool_overhead_exclude(self, now - 90 * MILLISECOND);
    pool_overhead_record_remapping(self, began + making, EIGHTH * 2 * MIB);
    assert_true(window_bytes(self) == EIGHTH * 2 * MIB && window_remapping(self) >= 50 * MILLISECOND);
    const uint64_t lasted = pool_overhead_clock(self) - window_began(self);
    assert_true(lasted >= window_remapping(self) && lasted < 100 * MILLISECOND);
    assert_true(is_about(pool_overhead_now(self), 0.144));
    end_rule(&all, &block);
}

static void a_pause_is_no_time(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool", &block);
    pool *self = all.self;
    restart_window(self);
    for (int i = 0; i < EIGHTH; i++) {
        pause_for(self, 1000);
        remap(self, 1, 5);
    }
    assert_true(is_about(pool_overhead_now(self), 0.144));
    restart_window(self);
    for (int i = 0; i < EIGHTH; i++) {
        work_for(self, 1000);
        remap(self, 1, 5);
    }
    assert_true(is_about(pool_overhead_now(self), 0.144));
    end_rule(&all, &block);
}

static void a_deterministic_pool_counts_requests_and_remapped_chunks(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool(deterministic=on)", &block);
    pool *self = all.self;
    const double overhead = given_overhead(self);
    uint64_t began = pool_overhead_clock(self);
    count_remapped(self, 199);
    pool_overhead_record_remapping(self, began, EIGHTH * 2 * MIB);
    assert_true(is_about(pool_overhead_now(self), overhead));
    count_misses(self, 199 * 100);
    assert_true(is_about(pool_overhead_now(self), overhead));
    began = pool_overhead_clock(self);
    count_remapped(self, 250);
    pool_overhead_record_remapping(self, began, EIGHTH * 2 * MIB);
    assert_true(is_about(pool_overhead_now(self), overhead + 0.10));
    end_rule(&all, &block);
}

static void an_overhead_that_is_set_is_kept(void **state)
{
    (void)state;
    traffic all;
    strata_block block;
    begin_rule(&all, "pool(slack=20)", &block);
    assert_true(is_about(overhead_after(all.self, 0, CHUNKS, 40), 0.020));
    end_rule(&all, &block);
}

int main(void)
{
    setenv("STRATA_SIM_MEMORY", "8GiB", 1);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_grows_if_it_is_remapped_all_the_time),
        cmocka_unit_test(remapping_that_is_a_small_part_of_the_time_adds_none),
        cmocka_unit_test(an_eighth_of_memory_remapped_in_a_quarter_of_the_time_adds_a_tenth),
        cmocka_unit_test(many_small_remappings_count_together),
        cmocka_unit_test(what_was_long_ago_is_forgotten_and_so_is_the_time),
        cmocka_unit_test(it_adds_at_most_the_peak_of_live_bytes),
        cmocka_unit_test(it_adds_what_a_limit_leaves_and_half_of_what_a_device_leaves),
        cmocka_unit_test(what_was_bought_counts_as_far_as_it_may_be_bought_now),
        cmocka_unit_test(remapping_before_a_new_peak_does_not_count),
        cmocka_unit_test(remapping_before_memory_was_returned_counts),
        cmocka_unit_test(making_memory_takes_no_time_here),
        cmocka_unit_test(what_takes_long_counts_whatever_part_of_memory_it_is),
        cmocka_unit_test(making_memory_while_remapping_does_not_count),
        cmocka_unit_test(a_pause_is_no_time),
        cmocka_unit_test(a_deterministic_pool_counts_requests_and_remapped_chunks),
        cmocka_unit_test(an_overhead_that_is_set_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
