/* A process that freed its memory and sleeps: another one, or another stack, gets it without its help. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/budget.h"
#include "support/child.h"
#include "support/sweep.h"

enum { REFUSED = 3 }; /* exit code of the other process */

static const char *stack_text; /* of the case */

/* By the driver: Strata does not learn of it. */
static void wait_for(CUstream stream)
{
    check_cu(test_cu()->StreamSynchronize(stream));
}

/* ---- the other process ---- */

static void allocate_in_another_process(void)
{
    strata_runtime *runtime;
    strata_block block;
    CUstream stream;
    test_open_driver_quietly();
    const strata_runtime_config config = {.stack_text = getenv("STACK")};
    child_ok(strata_runtime_create(&config, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    strata_status status = strata_runtime_allocate(runtime, strtoull(getenv("BYTES"), NULL, 10), stream, &block);
    if (status == STRATA_ERROR_OUT_OF_BUDGET)
        test_child_leave(REFUSED);
    child_ok(status);
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_ok(strata_runtime_stream_release(runtime, stream));
    child_ok(strata_runtime_destroy(runtime));
}

static const test_scenario scenarios[] = {
    TEST_SCENARIO(allocate_in_another_process),
};

static int status_elsewhere(size_t bytes)
{
    char stack[256], amount[64], folder[64];
    snprintf(stack, sizeof stack, "STACK=%s", stack_text);
    snprintf(amount, sizeof amount, "BYTES=%zu", bytes);
    snprintf(folder, sizeof folder, "STRATA_SHARED_DIR=%s", directory);
    return test_child_status("allocate_in_another_process", (const char *const[]){stack, amount, folder, NULL});
}

static void allocates_elsewhere(size_t bytes)
{
    assert_int_equal(status_elsewhere(bytes), 0);
}

/* ---- this one ---- */

static void its_bytes_come_back(test_fixture *fixture)
{
    strata_block large, small[64];
    strata_budget_account *account = use_stack(fixture, stack_text);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(try_allocate(fixture, 136 * MIB, stream, &large));
    for (size_t i = 0; i < 64; i++)
        check_ok(try_allocate(fixture, MIB, stream, &small[i]));
    free_block(fixture, &large);
    for (size_t i = 0; i < 64; i++)
        free_block(fixture, &small[i]);
    wait_for(stream);
    allocates_elsewhere(250 * MIB);
    check_ok(try_allocate(fixture, 256 * MIB, stream, &large));
    free_block(fixture, &large);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(usage_of(account).in_use, 0);
}

enum { MANY = 2000 };

/* Streams in turn, which are behind. */
static void free_many(test_fixture *fixture, CUstream *streams, size_t stream_count, size_t bytes, size_t count)
{
    static strata_block blocks[MANY];
    CUevent stalled;
    CUstream slow = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < count; i++)
        check_ok(try_allocate(fixture, bytes, streams[i % stream_count], &blocks[i]));
    test_stall *stall = test_stall_begin(slow);
    check_cu(test_cu()->EventCreate(&stalled, CU_EVENT_DISABLE_TIMING));
    check_cu(test_cu()->EventRecord(stalled, slow));
    for (size_t i = 0; i < stream_count; i++)
        check_cu(test_cu()->StreamWaitEvent(streams[i], stalled, 0));
    for (size_t i = 0; i < count; i++)
        free_block(fixture, &blocks[i]);
    check_cu(test_cu()->EventDestroy(stalled));
    test_stall_end(stall);
}

static void however_many_blocks_an_idle_process_freed_others_get_them(test_fixture *fixture)
{
    stack_text = "budget(limit=256MiB, shared=many, wait=none), async";
    use_stack(fixture, stack_text);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    free_many(fixture, &stream, 1, 120 * KIB, MANY);
    allocates_elsewhere(232 * MIB); /* the stream wrote last behind all but a sixteenth */
}

static void on_however_many_streams_an_idle_process_freed_others_get_most(test_fixture *fixture)
{
    CUstream streams[32];
    stack_text = "budget(limit=256MiB, shared=wide, wait=none), async";
    use_stack(fixture, stack_text);
    for (size_t i = 0; i < 32; i++)
        streams[i] = test_stream(fixture, TEST_STREAM_POOL);
    free_many(fixture, streams, 32, 400 * KIB, 608);
    allocates_elsewhere(208 * MIB);
}

static void an_idle_process_gives_its_memory_to_others(test_fixture *fixture)
{
    stack_text = test_is_swept() ? "budget(limit=256MiB, shared=job, wait=live, timeout=500ms), async"
                                 : "budget(limit=256MiB, shared=job, wait=live, timeout=20s), async";
    its_bytes_come_back(fixture);
}

static void an_idle_process_with_a_pool_does_too(test_fixture *fixture)
{
    stack_text = test_is_swept()
                     ? "budget(limit=256MiB, shared=job, wait=live, timeout=500ms), logging(file=/dev/null), pool"
                     : "budget(limit=256MiB, shared=job, wait=live, timeout=20s), logging(file=/dev/null), pool";
    its_bytes_come_back(fixture);
}

static void an_idle_process_with_blocks_of_one_size_does_too(test_fixture *fixture)
{
    strata_block block;
    stack_text = "budget(limit=256MiB, shared=fixed, wait=none), fixed(bytes=100MiB), async";
    use_stack(fixture, stack_text);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(try_allocate(fixture, 100 * MIB, stream, &block));
    free_block(fixture, &block);
    wait_for(stream);
    allocates_elsewhere(100 * MIB);
}

/* What the other process has claimed of the first free ends with that one's completion. */
static void a_block_that_is_freed_twice_is_given_to_others_once(test_fixture *fixture)
{
    strata_block block;
    stack_text = "budget(limit=256MiB, shared=twice, wait=none), async";
    use_stack(fixture, stack_text);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(try_allocate(fixture, 200 * MIB, stream, &block));
    free_block(fixture, &block);
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
    wait_for(stream);
    allocates_elsewhere(200 * MIB);
    check_ok(try_allocate(fixture, 256 * MIB, stream, &block));
    const int elsewhere = status_elsewhere(64 * MIB);
    free_block(fixture, &block);
    assert_int_equal(elsewhere, REFUSED);
}

static void an_idle_stack_gives_its_memory_to_another_stack(test_fixture *fixture)
{
    static const char text[] = "budget(limit=256MiB, shared=job, wait=none), async";
    use_stack(fixture, text);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_runtime *other;
    strata_block first, second;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &other));
    check_ok(try_allocate(fixture, 200 * MIB, stream, &first));
    free_block(fixture, &first);
    wait_for(stream);
    check_ok(strata_runtime_allocate(other, 100 * MIB, stream, &second));
    check_ok(strata_runtime_deallocate(other, &second));
    check_ok(strata_runtime_destroy(other));
}

