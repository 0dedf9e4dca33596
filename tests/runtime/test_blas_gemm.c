/* Products of matrices by cuBLAS, or by the stand-in of the simulated driver, beside plain loops. */
#include "support/blas.h"

enum { M = 5, N = 7, K = 6, GAP = 3, OFFSET = 2 };

static const strata_element types[][2] = {
    {STRATA_ELEMENT_F32, STRATA_ELEMENT_F32},   {STRATA_ELEMENT_F64, STRATA_ELEMENT_F64},
    {STRATA_ELEMENT_F16, STRATA_ELEMENT_F16},   {STRATA_ELEMENT_F16, STRATA_ELEMENT_F32},
    {STRATA_ELEMENT_BF16, STRATA_ELEMENT_BF16}, {STRATA_ELEMENT_BF16, STRATA_ELEMENT_F32},
};

static const strata_blas_order orders[] = {STRATA_BLAS_ROWS, STRATA_BLAS_COLUMNS};

/* The leading dimension of rows by columns, with a gap. */
static size_t leading_of(strata_blas_order order, size_t rows, size_t columns, size_t gap)
{
    return (order == STRATA_BLAS_ROWS ? columns : rows) + gap;
}

/* A product of this form, m by n by k, with gaps and offsets; no memory yet. */
static strata_blas_gemm_call form(strata_blas_order order, bool ta, bool tb, size_t gap)
{
    strata_blas_gemm_call call = {
        .order = order, .transpose_a = ta, .transpose_b = tb, .m = M, .n = N, .k = K, .alpha = 2, .beta = 0.5};
    call.a.leading = leading_of(order, ta ? K : M, ta ? M : K, gap);
    call.b.leading = leading_of(order, tb ? N : K, tb ? K : N, gap);
    call.c.leading = leading_of(order, M, N, gap);
    call.a.offset = call.b.offset = call.c.offset = gap ? OFFSET : 0;
    return call;
}

enum { ROOM = 256 };

/* Fills three matrices, multiplies, and compares all of C, gaps too. */
static void multiply(test_fixture *fixture, strata_blas_gemm_call call, strata_element in, strata_element out,
                     CUstream stream)
{
    double a[ROOM], b[ROOM], c[ROOM];
    blas_fill(a, ROOM, 1);
    blas_fill(b, ROOM, 2);
    blas_fill(c, ROOM, 3);
    call.a.ref = blas_ref(fixture, in, a, ROOM, stream);
    call.b.ref = blas_ref(fixture, in, b, ROOM, stream);
    call.c.ref = blas_ref(fixture, out, c, ROOM, stream);
    check_ok(strata_blas_gemm(blas, &call, stream));
    blas_plain_gemm(&call, a, b, c);
    check_values(fixture, call.c.ref, c, 0, stream);
    blas_drop(call.a.ref);
    blas_drop(call.b.ref);
    blas_drop(call.c.ref);
}

static void products_of_every_type_order_and_transpose_are_those_of_plain_loops(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blas_begin(fixture, stream);
    for (size_t type = 0; type < sizeof types / sizeof types[0]; type++)
        for (size_t order = 0; order < 2; order++)
            for (int turned = 0; turned < 4; turned++)
                multiply(fixture, form(orders[order], turned & 1, turned & 2, GAP), types[type][0], types[type][1],
                         stream);
    blas_end();
}

static void without_a_leading_dimension_rows_follow_each_other(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    double a[M * K], b[K * N], c[M * N] = {0};
    strata_blas_gemm_call call = form(STRATA_BLAS_ROWS, false, false, 0);
    blas_begin(fixture, stream);
    blas_fill(a, M * K, 1);
    blas_fill(b, K * N, 2);
    call.beta = 0;
    blas_plain_gemm(&call, a, b, c);
    call.a = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F32, a, M * K, stream));
    call.b = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F32, b, K * N, stream));
    call.c = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F32, NULL, M * N, stream));
    check_ok(strata_blas_gemm(blas, &call, stream));
    check_values(fixture, call.c.ref, c, 0, stream);
    blas_end();
}

