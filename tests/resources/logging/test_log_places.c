/* Where log files stand: files that cannot be made or moved, files that others write to, stacks that come to nothing,
 * pipes whose readers are slow or go away, and processes that fork or exit while a log is written. */
#include "support/child.h"
#include "support/effort.h"
#include "support/log.h"
#include "support/rerun.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

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

static void fill(strata_stack *stack, int pairs)
{
    make_pairs(stack, pairs);
    check_ok(strata_logging_flush(strata_stack_top(stack)));
}

/* The file has that many records, from the first of the thread's on and without a gap. */
static void check_numbered(const char *file, size_t count)
{
    log_contents log = read_log(file);
    assert_int_equal(log.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(log.records[i].number, i + 1);
    log_contents_free(&log);
}

/* ---- rotation ---- */

static void a_rotation_that_can_make_no_file_leaves_all_files_where_they_are(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", ", rotate=4096, keep=3, uses=off, interval=60s");
    write_file("run.slog.1", "one");
    write_file("run.slog.2", "two");
    write_file("run.slog.3", "three");
    assert_int_equal(mkdir(in_folder("run.slog.new").text, 0700), 0); /* where the next file would be made */
    for (int i = 0; i < 10; i++)
        fill(stack, 200);
    check_file("run.slog.1", "one");
    check_file("run.slog.2", "two");
    check_file("run.slog.3", "three");
    assert_int_equal(value(stack, "logging.write_error"), EEXIST);
    assert_int_equal(value(stack, "logging.dropped_records"), 0);
    check_numbered("run.slog", 4000); /* the log goes on where it is */
    assert_int_equal(rmdir(in_folder("run.slog.new").text), 0);
    fill(stack, 2);
    check_file("run.slog.3", "two"); /* and moves as soon as it can */
    check_file("run.slog.2", "one");
    check_ok(strata_stack_destroy(stack));
    check_numbered("run.slog.1", 4000);
}

static void a_number_that_cannot_be_moved_stops_those_before_it(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", ", rotate=4096, keep=3, uses=off, interval=60s");
    write_file("run.slog.1", "one");
    write_file("run.slog.2", "two");
    assert_int_equal(mkdir(in_folder("run.slog.3").text, 0700), 0); /* no file can be renamed over it */
    for (int i = 0; i < 4; i++)
        fill(stack, 200);
    check_file("run.slog.1", "one");
    check_file("run.slog.2", "two");
    assert_int_equal(value(stack, "logging.write_error"), EISDIR);
    assert_false(exists("run.slog.new"));
    check_ok(strata_stack_destroy(stack));
    assert_int_equal(rmdir(in_folder("run.slog.3").text), 0);
}

static void files_move_up_to_the_first_number_that_is_free(void **state)
{
    (void)state;
    write_file("run.slog", "none");
    write_file("run.slog.1", "one");
    write_file("run.slog.3", "three");
    check_ok(strata_stack_destroy(make_stack("run.slog", ", existing=rotate")));
    check_file("run.slog.1", "none");
    check_file("run.slog.2", "one");
    check_file("run.slog.3", "three");
}

/* The log was moved away, and another program made a file with its name. */
static void a_file_that_somebody_else_put_in_the_place_is_not_touched(void **state)
{
    (void)state;
    strata_stack *stack = make_stack("run.slog", ", rotate=4096, uses=off, interval=60s");
    assert_int_equal(rename(in_folder("run.slog").text, in_folder("moved.slog").text), 0);
    write_file("run.slog", "another's");
    for (int i = 0; i < 4; i++)
        fill(stack, 200);
    check_file("run.slog", "another's");
    assert_false(exists("run.slog.1"));
    assert_int_equal(value(stack, "logging.write_error"), EEXIST);
    assert_int_equal(unlink(in_folder("run.slog").text), 0);
    fill(stack, 2);
    fill(stack, 2);
    assert_true(exists("run.slog")); /* a free name goes to the new file */
    assert_false(exists("run.slog.1"));
    check_ok(strata_stack_destroy(stack));
    log_contents log = read_log("moved.slog");
    assert_true(log.count >= 1600);
    log_contents_free(&log);
}

static void a_file_that_a_killed_log_left_half_made_is_no_hindrance(void **state)
{
    (void)state;
    static const char *const leftovers[] = {"", "\x89SL", LOG_FILE_MAGIC, "Thread,Time", LOG_CSV_HEADER "\n"};
    for (size_t i = 0; i < sizeof leftovers / sizeof leftovers[0]; i++) {
        write_file("run.slog", "older");
        write_file("run.slog.new", leftovers[i]);
        strata_stack *stack = make_stack("run.slog", ", existing=rotate");
        check_ok(strata_logging_flush(strata_stack_top(stack)));
        check_file("run.slog.1", "older");
        assert_false(exists("run.slog.new"));
        check_ok(strata_stack_destroy(stack));
        assert_int_equal(unlink(in_folder("run.slog.1").text), 0);
    }
}

static void what_others_have_under_the_name_of_the_next_file_stays_theirs(void **state)
{
    (void)state;
    static const char *const theirs[] = {"a note", "\x89SLAG", "Thread,Tim,", LOG_CSV_HEADER "\n1",
                                         LOG_FILE_MAGIC "with more behind it than a header has"};
    strata_stack *stack;
    write_file("run.slog", "older");
    for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++) {
        write_file("run.slog.new", theirs[i]);
        off_t size = size_of("run.slog.new");
        check_status(try_stack("run.slog", ", existing=rotate", &stack), STRATA_ERROR_IO);
        check_last_error(STRATA_ERROR_IO, "run.slog.new: File exists; rotation needs this name");
        assert_int_equal(size_of("run.slog.new"), size);
        check_file("run.slog", "older");
    }
}

