/* fallback: which branch serves a request, that frees, uses and searches find it, and what the layers above see. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/captures.h"
#include "support/effort.h"
#include "support/stall.h"

enum { KIB = 1024, MIB = 1 << 20 };

static strata_runtime *make(const char *text)
{
    strata_runtime *runtime;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    return runtime;
}

static uint64_t value(strata_runtime *runtime, const char *name)
{
    uint64_t got;
    check_ok(strata_control(strata_runtime_stack(runtime), name, &got, NULL));
    return got;
}

static strata_usage usage(strata_runtime *runtime)
{
    strata_usage got;
    check_ok(strata_runtime_usage(runtime, &got));
    return got;
}

/* Of the layer with this name, number `which` from the outside. */
static strata_usage usage_of(strata_runtime *runtime, const char *name, size_t which)
{
    strata_usage got;
    strata_resource *layer = strata_stack_layer(strata_runtime_stack(runtime), name, which);
    assert_non_null(layer);
    check_ok(strata_resource_usage(layer, &got));
    return got;
}

static strata_block allocate(strata_runtime *runtime, size_t bytes, CUstream stream)
{
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, bytes, stream, &block));
    return block;
}

static void deallocate(strata_runtime *runtime, const strata_block *block)
{
    check_ok(strata_runtime_deallocate_on(runtime, block, block->stream));
}

/* Every free has been waited for. */
static void end(strata_runtime *runtime)
{
    check_ok(strata_runtime_reap_pending(runtime));
    const strata_usage left = usage(runtime);
    assert_true(left.live_blocks == 0 && left.live_bytes == 0 && left.bytes_outstanding == 0);
    check_ok(strata_runtime_destroy(runtime));
}

static bool has_managed(void)
{
    strata_device_info info;
    return strata_device_get_info(0, &info) == STRATA_SUCCESS && info.managed_memory;
}

static bool is_managed(const strata_block *block)
{
    unsigned long long managed = 0;
    check_cu(test_cu()->PointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, block->address));
    return managed != 0;
}

static unsigned heard; /* by the log callback */

static void hear(const strata_error *error, void *data)
{
    (void)error, (void)data;
    heard++;
}

/* ---- which branch serves ---- */

static void what_the_first_branch_refuses_the_second_serves_and_no_failure_is_heard(void **state)
{
    (void)state;
    if (!has_managed())
        skip();
    strata_runtime *runtime = make("fallback(pool(max_size=64MiB) | managed)");
    strata_block blocks[3];
    strata_stack_create(NULL, 0, NULL); /* a last error */
    const strata_error before = *strata_last_error();
    heard = 0;
    strata_set_log_callback(hear, NULL);
    for (size_t i = 0; i < 3; i++)
        blocks[i] = allocate(runtime, 40 * MIB, NULL);
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(heard, 0);
    assert_memory_equal(strata_last_error(), &before, sizeof before);
    assert_true(!is_managed(&blocks[0]) && is_managed(&blocks[1]) && is_managed(&blocks[2]));
    assert_true(value(runtime, "fallback.fell_back") == 2 && value(runtime, "fallback.refused") == 0);
    deallocate(runtime, &blocks[0]);
    check_ok(strata_runtime_reap_pending(runtime));
    blocks[0] = allocate(runtime, 40 * MIB, NULL);
    assert_false(is_managed(&blocks[0])); /* the first one has memory again */
    for (size_t i = 0; i < 3; i++)
        deallocate(runtime, &blocks[i]);
    end(runtime);
}

static void a_branch_that_exceeds_its_budget_falls_back_too(void **state)
{
    (void)state;
    strata_runtime *runtime = make("fallback(budget(limit=1MiB), async | direct)");
    const strata_block a = allocate(runtime, MIB, NULL), b = allocate(runtime, MIB, NULL);
    assert_true(usage_of(runtime, "async", 0).live_blocks == 1 && usage_of(runtime, "direct", 0).live_blocks == 1);
    deallocate(runtime, &a);
    deallocate(runtime, &b);
    end(runtime);
}

