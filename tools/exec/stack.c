/* The stack that the options ask for, outermost layer first: budget, logging, statistics, guard, and what --stack gives
 * or a pool. */
#include "tools/exec/exec.h"

#include "core/stack/stack_text.h"
#include "resources/builtin.h"

#include <strata/status.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>
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

/* "8 GiB" is one size; in the text of a stack a blank ends a value that is not in quotes. */
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

/* A folder's name is meant as it is: a log's name has marks behind a %. */
static void add_folder(text_builder *to, const char *folder)
{
    for (; *folder; folder++)
        add(to, *folder == '%' ? "%%" : (const char[]){*folder, '\0'});
}

/* In front of the extension, for what has none at the end. */
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

/* The program may go to another folder before its stack is made. */
static bool add_log(text_builder *to, const exec_request *request, bool numbered)
{
    char folder[PATH_MAX] = "";
    if (!request->log[0] || (request->log[0] != '/' && !getcwd(folder, sizeof folder))) {
        fprintf(stderr, "%s: --log: %s\n", request->program,
                request->log[0] ? "the current folder is unknown; give a path from the root" : "the file has no name");
        return false;
    }
    if (strchr(request->log, '"') || strchr(folder, '"')) {
        fprintf(stderr, "%s: --log: a path cannot contain a quotation mark\n", request->program);
        return false;
    }
    add_layer(to, "logging(existing=replace, file=\"");
    if (folder[0]) {
        add_folder(to, folder);
        add(to, "/");
    }
    if (numbered)
        add_numbered(to, request->log);
    else
        add(to, request->log);
    add(to, "\")");
    return true;
}

/* Processes would write over each other's files, or be refused them. */
static bool is_one_file_for_many(const exec_request *request)
{
    const char *option = request->log && !strstr(request->log, "%p")         ? "--log"
                         : request->output && !strstr(request->output, "%p") ? "--output"
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
