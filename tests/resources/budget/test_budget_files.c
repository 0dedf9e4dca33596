/* The files of shared budgets: names, folders, permissions, contents, and failures of the system. Slots are in
 * test_budget_slots.c, several processes in test_budget_shared.c. */
#define _GNU_SOURCE
#include "support/beside.h"
#include "support/budget_files.h"
#include "support/standard.h"

#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* ---- names and folders ---- */

static void a_second_name_of_a_file_that_the_process_has_is_refused(void **state)
{
    char path[SHARED_PATH];
    (void)state;
    budget_shared *first = open_budget("first");
    snprintf(path, sizeof path, "%s", own_path("first"));
    assert_int_equal(link(path, own_path("second")), 0);
    check_refused("second", "one link");
    assert_int_equal(visit_all().count, 2);
    assert_int_equal(visit_all().problems, 1);
    check_status(strata_shared_budget_set_limit(own_path("second"), 1000), STRATA_ERROR_IO);
    unlink(own_path("second"));
    assert_int_equal(symlink(path, own_path("second")), 0);
    check_refused("second", "opened");
    assert_true(is_locked(path, 1)); /* closing another descriptor of the file would have released it */
    assert_int_equal(shared_limit(first), LIMIT);
    assert_true(take(first, LIMIT));
    shared_close(first);
    assert_false(is_locked(path, 1));
}

static void a_folder_may_have_two_names(void **state)
{
    char other[64];
    (void)state;
    budget_shared *first = open_budget("first");
    snprintf(other, sizeof other, "%s-other", directory);
    assert_int_equal(symlink(directory, other), 0);
    setenv("STRATA_SHARED_DIR", other, 1);
    budget_shared *second = open_budget("first");
    assert_ptr_equal(first, second);
    seen all = visit_all();
    assert_int_equal(all.processes, 1);
    assert_int_equal(all.alive, 1);
    unlink(other);
    assert_true(is_locked(own_path("first"), 1));
    shared_close(second);
    assert_true(is_locked(own_path("first"), 1));
    shared_close(first);
    assert_false(is_locked(own_path("first"), 1));
}

static void files_of_one_process_are_closed_in_any_order(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    (void)state;
    for (size_t first = 0; first < 3; first++) {
        budget_shared *files[3];
        for (size_t i = 0; i < 3; i++)
            files[i] = open_budget(names[i]);
        for (size_t i = 0; i < 3; i++)
            assert_true(take(files[i], LIMIT));
        for (size_t i = 0; i < 3; i++) {
            assert_true(is_locked(own_path(names[(first + i) % 3]), 1));
            shared_close(files[(first + i) % 3]);
            assert_false(is_locked(own_path(names[(first + i) % 3]), 1));
        }
        assert_int_equal(visit_all().processes, 0);
    }
}

