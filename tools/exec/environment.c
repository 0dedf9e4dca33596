/* The environment of the program: the library that is loaded before it, and what that reads. */
#include "tools/exec/exec.h"

#include "core/base/output_file.h"
#include "tools/command.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY    "libstrata-exec.so"
#define SIM_FOLDER "strata-sim-as-cuda"

/* ---- files of the installation ---- */

/* Finds a file in a folder of libraries beside this program; ../libexec is that of a Python wheel. */
static bool find_beside(const char *name, char path[PATH_MAX])
{
    static const char *const folders[] = {STRATA_BIN_TO_LIB, "../lib", ".", "../libexec/strata"};
    char self[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return false;
    self[length] = '\0';
    char *slash = strrchr(self, '/');
    *slash = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char candidate[2 * PATH_MAX];
        snprintf(candidate, sizeof candidate, "%s/%s/%s", self, folders[i], name);
        if (realpath(candidate, path))
            return true;
    }
    return false;
}

/* Finds the folder, not the library: a link in the folder leads to another place. */
static bool find_sim_folder(char path[PATH_MAX])
{
    return find_beside(SIM_FOLDER, path);
}

static bool find_library(const exec_request *request, char path[PATH_MAX])
{
    const char *given = secure_getenv("STRATA_EXEC_LIBRARY");
    if (given && *given) {
        if (!realpath(given, path)) {
            fprintf(stderr, "%s: STRATA_EXEC_LIBRARY names %s, which is not there\n", request->program, given);
            return false;
        }
    } else if (!find_beside(LIBRARY, path)) {
        fprintf(stderr,
                "%s: %s is neither beside this program nor in the folder of its libraries; "
                "STRATA_EXEC_LIBRARY can name it\n",
                request->program, LIBRARY);
        return false;
    }
    if (!strpbrk(path, ": "))
        return true;
    fprintf(stderr,
            "%s: %s: the loader takes no path with a space or a colon; move the installation, or name a copy by "
            "STRATA_EXEC_LIBRARY\n",
            request->program, path);
    return false;
}

/* ---- the driver ---- */

static bool has_gpu(void)
{
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/dxg", "/dev/nvgpu", "/dev/nvhost-gpu"};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        if (access(nodes[i], F_OK) == 0)
            return true;
    return false;
}

/* Finds the folder of the driver that is named, which may be a link to a file of another name. */
static bool find_driver_folder(const exec_request *request, const char *driver, char folder[PATH_MAX])
{
    const char *slash = strrchr(driver, '/');
    char given[PATH_MAX];
    snprintf(given, sizeof given, "%.*s", slash ? (int)(slash - driver) + 1 : 1, slash ? driver : ".");
    if (access(driver, R_OK) != 0 || !realpath(given, folder)) {
        fprintf(stderr, "%s: --driver: %s is none of auto, cuda, sim, and no file\n", request->program, driver);
        return false;
    }
    if (strcmp(slash ? slash + 1 : driver, "libcuda.so.1") == 0)
        return true;
    fprintf(stderr, "%s: --driver: programs look for libcuda.so.1: give %s that name, in a folder of its own\n",
            request->program, driver);
    return false;
}

/* Finds the folder in which the program's loader is to look for libcuda.so.1. Empty: where it looks anyway. */
static bool find_folder(const exec_request *request, char folder[PATH_MAX])
{
    const char *driver = request->driver ? request->driver : "auto";
    folder[0] = '\0';
    if (strcmp(driver, "cuda") == 0 || (strcmp(driver, "auto") == 0 && has_gpu()))
        return true;
    if (strcmp(driver, "sim") == 0 || strcmp(driver, "auto") == 0) {
        if (find_sim_folder(folder))
            return true;
        fprintf(stderr, "%s: the simulated driver's folder %s is not installed\n", request->program, SIM_FOLDER);
        return false;
    }
    return find_driver_folder(request, driver, folder);
}

/* As find_folder. False, too, for a folder that the loader would take for several: it would find another driver. */
static bool choose_driver_folder(const exec_request *request, char folder[PATH_MAX])
{
    if (!find_folder(request, folder))
        return false;
    if (!strpbrk(folder, ":;"))
        return true;
    fprintf(stderr, "%s: --driver: %s: the loader takes no folder with a colon or a semicolon\n", request->program,
            folder);
    return false;
}

/* ---- setting ---- */

static bool set(const exec_request *request, const char *name, const char *value)
{
    if ((value ? setenv(name, value, 1) : unsetenv(name)) == 0)
        return true;
    fprintf(stderr, "%s: out of host memory\n", request->program);
    return false;
}

/* Puts a value in front of what the variable has already. */
static bool set_first(const exec_request *request, const char *name, const char *value)
{
    const char *before = secure_getenv(name);
    const size_t length = strlen(value);
    char *list = NULL;
    if (!before || !*before)
        return set(request, name, value);
    if (strncmp(before, value, length) == 0 && (before[length] == ':' || !before[length]))
        return true; /* of an outer strata exec */
    if (asprintf(&list, "%s:%s", value, before) < 0) {
        fprintf(stderr, "%s: out of host memory\n", request->program);
        return false;
    }
    const bool good = set(request, name, list);
    free(list);
    return good;
}

