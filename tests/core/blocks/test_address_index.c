/* The address index against a sorted array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "core/base/host_memory.h"
#include "core/blocks/address_index.h"

enum { MOST = 2000, STEPS = 120000, PHASE = 6000 };

typedef struct model {
    CUdeviceptr starts[MOST];
    uint32_t slots[MOST];
    size_t count;
} model;

static uint64_t random_state = 7;

static uint64_t pick(uint64_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 20) % below;
}

static const CUdeviceptr highest = ((UINT64_C(1) << 56) - 1) & ~UINT64_C(255);

static size_t lower_bound(const model *all, CUdeviceptr start)
{
    size_t at = 0, end = all->count;
    while (at < end) {
        const size_t middle = at + (end - at) / 2;
        if (all->starts[middle] < start)
            at = middle + 1;
        else
            end = middle;
    }
    return at;
}

static bool is_in(const model *all, CUdeviceptr start)
{
    const size_t at = lower_bound(all, start);
    return at < all->count && all->starts[at] == start;
}

static void model_insert(model *all, CUdeviceptr start, uint32_t slot)
{
    size_t at = lower_bound(all, start);
    if (at == all->count || all->starts[at] != start) {
        memmove(&all->starts[at + 1], &all->starts[at], (all->count - at) * sizeof all->starts[0]);
        memmove(&all->slots[at + 1], &all->slots[at], (all->count - at) * sizeof all->slots[0]);
        all->count++;
    }
    all->starts[at] = start;
    all->slots[at] = slot;
}

static void model_remove(model *all, CUdeviceptr start)
{
    size_t at = lower_bound(all, start);
    if (at == all->count || all->starts[at] != start)
        return;
    all->count--;
    memmove(&all->starts[at], &all->starts[at + 1], (all->count - at) * sizeof all->starts[0]);
    memmove(&all->slots[at], &all->slots[at + 1], (all->count - at) * sizeof all->slots[0]);
}

static void check_floor(const strata_address_index *index, const model *all, CUdeviceptr address)
{
    const size_t after = lower_bound(all, address) + is_in(all, address);
    CUdeviceptr start = 1;
    uint32_t slot = strata_index_floor(index, address, &start);
    assert_int_equal(slot, after ? all->slots[after - 1] : 0);
    assert_true(start == (after ? all->starts[after - 1] : 0));
}

static void check_ceiling(const strata_address_index *index, const model *all, CUdeviceptr address)
{
    size_t at = lower_bound(all, address);
    CUdeviceptr start = 1;
    uint32_t slot = strata_index_ceiling(index, address, &start);
    assert_int_equal(slot, at < all->count ? all->slots[at] : 0);
    assert_true(start == (at < all->count ? all->starts[at] : 0));
}

/* Addresses that lie close together, far apart, and at both ends; of some there is one for every place of a node, and
 * of some a few below each. */
static CUdeviceptr random_start(void)
{
    switch (pick(8)) {
    case 0:
        return 256 * pick(300);
    case 1:
        return highest - 256 * pick(300);
    case 2:
        return UINT64_C(0x7f0000000000) + 256 * pick(70);
    case 3:
        return UINT64_C(0x7f0000000000) + (pick(400) << 21);
    case 4:
        return UINT64_C(0x7e0000000000) + (pick(200) << 14);
    case 5:
        return UINT64_C(0x7d0000000000) + (pick(90) << 20) + 256 * pick(4);
    case 6:
        return UINT64_C(0x7c0000000000) + (pick(20) << 26) + 256 * pick(12);
    default:
        return pick(UINT64_C(1) << 48) << 8;
    }
}

static CUdeviceptr random_address(const model *all)
{
    if (!all->count || pick(3) == 0)
        return random_start() + pick(256);
    CUdeviceptr start = all->starts[pick(all->count)];
    return pick(2) ? start + pick(300) : start - (start ? pick(300) % start : 0);
}