static void a_folder_that_is_not_there_is_said(void **state)
{
    char path[SHARED_PATH], group[32];
    budget_shared *shared;
    (void)state;
    snprintf(path, sizeof path, "%s/not-there", directory);
    snprintf(group, sizeof group, "%u", getegid());
    setenv("STRATA_SHARED_DIR", path, 1);
    check_refused("a", "cannot be opened: No such file or directory");
    check_status(try_open("a", group, &shared), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "cannot be opened: No such file or directory");
    check_status(strata_shared_budget_visit(see, &(seen){0}), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "cannot be looked through: No such file or directory");
    check_status(strata_shared_budget_visit(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
}

static void check_order(const strata_shared_budget *budget, void *data)
{
    char *before = data;
    assert_true(strcmp(before, budget->path) < 0);
    snprintf(before, SHARED_PATH, "%s", budget->path);
}

static void visits_come_in_the_order_of_names(void **state)
{
    (void)state;
    budget_shared *open[12];
    for (int i = 0; i < 12; i++) {
        const char name[] = {(char)('a' + i * 5 % 12), '\0'};
        open[i] = open_budget(name);
    }
    char before[SHARED_PATH] = "";
    check_ok(strata_shared_budget_visit(check_order, before));
    assert_non_null(strstr(before, "-l-"));
    for (int i = 0; i < 12; i++)
        shared_close(open[i]);
}

/* The path is the folder and the file's name; it is never truncated. */
static void a_path_that_is_too_long_is_refused(void **state)
{
    char deep[SHARED_PATH + 100], file[SHARED_PATH + 200];
    budget_shared *shared;
    (void)state;
    size_t length = (size_t)snprintf(deep, sizeof deep, "%s/%0150d", directory, 0);
    assert_int_equal(mkdir(deep, 0700), 0);
    snprintf(deep + length, sizeof deep - length, "/%0150d", 0);
    assert_int_equal(mkdir(deep, 0700), 0);
    snprintf(file, sizeof file, "%s/strata-u%u-a-" UUID, deep, geteuid());
    close(open(file, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    setenv("STRATA_SHARED_DIR", deep, 1);
    check_status(try_open("a", NULL, &shared), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "too long");
    assert_int_equal(visit_all().count, 0);
    check_status(strata_shared_budget_set_limit(file, 1000), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "too long");
    unlink(file);
    rmdir(deep);
    deep[length] = '\0';
    rmdir(deep);
}

static void relative_folder_means_the_one_of_the_start(void)
{
    budget_shared *first, *second;
    seen all = {0};
    child_check(chdir("/") == 0);
    child_ok(try_open("a", NULL, &first));
    child_check(chdir("/dev") == 0);
    child_ok(try_open("a", NULL, &second));
    child_check(first == second);
    child_ok(strata_shared_budget_visit(see, &all));
    child_check(all.count == 1 && all.alive == 1);
    child_check(access(all.path, F_OK) == 0);
    shared_close(first);
    shared_close(second);
}

static void a_relative_folder_means_the_one_in_which_the_program_began(void **state)
{
    char before[4096], variable[64];
    (void)state;
    snprintf(variable, sizeof variable, "STRATA_SHARED_DIR=%s", strrchr(directory, '/') + 1);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir("/tmp"), 0);
    int status = test_child_status("relative_folder_means_the_one_of_the_start", (const char *[]){variable, NULL});
    assert_int_equal(chdir(before), 0);
    assert_int_equal(status, 0);
    assert_int_equal(visit_all().count, 1);
}

static void without_a_folder_in_the_environment_it_is_shared_memory(void **state)
{
    char name[48], path[SHARED_PATH];
    (void)state;
    budget_shared *elsewhere = open_budget("elsewhere");
    snprintf(name, sizeof name, "strata-test-%d", getpid());
    snprintf(path, sizeof path, "/dev/shm/strata-u%u-%s-" UUID, geteuid(), name);
    for (int set = 0; set < 2; set++) {
        if (set)
            setenv("STRATA_SHARED_DIR", "", 1);
        else
            unsetenv("STRATA_SHARED_DIR");
        budget_shared *shared = open_budget(name);
        assert_int_equal(access(path, F_OK), 0);
        shared_close(shared);
        check_ok(strata_shared_budget_set_limit(path, 77));
        assert_int_equal(shared_limit(elsewhere), LIMIT);
        assert_int_equal(unlink(path), 0);
    }
    shared_close(elsewhere);
}

static void names_of_others_in_the_folder_are_let_be(void **state)
{
    static const char *const no_names[] = {"other",        "strata-",         "strata-x0-a",   "strata-u",
                                           "strata-ux",    "strata-g",        "strata-u",      "strata-g/7-a",
                                           "strata-u-5-a", "strata-u:1",      "strata-u0_a",   "strata-g4294967296-a",
                                           "strata-0",     "strata-u0123456", "strata-u 5- a", "sTrata-u0-a"};
    static const char *const of_others[] = {"strata-u123456-a", "strata-g123456-a", "strata-g4294967295-a"};
    char path[SHARED_PATH];
    (void)state;
    for (size_t i = 0; i < sizeof no_names / sizeof no_names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, no_names[i]);
        close(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
        check_status(strata_shared_budget_set_limit(path, 1000), STRATA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < sizeof of_others / sizeof of_others[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, of_others[i]);
        close(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
        check_status(strata_shared_budget_set_limit(path, 1000), STRATA_ERROR_IO);
    }
    assert_int_equal(visit_all().count, 0);
    close(open(own_path("empty"), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    seen all = visit_all();
    assert_int_equal(all.problems, 1);
    assert_non_null(strstr(all.problem, "wrong size"));
}

static void a_pipe_under_the_name_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(own_path("a"), 0600), 0);
    check_refused("a", "is not a regular file");
    assert_int_equal(visit_all().problems, 1);
}

static void visit_beside(void *data)
{
    strata_shared_budget_visit(see, data);
}

static void take_beside(void *shared)
{
    take(shared, LIMIT);
}

static void refusals_are_logged_while_other_threads_use_the_files(void **state)
{
    (void)state;
    char path[SHARED_PATH];
    seen all = {0};
    test_beside beside;
    budget_shared *shared = open_budget("a"), *none = NULL;
    snprintf(path, sizeof path, "%s", own_path("a"));
    assert_int_equal(mkfifo(own_path("b"), 0600), 0);
    test_beside_begin(&beside, visit_beside, &all);
    const strata_status opened = try_open("b", NULL, &none);
    assert_true(test_beside_end(&beside));
    test_beside_begin(&beside, visit_beside, &all);
    const strata_status limited = strata_shared_budget_set_limit(own_path("b"), LIMIT);
    assert_true(test_beside_end(&beside));
    test_beside_begin(&beside, take_beside, shared);
    const strata_status removed = strata_shared_budget_remove(path);
    assert_true(test_beside_end(&beside));
    assert_int_equal(opened, STRATA_ERROR_IO);
    assert_int_equal(limited, STRATA_ERROR_IO);
    assert_int_equal(removed, STRATA_ERROR_BUSY);
    shared_close(shared);
}

/* ---- limits set from outside ---- */

static void a_limit_is_set_by_the_files_path(void **state)
{
    (void)state;
    check_status(strata_shared_budget_set_limit(NULL, 1000), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_shared_budget_set_limit("strata-u0-a", 1000), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "\"strata-u0-a\" is not the path of a shared budget");
    check_status(strata_shared_budget_set_limit(own_path("a"), 1000), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "cannot be opened: No such file or directory");
    budget_shared *shared = open_budget("a");
    check_status(strata_shared_budget_set_limit(own_path("a"), SIZE_MAX), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "16.0 EiB (18446744073709551615 bytes) is too large");
    assert_int_equal(shared_limit(shared), LIMIT);
    check_ok(strata_shared_budget_set_limit(own_path("a"), 1000));
    assert_true(take(shared, 1000));
    assert_false(take(shared, 1));
    shared_close(shared);
    check_ok(strata_shared_budget_set_limit(own_path("a"), 2000)); /* no process has it open */
    assert_int_equal(visit_all().limit, 2000);
}

/* ---- groups ---- */

static void a_group_has_a_name_or_a_number(void **state)
{
    static const char *const wrong[] = {"-1",         "-18446744073709551615", "+0", " 0", "0x0", "4294967295",
                                        "4294967296", "99999999999999999999"};
    budget_shared *by_name, *by_number, *refused, *alone;
    char number[32];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_status(try_open("a", wrong[i], &refused), STRATA_ERROR_INVALID_VALUE);
        check_last_error(STRATA_ERROR_INVALID_VALUE, "unknown group");
    }
    check_ok(try_open("a", "", &alone)); /* the user alone */
    assert_int_equal(access(own_path("a"), F_OK), 0);
    shared_close(alone);
    unlink(own_path("a"));
    const struct group *own = getgrgid(getegid());
    if (!own)
        skip();
    snprintf(number, sizeof number, "%u", getegid());
    check_ok(try_open("a", own->gr_name, &by_name));
    check_ok(try_open("a", number, &by_number));
    assert_ptr_equal(by_name, by_number);
    seen all = visit_all();
    assert_int_equal(all.count, 1);
    assert_int_equal(all.alive, 1);
    shared_close(by_name);
    shared_close(by_number);
}

static void a_groups_limit_of_another_size_is_refused(void **state)
{
    char group[32], path[SHARED_PATH];
    budget_shared *shared;
    (void)state;
    snprintf(group, sizeof group, "%u", getegid());
    check_ok(try_open("a", group, &shared));
    shared_close(shared);
    path_of('g', getegid(), "a", path);
    strcat(path, SHARED_LIMIT_SUFFIX);
    assert_int_equal(truncate(path, 4), 0);
    check_status(try_open("a", group, &shared), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, ".limit is not a regular file with one link and the expected size; it is not");
}

enum { OUR_GROUP = 4243, THEIR_GROUP = 4244, OUTSIDER = 12345 };

static void make_groups_file(unsigned group)
{
    budget_shared *shared;
    char number[32];
    snprintf(number, sizeof number, "%u", group);
    check_ok(try_open("a", number, &shared));
    shared_close(shared);
}

static void keep_finding(const strata_error *error, void *data)
{
    memcpy(data, error->message, sizeof error->message);
}

static void look_as_a_member(void)
{
    static char finding[sizeof((strata_error *)0)->message];
    budget_shared *shared;
    seen all = {0};
    char path[SHARED_PATH];
    child_check(setgroups(2, (gid_t[]){77, OUR_GROUP}) == 0 && setegid(76) == 0 && seteuid(OUTSIDER) == 0);
    child_ok(strata_shared_budget_visit(see, &all));
    child_check(all.count == 1 && all.problems == 0);
    child_check(strcmp(all.path, path_of('g', OUR_GROUP, "a", path)) == 0);
    child_status(strata_shared_budget_set_limit(path, 4096), STRATA_ERROR_IO); /* its maker's alone */
    child_check_words("only by user root");
    strata_set_log_callback(keep_finding, finding);
    child_ok(shared_open(&(shared_terms){"a", "4243", device, 12345}, &shared));
    strata_set_log_callback(NULL, NULL);
    child_check(strstr(finding, "of this process is not used. Only user root, its maker, can change it") != NULL);
    shared_close(shared);
    child_status(strata_shared_budget_set_limit(path_of('g', THEIR_GROUP, "a", path), 4096), STRATA_ERROR_IO);
    child_check(seteuid(0) == 0);
}

static void a_groups_file_is_shown_to_its_members(void **state)
{
    char path[SHARED_PATH];
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can belong to any group\n");
        skip();
    }
    make_groups_file(OUR_GROUP);
    make_groups_file(THEIR_GROUP);
    assert_int_equal(chmod(directory, 0755), 0);
    in_child(look_as_a_member);
    assert_int_equal(chmod(directory, 0700), 0);
    seen all = visit_all(); /* root is no member */
    assert_int_equal(all.count, 0);
    assert_int_equal(chown(path_of('g', OUR_GROUP, "a", path), (uid_t)-1, THEIR_GROUP), 0);
    budget_shared *shared;
    check_status(try_open("a", "4243", &shared), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "belongs to another group");
}

/* The open of a pipe that may only be read would wait for a writer. */
static void open_with_a_pipe_as_the_limit(void)
{
    budget_shared *shared;
    seen all = {0};
    const bool root = geteuid() == 0;
    char number[32];
    child_check(!root || (setgroups(0, NULL) == 0 && setegid(OUR_GROUP) == 0 && seteuid(OUTSIDER) == 0));
    snprintf(number, sizeof number, "%u", getegid());
    child_status(try_open("a", number, &shared), STRATA_ERROR_IO);
    child_check_words(".limit is not a regular file with one link and the expected size");
    child_ok(strata_shared_budget_visit(see, &all));
    child_check(all.count == 1 && all.problems == 1);
    child_check(strstr(all.problem, ".limit is not a regular file") != NULL);
    child_check(!root || seteuid(0) == 0);
}

static void a_pipe_in_place_of_a_groups_limit_is_refused(void **state)
{
    char path[SHARED_PATH];
    const unsigned group = geteuid() == 0 ? OUR_GROUP : getegid();
    (void)state;
    make_groups_file(group);
    path_of('g', group, "a", path);
    strcat(path, SHARED_LIMIT_SUFFIX);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0440), 0);
    assert_int_equal(chown(path, (uid_t)-1, group), 0);
    assert_int_equal(chmod(directory, 0755), 0);
    in_child(open_with_a_pipe_as_the_limit);
    assert_int_equal(chmod(directory, 0700), 0);
}

static void open_for_a_foreign_group(void)
{
    budget_shared *shared;
    bool root = geteuid() == 0;
    child_check(!root || (setgroups(0, NULL) == 0 && setegid(OUTSIDER) == 0 && seteuid(OUTSIDER) == 0));
    child_status(try_open("a", "4243", &shared), STRATA_ERROR_IO);
    child_check_words("cannot be opened: Operation not permitted");
    child_check(!root || seteuid(0) == 0);
}

static void a_file_for_a_group_of_others_is_not_made(void **state)
{
    (void)state;
    assert_int_equal(chmod(directory, 0777), 0);
    in_child(open_for_a_foreign_group);
    assert_int_equal(chmod(directory, 0700), 0);
    struct dirent **entries;
    int count = scandir(directory, &entries, NULL, NULL);
    assert_int_equal(count, 2); /* "." and "..": no file is left */
    while (count-- > 0)
        free(entries[count]);
    free(entries);
}

/* ---- what the system does not give ---- */

static void without_room_for_the_file(void)
{
    signal(SIGXFSZ, SIG_DFL); /* would end the process */
    child_check(setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, RLIM_INFINITY}) == 0);
    budget_shared *shared = NULL;
    strata_status status = try_open("a", NULL, &shared);
    child_check(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) == 0);
    child_status(status, STRATA_ERROR_IO);
    child_check_words("cannot be made: File too large");
    child_check(!shared);
}

