/* The report: what the program asked for, by device and by library, and what no hook saw. */
#define _GNU_SOURCE
#include "adapters/exec/exec.h"

#include "adapters/exec/blind.h"
#include "adapters/exec/uncovered.h"
#include "core/base/descriptor_mark.h"
#include "core/base/emitter.h"
#include "core/base/error.h"
#include "core/base/output_file.h"
#include "core/base/report.h"
#include "driver/driver.h"

#include <strata/statistics.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- one device ---- */

typedef struct tag_report {
    strata_emitter *emitter;
    strata_resource *statistics;
} tag_report;

static void emit_tag(strata_tag tag, void *data)
{
    const tag_report *report = data;
    strata_statistics_counters counters;
    if (strata_statistics_read_tag(report->statistics, 0, tag, &counters) != STRATA_SUCCESS || !counters.blocks.total)
        return;
    strata_emit_object_begin(report->emitter, strata_tag_name(tag));
    strata_emit_bytes(report->emitter, "peak", (uint64_t)counters.bytes.peak);
    strata_emit_bytes(report->emitter, "live", (uint64_t)counters.bytes.current);
    strata_emit_count(report->emitter, "live_blocks", (uint64_t)counters.blocks.current);
    strata_emit_count(report->emitter, "allocations", (uint64_t)counters.blocks.total);
    strata_emit_object_end(report->emitter);
}

static void emit_libraries(strata_emitter *emitter, exec_device *device, bool at_end)
{
    tag_report report = {emitter, exec_statistics_of(device)};
    strata_statistics_counters counters;
    if (!report.statistics || strata_statistics_read(report.statistics, 0, &counters) != STRATA_SUCCESS)
        return;
    strata_emit_bytes(emitter, "peak", (uint64_t)counters.bytes.peak);
    strata_emit_bytes(emitter, "live", (uint64_t)counters.bytes.current);
    strata_emit_count(emitter, "live_blocks", (uint64_t)counters.blocks.current);
    strata_emit_count(emitter, "allocations", (uint64_t)counters.blocks.total);
    strata_emit_object_begin(emitter, "by_library");
    exec_caller_visit(emit_tag, &report);
    strata_emit_object_end(emitter);
    exec_report_stacks(emitter, report.statistics);
    if (at_end)
        exec_report_leaks(emitter, report.statistics);
}

static void emit_budget(strata_emitter *emitter, exec_device *device)
{
    strata_budget_usage usage;
    if (!device->account || strata_budget_account_usage(device->account, &usage) != STRATA_SUCCESS)
        return;
    strata_emit_object_begin(emitter, "budget");
    strata_emit_bytes(emitter, "limit", usage.limit);
    strata_emit_bytes(emitter, "peak", usage.peak);
    strata_emit_bytes(emitter, "in_use", usage.in_use);
    strata_emit_count(emitter, "refused", usage.refused);
    strata_emit_object_end(emitter);
}

static void emit_reserved(strata_emitter *emitter, exec_device *device)
{
    strata_usage usage;
    strata_error_suppress_begin();
    strata_runtime_usage(device->runtime, &usage); /* what it cannot say is zero */
    strata_error_suppress_end(false);
    if (usage.reserved_peak)
        strata_emit_bytes(emitter, "reserved_peak", usage.reserved_peak);
    strata_emit_bytes(emitter, "reserved", usage.reserved_bytes);
}

/* What the device has in use and neither its stack nor a passed call accounts for: contexts, modules, libraries' own
 * memory, and all that other processes have. */
static bool find_unaccounted(exec_device *device, uint64_t *bytes)
{
    strata_usage usage;
    size_t free_bytes, total;
    CUcontext before = NULL;
    if (!strata_driver_is_open() || strata_runtime_usage(device->runtime, &usage) != STRATA_SUCCESS ||
        strata_cu.CtxGetCurrent(&before) != CUDA_SUCCESS || strata_cu.CtxSetCurrent(device->context) != CUDA_SUCCESS)
        return false;
    const bool known = strata_cu.MemGetInfo(&free_bytes, &total) == CUDA_SUCCESS;
    strata_cu.CtxSetCurrent(before);
    const uint64_t accounted = usage.reserved_bytes + atomic_load(&device->passed_on);
    *bytes = known && total - free_bytes > accounted ? total - free_bytes - accounted : 0;
    return known;
}

static void emit_unaccounted(strata_emitter *emitter, exec_device *device)
{
    uint64_t bytes = 0;
    const bool known = find_unaccounted(device, &bytes);
    if (known)
        strata_emit_bytes(emitter, "not_accounted_for", bytes);
    exec_set_aside_emit(emitter, device, bytes, known);
}

static void emit_device(strata_emitter *emitter, exec_device *device, bool at_end)
{
    strata_emit_object_begin(emitter, NULL);
    strata_emit_count(emitter, "device", (uint64_t)device->ordinal);
    strata_emit_text(emitter, "stack", strata_stack_text(strata_runtime_stack(device->runtime)));
    emit_libraries(emitter, device, at_end);
    emit_reserved(emitter, device);
    emit_unaccounted(emitter, device);
    emit_budget(emitter, device);
    strata_emit_object_end(emitter);
}

/* ---- calls ---- */

