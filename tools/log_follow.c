/* Following a log.
 *
 * Whole batches are taken from where the last one ended; a part of one is left for the next look, and read again from
 * its beginning, since a writer that met a full disk writes something else there. When the name belongs to another
 * file, nothing is added to the old one any more: it is read to its end, then the next one, which stands one number
 * below it: NAME.2, NAME.1, NAME. */
#include "tools/log_follow.h"

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

enum { LOOK_MS = 50, ROOM = 4 * LOG_BATCH_BYTES, PATH_ROOM = 4096 };

typedef struct follower {
    const char *path;
    const log_follow_sink *sink;
    int descriptor;
    uint64_t at;                           /* in the file */
    unsigned char header[LOG_FILE_HEADER]; /* of the file, once it was read */
    log_decoder *decoder;                  /* of the file */
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

/* The first signal ends the following, and a second one the program. */
static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static bool say(const follower *self, const char *text)
{
    self->sink->say(self->path, text, self->sink->data);
    return false;
}

/* ---- one file ---- */

static void end_file(follower *self)
{
    if (self->descriptor >= 0)
        close(self->descriptor);
    log_decoder_free(self->decoder);
    log_contents_free(&self->contents);
    self->descriptor = -1;
    self->decoder = NULL;
}

/* From the beginning of the file that is open. */
static bool begin_file(follower *self)
{
    log_decoder_free(self->decoder);
    log_contents_free(&self->contents);
    self->decoder = log_decoder_make(&self->contents);
    self->at = self->said = 0;
    return self->decoder ? true : say(self, "no host memory");
}

static bool open_file(follower *self, const char *path)
{
    struct stat is;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return say(self, strerror(errno));
    if (fstat(descriptor, &is) != 0 || !S_ISREG(is.st_mode)) {
        close(descriptor);
        return say(self, "only a plain file can be followed; a pipe is read without --follow");
    }
    end_file(self);
    self->descriptor = descriptor;
    return begin_file(self);
}

static void say_damage(follower *self)
{
    for (; self->said < self->contents.damages; self->said++, self->damages++)
        if (self->said < LOG_DAMAGES)
            say(self, self->contents.damage[self->said].text);
}

/* What `used` bytes brought: to the sink, and out of memory. */
static log_follow_end pass_on(follower *self)
{
    say_damage(self);
    if (!log_sort(self->contents.records, self->contents.count)) {
        say(self, "no host memory");
        return LOG_FOLLOW_REFUSED;
    }
    bool goes_on = self->sink->records(&self->contents, self->sink->data);
    self->contents.count = 0;
    return goes_on ? LOG_FOLLOW_INTERRUPTED : LOG_FOLLOW_STOPPED;
}

static ssize_t fill_room(const follower *self)
{
    size_t size = 0;
    while (size < ROOM) {
        ssize_t got = pread(self->descriptor, self->room + size, ROOM - size, (off_t)(self->at + size));
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

/* Whether the file was emptied and begun anew, since it was read up to here. */
static bool is_another(const follower *self)
{
    unsigned char header[LOG_FILE_HEADER];
    struct stat is;
    if (!self->at)
        return false;
    if (fstat(self->descriptor, &is) != 0 || (uint64_t)is.st_size < self->at)
        return true;
    return pread(self->descriptor, header, sizeof header, 0) == (ssize_t)sizeof header &&
           memcmp(header, self->header, sizeof header) != 0;
}

/* Reads what is there. `last`: nothing is added to the file any more. INTERRUPTED: there is no more for now. */
static log_follow_end read_file(follower *self, bool last)
{
    if (is_another(self) && !begin_file(self))
        return LOG_FOLLOW_REFUSED;
    for (;;) {
        size_t used;
        log_problem problem;
        ssize_t size = fill_room(self);
        if (size < 0) {
            say(self, strerror(errno));
            return LOG_FOLLOW_REFUSED;
        }
        if (size == 0)
            return LOG_FOLLOW_INTERRUPTED;
        bool ends = last && size < ROOM;
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

static bool is_ours(const follower *self, const char *path)
{
    struct stat ours, named;
    return fstat(self->descriptor, &ours) == 0 && stat(path, &named) == 0 && ours.st_dev == named.st_dev &&
           ours.st_ino == named.st_ino;
}

/* "NAME.3", or NAME for 0. */
static bool number_path(const follower *self, unsigned number, char path[PATH_ROOM])
{
    int length =
        number ? snprintf(path, PATH_ROOM, "%s.%u", self->path, number) : snprintf(path, PATH_ROOM, "%s", self->path);
    return length > 0 && length < PATH_ROOM;
}

/* The number under which our file stands now; 0 if it was removed, or moved to somewhere else. */
static unsigned own_number(const follower *self)
{
    enum { MOST = 1000 }; /* as many as `keep` may be */
    char path[PATH_ROOM];
    for (unsigned number = 1; number <= MOST && number_path(self, number, path); number++) {
        if (access(path, F_OK) != 0)
            return 0;
        if (is_ours(self, path))
            return number;
    }
    return 0;
}

/* Goes over to the file that comes after ours. Files may be renamed meanwhile: then the number of ours has changed. */
static bool open_next(follower *self)
{
    for (;;) {
        char path[PATH_ROOM];
        follower next = {.path = self->path, .sink = self->sink, .descriptor = -1};
        unsigned number = own_number(self);
        if (!number_path(self, number ? number - 1 : 0, path))
            return say(self, strerror(ENAMETOOLONG));
        if (access(path, F_OK) != 0)
            return true; /* moved this moment: the next look finds it */
        if (!open_file(&next, path))
            return false;
        if (own_number(self) != number) {
            end_file(&next);
            continue;
        }
        log_decoder_free(next.decoder); /* it adds to the contents of `next` */
        next.decoder = NULL;
        close(self->descriptor);
        self->descriptor = next.descriptor;
        return begin_file(self);
    }
}

/* Whether the name is that of another file now. Not while nothing has it: a rotation is under way, or none comes. */
static bool was_rotated(const follower *self)
{
    struct stat named;
    return stat(self->path, &named) == 0 && !is_ours(self, self->path);
}

static log_follow_end follow(follower *self)
{
    for (;;) {
        bool ends = interrupted != 0, rotated = was_rotated(self);
        log_follow_end end = read_file(self, rotated);
        if (end != LOG_FOLLOW_INTERRUPTED)
            return end;
        if (rotated && self->contents.torn)
            say(self, "a rotated file ends with a part of a batch whose writer was cut off");
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
    *self = (follower){.path = path, .sink = sink, .descriptor = -1, .room = malloc(ROOM)};
    if (!self->room)
        say(self, "no host memory");
    else {
        watch_signals();
        end = open_file(self, path) ? follow(self) : LOG_FOLLOW_REFUSED;
    }
    *damages = self->damages;
    end_file(self);
    free(self->room);
    free(self);
    return end;
}