static void without_room_for_the_map(void)
{
    child_check(setrlimit(RLIMIT_AS, &(struct rlimit){4096, RLIM_INFINITY}) == 0);
    budget_shared *shared = NULL;
    strata_status status = try_open("a", NULL, &shared);
    child_check(setrlimit(RLIMIT_AS, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) == 0);
    child_status(status, STRATA_ERROR_IO);
    child_check_words("cannot be mapped: Cannot allocate memory");
    child_check(!shared);
    child_ok(try_open("a", NULL, &shared));
    shared_close(shared);
}

static void without_a_descriptor(void)
{
    struct rlimit before, none;
    budget_shared *shared = NULL;
    child_check(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = (struct rlimit){0, before.rlim_max};
    child_check(setrlimit(RLIMIT_NOFILE, &none) == 0);
    child_status(try_open("a", NULL, &shared), STRATA_ERROR_IO);
    child_check_words("Too many open files");
    seen all = {0};
    child_status(strata_shared_budget_visit(see, &all), STRATA_ERROR_IO);
    child_check_words("Too many open files");
    child_check(setrlimit(RLIMIT_NOFILE, &before) == 0);
    child_ok(try_open("a", NULL, &shared));
    shared_close(shared);
}

static void a_failing_system_call_is_reported_and_leaves_nothing_behind(void **state)
{
    (void)state;
    in_child(without_room_for_the_file);
    if (!SANITIZED && !test_under_valgrind())
        in_child(without_room_for_the_map);
    in_child(without_a_descriptor);
    budget_shared *shared = open_budget("a");
    assert_true(take(shared, LIMIT));
    shared_close(shared);
}

/* For example, a daemon closes all descriptors at its start. */
static void lose_the_descriptor(void)
{
    budget_shared *shared, *refused = NULL;
    child_ok(try_open("a", NULL, &shared));
    child_check(shared_make_room(shared, 1000, 0) && shared_take(shared, 1000));
    for (int file = 3; file < 64; file++)
        close(file);
    const uint64_t lease = (uint64_t)shared->file->slots[0].lease;
    child_check(lease >= 1000 && lease < LIMIT);
    child_check(shared_take(shared, lease - 1000));
    child_check(!take(shared, 1));
    child_status(shared_set_limit(shared, 10 * LIMIT), STRATA_ERROR_IO);
    child_check_words("the program closed its descriptor");
    child_check(shared_limit(shared) == LIMIT);
    child_status(try_open("a", "no such group", &refused), STRATA_ERROR_INVALID_VALUE);
    shared_close(shared);
}

/* Its bytes are free once it has closed the budget, although it lives. */
static void a_process_that_lost_the_descriptor_keeps_what_it_has_and_gets_no_more(void **state)
{
    int ready[2];
    char word = 0;
    (void)state;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ready[1], 100);
        lose_the_descriptor();
        if (write(100, &word, 1) == 1)
            test_child_count();
        rest(NULL);
    }
    close(ready[1]);
    bool good = read(ready[0], &word, 1) == 1;
    close(ready[0]);
    budget_shared *shared = open_budget("a");
    bool all = take(shared, LIMIT);
    shared_close(shared);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(good);
    assert_true(all);
}

