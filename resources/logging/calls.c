/* Public functions. */
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "resources/logging/internal.h"

#include <inttypes.h>
#include <string.h>

static logging *as_logging(strata_resource *resource)
{
    return resource->ops->destroy == logging_destroy ? (logging *)resource : NULL;
}

static strata_status flush(logging *self)
{
    uint64_t lost = 0;
    if (!log_writer_flush(&self->writer, 0, &lost))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "logging: the writer cannot wait for itself");
    if (!lost)
        return STRATA_SUCCESS;
    char text[128];
    return strata_fail(STRATA_ERROR_IO, "logging: %s: %s; records lost: %" PRIu64, self->writer.sink->path,
                       strerror_r(atomic_load(&self->writer.sink->error), text, sizeof text), lost);
}

static strata_status refuse_stack(const strata_resource *resource)
{
    return strata_fail(STRATA_ERROR_INVALID_VALUE, resource ? "no such logging layer at or below %s" : "%s",
                       resource ? resource->ops->name : "logging: resource is NULL");
}

strata_status strata_logging_flush(strata_resource *resource)
{
    strata_status status = strata_check_not_forked();
    bool found = false;
    for (strata_resource *layer = resource; layer && status == STRATA_SUCCESS;
         layer = strata_resource_next_below(resource, layer)) {
        logging *self = as_logging(layer);
        if (!self)
            continue;
        found = true;
        status = flush(self);
    }
    return status != STRATA_SUCCESS || found ? status : refuse_stack(resource);
}

strata_status strata_logging_take(strata_resource *resource, strata_log_record *records, size_t capacity, size_t *count)
{
    if (!count)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_logging_take: count is NULL");
    *count = 0;
    if (!records && capacity)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_logging_take: records is NULL");
    strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    for (strata_resource *layer = resource; layer; layer = strata_resource_next_below(resource, layer)) {
        logging *self = as_logging(layer);
        if (!self || !log_sink_is_memory(self->writer.sink))
            continue;
        if ((status = flush(self)) == STRATA_SUCCESS)
            *count = log_sink_take(self->writer.sink, records, capacity);
        return status;
    }
    return refuse_stack(resource);
}
