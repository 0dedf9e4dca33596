/* What happens between two steps of a log: a fork, another program's file, a rotation under a reader. The linker puts
 * the functions here in front of the system's own (--wrap), and at their calls the other party comes in. */
#include "support/effort.h"
#include "support/log.h"

#include "tools/log/log_follow.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>

/* ---- moments ---- */

/* Called at each of these calls, before it is made; `file` is what a file is called, without its folder, or "". */
static void (*_Atomic at_flock)(const char *file);
static void (*_Atomic at_close)(const char *file);
static void (*_Atomic at_rename)(const char *file);
static void (*const nobody)(const char *file) = NULL;
static _Atomic bool no_flags;  /* the file system renames without conditions only */
static void (*at_pread)(void); /* behind the beginning of a file, once */
static const char
    *_Atomic unseen; /* any thread; a file that is not there when it is opened for reading the next time */

int __real_flock(int file, int operation);
int __wrap_flock(int file, int operation);
int __real_close(int file);
int __wrap_close(int file);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
ssize_t __real_pread(int file, void *bytes, size_t count, off_t at);
ssize_t __wrap_pread(int file, void *bytes, size_t count, off_t at);

int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);

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

int __wrap_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    const char *not_there = unseen;
    if (!not_there || (flags & O_ACCMODE) != O_RDONLY || strcmp(last_part(path), not_there) != 0)
        return __real_open(path, flags, mode);
    unseen = NULL;
    errno = ENOENT;
    return -1;
}

ssize_t __wrap_pread(int file, void *bytes, size_t count, off_t at)
{
    void (*then)(void) = at ? at_pread : NULL;
    if (then) {
        at_pread = NULL;
        then();
    }
    return __real_pread(file, bytes, count, at);
}

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    void (*then)(const char *) = at_rename;
    if (then)
        then(last_part(from));
    if (!no_flags)
        return __real_renameat2(from_folder, from, to_folder, to, flags);
    errno = EINVAL;
    return -1;
}

static int clear_moments(void **state)
{
    at_flock = nobody;
    at_close = nobody;
    at_rename = nobody;
    at_pread = NULL;
    unseen = NULL;
    no_flags = false;
    return remove_folder(state);
}

/* ---- forks ---- */

enum { CHILDREN = 64 };

static struct {
    pthread_t thread;
    sem_t asked, made;
    _Atomic bool ends;
    _Atomic size_t asks, served;
    int pipe[2]; /* through which a child says that it has begun */
    pid_t process;
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
        if (forker.ends && forker.served == forker.asks) /* one that got no core in time forks late */
            return NULL;
        forker.served++;
        pid_t child = fork();
        if (child == 0) {
            if (write(forker.pipe[1], "", 1) != 1)
                _exit(1);
            alarm(test_timeout(30)); /* in case no signal ends it */
            for (;;)
                pause();
        }
        if (child > 0)
            forker.children[forker.count++] = child;
        if (child > 0 && read(forker.pipe[0], &(char){0}, 1) != 1)
            return NULL;
        sem_post(&forker.made);
    }
}

/* A fork at this moment. One that waits until the moment is over comes after it. */
static void fork_now(const char *file)
{
    struct timespec until;
    if (strncmp(file, "run.slog", 8) != 0 || forker.count == CHILDREN || getpid() != forker.process)
        return;
    while (sem_trywait(&forker.made) == 0)
        ; /* of forks that were late */
    forker.asks++;
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
    forker.asks = forker.served = 0;
    forker.process = getpid();
    assert_int_equal(pipe(forker.pipe), 0);
    assert_int_equal(sem_init(&forker.asked, 0, 0), 0);
    assert_int_equal(sem_init(&forker.made, 0, 0), 0);
    assert_int_equal(pthread_create(&forker.thread, NULL, fork_when_asked, NULL), 0);
}