static bool is_locked_by_parent(int file)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
        _exit(fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? 7 : 1);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 7;
}

/* The descriptors of the budget and of its limit name a file of the program now, which has locked it. */
static void reuse_the_descriptors(void)
{
    char group[32], path[] = "/tmp/strata-reused-XXXXXX";
    budget_shared *shared;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 100};
    snprintf(group, sizeof group, "%u", getegid());
    child_ok(try_open("reused", group, &shared));
    const int descriptors[] = {shared->descriptor, shared->limit_descriptor}, file = mkstemp(path);
    child_check(file >= 0 && unlink(path) == 0);
    for (size_t i = 0; i < 2; i++)
        child_check(descriptors[i] >= 0 && dup2(file, descriptors[i]) == descriptors[i]);
    child_check(fcntl(file, F_SETLK, &lock) == 0);
    shared_close(shared);
    child_check(is_locked_by_parent(file));
    for (size_t i = 0; i < 2; i++)
        child_check(fcntl(descriptors[i], F_GETFD) == 0);
}

static void a_file_of_the_program_in_a_closed_descriptors_place_is_left_alone(void **state)
{
    (void)state;
    in_child(reuse_the_descriptors);
}

enum { ALARMS = 12 };
static volatile sig_atomic_t alarms;
static volatile sig_atomic_t
    releases_lock; /* the end of a pipe whose closing has another process release its lock; -1 */

