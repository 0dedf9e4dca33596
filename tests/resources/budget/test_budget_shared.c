/* A limit that several processes share: what they use together, and files that are lost or refused.
 *
 * The processes are forks of this program. Each is a puppet: it reads orders from a pipe, carries them out, and
 * answers. This program opens neither the driver nor a shared budget itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/budget_puppets.h"

/* ---- sharing ---- */

static void processes_share_one_limit_to_the_byte(void **state)
{
    (void)state;
    puppet *first = make_open(LIMIT), *second = make_open(LIMIT);
    assert_true(takes(first, LIMIT / 2));
    assert_true(takes(second, LIMIT / 2 - 1));
    assert_false(takes(first, 2));
    assert_false(takes(second, 2));
    assert_true(takes(second, 1));
    assert_false(takes(first, 1));
    assert_int_equal(ask(first, ORDER_IN_USE, 0).bytes, LIMIT);
    gives(second, 1);
    assert_true(takes(first, 1));
    assert_false(takes(second, 1));
}

static void what_a_process_does_not_use_others_can_have(void **state)
{
    (void)state;
    puppet *first = make_open(LIMIT), *second = make_open(LIMIT), *third = make_open(LIMIT);
    assert_true(takes(first, LIMIT));
    gives(first, LIMIT - 10);
    assert_true(takes(second, LIMIT / 2));
    assert_true(takes(third, LIMIT / 2 - 10));
    assert_false(takes(third, 1));
    gives(second, LIMIT / 4);
    gives(first, 10);
    assert_true(takes(third, LIMIT / 4 + 10));
    assert_false(takes(first, 1));
}

static void a_killed_process_leaves_nothing_when_it_is_gone(void **state)
{
    (void)state;
    puppet *first = make_open(LIMIT), *second = make_open(LIMIT);
    assert_true(takes(first, LIMIT));
    kill(first->pid, SIGSTOP); /* a stopped process keeps its lease */
    assert_false(takes(second, 1));
    kill(first->pid, SIGKILL);
    waitpid(first->pid, NULL, 0);
    assert_true(takes(second, LIMIT));
    assert_int_equal(ask(second, ORDER_IN_USE, 0).bytes, LIMIT);
    gives(second, LIMIT);
    puppet *third = make_open(LIMIT); /* gets the slot of the first */
    assert_true(takes(third, LIMIT));
    end_puppet(third, 0); /* ends without closing */
    assert_true(takes(second, LIMIT));
}

static void a_process_that_executes_another_program_leaves_nothing(void **state)
{
    char nothing;
    (void)state;
    puppet *first = make_open(LIMIT), *second = make_open(LIMIT);
    assert_true(takes(first, LIMIT / 2));
    send_order(first, &(command){.order = ORDER_EXEC});
    assert_int_equal(read(first->from, &nothing, 1), 0); /* closed by the exec */
    assert_int_equal(kill(first->pid, 0), 0);
    assert_true(takes(second, LIMIT));
    assert_int_equal(ask(second, ORDER_IN_USE, 0).bytes, LIMIT);
}

