/* Failures by class, and libraries of the program's own, which a service opens, hands out and ends. */
#include "support/service.h"

#include "core/base/error.h"

#include <strata/libraries.h>
#include <strata/service_blas.h>

/* ---- classes ---- */

static strata_status fail_as_told(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    (void)stream;
    return strata_fail(*(strata_status *)data, "dnn: its own text, number 7");
}

/* The service goes on after each of these. */
static void failures_that_cost_nothing_have_their_class_and_text(void **state)
{
    (void)state;
    static struct {
        strata_status status;
        strata_failure_class class;
        const char *name;
    } cases[] = {
        {STRATA_ERROR_OUT_OF_MEMORY, STRATA_FAILURE_OUT_OF_MEMORY, "out of memory"},
        {STRATA_ERROR_OUT_OF_BUDGET, STRATA_FAILURE_OUT_OF_MEMORY, "out of memory"},
        {STRATA_ERROR_OUT_OF_HOST_MEMORY, STRATA_FAILURE_OUT_OF_MEMORY, "out of memory"},
        {STRATA_ERROR_LIBRARY, STRATA_FAILURE_LIBRARY, "library"},
        {STRATA_ERROR_TIMEOUT, STRATA_FAILURE_TIMEOUT, "timeout"},
        {STRATA_ERROR_INVALID_VALUE, STRATA_FAILURE_REQUEST, "request"},
        {STRATA_ERROR_STALE, STRATA_FAILURE_REQUEST, "request"},
    };
    strata_service *service = test_service_make(NULL);
    strata_ref *ref = test_service_allocate(service, 64);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const strata_service_operation operation = {.function = fail_as_told, .data = &cases[i].status};
        strata_future *future;
        strata_answer answer;
        check_ok(strata_service_run(service, &operation, NULL, &future));
        check_status(strata_future_wait(future), cases[i].status);
        check_last_error(cases[i].status, "dnn: its own text, number 7");
        check_ok(strata_future_take(future, &answer));
        assert_int_equal(answer.failure, cases[i].class);
        assert_string_equal(strata_failure_class_name(answer.failure), cases[i].name);
        strata_future_release(future);
        assert_true(test_ref_has(service, ref, 0));
    }
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(service));
}

static strata_status fail_as_the_driver(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    (void)stream;
    return strata_fail_driver(*(CUresult *)data, "cuModuleLoadData", "loading a module");
}

/* CUDA_DISABLE_PTX_JIT, for one, is no reason to stop. */
static void what_an_image_of_a_module_causes_fails_its_request_alone(void **state)
{
    (void)state;
    static CUresult results[] = {
        CUDA_ERROR_INVALID_IMAGE,
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        CUDA_ERROR_INVALID_PTX,
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
        CUDA_ERROR_JIT_COMPILATION_DISABLED,
        CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
        CUDA_ERROR_INVALID_SOURCE,
        CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
    };
    strata_service *service = test_service_make(NULL);
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        const strata_service_operation operation = {.function = fail_as_the_driver, .data = &results[i]};
        strata_future *future;
        check_ok(strata_service_run(service, &operation, NULL, &future));
        assert_int_equal(test_take(future).failure, STRATA_FAILURE_REQUEST);
    }
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
    check_ok(strata_service_destroy(service));
}

/* What no context can be made after. */
static void a_failure_that_is_unrecoverable_stops_the_service_which_says_why(void **state)
{
    (void)state;
    strata_service *service = test_service_make(NULL);
    strata_status status = STRATA_ERROR_SHUT_DOWN;
    const strata_service_operation operation = {.function = fail_as_told, .data = &status};
    strata_future *future;
    check_ok(strata_service_run(service, &operation, NULL, &future));
    assert_int_equal(test_take(future).failure, STRATA_FAILURE_UNRECOVERABLE);
    check_status(strata_service_wait_ready(service, 20ull * TEST_SECOND), STRATA_ERROR_SHUT_DOWN);
    check_last_error(STRATA_ERROR_SHUT_DOWN, "dnn: its own text, number 7");
    check_status(strata_service_allocate(service, STRATA_ELEMENT_U8, 1, NULL, NULL), STRATA_ERROR_SHUT_DOWN);
    check_ok(strata_service_destroy(service));
}

/* No handler is asked. */
static void any_other_failure_stops_the_service_by_default(void **state)
{
    (void)state;
    strata_service *service = test_service_make(NULL);
    strata_status status = STRATA_ERROR_CORRUPTED;
    const strata_service_operation operation = {.function = fail_as_told, .data = &status};
    strata_future *future;
    check_ok(strata_service_run(service, &operation, NULL, &future));
    assert_int_equal(test_take(future).failure, STRATA_FAILURE_OTHER);
    for (int i = 0; i < 20000 && strata_service_stopped(service) == STRATA_SUCCESS; i++)
        usleep(500);
    check_status(strata_service_stopped(service), STRATA_ERROR_CORRUPTED);
    check_last_error(STRATA_ERROR_CORRUPTED, "dnn: its own text, number 7");
    check_ok(strata_service_destroy(service));
}