static void three_branches_and_branches_of_branches_are_tried_in_order(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "fallback(async(max_size=64MiB) | pool(max_size=64MiB) | direct)",
        "fallback(async(max_size=64MiB) | fallback(pool(max_size=64MiB) | direct))",
        "fallback(fallback(async(max_size=64MiB) | pool(max_size=64MiB)) | direct)",
    };
    for (size_t i = 0; i < 3; i++) {
        strata_runtime *runtime = make(texts[i]);
        strata_block blocks[3];
        static const char *const order[] = {"async", "pool", "direct"};
        for (size_t n = 0; n < 3; n++) {
            assert_true(usage_of(runtime, order[n], 0).live_blocks == 0);
            blocks[n] = allocate(runtime, 64 * MIB, NULL);
            assert_true(usage_of(runtime, order[n], 0).live_blocks == 1);
        }
        for (size_t n = 0; n < 3; n++) {
            deallocate(runtime, &blocks[n]);
            check_ok(strata_runtime_reap_pending(runtime));
            assert_true(usage_of(runtime, order[n], 0).live_blocks == 0);
        }
        end(runtime);
    }
}

static void a_request_that_every_branch_refuses_leaves_nothing_and_says_why_each_did(void **state)
{
    (void)state;
    strata_runtime *runtime = make("budget(limit=1GiB), fallback(pool(max_size=2MiB) | budget(limit=3MiB), direct)");
    strata_block block = {.bytes = 1};
    heard = 0;
    strata_set_log_callback(hear, NULL);
    const strata_status status = strata_runtime_allocate(runtime, 16 * MIB, NULL, &block);
    strata_set_log_callback(NULL, NULL);
    check_status(status, STRATA_ERROR_OUT_OF_BUDGET); /* the last one's */
    assert_int_equal(heard, 1);
    assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "3 MiB");
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "; the branch before it: pool: out of memory");
    assert_true(strata_last_error()->limit == 3 * MIB && strata_last_error()->requested == 16 * MIB);
    assert_true(value(runtime, "fallback.refused") == 1 && value(runtime, "fallback.fell_back") == 0);
    assert_true(value(runtime, "budget.in_use") == 0 && value(runtime, "budget[1].in_use") == 0);
    assert_true(usage(runtime).reserved_bytes == 0);
    end(runtime);
}

static void other_failures_are_not_made_good(void **state)
{
    (void)state;
    strata_block block = {.bytes = 1};
    strata_runtime *runtime = make("fallback(fault(nth=1, status=driver), async | direct)");
    check_status(strata_runtime_allocate(runtime, MIB, NULL, &block), STRATA_ERROR_DRIVER);
    assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    assert_true(value(runtime, "fallback.fell_back") == 0 && value(runtime, "fallback.refused") == 0);
    end(runtime);
}

static void a_later_branch_that_cannot_serve_such_a_request_is_passed_over(void **state)
{
    (void)state;
    strata_block block;
    const strata_request request = {.bytes = 4 * MIB, .alignment = 4 * KIB};
    strata_runtime *runtime = make("fallback(pool(max_size=2MiB) | direct | pool)");
    check_ok(strata_runtime_allocate_request(runtime, &request, &block));
    assert_true(usage_of(runtime, "pool", 1).live_blocks == 1);
    deallocate(runtime, &block);
    end(runtime);
    runtime = make("fallback(pool(max_size=2MiB) | direct)");
    check_status(strata_runtime_allocate_request(runtime, &request, &block), STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "pool: out of memory");
    end(runtime);
}

static void an_empty_block_is_of_no_branch(void **state)
{
    (void)state;
    strata_runtime *runtime = make("fallback(fault(every=1), async | direct)");
    const strata_block block = allocate(runtime, 0, NULL);
    assert_memory_equal(&block, &(strata_block){0}, sizeof block);
    deallocate(runtime, &block);
    end(runtime);
}

/* ---- blocks find their branch ---- */

enum { BLOCKS = 8 };

/* Two branches that serve by turns. */
static const char *const turns[] = {
    "fallback(fault(every=2), async | pool)",
    "fallback(fault(every=2), pool | async)",
    "fallback(fault(every=2), pool | pool)",
    "fallback(fault(every=2), fixed(bytes=64KiB, chunk=256KiB), async | binning(min=1KiB, max=64KiB), pool)",
    "guard, fallback(fault(every=2), direct | guard, async)",
};

enum { TURNS = sizeof turns / sizeof turns[0] };

