/* Resets of the primary context that no call had failed for, after another module has begun it anew: what a call does
 * with handles that the driver gave before. The driver may crash on them, or take them for new objects, so that no such
 * call reaches it. Each call is made in a process of its own. */
#include "support/child.h"
#include "support/driver.h"

#include "core/streams/known_streams.h"
#include "core/streams/timeline.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 1 << 20, SMALL = 4096 };

/* ---- what there was before ---- */

typedef struct scene {
    strata_runtime *runtime;
    CUstream stream, other; /* the runtime's own */
    strata_block block;     /* of `stream` */
    strata_fence *fence;
    strata_graph *graph;
    strata_graphed *graphed;
    strata_scalar *scalar;
    strata_blas *blas;
    strata_pinned_pool *pool;
    strata_capture_pool *captured;
} scene;

static scene all;

static void make_fence(void)
{
    child_ok(strata_fence_create(all.runtime, &all.fence));
    child_ok(strata_fence_record(all.fence, all.stream));
}

static void begin_capture(void)
{
    child_ok(strata_capture_begin(all.runtime, all.stream, STRATA_CAPTURE_GLOBAL, NULL));
}

/* Without blocks: nothing else asks about the device at a launch. */
static void make_graph(void)
{
    begin_capture();
    child_ok(strata_capture_end(all.runtime, all.stream, &all.graph));
}

static strata_status do_nothing(strata_runtime *runtime, CUstream stream, const strata_block *inputs,
                                const strata_block *outputs, void *data)
{
    (void)runtime;
    (void)stream;
    (void)inputs;
    (void)outputs;
    (void)data;
    return STRATA_SUCCESS;
}

static void make_graphed(void)
{
    const size_t bytes = BYTES;
    const strata_graphed_options options = {
        .size = sizeof options, .body = do_nothing, .input_bytes = &bytes, .input_count = 1};
    child_ok(strata_graphed_create(all.runtime, all.stream, &options, &all.graphed));
}

static void make_scalar(void)
{
    child_ok(strata_scalar_create(all.runtime, STRATA_ELEMENT_U32, NULL, all.stream, &all.scalar));
}

static void make_blas(void)
{
    const strata_status status = strata_blas_create(all.runtime, all.stream, NULL, &all.blas);
    if (status == STRATA_ERROR_UNSUPPORTED)
        exit(77);
    child_ok(status);
}

/* With one buffer, which waits for the stream. */
static void make_pinned_pool(void)
{
    strata_pinned_buffer *buffer;
    child_ok(strata_pinned_pool_create(all.runtime, &(strata_pinned_pool_options){.most = 1}, &all.pool));
    child_ok(strata_pinned_pool_acquire(all.pool, SMALL, 0, &buffer));
    child_ok(strata_pinned_buffer_release_after(buffer, all.stream));
}

/* Without buffers, whose frees would ask about the device. */
static void make_empty_pinned_pool(void)
{
    child_ok(strata_pinned_pool_create(all.runtime, NULL, &all.pool));
    child_ok(strata_pinned_pool_bump(all.pool));
}

/* With memory, and so with a stream of its own. */
static void make_capture_pool(void)
{
    strata_block block;
    child_ok(strata_capture_pool_create(all.runtime, "graphs", &all.captured));
    child_ok(strata_capture_begin(all.runtime, all.stream, STRATA_CAPTURE_GLOBAL, all.captured));
    child_ok(strata_runtime_allocate(all.runtime, SMALL, all.stream, &block));
    child_ok(strata_runtime_deallocate(all.runtime, &block));
    child_ok(strata_capture_discard(all.runtime, all.stream));
}

/* ---- calls after the reset ---- */

static strata_status synchronize(void)
{
    return strata_runtime_stream_synchronize(all.runtime, all.stream);
}

static strata_status synchronize_legacy(void)
{
    return strata_runtime_stream_synchronize(all.runtime, NULL);
}

static strata_status deallocate(void)
{
    return strata_runtime_deallocate_on(all.runtime, &all.block, all.stream);
}

static strata_status allocate(void)
{
    strata_block block;
    return strata_runtime_allocate(all.runtime, SMALL, all.stream, &block);
}

