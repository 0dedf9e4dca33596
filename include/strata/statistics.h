/* `statistics`: counts allocations and knows what is live.
 *
 * For bytes and blocks the layer counts the live amount, its peak, and the total ever allocated: overall, by tag, and
 * within scopes that are pushed and popped. Bytes are usable bytes (strata_block.bytes); requested bytes are totalled
 * separately. Each live block is known with its tag, its stream and, on request, the call stack of its allocation; a
 * report of live blocks groups them by these.
 *
 * Text: `statistics(stacks=on, leaks=file, file=leaks-%p.txt), async`. The counts appear in strata_stats_print and as
 * values of strata_control. The functions here take the layer: strata_stack_layer(stack, "statistics", 0).
 *
 * A block is live from the moment at which its allocation succeeded here to the moment at which its free did. Bytes
 * freed in stream order and not complete are in retired.bytes. A block is counted with the tag, size and call stack of
 * its allocation, whatever a copy passed to the free says.
 *
 * Peaks. A peak is exact if one thread alone used the layer since it was made, since the scope began, or since the
 * peaks were reset. With several threads it is never too low, and too high by at most two widths for each other thread.
 * A width is the larger of the largest block among that thread's last 2048 allocations and 1/64 of what it has live (of
 * blocks: the larger of 16 and 1/64). It doubles each time the thread meets others at the layer's lock, up to 64 times.
 *
 * Values read while other threads work are recent, each by itself. */
#ifndef STRATA_STATISTICS_H
#define STRATA_STATISTICS_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What happens to a report of leaks when the stack or its runtime is asked to end while blocks are live, and when the
 * process exits with live blocks. The report at exit follows all exit handlers, which may still free blocks. A log
 * callback that cannot be called so late must be removed before with strata_set_log_callback(NULL, NULL).
 * strata_statistics_leaks reports at any earlier moment. */
typedef enum strata_statistics_leaks_mode {
    STRATA_STATISTICS_LEAKS_OFF = 0, /* nothing */
    STRATA_STATISTICS_LEAKS_LOG,     /* the log callback gets one BUSY for each of the largest 16 groups */
    STRATA_STATISTICS_LEAKS_FILE,    /* the report is appended to a file as text */
} strata_statistics_leaks_mode;

typedef struct strata_statistics_options {
    uint32_t size;  /* sizeof(strata_statistics_options), or 0 */
    bool stacks;    /* record the call stack of each allocation */
    int leaks;      /* strata_statistics_leaks_mode */
    char file[256]; /* LEAKS_FILE: its path; %p: process, %%: a %. Made with the layer; empty if nothing leaks */
} strata_statistics_options;

/* Makes a statistics layer, to be built into a stack. NULL options: the defaults. Any thread. Errors: INVALID_VALUE (no
 * such mode, a file without LEAKS_FILE or the reverse, an unknown % in the name), IO (the file cannot be made),
 * OUT_OF_HOST_MEMORY, FORKED. */
STRATA_API strata_status strata_statistics_create(const strata_statistics_options *options, strata_resource **out);

/* In a scope these are changes since it began; current can be negative. */
typedef struct strata_statistics_counter {
    int64_t current; /* live */
    int64_t peak;    /* most that was live */
    int64_t total;   /* ever allocated */
} strata_statistics_counter;

typedef struct strata_statistics_counters {
    strata_statistics_counter bytes;
    strata_statistics_counter blocks;
    int64_t requested; /* total of requested bytes; bytes.total - requested went to rounding */
} strata_statistics_counters;

/* A scope: 0 is the time since the layer was made, n the n-th open scope, and this the innermost one. */
#define STRATA_STATISTICS_INNERMOST UINT32_MAX

/* Reads the counters of all blocks, or of the blocks with a tag, within a scope. *out is zeroed on failure, and zero
 * for a tag without blocks. Any thread. Errors: INVALID_VALUE (not a statistics layer, NULL, or a scope that is not
 * open), FORKED. */
STRATA_API strata_status strata_statistics_read(strata_resource *statistics, uint32_t scope,
                                                strata_statistics_counters *out);
STRATA_API strata_status strata_statistics_read_tag(strata_resource *statistics, uint32_t scope, strata_tag tag,
                                                    strata_statistics_counters *out);

/* Begins a scope inside the open ones, for all threads: all its counters start at 0. The outer scopes go on counting.
 * Any thread. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY, FORKED. */
STRATA_API strata_status strata_statistics_push(strata_resource *statistics);

/* Ends the innermost scope and writes its counters of all blocks to *out, which may be NULL. Read tags before. Any
 * thread. Errors: INVALID_VALUE (not a statistics layer, or no open scope), FORKED. */
STRATA_API strata_status strata_statistics_pop(strata_resource *statistics, strata_statistics_counters *out);

/* Sets every peak, of every tag and scope, to what is live now. Any thread. Errors: INVALID_VALUE, FORKED. */
STRATA_API strata_status strata_statistics_reset_peaks(strata_resource *statistics);

/* Allocations by size since the layer was made: counts[n] had more than 2^(n-1) and at most 2^n usable bytes. Any
 * thread. Errors: INVALID_VALUE, FORKED. */
enum { STRATA_STATISTICS_SIZES = 65 };
STRATA_API strata_status strata_statistics_sizes(strata_resource *statistics, uint64_t counts[STRATA_STATISTICS_SIZES]);

/* Number of allocations that failed with `status` since the layer was made; SUCCESS: with any status. 0 if `statistics`
 * is not such a layer. Any thread. */
STRATA_API uint64_t strata_statistics_failures(strata_resource *statistics, strata_status status);

/* Calls visit(block, call_stack, data) for each block that is live here, with the facts that this layer's user has.
 * `call_stack` is 0 for none. A block that is being allocated or freed may be left out; otherwise as
 * strata_stack_visit_blocks. Errors: INVALID_VALUE (also: not in a stack), FORKED. */
STRATA_API strata_status strata_statistics_visit(
    strata_resource *statistics, void (*visit)(const strata_block *block, uint32_t call_stack, void *data), void *data);

/* Calls line(text, data) for each frame of a call stack, innermost first: "function (file:line)" with libdw and debug
 * information, else "function (module)" or "module+0x1234". Call stacks are kept as long as the process. Any thread. */
STRATA_API void strata_statistics_call_stack(uint32_t call_stack, void (*line)(const char *text, void *data),
                                             void *data);

/* Writes a report of live blocks in groups of equal call stack and tag, or of tag and size class without call stacks,
 * the largest group first. Any thread. Errors: INVALID_VALUE (also: not in a stack), OUT_OF_HOST_MEMORY (nothing is
 * written), FORKED. */
STRATA_API strata_status strata_statistics_leaks(strata_resource *statistics, strata_format format,
                                                 strata_write_callback write, void *data);

#ifdef __cplusplus
}
#endif

#endif
