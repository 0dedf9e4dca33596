/* Strata's headers after DLPack's and Arrow's own, of which a program may include both: what those declare is meant. */
#include <stdint.h>

/* ---- as the standards' headers declare them ---- */

#define DLPACK_DLPACK_H_

typedef enum { kDLCUDA = 2 } DLDeviceType;

typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

#define ARROW_C_DATA_INTERFACE
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#define ARROW_C_DEVICE_DATA_INTERFACE
struct ArrowDeviceArray {
    struct ArrowArray array;
    int64_t device_id;
    int32_t device_type;
    void *sync_event;
    int64_t reserved[3];
};

/* ---- Strata's ---- */

#include <strata/dlpack_types.h>

#include "support/driver.h"

static void release_array(struct ArrowArray *array)
{
    array->release = NULL;
}

static void a_tensor_and_an_array_are_passed_as_those_headers_declare_them(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_ref *ref;
    strata_launch launch;
    DLManagedTensorVersioned *tensor;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &runtime));
    check_ok(strata_ref_allocate(runtime, STRATA_ELEMENT_F32, 77, false, NULL, &ref));
    check_ok(strata_ref_export_dlpack(ref, STRATA_DLPACK_STREAM_LEGACY, NULL, &tensor));
    assert_int_equal(tensor->version.major, 1);
    assert_int_equal(tensor->dl_tensor.shape[0], 77);
    assert_int_equal(tensor->dl_tensor.device.device_type, kDLCUDA);
    const void *buffers[] = {tensor->dl_tensor.data};
    const struct ArrowDeviceArray array = {
        .array = {.length = 77, .n_buffers = 1, .buffers = buffers, .release = release_array}, .device_type = kDLCUDA};
    check_ok(strata_launch_begin(&launch, runtime, NULL, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use_dlpack(&launch, tensor, STRATA_ACCESS_READ));
    check_ok(strata_launch_use_arrow(&launch, &array, STRATA_ACCESS_READ));
    assert_int_equal(launch.count, 1);
    check_ok(strata_launch_end(&launch));
    tensor->deleter(tensor);
    check_ok(strata_ref_release(ref));
    check_ok(strata_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_and_an_array_are_passed_as_those_headers_declare_them),
    };
    test_open_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
