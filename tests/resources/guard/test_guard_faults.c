/* The guard where the driver or the layer below it refuses: what cannot be filled, checked or given back, and what ends
 * badly. tests/resources/sampling/test_guard_sampling_refused.c has the same of the sampling mode. */
#include "core/base/error.h"
#include "support/guard.h"

#include <pthread.h>
#include <strata/sim/kernel.h>
#include <string.h>
#include <time.h>

#include "support/captures.h"
#include "support/refusals.h"
#include "support/report.h"
#include "support/stall.h"

/* The host kernel of a check declares each piece, the list of pieces, and the verdicts. */
_Static_assert(GUARD_BATCH_PIECES + 2 <= STRATA_SIM_MOST_RANGES, "a batch fits one launch of the simulated driver");

enum { BYTES = 5000 };

/* ---- a layer below the guard that refuses ---- */

typedef struct refuser {
    strata_resource resource;
    strata_runtime *runtime;
    strata_resource *guard;
    bool no_allocation, no_free, no_prepare, no_finish;
    const strata_block *freed_meanwhile; /* by another thread, one would say: while an address is looked for */
} refuser;

static void count_errors(const strata_error *error, void *data)
{
    (void)error;
    ++*(unsigned *)data;
}

static strata_status refuse(const char *what)
{
    return strata_fail(STRATA_ERROR_OUT_OF_MEMORY, "%s fails on purpose", what);
}

static strata_status maybe_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    refuser *self = (refuser *)resource;
    if (self->no_allocation)
        return refuse("an allocation");
    return resource->upstream->ops->allocate(resource->upstream, request, out);
}

static strata_status maybe_free(strata_resource *resource, const strata_block *block, CUstream stream)
{
    if (((refuser *)resource)->no_free)
        return refuse("a free");
    return resource->upstream->ops->deallocate(resource->upstream, block, stream);
}

static strata_status maybe_prepare(strata_resource *resource, const strata_block *block, CUstream stream,
                                   strata_access access)
{
    if (((refuser *)resource)->no_prepare)
        return refuse("a preparation");
    return resource->upstream->ops->prepare_use(resource->upstream, block, stream, access);
}

static strata_status maybe_finish(strata_resource *resource, const strata_block *block, CUstream stream,
                                  strata_access access)
{
    strata_status status = resource->upstream->ops->finish_use(resource->upstream, block, stream, access);
    return ((refuser *)resource)->no_finish ? refuse("the note of a use") : status;
}

static strata_status find_and_free(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    refuser *self = (refuser *)resource;
    strata_status status = resource->upstream->ops->find(resource->upstream, address, out);
    if (self->freed_meanwhile)
        check_ok(strata_runtime_deallocate(self->runtime, self->freed_meanwhile));
    self->freed_meanwhile = NULL;
    return status;
}

static void no_end(strata_resource *resource)
{
    (void)resource;
}

static const strata_resource_ops refuser_ops = {
    .size = sizeof refuser_ops,
    .name = "refuser",
    .allocate = maybe_allocate,
    .deallocate = maybe_free,
    .prepare_use = maybe_prepare,
    .finish_use = maybe_finish,
    .find = find_and_free,
    .destroy = no_end,
};

static void refuser_begin(refuser *self, strata_guard_options options)
{
    strata_resource *layers[3] = {NULL, &self->resource, NULL};
    strata_stack *stack;
    *self = (refuser){.resource.ops = &refuser_ops};
    options.no_debuggers = 1;
    check_ok(strata_guard_create(0, &options, &layers[0]));
    check_ok(strata_async_create(0, NULL, &layers[2]));
    check_ok(strata_stack_build(layers, 3, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &self->runtime));
    self->guard = layers[0];
}

static uint64_t value_of(strata_runtime *runtime, const char *name)
{
    uint64_t value;
    check_ok(strata_control(strata_runtime_stack(runtime), name, &value, NULL));
    return value;
}

/* Nothing is left of any block, and what is found is nothing. */
static void check_empty(strata_runtime *runtime)
{
    check_ok(strata_runtime_reap_pending(runtime));
    check_ok(strata_guard_check(strata_stack_top(strata_runtime_stack(runtime)), NULL));
    assert_int_equal(value_of(runtime, "guard.quarantined_blocks"), 0);
    assert_int_equal(value_of(runtime, "guard.quarantined_bytes"), 0);
    assert_true(strata_runtime_bytes_outstanding(runtime) == 0);
}

static void refuser_end(refuser *self)
{
    check_empty(self->runtime);
    check_ok(strata_runtime_destroy(self->runtime));
}

/* ---- a layer below that refuses ---- */

