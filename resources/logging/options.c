/* Options, in structs and in stack texts. */
#include "core/base/options.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "resources/builtin.h"
#include "resources/logging/internal.h"

#include <inttypes.h>
#include <string.h>

enum {
    RING_LEAST = 64,
    RING_DEFAULT = 4096,
    RING_MOST = 1 << 20,
    MEMORY_DEFAULT = 1 << 16,
    MEMORY_MOST = 1 << 24,
    KEEP_MOST = 1000,
    INTERVAL_DEFAULT_NS = 10000000,
    INTERVAL_LEAST_NS = 100000,
};

static strata_status check_options(const strata_logging_options *options)
{
    bool calls = options->callback != NULL;
    bool filed = !calls && options->format < STRATA_LOG_MEMORY;
    if ((unsigned)options->format > STRATA_LOG_NULL || (unsigned)options->existing > STRATA_LOG_EXISTING_REPLACE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "logging: invalid format %d or existing %d", options->format,
                           options->existing);
    if (calls && options->format != STRATA_LOG_AUTO)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "logging: callback and format cannot be combined");
    if (!filed && (*options->file || options->rotate || options->keep || options->existing || options->mode))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "logging: file, rotate, keep, existing and mode need format binary or csv");
    if (options->mode > 0777)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "logging: mode has other bits than permissions, such as 0640");
    if (strnlen(options->file, sizeof options->file) == sizeof options->file)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "logging: the file name is not terminated");
    if (options->ring && (options->ring < RING_LEAST || options->ring > RING_MOST))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "logging: a ring of %" PRIu64 " records; expected %d to %d",
                           options->ring, RING_LEAST, RING_MOST);
    if (options->memory > MEMORY_MOST || options->keep > KEEP_MOST)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "logging: expected at most %d records of memory, and %d files to keep", MEMORY_MOST,
                           KEEP_MOST);
    if (options->interval && options->interval < INTERVAL_LEAST_NS)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "logging: an interval of %" PRIu64 " ns; expected at least %d ns", options->interval,
                           INTERVAL_LEAST_NS);
    return STRATA_SUCCESS;
}

static strata_status make_sink(const strata_logging_options *options, int device, log_sink **out)
{
    if (!options->callback && options->format < STRATA_LOG_MEMORY)
        return log_sink_file(options, device, out);
    if (options->format == STRATA_LOG_MEMORY)
        *out = log_sink_memory(options->memory ? options->memory : MEMORY_DEFAULT);
    else
        *out = log_sink_call(options->callback, options->callback_data);
    return *out ? STRATA_SUCCESS : strata_fail_host_memory("the sink of a log");
}

static uint64_t ring_lines(uint64_t records)
{
    uint64_t lines = RING_LEAST;
    while (lines < (records ? records : RING_DEFAULT))
        lines *= 2;
    return lines;
}

strata_status strata_logging_create(int ordinal, const strata_logging_options *given, strata_resource **out)
{
    strata_logging_options options;
    strata_device *device;
    strata_status status = strata_options_begin("logging", out, &options, sizeof options, given);
    if (status == STRATA_SUCCESS)
        status = check_options(&options);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    logging *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a logging resource");
    self->resource.ops = options.without_uses ? &logging_ops_without_uses : &logging_ops_with_uses;
    self->device = device;
    self->duration = options.duration;
    self->internal = options.internal;
    strata_timestamp_start();
    logging_enable(self, !options.disabled);
    self->writer.resource = &self->resource;
    self->writer.device = ordinal;
    self->writer.interval_ns = options.interval ? options.interval : INTERVAL_DEFAULT_NS;
    if ((status = make_sink(&options, ordinal, &self->writer.sink)) != STRATA_SUCCESS)
        goto refuse;
    if ((status = log_writer_start(&self->writer, ring_lines(options.ring))) == STRATA_SUCCESS) {
        *out = &self->resource;
        return STRATA_SUCCESS;
    }
    self->writer.sink->ops->close(self->writer.sink, false);
refuse:
    strata_host_free(self);
    return status;
}

static strata_status make_logging(int device, const void *options, strata_resource **out)
{
    return strata_logging_create(device, options, out);
}

static const strata_option texts[] = {
    {"file", STRATA_OPTION_STRING, offsetof(strata_logging_options, file), NULL,
     "file of the log; %p: process, %d: device, %n: number; default: strata-%p.%n.slog"},
    {"format", STRATA_OPTION_CHOICE, offsetof(strata_logging_options, format), "auto|binary|csv|memory|null",
     "format of the log; auto: by the file's name; memory and null need no file"},
    {"existing", STRATA_OPTION_CHOICE, offsetof(strata_logging_options, existing), "auto|refuse|rotate|replace",
     "what to do with an existing file"},
    {"mode", STRATA_OPTION_MODE, offsetof(strata_logging_options, mode), NULL,
     "permissions of new files; default: 0600"},
    {"ring", STRATA_OPTION_UINT, offsetof(strata_logging_options, ring), NULL, "records buffered for each thread"},
    {"rotate", STRATA_OPTION_SIZE, offsetof(strata_logging_options, rotate), NULL, "size at which the file is rotated"},
    {"keep", STRATA_OPTION_UINT, offsetof(strata_logging_options, keep), NULL, "rotated files to keep"},
    {"memory", STRATA_OPTION_UINT, offsetof(strata_logging_options, memory), NULL, "records that format=memory keeps"},
    {"interval", STRATA_OPTION_DURATION, offsetof(strata_logging_options, interval), NULL,
     "time between two collections"},
    {"duration", STRATA_OPTION_BOOL, offsetof(strata_logging_options, duration), NULL, "record the duration of calls"},
    {"uses", STRATA_OPTION_CHOICE, offsetof(strata_logging_options, without_uses), "on|off", "record uses"},
    {"internal", STRATA_OPTION_BOOL, offsetof(strata_logging_options, internal), NULL,
     "record also the reaps and trims that Strata makes by itself"},
    {"enabled", STRATA_OPTION_CHOICE, offsetof(strata_logging_options, disabled), "on|off", "start recording at once"},
};

const strata_layer strata_logging_layer = {
    .size = sizeof(strata_layer),
    .name = "logging",
    .help = "records every call, through a thread of its own",
    .options = texts,
    .option_count = sizeof texts / sizeof texts[0],
    .options_size = sizeof(strata_logging_options),
    .create = make_logging,
};
