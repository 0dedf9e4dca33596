/* Writing the file of a recording. A line that is cut off has no line feed, and nothing follows it. */
#include "service/recorder_file.h"

#include "core/base/error.h"
#include "core/base/file_name.h"
#include "core/base/host_memory.h"
#include "core/base/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PRINT_ROOM = 512 };

/* ---- opening ---- */

/* A new file, or a device: what another recording, or another program, wrote is never overwritten. -1 with errno. */
static int open_file(const char *path)
{
    struct stat is;
    int descriptor = strata_output_open(path, O_WRONLY | O_CREAT | O_EXCL, 0);
    if (descriptor >= 0 || errno != EEXIST)
        return descriptor;
    descriptor = strata_output_open(path, O_WRONLY | O_NONBLOCK, 0);
    if (descriptor < 0)
        return errno == ENXIO ? (errno = EEXIST, -1) : -1;
    if (fstat(descriptor, &is) == 0 && S_ISCHR(is.st_mode))
        return descriptor;
    close(descriptor);
    errno = EEXIST;
    return -1;
}

static strata_status fail_open(const char *path, int error)
{
    char room[128];
    if (error == EEXIST)
        return strata_fail(STRATA_ERROR_IO, "the recording %.300s exists; remove it, or record to another file", path);
    return strata_fail(STRATA_ERROR_IO, "the recording %.300s could not be made: %s", path,
                       strata_output_error(error, room, sizeof room));
}

strata_status recorder_file_open(recorder_file *file, const char *given, int device)
{
    const strata_file_part parts[] = {{'d', device, "the device"}};
    char path[PATH_MAX];
    if (!*given)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_options: record is empty; name a file, or NULL");
    const strata_status named = strata_file_name(path, sizeof path, "strata_service_options: record", given, parts, 1);
    if (named != STRATA_SUCCESS)
        return named;
    file->path = strata_host_zalloc(strlen(path) + 1);
    if (!file->path)
        return strata_fail_host_memory("the recorder of a device service");
    strcpy(file->path, path);
    file->descriptor = open_file(path);
    file->mark = strata_descriptor_mark_of(file->descriptor);
    if (file->descriptor >= 0)
        return STRATA_SUCCESS;
    const strata_status status = fail_open(path, errno);
    strata_host_free(file->path);
    return status;
}

void recorder_file_close(recorder_file *file)
{
    if (strata_descriptor_is_marked(file->descriptor, &file->mark))
        close(file->descriptor);
    strata_host_free(file->path);
}

/* ---- writing ---- */

/* The thread's errors are suppressed: this one fails no request, and is told all the same. */
static void fail_write(recorder_file *file, int error)
{
    strata_error_aside aside;
    char room[128];
    atomic_store_explicit(&file->failed, true, memory_order_relaxed);
    strata_error_set_aside(&aside);
    strata_fail(STRATA_ERROR_IO, "the recording %.300s ends here, a write failed: %s; the service goes on", file->path,
                strata_output_error(error, room, sizeof room));
    strata_error_take_back(&aside);
}

void recorder_file_flush(recorder_file *file)
{
    const char *at = file->buffer;
    size_t left = file->filled;
    file->filled = 0;
    if (left && !atomic_load_explicit(&file->failed, memory_order_relaxed) &&
        !strata_descriptor_is_marked(file->descriptor, &file->mark))
        fail_write(file, EBADF);
    while (left && !atomic_load_explicit(&file->failed, memory_order_relaxed)) {
        const ssize_t written = write(file->descriptor, at, left);
        if (written > 0) {
            at += written;
            left -= (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            fail_write(file, written == 0 ? EIO : errno);
        }
    }
}

static void make_room(recorder_file *file, size_t bytes)
{
    if (file->filled + bytes > sizeof file->buffer)
        recorder_file_flush(file);
}

void recorder_file_print(recorder_file *file, const char *format, ...)
{
    va_list values;
    make_room(file, PRINT_ROOM);
    va_start(values, format);
    const int length = vsnprintf(file->buffer + file->filled, PRINT_ROOM, format, values);
    va_end(values);
    if (length > 0)
        file->filled += length < PRINT_ROOM ? (size_t)length : PRINT_ROOM - 1;
}

void recorder_file_put(recorder_file *file, char character)
{
    make_room(file, 1);
    file->buffer[file->filled++] = character;
}

void recorder_file_put_hex(recorder_file *file, const void *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < count; i++) {
        recorder_file_put(file, digits[byte[i] >> 4]);
        recorder_file_put(file, digits[byte[i] & 15]);
    }
}
