/* ONNX Runtime itself takes a tensor's memory from the allocator: its CPU library and page-locked memory, which the
 * host reads, so that no GPU is needed. The library: STRATA_ONNX_LIBRARY, which ctest sets to that of the wheel
 * onnxruntime in build/python-tests (scripts/setup test); or libonnxruntime.so.1; else the test is skipped.
 *
 * OrtApi is a table of functions whose order never changes (onnxruntime_c_api.h), so that the header is not needed. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "support/driver.h"

/* Places in OrtApi. */
enum {
    GET_ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_TENSOR_AS_ORT_VALUE = 48,
    GET_TENSOR_MUTABLE_DATA = 51,
    CREATE_CPU_MEMORY_INFO = 69,
    RELEASE_VALUE = 96,
};

enum { WARNING = 2, ALLOCATOR_DEVICE = 0, MEMORY_DEFAULT = 0, FLOAT = 1, ROWS = 100, COLUMNS = 250 };

typedef struct api_base {
    const void *const *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
} api_base;

static const void *const *api;

static struct {
    const char *(*message)(const void *status);
    void *(*create_env)(int level, const char *name, void **out);
    void *(*create_memory_info)(int allocator, int memory, void **out);
    void *(*create_tensor)(void *allocator, const int64_t *shape, size_t rank, int type, void **out);
    void *(*get_data)(void *value, void **out);
    void (*release_value)(void *value);
} ort;

static void take(size_t place, void *into)
{
    memcpy(into, &api[place], sizeof api[place]);
}

static bool open_library(void)
{
    const char *name = getenv("STRATA_ONNX_LIBRARY");
    void *library = dlopen(name ? name : "libonnxruntime.so.1", RTLD_NOW), *found;
    const api_base *(*get_base)(void);
    if (!library || !(found = dlsym(library, "OrtGetApiBase")))
        return false;
    memcpy(&get_base, &found, sizeof found);
    api = get_base()->get_api(STRATA_ONNX_API_VERSION);
    print_message("ONNX Runtime %s\n", get_base()->get_version());
    if (!api)
        return false;
    take(GET_ERROR_MESSAGE, &ort.message);
    take(CREATE_ENV, &ort.create_env);
    take(CREATE_TENSOR_AS_ORT_VALUE, &ort.create_tensor);
    take(GET_TENSOR_MUTABLE_DATA, &ort.get_data);
    take(CREATE_CPU_MEMORY_INFO, &ort.create_memory_info);
    take(RELEASE_VALUE, &ort.release_value);
    return true;
}

static void check_ort(const void *status)
{
    if (status)
        fail_msg("%s", ort.message(status));
}

static void a_tensors_memory_is_a_block(void **state)
{
    static const int64_t shape[] = {ROWS, COLUMNS};
    void *environment, *info, *tensor, *data;
    strata_runtime *runtime;
    strata_onnx_allocator *allocator;
    strata_block block;
    (void)state;
    check_ort(ort.create_env(WARNING, "test", &environment));
    check_ort(ort.create_memory_info(ALLOCATOR_DEVICE, MEMORY_DEFAULT, &info));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pinned"}, &runtime));
    const strata_onnx_options options = {.size = sizeof options, .api_version = STRATA_ONNX_API_VERSION, .info = info};
    check_ok(strata_onnx_allocator_create(runtime, &options, &allocator));
    check_ort(ort.create_tensor(strata_onnx_allocator_get(allocator), shape, 2, FLOAT, &tensor));
    check_ort(ort.get_data(tensor, &data));
    check_ok(strata_runtime_find(runtime, (CUdeviceptr)(uintptr_t)data, &block));
    assert_int_equal(block.requested, ROWS * COLUMNS * sizeof(float));
    memset(data, 1, block.requested);
    check_status(strata_onnx_allocator_destroy(allocator), STRATA_ERROR_BUSY);
    ort.release_value(tensor);
    check_ok(strata_onnx_allocator_destroy(allocator));
    check_ok(strata_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_tensors_memory_is_a_block)};
    if (!open_library()) {
        print_message("skipped: no ONNX Runtime; set STRATA_ONNX_LIBRARY to its library\n");
        return 77;
    }
    test_open_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
