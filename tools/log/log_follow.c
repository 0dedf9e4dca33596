/* Following a log.
 *
 * Whole batches are taken. A partial batch is read again from its beginning, since a writer that met a full disk writes
 * something else there. When the name belongs to another file, the old one is complete: it is read to its end, then the
 * file with the next lower number: NAME.2, NAME.1, NAME. If rotation removed our file before that, the next file is the
 * oldest one begun after it. */
#include "tools/log/log_follow.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 50, PATH_ROOM = 4096 };

typedef struct follower {
    const char *path;
    const log_follow_sink *sink;
    int descriptor;
    uint64_t at; /* offset in the file */
    unsigned char header[LOG_FILE_HEADER];
    log_decoder *decoder;
    log_contents contents;
    uint64_t said, damages;
    unsigned char *room;
} follower;

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* The first signal ends the following, the second one the program. Only the sleep ends, printing continues. */
static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    interrupted = 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static bool say(const follower *self, const char *text)
{
    self->sink->say(self->path, text, self->sink->data);
    return false;
}

/* ---- one file ---- */

static void close_if_open(int descriptor)
{
    if (descriptor >= 0)
        close(descriptor);
}

static void end_file(follower *self)
{
    close_if_open(self->descriptor);
    log_decoder_free(self->decoder);
    log_contents_free(&self->contents);
    self->descriptor = -1;
    self->decoder = NULL;
}

static bool begin_file(follower *self)
{
    log_decoder_free(self->decoder);
    log_contents_free(&self->contents);
    self->decoder = log_decoder_make(&self->contents, UINT64_MAX);
    self->at = self->said = 0;
    return self->decoder ? true : say(self, "out of host memory");
}

