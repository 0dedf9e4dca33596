/* A thread of the program forks at the worst moments: the child has no descriptor of a worker's, and no shared memory.
 */
#include "support/effort.h"
#include "support/worker.h"

#include "service/isolated/descriptors.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

int __real_socketpair(int domain, int type, int protocol, int pair[2]);
int __wrap_socketpair(int domain, int type, int protocol, int pair[2]);
int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __real_close(int fd);
int __wrap_close(int fd);

static const strata_service_options isolated = {.form = STRATA_SERVICE_ISOLATED, .worker_silence = TEST_LONG_SILENCE};

typedef enum moment {
    NEVER,
    PAIR_MADE,
    MEMORY_MADE,
    SOCKET_CLOSES,
    MEMORY_CLOSES,
    FORKS_ITSELF,
    FORK_BEGUN,
    MAKING_TAKES_LONG,
} moment;

static _Atomic moment awaited; /* taken by the first thread that is there */
static _Atomic bool reached, forked, fork_begun, made;
static int child_status;

/* The other thread forks now; a fork that has to wait for this thread is given some time. */
static void meet(moment now)
{
    moment expected = now;
    if (!atomic_compare_exchange_strong(&awaited, &expected, NEVER))
        return;
    atomic_store(&reached, true);
    for (int i = 0; i < 100 && !atomic_load(&forked); i++)
        test_sleep_ms(1);
}

static void wait_for(const _Atomic bool *flag, int milliseconds)
{
    for (int i = 0; i < milliseconds && !atomic_load(flag); i++)
        test_sleep_ms(1);
}

/* Registered before the library's, so it is called after that. */
static void before_fork(void)
{
    if (atomic_load(&awaited) != FORK_BEGUN)
        return;
    atomic_store(&fork_begun, true);
    wait_for(&made, 100);
}

int __wrap_socketpair(int domain, int type, int protocol, int pair[2])
{
    const int result = __real_socketpair(domain, type, protocol, pair);
    meet(PAIR_MADE);
    return result;
}

int __wrap_memfd_create(const char *name, unsigned flags)
{
    const int fd = __real_memfd_create(name, flags);
    meet(MEMORY_MADE);
    const moment now = atomic_load(&awaited);
    if (now == FORK_BEGUN || now == MAKING_TAKES_LONG) {
        atomic_store(&made, true);
        wait_for(&forked, 5000);
    }
    moment itself = FORKS_ITSELF;
    if (atomic_compare_exchange_strong(&awaited, &itself, NEVER)) {
        const pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, &child_status, 0);
    }
    return fd;
}

int __wrap_close(int fd)
{
    struct stat facts;
    char path[64], target[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (atomic_load(&awaited) == SOCKET_CLOSES && fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode))
        meet(SOCKET_CLOSES);
    else if (atomic_load(&awaited) == MEMORY_CLOSES && readlink(path, target, sizeof target - 1) > 0 &&
             strncmp(target, "/memfd:strata", 13) == 0)
        meet(MEMORY_CLOSES);
    return __real_close(fd);
}

static bool has_none(void)
{
    const test_descriptors seen = test_count_descriptors();
    return seen.sockets + seen.memories + seen.handles + test_count_mappings() == 0;
}

static const uint64_t long_patience = 30ull * TEST_SECOND; /* where none waits in vain, however busy the machine is */

static void set_patience(uint64_t nanoseconds)
{
    strata_fork_patience = nanoseconds;
}

/* Not only after what a fork waits at most. */
static bool forks_at_once(void)
{
    const uint64_t begun = test_clock();
    int status = -1;
    set_patience(long_patience);
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    return waitpid(child, &status, 0) == child && status == 0 && test_clock() - begun < long_patience / 2;
}

static void *fork_then(void *status)
{
    while (!atomic_load(&reached))
        sched_yield();
    const bool inherits = atomic_load(&awaited) == MAKING_TAKES_LONG;
    const pid_t child = fork();
    if (child == 0)
        _exit((inherits || has_none()) && forks_at_once() ? 0 : 1);
    atomic_store(&forked, true);
    if (waitpid(child, status, 0) != child)
        *(int *)status = -1;
    return NULL;
}

