/* Failing system calls under a shared budget: of each update, the first, second, third, ... call fails, until the
 * update makes no more calls. Then an error is reported or the update is done, no descriptor stays open, the process
 * can try again, and at the end the whole limit is available.
 *
 * The test fails a puppet's calls by ptrace: at the stop before the call it replaces the call's number, and at the stop
 * behind it the result. */
#define _GNU_SOURCE
#include "support/budget_puppets.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>

#if defined(__x86_64__)

/* ---- failing calls ---- */

typedef struct user_regs_struct registers;

/* Calls that may fail on a sound system. Calls that release something cannot. */
static bool may_fail(pid_t pid, const registers *at)
{
    static const unsigned long long calls[] = {SYS_open,       SYS_openat, SYS_stat,      SYS_lstat,    SYS_fstat,
                                               SYS_newfstatat, SYS_mmap,   SYS_fallocate, SYS_linkat,   SYS_renameat2,
                                               SYS_fchown,     SYS_fchmod, SYS_read,      SYS_getgroups};
    if (at->orig_rax == SYS_fcntl && (at->rsi == F_SETLK || at->rsi == F_SETLKW || at->rsi == F_GETLK))
        return (short)ptrace(PTRACE_PEEKDATA, pid, at->rdx, NULL) != F_UNLCK;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (at->orig_rax == calls[i])
            return true;
    return false;
}

static bool is_nameless(const registers *at)
{
    return at->orig_rax == SYS_openat && (at->rdx & O_TMPFILE) == O_TMPFILE;
}

/* Calls that may fail with other errors than EIO. */
static bool is_lock(pid_t pid, const registers *at)
{
    (void)pid;
    return at->orig_rax == SYS_fcntl && at->rsi == F_SETLKW;
}

static bool is_read(pid_t pid, const registers *at)
{
    (void)pid;
    return at->orig_rax == SYS_read;
}

static bool is_link(pid_t pid, const registers *at)
{
    (void)pid;
    return at->orig_rax == SYS_linkat || at->orig_rax == SYS_renameat2;
}

static bool opens_nameless(pid_t pid, const registers *at)
{
    (void)pid;
    return is_nameless(at);
}

/* Which calls fail, and how. */
typedef struct failing {
    const char *name;
    bool (*is)(pid_t pid, const registers *at);
    int error;
    bool harmless;     /* the update succeeds nevertheless */
    bool no_nameless;  /* the file system has no O_TMPFILE, too */
    const char *group; /* of the file; NULL: the user's */
} failing;