/* The block's stream is gone, and its work is complete. */
static void release_stream(void)
{
    child_ok(strata_runtime_reap_pending(all.runtime));
    child_ok(strata_runtime_stream_release(all.runtime, all.stream));
}

static strata_status deallocate_alone(void)
{
    return strata_runtime_deallocate(all.runtime, &all.block);
}

static strata_status sample(void)
{
    strata_block block;
    return strata_runtime_allocate(all.runtime, SMALL, all.stream, &block);
}

static strata_status allocate_zeros(void)
{
    strata_ref *ref;
    return strata_ref_allocate(all.runtime, STRATA_ELEMENT_U8, SMALL, true, all.stream, &ref);
}

static strata_status record_fence(void)
{
    return strata_fence_record(all.fence, NULL);
}

static strata_status query_fence(void)
{
    return strata_fence_query(all.fence);
}

static strata_status wait_for_fence(void)
{
    return strata_fence_synchronize(all.fence);
}

static strata_status launch_graph(void)
{
    return strata_graph_launch(all.graph, all.other);
}

static strata_status upload_graph(void)
{
    return strata_graph_upload(all.graph, all.other);
}

static strata_status destroy_graph(void)
{
    return strata_graph_destroy(all.graph);
}

static strata_status call_graphed(void)
{
    return strata_graphed_call(all.graphed, all.stream, &all.block, NULL);
}

static strata_status allocate_in_capture(void)
{
    strata_block block;
    return strata_runtime_allocate(all.runtime, SMALL, all.stream, &block);
}

static strata_status ask_for_capture(void)
{
    strata_capture_state state;
    return strata_capture_status(all.runtime, all.stream, &state);
}

static strata_status end_capture(void)
{
    return strata_capture_end(all.runtime, all.stream, &all.graph);
}

static strata_status discard_capture(void)
{
    return strata_capture_discard(all.runtime, all.stream);
}

static strata_status release_captured_stream(void)
{
    return strata_runtime_stream_release(all.runtime, all.stream);
}

static strata_status set_scalar(void)
{
    return strata_scalar_set(all.scalar, &(uint32_t){1}, all.stream);
}

static strata_status call_blas(void)
{
    double value;
    const strata_blas_operand x = {.block = &all.block, .type = STRATA_ELEMENT_F32};
    return strata_blas_nrm2_value(all.blas, SMALL, &x, all.stream, &value);
}

static strata_status call_blas_on_the_device(void)
{
    const strata_blas_operand x = {.block = &all.block, .type = STRATA_ELEMENT_F32};
    return strata_blas_scal(all.blas, SMALL, 2.0, &x, all.stream);
}

static strata_status destroy_blas(void)
{
    return strata_blas_destroy(all.blas);
}

static strata_status acquire_buffer(void)
{
    enum { TIMEOUT_NS = 1000000000 };
    strata_pinned_buffer *buffer;
    return strata_pinned_pool_acquire(all.pool, SMALL, TIMEOUT_NS, &buffer);
}

static strata_status destroy_pinned_pool(void)
{
    return strata_pinned_pool_destroy(all.pool);
}

static strata_status release_capture_pool(void)
{
    return strata_capture_pool_release(all.captured);
}

typedef struct tried {
    const char *name, *stack;
    void (*before)(void);
    strata_status (*call)(void);
    strata_status expected;
} tried;

