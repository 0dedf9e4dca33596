/* Values and report. */
#include "resources/logging/internal.h"

#include <string.h>

enum { RECORDS, DROPPED_RECORDS, LATE_RECORDS, WRITTEN_BYTES, WRITE_ERROR, ENABLED };

const strata_value logging_values[LOGGING_VALUES] = {
    [RECORDS] = {"records", STRATA_VALUE_COUNT, false, "records made, dropped ones excluded"},
    [DROPPED_RECORDS] = {"dropped_records", STRATA_VALUE_COUNT, false, "records dropped"},
    [LATE_RECORDS] = {"late_records", STRATA_VALUE_COUNT, false, "records written after younger ones"},
    [WRITTEN_BYTES] = {"written_bytes", STRATA_VALUE_BYTES, false, "bytes written to files"},
    [WRITE_ERROR] = {"write_error", STRATA_VALUE_COUNT, false, "last errno of a file; 0: none"},
    [ENABLED] = {"enabled", STRATA_VALUE_SWITCH, true, "whether records are made"},
};

strata_status logging_get(strata_resource *resource, size_t which, uint64_t *value)
{
    logging *self = (logging *)resource;
    const log_sink *sink = self->writer.sink;
    switch (which) {
    case RECORDS:
        *value = log_rings_recorded(&self->writer.rings);
        break;
    case DROPPED_RECORDS:
        *value = log_writer_dropped(&self->writer);
        break;
    case LATE_RECORDS:
        *value = atomic_load_explicit(&self->writer.late, memory_order_relaxed);
        break;
    case WRITTEN_BYTES:
        *value = atomic_load_explicit(&sink->written_bytes, memory_order_relaxed);
        break;
    case WRITE_ERROR:
        *value = (uint64_t)atomic_load_explicit(&sink->error, memory_order_relaxed);
        break;
    default:
        *value = atomic_load_explicit(&self->enabled, memory_order_relaxed);
    }
    return STRATA_SUCCESS;
}

void logging_enable(logging *self, bool enabled)
{
    atomic_store_explicit(&self->enabled, enabled, memory_order_relaxed);
    atomic_store_explicit(&self->fast, enabled && !self->duration && strata_timestamp_is_simple(),
                          memory_order_relaxed);
}

strata_status logging_set(strata_resource *resource, size_t which, uint64_t value)
{
    (void)which;
    logging_enable((logging *)resource, value != 0);
    return STRATA_SUCCESS;
}

void logging_describe(strata_resource *resource, strata_emitter *to)
{
    const logging *self = (const logging *)resource;
    char text[128];
    int error = atomic_load_explicit(&self->writer.sink->error, memory_order_relaxed);
    strata_emit_text(to, "file", self->writer.sink->path);
    if (error)
        strata_emit_text(to, "write_error_text", strerror_r(error, text, sizeof text));
}