static void frees_find_their_branch_by_identity_and_by_address(void **state)
{
    (void)state;
    strata_set_log_callback(hear, NULL); /* gets the guards' findings */
    for (size_t i = 0; i < TURNS; i++) {
        strata_runtime *runtime = make(turns[i]);
        strata_block blocks[BLOCKS], found;
        for (size_t n = 0; n < BLOCKS; n++)
            blocks[n] = allocate(runtime, 10000, NULL);
        assert_true(value(runtime, "fallback.fell_back") == BLOCKS / 2);
        for (size_t n = 0; n < BLOCKS; n++) {
            check_ok(strata_runtime_find(runtime, blocks[n].address + 9999, &found));
            assert_memory_equal(&found, &blocks[n], sizeof found);
        }
        for (size_t n = 0; n < BLOCKS; n++) {
            strata_block wrong = blocks[n];
            wrong.bytes++;
            check_status(strata_runtime_deallocate_on(runtime, &wrong, NULL), STRATA_ERROR_SIZE_MISMATCH);
            if (n & 2)
                deallocate(runtime, &blocks[n]);
            else
                check_ok(strata_runtime_deallocate_address(runtime, blocks[n].address, NULL));
            check_status(strata_runtime_deallocate_on(runtime, &blocks[n], NULL), STRATA_ERROR_DOUBLE_FREE);
            check_status(strata_runtime_find(runtime, blocks[n].address, &found), STRATA_ERROR_FOREIGN_POINTER);
            assert_memory_equal(&found, &(strata_block){0}, sizeof found);
        }
        end(runtime);
    }
    strata_set_log_callback(NULL, NULL);
}

