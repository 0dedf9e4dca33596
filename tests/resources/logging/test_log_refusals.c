/* Logs where the system refuses: writes that are cut short or interrupted, files that cannot be emptied, renamed or
 * locked, threads and memory that cannot be had. What was there stays whole, what is
 * lost is counted, and the log goes on as soon as it can. The linker puts the functions here in front of the system's
 * own (--wrap). */
#include "support/effort.h"
#include "support/log.h"

#include "core/base/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/file.h>
#include <time.h>

/* ---- refusing ---- */

typedef enum call {
    PWRITE,
    WRITE,
    FTRUNCATE,
    RENAME,
    FSTAT,
    POLL,
    FLOCK,
    THREAD,
    SEMAPHORE,
    CONDITION,
    CONDITION_KIND,
    MEMORY,
    CALLS,
} call;

/* The n-th call from now on answers `error`; `cut`: of a write, half of the bytes are written before. */
static struct {
    _Atomic int left; /* calls until then; 0: it is over; -1: every call from now on */
    int error;
    bool cut;
    bool again; /* and the one after it answers `then` */
    int then;
} refusals[CALLS];

static void refuse(call which, int nth, int error)
{
    refusals[which].error = error;
    refusals[which].cut = refusals[which].again = false;
    refusals[which].left = nth;
}

/* Half of the bytes are written; with `again`, what comes after that is refused. */
static void cut_short(bool again, int then)
{
    refusals[PWRITE].cut = true;
    refusals[PWRITE].again = again;
    refusals[PWRITE].then = then;
    refusals[PWRITE].left = 1;
}

static bool refused(call which)
{
    int left = refusals[which].left;
    if (!left || (left > 0 && refusals[which].left-- != 1))
        return false;
    errno = refusals[which].error;
    return true;
}

static bool was_refused(call which)
{
    return refusals[which].left == 0;
}

static const char *_Atomic unmovable; /* what files are called that cannot be renamed */

static int stop_refusing(void **state)
{
    for (int i = 0; i < CALLS; i++)
        refusals[i].left = 0;
    unmovable = NULL;
    return remove_folder(state);
}

ssize_t __real_pwrite(int file, const void *bytes, size_t count, off_t at);
ssize_t __wrap_pwrite(int file, const void *bytes, size_t count, off_t at);
ssize_t __real_write(int file, const void *bytes, size_t count);
ssize_t __wrap_write(int file, const void *bytes, size_t count);
int __real_ftruncate(int file, off_t length);
int __wrap_ftruncate(int file, off_t length);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __real_fstat(int file, struct stat *is);
int __wrap_fstat(int file, struct stat *is);
int __real_poll(struct pollfd *files, nfds_t count, int wait);
int __wrap_poll(struct pollfd *files, nfds_t count, int wait);
int __real_flock(int file, int operation);
int __wrap_flock(int file, int operation);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *kind, void *(*run)(void *), void *data);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *kind, void *(*run)(void *), void *data);
int __real_sem_init(sem_t *semaphore, int shared, unsigned value);
int __wrap_sem_init(sem_t *semaphore, int shared, unsigned value);
int __real_sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until);
int __wrap_sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until);
int __real_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *kind);
int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *kind);
int __real_pthread_condattr_init(pthread_condattr_t *kind);
int __wrap_pthread_condattr_init(pthread_condattr_t *kind);
void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);

ssize_t __wrap_pwrite(int file, const void *bytes, size_t count, off_t at)
{
    if (!refused(PWRITE))
        return __real_pwrite(file, bytes, count, at);
    if (!refusals[PWRITE].cut)
        return refusals[PWRITE].error ? -1 : 0;
    if (refusals[PWRITE].again)
        refuse(PWRITE, 1, refusals[PWRITE].then);
    return __real_pwrite(file, bytes, count / 2, at);
}

ssize_t __wrap_write(int file, const void *bytes, size_t count)
{
    return refused(WRITE) ? -1 : __real_write(file, bytes, count);
}

int __wrap_ftruncate(int file, off_t length)
{
    return refused(FTRUNCATE) ? -1 : __real_ftruncate(file, length);
}

int __wrap_rename(const char *from, const char *to)
{
    const char *called = strrchr(from, '/');
    if (!unmovable || strcmp(called ? called + 1 : from, unmovable) != 0)
        return refused(RENAME) ? -1 : __real_rename(from, to);
    errno = EACCES;
    return -1;
}

