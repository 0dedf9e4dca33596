/* The file of a shared budget: path, permissions, head. */
#define _GNU_SOURCE
#include "resources/budget/shared_internal.h"

#include "core/base/descriptor_mark.h"
#include "core/base/error.h"
#include "driver/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* How existing files are opened, by their names in a folder that others may write to. Not through a link; and a FIFO or
 * a device in a file's place, which is refused once it is open, must not let its open wait. */
enum { OPEN_EXISTING = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY };

static const uint64_t file_magic = UINT64_C(0x6567647562617473);  /* "stabudge", little endian */
static const uint64_t limit_magic = UINT64_C(0x74696d696c617473); /* "stalimit" */
enum { FILE_VERSION = 4, NAME_MOST = 48 };

/* FNV-1a: against damage, not against malice. */
static uint64_t checksum(const shared_file *file)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    const unsigned char *bytes = (const unsigned char *)file;
    for (size_t i = 0; i < offsetof(shared_file, checksum); i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

strata_status shared_file_refuse_for(const char *path, const char *what)
{
    return strata_fail(STRATA_ERROR_IO,
                       "the shared budget %s %s; it is not used. Remove it if no process needs it any more", path,
                       what);
}

strata_status shared_file_refuse(const char *path, const char *what)
{
    return strata_fail(STRATA_ERROR_IO, "the shared budget %s cannot be %s: %s", path, what, strerror(errno));
}

bool shared_name_is_good(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length <= NAME_MOST && name[0] != '.' &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

bool shared_find_group(const char *name, gid_t *group)
{
    char *end, room[1 << 16];
    struct group entry, *found = NULL;
    unsigned long number = strtoul(name, &end, 10); /* ULONG_MAX if too large */
    *group = (gid_t)number;
    if (*name >= '0' && *name <= '9' && !*end && number < (unsigned long)(gid_t)-1)
        return true;
    if (getgrnam_r(name, &entry, room, sizeof room, &found) != 0 || !found)
        return false;
    *group = found->gr_gid;
    return true;
}

strata_status shared_file_refuse_path(const char *path)
{
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "the path of a shared budget is too long: %.100s...", path);
}

strata_status shared_directory(char to[PATH_MAX])
{
    const char *directory = secure_getenv("STRATA_SHARED_DIR");
    if (strata_driver_path_from_start(directory && *directory ? directory : "/dev/shm", to))
        return STRATA_SUCCESS;
    return strata_fail(
        STRATA_ERROR_INVALID_VALUE,
        "STRATA_SHARED_DIR is \"%.100s\": the path is too long, or the folder in which the program began "
        "is unknown; set an absolute path",
        directory);
}

strata_status shared_file_path(const shared_terms *terms, bool grouped, gid_t group, char path[SHARED_PATH])
{
    char uuid[33], directory[PATH_MAX];
    strata_status status = shared_directory(directory);
    if (status != STRATA_SUCCESS)
        return status;
    for (size_t i = 0; i < 16; i++)
        snprintf(uuid + 2 * i, 3, "%02x", terms->device[i]);
    int length = snprintf(path, SHARED_PATH, "%s/strata-%c%lu-%s-%s", directory, grouped ? 'g' : 'u',
                          (unsigned long)(grouped ? group : geteuid()), terms->name, uuid);
    return length < SHARED_PATH ? STRATA_SUCCESS : shared_file_refuse_path(directory);
}

/* The user's name, or its number. */
static void write_user(uid_t user, char text[64])
{
    char room[1 << 14];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(user, &entry, room, sizeof room, &found) == 0 && found)
        snprintf(text, 64, "%.48s", found->pw_name);
    else
        snprintf(text, 64, "%lu", (unsigned long)user);
}

static strata_status refuse_owner(const char *path, uid_t user)
{
    char owner[64];
    write_user(user, owner);
    return strata_fail(STRATA_ERROR_IO,
                       "the shared budget %s belongs to user %s; it is not used. Take another name, or set "
                       "STRATA_SHARED_DIR to a folder that only you can write",
                       path, owner);
}

/* Raises the error of an open, by errno. */
static strata_status refuse_open(const char *path)
{
    int error = errno;
    struct stat about;
    if (error == EACCES && lstat(path, &about) == 0 && about.st_uid != geteuid())
        return refuse_owner(path, about.st_uid);
    errno = error;
    return shared_file_refuse(path, "opened");
}