/* A fill behind a stall on one stream, and a copy on another one through prepare and finish. */
static void check_ordered(strata_runtime *runtime, const strata_block *block, CUstream writer, CUstream reader)
{
    unsigned char *seen;
    check_cu(test_cu()->MemHostAlloc((void **)&seen, block->bytes, 0));
    memset(seen, 0, block->bytes);
    test_stall *stall = test_stall_begin(writer);
    check_ok(strata_runtime_prepare_block_use(runtime, block, writer, STRATA_ACCESS_WRITE));
    check_cu(test_cu()->MemsetD8Async(block->address, 0x5a, block->bytes, writer));
    check_ok(strata_runtime_finish_block_use(runtime, block, writer, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_prepare_block_use(runtime, block, reader, STRATA_ACCESS_READ));
    check_cu(test_cu()->MemcpyDtoHAsync(seen, block->address, block->bytes, reader));
    check_ok(strata_runtime_finish_block_use(runtime, block, reader, STRATA_ACCESS_READ));
    check_cu(test_cu()->StreamQuery(reader) == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
    test_stall_end(stall);
    check_cu(test_cu()->StreamSynchronize(reader));
    for (size_t i = 0; i < block->bytes; i++)
        assert_int_equal(seen[i], 0x5a);
    check_cu(test_cu()->MemFreeHost(seen));
}

static void uses_on_several_streams_are_ordered_in_both_branches(void **state)
{
    (void)state;
    for (size_t i = 0; i < TURNS; i++) {
        strata_runtime *runtime = make(turns[i]);
        CUstream writer, reader;
        check_ok(strata_runtime_stream_acquire(runtime, &writer));
        check_ok(strata_runtime_stream_acquire(runtime, &reader));
        const strata_block a = allocate(runtime, 10000, writer), b = allocate(runtime, 10000, writer);
        check_ordered(runtime, &a, writer, reader);
        check_ordered(runtime, &b, writer, reader);
        deallocate(runtime, &a);
        deallocate(runtime, &b);
        check_ok(strata_runtime_stream_release(runtime, writer));
        check_ok(strata_runtime_stream_release(runtime, reader));
        end(runtime);
    }
}

static void a_free_inside_a_capture_is_done_by_the_branch_of_its_block(void **state)
{
    (void)state;
    strata_runtime *runtime = make(turns[0]);
    CUstream stream;
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const strata_block a = allocate(runtime, MIB, NULL), b = allocate(runtime, MIB, NULL);
    test_begin_capture(stream);
    check_ok(strata_runtime_deallocate_on(runtime, &a, stream));
    check_ok(strata_runtime_deallocate_on(runtime, &b, stream));
    test_end_capture(stream);
    check_ok(strata_stack_captures_ended(strata_runtime_stack(runtime), stream));
    check_ok(strata_runtime_reap_pending(runtime));
    assert_true(usage_of(runtime, "async", 0).bytes_outstanding == 0);
    assert_true(usage_of(runtime, "pool", 0).bytes_outstanding == 0);
    check_cu(test_cu()->StreamDestroy(stream));
    end(runtime);
}

/* ---- what the layers above see ---- */

static strata_budget_snapshot snapshot_of(strata_runtime *runtime)
{
    strata_resource *top = strata_stack_top(strata_runtime_stack(runtime));
    strata_budget_snapshot snapshot;
    check_ok(top->ops->budget(top, &snapshot));
    return snapshot;
}

static void a_branch_without_a_limit_leaves_the_fallback_without_one(void **state)
{
    (void)state;
    static const char *const texts[] = {"fallback(budget, direct | budget(limit=4MiB), direct)",
                                        "fallback(budget(limit=4MiB), direct | budget, direct)"};
    for (size_t i = 0; i < 2; i++) {
        strata_runtime *runtime = make(texts[i]);
        const strata_block block = allocate(runtime, MIB, NULL);
        const strata_budget_snapshot snapshot = snapshot_of(runtime);
        assert_true(snapshot.limit == 0 && snapshot.in_use == MIB && snapshot.remaining == SIZE_MAX);
        deallocate(runtime, &block);
        end(runtime);
    }
    strata_runtime *runtime = make("fallback(budget(limit=4MiB), direct | budget(limit=3MiB), direct)");
    const strata_block block = allocate(runtime, MIB, NULL);
    const strata_budget_snapshot snapshot = snapshot_of(runtime);
    assert_true(snapshot.limit == 7 * MIB && snapshot.in_use == MIB && snapshot.remaining == 6 * MIB);
    deallocate(runtime, &block);
    end(runtime);
}

static void the_budget_above_counts_the_blocks_of_both_branches(void **state)
{
    (void)state;
    strata_runtime *runtime = make("budget(limit=120MiB), fallback(pool(max_size=64MiB) | async)");
    strata_block a = allocate(runtime, 60 * MIB, NULL), b = allocate(runtime, 60 * MIB, NULL), refused = {.bytes = 1};
    assert_true(usage_of(runtime, "pool", 0).live_bytes == 60 * MIB);
    assert_true(usage_of(runtime, "async", 0).live_bytes == 60 * MIB);
    assert_true(value(runtime, "budget.in_use") == 120 * MIB);
    check_status(strata_runtime_allocate(runtime, 1, NULL, &refused), STRATA_ERROR_OUT_OF_BUDGET);
    assert_true(value(runtime, "fallback.refused") == 0); /* the budget refused it */
    deallocate(runtime, &b);
    check_ok(strata_runtime_reap_pending(runtime));
    assert_true(value(runtime, "budget.in_use") == 60 * MIB);
    b = allocate(runtime, 50 * MIB, NULL);
    deallocate(runtime, &a);
    deallocate(runtime, &b);
    check_ok(strata_runtime_reap_pending(runtime));
    assert_true(value(runtime, "budget.in_use") == 0);
    end(runtime);
}

/* Their bytes of a block lie beside those of the other branch. */
static void completions_reach_the_layers_above_their_owner_alone(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "budget(limit=1GiB), statistics, fallback(budget(limit=1GiB), fault(every=2), statistics, async | "
        "budget(limit=1GiB), statistics, direct)",
        "budget(limit=1GiB), statistics, fallback(budget(limit=1GiB), fault(every=2), statistics, fixed(bytes=64KiB), "
        "async | budget(limit=1GiB), statistics, fixed(bytes=64KiB), pool)",
    };
    for (size_t i = 0; i < 2; i++) {
        strata_runtime *runtime = make(texts[i]);
        strata_block blocks[BLOCKS];
        for (size_t n = 0; n < BLOCKS; n++)
            blocks[n] = allocate(runtime, 60 * KIB, NULL);
        assert_true(value(runtime, "budget[1].in_use") == value(runtime, "budget[2].in_use"));
        assert_true(value(runtime, "budget.in_use") == 2 * value(runtime, "budget[1].in_use"));
        assert_true(value(runtime, "statistics.blocks.current") == BLOCKS);
        assert_true(value(runtime, "statistics[1].blocks.current") == BLOCKS / 2);
        assert_true(value(runtime, "statistics[2].blocks.current") == BLOCKS / 2);
        const uint64_t in_second = value(runtime, "budget[2].in_use");
        for (size_t n = 0; n < BLOCKS; n += 2) /* of the first branch */
            deallocate(runtime, &blocks[n]);
        check_ok(strata_runtime_reap_pending(runtime));
        assert_true(value(runtime, "budget[1].in_use") == 0 && value(runtime, "budget[2].in_use") == in_second);
        assert_true(value(runtime, "budget.in_use") == in_second);
        for (size_t n = 1; n < BLOCKS; n += 2)
            deallocate(runtime, &blocks[n]);
        check_ok(strata_runtime_reap_pending(runtime));
        assert_true(value(runtime, "budget.in_use") == 0 && value(runtime, "budget[2].in_use") == 0);
        end(runtime);
    }
}

static void the_charge_is_the_largest_of_the_branches(void **state)
{
    (void)state;
    static const char *const texts[] = {"budget(limit=1GiB), fallback(pinned | direct)",
                                        "budget(limit=1GiB), fallback(direct | pinned)",
                                        "budget(limit=1GiB), fallback(fault(every=1), pinned | direct)"};
    for (size_t i = 0; i < 3; i++) {
        strata_runtime *runtime = make(texts[i]);
        const strata_block block = allocate(runtime, 1, NULL);
        assert_true(value(runtime, "budget.in_use") == 512); /* of direct; 1 of pinned */
        deallocate(runtime, &block);
        check_ok(strata_runtime_reap_pending(runtime));
        assert_true(value(runtime, "budget.in_use") == 0);
        end(runtime);
    }
}

static void layers_in_the_second_branch_are_reached_as_those_in_the_first(void **state)
{
    (void)state;
    strata_runtime *runtime = make("fallback(fault(every=1), direct | logging(format=memory, memory=16), guard, pool)");
    strata_resource *top = strata_stack_top(strata_runtime_stack(runtime));
    const strata_block block = allocate(runtime, 1000, NULL);
    strata_pool_hold *hold;
    check_ok(strata_pool_hold_begin(top, &block, &hold));
    strata_pool_hold_end(hold);
    check_ok(strata_runtime_stream_synchronize(runtime, NULL));
    check_ok(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_READ));
    check_ok(strata_runtime_finish_block_use(runtime, &block, NULL, STRATA_ACCESS_READ));
    check_ok(strata_runtime_record_block_use(runtime, &block, NULL, STRATA_ACCESS_READ));
    deallocate(runtime, &block);
    strata_set_log_callback(hear, NULL); /* the guard's finding */
    check_status(strata_runtime_deallocate_address(runtime, block.address, NULL), STRATA_ERROR_FOREIGN_POINTER);
    strata_set_log_callback(NULL, NULL);
    assert_true(value(runtime, "guard.findings") == 1);
    strata_guard_finding finding;
    assert_true(strata_guard_take_finding(top, &finding));
    strata_log_record records[16];
    size_t count, seen[STRATA_LOG_KIND_LIMIT] = {0};
    check_ok(strata_logging_flush(top));
    check_ok(strata_logging_take(top, records, 16, &count));
    for (size_t i = 0; i < count; i++)
        seen[records[i].kind]++;
    static const strata_log_kind kinds[] = {STRATA_LOG_ALLOCATE,   STRATA_LOG_SYNCHRONIZE, STRATA_LOG_PREPARE_USE,
                                            STRATA_LOG_FINISH_USE, STRATA_LOG_RECORD_USE,  STRATA_LOG_DEALLOCATE};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        assert_int_equal(seen[kinds[i]], 1);
    end(runtime);
}