static void count_alarm(int number)
{
    (void)number;
    alarms = alarms + 1;
    if (alarms == ALARMS) {
        close(releases_lock);
        releases_lock = -1;
    }
}

static void a_signal_does_not_end_the_wait_for_the_files_lock(void **state)
{
    (void)state;
    budget_shared *shared = open_budget("a");
    holder other = keep_locked(own_path("a"), 0, 1, 0);
    const struct sigaction act = {.sa_handler = count_alarm};
    const struct itimerval often = {{0, 5000}, {0, 5000}}, never = {0};
    sigaction(SIGALRM, &act, NULL);
    alarms = 0;
    releases_lock = other.to;
    setitimer(ITIMER_REAL, &often, NULL);
    bool taken = take(shared, 1000);
    setitimer(ITIMER_REAL, &never, NULL);
    signal(SIGALRM, SIG_IGN); /* a pending one, too */
    signal(SIGALRM, SIG_DFL);
    other.to = releases_lock;
    holder_stop(other);
    assert_true(taken);
    assert_true(alarms >= ALARMS);
    shared_close(shared);
}

/* ---- what a file may say ---- */

static void a_head_that_its_maker_did_not_finish_is_finished(void **state)
{
    static const struct {
        uint64_t magic;
        uint32_t version, used;
        bool good;
    } heads[] = {{0, 0, 0, true},  {0, 4, 0, true},  {UINT64_C(0x6567647562617473), 4, 0, true}, {0, 5, 0, false},
                 {7, 0, 0, false}, {0, 4, 1, false}, {UINT64_C(0x6567647562617473), 5, 0, false}};
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        shared_file *file = edit_begin("a");
        file->checksum = 0;
        file->magic = heads[i].magic;
        file->version = heads[i].version;
        file->used_slots = heads[i].used;
        if (!heads[i].good) {
            check_refused("a", "is damaged, or of another version");
            unlink(own_path("a"));
        } else {
            budget_shared *shared = open_budget("a");
            assert_true(take(shared, LIMIT));
            shared_close(shared);
            assert_int_not_equal(file->checksum, 0);
        }
        edit_end(file);
    }
}