static const tried calls[] = {
    {"a wait for a stream", "pool", NULL, synchronize, STRATA_ERROR_DEVICE_RESET},
    {"a wait for the legacy stream", "pool", NULL, synchronize_legacy, STRATA_ERROR_DEVICE_RESET},
    {"a free that waits", "direct", NULL, deallocate, STRATA_SUCCESS},
    {"a request of async", "async", NULL, allocate, STRATA_ERROR_DEVICE_RESET},
    {"a free of async", "async", NULL, deallocate, STRATA_SUCCESS},
    {"a free of async whose stream is gone", "async", release_stream, deallocate_alone, STRATA_SUCCESS},
    {"a sampled request", "guard(sample=1), direct", NULL, sample, STRATA_ERROR_DEVICE_RESET},
    {"zeroed memory", "pool", NULL, allocate_zeros, STRATA_ERROR_DEVICE_RESET},
    {"a fence's record", "pool", make_fence, record_fence, STRATA_ERROR_DEVICE_RESET},
    {"a fence's query", "pool", make_fence, query_fence, STRATA_ERROR_DEVICE_RESET},
    {"a wait for a fence", "pool", make_fence, wait_for_fence, STRATA_ERROR_DEVICE_RESET},
    {"a graph's launch", "pool", make_graph, launch_graph, STRATA_ERROR_STALE},
    {"a graph's upload", "pool", make_graph, upload_graph, STRATA_ERROR_STALE},
    {"a graph's end", "pool", make_graph, destroy_graph, STRATA_SUCCESS},
    {"a call of a graphed function", "pool", make_graphed, call_graphed, STRATA_ERROR_DEVICE_RESET},
    {"a request in a capture", "pool", begin_capture, allocate_in_capture, STRATA_ERROR_DEVICE_RESET},
    {"a question about a capture", "pool", NULL, ask_for_capture, STRATA_ERROR_DEVICE_RESET},
    {"a capture's end", "pool", begin_capture, end_capture, STRATA_ERROR_DEVICE_RESET},
    {"a capture that is given up", "pool", begin_capture, discard_capture, STRATA_SUCCESS},
    {"a captured stream's release", "pool", begin_capture, release_captured_stream, STRATA_SUCCESS},
    {"a scalar's value", "pool", make_scalar, set_scalar, STRATA_ERROR_STALE},
    {"a call of cuBLAS", "pool", make_blas, call_blas, STRATA_ERROR_DEVICE_RESET},
    {"a call of cuBLAS without a result", "pool", make_blas, call_blas_on_the_device, STRATA_ERROR_DEVICE_RESET},
    {"a BLAS handle's end", "pool", make_blas, destroy_blas, STRATA_SUCCESS},
    {"a request of a pinned pool", "pinned", make_pinned_pool, acquire_buffer, STRATA_ERROR_DEVICE_RESET},
    {"a pinned pool's end", "pinned", make_pinned_pool, destroy_pinned_pool, STRATA_SUCCESS},
    {"a capture pool's end", "pool", make_capture_pool, release_capture_pool, STRATA_SUCCESS},
    {"the end of a pinned pool without buffers", "pinned", make_empty_pinned_pool, destroy_pinned_pool, STRATA_SUCCESS},
};

/* ---- the test ---- */

/* Of those that name no stream, event, function or graph. */
static bool is_question(const char *name)
{
    static const char *const questions[] = {"cuCtxGetId",       "cuDevicePrimaryCtxGetState",
                                            "cuCtxGetCurrent",  "cuCtxSetCurrent",
                                            "cuDeviceGetCount", "cuThreadExchangeStreamCaptureMode"};
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++)
        if (strcmp(name, questions[i]) == 0)
            return true;
    return false;
}

static void count(const char *name, uint64_t times, void *data)
{
    *(uint64_t *)data += is_question(name) ? 0 : times;
}

static uint64_t calls_so_far(void)
{
    uint64_t times = 0;
    strata_driver_visit_calls(count, &times);
    return times;
}

static void child_makes_the_call(void)
{
    const tried *one = &calls[strtoul(getenv("TEST_CALL"), NULL, 10)];
    CUcontext context;
    child_ok(strata_driver_count_calls());
    test_open_driver_quietly();
    test_make_current();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = one->stack}, &all.runtime));
    child_ok(strata_runtime_stream_acquire(all.runtime, &all.stream));
    child_ok(strata_runtime_stream_acquire(all.runtime, &all.other));
    child_ok(strata_runtime_allocate(all.runtime, BYTES, all.stream, &all.block));
    if (one->before)
        one->before();
    child_check(strata_cu.DevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
    if (strcmp(one->stack, "async") == 0)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* no driver begins a context in a few milliseconds */
    const uint64_t before = calls_so_far();
    child_status(one->call(), one->expected);
    child_check(calls_so_far() == before);
    child_status(strata_device_check(0), STRATA_ERROR_DEVICE_RESET);
    test_child_leave(0); /* the host memory of a cuBLAS handle is lost: the library would call the driver to end it */
}

/* ---- two devices ---- */

static void count_records(const char *name, uint64_t times, void *data)
{
    *(uint64_t *)data += strcmp(name, "cuEventRecord") == 0 ? times : 0;
}

