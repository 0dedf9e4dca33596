/* DLPack: exported and imported tensors, the order of streams, and the end of memory that other libraries use. */
#include "support/captures.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/base/error.h"

#include <pthread.h>
#include <strata/dlpack_types.h>
#include <string.h>

enum { LENGTH = 1024, BYTES = 4 * LENGTH, KEPT = 16 };

_Static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, byte_offset) == 40,
               "DLPack's layout");
_Static_assert(offsetof(DLManagedTensorVersioned, deleter) == 16 && offsetof(DLManagedTensorVersioned, flags) == 24 &&
                   offsetof(DLManagedTensorVersioned, dl_tensor) == 32 && sizeof(DLManagedTensorVersioned) == 80,
               "DLPack's layout");

/* ---- what a case that fails leaves to be cleared away ---- */

static strata_ref *kept[KEPT];
static DLManagedTensorVersioned *tensors[KEPT];
static strata_launch launch;
static strata_last_write last;
static CUdeviceptr foreign; /* memory of another library */

static strata_ref *keep(strata_ref *ref)
{
    for (size_t i = 0; i < KEPT; i++)
        if (!kept[i])
            return kept[i] = ref;
    fail_msg("more than %d references", KEPT);
    return ref;
}

static strata_status release(strata_ref *ref)
{
    for (size_t i = 0; i < KEPT; i++)
        if (kept[i] == ref) {
            kept[i] = NULL;
            break;
        }
    return strata_ref_release(ref);
}

static DLManagedTensorVersioned *export_on(strata_ref *ref, int64_t stream, const strata_dlpack_options *options)
{
    DLManagedTensorVersioned *tensor = NULL;
    check_ok(strata_ref_export_dlpack(ref, stream, options, &tensor));
    for (size_t i = 0; i < KEPT; i++)
        if (!tensors[i])
            return tensors[i] = tensor;
    fail_msg("more than %d tensors", KEPT);
    return tensor;
}

/* The tensor is the caller's from now on. */
static DLManagedTensorVersioned *take(DLManagedTensorVersioned *tensor)
{
    for (size_t i = 0; i < KEPT; i++)
        if (tensors[i] == tensor)
            tensors[i] = NULL;
    return tensor;
}

static void drop_tensor(DLManagedTensorVersioned *tensor)
{
    take(tensor);
    tensor->deleter(tensor);
}

static void clear_away(void)
{
    strata_error_suppress_begin();
    if (launch.runtime)
        strata_launch_end(&launch);
    strata_last_write_release(&last);
    for (size_t i = 0; i < KEPT; i++) {
        strata_ref_release(kept[i]);
        kept[i] = NULL;
        if (tensors[i])
            tensors[i]->deleter(tensors[i]);
        tensors[i] = NULL;
    }
    strata_error_suppress_end(false);
    if (foreign)
        test_cu()->MemFree(foreign);
    foreign = 0;
}

/* ---- helpers ---- */

static strata_ref *make(test_fixture *fixture, CUstream stream)
{
    strata_ref *ref;
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_F32, LENGTH, false, stream, &ref));
    return keep(ref);
}

static strata_ref_memory memory_of(const strata_ref *ref)
{
    strata_ref_memory memory;
    check_ok(strata_ref_access(ref, &memory));
    return memory;
}

static int64_t number_of(CUstream stream)
{
    return (int64_t)(uintptr_t)stream;
}

static CUdeviceptr data_of(const DLManagedTensorVersioned *tensor)
{
    return (CUdeviceptr)(uintptr_t)tensor->dl_tensor.data + tensor->dl_tensor.byte_offset;
}

static size_t live_blocks(test_fixture *fixture)
{
    return test_usage(fixture).live_blocks;
}

static void launch_fill(test_fixture *fixture, strata_ref *ref, unsigned char value, CUstream stream)
{
    const strata_ref_memory memory = memory_of(ref);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_ref(&launch, ref, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_preflight(&launch));
    test_fill(memory.address, value, memory.bytes, stream);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
}

static const unsigned char *launch_read(test_fixture *fixture, strata_ref *ref, CUstream stream)
{
    const strata_ref_memory memory = memory_of(ref);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_ref(&launch, ref, STRATA_ACCESS_READ));
    check_ok(strata_launch_preflight(&launch));
    const unsigned char *seen = test_copy_back(fixture, memory.address, memory.bytes, stream);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    return seen;
}

