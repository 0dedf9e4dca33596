/* Options of `fixed` (one bin) and `binning` (several). */
#include <strata/binning.h>
#include <strata/fixed.h>

#include "core/base/characters.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "core/stack/stack_text.h"
#include "resources/binning/internal.h"
#include "resources/builtin.h"

#include <stdio.h>
#include <string.h>

/* Defaults, those of RMM's fixed_size_memory_resource, and of binning_memory_resource in its benchmarks. */
static const uint64_t FIXED_BYTES = UINT64_C(1) << 20, BINNING_MIN = UINT64_C(256) << 10,
                      BINNING_MAX = UINT64_C(4) << 20;

/* Largest size: above any device; it cannot overflow when rounded or multiplied. */
static const uint64_t MOST_BYTES = UINT64_C(1) << 46;

/* ---- making ---- */

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + BIN_GRANULE - 1) & ~(uint64_t)(BIN_GRANULE - 1);
}

/* The bytes of a chunk; `chunk` 0: the default. */
static uint64_t chunk_for(uint64_t size, uint64_t chunk)
{
    uint64_t usual = BIN_LEAST_SLOTS * size > BIN_LEAST_CHUNK ? BIN_LEAST_SLOTS * size : BIN_LEAST_CHUNK;
    return chunk ? (chunk > size ? chunk : size) : usual;
}

static bool make_bins(binning *self, const uint64_t *sizes, size_t count, uint64_t chunk)
{
    self->bins = strata_host_zalloc(count * sizeof *self->bins);
    for (size_t i = 0; self->bins && i < count; i++) {
        uint64_t size = round_up(sizes[i]);
        self->bins[i] = bin_make((size_t)size, (size_t)chunk_for(size, chunk));
        if (!self->bins[i])
            return false;
        self->bin_count = i + 1;
    }
    return self->bins != NULL;
}

/* Sets, for each number of bits, the first bin that can fit the smallest such size. */
static void index_bins(binning *self)
{
    for (unsigned bits = 0; bits <= 64; bits++) {
        size_t least = bits ? (size_t)1 << (bits - 1) : 0, i = 0;
        while (i < self->bin_count && self->bins[i]->size <= least)
            i++;
        self->first_bin[bits] = (uint8_t)i;
    }
}

static strata_status make(const strata_resource_ops *ops, const uint64_t *sizes, size_t count, uint64_t chunk,
                          bool refuse_larger, strata_resource **out)
{
    binning *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a layer of bins");
    self->resource.ops = ops;
    self->refuse_larger = refuse_larger;
    strata_lock_init(&self->making, STRATA_RANK_OWNER);
    strata_spin_init(&self->index_lock, STRATA_RANK_INDEX);
    strata_status status = strata_tag_intern(ops->name, &self->tag);
    if (status == STRATA_SUCCESS && !make_bins(self, sizes, count, chunk))
        status = strata_fail_host_memory("a layer of bins");
    if (status != STRATA_SUCCESS) {
        binning_destroy(&self->resource);
        return status;
    }
    index_bins(self);
    *out = &self->resource;
    return STRATA_SUCCESS;
}

/* What is wrong with a size and its chunk; NULL: nothing. */
static const char *problem_of(uint64_t size, uint64_t chunk)
{
    if (!size)
        return "the size must be above 0";
    if (size > MOST_BYTES || chunk > MOST_BYTES)
        return "expected less than 64 TiB";
    if (chunk_for(round_up(size), chunk) / round_up(size) > BIN_SLOTS_MOST)
        return "a chunk can have at most 1048576 blocks";
    return NULL;
}

/* ---- fixed ---- */