static pthread_t forker;

static void fork_at(moment when)
{
    atomic_store(&reached, false);
    atomic_store(&forked, false);
    child_status = -1;
    assert_int_equal(pthread_create(&forker, NULL, fork_then, &child_status), 0);
    atomic_store(&awaited, when);
}

static void check_child(void)
{
    for (int i = 0; i < 4000 && !atomic_load(&reached); i++)
        test_sleep_ms(1);
    const bool met = atomic_exchange(&reached, true);
    assert_int_equal(pthread_join(forker, NULL), 0);
    assert_true(met);
    assert_int_equal(child_status, 0);
}

static void a_child_that_is_forked_while_a_worker_is_started_has_no_socket(void **state)
{
    (void)state;
    fork_at(PAIR_MADE);
    strata_service_options options = isolated;
    strata_service *service = test_service_make(&options);
    check_child();
    fork_at(SOCKET_CLOSES); /* of this worker */
    const uint64_t generation = test_generation(service);
    kill(test_worker(service), SIGKILL);
    test_wait_replaced(service, generation);
    check_child();
    check_ok(strata_service_destroy(service));
}

static void a_child_that_is_forked_while_memory_is_shared_has_none_of_it(void **state)
{
    (void)state;
    strata_service_options options = isolated;
    strata_service *service = test_service_make(&options);
    strata_host_buffer *shared;
    strata_ref *ref = test_service_allocate(service, 4096);
    fork_at(MEMORY_MADE);
    check_ok(strata_service_buffer_create(service, 4096, &shared));
    check_child();
    check_ok(test_copy(service, ref, shared, true));
    fork_at(MEMORY_MADE);
    assert_int_not_equal(test_load_fill(service), 0);
    check_child();
    fork_at(MEMORY_CLOSES);
    strata_host_buffer_release(shared);
    check_child();
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(service));
}

/* As a signal handler in that thread would: the fork does not wait for ever. */
static void a_fork_in_the_middle_of_the_making_of_memory_goes_on(void **state)
{
    (void)state;
    strata_service_options options = isolated;
    strata_service *service = test_service_make(&options);
    strata_host_buffer *shared;
    const uint64_t begun = test_clock();
    child_status = -1;
    set_patience(TEST_SECOND / 5);
    atomic_store(&reached, true);
    atomic_store(&awaited, FORKS_ITSELF);
    check_ok(strata_service_buffer_create(service, 4096, &shared));
    assert_int_equal(child_status, 0);
    assert_true(test_clock() - begun < long_patience);
    set_patience(long_patience);
    strata_host_buffer_release(shared);
    check_ok(strata_service_destroy(service));
}