static strata_status check_rights(int descriptor, const char *path, bool grouped, gid_t group, struct stat *about)
{
    if (fstat(descriptor, about) != 0)
        return shared_file_refuse(path, "looked at");
    if (!S_ISREG(about->st_mode) || about->st_nlink != 1)
        return shared_file_refuse_for(path, "is not a regular file with one link");
    mode_t more = about->st_mode & (mode_t)(grouped ? S_IRWXO | S_IXUSR | S_IXGRP : S_IRWXG | S_IRWXO | S_IXUSR);
    if (more)
        return shared_file_refuse_for(path, "can be read or written by others");
    if (!grouped && about->st_uid != geteuid())
        return refuse_owner(path, about->st_uid);
    if (grouped && about->st_gid != group)
        return shared_file_refuse_for(path, "belongs to another group");
    return STRATA_SUCCESS;
}

typedef struct new_file {
    gid_t group;
    mode_t mode;
    const void *content; /* NULL: empty */
    size_t bytes;
} new_file;

static bool prepare(int descriptor, const new_file *what)
{
    return fchown(descriptor, (uid_t)-1, what->group) == 0 && fchmod(descriptor, what->mode) == 0 &&
           (!what->content || write(descriptor, what->content, what->bytes) == (ssize_t)what->bytes);
}

/* Keeps errno. */
static int refuse_descriptor(int descriptor)
{
    int error = errno;
    close(descriptor);
    errno = error;
    return -1;
}

/* Opens a file that stays open; one that it makes is this user's alone. */
static int open_above(const char *path, int flags)
{
    return strata_descriptor_move_up(open(path, flags, S_IRUSR | S_IWUSR));
}

static int make_nameless(const char *path, const new_file *what)
{
    char directory[SHARED_PATH], self[32];
    snprintf(directory, sizeof directory, "%s", path);
    *strrchr(directory, '/') = '\0';
    int descriptor = open_above(directory, O_RDWR | O_TMPFILE | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    snprintf(self, sizeof self, "/proc/self/fd/%d", descriptor);
    if (prepare(descriptor, what) && linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0)
        return descriptor;
    return refuse_descriptor(descriptor);
}

/* As make_nameless, where O_TMPFILE or /proc is missing. A process that is killed here leaves the temporary name. */
static int make_under_another_name(const char *path, const new_file *what)
{
    char other[SHARED_PATH + 16];
    snprintf(other, sizeof other, "%s.XXXXXX", path);
    int descriptor = strata_descriptor_move_up(mkostemp(other, O_CLOEXEC));
    if (descriptor < 0)
        return -1;
    if (prepare(descriptor, what) && renameat2(AT_FDCWD, other, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
        return descriptor;
    int error = errno;
    unlink(other);
    errno = error;
    return refuse_descriptor(descriptor);
}

/* The file gets its name last, so that the group can always open it. */
static int make_for_group(const char *path, const new_file *what)
{
    int descriptor = make_nameless(path, what);
    bool unknown = descriptor < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL);
    return unknown ? make_under_another_name(path, what) : descriptor;
}

strata_status shared_file_open(const char *path, bool grouped, gid_t group, int *descriptor, struct stat *about)
{
    const new_file for_all = {.group = group, .mode = S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP};
    *descriptor = -1;
    for (int tries = 0; *descriptor < 0 && tries < 50; tries++) { /* another process may make or remove it */
        *descriptor = open_above(path, O_RDWR | OPEN_EXISTING);
        if (*descriptor >= 0 || errno != ENOENT)
            break;
        *descriptor = grouped ? make_for_group(path, &for_all)
                              : open_above(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW);
        if (*descriptor < 0 && errno != EEXIST)
            break;
    }
    if (*descriptor < 0)
        return refuse_open(path);
    return check_rights(*descriptor, path, grouped, group, about);
}

strata_status shared_file_open_existing(const char *path, bool grouped, gid_t group, int *descriptor,
                                        struct stat *about)
{
    *descriptor = open_above(path, O_RDWR | OPEN_EXISTING);
    return *descriptor < 0 ? refuse_open(path) : check_rights(*descriptor, path, grouped, group, about);
}

static bool head_is_good(const shared_file *file)
{
    return file->magic == file_magic && file->version == FILE_VERSION && file->bytes == sizeof *file &&
           file->name[sizeof file->name - 1] == '\0' && file->checksum == checksum(file);
}

static bool head_is_asked_for(const shared_file *file, const shared_terms *terms)
{
    return !terms || (memcmp(file->device, terms->device, sizeof file->device) == 0 &&
                      strncmp(file->name, terms->name, sizeof file->name) == 0);
}

static void write_head(shared_file *file, const shared_terms *terms)
{
    file->version = FILE_VERSION;
    file->bytes = sizeof *file;
    memcpy(file->device, terms->device, sizeof file->device);
    strncpy(file->name, terms->name, sizeof file->name - 1);
    atomic_store_explicit(&file->limit, terms->limit, memory_order_relaxed);
    file->magic = file_magic;
    atomic_signal_fence(memory_order_seq_cst); /* the head is written again unless the checksum is there */
    file->checksum = checksum(file);
}

/* Whether the head has at most a part of what write_head writes, and no process a slot. */
static bool head_is_unfinished(const shared_file *file)
{
    return file->checksum == 0 && (file->magic == 0 || file->magic == file_magic) && file->version <= FILE_VERSION &&
           atomic_load_explicit(&file->used_slots, memory_order_relaxed) == 0;
}

/* As posix_fallocate, which a signal may interrupt. */
static int allocate_pages(int descriptor, off_t at, off_t bytes)
{
    int error;
    do
        error = posix_fallocate(descriptor, at, bytes);
    while (error == EINTR);
    return error;
}

/* Returns an errno. The file's size limit is checked first: exceeding it raises SIGXFSZ, which ends the process. */
static int make_pages(int descriptor)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < sizeof(shared_file))
        return EFBIG;
    if (ftruncate(descriptor, (off_t)sizeof(shared_file)) != 0)
        return errno;
    return allocate_pages(descriptor, 0, (off_t)offsetof(shared_file, retired));
}

