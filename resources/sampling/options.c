/* Options of the sampling guard. */
#include "resources/sampling/internal.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"

static bool has_sample_limits(const strata_guard_options *options)
{
    return options->sample_blocks || options->sample_bytes || options->sample_range || options->sample_alignment ||
           options->sample_seed;
}

static bool has_zone_options(const strata_guard_options *options)
{
    return options->zone || options->quarantine_bytes || options->quarantine_blocks || options->no_quarantine ||
           options->no_poison || options->no_kernel || options->no_debuggers;
}

const char *sampling_options_problem(const strata_guard_options *options)
{
    uint64_t alignment = options->sample_alignment;
    if (!options->sample)
        return has_sample_limits(options) ? "sample limits need sample=N" : NULL;
    if (options->sample > SAMPLE_LEAST_OFTEN)
        return "sample: at most 2147483648";
    if (has_zone_options(options))
        return "sample cannot be combined with zone, poison, quarantine or kernel";
    if (options->sample_blocks > SAMPLES_MOST)
        return "sample_blocks: at most 4096";
    if ((options->sample_range ? options->sample_range : SAMPLE_RANGE) / 2 <
        (options->sample_bytes ? options->sample_bytes : SAMPLE_BYTES))
        return "sample_range: at least twice sample_bytes";
    if (alignment & (alignment - 1) || alignment > SAMPLE_ALIGNMENT)
        return "sample_alignment: a power of two, at most 256";
    return NULL;
}

static void take_options(sampling *self)
{
    const strata_guard_options *options = &self->options;
    self->alignment = options->sample_alignment ? options->sample_alignment : SAMPLE_ALIGNMENT;
    self->range = options->sample_range ? options->sample_range : SAMPLE_RANGE;
    self->capacity = options->sample_blocks ? (size_t)options->sample_blocks : SAMPLE_BLOCKS;
    self->every = options->sample;
    self->most_blocks = self->capacity;
    self->most_bytes = options->sample_bytes ? options->sample_bytes : SAMPLE_BYTES;
    self->least_range = 2 * self->most_bytes;
}

strata_status sampling_create(strata_device *device, const strata_guard_options *options, strata_resource **out)
{
    sampling *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a guard");
    self->resource.ops = &sampling_ops;
    self->device = device;
    self->options = *options;
    self->candidates.name = sampling_name_candidates;
    take_options(self);
    strata_per_thread_init(&self->threads, sizeof(sampling_thread));
    strata_per_thread_take_number(&self->threads);
    findings_init(&self->log, &self->options);
    strata_lock_init(&self->lock, STRATA_RANK_GUARD);
    strata_lock_init(&self->open_lock, STRATA_RANK_OWNER);
    self->samples = strata_host_zalloc(self->capacity * sizeof *self->samples);
    self->remembered = strata_host_zalloc(SAMPLES_REMEMBERED * sizeof *self->remembered);
    if (!self->samples || !self->remembered) {
        sampling_ops.destroy(&self->resource);
        return strata_fail_host_memory("a guard");
    }
    *out = &self->resource;
    return STRATA_SUCCESS;
}