/* More than a batch has room for: nothing of them is looked at, and each takes a place in one all the same. */
static void many_blocks_that_could_be_neither_filled_nor_freed_are_all_freed_later(void **state)
{
    (void)state;
    enum { BLOCKS = GUARD_BATCH_PIECES + 13 };
    refuser self;
    strata_block block;
    refuser_begin(&self, (strata_guard_options){0});
    self.no_prepare = self.no_free = true;
    for (size_t i = 0; i < BLOCKS; i++) {
        check_status(strata_runtime_allocate(self.runtime, BYTES, NULL, &block), STRATA_ERROR_OUT_OF_MEMORY);
        check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "a preparation fails on purpose"); /* not the free of it */
        assert_true(block.address == 0 && block.id.generation == 0);
    }
    assert_int_equal(value_of(self.runtime, "guard.quarantined_blocks"), BLOCKS);
    check_status(strata_runtime_reap_pending(self.runtime), STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(value_of(self.runtime, "guard.quarantined_blocks"), BLOCKS);
    self.no_prepare = self.no_free = false;
    check_ok(strata_runtime_reap_pending(self.runtime));
    assert_int_equal(value_of(self.runtime, "guard.quarantined_blocks"), 0);
    refuser_end(&self);
}

static void a_block_whose_burial_cannot_be_noted_is_freed_unchecked(void **state)
{
    (void)state;
    refuser self;
    strata_block block;
    refuser_begin(&self, (strata_guard_options){0});
    check_ok(strata_runtime_allocate(self.runtime, BYTES, NULL, &block));
    unsigned errors = 0;
    strata_set_log_callback(count_errors, &errors);
    self.no_finish = true;
    const strata_status freed = strata_runtime_deallocate(self.runtime, &block);
    self.no_finish = false;
    strata_set_log_callback(NULL, NULL);
    check_ok(freed);
    assert_int_equal(errors, 0);
    assert_int_equal(value_of(self.runtime, "guard.unchecked"), 1);
    assert_int_equal(value_of(self.runtime, "guard.quarantined_blocks"), 0);
    assert_int_not_equal(strata_runtime_block_state(self.runtime, block.id), STRATA_BLOCK_LIVE);
    check_status(strata_runtime_deallocate(self.runtime, &block), STRATA_ERROR_DOUBLE_FREE);
    assert_true(strata_guard_take_finding(self.guard, &(strata_guard_finding){0}));
    strata_guard_check(self.guard, NULL);
    refuser_end(&self);
}

static void a_block_that_can_be_neither_buried_nor_freed_stays_its_users(void **state)
{
    (void)state;
    refuser self;
    strata_block block, found;
    refuser_begin(&self, (strata_guard_options){0});
    check_ok(strata_runtime_allocate(self.runtime, BYTES, NULL, &block));
    self.no_finish = self.no_free = true;
    check_status(strata_runtime_deallocate(self.runtime, &block), STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "a free fails on purpose");
    self.no_finish = self.no_free = false;
    assert_int_equal(strata_runtime_block_state(self.runtime, block.id), STRATA_BLOCK_LIVE);
    check_ok(strata_runtime_find(self.runtime, block.address, &found));
    assert_memory_equal(&found, &block, sizeof block);
    check_ok(strata_runtime_deallocate(self.runtime, &block));
    assert_int_equal(value_of(self.runtime, "guard.quarantined_blocks"), 1);
    refuser_end(&self);
}

/* A free that failed and one that did not, and then another: what is said of the first one is where the block was
 * freed, and not where that had failed. Both blocks go the same way, so that this is the same call stack. */
static void a_free_that_failed_is_not_taken_for_the_one_that_a_double_free_comes_after(void **state)
{
    (void)state;
    const volatile size_t rounds = 2;
    strata_guard_finding findings[2];
    refuser self;
    strata_block block;
    refuser_begin(&self, (strata_guard_options){0});
    for (size_t i = 0; i < rounds; i++) {
        check_ok(strata_runtime_allocate(self.runtime, BYTES, NULL, &block));
        self.no_prepare = true;
        if (i == 1)
            check_status(strata_runtime_deallocate(self.runtime, &block), STRATA_ERROR_OUT_OF_MEMORY);
        self.no_prepare = false;
        check_ok(strata_runtime_deallocate(self.runtime, &block));
        check_status(strata_runtime_deallocate(self.runtime, &block), STRATA_ERROR_DOUBLE_FREE);
        findings[i] = (strata_guard_finding){.size = sizeof findings[i]};
        assert_true(strata_guard_take_finding(self.guard, &findings[i]));
        assert_int_equal(findings[i].kind, STRATA_GUARD_DOUBLE_FREE);
    }
    assert_true(findings[0].allocated_at && findings[0].allocated_at == findings[1].allocated_at);
    assert_true(findings[0].freed_at && findings[0].freed_at == findings[1].freed_at);
    strata_guard_check(self.guard, NULL); /* says once more that there were findings */
    refuser_end(&self);
}