/* Continues to the next stop at a system call. False if the process stopped by itself. */
static bool to_next_call(pid_t pid)
{
    int status = 0;
    if (ptrace(PTRACE_SYSCALL, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        fail_msg("the process cannot be led: %s", strerror(errno));
    return WSTOPSIG(status) == (SIGTRAP | 0x80);
}

/* Before the call with the registers `at`: the call is not made and returns `error`. */
static void fail_call(pid_t pid, const registers *at, int error)
{
    registers changed = *at;
    changed.orig_rax = ~0ull;
    assert_int_equal(ptrace(PTRACE_SETREGS, pid, NULL, &changed), 0);
    assert_true(to_next_call(pid));
    assert_int_equal(ptrace(PTRACE_GETREGS, pid, NULL, &changed), 0);
    changed.rax = (unsigned long long)-error;
    assert_int_equal(ptrace(PTRACE_SETREGS, pid, NULL, &changed), 0);
}

/* The puppet carries out an order, and its nth such call fails. False if it makes fewer calls. */
static bool order_failing(const puppet *self, const command *what, const failing *how, size_t nth, answer *reply)
{
    int status;
    bool failed = false;
    registers at;
    send_order(self, what);
    assert_int_equal(waitpid(self->pid, &status, WUNTRACED), self->pid);
    assert_int_equal(ptrace(PTRACE_SETOPTIONS, self->pid, NULL, PTRACE_O_TRACESYSGOOD), 0);
    while (to_next_call(self->pid)) {
        assert_int_equal(ptrace(PTRACE_GETREGS, self->pid, NULL, &at), 0);
        if (how->is(self->pid, &at) && --nth == 0) {
            fail_call(self->pid, &at, how->error);
            failed = true;
        } else if (how->no_nameless && is_nameless(&at)) {
            fail_call(self->pid, &at, EOPNOTSUPP);
        } else if (!to_next_call(self->pid)) { /* after the call that stops the process */
            break;
        }
    }
    assert_int_equal(ptrace(PTRACE_DETACH, self->pid, NULL, NULL), 0);
    *reply = receive(self);
    return failed;
}

/* Checks the answer to an order with a failed call. Returns whether the order was carried out. */
static bool check_answer(const failing *how, const answer *reply)
{
    if (reply->status == STRATA_SUCCESS)
        return true;
    if (how->harmless)
        fail_msg("%s: %s", how->name, reply->message);
    assert_true(reply->status == STRATA_ERROR_IO || reply->status == STRATA_ERROR_OUT_OF_HOST_MEMORY);
    if (!strstr(reply->message, "shared budget") && !strstr(reply->message, "cannot be locked"))
        fail_msg("%s: the error is \"%s\"", how->name, reply->message);
    return false;
}

/* ---- the updates ---- */

static const failing any = {.name = "any", .is = may_fail, .error = EIO};
static char own_group[32];

static const failing ways[] = {
    {.name = "any", .is = may_fail, .error = EIO},
    {.name = "any, group", .is = may_fail, .error = EIO, .group = own_group},
    {.name = "any, group, another name", .is = may_fail, .error = EIO, .group = own_group, .no_nameless = true},
    {.name = "interrupted lock", .is = is_lock, .error = EINTR, .harmless = true},
    {.name = "lock that looks like a deadlock", .is = is_lock, .error = EDEADLK, .harmless = true},
    {.name = "process gone", .is = is_read, .error = ESRCH, .harmless = true},
    {.name = "no nameless files", .is = opens_nameless, .error = EOPNOTSUPP, .group = own_group, .harmless = true},
    {.name = "no such flag", .is = opens_nameless, .error = EISDIR, .group = own_group, .harmless = true},
    {.name = "no flags", .is = opens_nameless, .error = EINVAL, .group = own_group, .harmless = true},
    {.name = "the name is taken", .is = is_link, .error = EEXIST, .group = own_group, .harmless = true},
    {.name = "the name is taken, another name",
     .is = is_link,
     .error = EEXIST,
     .group = own_group,
     .no_nameless = true,
     .harmless = true},
};

static int clear_all(void **state)
{
    char path[256];
    clear_away(state);
    snprintf(path, sizeof path, "%s/strata-g%s-shared-test-0102030405060708090a0b0c0d0e0f10", directory, own_group);
    unlink(path);
    strcat(path, SHARED_LIMIT_SUFFIX);
    unlink(path);
    return 0;
}

static uint64_t holdings(const puppet *self)
{
    return ask(self, ORDER_HOLDINGS, 0).bytes;
}

static answer open_as(const puppet *self, const failing *how)
{
    send_order(self, &(command){.order = ORDER_OPEN, .bytes = LIMIT, .group = how->group});
    return receive(self);
}

static void skip_without_tracing(void)
{
    if (SANITIZED || test_under_valgrind() || !can_be_traced()) { /* their own calls would fail */
        print_message("skipped: system calls cannot be failed here\n");
        skip();
    }
    snprintf(own_group, sizeof own_group, "%u", getegid());
}

/* Files in the folder, with any name. */
static int count_files(void)
{
    struct dirent **entries;
    int count = scandir(directory, &entries, NULL, NULL);
    assert_true(count >= 2);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return count - 2;
}

/* Opens a missing file, or one that another process has open. */
static bool open_failing(const failing *how, size_t nth, bool there)
{
    answer reply;
    puppet *other = make_puppet(), *victim = make_puppet();
    if (there)
        assert_int_equal(open_as(other, how).status, STRATA_SUCCESS);
    uint64_t before = holdings(victim);
    const command what = {.order = ORDER_OPEN, .bytes = LIMIT, .group = how->group, .traced = true};
    bool failed = order_failing(victim, &what, how, nth, &reply);
    if (!check_answer(how, &reply)) {
        if (holdings(victim) != before)
            fail_msg("%s, %zu: what was opened stays open after \"%s\"", how->name, nth, reply.message);
        assert_int_equal(open_as(victim, how).status, STRATA_SUCCESS);
    }
    assert_int_equal(count_files(), how->group ? 2 : 1); /* no temporary name is left */
    if (!there)
        assert_int_equal(open_as(other, how).status, STRATA_SUCCESS);
    assert_true(takes(victim, LIMIT));
    assert_false(takes(other, 1));
    ask(victim, ORDER_CLOSE, 0);
    assert_int_equal(holdings(victim), before);
    assert_true(takes(other, LIMIT));
    clear_all(NULL);
    return failed;
}

static void a_file_is_opened_or_left_as_it_was(void **state)
{
    (void)state;
    skip_without_tracing();
    size_t runs = 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        for (int there = 0; there < 2; there++)
            for (size_t nth = 1; open_failing(&ways[i], nth, there); nth++)
                runs++;
    print_message("%zu calls failed\n", runs);
    assert_true(runs > 60);
}

/* A dead process has half of the limit; another process leased more than it uses. */
static bool take_failing(const failing *how, size_t nth)
{
    answer reply;
    siginfo_t about;
    puppet *other = make_open(LIMIT), *dead = make_open(LIMIT), *victim = make_open(LIMIT);
    assert_true(takes(dead, LIMIT / 2));
    assert_true(takes(other, LIMIT / 4));
    gives(other, LIMIT / 4);
    kill(dead->pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)dead->pid, &about, WEXITED | WNOWAIT),
                     0); /* a zombie, whose status can be read */
    uint64_t before = holdings(victim);
    bool failed =
        order_failing(victim, &(command){.order = ORDER_TAKE, .bytes = LIMIT, .traced = true}, how, nth, &reply);
    assert_true(reply.done || !how->harmless);
    assert_int_equal(holdings(victim), before);
    assert_int_equal(ask(other, ORDER_IN_USE, 0).bytes, reply.done ? LIMIT : ask(other, ORDER_IN_USE, 0).bytes);
    assert_true(reply.done || takes(victim, LIMIT));
    assert_int_equal(ask(other, ORDER_IN_USE, 0).bytes, LIMIT);
    assert_false(takes(other, 1));
    gives(victim, 10);
    assert_true(takes(other, 10));
    clear_all(NULL);
    return failed;
}

