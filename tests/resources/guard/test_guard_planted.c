/* A hundred bugs planted into programs under the guard are all found, with the right block; correct programs give no
 * report. And what follows a finding: the callback, a failing allocation, the end of the process. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/child.h"
#include "support/driver.h"
#include "support/effort.h"

enum { ROOM = 512, STREAMS = 4, THREADS = 4 };

/* ---- a guard with a callback, over either owner ---- */

typedef struct guarded_program {
    strata_resource *guard;
    strata_runtime *runtime;
    pthread_mutex_t lock;
    strata_guard_finding findings[ROOM]; /* guarded by lock */
    size_t count;
} guarded_program;

static void note_finding(const strata_guard_finding *finding, void *data)
{
    guarded_program *program = data;
    pthread_mutex_lock(&program->lock);
    if (program->count < ROOM)
        program->findings[program->count++] = *finding;
    pthread_mutex_unlock(&program->lock);
    strata_tag_name(finding->block.tag); /* Strata may be called */
}

static void program_begin(guarded_program *program, strata_guard_options options, bool direct)
{
    strata_resource *layers[2];
    strata_stack *stack;
    *program = (guarded_program){0};
    pthread_mutex_init(&program->lock, NULL);
    options.on_finding_call = note_finding;
    options.on_finding_data = program;
    check_ok(strata_guard_create(0, &options, &layers[0]));
    check_ok(direct ? strata_direct_create(0, NULL, &layers[1]) : strata_async_create(0, NULL, &layers[1]));
    check_ok(strata_stack_build(layers, 2, 0, &stack));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack = stack}, &program->runtime));
    program->guard = layers[0];
}

static void program_end(guarded_program *program)
{
    check_ok(strata_runtime_destroy(program->runtime));
    pthread_mutex_destroy(&program->lock);
}

/* ---- planting ---- */

typedef struct planted {
    strata_guard_kind kind;
    strata_block block;
    int64_t offset;
    uint64_t changed;
} planted;

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void fill(const strata_block *block, int64_t offset, unsigned char value, size_t bytes, CUstream stream)
{
    check_cu(test_cu()->MemsetD8Async(block->address + (CUdeviceptr)offset, value, bytes, stream));
}

/* A kernel that was told of a block, and writes `bytes` of it from `offset` on. */
static void use(strata_runtime *runtime, const strata_block *block, int64_t offset, size_t bytes, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(runtime, block, stream, STRATA_ACCESS_WRITE));
    fill(block, offset, 0x5a, bytes, stream);
    check_ok(strata_runtime_finish_block_use(runtime, block, stream, STRATA_ACCESS_WRITE));
}

static planted plant_overrun(strata_runtime *runtime, const strata_block *block, CUstream stream, uint64_t *random)
{
    size_t zone = 256 + (size_t)(-block->requested & 255), bytes = 1 + next_random(random) % 40;
    size_t past = next_random(random) % 3 ? 0 : next_random(random) % (zone - bytes); /* mostly the first byte */
    use(runtime, block, (int64_t)(block->requested + past), bytes, stream);
    if (next_random(random) % 2)
        check_ok(strata_runtime_deallocate_on(runtime, block, stream));
    return (planted){STRATA_GUARD_OVERRUN, *block, (int64_t)(block->requested + past), bytes};
}

static planted plant_underrun(strata_runtime *runtime, const strata_block *block, CUstream stream, uint64_t *random)
{
    int64_t offset = -1 - (int64_t)(next_random(random) % 256);
    use(runtime, block, offset, (size_t)-offset, stream);
    check_ok(strata_runtime_deallocate_on(runtime, block, stream));
    return (planted){STRATA_GUARD_UNDERRUN, *block, offset, (uint64_t)-offset};
}

static planted plant_write_after_free(strata_runtime *runtime, const strata_block *block, CUstream stream,
                                      uint64_t *random)
{
    size_t offset = next_random(random) % block->requested;
    size_t bytes = 1 + next_random(random) % (block->requested - offset);
    use(runtime, block, 0, block->requested, stream);
    check_ok(strata_runtime_deallocate_on(runtime, block, stream));
    fill(block, (int64_t)offset, 0x77, bytes, stream);
    return (planted){STRATA_GUARD_WRITE_AFTER_FREE, *block, (int64_t)offset, bytes};
}

