/* The file sink: rotation, and writing without gaps.
 *
 * A piece is a header or a batch. In a regular file it goes after the last complete piece, over what a failed write
 * (full disk) left. In a pipe the rest of a partly written piece is kept and goes first; a piece that cannot begin is
 * dropped.
 *
 * An existing file is unchanged until the stack is built and there is something to write. */
#include "core/base/descriptor_mark.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/lock.h"
#include "core/base/output_file.h"
#include "resources/logging/binary.h"
#include "resources/logging/csv.h"
#include "resources/logging/rotation.h"
#include "resources/logging/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    KEEP = 4,
    HEADER_ROOM = 512,
    WAIT_MS = 100,      /* wait for a pipe's reader, once until it reads */
    LAST_WAIT_MS = 1000 /* wait for a remainder, when the log ends */
};

/* Used by the writer alone, except at opening and closing. */
typedef struct file_sink {
    log_sink sink;
    log_path path;
    int descriptor;                         /* -1: a pipe without a reader; written with files_lock held */
    int next;                               /* file to install; -1: none; written with files_lock held */
    strata_descriptor_mark mark, next_mark; /* of the two files; likewise */
    bool truncates;                         /* the file is emptied before the first write */
    bool made;                              /* created by this sink */
    bool csv;
    bool regular;    /* has positions, can be renamed */
    bool stuck;      /* the reader was too slow */
    uint64_t end;    /* bytes of complete pieces */
    uint64_t rotate; /* size limit; 0: never */
    uint64_t retry;  /* size for the next try after a failed rotation */
    int device;
    size_t remainder_at, remainder; /* rest of a begun piece in the buffer */
    size_t remainder_records;       /* records in it */
    struct file_sink *next_file;    /* list; guarded by files_lock */
    log_encoder encoder;
    unsigned char buffer[LOG_BATCH_ROOM];
} file_sink;

/* ---- forks ---- */

/* A forked child closes the files, or they would stay locked and pipes open. No fork while a descriptor changes. */
static strata_lock files_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_LOG_FILES);
static file_sink *files; /* guarded by files_lock */

/* Bypasses lock ranks: fork handlers have their own order. The lock's holder waits for nothing. */
static void before_fork(void)
{
    pthread_mutex_lock(&files_lock.mutex);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&files_lock.mutex);
}

/* Leaves a file of the program alone that has the number. */
static void close_if_marked(int descriptor, const strata_descriptor_mark *mark)
{
    if (strata_descriptor_is_marked(descriptor, mark))
        close(descriptor);
}

static void in_child(void)
{
    for (const file_sink *file = files; file; file = file->next_file) {
        close_if_marked(file->next, &file->next_mark);
        close_if_marked(file->descriptor, &file->mark);
    }
    files = NULL; /* the parent's */
    after_fork();
}

static bool watched; /* written once, before watch_once is done */
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;

static void watch_forks(void)
{
    watched = pthread_atfork(before_fork, after_fork, in_child) == 0;
}

static void leave_files(file_sink *self)
{
    file_sink **at = &files;
    while (*at && *at != self)
        at = &(*at)->next_file;
    if (*at)
        *at = self->next_file;
}

/* ---- counts ---- */

static bool set_error(file_sink *self, int error)
{
    atomic_store_explicit(&self->sink.error, error, memory_order_relaxed);
    return false;
}

static void count_written(file_sink *self, size_t bytes)
{
    self->end += bytes;
    atomic_fetch_add_explicit(&self->sink.written_bytes, bytes, memory_order_relaxed);
}

/* ---- signals ---- */

/* Blocks and consumes the signal of a failed write, unless one was pending: the program does not get it. */
typedef struct blocked_signal {
    sigset_t alone, before;
    bool pending;
} blocked_signal;

static void block_signal(blocked_signal *self, int signal)
{
    sigset_t pending;
    sigemptyset(&self->alone);
    sigaddset(&self->alone, signal);
    sigpending(&pending);
    self->pending = sigismember(&pending, signal);
    pthread_sigmask(SIG_BLOCK, &self->alone, &self->before);
}

static void restore_signals(const blocked_signal *self, bool raised)
{
    int error = errno;
    if (raised && !self->pending)
        while (sigtimedwait(&self->alone, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &self->before, NULL);
    errno = error;
}

/* ---- plain files ---- */

static bool put_in_file(file_sink *self, const void *bytes, size_t count)
{
    size_t done = 0;
    while (done < count) {
        ssize_t wrote = pwrite(self->descriptor, (const char *)bytes + done, count - done, (off_t)(self->end + done));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            set_error(self, wrote < 0 ? errno : ENOSPC);
            if (done && ftruncate(self->descriptor, (off_t)self->end) != 0)
                return false; /* the next piece overwrites it */
            return false;
        }
        done += (size_t)wrote;
    }
    count_written(self, count);
    return true;
}