static int open_path(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static bool is_plain(int descriptor)
{
    struct stat is;
    return fstat(descriptor, &is) == 0 && S_ISREG(is.st_mode);
}

static bool is_compressed(int descriptor)
{
    unsigned char begin[2];
    return pread(descriptor, begin, sizeof begin, 0) == 2 && begin[0] == 0x1f && begin[1] == 0x8b;
}

static bool take_file(follower *self, int descriptor)
{
    if (!is_plain(descriptor)) {
        close(descriptor);
        return say(self, "only a regular file can be followed; read a pipe without --follow");
    }
    if (is_compressed(descriptor)) {
        close(descriptor);
        return say(self, "a gzip file cannot be followed; read it without --follow");
    }
    end_file(self);
    self->descriptor = descriptor;
    return begin_file(self);
}

static bool open_file(follower *self)
{
    int descriptor = open_path(self->path);
    return descriptor >= 0 ? take_file(self, descriptor) : say(self, strerror(errno));
}

static void say_damage(follower *self)
{
    for (; self->said < self->contents.damages; self->said++, self->damages++)
        if (self->said < LOG_DAMAGES)
            say(self, self->contents.damage[self->said].text);
}

/* Passes the records that were read on to the sink, in time order. INTERRUPTED: it goes on. */
static log_follow_end pass_on(follower *self)
{
    say_damage(self);
    if (!log_sort(self->contents.records, self->contents.count)) {
        say(self, "out of host memory");
        return LOG_FOLLOW_REFUSED;
    }
    bool goes_on = self->sink->records(&self->contents, self->sink->data);
    self->contents.count = 0;
    return goes_on ? LOG_FOLLOW_INTERRUPTED : LOG_FOLLOW_STOPPED;
}

static ssize_t fill_room(const follower *self)
{
    size_t size = 0;
    while (size < LOG_READ_ROOM) {
        ssize_t got = pread(self->descriptor, self->room + size, LOG_READ_ROOM - size, (off_t)(self->at + size));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return got;
        if (got == 0)
            break;
        size += (size_t)got;
    }
    return (ssize_t)size;
}

/* Whether the file was truncated and rewritten since it was read up to here. */
static bool is_another(const follower *self, size_t size)
{
    unsigned char header[LOG_FILE_HEADER];
    struct stat is;
    if (!self->at && size < sizeof header)
        return false;
    if (fstat(self->descriptor, &is) != 0 || (uint64_t)is.st_size < self->at)
        return true;
    return pread(self->descriptor, header, sizeof header, 0) == (ssize_t)sizeof header &&
           memcmp(header, self->at ? self->header : self->room, sizeof header) != 0;
}

/* Reads what the file has, and passes it on. `last`: the file is complete. INTERRUPTED: there is no more at present. */
static log_follow_end read_file(follower *self, bool last)
{
    for (;;) {
        size_t used;
        log_problem problem;
        ssize_t size = fill_room(self);
        if (size < 0) {
            say(self, strerror(errno));
            return LOG_FOLLOW_REFUSED;
        }
        if (is_another(self, (size_t)size)) {
            if (!begin_file(self))
                return LOG_FOLLOW_REFUSED;
            continue;
        }
        if (size == 0)
            return LOG_FOLLOW_INTERRUPTED;
        bool ends = last && size < LOG_READ_ROOM;
        if (!log_decoder_read(self->decoder, self->room, (size_t)size, ends, &used, &problem)) {
            say(self, problem.text);
            return LOG_FOLLOW_REFUSED;
        }
        if (!self->at && used)
            memcpy(self->header, self->room, sizeof self->header);
        self->at += used;
        log_follow_end end = used ? pass_on(self) : LOG_FOLLOW_INTERRUPTED;
        if (end != LOG_FOLLOW_INTERRUPTED || !used || ends)
            return end;
    }
}

/* ---- the next file ---- */

static bool is_same(int descriptor, int other)
{
    struct stat one, two;
    return fstat(descriptor, &one) == 0 && fstat(other, &two) == 0 && one.st_dev == two.st_dev &&
           one.st_ino == two.st_ino;
}

/* Writes the path of a rotated file: "NAME.3", or NAME for 0. False: it is too long. */
static bool number_path(const follower *self, unsigned number, char path[PATH_ROOM])
{
    int length =
        number ? snprintf(path, PATH_ROOM, "%s.%u", self->path, number) : snprintf(path, PATH_ROOM, "%s", self->path);
    return length > 0 && length < PATH_ROOM;
}

/* When a log was begun, by the wall clock; 0: it has no header. */
static uint64_t begun_at(int descriptor)
{
    unsigned char header[LOG_FILE_HEADER];
    if (!is_plain(descriptor) || pread(descriptor, header, sizeof header, 0) != (ssize_t)sizeof header ||
        memcmp(header, LOG_FILE_MAGIC, 8) != 0)
        return 0;
    return log_get_u64(header + 32);
}

/* Opens the file after ours: going up from NAME, the last one before ours or an older one. Files move upwards: ours is
 * not missed, and a number without a file means nothing. -1 with errno; ENOENT: a file was moved meanwhile. */
static int find_next(const follower *self, unsigned *number)
{
    enum { MOST = 1000, GAP = 3 }; /* upper bound of `keep` */
    char path[PATH_ROOM];
    int next = -1;
    unsigned missing = 0;
    for (unsigned at = 0; at <= MOST && missing < GAP && number_path(self, at, path); at++) {
        int descriptor = open_path(path);
        missing = descriptor < 0 ? missing + 1 : 0;
        if (descriptor < 0 && errno != ENOENT && !at)
            return -1;
        if (descriptor < 0)
            continue;
        if (is_same(self->descriptor, descriptor) || (at && begun_at(descriptor) <= log_get_u64(self->header + 32))) {
            close(descriptor);
            break;
        }
        close_if_open(next);
        next = descriptor;
        *number = at;
    }
    errno = ENOENT;
    return next;
}

static bool open_next(follower *self)
{
    struct stat ours;
    unsigned number = 0;
    int next = find_next(self, &number);
    if (next < 0)
        return errno == ENOENT || say(self, strerror(errno)); /* the next attempt finds it */
    if (number && fstat(self->descriptor, &ours) == 0 && ours.st_nlink == 0) {
        self->damages++;
        say(self, "rotation was faster than the reader: the file being read was removed, and later ones may have been; "
                  "a larger keep helps");
    }
    return take_file(self, next);
}

/* Whether the name belongs to another file now. False while there is no file: a rotation is in progress, or none
 * follows. */
static bool was_rotated(const follower *self)
{
    struct stat ours, named;
    return fstat(self->descriptor, &ours) == 0 && stat(self->path, &named) == 0 &&
           (ours.st_dev != named.st_dev || ours.st_ino != named.st_ino);
}

static log_follow_end follow(follower *self)
{
    for (;;) {
        bool ends = interrupted != 0, rotated = was_rotated(self);
        log_follow_end end = read_file(self, rotated || ends);
        if (end != LOG_FOLLOW_INTERRUPTED)
            return end;
        if (rotated && self->contents.torn)
            say(self, "a rotated file ends with an incomplete batch: the writer was interrupted");
        if (rotated && !open_next(self))
            return LOG_FOLLOW_REFUSED;
        if (rotated)
            continue;
        if (ends)
            return end;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
    }
}

log_follow_end log_follow(const char *path, const log_follow_sink *sink, uint64_t *damages)
{
    follower *self = calloc(1, sizeof *self);
    log_follow_end end = LOG_FOLLOW_REFUSED;
    *damages = 0;
    if (!self)
        return end;
    *self = (follower){.path = path, .sink = sink, .descriptor = -1, .room = malloc(LOG_READ_ROOM)};
    if (!self->room)
        say(self, "out of host memory");
    else {
        watch_signals();
        end = open_file(self) ? follow(self) : LOG_FOLLOW_REFUSED;
    }
    *damages = self->damages;
    end_file(self);
    free(self->room);
    free(self);
    return end;
}