static void an_allocation_that_cannot_be_filled_or_noted_leaves_nothing(void **state)
{
    (void)state;
    refuser self;
    strata_block block;
    refuser_begin(&self, (strata_guard_options){0});
    self.no_finish = true;
    check_status(strata_runtime_allocate(self.runtime, BYTES, NULL, &block), STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "the note of a use");
    assert_true(block.address == 0);
    self.no_finish = false;
    strata_usage usage;
    check_ok(strata_resource_usage(self.guard, &usage));
    assert_true(usage.live_blocks == 0 && usage.live_bytes == 0);
    refuser_end(&self);
}

/* There is no memory, and the quarantine cannot be emptied either: the answer is the allocation's. */
static void an_allocation_that_finds_no_memory_says_so_whatever_the_quarantine_answers(void **state)
{
    (void)state;
    refuser self;
    strata_block block, refused;
    refuser_begin(&self, (strata_guard_options){0});
    check_ok(strata_runtime_allocate(self.runtime, BYTES, NULL, &block));
    check_ok(strata_runtime_deallocate(self.runtime, &block));
    self.no_allocation = self.no_free = true;
    check_status(strata_runtime_allocate(self.runtime, BYTES, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "an allocation fails on purpose");
    assert_int_equal(value_of(self.runtime, "guard.quarantined_blocks"), 1);
    self.no_allocation = self.no_free = false;
    refuser_end(&self);
}

static void a_block_that_is_freed_while_its_address_is_looked_for_is_not_found(void **state)
{
    (void)state;
    refuser self;
    strata_block block, found = {.address = 1};
    refuser_begin(&self, (strata_guard_options){0});
    check_ok(strata_runtime_allocate(self.runtime, BYTES, NULL, &block));
    self.freed_meanwhile = &block;
    check_status(strata_runtime_find(self.runtime, block.address + 7, &found), STRATA_ERROR_FOREIGN_POINTER);
    check_last_error(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address");
    assert_true(found.address == 0);
    refuser_end(&self);
}

/* A layer above may ask for nothing: it gets an empty block, which is no guarded one. */
static void a_request_of_no_bytes_takes_nothing(void **state)
{
    (void)state;
    static const char *const stacks[] = {"guard(debuggers=off), async", "guard(sample=1), async"};
    for (size_t i = 0; i < 2; i++) {
        strata_stack *stack;
        strata_block block = {.address = 1};
        strata_block_id of;
        size_t bytes = 77;
        check_ok(strata_stack_create(stacks[i], 0, &stack));
        strata_resource *top = strata_stack_top(stack);
        check_ok(top->ops->allocate(top, &(strata_request){0}, &block));
        assert_true(block.address == 0 && block.bytes == 0);
        check_ok(strata_resource_deallocate(top, &block, NULL));
        check_ok(top->ops->charge(top, &(strata_request){0}, &bytes));
        assert_int_equal(bytes, 0);
        check_ok(top->ops->reusable(top, &(strata_request){0}, &bytes, &of));
        assert_int_equal(bytes, 0);
        check_ok(strata_stack_destroy(stack));
    }
}

static void sizes_that_no_address_can_count_are_refused_by_every_question(void **state)
{
    (void)state;
    strata_stack *stack;
    strata_block_id of;
    size_t bytes = 77;
    check_ok(strata_stack_create("guard(zone=64KiB), async", 0, &stack));
    strata_resource *top = strata_stack_top(stack);
    const strata_request most = {.bytes = SIZE_MAX - (64 << 10), .alignment = 256};
    check_status(top->ops->charge(top, &most, &bytes), STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "with its red zones");
    assert_int_equal(bytes, 0);
    check_status(top->ops->reusable(top, &most, &bytes, &of), STRATA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(bytes, 0);
    check_ok(strata_stack_destroy(stack));
}

/* ---- many blocks at a time ---- */

static void write_at(strata_runtime *runtime, const strata_block *block, size_t offset, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(runtime, block, stream, STRATA_ACCESS_WRITE));
    check_cu(test_cu()->MemsetD8Async(block->address + offset, 0x5a, 1, stream));
    check_ok(strata_runtime_finish_block_use(runtime, block, stream, STRATA_ACCESS_WRITE));
}

/* All batches are under way behind the stream; what is freed then waits for one, and none of it is forgotten. */
static void what_is_freed_while_all_batches_are_under_way_is_looked_at_later(void **state)
{
    (void)state;
    enum { BLOCKS = 300 };
    strata_runtime *runtime;
    CUstream stream;
    strata_block blocks[BLOCKS];
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    strata_resource *top = strata_stack_top(strata_runtime_stack(runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    for (size_t i = 0; i < BLOCKS; i++)
        check_ok(strata_runtime_allocate(runtime, 100, stream, &blocks[i]));
    test_stall *stall = test_stall_begin(stream);
    write_at(runtime, &blocks[BLOCKS - 1], 100, stream);
    for (size_t i = 0; i < BLOCKS; i++)
        check_ok(strata_runtime_deallocate(runtime, &blocks[i]));
    uint64_t under_way = value_of(runtime, "guard.checks");
    assert_int_equal(under_way, GUARD_BATCHES);
    assert_int_equal(value_of(runtime, "guard.quarantined_blocks"), BLOCKS);
    test_stall_end(stall);
    size_t bytes;
    check_ok(top->ops->reap(top, STRATA_REAP_FINISHED, &bytes)); /* any call: reads what is done, and goes on */
    assert_true(value_of(runtime, "guard.checks") > under_way);
    size_t found = 0;
    check_status(strata_guard_check(top, &found), STRATA_ERROR_CORRUPTED);
    strata_guard_finding finding;
    assert_true(found == 1 && strata_guard_take_finding(top, &finding));
    assert_memory_equal(&finding.block, &blocks[BLOCKS - 1], sizeof finding.block);
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_empty(runtime);
    check_ok(strata_runtime_destroy(runtime));
}

static void a_quarantine_that_is_made_smaller_lets_go_as_many_as_there_are_batches_for(void **state)
{
    (void)state;
    enum { BLOCKS = 400 };
    strata_runtime *runtime;
    strata_block block;
    uint64_t none = 0;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    for (size_t i = 0; i < BLOCKS; i++) {
        check_ok(strata_runtime_allocate(runtime, 100, NULL, &block));
        check_ok(strata_runtime_deallocate(runtime, &block));
    }
    check_ok(strata_guard_check(strata_stack_top(strata_runtime_stack(runtime)), NULL));
    assert_int_equal(value_of(runtime, "guard.quarantined_blocks"), BLOCKS);
    uint64_t before = value_of(runtime, "guard.checks");
    check_ok(strata_control(strata_runtime_stack(runtime), "guard.quarantine_blocks", NULL, &none));
    assert_in_range(value_of(runtime, "guard.checks") - before, 1, GUARD_BATCHES); /* in one call, and not for ever */
    check_ok(strata_guard_check(strata_stack_top(strata_runtime_stack(runtime)), NULL));
    assert_int_equal(value_of(runtime, "guard.quarantined_blocks"), 0);
    check_empty(runtime);
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- a host that runs ahead of the device ---- */

#define MS UINT64_C(1000000)

enum { HUGE = 90 << 20, ALLOWED = 256 << 20, MOST_REAL_NAPS = 100000 };

/* The clock that the guard waits by: the testing thread's naps move it, and nothing else does, so that no load of the
 * machine makes a difference. Naps take no time, but for those after a release: the clock stands until checks have come
 * back, however long the device takes. */
static struct {
    _Atomic bool runs; /* any thread reads it */
    pthread_t thread;
    uint64_t ns;
    strata_runtime *runtime;
    test_stall *stalls[2]; /* to be released in turn; */
    uint64_t at[2];        /* when. 0: never */
    size_t released;
    uint64_t unread; /* bytes, at the last release: while there are so many the clock stands */
    unsigned real_naps;
} naps;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock != CLOCK_MONOTONIC || !naps.runs)
        return __real_clock_gettime(clock, now);
    *now = (struct timespec){.tv_sec = (time_t)(naps.ns / (1000 * MS)), .tv_nsec = (long)(naps.ns % (1000 * MS))};
    return 0;
}

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    if (!naps.runs || !pthread_equal(pthread_self(), naps.thread))
        return __real_nanosleep(time, left);
    const uint64_t unread = value_of(naps.runtime, "guard.quarantined_bytes");
    if (naps.released && unread >= naps.unread && naps.real_naps++ < MOST_REAL_NAPS)
        return __real_nanosleep(time, left);
    naps.ns += (uint64_t)time->tv_nsec;
    if (naps.released < 2 && naps.at[naps.released] && naps.ns >= naps.at[naps.released]) {
        naps.unread = unread;
        naps.real_naps = 0;
        test_stall_release(naps.stalls[naps.released++]);
    }
    return 0;
}

static uint64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / MS;
}

/* Frees blocks whose last check waits for the stream. */
static void free_behind(strata_runtime *runtime, const strata_block *blocks, size_t count, CUstream stream)
{
    for (size_t i = 0; i < count; i++) {
        write_at(runtime, &blocks[i], 0, stream);
        check_ok(strata_runtime_deallocate(runtime, &blocks[i]));
    }
}

/* Those blocks, in all more than the guard lets stand, also without the first, which comes back before the others. From
 * then on the clock is the naps'. */
static strata_runtime *run_ahead(CUstream *stream)
{
    strata_runtime *runtime;
    strata_block blocks[4];
    check_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = "guard(poison=off, quarantine=off, debuggers=off), async"}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, stream));
    for (size_t i = 0; i < 4; i++)
        check_ok(strata_runtime_allocate(runtime, HUGE, *stream, &blocks[i]));
    memset(&naps, 0, sizeof naps);
    naps.stalls[0] = test_stall_begin(*stream);
    free_behind(runtime, blocks, 1, *stream);
    naps.stalls[1] = test_stall_begin(*stream);
    free_behind(runtime, &blocks[1], 3, *stream);
    assert_true(value_of(runtime, "guard.quarantined_bytes") > (uint64_t)4 * HUGE);
    naps.thread = pthread_self();
    naps.runtime = runtime;
    naps.runs = true;
    return runtime;
}

