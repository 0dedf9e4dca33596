/* Another thread uses a block while it is freed on its stream: after the free has looked at the block, before the block
 * has ended. In one pass, by the layers apart, and by a pool alone. */
#include "core/blocks/blocks.h"
#include "resources/builtin.h"
#include "support/fixture.h"

#include <strata/strata.h>

#include <pthread.h>

static void (*before_end)(void); /* once; NULL: nothing */

static void let_others(void)
{
    void (*const others)(void) = before_end;
    before_end = NULL;
    if (others)
        others();
}

static bool try_retire_late(strata_entry *entry, uint64_t *word)
{
    let_others();
    return strata_entry_try_retire(entry, word);
}

static bool retire_found_late(const strata_table *table, strata_entry *entry, const strata_block *block, uint64_t mark)
{
    let_others();
    return strata_entry_retire_found(table, entry, block, mark);
}

/* The code itself, with the other thread's calls in it. */
#define strata_entry_try_retire   try_retire_late
#define strata_entry_retire_found retire_found_late
#define strata_fused_offer        offer_here
#include "resources/fused/fused.c" /* NOLINT(bugprone-suspicious-include) */
#include "resources/pool/free.c"   /* NOLINT(bugprone-suspicious-include) */

enum { BYTES = 4096 };

static const struct {
    const char *stack;
    bool fused;
} ways[] = {{"statistics, pool", true}, {"statistics, pool", false}, {"pool", false}};

enum { WAYS = sizeof ways / sizeof ways[0] };

static struct {
    strata_runtime *runtime;
    CUstream own, other;
    strata_block block, beside;
    strata_point used; /* of the use on its own stream */
} here;

static void open_here(size_t way)
{
    const strata_runtime_config config = {.size = sizeof config, .stack_text = ways[way].stack};
    strata_fuse_operations = ways[way].fused ? fuse : NULL;
    check_ok(strata_runtime_create(&config, &here.runtime));
    check_ok(strata_runtime_stream_acquire(here.runtime, &here.own));
    check_ok(strata_runtime_stream_acquire(here.runtime, &here.other));
    check_ok(strata_runtime_allocate(here.runtime, BYTES, here.own, &here.beside));
    for (size_t i = 0; i < 2; i++) { /* the thread's parts, and a bin of the size */
        check_ok(strata_runtime_allocate(here.runtime, BYTES, here.own, &here.block));
        check_ok(strata_runtime_deallocate(here.runtime, &here.block));
    }
    check_ok(strata_runtime_allocate(here.runtime, BYTES, here.own, &here.block));
}

static void close_here(void)
{
    assert_null(before_end);
    check_ok(strata_runtime_deallocate(here.runtime, &here.beside));
    check_ok(strata_runtime_stream_release(here.runtime, here.own));
    check_ok(strata_runtime_stream_release(here.runtime, here.other));
    check_ok(strata_runtime_destroy(here.runtime));
}

static strata_entry *entry_of_block(void)
{
    return strata_table_lookup(strata_resource_table(strata_stack_top(strata_runtime_stack(here.runtime))),
                               here.block.id);
}

static void use(const strata_block *block, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(here.runtime, block, stream, STRATA_ACCESS_WRITE));
    test_fill(block->address, 1, BYTES, stream);
    check_ok(strata_runtime_finish_block_use(here.runtime, block, stream, STRATA_ACCESS_WRITE));
}

static void in_another_thread(void *(*body)(void *data))
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *use_on_other_stream(void *data)
{
    use(&here.block, here.other);
    return data;
}

static void other_stream(void)
{
    in_another_thread(use_on_other_stream);
}

static void memory_waits_for_a_use_that_ended_before_the_block_did(void **state)
{
    (void)state;
    for (size_t way = 0; way < WAYS; way++) {
        strata_block next;
        open_here(way);
        const uint16_t number = atomic_load(&entry_of_block()->alloc_timeline);
        before_end = other_stream;
        check_ok(strata_runtime_deallocate(here.runtime, &here.block));
        assert_int_not_equal(strata_point_timeline(atomic_load(&entry_of_block()->last_write)), number);
        check_ok(strata_runtime_allocate(here.runtime, BYTES, here.own, &next));
        use(&next, here.own); /* the simulated driver looks at the order */
        check_ok(strata_runtime_deallocate(here.runtime, &next));
        close_here();
    }
}

/* The wait of the other stream ends an epoch of the block's stream. */
static void *use_on_own_stream(void *data)
{
    use(&here.beside, here.own);
    use(&here.beside, here.other);
    use(&here.block, here.own);
    here.used = atomic_load(&entry_of_block()->last_write);
    return data;
}

static void own_stream(void)
{
    in_another_thread(use_on_own_stream);
}

static void memory_waits_for_a_use_on_its_stream_after_an_event_there(void **state)
{
    (void)state;
    for (size_t way = 0; way < WAYS; way++) {
        open_here(way);
        const strata_point before = atomic_load(&entry_of_block()->last_write);
        before_end = own_stream;
        check_ok(strata_runtime_deallocate(here.runtime, &here.block));
        assert_true(here.used > before);
        if (atomic_load(&entry_of_block()->last_write) < here.used)
            fail_msg("%s%s", ways[way].stack, ways[way].fused ? ", in one pass" : "");
        close_here();
    }
}

int main(void)
{
    test_open_driver();
    check_ok(strata_builtin_register());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_waits_for_a_use_that_ended_before_the_block_did),
        cmocka_unit_test(memory_waits_for_a_use_on_its_stream_after_an_event_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