static void an_empty_index_finds_nothing(void **state)
{
    (void)state;
    strata_address_index index = {0};
    model none = {.count = 0};
    check_floor(&index, &none, 0);
    check_floor(&index, &none, UINT64_MAX >> 8);
    check_ceiling(&index, &none, 0);
    strata_index_remove(&index, 256);
    strata_index_destroy(&index);
    strata_index_destroy(&index);
}

static void one_start_is_the_floor_of_all_above_and_the_ceiling_of_all_below(void **state)
{
    (void)state;
    static const CUdeviceptr lone[] = {256, 256 * 63, 256 * 64, 1 << 20, UINT64_C(1) << 47};
    for (size_t i = 0; i < sizeof lone / sizeof lone[0]; i++) {
        strata_address_index index = {0};
        model all = {.count = 0};
        assert_true(strata_index_insert(&index, lone[i], 9));
        model_insert(&all, lone[i], 9);
        static const uint64_t distances[] = {0, 1, 255, 256, 16384, 1 << 20};
        for (size_t j = 0; j < sizeof distances / sizeof distances[0]; j++) {
            check_floor(&index, &all, lone[i] + distances[j]);
            check_ceiling(&index, &all, lone[i] + distances[j]);
            if (lone[i] >= distances[j]) {
                check_floor(&index, &all, lone[i] - distances[j]);
                check_ceiling(&index, &all, lone[i] - distances[j]);
            }
        }
        strata_index_destroy(&index);
    }
}

static void inserting_again_replaces_the_slot(void **state)
{
    (void)state;
    strata_address_index index = {0};
    CUdeviceptr start;
    assert_true(strata_index_insert(&index, 4096, 1));
    assert_true(strata_index_insert(&index, 4096, 2));
    assert_int_equal(strata_index_floor(&index, 5000, &start), 2);
    strata_index_remove(&index, 4096);
    assert_int_equal(strata_index_floor(&index, 5000, &start), 0);
    strata_index_destroy(&index);
}

static void an_address_above_all_that_there_can_be_is_not_taken_for_a_low_one(void **state)
{
    (void)state;
    strata_address_index index = {0};
    model all = {.count = 0};
    static const CUdeviceptr some[] = {0, 512, UINT64_C(1) << 40};
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(strata_index_insert(&index, some[i], i + 1));
        model_insert(&all, some[i], i + 1);
    }
    static const CUdeviceptr beyond[] = {(UINT64_C(1) << 56) - 1, UINT64_C(1) << 56, (UINT64_C(1) << 56) + 512,
                                         UINT64_MAX - 255, UINT64_MAX};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        check_floor(&index, &all, beyond[i]);
        check_ceiling(&index, &all, beyond[i]);
    }
    strata_index_destroy(&index);
}

static void an_emptied_index_holds_no_memory(void **state)
{
    (void)state;
    strata_address_index index = {0};
    for (CUdeviceptr i = 0; i < 3000; i++)
        assert_true(strata_index_insert(&index, (i * 7919) << 12, 1 + (uint32_t)i));
    for (CUdeviceptr i = 0; i < 3000; i++)
        strata_index_remove(&index, (i * 7919) << 12);
    assert_null(index.root);
}

enum { STARTS = 4096 };

static CUdeviceptr starts[STARTS];

/* Fills `starts` with those of blocks of one size, or of random ones between two. */
static void lay_out(uint64_t least, uint64_t most)
{
    CUdeviceptr at = UINT64_C(1) << 46;
    for (size_t i = 0; i < STARTS; i++) {
        starts[i] = at;
        at += (least + (most > least ? pick(most - least) : 0)) & ~UINT64_C(255);
    }
}

static void insert_all(strata_address_index *index)
{
    for (uint32_t i = 0; i < STARTS; i++)
        assert_true(strata_index_insert(index, starts[i], i + 1));
}