static void end_run(strata_runtime *runtime, CUstream stream)
{
    naps.runs = false;
    for (size_t i = 0; i < 2; i++)
        test_stall_release(naps.stalls[i]);
    for (size_t i = 0; i < 2; i++)
        test_stall_end(naps.stalls[i]);
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_empty(runtime);
    check_ok(strata_runtime_destroy(runtime));
}

/* 40 ms after each other, and the guard waits 50 for each. */
static void an_allocation_waits_for_checks_that_come_back(void **state)
{
    (void)state;
    CUstream stream;
    strata_block block;
    strata_runtime *runtime = run_ahead(&stream);
    naps.at[0] = 40 * MS;
    naps.at[1] = 80 * MS;
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    assert_true(value_of(runtime, "guard.quarantined_bytes") <= ALLOWED);
    assert_int_equal(naps.released, 2);
    check_ok(strata_runtime_deallocate(runtime, &block));
    end_run(runtime, stream);
}

/* The device may be waiting for this thread. */
static void an_allocation_does_not_wait_for_checks_that_do_not_come_back(void **state)
{
    (void)state;
    CUstream stream;
    strata_block block;
    strata_runtime *runtime = run_ahead(&stream);
    naps.at[0] = 10000 * MS; /* so that it ends */
    naps.at[1] = 10001 * MS;
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    assert_in_range(now_ms(), 40, 100);
    assert_true(value_of(runtime, "guard.quarantined_bytes") > ALLOWED);
    check_ok(strata_runtime_deallocate(runtime, &block));
    end_run(runtime, stream);
}

