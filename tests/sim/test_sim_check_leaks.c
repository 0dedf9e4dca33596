/* Memory that was never freed: the checker's mode `leaks`. */
#include "planted/world.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { KIB = 1024 };

/* Not inlined, so that they are in the call stacks. */
__attribute__((noinline)) CUdeviceptr a_place_that_frees(size_t bytes);
__attribute__((noinline)) CUdeviceptr a_place_that_leaks(size_t bytes);
__attribute__((noinline)) CUdeviceptr a_place_that_leaks_in_a_stream(size_t bytes, CUstream stream);
__attribute__((noinline)) void *a_place_that_leaks_pinned_memory(size_t bytes);
__attribute__((noinline)) void a_block_of_a_pool(CUdeviceptr address, size_t bytes, uint64_t id);

CUdeviceptr a_place_that_frees(size_t bytes)
{
    CUdeviceptr address;
    OK(p_cuMemAlloc(&address, bytes));
    return address;
}

CUdeviceptr a_place_that_leaks(size_t bytes)
{
    CUdeviceptr address;
    OK(p_cuMemAlloc(&address, bytes));
    return address;
}

CUdeviceptr a_place_that_leaks_in_a_stream(size_t bytes, CUstream stream)
{
    CUdeviceptr address;
    OK(p_cuMemAllocAsync(&address, bytes, stream));
    return address;
}

void *a_place_that_leaks_pinned_memory(size_t bytes)
{
    void *address;
    OK(p_cuMemHostAlloc(&address, bytes, 0));
    return address;
}

void a_block_of_a_pool(CUdeviceptr address, size_t bytes, uint64_t id)
{
    OK(p_region_begin(address, bytes, id));
}

static void begin(void)
{
    OK(p_clear_reports());
    OK(p_set_check(STRATA_SIM_CHECK_LEAKS));
    test_sim_begin();
}

/* Returns the number of reports. */
static uint64_t end(void)
{
    uint64_t count;
    OK(p_cuCtxSetCurrent(NULL));
    OK(p_cuDevicePrimaryCtxRelease(0));
    OK(p_get_report_count(&count));
    OK(p_set_check(STRATA_SIM_CHECK_OFF));
    return count;
}

/* The report whose text has these words. */
static strata_sim_report report_with(const char *words)
{
    strata_sim_report report;
    for (uint64_t i = 0; p_get_report(i, &report) == CUDA_SUCCESS; i++)
        if (strstr(report.text, words))
            return report;
    fail_msg("no report has \"%s\"", words);
    return report;
}

static void assert_leak(const char *place, uint64_t allocations, uint64_t bytes, const char *first)
{
    strata_sim_report report = report_with(place);
    assert_int_equal(report.kind, STRATA_SIM_REPORT_LEAK);
    assert_int_equal(report.times, allocations);
    assert_int_equal(report.bytes, bytes);
    if (!strstr(report.text, first) || !strstr(report.text, "strata-sim: memory that was never freed"))
        fail_msg("\"%s\" is not in:\n%s", first, report.text);
}

static void what_is_left_is_reported_by_its_places_when_its_context_ends(void **state)
{
    (void)state;
    CUstream stream;
    begin();
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    volatile int rounds = 3;
    for (int i = 0; i < rounds; i++) {
        CUdeviceptr freed = a_place_that_frees(KIB);
        (void)a_place_that_leaks(KIB * (unsigned)(i + 1));
        OK(p_cuMemFree(freed));
    }
    (void)a_place_that_leaks_in_a_stream(5000, stream);
    (void)a_place_that_leaks_pinned_memory(8192);
    assert_int_equal(end(), 3);
    assert_leak("a_place_that_leaks (", 3, 6 * KIB, "bytes: 1024 of device memory");
    assert_leak("a_place_that_leaks_in_a_stream", 1, 5000, "allocated: allocation, cuMemAllocAsync");
    assert_leak("a_place_that_leaks_pinned_memory", 1, 8192, "bytes: 8192 of pinned memory");
    assert_leak("the first of 3 allocations with 6144 bytes", 3, 6 * KIB, "allocation, cuMemAlloc");
}

/* A free in a stream counts from its call, whether it has run or not. */
static void what_is_freed_is_no_leak(void **state)
{
    (void)state;
    CUstream stream;
    begin();
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr address = a_place_that_leaks_in_a_stream(KIB, stream);
    OK(p_cuMemFreeAsync(address, stream));
    OK(p_cuMemFree(a_place_that_leaks(KIB)));
    OK(p_cuMemFreeHost(a_place_that_leaks_pinned_memory(KIB)));
    assert_int_equal(end(), 0);
}

static void without_the_mode_nothing_is_a_leak(void **state)
{
    (void)state;
    OK(p_clear_reports());
    OK(p_set_check(STRATA_SIM_CHECK_ON));
    test_sim_begin();
    (void)a_place_that_leaks(KIB);
    assert_int_equal(end(), 0);
}

