/* What was passed on to the driver, by kind and by library. */
#include "adapters/exec/exec.h"

typedef struct kind_report {
    strata_emitter *emitter;
    exec_kind kind;
} kind_report;

static void emit_sums(strata_emitter *emitter, exec_passed_sums sums)
{
    strata_emit_count(emitter, "calls", sums.calls);
    strata_emit_bytes(emitter, "peak", sums.peak);
    strata_emit_bytes(emitter, "live", sums.live);
}

/* Of graphs' memory only the calls are known by library: which one made nodes, not how much the driver holds for it. */
static void emit_library(strata_tag library, void *data)
{
    const kind_report *report = data;
    const exec_passed_sums sums = exec_passed_read(report->kind, library);
    if (!sums.calls)
        return;
    strata_emit_object_begin(report->emitter, strata_tag_name(library));
    if (report->kind == EXEC_GRAPH)
        strata_emit_count(report->emitter, "calls", sums.calls);
    else
        emit_sums(report->emitter, sums);
    strata_emit_object_end(report->emitter);
}

static void emit_kind(strata_emitter *emitter, exec_kind kind)
{
    kind_report report = {emitter, kind};
    const exec_passed_sums sums = exec_passed_read(kind, 0);
    if (!sums.calls)
        return;
    strata_emit_object_begin(emitter, exec_kind_rows[kind].name);
    emit_sums(emitter, sums);
    strata_emit_object_begin(emitter, "by_library");
    exec_caller_visit(emit_library, &report);
    strata_emit_object_end(emitter);
    strata_emit_object_end(emitter);
}

static bool is_any(void)
{
    for (exec_kind kind = 0; kind < EXEC_KINDS; kind++)
        if (exec_passed_read(kind, 0).calls)
            return true;
    return false;
}

void exec_passed_emit(strata_emitter *emitter)
{
    if (!is_any())
        return;
    strata_emit_object_begin(emitter, "passed_on_to_the_driver");
    for (exec_kind kind = 0; kind < EXEC_KINDS; kind++)
        emit_kind(emitter, kind);
    strata_emit_object_end(emitter);
}