static double bytes_each(uint64_t before, size_t count)
{
    return (double)(strata_host_bytes() - before) / (double)count;
}

#define MOST_EACH 14.5 /* bytes */

/* The C library rounds small pieces up by more than the arena does. */
static double most_each(void)
{
    return strata_host_allocator_reason() ? 18 : MOST_EACH;
}

static void a_start_costs_little_host_memory_wherever_it_lies(void **state)
{
    (void)state;
    static const struct {
        uint64_t least, most;
    } rows[] = {
        {256, 0},
        {512, 0},
        {768, 0},
        {1 << 10, 0},
        {2 << 10, 0},
        {4 << 10, 0},
        {5 << 10, 0},
        {6 << 10, 0},
        {8 << 10, 0},
        {12 << 10, 0},
        {16 << 10, 0},
        {20 << 10, 0},
        {32 << 10, 0},
        {40 << 10, 0},
        {64 << 10, 0},
        {96 << 10, 0},
        {100 << 10, 0},
        {128 << 10, 0},
        {200 << 10, 0},
        {256 << 10, 0},
        {300 << 10, 0},
        {340 << 10, 0},
        {400 << 10, 0},
        {512 << 10, 0},
        {768 << 10, 0},
        {1 << 20, 0},
        {2 << 20, 0},
        {3 << 20, 0},
        {6 << 20, 0},
        {20 << 20, 0},
        {100 << 20, 0},
        {1 << 30, 0},
        {512, 2 << 10},
        {512, 32 << 10},
        {512, 256 << 10},
        {512, 1 << 20},
        {512, 4 << 20},
        {8 << 10, 64 << 10},
        {256 << 10, 512 << 10},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strata_address_index index = {0};
        const uint64_t before = strata_host_bytes();
        lay_out(rows[i].least, rows[i].most);
        insert_all(&index);
        if (bytes_each(before, STARTS) > most_each())
            fail_msg("blocks of %llu to %llu bytes: %.1f bytes a start", (unsigned long long)rows[i].least,
                     (unsigned long long)rows[i].most, bytes_each(before, STARTS));
        for (uint32_t k = 0; k < STARTS; k++)
            assert_int_equal(strata_index_at(&index, starts[k]), k + 1);
        strata_index_destroy(&index);
        assert_true(strata_host_bytes() == before);
    }
}

static void shuffle(void)
{
    for (size_t i = STARTS - 1; i > 0; i--) {
        const size_t other = pick(i + 1);
        const CUdeviceptr kept = starts[i];
        starts[i] = starts[other];
        starts[other] = kept;
    }
}

/* Node by node what starts leave behind is given back while others stay, and in what order they come and go does not
 * matter. The limits, in bytes a start that is left, are a seventh above what is measured. */
static void what_starts_leave_behind_is_given_back(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        size_t left;
        double most;
    } rows[] = {{512, 2048, 8.5}, {512, 256, 20.5}, {16 << 10, 2048, 13}, {16 << 10, 256, 16.5}, {1 << 20, 512, 16.5}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strata_address_index index = {0};
        const uint64_t before = strata_host_bytes();
        lay_out(rows[i].bytes, 0);
        shuffle();
        insert_all(&index);
        assert_true(bytes_each(before, STARTS) <= most_each());
        shuffle();
        for (size_t k = rows[i].left; k < STARTS; k++)
            strata_index_remove(&index, starts[k]);
        const double each = bytes_each(before, rows[i].left);
        if (each > rows[i].most * most_each() / MOST_EACH)
            fail_msg("%zu of %d starts, %llu bytes apart, are left: %.1f bytes each", rows[i].left, STARTS,
                     (unsigned long long)rows[i].bytes, each);
        for (size_t k = 0; k < rows[i].left; k++)
            assert_true(strata_index_at(&index, starts[k]) != 0);
        strata_index_destroy(&index);
        assert_true(strata_host_bytes() == before);
    }
}