/* A stream of the consumer's, of which Strata knows nothing. */
static CUstream consumer_stream(test_fixture *fixture)
{
    return test_stream(fixture, TEST_STREAM_UNKNOWN);
}

static void check_complete(CUstream stream)
{
    assert_int_equal(test_cu()->StreamQuery(stream), CUDA_SUCCESS);
}

/* ---- exporting ---- */

static void a_tensor_says_what_its_reference_is(test_fixture *fixture)
{
    static const DLDataType types[] = {
        {kDLFloat, 16, 1},        {kDLBfloat, 16, 1},     {kDLFloat, 32, 1},   {kDLFloat, 64, 1},
        {kDLFloat8_e4m3fn, 8, 1}, {kDLFloat8_e5m2, 8, 1}, {kDLInt, 8, 1},      {kDLInt, 16, 1},
        {kDLInt, 32, 1},          {kDLInt, 64, 1},        {kDLUInt, 8, 1},     {kDLUInt, 16, 1},
        {kDLUInt, 32, 1},         {kDLUInt, 64, 1},       {kDLComplex, 64, 1}, {kDLComplex, 128, 1},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        strata_ref *ref;
        check_ok(strata_ref_allocate(fixture->runtime, (strata_element)(i + 1), 6, false, NULL, &ref));
        keep(ref);
        DLManagedTensorVersioned *tensor = export_on(ref, STRATA_DLPACK_STREAM_LEGACY, NULL);
        assert_int_equal(tensor->version.major, 1);
        assert_int_equal(tensor->version.minor, 3);
        assert_int_equal(tensor->flags, 0);
        assert_int_equal(data_of(tensor), memory_of(ref).address);
        assert_int_equal(tensor->dl_tensor.device.device_type, kDLCUDA);
        assert_int_equal(tensor->dl_tensor.device.device_id, 0);
        assert_memory_equal(&tensor->dl_tensor.dtype, &types[i], sizeof types[i]);
        assert_int_equal(tensor->dl_tensor.ndim, 1);
        assert_int_equal(tensor->dl_tensor.shape[0], 6);
        assert_int_equal(tensor->dl_tensor.strides[0], 1);
        drop_tensor(tensor);
        check_ok(release(ref));
    }
    assert_int_equal(live_blocks(fixture), 0);
}