static void *be_ended_and_allocate(void *data)
{
    strata_runtime *runtime = data;
    strata_block block;
    test_make_current();
    pthread_cancel(pthread_self());
    if (strata_runtime_allocate(runtime, BYTES, NULL, &block) == STRATA_SUCCESS)
        strata_runtime_deallocate(runtime, &block);
    return data;
}

/* A budget above the guard has counted its request. */
static void a_thread_that_waits_for_checks_is_not_ended(void **state)
{
    (void)state;
    CUstream stream;
    pthread_t thread;
    void *returned;
    strata_runtime *runtime = run_ahead(&stream);
    naps.runs = false;
    assert_int_equal(pthread_create(&thread, NULL, be_ended_and_allocate, runtime), 0);
    assert_int_equal(pthread_join(thread, &returned), 0);
    assert_ptr_equal(returned, runtime);
    end_run(runtime, stream);
}

/* ---- the driver refuses ---- */

static void a_guard_that_cannot_be_made_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        uint64_t nth;
    } calls[] = {
        {"cuStreamCreate", 1}, {"cuStreamCreate", 2}, {"cuMemHostAlloc", 1}, {"cuThreadExchangeStreamCaptureMode", 1}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        strata_resource *layer = (strata_resource *)&layer;
        test_alive before = test_count_alive();
        test_refuse(calls[i].call, calls[i].nth, 1, CUDA_ERROR_NOT_PERMITTED);
        check_status(strata_guard_create(0, NULL, &layer), STRATA_ERROR_DRIVER);
        check_last_error(STRATA_ERROR_DRIVER, calls[i].call);
        test_refuse_no_more();
        assert_null(layer);
        check_alive(before);
    }
}

/* NULL: the report has none. */
static void check_kernel_error(strata_runtime *runtime, const char *call)
{
    static test_report report;
    char expected[128];
    report.length = 0;
    check_ok(strata_stats_print(strata_runtime_stack(runtime), STRATA_FORMAT_TEXT, test_report_write, &report));
    snprintf(expected, sizeof expected, "%s returned CUDA_ERROR_INVALID_PTX (%d)", call ? call : "",
             CUDA_ERROR_INVALID_PTX);
    assert_int_equal(strstr(report.text, "kernel_error") != NULL, call != NULL);
    assert_int_equal(strstr(report.text, expected) != NULL, call != NULL);
}