int __wrap_fstat(int file, struct stat *is)
{
    return refused(FSTAT) ? -1 : __real_fstat(file, is);
}

int __wrap_poll(struct pollfd *files, nfds_t count, int wait)
{
    return refused(POLL) ? -1 : __real_poll(files, count, wait);
}

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    const char *called = strrchr(from, '/');
    if (!unmovable || strcmp(called ? called + 1 : from, unmovable) != 0)
        return refused(RENAME) ? -1 : __real_renameat2(from_folder, from, to_folder, to, flags);
    errno = EACCES;
    return -1;
}

static const char *moved_from, *moved_to; /* at the next lock a file is moved, and another one made */

int __wrap_flock(int file, int operation)
{
    if (moved_from) {
        __real_rename(moved_from, moved_to);
        close(open(moved_from, O_WRONLY | O_CREAT, 0600));
        moved_from = NULL;
    }
    return refused(FLOCK) ? -1 : __real_flock(file, operation);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *kind, void *(*run)(void *), void *data)
{
    return refused(THREAD) ? errno : __real_pthread_create(thread, kind, run, data);
}

int __wrap_sem_init(sem_t *semaphore, int shared, unsigned value)
{
    return refused(SEMAPHORE) ? -1 : __real_sem_init(semaphore, shared, value);
}

static _Atomic unsigned sleeps; /* of writers */

int __wrap_sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until)
{
    atomic_fetch_add(&sleeps, 1);
    return __real_sem_clockwait(semaphore, clock, until);
}

int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *kind)
{
    return refused(CONDITION) ? errno : __real_pthread_cond_init(condition, kind);
}

int __wrap_pthread_condattr_init(pthread_condattr_t *kind)
{
    return refused(CONDITION_KIND) ? errno : __real_pthread_condattr_init(kind);
}

static pthread_t spared; /* with MEMORY refused for good: the thread that has some all the same */

void *__wrap_strata_host_zalloc(size_t bytes)
{
    if (refusals[MEMORY].left < 0 && pthread_equal(pthread_self(), spared))
        return __real_strata_host_zalloc(bytes);
    return refused(MEMORY) ? NULL : __real_strata_host_zalloc(bytes);
}

/* ---- what files have ---- */

static void write_file(const char *file, const char *text)
{
    FILE *to = fopen(in_folder(file).text, "w");
    assert_non_null(to);
    fputs(text, to);
    assert_int_equal(fclose(to), 0);
}

static void check_file(const char *file, const char *text)
{
    char found[64] = "";
    FILE *from = fopen(in_folder(file).text, "r");
    if (!from)
        fail_msg("%s is not there", file);
    found[fread(found, 1, sizeof found - 1, from)] = '\0';
    fclose(from);
    assert_string_equal(found, text);
}

static strata_status flush(strata_stack *stack)
{
    return strata_logging_flush(strata_stack_top(stack));
}

/* Its writer has looked at a first pair, and looks no more until it is told to: the thread has its ring. */
static strata_stack *sleeping_stack(const char *file, const char *more)
{
    char text[128];
    snprintf(text, sizeof text, ", interval=60s%s", more);
    strata_stack *stack = make_stack(file, text);
    make_pairs(stack, 1);
    check_ok(flush(stack));
    return stack;
}

/* Records 1 to `count`, but for those from `first_lost` on, `lost` of them; the end of the stack may add some. */
static void check_log(const char *file, size_t count, uint64_t first_lost, uint64_t lost)
{
    log_contents log = read_log(file);
    assert_int_equal(log.torn, 0);
    assert_in_range(log.count, count - lost, count - lost + 4);
    for (size_t i = 0; i < count - lost; i++)
        assert_int_equal(log.records[i].number, i + 1 < first_lost ? i + 1 : i + 1 + lost);
    log_contents_free(&log);
}

/* ---- plain files ---- */