static void a_tensor_has_the_shape_that_was_asked_for(test_fixture *fixture)
{
    int64_t shape[] = {4, 1, 16, 16};
    const int64_t many[33] = {0}, negative[] = {-4, -256}, huge[] = {INT64_MAX, 2};
    strata_ref *ref = make(fixture, NULL), *one;
    DLManagedTensorVersioned *tensor = export_on(
        ref, STRATA_DLPACK_STREAM_NONE, &(strata_dlpack_options){.shape = shape, .ndim = 4, .read_only = true});
    memset(shape, 0, sizeof shape); /* it was copied */
    assert_int_equal(tensor->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    assert_int_equal(tensor->dl_tensor.ndim, 4);
    assert_memory_equal(tensor->dl_tensor.shape, ((int64_t[]){4, 1, 16, 16}), sizeof shape);
    assert_memory_equal(tensor->dl_tensor.strides, ((int64_t[]){256, 256, 16, 1}), sizeof shape);
    drop_tensor(tensor);
    const strata_dlpack_options refused[] = {
        {.shape = shape, .ndim = 4},     {.shape = many, .ndim = 33}, {.shape = negative, .ndim = 2},
        {.shape = negative, .ndim = -1}, {.shape = huge, .ndim = 2},  {.ndim = 1},
        {.shape = shape, .ndim = 0},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        tensor = (DLManagedTensorVersioned *)&tensor;
        check_status(strata_ref_export_dlpack(ref, STRATA_DLPACK_STREAM_NONE, &refused[i], &tensor),
                     STRATA_ERROR_INVALID_VALUE);
        assert_null(tensor);
    }
    check_ok(strata_ref_view(ref, 8, 1, STRATA_ELEMENT_F64, &one));
    keep(one);
    tensor = export_on(one, STRATA_DLPACK_STREAM_NONE, &(strata_dlpack_options){.shape = shape, .ndim = 0});
    assert_int_equal(tensor->dl_tensor.ndim, 0);
    assert_int_equal(data_of(tensor), memory_of(ref).address + 8);
    drop_tensor(tensor);
    check_ok(release(one));
    check_ok(release(ref));
}

static void a_tensor_without_elements_has_no_memory(test_fixture *fixture)
{
    const int64_t shape[] = {INT64_MAX, 0, INT64_MAX};
    strata_ref *ref, *back;
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_F16, 0, false, NULL, &ref));
    keep(ref);
    DLManagedTensorVersioned *tensor =
        export_on(ref, STRATA_DLPACK_STREAM_LEGACY, &(strata_dlpack_options){.shape = shape, .ndim = 3});
    assert_null(tensor->dl_tensor.data);
    check_ok(release(ref));
    check_ok(strata_ref_import_dlpack(fixture->runtime, tensor, &back));
    take(tensor);
    keep(back);
    assert_true(strata_ref_is_empty(back));
    assert_int_equal(memory_of(back).address, 0);
    check_ok(strata_launch_begin(&launch, fixture->runtime, NULL, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_ref(&launch, back, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_end(&launch));
    check_ok(release(back));
}

static void stale_references_and_forbidden_streams_are_not_exported(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL);
    DLManagedTensorVersioned *tensor = (DLManagedTensorVersioned *)&tensor;
    check_status(strata_ref_export_dlpack(ref, 0, NULL, &tensor), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "forbidden by DLPack");
    assert_null(tensor);
    check_status(strata_ref_export_dlpack(ref, -2, NULL, &tensor), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_ref_export_dlpack(ref, 1, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_ref_export_dlpack(NULL, 1, NULL, &tensor), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_device_state_bump_generation(strata_runtime_device_state(fixture->runtime), NULL));
    check_status(strata_ref_export_dlpack(ref, 1, NULL, &tensor), STRATA_ERROR_STALE);
    assert_null(tensor);
    check_ok(release(ref));
}

/* ---- streams ---- */

static void the_consumers_stream_comes_after_the_last_write(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        if (kind == TEST_STREAM_ZERO)
            continue; /* forbidden */
        CUstream writer = test_stream(fixture, TEST_STREAM_POOL), consumer = test_stream(fixture, kind);
        strata_ref *ref = make(fixture, writer);
        test_stall *stall = test_stall_begin(writer);
        launch_fill(fixture, ref, 0x5c, writer);
        DLManagedTensorVersioned *tensor =
            export_on(ref, number_of(consumer), &(strata_dlpack_options){.read_only = kind % 2});
        const unsigned char *seen = test_copy_back(fixture, data_of(tensor), BYTES, consumer);
        test_stall_release(stall);
        test_synchronize(consumer);
        check_bytes(seen, 0x5c, BYTES);
        test_stall_end(stall);
        drop_tensor(tensor);
        check_ok(release(ref));
        test_stream_close(fixture, writer);
        test_stream_close(fixture, consumer);
    }
}

static void a_consumer_that_may_write_comes_after_the_reads_too(test_fixture *fixture)
{
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    CUstream consumer = consumer_stream(fixture);
    strata_ref *ref = make(fixture, writer);
    launch_fill(fixture, ref, 0x5c, writer);
    test_stall *stall = test_stall_begin(reader);
    const unsigned char *seen = launch_read(fixture, ref, reader);
    DLManagedTensorVersioned *tensor = export_on(ref, number_of(consumer), NULL);
    test_fill(data_of(tensor), 0x77, BYTES, consumer);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x5c, BYTES);
    test_stall_end(stall);
    drop_tensor(tensor);
    check_ok(release(ref));
}

static void a_consumer_that_only_reads_waits_for_no_reader(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    CUstream consumer = consumer_stream(fixture);
    strata_ref *ref = make(fixture, writer);
    launch_fill(fixture, ref, 0x5c, writer);
    test_synchronize(writer);
    test_stall *stall = test_stall_begin(reader);
    launch_read(fixture, ref, reader);
    DLManagedTensorVersioned *tensor = export_on(ref, number_of(consumer), &(strata_dlpack_options){.read_only = true});
    const unsigned char *seen = test_copy_back(fixture, data_of(tensor), BYTES, consumer);
    test_synchronize(consumer); /* while the reader is held back */
    check_bytes(seen, 0x5c, BYTES);
    test_stall_release(stall);
    test_stall_end(stall);
    drop_tensor(tensor);
    check_ok(release(ref));
}

static void without_a_stream_nothing_is_ordered(test_fixture *fixture)
{
    test_calls calls;
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL);
    strata_ref *ref = make(fixture, writer);
    test_stall *stall = test_stall_begin(writer);
    launch_fill(fixture, ref, 0x5c, writer);
    test_calls_begin(&calls);
    DLManagedTensorVersioned *tensor = export_on(ref, STRATA_DLPACK_STREAM_NONE, NULL);
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
    assert_int_equal(test_calls_of(&calls, "cuEventRecord"), 0);
    test_stall_release(stall);
    test_stall_end(stall);
    drop_tensor(tensor);
    check_ok(release(ref));
}

