/* The address index against a sorted array that is searched from the front. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "core/address_index.h"
#include "core/memory.h"

enum { MOST = 400, STEPS = 40000 };

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
    size_t at = 0;
    while (at < all->count && all->starts[at] < start)
        at++;
    return at;
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
    size_t after = 0;
    while (after < all->count && all->starts[after] <= address)
        after++;
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

/* Addresses that lie close together, far apart, and at both ends. */
static CUdeviceptr random_start(void)
{
    switch (pick(5)) {
    case 0:
        return 256 * pick(300);
    case 1:
        return highest - 256 * pick(300);
    case 2:
        return UINT64_C(0x7f0000000000) + 256 * pick(70);
    case 3:
        return UINT64_C(0x7f0000000000) + (pick(400) << 21);
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
    strata_index_end(&index);
    strata_index_end(&index);
}

static void one_start_is_the_floor_of_all_above_and_the_ceiling_of_all_below(void **state)
{
    (void)state;
    static const CUdeviceptr starts[] = {256, 256 * 63, 256 * 64, 1 << 20, UINT64_C(1) << 47};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        strata_address_index index = {0};
        model all = {.count = 0};
        assert_true(strata_index_insert(&index, starts[i], 9));
        model_insert(&all, starts[i], 9);
        static const uint64_t distances[] = {0, 1, 255, 256, 16384, 1 << 20};
        for (size_t j = 0; j < sizeof distances / sizeof distances[0]; j++) {
            check_floor(&index, &all, starts[i] + distances[j]);
            check_ceiling(&index, &all, starts[i] + distances[j]);
            if (starts[i] >= distances[j]) {
                check_floor(&index, &all, starts[i] - distances[j]);
                check_ceiling(&index, &all, starts[i] - distances[j]);
            }
        }
        strata_index_end(&index);
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
    strata_index_end(&index);
}

static void an_address_above_all_that_there_can_be_is_not_taken_for_a_low_one(void **state)
{
    (void)state;
    strata_address_index index = {0};
    model all = {.count = 0};
    static const CUdeviceptr starts[] = {0, 512, UINT64_C(1) << 40};
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(strata_index_insert(&index, starts[i], i + 1));
        model_insert(&all, starts[i], i + 1);
    }
    static const CUdeviceptr beyond[] = {(UINT64_C(1) << 56) - 1, UINT64_C(1) << 56, (UINT64_C(1) << 56) + 512,
                                         UINT64_MAX - 255, UINT64_MAX};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        check_floor(&index, &all, beyond[i]);
        check_ceiling(&index, &all, beyond[i]);
    }
    strata_index_end(&index);
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

/* Starts of blocks that lie far apart, which is where a trie is at its worst. */
static void a_start_that_has_no_neighbours_costs_little_host_memory(void **state)
{
    (void)state;
    static const struct {
        CUdeviceptr distance;
        uint64_t most; /* bytes a start */
    } rows[] = {{512, 12}, {4096, 100}, {16384, 12}, {96 << 10, 72}, {1 << 20, 12}, {6 << 20, 72}};
    enum { STARTS = 4096 };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strata_address_index index = {0};
        uint64_t before = strata_host_bytes();
        for (uint32_t k = 0; k < STARTS; k++)
            assert_true(strata_index_insert(&index, (UINT64_C(1) << 46) + k * rows[i].distance, k + 1));
        uint64_t each = (strata_host_bytes() - before) / STARTS;
        if (each > rows[i].most)
            fail_msg("%llu bytes apart: %llu bytes each", rows[i].distance, (unsigned long long)each);
        for (uint32_t k = 0; k < STARTS; k++)
            assert_int_equal(strata_index_at(&index, (UINT64_C(1) << 46) + k * rows[i].distance), k + 1);
        strata_index_end(&index);
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
    model all = {.count = 0};
    uint64_t before = strata_host_bytes();
    static const CUdeviceptr starts[] = {
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
    for (uint32_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        refused += insert_with_every_refusal(&index, &all, starts[i], i + 1);
    assert_true(refused >= 8);
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        strata_index_remove(&index, starts[i]);
    assert_null(index.root);
    assert_true(strata_host_bytes() == before);
}

static void random_traffic_finds_what_a_sorted_array_finds(void **state)
{
    (void)state;
    strata_address_index index = {0};
    static model all;
    for (uint32_t step = 1; step <= STEPS; step++) {
        uint64_t what = pick(10);
        if (what < 4 && all.count < MOST) {
            CUdeviceptr start = random_start();
            assert_true(strata_index_insert(&index, start, step));
            model_insert(&all, start, step);
        } else if (what < 6 && all.count) {
            CUdeviceptr start = all.starts[pick(all.count)];
            strata_index_remove(&index, start);
            model_remove(&all, start);
        } else if (what == 6) {
            CUdeviceptr start = random_start();
            strata_index_remove(&index, start);
            model_remove(&all, start);
        } else {
            CUdeviceptr address = random_address(&all);
            check_floor(&index, &all, address);
            check_ceiling(&index, &all, address);
        }
    }
    while (all.count) {
        strata_index_remove(&index, all.starts[0]);
        model_remove(&all, all.starts[0]);
    }
    assert_null(index.root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_index_finds_nothing),
        cmocka_unit_test(one_start_is_the_floor_of_all_above_and_the_ceiling_of_all_below),
        cmocka_unit_test(inserting_again_replaces_the_slot),
        cmocka_unit_test(an_address_above_all_that_there_can_be_is_not_taken_for_a_low_one),
        cmocka_unit_test(an_emptied_index_holds_no_memory),
        cmocka_unit_test(a_start_that_has_no_neighbours_costs_little_host_memory),
        cmocka_unit_test(starts_that_differ_in_any_digit_are_told_apart),
        cmocka_unit_test(an_insertion_without_host_memory_changes_nothing),
        cmocka_unit_test(random_traffic_finds_what_a_sorted_array_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
