/* Whether a program's calls can be seen at all. */
#include "tools/exec/exec.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#if defined __x86_64__
enum { OWN_MACHINE = EM_X86_64 };
#elif defined __aarch64__
enum { OWN_MACHINE = EM_AARCH64 };
#else
enum { OWN_MACHINE = EM_NONE };
#endif

static bool is_file(const char *path)
{
    struct stat status;
    return access(path, X_OK) == 0 && stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* Finds the program as execvp does: a word without a slash is looked for on PATH. */
static bool find(const char *command, char path[PATH_MAX])
{
    const char *folders = secure_getenv("PATH");
    if (strchr(command, '/'))
        return snprintf(path, PATH_MAX, "%s", command) < PATH_MAX && is_file(path);
    for (const char *at = folders ? folders : "/bin:/usr/bin"; at;) {
        const char *end = strchr(at, ':');
        const int length = end ? (int)(end - at) : (int)strlen(at);
        if (snprintf(path, PATH_MAX, "%.*s%s%s", length, at, length ? "/" : "", command) < PATH_MAX && is_file(path))
            return true;
        at = end ? end + 1 : NULL;
    }
    return false;
}

/* Whether the program runs with other rights than this process, so that the loader ignores LD_PRELOAD. */
static bool gives_rights(int file)
{
    struct stat status;
    if (fgetxattr(file, "security.capability", NULL, 0) > 0 && geteuid() != 0)
        return true;
    return fstat(file, &status) == 0 && ((status.st_mode & S_ISUID && status.st_uid != getuid()) ||
                                         (status.st_mode & S_ISGID && status.st_gid != getgid()));
}

static bool has_interpreter(int file, const Elf64_Ehdr *header)
{
    for (unsigned i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr part;
        const off_t at = (off_t)(header->e_phoff + (Elf64_Off)i * header->e_phentsize);
        if (pread(file, &part, sizeof part, at) != sizeof part)
            return true; /* execve will say */
        if (part.p_type == PT_INTERP)
            return true;
    }
    return false;
}

static exec_sight look_at_elf(int file, const char *path)
{
    Elf64_Ehdr header;
    if (pread(file, &header, sizeof header, 0) != sizeof header || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return EXEC_SIGHT_CLEAR;
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || (OWN_MACHINE != EM_NONE && header.e_machine != OWN_MACHINE))
        return EXEC_SIGHT_FOREIGN;
    if (gives_rights(file))
        return EXEC_SIGHT_PRIVILEGED;
    return has_interpreter(file, &header) || exec_is_loader(path) ? EXEC_SIGHT_CLEAR : EXEC_SIGHT_STATIC;
}

/* Reads a script's interpreter. Of "#!/usr/bin/env python3" that is env, which is dynamic, as what it starts is. */
static bool read_interpreter(int file, char path[PATH_MAX])
{
    char line[256] = "";
    const ssize_t length = pread(file, line, sizeof line - 1, 0);
    if (length < 3 || line[0] != '#' || line[1] != '!')
        return false;
    const char *begin = line + 2 + strspn(line + 2, " \t");
    return snprintf(path, PATH_MAX, "%.*s", (int)strcspn(begin, " \t\n"), begin) > 0;
}

/* Opens the program, or the last interpreter of a script, and returns its descriptor; -1: there is none. */
static int open_last(const char *command, char path[PATH_MAX])
{
    if (!find(command, path))
        return -1;
    for (int depth = 0; depth < 4; depth++) { /* as many scripts as the kernel follows */
        const int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0 || !read_interpreter(file, path))
            return file;
        close(file);
    }
    return -1;
}

exec_sight exec_inspect(const char *command)
{
    char path[PATH_MAX];
    const int file = open_last(command, path);
    const exec_sight sight = file < 0 ? EXEC_SIGHT_CLEAR : look_at_elf(file, path);
    if (file >= 0)
        close(file);
    return sight;
}

bool exec_find_program(const char *command, char *path, size_t room)
{
    char found[PATH_MAX];
    const int file = open_last(command, found);
    if (file >= 0)
        close(file);
    return file >= 0 && snprintf(path, room, "%s", found) < (int)room;
}