static void a_write_that_is_interrupted_or_cut_short_is_gone_on_with(void **state)
{
    (void)state;
    strata_stack *stack = sleeping_stack("run.slog", "");
    make_pairs(stack, 50);
    refuse(PWRITE, 1, EINTR);
    check_ok(flush(stack));
    assert_true(was_refused(PWRITE));
    make_pairs(stack, 50);
    cut_short(false, 0);
    check_ok(flush(stack));
    assert_true(was_refused(PWRITE));
    assert_int_equal(value(stack, "logging.write_error"), 0);
    assert_int_equal(value(stack, "logging.dropped_records"), 0);
    check_ok(strata_stack_destroy(stack));
    check_log("run.slog", 202, 1000, 0);
}

/* The disk is full in the middle of a piece: what was written of it goes, or the next piece goes over it. */
static void half_a_piece_never_stays_in_a_file(void **state)
{
    (void)state;
    static const int errors[] = {ENOSPC, 0}; /* or nothing at all is written */
    for (int truncates = 0; truncates < 2; truncates++) {
        for (size_t i = 0; i < 2; i++) {
            strata_stack *stack = make_stack("run.slog", ", interval=60s, existing=replace");
            make_pairs(stack, 50);
            check_ok(flush(stack));
            off_t size = size_of("run.slog");
            make_pairs(stack, 50);
            cut_short(true, errors[i]);
            if (!truncates)
                refuse(FTRUNCATE, 1, EIO);
            check_status(flush(stack), STRATA_ERROR_IO);
            check_last_error(STRATA_ERROR_IO, "run.slog: No space left on device");
            assert_int_equal(value(stack, "logging.write_error"), ENOSPC);
            assert_int_equal(value(stack, "logging.dropped_records"), 100);
            if (truncates)
                assert_int_equal(size_of("run.slog"), size);
            else
                assert_true(size_of("run.slog") > size && was_refused(FTRUNCATE));
            make_pairs(stack, 50);
            check_ok(flush(stack));
            check_ok(strata_stack_destroy(stack));
            check_log("run.slog", 300, 101, 100);
        }
    }
}

static void a_file_that_cannot_be_emptied_keeps_what_it_has_until_it_can(void **state)
{
    (void)state;
    write_file("run.slog", "older");
    strata_stack *stack = make_stack("run.slog", ", interval=60s, existing=replace");
    refuse(FTRUNCATE, -1, EIO);
    make_pairs(stack, 50);
    check_status(flush(stack), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "Input/output error");
    refuse(FTRUNCATE, 0, 0);
    check_file("run.slog", "older");
    assert_int_equal(value(stack, "logging.dropped_records"), 100);
    make_pairs(stack, 50);
    check_ok(flush(stack));
    check_ok(strata_stack_destroy(stack));
    check_log("run.slog", 200, 1, 100);
}

/* Neither the header nor records are lost to a file that could not be begun: the next records begin it. */
static void a_file_whose_header_cannot_be_written_is_begun_later(void **state)
{
    (void)state;
    write_file("run.slog", "older");
    strata_stack *stack = make_stack("run.slog", ", interval=60s, existing=replace");
    refuse(PWRITE, -1, ENOSPC);
    make_pairs(stack, 50);
    check_status(flush(stack), STRATA_ERROR_IO);
    refuse(PWRITE, 0, 0);
    assert_int_equal(value(stack, "logging.dropped_records"), 100);
    make_pairs(stack, 50);
    check_ok(flush(stack));
    check_ok(strata_stack_destroy(stack));
    check_log("run.slog", 200, 1, 100);
}

/* NAME moves to NAME.1 and NAME.new to NAME: whichever of the two fails, NAME is where it was. */
static void a_file_that_cannot_be_renamed_stays_where_it_is(void **state)
{
    (void)state;
    static const char *const which[] = {"run.slog", "run.slog.new"};
    for (size_t i = 0; i < 2; i++) {
        write_file("run.slog", "older");
        strata_stack *stack = make_stack("run.slog", ", interval=60s, existing=rotate");
        unmovable = which[i];
        check_ok(flush(stack)); /* there is nothing to write yet: the first record meets it again */
        check_file("run.slog", "older");
        assert_false(exists("run.slog.1"));
        assert_int_equal(value(stack, "logging.write_error"), EACCES);
        make_pairs(stack, 50);
        check_status(flush(stack), STRATA_ERROR_IO);
        check_last_error(STRATA_ERROR_IO, "Permission denied");
        check_file("run.slog", "older");
        unmovable = NULL;
        make_pairs(stack, 50);
        check_ok(flush(stack));
        check_file("run.slog.1", "older");
        assert_false(exists("run.slog.new"));
        check_ok(strata_stack_destroy(stack));
        check_log("run.slog", 200, 1, 100);
        assert_int_equal(unlink(in_folder("run.slog.1").text), 0);
    }
}

