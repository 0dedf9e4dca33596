/* `statistics`: counts allocations and knows what is live. The functions take the layer: strata_stack_layer(stack,
 * "statistics", 0).
 *
 * The layer counts live amount, peak and total of usable bytes (strata_block.bytes) and blocks, overall, by tag, and
 * within scopes. A block is live from the success of its allocation here to that of its free, and counts with the tag,
 * size and call stack of its allocation, whatever a copy passed to the free says.
 *
 * A peak was live at once: it is never above that, nor above the total or a hard limit. It is exact if one thread alone
 * used the layer since it was made, the scope began, or the peaks were reset. With several threads it may lack up to 64
 * KiB and 64 blocks of each (docs/layers/statistics.md). What one call reads is of one moment. */
#ifndef STRATA_STATISTICS_H
#define STRATA_STATISTICS_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The report of live blocks when the stack or its runtime is asked to end, and at process exit, after all exit
 * handlers. A log callback that cannot be called so late must be removed first: strata_set_log_callback(NULL, NULL). */
typedef enum strata_statistics_leaks_mode {
    STRATA_STATISTICS_LEAKS_OFF = 0, /* nothing */
    STRATA_STATISTICS_LEAKS_LOG,     /* the log callback gets one BUSY for each of the largest 16 groups; without a
                                        callback the report is written to standard error, unless STRATA_REPORT says
                                        otherwise (docs/install.md) */
    STRATA_STATISTICS_LEAKS_FILE,    /* the report is appended to a file as text */
} strata_statistics_leaks_mode;

typedef struct strata_statistics_options {
    uint32_t size;
    bool stacks;    /* of each allocation */
    int leaks;      /* strata_statistics_leaks_mode */
    char file[256]; /* LEAKS_FILE: its path; %p: process, %%: a %. Made with the layer; empty if nothing leaks.
                       "/dev/stdout", "/dev/stderr" and "/dev/fd/N" are written to, not opened; a symbolic link is
                       refused */
    uint64_t mode;  /* permission bits if the file is made, such as 0640; 0: 0600 */
} strata_statistics_options;

/* Makes the layer. Errors: INVALID_VALUE (no such mode, a file without LEAKS_FILE or the reverse, an unknown % in the
 * name), IO (the file cannot be made). */
STRATA_API strata_status strata_statistics_create(const strata_statistics_options *options, strata_resource **out);

/* In a scope: changes since it began; current can be negative. */
typedef struct strata_statistics_counter {
    int64_t current; /* live */
    int64_t peak;
    int64_t total;
} strata_statistics_counter;

typedef struct strata_statistics_counters {
    strata_statistics_counter bytes;
    strata_statistics_counter blocks;
    int64_t requested; /* total requested; the rest of bytes.total is rounding */
} strata_statistics_counters;

/* Scope 0: since the layer was made; n: the n-th open scope; this: the innermost. */
#define STRATA_STATISTICS_INNERMOST UINT32_MAX

/* Reads the counters of all blocks, or of those with a tag, within a scope. *out is zero on failure and for a tag
 * without blocks. Errors: INVALID_VALUE (not a statistics layer, or no such open scope). */
STRATA_API strata_status strata_statistics_read(strata_resource *statistics, uint32_t scope,
                                                strata_statistics_counters *out);
STRATA_API strata_status strata_statistics_read_tag(strata_resource *statistics, uint32_t scope, strata_tag tag,
                                                    strata_statistics_counters *out);

/* Begins a scope of the whole layer inside the open ones, which go on counting: it counts the changes of all threads,
 * from 0. Errors: OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_statistics_push(strata_resource *statistics);

/* Ends the innermost scope. *out, which may be NULL: its counters of all blocks; read tags before. Errors:
 * INVALID_VALUE (no open scope). */
STRATA_API strata_status strata_statistics_pop(strata_resource *statistics, strata_statistics_counters *out);

/* ---- scopes that threads enter ---- */

