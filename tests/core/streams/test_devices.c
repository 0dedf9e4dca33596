/* Several devices in one process: a stream belongs to one of them, whichever asked about it first. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/streams/device_wait.h"
#include "runtime/any_stream_frees.h"
#include "runtime/references.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

enum { BYTES = 4096, USES = 12, FRESH = 100 };

static int device_count(void)
{
    strata_driver_info info;
    return strata_driver_get_info(&info) == STRATA_SUCCESS ? info.device_count : 0;
}

static void count_findings(const strata_error *error, void *data)
{
    (void)error;
    ++*(unsigned *)data;
}

/* The runtime of device 1 beside the fixture's of device 0, and a context to make streams in. */
typedef struct second_device {
    strata_runtime *runtime;
    CUcontext context;
    test_calls calls;
    unsigned findings;
} second_device;

static void second_begin(second_device *second, const test_fixture *fixture)
{
    second->findings = 0;
    check_ok(
        strata_runtime_create(&(strata_runtime_config){.device = 1, .stack_text = fixture->stack}, &second->runtime));
    check_cu(test_cu()->DevicePrimaryCtxRetain(&second->context, 1));
    check_cu(test_cu()->CtxSetCurrent(second->context));
}

static void second_end(second_device *second)
{
    check_ok(strata_runtime_destroy(second->runtime));
    check_cu(test_cu()->CtxSynchronize());
    check_cu(test_cu()->DevicePrimaryCtxRelease(1));
    test_make_current();
}

static CUstream make_stream(void)
{
    CUstream stream;
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void end_stream(CUstream stream)
{
    check_cu(test_cu()->StreamSynchronize(stream));
    check_cu(test_cu()->StreamDestroy(stream));
}

static void begin_watching(second_device *second)
{
    test_calls_begin(&second->calls);
    strata_set_log_callback(count_findings, &second->findings);
}

/* Nothing was waited for on the host, and nothing reported. */
static void check_went_smoothly(const second_device *second)
{
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(second->findings, 0);
    if (!test_is_swept()) /* a record that fails is made good by waiting */
        assert_int_equal(test_calls_of(&second->calls, "cuStreamSynchronize"), 0);
}

static void note_peer_use(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, block, stream, STRATA_ACCESS_READ));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, block, stream, STRATA_ACCESS_READ));
}

/* Work on a stream of device 1 reads a block of device 0: that runtime sees the stream first. */
static void a_stream_that_another_device_saw_first_is_marked_by_events_of_its_own(test_fixture *fixture)
{
    second_device second;
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block peers = test_allocate(fixture, BYTES, alloc_stream), block;
    second_begin(&second, fixture);
    CUstream stream = make_stream();
    begin_watching(&second);
    for (int i = 0; i < USES; i++)
        note_peer_use(fixture, &peers, stream);
    if (strcmp(fixture->stack, "direct") != 0) /* which waits on the host to free */
        for (int i = 0; i < USES; i++) {
            check_ok(strata_runtime_allocate(second.runtime, BYTES, stream, &block));
            check_ok(strata_runtime_deallocate_on(second.runtime, &block, stream));
        }
    check_went_smoothly(&second);
    end_stream(stream);
    test_free_on(fixture, &peers, alloc_stream);
    second_end(&second);
}

static void a_stream_that_another_device_saw_first_is_looked_for_on_the_others_once(test_fixture *fixture)
{
    second_device second;
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block peers = test_allocate(fixture, BYTES, alloc_stream);
    second_begin(&second, fixture);
    CUstream stream = make_stream();
    note_peer_use(fixture, &peers, stream);
    begin_watching(&second);
    for (int i = 0; i < USES; i++) { /* each after a use that was waited for */
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &peers, alloc_stream, STRATA_ACCESS_WRITE));
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &peers, alloc_stream, STRATA_ACCESS_NONE));
        note_peer_use(fixture, &peers, stream);
    }
    check_went_smoothly(&second);
    if (!test_is_swept()) /* a record that failed is tried on the others */
        assert_int_equal(test_calls_of(&second.calls, "cuEventRecord"), USES);
    end_stream(stream);
    test_free_on(fixture, &peers, alloc_stream);
    second_end(&second);
}