static void usage_adds_the_branches(void **state)
{
    (void)state;
    strata_runtime *runtime = make("fallback(pool(max_size=64MiB) | pool(max_size=32MiB))");
    const strata_block a = allocate(runtime, 40 * MIB, NULL);
    assert_true(usage(runtime).reserved_peak == usage_of(runtime, "pool", 0).reserved_peak);
    const strata_block b = allocate(runtime, 30 * MIB, NULL);
    const strata_usage all = usage(runtime), first = usage_of(runtime, "pool", 0),
                       second = usage_of(runtime, "pool", 1);
    assert_true(first.live_bytes == 40 * MIB && second.live_bytes == 30 * MIB);
    assert_true(all.live_bytes == 70 * MIB && all.live_blocks == 2 && all.bytes_outstanding == 70 * MIB);
    assert_true(all.reserved_bytes == first.reserved_bytes + second.reserved_bytes);
    assert_true(all.reserved_free == first.reserved_free + second.reserved_free);
    assert_true(all.limit == 96 * MIB);
    assert_true(all.reserved_peak == 0); /* of no known moment */
    deallocate(runtime, &a);
    deallocate(runtime, &b);
    end(runtime);
    runtime = make("fallback(pool(max_size=64MiB) | pool)");
    assert_true(usage(runtime).limit == 0);
    end(runtime);
}

static strata_status limit_of(strata_runtime *runtime, strata_budget_snapshot *snapshot)
{
    strata_resource *layer = strata_stack_layer(strata_runtime_stack(runtime), "fallback", 0);
    return layer->ops->budget(layer, snapshot);
}

