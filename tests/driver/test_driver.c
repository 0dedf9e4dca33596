/* The choice of the driver, and drivers that lack some entry points. Each start is a process of its own. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/child.h"
#include "support/effort.h"

/* ---- in children ---- */

static strata_driver_info driver_info(void)
{
    strata_driver_info info;
    child_ok(strata_driver_get_info(&info));
    return info;
}

/* Allocates, fills and frees on the stack of the environment. */
static void use_runtime(void)
{
    strata_runtime *runtime;
    strata_block block;
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_allocate(runtime, 4096, NULL, &block));
    child_ok(strata_runtime_prepare_block_use(runtime, &block, NULL, STRATA_ACCESS_WRITE));
    child_ok(strata_runtime_finish_block_use(runtime, &block, NULL, STRATA_ACCESS_NONE));
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_ok(strata_runtime_reap_pending(runtime));
    child_check(strata_runtime_bytes_outstanding(runtime) == 0);
    child_ok(strata_runtime_trim(runtime, 0, NULL)); /* memory that the runtime keeps is a leak to compute-sanitizer */
}

static void path_is_opened(void)
{
    strata_driver_info info = driver_info();
    child_check(strcmp(info.choice, getenv("STRATA_DRIVER")) == 0);
    child_check(strcmp(info.library, getenv("STRATA_DRIVER")) == 0);
    child_check(info.simulated);
    child_check(info.device_count == 1 && info.version >= 12000);
    use_runtime();
}

static void call_before_opening(void)
{
    strata_cu.CtxSynchronize();
}

static void bad_path_is_refused(void)
{
    strata_driver_info info;
    strata_runtime *runtime = (strata_runtime *)&info;
    child_status(strata_driver_get_info(&info), STRATA_ERROR_DRIVER_NOT_FOUND);
    child_check_words("/nowhere/libcuda.so");
    child_check(!info.library && info.device_count == 0);
    child_status(strata_runtime_get(0, &runtime), STRATA_ERROR_DRIVER_NOT_FOUND);
    child_check(!runtime);
    child_status(strata_runtime_create(NULL, &runtime), STRATA_ERROR_DRIVER_NOT_FOUND);
    child_status(strata_device_get_info(0, &(strata_device_info){0}), STRATA_ERROR_DRIVER_NOT_FOUND);
    child_status(strata_async_create(0, NULL, &(strata_resource *){NULL}), STRATA_ERROR_DRIVER_NOT_FOUND);
}

static void unknown_word_is_refused(void)
{
    strata_driver_info info;
    child_status(strata_driver_get_info(&info), STRATA_ERROR_DRIVER_NOT_FOUND);
    child_check_words("\"cudaa\"");
    child_check_words("expected cuda, sim, auto");
}

static void endless_path_is_refused(void)
{
    strata_driver_info info;
    child_status(strata_driver_get_info(&info), STRATA_ERROR_DRIVER_NOT_FOUND);
    child_check_words("STRATA_DRIVER is longer than a path can be");
    strata_driver_choose("sim"); /* the environment overrides the program */
    child_status(strata_driver_get_info(&info), STRATA_ERROR_DRIVER_NOT_FOUND);
}

static void library_that_is_no_driver_is_refused(void)
{
    strata_driver_info info;
    child_status(strata_driver_get_info(&info), STRATA_ERROR_DRIVER_NOT_FOUND);
    child_check_words("cuGetProcAddress_v2");
}

static void nonsense_for_the_simulated_driver_is_named(void)
{
    strata_driver_info info;
    child_status(strata_driver_get_info(&info), STRATA_ERROR_DRIVER);
    child_check_words("STRATA_SIM_POLICY is \"foo\": expected early, random or late");
}

static void missing_simulated_driver_is_named(void)
{
    strata_driver_info info;
    child_status(strata_driver_get_info(&info), STRATA_ERROR_DRIVER_NOT_FOUND);
    child_check_words("/nowhere/libstrata-sim.so");
    child_check_words("set by STRATA_SIM_LIBRARY");
}

static void auto_finds_one(void)
{
    strata_driver_info info = driver_info();
    child_check(strcmp(info.choice, "auto") == 0);
    child_check(info.device_count > 0);
    child_check(info.simulated == (strstr(info.library, "libcuda.so") == NULL));
    use_runtime();
}

static void default_driver(void)
{
    strata_driver_info info;
    strata_status status = strata_driver_get_info(&info);
    child_check(status != STRATA_SUCCESS || !info.simulated);
    if (status != STRATA_SUCCESS) {
        child_check_words("libcuda.so.1");
        child_check_words("STRATA_DRIVER=sim");
    }
}

