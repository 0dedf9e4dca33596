/* The list of registered layers. */
#include "core/base/fault_hints.h"

#include "core/base/lock.h"

#include <string.h>

static strata_lock lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_FAULT_CANDIDATES);
static strata_fault_candidates *all; /* guarded by lock, which is held while a layer is asked */

void strata_fault_candidates_enter(strata_fault_candidates *self)
{
    strata_lock_take(&lock);
    self->next = all;
    all = self;
    strata_lock_release(&lock);
}

void strata_fault_candidates_leave(strata_fault_candidates *self)
{
    strata_lock_take(&lock);
    for (strata_fault_candidates **link = &all; *link; link = &(*link)->next) {
        if (*link != self)
            continue;
        *link = self->next;
        break;
    }
    strata_lock_release(&lock);
}

void strata_fault_candidates_append(char *text, size_t room, size_t length)
{
    static const char between[] = ". ";
    enum { BETWEEN = sizeof between - 1 };
    strata_lock_take(&lock);
    for (strata_fault_candidates *one = all; one && length + BETWEEN + 1 < room; one = one->next) {
        size_t written = one->name(one, text + length + BETWEEN, room - length - BETWEEN);
        if (!written) {
            text[length] = '\0';
            continue;
        }
        memcpy(text + length, between, BETWEEN);
        length += BETWEEN + written;
    }
    strata_lock_release(&lock);
}
