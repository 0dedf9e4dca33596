/* Memory that launches meet by address, as DLPack tensors and as Arrow's device arrays: of the stack, and of others. */
#include "support/captures.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/base/error.h"

#include <strata/dlpack_types.h>
#include <string.h>

enum { BYTES = 4096, FLOATS = BYTES / 4 };

/* What a case that fails leaves to be cleared away. */
static strata_launch launch;
static CUdeviceptr foreign; /* memory of another library */
static CUevent event;       /* of that library */
static strata_runtime *runtime_of_case;

static void clear_away(void)
{
    strata_error_suppress_begin();
    if (launch.runtime)
        strata_launch_end(&launch);
    if (runtime_of_case)
        strata_runtime_destroy(runtime_of_case);
    runtime_of_case = NULL;
    strata_error_suppress_end(false);
    if (foreign)
        test_cu()->MemFree(foreign);
    foreign = 0;
    if (event)
        test_cu()->EventDestroy(event);
    event = NULL;
}

static CUdeviceptr foreign_memory(void)
{
    if (!foreign)
        check_cu(test_cu()->MemAlloc(&foreign, BYTES));
    return foreign;
}

static void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static void begin(test_fixture *fixture, CUstream stream, strata_launch_mode mode)
{
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, mode));
}

static void end(void)
{
    check_ok(strata_launch_end(&launch));
}

/* The launch must not be prepared. */
static void check_refused(strata_status status)
{
    check_status(strata_launch_preflight(&launch), status);
    end();
}

/* ---- tensors ---- */

static int64_t shape[2], strides[2];

/* Two rows of floats. */
static DLManagedTensorVersioned tensor_at(CUdeviceptr address)
{
    memcpy(shape, (int64_t[]){2, FLOATS / 2}, sizeof shape);
    memcpy(strides, (int64_t[]){FLOATS / 2, 1}, sizeof strides);
    return (DLManagedTensorVersioned){.version = {1, 3},
                                      .dl_tensor = {.data = pointer(address),
                                                    .device = {kDLCUDA, 0},
                                                    .ndim = 2,
                                                    .dtype = {kDLFloat, 32, 1},
                                                    .shape = shape,
                                                    .strides = strides}};
}

/* ---- Arrow ---- */

static void release_array(struct ArrowArray *array)
{
    array->release = NULL;
}

static struct ArrowArray array_of(const void **buffers, int64_t count)
{
    return (struct ArrowArray){
        .length = FLOATS, .n_buffers = count, .buffers = count ? buffers : NULL, .release = release_array};
}

static struct ArrowDeviceArray on_device(struct ArrowArray array)
{
    return (struct ArrowDeviceArray){.array = array, .device_id = 0, .device_type = ARROW_DEVICE_CUDA};
}

/* ---- strict and permissive ---- */

static void strict_launches_refuse_foreign_memory(test_fixture *fixture)
{
    DLManagedTensorVersioned tensor = tensor_at(foreign_memory());
    const void *buffers[] = {NULL, pointer(foreign)};
    const struct ArrowDeviceArray array = on_device(array_of(buffers, 2));
    begin(fixture, NULL, STRATA_LAUNCH_STRICT);
    check_status(strata_launch_use_address(&launch, foreign, STRATA_ACCESS_READ), STRATA_ERROR_FOREIGN_POINTER);
    check_refused(STRATA_ERROR_FOREIGN_POINTER);
    begin(fixture, NULL, STRATA_LAUNCH_STRICT);
    check_status(strata_launch_use_dlpack(&launch, &tensor, STRATA_ACCESS_READ), STRATA_ERROR_FOREIGN_POINTER);
    check_refused(STRATA_ERROR_FOREIGN_POINTER);
    begin(fixture, NULL, STRATA_LAUNCH_STRICT);
    check_status(strata_launch_use_arrow(&launch, &array, STRATA_ACCESS_READ), STRATA_ERROR_FOREIGN_POINTER);
    check_refused(STRATA_ERROR_FOREIGN_POINTER);
}

