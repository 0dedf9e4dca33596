/* The choice of the cuBLAS library, and libraries that cannot be used. Each choice is a process of its own. */
#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/child.h"

enum { LACKS_CPU_BLAS = 3 };

/* ---- in children ---- */

static strata_runtime *runtime;
static strata_blas *blas;

static void open_runtime(void)
{
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime));
}

static void check_refused(strata_status want, const char *words)
{
    open_runtime();
    blas = (strata_blas *)&blas;
    child_status(strata_blas_create(runtime, NULL, NULL, &blas), want);
    child_check(!blas);
    child_check_words(words);
    child_ok(strata_runtime_destroy(runtime)); /* nothing of the handle is left */
}

static void path_that_leads_nowhere(void)
{
    check_refused(STRATA_ERROR_UNSUPPORTED, "/nowhere/libcublas.so.13");
    child_check_words("set by STRATA_BLAS");
}

static void word_without_a_slash(void)
{
    check_refused(STRATA_ERROR_UNSUPPORTED, "STRATA_BLAS is \"cublas\": expected auto, or the path of a library");
}

static void library_that_is_no_blas(void)
{
    check_refused(STRATA_ERROR_UNSUPPORTED, "lacks cublasGetProperty; Strata needs cuBLAS of CUDA 12 or 13");
}

static void stand_in_that_is_not_beside_its_driver(void)
{
    check_refused(STRATA_ERROR_UNSUPPORTED, "libstrata-sim-blas.so.0");
    child_check_words("install it beside the simulated driver");
}

static void stand_in_without_a_cpu_blas(void)
{
    check_refused(STRATA_ERROR_LIBRARY, "cublasCreate returned CUBLAS_STATUS_NOT_INITIALIZED");
    child_check_words("/nowhere/libopenblas.so.0");
    child_check_words("package libopenblas0-pthread");
}

static void stand_in_with_a_library_that_is_no_cpu_blas(void)
{
    check_refused(STRATA_ERROR_LIBRARY, "lacks cblas_sgemm");
}

/* Skips where there is no BLAS to compute with. */
static void multiply_once(void)
{
    strata_ref *refs[3];
    const CUstream stream = NULL;
    strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS, .m = 4, .n = 4, .k = 4, .alpha = 1};
    for (int i = 0; i < 3; i++)
        child_ok(strata_ref_allocate(runtime, STRATA_ELEMENT_F32, 16, true, stream, &refs[i]));
    call.a = strata_blas_of_ref(refs[0]);
    call.b = strata_blas_of_ref(refs[1]);
    call.c = strata_blas_of_ref(refs[2]);
    child_ok(strata_blas_gemm(blas, &call, stream));
    child_ok(strata_runtime_stream_synchronize(runtime, stream));
    for (int i = 0; i < 3; i++)
        child_ok(strata_ref_release(refs[i]));
}

static void check_opened(const char *path)
{
    strata_blas_info info;
    open_runtime();
    if (strata_blas_create(runtime, NULL, NULL, &blas) != STRATA_SUCCESS) {
        printf("skipped: %s\n", strata_last_error()->message);
        test_child_leave(77);
    }
    child_ok(strata_blas_get_info(blas, &info));
    child_check(strstr(info.library, path) != NULL);
    multiply_once();
    child_ok(strata_blas_destroy(blas));
    child_ok(strata_runtime_destroy(runtime));
}

static void stand_in_is_found(void)
{
    check_opened("/libstrata-sim-blas.so.0");
}

static void path_is_opened(void)
{
    check_opened(getenv("STRATA_BLAS"));
}

static void version_is_told(void)
{
    strata_blas_info info;
    check_opened(getenv("STRATA_BLAS"));
    open_runtime();
    child_ok(strata_blas_create(runtime, NULL, NULL, &blas));
    child_ok(strata_blas_get_info(blas, &info));
    child_check(strcmp(info.version, getenv("STRATA_TEST_VERSION")) == 0);
    child_ok(strata_blas_destroy(blas));
    child_ok(strata_runtime_destroy(runtime));
}

