/* pool: the address of a block, joined extents, and remapped chunks. */
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/refusals.h"

enum { KIB = 1024 };

static strata_runtime *runtime;
static CUstream first, second;

static void begin(const char *stack)
{
    needs_granule(2 * MIB);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stack}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &first));
    check_ok(strata_runtime_stream_acquire(runtime, &second));
}

static void end(void)
{
    check_ok(strata_runtime_stream_release(runtime, first));
    check_ok(strata_runtime_stream_release(runtime, second));
    check_ok(strata_runtime_destroy(runtime));
}

static strata_block take(size_t bytes, CUstream stream)
{
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, bytes, stream, &block));
    return block;
}

static void give(strata_block *block)
{
    check_ok(strata_runtime_deallocate(runtime, block));
}

/* ---- addresses ---- */

enum { HOLE = 8704 * KIB, PART = 2560 * KIB };

/* A free extent of 8.5 MiB, a live block, and the end of memory. Where 2.5 MiB go, from the extent's start. */
static uint64_t offset_in_a_hole(const char *stack, size_t end_bytes)
{
    begin(stack);
    strata_block hole = take(HOLE, first), wall = take(MIB, first), at_end = take(end_bytes, first);
    assert_true(wall.address == hole.address + HOLE && at_end.address == wall.address + MIB);
    const CUdeviceptr start = hole.address;
    give(&hole);
    give(&at_end);
    strata_block block = take(PART, first);
    const uint64_t offset = block.address - start;
    give(&block);
    give(&wall);
    end();
    return offset;
}

static void without_a_limit_the_best_fit_is_taken_also_at_the_end_of_memory(void **state)
{
    (void)state;
    assert_int_equal(offset_in_a_hole("pool", 3 * MIB), HOLE + MIB);
}

/* At the extent's end, a block touches one wholly free granule, at its start two. */
static void near_a_limit_a_block_goes_where_it_begins_to_use_the_fewest_granules(void **state)
{
    (void)state;
    assert_int_equal(offset_in_a_hole("pool(max_size=10MiB)", 512 * KIB), HOLE - PART);
}

static void near_a_limit_the_end_of_memory_is_taken_where_it_fits_best(void **state)
{
    (void)state;
    begin("pool(max_size=12MiB)");
    strata_block hole = take(8 * MIB, first), wall = take(MIB, first), at_end = take(3 * MIB, first);
    give(&hole);
    give(&at_end);
    at_end = take(PART, first);
    hole = take(8 * MIB, first);
    give(&hole);
    give(&at_end);
    give(&wall);
    end();
}

/* ---- neighbours ---- */

/* Whether 3 MiB that a stream alone frees are joined with 1 MiB of unused memory behind them. */
static bool is_joined(const char *stack, bool legacy)
{
    begin(stack);
    CUstream stream = legacy ? NULL : first;
    strata_block large = take(3 * MIB, stream);
    assert_int_equal(value_of(runtime, "pool.reserved"), 4 * MIB);
    give(&large);
    const uint64_t flushes = value_of(runtime, "pool.flushes");
    strata_block block = take(3584 * KIB, stream);
    const bool joined = value_of(runtime, "pool.flushes") == flushes;
    give(&block);
    end();
    return joined;
}

static void what_a_stream_alone_frees_is_joined_with_what_is_complete(void **state)
{
    (void)state;
    assert_true(is_joined("pool", false));
    assert_true(is_joined("pool", true));
}

/* Other streams would have to wait for it, which the policies do not allow. */
static void complete_memory_stays_apart_where_it_could_not_be_waited_for(void **state)
{
    (void)state;
    assert_false(is_joined("pool(internal_dependencies=no)", false));
    assert_false(is_joined("pool(opportunistic=no)", false));
}

/* They suffice together all the same, without a driver call. */
static void where_others_have_much_it_stays_apart_for_them(void **state)
{
    (void)state;
    begin("pool");
    strata_block others = take(8 * MIB, second), large = take(3 * MIB, first);
    assert_int_equal(value_of(runtime, "pool.reserved"), 12 * MIB);
    give(&others);
    strata_block part = take(2 * MIB, second); /* not of the 1 MiB behind the other block */
    give(&large);
    const uint64_t flushes = value_of(runtime, "pool.flushes"), asked = value_of(runtime, "pool.polls");
    test_calls calls;
    test_calls_begin(&calls);
    strata_block block = take(3584 * KIB, first);
    assert_int_equal(test_calls_total(&calls), 0);
    assert_int_equal(value_of(runtime, "pool.polls"), asked);
    assert_true(value_of(runtime, "pool.flushes") > flushes);
    give(&block);
    give(&part);
    end();
}

