/* Requests for cuBLAS; on the simulated driver the stand-in computes. */
#include "support/service.h"

enum { M = 5, N = 7, K = 3 };

static strata_service *service;

/* A reference with these elements. */
static strata_ref *make(const float *values, size_t count)
{
    strata_future *future;
    strata_host_buffer *buffer = test_buffer(count * sizeof *values, 0);
    memcpy(strata_host_buffer_memory(buffer), values, count * sizeof *values);
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_F32, count, NULL, &future));
    strata_ref *ref = test_take(future).ref;
    check_ok(test_copy(service, ref, buffer, false));
    strata_host_buffer_release(buffer);
    return ref;
}

static void read_back(strata_ref *ref, float *values)
{
    strata_host_buffer *buffer = test_buffer(strata_ref_len(ref) * sizeof *values, 0);
    check_ok(test_copy(service, ref, buffer, true));
    memcpy(values, strata_host_buffer_memory(buffer), strata_ref_len(ref) * sizeof *values);
    strata_host_buffer_release(buffer);
}

static void need_library(void)
{
    strata_future *future;
    strata_ref *x = make((const float[]){1}, 1);
    const strata_service_blas_call call = {.routine = STRATA_BLAS_SCAL,
                                           .call.vectors = {.n = 1, .alpha = 1, .x = strata_blas_of_ref(x)}};
    check_ok(strata_service_blas(service, &call, NULL, &future));
    const strata_status status = strata_future_wait(future);
    strata_future_release(future);
    check_ok(strata_ref_release(x));
    if (status == STRATA_ERROR_UNSUPPORTED) {
        print_message("skipped: %s\n", strata_last_error()->message);
        skip();
    }
    assert_int_equal(status, STRATA_SUCCESS);
}

