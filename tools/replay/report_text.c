/* The text report, problems last. */
#include "tools/replay/report.h"

#include "core/base/size_text.h"
#include "tools/command.h"
#include "tools/plain_text.h"
#include "tools/size_words.h"

#include <inttypes.h>
#include <stdarg.h>

static void line(FILE *to, const char *name, const char *format, ...) STRATA_PRINTF(3, 4);

static void line(FILE *to, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(to, "%-16s ", name);
    vfprintf(to, format, arguments);
    fputc('\n', to);
    va_end(arguments);
}

static void line_of_text(FILE *to, const char *name, const char *text)
{
    line(to, name, "%s", plain(text).text);
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void setting(FILE *to, const report *of)
{
    const strata_driver_info *driver = of->driver;
    for (size_t i = 0; i < of->trace_count; i++)
        line_of_text(to, i ? "" : of->trace_count == 1 ? "trace" : "traces", of->traces[i].path);
    line(to, "driver", "%s, CUDA %d.%d (%s)", driver->simulated ? "simulated" : plain(command_driver_word(driver)).text,
         driver->version / 1000, driver->version % 1000 / 10, plain(driver->library).text);
    line(to, "device", "%d: %s, %s", of->device->ordinal, of->device->name,
         words_of_bytes(of->device->total_bytes).text);
    line_of_text(to, "stack", of->stack);
    uint32_t passes = of->options->repeat ? of->options->repeat : 1;
    line(to, "replayed with", "%" PRIu32 " stream%s, %" PRIu32 " thread%s, %" PRIu32 " pass%s%s%s%s%s",
         of->result->streams, plural(of->result->streams), of->result->threads, plural(of->result->threads), passes,
         passes == 1 ? "" : "es", of->options->pace ? ", at the recorded times" : "",
         of->options->touch ? ", every byte written and checked" : "",
         of->options->busy ? ", each block's first bytes written" : "",
         of->options->default_stream ? ", the first on the default stream" : "");
    fputc('\n', to);
}

static void operations(FILE *to, const replay_result *result)
{
    line(to, "operations", "%s: %s allocations, %s frees, %s uses, %s waits", words_of_count(result->operations).text,
         words_of_count(result->allocations).text, words_of_count(result->frees).text,
         words_of_count(result->uses).text, words_of_count(result->waits).text);
    if (result->syncs)
        line(to, "", "and %s sync%s", words_of_count(result->syncs).text, plural(result->syncs));
    if (result->shared_blocks)
        line(to, "shared", "%s blocks used and freed on another stream than their own",
             words_of_count(result->shared_blocks).text);
    if (result->recorded_failures)
        line(to, "left out", "%s calls that had failed when the trace was recorded",
             words_of_count(result->recorded_failures).text);
    if (result->recorded_strays)
        line(to, "left out", "%s frees and uses of blocks whose allocation the log lacks",
             words_of_count(result->recorded_strays).text);
    if (result->recorded_dropped)
        line(to, "not in the log", "%s records that its writer dropped", words_of_count(result->recorded_dropped).text);
    if (result->recorded_torn)
        line(to, "not in the log", "everything after its last %s bytes, a partial batch or line",
             words_of_count(result->recorded_torn).text);
    if (result->recorded_cut)
        line(to, "not in the log", "everything after the end of %s compressed file%s that %s cut off",
             words_of_count(result->recorded_cut).text, plural(result->recorded_cut),
             result->recorded_cut == 1 ? "is" : "are");
    if (result->recorded_unfreed)
        line(to, "added", "%s frees that the log lacks, before the next allocation of their addresses",
             words_of_count(result->recorded_unfreed).text);
    line(to, "failures", "%s", words_of_count(result->failures).text);
    if (result->skipped)
        line(to, "skipped", "%s operations on blocks that could not be allocated",
             words_of_count(result->skipped).text);
}

static void duration(FILE *to, const char *name, const histogram *of)
{
    if (of->count)
        line(to, name, "median %s, 99th percentile %s", words_of_duration(histogram_percentile(of, 50)).text,
             words_of_duration(histogram_percentile(of, 99)).text);
}

static void times(FILE *to, const replay_result *result)
{
    duration(to, "per operation", &result->operation_ns);
    duration(to, "  allocate", &result->allocate_ns);
    duration(to, "  deallocate", &result->deallocate_ns);
    duration(to, "  use", &result->use_ns);
    line(to, "wall time", "%s", words_of_duration(result->wall_ns).text);
    if (result->touched_bytes && result->wall_ns)
        line(to, "touched", "%s, %.3g GB/s", words_of_bytes(result->touched_bytes).text,
             (double)result->touched_bytes / (double)result->wall_ns);
}

static void memory(FILE *to, const replay_result *result)
{
    line(to, "peak live", "%s", strata_size_text(result->peak_live_bytes).text);
    line(to, "peak reserved", "%s", strata_size_text(result->peak_reserved_bytes).text);
    if (result->peak_live_bytes)
        line(to, "reserved / live", "%.3f", (double)result->peak_reserved_bytes / (double)result->peak_live_bytes);
}

static void blocks(FILE *to, const report *of)
{
    const replay_result *result = of->result;
    if (result->left_by_trace)
        line(to, "never freed", "%s blocks of the trace; freed at its end", words_of_count(result->left_by_trace).text);
    if (result->leaked_bytes)
        line(to, "left over", "%s blocks, %s that the stack still counts", words_of_count(result->leaked_blocks).text,
             words_of_bytes(result->leaked_bytes).text);
    else
        line(to, "left over", "%s blocks", words_of_count(result->leaked_blocks).text);
    if (of->options->touch)
        line(to, "corrupted", "%s blocks", words_of_count(result->corrupted_blocks).text);
    else
        line(to, "corrupted", "not checked (--touch checks)");
}

static void driver_calls(FILE *to, const call_counts *counts)
{
    for (uint32_t i = 0; i < counts->used; i++)
        line(to, i ? "" : "driver calls", "%12s  %s", words_of_count(counts->calls[i].count).text,
             counts->calls[i].name);
}

static const char *words_of_value(const strata_value *what, uint64_t value, words *room)
{
    switch (what->type) {
    case STRATA_VALUE_BYTES:
        *room = words_of_bytes(value);
        break;
    case STRATA_VALUE_DURATION:
        *room = words_of_duration(value);
        break;
    case STRATA_VALUE_SWITCH:
        return value ? "on" : "off";
    case STRATA_VALUE_COUNT:
        *room = words_of_count(value);
        break;
    }
    return room->text;
}

static void note_any(const char *name, const strata_value *what, uint64_t value, void *any)
{
    (void)name, (void)what;
    *(bool *)any |= value != 0;
}

/* Zeros are left out. */
static void layer_value(const char *name, const strata_value *what, uint64_t value, void *to)
{
    words room;
    if (value)
        fprintf(to, "  %-29s %s\n", name, words_of_value(what, value, &room));
}

static void layers(FILE *to, const report *of)
{
    bool any = false;
    if (of->layers)
        strata_control_visit(of->layers, note_any, &any);
    if (!any)
        return;
    fprintf(to, "layers\n");
    strata_control_visit(of->layers, layer_value, to);
}

static void findings(FILE *to, const replay_result *result)
{
    for (uint32_t i = 0; i < result->failed_count; i++)
        fprintf(to, "%s%s\n", i ? "" : "\nThe first failures:\n", plain(result->failed[i].text).text);
    for (uint32_t i = 0; i < result->corrupted_count; i++) {
        const replay_corruption *at = &result->corrupted[i];
        fprintf(to,
                "%s%s:%" PRIu32 ": id %" PRIu64 ", %" PRIu64 " bytes: %" PRIu64 " wrong, the first at offset %" PRIu64
                " (pass %" PRIu32 ")\n",
                i ? "" : "\nThe first corrupted blocks:\n", plain(at->trace).text, at->line, at->id, at->bytes,
                at->wrong, at->first, at->pass + 1);
    }
}

bool report_text(const report *of, FILE *to)
{
    setting(to, of);
    operations(to, of->result);
    times(to, of->result);
    memory(to, of->result);
    blocks(to, of);
    layers(to, of);
    driver_calls(to, &of->result->driver_calls);
    findings(to, of->result);
    return fflush(to) == 0 && !ferror(to);
}
