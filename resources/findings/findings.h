/* Findings of guard and sampling guard: keeping, reporting, printing, and the check at process exit.
 *
 *     guard, sampling ---> findings.c   keeps findings, calls the callback or the log callback, or writes them
 *                          text.c       a finding as text
 *                          exit_list.c, at_exit.c: the last check, and the process's exit status
 *                          flush.c      what the program's streams hold back, before it ends
 *
 * Each layer has a findings_log. */
#ifndef STRATA_RESOURCES_FINDINGS_FINDINGS_H
#define STRATA_RESOURCES_FINDINGS_FINDINGS_H

#include "core/base/lock.h"

#include <strata/guard.h>

enum {
    FINDINGS_KEPT = 64,
    FINDINGS_PATIENCE_MS = 2000, /* how long a last check waits for work that may never end */
};

/* Fill bytes; <strata/guard.h> documents them. */
enum { FRESH_BYTE = 0xcd, RED_ZONE_BYTE = 0xbd, FREED_BYTE = 0xdd };

/* Bytes that must have one value. */
typedef struct checked_range {
    CUdeviceptr address;
    size_t bytes;
    unsigned char expected;
    uint8_t kind; /* strata_guard_kind of a change */
} checked_range;

enum { RED_ZONES = 2 }; /* front and back */

/* A freed block, remembered in case it is freed again. */
typedef struct freed_block {
    strata_block block;
    uint32_t allocated_at, freed_at; /* call stacks */
} freed_block;

typedef struct findings_log {
    const strata_guard_options *options; /* constant */
    strata_resource *layer;              /* set once by findings_check_at_exit; else NULL */
    strata_status (*check)(strata_resource *layer);
    struct findings_log *next, *previous; /* in the exit list, guarded by its lock */
    strata_lock lock;
    strata_guard_finding kept[FINDINGS_KEPT]; /* a ring; guarded by lock, like its ends */
    uint64_t kept_first, kept_end;
    /* Any thread, relaxed: statistics. */
    _Atomic uint64_t findings, lost;
    _Atomic size_t unseen;           /* findings since the last check of everything */
    _Atomic bool allocation_to_fail; /* on_finding=fail */
} findings_log;

/* ---- flush.c ---- */

/* Flushes the program's output as exit would, but gives up after two seconds. The caller ends the process. */
void findings_flush_output(void);

/* ---- findings.c ---- */

void findings_init(findings_log *self, const strata_guard_options *options);
void findings_destroy(findings_log *self);

/* Counts and keeps findings. Called before threads that wait can go on: they then see them. */
void findings_record(findings_log *self, const strata_guard_finding *findings, size_t count);

/* Reports recorded findings to the callback or the log callback, all before on_finding=exit ends the process. The
 * caller holds no lock, and no thread waits for it: the callback may wait for a thread that calls the stack. */
void findings_report(const findings_log *self, const strata_guard_finding *findings, size_t count);

/* Reports a finding to the log callback, unless it is a refused free or an illegal access: those were raised already.
 * Writes it as text if nothing else says it, or STRATA_REPORT asks for it. `ends_process`: it is written to standard
 * error anyway. */
void findings_raise(const strata_guard_finding *finding, bool ends_process);

/* The oldest kept finding; false if there is none. */
bool findings_take(findings_log *self, strata_guard_finding *out);

/* The kept findings as a list. */
void findings_describe(findings_log *self, strata_emitter *to);

/* With on_finding=fail, the error for one allocation after findings; else SUCCESS. */
strata_status findings_fail_allocation(findings_log *self);

/* Whether the status of a free makes it a finding. */
bool findings_is_refused_free(strata_status status);

/* Records and reports a refused free. `first`: the block's first free; zero: unknown. */
void findings_report_refused(findings_log *self, const strata_block *block, strata_status status,
                             const freed_block *first, uint32_t found_at);

/* As findings_report_refused, for a free by address. */
void findings_report_refused_address(findings_log *self, CUdeviceptr address, int device, const freed_block *first,
                                     uint32_t found_at);

/* ---- text.c ---- */

const char *finding_kind_name(strata_guard_kind kind);

/* Whether a finding is about changed bytes. */
bool finding_has_bytes(const strata_guard_finding *finding);

/* Writes the position of the first changed byte. */
void finding_describe_offset(const strata_guard_finding *finding, char *text, size_t room);

/* As strata_guard_finding_print, for a block that an illegal access may be about, if there was one. */
void findings_print_candidate(const strata_guard_finding *candidate, strata_write_callback write, void *data);

/* ---- at_exit.c ---- */

/* Checks `layer` at process exit, until exit_list_remove. */
void findings_check_at_exit(findings_log *self, strata_resource *layer, strata_status (*check)(strata_resource *layer));

/* ---- exit_list.c ---- */

/* Takes a log out of the list, if it is there. */
void exit_list_remove(findings_log *self);

/* Keeps findings for the exiting thread. False if the calling thread does not check at exit. */
bool exit_list_take_findings(const findings_log *log, const strata_guard_finding *findings, size_t count);

#endif
