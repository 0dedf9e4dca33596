/* What the subjects share: the filter, and a row of the report. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

bool bench_wants(const bench *self, const char *name)
{
    return !self->filter || strstr(name, self->filter);
}

void bench_row(const bench *self, const char *name, bench_plan plan, bench_side bare_side, bench_side strata_side,
               bench_target target)
{
    if (!bench_wants(self, name))
        return;
    report_times row = {.bare = -1, .strata = -1, .kind = target.kind, .target = target.nanoseconds};
    snprintf(row.name, sizeof row.name, "%s", name);
    const bench_side sides[] = {strata_side, bare_side};
    double figures[2];
    bench_measure(self->rounds, plan, sides, bare_side.run ? 2 : 1, figures);
    row.strata = figures[0];
    if (bare_side.run)
        row.bare = figures[1];
    report_add_times(self->report, &row);
}
