/* Keeping findings, and reporting them: to the callback or the log callback, or by ending the process. */
#include "resources/findings/findings.h"

#include "core/base/cancel.h"
#include "core/base/error.h"
#include "core/base/report.h"
#include "core/base/size_text.h"

#include <stdio.h>
#include <unistd.h>

/* ---- reporting ---- */

static void write_finding(const strata_guard_finding *finding)
{
    strata_report_text text;
    strata_report_text_begin(&text, false);
    strata_guard_finding_print(finding, strata_report_text_add, &text);
    strata_report_text_end(&text);
}

/* Raises a finding about changed bytes; refused frees and illegal accesses were raised by the call that met them. */
static void raise_change(const strata_guard_finding *finding)
{
    if (!finding_has_bytes(finding))
        return;
    const strata_block *block = &finding->block;
    strata_error *error = strata_error_begin_finding(STRATA_ERROR_CORRUPTED);
    error->requested = block->requested;
    error->tag = block->tag;
    error->generation = block->id.generation;
    char place[96], found[3 * 8 + 1] = "";
    finding_describe_offset(finding, place, sizeof place);
    for (unsigned i = 0; i < finding->shown && i < 8; i++)
        snprintf(found + 3 * i, 4, " %02x", finding->found[i]);
    strata_error_raise_finding(
        error, "%s: %llu byte%s changed at %s: block 0x%llx, %s (tag \"%s\", generation %llu, %s): found%s%s",
        finding_kind_name(finding->kind), (unsigned long long)finding->changed, finding->changed == 1 ? "" : "s", place,
        (unsigned long long)block->address, strata_size_text(block->requested).text, strata_tag_name(block->tag),
        (unsigned long long)block->id.generation, finding->freed ? "freed" : "live", found,
        finding->changed > 8 ? " ..." : "");
}

void findings_raise(const strata_guard_finding *finding, bool ends_process)
{
    if (strata_report_is_wanted(strata_error_has_log_callback(), ends_process))
        write_finding(finding);
    raise_change(finding);
}

void findings_init(findings_log *self, const strata_guard_options *options)
{
    self->options = options;
    strata_lock_init(&self->lock, STRATA_RANK_GUARD);
}

void findings_destroy(findings_log *self)
{
    exit_list_remove(self);
    strata_lock_destroy(&self->lock);
}

static void keep(findings_log *self, const strata_guard_finding *finding)
{
    strata_lock_take(&self->lock);
    if (self->kept_end - self->kept_first < FINDINGS_KEPT)
        self->kept[self->kept_end++ % FINDINGS_KEPT] = *finding;
    else
        atomic_fetch_add_explicit(&self->lost, 1, memory_order_relaxed);
    strata_lock_release(&self->lock);
}

bool findings_take(findings_log *self, strata_guard_finding *out)
{
    strata_lock_take(&self->lock);
    bool any = self->kept_first != self->kept_end;
    if (any)
        *out = self->kept[self->kept_first++ % FINDINGS_KEPT];
    strata_lock_release(&self->lock);
    return any;
}

_Noreturn static void end_process(const strata_guard_finding *findings, size_t count)
{
    strata_report_text text;
    strata_report_text_begin(&text, true);
    for (size_t i = 0; i < count; i++)
        strata_guard_finding_print(&findings[i], strata_report_text_add, &text);
    strata_report_text_end(&text);
    findings_flush_output();
    _exit(STRATA_GUARD_EXIT_STATUS);
}

/* The caller may suppress errors, and may have failed already. */
static void call_back(const findings_log *self, const strata_guard_finding *finding)
{
    strata_error_aside aside;
    const int cancel = strata_cancel_forbid(); /* layers above may have begun a request */
    strata_error_set_aside(&aside);
    self->options->on_finding_call(finding, self->options->on_finding_data);
    strata_error_take_back(&aside);
    strata_cancel_restore(cancel);
}