static void permissive_launches_leave_foreign_memory_out_and_count_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    DLManagedTensorVersioned tensor = tensor_at(foreign_memory()), own = tensor_at(block.address);
    const void *buffers[] = {pointer(foreign), pointer(block.address), pointer(foreign + 64)};
    const struct ArrowDeviceArray array = on_device(array_of(buffers, 3));
    begin(fixture, stream, STRATA_LAUNCH_PERMISSIVE);
    assert_int_equal(strata_launch_skipped(&launch), 0);
    check_ok(strata_launch_use_address(&launch, foreign, STRATA_ACCESS_READ));
    assert_int_equal(strata_launch_skipped(&launch), 1);
    tensor = tensor_at(foreign);
    check_ok(strata_launch_use_dlpack(&launch, &tensor, STRATA_ACCESS_WRITE));
    assert_int_equal(strata_launch_skipped(&launch), 2);
    check_ok(strata_launch_use_dlpack(&launch, &own, STRATA_ACCESS_WRITE));
    assert_int_equal(strata_launch_skipped(&launch), 2);
    check_ok(strata_launch_use_arrow(&launch, &array, STRATA_ACCESS_READ));
    assert_int_equal(strata_launch_skipped(&launch), 4);
    assert_int_equal(launch.count, 1);
    check_ok(strata_launch_preflight(&launch));
    test_fill(block.address, 1, BYTES, stream);
    check_ok(strata_launch_commit(&launch));
    end();
    assert_int_equal(strata_launch_skipped(NULL), 0);
    test_free_on(fixture, &block, stream);
}

static void memory_elsewhere_is_refused_or_counted(test_fixture *fixture)
{
    const void *buffers[] = {pointer(foreign_memory())};
    struct ArrowDeviceArray arrays[] = {on_device(array_of(buffers, 1)), on_device(array_of(buffers, 1))};
    DLManagedTensorVersioned tensors[] = {tensor_at(foreign), tensor_at(foreign)};
    arrays[0].device_type = ARROW_DEVICE_CPU;
    tensors[0].dl_tensor.device.device_type = kDLCPU;
    arrays[1].device_id = tensors[1].dl_tensor.device.device_id = 1;
    for (int i = 0; i < 2; i++) {
        const strata_status refusal = i ? STRATA_ERROR_WRONG_DEVICE : STRATA_ERROR_FOREIGN_POINTER;
        begin(fixture, NULL, STRATA_LAUNCH_STRICT);
        check_status(strata_launch_use_arrow(&launch, &arrays[i], STRATA_ACCESS_READ), refusal);
        check_refused(refusal);
        begin(fixture, NULL, STRATA_LAUNCH_STRICT);
        check_status(strata_launch_use_dlpack(&launch, &tensors[i], STRATA_ACCESS_READ), refusal);
        check_refused(refusal);
        begin(fixture, NULL, STRATA_LAUNCH_PERMISSIVE);
        check_ok(strata_launch_use_arrow(&launch, &arrays[i], STRATA_ACCESS_READ));
        check_ok(strata_launch_use_dlpack(&launch, &tensors[i], STRATA_ACCESS_READ));
        assert_int_equal(strata_launch_skipped(&launch), 2);
        check_ok(strata_launch_preflight(&launch));
        check_ok(strata_launch_cancel(&launch));
        end();
    }
}

/* ---- memory of the stack ---- */

typedef strata_status (*name_use)(const strata_block *block, strata_access access);

static strata_status use_tensor(const strata_block *block, strata_access access)
{
    const DLManagedTensorVersioned tensor = tensor_at(block->address);
    return strata_launch_use_dlpack(&launch, &tensor, access);
}

/* The block is the dictionary of the child of an array without buffers. */
static strata_status use_array(const strata_block *block, strata_access access)
{
    const void *buffers[] = {NULL, pointer(block->address + 8)};
    struct ArrowArray dictionary = array_of(buffers, 2), child = array_of(NULL, 0), *children[] = {&child};
    struct ArrowDeviceArray array = on_device(array_of(NULL, 0));
    child.dictionary = &dictionary;
    array.array.n_children = 1;
    array.array.children = children;
    return strata_launch_use_arrow(&launch, &array, access);
}