/* ---- pipes and devices ---- */

/* Gives a reader up that has gone: the next one starts with a header. A named pipe still has what the last reader left,
 * so it is reopened. */
static void lose_reader(file_sink *self, int error)
{
    set_error(self, error);
    atomic_fetch_add_explicit(&self->sink.lost, self->remainder_records, memory_order_relaxed);
    self->remainder = self->remainder_records = 0;
    self->end = 0;
    self->encoder.text = false;
    struct stat is;
    if (error != EPIPE || fstat(self->descriptor, &is) != 0 || !S_ISFIFO(is.st_mode) ||
        strata_output_descriptor(self->path.text) >= 0)
        return;
    strata_lock_take(&files_lock);
    close(self->descriptor);
    self->descriptor = -1;
    strata_lock_release(&files_lock);
}

static ssize_t write_without_sigpipe(int descriptor, const void *bytes, size_t count)
{
    blocked_signal without;
    block_signal(&without, SIGPIPE);
    ssize_t wrote = write(descriptor, bytes, count);
    restore_signals(&without, wrote < 0 && errno == EPIPE);
    return wrote;
}

/* Returns what fitted; if less, sets errno. Writes at most what a ready pipe takes: only poll waits. */
static size_t write_to_stream(file_sink *self, const unsigned char *bytes, size_t count, int wait_ms)
{
    size_t done = 0;
    while (done < count) {
        struct pollfd room = {.fd = self->descriptor, .events = POLLOUT};
        int ready = poll(&room, 1, self->stuck ? 0 : wait_ms);
        if (ready < 0 && errno == EINTR)
            continue;
        size_t most = count - done < PIPE_BUF ? count - done : PIPE_BUF;
        ssize_t wrote = ready > 0 ? write_without_sigpipe(self->descriptor, bytes + done, most) : 0;
        if (wrote < 0 && errno == EINTR)
            continue;
        self->stuck = wrote == 0 || (wrote < 0 && errno == EAGAIN);
        if (wrote == 0)
            errno = EAGAIN;
        if (wrote <= 0)
            break;
        done += (size_t)wrote;
    }
    return done;
}

/* Writes the rest of a begun piece. False while something is left. */
static bool put_remainder(file_sink *self, int wait_ms)
{
    if (!self->remainder)
        return true;
    size_t done = write_to_stream(self, self->buffer + self->remainder_at, self->remainder, wait_ms);
    int error = errno;
    count_written(self, done);
    self->remainder_at += done;
    self->remainder -= done;
    if (!self->remainder) {
        self->remainder_records = 0;
        return true;
    }
    if (error == EAGAIN)
        return set_error(self, error);
    lose_reader(self, error);
    return false;
}

static bool put_in_stream(file_sink *self, const void *bytes, size_t count, size_t records)
{
    size_t done = write_to_stream(self, bytes, count, WAIT_MS);
    int error = errno;
    if (done == count) {
        count_written(self, count);
        return true;
    }
    if (error != EAGAIN) {
        lose_reader(self, error);
        return false;
    }
    if (!done)
        return set_error(self, error);
    count_written(self, done);
    memmove(self->buffer, (const char *)bytes + done, count - done);
    self->remainder_at = 0;
    self->remainder = count - done;
    self->remainder_records = records;
    return true;
}

static int open_pipe(const file_sink *self)
{
    struct stat is;
    int descriptor = strata_output_open(self->path.text, O_WRONLY | O_NONBLOCK, 0);
    if (descriptor < 0 || (fstat(descriptor, &is) == 0 && S_ISFIFO(is.st_mode)))
        return descriptor;
    close(descriptor);
    errno = ENXIO;
    return -1;
}

static bool reopen_pipe(file_sink *self)
{
    strata_lock_take(&files_lock);
    self->descriptor = open_pipe(self);
    self->mark = strata_descriptor_mark_of(self->descriptor);
    strata_lock_release(&files_lock);
    self->stuck = false;
    return self->descriptor >= 0;
}

/* ---- pieces ---- */

static bool put(file_sink *self, const void *bytes, size_t count, size_t records)
{
    return self->regular ? put_in_file(self, bytes, count) : put_in_stream(self, bytes, count, records);
}

