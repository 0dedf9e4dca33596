/* The fixture: set-up, clean-up, and running a list of cases on a list of stacks. */
#include "support/fixture.h"

#include "support/faults.h"
#include "support/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stacks similar to others come last, and short sweeps leave them out: a pool over another layer, which
 * tests/resources/pool/test_pool_source.c sweeps, and the view of the driver's own pool. */
enum { FIRST_OF_ALL = 3, FIRST_OF_ORDERED = 2 };

static const char *const every_resource[] = {"async",       "direct",       "pool",
                                             "pool, async", "pool, direct", "async(pool=default)"};
static const char *const stream_ordered[] = {"async", "pool", "pool, async", "async(pool=default)"};

void (*test_before_clearing)(void);

/* ---- streams ---- */

const char *test_stream_kind_name(test_stream_kind kind)
{
    static const char *const names[TEST_STREAM_KINDS] = {"pool", "registered", "unknown",
                                                         "zero", "legacy",     "per-thread"};
    return (unsigned)kind < TEST_STREAM_KINDS ? names[kind] : "?";
}

static CUstream make_stream(void)
{
    CUstream stream;
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

CUstream test_stream(test_fixture *fixture, test_stream_kind kind)
{
    CUstream stream = NULL;
    switch (kind) {
    case TEST_STREAM_POOL:
        check_ok(strata_runtime_stream_acquire(fixture->runtime, &stream));
        break;
    case TEST_STREAM_REGISTERED:
        stream = make_stream();
        check_ok(strata_runtime_register_stream(fixture->runtime, stream));
        break;
    case TEST_STREAM_UNKNOWN:
        stream = make_stream();
        break;
    case TEST_STREAM_ZERO:
        return NULL;
    case TEST_STREAM_LEGACY:
        return CU_STREAM_LEGACY;
    case TEST_STREAM_PER_THREAD:
        return CU_STREAM_PER_THREAD;
    case TEST_STREAM_KINDS:
        fail_msg("no such kind of stream");
    }
    assert_true(fixture->stream_count < TEST_STREAM_ROOM);
    fixture->streams[fixture->stream_count++] = (test_stream_record){.handle = stream, .kind = kind};
    return stream;
}

/* Whether all steps for the stream's kind succeeded. */
static bool close_stream(test_fixture *fixture, test_stream_record stream)
{
    if (stream.kind == TEST_STREAM_POOL)
        return strata_runtime_stream_release(fixture->runtime, stream.handle) == STRATA_SUCCESS;
    bool unregistered = stream.kind != TEST_STREAM_REGISTERED ||
                        strata_runtime_unregister_stream(fixture->runtime, stream.handle) == STRATA_SUCCESS;
    return unregistered && test_cu()->StreamDestroy(stream.handle) == CUDA_SUCCESS;
}

static test_stream_record take_record(test_fixture *fixture, CUstream stream)
{
    for (size_t i = 0; i < fixture->stream_count; i++) {
        test_stream_record record = fixture->streams[i];
        if (record.handle != stream)
            continue;
        fixture->streams[i] = fixture->streams[--fixture->stream_count];
        return record;
    }
    fail_msg("the fixture does not have this stream");
    return (test_stream_record){0};
}

void test_stream_close(test_fixture *fixture, CUstream stream)
{
    if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD)
        return;
    assert_true(close_stream(fixture, take_record(fixture, stream)));
}

bool test_fixture_close_streams(test_fixture *fixture)
{
    size_t left = 0;
    for (size_t i = 0; i < fixture->stream_count; i++)
        if (!close_stream(fixture, fixture->streams[i]))
            fixture->streams[left++] = fixture->streams[i];
    fixture->stream_count = left;
    return left == 0;
}

void test_stream_forget(test_fixture *fixture, CUstream stream)
{
    take_record(fixture, stream);
}

/* ---- bytes ---- */

void test_fill(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream)
{
    check_cu(test_cu()->MemsetD8Async(address, value, bytes, stream));
}

const unsigned char *test_copy_back(test_fixture *fixture, CUdeviceptr address, size_t bytes, CUstream stream)
{
    assert_true(bytes <= TEST_SEEN_BYTES - fixture->seen_used);
    unsigned char *to = fixture->seen + fixture->seen_used;
    fixture->seen_used += (bytes + 63) & ~(size_t)63;
    check_cu(test_cu()->MemcpyDtoHAsync(to, address, bytes, stream));
    return to;
}

void test_check_bytes(const unsigned char *bytes, unsigned char value, size_t count, const char *file, int line)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == value)
            continue;
        print_error("byte %zu of %zu is 0x%02x, expected 0x%02x\n", i, count, bytes[i], value);
        _fail(file, line);
    }
}

void test_synchronize(CUstream stream)
{
    check_cu(test_cu()->StreamSynchronize(stream));
}

/* ---- blocks ---- */

strata_block test_allocate(test_fixture *fixture, size_t bytes, CUstream stream)
{
    strata_block block;
    check_ok(strata_runtime_allocate(fixture->runtime, bytes, stream, &block));
    return block;
}

void test_free_on(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    check_ok(strata_runtime_deallocate_on(fixture->runtime, block, stream));
}

void test_write(test_fixture *fixture, const strata_block *block, unsigned char value, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE));
    test_fill(block->address, value, block->requested, stream);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE));
}

const unsigned char *test_read(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, block, stream, STRATA_ACCESS_READ));
    const unsigned char *seen = test_copy_back(fixture, block->address, block->requested, stream);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, block, stream, STRATA_ACCESS_READ));
    return seen;
}