static uint64_t records_so_far(void)
{
    uint64_t times = 0;
    strata_driver_visit_calls(count_records, &times);
    return times;
}

/* A runtime of each of two devices, with this stack on the first one. Returns the second one's. */
static strata_runtime *open_both(const char *stack)
{
    strata_runtime *second;
    child_ok(strata_driver_count_calls());
    test_open_driver_quietly();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stack}, &all.runtime));
    child_ok(strata_runtime_create(&(strata_runtime_config){.device = 1, .stack_text = "pool"}, &second));
    return second;
}

/* And a stream of each: all.other of the first device, all.stream of the second one. */
static strata_runtime *open_both_with_streams(const char *stack)
{
    strata_runtime *second = open_both(stack);
    child_ok(strata_runtime_stream_acquire(all.runtime, &all.other));
    child_ok(strata_runtime_stream_acquire(second, &all.stream));
    return second;
}

/* Another module begins the context anew, which is returned. */
static CUcontext reset_second(void)
{
    CUcontext context;
    child_check(strata_cu.DevicePrimaryCtxReset(1) == CUDA_SUCCESS);
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 1) == CUDA_SUCCESS);
    return context;
}

/* A stream of the device that was reset, used with another one: its event is looked for with each device, and one of
 * before may be the program's now. */
static void child_records_no_event_of_the_device_that_was_reset(void)
{
    strata_fence *fence;
    strata_block block;
    CUstream stream;
    strata_runtime *second = open_both("pool");
    child_ok(strata_fence_create(second, &fence));
    child_ok(strata_fence_destroy(fence)); /* the device keeps its event */
    child_check(strata_cu.CtxSetCurrent(reset_second()) == CUDA_SUCCESS);
    child_check(strata_cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    const uint64_t before = records_so_far();
    child_ok(strata_runtime_allocate(all.runtime, SMALL, stream, &block));
    child_check(records_so_far() - before == 1); /* of the first device, which is refused */
    child_ok(strata_runtime_deallocate_on(all.runtime, &block, stream));
    child_ok(strata_device_check(0));
    child_status(strata_device_check(1), STRATA_ERROR_DEVICE_RESET);
}

/* The runtime and the block are of the first device, the stream of the second one, whose context was reset. */
static strata_status prepare_there(void)
{
    return strata_runtime_prepare_block_use(all.runtime, &all.block, all.stream, STRATA_ACCESS_READ);
}

static strata_status free_there(void)
{
    return strata_runtime_deallocate_on(all.runtime, &all.block, all.stream);
}

static void use_there(void)
{
    child_ok(prepare_there());
    child_ok(strata_runtime_finish_block_use(all.runtime, &all.block, all.stream, STRATA_ACCESS_READ));
}

static strata_status free_here(void)
{
    return strata_runtime_deallocate(all.runtime, &all.block);
}

static strata_status write_here(void)
{
    return strata_runtime_prepare_block_use(all.runtime, &all.block, all.other, STRATA_ACCESS_WRITE);
}

static const tried calls_between[] = {
    {"a use on a stream of a device that was reset", "pool", NULL, prepare_there, STRATA_ERROR_DEVICE_RESET},
    {"a wait for one", "pool", NULL, synchronize, STRATA_ERROR_DEVICE_RESET},
    {"a free on one", "direct", NULL, free_there, STRATA_SUCCESS},
    {"a free after a use on one", "direct", use_there, free_here, STRATA_SUCCESS},
    {"a use after one there", "pool", use_there, write_here, STRATA_SUCCESS},
};

static void count_uses_of_streams(const char *name, uint64_t times, void *data)
{
    static const char *const uses[] = {
        "cuStreamWaitEvent", "cuStreamSynchronize",     "cuStreamQuery",      "cuStreamIsCapturing", "cuStreamGetId",
        "cuMemFreeAsync",    "cuMemAllocFromPoolAsync", "cuMemPrefetchAsync", "cuLaunchKernel",      "cuMemsetD8Async",
        "cuMemsetD32Async",  "cuMemcpyDtoHAsync",       "cuMemcpyHtoDAsync"};
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++)
        *(uint64_t *)data += strcmp(name, uses[i]) == 0 ? times : 0;
}

