/* `strata demo`: its three ways, what it says of a failure, and that its comparison finds what is wrong. */
#include "support/command.h"

#include "tools/demo/matrices.h"
#include "tools/demo/report.h"

#include <jansson.h>
#include <math.h>

enum { N = 24 };

/* ---- the comparison ---- */

/* What a device would give for a batch, by plain loops. */
static void compute(const demo_matrices *matrices, uint32_t batch, float *c)
{
    const size_t n = matrices->n;
    float *a = calloc(n * n, sizeof *a);
    assert_non_null(a);
    demo_matrices_fill(matrices, batch, a);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            float sum = matrices->bias[j];
            for (size_t k = 0; k < n; k++)
                sum += a[i * n + k] * matrices->b[k * n + j];
            c[i * n + j] = sum > 0 ? sum : 0;
        }
    free(a);
}

static demo_difference compare(const demo_matrices *matrices, uint32_t batch, const float *c)
{
    demo_difference difference = {0};
    demo_matrices_compare(matrices, batch, c, &difference);
    return difference;
}

static void results_that_differ_by_rounding_alone_are_right(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 160; n += 53) { /* of the last one, rows are compared */
        demo_matrices matrices;
        assert_true(demo_matrices_make(&matrices, n));
        float *c = calloc(n * n, sizeof *c);
        assert_non_null(c);
        for (uint32_t batch = 0; batch < 3; batch++) {
            compute(&matrices, batch, c);
            const demo_difference difference = compare(&matrices, batch, c);
            assert_int_equal(difference.wrong, 0);
            assert_int_equal(difference.compared, n <= 128 ? n * n : 32 * n);
            assert_true(difference.largest < 1e-4);
        }
        free(c);
        demo_matrices_free(&matrices);
    }
}

static void a_number_that_is_off_is_counted(void **state)
{
    (void)state;
    demo_matrices matrices;
    float c[N * N];
    assert_true(demo_matrices_make(&matrices, N));
    compute(&matrices, 5, c);
    c[7] += 0.01f;
    demo_difference difference = compare(&matrices, 5, c);
    assert_int_equal(difference.wrong, 1);
    assert_true(difference.largest > 0.009 && difference.largest < 0.011);
    c[8] = NAN;
    assert_int_equal(compare(&matrices, 5, c).wrong, 2);
    demo_matrices_free(&matrices);
}

/* JSON has no word for infinity. */
static void an_infinite_difference_is_null_in_the_report(void **state)
{
    (void)state;
    const strata_driver_info driver = {.library = "none", .choice = "none", .simulated = true};
    const strata_device_info device = {.name = "none"};
    demo of = {.settings = {.n = N, .batches = 1}};
    for (size_t i = 0; i < DEMO_WAYS; i++)
        of.ways[i] = (demo_way){.name = "way", .difference = {.largest = i ? 0.5 : INFINITY}};
    text_builder text;
    text_begin(&text);
    assert_true(demo_report_json(&(demo_report){&of, &driver, &device}, text.stream));
    fclose(text.stream);
    json_t *report = json_loads(text.text, 0, NULL);
    const json_t *ways = json_object_get(report, "ways");
    assert_true(json_is_null(json_object_get(json_array_get(ways, 0), "largest_difference")));
    assert_true(json_is_real(json_object_get(json_array_get(ways, 1), "largest_difference")));
    json_decref(report);
    free(text.text);
}

static void the_result_of_another_batch_is_wrong(void **state)
{
    (void)state;
    demo_matrices matrices;
    float c[N * N];
    assert_true(demo_matrices_make(&matrices, N));
    compute(&matrices, 3, c);
    assert_true(compare(&matrices, 4, c).wrong > N);
    assert_int_equal(compare(&matrices, 3 + N, c).wrong, 0); /* the rows come round */
    demo_matrices_free(&matrices);
}

/* ---- the command ---- */

/* Runs `strata demo --json` with these words; the report is the caller's. */
static json_t *report_of(const char *words, int status)
{
    char line[256];
    json_error_t problem;
    snprintf(line, sizeof line, "demo --json %s", words);
    outcome *of = run(line);
    assert_outcome(of, status, "{", "");
    assert_string_equal(of->err, "");
    json_t *report = json_loads(of->out, JSON_DISABLE_EOF_CHECK, &problem);
    assert_non_null(report);
    free(of);
    return report;
}

static json_t *way_of(json_t *report, size_t which)
{
    json_t *way = json_array_get(json_object_get(report, "ways"), which);
    assert_non_null(way);
    return way;
}