static void free_after_use(test_fixture *fixture, strata_block *block, CUstream user)
{
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, block, user, STRATA_ACCESS_READ));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, block, user, STRATA_ACCESS_READ));
    free_block(fixture, block);
}

/* No stream's word says so. */
static void an_idle_stack_gives_what_several_streams_used_to_another_stack(test_fixture *fixture)
{
    static const char text[] = "budget(limit=256MiB, shared=job, wait=none), async";
    use_stack(fixture, text);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    strata_runtime *other;
    strata_block first, second;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &other));
    check_ok(try_allocate(fixture, 200 * MIB, stream, &first));
    test_stall *stall = test_stall_begin(user);
    free_after_use(fixture, &first, user);
    check_status(strata_runtime_allocate(other, 100 * MIB, stream, &second), STRATA_ERROR_OUT_OF_BUDGET);
    test_stall_end(stall);
    check_ok(strata_runtime_allocate(other, 100 * MIB, stream, &second));
    check_ok(strata_runtime_deallocate(other, &second));
    check_ok(strata_runtime_destroy(other));
}

/* Work of another stream may still use the memory when the stream of the free has passed it. */
static void memory_that_another_stream_uses_does_not(test_fixture *fixture)
{
    strata_block block;
    stack_text = "budget(limit=256MiB, shared=job, wait=none), async";
    use_stack(fixture, stack_text);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(try_allocate(fixture, 200 * MIB, stream, &block));
    test_stall *stall = test_stall_begin(user);
    free_after_use(fixture, &block, user);
    assert_int_equal(status_elsewhere(100 * MIB), REFUSED);
    test_stall_end(stall);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    allocates_elsewhere(100 * MIB);
}

/* Its blocks come back when the quarantine ends, not when the stream has passed the free. */
static void memory_that_a_layer_keeps_does_not(test_fixture *fixture)
{
    strata_block block;
    stack_text = "budget(limit=256MiB, shared=job, wait=none), guard(quarantine=on), async";
    use_stack(fixture, stack_text);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(try_allocate(fixture, 200 * MIB, stream, &block));
    free_block(fixture, &block);
    wait_for(stream);
    assert_int_equal(status_elsewhere(100 * MIB), REFUSED);
}

/* ---- the page of words ---- */

static CUresult CUDAAPI refuse_to_unregister(void *memory)
{
    (void)memory;
    return CUDA_ERROR_UNKNOWN;
}

/* Ends a stack. Its stream writes the word behind what the end waits for. */
static void use_words(test_fixture *fixture, bool refused)
{
    static const char text[] = "budget(limit=256MiB, shared=words, wait=none), async";
    CUresult(CUDAAPI *const real)(void *) = strata_cu.MemHostUnregister;
    strata_block block;
    use_stack(fixture, text);
    check_ok(try_allocate(fixture, 200 * MIB, NULL, &block));
    free_block(fixture, &block);
    if (refused)
        strata_cu.MemHostUnregister = refuse_to_unregister;
    const strata_status status = strata_runtime_destroy(fixture->runtime);
    strata_cu.MemHostUnregister = real;
    check_ok(status);
    fixture->runtime = NULL;
    wait_for(NULL);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "async"}, &fixture->runtime));
}

static void a_stream_that_writes_its_word_late_finds_the_page(test_fixture *fixture)
{
    use_words(fixture, false);
    use_words(fixture, true);
    use_words(fixture, true); /* of the page that the driver kept */
    use_words(fixture, false);
    use_words(fixture, false);
}

int main(int count, char **arguments)
{
    static const test_case cases[] = {
        TEST_CASE(an_idle_process_gives_its_memory_to_others),
        TEST_CASE(an_idle_process_with_a_pool_does_too),
        TEST_CASE(an_idle_process_with_blocks_of_one_size_does_too),
        TEST_CASE(however_many_blocks_an_idle_process_freed_others_get_them),
        TEST_CASE(on_however_many_streams_an_idle_process_freed_others_get_most),
        TEST_CASE(a_block_that_is_freed_twice_is_given_to_others_once),
        TEST_CASE(an_idle_stack_gives_its_memory_to_another_stack),
        TEST_CASE(an_idle_stack_gives_what_several_streams_used_to_another_stack),
        TEST_CASE(memory_that_another_stream_uses_does_not),
        TEST_CASE(memory_that_a_layer_keeps_does_not),
        TEST_CASE(a_stream_that_writes_its_word_late_finds_the_page),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    static const char *const stacks[] = {"async"};
    strcpy(directory, "/dev/shm/strata-i-XXXXXX"); /* a driver maps no pages of other file systems */
    if (!make_directory())
        return 1;
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
