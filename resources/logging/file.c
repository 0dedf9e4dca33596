/* The file sinks: names, files that are there already, rotation, and writing without holes.
 *
 * Each piece is written at the place where the last one ended, so that what an earlier write left half done, on a disk
 * that was full, is overwritten or cut off, and never in the middle of the file. */
#include "core/error.h"
#include "core/memory.h"
#include "resources/logging/binary.h"
#include "resources/logging/csv.h"
#include "resources/logging/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_ROOM = 512, KEEP = 4 };

typedef struct file_sink {
    log_sink sink;
    int descriptor;
    bool csv;
    bool regular;    /* has places to write at, and can be renamed */
    uint64_t end;    /* bytes that are good */
    uint64_t rotate; /* 0: never */
    uint64_t keep;
    int device;
    log_encoder encoder;
    char path[NAME_ROOM];
    unsigned char buffer[LOG_BATCH_ROOM];
} file_sink;

static const char *reason(int error, char *text, size_t size)
{
    return strerror_r(error, text, size);
}

/* ---- writing ---- */

static bool put(file_sink *self, const void *bytes, size_t count)
{
    size_t done = 0;
    while (done < count) {
        const char *from = (const char *)bytes + done;
        ssize_t wrote = self->regular ? pwrite(self->descriptor, from, count - done, (off_t)(self->end + done))
                                      : write(self->descriptor, from, count - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            atomic_store_explicit(&self->sink.error, wrote < 0 ? errno : ENOSPC, memory_order_relaxed);
            if (self->regular && done && ftruncate(self->descriptor, (off_t)self->end) != 0)
                return false; /* the next piece goes over it */
            return false;
        }
        done += (size_t)wrote;
    }
    self->end += count;
    atomic_fetch_add_explicit(&self->sink.written_bytes, count, memory_order_relaxed);
    return true;
}

static uint64_t wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool put_header(file_sink *self)
{
    static const char columns[] = LOG_CSV_HEADER "\n";
    if (self->csv)
        return put(self, columns, sizeof columns - 1);
    unsigned char header[LOG_FILE_HEADER];
    log_encode_header(&self->encoder, self->device, wall_clock(), header);
    return put(self, header, sizeof header);
}

/* ---- rotation ---- */

static void name_of(const file_sink *self, uint64_t number, char name[NAME_ROOM + 24])
{
    if (number)
        snprintf(name, NAME_ROOM + 24, "%s.%llu", self->path, (unsigned long long)number);
    else
        snprintf(name, NAME_ROOM + 24, "%s", self->path);
}

/* Moves each file one number on, over the oldest one. False with errno if the newest stays where it is. */
static bool rename_files(const file_sink *self)
{
    char from[NAME_ROOM + 24], to[NAME_ROOM + 24];
    for (uint64_t number = self->keep; number-- > 0;) {
        name_of(self, number, from);
        name_of(self, number + 1, to);
        if (rename(from, to) != 0 && number == 0)
            return false;
    }
    return true;
}

/* A new file under the name, which nobody else writes to; -1 with errno. */
static int make_file(const file_sink *self)
{
    int descriptor = open(self->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor >= 0)
        flock(descriptor, LOCK_EX | LOCK_NB); /* where a file system has no locks, nobody is kept away */
    return descriptor;
}

/* Where a new file cannot be made, the log stays in the old one, under its old name if that is possible. */
static void rotate_if_full(file_sink *self)
{
    char first[NAME_ROOM + 24];
    if (!self->rotate || !self->regular || self->end < self->rotate)
        return;
    int made = rename_files(self) ? make_file(self) : -1;
    if (made < 0) {
        atomic_store_explicit(&self->sink.error, errno, memory_order_relaxed);
        name_of(self, 1, first);
        if (access(self->path, F_OK) != 0)
            rename(first, self->path);
        return;
    }
    close(self->descriptor);
    self->descriptor = made;
    self->end = 0;
}

/* ---- records ---- */

/* A file that could not be begun is begun with the next records. */
static bool begin_file(file_sink *self)
{
    rotate_if_full(self);
    return self->end > 0 || put_header(self);
}

static size_t write_binary(file_sink *self, const strata_log_record *records, size_t count)
{
    size_t bytes, taken = log_encode_batch(&self->encoder, records, count, self->sink.stack_text, self->sink.dropped,
                                           self->buffer, &bytes);
    if (put(self, self->buffer, bytes))
        return taken;
    memset(&self->encoder, 0, sizeof self->encoder); /* what it defined is not in the file */
    return 0;
}

static size_t write_csv(file_sink *self, const strata_log_record *records, size_t count)
{
    size_t bytes = 0, taken = 0;
    while (taken < count && bytes + LOG_CSV_ROOM <= sizeof self->buffer) {
        const strata_log_record *record = &records[taken++];
        bytes += log_csv_line(record, strata_tag_name(record->tag), (char *)self->buffer + bytes);
    }
    return put(self, self->buffer, bytes) ? taken : 0;
}