strata_status shared_file_map(int descriptor, const char *path, const shared_terms *terms, shared_file **out)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0)
        return shared_file_refuse(path, "looked at");
    /* A missing page would raise SIGBUS later. */
    if (terms && (about.st_size == 0 || about.st_size == (off_t)sizeof(shared_file)) &&
        (errno = make_pages(descriptor)) != 0)
        return shared_file_refuse(path, "made");
    if (about.st_size != (off_t)sizeof(shared_file) && !(terms && about.st_size == 0))
        return shared_file_refuse_for(path, "has the wrong size: it is damaged, or of another version");
    shared_file *file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (file == MAP_FAILED)
        return shared_file_refuse(path, "mapped");
    shared_bus_protect(file, sizeof *file);
    if (terms && head_is_unfinished(file))
        write_head(file, terms);
    if (!head_is_good(file) || !head_is_asked_for(file, terms)) {
        shared_file_unmap(file);
        return shared_file_refuse_for(path, "is damaged, or of another version");
    }
    *out = file;
    return STRATA_SUCCESS;
}

void shared_file_unmap(shared_file *file)
{
    shared_bus_forget(file);
    munmap(file, sizeof *file);
}

static bool is_descriptor_of(int descriptor, dev_t device, ino_t inode)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0)
        return errno != EBADF;
    return about.st_dev == device && about.st_ino == inode;
}

bool shared_file_has_descriptor(const budget_shared *shared)
{
    return is_descriptor_of(shared->descriptor, shared->device, shared->inode);
}

/* Whether the path still names the file; true if that is unknown, as without access to the folder. */
static bool is_at(const char *path, const struct stat *file)
{
    struct stat named;
    if (lstat(path, &named) != 0)
        return errno != ENOENT && errno != ENOTDIR;
    return named.st_dev == file->st_dev && named.st_ino == file->st_ino;
}

bool shared_file_is_sound(const budget_shared *shared, const char **what)
{
    struct stat about;
    if (fstat(shared->descriptor, &about) != 0)
        return true;
    if (about.st_nlink == 0)
        *what = "was removed while it was used";
    else if (!is_at(shared->path, &about))
        *what = "was renamed or replaced while it was used";
    else if (about.st_size != (off_t)sizeof *shared->file)
        *what = "was truncated while it was used";
    else if (!head_is_good(shared->file))
        *what = "was overwritten while it was used";
    else
        return true;
    return false;
}

strata_status shared_file_remove(const char *path)
{
    char limit[SHARED_PATH + sizeof SHARED_LIMIT_SUFFIX];
    snprintf(limit, sizeof limit, "%s" SHARED_LIMIT_SUFFIX, path);
    if (unlink(path) != 0)
        return shared_file_refuse(path, "removed");
    unlink(limit); /* of a group; without the file it holds for nothing */
    return STRATA_SUCCESS;
}

bool shared_file_was_removed(int descriptor)
{
    struct stat about;
    return fstat(descriptor, &about) == 0 && about.st_nlink == 0;
}

bool shared_file_fill(int descriptor, const shared_file *file, const shared_slot *slot)
{
    const off_t which = (off_t)(slot - file->slots);
    const off_t retired = (off_t)offsetof(shared_file, retired) + which * (off_t)sizeof(shared_retired_page);
    const off_t quotas = (off_t)offsetof(shared_file, quotas) + which * (off_t)sizeof(shared_quota_page);
    errno = allocate_pages(descriptor, retired, (off_t)sizeof(shared_retired_page));
    if (!errno)
        errno = allocate_pages(descriptor, quotas, (off_t)sizeof(shared_quota_page));
    return errno == 0;
}

