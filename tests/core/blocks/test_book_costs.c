/* What a live block costs in host memory, at 50,000 live blocks. Each figure is printed. The target is 128 bytes for an
 * owner alone, whatever the size of its blocks; bench/host_blocks.c sweeps over many more. Layers add what they
 * remember of each block. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/host_memory.h"
#include "core/stack/stack.h"
#include "support/effort.h"
#include "support/fixture.h"

enum { ENTRIES = STRATA_ENTRY_CHUNK }; /* entries come in chunks: whole ones are looked at */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CHUNKS = 2 };
#else
enum { CHUNKS = 25 };
#endif

/* What another allocator than the library's own may round up to, beyond that one. */
#if defined(STRATA_TEST_ARENA)
enum { ROUNDED = 0 };
#else
enum { ROUNDED = 8 };
#endif

typedef struct cost {
    const char *stack;
    size_t bytes; /* of each block */
    size_t most;  /* bytes of host memory that it may cost */
} cost;

static const cost costs[] = {
    {"null", 512, 98},
    {"direct", 512, 110},
    {"direct", 8192, 112},
    {"pool", 512, 126},
    {"pool", 8192, 127},
    {"pool", 16384, 126},
    {"pool", 100 << 10, 128},
    {"pool", 340 << 10, 128}, /* three in a bucket of four: the most that the index takes */
    {"pool", 512 << 10, 128},
    {"async", 512, 126},
    {"async", 8192, 128},
    {"async", 340 << 10, 128},
    {"budget, logging(format=null), statistics, null", 512, 200},
    {"budget, logging(format=null), statistics, async", 512, 215},
};

static strata_block blocks[CHUNKS * ENTRIES];

static void allocate(strata_stack *stack, size_t from, size_t end, size_t bytes)
{
    for (size_t i = from; i < end; i++)
        check_ok(strata_resource_allocate(strata_stack_top(stack), &(strata_request){.bytes = bytes}, &blocks[i]));
}

static void deallocate(strata_stack *stack, size_t end)
{
    for (size_t i = 0; i < end; i++)
        check_ok(strata_resource_deallocate(strata_stack_top(stack), &blocks[i], NULL));
}

/* A log's writer makes another spare ring once one is taken, some time after: it is not to come in between. */
static void let_the_log_settle(strata_stack *stack)
{
    strata_resource *logging = strata_stack_layer(stack, "logging", 0);
    if (logging)
        check_ok(strata_logging_flush(logging));
}

static void a_live_block_costs_little_host_memory(void **state)
{
    (void)state;
    const size_t chunk = ENTRIES - 1; /* the first one: there is no entry 0 */
    const size_t count = test_effort(CHUNKS, 2) * ENTRIES - 1;
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        const cost *row = &costs[i];
        strata_stack *stack;
        uint64_t before = strata_host_bytes();
        check_ok(strata_stack_create(row->stack, 0, &stack));
        allocate(stack, 0, chunk, row->bytes);
        let_the_log_settle(stack);
        uint64_t first = strata_host_bytes();
        allocate(stack, chunk, count, row->bytes);
        uint64_t all = strata_host_bytes();
        deallocate(stack, count);
        check_ok(strata_stack_destroy(stack));
        double each = (double)(all - first) / (double)(count - chunk);
        printf("%-48s %6zu bytes: %5.1f a block, and %4.0f KiB for the stack\n", row->stack, row->bytes, each,
               ((double)(all - before) - each * (double)count) / 1024);
        assert_true(each <= (double)row->most + ROUNDED + (count < 10000 ? 4 : 0)); /* a small pool has small chunks */
    }
}

static void an_entry_of_an_owner_alone_has_two_cache_lines(void **state)
{
    (void)state;
    static const char *const owners[] = {"null", "direct", "async", "pool", "managed", "pinned"};
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++) {
        strata_stack *stack;
        strata_status status = strata_stack_create(owners[i], 0, &stack);
        if (status == STRATA_ERROR_UNSUPPORTED)
            continue;
        check_ok(status);
        assert_true(stack->head.table->stride <= 128);
        check_ok(strata_stack_destroy(stack));
    }
}

int main(void)
{
    setenv("STRATA_SIM_MEMORY", "64GiB", 0);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_live_block_costs_little_host_memory),
        cmocka_unit_test(an_entry_of_an_owner_alone_has_two_cache_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
