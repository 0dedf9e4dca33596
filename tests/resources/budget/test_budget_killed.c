/* A shared limit, and a process that is killed, or another one that takes its lease, at any instruction of an update.
 * The processes are puppets (support/budget_puppets.h). */
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
#include <unistd.h>

#include "support/budget_puppets.h"

enum { KEEPS = 1000 };

/* The victim's work, and its state before. */
typedef struct update {
    const char *name;
    command what;
    uint64_t takes_before, gives_before; /* of the victim, after it has opened */
    uint64_t quota;                      /* of the victim */
    uint64_t others_surplus;             /* leased and not used by another process */
    uint64_t others_quota;               /* likewise, of a quota */
    uint64_t others_retired;             /* freed by another process, complete, and not given back */
    bool opened;                         /* the victim has the file open when it begins */
    bool finds_a_dead_one;
    size_t most, most_in_full; /* number of instructions at which it is killed, evenly spread */
} update;

/* Steps the process until it stops by itself, or by `most` instructions. Returns the number of steps. */
static size_t step(pid_t pid, size_t most)
{
    int status;
    size_t made = 0;
    for (; made < most; made++) {
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid)
            fail_msg("the process cannot be stepped: %s", strerror(errno));
        if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP)
            break;
        assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
    }
    return made;
}

/* While one process holds KEEPS bytes, the others can take all the rest. */
static void check_account(uint64_t limit)
{
    puppet *judge = make_open(LIMIT);
    if (!takes(judge, limit - KEEPS))
        fail_msg("bytes are lost: %llu in use", (unsigned long long)ask(judge, ORDER_IN_USE, 0).bytes);
    assert_false(takes(judge, 1));
    assert_int_equal(ask(judge, ORDER_IN_USE, 0).bytes, limit);
    end_puppet(judge, 0);
}

/* A victim, killed after `steps` or at its end. Returns the number of steps. */
static size_t kill_one(const update *of, size_t steps)
{
    int status;
    puppet_count = 0;
    alarm(200); /* ends a hang at a lock that stayed; single steps take long on a busy machine */
    puppet *other = make_open(LIMIT), *victim = make_puppet(), *dead = NULL;
    assert_true(takes(other, KEEPS + of->others_surplus));
    gives(other, of->others_surplus);
    assert_true(!of->others_quota || opens_quota(other, of->others_quota));
    if (of->others_retired) {
        assert_true(takes(other, of->others_retired));
        ask(other, ORDER_WRITE, ask(other, ORDER_RETIRE, of->others_retired).bytes);
    }
    if (of->finds_a_dead_one) {
        dead = make_open(LIMIT);
        assert_true(takes(dead, LIMIT / 2));
    }
    if (of->opened) {
        assert_int_equal(ask(victim, ORDER_OPEN, LIMIT).status, STRATA_SUCCESS);
        assert_true(!of->takes_before || takes(victim, of->takes_before));
        gives(victim, of->gives_before);
        assert_true(!of->quota || opens_quota(victim, of->quota));
    }
    if (dead)
        end_puppet(dead, SIGKILL);
    send_order(victim, &of->what);
    assert_int_equal(waitpid(victim->pid, &status, WUNTRACED), victim->pid);
    size_t made = step(victim->pid, steps);
    kill(victim->pid, SIGKILL);
    waitpid(victim->pid, &status, 0);
    victim->pid = 0;
    close(victim->to);
    close(victim->from);
    assert_true(takes(other, KEEPS)); /* the other process goes on */
    gives(other, KEEPS);
    check_account(of->what.order == ORDER_SET_LIMIT && ask(other, ORDER_LIMIT, 0).bytes != LIMIT ? of->what.bytes
                                                                                                 : LIMIT);
    end_puppet(other, 0);
    alarm(0);
    return made;
}

