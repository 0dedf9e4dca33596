/* Options of pinned. */
#include "core/base/options.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/stack/stack_text.h"
#include "resources/builtin.h"
#include "resources/pinned/internal.h"

static const uint64_t SLAB_BYTES = UINT64_C(64) << 20, LEAST_SLAB = UINT64_C(4) << 20, MOST_SLAB = UINT64_C(1) << 40;

static strata_status check_options(strata_pinned_options *options)
{
    if (options->single && options->slab)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "pinned: single=on makes no slabs; leave out slab");
    if (!options->slab)
        options->slab = SLAB_BYTES;
    if (options->slab < LEAST_SLAB || options->slab > MOST_SLAB)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "pinned: slab is %s; give 4 MiB to 1 TiB",
                           strata_size_text(options->slab).text);
    options->slab = (options->slab + PINNED_UNIT - 1) & ~(uint64_t)(PINNED_UNIT - 1);
    return pinned_check_numa(options->numa);
}

static strata_status make(strata_device *device, const strata_pinned_options *options, strata_resource **out)
{
    pinned *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a pinned resource");
    self->resource.ops = &pinned_ops;
    self->device = device;
    strata_spin_init(&self->index_lock, STRATA_RANK_INDEX);
    for (size_t i = 0; i < PINNED_LANES; i++)
        strata_spin_init(&self->lanes[i].lock, STRATA_RANK_INDEX);
    pinned_slabs_init(&self->slabs, device, options);
    pinned_memory_init(self);
    *out = &self->resource;
    return STRATA_SUCCESS;
}

strata_status strata_pinned_create(int ordinal, const strata_pinned_options *given, strata_resource **out)
{
    strata_pinned_options options;
    strata_device *device;
    strata_status status = strata_options_begin("pinned", out, &options, sizeof options, given);
    if (status == STRATA_SUCCESS)
        status = check_options(&options);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    return options.single ? pinned_single_create(device, &options, out) : make(device, &options, out);
}

/* ---- stack texts ---- */

static const strata_option texts[] = {
    {"slab", STRATA_OPTION_SIZE, offsetof(strata_pinned_options, slab), NULL,
     "bytes of a driver allocation that blocks are cut from; default: 64MiB"},
    {"numa_node", STRATA_OPTION_CHOICE, offsetof(strata_pinned_options, numa),
     "any|0|1|2|3|4|5|6|7|8|9|10|11|12|13|14|15|16|17|18|19|20|21|22|23|24|25|26|27|28|29|30|31",
     "NUMA node of the memory"},
    {"single", STRATA_OPTION_BOOL, offsetof(strata_pinned_options, single), NULL,
     "a driver allocation for each block; frees wait on the host"},
    {"portable", STRATA_OPTION_BOOL, offsetof(strata_pinned_options, portable), NULL,
     "usable in the contexts of all devices"},
    {"mapped", STRATA_OPTION_BOOL, offsetof(strata_pinned_options, mapped), NULL, "mapped for the device"},
    {"write_combined", STRATA_OPTION_BOOL, offsetof(strata_pinned_options, write_combined), NULL,
     "faster over the bus, very slow for the host to read"},
};

/* Sanitizer mode: each block is an allocation of the driver, for tools to see its end. */
static strata_status make_from_text(int device, const void *options, strata_resource **out)
{
    strata_pinned_options read = *(const strata_pinned_options *)options;
    strata_mode mode;
    const strata_status status = strata_mode_now(&mode);
    if (status != STRATA_SUCCESS)
        return status;
    if (mode == STRATA_MODE_SANITIZER) {
        read.single = true;
        read.slab = 0;
    }
    return strata_pinned_create(device, &read, out);
}

const strata_layer strata_pinned_layer = {
    .size = sizeof(strata_layer),
    .owner = true,
    .name = "pinned",
    .help = "page-locked host memory",
    .options = texts,
    .option_count = sizeof texts / sizeof texts[0],
    .options_size = sizeof(strata_pinned_options),
    .create = make_from_text,
};
