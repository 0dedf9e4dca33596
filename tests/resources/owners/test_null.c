/* null: blocks without memory, that are blocks in every other way. */
#include <pthread.h>

#include "support/effort.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

static const size_t GIB = (size_t)1 << 30;

static void addresses_are_apart_and_lead_back_to_their_blocks(test_fixture *fixture)
{
    enum { COUNT = 200 };
    strata_block blocks[COUNT], found;
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = test_allocate(fixture, i % 3 ? i % 5 ? 1 + i * 1000 : GIB : 256 * GIB, NULL);
        assert_true(blocks[i].address % 256 == 0 && blocks[i].bytes == blocks[i].requested);
        for (size_t j = 0; j < i; j++)
            assert_true(blocks[i].address + blocks[i].bytes <= blocks[j].address ||
                        blocks[j].address + blocks[j].bytes <= blocks[i].address);
    }
    for (size_t i = 0; i < COUNT; i++) {
        const CUdeviceptr inside[] = {0, blocks[i].bytes / 2, blocks[i].bytes - 1};
        for (size_t j = 0; j < 3; j++) {
            check_ok(strata_runtime_find(fixture->runtime, blocks[i].address + inside[j], &found));
            assert_memory_equal(&found, &blocks[i], sizeof found);
        }
        if (blocks[i].bytes < GIB)
            check_status(strata_runtime_find(fixture->runtime, blocks[i].address + blocks[i].bytes, &found),
                         STRATA_ERROR_FOREIGN_POINTER);
    }
    static const CUdeviceptr none[] = {
        0, 1, (CUdeviceptr)1 << 62, (CUdeviceptr)1 << 55, (CUdeviceptr)3 << 54, UINT64_MAX, (CUdeviceptr)3 << 62};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        check_status(strata_runtime_find(fixture->runtime, none[i], &found), STRATA_ERROR_FOREIGN_POINTER);
    for (size_t i = 0; i < COUNT; i++) {
        test_free_on(fixture, &blocks[i], NULL);
        check_status(strata_runtime_find(fixture->runtime, blocks[i].address, &found), STRATA_ERROR_FOREIGN_POINTER);
    }
}

/* Slots from 2^16 on have other addresses. */
static void large_blocks_are_found_however_many_there_are(test_fixture *fixture)
{
    enum { COUNT = (1 << 16) + 4096 };
    if (test_is_swept())
        return;
    strata_block *blocks = calloc(COUNT, sizeof *blocks), found;
    assert_non_null(blocks);
    for (size_t i = 0; i < COUNT; i++)
        blocks[i] = test_allocate(fixture, i % 4096 ? 1 : 3 * GIB, NULL);
    for (size_t i = 0; i < COUNT; i += 64) {
        check_ok(strata_runtime_find(fixture->runtime, blocks[i].address + blocks[i].bytes - 1, &found));
        assert_memory_equal(&found, &blocks[i], sizeof found);
    }
    for (size_t i = 0; i < COUNT; i++)
        test_free_on(fixture, &blocks[i], NULL);
    free(blocks);
}

static void alignments_and_sizes_go_up_to_256_gibibytes(test_fixture *fixture)
{
    strata_block block;
    for (size_t alignment = 1; alignment <= 256 * GIB; alignment *= 2) {
        check_ok(strata_runtime_allocate_request(fixture->runtime,
                                                 &(strata_request){.bytes = 5, .alignment = alignment}, &block));
        assert_true(block.address % block.alignment == 0 && block.alignment >= alignment && block.alignment >= 256);
        test_free_on(fixture, &block, NULL);
    }
    const strata_request refused[] = {
        {.bytes = 256 * GIB + 1}, {.bytes = SIZE_MAX}, {.bytes = 1, .alignment = 512 * GIB}};
    for (size_t i = 0; i < 3; i++) {
        check_status(strata_runtime_allocate_request(fixture->runtime, &refused[i], &block),
                     STRATA_ERROR_OUT_OF_MEMORY);
        assert_memory_equal(&block, &(strata_block){0}, sizeof block);
        assert_true(strata_last_error()->requested == refused[i].bytes && strata_last_error()->limit == 256 * GIB);
    }
    assert_true(test_usage(fixture).live_blocks == 0);
}

static void what_lives_is_counted_and_nothing_is_ever_retired(test_fixture *fixture)
{
    strata_block a = test_allocate(fixture, 1000, NULL), b = test_allocate(fixture, 64 * GIB, NULL);
    strata_usage usage = test_usage(fixture);
    assert_true(usage.live_blocks == 2 && usage.live_bytes == 1000 + 64 * GIB);
    assert_true(usage.bytes_outstanding == usage.live_bytes && usage.reserved_bytes == usage.live_bytes);
    test_free_on(fixture, &a, NULL);
    usage = test_usage(fixture);
    assert_true(usage.live_blocks == 1 && usage.bytes_outstanding == 64 * GIB && usage.retired_bytes == 0);
    test_free_on(fixture, &b, NULL);
    assert_true(test_usage(fixture).bytes_outstanding == 0);
}

static void wrong_frees_are_refused(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, 1000, NULL), wrong = block;
    wrong.bytes++;
    check_status(strata_runtime_deallocate_on(fixture->runtime, &wrong, NULL), STRATA_ERROR_SIZE_MISMATCH);
    wrong = block;
    wrong.address++;
    check_status(strata_runtime_deallocate_on(fixture->runtime, &wrong, NULL), STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_WRITE));
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, NULL), STRATA_ERROR_BLOCK_IN_USE);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_NONE));
    test_free_on(fixture, &block, NULL);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, NULL), STRATA_ERROR_DOUBLE_FREE);
    check_status(strata_runtime_prepare_block_use(fixture->runtime, &block, NULL, STRATA_ACCESS_READ),
                 STRATA_ERROR_USE_AFTER_FREE);
}