static void without_kernels_a_guard_checks_by_copies(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        uint64_t nth;
    } calls[] = {{"cuModuleLoadData", 1}, {"cuModuleGetFunction", 1}, {"cuModuleGetFunction", 2}};
    for (size_t i = 0; i < 3; i++) {
        strata_runtime *runtime;
        strata_block block;
        test_alive before = test_count_alive();
        test_refuse(calls[i].call, calls[i].nth, 1, CUDA_ERROR_INVALID_PTX);
        check_ok(
            strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), direct"}, &runtime));
        test_refuse_no_more();
        assert_int_equal(value_of(runtime, "guard.kernel"), 0);
        check_kernel_error(runtime, calls[i].call);
        check_ok(strata_runtime_allocate(runtime, 100, NULL, &block));
        write_at(runtime, &block, 100, NULL);
        check_ok(strata_runtime_deallocate(runtime, &block));
        check_status(strata_guard_check(strata_stack_top(strata_runtime_stack(runtime)), NULL), STRATA_ERROR_CORRUPTED);
        check_empty(runtime);
        check_ok(strata_runtime_destroy(runtime));
        check_alive(before);
    }
    static const char *const without_errors[] = {"guard, direct", "guard(kernel=off), direct"};
    for (size_t i = 0; i < 2; i++) {
        strata_runtime *runtime;
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = without_errors[i]}, &runtime));
        check_kernel_error(runtime, NULL);
        check_ok(strata_runtime_destroy(runtime));
    }
}

/* A check that could not be submitted leaves the block where it was. */
static void a_check_that_is_refused_once_is_made_the_next_time(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    CUstream stream;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    check_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
    check_ok(strata_runtime_deallocate(runtime, &block));
    assert_int_equal(value_of(runtime, "guard.quarantined_blocks"), 1);
    test_refuse("cuLaunchKernel", 1, 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    (void)strata_runtime_reap_pending(runtime);
    test_refuse_no_more();
    check_ok(strata_runtime_reap_pending(runtime));
    assert_int_equal(value_of(runtime, "guard.quarantined_blocks"), 0);
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_empty(runtime);
    check_ok(strata_runtime_destroy(runtime));
}

static void red_zones_alone_are_filled_and_checked_by_copies(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    unsigned char bytes[100], expected[100];
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(kernel=off, poison=off), direct"},
                                   &runtime));
    check_ok(strata_runtime_allocate(runtime, 100, NULL, &block));
    check_ok(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE));
    check_cu(test_cu()->MemsetD8Async(block.address, 0x31, 101, NULL));
    check_ok(strata_runtime_finish_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_cu(test_cu()->MemcpyDtoHAsync(bytes, block.address, 100, NULL)); /* in quarantine, with what it had */
    check_cu(test_cu()->StreamSynchronize(NULL));
    memset(expected, 0x31, sizeof expected);
    assert_memory_equal(bytes, expected, sizeof bytes);
    strata_resource *top = strata_stack_top(strata_runtime_stack(runtime));
    strata_guard_finding finding;
    check_status(strata_guard_check(top, NULL), STRATA_ERROR_CORRUPTED);
    assert_true(strata_guard_take_finding(top, &finding));
    assert_true(finding.kind == STRATA_GUARD_OVERRUN && finding.changed == 1);
    check_empty(runtime);
    check_ok(strata_runtime_destroy(runtime));
}

/* What is there of the driver's is tried to end twice. */
static void a_guard_ends_what_it_has_where_the_driver_refuses_once(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 3; nth++) {
        strata_resource *layer;
        test_alive before = test_count_alive();
        check_ok(strata_guard_create(0, NULL, &layer));
        test_refuse("cuThreadExchangeStreamCaptureMode", nth, 1, CUDA_ERROR_NOT_PERMITTED);
        check_ok(strata_resource_destroy(layer));
        test_refuse_no_more();
        check_alive(before);
    }
}

/* Twice for each stream, and twice for the rest, which stays then: nothing ends that is not there. */
static void a_guard_that_may_end_nothing_of_the_driver_ends_all_the_same(void **state)
{
    (void)state;
    strata_resource *layer;
    test_alive before = test_count_alive();
    check_ok(strata_guard_create(0, NULL, &layer));
    test_refuse("cuThreadExchangeStreamCaptureMode", 1, 12, CUDA_ERROR_NOT_PERMITTED);
    check_ok(strata_resource_destroy(layer));
    test_refuse_no_more();
    test_alive after = test_count_alive();
    assert_int_equal(after.streams, before.streams + 2);
    assert_int_equal(after.pinned, before.pinned + 1);
}

