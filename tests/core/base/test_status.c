/* Errors: names and texts, the thread's record of its last failure, the log callback, and silence. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/size_text.h"
#include "support/fixture.h"
#include "support/sweep.h"

enum { LIMIT = 64 << 20, BLOCK = 8 << 20 };

static const size_t petabyte = (size_t)1 << 50;

/* ---- names ---- */

static void every_status_has_a_name_and_a_line_of_text_of_its_own(void **state)
{
    (void)state;
    static const struct {
        strata_status status;
        const char *name;
    } all[] = {
#define STATUS_ROW(name, code, text) {STRATA_##name, "STRATA_" #name},
        STRATA_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
    };
    size_t count = sizeof all / sizeof all[0];
    assert_true(count > 20);
    for (size_t i = 0; i < count; i++) {
        const char *text = strata_status_text(all[i].status);
        assert_string_equal(strata_status_name(all[i].status), all[i].name);
        assert_true(strlen(text) > 6);
        assert_null(strchr(text, '\n'));
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(all[i].status, all[j].status);
            assert_string_not_equal(text, strata_status_text(all[j].status));
        }
    }
    assert_int_equal(STRATA_SUCCESS, 0);
}

static void a_number_that_is_no_status_has_a_name_too(void **state)
{
    (void)state;
    static const int numbers[] = {-1, 99, 999, INT32_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_string_equal(strata_status_name((strata_status)numbers[i]), "STRATA_ERROR_UNKNOWN");
        assert_true(strlen(strata_status_text((strata_status)numbers[i])) > 0);
    }
}

static void the_version_is_three_numbers(void **state)
{
    (void)state;
    int major, minor, patch, end = 0;
    assert_int_equal(sscanf(strata_version_string(), "%d.%d.%d%n", &major, &minor, &patch, &end), 3);
    assert_int_equal(strata_version_string()[end], '\0');
}

/* ---- the record ---- */

static void *look_at_fresh_record(void *data)
{
    *(strata_error *)data = *strata_last_error();
    return NULL;
}

static void a_thread_that_never_failed_has_an_empty_record(void **state)
{
    (void)state;
    strata_error fresh = {.status = STRATA_ERROR_IO};
    strata_fail(STRATA_ERROR_BUSY, "of another thread");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look_at_fresh_record, &fresh), 0);
    pthread_join(thread, NULL);
    assert_int_equal(fresh.status, STRATA_SUCCESS);
    assert_string_equal(fresh.message, "");
    assert_null(fresh.driver_name);
}

static void *fail_often(void *data)
{
    bool *own = data;
    char expected[64];
    for (int i = 0; i < 3000; i++) {
        snprintf(expected, sizeof expected, "thread %p, failure %d", data, i);
        strata_fail(i % 2 ? STRATA_ERROR_BUSY : STRATA_ERROR_IO, "%s", expected);
        *own &= strcmp(strata_last_error()->message, expected) == 0;
        *own &= strata_last_error()->status == (i % 2 ? STRATA_ERROR_BUSY : STRATA_ERROR_IO);
    }
    return NULL;
}

static void each_thread_sees_its_own_failures(void **state)
{
    (void)state;
    pthread_t threads[8];
    bool own[8];
    for (size_t i = 0; i < 8; i++) {
        own[i] = true;
        assert_int_equal(pthread_create(&threads[i], NULL, fail_often, &own[i]), 0);
    }
    for (size_t i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < 8; i++)
        assert_true(own[i]);
}

static void a_record_stays_through_successes_until_the_next_failure(test_fixture *fixture)
{
    strata_tag tag;
    strata_runtime_find(fixture->runtime, 0x123456, &(strata_block){0});
    strata_error first = *strata_last_error();
    assert_int_equal(first.status, STRATA_ERROR_FOREIGN_POINTER);
    strata_block block = test_allocate(fixture, 4096, NULL);
    check_ok(strata_tag_intern("status", &tag));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    assert_int_equal(strata_last_error()->status, STRATA_ERROR_FOREIGN_POINTER);
    assert_string_equal(strata_last_error()->message, first.message);
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
    assert_int_equal(strata_last_error()->status, STRATA_ERROR_DOUBLE_FREE);
}