static void a_stream_that_another_device_saw_first_is_registered_and_ordered_like_any_other(test_fixture *fixture)
{
    second_device second;
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), reader;
    strata_block peers = test_allocate(fixture, BYTES, alloc_stream), block;
    second_begin(&second, fixture);
    CUstream stream = make_stream();
    for (int i = 0; i < USES; i++)
        note_peer_use(fixture, &peers, stream);
    check_ok(strata_runtime_register_stream(second.runtime, stream));
    check_ok(strata_runtime_stream_acquire(second.runtime, &reader));
    check_ok(strata_runtime_allocate(second.runtime, BYTES, stream, &block));
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_runtime_prepare_block_use(second.runtime, &block, stream, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x11, BYTES, stream);
    check_ok(strata_runtime_finish_block_use(second.runtime, &block, stream, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_prepare_block_use(second.runtime, &block, reader, STRATA_ACCESS_READ));
    const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, reader);
    check_ok(strata_runtime_finish_block_use(second.runtime, &block, reader, STRATA_ACCESS_READ));
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x11, BYTES);
    test_stall_end(stall);
    check_ok(strata_runtime_deallocate(second.runtime, &block));
    check_ok(strata_runtime_stream_release(second.runtime, reader));
    check_ok(strata_runtime_unregister_stream(second.runtime, stream));
    end_stream(stream);
    test_free_on(fixture, &peers, alloc_stream);
    second_end(&second);
}

static CUresult CUDAAPI refuse_to_synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* A block of device 0 is free once device 1 has been waited for: the runtime of either does it, no wait for device 0.
 */
static void work_that_is_left_on_a_stream_of_another_device_is_learnt_by_a_wait_for_that_one(test_fixture *fixture)
{
    for (int by_second = 0; by_second < 2; by_second++) {
        second_device second;
        strata_device *first_device;
        CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL);
        strata_block peers = test_allocate(fixture, BYTES, alloc_stream);
        second_begin(&second, fixture);
        CUstream stream = make_stream();
        note_peer_use(fixture, &peers, stream); /* twice: in a sweep one may be waited for instead of recorded */
        note_peer_use(fixture, &peers, stream);
        test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
        strata_cu.StreamSynchronize = refuse_to_synchronize;
        const strata_status status =
            strata_runtime_record_block_use(fixture->runtime, &peers, stream, STRATA_ACCESS_READ);
        assert_true(test_fault_end() > 0);
        assert_int_not_equal(status, STRATA_SUCCESS);
        end_stream(stream);
        check_ok(strata_device_get(0, &first_device));
        check_ok(strata_device_wait(first_device));
        check_status(strata_runtime_deallocate_on(fixture->runtime, &peers, alloc_stream), STRATA_ERROR_STREAM_MISUSE);
        check_ok(strata_runtime_reap_pending(by_second ? second.runtime : fixture->runtime));
        test_free_on(fixture, &peers, alloc_stream);
        second_end(&second);
    }
}