/* ---- locks ---- */

static strata_stack *child_stack(const char *more)
{
    char text[512];
    strata_stack *stack;
    snprintf(text, sizeof text, "logging(file=\"%s\"%s), null", getenv("STRATA_TEST_LOG"), more);
    child_ok(strata_stack_create(text, 0, &stack));
    return stack;
}

static void child_pairs(strata_stack *stack, int pairs)
{
    strata_resource *top = strata_stack_top(stack);
    strata_block block;
    for (int i = 0; i < pairs; i++) {
        child_ok(strata_resource_allocate(top, &(strata_request){.bytes = (size_t)i + 1}, &block));
        child_ok(strata_resource_deallocate(top, &block, NULL));
    }
}

static void log_variable(const char *file, char text[PATH_ROOM + 32])
{
    snprintf(text, PATH_ROOM + 32, "STRATA_TEST_LOG=%s", in_folder(file).text);
}

/* Writes, says so, and stays. */
static void writes_until_killed(void)
{
    strata_stack *stack = child_stack("");
    child_pairs(stack, 10);
    child_ok(strata_logging_flush(strata_stack_top(stack)));
    FILE *ready = fopen(getenv("STRATA_TEST_READY"), "w");
    child_check(ready && fclose(ready) == 0);
    for (;;)
        pause();
}

static pid_t start_writer(const char *file, const char *ready)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("STRATA_TEST_LOG", in_folder(file).text, 1);
        setenv("STRATA_TEST_READY", in_folder(ready).text, 1);
        test_rerun_program((char *const[]){"test", "--child", "writes_until_killed", NULL});
        _exit(1);
    }
    for (unsigned turn = 0; !exists(ready) && turn < test_timeout(20) * 100; turn++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_true(exists(ready));
    return child;
}

static void a_file_that_another_process_writes_is_refused_until_it_is_gone(void **state)
{
    (void)state;
    static const char *const more[] = {", existing=replace", ", existing=rotate", ", rotate=1MiB", ""};
    strata_stack *stack = (strata_stack *)&stack;
    pid_t writer = start_writer("run.slog", "ready");
    off_t size = size_of("run.slog");
    for (size_t i = 0; i < 4; i++) {
        check_status(try_stack("run.slog", more[i], &stack), STRATA_ERROR_BUSY);
        check_last_error(STRATA_ERROR_BUSY, "another log is writing to this file; add %p");
        assert_null(stack);
    }
    assert_true(size_of("run.slog") == size && !exists("run.slog.1") && !exists("run.slog.new"));
    assert_int_equal(kill(writer, SIGKILL), 0);
    assert_int_equal(waitpid(writer, &(int){0}, 0), writer);
    check_ok(strata_stack_destroy(make_stack("run.slog", ", existing=rotate")));
    assert_int_equal(size_of("run.slog.1"), size);
}