static uint64_t uses_of_streams_so_far(void)
{
    uint64_t times = 0;
    strata_driver_visit_calls(count_uses_of_streams, &times);
    return times;
}

static size_t free_bytes_of_first(void)
{
    size_t free_bytes, total;
    test_make_current();
    child_check(strata_cu.MemGetInfo(&free_bytes, &total) == CUDA_SUCCESS);
    return free_bytes;
}

/* The stream is given to no call of the driver, and memory of the other device goes on. */
static void child_names_a_stream_of_the_device_that_was_reset(void)
{
    const tried *one = &calls_between[strtoul(getenv("TEST_CALL"), NULL, 10)];
    open_both_with_streams(one->stack);
    const size_t free_bytes = free_bytes_of_first();
    child_ok(strata_runtime_allocate(all.runtime, BYTES, all.other, &all.block));
    if (one->before)
        one->before();
    reset_second();
    const uint64_t before = uses_of_streams_so_far();
    child_status(one->call(), one->expected);
    if (strcmp(one->stack, "direct") == 0)
        child_check(free_bytes_of_first() == free_bytes);
    if (one->call != free_here) /* which waits for the block's own stream */
        child_check(uses_of_streams_so_far() == before);
    child_ok(strata_device_check(0));
    child_status(strata_device_check(1), STRATA_ERROR_DEVICE_RESET);
}

/* Of the first device, which a stream of the second one has used. */
static void child_goes_on_with_memory_that_was_used_there(void)
{
    const bool freed = strcmp(getenv("TEST_FREED"), "1") == 0;
    CUstream next;
    size_t bytes;
    strata_runtime *second = open_both_with_streams(getenv("TEST_STACK"));
    child_ok(strata_runtime_allocate(all.runtime, BYTES, all.other, &all.block));
    use_there();
    if (freed)
        child_ok(free_here());
    child_check(strata_cu.DevicePrimaryCtxReset(1) == CUDA_SUCCESS);
    child_ok(strata_runtime_stream_acquire(all.runtime, &next));
    if (!freed)
        child_ok(free_here());
    child_ok(strata_runtime_reap_pending(all.runtime));
    child_ok(strata_runtime_trim(all.runtime, 0, &bytes));
    child_ok(strata_runtime_allocate(all.runtime, BYTES, next, &all.block));
    child_ok(strata_runtime_deallocate(all.runtime, &all.block));
    child_ok(strata_runtime_stream_release(all.runtime, next));
    child_ok(strata_runtime_stream_release(all.runtime, all.other));
    child_ok(strata_runtime_destroy(all.runtime));
    child_status(strata_device_check(1), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_destroy(second));
}

static CUresult CUDAAPI refuse_to_identify(CUstream stream, unsigned long long *id)
{
    (void)stream;
    (void)id;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult CUDAAPI refuse_to_synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_UNKNOWN;
}