static void a_new_failure_leaves_nothing_of_the_old_record(test_fixture *fixture)
{
    strata_block block;
    check_status(strata_runtime_allocate(fixture->runtime, petabyte, NULL, &block), STRATA_ERROR_OUT_OF_MEMORY);
    assert_true(strata_last_error()->requested == petabyte);
    check_status(strata_runtime_find(fixture->runtime, 0x123456, &block), STRATA_ERROR_FOREIGN_POINTER);
    const strata_error *error = strata_last_error();
    assert_int_equal(error->requested, 0);
    assert_int_equal(error->device_free, 0);
    assert_int_equal(error->driver_code, CUDA_SUCCESS);
    assert_null(error->driver_name);
    assert_null(error->driver_call);
}

/* A layer may refuse without an error: then the record is empty, and no driver's code of an earlier attempt is in it.
 */
static void an_attempt_that_raises_nothing_has_no_code_of_an_earlier_one(void **state)
{
    (void)state;
    strata_error_suppress_begin();
    check_status(strata_fail_driver(CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc", "an attempt"), STRATA_ERROR_OUT_OF_MEMORY);
    strata_error_suppress_end(false);
    strata_error_suppress_begin();
    const strata_error none = *strata_error_suppressed();
    strata_error_suppress_end(false);
    assert_int_equal(none.status, STRATA_SUCCESS);
    assert_int_equal(none.driver_code, CUDA_SUCCESS);
    assert_null(none.driver_name);
    assert_null(none.driver_call);
    assert_string_equal(none.message, "");
}

static void a_message_that_is_too_long_is_cut_and_ends(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    check_status(strata_fail(STRATA_ERROR_IO, "%s", text), STRATA_ERROR_IO);
    assert_int_equal(strlen(strata_last_error()->message), sizeof strata_last_error()->message - 1);
}

/* ---- the log callback ---- */

typedef struct heard {
    size_t count;
    strata_status status;
    char message[512];
    pthread_t thread;
} heard;

static void listen(const strata_error *error, void *data)
{
    heard *all = data;
    all->count++;
    all->status = error->status;
    all->thread = pthread_self();
    snprintf(all->message, sizeof all->message, "%s", error->message);
}

static void *fail_once(void *data)
{
    (void)data;
    strata_fail(STRATA_ERROR_NOT_READY, "on the thread that fails");
    return NULL;
}

static void the_log_callback_hears_each_failure_on_the_thread_that_fails(void **state)
{
    (void)state;
    heard all = {0};
    pthread_t thread;
    strata_set_log_callback(listen, &all);
    assert_int_equal(pthread_create(&thread, NULL, fail_once, NULL), 0);
    pthread_join(thread, NULL);
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(all.count, 1);
    assert_int_equal(all.status, STRATA_ERROR_NOT_READY);
    assert_string_equal(all.message, "on the thread that fails");
    assert_true(pthread_equal(all.thread, thread));

    fail_once(NULL);
    assert_int_equal(all.count, 1);
}

static void the_log_callback_hears_nothing_of_successes(test_fixture *fixture)
{
    heard all = {0};
    strata_set_log_callback(listen, &all);
    strata_block block = test_allocate(fixture, 1 << 20, NULL);
    strata_status freed = strata_runtime_deallocate(fixture->runtime, &block);
    strata_status reaped = strata_runtime_reap_pending(fixture->runtime);
    strata_status bad = strata_runtime_deallocate(fixture->runtime, &block);
    strata_set_log_callback(NULL, NULL);
    check_ok(freed);
    check_ok(reaped);
    check_status(bad, STRATA_ERROR_DOUBLE_FREE);
    assert_int_equal(all.count, 1);
    assert_int_equal(all.status, STRATA_ERROR_DOUBLE_FREE);
}

/* ---- calls of the program's own, while errors are suppressed ---- */

static struct {
    unsigned count;
    strata_status last;
} said;

static void note_said(const strata_error *error, void *data)
{
    (void)data;
    said.count++;
    said.last = error->status;
}

/* What the library had begun is as it was: what was not said yet, the findings that wait, and the thread's last error.
 */
static void errors_of_a_call_in_between_are_its_own(void **state)
{
    (void)state;
    strata_error_aside aside;
    strata_fail(STRATA_ERROR_SYNTAX, "before");
    said.count = 0;
    strata_set_log_callback(note_said, NULL);
    strata_error_suppress_begin();
    strata_error_raise(strata_error_begin_finding(STRATA_ERROR_CORRUPTED), "a finding");
    strata_fail(STRATA_ERROR_BUSY, "not said yet");
    strata_error_set_aside(&aside);
    strata_error_suppress_begin();
    strata_error_raise(strata_error_begin_finding(STRATA_ERROR_CORRUPTED), "a finding of the call's own");
    strata_fail(STRATA_ERROR_DRIVER, "a try of the call's own");
    strata_error_suppress_end(false);
    const unsigned after_try = said.count;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "in between");
    const unsigned in_between = said.count;
    const strata_status in_between_last = strata_last_error()->status;
    strata_error_take_back(&aside);
    const strata_status unsaid = strata_error_suppressed()->status, last = strata_last_error()->status;
    strata_fail(STRATA_ERROR_NOT_READY, "hushed again");
    strata_error_raise(strata_error_begin_finding(STRATA_ERROR_CORRUPTED), "another finding");
    const unsigned afterwards = said.count;
    strata_error_suppress_end(false);
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(after_try, 1);
    assert_int_equal(in_between, 2);
    assert_int_equal(in_between_last, STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(unsaid, STRATA_ERROR_BUSY);
    assert_int_equal(last, STRATA_ERROR_SYNTAX);
    assert_int_equal(afterwards, 2);
    assert_int_equal(said.count, 4);
    assert_int_equal(said.last, STRATA_ERROR_CORRUPTED);
    check_last_error(STRATA_ERROR_SYNTAX, "before");
}

/* ---- out of memory ---- */

static void check_number_in_message(const char *words, size_t number)
{
    char expected[128];
    snprintf(expected, sizeof expected, "%s %s", words, strata_size_text(number).text);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, expected);
}

static void out_of_memory_names_where_the_memory_is(test_fixture *fixture)
{
    strata_tag tag;
    check_ok(strata_tag_intern("the big one", &tag));
    strata_block live = test_allocate(fixture, BLOCK, NULL);
    strata_request request = {.bytes = petabyte, .tag = tag};
    strata_block block = live;
    check_status(strata_runtime_allocate_request(fixture->runtime, &request, &block), STRATA_ERROR_OUT_OF_MEMORY);
    assert_true(block.address == 0 && block.id.generation == 0 && block.bytes == 0);

    strata_error error = *strata_last_error();
    strata_usage usage = test_usage(fixture);
    assert_true(error.requested == petabyte);
    assert_true(error.in_use == BLOCK);
    assert_true(error.limit == usage.limit);
    assert_true(error.reserved_free == usage.reserved_free);
    assert_true(error.device_free > 0);
    assert_true(error.remaining >= error.reserved_free);
    assert_true(error.remaining <= error.reserved_free + error.device_free);
    assert_int_equal(error.tag, tag);
    assert_int_equal(error.driver_code, CUDA_ERROR_OUT_OF_MEMORY);
    assert_string_equal(error.driver_name, "CUDA_ERROR_OUT_OF_MEMORY");
    const char *call = strcmp(fixture->stack, "pool") == 0 ? "cuMemCreate" : "cuMemAlloc";
    assert_true(strncmp(error.driver_call, call, strlen(call)) == 0);
    check_number_in_message("request of", petabyte);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, error.limit ? "limit " : "limit none");
    check_number_in_message("live", BLOCK);
    check_number_in_message("reserved but free", error.reserved_free);
    if (error.largest_free)
        check_number_in_message("largest free block", error.largest_free);
    else
        check_last_error(STRATA_ERROR_OUT_OF_MEMORY, strncmp(fixture->stack, "pool", 4) == 0 || !error.reserved_free
                                                         ? "largest free block 0 bytes,"
                                                         : "largest free block unknown to the driver");
    check_number_in_message("free on the device", error.device_free);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "\"the big one\"");
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "The request exceeds the device's memory");
    assert_null(strstr(error.message, "Free or trim"));

    strata_block again = test_allocate(fixture, BLOCK, NULL);
    check_ok(strata_runtime_deallocate(fixture->runtime, &again));
    check_ok(strata_runtime_deallocate(fixture->runtime, &live));
}