static void a_stream_that_is_being_captured_gets_no_tensor(test_fixture *fixture)
{
    CUstream consumer = consumer_stream(fixture);
    strata_ref *ref = make(fixture, NULL);
    DLManagedTensorVersioned *tensor = (DLManagedTensorVersioned *)&tensor;
    launch_fill(fixture, ref, 1, NULL);
    test_begin_capture(consumer);
    const strata_status status = strata_ref_export_dlpack(ref, number_of(consumer), NULL, &tensor);
    const size_t nodes = test_end_capture(consumer);
    check_status(status, STRATA_ERROR_STREAM_CAPTURE);
    assert_int_equal(nodes, 0);
    assert_null(tensor);
    check_ok(release(ref));
    assert_int_equal(live_blocks(fixture), 0); /* no reference of the tensor's is left */
}

/* ---- the end of exported memory ---- */

static void the_deleter_of_the_last_tensor_frees_the_memory(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL);
    DLManagedTensorVersioned *first = export_on(ref, 1, NULL), *second = export_on(ref, 1, NULL);
    check_ok(release(ref));
    drop_tensor(first);
    assert_int_equal(live_blocks(fixture), 1);
    assert_int_equal(second->dl_tensor.shape[0], LENGTH);
    drop_tensor(second);
    assert_int_equal(live_blocks(fixture), 0);
}

/* The consumer's work is on a stream that neither the tensor was exported for nor Strata knows. With the late policy it
 * runs only when it must. */
static void exported_memory_is_freed_after_everything_submitted_so_far(test_fixture *fixture)
{
    test_needs_truthful_queries();
    for (int last_is_ours = 0; last_is_ours < 2; last_is_ours++) {
        CUstream stream = test_stream(fixture, TEST_STREAM_POOL), consumer = consumer_stream(fixture);
        strata_ref *ref = make(fixture, stream);
        launch_fill(fixture, ref, 0x5c, stream);
        test_synchronize(stream);
        DLManagedTensorVersioned *tensor = export_on(ref, number_of(stream), NULL);
        const unsigned char *seen = test_copy_back(fixture, data_of(tensor), BYTES, consumer);
        if (last_is_ours) {
            drop_tensor(tensor);
            assert_int_equal(live_blocks(fixture), 1);
            check_ok(release(ref));
        } else {
            check_ok(release(ref));
            drop_tensor(tensor);
        }
        assert_int_equal(live_blocks(fixture), 0);
        check_complete(consumer);
        strata_ref *next = make(fixture, stream); /* perhaps in that memory */
        launch_fill(fixture, next, 0x77, stream);
        check_bytes(seen, 0x5c, BYTES);
        check_ok(release(next));
    }
}

static void a_view_of_exported_memory_is_freed_after_everything_too(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), consumer = consumer_stream(fixture);
    strata_ref *ref = make(fixture, stream), *view;
    launch_fill(fixture, ref, 0x5c, stream);
    test_synchronize(stream);
    check_ok(strata_ref_view(ref, 64, 16, STRATA_ELEMENT_U8, &view));
    keep(view);
    DLManagedTensorVersioned *tensor = export_on(view, number_of(stream), NULL);
    check_ok(release(view));
    const unsigned char *seen = test_copy_back(fixture, data_of(tensor), 16, consumer);
    drop_tensor(tensor);
    check_ok(release(ref));
    check_complete(consumer);
    check_bytes(seen, 0x5c, 16);
    assert_int_equal(live_blocks(fixture), 0);
}

static void memory_that_was_never_exported_is_freed_without_a_wait(test_fixture *fixture)
{
    test_calls calls;
    strata_ref *ref = make(fixture, NULL);
    test_calls_begin(&calls);
    check_ok(release(ref));
    assert_int_equal(test_calls_of(&calls, "cuMemFreeHost") + test_calls_of(&calls, "cuMemAlloc"), 0);
}

static void captures_survive_a_deleter(test_fixture *fixture)
{
    CUstream captured = consumer_stream(fixture);
    strata_ref *ref = make(fixture, test_stream(fixture, TEST_STREAM_POOL));
    DLManagedTensorVersioned *tensor = export_on(ref, STRATA_DLPACK_STREAM_NONE, NULL);
    check_ok(release(ref));
    test_begin_capture(captured);
    drop_tensor(tensor);
    assert_int_equal(test_end_capture(captured), 0);
}

