/* Rows of a report that a stack's statistics give: of one that is there, and of one whose context has ended. */
#ifndef STRATA_ADAPTERS_EXEC_REPORT_STACKS_H
#define STRATA_ADAPTERS_EXEC_REPORT_STACKS_H

#include "adapters/exec/exec.h"

#include <strata/statistics.h>

typedef struct exec_stack_row {
    uint32_t call_stack;
    strata_tag library;
    strata_statistics_counters counters;
} exec_stack_row;

/* Rows for which there is no host memory are left out. */
typedef struct exec_stack_rows {
    exec_stack_row *rows; /* freed by the owner */
    size_t count, room;
    bool only_live;
} exec_stack_rows;

/* Returns a row for each call stack, the highest peak first; or, with only_live, the most live bytes first. */
exec_stack_rows exec_stack_rows_collect(strata_resource *statistics, bool only_live);

/* Emits as many rows as were asked for, and how many more there are. `ended`: of a stack that ended with its context,
 * whose peaks are shown without live bytes. */
void exec_stack_rows_emit(strata_emitter *emitter, const char *name, const exec_stack_rows *rows, bool ended);

/* Emits what a library has left live; nothing if it has left nothing. */
void exec_report_leak(strata_emitter *emitter, strata_tag library, const strata_statistics_counters *counters);

#endif
