/* Sets of free extents against a sorted array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "core/streams/device.h"
#include "resources/extents/extents.h"

enum { MOST = 600, STEPS = 60000 };

typedef struct model {
    uint32_t slots[MOST]; /* sorted */
    size_t count;
    uint64_t bytes;
} model;

static uint64_t random_state = 11;

static uint64_t pick(uint64_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 20) % below;
}

/* Sizes at both ends of a class, equal sizes, and any. */
static uint64_t pick_bytes(void)
{
    const uint64_t doubling = UINT64_C(512) << pick(36);
    switch (pick(4)) {
    case 0:
        return doubling;
    case 1:
        return doubling + (doubling / 4 * pick(4)) - (doubling > 512 ? 1 : 0);
    case 2:
        return 2 << 20;
    default:
        return doubling + pick(doubling);
    }
}

static pool_key key_at(const pool_heap *heap, const model *all, size_t at)
{
    return pool_key_of(pool_entry(heap, all->slots[at]));
}

static size_t lower_bound(const pool_heap *heap, const model *all, pool_key least)
{
    size_t at = 0;
    while (at < all->count && pool_is_before(key_at(heap, all, at), least))
        at++;
    return at;
}

static uint32_t slot_at(const model *all, size_t at)
{
    return at < all->count ? all->slots[at] : 0;
}

static void add(pool_heap *heap, pool_tree *tree, model *all, uint32_t slot)
{
    strata_entry *entry = pool_entry(heap, slot);
    const pool_key key = {pick_bytes(), slot * UINT64_C(512)};
    atomic_store(&entry->bytes, key.bytes);
    atomic_store(&entry->address, key.address);
    const size_t at = lower_bound(heap, all, key);
    memmove(all->slots + at + 1, all->slots + at, (all->count - at) * sizeof *all->slots);
    all->slots[at] = slot;
    all->count++;
    all->bytes += key.bytes;
    pool_tree_enter(heap, tree, slot);
}

static uint32_t drop(pool_heap *heap, pool_tree *tree, model *all)
{
    const size_t at = pick(all->count);
    const uint32_t slot = all->slots[at];
    all->bytes -= key_at(heap, all, at).bytes;
    all->count--;
    memmove(all->slots + at, all->slots + at + 1, (all->count - at) * sizeof *all->slots);
    pool_tree_leave(heap, tree, slot);
    return slot;
}

static void check_searches(const pool_heap *heap, const pool_tree *tree, const model *all)
{
    const pool_key least = {pick_bytes(), pick(MOST) * 512};
    assert_int_equal(slot_at(all, lower_bound(heap, all, least)), pool_tree_from(heap, tree, least));
    const uint64_t largest = all->count ? key_at(heap, all, all->count - 1).bytes : 0;
    assert_true(pool_tree_largest(heap, tree) == largest);
    assert_true(tree->bytes == all->bytes);
}

static void check_order(const pool_heap *heap, const pool_tree *tree, const model *all)
{
    size_t at = 0;
    for (uint32_t slot = pool_tree_first(heap, tree); slot; slot = pool_tree_next(heap, tree, slot))
        assert_int_equal(slot_at(all, at++), slot);
    assert_int_equal(all->count, at);
}

static void a_set_finds_what_a_sorted_array_finds(void **state)
{
    (void)state;
    static pool_heap heap;
    static pool_tree tree;
    static model all;
    uint32_t unused[MOST];
    strata_device *device;
    strata_table *table;
    assert_int_equal(STRATA_SUCCESS, strata_device_get(0, &device));
    assert_int_equal(STRATA_SUCCESS, strata_table_create(device, sizeof(pool_extent), &table));
    pool_heap_begin(&heap, table, sizeof(strata_entry));
    size_t unused_count = 0;
    while (unused_count < MOST)
        assert_true(unused[unused_count++] = strata_table_take_slot(table));

    for (size_t i = 0; i < STEPS; i++) {
        const size_t aim = i / 5000 % 2 ? 3 : MOST - 1; /* grows and shrinks in turn */
        const bool grows = all.count < aim ? pick(4) : !pick(4);
        if (all.count < MOST - 1 && (grows || !all.count))
            add(&heap, &tree, &all, unused[--unused_count]);
        else
            unused[unused_count++] = drop(&heap, &tree, &all);
        check_searches(&heap, &tree, &all);
        if (i % 500 == 0)
            check_order(&heap, &tree, &all);
    }
    while (all.count)
        drop(&heap, &tree, &all);
    assert_int_equal(0, pool_tree_first(&heap, &tree));
    assert_int_equal(0, pool_tree_largest(&heap, &tree));
    pool_heap_destroy(&heap);
    strata_table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_finds_what_a_sorted_array_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
