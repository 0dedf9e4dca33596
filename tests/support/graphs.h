/* Captures and graphs of a case, and what a case that fails leaves of them. */
#ifndef STRATA_TEST_GRAPHS_H
#define STRATA_TEST_GRAPHS_H

#include "support/fixture.h"
#include "support/sweep.h"

#include "core/base/error.h"

enum { BYTES = 64 << 10 };

static strata_runtime *kept_runtime;
static CUstream captured[8];
static size_t captured_count;
static strata_graph *graphs[256];
static size_t graph_count;
static strata_capture_pool *pools[8];
static size_t pool_count;
static strata_ref *refs[8];
static size_t ref_count;

static inline void clear_away(void)
{
    strata_error_suppress_begin();
    while (captured_count)
        strata_capture_discard(kept_runtime, captured[--captured_count]);
    while (graph_count)
        strata_graph_destroy(graphs[--graph_count]);
    while (pool_count)
        strata_capture_pool_release(pools[--pool_count]);
    while (ref_count)
        strata_ref_release(refs[--ref_count]);
    strata_error_suppress_end(false);
}

static inline strata_capture_pool *make_pool(test_fixture *fixture)
{
    strata_capture_pool *pool;
    check_ok(strata_capture_pool_create(fixture->runtime, "a test's", &pool));
    assert_true(pool_count < sizeof pools / sizeof pools[0]);
    return pools[pool_count++] = pool;
}

static inline strata_status release_pool(strata_capture_pool *pool)
{
    for (size_t i = 0; i < pool_count; i++)
        if (pools[i] == pool) {
            pools[i] = pools[--pool_count];
            break;
        }
    return strata_capture_pool_release(pool);
}

static inline void begin(test_fixture *fixture, CUstream stream, strata_capture_pool *pool)
{
    kept_runtime = fixture->runtime;
    check_ok(strata_capture_begin(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, pool));
    assert_true(captured_count < sizeof captured / sizeof captured[0]);
    captured[captured_count++] = stream;
}

static inline void forget_capture(CUstream stream)
{
    for (size_t i = 0; i < captured_count; i++)
        if (captured[i] == stream)
            captured[i] = captured[--captured_count];
}

static inline strata_graph *end(test_fixture *fixture, CUstream stream)
{
    strata_graph *graph;
    check_ok(strata_capture_end(fixture->runtime, stream, &graph));
    forget_capture(stream);
    assert_true(graph_count < sizeof graphs / sizeof graphs[0]);
    return graphs[graph_count++] = graph;
}

static inline strata_status destroy(strata_graph *graph)
{
    for (size_t i = 0; i < graph_count; i++)
        if (graphs[i] == graph) {
            graphs[i] = graphs[--graph_count];
            break;
        }
    return strata_graph_destroy(graph);
}

static inline void copy(test_fixture *fixture, const strata_block *to, const strata_block *from, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, from, stream, STRATA_ACCESS_READ));
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, to, stream, STRATA_ACCESS_WRITE));
    check_cu(test_cu()->MemcpyDtoDAsync(to->address, from->address, BYTES, stream));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, from, stream, STRATA_ACCESS_READ));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, to, stream, STRATA_ACCESS_WRITE));
}

static inline size_t live_blocks(test_fixture *fixture)
{
    return test_usage(fixture).live_blocks;
}

static inline void check_value(test_fixture *fixture, const strata_block *block, unsigned char value, CUstream stream)
{
    const unsigned char *seen = test_read(fixture, block, stream);
    test_synchronize(stream);
    check_bytes(seen, value, BYTES);
    fixture->seen_used = 0;
}

/* Runs cases on owners of memory, and on layers above them. */
static inline int run_graph_cases(const test_case *cases, size_t count)
{
    enum { RESOURCES = 4 }; /* swept; the others are decorated */
    static const char *const stacks[] = {
        "async",
        "direct",
        "pool",
        "pool, direct",
        "budget(limit=4GiB), logging(format=memory), statistics, pool",
        "guard, pool",
        "aligned, async",
        "fallback(pool(max_size=1GiB) | direct)",
        "binning, pool",
    };
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on(stacks, test_is_swept() ? RESOURCES : sizeof stacks / sizeof stacks[0], cases, count);
}

#endif