static void there_is_a_limit_if_every_branch_has_one(void **state)
{
    (void)state;
    strata_budget_snapshot snapshot = {.limit = 1};
    strata_runtime *runtime = make("fallback(budget(limit=4MiB), async | direct)");
    assert_int_equal(limit_of(runtime, &snapshot), STRATA_ERROR_UNSUPPORTED);
    assert_memory_equal(&snapshot, &(strata_budget_snapshot){0}, sizeof snapshot);
    end(runtime);
    runtime = make("fallback(budget(limit=4MiB), async | budget(limit=6MiB), direct)");
    const strata_block block = allocate(runtime, 3 * MIB, NULL);
    check_ok(limit_of(runtime, &snapshot));
    assert_true(snapshot.limit == 10 * MIB && snapshot.in_use == 3 * MIB && snapshot.remaining == 7 * MIB);
    deallocate(runtime, &block);
    end(runtime);
}

static void trim_and_reap_reach_both_branches_the_last_one_first(void **state)
{
    (void)state;
    strata_runtime *runtime = make("fallback(pool(max_size=64MiB, release_threshold=1GiB) | "
                                   "pool(release_threshold=1GiB))");
    const strata_block a = allocate(runtime, 64 * MIB, NULL), b = allocate(runtime, 64 * MIB, NULL);
    deallocate(runtime, &a);
    deallocate(runtime, &b);
    check_ok(strata_runtime_reap_pending(runtime));
    const strata_usage first = usage_of(runtime, "pool", 0), second = usage_of(runtime, "pool", 1);
    assert_true(first.reserved_bytes >= 64 * MIB && second.reserved_bytes >= 64 * MIB);
    size_t released;
    check_ok(strata_runtime_trim(runtime, first.reserved_bytes, &released));
    assert_true(released == second.reserved_bytes);
    assert_true(usage_of(runtime, "pool", 0).reserved_bytes == first.reserved_bytes);
    assert_true(usage_of(runtime, "pool", 1).reserved_bytes == 0);
    check_ok(strata_runtime_trim(runtime, 0, &released));
    assert_true(released == first.reserved_bytes && usage(runtime).reserved_bytes == 0);
    end(runtime);
}

static uint32_t capabilities(const char *text)
{
    strata_runtime *runtime = make(text);
    const uint32_t got = strata_resource_capabilities(strata_stack_top(strata_runtime_stack(runtime)));
    end(runtime);
    return got;
}

static void capabilities_are_those_that_both_branches_have(void **state)
{
    (void)state;
    const uint32_t common = STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND;
    assert_int_equal(capabilities("fallback(pool | pinned)"), common);
    assert_int_equal(capabilities("fallback(pinned | pool)"), common);
    assert_int_equal(capabilities("statistics, fallback(pool | direct)"), common | STRATA_CAPABILITY_DEVICE_MEMORY);
}

/* The pool waits for the pending free before it refuses. */
static void being_in_stream_order_is_not_claimed_of_two_owners_that_are(void **state)
{
    (void)state;
    assert_int_equal(capabilities("fallback(pool | async)") & STRATA_CAPABILITY_STREAM_ORDERED, 0);
}

static void append(const char *text, size_t length, void *data)
{
    char *to = data;
    strncat(to, text, length);
}

static void reports_have_each_branch_and_values_of_each_layer(void **state)
{
    (void)state;
    static char report[1 << 16];
    strata_runtime *runtime = make("fallback(pool(max_size=2MiB) | pool)");
    const strata_block block = allocate(runtime, 4 * MIB, NULL);
    report[0] = '\0';
    check_ok(strata_stats_print(strata_runtime_stack(runtime), STRATA_FORMAT_JSON, append, report));
    const char *branches = strstr(report, "\"branches\"");
    assert_non_null(branches);
    const char *empty = strstr(branches, "\"live_blocks\": 0"), *full = strstr(branches, "\"live_bytes\": 4194304");
    assert_true(empty && full && empty < full);
    report[0] = '\0';
    check_ok(strata_stats_print(strata_runtime_stack(runtime), STRATA_FORMAT_TEXT, append, report));
    assert_non_null(strstr(report, "fell_back"));
    deallocate(runtime, &block);
    end(runtime);
}

/* ---- stacks built by hand ---- */

static unsigned destroyed;

static void note_destroyed(strata_resource *self)
{
    (void)self;
    destroyed++;
}

static const strata_resource *completed[8]; /* layers that heard of a completion */
static size_t completed_count;

static void note_completed(strata_resource *self, const strata_completion *completion)
{
    (void)completion;
    if (completed_count < 8)
        completed[completed_count++] = self;
}

static const strata_resource_ops plain_ops = {
    .size = sizeof(strata_resource_ops), .name = "plain", .completed = note_completed, .destroy = note_destroyed};

static strata_status create(strata_resource *const *layers, size_t first, size_t second, strata_resource **out)
{
    const strata_branch branches[] = {{layers, first}, {layers + first, second}};
    return strata_fallback_create(&(strata_fallback_options){.branches = branches, .branch_count = 2}, out);
}