/* The name is free meanwhile, and cannot be had all the same. */
static void a_name_that_is_free_and_cannot_be_taken_is_taken_later(void **state)
{
    (void)state;
    write_file("run.slog", "older");
    strata_stack *stack = make_stack("run.slog", ", interval=60s, existing=rotate");
    assert_int_equal(unlink(in_folder("run.slog").text), 0);
    unmovable = "run.slog.new";
    make_pairs(stack, 50);
    check_status(flush(stack), STRATA_ERROR_IO);
    assert_false(exists("run.slog") || exists("run.slog.1"));
    unmovable = NULL;
    make_pairs(stack, 50);
    check_ok(flush(stack));
    check_ok(strata_stack_destroy(stack));
    check_log("run.slog", 200, 1, 100);
}

/* The next file cannot be made whole: none is left, and nothing has moved. */
static void a_next_file_without_room_for_its_header_is_not_made(void **state)
{
    (void)state;
    static const int errors[] = {ENOSPC, 0};
    write_file("run.slog", "older");
    for (size_t i = 0; i < 2; i++) {
        strata_stack *stack = (strata_stack *)&stack;
        refuse(PWRITE, 1, errors[i]);
        check_status(try_stack("run.slog", ", existing=rotate", &stack), STRATA_ERROR_IO);
        check_last_error(STRATA_ERROR_IO, "run.slog: No space left on device");
        assert_null(stack);
        check_file("run.slog", "older");
        assert_false(exists("run.slog.new") || exists("run.slog.1"));
    }
    check_ok(strata_stack_destroy(make_stack("run.slog", ", existing=rotate")));
    check_file("run.slog.1", "older");
}

/* A full file is rotated with the next records; where that fails the log goes on in it, and tries again when it has
 * grown by an eighth. */
static void a_rotation_that_fails_is_not_tried_with_each_batch(void **state)
{
    (void)state;
    strata_stack *stack = sleeping_stack("run.slog", ", rotate=8192, uses=off");
    make_pairs(stack, 500);
    check_ok(flush(stack));
    assert_true(size_of("run.slog") > 8192);
    make_pairs(stack, 2);
    refuse(RENAME, 1, EACCES);
    check_ok(flush(stack));
    assert_true(was_refused(RENAME));
    assert_false(exists("run.slog.1") || exists("run.slog.new"));
    refuse(RENAME, 1, EACCES);
    make_pairs(stack, 2);
    check_ok(flush(stack));
    assert_false(was_refused(RENAME)); /* it was not tried */
    refuse(RENAME, 0, 0);
    make_pairs(stack, 200);
    check_ok(flush(stack));
    make_pairs(stack, 2);
    check_ok(flush(stack));
    assert_true(exists("run.slog.1"));
    check_ok(strata_stack_destroy(stack));
    log_contents log = read_log("run.slog.1");
    assert_int_equal(log.count, 2 * (1 + 500 + 2 + 2 + 200));
    log_contents_free(&log);
}

static char printed[1 << 14];

static void collect(const char *text, size_t length, void *data)
{
    size_t used = strlen(printed);
    (void)data;
    assert_true(used + length < sizeof printed);
    memcpy(printed + used, text, length);
}

static void a_report_says_where_the_log_is_and_what_failed_last(void **state)
{
    (void)state;
    strata_stack *stack = sleeping_stack("run.slog", "");
    check_ok(strata_stats_print(stack, STRATA_FORMAT_JSON, collect, memset(printed, 0, sizeof printed)));
    assert_non_null(strstr(printed, in_folder("run.slog").text));
    assert_null(strstr(printed, "write_error_text"));
    make_pairs(stack, 1);
    refuse(PWRITE, 1, ENOSPC);
    check_status(flush(stack), STRATA_ERROR_IO);
    check_ok(strata_stats_print(stack, STRATA_FORMAT_JSON, collect, memset(printed, 0, sizeof printed)));
    assert_non_null(strstr(printed, "\"write_error_text\": \"No space left on device\""));
    check_ok(strata_stack_destroy(stack));
}

