/* Values and report of the guard. */
#include "driver/driver.h"
#include "resources/guard/internal.h"

#include <stdio.h>

enum guard_value {
    VALUE_FINDINGS,
    VALUE_FINDINGS_LOST,
    VALUE_CHECKS,
    VALUE_ZONES_CHECKED,
    VALUE_UNCHECKED,
    VALUE_QUARANTINED_BYTES,
    VALUE_QUARANTINED_BLOCKS,
    VALUE_MOST_BYTES,
    VALUE_MOST_BLOCKS,
    VALUE_KERNEL,
};

_Static_assert(VALUE_KERNEL + 1 == GUARD_VALUES, "every value has a description");

const strata_value guard_values[GUARD_VALUES] = {
    [VALUE_FINDINGS] = {"findings", STRATA_VALUE_COUNT, false, "findings, refused frees included"},
    [VALUE_FINDINGS_LOST] = {"findings_lost", STRATA_VALUE_COUNT, false,
                             "findings reported but not kept, for lack of room"},
    [VALUE_CHECKS] = {"checks", STRATA_VALUE_COUNT, false, "batches of checks launched"},
    [VALUE_ZONES_CHECKED] = {"zones_checked", STRATA_VALUE_COUNT, false, "red zones checked"},
    [VALUE_UNCHECKED] = {"unchecked", STRATA_VALUE_COUNT, false, "blocks that went unchecked: captures, driver errors"},
    [VALUE_QUARANTINED_BYTES] = {"quarantined_bytes", STRATA_VALUE_BYTES, false, "bytes in quarantine, with zones"},
    [VALUE_QUARANTINED_BLOCKS] = {"quarantined_blocks", STRATA_VALUE_COUNT, false, "blocks in quarantine"},
    [VALUE_MOST_BYTES] = {"quarantine_bytes", STRATA_VALUE_BYTES, true, "most bytes in quarantine"},
    [VALUE_MOST_BLOCKS] = {"quarantine_blocks", STRATA_VALUE_COUNT, true, "most blocks in quarantine"},
    [VALUE_KERNEL] = {"kernel", STRATA_VALUE_SWITCH, false, "checks by a kernel; 0: by copies"},
};

strata_status guard_get_value(strata_resource *resource, size_t which, uint64_t *value)
{
    const guard *self = (guard *)resource;
    const _Atomic uint64_t *values[] = {
        [VALUE_FINDINGS] = &self->log.findings,
        [VALUE_FINDINGS_LOST] = &self->log.lost,
        [VALUE_CHECKS] = &self->checks,
        [VALUE_ZONES_CHECKED] = &self->zones_checked,
        [VALUE_UNCHECKED] = &self->unchecked,
        [VALUE_QUARANTINED_BYTES] = &self->quarantined_bytes,
        [VALUE_QUARANTINED_BLOCKS] = &self->quarantined_blocks,
        [VALUE_MOST_BYTES] = &self->most_bytes,
        [VALUE_MOST_BLOCKS] = &self->most_blocks,
    };
    *value =
        which == VALUE_KERNEL ? self->kernel.module != NULL : atomic_load_explicit(values[which], memory_order_relaxed);
    return STRATA_SUCCESS;
}

strata_status guard_set_value(strata_resource *resource, size_t which, uint64_t value)
{
    guard *self = (guard *)resource;
    atomic_store_explicit(which == VALUE_MOST_BYTES ? &self->most_bytes : &self->most_blocks, value,
                          memory_order_relaxed);
    guard_poll(self);
    return STRATA_SUCCESS;
}

void guard_describe(strata_resource *resource, strata_emitter *to)
{
    guard *self = (guard *)resource;
    if (self->kernel_result != CUDA_SUCCESS) {
        char text[128];
        snprintf(text, sizeof text, "%s returned %s (%d)", self->kernel_call,
                 strata_driver_error_name(self->kernel_result), (int)self->kernel_result);
        strata_emit_text(to, "kernel_error", text);
    }
    findings_describe(&self->log, to);
}