/* The last of them have high numbers. */
static void thousands_of_descriptors_are_closed_in_a_child(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    static int own[MANY];
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    if (limit.rlim_cur < 2 * MANY)
        limit.rlim_cur = limit.rlim_max < 2 * MANY ? limit.rlim_max : 2 * MANY;
    if (limit.rlim_cur < MANY + 200 || test_under_valgrind())
        skip();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const isolated_change change = isolated_descriptors_begin();
    own[0] = __real_memfd_create("strata", MFD_CLOEXEC);
    for (size_t i = 1; i < MANY; i++)
        own[i] = fcntl(own[0], F_DUPFD_CLOEXEC, 0);
    for (size_t i = 0; i < MANY; i++)
        isolated_descriptor_add(own[i]);
    isolated_descriptors_end(change);
    assert_true(own[MANY - 1] >= MANY);
    strata_service_options options = isolated;
    strata_service *service = test_service_make(&options);
    fork_at(NEVER);
    atomic_store(&reached, true);
    check_child();
    for (size_t i = 0; i < MANY; i++)
        isolated_descriptor_close(own[i]);
    check_ok(strata_service_destroy(service));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void a_child_has_no_handle_of_the_workers_process(void **state)
{
    (void)state;
    strata_service_options options = isolated;
    strata_service *service = test_service_make(&options);
    if (test_count_descriptors().handles == 0) { /* the kernel has none */
        check_ok(strata_service_destroy(service));
        skip();
    }
    fork_at(NEVER);
    atomic_store(&reached, true);
    check_child();
    check_ok(strata_service_destroy(service));
}

/* The other half: the thread that makes it waits for the fork. */
static void memory_that_is_asked_for_during_a_fork_is_made_after_it(void **state)
{
    (void)state;
    strata_service_options options = isolated;
    strata_service *service = test_service_make(&options);
    strata_host_buffer *shared;
    atomic_store(&fork_begun, false);
    atomic_store(&made, false);
    fork_at(FORK_BEGUN);
    atomic_store(&reached, true);
    wait_for(&fork_begun, 5000);
    check_ok(strata_service_buffer_create(service, 4096, &shared));
    atomic_store(&awaited, NEVER);
    check_child();
    assert_true(atomic_load(&fork_begun) && atomic_load(&made));
    strata_host_buffer_release(shared);
    check_ok(strata_service_destroy(service));
}

static void *make_buffer(void *service)
{
    static strata_host_buffer *shared;
    const bool right = strata_service_buffer_create(service, 4096, &shared) == STRATA_SUCCESS;
    if (right)
        strata_host_buffer_release(shared);
    return right ? service : NULL;
}

/* Which may last for ever in the parent: what the child knows of it does not hold its own forks up. */
static void a_child_whose_fork_waited_in_vain_forks_at_once(void **state)
{
    (void)state;
    strata_service_options options = isolated;
    strata_service *service = test_service_make(&options);
    pthread_t maker;
    void *right;
    set_patience(TEST_SECOND / 5);
    atomic_store(&made, false);
    fork_at(MAKING_TAKES_LONG);
    assert_int_equal(pthread_create(&maker, NULL, make_buffer, service), 0);
    wait_for(&made, 5000);
    atomic_store(&reached, true);
    check_child();
    assert_int_equal(pthread_join(maker, &right), 0);
    atomic_store(&awaited, NEVER);
    set_patience(long_patience);
    assert_ptr_equal(right, service);
    check_ok(strata_service_destroy(service));
}

/* As one that returns from a signal handler which forked: it ends a change that it does not count. */
static void a_child_that_goes_on_with_the_making_of_a_descriptor_forks_at_once(void **state)
{
    (void)state;
    int status = -1;
    set_patience(TEST_SECOND / 5);
    const isolated_change change = isolated_descriptors_begin();
    const pid_t child = fork();
    isolated_descriptors_end(change);
    if (child == 0)
        _exit(forks_at_once() ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(forks_at_once()); /* the change has ended here */
}

static void *be_ended_and_make_buffer(void *service)
{
    pthread_cancel(pthread_self());
    return make_buffer(service);
}

static void a_thread_is_not_ended_with_a_descriptor_that_forks_wait_for(void **state)
{
    (void)state;
    strata_service_options options = isolated;
    strata_service *service = test_service_make(&options);
    pthread_t maker;
    void *right;
    assert_int_equal(pthread_create(&maker, NULL, be_ended_and_make_buffer, service), 0);
    assert_int_equal(pthread_join(maker, &right), 0);
    assert_ptr_equal(right, service);
    assert_true(forks_at_once());
    check_ok(strata_service_destroy(service));
}

int main(void)
{
    pthread_atfork(before_fork, NULL, NULL);
    set_patience(long_patience);
    if (!test_has_worker(&isolated))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_that_is_forked_while_a_worker_is_started_has_no_socket),
        cmocka_unit_test(a_child_that_is_forked_while_memory_is_shared_has_none_of_it),
        cmocka_unit_test(a_fork_in_the_middle_of_the_making_of_memory_goes_on),
        cmocka_unit_test(thousands_of_descriptors_are_closed_in_a_child),
        cmocka_unit_test(a_child_has_no_handle_of_the_workers_process),
        cmocka_unit_test(memory_that_is_asked_for_during_a_fork_is_made_after_it),
        cmocka_unit_test(a_child_whose_fork_waited_in_vain_forks_at_once),
        cmocka_unit_test(a_child_that_goes_on_with_the_making_of_a_descriptor_forks_at_once),
        cmocka_unit_test(a_thread_is_not_ended_with_a_descriptor_that_forks_wait_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