static void a_process_may_be_killed_at_every_instruction_of_every_update(void **state)
{
    static const update updates[] = {
        {.name = "take within the lease",
         .what = {ORDER_TAKE, 50, NULL, true},
         .opened = true,
         .takes_before = 100,
         .gives_before = 60,
         .most = 200,
         .most_in_full = 10000},
        {.name = "give",
         .what = {ORDER_GIVE, 50, NULL, true},
         .opened = true,
         .takes_before = 100,
         .most = 200,
         .most_in_full = 10000},
        {.name = "lease more",
         .what = {ORDER_TAKE, 5000, NULL, true},
         .opened = true,
         .takes_before = 100,
         .most = 40,
         .most_in_full = 10000},
        {.name = "take from another",
         .what = {ORDER_TAKE, LIMIT - 2 * KEEPS, NULL, true},
         .opened = true,
         .takes_before = 100,
         .others_surplus = LIMIT - 3 * KEEPS,
         .most = 60,
         .most_in_full = 10000},
        {.name = "charge a quota",
         .what = {ORDER_TAKE_BY_QUOTA, 50, NULL, true},
         .opened = true,
         .quota = 100,
         .most = 60,
         .most_in_full = 10000},
        {.name = "give back to a quota",
         .what = {ORDER_GIVE_BY_QUOTA, 50, NULL, true},
         .opened = true,
         .takes_before = 100,
         .quota = 100,
         .most = 60,
         .most_in_full = 10000},
        {.name = "open a quota",
         .what = {ORDER_OPEN_QUOTA, 50, NULL, true},
         .opened = true,
         .takes_before = 100,
         .gives_before = 60,
         .most = 60,
         .most_in_full = 10000},
        {.name = "take another's quota",
         .what = {ORDER_TAKE, LIMIT - 2 * KEEPS, NULL, true},
         .opened = true,
         .takes_before = 100,
         .others_quota = LIMIT - 3 * KEEPS,
         .most = 60,
         .most_in_full = 10000},
        {.name = "claim",
         .what = {ORDER_TAKE, LIMIT - 2 * KEEPS, NULL, true},
         .opened = true,
         .takes_before = 100,
         .others_retired = LIMIT - 3 * KEEPS,
         .most = 60,
         .most_in_full = 10000},
        {.name = "end a dead one",
         .what = {ORDER_TAKE, LIMIT - 2 * KEEPS, NULL, true},
         .opened = true,
         .takes_before = 100,
         .finds_a_dead_one = true,
         .most = 10,
         .most_in_full = 10000},
        {.name = "lower the limit",
         .what = {ORDER_SET_LIMIT, LIMIT / 2, NULL, true},
         .opened = true,
         .takes_before = 100,
         .gives_before = 50,
         .others_surplus = LIMIT / 2,
         .most = 40,
         .most_in_full = 10000},
        {.name = "lower the limit below the bytes in use",
         .what = {ORDER_SET_LIMIT, LIMIT / 2, NULL, true},
         .opened = true,
         .takes_before = LIMIT / 2 + 1,
         .others_surplus = 100,
         .most = 40,
         .most_in_full = 10000},
        {.name = "lower the limit below what quotas have",
         .what = {ORDER_SET_LIMIT, LIMIT / 2, NULL, true},
         .opened = true,
         .takes_before = LIMIT / 8,
         .quota = 100,
         .others_quota = LIMIT / 2,
         .most = 40,
         .most_in_full = 10000},
        {.name = "open", .what = {ORDER_OPEN, LIMIT, NULL, true}, .most = 4, .most_in_full = 1500},
        {.name = "close",
         .what = {ORDER_CLOSE, 0, NULL, true},
         .opened = true,
         .takes_before = 100,
         .quota = 100,
         .most = 12,
         .most_in_full = 10000},
    };
    (void)state;
    if (SANITIZED || test_under_valgrind() || !can_be_traced()) {
        print_message("skipped: a process cannot be stepped here\n");
        skip();
    }
    for (size_t i = 0; i < sizeof updates / sizeof updates[0]; i++) {
        clear_away(NULL);
        size_t runs = 0, all = kill_one(&updates[i], SIZE_MAX);
        size_t most = getenv("STRATA_TEST_FULL") ? updates[i].most_in_full : updates[i].most;
        size_t stride = all > most ? (all + most - 1) / most : 1;
        for (size_t steps = 0; steps < all; steps += stride, runs++)
            kill_one(&updates[i], steps);
        print_message("%s: %zu instructions, killed after %zu of them\n", updates[i].name, all, runs);
    }
}

/* Another process takes the rest of the lease, or of the quota, between any two instructions of a take. */
static void take_away_at_every_instruction(bool by_quota)
{
    enum { LEASE = 100, USED = 40, MORE = 50 };
    int status;
    if (SANITIZED || test_under_valgrind() || !can_be_traced())
        skip();
    size_t steps = 0;
    for (bool over = false; !over; steps++) {
        puppet_count = 0;
        puppet *victim = make_open(LIMIT), *other = make_open(LIMIT);
        assert_true(takes(victim, by_quota ? USED : LEASE));
        if (by_quota)
            assert_true(opens_quota(victim, LEASE - USED));
        else
            gives(victim, LEASE - USED);
        send_order(victim, &(command){by_quota ? ORDER_TAKE_BY_QUOTA : ORDER_TAKE, MORE, NULL, true});
        assert_int_equal(waitpid(victim->pid, &status, WUNTRACED), victim->pid);
        over = step(victim->pid, steps) < steps;
        bool all = takes(other, LIMIT - USED);
        assert_true(all || takes(other, LIMIT - USED - MORE)); /* the use was seen, or the take failed */
        if (!over) {
            assert_int_equal(ptrace(PTRACE_CONT, victim->pid, NULL, NULL), 0);
            assert_int_equal(waitpid(victim->pid, &status, 0), victim->pid);
        }
        assert_int_equal(ptrace(PTRACE_DETACH, victim->pid, NULL, NULL), 0);
        bool taken = receive(victim).done;
        assert_int_equal(taken, !all);
        assert_int_equal(ask(other, ORDER_IN_USE, 0).bytes, LIMIT - (all || taken ? 0 : MORE));
        end_puppet(victim, 0);
        end_puppet(other, 0);
    }
    print_message("%zu instructions\n", steps - 1);
}

static void a_lease_may_be_taken_away_at_every_instruction_of_a_take(void **state)
{
    (void)state;
    take_away_at_every_instruction(false);
}

static void a_quota_may_be_taken_away_at_every_instruction_of_a_take(void **state)
{
    (void)state;
    take_away_at_every_instruction(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_lease_may_be_taken_away_at_every_instruction_of_a_take, clear_away),
        cmocka_unit_test_teardown(a_quota_may_be_taken_away_at_every_instruction_of_a_take, clear_away),
        cmocka_unit_test_teardown(a_process_may_be_killed_at_every_instruction_of_every_update, clear_away),
    };
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(directory) || setenv("STRATA_SHARED_DIR", directory, 1) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return failed;
}