static planted plant_double_free(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    check_ok(strata_runtime_deallocate_on(runtime, block, stream));
    check_status(strata_runtime_deallocate_on(runtime, block, stream), STRATA_ERROR_DOUBLE_FREE);
    return (planted){STRATA_GUARD_DOUBLE_FREE, *block, 0, 0};
}

static planted plant(strata_runtime *runtime, unsigned which, CUstream stream, uint64_t *random)
{
    static const size_t sizes[] = {1, 3, 100, 255, 256, 257, 4096, 65537, 2 << 20};
    strata_request request = {.bytes = sizes[which % (sizeof sizes / sizeof sizes[0])], .stream = stream};
    strata_block block;
    check_ok(strata_tag_intern(which % 2 ? "odd" : "even", &request.tag));
    check_ok(strata_runtime_allocate_request(runtime, &request, &block));
    switch (which / 9 % 4) {
    case 0:
        return plant_overrun(runtime, &block, stream, random);
    case 1:
        return plant_underrun(runtime, &block, stream, random);
    case 2:
        return plant_write_after_free(runtime, &block, stream, random);
    default:
        return plant_double_free(runtime, &block, stream);
    }
}

/* A large block is checked in parts, and told of after the first that is wrong. */
static bool is_found(const strata_guard_finding *finding, const planted *bug)
{
    enum { ONE_PART = 256 << 10 };
    bool all = finding->changed == bug->changed;
    bool some = finding->changed && finding->changed < bug->changed && bug->block.requested > ONE_PART;
    return finding->kind == bug->kind && memcmp(&finding->block, &bug->block, sizeof bug->block) == 0 &&
           finding->offset == bug->offset && (all || some);
}

/* Each bug is told of once, and nothing else is. */
static void check_all_found(const guarded_program *program, const planted *bugs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t times = 0;
        for (size_t j = 0; j < program->count; j++)
            times += is_found(&program->findings[j], &bugs[i]);
        if (times != 1)
            print_error("bug %zu (kind %d, %zu bytes, offset %lld, %llu changed) was found %zu times\n", i,
                        (int)bugs[i].kind, bugs[i].block.requested, (long long)bugs[i].offset,
                        (unsigned long long)bugs[i].changed, times);
        assert_int_equal(times, 1);
    }
    assert_int_equal(program->count, count);
}

static void free_what_lives(strata_runtime *runtime, const planted *bugs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strata_runtime_block_state(runtime, bugs[i].block.id) == STRATA_BLOCK_LIVE)
            check_ok(strata_runtime_deallocate_on(runtime, &bugs[i].block, bugs[i].block.stream));
}