static int64_t number_of(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void assert_right(json_t *report, int64_t n, int64_t batches)
{
    for (size_t i = 0; i < 3; i++) {
        json_t *way = way_of(report, i);
        const char *problem = json_string_value(json_object_get(way, "problem"));
        if (problem)
            print_error("way %zu: %s\n", i, problem);
        assert_true(json_is_true(json_object_get(way, "right")));
        assert_int_equal(number_of(way, "batches"), batches);
        assert_int_equal(number_of(way, "compared"), n * n * batches);
        assert_in_range(number_of(way, "budget_peak_bytes"), 2 * n * n * 4,
                        (uint64_t)number_of(way, "budget_limit_bytes"));
    }
    assert_int_equal(number_of(report, "bytes_in"), n * n * 4 * batches);
    assert_true(json_is_true(json_object_get(report, "right")));
}

static void three_ways_give_the_results_of_the_cpu(void **state)
{
    (void)state;
    json_t *report = report_of("--size 48 --batches 10", 0);
    assert_right(report, 48, 10);
    json_decref(report);
    report = report_of("--size 1 --batches 1", 0);
    assert_right(report, 1, 1);
    json_decref(report);
}

static void without_a_blas_a_kernel_multiplies(void **state)
{
    (void)state;
    setenv("STRATA_BLAS", "/no/such/library", 1);
    json_t *report = report_of("--size 33 --batches 4", 0);
    outcome *text = run("demo --size 8 --batches 1");
    unsetenv("STRATA_BLAS");
    assert_right(report, 33, 4);
    assert_non_null(strstr(json_string_value(json_object_get(report, "product")), "kernel"));
    assert_non_null(strstr(json_string_value(json_object_get(report, "without_blas")), "/no/such/library"));
    for (size_t i = 0; i < 3; i++)
        assert_true(json_is_true(json_object_get(way_of(report, i), "own_product")));
    json_decref(report);
    assert_outcome(text, 0, "not by cuBLAS", "");
    free(text);
}

static void a_way_that_fails_says_why_and_the_others_run(void **state)
{
    (void)state;
    setenv("STRATA_BLAS", "/no/such/library", 1);
    json_t *report = report_of("--size 64 --batches 3 --budget 1MiB", 1); /* the capture's pool takes more */
    unsetenv("STRATA_BLAS");
    assert_true(json_is_true(json_object_get(way_of(report, 0), "right")));
    assert_true(json_is_false(json_object_get(way_of(report, 1), "right")));
    assert_string_equal(json_string_value(json_object_get(way_of(report, 1), "status")), "STRATA_ERROR_OUT_OF_BUDGET");
    assert_non_null(strstr(json_string_value(json_object_get(way_of(report, 1), "problem")), "limit 1"));
    assert_true(json_is_true(json_object_get(way_of(report, 2), "right")));
    assert_true(json_is_false(json_object_get(report, "right")));
    json_decref(report);
}

static void the_service_may_be_isolated_where_the_build_has_that(void **state)
{
    (void)state;
    outcome *of = run("demo --size 16 --batches 4 --form isolated");
    if (of->status == 0)
        assert_outcome(of, 0, "in the worker", "");
    else
        assert_outcome(of, 1, "no isolated services", "");
    free(of);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    static const char *const lines[][2] = {
        {"demo --size 0", "--size is \"0\": expected a whole number from 1 to 32768"},
        {"demo --size 3x", "--size is \"3x\""},
        {"demo --batches -1", "--batches is \"-1\""},
        {"demo --form other", "expected process or isolated"},
        {"demo --budget much", "expected a size such as 4MiB"},
        {"demo --budget 0", "--budget is \"0\": expected more than 0 bytes"},
        {"demo matrix", "unexpected \"matrix\""},
        {"demo --device 900", "the device"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        outcome *of = run(lines[i][0]);
        assert_outcome(of, 2, "", lines[i][1]);
        assert_string_equal(of->out, "");
        free(of);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_that_differ_by_rounding_alone_are_right),
        cmocka_unit_test(a_number_that_is_off_is_counted),
        cmocka_unit_test(an_infinite_difference_is_null_in_the_report),
        cmocka_unit_test(the_result_of_another_batch_is_wrong),
        cmocka_unit_test(three_ways_give_the_results_of_the_cpu),
        cmocka_unit_test(without_a_blas_a_kernel_multiplies),
        cmocka_unit_test(a_way_that_fails_says_why_and_the_others_run),
        cmocka_unit_test(the_service_may_be_isolated_where_the_build_has_that),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, find_program, NULL);
}
