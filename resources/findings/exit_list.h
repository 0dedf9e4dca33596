/* The exit list: layers to check at process exit, and findings of the check. For at_exit.c. */
#ifndef STRATA_RESOURCES_FINDINGS_EXIT_LIST_H
#define STRATA_RESOURCES_FINDINGS_EXIT_LIST_H

#include "core/base/error.h"
#include "resources/findings/findings.h"

typedef struct exit_finding {
    strata_guard_finding finding;
    bool ends_process;
} exit_finding;

/* Adds a log. `begin` is called under the list's lock, with the first log, until it answers true. */
void exit_list_add(findings_log *self, bool (*begin)(void));
bool exit_list_is_empty(void);

/* Calls visit for each log, `times` over, under the list's lock. From then on the calling thread's findings go to the
 * list. */
void exit_list_check(void (*visit)(const findings_log *log, int round), int times);

/* The finding at `index`; false: none. A check that was given up may still add some. */
bool exit_list_finding(size_t index, exit_finding *out);

/* Keeps a check's first failure: the thread's suppressed error. */
void exit_list_keep_failure(void);
strata_error exit_list_failure(void);

#endif
