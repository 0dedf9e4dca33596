/* Sets of libraries: kinds of the program's own, lists of names, and the order of their ends. */
#include "support/child.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include "core/base/error.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static strata_libraries *libraries;

static void clear(void)
{
    strata_error_suppress_begin();
    strata_libraries_close(libraries);
    libraries = NULL;
    strata_error_suppress_end(false);
}

/* Handles of the kinds first and second: their own letters, which their ends write down. */
static char letters[][2] = {"a", "b"};
static char ended[8];
static bool refuses;

static strata_status create(strata_runtime *runtime, CUstream stream, void *data, void **handle, char version[64])
{
    (void)stream;
    assert_non_null(runtime);
    if (refuses)
        return strata_fail(STRATA_ERROR_LIBRARY, "library %s has no handle left", (const char *)data);
    *handle = data;
    snprintf(version, 64, "%s.1", (const char *)data);
    return STRATA_SUCCESS;
}

static void destroy(void *handle, void *data)
{
    (void)data;
    strncat(ended, handle, 1);
}

/* Once for the process. */
static void register_kinds(void)
{
    static bool done;
    if (!done) {
        check_ok(strata_library_register(
            &(strata_library_kind){.name = "first", .create = create, .destroy = destroy, .data = letters[0]}));
        check_ok(strata_library_register(
            &(strata_library_kind){.name = "second", .create = create, .destroy = destroy, .data = letters[1]}));
    }
    done = true;
    refuses = false;
    ended[0] = '\0';
}

static void close_all(void)
{
    strata_libraries *gone = libraries;
    libraries = NULL;
    check_ok(strata_libraries_close(gone));
}

static void libraries_are_opened_in_the_order_of_their_names_and_ended_in_reverse(test_fixture *fixture)
{
    strata_library one;
    register_kinds();
    check_ok(strata_libraries_open(fixture->runtime, NULL, " second ,first", &libraries));
    assert_int_equal(strata_libraries_count(libraries), 2);
    check_ok(strata_libraries_at(libraries, 0, &one));
    assert_string_equal(one.name, "second");
    assert_string_equal(one.version, "b.1");
    check_ok(strata_libraries_at(libraries, 1, &one));
    assert_string_equal(one.name, "first");
    check_ok(strata_libraries_find(libraries, "second", &one));
    assert_ptr_equal(one.handle, letters[1]);
    assert_null(strata_libraries_blas(libraries));
    close_all();
    assert_string_equal(ended, "ab");
}

static void a_handle_of_the_programs_own_is_added(test_fixture *fixture)
{
    strata_library one;
    register_kinds();
    check_ok(strata_libraries_open(fixture->runtime, NULL, "", &libraries));
    assert_int_equal(strata_libraries_count(libraries), 0);
    check_ok(strata_libraries_add(libraries, "mine", "7", letters[0], destroy, NULL));
    check_ok(strata_libraries_add(libraries, "kept", NULL, letters[1], NULL, NULL));
    check_status(strata_libraries_add(libraries, "mine", NULL, letters[1], destroy, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "the set has a library \"mine\" already");
    check_ok(strata_libraries_find(libraries, "mine", &one));
    assert_string_equal(one.version, "7");
    check_status(strata_libraries_find(libraries, "other", &one), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "it has: mine, kept");
    assert_null(one.handle);
    close_all();
    assert_string_equal(ended, "a");
}

static void a_list_that_cannot_be_opened_leaves_nothing(test_fixture *fixture)
{
    static const char *const bad[] = {"first, none", "first,", "first second", "first, first", ",", "first, wrong!"};
    register_kinds();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ended[0] = '\0';
        libraries = (strata_libraries *)&libraries;
        check_status(strata_libraries_open(fixture->runtime, NULL, bad[i], &libraries), STRATA_ERROR_INVALID_VALUE);
        assert_null(libraries);
        assert_string_equal(ended, bad[i][0] == ',' ? "" : "a");
    }
    refuses = true;
    check_status(strata_libraries_open(fixture->runtime, NULL, "first", &libraries), STRATA_ERROR_LIBRARY);
    check_last_error(STRATA_ERROR_LIBRARY, "library a has no handle left");
}

static void kinds_are_registered_once_and_under_good_names(test_fixture *fixture)
{
    static const char *const bad[] = {"first", "blas", "", "two words", NULL};
    (void)fixture;
    register_kinds();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_status(strata_library_register(&(strata_library_kind){.name = bad[i], .create = create}),
                     STRATA_ERROR_INVALID_VALUE);
    check_status(strata_library_register(&(strata_library_kind){.name = "third"}), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_library_register(NULL), STRATA_ERROR_INVALID_VALUE);
}

static void without_names_blas_is_opened(test_fixture *fixture)
{
    strata_library one;
    strata_blas_info info;
    const strata_status status = strata_libraries_open(fixture->runtime, NULL, NULL, &libraries);
    if (status == STRATA_ERROR_UNSUPPORTED || (status == STRATA_ERROR_LIBRARY && !test_is_swept()))
        skip(); /* no cuBLAS here, or nothing to stand in for it */
    check_ok(status);
    assert_int_equal(strata_libraries_count(libraries), 1);
    check_ok(strata_libraries_find(libraries, "blas", &one));
    assert_ptr_equal(one.handle, strata_libraries_blas(libraries));
    check_ok(strata_blas_get_info(strata_libraries_blas(libraries), &info));
    assert_string_equal(one.version, info.version);
    close_all();
}

static void a_forked_child_is_refused(test_fixture *fixture)
{
    strata_library one;
    int status;
    check_ok(strata_libraries_open(fixture->runtime, NULL, "", &libraries));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const bool refused = strata_libraries_add(libraries, "mine", "1", &one, NULL, NULL) == STRATA_ERROR_FORKED &&
                             strata_libraries_at(libraries, 0, &one) == STRATA_ERROR_FORKED &&
                             strata_libraries_find(libraries, "mine", &one) == STRATA_ERROR_FORKED &&
                             strata_libraries_count(libraries) == 0 && !strata_libraries_blas(libraries);
        test_child_leave(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close_all();
}

static void null_arguments_are_refused(test_fixture *fixture)
{
    strata_library one;
    check_status(strata_libraries_open(NULL, NULL, "", &libraries), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_libraries_open(fixture->runtime, NULL, "", NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_libraries_add(NULL, "a", NULL, &one, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_libraries_at(NULL, 0, &one), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_libraries_find(NULL, "a", &one), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_libraries_open(fixture->runtime, NULL, "", &libraries));
    check_status(strata_libraries_at(libraries, 0, &one), STRATA_ERROR_INVALID_VALUE);
    close_all();
    assert_int_equal(strata_libraries_count(NULL), 0);
    assert_null(strata_libraries_blas(NULL));
    check_ok(strata_libraries_close(NULL));
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(libraries_are_opened_in_the_order_of_their_names_and_ended_in_reverse),
        TEST_CASE(a_handle_of_the_programs_own_is_added),
        TEST_CASE(a_list_that_cannot_be_opened_leaves_nothing),
        TEST_CASE(kinds_are_registered_once_and_under_good_names),
        TEST_CASE(without_names_blas_is_opened),
        TEST_CASE(a_forked_child_is_refused),
        TEST_CASE(null_arguments_are_refused),
    };
    static const char *const stacks[] = {"pool"};
    test_before_clearing = clear;
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
