/* One pass for a hit below budget, logging and statistics: which stacks have it, and that its calls say and leave what
 * the layers' own operations do. */
#include "core/stack/default_operations.h"
#include "core/stack/fuse.h"
#include "resources/fused/fused.h"
#include "support/effort.h"
#include "support/fixture.h"
#include "support/statistics_inside.h"

#include <strata/strata.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1024, MIB = 1 << 20, STREAMS = 3, ROOM = 48, RECORDS = 1 << 16, UNKNOWN = STREAMS };

/* A runtime with its blocks. */
typedef struct side {
    strata_runtime *runtime;
    strata_resource *top;
    CUstream streams[STREAMS + 1]; /* the last one is not known */
    strata_block blocks[ROOM], freed[ROOM];
    strata_budget_account *account;
    strata_statistics_scope *scope;
} side;

/* What leaves a thread, or the whole stack, to the layers' own operations from then on. */
static bool with_tags, enters;
static strata_fuse *fuse;
static strata_tag tag;

static void open_side(side *self, const char *stack, bool fused)
{
    strata_fuse_operations = fused ? fuse : NULL;
    const strata_runtime_config config = {.size = sizeof config, .stack_text = stack};
    memset(self, 0, sizeof *self);
    const strata_status status = strata_runtime_create(&config, &self->runtime);
    strata_fuse_operations = fuse;
    check_ok(status);
    self->top = strata_stack_top(strata_runtime_stack(self->runtime));
    strata_resource *charging = strata_stack_layer(strata_runtime_stack(self->runtime), "budget", 0);
    if (charging)
        check_ok(strata_budget_account_open(strata_budget_base(charging), NULL, &self->account));
    strata_resource *counting = strata_stack_layer(strata_runtime_stack(self->runtime), "statistics", 0);
    if (counting)
        check_ok(strata_statistics_scope_open(counting, NULL, NULL, &self->scope));
    for (size_t i = 0; i < STREAMS; i++)
        check_ok(strata_runtime_stream_acquire(self->runtime, &self->streams[i]));
    assert_int_equal(strata_cu.StreamCreate(&self->streams[UNKNOWN], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

static void close_side(side *self)
{
    for (size_t i = 0; i < ROOM; i++)
        if (self->blocks[i].id.generation)
            check_ok(strata_runtime_deallocate_on(self->runtime, &self->blocks[i], self->streams[0]));
    if (self->account)
        check_ok(strata_budget_account_close(self->account));
    check_ok(strata_statistics_scope_close(self->scope, NULL));
    for (size_t i = 0; i < STREAMS; i++)
        check_ok(strata_runtime_stream_release(self->runtime, self->streams[i]));
    assert_int_equal(strata_cu.StreamDestroy(self->streams[UNKNOWN]), CUDA_SUCCESS);
    check_ok(strata_runtime_destroy(self->runtime));
}

static strata_resource *layer_of(const side *self, const char *name)
{
    return strata_stack_layer(strata_runtime_stack(self->runtime), name, 0);
}

/* The thread is in the account and scope, or in the base and none. */
static void enter(side *self, bool in)
{
    strata_resource *charging = layer_of(self, "budget"), *counting = layer_of(self, "statistics");
    if (charging)
        check_ok(strata_budget_enter(in ? self->account : strata_budget_base(charging), NULL));
    if (counting)
        check_ok(strata_statistics_scope_enter(counting, in ? self->scope : NULL, NULL));
}

/* ---- which ---- */

static bool is_fused(const char *stack)
{
    side here;
    open_side(&here, stack, true);
    const bool any = here.top->stack->unannounced.top_allocate != strata_top_allocate_directly && here.top->upstream &&
                     here.top->stack->unannounced.top_allocate != strata_top_allocate_plainly;
    close_side(&here);
    return any;
}

static void stacks_of_a_pool_and_the_three_are_fused_and_no_others(void **state)
{
    (void)state;
    static const char *const with[] = {
        "budget(limit=1GiB), pool",
        "logging(format=null), pool",
        "statistics, pool",
        "budget, logging(format=null), statistics, pool",
        "statistics, budget, logging(format=null), pool",
        "logging(format=null), statistics(stacks=on), budget(limit=1GiB, soft=500MiB), pool(prefer=memory)",
    };
    static const char *const without[] = {
        "pool",
        "budget, direct",
        "statistics, binning, pool",
        "statistics, statistics, pool",
        "budget, nvtx, pool",
        "guard, statistics, pool",
        "statistics, aligned, pool",
        "budget(limit=1GiB, wait=live), pool",
        "budget(limit=1GiB, shared=fused), pool",
    };
    for (size_t i = 0; i < sizeof with / sizeof with[0]; i++)
        if (!is_fused(with[i]))
            fail_msg("%s is not fused", with[i]);
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++)
        if (is_fused(without[i]))
            fail_msg("%s is fused", without[i]);
}

/* ---- the same as apart ---- */

static size_t stream_number(const side *self, uint64_t handle)
{
    for (size_t i = 0; i <= STREAMS; i++)
        if ((uint64_t)(uintptr_t)self->streams[i] == handle)
            return i;
    return STREAMS + 1;
}

static void check_records(const side *fused, const side *apart)
{
    if (!layer_of(fused, "logging"))
        return;
    static strata_log_record a[RECORDS], b[RECORDS];
    size_t count, other;
    check_ok(strata_logging_take(fused->top, a, RECORDS, &count));
    check_ok(strata_logging_take(apart->top, b, RECORDS, &other));
    assert_int_equal(count, other);
    for (size_t i = 0; i < count; i++) {
        const bool equal = a[i].kind == b[i].kind && a[i].status == b[i].status && a[i].flags == b[i].flags &&
                           (a[i].bytes == b[i].bytes || a[i].kind == STRATA_LOG_TRIM /* what the pool had */) &&
                           a[i].requested == b[i].requested && a[i].alignment == b[i].alignment &&
                           a[i].tag == b[i].tag && a[i].number == b[i].number && !a[i].stream_id == !b[i].stream_id &&
                           a[i].access == b[i].access &&
                           stream_number(fused, a[i].stream) == stream_number(apart, b[i].stream) &&
                           (!i || a[i].monotonic_ns >= a[i - 1].monotonic_ns);
        if (!equal)
            fail_msg("record %zu of %zu: kinds %d and %d, statuses %d and %d, flags %x and %x, slots %u and %u", i,
                     count, (int)a[i].kind, (int)b[i].kind, (int)a[i].status, (int)b[i].status, a[i].flags, b[i].flags,
                     a[i].slot, b[i].slot);
    }
}

static void check_accounts(const side *fused, const side *apart)
{
    strata_budget_usage usage, other;
    check_ok(strata_budget_account_usage(fused->account, &usage));
    check_ok(strata_budget_account_usage(apart->account, &other));
    assert_int_equal(usage.in_use, other.in_use);
    assert_int_equal(usage.peak, other.peak);
}

static void add_stack(uint32_t call_stack, strata_tag of, const strata_statistics_counters *counters, void *sum)
{
    (void)call_stack, (void)of;
    *(int64_t *)sum += counters->bytes.total + counters->blocks.current;
}

static void check_counts(const side *fused, const side *apart)
{
    uint64_t sizes[STRATA_STATISTICS_SIZES], others[STRATA_STATISTICS_SIZES];
    strata_statistics_counters counters, other;
    int64_t stacks = 0, other_stacks = 0;
    strata_resource *layer = layer_of(fused, "statistics"), *other_layer = layer_of(apart, "statistics");
    check_ok(strata_statistics_sizes(layer, sizes));
    check_ok(strata_statistics_sizes(other_layer, others));
    assert_memory_equal(sizes, others, sizeof sizes);
    check_ok(strata_statistics_scope_read(fused->scope, &counters));
    check_ok(strata_statistics_scope_read(apart->scope, &other));
    assert_memory_equal(&counters.bytes, &other.bytes, sizeof counters.bytes);
    assert_memory_equal(&counters.blocks, &other.blocks, sizeof counters.blocks);
    check_ok(strata_statistics_visit_stacks(layer, add_stack, &stacks));
    check_ok(strata_statistics_visit_stacks(other_layer, add_stack, &other_stacks));
    assert_int_equal(stacks, other_stacks);
}

/* Every value of the layers above the pool, which depends on the place of a stream's timeline, too; and what
 * they count elsewhere. */
static void check_values(const side *fused, const side *apart)
{
    strata_resource *layer = fused->top, *other = apart->top;
    for (; layer->upstream; layer = layer->upstream, other = other->upstream)
        for (size_t i = 0; i < layer->ops->value_count; i++) {
            uint64_t value, same;
            check_ok(layer->ops->get_value(layer, i, &value));
            check_ok(other->ops->get_value(other, i, &same));
            if (value != same)
                fail_msg("%s.%s: %llu, apart %llu", layer->ops->name, layer->ops->values[i].name,
                         (unsigned long long)value, (unsigned long long)same);
        }
    if (fused->account)
        check_accounts(fused, apart);
    if (fused->scope)
        check_counts(fused, apart);
}

static void check_blocks(const strata_block *a, const strata_block *b)
{
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->requested, b->requested);
    assert_int_equal(a->alignment, b->alignment);
    assert_int_equal(a->tag, b->tag);
    assert_int_equal(a->device, b->device);
}

/* A random step, taken on each side. */
typedef struct random_step {
    unsigned what;
    size_t place, stream, bytes;
} random_step;

static size_t random_below(uint64_t *random, size_t below)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (size_t)(*random >> 33) % below;
}

