/* ONNX Runtime's doors: the functions of the provider options, found by their texts, and the OrtAllocator. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child.h"
#include "support/pool.h"
#include "support/sweep.h"

#include "core/base/error.h"

/* ---- the provider options ---- */

/* What ONNX Runtime makes of the texts. */
static struct {
    void *(*allocate)(size_t bytes);
    void (*deallocate)(void *address);
    void (*empty_cache)(void);
    CUstream stream;
} provider;

static void set(void *into, const char *text)
{
    char *end;
    const uintptr_t address = strtoull(text, &end, 10);
    assert_true(*text && !*end);
    memcpy(into, &address, sizeof address);
}

static void bind(test_fixture *fixture, CUstream stream)
{
    strata_onnx_functions functions;
    check_ok(strata_onnx_bind(fixture->runtime, stream, &functions));
    set(&provider.allocate, functions.allocate_text);
    set(&provider.deallocate, functions.deallocate_text);
    set(&provider.empty_cache, functions.empty_cache_text);
    set(&provider.stream, functions.stream_text);
    assert_true(provider.allocate == functions.allocate && provider.deallocate == functions.deallocate &&
                provider.empty_cache == functions.empty_cache);
    assert_ptr_equal(provider.stream, stream);
}

static strata_onnx_allocator *allocator;

static void unbind(void)
{
    strata_error_suppress_begin();
    strata_onnx_unbind();
    strata_onnx_allocator_destroy(allocator);
    allocator = NULL;
    strata_error_suppress_end(false);
}

static CUdeviceptr address_of(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

static void the_functions_behind_the_texts_serve_the_provider(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    bind(fixture, stream);
    void *memory = provider.allocate(3 * MIB);
    strata_block block;
    check_ok(strata_runtime_find(fixture->runtime, address_of(memory), &block));
    assert_int_equal(block.requested, 3 * MIB);
    assert_ptr_equal(block.stream, stream);
    assert_int_equal(block.address % 256, 0);
    test_fill(block.address, 0x31, 3 * MIB, stream);
    provider.deallocate(memory);
    assert_int_equal(test_usage(fixture).live_bytes, 0);
    void *again = provider.allocate(3 * MIB); /* the same stream: no wait is needed */
    test_fill(address_of(again), 0x32, 3 * MIB, stream);
    provider.deallocate(again);
    provider.empty_cache();
    if (test_owner_is(fixture, "pool")) /* the driver's pool keeps what it likes */
        assert_int_equal(test_usage(fixture).reserved_bytes, 0);
    check_ok(strata_onnx_unbind());
}

static void *free_it(void *memory)
{
    test_make_current();
    provider.deallocate(memory);
    return NULL;
}

/* Kernels of the compute stream still run. */
static void any_thread_frees_while_work_is_under_way(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    pthread_t thread;
    bind(fixture, stream);
    void *memory = provider.allocate(MIB);
    test_fill(address_of(memory), 0x33, MIB, stream);
    assert_int_equal(pthread_create(&thread, NULL, free_it, memory), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(test_usage(fixture).live_bytes, 0);
    check_ok(strata_onnx_unbind());
}

static void a_request_that_cannot_be_served_is_null_and_an_error_record(test_fixture *fixture)
{
    bind(fixture, test_stream(fixture, TEST_STREAM_POOL));
    assert_null(provider.allocate((size_t)1 << 50));
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "");
    assert_null(provider.allocate(0));
    provider.deallocate(NULL);
    provider.deallocate((void *)(uintptr_t)0x1000);
    check_last_error(STRATA_ERROR_FOREIGN_POINTER, "");
    check_ok(strata_onnx_unbind());
}

static void a_process_has_one_binding(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_onnx_functions functions;
    bind(fixture, stream);
    bind(fixture, stream); /* of a second session */
    check_status(strata_onnx_bind(fixture->runtime, other, &functions), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "bound to another stream");
    assert_null(functions.allocate);
    void *memory = provider.allocate(4096);
    check_status(strata_onnx_unbind(), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "has not freed 1 blocks");
    provider.deallocate(memory);
    check_ok(strata_onnx_unbind());
    check_ok(strata_onnx_unbind());
    bind(fixture, other);
    check_ok(strata_onnx_unbind());
}

static void *allocate_and_free(void *data)
{
    for (int i = 0; i < 200; i++)
        provider.deallocate(provider.allocate(4096));
    return data;
}

/* The thread sanitizer reports where a second binding changes what the functions read. */
static void a_second_session_is_bound_while_the_first_one_works(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_onnx_functions functions;
    pthread_t thread;
    bind(fixture, stream);
    assert_int_equal(pthread_create(&thread, NULL, allocate_and_free, NULL), 0);
    strata_status status = STRATA_SUCCESS;
    for (int i = 0; i < 200 && status == STRATA_SUCCESS; i++)
        status = strata_onnx_bind(fixture->runtime, stream, &functions);
    pthread_join(thread, NULL);
    check_ok(status);
    check_ok(strata_onnx_unbind());
}

/* A session that outlives the binding gets an answer, not a crash. */
static void functions_that_are_not_bound_say_so(test_fixture *fixture)
{
    bind(fixture, NULL);
    check_ok(strata_onnx_unbind());
    assert_null(provider.allocate(4096));
    check_last_error(STRATA_ERROR_INVALID_VALUE, "call strata_onnx_bind before");
    provider.deallocate((void *)(uintptr_t)0x1000);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "gpu_external_free");
    provider.empty_cache();
}