/* Lives on for a while with what it has inherited, and says its number. */
static _Noreturn void stay_behind(void)
{
    alarm(test_timeout(30)); /* in case no signal ends it */
    for (int standard = 0; standard < 3; standard++)
        close(standard); /* for which others may wait */
    FILE *to = fopen(getenv("STRATA_TEST_READY"), "w");
    if (to) {
        fprintf(to, "%d", (int)getpid());
        fclose(to);
    }
    for (;;)
        pause();
}

static void leaves_a_child_behind(void)
{
    strata_stack *stack = child_stack("");
    child_pairs(stack, 10);
    pid_t child = fork();
    child_check(child >= 0);
    if (child == 0) {
        pid_t second = fork(); /* whose handlers run once more */
        if (second == 0)
            _exit(0);
        waitpid(second, NULL, 0);
        stay_behind();
    }
    child_ok(strata_stack_destroy(stack));
}

static void a_forked_child_does_not_keep_the_file_of_its_parent(void **state)
{
    (void)state;
    char log_name[PATH_ROOM + 32], ready[PATH_ROOM + 32];
    log_variable("run.slog", log_name);
    snprintf(ready, sizeof ready, "STRATA_TEST_READY=%s", in_folder("ready").text);
    test_child_run("leaves_a_child_behind", (const char *const[]){log_name, ready, NULL});
    int child = 0;
    for (unsigned turn = 0; child <= 0 && turn < test_timeout(20) * 100; turn++) {
        FILE *from = fopen(in_folder("ready").text, "r");
        if (!from || fscanf(from, "%d", &child) != 1)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        if (from)
            fclose(from);
    }
    assert_true(child > 0);
    strata_stack *stack = NULL;
    strata_status status = try_stack("run.slog", ", existing=rotate", &stack);
    kill(child, SIGKILL);
    check_ok(status);
    check_ok(strata_stack_destroy(stack));
    log_contents log = read_log("run.slog.1");
    check_pairs(log.records, 20, 0);
    log_contents_free(&log);
}

/* ---- stacks that come to nothing ---- */

static void a_stack_that_comes_to_nothing_leaves_no_log_and_harms_none(void **state)
{
    (void)state;
    static const char *const more[] = {", existing=replace", ", existing=rotate", ", rotate=1MiB"};
    strata_stack *stack;
    char text[512];
    snprintf(text, sizeof text, "logging(file=\"%s\"), aligned(alignment=3), null", in_folder("run.slog").text);
    assert_int_not_equal(strata_stack_create(text, 0, &stack), STRATA_SUCCESS);
    assert_false(exists("run.slog"));
    write_file("run.slog", "older");
    write_file("run.slog.1", "oldest");
    for (size_t i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "logging(file=\"%s\"%s, keep=1), aligned(alignment=3), null",
                 in_folder("run.slog").text, more[i]);
        assert_int_not_equal(strata_stack_create(text, 0, &stack), STRATA_SUCCESS);
        check_file("run.slog", "older");
        check_file("run.slog.1", "oldest");
        assert_false(exists("run.slog.new"));
    }
}