void findings_record(findings_log *self, const strata_guard_finding *findings, size_t count)
{
    if (!count)
        return;
    for (size_t i = 0; i < count; i++)
        keep(self, &findings[i]);
    atomic_fetch_add_explicit(&self->findings, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->unseen, count, memory_order_relaxed);
    if (self->options->on_finding == STRATA_GUARD_FAIL)
        atomic_store_explicit(&self->allocation_to_fail, true, memory_order_relaxed);
}

void findings_report(const findings_log *self, const strata_guard_finding *findings, size_t count)
{
    if (!count || exit_list_take_findings(self, findings, count))
        return;
    const bool ends = self->options->on_finding == STRATA_GUARD_EXIT;
    for (size_t i = 0; i < count; i++) {
        if (!self->options->on_finding_call) {
            findings_raise(&findings[i], ends);
            continue;
        }
        if (strata_report_is_wanted(true, ends))
            write_finding(&findings[i]);
        call_back(self, &findings[i]);
    }
    if (ends)
        end_process(findings, count);
}

strata_status findings_fail_allocation(findings_log *self)
{
    if (self->options->on_finding != STRATA_GUARD_FAIL ||
        !atomic_exchange_explicit(&self->allocation_to_fail, false, memory_order_relaxed))
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_CORRUPTED, "guard: memory around a block or of a freed block was overwritten "
                                               "(on_finding=fail); strata_guard_take_finding returns the findings");
}

bool findings_is_refused_free(strata_status status)
{
    return status == STRATA_ERROR_DOUBLE_FREE || status == STRATA_ERROR_FOREIGN_POINTER;
}

void findings_report_refused(findings_log *self, const strata_block *block, strata_status status,
                             const freed_block *first, uint32_t found_at)
{
    bool twice = status == STRATA_ERROR_DOUBLE_FREE;
    strata_guard_finding finding = {
        .size = sizeof finding,
        .kind = twice ? STRATA_GUARD_DOUBLE_FREE : STRATA_GUARD_FOREIGN_FREE,
        .block = first->block.id.generation ? first->block : *block,
        .freed = twice,
        .allocated_at = first->allocated_at,
        .freed_at = first->freed_at,
        .found_at = found_at,
    };
    findings_record(self, &finding, 1);
    findings_report(self, &finding, 1);
}

void findings_report_refused_address(findings_log *self, CUdeviceptr address, int device, const freed_block *first,
                                     uint32_t found_at)
{
    const strata_block argument = {.address = address, .device = device};
    const bool twice = first->block.id.generation != 0;
    findings_report_refused(self, &argument, twice ? STRATA_ERROR_DOUBLE_FREE : STRATA_ERROR_FOREIGN_POINTER, first,
                            found_at);
}

/* ---- in a report ---- */

static void describe_finding(strata_emitter *to, const strata_guard_finding *finding)
{
    strata_emit_object_begin(to, NULL);
    strata_emit_text(to, "kind", finding_kind_name(finding->kind));
    strata_emit_hex(to, "block", finding->block.address);
    strata_emit_bytes(to, "requested", finding->block.requested);
    strata_emit_text(to, "tag", strata_tag_name(finding->block.tag));
    strata_emit_count(to, "generation", finding->block.id.generation);
    if (finding_has_bytes(finding)) {
        strata_emit_signed(to, "offset", finding->offset);
        strata_emit_count(to, "changed", finding->changed);
    }
    strata_emit_object_end(to);
}

void findings_describe(findings_log *self, strata_emitter *to)
{
    strata_emit_list_begin(to, "kept_findings");
    strata_lock_take(&self->lock);
    uint64_t next = self->kept_first;
    strata_lock_release(&self->lock);
    for (bool more = true; more; next++) {
        strata_guard_finding finding;
        strata_lock_take(&self->lock);
        next = next < self->kept_first ? self->kept_first : next;
        more = next < self->kept_end;
        finding = self->kept[next % FINDINGS_KEPT];
        strata_lock_release(&self->lock);
        if (more)
            describe_finding(to, &finding);
    }
    strata_emit_list_end(to);
}