/* ---- locks ---- */

static void where_a_file_system_has_no_locks_nobody_is_kept_away(void **state)
{
    (void)state;
    refuse(FLOCK, 1, ENOLCK);
    strata_stack *stack = make_stack("run.slog", "");
    assert_true(was_refused(FLOCK));
    make_pairs(stack, 50);
    check_ok(strata_stack_destroy(stack));
    check_log("run.slog", 100, 1000, 0);
}

/* Another log took the file between our making and locking it: it is the other's. */
static void a_file_that_another_log_takes_at_once_is_left_to_it(void **state)
{
    (void)state;
    strata_stack *stack = (strata_stack *)&stack;
    refuse(FLOCK, 1, EWOULDBLOCK);
    check_status(try_stack("run.slog", "", &stack), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "another log is writing to this file");
    assert_null(stack);
    assert_true(exists("run.slog"));
}

/* The file was renamed between open and lock: the policy is for the file that has the name now. */
static void a_file_that_moves_on_while_it_is_opened_is_not_taken_for_the_next(void **state)
{
    (void)state;
    name here = in_folder("run.slog"), there = in_folder("run.slog.1");
    write_file("run.slog", "another's");
    moved_from = here.text;
    moved_to = there.text;
    strata_stack *stack = make_stack("run.slog", ", existing=replace");
    assert_null(moved_from);
    make_pairs(stack, 50);
    check_ok(strata_stack_destroy(stack));
    check_file("run.slog.1", "another's");
    check_log("run.slog", 100, 1000, 0);
}

static void a_file_that_cannot_be_looked_at_is_refused(void **state)
{
    (void)state;
    strata_stack *stack = (strata_stack *)&stack;
    write_file("run.slog", "older");
    refuse(FSTAT, 1, EIO);
    check_status(try_stack("run.slog", ", existing=replace", &stack), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "run.slog: Input/output error");
    assert_null(stack);
    check_file("run.slog", "older");
}

/* A file NAME.new that no log left behind belongs to another program. */
static void a_file_at_the_place_of_the_next_is_somebodys_unless_it_is_a_leftover(void **state)
{
    (void)state;
    char large[2000];
    strata_stack *stack = (strata_stack *)&stack;
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    write_file("run.slog", "older");
    for (int kind = 0; kind < 3; kind++) {
        int held = -1;
        if (kind == 0)
            write_file("run.slog.new", large);
        else if (kind == 1)
            assert_int_equal(mkfifo(in_folder("run.slog.new").text, 0600), 0);
        else
            write_file("run.slog.new", "");
        if (kind == 2)
            assert_true((held = open(in_folder("run.slog.new").text, O_WRONLY)) >= 0 && flock(held, LOCK_EX) == 0);
        strata_status wanted = kind == 2 ? STRATA_ERROR_BUSY : STRATA_ERROR_IO;
        int reader = kind == 1 ? open(in_folder("run.slog.new").text, O_RDONLY | O_NONBLOCK) : -1;
        check_status(try_stack("run.slog", ", existing=rotate", &stack), wanted);
        check_last_error(wanted, kind == 2 ? "another log is writing" : "File exists");
        check_file("run.slog", "older");
        assert_true(exists("run.slog.new") && !exists("run.slog.1"));
        if (kind == 0)
            assert_int_equal(size_of("run.slog.new"), sizeof large - 1);
        if (held >= 0)
            close(held);
        if (reader >= 0)
            close(reader);
        assert_int_equal(unlink(in_folder("run.slog.new").text), 0);
    }
}

/* ---- names ---- */

static void a_log_without_a_name_is_named_for_the_process(void **state)
{
    (void)state;
    char before[512], expected[64];
    strata_stack *stack;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    strata_status status = strata_stack_create("logging, null", 0, &stack);
    assert_int_equal(chdir(before), 0);
    check_ok(status);
    snprintf(expected, sizeof expected, "strata-%d.", (int)getpid());
    DIR *open_folder = opendir(folder);
    size_t found = 0;
    assert_non_null(open_folder);
    for (struct dirent *entry; (entry = readdir(open_folder));)
        found += strncmp(entry->d_name, expected, strlen(expected)) == 0 && strstr(entry->d_name, ".slog");
    closedir(open_folder);
    assert_int_equal(found, 1);
    check_ok(strata_stack_destroy(stack));
}

