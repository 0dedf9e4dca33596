/* The exit list. */
#include "resources/findings/exit_list.h"

#include "core/base/host_memory.h"

#include <string.h>

static strata_lock list_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_EXIT_LOOKS);
static findings_log *logs; /* guarded by list_lock, like begun */
static bool begun;

static _Thread_local bool is_checking; /* this thread's findings go to the list */

static strata_lock found_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_EXIT_FINDINGS);
static exit_finding *found; /* guarded by found_lock, like the rest; kept until the process ends */
static size_t found_count, found_room;
static strata_error failure; /* the first one */

void exit_list_add(findings_log *self, bool (*begin)(void))
{
    strata_lock_take(&list_lock);
    if (!begun)
        begun = begin();
    self->next = logs;
    if (logs)
        logs->previous = self;
    logs = self;
    strata_lock_release(&list_lock);
}

void exit_list_remove(findings_log *self)
{
    if (!self->layer)
        return;
    strata_lock_take(&list_lock);
    if (self->next)
        self->next->previous = self->previous;
    if (self->previous)
        self->previous->next = self->next;
    else
        logs = self->next;
    strata_lock_release(&list_lock);
}

bool exit_list_is_empty(void)
{
    strata_lock_take(&list_lock);
    bool empty = logs == NULL;
    strata_lock_release(&list_lock);
    return empty;
}

void exit_list_check(void (*visit)(const findings_log *log, int round), int times)
{
    is_checking = true;
    strata_lock_take(&list_lock);
    for (int round = 0; round < times; round++)
        for (const findings_log *log = logs; log; log = log->next)
            visit(log, round);
    strata_lock_release(&list_lock);
}

/* Makes room for one finding. False without host memory: strata_guard_take_finding still has it. The lock is held. */
static bool make_room(void)
{
    if (found_count < found_room)
        return true;
    size_t room = 2 * (found_count + 1);
    exit_finding *larger = strata_host_zalloc(room * sizeof *larger);
    if (!larger)
        return false;
    if (found)
        memcpy(larger, found, found_count * sizeof *larger);
    strata_host_free(found);
    found = larger;
    found_room = room;
    return true;
}

bool exit_list_take_findings(const findings_log *log, const strata_guard_finding *findings, size_t count)
{
    if (!is_checking)
        return false;
    bool ends = log->options->on_finding == STRATA_GUARD_EXIT;
    strata_lock_take(&found_lock);
    for (size_t i = 0; i < count && make_room(); i++)
        found[found_count++] = (exit_finding){.finding = findings[i], .ends_process = ends};
    strata_lock_release(&found_lock);
    return true;
}

bool exit_list_finding(size_t index, exit_finding *out)
{
    strata_lock_take(&found_lock);
    bool any = index < found_count;
    if (any)
        *out = found[index];
    strata_lock_release(&found_lock);
    return any;
}

void exit_list_keep_failure(void)
{
    strata_lock_take(&found_lock);
    if (failure.status == STRATA_SUCCESS)
        failure = *strata_error_suppressed();
    strata_lock_release(&found_lock);
}

strata_error exit_list_failure(void)
{
    strata_lock_take(&found_lock);
    strata_error kept = failure;
    strata_lock_release(&found_lock);
    return kept;
}