static void plant_a_hundred(strata_guard_options options, bool direct)
{
    enum { BUGS = 108 };
    const unsigned count = (unsigned)test_effort(BUGS, 36);
    guarded_program program;
    planted bugs[BUGS];
    CUstream streams[STREAMS] = {NULL};
    uint64_t random = 17;
    size_t found;
    program_begin(&program, options, direct);
    check_ok(strata_runtime_stream_acquire(program.runtime, &streams[1]));
    check_ok(strata_runtime_stream_acquire(program.runtime, &streams[2]));
    check_cu(test_cu()->StreamCreate(&streams[3], CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < count; i++)
        bugs[i] = plant(program.runtime, i, streams[i % STREAMS], &random);
    for (size_t i = 0; i < STREAMS; i++) /* no check is to race with a write after a free */
        check_cu(test_cu()->StreamSynchronize(streams[i]));
    check_status(strata_guard_check(program.guard, &found), STRATA_ERROR_CORRUPTED);
    assert_int_equal(found, count);
    check_all_found(&program, bugs, count);
    free_what_lives(program.runtime, bugs, count);
    check_ok(strata_guard_check(program.guard, &found));
    check_ok(strata_runtime_reap_pending(program.runtime));
    assert_int_equal(program.count, count);
    check_ok(strata_runtime_stream_release(program.runtime, streams[1]));
    check_ok(strata_runtime_stream_release(program.runtime, streams[2]));
    check_cu(test_cu()->StreamDestroy(streams[3]));
    program_end(&program);
}

static void a_hundred_planted_bugs_are_all_found_with_the_right_block(void **state)
{
    (void)state;
    plant_a_hundred((strata_guard_options){.no_debuggers = 1}, false);
    plant_a_hundred((strata_guard_options){.no_debuggers = 1}, true);
}

static void by_plain_copies_a_hundred_planted_bugs_are_found_as_well(void **state)
{
    (void)state;
    plant_a_hundred((strata_guard_options){.no_kernel = 1, .no_stacks = 1}, false);
}

typedef struct planter {
    guarded_program *program;
    pthread_t thread;
    unsigned number;
    planted bugs[27];
} planter;

static void *plant_in_thread(void *data)
{
    planter *self = data;
    CUstream stream;
    uint64_t random = self->number;
    test_make_current();
    check_ok(strata_runtime_stream_acquire(self->program->runtime, &stream));
    for (unsigned i = 0; i < 27; i++) { /* no write after a free: another thread's check could race with it */
        unsigned which = i < 18 ? i : i + 9;
        self->bugs[i] = plant(self->program->runtime, which, stream, &random);
    }
    check_ok(strata_runtime_stream_release(self->program->runtime, stream));
    return NULL;
}

static void bugs_of_several_threads_are_told_apart(void **state)
{
    (void)state;
    guarded_program program;
    planter planters[THREADS];
    planted bugs[THREADS * 27];
    program_begin(&program, (strata_guard_options){.no_debuggers = 1}, false);
    for (unsigned i = 0; i < THREADS; i++) {
        planters[i] = (planter){.program = &program, .number = i};
        assert_int_equal(pthread_create(&planters[i].thread, NULL, plant_in_thread, &planters[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(planters[i].thread, NULL), 0);
        memcpy(&bugs[i * 27], planters[i].bugs, sizeof planters[i].bugs);
    }
    check_status(strata_guard_check(program.guard, NULL), STRATA_ERROR_CORRUPTED);
    check_all_found(&program, bugs, THREADS * 27);
    free_what_lives(program.runtime, bugs, THREADS * 27);
    program_end(&program);
}

/* ---- correct programs ---- */

enum { BLOCKS = 24 };

/* Blocks that come and go on streams which hand them to one another; every byte is written, and read by another. */
static void run_correctly(strata_runtime *runtime, uint64_t seed, size_t steps, CUstream *streams)
{
    strata_block blocks[BLOCKS] = {{0}};
    for (size_t step = 0; step < steps; step++) {
        strata_block *block = &blocks[next_random(&seed) % BLOCKS];
        CUstream stream = streams[next_random(&seed) % STREAMS];
        if (!block->address) {
            size_t bytes = 1 + next_random(&seed) % (next_random(&seed) % 8 ? 3000 : 300000);
            check_ok(strata_runtime_allocate(runtime, bytes, stream, block));
        } else if (next_random(&seed) % 3) {
            use(runtime, block, 0, block->requested, stream);
        } else {
            check_ok(strata_runtime_deallocate_on(runtime, block, stream));
            *block = (strata_block){0};
        }
    }
    for (size_t i = 0; i < BLOCKS; i++)
        if (blocks[i].address)
            check_ok(strata_runtime_deallocate_on(runtime, &blocks[i], streams[i % STREAMS]));
}

static void open_streams(strata_runtime *runtime, CUstream *streams)
{
    for (size_t i = 0; i < STREAMS - 1; i++)
        check_ok(strata_runtime_stream_acquire(runtime, &streams[i]));
    check_cu(test_cu()->StreamCreate(&streams[STREAMS - 1], CU_STREAM_NON_BLOCKING));
}

static void close_streams(strata_runtime *runtime, CUstream *streams)
{
    for (size_t i = 0; i < STREAMS - 1; i++)
        check_ok(strata_runtime_stream_release(runtime, streams[i]));
    check_cu(test_cu()->StreamDestroy(streams[STREAMS - 1]));
}

static void check_correct_program(strata_guard_options options, bool direct)
{
    guarded_program program;
    CUstream streams[STREAMS];
    uint64_t checked;
    program_begin(&program, options, direct);
    open_streams(program.runtime, streams);
    for (uint64_t seed = 0; seed < 4; seed++) {
        run_correctly(program.runtime, seed, test_effort(400, 60), streams);
        check_ok(strata_guard_check(program.guard, NULL));
    }
    check_ok(strata_runtime_reap_pending(program.runtime));
    check_ok(strata_control(strata_runtime_stack(program.runtime), "guard.zones_checked", &checked, NULL));
    assert_true(checked > 100);
    assert_true(strata_runtime_bytes_outstanding(program.runtime) == 0);
    assert_int_equal(program.count, 0);
    close_streams(program.runtime, streams);
    program_end(&program);
}

static void a_correct_program_gives_no_report(void **state)
{
    (void)state;
    check_correct_program((strata_guard_options){.quarantine_blocks = 20}, false);
    check_correct_program((strata_guard_options){.quarantine_blocks = 20, .no_kernel = 1}, false);
    check_correct_program((strata_guard_options){.no_quarantine = 1, .zone = 1000, .no_stacks = 1}, false);
    check_correct_program((strata_guard_options){.quarantine_bytes = 100000, .no_poison = 1}, true);
}

typedef struct worker {
    guarded_program *program;
    pthread_t thread;
    uint64_t seed;
    _Atomic int *working; /* how many threads are */
} worker;

static void *work_correctly(void *data)
{
    worker *self = data;
    CUstream streams[STREAMS];
    test_make_current();
    open_streams(self->program->runtime, streams);
    for (size_t i = 0; i < 4; i++)
        run_correctly(self->program->runtime, self->seed + i, test_effort(150, 30), streams);
    close_streams(self->program->runtime, streams);
    test_leave_thread();
    --*self->working;
    return NULL;
}

/* This thread checks while others allocate, use and free. */
static void threads_of_a_correct_program_give_no_report(void **state)
{
    (void)state;
    guarded_program program;
    worker workers[THREADS];
    _Atomic int working = THREADS;
    program_begin(&program, (strata_guard_options){.quarantine_blocks = 30}, false);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.program = &program, .seed = i * 100, .working = &working};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work_correctly, &workers[i]), 0);
    }
    while (working)
        check_ok(strata_guard_check(program.guard, NULL));
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    check_ok(strata_guard_check(program.guard, NULL));
    assert_int_equal(program.count, 0);
    program_end(&program);
}