static void tensors_and_arrays_order_launches_as_blocks_do(test_fixture *fixture)
{
    static const name_use uses[] = {use_tensor, use_array};
    for (size_t i = 0; i < 2; i++) {
        CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_UNKNOWN);
        strata_block block = test_allocate(fixture, BYTES, writer);
        test_stall *stall = test_stall_begin(writer);
        begin(fixture, writer, STRATA_LAUNCH_STRICT);
        check_ok(uses[i](&block, STRATA_ACCESS_WRITE));
        check_ok(strata_launch_preflight(&launch));
        test_fill(block.address, 0x42, BYTES, writer);
        check_ok(strata_launch_commit(&launch));
        end();
        begin(fixture, reader, STRATA_LAUNCH_STRICT);
        check_ok(uses[i](&block, STRATA_ACCESS_READ));
        check_ok(strata_launch_preflight(&launch));
        const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, reader);
        check_ok(strata_launch_commit(&launch));
        end();
        test_stall_release(stall);
        test_synchronize(reader);
        check_bytes(seen, 0x42, BYTES);
        test_stall_end(stall);
        test_free_on(fixture, &block, writer);
    }
}

static void strides_lead_anywhere_inside_of_the_block_and_not_outside(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, BYTES, NULL);
    const size_t floats = block.bytes / 4;
    DLManagedTensorVersioned tensor = tensor_at(block.address);
    shape[0] = 2, strides[0] = (int64_t)(floats / 2), shape[1] = (int64_t)(floats / 4), strides[1] = 2;
    begin(fixture, NULL, STRATA_LAUNCH_STRICT);
    check_ok(strata_launch_use_dlpack(&launch, &tensor, STRATA_ACCESS_READ));
    tensor.dl_tensor.byte_offset = 4;
    check_ok(strata_launch_use_dlpack(&launch, &tensor, STRATA_ACCESS_READ));
    strides[1] = -1, shape[1] = (int64_t)(floats / 2);
    tensor.dl_tensor.byte_offset = block.bytes / 2 - 4; /* rows from their last element to their first */
    check_ok(strata_launch_use_dlpack(&launch, &tensor, STRATA_ACCESS_READ));
    end();
    begin(fixture, NULL, STRATA_LAUNCH_STRICT);
    tensor.dl_tensor.byte_offset = block.bytes / 2;
    check_status(strata_launch_use_dlpack(&launch, &tensor, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "exceed block");
    check_refused(STRATA_ERROR_INVALID_VALUE);
    tensor.dl_tensor.dtype = (DLDataType){kDLFloat4_e2m1fn, 4, 1}; /* two in a byte */
    strides[0] = (int64_t)block.bytes, strides[1] = 1, shape[1] = (int64_t)block.bytes;
    tensor.dl_tensor.byte_offset = 0;
    begin(fixture, NULL, STRATA_LAUNCH_STRICT);
    check_ok(strata_launch_use_dlpack(&launch, &tensor, STRATA_ACCESS_READ));
    tensor.flags = DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED; /* a byte each */
    check_status(strata_launch_use_dlpack(&launch, &tensor, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_refused(STRATA_ERROR_INVALID_VALUE);
    test_free_on(fixture, &block, NULL);
}

static void wrong_tensors_are_refused_in_both_modes(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, BYTES, NULL);
    for (int i = 0; i < 8; i++) {
        DLManagedTensorVersioned tensor = tensor_at(block.address);
        tensor.version.major = i == 0 ? 2 : 1;
        tensor.flags = i == 1 ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
        tensor.dl_tensor.data = i == 2 ? NULL : tensor.dl_tensor.data;
        tensor.dl_tensor.strides = i == 3 ? NULL : strides;
        tensor.dl_tensor.byte_offset = i == 4 ? UINT64_MAX : 0;
        shape[1] = i == 5 ? INT64_MAX : FLOATS / 2;
        tensor.dl_tensor.dtype.bits = i == 6 ? 0 : 32;
        begin(fixture, NULL, i % 2 ? STRATA_LAUNCH_STRICT : STRATA_LAUNCH_PERMISSIVE);
        const strata_status want = i == 0 ? STRATA_ERROR_UNSUPPORTED : STRATA_ERROR_INVALID_VALUE;
        check_status(strata_launch_use_dlpack(&launch, i == 7 ? NULL : &tensor, STRATA_ACCESS_WRITE), want);
        check_refused(want);
    }
    DLManagedTensorVersioned tensor = tensor_at(0);
    tensor.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    begin(fixture, NULL, STRATA_LAUNCH_STRICT);
    shape[0] = 0; /* no memory, no use */
    check_ok(strata_launch_use_dlpack(&launch, &tensor, STRATA_ACCESS_READ));
    check_ok(strata_launch_preflight(&launch));
    check_ok(strata_launch_cancel(&launch));
    end();
    check_status(strata_launch_use_dlpack(&launch, &tensor, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_launch_use_dlpack(NULL, &tensor, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
    test_free_on(fixture, &block, NULL);
}

/* ---- Arrow's arrays ---- */

static void a_launch_waits_for_the_event_of_an_array(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream producer = test_stream(fixture, TEST_STREAM_UNKNOWN), stream = test_stream(fixture, kind);
        const void *buffers[] = {pointer(foreign_memory())};
        struct ArrowDeviceArray array = on_device(array_of(buffers, 1));
        check_cu(test_cu()->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
        test_stall *stall = test_stall_begin(producer);
        test_fill(foreign, 0x21, BYTES, producer);
        check_cu(test_cu()->EventRecord(event, producer));
        array.sync_event = &event;
        begin(fixture, stream, STRATA_LAUNCH_PERMISSIVE);
        check_ok(strata_launch_use_arrow(&launch, &array, STRATA_ACCESS_READ));
        check_ok(strata_launch_preflight(&launch));
        const unsigned char *seen = test_copy_back(fixture, foreign, BYTES, stream);
        check_ok(strata_launch_commit(&launch));
        end();
        test_stall_release(stall);
        test_synchronize(stream);
        check_bytes(seen, 0x21, BYTES);
        test_stall_end(stall);
        check_cu(test_cu()->EventDestroy(event));
        event = NULL;
        test_stream_close(fixture, producer);
        test_stream_close(fixture, stream);
    }
}

static void an_array_with_an_event_leaves_a_capture_alone(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    const void *buffers[] = {pointer(foreign_memory())};
    struct ArrowDeviceArray array = on_device(array_of(buffers, 1));
    check_cu(test_cu()->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    check_cu(test_cu()->EventRecord(event, test_stream(fixture, TEST_STREAM_UNKNOWN)));
    array.sync_event = &event;
    begin(fixture, stream, STRATA_LAUNCH_PERMISSIVE);
    test_begin_capture(stream);
    const strata_status status = strata_launch_use_arrow(&launch, &array, STRATA_ACCESS_READ);
    assert_int_equal(test_end_capture(stream), 0);
    check_status(status, STRATA_ERROR_STREAM_CAPTURE);
    check_refused(STRATA_ERROR_STREAM_CAPTURE);
}

static void an_array_that_is_refused_waits_for_nothing(test_fixture *fixture)
{
    test_calls calls;
    const void *buffers[] = {pointer(foreign_memory())};
    struct ArrowDeviceArray array = on_device(array_of(buffers, 1));
    array.sync_event = &event;
    begin(fixture, NULL, STRATA_LAUNCH_STRICT);
    test_calls_begin(&calls);
    check_status(strata_launch_use_arrow(&launch, &array, STRATA_ACCESS_READ), STRATA_ERROR_FOREIGN_POINTER);
    assert_int_equal(test_calls_total(&calls), 0);
    check_refused(STRATA_ERROR_FOREIGN_POINTER);
}

static void arrays_without_elements_are_left_alone(test_fixture *fixture)
{
    const void *buffers[] = {pointer(foreign_memory())};
    struct ArrowDeviceArray array = on_device(array_of(buffers, 1));
    array.array.length = 0;
    begin(fixture, NULL, STRATA_LAUNCH_STRICT);
    check_ok(strata_launch_use_arrow(&launch, &array, STRATA_ACCESS_READ));
    check_ok(strata_launch_preflight(&launch));
    check_ok(strata_launch_cancel(&launch));
    end();
}

static void wrong_arrays_are_refused(test_fixture *fixture)
{
    struct ArrowArray nested = array_of(NULL, 0), *self[] = {&nested}, *missing[] = {NULL};
    nested.n_children = 1;
    nested.children = self; /* without an end */
    struct ArrowDeviceArray arrays[] = {on_device(nested),
                                        on_device(array_of(NULL, 0)),
                                        on_device(array_of(NULL, 0)),
                                        on_device(array_of(NULL, 0)),
                                        on_device(array_of(NULL, 0)),
                                        on_device(array_of(NULL, 0))};
    arrays[1].array.release = NULL;
    arrays[2].array.n_buffers = 1;
    arrays[3].array.n_buffers = -1;
    arrays[4].array.n_children = 1;
    arrays[4].array.children = missing;
    arrays[5].array.length = -1;
    for (size_t i = 0; i <= sizeof arrays / sizeof arrays[0]; i++) {
        const struct ArrowDeviceArray *array = i < sizeof arrays / sizeof arrays[0] ? &arrays[i] : NULL;
        begin(fixture, NULL, STRATA_LAUNCH_PERMISSIVE);
        check_status(strata_launch_use_arrow(&launch, array, STRATA_ACCESS_READ), STRATA_ERROR_INVALID_VALUE);
        check_refused(STRATA_ERROR_INVALID_VALUE);
    }
}

/* ---- kinds of memory ---- */

static void pinned_and_managed_memory_is_exported_as_what_it_is(test_fixture *fixture)
{
    static const struct {
        const char *stack;
        int type;
    } kinds[] = {{"pinned", kDLCUDAHost}, {"managed", kDLCUDAManaged}, {"direct", kDLCUDA}};
    (void)fixture;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        strata_ref *ref, *back;
        DLManagedTensorVersioned *tensor;
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = kinds[i].stack}, &runtime_of_case));
        check_ok(strata_ref_allocate(runtime_of_case, STRATA_ELEMENT_U8, 64, false, NULL, &ref));
        const strata_status exported = strata_ref_export_dlpack(ref, STRATA_DLPACK_STREAM_LEGACY, NULL, &tensor);
        strata_ref_release(ref);
        check_ok(exported);
        const int type = (int)tensor->dl_tensor.device.device_type;
        const strata_status imported = strata_ref_import_dlpack(runtime_of_case, tensor, &back);
        if (imported == STRATA_SUCCESS)
            strata_ref_release(back);
        else
            tensor->deleter(tensor);
        check_ok(imported);
        assert_int_equal(type, kinds[i].type);
        strata_runtime_reap_pending(runtime_of_case);
        check_ok(strata_runtime_destroy(runtime_of_case));
        runtime_of_case = NULL;
    }
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(strict_launches_refuse_foreign_memory),
        TEST_CASE(permissive_launches_leave_foreign_memory_out_and_count_it),
        TEST_CASE(memory_elsewhere_is_refused_or_counted),
        TEST_CASE(tensors_and_arrays_order_launches_as_blocks_do),
        TEST_CASE(strides_lead_anywhere_inside_of_the_block_and_not_outside),
        TEST_CASE(wrong_tensors_are_refused_in_both_modes),
        TEST_CASE(a_launch_waits_for_the_event_of_an_array),
        TEST_CASE(an_array_with_an_event_leaves_a_capture_alone),
        TEST_CASE(an_array_that_is_refused_waits_for_nothing),
        TEST_CASE(arrays_without_elements_are_left_alone),
        TEST_CASE(wrong_arrays_are_refused),
        TEST_CASE(pinned_and_managed_memory_is_exported_as_what_it_is),
    };
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