static size_t random_size(uint64_t *random)
{
    static const size_t sizes[] = {1, 4 * KIB, 4 * KIB, 4 * KIB, 4097, 30000, 130 * KIB, 200 * KIB, MIB, 3 * MIB + 5};
    return sizes[random_below(random, sizeof sizes / sizeof sizes[0])];
}

static strata_status allocate(side *self, const random_step *step)
{
    strata_block *block = &self->blocks[step->place];
    const CUstream stream = self->streams[step->stream];
    if (!with_tags || step->what % 8)
        return strata_runtime_allocate(self->runtime, step->bytes, stream, block);
    const strata_request request = {.bytes = step->bytes, .stream = stream, .tag = tag, .alignment = 512};
    return strata_runtime_allocate_request(self->runtime, &request, block);
}

/* On any stream; the checker of the simulated driver looks at the order. */
static void use(side *self, const strata_block *block, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(self->runtime, block, stream, STRATA_ACCESS_WRITE));
    test_fill(block->address, 1, block->requested, stream);
    check_ok(strata_runtime_finish_block_use(self->runtime, block, stream, STRATA_ACCESS_WRITE));
}

/* Frees the block, or tries to with a wrong fact first. */
static strata_status end(side *self, const random_step *step)
{
    strata_block *block = &self->blocks[step->place];
    if (step->what % 16 >= 14)
        use(self, block, self->streams[step->stream]);
    strata_block wrong = *block;
    wrong.requested++;
    strata_status status = STRATA_SUCCESS;
    if (step->what % 16 == 1)
        status = strata_runtime_deallocate(self->runtime, &wrong);
    else if (step->what % 16 == 2)
        status = strata_runtime_deallocate(self->runtime, &self->freed[step->place]);
    assert_int_equal(status != STRATA_SUCCESS, step->what % 16 == 1 || (step->what % 16 == 2 && status));
    self->freed[step->place] = *block;
    if (step->what % 8 == 0)
        check_ok(strata_runtime_deallocate_on(self->runtime, block, self->streams[step->stream]));
    else if (block->stream == self->streams[UNKNOWN])
        check_ok(strata_runtime_deallocate_on(self->runtime, block, block->stream));
    else
        check_ok(strata_runtime_deallocate(self->runtime, block));
    *block = (strata_block){0};
    return status;
}

