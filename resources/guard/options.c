/* What users call of the guard: making one of either kind, its checks and findings, and its words in stack texts. */
#include "core/base/options.h"
#include "core/base/error.h"
#include "resources/builtin.h"
#include "resources/sampling/internal.h"

enum { MOST_ZONE = 64 << 10 };

/* ---- making ---- */

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

static const char *problem_of_sampling(const strata_guard_options *options)
{
    uint64_t alignment = options->sample_alignment;
    if (!options->sample)
        return has_sample_limits(options) ? "a limit of samples, and sample is not set" : NULL;
    if (options->sample > SAMPLE_LEAST_OFTEN)
        return "sample: one allocation in 2147483648 is the least";
    if (has_zone_options(options))
        return "sample: a sampling guard has no zones, poison, quarantine or kernel to set";
    if (options->sample_blocks > SAMPLES_MOST)
        return "sample_blocks: at most 4096";
    if ((options->sample_range ? options->sample_range : SAMPLE_RANGE) / 2 <
        (options->sample_bytes ? options->sample_bytes : SAMPLE_BYTES))
        return "sample_range: at least twice sample_bytes";
    if (alignment & (alignment - 1) || alignment > SAMPLE_ZONE)
        return "sample_alignment: a power of two, at most 256";
    return NULL;
}

static strata_status check_options(const strata_guard_options *options)
{
    const char *problem = problem_of_sampling(options);
    if (options->zone > MOST_ZONE)
        problem = "zone: a red zone has at most 64 KiB";
    else if ((unsigned)options->on_finding > STRATA_GUARD_EXIT)
        problem = "on_finding: there is no such action";
    else if ((options->no_quarantine | options->no_poison | options->no_stacks | options->no_kernel |
              options->no_debuggers) &
             ~1)
        problem = "a switch that is neither 0 nor 1";
    else if (options->no_quarantine && (options->quarantine_bytes || options->quarantine_blocks))
        problem = "limits of a quarantine that is off";
    return problem ? strata_fail(STRATA_ERROR_INVALID_VALUE, "guard: %s", problem) : STRATA_SUCCESS;
}

strata_status strata_guard_create(int ordinal, const strata_guard_options *given, strata_resource **out)
{
    strata_guard_options options;
    strata_device *device;
    strata_status status = strata_options_begin("guard", out, &options, sizeof options, given);
    if (status == STRATA_SUCCESS)
        status = check_options(&options);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    return options.sample ? sampling_create(device, &options, out) : guard_create(device, &options, out);
}

/* ---- the guard's own calls ---- */

static bool is_in_stack(const strata_resource *resource)
{
    return resource->ops && resource->stack;
}

/* The nearest guard of a stack, from the given layer on; NULL if there is none. */
static strata_resource *find_guard(strata_resource *resource)
{
    for (; resource; resource = resource->upstream)
        if (is_in_stack(resource) && (guard_is_one(resource) || sampling_is_one(resource)))
            return resource;
    return NULL;
}

static guard_report *report_of(strata_resource *found)
{
    return guard_is_one(found) ? &((guard *)found)->report : &((sampling *)found)->report;
}

strata_status strata_guard_check(strata_resource *resource, size_t *findings)
{
    if (findings)
        *findings = 0;
    strata_status status = strata_usable();
    if (status != STRATA_SUCCESS)
        return status;
    strata_resource *found = find_guard(resource);
    if (!found)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_guard_check: there is no guard in this stack, from the "
                                                       "given layer on");
    status = guard_is_one(found) ? guard_check_everything((guard *)found) : sampling_check((sampling *)found);
    size_t count = atomic_exchange_explicit(&report_of(found)->unseen, 0, memory_order_relaxed);
    if (findings)
        *findings = count;
    if (status != STRATA_SUCCESS || !count)
        return status;
    return strata_fail(STRATA_ERROR_CORRUPTED, "guard: %zu finding%s since the last check", count,
                       count == 1 ? "" : "s");
}

bool strata_guard_take_finding(strata_resource *resource, strata_guard_finding *out)
{
    strata_resource *found = find_guard(resource);
    return found && out && strata_not_forked() == STRATA_SUCCESS && guard_take_kept(report_of(found), out);
}

void strata_guard_fault_candidates_print(strata_resource *resource, strata_write_callback write, void *data)
{
    if (!write || strata_not_forked() != STRATA_SUCCESS)
        return;
    for (; resource; resource = resource->upstream)
        if (is_in_stack(resource) && sampling_is_one(resource))
            sampling_print_suspects((sampling *)resource, write, data);
}

/* ---- in stack texts ---- */

#define SWITCH "on|off"

static const strata_option guard_text_options[] = {
    {"zone", STRATA_OPTION_SIZE, offsetof(strata_guard_options, zone), NULL, "bytes of each red zone"},
    {"poison", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_poison), SWITCH, "fill fresh and freed blocks"},
    {"quarantine", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_quarantine), SWITCH,
     "hold freed blocks back"},
    {"quarantine_bytes", STRATA_OPTION_SIZE, offsetof(strata_guard_options, quarantine_bytes), NULL,
     "most bytes that are held back"},
    {"quarantine_blocks", STRATA_OPTION_UINT, offsetof(strata_guard_options, quarantine_blocks), NULL,
     "most blocks that are held back"},
    {"stacks", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_stacks), SWITCH,
     "call stacks of allocations and frees"},
    {"kernel", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_kernel), SWITCH, "check with a kernel"},
    {"debuggers", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, no_debuggers), SWITCH,
     "tell Valgrind of zones and freed blocks, on the simulated driver"},
    {"on_finding", STRATA_OPTION_CHOICE, offsetof(strata_guard_options, on_finding), "report|fail|exit",
     "what follows when something was found"},
    {"sample", STRATA_OPTION_UINT, offsetof(strata_guard_options, sample), NULL,
     "one allocation in so many gets a mapping of its own, the others are left alone"},
    {"sample_blocks", STRATA_OPTION_UINT, offsetof(strata_guard_options, sample_blocks), NULL,
     "most sampled blocks at a time"},
    {"sample_bytes", STRATA_OPTION_SIZE, offsetof(strata_guard_options, sample_bytes), NULL,
     "most bytes of their mappings"},
    {"sample_range", STRATA_OPTION_SIZE, offsetof(strata_guard_options, sample_range), NULL,
     "bytes of addresses that are reserved for them"},
    {"sample_alignment", STRATA_OPTION_SIZE, offsetof(strata_guard_options, sample_alignment), NULL,
     "what their addresses are a multiple of"},
    {"sample_seed", STRATA_OPTION_UINT, offsetof(strata_guard_options, sample_seed), NULL,
     "the same choice of allocations each time"},
};

static strata_status make_guard(int device, const void *options, strata_resource **out)
{
    strata_status status = strata_guard_create(device, options, out);
    if (status == STRATA_SUCCESS)
        guard_report_look_at_exit(report_of(*out), *out);
    return status;
}

const strata_layer strata_guard_layer = {
    .size = sizeof(strata_layer),
    .name = "guard",
    .help = "finds writes around blocks and to freed ones, and frees that should not be",
    .options = guard_text_options,
    .option_count = sizeof guard_text_options / sizeof guard_text_options[0],
    .options_size = sizeof(strata_guard_options),
    .create = make_guard,
};
