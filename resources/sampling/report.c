/* Values and report of the sampling guard. */
#include "resources/sampling/internal.h"

#include "core/base/error.h"

enum sampling_value {
    VALUE_FINDINGS,
    VALUE_FINDINGS_LOST,
    VALUE_UNCHECKED,
    VALUE_SAMPLED,
    VALUE_MISSED,
    VALUE_MAPPED_BYTES,
    VALUE_EVERY,
    VALUE_MOST_BLOCKS,
    VALUE_MOST_BYTES,
};

_Static_assert(VALUE_MOST_BYTES + 1 == SAMPLING_VALUES, "every value has a description");

const strata_value sampling_values[SAMPLING_VALUES] = {
    [VALUE_FINDINGS] = {"findings", STRATA_VALUE_COUNT, false, "findings, refused frees and fault candidates included"},
    [VALUE_FINDINGS_LOST] = {"findings_lost", STRATA_VALUE_COUNT, false,
                             "findings reported but not kept, for lack of room"},
    [VALUE_UNCHECKED] = {"unchecked", STRATA_VALUE_COUNT, false, "blocks whose zones were not checked"},
    [VALUE_SAMPLED] = {"sampled", STRATA_VALUE_COUNT, false, "allocations sampled"},
    [VALUE_MISSED] = {"missed", STRATA_VALUE_COUNT, false, "allocations chosen that could not be sampled"},
    [VALUE_MAPPED_BYTES] = {"mapped_bytes", STRATA_VALUE_BYTES, false, "bytes in mappings of sampled blocks"},
    [VALUE_EVERY] = {"sample", STRATA_VALUE_COUNT, true, "one allocation in so many"},
    [VALUE_MOST_BLOCKS] = {"sample_blocks", STRATA_VALUE_COUNT, true, "most sampled blocks at a time"},
    [VALUE_MOST_BYTES] = {"sample_bytes", STRATA_VALUE_BYTES, true, "most bytes of their mappings"},
};

static _Atomic uint64_t *value_at(sampling *self, size_t which)
{
    _Atomic uint64_t *values[] = {
        [VALUE_FINDINGS] = &self->log.findings, [VALUE_FINDINGS_LOST] = &self->log.lost,
        [VALUE_UNCHECKED] = &self->unchecked,   [VALUE_SAMPLED] = &self->sampled,
        [VALUE_MISSED] = &self->missed,         [VALUE_MAPPED_BYTES] = &self->mapped_bytes,
        [VALUE_EVERY] = &self->every,           [VALUE_MOST_BLOCKS] = &self->most_blocks,
        [VALUE_MOST_BYTES] = &self->most_bytes,
    };
    return values[which];
}

strata_status sampling_get_value(strata_resource *resource, size_t which, uint64_t *value)
{
    *value = atomic_load_explicit(value_at((sampling *)resource, which), memory_order_relaxed);
    return STRATA_SUCCESS;
}

/* An interval applies from a thread's next sample on. */
strata_status sampling_set_value(strata_resource *resource, size_t which, uint64_t value)
{
    sampling *self = (sampling *)resource;
    if (which == VALUE_EVERY && (value == 0 || value > SAMPLE_LEAST_OFTEN))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "guard.sample: expected 1 to 2147483648; sample_blocks=0 samples none");
    if (which == VALUE_MOST_BLOCKS && value > self->capacity)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "guard.sample_blocks: at most %zu, as when the guard was made",
                           self->capacity);
    atomic_store_explicit(value_at(self, which), value, memory_order_relaxed);
    return STRATA_SUCCESS;
}

static void describe_sample(strata_emitter *to, const strata_guard_finding *one)
{
    strata_emit_object_begin(to, NULL);
    strata_emit_hex(to, "block", one->block.address);
    strata_emit_bytes(to, "requested", one->block.requested);
    strata_emit_text(to, "tag", strata_tag_name(one->block.tag));
    strata_emit_count(to, "generation", one->block.id.generation);
    strata_emit_bool(to, "freed", one->freed);
    strata_emit_object_end(to);
}

void sampling_describe(strata_resource *resource, strata_emitter *to)
{
    sampling *self = (sampling *)resource;
    strata_guard_finding list[SAMPLE_CANDIDATES];
    size_t all, count = samples_candidates(self, list, SAMPLE_CANDIDATES, &all);
    findings_describe(&self->log, to);
    strata_emit_list_begin(to, "newest_samples");
    for (size_t i = 0; i < count; i++)
        describe_sample(to, &list[i]);
    strata_emit_list_end(to);
}
