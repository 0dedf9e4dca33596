/* What happens between two steps of a log: a fork, another program's file, a rotation under a reader. The linker puts
 * the functions here in front of the system's own (--wrap), and at their calls the other party comes in. */
#include "log_support.h"
#include "support/effort.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>

/* ---- moments ---- */

/* Called at each of these calls, before it is made; `file` is what a file is called, without its folder, or "". */
static void (*_Atomic at_flock)(const char *file);
static void (*_Atomic at_close)(const char *file);
static void (*_Atomic at_rename)(const char *file);

int __real_flock(int file, int operation);
int __wrap_flock(int file, int operation);
int __real_close(int file);
int __wrap_close(int file);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void come_in(void (*then)(const char *file), int file)
{
    char link[64], path[PATH_ROOM + 64];
    if (!then)
        return;
    int error = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    then(last_part(path));
    errno = error;
}

int __wrap_flock(int file, int operation)
{
    come_in(at_flock, file);
    return __real_flock(file, operation);
}

int __wrap_close(int file)
{
    come_in(at_close, file);
    return __real_close(file);
}

int __wrap_rename(const char *from, const char *to)
{
    void (*then)(const char *) = at_rename;
    if (then)
        then(last_part(from));
    return __real_rename(from, to);
}

static int clear_moments(void **state)
{
    at_flock = at_close = at_rename = NULL;
    return remove_folder(state);
}

/* ---- forks ---- */

enum { CHILDREN = 64 };

static struct {
    pthread_t thread;
    sem_t asked, made;
    _Atomic bool ends;
    pid_t children[CHILDREN];
    _Atomic size_t count;
} forker;

/* A thread that forks when it is asked. The children live on, as those of a server might. */
static void *fork_when_asked(void *data)
{
    (void)data;
    for (;;) {
        while (sem_wait(&forker.asked) != 0)
            ;
        if (forker.ends)
            return NULL;
        pid_t child = fork();
        if (child == 0) {
            alarm(test_patience(30)); /* should nobody end it */
            for (;;)
                pause();
        }
        if (child > 0)
            forker.children[forker.count++] = child;
        sem_post(&forker.made);
    }
}

/* A fork at this moment. One that waits until the moment is over comes after it. */
static void fork_now(const char *file)
{
    struct timespec until;
    if (strncmp(file, "run.slog", 8) != 0 || forker.count == CHILDREN)
        return;
    while (sem_trywait(&forker.made) == 0)
        ; /* of forks that were late */
    sem_post(&forker.asked);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 20000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (sem_clockwait(&forker.made, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR)
        ;
}

static void start_forker(void)
{
    forker.count = 0;
    forker.ends = false;
    assert_int_equal(sem_init(&forker.asked, 0, 0), 0);
    assert_int_equal(sem_init(&forker.made, 0, 0), 0);
    assert_int_equal(pthread_create(&forker.thread, NULL, fork_when_asked, NULL), 0);
}

static size_t end_forker(void)
{
    forker.ends = true;
    sem_post(&forker.asked);
    assert_int_equal(pthread_join(forker.thread, NULL), 0);
    return forker.count;
}

static void end_children(void)
{
    for (size_t i = 0; i < forker.count; i++)
        kill(forker.children[i], SIGKILL);
    for (size_t i = 0; i < forker.count; i++)
        waitpid(forker.children[i], NULL, 0);
}

/* Nobody has it locked any more. */
static bool is_free(const char *file)
{
    int descriptor = open(in_folder(file).text, O_RDONLY | O_CLOEXEC);
    bool locked = descriptor >= 0 && __real_flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    if (descriptor >= 0)
        __real_close(descriptor);
    return locked;
}

/* Makes a log, rotates it and ends it, with forks at some calls. */
static void fork_at(void (*_Atomic *moment)(const char *file))
{
    start_forker();
    *moment = fork_now;
    strata_stack *stack = make_stack("run.slog", ", rotate=4096, existing=rotate, uses=off, interval=60s");
    for (int i = 0; i < 4; i++) {
        make_pairs(stack, 200);
        check_ok(strata_logging_flush(strata_stack_top(stack)));
    }
    check_ok(strata_stack_destroy(stack));
    *moment = NULL;
    assert_true(end_forker() >= 2);
    bool free = is_free("run.slog") && is_free("run.slog.1");
    end_children();
    assert_true(free);
}

static void a_child_that_is_forked_while_a_log_is_made_rotated_or_ended_keeps_no_file(void **state)
{
    (void)state;
    fork_at(&at_flock);
    fork_at(&at_rename);
    fork_at(&at_close);
}

int main(void)
{
    setenv("STRATA_DRIVER", "auto", 0);
    test_open_driver();
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, clear_moments)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_child_that_is_forked_while_a_log_is_made_rotated_or_ended_keeps_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