/* What changes the way of later calls. */
static void change(side *self, const random_step *step)
{
    strata_resource *statistics = layer_of(self, "statistics"), *charging = layer_of(self, "budget");
    uint64_t off = 0, on = 1;
    size_t bytes;
    switch (step->what % 6) {
    case 0:
        if (layer_of(self, "logging"))
            check_ok(strata_control(strata_runtime_stack(self->runtime), "logging.enabled", NULL,
                                    step->place % 4 ? &on : &off));
        break;
    case 1:
        check_ok(strata_runtime_trim(self->runtime, 0, &bytes));
        break;
    case 2:
        if (statistics)
            check_ok(strata_statistics_reset_peaks(statistics));
        break;
    case 3:
        if (charging)
            check_ok(strata_budget_set_limit(strata_budget_base(charging), step->place % 2 ? 8 * MIB : 64 * MIB));
        break;
    case 4:
        if (enters)
            enter(self, step->place % 4 == 0);
        break;
    default:
        check_ok(strata_runtime_reap_pending(self->runtime));
    }
}

static strata_status take(side *self, const random_step *step)
{
    if (step->what % 250 == 249) {
        change(self, &(random_step){.what = step->what / 250, .place = step->place});
        return STRATA_SUCCESS;
    }
    return self->blocks[step->place].id.generation ? end(self, step) : allocate(self, step);
}