static void version_11_is_too_old(void)
{
    check_refused(STRATA_ERROR_UNSUPPORTED, "is cuBLAS 11.4.5; Strata needs 12 or 13");
}

/* By its name alone, as the loader found it. */
static void name_is_opened(void)
{
    strata_blas_info info;
    const char *name = getenv("STRATA_TEST_NAME");
    open_runtime();
    const strata_status status = strata_blas_create(runtime, NULL, NULL, &blas);
    if (status != STRATA_SUCCESS && strstr(strata_last_error()->message, "libopenblas"))
        test_child_leave(LACKS_CPU_BLAS);
    child_ok(status);
    child_ok(strata_blas_get_info(blas, &info));
    child_check(strcmp(info.library, name) == 0);
    child_check(strncmp(info.version, strrchr(name, '.') + 1, 2) == 0);
    child_ok(strata_blas_destroy(blas));
    child_ok(strata_runtime_destroy(runtime));
}

static void no_cublas_is_found(void)
{
    check_refused(STRATA_ERROR_UNSUPPORTED, "libcublas.so.13: file too short");
    child_check_words("libcublas.so.12: file too short");
    child_check_words("install cuBLAS of CUDA 12 or 13 (packages libcublas-13-0, nvidia-cublas)");
    child_check_words("or name its library in STRATA_BLAS");
}

/* A library that is not found may be there at the next call. */
static void next_call_tries_again(void)
{
    open_runtime();
    child_status(strata_blas_create(runtime, NULL, NULL, &blas), STRATA_ERROR_UNSUPPORTED);
    unsetenv("STRATA_BLAS");
    child_ok(strata_runtime_destroy(runtime));
    check_opened("/libstrata-sim-blas.so.0");
}

/* ---- in the parent ---- */

static const char *sim_library(void)
{
    const char *path = getenv("STRATA_SIM_LIBRARY");
    if (!path || access(path, R_OK) != 0)
        skip();
    return path;
}

static void run(const char *scenario, const char *choice, const char *other)
{
    sim_library();
    const char *const changes[] = {"STRATA_DRIVER=sim", choice, other, NULL};
    test_child_run(scenario, changes);
}

static void a_path_that_leads_nowhere_is_named_with_its_variable(void **state)
{
    (void)state;
    run("path_that_leads_nowhere", "STRATA_BLAS=/nowhere/libcublas.so.13", NULL);
}

static void a_word_without_a_slash_is_refused(void **state)
{
    (void)state;
    run("word_without_a_slash", "STRATA_BLAS=cublas", NULL);
}

static void a_library_that_is_no_blas_is_refused(void **state)
{
    char choice[4200];
    (void)state;
    snprintf(choice, sizeof choice, "STRATA_BLAS=%s", sim_library());
    run("library_that_is_no_blas", choice, NULL);
}

static void a_stand_in_is_looked_for_beside_the_simulated_driver(void **state)
{
    (void)state;
    run("stand_in_is_found", "STRATA_BLAS", NULL);
    run("stand_in_is_found", "STRATA_BLAS=auto", NULL);
}

static void a_simulated_driver_without_its_stand_in_says_what_is_missing(void **state)
{
    (void)state;
    char folder[] = "/tmp/strata-blas-XXXXXX", link[64], choice[128];
    char *const full = realpath(sim_library(), NULL);
    assert_non_null(full);
    assert_non_null(mkdtemp(folder));
    snprintf(link, sizeof link, "%s/libstrata-sim.so.0", folder);
    snprintf(choice, sizeof choice, "STRATA_SIM_LIBRARY=%s", link);
    assert_int_equal(symlink(full, link), 0);
    const char *const changes[] = {"STRATA_DRIVER=sim", "STRATA_BLAS", choice, NULL};
    const int status = test_child_status("stand_in_that_is_not_beside_its_driver", changes);
    unlink(link);
    rmdir(folder);
    free(full);
    assert_int_equal(status, 0);
}

