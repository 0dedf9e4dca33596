/* Where the worker's program is. */
#include "core/base/error.h"
#include "service/isolated/process.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static const char *const places[] = {"strata-worker", "../libexec/strata/strata-worker",
                                     "../../libexec/strata/strata-worker", "../bin/strata-worker"};

/* The paths that were looked at, for a message. */
typedef struct search {
    char *path;
    size_t room;
    char tried[320];
} search;

static bool look_at(search *self, const char *folder, const char *name)
{
    const int length = snprintf(self->path, self->room, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= self->room)
        return false;
    if (access(self->path, X_OK) == 0)
        return true;
    const size_t used = strlen(self->tried);
    snprintf(self->tried + used, sizeof self->tried - used, "%s%s", used ? ", " : "", self->path);
    return false;
}

/* Looks in the places beside a file; `file` loses its last part. */
static bool look_beside(search *self, char *file)
{
    char *slash = strrchr(file, '/');
    if (!slash)
        return false;
    *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (look_at(self, file, places[i]))
            return true;
    return false;
}

static bool find_program(char program[PATH_MAX])
{
    const ssize_t length = readlink("/proc/self/exe", program, PATH_MAX - 1);
    if (length <= 0)
        return false;
    program[length] = '\0';
    return true;
}

/* A program with more privileges than its user may be a hard link in a folder of the user's. */
static bool is_privileged(void)
{
    return getauxval(AT_SECURE) != 0;
}

static bool look_beside_library(search *self)
{
    static const char own;
    Dl_info info;
    char resolved[PATH_MAX], program[PATH_MAX];
    if (!dladdr(&own, &info) || !info.dli_fname || !realpath(info.dli_fname, resolved))
        return false;
    if (is_privileged() && (!find_program(program) || strcmp(program, resolved) == 0))
        return false; /* the program contains the library */
    return look_beside(self, resolved);
}

static bool look_beside_program(search *self)
{
    char program[PATH_MAX];
    return !is_privileged() && find_program(program) && look_beside(self, program);
}

static strata_status take(const char *given, const char *source, char *path, size_t room)
{
    if (strlen(given) >= room)
        return strata_fail(STRATA_ERROR_IO, "the path of the worker's program in %s is too long", source);
    strcpy(path, given);
    return access(path, X_OK) == 0 ? STRATA_SUCCESS
                                   : strata_fail(STRATA_ERROR_IO,
                                                 "%s names %.300s, which is no program that can be executed; it must "
                                                 "be the path of strata-worker",
                                                 source, given);
}

strata_status isolated_program_find(const char *option, char *path, size_t room)
{
    search self = {.path = path, .room = room};
    const char *set = secure_getenv("STRATA_WORKER");
    if (option)
        return take(option, "the option worker", path, room);
    if (set && *set)
        return take(set, "STRATA_WORKER", path, room);
    if (look_beside_library(&self) || look_beside_program(&self))
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_IO,
                       "there is no program strata-worker, which isolated device services need; install it, or set the "
                       "option worker or STRATA_WORKER to its path. Looked at: %s",
                       self.tried);
}
