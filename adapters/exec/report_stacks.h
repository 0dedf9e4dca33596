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

/* What finds no host memory is left out. */
typedef struct exec_stack_rows {
    exec_stack_row *rows; /* freed by the owner */
    size_t count, room;
    bool only_live;
} exec_stack_rows;

/* With the highest peak first, or of what is live the largest. */
exec_stack_rows exec_stack_rows_collect(strata_resource *statistics, bool only_live);

/* As many as were asked for, and how many more there are. `ended`: with the context: nothing of the peaks is live. */
void exec_stack_rows_emit(strata_emitter *emitter, const char *name, const exec_stack_rows *rows, bool ended);

/* What a library left; nothing if that is nothing. */
void exec_report_leak(strata_emitter *emitter, strata_tag library, const strata_statistics_counters *counters);

#endif