/* The signal that the kernel sends with this error is the program's business, and would end it. */
static void may_write_no_file(void)
{
    static const char *const more[] = {"", ", existing=rotate"};
    sigset_t pending;
    strata_stack *stack;
    for (int i = 0; i < 2; i++) {
        struct rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY}, any = {RLIM_INFINITY, RLIM_INFINITY};
        char text[512];
        snprintf(text, sizeof text, "logging(file=\"%s\"%s), null", getenv("STRATA_TEST_LOG"), more[i]);
        child_check(setrlimit(RLIMIT_FSIZE, &none) == 0);
        child_status(strata_stack_create(text, 0, &stack), STRATA_ERROR_IO);
        child_check_words("File too large");
        child_check(sigpending(&pending) == 0 && !sigismember(&pending, SIGXFSZ));
        child_check(setrlimit(RLIMIT_FSIZE, &any) == 0);
        child_ok(strata_stack_create(text, 0, &stack)); /* leaves one for the next turn */
        child_ok(strata_stack_destroy(stack));
    }
}

static void a_process_that_may_write_no_file_is_refused_and_lives_on(void **state)
{
    (void)state;
    char log_name[PATH_ROOM + 32];
    log_variable("run.slog", log_name);
    test_child_run("may_write_no_file", (const char *const[]){log_name, NULL});
    assert_true(exists("run.slog") && exists("run.slog.1") && !exists("run.slog.new"));
}

static void a_layer_that_was_never_built_into_a_stack_leaves_no_log(void **state)
{
    (void)state;
    strata_resource *layer;
    strata_logging_options options = {0};
    snprintf(options.file, sizeof options.file, "%s", in_folder("run.slog").text);
    check_ok(strata_logging_create(0, &options, &layer));
    assert_true(exists("run.slog"));
    check_ok(strata_resource_destroy(layer));
    assert_false(exists("run.slog"));
}

static void a_stack_that_records_nothing_has_its_file_all_the_same(void **state)
{
    (void)state;
    write_file("run.slog", "older");
    strata_stack *stack = make_stack("run.slog", ", existing=rotate, enabled=off");
    check_file("run.slog", "older"); /* until there is something to write, or a flush */
    check_ok(strata_logging_flush(strata_stack_top(stack)));
    check_file("run.slog.1", "older");
    log_contents log = read_log("run.slog");
    assert_int_equal(log.count, 0);
    log_contents_free(&log);
    check_ok(strata_stack_destroy(stack));
    check_ok(strata_stack_destroy(make_stack("run.slog", ", existing=replace, enabled=off")));
    log = read_log("run.slog");
    log_contents_free(&log);
    assert_false(exists("run.slog.2"));
}

/* ---- pipes ---- */

enum { PIPE_ROOM = 1 << 22 };

typedef struct piped {
    size_t size;
    unsigned char bytes[PIPE_ROOM];
} piped;

static int open_reader(const char *file)
{
    int reader = open(in_folder(file).text, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    return reader;
}

/* Reads what there is, at most so much. */
static size_t read_some(int reader, piped *to, size_t most)
{
    size_t done = 0;
    for (ssize_t got; done < most && to->size < PIPE_ROOM; done += (size_t)got) {
        got =
            read(reader, to->bytes + to->size, most - done < PIPE_ROOM - to->size ? most - done : PIPE_ROOM - to->size);
        if (got <= 0)
            break;
        to->size += (size_t)got;
    }
    return done;
}

static void check_whole(const piped *from, uint64_t made, uint64_t dropped)
{
    log_contents log;
    log_problem problem;
    if (!log_read_bytes(from->bytes, from->size, &log, &problem))
        fail_msg("%s", problem.text);
    assert_int_equal(log.torn, 0);
    uint64_t last = log.count ? log.records[0].number - 1 : 0, missing = 0;
    for (size_t i = 0; i < log.count; i++) {
        assert_true(log.records[i].number > last);
        missing += log.records[i].number - last - 1;
        last = log.records[i].number;
    }
    assert_int_equal(log.count + dropped, made);
    assert_true(missing <= dropped);
    log_contents_free(&log);
}

/* Lines as they were printed: the first has the columns, and all have as many. */
static void check_lines(const piped *from, uint64_t made, uint64_t dropped)
{
    size_t lines = 0, columns = 0, wanted = 0;
    assert_int_equal(from->bytes[from->size - 1], '\n');
    for (size_t i = 0; i < from->size; i++) {
        columns += from->bytes[i] == ',';
        if (from->bytes[i] != '\n')
            continue;
        wanted = lines++ ? wanted : columns;
        assert_int_equal(columns, wanted);
        columns = 0;
    }
    assert_int_equal(lines - 1 + dropped, made);
}

/* The pipe is full most of the time, and the reader takes odd amounts out of it. */
static void run_slow_reader(const char *more, void (*check)(const piped *from, uint64_t made, uint64_t dropped))
{
    piped *got = calloc(1, sizeof *got);
    assert_non_null(got);
    assert_int_equal(mkfifo(in_folder("pipe").text, 0600), 0);
    int reader = open_reader("pipe");
    strata_stack *stack = make_stack("pipe", more);
    uint64_t made = 0;
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 10; i++, made += 800) {
            make_pairs(stack, 400);
            strata_status status = strata_logging_flush(strata_stack_top(stack));
            assert_true(status == STRATA_SUCCESS || status == STRATA_ERROR_IO);
        }
        read_some(reader, got, 5001 + 9973 * (size_t)round);
    }
    while (read_some(reader, got, PIPE_ROOM)) /* so that there is room for the end of a piece */
        strata_logging_flush(strata_stack_top(stack));
    uint64_t dropped = value(stack, "logging.dropped_records");
    assert_true(dropped > 0 && dropped < made);
    check_ok(strata_control(stack, "logging.enabled", NULL, &(uint64_t){0}));
    check_ok(strata_stack_destroy(stack));
    read_some(reader, got, PIPE_ROOM);
    close(reader);
    check(got, made, dropped);
    free(got);
}