strata_status strata_fixed_create(const strata_fixed_options *given, strata_resource **out)
{
    strata_fixed_options options;
    strata_status status = strata_options_begin("fixed", out, &options, sizeof options, given);
    if (status != STRATA_SUCCESS)
        return status;
    const uint64_t bytes = options.bytes ? options.bytes : FIXED_BYTES;
    const char *problem = problem_of(bytes, options.chunk);
    if (!problem && options.chunk && options.chunk < round_up(bytes))
        problem = "a chunk must have room for a block";
    if (!problem && (unsigned)options.larger > STRATA_FIXED_REFUSE)
        problem = "invalid larger: expected pass or refuse";
    if (problem)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "fixed: blocks of %s in chunks of %s (0: default): %s",
                           strata_size_text(bytes).text, strata_size_text(options.chunk).text, problem);
    return make(&strata_fixed_ops, &bytes, 1, options.chunk, options.larger == STRATA_FIXED_REFUSE, out);
}

/* ---- binning ---- */

static bool is_power_of_two(uint64_t value)
{
    return value && !(value & (value - 1));
}

static strata_status sizes_between(const strata_binning_options *options, uint64_t sizes[BINS_MOST], size_t *count)
{
    uint64_t min = options->min ? options->min : BINNING_MIN, max = options->max ? options->max : BINNING_MAX;
    const char *problem = NULL;
    if (!options->min && min > max)
        min = max;
    if (!options->max && max < min)
        max = min;
    if (!is_power_of_two(min) || !is_power_of_two(max))
        problem = "min and max must be powers of two; bins takes other sizes";
    else if (min < BIN_GRANULE)
        problem = "min must be at least 256 bytes, the alignment of blocks";
    else if (min > max)
        problem = "min exceeds max";
    else if (max > MOST_BYTES)
        problem = "expected less than 64 TiB";
    if (problem)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "binning: bins from %s to %s: %s", strata_size_text(min).text,
                           strata_size_text(max).text, problem);
    for (uint64_t size = min; size <= max; size *= 2)
        sizes[(*count)++] = size;
    return STRATA_SUCCESS;
}

static strata_status sizes_given(const strata_binning_options *options, uint64_t sizes[BINS_MOST], size_t *count)
{
    if (!options->bins)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "binning: bins is NULL, but bin_count is %zu",
                           options->bin_count);
    if (!options->bin_count || options->bin_count > BINS_MOST)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "binning: expected 1 to %d bins, not %zu", BINS_MOST,
                           options->bin_count);
    if (options->min || options->max)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "binning: bins cannot be combined with min and max");
    *count = options->bin_count;
    memcpy(sizes, options->bins, *count * sizeof *sizes);
    return STRATA_SUCCESS;
}

static strata_status check_sizes(const uint64_t *sizes, size_t count, uint64_t chunk)
{
    for (size_t i = 0; i < count; i++) {
        const char *problem = problem_of(sizes[i], chunk);
        if (!problem && i && round_up(sizes[i]) <= round_up(sizes[i - 1]))
            problem = "bins must be in ascending order, each larger than the one before when rounded up to 256 bytes";
        if (problem)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "binning: bin %zu of %zu, %s: %s", i + 1, count,
                               strata_size_text(sizes[i]).text, problem);
    }
    return STRATA_SUCCESS;
}

strata_status strata_binning_create(const strata_binning_options *given, strata_resource **out)
{
    strata_binning_options options;
    uint64_t sizes[BINS_MOST];
    size_t count = 0;
    strata_status status = strata_options_begin("binning", out, &options, sizeof options, given);
    if (status == STRATA_SUCCESS)
        status = options.bins || options.bin_count ? sizes_given(&options, sizes, &count)
                                                   : sizes_between(&options, sizes, &count);
    if (status == STRATA_SUCCESS)
        status = check_sizes(sizes, count, options.chunk);
    return status == STRATA_SUCCESS ? make(&strata_binning_ops, sizes, count, options.chunk, false, out) : status;
}

/* ---- in stack texts ---- */

