/* Options of the layer. */
#include "core/base/options.h"
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "resources/builtin.h"
#include "resources/statistics/internal.h"

static strata_status check_options(const strata_statistics_options *options)
{
    bool named = options->file[0] != 0;
    if ((unsigned)options->leaks > STRATA_STATISTICS_LEAKS_FILE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: invalid leaks %d", options->leaks);
    if (options->leaks == STRATA_STATISTICS_LEAKS_FILE && !named)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: leaks=file needs a file, such as file=leaks.txt");
    if (options->leaks != STRATA_STATISTICS_LEAKS_FILE && named)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: file needs leaks=file");
    if (options->mode && !named)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "statistics: mode needs a file");
    if (options->mode > 0777)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "statistics: mode has other bits than permissions, such as 0640");
    return STRATA_SUCCESS;
}

strata_status strata_statistics_create(const strata_statistics_options *options, strata_resource **out)
{
    strata_statistics_options read;
    strata_status status = strata_options_begin("statistics", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS)
        status = strata_check_not_forked();
    if (status == STRATA_SUCCESS)
        status = check_options(&read);
    if (status != STRATA_SUCCESS)
        return status;
    read.file[sizeof read.file - 1] = 0;
    strata_statistics *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a statistics layer");
    self->resource.ops = &strata_statistics_ops;
    atomic_init(&self->detail, read.stacks ? STRATA_STATISTICS_STACKS : 0);
    strata_per_thread_init(&self->entered, strata_statistics_entered_bytes());
    strata_lock_init(&self->scopes_lock, STRATA_RANK_THREAD_SCOPES);
    self->leaks = read.leaks;
    self->file = -1;
    status = strata_tag_counters_init(&self->counters) ? strata_statistics_begin_reports(self, &read)
                                                       : strata_fail_host_memory("the counters of a statistics layer");
    if (status != STRATA_SUCCESS) {
        if (self->counters.all)
            strata_tag_counters_destroy(&self->counters);
        strata_statistics_end_scopes(self);
        strata_host_free(self);
        return status;
    }
    *out = &self->resource;
    return STRATA_SUCCESS;
}

static strata_status make_statistics(int device, const void *options, strata_resource **out)
{
    (void)device;
    return strata_statistics_create(options, out);
}

static const strata_option texts[] = {
    {"stacks", STRATA_OPTION_BOOL, offsetof(strata_statistics_options, stacks), NULL,
     "record the call stack of each allocation"},
    {"leaks", STRATA_OPTION_CHOICE, offsetof(strata_statistics_options, leaks), "off|log|file",
     "where live blocks are reported, when the stack cannot be destroyed and at exit"},
    {"file", STRATA_OPTION_STRING, offsetof(strata_statistics_options, file), NULL,
     "file of the report, with leaks=file; %p: process"},
    {"mode", STRATA_OPTION_MODE, offsetof(strata_statistics_options, mode), NULL,
     "permissions of a new file, with leaks=file; default: 0600"},
};

const strata_layer strata_statistics_layer = {
    .size = sizeof(strata_layer),
    .name = "statistics",
    .help = "counts by tag, and reports leaks",
    .options = texts,
    .option_count = sizeof texts / sizeof texts[0],
    .options_size = sizeof(strata_statistics_options),
    .create = make_statistics,
};