static void where_a_stream_cannot_be_asked_for_its_capture_nothing_is_submitted(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block, refused;
    CUstream stream;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    check_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
    test_refuse("cuStreamIsCapturing", 1, 1, CUDA_ERROR_INVALID_CONTEXT);
    check_status(strata_runtime_allocate(runtime, BYTES, stream, &refused), STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "querying whether a stream is being captured");
    test_refuse_no_more();
    test_refuse("cuStreamIsCapturing", 1, 1, CUDA_ERROR_INVALID_CONTEXT);
    check_status(strata_runtime_deallocate(runtime, &block), STRATA_ERROR_DRIVER);
    test_refuse_no_more();
    assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_LIVE);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_empty(runtime);
    check_ok(strata_runtime_destroy(runtime));
}

/* The block of a stream that its owner took back and ended: what is left to follow is its last event. */
static void a_free_that_cannot_follow_a_stream_that_is_gone_is_tried_again(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    CUstream stream;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_ok(strata_runtime_register_stream(runtime, stream));
    check_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
    test_stall *stall = test_stall_begin(stream);
    write_at(runtime, &block, 0, stream);
    check_ok(strata_runtime_unregister_stream(runtime, stream));
    test_refuse("cuStreamWaitEvent", 1, 1, CUDA_ERROR_NOT_PERMITTED);
    check_status(strata_runtime_deallocate(runtime, &block), STRATA_ERROR_DRIVER);
    test_refuse_no_more();
    assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_LIVE);
    check_ok(strata_runtime_deallocate(runtime, &block));
    test_stall_end(stall);
    check_cu(test_cu()->StreamDestroy(stream));
    check_empty(runtime);
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- a check that did not end, and captures ---- */

/* A check that could not be waited for is under way still, and looks at the block: a free inside a capture, which hands
 * it down at once, comes after it. */
static void a_free_inside_a_capture_comes_after_a_check_that_is_under_way(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    CUstream stream, writer;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    strata_resource *top = strata_stack_top(strata_runtime_stack(runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &writer));
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_ok(strata_runtime_allocate(runtime, 100, writer, &block));
    test_stall *stall = test_stall_begin(writer);
    write_at(runtime, &block, 100, writer);
    test_refuse("cuEventSynchronize", 1, 1, CUDA_ERROR_NOT_PERMITTED);
    check_status(strata_guard_check(top, NULL), STRATA_ERROR_DRIVER);
    test_refuse_no_more();
    test_refuse("cuEventSynchronize", 1, 1, CUDA_ERROR_NOT_PERMITTED);
    test_fault_pretend_capture(stream);
    check_status(strata_runtime_deallocate_on(runtime, &block, stream), STRATA_ERROR_DRIVER);
    test_refuse_no_more();
    assert_int_equal(strata_runtime_block_state(runtime, block.id), STRATA_BLOCK_LIVE);
    test_stall_release(stall);
    strata_status freed = strata_runtime_deallocate_on(runtime, &block, stream);
    test_fault_end();
    check_ok(freed);
    strata_guard_finding finding; /* what was found was told before the memory went */
    assert_true(strata_guard_take_finding(top, &finding));
    assert_true(finding.kind == STRATA_GUARD_OVERRUN && finding.block.address == block.address && !finding.freed);
    test_stall_end(stall);
    assert_int_equal(value_of(runtime, "guard.unchecked"), 1);
    strata_guard_check(top, NULL);
    check_ok(strata_stack_captures_ended(strata_runtime_stack(runtime), stream));
    check_ok(strata_runtime_stream_release(runtime, writer));
    check_cu(test_cu()->StreamDestroy(stream));
    check_empty(runtime);
    check_ok(strata_runtime_destroy(runtime));
}

/* Work on the legacy stream would end the capture of a blocking stream. */
static void the_legacy_stream_is_left_alone_while_a_blocking_stream_is_captured(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block, refused;
    CUstream stream;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_DEFAULT));
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    test_begin_capture(stream);
    check_status(strata_runtime_allocate(runtime, BYTES, NULL, &refused), STRATA_ERROR_STREAM_CAPTURE);
    check_last_error(STRATA_ERROR_STREAM_CAPTURE, "while the stream is being captured; allocate before");
    check_ok(strata_runtime_deallocate(runtime, &block)); /* waits for the end of the capture */
    assert_int_equal(test_end_capture(stream), 0);        /* it is whole, and empty */
    check_ok(strata_stack_captures_ended(strata_runtime_stack(runtime), stream));
    assert_int_equal(value_of(runtime, "guard.unchecked"), 1);
    check_cu(test_cu()->StreamDestroy(stream));
    check_empty(runtime);
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- calls that are no guard's business ---- */