static void with_beta_zero_a_nan_in_c_is_not_read(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blas_begin(fixture, stream);
    for (size_t type = 0; type < sizeof types / sizeof types[0]; type++) {
        double a[M * K], b[K * N], c[M * N];
        strata_blas_gemm_call call = form(STRATA_BLAS_COLUMNS, false, false, 0);
        call.beta = 0;
        blas_fill(a, M * K, 1);
        blas_fill(b, K * N, 2);
        for (size_t i = 0; i < M * N; i++)
            c[i] = NAN;
        call.a.ref = blas_ref(fixture, types[type][0], a, M * K, stream);
        call.b.ref = blas_ref(fixture, types[type][0], b, K * N, stream);
        call.c.ref = blas_ref(fixture, types[type][1], c, M * N, stream);
        check_ok(strata_blas_gemm(blas, &call, stream));
        blas_plain_gemm(&call, a, b, c);
        check_values(fixture, call.c.ref, c, 0, stream);
    }
    blas_end();
}

/* With beta 0 it writes zeros, and does not read C. */
static void a_sum_of_no_products_scales_c(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blas_begin(fixture, stream);
    for (size_t type = 0; type < sizeof types / sizeof types[0]; type++)
        for (int times = 0; times < 2; times++) {
            double c[M * N];
            strata_blas_gemm_call call = form(STRATA_BLAS_ROWS, false, false, 0);
            call.k = 0;
            call.beta = times ? 0.5 : 0;
            call.a = strata_blas_of_ref(blas_ref(fixture, types[type][0], NULL, 0, stream));
            call.b = strata_blas_of_ref(blas_ref(fixture, types[type][0], NULL, 0, stream));
            blas_fill(c, M * N, 3);
            for (size_t i = 0; i < M * N && !times; i++)
                c[i] = NAN;
            call.c.ref = blas_ref(fixture, types[type][1], c, M * N, stream);
            check_ok(strata_blas_gemm(blas, &call, stream));
            for (size_t i = 0; i < M * N; i++)
                c[i] = times ? c[i] * 0.5 : 0;
            check_values(fixture, call.c.ref, c, 0, stream);
        }
    blas_end();
}

static void a_product_of_no_rows_or_columns_does_nothing(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    test_calls calls;
    blas_begin(fixture, stream);
    strata_blas_gemm_call call = form(STRATA_BLAS_ROWS, false, false, 0);
    call.a.ref = call.b.ref = blas_ref(fixture, STRATA_ELEMENT_F32, NULL, M * K + K * N, stream);
    call.c.ref = blas_ref(fixture, STRATA_ELEMENT_F32, NULL, 0, stream);
    test_calls_begin(&calls);
    call.m = 0;
    check_ok(strata_blas_gemm(blas, &call, stream));
    call.m = M;
    call.n = 0;
    call.b.leading = 0;
    call.c.leading = 0;
    check_ok(strata_blas_gemm(blas, &call, stream));
    assert_int_equal(test_calls_total(&calls), 0);
    blas_end();
}

/* Ties go to the even one; small numbers keep what f16 has of them. One product each: alpha is the result. */
static void results_in_narrow_types_are_rounded_to_the_nearest(test_fixture *fixture)
{
    static const struct rounding {
        strata_element type;
        double result, rounded;
    } roundings[] = {
        {STRATA_ELEMENT_F16, 1 + 0x1p-11, 1},
        {STRATA_ELEMENT_F16, 1 + 3 * 0x1p-11, 1 + 0x1p-9},
        {STRATA_ELEMENT_F16, 1 + 0x1.2p-11, 1 + 0x1p-10},
        {STRATA_ELEMENT_F16, -65519, -65504},
        {STRATA_ELEMENT_F16, 0x1p-14, 0x1p-14},
        {STRATA_ELEMENT_F16, 2047.5, 2048},
        {STRATA_ELEMENT_BF16, 1 + 0x1p-8, 1},
        {STRATA_ELEMENT_BF16, 1 + 3 * 0x1p-8, 1 + 0x1p-6},
        {STRATA_ELEMENT_BF16, -0x1p-100, -0x1p-100},
        {STRATA_ELEMENT_BF16, 255.75, 256},
    };
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const double one = 1;
    blas_begin(fixture, stream);
    for (size_t i = 0; i < sizeof roundings / sizeof roundings[0]; i++) {
        strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS, .m = 1, .n = 1, .k = 1, .alpha = roundings[i].result};
        call.a.ref = call.b.ref = blas_ref(fixture, roundings[i].type, &one, 1, stream);
        call.c.ref = blas_ref(fixture, roundings[i].type, NULL, 1, stream);
        check_ok(strata_blas_gemm(blas, &call, stream));
        check_values(fixture, call.c.ref, &roundings[i].rounded, 0, stream);
    }
    blas_end();
}

