/* Vectors, a matrix with vectors, and triangular systems, beside plain loops. */
#include "support/blas.h"

enum { N = 11, M = 6, ROOM = 256 };

static const strata_element types[] = {STRATA_ELEMENT_F32, STRATA_ELEMENT_F64};
static const strata_blas_order orders[] = {STRATA_BLAS_ROWS, STRATA_BLAS_COLUMNS};

/* An operand of ROOM elements at an offset and a step, with these values. */
static strata_blas_operand vector(test_fixture *fixture, strata_element type, const double *values, size_t step,
                                  CUstream stream)
{
    return (strata_blas_operand){.ref = blas_ref(fixture, type, values, ROOM, stream), .offset = 3, .step = step};
}

static void axpy_and_scal_are_those_of_plain_loops(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blas_begin(fixture, stream);
    for (size_t type = 0; type < 2; type++)
        for (size_t step = 1; step <= 3; step += 2) {
            double x[ROOM], y[ROOM];
            blas_fill(x, ROOM, 1);
            blas_fill(y, ROOM, 2);
            const strata_blas_operand of_x = vector(fixture, types[type], x, step, stream);
            const strata_blas_operand of_y = vector(fixture, types[type], y, 2, stream);
            check_ok(strata_blas_axpy(blas, N, 2.5, &of_x, &of_y, stream));
            check_ok(strata_blas_scal(blas, N, -2, &of_x, stream));
            for (size_t i = 0; i < N; i++) {
                y[3 + 2 * i] += 2.5 * x[3 + step * i];
                x[3 + step * i] *= -2;
            }
            check_values(fixture, of_y.ref, y, 0, stream);
            check_values(fixture, of_x.ref, x, 0, stream);
        }
    blas_end();
}

static void dot_and_nrm2_leave_their_results_on_the_device(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blas_begin(fixture, stream);
    for (size_t type = 0; type < 2; type++) {
        double x[ROOM], y[ROOM], sum = 0, squares = 0, results[2] = {NAN, NAN}, value;
        blas_fill(x, ROOM, 1);
        blas_fill(y, ROOM, 2);
        const strata_blas_operand of_x = vector(fixture, types[type], x, 3, stream);
        const strata_blas_operand of_y = vector(fixture, types[type], y, 0, stream);
        strata_blas_operand result = strata_blas_of_ref(blas_ref(fixture, types[type], results, 2, stream));
        for (size_t i = 0; i < N; i++) {
            sum += x[3 + 3 * i] * y[3 + i];
            squares += x[3 + 3 * i] * x[3 + 3 * i];
        }
        check_ok(strata_blas_dot(blas, N, &of_x, &of_y, &result, stream));
        result.offset = 1;
        check_ok(strata_blas_nrm2(blas, N, &of_x, &result, stream));
        results[0] = sum;
        results[1] = sqrt(squares);
        check_values(fixture, result.ref, results, 1e-5, stream);
        check_ok(strata_blas_dot_value(blas, N, &of_x, &of_y, stream, &value));
        assert_true(value == sum);
        check_ok(strata_blas_nrm2_value(blas, N, &of_x, stream, &value));
        assert_true(fabs(value - sqrt(squares)) < 1e-5);
    }
    blas_end();
}

static void results_of_no_elements_are_zero(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    double results[2] = {5, 5};
    blas_begin(fixture, stream);
    const strata_blas_operand x = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F64, NULL, 0, stream));
    strata_blas_operand result = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F64, results, 2, stream));
    check_ok(strata_blas_dot(blas, 0, &x, &x, &result, stream));
    result.offset = 1;
    check_ok(strata_blas_nrm2(blas, 0, &x, &result, stream));
    results[0] = results[1] = 0;
    check_values(fixture, result.ref, results, 0, stream);
    check_ok(strata_blas_axpy(blas, 0, 2, &x, &x, stream));
    check_ok(strata_blas_scal(blas, 0, 2, &x, stream));
    blas_end();
}

/* Leading dimension of an M by N matrix with a gap. */
static size_t leading_of(strata_blas_order order, size_t rows, size_t columns)
{
    return (order == STRATA_BLAS_ROWS ? columns : rows) + 2;
}