static void *delete_on_thread(void *tensor)
{
    drop_tensor(tensor);
    return NULL;
}

static void a_deleter_may_be_called_on_a_thread_without_a_context(test_fixture *fixture)
{
    pthread_t thread;
    strata_ref *ref = make(fixture, test_stream(fixture, TEST_STREAM_POOL));
    DLManagedTensorVersioned *tensor = export_on(ref, 1, NULL);
    check_ok(release(ref));
    assert_int_equal(pthread_create(&thread, NULL, delete_on_thread, tensor), 0);
    pthread_join(thread, NULL);
    assert_int_equal(live_blocks(fixture), 0);
}

/* Neither call that the wait consists of loses the memory, or what the wait itself took. */
static void memory_that_cannot_be_waited_for_is_freed_later(test_fixture *fixture)
{
    static const test_fault_call failing[] = {TEST_FAULT_ALLOCATE, TEST_FAULT_FREE};
    for (size_t i = 0; i < 2; i++) {
        CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
        strata_ref *ref = make(fixture, stream), *other;
        DLManagedTensorVersioned *tensor = export_on(ref, number_of(stream), NULL);
        check_ok(release(ref));
        test_fault_begin(failing[i], 1, false, CUDA_ERROR_UNKNOWN);
        drop_tensor(tensor);
        assert_int_equal(test_fault_end(), 1);
        assert_int_equal(live_blocks(fixture), 1);
        if (i == 0)
            check_ok(strata_runtime_reap_pending(fixture->runtime));
        other = make(fixture, stream);
        check_ok(release(other)); /* tries again, too */
        assert_int_equal(live_blocks(fixture), 0);
    }
}

static void CUDA_CB delete_in_host_function(void *tensor)
{
    ((DLManagedTensorVersioned *)tensor)->deleter(tensor);
}

static void a_deleter_in_a_host_function_leaves_the_free_to_a_later_call(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_ref *ref = make(fixture, stream);
    DLManagedTensorVersioned *tensor = export_on(ref, number_of(stream), NULL);
    check_ok(release(ref));
    check_cu(test_cu()->LaunchHostFunc(stream, delete_in_host_function, take(tensor)));
    test_synchronize(stream);
    for (int i = 0; i < (test_is_swept() ? 2 : 1); i++) /* a try that fails leaves it to the next one */
        check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), 0);
}

static void a_stale_tensor_is_deleted_and_its_memory_freed(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL);
    DLManagedTensorVersioned *tensor = export_on(ref, 1, NULL);
    check_ok(strata_device_state_bump_generation(strata_runtime_device_state(fixture->runtime), NULL));
    check_ok(release(ref));
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    drop_tensor(tensor);
    assert_int_equal(live_blocks(fixture), 0);
}

/* ---- importing ---- */

static struct {
    DLManagedTensorVersioned tensor;
    int64_t shape[3], strides[3];
    CUstream busy; /* NULL, or has work that the deleter must come after */
    unsigned deleted;
} other; /* another library's tensor */

static void delete_other(DLManagedTensorVersioned *tensor)
{
    assert_ptr_equal(tensor, &other.tensor);
    other.deleted++;
    if (other.busy && test_cu()->StreamQuery(other.busy) != CUDA_SUCCESS)
        other.deleted += 100;
}

/* Compact floats in memory of the other library. */
static DLManagedTensorVersioned *other_tensor(void)
{
    if (!foreign)
        check_cu(test_cu()->MemAlloc(&foreign, BYTES));
    memset(&other, 0, sizeof other);
    memcpy(other.shape, (int64_t[]){2, 1, LENGTH / 2}, sizeof other.shape);
    memcpy(other.strides, (int64_t[]){LENGTH / 2, 77, 1}, sizeof other.strides);
    other.tensor = (DLManagedTensorVersioned){.version = {1, 3},
                                              .deleter = delete_other,
                                              .dl_tensor = {.data = (void *)(uintptr_t)foreign,
                                                            .device = {kDLCUDA, 0},
                                                            .ndim = 3,
                                                            .dtype = {kDLFloat, 32, 1},
                                                            .shape = other.shape,
                                                            .strides = other.strides}};
    return &other.tensor;
}

