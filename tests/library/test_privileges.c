/* What a process does not take from its environment or current folder: in a set-uid program everything of the user is
 * ignored, and a relative path never means a folder that the process went to later. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/base/host_memory.h"
#include "support/child.h"
#include "support/effort.h"
#include "support/rerun.h"

enum { NAME_ROOM = 600, OTHER_USER = 65534 };

/* A folder of a test, removed at its end, and the one to return to. */
static char folder[64], home[PATH_MAX];

static const char *in_folder(const char *name)
{
    static char paths[8][NAME_ROOM];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, NAME_ROOM, "%s/%s", folder, name);
    return path;
}

/* ---- in children ---- */

static bool library_is(const char *path)
{
    strata_driver_info info;
    child_ok(strata_driver_get_info(&info));
    if (strcmp(info.library, path) != 0)
        printf("%s was opened, not %s\n", info.library, path);
    return strcmp(info.library, path) == 0;
}

/* Skips a child whose file system does not grant the privileges. */
static void require_privileges(void)
{
    if (!getauxval(AT_SECURE))
        exit(77);
}

static void privileged_program_ignores_its_users_environment(void)
{
    strata_runtime *runtime;
    const char *sim = getenv("STRATA_TEST_SIM"), *foreign = getenv("STRATA_SIM_LIBRARY");
    require_privileges();
    child_status(strata_driver_choose(NULL), STRATA_ERROR_INVALID_VALUE); /* an error for STRATA_REPORT */
    child_ok(strata_driver_choose(sim));
    child_check(library_is(sim));
    strata_driver_info info;
    child_ok(strata_driver_get_info(&info));
    child_check(info.device_count == 1);
    child_check(strata_host_allocator_reason() == NULL ||
                !strstr(strata_host_allocator_reason(), "STRATA_HOST_MEMORY"));
    child_ok(strata_runtime_get(0, &runtime));
    child_check(!strstr(strata_stack_text(strata_runtime_stack(runtime)), "stolen"));
    strata_stack *stack;
    child_ok(strata_stack_create("budget(limit=1MiB, shared=privileges-test), nvtx, pool", 0, &stack));
    child_check(strstr(strata_stack_text(stack), "pool") != NULL); /* not direct, as in the sanitizer mode */
    child_ok(strata_stack_destroy(stack));
    child_check(!dlopen(foreign, RTLD_NOW | RTLD_NOLOAD));
}

static void ordinary_program_obeys_the_environment(void)
{
    strata_driver_info info;
    child_check(!getauxval(AT_SECURE));
    child_ok(strata_driver_choose(getenv("STRATA_TEST_SIM")));
    child_status(strata_driver_get_info(&info), STRATA_ERROR_DRIVER_NOT_FOUND);
    child_check_words("cuGetProcAddress_v2");
}

/* A hard link would put the program beside a library of the user's choice. */
static void privileged_program_takes_no_library_from_beside_it(void)
{
    strata_driver_info info;
    require_privileges();
    child_ok(strata_driver_choose("sim"));
    if (strata_driver_get_info(&info) == STRATA_SUCCESS)
        child_check(!strchr(info.library, '/'));
    else
        child_check(strata_last_error()->status == STRATA_ERROR_DRIVER_NOT_FOUND);
}

typedef strata_status get_info_function(strata_driver_info *info);

static void library_with_a_relative_path_finds_the_driver_beside_it(void)
{
    get_info_function *get_info = NULL;
    strata_driver_info info;
    void *library = dlopen("one/libstrata.so.0", RTLD_NOW | RTLD_LOCAL);
    child_check(library != NULL);
    child_check(chdir("two") == 0);
    void *found = dlsym(library, "strata_driver_get_info");
    child_check(found != NULL);
    memcpy(&get_info, &found, sizeof found);
    child_check(get_info(&info) == STRATA_SUCCESS);
    printf("opened %s\n", info.library);
    child_check(strcmp(info.library, getenv("STRATA_TEST_SIM")) == 0);
}

static void relative_variable_means_the_folder_of_the_start(void)
{
    child_check(chdir("two") == 0);
    child_check(library_is(getenv("STRATA_TEST_SIM")));
}