static void out_of_memory_at_a_limit_names_the_limit_and_what_is_left(void **state)
{
    (void)state;
    strata_runtime *runtime;
    strata_runtime_config config = {.stack_text = "async(max_size=64MiB)"};
    strata_block blocks[2 * LIMIT / BLOCK];
    size_t count = 0;
    check_ok(strata_runtime_create(&config, &runtime));
    strata_status status = STRATA_SUCCESS;
    while (count < sizeof blocks / sizeof blocks[0] &&
           (status = strata_runtime_allocate(runtime, BLOCK, NULL, &blocks[count])) == STRATA_SUCCESS)
        count++;
    assert_int_equal(status, STRATA_ERROR_OUT_OF_MEMORY);
    strata_error error = *strata_last_error();
    assert_true(error.limit == LIMIT);
    assert_true(error.in_use == count * BLOCK);
    assert_true(error.device_free > BLOCK);
    assert_true(error.remaining < BLOCK);
    check_number_in_message("limit", LIMIT);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "Free or trim memory");
    check_number_in_message("live", count * BLOCK);

    strata_block refused;
    check_status(strata_runtime_allocate(runtime, LIMIT + 1, NULL, &refused), STRATA_ERROR_OUT_OF_MEMORY);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "The request alone exceeds the limit");

    check_ok(strata_runtime_deallocate(runtime, &blocks[--count]));
    check_ok(strata_runtime_reap_pending(runtime));
    check_ok(strata_runtime_allocate(runtime, BLOCK, NULL, &blocks[count]));
    for (size_t i = 0; i <= count; i++)
        check_ok(strata_runtime_deallocate(runtime, &blocks[i]));
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- silence ---- */