static void a_name_that_is_too_long_once_it_is_filled_in_is_refused(void **state)
{
    (void)state;
    strata_logging_options options = {0};
    strata_resource *layer = (strata_resource *)&layer;
    for (size_t i = 0; i + 2 < sizeof options.file; i += 2)
        memcpy(options.file + i, "%p", 2); /* each gets at least as long as this: of five digits, twice that */
    if (getpid() < 10000)
        skip();
    check_status(strata_logging_create(0, &options, &layer), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "file name longer than 511 bytes");
    assert_null(layer);
    memset(options.file, 'a', sizeof options.file);
    check_status(strata_logging_create(0, &options, &layer), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "the file name is not terminated");
    assert_null(layer);
}

static void a_relative_name_in_a_folder_that_was_removed_is_refused(void **state)
{
    (void)state;
    char before[512], gone[] = "/tmp/strata-gone-XXXXXX";
    strata_stack *stack = (strata_stack *)&stack;
    assert_non_null(getcwd(before, sizeof before));
    assert_non_null(mkdtemp(gone));
    assert_int_equal(chdir(gone), 0);
    assert_int_equal(rmdir(gone), 0);
    strata_status status = strata_stack_create("logging(file=run.slog), null", 0, &stack);
    assert_int_equal(chdir(before), 0);
    check_status(status, STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "run.slog: the path is too long, or the current folder is unknown");
    assert_null(stack);
}

/* Another file took the name of a log whose layer fails to build. */
static void a_layer_that_comes_to_nothing_removes_no_file_of_others(void **state)
{
    (void)state;
    strata_resource *layer;
    strata_logging_options options = {0};
    snprintf(options.file, sizeof options.file, "%s", in_folder("run.slog").text);
    check_ok(strata_logging_create(0, &options, &layer));
    check_ok(strata_logging_flush(layer)); /* nothing that waits for the stack is done before there is one */
    assert_int_equal(rename(in_folder("run.slog").text, in_folder("moved.slog").text), 0);
    write_file("run.slog", "another's");
    check_ok(strata_resource_destroy(layer));
    check_file("run.slog", "another's");
}

static void a_log_that_was_not_built_leaves_the_file_that_it_would_replace(void **state)
{
    (void)state;
    strata_resource *layer;
    strata_logging_options options = {.existing = STRATA_LOG_EXISTING_REPLACE};
    write_file("run.slog", "older");
    snprintf(options.file, sizeof options.file, "%s", in_folder("run.slog").text);
    check_ok(strata_logging_create(0, &options, &layer));
    check_ok(strata_logging_flush(layer));
    check_file("run.slog", "older");
    check_ok(strata_resource_destroy(layer));
    check_file("run.slog", "older");
}

/* The first of two batches is lost, and that is said, once. */
static void a_flush_says_what_was_lost_since_the_one_before(void **state)
{
    (void)state;
    enum { PAIRS = 1000, BATCH = 1024 };
    strata_stack *stack = sleeping_stack("run.slog", ", ring=16384, uses=off");
    make_pairs(stack, PAIRS);
    refuse(PWRITE, 1, ENOSPC);
    check_status(flush(stack), STRATA_ERROR_IO);
    assert_true(was_refused(PWRITE));
    check_last_error(STRATA_ERROR_IO, "No space left on device; records lost: 1024");
    assert_int_equal(value(stack, "logging.dropped_records"), BATCH);
    check_ok(flush(stack));
    make_pairs(stack, 1);
    refuse(PWRITE, 1, EIO);
    check_status(flush(stack), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "; records lost: 2");
    check_ok(flush(stack)); /* though none was written since */
    check_ok(strata_stack_destroy(stack));
    log_contents log = read_log("run.slog");
    assert_in_range(log.count, 2 + 2 * PAIRS - BATCH, 2 + 2 * PAIRS - BATCH + 4);
    log_contents_free(&log);
}

/* ---- threads and memory ---- */