static void relative_choice_means_the_folder_of_the_choice(void)
{
    child_check(chdir("one") == 0);
    child_ok(strata_driver_choose("./libstrata-sim.so.0"));
    child_check(chdir("../two") == 0);
    child_check(library_is(getenv("STRATA_TEST_SIM")));
}

/* ---- in the parent ---- */

static void copy_file(const char *from, const char *to, mode_t mode)
{
    char bytes[65536];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t count; (count = read(in, bytes, sizeof bytes)) != 0;) {
        assert_true(count > 0);
        assert_int_equal(write(out, bytes, (size_t)count), count);
    }
    assert_int_equal(fchmod(out, mode), 0);
    close(in);
    close(out);
}

static const char *library_of(const char *variable)
{
    const char *path = getenv(variable);
    if (!path || access(path, R_OK) != 0)
        skip();
    return path;
}

/* one/ has Strata and its simulated driver, two/ a library in the place of each that is neither. */
static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/strata-privileges-XXXXXX");
    return !getcwd(home, sizeof home) || !mkdtemp(folder) || chmod(folder, 0755) || mkdir(in_folder("one"), 0755) ||
           mkdir(in_folder("two"), 0755);
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    if (chdir(home) != 0)
        return 1;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void fill_folder(void)
{
    copy_file(library_of("STRATA_TEST_LIBRARY"), in_folder("one/libstrata.so.0"), 0755);
    copy_file(library_of("STRATA_SIM_LIBRARY"), in_folder("one/libstrata-sim.so.0"), 0755);
    copy_file(library_of("STRATA_SIM_LIBRARY"), in_folder("two/libstrata-sim.so.0"), 0755);
    assert_int_equal(mkdir(in_folder("two/one"), 0755), 0);
    copy_file(library_of("STRATA_SIM_LIBRARY"), in_folder("two/one/libstrata-sim.so.0"), 0755);
}

/* Tools and sanitizers do not follow into a program with more privileges. */
static bool can_follow_privileges(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#elif defined(__has_feature)
    return !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer) && !test_under_valgrind();
#else
    return !test_under_valgrind();
#endif
}

/* By the set-uid bit for another user if this user is root, else by a capability of the file. */
static bool grant_privileges(const char *path)
{
    if (geteuid() == 0)
        return chown(path, OTHER_USER, OTHER_USER) == 0 && chmod(path, 04755) == 0;
    const struct vfs_cap_data capability = {
        .magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
        .data[0].permitted = 1u << CAP_SYS_NICE,
    };
    return setxattr(path, "security.capability", &capability, sizeof capability, 0) == 0;
}

/* A copy of this program with privileges, beside a library with the simulated driver's name. */
static const char *privileged_copy(void)
{
    char self[PATH_MAX];
    if (!can_follow_privileges()) {
        print_message("skipped: under a tool that cannot follow a set-uid program\n");
        skip();
    }
    assert_true(test_program_path(self, sizeof self));
    const char *copy = in_folder("two/privileged");
    copy_file(self, copy, 0755);
    if (!grant_privileges(copy)) {
        print_message("skipped: only root, or a process with CAP_SETFCAP, can make a program with privileges: %s\n",
                      strerror(errno));
        skip();
    }
    return copy;
}

/* Everything that the environment can name, each in the test's folder or without a meaning. */
static void set_hostile_environment(void)
{
    const struct {
        const char *name, *value;
    } variables[] = {
        {"STRATA_DRIVER", in_folder("one/libstrata.so.0")},
        {"STRATA_SIM_LIBRARY", in_folder("one/libstrata.so.0")},
        {"NVTX_INJECTION64_PATH", in_folder("one/libstrata.so.0")},
        {"STRATA_MODE", "sanitizer"},
        {"STRATA_SHARED_DIR", folder},
        {"STRATA_HOST_MEMORY", "libc"},
        {"STRATA_SIM_DEVICES", "7"},
        {"STRATA_SIM_CHECK", "1"},
    };
    char text[NAME_ROOM];
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        setenv(variables[i].name, variables[i].value, 1);
    snprintf(text, sizeof text, "logging(file=\"%s\"), direct", in_folder("stolen"));
    setenv("STRATA_STACK", text, 1);
    setenv("STRATA_SIM_CHECK_FILE", in_folder("stolen-check"), 1);
    setenv("STRATA_REPORT", in_folder("stolen-report"), 1);
    setenv("STRATA_TEST_SIM", in_folder("one/libstrata-sim.so.0"), 1);
}