/* The stream may have been the second device's: its work, which no event covers, has ended with the reset. */
static void child_waits_for_no_work_that_a_reset_has_ended(void)
{
    CUstream stream;
    strata_runtime *second = open_both(getenv("TEST_STACK"));
    const bool seen = strcmp(getenv("TEST_SEEN"), "1") == 0;
    child_ok(strata_runtime_stream_acquire(all.runtime, &all.other));
    child_ok(strata_runtime_allocate(all.runtime, BYTES, all.other, &all.block));
    child_check(strata_cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    const strata_entry_table real = strata_cu;
    strata_cu.StreamGetId = refuse_to_identify;
    strata_cu.StreamSynchronize = refuse_to_synchronize;
    const strata_status status =
        strata_runtime_record_block_use(all.runtime, &all.block, stream, STRATA_ACCESS_READ_WRITE);
    strata_cu = real;
    child_status(status, STRATA_ERROR_DRIVER);
    reset_second();
    if (seen)
        child_status(strata_device_check(1), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_reap_pending(all.runtime));
    child_ok(free_here());
    child_ok(strata_runtime_reap_pending(all.runtime));
    child_ok(strata_runtime_stream_release(all.runtime, all.other));
    child_ok(strata_runtime_destroy(all.runtime));
    child_ok(strata_runtime_destroy(second));
}

/* A free on a stream that has ended leaves no memory allocated. */
static void child_frees_on_a_stream_that_has_ended_there(void)
{
    strata_usage usage;
    size_t bytes;
    strata_runtime *second = open_both_with_streams(getenv("TEST_STACK"));
    child_ok(strata_runtime_allocate(all.runtime, BYTES, all.other, &all.block));
    reset_second();
    if (strcmp(getenv("TEST_SEEN"), "1") == 0)
        child_status(strata_device_check(1), STRATA_ERROR_DEVICE_RESET);
    child_ok(free_there());
    child_ok(strata_runtime_reap_pending(all.runtime));
    child_check(strata_runtime_bytes_outstanding(all.runtime) == 0);
    child_ok(strata_runtime_trim(all.runtime, 0, &bytes));
    child_ok(strata_runtime_usage(all.runtime, &usage));
    child_check(usage.live_blocks == 0 && usage.reserved_bytes == 0);
    child_ok(strata_runtime_stream_release(all.runtime, all.other));
    child_ok(strata_runtime_destroy(all.runtime));
    child_status(strata_device_check(1), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_destroy(second));
}

/* The first device's memory, requested on a stream of the second one. */
static void child_frees_what_was_requested_on_a_stream_that_has_ended_there(void)
{
    strata_block refused;
    size_t bytes;
    open_both_with_streams(getenv("TEST_STACK"));
    child_ok(strata_runtime_allocate(all.runtime, BYTES, all.stream, &all.block));
    reset_second();
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* as in child_makes_the_call */
    const uint64_t before = uses_of_streams_so_far();
    if (strcmp(getenv("TEST_STACK"), "async") == 0)
        child_status(strata_runtime_allocate(all.runtime, BYTES, all.stream, &refused), STRATA_ERROR_DEVICE_RESET);
    child_check(uses_of_streams_so_far() == before);
    child_ok(strata_runtime_deallocate(all.runtime, &all.block));
    child_ok(strata_runtime_reap_pending(all.runtime));
    child_check(strata_runtime_bytes_outstanding(all.runtime) == 0);
    child_ok(strata_runtime_trim(all.runtime, 0, &bytes));
    child_ok(strata_runtime_stream_release(all.runtime, all.other));
    child_ok(strata_runtime_destroy(all.runtime));
}

/* Memory of the first device. What a layer does to a new block by the way is left out. */
static void child_requests_on_a_stream_that_has_ended_there(void)
{
    strata_block block;
    open_both_with_streams(getenv("TEST_STACK"));
    child_ok(strata_runtime_allocate(all.runtime, SMALL, all.other, &all.block));
    child_ok(strata_runtime_allocate(all.runtime, SMALL, all.stream, &block));
    child_ok(strata_runtime_deallocate(all.runtime, &block));
    child_ok(strata_runtime_reap_pending(all.runtime));
    reset_second();
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* as in child_makes_the_call */
    const uint64_t before = uses_of_streams_so_far();
    const strata_status status = strata_runtime_allocate(all.runtime, SMALL, all.stream, &block);
    child_check(uses_of_streams_so_far() == before);
    if (status == STRATA_SUCCESS)
        child_ok(strata_runtime_deallocate(all.runtime, &block));
    else
        child_status(status, STRATA_ERROR_DEVICE_RESET);
    child_status(prepare_there(), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_deallocate(all.runtime, &all.block));
}

/* The driver gives handles out again. */
static void child_makes_streams_by_handles_that_have_ended(void)
{
    enum { STREAMS = 16 };
    CUstream streams[STREAMS];
    strata_runtime *second = open_both("pool");
    for (size_t i = 0; i < STREAMS; i++)
        child_ok(strata_runtime_stream_acquire(second, &streams[i]));
    reset_second();
    for (size_t i = 0; i < STREAMS; i++) {
        child_ok(strata_runtime_stream_acquire(all.runtime, &streams[i]));
        child_ok(strata_runtime_allocate(all.runtime, BYTES, streams[i], &all.block));
        child_ok(strata_runtime_deallocate(all.runtime, &all.block));
    }
    for (size_t i = 0; i < STREAMS; i++)
        child_ok(strata_runtime_stream_release(all.runtime, streams[i]));
    child_ok(strata_runtime_destroy(all.runtime));
    child_status(strata_device_check(1), STRATA_ERROR_DEVICE_RESET);
    child_ok(strata_runtime_destroy(second));
}

static void count_uses_of_events(const char *name, uint64_t times, void *data)
{
    static const char *const uses[] = {"cuEventQuery", "cuEventSynchronize", "cuEventRecord"};
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++)
        *(uint64_t *)data += strcmp(name, uses[i]) == 0 ? times : 0;
}

