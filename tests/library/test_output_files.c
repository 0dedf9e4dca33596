/* Every file that Strata and its simulated driver make or write to: none is reached through a link, other users can
 * read none unless an option says so, nothing that another user prepared is taken, and a path that names an open
 * descriptor means that descriptor. A file or a reader that takes no more does not end the program. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/child.h"

enum { NAME_ROOM = 400, OTHER_USER = 65534, DESCRIPTOR = 37 };

static const char kept[] = "what the file had before\n";

/* ---- the folder ---- */

static char folder[64];

static const char *in_folder(const char *name)
{
    static char paths[8][NAME_ROOM];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, NAME_ROOM, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    umask(022);
    strcpy(folder, "/tmp/strata-output-XXXXXX");
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void make_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static const char *text_of(const char *name)
{
    static char bytes[65536];
    FILE *file = fopen(in_folder(name), "r");
    if (!file)
        return NULL;
    bytes[fread(bytes, 1, sizeof bytes - 1, file)] = '\0';
    fclose(file);
    return bytes;
}

static mode_t mode_of(const char *name)
{
    struct stat is = {0};
    return stat(in_folder(name), &is) == 0 ? is.st_mode & 07777 : 0;
}

/* ---- the writers, each in a child, to the file in STRATA_TEST_FILE with the options in STRATA_TEST_OPTIONS ---- */

static strata_status try_stack(const char *format, strata_stack **stack)
{
    char text[NAME_ROOM + 128];
    snprintf(text, sizeof text, format, getenv("STRATA_TEST_FILE"), getenv("STRATA_TEST_OPTIONS"));
    return strata_stack_create(text, 0, stack);
}

/* False if the file was refused. */
static bool write_log(void)
{
    strata_stack *stack;
    strata_block block;
    if (try_stack("logging(file=\"%s\"%s), null", &stack) != STRATA_SUCCESS)
        return false;
    child_ok(strata_resource_allocate(strata_stack_top(stack), &(strata_request){.bytes = 100}, &block));
    child_ok(strata_resource_deallocate(strata_stack_top(stack), &block, NULL));
    child_ok(strata_stack_destroy(stack));
    return true;
}

static bool write_leaks(void)
{
    strata_stack *stack;
    strata_block block;
    if (try_stack("statistics(leaks=file, file=\"%s\"%s), null", &stack) != STRATA_SUCCESS)
        return false;
    child_ok(strata_resource_allocate(strata_stack_top(stack), &(strata_request){.bytes = 100}, &block));
    child_status(strata_stack_destroy(stack), STRATA_ERROR_BUSY);
    child_ok(strata_resource_deallocate(strata_stack_top(stack), &block, NULL));
    child_ok(strata_stack_destroy(stack));
    return true;
}

static void *driver_function(const char *name)
{
    strata_driver_info info;
    child_ok(strata_driver_get_info(&info));
    if (!info.simulated)
        exit(77);
    void *library = dlopen(info.library, RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

static bool write_graph(void)
{
    CUresult (*create)(CUgraph *, unsigned), (*print)(CUgraph, const char *, unsigned);
    CUgraph graph;
    void *found[] = {driver_function("cuGraphCreate"), driver_function("cuGraphDebugDotPrint")};
    child_check(found[0] && found[1]);
    memcpy(&create, &found[0], sizeof create);
    memcpy(&print, &found[1], sizeof print);
    child_check(create(&graph, 0) == CUDA_SUCCESS);
    return print(graph, getenv("STRATA_TEST_FILE"), 0) == CUDA_SUCCESS;
}

/* Two writes that nothing orders. Where the file is refused, the report goes to standard error. */
static bool write_check(void)
{
    CUcontext context;
    CUdeviceptr address;
    CUstream streams[2];
    setenv("STRATA_SIM_CHECK", "1", 1);
    setenv("STRATA_SIM_CHECK_FILE", getenv("STRATA_TEST_FILE"), 1);
    unsetenv("STRATA_SIM_CHECK_EXIT");
    child_check(driver_function("cuInit") != NULL);
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
    child_check(strata_cu.MemAlloc(&address, 4096) == CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        child_check(strata_cu.StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        child_check(strata_cu.MemsetD8Async(address, 1, 4096, streams[i]) == CUDA_SUCCESS);
    }
    child_check(strata_cu.CtxSynchronize() == CUDA_SUCCESS);
    return true;
}

static const struct {
    const char *name;
    bool (*write)(void);
    bool appends, has_options;
    const char *options; /* for an existing file */
    const char *word;    /* in the file */
} writers[] = {
    {"log", write_log, false, true, ", existing=replace, format=csv", "allocate"},
    {"leaks", write_leaks, true, true, "", "live_blocks"},
    {"check", write_check, true, false, "", "a write does not come after"},
    {"graph", write_graph, false, false, "", "digraph"},
};

enum { WRITERS = sizeof writers / sizeof writers[0] };

/* Exit code 2: the file was refused. */
static void file_is_written(void)
{
    for (size_t i = 0; i < WRITERS; i++)
        if (strcmp(writers[i].name, getenv("STRATA_TEST_WRITER")) == 0)
            exit(writers[i].write() ? 0 : 2);
}

/* The descriptor is a file, or a socket, that only this process has. */
static void take_descriptor(void)
{
    dup2(open(getenv("STRATA_TEST_TARGET"), O_RDWR | O_CREAT, 0600), DESCRIPTOR);
    child_check(write(DESCRIPTOR, kept, sizeof kept - 1) == (ssize_t)sizeof kept - 1);
    for (size_t i = 0; i < WRITERS; i++)
        if (strcmp(writers[i].name, getenv("STRATA_TEST_WRITER")) == 0)
            child_check(writers[i].write());
    child_check(write(DESCRIPTOR, "after\n", 6) == 6);
}

static void file_is_written_to_a_descriptor(void)
{
    take_descriptor();
}

static void socket_is_written_to(void)
{
    int ends[2];
    char bytes[8192];
    child_check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    child_check(dup2(ends[1], DESCRIPTOR) == DESCRIPTOR);
    for (size_t i = 0; i < WRITERS; i++) {
        if (strcmp(writers[i].name, getenv("STRATA_TEST_WRITER")) != 0)
            continue;
        child_check(writers[i].write());
        ssize_t count = recv(ends[0], bytes, sizeof bytes - 1, MSG_DONTWAIT);
        child_check(count > 0);
        bytes[count] = '\0';
        child_check(strstr(bytes, writers[i].word) != NULL);
    }
}

/* Leaks go where standard error went when the layer was made. */
static void standard_error_is_written_to(void)
{
    child_check(dup2(open(getenv("STRATA_TEST_TARGET"), O_RDWR | O_CREAT, 0600), STDERR_FILENO) == STDERR_FILENO);
    child_check(write(STDERR_FILENO, kept, sizeof kept - 1) == (ssize_t)sizeof kept - 1);
    child_check(write_leaks());
    child_check(write(STDERR_FILENO, "after\n", 6) == 6);
}

static void no_signal_is_left(int signal)
{
    sigset_t pending;
    child_check(sigpending(&pending) == 0 && !sigismember(&pending, signal));
}

static void file_may_have_no_bytes(void)
{
    child_check(setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, RLIM_INFINITY}) == 0);
    for (size_t i = 0; i < WRITERS; i++)
        if (strcmp(writers[i].name, getenv("STRATA_TEST_WRITER")) == 0)
            writers[i].write();
    no_signal_is_left(SIGXFSZ);
}

static void socket_without_a_reader_is_written_to(void)
{
    int ends[2];
    child_check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    child_check(dup2(ends[1], DESCRIPTOR) == DESCRIPTOR && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    close(ends[0]);
    for (size_t i = 0; i < WRITERS; i++)
        if (strcmp(writers[i].name, getenv("STRATA_TEST_WRITER")) == 0)
            writers[i].write();
    no_signal_is_left(SIGPIPE);
}

/* ---- in the parent ---- */

static int run_writer(size_t which, const char *scenario, const char *file, const char *options)
{
    char path[NAME_ROOM + 32], writer[64], more[128], target[NAME_ROOM + 32];
    snprintf(path, sizeof path, "STRATA_TEST_FILE=%s", file);
    snprintf(writer, sizeof writer, "STRATA_TEST_WRITER=%s", writers[which].name);
    snprintf(more, sizeof more, "STRATA_TEST_OPTIONS=%s", options);
    snprintf(target, sizeof target, "STRATA_TEST_TARGET=%s", in_folder("target"));
    const char *const changes[] = {path, writer, more, target, "STRATA_DRIVER=sim", NULL};
    return test_child_status(scenario, changes);
}

static int write_file(size_t which, const char *name, const char *options)
{
    return run_writer(which, "file_is_written", in_folder(name), options);
}

static void no_file_is_written_through_a_link(void **state)
{
    (void)state;
    for (size_t i = 0; i < WRITERS; i++) {
        make_file("target", kept);
        assert_int_equal(symlink(in_folder("target"), in_folder("link")), 0);
        write_file(i, "link", writers[i].options);
        assert_string_equal(text_of("target"), kept);
        unlink(in_folder("target"));
        write_file(i, "link", writers[i].options); /* the link leads nowhere: nothing is made there */
        assert_null(text_of("target"));
        unlink(in_folder("link"));
    }
}

static void a_file_is_its_users_alone_unless_an_option_says_otherwise(void **state)
{
    (void)state;
    for (size_t i = 0; i < WRITERS; i++) {
        assert_int_equal(write_file(i, "file", ""), 0);
        assert_int_equal(mode_of("file"), 0600);
        unlink(in_folder("file"));
        if (!writers[i].has_options)
            continue;
        assert_int_equal(write_file(i, "file", ", mode=0664"), 0); /* although umask is 022 */
        assert_int_equal(mode_of("file"), 0664);
        unlink(in_folder("file"));
    }
}

static void a_replaced_or_rotated_log_has_the_mode_of_a_new_one(void **state)
{
    (void)state;
    make_file("file", kept);
    assert_int_equal(mode_of("file"), 0644);
    assert_int_equal(write_file(0, "file", ", existing=replace"), 0);
    assert_int_equal(mode_of("file"), 0600);
    assert_int_equal(write_file(0, "file", ", existing=replace, mode=640"), 0);
    assert_int_equal(mode_of("file"), 0640);
    assert_int_equal(write_file(0, "file", ", existing=rotate"), 0);
    assert_int_equal(mode_of("file"), 0600);
    assert_int_equal(mode_of("file.1"), 0640);
}

static void a_log_that_replaces_a_file_leaves_its_other_names_alone(void **state)
{
    (void)state;
    make_file("target", kept);
    assert_int_equal(link(in_folder("target"), in_folder("file")), 0);
    assert_int_equal(write_file(0, "file", ", existing=replace"), 2);
    assert_string_equal(text_of("target"), kept);
}

static void in_a_folder_that_all_users_write_to_no_prepared_file_is_taken(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can make another user's file\n");
        skip();
    }
    assert_int_equal(chmod(folder, 01777), 0);
    for (size_t i = 0; i < WRITERS; i++) {
        make_file("file", kept);
        assert_int_equal(chmod(in_folder("file"), 0666), 0);
        assert_int_equal(chown(in_folder("file"), OTHER_USER, OTHER_USER), 0);
        write_file(i, "file", writers[i].options);
        assert_string_equal(text_of("file"), kept);
        unlink(in_folder("file"));
        make_file("target", kept);
        assert_int_equal(link(in_folder("target"), in_folder("file")), 0);
        write_file(i, "file", writers[i].options);
        assert_string_equal(text_of("target"), kept);
        unlink(in_folder("file"));
        unlink(in_folder("target"));
    }
}

static void a_path_that_names_a_descriptor_means_the_descriptor(void **state)
{
    (void)state;
    static const char *const paths[] = {"/dev/fd/37", "/proc/self/fd/37"};
    for (size_t i = 0; i < 2 * WRITERS; i++) {
        const char *word = writers[i / 2].word;
        const char *options = i / 2 == 0 ? ", format=csv" : "";
        assert_int_equal(run_writer(i / 2, "file_is_written_to_a_descriptor", paths[i % 2], options), 0);
        const char *text = text_of("target"), *at = text ? strstr(text, word) : NULL;
        assert_non_null(at);
        assert_int_equal(strncmp(text, kept, sizeof kept - 1), 0);
        assert_non_null(strstr(at, "after\n"));
        unlink(in_folder("target"));
        assert_int_equal(run_writer(i / 2, "socket_is_written_to", paths[i % 2], options), 0);
    }
}

static void a_report_of_leaks_is_written_to_standard_error_and_does_not_open_it_again(void **state)
{
    (void)state;
    assert_int_equal(run_writer(1, "standard_error_is_written_to", "/dev/stderr", ""), 0);
    const char *text = text_of("target"), *at = strstr(text, "live_blocks");
    assert_non_null(at);
    assert_int_equal(strncmp(text, kept, sizeof kept - 1), 0);
    assert_non_null(strstr(at, "after\n"));
}

static void a_write_that_fails_ends_no_process_by_a_signal(void **state)
{
    (void)state;
    for (size_t i = 0; i < WRITERS; i++) {
        assert_int_equal(run_writer(i, "file_may_have_no_bytes", in_folder("file"), ""), 0);
        unlink(in_folder("file"));
        assert_int_equal(run_writer(i, "socket_without_a_reader_is_written_to", "/dev/fd/37", ""), 0);
    }
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(file_is_written),        TEST_SCENARIO(file_is_written_to_a_descriptor),
        TEST_SCENARIO(socket_is_written_to),   TEST_SCENARIO(standard_error_is_written_to),
        TEST_SCENARIO(file_may_have_no_bytes), TEST_SCENARIO(socket_without_a_reader_is_written_to),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(no_file_is_written_through_a_link),
        IN_FOLDER(a_file_is_its_users_alone_unless_an_option_says_otherwise),
        IN_FOLDER(a_replaced_or_rotated_log_has_the_mode_of_a_new_one),
        IN_FOLDER(a_log_that_replaces_a_file_leaves_its_other_names_alone),
        IN_FOLDER(in_a_folder_that_all_users_write_to_no_prepared_file_is_taken),
        IN_FOLDER(a_path_that_names_a_descriptor_means_the_descriptor),
        IN_FOLDER(a_report_of_leaks_is_written_to_standard_error_and_does_not_open_it_again),
        IN_FOLDER(a_write_that_fails_ends_no_process_by_a_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