static size_t end_forker(void)
{
    forker.ends = true;
    sem_post(&forker.asked);
    assert_int_equal(pthread_join(forker.thread, NULL), 0);
    __real_close(forker.pipe[0]);
    __real_close(forker.pipe[1]);
    return forker.count;
}

static void end_children(void)
{
    for (size_t i = 0; i < forker.count; i++)
        kill(forker.children[i], SIGKILL);
    for (size_t i = 0; i < forker.count; i++)
        waitpid(forker.children[i], NULL, 0);
}

/* The file is not locked any more. */
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
    *moment = nobody;
    const size_t forks = end_forker();
    bool free = is_free("run.slog") && is_free("run.slog.1");
    end_children();
    assert_true(forks >= 2);
    assert_true(free);
}

static void a_child_that_is_forked_while_a_log_is_made_rotated_or_ended_keeps_no_file(void **state)
{
    (void)state;
    fork_at(&at_flock);
    fork_at(&at_rename);
    fork_at(&at_close);
}

/* ---- the name ---- */

static void take_the_name(const char *file)
{
    if (strcmp(file, "run.slog.new") != 0)
        return;
    int descriptor = open(in_folder("run.slog").text, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (descriptor >= 0)
        dprintf(descriptor, "another's");
    if (descriptor >= 0)
        __real_close(descriptor);
}

static void a_file_that_takes_the_name_while_it_is_free_is_not_renamed_over(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", ", rotate=4096, uses=off, interval=60s");
    int pairs = 0;
    at_rename = take_the_name;
    do { /* the writer, which wakes when it likes, decides which records find the file full */
        make_pairs(stack, 300);
        pairs += 300;
        check_ok(strata_logging_flush(strata_stack_top(stack)));
    } while (value(stack, "logging.write_error") == 0 && pairs < 3000);
    at_rename = nobody;
    assert_int_equal(value(stack, "logging.write_error"), EEXIST);
    assert_int_equal(value(stack, "logging.dropped_records"), 0);
    assert_int_equal(size_of("run.slog"), 9);
    assert_false(exists("run.slog.new") || exists("run.slog.2"));
    check_ok(strata_stack_destroy(stack));
    assert_int_equal(size_of("run.slog"), 9);
    log_contents log = read_log("run.slog.1"); /* where it went on */
    assert_in_range(log.count, 2 * pairs, 2 * pairs + 4);
    log_contents_free(&log);
}

static void a_file_system_that_renames_without_conditions_has_logs_that_rotate(void **state)
{
    (void)state;
    no_flags = true;
    strata_stack *stack = make_stack("run.slog", ", rotate=4096, uses=off, interval=60s");
    for (int i = 0; i < 2; i++) {
        make_pairs(stack, 300);
        check_ok(strata_logging_flush(strata_stack_top(stack)));
    }
    assert_int_equal(value(stack, "logging.write_error"), 0);
    assert_true(exists("run.slog") && exists("run.slog.1") && !exists("run.slog.new"));
    check_ok(strata_stack_destroy(stack));
}

/* ---- following ---- */

/* What a follower was given and told. */
static struct {
    size_t calls, records, said;
    uint64_t last;  /* number of the newest record */
    uint64_t first; /* of the first one after a gap, or after a file was begun anew */
    uint64_t end;   /* the one with this number ends the following */
    char text[512];
    void (*after)(void); /* after the first records */
} followed;

static bool take(const log_contents *contents, void *data)
{
    (void)data;
    for (size_t i = 0; i < contents->count; i++) {
        if (contents->records[i].number != followed.last + 1)
            followed.first = contents->records[i].number;
        followed.last = contents->records[i].number;
    }
    followed.records += contents->count;
    if (contents->count && followed.calls++ == 0 && followed.after)
        followed.after();
    if (contents->count && followed.last == followed.end)
        raise(SIGINT);
    return true;
}

static void hear(const char *path, const char *text, void *data)
{
    (void)path;
    (void)data;
    followed.said++;
    snprintf(followed.text, sizeof followed.text, "%s", text);
}

/* Follows "run.slog" up to the record `end`, and calls `after` once the first ones are there. */
static uint64_t follow_to(uint64_t end, void (*after)(void))
{
    uint64_t damages;
    const log_follow_sink sink = {.records = take, .say = hear};
    memset(&followed, 0, sizeof followed);
    followed.end = end;
    followed.after = after;
    assert_int_equal(log_follow(in_folder("run.slog").text, &sink, &damages), LOG_FOLLOW_INTERRUPTED);
    assert_int_equal(followed.last, end);
    return damages;
}

static strata_stack *writing;

static void write_pairs(int pairs)
{
    make_pairs(writing, pairs);
    check_ok(strata_logging_flush(strata_stack_top(writing)));
}

static void rotate_ten_times(void)
{
    for (int i = 0; i < 10; i++)
        write_pairs(200);
}

static void what_rotation_removes_before_it_is_read_is_told_and_nothing_else_is_missing(void **state)
{
    (void)state;
    writing = make_stack("run.slog", ", rotate=4096, keep=2, uses=off, interval=60s");
    write_pairs(200);
    assert_int_equal(follow_to(4400, rotate_ten_times), 1);
    assert_int_equal(followed.said, 1);
    assert_non_null(strstr(followed.text, "rotation was faster"));
    log_contents oldest = read_log("run.slog.2");
    assert_true(oldest.count > 0);
    assert_int_equal(followed.first, oldest.records[0].number);
    log_contents_free(&oldest);
    check_ok(strata_stack_destroy(writing));
}

/* However early the writer collects, the file that is being read is not the last one then. */
static void rotate(void)
{
    write_pairs(300);
    write_pairs(300);
    assert_true(exists("run.slog.1"));
    unseen = "run.slog"; /* moved at this moment */
}

static void a_file_that_moves_while_it_is_opened_is_looked_for_again(void **state)
{
    (void)state;
    writing = make_stack("run.slog", ", rotate=4096, uses=off, interval=60s");
    write_pairs(10);
    assert_int_equal(follow_to(1220, rotate), 0);
    assert_null(unseen);
    assert_true(followed.records == 1220 && followed.said == 0);
    check_ok(strata_stack_destroy(writing));
}

static void remove_and_begin_anew(void)
{
    check_ok(strata_stack_destroy(writing));
    assert_int_equal(unlink(in_folder("run.slog").text), 0);
    writing = make_stack("run.slog", ", uses=off, interval=60s");
    write_pairs(150);
}

/* Rotation did not remove it, and what stands at NAME.1 is older. */
static void after_a_file_that_was_removed_by_hand_the_new_one_is_followed(void **state)
{
    (void)state;
    writing = make_stack("run.slog", ", uses=off, interval=60s");
    write_pairs(200);
    check_ok(strata_stack_destroy(writing));
    writing = make_stack("run.slog", ", uses=off, existing=rotate, interval=60s");
    write_pairs(100);
    assert_true(exists("run.slog.1"));
    assert_int_equal(follow_to(300, remove_and_begin_anew), 0);
    assert_in_range(followed.records, 500, 504); /* the end of a stack may add some */
    assert_int_equal(followed.said, 0);
    check_ok(strata_stack_destroy(writing));
}

static void begin_anew(void)
{
    writing = make_stack("run.slog", ", uses=off, existing=replace, interval=60s");
    write_pairs(200);
}

static void begin_anew_within_the_next_look(void)
{
    check_ok(strata_stack_destroy(writing));
    at_pread = begin_anew;
}

static void a_log_that_is_begun_anew_while_it_is_read_is_no_damage(void **state)
{
    (void)state;
    writing = make_stack("run.slog", ", uses=off, interval=60s");
    write_pairs(50);
    assert_int_equal(follow_to(400, begin_anew_within_the_next_look), 0);
    assert_true(followed.records == 500 && followed.said == 0);
    check_ok(strata_stack_destroy(writing));
}

/* ---- damage ---- */

enum { HOLE = 5 << 20 }; /* more than a follower looks at at once */

/* "run.slog" gets 100 records, `zeros` bytes of nothing, and 100 records more if `goes_on`; *at is where the first of
 * those bytes is. */
static void make_damaged(off_t zeros, bool goes_on, off_t *at)
{
    static unsigned char bytes[16384];
    writing = make_stack("run.slog", ", uses=off, interval=60s");
    write_pairs(50);
    *at = size_of("run.slog");
    write_pairs(50);
    off_t size = size_of("run.slog");
    check_ok(strata_stack_destroy(writing));
    assert_true(size <= (off_t)sizeof bytes);
    int file = open(in_folder("run.slog").text, O_RDWR);
    assert_true(file >= 0 && __real_pread(file, bytes, (size_t)size, 0) == size);
    assert_int_equal(ftruncate(file, *at), 0);
    assert_int_equal(ftruncate(file, *at + zeros), 0);
    if (goes_on)
        assert_int_equal(pwrite(file, bytes + *at, (size_t)(size - *at), *at + zeros), size - *at);
    __real_close(file);
}

static void check_told(off_t at, off_t bytes, bool ends)
{
    char words[160];
    snprintf(words, sizeof words, "byte %lld: no batch begins here; %lld bytes %s", (long long)at, (long long)bytes,
             ends ? "up to the end are left out" : "are left out, up to byte");
    assert_int_equal(followed.said, 1);
    if (strncmp(followed.text, words, strlen(words)) != 0)
        fail_msg("it says: %s", followed.text);
}

static void damage_of_any_length_is_passed_over_and_told_once(void **state)
{
    (void)state;
    off_t at;
    make_damaged(HOLE, true, &at);
    assert_int_equal(follow_to(200, NULL), 1);
    check_told(at, HOLE, false);
    assert_int_equal(followed.records, 200);
}

static void damage_at_the_end_is_told_when_the_following_ends(void **state)
{
    (void)state;
    static const off_t sizes[] = {1000, HOLE};
    for (size_t i = 0; i < 2; i++) {
        off_t at;
        make_damaged(sizes[i], false, &at);
        assert_int_equal(follow_to(100, NULL), 1);
        check_told(at, sizes[i], true);
        assert_int_equal(unlink(in_folder("run.slog").text), 0);
    }
}

static void rotate_away(void)
{
    writing = make_stack("run.slog", ", uses=off, existing=rotate, interval=60s");
    write_pairs(200);
}

static void damage_at_the_end_of_a_rotated_file_is_told_before_the_next_one_is_read(void **state)
{
    (void)state;
    off_t at;
    make_damaged(HOLE, false, &at);
    assert_int_equal(follow_to(400, rotate_away), 1);
    check_told(at, HOLE, true);
    assert_int_equal(followed.records, 500);
    check_ok(strata_stack_destroy(writing));
}

int main(void)
{
    setenv("STRATA_DRIVER", "auto", 0);
    test_open_driver();
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, clear_moments)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_child_that_is_forked_while_a_log_is_made_rotated_or_ended_keeps_no_file),
        IN_FOLDER(a_file_that_takes_the_name_while_it_is_free_is_not_renamed_over),
        IN_FOLDER(a_file_system_that_renames_without_conditions_has_logs_that_rotate),
        IN_FOLDER(what_rotation_removes_before_it_is_read_is_told_and_nothing_else_is_missing),
        IN_FOLDER(a_file_that_moves_while_it_is_opened_is_looked_for_again),
        IN_FOLDER(after_a_file_that_was_removed_by_hand_the_new_one_is_followed),
        IN_FOLDER(a_log_that_is_begun_anew_while_it_is_read_is_no_damage),
        IN_FOLDER(damage_of_any_length_is_passed_over_and_told_once),
        IN_FOLDER(damage_at_the_end_is_told_when_the_following_ends),
        IN_FOLDER(damage_at_the_end_of_a_rotated_file_is_told_before_the_next_one_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