/* ---- several matrices ---- */

static void matrices_at_strides_are_multiplied_each_for_itself(test_fixture *fixture)
{
    enum { COUNT = 4, STRIDE = 64 };
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blas_begin(fixture, stream);
    for (size_t type = 0; type < sizeof types / sizeof types[0]; type++)
        for (size_t stride_a = 0; stride_a <= STRIDE; stride_a += STRIDE) { /* 0: one matrix A for all */
            double a[COUNT * STRIDE], b[COUNT * STRIDE], c[COUNT * STRIDE];
            strata_blas_gemm_call call = form(STRATA_BLAS_ROWS, false, true, 1);
            call.count = COUNT;
            call.a.stride = stride_a;
            call.b.stride = call.c.stride = STRIDE;
            blas_fill(a, COUNT * STRIDE, 1);
            blas_fill(b, COUNT * STRIDE, 2);
            blas_fill(c, COUNT * STRIDE, 3);
            call.a.ref = blas_ref(fixture, types[type][0], a, COUNT * STRIDE, stream);
            call.b.ref = blas_ref(fixture, types[type][0], b, COUNT * STRIDE, stream);
            call.c.ref = blas_ref(fixture, types[type][1], c, COUNT * STRIDE, stream);
            check_ok(strata_blas_gemm(blas, &call, stream));
            for (size_t i = 0; i < COUNT; i++)
                blas_plain_gemm(&call, a + i * stride_a, b + i * STRIDE, c + i * STRIDE);
            check_values(fixture, call.c.ref, c, 0, stream);
            blas_drop(call.a.ref);
            blas_drop(call.b.ref);
            blas_drop(call.c.ref);
        }
    blas_end();
}

static strata_blas_batch *batch_of(const strata_blas_operand *operands, size_t count, CUstream stream)
{
    strata_blas_batch *batch;
    check_ok(strata_blas_batch_create(blas, operands, count, stream, &batch));
    return blas_batches[blas_batch_count++] = batch;
}

/* More than one launch of the stand-in. All matrices of A and B lie in one reference each, in reverse order. */
static void matrices_of_batches_are_multiplied_each_for_itself(test_fixture *fixture)
{
    enum { COUNT = 37, SIZE = 64 };
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blas_begin(fixture, stream);
    for (size_t type = 0; type < sizeof types / sizeof types[0]; type++) {
        static double a[COUNT * SIZE], b[COUNT * SIZE], c[COUNT * SIZE];
        strata_blas_operand of_a[COUNT], of_b[COUNT], of_c[COUNT];
        strata_blas_gemm_call call = form(STRATA_BLAS_COLUMNS, true, false, 0);
        call.count = COUNT;
        blas_fill(a, COUNT * SIZE, 1);
        blas_fill(b, COUNT * SIZE, 2);
        blas_fill(c, COUNT * SIZE, 3);
        strata_ref *refs[] = {blas_ref(fixture, types[type][0], a, COUNT * SIZE, stream),
                              blas_ref(fixture, types[type][0], b, COUNT * SIZE, stream),
                              blas_ref(fixture, types[type][1], c, COUNT * SIZE, stream)};
        for (size_t i = 0; i < COUNT; i++) {
            of_a[i] = (strata_blas_operand){.ref = refs[0], .offset = (COUNT - 1 - i) * SIZE};
            of_b[i] = (strata_blas_operand){.ref = refs[1], .offset = (COUNT - 1 - i) * SIZE};
            of_c[i] = (strata_blas_operand){.ref = refs[2], .offset = i * SIZE};
        }
        call.a.batch = batch_of(of_a, COUNT, stream);
        call.b.batch = batch_of(of_b, COUNT, stream);
        call.c.batch = batch_of(of_c, COUNT, stream);
        assert_int_equal(strata_blas_batch_count(call.c.batch), COUNT);
        check_ok(strata_blas_gemm(blas, &call, stream));
        for (size_t i = 0; i < COUNT; i++)
            blas_plain_gemm(&call, a + (COUNT - 1 - i) * SIZE, b + (COUNT - 1 - i) * SIZE, c + i * SIZE);
        check_values(fixture, refs[2], c, 0, stream);
        while (blas_batch_count)
            check_ok(strata_blas_batch_destroy(blas_batches[--blas_batch_count]));
    }
    blas_end();
}

/* ---- f8 ---- */

enum { F8 = 32 };

