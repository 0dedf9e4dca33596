/* Shared by the tests of statistics: a stack over null, whose sizes are those of the test, and readers. */
#ifndef STRATA_TESTS_SUPPORT_STATISTICS_H
#define STRATA_TESTS_SUPPORT_STATISTICS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resources/statistics/internal.h"
#include "support/effort.h"
#include "support/fixture.h"
#include "support/sweep.h"

enum { THREADS = 16, ROOM = 64, KIB = 1024, MIB = 1 << 20 };

static strata_tag tag_a, tag_b;

static inline uint64_t value_of(strata_stack *stack, const char *name)
{
    uint64_t value;
    check_ok(strata_control(stack, name, &value, NULL));
    return value;
}

static inline strata_statistics_counters read_all(strata_resource *layer, uint32_t scope)
{
    strata_statistics_counters counters;
    check_ok(strata_statistics_read(layer, scope, &counters));
    return counters;
}

static inline strata_statistics_counters read_tag(strata_resource *layer, uint32_t scope, strata_tag tag)
{
    strata_statistics_counters counters;
    check_ok(strata_statistics_read_tag(layer, scope, tag, &counters));
    return counters;
}

#define check_counter(counter, current, peak, total) \
    check_counter_at((counter), (current), (peak), (total), __FILE__, __LINE__)

static inline void check_counter_at(strata_statistics_counter got, int64_t current, int64_t peak, int64_t total,
                                    const char *file, int line)
{
    if (got.current == current && got.peak == peak && got.total == total)
        return;
    print_error("{%lld, %lld, %lld}, expected {%lld, %lld, %lld}\n", (long long)got.current, (long long)got.peak,
                (long long)got.total, (long long)current, (long long)peak, (long long)total);
    _fail(file, line);
}

/* ---- over null, without a runtime ---- */

static strata_stack *stack;
static strata_resource *top, *layer;

static inline int build_text(const char *text)
{
    if (strata_stack_create(text, 0, &stack) != STRATA_SUCCESS)
        return -1;
    top = strata_stack_top(stack);
    layer = strata_stack_layer(stack, "statistics", 0);
    return 0;
}

static inline int build(void **state)
{
    (void)state;
    return build_text("statistics, null");
}

static inline int end(void **state)
{
    (void)state;
    strata_status status = strata_stack_destroy(stack);
    if (status != STRATA_SUCCESS)
        print_error("%s\n", strata_last_error()->message);
    stack = NULL;
    return status != STRATA_SUCCESS;
}

static inline strata_block allocate(size_t bytes, strata_tag tag)
{
    strata_block block;
    check_ok(strata_resource_allocate(top, &(strata_request){.bytes = bytes, .tag = tag}, &block));
    return block;
}

static inline void release(const strata_block *block)
{
    check_ok(strata_resource_deallocate(top, block, NULL));
}

static inline unsigned draw(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

typedef struct seen {
    size_t count, bytes, of_tag_a;
    bool wrong;
    CUdeviceptr last;
} seen;

static inline void look(const strata_block *block, uint32_t call_stack, void *data)
{
    seen *all = data;
    all->count++;
    all->bytes += block->bytes;
    all->of_tag_a += block->tag == tag_a;
    all->wrong |= call_stack != 0 || block->requested != block->bytes || block->address <= all->last;
    all->last = block->address;
}

static inline void count_blocks(const strata_block *block, void *data)
{
    look(block, 0, data);
}

static inline bool make_tags(void)
{
    return strata_tag_intern("a", &tag_a) == STRATA_SUCCESS && strata_tag_intern("b", &tag_b) == STRATA_SUCCESS;
}

#endif