static void environment_wins_over_choice(void)
{
    child_ok(strata_driver_choose("/nowhere/else.so"));
    child_check(driver_info().simulated);
}

static void choice_is_made_before_the_first_use(void)
{
    child_status(strata_driver_choose(NULL), STRATA_ERROR_INVALID_VALUE);
    child_status(strata_driver_choose(""), STRATA_ERROR_INVALID_VALUE);
    child_status(strata_driver_choose("foo"), STRATA_ERROR_INVALID_VALUE);
    child_check_words("\"foo\": expected cuda, sim, auto");
    static char longer[10000];
    memset(longer, '/', sizeof longer - 1);
    child_status(strata_driver_choose(longer), STRATA_ERROR_INVALID_VALUE);
    child_check_words("expected cuda, sim, auto");
    child_ok(strata_driver_choose("auto"));
    child_ok(strata_driver_choose("sim"));
    child_check(driver_info().simulated);
    child_ok(strata_driver_choose("sim"));
    child_status(strata_driver_choose("cuda"), STRATA_ERROR_BUSY);
    longer[1000] = '\0';
    child_status(strata_driver_choose(longer), STRATA_ERROR_BUSY);
    child_check_words("before the first call that needs the driver");
    child_status(strata_driver_count_calls(), STRATA_ERROR_BUSY);
}

static void visit_any(const char *name, uint64_t count, void *data)
{
    (void)count;
    *(bool *)data |= strcmp(name, "cuInit") == 0;
}

static void calls_are_counted_only_when_asked(void)
{
    bool any = false;
    use_runtime();
    strata_driver_visit_calls(visit_any, &any);
    child_check(!any);
    strata_driver_visit_calls(NULL, NULL);
}

static void second_try_works(void)
{
    strata_runtime *runtime;
    setenv("STRATA_DRIVER", "/nowhere/libcuda.so", 1);
    child_status(strata_runtime_get(0, &runtime), STRATA_ERROR_DRIVER_NOT_FOUND);
    setenv("STRATA_SIM_MEMORY", "a lot", 1);
    setenv("STRATA_DRIVER", "sim", 1);
    child_status(strata_runtime_get(0, &runtime), STRATA_ERROR_DRIVER);
    child_check_words("cuInit returned CUDA_ERROR_INVALID_VALUE");
    unsetenv("STRATA_SIM_MEMORY");
    use_runtime();
}

static void default_stack_works(void)
{
    use_runtime();
}

static void required_entry_is_missing(void)
{
    strata_runtime *runtime;
    strata_status status = strata_runtime_get(0, &runtime);
    child_check(status == STRATA_ERROR_DRIVER || status == STRATA_ERROR_DRIVER_NOT_FOUND);
    child_check_words(getenv("STRATA_SHIM_HIDES"));
    child_check_words("newer driver");
}

static void pools_are_missing(void)
{
    strata_device_info info;
    strata_runtime *runtime;
    child_ok(strata_device_get_info(0, &info));
    child_check(!info.memory_pools);
    child_status(strata_runtime_get(0, &runtime), STRATA_ERROR_UNSUPPORTED);
    child_check_words("use direct");
    setenv("STRATA_STACK", "direct", 1);
    use_runtime();
}

/* A layer that asks for the runtime during its own creation. */
static strata_status ask_for_runtime(int device, const void *options, strata_resource **out)
{
    strata_runtime *runtime;
    (void)options;
    *out = NULL;
    return strata_runtime_get(device, &runtime);
}

static void layer_asks_for_the_runtime_that_it_is_made_for(void)
{
    static const strata_layer asks = {
        .size = sizeof asks, .owner = true, .name = "asks", .help = "asks", .create = ask_for_runtime};
    strata_runtime *runtime;
    child_ok(strata_layer_register(&asks));
    alarm(test_timeout(10)); /* in case the call waits for itself */
    child_status(strata_runtime_get(0, &runtime), STRATA_ERROR_INVALID_VALUE);
    child_check_words("recursive call");
    setenv("STRATA_STACK", "direct", 1);
    use_runtime();
}