static strata_resource *null_owner(void)
{
    strata_resource *owner;
    check_ok(strata_null_create(0, NULL, &owner));
    return owner;
}

static void a_stack_is_built_of_branches_by_hand_and_completions_pass_the_other_branch(void **state)
{
    (void)state;
    strata_resource plain = {.ops = &plain_ops}, other = {.ops = &plain_ops}, outer = {.ops = &plain_ops};
    strata_resource *fault;
    check_ok(strata_fault_create(&(strata_fault_options){.every = 2}, &fault));
    strata_resource *branches[] = {&plain, fault, null_owner(), &other, null_owner()};
    strata_resource *layers[] = {&outer, NULL};
    strata_stack *stack;
    destroyed = 0;
    check_ok(create(branches, 3, 2, &layers[1]));
    check_ok(strata_stack_build(layers, 2, 0, &stack));
    assert_string_equal(strata_stack_text(stack), "plain, fallback(plain, fault, null | plain, null)");
    assert_ptr_equal(strata_stack_layer(stack, "plain", 2), &other);
    assert_ptr_equal(strata_stack_layer(stack, "null", 1), branches[4]);
    assert_ptr_equal(layers[1]->upstream, &plain);
    assert_ptr_equal(other.upstream, branches[4]);
    assert_null(branches[2]->upstream);
    strata_block blocks[2]; /* one of each branch */
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_resource_allocate(layers[0], &(strata_request){.bytes = 1000}, &blocks[i]));
    for (size_t i = 0; i < 2; i++) {
        completed_count = 0;
        check_ok(strata_resource_deallocate(layers[0], &blocks[i], NULL));
        assert_int_equal(completed_count, 2);
        assert_true(completed[0] == (i ? &other : &plain) && completed[1] == &outer);
    }
    strata_resource *in_stack;
    check_status(create(branches, 3, 2, &in_stack), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_stack_destroy(stack));
    assert_int_equal(destroyed, 3);
}

static void a_stack_that_is_not_built_leaves_the_branches_with_the_layer(void **state)
{
    (void)state;
    strata_resource plain = {.ops = &plain_ops}, other = {.ops = &plain_ops}, last = {.ops = &plain_ops};
    strata_resource *branches[] = {&plain, null_owner(), &other}, *layers[2];
    strata_stack *stack;
    destroyed = 0;
    check_ok(create(branches, 2, 1, &layers[0]));
    check_status(strata_stack_build(layers, 1, 0, &stack), STRATA_ERROR_INVALID_VALUE); /* no owner */
    check_last_error(STRATA_ERROR_INVALID_VALUE, "layer 4 of the stack (plain) is the last one and owns no memory");
    layers[1] = &last;
    check_status(strata_stack_build(layers, 2, 0, &stack), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "layer 1 of the stack (fallback) stands over branches");
    assert_true(!plain.stack && !plain.upstream && plain.ops == &plain_ops && destroyed == 0);
    check_ok(strata_resource_destroy(layers[0]));
    assert_int_equal(destroyed, 2);
}

static void a_layer_in_two_branches_is_refused(void **state)
{
    (void)state;
    strata_resource plain = {.ops = &plain_ops}, other = {.ops = &plain_ops}, *refused = &plain;
    strata_resource *first[] = {&plain, null_owner()}, *second[] = {&other, &plain, null_owner()},
                    *twice[] = {&other, &other}, *with_null[] = {&plain, NULL};
    const strata_branch branches[] = {{first, 2}, {second, 3}}, alike[] = {{first, 2}, {twice, 2}};
    destroyed = 0;
    check_status(strata_fallback_create(&(strata_fallback_options){.branches = branches, .branch_count = 2}, &refused),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "layer 2 of branch 2 appears twice");
    assert_null(refused);
    check_status(strata_fallback_create(&(strata_fallback_options){.branches = alike, .branch_count = 2}, &refused),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "layer 2 of branch 2 appears twice");
    assert_int_equal(destroyed, 0);
    check_ok(strata_resource_destroy(first[1]));
    check_ok(strata_resource_destroy(second[2]));
    check_status(create(with_null, 1, 1, &refused), STRATA_ERROR_INVALID_VALUE);
    assert_null(refused);
    check_status(create(with_null, 1, 0, &refused), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_fallback_create(NULL, &refused), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_fallback_create(&(strata_fallback_options){.branches = branches, .branch_count = 1}, &refused),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "fallback: 1 branches; expected 2 to 8");
}