static uint64_t wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static size_t make_header(file_sink *self, unsigned char header[HEADER_ROOM])
{
    static const char columns[] = LOG_CSV_HEADER "\n";
    _Static_assert(sizeof columns <= (size_t)HEADER_ROOM && (size_t)LOG_FILE_HEADER <= (size_t)HEADER_ROOM, "room");
    if (self->csv) {
        memcpy(header, columns, sizeof columns - 1);
        return sizeof columns - 1;
    }
    log_encode_header(&self->encoder, self->device, wall_clock(), header);
    return LOG_FILE_HEADER;
}

static bool put_header(file_sink *self)
{
    unsigned char header[HEADER_ROOM];
    return put(self, header, make_header(self, header), 0);
}

/* ---- another file ---- */

static int create_next(file_sink *self)
{
    unsigned char header[HEADER_ROOM];
    blocked_signal without;
    block_signal(&without, SIGXFSZ);
    int next = log_path_create_next(&self->path, header, make_header(self, header));
    restore_signals(&without, next < 0 && errno == EFBIG);
    return next;
}

static void go_on_in(file_sink *self, int next)
{
    unsigned char header[HEADER_ROOM];
    close(self->descriptor);
    self->descriptor = next;
    self->mark = strata_descriptor_mark_of(next);
    self->end = self->retry = 0;
    count_written(self, make_header(self, header)); /* already in the file */
}

/* Removes the next file. It stays locked until its name is gone: no other log's file is removed. */
static void drop_next(const file_sink *self, int next)
{
    log_path_remove_next(&self->path);
    close(next);
}

static bool rotate(file_sink *self)
{
    int next = create_next(self);
    if (next >= 0 && log_path_install_next(&self->path, self->descriptor)) {
        go_on_in(self, next);
        return true;
    }
    set_error(self, errno);
    if (next >= 0)
        drop_next(self, next);
    return false;
}

/* Rotates a file that has reached its size; after a failure the log stays in it. */
static void rotate_if_full(file_sink *self)
{
    if (!self->rotate || !self->regular || self->end < self->rotate || self->end < self->retry)
        return;
    strata_lock_take(&files_lock);
    bool rotated = rotate(self);
    strata_lock_release(&files_lock);
    if (!rotated)
        self->retry = self->end + self->rotate / 8 + 1;
}

static bool install_next(file_sink *self)
{
    strata_lock_take(&files_lock);
    bool put = log_path_install_next(&self->path, self->descriptor);
    if (put) {
        go_on_in(self, self->next);
        self->next = -1;
    }
    strata_lock_release(&files_lock);
    return put;
}

/* Gives a replaced file the mode of a new one, unless another user owns it, and with it the choice of its readers. */
static void set_mode(const file_sink *self)
{
    struct stat is;
    if (fstat(self->descriptor, &is) == 0 && is.st_uid == geteuid())
        (void)fchmod(self->descriptor, self->path.mode ? self->path.mode : S_IRUSR | S_IWUSR);
}

/* ---- descriptors that the program closes ---- */

/* Opens the log's file again by its name. -1: another file has the name, or another log the file. What has the name now
 * is not opened before it is known: the reader of a pipe would take the end of that for the end of its writer. */
static int open_again(const file_sink *self)
{
    bool regular;
    struct stat is;
    if (lstat(self->path.text, &is) != 0 || !S_ISREG(is.st_mode) || is.st_dev != self->mark.device ||
        is.st_ino != self->mark.inode)
        return -1;
    const int descriptor = log_path_open(&self->path, &regular);
    if (strata_descriptor_is_marked(descriptor, &self->mark))
        return descriptor;
    if (descriptor >= 0)
        close(descriptor);
    return -1;
}

/* With files_lock held. A number that is not the next file's stays, so that the name is not taken without it. */
static bool find_next_again(file_sink *self)
{
    if (self->next < 0 || strata_descriptor_is_marked(self->next, &self->next_mark))
        return true;
    const int next = create_next(self);
    if (next < 0)
        return false;
    self->next = next;
    self->next_mark = strata_descriptor_mark_of(next);
    return true;
}

static bool find_file_again(file_sink *self)
{
    strata_lock_take(&files_lock);
    if (!strata_descriptor_is_marked(self->descriptor, &self->mark))
        self->descriptor = open_again(self);
    const bool found = self->descriptor >= 0 && find_next_again(self);
    strata_lock_release(&files_lock);
    return found;
}

/* A named pipe is opened again by the next piece. */
static bool find_pipe_again(file_sink *self)
{
    if (self->descriptor < 0 || strata_descriptor_is_marked(self->descriptor, &self->mark))
        return true;
    lose_reader(self, EBADF);
    if (strata_output_descriptor(self->path.text) >= 0)
        return false;
    strata_lock_take(&files_lock);
    self->descriptor = -1;
    strata_lock_release(&files_lock);
    return true;
}

