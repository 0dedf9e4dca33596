/* Public functions that find the layer in a stack. */
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "resources/logging/internal.h"

#include <string.h>

static logging *as_logging(strata_resource *resource)
{
    return resource->ops->destroy == logging_destroy ? (logging *)resource : NULL;
}

static strata_status flush(logging *self)
{
    if (!log_writer_flush(&self->writer, 0))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "logging: the writer cannot wait for itself");
    if (!atomic_load_explicit(&self->writer.failing, memory_order_relaxed))
        return STRATA_SUCCESS;
    char text[128];
    return strata_fail(STRATA_ERROR_IO, "logging: %s: %s", self->writer.sink->path,
                       strerror_r(atomic_load(&self->writer.sink->error), text, sizeof text));
}

static strata_status refuse_stack(const strata_resource *resource)
{
    return strata_fail(STRATA_ERROR_INVALID_VALUE, resource ? "there is no such logging layer from %s downwards" : "%s",
                       resource ? resource->ops->name : "a log without a resource");
}

strata_status strata_logging_flush(strata_resource *resource)
{
    strata_status status = strata_not_forked();
    bool found = false;
    for (strata_resource *layer = resource; layer && status == STRATA_SUCCESS; layer = layer->upstream) {
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
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "records of a log without a place for their number");
    *count = 0;
    if (!records && capacity)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "records of a log without a place for them");
    strata_status status = strata_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    for (strata_resource *layer = resource; layer; layer = layer->upstream) {
        logging *self = as_logging(layer);
        if (!self || !log_sink_is_memory(self->writer.sink))
            continue;
        if ((status = flush(self)) == STRATA_SUCCESS)
            *count = log_sink_take(self->writer.sink, records, capacity);
        return status;
    }
    return refuse_stack(resource);
}