/* The form that the device has: each row of A with each row of B. */
static strata_blas_gemm_call f8_form(void)
{
    strata_blas_gemm_call call = {
        .order = STRATA_BLAS_ROWS, .transpose_b = true, .m = F8, .n = F8, .k = F8, .alpha = 2, .beta = 1};
    call.a.leading = call.b.leading = call.c.leading = F8;
    return call;
}

static bool device_has_f8(void)
{
    strata_device_info info;
    check_ok(strata_device_get_info(0, &info));
    return test_on_simulated_driver() || info.compute_major * 10 + info.compute_minor >= 89;
}

static void products_of_f8_are_those_of_plain_loops(test_fixture *fixture)
{
    static const strata_element in[][2] = {{STRATA_ELEMENT_F8E4M3, STRATA_ELEMENT_F8E4M3},
                                           {STRATA_ELEMENT_F8E4M3, STRATA_ELEMENT_F8E5M2},
                                           {STRATA_ELEMENT_F8E5M2, STRATA_ELEMENT_F8E4M3}};
    static const strata_element out[] = {STRATA_ELEMENT_BF16, STRATA_ELEMENT_F16, STRATA_ELEMENT_F32};
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    static double a[F8 * F8], b[F8 * F8], c[F8 * F8];
    if (!device_has_f8())
        skip();
    blas_begin(fixture, stream);
    for (size_t pair = 0; pair < 3; pair++)
        for (size_t to = 0; to < 3; to++) {
            strata_blas_gemm_call call = f8_form();
            blas_fill(a, F8 * F8, 1);
            blas_fill(b, F8 * F8, 2);
            for (size_t i = 0; i < F8 * F8; i++) { /* sums that bf16 holds exactly */
                a[i] = a[i] > 1 ? 1 : a[i] < -1 ? -1 : a[i];
                b[i] = b[i] > 1 ? 1 : b[i] < -1 ? -1 : b[i];
            }
            blas_fill(c, F8 * F8, 3);
            call.a.ref = blas_ref(fixture, in[pair][0], a, F8 * F8, stream);
            call.b.ref = blas_ref(fixture, in[pair][1], b, F8 * F8, stream);
            call.c.ref = blas_ref(fixture, out[to], c, F8 * F8, stream);
            check_ok(strata_blas_gemm(blas, &call, stream));
            blas_plain_gemm(&call, a, b, c);
            check_values(fixture, call.c.ref, c, 0, stream);
        }
    blas_end();
}

/* The first failure of the library itself: cublasLt has no algorithm for it. */
static void f8_in_another_form_is_refused_with_the_librarys_own_text(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_blas_gemm_call call = f8_form();
    blas_begin(fixture, stream);
    call.k = call.a.leading = call.b.leading = F8 - 1;
    call.a.ref = call.b.ref = blas_ref(fixture, STRATA_ELEMENT_F8E4M3, NULL, F8 * F8, stream);
    call.c.ref = blas_ref(fixture, STRATA_ELEMENT_F32, NULL, F8 * F8, stream);
    check_status(strata_blas_gemm(blas, &call, stream), STRATA_ERROR_LIBRARY);
    check_last_error(STRATA_ERROR_LIBRARY, "CUBLAS_STATUS_NOT_SUPPORTED");
    check_last_error(STRATA_ERROR_LIBRARY, "cublasLtMatmulAlgoGetHeuristic");
    call.k = call.a.leading = call.b.leading = F8;
    call.count = 2;
    check_status(strata_blas_gemm(blas, &call, stream), STRATA_ERROR_UNSUPPORTED);
    blas_end();
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(products_of_every_type_order_and_transpose_are_those_of_plain_loops),
        TEST_CASE(without_a_leading_dimension_rows_follow_each_other),
        TEST_CASE(with_beta_zero_a_nan_in_c_is_not_read),
        TEST_CASE(a_sum_of_no_products_scales_c),
        TEST_CASE(a_product_of_no_rows_or_columns_does_nothing),
        TEST_CASE(results_in_narrow_types_are_rounded_to_the_nearest),
        TEST_CASE(matrices_at_strides_are_multiplied_each_for_itself),
        TEST_CASE(matrices_of_batches_are_multiplied_each_for_itself),
        TEST_CASE(products_of_f8_are_those_of_plain_loops),
        TEST_CASE(f8_in_another_form_is_refused_with_the_librarys_own_text),
    };
    static const char *const stacks[] = {"pool"};
    test_before_clearing = blas_clear;
    blas_open();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
