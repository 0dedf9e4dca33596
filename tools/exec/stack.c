/* The stack that the options ask for, outermost layer first: budget, logging, statistics, guard, and what --stack gives
 * or a pool. */
#include "tools/exec/exec.h"

#include "core/base/output_file.h"
#include "core/base/size_text.h"
#include "core/stack/stack_text.h"
#include "resources/builtin.h"
#include "resources/logging/rotation.h"

#include <strata/status.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct text_builder {
    char *text;
    size_t room, used;
    bool full;
} text_builder;

static void add(text_builder *to, const char *text)
{
    const size_t length = strlen(text);
    if (length >= to->room - to->used) {
        to->full = true;
        return;
    }
    memcpy(to->text + to->used, text, length + 1);
    to->used += length;
}

static void add_layer(text_builder *to, const char *text)
{
    if (to->used)
        add(to, ", ");
    add(to, text);
}

static bool has_layer(const char *stack, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = stack; (at = strstr(at, name)); at += length) {
        const char before = at == stack ? ' ' : at[-1], after = at[length];
        if (strchr(" ,(|", before) && (!after || strchr(" ,()|", after)))
            return true;
    }
    return false;
}

/* Adds a size, in quotes if it has a blank ("8 GiB"), which would end a value in the text of a stack. */
static void add_size(text_builder *to, const char *size)
{
    const char *quote = strpbrk(size, " \t") ? "\"" : "";
    add(to, quote);
    add(to, size);
    add(to, quote);
}

static void add_budget(text_builder *to, const exec_request *request)
{
    add_layer(to, "budget(");
    if (request->budget) {
        add(to, "limit=");
        add_size(to, request->budget);
    }
    if (request->shared) {
        add(to, request->budget ? ", shared=" : "shared=");
        add(to, request->shared);
    }
    add(to, ")");
}

/* Adds a folder's name as it is: a % in it becomes %%, as marks in a log's name begin with %. */
static void add_folder(text_builder *to, const char *folder)
{
    for (; *folder; folder++)
        add(to, *folder == '%' ? "%%" : (const char[]){*folder, '\0'});
}

/* Adds a path with a number in front of its extension, or at its end if it has none. */
static void add_numbered(text_builder *to, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    char first[PATH_MAX];
    const char *rest = dot && dot > name ? dot : name + strlen(name);
    snprintf(first, sizeof first, "%.*s", (int)(rest - path), path);
    add(to, first);
    add(to, ".%n");
    add(to, rest);
}

/* Why a log could not be written, as an errno; 0: it could. A file is made and removed again. Other kinds are not
 * opened: the reader of a pipe would take the end of that for the end of the log. */
static int try_log(const log_path *path)
{
    struct stat is;
    const int given = strata_output_descriptor(path->text);
    if (given >= 0)
        return fcntl(given, F_GETFD) < 0 ? errno : 0;
    if (lstat(path->text, &is) == 0 && !S_ISREG(is.st_mode) && !S_ISDIR(is.st_mode) && !S_ISLNK(is.st_mode))
        return access(path->text, W_OK) != 0 ? errno : 0;
    bool regular;
    int file = log_path_create(path);
    const bool made = file >= 0;
    if (file < 0 && errno == EEXIST)
        file = log_path_open(path, &regular);
    if (file < 0)
        return errno;
    const int error = fstat(file, &is) == 0 && is.st_nlink > 1 ? EMLINK : 0;
    if (made)
        log_path_remove(path, file);
    close(file);
    return error;
}

/* Whether the log can be written: else the program would run without its stack. Marks in the name are those of the
 * first device's log. */
static bool can_log(const exec_request *request, const char *file)
{
    log_path path = {0};
    char reason[128];
    if (log_path_expand(&path, file, 0) != STRATA_SUCCESS) {
        fprintf(stderr, "%s: --log: %s\n", request->program, strata_last_error()->message);
        return false;
    }
    const int error = try_log(&path);
    if (error)
        fprintf(stderr, "%s: --log: the log could not be written to %s: %s\n", request->program, path.text,
                error == EBUSY ? "another log is writing to this file; put %p, the process, into the name"
                               : strata_output_error(error, reason, sizeof reason));
    return !error;
}

/* Finds the path from the root, without links, of a file that may not be there yet. False: its folder is not there. */
static bool resolve(const char *name, char path[PATH_MAX])
{
    char given[PATH_MAX], folder[PATH_MAX];
    if (realpath(name, path))
        return true;
    const char *slash = strrchr(name, '/');
    snprintf(given, sizeof given, "%.*s", slash ? (int)(slash - name) + 1 : 1, slash ? name : ".");
    return realpath(given, folder) && snprintf(path, PATH_MAX, "%s/%s", folder, slash ? slash + 1 : name) < PATH_MAX;
}

bool exec_check_files(const exec_request *request)
{
    log_path log = {0};
    char output[PATH_MAX], log_file[PATH_MAX], output_file[PATH_MAX];
    struct stat is;
    if (!request->log || !request->output || log_path_expand(&log, request->log, 0) != STRATA_SUCCESS ||
        !strata_output_expand(request->output, output, sizeof output) || strata_output_descriptor(output) >= 0 ||
        !resolve(log.text, log_file) || !resolve(output, output_file) || strcmp(log_file, output_file) != 0 ||
        (stat(log_file, &is) == 0 && !S_ISREG(is.st_mode)))
        return true;
    fprintf(stderr, "%s: --log and --output are one file, %s: give each its own\n", request->program, log_file);
    return false;
}