/* ---- what is larger than a batch, and what is short of memory ---- */

static void a_block_of_many_batches_is_checked_to_its_last_byte(void **state)
{
    (void)state;
    const size_t large = test_effort(70 << 20, 1 << 20);
    guarded_program program;
    strata_block block;
    program_begin(&program, (strata_guard_options){.no_debuggers = 1}, false);
    check_ok(strata_runtime_allocate(program.runtime, large, NULL, &block));
    check_ok(strata_runtime_deallocate(program.runtime, &block));
    fill(&block, (int64_t)large - 1, 0x77, 1, NULL);
    check_cu(test_cu()->StreamSynchronize(NULL));
    check_status(strata_guard_check(program.guard, NULL), STRATA_ERROR_CORRUPTED);
    check_all_found(&program, &(planted){STRATA_GUARD_WRITE_AFTER_FREE, block, (int64_t)large - 1, 1}, 1);
    program_end(&program);
}

static void an_allocation_that_is_short_of_memory_empties_the_quarantine(void **state)
{
    (void)state;
    enum { MOST = 64 << 20, HALF = 40 << 20 };
    strata_runtime *runtime;
    strata_block block;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(poison=off), async(max_size=64MiB)"},
                                   &runtime));
    for (size_t i = 0; i < 3; i++) {
        check_ok(strata_runtime_allocate(runtime, HALF, NULL, &block));
        check_ok(strata_runtime_deallocate(runtime, &block));
    }
    check_status(strata_runtime_allocate(runtime, MOST, NULL, &block), STRATA_ERROR_OUT_OF_MEMORY);
    assert_true(block.address == 0);
    check_ok(strata_runtime_destroy(runtime));
}

/* What is in quarantine is outstanding to a budget on either side, and given back when that is short. */
static void a_budget_counts_what_is_in_quarantine_until_it_leaves(void **state)
{
    (void)state;
    enum { HALF = 600 << 10 };
    static const char *const stacks[] = {"budget(limit=1MiB), guard, async", "guard, budget(limit=1MiB), async"};
    for (size_t i = 0; i < 2; i++) {
        strata_runtime *runtime;
        strata_block block;
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stacks[i]}, &runtime));
        check_ok(strata_runtime_allocate(runtime, HALF, NULL, &block));
        check_ok(strata_runtime_deallocate(runtime, &block));
        assert_true(strata_runtime_bytes_outstanding(runtime) >= HALF);
        check_ok(strata_runtime_allocate(runtime, HALF, NULL, &block));
        check_ok(strata_runtime_deallocate(runtime, &block));
        check_ok(strata_runtime_reap_pending(runtime));
        assert_true(strata_runtime_bytes_outstanding(runtime) == 0);
        uint64_t in_use = 77;
        check_ok(strata_control(strata_runtime_stack(runtime), "budget.in_use", &in_use, NULL));
        assert_int_equal(in_use, 0);
        check_ok(strata_runtime_destroy(runtime));
    }
}