static strata_ref *import(test_fixture *fixture, DLManagedTensorVersioned *tensor)
{
    strata_ref *ref;
    check_ok(strata_ref_import_dlpack(fixture->runtime, tensor, &ref));
    return keep(ref);
}

static void an_imported_tensor_is_a_reference_to_its_memory(test_fixture *fixture)
{
    strata_ref *ref = import(fixture, other_tensor()), *view;
    assert_int_equal(strata_ref_type(ref), STRATA_ELEMENT_F32);
    assert_int_equal(strata_ref_len(ref), LENGTH);
    assert_int_equal(memory_of(ref).address, foreign);
    assert_int_equal(memory_of(ref).bytes, BYTES);
    assert_int_equal(memory_of(ref).block->address, 0);
    assert_false(strata_ref_is_read_only(ref));
    check_ok(strata_ref_view(ref, 8, 2, STRATA_ELEMENT_F64, &view));
    keep(view);
    assert_int_equal(memory_of(view).address, foreign + 8);
    check_ok(release(ref));
    assert_int_equal(other.deleted, 0);
    check_ok(release(view));
    assert_int_equal(other.deleted, 1);
    assert_int_equal(live_blocks(fixture), 0);
}

static void the_first_element_may_lie_behind_the_data_and_types_have_their_element_types(test_fixture *fixture)
{
    DLManagedTensorVersioned *tensor = other_tensor();
    tensor->dl_tensor.dtype = (DLDataType){kDLBool, 8, 1};
    tensor->dl_tensor.byte_offset = 3;
    tensor->dl_tensor.strides = NULL;
    tensor->version.minor = 1; /* strides are required since 1.2 */
    strata_ref *ref = import(fixture, tensor);
    assert_int_equal(memory_of(ref).address, foreign + 3);
    assert_int_equal(strata_ref_type(ref), STRATA_ELEMENT_U8);
    check_ok(release(ref));
    assert_int_equal(other.deleted, 1);
}

/* The tensor's own launch is on a stream that its producer has never heard of. */
static void a_foreign_tensor_goes_back_after_everything_submitted_so_far(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_ref *ref = import(fixture, other_tensor());
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_PERMISSIVE));
    check_ok(strata_launch_use_ref(&launch, ref, STRATA_ACCESS_WRITE));
    assert_int_equal(strata_launch_skipped(&launch), 1);
    check_ok(strata_launch_preflight(&launch));
    test_fill(memory_of(ref).address, 0x33, BYTES, stream);
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    other.busy = stream;
    check_ok(release(ref));
    assert_int_equal(other.deleted, 1);
}

static void a_foreign_tensor_that_cannot_be_waited_for_goes_back_later(test_fixture *fixture)
{
    strata_ref *ref = import(fixture, other_tensor());
    test_fault_begin(TEST_FAULT_ALLOCATE, 1, false, CUDA_ERROR_UNKNOWN);
    const strata_status status = release(ref);
    assert_int_equal(test_fault_end(), 1);
    check_status(status, STRATA_ERROR_DRIVER);
    assert_int_equal(other.deleted, 0);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(other.deleted, 1);
}

static void uses_of_foreign_memory_are_not_recorded(test_fixture *fixture)
{
    strata_ref *ref = import(fixture, other_tensor());
    DLManagedTensorVersioned *tensor;
    check_status(strata_ref_record_write(ref, NULL), STRATA_ERROR_STREAM_MISUSE);
    check_status(strata_ref_last_write_stream(ref, &last), STRATA_ERROR_STREAM_MISUSE);
    check_status(strata_ref_export_dlpack(ref, 1, NULL, &tensor), STRATA_ERROR_STREAM_MISUSE);
    check_ok(strata_launch_begin(&launch, fixture->runtime, NULL, STRATA_LAUNCH_STRICT));
    check_status(strata_launch_use_ref(&launch, ref, STRATA_ACCESS_READ), STRATA_ERROR_FOREIGN_POINTER);
    check_status(strata_launch_preflight(&launch), STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_launch_end(&launch));
    tensor = export_on(ref, STRATA_DLPACK_STREAM_NONE, NULL); /* with an order of the program's own */
    assert_int_equal(data_of(tensor), foreign);
    check_ok(release(ref));
    assert_int_equal(other.deleted, 0);
    drop_tensor(tensor);
    assert_int_equal(other.deleted, 1);
}