static void a_log_whose_writer_cannot_be_made_leaves_no_file(void **state)
{
    (void)state;
    static const call calls[] = {THREAD, SEMAPHORE, CONDITION, CONDITION_KIND};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        strata_stack *stack = (strata_stack *)&stack;
        refuse(calls[i], 1, EAGAIN);
        check_status(try_stack("run.slog", "", &stack), STRATA_ERROR_OUT_OF_HOST_MEMORY);
        check_last_error(STRATA_ERROR_OUT_OF_HOST_MEMORY, "the writer of a log");
        assert_int_equal(strstr(strata_last_error()->message, "no thread for") != NULL, calls[i] == THREAD);
        assert_true(was_refused(calls[i]));
        assert_null(stack);
        assert_false(exists("run.slog"));
    }
    check_ok(strata_stack_destroy(make_stack("run.slog", "")));
}

static void a_log_without_host_memory_leaves_no_file(void **state)
{
    (void)state;
    for (int nth = 1;; nth++) {
        strata_stack *stack = NULL;
        refuse(MEMORY, nth, ENOMEM);
        strata_status status = try_stack("run.slog", "", &stack);
        bool any = was_refused(MEMORY);
        refuse(MEMORY, 0, 0);
        assert_true(any || status == STRATA_SUCCESS);
        if (status == STRATA_SUCCESS)
            check_ok(strata_stack_destroy(stack));
        else
            assert_int_equal(status, STRATA_ERROR_OUT_OF_HOST_MEMORY);
        assert_int_equal(exists("run.slog"), status == STRATA_SUCCESS);
        if (status == STRATA_SUCCESS)
            assert_int_equal(unlink(in_folder("run.slog").text), 0);
        if (!any)
            break;
        assert_true(nth < 100);
    }
}

/* What it needs to put the threads' records in order was there when their rings were made. */
static void a_writer_without_memory_collects_all_the_same(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", ", interval=60s");
    check_ok(flush(stack));
    const uint64_t header = value(stack, "logging.written_bytes");
    spared = pthread_self();
    refuse(MEMORY, -1, ENOMEM);
    make_pairs(stack, 50);
    check_ok(flush(stack));
    const uint64_t written = value(stack, "logging.written_bytes");
    refuse(MEMORY, 0, 0);
    assert_int_equal(value(stack, "logging.dropped_records"), 0);
    assert_true(written > header);
    check_ok(flush(stack));
    assert_int_equal(value(stack, "logging.written_bytes"), written);
    check_ok(strata_stack_destroy(stack));
    check_log("run.slog", 100, 1000, 0);
}

/* An end of the sleep that does not fit into the clock's numbers is not one in the past. */
static void a_writer_with_the_longest_interval_sleeps(void **state)
{
    (void)state;
    strata_resource *layer;
    const strata_logging_options options = {.format = STRATA_LOG_NULL, .interval = UINT64_MAX};
    atomic_store(&sleeps, 0);
    check_ok(strata_logging_create(0, &options, &layer));
    const time_t end = time(NULL) + test_timeout(20);
    while (!atomic_load(&sleeps) && time(NULL) < end)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    const bool slept = atomic_load(&sleeps) > 0;
    check_ok(strata_resource_destroy(layer));
    assert_true(slept);
}

enum { CROWD = 70 }; /* more than the writer has room for at first */

static pthread_barrier_t turns;
static sem_t recorded;

static void *record_by_turns(void *data)
{
    make_pairs(data, 1);
    sem_post(&recorded);
    pthread_barrier_wait(&turns); /* all have rings */
    make_pairs(data, 1);
    pthread_barrier_wait(&turns);
    pthread_barrier_wait(&turns); /* they end when all was collected: none takes another's ring */
    return NULL;
}

static void many_threads_records_are_put_in_order_at_once(void **state)
{
    (void)state;
    pthread_t threads[CROWD];
    strata_stack *stack = sleeping_stack("run.slog", "");
    assert_int_equal(pthread_barrier_init(&turns, NULL, CROWD + 1), 0);
    assert_int_equal(sem_init(&recorded, 0, 0), 0);
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, record_by_turns, stack), 0);
        assert_int_equal(sem_wait(&recorded), 0);
        check_ok(flush(stack)); /* and makes spare rings */
    }
    pthread_barrier_wait(&turns);
    pthread_barrier_wait(&turns);
    check_ok(flush(stack));
    pthread_barrier_wait(&turns);
    for (size_t i = 0; i < CROWD; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&turns), 0);
    assert_int_equal(value(stack, "logging.dropped_records"), 0);
    check_ok(strata_stack_destroy(stack));
    log_contents log = read_log("run.slog");
    assert_in_range(log.count, 4 * CROWD, 4 * CROWD + 4);
    for (size_t i = 1; i < log.count; i++)
        assert_true(log.records[i].monotonic_ns >= log.records[i - 1].monotonic_ns);
    log_contents_free(&log);
}