typedef struct capture {
    int kept[2]; /* what 1 and 2 were */
    int file;
} capture;

static void capture_begin(capture *all)
{
    fflush(NULL);
    all->file = memfd_create("captured", 0);
    assert_true(all->file >= 0);
    for (int i = 0; i < 2; i++) {
        all->kept[i] = dup(i + 1);
        assert_true(all->kept[i] >= 0);
        assert_true(dup2(all->file, i + 1) >= 0);
    }
}

/* Returns how many bytes were written to either. */
static long capture_end(capture *all)
{
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        dup2(all->kept[i], i + 1);
        close(all->kept[i]);
    }
    long bytes = (long)lseek(all->file, 0, SEEK_END);
    close(all->file);
    return bytes;
}

static void nothing_is_ever_printed(test_fixture *fixture)
{
    capture all;
    strata_runtime *runtime = fixture->runtime, *other = NULL;
    strata_block block, none;
    strata_stack *stack;
    strata_launch launch;
    CUstream stream = test_stream(fixture, TEST_STREAM_REGISTERED);
    capture_begin(&all);
    strata_status allocated = strata_runtime_allocate(runtime, 1 << 20, stream, &block);
    strata_runtime_allocate(runtime, petabyte, stream, &none);
    strata_stack_create("budget(limit=", 0, &stack);
    strata_runtime_create(&(strata_runtime_config){.device = 63}, &other);
    strata_runtime_register_stream(runtime, stream);
    strata_runtime_unregister_stream(runtime, NULL);
    if (allocated == STRATA_SUCCESS) /* else it would be destroyed */
        strata_runtime_destroy(runtime);
    strata_launch_begin(&launch, runtime, stream, STRATA_LAUNCH_STRICT);
    strata_launch_use(&launch, &block, STRATA_ACCESS_WRITE);
    strata_status prepared = strata_launch_preflight(&launch);
    strata_status forgotten = strata_launch_end(&launch);
    strata_runtime_deallocate(runtime, &block);
    strata_status again = strata_runtime_deallocate(runtime, &block);
    strata_runtime_deallocate(NULL, NULL);
    long printed = capture_end(&all);
    check_ok(allocated);
    check_ok(prepared);
    check_status(forgotten, STRATA_ERROR_NOT_COMMITTED);
    check_status(again, STRATA_ERROR_DOUBLE_FREE);
    assert_int_equal(printed, 0);
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_and_a_line_of_text_of_its_own),
        cmocka_unit_test(a_number_that_is_no_status_has_a_name_too),
        cmocka_unit_test(the_version_is_three_numbers),
        cmocka_unit_test(a_thread_that_never_failed_has_an_empty_record),
        cmocka_unit_test(each_thread_sees_its_own_failures),
        cmocka_unit_test(a_message_that_is_too_long_is_cut_and_ends),
        cmocka_unit_test(an_attempt_that_raises_nothing_has_no_code_of_an_earlier_one),
        cmocka_unit_test(the_log_callback_hears_each_failure_on_the_thread_that_fails),
        cmocka_unit_test(errors_of_a_call_in_between_are_its_own),
        cmocka_unit_test(out_of_memory_at_a_limit_names_the_limit_and_what_is_left),
    };
    static const test_case cases[] = {
        TEST_CASE(a_record_stays_through_successes_until_the_next_failure),
        TEST_CASE(a_new_failure_leaves_nothing_of_the_old_record),
        TEST_CASE(the_log_callback_hears_nothing_of_successes),
        TEST_CASE(out_of_memory_names_where_the_memory_is),
        TEST_CASE(nothing_is_ever_printed),
    };
    int failed = test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
    return failed + test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