static void what_cannot_be_bound_is_refused(test_fixture *fixture)
{
    strata_onnx_functions functions;
    memset(&functions, 0x7f, sizeof functions);
    check_status(strata_onnx_bind(fixture->runtime, CU_STREAM_PER_THREAD, &functions), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "CU_STREAM_PER_THREAD");
    assert_null(functions.allocate);
    check_status(strata_onnx_bind(fixture->runtime, STRATA_STREAM_GONE, &functions), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_onnx_bind(NULL, NULL, &functions), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_onnx_bind(fixture->runtime, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
}

/* ---- the allocator ---- */

struct OrtMemoryInfo {
    int unused;
};
struct OrtSyncStream {
    CUstream handle;
};
struct OrtKeyValuePairs {
    char keys[8][32], values[8][24];
    size_t count;
};

static struct OrtMemoryInfo memory_info;
static struct OrtKeyValuePairs pairs;

static void *stream_handle(struct OrtSyncStream *stream)
{
    return stream->handle;
}

static void create_pairs(struct OrtKeyValuePairs **out)
{
    memset(&pairs, 0, sizeof pairs);
    *out = &pairs;
}

static void add_pair(struct OrtKeyValuePairs *to, const char *key, const char *value)
{
    assert_true(to->count < 8);
    strncpy(to->keys[to->count], key, sizeof to->keys[0] - 1);
    strncpy(to->values[to->count++], value, sizeof to->values[0] - 1);
}

static unsigned long long value_for(const char *key)
{
    for (size_t i = 0; i < pairs.count; i++)
        if (strcmp(pairs.keys[i], key) == 0)
            return strtoull(pairs.values[i], NULL, 10);
    fail_msg("no %s", key);
    return 0;
}

static strata_onnx_options options_for(CUstream stream)
{
    return (strata_onnx_options){.size = sizeof(strata_onnx_options),
                                 .api_version = 99,
                                 .info = &memory_info,
                                 .stream = stream,
                                 .stream_handle = stream_handle,
                                 .create_pairs = create_pairs,
                                 .add_pair = add_pair};
}

static strata_onnx_ort_allocator *make(test_fixture *fixture, const strata_onnx_options *options)
{
    check_ok(strata_onnx_allocator_create(fixture->runtime, options, &allocator));
    return strata_onnx_allocator_get(allocator);
}

static void destroy_allocator(void)
{
    check_ok(strata_onnx_allocator_destroy(allocator));
    allocator = NULL;
}

static void an_allocator_serves_by_its_own_stream_and_by_one_that_is_given(test_fixture *fixture)
{
    CUstream own = test_stream(fixture, TEST_STREAM_UNKNOWN);
    struct OrtSyncStream given = {test_stream(fixture, TEST_STREAM_UNKNOWN)};
    const strata_onnx_options options = options_for(own);
    strata_onnx_ort_allocator *ort = make(fixture, &options);
    assert_int_equal(ort->version, STRATA_ONNX_API_VERSION);
    assert_ptr_equal(ort->info(ort), &memory_info);
    void *memory[] = {ort->alloc(ort, 1000), ort->reserve(ort, 2000), ort->alloc_on_stream(ort, 3000, &given),
                      ort->alloc_on_stream(ort, 4000, NULL)};
    for (size_t i = 0; i < 4; i++) {
        strata_block block;
        check_ok(strata_runtime_find(fixture->runtime, address_of(memory[i]), &block));
        assert_int_equal(block.requested, (i + 1) * 1000);
        assert_ptr_equal(block.stream, i == 2 ? given.handle : own);
        test_fill(block.address, (unsigned char)(0x40 + i), block.requested, block.stream);
    }
    check_status(strata_onnx_allocator_destroy(allocator), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "has not freed 4 blocks");
    for (size_t i = 0; i < 4; i++)
        ort->free(ort, memory[i]); /* in the order of the stream of each */
    ort->free(ort, NULL);
    assert_int_equal(test_usage(fixture).live_bytes, 0);
    assert_null(ort->alloc(ort, (size_t)1 << 50));
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "");
    destroy_allocator();
}

static void its_statistics_have_onnx_runtimes_keys(test_fixture *fixture)
{
    const strata_onnx_options options = options_for(test_stream(fixture, TEST_STREAM_POOL));
    strata_onnx_ort_allocator *ort = make(fixture, &options);
    struct OrtKeyValuePairs *out = NULL;
    void *memory = ort->alloc(ort, MIB);
    assert_null(ort->get_stats(ort, &out));
    assert_ptr_equal(out, &pairs);
    assert_int_equal(value_for("InUse"), test_usage(fixture).live_bytes);
    assert_int_equal(value_for("TotalAllocated"), test_usage(fixture).reserved_bytes);
    assert_true(value_for("MaxInUse") >= MIB);
    assert_int_equal(value_for("NumAllocs"), 1);
    ort->free(ort, memory);
    assert_null(ort->shrink(ort));
    if (test_owner_is(fixture, "pool"))
        assert_int_equal(test_usage(fixture).reserved_bytes, 0);
    destroy_allocator();
}

/* ONNX Runtime takes a NULL for a function that the allocator does not have. */
static void what_needs_onnx_runtimes_functions_is_absent_without_them(test_fixture *fixture)
{
    const strata_onnx_options options = {.size = sizeof options, .api_version = 18, .info = &memory_info};
    strata_onnx_ort_allocator *ort = make(fixture, &options);
    assert_int_equal(ort->version, 18);
    assert_null(ort->alloc_on_stream);
    assert_null(ort->get_stats);
    ort->free(ort, ort->alloc(ort, 512));
    destroy_allocator();
}

static void what_cannot_be_an_allocator_is_refused(test_fixture *fixture)
{
    strata_onnx_options options = options_for(NULL);
    options.info = NULL;
    check_status(strata_onnx_allocator_create(fixture->runtime, &options, &allocator), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "info is NULL");
    options = options_for(NULL);
    options.api_version = 0;
    check_status(strata_onnx_allocator_create(fixture->runtime, &options, &allocator), STRATA_ERROR_INVALID_VALUE);
    options = options_for(NULL);
    options.add_pair = NULL;
    check_status(strata_onnx_allocator_create(fixture->runtime, &options, &allocator), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "set both, or none");
    options = options_for(CU_STREAM_PER_THREAD);
    check_status(strata_onnx_allocator_create(fixture->runtime, &options, &allocator), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_onnx_allocator_create(fixture->runtime, NULL, &allocator), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_onnx_allocator_create(fixture->runtime, &options, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_null(allocator);
    assert_null(strata_onnx_allocator_get(NULL));
    check_ok(strata_onnx_allocator_destroy(NULL));
}

static void a_forked_child_ends_nothing(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const strata_onnx_options options = options_for(stream);
    int status;
    bind(fixture, stream);
    make(fixture, &options);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const strata_status unbound = strata_onnx_unbind(), destroyed = strata_onnx_allocator_destroy(allocator);
        test_child_leave(unbound == STRATA_ERROR_FORKED && destroyed == STRATA_ERROR_FORKED ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    destroy_allocator();
    check_ok(strata_onnx_unbind());
}

int main(void)
{
    static const char *const stacks[] = {"pool(decay=0)", "async"};
    static const test_case cases[] = {
        TEST_CASE(the_functions_behind_the_texts_serve_the_provider),
        TEST_CASE(any_thread_frees_while_work_is_under_way),
        TEST_CASE(a_request_that_cannot_be_served_is_null_and_an_error_record),
        TEST_CASE(a_process_has_one_binding),
        TEST_CASE(a_second_session_is_bound_while_the_first_one_works),
        TEST_CASE(functions_that_are_not_bound_say_so),
        TEST_CASE(what_cannot_be_bound_is_refused),
        TEST_CASE(an_allocator_serves_by_its_own_stream_and_by_one_that_is_given),
        TEST_CASE(its_statistics_have_onnx_runtimes_keys),
        TEST_CASE(what_needs_onnx_runtimes_functions_is_absent_without_them),
        TEST_CASE(what_cannot_be_an_allocator_is_refused),
        TEST_CASE(a_forked_child_ends_nothing),
    };
    test_before_clearing = unbind;
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