/* A sound file with another file's name. */
static void a_file_of_another_name_or_device_is_refused(void **state)
{
    static const unsigned char other[16] = {16};
    char path[SHARED_PATH];
    budget_shared *shared;
    (void)state;
    shared_close(open_budget("a"));
    snprintf(path, sizeof path, "%s", own_path("a"));
    assert_int_equal(rename(path, own_path("b")), 0);
    check_refused("b", "is damaged");
    unlink(own_path("b"));
    check_ok(shared_open(&(shared_terms){"b", NULL, other, LIMIT}, &shared));
    shared_close(shared);
    snprintf(path, sizeof path, "%s/strata-u%u-b-10000000000000000000000000000000", directory, geteuid());
    assert_int_equal(rename(path, own_path("b")), 0);
    check_refused("b", "is damaged");
}

static void a_budget_is_removed_once_no_living_process_has_a_part(void **state)
{
    char path[SHARED_PATH];
    (void)state;
    budget_shared *shared = open_budget("a");
    snprintf(path, sizeof path, "%s", own_path("a"));
    check_status(strata_shared_budget_remove(path), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "is used by 1 process: end it first");
    assert_true(take(shared, LIMIT));
    shared_close(shared);
    check_ok(strata_shared_budget_remove(path));
    assert_int_equal(access(path, F_OK), -1);
    check_status(strata_shared_budget_remove(path), STRATA_ERROR_IO);
    check_status(strata_shared_budget_remove("/elsewhere"), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_shared_budget_remove(NULL), STRATA_ERROR_INVALID_VALUE);
}