/* cublasLt has no algorithm for f8 matrices of odd sizes. */
static void meet_failure_of_cublas(strata_service *service)
{
    enum { SIDE = 15 };
    strata_ref *refs[2];
    strata_future *future;
    strata_answer answer;
    for (int i = 0; i < 2; i++) {
        check_ok(
            strata_service_allocate(service, i ? STRATA_ELEMENT_F32 : STRATA_ELEMENT_F8E4M3, 16 * 16, NULL, &future));
        refs[i] = test_take(future).ref;
    }
    strata_service_blas_call call = {.routine = STRATA_BLAS_GEMM,
                                     .call.gemm = {.order = STRATA_BLAS_COLUMNS,
                                                   .transpose_a = true,
                                                   .m = SIDE,
                                                   .n = SIDE,
                                                   .k = SIDE,
                                                   .alpha = 1,
                                                   .a = strata_blas_of_ref(refs[0]),
                                                   .b = strata_blas_of_ref(refs[0]),
                                                   .c = strata_blas_of_ref(refs[1])}};
    check_ok(strata_service_blas(service, &call, NULL, &future));
    const strata_status status = strata_future_wait(future);
    if (status == STRATA_ERROR_UNSUPPORTED) {
        print_message("skipped: %s\n", strata_last_error()->message);
    } else {
        assert_int_equal(status, STRATA_ERROR_LIBRARY);
        check_last_error(STRATA_ERROR_LIBRARY, "cublasLt");
        check_last_error(STRATA_ERROR_LIBRARY, "CUBLAS_STATUS_NOT_SUPPORTED");
        check_ok(strata_future_take(future, &answer));
        assert_int_equal(answer.failure, STRATA_FAILURE_LIBRARY);
    }
    strata_future_release(future);
    check_ok(strata_ref_release(refs[0]));
    check_ok(strata_ref_release(refs[1]));
}

static void cublas_fails_with_its_name_and_its_own_text(void **state)
{
    (void)state;
    strata_service *service = test_service_make(NULL);
    meet_failure_of_cublas(service);
    check_ok(strata_service_destroy(service));
}

/* The text comes from another process. */
static void cublas_fails_in_a_worker_with_its_name_and_its_own_text(void **state)
{
    (void)state;
    const strata_service_options options = {.form = STRATA_SERVICE_ISOLATED};
    strata_service *service = test_service_make(&options);
    meet_failure_of_cublas(service);
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
    check_ok(strata_service_destroy(service));
}

/* ---- libraries of the program ---- */

static int created, destroyed;

static strata_status create(strata_runtime *runtime, CUstream stream, void *data, void **handle, char version[64])
{
    assert_non_null(runtime);
    assert_non_null(stream);
    strcpy(version, "9.1");
    *handle = data;
    created++;
    return STRATA_SUCCESS;
}

static void destroy(void *handle, void *data)
{
    assert_ptr_equal(handle, data);
    destroyed++;
}

static void a_library_of_the_program_is_opened_with_the_context_and_handed_out(void **state)
{
    (void)state;
    static int own;
    strata_library library;
    const strata_library_kind kind = {.name = "dnn", .create = create, .destroy = destroy, .data = &own};
    check_ok(strata_library_register(&kind));
    strata_service *service = test_service_make(&(strata_service_options){.libraries = "dnn"});
    assert_int_equal(created, 1);
    check_ok(strata_service_find_library(service, "dnn", &library));
    assert_ptr_equal(library.handle, &own);
    assert_string_equal(library.name, "dnn");
    assert_string_equal(library.version, "9.1");
    check_status(strata_service_find_library(service, "blas", &library), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "dnn");
    assert_null(library.handle);
    check_ok(strata_service_destroy(service));
    assert_int_equal(destroyed, 1);
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_that_cost_nothing_have_their_class_and_text),
        cmocka_unit_test(what_an_image_of_a_module_causes_fails_its_request_alone),
        cmocka_unit_test(a_failure_that_is_unrecoverable_stops_the_service_which_says_why),
        cmocka_unit_test(any_other_failure_stops_the_service_by_default),
        cmocka_unit_test(cublas_fails_with_its_name_and_its_own_text),
        cmocka_unit_test(cublas_fails_in_a_worker_with_its_name_and_its_own_text),
        cmocka_unit_test(a_library_of_the_program_is_opened_with_the_context_and_handed_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