static void plain_gemv(const strata_blas_gemv_call *call, const double *a, const double *x, double *y)
{
    const size_t to = call->transpose ? call->n : call->m, from = call->transpose ? call->m : call->n;
    for (size_t i = 0; i < to; i++) {
        double sum = 0, *at = &y[call->y.offset + i * call->y.step];
        for (size_t j = 0; j < from; j++)
            sum += a[call->a.offset +
                     blas_at(call->order, call->a.leading, call->transpose ? j : i, call->transpose ? i : j)] *
                   x[call->x.offset + j * call->x.step];
        *at = call->alpha * sum + (call->beta != 0 ? call->beta * *at : 0);
    }
}

/* With beta 0, y begins as NaN. */
static void multiply(test_fixture *fixture, strata_blas_order order, bool transpose, double beta, strata_element type,
                     CUstream stream)
{
    double a[ROOM], x[ROOM], y[ROOM];
    strata_blas_gemv_call call = {.order = order, .transpose = transpose, .m = M, .n = N, .alpha = 0.5, .beta = beta};
    blas_fill(a, ROOM, 1);
    blas_fill(x, ROOM, 2);
    blas_fill(y, ROOM, 3);
    for (size_t i = 0; beta == 0 && i < (transpose ? N : M); i++)
        y[3 + 2 * i] = NAN;
    call.a = (strata_blas_operand){
        .ref = blas_ref(fixture, type, a, ROOM, stream), .offset = 5, .leading = leading_of(order, M, N)};
    call.x = vector(fixture, type, x, 3, stream);
    call.y = vector(fixture, type, y, 2, stream);
    check_ok(strata_blas_gemv(blas, &call, stream));
    plain_gemv(&call, a, x, y);
    check_values(fixture, call.y.ref, y, 0, stream);
    blas_drop(call.a.ref);
    blas_drop(call.x.ref);
    blas_drop(call.y.ref);
}

static void gemv_in_every_order_and_transpose_is_that_of_plain_loops(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blas_begin(fixture, stream);
    for (size_t type = 0; type < 2; type++)
        for (int form = 0; form < 8; form++)
            multiply(fixture, orders[form & 1], form & 2, form & 4 ? 3 : 0, types[type], stream);
    blas_end();
}

static void ger_in_every_order_is_that_of_plain_loops(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blas_begin(fixture, stream);
    for (size_t type = 0; type < 2; type++)
        for (size_t order = 0; order < 2; order++) {
            double a[ROOM], x[ROOM], y[ROOM];
            strata_blas_ger_call call = {.order = orders[order], .m = M, .n = N, .alpha = 2};
            blas_fill(a, ROOM, 1);
            blas_fill(x, ROOM, 2);
            blas_fill(y, ROOM, 3);
            call.x = vector(fixture, types[type], x, 2, stream);
            call.y = vector(fixture, types[type], y, 3, stream);
            call.a = (strata_blas_operand){.ref = blas_ref(fixture, types[type], a, ROOM, stream),
                                           .offset = 7,
                                           .leading = leading_of(orders[order], M, N)};
            check_ok(strata_blas_ger(blas, &call, stream));
            for (size_t i = 0; i < M; i++)
                for (size_t j = 0; j < N; j++)
                    a[7 + blas_at(call.order, call.a.leading, i, j)] += 2 * x[3 + 2 * i] * y[3 + 3 * j];
            check_values(fixture, call.a.ref, a, 0, stream);
        }
    blas_end();
}

/* ---- triangular systems ---- */

/* Element (i, j) of op(A): 0 outside of the triangle. */
static double triangle(const strata_blas_trsm_call *call, const double *a, size_t i, size_t j)
{
    if (i == j && call->unit_diagonal)
        return 1;
    if (call->transpose) {
        const size_t other = i;
        i = j;
        j = other;
    }
    return (call->upper ? i > j : i < j) ? 0 : a[blas_at(call->order, call->a.leading, i, j)];
}

/* Element (i, j) of op(A) X or X op(A), which must be that of alpha B. */
static double product(const strata_blas_trsm_call *call, const double *a, const double *x, size_t i, size_t j)
{
    double sum = 0;
    for (size_t l = 0; l < (call->right ? call->n : call->m); l++)
        sum += call->right ? x[blas_at(call->order, call->b.leading, i, l)] * triangle(call, a, l, j)
                           : triangle(call, a, i, l) * x[blas_at(call->order, call->b.leading, l, j)];
    return sum;
}

/* Solutions of small whole numbers are found exactly: the diagonal is a power of two, or 1. What lies outside of the
 * triangle is NaN. */
