/* What each call stack holds and held, and what is still live at the end. */
#include "adapters/exec/report_stacks.h"

#include "core/base/call_stack.h"
#include "core/base/host_memory.h"

#include <stdlib.h>

/* Room grows by doubling. */
static void add_row(uint32_t call_stack, strata_tag tag, const strata_statistics_counters *counters, void *data)
{
    exec_stack_rows *to = data;
    if (to->only_live && counters->bytes.current <= 0)
        return;
    if (to->count == to->room) {
        const size_t room = to->room ? 2 * to->room : 64;
        exec_stack_row *rows = strata_host_zalloc(room * sizeof *rows);
        if (!rows)
            return;
        for (size_t i = 0; i < to->count; i++)
            rows[i] = to->rows[i];
        strata_host_free(to->rows);
        to->rows = rows;
        to->room = room;
    }
    to->rows[to->count++] = (exec_stack_row){call_stack, tag, *counters};
}

static int compare(int64_t a, int64_t b)
{
    return a < b ? 1 : a > b ? -1 : 0;
}

static int by_peak(const void *a, const void *b)
{
    const exec_stack_row *one = a, *other = b;
    const int order = compare(one->counters.bytes.peak, other->counters.bytes.peak);
    return order ? order : one->call_stack < other->call_stack ? -1 : 1;
}

static int by_live(const void *a, const void *b)
{
    const exec_stack_row *one = a, *other = b;
    const int order = compare(one->counters.bytes.current, other->counters.bytes.current);
    return order ? order : one->call_stack < other->call_stack ? -1 : 1;
}

exec_stack_rows exec_stack_rows_collect(strata_resource *statistics, bool only_live)
{
    exec_stack_rows all = {.only_live = only_live};
    strata_statistics_visit_stacks(statistics, add_row, &all);
    if (all.count)
        qsort(all.rows, all.count, sizeof all.rows[0], only_live ? by_live : by_peak);
    return all;
}

static void emit_line(const char *text, void *emitter)
{
    strata_emit_text(emitter, NULL, text);
}

/* `peaks`, `live`: whether peaks with the number of allocations, and live bytes and blocks, are shown. */
static void emit_row(strata_emitter *emitter, const exec_stack_row *row, bool peaks, bool live)
{
    strata_emit_object_begin(emitter, NULL);
    strata_emit_text(emitter, "library", strata_tag_name(row->library));
    if (peaks)
        strata_emit_bytes(emitter, "peak", (uint64_t)row->counters.bytes.peak);
    if (live) {
        strata_emit_bytes(emitter, "live", (uint64_t)row->counters.bytes.current);
        strata_emit_count(emitter, "live_blocks", (uint64_t)row->counters.blocks.current);
    }
    if (peaks)
        strata_emit_count(emitter, "allocations", (uint64_t)row->counters.blocks.total);
    strata_emit_list_begin(emitter, "call_stack");
    strata_call_stack_print(row->call_stack, emit_line, emitter);
    strata_emit_list_end(emitter);
    strata_emit_object_end(emitter);
}

void exec_stack_rows_emit(strata_emitter *emitter, const char *name, const exec_stack_rows *rows, bool ended)
{
    const size_t most = exec_settings_now.stacks, shown = rows->count < most ? rows->count : most;
    strata_emit_list_begin(emitter, name);
    for (size_t i = 0; i < shown; i++)
        emit_row(emitter, &rows->rows[i], !rows->only_live, !ended || rows->only_live);
    strata_emit_list_end(emitter);
    if (shown < rows->count)
        strata_emit_count(emitter, "more_call_stacks", rows->count - shown);
}

static void emit_rows(strata_emitter *emitter, strata_resource *statistics, bool only_live)
{
    const exec_stack_rows all = exec_stack_rows_collect(statistics, only_live);
    exec_stack_rows_emit(emitter, "by_call_stack", &all, false);
    strata_host_free(all.rows);
}

void exec_report_stacks(strata_emitter *emitter, strata_resource *statistics)
{
    if (exec_settings_now.stacks)
        emit_rows(emitter, statistics, false);
}

/* ---- what is still live at the end ---- */

typedef struct live_report {
    strata_emitter *emitter;
    strata_resource *statistics;
} live_report;

void exec_report_leak(strata_emitter *emitter, strata_tag library, const strata_statistics_counters *counters)
{
    if (counters->bytes.current <= 0)
        return;
    strata_emit_object_begin(emitter, strata_tag_name(library));
    strata_emit_bytes(emitter, "live", (uint64_t)counters->bytes.current);
    strata_emit_count(emitter, "live_blocks", (uint64_t)counters->blocks.current);
    strata_emit_object_end(emitter);
}

static void emit_library(strata_tag tag, void *data)
{
    const live_report *report = data;
    strata_statistics_counters counters;
    if (strata_statistics_read_tag(report->statistics, 0, tag, &counters) == STRATA_SUCCESS)
        exec_report_leak(report->emitter, tag, &counters);
}

void exec_report_leaks(strata_emitter *emitter, strata_resource *statistics)
{
    live_report report = {emitter, statistics};
    strata_statistics_counters counters;
    if (strata_statistics_read(statistics, 0, &counters) != STRATA_SUCCESS || counters.bytes.current <= 0)
        return;
    strata_emit_object_begin(emitter, "leaks");
    strata_emit_object_begin(emitter, "by_library");
    exec_caller_visit(emit_library, &report);
    strata_emit_object_end(emitter);
    if (exec_settings_now.stacks)
        emit_rows(emitter, statistics, true);
    strata_emit_object_end(emitter);
}