static void memory_of_the_stack_that_comes_back_is_tracked_as_before(test_fixture *fixture)
{
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_ref *ref = make(fixture, writer);
    DLManagedTensorVersioned *tensor = export_on(ref, number_of(writer), NULL);
    strata_ref *back = import(fixture, tensor);
    take(tensor);
    assert_int_equal(memory_of(back).block->address, memory_of(ref).block->address);
    test_stall *stall = test_stall_begin(writer);
    launch_fill(fixture, back, 0x5c, writer);
    const unsigned char *seen = launch_read(fixture, ref, reader);
    check_ok(strata_ref_last_write_stream(ref, &last));
    assert_int_equal(last.kind, STRATA_LAST_WRITE_STREAM);
    assert_ptr_equal(last.stream, writer);
    strata_last_write_release(&last);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x5c, BYTES);
    test_stall_end(stall);
    check_ok(release(ref));
    assert_int_equal(live_blocks(fixture), 1);
    check_ok(release(back));
    assert_int_equal(live_blocks(fixture), 0);
}

static void a_read_only_tensor_is_not_written(test_fixture *fixture)
{
    strata_ref *ref = make(fixture, NULL);
    launch_fill(fixture, ref, 1, NULL);
    DLManagedTensorVersioned *tensor = export_on(ref, 1, &(strata_dlpack_options){.read_only = true});
    strata_ref *back = import(fixture, take(tensor)), *view;
    check_ok(strata_ref_view(back, 0, 1, STRATA_ELEMENT_F32, &view));
    keep(view);
    assert_true(strata_ref_is_read_only(back));
    assert_true(strata_ref_is_read_only(view));
    assert_false(strata_ref_is_read_only(ref));
    assert_false(strata_ref_is_read_only(NULL));
    for (int i = 0; i < 2; i++) {
        strata_ref *which = i ? view : back;
        check_status(strata_ref_record_write(which, NULL), STRATA_ERROR_INVALID_VALUE);
        check_ok(strata_launch_begin(&launch, fixture->runtime, NULL, STRATA_LAUNCH_PERMISSIVE));
        check_ok(strata_launch_use_ref(&launch, which, STRATA_ACCESS_READ));
        check_status(strata_launch_use_ref(&launch, which, STRATA_ACCESS_READ_WRITE), STRATA_ERROR_INVALID_VALUE);
        check_status(strata_launch_preflight(&launch), STRATA_ERROR_INVALID_VALUE);
        check_ok(strata_launch_end(&launch));
    }
    tensor = export_on(view, 1, NULL);
    assert_int_equal(tensor->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    drop_tensor(tensor);
    check_ok(release(view));
    check_ok(release(back));
    check_ok(release(ref));
}

static void a_stale_foreign_reference_gives_its_tensor_back(test_fixture *fixture)
{
    strata_ref_memory memory;
    strata_ref *ref = import(fixture, other_tensor());
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    check_ok(strata_device_state_bump_generation(strata_runtime_device_state(fixture->runtime), NULL));
    check_status(strata_ref_access(ref, &memory), STRATA_ERROR_STALE);
    check_ok(release(ref));
    assert_int_equal(other.deleted, 1);
}

/* Strides are signed: they count to half of what a size holds. */
static void more_elements_than_a_stride_can_count_are_refused(test_fixture *fixture)
{
    strata_ref *ref;
    DLTensor *tensor = &other_tensor()->dl_tensor;
    tensor->shape[0] = INT64_C(1) << 62;
    tensor->shape[1] = 1;
    tensor->shape[2] = 2;
    tensor->strides[0] = tensor->strides[1] = 2;
    tensor->strides[2] = 1;
    check_status(strata_ref_import_dlpack(fixture->runtime, &other.tensor, &ref), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "more elements");
}

/* UNSUPPORTED first, then INVALID_VALUE, then WRONG_DEVICE. */
static void change_tensor(DLTensor *tensor, int which)
{
    static const DLDataType types[] = {{kDLFloat, 32, 4}, {kDLFloat, 4, 1}, {kDLOpaqueHandle, 32, 1}};
    static const uint64_t offsets[] = {2, UINT64_MAX};
    static const int64_t first_strides[] = {LENGTH, LENGTH / 2}, last_strides[] = {1, -1};
    if (which == 0)
        other.tensor.version.major = 2;
    else if (which <= 3)
        tensor->dtype = types[which - 1];
    else if (which == 4)
        tensor->device.device_type = kDLCPU;
    else if (which <= 6) {
        tensor->strides[0] = first_strides[which - 5];
        tensor->strides[2] = last_strides[which - 5];
    } else if (which == 7)
        tensor->strides = NULL;
    else if (which == 8)
        tensor->shape = NULL;
    else if (which == 9)
        tensor->shape[1] = -1;
    else if (which == 10)
        tensor->shape[0] = tensor->shape[2] = INT64_MAX;
    else if (which == 11)
        tensor->ndim = -1;
    else if (which <= 13)
        tensor->byte_offset = offsets[which - 12];
    else if (which == 14)
        tensor->data = NULL;
    else
        tensor->device.device_id = 1;
}

static void a_tensor_that_no_reference_can_have_stays_the_callers(test_fixture *fixture)
{
    enum { UNSUPPORTED = 7, INVALID = 15 };
    for (int i = 0; i <= INVALID; i++) {
        strata_ref *ref = (strata_ref *)fixture;
        change_tensor(&other_tensor()->dl_tensor, i);
        check_status(strata_ref_import_dlpack(fixture->runtime, &other.tensor, &ref),
                     i < UNSUPPORTED ? STRATA_ERROR_UNSUPPORTED
                     : i < INVALID   ? STRATA_ERROR_INVALID_VALUE
                                     : STRATA_ERROR_WRONG_DEVICE);
        assert_null(ref);
        if (i == 1)
            check_last_error(STRATA_ERROR_UNSUPPORTED,
                             "references do not support the tensor's type (code 2, 32 bits, 4 lanes)");
    }
    strata_ref *ref = make(fixture, NULL), *wrong;
    DLManagedTensorVersioned *tensor = other_tensor();
    tensor->dl_tensor.data = (void *)(uintptr_t)(memory_of(ref).address + memory_of(ref).block->bytes - 8);
    check_status(strata_ref_import_dlpack(fixture->runtime, tensor, &wrong), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "exceeds block");
    check_status(strata_ref_import_dlpack(fixture->runtime, NULL, &wrong), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_ref_import_dlpack(NULL, tensor, &wrong), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_device_state_begin_shutdown(strata_runtime_device_state(fixture->runtime)));
    check_status(strata_ref_import_dlpack(fixture->runtime, other_tensor(), &wrong), STRATA_ERROR_STALE);
    assert_int_equal(other.deleted, 0);
    check_ok(release(ref));
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_tensor_says_what_its_reference_is),
        TEST_CASE(a_tensor_has_the_shape_that_was_asked_for),
        TEST_CASE(a_tensor_without_elements_has_no_memory),
        TEST_CASE(stale_references_and_forbidden_streams_are_not_exported),
        TEST_CASE(the_consumers_stream_comes_after_the_last_write),
        TEST_CASE(a_consumer_that_may_write_comes_after_the_reads_too),
        TEST_CASE(a_consumer_that_only_reads_waits_for_no_reader),
        TEST_CASE(without_a_stream_nothing_is_ordered),
        TEST_CASE(a_stream_that_is_being_captured_gets_no_tensor),
        TEST_CASE(the_deleter_of_the_last_tensor_frees_the_memory),
        TEST_CASE(exported_memory_is_freed_after_everything_submitted_so_far),
        TEST_CASE(a_view_of_exported_memory_is_freed_after_everything_too),
        TEST_CASE(memory_that_was_never_exported_is_freed_without_a_wait),
        TEST_CASE(captures_survive_a_deleter),
        TEST_CASE(a_deleter_may_be_called_on_a_thread_without_a_context),
        TEST_CASE(memory_that_cannot_be_waited_for_is_freed_later),
        TEST_CASE(a_deleter_in_a_host_function_leaves_the_free_to_a_later_call),
        TEST_CASE(a_stale_tensor_is_deleted_and_its_memory_freed),
        TEST_CASE(an_imported_tensor_is_a_reference_to_its_memory),
        TEST_CASE(the_first_element_may_lie_behind_the_data_and_types_have_their_element_types),
        TEST_CASE(a_foreign_tensor_goes_back_after_everything_submitted_so_far),
        TEST_CASE(a_foreign_tensor_that_cannot_be_waited_for_goes_back_later),
        TEST_CASE(uses_of_foreign_memory_are_not_recorded),
        TEST_CASE(memory_of_the_stack_that_comes_back_is_tracked_as_before),
        TEST_CASE(a_read_only_tensor_is_not_written),
        TEST_CASE(a_stale_foreign_reference_gives_its_tensor_back),
        TEST_CASE(more_elements_than_a_stride_can_count_are_refused),
        TEST_CASE(a_tensor_that_no_reference_can_have_stays_the_callers),
    };
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