static void a_stand_in_without_a_cpu_blas_says_what_to_install(void **state)
{
    (void)state;
    run("stand_in_without_a_cpu_blas", "STRATA_BLAS", "STRATA_SIM_CPU_BLAS=/nowhere/libopenblas.so.0");
}

static void a_library_that_is_no_cpu_blas_is_refused(void **state)
{
    char choice[4200];
    (void)state;
    snprintf(choice, sizeof choice, "STRATA_SIM_CPU_BLAS=%s", sim_library());
    run("stand_in_with_a_library_that_is_no_cpu_blas", "STRATA_BLAS", choice);
}

static void a_blas_is_chosen_by_its_path(void **state)
{
    char choice[4200];
    (void)state;
    char *const folder = strdup(sim_library());
    snprintf(choice, sizeof choice, "STRATA_BLAS=%s/libstrata-sim-blas.so.0", dirname(folder));
    free(folder);
    run("path_is_opened", choice, NULL);
}

/* Skips where the build has no such libraries. */
static void run_with_version(const char *scenario, const char *version)
{
    char name[32], choice[4200], told[48];
    snprintf(name, sizeof name, "STRATA_TEST_CUBLAS_%s", version);
    const char *path = getenv(name);
    if (!path)
        skip();
    snprintf(choice, sizeof choice, "STRATA_BLAS=%s", path);
    snprintf(told, sizeof told, "STRATA_TEST_VERSION=%s.4.5", version);
    run(scenario, choice, told);
}

static void versions_12_and_13_are_taken_and_older_ones_refused(void **state)
{
    (void)state;
    run_with_version("version_is_told", "12");
    run_with_version("version_is_told", "13");
    run_with_version("version_11_is_too_old", "11");
}

/* ---- the search for cuBLAS by its names ---- */

/* Makes libcublas.so.NUMBER in a folder, for each text "WORD NUMBER": a cuBLAS, "other", a library that is none, or
 * "no", a file that hides a library of the machine. */
static void make_libraries(const char *folder, const char *const *there)
{
    for (; *there; there++) {
        char path[64], variable[32];
        const char *number = strchr(*there, ' ') + 1;
        snprintf(path, sizeof path, "%s/libcublas.so.%s", folder, number);
        snprintf(variable, sizeof variable, "STRATA_TEST_CUBLAS_%s", number);
        if (strncmp(*there, "no ", 3) == 0)
            fclose(fopen(path, "we"));
        else
            assert_int_equal(
                symlink(getenv(strncmp(*there, "other ", 6) == 0 ? "STRATA_SHIM_LIBRARY" : variable), path), 0);
    }
}

static void remove_libraries(const char *folder)
{
    char path[64];
    for (int number = 12; number <= 13; number++) {
        snprintf(path, sizeof path, "%s/libcublas.so.%d", folder, number);
        unlink(path);
    }
    rmdir(folder);
}

/* The folder comes first on the loader's path. */
static int find_among(const char *scenario, const char *const *there, const char *cuda, const char *found)
{
    char folder[] = "/tmp/strata-cublas-XXXXXX", version[32], path[4300], told[64], choice[4200];
    char *const beside = strdup(sim_library());
    const char *shim = getenv("STRATA_SHIM_LIBRARY");
    if (!shim || !getenv("STRATA_TEST_CUBLAS_13")) {
        free(beside);
        skip();
    }
    assert_non_null(mkdtemp(folder));
    make_libraries(folder, there);
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s:%s", folder, dirname(beside));
    snprintf(choice, sizeof choice, "STRATA_DRIVER=%s", shim);
    snprintf(version, sizeof version, "STRATA_SIM_CUDA=%s", cuda);
    snprintf(told, sizeof told, "STRATA_TEST_NAME=%s", found);
    const char *const changes[] = {choice, "STRATA_BLAS", path, version, told, NULL};
    const int status = test_child_status(scenario, changes);
    remove_libraries(folder);
    free(beside);
    if (status == LACKS_CPU_BLAS)
        skip();
    return status;
}