static void the_reader_of_a_pipe_gets_whole_batches_however_slow_it_is(void **state)
{
    (void)state;
    run_slow_reader(", uses=off", check_whole);
}

static void the_reader_of_a_pipe_gets_whole_lines_however_slow_it_is(void **state)
{
    (void)state;
    run_slow_reader(", uses=off, format=csv", check_lines);
}

static void a_pipe_that_nobody_reads_is_refused_and_that_is_said(void **state)
{
    (void)state;
    strata_stack *stack;
    assert_int_equal(mkfifo(in_folder("pipe").text, 0600), 0);
    check_status(try_stack("pipe", "", &stack), STRATA_ERROR_IO);
    check_last_error(STRATA_ERROR_IO, "pipe: a pipe without a reader, or a missing device; start");
    int reader = open_reader("pipe");
    check_ok(try_stack("pipe", "", &stack));
    check_ok(strata_stack_destroy(stack));
    close(reader);
}

/* The first one leaves a piece half read; nothing of it is left for the second one. */
static void a_new_reader_of_a_pipe_begins_with_a_header_and_none_is_no_harm(void **state)
{
    (void)state;
    piped *got = calloc(1, sizeof *got);
    assert_non_null(got);
    assert_int_equal(mkfifo(in_folder("pipe").text, 0600), 0);
    int reader = open_reader("pipe");
    strata_stack *stack = make_stack("pipe", ", uses=off");
    for (int i = 0; i < 10; i++) {
        make_pairs(stack, 500);
        strata_logging_flush(strata_stack_top(stack));
    }
    read_some(reader, got, 777);
    close(reader);
    uint64_t dropped = value(stack, "logging.dropped_records");
    for (int i = 0; i < 2; i++) {
        make_pairs(stack, 50);
        check_status(strata_logging_flush(strata_stack_top(stack)), STRATA_ERROR_IO);
    }
    assert_true(value(stack, "logging.dropped_records") >= dropped + 200);
    got->size = 0;
    reader = open_reader("pipe");
    dropped = value(stack, "logging.dropped_records");
    make_pairs(stack, 100);
    check_ok(strata_logging_flush(strata_stack_top(stack)));
    assert_int_equal(value(stack, "logging.dropped_records"), dropped);
    read_some(reader, got, PIPE_ROOM);
    check_whole(got, 200, 0);
    check_ok(strata_stack_destroy(stack));
    close(reader);
    free(got);
}