/* Without random addresses the program may come to the same ones: then only its mappings tell. */
static void a_process_that_executes_its_own_program_again_leaves_nothing(void **state)
{
    char path[256], nothing;
    (void)state;
    puppet *first = make_open(LIMIT), *second = make_open(LIMIT);
    assert_true(takes(first, LIMIT / 2));
    file_path(path);
    int file = open(path, O_RDWR | O_CLOEXEC);
    shared_file *map = mmap(NULL, sizeof *map, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(map != MAP_FAILED);
    atomic_store(&map->slots[0].image, 0); /* as if they were the same */
    munmap(map, sizeof *map);
    assert_false(takes(second, LIMIT));
    send_order(first, &(command){.order = ORDER_EXEC});
    assert_int_equal(read(first->from, &nothing, 1), 0); /* closed by the exec; its lock may still be held */
    for (int tries = 0; tries < 5000 && !takes(second, LIMIT); tries++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(ask(second, ORDER_IN_USE, 0).bytes, LIMIT);
    close(file);
}

static void closing_gives_everything_back(void **state)
{
    (void)state;
    puppet *first = make_open(LIMIT), *second = make_open(LIMIT);
    assert_true(takes(first, LIMIT));
    ask(first, ORDER_CLOSE, 0);
    assert_true(takes(second, LIMIT));
    gives(second, LIMIT);
    assert_int_equal(ask(first, ORDER_OPEN, LIMIT).status, STRATA_SUCCESS);
    assert_true(takes(first, LIMIT));
}

static void the_limit_is_that_of_the_first_process_until_the_last_has_left(void **state)
{
    (void)state;
    puppet *first = make_open(LIMIT), *second = make_open(2 * LIMIT), *third = make_open(0);
    assert_int_equal(ask(second, ORDER_LIMIT, 0).bytes, LIMIT);
    assert_int_equal(ask(third, ORDER_LIMIT, 0).bytes, LIMIT);
    end_puppet(first, SIGKILL);
    end_puppet(second, 0);
    ask(third, ORDER_CLOSE, 0);
    assert_int_equal(ask(third, ORDER_OPEN, 0).status, STRATA_SUCCESS); /* without a limit: the old one stays */
    assert_int_equal(ask(third, ORDER_LIMIT, 0).bytes, LIMIT);
    ask(third, ORDER_CLOSE, 0);
    assert_int_equal(ask(third, ORDER_OPEN, 3 * LIMIT).status, STRATA_SUCCESS);
    assert_int_equal(ask(third, ORDER_LIMIT, 0).bytes, 3 * LIMIT);
}

static void a_lower_limit_holds_for_all_at_once(void **state)
{
    (void)state;
    puppet *first = make_open(LIMIT), *second = make_open(LIMIT);
    assert_true(takes(first, LIMIT / 2));
    gives(first, LIMIT / 4); /* leased, not used */
    assert_true(takes(second, LIMIT / 8));
    assert_int_equal(ask(second, ORDER_SET_LIMIT, LIMIT / 2).status, STRATA_SUCCESS);
    assert_true(takes(first, LIMIT / 8));
    assert_false(takes(first, 1));
    assert_false(takes(second, 1));
    assert_int_equal(ask(first, ORDER_SET_LIMIT, LIMIT).status, STRATA_SUCCESS);
    assert_true(takes(second, LIMIT / 2));
}

static void a_limit_lowered_below_the_bytes_in_use_grants_nothing_until_they_fit(void **state)
{
    (void)state;
    puppet *first = make_open(LIMIT), *second = make_open(LIMIT);
    assert_true(takes(first, LIMIT / 2));
    assert_true(takes(second, LIMIT / 4));
    assert_int_equal(ask(second, ORDER_SET_LIMIT, LIMIT / 8).status, STRATA_SUCCESS);
    gives(first, LIMIT / 2);
    assert_false(takes(first, 1)); /* the second process alone has more than the limit */
    gives(second, LIMIT / 4 - 8);
    assert_false(takes(first, LIMIT / 8 - 7));
    assert_true(takes(first, LIMIT / 8 - 8));
    assert_false(takes(second, 1));
    gives(second, 8);
    assert_false(takes(second, 9));
    assert_true(takes(second, 8));
    assert_int_equal(ask(first, ORDER_SET_LIMIT, LIMIT).status, STRATA_SUCCESS);
    assert_true(takes(first, LIMIT / 2));
}

/* Its memory is there until the driver has it back, also without a lease. */
static void a_process_stopped_above_a_lowered_limit_counts_until_it_is_gone(void **state)
{
    (void)state;
    puppet *first = make_open(LIMIT), *second = make_open(LIMIT);
    assert_true(takes(first, LIMIT));
    assert_int_equal(ask(second, ORDER_SET_LIMIT, LIMIT / 2).status, STRATA_SUCCESS);
    kill(first->pid, SIGSTOP);
    assert_false(takes(second, 1));
    kill(first->pid, SIGKILL);
    waitpid(first->pid, NULL, 0);
    assert_true(takes(second, LIMIT / 2));
    assert_false(takes(second, 1));
}

/* Sixteen processes that each take at most their part, so every request fits. */
static void nothing_that_fits_is_refused_while_processes_take_and_give(void **state)
{
    enum { PROCESSES = 8 };
    pid_t children[PROCESSES];
    (void)state;
    int operations = (int)test_effort(SANITIZED ? 5000 : 20000, 500);
    puppet *watcher = make_open(LIMIT);
    fflush(NULL);
    for (size_t i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] != 0)
            continue;
        budget_shared *shared;
        uint64_t seed = i + 1, held = 0;
        const shared_terms terms = {"shared-test", NULL, device, LIMIT};
        if (shared_open(&terms, &shared) != STRATA_SUCCESS)
            test_child_leave(2);
        for (int turn = 0; turn < operations; turn++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            uint64_t bytes = (seed >> 33) % (LIMIT / PROCESSES) + 1;
            if (held + bytes > LIMIT / PROCESSES) {
                shared_give(shared, held);
                held = 0;
            }
            bool taken = shared_take(shared, bytes);
            for (int more = 0; more < 64 && !taken; more++)
                taken = shared_make_room(shared, bytes, 0) && shared_take(shared, bytes);
            if (!taken || shared_in_use(shared) > LIMIT)
                test_child_leave(taken ? 3 : 1);
            held += bytes;
        }
        shared_give(shared, held);
        test_child_leave(0);
    }
    for (size_t i = 0; i < PROCESSES; i++) {
        int status;
        waitpid(children[i], &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_true(takes(watcher, LIMIT));
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Starts all at once, and has each take from one budget, or from one of its own. Returns the longest that one took, in
 * seconds. */
static double start_at_once(size_t count, bool shares)
{
    enum { MOST = 300 };
    pid_t children[MOST];
    int gate[2];
    double longest = 0;
    double *taken = mmap(NULL, MOST * sizeof *taken, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(count <= MOST && taken != MAP_FAILED && pipe2(gate, O_CLOEXEC) == 0);
    fflush(NULL);
    for (size_t i = 0; i < count; i++) {
        children[i] = fork();
        if (children[i] != 0)
            continue;
        char nothing, name[40] = "shared-test"; /* room for any number, as compilers ask */
        budget_shared *shared;
        if (!shares)
            snprintf(name, sizeof name, "shared-test-%zu", i);
        const shared_terms terms = {name, NULL, device, LIMIT};
        close(gate[1]);
        if (read(gate[0], &nothing, 1) != 0) /* until the parent closes its end */
            test_child_leave(1);
        double before = seconds_now();
        bool good = shared_open(&terms, &shared) == STRATA_SUCCESS && shared_make_room(shared, 100, 0) &&
                    shared_take(shared, 100);
        taken[i] = seconds_now() - before;
        test_child_leave(good ? 0 : 1);
    }
    close(gate[0]);
    close(gate[1]);
    for (size_t i = 0; i < count; i++) {
        int status;
        waitpid(children[i], &status, 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        longest = taken[i] > longest ? taken[i] : longest;
    }
    munmap(taken, MOST * sizeof *taken);
    return longest;
}

static void remove_own_files(size_t count)
{
    char path[300];
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/strata-u%u-shared-test-%zu-0102030405060708090a0b0c0d0e0f10", directory,
                 geteuid(), i);
        assert_int_equal(unlink(path), 0);
    }
}

/* Beside as many that share nothing: how long a start takes depends on what else the machine does. */
static void many_processes_that_start_at_once_do_not_queue(void **state)
{
    (void)state;
    const size_t count = test_effort(300, 20);
    const double alone = start_at_once(count, false), together = start_at_once(count, true);
    remove_own_files(count);
    print_message("%zu processes: the longest start took %.0f ms, without sharing %.0f ms\n", count, together * 1e3,
                  alone * 1e3);
    assert_true(together < 2 || together < 8 * alone || SANITIZED || test_under_valgrind());
}

/* ---- files that are lost while they are used ---- */

static void lose_by_removal(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static void lose_by_renaming(const char *path)
{
    char other[300];
    snprintf(other, sizeof other, "%s.other", path);
    assert_int_equal(rename(path, other), 0);
}

/* Another process has made a file of the name meanwhile. */
static void lose_by_renaming_and_a_new_file(const char *path)
{
    lose_by_renaming(path);
    puppet *next = make_open(LIMIT);
    assert_true(takes(next, LIMIT));
    end_puppet(next, 0);
}

static void lose_by_renaming_the_folder(const char *path)
{
    char other[64];
    (void)path;
    snprintf(other, sizeof other, "%s.other", directory);
    assert_int_equal(rename(directory, other), 0);
    assert_int_equal(mkdir(directory, 0700), 0);
}

static void remove_what_was_renamed(void)
{
    assert_int_equal(system("rm -rf \"$STRATA_SHARED_DIR\".other \"$STRATA_SHARED_DIR\"/*.other"), 0);
}

static void lose_by_truncation(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}

static void lose_by_truncation_of_the_end(const char *path)
{
    assert_int_equal(truncate(path, 4096), 0);
}

static void lose_by_overwriting(const char *path)
{
    static const char zeros[64];
    int file = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(file, zeros, sizeof zeros, 0), sizeof zeros);
    close(file);
}

/* What was granted stays; more is refused, with the reason; the process lives and can close it. */
static void a_file_that_is_lost_while_it_is_used_grants_no_more_and_says_so(void **state)
{
    static const struct {
        void (*lose)(const char *path);
        const char *words;
    } ways[] = {
        {lose_by_removal, "was removed while it was used"},
        {lose_by_renaming, "was renamed or replaced while it was used"},
        {lose_by_renaming_and_a_new_file, "was renamed or replaced while it was used"},
        {lose_by_renaming_the_folder, "was renamed or replaced while it was used"},
        {lose_by_truncation, "was truncated while it was used"},
        {lose_by_truncation_of_the_end, "was truncated while it was used"},
        {lose_by_overwriting, "was overwritten while it was used"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char path[256];
        puppet *first = make_open(LIMIT), *second = make_open(LIMIT);
        assert_true(takes(first, LIMIT / 4));
        assert_true(takes(second, LIMIT / 4));
        file_path(path);
        ways[i].lose(path);
        assert_false(takes(first, LIMIT / 2));
        assert_false(takes(second, LIMIT / 2));
        answer reply = ask(first, ORDER_SET_LIMIT, 2 * LIMIT);
        assert_int_equal(reply.status, STRATA_ERROR_IO);
        if (!strstr(reply.message, ways[i].words) || !strstr(reply.message, path))
            fail_msg("%s is not in: %s", ways[i].words, reply.message);
        gives(first, LIMIT / 4);
        ask(first, ORDER_CLOSE, 0);
        unlink(path);
        assert_int_equal(ask(first, ORDER_OPEN, LIMIT).status, STRATA_SUCCESS); /* as a new process */
        assert_true(takes(first, LIMIT));
        clear_away(NULL);
        remove_what_was_renamed();
    }
}

/* ---- files that are refused ---- */

static void expect_refused(const char *words)
{
    puppet *self = make_puppet();
    answer reply = ask(self, ORDER_OPEN, LIMIT);
    if (reply.status != STRATA_ERROR_IO)
        fail_msg("a file that %s is not refused: %s", words, strata_status_name(reply.status));
    end_puppet(self, 0);
}

static void make_file(void)
{
    puppet *self = make_open(LIMIT);
    end_puppet(self, 0);
}

static void a_file_that_is_not_what_it_has_to_be_is_refused(void **state)
{
    char path[256], other[300];
    (void)state;
    file_path(path);
    make_file();
    assert_int_equal(chmod(path, 0644), 0);
    expect_refused("others can read");
    assert_int_equal(chmod(path, 0600), 0);
    make_file();
    snprintf(other, sizeof other, "%s.other", path);
    assert_int_equal(link(path, other), 0);
    expect_refused("has two names");
    unlink(other);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
        expect_refused("belongs to another user");
        assert_int_equal(chown(path, 0, (gid_t)-1), 0);
    }
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    expect_refused("is a link");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refused("is a folder");
    rmdir(path);
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(truncate(path, 4096), 0);
    expect_refused("is too short");
    unlink(path);
    int file = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(write(file, "something else", 14), 14);
    close(file);
    expect_refused("is something else");
}

static void a_damaged_head_is_refused_wherever_it_is(void **state)
{
    char path[256];
    (void)state;
    file_path(path);
    make_file();
    int file = open(path, O_RDWR | O_CLOEXEC);
    for (off_t at = 0; at < (off_t)(offsetof(shared_file, checksum) + 8); at += 5) {
        unsigned char byte, wrong;
        assert_int_equal(pread(file, &byte, 1, at), 1);
        wrong = byte ^ 0x41;
        assert_int_equal(pwrite(file, &wrong, 1, at), 1);
        expect_refused("is damaged");
        puppet_count = 0;
        assert_int_equal(pwrite(file, &byte, 1, at), 1);
    }
    close(file);
    make_file();
}

static void a_group_shares_a_file_of_its_own(void **state)
{
    char path[256], group[32];
    struct stat about;
    (void)state;
    snprintf(group, sizeof group, "%u", getegid());
    puppet *first = make_puppet(), *second = make_puppet();
    const command opening = {.order = ORDER_OPEN, .bytes = LIMIT, .group = group};
    send_order(first, &opening);
    assert_int_equal(receive(first).status, STRATA_SUCCESS);
    send_order(second, &opening);
    assert_int_equal(receive(second).status, STRATA_SUCCESS);
    snprintf(path, sizeof path, "%s/strata-g%s-shared-test-0102030405060708090a0b0c0d0e0f10", directory, group);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0660);
    assert_true(takes(first, LIMIT));
    assert_false(takes(second, 1));
    unlink(path);
    strcat(path, SHARED_LIMIT_SUFFIX);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    unlink(path);
}

static answer open_in_group(const puppet *self, const char *group, uint64_t limit)
{
    send_order(self, &(command){.order = ORDER_OPEN, .bytes = limit, .group = group});
    return receive(self);
}

/* Members charge to the limit and read it. */
static void the_limit_of_a_groups_budget_is_changed_by_its_maker_alone(void **state)
{
    enum { MEMBER = 4242 };
    (void)state;
    puppet *maker = make_puppet(), *member = make_puppet(), *other = make_puppet();
    if (!ask(member, ORDER_BECOME, MEMBER).done)
        skip(); /* needs root */
    assert_int_equal(chmod(directory, 01777), 0);
    assert_int_equal(open_in_group(maker, "4242", LIMIT).status, STRATA_SUCCESS);
    assert_int_equal(open_in_group(member, "4242", 2 * LIMIT).status, STRATA_SUCCESS);
    assert_int_equal(ask(member, ORDER_LIMIT, 0).bytes, LIMIT);
    answer reply = ask(member, ORDER_SET_LIMIT, 2 * LIMIT);
    assert_int_equal(reply.status, STRATA_ERROR_IO);
    if (!strstr(reply.message, "only by user root"))
        fail_msg("not said: %s", reply.message);
    assert_int_equal(ask(maker, ORDER_SET_LIMIT, LIMIT / 2).status, STRATA_SUCCESS);
    assert_true(takes(member, LIMIT / 2));
    assert_false(takes(maker, 1));
    end_puppet(maker, 0);
    ask(member, ORDER_CLOSE, 0);
    assert_int_equal(open_in_group(member, "4242", 2 * LIMIT).status, STRATA_SUCCESS); /* alone, and not the maker */
    assert_int_equal(ask(member, ORDER_LIMIT, 0).bytes, LIMIT / 2);
    assert_true(ask(other, ORDER_BECOME, MEMBER + 1).done);
    reply = open_in_group(other, "4242", LIMIT);
    assert_int_equal(reply.status, STRATA_ERROR_IO);
    if (!strstr(reply.message, "belongs to user root") || !strstr(reply.message, "STRATA_SHARED_DIR"))
        fail_msg("not said: %s", reply.message);
    assert_int_equal(chmod(directory, 0700), 0);
    assert_int_equal(system("rm -f \"$STRATA_SHARED_DIR\"/strata-g4242-*"), 0);
}

/* What the process is now cannot be told: neither its addresses nor its mappings can be read. */
static void a_process_of_another_user_that_executes_a_program_counts_for_some_seconds(void **state)
{
    enum { MEMBER = 4242 };
    char path[256], nothing;
    (void)state;
    puppet *first = make_puppet(), *member = make_puppet();
    if (!ask(member, ORDER_BECOME, MEMBER).done)
        skip(); /* needs root */
    assert_int_equal(chmod(directory, 01777), 0);
    assert_int_equal(open_in_group(first, "4242", LIMIT).status, STRATA_SUCCESS);
    assert_int_equal(open_in_group(member, "4242", LIMIT).status, STRATA_SUCCESS);
    assert_true(takes(first, LIMIT / 2));
    send_order(first, &(command){.order = ORDER_EXEC});
    assert_int_equal(read(first->from, &nothing, 1), 0); /* closed by the exec; its lock may still be held */
    snprintf(path, sizeof path, "%s/strata-g4242-shared-test-0102030405060708090a0b0c0d0e0f10", directory);
    int file = open(path, O_RDWR | O_CLOEXEC);
    shared_file *map = mmap(NULL, sizeof *map, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(map != MAP_FAILED);
    for (int tries = 0; tries < 5000 && !atomic_load(&map->slots[0].seen_dead); tries++) {
        assert_false(takes(member, LIMIT));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    atomic_fetch_sub(&map->slots[0].seen_dead, UINT64_C(6000000000));
    bool all = takes(member, LIMIT);
    munmap(map, sizeof *map);
    close(file);
    assert_int_equal(kill(first->pid, 0), 0);
    assert_int_equal(chmod(directory, 0700), 0);
    assert_int_equal(system("rm -f \"$STRATA_SHARED_DIR\"/strata-g4242-*"), 0);
    assert_true(all);
}

static void a_groups_limit_that_is_renamed_grants_no_more(void **state)
{
    char group[32];
    (void)state;
    snprintf(group, sizeof group, "%u", getegid());
    puppet *first = make_puppet();
    assert_int_equal(open_in_group(first, group, LIMIT).status, STRATA_SUCCESS);
    assert_true(takes(first, LIMIT / 4));
    assert_int_equal(system("cd \"$STRATA_SHARED_DIR\" && mv strata-g*" SHARED_LIMIT_SUFFIX " limit.other"), 0);
    assert_false(takes(first, LIMIT / 2));
    answer reply = ask(first, ORDER_SET_LIMIT, 2 * LIMIT);
    assert_int_equal(reply.status, STRATA_ERROR_IO);
    if (!strstr(reply.message, "lost the file of its limit"))
        fail_msg("not said: %s", reply.message);
    assert_int_equal(system("rm -f \"$STRATA_SHARED_DIR\"/*.other \"$STRATA_SHARED_DIR\"/strata-g*"), 0);
}

/* Continues the process to its `most`th stop at a system call. False if it stopped by itself before. */
static bool go_to_call(pid_t pid, size_t most)
{
    int status;
    for (size_t made = 0; made < most; made++) {
        if (ptrace(PTRACE_SYSCALL, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid)
            fail_msg("the process cannot be stepped: %s", strerror(errno));
        assert_true(WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP)
            return false;
    }
    return true;
}

static void a_groups_file_is_never_seen_before_it_is_the_groups(void **state)
{
    char path[256], group[32];
    (void)state;
    if (test_under_valgrind() || !can_be_traced()) /* Valgrind makes system calls of its own */
        skip();
    snprintf(group, sizeof group, "%u", getegid());
    snprintf(path, sizeof path, "%s/strata-g%s-shared-test-0102030405060708090a0b0c0d0e0f10", directory, group);
    size_t seen = 0, calls = 0;
    for (bool goes_on = true; goes_on; calls++) {
        int status;
        struct stat about;
        puppet_count = 0;
        puppet *victim = make_puppet();
        send_order(victim, &(command){ORDER_OPEN, LIMIT, group, true});
        assert_int_equal(waitpid(victim->pid, &status, WUNTRACED), victim->pid);
        goes_on = go_to_call(victim->pid, calls);
        kill(victim->pid, SIGKILL);
        waitpid(victim->pid, &status, 0);
        victim->pid = 0;
        close(victim->to);
        close(victim->from);
        bool there = stat(path, &about) == 0;
        seen += there;
        if (there && (about.st_mode & 0777) != 0660)
            fail_msg("after %zu stops there is a file with the rights %o", calls, about.st_mode & 0777);
        assert_true(!there || about.st_nlink == 1);
        puppet *next = make_puppet();
        send_order(next, &(command){.order = ORDER_OPEN, .bytes = LIMIT, .group = group});
        assert_int_equal(receive(next).status, STRATA_SUCCESS);
        end_puppet(next, 0);
        unlink(path);
    }
    assert_true(seen > 0 && seen < calls);
    print_message("%zu stops\n", calls);
}

static void names_that_could_lead_elsewhere_are_refused(void **state)
{
    static const char *const names[] = {
        "", "../x", "a/b", ".hidden", "with space", "a\nb", "a-name-that-is-longer-than-the-forty-eight-letters"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        budget_shared *shared;
        const shared_terms terms = {names[i], NULL, device, LIMIT};
        check_status(shared_open(&terms, &shared), STRATA_ERROR_INVALID_VALUE);
        assert_null(shared);
    }
    budget_shared *shared;
    const shared_terms terms = {"name", "no such group", device, LIMIT};
    check_status(shared_open(&terms, &shared), STRATA_ERROR_INVALID_VALUE);
}

/* ---- the command ---- */

/* Runs `strata budget` with these arguments. Returns its status and the output of both streams. */
static int run_command(const char *words, char text[4096])
{
    char line[8192], self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(line, sizeof line, "'%s/strata' budget %s 2>&1", self, words);
    FILE *from = popen(line, "r");
    assert_non_null(from);
    size_t read = fread(text, 1, 4095, from);
    text[read] = '\0';
    return WEXITSTATUS(pclose(from));
}

/* A terminal does not obey a tag, and a name without an end ends. */
static void the_command_shows_tags_of_others_plainly(void **state)
{
    char text[4096];
    (void)state;
    puppet *first = make_open(LIMIT);
    char path[256];
    file_path(path);
    int file = open(path, O_RDWR | O_CLOEXEC);
    shared_file *map = mmap(NULL, sizeof *map, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(map != MAP_FAILED);
    shared_tag *tag = &map->slots[0].tags[1];
    memset(tag->name, 'x', sizeof tag->name);
    memcpy(tag->name, "\033[2J\n", 5);
    atomic_store(&tag->in_use, 5);
    assert_int_equal(run_command("shared-test", text), 0);
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "\\x1b[2J\\n"));
    assert_null(strstr(text, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
    munmap(map, sizeof *map);
    close(file);
    end_puppet(first, SIGKILL);
}

static void the_command_lists_budgets_and_sets_their_limits(void **state)
{
    char path[256], text[4096], pid[32];
    (void)state;
    assert_int_equal(run_command("", text), 0);
    assert_non_null(strstr(text, "no shared budgets"));
    puppet *first = make_open(LIMIT), *second = make_open(LIMIT);
    assert_true(takes(first, 1000));
    assert_int_equal(run_command("", text), 0);
    assert_non_null(strstr(text, "shared-test"));
    assert_non_null(strstr(text, "1.00 MiB"));
    assert_non_null(strstr(text, "by 2 processes"));
    snprintf(pid, sizeof pid, "%d", first->pid);
    assert_non_null(strstr(text, pid));
    assert_int_equal(run_command("shared-test --device 0102 --json", text), 0);
    assert_non_null(strstr(text, "\"in_use_bytes\": 1000"));
    assert_non_null(strstr(text, "\"limit_bytes\": 1048576"));
    assert_int_equal(run_command("shared-test --limit 4KiB", text), 0);
    assert_int_equal(ask(second, ORDER_LIMIT, 0).bytes, 4096);
    assert_true(takes(second, 3096));
    assert_false(takes(second, 1));
    kill(first->pid, SIGSTOP);
    kill(first->pid, SIGKILL);
    waitpid(first->pid, NULL, 0);
    assert_int_equal(run_command("shared-test", text), 0);
    assert_non_null(strstr(text, "dead"));
    assert_non_null(strstr(text, "by 1 process\n"));
    assert_non_null(strstr(text, "of the dead"));
    assert_int_equal(run_command("shared-test --limit 8GiB --limit none", text), 0); /* the last one counts */
    assert_int_equal(ask(second, ORDER_LIMIT, 0).bytes, 0);
    assert_int_equal(run_command("shared-test --device ff", text), 2);
    assert_int_equal(run_command("other", text), 2);
    assert_non_null(strstr(text, "no shared budget \"other\""));
    assert_int_equal(run_command("--limit 5GiB", text), 2);
    assert_int_equal(run_command("--remove", text), 2);
    assert_int_equal(run_command("shared-test --remove --limit 5GiB", text), 2);
    assert_int_equal(run_command("shared-test --watch=never", text), 2);
    assert_non_null(strstr(text, "invalid interval \"never\"; expected a time above 0, such as 500ms"));
    assert_int_equal(run_command("shared-test --remove", text), 1);
    assert_non_null(strstr(text, "is used by 1 process"));
    assert_int_equal(run_command("shared-test --watch=10ms | grep -m 3 shared-test", text), 0); /* until it is read */
    ask(second, ORDER_CLOSE, 0);
    assert_int_equal(run_command("shared-test --remove", text), 0);
    assert_int_equal(run_command("shared-test", text), 2);
    assert_int_equal(ask(second, ORDER_OPEN, LIMIT).status, STRATA_SUCCESS);
    assert_int_equal(run_command("shared-test --limit 0", text), 2);
    assert_int_equal(run_command("shared-test --limit much", text), 2);
    file_path(path);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(run_command("--json", text), 1);
    assert_non_null(strstr(text, "can be read or written by others"));
}

static void the_command_shows_the_whole_path_in_a_relative_folder(void **state)
{
    char before[4096], path[256], text[4096];
    (void)state;
    make_open(LIMIT);
    file_path(path);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir("/tmp"), 0);
    setenv("STRATA_SHARED_DIR", strrchr(directory, '/') + 1, 1);
    int status = run_command("shared-test --json", text);
    setenv("STRATA_SHARED_DIR", directory, 1);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(status, 0);
    if (!strstr(text, path))
        fail_msg("%s is not in %s", path, text);
    assert_int_equal(run_command(path, text), 0); /* anywhere */
}

/* By its name: "no shared budget" would contradict the list. */
static void the_command_knows_a_budget_that_it_cannot_read_by_its_file(void **state)
{
    static const char *const words[] = {"shared-test", "shared-test --device 0102", "shared-test --limit 4KiB",
                                        "shared-test --remove"};
    char path[256], text[4096];
    (void)state;
    puppet *first = make_open(LIMIT);
    file_path(path);
    end_puppet(first, SIGKILL);
    assert_int_equal(truncate(path, 4096), 0);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        assert_int_equal(run_command(words[i], text), 1);
        assert_non_null(strstr(text, "has the wrong size: it is damaged, or of another version"));
        assert_null(strstr(text, "no shared budget"));
    }
    assert_non_null(strstr(text, "; rm removes it"));
    assert_int_equal(run_command(path, text), 1);
    assert_int_equal(run_command("shared", text), 2);
    assert_int_equal(run_command("test", text), 2);
    assert_int_equal(run_command("shared-test --device ff", text), 2);
    assert_non_null(strstr(text, "no shared budget \"shared-test\""));
}

/* A tag is truncated to the room for it, between two characters. */
static void tags_are_cut_between_characters(void **state)
{
    static const struct {
        const char *name, *kept;
    } tags[] = {
        {"short \xc3\xbc", "short \xc3\xbc"},
        {"12345678901234567890123456789012345678\xc3\xbc", "12345678901234567890123456789012345678"},
        {"1234567890123456789012345678901234567\xc3\xbcx", "1234567890123456789012345678901234567\xc3\xbc"},
        {"123456789012345678901234567890123456\xf0\x9f\x98\x80", "123456789012345678901234567890123456"},
        {"12345678901234567890123456789012345\xf0\x9f\x98\x80x", "12345678901234567890123456789012345\xf0\x9f\x98\x80"},
    };
    enum { TAGS = sizeof tags / sizeof tags[0] };
    char text[4096];
    budget_shared *shared;
    const shared_terms terms = {"shared-test", NULL, device, LIMIT};
    (void)state;
    check_ok(shared_open(&terms, &shared));
    for (size_t i = 0; i < TAGS; i++) {
        strata_tag tag;
        check_ok(strata_tag_intern(tags[i].name, &tag));
        uint32_t index = shared_tag_index(shared, tag);
        shared_count_tag(shared, index, 100 + (int64_t)i);
        assert_string_equal(shared->file->slots[0].tags[index].name, tags[i].kept);
    }
    assert_int_equal(run_command("shared-test --json", text), 0);
    for (size_t i = 0; i < TAGS; i++) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "\": %zu", 100 + i);
        if (!strstr(text, wanted))
            fail_msg("%s is not in %s", wanted, text);
    }
    shared_close(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(processes_share_one_limit_to_the_byte, clear_away),
        cmocka_unit_test_teardown(what_a_process_does_not_use_others_can_have, clear_away),
        cmocka_unit_test_teardown(a_killed_process_leaves_nothing_when_it_is_gone, clear_away),
        cmocka_unit_test_teardown(a_process_that_executes_another_program_leaves_nothing, clear_away),
        cmocka_unit_test_teardown(a_process_that_executes_its_own_program_again_leaves_nothing, clear_away),
        cmocka_unit_test_teardown(closing_gives_everything_back, clear_away),
        cmocka_unit_test_teardown(the_limit_is_that_of_the_first_process_until_the_last_has_left, clear_away),
        cmocka_unit_test_teardown(a_lower_limit_holds_for_all_at_once, clear_away),
        cmocka_unit_test_teardown(a_limit_lowered_below_the_bytes_in_use_grants_nothing_until_they_fit, clear_away),
        cmocka_unit_test_teardown(a_process_stopped_above_a_lowered_limit_counts_until_it_is_gone, clear_away),
        cmocka_unit_test_teardown(nothing_that_fits_is_refused_while_processes_take_and_give, clear_away),
        cmocka_unit_test_teardown(many_processes_that_start_at_once_do_not_queue, clear_away),
        cmocka_unit_test_teardown(a_file_that_is_lost_while_it_is_used_grants_no_more_and_says_so, clear_away),
        cmocka_unit_test_teardown(a_file_that_is_not_what_it_has_to_be_is_refused, clear_away),
        cmocka_unit_test_teardown(a_damaged_head_is_refused_wherever_it_is, clear_away),
        cmocka_unit_test_teardown(a_group_shares_a_file_of_its_own, clear_away),
        cmocka_unit_test_teardown(the_limit_of_a_groups_budget_is_changed_by_its_maker_alone, clear_away),
        cmocka_unit_test_teardown(a_process_of_another_user_that_executes_a_program_counts_for_some_seconds,
                                  clear_away),
        cmocka_unit_test_teardown(a_groups_limit_that_is_renamed_grants_no_more, clear_away),
        cmocka_unit_test_teardown(a_groups_file_is_never_seen_before_it_is_the_groups, clear_away),
        cmocka_unit_test_teardown(names_that_could_lead_elsewhere_are_refused, clear_away),
        cmocka_unit_test_teardown(tags_are_cut_between_characters, clear_away),
        cmocka_unit_test_teardown(the_command_lists_budgets_and_sets_their_limits, clear_away),
        cmocka_unit_test_teardown(the_command_shows_the_whole_path_in_a_relative_folder, clear_away),
        cmocka_unit_test_teardown(the_command_knows_a_budget_that_it_cannot_read_by_its_file, clear_away),
        cmocka_unit_test_teardown(the_command_shows_tags_of_others_plainly, clear_away),
    };
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(directory) || setenv("STRATA_SHARED_DIR", directory, 1) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return failed;
}
