/* The library's decorators, for the suites that test all of them. A new one is a line here. */
#ifndef STRATA_TEST_LAYERS_H
#define STRATA_TEST_LAYERS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct test_layer_text {
    const char *text;   /* as in a stack text, before ", async" */
    bool random_only;   /* only for random stacks: another setting of a listed layer */
    bool refuses;       /* fails calls on purpose, with "on purpose" in the message */
    size_t alignment;   /* of the addresses that it returns; 0: as given */
    bool all_alignment; /* serves requests for more than 256 bytes of alignment */
} test_layer_text;

static const test_layer_text test_decorators[] = {
    {.text = "aligned(alignment=4KiB)", .alignment = 4096, .all_alignment = true},
    {.text = "aligned(alignment=64KiB, threshold=20000)", .random_only = true, .all_alignment = true},
    {.text = "aligned", .random_only = true, .all_alignment = true},
    {.text = "budget(limit=4GiB)"},
    {.text = "logging(format=memory, memory=16)"},
    {.text = "statistics"},
    {.text = "statistics(stacks=on)", .random_only = true},
    {.text = "failure_callback"},
    {.text = "failure_callback(retries=3)", .random_only = true},
    {.text = "fault"},
    {.text = "fault(per_million=30000, seed=5)", .random_only = true, .refuses = true},
    {.text = "fault(operation=deallocate, every=7)", .random_only = true, .refuses = true},
    {.text = "fault(operation=prepare, every=11, status=driver)", .random_only = true, .refuses = true},
    {.text = "guard"},
    {.text = "guard(quarantine_blocks=5, poison=off)", .random_only = true},
    {.text = "guard(kernel=off, quarantine=off)", .random_only = true},
    {.text = "guard(sample=1)"},
    {.text = "guard(sample=3, sample_seed=1, sample_blocks=4)", .random_only = true},
    {.text = "nvtx"},
    {.text = "fixed(bytes=16KiB, chunk=64KiB)"},
    {.text = "fixed(bytes=3000, chunk=8KiB)", .random_only = true},
    {.text = "fixed", .random_only = true},
    {.text = "binning(min=1KiB, max=64KiB, chunk=128KiB)"},
    {.text = "binning(bins=300;5KiB;2MiB, chunk=16KiB)", .random_only = true},
    {.text = "binning", .random_only = true},
    {.text = "pool", .all_alignment = true},
    {.text = "pool(chunk=2MiB, cache=64KiB)", .random_only = true, .all_alignment = true},
    {.text = "prefetch"},
    {.text = "prefetch(on_use=on)", .random_only = true},
};

/* Stacks with branches, below any decorators: the branches serve by turns. */
static const char *const test_branches[] = {
    "fallback(fault(every=2), async | pool)",
    "fallback(fault(every=2), pool | fault(every=3), statistics, direct | async)",
};

enum { TEST_BRANCHES = sizeof test_branches / sizeof test_branches[0] };

enum { TEST_DECORATORS = sizeof test_decorators / sizeof test_decorators[0] };

#endif