static void bytes_are_taken_or_not(void **state)
{
    static const failing some[] = {
        {.name = "any", .is = may_fail, .error = EIO},
        {.name = "interrupted", .is = is_lock, .error = EINTR, .harmless = true},
        {.name = "looks like a deadlock", .is = is_lock, .error = EDEADLK, .harmless = true},
        {.name = "gone", .is = is_read, .error = ESRCH, .harmless = true},
    };
    (void)state;
    skip_without_tracing();
    size_t runs = 0;
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++)
        for (size_t nth = 1; take_failing(&some[i], nth); nth++)
            runs++;
    print_message("%zu calls failed\n", runs);
    assert_true(runs > 5);
}

static void a_limit_is_set_or_stays(void **state)
{
    (void)state;
    skip_without_tracing();
    bool failed = true;
    for (size_t nth = 1; failed; nth++) {
        answer reply;
        puppet *other = make_open(LIMIT), *victim = make_open(LIMIT);
        const command what = {.order = ORDER_SET_LIMIT, .bytes = LIMIT / 2, .traced = true};
        failed = order_failing(victim, &what, &any, nth, &reply);
        assert_true(failed || reply.status == STRATA_SUCCESS);
        uint64_t limit = check_answer(&any, &reply) ? LIMIT / 2 : LIMIT;
        assert_int_equal(ask(other, ORDER_LIMIT, 0).bytes, limit);
        assert_true(takes(other, limit));
        assert_false(takes(victim, 1));
        clear_all(NULL);
    }
}

/* It stays alive, and other processes get its lease. */
static void a_process_that_closes_a_file_keeps_nothing(void **state)
{
    (void)state;
    skip_without_tracing();
    bool failed = true;
    for (size_t nth = 1; failed; nth++) {
        answer reply;
        puppet *other = make_open(LIMIT), *victim = make_puppet();
        uint64_t before = holdings(victim);
        assert_int_equal(open_as(victim, &any).status, STRATA_SUCCESS);
        assert_true(takes(victim, LIMIT));
        failed = order_failing(victim, &(command){.order = ORDER_CLOSE, .traced = true}, &any, nth, &reply);
        assert_int_equal(holdings(victim), before);
        assert_true(takes(other, LIMIT));
        clear_all(NULL);
    }
}

static void a_look_shows_what_it_can_and_leaves_nothing_open(void **state)
{
    (void)state;
    skip_without_tracing();
    bool failed = true;
    for (size_t nth = 1; failed; nth++) {
        answer reply;
        puppet *other = make_open(LIMIT), *victim = make_puppet();
        uint64_t before = holdings(victim);
        failed = order_failing(victim, &(command){.order = ORDER_LOOK, .traced = true}, &any, nth, &reply);
        assert_true(failed || reply.bytes == 1);
        check_answer(&any, &reply);
        assert_int_equal(holdings(victim), before);
        assert_int_equal(ask(victim, ORDER_LOOK, 0).bytes, 1);
        assert_true(takes(other, LIMIT));
        clear_all(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_file_is_opened_or_left_as_it_was, clear_all),
        cmocka_unit_test_teardown(bytes_are_taken_or_not, clear_all),
        cmocka_unit_test_teardown(a_limit_is_set_or_stays, clear_all),
        cmocka_unit_test_teardown(a_process_that_closes_a_file_keeps_nothing, clear_all),
        cmocka_unit_test_teardown(a_look_shows_what_it_can_and_leaves_nothing_open, clear_all),
    };
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(directory) || setenv("STRATA_SHARED_DIR", directory, 1) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return failed;
}

#else

int main(void)
{
    printf("skipped: the system calls of this processor are not known here\n");
    return 77;
}

#endif