/* More than the pipe has room for, so that a line is cut when the process exits. */
static void exits_with_a_line_half_written(void)
{
    static strata_stack *volatile stack; /* never ended */
    stack = child_stack(", format=csv, uses=off, interval=60s");
    child_pairs(stack, 600);
}

static void *read_late(void *data)
{
    enum { LATE_MS = 300 }; /* more than the writer waits while the log goes on */
    piped *got = data;
    int reader = open_reader("pipe");
    struct pollfd any = {.fd = reader, .events = POLLIN};
    while (poll(&any, 1, 10000) < 0 && errno == EINTR)
        ;
    nanosleep(&(struct timespec){.tv_nsec = LATE_MS * 1000000}, NULL);
    fcntl(reader, F_SETFL, 0);
    read_some(reader, got, PIPE_ROOM);
    close(reader);
    return NULL;
}

static void exit_before_the_reader(piped *got)
{
    pthread_t thread;
    char log_name[PATH_ROOM + 32];
    got->size = 0;
    assert_int_equal(mkfifo(in_folder("pipe").text, 0600), 0);
    int holder = open(in_folder("pipe").text, O_RDWR | O_CLOEXEC); /* the pipe is there before its reader */
    assert_true(holder >= 0);
    assert_int_equal(pthread_create(&thread, NULL, read_late, got), 0);
    log_variable("pipe", log_name);
    test_child_run("exits_with_a_line_half_written", (const char *const[]){log_name, NULL});
    close(holder);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(unlink(in_folder("pipe").text), 0);
}

static void a_process_that_exits_ends_the_line_that_its_reader_is_late_for(void **state)
{
    enum { TRIES = 4, PIPE = 65536 }; /* PIPE: what a pipe has room for at once */
    (void)state;
    piped *got = calloc(1, sizeof *got);
    assert_non_null(got);
    for (int i = 0; i < TRIES && got->size <= PIPE; i++) /* a busy machine may let the reader be later than it wants */
        exit_before_the_reader(got);
    assert_true(got->size > PIPE);
    size_t lines = 0;
    for (size_t i = 0; i < got->size; i++)
        lines += got->bytes[i] == '\n';
    check_lines(got, lines - 1, 0);
    free(got);
}

