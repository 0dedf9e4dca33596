/* Stacks whose context has ended: what the report still says of them. What was live then went with the context. */
#include "adapters/exec/report_stacks.h"

#include "core/base/host_memory.h"

#include <stdlib.h>

enum { MOST_REPORTED = 16 };

typedef struct library_row {
    strata_tag library;
    strata_statistics_counters counters;
} library_row;

/* Never freed: a report may read it at any time. */
struct exec_ended_stack {
    struct exec_ended_stack *before;
    int ordinal;
    const char *text; /* of the runtime, which stays */
    bool counted;     /* the stack has statistics */
    strata_statistics_counters all;
    library_row *libraries;
    size_t library_count, library_room;
    exec_stack_rows highest, left;
    bool has_budget;
    strata_budget_usage budget;
    uint64_t set_aside;
};

static _Atomic(exec_ended_stack *) newest; /* changed under device.c's lock */

/* ---- noting ---- */

typedef struct library_search {
    strata_resource *statistics;
    exec_ended_stack *to;
} library_search;

/* Leaves the library out if there is no host memory for its row. */
static void add_library(strata_tag tag, void *data)
{
    const library_search *search = data;
    exec_ended_stack *to = search->to;
    strata_statistics_counters counters;
    if (strata_statistics_read_tag(search->statistics, 0, tag, &counters) != STRATA_SUCCESS || !counters.blocks.total)
        return;
    if (to->library_count == to->library_room) {
        const size_t room = to->library_room ? 2 * to->library_room : 4;
        library_row *rows = strata_host_zalloc(room * sizeof *rows);
        if (!rows)
            return;
        for (size_t i = 0; i < to->library_count; i++)
            rows[i] = to->libraries[i];
        strata_host_free(to->libraries);
        to->libraries = rows;
        to->library_room = room;
    }
    to->libraries[to->library_count++] = (library_row){tag, counters};
}

static void take_out(strata_statistics_counters *counters, const strata_block *block)
{
    counters->bytes.current -= (int64_t)block->bytes;
    counters->blocks.current--;
}

/* Takes a block that the program has freed out of the live counts; the free waited for a capture that ended with the
 * context, or whose end was not seen. The row of its call stack still counts it. */
static void take_out_free(const strata_block *block, void *data)
{
    exec_ended_stack *to = data;
    take_out(&to->all, block);
    for (size_t i = 0; i < to->library_count; i++)
        if (to->libraries[i].library == block->tag)
            take_out(&to->libraries[i].counters, block);
}

static void note_counts(const exec_device *device, exec_ended_stack *to)
{
    library_search search = {exec_statistics_of(device), to};
    to->counted = search.statistics && strata_statistics_read(search.statistics, 0, &to->all) == STRATA_SUCCESS;
    if (!to->counted)
        return;
    exec_caller_visit(add_library, &search);
    exec_visit_waiting(device, take_out_free, to);
    if (exec_settings_now.stacks) {
        to->highest = exec_stack_rows_collect(search.statistics, false);
        to->left = exec_stack_rows_collect(search.statistics, true);
    }
}

void exec_ended_note(const exec_device *device)
{
    exec_ended_stack *to = exec_settings_now.report == EXEC_REPORT_NONE ? NULL : strata_host_zalloc(sizeof *to);
    if (!to)
        return;
    to->ordinal = device->ordinal;
    to->text = strata_stack_text(strata_runtime_stack(device->runtime));
    note_counts(device, to);
    to->set_aside = atomic_load(&device->set_aside);
    to->has_budget = device->account && strata_budget_account_usage(device->account, &to->budget) == STRATA_SUCCESS;
    to->before = atomic_load_explicit(&newest, memory_order_relaxed);
    atomic_store_explicit(&newest, to, memory_order_release);
}

/* ---- reporting ---- */

static void emit_libraries(strata_emitter *emitter, const exec_ended_stack *stack)
{
    strata_emit_object_begin(emitter, "by_library");
    for (size_t i = 0; i < stack->library_count; i++) {
        const library_row *row = &stack->libraries[i];
        strata_emit_object_begin(emitter, strata_tag_name(row->library));
        strata_emit_bytes(emitter, "peak", (uint64_t)row->counters.bytes.peak);
        strata_emit_count(emitter, "allocations", (uint64_t)row->counters.blocks.total);
        strata_emit_object_end(emitter);
    }
    strata_emit_object_end(emitter);
}

static void emit_left(strata_emitter *emitter, const exec_ended_stack *stack)
{
    if (stack->all.bytes.current <= 0)
        return;
    strata_emit_object_begin(emitter, "leaks");
    strata_emit_object_begin(emitter, "by_library");
    for (size_t i = 0; i < stack->library_count; i++)
        exec_report_leak(emitter, stack->libraries[i].library, &stack->libraries[i].counters);
    strata_emit_object_end(emitter);
    if (exec_settings_now.stacks)
        exec_stack_rows_emit(emitter, "by_call_stack", &stack->left, true);
    strata_emit_object_end(emitter);
}

static void emit_counts(strata_emitter *emitter, const exec_ended_stack *stack)
{
    strata_emit_bytes(emitter, "peak", (uint64_t)stack->all.bytes.peak);
    strata_emit_count(emitter, "allocations", (uint64_t)stack->all.blocks.total);
    emit_libraries(emitter, stack);
    if (exec_settings_now.stacks)
        exec_stack_rows_emit(emitter, "by_call_stack", &stack->highest, true);
    emit_left(emitter, stack);
}

static void emit_stack(strata_emitter *emitter, const exec_ended_stack *stack)
{
    strata_emit_object_begin(emitter, NULL);
    strata_emit_count(emitter, "device", (uint64_t)stack->ordinal);
    strata_emit_text(emitter, "stack", stack->text);
    strata_emit_bool(emitter, "ended_with_its_context", true);
    if (stack->counted)
        emit_counts(emitter, stack);
    if (stack->set_aside)
        strata_emit_bytes(emitter, "set_aside", stack->set_aside);
    if (stack->has_budget) {
        strata_emit_object_begin(emitter, "budget");
        strata_emit_bytes(emitter, "limit", stack->budget.limit);
        strata_emit_bytes(emitter, "peak", stack->budget.peak);
        strata_emit_count(emitter, "refused", stack->budget.refused);
        strata_emit_object_end(emitter);
    }
    strata_emit_object_end(emitter);
}

const exec_ended_stack *exec_ended_emit(strata_emitter *emitter)
{
    const exec_ended_stack *stack = atomic_load_explicit(&newest, memory_order_acquire);
    for (size_t i = 0; stack && i < MOST_REPORTED; i++, stack = stack->before)
        emit_stack(emitter, stack);
    return stack;
}

void exec_ended_emit_rest(strata_emitter *emitter, const exec_ended_stack *rest)
{
    uint64_t count = 0, peak = 0;
    for (; rest; rest = rest->before, count++)
        if ((uint64_t)rest->all.bytes.peak > peak)
            peak = (uint64_t)rest->all.bytes.peak;
    if (!count)
        return;
    strata_emit_object_begin(emitter, "earlier_devices");
    strata_emit_count(emitter, "ended_with_their_contexts", count);
    strata_emit_bytes(emitter, "highest_peak", peak);
    strata_emit_object_end(emitter);
}
