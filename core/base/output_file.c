/* Opening files to write. */
#define _GNU_SOURCE
#include "core/base/output_file.h"
#include "core/base/descriptor_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OWN_MODE = S_IRUSR | S_IWUSR, TURNS = 100 };

static int number_behind(const char *path, const char *folder)
{
    const size_t length = strlen(folder);
    if (strncmp(path, folder, length) != 0)
        return -1;
    const char *digits = path + length;
    const size_t count = strspn(digits, "0123456789");
    return count && count < 8 && !digits[count] ? atoi(digits) : -1;
}

int strata_output_descriptor(const char *path)
{
    if (strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    const int number = number_behind(path, "/dev/fd/");
    return number >= 0 ? number : number_behind(path, "/proc/self/fd/");
}

bool strata_output_expand(const char *name, char *path, size_t room)
{
    size_t used = 0;
    for (; *name; name++) {
        const bool is_mark = name[0] == '%' && (name[1] == 'p' || name[1] == '%');
        name += is_mark;
        const int added = is_mark && *name == 'p' ? snprintf(path + used, room - used, "%d", (int)getpid())
                                                  : snprintf(path + used, room - used, "%c", *name);
        if (added < 0 || (size_t)added >= room - used)
            return false;
        used += (size_t)added;
    }
    path[used] = '\0';
    return true;
}

bool strata_output_names_process(const char *name)
{
    for (const char *at = name; (at = strchr(at, '%')) && at[1]; at += 2)
        if (at[1] == 'p')
            return true;
    return false;
}

/* The folder of a path. False if it cannot be found out. */
static bool look_at_folder(const char *path, struct stat *is)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    if (length >= sizeof folder)
        return false;
    memcpy(folder, path, length);
    strcpy(folder + length, ".");
    return stat(folder, is) == 0;
}

/* 0 if the open file may be written to, else an errno. Checks what Linux's fs.protected_regular and
 * fs.protected_hardlinks do, which may be off. */
static int look_at_file(const char *path, int descriptor)
{
    struct stat file, folder;
    if (fstat(descriptor, &file) != 0)
        return errno;
    if (!S_ISREG(file.st_mode) || !look_at_folder(path, &folder) || !(folder.st_mode & S_IWOTH))
        return 0;
    if (file.st_uid != geteuid() && file.st_uid != folder.st_uid)
        return EPERM;
    return file.st_nlink > 1 ? EMLINK : 0;
}

static int refuse(int descriptor, int error)
{
    close(descriptor);
    errno = error;
    return -1;
}

int strata_output_open(const char *path, int flags, mode_t mode)
{
    const int descriptor =
        strata_descriptor_move_up(open(path, flags | O_CLOEXEC | O_NOFOLLOW, mode ? mode : (mode_t)OWN_MODE));
    if (descriptor < 0)
        return -1;
    const bool made = (flags & O_CREAT) && (flags & O_EXCL);
    const int error = made ? 0 : look_at_file(path, descriptor);
    if (error)
        return refuse(descriptor, error);
    if (made && mode)
        (void)fchmod(descriptor, mode); /* some file systems have no modes */
    return descriptor;
}

/* The file may be made or removed between the two steps; then tries again. */
int strata_output_append(const char *path, int flags, mode_t mode)
{
    const int given = strata_output_descriptor(path);
    if (given >= 0)
        return fcntl(given, F_DUPFD_CLOEXEC, 3);
    int descriptor = -1;
    for (int turn = 0; turn < TURNS && descriptor < 0; turn++) {
        descriptor = strata_output_open(path, flags | O_WRONLY | O_APPEND, mode);
        if (descriptor < 0 && errno == ENOENT)
            descriptor = strata_output_open(path, flags | O_WRONLY | O_APPEND | O_CREAT | O_EXCL, mode);
        if (descriptor < 0 && errno != ENOENT && errno != EEXIST)
            break;
    }
    return descriptor;
}

const char *strata_output_error(int error, char *room, size_t size)
{
    switch (error) {
    case ELOOP:
        return "a symbolic link, which is not followed; name the file itself";
    case EMLINK:
        return "a file with several names (hard links)";
    case EPERM:
        return "not permitted, or another user's file in a folder that all users write to";
    case ENXIO:
        return "a pipe without a reader, or a missing device; start the reader first";
    default:
        return strerror_r(error, room, size);
    }
}
