/* One JSON object; bytes, nanoseconds. */
#include "tools/replay/report.h"

#include "tools/command.h"
#include "tools/json_values.h"

static void set_setting(json_t *object, const report *of)
{
    json_object_set_new(object, "driver", json_text(command_driver_word(of->driver)));
    json_object_set_new(object, "driver_library", json_text(of->driver->library));
    json_set_number(object, "driver_version", (uint64_t)of->driver->version);
    json_object_set_new(object, "simulated", json_boolean(of->driver->simulated));
    json_set_number(object, "device", (uint64_t)of->device->ordinal);
    json_object_set_new(object, "device_name", json_text(of->device->name));
    json_object_set_new(object, "stack", json_text(of->stack));
    json_t *traces = json_array();
    for (size_t i = 0; i < of->trace_count; i++)
        json_array_append_new(traces, json_text(of->traces[i].path));
    json_object_set_new(object, "traces", traces);
    json_set_number(object, "streams", of->result->streams);
    json_set_number(object, "threads", of->result->threads);
    json_set_number(object, "passes", of->options->repeat ? of->options->repeat : 1);
    json_set_number(object, "share", of->options->share);
    json_object_set_new(object, "pace", json_boolean(of->options->pace));
    json_object_set_new(object, "touch", json_boolean(of->options->touch));
    json_object_set_new(object, "busy", json_boolean(of->options->busy));
    json_object_set_new(object, "default_stream", json_boolean(of->options->default_stream));
}

static void set_operations(json_t *object, const replay_result *result)
{
    json_set_number(object, "operations", result->operations);
    json_set_number(object, "allocations", result->allocations);
    json_set_number(object, "frees", result->frees);
    json_set_number(object, "uses", result->uses);
    json_set_number(object, "waits", result->waits);
    json_set_number(object, "syncs", result->syncs);
    json_set_number(object, "shared_blocks", result->shared_blocks);
    json_set_number(object, "recorded_failures", result->recorded_failures);
    json_set_number(object, "recorded_strays", result->recorded_strays);
    json_set_number(object, "recorded_dropped", result->recorded_dropped);
    json_set_number(object, "recorded_torn_bytes", result->recorded_torn);
    json_set_number(object, "recorded_unfreed", result->recorded_unfreed);
    json_set_number(object, "recorded_cut_files", result->recorded_cut);
    json_set_number(object, "failures", result->failures);
    json_set_number(object, "skipped", result->skipped);
}

static void set_times(json_t *object, const replay_result *result)
{
    json_set_number(object, "ns_per_operation_p50", histogram_percentile(&result->operation_ns, 50));
    json_set_number(object, "ns_per_operation_p99", histogram_percentile(&result->operation_ns, 99));
    json_set_number(object, "ns_per_allocate_p50", histogram_percentile(&result->allocate_ns, 50));
    json_set_number(object, "ns_per_allocate_p99", histogram_percentile(&result->allocate_ns, 99));
    json_set_number(object, "ns_per_deallocate_p50", histogram_percentile(&result->deallocate_ns, 50));
    json_set_number(object, "ns_per_deallocate_p99", histogram_percentile(&result->deallocate_ns, 99));
    json_set_number(object, "ns_per_use_p50", histogram_percentile(&result->use_ns, 50));
    json_set_number(object, "ns_per_use_p99", histogram_percentile(&result->use_ns, 99));
    json_set_number(object, "wall_ns", result->wall_ns);
    json_set_number(object, "touched_bytes", result->touched_bytes);
}

static void set_memory(json_t *object, const replay_result *result)
{
    json_set_number(object, "peak_live_bytes", result->peak_live_bytes);
    json_set_number(object, "peak_reserved_bytes", result->peak_reserved_bytes);
    json_object_set_new(object, "reserved_per_live",
                        result->peak_live_bytes
                            ? json_real((double)result->peak_reserved_bytes / (double)result->peak_live_bytes)
                            : json_null());
    json_set_number(object, "left_by_trace", result->left_by_trace);
    json_set_number(object, "leaked_blocks", result->leaked_blocks);
    json_set_number(object, "leaked_bytes", result->leaked_bytes);
    json_set_number(object, "corrupted_blocks", result->corrupted_blocks);
}

static void set_calls(json_t *object, const call_counts *counts)
{
    json_t *calls = json_object();
    for (uint32_t i = 0; i < counts->used; i++)
        json_set_number(calls, counts->calls[i].name, counts->calls[i].count);
    json_object_set_new(object, "driver_calls", calls);
}

static void set_value(const char *name, const strata_value *what, uint64_t value, void *object)
{
    (void)what;
    json_set_number(object, name, value);
}

static void set_layers(json_t *object, const report *of)
{
    json_t *values = json_object();
    if (of->layers)
        strata_control_visit(of->layers, set_value, values);
    json_object_set_new(object, "layers", values);
}

static void set_findings(json_t *object, const replay_result *result)
{
    json_t *failures = json_array();
    for (uint32_t i = 0; i < result->failed_count; i++)
        json_array_append_new(failures, json_text(result->failed[i].text));
    json_object_set_new(object, "first_failures", failures);

    json_t *corrupted = json_array();
    for (uint32_t i = 0; i < result->corrupted_count; i++) {
        const replay_corruption *at = &result->corrupted[i];
        json_t *block = json_object();
        json_object_set_new(block, "trace", json_text(at->trace));
        json_set_number(block, "line", at->line);
        json_set_number(block, "pass", at->pass + UINT64_C(1));
        json_set_number(block, "id", at->id);
        json_set_number(block, "bytes", at->bytes);
        json_set_number(block, "wrong_bytes", at->wrong);
        json_set_number(block, "first_wrong_offset", at->first);
        json_array_append_new(corrupted, block);
    }
    json_object_set_new(object, "first_corrupted", corrupted);
}

bool report_json(const report *of, FILE *to)
{
    json_t *object = json_object();
    set_operations(object, of->result);
    set_memory(object, of->result);
    set_times(object, of->result);
    set_calls(object, &of->result->driver_calls);
    set_layers(object, of);
    set_setting(object, of);
    set_findings(object, of->result);
    bool written = json_dumpf(object, to, JSON_INDENT(2) | JSON_ENSURE_ASCII) == 0;
    json_decref(object);
    fputc('\n', to);
    return fflush(to) == 0 && !ferror(to) && written;
}