static void sgemm_multiplies_in_the_order_that_is_said(void **state)
{
    (void)state;
    float a[M * K], b[K * N], c[M * N], expected[M * N];
    need_library();
    for (int i = 0; i < M * K; i++)
        a[i] = (float)(i % 11 - 5);
    for (int i = 0; i < K * N; i++)
        b[i] = (float)(i % 7 - 3);
    for (int i = 0; i < M * N; i++)
        c[i] = (float)i;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += a[i * K + k] * b[k * N + j];
            expected[i * N + j] = 2 * sum + 3 * c[i * N + j];
        }
    strata_ref *ra = make(a, M * K), *rb = make(b, K * N), *rc = make(c, M * N);
    const strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS,
                                        .m = M,
                                        .n = N,
                                        .k = K,
                                        .alpha = 2,
                                        .beta = 3,
                                        .a = strata_blas_of_ref(ra),
                                        .b = strata_blas_of_ref(rb),
                                        .c = strata_blas_of_ref(rc)};
    strata_future *future;
    check_ok(strata_service_sgemm(service, &call, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    read_back(rc, c);
    for (int i = 0; i < M * N; i++)
        assert_float_equal(c[i], expected[i], 1e-4);
    check_ok(strata_ref_release(ra));
    check_ok(strata_ref_release(rb));
    check_ok(strata_ref_release(rc));
}

static void sizes_that_do_not_fit_fail_the_request_alone(void **state)
{
    (void)state;
    float zeros[M * N] = {0};
    need_library();
    strata_ref *small = make(zeros, M);
    const strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS,
                                        .m = M,
                                        .n = N,
                                        .k = K,
                                        .alpha = 1,
                                        .a = strata_blas_of_ref(small),
                                        .b = strata_blas_of_ref(small),
                                        .c = strata_blas_of_ref(small)};
    strata_future *future;
    check_ok(strata_service_sgemm(service, &call, NULL, &future));
    const strata_answer answer = test_take(future);
    assert_int_equal(answer.status, STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(answer.failure, STRATA_FAILURE_REQUEST);
    const strata_block block = {0};
    const strata_service_blas_call of_block = {
        .routine = STRATA_BLAS_SCAL, .call.vectors = {.n = 1, .x = strata_blas_of_block(&block, STRATA_ELEMENT_F32)}};
    check_status(strata_service_blas(service, &of_block, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(
        strata_service_blas(service, &(strata_service_blas_call){.routine = (strata_blas_routine)99}, NULL, NULL),
        STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_ref_release(small));
}

static void vectors_are_scaled_added_and_multiplied(void **state)
{
    (void)state;
    float y[3], result[1];
    need_library();
    strata_ref *rx = make((const float[]){1, 2, 3}, 3), *ry = make((const float[]){10, 20, 30}, 3),
               *rr = make((const float[]){0}, 1);
    strata_service_blas_call call = {.routine = STRATA_BLAS_AXPY,
                                     .call.vectors = {.n = 3,
                                                      .alpha = 2,
                                                      .x = strata_blas_of_ref(rx),
                                                      .y = strata_blas_of_ref(ry),
                                                      .result = strata_blas_of_ref(rr)}};
    check_ok(strata_service_blas(service, &call, NULL, NULL));
    call.routine = STRATA_BLAS_SCAL;
    check_ok(strata_service_blas(service, &call, NULL, NULL)); /* x = 2, 4, 6 */
    call.routine = STRATA_BLAS_DOT;
    check_ok(strata_service_blas(service, &call, NULL, NULL));
    read_back(ry, y);
    read_back(rr, result);
    assert_float_equal(y[0], 12, 0);
    assert_float_equal(y[2], 36, 0);
    assert_float_equal(result[0], 2 * 12 + 4 * 24 + 6 * 36, 0);
    call.routine = STRATA_BLAS_NRM2;
    check_ok(strata_service_blas(service, &call, NULL, NULL));
    read_back(rr, result);
    assert_float_equal(result[0] * result[0], 4 + 16 + 36, 1e-3);
    check_ok(strata_ref_release(rx));
    check_ok(strata_ref_release(ry));
    check_ok(strata_ref_release(rr));
}

static void a_snapshot_has_the_handles_of_libraries(void **state)
{
    (void)state;
    strata_library library;
    need_library();
    check_ok(strata_service_find_library(service, "blas", &library));
    assert_non_null(library.handle);
    assert_true(strlen(library.version) > 0);
    check_status(strata_service_find_library(service, "dnn", &library), STRATA_ERROR_INVALID_VALUE);
    strata_service *with = test_service_make(&(strata_service_options){.libraries = "blas"});
    check_ok(strata_service_find_library(with, "blas", &library));
    assert_non_null(library.handle);
    check_ok(strata_service_destroy(with));
}

static void a_service_without_libraries_computes_nothing(void **state)
{
    (void)state;
    strata_service *none = test_service_make(&(strata_service_options){.libraries = ""});
    strata_ref *x = test_service_allocate(none, 4);
    strata_future *future;
    const strata_service_blas_call call = {.routine = STRATA_BLAS_SCAL,
                                           .call.vectors = {.n = 1, .alpha = 1, .x = strata_blas_of_ref(x)}};
    check_ok(strata_service_blas(none, &call, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_ERROR_UNSUPPORTED);
    check_ok(strata_ref_release(x));
    check_ok(strata_service_destroy(none));
    strata_service *bad;
    check_ok(strata_service_create(&(strata_service_options){.libraries = "no_such"}, &bad));
    check_status(strata_service_wait_ready(bad, 20ull * TEST_SECOND), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_service_destroy(bad));
}

static void a_worker_without_libraries_computes_nothing(void **state)
{
    (void)state;
    strata_library library;
    strata_service *none =
        test_service_make(&(strata_service_options){.form = STRATA_SERVICE_ISOLATED, .libraries = ""});
    strata_ref *x = test_service_allocate(none, 4);
    strata_future *future;
    const strata_service_blas_call call = {.routine = STRATA_BLAS_SCAL,
                                           .call.vectors = {.n = 1, .alpha = 1, .x = strata_blas_of_ref(x)}};
    check_ok(strata_service_blas(none, &call, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_ERROR_UNSUPPORTED);
    check_status(strata_service_find_library(none, "blas", &library), STRATA_ERROR_UNSUPPORTED);
    check_ok(strata_ref_release(x));
    check_ok(strata_service_destroy(none));
}

int main(void)
{
    test_open_driver();
    service = test_service_make(NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgemm_multiplies_in_the_order_that_is_said),
        cmocka_unit_test(sizes_that_do_not_fit_fail_the_request_alone),
        cmocka_unit_test(vectors_are_scaled_added_and_multiplied),
        cmocka_unit_test(a_snapshot_has_the_handles_of_libraries),
        cmocka_unit_test(a_service_without_libraries_computes_nothing),
    };
    const struct CMUnitTest isolated[] = {
        cmocka_unit_test(sgemm_multiplies_in_the_order_that_is_said),
        cmocka_unit_test(sizes_that_do_not_fit_fail_the_request_alone),
        cmocka_unit_test(vectors_are_scaled_added_and_multiplied),
        cmocka_unit_test(a_worker_without_libraries_computes_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += strata_service_destroy(service) != STRATA_SUCCESS;
    service = test_service_make(&(strata_service_options){.form = STRATA_SERVICE_ISOLATED});
    failed += cmocka_run_group_tests_name("isolated", isolated, NULL, NULL);
    return strata_service_destroy(service) == STRATA_SUCCESS ? failed : 1;
}