/* Finds the log's file if the program has closed its descriptor. False, with the error set: it is not to be had. */
static bool find_again(file_sink *self)
{
    return (self->regular ? find_file_again(self) : find_pipe_again(self)) || set_error(self, EBADF);
}

/* Takes the name, by the policy for existing files. */
static bool claim_path(file_sink *self)
{
    if (self->truncates) {
        if (ftruncate(self->descriptor, 0) != 0)
            return set_error(self, errno);
        set_mode(self);
        self->truncates = false;
    }
    return self->next < 0 || install_next(self) || set_error(self, errno);
}

/* ---- records ---- */

/* Makes the file ready for a piece: writes what is left of the last one, rotates, and writes a missing header. False:
 * it cannot begin. */
static bool begin_piece(file_sink *self)
{
    if (!find_again(self) || !put_remainder(self, WAIT_MS) || !claim_path(self))
        return false;
    rotate_if_full(self);
    if (self->descriptor < 0 && !reopen_pipe(self))
        return set_error(self, errno);
    return (self->end > 0 || put_header(self)) && put_remainder(self, WAIT_MS);
}

static size_t write_binary(file_sink *self, const strata_log_record *records, size_t count)
{
    size_t bytes, taken = log_encode_batch(&self->encoder, records, count, self->sink.stack_text, self->sink.dropped,
                                           self->buffer, &bytes);
    if (put(self, self->buffer, bytes, taken))
        return taken;
    self->encoder.text = false; /* it may not have been written */
    return 0;
}

static size_t write_csv(file_sink *self, const strata_log_record *records, size_t count)
{
    size_t bytes = 0, taken = 0;
    while (taken < count && bytes + LOG_CSV_ROOM <= sizeof self->buffer) {
        const strata_log_record *record = &records[taken++];
        bytes += log_csv_line(record, strata_tag_name(record->tag), (char *)self->buffer + bytes);
    }
    return put(self, self->buffer, bytes, taken) ? taken : 0;
}

static size_t file_write(log_sink *sink, const strata_log_record *records, size_t count)
{
    file_sink *self = (file_sink *)sink;
    size_t taken = 0;
    while (taken < count) {
        if (!begin_piece(self))
            return taken;
        size_t more = self->csv ? write_csv(self, records + taken, count - taken)
                                : write_binary(self, records + taken, count - taken);
        if (!more)
            return taken;
        taken += more;
    }
    return taken;
}

/* A reader that comes between writes gets a header: the pipe is reopened before there are records. */
static void file_poll(log_sink *sink)
{
    file_sink *self = (file_sink *)sink;
    struct stat is;
    if (self->regular || strata_output_descriptor(self->path.text) >= 0 || lstat(self->path.text, &is) != 0 ||
        !S_ISFIFO(is.st_mode) || !find_again(self))
        return;
    struct pollfd reader = {.fd = self->descriptor}; /* POLLERR: none */
    if (self->descriptor >= 0 && poll(&reader, 1, 0) > 0 && reader.revents & POLLERR)
        lose_reader(self, EPIPE);
    if (self->descriptor < 0 && reopen_pipe(self))
        put_header(self);
}

/* Ignores errors: the first record reports them. */
static void file_flush(log_sink *sink)
{
    file_sink *self = (file_sink *)sink;
    if (find_again(self) && claim_path(self) && self->regular && self->end == 0)
        put_header(self);
}

static void file_finish(log_sink *sink)
{
    file_sink *self = (file_sink *)sink;
    file_flush(sink);
    self->stuck = false;
    put_remainder(self, LAST_WAIT_MS);
}

static void file_close(log_sink *sink, bool built)
{
    file_sink *self = (file_sink *)sink;
    strata_lock_take(&files_lock);
    if (!built && self->made)
        log_path_remove(&self->path, self->descriptor);
    if (strata_descriptor_is_marked(self->next, &self->next_mark))
        drop_next(self, self->next);
    close_if_marked(self->descriptor, &self->mark);
    leave_files(self);
    strata_lock_release(&files_lock);
    strata_host_free(self);
}

static const log_sink_ops file_ops = {file_write, file_poll, file_flush, file_finish, file_close};

/* ---- opening ---- */

static strata_status refuse_file(const file_sink *self, int error)
{
    char text[128];
    if (error == EBUSY)
        return strata_fail(
            STRATA_ERROR_BUSY,
            "logging: %s: another log is writing to this file; add %%p (the process) or %%d (the device) to the name",
            self->path.text);
    if (error == ENXIO)
        return strata_fail(STRATA_ERROR_IO,
                           "logging: %s: a pipe without a reader, or a missing device; start the reader first",
                           self->path.text);
    return strata_fail(STRATA_ERROR_IO, "logging: %s: %s", self->path.text,
                       strata_output_error(error, text, sizeof text));
}