static void solve(test_fixture *fixture, unsigned form, strata_element type, CUstream stream)
{
    double a[ROOM], x[ROOM], b[ROOM];
    strata_blas_trsm_call call = {.order = orders[form & 1],
                                  .right = form & 2,
                                  .upper = form & 4,
                                  .transpose = form & 8,
                                  .unit_diagonal = form & 16,
                                  .m = 4,
                                  .n = 5,
                                  .alpha = 2};
    const size_t rows = call.right ? call.n : call.m;
    call.a.leading = leading_of(call.order, rows, rows);
    call.b.leading = leading_of(call.order, call.m, call.n);
    blas_fill(a, ROOM, 1);
    blas_fill(x, ROOM, 2);
    blas_fill(b, ROOM, 3);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < rows; j++) {
            double *at = &a[blas_at(call.order, call.a.leading, i, j)];
            if (i == j)
                *at = call.unit_diagonal ? NAN : i % 2 ? 2 : -1;
            else if (call.upper ? i > j : i < j)
                *at = NAN;
        }
    for (size_t i = 0; i < call.m; i++)
        for (size_t j = 0; j < call.n; j++)
            b[blas_at(call.order, call.b.leading, i, j)] = product(&call, a, x, i, j) / call.alpha;
    call.a.ref = blas_ref(fixture, type, a, ROOM, stream);
    call.b.ref = blas_ref(fixture, type, b, ROOM, stream);
    check_ok(strata_blas_trsm(blas, &call, stream));
    for (size_t i = 0; i < call.m; i++)
        for (size_t j = 0; j < call.n; j++)
            b[blas_at(call.order, call.b.leading, i, j)] = x[blas_at(call.order, call.b.leading, i, j)];
    check_values(fixture, call.b.ref, b, 1e-3, stream);
    blas_drop(call.a.ref);
    blas_drop(call.b.ref);
}

static void trsm_solves_every_form_of_a_triangular_system(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    blas_begin(fixture, stream);
    for (size_t type = 0; type < 2; type++)
        for (unsigned form = 0; form < 32; form++)
            solve(fixture, form, types[type], stream);
    blas_end();
}

static void operands_that_do_not_fit_together_are_refused(test_fixture *fixture)
{
    const CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    test_calls calls;
    double value = 1;
    blas_begin(fixture, stream);
    const strata_blas_operand single = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F32, NULL, 8, stream));
    const strata_blas_operand wide = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_F64, NULL, 8, stream));
    const strata_blas_operand whole = strata_blas_of_ref(blas_ref(fixture, STRATA_ELEMENT_I32, NULL, 8, stream));
    strata_blas_operand apart = single;
    test_calls_begin(&calls);
    check_status(strata_blas_axpy(blas, 8, 1, &single, &wide, stream), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "operand y is f64");
    check_status(strata_blas_scal(blas, 8, 1, &whole, stream), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "expected f32 or f64");
    check_status(strata_blas_scal(blas, 9, 1, &single, stream), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "operand x needs 9 elements of f32 from its offset on, and has 8");
    apart.step = 3;
    check_status(strata_blas_scal(blas, 4, 1, &apart, stream), STRATA_ERROR_INVALID_VALUE);
    apart.step = SIZE_MAX / 2;
    check_status(strata_blas_scal(blas, 4, 1, &apart, stream), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "overflows");
    check_status(strata_blas_dot(blas, 8, &single, &single, &wide, stream), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_blas_nrm2(blas, 8, &single, NULL, stream), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_blas_dot_value(blas, 9, &single, &single, stream, &value), STRATA_ERROR_INVALID_VALUE);
    assert_true(value == 0);
    assert_int_equal(test_calls_of(&calls, "cuEventRecord"), 0);
    blas_end();
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(axpy_and_scal_are_those_of_plain_loops),
        TEST_CASE(dot_and_nrm2_leave_their_results_on_the_device),
        TEST_CASE(results_of_no_elements_are_zero),
        TEST_CASE(gemv_in_every_order_and_transpose_is_that_of_plain_loops),
        TEST_CASE(ger_in_every_order_is_that_of_plain_loops),
        TEST_CASE(trsm_solves_every_form_of_a_triangular_system),
        TEST_CASE(operands_that_do_not_fit_together_are_refused),
    };
    static const char *const stacks[] = {"pool"};
    test_before_clearing = blas_clear;
    blas_open();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