/* TEST_CALL: how the point is asked for. No layer asks about the device before. */
static void child_asks_a_point_of_before(void)
{
    const char *how = getenv("TEST_CALL");
    CUcontext context;
    CUstream stream;
    uint64_t before = 0, after = 0;
    child_ok(strata_driver_count_calls());
    test_open_driver_quietly();
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &all.runtime));
    child_ok(strata_runtime_stream_acquire(all.runtime, &stream));
    const strata_timeline *timeline = strata_known_timeline(all.runtime->device, stream);
    if (!timeline)
        exit(1);
    const strata_point point = strata_timeline_now(timeline);
    if (*how != 'r')
        child_ok(strata_timeline_close_epoch(point));
    child_check(strata_cu.DevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
    strata_driver_visit_calls(count_uses_of_events, &before);
    if (*how == 'q')
        child_check(!strata_point_query(point));
    else
        child_status(*how == 's' ? strata_point_synchronize(point) : strata_timeline_close_epoch(point),
                     STRATA_ERROR_DEVICE_RESET);
    strata_driver_visit_calls(count_uses_of_events, &after);
    child_check(after == before);
}

static void a_point_of_before_is_asked_of_no_event(void **state)
{
    (void)state;
    static const char *const ways[] = {"TEST_CALL=query", "TEST_CALL=synchronize", "TEST_CALL=record"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        test_child_run("child_asks_a_point_of_before", (const char *const[]){ways[i], NULL});
}

static void a_stream_of_another_device_gets_no_event_of_before(void **state)
{
    (void)state;
    test_child_run("child_records_no_event_of_the_device_that_was_reset",
                   (const char *const[]){"STRATA_DRIVER=sim", "STRATA_SIM_DEVICES=2", NULL});
}

static void no_call_names_a_stream_of_another_device_that_was_reset(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof calls_between / sizeof calls_between[0]; i++) {
        char call[32];
        snprintf(call, sizeof call, "TEST_CALL=%zu", i);
        printf("%s\n", calls_between[i].name);
        test_child_run("child_names_a_stream_of_the_device_that_was_reset",
                       (const char *const[]){"STRATA_DRIVER=sim", "STRATA_SIM_DEVICES=2", call, NULL});
    }
}

static const char *const stacks[] = {"pool",
                                     "async",
                                     "direct",
                                     "managed",
                                     "pinned",
                                     "binning, pool",
                                     "binning, async",
                                     "binning, direct",
                                     "guard, pool",
                                     "guard, async",
                                     "guard(sample=1), pool",
                                     "pool, async",
                                     "pool, managed"};

static void run_on_stacks(const char *scenario, const char *variable)
{
    for (size_t i = 0; i < 2 * sizeof stacks / sizeof stacks[0]; i++) {
        char stack[64], value[32];
        snprintf(stack, sizeof stack, "TEST_STACK=%s", stacks[i / 2]);
        snprintf(value, sizeof value, "%s=%zu", variable, i % 2);
        printf("%s, %s\n", stack, value);
        test_child_run(scenario,
                       (const char *const[]){"STRATA_DRIVER=sim", "STRATA_SIM_DEVICES=2", stack, value, NULL});
    }
}

static void memory_that_another_device_has_used_goes_on_after_that_ones_reset(void **state)
{
    (void)state;
    run_on_stacks("child_goes_on_with_memory_that_was_used_there", "TEST_FREED");
}

static void work_without_an_event_is_over_after_its_devices_reset(void **state)
{
    (void)state;
    run_on_stacks("child_waits_for_no_work_that_a_reset_has_ended", "TEST_SEEN");
}

static void a_free_on_a_stream_that_another_devices_reset_has_ended_frees(void **state)
{
    (void)state;
    run_on_stacks("child_frees_on_a_stream_that_has_ended_there", "TEST_SEEN");
}

