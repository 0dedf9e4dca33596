/* The file of a shared budget: path, permissions, head. */
#define _GNU_SOURCE
#include "resources/budget/shared_internal.h"

#include "core/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t file_magic = UINT64_C(0x6567647562617473); /* "stabudge", little endian */
enum { FILE_VERSION = 1, NAME_MOST = 48 };

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

const char *shared_directory(void)
{
    const char *directory = getenv("STRATA_SHARED_DIR");
    return directory && *directory ? directory : "/dev/shm";
}

strata_status shared_file_path(const shared_terms *terms, bool grouped, gid_t group, char path[SHARED_PATH])
{
    char uuid[33];
    for (size_t i = 0; i < 16; i++)
        snprintf(uuid + 2 * i, 3, "%02x", terms->device[i]);
    int length = snprintf(path, SHARED_PATH, "%s/strata-%c%lu-%s-%s", shared_directory(), grouped ? 'g' : 'u',
                          (unsigned long)(grouped ? group : geteuid()), terms->name, uuid);
    if ((size_t)length >= SHARED_PATH)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the path of a shared budget is too long: %.100s...",
                           shared_directory());
    return STRATA_SUCCESS;
}

static strata_status check_rights(int descriptor, const char *path, bool grouped, gid_t group, struct stat *about)
{
    if (fstat(descriptor, about) != 0)
        return shared_file_refuse(path, "looked at");
    if (!S_ISREG(about->st_mode) || about->st_nlink != 1)
        return shared_file_refuse_for(path, "is no plain file with one name");
    mode_t more = about->st_mode & (mode_t)(grouped ? S_IRWXO | S_IXUSR | S_IXGRP : S_IRWXG | S_IRWXO | S_IXUSR);
    if (more)
        return shared_file_refuse_for(path, "can be read or written by others");
    if (!grouped && about->st_uid != geteuid())
        return shared_file_refuse_for(path, "belongs to another user");
    if (grouped && about->st_gid != group)
        return shared_file_refuse_for(path, "belongs to another group");
    return STRATA_SUCCESS;
}

static bool give_to_group(int descriptor, gid_t group)
{
    return fchown(descriptor, (uid_t)-1, group) == 0 && fchmod(descriptor, S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP) == 0;
}

/* Keeps errno. */
static int refuse_descriptor(int descriptor)
{
    int error = errno;
    close(descriptor);
    errno = error;
    return -1;
}

static int make_nameless(const char *path, gid_t group)
{
    char directory[SHARED_PATH], self[32];
    snprintf(directory, sizeof directory, "%s", path);
    *strrchr(directory, '/') = '\0';
    int descriptor = open(directory, O_RDWR | O_TMPFILE | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (descriptor < 0)
        return -1;
    snprintf(self, sizeof self, "/proc/self/fd/%d", descriptor);
    if (give_to_group(descriptor, group) && linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0)
        return descriptor;
    return refuse_descriptor(descriptor);
}

/* Without O_TMPFILE or /proc. A process that is killed here leaves the temporary name. */
static int make_under_another_name(const char *path, gid_t group)
{
    char other[SHARED_PATH + 16];
    snprintf(other, sizeof other, "%s.XXXXXX", path);
    int descriptor = mkostemp(other, O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    if (give_to_group(descriptor, group) && renameat2(AT_FDCWD, other, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
        return descriptor;
    int error = errno;
    unlink(other);
    errno = error;
    return refuse_descriptor(descriptor);
}

/* The file gets its name last, so that the group can always open it. */
static int make_for_group(const char *path, gid_t group)
{
    int descriptor = make_nameless(path, group);
    bool unknown = descriptor < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL);
    return unknown ? make_under_another_name(path, group) : descriptor;
}

strata_status shared_file_open(const char *path, bool grouped, gid_t group, int *descriptor, struct stat *about)
{
    *descriptor = -1;
    for (int tries = 0; *descriptor < 0 && tries < 50; tries++) { /* another process may make or remove it */
        *descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (*descriptor >= 0 || errno != ENOENT)
            break;
        *descriptor = grouped ? make_for_group(path, group)
                              : open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
        if (*descriptor < 0 && errno != EEXIST)
            break;
    }
    if (*descriptor < 0)
        return shared_file_refuse(path, "opened");
    return check_rights(*descriptor, path, grouped, group, about);
}

strata_status shared_file_open_existing(const char *path, bool grouped, gid_t group, int *descriptor,
                                        struct stat *about)
{
    *descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return *descriptor < 0 ? shared_file_refuse(path, "opened")
                           : check_rights(*descriptor, path, grouped, group, about);
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
    atomic_signal_fence(memory_order_seq_cst); /* without a checksum the head is written again */
    file->checksum = checksum(file);
}

/* Made, but not finished: at most what write_head writes. */
static bool head_is_unfinished(const shared_file *file)
{
    return file->checksum == 0 && (file->magic == 0 || file->magic == file_magic) && file->version <= FILE_VERSION &&
           atomic_load_explicit(&file->used_slots, memory_order_relaxed) == 0;
}

strata_status shared_file_map(int descriptor, const char *path, const shared_terms *terms, shared_file **out)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0)
        return shared_file_refuse(path, "looked at");
    /* All pages: a missing one would kill the process later. */
    if (terms && (about.st_size == 0 || about.st_size == (off_t)sizeof(shared_file)) &&
        (errno = posix_fallocate(descriptor, 0, (off_t)sizeof(shared_file))) != 0)
        return shared_file_refuse(path, "made");
    if (about.st_size != (off_t)sizeof(shared_file) && !(terms && about.st_size == 0))
        return shared_file_refuse_for(path, "has the wrong size");
    shared_file *file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (file == MAP_FAILED)
        return shared_file_refuse(path, "mapped");
    if (terms && head_is_unfinished(file))
        write_head(file, terms);
    if (!head_is_good(file) || !head_is_asked_for(file, terms)) {
        munmap(file, sizeof *file);
        return shared_file_refuse_for(path, "is damaged, or of another version");
    }
    *out = file;
    return STRATA_SUCCESS;
}
