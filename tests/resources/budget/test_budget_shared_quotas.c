/* Quotas of threads in a shared budget's file: what one does not use serves any process, whatever its thread does. The
 * processes are puppets (support/budget_puppets.h). */
#define _GNU_SOURCE
#include "support/budget_puppets.h"

#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

/* Asks in a process of its own: what the kernel has answered, children of this one would not ask again. */
static void skip_without_barriers(void)
{
    int status;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        _exit(strata_barriers_share() ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) { /* an old kernel, or a filter */
        print_message("skipped: the kernel has no barrier for all processes\n");
        skip();
    }
}

static void what_a_quota_does_not_use_serves_another_process(void **state)
{
    (void)state;
    skip_without_barriers();
    puppet *idle = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(opens_quota(idle, LIMIT / 2));
    assert_true(takes_by_quota(idle, 100));
    assert_int_equal(ask(other, ORDER_IN_USE, 0).bytes, 100);
    assert_true(takes(other, LIMIT - 100));
    assert_false(takes(other, 1));
    assert_false(takes_by_quota(idle, 1));
    gives(other, 50);
    assert_true(takes_by_quota(idle, 50));
    assert_int_equal(ask(other, ORDER_IN_USE, 0).bytes, LIMIT);
}

static void a_stopped_process_does_not_keep_its_quota(void **state)
{
    int status;
    (void)state;
    skip_without_barriers();
    puppet *stopped = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(opens_quota(stopped, LIMIT - 500));
    assert_true(takes_by_quota(stopped, 100));
    kill(stopped->pid, SIGSTOP);
    assert_int_equal(waitpid(stopped->pid, &status, WUNTRACED), stopped->pid);
    assert_true(takes(other, LIMIT - 100));
    kill(stopped->pid, SIGCONT);
    assert_false(takes_by_quota(stopped, 1));
    gives_by_quota(stopped, 100);
    assert_true(takes(other, 100));
}

static void a_killed_process_leaves_nothing_of_its_quota(void **state)
{
    (void)state;
    skip_without_barriers();
    puppet *killed = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(opens_quota(killed, LIMIT / 2));
    assert_true(takes_by_quota(killed, LIMIT / 4));
    end_puppet(killed, SIGKILL);
    assert_true(takes(other, LIMIT));
}

/* Its own requests come before its own quotas, too. */
static void a_process_is_not_refused_what_its_own_quota_does_not_use(void **state)
{
    (void)state;
    skip_without_barriers();
    puppet *self = make_open(LIMIT);
    assert_true(opens_quota(self, LIMIT / 2));
    assert_true(takes_by_quota(self, 100));
    assert_true(takes(self, LIMIT - 100));
    assert_false(takes(self, 1));
}

/* What the lease was charged is given back to the quota, and what the quota was charged to the lease. */
static void bytes_may_be_given_back_elsewhere(void **state)
{
    (void)state;
    skip_without_barriers();
    puppet *self = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(takes(self, LIMIT / 4));
    assert_true(opens_quota(self, LIMIT / 4));
    gives_by_quota(self, LIMIT / 4);
    assert_int_equal(ask(self, ORDER_IN_USE, 0).bytes, 0);
    assert_true(takes(other, LIMIT)); /* closes the quota, of which less than nothing is used */
    assert_false(takes(self, 1));
    assert_false(takes_by_quota(self, 1));
    gives(other, LIMIT);
    assert_true(opens_quota(self, LIMIT / 4));
    assert_true(takes_by_quota(self, LIMIT / 4));
    gives(self, LIMIT / 4);
    assert_int_equal(ask(self, ORDER_IN_USE, 0).bytes, 0);
    assert_true(takes(other, LIMIT));
    assert_false(takes(self, 1));
    assert_false(takes_by_quota(self, 1));
}