/* ---- what follows a finding ---- */

typedef struct text {
    char bytes[8192];
    size_t length;
} text;

static void write_text(const char *bytes, size_t length, void *data)
{
    text *to = data;
    assert_true(to->length + length < sizeof to->bytes);
    memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
}

static void a_report_names_block_bytes_and_where_it_came_from(void **state)
{
    (void)state;
    guarded_program program;
    strata_request request = {.bytes = 100};
    strata_block block;
    text report = {.length = 0};
    char expected[160];
    program_begin(&program, (strata_guard_options){.no_debuggers = 1}, false);
    check_ok(strata_tag_intern("weights", &request.tag));
    check_ok(strata_runtime_allocate_request(program.runtime, &request, &block));
    use(program.runtime, &block, 96, 8, NULL);
    check_ok(strata_runtime_deallocate(program.runtime, &block));
    check_status(strata_guard_check(program.guard, NULL), STRATA_ERROR_CORRUPTED);
    assert_int_equal(program.count, 1);
    strata_guard_finding_print(&program.findings[0], write_text, &report);
    snprintf(expected, sizeof expected,
             "guard: overrun: block 0x%llx, 100 bytes, tag \"weights\", generation %llu, device 0, freed\n",
             (unsigned long long)block.address, (unsigned long long)block.id.generation);
    assert_non_null(strstr(report.bytes, expected));
    assert_non_null(strstr(report.bytes, "4 bytes changed, the first at offset 100, 0 past the end"));
    assert_non_null(strstr(report.bytes, "found    5a 5a 5a 5a bd bd"));
    assert_non_null(strstr(report.bytes, "expected bd bd bd bd bd bd"));
    const char *allocated = strstr(report.bytes, "  allocated at\n    "),
               *freed = strstr(report.bytes, "  freed at\n    ");
    assert_true(allocated && freed && allocated < freed);
    report.length = 0;
    check_ok(strata_stats_print(strata_runtime_stack(program.runtime), STRATA_FORMAT_JSON, write_text, &report));
    write_text("", 1, &report);
    assert_non_null(strstr(report.bytes, "\"kind\": \"overrun\""));
    assert_non_null(strstr(report.bytes, "\"offset\": 100"));
    program_end(&program);
}

static void log_one(const strata_error *error, void *data)
{
    strata_error *last = data;
    *last = *error;
}

static void a_finding_is_logged_where_there_is_no_callback(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    strata_error logged = {0};
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "guard(debuggers=off), async"}, &runtime));
    strata_set_log_callback(log_one, &logged);
    check_ok(strata_runtime_allocate(runtime, 100, NULL, &block));
    use(runtime, &block, 0, 102, NULL);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_reap_pending(runtime));
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(logged.status, STRATA_ERROR_CORRUPTED);
    assert_true(logged.requested == 100 && logged.generation == block.id.generation);
    assert_non_null(strstr(logged.message, "overrun: 2 bytes changed at offset 100, 0 past the end: block 0x"));
    check_ok(strata_runtime_destroy(runtime));
}

static void with_on_finding_fail_the_next_allocation_says_so_once(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    check_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = "guard(debuggers=off, on_finding=fail), async"}, &runtime));
    check_ok(strata_runtime_allocate(runtime, 100, NULL, &block));
    use(runtime, &block, 0, 102, NULL);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_reap_pending(runtime));
    check_status(strata_runtime_allocate(runtime, 100, NULL, &block), STRATA_ERROR_CORRUPTED);
    assert_true(block.address == 0);
    check_ok(strata_runtime_allocate(runtime, 100, NULL, &block));
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

static void overrun_and_go_on(void)
{
    strata_runtime *runtime;
    strata_block block;
    test_open_driver_quietly();
    child_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = "guard(debuggers=off, on_finding=exit), async"}, &runtime));
    child_ok(strata_runtime_allocate(runtime, 100, NULL, &block));
    child_ok(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE));
    child_check(test_cu()->MemsetD8Async(block.address, 1, 101, NULL) == CUDA_SUCCESS);
    child_ok(strata_runtime_finish_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE));
    child_ok(strata_runtime_deallocate(runtime, &block));
    strata_runtime_reap_pending(runtime);
}