/* Waits until the log has looked at its reader, which is after each interval. */
static void wait_for_error(strata_stack *stack, int error)
{
    for (unsigned turn = 0; turn < test_timeout(20) * 200; turn++) {
        if (value(stack, "logging.write_error") == (uint64_t)error)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    fail_msg("the error %d does not come", error);
}

static void a_reader_that_comes_after_one_that_left_in_silence_begins_with_a_header(void **state)
{
    (void)state;
    piped *got = calloc(1, sizeof *got);
    assert_non_null(got);
    assert_int_equal(mkfifo(in_folder("pipe").text, 0600), 0);
    int reader = open_reader("pipe");
    strata_stack *stack = make_stack("pipe", ", uses=off, interval=1ms");
    fill(stack, 10);
    close(reader);
    wait_for_error(stack, EPIPE);                    /* nothing was recorded meanwhile */
    reader = open(in_folder("pipe").text, O_RDONLY); /* which waits for the log, and not for a record */
    assert_true(reader >= 0 && fcntl(reader, F_SETFL, O_NONBLOCK) == 0);
    fill(stack, 20);
    read_some(reader, got, PIPE_ROOM);
    check_whole(got, 40, 0);
    assert_int_equal(value(stack, "logging.dropped_records"), 0);
    check_ok(strata_stack_destroy(stack));
    close(reader);
    free(got);
}

/* ---- a process that exits or forks while its log is written ---- */

static void *record_for_ever(void *data)
{
    strata_block block;
    for (size_t i = 1;; i++)
        if (strata_resource_allocate(data, &(strata_request){.bytes = i % 9999 + 1}, &block) != STRATA_SUCCESS ||
            strata_resource_deallocate(data, &block, NULL) != STRATA_SUCCESS)
            return NULL;
}

static strata_stack *busy_stack(void)
{
    static strata_stack *stack; /* never ended */
    pthread_t thread;
    uint64_t written = 0;
    stack = child_stack(", interval=100us, ring=1024, rotate=16KiB, keep=20");
    for (int i = 0; i < 2; i++) {
        child_check(pthread_create(&thread, NULL, record_for_ever, strata_stack_top(stack)) == 0);
        child_check(pthread_detach(thread) == 0);
    }
    while (written < 100000) { /* several files */
        child_ok(strata_logging_flush(strata_stack_top(stack)));
        child_ok(strata_control(stack, "logging.written_bytes", &written, NULL));
    }
    return stack;
}

static void exits_while_it_records(void)
{
    busy_stack();
}

static void forks_while_it_records(void)
{
    strata_stack *stack = busy_stack();
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        child_check(child >= 0);
        if (child == 0) {
            child_status(strata_logging_flush(strata_stack_top(stack)), STRATA_ERROR_FORKED);
            exit(0);
        }
        int status;
        child_check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    child_ok(strata_logging_flush(strata_stack_top(stack)));
}

static void check_readable(const char *file)
{
    log_contents log = read_log(file);
    for (size_t i = 0; i < log.count; i++) /* of two threads, and nothing strange among them */
        assert_in_range(log.records[i].requested, 1, 9999);
    log_contents_free(&log);
}

static void the_log_of_a_process_that_exits_or_forks_while_it_records_can_be_read(void **state)
{
    (void)state;
    static const char *const scenarios[] = {"exits_while_it_records", "forks_while_it_records"};
    for (size_t i = 0; i < 2; i++) {
        char log_name[PATH_ROOM + 32], numbered[32];
        snprintf(numbered, sizeof numbered, "busy%zu.slog", i);
        log_variable(numbered, log_name);
        test_child_run(scenarios[i], (const char *const[]){log_name, NULL});
        check_readable(numbered);
        strcat(numbered, ".1");
        check_readable(numbered);
    }
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(writes_until_killed),
        TEST_SCENARIO(leaves_a_child_behind),
        TEST_SCENARIO(exits_while_it_records),
        TEST_SCENARIO(forks_while_it_records),
        TEST_SCENARIO(exits_with_a_line_half_written),
        TEST_SCENARIO(may_write_no_file),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    setenv("STRATA_DRIVER", "auto", 0);
    test_open_driver();
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_rotation_that_can_make_no_file_leaves_all_files_where_they_are),
        IN_FOLDER(a_number_that_cannot_be_moved_stops_those_before_it),
        IN_FOLDER(files_move_up_to_the_first_number_that_is_free),
        IN_FOLDER(a_file_that_somebody_else_put_in_the_place_is_not_touched),
        IN_FOLDER(a_file_that_a_killed_log_left_half_made_is_no_hindrance),
        IN_FOLDER(what_others_have_under_the_name_of_the_next_file_stays_theirs),
        IN_FOLDER(a_file_that_another_process_writes_is_refused_until_it_is_gone),
        IN_FOLDER(a_forked_child_does_not_keep_the_file_of_its_parent),
        IN_FOLDER(a_stack_that_comes_to_nothing_leaves_no_log_and_harms_none),
        IN_FOLDER(a_process_that_may_write_no_file_is_refused_and_lives_on),
        IN_FOLDER(a_layer_that_was_never_built_into_a_stack_leaves_no_log),
        IN_FOLDER(a_stack_that_records_nothing_has_its_file_all_the_same),
        IN_FOLDER(the_reader_of_a_pipe_gets_whole_batches_however_slow_it_is),
        IN_FOLDER(the_reader_of_a_pipe_gets_whole_lines_however_slow_it_is),
        IN_FOLDER(a_pipe_that_nobody_reads_is_refused_and_that_is_said),
        IN_FOLDER(a_new_reader_of_a_pipe_begins_with_a_header_and_none_is_no_harm),
        IN_FOLDER(a_reader_that_comes_after_one_that_left_in_silence_begins_with_a_header),
        IN_FOLDER(a_process_that_exits_ends_the_line_that_its_reader_is_late_for),
        IN_FOLDER(the_log_of_a_process_that_exits_or_forks_while_it_records_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