/* Two unknown streams that the driver cannot tell apart: one writes late, the other reads. */
static void streams_without_ids_are_still_ordered(void)
{
    strata_device_info info;
    strata_runtime *runtime;
    strata_block block;
    CUcontext context;
    CUstream writer, reader;
    void *seen;
    child_ok(strata_device_get_info(0, &info));
    child_check(!info.stream_ids);
    child_ok(strata_runtime_get(0, &runtime));
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
    child_check(strata_cu.StreamCreate(&writer, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_check(strata_cu.StreamCreate(&reader, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_check(strata_cu.MemHostAlloc(&seen, 4096, 0) == CUDA_SUCCESS);
    for (int round = 0; round < 200; round++) {
        int value = round % 251 + 1;
        child_ok(strata_runtime_allocate(runtime, 4096, writer, &block));
        child_ok(strata_runtime_prepare_block_use(runtime, &block, writer, STRATA_ACCESS_WRITE));
        child_check(strata_cu.MemsetD8Async(block.address, (unsigned char)value, 4096, writer) == CUDA_SUCCESS);
        child_ok(strata_runtime_finish_block_use(runtime, &block, writer, STRATA_ACCESS_WRITE));
        child_ok(strata_runtime_prepare_block_use(runtime, &block, reader, STRATA_ACCESS_READ));
        child_check(strata_cu.MemcpyDtoHAsync(seen, block.address, 4096, reader) == CUDA_SUCCESS);
        child_ok(strata_runtime_finish_block_use(runtime, &block, reader, STRATA_ACCESS_READ));
        child_ok(strata_runtime_deallocate_on(runtime, &block, writer));
        child_check(strata_cu.StreamSynchronize(reader) == CUDA_SUCCESS);
        child_check(*(unsigned char *)seen == value && ((unsigned char *)seen)[4095] == value);
    }
    child_ok(strata_runtime_reap_pending(runtime));
    child_check(strata_runtime_bytes_outstanding(runtime) == 0);
    child_check(strata_cu.StreamDestroy(writer) == CUDA_SUCCESS);
    child_check(strata_cu.StreamDestroy(reader) == CUDA_SUCCESS);
}

/* ---- few file descriptors ---- */

enum { DESCRIPTORS = 128 };

static int taken[DESCRIPTORS], taken_count;

/* `left` remain, of which a sanitizer needs some at the end: give_descriptors_back. */
static void leave_descriptors(int left)
{
    struct rlimit limit;
    child_check(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = DESCRIPTORS;
    child_check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (taken_count < DESCRIPTORS && (taken[taken_count] = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0)
        taken_count++;
    while (left-- > 0)
        close(taken[--taken_count]);
}

static void give_descriptors_back(void)
{
    while (taken_count > 0)
        close(taken[--taken_count]);
}

/* The driver opens more files than there are descriptors, or, with none, is not even loaded. */
static void shortage_is_named(void)
{
    static const char *const left_words[] = {"no file descriptor is left", "only 1 file descriptor is left",
                                             "only 2 file descriptors are left", "only 3 file descriptors are left"};
    strata_driver_info info;
    for (int left = 0; left < 8; left++) {
        leave_descriptors(left);
        const strata_status status = strata_driver_get_info(&info);
        give_descriptors_back();
        child_status(status, STRATA_ERROR_IO);
        child_check(strstr(strata_last_error()->message, left < 4 ? left_words[left] : "only ") ==
                    strata_last_error()->message);
        child_check_words("raise the limit (ulimit -n). ");
        child_check_words("libcuda.so.1");
        child_check(!strstr(strata_last_error()->message, "STRATA_DRIVER=sim"));
    }
    info = driver_info(); /* the same process, when there are enough */
    child_check(strcmp(info.library, "libcuda.so.1") == 0);
}

static void shortage_is_named_before_a_long_path(void)
{
    strata_driver_info info;
    static char path[600] = "/nowhere/";
    memset(path + strlen(path), 'x', sizeof path - 10);
    setenv("STRATA_DRIVER", path, 1);
    leave_descriptors(0);
    const strata_status status = strata_driver_get_info(&info);
    give_descriptors_back();
    child_status(status, STRATA_ERROR_IO);
    child_check_words("no file descriptor is left; close some, or raise the limit (ulimit -n). /nowhere/xxx");
}

/* Mistakes that no descriptor mends. */
static void shortage_is_not_named_where_it_is_not_the_reason(void)
{
    strata_driver_info info;
    leave_descriptors(0);
    setenv("STRATA_DRIVER", "nonsense", 1);
    const strata_status word = strata_driver_get_info(&info);
    const bool word_named = strstr(strata_last_error()->message, "expected cuda, sim, auto") != NULL;
    give_descriptors_back();
    leave_descriptors(2);
    setenv("STRATA_DRIVER", "cuda", 1);
    const strata_status old = strata_driver_get_info(&info); /* the shim hides an entry point */
    give_descriptors_back();
    child_check(word == STRATA_ERROR_DRIVER_NOT_FOUND && word_named);
    child_check(old == STRATA_ERROR_DRIVER_NOT_FOUND || old == STRATA_ERROR_DRIVER);
    child_check_words("a newer driver is needed");
}

/* ---- in the parent ---- */

/* Skips where this machine has no simulated driver to start. */
static const char *sim_library(void)
{
    const char *path = getenv("STRATA_SIM_LIBRARY");
    if (!path || access(path, R_OK) != 0)
        skip();
    return path;
}

static const char *shim_library(void)
{
    const char *path = getenv("STRATA_SHIM_LIBRARY");
    sim_library();
    if (!path || access(path, R_OK) != 0)
        skip();
    return path;
}

static void run_with_driver(const char *scenario, const char *driver)
{
    char choice[4200];
    snprintf(choice, sizeof choice, "STRATA_DRIVER=%s", driver);
    const char *const changes[] = {choice, "STRATA_STACK", NULL};
    test_child_run(scenario, changes);
}

static void run_with_shim(const char *scenario, const char *hidden, const char *stack)
{
    char choice[4200], hides[128], text[64];
    snprintf(choice, sizeof choice, "STRATA_DRIVER=%s", shim_library());
    snprintf(hides, sizeof hides, "STRATA_SHIM_HIDES=%s", hidden);
    snprintf(text, sizeof text, "STRATA_STACK=%s", stack);
    const char *const changes[] = {choice, hides, text, "STRATA_SIM_POLICY=late", NULL};
    test_child_run(scenario, changes);
}

static void a_driver_is_chosen_by_its_path(void **state)
{
    (void)state;
    run_with_driver("path_is_opened", sim_library());
}

static void a_path_that_leads_nowhere_is_an_error_that_names_it(void **state)
{
    (void)state;
    run_with_driver("bad_path_is_refused", "/nowhere/libcuda.so");
}

static void a_word_that_is_none_is_an_error_that_names_those_there_are(void **state)
{
    (void)state;
    run_with_driver("unknown_word_is_refused", "cudaa");
}

static void a_choice_longer_than_a_path_is_refused_and_not_cut(void **state)
{
    (void)state;
    char path[4150] = "/";
    memset(path + 1, 'x', sizeof path - 2);
    run_with_driver("endless_path_is_refused", path);
}

static void a_library_that_is_no_driver_is_refused(void **state)
{
    (void)state;
    const char *shim = getenv("STRATA_OTHER_LIBRARY");
    if (!shim)
        skip();
    run_with_driver("library_that_is_no_driver_is_refused", shim);
}

static void auto_takes_the_gpu_or_else_the_simulated_driver(void **state)
{
    (void)state;
    sim_library();
    run_with_driver("auto_finds_one", "auto");
}

/* With the shim under the name of the GPU's driver. */
static void run_with_gpu(const char *scenario, const char *driver, const char *const *more)
{
    char folder[] = "/tmp/strata-test-XXXXXX", link[64], path[4200], choice[64];
    const char *changes[8] = {path, choice, "STRATA_STACK"}, *others = getenv("LD_LIBRARY_PATH");
    const char *shim = shim_library();
    if (test_under_valgrind())
        skip();
    assert_non_null(mkdtemp(folder));
    snprintf(link, sizeof link, "%s/libcuda.so.1", folder);
    assert_int_equal(symlink(shim, link), 0);
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s%s%s", folder, others ? ":" : "", others ? others : "");
    snprintf(choice, sizeof choice, "STRATA_DRIVER=%s", driver);
    for (size_t i = 0; more[i]; i++)
        changes[3 + i] = more[i];
    test_child_run(scenario, changes);
    unlink(link);
    rmdir(folder);
}

/* There may be a GPU: what cuInit opens at once is more than what is left, though nothing is open any more when it has
 * failed. */
static void auto_does_not_take_the_simulated_driver_for_want_of_descriptors(void **state)
{
    (void)state;
    static const char *const fails[] = {"STRATA_SHIM_OPENS=8", NULL}, *const finds_none[] = {
                                                                          "STRATA_SHIM_OPENS=8",
                                                                          "STRATA_SHIM_OPENS_UNSEEN=1", NULL};
    run_with_gpu("shortage_is_named", "auto", fails);
    run_with_gpu("shortage_is_named", "auto", finds_none);
}

static void a_shortage_of_descriptors_is_named_first_and_without_a_hint_at_the_simulated_driver(void **state)
{
    (void)state;
    static const char *const fails[] = {"STRATA_SHIM_OPENS=8", NULL};
    run_with_gpu("shortage_is_named", "cuda", fails);
    run_with_driver("shortage_is_named_before_a_long_path", "cuda");
}

static void other_failures_are_not_called_a_shortage_of_descriptors(void **state)
{
    (void)state;
    static const char *const hides[] = {"STRATA_SHIM_HIDES=cuMemAlloc", NULL};
    run_with_gpu("shortage_is_not_named_where_it_is_not_the_reason", "cuda", hides);
}

static void simulated_memory_is_never_given_unasked(void **state)
{
    (void)state;
    const char *const changes[] = {"STRATA_DRIVER", "STRATA_STACK", NULL};
    test_child_run("default_driver", changes);
    const char *const emptied[] = {"STRATA_DRIVER=", "STRATA_STACK", NULL};
    test_child_run("default_driver", emptied);
}

static void the_environment_wins_over_the_programs_choice(void **state)
{
    (void)state;
    run_with_driver("environment_wins_over_choice", sim_library());
}

static void a_program_chooses_before_its_first_use_and_not_after(void **state)
{
    (void)state;
    sim_library();
    const char *const changes[] = {"STRATA_DRIVER", "STRATA_STACK", NULL};
    test_child_run("choice_is_made_before_the_first_use", changes);
}

static void without_being_asked_to_no_call_is_counted(void **state)
{
    (void)state;
    sim_library();
    run_with_driver("calls_are_counted_only_when_asked", "sim");
}

static void after_a_failed_start_a_good_one_works(void **state)
{
    (void)state;
    sim_library();
    run_with_driver("second_try_works", "sim");
}

static void a_driver_without_any_one_optional_entry_point_works_with_direct(void **state)
{
    (void)state;
    static const char *const optional[] = {
#define REQUIRED                                                  0
#define OPTIONAL                                                  1
#define NAME_OPTIONAL(need, name, version, parameters, arguments) need ? "cu" #name : NULL,
        STRATA_ENTRY_POINTS(NAME_OPTIONAL)
#undef NAME_OPTIONAL
    };
    size_t count = 0;
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++) {
        if (!optional[i])
            continue;
        count++;
        run_with_shim("default_stack_works", optional[i], "direct");
    }
    assert_true(count >= 8);
}

static void a_driver_without_any_one_required_entry_point_is_refused_by_its_name(void **state)
{
    (void)state;
    static const char *const required[] = {
#define NAME_REQUIRED(need, name, version, parameters, arguments) need ? NULL : "cu" #name,
        STRATA_ENTRY_POINTS(NAME_REQUIRED)
#undef NAME_REQUIRED
#undef REQUIRED
#undef OPTIONAL
    };
    size_t count = 0;
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        if (!required[i])
            continue;
        count++;
        run_with_shim("required_entry_is_missing", required[i], "direct");
    }
    assert_true(count >= 20);
}

static void a_driver_without_pools_has_no_async_and_says_what_to_use(void **state)
{
    (void)state;
    run_with_shim("pools_are_missing", "cuMemPoolCreate", "async");
    run_with_shim("pools_are_missing", "cuMemAllocFromPoolAsync,cuMemFreeAsync", "async");
    run_with_shim("pools_are_missing", "cuMemPoolTrimTo", "async(max_size=1GiB)");
}

static void a_layer_that_asks_for_the_runtime_that_is_being_built_is_refused(void **state)
{
    (void)state;
    static const char *const changes[] = {"STRATA_DRIVER=auto", "STRATA_STACK=asks", NULL};
    test_child_run("layer_asks_for_the_runtime_that_it_is_made_for", changes);
}

static void streams_are_ordered_on_a_driver_that_cannot_identify_them(void **state)
{
    (void)state;
    run_with_shim("streams_without_ids_are_still_ordered", "cuStreamGetId", "async");
    run_with_shim("streams_without_ids_are_still_ordered", "cuStreamGetId", "direct");
}

static void a_setting_of_the_simulated_driver_that_means_nothing_is_named(void **state)
{
    (void)state;
    sim_library();
    static const char *const changes[] = {"STRATA_DRIVER=sim", "STRATA_SIM_POLICY=foo", NULL};
    test_child_run("nonsense_for_the_simulated_driver_is_named", changes);
}

static void a_missing_simulated_driver_is_reported_with_the_variable_that_named_it(void **state)
{
    (void)state;
    static const char *const changes[] = {"STRATA_DRIVER=sim", "STRATA_SIM_LIBRARY=/nowhere/libstrata-sim.so", NULL};
    test_child_run("missing_simulated_driver_is_named", changes);
}

/* What a child prints to standard error, in `words`. Returns its exit status. */
static int status_and_words(const char *scenario, char *words, size_t room)
{
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    assert_non_null(file);
    assert_true(kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    int status = test_child_status(scenario, NULL);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    words[fread(words, 1, room - 1, file)] = '\0';
    fclose(file);
    return status;
}

static void a_test_that_calls_the_driver_before_it_is_open_ends_with_a_message(void **state)
{
    (void)state;
    char words[1024];
    assert_int_equal(status_and_words("call_before_opening", words, sizeof words), TEST_DRIVER_UNOPENED);
    assert_non_null(strstr(words, "cuCtxSynchronize was called before the driver is open"));
    assert_non_null(strstr(words, "test_open_driver()"));
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(missing_simulated_driver_is_named),
        TEST_SCENARIO(path_is_opened),
        TEST_SCENARIO(bad_path_is_refused),
        TEST_SCENARIO(call_before_opening),
        TEST_SCENARIO(unknown_word_is_refused),
        TEST_SCENARIO(endless_path_is_refused),
        TEST_SCENARIO(library_that_is_no_driver_is_refused),
        TEST_SCENARIO(nonsense_for_the_simulated_driver_is_named),
        TEST_SCENARIO(auto_finds_one),
        TEST_SCENARIO(default_driver),
        TEST_SCENARIO(shortage_is_named),
        TEST_SCENARIO(shortage_is_named_before_a_long_path),
        TEST_SCENARIO(shortage_is_not_named_where_it_is_not_the_reason),
        TEST_SCENARIO(environment_wins_over_choice),
        TEST_SCENARIO(choice_is_made_before_the_first_use),
        TEST_SCENARIO(calls_are_counted_only_when_asked),
        TEST_SCENARIO(second_try_works),
        TEST_SCENARIO(default_stack_works),
        TEST_SCENARIO(required_entry_is_missing),
        TEST_SCENARIO(pools_are_missing),
        TEST_SCENARIO(layer_asks_for_the_runtime_that_it_is_made_for),
        TEST_SCENARIO(streams_without_ids_are_still_ordered),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_test_that_calls_the_driver_before_it_is_open_ends_with_a_message),
        cmocka_unit_test(a_driver_is_chosen_by_its_path),
        cmocka_unit_test(a_path_that_leads_nowhere_is_an_error_that_names_it),
        cmocka_unit_test(a_word_that_is_none_is_an_error_that_names_those_there_are),
        cmocka_unit_test(a_choice_longer_than_a_path_is_refused_and_not_cut),
        cmocka_unit_test(a_library_that_is_no_driver_is_refused),
        cmocka_unit_test(a_setting_of_the_simulated_driver_that_means_nothing_is_named),
        cmocka_unit_test(a_missing_simulated_driver_is_reported_with_the_variable_that_named_it),
        cmocka_unit_test(auto_takes_the_gpu_or_else_the_simulated_driver),
        cmocka_unit_test(auto_does_not_take_the_simulated_driver_for_want_of_descriptors),
        cmocka_unit_test(a_shortage_of_descriptors_is_named_first_and_without_a_hint_at_the_simulated_driver),
        cmocka_unit_test(other_failures_are_not_called_a_shortage_of_descriptors),
        cmocka_unit_test(simulated_memory_is_never_given_unasked),
        cmocka_unit_test(the_environment_wins_over_the_programs_choice),
        cmocka_unit_test(a_program_chooses_before_its_first_use_and_not_after),
        cmocka_unit_test(without_being_asked_to_no_call_is_counted),
        cmocka_unit_test(after_a_failed_start_a_good_one_works),
        cmocka_unit_test(a_driver_without_any_one_optional_entry_point_works_with_direct),
        cmocka_unit_test(a_driver_without_any_one_required_entry_point_is_refused_by_its_name),
        cmocka_unit_test(a_driver_without_pools_has_no_async_and_says_what_to_use),
        cmocka_unit_test(a_layer_that_asks_for_the_runtime_that_is_being_built_is_refused),
        cmocka_unit_test(streams_are_ordered_on_a_driver_that_cannot_identify_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