/* Skips if the child did. */
static void run_program(const char *path, const char *scenario)
{
    fflush(NULL);
    assert_int_equal(chmod(folder, 0777), 0); /* the other user could make files here */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        set_hostile_environment();
        execl(path, "test", "--child", scenario, (char *)NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: this file system grants no privileges to programs (nosuid)\n");
        skip();
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Whether the privileged program's budget is shared there, and no longer is. */
static bool remove_budget(const char *where)
{
    char pattern[NAME_ROOM];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/strata-*-privileges-test-*", where);
    bool any = glob(pattern, 0, NULL, &found) == 0;
    for (size_t i = 0; any && i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
    return any;
}

static void a_set_uid_program_ignores_the_environment_of_its_user(void **state)
{
    (void)state;
    fill_folder();
    run_program(privileged_copy(), "privileged_program_ignores_its_users_environment");
    assert_int_not_equal(access(in_folder("stolen"), F_OK), 0);
    assert_int_not_equal(access(in_folder("stolen-check"), F_OK), 0);
    assert_int_not_equal(access(in_folder("stolen-report"), F_OK), 0);
    assert_false(remove_budget(folder));
    assert_true(remove_budget("/dev/shm"));
    run_program("/proc/self/exe", "ordinary_program_obeys_the_environment");
    assert_int_equal(access(in_folder("stolen-report"), F_OK), 0);
}

static void a_set_uid_program_takes_no_driver_from_the_folder_that_it_is_in(void **state)
{
    (void)state;
    fill_folder();
    run_program(privileged_copy(), "privileged_program_takes_no_library_from_beside_it");
}

/* The child starts in the test's folder. */
static void run_in_folder(const char *scenario, const char *choice)
{
    char driver[NAME_ROOM], sim[NAME_ROOM];
    snprintf(driver, sizeof driver, "STRATA_DRIVER=%s", choice);
    snprintf(sim, sizeof sim, "STRATA_TEST_SIM=%s",
             in_folder(strcmp(choice, "sim") ? "./one/libstrata-sim.so.0" : "one/libstrata-sim.so.0"));
    if (!*choice)
        snprintf(sim, sizeof sim, "STRATA_TEST_SIM=%s", in_folder("one/./libstrata-sim.so.0"));
    const char *const changes[] = {driver, sim, "STRATA_SIM_LIBRARY", "STRATA_STACK", NULL};
    assert_int_equal(chdir(folder), 0);
    test_child_run(scenario, changes);
}

static void a_library_loaded_by_a_relative_path_looks_for_the_simulated_driver_beside_it(void **state)
{
    (void)state;
    fill_folder();
    run_in_folder("library_with_a_relative_path_finds_the_driver_beside_it", "sim");
}

static void a_relative_path_in_the_environment_means_the_folder_in_which_the_program_began(void **state)
{
    (void)state;
    fill_folder();
    run_in_folder("relative_variable_means_the_folder_of_the_start", "./one/libstrata-sim.so.0");
}

static void a_relative_path_that_the_program_chooses_means_the_folder_of_that_moment(void **state)
{
    (void)state;
    fill_folder();
    run_in_folder("relative_choice_means_the_folder_of_the_choice", "");
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(privileged_program_ignores_its_users_environment),
        TEST_SCENARIO(ordinary_program_obeys_the_environment),
        TEST_SCENARIO(privileged_program_takes_no_library_from_beside_it),
        TEST_SCENARIO(library_with_a_relative_path_finds_the_driver_beside_it),
        TEST_SCENARIO(relative_variable_means_the_folder_of_the_start),
        TEST_SCENARIO(relative_choice_means_the_folder_of_the_choice),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_set_uid_program_ignores_the_environment_of_its_user),
        IN_FOLDER(a_set_uid_program_takes_no_driver_from_the_folder_that_it_is_in),
        IN_FOLDER(a_library_loaded_by_a_relative_path_looks_for_the_simulated_driver_beside_it),
        IN_FOLDER(a_relative_path_in_the_environment_means_the_folder_in_which_the_program_began),
        IN_FOLDER(a_relative_path_that_the_program_chooses_means_the_folder_of_that_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