static void a_lowered_limit_takes_quotas_back(void **state)
{
    (void)state;
    skip_without_barriers();
    puppet *self = make_open(LIMIT), *other = make_open(LIMIT);
    assert_true(opens_quota(self, LIMIT / 2));
    assert_true(takes_by_quota(self, LIMIT / 4));
    check_ok(ask(other, ORDER_SET_LIMIT, LIMIT / 2).status);
    assert_true(takes(other, LIMIT / 4));
    assert_false(takes_by_quota(self, 1));
    check_ok(ask(other, ORDER_SET_LIMIT, LIMIT / 8).status); /* below the bytes in use */
    assert_false(takes_by_quota(self, 1));
    gives_by_quota(self, LIMIT / 4);
    gives(other, LIMIT / 4);
    assert_true(takes(other, LIMIT / 8));
    assert_false(takes_by_quota(self, 1));
}

static void a_quota_stays_within_the_peak_and_the_lease(void **state)
{
    budget_shared *shared;
    const shared_terms terms = {"shared-test", NULL, device, LIMIT};
    (void)state;
    skip_without_barriers();
    check_ok(shared_open(&terms, &shared));
    shared_quota *self = shared_quota_self(shared);
    assert_non_null(self);
    assert_false(shared_quota_open(shared, self, 100, HIGH_PEAK)); /* nothing is leased */
    assert_true(take_of_lease(shared, 1000));
    shared_count(shared, 1000);
    shared_give(shared, 500);
    shared_count(shared, -500);
    assert_false(shared_quota_open(shared, self, 100, 599));
    assert_true(shared_quota_open(shared, self, 100, 600));
    int64_t of_quotas;
    assert_false(shared_quota_bound(shared, &of_quotas));
    assert_true(of_quotas == 100);
    assert_false(shared_quota_take(self, 101));
    assert_true(shared_quota_take(self, 100));
    assert_false(shared_quota_take(self, 1));
    assert_false(shared_quota_open(shared, self, 1, 600));
    assert_true(shared_quota_open(shared, self, 1, 601)); /* it grows */
    assert_true(shared_quota_take(self, 1));
    assert_int_equal(shared_in_use(shared), 601);
    budget_shared *second; /* a second user, of which the first is not to be hidden */
    check_ok(shared_open(&terms, &second));
    assert_true(shared_quota_bound(shared, &of_quotas)); /* all are closed */
    assert_true(of_quotas == 101);
    assert_false(shared_quota_open(shared, self, 1, HIGH_PEAK));
    shared_close(second);
    assert_true(shared_quota_open(shared, self, 1, HIGH_PEAK));
    shared_close(shared);
}

/* Another file has the descriptor then. */
static void a_closed_descriptor_is_not_locked_for_quotas(void **state)
{
    budget_shared *shared;
    const shared_terms terms = {"shared-test", NULL, device, LIMIT};
    (void)state;
    skip_without_barriers();
    check_ok(shared_open(&terms, &shared));
    assert_true(take_of_lease(shared, 1000));
    shared_give(shared, 1000);
    assert_true(open_quota(shared, 100));
    const int kept = fcntl(shared->descriptor, F_DUPFD_CLOEXEC, 0), other = memfd_create("other", MFD_CLOEXEC);
    assert_true(kept >= 0 && other >= 0);
    assert_int_equal(dup2(other, shared->descriptor), shared->descriptor);
    assert_false(shared_quota_close_own(shared));
    assert_int_equal(open_quota(shared, 100), 0);
    assert_int_equal(dup2(kept, shared->descriptor), shared->descriptor);
    assert_true(shared_quota_close_own(shared));
    close(kept);
    close(other);
    shared_close(shared);
}

/* ---- without the barrier ---- */