/* ---- pipes ---- */

static void calls_on_a_pipe_that_are_interrupted_are_made_again(void **state)
{
    (void)state;
    static const struct {
        call which;
        int error;
    } calls[] = {{POLL, EINTR}, {WRITE, EINTR}};
    static unsigned char bytes[1 << 16];
    assert_int_equal(mkfifo(in_folder("pipe").text, 0600), 0);
    int reader = open(in_folder("pipe").text, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    strata_stack *stack = sleeping_stack("pipe", ", uses=off");
    for (size_t i = 0; i < 2; i++) {
        make_pairs(stack, 50);
        refuse(calls[i].which, 1, calls[i].error);
        check_ok(flush(stack));
        assert_true(was_refused(calls[i].which));
    }
    make_pairs(stack, 50);
    refuse(WRITE, 1, EAGAIN); /* though it said that there was room: the piece does not begin */
    check_status(flush(stack), STRATA_ERROR_IO);
    assert_int_equal(value(stack, "logging.dropped_records"), 100);
    check_ok(strata_control(stack, "logging.enabled", NULL, &(uint64_t){0}));
    check_ok(strata_stack_destroy(stack));
    ssize_t length = read(reader, bytes, sizeof bytes);
    log_contents log;
    log_problem problem;
    assert_true(length > 0 && log_read_bytes(bytes, (size_t)length, &log, &problem));
    assert_true(log.count == 202 && log.torn == 0);
    log_contents_free(&log);
    close(reader);
}

int main(void)
{
    setenv("STRATA_DRIVER", "auto", 0);
    test_open_driver();
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, stop_refusing)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_write_that_is_interrupted_or_cut_short_is_gone_on_with),
        IN_FOLDER(half_a_piece_never_stays_in_a_file),
        IN_FOLDER(a_file_that_cannot_be_emptied_keeps_what_it_has_until_it_can),
        IN_FOLDER(a_file_whose_header_cannot_be_written_is_begun_later),
        IN_FOLDER(a_file_that_cannot_be_renamed_stays_where_it_is),
        IN_FOLDER(a_name_that_is_free_and_cannot_be_taken_is_taken_later),
        IN_FOLDER(a_next_file_without_room_for_its_header_is_not_made),
        IN_FOLDER(a_rotation_that_fails_is_not_tried_with_each_batch),
        IN_FOLDER(a_report_says_where_the_log_is_and_what_failed_last),
        IN_FOLDER(where_a_file_system_has_no_locks_nobody_is_kept_away),
        IN_FOLDER(a_file_that_another_log_takes_at_once_is_left_to_it),
        IN_FOLDER(a_file_that_moves_on_while_it_is_opened_is_not_taken_for_the_next),
        IN_FOLDER(a_file_that_cannot_be_looked_at_is_refused),
        IN_FOLDER(a_file_at_the_place_of_the_next_is_somebodys_unless_it_is_a_leftover),
        IN_FOLDER(a_log_without_a_name_is_named_for_the_process),
        IN_FOLDER(a_name_that_is_too_long_once_it_is_filled_in_is_refused),
        IN_FOLDER(a_relative_name_in_a_folder_that_was_removed_is_refused),
        IN_FOLDER(a_layer_that_comes_to_nothing_removes_no_file_of_others),
        IN_FOLDER(a_log_that_was_not_built_leaves_the_file_that_it_would_replace),
        IN_FOLDER(a_flush_says_what_was_lost_since_the_one_before),
        IN_FOLDER(a_log_whose_writer_cannot_be_made_leaves_no_file),
        IN_FOLDER(a_log_without_host_memory_leaves_no_file),
        IN_FOLDER(a_writer_without_memory_collects_all_the_same),
        IN_FOLDER(a_writer_with_the_longest_interval_sleeps),
        IN_FOLDER(many_threads_records_are_put_in_order_at_once),
        IN_FOLDER(calls_on_a_pipe_that_are_interrupted_are_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