static void take_steps(side *fused, side *apart, uint64_t *random, size_t steps)
{
    for (size_t i = 0; i < steps; i++) {
        random_step step = {.what = (unsigned)random_below(random, 250000), .place = random_below(random, ROOM)};
        step.stream = random_below(random, STREAMS + 1);
        step.bytes = random_size(random);
        const strata_status status = take(fused, &step), same = take(apart, &step);
        assert_int_equal(status, same);
        check_blocks(&fused->blocks[step.place], &apart->blocks[step.place]);
    }
}

static void compare(const char *stack, uint64_t seed)
{
    side fused, apart;
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    with_tags = seed & 1;
    enters = seed & 2;
    open_side(&fused, stack, true);
    open_side(&apart, stack, false);
    take_steps(&fused, &apart, &random, test_effort(12000, 300));
    enter(&fused, false);
    enter(&apart, false);
    check_values(&fused, &apart);
    check_records(&fused, &apart);
    close_side(&fused);
    close_side(&apart);
}

static void calls_say_and_leave_what_the_layers_apart_do(void **state)
{
    (void)state;
    static const char *const stacks[] = {
        "budget(limit=64MiB), pool",
        "logging(format=memory, ring=65536), pool",
        "statistics, pool",
        "budget(limit=64MiB), logging(format=memory, ring=65536), pool",
        "budget(limit=64MiB), statistics, pool",
        "logging(format=memory, ring=65536), statistics, pool(cache=64KiB)",
        "budget(limit=64MiB), logging(format=memory, ring=65536), statistics, pool",
        "statistics, logging(format=memory, ring=65536, duration=on), budget(limit=64MiB, soft=32MiB), pool",
        "logging(format=memory, ring=65536), budget(limit=64MiB), statistics(stacks=on), pool",
    };
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++)
        for (uint64_t seed = 0; seed < test_effort(4, 1); seed++) {
            print_message("%s, seed %llu\n", stacks[i], (unsigned long long)seed);
            compare(stacks[i], seed);
        }
}

/* Where the thread's quota is too small, the extent stays in its cache for the layers' own operations. */
static void a_hit_without_quota_is_one_of_the_layers_apart(void **state)
{
    (void)state;
    side here;
    strata_block block;
    uint64_t hits, now;
    open_side(&here, "budget(limit=64MiB), statistics, pool", true);
    strata_stack *stack = strata_runtime_stack(here.runtime);
    for (size_t i = 0; i < 2; i++) {
        check_ok(strata_runtime_allocate(here.runtime, 40 * KIB, here.streams[0], &block));
        check_ok(strata_runtime_deallocate(here.runtime, &block));
    }
    const CUdeviceptr address = block.address;
    for (size_t i = 0; i < 3; i++) {
        check_ok(strata_budget_set_limit(strata_budget_base(layer_of(&here, "budget")), (64 + i) * MIB));
        check_ok(strata_control(stack, "pool.hits", &hits, NULL));
        check_ok(strata_runtime_allocate(here.runtime, 40 * KIB, here.streams[0], &block));
        check_ok(strata_control(stack, "pool.hits", &now, NULL));
        assert_int_equal(now, hits + 1);
        assert_true(block.address == address);
        check_ok(strata_runtime_deallocate(here.runtime, &block));
    }
    close_side(&here);
}

