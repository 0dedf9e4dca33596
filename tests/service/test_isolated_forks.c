/* A thread of the program forks at the worst moments: the child has no descriptor of a worker's, and no shared memory.
 */
#include "support/worker.h"

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

int __real_socketpair(int domain, int type, int protocol, int pair[2]);
int __wrap_socketpair(int domain, int type, int protocol, int pair[2]);
int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __real_close(int fd);
int __wrap_close(int fd);

static const strata_service_options isolated = {.form = STRATA_SERVICE_ISOLATED};

typedef enum moment { NEVER, PAIR_MADE, MEMORY_MADE, SOCKET_CLOSES, MEMORY_CLOSES, FORKS_ITSELF } moment;

static _Atomic moment awaited; /* taken by the first thread that is there */
static _Atomic bool reached, forked;
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

static void *fork_then(void *status)
{
    while (!atomic_load(&reached))
        sched_yield();
    const pid_t child = fork();
    if (child == 0) {
        const test_descriptors seen = test_count_descriptors();
        _exit((int)(seen.sockets + 10 * seen.memories + 100 * test_count_mappings()));
    }
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
    atomic_store(&reached, true);
    atomic_store(&awaited, FORKS_ITSELF);
    check_ok(strata_service_buffer_create(service, 4096, &shared));
    assert_int_equal(child_status, 0);
    assert_true(test_clock() - begun < 15ull * TEST_SECOND);
    strata_host_buffer_release(shared);
    check_ok(strata_service_destroy(service));
}

int main(void)
{
    if (!test_has_worker(&isolated))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_that_is_forked_while_a_worker_is_started_has_no_socket),
        cmocka_unit_test(a_child_that_is_forked_while_memory_is_shared_has_none_of_it),
        cmocka_unit_test(a_fork_in_the_middle_of_the_making_of_memory_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