static uint64_t read_count(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static void emit_calls(strata_emitter *emitter)
{
    strata_emit_object_begin(emitter, "calls");
    strata_emit_count(emitter, "served", read_count(&exec_counts_now.served));
    strata_emit_count(emitter, "served_stream_ordered", read_count(&exec_counts_now.served_async));
    strata_emit_count(emitter, "refused", read_count(&exec_counts_now.refused));
    strata_emit_count(emitter, "frees_refused", read_count(&exec_counts_now.bad_frees));
    strata_emit_count(emitter, "waits_on_the_host", read_count(&exec_counts_now.late_waits));
    strata_emit_object_end(emitter);
}

static void emit_uncovered(const char *symbol, uint64_t calls, void *data)
{
    strata_emit_count(data, symbol, calls);
}

/* ---- the whole ---- */

static void emit_blind(const char *object, void *data)
{
    strata_emit_text(data, NULL, object);
}

void exec_report_write(exec_report_form form, bool at_end, strata_write_callback write_text, void *data)
{
    exec_device *device;
    strata_emitter emitter;
    exec_free_all_waiting();
    strata_emitter_begin(&emitter, form == EXEC_REPORT_JSON ? STRATA_FORMAT_JSON : STRATA_FORMAT_TEXT, write_text,
                         data);
    strata_emit_count(&emitter, "process", (uint64_t)getpid());
    strata_emit_text(&emitter, "program", program_invocation_short_name);
    strata_emit_list_begin(&emitter, "devices");
    for (size_t i = 0; (device = exec_device_next(&i));)
        emit_device(&emitter, device, at_end);
    const exec_ended_stack *earlier = exec_ended_emit(&emitter);
    strata_emit_list_end(&emitter);
    exec_ended_emit_rest(&emitter, earlier);
    exec_passed_emit(&emitter);
    emit_calls(&emitter);
    exec_refusals_emit(&emitter);
    exec_wrong_frees_emit(&emitter);
    exec_caches_emit(&emitter);
    strata_emit_object_begin(&emitter, "calls_not_covered");
    exec_uncovered_visit(emit_uncovered, &emitter);
    strata_emit_object_end(&emitter);
    strata_emit_list_begin(&emitter, "linked_and_not_covered");
    exec_blind_visit_uncovered(emit_blind, &emitter);
    strata_emit_list_end(&emitter);
    strata_emit_list_begin(&emitter, "calls_of_these_were_not_seen");
    exec_blind_visit(emit_blind, &emitter);
    strata_emit_list_end(&emitter);
    strata_emitter_end(&emitter);
}

/* The descriptor that the report goes to if it has no file of its own, standard error or one that --output names, and a
 * duplicate that is made at the start: a program may close either. The mark tells both from another file that the
 * program opens under their numbers. */
static int given = -1, kept = -1;
static strata_descriptor_mark kept_mark;
static pid_t owner;

static bool names_descriptor(const exec_settings *settings)
{
    return !settings->output[0] || strata_output_descriptor(settings->output) >= 0;
}

void exec_report_keep_output(void)
{
    const exec_settings *settings = &exec_settings_now;
    owner = getpid();
    if (!names_descriptor(settings))
        return;
    given = settings->output[0] ? strata_output_descriptor(settings->output) : STDERR_FILENO;
    kept = fcntl(given, F_DUPFD_CLOEXEC, 500);
    if (kept < 0)
        kept = fcntl(given, F_DUPFD_CLOEXEC, 3);
    kept_mark = strata_descriptor_mark_of(given);
}

/* -1: the program has closed both, and may have other files there. */
static int find_kept(void)
{
    if (strata_descriptor_is_marked(kept, &kept_mark))
        return kept;
    return strata_descriptor_is_marked(given, &kept_mark) ? given : -1;
}

/* Neither waits for the reader of a pipe, nor for one that has stopped reading: the program is to end. */
static int open_output(const char *name)
{
    char path[PATH_MAX];
    if (strata_output_expand(name, path, sizeof path))
        return strata_output_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, 0);
    errno = ENAMETOOLONG;
    return -1;
}

/* Says so if a report is lost or has no end, unless it goes to standard error itself. */
static void say_lost(const char *output, int error)
{
    char reason[256];
    if (error && *output)
        exec_say("the report could not be written to %s: %s", output,
                 strata_output_error(error, reason, sizeof reason));
}

/* Writes the report without raising a signal if the reader has gone or the disk is full: the program ends as it would
 * have. */
static void write_report(bool at_end)
{
    const exec_settings *settings = &exec_settings_now;
    const bool opened = !names_descriptor(settings);
    strata_report_text text = {.descriptor = opened ? open_output(settings->output) : find_kept()};
    if (text.descriptor < 0) {
        say_lost(settings->output, opened ? errno : EBADF);
        return;
    }
    exec_report_write(settings->report, at_end, strata_report_text_add, &text);
    strata_report_text_end(&text);
    const bool closed = !opened || close(text.descriptor) == 0;
    say_lost(settings->output, text.failed ? text.error : closed ? 0 : errno);
}

/* Whether the report is not written over the one of the process that forked this one. */
static bool has_place(const exec_settings *settings)
{
    return getpid() == owner || names_descriptor(settings) || strata_output_names_process(settings->output);
}

/* One after the other: live.c's thread may be at a report when the program ends, and both would write to one file. */
static void report(bool at_end)
{
    static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
    static bool ended; /* the last one was written; guarded by the lock */
    if (!has_place(&exec_settings_now))
        return;
    pthread_mutex_lock(&writing);
    if (!ended)
        write_report(at_end);
    ended |= at_end;
    pthread_mutex_unlock(&writing);
}

void exec_report_now(void)
{
    report(false);
}

void exec_report_last(void)
{
    report(true);
}