strata_usage test_usage(test_fixture *fixture)
{
    strata_usage usage;
    check_ok(strata_runtime_usage(fixture->runtime, &usage));
    return usage;
}

bool test_owner_is(const test_fixture *fixture, const char *owner)
{
    const size_t length = strcspn(fixture->stack, "(,");
    return length == strlen(owner) && strncmp(fixture->stack, owner, length) == 0;
}

strata_status test_owner_create(const test_fixture *fixture, strata_resource **out)
{
    if (test_owner_is(fixture, "pool"))
        return strata_pool_create(0, NULL, out);
    return test_owner_is(fixture, "async") ? strata_async_create(0, NULL, out) : strata_direct_create(0, NULL, out);
}

/* ---- running ---- */

static int make_runtime(test_fixture *fixture)
{
    strata_runtime_config config = {.stack_text = fixture->stack, .events = fixture->events, .stream_capacity = 64};
    return strata_runtime_create(&config, &fixture->runtime) == STRATA_SUCCESS ? 0 : -1;
}

void test_use_events(test_fixture *fixture, strata_event_mode events)
{
    assert_int_equal(fixture->stream_count, 0);
    check_ok(strata_runtime_destroy(fixture->runtime));
    fixture->runtime = NULL;
    fixture->events = events;
    assert_int_equal(make_runtime(fixture), 0);
}

typedef struct prepared_case {
    const test_case *test;
    const char *stack;
    char name[384];
    test_fixture fixture;
} prepared_case;

static bool prepare(test_fixture *fixture)
{
    void *seen;
    if (test_cu()->MemHostAlloc(&seen, TEST_SEEN_BYTES, 0) != CUDA_SUCCESS)
        return false;
    fixture->seen = seen;
    return make_runtime(fixture) == 0;
}

static int set_up(void **state)
{
    prepared_case *prepared = *state;
    prepared->fixture = (test_fixture){.stack = prepared->stack};
    return prepare(&prepared->fixture) ? 0 : -1;
}

/* Whether the thread's capture mode is unchanged, as every call must leave it. */
static bool is_mode_untouched(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (test_cu()->ThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS && mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
        return true;
    print_error("a call has left the thread's capture mode at %d\n", (int)mode);
    return false;
}

/* Cleans up. After a passed test everything here succeeds: the test has closed and freed what it had to. */
static int tear_down(void **state)
{
    prepared_case *prepared = *state;
    test_fixture *fixture = &prepared->fixture;
    bool clean = true;
    if (test_before_clearing)
        test_before_clearing();
    test_fault_end();
    test_stall_end_all();
    clean &= is_mode_untouched();
    clean &= test_fixture_close_streams(fixture);
    fixture->stream_count = 0;
    clean &= test_cu()->CtxSynchronize() == CUDA_SUCCESS;
    if (fixture->runtime && strata_runtime_destroy(fixture->runtime) != STRATA_SUCCESS) {
        print_error("the runtime cannot be ended: %s\n", strata_last_error()->message);
        clean = false;
    }
    clean &= test_cu()->MemFreeHost(fixture->seen) == CUDA_SUCCESS;
    return clean ? 0 : -1;
}

static void run_case(void **state)
{
    prepared_case *prepared = *state;
    prepared->test->run(&prepared->fixture);
}

static void make_prepared(prepared_case *prepared, const char *stack, const test_case *test)
{
    prepared->test = test;
    prepared->stack = stack;
    snprintf(prepared->name, sizeof prepared->name, "%s [%s]", test->name, stack);
}

/* test_run_on in a process of a sweep, which runs one case at most, so that it has room for no more. */
static int sweep(const char *const *stacks, size_t stack_count, const test_case *cases, size_t case_count)
{
    static prepared_case prepared;
    for (size_t i = 0; i < stack_count * case_count; i++) {
        make_prepared(&prepared, stacks[i / case_count], &cases[i % case_count]);
        prepared.fixture = (test_fixture){.stack = prepared.stack};
        const test_sweep_case one = {
            .name = prepared.name,
            .fixture = &prepared.fixture,
            .set_up = prepare,
            .run = prepared.test->run,
        };
        test_sweep_case_here(&one);
    }
    return 0;
}

int test_run_on(const char *const *stacks, size_t stack_count, const test_case *cases, size_t case_count)
{
    if (test_is_swept())
        return sweep(stacks, stack_count, cases, case_count);
    size_t count = stack_count * case_count;
    prepared_case *prepared = calloc(count, sizeof *prepared);
    struct CMUnitTest *tests = calloc(count, sizeof *tests);
    int failed = 1;
    if (prepared && tests) {
        for (size_t i = 0; i < count; i++) {
            make_prepared(&prepared[i], stacks[i / case_count], &cases[i % case_count]);
            tests[i] = (struct CMUnitTest){
                .name = prepared[i].name,
                .test_func = run_case,
                .setup_func = set_up,
                .teardown_func = tear_down,
                .initial_state = &prepared[i],
            };
        }
        failed = _cmocka_run_group_tests("on every stack", tests, count, NULL, NULL);
    }
    free(tests);
    free(prepared);
    return failed;
}

static size_t count_of(size_t all, size_t first)
{
    return test_is_swept() && !test_is_swept_in_full() ? first : all;
}

int test_run_on_every_resource(const test_case *cases, size_t case_count)
{
    return test_run_on(every_resource, count_of(sizeof every_resource / sizeof every_resource[0], FIRST_OF_ALL), cases,
                       case_count);
}

int test_run_on_stream_ordered(const test_case *cases, size_t case_count)
{
    return test_run_on(stream_ordered, count_of(sizeof stream_ordered / sizeof stream_ordered[0], FIRST_OF_ORDERED),
                       cases, case_count);
}