#define AMONG(...) ((const char *const[]){__VA_ARGS__, NULL})

static void of_two_versions_the_one_of_the_drivers_cuda_is_taken(void **state)
{
    (void)state;
    assert_int_equal(find_among("name_is_opened", AMONG("a 12", "a 13"), "13.0", "libcublas.so.13"), 0);
    assert_int_equal(find_among("name_is_opened", AMONG("a 12", "a 13"), "12.0", "libcublas.so.12"), 0);
    assert_int_equal(find_among("name_is_opened", AMONG("a 13", "a 12"), "12.8", "libcublas.so.12"), 0);
}

static void the_other_version_is_taken_where_the_first_is_not_or_is_no_cublas(void **state)
{
    (void)state;
    assert_int_equal(find_among("name_is_opened", AMONG("no 13", "a 12"), "13.0", "libcublas.so.12"), 0);
    assert_int_equal(find_among("name_is_opened", AMONG("no 12", "a 13"), "12.0", "libcublas.so.13"), 0);
    assert_int_equal(find_among("name_is_opened", AMONG("other 13", "a 12"), "13.0", "libcublas.so.12"), 0);
}

static void without_cublas_what_each_version_lacks_and_its_packages_are_named(void **state)
{
    (void)state;
    assert_int_equal(find_among("no_cublas_is_found", AMONG("no 13", "no 12"), "13.0", ""), 0);
}

static void after_a_failure_a_call_tries_again(void **state)
{
    (void)state;
    run("next_call_tries_again", "STRATA_BLAS=/nowhere/libcublas.so.13", NULL);
}

/* This program contains all of Strata, and has asked for nothing yet. */
static void neither_the_driver_nor_cublas_is_linked(void **state)
{
    static const char *const names[] = {"libcuda.so.1",    "libcudart.so.12",   "libcudart.so.13",  "libcublas.so.12",
                                        "libcublas.so.13", "libcublasLt.so.12", "libcublasLt.so.13"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_null(dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD));
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(path_that_leads_nowhere),     TEST_SCENARIO(word_without_a_slash),
        TEST_SCENARIO(library_that_is_no_blas),     TEST_SCENARIO(stand_in_that_is_not_beside_its_driver),
        TEST_SCENARIO(stand_in_without_a_cpu_blas), TEST_SCENARIO(stand_in_with_a_library_that_is_no_cpu_blas),
        TEST_SCENARIO(stand_in_is_found),           TEST_SCENARIO(path_is_opened),
        TEST_SCENARIO(next_call_tries_again),       TEST_SCENARIO(version_is_told),
        TEST_SCENARIO(version_11_is_too_old),       TEST_SCENARIO(name_is_opened),
        TEST_SCENARIO(no_cublas_is_found),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neither_the_driver_nor_cublas_is_linked),
        cmocka_unit_test(a_path_that_leads_nowhere_is_named_with_its_variable),
        cmocka_unit_test(a_word_without_a_slash_is_refused),
        cmocka_unit_test(a_library_that_is_no_blas_is_refused),
        cmocka_unit_test(a_stand_in_is_looked_for_beside_the_simulated_driver),
        cmocka_unit_test(a_simulated_driver_without_its_stand_in_says_what_is_missing),
        cmocka_unit_test(a_stand_in_without_a_cpu_blas_says_what_to_install),
        cmocka_unit_test(a_library_that_is_no_cpu_blas_is_refused),
        cmocka_unit_test(a_blas_is_chosen_by_its_path),
        cmocka_unit_test(versions_12_and_13_are_taken_and_older_ones_refused),
        cmocka_unit_test(of_two_versions_the_one_of_the_drivers_cuda_is_taken),
        cmocka_unit_test(the_other_version_is_taken_where_the_first_is_not_or_is_no_cublas),
        cmocka_unit_test(without_cublas_what_each_version_lacks_and_its_packages_are_named),
        cmocka_unit_test(after_a_failure_a_call_tries_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