static bool use_filter(struct sock_filter *program, unsigned short length)
{
    const struct sock_fprog filter = {length, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static bool refuse_membarrier(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return use_filter(program, sizeof program / sizeof program[0]);
}

/* A process that asks for barriers with others ends. */
static bool forbid_to_share_barriers(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return use_filter(program, sizeof program / sizeof program[0]);
}

enum { SKIPPED = 77 };

/* In a process of its own: how it ends. */
static int charge_at_first(void)
{
    const shared_terms terms = {"shared-test", NULL, device, LIMIT};
    budget_shared *shared;
    if (!forbid_to_share_barriers())
        return SKIPPED;
    if (shared_open(&terms, &shared) != STRATA_SUCCESS)
        return 1;
    if (shared_quota_take(shared_quota_self(shared), 100) || !take_of_lease(shared, 100))
        return 2;
    shared_close(shared);
    return 0;
}

static int without_membarrier(void)
{
    const shared_terms terms = {"shared-test", NULL, device, LIMIT};
    budget_shared *shared;
    if (!refuse_membarrier())
        return SKIPPED;
    if (shared_open(&terms, &shared) != STRATA_SUCCESS)
        return 1;
    if (open_quota(shared, 100))
        return 2; /* others could not see its light barriers */
    if (take_of_lease(shared, LIMIT - 100))
        return 3; /* another's quota was taken, which may be charged at this moment */
    const shared_quota *others = &shared->file->quotas[0].quotas[0];
    if (others->open == SHARED_CLOSED || others->open != others->granted)
        return 5; /* the attempt has closed it */
    if (!take_of_lease(shared, LIMIT / 4))
        return 4;
    shared_close(shared);
    return 0;
}

static void run_in_child(int (*work)(void))
{
    int status;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(test_timeout(60));
        _exit(work());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* To ask takes milliseconds in a process with threads, and most have few charges. */
static void a_process_asks_for_the_barrier_only_where_it_opens_a_quota(void **state)
{
    (void)state;
    run_in_child(charge_at_first);
}

static void a_process_without_the_barrier_has_no_quota_and_leaves_those_of_others(void **state)
{
    (void)state;
    skip_without_barriers();
    puppet *self = make_open(LIMIT);
    assert_true(opens_quota(self, LIMIT / 2));
    run_in_child(without_membarrier);
    assert_true(takes_by_quota(self, 100));
    assert_int_equal(ask(self, ORDER_IN_USE, 0).bytes, 100);
}

/* ---- at once ---- */

enum {
    PROCESSES = 4,
    THREADS = 2,
    WORKERS = PROCESSES * THREADS,
    SHARE = 1 << 16, /* of a thread, and of the judge what all of them leave: together the limit */
    WISH = 1 << 18,  /* as much of all threads is twice the limit */
};

static _Atomic uint64_t *taken; /* of all processes, in memory that they share */

typedef struct worker {
    budget_shared *shared;
    uint64_t seed, most;
    int operations, quotas, refused;
    bool above; /* the limit */
} worker;

static uint64_t next_number(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

static bool take_in_any_way(worker *self, uint64_t bytes)
{
    if (shared_quota_take(shared_quota_self(self->shared), bytes)) {
        self->quotas++;
        return true;
    }
    for (int more = 0; more < 64; more++)
        if (take_of_lease(self->shared, bytes))
            return true;
    return false;
}

/* To the quota or the lease, whatever was charged. */
static void give_in_any_way(worker *self, uint64_t bytes)
{
    atomic_fetch_sub(taken, bytes);
    if (next_number(&self->seed) % 4 == 0 || !shared_quota_give(shared_quota_self(self->shared), bytes))
        shared_give(self->shared, bytes);
}

static void *take_and_give(void *data)
{
    worker *self = data;
    uint64_t held = 0;
    for (int i = 0; i < self->operations; i++) {
        const uint64_t bytes = next_number(&self->seed) % self->most + 1;
        if (held + bytes > self->most) {
            give_in_any_way(self, held);
            held = 0;
        }
        if (i % 16 == 0)
            open_quota(self->shared, self->most / 2);
        if (i % 64 == 0 && next_number(&self->seed) % 4 == 0)
            shared_quota_close_own(self->shared);
        if (!take_in_any_way(self, bytes)) {
            self->refused++;
            continue;
        }
        self->above |= atomic_fetch_add(taken, bytes) + bytes > LIMIT;
        held += bytes;
    }
    give_in_any_way(self, held);
    return NULL;
}

/* How a process ends: 0, or what was wrong. */
static int work_in_process(size_t number, int operations, uint64_t most)
{
    const shared_terms terms = {"shared-test", NULL, device, LIMIT};
    worker workers[THREADS];
    pthread_t threads[THREADS];
    budget_shared *shared;
    int failed = 0;
    if (shared_open(&terms, &shared) != STRATA_SUCCESS)
        return 2;
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.shared = shared, .seed = number * THREADS + i, .operations = operations, .most = most};
        if (pthread_create(&threads[i], NULL, take_and_give, &workers[i]) != 0)
            return 3;
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (strata_barriers_share() && !workers[i].quotas)
            failed = 4;
        if (workers[i].above)
            failed = 5;
        if (workers[i].refused && most == SHARE)
            failed = 6;
    }
    return failed;
}

static void start_workers(pid_t children[PROCESSES], int operations, uint64_t most)
{
    taken = mmap(NULL, sizeof *taken, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(taken != MAP_FAILED);
    fflush(NULL);
    for (size_t i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            test_child_leave(work_in_process(i, operations, most));
    }
}

static void await_workers(const pid_t children[PROCESSES])
{
    for (size_t i = 0; i < PROCESSES; i++) {
        int status;
        waitpid(children[i], &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    munmap(taken, sizeof *taken);
}

/* As the layer does: between the room and the take another process may take the lease. */
static bool takes_at_last(const puppet *self, uint64_t bytes)
{
    for (int i = 0; i < 64; i++)
        if (takes(self, bytes))
            return true;
    return false;
}

static void nothing_that_fits_is_refused_while_threads_charge_quotas(void **state)
{
    enum { REST = (1 << 20) - WORKERS * SHARE };
    pid_t children[PROCESSES];
    const int operations = (int)test_effort(SANITIZED ? 5000 : 20000, 500);
    (void)state;
    puppet *judge = make_open(LIMIT);
    start_workers(children, operations, SHARE);
    for (int i = 0; i < operations / 10; i++) {
        assert_true(takes_at_last(judge, REST));
        gives(judge, REST);
    }
    await_workers(children);
    assert_int_equal(ask(judge, ORDER_IN_USE, 0).bytes, 0);
    assert_true(takes(judge, LIMIT));
}

static void no_more_than_the_limit_is_granted_while_threads_charge_quotas(void **state)
{
    pid_t children[PROCESSES];
    (void)state;
    puppet *judge = make_open(LIMIT);
    start_workers(children, (int)test_effort(SANITIZED ? 5000 : 20000, 500), WISH);
    await_workers(children);
    assert_int_equal(ask(judge, ORDER_IN_USE, 0).bytes, 0);
    assert_true(takes(judge, LIMIT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_a_quota_does_not_use_serves_another_process, clear_away),
        cmocka_unit_test_teardown(a_stopped_process_does_not_keep_its_quota, clear_away),
        cmocka_unit_test_teardown(a_killed_process_leaves_nothing_of_its_quota, clear_away),
        cmocka_unit_test_teardown(a_process_is_not_refused_what_its_own_quota_does_not_use, clear_away),
        cmocka_unit_test_teardown(bytes_may_be_given_back_elsewhere, clear_away),
        cmocka_unit_test_teardown(a_lowered_limit_takes_quotas_back, clear_away),
        cmocka_unit_test_teardown(a_process_asks_for_the_barrier_only_where_it_opens_a_quota, clear_away),
        cmocka_unit_test_teardown(a_process_without_the_barrier_has_no_quota_and_leaves_those_of_others, clear_away),
        cmocka_unit_test_teardown(nothing_that_fits_is_refused_while_threads_charge_quotas, clear_away),
        cmocka_unit_test_teardown(no_more_than_the_limit_is_granted_while_threads_charge_quotas, clear_away),
        cmocka_unit_test_teardown(a_quota_stays_within_the_peak_and_the_lease, clear_away),
        cmocka_unit_test_teardown(a_closed_descriptor_is_not_locked_for_quotas, clear_away),
    };
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(directory) || setenv("STRATA_SHARED_DIR", directory, 1) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return failed;
}