/* Polls are for the memory of the others. */
static void a_stream_is_not_polled_where_memory_of_others_serves(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    begin("pool(overhead=1)");
    strata_block own = take(3 * MIB, first), wall = take(MIB, first), others = take(8 * MIB, second);
    give(&own);
    give(&others);
    strata_block small = take(MIB, second);
    test_calls calls;
    test_calls_begin(&calls);
    strata_block block = take(6 * MIB, first);
    assert_true(overlap(&block, &others) && test_calls_of(&calls, "cuStreamQuery") == 1);
    give(&block);
    give(&small);
    give(&wall);
    end();
}

/* A stream that is never idle gets an event then, and what it had freed before can be remapped the next time. */
static void where_memory_grows_the_stream_is_polled(void **state)
{
    (void)state;
    begin("pool(overhead=5000)");
    strata_block block = take(3 * MIB, first), wall = take(MIB, first);
    give(&block);
    const uint64_t asked = value_of(runtime, "pool.polls");
    block = take(8 * MIB, first);
    assert_int_equal(value_of(runtime, "pool.polls"), asked + 1);
    give(&block);
    give(&wall);
    end();
}

/* A large complete extent is not bound to the one stream that frees a little beside it. */
static void complete_memory_is_not_joined_with_what_is_smaller(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    begin("pool(initial_size=64MiB)");
    strata_block block = take(3 * MIB, first);
    test_stall *stall = test_stall_begin(first);
    give(&block);
    strata_block wall = take(MIB, first);
    test_calls calls;
    test_calls_begin(&calls);
    strata_block other = take(40 * MIB, second);
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
    test_stall_end(stall);
    give(&other);
    give(&wall);
    end();
}

/* ---- chunks ---- */

/* Two free extents between live blocks: a larger block gets its memory from the smaller one first, unmapped by one
 * call. */
static void chunks_are_remapped_from_the_smallest_extent(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    begin("pool(overhead=1, chunk=2MiB)");
    strata_block low = take(24 * MIB, first), wall = take(2 * MIB, first), high = take(20 * MIB, first);
    strata_block other_wall = take(2 * MIB, first);
    const strata_block holes[2] = {low, high};
    give(&low);
    give(&high);
    test_synchronize(first);
    test_calls calls;
    test_calls_begin(&calls);
    strata_block large = take(32 * MIB, first);
    assert_in_range(test_calls_of(&calls, "cuMemUnmap"), 1, 2);
    assert_true(value_of(runtime, "pool.chunks.moved") >= 10 && value_of(runtime, "pool.reserved") <= 52 * MIB);
    strata_block small = take(10 * MIB, first);
    assert_true(overlap(&small, &holes[0]) && !overlap(&small, &holes[1]));
    give(&small);
    give(&large);
    give(&wall);
    give(&other_wall);
    end();
}

/* ---- the scope in which memory is made and mapped ---- */