/* Adds a layer logging. The path is from the root: the program may go to another folder before its stack is made. */
static bool add_log(text_builder *to, const exec_request *request, bool numbered)
{
    char folder[PATH_MAX] = "", path[3 * PATH_MAX] = "";
    text_builder file = {path, sizeof path, 0, false};
    if (!request->log[0] || (request->log[0] != '/' && !getcwd(folder, sizeof folder))) {
        fprintf(stderr, "%s: --log: %s\n", request->program,
                request->log[0] ? "the current folder is unknown; give a path from the root" : "the file has no name");
        return false;
    }
    if (strchr(request->log, '"') || strchr(folder, '"')) {
        fprintf(stderr, "%s: --log: a path cannot contain a quotation mark\n", request->program);
        return false;
    }
    if (folder[0]) {
        add_folder(&file, folder);
        add(&file, "/");
    }
    if (numbered)
        add_numbered(&file, request->log);
    else
        add(&file, request->log);
    add_layer(to, "logging(existing=replace, file=\"");
    add(to, path);
    add(to, "\")");
    to->full |= file.full;
    return numbered || file.full || can_log(request, path);
}

/* Whether processes would write over each other's files, or be refused them; says so. */
static bool is_one_file_for_many(const exec_request *request)
{
    const char *option = request->log && !strata_output_names_process(request->log)         ? "--log"
                         : request->output && !strata_output_names_process(request->output) ? "--output"
                                                                                            : NULL;
    if (!request->children || !option)
        return false;
    fprintf(stderr,
            "%s: %s: with --children each process needs a file of its own: put %%p, the process, into the name\n",
            request->program, option);
    return true;
}

static bool is_asked_twice(const exec_request *request)
{
    static const char text[] = "%s: %s and a layer %s in --stack: say it in one place\n";
    const char *stack = request->stack ? request->stack : "";
    if ((request->budget || request->shared) && has_layer(stack, "budget"))
        fprintf(stderr, text, request->program, request->budget ? "--budget" : "--shared", "budget");
    else if (request->log && has_layer(stack, "logging"))
        fprintf(stderr, text, request->program, "--log", "logging");
    else if (request->stacks && has_layer(stack, "statistics"))
        fprintf(stderr, text, request->program, "--stacks", "statistics");
    else if (request->guard && has_layer(stack, "guard"))
        fprintf(stderr, text, request->program, "--guard", "guard");
    else if (request->ipc && request->stack)
        fprintf(stderr, "%s: --ipc is of the default stack: write pool(export=fd) into --stack\n", request->program);
    else
        return false;
    return true;
}

/* Whether what is set aside is the whole budget. Compares bytes with bytes and shares with shares: another pair is
 * compared when the device is known. */
static bool leaves_nothing(const char *budget, const char *set_aside)
{
    double share, kept_share;
    uint64_t bytes, kept;
    if (strata_read_percent(budget, strlen(budget), &share))
        return strata_read_percent(set_aside, strlen(set_aside), &kept_share) && kept_share >= share;
    return strata_read_size(budget, strlen(budget), &bytes) && strata_read_size(set_aside, strlen(set_aside), &kept) &&
           kept >= bytes;
}

bool exec_check_set_aside(const exec_request *request)
{
    const char *kept = request->set_aside, *budget = request->budget;
    if (!kept)
        return true;
    if (!budget && !request->shared && !(request->stack && has_layer(request->stack, "budget")))
        fprintf(stderr, "%s: --set-aside: there is no budget of which %s could be set aside: give --budget, too\n",
                request->program, kept);
    else if (budget && leaves_nothing(budget, kept))
        fprintf(stderr, "%s: --set-aside: %s would leave the program nothing of --budget %s\n", request->program, kept,
                budget);
    else
        return true;
    return false;
}

/* Peers: what cuMemAlloc gives can be used by those that the program enables. */
bool exec_compose_stack(const exec_request *request, bool numbered, char *text, size_t room)
{
    text_builder to = {text, room, 0, false};
    text[0] = '\0';
    if (is_asked_twice(request) || is_one_file_for_many(request))
        return false;
    if (request->budget || request->shared)
        add_budget(&to, request);
    if (request->log && !add_log(&to, request, numbered))
        return false;
    if (request->report && !(request->stack && has_layer(request->stack, "statistics")))
        add_layer(&to, request->stacks ? "statistics(stacks=on)" : "statistics");
    if (request->guard)
        add_layer(&to, "guard");
    add_layer(&to, request->stack ? request->stack : request->ipc ? "pool(peers=all, export=fd)" : "pool(peers=all)");
    if (to.full) {
        fprintf(stderr, "%s: the stack's text is too long\n", request->program);
        return false;
    }
    if (strata_builtin_register() == STRATA_SUCCESS && strata_check_stack_text(text) == STRATA_SUCCESS)
        return true;
    fprintf(stderr, "%s: the stack \"%s\": %s\n", request->program, text, strata_last_error()->message);
    return false;
}