static void a_hit_in_an_entered_account_is_charged_to_it(void **state)
{
    (void)state;
    side here;
    strata_budget_usage usage;
    open_side(&here, "budget(limit=64MiB), pool", true);
    for (size_t i = 0; i < test_effort(20000, 3000); i++) { /* until the thread has a quota */
        check_ok(strata_runtime_allocate(here.runtime, 4 * KIB, here.streams[0], &here.blocks[0]));
        check_ok(strata_runtime_deallocate(here.runtime, &here.blocks[0]));
    }
    enter(&here, true);
    check_ok(strata_runtime_allocate(here.runtime, 4 * KIB, here.streams[0], &here.blocks[0]));
    check_ok(strata_budget_account_usage(here.account, &usage));
    assert_int_equal(usage.in_use, 4 * KIB);
    check_ok(strata_runtime_deallocate(here.runtime, &here.blocks[0]));
    check_ok(strata_budget_account_usage(here.account, &usage));
    assert_int_equal(usage.in_use, 0);
    here.blocks[0] = (strata_block){0};
    enter(&here, false);
    close_side(&here);
}

/* What a free says of a block is not used before it was found to be true. */
static void a_free_with_a_wrong_size_is_refused(void **state)
{
    (void)state;
    static const size_t wrong_bytes[] = {0, 1, 511, 512, 4 * KIB + 512, SIZE_MAX};
    side here;
    open_side(&here, "budget, logging(format=null), statistics, pool", true);
    for (size_t i = 0; i < 2; i++) {
        check_ok(strata_runtime_allocate(here.runtime, 4 * KIB, here.streams[0], &here.blocks[0]));
        check_ok(strata_runtime_deallocate(here.runtime, &here.blocks[0]));
    }
    check_ok(strata_runtime_allocate(here.runtime, 4 * KIB, here.streams[0], &here.blocks[0]));
    for (size_t i = 0; i < sizeof wrong_bytes / sizeof wrong_bytes[0]; i++) {
        strata_block wrong = here.blocks[0];
        wrong.bytes = wrong_bytes[i];
        check_status(strata_runtime_deallocate(here.runtime, &wrong), STRATA_ERROR_SIZE_MISMATCH);
    }
    check_ok(strata_runtime_deallocate(here.runtime, &here.blocks[0]));
    here.blocks[0] = (strata_block){0};
    close_side(&here);
}

/* Else the sum of the windows' lower ends is no longer what was live at each moment (tag_counters.h). */
static void a_free_leaves_the_thread_in_its_window(void **state)
{
    (void)state;
    enum { MANY = 24 };
    side here;
    open_side(&here, "statistics, pool", true);
    const strata_statistics *counting = (const strata_statistics *)here.top;
    for (size_t i = 0; i < MANY; i++)
        check_ok(strata_runtime_allocate(here.runtime, 96 * KIB, here.streams[0], &here.blocks[i]));
    const strata_tag_counters_thread *counts = strata_per_thread_if_present(&counting->counters.threads);
    for (size_t i = 0; i < MANY; i++) {
        check_ok(strata_runtime_deallocate(here.runtime, &here.blocks[i]));
        here.blocks[i] = (strata_block){0};
        assert_true(atomic_load(&counts->untagged->bytes.low) <= atomic_load(&counts->untagged->bytes.current));
    }
    close_side(&here);
}

/* What a full ring has no room for is dropped and counted. */
static void lines_that_wait_for_the_collector_stay_as_they_are(void **state)
{
    (void)state;
    const size_t pairs = test_effort(20000, 2000);
    static strata_log_record records[RECORDS];
    side here;
    strata_block block;
    size_t count;
    uint64_t dropped, last = 0;
    open_side(&here, "logging(format=memory, ring=64), statistics, pool", true);
    for (size_t i = 0; i < pairs; i++) {
        check_ok(strata_runtime_allocate(here.runtime, 4 * KIB, here.streams[0], &block));
        check_ok(strata_runtime_deallocate(here.runtime, &block));
    }
    check_ok(strata_logging_take(here.top, records, RECORDS, &count));
    check_ok(strata_control(strata_runtime_stack(here.runtime), "logging.dropped_records", &dropped, NULL));
    assert_int_equal(count + dropped, 2 * pairs);
    for (size_t i = 0; i < count; last = records[i++].number)
        assert_true(records[i].number > last &&
                    records[i].kind == (records[i].number % 2 ? STRATA_LOG_ALLOCATE : STRATA_LOG_DEALLOCATE));
    close_side(&here);
}