/* Nothing of a device's guard could be put into another one's streams: it refuses, and samples nothing. */
static void a_guard_of_another_device_guards_nothing(void **state)
{
    static const strata_guard_options kinds[] = {{.no_debuggers = 1}, {.sample = 1}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        strata_resource *layers[2];
        strata_stack *stack;
        strata_block block = {.address = 1};
        uint64_t missed = 0;
        check_ok(strata_guard_create(1, &kinds[i], &layers[0]));
        check_ok(strata_async_create(0, NULL, &layers[1]));
        check_ok(strata_stack_build(layers, 2, 0, &stack));
        strata_status status = strata_resource_allocate(layers[0], &(strata_request){.bytes = BYTES}, &block);
        if (i == 0) {
            assert_int_equal(status, STRATA_ERROR_WRONG_DEVICE);
            check_last_error(STRATA_ERROR_WRONG_DEVICE, "guard is for device 1, the stack for device 0");
            assert_true(block.address == 0);
        } else {
            check_ok(status);
            check_ok(strata_control(stack, "guard.missed", &missed, NULL));
            assert_int_equal(missed, 1);
            check_ok(strata_resource_deallocate(layers[0], &block, NULL));
        }
        check_ok(strata_stack_destroy(stack));
    }
}

static void register_for_a_while(second_device *second, CUstream stream)
{
    check_ok(strata_runtime_register_stream(second->runtime, stream));
    check_ok(strata_runtime_unregister_stream(second->runtime, stream));
}

/* What is remembered of an idle stream goes to later ones, and the events that were made for it go back to where they
 * came from. */
static void later_streams_of_a_device_are_given_no_events_of_another(test_fixture *fixture)
{
    second_device second;
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block peers = test_allocate(fixture, BYTES, alloc_stream);
    second_begin(&second, fixture);
    for (int i = 0; i < FRESH; i++) {
        CUstream stream = make_stream();
        note_peer_use(fixture, &peers, stream);
        register_for_a_while(&second, stream);
        end_stream(stream);
    }
    begin_watching(&second);
    for (int i = 0; i < FRESH; i++) {
        CUstream stream = make_stream();
        register_for_a_while(&second, stream);
        check_cu(test_cu()->StreamDestroy(stream));
    }
    check_went_smoothly(&second);
    test_free_on(fixture, &peers, alloc_stream);
    second_end(&second);
}

/* ---- a pool for several devices ---- */

static strata_status make_pool(const char *text, strata_runtime **out)
{
    return strata_runtime_create(&(strata_runtime_config){.stack_text = text}, out);
}

/* What a fill on a stream of device 1 is answered. It is over when the call returns. */
static CUresult fill(const strata_block *block, CUstream stream)
{
    CUresult result = test_cu()->MemsetD8Async(block->address, 0x5a, block->bytes, stream);
    check_cu(test_cu()->StreamSynchronize(stream));
    return result;
}

/* Also where memory has come from elsewhere by being mapped anew. */
static void peers_use_a_pools_memory_wherever_it_is(void **state)
{
    enum { PIECE = 4 << 20 };
    static const char *const texts[] = {"pool(peers=1, max_size=16MiB, chunk=2MiB)", "pool(peers=all, max_size=16MiB)",
                                        "pool(peers=1;0;1, max_size=16MiB)"};
    (void)state;
    CUcontext context;
    strata_runtime *runtime;
    strata_block pieces[4], joined;
    check_cu(test_cu()->DevicePrimaryCtxRetain(&context, 1));
    check_cu(test_cu()->CtxSetCurrent(context));
    CUstream stream = make_stream();
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        uint64_t moved = 0;
        check_ok(make_pool(texts[i], &runtime));
        for (size_t k = 0; k < 4; k++)
            check_ok(strata_runtime_allocate(runtime, PIECE, NULL, &pieces[k]));
        for (size_t k = 0; k < 4; k++)
            check_cu(fill(&pieces[k], stream));
        check_ok(strata_runtime_deallocate_on(runtime, &pieces[0], NULL));
        check_ok(strata_runtime_deallocate_on(runtime, &pieces[2], NULL));
        check_ok(strata_runtime_allocate(runtime, 2 * PIECE, NULL, &joined));
        check_ok(strata_control(strata_runtime_stack(runtime), "pool.chunks.moved", &moved, NULL));
        assert_true(moved > 0);
        check_cu(fill(&joined, stream));
        check_ok(strata_runtime_deallocate_on(runtime, &joined, NULL));
        check_ok(strata_runtime_deallocate_on(runtime, &pieces[1], NULL));
        check_ok(strata_runtime_deallocate_on(runtime, &pieces[3], NULL));
        check_ok(strata_runtime_destroy(runtime));
    }
    end_stream(stream);
    check_cu(test_cu()->DevicePrimaryCtxRelease(1));
    test_make_current();
}