/* ---- threads ---- */

enum { THREADS = 8, PASSED = 16 };

/* Blocks that one thread made and another one frees. */
typedef struct passing {
    strata_runtime *runtime;
    size_t rounds;
    pthread_mutex_t lock;
    strata_block blocks[PASSED]; /* guarded by lock */
    _Atomic unsigned failures;
} passing;

typedef struct worker {
    passing *with;
    uint64_t seed;
} worker;

static strata_block exchange(passing *self, size_t at, strata_block block)
{
    pthread_mutex_lock(&self->lock);
    const strata_block before = self->blocks[at];
    self->blocks[at] = block;
    pthread_mutex_unlock(&self->lock);
    return before;
}

static void *allocate_and_free_others(void *data)
{
    worker *self = data;
    passing *with = self->with;
    for (size_t i = 0; i < with->rounds; i++) {
        self->seed = self->seed * UINT64_C(6364136223846793005) + 1;
        strata_block block = {0};
        if (strata_runtime_allocate(with->runtime, 1 + (self->seed >> 33) % (3 * MIB), NULL, &block) != STRATA_SUCCESS)
            with->failures++;
        block = exchange(with, (size_t)(self->seed >> 60), block);
        if (block.bytes && strata_runtime_deallocate_on(with->runtime, &block, NULL) != STRATA_SUCCESS)
            with->failures++;
    }
    return NULL;
}

static void threads_allocate_from_both_branches_and_free_each_others_blocks(void **state)
{
    (void)state;
    if (!has_managed())
        skip();
    passing self = {.runtime = make("fallback(pool(max_size=8MiB) | managed)"), .rounds = test_effort(2000, 100)};
    pthread_t threads[THREADS];
    worker workers[THREADS];
    pthread_mutex_init(&self.lock, NULL);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){&self, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free_others, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&self.lock);
    for (size_t i = 0; i < PASSED; i++)
        if (self.blocks[i].bytes)
            deallocate(self.runtime, &self.blocks[i]);
    assert_int_equal(self.failures, 0);
    assert_true(value(self.runtime, "fallback.fell_back") > 0 && value(self.runtime, "fallback.refused") == 0);
    assert_true(usage_of(self.runtime, "pool", 0).live_blocks == 0);
    assert_true(usage_of(self.runtime, "managed", 0).live_blocks == 0);
    end(self.runtime);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_first_branch_refuses_the_second_serves_and_no_failure_is_heard),
        cmocka_unit_test(a_branch_that_exceeds_its_budget_falls_back_too),
        cmocka_unit_test(three_branches_and_branches_of_branches_are_tried_in_order),
        cmocka_unit_test(a_request_that_every_branch_refuses_leaves_nothing_and_says_why_each_did),
        cmocka_unit_test(other_failures_are_not_made_good),
        cmocka_unit_test(a_later_branch_that_cannot_serve_such_a_request_is_passed_over),
        cmocka_unit_test(an_empty_block_is_of_no_branch),
        cmocka_unit_test(frees_find_their_branch_by_identity_and_by_address),
        cmocka_unit_test(uses_on_several_streams_are_ordered_in_both_branches),
        cmocka_unit_test(a_free_inside_a_capture_is_done_by_the_branch_of_its_block),
        cmocka_unit_test(a_branch_without_a_limit_leaves_the_fallback_without_one),
        cmocka_unit_test(the_budget_above_counts_the_blocks_of_both_branches),
        cmocka_unit_test(completions_reach_the_layers_above_their_owner_alone),
        cmocka_unit_test(the_charge_is_the_largest_of_the_branches),
        cmocka_unit_test(layers_in_the_second_branch_are_reached_as_those_in_the_first),
        cmocka_unit_test(usage_adds_the_branches),
        cmocka_unit_test(there_is_a_limit_if_every_branch_has_one),
        cmocka_unit_test(trim_and_reap_reach_both_branches_the_last_one_first),
        cmocka_unit_test(capabilities_are_those_that_both_branches_have),
        cmocka_unit_test(being_in_stream_order_is_not_claimed_of_two_owners_that_are),
        cmocka_unit_test(reports_have_each_branch_and_values_of_each_layer),
        cmocka_unit_test(a_stack_is_built_of_branches_by_hand_and_completions_pass_the_other_branch),
        cmocka_unit_test(a_stack_that_is_not_built_leaves_the_branches_with_the_layer),
        cmocka_unit_test(a_layer_in_two_branches_is_refused),
        cmocka_unit_test(threads_allocate_from_both_branches_and_free_each_others_blocks),
    };
    test_open_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