/* A lone start that gets a neighbour goes down, as far as the two are alike, and is found on the way and below it. */
static void starts_that_differ_in_any_digit_are_told_apart(void **state)
{
    (void)state;
    for (unsigned bit = 8; bit < 56; bit++) {
        strata_address_index index = {0};
        model all = {.count = 0};
        CUdeviceptr first = UINT64_C(0x5a5a5a5a5a5a00), second = first ^ UINT64_C(1) << bit;
        assert_true(strata_index_insert(&index, first, 0xffffff));
        assert_int_equal(strata_index_at(&index, second), 0);
        strata_index_remove(&index, second);
        assert_true(strata_index_insert(&index, second, 1));
        model_insert(&all, first, 0xffffff);
        model_insert(&all, second, 1);
        assert_int_equal(strata_index_at(&index, first), 0xffffff);
        assert_int_equal(strata_index_at(&index, second), 1);
        const CUdeviceptr middle = (first & second) | UINT64_C(1) << (bit - 1);
        const CUdeviceptr asked[] = {0, first - 1, first, first + 1, second - 1, second, second + 1, middle, highest};
        for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
            check_floor(&index, &all, asked[i]);
            check_ceiling(&index, &all, asked[i]);
        }
        strata_index_remove(&index, first);
        model_remove(&all, first);
        check_floor(&index, &all, highest);
        check_ceiling(&index, &all, 0);
        assert_int_equal(strata_index_at(&index, first), 0);
        strata_index_remove(&index, second);
        assert_null(index.root);
    }
}

/* The linker puts this in front of the library's own (--wrap). */
static size_t countdown; /* how many allocations succeed before one fails, plus one; 0: all do */
void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);

void *__wrap_strata_host_zalloc(size_t bytes)
{
    return countdown && --countdown == 0 ? NULL : __real_strata_host_zalloc(bytes);
}

/* Returns how often it failed. Each time everything is as it was. */
static size_t insert_with_every_refusal(strata_address_index *index, model *all, CUdeviceptr start, uint32_t slot)
{
    size_t which = 1;
    for (;; which++) {
        countdown = which;
        bool entered = strata_index_insert(index, start, slot);
        countdown = 0;
        if (entered)
            break;
        assert_int_equal(strata_index_at(index, start), 0);
        for (size_t i = 0; i < all->count; i++) {
            check_floor(index, all, all->starts[i]);
            check_ceiling(index, all, all->starts[i]);
        }
        check_floor(index, all, start);
        check_ceiling(index, all, start);
    }
    model_insert(all, start, slot);
    assert_int_equal(strata_index_at(index, start), slot);
    return which - 1;
}

static void an_insertion_without_host_memory_changes_nothing(void **state)
{
    (void)state;
    strata_address_index index = {0};
    static model all;
    all.count = 0;
    uint64_t before = strata_host_bytes();
    static const CUdeviceptr apart[] = {
        UINT64_C(0x7f0000000000),
        UINT64_C(0x7f0000000100),
        UINT64_C(0x7f0000010000),
        UINT64_C(0x7f0000010100),
        UINT64_C(0x7f4000000000),
        UINT64_C(0xff00000000ff00),
        0,
        256,
    };
    size_t refused = 0;
    for (uint32_t i = 0; i < sizeof apart / sizeof apart[0]; i++)
        refused += insert_with_every_refusal(&index, &all, apart[i], i + 1);
    assert_true(refused >= 8);
    for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++)
        strata_index_remove(&index, apart[i]);
    assert_null(index.root);
    assert_true(strata_host_bytes() == before);
}

/* Starts that fill a node: every size of a bucket, of a leaf and of a node is met, and what makes a node of a bucket,
 * at the next level or at many. */