/* With a refused call, the request succeeds or fails, and nothing leaks. */
static void request_with_refusals(const char *stack, const char *call, unsigned first_call, unsigned count)
{
    begin(stack);
    strata_block hole = take(3 * MIB, first), wall = take(MIB, second), block, other;
    give(&hole);
    test_refuse(call, first_call, count, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_runtime_allocate(runtime, 24 * MIB, second, &block);
    if (status != STRATA_SUCCESS)
        check_last_error(STRATA_ERROR_DRIVER, call);
    test_refuse_no_more();
    block = status == STRATA_SUCCESS ? block : take(24 * MIB, second);
    other = take(30 * MIB, first);
    give(&block);
    give(&wall);
    give(&other);
    check_cu(test_cu()->CtxSynchronize());
    check_ok(strata_runtime_trim(runtime, 0, NULL));
    assert_int_equal(value_of(runtime, "pool.reserved"), 0);
    end();
}

static void a_scope_that_cannot_be_entered_is_reported_and_leaks_no_addresses(void **state)
{
    (void)state;
    test_needs_simulated_driver("calls are refused");
    static const char *const stacks[] = {"pool", "pool(max_size=64MiB)", "pool(overhead=1)",
                                         "pool(initial_size=16MiB)"};
    static const char *const calls[] = {"cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0] * 2; i++)
        for (unsigned first_call = 1; first_call < 6; first_call++)
            for (unsigned count = 1; count < 22; count += 4)
                request_with_refusals(stacks[i / 2], calls[i % 2], first_call, count);
}

/* ---- caches that grow ---- */

/* A language model that generates text: each step allocates a larger block for each cache of each layer and frees the
 * one before, with short-lived blocks in between. */
enum { LAYERS = 16, BATCH = 8, WIDTH = 2048, REQUESTS = 12 };

typedef struct model {
    uint64_t live, peak, operations;
    uint32_t seed;
} model;

static uint32_t draw(model *self, uint32_t least, uint32_t most)
{
    self->seed = self->seed * 1664525 + 1013904223;
    return least + (uint32_t)(((uint64_t)self->seed >> 8) * (most - least + 1) >> 24);
}

static strata_block get(model *self, size_t bytes)
{
    strata_block block = take(bytes, first);
    self->live += block.bytes;
    self->peak = self->live > self->peak ? self->live : self->peak;
    self->operations++;
    return block;
}

static void drop(model *self, strata_block *block)
{
    if (!block->id.generation)
        return;
    self->live -= block->bytes;
    self->operations++;
    give(block);
    *block = (strata_block){0};
}

static void step_of_a_layer(model *self, size_t tokens, size_t length, strata_block caches[2])
{
    strata_block parts[2], inner[2];
    for (size_t i = 0; i < 2; i++)
        parts[i] = get(self, BATCH * tokens * WIDTH);
    for (size_t i = 0; i < 2; i++) {
        strata_block larger = get(self, BATCH * length * WIDTH);
        drop(self, &caches[i]);
        caches[i] = larger;
        drop(self, &parts[i]);
    }
    for (size_t i = 0; i < 2; i++)
        inner[i] = get(self, BATCH * 64 * tokens * length >> i);
    for (size_t i = 0; i < 2; i++)
        drop(self, &inner[i]);
    strata_block wide = get(self, BATCH * tokens * WIDTH * 8);
    drop(self, &wide);
}

static void generate(model *self)
{
    self->seed = 5;
    for (unsigned request = 0; request < REQUESTS; request++) {
        earn_nothing(pool_inside(runtime));
        strata_block caches[LAYERS][2] = {0};
        const uint32_t prompt = draw(self, 16, 512), steps = draw(self, 8, 128);
        for (uint32_t step = 0; step < steps; step++) {
            strata_block logits = get(self, BATCH * 200000);
            for (size_t layer = 0; layer < LAYERS; layer++)
                step_of_a_layer(self, step ? 1 : prompt, prompt + step, caches[layer]);
            drop(self, &logits);
        }
        for (size_t layer = 0; layer < LAYERS; layer++)
            for (size_t i = 0; i < 2; i++)
                drop(self, &caches[layer][i]);
    }
}

static void caches_that_grow_take_little_more_than_is_live_and_few_calls(void **state)
{
    (void)state;
    test_needs_truthful_queries();
    begin("pool");
    model self = {0};
    strata_block weights[LAYERS];
    for (size_t i = 0; i < LAYERS; i++)
        weights[i] = get(&self, 10 * MIB + 4096 * i);
    generate(&self);
    const uint64_t before = self.operations;
    test_calls calls;
    test_calls_begin(&calls);
    generate(&self);
    const uint64_t operations = self.operations - before;
    const double held = (double)value_of(runtime, "pool.reserved.peak") / (double)self.peak;
    print_message("%.3f of %llu MiB, %llu calls in %llu operations\n", held, (unsigned long long)self.peak >> 20,
                  (unsigned long long)test_calls_total(&calls), (unsigned long long)operations);
    assert_true(held <= 1.02 + POOL_SHARE / 1000.0); /* moves bought nothing; a part of a chunk */
    assert_true(test_calls_total(&calls) * 1000 <= operations);
    for (size_t i = 0; i < LAYERS; i++)
        drop(&self, &weights[i]);
    end();
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_limit_the_best_fit_is_taken_also_at_the_end_of_memory),
        cmocka_unit_test(near_a_limit_a_block_goes_where_it_begins_to_use_the_fewest_granules),
        cmocka_unit_test(near_a_limit_the_end_of_memory_is_taken_where_it_fits_best),
        cmocka_unit_test(what_a_stream_alone_frees_is_joined_with_what_is_complete),
        cmocka_unit_test(where_others_have_much_it_stays_apart_for_them),
        cmocka_unit_test(a_stream_is_not_polled_where_memory_of_others_serves),
        cmocka_unit_test(where_memory_grows_the_stream_is_polled),
        cmocka_unit_test(complete_memory_is_not_joined_with_what_is_smaller),
        cmocka_unit_test(complete_memory_stays_apart_where_it_could_not_be_waited_for),
        cmocka_unit_test(chunks_are_remapped_from_the_smallest_extent),
        cmocka_unit_test(a_scope_that_cannot_be_entered_is_reported_and_leaks_no_addresses),
        cmocka_unit_test(caches_that_grow_take_little_more_than_is_live_and_few_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