static void a_pools_memory_is_its_own_devices_unless_peers_are_named(void **state)
{
    (void)state;
    CUcontext context;
    strata_runtime *runtime;
    strata_block block;
    check_ok(make_pool("pool", &runtime));
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    check_cu(test_cu()->DevicePrimaryCtxRetain(&context, 1));
    check_cu(test_cu()->CtxSetCurrent(context));
    CUstream stream = make_stream();
    assert_int_equal(fill(&block, stream), CUDA_ERROR_INVALID_VALUE);
    end_stream(stream);
    check_cu(test_cu()->DevicePrimaryCtxRelease(1));
    test_make_current();
    check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
    check_ok(strata_runtime_destroy(runtime));
}

/* As cudaMalloc's, whose programs copy between devices without a word. */
static void the_default_stacks_memory_is_every_devices(void **state)
{
    (void)state;
    CUcontext context;
    strata_runtime *runtime;
    strata_block here, there;
    CUdeviceptr other;
    check_ok(make_pool(NULL, &runtime));
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &here));
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &there));
    check_cu(test_cu()->MemsetD8Async(here.address, 0x33, BYTES, NULL));
    check_cu(test_cu()->CtxSynchronize());
    check_cu(test_cu()->DevicePrimaryCtxRetain(&context, 1));
    check_cu(test_cu()->CtxSetCurrent(context));
    check_cu(test_cu()->MemAlloc(&other, BYTES));
    check_cu(test_cu()->MemcpyDtoDAsync(other, here.address, BYTES, NULL));
    check_cu(test_cu()->MemcpyDtoDAsync(there.address, other, BYTES, NULL));
    unsigned char byte = 0;
    check_cu(test_cu()->MemcpyDtoHAsync(&byte, there.address + BYTES - 1, 1, NULL));
    check_cu(test_cu()->CtxSynchronize());
    assert_int_equal(byte, 0x33);
    check_cu(test_cu()->MemFree(other));
    check_cu(test_cu()->DevicePrimaryCtxRelease(1));
    test_make_current();
    check_ok(strata_runtime_deallocate_on(runtime, &here, NULL));
    check_ok(strata_runtime_deallocate_on(runtime, &there, NULL));
    check_ok(strata_runtime_destroy(runtime));
}