static void the_same_while_nodes_grow(void **state)
{
    (void)state;
    static const struct {
        CUdeviceptr distance;
        uint32_t count;
    } rows[] = {{256, 70}, {512, 40}, {16 << 10, 70}, {300 << 10, 40}, {1 << 20, 70}, {UINT64_C(1) << 32, 20}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strata_address_index index = {0};
        static model all;
        all.count = 0;
        const uint64_t before = strata_host_bytes();
        size_t refused = insert_with_every_refusal(&index, &all, UINT64_C(1) << 50, 9);
        for (uint32_t k = 0; k < rows[i].count; k++)
            refused += insert_with_every_refusal(&index, &all, UINT64_C(0x7f0000000000) + k * rows[i].distance, k + 1);
        assert_true(refused >= 12);
        while (all.count) { /* the first one last */
            const CUdeviceptr start = all.starts[all.count - 1];
            countdown = 1; /* what could become smaller stays as it is */
            strata_index_remove(&index, start);
            countdown = 0;
            model_remove(&all, start);
            check_floor(&index, &all, start);
            check_ceiling(&index, &all, 0);
        }
        assert_null(index.root);
        assert_true(strata_host_bytes() == before);
    }
}

static void check_everywhere(const strata_address_index *index, const model *all)
{
    for (size_t i = 0; i < all->count; i++) {
        assert_int_equal(strata_index_at(index, all->starts[i]), all->slots[i]);
        check_floor(index, all, all->starts[i] + 255);
        check_ceiling(index, all, all->starts[i] + 1);
        if (all->starts[i])
            check_floor(index, all, all->starts[i] - 1);
    }
}

/* More come than go, then more go than come, and so on; now and then there is no host memory. */
static void random_traffic_finds_what_a_sorted_array_finds(void **state)
{
    (void)state;
    strata_address_index index = {0};
    static model all;
    all.count = 0;
    const uint64_t before = strata_host_bytes();
    size_t refused = 0;
    for (uint32_t step = 1; step <= STEPS; step++) {
        const uint64_t what = pick(10);
        const bool grows = step / PHASE % 2 == 0;
        countdown = pick(4) ? 0 : 1 + pick(3);
        if (what < (grows ? 6 : 1) && all.count < MOST) {
            const CUdeviceptr start = random_start();
            if (strata_index_insert(&index, start, step))
                model_insert(&all, start, step);
            else
                refused++;
        } else if (what < 7 && what != 5 && all.count) {
            const CUdeviceptr start = all.starts[pick(all.count)];
            strata_index_remove(&index, start);
            model_remove(&all, start);
        } else if (what == 7) {
            const CUdeviceptr start = random_start();
            strata_index_remove(&index, start);
            model_remove(&all, start);
        } else {
            const CUdeviceptr address = random_address(&all);
            check_floor(&index, &all, address);
            check_ceiling(&index, &all, address);
        }
        countdown = 0;
        if (step % (PHASE / 4) == 0)
            check_everywhere(&index, &all);
    }
    assert_true(refused > STEPS / 1000);
    while (all.count) {
        strata_index_remove(&index, all.starts[0]);
        model_remove(&all, all.starts[0]);
    }
    assert_null(index.root);
    assert_true(strata_host_bytes() == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_index_finds_nothing),
        cmocka_unit_test(one_start_is_the_floor_of_all_above_and_the_ceiling_of_all_below),
        cmocka_unit_test(inserting_again_replaces_the_slot),
        cmocka_unit_test(an_address_above_all_that_there_can_be_is_not_taken_for_a_low_one),
        cmocka_unit_test(an_emptied_index_holds_no_memory),
        cmocka_unit_test(a_start_costs_little_host_memory_wherever_it_lies),
        cmocka_unit_test(what_starts_leave_behind_is_given_back),
        cmocka_unit_test(starts_that_differ_in_any_digit_are_told_apart),
        cmocka_unit_test(an_insertion_without_host_memory_changes_nothing),
        cmocka_unit_test(the_same_while_nodes_grow),
        cmocka_unit_test(random_traffic_finds_what_a_sorted_array_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