static strata_status refuse_existing(const file_sink *self)
{
    return strata_fail(
        STRATA_ERROR_IO,
        "logging: %s: the file exists; set existing=rotate or existing=replace, or add %%p (the process) to the name",
        self->path.text);
}

/* Whether the file has several names: to empty it would empty it under the others, too. */
static bool has_several_names(const file_sink *self)
{
    struct stat is;
    return fstat(self->descriptor, &is) == 0 && is.st_nlink > 1;
}

/* Applies the policy to an existing regular file, which is open and locked. */
static strata_status find_way_past(file_sink *self, strata_log_existing existing)
{
    switch (existing) {
    case STRATA_LOG_EXISTING_ROTATE:
        strata_lock_take(&files_lock);
        self->next = create_next(self);
        self->next_mark = strata_descriptor_mark_of(self->next);
        strata_lock_release(&files_lock);
        if (self->next < 0 && errno == EEXIST)
            return strata_fail(STRATA_ERROR_IO,
                               "logging: %s.new: File exists; rotation needs this name, move that file away",
                               self->path.text);
        return self->next >= 0 ? STRATA_SUCCESS : refuse_file(self, errno);
    case STRATA_LOG_EXISTING_REPLACE:
        self->truncates = true;
        return has_several_names(self) ? refuse_file(self, EMLINK) : STRATA_SUCCESS;
    default:
        return refuse_existing(self);
    }
}

static int open_path(file_sink *self)
{
    int standard = strata_output_descriptor(self->path.text);
    if (standard >= 0)
        return fcntl(standard, F_DUPFD_CLOEXEC, 3);
    int descriptor = log_path_create(&self->path);
    self->made = self->regular = descriptor >= 0;
    return descriptor < 0 && errno == EEXIST ? log_path_open(&self->path, &self->regular) : descriptor;
}

static strata_status open_file(file_sink *self, strata_log_existing existing)
{
    strata_lock_take(&files_lock);
    self->descriptor = open_path(self);
    self->mark = strata_descriptor_mark_of(self->descriptor);
    self->next_file = files;
    files = self;
    strata_lock_release(&files_lock);
    if (self->descriptor < 0)
        return refuse_file(self, errno);
    return self->made || !self->regular ? STRATA_SUCCESS : find_way_past(self, existing);
}

static strata_log_existing policy(const strata_logging_options *options)
{
    if (options->existing != STRATA_LOG_EXISTING_AUTO)
        return (strata_log_existing)options->existing;
    return options->rotate ? STRATA_LOG_EXISTING_ROTATE : STRATA_LOG_EXISTING_REFUSE;
}

static bool is_csv(const strata_logging_options *options)
{
    size_t length = strlen(options->file);
    bool named = length >= 4 && strcmp(options->file + length - 4, ".csv") == 0;
    return options->format == STRATA_LOG_CSV || (options->format == STRATA_LOG_AUTO && named);
}

/* Writes the first header, on the creating thread. */
static strata_status put_first_header(file_sink *self)
{
    blocked_signal without;
    block_signal(&without, SIGXFSZ);
    bool put = put_header(self);
    int error = put ? 0 : atomic_load(&self->sink.error);
    restore_signals(&without, error == EFBIG);
    return put ? STRATA_SUCCESS : refuse_file(self, error);
}

strata_status log_sink_file(const strata_logging_options *options, int device, log_sink **out)
{
    *out = NULL;
    pthread_once(&watch_once, watch_forks);
    file_sink *self = watched ? strata_host_zalloc(sizeof *self) : NULL;
    if (!self)
        return strata_fail_host_memory("the file of a log");
    self->sink.ops = &file_ops;
    self->sink.path = self->path.text;
    self->descriptor = self->next = -1;
    self->csv = is_csv(options);
    self->rotate = options->rotate;
    self->path.keep = options->keep ? options->keep : KEEP;
    self->path.mode = (mode_t)options->mode;
    self->device = device;
    strata_status status = log_path_expand(&self->path, options->file, device);
    if (status == STRATA_SUCCESS)
        status = open_file(self, policy(options));
    if (status == STRATA_SUCCESS && (self->made || !self->regular))
        status = put_first_header(self);
    if (status == STRATA_SUCCESS) {
        *out = &self->sink;
        return STRATA_SUCCESS;
    }
    file_close(&self->sink, false);
    return status;
}