static void layers_that_are_in_no_stack_have_no_findings(void **state)
{
    (void)state;
    strata_resource nothing = {0}, *layer;
    strata_guard_finding finding;
    size_t findings = 77;
    check_ok(strata_guard_create(0, NULL, &layer));
    check_status(strata_guard_check(layer, &findings), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "no guard at or below this layer");
    assert_int_equal(findings, 0);
    assert_false(strata_guard_take_finding(layer, &finding));
    check_ok(strata_resource_destroy(layer));
    check_status(strata_guard_check(&nothing, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_guard_check(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_false(strata_guard_take_finding(NULL, &finding));
}

static void options_that_do_not_go_together_are_refused(void **state)
{
    (void)state;
    static const struct {
        strata_guard_options options;
        const char *words;
    } wrong[] = {
        {{.sample_bytes = 1 << 20}, "sample limits need sample=N"},
        {{.sample_range = 1 << 20}, "sample limits need"},
        {{.sample_alignment = 16}, "sample limits need"},
        {{.sample_seed = 3}, "sample limits need"},
        {{.sample = 9, .quarantine_bytes = 7}, "sample cannot be combined with zone, poison, quarantine or kernel"},
        {{.sample = 9, .no_quarantine = 1}, "sample cannot be combined with zone"},
        {{.sample = 9, .no_kernel = 1}, "sample cannot be combined with zone"},
        {{.sample = 9, .no_debuggers = 1}, "sample cannot be combined with zone"},
        {{.no_quarantine = 1, .quarantine_bytes = 5}, "quarantine limits need quarantine=on"},
        {{.on_finding = (strata_guard_action)-1}, "on_finding: invalid action"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        strata_resource *layer = (strata_resource *)&layer;
        check_status(strata_guard_create(0, &wrong[i].options, &layer), STRATA_ERROR_INVALID_VALUE);
        check_last_error(STRATA_ERROR_INVALID_VALUE, wrong[i].words);
        assert_null(layer);
    }
}

/* What a test that failed has left in the way of the next. */
static int clear_away(void **state)
{
    (void)state;
    naps.runs = false;
    test_stall_end_all();
    test_fault_end();
    test_refuse_no_more();
    return 0;
}

int main(void)
{
    test_open_driver();
    if (!test_on_simulated_driver()) {
        print_message("skipped: on the simulated driver alone calls can be made to fail\n");
        return 77;
    }
#define CASE(test) cmocka_unit_test_teardown(test, clear_away)
    const struct CMUnitTest tests[] = {
        CASE(many_blocks_that_could_be_neither_filled_nor_freed_are_all_freed_later),
        CASE(a_block_whose_burial_cannot_be_noted_is_freed_unchecked),
        CASE(a_block_that_can_be_neither_buried_nor_freed_stays_its_users),
        CASE(a_free_that_failed_is_not_taken_for_the_one_that_a_double_free_comes_after),
        CASE(an_allocation_that_cannot_be_filled_or_noted_leaves_nothing),
        CASE(an_allocation_that_finds_no_memory_says_so_whatever_the_quarantine_answers),
        CASE(a_block_that_is_freed_while_its_address_is_looked_for_is_not_found),
        CASE(a_request_of_no_bytes_takes_nothing),
        CASE(sizes_that_no_address_can_count_are_refused_by_every_question),
        CASE(what_is_freed_while_all_batches_are_under_way_is_looked_at_later),
        CASE(a_quarantine_that_is_made_smaller_lets_go_as_many_as_there_are_batches_for),
        CASE(an_allocation_waits_for_checks_that_come_back),
        CASE(an_allocation_does_not_wait_for_checks_that_do_not_come_back),
        CASE(a_thread_that_waits_for_checks_is_not_ended),
        CASE(a_guard_that_cannot_be_made_leaves_nothing),
        CASE(without_kernels_a_guard_checks_by_copies),
        CASE(a_check_that_is_refused_once_is_made_the_next_time),
        CASE(red_zones_alone_are_filled_and_checked_by_copies),
        CASE(a_guard_ends_what_it_has_where_the_driver_refuses_once),
        CASE(a_guard_that_may_end_nothing_of_the_driver_ends_all_the_same),
        CASE(where_a_stream_cannot_be_asked_for_its_capture_nothing_is_submitted),
        CASE(a_free_that_cannot_follow_a_stream_that_is_gone_is_tried_again),
        CASE(a_free_inside_a_capture_comes_after_a_check_that_is_under_way),
        CASE(the_legacy_stream_is_left_alone_while_a_blocking_stream_is_captured),
        CASE(layers_that_are_in_no_stack_have_no_findings),
        CASE(options_that_do_not_go_together_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