/* ---- the limit of a group's budget ---- */

typedef struct limit_file {
    uint64_t magic;
    _Atomic uint64_t limit;
} limit_file;

/* The path of the limit; false if it is too long. */
static bool limit_path(const budget_shared *shared, char path[SHARED_PATH])
{
    return snprintf(path, SHARED_PATH, "%s" SHARED_LIMIT_SUFFIX, shared->path) < SHARED_PATH;
}

/* Opens the limit, read-only for other members than its maker. Returns -1, with errno. */
static int open_limit(const char *path, const new_file *make, bool *writable)
{
    int descriptor = -1;
    *writable = true;
    for (int tries = 0; descriptor < 0 && tries < 50; tries++) {
        descriptor = open_above(path, O_RDWR | OPEN_EXISTING);
        if (descriptor < 0 && errno == EACCES) {
            *writable = false;
            return open_above(path, O_RDONLY | OPEN_EXISTING);
        }
        if (descriptor >= 0 || errno != ENOENT || !make)
            break;
        descriptor = make_for_group(path, make);
        if (descriptor < 0 && errno != EEXIST)
            break;
    }
    return descriptor;
}

static strata_status check_limit(budget_shared *shared, const char *path, gid_t group)
{
    struct stat about;
    if (fstat(shared->limit_descriptor, &about) != 0)
        return shared_file_refuse(path, "looked at");
    shared->limit_device = about.st_dev;
    shared->limit_inode = about.st_ino;
    if (!S_ISREG(about.st_mode) || about.st_nlink != 1 || about.st_size != (off_t)sizeof(limit_file))
        return shared_file_refuse_for(path, "is not a regular file with one link and the expected size");
    if (about.st_mode & (S_IRWXO | S_IXUSR | S_IXGRP | S_IWGRP) || about.st_gid != group)
        return shared_file_refuse_for(path, "can be written by others, or belongs to another group");
    return STRATA_SUCCESS;
}

strata_status shared_limit_open(budget_shared *shared, const shared_terms *terms, gid_t group)
{
    char path[SHARED_PATH];
    const limit_file content = {limit_magic, terms ? terms->limit : 0};
    const new_file make = {group, S_IRUSR | S_IWUSR | S_IRGRP, &content, sizeof content};
    if (!limit_path(shared, path))
        return shared_file_refuse_path(shared->path);
    shared->limit_descriptor = open_limit(path, terms ? &make : NULL, &shared->sets_limit);
    if (shared->limit_descriptor < 0)
        return refuse_open(path);
    strata_status status = check_limit(shared, path, group);
    if (status != STRATA_SUCCESS)
        return status;
    limit_file *file = mmap(NULL, sizeof *file, shared->sets_limit ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                            shared->limit_descriptor, 0);
    if (file == MAP_FAILED)
        return shared_file_refuse(path, "mapped");
    shared->limit_map = file;
    shared->limit = &file->limit;
    shared_bus_protect(file, sizeof *file);
    return file->magic == limit_magic ? STRATA_SUCCESS
                                      : shared_file_refuse_for(path, "is damaged, or of another version");
}

void shared_limit_close(budget_shared *shared)
{
    if (shared->limit_map) {
        shared_bus_forget(shared->limit_map);
        munmap(shared->limit_map, sizeof(limit_file));
    }
    if (shared->limit_descriptor >= 0 &&
        (!shared->limit_inode || is_descriptor_of(shared->limit_descriptor, shared->limit_device, shared->limit_inode)))
        close(shared->limit_descriptor);
}

bool shared_limit_is_sound(const budget_shared *shared)
{
    struct stat about;
    char path[SHARED_PATH];
    if (shared->limit_descriptor < 0 || fstat(shared->limit_descriptor, &about) != 0)
        return true;
    return about.st_nlink != 0 && about.st_size == (off_t)sizeof(limit_file) && limit_path(shared, path) &&
           is_at(path, &about);
}

shared_user shared_limit_maker(const budget_shared *shared)
{
    struct stat about;
    shared_user maker = {"another"};
    if (fstat(shared->limit_descriptor, &about) == 0)
        write_user(about.st_uid, maker.text);
    return maker;
}

strata_status shared_limit_refuse(const budget_shared *shared)
{
    return strata_fail(STRATA_ERROR_IO, "the limit of the shared budget %s can be changed only by user %s, its maker",
                       shared->path, shared_limit_maker(shared).text);
}