/* A guard writes to a new block on its stream. */
static void what_was_requested_on_a_stream_that_another_devices_reset_has_ended_is_freed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        char stack[64];
        if (strncmp(stacks[i], "guard, ", 7) == 0)
            continue;
        snprintf(stack, sizeof stack, "TEST_STACK=%s", stacks[i]);
        printf("%s\n", stack);
        test_child_run("child_frees_what_was_requested_on_a_stream_that_has_ended_there",
                       (const char *const[]){"STRATA_DRIVER=sim", "STRATA_SIM_DEVICES=2", stack, NULL});
    }
}

static void a_request_names_no_stream_that_another_devices_reset_has_ended(void **state)
{
    (void)state;
    static const char *const asked[] = {
        "prefetch, managed",      "prefetch, pool, managed", "guard(sample=1), pool",
        "guard(sample=1), async", "guard(sample=1), direct", "prefetch(on_use=on), managed",
        "binning, pool",          "binning, async",          "binning, direct"};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        char stack[64];
        snprintf(stack, sizeof stack, "TEST_STACK=%s", asked[i]);
        printf("%s\n", stack);
        test_child_run("child_requests_on_a_stream_that_has_ended_there",
                       (const char *const[]){"STRATA_DRIVER=sim", "STRATA_SIM_DEVICES=2", stack, NULL});
    }
}

static void a_stream_is_made_by_the_handle_of_one_that_another_devices_reset_has_ended(void **state)
{
    (void)state;
    test_child_run("child_makes_streams_by_handles_that_have_ended",
                   (const char *const[]){"STRATA_DRIVER=sim", "STRATA_SIM_DEVICES=2", NULL});
}

static void make_calls(bool of_blas)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        char call[32];
        if ((calls[i].before == make_blas) != of_blas)
            continue;
        snprintf(call, sizeof call, "TEST_CALL=%zu", i);
        printf("%s\n", calls[i].name);
        test_child_run("child_makes_the_call", (const char *const[]){call, NULL});
    }
}

static void no_call_gives_the_driver_what_a_reset_has_ended(void **state)
{
    (void)state;
    make_calls(false);
}

static void no_call_gives_cublas_what_a_reset_has_ended(void **state)
{
    (void)state;
    make_calls(true);
}

int main(int argument_count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(child_makes_the_call),
        TEST_SCENARIO(child_records_no_event_of_the_device_that_was_reset),
        TEST_SCENARIO(child_names_a_stream_of_the_device_that_was_reset),
        TEST_SCENARIO(child_requests_on_a_stream_that_has_ended_there),
        TEST_SCENARIO(child_makes_streams_by_handles_that_have_ended),
        TEST_SCENARIO(child_frees_on_a_stream_that_has_ended_there),
        TEST_SCENARIO(child_frees_what_was_requested_on_a_stream_that_has_ended_there),
        TEST_SCENARIO(child_goes_on_with_memory_that_was_used_there),
        TEST_SCENARIO(child_asks_a_point_of_before),
        TEST_SCENARIO(child_waits_for_no_work_that_a_reset_has_ended),
    };
    test_child_begin(argument_count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_call_gives_the_driver_what_a_reset_has_ended),
        cmocka_unit_test(no_call_gives_cublas_what_a_reset_has_ended),
        cmocka_unit_test(a_stream_of_another_device_gets_no_event_of_before),
        cmocka_unit_test(no_call_names_a_stream_of_another_device_that_was_reset),
        cmocka_unit_test(a_request_names_no_stream_that_another_devices_reset_has_ended),
        cmocka_unit_test(a_stream_is_made_by_the_handle_of_one_that_another_devices_reset_has_ended),
        cmocka_unit_test(a_free_on_a_stream_that_another_devices_reset_has_ended_frees),
        cmocka_unit_test(what_was_requested_on_a_stream_that_another_devices_reset_has_ended_is_freed),
        cmocka_unit_test(memory_that_another_device_has_used_goes_on_after_that_ones_reset),
        cmocka_unit_test(a_point_of_before_is_asked_of_no_event),
        cmocka_unit_test(work_without_an_event_is_over_after_its_devices_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
