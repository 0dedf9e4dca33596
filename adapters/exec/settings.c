/* What the launcher asks for, from the environment of the process that it becomes:
 *
 *   STRATA_EXEC_STACK        the stack of each device
 *
 *   STRATA_EXEC_STACK_AGAIN  that stack with a number in its log's name, if an earlier one of the process has the log
 *
 *   STRATA_EXEC_BUDGET       the budget: bytes, or a share of the device such as 50%
 *
 *   STRATA_EXEC_SET_ASIDE    how much of the budget is for what no hook sees, also bytes or a share
 *
 *   STRATA_EXEC_REPORT       text or json: a report at the end
 *
 *   STRATA_EXEC_OUTPUT       the report's file; default: standard error
 *
 *   STRATA_EXEC_STACKS       how many call stacks the report lists
 *
 *   STRATA_EXEC_FAIL_CLOSED  1: without the stack memory is refused
 *
 *   STRATA_EXEC_CHILDREN     1: programs that this one starts run so, too
 *
 *   STRATA_EXEC_SANITIZER    the sanitizer's library that the launcher has put into LD_PRELOAD
 *
 *   STRATA_EXEC_PROCESS      the number of that process, which stays the same through a script's interpreter or env
 *
 * In every other process, unless children are asked for, this library does nothing, and removes these variables and its
 * entry in LD_PRELOAD from the environment, so that the processes it starts do not load it. */
#define _GNU_SOURCE
#include "adapters/exec/settings.h"

#include "core/base/report.h"
#include "core/base/size_text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

exec_settings exec_settings_now;
exec_counts exec_counts_now;

void exec_say(const char *format, ...)
{
    char text[1024] = "strata exec: ";
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, sizeof text - used - 1, format, arguments);
    va_end(arguments);
    strcat(text, "\n");
    /* stdio's buffers are the program's, and so are the signals */
    (void)strata_write_without_signals(STDERR_FILENO, text, strlen(text));
}

static bool is_on(const char *name)
{
    const char *value = getenv(name);
    return value && strcmp(value, "1") == 0;
}

static exec_report_form read_report(void)
{
    const char *form = getenv("STRATA_EXEC_REPORT");
    return !form ? EXEC_REPORT_NONE : strcmp(form, "json") == 0 ? EXEC_REPORT_JSON : EXEC_REPORT_TEXT;
}

static void read_budget(const char *text)
{
    if (text && !strata_read_percent(text, strlen(text), &exec_settings_now.share))
        strata_read_size(text, strlen(text), &exec_settings_now.budget);
}

static void read_set_aside(const char *text)
{
    strata_amount *to = &exec_settings_now.set_aside;
    if (text && !strata_read_percent(text, strlen(text), &to->percent))
        strata_read_size(text, strlen(text), &to->bytes);
}

static void copy_text(char *to, size_t room, const char *text)
{
    snprintf(to, room, "%s", text ? text : "");
}

/* ---- children ---- */

/* Rewrites LD_PRELOAD without the first entry that ends in a library's name. */
static void leave_preload(const char *library)
{
    const char *list = getenv("LD_PRELOAD");
    const char *found = list ? strstr(list, library) : NULL;
    if (!found)
        return;
    const char *begin = found, *end = found + strcspn(found, ": ");
    while (begin > list && begin[-1] != ':' && begin[-1] != ' ')
        begin--;
    if (*end)
        end++;
    char *rest = malloc(strlen(list) + 1);
    if (!rest)
        return;
    memcpy(rest, list, (size_t)(begin - list));
    strcpy(rest + (begin - list), end);
    if (rest[0])
        setenv("LD_PRELOAD", rest, 1);
    else
        unsetenv("LD_PRELOAD");
    free(rest);
}

void exec_clean_environment(void)
{
    static const char *const names[] = {"STRATA_EXEC_STACK",       "STRATA_EXEC_BUDGET",      "STRATA_EXEC_REPORT",
                                        "STRATA_EXEC_OUTPUT",      "STRATA_EXEC_FAIL_CLOSED", "STRATA_EXEC_CHILDREN",
                                        "STRATA_EXEC_PROCESS",     "STRATA_EXEC_SANITIZER",   "STRATA_EXEC_STACKS",
                                        "STRATA_EXEC_STACK_AGAIN", "STRATA_EXEC_SET_ASIDE"};
    const char *sanitizer = getenv("STRATA_EXEC_SANITIZER");
    leave_preload("libstrata-exec.so");
    if (sanitizer)
        leave_preload(sanitizer);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

void exec_leave_sanitizer(void)
{
    const char *sanitizer = getenv("STRATA_EXEC_SANITIZER");
    if (sanitizer && !is_on("STRATA_EXEC_CHILDREN"))
        leave_preload(sanitizer);
}

static void read_once(void)
{
    exec_settings *to = &exec_settings_now;
    const char *stack = getenv("STRATA_EXEC_STACK");
    copy_text(to->stack, sizeof to->stack, stack ? stack : "statistics, pool");
    copy_text(to->stack_again, sizeof to->stack_again, getenv("STRATA_EXEC_STACK_AGAIN"));
    copy_text(to->output, sizeof to->output, getenv("STRATA_EXEC_OUTPUT"));
    read_budget(getenv("STRATA_EXEC_BUDGET"));
    read_set_aside(getenv("STRATA_EXEC_SET_ASIDE"));
    to->charged = strstr(to->stack, "budget") != NULL;
    to->report = read_report();
    to->counts = to->charged || to->report != EXEC_REPORT_NONE;
    const char *stacks = getenv("STRATA_EXEC_STACKS");
    to->stacks = stacks ? (unsigned)strtoul(stacks, NULL, 10) : 0;
    to->fail_closed = is_on("STRATA_EXEC_FAIL_CLOSED");
}

void exec_read_settings(void)
{
    static pthread_once_t read = PTHREAD_ONCE_INIT;
    pthread_once(&read, read_once);
}

enum { UNKNOWN = 0, WANTED, NOT_WANTED };
static _Atomic int wanted; /* decided by whichever thread comes first, all to the same */

/* Decides from the environment and the process's number alone: a look-up may come here before any constructor has run.
 */
static int decide(void)
{
    const char *process = getenv("STRATA_EXEC_PROCESS");
    const int decided =
        is_on("STRATA_EXEC_CHILDREN") || !process || strtol(process, NULL, 10) == (long)getpid() ? WANTED : NOT_WANTED;
    atomic_store_explicit(&wanted, decided, memory_order_relaxed);
    return decided;
}

bool exec_is_wanted(void)
{
    int decided = atomic_load_explicit(&wanted, memory_order_relaxed);
    if (__builtin_expect(decided == UNKNOWN, 0))
        decided = decide();
    return decided == WANTED;
}