/* Why the report could not be written to a file, as an errno; 0: it could. A file is made and removed again. Other
 * kinds are not opened: the reader of a pipe would take the end of that for the end of the report. */
static int try_output(const char *path)
{
    struct stat is;
    const int given = strata_output_descriptor(path);
    if (given >= 0)
        return fcntl(given, F_GETFD) < 0 ? errno : 0;
    if (lstat(path, &is) == 0 && !S_ISREG(is.st_mode) && !S_ISDIR(is.st_mode) && !S_ISLNK(is.st_mode))
        return access(path, W_OK) != 0 ? errno : 0;
    int file = strata_output_open(path, O_WRONLY | O_CREAT | O_EXCL | O_NONBLOCK, 0);
    const bool made = file >= 0;
    if (file < 0 && errno == EEXIST)
        file = strata_output_open(path, O_WRONLY | O_CREAT | O_NONBLOCK, 0);
    if (file < 0)
        return errno;
    if (made)
        unlink(path);
    close(file);
    return 0;
}

/* Whether the report's file can be opened as it will be, though without losing its contents. */
static bool can_write(const exec_request *request, const char *output)
{
    char path[PATH_MAX], reason[256];
    const bool fits = strlen(output) < PATH_MAX && strata_output_expand(output, path, sizeof path);
    const int error = fits ? try_output(path) : ENAMETOOLONG;
    if (error)
        fprintf(stderr, "%s: --output: the report could not be written to %s: %s\n", request->program,
                fits ? path : output, strata_output_error(error, reason, sizeof reason));
    return !error;
}

/* Writes a folder's name as it is: a % in it becomes %%, as marks in a report's name begin with %. */
static size_t write_folder(char *to, const char *folder)
{
    size_t used = 0;
    for (; *folder; folder++) {
        if (*folder == '%')
            to[used++] = '%';
        to[used++] = *folder;
    }
    return used;
}

/* Sets the report's path from the root: the program may go to another folder. */
static bool set_output(const exec_request *request)
{
    char folder[PATH_MAX], path[3 * PATH_MAX];
    const char *output = request->output;
    if (!output)
        return set(request, "STRATA_EXEC_OUTPUT", NULL);
    if (output[0] != '/' && output[0]) {
        if (!getcwd(folder, sizeof folder)) {
            fprintf(stderr, "%s: --output: the current folder is unknown; give a path from the root\n",
                    request->program);
            return false;
        }
        const size_t used = write_folder(path, folder);
        snprintf(path + used, sizeof path - used, "/%s", output);
        output = path;
    }
    return can_write(request, output) && set(request, "STRATA_EXEC_OUTPUT", output);
}

/* Loads the library before the program, and before it an address sanitizer's, which wants to be first, if the program
 * or a sanitized build of this library needs one. */
static bool set_preload(const exec_request *request, const char *library)
{
    char path[PATH_MAX], sanitizer[64], list[2 * PATH_MAX];
    const bool sanitized = exec_find_sanitizer(library, sanitizer, sizeof sanitizer) ||
                           (exec_find_program(request->command[0], path, sizeof path) &&
                            exec_find_sanitizer(path, sanitizer, sizeof sanitizer));
    snprintf(list, sizeof list, "%s%s%s", sanitized ? sanitizer : "", sanitized ? ":" : "", library);
    return set_first(request, "LD_PRELOAD", list) &&
           set(request, "STRATA_EXEC_SANITIZER", sanitized ? sanitizer : NULL);
}

bool exec_prepare_environment(const exec_request *request, const char *stack, const char *again)
{
    char library[PATH_MAX], folder[PATH_MAX], process[24], stacks[24];
    snprintf(stacks, sizeof stacks, "%u", request->stacks);
    snprintf(process, sizeof process, "%d", (int)getpid());
    if (!find_library(request, library) || !choose_driver_folder(request, folder))
        return false;
    return set_preload(request, library) && (!folder[0] || set_first(request, "LD_LIBRARY_PATH", folder)) &&
           (!request->mode || set(request, "STRATA_MODE", request->mode)) && set(request, "STRATA_EXEC_STACK", stack) &&
           set(request, "STRATA_EXEC_STACK_AGAIN", request->log ? again : NULL) &&
           set(request, "STRATA_EXEC_BUDGET", request->budget) &&
           set(request, "STRATA_EXEC_SET_ASIDE", request->set_aside) &&
           set(request, "STRATA_EXEC_REPORT",
               !request->report ? NULL
               : request->json  ? "json"
                                : "text") &&
           set(request, "STRATA_EXEC_STACKS", request->stacks ? stacks : NULL) && set_output(request) &&
           set(request, "STRATA_EXEC_PROCESS", process) &&
           set(request, "STRATA_EXEC_FAIL_CLOSED", request->fail_closed ? "1" : NULL) &&
           set(request, "STRATA_EXEC_CHILDREN", request->children ? "1" : NULL);
}
