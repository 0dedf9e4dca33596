/* The barrier whose cost lies with one side: of two threads that store and then look, at least one sees the other. */
#include "core/base/asymmetric.h"
#include "core/base/lock.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child.h"
#include "support/driver.h"
#include "support/effort.h"

typedef struct meeting {
    _Alignas(64) _Atomic unsigned often; /* the round that each side has stored */
    _Alignas(64) _Atomic unsigned rarely;
    _Alignas(64) _Atomic unsigned begun; /* the round that may begin */
    _Alignas(64) _Atomic unsigned done;
    unsigned often_saw; /* written before `done` */
    unsigned rounds;
} meeting;

static void wait_for(const _Atomic unsigned *what, unsigned round)
{
    for (unsigned spins = 0; atomic_load_explicit(what, memory_order_acquire) != round;)
        strata_backoff(&spins);
}

static void *go_often(void *data)
{
    meeting *self = data;
    for (unsigned round = 1; round <= self->rounds; round++) {
        (void)atomic_load_explicit(&self->rarely, memory_order_relaxed); /* at hand when it is looked at */
        wait_for(&self->begun, round);
        atomic_store_explicit(&self->often, round, memory_order_relaxed);
        strata_light_barrier();
        self->often_saw = atomic_load_explicit(&self->rarely, memory_order_relaxed);
        atomic_store_explicit(&self->done, round, memory_order_release);
    }
    return NULL;
}

/* Returns in how many rounds neither saw the other. */
static unsigned go_rarely(meeting *self, void (*barrier)(void))
{
    unsigned missed = 0;
    for (unsigned round = 1; round <= self->rounds; round++) {
        atomic_store_explicit(&self->begun, round, memory_order_release);
        for (volatile unsigned i = 0; i < round % 251; i++) /* they meet at another moment each time */
            continue;
        atomic_store_explicit(&self->rarely, round, memory_order_relaxed);
        barrier();
        unsigned saw = atomic_load_explicit(&self->often, memory_order_relaxed);
        wait_for(&self->done, round);
        missed += saw != round && self->often_saw != round;
    }
    return missed;
}

static unsigned meet(unsigned rounds)
{
    static meeting at;
    pthread_t thread;
    at = (meeting){.rounds = rounds};
    assert_int_equal(pthread_create(&thread, NULL, go_often, &at), 0);
    const unsigned missed = go_rarely(&at, strata_heavy_barrier);
    pthread_join(thread, NULL);
    return missed;
}

static void one_of_two_threads_sees_the_other(void **state)
{
    (void)state;
    strata_barriers_open();
    print_message("the frequent side has a %s barrier\n", strata_barriers_are_full ? "full" : "light");
    assert_int_equal(meet((unsigned)test_effort(50000, 500)), 0);
}

static void without_the_kernels_help_both_sides_have_full_barriers(void **state)
{
    (void)state;
    bool were_full = atomic_exchange(&strata_barriers_are_full, true);
    unsigned missed = meet((unsigned)test_effort(50000, 500));
    strata_barriers_are_full = were_full;
    assert_int_equal(missed, 0);
}

/* ---- among processes ---- */

static void barrier_for_all(void)
{
    if (!strata_heavy_barrier_for_all())
        fail_msg("the kernel refuses the barrier");
}

/* The frequent side is a process that asks for itself, as the others do. */
static void one_of_two_processes_sees_the_other(void **state)
{
    enum { SKIPPED = 77 };
    int status;
    (void)state;
    strata_barriers_open();
    meeting *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    at->rounds = (unsigned)test_effort(50000, 500);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(test_timeout(60));
        if (!strata_barriers_share())
            _exit(SKIPPED);
        go_often(at);
        _exit(0);
    }
    if (!strata_barriers_share()) { /* an old kernel, or a filter */
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED);
        skip();
    }
    const unsigned missed = go_rarely(at, barrier_for_all);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(missed, 0);
    munmap(at, sizeof *at);
}

/* ---- a filter that comes later ---- */

/* From here on the kernel refuses membarrier(2) to the process. */
static bool refuse_membarrier(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {sizeof program / sizeof program[0], program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 &&
           syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) < 0;
}

static void is_filtered(void)
{
    enum { SKIPPED = 77 };
    strata_barriers_open();
    if (strata_barriers_are_full || !refuse_membarrier())
        exit(SKIPPED);
    child_check(meet((unsigned)test_effort(50000, 500)) == 0); /* noticed at the first of them */
    child_check(strata_barriers_are_full);
}

static void a_kernel_that_refuses_later_on_is_noticed_at_the_call(void **state)
{
    (void)state;
    test_child_run("is_filtered", NULL);
}

static void *be_ended_at_a_barrier(void *data)
{
    pthread_cancel(pthread_self());
    strata_heavy_barrier();
    return data;
}

static void is_ended_when_filtered(void)
{
    enum { SKIPPED = 77 };
    pthread_t thread;
    int mark;
    void *returned;
    strata_barriers_open();
    if (strata_barriers_are_full || !refuse_membarrier())
        exit(SKIPPED);
    child_check(pthread_create(&thread, NULL, be_ended_at_a_barrier, &mark) == 0);
    child_check(pthread_join(thread, &returned) == 0);
    child_check(returned == &mark);
}

/* It may hold a lock. */
static void a_thread_is_not_ended_at_the_call_that_notices_it(void **state)
{
    (void)state;
    test_child_run("is_ended_when_filtered", NULL);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(is_filtered), TEST_SCENARIO(is_ended_when_filtered)};
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_two_threads_sees_the_other),
        cmocka_unit_test(without_the_kernels_help_both_sides_have_full_barriers),
        cmocka_unit_test(one_of_two_processes_sees_the_other),
        cmocka_unit_test(a_kernel_that_refuses_later_on_is_noticed_at_the_call),
        cmocka_unit_test(a_thread_is_not_ended_at_the_call_that_notices_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
