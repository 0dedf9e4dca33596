/* Candidates: sampled blocks that an illegal access may be about. */
#include "resources/sampling/internal.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"

#include <stdio.h>
#include <string.h>

static sampling *sampling_of(strata_fault_candidates *candidates)
{
    return (sampling *)(void *)((char *)candidates - offsetof(sampling, candidates));
}

/* Appends a candidate. False, text[room] unchanged, if it and a note of further ones do not fit. */
static bool append_candidate(char *text, size_t room, size_t *length, const strata_guard_finding *one)
{
    enum { MORE = sizeof ", and 4294967295 more" };
    char words[160];
    const strata_block *block = &one->block;
    int written =
        snprintf(words, sizeof words, "%s0x%llx, %s (tag \"%.24s\", generation %llu, %s)", *length ? ", " : "",
                 (unsigned long long)block->address, strata_size_text(block->requested).text,
                 strata_tag_name(block->tag), (unsigned long long)block->id.generation, one->freed ? "freed" : "live");
    if (written < 0 || *length + (size_t)written + MORE > room)
        return false;
    memcpy(text + *length, words, (size_t)written + 1);
    *length += (size_t)written;
    return true;
}

size_t sampling_name_candidates(strata_fault_candidates *candidates, char *text, size_t room)
{
    sampling *self = sampling_of(candidates);
    strata_guard_finding list[SAMPLE_CANDIDATES];
    size_t all, count = samples_candidates(self, list, SAMPLE_CANDIDATES, &all), named = 0, length = 0;
    if (!count)
        return 0;
    int head = snprintf(text, room, "Sampled blocks of device %d that it could be about: ", self->device->ordinal);
    if (head < 0 || (size_t)head >= room)
        return 0;
    text += head;
    room -= (size_t)head;
    while (named < count && append_candidate(text, room, &length, &list[named]))
        named++;
    if (!named)
        return 0;
    if (named < all) {
        int more = snprintf(text + length, room - length, ", and %zu more", all - named);
        length += more > 0 ? (size_t)more : 0;
    }
    return (size_t)head + length;
}

/* Whether `status` reports a stopped device. The thread's error record may be of an earlier failure, of another device.
 */
static bool is_illegal_access(strata_status status)
{
    const strata_error *error = strata_error_in_force();
    return error->status == status && error->driver_code == CUDA_ERROR_ILLEGAL_ADDRESS;
}

static __attribute__((noinline)) void report_candidates(sampling *self, strata_status status)
{
    strata_guard_finding list[SAMPLE_CANDIDATES];
    size_t all;
    if (!is_illegal_access(status) || atomic_exchange_explicit(&self->fault_reported, true, memory_order_relaxed))
        return;
    size_t count = samples_candidates(self, list, SAMPLE_CANDIDATES, &all);
    findings_record(&self->log, list, count);
    findings_report(&self->log, list, count);
}

strata_status sampling_notice(sampling *self, strata_status status)
{
    if (__builtin_expect(status != STRATA_SUCCESS, 0) && strata_status_of_driver(CUDA_ERROR_ILLEGAL_ADDRESS) == status)
        report_candidates(self, status);
    return status;
}

static void print_all(const strata_guard_finding *list, size_t count, strata_write_callback write, void *data)
{
    for (size_t i = 0; i < count; i++)
        findings_print_candidate(&list[i], write, data);
}

void sampling_print_candidates(strata_resource *resource, strata_write_callback write, void *data)
{
    sampling *self = (sampling *)resource;
    strata_guard_finding few[SAMPLE_CANDIDATES];
    size_t all, most = self->capacity + SAMPLES_REMEMBERED;
    strata_guard_finding *list = strata_host_zalloc(most * sizeof *list);
    if (list)
        print_all(list, samples_candidates(self, list, most, &all), write, data);
    else
        print_all(few, samples_candidates(self, few, SAMPLE_CANDIDATES, &all), write, data);
    strata_host_free(list);
}