static void what_was_there_before_and_what_a_module_has_are_no_leaks(void **state)
{
    (void)state;
    CUmodule module;
    OK(p_clear_reports());
    OK(p_set_check(STRATA_SIM_CHECK_OFF));
    test_sim_begin();
    (void)a_place_that_leaks(KIB);
    OK(p_set_check(STRATA_SIM_CHECK_LEAKS));
    OK(p_cuModuleLoadData(&module, world_ptx));
    assert_int_equal(end(), 0);
}

/* The checker has long forgotten the order of the allocation. */
static void an_old_leak_has_its_call_stack(void **state)
{
    (void)state;
    enum { ROUNDS = 20000 };
    begin();
    CUdeviceptr address = a_place_that_leaks(ROUNDS);
    for (unsigned i = 0; i < ROUNDS; i++)
        OK(p_cuMemsetD8Async(address + i, 1, 1, NULL));
    OK(p_cuCtxSynchronize());
    for (unsigned i = 0; i < ROUNDS; i++)
        OK(p_cuMemsetD8Async(address, 1, 1, NULL));
    assert_int_equal(end(), 1);
    assert_leak("a_place_that_leaks (", 1, ROUNDS, "allocated: allocation, cuMemAlloc");
}

/* The pool's own memory is its cache. */
static void of_a_pool_the_blocks_are_left_that_have_not_come_back(void **state)
{
    (void)state;
    begin();
    CUdeviceptr chunk = a_place_that_frees(64 * KIB);
    (void)a_place_that_frees(64 * KIB);
    volatile unsigned blocks = 4; /* a loop that stays one: each call has one place */
    for (unsigned i = 0; i < blocks; i++)
        a_block_of_a_pool(chunk + i * 4096ULL, 4000, i);
    OK(p_region_end(chunk, 0));
    OK(p_region_end(chunk + 4096, 1));
    assert_int_equal(end(), 2);
    assert_leak("a_block_of_a_pool", 2, 8000, "the first of 2 blocks with 8000 bytes");
    assert_leak("a_place_that_frees", 1, 64 * KIB, "allocated: allocation, cuMemAlloc");
}

static void a_pool_without_live_blocks_leaks_nothing(void **state)
{
    (void)state;
    begin();
    CUdeviceptr chunk = a_place_that_frees(64 * KIB);
    a_block_of_a_pool(chunk + 4096, 4000, 1);
    OK(p_region_end(chunk + 4096, 1));
    assert_int_equal(end(), 0);
}

/* ---- at the end of the process ---- */

static void read_file(int file, char *text, size_t room)
{
    assert_int_equal(lseek(file, 0, SEEK_SET), 0);
    ssize_t length = read(file, text, room - 1);
    assert_true(length >= 0);
    text[length] = '\0';
}

/* In a child that has not started the driver. */
static int leak_and_exit(void)
{
    CUstream stream;
    CUevent events[2];
    OK(p_cuInit(0));
    test_sim_begin();
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++)
        OK(p_cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    (void)a_place_that_leaks(KIB);
    return 0;
}

static int status_of_child(int (*child)(void), const char *check, const char *file)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("STRATA_SIM_CHECK", check, 1);
        setenv("STRATA_SIM_CHECK_FILE", file, 1);
        setenv("STRATA_SIM_CHECK_EXIT", "9", 1);
        exit(child());
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void what_is_left_at_exit_is_reported(void **state)
{
    (void)state;
    char name[] = "/tmp/strata-leaks-XXXXXX";
    char text[1 << 14];
    int file = mkstemp(name);
    assert_true(file >= 0);
    assert_int_equal(status_of_child(leak_and_exit, "leaks", name), 9);
    read_file(file, text, sizeof text);
    assert_non_null(strstr(text, "strata-sim: memory that was never freed"));
    assert_non_null(strstr(text, "a_place_that_leaks"));
    assert_non_null(strstr(text, "strata-sim: not destroyed: 1 stream, 2 events\n"));
    assert_non_null(strstr(text, "strata-sim: 1 report\n"));
    assert_int_equal(ftruncate(file, 0), 0);
    assert_int_equal(status_of_child(leak_and_exit, "1", name), 0);
    read_file(file, text, sizeof text);
    assert_string_equal(text, "");
    close(file);
    unlink(name);
}

int main(void)
{
    test_sim_open();
    const struct CMUnitTest at_exit[] = {
        cmocka_unit_test(what_is_left_at_exit_is_reported),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_is_reported_by_its_places_when_its_context_ends),
        cmocka_unit_test(what_is_freed_is_no_leak),
        cmocka_unit_test(without_the_mode_nothing_is_a_leak),
        cmocka_unit_test(what_was_there_before_and_what_a_module_has_are_no_leaks),
        cmocka_unit_test(an_old_leak_has_its_call_stack),
        cmocka_unit_test(of_a_pool_the_blocks_are_left_that_have_not_come_back),
        cmocka_unit_test(a_pool_without_live_blocks_leaks_nothing),
    };
    int failed = cmocka_run_group_tests(at_exit, NULL, NULL);
    if (p_cuInit(0) != CUDA_SUCCESS || p_register_kernel("touch", touch_host_kernel) != CUDA_SUCCESS)
        return 1;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