static const test_scenario scenarios[] = {TEST_SCENARIO(overrun_and_go_on)};

static void with_on_finding_exit_the_process_ends(void **state)
{
    (void)state;
    assert_int_equal(test_child_status("overrun_and_go_on", NULL), STRATA_GUARD_EXIT_STATUS);
}

/* ---- making ---- */

static void options_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const strata_guard_options wrong[] = {
        {.zone = (64 << 10) + 1},
        {.on_finding = (strata_guard_action)3},
        {.no_kernel = 2},
        {.no_quarantine = 1, .quarantine_blocks = 5},
    };
    strata_resource *guard;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_status(strata_guard_create(0, &wrong[i], &guard), STRATA_ERROR_INVALID_VALUE);
        assert_null(guard);
    }
    strata_stack *stack;
    check_status(strata_stack_create("guard(zone=1MiB), async", 0, &stack), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "zone");
    check_status(strata_guard_create(0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_stack_create("async", 0, &stack));
    check_status(strata_guard_check(strata_stack_top(stack), NULL), STRATA_ERROR_INVALID_VALUE);
    assert_false(strata_guard_take_finding(strata_stack_top(stack), &(strata_guard_finding){0}));
    check_ok(strata_stack_destroy(stack));
}

static void no_end(strata_resource *resource)
{
    (void)resource;
}

static uint32_t no_capabilities(strata_resource *resource)
{
    (void)resource;
    return 0;
}

static void over_a_layer_that_tracks_no_uses_a_guard_refuses_to_allocate(void **state)
{
    (void)state;
    static const strata_resource_ops blind_ops = {
        .size = sizeof blind_ops, .name = "blind", .capabilities = no_capabilities, .destroy = no_end};
    strata_resource blind = {.ops = &blind_ops}, *layers[3] = {NULL, &blind, NULL};
    strata_stack *stack;
    strata_block block;
    check_ok(strata_guard_create(0, NULL, &layers[0]));
    check_ok(strata_direct_create(0, NULL, &layers[2]));
    check_ok(strata_stack_build(layers, 3, 0, &stack));
    check_status(strata_resource_allocate(strata_stack_top(stack), &(strata_request){.bytes = 8}, &block),
                 STRATA_ERROR_UNSUPPORTED);
    check_ok(strata_stack_destroy(stack));
}

static void a_guard_under_a_guard_finds_what_the_outer_zone_does_not_hold(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    size_t found;
    check_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = "guard(debuggers=off), guard(debuggers=off), async"}, &runtime));
    strata_resource *top = strata_stack_top(strata_runtime_stack(runtime));
    check_ok(strata_runtime_allocate(runtime, 256, NULL, &block));
    use(runtime, &block, 256 + 256, 4, NULL); /* just past the outer zone: in the inner one */
    check_ok(strata_guard_check(top, &found));
    check_status(strata_guard_check(top->upstream, &found), STRATA_ERROR_CORRUPTED);
    assert_int_equal(found, 1);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

int main(int count, char **arguments)
{
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_planted_bugs_are_all_found_with_the_right_block),
        cmocka_unit_test(by_plain_copies_a_hundred_planted_bugs_are_found_as_well),
        cmocka_unit_test(bugs_of_several_threads_are_told_apart),
        cmocka_unit_test(a_correct_program_gives_no_report),
        cmocka_unit_test(threads_of_a_correct_program_give_no_report),
        cmocka_unit_test(a_block_of_many_batches_is_checked_to_its_last_byte),
        cmocka_unit_test(an_allocation_that_is_short_of_memory_empties_the_quarantine),
        cmocka_unit_test(a_budget_counts_what_is_in_quarantine_until_it_leaves),
        cmocka_unit_test(a_report_names_block_bytes_and_where_it_came_from),
        cmocka_unit_test(a_finding_is_logged_where_there_is_no_callback),
        cmocka_unit_test(with_on_finding_fail_the_next_allocation_says_so_once),
        cmocka_unit_test(with_on_finding_exit_the_process_ends),
        cmocka_unit_test(options_that_make_no_sense_are_refused),
        cmocka_unit_test(over_a_layer_that_tracks_no_uses_a_guard_refuses_to_allocate),
        cmocka_unit_test(a_guard_under_a_guard_finds_what_the_outer_zone_does_not_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
