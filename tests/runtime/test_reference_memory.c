/* References, device states and fences without host memory: each allocation of the library fails once. */
#include "support/driver.h"

#include <strata/dlpack_types.h>

static size_t countdown; /* allocations until one fails; 0: none does */
static bool refused;     /* one has failed */

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);
void *__real_strata_host_zalloc_aligned(size_t alignment, size_t bytes);
void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes);

static bool fails(void)
{
    if (!countdown || --countdown)
        return false;
    refused = true;
    return true;
}

void *__wrap_strata_host_zalloc(size_t bytes)
{
    return fails() ? NULL : __real_strata_host_zalloc(bytes);
}

void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __real_strata_host_zalloc_aligned(alignment, bytes);
}

/* Calls `make` with the first allocation failing, the second, and so on. *out is NULL after each failure. */
static void try_without_memory(strata_status (*make)(void *scene, void **out), void *scene,
                               strata_status (*end)(void *made))
{
    size_t failures = 0;
    for (size_t nth = 1;; nth++) {
        void *out = scene;
        refused = false;
        countdown = nth;
        const strata_status status = make(scene, &out);
        countdown = 0;
        if (status == STRATA_SUCCESS) {
            check_ok(end(out)); /* also where the library managed without that allocation */
            if (!refused)
                break;
            continue;
        }
        assert_true(refused);
        check_status(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
        assert_null(out);
        failures++;
    }
    assert_true(failures > 0);
}

static strata_status make_runtime(void *scene, void **out)
{
    (void)scene;
    return strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, (strata_runtime **)out);
}

static strata_status end_runtime(void *made)
{
    return strata_runtime_destroy(made);
}

static strata_status allocate(void *runtime, void **out)
{
    return strata_ref_allocate(runtime, STRATA_ELEMENT_F32, 16, true, NULL, (strata_ref **)out);
}

static strata_status view(void *whole, void **out)
{
    return strata_ref_view(whole, 4, 2, STRATA_ELEMENT_F32, (strata_ref **)out);
}

static strata_status release(void *made)
{
    return strata_ref_release(made);
}

static strata_status watch(void *runtime, void **out)
{
    return strata_generation_watch_create(strata_runtime_device_state(runtime), NULL, NULL,
                                          (strata_generation_watch **)out);
}

static strata_status end_watch(void *made)
{
    return strata_generation_watch_destroy(made);
}

static strata_status make_fence(void *runtime, void **out)
{
    return strata_fence_create(runtime, (strata_fence **)out);
}

static strata_status end_fence(void *made)
{
    return strata_fence_destroy(made);
}

static strata_status make_scalar(void *runtime, void **out)
{
    return strata_scalar_create(runtime, STRATA_ELEMENT_F64, NULL, NULL, (strata_scalar **)out);
}

static strata_status end_scalar(void *made)
{
    return strata_scalar_destroy(made);
}

static strata_status export_tensor(void *whole, void **out)
{
    return strata_ref_export_dlpack(whole, STRATA_DLPACK_STREAM_LEGACY, NULL, (DLManagedTensorVersioned **)out);
}

static strata_status end_tensor(void *made)
{
    DLManagedTensorVersioned *tensor = made;
    tensor->deleter(tensor);
    return STRATA_SUCCESS;
}

static struct {
    strata_runtime *runtime;
    DLManagedTensorVersioned *tensor;
    unsigned deleted;
} import;

static void count_deletion(DLManagedTensorVersioned *tensor)
{
    (void)tensor;
    import.deleted++;
}

static strata_status import_tensor(void *tensor, void **out)
{
    assert_int_equal(import.deleted, 0); /* not by a call that fails */
    return strata_ref_import_dlpack(import.runtime, tensor, (strata_ref **)out);
}

static void what_is_made_without_host_memory_leaves_nothing_behind(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_ref *whole;
    strata_usage usage;
    try_without_memory(make_runtime, NULL, end_runtime);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &runtime));
    try_without_memory(allocate, runtime, release);
    try_without_memory(watch, runtime, end_watch);
    try_without_memory(make_fence, runtime, end_fence);
    check_ok(strata_ref_allocate(runtime, STRATA_ELEMENT_F32, 16, false, NULL, &whole));
    try_without_memory(view, whole, release);
    try_without_memory(export_tensor, whole, end_tensor);
    try_without_memory(make_scalar, runtime, end_scalar);
    check_ok(strata_ref_export_dlpack(whole, STRATA_DLPACK_STREAM_NONE, NULL, &import.tensor));
    DLManagedTensorVersioned copy = *import.tensor;
    copy.deleter = count_deletion;
    import.runtime = runtime;
    try_without_memory(import_tensor, &copy, release);
    assert_int_equal(import.deleted, 1);
    end_tensor(import.tensor);
    check_ok(strata_ref_release(whole));
    check_ok(strata_runtime_usage(runtime, &usage));
    assert_int_equal(usage.live_blocks, 0);
    check_ok(strata_runtime_destroy(runtime));
}

/* After the failure the block is the caller's. */
static void a_block_is_the_callers_if_its_adoption_fails(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_block block;
    strata_ref *ref;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &runtime));
    check_ok(strata_runtime_allocate(runtime, 64, NULL, &block));
    countdown = 1;
    const strata_status status = strata_ref_adopt(runtime, &block, STRATA_ELEMENT_F32, 16, &ref);
    countdown = 0;
    check_status(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
    assert_null(ref);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_made_without_host_memory_leaves_nothing_behind),
        cmocka_unit_test(a_block_is_the_callers_if_its_adoption_fails),
    };
    test_open_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
