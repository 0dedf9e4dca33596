/* What the launcher asks for, and what is counted. Known to all other files, and knows none. */
#ifndef STRATA_ADAPTERS_EXEC_SETTINGS_H
#define STRATA_ADAPTERS_EXEC_SETTINGS_H

#include <strata/resource.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum exec_report_form {
    EXEC_REPORT_NONE = 0,
    EXEC_REPORT_TEXT,
    EXEC_REPORT_JSON,
} exec_report_form;

/* From the environment, written once. Names as in settings.c. */
typedef struct exec_settings {
    char stack[4096];
    char stack_again[4096];  /* for later stacks of the process, if the text above fails; empty: none */
    uint64_t budget;         /* bytes; 0: none, or a share of the device */
    double share;            /* of the device, per cent; 0: none */
    strata_amount set_aside; /* of the budget, for what no hook sees; zeros: nothing */
    char output[4096];       /* the report's file; empty: standard error */
    exec_report_form report;
    unsigned stacks; /* the most call stacks that a report lists; 0: none are taken */
    bool charged;    /* the stack has a budget */
    bool counts;     /* what is passed on is counted, since it is charged or reported */
    bool fail_closed;
} exec_settings;
extern exec_settings exec_settings_now;

/* Whether Strata is for this process: it is the one that the launcher became, or children are asked for, too. Any
 * thread; no lock, no host memory. */
bool exec_is_wanted(void);

/* Reads the settings, once. Also called by code that may run before this library's constructor. Any thread. */
void exec_read_settings(void);

/* Writes a line to standard error, behind "strata exec: ". */
void exec_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Calls that the report counts. Any thread, relaxed. */
typedef struct exec_counts {
    _Atomic uint64_t served, served_async, refused, bad_frees, late_waits;
} exec_counts;
extern exec_counts exec_counts_now;

static inline void exec_count(_Atomic uint64_t *count)
{
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

/* At the start of the process: takes the sanitizer's library out of LD_PRELOAD, since children are not run under
 * Strata. */
void exec_leave_sanitizer(void);

/* For a process that Strata is not for: removes the settings, and this library's entry in LD_PRELOAD. */
void exec_clean_environment(void);

#endif