static CUresult CUDAAPI deny_access(int *can, CUdevice device, CUdevice peer)
{
    (void)device;
    (void)peer;
    *can = 0;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI fail_to_tell_access(int *can, CUdevice device, CUdevice peer)
{
    (void)can;
    (void)device;
    (void)peer;
    return CUDA_ERROR_UNKNOWN;
}

/* A program that uses one device has its memory, whatever has become of the others. */
static void a_device_of_which_the_driver_cannot_tell_is_no_peer_of_all(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    const strata_entry_table before = strata_cu;
    strata_cu.DeviceCanAccessPeer = fail_to_tell_access;
    const strata_status named = make_pool("pool(peers=1)", &runtime);
    const strata_error why = *strata_last_error();
    const strata_status all = make_pool(NULL, &runtime);
    strata_cu.DeviceCanAccessPeer = before.DeviceCanAccessPeer;
    check_status(named, STRATA_ERROR_DRIVER);
    assert_non_null(strstr(why.message, "whether device 1 can access memory of device 0"));
    check_ok(all);
    check_ok(strata_runtime_allocate(runtime, BYTES, NULL, &block));
    check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
    check_ok(strata_runtime_destroy(runtime));
}

static PFN_cuMemSetAccess_v10020 set_access;

/* As where a device can have no more peers. */
static CUresult CUDAAPI refuse_peers(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    return count > 1 ? CUDA_ERROR_TOO_MANY_PEERS : set_access(address, bytes, access, count);
}

static void memory_that_the_driver_refuses_all_peers_is_its_own_devices(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    for (int named = 0; named < 2; named++) {
        check_ok(make_pool(named ? "pool(peers=1)" : NULL, &runtime));
        set_access = strata_cu.MemSetAccess;
        strata_cu.MemSetAccess = refuse_peers;
        const strata_status status = strata_runtime_allocate(runtime, BYTES, NULL, &block);
        strata_cu.MemSetAccess = set_access;
        assert_int_equal(status == STRATA_SUCCESS, !named);
        if (status == STRATA_SUCCESS) {
            check_cu(test_cu()->MemsetD8Async(block.address, 1, BYTES, NULL));
            check_ok(strata_runtime_deallocate_on(runtime, &block, NULL));
        }
        check_cu(test_cu()->CtxSynchronize());
        check_ok(strata_runtime_destroy(runtime));
    }
}

static void peers_that_cannot_be_are_refused_with_the_reason(void **state)
{
    static const struct {
        const char *text;
        strata_status status;
        const char *words;
    } wrong[] = {
        {"pool(peers=1;x)", STRATA_ERROR_INVALID_VALUE,
         "pool: peers, character 3 (\"x\"): expected numbers of devices"},
        {"pool(peers=1;)", STRATA_ERROR_INVALID_VALUE, "pool: peers, character 3 (\"\")"},
        {"pool(peers=9999)", STRATA_ERROR_INVALID_VALUE, "pool: peers, character 1"},
        {"pool(peers=64)", STRATA_ERROR_INVALID_VALUE, "pool: peers: invalid device 64"},
        {"pool(peers=63)", STRATA_ERROR_INVALID_VALUE, "pool: peers: invalid device 63"},
        {"pool(peers=all), direct", STRATA_ERROR_UNSUPPORTED, "pool: peers needs memory that the pool maps itself"},
        {"pool(peers=1), direct", STRATA_ERROR_UNSUPPORTED, "pool: peers needs memory that the pool maps itself"},
    };
    (void)state;
    strata_runtime *runtime;
    strata_resource *made;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_status(make_pool(wrong[i].text, &runtime), wrong[i].status);
        check_last_error(wrong[i].status, wrong[i].words);
    }
    check_status(strata_pool_create(0, &(strata_pool_options){.peer_count = 1}, &made), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_pool_create(0, &(strata_pool_options){.peers = &(int){-1}, .peer_count = 1}, &made),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "invalid device -1");
    check_ok(make_pool("pool(peers=0), direct", &runtime)); /* its own device */
    check_ok(strata_runtime_destroy(runtime));
    const strata_entry_table before = strata_cu;
    strata_cu.DeviceCanAccessPeer = deny_access;
    const strata_status named = make_pool("pool(peers=1)", &runtime);
    const strata_error why = *strata_last_error();
    const strata_status all = make_pool("pool(peers=all)", &runtime);
    strata_cu.DeviceCanAccessPeer = before.DeviceCanAccessPeer;
    check_status(named, STRATA_ERROR_UNSUPPORTED);
    assert_non_null(strstr(why.message, "device 1 cannot access memory of device 0"));
    check_ok(all);
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- the log callback ---- */

static _Atomic bool asked; /* the callback's thread was started */
static sem_t answered;

static void *ask_for_a_device(void *data)
{
    strata_device_get_info(STRATA_DEVICE_LIMIT - 1, &(strata_device_info){0});
    sem_post(&answered);
    return data;
}

/* Waits for another thread, as a callback does that takes a lock of the program. */
static void wait_for_thread(const strata_error *error, void *data)
{
    (void)error;
    struct timespec until;
    pthread_t thread;
    if (atomic_exchange(&asked, true) || pthread_create(&thread, NULL, ask_for_a_device, NULL) != 0)
        return;
    pthread_detach(thread);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    *(bool *)data = sem_timedwait(&answered, &until) == 0;
}

static void an_error_about_a_device_is_raised_without_a_lock(void **state)
{
    (void)state;
    bool came_back = false;
    assert_int_equal(sem_init(&answered, 0, 0), 0);
    strata_set_log_callback(wait_for_thread, &came_back);
    const strata_status status = strata_device_get_info(STRATA_DEVICE_LIMIT - 1, &(strata_device_info){0});
    strata_set_log_callback(NULL, NULL);
    check_status(status, STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "invalid device");
    assert_true(came_back);
}

/* As on a stream that the program has destroyed. */
static void record_on_no_stream(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    test_fault_begin(TEST_FAULT_STREAM_GET_ID, 1, true, CUDA_ERROR_INVALID_HANDLE);
    strata_cu.StreamSynchronize = refuse_to_synchronize;
    const strata_status status =
        strata_runtime_record_block_use(fixture->runtime, block, stream, STRATA_ACCESS_READ_WRITE);
    test_fault_end();
    check_status(status, STRATA_ERROR_DRIVER);
}

/* The stream may be any device's: a free that waits for its device waits for the others, too, and frees the memory. */
static void a_free_that_waits_for_its_device_waits_for_others_that_may_use_the_memory(test_fixture *fixture)
{
    second_device second;
    strata_ref *ref;
    strata_ref_memory memory;
    if (test_is_swept())
        return; /* which makes other calls fail, or forgets them: these fail already */
    second_begin(&second, fixture);
    test_make_current();
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, NULL);
    record_on_no_stream(fixture, &block, stream);
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_STREAM_MISUSE);
    check_ok(strata_any_stream_free(fixture->runtime, &block));
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_U8, BYTES, false, NULL, &ref));
    check_ok(strata_ref_access(ref, &memory));
    block = *memory.block;
    record_on_no_stream(fixture, &block, stream);
    atomic_store(&ref->whole->unrecorded, true);
    check_ok(strata_ref_release(ref));
    assert_int_not_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
    check_cu(test_cu()->CtxSetCurrent(second.context));
    second_end(&second);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_stream_that_another_device_saw_first_is_marked_by_events_of_its_own),
        TEST_CASE(a_stream_that_another_device_saw_first_is_looked_for_on_the_others_once),
        TEST_CASE(a_stream_that_another_device_saw_first_is_registered_and_ordered_like_any_other),
        TEST_CASE(later_streams_of_a_device_are_given_no_events_of_another),
        TEST_CASE(work_that_is_left_on_a_stream_of_another_device_is_learnt_by_a_wait_for_that_one),
        TEST_CASE(a_free_that_waits_for_its_device_waits_for_others_that_may_use_the_memory),
    };
    test_open_driver();
    if (device_count() < 2) {
        printf("skipped: there is one device only\n");
        return 77;
    }
    const struct CMUnitTest others[] = {
        cmocka_unit_test(a_guard_of_another_device_guards_nothing),
        cmocka_unit_test(an_error_about_a_device_is_raised_without_a_lock),
        cmocka_unit_test(peers_use_a_pools_memory_wherever_it_is),
        cmocka_unit_test(a_pools_memory_is_its_own_devices_unless_peers_are_named),
        cmocka_unit_test(the_default_stacks_memory_is_every_devices),
        cmocka_unit_test(peers_that_cannot_be_are_refused_with_the_reason),
        cmocka_unit_test(a_device_of_which_the_driver_cannot_tell_is_no_peer_of_all),
        cmocka_unit_test(memory_that_the_driver_refuses_all_peers_is_its_own_devices),
    };
    int failed = test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
    return test_is_swept() ? failed : failed + cmocka_run_group_tests(others, NULL, NULL);
}