/* A program that has closed these may still write there, and what it writes would be the limit of all processes. */
static void no_file_has_a_standard_descriptor(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* a new file, and one that there is */
        const test_standard standard = test_standard_close();
        budget_shared *shared = open_budget("apart");
        assert_int_equal(test_standard_open(&standard), 0);
        shared_close(shared);
    }
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(relative_folder_means_the_one_of_the_start)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_second_name_of_a_file_that_the_process_has_is_refused, clear_away),
        cmocka_unit_test_teardown(a_folder_may_have_two_names, clear_away),
        cmocka_unit_test_teardown(files_of_one_process_are_closed_in_any_order, clear_away),
        cmocka_unit_test_teardown(a_folder_that_is_not_there_is_said, clear_away),
        cmocka_unit_test_teardown(a_path_that_is_too_long_is_refused, clear_away),
        cmocka_unit_test_teardown(visits_come_in_the_order_of_names, clear_away),
        cmocka_unit_test_teardown(a_relative_folder_means_the_one_in_which_the_program_began, clear_away),
        cmocka_unit_test_teardown(without_a_folder_in_the_environment_it_is_shared_memory, clear_away),
        cmocka_unit_test_teardown(names_of_others_in_the_folder_are_let_be, clear_away),
        cmocka_unit_test_teardown(a_pipe_under_the_name_is_refused, clear_away),
        cmocka_unit_test_teardown(refusals_are_logged_while_other_threads_use_the_files, clear_away),
        cmocka_unit_test_teardown(a_limit_is_set_by_the_files_path, clear_away),
        cmocka_unit_test_teardown(a_group_has_a_name_or_a_number, clear_away),
        cmocka_unit_test_teardown(a_groups_limit_of_another_size_is_refused, clear_away),
        cmocka_unit_test_teardown(a_groups_file_is_shown_to_its_members, clear_away),
        cmocka_unit_test_teardown(a_pipe_in_place_of_a_groups_limit_is_refused, clear_away),
        cmocka_unit_test_teardown(a_file_for_a_group_of_others_is_not_made, clear_away),
        cmocka_unit_test_teardown(a_failing_system_call_is_reported_and_leaves_nothing_behind, clear_away),
        cmocka_unit_test_teardown(a_process_that_lost_the_descriptor_keeps_what_it_has_and_gets_no_more, clear_away),
        cmocka_unit_test_teardown(a_signal_does_not_end_the_wait_for_the_files_lock, clear_away),
        cmocka_unit_test_teardown(a_head_that_its_maker_did_not_finish_is_finished, clear_away),
        cmocka_unit_test_teardown(a_file_of_another_name_or_device_is_refused, clear_away),
        cmocka_unit_test_teardown(a_file_of_the_program_in_a_closed_descriptors_place_is_left_alone, clear_away),
        cmocka_unit_test_teardown(a_budget_is_removed_once_no_living_process_has_a_part, clear_away),
        cmocka_unit_test_teardown(no_file_has_a_standard_descriptor, clear_away),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    if (!mkdtemp(directory) || setenv("STRATA_SHARED_DIR", directory, 1) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return failed;
}