/* Counts what was allocated in it: for phases or tasks that run at the same time. A block counts until it is freed, by
 * any thread, in the scope that its thread was in and in those around that one. Peaks are exact. */
typedef struct strata_statistics_scope strata_statistics_scope;

/* Opens a scope, inside of `around` if that is not NULL; name: at most 63 bytes, copied; NULL: "scope". Errors:
 * INVALID_VALUE (not a statistics layer, `around` is of another one, the name), BUSY (2047 scopes are open or have live
 * blocks), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_statistics_scope_open(strata_resource *statistics, strata_statistics_scope *around,
                                                      const char *name, strata_statistics_scope **out);

/* From now on the calling thread's allocations count in the scope; NULL: in none. Several threads can be in one.
 * *previous, if not NULL: the scope before. Errors: INVALID_VALUE (of another layer), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_statistics_scope_enter(strata_resource *statistics, strata_statistics_scope *scope,
                                                       strata_statistics_scope **previous);

/* Reads the counters of all blocks that count in the scope. */
STRATA_API strata_status strata_statistics_scope_read(const strata_statistics_scope *scope,
                                                      strata_statistics_counters *out);

/* Closes the scope; *out, which may be NULL: its counters. No thread may be in it or use it afterwards; NULL is
 * ignored. Errors: BUSY (scopes inside are open). */
STRATA_API strata_status strata_statistics_scope_close(strata_statistics_scope *scope, strata_statistics_counters *out);

/* Sets every peak, of every tag, scope and call stack, to what is live now. */
STRATA_API strata_status strata_statistics_reset_peaks(strata_resource *statistics);

/* Allocations since the layer was made: counts[n] had more than 2^(n-1) and at most 2^n usable bytes. */
enum { STRATA_STATISTICS_SIZES = 65 };
STRATA_API strata_status strata_statistics_sizes(strata_resource *statistics, uint64_t counts[STRATA_STATISTICS_SIZES]);

/* Allocations that failed with `status` since the layer was made; SUCCESS: with any. 0 if `statistics` is no such
 * layer. */
STRATA_API uint64_t strata_statistics_failures(strata_resource *statistics, strata_status status);

/* Calls visit(block, call_stack, data) for each block that is live here, with the facts that this layer's user has;
 * call_stack 0: none. A block that is being allocated or freed may be left out; otherwise as strata_stack_visit_blocks.
 * Errors: INVALID_VALUE (not in a stack). */
STRATA_API strata_status strata_statistics_visit(
    strata_resource *statistics, void (*visit)(const strata_block *block, uint32_t call_stack, void *data), void *data);

/* With call stacks: calls visit(call_stack, tag, counters, data) for each of which blocks were allocated since the
 * layer was made; `tag` is its latest allocation's. A call stack's peak is exact: of what it alone held. What one call
 * of visit gets is not of one moment if other threads allocate. Errors: INVALID_VALUE (not a statistics layer). */
STRATA_API strata_status strata_statistics_visit_stacks(strata_resource *statistics,
                                                        void (*visit)(uint32_t call_stack, strata_tag tag,
                                                                      const strata_statistics_counters *counters,
                                                                      void *data),
                                                        void *data);

/* Calls line(text, data) for each frame, innermost first: "function (file:line)" with libdw and debug information, else
 * "function (module)" or "module+0x1234". Call stacks are kept as long as the process. */
STRATA_API void strata_statistics_call_stack(uint32_t call_stack, void (*line)(const char *text, void *data),
                                             void *data);

/* Writes a report of live blocks in groups of equal call stack and tag, or of tag and size class without call stacks,
 * the largest first. Errors: INVALID_VALUE (not in a stack), OUT_OF_HOST_MEMORY (nothing is written). */
STRATA_API strata_status strata_statistics_leaks(strata_resource *statistics, strata_format format,
                                                 strata_write_callback write, void *data);

#ifdef __cplusplus
}
#endif

#endif