/* ---- threads ---- */

enum { THREADS = 3, BOXES = 4, LARGEST = 3 * MIB + 512 * KIB };

static side together;
static strata_block boxes[BOXES]; /* blocks on their way to another thread; guarded by boxes_lock */
static pthread_mutex_t boxes_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic size_t ended;

static void exchange(strata_block *block, size_t box)
{
    pthread_mutex_lock(&boxes_lock);
    const strata_block theirs = boxes[box];
    boxes[box] = *block;
    *block = theirs;
    pthread_mutex_unlock(&boxes_lock);
}

static void *allocate_and_free(void *data)
{
    uint64_t random = 77 * ((uintptr_t)data + 1);
    for (size_t i = 0; i < test_effort(40000, 600); i++) {
        strata_block block;
        const CUstream stream = together.streams[random_below(&random, STREAMS)];
        const strata_status status = strata_runtime_allocate(together.runtime, random_size(&random), stream, &block);
        if (status != STRATA_SUCCESS)
            assert_int_equal(status, STRATA_ERROR_OUT_OF_BUDGET);
        else if (random_below(&random, 8) == 0)
            exchange(&block, random_below(&random, BOXES));
        if (block.id.generation)
            check_ok(strata_runtime_deallocate(together.runtime, &block));
    }
    atomic_fetch_add(&ended, 1);
    return NULL;
}

/* Excludes the others from their parts of the layers, again and again. */
static void disturb(uint64_t *random)
{
    strata_budget_usage usage;
    strata_statistics_counters counters;
    strata_budget_account *base = strata_budget_base(layer_of(&together, "budget"));
    const random_step step = {.what = (unsigned)random_below(random, 4), .place = 1 + random_below(random, 3)};
    change(&together, &step);
    check_ok(strata_budget_account_usage(base, &usage));
    check_ok(strata_statistics_read(layer_of(&together, "statistics"), 0, &counters));
    assert_true(usage.in_use <= 64 * MIB && usage.peak <= 64 * MIB);
    assert_true(counters.bytes.current >= 0 && counters.bytes.current <= counters.bytes.peak);
    assert_true(counters.bytes.peak <= (THREADS + BOXES) * LARGEST); /* no more was ever live at once */
}

static void sums_are_right_after_threads_that_are_excluded_now_and_then(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    uint64_t random = 9;
    strata_budget_usage usage;
    strata_statistics_counters counters;
    open_side(&together, "budget(limit=64MiB), logging(format=null), statistics, pool", true);
    atomic_store(&ended, 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, (void *)(uintptr_t)i), 0);
    while (atomic_load(&ended) < THREADS)
        disturb(&random);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < BOXES; i++) {
        if (boxes[i].id.generation)
            check_ok(strata_runtime_deallocate(together.runtime, &boxes[i]));
        boxes[i] = (strata_block){0};
    }
    check_ok(strata_runtime_reap_pending(together.runtime));
    check_ok(strata_statistics_read(layer_of(&together, "statistics"), 0, &counters));
    check_ok(strata_budget_account_usage(strata_budget_base(layer_of(&together, "budget")), &usage));
    assert_int_equal(usage.in_use, 0);
    assert_int_equal(counters.bytes.current, 0);
    assert_int_equal(counters.blocks.current, 0);
    assert_int_equal(strata_runtime_bytes_outstanding(together.runtime), 0);
    close_side(&together);
}

int main(void)
{
    test_open_driver();
    check_ok(strata_tag_intern("fused", &tag));
    strata_fused_offer();
    fuse = strata_fuse_operations;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks_of_a_pool_and_the_three_are_fused_and_no_others),
        cmocka_unit_test(calls_say_and_leave_what_the_layers_apart_do),
        cmocka_unit_test(a_hit_without_quota_is_one_of_the_layers_apart),
        cmocka_unit_test(a_hit_in_an_entered_account_is_charged_to_it),
        cmocka_unit_test(a_free_with_a_wrong_size_is_refused),
        cmocka_unit_test(a_free_leaves_the_thread_in_its_window),
        cmocka_unit_test(lines_that_wait_for_the_collector_stay_as_they_are),
        cmocka_unit_test(sums_are_right_after_threads_that_are_excluded_now_and_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