static size_t file_write(log_sink *sink, const strata_log_record *records, size_t count)
{
    file_sink *self = (file_sink *)sink;
    size_t taken = 0;
    while (taken < count) {
        if (!begin_file(self))
            return taken;
        size_t more = self->csv ? write_csv(self, records + taken, count - taken)
                                : write_binary(self, records + taken, count - taken);
        if (!more)
            return taken;
        taken += more;
    }
    return taken;
}

static void file_close(log_sink *sink)
{
    close(((file_sink *)sink)->descriptor);
    strata_host_free(sink);
}

static const log_sink_ops file_ops = {file_write, file_close};

/* ---- opening ---- */

/* What stands for a letter behind a '%'. False if nothing does. */
static bool put_part(const file_sink *self, char letter, int turn, char part[16])
{
    switch (letter) {
    case '%':
        strcpy(part, "%");
        return true;
    case 'p':
        snprintf(part, 16, "%d", (int)getpid());
        return true;
    case 'd':
        snprintf(part, 16, "%d", self->device);
        return true;
    case 'n':
        snprintf(part, 16, "%d", turn);
        return true;
    default:
        return false;
    }
}

static strata_status make_path(file_sink *self, const char *given)
{
    static _Atomic int turns; /* log files of this process; any thread */
    const int turn = atomic_fetch_add(&turns, 1) + 1;
    size_t length = 0;
    for (const char *c = *given ? given : "strata-%p.%n.slog"; *c; c++) {
        char part[16] = {*c};
        if (*c == '%' && !put_part(self, *++c, turn, part))
            return strata_fail(STRATA_ERROR_INVALID_VALUE,
                               "logging: the file \"%s\" has a %% at character %zu that is not %%p (process), %%d "
                               "(device), %%n (number of the log) or %%%%",
                               given, (size_t)(c - given));
        length += (size_t)snprintf(self->path + length, sizeof self->path - length, "%s", part);
        if (length >= sizeof self->path)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "logging: the name of the file has more than %zu bytes",
                               sizeof self->path - 1);
    }
    return STRATA_SUCCESS;
}

static strata_status refuse_file(const file_sink *self, int error)
{
    char text[128];
    return strata_fail(STRATA_ERROR_IO, "logging: %s: %s", self->path, reason(error, text, sizeof text));
}

static strata_status refuse_existing(const file_sink *self)
{
    return strata_fail(STRATA_ERROR_IO,
                       "logging: %s: there is such a file already; say existing=rotate or existing=replace, or put %%p "
                       "(the process) into the name",
                       self->path);
}

/* The policy for a regular file that is there and open. */
static strata_status take_over(file_sink *self, strata_log_existing existing)
{
    if (flock(self->descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return strata_fail(
            STRATA_ERROR_BUSY,
            "logging: %s: another log is writing to this file; put %%p (the process) or %%d (the device) "
            "into the name",
            self->path);
    switch (existing) {
    case STRATA_LOG_EXISTING_ROTATE: {
        int made = rename_files(self) ? make_file(self) : -1;
        if (made < 0)
            return refuse_file(self, errno);
        close(self->descriptor);
        self->descriptor = made;
        return STRATA_SUCCESS;
    }
    case STRATA_LOG_EXISTING_REPLACE:
        return ftruncate(self->descriptor, 0) == 0 ? STRATA_SUCCESS : refuse_file(self, errno);
    default:
        return refuse_existing(self);
    }
}

static int standard_stream(const char *path)
{
    if (strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    return strcmp(path, "/dev/stderr") == 0 ? STDERR_FILENO : -1;
}

static strata_status open_file(file_sink *self, strata_log_existing existing)
{
    struct stat is;
    int standard = standard_stream(self->path);
    if (standard >= 0) {
        self->descriptor = fcntl(standard, F_DUPFD_CLOEXEC, 3);
        return self->descriptor >= 0 ? STRATA_SUCCESS : refuse_file(self, errno);
    }
    self->regular = true;
    self->descriptor = make_file(self);
    if (self->descriptor >= 0)
        return STRATA_SUCCESS;
    if (errno == EEXIST) /* not to wait for the reader of a pipe */
        self->descriptor = open(self->path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (self->descriptor < 0 || fstat(self->descriptor, &is) != 0)
        return refuse_file(self, errno);
    self->regular = S_ISREG(is.st_mode);
    return self->regular ? take_over(self, existing) : STRATA_SUCCESS;
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

strata_status log_sink_file(const strata_logging_options *options, int device, log_sink **out)
{
    *out = NULL;
    file_sink *self = strata_host_zalloc(sizeof *self);
    if (!self)
        return strata_fail_host_memory("the file of a log");
    self->sink.ops = &file_ops;
    self->sink.path = self->path;
    self->descriptor = -1;
    self->csv = is_csv(options);
    self->rotate = options->rotate;
    self->keep = options->keep ? options->keep : KEEP;
    self->device = device;
    strata_status status = make_path(self, options->file);
    if (status == STRATA_SUCCESS)
        status = open_file(self, policy(options));
    if (status == STRATA_SUCCESS && !put_header(self))
        status = refuse_file(self, atomic_load(&self->sink.error));
    if (status == STRATA_SUCCESS) {
        *out = &self->sink;
        return STRATA_SUCCESS;
    }
    if (self->descriptor >= 0)
        close(self->descriptor);
    strata_host_free(self);
    return status;
}
