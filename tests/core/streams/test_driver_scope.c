/* Driver scopes: what the driver calls of a layer outside the library need. */
#include "support/captures.h"
#include "support/driver.h"

static CUcontext current(void)
{
    CUcontext context = NULL;
    check_cu(test_cu()->CtxGetCurrent(&context));
    return context;
}

static void the_devices_context_is_current_inside_and_the_callers_afterwards(void **state)
{
    (void)state;
    strata_driver_scope scope, inner;
    CUdeviceptr address;
    const CUcontext own = current();
    check_cu(test_cu()->CtxSetCurrent(NULL));
    assert_int_not_equal(test_cu()->MemAlloc(&address, 4096), CUDA_SUCCESS);
    check_ok(strata_driver_scope_enter(&scope, 0));
    assert_ptr_equal(current(), own);
    check_ok(strata_driver_scope_enter(&inner, 0));
    check_cu(test_cu()->MemAlloc(&address, 4096));
    strata_driver_scope_leave(&inner);
    assert_ptr_equal(current(), own);
    check_cu(test_cu()->MemFree(address));
    strata_driver_scope_leave(&scope);
    assert_null(current());
    check_cu(test_cu()->CtxSetCurrent(own));
}

/* cuMemAlloc ends the captures of its thread, unless the thread's capture mode is relaxed. */
static void a_capture_survives_an_allocation_inside(void **state)
{
    (void)state;
    CUstream stream;
    CUgraph graph = NULL;
    CUdeviceptr address;
    strata_driver_scope scope;
    PFN_cuStreamBeginCapture_v10010 begin;
    PFN_cuStreamEndCapture_v10000 end;
    PFN_cuGraphDestroy_v10000 destroy;
    test_find_driver_call("cuStreamBeginCapture", 10010, &begin);
    test_find_driver_call("cuStreamEndCapture", 10000, &end);
    test_find_driver_call("cuGraphDestroy", 10000, &destroy);
    for (int inside = 0; inside <= 1; inside++) {
        check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        check_cu(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        if (inside)
            check_ok(strata_driver_scope_enter(&scope, 0));
        const CUresult allocated = test_cu()->MemAlloc(&address, 4096);
        if (inside)
            strata_driver_scope_leave(&scope);
        const CUresult ended = end(stream, &graph);
        assert_int_equal(allocated == CUDA_SUCCESS, inside);
        assert_int_equal(ended == CUDA_SUCCESS, inside);
        if (inside) {
            check_cu(destroy(graph));
            check_cu(test_cu()->MemFree(address));
        }
        check_cu(test_cu()->StreamDestroy(stream));
    }
}

static void a_scope_of_no_device_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    strata_driver_scope scope;
    const CUcontext own = current();
    check_status(strata_driver_scope_enter(&scope, -1), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_driver_scope_enter(NULL, 0), STRATA_ERROR_INVALID_VALUE);
    strata_driver_scope_leave(&scope);
    strata_driver_scope_leave(NULL);
    assert_ptr_equal(current(), own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_devices_context_is_current_inside_and_the_callers_afterwards),
        cmocka_unit_test(a_capture_survives_an_allocation_inside),
        cmocka_unit_test(a_scope_of_no_device_is_refused_and_changes_nothing),
    };
    test_open_driver();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