static void a_pair_on_a_known_stream_asks_the_driver_nothing(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    test_calls calls;
    test_calls_begin(&calls);
    for (size_t i = 0; i < 20; i++) {
        strata_block block = test_allocate(fixture, 4096, stream);
        test_free_on(fixture, &block, stream);
    }
    assert_true(test_calls_total(&calls) == 0);
    test_stream_close(fixture, stream);
}

static void uses_on_several_streams_are_tracked(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, 4096, alloc_stream);
    test_calls calls;
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, alloc_stream, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, alloc_stream, STRATA_ACCESS_WRITE));
    test_calls_begin(&calls);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
    assert_true(test_calls_of(&calls, "cuStreamWaitEvent") == 1);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
    test_free_on(fixture, &block, alloc_stream);
    test_stream_close(fixture, alloc_stream);
    test_stream_close(fixture, user);
}

static void it_claims_what_it_does(test_fixture *fixture)
{
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    assert_int_equal(strata_resource_capabilities(top),
                     STRATA_CAPABILITY_STREAM_ORDERED | STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND);
    strata_resource *resource;
    check_status(strata_null_create(0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_null_create(0, &(strata_null_options){.size = 77}, &resource), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_null_create(1000, NULL, &resource), STRATA_ERROR_INVALID_VALUE);
    assert_null(resource);
}

/* ---- the second moment of a free, which is the first here ---- */

static struct {
    size_t reports, bytes;
    bool last;
    strata_block_id id;
} completed;

static void hear(strata_resource *self, const strata_completion *completion)
{
    (void)self;
    completed.reports++;
    completed.bytes += completion->bytes;
    completed.last = completion->last && completion->kind == STRATA_COMPLETION_FINISHED;
    completed.id = completion->id;
}

static void end_listening(strata_resource *self)
{
    (void)self;
}

static const strata_resource_ops listening_ops = {
    .size = sizeof(strata_resource_ops), .name = "listening", .completed = hear, .destroy = end_listening};

static void a_free_is_reported_complete_at_once(test_fixture *fixture)
{
    (void)fixture;
    static strata_resource listening;
    strata_resource *layers[2] = {&listening};
    strata_stack *stack;
    strata_block block;
    listening = (strata_resource){.ops = &listening_ops};
    completed.reports = completed.bytes = 0;
    check_ok(strata_null_create(0, NULL, &layers[1]));
    check_ok(strata_stack_build(layers, 2, 0, &stack));
    check_ok(strata_resource_allocate(&listening, &(strata_request){.bytes = 777}, &block));
    assert_true(completed.reports == 0);
    check_ok(strata_resource_deallocate(&listening, &block, NULL));
    assert_true(completed.reports == 1 && completed.bytes == 777 && completed.last);
    assert_memory_equal(&completed.id, &block.id, sizeof block.id);
    check_ok(strata_stack_destroy(stack));
}

static void a_block_of_no_bytes_is_none_and_its_free_does_nothing(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, 0, NULL);
    assert_true(block.address == 0 && block.id.generation == 0);
    assert_true(test_usage(fixture).live_blocks == 0);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void on_a_stream_that_is_captured_there_is_no_block_and_nothing_stays(test_fixture *fixture)
{
    strata_block block;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    test_fault_pretend_capture(stream);
    check_status(strata_runtime_allocate(fixture->runtime, 4096, stream, &block), STRATA_ERROR_STREAM_CAPTURE);
    test_fault_end();
    assert_true(block.address == 0 && block.id.generation == 0);
    assert_true(test_usage(fixture).live_blocks == 0);
    test_stream_close(fixture, stream);
}

/* ---- threads ---- */

enum { THREADS = 4 };

static _Atomic unsigned failures;

static void *allocate_and_free(void *data)
{
    test_fixture *fixture = data;
    strata_block blocks[16];
    for (size_t turn = 0; turn < test_effort(500, 20); turn++) {
        for (size_t i = 0; i < 16; i++)
            failures += strata_runtime_allocate(fixture->runtime, 1 + turn + i, NULL, &blocks[i]) != STRATA_SUCCESS;
        for (size_t i = 0; i < 16; i++)
            failures += strata_runtime_deallocate_on(fixture->runtime, &blocks[i], NULL) != STRATA_SUCCESS;
    }
    return NULL;
}

static void threads_allocate_and_free_at_the_same_time(test_fixture *fixture)
{
    pthread_t threads[THREADS];
    failures = 0;
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, fixture), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(failures, 0);
    assert_true(test_usage(fixture).live_blocks == 0 && test_usage(fixture).bytes_outstanding == 0);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(addresses_are_apart_and_lead_back_to_their_blocks),
        TEST_CASE(alignments_and_sizes_go_up_to_256_gibibytes),
        TEST_CASE(large_blocks_are_found_however_many_there_are),
        TEST_CASE(what_lives_is_counted_and_nothing_is_ever_retired),
        TEST_CASE(wrong_frees_are_refused),
        TEST_CASE(a_pair_on_a_known_stream_asks_the_driver_nothing),
        TEST_CASE(uses_on_several_streams_are_tracked),
        TEST_CASE(it_claims_what_it_does),
        TEST_CASE(a_free_is_reported_complete_at_once),
        TEST_CASE(a_block_of_no_bytes_is_none_and_its_free_does_nothing),
        TEST_CASE(on_a_stream_that_is_captured_there_is_no_block_and_nothing_stays),
        TEST_CASE(threads_allocate_and_free_at_the_same_time),
    };
    static const char *const stacks[] = {"null"};
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