static const strata_option fixed_texts[] = {
    {"bytes", STRATA_OPTION_SIZE, offsetof(strata_fixed_options, bytes), NULL, "size of each block"},
    {"chunk", STRATA_OPTION_SIZE, offsetof(strata_fixed_options, chunk), NULL,
     "bytes taken from the layer below at a time"},
    {"larger", STRATA_OPTION_CHOICE, offsetof(strata_fixed_options, larger), "pass|refuse",
     "larger requests: pass to the layer below, or refuse"},
};

/* Sanitizer mode: every block is the bottom owner's, for tools to see its end. */
static strata_status in_mode(strata_status status, strata_resource **out)
{
    strata_mode mode;
    if (status != STRATA_SUCCESS)
        return status;
    if ((status = strata_mode_now(&mode)) != STRATA_SUCCESS) {
        binning_destroy(*out);
        *out = NULL;
        return status;
    }
    ((binning *)*out)->pass_all = mode == STRATA_MODE_SANITIZER;
    return STRATA_SUCCESS;
}

static strata_status make_fixed(int device, const void *options, strata_resource **out)
{
    (void)device;
    return in_mode(strata_fixed_create(options, out), out);
}

const strata_layer strata_fixed_layer = {
    .size = sizeof(strata_layer),
    .name = "fixed",
    .help = "blocks of one size, cut from larger ones",
    .options = fixed_texts,
    .option_count = sizeof fixed_texts / sizeof fixed_texts[0],
    .options_size = sizeof(strata_fixed_options),
    .create = make_fixed,
};

typedef struct binning_text {
    strata_binning_options options;
    char bins[256];
} binning_text;

static const strata_option binning_texts[] = {
    {"min", STRATA_OPTION_SIZE, offsetof(binning_text, options.min), NULL, "the smallest bin, a power of two"},
    {"max", STRATA_OPTION_SIZE, offsetof(binning_text, options.max), NULL, "the largest bin, a power of two"},
    {"bins", STRATA_OPTION_STRING, offsetof(binning_text, bins), NULL,
     "list of sizes, in place of min and max: 1KiB;4KiB;64KiB"},
    {"chunk", STRATA_OPTION_SIZE, offsetof(binning_text, options.chunk), NULL,
     "bytes that a bin takes from the layer below at a time"},
};

static strata_status refuse_size(const char *text, const char *at, const char *expected)
{
    enum { SHOWN = 24 };
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "binning: bins, character %zu (\"%.*s\"): %s",
                       strata_character_at(text, (size_t)(at - text)), (int)strata_characters_bytes(at, SHOWN), at,
                       expected);
}

/* Reads sizes separated by ';'. */
static strata_status read_sizes(const char *text, uint64_t sizes[BINS_MOST], size_t *count)
{
    const char *at = text;
    for (*count = 0;; at++) {
        size_t length = strcspn(at, ";");
        if (*count == BINS_MOST) {
            char most[32];
            snprintf(most, sizeof most, "at most %d sizes", BINS_MOST);
            return refuse_size(text, at, most);
        }
        if (!strata_read_size(at, length, &sizes[*count]))
            return refuse_size(text, at, "expected a size such as 64KiB, and ';' between two");
        ++*count;
        at += length;
        if (!*at)
            return STRATA_SUCCESS;
    }
}

static strata_status make_binning(int device, const void *given, strata_resource **out)
{
    (void)device;
    const binning_text *text = given;
    uint64_t sizes[BINS_MOST];
    strata_binning_options options = text->options;
    if (text->bins[0]) {
        strata_status status = read_sizes(text->bins, sizes, &options.bin_count);
        if (status != STRATA_SUCCESS)
            return status;
        options.bins = sizes;
    }
    return in_mode(strata_binning_create(&options, out), out);
}

const strata_layer strata_binning_layer = {
    .size = sizeof(strata_layer),
    .name = "binning",
    .help = "blocks of a few sizes, cut from larger ones",
    .options = binning_texts,
    .option_count = sizeof binning_texts / sizeof binning_texts[0],
    .options_size = sizeof(binning_text),
    .create = make_binning,
};
